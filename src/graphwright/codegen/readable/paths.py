"""Dotted paths from the root of a function, with `[0]` and `["key"]` where containers allow it."""

from __future__ import annotations

from typing import Any

from torch import nn

from graphwright.codegen.function import attribute, is_plain_name, quoted
from graphwright.ir import is_computed


class Paths:
    """How paths of one graph are written, each found once; `owner` is the module that the graph belongs to.

    A module of the owner whose name stands after no dot is read in `table`, a variable, if there is one.
    """

    def __init__(self, root: str, owner: Any, table: str, getter: str) -> None:
        self.table = table
        self._root = root
        self._owner = owner
        self._getter = getter
        self._known: dict[tuple[str, bool], tuple[str, Any, bool]] = {}
        self._reads_table = False

    def reached(self, target: str, goes_on: bool = False) -> tuple[str, Any, bool]:
        """Write a path, or one that `goes_on`, and tell what is there and whether it ends with a name after a dot."""
        known = self._known.get((target, goes_on))
        if known is None:
            above, _, atom = target.rpartition(".")
            text, value, _ = self.reached(above, True) if above else (self._root, self._owner, True)
            known = self._known[target, goes_on] = self._step(text, value, atom, goes_on)
        return known

    def _step(self, text: str, value: Any, atom: str, goes_on: bool) -> tuple[str, Any, bool]:
        """Write an attribute of what has been written, which is this value."""
        inner = None if value is None or is_computed(value, atom) else getattr(value, atom, None)
        is_plain = is_plain_name(atom)
        if self.table != "" and value is self._owner and not is_plain and atom in value._modules:
            self._reads_table = True
            return f"{self.table}[{quoted(atom)}]", inner, False
        if goes_on and hasattr(type(value), atom) and atom in getattr(value, "_modules", ()):  # its class hides it
            return f"{text}._modules[{quoted(atom)}]", value._modules[atom], False
        is_inside = value is not None and value is not self._owner and not atom.isidentifier()
        subscript = _subscript(value, atom) if is_inside else None
        if subscript:
            return f"{text}[{subscript}]", inner, False
        return attribute(text, atom, self._getter), inner, is_plain

    def tables(self) -> list[str]:
        """Write the assignment of the table, where it is read."""
        return [f"{self.table} = {self._root}._modules"] if self._reads_table else []


def _subscript(container: Any, atom: str) -> str | None:
    """The subscript by which a container module gives its child of this name, or None."""
    is_number = atom.isdigit() and not isinstance(container, nn.ModuleDict)
    if not hasattr(type(container), "__getitem__") or (
        is_number and list(container._modules) != [str(i) for i in range(len(container._modules))]
    ):
        return None  # with gaps between its places, `[1]` need not mean "1"
    key: int | str = int(atom) if is_number else atom
    if isinstance(container, nn.Sequential) and atom in container._modules:
        key = [*container._modules].index(atom)  # also of a name: `self.blocks[0]` for "block-0"
    try:
        return repr(key) if container[key] is getattr(container, atom) else None
    except Exception:  # a user's container may raise anything for a key that it does not know
        return None
