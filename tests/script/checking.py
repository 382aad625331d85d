"""Running a program in Python and scripted, on the same inputs, and comparing everything."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from graphwright import GraphModule, Interpreter
from graphwright.script import script

Inputs = Sequence[tuple[Any, ...]]


def outcome(program: Callable[..., Any], args: tuple[Any, ...], with_gradients: bool = True) -> Any:
    """What a call gives: its value, its inputs afterwards and their gradients, or the class of the error."""
    given = copy.deepcopy(args)
    wanted = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    if with_gradients:
        for tensor in wanted:
            tensor.requires_grad_()
    torch.manual_seed(0)
    try:
        value = program(*given)
        total = [t.sum() for t in tree_leaves(value) if isinstance(t, torch.Tensor) and t.requires_grad]
        if total and with_gradients:
            sum(total).backward()
    except Exception as error:
        return type(error)
    gradients = [tensor.grad for tensor in wanted]
    if isinstance(program, nn.Module):
        gradients += [parameter.grad for parameter in program.parameters()]
        for parameter in program.parameters():
            parameter.grad = None
    return value, gradients, given


def assert_same(mine: Any, its: Any) -> None:
    """Two outcomes are the same: types, structure, values, dtypes."""
    if isinstance(its, torch.Tensor):
        assert isinstance(mine, torch.Tensor) and mine.dtype == its.dtype, (mine, its)
        torch.testing.assert_close(mine, its, equal_nan=True, rtol=0, atol=0)
        return
    assert type(mine) is type(its), (mine, its)
    if isinstance(its, list | tuple | collections.deque):
        assert len(mine) == len(its), (mine, its)
        for a, b in zip(mine, its, strict=True):
            assert_same(a, b)
    elif isinstance(its, dict):
        assert list(mine) == list(its), (mine, its)
        for key in its:
            assert_same(mine[key], its[key])
    elif isinstance(its, float) and its != its:
        assert mine != mine
    else:
        assert mine == its, (mine, its)


def check(program: Callable[..., Any], inputs: Inputs, interpret: bool = True, gradients: bool = True) -> GraphModule:
    """Script a program and compare it with what Python does, on every input; return the scripted module."""
    scripted = script(program)
    for args in inputs:
        original = copy.deepcopy(program) if isinstance(program, nn.Module) else program
        mine = copy.deepcopy(scripted)
        its = outcome(original, args, gradients)
        assert_same(outcome(mine, args, gradients), its)
        if isinstance(program, nn.Module):
            assert_same(dict(mine.state_dict()), dict(original.state_dict()))
        if interpret and not isinstance(its, type):
            fresh = copy.deepcopy(scripted)
            interpreter = Interpreter(fresh)
            interpreted = outcome(lambda *given, run=interpreter: run.run(*given), args, gradients)
            if not isinstance(interpreted, type):
                assert_same(_plain(interpreted[0]), _plain(its[0]))
    return scripted


def _plain(value: Any) -> Any:
    """Containers as Python's own: a graph has immutable ones."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
