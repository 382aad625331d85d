"""Passes as classes, and what a pass gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from graphwright.runtime import GraphModule


class PassResult(NamedTuple):
    """The module after a pass, and whether the pass changed anything.

    >>> PassResult(None, modified=True).modified
    True
    """

    graph_module: Any
    modified: bool


class PassBase(ABC):
    """A pass as a class: override `call`; `requires` and `ensures` check the module before and after it.

    >>> class Nothing(PassBase):
    ...     def call(self, graph_module):
    ...         return PassResult(graph_module, False)
    >>> Nothing()(None)
    PassResult(graph_module=None, modified=False)
    """

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Run the pass; return the module and whether it changed."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027 - optional
        """Check what the pass needs of the module, before it runs."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027 - optional
        """Check what the pass promises of the module, after it has run."""
