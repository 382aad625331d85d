"""What is known of functions of einops: what they do, what shares memory with what, which layers call which."""

from __future__ import annotations

import pytest
import torch

from graphwright import Graph, GraphModule, symbolic_trace, trace
from graphwright.ops import (
    LIBRARY_FUNCTIONS,
    functional_form,
    is_impure,
    is_library_class,
    is_library_function,
    is_library_layer,
    is_open_function,
    library_functions,
    may_share_memory,
    operator_of,
)
from graphwright.passes import MergeSubexpressions, RemoveDeadCode, UseFunctions

einops = pytest.importorskip("einops")
from einops.layers.torch import EinMix, Rearrange, Reduce  # noqa: E402


def test_every_function_of_the_table_is_there() -> None:
    assert {name for name in library_functions().values() if name.startswith("einops.")} == {
        f"einops.{name}" for name in LIBRARY_FUNCTIONS["einops"]
    }
    assert is_library_function(einops.rearrange) and not is_library_function(einops.asnumpy)
    assert LIBRARY_FUNCTIONS["einops"].keys() == {*einops.__all__} - {"EinopsError", "asnumpy"}  # else: what is it?


def test_functions_of_einx_are_nodes_that_files_may_not_name() -> None:
    einx = pytest.importorskip("einx")

    def program(mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return einx.where("b n, b n d,", mask, x, 0.0) + einx.add("b n d, d", x, x[0, 0])  # type: ignore[no-any-return]

    mask, x = torch.ones(2, 3) > 0, torch.randn(2, 3, 4)
    for gm in (trace(program, (mask, x)), symbolic_trace(program)):
        assert {einx.where, einx.add} < {node.target for node in gm.graph.nodes}
        assert torch.equal(gm(mask[:, :1], x[:, :1]), program(mask[:, :1], x[:, :1]))
    assert is_library_function(einx.where) and not is_open_function(einx.where)


def test_their_calls_have_no_effect_and_may_give_views() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    moved = graph.call_function(einops.rearrange, (x, "a b -> b a"))
    summed = graph.call_function(einops.reduce, (x, "a b -> b", "sum"))
    own = graph.call_function(einops.reduce, (x, "a b -> b", torch.var))
    assert [is_impure(node) for node in (moved, summed, own)] == [False, False, True]  # the last calls what it is given
    known = operator_of(moved)
    assert known is not None and known.shape_only and may_share_memory(moved, x, lambda node: None)


class Twice(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Rearrange("a b -> b a"), Reduce("(n a) b -> a b", "sum", n=2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layers[0](x)
        y = einops.rearrange(x, "a b -> b a") + einops.rearrange(x, "a b -> b a")
        return self.layers[1](y)  # type: ignore[no-any-return]


def test_passes_know_them() -> None:
    gm = symbolic_trace(Twice())
    x = torch.randn(3, 4)
    assert isinstance(gm, GraphModule)
    assert [each.run(gm) for each in (RemoveDeadCode(), MergeSubexpressions(), UseFunctions())] == [1, 1, 1]
    calls = [node.target for node in gm.graph.nodes if node.op == "call_function"]
    assert calls[0] is einops.rearrange and calls[-1] is einops.reduce and torch.equal(gm(x), Twice()(x))


def test_layers_are_the_module_form_of_functions() -> None:
    form = functional_form(Reduce("(n a) b -> a b", "sum", n=2))
    assert form is not None and form.function is einops.reduce
    assert form.values == {"pattern": "(n a) b -> a b", "reduction": "sum", "n": 2}
    layer = Rearrange("a b -> b a")
    layer.register_forward_hook(lambda module, inputs, output: output * 2)
    assert functional_form(layer) is None
    assert [is_library_layer(kind) for kind in (Rearrange, EinMix, type("Rearrange", (Rearrange,), {}))] == [
        True, False, False,
    ]  # fmt: skip
    assert is_library_class(EinMix) and not is_library_class(torch.nn.Linear)
