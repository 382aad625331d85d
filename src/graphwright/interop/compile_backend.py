"""torch.compile with passes of this library: its graphs are read, edited, and handed on to another backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx

from graphwright.errors import PassError
from graphwright.interop.fx import from_fx, to_fx
from graphwright.passes import MergeSubexpressions, Pipeline, RemoveDeadValues

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


def compile_backend(passes: Sequence[Any] = (), then: str | Backend = "inductor") -> Backend:
    """Make a backend of torch.compile that runs passes over each of its graphs.

    passes: what `Pipeline` takes; each edits the captured module that it is given, in place.
    then: the backend that gets the edited graph, by torch's name or as a function; "eager" runs its generated code.

    Raises PassError for what is no pass; what a backend raises names the pass.

    >>> import torch
    >>> from graphwright.passes import MergeSubexpressions
    >>> backend = compile_backend([MergeSubexpressions()], then="eager")
    >>> torch.compile(lambda x: (x + 1) * (x + 1), backend=backend)(torch.ones(2))
    tensor([4., 4.])
    """
    pipeline = Pipeline(*passes)
    if not (callable(then) or isinstance(then, str)):
        raise PassError(f"{then!r} is no backend", fix='give the name of one, as in then="inductor", or a function')

    def backend(module: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
        gm = from_fx(module)
        pipeline.run(gm)
        if then == "eager":
            return gm.forward  # type: ignore[no-any-return]
        compiled: Callable[..., Any] = _backend(then)(to_fx(gm), example_inputs, **options)
        return compiled

    return backend


def graphwright_backend(module: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """What `torch.compile(model, backend="graphwright")` runs: the passes that never cost anything, then inductor."""
    return _DEFAULT(module, example_inputs, **options)


_DEFAULT = compile_backend([MergeSubexpressions(), RemoveDeadValues()])


def _backend(then: Any) -> Any:
    if callable(then):
        return then
    from torch._dynamo.backends.registry import lookup_backend  # slow to import, and not needed before

    return lookup_backend(then)
