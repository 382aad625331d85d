"""Random state is an effect: captured programs seed, fork and draw as the originals do, and a capture moves nothing."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from random import seed as seed_of_python
from random import uniform
from typing import Any

import numpy as np
import pytest
import torch
from torch import manual_seed, nn

from graphwright import CaptureError, rewrite, rule, symbolic_trace, trace
from graphwright.capture.outside.random_state import OF_DEVICES, OF_NUMPY, OF_PYTHON, OF_TORCH
from graphwright.capture.outside.torch_generators import METHODS

OURS, THEIRS = torch.Generator(), random.Random(3)
X = torch.ones(2)


def seeded(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    return x + torch.rand(2)


def seeded_by_another_name(x: torch.Tensor) -> torch.Tensor:
    manual_seed(0)
    return x + torch.rand(2)


def seeded_by_its_method(x: torch.Tensor) -> torch.Tensor:
    torch.default_generator.manual_seed(0)
    return x + torch.rand(2)


def drawn_from_what_seeding_gives(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(2, generator=torch.manual_seed(0))


def asked_for_its_seed(x: torch.Tensor) -> torch.Tensor:
    return x + torch.initial_seed()


def put_back(x: torch.Tensor) -> torch.Tensor:
    state = torch.get_rng_state()
    first = torch.rand(2)
    torch.set_rng_state(state)
    return x + first - torch.rand(2)


def forked(x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = torch.rand(2)
    return x + first - torch.rand(2)


def made(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return x + torch.rand(2, generator=generator) + torch.rand(2, generator=generator)


def made_and_asked(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator(device="cpu")
    generator.manual_seed(1 if x.shape[0] > 3 else 2)
    state = generator.get_state()
    first = torch.rand(2, generator=generator)
    if x.sum() > 0:
        generator.set_state(state)
    return x * generator.initial_seed() + first - torch.rand(2, generator=generator)


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator()
    for i in range(x.shape[0]):
        generator.manual_seed(i)
        torch.manual_seed(i + 1)
        x = x + torch.rand(2, generator=generator) * torch.rand(2)
    return x


@contextlib.contextmanager
def seeded_with(number: int) -> Iterator[None]:
    state = torch.get_rng_state()
    torch.manual_seed(number)
    try:
        yield
    finally:
        torch.set_rng_state(state)


def in_a_context_of_its_own(x: torch.Tensor) -> torch.Tensor:
    with seeded_with(3):
        x = x + torch.rand(2) if x.sum() > 0 else x
    return x + torch.rand(2)


def of_a_global(x: torch.Tensor) -> torch.Tensor:
    OURS.manual_seed(3)
    return x + torch.rand(2, generator=OURS)


def of_python(x: torch.Tensor) -> torch.Tensor:
    random.seed(4)
    return x * random.random()


def of_python_by_other_names(x: torch.Tensor) -> torch.Tensor:
    seed_of_python(4)
    return x * uniform(1, 2)


def of_python_put_back(x: torch.Tensor) -> torch.Tensor:
    state = random.getstate()
    first = random.random()
    random.setstate(state)
    return x * (first - random.random())


def of_python_in_a_global(x: torch.Tensor) -> torch.Tensor:
    THEIRS.seed(3)
    return x * THEIRS.random()


def of_numpy(x: torch.Tensor) -> torch.Tensor:
    np.random.seed(4)
    return x * np.random.rand()


def of_numpy_put_back(x: torch.Tensor) -> torch.Tensor:
    state = np.random.get_state()
    first = np.random.rand()
    np.random.set_state(state)
    return x * (first - np.random.rand())


def of_numpy_made(x: torch.Tensor) -> torch.Tensor:
    return x * np.random.default_rng(0).random()


def seed_everything(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def by_a_helper(x: torch.Tensor) -> torch.Tensor:
    seed_everything(7)
    return x * random.random() * np.random.rand() + torch.rand(2)


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator, self.theirs = torch.Generator().manual_seed(1), random.Random(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.generator.manual_seed(self.generator.initial_seed() + 1)
        return x * torch.rand(2, generator=self.generator) * self.theirs.random()


PROGRAMS: list[Callable[..., Any]] = [
    seeded, seeded_by_another_name, seeded_by_its_method, drawn_from_what_seeding_gives, asked_for_its_seed, put_back,
    forked, made, made_and_asked, in_a_loop, in_a_context_of_its_own, of_a_global, of_python, of_python_by_other_names,
    of_python_put_back,
    of_python_in_a_global, of_numpy, of_numpy_put_back, of_numpy_made, by_a_helper, Holder(),
]  # fmt: skip


def states(program: Callable[..., Any]) -> list[Any]:
    """The states of all generators that a program can reach."""
    numpy = np.random.get_state(legacy=True)
    found = [torch.get_rng_state().tolist(), random.getstate(), numpy[1].tolist(), numpy[2], OURS.get_state().tolist()]
    held = [program.generator.get_state().tolist(), program.theirs.getstate()] if isinstance(program, Holder) else []
    return [*found, THEIRS.getstate(), *held]


def started(program: Callable[..., Any]) -> None:
    seed_everything(9)
    OURS.manual_seed(9)
    THEIRS.seed(9)
    if isinstance(program, Holder):
        program.generator.manual_seed(1)
        program.theirs.seed(1)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: getattr(each, "__name__", type(each).__name__))
def test_captured_programs_seed_and_draw_as_the_originals_do(program: Callable[..., Any]) -> None:
    started(program)
    before = states(program)
    gm = trace(program, (X,))
    assert states(program) == before
    want, after = [program(X), program(X)], states(program)
    started(program)
    got = [gm(X), gm(X)]
    assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True))
    assert states(program) == after


def raising(x: torch.Tensor) -> torch.Tensor:
    random.random()
    THEIRS.random()
    np.random.rand()
    raise ValueError("no")


def sized_by_data(x: torch.Tensor) -> torch.Tensor:
    return torch.bernoulli(x * 0.5).nonzero() * random.random()


def keeping_its_draws(x: torch.Tensor) -> torch.Tensor:
    random.random()
    np.random.rand()
    torch.manual_seed(3)
    return x + torch.rand(2)


@pytest.mark.parametrize("program", [raising, sized_by_data, keeping_its_draws], ids=lambda each: each.__name__)
def test_no_generator_is_moved_by_a_capture(program: Callable[..., Any]) -> None:
    before = states(program)
    with pytest.raises(ValueError, match="no") if program is raising else contextlib.nullcontext():
        trace(program, (X,), leaf_functions=[keeping_its_draws])
    assert states(program) == before


@functools.lru_cache
def cached() -> torch.Tensor:
    return torch.rand(2)


@torch.random.fork_rng(devices=[])
def forked_by_a_decorator(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(2)


COUNT, ITEMS = itertools.count(), iter([1, 2, 3])


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = itertools.count()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * next(self.count)


REFUSED = [
    pytest.param(lambda x: x + cached(), "functools cache", id="behind a cache"),
    pytest.param(lambda x: forked_by_a_decorator(x) + torch.rand(2), "fork_rng", id="forked by a decorator"),
    pytest.param(lambda x: x * next(COUNT), "iterator", id="counted outside"),
    pytest.param(lambda x: x * next(ITEMS), "iterator", id="items from outside"),
    pytest.param(Counting(), "iterator", id="counted in a module"),
]


@pytest.mark.parametrize(("program", "why"), REFUSED)
def test_what_a_graph_cannot_do_is_refused_at_its_line(program: Callable[..., Any], why: str) -> None:
    with pytest.raises(CaptureError, match=why) as caught:
        trace(program, (X,))
    assert "test_random.py" in str(caught.value) and "fix:" in str(caught.value)


def test_items_of_what_the_program_made_are_taken() -> None:
    assert trace(lambda x: x * next(iter([2, 3])) + next(y for y in (x, 1)), (X,))(X).tolist() == [3, 3]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.ops.aten.rand([2]),
        lambda: torch.ops.aten.randn.default([2]),
        lambda: torch.ops.aten.bernoulli.p(X, 0.5),
        lambda: nn.functional.dropout(X),
        lambda: torch.ones(2).normal_(),
    ],
)
def test_symbolic_trace_draws_at_each_call(draw: Callable[[], torch.Tensor]) -> None:
    gm = symbolic_trace(lambda x: x + draw())
    torch.manual_seed(5)
    want = [X + draw() for _ in range(4)]
    torch.manual_seed(5)
    assert all(torch.equal(gm(X), value) for value in want)


def test_replacements_draw_at_each_call() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = torch.rand(2), torch.rand(2)
        return first + x, second + x

    gm = trace(program, (X,))
    rewrite(gm, rule(lambda x: torch.rand(2) + x, lambda x: x + torch.rand(2)))
    torch.manual_seed(0)
    want = program(X)
    torch.manual_seed(0)
    assert all(torch.equal(one, other) for one, other in zip(gm(X), want, strict=True))


# ---- the tables are closed


def test_every_method_of_generators_is_known() -> None:
    assert {name for name in dir(torch.Generator) if not name.startswith("__")} <= {*METHODS}


def test_every_function_of_random_state_is_known() -> None:
    assert {*getattr(torch.random, "__all__", ())} <= {*OF_TORCH}
    newer = [torch.accelerator.random] if hasattr(torch.accelerator, "random") else []
    for module in (torch.cuda.random, torch.xpu.random, *newer):
        assert {*module.__all__} <= {*OF_DEVICES}
    drawing = {
        name for name, value in vars(random).items() if isinstance(getattr(value, "__self__", None), random.Random)
    }
    assert {name for name in drawing if not name.startswith("_")} <= OF_PYTHON
    of_numpy = {name for name in np.random.__all__ if type(getattr(np.random, name)) is not type}
    assert of_numpy - {"default_rng"} <= OF_NUMPY


def seeded(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    return x + torch.rand(2)


def test_a_seeding_function_that_was_replaced_after_the_first_capture_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.compile replaces it when it is first imported."""
    symbolic_trace(nn.ReLU())
    original = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", functools.wraps(original)(lambda seed: original(seed)))
    gm = trace(seeded, torch.ones(2))
    assert "manual_seed(3)" in gm.code
    assert torch.equal(gm(torch.ones(2)), gm(torch.ones(2)))
