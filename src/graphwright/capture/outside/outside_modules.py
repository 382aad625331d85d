"""Modules that a program calls and that are no part of the captured one: held in a list, or named by a global variable.

Those of the captured program have shells, which may run the conversion of a forward. For the others a stand-in is made
when they are called: nothing is written to the module itself but what it writes to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType, MethodType
from typing import Any

from torch import nn

from graphwright.runtime import ABSENT, HOOKS, MODULE_TABLES, Shells, copy_slots, is_atom
from graphwright.source import is_foreign_class


def is_outside_call(frame: FrameType, shells: Shells | None) -> bool:
    """Tell whether a frame is the call of a module that has no shell."""
    module = frame.f_locals.get("self")
    return isinstance(module, nn.Module) and (shells is None or shells.path(module) is None)


def call_outside(
    module: nn.Module, converted: Callable[[Any], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a module that has no shell. `converted` gives what to call in place of its forward."""
    forward: Any = module.forward
    stand_in: nn.Module = object.__new__(type(module))
    function = getattr(forward, "__func__", None)
    bound = MethodType(function, stand_in) if function is not None and forward.__self__ is module else forward
    mine = converted(bound)
    if mine is bound:
        return module(*args, **kwargs)
    copy_slots(module, stand_in)
    stand_in.__dict__.update(module.__dict__)
    stand_in.__dict__["forward"] = mine
    try:
        return stand_in(*args, **kwargs)
    finally:
        _write_back(stand_in.__dict__, module.__dict__)


def read_of_module(value: Any, subject: str) -> Iterator[tuple[Any, str, str, Any]]:
    """What torch reads of a module, and of those in it: what has it, its name, what to call it, and what it is."""
    for path, module in value.named_modules() if issubclass(type(value), nn.Module) else ():
        what = f"{path!r} of {subject}" if path else subject
        own = vars(module)
        for table in ("_modules", "_parameters", "_buffers", *HOOKS):
            yield own[table], "len()", f"how much {what} has in {table}", len(own[table])
            yield from ((own[table], name, f"{name!r} of {what}", held) for name, held in own[table].items())
        if "forward" not in own:
            yield own, "forward", f"a forward of {what} itself", ABSENT
        for name, held in own.items() if is_foreign_class(type(module)) else ():
            if is_atom(held) and (name == "training" or name not in MODULE_TABLES):
                yield own, name, f"{name!r} of {what}", held


def _write_back(changed: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Have a module keep what its stand-in has come to hold."""
    for name in [name for name in attributes if name not in changed]:
        del attributes[name]
    for name, value in changed.items():
        if name != "forward" and (name not in attributes or attributes[name] is not value):
            attributes[name] = value
