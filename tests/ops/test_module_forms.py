"""Modules of torch.nn and the functions that they are the module form of, over torch's own database of modules."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.common_modules import module_db

from graphwright.ops import functional_form, is_plain_module

WITHOUT = {  # they count, keep states, depend on the rank of their input, or call several functions
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell",
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "MultiheadAttention", "LinearCrossEntropyLoss",
    "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
    "Transformer", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
}  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.formatted_name)
def test_modules_compute_what_their_functions_do(info: Any, training: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in info.module_inputs_func(info, "cpu", torch.float, False, training):
            if sample.forward_input is None:
                continue
            made = sample.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).train(training)
            form = functional_form(module)
            if form is None:
                assert info.name.removeprefix("nn.") in WITHOUT or getattr(module, "padding_mode", "zeros") != "zeros"
            elif len(sample.forward_input.args) == len(form.inputs):
                check(module, form, sample.forward_input.args, sample.forward_input.kwargs)


def check(module: nn.Module, form: Any, args: Any, kwargs: Any) -> None:
    torch.manual_seed(0)
    try:
        want = module(*copied(args), **kwargs)
    except (RuntimeError, ValueError):
        return
    torch.manual_seed(0)
    tensors = {parameter: getattr(module, name) for parameter, name in form.tensors.items()}
    got = form.function(**dict(zip(form.inputs, copied(args), strict=True)), **kwargs, **tensors, **form.values)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def copied(args: Any) -> list[Any]:
    return [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]


def test_batch_norm_has_a_form_where_it_counts_nothing() -> None:
    norm = nn.BatchNorm2d(3)
    assert functional_form(norm) is None
    form = functional_form(norm.eval())
    assert form is not None
    assert (form.function, form.key) == (F.batch_norm, "batch_norm")
    assert set(form.tensors) == {"running_mean", "running_var", "weight", "bias"}
    assert functional_form(nn.BatchNorm1d(3, track_running_stats=False, momentum=None)).values == {  # type: ignore[union-attr]
        "training": True, "momentum": 0.0, "eps": 1e-5, "running_mean": None, "running_var": None,
    }  # fmt: skip


class Own(nn.Linear):
    """A class of the user's."""


def test_what_is_not_torch_s_own_has_none() -> None:
    hooked, replaced = nn.ReLU(), nn.ReLU()
    hooked.register_forward_hook(lambda *args: None)
    replaced.forward = torch.neg  # type: ignore[method-assign]
    circular = nn.Conv2d(1, 1, 1, padding_mode="circular")
    assert [functional_form(one) for one in (Own(2, 2), hooked, replaced, circular, nn.Sequential())] == [None] * 5
    assert [is_plain_module(one) for one in (Own(2, 2), hooked, replaced, circular)] == [False, False, False, True]
