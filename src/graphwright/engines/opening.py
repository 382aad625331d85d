"""The statements that code of another form opens with: a check, the program to run where it fails, and the tensors."""

from __future__ import annotations

import inspect
from typing import Any

from graphwright.ir import Graph, Node

_WIDTH = 96  # of what stands before `=` without brackets, in which it may be broken


def opening(
    writer: Any, held: str, check: str, why: str, beside: str, graph: Graph, is_whole: bool = False
) -> list[str]:
    """The statements before all others.

    held: the name to give to what the check gives, which is unpacked into the variables of `writer`; if `is_whole`, it
    is the one of these. check: its call; it gives None for the reasons that `why` names, and then the method `beside`
    runs with the parameters of `graph`.
    """
    if not is_whole:
        held = writer.names.new(held)
        writer.names.take(held)
    passed = ", ".join(map(_passed_on, graph.find_nodes(op="placeholder")))
    lines = [f"{held} = {check}", f"if {held} is None:  # {why}", f"    return {writer.root}.{beside}({passed})"]
    variables = [*writer.variables.values()]
    if variables and not is_whole:
        left = ", ".join(variables) + "," * (len(variables) == 1)
        lines.append(f"{left} = {held}" if len(left) <= _WIDTH else f"({left}) = {held}")
    return lines


def _passed_on(node: Node) -> str:
    """A parameter of a function as the argument of a call."""
    target = str(node.target)
    is_keyword = (node._meta or {}).get("parameter_kind") is inspect.Parameter.KEYWORD_ONLY
    return f"{target}={target}" if is_keyword else target
