"""Arithmetic that can be left out or done beforehand, with the very same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphwright.ir import Node
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.tensor_facts import dtype_of, is_whole_number, keeps_dtype
from graphwright.rewrite import Lit, Match, Rule, rewrite, rule


@dataclass(frozen=True, slots=True)
class SimplifyAlgebra:
    """Leave out arithmetic that changes no number, and join constants.

    - `-(-x)`, `~~x`; `x * 1`, `x / 1`, `x // 1`, `x ** 1`, `x - 0`, `x + 0`;
    - `relu`, `abs`, `floor`, `ceil`, `trunc`, `round` of what came out of the same function;
    - `(x + 1) + 2`, `(x * 2) * 3` of whole numbers: `x + 3`, `x * 6`.

    inexact: also what rounds otherwise, or differs at single values: constants of floating point are joined, `x + 0` of
        floating point goes (it makes 0.0 of -0.0), and `exp(log(x))` and `log(exp(x))` are x.

    The dtype has to be known, for `x * 1` of booleans is a number and `x / 1` of whole numbers a fraction: from the
    program, a guard, or what `ShapeProp` has noted. Left alone is what may be told from its copy, as for `RemoveNoOps`.
    Returns the number of operations that went.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: -(-(x.double() * 1)) + x.size(0) * 2 * 3)
    >>> SimplifyAlgebra().run(gm)
    3
    >>> print(gm.code.strip())
    def forward(self, x):
        double = x.double()
        size = x.size(0);  x = None
        mul_3 = size * 6;  size = None
        add = double + mul_3;  double = mul_3 = None
        return add
    """

    inexact: bool = False

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        return rewrite(gm, _rules(Ownership(gm), self.inexact)).count


def _rules(ownership: Ownership, inexact: bool) -> list[Rule]:
    def same(name: str, pattern: Any, condition: Callable[[Match], bool] = lambda match: True) -> Rule:
        """A rule that puts x in the place of a copy of x."""

        def is_free_copy(match: Match) -> bool | str:
            return condition(match) and (is_whole_number(match.x) or ownership.may_stand_for(match.x, match.roots[0]))

        return rule(pattern, lambda x: x, where=is_free_copy, name=name)

    def neutral(name: str, pattern: Any, number: float, kinds: str = "all") -> Rule:
        """A rule that leaves out an operation with this number, for tensors of these kinds."""

        def is_neutral(match: Match) -> bool:
            is_exact = inexact or number != 0 or _sign(match.n) == _sign(number) or not _is_float(match.x)
            return match.n == number and is_exact and _keeps(match.x, match.n, kinds)

        return same(name, pattern, is_neutral)

    n: Any = Lit(int, float)
    rules = [
        same("double_negation", lambda x: x.neg().neg()),
        same("double_inversion", lambda x: ~(~x)),
        neutral("times_one", lambda x, n=n: x * n, 1),
        neutral("over_one", lambda x, n=n: x / n, 1, "floating"),
        neutral("whole_over_one", lambda x, n=n: x // n, 1, "whole"),
        neutral("to_the_power_of_one", lambda x, n=n: x**n, 1),
        neutral("minus_zero", lambda x, n=n: x - n, 0.0),  # -0.0 - 0.0 is -0.0, as is -0.0 + -0.0
        neutral("plus_zero", lambda x, n=n: x + n, -0.0),
        *[_once(ownership, name) for name in ("relu", "abs", "floor", "ceil", "trunc", "round")],
        *_joined_constants(inexact),
    ]
    if inexact:
        rules.append(same("exp_of_log", lambda x: torch.exp(torch.log(x)), lambda match: _is_float(match.x)))
        rules.append(same("log_of_exp", lambda x: torch.log(torch.exp(x)), lambda match: _is_float(match.x)))
    return rules


# ---- numbers that change nothing


def _keeps(x: Any, number: Any, kinds: str) -> bool:
    """Tell whether arithmetic of x and a number gives the dtype of x, which is of some kinds."""
    if is_whole_number(x):
        return type(number) is int and kinds != "floating"
    dtype = dtype_of(x)
    if dtype is None or dtype.is_complex or not keeps_dtype(dtype, number):
        return False  # a complex infinity times 1 is not a number
    return kinds == "all" or dtype.is_floating_point == (kinds == "floating")


def _is_float(x: Any) -> bool:
    dtype = dtype_of(x)
    return dtype is not None and (dtype.is_floating_point or dtype.is_complex)


def _sign(number: float) -> float:
    return math.copysign(1.0, number)


def _once(ownership: Ownership, name: str) -> Rule:
    """A rule that leaves out a function of what the same function gave."""
    function = getattr(torch, name)

    def is_free_copy(match: Match) -> bool | str:
        return ownership.may_stand_for(_inner(match), match.roots[0])

    return rule(lambda x: function(function(x)), _inner, where=is_free_copy, name=f"{name}_twice")


def _inner(match: Match) -> Node:
    return next(node for node in match.nodes if node not in match.roots)


# ---- constants


def _joined_constants(inexact: bool) -> list[Rule]:
    """Rules that make one of two constants that are added or multiplied one after the other."""
    a: Any = Lit(int, float)
    b: Any = Lit(int, float)

    def may_join(operation: Callable[[Any, Any], Any]) -> Callable[[Match], bool]:
        def condition(match: Match) -> bool:
            return _may_join(match.x, match.a, match.b, operation(match.a, match.b), inexact)

        return condition

    table: list[tuple[str, Any, Any, Callable[[Any, Any], Any]]] = [
        ("add_add", lambda x, a=a, b=b: (x + a) + b, lambda x, a, b: x + (a + b), lambda a, b: a + b),
        ("add_sub", lambda x, a=a, b=b: (x + a) - b, lambda x, a, b: x + (a - b), lambda a, b: a - b),
        ("sub_add", lambda x, a=a, b=b: (x - a) + b, lambda x, a, b: x + (b - a), lambda a, b: b - a),
        ("sub_sub", lambda x, a=a, b=b: (x - a) - b, lambda x, a, b: x - (a + b), lambda a, b: a + b),
        ("mul_mul", lambda x, a=a, b=b: (x * a) * b, lambda x, a, b: x * (a * b), lambda a, b: a * b),
    ]
    return [rule(pattern, put, where=may_join(joined), name=name) for name, pattern, put, joined in table]


def _may_join(x: Any, a: Any, b: Any, joined: Any, inexact: bool) -> bool:
    if is_whole_number(x):
        return type(a) is int and type(b) is int
    dtype = dtype_of(x)
    if dtype is None or dtype is torch.bool:
        return False
    if dtype.is_floating_point or dtype.is_complex:
        return inexact and math.isfinite(joined)
    # Whole numbers wrap round, in one step as in two; but torch refuses a number that the dtype does not have.
    limits = torch.iinfo(dtype)
    return type(joined) is int and limits.min <= joined <= limits.max
