"""Every pass, and every pair of passes, on random modules: values, gradients, effects and random states stay."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.passes.random_modules import Traits, assert_same, inputs_for, random_module
from torch import nn

import graphwright
from graphwright import passes
from graphwright.compat.tools.normalize import AnnotateTypesWithSchema, NormalizeArgs, NormalizeOperators
from graphwright.passes import remove_guards
from graphwright.runtime import graph_of

Pass = Callable[[Any], Any]


def in_place(change: Callable[[Any], Any]) -> Pass:
    def run(gm: Any) -> Any:
        change(gm)
        return gm

    return run


def passes_without_arguments() -> dict[str, Pass]:
    """The public classes that edit a module in place and that can be made without an argument."""
    found = {}
    for name in passes.__all__:
        kind = getattr(passes, name)
        if not dataclasses.is_dataclass(kind) or not isinstance(kind, type):
            continue
        needed = [one for one in dataclasses.fields(kind) if one.default is one.default_factory is dataclasses.MISSING]
        if not needed and (hasattr(kind, "run") or "__call__" in vars(kind)):
            change: Any = kind()
            found[name] = in_place(getattr(change, "run", change))
    return found


PASSES: dict[str, Pass] = {
    **passes_without_arguments(),
    "eliminate_dead_code": in_place(lambda gm: graph_of(gm).eliminate_dead_code()),  # type: ignore[attr-defined]
    "remove_guards": in_place(remove_guards),
    "NormalizeArgs": lambda gm: NormalizeArgs(gm).transform(),
    "NormalizeOperators": lambda gm: NormalizeOperators(gm).transform(),
    "AnnotateTypesWithSchema": lambda gm: AnnotateTypesWithSchema(gm).transform(),
}
# Passes that keep everything, the names of parameters too; after the others the gradients of inputs are compared.
EXACT = {
    *("FoldConditions", "HoistInvariants", "MergeConditions", "MergeSubexpressions", "RemoveDeadValues"),
    *("UnrollLoops", "eliminate_dead_code", "remove_guards"),
}
# Dead code goes as it is dead in the mode that modules are in: what is dead in training is so in evaluation.
DEAD_CODE = {"RemoveDeadCode", "RemoveDeadValues", "eliminate_dead_code"}
# Passes after which programs run that raised: autograd refuses some writes.
MENDING = {"RemoveInPlace"}
# Passes that change weights, or leave one mode, for evaluation mode only.
FOR_INFERENCE = {"FuseActivations", "FuseConvBatchNorm", "SetTraining"}

TRAITS = [
    Traits(writes=True, branches=False, images=True),
    Traits(writes=True, branches=True, images=False),
    Traits(writes=False, branches=True, images=True),
    Traits(writes=False, branches=False, images=False),
]


def original(seed: int, traits: Traits, training: bool, frozen: bool) -> tuple[nn.Module, list[Any]]:
    """A random module and calls for it."""
    return random_module(seed, traits).train(training).requires_grad_(not frozen), inputs_for(traits)


def captured(seed: int, traits: Traits, training: bool, frozen: bool) -> tuple[nn.Module, Any, list[Any]]:
    """A random module, its capture, and calls for it."""
    model, inputs = original(seed, traits, training, frozen)
    return model, graphwright.trace(model, tuple(x.detach() for x in inputs[0])), inputs


def holds(names: tuple[str, ...], seed: int) -> None:
    """Run passes after each other on a random module and compare it with the original."""
    inference = not FOR_INFERENCE.isdisjoint(names)
    training = not (inference or DEAD_CODE.isdisjoint(names))
    frozen = not EXACT.issuperset(names)
    try:
        model, gm, inputs = captured(seed, TRAITS[seed % len(TRAITS)], training, frozen)
    except RuntimeError as error:  # the module itself may fail, as by `view` of what is not contiguous
        model, inputs = original(seed, TRAITS[seed % len(TRAITS)], training, frozen)
        with pytest.raises(RuntimeError, match=re.escape(str(error))):
            model(inputs[0][0].detach())
        return
    if not MENDING.isdisjoint(names) and any(case.verdict == "raises" for case in assert_same(model, gm, inputs).cases):
        return
    for name in names:
        gm = PASSES[name](gm)
        graph_of(gm).lint()
    tolerance = {} if EXACT.issuperset(names) else {"rtol": 1e-4, "atol": 1e-4}  # other operations, rounded otherwise
    if inference:
        assert_same(model, gm, inputs, modes=("eval",), grads=False, **tolerance)
    else:
        assert_same(model, gm, inputs, **tolerance)


ALL = sorted(PASSES)


@pytest.mark.parametrize("seed", range(8))
def test_captures_do_what_the_modules_do(seed: int) -> None:
    holds((), seed)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ALL)
def test_a_pass_keeps_what_modules_do(name: str) -> None:
    for seed in range(4):
        holds((name,), seed)


PAIRS = list(itertools.permutations(ALL, 2))


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("names", PAIRS[::9], ids=" then ".join)
def test_pairs_of_passes_keep_what_modules_do(names: tuple[str, str]) -> None:
    holds(names, PAIRS.index(names))


@pytest.mark.slow
@pytest.mark.parametrize("names", PAIRS, ids=" then ".join)
def test_every_pair_of_passes_keeps_what_modules_do(names: tuple[str, str]) -> None:
    for seed in range(2):
        holds(names, seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 180, 20))
def test_all_passes_keep_what_modules_do(start: int) -> None:
    for seed in range(start, start + 20):
        holds(tuple(name for name in ALL if name in EXACT), seed)
        holds(tuple(name for name in ALL if name not in FOR_INFERENCE), seed)
        holds(tuple(ALL), seed)
