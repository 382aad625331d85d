"""Random numbers of Python's and NumPy's are never kept in the graph: they are drawn when it runs."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from graphwright import CaptureError, GuardError, load, save, trace


def drawn(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    return x * random.uniform(1, 2)


def drawn_by_numpy(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x * float(np.random.rand())
    return x


def decided(x: torch.Tensor) -> torch.Tensor:
    return x if random.random() < 0.5 else x * 2


def drawn_array(x: torch.Tensor) -> torch.Tensor:
    return x + torch.from_numpy(np.random.randn(*x.shape))


def drawn_twice(x: torch.Tensor) -> torch.Tensor:
    random.random()  # moves the generator on
    first, second = random.random(), random.choice([1.0, 2.0])
    return x * second + first


def chosen_rows(x: torch.Tensor) -> torch.Tensor:
    return x[random.sample(range(3), 2)]


def masked(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A helper that asks after what it draws."""
    mask = np.zeros(shape)
    for _ in range(4):
        place = np.random.randint(shape[0])
        if mask[place] == 0:
            mask[place] = np.random.rand()
    return mask


def helped(x: torch.Tensor) -> torch.Tensor:
    return x + torch.from_numpy(masked((x.size(0),)))


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3, dtype=torch.float64) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.training and random.uniform(0, 1) < 0.5:
                continue
            x = layer(x)
        return x


PROGRAMS = [drawn, drawn_by_numpy, decided, drawn_array, drawn_twice, chosen_rows, helped, Dropped()]


def seeded(program: Callable[..., Any], seed: int, *args: Any) -> Any:
    random.seed(seed)
    np.random.seed(seed)
    return program(*args), random.random(), np.random.rand()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: getattr(program, "__name__", "Dropped"))
def test_what_is_drawn_is_drawn_anew_at_each_call(program: Callable[..., Any], tmp_path: Path) -> None:
    state = random.getstate()
    gm = trace(program, (torch.ones(3, dtype=torch.float64),))
    save(gm, tmp_path / "model.gw")
    again = load(tmp_path / "model.gw", allow=["tests.capture.test_python_draws", "numpy"])
    for seed in range(6):
        x = torch.randn(3, dtype=torch.float64)
        want = seeded(program, seed, x)
        for module in (gm, again):
            got = seeded(module, seed, x)
            assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    random.setstate(state)


GENERATOR, TWISTER = np.random.default_rng(0), random.Random(0)


def noise() -> np.ndarray[Any, Any]:
    return GENERATOR.normal(size=3)


def from_a_global(x: torch.Tensor) -> torch.Tensor:
    return x * TWISTER.random() + torch.from_numpy(noise())


def closing_over(generator: np.random.Generator) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * float(generator.random())

    return program


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = random.Random(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.generator.random()


def seeded_inside(x: torch.Tensor) -> torch.Tensor:
    generator = np.random.default_rng(3)
    return x * float(generator.random()) + generator.normal()


def unseeded_inside(x: torch.Tensor) -> torch.Tensor:
    return x * float(np.random.default_rng().random())


def test_generators_of_the_program_are_drawn_from_at_each_call() -> None:
    x = torch.ones(3, dtype=torch.float64)
    generator = np.random.default_rng(5)
    for program in (from_a_global, closing_over(generator), Holder()):
        gm = trace(program, (x,))
        assert not torch.equal(gm(x), gm(x))
    gm = trace(closing_over(generator), (x,))
    assert gm.code.strip().endswith("return x * float(the_generator.random())")
    state = generator.bit_generator.state
    want = [closing_over(generator)(x) for _ in range(3)]
    generator.bit_generator.state = state
    assert all(torch.equal(gm(x), value) for value in want)


def test_generators_that_the_program_makes_are_made_at_each_call() -> None:
    x = torch.ones(3, dtype=torch.float64)
    gm = trace(seeded_inside, (x,))
    assert torch.equal(gm(x), seeded_inside(x)) and torch.equal(gm(x), seeded_inside(x))
    gm = trace(unseeded_inside, (x,))
    assert not torch.equal(gm(x), gm(x))


def test_a_draw_of_what_has_no_place_in_a_graph_is_refused_with_its_line() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return random.choice([torch.relu, torch.tanh])(x)

    with pytest.raises(CaptureError, match="draws random numbers of Python's") as error:
        trace(program, (torch.ones(3),))
    assert str(error.value.at).endswith("return random.choice([torch.relu, torch.tanh])(x)")


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_may_be_collected_at_any_time(collects: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called then is Python code like any other, in the middle of a line that draws."""

    def count(phase: str, info: dict[str, int]) -> None:
        counts.append(phase)

    def program(x: torch.Tensor) -> torch.Tensor:
        made = [random.random(), [x], *([x] for _ in range(3))]
        return x * made[0]

    counts: list[str] = []
    x = torch.ones(3, 3, dtype=torch.float64)
    lost: list[Any] = []
    threshold = gc.get_threshold()
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    gc.callbacks.append(count)
    (gc.enable if collects else gc.disable)()
    gc.set_threshold(1)
    try:
        gm = trace(program, x)
        assert gc.isenabled() == collects
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(count)
        gc.enable()
    assert bool(counts) == collects and not lost
    random.seed(3)
    expected = program(x)
    random.seed(3)
    assert torch.equal(gm(x), expected)


def test_what_is_one_node_may_draw() -> None:
    gm = trace(lambda x: drawn(x) + 1, (torch.ones(3),), leaf_functions=[drawn])
    random.seed(0)
    first = gm(torch.ones(3))
    random.seed(0)
    assert torch.equal(first, drawn(torch.ones(3)) + 1)


class Masks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            x = random.choice([torch.relu, torch.tanh])(x)
        return x + 1


def test_a_flag_that_leads_to_a_draw_is_guarded() -> None:
    gm = trace(Masks().eval(), (torch.ones(3),))
    assert torch.equal(gm(torch.ones(3)), 2 * torch.ones(3))
    with pytest.raises(GuardError):
        gm.train()(torch.ones(3))
