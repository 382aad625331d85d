"""to_folder: the written package computes the same in another process, and reads well."""

from __future__ import annotations

import copy
import json
import math
import operator
import os
import subprocess
import sys
import traceback
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runtime import programs
from tests.runtime.declare_torchvision import declare_torchvision
from tests.runtime.load_packages import facts_of
from tests.runtime.programs import Doubled, Helpers, Mode, Pair, Scale, calls, doubled_graph, graph_of, reduced, scaled
from torch import Tensor, nn

import graphwright
from graphwright import Graph, GraphModule, Node, symbolic_trace

ROOT = Path(__file__).parents[2]


def module_of(**parts: Any) -> nn.Module:
    """A module with these parameters, buffers, modules and plain attributes."""
    root = nn.Module()
    for name, value in parts.items():
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            root.register_buffer(name, value)
        else:
            setattr(root, name, value)
    return root


def reading(*names: str) -> Graph:
    """A graph that returns attributes of the module."""
    return graph_of(lambda graph, x: tuple(graph.get_attr(name) for name in names))


def holding(**parts: Any) -> GraphModule:
    return GraphModule(module_of(**parts), reading(*parts))


def calling(function: Any, *args: Any, **kwargs: Any) -> GraphModule:
    return GraphModule(nn.Module(), graph_of(lambda graph, x: graph.call_function(function, (x, *args), kwargs)))


def whole(module: nn.Module) -> GraphModule:
    """A graph that calls one module and no more."""
    return GraphModule({"part": module}, calls("part"))


# ---- modules and flags


def frozen(*names: str) -> GraphModule:
    gm = GraphModule(Doubled(), doubled_graph()).eval()
    for name, parameter in gm.named_parameters():
        parameter.requires_grad_(name not in names and bool(names))
    return gm


def half_training() -> GraphModule:
    gm = GraphModule(Doubled(), doubled_graph()).train()
    gm.norm.eval()
    return gm


class Tied(nn.Module):
    """One weight in two layers, one module at three places, one buffer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(3, 3), nn.Linear(3, 3)
        self.head.weight = self.embed.weight
        self.again = self.head
        self.blocks = nn.ModuleList([nn.Sequential(self.head, nn.Tanh()), nn.Sequential(nn.Linear(3, 3), self.head)])
        self.register_buffer("one", torch.ones(3))
        self.register_buffer("other", self.one)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.again(self.head(x)) @ self.embed.weight + self.one * self.other


class Repeated(nn.Module):
    """The same layer four times, one of them of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(3, 3), nn.Dropout()) for _ in range(4)])
        self.layers.append(nn.Sequential(nn.Linear(3, 5), nn.Dropout()))
        self.named = nn.ModuleDict({"gate": nn.Linear(3, 3), "a-b": nn.Linear(3, 3)})
        self.unused = nn.Linear(2, 2)
        self.unused_and_empty = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        x = self.named["gate"](x) + self.named["a-b"](x)
        for layer in self.layers:
            x = layer(x)
        return x


def odd_names() -> GraphModule:
    root = nn.Module()
    for name in ("0", "a-b", "class", "forward_", "größe"):
        setattr(root, name, nn.Linear(3, 3))
        root._modules[name].add_module("1", nn.Linear(3, 3))
        root._modules[name].register_parameter("2", nn.Parameter(torch.ones(3)))

    def build(graph: Graph, x: Node) -> Node:
        for name in root._modules:
            x = graph.call_module(f"{name}.1", (graph.call_module(name, (x,)),))
            x = graph.call_function(operator.mul, (x, graph.get_attr(f"{name}.2")))
        return x

    return GraphModule(root, graph_of(build))


def containers_that_run() -> GraphModule:
    block = nn.Sequential(nn.Linear(3, 3), nn.Sequential(), nn.Tanh(), Scale(0.5))
    return whole(nn.Sequential(block, block, nn.Dropout(0.2)).eval())


# ---- tensors


def sharing_memory() -> GraphModule:
    base = torch.randn(4, 6)
    complex_base = torch.randn(4, dtype=torch.complex64)
    return holding(
        base=base,
        row=base[1],
        columns=base.t()[2:4],
        last=nn.Parameter(base[3, 3:]),
        numbers=complex_base,
        tail=complex_base[2:],
    )


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool),
    *(torch.complex64, torch.complex128),
]


def every_dtype() -> GraphModule:
    values = {str(dtype).replace("torch.", "as_"): torch.randint(0, 2, (2, 3)).to(dtype) for dtype in DTYPES}
    return holding(**values)


def every_layout() -> GraphModule:
    return holding(
        scalar=torch.tensor(3.5),
        whole_scalar=nn.Parameter(torch.tensor(3), requires_grad=False),
        empty=torch.empty(0, 3),
        empty_complex=torch.empty(2, 0, dtype=torch.complex64),
        transposed=torch.randn(3, 4).t(),
        transposed_complex=torch.randn(3, 4, dtype=torch.complex64).t(),
        conjugate=torch.randn(3, 4, dtype=torch.complex64).conj(),
        negative=torch.randn(3, dtype=torch.complex64).conj().imag,
        channels_last=nn.Parameter(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)),
        expanded=torch.randn(3, 1).expand(3, 4),
        strided=torch.randn(4, 8)[:, ::2],
        byte=torch.zeros((), dtype=torch.float8_e4m3fn),
        learning_buffer=torch.randn(3, requires_grad=True),
    )


def not_persistent() -> GraphModule:
    root = module_of(kept=torch.ones(2))
    root.register_buffer("scratch", torch.arange(2.0), persistent=False)
    root.register_buffer("nothing", None)
    gm = GraphModule(root, reading("kept", "scratch"))
    gm._non_persistent_buffers_set.add("scratch")
    gm.register_buffer("nothing", None)
    gm.register_parameter("absent", None)
    return gm


# ---- global names


def annotated() -> GraphModule:
    graph = Graph()
    types = (
        Tensor, list[Tensor], typing.Optional[Tensor], typing.Dict[str, typing.List[int]], Pair, "Tensor",  # noqa: UP006, UP045
        typing.Callable[[int], Tensor], typing.Any, int | None, None, math.inf.__class__,
    )  # fmt: skip
    first = graph.placeholder("x", type_expr=Tensor)
    rest = [graph.placeholder(f"y{i}", type_expr=kind, default_value=None) for i, kind in enumerate(types)]
    result = graph.call_function(operator.add, (first, 1), type_expr=Tensor)
    graph.output((result, tuple(rest)), type_expr=typing.Tuple[Tensor, typing.Any])  # noqa: UP006
    return GraphModule(nn.Module(), graph)


def local_annotation() -> GraphModule:
    class Local:
        pass

    graph = Graph()
    graph.output(graph.placeholder("x", type_expr=Local))
    return GraphModule(nn.Module(), graph)


def named_like_ours() -> GraphModule:
    """Values and functions that are called as the package calls its own."""

    def build(graph: Graph, x: Node) -> Node:
        y = graph.create_node("call_function", programs.load_tensors, (x,), name="rebuilt")
        z = graph.create_node("call_function", programs.Model, (y,), name="load_weights")
        return graph.create_node("call_module", "Model", (z,), name="Model")

    return GraphModule({"Model": Scale(2.0)}, graph_of(build))


def nested() -> GraphModule:
    """Captured modules inside one another; two of them use other functions of one name."""
    inner = GraphModule(
        {"scale": Scale(0.5)},
        graph_of(lambda graph, x: graph.call_function(scaled, (graph.call_module("scale", (x,)),))),
    )
    outer = graph_of(lambda graph, x: graph.call_function(programs.Other.scaled, (graph.call_module("inner", (x,)),)))
    middle = GraphModule({"inner": inner}, outer)

    def build(graph: Graph, x: Node) -> Node:
        region = graph.get_attr("region")
        return graph.call_module("middle", (graph.call_function(programs.call_it, (region, x)),))

    region = GraphModule({"linear": nn.Linear(3, 3)}, calls("linear"), "Region")
    return GraphModule({"middle": middle, "region": region}, graph_of(build))


# ---- captures


class Layer(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(0.1)
        self.gain = 0.5
        self.register_parameter("bias", None)
        self.shortcut = None

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.norm(self.linear(x))) * self.gain


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(3) for _ in range(3)])
        self.table = torch.arange(3.0)
        self.register_buffer("positions", torch.arange(8)[None], persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Any]:
        for layer in self.layers:
            x = layer(x)
        with torch.no_grad():
            length = self.positions[:, : x.shape[0]]
        if mask is not None:
            x = x * mask
        return {"pair": Pair(x + self.table, x.sum(dim=-1)), "length": length}


def resnet(capture: Callable[[nn.Module], GraphModule]) -> GraphModule:
    declare_torchvision()
    from torchvision.models import resnet18

    return capture(resnet18().eval())


PICTURE = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)
X = torch.linspace(-1, 1, 6).reshape(2, 3)

CASES: dict[str, tuple[Callable[[], GraphModule], tuple[Any, ...]]] = {
    # name: (what is written, what it is called with)
    "arithmetic": (lambda: symbolic_trace(lambda x: torch.relu(x) * 2 + 1), (X,)),
    "mlp": (lambda: symbolic_trace(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))), (X,)),
    "training": (lambda: GraphModule(Doubled(), doubled_graph()), (X,)),
    "evaluating": (lambda: GraphModule(Doubled(), doubled_graph()).eval(), (X,)),
    "half_training": (half_training, (X,)),
    "frozen": (frozen, (X,)),
    "frozen_module": (lambda: frozen("linear.weight", "linear.bias"), (X,)),
    "frozen_parameter": (lambda: frozen("norm.bias"), (X,)),
    "tied": (lambda: symbolic_trace(Tied()), (X,)),
    "tied_traced": (lambda: graphwright.trace(Tied(), (X,)), (X,)),
    "repeated": (lambda: symbolic_trace(Repeated()).eval(), (X,)),
    "repeated_traced": (lambda: graphwright.trace(Repeated().eval(), (X,)), (X,)),
    "odd_names": (odd_names, (X,)),
    "sharing_memory": (sharing_memory, (X,)),
    "every_dtype": (every_dtype, (X,)),
    "every_layout": (every_layout, (X,)),
    "not_persistent": (not_persistent, (X,)),
    "user_module": (lambda: whole(Scale(1.5, (Mode.SUM, Mode.MEAN))), (X,)),
    "containers_that_run": (containers_that_run, (X,)),
    "lstm": (lambda: whole(nn.LSTM(3, 4, num_layers=2, batch_first=True)), (X[None],)),
    "attention": (lambda: whole(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)), (torch.ones(2, 3, 4),)),
    "encoder": (
        lambda: whole(nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 3).eval()),
        (torch.ones(2, 3, 4),),
    ),
    "loss": (
        lambda: GraphModule(
            {"loss": nn.CrossEntropyLoss(weight=torch.arange(3.0) + 1)},
            graph_of(lambda graph, x: graph.call_module("loss", (x, x))),
        ),
        (X.softmax(1),),
    ),
    "bfloat16": (lambda: whole(nn.Conv1d(2, 2, 3, padding="same").bfloat16()), (X.bfloat16(),)),
    "mixed_dtypes": (lambda: whole(nn.BatchNorm1d(3).double()), (X.double(),)),
    "functions": (lambda: calling(scaled, factor=-3.0), (X,)),
    "static_method": (lambda: calling(Helpers.shifted), (X,)),
    "class_method": (lambda: calling(Helpers.halved), (X,)),
    "autograd_function": (lambda: calling(programs.Cube.apply), (X,)),
    "enum": (lambda: calling(reduced, Mode.MEAN), (X,)),
    "operator_overload": (lambda: calling(torch.ops.aten.add.Tensor, 2), (X,)),
    "numbers": (lambda: calling(torch.clamp, -math.inf, math.inf), (X,)),
    "math": (lambda: calling(programs.powered, math.pi), (X,)),
    "dtypes_and_devices": (lambda: calling(torch.Tensor.to, torch.device("cpu"), torch.float64), (X,)),
    "named_tuple": (lambda: GraphModule(nn.Module(), graph_of(lambda graph, x: Pair(x, [x]))), (X,)),
    "annotated": (annotated, (X,)),
    "local_annotation": (local_annotation, (X,)),
    "named_like_ours": (named_like_ours, (X,)),
    "nested": (nested, (X,)),
    "traced": (lambda: graphwright.trace(Encoder().eval(), (X,)), (X,)),
    "traced_training": (lambda: graphwright.trace(Encoder(), (X,)), (X,)),
    "traced_mask": (lambda: graphwright.trace(Encoder().eval(), (X, X)), (X, X)),
    "resnet": (lambda: resnet(symbolic_trace), (PICTURE,)),
    "resnet_traced": (lambda: resnet(lambda model: graphwright.trace(model, (PICTURE,))), (PICTURE,)),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write every package, then load them all in one process, from another directory."""
    folder = tmp_path_factory.mktemp("packages")
    failed = {}
    for name, (build, args) in CASES.items():
        torch.manual_seed(1)
        try:
            gm = build()
            gm.to_folder(folder / f"package_{name}", "Model")
            facts = facts_of(gm)
            torch.manual_seed(0)
            wanted = {"facts": facts, "args": args, "result": copy.deepcopy(gm)(*args)}
            torch.save(wanted, folder / f"package_{name}.pt")
        except Exception:
            failed[f"package_{name}"] = traceback.format_exc()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.load_packages", str(folder)],
        cwd=tmp_path_factory.mktemp("elsewhere"),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return failed | json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_a_package_is_the_module_in_another_process(name: str, report: dict[str, str]) -> None:
    wrong = report[f"package_{name}"]
    assert not wrong, wrong


class OverRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        total = x[0] * 0
        for row in self.rows(x):
            total = total + row if row.sum() > 0 else total - row
        return total


def test_a_module_is_written_whose_result_a_loop_goes_over(tmp_path: Path) -> None:
    gm, x = graphwright.trace(OverRows(), (torch.randn(3, 2),)), torch.randn(5, 2)
    gm.to_folder(tmp_path / "package", "OverRows")
    script = (
        "import sys, torch; from package import OverRows; print(OverRows()(torch.tensor(eval(sys.argv[1]))).tolist())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", script, str(x.tolist())], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert torch.allclose(torch.tensor(eval(done.stdout)), OverRows()(x))
