"""Modules and names that a program tries to import and does not find: they may be there at a later call."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import GuardError, trace

X = torch.ones(2)
NAME = "graphwright_absent"


def statement(x: Tensor) -> Tensor:
    try:
        import graphwright_absent  # noqa: F401
    except ImportError:
        return x * 2
    return x * 3


def name_of_it(x: Tensor) -> Tensor:
    try:
        from graphwright_absent import fast
    except ModuleNotFoundError:
        return x * 2
    return fast(x)  # type: ignore[no-any-return]


def by_name(x: Tensor) -> Tensor:
    try:
        importlib.import_module("graphwright_absent")
    except ImportError:
        return x * 2
    return x * 3


def spec(x: Tensor) -> Tensor:
    return x * 2 if importlib.util.find_spec("graphwright_absent") is None else x * 3


def table(x: Tensor) -> Tensor:
    return x * 3 if "graphwright_absent" in sys.modules else x * 2


def helper() -> bool:
    try:
        import graphwright_absent  # noqa: F401
    except Exception:
        return False
    return True


def in_a_helper(x: Tensor) -> Tensor:
    return x * 3 if helper() else x * 2


class InAModule(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return statement(x)


@pytest.mark.parametrize("make", [
    lambda: statement, lambda: name_of_it, lambda: by_name, lambda: spec, lambda: table, lambda: in_a_helper, InAModule,
])  # fmt: skip
def test_a_module_is_there_later(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    captured = trace(make(), (X,))
    assert torch.equal(captured(X), X * 2)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, NAME, ModuleType(NAME))
        with pytest.raises(
            GuardError, match="'graphwright_absent' was missing when the program was captured; now it is"
        ):
            captured(X)
    assert torch.equal(captured(X), X * 2)


def name_of_another(x: Tensor) -> Tensor:
    try:
        from math import quadruple
    except ImportError:
        return x * 2
    return quadruple(x)  # type: ignore[no-any-return]


def test_a_name_is_there_later(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = trace(name_of_another, (X,))
    assert torch.equal(captured(X), X * 2)
    monkeypatch.setattr(math, "quadruple", lambda x: x * 4, raising=False)
    with pytest.raises(GuardError, match="the name 'quadruple' of math"):
        captured(X)


def debugging(x: Tensor, is_odd: bool = False) -> Tensor:
    try:
        if is_odd:
            import this  # noqa: F401
    except ImportError:
        return x
    return x * 2 if importlib.util.find_spec("this") else x


def found(x: Tensor) -> Tensor:
    try:
        import json
    except ImportError:
        return x
    return x * len(json.dumps([1]))


@pytest.mark.parametrize("program", [debugging, found])
def test_what_can_be_imported_is_not_missing(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = trace(program, (X,))
    assert "missing" not in str(captured.graph)
    assert "module" not in str([guard.what for guard in captured.guards])
    there = ModuleType("this")
    there.__spec__ = importlib.util.find_spec("json")
    monkeypatch.setitem(sys.modules, "this", there)
    assert torch.equal(captured(X), program(X))
