"""The arguments of nodes: immutable containers, and walks over nested arguments.

An argument is a node, an atom (number, string, None, dtype, ...) or a tuple, list, dict, slice or
NamedTuple of arguments. Lists and dicts inside a node are `immutable_list` and `immutable_dict`, so
that the only way to change what a node reads is to assign `node.args` or `node.kwargs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

# What is neither a node nor a container, by exact type: the walks stop here at once.
ATOMS = frozenset({int, float, str, bool, type(None), complex, type(...), bytes})


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation: the arguments of a node are changed by "
        "assigning a new copy, as in: new_args = list(node.args); new_args[0] = ...; node.args = tuple(new_args)"
    )


class immutable_list(list):  # type: ignore[type-arg]
    """A list inside a node's arguments; every mutation raises TypeError.

    >>> immutable_list([1, 2]) == [1, 2]
    True
    """

    __slots__ = ()
    __delitem__ = __iadd__ = __imul__ = __setitem__ = append = clear = extend = insert = pop = remove = reverse = (
        sort
    ) = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_list, (list(self),)


class immutable_dict(dict):  # type: ignore[type-arg]
    """A dict inside a node's arguments; every mutation raises TypeError.

    >>> immutable_dict(a=1) == {"a": 1}
    True
    """

    __slots__ = ()
    __delitem__ = __ior__ = __setitem__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_dict, (dict(self),)


EMPTY_KWARGS = immutable_dict()


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Rebuild nested containers with `fn` applied to every leaf.

    Lists and dicts come back immutable; a NamedTuple keeps its class, and so do other tuples, if it takes the items.

    >>> map_aggregate({"a": (1, [2, 3])}, lambda v: v + 1)
    {'a': (2, [3, 4])}
    """
    kind = type(a)
    if kind in ATOMS:
        return fn(a)
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        if kind is tuple:
            return tuple(items)
        try:
            return kind._make(items) if hasattr(kind, "_make") else kind(items)  # past a __new__ that looks at them
        except TypeError:  # torch.Size is of integers alone
            return tuple(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(item, fn) for item in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(item, fn) for key, item in a.items()})
    if kind is slice:
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)
