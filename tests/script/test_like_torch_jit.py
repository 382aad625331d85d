"""What torch.jit.script takes, `script` takes, and gives the same; what both refuse."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.script import test_conformance, test_functions
from tests.script.checking import assert_same, outcome

from graphwright import ScriptError, script

PROGRAMS = [*test_functions.PROGRAMS, *test_conformance.PROGRAMS]
# Where torch.jit.script gives something else than Python does, and `script` what Python does.
OTHER_THAN_PYTHON = {
    "named": "it makes a class of the named tuple anew",
    "chained_cmp": "it gives a bool for a tensor",
    "decorated_callee": "it leaves the decorator out",
    "mathf": "2 ** n is a float there, round gives one, too",
}


def scripted_by_torch(function: Callable[..., Any]) -> Any:
    try:
        return torch.jit.script(function)
    except Exception:
        return None


@pytest.mark.slow
def test_same_values() -> None:
    taken = 0
    for function, inputs in PROGRAMS:
        its = scripted_by_torch(function)
        if its is None or function.__name__ in OTHER_THAN_PYTHON:
            continue
        taken += 1
        mine = script(function)
        for args in inputs:
            a, b = (outcome(program, copy.deepcopy(args)) for program in (mine, its))
            if not (isinstance(a, type) and isinstance(b, type)):
                assert_same(a[:2], b[:2])
    assert taken > 40


def type_changes(x, n: int):
    if n > 1:
        y = x
    else:
        y = 3
    return y


def undefined_on_one_side(x, n: int):
    if n > 1:
        y = x
    return y


def changes_in_a_loop(x, n: int):
    acc = 0
    for i in range(n):
        acc = [acc]
    return acc


def optional_is_used(x, y: "torch.Tensor | None"):
    return x + y


def generator(x):
    yield x


def unknown_method(x):
    return x.no_such_method()


def int_for_a_list(x):
    xs: list[int] = []
    xs.append(x)
    return xs


def made_class(x):
    class A:
        pass

    return x


def global_variable(x):
    global XS
    XS = x
    return x


def recursive(x):
    if x.sum() > 0:
        return recursive(x - 1)
    return x


def tuple_item(x):
    t = (1, 2)
    t[0] = 3
    return x


REFUSED = [
    type_changes, undefined_on_one_side, changes_in_a_loop, optional_is_used, generator,
    unknown_method, int_for_a_list, made_class, global_variable, recursive, tuple_item,
]  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=[function.__name__ for function in REFUSED])
def test_both_refuse(function: Callable[..., Any]) -> None:
    assert scripted_by_torch(function) is None
    with pytest.raises(ScriptError):
        script(function)
