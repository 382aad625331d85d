"""Containers that loops over data and sizes fill: captured for every length, guarded or refused."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.capture import filled_dicts, filled_dicts_further, filled_lists, filled_queues

from graphwright import GraphwrightError, GuardError, Interpreter, symbolic_trace, trace

LONG = {"t_lists_by_data"}  # paths by data
PROGRAMS = [
    pytest.param(program, id=program.__name__, marks=[pytest.mark.slow] * (program.__name__ in LONG))
    for module in (filled_dicts, filled_dicts_further, filled_lists, filled_queues)
    for program in module.PROGRAMS
]


def _inputs() -> list[torch.Tensor]:
    made = [torch.randn(n, 3, generator=torch.Generator().manual_seed(n)) for n in (3, 1, 2, 5, 8, 4)]
    return [x.abs() if len(x) % 2 else x for x in made]


# Loops that are unrolled under a guard: `GUARDED` says why, as far as it is not that the program reads a whole.
GUARDED = frozenset(
    # what a loop of the graph does not hold, or reads another way
    "d_eq dd_fixed dd_lambda q_bfs l_tuple_rows l_chain l_accum l_unpack t_return t_swap t_try t_list_eq "
    # another part of the program sees it
    "t_alias_value t_alias_value2 t_view_stale t_helper2 t_helper3 t_fresh_in_body2 a_len a_truth a_stack a_attr "
    "a_tuple a_copyvar "
    # values of several kinds
    "t_kinds_after t_star_kwargs t_zip_dict l_repeated_lists".split()
)
REFUSED = {
    "t_set_plain_ior": "adds what only a run knows to a set that it has made itself",
    "t_get_none_num": "as a key",
}


def same(one: Any, other: Any) -> None:
    """Two values are the same: classes, order of keys, lengths and values."""
    assert type(one) is type(other), (one, other)
    if isinstance(other, torch.Tensor):
        assert one.dtype == other.dtype and one.requires_grad == other.requires_grad
        torch.testing.assert_close(one, other, equal_nan=True)
    elif isinstance(other, dict):
        assert list(one) == list(other) and list(map(type, one)) == list(map(type, other))
        assert getattr(one, "default_factory", None) is getattr(other, "default_factory", None) or "lambda" in repr(
            other
        )
        for key in other:
            same(one[key], other[key])
    elif isinstance(other, list | tuple | collections.deque):
        assert len(one) == len(other) and getattr(one, "maxlen", None) == getattr(other, "maxlen", None)
        for mine, its in zip(one, other, strict=True):
            same(mine, its)
    else:
        assert one == other


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors with gradients in a value."""
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    held = value.values() if isinstance(value, dict) else value
    return (
        [t for item in held for t in tensors(item)]
        if isinstance(value, dict | list | tuple | collections.deque)
        else []
    )


def outcome(program: Callable[[Any], Any], x: torch.Tensor) -> Any:
    """The value and gradient of a call, or the error."""
    x = x.clone().requires_grad_()
    try:
        value = program(x)
    except Exception as error:
        return error
    found = tensors(value)
    (gradient,) = torch.autograd.grad(sum(t.sum() for t in found), x, allow_unused=True) if found else (None,)
    return value, gradient


def agrees(program: Callable[[Any], Any], captured: Callable[[Any], Any], x: torch.Tensor) -> bool:
    """Check one call; False where a guard refuses it."""
    wanted, given = outcome(program, x), outcome(captured, x)
    if isinstance(given, GuardError):
        return False
    if isinstance(wanted, Exception) or isinstance(given, Exception):
        assert type(wanted) is type(given), (wanted, given)
        return True
    same(given, wanted)
    return True


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_length_is_as_in_eager_or_refused(program: Any) -> None:
    name, (example, *others) = program.__name__, _inputs()
    if name in REFUSED:
        with pytest.raises(GraphwrightError, match=REFUSED[name]):
            trace(program, (example,))
        return
    gm = trace(program, (example,))
    assert agrees(program, gm, example)
    agreed = [agrees(program, gm, x) for x in others]
    assert all(agreed) is (name not in GUARDED)
    assert "as one node" not in str(gm.report)


@pytest.mark.sampled(10)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("program", PROGRAMS)
def test_node_by_node_is_as_the_generated_code(program: Any) -> None:
    if program.__name__ in REFUSED:
        pytest.skip("refused")
    gm = trace(program, (_inputs()[0],))
    for x in _inputs()[:3]:
        coded, interpreted = outcome(gm, x), outcome(Interpreter(gm).run, x)
        if isinstance(coded, Exception):
            assert isinstance(interpreted, Exception)
        else:
            same(interpreted[0], coded[0])


@pytest.mark.sampled(5)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("program", PROGRAMS)
def test_symbolic_tracing_is_as_in_eager_or_says_so(program: Any) -> None:
    try:
        gm = symbolic_trace(program)
    except GraphwrightError:
        return
    for x in _inputs():
        agrees(program, gm, x)


def halves_of_two_kinds(x: torch.Tensor) -> Any:
    found: dict[Any, Any] = {}
    while x.sum() > 1:
        found["x"], found[0] = x, 1
        x = x / 2
    return found


def fills(found: dict[int, torch.Tensor], x: torch.Tensor) -> None:
    while x.sum() > 1:
        found[len(found)] = x
        x = x / 2


def filled_elsewhere(x: torch.Tensor) -> int:
    found: dict[int, torch.Tensor] = {}
    fills(found, x)
    return len(found)


def takes_apart(x: torch.Tensor) -> Any:
    found = []
    while x.sum() > 1:
        found.append(x)
        x = x / 2
    first, *rest = found
    return first, rest


@pytest.mark.parametrize(
    ("program", "message", "fix"),
    [
        (halves_of_two_kinds, "found gets items of different kinds", "into a container of its own"),
        (filled_elsewhere, "other parts of the program see it", "return the container from the function"),
        (takes_apart, "the program reads found, which a loop on data fills, as a whole", "read single items"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_line_and_a_way_out(program: Any, message: str, fix: str) -> None:
    with pytest.raises(GraphwrightError) as caught:
        trace(program, (torch.full((3,), 2.0),))
    assert message in str(caught.value) and fix in str(caught.value) and "test_filled.py:" in str(caught.value)
