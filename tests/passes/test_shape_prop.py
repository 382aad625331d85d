"""`ShapeProp` and `FakeTensorProp`, beside torch.fx's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes import fake_tensor_prop as torch_fx_fake
from torch.fx.passes import shape_prop as torch_fx_shapes

import graphwright
from graphwright.passes import fake_tensor_prop, shape_prop

SIDES = [(torch.fx, torch_fx_shapes, torch_fx_fake), (graphwright, shape_prop, fake_tensor_prop)]
QUANTIZED = "ignore:torch.quantize_per_tensor"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Any, y: Any = 2) -> Any:
        z = self.linear(x) + self.scale
        a, b = torch.split(z, 2, -1)
        image = z.reshape(1, 1, 5, 4).expand(2, 3, 5, 4).to(memory_format=torch.channels_last)
        return {"a": a, "b": [b, x.shape[0], y, None], "image": image}


def comparable(value: Any) -> Any:
    """The same for what both libraries make, whose classes differ."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: comparable(item) for key, item in value._asdict().items()}
    if isinstance(value, torch.Tensor):
        return type(value).__name__, value.shape, value.stride(), value.dtype, value.requires_grad
    if isinstance(value, tuple | list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, type):
        return value.__name__.removeprefix("immutable_")  # our Interpreter returns plain containers
    return str(value)


def noted(gm: Any) -> Any:
    wanted = ("tensor_meta", "type", "val")
    return [{key: comparable(node.meta[key]) for key in wanted if key in node.meta} for node in gm.graph.nodes]


@pytest.mark.parametrize("fake", [False, True])
def test_meta_is_that_of_torch_fx(fake: bool) -> None:
    model, found = Model(), []
    for package, shapes, _ in SIDES:
        gm = package.symbolic_trace(model)
        assert shapes.ShapeProp.__init__.__code__.co_varnames[1:3] == ("gm", "fake_mode")
        result = shapes.ShapeProp(gm, FakeTensorMode() if fake else None).propagate(torch.ones(5, 3), 7)
        found.append([noted(gm), comparable(result)])
    assert found[0] == found[1]
    assert type(model.linear.weight) is nn.Parameter


@pytest.mark.filterwarnings(QUANTIZED, "ignore:Sparse", "ignore:.*deprecated")
def test_tensor_metadata() -> None:
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    tensors = [
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
        torch.ones(1, 1, 4, 5).expand(2, 3, 4, 5),
        torch.ones(2, 1, 4, 1).to(memory_format=torch.channels_last),
        torch.ones(()),
        nn.Parameter(torch.ones(0, 3)),
        torch.ones(2, 3).t(),
        torch.ones(2, 3).to_sparse(),
        torch.ones(2, 3).to_sparse_csr(),
        torch.ones(2, 3).to_mkldnn(),
        torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 3, torch.qint8),
        torch.quantize_per_channel(torch.ones(2, 3), scales, zeros, 0, torch.qint8),
    ]
    for tensor in tensors:
        for contiguity in (False, True):
            theirs = torch_fx_shapes._extract_tensor_metadata(tensor, contiguity)
            ours = shape_prop._extract_tensor_metadata(tensor, include_contiguity=contiguity)
            assert tuple(ours) == tuple(theirs)
            assert ours._fields == theirs._fields
            assert type(ours.stride) is tuple


def returning(result: Any) -> Any:
    return lambda x: result


def test_types_of_returned_containers() -> None:
    found = []
    for package, shapes, _ in SIDES:
        kinds = []
        for result in ({"a": 1}, [1], (1, [2]), 1):
            gm = package.symbolic_trace(returning(result))
            shapes.ShapeProp(gm).propagate(torch.ones(2))
            kinds.append(list(gm.graph.nodes)[-1].meta["type"].__name__)
        found.append(kinds)
    assert found[0] == found[1] == ["immutable_dict", "immutable_list", "tuple", "int"]


def test_an_error_names_the_node(capsys: pytest.CaptureFixture[str]) -> None:
    gm = graphwright.symbolic_trace(lambda x: torch.add(x, torch.ones(7)))
    with pytest.raises(RuntimeError, match=r"^ShapeProp error for: node=%add : .* with meta=\{") as caught:
        shape_prop.ShapeProp(gm).propagate(torch.ones(3))
    assert "must match the size" in str(caught.value.__cause__)
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback (most recent call last):")
    assert "RuntimeError: The size of tensor a (3) must match" in printed


def test_fake_values_are_those_of_torch_fx() -> None:
    def program(x: Any, n: Any) -> Any:
        total = x.sum()
        return total + n, x.size(0), (x.t_(), 3), [x, "a"], None, total.relu()

    found = []
    for package, _, fakes in SIDES:
        gm = package.symbolic_trace(program)
        fakes.FakeTensorProp(gm, FakeTensorMode()).propagate(torch.ones(3, 4), 3)
        found.append(noted(gm))
    assert found[0] == found[1]


def test_sizes_from_data() -> None:
    found = []
    for package, _, fakes in SIDES:
        gm = package.symbolic_trace(lambda x: (x.sum().item(), x.size(0)))
        prop = fakes.FakeTensorProp(gm, FakeTensorMode(shape_env=ShapeEnv()))
        prop.propagate(torch.ones(3))
        prop.propagate(torch.ones(3))
        found.append([type(node.meta["val"]) for node in gm.graph.nodes])
    assert found[0] == found[1]


@pytest.mark.parametrize("mode", [None, FakeTensorMode()])
def test_inputs_by_name(mode: Any) -> None:
    gm = graphwright.trace(lambda x, *, scale: x * scale, (torch.ones(3),), {"scale": torch.ones(2, 3)})
    shape_prop.ShapeProp(gm, mode).propagate(torch.ones(3), scale=torch.ones(2, 3))
    assert gm.graph.output_node().prev.meta["tensor_meta"].shape == (2, 3)


def test_modules_with_parameters() -> None:
    model, found = Model(), []
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    for package, _, fakes in SIDES:
        gm = package.symbolic_trace(model)
        fakes.FakeTensorProp(gm, mode).propagate(torch.ones(5, 3))
        first = noted(gm)
        with mode:
            fakes.FakeTensorProp(gm, mode).propagate_dont_convert_inputs(torch.ones(5, 3))
        found.append([first, noted(gm)])
        with pytest.raises(AssertionError, match="convert all Tensors to FakeTensors"):
            fakes.FakeTensorProp(gm).propagate(torch.ones(5, 3))
    assert found[0] == found[1]
