"""What TorchScript has compiled, inside of programs that are traced; and what no tracing can enter."""

from typing import Any

import pytest
import torch
import torch.fx
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import graphwright

BOTH = (graphwright, torch.fx)
OUTSIDE = torch.jit.script(nn.Linear(3, 3))


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if x.sum() > 0 else x


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.jit.script(Gate())
        self.layers = nn.Sequential(nn.ReLU(), torch.jit.script(nn.Linear(3, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.gate(x)) + self.gate(x)


def test_a_scripted_part_of_a_program_is_called() -> None:
    model = Holder()
    ours, theirs = (fx.symbolic_trace(model) for fx in BOTH)
    assert str(ours.graph) == str(theirs.graph) and ours.code.strip() == theirs.code.strip()
    assert list(ours.state_dict()) == list(model.state_dict())
    assert str(graphwright.symbolic_trace(ours).graph) == str(ours.graph)
    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        torch.testing.assert_close(ours(x), model(x))
        torch.testing.assert_close(graphwright.Transformer(ours).transform()(x), model(x))


@torch.jit.script
def doubled(x: Tensor) -> Tensor:
    return x * 2


def test_a_scripted_function_takes_no_proxies() -> None:
    for fx in BOTH:
        with pytest.raises(RuntimeError, match="Expected a value of type 'Tensor' for argument 'x'"):
            fx.symbolic_trace(lambda x: doubled(x))


def test_a_scripted_module_outside_of_the_program_is_refused() -> None:
    for fx in BOTH:
        with pytest.raises(NameError, match="module is not installed as a submodule"):
            fx.symbolic_trace(lambda x: OUTSIDE(x))


def taken(x: Any, structure: Any) -> Any:
    return x


class Structured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = pytree.tree_structure({"a": 1})

    def forward(self, x: Any) -> Any:
        return taken(taken(x, pytree.tree_structure([1, 2])), self.own)


def test_structures_are_constants() -> None:
    ours, theirs = (fx.Tracer(autowrap_functions=(taken,)).trace(Structured()) for fx in BOTH)
    assert str(ours) == str(theirs)
    assert [node.target for node in ours.nodes if node.op == "get_attr"] == ["_tree_spec_constant0", "own"]


@pytest.mark.parametrize("root", [torch.relu, torch.add, torch.Tensor.relu, torch.ops.aten.add.Tensor, 3, "x", None])
def test_what_has_no_signature_is_refused(root: Any) -> None:
    for fx in BOTH:
        with pytest.raises(AssertionError, match="Expected FunctionType, got "):
            fx.symbolic_trace(root)
