"""Subscripts and displays: keys that only a run may know, and `[*rows, x]` as `list(rows) + [x]`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from graphwright.source import holds, placed


def is_star_display(node: ast.List | ast.Tuple) -> bool:
    """Tell whether an expression makes a list or tuple with all items of others; not one of slices: `x[:, *rest]`."""
    has_star = any(isinstance(item, ast.Starred) for item in node.elts)
    return has_star and isinstance(node.ctx, ast.Load) and not any(isinstance(item, ast.Slice) for item in node.elts)


def kept_by_what_follows(node: ast.List | ast.Tuple) -> list[bool]:
    """Tell of each item whether those after it call nothing, so that what it holds stays as it is."""
    return [not holds(node.elts[i + 1 :], *_CALLS) for i in range(len(node.elts))] if is_star_display(node) else []


_CALLS = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


def sum_of_parts(node: ast.List | ast.Tuple, kept: list[bool], spread: Callable[..., ast.expr]) -> ast.expr:
    """The parts of such an expression, added; `spread(method, place, values, keeps)` calls what makes one of `*values`.

    That may be the values themselves, where what comes after keeps them as they are.
    """
    kind, method = type(node), "as_list" if isinstance(node, ast.List) else "as_tuple"
    parts: list[ast.expr] = []
    waiting: list[ast.expr] = []
    for i, item in enumerate(node.elts):
        if not isinstance(item, ast.Starred):
            waiting.append(item)
            continue
        if waiting:
            parts.append(placed(kind(waiting, ast.Load()), node))
        keeps = placed(ast.Constant(len(node.elts) > 1 and kept[i]), node)
        parts.append(spread(method, node, item.value, keeps))
        waiting = []
    if waiting:
        parts.append(placed(kind(waiting, ast.Load()), node))
    whole = parts[0]
    for part in parts[1:]:
        whole = placed(ast.BinOp(whole, ast.Add(), part), node)
    return whole


def may_be_key(index: ast.expr) -> bool:
    """Tell whether a subscript may be a key that only a run knows: no constant, no slice."""
    if isinstance(index, ast.Tuple):
        return any(map(may_be_key, index.elts)) and not holds([index], ast.Slice, ast.Starred)
    if isinstance(index, ast.UnaryOp):
        return may_be_key(index.operand)
    return isinstance(index, _KEYS)


_KEYS = (ast.Name, ast.BinOp, ast.Call, ast.Attribute, ast.JoinedStr, ast.Subscript, ast.IfExp, ast.Compare, ast.BoolOp)
