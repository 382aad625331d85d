"""Two modules compared layer by layer: the worst first, counterparts found after rewriting."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import GraphError
from graphwright.analysis import compare
from graphwright.passes import FuseConvBatchNorm
from graphwright.quantization import static_int8


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm1(self.conv1(x)))
        hidden = self.norm2(self.conv2(x)) * 2
        for _ in range(2):
            hidden = hidden.tanh()
        return self.head(self.drop(hidden.mean((2, 3))))


def models() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = Model().eval()
    for norm in (model.norm1, model.norm2):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    return model, torch.randn(2, 3, 10, 10)


def test_a_fused_twin() -> None:
    model, x = models()
    gm, fused = graphwright.trace(model, (x,)), graphwright.trace(model, (x,))
    assert FuseConvBatchNorm().run(fused) == 3
    report = compare(gm, fused, x)
    pairs = {layer.name: layer.other for layer in report.in_order}
    assert len(pairs) == len([node for node in fused.graph.nodes if node.op.startswith("call")])
    fused_kinds = {layer.kind for layer in report.in_order if " / " in layer.kind}
    assert fused_kinds == {"relu / ConvReLU", "BatchNorm2d / Conv2d"}, "each stands for what it has swallowed"
    assert all(layer.sqnr > 100 and layer.cosine > 0.999999 for layer in report.in_order)
    kinds = {
        node.name: gm.get_submodule(node.target)._get_name() for node in gm.graph.nodes if node.op == "call_module"
    }
    assert [kinds[name] for name in report.unmatched] == ["Conv2d", "BatchNorm2d", "Conv2d"]
    with pytest.raises(KeyError, match="nowhere"):
        report["nowhere"]


@pytest.mark.parametrize("captured", [True, False])
def test_the_layer_that_went_wrong_comes_first(captured: bool) -> None:
    model, x = models()
    broken = copy.deepcopy(model)
    broken.conv2.weight.data[0] += 1
    one, other = (graphwright.trace(m, (x,)) if captured else m for m in (model, broken))
    report = compare(one, other, (x,))
    first = next(layer for layer in report.in_order if layer.sqnr < 100)
    assert first.kind == "Conv2d"
    assert report.worst is report.layers[0]
    assert report.worst.sqnr == min(layer.sqnr for layer in report.in_order)
    assert str(report).splitlines()[1].split()[0] == report.worst.name
    before = [layer for layer in report.in_order if layer.sqnr == math.inf]
    assert all(layer.max_error == 0 and layer.cosine == pytest.approx(1) for layer in before)
    assert len(before) == (3 if captured else 2)
    if not captured:
        assert [layer.name for layer in report.in_order][:3] == ["conv1", "norm1", "conv2"]


def test_the_figures() -> None:
    class Scaled(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = by

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.by).neg()

    x = torch.tensor([3.0, 4.0])
    report = compare(graphwright.trace(Scaled(1.0), (x,)), graphwright.trace(Scaled(1.1), (x,)), x)
    layer = report["neg"]
    assert layer.sqnr == pytest.approx(20, abs=1e-4)
    assert layer.max_error == pytest.approx(0.4, abs=1e-6)
    assert layer.cosine == pytest.approx(1)


def test_low_precision_and_quantized_twins() -> None:
    model, x = models()
    low = graphwright.trace(copy.deepcopy(model).to(torch.bfloat16), (x.to(torch.bfloat16),))
    gm = graphwright.trace(model, (x,))
    for node in low.graph.nodes:
        if node.op == "placeholder":
            with low.graph.inserting_after(node):
                cast = low.graph.call_method("to", (node, torch.bfloat16))
            node.replace_all_uses_with(cast, lambda user, cast=cast: user is not cast)
    report = compare(gm, low, x)
    assert 10 < report.worst.sqnr < 60
    assert len(report.in_order) == len([node for node in gm.graph.nodes if node.op.startswith("call")])


def test_training_mode_draws_the_same_and_leaves_buffers() -> None:
    model, x = models()
    gm = graphwright.trace(model.train(), (x,))
    before, state = {k: v.clone() for k, v in gm.state_dict().items()}, torch.get_rng_state()
    report = compare(gm, graphwright.trace(copy.deepcopy(model), (x,)), x)
    assert report.worst.sqnr == math.inf
    assert all(torch.equal(value, before[key]) for key, value in gm.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_what_cannot_be_compared() -> None:
    def one(x: Tensor) -> Any:
        return x.exp().sum(0)

    def other(x: Tensor) -> Any:
        return x.exp().sum(1)

    x = torch.ones(2, 3)
    report = compare(graphwright.trace(one, (x,)), graphwright.trace(other, (x,)), x)
    assert report.worst.note == "shape (3,) against (2,)"
    with pytest.raises(GraphError, match="no layers that belong together"):
        compare(graphwright.symbolic_trace(lambda x: x.exp()), graphwright.symbolic_trace(lambda x: x + 1), x)
    report = compare(
        graphwright.symbolic_trace(lambda x: x.log()), graphwright.symbolic_trace(lambda x: x.log() + 0), -x
    )
    assert report.worst.sqnr in (math.inf, -math.inf)


def round_trip(x: Tensor) -> Tensor:
    """To whole numbers and back."""
    return (x * 64).round().to(torch.int32).float() / 64


def with_functions(gm: Any) -> None:
    """Have functions of coarser weights in the place of linear layers."""
    for node in gm.graph.nodes:
        if node.op == "call_module" and isinstance(layer := gm.get_submodule(node.target), nn.Linear):
            weight = gm.add_constant(round_trip(layer.weight.detach()), f"{node.name}_weight")
            with gm.graph.inserting_before(node):
                read = gm.graph.get_attr(weight)
            node.replace_with("call_function", nn.functional.linear, (node.args[0], read))


def test_what_stands_in_the_place_of_a_layer() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval(), torch.randn(2, 8)
    gm = graphwright.trace(model, (x,))
    changed = copy.deepcopy(gm)
    with_functions(changed)
    report = compare(gm, changed, x)
    assert [layer.kind for layer in report.in_order] == ["Linear / linear", "ReLU", "Linear / linear"]
    for i, node in enumerate(node for node in changed.graph.nodes if node.op.startswith("call")):
        node.name = f"other_{i}"  # nothing but `from_node` tells what belongs together
        node.origin = None
    report = compare(gm, changed, x)
    assert [layer.kind for layer in report.in_order] == ["Linear / linear", "Linear / linear"]
    assert not math.isinf(report.worst.sqnr)


def test_values_are_not_compared_with_themselves_in_whole_numbers() -> None:
    gm = graphwright.symbolic_trace(lambda x: (y := x.exp()).sin() + y)
    changed = copy.deepcopy(gm)
    _, exp, sin, *_ = changed.graph.nodes
    with changed.graph.inserting_after(exp):
        whole = changed.graph.call_method("to", (exp, torch.int32))
    with changed.graph.inserting_after(whole):
        back = changed.graph.call_method("float", (whole,))
    exp.replace_all_uses_with(back, lambda user: user not in (whole, back))
    with changed.graph.inserting_before(sin):
        sin.args = (changed.graph.call_method("float", (whole,)),)
    report = compare(gm, changed, torch.ones(3))
    assert {layer.name: layer.other for layer in report.in_order} == {"exp": "exp", "sin": "sin", "add": "add"}
    assert report["exp"].sqnr == math.inf


def test_whole_numbers_from_one_place_are_not_those_before_them() -> None:
    gm = graphwright.trace(lambda x: x.exp().sin(), (torch.ones(3),))
    changed = copy.deepcopy(gm)
    for each, name in ((gm, "clone"), (changed, "int")):
        _, exp, sin, _ = each.graph.nodes
        with each.graph.inserting_before(sin):
            other = each.graph.call_method(name, (exp,))
            back = each.graph.call_method("float", (other,)) if name == "int" else other
        other.origin, sin.args = exp.origin, (back,)
    report = compare(gm, changed, torch.ones(3))
    assert {layer.name: layer.other for layer in report.in_order} == {"clone": "float_1", "sin": "sin"}


@pytest.mark.parametrize("engine", [None, "torch"])
def test_a_model_beside_what_was_made_of_it(engine: Any) -> None:
    model, x = models()
    model = nn.Sequential(nn.Sequential(model), nn.ReLU()).eval()  # whose container is no call of the other
    made = graphwright.quantize(model, static_int8(), [x], engine=engine)
    report = compare(model, made, x)
    assert {("norm1", "conv1"), ("norm2", "conv2")} <= {(layer.name, layer.other) for layer in report.in_order}
    assert 20 < report.worst.sqnr < math.inf
    assert compare(model, graphwright.trace(model, x), x).worst.sqnr == math.inf
