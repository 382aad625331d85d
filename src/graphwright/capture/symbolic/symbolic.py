"""`symbolic_trace`: a module or function in, a GraphModule out, without example inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import nn

from graphwright.capture.outside.closures import Reached
from graphwright.capture.symbolic.tracer import Tracer
from graphwright.runtime import GraphModule, is_compiled, make_graph_module


def symbolic_trace(
    root: nn.Module | Callable[..., Any],
    concrete_args: Mapping[str, Any] | tuple[Any, ...] | None = None,
    *,
    control_flow: Literal["stage", "error"] = "stage",
) -> GraphModule:
    """Capture a module or function by running it on proxies.

    Everything whose answer needs no value is captured as torch.fx does. Modules that a function reaches by its closure
    or global variables become submodules, where their parameters are used. `concrete_args` specializes parameters to
    values; `PH` in it, also deep inside lists, tuples and dicts, stays an input. Raises TraceError, with the user's
    line, where the program asks for a value that only a run has; `control_flow` is as for `Tracer`.

    >>> import torch
    >>> print(symbolic_trace(lambda x: torch.relu(x) + 1).code.strip())
    def forward(self, x):
        relu = torch.relu(x);  x = None
        add = relu + 1;  relu = None
        return add
    """
    tracer = Tracer()
    tracer.control_flow = control_flow
    try:
        graph = tracer.trace(root, concrete_args)
    except NameError:
        reached = None if isinstance(root, nn.Module) else Reached(root)
        if reached is None or not _can_be_children(reached.holder):
            raise
        graph = tracer.trace(_Reaching(reached), concrete_args)
    name = type(root).__name__ if isinstance(root, nn.Module) else getattr(root, "__name__", type(root).__name__)
    return make_graph_module(tracer.root, graph, name)


def _can_be_children(holder: nn.Module) -> bool:
    """Tell whether a function reaches modules, and none of TorchScript, whose state is not in Python."""
    children = [*holder.children()]
    return bool(children) and not any(map(is_compiled, children))


class _Reaching(nn.Module):
    """A function as a module, the modules that it reaches being its children."""

    def __init__(self, reached: Reached) -> None:
        super().__init__()
        self.__dict__["_reached"] = reached
        self._modules.update(reached.holder._modules)

    @property
    def forward(self) -> Callable[..., Any]:  # type: ignore[override]
        """The function, which calls the children of this module."""
        reached: Reached = self.__dict__["_reached"]
        return reached.function_for(self)
