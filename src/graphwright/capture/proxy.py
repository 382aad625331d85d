"""Untyped proxies: values of `symbolic_trace`, of which nothing is known but how they are made.

Operators, attribute reads, method calls and torch functions on a proxy become nodes of its tracer's graph. What
Python asks of a proxy (is it true? how long is it?) goes to the tracer, which refuses: the answer is not known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from graphwright.ir import Node

if TYPE_CHECKING:
    from graphwright.capture.tracer import TracerBase

__all__ = ["Attribute", "Proxy"]


class Proxy:
    """A value of the program being captured.

    `node` is the node that computes it, `tracer` what records the operations on it.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        if tracer is None:
            from graphwright.capture.tracer import GraphAppendingTracer

            tracer = GraphAppendingTracer(node.graph)
        self.node = node
        self.tracer = tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Attribute:
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __getitem__(self, key: Any) -> Proxy:
        return self.tracer.record(operator.getitem, (self, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.record(operator.setitem, (self, key, value))

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        return self.tracer.len(self)

    def __contains__(self, item: Any) -> bool:
        return self.tracer.contains(self, item)

    def __index__(self) -> int:
        return self.tracer.number(self, "an index")

    def __int__(self) -> int:
        return self.tracer.number(self, "int()")

    def __float__(self) -> float:
        return self.tracer.number(self, "float()")

    def keys(self) -> Any:
        """Called when a proxy is spread as `**kwargs`."""
        return self.tracer.keys(self)

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise TypeError(f"{self!r} cannot be copied while the program is captured: it stands for a value of the run")

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tracer = find_tracer(args, kwargs)
        assert tracer is not None
        return tracer.torch_function(function, args, kwargs or {})


class Attribute(Proxy):
    """An attribute of a proxy: a method that is then called, or a value. The node of the value is made at need."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.record_method(self.attr, (self.root, *args), kwargs)


def find_tracer(args: Any, kwargs: Any = None) -> TracerBase | None:
    """Return the tracer of the first proxy in nested arguments, or None."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is Proxy:
            return value.tracer  # type: ignore[no-any-return]
        if kind is tuple or kind is list:
            found = find_tracer(value)
        elif kind is dict:
            found = find_tracer(value.values())
        elif kind is slice:
            found = find_tracer((value.start, value.stop, value.step))
        elif isinstance(value, Proxy):
            return value.tracer
        else:
            continue
        if found is not None:
            return found
    return None


def _define_operators() -> None:
    """Define Python's operators on Proxy, each recording the function of module `operator`."""

    def binary(function: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Proxy, other: Any) -> Proxy:
            return self.tracer.record(function, (self, other))

        return method

    def reflected(function: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Proxy, other: Any) -> Proxy:
            return self.tracer.record(function, (other, self))

        return method

    def in_place(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def method(self: Proxy, other: Any) -> Proxy:
            return self.tracer.record(function, (self, other), name)

        return method

    def unary(function: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Proxy) -> Proxy:
            return self.tracer.record(function, (self,))

        return method

    arithmetic = ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "pow")
    for name in (*arithmetic, "lshift", "rshift", "and", "or", "xor"):
        function = getattr(operator, name, None) or getattr(operator, name + "_")
        setattr(Proxy, f"__{name}__", binary(function))
        setattr(Proxy, f"__r{name}__", reflected(function))
        # torch.fx names the value after the operator without its i, and records no effect; the effect is real.
        setattr(Proxy, f"__i{name}__", in_place(getattr(operator, f"i{name}"), function.__name__))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Proxy, f"__{name}__", binary(getattr(operator, name)))
    for name in ("neg", "pos", "invert", "abs"):
        setattr(Proxy, f"__{name}__", unary(getattr(operator, name)))


_define_operators()
