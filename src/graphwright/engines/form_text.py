"""The text of code of another form: names for its tensors, after their layers, and the statements it opens with."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphwright.ir import Graph, Namespace, Node

_WIDTH = 96  # of what stands before `=` without brackets, in which it may be broken


def names_of_tensors(paths: Iterable[str]) -> dict[str, str]:
    """A name for each of some paths of tensors: that of its layer, as much of it as tells it from others, and its own.

    >>> names_of_tensors(["blocks.0.fc.weight", "blocks.1.fc.weight", "blocks.1.fc.bias", "head.weight"])
    {'blocks.0.fc.weight': 'blocks_0_fc_weight', 'blocks.1.fc.weight': 'blocks_1_fc_weight',
     'blocks.1.fc.bias': 'blocks_1_fc_bias', 'head.weight': 'head_weight'}
    >>> names_of_tensors(["0.weight", "3.weight"]), names_of_tensors(["layer.weight", "layer.bias"])
    ({'0.weight': 'weight_0', '3.weight': 'weight_3'}, {'layer.weight': 'weight', 'layer.bias': 'bias'})
    """
    paths = list(paths)
    owners = {tuple(path.split(".")[:-1]) for path in paths}
    ends = Counter(owner[start:] for owner in owners for start in range(len(owner) + 1))
    names, taken = {}, Namespace()
    for path in paths:
        *owner, own = path.split(".")
        parts = _telling(tuple(owner), ends) if len(owners) > 1 else ()
        is_number = bool(parts) and parts[0].isdigit()
        names[path] = taken.create(_legal([own, *parts] if is_number else [*parts, own]))
    return names


def _telling(owner: tuple[str, ...], ends: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """The shortest end of a path that no other path has, that has all its numbers, and the name before the first."""
    for start in range(len(owner) - 1, -1, -1):
        if ends[owner[start:]] == 1 and not any(part.isdigit() for part in owner[: start + 1]):
            return owner[start:]
    return owner


def _legal(parts: Sequence[str]) -> str:
    return re.sub(r"\W", "_", "_".join(part for part in parts if part), flags=re.ASCII)


def path_of_several(paths: Sequence[str]) -> str:
    """A path that says of which tensors another one is made: that of the first, and the layers of the others.

    >>> path_of_several(["attn.q.weight", "attn.k.weight"]), path_of_several(["fc.weight"])
    ('attn.q_k.weight', 'fc.weight')
    """
    owners = [path.split(".")[:-1] for path in paths]
    *above, own = paths[0].split(".")
    last = "_".join(dict.fromkeys(owner[-1] for owner in owners if owner))
    return ".".join([*above[:-1], last, own]) if above else own


def free_names(graph: Graph, paths: Iterable[str]) -> None:
    """Have the nodes that read some attributes give up their names: the code has variables in their places."""
    paths = set(paths)
    for i, node in enumerate(graph.all_nodes()):
        if node.op == "get_attr" and node.target in paths:
            node.name = f"read_{i}_"


# ---- what it opens with


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
    passed = ", ".join(map(_passed_on, graph.placeholders()))
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
