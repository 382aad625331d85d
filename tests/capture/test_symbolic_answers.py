"""What Python asks of proxies besides truths: identity, texts, keys; and the errors that leave `symbolic_trace`."""

import contextlib
import functools
import itertools
import logging
import os
import re

import pytest
import torch
from torch import Tensor, nn

from graphwright import TraceError, symbolic_trace

ONES, THREES = torch.ones(2), torch.full((2,), 3.0)


def same_inputs(x: Tensor, y: Tensor) -> Tensor:
    return x + 1 if x is y else x - y


def first_is_last(outs: list[Tensor]) -> Tensor:
    return outs[0] if outs[0] is outs[-1] else outs[0] - outs[-1]


def chosen_is_input(x: Tensor, y: Tensor) -> Tensor:
    z = y if x.sum() > 0 else x
    return x + 1 if z is x else x - 1


def one_in_list(x: Tensor, y: Tensor) -> bool:
    return x.sum() in [y.sum()]


def text_of_number(x: Tensor) -> str:
    return str(int(x.sum()))


def text_in_key(x: Tensor) -> Tensor:
    return {"2": x, "6": x - 1}[f"{int(x.sum())}"]


def key_of_run(mode: str, x: Tensor) -> Tensor:
    return {"a": x, "b": x + 1}[mode]


def suppressed(x: Tensor) -> Tensor:
    with contextlib.suppress(ValueError):
        if x.sum() > 2:
            raise ValueError("large")
        x = x + 1
    return x


def returning_at_last(x: Tensor) -> Tensor:
    try:
        if x.sum() > 2:
            raise ValueError("large")
        x = x + 1
    finally:
        return x  # noqa: B012


def sizes_one_by_one(x: Tensor) -> Tensor:
    return torch.zeros(x.shape[0], 3) + torch.ones(2).new_ones(x.shape[0], 3)


CALLS = [
    pytest.param(same_inputs, [(ONES, ONES), (ONES, THREES)], id="two inputs may be one"),
    pytest.param(first_is_last, [([ONES],), ([ONES, THREES],)], id="two items may be one"),
    pytest.param(chosen_is_input, [(ONES, THREES), (-ONES, THREES)], id="a branch gives what it was given"),
    pytest.param(one_in_list, [(ONES, THREES), (ONES, ONES)], id="membership is a bool"),
    pytest.param(text_of_number, [(ONES,), (THREES,)], id="text of a number"),
    pytest.param(text_in_key, [(ONES,), (THREES,)], id="text as a key"),
    pytest.param(key_of_run, [("a", ONES), ("b", ONES)], id="key that only a run has"),
    pytest.param(suppressed, [(ONES,), (THREES,)], id="a context swallows what one side raises"),
    pytest.param(returning_at_last, [(ONES,), (THREES,)], id="finally swallows what one side raises"),
    pytest.param(sizes_one_by_one, [(ONES,), (torch.ones(5, 1),)], id="sizes one by one"),
]


@pytest.mark.parametrize(("program", "calls"), CALLS)
def test_answer_of_each_call(program, calls) -> None:  # type: ignore[no-untyped-def]
    captured = symbolic_trace(program)
    for call in calls:
        want, got = program(*call), captured(*call)
        assert type(got) is type(want)
        assert torch.equal(got, want) if isinstance(want, Tensor) else got == want


def test_a_message_is_no_text_of_the_program() -> None:
    def checked(x: Tensor) -> Tensor:
        if len([x]) > 1:
            raise ValueError(f"{x}")
        logging.getLogger(__name__).debug(f"got {x.shape}")
        return x + 1

    assert [node.target for node in symbolic_trace(checked).graph.nodes if "format" in str(node.target)] == []


def halves(x: Tensor) -> Tensor:
    return x.sum() if x.shape[0] == 1 else halves(x[: x.shape[0] // 2]) * halves(x[x.shape[0] // 2 :])


def counted(x: Tensor) -> Tensor:
    for i in itertools.count():
        x = x + i
        if x.sum() > 3:
            break
    return x


def failing_side(x: Tensor) -> Tensor:
    y = int("a") if x.sum() > 0 else 1
    return x + y


def wrapped(function):  # type: ignore[no-untyped-def]
    @functools.wraps(function)
    def call(self, *args, **more):  # type: ignore[no-untyped-def]
        return function(self, *args, **more)

    return call


class Wrapped(nn.Module):
    @wrapped
    def forward(self, x: Tensor, y: Tensor, **more: Tensor) -> Tensor:
        return x + y


RAISED = [
    pytest.param(halves, RecursionError, "in halves: return x.sum() if", id="recursion on data"),
    pytest.param(
        counted,
        RecursionError,
        "in counted: for i in itertools.count():",
        id="endless iteration",
        marks=pytest.mark.slow,
    ),
    pytest.param(lambda x: [1, 2][x], TypeError, "in <lambda>", id="index"),
    pytest.param(lambda x: torch.Tensor(x.shape[0], 3), TypeError, "in <lambda>", id="refused by C++"),
    pytest.param(lambda x: {}["a"] + x, KeyError, "in <lambda>", id="a key that is not there"),
    pytest.param(lambda x: os.path.basename(x.sum()), TypeError, "in <lambda>", id="raised by Python's library"),
    pytest.param(Wrapped(), TypeError, "def forward(self, x: Tensor, y: Tensor, **more", id="a wrapped signature"),
    pytest.param(failing_side, ValueError, "in failing_side: y = int", id="one side of a fork"),
]


@pytest.mark.parametrize(("program", "kind", "place"), RAISED)
def test_errors_name_the_line_and_the_way_out(program, kind: type[Exception], place: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TraceError, match=re.escape(place)) as raised:
        symbolic_trace(program)
    assert isinstance(raised.value, kind)
    assert "graphwright.trace(model, args)" in str(raised.value)


def test_what_a_program_raises_itself_stays_as_it_is() -> None:
    def refusing(x: Tensor) -> Tensor:
        raise KeyError("no")

    with pytest.raises(KeyError) as raised:
        symbolic_trace(refusing)
    assert type(raised.value) is KeyError


def test_texts_are_joined_in_each_call() -> None:
    captured = symbolic_trace(lambda x: ",".join([str(x.shape[0]), "end"]))
    assert [captured(torch.ones(n)) for n in (2, 5)] == ["2,end", "5,end"]


class Cached(nn.Module):
    """Keeps what it has computed under the name of the device, as models of timm do."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(3))
        self.cache: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = str(x.device)
        if key not in self.cache:
            self.cache[key] = self.bias * 2
        return x + self.cache[key]


def test_nothing_is_in_an_empty_table() -> None:
    model = nn.Sequential(*[Cached() for _ in range(5)])
    gm = symbolic_trace(model)
    assert "if" not in gm.code
    assert torch.equal(gm(torch.zeros(3)), torch.full((3,), 10.0))
