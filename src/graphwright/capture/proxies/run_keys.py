"""Keys of dicts that only a run knows: sizes, texts that are made of them, and tuples with such in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

from graphwright.capture.proxies.run_text import RunText
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of


@dataclasses.dataclass(frozen=True, slots=True)
class Blank:
    """Stands in the form of a key for a number or text that only a run knows."""

    kinds: tuple[type, ...]


NUMBER, TEXT = Blank((int, float)), Blank((str,))


def form_of_key(key: Hashable) -> Hashable:
    """A key, with `NUMBER` and `TEXT` in the place of what only a run knows.

    >>> form_of_key(("rows", 3))
    ('rows', 3)
    """
    if is_symbolic(key):
        return NUMBER
    if type(key) is RunText:
        return TEXT
    if isinstance(key, tuple):
        return tuple([form_of_key(part) for part in key])
    return key


def may_be(one: Hashable, other: Hashable) -> bool:
    """Tell whether two forms may be those of one key.

    >>> may_be(("rows", NUMBER), ("rows", 3)), may_be(("rows", NUMBER), "rows"), may_be(NUMBER, NUMBER)
    (True, False, True)
    """
    if isinstance(one, Blank):
        return one == other or isinstance(other, one.kinds)
    if isinstance(other, Blank):
        return isinstance(one, other.kinds)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(may_be, one, other))
    return one == other


def example_of_key(key: Hashable) -> Hashable:
    """What a key is for the example; its form where that cannot tell."""
    if type(key) is RunText:
        return TEXT if key.hint is UNKNOWN else str(key.hint)
    if isinstance(key, tuple):
        return tuple([example_of_key(part) for part in key])
    if not is_symbolic(key):
        return key
    hint = symbol_of(key)._hint  # type: ignore[union-attr]
    return NUMBER if hint is UNKNOWN else hint
