"""Deques, and counters and other classes of dicts, in attributes and globals, to which a program adds."""

from __future__ import annotations

import collections
import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright

SIZES = (3, 4, 3, 5, 3, 4)


def last_two() -> deque[Any]:
    return deque(maxlen=2)


def counts() -> defaultdict[Any, int]:
    return defaultdict(int)


class Holds(nn.Module):
    """Runs one of the ways below to use its container."""

    def __init__(self, way: Callable[[Any, Tensor], Any], held: Any) -> None:
        super().__init__()
        self.way, self.held, self.inside = way, held, SimpleNamespace(held=copy.deepcopy(held))

    def forward(self, x: Tensor) -> Any:
        return self.way(self, x)


# ---- deques


def summed(self: Any, x: Tensor) -> Any:
    self.held.append(x.mean())
    return x + sum(self.held) / len(self.held)


def stacked(self: Any, x: Tensor) -> Any:
    self.held.append(x.sum())
    return x + torch.stack(list(self.held)).mean() + torch.stack(tuple(self.held)).sum()


def gone_over(self: Any, x: Tensor) -> Any:
    self.held.append(x.sum())
    for i, past in enumerate(self.held):
        x = x + i * past
    for past in reversed(self.held):
        x = x * 0.5 + past
    return x + self.held[-1]


def taken_from_the_left(self: Any, x: Tensor) -> Any:
    self.held.append(x.sum())
    if len(self.held) > 1:
        return x + self.held.popleft()
    return x + self.held[0]


def both_ends(self: Any, x: Tensor) -> Any:
    self.held.appendleft(x.sum())
    self.held.extend([x.mean(), x.sum()])
    self.held.rotate(1)
    return x + self.held[0] - self.held[-1]


def cleared(self: Any, x: Tensor) -> Any:
    if x.shape[0] == 4:
        self.held.clear()
    if not self.held:
        self.held.append((x.sum(), x.shape[0]))
    total, size = self.held[0]
    return x + total * size


def as_long_as_it_may_get(self: Any, x: Tensor) -> Any:
    self.held.append(x.shape[0])
    return x * 2 if len(self.held) == self.held.maxlen else x + max(self.held)


def asked_for_its_class(self: Any, x: Tensor) -> Any:
    if not isinstance(self.held, deque):
        raise TypeError
    self.held.append({"sum": x.sum(), "size": x.shape[0]})
    return x + self.held[0]["sum"] * self.held[-1]["size"]


def of_an_object(self: Any, x: Tensor) -> Any:
    self.inside.held.append(x.sum())
    return x + self.inside.held[0]


# ---- counters


def counted(self: Any, x: Tensor) -> Any:
    self.held["calls"] += 1
    self.held[x.shape[0]] += 1
    return x * self.held[x.shape[0]] + self.held["calls"] + self.held["nothing"]


def counted_on_sides(self: Any, x: Tensor) -> Any:
    if x.sum() > 12:
        self.held["big"] += 1
    else:
        self.held["small"] += 1
    return x + self.held["big"]


def updated(self: Any, x: Tensor) -> Any:
    self.held.update(["a", "b", "a"])
    self.held.update(a=x.shape[0])
    return x + self.held["a"] if isinstance(self.held, Counter) else x


def asked_as_a_whole(self: Any, x: Tensor) -> Any:
    self.held[x.shape[0]] += 1
    size, times = self.held.most_common(1)[0]
    return x * size + times + sum(self.held.values()) + max(self.held, key=self.held.get)


# ---- what is made where it is missing


def lists_by_size(self: Any, x: Tensor) -> Any:
    self.held[x.shape[0]].append(x.sum())
    return x + len(self.held[x.shape[0]]) + torch.stack(self.held[x.shape[0]]).sum()


def dicts(self: Any, x: Tensor) -> Any:
    of_layer = self.held["layer"]
    if "key" not in of_layer:
        of_layer["key"] = x.sum()
    return x + of_layer["key"]


def numbers(self: Any, x: Tensor) -> Any:
    self.held[x.shape[0]] += x.sum().item()
    return x + self.held[x.shape[0]]


def sets(self: Any, x: Tensor) -> Any:
    self.held["seen"].add("large" if x.sum() > 12 else "small")
    return x + len(self.held["seen"])


def of_a_function(self: Any, x: Tensor) -> Any:
    self.held["all"].append(x.sum())
    self.held[x.shape[0]].append(x.mean())
    return x + sum(self.held["all"]) + self.held[x.shape[0]][0]


def inside_of_each_other(self: Any, x: Tensor) -> Any:
    self.held["a"]["b"] += 1
    self.held["a"][x.shape[0]] += 2
    return x + self.held["a"]["b"] + self.held["a"][x.shape[0]]


# ---- order


def least_recently_used(self: Any, x: Tensor) -> Any:
    size = x.shape[0]
    if size in self.held:
        self.held.move_to_end(size)
    else:
        self.held[size] = torch.arange(size) * x.mean()
        if len(self.held) > 2:
            self.held.popitem(last=False)
    return x + self.held[size]


def moved(self: Any, x: Tensor) -> Any:
    self.held["a"], self.held["b"] = x.sum(), x.mean()
    self.held.move_to_end("a")
    for value in self.held.values():
        x = x * 0.5 + value
    return x


def gone_over_by_items(self: Any, x: Tensor) -> Any:
    self.held[x.shape[0]] = x.sum()
    for size, value in self.held.items():
        x = x + size * value
    return x + len(self.held)


def put_at_the_end(self: Any, x: Tensor) -> Any:
    self.held["a"] = self.held.pop("a", 0.0) + 1.0
    for value in self.held.values():
        x = x * 0.5 + value
    return x


# ---- made at the first call, and in a dict


def made_first(self: Any, x: Tensor) -> Any:
    if self.held is None:
        self.held = deque(maxlen=2)
    self.held.append(x.sum())
    return x + self.held[0]


def in_a_dict(self: Any, x: Tensor) -> Any:
    if x.shape[0] not in self.held:
        self.held[x.shape[0]] = deque(maxlen=2)
    self.held[x.shape[0]].append(x.sum())
    return x + self.held[x.shape[0]][0]


def only_in_training(self: Any, x: Tensor) -> Any:
    if self.training:
        self.held.append(x.sum())
    return x + (self.held[0] if len(self.held) else 0.0)


CASES: list[tuple[Any, Callable[[], Any]]] = [
    *[(way, last_two) for way in (summed, stacked, gone_over, taken_from_the_left, both_ends, cleared)],
    *[(way, last_two) for way in (as_long_as_it_may_get, asked_for_its_class, of_an_object, only_in_training)],
    (taken_from_the_left, deque), (gone_over, list),
    *[(way, Counter) for way in (counted, counted_on_sides, updated, asked_as_a_whole)],
    (lists_by_size, lambda: defaultdict(list)), (dicts, lambda: defaultdict(dict)), (sets, lambda: defaultdict(set)),
    (numbers, lambda: defaultdict(float)), (of_a_function, lambda: defaultdict(last_two)),
    (inside_of_each_other, lambda: defaultdict(counts)),
    (least_recently_used, OrderedDict), (moved, OrderedDict), (gone_over_by_items, OrderedDict),
    (gone_over_by_items, dict), (put_at_the_end, lambda: {"a": 1.0, "b": 2.0}),
    (put_at_the_end, lambda: OrderedDict(a=1.0, b=2.0)), (made_first, lambda: None), (in_a_dict, dict),
]  # fmt: skip


@pytest.mark.parametrize(
    ("way", "make"), [pytest.param(*case, id=f"{case[0].__name__} {i}") for i, case in enumerate(CASES)]
)
@pytest.mark.parametrize("door", ["called", "loaded"])
def test_what_holds_values_in_a_way_of_its_own_is_state(way: Any, make: Any, door: str, tmp_path: Path) -> None:
    model = Holds(way, make())
    eager = copy.deepcopy(model)
    gm: Any = graphwright.trace(model, (torch.ones(3),))
    assert model.held == make()
    if door == "loaded":
        graphwright.save(gm, tmp_path / "held.gw")
        gm = graphwright.load(tmp_path / "held.gw", allow=[__name__])
    for call, size in enumerate(SIZES):
        x = torch.arange(1.0, size + 1) * (call + 1)
        for each in (eager, gm):
            each.train(call % 3 > 0)
        assert torch.equal(gm(x), eager(x))
    assert shown(gm.held) == shown(eager.held)
    assert shown(gm.inside.held) == shown(eager.inside.held)


def shown(value: Any) -> Any:
    """A container with its class and numbers for tensors, to be compared."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return type(value), [(key, shown(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value), [shown(item) for item in value], getattr(value, "maxlen", None)
    return value


QUEUE: deque[Any] = deque(maxlen=2)
COUNTS: Counter[Any] = Counter()
LISTS: defaultdict[Any, list[Any]] = defaultdict(list)
ORDERED: OrderedDict[Any, Any] = OrderedDict()


def of_globals(x: Tensor) -> Any:
    QUEUE.append(x.sum())
    COUNTS[x.shape[0]] += 1
    LISTS["a"].append(x.mean())
    if x.shape[0] not in ORDERED:
        ORDERED[x.shape[0]] = x * 2
    return x + QUEUE[0] * COUNTS[x.shape[0]] + LISTS["a"][0] + ORDERED[x.shape[0]]


def test_globals_are_state() -> None:
    all_of_them: list[Any] = [QUEUE, COUNTS, LISTS, ORDERED]
    gm = graphwright.trace(of_globals, (torch.ones(3),))
    assert not any(all_of_them)
    outputs: list[Any] = []
    for run in (of_globals, gm):
        outputs.append([run(torch.arange(float(size))) for size in SIZES])
        outputs.append([shown(each) for each in all_of_them])
        for each in all_of_them:
            each.clear()
    assert all(map(torch.equal, outputs[0], outputs[2]))
    assert outputs[1] == outputs[3]


CHANGES: dict[str, tuple[Any, Any, Callable[[Any], Any]]] = {
    "cleared": (summed, last_two, lambda m: m.held.clear()),
    "another": (summed, last_two, lambda m: setattr(m, "held", deque([torch.tensor(1.0)], 3))),
    "of another length": (as_long_as_it_may_get, last_two, lambda m: setattr(m, "held", deque([1, 2], 5))),
    "of any length": (as_long_as_it_may_get, last_two, lambda m: setattr(m, "held", deque([1, 2]))),
    "of one length": (as_long_as_it_may_get, deque, lambda m: setattr(m, "held", deque([1, 2], 3))),
    "count": (counted, Counter, lambda m: m.held.update({"calls": 5, "nothing": 2})),
    "another count": (counted, Counter, lambda m: setattr(m, "held", Counter(calls=3))),
    "list": (lists_by_size, lambda: defaultdict(list), lambda m: m.held[4].append(torch.tensor(2.0))),
    "order": (put_at_the_end, lambda: OrderedDict(a=1.0, b=2.0), lambda m: m.held.move_to_end("a", last=False)),
    "key": (put_at_the_end, lambda: OrderedDict(a=1.0, b=2.0), lambda m: m.held.update(c=3.0)),
    "other value": (put_at_the_end, lambda: OrderedDict(a=1.0, b=2.0), lambda m: m.held.update(b=3.0)),
}


@pytest.mark.parametrize(("way", "make", "change"), CHANGES.values(), ids=CHANGES)
def test_what_others_put_there_is_used_or_an_error(way: Any, make: Any, change: Any) -> None:
    model = Holds(way, make())
    eager = copy.deepcopy(model)
    gm: Any = graphwright.trace(model, (torch.ones(3),))
    for size in (3, 4):
        assert torch.equal(gm(torch.ones(size)), eager(torch.ones(size)))
    for each in (gm, eager):
        change(each)
    for size in (4, 3):
        try:
            result = gm(torch.ones(size))
        except graphwright.GuardError:
            return
        assert torch.equal(result, eager(torch.ones(size)))
    assert shown(gm.held) == shown(eager.held)


def test_a_subclass_of_python_s_containers_is_refused() -> None:
    class Own(collections.OrderedDict[str, Any]):
        pass

    def forward(self: Any, x: Tensor) -> Any:
        self.held["a"] = x.sum()
        return x + self.held["a"]

    with pytest.raises(graphwright.CaptureError, match=r"changes what is in Holds\.held, of class Own"):
        graphwright.trace(Holds(forward, Own()), (torch.ones(3),))
