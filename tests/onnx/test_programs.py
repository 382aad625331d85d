"""Programs with control flow on data give in ONNX Runtime what they give themselves, at other sizes, too."""

from __future__ import annotations

import contextlib
import copy
import re

import pytest
import torch
from tests.onnx.programs import PROGRAMS
from torch.utils import _pytree as pytree

pytest.importorskip("onnxruntime")

import graphwright
import graphwright.onnx

QUICK = ("Early", "Listed", "Padded", "State", "Strict")
WARNED = {"Image": "% 2) == 0"}  # pools of even sizes: the model is wrong where the halves of an odd one overlap


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]
)
def test_a_program_is_right_at_every_size(name: str) -> None:
    torch.manual_seed(0)
    kind, make = PROGRAMS[name]
    module, inputs = kind().eval(), make()
    with pytest.warns(UserWarning, match=re.escape(WARNED[name])) if name in WARNED else contextlib.nullcontext():
        program = graphwright.onnx.export(module, copy.deepcopy(inputs[0]))
    for args in inputs:
        with torch.no_grad():
            wanted = module(*copy.deepcopy(args))
        given = program(*args)
        assert pytree.tree_structure(given) == pytree.tree_structure(wanted)
        for one, other in zip(pytree.tree_leaves(given), pytree.tree_leaves(wanted), strict=True):
            if other is None:
                assert one is None
                continue
            other = torch.as_tensor(other)
            assert one.shape == other.shape, args
            torch.testing.assert_close(one.double(), other.double(), rtol=1e-4, atol=1e-4)
