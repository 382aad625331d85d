"""Mixed precision: what runs in which, how often values are converted, what stays as it was."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn

import graphwright
from graphwright import GraphModule, Interpreter
from graphwright.analysis import compare
from graphwright.errors import PassError
from graphwright.passes import UseMixedPrecision

LOW = torch.bfloat16


class Block(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm, self.query, self.key = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)
        self.inner, self.outer, self.drop = nn.Linear(width, 64), nn.Linear(64, width), nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        scores = self.query(h) @ self.key(h).transpose(-1, -2)
        mixed = torch.softmax(scores * 0.25, dim=-1) @ h
        return x + self.drop(self.outer(nn.functional.gelu(self.inner(mixed))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x).log_softmax(-1)


def captured(program: Any, *args: Any) -> GraphModule:
    return graphwright.trace(program, args)


def dtypes(gm: GraphModule, *args: Any) -> dict[str, torch.dtype]:
    """The dtypes that the nodes give."""
    found = {}

    class Run(Interpreter):
        def run_node(self, n: Any) -> Any:
            value = super().run_node(n)
            if isinstance(value, Tensor):
                found[n.name] = value.dtype
            return value

    Run(gm).run(*args)
    return found


def conversions(gm: GraphModule) -> list[Any]:
    return gm.graph.find_nodes(op="call_method", target="to")


def test_products_run_low_and_norms_and_softmax_do_not() -> None:
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(3, 5, 16)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    gm, plain = captured(model, x), captured(model, x)
    assert UseMixedPrecision(args=(x,)).run(gm) > 10
    gm.graph.lint()
    found = dtypes(gm, x)
    kinds: dict[str, set[torch.dtype]] = {}
    for node in gm.graph.nodes:
        if node.op == "call_module":
            kinds.setdefault(type(gm.get_submodule(node.target)).__name__, set()).add(found[node.name])
        elif node.op == "call_function":
            kinds.setdefault(node.target.__name__, set()).add(found[node.name])
    assert kinds["Linear"] == kinds["matmul"] == kinds["gelu"] == kinds["mul"] == {LOW}
    assert kinds["LayerNorm"] == kinds["softmax"] == {torch.float32}
    assert gm(x).dtype is torch.float32
    assert compare(plain, gm, x).worst.sqnr > 25
    assert all(p.dtype is torch.float32 and torch.equal(p, state[name]) for name, p in model.named_parameters())
    assert set(gm.state_dict()) == set(state)
    assert {name for name, p in gm.named_parameters() if p.dtype is torch.float32} == {
        name for name in state if "norm" in name
    }
    assert UseMixedPrecision(args=(x,)).run(gm) == 0


def test_each_value_is_converted_once() -> None:
    x = torch.randn(3, 5, 16)
    gm = captured(Model().eval(), x)
    UseMixedPrecision(args=(x,)).run(gm)
    converted = [(node.args[0], node.args[1]) for node in conversions(gm)]
    assert len(converted) == len(set(converted))
    per_block = ["norm to low", "scores to full", "softmax to low"]
    assert len(converted) == 2 * len(per_block) + 2, "and around the head"


def test_gradients_are_close() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16)
    model = Model()
    gm = captured(model, x)
    UseMixedPrecision(args=(x,)).run(gm)
    for module in (model, gm):
        module(x)[..., 0].sum().backward()
    for (name, one), other in zip(model.named_parameters(), gm.parameters(), strict=True):
        assert other.grad is not None
        close = torch.nn.functional.cosine_similarity(one.grad.flatten(), other.grad.float().flatten(), 0)
        assert close > 0.98 or one.grad.norm() < 1e-4, name


RULES = [
    pytest.param({"head": torch.float32}, lambda path: path.startswith("head"), id="a path"),
    pytest.param({"blocks.1": torch.float32}, lambda path: path.startswith("blocks.1"), id="all inside"),
    pytest.param({"blocks.*.query": torch.float32}, lambda path: path.endswith("query"), id="a pattern"),
    pytest.param({nn.Linear: torch.float32}, lambda path: True, id="a class"),
    pytest.param(
        {nn.Linear: torch.float32, "head": LOW}, lambda path: not path.startswith("head"), id="the last one holds"
    ),
]


@pytest.mark.parametrize(("rules", "stays"), RULES)
def test_rules(rules: Any, stays: Any) -> None:
    x = torch.randn(3, 5, 16)
    gm = captured(Model().eval(), x)
    UseMixedPrecision(args=(x,), rules=rules).run(gm)
    for path, module in gm.named_modules():
        if isinstance(module, nn.Linear):
            assert module.weight.dtype is (torch.float32 if stays(path) else LOW), path
    gm(x)


def test_rules_for_functions_and_norms() -> None:
    x = torch.randn(3, 5, 16)
    gm = captured(Model().eval(), x)
    UseMixedPrecision(x, rules={torch.softmax: LOW, torch.matmul: torch.float32, nn.LayerNorm: LOW}).run(gm)
    found = dtypes(gm, x)
    named = {str(getattr(n.target, "__name__", n.target)): found.get(n.name) for n in gm.graph.nodes}
    assert named["softmax"] is LOW
    assert named["matmul"] is torch.float32
    assert gm.blocks[0].norm.weight.dtype is LOW


# ---- what stays


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.free, self.head = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.free(self.embed(x)))


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            y = self.a(x)
        return self.c(self.b(x) if x.sum() > 0 else y)


def test_tied_hooked_and_enclosed_modules_stay() -> None:
    ids = torch.arange(4)
    gm = captured(Tied(), ids)
    UseMixedPrecision(ids).run(gm)
    assert gm.head.weight is gm.embed.weight
    assert (gm.head.weight.dtype, gm.free.weight.dtype) == (torch.float32, LOW)
    x = torch.randn(2, 8)
    gm = captured(Blocks(), x)
    UseMixedPrecision(x).run(gm)
    assert [layer.weight.dtype for layer in (gm.a, gm.b, gm.c)] == [torch.float32, LOW, LOW]
    gm(x), gm(-x.abs())
    hooked = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    hooked[0].register_forward_hook(lambda module, args, output: output + 1)
    gm = captured(hooked, x)
    UseMixedPrecision(x).run(gm)
    assert [p.dtype for name, p in gm.named_parameters() if name.startswith("0.")] == [torch.float32] * 2


def writes(x: Tensor, w: Tensor) -> Any:
    low = x @ w
    low.relu_()
    kept = x @ w
    rows = kept.view(-1, 2)
    rows.exp_()
    y = x + 0
    first = y @ w
    y.view(-1).add_(1)
    second = y @ w
    return low.sum(), kept, first, second, rows


def gated(x: Tensor, w: Tensor) -> Tensor:
    x = x @ w
    if x.sum() > 0:
        x = torch.softmax(x @ w, -1) @ w
    else:
        x = x @ w @ w
    for _ in range(int(x.shape[0])):
        x = (x @ w).relu() + 0.1
    return x


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_and_loops_are_given_float32(sign: int) -> None:
    torch.manual_seed(0)
    x, w = sign * torch.rand(3, 4), torch.rand(4, 4) / 4
    gm = captured(gated, x, w)
    assert UseMixedPrecision((x, w)).run(gm) >= 6
    gm.graph.lint()
    result = gm(x, w)
    assert result.dtype is torch.float32
    torch.testing.assert_close(result, gated(x, w), rtol=0.05, atol=0.05)
    assert not torch.equal(result, gated(x, w))


def test_writes_in_place() -> None:
    torch.manual_seed(0)
    x, w = torch.rand(4, 4), torch.rand(4, 4)
    gm = captured(writes, x, w)
    assert UseMixedPrecision((x, w)).run(gm) > 2
    wanted = writes(x, w)
    for one, other in zip(gm(x, w), wanted, strict=True):
        assert one.dtype is torch.float32
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)
    got = gm(x, w)
    assert got[1].data_ptr() == got[4].data_ptr(), "a view of it still"


def test_integers_doubles_and_other_floats_stay() -> None:
    x = torch.rand(4, 4, dtype=torch.float64)
    gm = captured(nn.Linear(4, 4).double(), x)
    assert UseMixedPrecision(x).run(gm) == 0
    gm = captured(lambda x: x.exp().sum(), x.float())
    assert UseMixedPrecision(x.float()).run(gm) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": {"heads": LOW}}, "nothing in the module is 'heads'"),
        ({"rules": {nn.Conv2d: LOW}}, "nothing in the module is"),
        ({"rules": {"head": torch.float16}}, "the rule for 'head' gives torch.float16"),
        ({"dtype": torch.int8}, "torch.int8 is no low precision"),
    ],
)
def test_wrong_rules(options: Any, message: str) -> None:
    x = torch.randn(3, 5, 16)
    gm = captured(Model(), x)
    text = str(gm.graph)
    with pytest.raises(PassError, match=message):
        UseMixedPrecision(args=x, **options).run(gm)
    assert str(gm.graph) == text
    assert all(parameter.dtype is torch.float32 for parameter in gm.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["resnet18", *[pytest.param(n, marks=pytest.mark.slow) for n in ("vit_b_16", "swin_t", "convnext_tiny")]]
)
def test_models_of_torchvision(name: str) -> None:
    declare_torchvision()
    models = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    model = getattr(models, name)(weights=None).eval()
    x = torch.randn(1, 3, 224 if name == "vit_b_16" else 64, 224 if name == "vit_b_16" else 64)
    gm, plain = captured(model, x), captured(model, x)
    count = UseMixedPrecision(args=(x,)).run(gm)
    assert count > 15
    report = compare(plain, gm, x)
    assert report.in_order[-1].sqnr > 20
    assert gm(x).dtype is torch.float32


def test_a_twin_that_forgets_writes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(dict):  # type: ignore[type-arg]
        def clear(self) -> None:
            pass

    module = sys.modules[UseMixedPrecision.__module__]
    made = module._Conversion.__init__

    def careless(self: Any, *args: Any) -> None:
        made(self, *args)
        self._made = Forgetful()

    monkeypatch.setattr(module._Conversion, "__init__", careless)
    torch.manual_seed(0)
    x, w = torch.rand(4, 4), torch.rand(4, 4)
    gm = captured(writes, x, w)
    UseMixedPrecision((x, w)).run(gm)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(gm(x, w)[3], writes(x, w)[3], rtol=0.05, atol=0.05)
    assert copy.deepcopy(gm)(x, w)[0].dtype is torch.float32
