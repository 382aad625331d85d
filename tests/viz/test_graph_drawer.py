"""Drawings of graphs, compared with torch.fx's as text."""

from __future__ import annotations

import importlib
import shutil
import subprocess
from typing import Any

import pytest
import torch
import torch.fx
from torch import Tensor, nn

import graphwright
from graphwright.viz import graph_drawer

pytest.importorskip("pydot")

SIDES = ("torch.fx", "graphwright")
OPTIONS: list[dict[str, Any]] = [
    {},
    {"ignore_getattr": True},
    {"ignore_parameters_and_buffers": True},
    {"skip_node_names_in_args": False},
    {"dot_graph_shape": "box"},
    {"normalize_args": True},
    {"parse_stack_trace": True, "skip_node_names_in_args": False, "normalize_args": True},
]


def drawings(side: str, gm: Any, name: str = "drawing", **options: Any) -> dict[str, str]:
    options = {"ignore_parameters_and_buffers": False, **options}
    drawer = importlib.import_module(f"{side}.passes.graph_drawer").FxGraphDrawer(gm, name, **options)
    return {name: drawing.to_string() for name, drawing in drawer.get_all_dot_graphs().items()}


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.tail = nn.Sequential(nn.ReLU(), nn.Dropout())

    def forward(self, x: Tensor, y: Any = 2) -> Any:
        z = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        z = self.linear(self.tail(z)) * self.scale + y
        padded = nn.functional.pad(z, (1, 1), value=1e-7)
        parts = torch.transpose(z, 0, 1).view(-1, 2), padded.to(torch.float32, copy=True)
        return {"a": torch.cat([z, z], dim=0), "b": [z[0:1, None], parts], "{c}": torch.stack([z, z])}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(2, 1)
        self.recur = nn.GRU(2, 2)
        self.layers = nn.ModuleList([nn.Linear(2, 2)])
        self.register_buffer("offset", torch.ones(2))

    def forward(self, x: Tensor) -> Any:
        attended = self.attend(x, x, x)
        return self.layers[0](attended[0]) + self.recur(x)[0] + self.offset


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize(("model", "shape"), [(Layers, (2, 3, 8, 8)), (Attention, (3, 1, 2))])
def test_drawings_are_those_of_torch_fx(model: type[nn.Module], shape: tuple[int, ...], options: dict) -> None:
    found = []
    for side in SIDES:
        torch.manual_seed(0)
        gm = importlib.import_module(side).symbolic_trace(model().eval())
        texts = [drawings(side, gm, **options)]
        importlib.import_module(f"{side}.passes.shape_prop").ShapeProp(gm).propagate(torch.ones(shape))
        found.append([*texts, drawings(side, gm, **options)])
    assert found[0] == found[1]


def by_hand(package: Any) -> Any:
    graph = package.Graph()
    x = graph.placeholder("x")
    odd = graph.call_function(
        print, ((x, 2), [1, [2, 3]], list(range(9)), "a{b", {"k": [x]}, slice(x, None)), {"s": "t{", "d": {}}
    )
    added = graph.call_function(torch.ops.aten.add.Tensor, (x, (1,) * 11))
    added.stack_trace = '  File "/a/b/model.py", line 7, in forward\n    y = f(x)  # 1\n'
    conv = graph.call_function(torch.conv1d, (added, added), {"stride": 2})  # two overloads would fit
    graph.output((odd, graph.call_method("neg", (conv,))))
    return package.GraphModule({}, graph)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_arguments_are_written_alike(options: dict) -> None:
    found = [drawings(side, by_hand(importlib.import_module(side)), **options) for side in SIDES]
    assert found[0] == found[1]


def test_quantized_tensors_show_their_scheme() -> None:
    found = []
    for side in SIDES:
        gm = by_hand(importlib.import_module(side))
        tools = importlib.import_module(f"{side}.passes.shape_prop")
        node = gm.graph.find_nodes(op="call_function", target=print)[0]
        for kind, scheme in (("_per_tensor", torch.per_tensor_affine), ("_per_channel", torch.per_channel_affine)):
            facts = {"qscheme": scheme, "scale": 0.1, "zero_point": 3}
            facts |= {"axis": 1} if kind == "_per_channel" else {}
            meta = tools.TensorMetadata(torch.Size([2]), torch.quint8, False, (1,), None, True, facts)
            node.meta["tensor_meta"] = {"a": [meta, None]}
            found.append((side, drawings(side, gm)))
    assert [text for side, text in found if side == "torch.fx"] == [text for side, text in found if side != "torch.fx"]


def test_other_meta_is_refused_alike() -> None:
    for side in SIDES:
        gm = by_hand(importlib.import_module(side))
        gm.graph.find_nodes(op="call_function", target=print)[0].meta["tensor_meta"] = 5
        with pytest.raises(RuntimeError, match="Unsupported tensor meta type <class 'int'>"):
            drawings(side, gm)


def test_captured_modules_inside_are_drawn_too() -> None:
    found = []
    for side in SIDES:
        package = importlib.import_module(side)

        class KeepsParts(package.Tracer):
            def is_leaf_module(self, module: nn.Module, path: str, kind: Any = package.GraphModule) -> bool:
                return isinstance(module, kind)

        class Outer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.deep = nn.Module()

            def forward(self, x: Tensor) -> Tensor:
                return self.deep.part(x) * 2

        outer = Outer()
        outer.deep.part = package.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
        gm = package.GraphModule(outer, KeepsParts().trace(outer))
        texts = drawings(side, gm, "outer")
        found.append({name: text for name, text in texts.items() if name != "outer"})
        drawer = importlib.import_module(f"{side}.passes.graph_drawer").FxGraphDrawer(gm, "outer")
        assert list(texts) == ["outer", "outer_deep.part"]
        assert drawer.get_dot_graph() is drawer.get_main_dot_graph()
        assert drawer.get_dot_graph("deep.part") is drawer.get_submod_dot_graph("deep.part")
        with pytest.raises(KeyError, match="outer_missing"):
            drawer.get_dot_graph("missing")
    assert found[0] == found[1]


def test_without_pydot_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_drawer, "HAS_PYDOT", False)
    with pytest.raises(RuntimeError, match=r"requires the pydot package(.|\n)*graphwright\[viz\]"):
        graph_drawer.FxGraphDrawer(graphwright.symbolic_trace(lambda x: x), "same")


WRITTEN = [
    pytest.param("a|b", "a&#124;b", id="ends a field"),
    pytest.param("<a> {b}", r"&lt;a&gt; \{b\}", id="begins a port or a field"),
    pytest.param('say "a"', "say &quot;a&quot;", id="quotes"),
    pytest.param("C:\\new", "C:&#92;new", id="a backslash is no escape"),
    pytest.param("&lt;", "&amp;lt;", id="an entity is text"),
    pytest.param("one\ntwo", r"one\ltwo", id="lines end as lines"),
    pytest.param("i->i, ü", "i-&gt;i, ü", id="letters stay"),
]


@pytest.mark.parametrize(("text", "written"), WRITTEN)
def test_what_a_program_says_is_shown_as_it_is(text: str, written: str) -> None:
    graph = graphwright.Graph()
    call = graph.call_method(text, (graph.placeholder("x"), text), {"k": text})
    call.stack_trace = f'  File "/a/b/model.py", line 7, in forward\n    {text.partition(chr(10))[0]}\n'
    graph.output(call)
    gm = graphwright.GraphModule(nn.Module(), graph)
    drawing = graph_drawer.FxGraphDrawer(gm, "same", parse_stack_trace=True).get_dot_graph()
    label = drawing.get_nodes()[1].get_label()
    assert f"|target={written}" in label and f"args=({written},)" in label and f"k: {written}" in label
    assert f"model.py:7 {written.partition(chr(92) + 'l')[0]}" in label
    if dot := shutil.which("dot"):
        done = subprocess.run([dot, "-Tsvg"], input=drawing.to_string(), capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr


def test_weights_are_lines_in_the_box_of_their_module() -> None:
    gm = graphwright.symbolic_trace(nn.Sequential(nn.Linear(2, 3)))
    drawing = graph_drawer.FxGraphDrawer(gm, "same").get_dot_graph()
    assert [box.get_name() for box in drawing.get_nodes()] == ["input_1", "_0", "output"]
    assert "weight: torch.float32[3, 2]" in drawing.get_nodes()[1].get_label()
    drawing = graph_drawer.FxGraphDrawer(gm, "same", ignore_parameters_and_buffers=True).get_dot_graph()
    assert len(drawing.get_nodes()) == 3 and "weight" not in drawing.get_nodes()[1].get_label()
    drawing = graph_drawer.FxGraphDrawer(gm, "same", ignore_parameters_and_buffers=False).get_dot_graph()
    assert len(drawing.get_nodes()) == 5
