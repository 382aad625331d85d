"""Generators of torch that a program makes or holds: what is done to them is recorded, and none is moved."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.outside.overheard import OUTSIDE, caller_of, hears
from graphwright.capture.proxies.calls_as_written import module_name
from graphwright.capture.state.running import refused

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.ir import Node

# What there is of a generator: methods that give it back, changed; those that give a number, a state, or another
# generator; and what says nothing of its state. What a newer torch adds is refused.
METHODS = {
    **dict.fromkeys(("manual_seed", "set_state", "set_offset", "graphsafe_set_state"), "itself"),
    **dict.fromkeys(("seed", "initial_seed", "get_offset"), "number"),
    "get_state": "state",
    **dict.fromkeys(("clone_state", "graphsafe_get_state"), "generator"),
    **dict.fromkeys(("device", "_cdata"), "plain"),
    "philox_state": "refused",
}


def some_state(*args: Any, **kwargs: Any) -> torch.Tensor:
    """The example of the state of a generator."""
    return torch.zeros(5056, dtype=torch.uint8)


def some_number(*args: Any, **kwargs: Any) -> int:
    """The example of a seed."""
    return 0


_RUNS: dict[str, Callable[..., Any]] = {"number": some_number, "state": some_state}


class GeneratorProxy(torch.Generator):
    """A generator that a program makes, or holds in a module. `node_of` gives the node that gives it.

    It is one of its own, from which operations may draw while the program is captured.
    """

    _recorder: TypedCapture
    node_of: Callable[[], Node]

    @staticmethod
    def make(recorder: TypedCapture, device: torch.device | str | int, node_of: Callable[[], Node]) -> GeneratorProxy:
        """A generator of the program, which a node gives."""
        with torch._C.DisableTorchFunction():
            new: Any = torch._C.Generator.__new__
            made: GeneratorProxy = new(GeneratorProxy, recorder.to_examples(device))
        made._recorder, made.node_of = recorder, node_of
        return made

    @staticmethod
    def held(recorder: TypedCapture, generator: torch.Generator, path: str) -> GeneratorProxy:
        """A generator that a module holds, under a dotted path."""

        def read() -> Node:
            known = recorder.region.attributes
            if path not in known:
                known[path] = recorder.node("get_attr", path, (), {}, module_name(path))
            return known[path]

        return GeneratorProxy.make(recorder, generator.device, read)


def _recorded(name: str) -> Callable[..., Any]:
    original = getattr(torch._C.Generator, name)

    def method(self: GeneratorProxy, *args: Any, **kwargs: Any) -> Any:
        if hears(self._recorder) is None or caller_of(sys._getframe(1)) is None:
            return original(self, *args, **kwargs)
        return record_generator_call(self._recorder, name, self, args, kwargs)

    method.__name__ = name
    return method


for _name in dir(torch._C.Generator):
    if not _name.startswith("__") and METHODS.get(_name) != "plain":
        setattr(GeneratorProxy, _name, _recorded(_name))


def record_generator_call(
    recorder: TypedCapture, name: str, generator: torch.Generator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record the call of a method of a generator, which itself stays as it is."""
    owner: Any = recorder.argument(generator)
    gives = METHODS.get(name, "refused")
    if gives == "refused":
        raise refused(recorder, f"the program calls {name} of a generator, which a graph cannot", OUTSIDE)
    if gives in _RUNS:
        return recorder.record("call_method", name, _RUNS[gives], args, kwargs, (owner,), gives_data=gives == "number")
    given = tuple([recorder.argument(arg) for arg in args])
    named = {key: recorder.argument(arg) for key, arg in kwargs.items()}
    recorder.ambient.notice()
    node = recorder.node("call_method", name, (owner, *given), named)
    if gives == "generator":
        return GeneratorProxy.make(recorder, generator.device, lambda: node)
    is_named = recorder.target_name() != "" and getattr(owner, "graph", None) is node.graph
    if is_named and isinstance(generator, GeneratorProxy) and owner.op != "get_attr":
        generator.node_of = lambda: node  # the very generator: what comes later reads it under this name
    return generator
