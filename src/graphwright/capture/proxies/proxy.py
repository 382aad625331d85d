"""Untyped proxies: values of `symbolic_trace`, of which nothing is known but how they are made.

Operators, attribute reads, method calls and torch functions on a proxy become nodes of its tracer's graph. What
Python asks of a proxy (is it true? how long is it?) goes to the tracer, which refuses: the answer is not known.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import operator
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from graphwright.ir import ATOMS, Node

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from graphwright.capture.proxies.recording import TracerBase


_CHANGING = frozenset({"_version", "requires_grad", "grad", "grad_fn", "is_leaf", "output_nr"})  # of one tensor
_OF_PROXIES = frozenset({"node", "tracer", "root", "attr", "_node", "param", "name", "fake_mode"})


class Proxy:
    """A value of the program being captured.

    `node` is the node that computes it, `tracer` what records the operations on it.
    """

    node: Node
    tracer: TracerBase

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        if tracer is None:
            from graphwright.capture.proxies.recording import GraphAppendingTracer

            tracer = GraphAppendingTracer(node.graph)
        self.__dict__.update(node=node, tracer=tracer)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __str__(self) -> str:
        return self.tracer.text(self)

    def __format__(self, spec: str) -> str:
        return format(self.tracer.text(self), spec)

    def __getattr__(self, name: str) -> Attribute:
        if name in ("__array_struct__", "__array_interface__"):  # NumPy then asks for `__array__`
            raise AttributeError(name)
        found = Attribute(self, name)
        if name in _CHANGING:
            found.node  # noqa: B018
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        tracer: TracerBase | None = self.__dict__.get("tracer")
        if name in _OF_PROXIES or tracer is None or not tracer.set_attribute(self, name, value, sys._getframe(1)):
            object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __getitem__(self, key: Hashable) -> Proxy:
        return self.tracer.record(operator.getitem, (self, key))

    def __setitem__(self, key: Hashable, value: Any) -> None:
        self.tracer.record(operator.setitem, (self, key, value))

    def __delitem__(self, key: Hashable) -> None:
        self.tracer.record(operator.delitem, (self, key))

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        return self.tracer.len(self)

    def __index__(self) -> int:
        return self.tracer.number("'Proxy' object cannot be interpreted as an integer")

    def __int__(self) -> int:
        return self.tracer.number("int() argument must be a string, a bytes-like object or a real number, not 'Proxy'")

    def __float__(self) -> float:
        return self.tracer.number("float() argument must be a string or a real number, not 'Proxy'")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.number("a Proxy is no array")

    def keys(self) -> Any:
        """Called when a proxy is spread as `**kwargs`."""
        return self.tracer.keys(self)

    def __hash__(self) -> int:
        return id(self)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __copy__(self) -> Any:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.tracer.is_tracing:
            raise TypeError(
                f"{self!r} cannot be copied while the program is captured: it stands for a value of the run"
            )
        self.node.graph._make_names()  # a copied node keeps its name
        other = memo[id(self)] = object.__new__(type(self))  # the node may lead back to here
        other.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return other

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        tracer = find_tracer(args, kwargs)
        assert tracer is not None
        return tracer.torch_function(orig_method, args, kwargs or {})


class Attribute(Proxy):
    """An attribute of a proxy: a method that is then called, or a value. The node of the value is made at need."""

    _node: Node | None = None
    root: Proxy
    attr: str

    def __init__(self, root: Proxy, attr: str) -> None:
        self.__dict__.update(root=root, attr=attr, tracer=root.tracer)

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.record_method(self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter whose shape is known: `shape`, `size()`, `dim()`, `ndim`, `numel()` are answered, not recorded.

    What a tracer with `param_shapes_constant` makes of parameters.
    """

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: nn.Parameter) -> None:
        super().__init__(node, tracer)
        if not isinstance(param, nn.Parameter):
            raise AssertionError(f"expected a Parameter, got {type(param).__name__}")
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> torch.Size:
        """The parameter's shape."""
        return self.param.shape

    def size(self, dim: int | None = None) -> Any:
        """The parameter's shape, or its size along one dimension."""
        return self.param.size() if dim is None else self.param.size(dim)

    def dim(self) -> int:
        """How many dimensions the parameter has."""
        return self.param.dim()

    @property
    def ndim(self) -> int:
        """How many dimensions the parameter has."""
        return self.param.ndim

    def numel(self) -> int:
        """How many elements the parameter has."""
        return self.param.numel()

    def nelement(self) -> int:
        """How many elements the parameter has."""
        return self.param.nelement()


class MetaProxy(Proxy):
    """A proxy whose node has a fake tensor under `meta["val"]`; torch functions of it compute that of their result."""

    def __init__(self, node: Node, tracer: TracerBase | None = None, fake_mode: FakeTensorMode | None = None) -> None:
        super().__init__(node, tracer)
        self.fake_mode = fake_mode

    def __repr__(self) -> str:
        return f"MetaProxy({self.node.name})"

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        leaves = tree_leaves((args, kwargs))
        mode = next(leaf.fake_mode for leaf in leaves if isinstance(leaf, cls))
        fakes = tree_map(lambda leaf: leaf.node.meta["val"] if isinstance(leaf, Proxy) else leaf, (args, kwargs or {}))
        with mode or contextlib.nullcontext():
            value = orig_method(*fakes[0], **fakes[1])
        recorded = super().__torch_function__(orig_method, types, args, kwargs)
        recorded.node.meta["val"] = value
        return MetaProxy(recorded.node, recorded.tracer, mode)


def find_tracer(args: Iterable[Any], kwargs: Mapping[str, Any] | None = None) -> TracerBase | None:
    """Return the tracer of the first proxy in nested arguments, or None."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is Proxy:
            return value.tracer  # type: ignore[no-any-return]
        if kind in ATOMS:
            continue
        if isinstance(value, Proxy):
            return value.tracer
        if isinstance(value, tuple | list):
            found = find_tracer(value)
        elif isinstance(value, dict):
            found = find_tracer(value.values())
        elif kind is slice:
            found = find_tracer((value.start, value.stop, value.step))
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


class _MatchedAsSequence(abc.ABC):  # noqa: B024 - registered with, never derived from
    """Has `match` ask a proxy for its length in `case (a, b):`, which is refused, rather than take the next case.

    The flag is CPython's for types that such a pattern looks into; `isinstance(proxy, Sequence)` stays False.
    """

    __abc_tpflags__ = 1 << 5


_MatchedAsSequence.register(Proxy)
