"""torch.fx's lazily compiled GraphModule, for tools that ask for it by name.

Here every GraphModule generates its code when it is first needed. This class adds only what those tools observe: that
`recompile` gives nothing, and whether code is waiting to be generated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from graphwright.runtime.graph_module import GraphModule, _invalidate, _state

_used: ContextVar[bool] = ContextVar("_used", default=False)
_skipped: ContextVar[bool] = ContextVar("_skipped", default=False)


class LazyGraphModule(GraphModule):
    """A GraphModule that says whether its code is waiting to be generated.

    >>> from graphwright import symbolic_trace
    >>> lazy = LazyGraphModule.from_graphmodule(symbolic_trace(lambda x: x + 1))
    >>> lazy._needs_recompile(), lazy(1), lazy._needs_recompile()
    (True, 2, False)
    """

    def __init__(self, root: Any, graph: Any, class_name: str = "GraphModule") -> None:
        super().__init__(root, graph, class_name)
        _state(self).is_lazy = True

    @classmethod
    def from_graphmodule(cls, gm: GraphModule) -> LazyGraphModule:
        """Return the module itself where it is of this class, else one with the same graph."""
        return gm if isinstance(gm, LazyGraphModule) else cls(gm, gm.graph)

    @staticmethod
    def force_recompile(gm: GraphModule) -> None:
        """Generate code that is waiting, in a module of this class."""
        if isinstance(gm, LazyGraphModule):
            gm.real_recompile()

    def real_recompile(self) -> None:
        """Generate the code now, if it is waiting."""
        if self._needs_recompile():
            self._build()

    def recompile(self) -> None:  # type: ignore[override]
        """Have the code generated anew at the next use."""
        _invalidate(self)

    def _needs_recompile(self) -> bool:
        return _state(self).code is None


def graph_module_class() -> type[GraphModule]:
    """The class that captures make: LazyGraphModule inside `use_lazy_graph_modules(True)`, else GraphModule."""
    return LazyGraphModule if _used.get() else GraphModule


def make_graph_module(*args: Any, graph_module_cls: type[GraphModule] | None = None, **kwargs: Any) -> GraphModule:
    """Make a module of the given class, or of that which `graph_module_class` names."""
    return (graph_module_cls or graph_module_class())(*args, **kwargs)


@contextlib.contextmanager
def use_lazy_graph_modules(should_use: bool) -> Iterator[None]:
    """Choose the class that captures make while the `with` block lasts, in this thread."""
    token = _used.set(should_use and not _skipped.get())
    try:
        yield
    finally:
        _used.reset(token)


@contextlib.contextmanager
def skip_lazy_graph_modules() -> Iterator[None]:
    """Make `use_lazy_graph_modules` do nothing while the `with` block lasts, in this thread."""
    token = _skipped.set(True)
    try:
        yield
    finally:
        _skipped.reset(token)
