"""`trace`: the captured module against eager, over values, sizes, modes and gradients; and what it refuses."""

from __future__ import annotations

import copy
import inspect
import operator
import random
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graphwright
from graphwright import CaptureError, GraphModule, GuardError, Interpreter, script, symbolic_trace, trace, verify


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x) * self.scale
        return F.dropout(hidden, 0.5, self.training)


class Model(nn.Module):
    """Children in a container and in a plain list, a buffer, sizes, an in-place write, a no_grad region."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.order = [self.blocks[1], self.blocks[0]]
        self.register_buffer("offset", torch.arange(4.0))

    def forward(self, x: torch.Tensor, *, scale: float = 1.0, mask: torch.Tensor | None = None) -> dict[str, object]:
        batch, length = x.shape[0], x.shape[1]
        for block in self.order:
            x = block(x)
        x = x + self.offset
        x += 1
        with torch.no_grad():
            mean = x.mean()
        first, second = x.chunk(2, dim=-1)
        if mask is not None:
            first = first * mask
        return {"flat": x.reshape(batch * length, -1) * scale, "pair": (first, second), "mean": mean, "n": length}


def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


def test_the_generated_code_reads_like_the_source() -> None:
    gm = trace(nn.Sequential(Block()).eval(), torch.randn(2, 4))
    text = "\n".join(line for line in gm.code.splitlines() if not line.strip().startswith("#")).strip()
    assert text.splitlines() == [
        "def forward(self, input):",
        "    expect_modules(self)",
        "    modules = self._modules",
        "",
        '    hidden = modules["0"].linear(input) * modules["0"].scale',
        '    return torch.nn.functional.dropout(hidden, p=0.5, training=modules["0"].training)',
    ]


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 7, 4), (1, 1, 4)], ids=str)
def test_other_sizes_and_keyword_arguments(shape: tuple[int, ...]) -> None:
    original = model()
    gm = trace(original, (torch.randn(2, 3, 4),), {"scale": 2.0})
    report = verify(original, gm, [((torch.randn(shape),), {"scale": 3.0}), ((torch.randn(shape),), {})], grads=True)
    assert report.ok, str(report)
    x = torch.randn(shape)
    torch.testing.assert_close(Interpreter(gm).run(x)["flat"], original(x)["flat"])


def test_the_training_flag_that_is_passed_on_stays_live() -> None:
    original = model()
    gm = trace(original, (torch.randn(2, 3, 4),))
    report = verify(original, gm, [((torch.randn(3, 3, 4),), {})], modes=("train", "eval"))
    assert report.ok, str(report)


def test_it_is_an_instance_of_the_class_with_its_signature_and_state() -> None:
    original = model()
    gm = trace(original, (torch.randn(2, 3, 4),))
    assert isinstance(gm, Model) and isinstance(gm, GraphModule)
    assert inspect.signature(gm.forward) == inspect.signature(original.forward)
    assert list(gm.state_dict()) == list(original.state_dict())
    assert gm.blocks[0].scale is original.blocks[0].scale
    assert gm.blocks is not original.blocks and gm.order[0] is gm.blocks[1]
    assert type(gm.blocks[0]) is Block
    gm.train()
    assert not original.training and not original.blocks[0].training


def test_a_copy_is_independent() -> None:
    gm = trace(model(), (torch.randn(2, 3, 4),))
    copied = copy.deepcopy(gm)
    x = torch.randn(2, 3, 4)
    before = gm(x)["flat"]
    with torch.no_grad():
        copied.blocks[0].scale.zero_()
    torch.testing.assert_close(gm(x)["flat"], before)
    assert not torch.equal(copied(x)["flat"], before)


class Asks(nn.Module):
    """Questions that the example answers."""

    def forward(self, x: torch.Tensor, flag: bool = False, mask: torch.Tensor | None = None) -> torch.Tensor:
        if x.dim() == 3 and x.shape[0] != 1:
            x = x.flatten(0, 1)
        if self.training or flag:
            x = x * 2
        for _ in (0,) * (x.shape[1] // 2):
            x = x + 1
        return x if mask is None else x * mask


GUARDED = [
    pytest.param(lambda gm: gm(torch.randn(3, 5, 8)), "test_trace.py", id="a size"),
    pytest.param(lambda gm: gm(torch.randn(5, 4)), "'x' was a tensor of 3 dimensions", id="a rank"),
    pytest.param(lambda gm: gm(torch.randn(2, 5, 4), flag=True), "'flag' was False", id="a flag"),
    pytest.param(lambda gm: gm(torch.randn(2, 5, 4), mask=torch.ones(4)), "'mask' was None", id="None"),
]


@pytest.mark.parametrize(("call", "message"), GUARDED)
def test_what_the_example_answered_is_checked(call: object, message: str) -> None:
    gm = trace(Asks().eval(), torch.randn(2, 5, 4))
    assert gm(torch.randn(3, 7, 4)).shape == (21, 4)
    with pytest.raises(GuardError, match=message):
        call(gm)  # type: ignore[operator]


def test_guards_are_listed_with_the_users_line() -> None:
    gm = trace(Asks().eval(), torch.randn(2, 5, 4))
    assert any("(0,) * (x.shape[1] // 2)" in str(guard) for guard in gm.guards)


def test_an_int_argument_is_an_int_to_isinstance_and_stays_an_input() -> None:
    def last(x: torch.Tensor, keep: int = 0) -> torch.Tensor:
        index = slice(-keep, None) if isinstance(keep, int) else keep
        return x[index]

    gm = trace(last, torch.arange(6.0), {"keep": 2})
    assert gm(torch.arange(6.0), keep=3).tolist() == [3.0, 4.0, 5.0]


def test_random_and_constant_tensors_are_made_at_every_call() -> None:
    gm = trace(lambda x: x + torch.randn(3) + torch.zeros(x.shape[0], 3), torch.randn(2, 3))
    x = torch.randn(5, 3)
    assert not torch.equal(gm(x), gm(x))


def test_contexts_are_regions_that_restore_what_was_before() -> None:
    gm = trace(model(), (torch.randn(2, 3, 4),))
    assert "with torch.no_grad():" in gm.code
    with torch.no_grad():
        gm(torch.randn(2, 3, 4))
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.seen: list[int] = []
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(1)
        self.calls += 1
        return self.norm(x)


def test_capture_writes_to_nothing_of_the_users() -> None:
    original = Counted().train()
    before = {name: value.clone() for name, value in original.state_dict().items()}
    attributes = {name: id(value) for name, value in vars(original).items()}
    x = torch.randn(2, 4)
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(()), random.random()
    torch.manual_seed(3)
    random.seed(3)
    gm = trace(original, x)
    assert (torch.rand(()), random.random()) == expected
    assert all(torch.equal(value, before[name]) for name, value in original.state_dict().items())
    assert {name: id(value) for name, value in vars(original).items()} == attributes
    assert original.seen == []
    assert not torch.is_inference_mode_enabled()
    assert gm(torch.randn(2, 4)).shape == (2, 4) and float(gm.calls) == 1


class Interrupted(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        with torch.no_grad():
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no"), SystemExit()], ids=lambda e: type(e).__name__)
def test_a_capture_that_fails_half_way_leaves_everything_as_it_was(error: BaseException) -> None:
    original = Interrupted(error)
    state = {name: dict(vars(module)) for name, module in original.named_modules()}
    flags = {name: flag for name, flag in vars(torch.compiler).items() if name.endswith("ing_flag")}
    assert flags
    call = nn.Module.__call__
    with pytest.raises(type(error)):
        trace(original, torch.randn(2, 4))
    assert {name: dict(vars(module)) for name, module in original.named_modules()} == state
    assert {name: getattr(torch.compiler, name) for name in flags} == flags
    assert nn.Module.__call__ is call and torch.is_grad_enabled()
    assert original.linear(torch.randn(1, 4)).shape == (1, 4)


REFUSED = [
    pytest.param(lambda: trace(3, ()), "neither an nn.Module nor callable", id="not a program"),  # type: ignore[arg-type]
    pytest.param(lambda: trace(nn.ReLU, (torch.ones(2),)), "ReLU is a class of modules", id="a class"),
    pytest.param(lambda: script(nn.ReLU), "ReLU is a class of modules", id="a class to script"),
    pytest.param(lambda: symbolic_trace(nn.ReLU), r"got <class .*ReLU'>\n.*make one: ReLU\(", id="without inputs"),
    pytest.param(lambda: trace(torch.relu, (torch.ones(2),)), "torch.relu tells no signature", id="in C"),
    pytest.param(
        lambda: trace(torch.export.export(nn.ReLU(), (torch.ones(2),)), (torch.ones(2),)), "from_export", id="exported"
    ),
    pytest.param(lambda: trace(model(), ()), "do not fit Model.forward", id="too few"),
    pytest.param(lambda: trace(model(), (torch.ones(2), torch.ones(2))), "do not fit Model.forward", id="too many"),
    pytest.param(lambda: trace(model(), {"x": 1}), "args is a dict", id="a dict as args"),  # type: ignore[arg-type]
    pytest.param(lambda: trace(lambda x: dict.fromkeys(x.tolist(), x), torch.ones(2)), "at .*test_trace.py", id="data"),
    pytest.param(lambda: trace(model(), torch.ones(2, 3, 4), leaf_modules=[3]), "leaf_modules holds 3", id="leaf"),  # type: ignore[list-item]
    pytest.param(lambda: trace(lambda x: object(), torch.ones(2)), "cannot write a", id="an unknown result"),
]


@pytest.mark.parametrize(("capture", "message"), REFUSED)
def test_what_cannot_be_captured_is_refused_with_a_place_or_a_fix(capture: object, message: str) -> None:
    with pytest.raises(CaptureError, match=message) as error:
        capture()  # type: ignore[operator]
    assert "fix:" in str(error.value)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.steps = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = self.steps(x)
        own = x + 1
        return self.weight * inner, own


class NamesWhatItGets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Scaled() for _ in range(6)])
        self.same = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            scaled, more = part(x)
            x = scaled + more
        unlike, _ = self.parts[0](x)
        return self.same(unlike)


@pytest.mark.parametrize("copies", [True, False])
def test_what_a_module_gives_is_called_as_its_caller_calls_it(copies: bool) -> None:
    model, x = NamesWhatItGets(), torch.randn(2, 4)
    with graphwright.config.set(copy_layers=copies):
        gm, nested = trace(model, x), trace(model, x, flat=False)
    names = [node.name for node in gm.graph.nodes if node.target in (operator.mul, torch.relu, operator.add)]
    assert names[:6] == ["own", "scaled", "x_1", "own_1", "scaled_1", "x_2"] and names[-1] == "unlike"
    assert [node.name for node in gm.graph.nodes if node.target == "parts.3.steps.1"] == ["inner_3"]
    assert {"scaled", "own", "inner", "scaled_5", "unlike"} <= {n.name for n in graphwright.flatten(nested).graph.nodes}
    inside = [node.name for node in graphwright.unflatten(gm).parts[0].graph.nodes]
    assert inside == [node.name for node in nested.parts[0].graph.nodes] and "mul" in inside
    assert torch.equal(gm(x), model(x))


def test_leaves_are_chosen_per_capture() -> None:
    original, x = model(), torch.randn(2, 3, 4)
    calls = [node.target for node in trace(original, x).graph.nodes if node.op == "call_module"]
    assert calls == ["blocks.1.linear", "blocks.0.linear"]
    for leaf in (Block, "Block"):
        gm = trace(original, x, leaf_modules=[leaf])
        assert [n.target for n in gm.graph.nodes if n.op == "call_module"] == ["blocks.1", "blocks.0"]
        assert verify(original, gm, [((torch.randn(4, 2, 4),), {})]).ok


def test_captures_in_threads_equal_the_single_threaded_one() -> None:
    original, x = model(), torch.randn(2, 3, 4)
    expected, want = str(trace(original, x).graph), original(x)["flat"]
    wrong: list[object] = []

    def capture() -> None:
        for _ in range(10):
            if str(trace(original, x).graph) != expected:
                wrong.append("graph")

    def infer() -> None:
        for _ in range(50):
            if not torch.equal(original(x)["flat"], want):
                wrong.append("value")

    threads = [threading.Thread(target=target) for target in (capture, capture, capture, infer)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


class OwnNames(nn.Module):
    """Uses names that are ours."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = nn.Linear(4, 4)
        self.code = "mine"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.graph(x)


def test_the_users_names_win() -> None:
    original, x = OwnNames(), torch.randn(2, 4)
    gm = trace(original, x)
    assert isinstance(gm.graph, nn.Linear) and gm.code == "mine"
    torch.testing.assert_close(gm(x), original(x))
    assert len(graphwright.graph(gm).nodes) == 3


def test_editing_the_graph_is_enough() -> None:
    gm = trace(lambda x: torch.relu(x) + 1, torch.randn(3))
    (relu,) = gm.graph.find_nodes(op="call_function", target=torch.relu)
    relu.target = torch.neg
    assert gm(torch.ones(3)).tolist() == [0.0, 0.0, 0.0]


def test_a_dtype_that_the_program_asked_for_is_not_silently_kept() -> None:
    model = nn.Sequential(Upcast(lambda x, weight: x * len(str(weight.dtype)))).eval()
    asks = trace(model, torch.randn(2, 4))
    with pytest.raises(GuardError, match=r"self\.0\.linear\.weight was of torch\.float32 .* makes it one of .*float16"):
        asks.half()
    assert next(asks.parameters()).dtype is torch.float32 and asks.to("cpu").float() is asks


@pytest.mark.parametrize("program", [lambda x, weight: x.to(torch.float64).to(x.dtype), lambda x, weight: x])
def test_a_program_that_asks_for_no_dtype_is_converted_after_its_capture(program: Any) -> None:
    model = nn.Sequential(Upcast(program)).eval()
    plain, x = trace(model, torch.randn(2, 4), copy=True).double(), torch.randn(2, 4, dtype=torch.float64)
    assert plain(x).equal(model.double()(x))


class Upcast(nn.Module):
    def __init__(self, program: Any) -> None:
        super().__init__()
        self.linear, self.program = nn.Linear(4, 4), program

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.program(self.linear(x), self.linear.weight)


def test_a_tensor_that_the_program_has_record_gradients() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.requires_grad = True
        return y * 3

    gm = trace(program, (torch.ones(2),))
    assert "requires_grad_(True)" in gm.code and gm(torch.ones(2)).requires_grad
