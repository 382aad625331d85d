"""Functions that functools caches: their operations are captured, and no cache keeps a value of a capture."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graphwright


@functools.lru_cache
def scaled(x: torch.Tensor, factor: int) -> torch.Tensor:
    return x * factor


@functools.lru_cache(None)
def table(rows: int) -> torch.Tensor:
    return torch.arange(rows)


def cached(function: Callable[..., Any]) -> Callable[..., Any]:
    inner = functools.lru_cache(function)

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return inner(*args)

    wrapper.cache = inner  # type: ignore[attr-defined]
    return wrapper


@cached
def filled(rows: int, value: int) -> torch.Tensor:
    return torch.ones(rows) * value


class Cached(nn.Module):
    @functools.lru_cache  # noqa: B019 - a model does so
    def shifted(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(self.shifted(x), 2) + table(3) + filled(x.shape[0], 2)[:, None]


def test_a_cached_function_is_captured_and_its_cache_keeps_nothing() -> None:
    gm = graphwright.trace(Cached(), (torch.randn(2, 3),))
    assert gm.coverage == 1.0
    for cache in (scaled, table, filled.cache, Cached.shifted):  # type: ignore[attr-defined]
        assert cache.cache_info().currsize == 0
    x = torch.randn(5, 3)
    assert torch.equal(gm(x), Cached()(x))


def test_what_was_cached_before_stays() -> None:
    names = functools.lru_cache(lambda name: [name])
    kept = names("a")
    gm = graphwright.trace(lambda x: x + len(names("a")), (torch.ones(2),))
    assert names("a") is kept and torch.equal(gm(torch.ones(3)), torch.full((3,), 2.0))


def test_a_cache_that_cannot_be_avoided_is_emptied() -> None:
    held: list[Any] = [functools.lru_cache(eval("lambda x: x * 2"))]  # nothing here has source to convert
    call = eval("lambda x, held: held[0](x)")
    gm = graphwright.trace(lambda x: call(x, held), (torch.ones(2),))
    assert torch.equal(gm(torch.ones(3)), torch.full((3,), 2.0))


def appends() -> Any:
    seen: list[int] = []

    @functools.lru_cache
    def noted(rows: int) -> int:
        seen.append(rows)
        return len(seen)

    return lambda x: x * noted(1)


def writes_to_it() -> Any:
    @functools.lru_cache
    def zeros(rows: int) -> torch.Tensor:
        return torch.zeros(rows)

    return lambda x: zeros(3).add_(x).clone()


def fills_it() -> Any:
    names = functools.lru_cache(lambda name: [name])

    def program(x: torch.Tensor) -> torch.Tensor:
        found = names("a")
        found.append("b")
        return x * len(found)

    return program


class Scaled(nn.Module):
    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by

    @functools.lru_cache  # noqa: B019 - a model does so
    def scale(self, times: int) -> int:
        return self.by * times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale(2)


def has_changed() -> Any:
    model = Scaled(2)
    model(torch.ones(3))
    model.by = 7
    return model


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (appends, "changes what is outside of it"),
        (writes_to_it, "changes what .*zeros gave"),
        (fills_it, "changes what .* gave"),
        (has_changed, "has something else in its cache"),
    ],
)
def test_a_cache_that_shows_is_refused(make: Callable[[], Any], what: str) -> None:
    with pytest.raises(graphwright.CaptureError, match=what):
        graphwright.trace(make(), (torch.ones(3),))


def test_what_a_cache_has_is_what_is_computed() -> None:
    model = Scaled(2)
    x = torch.ones(3)
    model(x)
    gm = graphwright.trace(model, (x,))
    assert torch.equal(gm(x), model(x)) and Scaled.scale.cache_info().currsize >= 1


@functools.lru_cache
def factor(rows: int) -> float:
    return 2.0


@functools.lru_cache
def factors(rows: int) -> list[int]:
    return [1, 2] if rows > 3 else [3]


@functools.lru_cache
def factor_of(name: str) -> int:
    return 3 if name.startswith("4") else 4


@functools.lru_cache
def window(rows: int, columns: int) -> torch.Tensor:
    made = torch.zeros(rows, columns)
    for count, part in enumerate((slice(0, 1), slice(1, None))):
        made[part] += count
    return made


CACHED = [
    lambda x: x * factor(x.shape[0]),
    lambda x: x * factors(x.shape[0])[0],
    lambda x: x * factor_of(f"{x.shape[0]}"),
    lambda x: window(x.shape[0], 3).sum(1) * x,
]


@pytest.mark.parametrize("number", range(len(CACHED)))
def test_a_cache_that_does_not_show_asks_nothing(number: int) -> None:
    program = CACHED[number]
    gm = graphwright.trace(program, (torch.ones(2),))
    for size in (2, 3, 4, 5):
        assert torch.equal(gm(torch.ones(size)), program(torch.ones(size)))


class Converted(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear, self.dtype = nn.Linear(3, 3), dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.linear = self.linear.to(self.dtype)
        if x.sum() > 0:
            x = x + 1
        return self.linear(x)


def test_a_conversion_that_changes_nothing_is_no_part_of_the_program() -> None:
    model = Converted(torch.float32)
    gm = graphwright.trace(model, (torch.ones(2, 3),))
    assert gm.graph.find_nodes(op="call_method", target="to") == []
    for x in (torch.ones(4, 3), -torch.ones(4, 3)):
        assert torch.equal(gm(x), model(x))


def test_a_conversion_of_parameters_is_refused() -> None:
    model = Converted(torch.float64)
    with pytest.raises(graphwright.CaptureError, match="converts the parameters of a Linear"):
        graphwright.trace(model, (torch.ones(2, 3),))
    assert model.linear.weight.dtype is torch.float32


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Hooked(nn.Module):
    """Registers a hook in its forward, once."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not getattr(self, "ready", False):
            self.inner.register_forward_hook(lambda module, args, output: output + 1)
            self.ready = True
        if x.sum() > 0:
            x = x * 2
        return self.inner(x)


def test_a_hook_registered_by_the_program_is_not_left_on_the_users_module() -> None:
    model = Hooked(Doubled())
    gm = graphwright.trace(model, (torch.ones(2, 3),))
    assert not model.inner._forward_hooks and not hasattr(model, "ready")
    x = torch.ones(4, 3)
    for _ in range(3):
        assert torch.equal(gm(x), model(x))


class HookedMeanwhile(nn.Module):
    """Has a hook on a module while that runs, and no longer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Doubled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        handle = self.inner.register_forward_hook(lambda module, args, output: output + x.shape[0])
        try:
            return self.inner(x) + 1  # type: ignore[no-any-return]
        finally:
            handle.remove()


def test_a_hook_that_the_program_removes_again_is_a_part_of_it() -> None:
    model = HookedMeanwhile()
    gm = graphwright.trace(model, (torch.ones(2, 3),))
    for x in (torch.ones(2, 3), torch.ones(4, 3)):
        assert torch.equal(gm(x), model(x))


def test_a_hook_registered_by_the_program_on_a_leaf_is_refused() -> None:
    with pytest.raises(graphwright.CaptureError, match="registers or removes hooks of inner"):
        graphwright.trace(Hooked(nn.Linear(3, 3)), (torch.ones(2, 3),))


def test_a_hook_of_the_captured_module_is_not_one_of_the_original() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    gm = graphwright.trace(model, (torch.ones(2, 3),))
    gm[0].register_forward_hook(lambda module, args, output: output + 1)
    assert not model[0]._forward_hooks


def test_membership_in_a_tensor_is_a_branch() -> None:
    def padded(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        return (x + 1 if 0 in x else x), 3 in x

    gm = graphwright.trace(padded, (torch.ones(3),))
    for x in (torch.ones(4), torch.arange(4.0)):
        got, wanted = gm(x), padded(x)
        assert torch.equal(got[0], wanted[0]) and got[1] is wanted[1]


def check_that(condition: Any, message: str) -> None:
    if not condition:
        raise ValueError(message)


def test_texts_are_those_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    def told(x: torch.Tensor) -> torch.Tensor:
        print(f"sum {x.sum():.1f}", end="!\n")
        print(str(x.mean()), x.shape[0], repr(x.max()))
        check_that(x.min() > 0, f"too small: {x.min():.1f}")
        torch._check_with(KeyError, bool(x.max() < 10), lambda: f"too large: {x.max():.1f}")
        return x

    gm = graphwright.trace(told, (torch.ones(3),))
    assert gm.coverage == 1.0
    for x in (torch.ones(2), torch.full((4,), 2.0), torch.zeros(1), torch.full((1,), 20.0)):
        seen = []
        for run in (told, gm):
            capsys.readouterr()
            try:
                run(x)
                error = None
            except (ValueError, KeyError) as raised:
                error = repr(raised)
            seen.append((capsys.readouterr().out, error))
        assert seen[0] == seen[1]
