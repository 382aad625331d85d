"""Facts of tensors and kinds of arguments: another call gives eager's answer, or says why not."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from graphwright import CaptureError, GuardError, trace

ones = torch.ones
SAME, LOUD = "the same", "loud"


@dataclasses.dataclass
class Record:
    """Always true, and without methods of its own."""

    value: Any = None


def leaves_of(values: Any) -> torch.Tensor:
    return sum(leaf.sum() for leaf in tree_leaves(values))  # type: ignore[return-value]


class Doubles:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def get(self) -> torch.Tensor:
        return self.value * 2


class Triples(Doubles):
    def get(self) -> torch.Tensor:
        return self.value * 3


class Marked(torch.Tensor):
    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return self.clone()


def handed(x: torch.Tensor) -> torch.Tensor:
    kind, place = x.dtype, x.device
    return (x.float() * 2).to(kind) + torch.zeros(x.shape[0], 1, dtype=kind, device=place)


def asked(x: torch.Tensor) -> torch.Tensor:
    kind = x.dtype
    return x + 1 if kind == torch.float32 else x.to(kind)


def normed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = x @ w
    return (h.float() / 2).to(h.dtype)


class Takes:
    def ignoring(self, x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
        return x * 2

    def looking(self, x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
        return x * vars()["x"] if vars()["kind"] is torch.double else x


TAKES = Takes()


def takes_any(x: torch.Tensor, **unused: Any) -> torch.Tensor:
    return x * 2


def takes_one(x: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
    return x * len(str(dtype))


def hands_to(take: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        dtype, taker = x.dtype, None
        taker = take
        return taker(x, dtype=dtype)

    return program


def hands_to_each(*takers: Callable[..., torch.Tensor], asks: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        dtype = x.dtype
        if asks and x.sum() > 1000:  # which has the function converted
            x = x * 2
        for take in takers:
            x = x + take(x, dtype=dtype).sum()
        return x

    return program


def if_there(read: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], int]:
    def program(x: torch.Tensor) -> int:
        try:
            read(x)
        except IndexError:
            return 2
        return 1

    return program


def hands_on_in_a_branch(x: torch.Tensor) -> torch.Tensor:
    dtype = x.dtype
    h = x.double()
    if h.sum() > 0:
        h = h * 2
        h = h.to(dtype)
    return h


def hands_on_in_lines(x: torch.Tensor) -> torch.Tensor:
    dtype = x.dtype
    h = torch.nn.functional.interpolate(
        x[None, None].double(),
        size=(4, 4),
    ).to(dtype=dtype)
    return torch.nn.functional.softmax(h, dim=-1, dtype=x.dtype)


def carries(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    total, other = y, x
    while total.sum() < 100:
        total, other = total + z, other + 1
    return other * (2 if total.dtype == torch.float64 else 3)


def chooses(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    if x.sum() > 0:
        chosen, other = y * 2, x
    else:
        chosen, other = z + 1, x + 1
    return other * (2 if chosen.dtype == torch.float64 else 3)


X, Y = ones(2, 3), ones(2, 3, 4)
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], str]] = [
    (lambda x: x / x.shape[-1], (X,), (Y,), LOUD),
    (lambda x: x.view(x.shape[0], -1), (X,), (Y,), SAME),
    (lambda x: x.view(*x.shape[:-1], 3, 1), (X,), (ones(4, 3),), SAME),
    (lambda x: x.view(*x.shape[:-1], 3, 1), (X,), (ones(5, 2, 3),), LOUD),
    (lambda x: torch.zeros(math.prod(x.shape)), (X,), (Y,), LOUD),
    (lambda x: sum(x.shape), (X,), (Y,), LOUD),
    (lambda x: (x * 2).dim(), (X,), (Y,), LOUD),
    (lambda x: x.squeeze().dim(), (ones(1, 3),), (X,), LOUD),
    (lambda x: torch.corrcoef(x).dim(), (X,), (ones(1, 3),), LOUD),
    (lambda x: torch.cov(x).dim(), (ones(1, 3),), (X,), LOUD),
    (lambda x: len(torch.where(x > 0)), (ones(4),), (X,), LOUD),
    (lambda x: len(torch.gradient(x)), (X,), (ones(2, 2, 2),), LOUD),
    (lambda x: len(torch.unbind_copy(x)), (X,), (ones(4, 3),), SAME),
    (lambda x: [piece * 2 for piece in torch.split_copy(x, 2)][-1], (ones(4, 2),), (ones(6, 2),), SAME),
    (lambda x: len(x.nonzero(as_tuple=True)), (ones(4),), (X,), LOUD),
    (lambda x: x.stride(), (X,), (ones(3, 2).t(),), SAME),
    (lambda x: len(x.stride()), (X,), (Y,), LOUD),
    (lambda x: x.tolist(), (X[0, 0],), (X[0],), LOUD),
    (if_there(lambda x: x.shape[2]), (X,), (Y,), LOUD),
    (if_there(lambda x: x.stride(2)), (X,), (Y,), LOUD),
    (if_there(lambda x: x.size(2)), (X,), (Y,), LOUD),
    (if_there(lambda x: x.size()[-3]), (X,), (Y,), LOUD),
    (lambda x, mask: x * mask if mask.dim() == 2 else x, (X, X), (Y, ones(3, 4)), SAME),  # x is not asked
    (lambda x: x.sum(0) / len(x), (X,), (ones(5, 3),), SAME),
    (handed, (X,), (X.half(),), SAME),
    (asked, (X,), (X.double(),), LOUD),
    (lambda x: takes_any(x, dtype=x.dtype), (X,), (X.double(),), SAME),
    (lambda x: takes_one(x, dtype=x.dtype), (X,), (X.double(),), LOUD),
    (lambda x: TAKES.ignoring(x, x.dtype), (X,), (X.double(),), SAME),
    (lambda x: TAKES.looking(x, x.dtype), (X,), (X.double(),), LOUD),
    (hands_to(takes_any), (X,), (X.double(),), LOUD),  # two values in a variable: which one is called is not told
    (hands_to(takes_one), (X,), (X.double(),), LOUD),
    (hands_to_each(takes_any, takes_any, asks=True), (X,), (X.double(),), SAME),
    (hands_to_each(torch.ones_like, torch.zeros_like, asks=True), (X,), (X.double(),), SAME),
    *[
        (hands_to_each(*takers, asks=asks), (X,), (X.double(),), LOUD)
        for asks in (False, True)
        for first in (takes_any, torch.ones_like)
        for takers in ((first, takes_one), (takes_one, first), (first, takes_one, first))
    ],
    (hands_on_in_a_branch, (X.abs() + 1,), (X.abs().half() + 1,), SAME),
    (hands_on_in_lines, (X,), (X.double(),), SAME),
    (carries, (X, X, X), (X.double(), X, X), SAME),
    (carries, (X, X, X), (X, X.double(), X), LOUD),
    (carries, (X, X, X), (X, X, X.double()), LOUD),
    (chooses, (X, X, X), (X.double(), X, X), SAME),
    (chooses, (X, X, X), (X, X.double(), X), LOUD),
    (chooses, (X, X, X), (X, X, X.double()), LOUD),
    (lambda x: x * 2 if x.isnan().dtype is torch.bool else x, (X,), (X.long(),), SAME),
    (lambda x: x + torch.finfo(x.dtype).eps, (X,), (X.half(),), SAME),
    (lambda x, y: x.to(y.dtype), (X, X), (X, X.long()), SAME),
    (lambda x: x + 1 if x.is_contiguous() else x, (X,), (ones(3, 2).t(),), LOUD),
    (lambda x: 1 if x.device.type == "cpu" else 2, (X,), (X.to("meta"),), LOUD),
    (lambda x: 1 if x.is_sparse else 2, (X,), (X.to_sparse(),), LOUD),
    (lambda x: 1 if x.layout is torch.strided else 2, (X,), (X.to_sparse(),), LOUD),
    (lambda x, n: str((x * n).dtype), (X.long(), 2), (X.long(), 2.5), LOUD),
    (lambda x, n: x * n, (X.long(), 2), (X.long(), 2.5), SAME),
    (lambda x: x * 2 if isinstance(x, nn.Parameter) else x - 1, (X,), (nn.Parameter(X),), SAME),
    (lambda x: x * 2 if isinstance(x, nn.Parameter) else x - 1, (nn.Parameter(X),), (X,), SAME),
    (lambda x: x * 2 if type(x) is torch.Tensor else x - 1, (X,), (X.as_subclass(Marked),), LOUD),
    (lambda x: x * 2 if type(x[None]) is torch.Tensor else x - 1, (X,), (X.as_subclass(Marked),), LOUD),
    (lambda x: x * 2 if x.__class__ is torch.Tensor else x - 1, (X,), (X.as_subclass(Marked),), LOUD),
    (lambda x: x * len(f"{x[None].__class__.__name__}"), (X,), (nn.Parameter(X),), LOUD),
    (lambda x: x * 2 if isinstance(x, Marked) else x - 1, (X,), (X.as_subclass(Marked),), LOUD),
    (lambda xs: xs[0] * 2 if type(xs[1]) is torch.Tensor else xs[0], ([X, X],), ([X, X.as_subclass(Marked)],), LOUD),
    (lambda x: x * 2, (X,), (X.as_subclass(Marked),), SAME),
    (lambda sizes: 1 if isinstance(sizes, torch.Size) else 2, (torch.Size([1, 2]),), ((1, 2),), LOUD),
    (lambda p: p.get(), (Doubles(X),), (Triples(X),), LOUD),
    (lambda flag: 1 if flag is True else 2, (True,), (1,), LOUD),
    (lambda x, n: x * (2 if n is not None else 3), (X, 2), (X, None), LOUD),
    (lambda x, n: x * (2 if n is None else 3), (X, 2.5), (X, None), LOUD),
    (lambda x, n: x * (2 if n is not None else 3), (X, 2), (X, 2.5), SAME),
    (lambda x, xs: x * (2 if xs is not None else 3), (X, [X, X]), (X, None), LOUD),
    (lambda x, xs: x * (2 if xs is not None else 3), (X, [X, X]), (X, [Y]), SAME),
    (lambda x, p: x * (2 if p is not None else 3), (X, Record(X)), (X, None), LOUD),
    (lambda x, p: x * 2 if p else x * 3, (X, Record(X)), (X, 0), LOUD),
    (lambda x, p: x * (3 if not p else 2), (X, Record(X)), (X, None), LOUD),
    (lambda xs: leaves_of(xs), ([X, X],), ([X],), LOUD),
    (lambda xs: leaves_of(xs), ([X, X],), ([Y, X],), SAME),
    (lambda x, v: x * len(tree_leaves(v)), (X, 2), (X, [2, 3]), LOUD),
    (lambda x, v: x * len(tree_leaves(v)), (X, X), (X, {"a": X, "b": X}), LOUD),
    (lambda x, v: x * (2 if type(v) is int else 3), (X, X), (X, 2), LOUD),
    (lambda xs: leaves_of({"a": xs, "b": [xs]}), ([X],), ([X, X],), LOUD),
    (lambda x: x * 2 if x.type() == "torch.DoubleTensor" else x * 3, (X,), (X.double(),), LOUD),
]


def outcome(program: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    try:
        return program(*copy.deepcopy(inputs))
    except GuardError as error:
        return error


class Looks:
    """Calls that a converted function makes as they are written, or by other ways than its other calls."""

    def warning(self, x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
        return looks(x, kind)

    def __call__(self, x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
        return looks(x, kind)


def looks(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    return x * (2 if kind == torch.float64 else 3)


def gives(x: torch.Tensor, kind: torch.dtype) -> Any:
    yield looks(x, kind)


def by_locals(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    return x * (2 if locals()["kind"] == torch.float64 else 3)


LOOKS, BY_DTYPE = Looks(), {torch.float32: 2, torch.float64: 3}
TAKERS: list[Callable[[torch.Tensor, torch.dtype], Any]] = [
    looks, LOOKS, LOOKS.warning, by_locals, functools.partial(looks), lambda x, kind: (lambda: looks(x, kind))(),
    lambda x, kind: tuple(gives(x, kind))[-1], lambda x, kind: sum(gives(x, kind)), lambda x, kind: x * BY_DTYPE[kind],
    lambda x, kind: x * len(str(kind).replace("torch.float64", "")), lambda x, kind: [looks(x, kind) for _ in "ab"][1],
    lambda x, kind: LOOKS.warning(x, kind), lambda x, kind: sum(looks(x, kind) for _ in "ab"),
]  # fmt: skip


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("is_reached", [True, False])
def test_who_looks_at_a_dtype_that_is_handed_on_has_it_taken_for_granted(take: Any, is_reached: bool) -> None:
    def program(x: torch.Tensor, flag: bool) -> torch.Tensor:
        kind = x.dtype
        if x.sum() > 1000:  # which has the function converted, so that its calls are seen
            x = x * 2
        if flag:
            x = take(x, kind)
        return x.to(kind)

    gm = trace(program, (X, is_reached))
    assert gm(X, is_reached).equal(program(X, is_reached))
    if is_reached:
        with pytest.raises(GuardError, match=r"'x' was a torch\.float32 tensor"):
            gm(X.double(), is_reached)
    else:
        assert gm(X.double(), is_reached).equal(program(X.double(), is_reached))


@pytest.mark.parametrize(("program", "example", "call", "how"), CALLS)
def test_another_call_is_right_or_loud(program: Any, example: Any, call: Any, how: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gm = trace(program, copy.deepcopy(example))
    for inputs in (example, call):
        given, wanted = outcome(gm, inputs), outcome(program, inputs)
        if isinstance(given, GuardError):
            assert inputs is call and how == LOUD, f"{given}\n{gm.code}"
            assert " was " in str(given) and "fix:" in str(given)
            continue
        assert inputs is example or how == SAME, gm.code
        if isinstance(wanted, str):
            assert given == wanted
        else:
            torch.testing.assert_close(given, wanted, rtol=0, atol=0)
        assert type(given) is type(wanted)


# What is made with the dtype or device of another tensor has that.
MADE_WITH: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda x, y: x.float().exp().to(y.dtype),
    lambda x, y: x.int().to(dtype=y.dtype),
    lambda x, y: x.int().type(y.dtype),
    lambda x, y: x.int().type(y.type()),
    lambda x, y: torch.softmax(x, -1, dtype=torch.float32).to(y.dtype),
    lambda x, y: torch.sum(x, dtype=y.dtype),
    lambda x, y: torch.full_like(x, 1, dtype=y.dtype),
    lambda x, y: torch.arange(3, dtype=y.dtype),
    lambda x, y: torch.tensor([1.0], dtype=y.dtype),
    lambda x, y: torch.empty(0, dtype=y.dtype).new_ones(2),
    lambda x, y: torch.ones(()).to(y.device, y.dtype),
    lambda x, y: torch.zeros(2, dtype=torch.promote_types(x.dtype, y.dtype)),
    lambda x, y: torch.zeros(2, dtype=torch.result_type(x, y)),
]


@pytest.mark.parametrize("make", MADE_WITH)
def test_the_dtype_of_what_is_made_with_that_of_another_is_followed_to_it(make: Any) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = make(x, y)
        return made + (2 if made.dtype == torch.float64 else 3)

    gm = trace(program, (X, X))
    assert torch.equal(gm(X, X), program(X, X))
    with pytest.raises(GuardError, match="now it is"):
        gm(X, X.double())


MADE_BY_DEFAULT: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: torch.zeros(2),
    lambda x: torch.full((2,), 1.5),
    lambda x: torch.tensor([1.5]),
    lambda x: torch.arange(3.0),
    lambda x: torch.rand(2) * 0,
    lambda x: x.int() / 2,
    lambda x: x.int() * 2.5,
    lambda x: x.int().sqrt(),
    lambda x: torch.where(x > 0, 1.0, 0.0),
    lambda x: torch.stack([x.int(), x.int()]).exp(),
]


@pytest.mark.parametrize("make", MADE_BY_DEFAULT)
def test_a_dtype_that_is_the_default_one_is_guarded(make: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        made = make(x)
        return made + len(str(made.dtype))

    gm = trace(program, X)
    torch.testing.assert_close(gm(X), program(X), rtol=0, atol=0)
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(GuardError, match=r"torch\.float32; now it is torch\.float64"):
            gm(X)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("asks_with_key", [True, False])
def test_one_way_of_a_fork_asks_for_a_dtype_of_before_it(asks_with_key: bool) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        first, second, kept = ones(2), torch.zeros(3), {}
        if x.sum() > 0:
            kept["a"] = x
        if ("a" in kept) is asks_with_key:
            return x * (2 if first.dtype == torch.float32 else 3), kept
        return x * (4 if second.dtype == torch.float32 else 5), kept

    gm = trace(program, ones(2))
    for x in ones(2), -ones(2):
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(GuardError, match=r"torch\.float32; now it is torch\.float64"):
            gm(ones(2, dtype=torch.float32))
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("asks_with_key", [True, False])
def test_one_way_of_a_fork_asks_for_other_facts_of_what_was_before_it(asks_with_key: bool) -> None:
    def program(x: torch.Tensor, k: int) -> Any:
        power, row, kept = 2**k, torch.arange(3).squeeze(), {}
        if x.sum() > 0:
            kept["a"] = x
        if ("a" in kept) is asks_with_key:
            return x * (2 if isinstance(power, int) else 3) * row.dim(), kept
        return x * (5 if row.dtype == torch.int64 else 7), kept

    gm = trace(program, (ones(2), 3))
    for x in ones(2), -ones(2):
        torch.testing.assert_close(gm(x, 2), program(x, 2), rtol=0, atol=0)
    with pytest.raises(GuardError, match="of class int; now it is of class float"):
        gm(ones(2) if asks_with_key else -ones(2), -1)  # on the way that asks


class AsksClass(nn.Module):
    """Looks its functions up by the class of a tensor, as einops does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.start = nn.Linear(3, 3), nn.Parameter(ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factors = {torch.Tensor: 2, nn.Parameter: 3}
        started = self.start + 1
        return self.linear(x) * factors[type(started)] + started * factors[type(self.linear(started))]


def test_the_class_of_what_follows_from_a_parameter_is_asked() -> None:
    torch.manual_seed(0)
    model = AsksClass()
    gm = trace(model, ones(2, 3))
    for x in ones(2, 3), -ones(4, 3):
        torch.testing.assert_close(gm(x), model(x), rtol=0, atol=0)


def test_an_item_of_the_tensor_that_a_branch_gives_is_asked() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        either = x * 2 if x.sum() > 0 else x - 1
        item = either[0]
        return item * (2 if item.dim() == 1 else 3) * (5 if item.dtype == torch.float32 else 7)

    gm = trace(program, ones(2, 3))
    for x in ones(2, 3), -ones(3, 2):
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)
    for other in ones(2, 3, 4), ones(2, 3).double():
        with pytest.raises(GuardError, match="argument 'x' was"):
            gm(other)


class Held(nn.Module):
    def __init__(self, make: Callable[[Held, torch.Tensor], torch.Tensor], ask: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.table, self.norm, self.scale = nn.Embedding(4, 3), nn.LayerNorm(3), nn.Parameter(ones(3))
        self.register_buffer("start", ones(3))
        self.make, self.ask = make, ask

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        made = self.make(self, ids)
        return made * self.ask(made)


# What has the dtype of a tensor that the module holds.
MADE_OF_HELD: list[Callable[[Any, torch.Tensor], torch.Tensor]] = [
    lambda m, ids: m.table(ids),
    lambda m, ids: nn.functional.embedding(ids, m.table.weight),
    lambda m, ids: m.norm(m.table(ids)).relu(),
    lambda m, ids: ids.to(m.scale.dtype),
    lambda m, ids: ids.type_as(m.scale),
    lambda m, ids: ids[:, None] * m.scale,
    lambda m, ids: torch.zeros_like(m.start),
    lambda m, ids: m.start.new_ones(2),
]
ASKED: list[Callable[[torch.Tensor], Any]] = [
    lambda made: 2 if made.dtype == torch.float64 else 3,
    lambda made: len(str(made.dtype)),
    lambda made: made.element_size(),
]


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("make", MADE_OF_HELD)
@pytest.mark.parametrize("ask", ASKED)
def test_a_dtype_that_follows_from_a_parameter_is_taken_for_granted(make: Any, ask: Any, flat: bool) -> None:
    model, ids = Held(make, ask), torch.tensor([1, 2])
    gm = trace(model, ids, flat=flat, copy=True)
    torch.testing.assert_close(gm(ids), model(ids), rtol=0, atol=0)
    with pytest.raises(GuardError, match=r"torch\.float32"):
        gm.double()(ids)


def test_copies_of_layers_take_the_dtypes_of_their_own_weights() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linears = nn.ModuleList([nn.Linear(3, 3) for _ in range(8)])
            self.scale = nn.Parameter(ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for linear in self.linears:
                x = linear(x).relu()
            return x * (2 if (x * self.scale).dtype == torch.float64 else 3)

    for flat in (True, False):
        gm = trace(nn.Sequential(*[Layer() for _ in range(6)]), X, flat=flat, copy=True)
        gm[5].scale.data = gm[5].scale.data.double()
        with pytest.raises(GuardError, match=r"scale was of torch\.bfloat16 or torch\.float16 or torch\.float32"):
            gm(X)


@pytest.mark.parametrize("ask", [lambda w: w.is_contiguous(), lambda w: w.stride(0), lambda w: w.stride()])
def test_what_is_asked_of_a_parameter_is_guarded(ask: Any) -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(ones(2, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (2 if ask(self.weight) == ask(ones(2, 3)) else 3)

    gm = trace(Asks(), X)
    assert torch.equal(gm(X), X * 2)
    gm.weight.data = ones(3, 2).t()
    with pytest.raises(GuardError):
        gm(X)


def test_the_device_of_what_is_made_with_that_of_another_is_followed_to_it() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = torch.zeros(x.shape, device=y.device)
        return x + (2 if made.device.type == "meta" else 3)

    gm = trace(program, (X, X))
    with pytest.raises(GuardError, match="device"):
        gm(X, X.to("meta"))


def test_autocast_around_a_call_is_followed() -> None:
    gm = trace(normed, (ones(2, 2), ones(2, 2)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert gm(ones(2, 2), ones(2, 2)).dtype is torch.bfloat16
    assert ".to(h.dtype)" in gm.code and not gm.guards


def test_guards_ask_torch_itself() -> None:
    gm = trace(lambda x: x @ x + len(str((x @ x).dtype)), (ones(2, 2),))
    assert "torch.is_autocast_enabled('cpu')" in gm.code
    assert torch.is_autocast_enabled in [node.target for node in gm.graph.nodes]


def test_a_device_that_is_read_of_each_tensor_in_a_list() -> None:
    def program(xs: list[torch.Tensor]) -> torch.Tensor:
        total = torch.zeros(2)
        for x in xs:
            if x.device.type == "cpu":
                total = total + x
        return total

    gm = trace(program, ([ones(2), ones(2)],))
    for count in (0, 1, 3):
        assert gm([ones(2)] * count).equal(ones(2) * count)
    with pytest.raises(GuardError, match="device"):
        gm([ones(2), torch.ones(2, device="meta")])


def test_numbers_in_a_tuple_of_a_message_are_those_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        print(f"shape {tuple(x.shape)} of {x.shape[0]:03d}")
        return x

    gm = trace(program, (ones(2, 8),))
    capsys.readouterr()
    gm(ones(3, 4))
    assert capsys.readouterr().out == "shape (3, 4) of 003\n"


def with_default(x: torch.Tensor) -> torch.Tensor:
    return x * getattr(x, "scale", 1.0)


def where_there(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if hasattr(x, "scale") else x


@pytest.mark.parametrize("program", [with_default, where_there])
def test_an_attribute_that_tensors_do_not_have(program: Callable[..., torch.Tensor]) -> None:
    gm = trace(program, (torch.ones(2),))
    assert torch.equal(gm(torch.ones(3)), program(torch.ones(3)))
    scaled: Any = torch.ones(2)
    scaled.scale = 3.0
    with pytest.raises(GuardError):
        gm(scaled)
    with pytest.raises(CaptureError, match="reads 'scale' of an input, which tensors do not have"):
        trace(program, (scaled,))
