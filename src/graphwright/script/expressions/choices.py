"""Items of containers of modules that only a run chooses: `self.layers[i]` is a branch for each of them."""

from __future__ import annotations

import ast
import operator
import types
from collections.abc import Callable
from inspect import getattr_static
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.script.expressions.lookups import attribute, child
from graphwright.script.program.values import Choice, ModuleRef, Runtime, Value
from graphwright.script.statements.branches import choose
from graphwright.script.types import BOOL, INT

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

__all__ = ["attribute_of_choice", "chosen", "item_of_container"]


def item_of_container(c: Context, owner: ModuleRef, key: Runtime, node: ast.AST) -> Value:
    """Compile `self.layers[i]` and `self.heads[name]`: which item it is, a lookup among their numbers or names says."""
    module: Any = owner.module
    is_table = isinstance(module, nn.ModuleDict | nn.ParameterDict)
    keys = list(module.keys()) if is_table else list(range(len(module)))
    if not keys:
        return c.problem(f"the {type(module).__name__} {owner.path!r} is empty", node)
    c.take_items(module, "_modules" if isinstance(module, nn.Module) and module._modules else "_parameters")
    table = {name: number for number, name in enumerate(keys)} if is_table else list(keys)
    number = c.function(operator.getitem, (table, key), INT, node, "which")
    if isinstance(module, nn.ParameterList | nn.ParameterDict):
        return _branches(c, number, [lambda item=item: child(c, owner, item, node) for item in keys], node)  # type: ignore[misc]
    return Choice(number, tuple([child(c, owner, item, node) for item in keys]))


def chosen(c: Context, choice: Choice, use: Callable[[Value], Value], node: ast.AST, named: str = "") -> Value:
    """Do the same with each item that may be chosen, on a branch of its own."""
    return _branches(c, choice.number, [lambda item=item: use(item) for item in choice.items], node, named)  # type: ignore[misc]


def _branches(c: Context, number: Runtime, works: list[Callable[[], Value]], node: ast.AST, named: str = "") -> Value:
    if len(works) == 1:
        return works[0]()
    last = len(works) - 1

    def from_(i: int) -> Value:
        if i == last:
            return works[i]()
        test = c.function(operator.eq, (number, i), BOOL, node)
        return choose(c, test, (works[i], lambda: from_(i + 1)), ({}, {}), node, f"item {i} is chosen", named=named)

    return from_(0)


def attribute_of_choice(c: Context, choice: Choice, name: str, node: ast.AST, named: str = "") -> Value:
    """Compile `self.layers[i].name`: methods and modules stay a choice, values are chosen here."""
    items = [item for item in choice.items if isinstance(item, ModuleRef)]
    is_static = len(items) == len(choice.items) and all(_is_static(item.module, name) for item in items)
    if is_static:
        return Choice(choice.number, tuple([attribute(c, item, name, node) for item in items]))
    return chosen(c, choice, lambda item: attribute(c, item, name, node), node, named)


def _is_static(module: nn.Module, name: str) -> bool:
    """Tell whether a module has a module or a method under a name."""
    if name in module._modules:
        return module._modules[name] is not None
    return name not in module.__dict__ and isinstance(getattr_static(type(module), name, None), types.FunctionType)
