"""Objects of the user's own classes among inputs and outputs, and what a program does to them and to containers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright import CaptureError, GraphModule, GuardError, trace


class Layer:
    def __init__(self) -> None:
        self.is_ready = False

    def update(self, key: torch.Tensor) -> torch.Tensor:
        if not self.is_ready:
            self.keys = key[:0]
            self.is_ready = True
        self.keys = torch.cat([self.keys, key])
        return self.keys


class Cache:
    """Grows a layer for each that is asked for."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.seen: dict[str, Any] = {"tokens": 0}

    def update(self, number: int, key: torch.Tensor) -> torch.Tensor:
        while len(self.layers) <= number:
            self.layers.append(Layer())
        self.seen["tokens"] = self.seen["tokens"] + key.size(0)
        return self.layers[number].update(key)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x: torch.Tensor, cache: Cache | None = None) -> tuple[torch.Tensor, Cache]:
        cache = Cache() if cache is None else cache
        for number, step in enumerate(self.steps):
            x = x + cache.update(number, step(x)).sum(0)
        return x, cache


@torch.no_grad()
def filled(model: Model) -> Cache:
    cache: Cache = model(torch.randn(4, 3))[1]
    return cache


def contents(cache: Cache) -> Any:
    return [vars(layer) for layer in cache.layers], cache.seen


def captured(model: Model) -> GraphModule:
    x = torch.randn(4, 3)
    return trace(model, examples=[((x,), {}), ((x, Cache()), {}), ((x[:1], filled(model)), {})])


def same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other)


def test_a_cache_is_made_filled_and_extended() -> None:
    model = Model()
    gm = captured(model)
    x, step = torch.randn(5, 3), torch.randn(1, 3)
    (y, cache), (wanted, expected) = gm(x), model(x)
    same(y, wanted)
    assert type(cache) is Cache and type(cache.layers[0]) is Layer
    for _ in range(3):
        (y, after), (wanted, _) = gm(step, cache), model(step, expected)
        same(y, wanted)
        assert after is cache
        assert [layer.is_ready for layer in cache.layers] == [True, True] and cache.seen == expected.seen
        same([layer.keys for layer in cache.layers], [layer.keys for layer in expected.layers])


def test_a_cache_that_is_passed_empty_is_filled() -> None:
    model = Model()
    gm = captured(model)
    x = torch.randn(2, 3)
    cache, expected = Cache(), Cache()
    layers = cache.layers
    same(gm(x, cache)[0], model(x, expected)[0])
    assert cache.layers is layers and len(layers) == 2
    same([layer.keys for layer in layers], [layer.keys for layer in expected.layers])


def test_captures_differ_by_what_objects_hold() -> None:
    gm = captured(Model())
    x = torch.randn(1, 3)
    half = Cache()
    half.layers.append(Layer())
    with pytest.raises(GuardError, match=r"the length of argument 'cache_layers' was 0 .* now it is 1"):
        gm(x, half)
    with pytest.raises(GuardError, match="argument 'cache' was of class Cache"):
        gm(x, Layer())
    assert vars(half.layers[0]) == {"is_ready": False}


def test_the_example_is_left_as_it_was() -> None:
    model = Model()
    cache = filled(model)
    before = copy.deepcopy(contents(cache))
    trace(model, (torch.randn(1, 3), cache))
    same(contents(cache)[0][0]["keys"], before[0][0]["keys"])
    assert cache.seen == before[1]


def appends(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
    log.append(x * 2)
    log.append(3)
    return x


def assigns(x: torch.Tensor, table: dict[str, Any]) -> torch.Tensor:
    table["x"] = x + 1
    table["n"] = table["n"] + 1
    del table["old"]
    return table["x"]


def replaces(x: torch.Tensor, layer: Layer) -> Layer:
    layer.keys, layer.other = x, layer.keys  # type: ignore[attr-defined]
    del layer.is_ready
    return layer


def with_keys() -> Layer:
    layer = Layer()
    layer.update(torch.ones(2))
    return layer


CHANGES: list[Any] = [
    pytest.param(appends, lambda: [1], id="list"),
    pytest.param(assigns, lambda: {"n": 3, "old": None}, id="dict"),
    pytest.param(replaces, with_keys, id="object"),
]


@pytest.mark.parametrize(("program", "make"), CHANGES)
def test_changes_of_inputs_reach_the_caller(program: Callable[..., Any], make: Callable[[], Any]) -> None:
    gm = trace(program, (torch.randn(2), make()))
    x = torch.randn(2)
    mine, expected = make(), make()
    gm(x, mine)
    program(x, expected)
    same(*[vars(each) if isinstance(each, Layer) else each for each in (mine, expected)])


def test_what_the_program_changed_is_what_it_goes_on_with() -> None:
    def program(x: torch.Tensor, rows: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        rows.append(x)
        total = torch.stack(rows).sum(0)
        rows.clear()
        rows.append(total)
        return total, rows

    gm = trace(program, (torch.randn(2), [torch.randn(2)]))
    x, mine = torch.randn(2), [torch.ones(2)]
    total, rows = gm(x, mine)
    same(total, x + 1)
    assert rows is mine and len(mine) == 1 and mine[0] is total


def test_an_object_is_not_passed_to_what_is_not_looked_into() -> None:
    def fills(layer: Layer, x: torch.Tensor) -> torch.Tensor:
        return layer.update(x)

    with pytest.raises(CaptureError, match="cannot be recorded"):
        trace(lambda x, layer: fills(layer, x), (torch.ones(2), with_keys()), leaf_functions=[fills])


def test_objects_of_c_are_refused() -> None:
    with pytest.raises(CaptureError, match=r"argument 'file' of .* is a _io.StringIO: it cannot be symbolic yet"):
        trace(lambda x, file: x, (torch.ones(2), __import__("io").StringIO()))


def test_objects_are_named_in_static() -> None:
    def program(x: torch.Tensor, layer: Any) -> torch.Tensor:
        return x.repeat(layer.times, 1)

    layer = Layer()
    layer.times = 3  # type: ignore[attr-defined]
    gm = trace(program, (torch.ones(2), layer), static=["layer_times"])
    assert "repeat(3, 1)" in gm.code


def test_what_makes_objects_is_saved(tmp_path: Path) -> None:
    model = Model()
    gm = trace(model, torch.randn(4, 3))
    graphwright.save(gm, tmp_path / "model.gw", strict=True)
    again = graphwright.load(tmp_path / "model.gw", allow=[__name__])
    x = torch.randn(2, 3)
    (y, cache), (wanted, expected) = again(x), model(x)
    same(y, wanted)
    same([layer.keys for layer in cache.layers], [layer.keys for layer in expected.layers])


def test_what_is_called_is_not_compared_with_anything() -> None:
    class Applied:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor

        def __eq__(self, other: object) -> bool:
            return bool((self.tensor == other.tensor).all())  # type: ignore[attr-defined]

        def __call__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Applied:
            return Applied(function(self.tensor))

    def program(x: torch.Tensor) -> Any:
        one, other = Applied(x), Applied(x.abs())
        return one(torch.relu).tensor, one == other

    gm = trace(program, (torch.ones(3),))
    for x in (torch.ones(3), -torch.ones(2)):
        found, expected = gm(x), program(x)
        assert torch.equal(found[0], expected[0]) and found[1] is expected[1]


class Rows:
    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.asked = x, 0

    def __len__(self) -> int:
        return self.x.shape[0]


class Above(Rows):
    def __bool__(self) -> bool:
        self.asked += 1
        return bool(self.x.sum() > 0)


def chosen(x: torch.Tensor) -> Any:
    rows = Rows(x)
    return (rows and x + 1) if rows else x - 1, not rows, bool(rows)


def asked(x: torch.Tensor) -> Any:
    above = Above(x)
    found = above or x
    y = x + 1 if above and x.shape[0] > 1 else x - 1
    return y, found is above, above.asked


# ---- objects that loops and branches make anew are joined by what they have


class Step:
    def __init__(self, x: torch.Tensor, count: int = 0) -> None:
        self.x, self.count, self.seen = x, count, [x]

    def next(self) -> Step:
        made = Step(self.x * 2, self.count + 1)
        made.seen = [*self.seen, made.x]
        return made

    @property
    def total(self) -> torch.Tensor:
        return self.x.sum() + self.count


def counted_steps(x: torch.Tensor, n: int) -> Any:
    step = Step(x)
    for _ in range(n):
        step = step.next()
    return torch.stack(step.seen), step.count


def steps_to_a_total(x: torch.Tensor, n: int) -> Any:
    step = Step(x)
    while step.total < 10 * n:
        step = step.next()
    return step.x, step.count


def left_by_data(x: torch.Tensor, n: int) -> Any:
    step, first = Step(x), x
    for i in range(n):
        if step.x.sum() > 20:
            break
        step = Step(step.x + first, i)
    return step.x, step.count


def swapped(x: torch.Tensor, n: int) -> Any:
    one, other = Step(x), Step(x + 1)
    for _ in range(n):
        one, other = other, one
    return one.x, other.x * 3


def distributions(x: torch.Tensor, n: int) -> Any:
    found = torch.distributions.Normal(x, 1.0)
    for _ in range(n):
        found = torch.distributions.Normal(found.mean * 2, found.stddev + 1)
    return found.mean, found.log_prob(x)


def one_of_two(x: torch.Tensor, n: int) -> Any:
    step = kept = Step(x)
    if x.sum() > 4:
        step = step.next()
    step.x = step.x * n
    return step.x, kept.x, step.count, torch.stack(step.seen)


@pytest.mark.parametrize("program", [counted_steps, steps_to_a_total, left_by_data, swapped, distributions, one_of_two])
def test_objects_that_are_made_anew_are_joined(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.ones(3), 3))
    assert not any("n was" in line for line in str(gm.report).splitlines()) and not gm.report.forks
    for n in (3, 5, 1, 0):
        for x in (torch.ones(3), torch.arange(4.0)):
            torch.testing.assert_close(gm(x.clone(), n), program(x.clone(), n))


class Circle:
    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.around = x, self


def circles(x: torch.Tensor, n: int) -> Any:
    circle = Circle(x)
    for _ in range(n):
        circle = Circle(circle.x * 2)
    return circle.x, circle.around is circle


def test_objects_that_hold_themselves_are_not_joined() -> None:
    gm = trace(circles, (torch.ones(3), 3))
    assert "that holds itself" in str(gm.report)
    torch.testing.assert_close(gm(torch.ones(3), 3), circles(torch.ones(3), 3))
    with pytest.raises(GuardError, match="was captured where this was 3"):
        gm(torch.ones(3), 2)


class Weighed(Above):
    def __abs__(self) -> torch.Tensor:
        return self.x.abs()

    def __float__(self) -> float:
        return float(self.x.sum()) * 3

    def __int__(self) -> int:
        return int(self.x.sum()) + 2


def counted(x: torch.Tensor) -> Any:
    rows = Rows(x)
    return x * len(rows), len(Rows(x[1:])) + (1 if rows else 0)


def weighed(x: torch.Tensor) -> Any:
    whole = Weighed(x)
    y = abs(whole) * len(whole) + float(whole)
    return y, int(whole), whole.asked


@pytest.mark.parametrize("program", [chosen, asked, counted, weighed])
def test_classes_say_whether_their_objects_are_true(program: Callable[[torch.Tensor], Any]) -> None:
    gm = trace(program, torch.ones(3))
    for x in (torch.ones(2), -torch.ones(2), torch.ones(1), torch.ones(0)):
        mine, its = gm(x), program(x)
        assert torch.equal(mine[0], its[0]) and mine[1:] == its[1:]
