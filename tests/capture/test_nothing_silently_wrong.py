"""What captures of other systems lose without a word, program by program: the captured module does what eager does.

Each program runs on two sizes, in training and evaluation, and is compared with the original: values, types, gradients,
buffers, attributes, what happened to the inputs, random numbers in step.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from graphwright import CaptureError, symbolic_trace, trace, verify

INPUTS = [(torch.randn(3, 4),), (torch.randn(5, 4),)]


class Linear(nn.Module):
    """What most programs here are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x)


# ---- the training flag, regions and randomness


class Flags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.always_off = nn.Sequential(nn.Dropout(0.5))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(x, 0.5, self.training)
        if self.training:
            return self.norm(x)
        return self.always_off(x) * 2


class Regions(Linear):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            shift = self.linear(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = self.linear(x)
        return shift + low * 2


class Draws(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn(x.shape[0], 4) + torch.rand_like(x) + torch.empty(4).normal_()


class Constructors(nn.Module):
    def forward(self, x: Tensor) -> Any:
        n = x.shape[0]
        mask = torch.zeros(n, n, dtype=x.dtype, device=x.device).fill_diagonal_(1)
        filled = torch.full((n, 1), float("-inf"), dtype=x.dtype)
        made = torch.tensor([n, 2.0]), torch.eye(n), torch.linspace(0, 1, n), torch.tensor(n), x.new_zeros(n, 2)
        return mask @ x, torch.arange(n, device=x.device), filled, made


class Limits(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.masked_fill(x > 0, torch.finfo(x.dtype).min) + torch.finfo(x.dtype).eps


# ---- hooks and parametrizations


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4))
        self.inner.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        self.inner.register_forward_hook(lambda module, args, output: output * 2)
        self.inner[0].register_forward_hook(lambda module, args, output: output - 3)
        self.register_forward_hook(lambda module, args, output: output * 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class HookedBackward(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.hooked = nn.Sequential(Linear())
        self.hooked.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 3,))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        y.register_hook(lambda gradient: gradient * 5)
        return self.hooked(y * 2)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spectral = nn.utils.spectral_norm(nn.Linear(4, 4))
        self.spectral_too = parametrizations.spectral_norm(nn.Linear(4, 4))
        self.weight = parametrizations.weight_norm(nn.Linear(4, 4))
        self.orthogonal = parametrizations.orthogonal(nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.orthogonal(self.weight(self.spectral_too(self.spectral(x))))


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).mT


class ParametrizedRoot(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)
        parametrizations.spectral_norm(self)
        parametrize.register_parametrization(self, "bias", nn.Tanh())
        self.table = nn.Parameter(torch.randn(4, 4))
        parametrize.register_parametrization(self, "table", Symmetric())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) @ self.table


# ---- buffers and writes in place


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("decayed", torch.zeros(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        self.decayed.mul_(0.5).add_(self.mean)
        return x * self.mean + self.calls + self.decayed


class NormAct(nn.BatchNorm1d):
    """A batch norm with a forward of its own, as model zoos write it."""

    def forward(self, x: Tensor) -> Tensor:
        self._check_input_dim(x)
        average = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                average = 1.0 / float(self.num_batches_tracked)
        use_batch = self.training or (self.running_mean is None and self.running_var is None)
        mean = self.running_mean if not self.training or self.track_running_stats else None
        variance = self.running_var if not self.training or self.track_running_stats else None
        return F.relu(F.batch_norm(x, mean, variance, self.weight, self.bias, use_batch, average, self.eps))


class OwnNorms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.Sequential(NormAct(4), NormAct(4, momentum=None), NormAct(4, track_running_stats=False))

    def forward(self, x: Tensor) -> Tensor:
        return self.norms(x)


class WritesToInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2)
        x[:, 0] = 1
        rows = x[1:]
        rows += 1
        F.relu(x, inplace=True)
        return x.sum()


class WritesToViews(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y[:, 1:3].zero_()
        y.view(-1)[::2].add_(1)
        y.t()[0] = 7
        y.copy_(y + 1)
        return y


# ---- outputs


@dataclasses.dataclass
class Record:
    first: Any
    second: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    first: Any


@dataclasses.dataclass(slots=True)
class Slotted:
    first: Any


class Pair(NamedTuple):
    first: Any
    second: Any = None


class Output(collections.OrderedDict[str, Any]):
    """A dict class of somebody's."""


class Key(str, enum.Enum):
    LOGITS = "logits"


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


OUTPUTS = {
    "dataclass": lambda x: Record(x + 1, Record(x)),
    "frozen dataclass": lambda x: Frozen(x * 2),
    "dataclass with slots": lambda x: Slotted(x * 2),
    "named tuple": lambda x: Pair(x + 1, {"k": Pair(x)}),
    "ordered dict": lambda x: collections.OrderedDict(z=x + 1, a=x),
    "dict class": lambda x: Output(a=x * 2),
    "default dict": lambda x: collections.defaultdict(list, {"a": [x * 2]}),
    "dict with an enum for a key": lambda x: {Key.LOGITS: x * 2},
    "user dict": lambda x: collections.UserDict(a=x),
    "deque": lambda x: collections.deque([x * 2, x], maxlen=3),
    "sets": lambda x: ({"a"}, frozenset({1})),
    "tuple": lambda x: (x, [x, (x,)], None, 3, "s", {}),
    "torch.return_types": lambda x: (x.max(0), x.sort()),
    "shape, dtype, device": lambda x: (x.shape, x.shape[1:], x.dtype, x.device, x.dim()),
    "object": lambda x: Plain(x * 2),
    "slice of a size": lambda x: slice(0, x.shape[0]),
}


class Returns(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.make = OUTPUTS[kind]

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


# ---- modules that are nobody's children


TABLE = {"gelu": nn.GELU(), "layers": nn.Sequential(nn.Linear(4, 4), nn.ReLU())}


class FromTable(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return TABLE["layers"](TABLE["gelu"](x)) * 2


class MadeInForward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = nn.Sequential(nn.ReLU(), nn.Hardswish())(x)
        return nn.Linear(4, 2)(nn.Softmax(dim=-1)(x))


# ---- what is no tensor


ARRAY = numpy.arange(4, dtype=numpy.float32)


class Arrays(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = numpy.float64(0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.from_numpy(ARRAY) + torch.as_tensor(ARRAY) + torch.tensor(ARRAY)
        x = x * self.scale + float(self.scale) + numpy.sqrt(4) + torch.tensor(numpy.float32(2))
        return x[numpy.array([0, 1])][:, numpy.int64(1)]


@functools.cache
def positions(n: int) -> Tensor:
    return torch.arange(float(n))


@functools.cache
@torch.no_grad()
def grid(n: int) -> Tensor:
    return torch.zeros(n) + 1


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.made = functools.lru_cache(self.make)

    @staticmethod
    @functools.lru_cache
    def static(n: int) -> Tensor:
        return torch.ones(n)

    @functools.lru_cache  # noqa: B019 - programs do
    def method(self, n: int) -> Tensor:
        return torch.ones(n) * 2

    def make(self, n: int) -> Tensor:
        return torch.ones(n) * 3

    def forward(self, x: Tensor) -> Tensor:
        return x + positions(4) + grid(4) + self.static(4) + self.method(4) + self.made(4)


LOCK = threading.Lock()


class Locked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with LOCK, contextlib.nullcontext():
            return x * 2


# ---- classes with a will of their own


class OwnNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.graph, self.guards, self.meta, self.report, self.coverage, self.graphs = {"a": 1}, "x", 3, 1, 2, 5
        self.code = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.code(x) * self.meta + self.graph["a"]


class Slots(Linear):
    __slots__ = ("__hidden", "scale")

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.__hidden = 2.0, 3.0

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.scale + self.__hidden


class HasSlots(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slots = Slots()

    def forward(self, x: Tensor) -> Tensor:
        return self.slots(x) * self.slots.scale


class Meta(abc.ABCMeta):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        made.given_by_the_metaclass = 3.0
        return made


class WithMeta(Linear, metaclass=Meta):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.given_by_the_metaclass


class OwnGetattr(Linear):
    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("linear"), name)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.in_features


class OwnCall(Linear):
    def __call__(self, x: Tensor, **kwargs: Any) -> Tensor:
        return super().__call__(x, **kwargs) + 1


class CallsOwnCall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.called = OwnCall()

    def forward(self, x: Tensor) -> Tensor:
        return self.called(x) * 2


class OwnReduce(Linear):
    def __reduce__(self) -> Any:
        return OwnReduce, ()


class OwnSetattr(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        self.last = x.mean()
        self.count = self.count + 1
        return self.linear(x)


class Properties(Linear):
    @property
    def positive(self) -> Tensor:
        return self.linear.weight.abs()

    @functools.cached_property
    def factor(self) -> float:
        return 3.0

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.positive * self.factor


# ---- what is called as a whole


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 100


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return x.relu() if x.sum() > 0 else x


class Wholes(Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = Straight.apply(self.linear(x)) + torch.Tensor.flatten(x).sum()
        return torch.utils.checkpoint.checkpoint(self.linear, scripted(y), use_reentrant=False)


class Straightened(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return Straight.apply(self.linear(x))


PROGRAMS: list[type[nn.Module]] = [
    *(Flags, Regions, Draws, Constructors, Limits, Hooked, HookedBackward, Normed, ParametrizedRoot, Counted, OwnNorms),
    *(WritesToInput, WritesToViews, FromTable, MadeInForward, Arrays, Cached, Locked, OwnNames, Slots, HasSlots),
    *(WithMeta, OwnGetattr, OwnCall, CallsOwnCall, OwnReduce, OwnSetattr, Properties, Wholes),
]


def check(model: nn.Module) -> Any:
    inputs = [tuple(map(torch.clone, args)) for args in INPUTS]
    gm = trace(model, inputs[0])
    assert isinstance(gm, type(model)) and list(gm.state_dict()) == list(model.state_dict())
    report = verify(model, gm, inputs, modes=("train", "eval"), grads=True)
    assert report.ok, f"{report}\n{model_code(gm)}"
    return gm


def model_code(gm: Any) -> str:
    return gm.code if isinstance(gm.code, str) else ""


@pytest.mark.parametrize("kind", PROGRAMS, ids=lambda kind: kind.__name__)
def test_the_captured_module_does_what_eager_does(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    check(kind())


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_keep_their_types(kind: str) -> None:
    check(Returns(kind))


SYMBOLIC: list[type[nn.Module]] = [
    *(
        Regions,
        Hooked,
        HookedBackward,
        Normed,
        WritesToInput,
        WritesToViews,
        Locked,
        HasSlots,
        CallsOwnCall,
        Straightened,
    ),
]


@pytest.mark.parametrize("kind", SYMBOLIC, ids=lambda kind: kind.__name__)
def test_so_does_the_symbolically_traced_one(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind()
    inputs = [tuple(map(torch.clone, args)) for args in INPUTS]
    report = verify(model, symbolic_trace(model), inputs, modes=("train", "eval"), grads=True)
    assert report.ok, str(report)


@pytest.mark.parametrize("kind", [kind for kind in OUTPUTS if kind not in ("object", "user dict")])
def test_outputs_keep_their_types_when_traced_symbolically(kind: str) -> None:
    report = verify(Returns(kind), symbolic_trace(Returns(kind)), INPUTS)
    assert report.ok, str(report)


def test_the_training_flag_of_each_module_is_its_own() -> None:
    model, x = Flags(), torch.ones(64, 4)
    gm = trace(model, x).train()
    gm.always_off.eval()
    assert (gm(x) != gm(x)).any()
    gm.eval()
    torch.testing.assert_close(gm(x), 2 * x)
    gm.always_off.train()
    assert (gm(x) == 0).any() and model.always_off[0].training is not False


def test_random_numbers_are_fresh_and_follow_the_seed() -> None:
    gm, x = check(Draws()), torch.zeros(2, 4)
    assert not torch.equal(gm(x), gm(x))
    torch.manual_seed(3)
    first = gm(x)
    torch.manual_seed(3)
    torch.testing.assert_close(gm(x), first)


def test_dead_code_removal_keeps_effects() -> None:
    for model in (WritesToInput(), WritesToViews(), Counted(), OwnSetattr()):
        gm = check(model)
        gm.graph.eliminate_dead_code()
        report = verify(model, gm, INPUTS, modes=("train", "eval"), grads=True)
        assert report.ok, str(report)


def test_gradients_reach_modules_that_are_nobody_s_children() -> None:
    gm = check(FromTable())
    weight = TABLE["layers"][0].weight
    gm(torch.randn(3, 4)).sum().backward()
    assert weight.grad is not None and weight.grad.abs().sum() > 0
    weight.grad = None


REGISTRY: dict[str, Tensor] = {}


@pytest.fixture
def registry() -> Iterator[dict[str, Tensor]]:
    yield REGISTRY
    REGISTRY.clear()


class FillsRegistry(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if "offset" not in REGISTRY:
            REGISTRY["offset"] = torch.arange(4.0)
        return x + REGISTRY["offset"]


def test_no_cache_or_global_keeps_a_value_of_the_capture(registry: dict[str, Tensor]) -> None:
    gm = trace(FillsRegistry(), torch.ones(3, 4))
    assert registry == {}
    result = gm(torch.ones(3, 4))
    assert [*registry] == ["offset"] and type(
        registry["offset"]
    ) is Tensor  # it fills it when it runs, as the program does
    torch.testing.assert_close(result, FillsRegistry()(torch.ones(3, 4)))
    positions.cache_clear()
    trace(Cached(), torch.ones(3, 4))
    assert positions.cache_info().currsize == 0 and type(positions(4)) is Tensor
    positions(7)
    trace(Cached(), torch.ones(3, 4))
    assert positions.cache_info().currsize == 2  # what was there stays


def test_a_lock_is_free_after_the_capture() -> None:
    trace(Locked(), torch.ones(3, 4))
    assert LOCK.acquire(blocking=False)
    LOCK.release()


class Says(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        print("rows", x.shape[0])
        return x if x.sum() > 0 else -x


def test_what_is_printed_is_printed_when_the_module_runs(capsys: pytest.CaptureFixture[str]) -> None:
    gm = trace(Says(), torch.ones(3, 4))
    assert capsys.readouterr().out.count("rows") <= 1
    gm(torch.ones(5, 4))
    assert capsys.readouterr().out == "rows 5\n"


def test_arrays_that_no_tensor_can_hold_are_refused() -> None:
    names = numpy.array(["a", "b"])
    with pytest.raises(CaptureError, match="cannot write this array into the graph"):
        trace(lambda x: {"x": x, "names": names}, torch.ones(2))


STEPS = 0


def steps_by_sign(x: Tensor) -> Tensor:
    global STEPS
    before = STEPS
    STEPS += 1
    if x.sum() > 0:
        STEPS += 10
    for row in x:
        if row.sum() > 2:
            STEPS += 100
    made, STEPS = STEPS, before
    return x * made


def counts_calls(x: Tensor) -> Tensor:
    global STEPS
    STEPS += 1
    return x + STEPS


def test_a_global_that_is_assigned_on_one_way_has_its_value_on_each() -> None:
    gm = trace(steps_by_sign, torch.ones(2, 2))
    for x in (torch.ones(2, 2), -torch.ones(2, 2), torch.ones(2, 2) * 2, torch.tensor([[-9.0, 1.0], [2.0, 2.0]])):
        torch.testing.assert_close(gm(x), steps_by_sign(x))


def test_a_global_counter_counts_the_calls_of_what_was_captured() -> None:
    gm = trace(counts_calls, torch.ones(2))
    assert STEPS == 0
    torch.testing.assert_close(gm(torch.ones(2)), torch.full((2,), 2.0))
    torch.testing.assert_close(counts_calls(torch.ones(2)), torch.full((2,), 3.0))
