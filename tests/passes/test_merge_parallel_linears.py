"""Linear layers on one input become one exactly where nobody can tell, but for the names of the parameters."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.passes.checks import Program, body, train_alike
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from graphwright import GraphModule, symbolic_trace, trace
from graphwright.analysis import verify
from graphwright.passes import MergeParallelLinears, ShapeProp
from graphwright.passes.fusion import merge_parallel_linears

X = torch.randn(2, 3, 8)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # the same sums in another order


def linears(names: str = "q k v", **options: Any) -> dict[str, nn.Module]:
    return {name: nn.Linear(8, 8 + i, **options) for i, name in enumerate(names.split())}


def check(model: nn.Module, changes: int, options: MergeParallelLinears | None = None, x: Tensor = X) -> GraphModule:
    """Merge in both captures of a model; check count, values, gradients, the original and that nothing is left."""
    passes = options or MergeParallelLinears()
    before = {name: id(value) for name, value in model.named_parameters()}, repr(model)
    captures = symbolic_trace(model), trace(model, (x,))
    for gm in captures:
        assert passes.run(gm) == changes
        gm.graph.lint()
        report = verify(model, gm, [x, x[:1]], modes=("train", "eval"), **CLOSE)
        assert report.ok, str(report)
        assert passes.run(gm) == 0
        with_gradient = x.clone().requires_grad_()
        expected, found = model(with_gradient), gm(with_gradient)
        pairs = [(expected, found)] if isinstance(expected, Tensor) else zip(expected, found, strict=True)
        sums = [sum((one * one).sum() for one in side) for side in zip(*pairs, strict=True)]
        one, other = [torch.autograd.grad(total, with_gradient)[0] for total in sums]
        assert torch.allclose(one, other, **CLOSE)
    assert ({name: id(value) for name, value in model.named_parameters()}, repr(model)) == before
    return captures[0]


class Attention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8, **options) for _ in range(3))
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).view(batch, length, -1, 4).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1)) + x


@pytest.mark.parametrize("bias", [True, False])
def test_query_key_and_value_are_one_product(bias: bool) -> None:
    gm = check(Program(lambda m, x: m.attention(x), attention=Attention(bias=bias)), 2)
    text = "\n".join(body(gm))
    assert "self.attention.query_key_value(x)" in text
    assert "view(" not in text.replace("reshape(", "")
    assert "clone" not in text
    kept = ["attention.out.weight", "attention.out.bias", "attention.query_key_value.weight"]
    assert list(gm.state_dict()) == kept + ["attention.query_key_value.bias"] * bias


def test_what_is_given_back_is_copied_out() -> None:
    gm = check(Program(lambda m, x: (m.q(x), m.k(x)), **linears("q k")), 1)
    assert body(gm) == [
        "q_k = self.q_k(x)",
        "split = torch.functional.split(q_k, [8, 9], dim = -1)",
        "getitem = split[0]",
        "q = getitem.clone(memory_format = torch.contiguous_format)",
        "getitem_1 = split[1]",
        "k = getitem_1.clone(memory_format = torch.contiguous_format)",
        "return (q, k)",
    ]
    q, k = gm(X)
    assert q.untyped_storage().data_ptr() != k.untyped_storage().data_ptr()
    assert q.is_contiguous()


class Asking(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) if self.bias is None else F.linear(x, self.weight, self.bias)


MERGED = [
    pytest.param(lambda m, x: m.q(x).sum() + m.k(x).sum(), {"q": Asking(8, 8), "k": Asking(8, 9)}, 1,
                 id="parameters that may be None"),
    pytest.param(lambda m, x: m.q(x).relu_().sum() + m.k(x).sum() + m.v(x).sum(), linears(), 2,
                 id="written afterwards"),
    pytest.param(lambda m, x: (m.q(x).stride(0), m.k(x).sum())[1], linears("q k"), 1, id="asked for strides"),
    pytest.param(lambda m, x: m.q(x).view(-1).sum() + m.k(x).flatten().sum(), linears("q k"), 1, id="views"),
    pytest.param(lambda m, x: m.q(x)[..., :2].sum() + m.k(x).chunk(3, -1)[1].sum(), linears("q k"), 1, id="parts"),
    pytest.param(lambda m, x: m.relu(m.q(x)).sum() + m.k(x).sum(),
                 {**linears("q k"), "relu": nn.ReLU(inplace=True)}, 1, id="a module that writes"),
    pytest.param(lambda m, x: F.linear(x, m.q.weight, m.q.bias).sum() + m.k(x).sum(), linears("q k"), 1,
                 id="functions"),
    pytest.param(lambda m, x: F.linear(x, m.q.weight).sum() + F.linear(x, m.k.weight).sum(),
                 linears("q k", bias=False), 1, id="functions without bias"),
    pytest.param(lambda m, x: m.q(x).sum() + m.v(m.k(x)[..., :8]).sum() + m.v2(x).sum(), linears("q k v v2"), 2,
                 id="another input between"),
    pytest.param(lambda m, x: m.q(x).sum() + m.r(x).sum() + m.k(x).sum() + m.s(x).sum(),
                 {**linears("q k"), **linears("r s", bias=False)}, 2, id="with and without bias"),
    pytest.param(lambda m, x: m.layers[0](x).sum() + m.layers[1](x).sum(),
                 {"layers": nn.ModuleList([nn.Linear(8, 2), nn.Linear(8, 4)])}, 1, id="in a list"),
    pytest.param(lambda m, x: (lambda y: m.q(y).sum() + m.k(y).sum())(x.relu_() * 2), linears("q k"), 1,
                 id="a write before"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "modules", "changes"), MERGED)
def test_layers_that_are_merged(program: Any, modules: dict[str, nn.Module], changes: int) -> None:
    model = Program(program, **copy.deepcopy(modules))
    passes = MergeParallelLinears()
    for gm in (symbolic_trace(model), trace(model, (X,))):
        assert passes.run(gm) == changes
        gm.graph.lint()
        report = verify(model, gm, [X, X[:1]], modes=("train", "eval"), **CLOSE)
        assert report.ok, str(report)
        assert passes.run(gm) == 0


def tied() -> dict[str, nn.Module]:
    found = linears("q k v")
    found["k"].weight = nn.Parameter(found["k"].weight[:8].detach())
    found["k"].bias = None
    found["q"].weight = found["k"].weight
    return found


def hooked() -> dict[str, nn.Module]:
    found = linears("q k")
    found["q"].register_forward_hook(lambda module, args, output: output + 1)
    return found


def watched() -> dict[str, nn.Module]:
    found = linears("q k")
    found["q"].weight.register_hook(lambda gradient: gradient * 2)
    return found


def frozen() -> dict[str, nn.Module]:
    found = linears("q k")
    found["q"].weight.requires_grad_(False)
    return found


Other = nn.modules.linear.NonDynamicallyQuantizableLinear


def both(m: Any, x: Tensor) -> Tensor:
    return m.q(x).sum() + m.k(x).sum()


def between(m: Any, x: Tensor) -> Tensor:
    y = x * 2
    first = m.q(y)
    y.view(-1).mul_(2)
    return first.sum() + m.k(y).sum()


def in_blocks(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        first = m.q(x)
    return first.sum() + m.k(x).sum()


ALONE = [
    pytest.param(both, tied, id="tied weights"),
    pytest.param(both, hooked, id="a hook"),
    pytest.param(both, watched, id="a hook on a parameter"),
    pytest.param(both, frozen, id="one is trained and one is not"),
    pytest.param(both, lambda: {"q": Other(8, 8), "k": nn.Linear(8, 8)}, id="a subclass"),
    pytest.param(both, lambda: {"q": parametrizations.weight_norm(nn.Linear(8, 8)), "k": nn.Linear(8, 8)},
                 id="a parametrization"),
    pytest.param(lambda m, x: m.q(x).sum() + m.k(x + 1).sum(), linears, id="other inputs"),
    pytest.param(lambda m, x: m.q(x).sum() + m.k(x).sum() + m.k(x + 1).sum(), linears, id="called twice"),
    pytest.param(lambda m, x: m.q(x).sum() + m.k(x).sum() + m.k.weight.sum(), linears, id="weights that are read"),
    pytest.param(between, linears, id="a write between"),
    pytest.param(lambda m, x: (lambda y: m.r(y).sum() + m.s(y.relu_()).sum())(m.q(x)), lambda: linears("q r s"),
                 id="a write to a value of the program between"),
    pytest.param(in_blocks, linears, id="the border of a block between"),
    pytest.param(lambda m, x: F.linear(x, m.q.weight * 2).sum() + m.k(x).sum(), linears,
                 id="weights that are computed"),
    pytest.param(lambda m, x: m.q(x).sum() + m.r(x).sum(),
                 lambda: {**linears("q"), **linears("r", bias=False)}, id="one with and one without a bias"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "modules"), ALONE)
def test_layers_that_stay(program: Any, modules: Callable[[], dict[str, nn.Module]]) -> None:
    model = Program(program, **modules())
    gm = trace(model, (X,))
    before = gm.code
    assert MergeParallelLinears().run(gm) == 0
    assert gm.code == before


def test_missing_biases_are_filled_on_request_or_where_nothing_is_trained() -> None:
    modules = {**linears("q"), **linears("r", bias=False)}
    gm = check(Program(lambda m, x: m.q(x).sum() + m.r(x).sum(), **modules), 1, MergeParallelLinears(fill_biases=True))
    assert torch.equal(gm.q_r.bias[8:], torch.zeros(8))
    model = Program(lambda m, x: m.q(x).sum() + m.r(x).sum(), **modules).requires_grad_(False)
    gm = check(model, 1)
    assert not any(parameter.requires_grad for parameter in gm.parameters())


def test_so_many_layers_are_asked_for() -> None:
    model = Program(both, **linears("q k"))
    assert MergeParallelLinears(at_least=3).run(symbolic_trace(model)) == 0
    assert MergeParallelLinears(at_least=2).run(symbolic_trace(model)) == 1


def test_gradients_stand_where_the_weights_stand() -> None:
    model = Attention()
    gm = symbolic_trace(model)
    MergeParallelLinears().run(gm)
    for each in (model, gm):
        (each(X) ** 2).sum().backward()
    merged, parts = gm.query_key_value, (model.query, model.key, model.value)
    for name in ("weight", "bias"):
        expected = torch.cat([getattr(part, name).grad for part in parts])
        assert torch.allclose(getattr(merged, name).grad, expected, **CLOSE)
        assert torch.equal(getattr(merged, name), torch.cat([getattr(part, name) for part in parts]))


def test_training_goes_the_same_way() -> None:
    model = Attention()
    gm = symbolic_trace(copy.deepcopy(model))
    MergeParallelLinears().run(gm)
    train_alike(model, gm, X, **CLOSE)


def test_parameters_of_the_program_itself() -> None:
    model = Program(lambda m, x: F.linear(x, m.one).sum() + F.linear(x, m.other).sum())
    model.one, model.other = nn.Parameter(torch.randn(4, 8)), nn.Parameter(torch.randn(5, 8))
    gm = check(model, 1)
    assert list(gm.state_dict()) == ["linear.weight"]


def test_in_the_bodies_of_branches() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return m.q(x)[..., :8] + m.k(x)[..., :8]
        return x

    model = Program(run, **linears("q k"))
    gm = trace(model, (X,))
    assert MergeParallelLinears().run(gm) == 1
    report = verify(model, gm, [X, X - 9, X + 9], **CLOSE)
    assert report.ok, str(report)


def test_what_is_known_of_shapes_stays_true() -> None:
    gm = symbolic_trace(Attention())
    ShapeProp(gm).propagate(X)
    MergeParallelLinears().run(gm)
    known = {node: node.meta["tensor_meta"] for node in gm.graph.nodes if "tensor_meta" in node.meta}
    ShapeProp(gm).propagate(X)
    assert "query" in {node.name for node in known}
    for node, tensor in known.items():
        now = node.meta["tensor_meta"]
        if isinstance(now, tuple) and node.target is operator.getitem:
            assert (tensor.shape, tensor.stride, tensor.dtype) == (now.shape, now.stride, now.dtype)


def caught(gm: GraphModule, model: nn.Module) -> bool:
    return not verify(model, gm, [X], **CLOSE)


def test_a_write_that_is_overlooked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: what happens between two layers is not asked for."""
    monkeypatch.setattr(merge_parallel_linears, "may_write", lambda *_: False)
    model = Program(between, **linears("q k"))
    gm = trace(model, (X,))
    assert MergeParallelLinears().run(gm) == 1
    assert caught(gm, model)


def test_values_that_share_memory_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: nothing is copied out of the merged result."""
    monkeypatch.setattr(merge_parallel_linears, "reads_any_layout", lambda *_: True)
    model = Program(lambda m, x: m.q(x).relu_().sum() + m.k(x).sum(), **linears("q k"))
    gm = trace(model, (X,))
    assert MergeParallelLinears().run(gm) == 1
    assert caught(gm, model)


def test_views_that_stay_views_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: views of what is no longer contiguous."""
    monkeypatch.setattr(merge_parallel_linears, "reshape_views", lambda *_: None)
    model = Program(lambda m, x: m.q(x).view(-1).sum() + m.k(x).sum(), **linears("q k"))
    gm = trace(model, (X,))
    assert MergeParallelLinears().run(gm) == 1
    assert caught(gm, model)
