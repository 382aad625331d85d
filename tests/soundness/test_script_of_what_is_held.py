"""What a scripted program reads of what its modules hold, and of what lies outside, changes in no silence.

Tensors are read at each call; the rest is compared with what it was.
"""

from __future__ import annotations

import collections
import copy
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import GraphwrightError, GuardError, ScriptError, load, save, script

ONES = torch.ones(4)


class Plain:
    """An object whose attributes are all there is to it."""


class ByKey:
    def __init__(self, **entries: Any) -> None:
        self.entries = entries

    def __getitem__(self, key: str) -> Any:
        return self.entries[key]

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def __len__(self) -> int:
        return len(self.entries)


class ByName:
    def __init__(self, **entries: Any) -> None:
        self.entries = entries

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["entries"][name]
        except KeyError:
            raise AttributeError(name) from None


class Shared:
    scale = 3.0


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = 2.0

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(x)


class ScaledByOne(Scaled):
    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.by


def times(x: torch.Tensor, by: Any) -> torch.Tensor:
    return x * by


class Holder(nn.Module):
    chosen = torch.relu

    def __init__(self) -> None:
        super().__init__()
        self.table = {"a": torch.full((4,), 2.0), "b": 3.0}
        self.rows = [torch.full((4,), 2.0), 3.0]
        self.pair = (torch.full((4,), 2.0), 3.0)
        self.deep = {"p": [{"k": torch.full((4,), 2.0)}]}
        self.numbers = {"p": {"k": None}}
        self.thing = Plain()
        self.thing.scale = torch.full((4,), 2.0)  # type: ignore[attr-defined]
        self.keyed, self.named = ByKey(a=2.0), ByName(a=2.0, t=torch.full((4,), 2.0))
        self.shared = Shared()
        self.part = functools.partial(times, by=torch.full((4,), 2.0))
        self.layers = nn.Sequential(nn.ReLU(), nn.Tanh())
        self.child = Scaled()
        self.bias = nn.Parameter(torch.ones(4))
        self.number: Any = torch.full((4,), 2.0)
        self.scale_by, self.functions = multiply(2.0), [torch.relu, multiply(2.0)]
        self.sized, self.several = Sized(), [1, 2, 3]

    @functools.cached_property
    def made(self) -> dict[str, Any]:
        return {"a": torch.full((4,), 2.0)}


def program(body: Callable[[Any, Any], Any]) -> type[Holder]:
    return type("Program", (Holder,), {"forward": body})


def item(self, x):
    return x * self.table["a"]


def entries(self, x):
    for key, value in self.table.items():
        x = x * value + len(key)
    return x


def missing(self, x):
    return x if self.table.get("c") is None else x * 2


def has_key(self, x):
    return x + 1 if "c" in self.table else x - 1


def rows(self, x):
    for row in self.rows:
        x = x * row
    return x


def pair(self, x):
    return x * self.pair[0] + self.pair[1]


def deep(self, x):
    return x * self.deep["p"][0]["k"]


def is_none_inside(self, x):
    return x + 1 if self.numbers["p"]["k"] is None else x - 1


def of_object(self, x):
    return x * self.thing.scale


def is_tensor(self, x):
    return x + 1 if isinstance(self.thing.scale, torch.Tensor) else x - 1


def by_key(self, x):
    return x * self.keyed["a"] + (1 if "a" in self.keyed else 2)


def by_name(self, x):
    return x * self.named.a


def of_class(self, x):
    return x * self.shared.scale


def partial(self, x):
    return self.part(x)


def how_many(self, x):
    return x + len(self.layers)


def lacks(self, x):
    return x + 1 if hasattr(self.child, "extra") else x - 1


def has(self, x):
    return x + 1 if hasattr(self.thing, "scale") else x - 1


def method_of_child(self, x):
    return self.child.scaled(x)


def kind_of_child(self, x):
    return x + 1 if isinstance(self.child, ScaledByOne) else x - 1


def is_there(self, x):
    return x + 1 if self.child is not None else x - 1


def function_of_class(self, x):
    return Outside.function(x)


def attribute_is_tensor(self, x):
    return x + 1 if isinstance(self.number, torch.Tensor) else x - 1


def made_once(self, x):
    return x * self.made["a"]


def counted(self, x):
    return x + len(list(self.parameters()))


def multiply(by: Any) -> Callable[[Any], Any]:
    return lambda x: x * by


class Computed(type):
    def __getattr__(cls, name: str) -> float:
        return 3.0


class Outside(metaclass=Computed):
    function: Any = torch.relu


MANY = list(range(1000))
ONE = [1, 2]
SAME = ONE


def closure(self, x):
    return self.scale_by(x)


def functions(self, x):
    for function in self.functions:
        x = function(x)
    return x


def length_of_its_own(self, x):
    return x + len(self.sized) + (1 if self.sized else 2) + (3 if 3 in self.sized else 4)


def children(self, x):
    for _ in self.layers.children():
        x = x + 1
    return x


def starred(self, x):
    first, *_, last = self.several
    return x * first + last


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.size = 2

    def __len__(self) -> int:
        return self.size

    def __contains__(self, number: int) -> bool:
        return number < self.size


def _set(name: str, value: Any) -> Callable[[Any], None]:
    def change(module: Any) -> None:
        *way, last = name.split(".")
        for part in way:
            module = getattr(module, part)
        setattr(module, last, value)

    return change


def _entry(name: str, key: Any, value: Any) -> Callable[[Any], None]:
    return lambda module: getattr(module, name).__setitem__(key, value)


OTHER = torch.full((4,), -5.0)
CHANGES = [
    pytest.param(item, _entry("table", "a", 4.0), id="an item is a number"),
    pytest.param(item, lambda m: m.table.pop("a"), id="an item is gone"),
    pytest.param(item, _set("table", None), id="the dict is gone"),
    pytest.param(entries, _entry("table", "c", 2.0), id="one more item"),
    pytest.param(entries, _set("table", {"b": 3.0, "a": torch.full((4,), 2.0)}), id="another order"),
    pytest.param(missing, _entry("table", "c", 2.0), id="a key that was not there"),
    pytest.param(has_key, _entry("table", "c", 2.0), id="a key that was asked for"),
    pytest.param(rows, lambda m: m.rows.append(2.0), id="one more row"),
    pytest.param(rows, lambda m: m.rows.__setitem__(1, 4.0), id="another number among rows"),
    pytest.param(pair, _set("pair", (torch.full((4,), 2.0), 4.0)), id="another number in a tuple"),
    pytest.param(deep, lambda m: m.deep["p"].insert(0, {"k": 3.0}), id="deep inside"),
    pytest.param(is_none_inside, lambda m: m.numbers["p"].__setitem__("k", 3), id="no longer None"),
    pytest.param(is_tensor, _set("thing.scale", 2.0), id="no longer a tensor"),
    pytest.param(by_key, lambda m: m.keyed.entries.__setitem__("a", 5.0), id="behind __getitem__"),
    pytest.param(by_name, lambda m: m.named.entries.__setitem__("a", 5.0), id="behind __getattr__"),
    pytest.param(by_name, _set("named.a", 5.0), id="before __getattr__"),
    pytest.param(of_class, _set("shared.scale", 5.0), id="an attribute before that of the class"),
    pytest.param(partial, _set("part", functools.partial(times, by=5.0)), id="another argument of a partial"),
    pytest.param(how_many, lambda m: m.layers.append(nn.ReLU()), id="one more layer"),
    pytest.param(how_many, lambda m: m.layers.pop(1), id="one layer less"),
    pytest.param(lacks, _set("child.extra", 1), id="an attribute that was not there"),
    pytest.param(has, lambda m: delattr(m.thing, "scale"), id="an attribute that is gone"),
    pytest.param(method_of_child, _set("child.__class__", ScaledByOne), id="another class"),
    pytest.param(kind_of_child, _set("child", ScaledByOne()), id="another kind"),
    pytest.param(is_there, _set("child", None), id="a module that is gone"),
    pytest.param(attribute_is_tensor, _set("number", 2.0), id="an attribute that is no tensor"),
    pytest.param(made_once, lambda m: m.made.__setitem__("a", 3.0), id="what was made once"),
    pytest.param(closure, lambda m: setattr(m, "scale_by", multiply(5.0)), id="another closure of the same function"),
    pytest.param(functions, lambda m: m.functions.__setitem__(1, multiply(5.0)), id="another closure in a list"),
    pytest.param(functions, lambda m: m.functions.__setitem__(0, torch.sigmoid), id="another function in a list"),
    pytest.param(length_of_its_own, _set("sized.size", 4), id="behind __len__ and __contains__ of a module"),
    pytest.param(length_of_its_own, _set("sized.size", 0), id="behind __len__ as a truth"),
    pytest.param(children, lambda m: m.layers.pop(1), id="one child less"),
    pytest.param(starred, lambda m: m.several.__delitem__(slice(1, None)), id="too few to take apart"),
    pytest.param(counted, _set("bias", None), id="one parameter less"),
]


def outcome(module: Any) -> Any:
    try:
        return module(ONES)
    except Exception as error:
        return error


def agree(expected: Any, got: Any) -> bool:
    if isinstance(expected, Exception):
        return isinstance(got, GraphwrightError) or type(got) is type(expected)
    return isinstance(got, GraphwrightError) or (isinstance(got, torch.Tensor) and torch.equal(expected, got))


@pytest.mark.parametrize(("body", "change"), CHANGES)
def test_a_change_is_seen(body: Callable[[Any, Any], Any], change: Callable[[Any], Any]) -> None:
    module = program(body)()
    captured = script(copy.deepcopy(module))
    assert torch.equal(captured(ONES), module(ONES))
    change(module)
    change(captured)
    assert agree(outcome(module), outcome(captured))


@pytest.mark.parametrize(("body", "change"), CHANGES)
def test_a_change_of_a_copy_is_seen(body: Callable[[Any, Any], Any], change: Callable[[Any], Any]) -> None:
    module = program(body)()
    copied = copy.deepcopy(script(module))
    assert torch.equal(copied(ONES), module(ONES))
    change(module)
    change(copied)
    assert agree(outcome(module), outcome(copied))


@pytest.mark.parametrize(
    ("body", "change"),
    [
        pytest.param(item, _entry("table", "a", OTHER), id="of a dict"),
        pytest.param(deep, lambda m: m.deep["p"][0].__setitem__("k", OTHER), id="deep inside"),
        pytest.param(rows, lambda m: m.rows.__setitem__(0, OTHER), id="of a list"),
        pytest.param(pair, _set("pair", (OTHER, 3.0)), id="of a tuple"),
        pytest.param(of_object, _set("thing.scale", OTHER), id="of an object"),
        pytest.param(partial, _set("part", functools.partial(times, by=OTHER)), id="of a partial function"),
    ],
)
def test_another_tensor_is_read(body: Callable[[Any, Any], Any], change: Callable[[Any], Any]) -> None:
    module = program(body)()
    captured = script(module)
    change(module)
    change(captured)
    assert torch.equal(captured(ONES), module(ONES))


@pytest.mark.parametrize("body", [item, entries, rows, pair, deep, of_object, by_key, by_name, of_class])
def test_what_is_held_is_read_of_a_file(body: Callable[[Any, Any], Any], tmp_path: Any) -> None:
    module = program(body)()
    save(script(module), tmp_path / "held.gw", as_plain=True)
    assert torch.equal(load(tmp_path / "held.gw", allow=["tests"])(ONES), module(ONES))


def test_a_list_that_is_given_back_is_the_one_that_is_held() -> None:
    captured = script(program(lambda self, x: (x, self.rows))())
    assert captured(ONES)[1] is captured.rows


def test_functions_that_classes_hold_under_other_names_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = script(program(function_of_class)())
    monkeypatch.setattr(Outside, "function", torch.sigmoid)
    with pytest.raises(GuardError, match=r"Outside\.function"):
        captured(ONES)


@pytest.mark.parametrize(
    ("body", "change"),
    [
        pytest.param(
            lambda self, x: x + len(MANY),
            lambda patch: patch.setitem(globals(), "MANY", [*MANY, 1]),
            id="a long list",
        ),
        pytest.param(
            lambda self, x: x + 1 if ONE is SAME else x - 1,
            lambda patch: patch.setitem(globals(), "SAME", [1, 2]),
            id="the same, and another list",
        ),
        pytest.param(
            lambda self, x: x + Outside.scale,
            lambda patch: patch.setattr(Outside, "scale", 7.0, raising=False),
            id="what a metaclass computes",
        ),
    ],
)
def test_a_change_outside_is_seen(body: Any, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = program(body)()
    captured = script(module)
    assert torch.equal(captured(ONES), module(ONES))
    change(monkeypatch)
    with pytest.raises(GuardError):
        captured(ONES)


@functools.lru_cache
def drawn(count: int) -> torch.Tensor:
    return torch.rand(count)


@functools.lru_cache
def twos(count: int) -> Any:
    return torch.full((count,), 2.0)


def test_what_a_cache_keeps_is_read_of_it() -> None:
    module = program(lambda self, x: x * drawn(4) + twos(4))()
    captured = script(module)
    expected = module(ONES)
    assert torch.equal(captured(ONES), expected) and torch.equal(captured(ONES), expected)
    twos(4).zero_()
    assert torch.equal(captured(ONES), module(ONES))
    twos.cache_clear()
    assert torch.equal(captured(ONES), module(ONES))


def test_whether_a_list_is_the_very_one_outside_is_refused() -> None:
    with pytest.raises(ScriptError, match="the very list"):
        script(program(lambda self, x: x + 1 if self.several is ONE else x)())


def test_whether_something_is_there_is_not_asked_of_getattr() -> None:
    with pytest.raises(ScriptError, match="only `__getattr__` knows"):
        script(program(lambda self, x: x + 1 if hasattr(self.named, "a") else x)())


def test_objects_without_a_dict_and_of_other_containers_are_read() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ordered = collections.OrderedDict(a=torch.ones(4), b=2.0)
            self.space = types.SimpleNamespace(rows=[torch.ones(4)], kind="a")

        def forward(self, x):
            for value in self.ordered.values():
                x = x + value
            return x * self.space.rows[0] if self.space.kind == "a" else x

    module = Held()
    captured = script(module)
    assert torch.equal(captured(ONES), module(ONES))
    captured.ordered.move_to_end("a")
    with pytest.raises(GuardError, match="ordered"):
        captured(ONES)
