"""What part of a program may come to and change, by whatever way: the graph does that where the program does."""

from __future__ import annotations

import contextvars
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import CaptureError, GuardError, TracerWarning, trace

# What there is before, what a part of the program does to it, and what is seen of it afterwards.
WAYS = {
    "a function": ("log, add = made()", "add(1)", "log"),
    "a function in a list": ("log, add = made(); held = [add]", "held[0](1)", "log"),
    "a function in a tuple": ("log, add = made(); held = (add, 1)", "held[0](1)", "log"),
    "a function in a dict": ("log, add = made(); held = {'a': add}", "held['a'](1)", "log"),
    "a function in an object": ("log, add = made(); box = Box(); box.add = add", "box.add(1)", "log"),
    "a function in a function": ("log, add = made(); outer = lambda: add", "outer()(1)", "log"),
    "a wrapped function": ("log, add = made(); held = {'a': wrapped(add)}", "held['a'](1)", "log"),
    "a partial function": ("log = []; add = functools.partial(add_to, log)", "add(1)", "log"),
    "words of a partial function": ("log = []; add = functools.partial(add_to, v=1, log=log)", "add()", "log"),
    "a default": ("log = []\ndef add(v, to=log): to.append(v)", "add(1)", "log"),
    "a default by name": ("log = []\ndef add(v, *, to=log): to.append(v)", "add(1)", "log"),
    "an attribute of a function": ("def add(v): add.calls += v\nadd.calls = 0", "add(1)", "add.calls"),
    "a number of a function": ("n = 0\ndef add():\n    nonlocal n\n    n += 1\nheld = [add]", "held[0]()", "n"),
    "a method of a list": ("log = []; add = log.append", "add(1)", "log"),
    "a method in a list": ("log = []; held = [log.append]", "held[0](1)", "log"),
    "a method of a dict": ("table = {}; put = table.__setitem__", "put('a', 1)", "table"),
    "a method of an object": ("box = Box(); add = box.put", "add(1)", "box.items"),
    "an object with slots": ("box = Slots()", "box.items.append(1)", "box.items"),
    "a slot": ("box = Slots()", "box.items = [1]", "box.items"),
    "an attribute of a class": ("class Kind: n = 0", "Kind.n = 3", "Kind.n"),
    "a list of a class": ("class Kind: n = []\nheld = Kind()", "held.n.append(3)", "Kind.n"),
    "a named tuple": ("held = Pair([], 1)", "held.a.append(1)", "held.a"),
    "a weak reference": ("box = Box(); held = weakref.ref(box)", "held().items.append(1)", "box.items"),
    "a view of a dict": ("table = {'a': [1]}; held = table.values()", "list(held)[0].append(2)", "table"),
    "a proxy of a dict": ("table = {'a': []}; held = types.MappingProxyType(table)", "held['a'].append(1)", "table"),
    "a list deep inside": ("held = {'a': [{'b': [{'c': [{'d': [0]}]}]}]}", "held['a'][0]['b'][0]['c'][0]['d'].pop()",
                           "held"),
    "a key of a list": ("log = []; rows = [3, 1]", "rows.sort(key=lambda v: log.append(v) or -v)", "(rows, log)"),
    "a key of max": ("log = []; rows = [3, 1]", "max(rows, key=lambda v: log.append(v) or -v)", "log"),
    "an iterator": ("held = iter([1, 2, 3, 4, 5])", "next(held)", "next(held)"),
    "an iterator in a list": ("held = [iter({1: 2, 3: 4, 5: 6, 7: 8}.items())]", "next(held[0])", "next(held[0])"),
    "a counter": ("held = itertools.count()", "next(held)", "next(held)"),
    "pairs with numbers": ("held = enumerate([5, 6, 7, 8])", "next(held)", "next(held)"),
    "a generator": ("held = (i for i in [1, 2, 3, 4, 5])", "next(held)", "next(held)"),
    "an array": ("held = [numpy.zeros(2)]", "held[0][0] = 5", "held[0].tolist()"),
    "an array of Python's": ("held = array.array('i', [1])", "held.append(2)", "held.tolist()"),
    "bytes": ("held = bytearray(b'a')", "held.append(1)", "bytes(held)"),
    "a text in memory": ("held = io.StringIO()", "held.write('a')", "held.getvalue()"),
    "random numbers": ("held = random.Random(0)", "held.random()", "held.random()"),
    "a global list": ("LOG[0] = 0", "LOG[0] += 1", "LOG[0]"),
    "a class of the module": ("Kept.n = 0", "Kept.n += 1", "Kept.n"),
    "a function of the module": ("count.calls = 0", "count(1)", "count.calls"),
    "a value of the module": ("restart()", "step()", "STEP"),
    "a list in a context": ("log = []; token = HERE.set({'a': log})", "HERE.get()['a'].append(1)",
                            "HERE.reset(token) or log"),
    "a context": ("token = HERE.set(0)", "HERE.set(HERE.get() + 1)", "(HERE.get(), HERE.reset(token))"),
}  # fmt: skip

FORMS = {
    "if": "if x.sum() > 0:\n    ACT",
    "elif": "if x.sum() > 100:\n    x = x + 1\nelif x.sum() > 0:\n    ACT\nelse:\n    x = x + 2",
    "and": "if x.sum() > 0 and x.sum() < 100:\n    ACT",
    "rounds": "for row in x:\n    if row.sum() > 0:\n        ACT",
    "while": "k = 0\nwhile x.sum() + k < 3:\n    k += 1\n    ACT",
    "try": "try:\n    ACT\n    if x.sum() > 0:\n        raise ValueError\nexcept ValueError:\n    x = x + 1",
}

HEAD = """
import array, contextvars, functools, io, itertools, random, types, weakref
import collections
import numpy

Pair = collections.namedtuple("Pair", "a b")
LOG, STEP, HERE = [0], 0, contextvars.ContextVar("HERE")

class Box:
    def __init__(self): self.items = []
    def put(self, v): self.items.append(v)

class Slots:
    __slots__ = ("items",)
    def __init__(self): self.items = []

class Kept:
    n = 0

def made():
    log = []
    def add(v): log.append(v)
    return log, add

def wrapped(function):
    @functools.wraps(function)
    def inner(*args): return function(*args)
    return inner

def add_to(log, v): log.append(v)
def count(v): count.calls += v
count.calls = 0

def restart():
    global STEP
    STEP = 0

def step():
    global STEP
    STEP += 1
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Each way in each form, as a function of one file."""
    text = HEAD
    for i, (before, act, seen) in enumerate(WAYS.values()):
        for name, form in FORMS.items():
            lines = "\n".join((before.replace("; ", "\n"), form.replace("ACT", act), f"return x, {seen}"))
            text += f"\ndef of_{i}_{name}(x):\n" + "".join(f"    {line}\n" for line in lines.splitlines())
    path: Path = tmp_path_factory.mktemp("reach") / "ways_of_reaching.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INPUTS = (torch.ones(3, 3), -torch.ones(3, 3), 0.3 * torch.ones(2, 2))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
def test_what_a_part_changes_is_changed_where_it_runs(programs: ModuleType, way: str, form: str) -> None:
    program = getattr(programs, f"of_{[*WAYS].index(way)}_{form}")
    for example in INPUTS[:2]:
        try:
            gm = trace(program, (example.clone(),))
        except (CaptureError, StopIteration):
            assert form == "while"  # in which it happens as often as data says
            continue
        for x in INPUTS:
            try:
                mine = outcome(gm, x)
            except GuardError:
                assert form in ("rounds", "try", "while")  # as many rounds as the example has
                continue
            assert mine == outcome(program, x)


def outcome(program: Any, x: torch.Tensor) -> Any:
    """The numbers that a program gives, or the class of the error of Python's that it raises."""
    try:
        value, seen = program(x.clone())
    except (StopIteration, IndexError) as error:
        return type(error)
    return value.tolist(), seen


# ---- what modules have


class Leaf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.calls = 0

    def note(self) -> None:
        self.seen.append(1)
        self.calls += 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Nest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"leaf": Leaf()})
        self.leaves = nn.ModuleList([Leaf()])
        self.first = nn.Sequential(nn.Sequential(Leaf()))


class Deep(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.nest, self.way = Nest(), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "set":
            if x.sum() > 0:
                setattr(self.nest.inner["leaf"], "calls", 7)  # noqa: B010
        elif self.way == "assigned":
            if x.sum() > 0:
                self.nest.leaves[0].calls = 7
        elif self.way == "filled":
            if x.sum() > 0:
                self.nest.first[0][0].seen.append(3)
        elif self.way == "noted":
            if x.sum() > 0:
                self.nest.leaves[0].note()
        elif self.way == "bound":
            note = self.nest.inner["leaf"].note
            if x.sum() > 0:
                note()
        return x

    def told(self) -> list[Any]:
        leaves = self.nest.inner["leaf"], self.nest.leaves[0], self.nest.first[0][0]
        return [(leaf.seen, leaf.calls) for leaf in leaves]


@pytest.mark.parametrize("way", ["set", "assigned", "filled", "noted", "bound"])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_a_side_changes_of_modules_deep_inside(way: str, sign: int) -> None:
    model = Deep(way)
    gm = trace(Deep(way), (sign * torch.ones(3),))
    for x in (torch.ones(3), -torch.ones(3), torch.ones(2)):
        gm(x), model(x)
        assert Deep.told(gm) == model.told()  # type: ignore[arg-type]


class Hiding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = [Leaf()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden[0].note()
        return x


def test_a_module_that_no_module_has_must_not_be_changed() -> None:
    model = Hiding()
    with pytest.raises(CaptureError, match="changes a module that Hiding has in 'hidden'"):
        trace(model, (torch.ones(3),))
    assert (model.hidden[0].seen, model.hidden[0].calls) == ([], 0)


HEARD: contextvars.ContextVar[list[torch.Tensor] | None] = contextvars.ContextVar("HEARD", default=None)


def listen(module: nn.Module, args: Any, output: torch.Tensor) -> None:
    heard = HEARD.get()
    if heard is not None:
        if len(heard) == 0:
            heard.append(args[0])
        heard.append(output)


class Dropping(nn.Module):
    """Runs some of its layers, and gives what a hook has heard, as transformers' models collect hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(3, 3)) for _ in range(2)])
        for layer in self.layers:
            layer.register_forward_hook(listen)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        heard: list[torch.Tensor] = []
        token = HEARD.set(heard)
        for layer in self.layers:
            if x.sum() > 0:
                x = layer(x)
        HEARD.reset(token)
        return x, tuple(heard)


def test_hooks_hear_the_layers_that_run() -> None:
    torch.manual_seed(0)
    model = Dropping()
    gm = trace(model, (torch.ones(2, 3),))
    counts = set()
    for x in (*INPUTS[:2], *torch.randn(8, 2, 3)):
        (value, heard), (wanted, all_heard) = gm(x), model(x)
        assert len(heard) == len(all_heard)
        for mine, its in zip((value, *heard), (wanted, *all_heard), strict=True):
            torch.testing.assert_close(mine, its)
        counts.add(len(heard))
    assert len(counts) > 1


def test_what_a_program_leaves_in_a_context_is_said_and_gone() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        HEARD.set([x])
        return x + 1

    with pytest.warns(TracerWarning, match="sets the ContextVar 'HEARD', and leaves it so"):
        trace(program, (torch.ones(2),))
    assert HEARD.get() is None
