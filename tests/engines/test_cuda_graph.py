"""Recorded runs: what is checked before one is launched, and what cannot be recorded.

Without CUDA, a recorder that runs the program again, into the same results, stands in for a graph of CUDA.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

import graphwright
from graphwright import GraphModule, cuda_graph, inline, optimize_for_inference, trace
from graphwright.analysis import tensors_in
from graphwright.engines.cuda_graphs import recorded_on
from graphwright.errors import ExportError, PassError, TrainingModeError
from graphwright.runtime import entry_points_of


class Again:
    """Records a run of the processor by what ran: to launch it is to run it again. Counts what it is asked for."""

    kind = "cpu"
    is_there = True

    def __init__(self) -> None:
        self.recorded = self.launched = self.waited = 0

    def record(self, run: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        self.recorded += 1
        results = run()

        def launch() -> None:
            self.launched += 1
            for result, now in zip(tensors_in(results), tensors_in(run()), strict=True):
                result.copy_(now)

        return results, launch

    def place(self) -> int:
        return threading.get_ident()

    def wait_for(self, place: Any) -> None:
        self.waited += 1

    def __deepcopy__(self, memo: Any) -> Again:
        return self

    def __reduce__(self) -> Any:
        return Again, ()


class Block(nn.Module):
    """Attention, which stays one call, a norm with statistics, a counter in a buffer, and nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.BatchNorm1d(5)
        self.out = nn.Linear(8, 6)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor, scale: float = 1.0) -> dict[str, Any]:
        self.calls += 1
        y = self.norm(x + self.attention(x, x, x, need_weights=False)[0]) * scale
        left, right = self.out(y).relu().chunk(2, -1)
        return {"both": (left, right), "count": x.shape[0], "calls": self.calls * 1}


X = torch.randn(2, 5, 8)


def recorded(model: nn.Module, *args: Any, **kwargs: Any) -> tuple[GraphModule, Again]:
    recorder = Again()
    return recorded_on(recorder, trace(model, args, kwargs=kwargs), args, kwargs), recorder


def assert_same(gm: nn.Module, model: nn.Module, *args: Any, **kwargs: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(gm(*args, **kwargs), model(*args, **kwargs))


@dataclasses.dataclass
class Given:
    y: Tensor
    note: str = ""


class InObject(nn.Module):
    def forward(self, x: Tensor) -> Given:
        return Given(x * 2, note="twice")


@pytest.mark.slow
def test_results_in_objects_are_objects_of_each_call() -> None:
    gm, _ = recorded(InObject().eval(), X)
    one, other = gm(X), gm(X + 1)
    assert type(one) is Given and one.note == "twice" and one is not other
    torch.testing.assert_close((one.y, other.y), (X * 2, X * 2 + 2))


def test_calls_launch_what_was_recorded() -> None:
    model = Block().eval()
    gm, recorder = recorded(copy.deepcopy(model), X)
    results = []
    for _ in range(3):
        x = torch.randn(2, 5, 8)
        with torch.no_grad():
            results.append((gm(x), model(x)))
    for given, expected in results:  # none is in the memory of another
        torch.testing.assert_close(given, expected)
        left, right = given["both"]
        assert left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
        assert left.stride() == expected["both"][0].stride()
    assert (recorder.recorded, recorder.launched) == (1, 3)
    assert isinstance(gm, Block) and list(gm.state_dict()) == list(model.state_dict())
    assert (
        "    recorded = recorded_for(self, x, scale)" in gm.code and "results = launch(recorded, x, scale)" in gm.code
    )


def _train(gm: Any, model: Any) -> None:
    for each in (gm, model):
        each.train()
        each.attention.dropout = 0.0


def _hook(gm: Any, model: Any) -> None:
    for each in (gm, model):
        each.out.register_forward_hook(lambda module, args, output: output * 2)


def _hook_inside_of_attention(gm: Any, model: Any) -> None:
    for each in (gm, model):
        each.attention.register_forward_hook(lambda module, args, output: (output[0] * 2, None))


GENERAL: dict[str, tuple[Callable[[Any, Any], None], tuple[Any, ...]]] = {
    "another size": (lambda gm, model: None, (X[:1],)),
    "another dtype": (lambda gm, model: (gm.double(), model.double()), (X.double(),)),
    "another number": (lambda gm, model: None, (X, 2.0)),
    "training": (_train, (X,)),
    "a hook": (_hook, (X,)),
    "a hook of what is called": (_hook_inside_of_attention, (X,)),
    "a setting": (lambda gm, model: [setattr(each.norm, "eps", 0.5) for each in (gm, model)], (X,)),
}


@pytest.mark.parametrize("name", list(GENERAL))
def test_other_calls_run_the_program(name: str) -> None:
    change, args = GENERAL[name]
    model = Block().eval()
    gm, recorder = recorded(copy.deepcopy(model), X)
    change(gm, model)
    before = recorder.launched
    assert_same(gm, model, *args)
    assert recorder.launched == before


def test_gradients_run_the_program() -> None:
    model = Block().eval()
    gm, recorder = recorded(copy.deepcopy(model), X)
    before = recorder.launched
    sum(each.sum() for each in gm(X)["both"]).backward()
    assert recorder.launched == before and gm.out.weight.grad is not None
    handle = register_module_forward_hook(lambda *args: None)
    try:
        with torch.no_grad():
            gm(X)
    finally:
        handle.remove()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        gm(X)
    assert recorder.launched == before


def _written(gm: Any) -> None:
    with torch.no_grad():
        gm.out.weight.mul_(2)


def _replaced(gm: Any) -> None:
    gm.out.weight = nn.Parameter(gm.out.weight.detach() * 2)


def _replaced_in_attention(gm: Any) -> None:
    gm.attention.in_proj_weight = nn.Parameter(gm.attention.in_proj_weight.detach() * 2)


def _moved(gm: Any) -> None:
    gm.attention.out_proj.weight.data = gm.attention.out_proj.weight.data * 2


@pytest.mark.parametrize(("change", "times"), [(_written, 1), (_replaced, 2), (_replaced_in_attention, 2), (_moved, 2)])
def test_weights_that_change(change: Callable[[Any], None], times: int) -> None:
    model = Block().eval()
    gm, recorder = recorded(copy.deepcopy(model), X)
    change(gm), change(model)
    assert_same(gm, model, X)
    assert_same(gm, model, X * 2)
    assert (recorder.recorded, recorder.launched) == (times, 2)
    assert torch.equal(gm.calls, model.calls)  # warming up leaves no trace


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda gm: pickle.loads(pickle.dumps(gm))])
def test_copies_record_for_themselves(duplicate: Callable[[Any], Any]) -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    gm, _ = recorded(copy.deepcopy(model), X)
    twin = duplicate(gm)
    assert_same(twin, model, X)
    assert entry_points_of(twin)["forward"].held.count == 1
    with pytest.raises(ExportError, match="record what is loaded"):
        graphwright.save(twin, "unused.gw")


def test_forms_that_are_recorded(prefer: Callable[..., None]) -> None:
    prefer("addmm", "torch")
    model, x = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval(), X[0]
    gm = trace(model, x)
    for made in (gm, inline(gm), optimize_for_inference(gm, x, engines=("torch",))):
        recorder = Again()
        before = made.code
        fast = recorded_on(recorder, made, (x,), {})
        torch.testing.assert_close(fast(x).detach(), model(x).detach())
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x))
        assert recorder.launched == 1 and made.code == before
    assert "torch.addmm" in fast.code
    with pytest.raises(PassError, match="recorded already"):
        recorded_on(recorder, fast, (x,), {})


def test_threads_wait_for_each_other() -> None:
    model = nn.Linear(8, 4).eval()
    gm, recorder = recorded(model, X)
    inputs, results = [torch.randn(2, 5, 8) for _ in range(6)], {}

    def run(i: int) -> None:
        with torch.no_grad():
            results[i] = gm(inputs[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, given in results.items():
        torch.testing.assert_close(given, model(inputs[i]).detach())
    assert len(results) == 6 and recorder.waited > 0


class Programs:
    """Programs to which a recorded run would not do justice."""

    def branch(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    def counts(self, x: Tensor) -> Tensor:
        self.steps = self.steps + 1  # type: ignore[has-type]
        return x * self.steps

    def prints(self, x: Tensor) -> Tensor:
        print(x.shape)
        return x * 2

    def writes(self, x: Tensor) -> Tensor:
        return x.mul_(2) + 1

    def argument(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1)

    def weight(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, self.scale  # type: ignore[attr-defined]


REFUSED = {
    "branch": "is a branch or loop on data",
    "counts": "steps",
    "prints": "has an effect",
    "writes": "writes to its arguments",
    "argument": "in the memory of an argument",
    "weight": "in the memory of a weight",
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_programs_that_are_refused(name: str) -> None:
    class Program(nn.Module):
        forward = getattr(Programs, name)

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8))
            self.steps = 0

    x = X.clone()
    with pytest.raises(PassError, match=REFUSED[name]):
        recorded(Program().eval(), x)
    assert torch.equal(x, X) or name == "writes"


def _linear(**changes: Any) -> GraphModule:
    return trace(nn.Linear(8, 4).eval(), (X,))


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "training": (lambda: recorded(nn.Linear(8, 4), X), TrainingModeError, r"in training\s+fix: gm.eval"),
    "gradient": (
        lambda: recorded(nn.Linear(8, 4).eval(), X.clone().requires_grad_()), PassError, r"'input' wants a gradient"
    ),
    "no captured module": (lambda: recorded_on(Again(), nn.Linear(8, 4), (X,), {}), PassError, "no captured module"),
    "arguments": (lambda: recorded_on(Again(), _linear(), (X, X), {}), PassError, "not those of the module"),
    "another device": (
        lambda: recorded_on(Again(), _linear(), (X.to("meta"),), {}), PassError, "'input' is on meta, not on cpu"
    ),
    "weights elsewhere": (
        lambda: recorded_on(Again(), _linear().to("meta"), (X,), {}), PassError, "weight is on meta, not on cpu"
    ),
    "a watched call": (lambda: _under_autocast(), PassError, "cannot be recorded here"),
}  # fmt: skip


def _under_autocast() -> None:
    gm = _linear()
    with torch.autocast("cpu", torch.bfloat16):
        recorded_on(Again(), gm, (X,), {})


@pytest.mark.parametrize("name", list(BAD))
def test_bad_input_is_told(name: str) -> None:
    call, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        call()


def test_without_cuda_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(PassError, match=r"there is no CUDA here\s+fix: use inline or optimize_for_inference"):
        cuda_graph(_linear(), X)


# ---- on a device

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="without CUDA")


@needs_cuda
def test_arguments_on_the_processor_are_told() -> None:
    with pytest.raises(PassError, match=r"'input' is on cpu, not on cuda"):
        cuda_graph(_linear().cuda(), X)


@needs_cuda
def test_graphs_of_cuda() -> None:
    model = Block().eval().cuda()
    x = X.cuda()
    gm = cuda_graph(trace(copy.deepcopy(model), x), x)
    for change in (lambda each: None, _written, _replaced, _replaced_in_attention, _moved):
        change(gm), change(model)
        for _ in range(2):
            assert_same(gm, model, torch.randn(2, 5, 8, device="cuda"))
    count = entry_points_of(gm)["forward"].held.count
    assert count == 4
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        given = gm(x)
    torch.cuda.synchronize()
    with torch.no_grad():
        torch.testing.assert_close(given["both"], model(x)["both"])
    assert_same(gm, model, x[:1])
    gm(x)["both"][0].sum().backward()
    assert gm.out.weight.grad is not None


@needs_cuda
def test_what_waits_for_the_device_cannot_be_recorded() -> None:
    class Waits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[x > 0] * 2

    x = X.cuda()
    with pytest.raises(PassError, match="cannot be recorded"):
        cuda_graph(trace(Waits().eval(), x), x)
