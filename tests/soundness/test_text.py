"""Classes, texts and numbers that Python itself would answer: a captured program has what eager has, or says so.

Each program is captured for its first call, and run on all: an answer is eager's, or a GuardError.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import GuardError, trace

TWO, THREE, MANY = torch.ones(2), torch.ones(3), torch.ones(21)
ONE, ANOTHER = torch.tensor(1.0), torch.tensor(2.0)
NAMES = {"2": 10, "3": 20}


def answer(program: Callable[..., Any], call: tuple[Any, ...]) -> str:
    """What a program gives, as text, or the class and text of what it raises."""
    try:
        return repr(program(*call))
    except GuardError:
        return "a guard"
    except Exception as error:
        return f"{type(error).__name__}: {error.args[0] if error.args else ''}"


# ---- classes


def is_tensor(x: Any) -> bool:
    return type(x) is torch.Tensor


class Owner:
    """A method of an object that is no module asks."""

    def takes(self, x: Any) -> bool:
        return {torch.Tensor: True}.get(type(x), False)


OWNER = Owner()


class Deep(nn.Module):
    """A method that a method calls asks; nothing is computed on the way."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if self.first(x) else x - 1

    def first(self, x: Tensor) -> bool:
        return self.second(x)

    def second(self, x: Tensor) -> bool:
        return is_tensor(x)


@functools.singledispatch
def double(value: Any) -> Any:
    return None


@double.register
def _(value: torch.Tensor) -> Any:
    return value * 2


@double.register
def _(value: int) -> Any:
    return value + value


def matched(x: Tensor) -> Any:
    match x.shape[0]:
        case int():
            return x * 2
        case _:
            return x - 1


CLASSES: list[Any] = [
    pytest.param(lambda x: x * 2 if type(x) is torch.Tensor else x - 1, id="type is"),
    pytest.param(lambda x: type(x) == torch.Tensor, id="type =="),  # noqa: E721
    pytest.param(lambda x: type(x) in {torch.Tensor, list}, id="type in"),
    pytest.param(lambda x: x.__class__ is torch.Tensor, id="__class__"),
    pytest.param(lambda x: type(x).__name__, id="name of the class"),
    pytest.param(lambda x: type(x.shape[0]) is int, id="of a size"),
    pytest.param(lambda x: [*map(type, (x, 1))] == [torch.Tensor, int], id="type as a function"),
    pytest.param(lambda x: is_tensor(x), id="in a function"),
    pytest.param(lambda x: OWNER.takes(x), id="in a method of an object"),
    pytest.param(Deep(), id="two methods deep"),
    pytest.param(lambda x: double(x), id="singledispatch"),
    pytest.param(lambda x: double(x.shape[0]), id="singledispatch of a size"),
    pytest.param(matched, id="match"),
]

# ---- texts


def named_error(x: Tensor) -> Tensor:
    if x.shape[0] > 3:
        raise ValueError(f"bad shape {tuple(x.shape)} of {x.shape}")
    return x


def named_in_a_variable(x: Tensor) -> Tensor:
    text = f"bad shape {[*x.shape]}"
    if x.shape[0] > 3:
        raise ValueError(text)
    return x


def ensure(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)


def told_to_a_function(x: Tensor) -> Tensor:
    ensure(x.shape[0] < 5, f"bad shape {tuple(x.shape)}")
    return x


class Kept(nn.Module):
    """A text that the program keeps."""

    last = ""

    def forward(self, x: Tensor) -> str:
        self.last = f"{tuple(x.shape)}"
        return self.last


# The text is that of the run: no guard.
TEXTS: list[Any] = [
    pytest.param(lambda x: f"{tuple(x.shape)} {list(x.shape)} {x.shape}", id="f-string"),
    pytest.param(lambda x: f"{x.shape[0]:>5d}|{x.shape[0]!r}|{x.shape[0]:>{x.shape[0]}}", id="specs"),
    pytest.param(lambda x: f"{x.shape[0] / 3:.2f} {x.shape[0] > 2} {{}}", id="of numbers"),
    pytest.param(lambda x: {str(tuple(x.shape)): x.sum()}, id="as a key"),
    pytest.param(lambda x: repr(x.shape) + str(x.shape[0]), id="repr and str"),
    pytest.param(lambda x: "%d of %s" % (x.shape[0], tuple(x.shape)), id="percent"),  # noqa: UP031
    pytest.param(lambda x: "{} {}".format(x.shape[0], (1, x.shape)), id="format"),  # noqa: UP032
    pytest.param(lambda x: format(x.shape[0], "4d"), id="the function format"),
    pytest.param(lambda x: "x".join(map(str, x.shape)), id="join"),
    pytest.param(lambda x: ",".join(str(s) for s in x.shape), id="join of a generator"),
    pytest.param(lambda x: str({"n": x.shape[0], "all": [x.shape[0], 1]}), id="of a dict"),
    pytest.param(lambda x: len(str(x.shape[0])), id="length"),
    pytest.param(lambda x: x + 1 if f"{x.shape[0]}" == "2" else x - 1, id="compared"),
    pytest.param(lambda x: x + 1 if f"{x.shape[0]}" in ("2", "4") else x - 1, id="among others"),
    pytest.param(lambda x: "2" in f"{x.shape[0]}", id="searched"),
    pytest.param(lambda x: f"a{x.shape[0]}".upper(), id="a method"),
    pytest.param(named_error, id="of an error"),
    pytest.param(named_in_a_variable, id="of an error, in a variable"),
    pytest.param(told_to_a_function, id="of an argument that tells"),
    pytest.param(Kept(), id="kept"),
]


def walrus(x: Tensor) -> Tensor:
    assert (y := NAMES[f"{x.shape[0]}"]) > 0; return x + y  # noqa: E702, RUF018  # fmt: skip


class Heads(nn.Module):
    """Layers that a text of a size chooses."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.in2, self.in3 = how, nn.ReLU(), nn.Sigmoid()
        self.heads = nn.ModuleDict({"in2": nn.ReLU(), "in3": nn.Sigmoid()})

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "assert":
            assert f"in{x.shape[-1]}" in self.heads
            return x
        if self.how == "item":
            return self.heads[f"in{x.shape[-1]}"](x)
        return getattr(self, f"in{x.shape[-1]}")(x)


class Table:
    """What a function written in C reads by name."""

    k2, k3 = 1, 5


def check_by_name(x: Tensor) -> Tensor:
    found = []

    def check(name: str) -> None:
        found.append(getattr(Table, name))

    if x.sum() > 1000:
        x = x + 1
    check(f"k{x.shape[0]}")
    return x + found[0]


# The program looks into the text: its numbers are guarded.
LOOKED_INTO: list[Any] = [
    pytest.param(walrus, id="in an assert"),
    pytest.param(lambda x: torch._check(str(x.shape[0]) == "2"), id="in a check"),
    pytest.param(check_by_name, id="in what is called check"),
    pytest.param(Heads("assert"), id="as a key, in an assert"),
    pytest.param(Heads("item"), id="as a key"),
    pytest.param(Heads("getattr"), id="as the name of an attribute"),
    pytest.param(lambda x: {f"{x.shape[0]}"}, id="in a set"),
    pytest.param(lambda x: f"{x.shape[0]},1".split(","), id="split"),
    pytest.param(lambda x: int(str(x.shape[0])), id="as a number"),
]

# ---- numbers


def length_decides(x: Tensor) -> Tensor:
    return x + 1 if len(x) > 2 else x - 1


def tried(x: Tensor) -> Tensor:
    try:
        if x.shape[-1] != 2:
            raise ValueError("not two")
        y = x + 1
    except ValueError:
        y = x - 1
    return y


def tried_item(x: Tensor) -> Tensor:
    try:
        y = [1, 2, 4][x.shape[0]]
    except IndexError:
        y = 9
    return x + y


# No guard: another size is another answer.
NUMBERS: list[Any] = [
    pytest.param(lambda x: x.sum(0) / len(x), id="divided by the length"),
    pytest.param(lambda x: torch.zeros(len(x)), id="the length as a size"),
    pytest.param(lambda x: torch.add(x, len(x)), id="the length as an operand"),
    pytest.param(lambda x: torch.tensor(range(x.size(0))), id="tensor of a range"),
    pytest.param(length_decides, id="the length decides"),
    pytest.param(tried, id="an error that a size decides"),
    pytest.param(tried_item, id="an index that is too large"),
    pytest.param(lambda x: [1, 2, 4, 8, *range(20)][x.shape[0]], id="item of a list"),
    pytest.param(lambda x: int.__mul__(x.shape[0], 2), id="a method of int"),
    pytest.param(lambda x: (x.shape[0].real, x.shape[0].imag, (x.shape[0] / 3).is_integer()), id="attributes"),
    pytest.param(lambda x: x.new(x.size()).shape, id="new"),
    pytest.param(lambda x: torch.Tensor(x.shape).shape, id="Tensor of a shape"),
    pytest.param(lambda x: x.shape[0] is x.numel(), id="identity of numbers"),
    pytest.param(lambda x: (x.shape[0] > 2) is True, id="identity of a bool"),
]
GUARDED: list[Any] = [
    pytest.param(lambda x: x.shape[0].bit_length(), id="a method that needs the number"),
    pytest.param(lambda x: x.numpy().tolist(), id="as many as in a list of numbers"),
    pytest.param(lambda x: hash(x.shape[0]), id="hash"),
]


@pytest.mark.parametrize("program", [*CLASSES, *TEXTS, *NUMBERS])
def test_the_run_is_asked(program: Callable[..., Any]) -> None:
    gm = trace(program, (TWO,))
    assert [answer(gm, (x,)) for x in (TWO, THREE, MANY)] == [answer(program, (x,)) for x in (TWO, THREE, MANY)]


@pytest.mark.parametrize("program", [*LOOKED_INTO, *GUARDED])
def test_else_a_guard_asks(program: Callable[..., Any]) -> None:
    gm = trace(program, (TWO,))
    assert answer(gm, (TWO,)) == answer(program, (TWO,))
    for x in THREE, MANY:
        assert answer(gm, (x,)) in (answer(program, (x,)), "a guard")


PAIRS: list[Any] = [
    pytest.param(lambda x, y: [x] == [y], id="lists"),
    pytest.param(lambda x, y: (x, 1) != (y, 1), id="tuples"),
    pytest.param(lambda x, y: {"a": x} == {"a": y}, id="dicts"),
    pytest.param(lambda x, y: x in [y], id="in"),
    pytest.param(lambda x, y: [y, x].index(x), id="index"),
    pytest.param(lambda x, y: str(int(x)), id="text of data"),
    pytest.param(lambda x, y: [1, 2, 4, 8][int(x)], id="item by data"),
    pytest.param(lambda x, y: torch.complex(x, y).item().real, id="a complex number"),
]


@pytest.mark.parametrize("program", PAIRS)
def test_what_data_decides_is_a_plain_answer(program: Callable[..., Any]) -> None:
    gm = trace(program, (ONE, ANOTHER))
    for call in (ONE, ANOTHER), (ONE, ONE), (ANOTHER, ONE.clone()), (ONE, ONE.clone()):
        assert answer(gm, call) == answer(program, call)


def test_texts_that_nobody_looks_into_are_no_guards() -> None:
    def program(x: Tensor) -> Tensor:
        ensure(x.ndim >= 1, f"bad {x.shape}")
        return x * 2

    gm = trace(program, (TWO,))
    assert not [guard for guard in gm.guards if "2" in str(guard).partition("dimension")[0] and "ensure" in str(guard)]
    assert torch.equal(gm(MANY), MANY * 2)


def test_an_argument_that_is_asked_for_is_asked_for_at_the_call() -> None:
    def program(x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x if mask is None else x * mask

    gm = trace(program, (TWO, TWO))
    with pytest.raises(GuardError, match=r"argument 'mask' was a tensor .* now it is None"):
        gm(TWO)


def text_of_the_last(x: Tensor) -> Any:
    name = "none"
    for _ in range(x.shape[0]):
        name = "some"
    return x, name


def text_that_grows(x: Tensor) -> Any:
    found = ""
    for row in x:
        found = found + str(int(row.sum()))
    return found


def text_that_is_asked_for(x: Tensor) -> Any:
    name, count = "first", 0
    while x.sum() < 10:
        x = x + 1
        count = count + 1 if name == "first" else count
        name = "other"
    return x, count


@pytest.mark.parametrize("program", [text_of_the_last, text_that_grows, text_that_is_asked_for])
def test_a_text_that_a_loop_changes_is_that_of_the_run(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.ones(3, 2),))
    for rows in (1, 3, 5):
        assert str(gm(torch.ones(rows, 2))) == str(program(torch.ones(rows, 2)))
