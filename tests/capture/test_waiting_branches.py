"""Branches whose sides cannot be joined where they end, but can where their function ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphwright import trace, verify
from graphwright.capture.conversion.unshared import unshared


def options(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    found = {}
    if mask.all():
        found["keepdim"] = True
    else:
        x = x * mask
    return x.sum(1, **found).reshape(-1)


def one_sided(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mask.all():
        start = x.mean(0)
    x = x * 2
    if mask.all():
        x = x - start
    return x


def other_rank(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mask.all():
        weight = x.sum()
    else:
        weight = x.sum(0)
    return x * weight + 1


def inside(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    names: list[int] = []
    if x.dim() == 2:
        if mask.any():
            names.append(1)
        elif x.size(0) == 1:
            x = x - 1
    return x.sum([*names, 0]).sum()


def helper(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return options(options(x, mask)[:, None].expand(-1, 3), mask[: x.shape[0]]) + other_rank(x, mask).sum()


MASKS = torch.ones(2, 3, dtype=torch.bool), torch.eye(2, 3, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.bool)


@pytest.mark.parametrize("program", [options, one_sided, other_rank, inside, helper])
def test_the_rest_of_the_function_is_part_of_both_sides(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.randn(2, 3), MASKS[0]))
    assert gm.report.facts.paths == 1
    for mask in MASKS:
        for x in (torch.randn(2, 3), torch.randn(2, 3, requires_grad=True)):
            torch.testing.assert_close(gm(x, mask), program(x, mask))


def test_it_is_written_as_two_sides() -> None:
    gm = trace(options, (torch.randn(2, 3), MASKS[0]))
    assert [line.strip() for line in gm.code.splitlines() if "#" not in line and line.strip()] == [
        "def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:",
        "if mask.all():",
        "return x.sum(1, keepdim=True).reshape(-1)",
        "x_1 = x * mask",
        "return x_1.sum(1).reshape(-1)",
    ]


def test_a_dict_that_others_hold_is_not_given_up() -> None:
    def keeps(x: torch.Tensor, held: dict[str, Any]) -> torch.Tensor:
        if x.sum() > 0:
            held["positive"] = True
        return x * len(held)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        held: dict[str, Any] = {}
        return keeps(x, held), len(held)

    gm = trace(program, (torch.ones(2),))
    for x in (torch.ones(2), -torch.ones(2)):
        assert gm(x)[1] == program(x)[1] and torch.equal(gm(x)[0], program(x)[0])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return attend(self.query(x), self.key(x), mask)


def attend(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    flags: dict[str, Any] = {}
    if mask is None:
        flags["is_causal"] = True
    return F.scaled_dot_product_attention(query, key, key, attn_mask=mask, **flags)


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention() for _ in range(3))

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        mask = None if padding.all() else padding[:, None, :].expand(-1, x.shape[1], -1)
        for layer in self.layers:
            x = layer(x, mask)
        return x


def test_layers_are_there_once() -> None:
    stack, full, part = Stack(), torch.ones(2, 3, dtype=torch.bool), torch.tensor([[True, True, False]] * 2)
    for max_paths in (8, 1):
        gm = trace(stack, (torch.randn(2, 3, 4), full), max_paths=max_paths)
        assert sum(node.op == "call_module" for node in gm.graph.all_nodes()) == 6
        assert verify(stack, gm, [(torch.randn(2, 3, 4), full), (torch.randn(1, 3, 4), part[:1])]).ok


def test_with_one_path_no_module_is_called_on_both_sides() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            extra: dict[str, Any] = {}
            if self.training:
                extra["keepdim"] = True
            return self.linear(x).sum(1, **extra).sum()

    model = Early().eval()
    assert trace(model, (torch.ones(2, 3),)).report.facts.paths == 1
    gm = trace(model, (torch.ones(2, 3),), max_paths=1)
    assert sum(node.op == "call_module" for node in gm.graph.all_nodes()) == 1


class Skips(nn.Module):
    """Layers that note what they have seen, and are left out at random."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Notes() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            skip: Any = False
            if self.training:
                skip = torch.rand([]) < 0.5
            if skip:
                continue
            x = layer(x)
        return x


class Notes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = x.dtype
        self.rows = x.shape[0]
        return self.linear(x)


def test_layers_that_are_skipped_and_write_attributes_are_joined() -> None:
    model = Skips()
    gm = trace(model, (torch.ones(2, 3),))
    assert gm.report.facts.paths == 1
    for seed in range(4):
        torch.manual_seed(seed)
        expected = model(torch.ones(5, 3))
        torch.manual_seed(seed)
        assert torch.equal(gm(torch.ones(5, 3)), expected)
        assert [vars(a).get("rows") for a in gm.layers] == [vars(b).get("rows") for b in model.layers]
    gm.eval(), model.eval()
    assert torch.equal(gm(torch.ones(2, 3)), model(torch.ones(2, 3)))


def test_an_attribute_that_one_side_writes_and_that_is_read_later() -> None:
    class Reads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 0:
                self.positive = x.mean()
            x = x + 1
            return x + self.positive if hasattr(self, "positive") else x

    for value in (1.0, -1.0):
        model = Reads()
        gm = trace(model, (torch.full((2,), value),))
        assert torch.equal(gm(torch.full((2,), value)), model(torch.full((2,), value)))


def test_what_is_none_on_one_side_is_none_after_it() -> None:
    def float_mask(mask: torch.Tensor | None) -> torch.Tensor | None:
        if mask is not None:
            mask = torch.where(mask, 0.0, -1.0)
        return mask

    def program(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        mask = float_mask(None if padding.all() else padding)
        return x if mask is None else x + mask

    gm = trace(program, (torch.randn(2, 3), MASKS[0]))
    assert gm.report.facts.paths == 1
    for mask in MASKS:
        x = torch.randn(2, 3)
        assert torch.equal(gm(x, mask), program(x, mask))


def test_a_condition_that_another_one_implies_is_not_asked_again() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.size(0) > 1 and y.size(0) > 1:
            if x.size(0) > 1:
                x = x + 1
            if not y.size(0) > 1:
                x = x - 1
        return x

    gm = trace(program, (torch.ones(2), torch.ones(2)))
    code = [line.strip() for line in gm.code.splitlines() if "#" not in line]
    assert [line for line in code if line.startswith("if ")] == ["if x.size(0) > 1 and y.size(0) > 1:"]
    for sizes in ((1, 1), (1, 2), (2, 1), (3, 3)):
        x, y = map(torch.ones, sizes)
        assert torch.equal(gm(x, y), program(x, y))


class Delays(nn.Module):
    """Takes half of the values: of each row, in training of all rows together."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = x.size(1) // 2
        if self.training:
            index = torch.topk(x.mean(0), count)[1]
            weights = torch.stack([x[:, index[i]] for i in range(count)], dim=-1)
        else:
            weights, index = torch.topk(x, count, dim=1)
        if not self.training:
            rows = torch.arange(x.size(1)).repeat(x.size(0), 1)
        total = torch.zeros_like(x)
        for i in range(count):
            if self.training:
                moved = x.roll(shifts=-int(index[i]), dims=1)
            else:
                moved = x.gather(1, (rows + index[:, i : i + 1]) % x.size(1))
            total = total + moved * weights[:, i : i + 1]
        return total


def test_two_ways_through_a_function_with_lists_and_loops() -> None:
    model = Delays().eval()
    gm = trace(model, (torch.randn(2, 6),))
    assert not [guard for guard in gm.guards if "tensor" not in guard.what and guard.node is not None]
    for mode in (True, False):
        gm.train(mode), model.train(mode)
        for shape in ((2, 6), (3, 9), (1, 4)):
            x = torch.randn(shape)
            torch.testing.assert_close(gm(x), model(x))


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("a = {}; a['k'] = 1; return g(**a)", {"a"}),
        ("a = []; a.append(1); return g(*a), len(a), a[0], 1 in a", {"a"}),
        ("a = {}; b = a; return g(**b)", set()),
        ("a = {}; return g(a)", set()),
        ("a = {}; return a", set()),
        ("a = {}; return lambda: a", set()),
        ("a = {}; return a.items()", set()),
        ("a = x; return a[0]", set()),
        ("a = x = {}; return a[0]", set()),
        ("return g(**x)", set()),
        ("return g(**more)", {"more"}),
        ("return g([*more], more.get)", set()),
    ],
)
def test_lists_and_dicts_that_nobody_else_holds(body: str, names: set[str]) -> None:
    import ast

    (definition,) = ast.parse(f"def f(x, **more):\n    {body}").body
    assert isinstance(definition, ast.FunctionDef)
    found = unshared(definition)
    assert found - {"more"} == names - {"more"} and ("more" in names) <= ("more" in found)


class EarlyExits(nn.Module):
    """Layers of which each may be the last, as the values decide."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(count)])


class ByLayer(EarlyExits):
    def forward(self, x: torch.Tensor, least: float) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            if x.sum() > least:
                return x
        return x.relu()


class ByNumberAndLayer(EarlyExits):
    def forward(self, x: torch.Tensor, least: float) -> tuple[torch.Tensor, int]:
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if x.sum() > least:
                return x, number
        return x.relu(), -1


class ByNumber(EarlyExits):
    def forward(self, x: torch.Tensor, least: float) -> tuple[torch.Tensor, int]:
        for number in range(len(self.layers)):
            x = self.layers[number](x)
            if x.sum() > least:
                return x, number
        return x.relu(), -1


class InPairs(EarlyExits):
    def forward(self, x: torch.Tensor, least: float) -> dict[str, torch.Tensor]:
        seen = []
        for layer, scale in zip(self.layers, (1, 2, 3) * 8, strict=False):
            x = layer(x) * scale
            seen.append(x)
            if x.sum() > least:
                return {"last": seen[-1]}
        return {"last": x.relu()}


@pytest.mark.parametrize("kind", [ByLayer, ByNumberAndLayer, ByNumber, InPairs])
def test_each_exit_of_a_loop_over_layers_returns_what_it_has(kind: type[EarlyExits]) -> None:
    torch.manual_seed(0)
    program, x = kind(), torch.randn(2, 3)
    gm = trace(program, (x, 0.0))
    if kind is not InPairs:
        assert gm.code.count("    return ") == 4 and "returned" not in gm.code and "None" not in gm.code, gm.code
    exits = set()
    for least in (-9.0, -1.0, 0.0, 0.5, 1.0, 9.0):
        expected, given = program(x, least), gm(x, least)
        torch.testing.assert_close(given, expected, rtol=0, atol=0)
        exits.add(str(expected))
    assert len(exits) > 2


def test_there_may_be_many_exits() -> None:
    program, x = ByLayer(24), torch.randn(2, 3)
    gm = trace(program, (x, 9.0))
    assert not gm.report.forks
    for least in (-9.0, 0.0, 9.0):
        torch.testing.assert_close(gm(x, least), program(x, least), rtol=0, atol=0)


def moving(x: torch.Tensor, rows: list[float]) -> torch.Tensor:
    there = iter(rows)
    for number, row in enumerate(there):
        x = x + row * number
        if x.sum() > 3:
            break
    return x * sum(there)


def growing(x: torch.Tensor, rows: list[float]) -> torch.Tensor:
    rows = [*rows]
    for number, row in enumerate(rows):
        x = x + row
        if number < 2:
            rows.append(row + 0.5)
        if x.sum() > 6:
            break
    return x * len(rows)


@pytest.mark.parametrize("program", [moving, growing])
def test_an_iterator_that_others_have_or_a_list_that_grows_is_moved_as_python_does(program: Callable[..., Any]) -> None:
    rows = [0.5, 1.0, 1.5]
    gm = trace(program, (torch.ones(2), rows))
    for start in (-2.0, 0.0, 1.0, 2.0, 5.0):
        x = torch.full((2,), start)
        torch.testing.assert_close(gm(x, rows), program(x, rows), rtol=0, atol=0)


def asked_before_a_write(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    asked = bool(flag)
    flag.logical_not_()
    if asked:
        return x + 1 if flag else x + 2
    return x + 3


def chosen_before_a_write(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    y = x * 2 if flag else x * 3
    flag.logical_not_()
    if flag:
        return y + 10
    return y + 20


def chosen_and_written(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    one, other = x * 2, x * 3
    y = one if flag else other
    one.add_(1)
    if flag:
        y.mul_(2)
        return y + one
    return y + other


def chosen_in_a_loop(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    step = 1 if flag else 2
    for _ in range(3):
        if flag:
            x = x + step
            flag = flag & (x.sum() < 5)
        else:
            x = x - step
    return x


@pytest.mark.parametrize("program", [asked_before_a_write, chosen_before_a_write, chosen_and_written, chosen_in_a_loop])
@pytest.mark.parametrize("first", [True, False])
def test_what_a_branch_gave_is_that_of_its_side_only_while_its_condition_is_the_same(
    program: Callable[..., torch.Tensor], first: bool
) -> None:
    gm = trace(program, (torch.ones(2), torch.tensor(first)))
    for value in (True, False):
        x, flag, other = torch.tensor([1.0, 2.0]), torch.tensor(value), torch.tensor(value)
        torch.testing.assert_close(gm(x, flag), program(x, other), rtol=0, atol=0)
        assert flag == other


def test_conditions_that_are_gone_are_not_taken_for_others() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(30):
            x = x * 1.5 if x.sum() > 0 else x - 0.5
            x = -x if x.sum() > 20 else x
        return x

    for _ in range(5):
        gm = trace(chain, (torch.ones(3),))
        for start in (1.0, -1.0, 7.0):
            x = torch.full((3,), start)
            torch.testing.assert_close(gm(x), chain(x), rtol=0, atol=0)


def flagged(x: torch.Tensor, rows: torch.Tensor) -> Any:
    done, y = False, x
    if x.sum() > 0:
        y, done = x * 2, True
    row = rows[0]
    if done:
        return y
    return y + row


def flagged_or_raised(x: torch.Tensor, rows: torch.Tensor) -> Any:
    done, y = False, x
    if x.sum() > 0:
        if x[0] > 1:
            raise ValueError("too large")
        y, done = x * 2, True
    if done:
        return y, 1
    return y.relu(), rows


@pytest.mark.parametrize("program", [flagged, flagged_or_raised])
def test_a_branch_on_a_flag_goes_into_the_one_that_sets_it(program: Callable[..., Any]) -> None:
    rows = torch.tensor([3.0, 4.0])
    gm = trace(program, (torch.tensor([0.1, 0.2]), rows))
    for start in (0.1, -0.5):
        x = torch.tensor([start, 0.2])
        torch.testing.assert_close(gm(x, rows), program(x, rows), rtol=0, atol=0)
    if program is flagged_or_raised:
        with pytest.raises(ValueError, match="too large"):
            gm(torch.tensor([2.0, 0.2]), rows)


def refused_by_size(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    if x.shape[0] in (2, 4) or x.shape[0] in (2, 4):
        raise ValueError(x.shape[0])
    return x * rows.sum()


def test_a_condition_says_nothing_of_itself() -> None:
    gm = trace(refused_by_size, (torch.ones(3), torch.ones(2)))
    for size in (2, 4):
        with pytest.raises(ValueError, match=str(size)):
            gm(torch.ones(size), torch.ones(2))
    assert torch.equal(gm(torch.ones(5), torch.ones(2)), torch.full((5,), 2.0))
