"""Loops that data and sizes decide: one capture goes every way that eager goes, with its values and gradients."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from tests.capture.loop_programs import CASES
from torch import nn
from torch.utils._pytree import tree_leaves

from graphwright import CaptureError, GuardError, Interpreter, symbolic_trace, trace
from graphwright.ops import is_region, loop_parts, while_loop
from graphwright.runtime import expect_outside, expect_tensors


def outcome(program: Any, x: torch.Tensor) -> Any:
    """What a program gives, of what type, with gradients; or what it raises."""
    x = x.clone().requires_grad_()
    try:
        value = program(x)
    except (ValueError, AssertionError) as error:
        return type(error).__name__, error.args
    found = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    parameters = list(program.parameters()) if isinstance(program, nn.Module) else []
    wanted = [x, *parameters]
    grads = torch.autograd.grad(sum(leaf.sum() for leaf in found), wanted, allow_unused=True) if found else ()
    leaves = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves(value)]
    return type(value).__name__, leaves, grads


def check(found: Any, expected: Any, text: Any) -> None:
    assert found[0] == expected[0], text
    if expected[0] in ("ValueError", "AssertionError"):
        assert found == expected
    else:
        torch.testing.assert_close(found[1:], expected[1:], rtol=0, atol=0, msg=lambda why: f"{why}\n{text}")


def name_of(case: Any) -> str:
    return case[0].__name__ if hasattr(case[0], "__name__") else type(case[0]).__name__


def interpreted(gm: Any) -> Any:
    interpreter = Interpreter(gm)
    interpreter.extra_traceback = False
    return interpreter.run


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_one_capture_goes_every_way(case: Any) -> None:
    program, inputs = case
    gm = trace(program, inputs[0])
    gm.graph.lint()
    assert not any(guard.node and guard.node.target not in OF_INPUTS for guard in gm.guards)
    assert any(is_region(node) for node in gm.graph.all_nodes())
    assert gm.report.coverage == 1.0
    for x in inputs:
        expected = outcome(program, x)
        check(outcome(gm, x), expected, gm.code)
        check(outcome(interpreted(gm), x)[:2], expected[:2], gm.graph)


OF_INPUTS = (expect_outside, expect_tensors)

# What takes values: None; and what is written in place to a tensor that symbolic tracing has computed itself.
VALUES = {"starts_with_none", "in_place"}


@pytest.mark.parametrize("case", [case for case in CASES if name_of(case) not in VALUES], ids=name_of)
def test_symbolic_tracing_goes_every_way_too(case: Any) -> None:
    program, inputs = case
    gm = symbolic_trace(program)
    gm.graph.lint()
    for x in inputs:
        check(outcome(gm, x), outcome(program, x), gm.code)


def asks_for_the_class(x: torch.Tensor) -> Any:
    total: Any = 0
    for row in x:
        if isinstance(total, int):
            total = row * 2
        total = total + row
    return total


def test_the_class_of_what_starts_as_a_number_is_not_guessed() -> None:
    gm = trace(asks_for_the_class, torch.ones(3, 2))  # unrolled, since only the first row finds a number
    assert torch.equal(gm(torch.ones(3, 2)), asks_for_the_class(torch.ones(3, 2)))
    with pytest.raises(GuardError, match="was 3; now it is 2"):
        gm(torch.ones(2, 2))
    assert any("a number on some ways and a tensor on others" in entry.text for entry in gm.report.restarts)


def fills_as_many_as_there_are(x: torch.Tensor) -> torch.Tensor:
    kept = x[x > 0]
    if kept.shape[0] > 5:  # only real values tell
        kept = kept * 2
    filled = torch.zeros(3, 2)
    i = 0
    while i < x.sum():
        filled[i] = kept.sum()  # wrong for an iteration that the example does not have
        i += 1
    return filled[:i]


def test_no_iteration_is_run_that_the_example_does_not_have() -> None:
    gm = trace(fills_as_many_as_there_are, (torch.tensor([1.0, 2.0]),))
    assert [node for node in gm.graph.nodes if node.target is while_loop]
    for values in ([1.0, 2.0], [1.0, 1.0], [0.0, 0.0]):
        x = torch.tensor(values)
        assert torch.equal(gm(x), fills_as_many_as_there_are(x))


class Ends:
    """Keeps what it compares with where it was asked last, as stopping criteria do."""

    def __init__(self, token: int) -> None:
        self.token = torch.tensor([token])

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        self.token = self.token.to(ids.device)
        return torch.isin(ids[:, -1:], self.token).any(dim=-1)


class Several(list[Any]):
    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        is_done = torch.full((ids.shape[0],), False)
        for each in self:
            is_done = is_done | each(ids)
        return is_done


def continues_until_all_have_ended(ids: torch.Tensor) -> torch.Tensor:
    ends = Several([Ends(5), Ends(6)])
    unfinished = torch.ones(ids.shape[0], dtype=torch.long)
    while unfinished.max() != 0:
        ids = torch.cat([ids, (ids[:, -1:] * 3 + 1) % 7], dim=1)
        unfinished = unfinished & ~ends(ids)
    return ids


def test_objects_in_a_list_of_a_class_of_ones_own_are_state_of_the_loop() -> None:
    gm = trace(continues_until_all_have_ended, (torch.tensor([[1, 2], [2, 4]]),))
    for ids in (torch.tensor([[1, 2], [2, 4]]), torch.tensor([[1, 2, 1]]), torch.tensor([[3, 0], [1, 2], [2, 5]])):
        assert torch.equal(gm(ids), continues_until_all_have_ended(ids))


def mixes(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(2, dtype=torch.int64)
    while x.sum() > 1:
        x = x / 2
        total = total + x
    return total


def test_a_value_that_changes_its_dtype_is_named() -> None:
    with pytest.raises(CaptureError, match=r"'total': a tensor of torch.int64 .* before, a tensor of torch.float32"):
        trace(mixes, torch.ones(2))


def keyed(x: torch.Tensor) -> Any:
    found = {}
    for i in range(x.size(0)):
        found[i] = x[i] if i % 2 else x[i, 0]
    return found


def goes_on(x: torch.Tensor, n: int) -> Any:
    for i in range(x.size(0)):
        state, count = x[i] * 2, i
    total = state * 0
    for _ in range(n):
        total = total + state
        state, count = state + 1, count + 2
    return total, state, count


def goes_on_sometimes(x: torch.Tensor, n: int) -> Any:
    for row in x:
        state = row
    for i in range(n):
        if x.sum() > i:
            state = state * 2
    return state


def goes_on_in_a_while(x: torch.Tensor, n: int) -> Any:
    for row in x:
        state = row
    while n > 0:
        state, n = state + n, n - 1
    return state


def goes_on_in_a_container(x: torch.Tensor, n: int) -> Any:
    for row in x:
        states = [row]
    for i in range(n):
        states.append(states[0] * i)
    return states


def starts_by_an_error(x: torch.Tensor, n: int) -> Any:
    for row in x:
        try:
            total = total + row * n
        except NameError:
            total = row
    return total


GOING_ON = [starts_by_an_error, goes_on, goes_on_sometimes, goes_on_in_a_while, goes_on_in_a_container]


@pytest.mark.parametrize("program", GOING_ON, ids=lambda program: program.__name__)
def test_a_loop_goes_on_with_what_a_loop_before_it_left(program: Any) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    gm = trace(program, (x, 3))
    calls = [(x, 3), (-x, 1), (x, 0), (x[:1], 2), (torch.cat([x, x]), 4)]
    for call in calls if program not in (goes_on_in_a_container, starts_by_an_error) else calls[:1]:
        for run in (gm, Interpreter(gm).run):
            torch.testing.assert_close(run(*call), program(*call), rtol=0, atol=0)
    with pytest.raises((UnboundLocalError, GuardError)):
        gm(x[:0], 2)


def test_the_variable_of_two_loops_is_carried_by_none() -> None:
    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        for i in range(x.size(0)):
            x = x * (i + 1)
        for i in range(n):
            x = x + i
        return x

    gm = trace(program, (torch.ones(2), 2))
    assert all(len(loop_parts(node).carried) == 1 for node in gm.graph.nodes if is_region(node))
    assert torch.equal(gm(torch.ones(3), 4), program(torch.ones(3), 4))


def recurrence(x: torch.Tensor) -> Any:
    rows: list[torch.Tensor] = []
    for i in range(x.size(0)):
        if i == 0:
            row = x[i]
        else:
            row = x[i] - torch.stack(rows).sum(0)  # there is nothing to stack in the first iteration
        rows.append(row)
    return torch.stack(rows)


def test_an_answer_of_one_iteration_is_none_of_the_others() -> None:
    gm = trace(recurrence, torch.ones(3, 2))
    x = torch.rand(3, 2)
    torch.testing.assert_close(gm(x), recurrence(x), rtol=0, atol=0)
    with pytest.raises(GuardError, match="was 3; now it is 2"):
        gm(torch.ones(2, 2))


def test_a_loop_over_a_size_that_cannot_be_kept_is_unrolled_under_a_guard() -> None:
    gm = trace(keyed, torch.ones(3, 2))
    torch.testing.assert_close(gm(torch.rand(3, 2) * 0 + 2), keyed(torch.full((3, 2), 2.0)), rtol=0, atol=0)
    with pytest.raises(GuardError, match="was 3; now it is 2"):
        gm(torch.ones(2, 2))


def test_a_guard_in_an_iteration_is_checked_in_each_and_is_none_of_what_comes_after() -> None:
    def program(x: torch.Tensor, n: int, k: int) -> Any:
        found: dict[Any, int] = {"a": 1}
        i = 0
        for i in range(n):  # noqa: B007 -- the body is captured once more, as it carries i
            if k > 2:
                found[k] = 1  # a key of another class: no branch of the graph
        if k > 2:
            x = x + 1
        return found, x, i

    x = torch.ones(2)
    captured = trace(program, (x, 2, 1))
    for n, k in ((2, 1), (0, 5), (3, 2)):
        found, y, i = captured(x, n, k)
        assert (found, i) == program(x, n, k)[::2] and torch.equal(y, program(x, n, k)[1])
    with pytest.raises(GuardError, match="if k > 2"):
        captured(x, 2, 5)


def one_that_does_not_fit(x: torch.Tensor) -> torch.Tensor:
    found = False
    for size in x.shape[-2:]:
        if size % 4 != 0:
            found = True
            break
    y = x * 2
    return y + 1 if found else y


def one_of_two_kinds(x: torch.Tensor) -> torch.Tensor:
    found = False
    for number in (x.shape[0], 2.5, x.shape[1]):
        if number > 3:
            found = True
            break
    y = x * 2
    return y + 1 if found else y


@pytest.mark.parametrize("program", [one_that_does_not_fit, one_of_two_kinds])
def test_what_comes_after_a_loop_over_sizes_is_there_once(program: Any) -> None:
    gm = trace(program, torch.ones(4, 4))
    assert not gm.report.forks and len(gm.graph.find_nodes(op="call_function", target=operator.mul)) == 1
    for sizes in ((4, 4), (3, 4), (8, 2), (2, 2)):
        assert torch.equal(gm(torch.ones(sizes)), program(torch.ones(sizes)))


def of_level(n: int, h: torch.Tensor, x: torch.Tensor, levels: torch.Tensor, edges: torch.Tensor) -> None:
    rows = levels == n
    if n == 0:
        found = x[rows]
    else:
        below = edges[levels[edges[:, 0]] == n]
        counts = torch.unique_consecutive(below[:, 0], return_counts=True)[1]
        found = torch.stack([part.sum(0) for part in torch.split(h[below[:, 1]], tuple(counts))])
    if n == 0:
        h[rows] = found * 2
    else:
        h[rows] = found + x[below[:1, 1]]  # which there is on this side alone


def over_a_tree(x: torch.Tensor, levels: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    h = torch.zeros_like(x)
    for n in range(levels.max() + 1):
        of_level(n, h, x, levels, edges)
    return h


def test_no_guard_says_of_all_iterations_what_holds_in_the_first() -> None:
    wide = torch.tensor([2, 1, 0, 0, 0]), torch.tensor([[0, 1], [0, 2], [1, 3], [1, 4]])
    other = torch.tensor([0, 1, 2, 0, 0]), torch.tensor([[1, 0], [2, 1], [2, 3], [2, 4]])
    gm = trace(over_a_tree, (torch.randn(5, 3), *wide))
    for tree in (wide, other):
        x = torch.randn(5, 3)
        assert torch.equal(gm(x, *tree), over_a_tree(x, *tree))


def summed(x: torch.Tensor, stops: torch.Tensor) -> tuple[torch.Tensor | float, list[int]]:
    total: torch.Tensor | float = 0.0
    seen = []
    if x.sum() > 0:
        total = total + x.sum()
    else:
        for _ in range(x.size(0)):
            total += x.sum()  # on the other way around it a number comes here
            seen.append(int(stops[0].item()))
            if stops[0].item() == 3:
                break
    return total, seen


def test_what_the_example_leaves_is_a_number_or_a_tensor_of_data() -> None:
    gm = trace(summed, (torch.ones(2), torch.tensor([1])))
    for x in (torch.ones(2), -torch.ones(4), -torch.ones(0)):
        for stop in (1, 3):
            assert gm(x, torch.tensor([stop])) == summed(x, torch.tensor([stop]))
