"""What a program asks of the dtypes of its tensors, and what becomes of that when module and inputs get others."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import GraphModule, load, save, trace
from graphwright.errors import CaptureError, GuardError

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
HALVES = (torch.float16, torch.bfloat16)
EVERY = set(DTYPES)
BUT_HALF = EVERY - {torch.float16}


class Asks(nn.Module):
    """Asks for the dtype of an input, of what is computed from it, of a parameter, and of what a table holds."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm, self.table = nn.Linear(4, 4), nn.LayerNorm(4), nn.Embedding(3, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.ask = ask

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.linear(x)).relu()
        rows = self.table(ids) * self.scale
        return h + rows * self.ask(self, x, h, rows)


# What is asked, and the dtypes for which a program that was captured with torch.float32 is right.
QUESTIONS: list[tuple[Callable[..., Any], set[torch.dtype]]] = [
    (lambda m, x, h, rows: 2 if x.dtype == torch.float16 else 3, BUT_HALF),
    (lambda m, x, h, rows: 2 if torch.float16 == h.dtype else 3, BUT_HALF),
    (lambda m, x, h, rows: 2 if rows.dtype is torch.float16 else 3, BUT_HALF),
    (lambda m, x, h, rows: 3 if m.scale.dtype != torch.float16 else 2, BUT_HALF),
    (lambda m, x, h, rows: 2 if h.dtype in (torch.float16, torch.bfloat16) else 3, EVERY - {*HALVES}),
    (lambda m, x, h, rows: 3 if rows.dtype not in [torch.float16, torch.bfloat16] else 2, EVERY - {*HALVES}),
    (lambda m, x, h, rows: 2 if h.is_floating_point() else 3, EVERY),
    (lambda m, x, h, rows: 2 if rows.dtype.is_complex else 3, EVERY),
    (lambda m, x, h, rows: 2 if torch.is_floating_point(m.scale) else 3, EVERY),
    (lambda m, x, h, rows: (h.softmax(-1) + rows.mean()).dtype is torch.float16 or 3, BUT_HALF),
    (lambda m, x, h, rows: 2 if torch.bincount(m.table.weight.int()[0], h[0]).dtype == torch.float64 else 3, set()),
    (lambda m, x, h, rows: 2 if h.dtype == torch.float32 else 3, set()),  # no other is as good
    (lambda m, x, h, rows: 2 if rows.dtype in HALVES else 3, set()),  # whoever reads this does not know what they are
    (lambda m, x, h, rows: h.dtype.itemsize, set()),
    (lambda m, x, h, rows: len(str(rows.dtype)), set()),
    (lambda m, x, h, rows: 2 if torch.promote_types(x.dtype, torch.float16) == torch.float32 else 3, set()),
    (lambda m, x, h, rows: {torch.float32: 2}.get(x.dtype, 3), set()),
    (lambda m, x, h, rows: torch.finfo(x.dtype).eps, EVERY),
    (lambda m, x, h, rows: torch.finfo(h.dtype).max**0.1 - 1, EVERY),
    (lambda m, x, h, rows: torch.finfo(type=rows.dtype).bits, EVERY),
    (lambda m, x, h, rows: torch.finfo(m.scale.dtype).tiny, EVERY),
    (lambda m, x, h, rows: 2 if torch.finfo(x.dtype).max > 1e5 else 3, EVERY),
    (lambda m, x, h, rows: float(torch.finfo(x.dtype).eps), EVERY),
    (lambda m, x, h, rows: len(torch.finfo(x.dtype).dtype), set()),
    (lambda m, x, h, rows: len(repr(torch.finfo(x.dtype))), set()),
    (lambda m, x, h, rows: rows.masked_fill(rows > 1, torch.finfo(rows.dtype).max), EVERY),
    (lambda m, x, h, rows: torch.where(rows > 1, rows, torch.finfo(rows.dtype).min), EVERY),
    (lambda m, x, h, rows: torch.full((4,), torch.finfo(x.dtype).min, dtype=x.dtype), EVERY),
    (lambda m, x, h, rows: (h.float() / 3).to(m.scale.dtype), EVERY),
]  # fmt: skip


def has_the_results_of(gm: GraphModule, model: nn.Module, *inputs: torch.Tensor) -> bool:
    """Tell whether both give the same; False where the captured one says that it may not."""
    try:
        given = gm(*inputs)
    except GuardError:
        return False
    torch.testing.assert_close(given, model(*inputs), rtol=0, atol=0)
    return True


@pytest.mark.sampled(3)
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(("ask", "right"), QUESTIONS)
def test_a_converted_program_is_right_or_loud(ask: Any, right: set[torch.dtype], flat: bool) -> None:
    model, x, ids = Asks(ask), torch.randn(2, 4), torch.tensor([1, 2])
    gm = trace(model, (x, ids), flat=flat, copy=True)
    assert has_the_results_of(gm, model, x, ids)
    for dtype in DTYPES[1:]:
        converted, of_captured = copy.deepcopy(model).to(dtype), copy.deepcopy(gm)
        try:
            of_captured.to(dtype)
        except GuardError:
            assert dtype not in right
            continue
        assert has_the_results_of(of_captured, converted, x.to(dtype), ids) == (dtype in right), gm.code


@pytest.mark.parametrize("captured", DTYPES)
def test_the_answer_of_the_example_counts(captured: torch.dtype) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        h = x * 2
        return h.clamp(-3, 3) if h.dtype == torch.float16 else h

    gm = trace(program, torch.ones(2, dtype=captured))
    for dtype in DTYPES:
        is_right = (dtype == torch.float16) == (captured == torch.float16)
        x = torch.full((2,), 2.0, dtype=dtype)
        if is_right:
            assert torch.equal(gm(x), program(x))
        else:
            with pytest.raises(GuardError, match=r"argument 'x' was a .* tensor when"):
                gm(x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_what_has_no_floats_is_told_where_a_question_is_asked_of_floats(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + 1 if (x * y).dtype == torch.float16 else x - 1.0

    gm = trace(program, (torch.ones(2), torch.ones(2)))
    with pytest.raises(GuardError):
        gm(torch.ones(2, dtype=dtype), torch.ones(2))
    gm = trace(program, (torch.ones(2), torch.ones(2, dtype=dtype)))
    x, y = torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=dtype)
    if not dtype.is_complex:
        assert torch.equal(gm(x, y), program(x, y))
    for others in (x.half(), y), (x, torch.ones(2)):
        with pytest.raises(GuardError):
            gm(*others)


def test_several_questions_of_one_tensor_leave_what_has_the_answers_of_all() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float16:
            return x * 2
        return x * 3 if x.dtype == torch.bfloat16 else x * 4

    gm = trace(program, torch.ones(2))
    assert "(torch.float32, torch.float64)" in gm.code
    assert torch.equal(gm(torch.ones(2).double()), torch.ones(2).double() * 4)
    for dtype in HALVES:
        with pytest.raises(GuardError, match=r"was a torch\.float32 or torch\.float64 tensor"):
            gm(torch.ones(2, dtype=dtype))


def test_limits_of_numbers_are_read_where_they_are_needed() -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> Any:
        scores = x.float() @ x.float().T
        filled = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
        return filled.to(x.dtype).masked_fill(mask, torch.finfo(x.dtype).min)

    x, mask = torch.randn(2, 3), torch.eye(2) > 0
    gm = trace(program, (x, mask))
    lines = [line for line in gm.code.splitlines() if "finfo" in line and "#" not in line]
    assert lines == ["    return filled.to(dtype).masked_fill(mask, torch.finfo(dtype).min)"]
    for dtype in DTYPES:
        assert torch.equal(gm(x.to(dtype), mask), program(x.to(dtype), mask))


def takes(x: torch.Tensor, mask: torch.Tensor, *, dtype: torch.dtype, fill: float = 0.0) -> torch.Tensor:
    lowest = torch.finfo(dtype).min
    return torch.where(mask, torch.zeros((), dtype=dtype), lowest)


def takes_and_asks(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    filled = torch.full(mask.shape, torch.finfo(dtype).min, dtype=dtype)
    return filled if dtype != torch.float16 else filled / 2


def takes_and_looks(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(mask.shape, dtype=dtype) + len(str(dtype))


def takes_and_looks_at_all(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(mask.shape, dtype=dtype) + len(str(locals()["dtype"]))


def takes_or_not(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(mask.shape, dtype=dtype) if mask.dim() == 1 else x * (2 if str(dtype)[-1] == "2" else 3)


def hands_on(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return takes(x, mask, dtype=dtype) * 2


def hands_on_to_who_looks(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return takes_and_looks(x, mask, dtype) * 2 + takes(x, mask, dtype=dtype)


def skips(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if mask.dim() == 2:
        return x * 2
    return torch.zeros(mask.shape, dtype=dtype) + torch.finfo(dtype).eps


def skips_or_looks(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if mask.dim() == 2:
        return x * (2 if str(dtype).endswith("32") else 3)
    return torch.zeros(mask.shape, dtype=dtype)


def skips_or_tells(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x * torch.iinfo(torch.int8).bits if mask.dim() == 2 else x * torch.zeros((), dtype=dtype).to(dtype)


def pieces(x: torch.Tensor, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    yield torch.zeros(2, 3, dtype=dtype)
    yield x


def takes_in_pieces(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    made = pieces(x, dtype)
    return next(made)


def takes_twice(x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return takes_again(x, 2, dtype) + takes_again(x, 3, dtype=dtype)


def takes_again(x: torch.Tensor, times: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((2, 3), times, dtype=dtype) if times == 2 else torch.full((2, 3), 0.5, dtype=dtype)


def ignores(x: torch.Tensor, mask: torch.Tensor, **more: Any) -> torch.Tensor:
    return mask.float()


class Takes(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(mask.shape, dtype=dtype) + torch.finfo(dtype).eps

    def method(self, x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return takes(x, mask, dtype=dtype) + 1


# What gets a dtype as a parameter, and the dtypes for which a capture with torch.float32 is right.
TAKERS: list[tuple[Callable[..., torch.Tensor], set[torch.dtype]]] = [
    (takes, EVERY),
    (takes_and_asks, BUT_HALF),
    (takes_and_looks, set()),
    (takes_and_looks_at_all, set()),
    (takes_or_not, set()),
    (hands_on, EVERY),
    (skips, EVERY),
    (skips_or_looks, set()),
    (skips_or_tells, set()),
    (takes_in_pieces, set()),
    (takes_twice, set()),  # each time one of the two calls is not reached
    (hands_on_to_who_looks, set()),
    (ignores, EVERY),
    (Takes(), EVERY),
    (Takes().method, EVERY),
    (lambda x, mask, dtype: torch.ones(2, 3, dtype=dtype), set()),  # the source tells less of a lambda
]


class Hands(nn.Module):
    """Hands a dtype on in one of some ways, to a function that it looks up when it has read the dtype."""

    def __init__(self, takers: dict[str, Any], way: str) -> None:
        super().__init__()
        self.takers, self.way = takers, way
        self.weight = nn.Parameter(torch.ones(3))
        self.taker = takers["first"]

    @property
    def dtype(self) -> torch.dtype:
        return next(each.dtype for each in self.parameters() if each.is_floating_point())

    def later(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        count, dtype = x.shape[0], x.dtype
        taker = self.takers["first"]
        return taker(x, mask, dtype=dtype) + count

    def at_once(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.taker(x, mask, dtype=x.dtype)

    def of_property(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.taker(x.to(self.dtype), mask, dtype=self.dtype)

    def in_a_loop(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        dtype, total = self.weight.dtype, x
        for taker in self.takers.values():
            total = total + taker(x, mask, dtype=dtype)
        return total

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return getattr(self, self.way)(x, mask) * self.weight


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["later", "at_once", "of_property", "in_a_loop"])
@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize(("taker", "right"), TAKERS)
def test_who_takes_a_dtype_as_a_parameter(taker: Any, right: set[torch.dtype], is_asked: bool, way: str) -> None:
    class Model(Hands):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            if is_asked and mask.any():  # which has functions converted
                x = x + 1
            return super().forward(x, mask)

    model, x, mask = Model({"first": taker, "second": takes}, way), torch.randn(2, 3), torch.eye(2, 3) > 0
    gm = trace(model, (x, mask), copy=True)
    assert has_the_results_of(gm, model, x, mask)
    count = 0
    for dtype in DTYPES[1:]:
        converted, of_captured = copy.deepcopy(model).to(dtype), copy.deepcopy(gm)
        try:
            of_captured.to(dtype)
        except GuardError:
            continue
        if has_the_results_of(of_captured, converted, x.to(dtype), mask):
            assert dtype in right, gm.code
            count += 1
    # What a module holds is not looked up.
    is_told = way == "later" or (way != "in_a_loop" and taker not in (ignores, skips))
    assert not is_told or count == len(right - {torch.float32}), gm.code


def test_limits_in_a_branch_and_in_a_loop() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        lowest = torch.finfo(x.dtype).min
        if x.sum() > 3:
            x = x + torch.finfo(x.dtype).eps
        else:
            x = x.masked_fill(x > 0, lowest)
        while x.sum() > 10:
            x = x - torch.finfo(x.dtype).tiny - 1
        return x

    gm = trace(program, torch.ones(2))
    for dtype in DTYPES:
        for x in torch.ones(2), torch.full((2,), 7.0), torch.full((3,), 20.0):
            assert torch.equal(gm(x.to(dtype)), program(x.to(dtype)))


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(4, 3), nn.LayerNorm(3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.table(ids))
        h = h.masked_fill(h > 1, torch.finfo(h.dtype).min)
        return h.clamp(-9, 9) if h.dtype == torch.float16 else h


def test_a_refused_conversion_names_the_line_that_asks() -> None:
    gm = trace(Table(), torch.tensor([1, 2]), copy=True)
    line = r"test_dtypes.py:\d+: return h.clamp\(-9, 9\) if h.dtype == torch.float16 else h"
    with pytest.raises(GuardError, match=rf"makes it one of torch.float16\n  at {line}"):
        gm.half()
    gm.table.weight.data = gm.table.weight.data.half()
    with pytest.raises(GuardError, match=rf"which asks at {line}; now it is of torch.float16"):
        gm(torch.tensor([1, 2]))


def test_files_keep_what_may_be_converted(tmp_path: Path) -> None:
    model, ids = Table(), torch.tensor([1, 2])
    save(trace(model, ids), tmp_path / "net.gw")
    for dtype in DTYPES:
        gm = load(tmp_path / "net.gw", allow=[__name__])
        if dtype == torch.float16:
            with pytest.raises(GuardError, match="makes it one of"):
                gm.half()
        else:
            assert torch.equal(gm.to(dtype)(ids), copy.deepcopy(model).to(dtype)(ids))


def test_examples_of_several_dtypes_are_all_right() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.dtype == torch.float16 else x + torch.finfo(x.dtype).eps

    gm = trace(program, examples=[torch.ones(2), torch.ones(2).half()])
    for dtype in DTYPES:
        assert torch.equal(gm(torch.ones(2, dtype=dtype)), program(torch.ones(2, dtype=dtype)))


def test_ways_of_a_fork_ask_for_several_things_of_a_parameter() -> None:
    class Forks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            kept = {}
            if x.sum() > 0:
                kept["a"] = x
            if "a" in kept:
                return x * (2 if self.weight.dtype == torch.float16 else 3), kept
            return x * (4 if self.weight.dtype == torch.bfloat16 else 5), kept

    gm, model = trace(Forks(), torch.ones(3), copy=True), Forks()
    for dtype in DTYPES:
        if dtype in HALVES:
            with pytest.raises(GuardError, match=r"of torch\.float32 or torch\.float64 when"):
                gm.to(dtype)
            continue
        for x in torch.ones(3), -torch.ones(3):
            torch.testing.assert_close(gm.to(dtype)(x), model.to(dtype)(x), rtol=0, atol=0)


def test_layers_that_are_copied_ask_for_their_own_weights() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            h = self.linear(x.to(self.linear.weight.dtype))
            h = h.masked_fill(mask, torch.finfo(h.dtype).min / 1e4).softmax(-1)
            return h.clamp(-1, 1) if self.linear.weight.dtype == torch.float16 else h

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Layer() for _ in range(6)])

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = x + layer(x, mask)
            return x

    model, x, mask = Layers(), torch.randn(2, 3), torch.eye(2, 3) > 0
    for flat in (True, False):
        gm = trace(model, (x, mask), flat=flat, copy=True)
        for dtype in DTYPES[:2]:
            converted = copy.deepcopy(model).to(dtype)
            assert torch.equal(gm.to(dtype)(x.to(dtype), mask), converted(x.to(dtype), mask))
        converted.layers[4].double(), gm.layers[4].double()
        assert torch.equal(gm(x.bfloat16(), mask), converted(x.bfloat16(), mask))
        gm.layers[5].linear.weight.data = gm.layers[5].linear.weight.data.half()
        with pytest.raises(GuardError, match=r"linear\.weight was of"):
            gm(x.bfloat16(), mask)


def made(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype) * torch.finfo(dtype).eps


def made_of(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return made((2,), dtype) + made((2,), dtype=x.dtype)


def test_calls_of_one_function_get_the_dtypes_of_several_tensors() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        first, second = made((2,), x.dtype), made((2,), y.dtype)
        third = made((2,), dtype=torch.float32)
        return (
            first,
            second,
            third,
            made((2,), z.dtype),
            made_of(x, z.dtype),
            made_of(z, torch.float32),
            made_of(y, x.dtype),
        )

    one = torch.ones(2)
    gm = trace(program, (one, one, one))
    count = 0
    for dtypes in itertools.product(DTYPES, repeat=3):
        count += has_the_results_of(gm, program, *[one.to(dtype) for dtype in dtypes])
    assert count == len(DTYPES) ** 3


def test_the_property_of_a_module_inside_is_followed() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Hands({"first": takes}, "later")

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.inner(x.type(self.inner.dtype), mask)

    model, x, mask = Outer(), torch.randn(2, 3), torch.eye(2, 3) > 0
    gm = trace(model, (x, mask), copy=True)
    for dtype in DTYPES:
        assert has_the_results_of(gm.to(dtype), model.to(dtype), x, mask)


@functools.lru_cache
def kind_of(model: nn.Module) -> torch.dtype:
    return model.weight.dtype  # type: ignore[union-attr, return-value]


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    @functools.cached_property
    def kind(self) -> torch.dtype:
        return self.weight.dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.kind) * (2 if self.kind == torch.float16 else 3)


class CachedOutside(Cached):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(kind_of(self)) * (2 if kind_of(self) == torch.float16 else 3)


@pytest.mark.parametrize("kind", [Cached, CachedOutside])
@pytest.mark.parametrize("is_asked", [False, True])
def test_what_is_returned_once_and_kept_is_asked_for(kind: type[Cached], is_asked: bool) -> None:
    class Asks(kind):  # type: ignore[misc, valid-type]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if is_asked and x.sum() > 100:  # which has functions converted
                x = x + 1
            return super().forward(x)

    try:
        gm = trace(Asks(), torch.ones(3), copy=True)
    except CaptureError:
        return
    for dtype in DTYPES:
        try:
            given = copy.deepcopy(gm).to(dtype)(torch.ones(3))
        except GuardError:
            continue
        assert torch.equal(given, Asks().to(dtype)(torch.ones(3)))
