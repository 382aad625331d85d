"""Programs that go on without an end while they are captured."""

import itertools

import pytest
import torch
from torch import Tensor

import graphwright
from graphwright.capture.proxies import recording
from graphwright.capture.python import callers


def endless_while(x: Tensor) -> Tensor:
    while True:
        x = x + 1


def grows_while_it_is_walked(x: Tensor) -> Tensor:
    found = [x]
    for value in found:
        found.append(value + 1)
    return x


@pytest.mark.parametrize("program", [endless_while, grows_while_it_is_walked])
def test_an_endless_loop_ends_in_an_error_at_its_line(program, monkeypatch) -> None:
    monkeypatch.setattr(callers, "MOST_OPERATIONS", 50)
    with pytest.raises(graphwright.CaptureError, match=r"(?s)may have no end.*test_endless.py.*bound it"):
        graphwright.trace(program, (torch.ones(2),))


def test_a_line_may_record_as_many_operations_as_that(monkeypatch) -> None:
    monkeypatch.setattr(callers, "MOST_OPERATIONS", 50)

    def bounded(x: Tensor) -> Tensor:
        for i in range(50):
            x = x + i
        return x

    assert graphwright.trace(bounded, (torch.zeros(1),))(torch.zeros(1)).item() == sum(range(50))


def counts_for_ever(x: Tensor) -> Tensor:
    for i in itertools.count():
        x = x + i
    return x


@pytest.mark.parametrize("program", [counts_for_ever, grows_while_it_is_walked])
def test_a_symbolic_trace_of_one_does_too(program, monkeypatch) -> None:
    monkeypatch.setattr(recording, "MOST_OPERATIONS", 50)
    with pytest.raises(graphwright.TraceError, match=r"(?s)may have no end.*test_endless.py.*bound it"):
        graphwright.symbolic_trace(program)
