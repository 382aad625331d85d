"""Texts that a converted function makes for a message: made again with the numbers of each run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Text(str):
    """A message with the numbers of the example; `template` and `values` make it with those of a run.

    A program that looks it up, compares it or takes it apart asks for its numbers: it was no message.
    """

    template: str
    values: tuple[Any, ...]

    def asked(self) -> str:
        """The text as a plain one, whose numbers are asked for."""
        for value in self.values:
            format(value)
        return str(self)

    def __bool__(self) -> bool:
        return str(self) != ""  # whatever the numbers are

    def __add__(self, other: str) -> str:
        return _of_texts(self, other)

    def __radd__(self, other: str) -> str:
        return _of_texts(other, self)


def _asking(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of `str` that asks for the numbers in a text first."""

    @functools.wraps(method)
    def ask(text: Text, *args: Any, **kwargs: Any) -> Any:
        return method(text.asked(), *args, **kwargs)

    return ask


_COMPARE = frozenset({"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__"})
_ASK_NOTHING = frozenset({*vars(object), *vars(Text), "__getnewargs__", "maketrans"}) - _COMPARE
for _name, _method in vars(str).items():
    if _name not in _ASK_NOTHING:
        setattr(Text, _name, _asking(_method))


def _of_texts(*parts: str) -> str:
    """A message made of others."""
    text = Text("".join(map(str, parts)))
    text.template = "".join(
        part.template if type(part) is Text else part.replace("{", "{{").replace("}", "}}") for part in parts
    )
    text.values = tuple(value for part in parts if type(part) is Text for value in part.values)
    return text
