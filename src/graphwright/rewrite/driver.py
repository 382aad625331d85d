"""Applying rules to a captured module until none of them finds anything more."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn

from graphwright.errors import GraphwrightError, PatternError
from graphwright.hierarchy import apart
from graphwright.ir import Graph, Node, bodies_of
from graphwright.rewrite.calls import Calls
from graphwright.rewrite.editing import Edit, Refused, apply
from graphwright.rewrite.effects import GraphEffects
from graphwright.rewrite.log import Application, RewriteLog
from graphwright.rewrite.match import Match
from graphwright.rewrite.rule import Rule
from graphwright.runtime import Snapshot, graphs_of, transaction

_GENERATIONS = 1_000  # so often may what was written in one place be rewritten again


@dataclass(slots=True)
class RuleCount:
    """What became of one rule: how often it was tried and applied, how long that took, and which places it left."""

    tried: int = 0
    applied: int = 0
    seconds: float = 0.0
    left: list[Refusal] = field(default_factory=list)

    def add(self, other: RuleCount) -> None:
        """Count what became of the rule in another module, too."""
        self.tried, self.applied = self.tried + other.tried, self.applied + other.applied
        self.seconds += other.seconds
        self.left += other.left

    @property
    def refused(self) -> list[tuple[str, str]]:
        """The places that it left: the name of the node, and the reason."""
        return [(each.node, each.reason) for each in self.left]


class Refusal(NamedTuple):
    """A place that a rule fits and that was left as it is: the name of its root, why, and what would help."""

    rule: Rule
    node: str
    reason: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.rule.name} left {self.node}: {self.reason}" + (f"\n  fix: {self.fix}" if self.fix else "")


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What a rewriting did: `count` applications, those of each rule in `rules`, and each one by itself in `log`.

    `undo()` makes the module what it was before.
    """

    rules: dict[Rule, RuleCount]
    log: RewriteLog
    before: Snapshot = field(repr=False)

    @property
    def count(self) -> int:
        """How often a rule was applied."""
        return sum(each.applied for each in self.rules.values())

    @property
    def refused(self) -> list[Refusal]:
        """The places that rules fit and that were left as they are, each with the reason and with what would help.

        A replacement there would compute something else, or a condition has answered with text.
        """
        return [refusal for each in self.rules.values() for refusal in each.left]

    def undo(self) -> None:
        """Make the module what it was before. What was edited since is lost."""
        self.before.restore()

    def __str__(self) -> str:
        rows = [("rule", "applied", "tried", "ms")]
        rows += [
            (rule.name, str(each.applied), str(each.tried), f"{each.seconds * 1e3:.1f}")
            for rule, each in self.rules.items()
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def rewrite(gm: nn.Module, rules: Rule | Iterable[Rule], *, fixpoint: bool = True) -> RewriteResult:
    """Apply rules to a captured module, in place, and to the bodies of its branches and loops.

    Of a nested capture they are applied to all modules in it, and counted for each; the log is that of the outermost.
    The first rule that fits a place is applied there, and what comes of it is looked at again, until nothing fits or,
    without `fixpoint`, each place was looked at once. A match that cannot be replaced without changing what the
    program computes is left alone; the result says why. Of the operations of a match, those that others read stay.

    If a rule raises an exception, or rules undo each other for ever, the module is left as it was. Raises PatternError
    for the latter. The cost grows with the nodes and the matches, not with the number of rules.

    >>> import torch
    >>> from graphwright import rule, symbolic_trace
    >>> gm = symbolic_trace(lambda x: torch.exp(torch.log(x.neg().neg())))
    >>> result = rewrite(gm, [rule(lambda x: -(-x), lambda x: x), rule(lambda x: torch.exp(torch.log(x)), lambda x: x)])
    >>> result.count
    2
    >>> print(gm.code.strip())
    def forward(self, x):
        return x
    """
    chosen = tuple(rules) if isinstance(rules, Iterable) else (rules,)
    for each in chosen:
        if not isinstance(each, Rule):
            raise PatternError(f"{each!r} is no rule", fix="make one: graphwright.rule(pattern, replacement)")
    with transaction(gm) as before, apart(gm) as modules:
        drivers = [_Driver(module, chosen, fixpoint) for module in modules]
        for driver in drivers:
            driver.run()
    first, *others = drivers
    for other in others:
        for each, count in other.counts.items():
            first.counts[each].add(count)
    return RewriteResult(first.counts, first.log, before)


def replay(gm: nn.Module, log: Iterable[Application]) -> None:
    """Do the applications of a log again, on a module as the first one was before.

    Raises PatternError, with the module as it was, where one of them is not possible.
    """
    applications = list(log)
    driver = _Driver(gm, list(dict.fromkeys(each.rule for each in applications)), fixpoint=False)
    with transaction(gm):
        for each in applications:
            driver.repeat(each)


@dataclass(frozen=True, slots=True, eq=False)
class _Origin:
    """Which application a node comes from, and those behind it: enough of them to see rules that undo each other."""

    signature: Hashable
    rule: Rule
    generation: int
    earlier: _Origin | None


class _Driver:
    def __init__(self, gm: nn.Module, rules: Sequence[Rule], fixpoint: bool) -> None:
        self.gm = gm
        self.counts = {rule: RuleCount() for rule in rules}
        self.log = RewriteLog()
        self._fixpoint = fixpoint
        self._calls = Calls(gm)
        self._effects: dict[Graph, GraphEffects] = {}
        graphs = [inner for graph in graphs_of(gm) for inner in graph.all_graphs()]
        self._numbers = {graph: i for i, graph in enumerate(graphs)}
        self._by_key: dict[Hashable, list[int]] = {}
        self._anywhere: list[int] = []
        self._rules = rules
        self._candidates: dict[tuple[Hashable, ...], list[Rule]] = {}
        self._depth = max((rule.pattern.depth for rule in rules), default=0)
        self._origins: dict[Node, _Origin] = {}
        self._left: dict[tuple[Rule, Node], dict[tuple[str, str], None]] = {}  # why, and what would help
        self._queue: deque[Node] = deque()
        self._waiting: set[Node] = set()
        for i, rule in enumerate(rules):
            keys = rule.pattern.keys()
            if keys is None:
                self._anywhere.append(i)
            for key in keys or ():
                self._by_key.setdefault(key, []).append(i)

    def run(self) -> None:
        """Look at every node, and at what comes of it."""
        for graph in self._numbers:
            for node in graph.nodes:
                if self._rules_for(node):
                    self._wait(node)
        while self._queue:
            node = self._queue.popleft()
            self._waiting.discard(node)
            if not node._erased:
                self._visit(node)
        for (rule, node), reasons in self._left.items():
            if not node._erased:
                self.counts[rule].left += [Refusal(rule, node.name, *reason) for reason in reasons]

    def repeat(self, application: Application) -> None:
        """Do again what was done before."""
        graphs = list(self._numbers)
        graph = graphs[application.graph] if application.graph < len(graphs) else None
        nodes = () if graph is None else graph.nodes
        root = next((node for node in nodes if node.name == application.root), None)
        match = None if root is None else application.rule.match(root, self._calls, self.gm)
        edit = None if match is None else self._apply(application.rule, match)
        if edit is None:
            raise PatternError(
                f"{application.rule.name} was applied at {application.root}, and cannot be here",
                at=application.rule.where,
                fix="replay a log on a copy of what the module was before",
            )

    def _rules_for(self, node: Node) -> list[Rule]:
        keys = self._calls.keys(node)
        rules = self._candidates.get(keys)
        if rules is None:
            found = {i for key in keys for i in self._by_key.get(key, ())}
            rules = self._candidates[keys] = [self._rules[i] for i in sorted(found.union(self._anywhere))]
        return rules

    def _wait(self, node: Node) -> None:
        if node not in self._waiting:
            self._waiting.add(node)
            self._queue.append(node)

    def _visit(self, node: Node) -> None:
        for rule in self._rules_for(node):
            count = self.counts[rule]
            count.tried += 1
            start = time.perf_counter()
            match = self._match(rule, node)
            edit = self._apply(rule, match) if match is not None else None
            count.seconds += time.perf_counter() - start
            if edit is not None:
                count.applied += 1
                if self._fixpoint:
                    self._look_again(edit)
                return

    def _match(self, rule: Rule, node: Node) -> Match | None:
        left: list[tuple[str, str]] = []
        self._left.pop((rule, node), None)
        try:
            match = rule.match(node, self._calls, self.gm, left=left)
        except GraphwrightError:
            raise
        except Exception as error:
            raise PatternError(
                f"the condition of {rule.name} failed at {node.name}: {type(error).__name__}: {error}", at=rule.where
            ) from error
        if match is None and left:
            self._left.setdefault((rule, node), {}).update(dict.fromkeys(left))
        if match is None or rule.recursive:
            return match
        origins = {self._origins.get(each) for each in match.nodes}
        of_one = len(origins) == 1 and (origin := origins.pop()) is not None and origin.rule is rule
        return None if of_one else match

    def _apply(self, rule: Rule, match: Match) -> Edit | None:
        graph = match.roots[0].graph
        effects = self._effects.get(graph)
        if effects is None:
            effects = self._effects[graph] = GraphEffects(graph, self._calls)
        origin = self._origin(rule, match)
        try:
            edit = apply(rule.replacement, rule.pattern, match, effects, rule.name, same_value=rule.same_value)
        except Refused as refusal:
            self._left.setdefault((rule, match.roots[0]), {})[str(refusal), refusal.fix] = None
            return None
        except GraphwrightError:
            raise
        except Exception as error:
            raise PatternError(
                f"the replacement of {rule.name} failed at {match.roots[0].name}: {type(error).__name__}: {error}",
                at=rule.replacement.where or rule.where,
            ) from error
        for node in _with_bodies(edit.made):
            self._origins[node] = origin
        self.log.applications.append(
            Application.of(rule, match, edit, self._numbers.setdefault(graph, len(self._numbers)))
        )
        return edit

    def _origin(self, rule: Rule, match: Match) -> _Origin:
        """Note where new nodes will come from. Raises PatternError where this goes round in circles."""
        behind = [origin for node in match.nodes if (origin := self._origins.get(node)) is not None]
        earlier = max(behind, key=lambda origin: origin.generation, default=None)
        values = tuple((name, _identity(value)) for name, value in match.values.items())
        signature = (rule.name, id(rule), values)
        generation = 1 + (earlier.generation if earlier is not None else 0)
        if generation % 32 == 0:
            names = []
            origin = earlier
            for _ in range(31):
                if origin is None:
                    break
                names.append(origin.rule.name)
                if origin.signature == signature:
                    circle = " and ".join(dict.fromkeys([rule.name, *names]))
                    raise PatternError(
                        f"{circle} undo each other for ever",
                        at=match.roots[0].origin or rule.where,
                        fix="leave one of them out, or let a condition decide between them",
                    )
                origin = origin.earlier
        if generation > _GENERATIONS:
            raise PatternError(
                f"{rule.name} was applied {_GENERATIONS} times to what came of it",
                at=match.roots[0].origin or rule.where,
                fix="let a condition end it, or take recursive=True away",
            )
        return _Origin(signature, rule, generation, earlier)

    def _look_again(self, edit: Edit) -> None:
        """What is new is looked at, and what reads it, as far as a pattern reaches."""
        for node in _with_bodies(edit.made):
            self._wait_if_wanted(node)
        level: dict[Node, None] = dict.fromkeys([*edit.made, *edit.values])
        for _ in range(self._depth):
            for node in level:
                self._wait_if_wanted(node)
            level = dict.fromkeys(user for node in level for user in node.users)
            if not level:
                break

    def _wait_if_wanted(self, node: Node) -> None:
        if self._rules_for(node):
            self._wait(node)


def _with_bodies(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes, and those inside of branches and loops among them."""
    for node in nodes:
        yield node
        for body in bodies_of(node) if node.graph.has_bodies else ():
            for graph in body.all_graphs():
                yield from graph.nodes


def _identity(value: Any) -> Hashable:
    return id(value) if isinstance(value, Node | nn.Module) else repr(value)
