"""Objects that programs get and hold: opened by what they have, read and written as they are at each call."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch import nn

import graphwright
from graphwright import GuardError, trace
from graphwright.runtime import attributes_of

ones = torch.ones

# ---- objects among the inputs


class Slots:
    __slots__ = ("n", "x")

    def __init__(self, x: torch.Tensor, n: int) -> None:
        self.x, self.n = x, n


class Storage(collections.abc.MutableMapping[str, Any]):
    """A table of attributes that knows whose it is."""

    def __init__(self, parent: Any) -> None:
        self.__dict__["_mapping"] = {}
        self.__dict__["_parent"] = weakref.ref(parent)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_mapping"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._mapping[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._mapping[name] = value

    def __delitem__(self, name: str) -> None:
        del self._mapping[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping)

    def __len__(self) -> int:
        return len(self._mapping)


class Data:
    """Keeps everything in such a table, and can be called."""

    def __init__(self, **held: Any) -> None:
        self.__dict__["_store"] = Storage(self)
        for name, value in held.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if "_store" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._store, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._store, name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._store

    def __call__(self, *names: str) -> Any:
        return [self._store[name] for name in names]

    @property
    def count(self) -> int:
        return self.x.shape[0]  # type: ignore[no-any-return]


@dataclasses.dataclass
class Derived:
    x: torch.Tensor
    scale: dataclasses.InitVar[int] = 2
    twice: torch.Tensor = dataclasses.field(init=False)

    def __post_init__(self, scale: int) -> None:
        self.x = self.x * scale
        self.twice = self.x * 2


class Tagged(collections.OrderedDict[str, Any]):
    def __init__(self, *args: Any, tag: Any = None, **named: Any) -> None:
        super().__init__(*args, **named)
        self.tag = tag


class Boxes:
    def __init__(self, corners: torch.Tensor) -> None:
        self.corners = corners

    def area(self) -> torch.Tensor:
        return self.corners.prod(1)

    def __getitem__(self, index: Any) -> Boxes:
        return type(self)(self.corners[index])


class Padded(Boxes):
    def area(self) -> torch.Tensor:
        return self.corners.prod(1) + 1


class Mode(enum.Enum):
    ON = 1
    OFF = 2


class Pair(NamedTuple):
    x: torch.Tensor
    n: int


class Scale:
    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def add(x: torch.Tensor, n: Any) -> torch.Tensor:
    return x + n


def doubles(data: Any) -> Any:
    data.x = data.x * 2
    return data.x, data


def from_array(array: Any) -> torch.Tensor:
    return torch.from_numpy(array).sum() * array.shape[0]


def extended(**held: Any) -> Any:
    made = Derived(ones(2))
    vars(made).update(held)
    return made


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# a program, the input of the example, the input of a later call
OPENED: list[Any] = [
    pytest.param(lambda o: o.x * o.n, Slots(ones(2), 3), Slots(ones(3), 4), id="slots"),
    pytest.param(lambda n: ones(2) * n, numpy.float32(2), numpy.float32(3), id="number of NumPy's"),
    pytest.param(lambda d: d.x.sum(0) / d.count, Data(x=ones(2, 2)), Data(x=ones(3, 2)), id="storage"),
    pytest.param(lambda d: d.x + d.w if "w" in d else d.x, Data(x=ones(2)), Data(x=ones(3)), id="asked for a name"),
    pytest.param(lambda d: d("x")[0] * 2, Data(x=ones(2)), Data(x=ones(3)), id="called"),
    pytest.param(doubles, Data(x=ones(2)), Data(x=ones(3)), id="written"),
    pytest.param(lambda d: d["x"] * d["n"], collections.UserDict(x=ones(2), n=1), collections.UserDict(x=ones(1), n=2)),
    pytest.param(lambda d: d.x + d.twice, Derived(ones(2), 3), Derived(ones(3), 4), id="fields that are derived"),
    pytest.param(lambda d: d.x + d.more, extended(more=1.5), extended(more=2.5), id="more than fields"),
    pytest.param(lambda d: d["x"] * d.tag, Tagged(x=ones(2), tag=2), Tagged(x=ones(2), tag=3), id="dict"),
    pytest.param(lambda b: b[b.area() > 0].corners, Boxes(ones(2, 4)), Boxes(ones(3, 4)), id="class of its own"),
    pytest.param(lambda p: p.x * p.n, Pair(ones(2), 2), Pair(ones(3), 3), id="named tuple"),
    pytest.param(lambda f: f(ones(2)), Scale(2.0), Scale(3.0), id="callable"),
    pytest.param(
        lambda f: f(ones(2)), functools.partial(add, n=ones(2)), functools.partial(add, n=-ones(2)), id="partial"
    ),
    pytest.param(lambda m: ones(2) * (2 if m is Mode.ON else 3), Mode.ON, Mode.ON, id="enum"),
    pytest.param(lambda s: ones(6).reshape(s), torch.Size([2, 3]), torch.Size([3, 2]), id="size"),
    pytest.param(lambda g: torch.rand(3, generator=g), seeded(1), seeded(2), id="generator"),
    pytest.param(from_array, numpy.ones(2), numpy.ones(3), id="array"),
    pytest.param(lambda o: copy.deepcopy(o).x.add_(o.n) + o.x, Slots(ones(2), 3), Slots(ones(3), 4), id="deepcopy"),
    pytest.param(lambda p: dataclasses.asdict(p)["x"] * 2, Derived(ones(2)), Derived(ones(3)), id="asdict"),
]


@pytest.mark.parametrize(("program", "example", "other"), OPENED)
def test_an_object_is_opened(program: Callable[[Any], Any], example: Any, other: Any) -> None:
    gm = trace(program, (example,))
    for value in (example, other):
        mine, its = _copied(value), _copied(value)
        assert _text(gm(mine)) == _text(program(its)), value
        assert _text(mine) == _text(its), value


def _copied(value: Any) -> Any:
    return value.clone_state() if isinstance(value, torch.Generator) else copy.deepcopy(value)


def _text(value: Any) -> str:
    """What a value is, whichever object it is."""
    if isinstance(value, Data):
        return _text(dict(value._store))
    if isinstance(value, torch.Generator):
        return str(value.get_state().sum())
    if isinstance(value, tuple | list):
        return str(list(map(_text, value)))
    is_plain = isinstance(value, torch.Tensor) or type(value).__module__ == "builtins"
    return str(value if is_plain else (attributes_of(value), *(value.items() if isinstance(value, dict) else ())))


OTHERS: list[Any] = [
    pytest.param(lambda b: b.area(), Boxes(ones(2, 4)), Padded(ones(2, 4)), "class Boxes .* now it is Padded"),
    pytest.param(lambda m: 1 if m is Mode.ON else 2, Mode.ON, Mode.OFF, r"<Mode.ON: 1> .* now it is <Mode.OFF: 2>"),
    pytest.param(lambda n: ones(2) * n, numpy.float32(2), numpy.float64(3), r"class float32 .* np.float64\(3.0\)"),
    pytest.param(lambda z: ones(2) * z, 1j, 2j, "1j .* now it is 2j"),
    pytest.param(lambda s: ones(6)[s], slice(3), slice(4), r"slice\(None, 3, None\) .* slice\(None, 4, None\)"),
    pytest.param(from_array, numpy.ones(2), numpy.ones((2, 2)), r"\[1, 'float64'\] .* \[2, 'float64'\]"),
    pytest.param(lambda m: m(ones(1)), nn.ReLU(), nn.ReLU(True), r"ReLU\(inplace=False\)' .*ReLU\(inplace=True\)"),
    pytest.param(lambda d: d.x, Data(x=ones(2)), Data(x=ones(2), y=1), r"\['x'\] .* now they are \['x', 'y'\]"),
]


@pytest.mark.parametrize(("program", "example", "other", "message"), OTHERS)
def test_an_object_that_is_another_is_refused(program: Any, example: Any, other: Any, message: str) -> None:
    gm = trace(program, (example,))
    with pytest.raises(GuardError, match=message):
        gm(other)


# ---- objects that a program holds


class Counter:
    def __init__(self) -> None:
        self.n = 1

    def bump(self) -> int:
        self.n += 1
        return self.n


class Scheduler:
    """Of a diffusion model: the steps of a run, and which one is next."""

    def __init__(self) -> None:
        self.alphas = torch.linspace(0.9, 0.1, 10)
        self.timesteps: Any = None
        self._index: int | None = None

    def set_timesteps(self, count: int) -> None:
        self.timesteps = torch.arange(0, 10, 10 // count).flip(0)
        self._index = None

    def step(self, noise: torch.Tensor, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        self._index = 0 if self._index is None else self._index
        self._index += 1
        return (x - (1 - self.alphas[t]) * noise) / self.alphas[t]


class Distribution:
    """Of a policy: filled anew at each call."""

    def __init__(self) -> None:
        self.mean: Any = None

    def proba(self, mean: torch.Tensor) -> Distribution:
        self.mean = mean
        self.normal = torch.distributions.Normal(mean, torch.ones_like(mean), validate_args=False)
        return self

    def log_prob(self, x: torch.Tensor) -> torch.Tensor:
        return self.normal.log_prob(x).sum()


class Metric:
    """Keeps what it has computed until it is updated."""

    def __init__(self) -> None:
        self.total, self.count, self.rows = torch.zeros(()), 0, []
        self.computed: Any = None

    def update(self, x: torch.Tensor) -> None:
        self.computed = None
        self.total = self.total + x.sum()
        self.count += x.numel()
        self.rows.append(x)

    def compute(self) -> torch.Tensor:
        if self.computed is None:
            self.computed = self.total / self.count + len(self.rows)
        return self.computed  # type: ignore[no-any-return]


class Holder(nn.Module):
    """Holds an object, and does something with it."""

    def __init__(self, held: Any, run: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.o, self.run = held, run
        self.same = held

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)


def schedules(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.o.set_timesteps(2)
    for t in self.o.timesteps:
        x = self.o.step(x * 2, t, x)
    return x


def measures(self: Any, x: torch.Tensor) -> Any:
    self.o.update(x)
    return self.o.compute(), self.o.compute()


def fills(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.o.value is None:
        self.o.value = x.mean()
    return x - self.o.value


def makes(self: Any, x: torch.Tensor) -> Any:
    if self.o is None:
        self.o = Counter()
    return x * self.o.bump()


def toggles(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.o.mode = Mode.OFF if self.o.mode is Mode.ON else Mode.ON
    return x if self.o.mode is Mode.ON else x * 2


def on_one_side(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        self.o.bump()
    return x * self.o.n


def with_property(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.o.value = self.o.value + 1
    return x * self.o.value


class Hidden:
    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = 1

    @property
    def value(self) -> int:
        return self._value

    @value.setter
    def value(self, value: int) -> None:
        self._value = value


HELD: list[Any] = [
    pytest.param(Counter, lambda self, x: x * self.o.bump() + self.same.n, id="counter"),
    pytest.param(Scheduler, schedules, id="scheduler"),
    pytest.param(Distribution, lambda self, x: self.o.proba(x * 2).log_prob(x), id="distribution"),
    pytest.param(Metric, measures, id="metric"),
    pytest.param(lambda: SimpleNamespace(value=None), fills, id="made at the first call"),
    pytest.param(lambda: None, makes, id="an object made at the first call"),
    pytest.param(lambda: SimpleNamespace(mode=Mode.ON), toggles, id="enum"),
    pytest.param(Counter, on_one_side, id="on one side"),
    pytest.param(Hidden, with_property, id="slots and a property"),
    pytest.param(lambda: [Counter(), Counter()], lambda self, x: x * sum(o.bump() for o in self.o), id="in a list"),
    pytest.param(
        lambda: SimpleNamespace(inner=Counter()), lambda self, x: x * self.o.inner.bump(), id="inside of another"
    ),
]


@pytest.mark.parametrize(("make", "run"), HELD)
def test_an_object_that_a_module_holds_is_state(make: Callable[[], Any], run: Any) -> None:
    model, expected = Holder(make(), run), Holder(make(), run)
    before = _text(model.o)
    gm = trace(model, (ones(2),))
    assert _text(model.o) == before
    for x in (ones(2), -ones(2), ones(2) * 3):
        assert _text(gm(x)) == _text(expected(x))


def by_closure() -> Callable[[torch.Tensor], torch.Tensor]:
    counter = Counter()
    return lambda x: x * counter.bump()


def by_method() -> Callable[[torch.Tensor], torch.Tensor]:
    class Bumps(Counter):
        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.bump()

    return Bumps().run


@pytest.mark.parametrize("make", [by_closure, by_method])
def test_an_object_that_a_function_holds_is_state(make: Callable[[], Any]) -> None:
    mine, expected = make(), make()
    gm = trace(mine, (ones(2),))
    for _ in range(3):
        assert torch.equal(gm(ones(2)), expected(ones(2)))


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(scale=2.0, mode=Mode.ON, inner=SimpleNamespace(layers=2), unread="text")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.config.inner.layers):
            x = x * self.config.scale
        return x if self.config.mode is Mode.ON else -x


CHANGED: list[Any] = [
    pytest.param(lambda config: setattr(config, "scale", 3.0), r"self.config.scale was 2.0 .* now it is 3.0"),
    pytest.param(lambda config: setattr(config, "mode", Mode.OFF), r"config.mode was .*Mode.ON .* .*Mode.OFF"),
    pytest.param(lambda config: setattr(config.inner, "layers", 1), r"config.inner.layers was 2 .* now it is 1"),
    pytest.param(lambda config: setattr(config, "unread", 1), ""),
    pytest.param(lambda config: setattr(config, "inner", SimpleNamespace(layers=2)), ""),
]


@pytest.mark.parametrize(("change", "message"), CHANGED)
def test_plain_values_of_objects_are_taken_for_granted(change: Callable[[Any], Any], message: str) -> None:
    model = Configured()
    gm = trace(model, (ones(2),))
    gm(ones(2))
    change(model.config)
    if not message:
        assert torch.equal(gm(ones(2)), model(ones(2)))
        return
    with pytest.raises(GuardError, match=message):
        gm(ones(2))


def test_tensors_of_objects_are_read_when_the_program_runs(tmp_path: Any) -> None:
    model = Holder(Scheduler(), lambda self, x: x * self.o.alphas[0])
    gm = trace(model, (ones(2),))
    model.o.alphas = model.o.alphas * 2
    assert torch.equal(gm(ones(2)), model(ones(2)))
    assert not [name for name in gm.state_dict() if "constant" in name]


class Bumps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.o = Counter()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.o.bump()


def test_what_programs_do_to_objects_reads_as_they_wrote_it(tmp_path: Any) -> None:
    model = Bumps()
    gm = trace(model, (ones(2),))
    assert "self.o.n = " in gm.code
    other = copy.deepcopy(gm)
    assert torch.equal(gm(ones(2)), other(ones(2))) and gm.o.n == other.o.n == 2
    graphwright.save(gm, tmp_path / "counts.gw")
    again = graphwright.load(tmp_path / "counts.gw", allow=[__name__])
    assert torch.equal(again(ones(2)), gm(ones(2))) and again.o.n == gm.o.n == 3


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.w is None:
            self.w = nn.Parameter(torch.ones(x.shape[-1]))
        return x * self.w


def test_a_parameter_that_the_first_call_makes_is_there_after_it() -> None:
    with pytest.raises(graphwright.CaptureError, match=r"makes the parameter Lazy.w while it runs") as error:
        trace(Lazy(), (ones(2),))
    assert "self.w = nn.Parameter" in str(error.value) and "call the model once" in str(error.value)
    model = Lazy()
    model(ones(2))
    assert torch.equal(trace(model, (ones(2),))(ones(2) * 2), ones(2) * 2)


def test_what_cannot_be_kept_of_an_object_is_refused() -> None:
    def locks(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.o.lock = object()
        return x

    held = SimpleNamespace()
    with pytest.raises(graphwright.CaptureError, match=r"keeps a builtins.object in Holder.o.lock"):
        trace(Holder(held, locks), (ones(2),))
    assert vars(held) == {}


class Scaled:
    factor = 2

    def __init__(self) -> None:
        self.inner = 1

    def scale(self) -> int:
        return 2


class HoldsScaled(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.held, self.way = Scaled(), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "of its class":
            return x * self.held.factor
        if self.way == "a method":
            return x * self.held.scale()
        if self.way == "by default":
            return x * getattr(self.held, "more", 2)
        if self.way == "asked for":
            return x * 3 if hasattr(self.held, "more") else x * 2
        try:
            return x * self.held.more  # type: ignore[attr-defined, no-any-return]
        except AttributeError:
            return x * 2


LATER = {"of its class": ("factor", 3), "a method": ("scale", lambda: 3), "by default": ("more", 3)}


@pytest.mark.parametrize("way", ["of its class", "a method", "by default", "asked for", "tried"])
def test_what_an_object_of_a_module_lacks_is_seen(way: str) -> None:
    model, x = HoldsScaled(way), torch.ones(2)
    gm = graphwright.trace(model, x)
    name, value = LATER.get(way, ("more", 3))
    assert torch.equal(gm(x), x * 2)
    setattr(model.held, name, value)
    assert torch.equal(model(x), x * 3)
    with pytest.raises(graphwright.GuardError, match=rf"held has got an attribute '{name}' of its own"):
        gm(x)
    delattr(model.held, name)
    assert torch.equal(gm(x), x * 2)
