"""Does a captured or rewritten module do what the original does? Run both and compare everything that can be seen.

Both sides get copies of the same inputs, the same random states and the same module state; what is compared is what
they return or raise, what they did to their inputs, and what they left behind in buffers, attributes and random
states.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphwright.analysis.comparing.divergence import describe_divergence, describe_node, recorded_calls
from graphwright.analysis.comparing.node_values import NodeValues, TensorsSeen, first_other_node
from graphwright.analysis.module_state import ModuleState, random_facts, seed_everything
from graphwright.analysis.randomness import same_randomness
from graphwright.analysis.report import CaseReport, Difference, VerifyReport
from graphwright.analysis.values import (
    Fact,
    Tolerance,
    compare_facts,
    copied_inputs,
    describe_inputs,
    facts_of,
    tensors_in,
)
from graphwright.errors import GraphwrightError, GuardError
from graphwright.progress import followed, shown
from graphwright.runtime import GraphModule, call_of, graph_of

Mode = Literal["train", "eval"]


@shown("comparing")
def verify(
    model: Callable[..., Any],
    gm: Callable[..., Any],
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    modes: Sequence[Mode] = ("eval",),
    grads: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> VerifyReport:
    """Compare a captured module with the original on example inputs.

    inputs: the arguments of one call, a tuple or the only one, and `kwargs` for those by name; or a list of calls, each
    an `(args, kwargs)` pair, a tuple of args, a dict of kwargs, or a single tensor. (A tuple of a tuple and a dict is
    always read as a pair.) Every call is made in every mode, with `grads` followed by
    a backward pass whose gradients are compared as well. Tolerances left out depend on the dtype, as in
    `torch.testing`; integers must be equal. Where the original raises, `gm` must raise too. Where a captured module
    differs, the report also says at which of its nodes the two sides part, inside a branch or loop too.

    Neither module is left changed: training flags, parameters, buffers, attributes and random states are put back.
    That takes a copy of all parameters and buffers while it runs.

    progress: whether a bar is shown; None: where it lasts longer than a second.

    Raises GraphwrightError when there is nothing to compare.

    >>> import copy
    >>> model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    >>> report = verify(model, copy.deepcopy(model), [torch.randn(3, 4), torch.randn(5, 4)])
    >>> report.ok, report.worst
    (True, 0.0)
    >>> print(verify(model, model[0], [(torch.ones(1, 4) * 9,)], atol=100.0))
    1 of 1 cases agree, worst absolute error ...
      case  mode  inputs         verdict  error
      0     eval  float32(1, 4)  equal    ...
    """
    calls = _as_calls(inputs, kwargs)
    if not modes or not set(modes) <= {"train", "eval"}:
        raise GraphwrightError(f"modes is {modes!r}", fix='pass a tuple of "train" and "eval"')
    _refuse_lazy(model)
    original = _Side(model)
    captured = _Side(gm, beside=original.state)
    for side in (original, captured):
        side.state.include_variables(gm)
    comparison = _Comparison(original, captured, Tolerance(rtol, atol), seed, grads)
    every = [*itertools.product(enumerate(calls), modes)]
    with same_randomness():
        return VerifyReport(tuple(comparison.case(i, mode, *call) for (i, call), mode in followed(every, "call")))


def _as_calls(inputs: Any, kwargs: Mapping[str, Any] | None) -> list[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    """Bring every accepted spelling of a call to `(args, kwargs)`."""
    if not isinstance(inputs, list):
        return [call_of(inputs, kwargs) if kwargs is not None else _as_call(inputs)]
    if kwargs is not None:
        raise GraphwrightError("kwargs go with one call", fix="put them into the calls: [((x,), {'mask': mask}), ...]")
    if not inputs:
        raise GraphwrightError("inputs is empty: there is nothing to compare", fix="pass at least one call")
    return [_as_call(item) for item in inputs]


def _as_call(item: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], tuple) and isinstance(item[1], Mapping):
        return item[0], item[1]
    if isinstance(item, tuple | list):
        return tuple(item), {}
    if isinstance(item, Mapping):
        return (), dict(item)
    return (item,), {}


def _refuse_lazy(model: Any) -> None:
    if isinstance(model, nn.Module) and any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        raise GraphwrightError(
            f"{type(model).__name__} has parameters without a shape", fix="call the model once, then capture it"
        )


class _Side:
    """One of the two: what to call, and how it was found."""

    def __init__(self, function: Callable[..., Any], beside: ModuleState | None = None) -> None:
        self.function = function
        if isinstance(function, nn.Module):
            getattr(function, "code", None)  # a captured module generates its code at first use: let that be done
        self.state = ModuleState(function, beside)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one run did."""

    facts: list[Fact]
    effects: dict[str, list[Fact]]
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Runs the two sides and compares them."""

    original: _Side
    captured: _Side
    tolerance: Tolerance
    seed: int
    grads: bool

    def case(self, index: int, mode: Mode, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CaseReport:
        """Make one call on both sides."""
        inputs = describe_inputs(args, kwargs)
        one = self._run(self.original, mode, args, kwargs)
        other = self._run(self.captured, mode, args, kwargs)
        if one.error or other.error:
            return _judge_errors(index, mode, inputs, one.error, other.error)
        differences, error = compare_facts(
            one.facts + _effects_of(one, other, self.original.state),
            other.facts + _effects_of(other, one, self.captured.state),
            self.tolerance,
        )
        if not differences:
            return CaseReport(index, mode, inputs, "equal", error)
        where = self._where(mode, args, kwargs)
        return CaseReport(index, mode, inputs, "differs", error, tuple(differences), where=where)

    def _where(self, mode: Mode, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Run both sides once more, watching their submodules; say where they part, if that can be seen."""
        original, captured = self.original.function, self.captured.function
        if not (isinstance(original, nn.Module) and isinstance(captured, GraphModule)):
            return ""
        graph = graph_of(captured)
        seen, nodes = TensorsSeen(), NodeValues(captured)
        with seen:
            self._run(self.original, mode, args, kwargs)
        if self._run(self.captured, mode, args, kwargs, nodes.run).error is None:
            node = first_other_node(nodes.kept, seen.tensors, self.tolerance)
            if node is not None:
                return describe_node(node)
        paths = dict.fromkeys(node.target for node in graph.all_nodes() if node.op == "call_module")
        with recorded_calls(original, paths) as one:
            self._run(self.original, mode, args, kwargs)
        with recorded_calls(captured, paths) as other:
            self._run(self.captured, mode, args, kwargs)
        return describe_divergence(graph, one, other, self.tolerance)

    def _run(
        self,
        side: _Side,
        mode: Mode,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        call: Callable[..., Any] | None = None,
    ) -> _Outcome:
        """Run one side on copies of the inputs, note what it did, and put everything back."""
        args, kwargs = copied_inputs((args, dict(kwargs)))
        function = side.function
        try:
            if isinstance(function, nn.Module):
                function.train(mode == "train")
            seed_everything(self.seed)
            with torch.set_grad_enabled(self.grads or torch.is_grad_enabled()):
                output = (call or function)(*args, **kwargs)
                facts = facts_of(output, "output")
                if self.grads:
                    facts += _gradient_facts(function, output, args, kwargs)
            facts += facts_of(args, "after the call: args") + facts_of(kwargs, "after the call: kwargs")
            facts += random_facts()
            return _Outcome(facts, side.state.effects(function))
        except Exception as error:  # the program under test may raise anything; both sides must do it
            return _Outcome([], {}, error)
        finally:
            # Both, for they may share modules and tensors.
            self.original.state.restore()
            self.captured.state.restore()


def _judge_errors(
    index: int, mode: str, inputs: str, original: Exception | None, captured: Exception | None
) -> CaseReport:
    if original is None:
        assert captured is not None
        if isinstance(captured, GuardError):
            return CaseReport(
                index, mode, inputs, "refused", math.inf, (Difference("output", f"refused: {captured}"),), "GuardError"
            )
        notes = "".join(f"; {note}" for note in getattr(captured, "__notes__", ()))
        what = f"the captured module raises {_name(captured)}{notes}"
        return CaseReport(index, mode, inputs, "differs", math.inf, (Difference("output", what),))
    if captured is None:
        what = f"the original raises {_name(original)}, the captured module does not"
        return CaseReport(index, mode, inputs, "differs", math.inf, (Difference("output", what),))
    names = dict.fromkeys((type(original).__name__, type(captured).__name__))
    return CaseReport(index, mode, inputs, "raises", 0.0, note=" and ".join(names))


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _effects_of(mine: _Outcome, others: _Outcome, state: ModuleState) -> list[Fact]:
    """What one side left behind, at every name that either side changed."""
    facts: list[Fact] = []
    for name in dict.fromkeys((*others.effects, *mine.effects)):
        if name in mine.effects:
            facts += mine.effects[name]
        else:
            facts += facts_of(state.value(name), f"after the call: {name}")
    return facts


def _gradient_facts(
    function: Callable[..., Any], output: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Fact]:
    """Gradients of the outputs with respect to parameters and inputs, without touching any `.grad`.

    The outputs are weighted at random: a plain sum has no gradient after a softmax or a layer norm.
    """
    ends = [tensor for tensor in tensors_in(output) if tensor.requires_grad and tensor.numel()]
    starts: dict[str, Tensor] = {}
    if isinstance(function, nn.Module):
        starts |= {name: parameter for name, parameter in function.named_parameters() if parameter.requires_grad}
    for i, tensor in enumerate(tensors_in((args, dict(kwargs)))):
        if tensor.requires_grad:
            starts[f"input tensor {i}"] = tensor
    if not ends or not starts:
        return []
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(end.shape, generator=generator).to(end.device, end.dtype) for end in ends]
    found = torch.autograd.grad(ends, list(starts.values()), weights, allow_unused=True)
    return [
        fact for name, gradient in zip(starts, found, strict=True) for fact in facts_of(gradient, f"gradient of {name}")
    ]
