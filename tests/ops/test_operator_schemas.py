# ruff: noqa: E501, UP006, UP007, UP035, UP045 - the spellings of annotations are what is tested
"""`normalize_function` and its relatives, held to torch.fx's on PyTorch's own operator database."""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import types
import warnings
from typing import Any, List, Optional, Tuple, Union

import pytest
import torch
import torch.nn.functional as F
from tests.operator_samples import first_samples
from torch import Tensor, nn
from torch.fx import operator_schemas as reference
from torch.testing._internal.common_methods_invocations import op_db

import graphwright as fx
from graphwright import operator_schemas as ours

X = torch.ones(2)


def outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except ValueError:  # torch.fx finds no signature of a function written in C; here that is None
            return None
        except (TypeError, RuntimeError) as error:
            return TypeError if isinstance(error, TypeError) else RuntimeError


def described(value: Any) -> Any:
    """By identity for what was passed in, by value for the defaults."""
    if value is None or isinstance(value, type):
        return value
    args, kwargs = value
    return [id(arg) for arg in args], {
        name: id(arg) if isinstance(arg, Tensor) else repr(arg) for name, arg in kwargs.items()
    }


def keywords_only(a: int, *, b: int, c: int = 3) -> None: ...
def stars(a: int, *args: int, b: int = 2) -> None: ...
def position_only(a: int, /, b: int) -> None: ...


CALLS = [
    (keywords_only, (1,), {"b": 3}), (keywords_only, (), {"c": 5, "b": 3, "a": 1}), (keywords_only, (1,), {}),
    (keywords_only, (1, 2), {}), (keywords_only, (1,), {"a": 1, "b": 3}), (keywords_only, (1,), {"q": 1, "b": 3}),
    (stars, (1, 2), {}), (position_only, (1, 2), {}), (functools.partial(keywords_only, b=2), (1,), {}),
    (F.relu, (X,), {}), (F.relu, (), {"inplace": True, "input": X}), (F.max_pool2d, (X, 2), {"return_indices": True}),
    (F.max_pool2d, (X, 2, 2, 0, 1, False, True), {}), (F.gelu, (X,), {}), (F.linear, (X, X), {}), (F.conv2d, (X, X), {}),
    (F.scaled_dot_product_attention, (X, X, X), {}), (F.embedding, (X, X), {}), (F.cross_entropy, (X, X), {}),
    (torch.relu, (X,), {}), (torch.relu, (X, 1, 2), {}), (torch.relu, (X,), {"q": 1}), (torch.sum, (X,), {}),
    (torch.sum, (X,), {"dim": 1}), (torch.sum, (X,), {"dtype": torch.float}), (torch.max, (X, 1), {}),
    (torch.add, (X, X), {}), (torch.zeros, (2, 3), {}), (torch.zeros, ((2, 3),), {}), (torch.einsum, ("i", X), {}),
    (torch.norm, (X,), {}), (torch.meshgrid, (X, X), {}), (torch.special.expit, (X,), {}), (torch.fft.fft, (X,), {}),
    (torch.linalg.norm, (X,), {}), (torch.full_like, (X,), {"fill_value": 1}), (torch.nn.init.normal_, (X,), {}),
    (operator.add, (X, X), {}), (operator.getitem, (X, 0), {}), (len, ([1],), {}), (getattr, (X, "a"), {}),
    (str.upper, ("a",), {}), (nn.Linear, (2, 3), {}), (torch.ops.aten.add.Tensor, (X, X), {}),
    (torch.ops.aten.add.Tensor, (), {"self": X, "other": X}), (torch.ops.aten.add.Tensor, (X, X, X), {}),
    (torch.ops.aten.add.out, (X, X), {"out": X}), (torch.ops.aten.add, (X, X), {}), (torch.ops.prims.abs, (X,), {}),
]  # fmt: skip


@pytest.mark.parametrize("only_keywords", [False, True])
@pytest.mark.parametrize(("target", "args", "kwargs"), CALLS, ids=lambda value: getattr(value, "__name__", ""))
def test_calls_are_bound_alike(target: Any, args: Any, kwargs: Any, only_keywords: bool) -> None:
    want, got = (
        described(outcome(library.normalize_function, target, args, kwargs, None, None, only_keywords))
        for library in (reference, ours)
    )
    assert got == want


TYPED = [
    (torch.add, (X, 1), {}, (Tensor, int), {}), (torch.add, (X, X), {}, (Tensor, Tensor), {}),
    (torch.add, (X,), {"other": X}, (Tensor,), {"other": Tensor}), (torch.add, (X,), {"other": X}, (Tensor,), {}),
    (torch.add, (X, X), {}, (Tensor, str), {}), (torch.add, (1, 2), {}, (bool, int), {}),
    (F.conv2d, (X, X, None, 1), {}, (Tensor, Tensor, type(None), int), {}), (torch.relu, (1,), {}, (str,), {}),
    (torch.sum, (X, 1), {}, (Tensor, int), {}),
]  # fmt: skip


@pytest.mark.parametrize(("target", "args", "kwargs", "arg_types", "kwarg_types"), TYPED)
def test_types_choose_the_overload(target: Any, args: Any, kwargs: Any, arg_types: Any, kwarg_types: Any) -> None:
    want, got = (
        described(outcome(library.normalize_function, target, args, kwargs, arg_types, kwarg_types))
        for library in (reference, ours)
    )
    assert got == want


def test_an_ambiguous_call_lists_what_it_could_mean() -> None:
    with pytest.raises(RuntimeError, match="schema match was ambiguous") as error:
        ours.normalize_function(torch.max, (X, 1))
    assert "(input: torch.Tensor, dim: int, keepdim: bool = False)" in str(error.value)


NORMALIZES_MORE = {"nonzero"}  # torch.fx replaces its schema by one that fits no call


@pytest.mark.sampled(10)
@pytest.mark.parametrize("op", op_db, ids=lambda op: op.formatted_name)
def test_every_operator_of_the_database(op: Any) -> None:
    dtype = torch.float if op.supports_dtype(torch.float, "cpu") else next(iter(op.dtypes), torch.float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = first_samples(op, dtype, 3)
    for sample in samples:
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        arg_types, kwarg_types = tuple(map(type, args)), {name: type(arg) for name, arg in kwargs.items()}
        if any(isinstance(arg, list | tuple) for arg in args):
            arg_types = tuple(
                ours.create_type_hint(type(arg)(map(type, arg))) if type(arg) in (list, tuple) else type(arg)
                for arg in args
            )
        want, got = (
            described(outcome(library.normalize_function, op.op, args, kwargs, arg_types, kwarg_types, only_keywords))
            for library, only_keywords in ((reference, True), (ours, True))
        )
        assert got == want or op.name in NORMALIZES_MORE


def test_signatures_of_operators() -> None:
    functions = [torch.add, torch.sum, torch.stack, torch.where, torch.full, F.conv2d, F.gelu, torch.fft.fft, torch.split,
                 torch.special.expit, torch.linalg.svd, torch.ops.aten.add.Tensor, torch.ops.aten.sum, F.relu, len,
                 operator.add, torch.quantile, torch.tensor, torch.einsum]  # fmt: skip
    for function in functions:
        want, got = (library.get_signature_for_torch_op(function) for library in (reference, ours))
        assert str(got) == str(want), function
        want, got = (library.get_signature_for_torch_op(function, return_schemas=True) for library in (reference, ours))
        assert str(got) == str(want), function


def test_signatures_take_generators() -> None:
    (signature, *_) = ours.get_signature_for_torch_op(torch.bernoulli)
    assert signature.parameters["generator"].annotation == Optional[torch.Generator]


TYPES = [
    int, float, bool, complex, numbers.Number, Tensor, nn.Parameter, str, type(None), torch.dtype, torch.device,
    List[int], List[float], List[Tensor], List[bool], Optional[int], Optional[List[int]], Optional[Tensor],
    Tuple[int, int], Tuple[int, ...], Tuple[Tensor, Tensor], Tuple[int, float], list, tuple, Any, Union[int, float],
    list[int], tuple[Tensor, ...], object, torch.Size, Tuple[Tensor, int], List[Any],
]  # fmt: skip


@pytest.mark.parametrize("parameter", TYPES, ids=str)
def test_types_match_alike(parameter: Any) -> None:
    for argument in TYPES:
        if parameter is object and isinstance(argument, types.GenericAlias):
            continue  # a subclass of it before Python 3.11
        want = outcome(reference.type_matches, parameter, argument)  # raises where generics meet generics
        assert ours.type_matches(parameter, argument) == (want is True), argument


def test_type_hints() -> None:
    values = [1, None, "a", [1, 2], (1, "a"), [], (), [[1]], (Tensor, int), [Tensor, Tensor], [int, float], (int, int),
              [Tensor, nn.Parameter], int, {"a": int}, [int, bool], [bool, int], [None, int], slice(1, 2),
              [type(None), int], (int,), (Tensor, [int])]  # fmt: skip
    for value in values:
        told = []
        for library in (reference, ours):
            with warnings.catch_warnings(record=True) as record:
                warnings.simplefilter("always")
                told.append((library.create_type_hint(value), [str(warning.message) for warning in record]))
        assert told[1] == told[0], value


def test_a_target_that_is_no_function_is_refused() -> None:
    for library in (reference, ours):
        with pytest.raises(AssertionError, match="must be callable, got <class 'str'>"):
            library.normalize_function("add", (1,))


class Own(nn.Linear):
    def forward(self, input: Tensor, scale: int = 3) -> Tensor:
        return super().forward(input) * scale


MODULES = nn.ModuleDict({
    "linear": nn.Linear(2, 2), "list": nn.Sequential(nn.ReLU()), "lstm": nn.LSTM(2, 2), "own": Own(2, 2),
    "attention": nn.MultiheadAttention(2, 1), "bilinear": nn.Bilinear(2, 2, 2),
})  # fmt: skip


@pytest.mark.parametrize("only_keywords", [False, True])
@pytest.mark.parametrize(
    ("target", "args"),
    [("linear", (X,)), ("linear", (X, X)), ("linear", ()), ("list", (X,)), ("list.0", (X,)), ("lstm", (X,)),
     ("own", (X,)), ("attention", (X, X, X)), ("bilinear", (X, X)), ("absent", (X,))],
)  # fmt: skip
def test_modules_are_bound_alike(target: str, args: Any, only_keywords: bool) -> None:
    want, got = (
        described(outcome(library.normalize_module, MODULES, target, args, None, only_keywords))
        for library in (reference, ours)
    )
    assert got == want


@pytest.mark.parametrize(
    ("target", "args", "kwargs"),
    [(torch.relu_, (X,), {}), (torch.relu, (X,), {"out": X}), (torch.add, (X, X), {"out": X}), (torch.add, (X, X), {}),
     (F.relu, (X, True), {}), (F.relu_, (X,), {}), (operator.iadd, (X, X), {}), (torch.sum, (X, 2), {"out": X}),
     (torch.clamp_, (X, 1), {}), (torch.ops.aten.add_.Tensor, (X, X), {})],
)  # fmt: skip
def test_operations_that_write_are_told_alike(target: Any, args: Any, kwargs: Any) -> None:
    texts = []
    for library in (reference, ours):
        try:
            library.check_for_mutable_operation(target, args, kwargs)
            texts.append("")
        except RuntimeError as error:
            texts.append(str(error).splitlines()[0])
    assert texts[1] == texts[0]


def test_the_signatures_of_torch_fx() -> None:
    for name in ("normalize_function", "normalize_module", "get_signature_for_torch_op", "type_matches",
                 "create_type_hint", "check_for_mutable_operation"):  # fmt: skip
        want, got = (inspect.signature(getattr(library, name)) for library in (reference, ours))
        assert {n: p.default for n, p in got.parameters.items()} == {n: p.default for n, p in want.parameters.items()}
    assert ours.ArgsKwargsPair._fields == reference.ArgsKwargsPair._fields


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool1d(F.relu(self.linear(x)), 1).neg() + torch.relu(x)


@pytest.mark.parametrize("only_keywords", [False, True])
def test_nodes_tell_their_normalized_arguments(only_keywords: bool) -> None:
    net = Net()
    told = []
    for library in (torch.fx, fx):
        module = library.symbolic_trace(net)
        told.append(
            [
                str(node.normalized_arguments(net, normalize_to_only_use_kwargs=only_keywords))
                for node in module.graph.nodes
            ]
        )
    assert told[1] == told[0]
