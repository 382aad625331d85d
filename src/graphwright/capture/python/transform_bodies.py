"""The body of a transform: the function that it is given, run once on stand-ins of what the transform would give it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from graphwright.capture.containers.loop_holders import Holder
from graphwright.capture.python.calls import call
from graphwright.capture.python.transformed_functions import code_of, parameters_of
from graphwright.capture.state.regions import Writing
from graphwright.capture.state.running import refused
from graphwright.capture.state.side_ended import Raised
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.ops import TRANSFORMS
from graphwright.source import CallSite

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.regions import Region

_VMAP = "torch.vmap"
_DIFFERENTIATING = ("grad", "grad_and_value", "jacrev", "hessian", "vjp", "jacobian", "hvp", "vhp")


def run_body(
    recorder: TypedCapture,
    name: str,
    function: Callable[..., Any],
    options: dict[str, Any],
    inputs: tuple[Any, ...],
    kwargs: dict[str, Any],
    region: Region,
) -> Any:
    """Run the function of the program once, recording into the region; return what it gives."""
    try:
        with Writing(recorder, region):
            marks = _marks(name, options, len(inputs))
            narrow = _slice if name == _VMAP else _require_grad
            feed = _Feed(recorder, region, narrow)
            given = [
                feed.input(parameter, value, mark)
                for parameter, value, mark in zip(parameters_of(function, len(inputs)), inputs, marks, strict=True)
            ]
            named = {key: feed.input(key, value, 0 if name == _VMAP else None) for key, value in kwargs.items()}
            result = call(function, *given, **named)
            _write_output(recorder, region, function, result)
    except Raised:
        message = f"the function given to {name} raises an exception whatever its inputs are"
        raise refused(recorder, message) from None
    return result


def _write_output(recorder: TypedCapture, region: Region, function: Callable[..., Any], result: Any) -> None:
    """End a body with what its function gives, at the line of the function that ran last."""
    last = region.graph._root.prev._origin
    output = region.graph.output(recorder.lifted(recorder.argument(result)))
    code = code_of(function)
    if code is not None:
        is_its_own = isinstance(last, CallSite) and last.code is code
        output._origin = last if is_its_own else CallSite(code, 0, recorder.scope)


# What a transform does to a tensor: along which dimension it slices it, or whether it wants a gradient for it; None for
# nothing. In a container it is one for each item.
_Mark: TypeAlias = "int | tuple[Any, ...] | list[Any] | dict[Any, Any] | None"


class _Feed:
    """Makes the inputs of a body: one placeholder for each, its tensors as proxies of what the transform gives."""

    def __init__(self, recorder: TypedCapture, region: Region, narrow: Callable[..., torch.Tensor]) -> None:
        self._recorder, self._region, self._narrow = recorder, region, narrow

    def input(self, name: str, value: Any, mark: _Mark) -> Any:
        """Make one input. `mark` says what the transform does to its tensors; it may be a container of such."""
        node = self._region.graph.create_node("placeholder", name, (), {}, name)
        node._target = node.name
        return self._value(value, mark, lambda: node)

    def _value(self, value: Any, mark: _Mark, make: Callable[[], Node]) -> Any:
        if isinstance(value, torch.Tensor):
            examples = self._recorder.examples
            example = self._recorder.example(value)
            if mark is not None:
                example = examples.run(self._narrow, (example, mark), {})
            return TensorProxy.make(self._recorder, example, None, make)
        if isinstance(value, Holder):  # of which the function sees the items that the example has
            with Writing(self._recorder, self._region.outer or self._region):
                self._recorder.questions.guards.guard_sizes([value])
            node, value = value.node_of(), value.base(value.content())
            self._recorder.transforms.note(node, self._recorder.to_examples(value))
        kind, know = type(value), self._recorder.transforms.know_whole
        maker = functools.partial(item_maker, self._recorder, self._region, make)
        if isinstance(value, tuple | list):
            marks = mark if isinstance(mark, tuple | list) else [mark] * len(value)
            items = [self._value(value[i], marks[i], maker(i)) for i in range(len(value))]
            return know(kind(*items) if hasattr(kind, "_fields") else kind(items), make)
        if isinstance(value, dict):
            held = {
                key: self._value(item, mark[key] if isinstance(mark, dict) else mark, maker(key))
                for key, item in value.items()
            }
            return know(held if kind is dict else kind(held), make)
        return value


def item_maker(recorder: TypedCapture, region: Region, make: Callable[[], Node], key: Hashable) -> Callable[[], Node]:
    """What makes the node of an item of a container, in the region that has the container, when it is needed."""

    @functools.cache
    def item() -> Node:
        with Writing(recorder, region):
            return recorder.item_node(make(), key)

    return item


def _marks(name: str, options: dict[str, Any], count: int) -> list[Any]:
    """What the transform does to each input: the dimension that vmap takes away, or whether gradients are taken."""
    if name == _VMAP:
        dims = options.get("in_dims", 0)
        return list(dims) if isinstance(dims, tuple | list) and len(dims) == count else [dims] * count
    if name.rpartition(".")[2] not in _DIFFERENTIATING:
        return [None] * count
    if TRANSFORMS[name].form != "maker":
        return [True] * count
    chosen = options.get("argnums", 0)
    chosen = chosen if isinstance(chosen, tuple | list) else (chosen,)
    return [True if i in chosen or i - count in chosen else None for i in range(count)]


def _slice(example: torch.Tensor, dim: int) -> torch.Tensor:
    return example.select(dim, 0).clone()


def _require_grad(example: torch.Tensor, mark: bool) -> torch.Tensor:
    return example.detach().clone().requires_grad_(example.is_floating_point() or example.is_complex())
