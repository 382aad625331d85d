"""Inlined modules: what their code is, and that it computes what the program does after every change of the world."""

from __future__ import annotations

import collections
import copy
import io
import pickle
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.entered_frames import frames
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations, prune

import graphwright
from graphwright import GraphModule, inline, trace
from graphwright.errors import ExportError, GuardError, PassError
from graphwright.runtime import watching


class Net(nn.Module):
    """Linear layers used twice, norms, dropout, a branch, a loop, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.rest = nn.Sequential(nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 4, bias=False))
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        self.same = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.rest(self.first(x))
        if y.sum() > 0:
            y = self.drop(self.first(y)) * self.scale
        for _ in range(x.size(0)):
            y = y + self.first(x)
        return self.same(self.norm(y))


class Plain(nn.Module):
    """Two layers and a dropout: nothing that training changes but that."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(torch.relu(self.first(x))))


X = torch.linspace(-1, 1, 12).view(3, 4)


def both(kind: Callable[[], nn.Module] = Net) -> tuple[GraphModule, GraphModule]:
    """A captured module, and another of equal weights, inlined."""
    torch.manual_seed(0)
    gm = trace(kind().eval(), X)
    return gm, inline(copy.deepcopy(gm))


def is_inlined(module: nn.Module, x: Tensor = X) -> bool:
    return "forward_calling_modules" not in frames(lambda: module(x))


# ---- the code


def test_the_code_calls_functions() -> None:
    _, inlined = both(Plain)
    text = "\n".join(line for line in inlined.code.splitlines() if not line.strip().startswith("#")).strip()
    assert text == (
        "def forward(self, x: torch.Tensor) -> torch.Tensor:\n"
        "    tensors = tensors_of(self)\n"
        "    if tensors is None:  # a module has a hook, is another one, or was given other settings\n"
        "        return self.forward_calling_modules(x)\n"
        "    first_weight, first_bias, last_weight, last_bias, drop_training = tensors\n"
        "\n"
        "    drop = torch.dropout(relu_over(torch.nn.functional.linear(x, first_weight, first_bias)), 0.5, "
        "drop_training)\n"
        "    return torch.nn.functional.linear(drop, last_weight, last_bias)\n"
        "\n\n\n\n"
        "def forward_calling_modules(self, x: torch.Tensor) -> torch.Tensor:\n"
        "    return self.last(self.drop(torch.relu(self.first(x))))"
    )


def test_tensors_are_named_after_their_layers() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x)

    model = nn.ModuleDict({"in": Layer(), "blocks": nn.Sequential(*[Layer() for _ in range(3)])})

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc_1, self.parts = nn.Linear(4, 4), model

        def forward(self, x: Tensor) -> Tensor:
            return self.fc_1(self.parts["blocks"](self.parts["in"](x)))

    code = inline(trace(Model(), X)).code.partition(" = tensors\n")[0]
    names = re.findall(r"\w+_(?:weight|bias)", code)
    assert names == [
        f"{layer}_{own}"
        for layer in ("in_fc", *(f"blocks_{i}_fc" for i in range(3)), "fc_1")
        for own in ("weight", "bias")
    ]


def test_bodies_of_branches_and_loops_are_inlined() -> None:
    _, inlined = both()
    first, _, _ = inlined.code.partition("def forward_calling_modules")
    code = [line for line in first.splitlines() if not line.strip().startswith("#")]
    assert [line for line in code if "self." in line] == ["        return self.forward_calling_modules(x)"]
    assert first.count("torch.nn.functional.linear(") == 4


@pytest.mark.skipif(watching._found is None, reason="this Python does not count all writes to attributes")
def test_one_call_looks_once() -> None:
    model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(4, 4), nn.ReLU())]).eval()
    gm = trace(model, X)
    inlined = inline(gm)
    for module in (model, gm, inlined):
        module(X)
    eager, traced, short = (sum(frames(lambda module=module: module(X)).values()) for module in (model, gm, inlined))
    assert traced < eager - 16  # layers are entered at once
    assert short <= 13 + 8  # the call, the code, the check; `relu_over`


def test_parameters_are_shared_and_modules_are_not() -> None:
    gm = trace(Net().eval(), X)
    inlined = inline(gm)
    assert all(one is other for one, other in zip(gm.parameters(), inlined.parameters(), strict=True))
    assert inlined.first is not gm.first
    inlined.train()
    assert not gm.first.training
    assert [node.op for node in inlined.graph.nodes] == [node.op for node in gm.graph.nodes]


# ---- changes of the world


def _state(module: nn.Module) -> None:
    module.load_state_dict({name: value * 2 for name, value in module.state_dict().items()})


def _assigned_state(module: nn.Module) -> None:
    module.load_state_dict({name: value * 2 for name, value in module.state_dict().items()}, assign=True)


def _parameter(module: Any) -> None:
    module.first.weight = nn.Parameter(module.first.weight.detach() * 3)


def _table_of_parameters(module: Any) -> None:
    module.first.__dict__["_parameters"] = {name: nn.Parameter(p * 2) for name, p in module.first._parameters.items()}


def _data(module: Any) -> None:
    module.first.weight.data = module.first.weight.data * 3


def _written(module: Any) -> None:
    with torch.no_grad():
        module.first.weight.add_(1)


def _step(module: nn.Module) -> None:
    module(X).sum().backward()
    torch.optim.SGD(module.parameters(), 0.1).step()
    module.zero_grad()


def _other_layer(module: Any) -> None:
    layer = nn.Linear(4, 4)
    layer.load_state_dict({name: value * 2 for name, value in module.first.state_dict().items()})
    module.first = layer


def _other_layer_in_its_table(module: Any) -> None:
    _other_layer(module)
    module._modules["first"] = copy.deepcopy(module.first).requires_grad_(False)


def _other_container(module: Any) -> None:
    module.rest = nn.Sequential(*[copy.deepcopy(layer) for layer in module.rest])
    with torch.no_grad():
        module.rest[2].weight.mul_(2)


def _tied(module: Any) -> None:
    module.rest[2].weight = module.first.weight


STAYS_INLINED = {
    "nothing": lambda module: None,
    "a state dict": _state,
    "a state dict, assigned": _assigned_state,
    "a parameter replaced": _parameter,
    "a table of parameters replaced": _table_of_parameters,
    "the memory of a parameter replaced": _data,
    "a parameter written": _written,
    "a step of training": _step,
    "another layer": _other_layer,
    "another layer in the table of modules": _other_layer_in_its_table,
    "another container": _other_container,
    "tied weights": _tied,
    "training and back": lambda module: module.train().eval(),
    "frozen": lambda module: module.requires_grad_(False),
    "a plain attribute": lambda module: setattr(module.first, "note", "mine"),
    "a hook that is gone": lambda module: module.first.register_forward_hook(print).remove(),
}


@pytest.mark.parametrize("change", STAYS_INLINED.values(), ids=STAYS_INLINED)
def test_inlined_code_sees(change: Callable[[Any], Any]) -> None:
    gm, inlined = both()
    inlined(X)  # before, so that what it found is old
    change(gm), change(inlined)
    assert is_inlined(inlined)
    torch.testing.assert_close(inlined(X), gm(X), rtol=0, atol=0)


def _subclass(module: Any) -> None:
    class Doubled(nn.Linear):
        def __call__(self, x: Tensor) -> Tensor:
            return super().__call__(x) * 2

    module.first.__class__ = Doubled


def _compiled(module: Any) -> None:
    module.first._compiled_call_impl = lambda x: module.first._call_impl(x) * 2  # as `compile` sets it


def _forward(module: Any) -> None:
    forward = module.first.forward
    module.first.forward = lambda x: forward(x) * 2


def _no_bias(module: Any) -> None:
    module.rest[2].bias = nn.Parameter(torch.ones(4))


def _plain_tensor(module: Any) -> None:
    weight = module.first.weight.detach() * 2
    del module.first.weight
    module.first.weight = weight


def _other_kind(module: Any) -> None:
    module.rest[1] = nn.Tanh()


RUNS_MODULES = {
    "a hook": lambda module: module.first.register_forward_hook(lambda module, args, output: output + 1),
    "a pre-hook": lambda module: module.first.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "a hook of what is left out": lambda module: module.same.register_forward_hook(lambda module, args, y: y + 1),
    "a layer that is compiled": _compiled,
    "a forward of its own": _forward,
    "a class with its own call": _subclass,
    "a tensor that was absent": _no_bias,
    "a tensor that is no parameter": _plain_tensor,
    "weight norm": lambda module: parametrizations.weight_norm(module.first),
    "pruned": lambda module: prune.l1_unstructured(module.first, "weight", 4),
    "another setting": lambda module: setattr(module.rest[0], "eps", 0.5),
    "another probability": lambda module: setattr(module.drop, "p", 0.25),
    "another kind of layer": _other_kind,
    "a batch norm in training": lambda module: module.norm.train(),
}


@pytest.mark.parametrize("change", RUNS_MODULES.values(), ids=RUNS_MODULES)
def test_modules_are_called_after(change: Callable[[Any], Any]) -> None:
    gm, inlined = both()
    before = inlined(X)
    change(gm), change(inlined)
    assert not is_inlined(inlined)
    torch.testing.assert_close(inlined(X), gm(X), rtol=0, atol=0)
    again = inline(gm)  # what cannot be inlined stays a call
    torch.testing.assert_close(again(X), gm(X), rtol=0, atol=0)
    assert before.shape == again(X).shape


def _hooks_replaced(module: Any) -> None:
    module.first._forward_hooks = collections.OrderedDict()


def _children_replaced(module: Any) -> None:
    module.rest.__dict__["_modules"] = dict(module.rest._modules)


def _other_child(module: Any) -> None:
    module.rest._modules["2"] = copy.deepcopy(module.rest[2]).requires_grad_(False)
    module.rest._modules["2"].weight.mul_(2)


# A table is replaced by an equal one, and after a call there is a write to that.
TABLES_REPLACED = {
    "hooks": (_hooks_replaced, RUNS_MODULES["a hook"]),
    "parameters": (_table_of_parameters, _parameter),
    "children": (_children_replaced, _other_child),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TABLES_REPLACED)
@pytest.mark.parametrize("form", [inline, lambda gm: graphwright.optimize_for_inference(gm, X, engines=("torch",))])
def test_tables_that_replace_others_are_looked_at(name: str, form: Callable[[GraphModule], GraphModule]) -> None:
    gm, _ = both()
    faster = form(copy.deepcopy(gm))
    with torch.no_grad():
        faster(X)
        for change in TABLES_REPLACED[name]:
            change(gm), change(faster)
            torch.testing.assert_close(faster(X), gm(X))


REPEATED = [
    *[STAYS_INLINED[name] for name in STAYS_INLINED if name not in ("tied weights", "frozen")],
    *[RUNS_MODULES[name] for name in ("a hook", "a pre-hook", "another setting", "another probability")],
    *(change for pair in TABLES_REPLACED.values() for change in pair),
    lambda module: module.first._forward_hooks.clear(),
    lambda module: module.norm.running_mean.add_(1),
    lambda module: module.norm._buffers.update(running_mean=torch.ones(4)),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("counts", [True, False], ids=["versions", "no versions"])
@pytest.mark.parametrize("seed", range(3))
def test_many_changes_after_each_other(seed: int, counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not counts:  # as with a torch that does not give them
        monkeypatch.setattr(watching, "_found", None)
    gm, inlined = both()
    optimized = graphwright.optimize_for_inference(copy.deepcopy(gm), X, engines=("torch",))
    for change in random.Random(seed).choices(REPEATED, k=25):
        change(gm), change(inlined), change(optimized)
        wanted = gm(X).detach()
        torch.testing.assert_close(inlined(X).detach(), wanted, rtol=0, atol=0)
        with torch.no_grad():
            torch.testing.assert_close(optimized(X), wanted)


def test_a_table_that_is_written_again_and_again() -> None:
    gm, inlined = both()
    for number in range(100):
        inlined.first.note = number
        assert is_inlined(inlined)
    _hooks_replaced(inlined)
    assert is_inlined(inlined)
    inlined.first.register_forward_hook(lambda module, args, output: output + 1)
    gm.first.register_forward_hook(lambda module, args, output: output + 1)
    torch.testing.assert_close(inlined(X), gm(X), rtol=0, atol=0)


def test_a_class_that_is_patched_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    gm, inlined = both()
    inlined(X)
    forward = nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: forward(self, x) * 2)
    assert not is_inlined(inlined)
    torch.testing.assert_close(inlined(X), gm(X))


def test_hooks_of_all_modules_are_called() -> None:
    gm, inlined = both(Plain)
    called: list[str] = []
    inlined(X)
    handle = register_module_forward_hook(lambda module, args, output: called.append(type(module).__name__))
    try:
        inlined(X)
        seen, _ = [*called], called.clear()
        gm(X)
        assert seen == called
        assert "Linear" in seen
    finally:
        handle.remove()
    assert is_inlined(inlined)


def test_parametrizations_come_and_go() -> None:
    _, inlined = both()
    inlined(X)
    parametrizations.weight_norm(inlined.first)
    assert not is_inlined(inlined)
    torch.nn.utils.parametrize.remove_parametrizations(inlined.first, "weight")
    assert is_inlined(inlined)


USES = {
    "torch.fx": torch.fx.symbolic_trace,
    "symbolic_trace": graphwright.symbolic_trace,
    "trace": lambda module: trace(module, X),
    "export": lambda module: torch.export.export(module, (X,)),
    "a layer that is parametrized, and no more": lambda module: _and_back(module),
}


def _and_back(module: Any) -> None:
    layer = module.first
    module.first = parametrizations.weight_norm(nn.Linear(4, 4))
    module(X)
    torch.nn.utils.parametrize.remove_parametrizations(module.first, "weight")
    module(X)
    module.first = layer


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_is_over_is_forgotten(use: Callable[[Any], Any]) -> None:
    _, inlined = both(Plain)
    use(inlined)
    assert is_inlined(inlined)


def test_training() -> None:
    gm, inlined = both(Plain)
    for module in (gm, inlined):
        module.train()
        torch.manual_seed(1)
        module(X).square().sum().backward()
    assert is_inlined(inlined)
    for one, other in zip(gm.parameters(), inlined.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=0)


def test_running_statistics() -> None:
    gm, inlined = both()
    for module in (gm, inlined):
        module.train()
        torch.manual_seed(1)
        module(X)
        module.eval()
    assert is_inlined(inlined)
    torch.testing.assert_close(dict(inlined.named_buffers()), dict(gm.named_buffers()), rtol=0, atol=0)
    assert int(inlined.norm.num_batches_tracked) == 1


def test_functional_call() -> None:
    gm, inlined = both()
    inlined(X)
    values = {name: value * 2 for name, value in gm.named_parameters()}
    expected = torch.func.functional_call(gm, values, (X,))
    torch.testing.assert_close(torch.func.functional_call(inlined, values, (X,)), expected, rtol=0, atol=0)
    assert not torch.equal(expected, inlined(X))


def test_conversions() -> None:
    gm, inlined = both()
    inlined(X)
    torch.testing.assert_close(inlined.double()(X.double()), gm.double()(X.double()), rtol=0, atol=0)
    assert is_inlined(inlined, X.double())


def test_guards_of_the_capture_are_looked_at() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = 2
            self.first = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x) * 3 if self.factor == 2 else self.first(x)

    inlined = inline(trace(Scaled().eval(), X))
    inlined(X)
    inlined.factor = 5
    with pytest.raises(GuardError, match=r"self\.factor was 2"):
        inlined(X)


# ---- copies, files, other tools

COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": lambda module: _saved(module),
}


def _saved(module: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_are_inlined(copied: Callable[[Any], Any]) -> None:
    gm, inlined = both(Plain)
    other = copied(inlined)
    assert is_inlined(other)
    assert is_inlined(inlined)
    torch.testing.assert_close(other(X), gm(X), rtol=0, atol=0)
    other.first = nn.Linear(4, 4)
    assert not torch.equal(other(X), inlined(X))
    torch.testing.assert_close(inlined(X), gm(X), rtol=0, atol=0)


def test_files_are_refused(tmp_path: Any) -> None:
    _, inlined = both()
    for write in (lambda: graphwright.save(inlined, tmp_path / "net.gw"), lambda: inlined.to_folder(tmp_path / "net")):
        with pytest.raises(ExportError, match=r"graphwright.inline\(graphwright.load\(path\)\)"):
            write()


@pytest.mark.slow
def test_other_tools_take_the_program() -> None:
    gm, inlined = both()
    expected = gm(X)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(inlined, backend="eager")(X), expected)
    torch.testing.assert_close(trace(inlined, X)(X), expected)
    plain, short = both(Plain)
    torch.testing.assert_close(torch.jit.script(short)(X), plain(X))
    torch.testing.assert_close(torch.fx.symbolic_trace(short)(X), plain(X))
    torch.testing.assert_close(graphwright.Interpreter(short).run(X), plain(X))


def test_edits_are_inlined() -> None:
    _, inlined = both(Plain)
    relu = next(node for node in inlined.graph.nodes if node.target is torch.relu)
    relu.target = torch.tanh
    assert "torch.tanh(torch.nn.functional.linear(x, first_weight, first_bias))" in inlined.code
    assert is_inlined(inlined)
    torch.testing.assert_close(inlined(X), inlined.forward_calling_modules(X), rtol=0, atol=0)


def test_symbolic_traces() -> None:
    model = Plain().eval()
    inlined = inline(graphwright.symbolic_trace(model))
    assert is_inlined(inlined)
    torch.testing.assert_close(inlined(X), model(X), rtol=0, atol=0)


def test_parameters_of_a_function_go_on() -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x: Tensor, *more: Tensor, scale: float = 2.0, **named: Tensor) -> Tensor:
            return self.first(x) * scale + more[0] + named["y"]

    gm = trace(Many(), (X, X), {"scale": 3.0, "y": X})
    inlined = inline(gm)
    expected = gm(X, X, scale=3.0, y=X)
    torch.testing.assert_close(inlined(X, X, scale=3.0, y=X), expected)
    inlined.first.register_forward_hook(lambda module, args, output: output)
    torch.testing.assert_close(inlined(X, X, scale=3.0, y=X), expected)


REFUSED = {
    "no captured module": (lambda: nn.Linear(2, 2), "Linear is no captured module"),
    "inlined already": (lambda: both(Plain)[1], "has a form already"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(PassError, match=message):
        inline(make())


def test_what_the_program_writes_is_read_where_it_is() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.count = self.count + 1
            self.mean.mul_(0.5)
            return self.first(x) * self.count + self.mean

    gm, inlined = both(Counting)
    for _ in range(3):
        torch.testing.assert_close(inlined(X), gm(X), rtol=0, atol=0)
    assert is_inlined(inlined)
    assert "    mean, first_weight, first_bias = tensors\n" in inlined.code


class CountsItsCalls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return self.linear(x) + self.calls  # type: ignore[no-any-return]


def test_inlined_code_that_writes_is_captured_again() -> None:
    model, x = CountsItsCalls().eval(), torch.randn(3, 4)
    original = copy.deepcopy(model).train()
    fast = inline(trace(model, (x,)))
    outer = trace(nn.Sequential(fast, nn.ReLU()), (x,)).train()
    for _ in range(2):
        assert torch.equal(outer(x), original(x).relu())


class PassesOn(nn.Module):
    """Gives what is no value of the program to a module that gives it back."""

    def __init__(self) -> None:
        super().__init__()
        self.same = nn.Identity()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = self.same(mask)
        return x * self.same(3) if mask is None else x + mask


def test_literals_go_through_identities() -> None:
    inlined = inline(trace(PassesOn(), torch.ones(2)))
    assert inlined(torch.ones(2)).tolist() == [3.0, 3.0] and "x * 3" in inlined.code
