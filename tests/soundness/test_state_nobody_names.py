"""State that no attribute shows: empty buffers, arguments of partial functions, contexts, weak references."""

from __future__ import annotations

import contextvars
import functools
import weakref
from typing import Any

import pytest
import torch
from tests.soundness.stories import DOWN, UP, calls, told
from torch import Tensor, nn


class FillsABuffer(nn.Module):
    """A buffer that is None until the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.seen is None:
            self.seen = x.clone()
        return self.seen + x


class FillsItInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = FillsABuffer()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * 2  # type: ignore[no-any-return]


def emptied(program: Any) -> Any:
    owner = getattr(program, "inner", program)
    found = [program(UP), program(DOWN)]
    owner.seen = None
    return [*found, program(DOWN), program(UP), owner.seen]


@pytest.mark.parametrize("make", [FillsABuffer, FillsItInside])
def test_a_buffer_that_the_first_call_fills_is_kept(make: Any) -> None:
    assert told(make, calls(UP, DOWN, UP)) == "same"
    assert told(make, emptied) == "same"


class CountsInAPartial(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = functools.partial(counted, [0])

    def forward(self, x: Tensor) -> Tensor:
        return self.count(x)


def counted(count: list[int], x: Tensor) -> Tensor:
    count[0] += 1
    return x * count[0]


COUNTED = functools.partial(counted, [0])


@pytest.mark.parametrize("make", [CountsInAPartial, lambda: lambda x: COUNTED(x)])
def test_what_a_partial_function_fills_is_told(make: Any) -> None:
    found = told(make, calls(UP, UP))
    assert found.startswith("loud: the program changes what") and "a list: the captured program could not" in found


# ---- contexts

STEP = contextvars.ContextVar("STEP", default=1)


class HasAContext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = STEP

    def forward(self, x: Tensor) -> Tensor:
        return x * self.step.get()


def in_a_context(program: Any) -> Any:
    token = STEP.set(5)
    try:
        return program(UP)
    finally:
        STEP.reset(token)


@pytest.mark.filterwarnings("ignore::graphwright.TracerWarning")
@pytest.mark.parametrize("make", [HasAContext, lambda: lambda x: x * STEP.get()])
def test_the_value_of_a_context_is_taken_for_granted(make: Any) -> None:
    assert told(make, calls(UP, DOWN)) == "same"
    assert told(make, in_a_context).startswith("loud: the value of")


@pytest.mark.filterwarnings("ignore::graphwright.TracerWarning")
def test_a_context_that_the_program_sets_is_its_own() -> None:
    def program(x: Tensor) -> Tensor:
        token = STEP.set(STEP.get() + 1)
        y = x * STEP.get()
        STEP.reset(token)
        return y

    assert told(lambda: program, calls(UP, DOWN)) == "same"


# ---- weak references


class Settings:
    scale = 2


class RefersToItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2, bias=False)
        torch.nn.init.ones_(self.inner.weight)
        self.around = weakref.ref(self)
        self.scale = 2.0

    def forward(self, x: Tensor) -> Any:
        return self.inner(x) * self.around().scale  # type: ignore[union-attr]


def scaled(program: Any) -> Any:
    found = [program(UP)]
    program.scale = 3.0
    return [*found, program(UP), program.around() is program]


def test_a_weak_reference_to_the_model_is_one_to_the_captured_model() -> None:
    assert told(RefersToItself, scaled) == "same"


def test_what_a_weak_reference_leads_to_is_taken_for_granted() -> None:
    settings = Settings()
    reference = weakref.ref(settings)

    def changed(program: Any) -> Any:
        settings.scale = 2
        found = [program(UP)]
        settings.scale = 7
        return [*found, program(UP)]

    settings.scale = 2
    assert told(lambda: lambda x: x * reference().scale, changed).startswith("loud: 'scale' of what")  # type: ignore[union-attr]
    settings.scale = 2


class MayLoseIt(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = weakref.ref(settings)

    def forward(self, x: Tensor) -> Tensor:
        return x if self.settings() is None else x * 2


def test_whether_what_it_refers_to_is_gone_is_taken_for_granted() -> None:
    held = [Settings()]

    def lost(program: Any) -> Any:
        found = [program(UP)]
        held.clear()
        return [*found, program(UP)]

    def make() -> Any:
        held[:] = [Settings()]
        return MayLoseIt(held[0])

    assert told(make, lost).startswith("loud: whether what 'settings' of a MayLoseIt refers to is gone")


@pytest.mark.parametrize("kind", [weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet])
def test_a_container_of_weak_references_loses_something(kind: Any) -> None:
    kept: list[Settings] = []

    def make() -> Any:
        kept[:] = [Settings(), Settings()]
        given = {
            weakref.WeakSet: kept,
            weakref.WeakKeyDictionary: dict.fromkeys(kept),
            weakref.WeakValueDictionary: dict(enumerate(kept)),
        }
        held = kind(given[kind])
        del given
        return lambda x: x * len(held)

    def forgets(program: Any) -> Any:
        first = program(UP)
        kept.pop()
        return first, program(UP)

    assert told(make, calls(UP, DOWN)) == "same"
    assert told(make, forgets).startswith("loud: how much the variable 'held'")
