"""PyTorch's own compilers take a GraphModule as the ordinary module that it is."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import GraphModule, Tracer, symbolic_trace


class Plain(nn.Module):
    """Every kind of attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("shift", torch.ones(2))
        self.plain = torch.ones(2)
        self.block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.block(self.linear(x) * self.weight + self.shift + self.plain)


def test_layers_in_containers_are_compiled() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    gm = graphwright.trace(model, torch.ones(1, 2))
    assert 'modules["1"][0]' in gm.code
    x = torch.randn(3, 2)
    assert torch.equal(torch.jit.script(gm)(x), model(x))
    assert torch.equal(torch.compile(gm, backend="eager", fullgraph=True)(x), model(x))
    assert torch.equal(torch.export.export(gm, (x,)).module()(x), model(x))
    assert torch.equal(torch.fx.symbolic_trace(gm)(x), model(x))
    assert torch.equal(graphwright.symbolic_trace(gm)(x), model(x))
    assert torch.equal(graphwright.trace(gm, x)(x), model(x))


class Annotated(nn.Module):
    """Parameters of other types than Tensor, and defaults."""

    def forward(
        self,
        x: dict[str, Tensor],
        y: list[Tensor],
        z: tuple[int, Tensor],
        mask: Tensor | None = None,
        factor: float = 0.5,
        size: int = 2,
    ) -> tuple[Tensor, Tensor]:
        return x["a"] * factor + size, y[0] + z[1]


class Leaves(Tracer):
    """Calls captured modules rather than tracing through them."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, GraphModule) or super().is_leaf_module(m, module_qualified_name)


def plain() -> GraphModule:
    return symbolic_trace(Plain())


def nested() -> GraphModule:
    root = nn.Sequential(plain(), plain())
    return GraphModule(root, Leaves().trace(root))


def edited() -> GraphModule:
    gm = plain()
    gm(torch.ones(1, 2))
    gm.graph.find_nodes(op="call_module", target="block.1")[0].target = "block.0"
    return gm


def captured() -> GraphModule:
    return graphwright.trace(Plain(), (torch.ones(3, 2),))


MODULES = [
    pytest.param(plain, id="traced"),
    pytest.param(nested, id="nested"),
    pytest.param(edited, id="edited"),
    pytest.param(lambda: copy.deepcopy(plain()), id="copied"),
    pytest.param(captured, id="captured"),
]


@pytest.mark.filterwarnings("ignore")  # torch's own, about its older compilers
@pytest.mark.parametrize("make", MODULES)
def test_a_scripted_module_computes_the_same(make: Callable[[], GraphModule]) -> None:
    gm, x = make(), torch.randn(3, 2)
    assert torch.equal(torch.jit.script(gm)(x), gm(x))


@pytest.mark.filterwarnings("ignore")
def test_annotations_reach_the_script() -> None:
    gm = symbolic_trace(Annotated())
    args: Any = {"a": torch.ones(1)}, [torch.ones(1)], (1, torch.ones(1))
    assert torch.jit.script(gm)(*args) == gm(*args)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", MODULES)
def test_a_module_traced_with_an_example_computes_the_same(make: Callable[[], GraphModule]) -> None:
    gm, x = make(), torch.randn(3, 2)
    assert torch.equal(torch.jit.trace(gm, (x,))(x), gm(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", MODULES)
def test_a_compiled_module_computes_the_same(make: Callable[[], GraphModule]) -> None:
    gm, x = make(), torch.randn(3, 2)
    assert torch.equal(torch.compile(gm, backend="eager", fullgraph=True)(x), gm(x))


@pytest.mark.filterwarnings("ignore")
def test_an_exported_module_computes_the_same() -> None:
    gm, x = plain(), torch.randn(3, 2)
    assert torch.equal(torch.export.export(gm, (x,)).module()(x), gm(x))
