"""Modules that change after capture: their attributes are live, and what cannot be is loud; nothing is ignored."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import graphwright
from graphwright import CaptureError, GuardError, Interpreter, trace
from graphwright.passes import remove_guards


class Block(nn.Module):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale, self.heads, self.is_on, self.mode, self.act = scale, 2, True, "plain", torch.relu
        self.bias: nn.Parameter | None = None
        self.sizes = [1, 2]

    gain = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) * self.scale * len(self.sizes) * self.gain
        y = y.view(-1, self.heads, 4 // self.heads).flatten(1)
        if self.is_on and self.mode == "plain":
            y = self.act(y)
        return y if self.bias is None else y + self.bias


class Other(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) - 1


class Net(nn.Module):
    """Enters a block and those of a list, and calls leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.layers = Block(), nn.ModuleList([Block(), Block()])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2)})
        self.drop, self.unread = nn.Dropout(0.5), 3
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4))])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block(x)
        for layer in self.layers:
            x = layer(x)
        for weight in self.weights:
            x = x * weight
        if self.training:
            x = x + self.drop.p
        return self.heads["a"](x)


@functools.cache
def captured() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    model = Net().eval()
    return model, trace(model, (torch.ones(3, 4),))


def net() -> tuple[nn.Module, nn.Module]:
    return copy.deepcopy(captured())


def trace_for_ones(model: nn.Module) -> Any:
    return trace(model, (torch.ones(2, 4),))


def outcome(model: nn.Module) -> Any:
    try:
        return model(torch.ones(2, 4)).detach()
    except GuardError as error:
        return str(error)


def hook(module: Any, args: Any, output: Any) -> Any:
    return output * 3


def set_forward(model: Any) -> None:
    model.block.forward = lambda x: x


def set_(path: str, value: Any) -> Callable[[Any], None]:
    owner, _, name = path.rpartition(".")
    return lambda model: setattr(model.get_submodule(owner), name, copy.deepcopy(value))


LOUD = [
    pytest.param(lambda m: m.block.register_forward_hook(hook), "module 'block' has a hook", id="hook"),
    pytest.param(lambda m: m.block.register_forward_pre_hook(lambda m, a: None), "module 'block' has a hook", id="pre"),
    pytest.param(lambda m: m.layers[1].register_full_backward_hook(hook), "module 'layers.1' has a", id="backward"),
    pytest.param(set_forward, "module 'block' has a forward of its own", id="patched forward"),
    pytest.param(set_("block", Other()), "module 'block' was a Block when", id="another class"),
    pytest.param(lambda m: m.layers.append(Block()), "layers has got 2", id="appended"),
    pytest.param(lambda m: m.layers.__delitem__(0), "layers has lost 1", id="deleted"),
    pytest.param(lambda m: m.weights.append(torch.ones(4)), "weights", id="parameter appended"),
    pytest.param(set_("block.bias", nn.Parameter(torch.ones(4))), "self.block.bias was None", id="bias"),
    pytest.param(set_("block.heads", 4), "self.block.heads was 2", id="int"),
    pytest.param(set_("layers.0.is_on", False), "self.layers.0.is_on was True", id="bool"),
    pytest.param(set_("block.mode", "other"), "self.block.mode was 'plain'", id="text"),
    pytest.param(set_("block.gain", 2), "self.block.gain is there now", id="in front of the class's"),
    pytest.param(lambda m: m.block.sizes.append(3), "self.block.sizes was [1, 2]", id="list"),
    pytest.param(set_("block.act", torch.tanh), "self.block.act was", id="function"),
]
LIVE = [
    pytest.param(set_("block.scale", 5.0), id="float"),
    pytest.param(set_("block.scale", 5), id="float becomes an int"),
    pytest.param(set_("block.linear", nn.Linear(4, 4, bias=False)), id="a leaf swapped"),
    pytest.param(lambda m: m.block.linear.register_forward_hook(hook), id="a hook on a leaf"),
    pytest.param(lambda m: m.register_forward_hook(hook), id="a hook on the captured module"),
    pytest.param(lambda m: m.train(), id="train"),
    pytest.param(set_("drop.p", 0.25), id="a leaf's float"),
    pytest.param(set_("unread", 4), id="an attribute that nothing reads"),
    pytest.param(set_("new", 4), id="a new attribute"),
    pytest.param(lambda m: m.heads.update({"b": nn.Linear(4, 4)}), id="a head beside"),
    pytest.param(set_("block", Block(3.0)), id="another module of the class"),
    pytest.param(set_("block.linear.weight", nn.Parameter(torch.eye(4))), id="another weight"),
]


@pytest.mark.parametrize(("change", "said"), LOUD)
def test_what_cannot_be_live_is_loud(change: Callable[[Any], None], said: str) -> None:
    _, gm = net()
    gm(torch.ones(2, 4))
    change(gm)
    with pytest.raises(GuardError, match="fix: capture") as caught:
        gm(torch.ones(2, 4))
    assert said in str(caught.value)


@pytest.mark.parametrize("change", LIVE)
def test_other_changes_act_as_in_the_original(change: Callable[[Any], None]) -> None:
    model, gm = net()
    gm(torch.ones(2, 4))
    for each in (model, gm):
        torch.manual_seed(1)
        change(each)
    torch.manual_seed(2)
    expected = outcome(model)
    torch.manual_seed(2)
    assert torch.equal(outcome(gm), expected)


def test_captured_hooks_that_are_removed_are_missed() -> None:
    model = Net().eval()
    model.block.register_forward_hook(hook)
    gm = trace(model, (torch.ones(3, 4),))
    assert torch.equal(gm(torch.ones(3, 4)), model(torch.ones(3, 4)))
    gm.block._forward_hooks.clear()
    with pytest.raises(GuardError, match="no hook any more"):
        gm(torch.ones(3, 4))


def test_hooks_of_torch_for_all_modules_are_loud() -> None:
    _, gm = net()
    handle = nn.modules.module.register_module_forward_hook(hook)
    try:
        assert "hook for all modules" in outcome(gm)
    finally:
        handle.remove()
    with FlopCounterMode(display=False):  # whose hooks only watch
        assert isinstance(outcome(gm), torch.Tensor)


def saved(gm: Any, folder: Path) -> Any:
    graphwright.save(gm, folder / "gm")
    return graphwright.load(folder / "gm", allow=[__name__])


COPIES = [
    pytest.param(lambda gm, folder: copy.deepcopy(gm), id="deepcopy"),
    pytest.param(lambda gm, folder: copy.copy(gm), id="copy"),
    pytest.param(lambda gm, folder: pickle.loads(pickle.dumps(gm)), id="pickle"),
    pytest.param(lambda gm, folder: trace(gm, (torch.ones(3, 4),)), id="captured again"),
    pytest.param(saved, id="saved"),
]


@pytest.mark.parametrize("make", COPIES)
def test_copies_are_checked_each_by_itself(make: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    _, gm = net()
    expected = gm(torch.ones(2, 4))
    other = make(gm, tmp_path)
    assert torch.equal(other(torch.ones(2, 4)), expected)
    other.get_submodule("block").heads = 1
    assert "self.block.heads was 2" in outcome(other)
    other.get_submodule("block").heads = 2
    assert torch.equal(other(torch.ones(2, 4)), expected)


def test_a_package_and_a_guardless_module_check_nothing(tmp_path: Path) -> None:
    _, gm = net()
    trace(nn.Sequential(Block(), Block()), (torch.ones(3, 4),)).to_folder(tmp_path / "package")
    assert "expect_modules" not in (tmp_path / "package" / "module.py").read_text()
    assert "    expect_modules(self)\n" in gm.code and "heads is 2" in str(gm.guards[0])
    assert remove_guards(gm, lambda guard: "heads" in guard.text) == 1
    assert "expect_modules" not in gm.code
    gm.block.heads = 1
    assert isinstance(outcome(gm), torch.Tensor)


def test_the_interpreter_checks_too() -> None:
    _, gm = net()
    gm.layers[0].is_on = False
    with pytest.raises(GuardError, match="is_on"):
        Interpreter(gm).run(torch.ones(2, 4))


@pytest.mark.slow
def test_compilers_pass_over_the_check() -> None:
    _, gm = net()
    expected = gm(torch.ones(2, 4))
    exported = torch.export.export(gm, (torch.ones(2, 4),)).module()
    assert torch.equal(exported(torch.ones(2, 4)), expected)
    compiled = torch.compile(gm, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2, 4)), expected)


def test_functional_call_goes_on_working() -> None:
    _, gm = net()
    weights = {name: torch.zeros_like(value) for name, value in gm.named_parameters()}
    assert torch.equal(torch.func.functional_call(gm, weights, (torch.ones(2, 4),)), torch.zeros(2, 2))


# ---- numbers that change from step to step


class Schedule(nn.Module):
    """Reads its step, which the training loop or a method of its own counts."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.temperature, self.linear = 0, 1.0, nn.Linear(2, 2)

    def count(self) -> None:
        self.step += 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x) / self.temperature
        if self.step < 3:
            x = x * 2
        if self.step % 2 == 0:
            x = x - 1
        return x * self.step


def train(model: Any) -> list[float]:
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(6):
        model.temperature = 1.0 + i
        loss = model(torch.ones(2, 2)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.count()
        losses.append(loss.item())
    return losses


def test_a_schedule_on_attributes_agrees_with_eager() -> None:
    torch.manual_seed(0)
    model = Schedule()
    gm = trace(copy.deepcopy(model), (torch.ones(2, 2),))
    assert train(gm) == pytest.approx(train(model))


class Cut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.top, self.on = 2, True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: self.top] if self.on else x


def test_attributes_that_are_named_stay_open() -> None:
    gm = trace(Cut(), (torch.ones(4),), dynamic=["self.top", "self.on"])
    gm.top = 3
    assert gm(torch.ones(4)).shape == (3,)
    gm.on = False
    assert gm(torch.ones(4)).shape == (4,)
    closed = trace(Cut(), (torch.ones(4),))
    closed.top = 3
    with pytest.raises(GuardError, match=r"dynamic=\['self.top'\]"):
        closed(torch.ones(4))


class Switch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.p = Inner(), 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            self.inner.n = 4
        return self.inner(x) * (2 if type(self.p) is float else 3)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.n


def test_what_a_side_of_a_branch_writes_to_another_module_is_kept() -> None:
    model = Switch()
    gm = trace(copy.deepcopy(model), (torch.ones(2),))
    for x in (-torch.ones(2), torch.ones(2), -torch.ones(2)):
        assert torch.equal(gm(x), model(x))
        assert gm.get_submodule("inner").n == model.inner.n


class Lazy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "pe"):
            self.register_buffer("pe", torch.arange(2.0))
        return x + self.pe


def test_a_buffer_that_a_program_registers_is_one() -> None:
    model = Lazy()
    gm = trace(copy.deepcopy(model), (torch.ones(2),))
    for each in (model, gm):
        each(torch.ones(2))
        each(torch.ones(2))
    assert list(gm.state_dict()) == list(model.state_dict()) == ["pe"]


class Grown(nn.Module):
    """Positions, made anew where there are too few: as a buffer, or as a parameter."""

    def __init__(self, is_buffer: bool) -> None:
        super().__init__()
        if is_buffer:
            self.register_buffer("pe", torch.zeros(0), persistent=False)
        else:
            self.pe = nn.Parameter(torch.zeros(0), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.pe.shape[0] < x.shape[0]:
            made = torch.arange(float(x.shape[0]))
            self.pe = made if "pe" in self._buffers else nn.Parameter(made, requires_grad=False)
        return x + self.pe[: x.shape[0]]


def test_a_buffer_that_a_program_makes_anew_may_be_of_any_size() -> None:
    model = Grown(is_buffer=True)
    gm = trace(copy.deepcopy(model), (torch.ones(2),))
    for n in (2, 4, 3):
        assert torch.equal(gm(torch.ones(n)), model(torch.ones(n)))
        assert gm.pe.shape == model.pe.shape


def test_a_parameter_that_a_program_makes_anew_is_of_the_size_that_it_asked_for() -> None:
    gm = trace(Grown(is_buffer=False), (torch.ones(2),))
    gm(torch.ones(2))
    with pytest.raises(GuardError, match=r"self.pe was of torch.Size\(\[0\]\) when"):
        gm(torch.ones(4))


def _keep_it(x: Tensor) -> Tensor:
    return x


class Choosing(nn.Module):
    """A module whose inner module has a function that no file may name."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Applying()

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.inner(x)) + 1


class Applying(nn.Module):
    """It calls the function that it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.step = _keep_it

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x) * 2


def test_a_function_that_no_file_holds_is_not_missed(tmp_path: Path) -> None:
    gm = trace(Choosing(), (torch.ones(2),))
    graphwright.save(gm, tmp_path / "net.gw")
    again = graphwright.load(tmp_path / "net.gw", allow=["tests"])
    assert again(torch.ones(2)).equal(gm(torch.ones(2)))


class Dtyped(nn.Module):
    """It asks for the dtype of its weight, in one of some ways."""

    def __init__(self, ask: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
        super().__init__()
        self.weight, self.ask = nn.Parameter(torch.ones(3)), ask

    def forward(self, x: Tensor) -> Tensor:
        return self.ask(self.weight, x)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda w, x: x * 2 if w.dtype is torch.float32 else x * 3, id="is"),
        pytest.param(lambda w, x: x + str(w.dtype).count("3"), id="text"),
    ],
)
def test_a_dtype_of_a_parameter_that_is_read_is_guarded(ask: Any) -> None:
    gm = trace(Dtyped(ask), (torch.ones(3),))
    assert gm(torch.ones(3)).equal(Dtyped(ask)(torch.ones(3)))
    assert len(gm.guards) == 1
    with pytest.raises(GuardError, match=r"dtypes|weight was of torch.float32"):
        gm.half()(torch.ones(3))


@pytest.mark.parametrize("ask", [lambda w, x: x + torch.finfo(w.dtype).max, lambda w, x: x.to(w.dtype)])
def test_what_follows_from_the_dtype_of_a_parameter_is_read_at_the_call(ask: Any) -> None:
    gm = trace(Dtyped(ask), (torch.ones(3),))
    for model in gm, gm.half(), gm.double():
        assert model(torch.ones(3)).equal(Dtyped(ask).to(gm.weight.dtype)(torch.ones(3)))


class Patched(nn.Module):
    """Has a forward of its own, as models do that choose one of several when they are made."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        forwards = {
            "method": self.doubled,
            "lambda": lambda x: self.linear(x) * 3,
            "partial": functools.partial(Patched.doubled, self),
            "torch": torch.relu,
        }
        self.forward = forwards[kind]

    def doubled(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2


@pytest.mark.parametrize("kind", ["method", "lambda", "partial", "torch"])
@pytest.mark.parametrize("capture", [trace_for_ones, graphwright.script])
def test_a_module_may_have_had_a_forward_of_its_own(kind: str, capture: Callable[[nn.Module], Any]) -> None:
    model = nn.Sequential(Patched(kind), nn.Linear(4, 4))
    if capture is graphwright.script and kind in ("partial", "torch"):
        with pytest.raises(CaptureError, match="no function of Python"):
            capture(model)
        return
    gm, x = capture(model), torch.randn(2, 4)
    for each in gm, copy.deepcopy(gm):
        assert torch.equal(each(x), model(x))
        each[0].forward = torch.tanh
        with pytest.raises(GuardError, match="module '0' has a forward of its own now, in the place of "):
            each(x)


class Swaps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.first.weight, self.second.weight = self.second.weight, self.first.weight
        return self.first(x)  # type: ignore[no-any-return]


def test_parameters_that_layers_swap_are_swapped_at_each_call() -> None:
    model, x = Swaps(), torch.randn(3, 2)
    original = copy.deepcopy(model)
    captured = trace(model, (x,))
    for _ in range(3):
        assert torch.equal(captured(x), original(x))
        assert captured.first.weight is not captured.second.weight


def test_a_hook_on_what_a_flat_capture_has_no_call_of_names_the_capture_that_keeps_it() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2))
    x = torch.ones(1, 2)
    for flat in (True, False):
        gm = graphwright.trace(model, (x,), flat=flat)
        ran: list[int] = []
        gm.get_submodule("0").register_forward_hook(lambda *args, ran=ran: ran.append(1))
        if flat:
            with pytest.raises(GuardError, match="flat=False, which keeps all modules, or with leaf_modules"):
                gm(x)
        else:
            gm(x)
            assert ran == [1]


class Asks(nn.Module):
    """Of what it reads at each call it asks, by other ways, what it is."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held
        self.inner = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if self.held is not None else x


class AsksByName(Asks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = self.held
        return x + 1 if held is None else x


class AsksAHelper(Asks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if is_there(self.held) else x


class AsksForTheClass(Asks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if isinstance(self.held, torch.Tensor) else x


class AsksByGetattr(Asks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if getattr(self, "held", None) is None else x


def is_there(value: Any) -> bool:
    return value is not None


HELD = [torch.ones(2), 2.0, nn.Parameter(torch.ones(2)), nn.Tanh(), None]


@pytest.mark.parametrize("kind", [Asks, AsksByName, AsksAHelper, AsksForTheClass, AsksByGetattr])
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("other", HELD)
def test_what_a_live_attribute_is_that_the_program_asks_about_is_guarded(kind: Any, held: Any, other: Any) -> None:
    x = torch.ones(2)
    model = kind(held)
    gm = trace(model, (x,))
    assert torch.equal(gm(x), model(x))
    if held is other:
        return
    for module in gm, model:
        del module.held
        module.held = other
    with contextlib.suppress(GuardError):
        assert torch.equal(gm(x), model(x))
