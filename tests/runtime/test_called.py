"""Modules that generated code calls: shown as look-ups, run as variables, and always the modules that are there now."""

from __future__ import annotations

import copy
import linecache
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.entered_frames import frames
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations

import graphwright
from graphwright import GraphModule, Interpreter, inline, trace

X = torch.randn(3, 4)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([Inner(), Inner()])
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.norm(x)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        while x.sum() > 1:
            x = self.layers[0](x) / 4
        return self.layers[1](x) if x.sum() > 0 else x


def captured(kind: Callable[[], nn.Module] = Net) -> GraphModule:
    torch.manual_seed(0)
    return trace(kind().eval(), X)


def node_by_node(module: GraphModule, x: Tensor = X) -> Tensor:
    """What the graph computes with the modules that are there now."""
    result: Tensor = Interpreter(module).run(x)
    return result


# ---- the text


@pytest.mark.slow
def test_what_is_shown_has_look_ups() -> None:
    gm = captured()
    gm(X)
    for path in ("self.first(x)", "self.blocks[0].layers[0](", "self.norm(x_3)"):
        assert path in gm.code
    assert "self_" not in gm.code
    assert gm.code.splitlines() == [line.rstrip("\n") for line in linecache.getlines(_file(gm))]


def test_what_runs_is_the_same_line_for_line_and_column_for_column() -> None:
    gm = captured()
    gm(X)
    code = gm.recompile()
    shown, run = code.src.splitlines(), code.run.splitlines()
    check = shown.index("    expect_modules(self)")
    assert [len(line) for line in shown[:check]] == [len(line) for line in run[:check]]
    assert [len(line) for line in shown[check + 1 :]] == [len(line) for line in run[check + 1 :]]
    assert "self_blocks_1__layers_0_(" in code.run


def _file(gm: GraphModule) -> str:
    return str(type(gm).forward.__code__.co_filename)  # type: ignore[attr-defined]


def test_tracebacks_show_look_ups() -> None:
    gm = captured()
    with pytest.raises(RuntimeError) as raised:
        gm(torch.ones(3, 5))
    lines = traceback.format_exception(raised.value)
    (place,) = [text for text in lines if f'File "{_file(gm)}"' in text]
    assert "    x_1 = self.first(x)" in place or "self.first(x)" in place
    if sys.version_info >= (3, 11) and "^" in place:
        shown, marks = place.splitlines()[1:3]
        assert shown[marks.index("^") : marks.rindex("^") + 1] == "self.first(x)"


def test_programs_that_take_nothing_for_granted_of_modules() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x) + x

    gm = captured(Flat)
    torch.testing.assert_close(gm(X), node_by_node(gm))
    code = gm.recompile()
    assert "expect_modules" not in code.src
    assert "return self_first(x) + x" in code.run
    assert code.src.count("\n") == code.run.count("\n")
    assert frames(lambda: gm(X))["_call_impl"] == 1


def test_a_name_that_the_program_has_is_kept() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, self_first: Tensor) -> Tensor:
            return self.other(self.first(self_first)) + self_first

    gm = captured(Named)
    torch.testing.assert_close(gm(X), node_by_node(gm))
    assert "self.first(self_first)" in gm.code
    assert "self_other(self.first(self_first))" in gm.recompile().run


def test_modules_in_branches_and_loops() -> None:
    gm = captured(Branching)
    for x in (X, X.abs(), -X.abs()):
        torch.testing.assert_close(gm(x), node_by_node(gm, x))
    assert "self.layers[1](x)" in gm.code
    assert "self_layers_1_(x)" in gm.recompile().run


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(4))
        self.register_buffer("count", torch.zeros(1))
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.layer(x) * self.scale + self.layer.weight.sum() + self.count


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Scaled(), Scaled()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def _other_scale(module: Any) -> None:
    module.blocks[0].scale = nn.Parameter(torch.rand(4))


def _other_block(module: Any) -> None:
    module.blocks[1] = Scaled()


def _no_count(module: Any) -> None:
    module.blocks[0].count = torch.full((1,), 7.0)


READS = {"nothing": lambda module: None, "scale": _other_scale, "block": _other_block, "count": _no_count}


@pytest.mark.parametrize("change", READS.values(), ids=READS)
def test_attributes_are_read_of_the_modules_that_are_there(change: Callable[[Any], Any]) -> None:
    gm = captured(Stack)
    gm(X)
    assert "self.blocks[1].scale" in gm.code
    assert "Self_blocks_1_.scale" in gm.recompile().run
    change(gm)
    twin = copy.deepcopy(gm)
    torch.testing.assert_close(gm(X), node_by_node(twin), rtol=0, atol=0)
    torch.testing.assert_close(gm(X), node_by_node(twin), rtol=0, atol=0)
    assert not {"__getitem__", "_get_item_by_idx"} & frames(lambda: gm(X)).keys()


def test_attributes_of_classes_that_look_up_otherwise() -> None:
    gm = captured(Stack)
    gm(X)
    gm.blocks = Listed([Scaled(), Scaled()])
    twin = copy.deepcopy(gm)
    torch.testing.assert_close(gm(X), node_by_node(twin), rtol=0, atol=0)


class Listed(nn.ModuleList):
    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)


# ---- the work of a call


def test_no_look_ups_and_no_hook_machinery() -> None:
    model = nn.Sequential(nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(4, 4), nn.ReLU())])).eval()
    gm = trace(model, X)
    model(X), gm(X)
    eager, traced = frames(lambda: model(X)), frames(lambda: gm(X))
    assert traced["forward"] == eager["forward"] - 1  # that of the container inside
    assert traced["__getattr__"] == 2 * 8  # those of the layers for their tensors
    assert not {"__getitem__", "_get_item_by_idx"} & traced.keys()
    assert traced["_call_impl"] == 1
    assert sum(traced.values()) < sum(eager.values()) - 16


# ---- changes of the world


class Other(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


class Calling(nn.Linear):
    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = super().__call__(x)
        return result + 1


def _table_of_modules(module: Any) -> None:
    inner = module.blocks[0].layers
    inner.__dict__["_modules"] = {"0": nn.Linear(4, 4), "1": nn.ReLU()}


def _table_of_hooks(module: Any) -> None:
    layer = module.blocks[0].layers[0]
    layer._forward_hooks = OrderedDict()
    module(X)
    layer.register_forward_hook(lambda module, args, y: y + 1)


def _own_forward(module: Any) -> None:
    forward = module.first.forward
    module.first.forward = lambda x: forward(x) * 2


def _compiled(module: Any) -> None:
    module.first._compiled_call_impl = lambda x: module.first._call_impl(x) * 2  # as `compile` sets it


CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda module: None,
    "another layer": lambda module: setattr(module, "first", Other(4, 4)),
    "another item": lambda module: module.blocks[1].layers.__setitem__(0, Other(4, 4)),
    "a table of modules replaced": _table_of_modules,
    "a hook": lambda module: module.first.register_forward_hook(lambda module, args, y: y + 1),
    "a pre-hook": lambda module: module.norm.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "a hook in a table that replaced another": _table_of_hooks,
    "a forward of its own": _own_forward,
    "a layer that is compiled": _compiled,
    "another class": lambda module: setattr(module.first, "__class__", Other),
    "a class with its own call": lambda module: setattr(module.first, "__class__", Calling),
    "weight norm": lambda module: parametrizations.weight_norm(module.first),
    "a captured module": lambda module: setattr(module, "first", trace(nn.Linear(4, 4), X)),
    "a scripted module": lambda module: setattr(module, "first", torch.jit.script(nn.Linear(4, 4))),
}

SAME = CHANGES["nothing"], CHANGES["weight norm"]


@pytest.mark.parametrize("form", [lambda gm: gm, inline], ids=["traced", "inlined"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_call_sees(change: Callable[[Any], Any], form: Callable[[GraphModule], GraphModule]) -> None:
    gm = form(captured())
    before = gm(X)
    change(gm)
    after = gm(X)
    torch.testing.assert_close(after, node_by_node(gm), rtol=0, atol=0)
    torch.testing.assert_close(gm(X), after, rtol=0, atol=0)
    is_same = (
        torch.allclose if change is CHANGES["weight norm"] else torch.equal
    )  # whose norm rounds, with some kernels
    assert is_same(after, before) == (change in SAME)


def test_a_class_that_is_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = captured()
    gm(X)
    forward = nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: forward(self, x) * 2)
    torch.testing.assert_close(gm(X), node_by_node(gm), rtol=0, atol=0)


def test_what_all_modules_do_is_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = captured()
    gm(X)
    called: list[str] = []
    call = nn.Module.__call__

    def noted(self: nn.Module, *args: Any) -> Any:
        called.append(type(self).__name__)
        return call(self, *args)

    monkeypatch.setattr(nn.Module, "__call__", noted)
    gm(X)
    assert called.count("Linear") == 3


def test_hooks_of_all_modules() -> None:
    gm = captured(Branching)
    gm(-X.abs())
    called: list[str] = []
    handle = register_module_forward_hook(lambda module, args, output: called.append(type(module).__name__))
    try:
        gm(X.abs())
    finally:
        handle.remove()
    assert "Linear" in called


def test_hooks_that_are_gone() -> None:
    gm = captured()
    gm.first.register_forward_hook(lambda module, args, y: y + 1).remove()  # type: ignore[union-attr]
    assert frames(lambda: gm(X))["_call_impl"] == 1
    handle = gm.first.register_forward_hook(lambda module, args, y: y + 1)  # type: ignore[union-attr]
    assert frames(lambda: gm(X))["_call_impl"] > 1
    handle.remove()
    assert frames(lambda: gm(X))["_call_impl"] == 1


def test_a_lazy_layer() -> None:
    gm = captured()
    gm.first = nn.LazyLinear(4)
    gm(X)
    torch.testing.assert_close(gm(X), node_by_node(gm), rtol=0, atol=0)
    assert frames(lambda: gm(X))["_call_impl"] == 1


class Items(nn.Sequential):
    """Gives items in reverse."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(-1 - key)


def test_classes_that_look_up_otherwise() -> None:
    """Where they stand on the way to a module after the capture, code finds what it shows."""
    gm = captured()
    gm(X)
    gm.add_module("blocks", nn.ModuleList([Inner(), Inner()]))
    gm.blocks[0].layers = Items(*[nn.Linear(4, 4), nn.Tanh()])  # type: ignore[index, union-attr]
    torch.testing.assert_close(gm(X), node_by_node(gm), rtol=0, atol=0)


def test_a_module_that_is_gone() -> None:
    gm = captured()
    gm(X)
    first = gm.first
    del gm.first
    with pytest.raises(AttributeError, match="'first'") as raised:
        gm(X)
    assert "self.first(x)" in "".join(traceback.format_exception(raised.value))
    gm.first = first
    torch.testing.assert_close(gm(X), node_by_node(gm), rtol=0, atol=0)


# ---- copies and other tools


def test_copies_call_their_own_modules() -> None:
    gm = captured()
    gm(X)
    copied = copy.deepcopy(gm)
    with torch.no_grad():
        copied.first.weight.mul_(2)  # type: ignore[union-attr, operator]
    torch.testing.assert_close(copied(X), node_by_node(copied), rtol=0, atol=0)
    assert not torch.equal(copied(X), gm(X))


TOOLS: dict[str, Callable[[GraphModule], Any]] = {
    "compile": lambda gm: torch.compile(gm, backend="eager", fullgraph=True),
    "export": lambda gm: torch.export.export(gm, (X,)).module(),
    "jit.trace": lambda gm: torch.jit.trace(gm, (X,)),
    "torch.fx": torch.fx.symbolic_trace,
    "symbolic_trace": graphwright.symbolic_trace,
    "trace": lambda gm: trace(gm, X),
    "script": graphwright.script,
}


READERS = {name: TOOLS[name] for name in ("trace", "script")} | {
    "compile": lambda gm: torch.compile(gm, backend="eager")
}


@pytest.mark.parametrize("use", READERS.values(), ids=READERS)
def test_branches_are_read_by_other_tools(use: Callable[[GraphModule], Any]) -> None:
    gm = captured(Branching)
    read = use(gm)
    with torch.no_grad():
        for x in (X, X.abs(), -X.abs()):
            torch.testing.assert_close(read(x), gm(x))


@pytest.mark.parametrize("use", TOOLS.values(), ids=TOOLS)
def test_other_tools_read_it(use: Callable[[GraphModule], Any]) -> None:
    gm = captured()
    expected = gm(X)
    torch.testing.assert_close(use(gm)(X), expected)
    assert frames(lambda: gm(X))["_call_impl"] == 1  # and leave nothing behind


@pytest.mark.parametrize("strict", [False, True])
def test_export_tells_the_layers(strict: bool) -> None:
    gm = trace(nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU())).eval(), X)
    gm(X)
    program = torch.export.export(gm, (X,), strict=strict)
    stacks = [node.meta.get("nn_module_stack", {}).values() for node in program.graph.nodes]
    assert {"0.0", "0.1"} <= {path for stack in stacks for path, _ in stack}


def test_jit_trace_names_the_layers() -> None:
    gm = captured()
    gm(X)
    assert "first" in str(torch.jit.trace(gm, (X,)).graph)
