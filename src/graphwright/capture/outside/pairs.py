"""Which classes and objects were looked at for which attributes: there may be many of both."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

from graphwright.capture.effects.object_reads import answers, hideable
from graphwright.capture.outside.named import Reached
from graphwright.runtime import attributes_of


class Pairs:
    """Pairs of a class, or of an object by its id, with an attribute: each is given once."""

    def __init__(self) -> None:
        self._data: dict[type, frozenset[str]] = {}  # what the user's part of a class has, for its objects
        self.forget()

    def forget(self) -> None:
        """Have all pairs be new again."""
        self._settled: set[tuple[int, str]] = set()
        self._of_classes = 0, 0  # how many classes and attributes were looked for together
        self._of_objects: tuple[int, int, set[str]] = 0, 0, set()  # objects, attributes, those that may be missing

    def new_of_classes(self, classes: Collection[type], attributes: Collection[str]) -> list[tuple[type, str]]:
        """The classes and attributes that were not looked for together yet."""
        kinds, names = [*classes], [*attributes]
        old, known = self._of_classes
        self._of_classes = len(kinds), len(names)
        return [*itertools.product(kinds[:old], names[known:]), *itertools.product(kinds[old:], names)]

    def new_of_objects(
        self, objects: Mapping[int, Reached], attributes: Mapping[str, object], looked_for: set[str]
    ) -> list[tuple[int, str]]:
        """The same for objects, by id: what they have themselves, and what they have not where that is looked for."""
        found = [pair for pair in self._new_of_objects(objects, attributes, looked_for) if pair not in self._settled]
        self._settled.update(found)
        return found

    def _new_of_objects(
        self, objects: Mapping[int, Reached], attributes: Mapping[str, object], looked_for: set[str]
    ) -> Iterator[tuple[int, str]]:
        old, known, sought = self._of_objects
        further, names = looked_for - sought, {*[*attributes][known:]}
        self._of_objects = len(objects), len(attributes), {*looked_for}
        first = 0 if names or further else old
        for number, (key, each) in enumerate([*objects.items()][first:], first):
            is_old, held = number < old, attributes_of(each.value)
            new = names if is_old else attributes.keys()
            yield from [(key, name) for name in held if name in new]
            is_answered = answers(type(each.value))
            missing = {*(new if is_answered else self.hideable(type(each.value)) & new)}
            missing |= further if is_old else looked_for
            yield from [(key, name) for name in sorted(missing - held.keys())]

    def computes(self, kind: type, name: str) -> bool:
        """Tell whether an attribute that a class lacks is computed for its objects, or one of the user's metaclass."""
        meta = type(kind)
        return answers(kind) or (meta is not type and (answers(meta) or name in self.hideable(meta)))

    def hideable(self, kind: type) -> frozenset[str]:
        """The attributes of a class before which its objects may have others of their own."""
        if kind not in self._data:
            self._data[kind] = hideable(kind)
        return self._data[kind]
