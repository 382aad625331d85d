"""What a program reads and something else changes between two calls: the graph reads it then, too, or says so."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import GuardError, ScriptError, script, trace

# What there is, what the program reads of it, and how it changes; HELD is a global name, or an attribute of a module.
WAYS = {
    "a number in a dict": ("{'v': 2}", "x * HELD['v']", "HELD['v'] = 5"),
    "a dict deep inside": ("{'a': [{'v': 2}]}", "x * HELD['a'][0]['v']", "HELD['a'][0]['v'] = 5"),
    "a list in a tuple": ("([2],)", "x * HELD[0][0]", "HELD[0][0] = 5"),
    "a named tuple": ("Pair([2], 1)", "x * HELD.a[0]", "HELD.a[0] = 5"),
    "a queue": ("collections.deque([2])", "x * HELD[0]", "HELD[0] = 5"),
    "tables in a row": ("collections.ChainMap({'v': 2})", "x * HELD['v']", "HELD['v'] = 5"),
    "a dict of Python's": ("collections.UserDict({'v': 2})", "x * HELD['v']", "HELD['v'] = 5"),
    "bytes": ("bytearray([2])", "x * HELD[0]", "HELD[0] = 5"),
    "an array of Python's": ("array.array('i', [2])", "x * HELD[0]", "HELD[0] = 5"),
    "an array": ("numpy.array([2.0])", "x * float(HELD[0])", "HELD[0] = 5"),
    "an object": ("Box(2)", "x * HELD.v", "HELD.v = 5"),
    "a method": ("Box(2)", "x * HELD.get()", "HELD.v = 5"),
    "an object that is called": ("Box(2)", "HELD(x)", "HELD.v = 5"),
    "an object with slots": ("Slots(2)", "x * HELD.v", "HELD.v = 5"),
    "its method": ("Slots(2)", "HELD(x)", "HELD.v = 5"),
    "fields": ("Record(2)", "x * HELD.v", "HELD.v = 5"),
    "a namespace": ("types.SimpleNamespace(v=2)", "x * HELD.v", "HELD.v = 5"),
    "options": ("argparse.Namespace(v=2)", "x * HELD.v", "HELD.v = 5"),
    "options in options": ("argparse.Namespace(m=argparse.Namespace(v=2))", "x * HELD.m.v", "HELD.m.v = 5"),
    "an object in an object": ("Box(Box(2))", "x * HELD.v.v", "HELD.v.v = 5"),
    "an object in a list": ("[Box(2)]", "x * HELD[0].v", "HELD[0].v = 5"),
    "its method in a dict": ("{'b': Box(2)}", "x * HELD['b'].get()", "HELD['b'].v = 5"),
    "by name": ("Box(2)", "x * getattr(HELD, 'v')", "HELD.v = 5"),
    "by the table of attributes": ("Box(2)", "x * vars(HELD)['v']", "HELD.v = 5"),
    "a function in a list": ("[double]", "HELD[0](x)", "HELD[0] = triple"),
    "a bound method": ("Box(2).get", "x * HELD()", "HELD.__self__.v = 5"),
    "a partial function": ("functools.partial(torch.mul, other=2)", "HELD(x)", "HELD.keywords['other'] = 5"),
    "a list in one": ("functools.partial(scaled, [2])", "HELD(x)", "HELD.args[0][0] = 5"),
    "a default": ("with_default()", "HELD(x)", "HELD.__defaults__[0][0] = 5"),
    "a default by name": ("with_named_default()", "HELD(x)", "HELD.__kwdefaults__['by']['v'] = 5"),
    "an attribute of a function": ("with_attribute()", "HELD(x)", "HELD.v = 5"),
    "a variable of a function": ("with_variable()", "HELD(x)", "HELD.set(5)"),
    "a module in a list": ("[Scaled(2)]", "HELD[0](x)", "HELD[0].v = 5"),
    "its attribute": ("[Scaled(2)]", "x * HELD[0].v", "HELD[0].v = 5"),
}  # fmt: skip

# The same of what no module has an attribute for.
OF_GLOBALS = {
    "a view of a dict": ("types.MappingProxyType({'v': [2]})", "x * HELD['v'][0]", "HELD['v'][0] = 5"),
    "an attribute of a class": ("Kind", "x * Kind.v", "Kind.v = 5"),
    "a method of a class": ("Kind", "Kind.of_class(x)", "Kind.v = 5"),
    "a function of a class": ("Kind", "Kind.static(x)", "Kind.v = 5"),
    "a property": ("Kind", "x * Kind().prop", "Kind.table['v'] = 5"),
    "another property": ("Kind", "x * Kind().prop", "Kind.prop = property(lambda self: 5)"),
    "a class of the class": ("Kind", "x * Kind.of_meta", "Meta.of_meta = 5"),
    "a descriptor": ("{'v': 2}", "x * Described().v", "HELD['v'] = 5"),
    "a global by name": ("2", "x * globals()['HELD']", "HELD = 5"),
}  # fmt: skip

HEAD = """
import argparse, array, collections, dataclasses, functools, types
import numpy, torch

Pair = collections.namedtuple("Pair", "a b")

class Box:
    def __init__(self, v): self.v = v
    def get(self): return self.v
    def __call__(self, x): return x * self.v

class Slots:
    __slots__ = ("v",)
    def __init__(self, v): self.v = v
    def __call__(self, x): return x * self.v

@dataclasses.dataclass
class Record:
    v: int

class Scaled(torch.nn.Module):
    def __init__(self, v):
        super().__init__()
        self.v = v
    def forward(self, x): return x * self.v

class Meta(type):
    of_meta = 2

class Kind(metaclass=Meta):
    v = 2
    table = {"v": 2}
    @classmethod
    def of_class(cls, x): return x * cls.v
    @staticmethod
    def static(x): return x * Kind.v
    @property
    def prop(self): return self.table["v"]

class OfHeld:
    def __get__(self, owner, kind): return HELD["v"]

class Described:
    v = OfHeld()

def double(x): return x * 2
def triple(x): return x * 3
def scaled(by, x): return x * by[0]

def with_default():
    def scale(x, by=[2]): return x * by[0]
    return scale

def with_named_default():
    def scale(x, *, by={"v": 2}): return x * by["v"]
    return scale

def with_attribute():
    def scale(x): return x * scale.v
    scale.v = 2
    return scale

def with_variable():
    n = 2
    def scale(x): return x * n
    def put(v):
        nonlocal n
        n = v
    scale.set = put
    return scale
"""

OF_GLOBAL = """
HELD = {held}
def program(x): return {read}
def change():
    global HELD
    {change}
"""

OF_MODULE = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.held = {held}
    def forward(self, x): return {read}
def change(HELD): {change}
"""


def loaded(path: Path, text: str) -> ModuleType:
    path.write_text(HEAD + text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def follows(captured: Callable[..., Any], program: Callable[..., Any], x: torch.Tensor) -> bool:
    """Tell whether what was captured does what the program does now, or says that it does not."""
    try:
        return torch.equal(captured(x), program(x))
    except GuardError as error:
        return "has changed" in str(error) or "now it is" in str(error)


@pytest.mark.parametrize("way", {**WAYS, **OF_GLOBALS})
def test_what_is_outside(way: str, tmp_path: Path) -> None:
    held, read, change = {**WAYS, **OF_GLOBALS}[way]
    module = loaded(tmp_path / "outside_of_program.py", OF_GLOBAL.format(held=held, read=read, change=change))
    x = torch.ones(2)
    gm = trace(module.program, (x,))
    assert torch.equal(gm(x), module.program(x)) and torch.equal(gm(x), 2 * x)
    module.change()
    assert not torch.equal(module.program(x), 2 * x)
    assert follows(gm, module.program, x)


NOT_SCRIPTED = {
    "by the table of attributes", "a module in a list", "its attribute", "a global by name",
}  # fmt: skip


@pytest.mark.parametrize("way", {**WAYS, **OF_GLOBALS})
def test_what_is_outside_of_a_script(way: str, tmp_path: Path) -> None:
    held, read, change = {**WAYS, **OF_GLOBALS}[way]
    module = loaded(tmp_path / "outside_of_script.py", OF_GLOBAL.format(held=held, read=read, change=change))
    x = torch.ones(2)
    if way in NOT_SCRIPTED:
        with pytest.raises(ScriptError):
            script(module.program)
        return
    gm = script(module.program)
    assert torch.equal(gm(x), 2 * x)
    module.change()
    assert follows(gm, module.program, x)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_module_has(way: str, tmp_path: Path) -> None:
    held, read, change = WAYS[way]
    text = OF_MODULE.format(held=held, read=read.replace("HELD", "self.held"), change=change)
    module = loaded(tmp_path / "attributes_of_model.py", text)
    x, model = torch.ones(2), module.Model()
    gm = trace(model, (x,))
    assert torch.equal(gm(x), 2 * x)
    module.change(model.held)
    if getattr(gm, "held", model.held) is not model.held:  # the captured module has its own
        module.change(gm.held)
    assert not torch.equal(model(x), 2 * x)
    assert follows(gm, model, x)


class Counting(nn.Module):
    """Writes to an object in an object of a list: what it writes itself is no reason to refuse a call."""

    def __init__(self) -> None:
        super().__init__()
        self.held = [Counter(Counter(0))]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.held[0].count.count += 1
        return x * self.held[0].count.count


class Counter:
    def __init__(self, count: object) -> None:
        self.count = count


COUNTERS = [Counter(Counter(0))]


def counting(x: torch.Tensor) -> torch.Tensor:
    COUNTERS[0].count.count += 1  # type: ignore[attr-defined]
    return x * COUNTERS[0].count.count  # type: ignore[attr-defined]


def test_what_the_program_writes_deep_inside() -> None:
    x = torch.ones(2)
    gm = trace(Counting(), (x,))
    assert [gm(x)[0].item() for _ in range(3)] == [1, 2, 3]
    gm = trace(counting, (x,))
    assert [gm(x)[0].item() for _ in range(3)] == [1, 2, 3]
