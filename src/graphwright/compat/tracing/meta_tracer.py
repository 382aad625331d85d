"""Symbolic tracing with the shapes and dtypes of example inputs: questions about these are answered from them.

The answers are baked in, as in torch.fx: for a capture that keeps sizes symbolic and guards the rest, use `trace`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from graphwright.capture import Attribute, Proxy, Tracer, recording, standing_in
from graphwright.ir import Graph, Node, Target
from graphwright.runtime import GraphModule

__all__ = ["MetaAttribute", "MetaDeviceAttribute", "MetaProxy", "MetaTracer", "proxys_to_metas", "symbolic_trace"]

# Constructors that may get the device or a size of a proxy, which torch's own argument parser refuses.
_CONSTRUCTORS = ("arange", "zeros", "ones", "full", "eye", "empty", "rand", "randn")


class MetaProxy(Proxy):
    """A proxy that may know a meta tensor: its shape, dtype and length are then answered, not recorded."""

    def install_tensor_meta(self, tensor_meta: Any) -> None:
        """Say what the value looks like: a meta tensor, or a plain value."""
        self._tensor_meta = tensor_meta

    def _known(self) -> Any:
        return self.__dict__.get("_tensor_meta")

    @property
    def shape(self) -> Any:
        """The shape, or a node that reads it where it is not known."""
        return self._answer("shape")

    @property
    def dtype(self) -> Any:
        """The dtype, or a node that reads it where it is not known."""
        return self._answer("dtype")

    @property
    def ndim(self) -> Any:
        """The number of dimensions, or a node that reads it where it is not known."""
        return self._answer("ndim")

    @property
    def device(self) -> Any:
        """The device of the run: a node that reads it."""
        return MetaDeviceAttribute(self, "device")

    def size(self, dim: int | None = None) -> Any:
        """The shape or one size, or a node that computes it where it is not known."""
        known = self._known()
        if known is None:
            return self.tracer.create_proxy("call_method", "size", (self,) if dim is None else (self, dim), {})
        return known.size() if dim is None else known.size(dim)

    def dim(self) -> Any:
        """The number of dimensions, or a node that computes it where it is not known."""
        known = self._known()
        return self.tracer.create_proxy("call_method", "dim", (self,), {}) if known is None else known.dim()

    def __getattr__(self, name: str) -> Any:
        return MetaAttribute(self, name)

    def __len__(self) -> int:
        return super().__len__() if self._known() is None else len(self._known())

    def __bool__(self) -> bool:
        known = self._known()
        return super().__bool__() if known is None or isinstance(known, torch.Tensor) else bool(known)

    def _answer(self, name: str) -> Any:
        known = self._known()
        return MetaAttribute(self, name) if known is None else getattr(known, name)


class MetaAttribute(Attribute, MetaProxy):
    """An attribute of a proxy that may know a meta tensor."""


class MetaDeviceAttribute(MetaAttribute):
    """The device of a value in the run; during capture the device of its tensors is `meta`."""


class MetaTracer(Tracer):
    """A Tracer that computes, with meta tensors, what each operation's result looks like."""

    def trace(  # type: ignore[override]
        self,
        root: nn.Module | Callable[..., Any],
        meta_args: Mapping[str, torch.Tensor] | None = None,
        concrete_args: Mapping[str, Any] | None = None,
    ) -> Graph:
        """Capture a program; `meta_args` gives a tensor per parameter, of which only shape and dtype matter."""
        if not isinstance(meta_args, Mapping):
            raise AssertionError(f"expected a dict of tensors by parameter, got {type(meta_args).__name__}")
        self.meta_args = {name: value.to("meta") for name, value in meta_args.items()}
        names = vars(torch)
        with standing_in([(names, name, recording(names[name])) for name in _CONSTRUCTORS]):
            return super().trace(root, concrete_args)

    def proxy(self, node: Node) -> MetaProxy:
        """Make the proxy of a node."""
        return MetaProxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: object = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Record an operation, and compute what its result looks like where that of its arguments is known."""
        made = super().create_proxy(kind, target, args, kwargs, name, type_expr, proxy_factory_fn)
        if not isinstance(made, MetaProxy):
            return made
        if kind == "placeholder":
            if target in self.meta_args:
                made.install_tensor_meta(self.meta_args[target])
            return made
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Proxy)]
        if all(isinstance(leaf, MetaDeviceAttribute) or _meta_of(leaf) is not None for leaf in inputs):
            try:
                with torch._C.DisableTorchFunction():
                    made.install_tensor_meta(self._compute(kind, target, *proxys_to_metas((args, dict(kwargs)))))
            except Exception as error:
                warnings.warn(f"Could not compute metadata for {kind} target {target}: {error}", stacklevel=2)
        return made

    def _compute(self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kind == "call_function":
            if target is getattr and args[1:2] == ("device",):
                return torch.device("meta")
            if getattr(target, "__name__", "") in _CONSTRUCTORS:
                kwargs = {**kwargs, "device": "meta"}
            return target(*args, **kwargs)
        if kind == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        if kind == "get_attr":
            return tree_map(_to_meta, _read(self.root, target))
        module = self.root.get_submodule(target)
        state = {name: value.to("meta") for name, value in (*module.named_parameters(), *module.named_buffers())}
        return torch.func.functional_call(module, state, args, kwargs)


def proxys_to_metas(v: Any) -> Any:
    """Replace every proxy in nested arguments by what is known of its value."""
    return tree_map(lambda leaf: _meta_of(leaf) if isinstance(leaf, Proxy) else _to_meta(leaf), v)


def _meta_of(proxy: Proxy) -> Any:
    if isinstance(proxy, MetaDeviceAttribute):
        return torch.device("meta")
    if isinstance(proxy, Attribute):
        root = _meta_of(proxy.root)
        return None if root is None else getattr(root, proxy.attr)
    return proxy.__dict__.get("_tensor_meta")


def _to_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def _read(root: Any, path: str) -> Any:
    for atom in path.split("."):
        root = getattr(root, atom)
    return root


def symbolic_trace(
    root: nn.Module | Callable[..., Any],
    meta_args: Mapping[str, torch.Tensor] | None = None,
    concrete_args: Mapping[str, Any] | None = None,
) -> GraphModule:
    """Capture a module or function with the shapes and dtypes of `meta_args`, which are baked in where asked for.

    >>> gm = symbolic_trace(lambda x: x + 1 if x.shape[0] > 2 else x, {"x": torch.ones(3)})
    >>> [node.name for node in gm.graph.nodes]
    ['x', 'add', 'output']
    """
    tracer = MetaTracer()
    graph = tracer.trace(root, {} if meta_args is None else meta_args, concrete_args)
    name = type(root).__name__ if isinstance(root, nn.Module) else getattr(root, "__name__", type(root).__name__)
    return GraphModule(tracer.root, graph, name)
