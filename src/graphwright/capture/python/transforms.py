"""Functions of torch that take a function: `torch.vmap(f)(x)` becomes one node, with what `f` does as its body.

The function runs once, on stand-ins of what the transform would give it - of one slice, for vmap - and records into a
region of its own. What it uses from outside becomes the operands of the node: it closes over them.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Hashable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from graphwright.capture.calls.whole_calls import whole_call
from graphwright.capture.containers.body_replay import Replay
from graphwright.capture.python.calls import call
from graphwright.capture.python.transform_bodies import item_maker, run_body
from graphwright.capture.python.transformed_functions import GivenFunction, Transformed
from graphwright.capture.state.regions import Region
from graphwright.capture.state.running import refusal, refused
from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError
from graphwright.ir import Node, shared_operands
from graphwright.ops import TRANSFORMS, transformed, unpack
from graphwright.source import held_by
from graphwright.values import leaves, sequence

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

_CHECKPOINT = "torch.utils.checkpoint.checkpoint"
BY_CODE = {kind.function.__code__: name for name, kind in TRANSFORMS.items() if kind.form != "key"}
# The functions that these make, by their code, for those made before the capture: torch.func.hessian's are jacfwd's.
MADE = {
    kind.function(len).__code__: name
    for name, kind in TRANSFORMS.items()
    if kind.form == "maker" and name != "torch.func.hessian"
}


class Transforms:
    """The calls of transforms in one capture."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._noted: dict[Node, Any] = {}  # examples of values that bodies use
        self._wholes: dict[int, tuple[Any, Any, Callable[[], Node]]] = {}  # id -> (container, its content, its node)

    def handler(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """What to call in place of a function that takes, or is made of, a function; None for others."""
        if type(function) is FunctionType:
            name = BY_CODE.get(function.__code__)
            if name is not None:
                return functools.partial(self._apply, name)
            name = MADE.get(function.__code__)
            if name is not None:
                return self._made_before(name, function)
        elif type(function) is functools.partial:
            inner = self.handler(function.func)
            if inner is not None:
                return functools.partial(inner, *function.args, **function.keywords)
        elif type(function) is type:
            return None
        return whole_call(self._recorder, function)

    def note(self, node: Node, example: Any) -> Node:
        """Remember the example of a value that is used in a region."""
        self._noted[node] = example
        return node

    def know_whole(self, container: tuple[Any, ...] | list[Any] | dict[Any, Any], make: Callable[[], Node]) -> Any:
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
                return call(function, *inputs, **named)  # no value of a graph; it computes the same without
            if "preserve_rng_state" in named:
                given["preserve_rng_state"] = named.pop("preserve_rng_state")
        else:
            inputs = tuple([given.pop(key) for key in parameters[1:3] if key in ("v", *_INPUTS) and key in given])
            named = {}
        return self.record(name, function, _options(signature, given), inputs, named)

    def _made_before(self, name: str, function: FunctionType) -> Transformed:
        """Take apart what a transform made outside of the capture."""
        known = {key: held for key, held in held_by(function).items() if key in _signature(name).parameters}
        inner = known.pop("func")
        return Transformed(self._recorder, name, inner, _options(_signature(name), known))

    def record(
        self,
        name: str,
        function: Callable[..., Any],
        options: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Capture what a function does as a body, and record the call of the transform with it."""
        recorder = self._recorder
        spread = TRANSFORMS[name].form == "spread"
        inputs: tuple[Any, ...] = args
        if spread:
            inputs = tuple(args[0]) if isinstance(args[0], tuple | list) else args[:1]
        region = Region(recorder.region, sys._getframe())
        region.transform = name
        numbers = _numbers_kept(recorder) if name == _CHECKPOINT else {}
        result = run_body(recorder, name, function, options, inputs, kwargs, region)
        if name == _CHECKPOINT:
            _refuse_counted(recorder, numbers)
        operands = shared_operands([region])
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
            return GivenFunction(recorder, value, make())
        if not isinstance(value, tuple | list | dict):
            return recorder.opaque_items(value, make()) if type(value) in (int, float, bool) else value
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        if len(names) == len(pairs):
            node = recorder.node("call_function", unpack, (make(), len(pairs)), {}, "unpack")
            nodes = [recorder.item_node(node, key, called) for (key, _), called in zip(pairs, names, strict=True)]
            items = [self._results(item, _giving(made)) for (_, item), made in zip(pairs, nodes, strict=True)]
        else:
            items = [self._results(item, item_maker(recorder, recorder.region, make, key)) for key, item in pairs]
        kind = type(value)
        held: Any
        if isinstance(value, dict):
            held = kind(zip(value, items, strict=True))
        else:
            held = sequence(kind, items)
        return self.know_whole(held, make)

    def example_of(self, node: Node, region: Region | None) -> Any:
        """The example of a value that a body uses from outside."""
        while region is not None and node not in self._noted:
            outside = next((outer for outer, inner in region.lifted.items() if inner is node), None)
            if outside is None:
                raise refusal(CaptureError(f"the example of {node.name!r} is not known", at=node.origin))
            node, region = outside, region.outer
        return self._noted[node]


def _giving(node: Node) -> Callable[[], Node]:
    return lambda: node


_INPUTS = ("primals", "tangents", "inputs")


@functools.cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(TRANSFORMS[name].function)


def _options(signature: inspect.Signature, given: dict[str, Any]) -> dict[str, Any]:
    """The options that are not the defaults."""
    parameters = signature.parameters
    return {k: v for k, v in given.items() if k not in parameters or v is not parameters[k].default}


def _numbers_kept(recorder: TypedCapture) -> dict[tuple[int, Hashable], tuple[str, Symbol, Symbol]]:
    """The attributes that the program has changed from one number to another: names, the numbers before and now."""
    found = {}
    for table, key, now in recorder.keeping.unwritten() if recorder.keeping is not None else ():
        before, number = symbol_of(table.before.get(key)), symbol_of(now)
        if before is not None and number is not None:
            found[id(table), key] = table.name(key), before, number
    return found


def _refuse_counted(recorder: TypedCapture, known: dict[tuple[int, Hashable], tuple[str, Symbol, Symbol]]) -> None:
    """Refuse a function under `checkpoint` that counts in an attribute: backward runs it again, and counts again."""
    for place, (name, before, number) in _numbers_kept(recorder).items():
        is_same = place in known and known[place][2].key == number.key
        if not is_same and _is_made_of(number.key, before.key):
            message = f"the program counts in {name}, in a function under checkpoint, which backward runs again"
            raise refused(recorder, message, "count it outside of that function")


def _is_made_of(key: Hashable, part: Hashable) -> bool:
    return key == part or (isinstance(key, tuple) and any(_is_made_of(each, part) for each in key))
