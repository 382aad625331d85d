"""Whole models of torchvision and timm."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator

import torch
from tests.compat.agreement import Comparison, compare
from tests.runtime.declare_torchvision import declare_torchvision
from torch.overrides import TorchFunctionMode

TIMM = (
    "resnet18 convnext_nano vit_tiny_patch16_224 mobilenetv3_small_100 regnety_002 densenet121 mixer_s16_224 "
    "efficientnet_b0 ghostnet_100 levit_128s poolformer_s12 resmlp_12_224 rexnet_100 tf_efficientnetv2_b0"
)


def classifiers(every: int = 1) -> Iterator[Comparison]:
    """torchvision's classification models."""
    declare_torchvision()
    import torchvision

    yield from _models(torchvision.models.get_model, torchvision.models.list_models(torchvision.models)[::every])


def other_vision(every: int = 1) -> Iterator[Comparison]:
    """torchvision's models of segmentation, detection and video."""
    declare_torchvision()
    from torchvision import models

    rooms = (models.segmentation, models.detection, models.video, models.optical_flow)
    names = itertools.chain.from_iterable(models.list_models(room) for room in rooms)
    yield from _models(models.get_model, list(names)[::every], weights_backbone=None)


def timm_models(every: int = 1) -> Iterator[Comparison]:
    """Some families of timm."""
    declare_torchvision()
    import timm

    yield from _models(timm.create_model, TIMM.split()[::every])


class _WithoutWeights(TorchFunctionMode):
    """Parameters take no memory; what a constructor computes stays real."""

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        options = {**(kwargs or {}), "device": "meta"} if function is torch.empty else kwargs or {}
        return function(*args, **options)


def _models(make, names, **options) -> Iterator[Comparison]:  # type: ignore[no-untyped-def]
    for name in names:
        model = _without_weights(make, name, options).eval()
        yield compare(name, model)


def _without_weights(make, name, options):  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _WithoutWeights():
                return make(name, **options)
        except TypeError:  # it has no backbone
            return _without_weights(make, name, {})
        except RuntimeError:  # it computes with its weights
            return make(name, **options)
