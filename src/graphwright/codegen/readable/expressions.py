"""Expressions as values: their code, how tightly it binds, and of some what they are made of.

What may be written more shortly later, `not not a` or `if bool(a):`, is known by its form, not by how its code begins.
"""

from __future__ import annotations

from typing import TypeVar

from graphwright.codegen.spelling.operators import ATOM, NOT, PRIMARY

_Kind = TypeVar("_Kind", bound="Expression")


class Expression(tuple[str, int]):
    """Code and how tightly it binds: a pair, and told from the pairs that programs have as values.

    >>> Expression("x + y", 10).text
    'x + y'
    """

    def __new__(cls: type[_Kind], text: str, binds: int = ATOM) -> _Kind:
        return super().__new__(cls, (text, binds))

    @property
    def text(self) -> str:
        """The code."""
        return self[0]

    @property
    def binds(self) -> int:
        """How tightly it binds."""
        return self[1]


class Negation(Expression):
    """`not a`, made of `a` as it stands there."""

    inner: tuple[str, int]

    @classmethod
    def of(cls, inner: tuple[str, int]) -> Negation:
        """Write that an expression does not hold.

        >>> Negation.of(("a and b", 3)).text
        'not (a and b)'
        """
        made = cls(f"not {in_place(inner, NOT)}", NOT)
        made.inner = inner
        return made


class Truth(Expression):
    """`bool(a)`, made of `a`."""

    inner: tuple[str, int]

    @classmethod
    def of(cls, function: str, inner: tuple[str, int]) -> Truth:
        """Write the call of `bool`, which may go by another name."""
        made = cls(f"{function}({inner[0]})", PRIMARY)
        made.inner = inner
        return made


class AnyNot(Expression):
    """`any(not a for a in rows)`, whose opposite is `all(a for a in rows)`."""

    opposite: str

    @classmethod
    def of(cls, tested: Negation, rest: str) -> AnyNot:
        """Write the search for what does not hold; `rest` is what follows the test.

        >>> AnyNot.of(Negation.of(("a", 15)), " for a in rows").opposite
        'all(a for a in rows)'
        """
        made = cls(f"any({tested.text}{rest})", PRIMARY)
        made.opposite = f"all({in_place(tested.inner, NOT)}{rest})"
        return made


def tested(condition: tuple[str, int]) -> tuple[str, int]:
    """A condition without a `bool()` around all of it; what holds texts, commas or stars keeps that.

    >>> tested(Truth.of("bool", ("rows", 16)))
    ('rows', 16)
    """
    if isinstance(condition, Truth) and not set(condition.inner[0]) & set("\"',*"):
        return condition.inner
    return condition


def in_place(expression: tuple[str, int], strength: int) -> str:
    """Write an expression as an operand, in parentheses where it binds less tightly than its place."""
    return expression[0] if expression[1] >= strength else f"({expression[0]})"
