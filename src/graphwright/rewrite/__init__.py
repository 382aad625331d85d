"""Finding and replacing: rules with patterns, applied to captured programs.

Rules and a GraphModule come in; the module is edited in place. Read words.py and rule.py first, then steps.py for how
patterns are found and editing.py for how they are replaced.
"""

from graphwright.rewrite.calls import Calls
from graphwright.rewrite.driver import Refusal, RewriteResult, RuleCount, replay, rewrite
from graphwright.rewrite.effects import GraphEffects
from graphwright.rewrite.explaining import Explanation, explain
from graphwright.rewrite.log import Application, RewriteLog
from graphwright.rewrite.match import Match
from graphwright.rewrite.pattern import Pattern
from graphwright.rewrite.rule import Rule, rule
from graphwright.rewrite.subgraph_matcher import InternalMatch, SubgraphMatcher, SubgraphMatcherWithNameNodeMap
from graphwright.rewrite.subgraph_rewriter import ReplacedPatterns, replace_pattern, replace_pattern_with_filters
from graphwright.rewrite.words import Any, Lit, Var, maybe, mod, one_of, repeat

__all__ = [
    "Any",
    "Application",
    "Calls",
    "GraphEffects",
    "Explanation",
    "InternalMatch",
    "Lit",
    "Match",
    "Pattern",
    "Refusal",
    "ReplacedPatterns",
    "RewriteLog",
    "RewriteResult",
    "Rule",
    "RuleCount",
    "SubgraphMatcher",
    "SubgraphMatcherWithNameNodeMap",
    "Var",
    "explain",
    "maybe",
    "mod",
    "one_of",
    "repeat",
    "replace_pattern",
    "replace_pattern_with_filters",
    "replay",
    "rewrite",
    "rule",
]
