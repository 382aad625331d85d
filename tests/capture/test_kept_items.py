"""Dicts and lists that outlive a call: keys that only a run knows, lists that are gone over, items that change."""

from __future__ import annotations

import collections
import copy
import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import CaptureError, Interpreter, trace

SIZES = (3, 5, 2, 5, 3, 7)
GLOBAL: dict[Any, Any] = {}


class Caches(nn.Module):
    """Runs one of the ways below to use its dict, which starts with `content`."""

    of_class: dict[Any, Any]

    def __init__(self, way: Callable[[Any, Tensor, Any], Tensor], content: dict[Any, Any] | None = None) -> None:
        super().__init__()
        self.way, self.cache, self.held = way, {} if content is None else content, SimpleNamespace(cache={})
        self.seen: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self, x, x.size(0))


def asked_first(self: Any, x: Tensor, n: Any) -> Tensor:
    if n not in self.cache:
        self.cache[n] = torch.arange(n)[:, None] * x.mean()
    return x + self.cache[n]


def gotten(self: Any, x: Tensor, n: Any) -> Tensor:
    rows = self.cache.get(n)
    if rows is None:
        rows = self.cache[n] = torch.arange(n)[:, None] * x.mean()
    return x + rows


def caught(self: Any, x: Tensor, n: Any) -> Tensor:
    try:
        rows = self.cache[n]
    except KeyError:
        rows = self.cache[n] = torch.arange(n)[:, None] * x.mean()
    return x + rows


def with_a_default(self: Any, x: Tensor, n: Any) -> Tensor:
    return x + self.cache.setdefault(n, x * 2)


def by_tuple(self: Any, x: Tensor, n: Any) -> Tensor:
    key = n, str(x.device)
    if key not in self.cache:
        self.cache[key] = x * 2
    return x + self.cache[key]


def by_shape(self: Any, x: Tensor, n: Any) -> Tensor:
    if x.shape not in self.cache:
        self.cache[x.shape] = x * 2
    return x + self.cache[x.shape]


def by_text(self: Any, x: Tensor, n: Any) -> Tensor:
    key = f"{n}_rows"
    if key not in self.cache:
        self.cache[key] = x * 2
    return x + self.cache[key]


def by_arithmetic(self: Any, x: Tensor, n: Any) -> Tensor:
    key = (n + 1) // 2 * 2
    if key not in self.cache:
        self.cache[key] = x.mean(0)
    return x + self.cache[key]


def by_truth(self: Any, x: Tensor, n: Any) -> Tensor:
    if (n > 3) not in self.cache:
        self.cache[n > 3] = x.mean()
    return x + self.cache[n > 3]


def by_data(self: Any, x: Tensor, n: Any) -> Tensor:
    key = int(x[0, 0] > 0)
    if key not in self.cache:
        self.cache[key] = x.mean(0)
    return x + self.cache[key]


def beside_a_constant(self: Any, x: Tensor, n: Any) -> Tensor:
    if 5 in self.cache:  # which a size may have been
        x = x + self.cache[5].mean()
    self.cache[n] = x * 2
    return x + self.cache[n]


def two_keys(self: Any, x: Tensor, n: Any) -> Tensor:
    if n not in self.cache:
        self.cache[n] = x.sum(0)
    if n + 1 not in self.cache:
        self.cache[n + 1] = x.mean(0)
    return x + self.cache[n] * self.cache[n + 1]


def two_kinds(self: Any, x: Tensor, n: Any) -> Tensor:
    if ("rows", n) not in self.cache:
        self.cache["rows", n], self.cache["scale", n] = x.mean(0), 2.0
    return x + self.cache["rows", n] * self.cache["scale", n]


def counted(self: Any, x: Tensor, n: Any) -> Tensor:
    self.cache[n] = self.cache.get(n, 0) + 1
    return x * self.cache[n]


def on_one_side(self: Any, x: Tensor, n: Any) -> Tensor:
    if n > 3:
        if n not in self.cache:
            self.cache[n] = x.mean(0)
        x = x + self.cache[n]
    return x


def on_both_sides(self: Any, x: Tensor, n: Any) -> Tensor:
    if x.sum() > 0:
        if n not in self.cache:
            self.cache[n] = x.mean(0)
        return x + self.cache[n]
    self.cache[n] = x.mean(0) * 2
    return x - self.cache[n]


def a_constant_on_one_side(self: Any, x: Tensor, n: Any) -> Tensor:
    if n > 3:
        self.cache["last"] = x.mean(0)
    return x + self.cache["last"] if "last" in self.cache else x


def evicted(self: Any, x: Tensor, n: Any) -> Tensor:
    if n not in self.cache:
        if len(self.cache) >= 2:
            self.cache.clear()
        self.cache[n] = x * 2
    return x + self.cache[n]


def taken_out(self: Any, x: Tensor, n: Any) -> Tensor:
    before = self.cache.pop(n, None)
    self.cache[n] = x.mean(0)
    return x if before is None else x + before


def deleted(self: Any, x: Tensor, n: Any) -> Tensor:
    self.cache[n] = x * 2
    x = x + self.cache[n]
    del self.cache[n]
    return x


def in_a_function(self: Any, x: Tensor, n: Any) -> Tensor:
    return x + rows_of(self.cache, n, x)


def rows_of(cache: dict[Any, Any], n: Any, x: Tensor) -> Any:
    if n in cache:
        return cache[n]
    cache[n] = x.mean(0)
    return cache[n]


def dicts_in_it(self: Any, x: Tensor, n: Any) -> Tensor:
    if n not in self.cache:
        self.cache[n] = {"rows": x.mean(0), "count": n}
    return x + self.cache[n]["rows"] * self.cache[n]["count"]


def of_an_object(self: Any, x: Tensor, n: Any) -> Tensor:
    if n not in self.held.cache:
        self.held.cache[n] = x * 2
    return x + self.held.cache[n]


def of_a_class(self: Any, x: Tensor, n: Any) -> Tensor:
    if n not in Caches.of_class:
        Caches.of_class[n] = x * 2
    return x + Caches.of_class[n]


def of_the_module(self: Any, x: Tensor, n: Any) -> Tensor:
    if n not in GLOBAL:
        GLOBAL[n] = x * 2
    return x + GLOBAL[n]


WAYS = [
    asked_first, gotten, caught, with_a_default, by_tuple, by_shape, by_text, by_arithmetic, by_truth, by_data,
    beside_a_constant, two_keys, two_kinds, counted, on_one_side, on_both_sides, a_constant_on_one_side, evicted,
    taken_out, deleted, in_a_function, dicts_in_it, of_an_object, of_a_class, of_the_module,
]  # fmt: skip


def calls() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(size, 4) for size in SIZES]


def forget() -> None:
    GLOBAL.clear()
    Caches.of_class = {}


def check(model: nn.Module, run: Callable[[Tensor], Tensor]) -> None:
    forget()
    wanted = [model(x) for x in calls()]
    forget()
    for x, result in zip(calls(), wanted, strict=True):
        assert torch.allclose(run(x), result)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_key_is_that_of_the_run(way: Callable[[Any, Tensor, Any], Tensor]) -> None:
    forget()
    check(Caches(way), trace(Caches(way), (torch.ones(3, 4),)))


@pytest.mark.parametrize("way", [by_arithmetic, on_one_side, a_constant_on_one_side, taken_out, in_a_function])
def test_what_the_dict_holds_at_first_is_there(way: Callable[[Any, Tensor, Any], Tensor]) -> None:
    content = {3: torch.zeros(4), "last": torch.ones(4)}
    gm = trace(Caches(way, dict(content)), (torch.ones(3, 4),))
    check(Caches(way, dict(content)), gm)


@pytest.mark.parametrize("form", ["deepcopy", "saved", "nested", "interpreted", "captured again"])
def test_captured_modules_with_such_dicts(form: str, tmp_path: Path) -> None:
    gm: Any = trace(Caches(asked_first), (torch.ones(3, 4),))
    if form == "deepcopy":
        gm = copy.deepcopy(gm)
    elif form == "saved":
        graphwright.save(gm, tmp_path / "model.gw")
        gm = graphwright.load(tmp_path / "model.gw", allow=[__name__])
    elif form == "nested":
        gm = graphwright.unflatten(gm)
    elif form == "captured again":
        gm = trace(gm, (torch.ones(3, 4),))
    check(Caches(asked_first), Interpreter(gm).run if form == "interpreted" else gm)


# ---- lists, and what is in containers


def gone_over(self: Any, x: Tensor, n: Any) -> Tensor:
    self.seen.append(x.mean(0))
    for row in self.seen:
        x = x + row
    return x


def summed(self: Any, x: Tensor, n: Any) -> Tensor:
    self.seen.append(x.mean(0))
    return x + sum(self.seen) + torch.stack([row * 2 for row in self.seen]).sum(0)


def windowed(self: Any, x: Tensor, n: Any) -> Tensor:
    self.seen = self.seen[-2:] + [x.mean(0)]
    return x + torch.stack(self.seen).sum(0)


def put_in_front(self: Any, x: Tensor, n: Any) -> Tensor:
    self.seen = [x.mean(0)] + self.seen
    return x + self.seen[-1] * len(self.seen)


def halved(self: Any, x: Tensor, n: Any) -> Tensor:
    self.seen.append(x.mean(0))
    for i, row in enumerate(self.seen):
        self.seen[i] = row * 0.5
    return x + self.seen[0]


def lists_by_size(self: Any, x: Tensor, n: Any) -> Tensor:
    self.cache.setdefault(n, []).append(x.mean(0))
    return x + self.cache[n][-1] * len(self.cache[n])


def dicts_by_size(self: Any, x: Tensor, n: Any) -> Tensor:
    if n not in self.cache:
        self.cache[n] = {}
    if "rows" not in self.cache[n]:
        self.cache[n]["rows"] = x.mean(0)
    return x + self.cache[n]["rows"]


def counts_in_a_list(self: Any, x: Tensor, n: Any) -> Tensor:
    self.seen.append({"calls": 0})
    self.seen[0]["calls"] += 1
    return x * self.seen[0]["calls"]


def extended_and_copied(self: Any, x: Tensor, n: Any) -> Tensor:
    self.seen.extend([x.sum(), x.mean()])
    self.seen += [x.max()]
    total = x.new_zeros(())
    for value in self.seen.copy():
        total = total + value
    return total


OF_ITEMS = [
    gone_over, summed, windowed, put_in_front, halved, extended_and_copied, lists_by_size, dicts_by_size,
    counts_in_a_list,
]  # fmt: skip


@pytest.mark.parametrize("way", OF_ITEMS, ids=lambda way: way.__name__)
def test_what_is_in_a_container_is_that_of_the_run(way: Callable[[Any, Tensor, Any], Tensor]) -> None:
    check(Caches(way), trace(Caches(way), (torch.ones(3, 4),)))


def put_and_changed(self: Any, x: Tensor, n: Any) -> Tensor:
    row: dict[str, Any] = {"scale": 0}
    self.cache[n] = row
    row["scale"] = x.mean()
    return x * self.cache[n]["scale"]


def test_what_is_changed_after_it_was_put_there_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"changes a list, dict or object after it has put it into Caches\.cache"):
        trace(Caches(put_and_changed), (torch.ones(3, 4),))


# ---- tables


class Table(nn.Module):
    """Looks sizes up in a table of numbers or tensors, which it does not change."""

    def __init__(self, values: Any) -> None:
        super().__init__()
        self.table = dict(zip((2, 3, 5, 7), values, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table[x.size(0)]


@pytest.mark.parametrize("values", [(0.5, 0.25, 2.0, 4.0), (1, 2, 3, 4), tuple(torch.arange(4.0))], ids=str)
def test_tables_are_read_at_each_call(values: Any) -> None:
    gm = trace(Table(values), (torch.ones(3, 4),))
    check(Table(values), gm)
    gm.table[3] = gm.table[3] * 2
    assert torch.equal(gm(torch.ones(3, 4)), torch.ones(3, 4) * values[1] * 2)
    with pytest.raises(KeyError):
        gm(torch.ones(4, 4))


class StartsWithNone(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind, self.kept = kind, None

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = self.kind()
        if self.kind is list:
            self.kept.append(x)  # type: ignore[attr-defined]
        else:
            self.kept[len(self.kept)] = x  # type: ignore[index,arg-type]
        return x * len(self.kept)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [list, dict])
def test_a_container_takes_the_place_of_none(kind: type) -> None:
    model, gm = StartsWithNone(kind), trace(StartsWithNone(kind), (torch.ones(2),))
    for x in (torch.ones(2), torch.ones(3), torch.ones(2)):
        assert torch.equal(gm(x), model(x))
    assert len(gm.kept) == 3  # type: ignore[arg-type]


class InATuple(nn.Module):
    def __init__(self, kept: Any) -> None:
        super().__init__()
        self.kept = (kept,)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.kept[0], list):
            self.kept[0].append(x)
        else:
            self.kept[0]["rows"] = x
        return x


@pytest.mark.parametrize("kept", [[], {}])
def test_a_container_in_a_tuple_is_refused_where_it_grows(kept: Any) -> None:
    with pytest.raises(CaptureError, match=r"adds to InATuple\.kept\[0\], which a tuple holds"):
        trace(InATuple(kept), (torch.ones(2),))


class CountsInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counts, self.table = [0, [3, 4]], {"rows": {"last": [1, 2]}}

    def forward(self, x: Tensor) -> Tensor:
        self.counts[1][0] += 1  # type: ignore[index]
        self.table["rows"]["last"][1] = x.size(0)
        return x * self.counts[1][0]  # type: ignore[index]


def test_items_are_written_as_paths() -> None:
    model, gm = CountsInside(), trace(CountsInside(), (torch.ones(2),))
    for x in (torch.ones(2), torch.ones(3)):
        assert torch.equal(gm(x), model(x))
        assert (gm.counts, gm.table) == (model.counts, model.table)
    statements = [line.split(";")[0].strip() for line in gm.code.splitlines() if "#" not in line]
    assert "kept_1 = self.counts[1][0]" in statements
    assert "self.counts[1][0] = add" in statements
    assert "self.table['rows']['last'][1] = size" in statements


class Recorded(nn.Module):
    def __init__(self, way: Callable[[dict[str, Tensor]], Any]) -> None:
        super().__init__()
        self.way, self.seen = way, {}  # type: ignore[var-annotated]
        self.layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
        for name, layer in self.layers.named_children():
            layer.register_forward_hook(functools.partial(self._note, name))

    def _note(self, name: str, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        self.seen[name] = output.detach()

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x, self.way(self.seen)


def shown(value: Any) -> Any:
    pairs = [(key, item.tolist()) for key, item in value.items()] if isinstance(value, dict) else value
    return type(value), pairs


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(lambda seen: dict(seen), id="dict"),
        pytest.param(lambda seen: {**seen}, id="display"),
        pytest.param(lambda seen: {"first": seen["0"], **seen}, id="display with another"),
        pytest.param(lambda seen: dict(seen, last=seen["1"]), id="keywords"),
        pytest.param(lambda seen: collections.OrderedDict(seen), id="another class"),
        pytest.param(lambda seen: set(seen), id="set"),
    ],
)
def test_copies_of_a_dict_that_gets_keys(way: Any) -> None:
    model, gm = Recorded(way), trace(Recorded(way), (torch.ones(2),))
    for x in (torch.ones(2), torch.randn(3)):
        for (y, copied), (expected, other) in [(gm(x), model(x))]:
            assert torch.equal(y, expected) and shown(copied) == shown(other) and copied is not gm.seen
    gm.seen["more"] = model.seen["more"] = torch.zeros(1)  # type: ignore[operator,index]
    assert shown(gm(torch.ones(2))[1]) == shown(model(torch.ones(2))[1])
