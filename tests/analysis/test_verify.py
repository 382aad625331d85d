"""`verify` sees every difference between two modules, sees none where there is none, and leaves both as they were."""

from __future__ import annotations

import collections
import copy
import dataclasses
import random
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from graphwright import optimize_for_inference, trace
from graphwright.analysis import verify
from graphwright.analysis.values import Tolerance, compare_facts, facts_of
from graphwright.errors import GraphwrightError, GuardError

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Calls(nn.Module):
    """A module around a function of (module, x), with a buffer, a parameter and an attribute to play with."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("seen", torch.zeros(4))
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4)
        self.count = 0
        self.log: list[int] = []

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Boxed:
    value: Any
    extra: Any = None


class Opaque:
    def __init__(self, value: Any) -> None:
        self.value = value


def fail(error: Exception) -> Any:
    raise error


def write_buffer(module: Any, x: Tensor) -> Tensor:
    module.seen.add_(x.sum(0))
    return x


def rebind_buffer(module: Any, x: Tensor) -> Tensor:
    module.seen = module.seen + x.sum(0)
    return x


def write_parameter(module: Any, x: Tensor) -> Tensor:
    module.weight.data.mul_(2)
    return x * module.weight


def count(module: Any, x: Tensor) -> Tensor:
    module.count += 1
    return x


def append(module: Any, x: Tensor) -> Tensor:
    module.log.append(len(x))
    return x


def keep(module: Any, x: Tensor) -> Tensor:
    module.kept = x
    return x


AGREE = [
    pytest.param(lambda m, x: x * m.weight, lambda m, x: m.weight * x, id="the same number another way"),
    pytest.param(lambda m, x: (x / 0, x * float("nan")), lambda m, x: (x / 0, x * float("nan")), id="inf and nan"),
    pytest.param(lambda m, x: {"a": x, "b": 1}, lambda m, x: {"a": x, "b": 1}, id="dict"),
    pytest.param(lambda m, x: Boxed(Pair(x, [None])), lambda m, x: Boxed(Pair(x, [None])), id="nested classes"),
    pytest.param(lambda m, x: Opaque(x), lambda m, x: Opaque(x + 0), id="an object without equality"),
    pytest.param(lambda m, x: torch.rand_like(x), lambda m, x: torch.rand_like(x), id="random"),
    pytest.param(lambda m, x: x.add_(1), lambda m, x: x.add_(1), id="writes to its input"),
    pytest.param(write_buffer, write_buffer, id="writes to a buffer"),
    pytest.param(write_parameter, write_parameter, id="writes to a parameter"),
    pytest.param(rebind_buffer, rebind_buffer, id="binds a buffer anew"),
    pytest.param(count, count, id="counts its calls"),
    pytest.param(append, append, id="appends to a list"),
    pytest.param(lambda m, x: x.new_zeros(2).numpy(), lambda m, x: x.new_zeros(2).numpy(), id="numpy"),
    pytest.param(lambda m, x: m.norm(m.dropout(x)), lambda m, x: m.norm(m.dropout(x)), id="dropout and batch norm"),
    pytest.param(lambda m, x: x.to_sparse(), lambda m, x: x.to_sparse(), id="sparse"),
    pytest.param(lambda m, x: m, lambda m, x: m, id="returns itself"),
]


@pytest.mark.parametrize(("original", "captured"), AGREE)
def test_equal_modules_agree(original: Any, captured: Any) -> None:
    report = verify(Calls(original), Calls(captured), [X, X[:2]], modes=("train", "eval"))
    assert report.ok, str(report)
    assert report
    assert len(report.cases) == 4


PART = [
    pytest.param(lambda m, x: x + 1, "output: values differ at [", id="values"),
    pytest.param(lambda m, x: x.double(), "output: Tensor float32 (3, 4) cpu became Tensor float64 (3, 4)", id="dtype"),
    pytest.param(lambda m, x: x[:2], "output: Tensor float32 (3, 4) cpu became Tensor float32 (2, 4) cpu", id="shape"),
    pytest.param(lambda m, x: x * m.weight, "became Tensor float32 (3, 4) cpu requires_grad", id="needs a gradient"),
    pytest.param(lambda m, x: (x,), "output: Tensor float32 (3, 4) cpu became tuple of 1", id="structure"),
    pytest.param(lambda m, x: None, "output: Tensor float32 (3, 4) cpu became NoneType", id="nothing"),
    pytest.param(lambda m, x: x + float("nan"), "12 of 12 are beyond what is allowed", id="nan"),
    pytest.param(lambda m, x: x.clone().add_(0) if x.add_(1) is None else x - 1, "after the call: args[0]", id="input"),
    pytest.param(write_buffer, "after the call: seen: values differ at", id="a buffer written"),
    pytest.param(rebind_buffer, "after the call: seen: values differ at", id="a buffer bound anew"),
    pytest.param(count, "after the call: count: 0 became 1", id="an attribute"),
    pytest.param(append, "after the call: log: list of 0 became list of 1", id="a list"),
    pytest.param(keep, "after the call: kept: NoneType became Tensor", id="a new attribute"),
    pytest.param(lambda m, x: (torch.rand(1), x)[1], "after the call: torch's random state", id="a random draw"),
    pytest.param(lambda m, x: (random.random(), x)[1], "after the call: Python's random state", id="Python's draw"),
    pytest.param(lambda m, x: fail(KeyError("k")), "output: the captured module raises KeyError: 'k'", id="raises"),
    pytest.param(lambda m, x: fail(GuardError("no")), "output: refused: no", id="refuses"),
]


@pytest.mark.parametrize(("captured", "message"), PART)
def test_a_difference_is_named(captured: Any, message: str) -> None:
    report = verify(Calls(lambda m, x: x), Calls(captured), [X])
    assert not report.ok
    assert not report
    assert message in str(report.first_difference), str(report)
    assert message in str(report)


INSIDE = [
    pytest.param({"a": X, "b": 1}, {"a": X, "b": 2}, "output['b']: 1 became 2", id="dict"),
    pytest.param({"a": X}, {"b": X}, "output: dict with keys 'a' became dict with keys 'b'", id="keys"),
    pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, "output: dict with keys 'a', 'b' became", id="order of keys"),
    pytest.param([1, (2.0, "x")], [1, (2.0, "y")], "output[1][1]: 'x' became 'y'", id="nested"),
    pytest.param([1, 2], (1, 2), "output: list of 2 became tuple of 2", id="list and tuple"),
    pytest.param(Pair(1, 2), Pair(1, 3), "output.right: 2 became 3", id="named tuple"),
    pytest.param(Pair(1, 2), (1, 2), "output: ", id="named tuple and tuple"),
    pytest.param(Boxed(X), Boxed(X + 1), "output.value: values differ", id="dataclass"),
    pytest.param(Opaque([X]), Opaque([X + 1]), "output.value[0]: values differ", id="object"),
    pytest.param(1, True, "output: int became bool", id="int and bool"),
    pytest.param(1.0, 1.1, "output: 1.0 became 1.1", id="float"),
    pytest.param(torch.tensor(2**60), torch.tensor(2**60 + 1), "output: values differ", id="large integers"),
    pytest.param(torch.float32, torch.float16, "output: torch.float32 became torch.float16", id="dtype"),
    pytest.param({1, 2}, {1, 3}, "output: {1, 2} became {1, 3}", id="set"),
    pytest.param(collections.OrderedDict(a=1), {"a": 1}, "output: collections.OrderedDict with keys", id="class"),
    pytest.param(X.numpy(), X.numpy() + 1, "output: values differ", id="numpy"),
    pytest.param(nn.Parameter(X), X.clone().requires_grad_(), "became Tensor float32 (3, 4)", id="parameter"),
    pytest.param(float("nan"), 0.0, "output: nan became 0.0", id="nan"),
]


@pytest.mark.parametrize(("original", "captured", "message"), INSIDE)
def test_the_path_to_a_difference_is_named(original: Any, captured: Any, message: str) -> None:
    report = verify(lambda: original, lambda: captured, [()])
    assert message in str(report.first_difference), str(report)
    assert verify(lambda: original, lambda: copy.deepcopy(original), [()]).ok


def test_nothing_is_changed() -> None:
    def everything(m: Any, x: Tensor) -> Tensor:
        append(m, count(m, rebind_buffer(m, write_buffer(m, write_parameter(m, x)))))
        m.fresh = 1
        return m.norm(m.dropout(x.mul_(2))) + torch.rand_like(x) + random.random()

    model, gm, x = Calls(everything), Calls(everything), X.clone()
    model.norm.eval()
    buffer, version, attributes = model.seen, model.weight._version, dict(vars(model))
    before = copy.deepcopy((model.state_dict(), gm.state_dict(), x))
    torch_state, python_state = torch.get_rng_state(), random.getstate()

    assert verify(model, gm, [x], modes=("train", "eval"), grads=True).ok

    after = (model.state_dict(), gm.state_dict(), x)
    assert not compare_facts(facts_of(before, "state"), facts_of(after, "state"), Tolerance(0.0, 0.0))[0]
    assert model.seen is buffer
    assert model.weight._version == version
    assert model.weight.grad is None
    assert vars(model) == attributes
    assert model.training and gm.training and not model.norm.training
    assert (model.log, model.count, gm.log, gm.count) == ([], 0, [], 0)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python_state


def test_nothing_is_changed_by_a_failure() -> None:
    model = Calls(lambda m, x: fail(ValueError("late")) if write_buffer(m, x) is x else x)
    report = verify(model, copy.deepcopy(model), [X])
    assert [(case.verdict, case.note) for case in report.cases] == [("raises", "ValueError")]
    assert model.seen.tolist() == [0, 0, 0, 0]
    assert model.training


def test_modules_may_share_their_parameters_and_buffers() -> None:
    model = Calls(write_buffer)
    gm = copy.copy(model)
    assert gm.seen is model.seen
    assert verify(model, gm, [X, X]).ok
    assert model.seen.tolist() == [0, 0, 0, 0]


def test_a_missing_error_is_a_difference() -> None:
    report = verify(Calls(lambda m, x: fail(ValueError("bad size"))), Calls(lambda m, x: x), [X])
    assert str(report.first_difference) == (
        "output: the original raises ValueError: bad size, the captured module does not"
    )


def test_the_training_flag_is_followed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    frozen = nn.Sequential(model[0], nn.Dropout(0.0))
    report = verify(model, frozen, [X], modes=("train", "eval"))
    assert [(case.mode, case.verdict) for case in report.cases] == [("train", "differs"), ("eval", "equal")]


def test_gradients_are_compared_on_request() -> None:
    class Detached(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + (x @ self.weight.T).detach() - x @ self.weight.T.detach()

    model = nn.Linear(4, 4)
    detached = Detached(4, 4)
    detached.load_state_dict(model.state_dict())
    x = X.clone().requires_grad_()
    assert verify(model, detached, [x]).ok
    report = verify(model, detached, [x], grads=True)
    assert [difference.path for difference in report.cases[0].differences] == ["gradient of input tensor 0"]
    assert verify(model, copy.deepcopy(model), [x * 1], grads=True).ok, "inputs with a history"
    assert x.grad is None and model.weight.grad is None


def test_calls_are_spelled_in_several_ways() -> None:
    def program(x: Any, y: Any = 1) -> Any:
        return x, y

    spelled = [X, (X,), (X, 2), ((X,), {"y": 2}), {"x": X, "y": 2}, ((X, 2), {})]
    report = verify(program, program, spelled)
    assert [case.inputs for case in report.cases] == [
        "float32(3, 4)",
        "float32(3, 4)",
        "float32(3, 4), 2",
        "float32(3, 4), y=2",
        "x=float32(3, 4), y=2",
        "float32(3, 4), 2",
    ]
    assert {case.verdict for case in report.cases} == {"equal"}


def test_tolerances_may_be_given() -> None:
    assert not verify(lambda x: x, lambda x: x + 1e-3, [X])
    assert verify(lambda x: x, lambda x: x + 1e-3, [X], atol=1e-2)
    assert verify(lambda x: x, lambda x: x + 1e-3, [X], atol=1e-2).worst == pytest.approx(1e-3, rel=1e-3)
    assert not verify(lambda x: x, lambda x: x * 1.1, [X], rtol=0.05)
    assert verify(lambda x: x, lambda x: x * 1.1, [X], rtol=0.2)


REFUSED = [
    pytest.param([], ("eval",), "inputs is empty: there is nothing to compare", id="nothing"),
    pytest.param([X], (), "modes is ()", id="no mode"),
    pytest.param([X], ("training",), "modes is ('training',)", id="an unknown mode"),
]


@pytest.mark.parametrize(("inputs", "modes", "message"), REFUSED)
def test_nothing_to_compare_is_an_error(inputs: Any, modes: Any, message: str) -> None:
    with pytest.raises(GraphwrightError) as raised:
        verify(nn.Identity(), nn.Identity(), inputs, modes=modes)
    assert raised.value.message == message


def test_lazy_modules_are_refused() -> None:
    with pytest.raises(GraphwrightError, match="LazyLinear has parameters without a shape"):
        verify(nn.LazyLinear(3), nn.LazyLinear(3), [X])


def test_the_report_reads_as_a_table() -> None:
    report = verify(
        lambda x, scale=2.0: {"y": x * scale}, lambda x, scale=2.0: {"y": x * 2.0}, [X, {"x": X, "scale": 3.0}]
    )
    assert str(report) == (
        "1 of 2 cases agree, worst absolute error 1\n"
        "  case  mode  inputs                      verdict  error\n"
        "  0     eval  float32(3, 4)               equal    0\n"
        "  1     eval  x=float32(3, 4), scale=3.0  differs  1\n"
        "  case 1, eval: output['y']: values differ at [0, 0]: -3 became -2; 12 of 12 are beyond what is allowed, "
        "largest absolute error 1, allowed 1e-05 + 1.3e-06 * |value|"
    )


class Counts:
    calls = 0

    def __init__(self) -> None:
        self.steps, self.sums, self.rows = 0, torch.zeros(4), {"all": [0]}


COUNTS = Counts()


class CountsInObjects(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = Counts()

    def forward(self, x: Tensor) -> Tensor:
        for counts in (self.own, COUNTS):
            counts.steps += 1
            counts.sums.add_(1)
            counts.rows["all"][0] += 1
        Counts.calls += 1
        return x * self.own.steps + random.random()


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda model, gm: verify(model, gm, [(X,)]), id="verify"),
        pytest.param(lambda model, gm: optimize_for_inference(gm, (X,), engines=("torch",)), id="optimize"),
    ],
)
def test_objects_that_a_program_changes_are_put_back(run: Any) -> None:
    def state() -> list[Any]:
        found = [(each.steps, each.sums.tolist(), each.rows["all"][0]) for each in (model.own, gm.own, COUNTS)]
        return [*found, Counts.calls, random.getstate()]

    model = CountsInObjects().eval()
    gm = trace(model, (X,))
    before = state()
    run(model, gm)
    assert state() == before
