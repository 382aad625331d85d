"""The text of a size decides nothing in a message, and is a question like any other everywhere else."""

from __future__ import annotations

import logging
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import GuardError, trace
from graphwright.source.roles import Role, role_of

logger = logging.getLogger("tests.messages")
TABLE = {"2": 10.0, "3": 20.0}


class Heads(nn.Module):
    """Has one width of heads: for another one eager raises. With `asks` its forward is converted."""

    def __init__(self, asks: bool) -> None:
        super().__init__()
        self.heads, self.asks = {"in2": 1}, asks

    def forward(self, x: Tensor) -> Tensor:
        if self.asks and x.sum() > 0:
            x = x * 2
        assert f"in{x.shape[-1]}" in self.heads, f"none for {x.shape}"
        return x + 1


def looked_up_in_an_assert(x: Tensor) -> Tensor:
    assert (y := TABLE[f"{x.shape[0]}"]) > 0  # noqa: RUF018
    return x + y


def compared_in_a_check(x: Tensor) -> Tensor:
    n = x.shape[0]
    torch._check(str(n) == "2")
    return x * 2


def checked_and_asked(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x + 1
    torch._check(TABLE[str(x.shape[0])] == 10.0)
    return x


def kept_from_a_log(x: Tensor) -> Tensor:
    logger.info(name := f"{x.shape[0]}")
    return x + TABLE[name]


def beside_a_warning(x: Tensor) -> Tensor:
    warnings.warn("rows"); name = str(x.shape[0])  # noqa: B028, E702  # fmt: skip
    return x + TABLE[name]


def looked_up_in_a_print(x: Tensor) -> Tensor:
    print(y := TABLE[f"{x.shape[0]}"])
    return x + y


def passed_to_a_check(x: Tensor) -> Tensor:
    found = []

    def check_width(x: Tensor, name: str) -> None:
        found.append(TABLE[name])

    check_width(x, f"{x.shape[0]}")
    return x + found[0]


def taken_apart_by_a_check(x: Tensor) -> Tensor:
    found = []

    def check_width(x: Tensor, name: str) -> None:
        found.append(TABLE[name.removeprefix("w")])

    check_width(x, f"w{x.shape[0]}")
    return x + found[0]


ELSEWHERE: list[Callable[[Tensor], Tensor]] = [
    Heads(False), Heads(True), looked_up_in_an_assert, compared_in_a_check, checked_and_asked, kept_from_a_log,
    beside_a_warning, looked_up_in_a_print, passed_to_a_check, taken_apart_by_a_check,
]  # fmt: skip


@pytest.mark.parametrize("program", ELSEWHERE, ids=lambda program: getattr(program, "__name__", None))
@pytest.mark.filterwarnings("ignore:rows")
def test_a_text_that_decides_something_is_that_of_the_run_or_guarded(program: Callable[[Tensor], Tensor]) -> None:
    gm = trace(program, (torch.ones(2),))
    assert torch.equal(gm(torch.ones(2)), program(torch.ones(2)))
    try:
        found = gm(torch.ones(3))
    except GuardError:
        return
    except Exception as error:
        with pytest.raises(type(error), match=re.escape(str(error).partition("\n")[0])):
            program(torch.ones(3))
    else:
        assert torch.equal(found, program(torch.ones(3)))


class Tells(nn.Module):
    """Whatever tells a size: nothing depends on it."""

    log = logger

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        assert n > 0, f"no rows: {n}"
        torch._check(n > 0, lambda: f"no rows: {n}")
        logger.info("rows %s", str(n).rjust(4) + "!")
        self.log.info("{} rows".format(n), extra={"rows": f"{n}"})  # noqa: UP032
        logging.getLogger("tests.messages.other").info(", ".join(map(str, x.shape)))
        logging.info(f"rows {n}")
        warnings.warn(UserWarning(f"rows {n}"), stacklevel=2)
        if n == 0:
            raise ValueError(f"no rows: {self.told(n)}")
        return x * 2

    def told(self, n: int) -> str:
        return f"{n}"


@pytest.mark.filterwarnings("ignore:rows")
def test_a_text_that_only_tells_something_fixes_nothing() -> None:
    gm = trace(Tells(), (torch.ones(2),))
    assert torch.equal(gm(torch.ones(3)), torch.full((3,), 2.0))


class _Asks:
    """Notes what its text is for, whenever it is asked."""

    def __init__(self) -> None:
        self.roles: list[Role] = []

    def __str__(self) -> str:
        frame: Any = sys._getframe(1)
        self.roles.append(role_of(frame.f_code, frame.f_lasti).role)
        return ""


def test_the_place_in_the_tree_says_what_a_text_is_for() -> None:
    n, table = _Asks(), {"": 0}
    try:
        assert table[str(n)], f"{table[str(n)]} {str(n)}"  # noqa: RUF010
    except AssertionError:
        pass
    try:
        raise ValueError(
            "several lines",
            str(n),
        )
    except ValueError:
        pass
    print(str(n), end=""); str(n)  # noqa: E702  # fmt: skip
    assert n.roles == [Role.PLAIN, Role.PLAIN, Role.MESSAGE, Role.RAISED, Role.GIVEN, Role.PLAIN]


class TooLongError(ValueError):
    """What a program raises for inputs that it does not take."""


def checked(x: Tensor) -> Tensor:
    if x.shape[0] > 5:
        raise TooLongError(f"more than {x.shape[0]}")
    return x * 2


def told_again(x: Tensor) -> Tensor:
    try:
        return checked(x)
    except TooLongError as error:
        message = "bad"
        message += f" shape {x.shape}."
        raise TooLongError(message + f"\n {error}") from None


def test_a_message_about_an_error_is_that_of_the_run() -> None:
    gm = trace(lambda x: told_again(x) if x.sum() > 0 else told_again(x + 1), (torch.ones(2),))
    for captured in (gm, pickle.loads(pickle.dumps(gm))):
        with pytest.raises(TooLongError, match=r"bad shape torch.Size\(\[7\]\).\n more than 7"):
            captured(torch.ones(7))
