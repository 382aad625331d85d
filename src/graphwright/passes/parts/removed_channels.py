"""What is left of dimensions when some channels are removed."""

from __future__ import annotations

from typing import Any

from graphwright.analysis import Atoms, Channels


class Removed:
    """The atoms that are removed, and what that leaves."""

    def __init__(self, atoms: Atoms, removed: set[int]) -> None:
        self._atoms = atoms
        self._removed = removed
        self._known: dict[int, bool] = {}

    def is_gone(self, atom: int) -> bool:
        """Tell whether an element goes."""
        found = self._known.get(atom)
        if found is None:
            found = self._known[atom] = not self._removed.isdisjoint(self._atoms.bases(atom))
        return found

    def kept(self, channels: Channels) -> list[int]:
        """The elements of a dimension that stay, by number."""
        return [i for i, atom in enumerate(channels.atoms) if not self.is_gone(atom)]

    def size(self, channels: Channels | None, size: int) -> int:
        """The size of a dimension that was of a size."""
        return size if channels is None else sum(1 for atom in channels.atoms if not self.is_gone(atom))

    def shape(self, dims: Any, shape: Any) -> Any:
        """The shape of a value, or those in nested values; None for what is no tensor."""
        if isinstance(shape, tuple) and isinstance(dims, tuple):
            return tuple([self.size(channels, size) for channels, size in zip(dims, shape, strict=True)])
        if isinstance(shape, list) and isinstance(dims, list):
            if len(shape) != len(dims):  # a list that a loop has filled since: what is in it has no channels that go
                return None
            return [self.shape(one, other) for one, other in zip(dims, shape, strict=True)]
        return shape if isinstance(shape, tuple) else None
