"""torch.fx's mark for what keeps its name, arguments and meaning from one version to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from graphwright.capture import Proxy, Tracer, TracerBase, Transformer, symbolic_trace, wrap
from graphwright.errors import TraceError
from graphwright.ir import Graph, Node, immutable_dict, immutable_list, map_arg
from graphwright.runtime import GraphModule, Interpreter

__all__ = ["MARKED", "STABLE", "compatibility"]

_T = TypeVar("_T")

STABLE: dict[Any, None] = dict.fromkeys(
    (
        *(Graph, GraphModule, Interpreter, Node, Proxy, TraceError, Tracer, TracerBase, Transformer),
        *(immutable_dict, immutable_list, map_arg, symbolic_trace, wrap),
    )
)
"""What users may rely on, in the order of marking."""

MARKED: dict[Any, None] = dict(STABLE)
"""Everything that was marked, as stable or as not."""


def compatibility(is_backward_compatible: bool) -> Callable[[_T], _T]:
    """Mark a function or class as stable, or as one that may change; it stays as it is.

    >>> @compatibility(is_backward_compatible=False)
    ... def experiment():
    ...     pass
    >>> experiment in MARKED, experiment in STABLE
    (True, False)
    """

    def mark(thing: _T) -> _T:
        MARKED.setdefault(thing)
        if is_backward_compatible:
            STABLE.setdefault(thing)
        return thing

    return mark
