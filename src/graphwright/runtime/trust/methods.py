"""Methods of modules that a graph calls, and pull-backs: the calls of values that a file may hold.

A method that is kept as one node is read and called: `call_method` of its name on the module that a `get_attr` node
reads, or, of the module that runs the graph, `__call__` on the method itself. A file may do so with public methods of
modules' own classes, whose module is allowed, and with entry points of captured modules, whose graphs are in the file;
never with methods of torch's classes and ours, nor with what is stored in an attribute. The value of such a `get_attr`
node has no other use.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Container
from typing import Any

import torch.func
from torch import nn

from graphwright.ir import Node, nodes_in
from graphwright.ops import transformed, unpack
from graphwright.runtime.entries import entry_points_of


def called_methods(node: Node) -> list[str]:
    """The dotted paths of the methods that a `get_attr` node is read for; none where it has any other use."""
    paths = []
    for user in node.users:
        is_receiver = user.op == "call_method" and bool(user.args) and user.args[0] is node
        if not is_receiver or any(used is node for used in nodes_in((user.args[1:], user.kwargs))):
            return []
        paths.append(str(node.target) if user.target == "__call__" else f"{node.target}.{user.target}")
    return list(dict.fromkeys(paths))


def method_at(root: nn.Module, path: str) -> types.FunctionType | None:
    """The function of a method that a module's class has, by the dotted path from a root; None for anything else."""
    *parents, name = path.split(".")
    module: Any = root
    for atom in parents:
        module = module._modules.get(atom)
        if module is None:
            return None
    if any(name in table for table in (module.__dict__, module._modules, module._parameters, module._buffers)):
        return None
    found = next((base.__dict__[name] for base in type(module).__mro__ if name in base.__dict__), None)
    return found if isinstance(found, types.FunctionType) else None


def entry_at(root: nn.Module, path: str) -> bool:
    """Tell whether a dotted path leads to an entry point of a captured module: what it does is in the file, too."""
    above, _, name = path.rpartition(".")
    module: Any = root
    for atom in above.split(".") if above else ():
        module = module._modules.get(atom)
        if module is None:
            return False
    return name in entry_points_of(module)


def calls_method(node: Node, root: nn.Module, called: Callable[[Node], Container[str]] = called_methods) -> bool:
    """Tell whether a `call_method` node calls a method of a module's class, or a pull-back.

    `called` answers as `called_methods` does, which looks at all users of the node that is read.
    """
    value = node.args[0]
    if not isinstance(value, Node) or value.op != "get_attr":
        return node.target == "__call__" and is_pull_back(value)
    path = str(value.target) if node.target == "__call__" else f"{value.target}.{node.target}"
    return path in called(value) and (entry_at(root, path) or method_at(root, path) is not None)


def is_called_with_parameters(node: Node) -> bool:
    """Tell whether all that is done with a module is to call it with other parameters."""
    return bool(node.users) and all(
        user.target is torch.func.functional_call
        and len(user.args) > 1
        and user.args[0] is node
        and all(used is not node for used in nodes_in((user.args[1:], user.kwargs)))
        for user in node.users
    )


def is_pull_back(value: Any) -> bool:
    """Tell whether a node gives the function that `torch.func.vjp` or its like returns, which may be called."""
    if not isinstance(value, Node) or value.target is not operator.getitem or value.args[1:] != (1,):
        return False
    owner = value.args[0]
    if isinstance(owner, Node) and owner.target is unpack:
        owner = owner.args[0]
    return isinstance(owner, Node) and owner.target is transformed and owner.args[0] in _GIVE_FUNCTIONS


_GIVE_FUNCTIONS = ("torch.func.vjp", "torch.func.linearize")
