"""Dtypes and devices that objects keep as attributes, followed to the calls that get them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import GraphModule, load, save, trace
from graphwright.capture.calls.kept_values import KeptValue, KeptValues
from graphwright.errors import GuardError


class Layer:
    """A layer of a cache, which is empty until it gets something."""

    def __init__(self) -> None:
        self.keys: torch.Tensor | None = None

    def update(self, keys: torch.Tensor) -> torch.Tensor:
        if self.keys is None:
            self.dtype, self.device = keys.dtype, keys.device
            self.keys = torch.zeros(1, 2, dtype=self.dtype, device=self.device)
        self.keys = torch.cat([self.keys, keys])
        return self.keys


class Attention(nn.Module):
    """A layer that fills a cache, its own or one that it is given."""

    def __init__(self, use: Callable[[Layer, torch.Tensor], Any] = lambda layer, keys: layer.update(keys)) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.use = use

    def forward(self, x: torch.Tensor, cache: Layer | None = None) -> tuple[torch.Tensor, Layer]:
        cache = Layer() if cache is None else cache
        keys = self.linear(x)
        return keys * 2, self.use(cache, keys), cache  # type: ignore[return-value]


X = torch.ones(3, 2)


def check_in(gm: GraphModule, model: nn.Module, dtype: torch.dtype, *others: Any) -> None:
    """Both compute the same in another dtype, and their caches say so."""
    converted, eager = copy.deepcopy(gm).to(dtype), copy.deepcopy(model).to(dtype)
    results = [each(X.to(dtype), *copy.deepcopy(others)) for each in (converted, eager)]
    torch.testing.assert_close(results[0][:2], results[1][:2])
    mine, theirs = vars(results[0][2]), vars(results[1][2])
    assert mine.keys() == theirs.keys()
    assert mine["dtype"] == theirs["dtype"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_an_object_that_the_program_makes_keeps_the_dtype_of_a_tensor(dtype: torch.dtype, tmp_path: Any) -> None:
    model = Attention()
    gm = trace(model, X)
    check_in(gm, model, dtype)
    assert "torch.float32" not in gm.code
    save(gm, tmp_path / "layer.gw")
    check_in(load(tmp_path / "layer.gw", allow=[__name__]), model, dtype)
    assert not hasattr(Layer, "dtype")
    assert "dtype" not in vars(Layer)


def test_an_object_that_the_program_is_given_gets_the_dtype_of_a_tensor() -> None:
    model = Attention()
    gm = trace(model, (X, Layer()))
    check_in(gm, model, torch.float64, Layer())


def test_what_an_input_keeps_is_guarded_where_it_is_read() -> None:
    def filled(dtype: torch.dtype) -> Layer:
        layer = Layer()
        layer.update(torch.ones(1, 2, dtype=dtype))
        return layer

    model = Attention()
    gm = trace(model, (X, filled(torch.float32)))
    check_in(gm, model, torch.float64, filled(torch.float64))

    reading = Attention(lambda layer, keys: (layer.update(keys), torch.ones(2, dtype=layer.dtype)))
    gm = trace(reading, (X, filled(torch.float32)))
    check_in(gm, reading, torch.float32, filled(torch.float32))
    with pytest.raises(GuardError, match=r"cache_dtype.*was torch.float32"):
        gm.to(torch.float64)(X.double(), filled(torch.float64))


def copied(layer: Layer, keys: torch.Tensor) -> torch.Tensor:
    layer.update(keys)
    return torch.ones(2, dtype=copy.copy(layer).dtype)


def in_several_steps(layer: Layer, keys: torch.Tensor) -> torch.Tensor:
    layer.update(keys)
    kind = layer.dtype
    return torch.ones(2, dtype=torch.float64).to(kind)


@pytest.mark.parametrize("use", [copied, in_several_steps])
def test_what_is_read_of_it_is_handed_on(use: Callable[..., Any]) -> None:
    model = Attention(use)
    gm = trace(model, X)
    check_in(gm, model, torch.float64)


def compared(layer: Layer, keys: torch.Tensor) -> torch.Tensor:
    layer.update(keys)
    return keys * 2 if layer.dtype == torch.float32 else keys * 3


def said(layer: Layer, keys: torch.Tensor) -> tuple[torch.Tensor, str]:
    return layer.update(keys), str(layer.dtype)


def found_in_the_table(layer: Layer, keys: torch.Tensor) -> torch.Tensor:
    layer.update(keys)
    return keys * 2 if vars(layer)["dtype"] == torch.float32 else keys * 3


def found_by_name(layer: Layer, keys: torch.Tensor) -> tuple[torch.Tensor, Any]:
    layer.update(keys)
    return keys, {getattr(layer, name) for name in ("dtype",)}


def kept_again(layer: Layer, keys: torch.Tensor) -> Any:
    layer.update(keys)
    other = Layer()
    (other.dtype,) = [layer.dtype]
    return other


def not_kept_after_all(layer: Layer, keys: torch.Tensor) -> torch.Tensor:
    try:
        layer.dtype, layer.rank = keys.dtype, keys.ranks  # type: ignore[attr-defined]
    except AttributeError:
        layer.dtype = torch.float32
    return torch.ones(2, dtype=layer.dtype)


ASKING = [compared, said, found_in_the_table, found_by_name, kept_again, not_kept_after_all]


@pytest.mark.parametrize("use", ASKING)
def test_what_asks_for_the_very_dtype_takes_it_for_granted(use: Callable[..., Any]) -> None:
    model = Attention(use)
    gm = trace(model, X)
    torch.testing.assert_close(gm(X)[0], model(X)[0])
    with pytest.raises(GuardError, match=r"torch.float32.*torch.float64"):
        gm.to(torch.float64)(X.double())


def kept_in_a_branch(layer: Layer, keys: torch.Tensor) -> torch.Tensor:
    if keys.sum() > 100:
        layer.dtype = keys.dtype
        return torch.ones(2, dtype=layer.dtype)
    layer.dtype = torch.float16
    return torch.ones(2, dtype=torch.float32)


def test_what_is_kept_in_a_branch_is_followed_too() -> None:
    model = Attention(kept_in_a_branch)
    gm = trace(model, X)
    for x in (X * 1000, -X * 1000):
        for dtype in (torch.float32, torch.float64):
            results = [copy.deepcopy(each).to(dtype)(x.to(dtype)) for each in (gm, model)]
            torch.testing.assert_close(results[0][:2], results[1][:2])
            assert results[0][2].dtype == results[1][2].dtype


@dataclasses.dataclass
class Fields:
    keys: torch.Tensor
    dtype: torch.dtype = dataclasses.field(init=False)


def test_a_field_of_a_dataclass_is_followed_too() -> None:
    def program(x: torch.Tensor) -> Fields:
        fields = Fields(x * 2)
        fields.dtype = x.dtype
        return fields

    gm = trace(program, X)
    assert gm(X.double()).dtype == torch.float64


def test_a_capture_that_is_cut_short_leaves_no_trace() -> None:
    layer = Layer()

    def stopped(x: torch.Tensor) -> torch.Tensor:
        layer.update(x)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trace(stopped, X)
    assert vars(layer) == {"keys": None}
    assert "dtype" not in vars(Layer)


def test_a_class_is_as_it_was_for_others_meanwhile() -> None:
    one, other, layer, own = KeptValues(), KeptValues(), Layer(), Layer()
    for kept in (one, other):
        kept.put(layer, "dtype", KeptValue(torch.float32, lambda: pytest.fail("made a node"), lambda frame: None))
        kept.enter_classes()
    with pytest.raises(AttributeError, match="'Layer' object has no attribute 'dtype'"):
        _ = own.dtype
    own.update(torch.ones(1, 2, dtype=torch.float16))
    assert own.dtype == torch.float16
    del own.dtype
    assert not hasattr(own, "dtype")
    assert not hasattr(Layer, "dtype")
    one.leave_classes()
    assert layer.dtype == torch.float32
    assert pickle.loads(pickle.dumps(layer)).dtype == copy.deepcopy(layer).dtype == torch.float32
    other.leave_classes()
    other.put_back()
    assert vars(layer)["dtype"] is torch.float32
    assert "dtype" not in vars(Layer)


class Holder(nn.Module):
    """A layer that has a cache of its own, which it makes again with `is_new`."""

    def __init__(self, is_new: bool) -> None:
        super().__init__()
        self.cache = Layer()
        self.linear = nn.Linear(2, 2)
        self.is_new = is_new

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.linear(x)
        if self.is_new:
            self.cache = Layer()
        self.cache.dtype = keys.dtype
        return torch.ones(2, dtype=self.cache.dtype) + keys


@pytest.mark.parametrize("is_new", [False, True])
def test_an_object_that_a_module_keeps_is_right_or_refused(is_new: bool) -> None:
    model = Holder(is_new)
    eager = copy.deepcopy(model)
    gm = trace(model, X)
    for _ in range(2):
        torch.testing.assert_close(gm(X), eager(X))
        assert gm.cache.dtype is eager.cache.dtype is torch.float32
    with pytest.raises(GuardError, match=r"torch.float32.*torch.float64"):
        gm.to(torch.float64)(X.double())
