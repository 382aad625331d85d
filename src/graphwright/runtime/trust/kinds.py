"""What class the value of a node is of, as far as that is known before the program runs."""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

from graphwright.ir import Node
from graphwright.runtime.trust.members import field_kind
from graphwright.runtime.trust.operators import is_tensor_operator

_CONVERSIONS = (
    bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, slice, range,
    torch.Size, torch.device, torch.finfo, torch.iinfo, torch.Generator,
)  # fmt: skip
_ARITHMETIC = frozenset(
    [
        "add",
        "sub",
        "mul",
        "truediv",
        "matmul",
        "neg",
        "pow",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and_",
        "or_",
        "xor",
        "invert",
    ]
)
_RESULT = torch.return_types.max  # stands for all classes of results with values and indices


class Kinds:
    """The classes of the values of the nodes of a program: `torch.Tensor`, `torch.Size`, ...; None where unknown."""

    def __init__(self) -> None:
        self._known: dict[Node, type | None] = {}

    def note(self, node: Node, kind: type | None = None) -> None:
        """Keep the class of a node's value, worked out from those of its arguments unless it is given."""
        self._known[node] = self._of_node(node) if kind is None else kind

    def of(self, value: Any) -> type | None:
        """The class of an argument."""
        return self._known.get(value) if isinstance(value, Node) else type(value)

    def _of_node(self, node: Node) -> type | None:
        if node.op == "call_method" and self.of(node.args[0]) is torch.Tensor:
            if node.target == "size":
                return torch.Size if len(node.args) == 1 and not node.kwargs else None
            return _result_of(getattr(torch.ops.aten, str(node.target), None))
        if node.op != "call_function":
            return None
        target = node.target
        if target is getattr and len(node.args) == 2:
            return field_kind(self.of(node.args[0]), node.args[1])
        if target in _CONVERSIONS:
            return target  # type: ignore[no-any-return]
        if target is operator.getitem:
            return torch.Tensor if self.of(node.args[0]) is torch.Tensor else None
        if getattr(target, "__name__", "") in _ARITHMETIC and getattr(operator, target.__name__) is target:
            kinds = {self.of(arg) for arg in node.args}
            return torch.Tensor if torch.Tensor in kinds and kinds <= {torch.Tensor, int, float, bool} else None
        if is_tensor_operator(target):
            name = getattr(target, "__name__", "").partition(".")[0]
            return _result_of(getattr(torch.ops.aten, name, None))
        return None


@functools.cache
def _result_of(packet: Any) -> type | None:
    """The class of what an operator returns: that of all its overloads."""
    found: set[type | None] = set()
    for overload in packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ():
        returns = getattr(packet, overload)._schema.returns
        if len(returns) == 1 and str(returns[0].type) == "Tensor":
            found.add(torch.Tensor)
        else:
            found.add(_RESULT if [each.name for each in returns] == ["values", "indices"] else None)
    return found.pop() if len(found) == 1 else None
