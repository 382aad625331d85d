# ruff: noqa: UP030, UP031, UP032
"""Messages of errors that a program raises: the texts in them are those of the run, however they are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import symbolic_trace, trace


class Config:
    def __init__(self, size: Any) -> None:
        self.size = size

    def __repr__(self) -> str:
        return f"Config({self.size})"


class Meter(Config):
    def __str__(self) -> str:
        return "%d rows" % self.size

    def __format__(self, spec: str) -> str:
        return "<" + str(self.size) + ">"


@dataclasses.dataclass
class Shape:
    rows: Any
    inner: Any = None


def repr_in_text(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError(f"bad {Config(x.shape[0])!r} {Config(x.shape)}")
    return x


def texts_of_a_class(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError(f"bad {Meter(x.shape[0])!s} {Meter(x.shape[0])} {Meter(x.shape[0])!r}")
    return x


def dataclass(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError(f"bad {Shape(x.shape[0])} {Shape(x.shape[1], Shape(x.shape[0]))!r}")
    return x


def asked_inside(x: Tensor) -> Tensor:
    config = Config(x.shape)
    if x.sum() > 0:
        raise ValueError(f"bad {repr(config)} {str(Meter(x.shape[0])):>9} {{}}")  # noqa: RUF010
    return x


def made_before(x: Tensor) -> Tensor:
    config = Config(x.shape[0])
    if x.shape[0] > 4:
        raise ValueError(f"bad {config!r}")
    return x


def asserted(x: Tensor) -> Tensor:
    torch._assert(x.sum() < 0, f"bad {Config(x.size(0))!r} {[x.shape[0], x.shape]}")
    return x


def joined(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError("bad " + str(Config(x.shape[0])) + repr(Config(x.shape[1])))
    return x


def percent(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError("bad %d %05d%% %s %r" % (x.shape[0], x.shape[1], x.shape, x.dtype))
    return x


def percent_of_one(x: Tensor) -> Tensor:
    torch._assert(x.sum() < 0, "bad %d" % x.shape[0])
    return x


def percent_by_name(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError("bad %(rows)s" % {"rows": x.shape[0]})
    return x


def percent_of_data(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError("bad " + "%.3f" % x.sum().item() + "!")
    return x


def percent_of_a_class(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError("bad %r %s %s" % (Config(x.shape), Meter(x.shape[0]), Shape(x.shape[0])))
    return x


def format_method(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError("bad {:04d} {{}} {!r:>6} {}".format(x.shape[0], x.shape[1], x.dtype))
    return x


def format_by_name(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError("bad {1} {rows:>4} {0} {1}".format(x.shape[1], x.shape[0], rows=x.shape[0]))
    return x


def format_inside(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError("bad {0.shape} {1[0]} {2}".format(x, x.shape, list(x.shape)), x.shape[0])
    return x


def format_of_a_class(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError("bad {} {!r}".format(Meter(x.shape[0]), Config(x.shape[0])))
    return x


def str_and_repr(x: Tensor) -> Tensor:
    if x.sum() > 0:
        raise ValueError("bad " + str(x.shape[0]) + repr(x.sum().item()))
    return x


def caught(x: Tensor) -> Any:
    try:
        if x.sum() > 0:
            raise ValueError("bad %d" % x.shape[0])
    except ValueError as error:
        return x, str(error)
    return x, ""


PROGRAMS = [
    repr_in_text, texts_of_a_class, dataclass, asked_inside, made_before, asserted, joined, percent, percent_of_one,
    percent_by_name, percent_of_data, percent_of_a_class, format_method, format_by_name, format_inside,
    format_of_a_class, str_and_repr, caught,
]  # fmt: skip


def told(program: Callable[[Tensor], Any], x: Tensor) -> str:
    try:
        return str(program(x))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    "capture", [lambda f: trace(f, (-torch.ones(3, 4),)), symbolic_trace], ids=["trace", "symbolic"]
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_message_is_that_of_the_run(program: Any, capture: Callable[[Any], Any], capsys: Any) -> None:
    captured = capture(program)
    for x in (-torch.ones(3, 4), torch.ones(3, 4), torch.ones(5, 4), torch.ones(6, 4)):
        assert told(captured, x) == told(program, x)


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("level", torch.tensor(2.0))
        self.normal = torch.distributions.Normal(torch.tensor(0.0), torch.tensor(1.0), validate_args=True)


class RaisesIt(Held):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            raise ValueError(f"{self.level:.2f} {self.scale}" + "%s" % self.level + repr(self.level))
        return x


class GivesIt(Held):
    def forward(self, x: Tensor) -> Any:
        print(self.level, f"{self.level:.1f}")
        text = f"{self.level}"
        return x * len(text), text, str(self.scale)


class Checks(Held):
    def forward(self, x: Tensor) -> Tensor:
        return self.normal.log_prob(x)


@pytest.mark.parametrize("kind", [RaisesIt, GivesIt])
def test_the_text_of_a_tensor_that_a_module_holds_is_that_of_the_run(kind: Any, capsys: Any) -> None:
    model = kind()
    gm = trace(model, (-torch.ones(2),))
    for level in (2.0, 7.25):
        model.level.fill_(level)
        for x in (-torch.ones(2), torch.ones(2)):
            assert told(gm, x) == told(model, x)
            out = capsys.readouterr().out.splitlines()
            assert out[::2] == out[1::2]


def test_an_error_inside_of_torch_is_that_of_the_run() -> None:
    model = Checks()
    gm = trace(model, (torch.ones(2),))
    with pytest.raises(ValueError, match="Expected value argument"):
        gm(torch.tensor([1.0, float("nan")]))
