"""Putting a replacement in the place of a match: build, check, then commit; or leave everything as it was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from graphwright.analysis import infer_tensor_metadata
from graphwright.errors import PatternError
from graphwright.ir import Node, NodeSource, NodeSourceAction, map_arg
from graphwright.ops import is_impure
from graphwright.rewrite.effects import GraphEffects
from graphwright.rewrite.match import Match
from graphwright.rewrite.pattern import Pattern
from graphwright.rewrite.replacement import Function, Template
from graphwright.rewrite.steps import Step


class Refused(Exception):
    """A match that cannot be replaced; the text says why, and `fix` what would help."""

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.fix = fix


class Edit(NamedTuple):
    """What an application did: the nodes it made, the values that stand for the roots, the nodes it erased."""

    made: tuple[Node, ...]
    values: tuple[Node, ...]
    erased: tuple[Node, ...]


def apply(
    replacement: Function | Template,
    pattern: Pattern,
    match: Match,
    effects: GraphEffects,
    name: str = "",
    tidy: bool = True,
    same_value: bool = False,
) -> Edit:
    """Put a replacement in the place of a match. Raises Refused, with nothing changed, where that cannot be done.

    With `tidy`, what only the match had read goes, too. With `same_value`, what stands for the roots is these very
    values, not others that are equal to them.
    """
    graph = match.roots[0].graph
    before, late = check(match, effects)
    for node in late:
        before.prepend(node)
    last = before.prev
    with graph.inserting_before(before):
        result = replacement.write(match, graph)
    made = _nodes_between(last, before)
    try:
        pairs = _pairs(pattern.result, result, match, replacement.where)
        new = set(made)
        for root, value in pairs:
            is_another = type(value) is Node and value not in new and not same_value
            if is_another and (why := effects.obstacle_of_alias(root, value)):
                raise Refused(*why)
    except BaseException:
        for node in reversed(made):
            graph.erase_node(node)
        if match.tracer is not None:
            match.tracer.uninstall()
        raise
    _describe(made, pairs, match, name)
    for root, value in pairs:
        _replace(root, value, new)
    effects.made(made, match.roots[-1])
    erased = _erase(match, tidy, effects)
    return Edit(tuple(made), tuple([value for _, value in pairs if type(value) is Node]), tuple(erased))


# ---- where it goes


def check(match: Match, effects: GraphEffects) -> tuple[Node, list[Node]]:
    """Find where the replacement of a match goes: before which node, and which ones have to be moved there, too.

    Raises Refused where that would change what the program computes.
    """
    graph = match.roots[0].graph
    for name, value in match.values.items():
        if isinstance(value, Node) and value.graph is not graph:
            raise Refused(f"{name} is {value.name}, which is computed inside of the branch or loop")
    before, late = _place(match)
    why = effects.obstacle(match, before, late)
    if why is not None:
        raise Refused(*why)
    return before, late


def _place(match: Match) -> tuple[Node, list[Node]]:
    """The node before which the replacement is computed, and the nodes after it that have to be moved there first.

    It is the last root, or the first node that reads another root.
    """
    if len(match.roots) == 1:
        return match.roots[0], []
    last = max(match.roots)
    inside = match.inside
    first_use = min((user for root in match.roots for user in root.users if user not in inside), default=last)
    if first_use >= last:
        return last, []
    late: set[Node] = set()
    waiting = [used for node in match.nodes for used in node.all_input_nodes if used not in inside]
    while waiting:
        node = waiting.pop()
        if node in match.roots:
            raise Refused(f"it reads what is computed from {node.name}: a replacement would need its own value")
        if node >= first_use and node not in late:
            if node in inside:
                raise Refused(f"it reads {node.name}, which comes after {first_use.name}")
            late.add(node)
            waiting.extend(node.all_input_nodes)
    return first_use, sorted(late)


def _nodes_between(last: Node, before: Node) -> list[Node]:
    made = []
    node = last.next
    while node is not before:
        made.append(node)
        node = node.next
    return made


# ---- what stands for what


def _pairs(wanted: Any, result: Any, match: Match, where: str) -> list[tuple[Node, Any]]:
    """Each root of a match with the value that stands for it."""
    if isinstance(wanted, Step):
        return [(match.steps[wanted], result)]
    found: dict[Node, Any] = {}

    def pair(wanted: Any, value: Any) -> None:
        if isinstance(wanted, Step):
            found.setdefault(match.steps[wanted], value)
        elif isinstance(wanted, list | tuple) and isinstance(value, list | tuple) and len(wanted) == len(value):
            for each, item in zip(wanted, value, strict=True):
                pair(each, item)
        elif isinstance(wanted, dict) and isinstance(value, dict) and wanted.keys() == value.keys():
            for key, each in wanted.items():
                pair(each, value[key])
        else:
            raise PatternError(
                f"the replacement gives {_shape(value)}, and the pattern {_shape(wanted)}",
                at=where,
                fix="return as many values as the pattern does, in the same containers",
            )

    pair(wanted, result)
    return list(found.items())


def _shape(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_shape, value))})"
    return "one value"


def _replace(root: Node, value: Any, new: set[Node]) -> None:
    """Have all that read a root read the value, but for the replacement itself."""
    if type(value) is Node:
        if value is not root:
            reads_root = not new.isdisjoint(root.users)
            root.replace_all_uses_with(value, (lambda user: user not in new) if reads_root else None)
        return
    for user in [user for user in root.users if user not in new]:
        user.args = map_arg(user.args, lambda used: value if used is root else used)
        user.kwargs = map_arg(user.kwargs, lambda used: value if used is root else used)


def _describe(made: Sequence[Node], pairs: Iterable[tuple[Node, Any]], match: Match, name: str) -> None:
    """New nodes come from where those of the match do; the value of a root is what the root was.

    Where a pass has described the values of the match, the new ones are described, too.
    """
    if not made:
        return
    sources = [NodeSource(node, name, NodeSourceAction.REPLACE) for node in match.nodes] if name else []
    roots = {value: root for root, value in pairs if type(value) is Node}
    first = match.roots[0]
    knows_examples = any(root._meta and "tensor_meta" in root._meta for root in match.roots)
    for node in made:
        root = roots.get(node)
        node._origin, node._meta = (root or first)._origin, None  # anew from the origin
        if root is not None:
            if root._meta:
                node.meta.update(root._meta)
            node.type = node.type or root.type
        if sources:
            node.meta["from_node"] = sources
        if knows_examples and "tensor_meta" not in node.meta:
            described = infer_tensor_metadata(node, match.module)
            if described is not None:
                node.meta["tensor_meta"] = described


# ---- what goes


def _erase(match: Match, tidy: bool, effects: GraphEffects) -> list[Node]:
    graph = match.roots[0].graph
    erased = []
    inputs: dict[Node, None] = {}
    for node in reversed(match.nodes):
        if not node.users:
            if tidy:
                inputs.update(dict.fromkeys(node.all_input_nodes))
            erased.append(node)
            graph.erase_node(node)
    waiting = list(inputs)
    while waiting:
        node = waiting.pop()
        if node._erased or node.users or is_impure(node, effects.calls.module(node), in_any_mode=True):
            continue
        waiting.extend(node.all_input_nodes)
        erased.append(node)
        graph.erase_node(node)
    return erased
