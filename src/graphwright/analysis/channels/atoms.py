"""Which channels have to go together: union-find over the elements of dimensions.

A dimension of a value is a `Channels`: one atom per element. Atoms are made for the dimensions of parameters, and
operators make atoms one. Where a dimension is split in two, such as (heads * size) into (heads, size), an element of it
goes if its head goes or its place within the heads goes: its atom stands for several others, as a product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """The elements of one dimension: the atom of each. `mixed`: their number depends on the inputs, too."""

    atoms: tuple[int, ...]
    mixed: bool = False

    def __len__(self) -> int:
        return len(self.atoms)


class Atoms:
    """All atoms of a program.

    >>> atoms = Atoms()
    >>> flat = atoms.new(6)
    >>> heads, places = atoms.split(flat, (2, 3))
    >>> [sorted(atoms.bases(atom)) == sorted(atoms.bases(heads.atoms[0]) | atoms.bases(places.atoms[1]))
    ...  for atom in flat.atoms]
    [False, True, False, False, False, False]
    """

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._family: list[int] = []  # parent of families: atoms of one dimension, and of those made one with it
        self._product: dict[int, tuple[int, ...]] = {}
        self.reasons: dict[int, str] = {}  # of those that cannot go, by their roots
        self.notes: dict[int, dict[str, None]] = {}  # what the others do not go without, by their roots

    def new(self, count: int) -> Channels:
        """A dimension with atoms of its own."""
        first = len(self._parent)
        made = range(first, first + count)
        self._parent.extend(made)
        self._family.extend([first] * count)
        return Channels(tuple(made))

    # ---- asking

    def root(self, atom: int) -> int:
        """The atom that stands for all that are one with this one."""
        parent = self._parent
        while parent[atom] != atom:
            parent[atom] = parent[parent[atom]]
            atom = parent[atom]
        return atom

    def bases(self, atom: int) -> set[int]:
        """The atoms, each for itself, any of which takes this one along."""
        root = self.root(atom)
        parts = self._product.get(root)
        if parts is None:
            return {root}
        return set().union(*[self.bases(part) for part in parts])

    def family(self, atom: int) -> int:
        """A number that atoms of one kind have in common."""
        family = self._family
        while family[atom] != atom:
            family[atom] = family[family[atom]]
            atom = family[atom]
        return atom

    # ---- telling

    def unify(self, one: Channels, other: Channels) -> None:
        """Two dimensions are the same, element by element."""
        if one is not other:
            root = self.root
            for a, b in zip(one.atoms, other.atoms, strict=True):
                if a != b and root(a) != root(b):
                    self.join(a, b)

    def join(self, one: int, other: int) -> None:
        """Two elements go together."""
        waiting = [(one, other)]
        while waiting:
            a, b = (self.root(atom) for atom in waiting.pop())
            if a == b:
                continue
            left, right = self._product.get(a), self._product.get(b)
            if left is None and right is not None:
                a, b, left, right = b, a, right, left
            if left is not None and right is not None:
                if len(left) == len(right):
                    waiting += zip(left, right, strict=True)
                else:
                    self.fix_atoms((a, b), "it is split into parts in two ways that do not fit")
                self._parent[b] = a
            elif left is not None:
                if b in self.bases(a):
                    self.fix_atoms((a,), "it is a part of itself")
                    continue
                self._parent[b] = a
                self._hand_on(b, a)
            else:
                self._parent[b] = a
                self._family[self.family(b)] = self.family(a)
                self._hand_on(b, a)

    def _hand_on(self, old: int, new: int) -> None:
        reason = self.reasons.pop(old, None)
        notes = self.notes.pop(old, {})
        if reason is not None:
            self.fix_atoms((new,), reason)
        for note in notes:
            self.note_atoms((new,), note)

    def fix(self, channels: Channels | None, reason: str) -> None:
        """No element of a dimension can go."""
        if channels is not None:
            self.fix_atoms(channels.atoms, reason)

    def fix_atoms(self, atoms: Iterable[int], reason: str) -> None:
        """These elements cannot go."""
        for atom in atoms:
            for base in self.bases(atom):
                self.reasons.setdefault(base, reason)

    def note(self, channels: Channels | None, note: str) -> None:
        """Something is computed over all elements of a dimension: what goes changes what the rest gives."""
        if channels is not None:
            self.note_atoms(channels.atoms, note)

    def note_atoms(self, atoms: Iterable[int], note: str) -> None:
        """Something is computed over these elements and others."""
        for atom in atoms:
            for base in self.bases(atom):
                self.notes.setdefault(base, {})[note] = None

    # ---- dimensions of dimensions

    def merge(self, dims: Sequence[Channels | None], sizes: Sequence[int]) -> Channels | None:
        """The dimension that several make, the last one fastest; None where none of them has channels."""
        tracked = [dim for dim in dims if dim is not None]
        if not tracked:
            return None
        mixed = any(dim.mixed for dim in tracked) or any(
            dim is None and size != 1 for dim, size in zip(dims, sizes, strict=True)
        )
        if len(dims) == 1:
            return tracked[0]
        columns = [dim.atoms if dim is not None else (None,) * size for dim, size in zip(dims, sizes, strict=True)]
        known: dict[tuple[int, ...], int] = {}
        atoms = []
        for element in itertools.product(*columns):
            parts = tuple([atom for atom in element if atom is not None])
            if len(parts) == 1:
                atoms.append(parts[0])
            else:
                if parts not in known:
                    (known[parts],) = self.new(1).atoms
                    self._product[known[parts]] = parts
                atoms.append(known[parts])
        return Channels(tuple(atoms), mixed)

    def split(self, flat: Channels, sizes: Sequence[int]) -> list[Channels]:
        """The dimensions that one is split into, the last one fastest. What is of size 1 has no channels to go."""
        assert math.prod(sizes) == len(flat)
        made = [self.new(size) for size in sizes]
        whole = self.merge(made, sizes)
        assert whole is not None
        self.unify(whole, Channels(flat.atoms))
        return made
