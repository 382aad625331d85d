"""Sums of nothing, which are the number 0; flags that other items make numbers; tensors that are unlike themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.soundness.stories import DOWN, UP, calls, told
from torch import Tensor

NAN, ONE = torch.tensor(float("nan")), torch.tensor(1.0)

# ---- sums


def by_shape(x: Tensor) -> Any:
    return sum([v for v in x if v > 0]).shape  # type: ignore[union-attr]


def by_error(x: Tensor) -> Any:
    try:
        return sum([v for v in x if v > 0]).shape  # type: ignore[union-attr]
    except AttributeError:
        return "none"


def by_hasattr(x: Tensor) -> Any:
    total = sum([v for v in x if v > 0])
    return total.shape if hasattr(total, "shape") else "none"


def by_class(x: Tensor) -> Any:
    return isinstance(sum([v for v in x if v > 0]), Tensor)


def of_rows(x: Tensor) -> Any:
    return sum(x[x > 0]).dim()  # type: ignore[union-attr]


def of_a_loop(x: Tensor) -> Any:
    total: Any = 0
    for v in x[x > 0]:
        total = total + v
    return total.dtype


def computed_with(x: Tensor) -> Any:
    return (-sum([v for v in x if v > 0]) * 2).shape  # type: ignore[union-attr]


@pytest.mark.parametrize("program", [computed_with, by_shape, by_error, by_hasattr, by_class, of_rows, of_a_loop])
def test_a_sum_of_nothing_is_no_tensor(program: Any) -> None:
    assert told(lambda: program, calls(UP, torch.ones(3))) == "same"
    text = "loud: the program was captured where this was of class Tensor; now it is of class int"
    assert told(lambda: program, calls(UP, DOWN)).startswith(text)


def test_a_sum_that_is_only_computed_with_may_be_a_number() -> None:
    def program(x: Tensor) -> Any:
        total = sum([v for v in x if v > 0])
        return total * 2, x + total

    assert told(lambda: program, calls(UP, DOWN, UP)) == "same"
    assert told(lambda: lambda x: sum([v for v in x if v > 0], x[0]).shape, calls(UP, DOWN, UP)) == "same"


# ---- flags

BOOLS, NUMBERS = torch.tensor([True, False, True]), torch.tensor([2, 0, 3])


def last_item(x: Tensor) -> Any:
    flag = False
    for v in x:
        flag = v.item()
    return True if flag else False


def any_item(x: Tensor) -> Any:
    flag = False
    for v in x:
        flag = v.item() or flag
    return True if flag else False, (x > 0) + (True if flag else False)


def of_a_branch(x: Tensor) -> Any:
    flag = x[0].item() if x.sum() > 1 else x[1].item()
    return True if flag else False


@pytest.mark.parametrize("program", [last_item, any_item, of_a_branch])
def test_a_flag_of_other_items_is_a_bool(program: Any) -> None:
    others = NUMBERS, NUMBERS.float(), torch.tensor([0, 5]), torch.tensor([2.5, 2.5])
    assert told(lambda: program, calls(BOOLS, *others), BOOLS) == "same"


# ---- what is not equal to itself


def counted(x: Tensor, y: Tensor) -> Any:
    return [y, x].count(x), (x, 1, y).count(y), [x + 0, x].count(x)


def searched(x: Tensor, y: Tensor) -> Any:
    return [y, x].index(x), (y, x).index(x)


def removed(x: Tensor, y: Tensor) -> Any:
    items = [x + 1, y, x]
    items.remove(x)
    return len(items), items[-1]


def of_an_input(items: list[Tensor], x: Tensor) -> Any:
    return x in items, items.count(x), items.index(x)


@pytest.mark.parametrize("program", [counted, searched, removed])
def test_a_tensor_is_found_by_identity_first(program: Any) -> None:
    pairs = [(ONE, ONE + 1), (NAN, ONE), (NAN, NAN), (ONE, ONE), (NAN, NAN + 1)]
    assert told(lambda: program, calls(*pairs), *pairs[0]) == "same"


def test_a_tensor_is_found_among_inputs() -> None:
    found = calls(([ONE, NAN], NAN), ([NAN, NAN], NAN), ([ONE, NAN], ONE))
    assert told(lambda: of_an_input, found, [ONE + 1, ONE], ONE) == "same"


def test_items_after_the_one_that_is_found_are_not_compared() -> None:
    assert told(lambda: lambda x: [x, torch.ones(5)].index(x), calls(UP, torch.ones(3))) == "same"
