"""Why a rule does or does not apply at a node."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from graphwright.errors import PatternError
from graphwright.ir import Node
from graphwright.rewrite.calls import Calls
from graphwright.rewrite.editing import Refused, apply
from graphwright.rewrite.effects import GraphEffects
from graphwright.rewrite.match import Match
from graphwright.rewrite.rule import Rule
from graphwright.rewrite.steps import Failures, show
from graphwright.runtime import Snapshot


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether a rule applies at a node. If not, `reasons` say why, and `found` how many operations had been found."""

    rule: Rule
    node: Node
    match: Match | None
    reasons: tuple[str, ...] = ()
    found: int = 0

    def __bool__(self) -> bool:
        return self.match is not None and not self.reasons

    def __str__(self) -> str:
        if self:
            values = ", ".join(f"{name} = {show(value)}" for name, value in self.match.values.items())  # type: ignore[union-attr]
            return f"{self.rule.name} applies at {self.node.name}: {values or 'without variables'}"
        found = f" ({self.found} operation{'s' * (self.found != 1)} found)" if self.found else ""
        return f"{self.rule.name} does not apply at {self.node.name}{found}: {'; or '.join(self.reasons)}"


def explain(rule: Rule, node: Node, gm: nn.Module | None = None) -> Explanation:
    """Say whether a rule applies with a node as its root, and if not, why: what was wrong where most of it was found.

    `gm` is the captured module that the node belongs to, where its graph does not know. The replacement is
    tried, too, and taken back: nothing is changed.

    >>> from graphwright import rule, symbolic_trace
    >>> gm = symbolic_trace(lambda x, y: (x.neg() * 2).sum(dim=1))
    >>> total = rule(lambda x, n=2.0: (x * n).sum(1), lambda x, n: x.sum(1) * n, name="factor_out")
    >>> print(explain(total, gm.graph.output_node().prev))
    factor_out applies at sum_1: x = neg, n = 2
    >>> print(explain(rule(lambda x: (x * 3).sum(1), lambda x: x, name="thrice"), gm.graph.output_node().prev))
    thrice does not apply at sum_1 (2 operations found): 3 is wanted, and there is 2
    """
    given: tuple[object, object] = rule, node
    if not (isinstance(given[0], Rule) and isinstance(given[1], Node)):
        what = f"a {type(rule).__name__} and a {type(node).__name__}"
        raise PatternError(f"explain was given {what}", fix="give a rule and a node: explain(rule, node)")
    module = gm if gm is not None else node.graph.owning_module
    if module is None:
        raise PatternError(
            "the graph of this node belongs to no module", fix="give the captured module: explain(r, n, gm)"
        )
    calls = Calls(module)
    failures = Failures()
    match = rule.match(node, calls, module, failures)
    if match is None:
        reasons = tuple(reason for reason, _ in failures.reasons)
        return Explanation(rule, node, None, reasons, math.ceil(failures.found))
    before = Snapshot(module)
    try:
        apply(rule.replacement, rule.pattern, match, GraphEffects(node.graph, calls), same_value=rule.same_value)
    except Refused as refusal:
        return Explanation(rule, node, match, (str(refusal),), len(match.nodes))
    finally:
        before.restore()
    return Explanation(rule, node, match)
