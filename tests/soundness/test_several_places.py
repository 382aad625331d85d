"""What is in several places of a program, what the program puts into other places, and what it takes out of the run."""

from __future__ import annotations

import copy
import itertools
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphwright import CaptureError, GuardError, Interpreter, optimize_for_inference, script, symbolic_trace, trace
from graphwright.passes import FuseConvBatchNorm, RecognizeNorms, RemoveDeadCode

X = torch.ones(2, 4)


class Program(nn.Module):
    """Its attributes and its `forward` are given."""

    def __init__(self, forward: Callable[[Any, Tensor], Any], **attributes: Any) -> None:
        super().__init__()
        self.run = forward
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


class Twice(nn.Module):
    """A module and a tensor under two names each, and an object that two children share."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = self.a
        self.c, self.d = nn.Linear(4, 4), nn.Linear(4, 4)
        self.d.weight = self.c.weight
        self.register_buffer("shift", torch.ones(4))
        self.moved = self.shift
        config = types.SimpleNamespace(factor=2)
        self.one, self.other = Scaled(config), Scaled(config)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(self.a(x)) + F.linear(F.linear(x, self.c.weight), self.d.weight)
        return self.other(self.one(y + self.shift * self.moved))


class Scaled(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    def forward(self, x: Tensor) -> Tensor:
        return x * self.config.factor


CHANGES: dict[str, Callable[[Any], Any]] = {
    "module": lambda m: setattr(m, "b", nn.Linear(4, 4)),
    "first module": lambda m: setattr(m, "a", nn.Linear(4, 4)),
    "parameter": lambda m: setattr(m.d, "weight", nn.Parameter(torch.zeros(4, 4))),
    "buffer": lambda m: setattr(m, "shift", torch.zeros(4)),
    "attribute": lambda m: setattr(m, "moved", torch.zeros(4)),
    "object": lambda m: setattr(m.other, "config", types.SimpleNamespace(factor=9)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_under_two_names_stays_one(change: str) -> None:
    model = Twice()
    gm, twin = trace(model, (X,)), copy.deepcopy(model)
    torch.testing.assert_close(gm(X), twin(X))
    CHANGES[change](gm)
    with pytest.raises(GuardError, match="was self"):
        gm(X)


def test_what_is_under_two_names_is_copied_as_one() -> None:
    gm, model = trace(Twice(), (X,)), Twice()
    gm.load_state_dict(model.state_dict())
    for captured in (copy.deepcopy(gm), gm.to("cpu").float()):
        torch.testing.assert_close(captured(X), model(X))


@pytest.mark.parametrize("walk", ["parameters", "buffers", "modules"])
def test_what_is_walked_is_shared_as_it_was(walk: str) -> None:
    model = Program(lambda m, x: x * len([*getattr(m, walk)()]), a=nn.BatchNorm1d(4), b=nn.BatchNorm1d(4))
    gm = trace(model, (X,))
    assert torch.equal(gm(X), model(X))
    if walk == "modules":
        gm.b = gm.a
    else:
        name = {"parameters": "weight", "buffers": "running_var"}[walk]
        setattr(gm.b, name, getattr(gm.a, name))
    with pytest.raises(GuardError, match="was not self"):
        gm(X)


def test_a_pass_that_replaces_one_of_several_calls_goes_on() -> None:
    conv = nn.Conv2d(4, 4, 1)
    model = Program(
        lambda m, x: m.norm(m.first(x)) + m.second(x), first=conv, second=conv, norm=nn.BatchNorm2d(4)
    ).eval()
    x = torch.randn(2, 4, 3, 3)
    gm = trace(model, (x,))
    FuseConvBatchNorm().run(gm)
    torch.testing.assert_close(gm(x), model(x))


class Noting(nn.Module):
    def __init__(self, notes: Any) -> None:
        super().__init__()
        self.notes = notes

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.notes, list):
            self.notes.append(1)
        else:
            self.notes["n"] = self.notes.get("n", 0) + 1
        return x * len(self.notes)


@pytest.mark.parametrize("notes", [[], {}])
@pytest.mark.parametrize("is_data", [False, True])
def test_a_container_that_modules_share_stays_one(notes: Any, is_data: bool) -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        y = m.a(x)
        if not is_data or x.sum() > 0:
            y = m.b(y)
        return y + len(m.notes)

    model: Any = Program(run, a=Noting(notes), b=Noting(notes))
    model.notes = notes
    twin = copy.deepcopy(model)
    captured = trace(model, (X,))
    for gm in captured, copy.deepcopy(captured):
        wanted = copy.deepcopy(twin)
        for x in X, -X, X:
            assert torch.equal(gm(x), wanted(x))
            assert gm.notes == wanted.notes
            assert gm.a.notes is gm.b.notes is gm.notes
    captured.b.notes = type(notes)()
    with pytest.raises(GuardError, match=r"was self\.\w+\.?\w* when the program was captured; now it is another"):
        captured(X)


@pytest.mark.parametrize("held", [[], [torch.zeros(())]], ids=["empty", "filled"])
def test_what_one_module_puts_there_another_reads(held: list[Tensor]) -> None:
    def write(m: Any, x: Tensor) -> Tensor:
        m.held.append(x.sum())
        return x

    def read(m: Any, x: Tensor) -> Tensor:
        return x * m.held[-1] + len(m.held)

    model: Any = Program(lambda m, x: m.b(m.a(x)), a=Program(write), b=Program(read))
    model.a.held = model.b.held = held
    wanted, gm = copy.deepcopy(model), trace(model, (X,))
    for x in X, -X, X:
        assert torch.equal(gm(x), wanted(x))


class Filling(nn.Module):
    """Leaves what it gives in a list that others have, too, as the layers of nnU-Net leave what is supervised."""

    def __init__(self, heads: list[Tensor], index: int) -> None:
        super().__init__()
        self.heads, self.index, self.layer = heads, index, nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.heads[self.index] = y * 2
        return y


def test_layers_fill_one_list() -> None:
    heads = [torch.zeros(1), torch.zeros(1)]
    layers = {name: Filling(heads, index) for index, name in enumerate("ab")}
    model: Any = Program(lambda m, x: m.b(m.a(x)) + m.heads[0] - m.heads[1], **layers)
    model.heads = heads
    gm = trace(model, (torch.ones(2, 3),))
    for x in torch.randn(2, 3), torch.randn(4, 3):
        torch.testing.assert_close(gm(x), model(x))
        torch.testing.assert_close(gm.b.heads, model.heads)


def swaps(m: Any, x: Tensor) -> Any:
    m.a, m.b = m.b, m.a
    return m.a(x)


def puts(m: Any, x: Tensor) -> Any:
    y = m.a(x)
    m.a = nn.Tanh()
    return y


def puts_back(m: Any, x: Tensor) -> Any:
    a = m.a
    m.a = m.b
    y = m.a(x)
    m.a = a
    return y


def test_modules_that_a_program_replaces() -> None:
    def make(run: Any) -> Program:
        torch.manual_seed(0)
        return Program(run, a=nn.Linear(4, 4), b=nn.Linear(4, 4))

    for run in (swaps, puts):
        with pytest.raises(CaptureError, match=r"replaces its module self\.a"):
            trace(make(run), (X,))
    gm, twin = trace(make(puts_back), (X,)), make(puts_back)
    for _ in range(2):
        torch.testing.assert_close(gm(X), twin(X))


def puts_for_few(m: Any, x: Tensor) -> Any:
    if x.shape[0] < 2:
        m.a = nn.Tanh()
    return m.a(x)


def test_a_way_that_replaces_a_module_and_that_the_example_does_not_take_is_guarded() -> None:
    model = Program(puts_for_few, a=nn.Linear(4, 4))
    gm = trace(model, (torch.ones(3, 4),))
    assert torch.equal(gm(torch.ones(2, 4)), model(torch.ones(2, 4)))
    with pytest.raises(GuardError, match="was False; now it is True"):
        gm(torch.ones(1, 4))


@pytest.mark.parametrize(
    "make", [lambda: itertools.cycle([1, 2]), lambda: itertools.chain([1, 2], [3]), lambda: itertools.islice([1, 2], 2)]
)
def test_iterators_that_a_program_advances(make: Callable[[], Any]) -> None:
    with pytest.raises(CaptureError, match="iterator"):
        trace(Program(lambda m, x: x * next(m.items), items=make()), (X,))
    gm = trace(Program(lambda m, x: x + 1, items=make()), (X,))
    assert torch.equal(gm(X), X + 1)


class Slots:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


def test_a_slot_that_was_empty_is_looked_at_in_each_call() -> None:
    model = Program(lambda m, x: x * m.slots.b if hasattr(m.slots, "b") else x, slots=Slots())
    gm = trace(model, (X,))
    for _ in range(2):
        assert torch.equal(gm(X), X)
    gm.slots.b = 4
    with pytest.raises(GuardError, match="'b'"):
        gm(X)


# ---- numbers of another class


def of_size(x: Tensor) -> Any:
    count = x.shape[0]
    return x * operator.index(count) if count else x


NUMBERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "int": (lambda x, k: (x * int(k), int(k)), (X, 2), (X, 2.7)),
    "floor": (lambda x, k: x * (k // 1), (X, 2), (X, -2.7)),
    "item": (lambda x: int(x.sum().item()), (torch.tensor([4, 2]),), (torch.tensor([4.7, 2.2]),)),
    "power": (lambda x: int(2 ** (x.shape[0] - 3)), (torch.ones(5),), (torch.ones(2),)),
    "float": (lambda x, k: float(k), (X, 2.5), (X, 2)),
    "difference": (lambda x, k: k - k, (X, 2), (X, math.inf)),
    "truth": (lambda x, k: k * 1, (X, 2), (X, True)),
    "absolute": (lambda x: (abs(x), int(x.sum())), (torch.ones(1),), (-torch.ones(3),)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_another_class(name: str) -> None:
    program, example, other = NUMBERS[name]
    gm = trace(program, example)
    for args in (example, other):
        assert repr(gm(*args)) == repr(program(*args))


def test_the_truth_of_a_size_is_not_the_size() -> None:
    gm = trace(of_size, (torch.ones(5),))
    assert torch.equal(gm(torch.ones(5)), of_size(torch.ones(5)))
    with pytest.raises(GuardError):
        gm(torch.ones(3))


def test_the_absolute_value_of_a_tensor_keeps_its_gradient() -> None:
    gm = trace(lambda x: (abs(x.sum()), int(x.sum())), (torch.ones(3),))
    x = torch.full((3,), -2.0, requires_grad=True)
    gm(x)[0].backward()
    assert x.grad is not None and torch.equal(x.grad, -torch.ones(3))


# ---- arrays that are written to


def adds(x: Any) -> Any:
    array = x.numpy() if isinstance(x, Tensor) else x
    array += 1
    return x


def through_a_view(a: Any) -> Any:
    b = a[1:]
    b *= 3
    b[0] = 5
    return a


def under_a_name(a: Any) -> Any:
    total = a.sum()
    before = total
    total += 1
    return total, before


def by_mask(a: Any) -> Any:
    a[a > 1] = 0
    a.sort()
    return numpy.add(a, 1, out=a)


ARRAYS = [(each, numpy.array) for each in (adds, through_a_view, under_a_name, by_mask)]


@pytest.mark.parametrize(("program", "kind"), [*ARRAYS, (adds, torch.tensor)])
def test_arrays_that_are_written_to(program: Callable[[Any], Any], kind: Callable[[list[float]], Any]) -> None:
    def make() -> Any:
        return kind([3.0, 2.0, 0.5])

    example = make()
    gm = trace(program, (example,))
    assert repr(example) == repr(make())  # capturing changes nothing
    for factor in (1, 2):
        given, other = make() * factor, make() * factor
        assert repr(gm(given)) == repr(program(other)) and repr(given) == repr(other)


# ---- what passes and engines take for granted


class Leaky(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slope = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.slope)


def test_a_number_that_a_pass_makes_a_literal_is_checked_after_a_run_before_it() -> None:
    gm = trace(Leaky(), (X,))
    Interpreter(gm).run(X)
    RecognizeNorms().run(gm)
    gm.slope = 0.1
    with pytest.raises(GuardError, match="slope"):
        gm(-X)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.scale = nn.Linear(8, 8), nn.Linear(8, 8), 0.5

    def forward(self, x: Tensor) -> Tensor:
        q, k = (layer(x).view(2, 5, 2, 4).transpose(1, 2) for layer in (self.q, self.k))
        return torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * self.scale, -1) @ k


def test_the_scale_of_optimized_attention_may_change() -> None:
    model, x = Attention().eval(), torch.randn(2, 5, 8)
    fast = optimize_for_inference(model, (x,), engines=("torch",))
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
        model.scale = fast.scale = 5.0
        torch.testing.assert_close(fast(x), model(x))


def ordered(x: Tensor) -> list[float]:
    numbers = [3.0, float(x[0]), 1.0]
    numbers.sort()
    return numbers


def given_order(numbers: list[float], x: Tensor) -> Tensor:
    numbers.sort()
    return x * numbers[0]


def test_methods_of_containers_are_no_dead_code() -> None:
    gm = script(ordered)
    RemoveDeadCode().run(gm)
    assert gm(torch.tensor([2.0])) == [1.0, 2.0, 3.0]
    for captured in (script(given_order), symbolic_trace(given_order)):
        RemoveDeadCode().run(captured)
        numbers = [3.0, 1.0]
        assert torch.equal(captured(numbers, X), X) and numbers == [1.0, 3.0]


ALMOST: dict[str, tuple[Callable[[Any, Tensor], Any], Any, Any]] = {
    "sign": (lambda m, x: x * math.copysign(1, m.value), 0.0, -0.0),
    "signs": (lambda m, x: x * math.copysign(1, m.value["a"]), {"a": 0.0}, {"a": -0.0}),
    "order": (lambda m, x: list(m.value), {"a": 1, "b": 2}, {"b": 2, "a": 1}),
}


@pytest.mark.parametrize("name", ALMOST)
def test_equal_values_that_are_not_the_same(name: str) -> None:
    run, value, other = ALMOST[name]
    gm = trace(Program(run, value=value), (X,))
    assert repr(gm(X)) == repr(run(types.SimpleNamespace(value=value), X))
    gm.value = other
    with pytest.raises(GuardError, match="value"):
        gm(X)
