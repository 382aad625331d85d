"""What tools that copy or save captured modules in their own way make them from: attributes alone, code alone."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from torch import nn

from graphwright.codegen import compile_source


class BareModule(nn.Module):
    """A module that is its attributes and nothing else: the root that a subclass's own `__deepcopy__` hands on.

    >>> linear = nn.Linear(2, 3)
    >>> bare = BareModule(linear.__dict__)
    >>> bare.weight is linear.weight
    True
    """

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def forward_from_source(src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None) -> FunctionType:
    """Compile source that defines `forward`, with these names; debuggers and tracebacks show the source.

    `co_fields` may say by `co_filename`, `co_firstlineno` and `co_name` where the code comes from, which the name of
    its file then tells. Raises KeyError without a `forward`.

    >>> forward_from_source("def forward(self, x):\\n    return x + one\\n", {"one": 1})(None, 2)
    3
    """
    origin = "forward"
    if co_fields:
        origin += " from {co_filename}:{co_firstlineno} in {co_name}".format(**co_fields)
    return compile_source(src, globals, origin)
