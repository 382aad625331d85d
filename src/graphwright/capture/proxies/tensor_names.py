"""What each attribute and method of a tensor is to a capture: one closed table over `dir(torch.Tensor)`.

A name that a newer torch adds is in no row: it is a node if it gives tensors, and refused if it gives anything else.
Private names (`_version`) are taken like that, too.
"""

from __future__ import annotations

import enum


class Row(enum.Enum):
    """What a capture makes of a name."""

    SIZES = "what its sizes say, as a number of the program"
    RANK = "how many dimensions it has"
    DTYPE = "what follows from its dtype"
    FACT = "where and how it is kept: guarded where it is asked for"
    GRADIENT = "what autograd knows of it"
    TRUTH = "a truth about the data of several"
    DATA = "its data as a value of Python's"
    PYTHON = "what Python asks of any object: answered by the class of the stand-in, or by the text of the tensor"
    NODE = "an operation that gives tensors, or writes to them"


_NAMES = {
    Row.SIZES: """
        __len__ nbytes nelement numel shape size storage_offset stride
    """,
    Row.RANK: """
        dim ndim ndimension
    """,
    Row.DTYPE: """
        dtype element_size is_complex is_floating_point is_signed itemsize
    """,
    Row.FACT: """
        dense_dim device dim_order get_device grad_dtype has_names is_coalesced is_conj is_contiguous is_cpu
        is_cuda is_distributed is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_neg is_nested is_pinned
        is_quantized is_same_size is_set_to is_shared is_sparse is_sparse_csr is_vulkan is_xla is_xpu layout
        name names q_per_channel_axis q_scale q_zero_point qscheme sparse_dim storage_type volatile
    """,
    Row.GRADIENT: """
        grad grad_fn is_inference is_leaf output_nr requires_grad retains_grad
    """,
    Row.TRUTH: """
        allclose equal is_nonzero
    """,
    Row.DATA: """
        __array__ __bool__ __complex__ __contains__ __cuda_array_interface__ __dlpack__ __dlpack_device__
        __float__ __getstate__ __index__ __int__ __long__ __nonzero__ __reduce__ __reduce_ex__ __setstate__
        const_data_ptr data_ptr item numpy storage tolist untyped_storage
    """,
    Row.PYTHON: """
        __annotations__ __array_priority__ __array_wrap__ __class__ __deepcopy__ __delattr__ __delitem__
        __dict__ __dir__ __dlpack_c_exchange_api__ __doc__ __firstlineno__ __format__ __getattribute__
        __hash__ __init__ __init_subclass__ __iter__ __module__ __new__ __repr__ __reversed__ __setattr__ __sizeof__
        __slotnames__ __static_attributes__ __str__ __subclasshook__ __torch_dispatch__ __torch_function__ __weakref__
    """,
    Row.NODE: """
        align_as align_to refine_names rename rename_
        H T __abs__ __add__ __and__ __div__ __eq__ __floordiv__ __ge__ __getitem__ __gt__ __iadd__ __iand__
        __idiv__ __ifloordiv__ __ilshift__ __imod__ __imul__ __invert__ __ior__ __ipow__ __irshift__ __isub__
        __itruediv__ __ixor__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ __or__ __pos__
        __pow__ __radd__ __rand__ __rdiv__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__
        __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ __rxor__ __setitem__ __sub__ __truediv__ __xor__
        abs abs_ absolute absolute_ acos acos_ acosh acosh_ add add_ addbmm addbmm_ addcdiv addcdiv_ addcmul
        addcmul_ addmm addmm_ addmv addmv_ addr addr_ adjoint all amax amin aminmax angle any apply_ arccos
        arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh
        arctanh_ argmax argmin argsort argwhere as_strided as_strided_ as_strided_scatter as_subclass asin asin_
        asinh asinh_ atan atan2 atan2_ atan_ atanh atanh_ backward baddbmm baddbmm_ bernoulli bernoulli_
        bfloat16 bincount bitwise_and bitwise_and_ bitwise_left_shift bitwise_left_shift_ bitwise_not
        bitwise_not_ bitwise_or bitwise_or_ bitwise_right_shift bitwise_right_shift_ bitwise_xor bitwise_xor_
        bmm bool broadcast_to byte cauchy_ ccol_indices cdouble ceil ceil_ cfloat chalf char cholesky
        cholesky_inverse cholesky_solve chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clip clip_
        clone coalesce col_indices conj conj_physical conj_physical_ contiguous copy_ copysign copysign_
        corrcoef cos cos_ cosh cosh_ count_nonzero cov cpu cross crow_indices cuda cummax cummin cumprod
        cumprod_ cumsum cumsum_ data deg2rad deg2rad_ dequantize det detach detach_ diag diag_embed diagflat
        diagonal diagonal_scatter diff digamma digamma_ dist div div_ divide divide_ dot double dsplit eig eq
        eq_ erf erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_ expand expand_as expm1 expm1_ exponential_
        fill_ fill_diagonal_ fix fix_ flatten flip fliplr flipud float float_power float_power_ floor floor_
        floor_divide floor_divide_ fmax fmin fmod fmod_ frac frac_ frexp gather gcd gcd_ ge ge_ geometric_ geqrf
        ger greater greater_ greater_equal greater_equal_ gt gt_ half hardshrink hash_tensor heaviside
        heaviside_ histc histogram hsplit hypot hypot_ i0 i0_ igamma igamma_ igammac igammac_ imag index
        index_add index_add_ index_copy index_copy_ index_fill index_fill_ index_put index_put_ index_reduce
        index_reduce_ index_select indices inner int int_repr inverse ipu isclose isfinite isinf isnan isneginf
        isposinf isreal istft kron kthvalue lcm lcm_ ldexp ldexp_ le le_ lerp lerp_ less less_ less_equal
        less_equal_ lgamma lgamma_ log log10 log10_ log1p log1p_ log2 log2_ log_ log_normal_ log_softmax
        logaddexp logaddexp2 logcumsumexp logdet logical_and logical_and_ logical_not logical_not_ logical_or
        logical_or_ logical_xor logical_xor_ logit logit_ logsumexp long lstsq lt lt_ lu lu_solve mH mT map2_
        map_ masked_fill masked_fill_ masked_scatter masked_scatter_ masked_select matmul matrix_exp
        matrix_power max maximum mean median min minimum mm mode module_load moveaxis movedim msort mtia mul
        mul_ multinomial multiply multiply_ mv mvlgamma mvlgamma_ nan_to_num nan_to_num_ nanmean nanmedian
        nanquantile nansum narrow narrow_copy ne ne_ neg neg_ negative negative_ new new_empty new_empty_strided
        new_full new_ones new_tensor new_zeros nextafter nextafter_ nonzero nonzero_static norm normal_
        not_equal not_equal_ orgqr ormqr outer permute pin_memory pinverse polygamma polygamma_ positive pow
        pow_ prelu prod put put_ q_per_channel_scales q_per_channel_zero_points qr quantile rad2deg rad2deg_
        random_ ravel real reciprocal reciprocal_ record_stream register_hook register_post_accumulate_grad_hook
        reinforce relu relu_ remainder remainder_ renorm renorm_ repeat repeat_interleave requires_grad_ reshape
        reshape_as resize resize_ resize_as resize_as_ resize_as_sparse_ resolve_conj resolve_neg retain_grad
        roll rot90 round round_ row_indices rsqrt rsqrt_ scatter scatter_ scatter_add scatter_add_
        scatter_reduce scatter_reduce_ select select_scatter set_ sgn sgn_ share_memory_ short sigmoid sigmoid_
        sign sign_ signbit sin sin_ sinc sinc_ sinh sinh_ slice_inverse slice_scatter slogdet smm softmax solve
        sort sparse_mask sparse_resize_ sparse_resize_and_clear_ split split_with_sizes sqrt sqrt_ square
        square_ squeeze squeeze_ sspaddmm std stft sub sub_ subtract subtract_ sum sum_to_size svd swapaxes
        swapaxes_ swapdims swapdims_ symeig t t_ take take_along_dim tan tan_ tanh tanh_ tensor_split tile to
        to_dense to_mkldnn to_padded_tensor to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc
        to_sparse_csr topk trace transpose transpose_ triangular_solve tril tril_ triu triu_ true_divide
        true_divide_ trunc trunc_ type type_as unbind unflatten unfold uniform_ unique unique_consecutive
        unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_ values var vdot view view_as
        vsplit where xlogy xlogy_ xpu zero_
    """,
}
_ROWS = {name: row for row, names in _NAMES.items() for name in names.split()}


def names_in(row: Row) -> frozenset[str]:
    """The attributes and methods of a tensor that are in a row."""
    return frozenset(_NAMES[row].split())


def row_of(name: str) -> Row | None:
    """The row that an attribute or method of a tensor is in; None for a name that nobody has looked at.

    >>> row_of("relu").name, row_of("is_cuda").name, row_of("a_name_of_the_future")
    ('NODE', 'FACT', None)
    """
    return _ROWS.get(name)
