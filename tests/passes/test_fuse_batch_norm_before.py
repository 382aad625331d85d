"""A batch norm goes into the layer behind it exactly where that computes the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.checks import Program, settled
from tests.passes.test_fuse_conv_batch_norm import CLOSE, IMAGE, LINE, ROWS, VOLUME, calls, check_fused, hooked
from torch import Tensor, nn

from graphwright import symbolic_trace, trace
from graphwright.analysis import verify
from graphwright.errors import GuardError, PassError
from graphwright.passes import FuseConvBatchNorm, fold_batch_norm_before, fuse_conv_batch_norm


def norm(kind: type[nn.Module] = nn.BatchNorm2d, **options: Any) -> Any:
    return kind(4, **options)


FOLDED = [
    pytest.param(norm(nn.BatchNorm1d), nn.Conv1d(4, 6, 3), LINE, id="conv1d"),
    pytest.param(norm(), nn.Conv2d(4, 6, 3), IMAGE, id="conv2d"),
    pytest.param(norm(nn.BatchNorm3d), nn.Conv3d(4, 6, 3), VOLUME, id="conv3d"),
    pytest.param(norm(nn.BatchNorm1d), nn.Linear(4, 6), ROWS, id="linear"),
    pytest.param(norm(nn.BatchNorm1d), nn.Linear(4, 6, bias=False), ROWS, id="linear without bias"),
    pytest.param(norm(), nn.Conv2d(4, 6, 3, bias=False, stride=2, dilation=2), IMAGE, id="no bias, with strides"),
    pytest.param(norm(), nn.Conv2d(4, 8, 3, groups=4), IMAGE, id="as many groups as channels"),
    pytest.param(norm(), nn.Conv2d(4, 6, (3, 2), groups=2), IMAGE, id="groups"),
    pytest.param(norm(), nn.Conv2d(4, 6, 3, padding="valid"), IMAGE, id="no padding by name"),
    pytest.param(norm(), nn.Conv2d(4, 6, 1, padding="same"), IMAGE, id="padding of nothing"),
    pytest.param(norm(), nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), IMAGE, id="padding by reflection"),
    pytest.param(norm(), nn.Conv2d(4, 6, 3, padding="same", padding_mode="circular"), IMAGE, id="circular padding"),
    pytest.param(norm(affine=False, eps=0.3), nn.Conv2d(4, 6, 3), IMAGE, id="not affine"),
    pytest.param(norm(), nn.ConvTranspose2d(4, 6, 1), IMAGE, id="transposed, of one point"),
    pytest.param(norm(), nn.ConvTranspose2d(4, 6, 1, groups=2), IMAGE, id="transposed, with groups"),
    pytest.param(norm(nn.BatchNorm1d), nn.ConvTranspose1d(4, 6, 1, bias=False), LINE, id="transposed 1d"),
]


@pytest.mark.parametrize(("before", "layer", "x"), FOLDED)
def test_a_batch_norm_goes_into_the_next_layer(before: nn.Module, layer: nn.Module, x: Tensor) -> None:
    gm = check_fused(nn.Sequential(before, layer), x, changes=1)
    assert calls(gm)[-1] == type(layer).__name__
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in gm.modules())


PADDED = [
    pytest.param(nn.Conv2d(4, 6, 3, padding=1), id="zero padding"),
    pytest.param(nn.Conv2d(4, 6, (1, 3), padding="same"), id="zero padding by name"),
    pytest.param(nn.ConvTranspose2d(4, 6, 3), id="transposed: borders see less of the kernel"),
    pytest.param(nn.ConvTranspose2d(4, 6, 1, stride=2), id="transposed: points between the inputs"),
    pytest.param(nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), id="transposed: a shift for each point"),
]


@pytest.mark.parametrize("layer", PADDED)
def test_padded_layers_take_only_what_does_not_shift(layer: nn.Module) -> None:
    check_fused(nn.Sequential(norm(), layer), IMAGE, changes=0)
    still = norm(affine=False)
    model = nn.Sequential(still, layer)
    settled(model)[0].running_mean.zero_()
    gm = symbolic_trace(model)
    assert FuseConvBatchNorm().run(gm) == 1
    assert verify(model, gm, [IMAGE], **CLOSE)


def read_twice(m: Any, x: Tensor) -> Tensor:
    y = m.norm(x)
    return m.conv(y) + y.sum()


def written_between(m: Any, x: Tensor) -> Tensor:
    x = x * 2
    y = m.norm(x)
    x.add_(1)
    return m.conv(y)


def out_of_a_block(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = m.norm(x)
    return m.conv(y)


UNTOUCHED = [
    pytest.param(read_twice, norm(), nn.Conv2d(4, 4, 1), id="others read the batch norm's value"),
    pytest.param(written_between, norm(), nn.Conv2d(4, 4, 1), id="a write between"),
    pytest.param(out_of_a_block, norm(), nn.Conv2d(4, 4, 1), id="the edge of a block between"),
    pytest.param(lambda m, x: m.conv(m.norm(x).sigmoid()), norm(), nn.Conv2d(4, 4, 1), id="something between"),
    pytest.param(lambda m, x: m.conv(m.norm(x)), hooked(norm()), nn.Conv2d(4, 4, 1), id="a hook"),
    pytest.param(
        lambda m, x: m.conv(m.norm(x)), norm(track_running_stats=False), nn.Conv2d(4, 4, 1), id="no statistics"
    ),
    pytest.param(lambda m, x: m.conv(m.norm(x)) + m.conv.weight.sum(), norm(), nn.Conv2d(4, 4, 1), id="a read weight"),
]


@pytest.mark.parametrize(("run", "before", "conv"), UNTOUCHED)
def test_everything_else_stays(run: Any, before: nn.Module, conv: nn.Module) -> None:
    model = settled(Program(run, norm=before, conv=conv))
    for gm in (symbolic_trace(model), trace(model, IMAGE)):
        assert fuse_conv_batch_norm(gm) == 0
        assert verify(model, gm, [IMAGE])


def test_batch_norms_on_both_sides() -> None:
    gm = check_fused(nn.Sequential(norm(), nn.Conv2d(4, 4, 3), norm(), nn.Conv2d(4, 4, 3)), IMAGE, changes=2)
    assert calls(gm) == ["Conv2d", "Conv2d"]


def test_a_batch_norm_between_layers_goes_into_the_first() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), norm(), nn.Conv2d(4, 4, 3))
    gm = check_fused(model, IMAGE, changes=1)
    assert gm.get_submodule("2") is model[2]


def test_only_behind_layers_on_request() -> None:
    model = settled(nn.Sequential(norm(), nn.Conv2d(4, 4, 1)))
    assert FuseConvBatchNorm(into_next=False).run(symbolic_trace(model)) == 0


def test_shared_modules() -> None:
    shared = nn.Conv2d(4, 4, 1)
    model = Program(
        lambda m, x: m.conv(m.one(x)) + m.conv(m.two(x)) + m.conv(x) + m.again(m.one(x * 2)),
        conv=shared, one=norm(), two=norm(), again=shared,
    )  # fmt: skip
    gm = check_fused(model, IMAGE, changes=3)
    assert gm.get_submodule("conv") is shared
    assert len({id(module) for module in gm.modules() if isinstance(module, nn.Conv2d)}) == 3


def test_tied_weights() -> None:
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)
    two.weight = one.weight
    model = Program(lambda m, x: m.one(m.norm(x)) + m.two(x), one=one, two=two, norm=norm(nn.BatchNorm1d))
    gm = check_fused(model, ROWS, changes=1)
    assert gm.get_submodule("two").weight is one.weight


def test_the_rank_is_guarded() -> None:
    gm = symbolic_trace(settled(nn.Sequential(norm(nn.BatchNorm1d), nn.Linear(4, 4))))
    fuse_conv_batch_norm(gm)
    with pytest.raises(GuardError, match="batch norm '0', folded for inputs of 2 dimensions"):
        gm(torch.randn(2, 4, 4))


def test_training_mode_is_refused() -> None:
    gm = symbolic_trace(nn.Sequential(norm(), nn.Conv2d(4, 4, 1)).train())
    with pytest.raises(PassError, match="batch norm '0' is in training mode"):
        fuse_conv_batch_norm(gm)
    assert calls(gm) == ["BatchNorm2d", "Conv2d"]


def test_gradients_of_the_input() -> None:
    model = settled(nn.Sequential(norm(), nn.Conv2d(4, 4, 3)))
    gm = symbolic_trace(model)
    fuse_conv_batch_norm(gm)
    found = []
    for each in (model, gm):
        x = IMAGE.clone().requires_grad_()
        found.append(torch.autograd.grad(each(x).square().sum(), x)[0])
    torch.testing.assert_close(found[0], found[1], **CLOSE)


def test_a_broken_twin_is_caught() -> None:
    """Without its condition, the fold shifts what was padded with zeros."""
    model = settled(nn.Sequential(norm(), nn.Conv2d(4, 4, 3, padding=1)))
    gm = symbolic_trace(model)
    weight, bias = fold_batch_norm_before(model[1].weight, model[1].bias, model[0])
    conv = nn.Conv2d(4, 4, 3, padding=1)
    conv.weight, conv.bias = nn.Parameter(weight), nn.Parameter(bias)
    setattr(gm, "0", nn.Identity())
    setattr(gm, "1", conv)
    assert not verify(model, gm, [IMAGE], **CLOSE)
    assert torch.allclose(gm(IMAGE)[..., 1:-1, 1:-1], model(IMAGE)[..., 1:-1, 1:-1], **CLOSE)  # but for the border
