"""Programs whose handlers catch whatever comes: what stops a capture is not theirs to catch."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import CaptureError, trace


def drawn_function(x: Any) -> Any:
    return random.choice([torch.relu, torch.tanh])(x)  # no graph has a function that is drawn


def a_variable_of_one_side(x: Any) -> Any:
    if x.sum() > 0:
        y = x + 1
    return y + 1


def catches_errors(question: Callable[[Any], Any], x: Any) -> Any:
    try:
        question(x)
    except Exception:
        return -x
    return x * 2


def catches_value_errors(question: Callable[[Any], Any], x: Any) -> Any:
    try:
        question(x)
    except ValueError:
        return -x
    return x * 2


def catches_everything(question: Callable[[Any], Any], x: Any) -> Any:
    try:
        question(x)
    except:  # noqa: E722 - programs do that
        return -x
    return x * 2


def catches_at_the_end(question: Callable[[Any], Any], x: Any) -> Any:
    y = -x
    try:
        question(x)
    except:  # noqa: E722
        pass
    return y


def makes_its_own_error(question: Callable[[Any], Any], x: Any) -> Any:
    try:
        return question(x) + x
    except:  # noqa: E722
        raise RuntimeError("the model failed")  # noqa: B904


def suppresses(question: Callable[[Any], Any], x: Any) -> Any:
    with contextlib.suppress(BaseException):
        question(x)
    return x + 1


def leaves_early(question: Callable[[Any], Any], x: Any) -> Any:
    try:
        question(x)
    finally:
        return -x  # noqa: B012


CATCHING = [
    catches_errors, catches_value_errors, catches_everything, catches_at_the_end, makes_its_own_error, suppresses,
    leaves_early,
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", CATCHING, ids=lambda f: f.__name__)
def test_a_refusal_is_not_swallowed(program: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError):
        trace(lambda x: program(drawn_function, x), torch.ones(3))


@pytest.mark.parametrize("program", CATCHING, ids=lambda f: f.__name__)
def test_a_missing_variable_is_the_program_s_to_catch(program: Callable[..., Any]) -> None:
    gm = trace(lambda x: program(a_variable_of_one_side, x), torch.ones(3))
    for x in (torch.ones(3), -torch.ones(3)):
        try:
            expected = program(a_variable_of_one_side, x)
        except (UnboundLocalError, RuntimeError) as error:
            with pytest.raises(type(error)):
                gm(x)
        else:
            assert torch.equal(gm(x), expected)


@pytest.mark.parametrize("program", CATCHING[:4], ids=lambda f: f.__name__)
def test_a_question_of_data_inside_a_handler_is_still_captured(program: Callable[..., Any]) -> None:
    def asks(x: Any) -> Any:
        if x.sum() > 0:
            return x + 1
        return x - 1

    def whole(x: Any) -> Any:
        return program(asks, x) + asks(x)

    gm = trace(whole, torch.ones(3))
    for x in (torch.ones(3), -torch.ones(3)):
        assert torch.equal(gm(x), whole(x))


@pytest.mark.parametrize("program", CATCHING[:4], ids=lambda f: f.__name__)
def test_sizes_that_depend_on_data_inside_a_handler(program: Callable[..., Any]) -> None:
    def whole(x: Any) -> Any:
        return program(lambda x: x.nonzero().view(-1) + 1, x)

    gm = trace(whole, torch.tensor([1.0, 0.0, 2.0]))
    for x in (torch.ones(3), torch.zeros(3)):
        assert torch.equal(gm(x), whole(x))


def test_an_error_of_the_program_is_its_own_to_catch() -> None:
    def optional(x: Any) -> Any:
        try:
            raise KeyError("cache")
        except KeyError:
            return x + 1

    assert torch.equal(trace(optional, torch.ones(2))(torch.zeros(2)), torch.ones(2))


def test_what_one_side_of_a_branch_raises_may_be_caught_outside_of_it() -> None:
    def program(x: Any, flag: Any) -> Any:
        try:
            if flag.sum() > 0:
                y = x.view(7)
            else:
                y = x + 1
        except RuntimeError:
            y = -x
        return y

    gm = trace(program, (torch.ones(3), torch.ones(1)))
    for flag in (torch.ones(1), -torch.ones(1)):
        assert torch.equal(gm(torch.ones(3), flag), program(torch.ones(3), flag))


def test_an_operation_that_fails_for_the_example_is_not_taken_to_fail_always() -> None:
    def program(x: Any) -> Any:
        try:
            return x.view(2, 3)
        except RuntimeError:
            return -x

    gm = trace(program, torch.ones(5))
    assert torch.equal(gm(torch.ones(5)), -torch.ones(5))
    assert len(gm.guards) >= 1
    with pytest.raises(RuntimeError, match="captured"):
        gm(torch.ones(6))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_grad_mode_is_left_as_it_was(enabled: bool) -> None:
    class Norm(nn.Module):
        def forward(self, x: Any, question: Any = None) -> Any:
            with torch.no_grad():
                scale = x.abs().max()
                if scale > 1:
                    x = x / scale
                if question is not None:
                    question(x)
            return x

    with torch.set_grad_enabled(enabled):
        gm = trace(Norm(), torch.ones(3))
        assert torch.is_grad_enabled() is enabled
        with pytest.raises(CaptureError):
            trace(Norm(), (torch.ones(3), drawn_function))
        assert torch.is_grad_enabled() is enabled
        assert torch.equal(gm(torch.full((3,), 4.0)), torch.ones(3))


def test_what_a_program_prints_is_printed_when_it_runs(capsys: Any) -> None:
    def program(x: Any) -> Any:
        print(x.sum())
        return x * 2

    gm = trace(program, torch.ones(3))
    assert capsys.readouterr().out == ""
    gm(torch.ones(4))
    assert capsys.readouterr().out == "tensor(4.)\n"


@contextlib.contextmanager
def _kept() -> Iterator[torch.Tensor]:
    state = torch.get_rng_state()
    yield state
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "draw",
    [
        torch.rand_like,
        lambda x: torch.rand(4),
        lambda x: torch.randint(0, 2, (4,)) - 0.5,
        lambda x: torch.randint_like(x, -1, 2),
        lambda x: torch.randperm(4),
        nn.functional.dropout,
        lambda x: torch.bernoulli(x * 0.5),
        lambda x: torch.normal(0.0, 1.0, (4,)),
        lambda x: torch.empty(4).normal_(),
    ],
)
def test_random_numbers_of_a_capture_are_nobody_elses(draw: Callable[[Any], Any]) -> None:
    with _kept():
        gm = trace(lambda x: x[draw(x) > 0].sum() + x.sum(), torch.ones(4))
    torch.manual_seed(3)
    first = gm(torch.ones(4))
    torch.manual_seed(3)
    assert torch.equal(gm(torch.ones(4)), first)


def test_a_generator_that_the_program_uses_does_not_advance() -> None:
    generator = torch.Generator().manual_seed(5)
    state = generator.get_state()
    trace(lambda x: x[torch.rand(4, generator=generator) > 0.5].sum(), torch.ones(4))
    assert torch.equal(generator.get_state(), state)
