"""The operators of torch that a file may name: those of the dispatcher, but for what memory does not survive.

Operators that only TorchScript has (`aten::save`, ...) are not of the dispatcher, so none of them is here.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

_NAMESPACES = frozenset({"aten", "prims", "quantized", "torchvision"})
# The internal operators that captures and decompositions have; what others take for granted, nothing checks.
_INTERNAL = frozenset({
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_addmm_activation", "_aminmax", "_assert_async",
    "_assert_scalar", "_assert_tensor_metadata", "_batch_norm_no_update", "_batch_norm_with_update",
    "_batch_norm_with_update_functional", "_cast_Byte", "_cast_Char", "_cast_Double", "_cast_Float", "_cast_Half",
    "_cast_Int", "_cast_Long", "_cast_Short", "_conj", "_conj_copy", "_conj_physical", "_convolution",
    "_convolution_mode", "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", "_functional_assert_async",
    "_functional_assert_scalar", "_grouped_mm", "_int_mm", "_is_all_true", "_is_any_true", "_linalg_check_errors",
    "_linalg_det", "_linalg_eigh", "_linalg_slogdet", "_linalg_solve_ex", "_linalg_svd", "_local_scalar_dense",
    "_log_softmax", "_logcumsumexp", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training", "_neg_view", "_neg_view_copy", "_pack_padded_sequence", "_pad_circular",
    "_pad_enum", "_pad_packed_sequence", "_prelu_kernel", "_reshape_copy", "_safe_softmax", "_sample_dirichlet",
    "_scaled_dot_product_attention_math", "_shape_as_tensor", "_softmax", "_stack", "_standard_gamma", "_to_copy",
    "_unique", "_unique2", "_unsafe_view", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
})  # fmt: skip
# Files; memory of others, or none; indices of sparse tensors, which nothing checks; other processes and streams.
_LEFT_OUT = frozenset({
    "from_file", "set_", "set", "set_data", "segment_reduce", "record_stream", "resize_as_sparse_", "sparse_resize_",
    "sparse_resize_and_clear_", "indices", "crow_indices", "col_indices", "ccol_indices", "row_indices",
    "sparse_coo_tensor", "sparse_compressed_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor",
    "sparse_bsc_tensor", "data_ptr", "const_data_ptr",
})  # fmt: skip
# Of batch norms those that look at the sizes of what they write, and those that write none of what they are given.
_BATCH_NORMS = frozenset({"batch_norm", "_batch_norm_no_update", "_native_batch_norm_legit_no_training"})
_ON_TRUST = frozenset({"ctc_loss", "_weight_norm", "_weight_norm_interface", "fused_moving_avg_obs_fake_quant"})
# They take what other libraries have packed, as a tensor that holds an address, or run on what they are built for.
_PACKED = ("fbgemm_", "mkldnn_", "miopen_", "cudnn_", "quantized_")
# What torch's Python adds to them, in C.
_CONSTRUCTORS = frozenset({"as_tensor", "asarray", "from_numpy", "tensor"})
_HOMES = (
    torch._C._nn, torch._C._fft, torch._C._linalg, torch._C._special,  # type: ignore[attr-defined]
)  # fmt: skip


@functools.cache
def operator_names() -> frozenset[str]:
    """The operators of `aten` that a file may name, without their overloads.

    >>> "relu" in operator_names(), "from_file" in operator_names(), "save" in operator_names()
    (True, False, False)
    """
    registered = {name.partition("::")[2].partition(".")[0] for name in _registered() if name.startswith("aten::")}
    public = {name for name in registered if not name.startswith("_") or name.startswith("__")}
    internal = {name for name in registered if name in _INTERNAL or name.startswith("_foreach_")}
    known = (public | internal) - _LEFT_OUT
    return frozenset(name for name in known if not name.startswith(_PACKED) and not _writes_on_trust(name))


def _writes_on_trust(name: str) -> bool:
    """Tell whether an operator of `aten` writes where its arguments say, unchecked: what a forward hands its backward,
    labels of a CTC loss, running statistics of any length, a norm for each row."""
    return "_backward" in name or name in _ON_TRUST or ("batch_norm" in name and name not in _BATCH_NORMS)


def takes_on_trust(value: Any) -> bool:
    """Tell whether a function or class is such an operator: arguments made for it write to memory of others.

    Whoever trusts a file may allow it by its full name.

    >>> takes_on_trust(torch.ops.aten.embedding_dense_backward), takes_on_trust(torch.nn.CTCLoss)
    (True, True)
    >>> takes_on_trust(torch.batch_norm), takes_on_trust(torch.Tensor.backward)
    (False, False)
    """
    if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        packet = value.overloadpacket if isinstance(value, torch._ops.OpOverload) else value
        namespace, _, name = str(packet._qualified_op_name).partition("::")
        return namespace == "aten" and _writes_on_trust(name)
    name = getattr(value, "__name__", "")
    homes = (torch._C._VariableFunctions, *_HOMES, torch.nn.functional)
    is_operator = _writes_on_trust(name) and any(getattr(home, name, None) == value for home in homes)
    return is_operator or value is torch.nn.CTCLoss


@functools.cache
def _registered() -> frozenset[str]:
    return frozenset(torch._C._dispatch_get_all_op_names())


def is_tensor_operator(value: Any) -> bool:
    """Tell whether a function is such an operator: `torch.ops.aten.add.Tensor`, or a function of C that calls one.

    >>> is_tensor_operator(torch.relu), is_tensor_operator(torch.ops.aten.add), is_tensor_operator(torch.from_file)
    (True, True, False)
    """
    if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        packet = value.overloadpacket if isinstance(value, torch._ops.OpOverload) else value
        namespace, _, name = str(packet._qualified_op_name).partition("::")
        if namespace == "aten":
            return name in operator_names()
        return namespace in _NAMESPACES and not name.startswith("_") and name not in _LEFT_OUT
    name = getattr(value, "__name__", "")
    if getattr(torch._C._VariableFunctions, name, None) == value:
        return name in operator_names() or name in _CONSTRUCTORS
    return any(home.__dict__.get(name) is value for home in _HOMES) and name in operator_names()
