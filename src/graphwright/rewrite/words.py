"""The words that patterns are written with, beside the operations themselves.

All of them work inside of a function that is traced, and in an expression that is written without one:

>>> import torch
>>> linear = mod(torch.nn.Linear, "linear")
>>> def in_a_function(x):
...     return torch.relu(linear(x))
>>> as_an_expression = torch.relu(linear(Var("x")))
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any as AnyValue

from torch import nn

from graphwright.capture import find_tracer
from graphwright.errors import PatternError


class Word:
    """What stands in a pattern for more than one value or operation. `name` is what a match calls what it stood for."""

    name: str

    def __fx_create_arg__(self, tracer: AnyValue) -> Word:
        return self

    @classmethod
    def __torch_function__(
        cls, function: AnyValue, types: AnyValue, args: AnyValue = (), kwargs: AnyValue = None
    ) -> AnyValue:
        """Stand where torch wants a number: `torch.add(x, y, alpha=Lit(int))`."""
        tracer = find_tracer(args, kwargs)
        if tracer is None:
            return Expression("call_function", function, tuple(args), dict(kwargs or {}))
        return tracer.torch_function(function, tuple(args), dict(kwargs or {}))


# ---- in place of values


class Any(Word):
    """Any value: of the graph, or a literal. With a name, it is part of the match.

    >>> Any()
    Any()
    """

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Any({self.name!r})" if self.name else "Any()"


class Lit(Word):
    """A literal of these types, which the match knows by name: that of the parameter it is the default of, or `name`.

    Without types, any literal: what the graph has written out, rather than computes. Raises PatternError for what is
    no type.

    >>> Lit(float), Lit(int, bool, name="dim")
    (Lit(float), Lit(int, bool, name='dim'))
    """

    def __init__(self, *types: type, name: str = "") -> None:
        for kind in types:
            if not isinstance(kind, type):
                raise PatternError(
                    f"Lit takes types, and {kind!r} is a value", fix="write the value itself, or the type of a literal"
                )
        self.types = types
        self.name = name

    def __repr__(self) -> str:
        parts = [kind.__name__ for kind in self.types] + ([f"name={self.name!r}"] if self.name else [])
        return f"Lit({', '.join(parts)})"


# ---- in place of operations


class Called(Word):
    """A word that is called as an operation is."""

    __name__: str

    def __call__(self, *args: AnyValue, **kwargs: AnyValue) -> AnyValue:
        tracer = find_tracer(args, kwargs)
        if tracer is None:
            return Expression("call_function", self, args, kwargs)
        return self.record(tracer, args, kwargs)

    def record(self, tracer: AnyValue, args: AnyValue, kwargs: AnyValue) -> AnyValue:
        """Write the call into a pattern."""
        return tracer.create_proxy("call_function", self, args, kwargs)


class ModuleOf(Called):
    """A module of one of some classes; see `mod`."""

    def __init__(self, classes: tuple[type[nn.Module], ...], name: str) -> None:
        self.classes, self.name = classes, name
        self.__name__ = name or classes[0].__name__

    def __repr__(self) -> str:
        return f"mod({' | '.join(kind.__name__ for kind in self.classes)}{', ' if self.name else ''}{self.name})"


def mod(*classes: type[nn.Module] | str, name: str = "") -> ModuleOf:
    """Stand for a module of one of these classes, whatever its name: `mod(nn.Linear, "linear")(x)`.

    A match has the module itself under the name; in the replacement, `linear.weight` is a value of the graph. A
    subclass counts if its `forward` is that of the class. The name may come last, or be that of the parameter that
    this is the default of.

    >>> mod(nn.Conv1d, nn.Conv2d, "conv")
    mod(Conv1d | Conv2d, conv)
    """
    kinds = list(classes)
    if kinds and isinstance(kinds[-1], str):
        name = kinds.pop()  # type: ignore[assignment]
    if not kinds:
        raise PatternError("mod takes the class of a module", fix="mod(nn.Module) stands for any")
    for kind in kinds:
        if not (issubclass(type(kind), type) and issubclass(kind, nn.Module)):  # type: ignore[arg-type]
            raise PatternError(f"mod takes classes of modules, and {kind!r} is none", fix="write mod(nn.Linear)")
    return ModuleOf(tuple(kinds), name)  # type: ignore[arg-type]


class OneOf(Called):
    """One of some operations; see `one_of`."""

    def __init__(self, choices: tuple[Callable[..., AnyValue], ...], name: str) -> None:
        self.choices, self.name = choices, name
        self.__name__ = name or "one_of"

    def __repr__(self) -> str:
        return f"one_of({', '.join(getattr(each, '__name__', repr(each)) for each in self.choices)})"

    def record(self, tracer: AnyValue, args: AnyValue, kwargs: AnyValue) -> AnyValue:
        results = tuple([choice(*args, **kwargs) for choice in self.choices])
        return tracer.create_proxy("call_function", self, results, {})


def one_of(*choices: Callable[..., AnyValue], name: str = "") -> OneOf:
    """Stand for whichever of these operations is there: `one_of(torch.relu, F.gelu, name="activation")(x)`.

    Each is called in the pattern with the same arguments; the first that is found counts. With a name, the match
    knows which it was.

    >>> import torch
    >>> one_of(torch.relu, torch.tanh)
    one_of(relu, tanh)
    """
    if not choices:
        raise PatternError("one_of takes the operations of which one is there", fix="one_of(torch.relu, torch.tanh)")
    for choice in choices:
        if not callable(choice):
            raise PatternError(f"one_of takes functions, and {choice!r} is none", fix="one_of(lambda x: x + 1, ...)")
    return OneOf(choices, name)


class Repeat(Called):
    """An operation as often as it is there; see `repeat`."""

    def __init__(self, step: Callable[..., AnyValue], at_least: int, at_most: int | None, name: str) -> None:
        self.step, self.at_least, self.at_most, self.name = step, at_least, at_most, name
        self.__name__ = name or "repeat"

    def __repr__(self) -> str:
        return f"repeat({getattr(self.step, '__name__', self.step)!s}, {self.at_least}, {self.at_most})"

    def record(self, tracer: AnyValue, args: AnyValue, kwargs: AnyValue) -> AnyValue:
        if len(args) != 1 or kwargs:
            raise PatternError("what is repeated takes one value and gives the next", fix="repeat(lambda x: ...)(x)")
        hole = tracer.create_proxy("call_function", before, (), {})
        return tracer.create_proxy("call_function", self, (self.step(hole), hole, args[0]), {})


def before() -> None:
    """In a pattern, the value that a repetition finds."""


def repeat(step: Callable[..., AnyValue], at_least: int = 1, at_most: int | None = None, name: str = "") -> Repeat:
    """Stand for a chain of operations of one kind, as long as it is: `repeat(lambda x: torch.relu(x))(x)`.

    What `step` names is a list in the match, with an item for each time, the last one first; `name` is how often it
    was there. Raises PatternError for numbers that no chain can have.

    >>> repeat(mod(nn.Linear, "layers"), 2)
    repeat(layers, 2, None)
    """
    if at_least < 0 or (at_most is not None and at_most < max(at_least, 1)):
        raise PatternError(
            f"nothing is there at least {at_least} and at most {at_most} times", fix="repeat(step, 1, 3)"
        )
    return Repeat(step, at_least, at_most, name)


def maybe(step: Callable[..., AnyValue], name: str = "") -> Repeat:
    """Stand for an operation that may be left out: `maybe(mod(nn.Dropout))(x)`.

    What `step` names is a list in the match, with one item or none.

    >>> import torch
    >>> maybe(torch.relu)
    repeat(relu, 0, 1)
    """
    return Repeat(step, 0, 1, name)


# ---- expressions


class Expression:
    """A pattern that is written without a function around it: operations on `Var`s.

    Operators, methods and torch's functions give further expressions.
    """

    def __init__(self, op: str, target: AnyValue, args: tuple[AnyValue, ...], kwargs: dict[str, AnyValue]) -> None:
        self._op, self._target, self._args, self._kwargs = op, target, args, kwargs

    @classmethod
    def __torch_function__(
        cls, function: AnyValue, types: AnyValue, args: AnyValue = (), kwargs: AnyValue = None
    ) -> Expression:
        return Expression("call_function", function, tuple(args), dict(kwargs or {}))

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        return Expression("call_function", getattr, (self, name), {})

    def __call__(self, *args: AnyValue, **kwargs: AnyValue) -> Expression:
        if self._target is getattr:
            owner, name = self._args
            return Expression("call_method", name, (owner, *args), kwargs)
        return Expression("call_method", "__call__", (self, *args), kwargs)

    def on(self, values: dict[int, AnyValue]) -> AnyValue:
        """Do with proxies what the expression says; `values` has what is known already, by id of the expression."""
        if id(self) not in values:
            args = [_on(arg, values) for arg in self._args]
            kwargs = {key: _on(arg, values) for key, arg in self._kwargs.items()}
            call = getattr(args.pop(0), self._target) if self._op == "call_method" else self._target
            values[id(self)] = call(*args, **kwargs)
        return values[id(self)]

    def variables(self) -> dict[str, Var]:
        """The variables inside, by name, in the order in which they are read."""
        found: dict[str, Var] = {}
        waiting: list[AnyValue] = [self]
        seen = set()
        while waiting:
            value = waiting.pop()
            if isinstance(value, Var):
                if found.setdefault(value.name, value) is not value:
                    raise PatternError(
                        f"two variables of the pattern are called {value.name!r}", fix="use one Var in both places"
                    )
            elif isinstance(value, Expression) and id(value) not in seen:
                seen.add(id(value))
                waiting += reversed([*value._args, *value._kwargs.values()])
            elif isinstance(value, tuple | list):
                waiting += reversed(value)
            elif isinstance(value, dict):
                waiting += reversed(value.values())
        return found


def _on(value: AnyValue, values: dict[int, AnyValue]) -> AnyValue:
    if isinstance(value, Expression):
        return value.on(values)
    if isinstance(value, tuple | list):
        return type(value)([_on(item, values) for item in value])
    if isinstance(value, dict):
        return {key: _on(item, values) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(_on(value.start, values), _on(value.stop, values), _on(value.step, values))
    return value


class Var(Expression):
    """A value that an expression reads, by the name that matches know it by; `kind` is a `Lit` or a `mod`, or nothing.

    >>> x = Var("x")
    >>> list((x.relu() + Var("bias")).variables())
    ['x', 'bias']
    """

    def __init__(self, name: str, kind: Word | None = None) -> None:
        if not name.isidentifier():
            raise PatternError(f"{name!r} is no name for a value of a pattern", fix="use letters, digits, underscores")
        self.name, self.kind = name, kind

    def on(self, values: dict[int, AnyValue]) -> AnyValue:
        return values[id(self)]


def _define_operators() -> None:
    def binary(function: AnyValue) -> tuple[AnyValue, AnyValue]:
        def forward(self: Expression, other: AnyValue) -> Expression:
            return Expression("call_function", function, (self, other), {})

        def backward(self: Expression, other: AnyValue) -> Expression:
            return Expression("call_function", function, (other, self), {})

        return forward, backward

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
        plain = name.rstrip("_")
        forward, backward = binary(getattr(operator, name))
        setattr(Expression, f"__{plain}__", forward)
        setattr(Expression, f"__r{plain}__", backward)
    for name in ("lt", "le", "gt", "ge", "getitem"):
        setattr(Expression, f"__{name}__", binary(getattr(operator, name))[0])
    for name in ("neg", "invert", "abs"):
        function = getattr(operator, name)
        setattr(Expression, f"__{name}__", _unary(function))


def _unary(function: AnyValue) -> AnyValue:
    return lambda self: Expression("call_function", function, (self,), {})


_define_operators()
