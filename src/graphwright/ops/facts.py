"""What torch's schemas do not say about its operators, by hand: other names, conditions, effects, algebra.

Operators are meant by their key, which is the dispatcher's name without `aten::` and without the underscore of those in
place. Only data stands here; operators.py and calls.py read it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of an operator: the names that its parameters have there, and what it passes besides.

    With `swapped`, the first two arguments change places: `a.__rsub__(b)` is `b - a`.
    """

    key: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    swapped: bool = False


class Flags(NamedTuple):
    """An effect that arguments decide: all the flags must be on. `parameters` are written, where it is a write."""

    flags: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()


def _aliases(text: str) -> dict[str, Alias]:
    return {other: Alias(key) for key, *others in map(str.split, text.strip().splitlines()) for other in others}


# The dispatcher's names that mean the operator at the start of the line.
ALIASES: dict[str, Alias] = _aliases("""
    abs absolute __abs__
    acos arccos
    acosh arccosh
    asin arcsin
    asinh arcsinh
    atan arctan
    atan2 arctan2
    atanh arctanh
    add __add__ __iadd__
    sub subtract __sub__ __isub__
    mul multiply __mul__ __imul__
    div divide true_divide __div__ __truediv__ __idiv__ __itruediv__
    floor_divide __floordiv__ __ifloordiv__
    remainder __mod__ __imod__
    matmul __matmul__ __imatmul__ linalg_matmul
    pow __pow__ __ipow__
    neg negative __neg__
    bitwise_and __and__ __iand__
    bitwise_or __or__ __ior__
    bitwise_xor __xor__ __ixor__
    bitwise_not __invert__
    bitwise_left_shift __lshift__ __ilshift__
    bitwise_right_shift __rshift__ __irshift__
    positive __pos__
    lt less __lt__
    le less_equal __le__
    gt greater __gt__
    ge greater_equal __ge__
    eq __eq__
    ne not_equal __ne__
    getitem __getitem__
    setitem __setitem__
    cat concat concatenate
    clamp clip
    digamma special_digamma special_psi
    erf special_erf
    erfc special_erfc
    erfinv special_erfinv
    exp2 special_exp2
    expm1 special_expm1
    i0 special_i0
    igamma special_gammainc
    igammac special_gammaincc
    lgamma special_gammaln
    log1p special_log1p
    log_softmax special_log_softmax
    logit special_logit
    logsumexp special_logsumexp
    mH adjoint
    movedim moveaxis
    mvlgamma special_multigammaln
    outer ger
    round special_round
    sigmoid special_expit
    sinc special_sinc
    softmax special_softmax
    numpy_T T
    matrix_H H
    transpose swapdims
    trunc fix
    vstack row_stack
    xlogy special_xlogy
    size shape
    dim ndim ndimension
    numel nelement
    log_sigmoid logsigmoid
    split split_with_sizes
""")
ALIASES |= {
    "det": Alias("linalg_det", {"input": "A"}),
    "inverse": Alias("linalg_inv", {"input": "A"}),
    "matrix_power": Alias("linalg_matrix_power"),
    "matrix_exp": Alias("linalg_matrix_exp"),
    "polygamma": Alias("special_polygamma"),
    "orgqr": Alias("linalg_householder_product", {"input2": "tau"}),
    "swapaxes": Alias("transpose", {"axis0": "dim0", "axis1": "dim1"}),
    "rsub": Alias("sub", swapped=True),
    "__rsub__": Alias("sub", swapped=True),
    "__radd__": Alias("add", swapped=True),
    "__rmul__": Alias("mul", swapped=True),
    "__rdiv__": Alias("div", swapped=True),
    "__rtruediv__": Alias("div", swapped=True),
    "__rfloordiv__": Alias("floor_divide", swapped=True),
    "__rmod__": Alias("remainder", swapped=True),
    "__rpow__": Alias("pow", swapped=True),
    "__rmatmul__": Alias("matmul", swapped=True),
    "__rand__": Alias("bitwise_and", swapped=True),
    "__ror__": Alias("bitwise_or", swapped=True),
    "__rxor__": Alias("bitwise_xor", swapped=True),
    "__rlshift__": Alias("bitwise_left_shift", swapped=True),
    "__rrshift__": Alias("bitwise_right_shift", swapped=True),
    **{
        f"{kind}max_pool{n}d_with_indices": Alias(f"{kind}max_pool{n}d", arguments={"return_indices": True})
        for kind in ("", "adaptive_", "fractional_")
        for n in (1, 2, 3)
    },
}

# Operators of the dispatcher that give something else than the function of torch.nn.functional with their name.
OF_DISPATCHER: dict[str, Alias] = {
    "embedding_bag": Alias("_embedding_bag"),
    **{
        name: Alias(name, arguments={"return_indices": True})
        for name in (
            "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
            "fractional_max_pool2d", "fractional_max_pool3d",
        )
    },
}  # fmt: skip

# Methods that another one does with an argument more.
_CASTS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32", "long": "int64",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "cpu": ("to", {"device": torch.device("cpu")}),
    **{name: ("to", {"dtype": getattr(torch, kind)}) for name, kind in _CASTS.items()},
}
# Functions of torch.nn.functional that the dispatcher knows by another name.
IN_FUNCTIONAL = {"unfold": "im2col", "fold": "col2im"}

# Attributes of tensors that are as good as a method without arguments.
PROPERTIES = frozenset({
    "shape", "ndim", "T", "mT", "H", "mH", "real", "imag", "data", "dtype", "device", "layout", "requires_grad", "grad",
    "grad_fn", "is_leaf", "itemsize", "nbytes", "is_cpu", "is_cuda", "is_meta", "is_mps", "is_nested", "is_quantized",
    "is_sparse", "is_sparse_csr", "is_xla", "is_xpu", "is_mkldnn", "names", "output_nr", "retains_grad", "_version",
})  # fmt: skip

# Python's operators: the key, and whether the first argument is written.
PYTHON_OPERATORS: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div", operator.matmul: "matmul",
    operator.floordiv: "floor_divide", operator.mod: "remainder", operator.pow: "pow", operator.neg: "neg",
    operator.pos: "positive", operator.abs: "abs", abs: "abs", operator.invert: "bitwise_not",
    operator.and_: "bitwise_and", operator.or_: "bitwise_or", operator.xor: "bitwise_xor",
    operator.lshift: "bitwise_left_shift", operator.rshift: "bitwise_right_shift",
    operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge", operator.eq: "eq", operator.ne: "ne",
    operator.getitem: "getitem", operator.setitem: "setitem", operator.delitem: "delitem",
    operator.iadd: "add", operator.isub: "sub", operator.imul: "mul", operator.itruediv: "div",
    operator.imatmul: "matmul", operator.ifloordiv: "floor_divide", operator.imod: "remainder", operator.ipow: "pow",
    operator.iand: "bitwise_and", operator.ior: "bitwise_or", operator.ixor: "bitwise_xor",
    operator.ilshift: "bitwise_left_shift", operator.irshift: "bitwise_right_shift", operator.iconcat: "concat",
}  # fmt: skip

# ---- parameters

# Names of parameters that mean the same everywhere, and those of single operators.
RENAMED: dict[str, dict[str, str]] = {
    "*": {"self": "input", "train": "training", "_random_samples": "random_samples"},
    "embedding": {"indices": "input"},
    "embedding_bag": {"indices": "input"},
    "lu": {"A": "input"},
    "split": {"tensor": "input", "split_size_or_sections": "split_size", "split_sizes": "split_size"},
}  # fmt: skip
# Parameters that change nothing that a program can see, or that are seen to elsewhere (`inplace` is a write).
DROPPED = frozenset({"_stacklevel", "cudnn_enable", "cudnn_enabled", "inplace"})

# What Python's parser of arguments takes and no schema says, or says in several ways. `ints`: one number, several, or a
# sequence of them; `items*`: by position they may stand one by one.
SIGNATURES: dict[str, tuple[str, ...]] = {
    "size": ("input, dim=None",),
    "stride": ("input, dim=None",),
    "dim": ("input",),
    "to": (
        "input, device: device = None, dtype: dtype = None, non_blocking: bool = False, copy: bool = False, *,"
        " memory_format=None",
        "input, dtype: dtype, non_blocking: bool = False, copy: bool = False, *, memory_format=None, device=None",
        "input, other: tensor, non_blocking: bool = False, copy: bool = False, *, memory_format=None",
    ),
    "type": ("input, dtype=None, non_blocking: bool = False",),
    "getitem": ("input, index",),
    "setitem": ("input, index, value",),
    "delitem": ("input, index",),
    "concat": ("input, other",),
    "nonzero": ("input, *, as_tuple=False",),
    "broadcast_shapes": ("shapes: items*",),
    "split": (
        "input, split_size, dim=0",
        "tensor, split_size_or_sections, dim=0",
        "input, split_sizes, dim=0",
    ),
    "norm": ("input, p='fro', dim: ints = None, keepdim=False, dtype=None",),
    "einsum": ("equation: str, operands: items*",),
    "unique": ("input, sorted=True, return_inverse=False, return_counts=False, dim=None",),
    "unique_consecutive": ("input, return_inverse=False, return_counts=False, dim=None",),
    "meshgrid": ("tensors: items*, *, indexing=None",),
    "broadcast_tensors": ("tensors: items*",),
    "block_diag": ("tensors: items*",),
    "cartesian_prod": ("tensors: items*",),
    "chain_matmul": ("matrices: items*, *, out=None",),
    "atleast_1d": ("tensors: items*",),
    "atleast_2d": ("tensors: items*",),
    "atleast_3d": ("tensors: items*",),
    "tensor": ("data, *, dtype=None, device=None, requires_grad=False, pin_memory=False",),
    "as_tensor": ("data, dtype=None, device=None",),
    "asarray": ("obj, *, dtype=None, device=None, copy=None, requires_grad=False",),
    "new_tensor": ("input, data, *, dtype=None, device=None, requires_grad=False, pin_memory=False",),
}  # fmt: skip

# What operators of Python with two arguments call the second.
SECOND = {"pow": "exponent"}
SIGNATURES_OF_METHODS: dict[str, str] = {"where": "input, condition, other"}

# ---- effects

# Operators that write to arguments where flags say so.
WRITES_IF: dict[str, Flags] = {
    **dict.fromkeys(
        ("batch_norm", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index"),
        Flags(("training",), ("running_mean", "running_var")),
    ),
    "instance_norm": Flags(("use_input_stats",), ("running_mean", "running_var")),
    "embedding": Flags(("max_norm",), ("weight",)),
    "embedding_bag": Flags(("max_norm",), ("weight",)),
}
# Operators that draw random numbers, always or where flags say so. (Those that the dispatcher marks do so always.)
DRAWS: dict[str, Flags] = {
    **dict.fromkeys((
        "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
        "multinomial", "poisson", "binomial", "gumbel_softmax", "manual_seed", "seed", "initial_seed",
        "fractional_max_pool2d", "fractional_max_pool3d", "pca_lowrank", "svd_lowrank", "lobpcg",
    ), Flags()),
    **dict.fromkeys((
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout",
        "native_dropout",
    ), Flags(("training", "p"))),
    "rrelu": Flags(("training",)),
    "rrelu_with_noise": Flags(("training",)),
    "scaled_dot_product_attention": Flags(("dropout_p",)),
    "multi_head_attention_forward": Flags(("training", "dropout_p")),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), Flags(("dropout", "training"))),
}  # fmt: skip
# Methods of tensors that act without writing to the tensor's values.
ACTING = frozenset({
    "backward", "retain_grad", "register_hook", "register_post_accumulate_grad_hook", "record_stream",
})  # fmt: skip
# Operators that may give back the very argument, or share its memory, though their schemas do not say so.
RETURNS_ARGUMENT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout",
        "getitem", "pad", "type", "data", "grad", "numpy", "interpolate", "upsample", "positive", "conj_physical",
        "unsafe_chunk", "unsafe_split", "sum_to_size", "local_response_norm", "to_dense", "to_sparse", "to_sparse_csr",
        "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc", "type_as", "_to_cpu", "_pad_enum", "_pad_circular",
        "_reshape_from_tensor", "_add_batch_dim", "_remove_batch_dim",
    ), ("input",)),
    **dict.fromkeys((
        "_embedding_bag", "unflatten_dense_tensors", "_saturate_weight_to_fp16", "to_dense_backward",
        "to_mkldnn_backward", "sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor",
        "sparse_bsc_tensor", "sparse_compressed_tensor", "_sparse_coo_tensor_unsafe", "_sparse_csr_tensor_unsafe",
        "_sparse_csc_tensor_unsafe", "_sparse_bsr_tensor_unsafe", "_sparse_bsc_tensor_unsafe", "new",
        "_sparse_compressed_tensor_unsafe", *(f"_cast_{kind}" for kind in
        ("Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")),
    ), ("*",)),
    "histogramdd": ("bins",),
    "einsum": ("operands",),
    "meshgrid": ("tensors",),
    "broadcast_tensors": ("tensors",),
    "cartesian_prod": ("tensors",),
    "chain_matmul": ("matrices",),
    "atleast_1d": ("tensors",),
    "atleast_2d": ("tensors",),
    "atleast_3d": ("tensors",),
    "as_tensor": ("data",),
    "asarray": ("obj",),
    "split": ("input",),
}  # fmt: skip

# Operators that no schema describes and that share no memory with what they get.
MAKES_NEW = frozenset({
    "tensor", "new_tensor", "size", "dim", "stride", "numel", "item", "tolist", "element_size", "is_shared", "data_ptr",
    "nbytes", "itemsize", "unique", "unique_consecutive", "block_diag", "lu", "svd_lowrank", "pca_lowrank", "lobpcg",
    "cdist", "tensordot", "stft", "istft", "norm", "broadcast_shapes", "unravel_index", "dtype", "device", "layout",
    "requires_grad", "is_leaf", "is_cpu", "is_cuda", "is_meta", "is_nested", "is_quantized", "is_sparse", "_is_view",
    "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum", "manual_seed", "seed",
    "initial_seed",
})  # fmt: skip
# Methods of tensors that Python's own business needs; under other names with an underscore, nobody knows.
PRIVATE_METHODS = frozenset({"_is_view", "_version"})

# ---- algebra

# Operators whose two parameters may change places.
COMMUTATIVE: dict[str, tuple[str, str]] = {
    **dict.fromkeys((
        "add", "mul", "eq", "ne", "maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or", "logical_xor",
        "bitwise_and", "bitwise_or", "bitwise_xor", "logaddexp", "logaddexp2", "hypot", "gcd", "lcm",
    ), ("input", "other")),
    "dot": ("input", "tensor"),
    "cosine_similarity": ("x1", "x2"),
}  # fmt: skip
# Operators that give the elements of their input, moved at most; and those that ask for its shape alone.
SHAPE_ONLY = frozenset({
    "view", "reshape", "flatten", "unflatten", "permute", "transpose", "t", "numpy_T", "mT", "mH", "matrix_H",
    "squeeze", "unsqueeze", "expand", "expand_as", "movedim", "contiguous", "view_as", "reshape_as", "narrow", "select",
    "slice", "unbind", "split", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit", "unsafe_split", "unsafe_chunk",
    "unfold", "flip", "fliplr", "flipud", "roll", "rot90", "tile", "repeat", "diagonal", "atleast_1d",
    "atleast_2d", "atleast_3d", "broadcast_to", "broadcast_tensors", "ravel", "pixel_shuffle", "pixel_unshuffle",
    "channel_shuffle", "meshgrid", "size", "dim", "numel", "stride", "is_contiguous",
})  # fmt: skip
# Methods that write though their name does not say so.
WRITING_METHODS = frozenset({
    "__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__", "__ifloordiv__", "__imod__", "__imatmul__",
    "__ipow__", "__ilshift__", "__irshift__", "__iand__", "__ixor__", "__ior__", "__setitem__", "__delitem__",
    "__setattr__", "__delattr__", "__setstate__", "resize", "resize_as",
})  # fmt: skip
