"""How modules, classes and hooks are called in what is taken for granted of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from graphwright.runtime.inside import HOOKS
from graphwright.runtime.plain_values import spelled


def names_of_hooks(hooks: Mapping[int, Any]) -> list[str]:
    """The names of hooks in a table of a module: other hooks have other names."""
    return [*map(name_of_hook, hooks.values())]


def name_of_hook(called: Any) -> str:
    told = spelled(getattr(called, "__func__", called))
    name = told.get("function") if isinstance(told, dict) else None
    return name or type(called).__qualname__


def take_code(facts: dict[str, Any], module: nn.Module) -> None:
    """Add to the facts of a module that its code is part of a graph: its class, its hooks, a forward of its own.

    >>> facts = {}
    >>> take_code(facts, nn.Linear(2, 2))
    >>> facts
    {'class': 'torch.nn.modules.linear.Linear', 'hooks': {}}
    """
    facts["class"] = class_name(module)
    facts["hooks"] = {table: names_of_hooks(module.__dict__[table]) for table in HOOKS if module.__dict__[table]}
    if "forward" in module.__dict__:
        facts["forward"] = name_of_hook(module.__dict__["forward"])


def class_name(module: Any) -> str:
    """The name of the class of a module or object, and of the module where it is defined.

    Of a captured module it is that of the class which all of its kind have.
    """
    return name_of_class(own_class(module))


def own_class(module: Any) -> type:
    """The class of a module or object; of a captured module, which has one for itself, the one that it was made of."""
    return next(kind for kind in type(module).__mro__ if not kind.__dict__.get("_is_instance_class"))


def own_names(state: Mapping[str, Any]) -> list[str]:
    """The names of the attributes of a module, short of those that torch and we keep there."""
    return [name for name in state if name not in _NOT_OF_USERS]


_NOT_OF_USERS = frozenset({
    *nn.Module().__dict__, "_graphwright_state", "_tracer_cls", "forward", "_compiled_call_impl", "_apply",
    "_flat_weight_refs", "_flat_weights_names", "_all_weights", "_flat_weights",  # torch's recurrent layers make these
})  # fmt: skip


def name_of_class(kind: type) -> str:
    """The name of a class, and of the module where it is defined."""
    return f"{getattr(kind, '__module__', '')}.{kind.__qualname__}"  # a class that `type` made may have none


def module_at(root: nn.Module, path: str) -> Any:
    module: Any = root
    for atom in path.split(".") if path else ():
        module = getattr(module, "_modules", {}).get(atom)
    return module
