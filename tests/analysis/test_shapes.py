"""Shapes of captured programs: as real runs have them, and after edits as they are from scratch, for less."""

from __future__ import annotations

import functools
import operator
import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn

import graphwright
from graphwright import Graph, GraphError, GraphModule, Node
from graphwright.analysis import Shapes, TensorMetadata
from graphwright.ops import cond
from graphwright.passes import ShapeProp


def named(gm: GraphModule, name: str) -> Node:
    return next(node for node in gm.graph.all_nodes() if node.name == name)


# ---- as a real run has them


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        *[pytest.param(n, marks=pytest.mark.slow) for n in ("vit_b_16", "swin_t", "densenet121", "googlenet")],
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_shapes_are_those_of_a_run(name: str, training: bool) -> None:
    declare_torchvision()
    import torchvision

    model = getattr(torchvision.models, name)(weights=None, **({"init_weights": False} if name == "googlenet" else {}))
    x = torch.randn(2, 3, 224, 224)
    gm = graphwright.trace(model.train(training), (x,))
    before = {key: value.clone() for key, value in gm.state_dict().items()}
    shapes = Shapes(gm, x)
    found = {node: shapes[node] for node in gm.graph.nodes}
    assert all(torch.equal(value, before[key]) for key, value in gm.state_dict().items())
    ShapeProp(gm).propagate(x)
    for node, shape in found.items():
        assert shape == node.meta.get("tensor_meta"), node
        assert shape is None or shapes.device(node) is not None
    assert any(isinstance(shape, TensorMetadata) for shape in found.values())


class Mixed(nn.Module):
    """Blocks that decide what operators give, a call in place, a list, a tuple of tensors, numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.register_buffer("scale", torch.ones(6, dtype=torch.float64))

    def forward(self, x: Tensor, keep: bool = True, *, times: int = 2) -> Any:
        with torch.no_grad():
            frozen = self.linear(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = self.linear(x)
        high = self.linear(x) * self.scale
        first, rest = high.mean(1), torch.split(high, [2, 4], dim=-1)[1]
        first.unsqueeze_(0)
        return {"low": low, "high": [first, rest, x.shape[0] * times], "frozen": frozen.expand(3, *frozen.shape)}


def test_blocks_numbers_containers_and_changed_shapes() -> None:
    model = Mixed()
    x = torch.randn(5, 4)
    gm = graphwright.trace(model, (x,))
    shapes = Shapes(gm, x, {"times": 3})
    wanted = ShapeProp(gm)
    wanted.run(x, times=3)
    for node in gm.graph.nodes:
        assert shapes[node] == node.meta.get("tensor_meta"), node
    low, frozen = shapes[named(gm, "low")], shapes[named(gm, "frozen")]
    assert (low.dtype, low.requires_grad, frozen.requires_grad) == (torch.bfloat16, True, False)
    assert shapes.value(gm.graph.output_node())["high"][2] == 15
    low_node = named(gm, "low")  # run again, it is still inside of its block
    shapes.invalidate(low_node)
    assert shapes[low_node] == low


def halving(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = x[:, ::2] if x.sum() > 0 else x[:, 1::2] + 0
    while x.sum() < 3:
        x = x * 2
    return torch.utils.checkpoint.checkpoint(lambda y: y.flatten() + 1, x, use_reentrant=False)


def test_bodies_of_branches_loops_and_transforms() -> None:
    gm = graphwright.trace(halving, (torch.ones(2, 64), 3))
    shapes = Shapes(gm, (torch.ones(2, 64), 4))
    output = gm.graph.output_node()
    assert shapes[output].shape == (8,)
    flat = next(node for node in gm.graph.all_nodes() if node.target == "flatten")
    assert shapes[flat].shape == (8,)
    assert all(shapes.why(node) == "" for node in gm.graph.all_nodes())
    flat.target, flat.args = "sum", (flat.args[0], 0)
    assert shapes[output].shape == (4,)
    assert [shapes[node].shape for node in flat.graph.nodes][1:] == [(4,), (4,), (4,)]


def test_rows_under_vmap() -> None:
    gm = graphwright.trace(lambda x: torch.vmap(lambda row: row.cumsum(0).sum())(x), (torch.ones(5, 3),))
    shapes = Shapes(gm, torch.ones(5, 3))
    inner = next(node for node in gm.graph.all_nodes() if node.target == "cumsum")
    assert shapes[inner].shape == (3,)
    assert shapes[gm.graph.output_node()].shape == (5,)
    inner.graph.output_node().args = (inner,)
    assert shapes[gm.graph.output_node()].shape == (5, 3)


# ---- after edits


class Tower(nn.Module):
    def __init__(self, depth: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return x.sum(0)


def test_an_edit_costs_what_depends_on_it() -> None:
    gm = graphwright.trace(Tower(), (torch.ones(2, 8),))
    shapes = Shapes(gm, torch.ones(2, 8))
    output = gm.graph.output_node()
    assert shapes[output].shape == (8,)
    whole = shapes.count
    assert whole == len(gm.graph.nodes)
    relu = named(gm, "relu_5")
    relu.target = torch.tanh  # gives the same
    assert shapes[output].shape == (8,)
    assert shapes.count == whole + 1
    shapes[output]
    assert shapes.count == whole + 1
    with gm.graph.inserting_after(relu):
        turned = gm.graph.call_method("t", (relu,))
    relu.replace_all_uses_with(turned, lambda user: user is not turned)
    with pytest.raises(GraphError, match="fails with these inputs"):
        shapes[output]
    turned.replace_all_uses_with(relu)
    gm.graph.erase_node(turned)
    assert shapes[output].shape == (8,)
    total, count = output.args[0], shapes.count
    total.args = (total.args[0], 1)
    assert shapes[output].shape == (2,)
    assert shapes.count == count + 2


def replaced(gm: GraphModule, node: Node, pick: random.Random) -> None:
    node.target = pick.choice([torch.tanh, torch.relu, torch.exp])


def inserted(gm: GraphModule, node: Node, pick: random.Random) -> None:
    method, args = pick.choice([("double", ()), ("unsqueeze", (0,)), ("t", ()), ("sum", (0,)), ("clone", ())])
    with gm.graph.inserting_after(node):
        made = gm.graph.call_method(method, (node, *args))
    node.replace_all_uses_with(made, lambda user: user is not made)


def bypassed(gm: GraphModule, node: Node, pick: random.Random) -> None:
    before = node.all_input_nodes[0]
    node.replace_all_uses_with(before)
    gm.graph.erase_node(node)


def wired(gm: GraphModule, node: Node, pick: random.Random) -> None:
    earlier = [other for other in gm.graph.nodes if other < node]
    node.replace_input_with(node.all_input_nodes[0], pick.choice(earlier))


def picture(shapes: Shapes, gm: GraphModule) -> list[Any]:
    seen: list[Any] = []
    for node in gm.graph.all_nodes():
        try:
            seen.append((node.name, shapes[node], shapes.device(node)))
        except GraphError as error:
            seen.append((node.name, error.message.partition(":")[0]))
    return seen


class Remembering(nn.Module):
    """Changes what was there before: a dict, the shape of a tensor, an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.cache, self.total = nn.Parameter(torch.ones(4)), dict[str, Tensor](), torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        if "bias" not in self.cache:
            self.cache["bias"] = self.bias * 2
        y = x + self.cache["bias"]
        z = y.exp()
        z.unsqueeze_(0)
        self.total = self.total + z.sum((0, 1))
        return torch.relu(y.sin()).cos() + self.total.tanh() * z.squeeze(0)


@pytest.mark.parametrize("seed", range(15))
def test_after_random_edits_as_from_scratch(seed: int) -> None:
    pick = random.Random(seed)
    x = torch.ones(2, 8) if seed % 3 == 1 else torch.ones(5, 4)
    model = (Mixed, functools.partial(Tower, 5), Remembering)[seed % 3]()
    gm = graphwright.trace(model, (x,))
    shapes = Shapes(gm, x)
    edits: list[Callable[..., None]] = [replaced, inserted, bypassed, wired]
    for _ in range(25):
        nodes = [
            node for node in gm.graph.nodes if node.op in ("call_function", "call_method") and node.all_input_nodes
        ]
        nodes = [node for node in nodes if "context" not in getattr(node.target, "__name__", "")]
        edit = pick.choice(edits)
        if nodes:
            edit(gm, pick.choice(nodes), pick)
        if pick.random() < 0.5:
            assert picture(shapes, gm) == picture(Shapes(gm, x), gm)
    assert picture(shapes, gm) == picture(Shapes(gm, x), gm)


def test_a_block_that_is_edited_concerns_what_is_inside() -> None:
    gm = graphwright.trace(Mixed(), (torch.ones(5, 4),))
    shapes = Shapes(gm, torch.ones(5, 4))
    low = named(gm, "low")
    assert shapes[low].dtype is torch.bfloat16
    block = next(node for node in gm.graph.nodes if node.kwargs.get("dtype") is torch.bfloat16)
    block.kwargs = {"dtype": torch.float16}
    assert shapes[low].dtype is torch.float16


def test_another_module_at_the_same_place_has_to_be_said() -> None:
    gm = graphwright.trace(Tower(1), (torch.ones(2, 8),))
    shapes = Shapes(gm, torch.ones(2, 8))
    layer = next(node for node in gm.graph.nodes if node.op == "call_module")
    assert shapes[layer].shape == (2, 8)
    gm.layers[0] = nn.Linear(8, 1)
    shapes.invalidate(layer)
    assert shapes[layer].shape == (2, 1)


# ---- what cannot be told


def test_what_data_decides_is_not_known() -> None:
    gm = graphwright.trace(lambda x: (x.nonzero().sum(), x.sum()), (torch.ones(3),))
    shapes = Shapes(gm, torch.ones(3))
    nonzero = named(gm, "nonzero")
    assert shapes[nonzero] is None
    assert shapes.why(nonzero).startswith("nonzero: DynamicOutputShape")
    assert shapes.value(nonzero) is None
    output = shapes[gm.graph.output_node()]
    assert output[0] is None
    assert output[1].shape == ()


def test_wrong_questions(caplog: pytest.LogCaptureFixture) -> None:
    gm = graphwright.symbolic_trace(lambda x, y: (x @ y).relu())
    shapes = Shapes(gm, (torch.ones(2, 3), torch.ones(4, 3)))
    matmul, relu = named(gm, "matmul"), named(gm, "relu")
    with pytest.raises(GraphError, match=r"matmul fails with these inputs: .*same reduction dim"):
        shapes[relu]
    assert not caplog.records
    assert shapes[matmul.args[1]].shape == (4, 3)
    with gm.graph.inserting_before(matmul):
        turned = gm.graph.call_method("t", (matmul.args[1],))
    matmul.args = (matmul.args[0], turned)
    assert shapes[relu].shape == (2, 4)
    other = graphwright.symbolic_trace(lambda x: x)
    with pytest.raises(GraphError, match="x is a node of another graph"):
        shapes[next(iter(other.graph.nodes))]
    with pytest.raises(GraphError, match="'relu' is no node"):
        shapes["relu"]  # type: ignore[index]
    assert Shapes(gm, torch.ones(2, 3)).why(matmul).startswith("y: ")


def test_a_side_that_fails_is_not_known() -> None:
    graph, then, other = Graph(), Graph(), Graph()
    failing = then.call_method("view", (then.placeholder("x"), 7))
    then.output(failing)
    other.output(other.placeholder("x"))
    x = graph.placeholder("x")
    is_positive = graph.call_function(operator.gt, (graph.call_method("sum", (x,)), 0))
    graph.output(graph.call_function(cond, (is_positive, then, other, (x,))))
    shapes = Shapes(GraphModule(nn.Module(), graph), torch.ones(2, 3))
    assert shapes.known_value(failing) is None
    assert shapes.known_value(x).shape == shapes.value(x).shape == (2, 3)
    with pytest.raises(GraphError, match="fails with these inputs"):
        shapes.value(failing)


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias, self.cache = nn.Parameter(torch.ones(4)), {}  # type: ignore[var-annotated]

    def forward(self, x: Tensor) -> Tensor:
        if "bias" not in self.cache:
            self.cache["bias"] = self.bias * 2
        return x + self.cache["bias"]


def test_a_container_that_the_program_fills_stays_empty() -> None:
    gm = graphwright.trace(Cached(), (torch.ones(2, 4),))
    shapes = Shapes(gm, torch.ones(3, 4))
    assert shapes[gm.graph.output_node()].shape == (3, 4)
    assert gm.cache == {}
    assert gm(torch.ones(1, 4)).tolist() == [[3.0] * 4]


def test_an_edit_aside_of_what_is_changed_costs_what_depends_on_it() -> None:
    gm = graphwright.trace(Remembering(), (torch.ones(2, 4),))
    shapes = Shapes(gm, torch.ones(2, 4))
    output = gm.graph.output_node()
    assert shapes[output].shape == (2, 4)
    whole = shapes.count
    named(gm, "relu").target = torch.tanh
    assert shapes[output].shape == (2, 4)
    assert shapes.count == whole + 1


def test_a_body_that_no_round_runs_has_no_values() -> None:
    def longest(x: Tensor, ends: Tensor) -> list[Tensor]:
        parts = []
        for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            part = x[start:end]
            parts.append(part.max(0).values if end > start else x.new_zeros(2))
        return parts

    inputs = torch.ones(4, 2), torch.tensor([0, 2, 4])
    gm = graphwright.trace(longest, inputs)
    shapes = Shapes(gm, tuple(inputs))
    assert [shapes.known_value(node) for node in gm.graph.all_nodes() if node.target == "new_zeros"] == [None]


def test_what_a_program_writes_outside_of_it_stays() -> None:
    total = torch.zeros(())

    def running(x: Tensor) -> Tensor:
        nonlocal total
        total = total + x.sum()
        return x * total

    gm = graphwright.trace(running, (torch.ones(2),))
    before = total
    assert Shapes(gm, torch.ones(3))[gm.graph.output_node()].shape == (3,)
    assert total is before


class Outside:
    def __init__(self) -> None:
        self.calls, self.inner, self.sizes = 0, types.SimpleNamespace(calls=0), {"rows": 0}


def test_what_a_program_does_to_objects_outside_of_it_is_not_done() -> None:
    outside, total = Outside(), torch.zeros(2)

    def counting(x: Tensor) -> Tensor:
        outside.calls += 1
        outside.inner.calls += outside.calls
        outside.sizes["rows"] = x.shape[0]
        total.add_(1)
        return torch.ones(outside.inner.calls, x.shape[0])

    gm = graphwright.trace(counting, (torch.ones(2),))
    for args in ((torch.ones(3),), (torch.ones(4),)):
        shapes = Shapes(gm, args)
        assert shapes[gm.graph.output_node()].shape == (1, len(args[0]))
    assert (outside.calls, outside.inner.calls, outside.sizes, total.tolist()) == (0, 0, {"rows": 0}, [0, 0])
    assert [gm(torch.ones(3)).shape[0] for _ in range(3)] == [1, 3, 6]
