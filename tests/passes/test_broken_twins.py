"""Every pass has a twin that is wrong in one place, on a program where that shows: the checks let the pass go, and
catch the twin. A pass without one fails here."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.passes.checks import Program, noted, settled
from tests.passes.test_regions import body, call
from torch import Tensor, nn

import graphwright.passes
from graphwright import Graph, GraphModule, symbolic_trace, trace
from graphwright.analysis import verify
from graphwright.ops import cond, for_loop, transformed
from graphwright.passes import (
    ChangeTrueDivToMulByInverse,
    CollapseChains,
    FoldConditions,
    FoldConstants,
    FuseActivations,
    FuseBatchNorm1dInLinear,
    FuseBatchNorm2dInConv2d,
    FuseBiasInLinear,
    FuseConvBatchNorm,
    FuseConvReLU,
    HoistInvariants,
    InsertCheckpoints,
    MergeConditions,
    MergeLinears,
    MergeParallelLinears,
    MergeSubexpressions,
    PropagateChannelsLast,
    RecognizeNorms,
    RemoveDeadCode,
    RemoveDeadValues,
    RemoveInPlace,
    RemoveNoOps,
    SetTraining,
    SimplifyAlgebra,
    Transformation,
    UnrollLoops,
    UseFunctions,
    UseInPlace,
    UseMixedPrecision,
    UseModules,
    UseScaledDotProductAttention,
)
from graphwright.passes.forms import reversible
from graphwright.passes.memory import checkpoint_segments

OTHER_ROOMS = ("analysis", "rewrite")
ROWS, IMAGE, WIDE = torch.rand(3, 4) + 0.5, torch.randn(2, 4, 6, 6), torch.randn(512, 32)


@dataclass(frozen=True)
class Twin:
    """A pass, what is put in the place of which part of it, and a program where that part is needed."""

    each: Any
    place: str  # what is replaced: a file of passes or another room, and what is in it
    wrong: Any
    model: Callable[[], nn.Module]
    inputs: tuple[Any, ...] = (ROWS,)
    traced: bool = True
    modes: Any = ("train", "eval")
    grads: bool = False
    close: float = 1e-4

    def holds(self) -> bool:
        """Run the pass, whole or broken, and tell whether the program still does what it did."""
        torch.manual_seed(0)
        model = self.model()
        if isinstance(model, GraphModule):
            gm: Any = copy.deepcopy(model)
        else:
            gm = trace(model, self.inputs) if self.traced else symbolic_trace(model)
        if self.inputs and not isinstance(model, GraphModule):
            noted(gm, *copy.deepcopy(self.inputs))
        inputs = tuple([x.clone().requires_grad_() for x in self.inputs]) if self.grads else self.inputs
        try:
            self.each.run(gm) if hasattr(self.each, "run") else self.each(gm)
            gm.graph.lint()
            return bool(
                verify(model, gm, [inputs], modes=self.modes, grads=self.grads, rtol=self.close, atol=self.close)
            )
        except RuntimeError:
            return False


def program(run: Callable[..., Any], **members: Any) -> Callable[[], nn.Module]:
    return lambda: Program(run, **copy.deepcopy(members))


def graph_module(names: str, write: Callable[..., Any]) -> Callable[[], nn.Module]:
    return lambda: GraphModule(nn.Module(), body(names, write))


def never(*_: Any, **__: Any) -> bool:
    return False


def always(*_: Any, **__: Any) -> bool:
    return True


# ---- programs


def written_between(m: Any, x: Tensor) -> Tensor:
    y = x * 1
    first = y.exp()
    y.view(-1).add_(1)
    return first + y.exp()


def written_between_layers(m: Any, x: Tensor) -> Tensor:
    y = x * 1
    first = m.q(y)
    y.view(-1).add_(1)
    return first + m.k(y)  # type: ignore[no-any-return]


def relu_without_gradients(m: Any, x: Tensor) -> Tensor:
    y = m.q(x)
    with torch.no_grad():
        z = y.relu()
    return x * z  # type: ignore[no-any-return]


def rms_norm_of_columns(m: Any, x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-6)


def attention(m: Any, x: Tensor) -> Tensor:
    return (x @ x.mT * 3).softmax(-1) @ x  # type: ignore[no-any-return]


def sum_of_items(graph: Graph, x: Any) -> Any:
    step = body("i total", lambda g, i, total: (call(g, operator.add, total, i),))
    return call(graph, operator.getitem, call(graph, for_loop, (1, 2, 3), step, (x,), ()), 0)


def exponentials_of_what_changes(graph: Graph, x: Any) -> Any:
    def step(g: Graph, i: Any, total: Any, w: Any) -> Any:
        value = call(g, torch.exp, w)
        g.call_method("add_", (w, 1))
        return (call(g, operator.add, total, value),)

    loop = call(graph, for_loop, (1, 2, 3), body("i total w", step), (0,), (graph.call_method("clone", (x,)),))
    return call(graph, operator.getitem, loop, 0)


def condition_that_changes(graph: Graph, x: Any) -> Any:
    def outer(g: Graph, p: Any, x: Any) -> Any:
        g.call_method("zero_", (p,))
        sides = body("x", lambda g, x: call(g, torch.sin, x)), body("x", lambda g, x: call(g, torch.cos, x))
        return call(g, cond, p, *sides, (x,))

    p = graph.call_method("any", (call(graph, operator.gt, x, 0),))
    return call(graph, cond, p, body("p x", outer), body("p x", lambda g, p, x: call(g, torch.neg, x)), (p, x))


def with_bias_left_out(layer: nn.Linear) -> nn.Linear:
    wide = nn.Linear(layer.in_features + 1, layer.out_features, bias=False)
    wide.weight.data = nn.functional.pad(layer.weight.detach(), (0, 1))
    return wide


def unscaled(weight: Tensor, bias: Any, norm: Any, **_: Any) -> tuple[Tensor, Tensor]:
    return weight.detach().clone(), norm.bias.detach().clone()


def products_of_what_changes(m: Any, x: Tensor) -> Tensor:
    y = x * 1
    first = m.q(y)
    y.view(-1).add_(8)
    return first + m.q(y)  # type: ignore[no-any-return]


def dropping_layers() -> nn.Module:
    return nn.Sequential(*[each for _ in range(6) for each in (nn.Linear(32, 32), nn.Dropout(), nn.GELU())])


def without_random_state(segment: Any, gm: Any, right: Any = checkpoint_segments.put_in_checkpoint) -> None:
    right(segment, gm)
    for node in gm.graph.find_nodes(op="call_function", target=transformed):
        node.args = (*node.args[:4], {**node.args[4], "preserve_rng_state": False})


def nothing(*_: Any) -> frozenset[Any]:
    return frozenset()


def linears(*names: str) -> dict[str, nn.Module]:
    return {name: nn.Linear(4, 4) for name in names}


def conv_and_norm() -> nn.Module:
    return settled(nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)))


def linear_and_norm() -> nn.Module:
    return settled(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))


def twice_as_far(node: Any, right: Any = reversible._quotient) -> Any:
    found = right(node)
    return None if found is None else (found[0], found[1] * 2)


TWINS = [
    Twin(ChangeTrueDivToMulByInverse(), "reversible._quotient", twice_as_far, program(lambda m, x: x / 8)),
    Twin(
        CollapseChains(), "collapse_chains._WIDER", {torch.float32: (torch.int32,)},
        program(lambda m, x: (x * 3).int().float() * 2),
    ),
    Twin(FoldConditions(), "fold_conditions._never_runs", always, graph_module("x", sum_of_items)),
    Twin(
        FoldConstants(), "fold_constants._is_fixed", always,
        program(lambda m, x: m.weight.exp() * x, weight=nn.Parameter(torch.ones(4))), grads=True,
    ),
    Twin(
        FuseActivations(), "fuse_activations._FUNCTIONS", {"sigmoid": nn.ReLU},
        program(lambda m, x: torch.sigmoid(m.q(x)), **linears("q")),
    ),
    Twin(
        FuseBatchNorm1dInLinear(), "reversible_batch_norms.fold_batch_norm", unscaled, linear_and_norm, modes=("eval",)
    ),
    Twin(
        FuseBatchNorm2dInConv2d(), "reversible_batch_norms.fold_batch_norm", unscaled, conv_and_norm, (IMAGE,),
        modes=("eval",),
    ),
    Twin(
        FuseBiasInLinear(), "reversible_linears._with_bias_inside", with_bias_left_out,
        program(lambda m, x: m.q(x), **linears("q")),
    ),
    Twin(
        FuseConvBatchNorm(), "fuse_conv_batch_norm.fold_batch_norm", unscaled, conv_and_norm, (IMAGE,), modes=("eval",)
    ),
    Twin(
        FuseConvReLU(), "rewrite.GraphEffects.are_together", always, program(relu_without_gradients, **linears("q")),
        grads=True,
    ),
    Twin(HoistInvariants(), "hoist_invariants.may_write", never, graph_module("x", exponentials_of_what_changes)),
    Twin(
        InsertCheckpoints(870_000, (WIDE,)), "insert_checkpoints.put_in_checkpoint", without_random_state,
        dropping_layers, (WIDE,), modes=("train",), grads=True,
    ),
    Twin(MergeConditions(), "merge_conditions.may_write", never, graph_module("x", condition_that_changes)),
    Twin(
        MergeLinears(), "reversible_linears.may_write", never, program(written_between_layers, **linears("q", "k")),
    ),
    Twin(
        MergeParallelLinears(), "merge_parallel_linears.reads_any_layout", always,
        program(lambda m, x: m.q(x).mul_(2).sum() + m.k(x).view(-1).add_(1).sum(), **linears("q", "k")),
    ),
    Twin(MergeSubexpressions(), "merge_subexpressions.may_write", never, program(written_between)),
    Twin(
        PropagateChannelsLast(), "propagate_channels_last._outside_readers", lambda *_: [],
        program(lambda m, x: m.b(m.a(x)).view(x.size(0), -1), a=nn.Conv2d(4, 4, 1), b=nn.Conv2d(4, 4, 1)), (IMAGE,),
    ),
    Twin(RecognizeNorms(), "recognize_norms.sure_rank", lambda x: 1, program(rms_norm_of_columns)),
    Twin(RemoveDeadCode(), "remove_dead_code.is_impure", never, program(written_between), traced=False),
    Twin(RemoveDeadValues(), "dead_values.is_impure", never, program(written_between), traced=False),
    Twin(RemoveInPlace(), "remove_in_place._may_go", always, program(lambda m, x: x.add_(1))),
    Twin(RemoveNoOps(), "remove_no_ops._swaps_nothing", always, program(lambda m, x: (x * 2).transpose(0, 1) + 1)),
    Twin(SimplifyAlgebra(), "simplify_algebra.keeps_dtype", always, program(lambda m, x: (x > 1) * 1)),
    Twin(UnrollLoops(), "unroll_loops._items", lambda items, node: items[:-1], graph_module("x", sum_of_items)),
    Twin(UseFunctions(), "module_to_functional.has_live_flag", never, program(lambda m, x: m.d(x), d=nn.Dropout())),
    Twin(
        UseInPlace(), "use_in_place._is_not_saved", always, program(lambda m, x: m.q(x).exp().tanh(), **linears("q")),
        grads=True,
    ),
    Twin(
        UseMixedPrecision((ROWS,)), "analysis.Effects.writes", nothing,
        program(products_of_what_changes, **linears("q")), close=0.05,
    ),
    Twin(
        UseModules(), "functional_to_module._is_same", always,
        program(lambda m, x: nn.functional.softmax(x, -1, dtype=torch.float64)),
    ),
    Twin(
        SetTraining(), "set_training.read_attribute", lambda gm, path: True,
        lambda: program(lambda m, x: x * 2 if m.training else x)().eval(), modes=("eval",),
    ),
    Twin(UseScaledDotProductAttention(), "use_sdpa._scale", lambda graph, plan: 1.0, program(attention)),
]  # fmt: skip


def owner_of(place: str) -> tuple[Any, str]:
    """The file or class that has what a path means, and its name there."""
    home, *inside, name = place.split(".")
    if home in OTHER_ROOMS:
        return functools.reduce(getattr, inside, importlib.import_module(f"graphwright.{home}")), name
    room = Path(graphwright.passes.__file__).parent
    (path,) = room.rglob(f"{home}.py")
    return importlib.import_module(
        ".".join(("graphwright.passes", *path.relative_to(room).with_suffix("").parts))
    ), name


def name_of(twin: Twin) -> str:
    return type(twin.each).__name__


@pytest.mark.sampled(4)
@pytest.mark.parametrize("twin", TWINS, ids=name_of)
def test_the_checks_tell_a_pass_from_its_broken_twin(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    assert twin.holds()
    monkeypatch.setattr(*owner_of(twin.place), twin.wrong)
    assert not twin.holds()


def is_pass(value: Any) -> bool:
    """Tell whether something public changes a module when it is run."""
    if not inspect.isclass(value) or inspect.isabstract(value):
        return False
    runs = list(inspect.signature(value.run).parameters) == ["self", "gm"] if hasattr(value, "run") else False
    return runs or issubclass(value, Transformation)


def test_every_pass_has_a_broken_twin() -> None:
    public = {name for name in graphwright.passes.__all__ if is_pass(getattr(graphwright.passes, name))}
    assert public - {"Pipeline"} == set(map(name_of, TWINS))
