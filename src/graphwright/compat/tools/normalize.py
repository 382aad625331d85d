"""Arguments by name, operators of Python for functions of torch, types where they are known."""

from __future__ import annotations

import inspect
import operator
import types
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn
from torch._jit_internal import boolean_dispatched

from graphwright.capture import Proxy, Transformer
from graphwright.errors import GraphError
from graphwright.ir import Argument, Node, Target, map_aggregate
from graphwright.ops import create_type_hint, normalize_function, normalize_module
from graphwright.runtime import GraphModule

__all__ = ["AnnotateTypesWithSchema", "NormalizeArgs", "NormalizeOperators"]


class NormalizeArgs(Transformer):
    """Writes every call with all its arguments, by the names of its parameters where that is asked for.

    Overloads are told apart by the types in `node.meta["type"]`; a call that stays ambiguous is left as it is.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: torch.flatten(x, 1))
    >>> print(NormalizeArgs(gm).transform().code.strip())
    def forward(self, x):
        flatten = torch.flatten(input = x, start_dim = 1, end_dim = -1);  x = None
        return flatten
    """

    def __init__(self, module: GraphModule, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs
        self.node_map: dict[Proxy, Node] = {}

    def run_node(self, n: Node) -> Any:
        """Record one node, its types known to `call_function`."""
        if n.op == "call_function":
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            arg_types = tuple(_types_of(arg) for arg in n.args)
            kwarg_types = {name: _types_of(arg) for name, arg in n.kwargs.items()}
            result = self.call_function(n.target, args, kwargs, arg_types, kwarg_types)
            if isinstance(result, Proxy):
                result.node.meta = dict(n.meta)
                result.node.type = n.type
                result.node.origin = n.origin
        else:
            result = super().run_node(n)
        if isinstance(result, Proxy):
            self.node_map[result] = n
        return result

    def call_function(
        self,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Any],
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
    ) -> Any:
        """Record a call with its arguments normalized, where one overload fits."""
        if not callable(target):
            raise GraphError(f"the target of a call_function must be callable, not {target!r}")
        if str(getattr(target, "__module__", "")).startswith("graphwright."):  # bodies and blocks are found by place
            return super().call_function(target, args, kwargs)
        try:
            pair = normalize_function(target, args, kwargs, arg_types, kwarg_types, self.normalize_to_only_use_kwargs)
        except TypeError:  # not what the function takes: for the run to say
            pair = None
        return super().call_function(target, *(pair or (args, kwargs)))

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of one of torch.nn's own modules with its arguments normalized."""
        pair = normalize_module(self.module, str(target), args, kwargs, self.normalize_to_only_use_kwargs)
        return super().call_module(target, *(pair or (args, kwargs)))


def _types_of(argument: Any) -> Any:
    """The type of an argument: of a node what its meta says, or None; of containers a hint."""
    kinds = map_aggregate(argument, lambda leaf: leaf.meta.get("type") if isinstance(leaf, Node) else type(leaf))
    if isinstance(kinds, list | tuple):
        if not all(issubclass(type(kind), type) for kind in kinds):  # of a node whose type nobody wrote down
            return None
        return create_type_hint(list(kinds) if isinstance(kinds, list) else tuple(kinds))
    return kinds


class AnnotateTypesWithSchema(Transformer):
    """Writes on each node the type that its function, module or attribute is annotated with."""

    def __init__(
        self,
        module: GraphModule,
        annotate_functionals: bool = True,
        annotate_modules: bool = True,
        annotate_get_attrs: bool = True,
    ) -> None:
        super().__init__(module)
        self.annotate_functionals = annotate_functionals
        self.annotate_modules = annotate_modules
        self.annotate_get_attrs = annotate_get_attrs

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call; functions of torch.nn.functional are known by their annotations."""
        result = super().call_function(target, args, kwargs)
        if self.annotate_functionals and getattr(target, "__module__", None) == nn.functional.__name__:
            dispatched = boolean_dispatched.get(target) if isinstance(target, types.FunctionType) else None
            if dispatched is None:
                _annotate(result, _returned_type(target))
            else:
                branches = [_returned_type(dispatched[branch]) for branch in ("if_true", "if_false")]
                _annotate(result, branches[0] if branches[0] == branches[1] else None)
        return result

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call; torch.nn's own modules are known by the annotation of their `forward`."""
        result = super().call_module(target, args, kwargs)
        submodule = self.fetch_attr(str(target))
        if self.annotate_modules and getattr(nn, type(submodule).__name__, None) is type(submodule):
            _annotate(result, _returned_type(submodule.forward))
        return result

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record the read of an attribute; tensors are tensors."""
        result = super().get_attr(target, args, kwargs)
        if self.annotate_get_attrs and isinstance(self.fetch_attr(str(target)), Tensor):
            _annotate(result, Tensor)
        return result


def _annotate(result: Any, annotation: Any) -> None:
    if isinstance(result, Proxy) and result.node.type is None:
        result.node.type = annotation


def _returned_type(function: Any) -> Any:
    try:
        return get_type_hints(inspect.unwrap(function)).get("return")
    except (NameError, TypeError):  # annotations that cannot be read
        return None


class NormalizeOperators(AnnotateTypesWithSchema):
    """Writes `torch.add(x, y)` as `x + y`, and so for the other functions that are operators of Python.

    A call with keywords (`alpha=2`, `rounding_mode="floor"`, `out=z`) is no such operator and stays.

    >>> from graphwright import symbolic_trace
    >>> print(NormalizeOperators(symbolic_trace(lambda x: torch.mul(x, 2))).transform().code.strip())
    def forward(self, x):
        mul = x * 2;  x = None
        return mul
    """

    binary_magic_method_remap = {  # noqa: RUF012 - as torch.fx has it
        torch.add: operator.add,
        torch.mul: operator.mul,
        torch.sub: operator.sub,
        torch.div: operator.truediv,
        torch.floor_divide: operator.floordiv,
        torch.remainder: operator.mod,
        torch.eq: operator.eq,
        torch.ne: operator.ne,
        torch.lt: operator.lt,
        torch.le: operator.le,
        torch.gt: operator.gt,
        torch.ge: operator.ge,
    }

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call, as an operator where it is one."""
        if not kwargs and len(args) == 2 and target in self.binary_magic_method_remap:
            return super().call_function(self.binary_magic_method_remap[target], args, {})
        return super().call_function(target, args, kwargs)
