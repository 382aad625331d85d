"""Transformer: what it keeps of the graph that it rebuilds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphwright import Transformer, symbolic_trace
from graphwright.codegen import CodeGen
from graphwright.ops import enter_context


class Annotated(nn.Module):
    """A parameter, a module, types and a default."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor, y: int = 3) -> Tensor:
        return self.linear(x) * self.scale + y


def test_meta_origins_and_types_stay() -> None:
    gm = symbolic_trace(Annotated())
    for node in gm.graph.nodes:
        node.meta["mark"] = node.name
    made = Transformer(gm).transform()
    assert [node.meta["mark"] for node in made.graph.nodes] == [node.name for node in gm.graph.nodes]
    assert [str(node.origin) for node in made.graph.nodes] == [str(node.origin) for node in gm.graph.nodes]
    assert [node.type for node in made.graph.nodes] == [node.type for node in gm.graph.nodes]
    assert made.code == gm.code


def test_every_node_made_for_one_keeps_its_meta() -> None:
    class Split(Transformer):
        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            return torch.relu(torch.neg(super().call_module(target, args, kwargs)))

    gm = symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    gm.graph.find_nodes(op="call_module")[0].meta["mark"] = "here"
    made = Split(gm).transform().graph
    assert [node.name for node in made.nodes if node.meta.get("mark") == "here"] == ["_0", "neg", "relu"]


def test_the_way_the_graph_is_written_stays() -> None:
    class OneList(CodeGen):
        def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
            return f"def forward(self, items):\n    {', '.join(free_vars)} = items"

        def process_inputs(self, *inputs: Any) -> Any:
            return inputs[0]

    gm = symbolic_trace(lambda x, y: x - y)
    gm.graph.set_codegen(OneList())
    assert gm([5, 3]) == 2
    assert Transformer(gm).transform()([5, 3]) == 2


def test_a_context_is_recorded_and_not_entered() -> None:
    def no_grad_sum(x: Tensor) -> Tensor:
        return x + 1

    gm = symbolic_trace(no_grad_sum)
    with gm.graph.inserting_after(next(iter(gm.graph.nodes))):
        gm.graph.call_function(enter_context, (torch.no_grad,))
    made = Transformer(gm).transform()
    assert torch.is_grad_enabled()
    assert made.graph.find_nodes(op="call_function", target=enter_context)
