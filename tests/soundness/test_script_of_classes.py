"""What classes do where objects of them are made, in scripted programs: it is no constant of the program."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from graphwright import ScriptError, script


class Raised(Exception):
    count = 0

    def __init__(self, rows: int) -> None:
        Raised.count += 1
        self.rows = rows


def catches(x: Tensor) -> Tensor:
    try:
        if x.shape[0] > 3:
            raise Raised(x.shape[0])
        return x
    except Raised as error:
        return x * error.rows * Raised.count


class Counts(type):
    def __call__(cls, *args: Any) -> Any:
        cls.count = getattr(cls, "count", 0) + 1
        return super().__call__(*args)


class Counted(metaclass=Counts):
    count = 0

    def __init__(self, value: Tensor) -> None:
        self.value = value


class Made:
    count = 0

    def __new__(cls, value: Tensor) -> Made:
        cls.count += 1
        return super().__new__(cls)

    def __init__(self, value: Tensor) -> None:
        self.value = value


class Logged:
    log: ClassVar[list[str]] = []

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __setattr__(self, name: str, value: Any) -> None:
        Logged.log.append(name)
        object.__setattr__(self, name, value)


def logs(x: Tensor) -> Tensor:
    return Logged(x).value * len(Logged.log)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        pytest.param(catches, "'count', which code of Raised", id="an exception"),
        pytest.param(lambda x: Counted(x).value * Counted.count, "'count', which code of Counted", id="a class of it"),
        pytest.param(lambda x: Made(x).value * Made.count, "'count', which code of Made", id="__new__"),
        pytest.param(logs, "'log', which code of Logged", id="a list of its class"),
    ],
)
def test_what_making_an_object_changes_is_no_constant(program: Any, name: str) -> None:
    with pytest.raises(ScriptError, match=f"reads {name} writes"):
        script(program)


class PastAttributes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(2))
        self.count = 1

    def forward(self, x: Tensor) -> Tensor:
        self._buffers["scale"] += 1
        return x * self.scale


class PastTheObject(PastAttributes):
    def forward(self, x: Tensor) -> Tensor:
        self.__dict__["count"] = 2
        return x * self.count


@pytest.mark.parametrize("make", [PastAttributes, PastTheObject])
def test_what_is_written_past_the_attributes_of_a_module_is_refused(make: Any) -> None:
    with pytest.raises(ScriptError, match=r"writes to '(_buffers|__dict__)', past the attributes"):
        script(make())
