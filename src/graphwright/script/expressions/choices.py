"""Items of containers of modules that only a run chooses: `self.layers[i]` is a branch for each of them."""

from __future__ import annotations

import ast
import operator
import types
from inspect import getattr_static
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.script.expressions.named_values import attribute, child
from graphwright.script.program.values import Choice, ModuleRef, Runtime, Value
from graphwright.script.statements.branches import by_number, chosen
from graphwright.script.types import INT

if TYPE_CHECKING:
    from graphwright.script.program.context import Context


def item_of_container(c: Context, owner: ModuleRef, key: Runtime, node: ast.AST) -> Value:
    """Compile `self.layers[i]` and `self.heads[name]`: which item it is, a lookup among their numbers or names says."""
    module: Any = owner.module
    is_table = isinstance(module, nn.ModuleDict | nn.ParameterDict)
    keys = list(module.keys()) if is_table else list(range(len(module)))
    if not keys:
        return c.problem(f"the {type(module).__name__} {owner.path!r} is empty", node)
    c.take_items(module, "_modules" if isinstance(module, nn.Module) and module._modules else "_parameters")
    table = {name: number for number, name in enumerate(keys)} if is_table else list(keys)
    if len(keys) == 1:  # nothing chooses by it, and it raises where there is no such item
        number = c.make("call_method", "__getitem__", (table, key), INT, node, named="which")
    else:
        number = c.function(operator.getitem, (table, key), INT, node, "which")
    if isinstance(module, nn.ParameterList | nn.ParameterDict):
        return by_number(c, number, [lambda item=item: child(c, owner, item, node) for item in keys], node)  # type: ignore[misc]
    return Choice(number, tuple([child(c, owner, item, node) for item in keys]))


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
