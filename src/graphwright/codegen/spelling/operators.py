"""How Python's operators are written, and how tightly they bind."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

# Binding strength, from the Python grammar: an operand weaker than its place needs parentheses.
(
    ANY, TERNARY, OR_ELSE, AND_THEN, NOT, COMPARISON, OR, XOR, AND, SHIFT, SUM, PRODUCT, UNARY, POWER, PRIMARY, ATOM,
) = range(16)  # fmt: skip

# operator -> (symbol, strength); all associate to the left but `**`.
BINARY: dict[Callable[..., Any], tuple[str, int]] = {
    operator.add: ("+", SUM),
    operator.sub: ("-", SUM),
    operator.mul: ("*", PRODUCT),
    operator.truediv: ("/", PRODUCT),
    operator.floordiv: ("//", PRODUCT),
    operator.mod: ("%", PRODUCT),
    operator.matmul: ("@", PRODUCT),
    operator.pow: ("**", POWER),
    operator.lshift: ("<<", SHIFT),
    operator.rshift: (">>", SHIFT),
    operator.and_: ("&", AND),
    operator.xor: ("^", XOR),
    operator.or_: ("|", OR),
    operator.eq: ("==", COMPARISON),
    operator.ne: ("!=", COMPARISON),
    operator.lt: ("<", COMPARISON),
    operator.le: ("<=", COMPARISON),
    operator.gt: (">", COMPARISON),
    operator.ge: (">=", COMPARISON),
    operator.is_: ("is", COMPARISON),
    operator.is_not: ("is not", COMPARISON),
}

UNARY_OPERATORS: dict[Callable[..., Any], str] = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}

INPLACE: dict[Callable[..., Any], str] = {
    operator.iadd: "+=",
    operator.isub: "-=",
    operator.imul: "*=",
    operator.itruediv: "/=",
    operator.ifloordiv: "//=",
    operator.imod: "%=",
    operator.imatmul: "@=",
    operator.ipow: "**=",
    operator.ilshift: "<<=",
    operator.irshift: ">>=",
    operator.iand: "&=",
    operator.ixor: "^=",
    operator.ior: "|=",
}

# What is written as a statement rather than as an expression.
STATEMENTS = frozenset({*INPLACE, operator.setitem})
