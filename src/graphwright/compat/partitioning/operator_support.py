"""Which nodes an accelerator, or any other target of a split, can run: small predicates that combine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from graphwright.compat.partitioning.tools_common import CALLABLE_NODE_OPS, get_node_target
from graphwright.ir import Node

__all__ = ["OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support"]

TargetTypeName = str
SupportedArgumentDTypes = tuple[Sequence[Sequence[torch.dtype]], dict[str, Sequence[torch.dtype]]] | None
SupportDict = Mapping[TargetTypeName, SupportedArgumentDTypes]
IsNodeSupported = Callable[[Mapping[str, nn.Module], Node], bool]


class OperatorSupportBase(ABC):
    """Says of a node whether it is supported; `create_op_support` makes one from a function.

    >>> everything = create_op_support(lambda submodules, node: True)
    >>> everything.is_node_supported({}, None)
    True
    """

    @abstractmethod
    def is_node_supported(self, submodules: Mapping[str, nn.Module], node: Node) -> bool:
        """Tell whether a node is supported; `submodules` are the module's, by path."""
        raise NotImplementedError


class OperatorSupport(OperatorSupportBase):
    """Supports the targets of a table, each with the dtypes that its arguments may have.

    The table goes from `get_node_target`'s names to None, for any dtypes, or to the dtypes of the positional
    arguments, in order, and of the keyword ones. Nodes that call nothing are always supported. Dtypes are those in
    `node.meta`, as `ShapeProp` writes it.

    >>> import operator
    >>> from graphwright.ir import Graph
    >>> node = Graph().call_function(operator.add, (1, 2))
    >>> OperatorSupport({"_operator.add": None}).is_node_supported({}, node)
    True
    """

    _support_dict: SupportDict

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, nn.Module], node: Node) -> bool:
        """Look a node up in the table."""
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        dtypes = self._support_dict[target]
        if dtypes is None:
            return True
        positional, named = dtypes
        fits = all(
            _argument_dtype(node.args[i]) in allowed
            for i, allowed in enumerate(positional)
            if i < len(node.args) and isinstance(node.args[i], Node)
        )
        return fits and all(
            _argument_dtype(node.kwargs[name]) in allowed
            for name, allowed in named.items()
            if isinstance(node.kwargs.get(name), Node)
        )


class _Function(OperatorSupportBase):
    """The support that a function says."""

    def __init__(self, function: IsNodeSupported) -> None:
        self._function = function

    def is_node_supported(self, submodules: Mapping[str, nn.Module], node: Node) -> bool:
        return self._function(submodules, node)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """Make support of a function of the submodules and the node."""
    return _Function(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Support what all of these support, asked in order.

    >>> chain().is_node_supported({}, None)
    True
    """
    return _Function(lambda submodules, node: all(each.is_node_supported(submodules, node) for each in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Support what any of these supports, asked in order.

    >>> any_chain().is_node_supported({}, None)
    False
    """
    return _Function(lambda submodules, node: any(each.is_node_supported(submodules, node) for each in op_support))


class OpSupports:
    """Supports that are often needed.

    >>> from graphwright.ir import Graph
    >>> node = Graph().call_method("relu", ())
    >>> OpSupports.decline_if_node_in_names({"relu_1"}).is_node_supported({}, node)
    True
    """

    @classmethod
    def decline_if_input_dtype(cls, dtype: torch.dtype) -> OperatorSupportBase:
        """Support nodes none of whose inputs has this dtype."""

        def declined(submodules: Mapping[str, nn.Module], node: Node) -> bool:
            return all(_argument_dtype(arg) != dtype for arg in node.all_input_nodes)

        return create_op_support(declined)

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Support nodes that have other names than these."""
        return create_op_support(lambda submodules, node: node.name not in disallow_set)


def _argument_dtype(arg: Node) -> Any:
    """The dtype of a tensor, or what else is known of the value: the type."""
    described: Any = arg.meta.get("tensor_meta")
    return described.dtype if hasattr(described, "dtype") else arg.meta["type"]


_get_arg_dtype = _argument_dtype  # torch.fx's name for it
