"""Programs as people write them for torch.jit: each does, scripted, what it does in Python."""

from __future__ import annotations

import cmath
import contextlib
import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any, Dict, List, Optional, Tuple, Union

import pytest
import torch
from tests.script.checking import check
from torch import Tensor, nn

from graphwright import GuardError, ScriptError, script
from graphwright.script import ignore, is_instance

X = torch.arange(6.0).reshape(2, 3)
NUMBERS = [(X, 0), (X, 1), (X, 3), (X, -1)]
PROGRAMS: list[tuple[Any, Any]] = []


def program(inputs: Any) -> Callable[[Any], Any]:
    def add(one: Any) -> Any:
        PROGRAMS.append((one, inputs))
        return one

    return add


# ---- types in comments


@program(NUMBERS)
def comment_of_a_signature(x, n):
    # type: (Tensor, int) -> Tensor
    for i in range(n):
        x = x + i
    return x


@program([(X, None), (X, 2)])
def comment_of_each_parameter(
    x,  # type: Tensor
    n=None,  # type: Optional[int]
):
    # type: (...) -> Tuple[Tensor, Optional[int]]
    last = None  # type: Optional[int]
    if n is not None:
        for i in range(n):
            x, last = first_of(x, [i])
    return x, last


def first_of(x, ns):
    # type: (Tensor, List[int]) -> Tuple[Tensor, int]
    return x + ns[0], ns[0]


class CommentedMethods(nn.Module):
    def forward(self, x, n):
        # type: (Tensor, int) -> Tensor
        for i in range(n):
            x = self.times(x, i)
        return x

    def times(self, x, n):
        # type: (Tensor, int) -> Tensor
        return x * n


PROGRAMS.append((CommentedMethods(), NUMBERS))

# ---- values of several types


@program([([1],), ([X],), (3,), ({1: 2},), (None,)])
def asks_for_types(v: Any):
    if torch.jit.isinstance(v, List[int]):
        return 1
    if is_instance(v, Dict[int, int]):
        return 2
    return 3 if torch.jit.isinstance(v, (List[Tensor], int)) else 4


@program([([1],), (["a"],)])
def asks_for_one_of_two(v: Union[List[int], List[str]]):
    if torch.jit.isinstance(v, List[int]):
        return v[0] + 1
    return 0


@program(NUMBERS)
def is_of_another_type_by_side(x, n: int) -> Any:
    y: Union[int, str] = 3
    if n > 0:
        y = "a"
    z: Any = x
    for i in range(n):
        z = i
    if isinstance(y, int):
        return y + 1
    return y, z


# ---- slices, complex numbers


@program(NUMBERS)
def slices_are_values(x, n: int):
    s = slice(n, 3)
    return x[:, s], x[slice(1)], x[slice(0, n), slice(n, None, 2)], [1, 2, 3][s], (1, 2, 3)[slice(1, 2)]


@program([(1.0,), (2 + 3j,), (0j,)])
def complex_numbers(v: complex):
    r, phi = cmath.polar(v)
    return cmath.exp(v), cmath.sqrt(v), cmath.isnan(v), r + phi, cmath.rect(1.0, cmath.pi), cmath.inf


# ---- objects that change, and contexts


class Counter:
    def __init__(self, n: int):
        self.n = n
        self.seen: List[int] = []

    def add(self, k: int):
        self.n += k
        self.seen.append(k)
        return self

    @property
    def twice(self):
        return self.n * 2

    @twice.setter
    def twice(self, n: int):
        self.n = n // 2

    def __len__(self):
        return self.n

    def __call__(self, x):
        return x * self.n

    def __neg__(self):
        return Counter(-self.n)

    def __add__(self, other: Counter):
        return Counter(self.n + other.n)

    def __getitem__(self, i: int):
        return self.n + i

    def __setitem__(self, i: int, value: int):
        self.n = i * value

    def __eq__(self, other: Any):
        return self.n == other.n

    def __lt__(self, other: Any):
        return self.n < other.n

    def __contains__(self, k: int):
        return k in self.seen

    def __iadd__(self, k: int):
        self.n += k
        return self

    def __bool__(self):
        return self.n > 4

    def __abs__(self):
        return Counter(abs(self.n))

    def __enter__(self):
        self.n += 1
        return self.n

    def __exit__(self, kind: Any, value: Any, traceback: Any):
        self.n -= 1


@program(NUMBERS)
def objects_change(x, n: int):
    counter = Counter(n).add(2)
    counter.n = counter.n + 1
    other = -counter + Counter(7)
    for i in range(n):
        counter.n += i
        counter[2] = counter.n
    found = len(abs(other)), other(x), counter[1], counter == other, counter < other, 2 in counter, counter.seen
    counter.twice = counter.twice + 4
    counter += 4
    if counter:
        x = x + 1
    return found, counter.n, x, abs(other).n


@program(NUMBERS)
def objects_are_entered(x, n: int):
    counter = Counter(n)
    with counter as inner, Counter(4):
        x = x * inner
        if n > 1:
            return x + 1, counter.n
        for _ in range(2):
            with counter as inner:
                x = x + inner
    return x, counter.n


@program([(X, 0), (X, 1)])
def an_error_leaves_an_object(x, n: int):
    counter = Counter(3)
    try:
        with counter:
            if n > 0:
                raise ValueError("n")
    except ValueError:
        x = x + 1
    return x, counter.n


@contextlib.contextmanager
def doubled(x) -> Iterator[Tensor]:
    yield x * 2


class Quick(Counter):
    def add(self, k: int):
        return super().add(k * 10)


@program(NUMBERS)
def a_base_and_a_declared_choice(x, n: int):
    last: Union[int, str] = "a" if n > 2 else n
    return Quick(n).add(2).n, last


@program([(X,)])
def contexts_of_functions_and_of_torch(x):
    with doubled(x) as y, torch.autograd.profiler.record_function("f") as _, contextlib.nullcontext():
        return x + y


# ---- modules that a run chooses, and loops over what modules hold


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU()), Scaled()])
        self.heads = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Tanh()})
        self.weights = nn.ParameterList([torch.ones(3), torch.zeros(3)])
        self.register_buffer("offset", torch.ones(3))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 2

    def forward(self, x):
        self.n = self.n + 1
        return x * self.n


class ByNumber(Layers):
    def forward(self, x, n: int):
        return self.layers[n](x)


class ByNumberInALoop(Layers):
    def forward(self, x, n: int):
        for i in range(n):
            layer = self.layers[i]
            x = layer(x) + self.weights[i % 2]
        return x


class BySide(Layers):
    def forward(self, x, n: int):
        layer = self.layers[0] if n > 1 else self.layers[2]
        self.layers[n].n = 5
        if n > 2:
            other = self.layers[1]
        elif n > 0:
            other = self.layers[n]
        else:
            other = self.heads["b"]
        known = self.layers[n] is self.layers[0], self.layers[1] is not layer, isinstance(self.layers[n], Scaled)
        return other(layer(x)) + self.layers[2].n, known


class ByName(Layers):
    def forward(self, x, name: str):
        return self.heads[name](x) if name in self.heads or name == "d" else x


class Listed(Layers):
    def forward(self, x):
        names: List[str] = []
        for name, module in self.named_modules():
            names.append(name)
            if isinstance(module, nn.Linear):
                x = x + module.weight.sum()
        for name, parameter in self.named_parameters():
            names.append(name)
            x = x + parameter.sum()
        for name, buffer in self.named_buffers():
            names.append(name)
            x = x * buffer
        for parameter in self.parameters(False):
            x = x + 100 * parameter.sum()
        return x, names, len(list(self.buffers()))


class OnlyOne(nn.ModuleDict):
    def forward(self, x, name: str):
        return self[name](x)


class SetByName(Layers):
    def forward(self, x):
        setattr(self.layers[2], "n", 9)  # noqa: B010  # on purpose
        for layer in self.layers:
            x = layer(x)
        return x


PROGRAMS += [(ByNumber(), [*NUMBERS, (X, 2)]), (ByNumberInALoop(), NUMBERS), (Listed(), [(X,)]), (SetByName(), [(X,)])]
PROGRAMS.append((OnlyOne({"a": nn.Identity()}), [(X, "a"), (X, "b")]))
PROGRAMS.append((BySide(), [*NUMBERS, (X, 2)]))
PROGRAMS.append((ByName(), [(X, name) for name in "abcd"]))


@pytest.mark.parametrize("one", PROGRAMS, ids=lambda one: getattr(one[0], "__name__", type(one[0]).__name__))
def test_it_does_what_python_does(one: tuple[Any, Any]) -> None:
    check(one[0], one[1])


# ---- what a condition has said already


@dataclasses.dataclass
class Scale:
    by: float

    def get(self) -> float:
        return self.by


@program([(X, None), (X, torch.ones(3))])
def asked_for_none_twice(x, mask: Optional[Tensor] = None):
    if None is not mask:
        x = x * mask
        if mask is None:
            x = x + 100
    elif mask is not None:
        x = x + 200
    return x


@program([(X, None, 1), (X, Scale(2.0), X), (X, None, None)])
def asked_for_kind_twice(x, scale: Optional[Scale], y: Union[int, Tensor, None]):
    if scale is not None:
        x = x * scale.get()
    if isinstance(y, Tensor):
        x = x + 1 if isinstance(y, int) else x + y
    if isinstance(y, int):
        x = x + y if isinstance(y, int) else x
    return x


@program([(X, 2), (X, None)])
def unwrapped(x, n: Optional[int]):
    if n is None:
        n = 3
    else:
        n = torch.jit._unwrap_optional(n)
    return x + n


@program([(2,), (None,)])
def unwrapped_unasked(n: Optional[int]):
    m: int = torch.jit._unwrap_optional(n)
    return m + 1, range(m)[0]


@program([([1, 2], {"a": 1}), ([], {})])
def kinds_of_items(xs: List[int], table: Dict[str, int]):
    found = [isinstance(x, int) for x in xs]
    for x in xs:
        found.append(isinstance(x, float))
    return found, {name: isinstance(value, int) for name, value in table.items()}


@program([([1, "a"], (2,), {"b": 3})])
def containers_of_anything(xs: List, pair: Tuple, table: Dict):
    return len(xs), xs, pair, table


@program([(X,)])
def no_range(x):
    for _ in range():
        x = x + 1
    return x


@program([(X, X), (X, torch.ones(3))])
def declared_later(x, y: Any):
    z: Tensor = y
    return x + 1 if z is None else x


class Swallowing(Counter):
    def __exit__(self, kind: Any, value: Any, traceback: Any):
        return True


def swallows(x):
    with Swallowing(1):
        x = x + 1
    return x


def test_what_was_declared_and_asked_is_checked() -> None:
    with pytest.raises(GuardError, match="this was False"):
        script(declared_later)(X, None)
    for args in (([1.5], {}), ([], {"a": 1.5})):
        with pytest.raises(GuardError, match="this was"):
            script(kinds_of_items)(*args)


class Logging(nn.Module):
    @ignore
    def log(self) -> int:
        return 1

    def forward(self, x):
        return x + self.log()


class LoggingMore(Logging):
    def log(self) -> int:
        return 2 + super().log()


@ignore
def log_otherwise(self) -> int:
    return 3


def test_what_is_left_to_python_is_a_method_of_the_class() -> None:
    module = Logging()
    assert torch.equal(script(module)(X), module(X))
    module.log = types.MethodType(log_otherwise, module)
    for program in (module, LoggingMore()):
        with pytest.raises(ScriptError, match="is marked by `ignore`, and not what its class has as"):
            script(program)


def test_a_type_that_says_not_of_what_is_no_question() -> None:
    def asks(x: Any):
        return torch.jit.isinstance(x, List)

    with pytest.raises(ScriptError, match="this takes a value and a type"):
        script(asks)


def test_a_context_that_may_end_an_error_is_refused() -> None:
    with pytest.raises(ScriptError, match="may end an error"):
        script(swallows)
