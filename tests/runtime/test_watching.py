"""What a module is captured with is looked at in each call, whatever replaced its tables."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright.errors import GuardError
from graphwright.runtime import Watch, Watched, watching

X = torch.ones(2)


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu() + 1


class Other(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - 5


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(Inner())

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * 2


def _hook_in_another_table(module: Any) -> None:
    module.inner[0]._forward_hooks = collections.OrderedDict()
    module(X)
    module.inner[0].register_forward_hook(lambda module, args, result: result + 100)


def _child_in_another_table(module: Any) -> None:
    module.inner.__dict__["_modules"] = dict(module.inner._modules)
    module(X)
    module.inner._modules["0"] = Other()


@pytest.mark.parametrize("change", [_hook_in_another_table, _child_in_another_table])
@pytest.mark.parametrize("counts", [True, False], ids=["versions", "no versions"])
def test_a_table_in_the_place_of_another(
    change: Callable[[Any], None], counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not counts:
        monkeypatch.setattr(watching, "_found", None)
    gm = graphwright.trace(Outer(), X)
    gm(X)
    with pytest.raises(GuardError, match=r"inner\.0"):
        change(gm) or gm(X)


WRITES: dict[str, Callable[[dict[str, int]], Any]] = {
    "a new key": lambda table: table.update(new=1),
    "another value": lambda table: table.__setitem__("a", 2),
    "an equal value": lambda table: table.__setitem__("a", True),
    "a key removed": lambda table: table.pop("a"),
    "the last key removed": lambda table: table.popitem(),
    "all keys removed": lambda table: table.clear(),
    "a default": lambda table: table.setdefault("new", 1),
    "joined": lambda table: table.__ior__({"new": 1}),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_a_write_to_a_table_is_noticed(write: Callable[[dict[str, int]], Any], kind: type) -> None:
    table = kind(a=1, b=2)
    watch = Watch([Watched([{}, table])])
    assert not watch.holds()
    watch.keep(watch.look())
    assert watch.holds() or watching._found is None
    write(table)
    assert not watch.holds()


INTO_EMPTY: dict[str, Callable[[dict[str, int]], Any]] = {
    "a key": lambda table: table.__setitem__("a", 2),
    "a default": lambda table: table.setdefault("new", 1),
    "keywords": lambda table: table.update(new=1),
    "a dict": lambda table: table.update({"new": 1}),
    "pairs": lambda table: table.update([("new", 1)]),
    "joined": lambda table: table.__ior__({"new": 1}),
    "filled and emptied": lambda table: table.update({"new": 1}) or table.clear(),
}


@pytest.mark.parametrize("write", INTO_EMPTY.values(), ids=INTO_EMPTY)
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_a_write_to_an_empty_table_is_noticed(write: Callable[[dict[str, int]], Any], kind: type) -> None:
    table = kind()
    watch = Watch([Watched([table])])
    watch.keep(watch.look())
    assert watch.holds() or watching._found is None
    write(table)
    assert not watch.holds()


def test_attributes_of_modules_are_tables() -> None:
    module = nn.Linear(2, 2)
    watch = Watch([Watched([module.__dict__])])
    for change in (
        lambda: setattr(module, "note", 1),
        lambda: delattr(module, "note"),
        lambda: module.train(False),
        lambda: object.__setattr__(module, "forward", None),
    ):
        watch.keep(watch.look())
        change()
        assert not watch.holds()


def test_what_may_change_without_a_write() -> None:
    class Kind(Inner):
        pass

    module = Kind()
    hooks: dict[str, int] = {}
    watch = Watch([Watched((), [hooks], [module], [Kind], [Kind], [Kind.forward])])
    watch.keep(watch.look())
    assert watch.holds() or watching._found is None
    hooks["a"] = 1
    assert not watch.holds()
    hooks.clear()
    module.__class__ = Inner
    assert not watch.holds()
    module.__class__ = Kind
    Kind.forward = Other.forward  # type: ignore[method-assign]
    assert not watch.holds()


def test_what_is_no_dict_is_not_taken_for_unchanged() -> None:
    watch = Watch([Watched([nn.ParameterDict()])])  # type: ignore[list-item]
    watch.keep(watch.look())
    assert not watch.holds()


def test_where_looks_are_in_vain_they_become_rare() -> None:
    table: dict[str, int] = {}
    watch = Watch([Watched([table])])
    given = []
    for number in range(200):
        table["a"] = number
        given.append(watch.look() is not None)
        watch.keep(None)
    assert sum(given) < 50
    for _ in range(watching._PATIENCE):  # from time to time they are tried again
        if not watch.holds():
            watch.keep(watch.look())
    assert watch.holds() or watching._found is None


class Counting(nn.Module):
    """Writes to the table in which what it takes for granted is, and to another one's."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.mode, self.inner = 0, "scaled", nn.Sequential(Inner())
        self.inner.steps = 0  # type: ignore[assignment]
        self.inner.kind = "shifted"  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.inner.steps += 1  # type: ignore[operator]
        x = self.inner(x) * (2 if self.mode == "scaled" else 3)
        return x + self.calls if self.inner.kind == "shifted" else x


def _other_mode(module: Any) -> None:
    module.mode = "plain"


def _other_kind(module: Any) -> None:
    module.inner.kind = "plain"


def _other_forward(module: Any) -> None:
    module.inner.forward = lambda x: x


def _other_child(module: Any) -> None:
    module.inner[0] = Other()


def _hook(module: Any) -> None:
    module.inner[0].register_forward_hook(lambda module, args, result: result + 100)


@pytest.mark.parametrize("change", [_other_mode, _other_kind, _other_forward, _other_child, _hook])
def test_what_counts_beside_what_the_program_writes(change: Callable[[Any], None]) -> None:
    module = Counting()
    gm = graphwright.trace(module, X)
    for _ in range(3):
        torch.testing.assert_close(gm(X), module(X), rtol=0, atol=0)
    change(gm)
    with pytest.raises(GuardError):
        gm(X)
