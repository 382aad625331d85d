"""Numbers of the program being captured: sizes, and whatever is computed from them.

A `Symbol` sits behind a `torch.SymInt`, `SymFloat` or `SymBool`, which every C++ argument parser takes where it takes a
number. Arithmetic on it makes further symbols; a node is made only when an operation uses one. When Python, or C code,
wants to know the number itself, the capture is asked.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.ir import Node

if TYPE_CHECKING:
    from graphwright.capture.recorder import Recorder

__all__ = ["Number", "Symbol", "as_number", "symbol_of"]

Number = int | float | bool


class Symbol:
    """A number that the program computes: `hint` is its value for the example inputs.

    Duck-typed as the node of torch's symbolic numbers.
    """

    __slots__ = ("args", "function", "hint", "key", "name", "node", "recorder", "site")

    def __init__(
        self, recorder: Recorder, hint: Number, function: Callable[..., Any] | str, args: tuple[Any, ...], site: Any
    ) -> None:
        self.recorder = recorder
        self.hint = hint
        self.function = function  # a function, or the name of a method of the first argument
        self.args = args  # symbols, nodes and plain values
        self.site = site  # where the program computed it
        self.node: Node | None = None
        self.name = ""  # what the program's source calls it
        self.key: tuple[Any, ...] = (
            function,
            *(arg.key if isinstance(arg, Symbol) else arg for arg in args),
        )

    # ---- what torch asks of a symbolic number's node

    def is_int(self) -> bool:
        return type(self.hint) is int

    def is_float(self) -> bool:
        return type(self.hint) is float

    def is_bool(self) -> bool:
        return type(self.hint) is bool

    def is_nested_int(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def has_hint(self) -> bool:
        return True

    def maybe_as_int(self) -> None:
        return None

    maybe_as_float = maybe_as_bool = maybe_as_int

    def wrap_int(self, number: int) -> Symbol:
        return self.recorder.constant_symbol(number)

    wrap_float = wrap_bool = wrap_int

    def clone(self) -> Symbol:
        return self

    def str(self) -> str:
        return str(self.hint)

    _graph_repr = __repr__ = __str__ = str

    # ---- questions

    def _ask(self, file: str = "", line: int = 0) -> Any:
        return self.recorder.answer(self)

    guard_int = guard_float = guard_bool = guard_size_oblivious = expect_true = _ask
    guard_or_false = guard_or_true = statically_known_true = _ask

    def int_(self) -> Any:
        return self.recorder.answer(self)

    bool_ = int_

    # ---- arithmetic

    def sym_ite(self, then: Symbol, otherwise: Symbol) -> Symbol:
        return self.recorder.computed_symbol(torch.sym_ite, (self, then, otherwise))




_BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mod": operator.mod,
    "floordiv": operator.floordiv, "int_floordiv": operator.floordiv,
    "truediv": operator.truediv, "int_truediv": operator.truediv, "float_truediv": operator.truediv,
    "pow": operator.pow, "pow_by_natural": operator.pow, "float_pow": operator.pow,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "and_": operator.and_, "or_": operator.or_, "sym_and": operator.and_, "sym_or": operator.or_,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "lshift": operator.lshift, "rshift": operator.rshift,
    "sym_min": min, "sym_max": max,
}  # fmt: skip
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": operator.neg, "pos": operator.pos, "sym_not": operator.not_, "abs": abs, "sym_float": float,
    "trunc": math.trunc, "ceil": math.ceil, "floor": math.floor, "round": round, "sym_int": int,
    "sym_sqrt": math.sqrt,
}  # fmt: skip


def _define_arithmetic() -> None:
    def define(name: str, function: Callable[..., Any]) -> None:
        def method(self: Symbol, *others: Symbol) -> Symbol:
            return self.recorder.computed_symbol(function, (self, *others))

        setattr(Symbol, name, method)

    for name, function in (*_BINARY.items(), *_UNARY.items()):
        define(name, function)


_define_arithmetic()


def as_number(symbol: Symbol) -> Any:
    """Wrap a symbol as the torch number that the user's program computes with."""
    if symbol.is_int():
        return torch.SymInt(symbol)
    return torch.SymFloat(symbol) if symbol.is_float() else torch.SymBool(symbol)


def symbol_of(value: Any) -> Symbol | None:
    """Return the symbol behind a torch number, or None for any other value."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        node = value.node
        return node if isinstance(node, Symbol) else None
    return None
