"""What was found: a pattern at a place of a graph, with what its variables stand for there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from graphwright.errors import PatternError
from graphwright.ir import Node
from graphwright.rewrite.steps import Attempt


class Match:
    """A pattern that was found. Its variables are attributes: `m.x` is a node or a literal, `m.linear` a module.

    What is repeated gives lists. Names that attributes cannot have are read as items: `m["match"]`.

    roots: the nodes whose values the pattern gives.
    nodes: all nodes that the pattern covers, in the order of the graph, those of its inputs not among them; `inside` is
        the set of them.
    values: what the variables stand for, by name.
    paths: the dotted paths of the modules, by the name of their variable.
    module: the captured module that the nodes belong to.
    """

    def __init__(self, attempt: Attempt, roots: Sequence[Node], module: nn.Module) -> None:
        self.roots = tuple(roots)
        graph = self.roots[0].graph
        self.values: Mapping[str, Any] = attempt.values
        self.paths: Mapping[str, str] = attempt.paths
        self.steps: Mapping[Any, Node] = attempt.nodes
        self.inside: set[Node] = set()
        for node in attempt.nodes.values():
            if type(node) is not Node:  # a literal that a choice or chain stands for
                self.steps = {step: node for step, node in attempt.nodes.items() if type(node) is Node}
            elif node.graph is graph:
                self.inside.add(node)
        for value in self.values.values():
            if type(value) is Node:
                self.inside.discard(value)
        self.inside.update(self.roots)
        self.nodes = tuple(sorted(self.inside)) if len(self.inside) > 1 else self.roots
        self.module = module
        self.tracer: Any = None  # while a replacement is written

    def keep(self) -> None:
        """Have what was found stay as it is although the attempt goes on."""
        self.values, self.paths, self.steps = dict(self.values), dict(self.paths), dict(self.steps)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            known = ", ".join(self.__dict__.get("values", ()))
            raise AttributeError(f"the pattern has no variable {name!r}; it has {known or 'none'}") from None

    def __getitem__(self, name: str) -> Any:
        if name not in self.values:
            raise PatternError(
                f"the pattern has no variable {name!r}", fix=f"it has {', '.join(self.values) or 'none'}"
            )
        return self.values[name]

    def install(self, module: nn.Module, name: str) -> Any:
        """Put a new module into the captured one, to be called in the replacement; `name` gets a number if it is taken.

        Raises PatternError outside of a replacement.
        """
        if self.tracer is None:
            raise PatternError(
                "a module is installed while a replacement is written", fix="take `match` as a parameter"
            )
        return self.tracer.install(module, name)

    def __repr__(self) -> str:
        values = ", ".join(
            f"{name}={value!r}" for name, value in self.values.items() if not isinstance(value, nn.Module)
        )
        return f"Match({', '.join(node.name for node in self.roots)}: {values})"
