"""Calls of converted functions: what the table knows is done in its place, everything else is called."""

from __future__ import annotations

import collections
import copy
import functools
import math
import queue
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from graphwright import symbolic_trace, trace
from graphwright.capture.proxies.calls_as_written import is_tensor_method
from graphwright.capture.python.calls import call


def plain(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


class Owner:
    def method(self, value: Any) -> Any:
        return value


class Outside(nn.Module):
    def forward(self, module: Any, shell: Any, recorder: Any, function: Any) -> Any:
        return module, shell, recorder, function


class Problem(Exception):
    def __init__(self, *, recorder: Any, kind: Any) -> None:
        super().__init__(recorder, kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and other.args == self.args

    __hash__ = Exception.__hash__


# Without a capture, and inside of one with plain values, a call is what Python makes of it.
CALLS = [
    pytest.param(plain, (1,), {"key": 2}, id="function"),
    pytest.param(Owner().method, (1,), {}, id="method"),
    pytest.param(functools.partial(plain, 1), (2,), {}, id="partial"),
    pytest.param(len, ([1, 2],), {}, id="len"),
    pytest.param(max, (1, 2), {}, id="max"),
    pytest.param(max, ([1, 2],), {"key": lambda value: -value}, id="max of a list"),
    pytest.param(sorted, ([2, 1],), {"reverse": True}, id="sorted"),
    pytest.param(math.prod, ([2, 3],), {}, id="math"),
    pytest.param(isinstance, (1, int), {}, id="isinstance"),
    pytest.param(type, (1,), {}, id="type"),
    pytest.param(int, ("7",), {}, id="int"),
    pytest.param(round, (1.26, 1), {}, id="round"),
    pytest.param(dict, ([("a", 1)],), {"b": 2}, id="dict"),
    pytest.param(collections.Counter, ("abca",), {}, id="Counter"),
    pytest.param({"a": 1}.get, ("b", 3), {}, id="dict.get"),
    pytest.param({1, 2}.union, ([3],), {}, id="set.union"),
    pytest.param([1, 2].index, (2,), {}, id="list.index"),
    pytest.param(", ".join, (["a", "b"],), {}, id="str.join"),
    pytest.param("{} {key}".format, (1,), {"key": 2}, id="str.format"),
    pytest.param(list.__len__, ([1, 2],), {}, id="of a class"),
    pytest.param(plain, (), {"recorder": 1, "function": 2, "args": 3, "kwargs": 4}, id="keywords of a function"),
    pytest.param(Outside(), (), {"module": 1, "shell": 2, "recorder": 3, "function": 4}, id="keywords of a module"),
    pytest.param(Problem, (), {"recorder": 1, "kind": 2}, id="keywords of an exception"),
    pytest.param(int.__add__, (1, "a"), {}, id="NotImplemented"),
]


@pytest.mark.parametrize(("function", "args", "kwargs"), CALLS)
def test_calls_with_plain_values_are_those_of_python(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    expected = function(*args, **kwargs)
    assert call(function, *args, **kwargs) == expected
    found = queue.SimpleQueue[Any]()

    def program(x: torch.Tensor) -> torch.Tensor:
        found.put(call(function, *args, **kwargs))
        return x + 1

    trace(program, (torch.ones(2),))
    first = found.get_nowait()
    assert first == expected and type(first) is type(expected)


def test_an_error_of_what_is_called_is_that_of_python() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for function, args in ((len, ()), (int, ("a",)), (max, ()), ([].pop, (0,)), ({}.get, ())):
            with pytest.raises((TypeError, ValueError, IndexError)) as expected:
                function(*args)  # type: ignore[operator]
            with pytest.raises(expected.type) as found:
                call(function, *args)
            assert str(found.value) == str(expected.value)
        return x + 1

    trace(program, (torch.ones(2),))


@pytest.mark.parametrize(
    ("function", "args", "most"),
    [
        pytest.param(plain, (1, 2), 17, id="function"),
        pytest.param(Owner().method, (1,), 20, id="method"),
        pytest.param([].append, (1,), 12, id="list.append"),
        pytest.param(len, ([1],), 18, id="len"),
        pytest.param(isinstance, (1, int), 17, id="isinstance"),
    ],
)
def test_a_plain_call_costs_few_calls(function: Callable[..., Any], args: tuple[Any, ...], most: int) -> None:
    seen = queue.SimpleQueue[int]()

    def count(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and "graphwright" in frame.f_code.co_filename:
            seen.put(1)

    def program(x: torch.Tensor) -> torch.Tensor:
        call(function, *args)  # what is known of it from here on
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            call(function, *args)
        finally:
            sys.setprofile(before)
        return x + 1

    trace(program, (torch.ones(2),))
    assert 0 < seen.qsize() <= most


def test_a_function_of_math_goes_over_a_list_that_a_loop_has_made() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = []
            for row in x:
                if row.sum() > 0:
                    found.append(row.shape[0])
            return x * math.prod(found)

    model, gm = Model(), trace(Model(), (torch.ones(3, 2),))
    for x in (torch.ones(3, 2), -torch.ones(3, 2), torch.tensor([[1.0, 1], [-1, -1], [2, 2]])):
        assert torch.equal(gm(x), model(x))


def test_parameters_of_a_module_may_be_called_as_ours_are() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor, module: int, shell: int) -> torch.Tensor:
            return x + module * shell

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.inner(x, module=2, shell=3)
            return found

    x = torch.ones(2)
    for gm in (trace(Outer(), (x,)), trace(Outer(), (x,), leaf_modules=(Inner,)), symbolic_trace(Outer())):
        assert torch.equal(gm(x), x + 6)


def test_methods_of_tensors_are_those_of_torch_s_own_answer() -> None:
    functions = {each for group in torch.overrides.get_overridable_functions().values() for each in group}
    for function in functions:
        assert is_tensor_method(function) or not torch.overrides.is_tensor_method_or_property(function), function
        if is_tensor_method(function) and function.__name__ != "__get__":  # those that it ignores, too
            assert any(function == getattr(torch.Tensor, name) for name in dir(torch.Tensor))


def test_a_layer_in_which_torch_refuses_a_number_of_the_run_is_captured_as_its_class_says() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.add(x, self.weight, alpha=numpy.sqrt(x.numel()))  # type: ignore[call-overload, no-any-return]

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.inner(x if x.sum() > 0 else x * 2)
            return found

    model = Outer()
    gm = copy.deepcopy(trace(model, torch.ones(1, 4)))
    with torch.no_grad():
        gm.inner.weight.zero_()
    x = torch.randn(3, 4)
    assert torch.equal(gm(x), x if x.sum() > 0 else x * 2)
