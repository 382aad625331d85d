"""Batch norms, and ReLUs, go into the layers before them exactly where that computes the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.passes.checks import Program, settled
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from graphwright import GraphModule, load, save, symbolic_trace, trace
from graphwright import Tracer as BaseTracer
from graphwright.analysis import verify
from graphwright.errors import GuardError, PassError
from graphwright.passes import ConvAddReLU, ConvReLU, FuseConvBatchNorm, FuseConvReLU, fuse_conv_batch_norm
from graphwright.runtime import is_guard

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # the same sums in another order, in single precision


def snapshot(model: nn.Module) -> tuple[str, dict[str, Tensor], list[tuple[str, int]]]:
    """What must stay as it is in the original: modules, values, and identities of tensors."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return repr(model), copy.deepcopy(model.state_dict()), [(name, id(tensor)) for name, tensor in tensors]


def check_fused(model: nn.Module, x: Tensor, changes: int, **options: Any) -> GraphModule:
    """Fuse in both captures of a model; check count, result, original, and that a second run finds nothing to do."""
    model = settled(model)
    before = snapshot(model)
    captures = symbolic_trace(model), trace(model, x)
    for gm in captures:
        assert FuseConvBatchNorm(**options).run(gm) == changes
        gm.graph.lint()
        report = verify(model, gm, [x], **CLOSE)
        assert report.ok, str(report)
        assert FuseConvBatchNorm(**options).run(gm) == 0
    after = snapshot(model)
    assert (after[0], after[2]) == (before[0], before[2])
    assert all(torch.equal(after[1][name], value) for name, value in before[1].items())
    assert calls(captures[0]) == calls(captures[1])
    return captures[0]


def calls(gm: GraphModule) -> list[str]:
    """What a graph calls, briefly: classes of modules, names of functions and methods; no guards."""
    found = []
    for node in gm.graph.nodes:
        if is_guard(node):
            continue
        if node.op == "call_module":
            found.append(type(gm.get_submodule(node.target)).__name__)
        elif node.op in ("call_function", "call_method"):
            found.append(node.target if isinstance(node.target, str) else node.target.__name__)
    return found


IMAGE, LINE, VOLUME, ROWS = torch.randn(2, 4, 9, 9), torch.randn(2, 4, 9), torch.randn(1, 4, 5, 5, 5), torch.randn(3, 4)

LAYERS = [
    pytest.param(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), LINE, id="conv1d"),
    pytest.param(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), IMAGE, id="conv2d"),
    pytest.param(nn.Conv3d(4, 6, 3), nn.BatchNorm3d(6), VOLUME, id="conv3d"),
    pytest.param(nn.ConvTranspose1d(4, 6, 3), nn.BatchNorm1d(6), LINE, id="transposed 1d"),
    pytest.param(nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), nn.BatchNorm2d(6), IMAGE, id="transposed 2d"),
    pytest.param(nn.ConvTranspose3d(4, 6, 3), nn.BatchNorm3d(6), VOLUME, id="transposed 3d"),
    pytest.param(nn.Linear(4, 6), nn.BatchNorm1d(6), ROWS, id="linear"),
    pytest.param(nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6), IMAGE, id="no bias"),
    pytest.param(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), ROWS, id="linear without bias"),
    pytest.param(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6, affine=False), IMAGE, id="not affine"),
    pytest.param(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6, eps=0.5), IMAGE, id="a large epsilon"),
    pytest.param(nn.Conv2d(4, 8, 3, groups=4), nn.BatchNorm2d(8), IMAGE, id="grouped"),
    pytest.param(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), IMAGE, id="grouped and transposed"),
    pytest.param(nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(6), IMAGE, id="padded"),
    pytest.param(nn.Conv2d(4, 6, 3, padding="same", dilation=2), nn.BatchNorm2d(6), IMAGE, id="dilated"),
]


@pytest.mark.parametrize(("layer", "norm", "x"), LAYERS)
def test_a_batch_norm_goes_into_its_layer(layer: nn.Module, norm: nn.Module, x: Tensor) -> None:
    gm = check_fused(nn.Sequential(layer, norm), x, changes=1)
    assert not any(isinstance(module, BATCH_NORMS) for module in gm.modules())
    folded = gm.get_submodule("0")
    assert type(folded) is type(layer)
    assert folded.weight.dtype == layer.weight.dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_dtype_is_kept(dtype: torch.dtype) -> None:
    model = settled(nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6))).to(dtype)
    gm = symbolic_trace(model)
    assert fuse_conv_batch_norm(gm) == 1
    assert {parameter.dtype for parameter in gm.parameters()} == {dtype}
    # The fold rounds the weights once more.
    assert verify(model, gm, [IMAGE.to(dtype)], rtol=0.05 if dtype != torch.float64 else 1e-10, atol=0.05)


def test_whether_weights_are_trained_is_kept() -> None:
    model = settled(nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)))
    model[0].requires_grad_(False)
    gm = symbolic_trace(model)
    fuse_conv_batch_norm(gm)
    assert [parameter.requires_grad for parameter in gm.parameters()] == [False, False]


RELUS = [
    pytest.param(nn.ReLU(), id="module"),
    pytest.param(nn.ReLU(inplace=True), id="module in place"),
    pytest.param(F.relu, id="F.relu"),
    pytest.param(lambda x: F.relu(x, inplace=True), id="F.relu in place"),
    pytest.param(torch.relu, id="torch.relu"),
    pytest.param(torch.relu_, id="torch.relu_"),
    pytest.param(lambda x: x.relu(), id="method"),
    pytest.param(lambda x: x.relu_(), id="method in place"),
]


@pytest.mark.parametrize("relu", RELUS)
def test_a_relu_joins_in_every_spelling(relu: Any) -> None:
    model = Program(lambda m, x: m.relu(m.norm(m.conv(x))), conv=nn.Conv2d(4, 6, 3), norm=nn.BatchNorm2d(6), relu=relu)
    assert calls(check_fused(model, IMAGE, changes=2)) == ["ConvReLU"]


@pytest.mark.parametrize("relu", RELUS)
def test_relus_stay_on_request(relu: Any) -> None:
    model = Program(lambda m, x: m.relu(m.norm(m.conv(x))), conv=nn.Conv2d(4, 6, 3), norm=nn.BatchNorm2d(6), relu=relu)
    assert len(calls(check_fused(model, IMAGE, changes=1, relu=False))) == 2


def add_into(out: Tensor, other: Tensor) -> Tensor:
    out += other
    return out


def residual(add: Callable[[Any, Tensor, Tensor], Tensor]) -> nn.Module:
    return Program(
        lambda m, x: F.relu(add(m, m.norm(m.conv(x)), x)), conv=nn.Conv2d(4, 4, 1), norm=nn.BatchNorm2d(4),
        shortcut=nn.Conv2d(4, 4, 1),
    )  # fmt: skip


ADDITIONS = [
    pytest.param(lambda m, out, x: out + x, False, id="operator"),
    pytest.param(lambda m, out, x: x + out, False, id="the other way round"),
    pytest.param(lambda m, out, x: torch.add(out, x), False, id="torch.add"),
    pytest.param(lambda m, out, x: out.add(x), False, id="method"),
    pytest.param(lambda m, out, x: add_into(out, x), True, id="in place"),
    pytest.param(lambda m, out, x: out.add_(x), True, id="method in place"),
    pytest.param(lambda m, out, x: out + m.shortcut(x), False, id="the shortcut is a layer"),
    pytest.param(lambda m, out, x: add_into(out, m.shortcut(x)), False, id="the shortcut is a layer, in place"),
]


@pytest.mark.parametrize(("add", "in_place"), ADDITIONS)
def test_a_relu_joins_across_a_residual_addition(add: Any, in_place: bool) -> None:
    gm = check_fused(residual(add), IMAGE, changes=2)
    assert calls(gm)[-1] == "ConvAddReLU"
    (last,) = [module for module in gm.modules() if isinstance(module, ConvAddReLU)]
    assert last.in_place is in_place


def test_residual_blocks_after_one_another() -> None:
    block = residual(lambda m, out, x: out + x)
    gm = check_fused(nn.Sequential(block, copy.deepcopy(block), copy.deepcopy(block)), IMAGE, changes=6)
    assert calls(gm) == ["ConvAddReLU"] * 3


NOT_JOINED = [
    pytest.param(lambda m, out, x: out + 1, id="a number"),
    pytest.param(lambda m, out, x: out + out, id="itself"),
    pytest.param(lambda m, out, x: torch.add(out, x, alpha=2), id="a factor"),
    pytest.param(lambda m, out, x: add_into(x, out), id="into the input"),
    pytest.param(lambda m, out, x: out - x, id="a difference"),
    pytest.param(lambda m, out, x: out + x.mul_(2), id="a write in between"),
    pytest.param(lambda m, out, x: out + m.shortcut(x).sigmoid(), id="a value made in between"),
]


@pytest.mark.parametrize("add", NOT_JOINED)
def test_other_additions_stay(add: Any) -> None:
    assert calls(check_fused(residual(add), IMAGE, changes=1))[-1] == "relu"


class Special(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda module, args, output: output * 2)
    return module


def without_forward(module: nn.Conv2d) -> nn.Conv2d:
    module.forward = lambda x: nn.Conv2d.forward(module, x) * 2  # type: ignore[method-assign]
    return module


def straight(conv: nn.Module, norm: nn.Module | None = None) -> nn.Module:
    return Program(lambda m, x: m.norm(m.conv(x)), conv=conv, norm=norm or nn.BatchNorm2d(4))


UNTOUCHED = [
    pytest.param(
        Program(
            lambda m, x: (lambda y: (m.norm(y), y))(m.conv(x)), conv=nn.Conv2d(4, 4, 1), norm=nn.BatchNorm2d(4)
        ),
        id="the layer's value is used elsewhere",
    ),
    pytest.param(straight(hooked(nn.Conv2d(4, 4, 1))), id="a hook on the layer"),
    pytest.param(straight(nn.Conv2d(4, 4, 1), hooked(nn.BatchNorm2d(4))), id="a hook on the batch norm"),
    pytest.param(straight(without_forward(nn.Conv2d(4, 4, 1))), id="a forward of its own"),
    pytest.param(straight(parametrizations.weight_norm(nn.Conv2d(4, 4, 1))), id="parametrized"),
    pytest.param(straight(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4, track_running_stats=False)), id="no statistics"),
    pytest.param(straight(nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4)), id="another norm"),
    pytest.param(straight(nn.Sequential(nn.Conv2d(4, 4, 1), nn.Sigmoid())), id="something in between"),
    pytest.param(straight(nn.Identity()), id="no layer"),
    pytest.param(
        Program(
            lambda m, x: m.norm(m.conv(x)) * m.conv.weight.norm(), conv=nn.Conv2d(4, 4, 1), norm=nn.BatchNorm2d(4)
        ),
        id="the graph reads the weight",
    ),
    pytest.param(
        Program(
            lambda m, x: m.norm(m.conv(x)) * m.norm.weight.sum(), conv=nn.Conv2d(4, 4, 1), norm=nn.BatchNorm2d(4)
        ),
        id="the graph reads the scale",
    ),
    pytest.param(
        Program(
            lambda m, x: m.norm(m.conv(x, output_size=[18, 18])), conv=nn.ConvTranspose2d(4, 4, 2, stride=2),
            norm=nn.BatchNorm2d(4),
        ),
        id="more than one argument",
    ),
]  # fmt: skip


@pytest.mark.parametrize("model", UNTOUCHED)
def test_everything_else_stays(model: nn.Module) -> None:
    for gm in (symbolic_trace(settled(model)), trace(settled(model), IMAGE)):
        before = str(gm.graph)
        assert fuse_conv_batch_norm(gm) == 0
        assert str(gm.graph) == before


def test_a_subclass_stays() -> None:
    class Tracer(BaseTracer):
        def is_leaf_module(self, module: nn.Module, path: str) -> bool:
            return isinstance(module, Special) or super().is_leaf_module(module, path)

    model = settled(nn.Sequential(Special(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU()))
    gm = GraphModule(model, Tracer().trace(model))
    assert fuse_conv_batch_norm(gm) == 0
    assert calls(gm) == ["Special", "BatchNorm2d", "ReLU"]


# ---- shared modules and parameters


def test_one_layer_before_two_batch_norms_is_folded_twice() -> None:
    model = Program(
        lambda m, x: m.one(m.conv(x)) + m.two(m.conv(x)),
        conv=nn.Conv2d(4, 4, 1), one=nn.BatchNorm2d(4), two=nn.BatchNorm2d(4),
    )  # fmt: skip
    gm = check_fused(model, IMAGE, changes=2)
    assert [node.target for node in gm.graph.find_nodes(op="call_module")] == ["conv_folded", "conv"]


def test_one_layer_with_and_without_batch_norm() -> None:
    model = Program(lambda m, x: m.norm(m.conv(x)) + m.conv(x), conv=nn.Conv2d(4, 4, 1), norm=nn.BatchNorm2d(4))
    gm = check_fused(model, IMAGE, changes=1)
    assert gm.get_submodule("conv") is model.conv


def test_one_batch_norm_after_two_layers() -> None:
    model = Program(
        lambda m, x: m.norm(m.one(x)) + m.norm(m.two(x)),
        one=nn.Conv2d(4, 4, 1), two=nn.Conv2d(4, 4, 1), norm=nn.BatchNorm2d(4),
    )  # fmt: skip
    gm = check_fused(model, IMAGE, changes=2)
    assert [node.target for node in gm.graph.find_nodes(op="call_module")] == ["one", "two"]


def test_a_head_used_at_several_places_is_folded_once() -> None:
    head = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
    gm = check_fused(Program(lambda m, x: [m.head(x), m.head(x * 2), m.head(x * 3)], head=head), IMAGE, changes=6)
    assert {node.target for node in gm.graph.find_nodes(op="call_module")} == {"head.0"}
    assert len(list(gm.parameters())) == 2


def test_layers_that_share_their_weight() -> None:
    one, two = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
    two.weight = one.weight
    model = Program(lambda m, x: m.norm(m.one(x)) + m.two(x), one=one, two=two, norm=nn.BatchNorm2d(4))
    gm = check_fused(model, IMAGE, changes=1)
    assert gm.get_submodule("two").weight is one.weight


def test_one_module_under_two_names() -> None:
    conv = nn.Conv2d(4, 4, 1)
    model = Program(
        lambda m, x: m.one(m.first(x)) + m.two(m.second(x)),
        first=conv, second=conv, one=nn.BatchNorm2d(4), two=nn.BatchNorm2d(4),
    )  # fmt: skip
    check_fused(model, IMAGE, changes=2)


def test_a_layer_inside_a_module_that_is_called_whole() -> None:
    class Tracer(BaseTracer):
        def is_leaf_module(self, module: nn.Module, path: str) -> bool:
            return path == "block" or super().is_leaf_module(module, path)

    block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Sigmoid())
    model = settled(Program(lambda m, x: m.block(x) + m.norm(m.block[0](x)), block=block, norm=nn.BatchNorm2d(4)))
    gm = GraphModule(model, Tracer().trace(model))
    assert fuse_conv_batch_norm(gm) == 1
    assert verify(model, gm, [IMAGE], **CLOSE)
    assert gm.get_submodule("block") is block
    assert type(block[0]) is nn.Conv2d and len(block) == 2


def test_a_name_that_is_taken_is_not_taken_over() -> None:
    model = Program(
        lambda m, x: m.norm(m.conv(x)) + m.conv(x) + m.conv_folded(x),
        conv=nn.Conv2d(4, 4, 1), conv_folded=nn.Conv2d(4, 4, 1), norm=nn.BatchNorm2d(4),
    )  # fmt: skip
    gm = check_fused(model, IMAGE, changes=1)
    assert [node.target for node in gm.graph.find_nodes(op="call_module")] == ["conv_folded_1", "conv", "conv_folded"]


def test_joining_a_layer_whose_weight_is_read_keeps_the_weight_in_place() -> None:
    model = Program(lambda m, x: F.relu(m.conv(x)) * m.conv.weight.sum(), conv=nn.Conv2d(4, 4, 1))
    gm = check_fused(model, IMAGE, changes=1)
    assert type(gm.get_submodule("conv_relu")) is ConvReLU


# ---- what is refused, at once or when it runs


def test_training_mode_is_refused_before_anything_changes() -> None:
    gm = symbolic_trace(
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4).eval(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    )
    before = str(gm.graph)
    with pytest.raises(PassError) as raised:
        fuse_conv_batch_norm(gm)
    assert raised.value.message == (
        "Fusion only for eval! batch norm '3' is in training mode: it normalizes by the statistics of each batch, "
        "which no weights can absorb"
    )
    assert isinstance(raised.value, AssertionError)  # torch.fx's class for it
    assert raised.value.fix == "call gm.eval() first"
    assert str(gm.graph) == before
    assert fuse_conv_batch_norm(gm.eval()) == 2


def test_a_rank_that_the_fold_does_not_cover_is_refused() -> None:
    """BatchNorm1d normalizes dimension 1: of (batch, length, features) that is the length."""
    model = settled(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    gm = symbolic_trace(model)
    fuse_conv_batch_norm(gm)
    assert verify(model, gm, [torch.randn(3, 4)], **CLOSE)
    with pytest.raises(GuardError, match="batch norm '1', folded for inputs of 2 dimensions"):
        gm(torch.randn(2, 4, 4))
    assert [str(guard) for guard in gm.guards] == ["batch norm '1', folded for inputs of 2 dimensions [dim was 2]"]


def test_the_code_after_fusing() -> None:
    block = Program(
        lambda m, x: F.relu(m.norm2(m.conv2(F.relu(m.norm1(m.conv1(x))))) + x),
        conv1=nn.Conv2d(4, 4, 1), norm1=nn.BatchNorm2d(4), conv2=nn.Conv2d(4, 4, 1), norm2=nn.BatchNorm2d(4),
    )  # fmt: skip
    gm = check_fused(block, IMAGE, changes=4)
    assert gm.code.strip().splitlines()[1:] == [
        "    conv1 = self.conv1(x)",
        "    conv2 = self.conv2(conv1, x);  conv1 = x = None",
        "    return conv2",
    ]


def test_what_is_left_of_the_module_tree() -> None:
    """Lists keep their places; elsewhere what was folded is gone, so that whoever still asks for it is told."""
    model = settled(
        Program(
            lambda m, x: m.norm(m.conv(m.stem(x))), stem=nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Sigmoid()),
            conv=nn.Conv2d(4, 4, 1), norm=nn.BatchNorm2d(4),
        )
    )  # fmt: skip
    gm = trace(model, IMAGE)
    assert fuse_conv_batch_norm(gm) == 2
    assert [type(module).__name__ for module in gm.stem] == ["ConvReLU", "Identity", "Sigmoid"]
    assert not hasattr(gm, "norm")
    assert hasattr(model, "norm") and type(model.stem[1]) is nn.ReLU


def test_fused_modules_train() -> None:
    """In-place activation does not disturb gradients."""
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU())
    gm = symbolic_trace(model)
    assert FuseConvReLU().run(gm) == 2
    one, other = model(IMAGE).sum(), gm(IMAGE).sum()
    wanted = torch.autograd.grad(one, list(model.parameters()))
    for gradient, expected in zip(torch.autograd.grad(other, list(model.parameters())), wanted, strict=True):
        torch.testing.assert_close(gradient, expected)


def test_a_relu_without_gradients_stays() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        y = m.layer(x)
        with torch.no_grad():
            return y.relu()  # type: ignore[no-any-return]

    assert FuseConvReLU().run(symbolic_trace(Program(run, layer=nn.Linear(4, 4)))) == 0


class AsksForIdentities(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Identity())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if not isinstance(layer, nn.Identity):
                x = layer(x)
        return x


def test_what_was_asked_of_a_module_that_is_folded_away_is_asked_no_more() -> None:
    model = AsksForIdentities().eval()
    x = torch.randn(2, 3, 5, 5)
    gm = trace(model, (x,))
    assert FuseConvBatchNorm().run(gm) == 1
    torch.testing.assert_close(gm(x), model(x), atol=1e-5, rtol=1e-5)


def test_fused_layers_are_saved(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval(), torch.ones(1, 3, 8, 8)
    gm = trace(model, x)
    fuse_conv_batch_norm(gm)
    assert any(isinstance(module, ConvReLU) for module in gm.modules())
    save(gm, tmp_path / "fused.gw")
    assert torch.equal(load(tmp_path / "fused.gw")(x), gm(x))


class Optional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x if self.norm is None else self.norm(x)


def test_a_norm_that_the_program_asks_for_goes_like_others() -> None:
    model, x = settled(nn.Sequential(Optional(), nn.ReLU())), torch.randn(2, 3, 4, 4)
    gm = trace(model, x)
    assert fuse_conv_batch_norm(gm) == 2
    assert verify(model, gm, [x], **CLOSE).ok
