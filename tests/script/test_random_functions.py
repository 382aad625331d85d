"""Random programs do, scripted, what they do in Python."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from tests.script.checking import check
from tests.script.random_functions import forget, functions, made

INPUTS = [
    (torch.tensor([0.5, -1.0, 2.0]), 0),
    (torch.tensor([-0.5, -1.0, -2.0]), 1),
    (torch.tensor([3.0, 4.0, 2.0]), 3),
    (torch.tensor([0.0, 0.0, 0.25]), 6),
]


def run(source: str) -> None:
    note(source)
    function = made(source)
    try:
        check(function, INPUTS, interpret=hash(source) % 5 == 0)
    finally:
        forget(function)


_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=_CHECKS)
@given(functions())
@pytest.mark.slow
def test_random_programs_do_what_python_does(source: str) -> None:
    run(source)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=_CHECKS)
@given(functions())
def test_many_random_programs_do_what_python_does(source: str) -> None:
    run(source)
