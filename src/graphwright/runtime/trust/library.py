"""The functions of Python's, of torch's and of ours that a program may call: by table, never by where they live."""

from __future__ import annotations

import cmath
import collections
import copy
import functools
import heapq
import math
import operator
import random
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy
import torch
import torch.nn.attention
import torch.nn.functional
import torch.nn.utils.rnn
import torch.utils.checkpoint
from torch import nn
from torch.nn.utils.parametrizations import _OrthMaps

from graphwright import ops
from graphwright.ir import NodeSource, NodeSourceAction
from graphwright.runtime import dispatch, guards, objects
from graphwright.runtime.trust import fields, kernels
from graphwright.runtime.trust.members import methods_of_kind
from graphwright.runtime.trust.operators import is_tensor_operator, takes_on_trust
from graphwright.values import TensorMetadata

CONTAINERS = (
    collections.OrderedDict,
    collections.defaultdict,
    collections.Counter,
    collections.deque,
    collections.ChainMap,
)
# What enters and leaves: their constructors take switches and names of devices.
MANAGERS = (
    torch.no_grad, torch.enable_grad, torch.set_grad_enabled, torch.inference_mode, torch.autocast,
    torch.random.fork_rng, torch.nn.attention.sdpa_kernel, torch.autograd.detect_anomaly,
    torch.autograd.set_detect_anomaly, torch.backends.cudnn.flags, torch.backends.mkldnn.flags,
    torch.backends.cuda.sdp_kernel, torch.backends.opt_einsum.flags,
)  # fmt: skip
_CLASSES = (
    bool, bytes, complex, dict, enumerate, float, frozenset, int, list, object, range, reversed, set, slice, str, tuple,
    zip, types.SimpleNamespace, torch.Tensor, torch.Size, torch.device, torch.dtype, torch.finfo, torch.iinfo,
    torch.Generator, torch.layout, torch.memory_format, nn.Buffer, nn.Parameter, nn.utils.rnn.PackedSequence,
    torch.nn.attention.SDPBackend, _OrthMaps, NodeSource, NodeSourceAction, TensorMetadata, *CONTAINERS,
)  # fmt: skip
_OPERATORS = frozenset({
    "abs", "add", "and_", "concat", "contains", "countOf", "delitem", "eq", "floordiv", "ge", "getitem", "gt", "iadd",
    "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "index", "indexOf", "inv", "invert", "ior",
    "ipow", "irshift", "is_", "is_not", "isub", "itruediv", "ixor", "le", "lshift", "lt", "matmul", "mod", "mul",
    "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "setitem", "sub", "truediv", "truth", "xor",
})  # fmt: skip
_TORCH = frozenset({
    "_assert", "are_deterministic_algorithms_enabled", "compiled_with_cxx11_abi", "get_default_dtype", "get_rng_state",
    "initial_seed", "is_autocast_enabled", "is_grad_enabled", "is_inference_mode_enabled", "is_storage", "is_tensor",
    "manual_seed", "seed", "set_rng_state", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not",
    "sym_sum", "typename",
})  # fmt: skip
_FUNCTIONAL = frozenset({
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d_with_indices",
    "affine_grid", "cross_entropy", "fold", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices", "gaussian_nll_loss", "grid_sample", "grouped_mm", "gumbel_softmax",
    "interpolate", "linear_cross_entropy", "local_response_norm", "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d",
    "multi_head_attention_forward", "multilabel_soft_margin_loss", "normalize", "scaled_grouped_mm", "scaled_mm",
    "softmin", "softsign", "tanhshrink", "upsample", "upsample_bilinear", "upsample_nearest",
})  # fmt: skip
_INIT = frozenset({
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
    "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
})  # fmt: skip
_RANDOM = frozenset({
    "betavariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits", "lognormvariate",
    "normalvariate", "paretovariate", "randbytes", "randint", "random", "randrange", "sample", "seed", "shuffle",
    "triangular", "uniform", "vonmisesvariate", "weibullvariate",
})  # fmt: skip
_ARRAYS_MADE = (
    "arange", "array", "asarray", "bincount", "concatenate", "dot", "empty", "empty_like", "inner", "lexsort",
    "packbits", "ravel_multi_index", "result_type", "unpackbits", "unravel_index", "vdot", "where", "zeros",
)  # fmt: skip
# These call, read by name, enter or raise what they are given: as the target of a node it can be seen what that is.
TARGETS_ALONE = (
    copy.copy, copy.deepcopy, getattr, hasattr, setattr, iter, print, sorted, min, max, heapq.merge, heapq.nlargest,
    heapq.nsmallest, collections.defaultdict, ops.cond, ops.while_loop, ops.for_loop, ops.transformed,
    ops.Entering, ops.enter_context,
    ops.exit_context, ops.raise_error, ops.generated, ops.write_attribute, ops.set_attribute,
    ops.delete_attribute, ops.evaluated, ops.expect_bound, ops.unpack, objects.attributes_of, objects.attribute_names,
    objects.new_object, objects.array_facts, objects.layer_facts, fields.read_attributes, fields.read_field,
    fields.read_private, fields.write_data,
    torch.utils.checkpoint.checkpoint, torch.func.functional_call, isinstance, dispatch.choose, dispatch.refuse_call,
    *guards.EXPECTATIONS, *MANAGERS,
)  # fmt: skip

# Functions of ours in rooms that are loaded at first use: they compute tensors of tensors, and nothing else.
OF_ROOMS: Mapping[str, frozenset[str]] = types.MappingProxyType({
    "graphwright.quantization.affine": frozenset({"quantize", "dequantize"}),
    "graphwright.quantization.layer_functions": frozenset({
        "quantized_conv", "quantized_conv_transpose", "quantized_embedding", "quantized_linear",
    }),
    "graphwright.quantization.layers": frozenset(),
    "graphwright.quantization.recurrent_functions": frozenset({
        "quantized_gru", "quantized_gru_cell", "quantized_lstm", "quantized_lstm_cell",
    }),
    "graphwright.quantization.recurrent_layers": frozenset(),
})  # fmt: skip
# Classes of ours that only hold data, of which a prepared module says what it was prepared for.
DATA_OF_ROOMS: Mapping[str, frozenset[str]] = types.MappingProxyType({
    "graphwright.quantization.schemes": frozenset({
        "PerAxis", "PerGroup", "PerTensor", "PerToken", "QConfig", "Scheme",
    }),
    "graphwright.quantization.mapping": frozenset({"QConfigMapping", "Rule"}),
    "graphwright.quantization.backends": frozenset({"Backend"}),
    "graphwright.quantization.preparing": frozenset({"Preparation"}),
})  # fmt: skip


@functools.cache
def _known() -> dict[int, Any]:
    """Every function that a program may call, but for operators of torch, methods, classes and draws."""
    found: list[Any] = [*TARGETS_ALONE, *_CLASSES]
    found += [abs, all, any, callable, divmod, len, pow, round, sum]
    found += [getattr(operator, name) for name in _OPERATORS]
    for home in (math, cmath):
        found += [value for name, value in vars(home).items() if not name.startswith("_") and callable(value)]
    found += [heapq.heapify, heapq.heappop, heapq.heappush, heapq.heappushpop, heapq.heapreplace]
    found += [getattr(home, name) for home in (torch, torch.random) for name in _TORCH if hasattr(home, name)]
    found += [getattr(torch.functional, name) for name in torch.functional.__all__]
    found += _functions_of(torch.nn.functional, _functional_names())
    found += _functions_of(nn.init, _INIT)
    found += [value for value in vars(torch.return_types).values() if isinstance(value, type)]
    found.append(kernels.weight_norm)
    found += [getattr(torch.autograd, name) for name in ("grad", "backward")]
    found += [getattr(nn.utils.rnn, name) for name in nn.utils.rnn.__all__ if name != "PackedSequence"]
    return {id(value): value for value in found if callable(value)}


def _functional_names() -> frozenset[str]:
    """What `torch.nn.functional` has for operators of torch, under their names, and beside them."""
    names = {name for name in dir(torch.nn.functional) if hasattr(torch.ops.aten, name.rstrip("_"))}
    names = {name for name in names if not takes_on_trust(getattr(torch.nn.functional, name))}
    return frozenset({*names, *_FUNCTIONAL, "dropout1d", "dropout2d", "dropout3d", "max_unpool1d"})


def _functions_of(home: Any, names: frozenset[str]) -> list[Any]:
    """The functions of a module under these names: its own, those that choose between two, and operators."""
    found = []
    for name in names:
        value = getattr(home, name, None)
        own = getattr(value, "__module__", None)
        is_own = isinstance(value, types.FunctionType) and own in (home.__name__, "torch._jit_internal")
        if (is_own and name != "boolean_dispatch") or (
            isinstance(value, types.BuiltinFunctionType) and is_tensor_operator(value)
        ):
            found.append(value)
    return found


def may_be_called(value: Any) -> bool:
    """Tell whether a program may call a function or class without anybody's leave.

    >>> may_be_called(torch.relu), may_be_called(math.sqrt), may_be_called(eval), may_be_called(torch.load)
    (True, True, False, False)
    """
    if getattr(value, "__module__", None) == torch.random.__name__:  # torch.compile wraps what others import from there
        value = getattr(torch.random, getattr(value, "__name__", ""), value)
    if id(value) in _known() or is_tensor_operator(value) or (is_exception(value) and issubclass(value, Exception)):
        return True
    if ops.is_open_function(value):
        return True
    return _is_method(value) or _is_arithmetic(value) or _is_draw(value) or _is_of_room(value)


def makes_arrays(value: Any) -> bool:
    """Tell whether a value is one of NumPy's functions, written in C, that make arrays of numbers."""
    return any(getattr(numpy, name) is value for name in _ARRAYS_MADE)


def is_exception(value: Any) -> bool:
    """Tell whether a value is a class of exceptions of Python's own."""
    return issubclass(type(value), type) and issubclass(value, BaseException) and value.__module__ == "builtins"


def is_plain_class(value: Any) -> bool:
    """Tell whether a value is a class whose objects are plain: a container, number, or tensor."""
    return any(value is known for known in _CLASSES)


def _is_method(value: Any) -> bool:
    """Tell whether a function is a method of one of the kinds of values, called as a function: `set.add`."""
    name = getattr(value, "__name__", "")
    owner = getattr(value, "__objclass__", None)
    if owner in (torch._C.TensorBase, None) and getattr(torch.Tensor, name, None) is value:
        owner = torch.Tensor
    if not isinstance(owner, type) or not name:
        return False
    return name in methods_of_kind(owner) and getattr(owner, name, None) == value and name != "format"


def is_data_of_room(value: Any) -> bool:
    """Tell whether a value is one of our classes that only hold data."""
    home, name = str(getattr(value, "__module__", "")), getattr(value, "__name__", "")
    return name in DATA_OF_ROOMS.get(home, ()) and getattr(sys.modules.get(home), name, None) is value


def _is_of_room(value: Any) -> bool:
    """Tell whether a function is one of the table of those in rooms that are loaded at first use."""
    home, name = str(getattr(value, "__module__", "")), getattr(value, "__name__", "")
    return name in OF_ROOMS.get(home, ()) and getattr(sys.modules.get(home), name, None) is value


def _is_arithmetic(value: Any) -> bool:
    """Tell whether an object is a class of NumPy's numbers, or one of its operators."""
    if isinstance(value, numpy.ufunc):
        return getattr(numpy, value.__name__, None) is value
    return issubclass(type(value), type) and issubclass(value, numpy.number | numpy.bool_)


def _is_draw(value: Any) -> bool:
    """Tell whether a function draws from the generator that the module `random`, or that of NumPy, holds."""
    if value is numpy.random.seed:  # which does not say whose it is
        return True
    owner, name = getattr(value, "__self__", None), getattr(value, "__name__", "")
    if type(owner) is random.Random:
        return name in _RANDOM and getattr(random, name, None) == value
    is_numpys = type(owner) is numpy.random.RandomState and getattr(sys.modules["numpy.random"], name, None) == value
    return is_numpys and not name.startswith("_")
