"""The record of a rewriting: every application, with the place of its rule, to be read and to be done again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphwright.rewrite.steps import show

if TYPE_CHECKING:
    from graphwright.rewrite.editing import Edit
    from graphwright.rewrite.match import Match
    from graphwright.rewrite.rule import Rule


@dataclass(frozen=True, slots=True)
class Application:
    """One application of a rule: where, on which nodes, for which values, and what came of it, all by name.

    `graph` is the number of the graph among those of the module, bodies included, 0 for that of its `forward`.
    """

    rule: Rule
    graph: int
    root: str
    nodes: tuple[str, ...]
    values: dict[str, str]
    made: tuple[str, ...]
    erased: tuple[str, ...]

    @staticmethod
    def of(rule: Rule, match: Match, edit: Edit, graph: int) -> Application:
        """Note an application."""
        values = {name: show(value) for name, value in match.values.items()}
        nodes = tuple(node.name for node in match.nodes)
        made = tuple(node.name for node in edit.made)
        erased = tuple(node.name for node in edit.erased)
        return Application(rule, graph, match.roots[0].name, nodes, values, made, erased)

    def __str__(self) -> str:
        made = f"made {', '.join(self.made)}" if self.made else "made nothing"
        return f"{self.rule.name} ({self.rule.where}) at {', '.join(self.nodes)}: {made}"


@dataclass(frozen=True, slots=True)
class RewriteLog:
    """The applications of a rewriting in their order.

    >>> from graphwright import rewrite, rule, symbolic_trace
    >>> from graphwright.rewrite import replay
    >>> gm, copy = symbolic_trace(lambda x: x + 0 + 0), symbolic_trace(lambda x: x + 0 + 0)
    >>> log = rewrite(gm, [rule(lambda x: x + 0, lambda x: x, name="drop_zero")]).log
    >>> [(each.rule.name, each.root) for each in log]
    [('drop_zero', 'add'), ('drop_zero', 'add_1')]
    >>> replay(copy, log)
    >>> copy.code == gm.code
    True
    """

    applications: list[Application] = field(default_factory=list)

    def __iter__(self) -> Iterator[Application]:
        return iter(self.applications)

    def __len__(self) -> int:
        return len(self.applications)

    def __str__(self) -> str:
        return "\n".join(map(str, self.applications))
