"""Whole models of libraries, scripted without inputs: the same values as in Python, in both modes."""

from __future__ import annotations

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import nn
from torch.utils._pytree import tree_leaves

from graphwright import script

VISION = ["resnet18", "mobilenet_v3_small", "regnet_y_400mf", "efficientnet_b0", "vit_b_16", "swin_t", "r3d_18"]
TIMM = [
    *(
        "resnet10t",
        "vit_tiny_patch16_224",
        "convnext_atto",
        "swin_tiny_patch4_window7_224",
        "levit_128s",
        "hrnet_w18_small",
    ),
    *("mobilevit_xxs", "beit_base_patch16_224", "xcit_nano_12_p16_224", "edgenext_xx_small", "repvgg_a0"),
]


def assert_same(model: nn.Module, *shape: int) -> None:
    for training in (False, True):
        gm = script(model.train(training))
        assert isinstance(gm, type(model))
        x = torch.rand(shape)
        state = {name: value.clone() for name, value in model.state_dict().items()}
        results = []
        for program in (model, gm):
            model.load_state_dict(state)
            torch.manual_seed(0)
            with torch.no_grad():
                results.append(program(x))
        for mine, its in zip(*[tree_leaves(result) for result in results], strict=True):
            assert torch.equal(mine, its)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [VISION[0], *[pytest.param(name, marks=pytest.mark.slow) for name in VISION[1:]]])
def test_models_of_torchvision(name: str) -> None:
    declare_torchvision()
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    model = models.get_model(name, weights=None)
    assert_same(model, *((2, 3, 4, 32, 32) if name == "r3d_18" else (2, 3, 224, 224)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Scripted:UserWarning")
@pytest.mark.parametrize("transform_input", [False, True])
@pytest.mark.parametrize(
    ("name", "size"), [("googlenet", 64), pytest.param("inception_v3", 299, marks=pytest.mark.slow)]
)
def test_models_with_auxiliary_outputs(name: str, size: int, transform_input: bool) -> None:
    """Scripted, they always give their named tuple, as they do for torch's own scripting."""
    declare_torchvision()
    models = pytest.importorskip("torchvision.models")
    for aux_logits in (True, False):
        options = {"aux_logits": aux_logits, "init_weights": False, "transform_input": transform_input}
        model = models.get_model(name, weights=None, **options)
        gm = script(model)
        x = torch.rand(2, 3, size, size)
        state = {key: value.clone() for key, value in model.state_dict().items()}
        for training in (True, False):
            results = []
            for program in (model, gm):
                model.load_state_dict(state)
                torch.manual_seed(0)
                with torch.no_grad():
                    results.append(program.train(training)(x))
            wanted, given = results
            assert type(given).__name__ in ("GoogLeNetOutputs", "InceptionOutputs")
            for mine, its in zip(given, wanted if isinstance(wanted, tuple) else [wanted], strict=False):
                assert mine is its is None or torch.equal(mine, its)


@pytest.mark.parametrize("name", [TIMM[0], *[pytest.param(name, marks=pytest.mark.slow) for name in TIMM[1:]]])
def test_models_of_timm(name: str) -> None:
    declare_torchvision()
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False)
    assert_same(model, 2, *model.pretrained_cfg["input_size"])
