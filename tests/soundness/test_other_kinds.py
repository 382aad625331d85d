"""Values of kinds that are rare: what modules and objects hold, what inputs are, what is left by an exception."""

from __future__ import annotations

import contextlib
import copy
import enum
import fractions
import functools
import linecache
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import GuardError, trace


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"


class Bits(enum.IntFlag):
    ONE = 1
    TWO = 2


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Holds(nn.Module):
    """Uses a value that it holds itself, or in an object."""

    def __init__(self, value: Any, use: Callable[[Tensor, Any], Any], is_inside: bool) -> None:
        super().__init__()
        self.use, self.value, self.plain = use, value, Plain(value)
        self.is_inside = is_inside

    def forward(self, x: Tensor) -> Any:
        return self.use(x, self.plain.value) if self.is_inside else self.use(x, self.value)


def _multiplied(x: Tensor, value: Any) -> Any:
    return x * float(value)


KINDS = [
    pytest.param(Mode.SUM, Mode.MEAN, lambda x, mode: getattr(x, mode.value)(), id="member"),
    pytest.param(Bits.ONE, Bits.ONE | Bits.TWO, lambda x, bits: x * 2 if bits & Bits.TWO else x, id="flag"),
    pytest.param(torch.relu, torch.sin, lambda x, f: f(x), id="function"),
    pytest.param(functools.partial(torch.mul, other=2), functools.partial(torch.mul, other=3), lambda x, f: f(x),
                 id="partial function"),
    pytest.param(dict, list, lambda x, kind: kind(x=x) if kind is dict else x, id="class"),
    pytest.param([Mode.SUM], [Mode.MEAN], lambda x, modes: getattr(x, modes[0].value)(), id="member in a list"),
    pytest.param(1 + 1j, 2j, lambda x, z: x * z.real, id="complex number"),
    pytest.param(numpy.float64(2), numpy.float64(3), _multiplied, id="number of NumPy's"),
    pytest.param(fractions.Fraction(1, 2), fractions.Fraction(1, 3), _multiplied, id="fraction"),
    pytest.param(slice(0, 1), slice(1, 3), lambda x, s: x[s], id="slice"),
    pytest.param(range(1), range(2), lambda x, r: x[list(r)], id="range"),
    pytest.param(b"a", b"bc", lambda x, b: x * len(b), id="bytes"),
    pytest.param(torch.device("cpu"), torch.device("meta"), lambda x, d: torch.ones(2, device=d), id="device"),
    pytest.param(math, types.SimpleNamespace(pi=3), lambda x, m: x * m.pi, id="package"),
]  # fmt: skip


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize(("value", "other", "use"), KINDS)
def test_what_is_held_is_guarded_whatever_it_is(value: Any, other: Any, use: Any, is_inside: bool) -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    gm = trace(Holds(value, use, is_inside), (x,))
    assert str(gm(x)) == str(use(x, value))
    (gm.plain if is_inside else gm).value = other
    with pytest.raises(GuardError) as told:
        gm(x)
    was, _, now = str(told.value).splitlines()[0].partition("; now it is ")
    assert "value was " in was and was.partition(" was ")[2].partition(" when ")[0] != now


def test_arguments_of_a_partial_function_that_change_are_told() -> None:
    gm = trace(Holds(functools.partial(torch.mul, other=2), lambda x, f: f(x), False), (torch.ones(2),))
    gm.value.keywords["other"] = 3
    with pytest.raises(GuardError, match=r"mul, other=2\) when .* now it is partial\(.*other=3"):
        gm(torch.ones(2))


class Counts:
    """A descriptor, which reads the attributes of its owner past `__getattr__`."""

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return owner.__dict__["count"] if owner is not None else self


class Descriptor(nn.Module):
    counted = Counts()

    def __init__(self) -> None:
        super().__init__()
        self.count = 2

    def forward(self, x: Tensor) -> Tensor:
        return x * self.counted


class OwnLookUp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = {"count": 2}

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["table"][name] if name == "count" else super().__getattr__(name)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.count


@pytest.mark.parametrize(
    ("make", "change"),
    [(Descriptor, lambda gm: setattr(gm, "count", 3)), (OwnLookUp, lambda gm: gm.table.update(count=3))],
)
def test_what_classes_look_up_themselves_is_guarded(make: Any, change: Any) -> None:
    gm = trace(make(), (torch.ones(2),))
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 2.0))
    change(gm)
    with pytest.raises(GuardError, match="now it is"):
        gm(torch.ones(2))


class Times:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.factor


class ManyHeld(nn.Module):
    """Reads what is in objects that containers hold, sizes of its tensors, and which of them are None."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.table, self.row = [Times(2.0)], {"a": Times(3.0)}, (Times(1.0),)
        self.linear, self.rows = nn.Linear(2, 2), nn.Buffer(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x)
        x = self.row[0](self.table["a"](x)) * len(self.rows) * self.linear.weight.shape[0]
        return x if self.linear.bias is None else x + sum(p.numel() for p in self.linear.parameters())


MANY = [
    (lambda gm: setattr(gm.steps[0], "factor", 5.0), r"self\.steps\.0\.factor was 2\.0"),
    (lambda gm: setattr(gm.table["a"], "factor", 5.0), r"self\.table\.a\.factor was 3\.0"),
    (lambda gm: setattr(gm.row[0], "factor", 5.0), r"self\.row\.0\.factor was 1\.0"),
    (lambda gm: gm.steps.append(Times(3.0)), r"len\(self\.steps\) was 1"),
    (lambda gm: gm.steps.__setitem__(0, torch.relu), r"self\.steps\.0 was a Times"),
    (lambda gm: setattr(gm, "rows", torch.ones(5)), r"self\.rows was of torch\.Size\(\[3\]\)"),
    (
        lambda gm: setattr(gm.linear, "weight", nn.Parameter(torch.ones(3, 2))),
        r"self\.linear\.weight was of torch\.Size",
    ),
    (lambda gm: setattr(gm.linear, "bias", None), r"self\.linear\.bias was there"),
]


@pytest.mark.parametrize(("change", "message"), MANY)
def test_what_is_in_containers_and_of_tensors_is_guarded(change: Any, message: str) -> None:
    model = ManyHeld()
    gm = trace(model, (torch.ones(2),))
    assert torch.equal(gm(torch.ones(2)), model(torch.ones(2)))
    change(gm)
    with pytest.raises(GuardError, match=message):
        gm(torch.ones(2))


def test_a_variable_that_is_a_function_of_torch_is_guarded() -> None:
    function = torch.relu

    def choose(other: Any) -> None:
        nonlocal function
        function = other

    gm = trace(lambda x: function(x), (torch.ones(2),))
    gm(torch.ones(2))
    choose(torch.sin)
    with pytest.raises(GuardError, match=r"'function' .* has changed"):
        gm(torch.ones(2))


class Base(nn.Module):
    def scaled(self, x: Tensor) -> Tensor:
        return x * 2

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(x)


class Derived(Base):
    def scaled(self, x: Tensor) -> Tensor:
        return super().scaled(x) + 1


def test_a_method_that_super_leads_to_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = trace(Derived(), (torch.ones(2),))
    gm(torch.ones(2))
    monkeypatch.setattr(Base, "scaled", lambda self, x: x * 100)
    with pytest.raises(GuardError, match=r"Base\.scaled has changed"):
        gm(torch.ones(2))


# ---- inputs


@functools.singledispatch
def chosen(value: Any) -> Any:
    return value


@chosen.register
def _(value: int) -> Any:
    return value + 1


@chosen.register
def _(value: float) -> Any:
    return value + 2


def _first(x: Any) -> Any:
    return x["a"] if isinstance(x, dict) else x[0] if isinstance(x, tuple | list) else x


INPUTS = [
    pytest.param(lambda x: torch.ones(2) * chosen(x), 3, [4], [3.0, torch.ones(2)], id="chosen by class"),
    pytest.param(_first, {"a": torch.ones(2)}, [{"a": torch.zeros(1)}], [torch.ones(2), [1], None, "a"], id="dict"),
    pytest.param(_first, (torch.ones(2),), [(torch.zeros(1),)], [{"a": torch.ones(2)}, 3, None, ""], id="tuple"),
    pytest.param(lambda x: torch.stack(x) if isinstance(x, list) else x, [torch.ones(2)], [[torch.zeros(2)] * 2],
                 [torch.ones(2), None], id="list of tensors"),
    pytest.param(lambda x: x.value if isinstance(x, Plain) else x, Plain(torch.ones(2)), [Plain(torch.zeros(1))],
                 [torch.ones(2), {"value": 2}, None], id="object"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "example", "alike", "others"), INPUTS)
def test_an_input_of_another_form_is_told(program: Any, example: Any, alike: list[Any], others: list[Any]) -> None:
    gm = trace(program, (example,))
    for value in alike:
        assert torch.equal(gm(value), program(value))
    for value in others:
        with pytest.raises(GuardError, match="now it is"):
            gm(value)


def test_what_is_read_of_an_input_stands_in_its_guard() -> None:
    gm = trace(lambda x: x * 2 if x.device.type == "cpu" else x, (torch.ones(2),))
    assert "('x.device', x.device, device(type='cpu'))" in gm.code and "getattr" not in gm.code


# ---- what is left


@contextlib.contextmanager
def doubled(owner: Any) -> Iterator[None]:
    before = owner.scale
    owner.scale = before * 2
    try:
        yield
    finally:
        owner.scale = before


class Doubled(nn.Module):
    def __init__(self, is_context: bool) -> None:
        super().__init__()
        self.scale, self.is_context = 2.0, is_context

    def forward(self, x: Tensor) -> Tensor:
        if self.is_context:
            with doubled(self):
                return self.scaled(x)
        self.scale *= 2
        try:
            return self.scaled(x)
        finally:
            self.scale /= 2

    def scaled(self, x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return x * self.scale


@pytest.mark.parametrize("is_context", [False, True])
def test_what_a_raise_leaves_is_what_the_clean_up_leaves(is_context: bool) -> None:
    model = Doubled(is_context)
    gm = trace(model, (torch.ones(2),))
    for x in torch.ones(2), -torch.ones(2), torch.ones(3):
        for program in model, gm:
            with pytest.raises(ValueError, match="negative") if x.sum() < 0 else contextlib.nullcontext():
                assert torch.equal(program(x), x * 4)
        assert gm.scale == model.scale == 2.0


class Where(nn.Module):
    def __init__(self, asks: bool) -> None:
        super().__init__()
        self.linear, self.asks = nn.Linear(2, 2), asks

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(self, x: Tensor) -> Any:
        if self.asks:
            return x * 2 if self.linear.weight.device.type == "cpu" else x
        return x.to(self.device), torch.zeros(2, device=self.linear.bias.device)


def test_devices_of_parameters_are_live_where_they_are_handed_on() -> None:
    gm = trace(Where(False), (torch.ones(2),))
    assert [each.device.type for each in gm(torch.ones(2))] == ["cpu"] * 2
    assert [each.device.type for each in gm.to("meta")(torch.ones(2))] == ["meta"] * 2


def test_devices_of_parameters_that_are_asked_for_are_guarded() -> None:
    gm = trace(Where(True), (torch.ones(2),))
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(GuardError, match=r"self\.linear\.weight was on cpu .*; now it is on meta"):
        gm.to("meta")(torch.ones(2))


@pytest.mark.parametrize("lines", [[], ["import sys\n", "sys.exit()\n"]], ids=["nothing", "text of other code"])
def test_a_handler_that_has_no_source_is_said(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linecache.cache, "<string>", (1, None, lines, "<string>"))  # as Python 3.13 has that of `-c`
    names: dict[str, Any] = {}
    exec("def f(x):\n    try:\n        return x[3]\n    except IndexError:\n        return x\n", names)
    with pytest.warns(graphwright.TracerWarning, match="f has no source: what its `except` catches"):
        trace(names["f"], (torch.ones(4),))


class Counts:
    asked = 0

    def __init__(self) -> None:
        self.mode = "sum"

    def __getattribute__(self, name: str) -> Any:
        type(self).asked += 1
        return object.__getattribute__(self, name)


def test_guards_of_an_object_run_nothing_of_its_class() -> None:
    gm = trace(Holds(Counts(), lambda x, held: getattr(x, held.mode)(), is_inside=False), (torch.ones(3),))
    Counts.asked = 0
    for _ in range(2):
        assert gm(torch.ones(3)) == 3
    assert Counts.asked == 0
    gm.value.mode = "mean"
    with pytest.raises(GuardError, match=r"value\.mode was 'sum'"):
        gm(torch.ones(3))


class Asks(nn.Module):
    """Asks of its modules what no attribute of theirs tells."""

    def __init__(self, question: Callable[[Any], Any]) -> None:
        super().__init__()
        self.question = question
        self.leaf, self.first, self.second = nn.ReLU(), nn.Linear(2, 2), nn.Linear(2, 2)
        self.every = nn.ModuleList([nn.ReLU(), nn.Tanh()])
        self.second.weight = self.first.weight
        self.plain = types.SimpleNamespace(module=nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.leaf(self.second(self.first(x)))
        return h * 2 if self.question(self) else h


def _untie(module: Any) -> None:
    module.second.weight = nn.Parameter(module.second.weight.detach().clone())


QUESTIONS: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda self: isinstance(self.leaf, nn.ReLU), lambda module: setattr(module, "leaf", nn.Tanh())),
    (lambda self: type(self.leaf) is nn.Tanh, lambda module: setattr(module, "leaf", nn.Tanh())),
    (lambda self: any(isinstance(one, nn.Tanh) for one in self.every), lambda module: module.every.append(nn.Tanh())),
    (lambda self: [one for one in self.every if type(one) is nn.ReLU],
     lambda module: module.every.__setitem__(0, nn.GELU())),
    (lambda self: self.second.weight is self.first.weight, _untie),
    (lambda self: self.leaf is self.every[0], lambda module: module.every.__setitem__(0, module.leaf)),
    (lambda self: vars(self).get("bar"), lambda module: setattr(module, "bar", 3)),
    (lambda self: "bar" in self.__dict__, lambda module: setattr(module, "bar", 3)),
    (lambda self: self.plain.module(torch.ones(1)) > 0.9, lambda module: setattr(module.plain, "module", nn.Tanh())),
]  # fmt: skip


@pytest.mark.parametrize(("question", "change"), QUESTIONS)
def test_what_is_asked_of_modules_is_guarded(question: Any, change: Any) -> None:
    gm = trace(Asks(question), (torch.ones(2),))
    gm(torch.ones(2))
    again = copy.deepcopy(gm)
    again(torch.ones(2))
    for each in (gm, again):
        change(each)
        with pytest.raises(GuardError, match=r"was|has got|there now"):
            each(torch.ones(2))


def test_a_subclass_of_the_class_that_was_asked_for_is_as_good() -> None:
    gm = trace(Asks(lambda self: isinstance(self.leaf, nn.ReLU)), (torch.ones(2),))
    gm.leaf = type("Other", (nn.ReLU,), {})()
    gm(torch.ones(2))


WITH_NUMPY: list[Callable[[Tensor], Any]] = [
    lambda x: numpy.float32(1.1) * x.size(0),
    lambda x: x.size(0) - numpy.int64(2),
    lambda x: numpy.float32(0.1) * x.sum().item() + 1,
    lambda x: x.size(0) > numpy.float32(2.5),
    lambda x: x * (numpy.float32(2) / x.size(0)),
    lambda x: torch.zeros(x.size(0) * numpy.int64(2)),
    lambda x: math.floor(x.size(0) * numpy.float32(0.7)),
    lambda x: numpy.array([1.0, 2.0]) * x.size(0),
    lambda x: numpy.prod(x.shape),
    lambda x: numpy.array(x.shape).sum() / 2,
    lambda x: numpy.cumsum(x.shape)[-1],
]


@pytest.mark.parametrize("program", WITH_NUMPY)
def test_numbers_of_numpy_stay_so_beside_sizes(program: Callable[[Tensor], Any]) -> None:
    gm = trace(program, (torch.ones(3, 2),))
    for x in (torch.rand(3, 2), torch.rand(7, 2)):
        found, expected = gm(x), program(x)
        assert type(found) is type(expected) and repr(found) == repr(expected)


ROWS = torch.ones(2)
# Programs that ask of what kind an input is, an example, and inputs of another kind.
ASKING: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "tensor or not": (lambda x: x * 2 if isinstance(x, torch.Tensor) else x, (ROWS,), (3,)),
    "class": (lambda x: x * 2 if type(x) is torch.Tensor else x, (ROWS,), (nn.Parameter(ROWS),)),
    "given or not": (lambda x, y=None: x * 2 if y is None else x + y, (ROWS,), (ROWS, ROWS)),
    "text": (lambda x, k: x * 2 if k == "s" else x, (ROWS, "s"), (ROWS, "t")),
    "number": (lambda x, k: x * 2 if isinstance(k, int) else x, (ROWS, 3), (ROWS, 2.5)),
    "dtype": (lambda x: x * 2 if x.dtype == torch.float32 else x, (ROWS,), (ROWS.half(),)),
    "rank": (lambda x: x * 2 if x.dim() == 1 else x, (ROWS,), (torch.ones(2, 2),)),
    "list": (lambda x: x[0] * 2 if isinstance(x, list) else x[0], ([ROWS],), ((ROWS,),)),
    "layout": (lambda x: x * 2 if x.is_contiguous() else x, (torch.ones(2, 3),), (torch.ones(3, 2).t(),)),
}


@pytest.mark.parametrize(("program", "example", "other"), [pytest.param(*each, id=id) for id, each in ASKING.items()])
def test_what_a_capture_takes_for_granted_one_of_it_does_too(
    program: Callable[..., Any], example: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    gm = trace(trace(program, example), example)
    torch.testing.assert_close(gm(*example), program(*example))
    with pytest.raises(GuardError):
        gm(*other)
