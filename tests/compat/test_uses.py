"""What people build on torch.fx, with the import line as the only difference: each runs on both libraries."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn

import graphwright

BOTH = (torch.fx, graphwright)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3))) + 1


X = torch.rand(2, 3, 8, 8)


def fuse_convolutions(fx: ModuleType, model: nn.Module) -> Any:
    """A convolution followed by a batch norm that alone reads it becomes one convolution."""
    gm = fx.symbolic_trace(model)
    modules = dict(gm.named_modules())
    for node in gm.graph.nodes:
        if node.op != "call_module" or not isinstance(modules[node.target], nn.BatchNorm2d):
            continue
        before = node.args[0]
        if before.op != "call_module" or not isinstance(modules[before.target], nn.Conv2d) or len(before.users) > 1:
            continue
        fused = nn.utils.fuse_conv_bn_eval(modules[before.target], modules[node.target])
        setattr(gm, before.target, fused)
        node.replace_all_uses_with(before)
        gm.graph.erase_node(node)
    gm.delete_all_unused_submodules()
    gm.graph.lint()
    gm.recompile()
    return gm


def test_a_conv_bn_fuser() -> None:
    model = Small().eval()
    want, got = (fuse_convolutions(fx, model) for fx in BOTH)
    assert got.code == want.code
    assert list(dict(got.named_modules())) == list(dict(want.named_modules()))
    torch.testing.assert_close(got(X), model(X))


def profiler(fx: ModuleType, gm: Any) -> Any:
    """An Interpreter that counts the runs and the elements of each node's value."""

    class Profiler(fx.Interpreter):  # type: ignore[name-defined]
        def __init__(self, module: Any) -> None:
            super().__init__(module)
            self.runs: dict[str, int] = {}
            self.elements: dict[str, int] = {}

        def run_node(self, n: Any) -> Any:
            value = super().run_node(n)
            self.runs[n.name] = self.runs.get(n.name, 0) + 1
            self.elements[n.name] = value.numel() if isinstance(value, Tensor) else 0
            return value

        def summary(self) -> list[tuple[str, str, int, int]]:
            return [(n.op, n.name, self.runs[n.name], self.elements[n.name]) for n in self.module.graph.nodes]

    return Profiler(gm)


def test_a_profiling_interpreter() -> None:
    told = []
    for fx in BOTH:
        run = profiler(fx, fx.symbolic_trace(Small().eval()))
        run.run(X)
        run.run(X)
        told.append(run.summary())
    assert told[1] == told[0]


def annotate_shapes(fx: ModuleType, gm: Any, *args: Any) -> list[tuple[str, Any]]:
    """Run node by node with an environment of one's own, and note the shape and dtype of each tensor."""
    env: dict[Any, Any] = {}
    inputs = iter(args)

    def load(value: Any) -> Any:
        return fx.node.map_arg(value, lambda n: env[n])

    for node in gm.graph.nodes:
        if node.op == "placeholder":
            result = next(inputs)
        elif node.op == "get_attr":
            result = gm.get_parameter(node.target)
        elif node.op == "call_function":
            result = node.target(*load(node.args), **load(node.kwargs))
        elif node.op == "call_method":
            owner, *rest = load(node.args)
            result = getattr(owner, node.target)(*rest, **load(node.kwargs))
        elif node.op == "call_module":
            result = gm.get_submodule(node.target)(*load(node.args), **load(node.kwargs))
        else:
            result = load(node.args)[0]
        if isinstance(result, Tensor):
            node.shape, node.dtype = result.shape, result.dtype
        env[node] = result
    return [(node.name, (node.shape, node.dtype)) for node in gm.graph.nodes]


def test_a_shape_annotator() -> None:
    want, got = (annotate_shapes(fx, fx.symbolic_trace(Small().eval()), X) for fx in BOTH)
    assert got == want


class Observer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = float("inf"), float("-inf")

    def forward(self, x):
        self.low, self.high = min(self.low, x.min().item()), max(self.high, x.max().item())
        return x


def insert_observers(fx: ModuleType, model: nn.Module) -> Any:
    """Put an observer behind the input and behind each value that a layer, a function or a method makes."""
    gm = fx.symbolic_trace(model)
    for number, node in enumerate(list(gm.graph.nodes)):
        if node.op in ("placeholder", "call_module", "call_function", "call_method"):
            gm.add_submodule(f"observer_{number}", Observer())
            with gm.graph.inserting_after(node):
                seen = gm.graph.call_module(f"observer_{number}", (node,))
            node.replace_all_uses_with(seen)
            seen.args = (node,)
    gm.graph.lint()
    gm.recompile()
    return gm


def test_a_quantization_observer_inserter() -> None:
    model = Small().eval()
    want, got = (insert_observers(fx, model) for fx in BOTH)
    assert got.code == want.code
    torch.testing.assert_close(got(X), want(X))
    ranges = [[(m.low, m.high) for m in gm.modules() if isinstance(m, Observer)] for gm in (want, got)]
    assert ranges[1] == ranges[0]
