"""What is ordered by data, and lists as long as a run makes them: one capture gives what eager gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.capture.order_programs import INPUTS, ORDERS
from tests.capture.test_loops import check, interpreted, name_of, outcome

from graphwright import symbolic_trace, trace


@pytest.mark.sampled(4)
@pytest.mark.parametrize("program", ORDERS, ids=lambda program: name_of([program]))
def test_one_capture_orders_as_eager_does(program: Any) -> None:
    gm = trace(program, INPUTS[0])
    gm.graph.lint()
    assert gm.guards == []
    assert gm.report.coverage == 1.0
    for x in INPUTS:
        expected = outcome(program, x)
        check(outcome(gm, x), expected, gm.code)
        check(outcome(interpreted(gm), x)[:2], expected[:2], gm.graph)


@pytest.mark.parametrize("program", ORDERS, ids=lambda program: name_of([program]))
def test_symbolic_tracing_orders_as_eager_does(program: Any) -> None:
    gm = symbolic_trace(program)
    gm.graph.lint()
    for x in INPUTS:
        check(outcome(gm, x), outcome(program, x), gm.code)


def classes(i: torch.Tensor, count: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(i, max(i.max() + 1, count))[..., :count] * torch.ones(count)


@pytest.mark.parametrize("largest", [3, 20])
def test_a_size_made_of_the_larger_of_data_and_a_number_is_that_of_the_example(largest: int) -> None:
    gm = trace(classes, (torch.tensor([0, largest]), 8))
    for example in ((torch.tensor([0, 3]), 8), (torch.tensor([1, 20, 2]), 8), (torch.tensor([2]), 5)):
        assert torch.equal(gm(*example), classes(*example))


# ---- lists that data chose, and that the program changes, compares or leaves with its caller


def change_the_largest(x: torch.Tensor, a: list[int], b: list[int]) -> Any:
    one, other = [x[0].sum(), 1], [x[1].sum(), 2]
    largest = max(one, other, key=lambda each: each[0])
    largest.append(5)
    return one, other, largest


def change_one_of_them(x: torch.Tensor, a: list[int], b: list[int]) -> Any:
    one, other = {"sum": x[0].sum()}, {"sum": x[1].sum()}
    smallest = min([one, other], key=lambda each: each["sum"])
    one["more"] = other["more"] = 3
    return smallest


def change_the_first(x: torch.Tensor, a: list[int], b: list[int]) -> Any:
    pairs = [(x[0].sum(), [1]), (x[1].sum(), [2])]
    found = sorted(pairs, key=lambda pair: pair[0])
    found[0][1].append(7)
    return pairs


def ask_which(x: torch.Tensor, a: list[int], b: list[int]) -> Any:
    one, other = [x[0].sum()], [x[1].sum()]
    return max(one, other, key=lambda each: each[0]) is one


def leave(x: torch.Tensor, a: list[int], b: list[int]) -> Any:
    return [max(a, b), x]


def change_an_argument(x: torch.Tensor, a: list[int], b: list[int]) -> Any:
    largest = max(a, b)
    largest.append(len(a))
    return a, b


@pytest.mark.parametrize(
    "program", [change_the_largest, change_one_of_them, change_the_first, ask_which, leave, change_an_argument]
)
def test_which_list_data_chose_is_known_where_it_matters(program: Any) -> None:
    gm = trace(program, (torch.tensor([[1.0], [2.0]]), [1, 2], [3, 4]))
    for x in (torch.tensor([[1.0], [2.0]]), torch.tensor([[2.0], [1.0]])):
        for a, b in (([1, 2], [3, 4]), ([3, 4], [1, 2]), ([1, 2], [1, 0])):
            mine, its = (x, [*a], [*b]), (x, [*a], [*b])
            given, wanted = gm(*mine), program(*its)
            assert repr((given, mine)) == repr((wanted, its)), gm.code
            if program is leave:
                which = [[part is whole for whole in mine[1:]] for part in given[:1]]
                assert which == [[part is whole for whole in its[1:]] for part in wanted[:1]]


def test_lists_that_are_ordered_and_stay_as_they_are_need_no_branches() -> None:
    def beams(x: torch.Tensor) -> Any:
        found: list[Any] = [[[], 0.0]]
        for row in x:
            longer = [[path + [i], score + float(row[i])] for path, score in found for i in range(3)]
            found = sorted(longer, key=lambda beam: beam[1])[:2]
        return found

    gm = trace(beams, (torch.arange(6.0).reshape(2, 3),))
    x = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    assert repr(gm(x)) == repr(beams(x))
    assert "if " not in gm.code
