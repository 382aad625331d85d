"""Numbers of the program being captured: sizes, and whatever is computed from them.

A `Symbol` sits behind a `torch.SymInt`, `SymFloat` or `SymBool`, which every C++ argument parser takes where it takes a
number. Arithmetic on it makes further symbols; a node is made only when an operation uses one. When Python, or C code,
wants to know the number itself, the capture is asked.
"""

from __future__ import annotations

import math
import numbers
import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy
import torch

from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.running import stopping
from graphwright.source import is_internal
from graphwright.values import UNKNOWN, leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.source import CallSite

__all__ = ["NUMBERS", "UNKNOWN", "Number", "Symbol", "as_first_index", "as_number", "is_symbolic", "symbol_of"]

Number = int | float | bool


class Symbol:
    """A number that the program computes: `hint` is its value for the example inputs, `kind` its type.

    `is_data` tells that it depends on the data of tensors; fake examples then have no hint.

    It has what torch asks of the node behind a symbolic number; arithmetic is not among that here, because the numbers
    themselves do it.
    """

    __slots__ = (
        "_hint",
        "args",
        "dim",
        "firmness",
        "function",
        "is_data",
        "key",
        "kind",
        "name",
        "recorder",
        "sample",
        "site",
    )

    def __init__(
        self,
        recorder: TypedCapture,
        hint: Number,
        function: Callable[..., Any] | str,
        args: tuple[Any, ...],
        site: CallSite | None,
        kind: type | None = None,
    ) -> None:
        self.recorder = recorder
        self._hint = hint
        self.kind = kind or type(hint)
        self.sample = hint  # a number to run operations on examples with; an arbitrary one where there is no hint
        self.function = function  # a function, or the name of a method of the first argument
        self.args = args  # symbols, nodes and plain values
        self.site = site  # where the program computed it
        self.name = ""  # what the program's source calls it
        self.dim: Any = None  # of the size of a tensor: what tells it from sizes that may be others
        # What tells it from other numbers; tensors and nodes by id, for comparing them would be an operation.
        keys: list[Any] = [function]
        self.is_data: bool = kind is not None
        for arg in args:
            if isinstance(arg, Symbol):
                keys.append(arg.key)
                self.is_data |= arg.is_data
            else:
                keys.append(id(arg))
        self.key: tuple[Any, ...] = tuple(keys)
        # Of numbers of modules: 2 where Python gets the example's, 1 where it gets that unless it asks for the order.
        self.firmness = 0 if function == "training" else _firmness(function, args)

    @property
    def hint(self) -> Number:
        """The value for the example inputs. Raises NeedsRealValues where fake examples cannot tell."""
        if self._hint is UNKNOWN:
            raise stopping(NeedsRealValues("a number that depends on data is used as a size"))
        return self._hint

    @property
    def has_value(self) -> bool:
        """Whether the examples tell the value."""
        return self._hint is not UNKNOWN

    # ---- what torch asks of a symbolic number's node

    def is_int(self) -> bool:
        return self.kind is int

    def is_float(self) -> bool:
        return self.kind is float

    def is_bool(self) -> bool:
        return self.kind is bool

    def is_nested_int(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def has_hint(self) -> bool:
        return self.has_value

    def maybe_as_int(self) -> None:
        return None

    maybe_as_float = maybe_as_bool = maybe_as_int

    def wrap_int(self, number: int) -> Symbol:
        return self.recorder.numbers.constant_symbol(number)

    wrap_float = wrap_bool = wrap_int

    def clone(self) -> Symbol:
        return self

    def __repr__(self) -> str:
        return str(self._hint) if self.has_value else "?"

    _graph_repr = __str__ = __repr__

    # ---- questions

    def _ask(self, file: str = "", line: int = 0) -> Any:
        return self.recorder.questions.answer(self)

    guard_int = guard_float = guard_bool = guard_size_oblivious = expect_true = _ask
    guard_or_false = guard_or_true = statically_known_true = _ask

    def int_(self) -> Any:
        return self.recorder.questions.answer(self)

    bool_ = int_


_ORDERS = frozenset({operator.lt, operator.le, operator.gt, operator.ge, operator.mod})


def _firmness(function: Callable[..., Any] | str, args: tuple[Any, ...]) -> int:
    """That of a number computed from others: plain ones, and those of modules."""
    if isinstance(function, str):
        return 2 if function == "constant" else 0
    least = min([arg.firmness if isinstance(arg, Symbol) else 0 for arg in args], default=0)
    return 0 if least == 1 and function in _ORDERS else least


class _Number:
    """Python's arithmetic on a symbol, for the three kinds of numbers below."""

    node: Symbol
    __array_ufunc__ = None  # the arithmetic of NumPy's numbers asks ours, and does not make plain ones of them first

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __int__(self) -> int:
        return int(self.node.int_())

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.node.int_())

    def __complex__(self) -> complex:
        return complex(self.node.int_())

    def __bool__(self) -> bool:
        return bool(self.node.int_())

    def __str__(self) -> str:
        return str(self.node._hint if self.node.recorder.questions.messages.is_in_message() else self.node.int_())

    def __format__(self, spec: str) -> str:
        return format(
            self.node._hint if self.node.recorder.questions.messages.is_in_message() else self.node.int_(), spec
        )

    def __repr__(self) -> str:
        return str(self) if self.node.recorder.is_running else f"{type(self).__name__}({self.node})"

    def _class_asked(self) -> None:
        """Who reads the class of a number is told that of the example; where it is the program, that is noted."""
        frame = sys._getframe(2)
        if self.node.recorder.is_running and not is_internal(frame.f_code.co_filename):
            self.node.recorder.numbers.class_read(self.node, frame)

    @property
    def real(self) -> Any:
        """The number itself."""
        return self._apply(operator.pos)

    @property
    def imag(self) -> Any:
        """Zero, of the number's own kind."""
        return 0.0 if self.node.is_float() else 0

    def conjugate(self) -> Any:
        """Answer with the number itself."""
        return self._apply(operator.pos)

    def __getattr__(self, name: str) -> Any:
        """What else a number of Python's has: of the plain number, which is asked for."""
        if name.startswith("_") or not hasattr(self.node.kind, name):
            if not name.startswith("_"):
                self._class_asked()
            raise AttributeError(f"{self.node.kind.__name__!r} object has no attribute {name!r}")
        return getattr(self.node.kind(self.node.int_()), name)

    def __sym_float__(self) -> Any:
        return self._apply(float)

    def __sym_int__(self) -> Any:
        return self._apply(int)

    def __sym_not__(self) -> Any:
        return self._apply(operator.not_)

    def __sym_max__(self, other: Number | _Number) -> Any:
        return self._apply(max, other)

    def __sym_min__(self, other: Number | _Number) -> Any:
        return self._apply(min, other)

    def __sym_ite__(self, then: Number | _Number, other: Number | _Number) -> Any:
        return self.node.recorder.questions.branch(self, lambda: then, lambda: other)

    def __hash__(self) -> int:
        # A cache or a dict would keep it beyond the capture.
        if self.node.firmness:
            return hash(self.node.recorder.numbers.firm(self.node))
        if self.node.is_data:
            self.node.recorder.questions.refusals.refuse_data(self, "as a key")
        self.node.recorder.numbers.hashed(self.node)
        raise TypeError(f"unhashable: {self!r} is a number of the captured program, known only when it runs")

    def __round__(self, digits: int | None = None) -> Any:
        return self._apply(round) if digits is None else self._apply(round, digits)

    def __divmod__(self, other: Number | _Number) -> Any:
        parts = self._apply(operator.floordiv, other), self._apply(operator.mod, other)
        return NotImplemented if parts[0] is NotImplemented else parts

    def __rdivmod__(self, other: Number) -> Any:
        return tuple([self._apply(part, other, reflected=True) for part in (operator.floordiv, operator.mod)])

    def _apply(self, function: Callable[..., Any], *others: Any, reflected: bool = False) -> Any:
        recorder = self.node.recorder
        operands = [self.node]
        for other in others:
            symbol = symbol_of(other)
            if symbol is None:
                if not issubclass(type(other), int | float):  # to isinstance, what stands for a float64 of NumPy is one
                    if isinstance(other, numpy.generic | numpy.ndarray):
                        return self._with_numpy(function, other, reflected)
                    if not issubclass(type(other), numbers.Number):
                        return NotImplemented
                    plain = self.node.kind(self)  # a complex number or a `Decimal` knows no others
                    return function(other, plain) if reflected else function(plain, other)
                symbol = recorder.numbers.constant_symbol(other)
            operands.append(symbol)
        if reflected:
            operands.reverse()
        return as_number(recorder.numbers.computed_symbol(function, tuple(operands)))

    def _with_numpy(self, function: Callable[..., Any], other: Any, reflected: bool) -> Any:
        """What NumPy's own arithmetic gives, which is a number or array of its own: `numpy.float32(0.1) * n`."""
        typed = self.node.recorder.typed
        if typed is None:  # nobody knows there what NumPy gives
            is_array = isinstance(other, numpy.ndarray)
            return NotImplemented if is_array else self._apply(function, other.item(), reflected=reflected)
        return typed.record("call_function", function, function, (other, self) if reflected else (self, other), {})


def _define_operators() -> None:
    def define(name: str, function: Callable[..., Any], reflected: bool = False) -> None:
        def method(self: _Number, *others: Any) -> Any:
            return self._apply(function, *others, reflected=reflected)

        method.__name__ = name
        setattr(_Number, name, method)

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor"):
        function = getattr(operator, name, None) or getattr(operator, f"{name}_")
        define(f"__{name}__", function)
        define(f"__r{name}__", function, reflected=True)
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert"):
        define(f"__{name}__", getattr(operator, name))
    for name, function in (("abs", abs), ("trunc", math.trunc), ("floor", math.floor), ("ceil", math.ceil)):
        define(f"__{name}__", function)

    def power(self: _Number, exponent: Any, *modulus: Any) -> Any:
        return self._apply(pow if modulus else operator.pow, exponent, *modulus)

    setattr(_Number, "__pow__", power)  # noqa: B010 - as the others are set


_define_operators()


class IntProxy(_Number, torch.SymInt):
    """An integer that the program computes: to isinstance an int, to C++ a symbolic integer."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        self._class_asked()
        return int


class FloatProxy(_Number, torch.SymFloat):
    """A float that the program computes."""

    def is_integer(self) -> Any:
        """Answer as float does."""
        return (self % 1) == 0  # type: ignore[operator]

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        self._class_asked()
        return float


class BoolProxy(_Number, torch.SymBool):
    """A bool that the program computes: the answer to a comparison, or a training flag."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        self._class_asked()
        return bool


NUMBERS = frozenset({IntProxy, FloatProxy, BoolProxy})


def as_number(symbol: Symbol) -> Any:
    """Wrap a symbol as the torch number that the user's program computes with."""
    if symbol.function == "constant":
        return symbol.hint
    if symbol.kind is int:
        return IntProxy(symbol)  # type: ignore[no-untyped-call]
    kind = FloatProxy if symbol.kind is float else BoolProxy
    return kind(symbol)


def is_symbolic(value: Any) -> bool:
    """Tell whether a value is a number of the captured program."""
    return isinstance(type(value), type) and issubclass(type(value), _Number)


def symbol_of(value: Any) -> Symbol | None:
    """Return the symbol behind a torch number, or None for any other value."""
    return value.node if type(value) in NUMBERS else None


def as_first_index(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Have numbers that only a run knows be 0 where an example is needed, if they may be other indices than those."""
    symbols = [symbol for leaf in leaves((args, kwargs)) if (symbol := symbol_of(leaf)) is not None]
    sampled = [symbol for symbol in symbols if symbol.kind is int and not symbol.has_value and symbol.sample != 0]
    for symbol in sampled:
        symbol.sample = 0
    return bool(sampled)
