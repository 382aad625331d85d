"""Functions of torch that take a function: `torch.vmap(f)(x)` becomes one node, with what `f` does as its body.

The function runs once, on stand-ins of what the transform would give it - of one slice, for vmap - and records into a
region of its own. What it uses from outside becomes the operands of the node: it closes over them.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from graphwright.capture.calls.whole_calls import whole_call
from graphwright.capture.containers.body_replay import Replay
from graphwright.capture.python.staging import RUNTIME
from graphwright.capture.source.origins import CallSite
from graphwright.capture.state.regions import Region
from graphwright.capture.state.running import refusal
from graphwright.capture.state.side_ended import Raised
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError
from graphwright.ir import Node
from graphwright.ops import TRANSFORMS, transformed, unpack
from graphwright.values import leaves, sequence

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

__all__ = ["BY_CODE", "MADE", "Transforms"]

_VMAP, _CHECKPOINT, _VJP = "torch.vmap", "torch.utils.checkpoint.checkpoint", "torch.func.vjp"
BY_CODE = {kind.function.__code__: name for name, kind in TRANSFORMS.items() if kind.form != "key"}
# The functions that these make, by their code, for those made before the capture: torch.func.hessian's are jacfwd's.
MADE = {
    kind.function(len).__code__: name
    for name, kind in TRANSFORMS.items()
    if kind.form == "maker" and name != "torch.func.hessian"
}
_DIFFERENTIATING = ("grad", "grad_and_value", "jacrev", "hessian", "vjp", "jacobian", "hvp", "vhp")


class Transforms:
    """The calls of transforms in one capture."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._noted: dict[Node, Any] = {}  # examples of values that bodies use
        self._wholes: dict[int, tuple[Any, Any, Callable[[], Node]]] = {}  # id -> (container, its content, its node)

    def handler(self, function: Any) -> Callable[..., Any] | None:
        """What to call in place of a function that takes, or is made of, a function; None for others."""
        kind = type(function)
        if kind is FunctionType:
            name = BY_CODE.get(function.__code__)
            if name is not None:
                return functools.partial(self._apply, name)
            name = MADE.get(function.__code__)
            if name is not None:
                return self._made_before(name, function)
        elif kind is functools.partial:
            inner = self.handler(function.func)
            if inner is not None:
                return functools.partial(inner, *function.args, **function.keywords)
        return whole_call(self._recorder, function)

    def note(self, node: Node, example: Any) -> Node:
        """Remember the example of a value that is used in a region."""
        self._noted[node] = example
        return node

    def know_whole(self, container: Any, make: Callable[[], Node]) -> Any:
        """Remember which node a container is the value of, and give it back."""
        if isinstance(container, tuple | list | dict):
            self._wholes[id(container)] = container, tree_flatten(container), make
        return container

    def node_of_whole(self, container: Any) -> Node | None:
        """The node whose value a container is, where the program has not changed it since."""
        known = self._wholes.get(id(container))
        if known is None:
            return None
        now, then = tree_flatten(container), known[1]
        if now[1] != then[1] or not all(map(operator.is_, now[0], then[0])):
            return None
        node = known[2]()
        return node if self._recorder.region.outer is None else self.note(node, self._recorder.to_examples(container))

    # ---- calls

    def _apply(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Record `torch.func.vjp(f, x)`, or return what remembers `torch.vmap(f)` until it is called."""
        kind = TRANSFORMS[name]
        signature = _signature(name)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return kind.function(*args, **kwargs)  # says what is wrong
        parameters = list(signature.parameters)
        function = given.pop(parameters[0])
        if kind.form == "maker":
            return Transformed(self._recorder, name, function, _options(signature, given))
        if kind.form == "call":
            inputs, named = tuple(given.pop(parameters[1], ())), dict(given.pop("kwargs", {}))
            if any(isinstance(leaf, nn.Module) for leaf in leaves((inputs, named))) and kind.deferred:
                return RUNTIME.call(function, *inputs, **named)  # no value of a graph; it computes the same without
            if "preserve_rng_state" in named:
                given["preserve_rng_state"] = named.pop("preserve_rng_state")
        else:
            inputs = tuple([given.pop(key) for key in parameters[1:3] if key in ("v", *_INPUTS) and key in given])
            named = {}
        return self.record(name, function, _options(signature, given), inputs, named)

    def _made_before(self, name: str, function: FunctionType) -> Transformed:
        """Take apart what a transform made outside of the capture."""
        held = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        known = {key: cell.cell_contents for key, cell in held.items() if key in _signature(name).parameters}
        inner = known.pop("func")
        return Transformed(self._recorder, name, inner, _options(_signature(name), known))

    def record(
        self, name: str, function: Any, options: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Capture what a function does as a body, and record the call of the transform with it."""
        recorder = self._recorder
        spread = TRANSFORMS[name].form == "spread"
        inputs: tuple[Any, ...] = args
        if spread:
            inputs = tuple(args[0]) if isinstance(args[0], tuple | list) else args[:1]
        region = Region(recorder.region, sys._getframe())
        region.transform = name
        result = self._run_body(name, function, options, inputs, kwargs, region)
        operands = list(region.lifted)
        region.take(operands)
        example_args = recorder.to_examples(args), recorder.to_examples(kwargs)
        if name == _CHECKPOINT:
            example: Any = recorder.to_examples(result)
        else:
            values = [self.example_of(operand, region.outer) for operand in operands]
            replay = Replay(recorder, region.graph)
            example = recorder.examples.run(
                functools.partial(transformed, name, lambda *given: replay(*given, *values)),
                (example_args[0], (), recorder.to_examples(options)),
                example_args[1],
            )
        node = recorder.node(
            "call_function",
            transformed,
            (name, region.graph, recorder.argument(args), tuple(operands), recorder.argument(options)),
            {key: recorder.argument(value) for key, value in kwargs.items()},
            name=recorder.target_name() or name.rpartition(".")[2],
        )
        return self._results(example, lambda: node, recorder.unpacked_names())

    def _results(self, value: Any, make: Callable[[], Node], names: Sequence[str] = ()) -> Any:
        """Give what a node computes to the program: tensors and functions as proxies, in the containers they are in."""
        recorder = self._recorder
        if isinstance(value, torch.Tensor):
            return TensorProxy.make(recorder, value, None, make)
        if type(value) is FunctionType:  # torch.func.vjp gives one
            return _Called(recorder, value, make())
        if not isinstance(value, tuple | list | dict):
            return recorder.opaque_items(value, make()) if type(value) in (int, float, bool) else value
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        if len(names) == len(pairs):
            node = recorder.node("call_function", unpack, (make(), len(pairs)), {}, "unpack")
            nodes = [recorder.item_node(node, key, called) for (key, _), called in zip(pairs, names, strict=True)]
            items = [self._results(item, _giving(made)) for (_, item), made in zip(pairs, nodes, strict=True)]
        else:
            items = [self._results(item, _item(recorder, recorder.region, make, key)) for key, item in pairs]
        kind = type(value)
        held: Any
        if isinstance(value, dict):
            held = kind(zip(value, items, strict=True))
        else:
            held = sequence(kind, items)
        return self.know_whole(held, make)

    # ---- bodies

    def _run_body(
        self, name: str, function: Any, options: dict[str, Any], inputs: Any, kwargs: Any, region: Region
    ) -> Any:
        """Run the function of the program once, recording into the region; return what it gives."""
        recorder = self._recorder
        before, recorder.region = recorder.region, region
        try:
            marks = _marks(name, options, len(inputs))
            narrow = _slice if name == _VMAP else _require_grad
            feed = _Feed(recorder, region, narrow)
            given = [
                feed.input(parameter, value, mark)
                for parameter, value, mark in zip(_parameters(function, len(inputs)), inputs, marks, strict=True)
            ]
            named = {key: feed.input(key, value, 0 if name == _VMAP else None) for key, value in kwargs.items()}
            result = RUNTIME.call(function, *given, **named)
            last = region.graph._root.prev
            output = region.graph.output(recorder.lifted(recorder.argument(result)))
            code = _code_of(function)
            if code is not None:
                output._origin = CallSite(code, 0, recorder.scope)
                if last._origin is not None and isinstance(last._origin, CallSite) and last._origin.code is code:
                    output._origin = last._origin
        except Raised:
            message = f"the function given to {name} raises an exception whatever its inputs are"
            raise refusal(CaptureError(message, at=recorder.where())) from None
        finally:
            recorder.region = before
        return result

    def example_of(self, node: Node, region: Region | None) -> Any:
        """The example of a value that a body uses from outside."""
        while region is not None and node not in self._noted:
            outside = next((outer for outer, inner in region.lifted.items() if inner is node), None)
            if outside is None:
                raise refusal(CaptureError(f"the example of {node.name!r} is not known", at=node.origin))
            node, region = outside, region.outer
        return self._noted[node]


class Transformed:
    """What a transform makes of a function while a program is captured: a call of it is recorded.

    After the capture it is what torch makes.
    """

    def __init__(self, recorder: TypedCapture, name: str, function: Any, options: dict[str, Any]) -> None:
        self._recorder, self._name, self._function, self._options = recorder, name, function, options
        if not isinstance(function, nn.Module):
            functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self._recorder
        if not recorder.is_running or recorder.examples.is_running:
            return TRANSFORMS[self._name].function(self._function, **self._options)(*args, **kwargs)
        if recorder.pending is not None:
            raise recorder.pending
        return recorder.transforms.record(self._name, self._function, self._options, args, kwargs)


class _Called:
    """A function that an operation of the program gives: a call of it is recorded."""

    def __init__(self, recorder: TypedCapture, function: Callable[..., Any], node: Node) -> None:
        self._recorder, self._function, self._node = recorder, function, node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._recorder.record("call_method", "__call__", self._function, args, kwargs, (self._node,))


class _Feed:
    """Makes the inputs of a body: one placeholder for each, its tensors as proxies of what the transform gives."""

    def __init__(self, recorder: TypedCapture, region: Region, narrow: Callable[..., torch.Tensor]) -> None:
        self._recorder, self._region, self._narrow = recorder, region, narrow

    def input(self, name: str, value: Any, mark: Any) -> Any:
        """Make one input. `mark` says what the transform does to its tensors; it may be a container of such."""
        node = self._region.graph.create_node("placeholder", name, (), {}, name)
        node._target = node.name
        return self._value(value, mark, lambda: node)

    def _value(self, value: Any, mark: Any, make: Callable[[], Node]) -> Any:
        if isinstance(value, torch.Tensor):
            examples = self._recorder.examples
            example = self._recorder.example(value)
            if mark is not None:
                example = examples.run(self._narrow, (example, mark), {})
            return TensorProxy.make(self._recorder, example, None, make)
        kind, know = type(value), self._recorder.transforms.know_whole
        if isinstance(value, tuple | list):
            marks = mark if isinstance(mark, tuple | list) else [mark] * len(value)
            items = [
                self._value(value[i], marks[i], _item(self._recorder, self._region, make, i)) for i in range(len(value))
            ]
            return know(sequence(kind, items), make)
        if isinstance(value, dict):
            held = {
                key: self._value(
                    item, mark[key] if isinstance(mark, dict) else mark, _item(self._recorder, self._region, make, key)
                )
                for key, item in value.items()
            }
            return know(held if kind is dict else kind(held), make)
        return value


def _giving(node: Node) -> Callable[[], Node]:
    return lambda: node


def _item(recorder: TypedCapture, region: Region, make: Callable[[], Node], key: Any) -> Callable[[], Node]:
    """What makes the node of an item of a container, in the region that has the container, when it is needed."""

    @functools.cache
    def item() -> Node:
        before, recorder.region = recorder.region, region
        try:
            return recorder.item_node(make(), key)
        finally:
            recorder.region = before

    return item


_INPUTS = ("primals", "tangents", "inputs")


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


@functools.cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(TRANSFORMS[name].function)


def _options(signature: inspect.Signature, given: dict[str, Any]) -> dict[str, Any]:
    """The options that are not the defaults."""
    parameters = signature.parameters
    return {k: v for k, v in given.items() if k not in parameters or v is not parameters[k].default}


def _parameters(function: Any, count: int) -> list[str]:
    """What a function calls its first inputs."""
    names: list[str] = []
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
    except (TypeError, ValueError):
        pass
    return [*names, *[f"input_{i}" for i in range(len(names), count)]][:count]


def _code_of(function: Any) -> Any:
    """The code that a function of the program runs."""
    while True:
        if isinstance(function, nn.Module):
            function = function.forward
        elif isinstance(function, FunctionType):
            return function.__code__
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, Transformed):
            function = function._function
        else:
            return None
