"""What functions that look at a program are given: `(gm_or_model, args, kwargs)`, in the one form that they work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from graphwright.errors import GraphError
from graphwright.runtime.foreign import as_captured
from graphwright.runtime.graph_module import GraphModule

Call = tuple[tuple[Any, ...], dict[str, Any]]


def call_of(args: Any, kwargs: Mapping[str, Any] | None = None) -> Call:
    """Read what a program is called with: a tuple of arguments, or the only one, and those by name.

    Raises GraphError where arguments stand in the place of `kwargs`.

    >>> call_of((1, 2)), call_of(3, {"scale": 2.0})
    (((1, 2), {}), ((3,), {'scale': 2.0}))
    """
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise GraphError(
            f"kwargs is a {type(kwargs).__name__}",
            fix="pass all positional inputs as one tuple, then a dict of the others: (model, (x, y), {'mask': mask})",
        )
    return args if isinstance(args, tuple) else (args,), dict(kwargs or {})


_captures: list[Callable[..., GraphModule]] = []


def capture_with(trace: Callable[..., GraphModule]) -> None:
    """Have models that are not captured yet captured by this function where a graph is needed."""
    _captures.append(trace)


def captured_for(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The captured module that a model is; one that is captured for a call, where it is none yet."""
    model = as_captured(model)
    if isinstance(model, GraphModule) or not (isinstance(model, nn.Module) or callable(model)):
        return model
    return _captures[-1](model, args, kwargs)
