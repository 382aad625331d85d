"""Parameters and buffers that a program makes while it runs: `nn.Parameter(x)` of a value of the program is one node.

torch makes them of tensors of other classes than its own by two operations and a mark on the result. The mark tells.
"""

from __future__ import annotations

from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from graphwright.errors import CaptureError
from graphwright.ir import Node

MARKS = frozenset({"_is_param", "_is_buffer", "persistent"})  # that torch sets on what stands for a tensor
_MAKERS: dict[Any, tuple[str, str]] = {  # by code: the mark that comes last, and the option
    nn.Parameter.__new__.__code__: ("_is_param", "requires_grad"),
    nn.Buffer.__new__.__code__: ("_is_buffer", "persistent"),
}
_CONSTRUCTORS = (object.__init__, torch.Tensor.__init__)


class Made(NamedTuple):
    """The class of a parameter or buffer, what it is made of, and the options that differ from their defaults."""

    kind: type
    data: Any
    options: dict[str, Any]


def made_in(frame: FrameType, mark: str, at: str | None) -> Made | None:
    """What is being made where torch sets a mark; None where nothing is, or it is not made yet.

    Raises CaptureError, with the place `at`, for a class whose constructor would have to run on the parameter.
    """
    last, option = _MAKERS.get(frame.f_code, ("", ""))
    if mark != last:
        return None
    names = frame.f_locals
    kind, chosen = names["cls"], names[option]
    if kind.__init__ not in _CONSTRUCTORS:
        raise CaptureError(
            f"the program makes a parameter of class {kind.__qualname__}, which has a constructor of its own",
            at=at,
            fix="make it in __init__, or use nn.Parameter",
        )
    return Made(kind, names["data"], {} if chosen is True else {option: chosen})


def erase_steps(last: Node) -> str | None:
    """Erase the two operations by which torch has made a parameter or buffer, where nothing else uses them.

    Returns the name that the first of them had, which is the one that the program's statement gives.
    """
    name, first = None, last._args[0] if last._args else None
    for node in (last, first):
        if not isinstance(node, Node) or node.target not in ("requires_grad_", "detach") or node.users:
            return None
        node.graph.erase_node(node)
        name = node.name
    return name
