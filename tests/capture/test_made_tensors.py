"""Tensors that a program makes by calls that are no nodes: each call has one of its own."""

from __future__ import annotations

import array
import io
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Variable

import graphwright
from graphwright import CaptureError, GuardError, trace


def _saved() -> bytes:
    file = io.BytesIO()
    torch.save(torch.zeros(1), file)
    return file.getvalue()


SAVED = _saved()
ZERO = numpy.zeros(3, numpy.float32)
MAKERS: dict[str, Callable[[], Tensor]] = {
    "FloatTensor": lambda: torch.FloatTensor([0.0]),
    "DoubleTensor": lambda: torch.DoubleTensor([0.0]).float(),
    "Tensor": lambda: torch.Tensor([0.0]),
    "part": lambda: torch.FloatTensor([0.0, 1.0])[:1],
    "from_numpy": lambda: torch.from_numpy(numpy.zeros(1, numpy.float32)),
    "from_numpy of a part": lambda: torch.from_numpy(numpy.zeros(3, numpy.float32)[1:2]),
    "as_tensor": lambda: torch.as_tensor(numpy.zeros(1, numpy.float32)),
    "asarray": lambda: torch.asarray(numpy.zeros(1, numpy.float32)),
    "frombuffer": lambda: torch.frombuffer(bytearray(4), dtype=torch.float32),
    "frombuffer of an array": lambda: torch.frombuffer(array.array("f", [0.0]), dtype=torch.float32),
    "from_dlpack": lambda: torch.from_dlpack(numpy.zeros(1, numpy.float32)),
}


def added(x: Tensor, made: Tensor) -> Tensor:
    made += x.sum()
    return made


def put(x: Tensor, made: Tensor) -> Tensor:
    made[0] = made[0] + x.sum()
    return made * 2


def given(x: Tensor, made: Tensor) -> Tensor:
    return made


@pytest.mark.parametrize("use", [added, put, given])
@pytest.mark.parametrize("maker", MAKERS)
def test_each_call_has_one_of_its_own(maker: str, use: Callable[[Tensor, Tensor], Tensor]) -> None:
    def program(x: Tensor) -> Tensor:
        return use(x, MAKERS[maker]())

    gm = graphwright.trace(program, (torch.randn(2, 3),))
    inputs = torch.randn(3, 2, 3)
    results = [gm(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, program(x))
        result += 5  # which is nobody else's


KEPT = torch.zeros(1)
HELD = [torch.zeros(1)]


def of_a_global(x: Tensor) -> Tensor:
    KEPT.add_(x.sum())
    return KEPT * 1


def of_a_list(x: Tensor) -> Tensor:
    part = HELD[0].view(1)
    part += x.sum()
    return part * 1


def closed_over() -> Callable[[Tensor], Tensor]:
    kept = torch.zeros(1)

    def program(x: Tensor) -> Tensor:
        kept.add_(x.sum())
        return kept * 1

    return program


@pytest.mark.parametrize("program", [of_a_global, of_a_list, closed_over()], ids=["global", "list", "closure"])
def test_what_was_there_before_stays_one(program: Callable[[Tensor], Tensor]) -> None:
    x = torch.ones(2, 3)
    first = float(program(x))
    gm = graphwright.trace(program, (x,))
    assert [float(each(x)) for each in (gm, program, gm)] == [first + 6, first + 12, first + 18]


@pytest.mark.parametrize("part", [slice(None), slice(1, 2)], ids=["all", "a part"])
def test_arrays_that_were_there_before_are_written_to(part: slice) -> None:
    def program(x: Tensor) -> Tensor:
        total = torch.from_numpy(ZERO[part])
        total += x.sum()
        return total * 1

    ZERO[:] = 0
    gm = graphwright.trace(program, (torch.ones(2),))
    gm(torch.ones(2))
    assert ZERO[part].tolist() == [2.0] * len(ZERO[part])
    with pytest.raises(GuardError, match="ZERO"):  # whose content was taken for granted
        gm(torch.ones(2))


def branch(x: Tensor) -> Tensor:
    total = torch.FloatTensor([0.0])
    if x.sum() > 0:
        total += x.sum()
    return total


def loop(x: Tensor) -> Tensor:
    total = torch.Tensor([0.0])
    for row in x:
        if row.sum() > 0:
            total += row.sum()
    return total


def attempt(x: Tensor) -> Tensor:
    total = torch.FloatTensor([0.0])
    try:
        total += x.view(2, 3).sum()
    except RuntimeError:
        total -= 1
    return total


class Kept(nn.Module):
    """An attribute is given a tensor that the next call writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        self.total += x.sum()
        result = self.total * 1
        self.total = torch.FloatTensor([0.0])
        return result


@pytest.mark.parametrize("program", [branch, loop, attempt, Kept()], ids=["branch", "loop", "attempt", "attribute"])
def test_bodies_and_modules_write_to_the_calls_own(program: Callable[[Tensor], Tensor]) -> None:
    gm = graphwright.trace(program, (torch.ones(2, 3),))
    if isinstance(program, nn.Module):
        gm(torch.ones(2, 3))
        program(torch.ones(2, 3))  # from here on each has its own
    for x in (torch.ones(2, 3), -torch.ones(2, 3), torch.ones(2, 3), torch.ones(3, 2)):
        torch.testing.assert_close(gm(x), program(x))


def test_two_names_of_one_memory_are_refused() -> None:
    def program(x: Tensor) -> Tensor:
        items = numpy.zeros(1, numpy.float32)
        one, other = torch.from_numpy(items), torch.from_numpy(items)
        one += x.sum()
        return one + other

    with pytest.raises(CaptureError, match="by another name"):
        graphwright.trace(program, (torch.ones(2),))


def test_each_way_of_a_fork_has_its_own() -> None:
    def program(x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if x.sum() > 0:
            total = torch.FloatTensor([1.0])
            total += x.sum()
            return total
        total = torch.FloatTensor([2.0])
        total += x.sum()
        return total, x

    gm = graphwright.trace(program, (torch.ones(2, 3),))
    for x in (torch.ones(2, 3), -torch.ones(2, 3), torch.ones(2, 3), -torch.ones(2, 3)):
        torch.testing.assert_close(gm(x), program(x))


@pytest.mark.filterwarnings("ignore:.*torch.load")
@pytest.mark.parametrize(
    "maker", [lambda: torch.load(io.BytesIO(SAVED)), lambda: torch.FloatTensor(ZERO)], ids=["load", "FloatTensor"]
)
def test_memory_of_which_nobody_tells_whose_it_is(maker: Callable[[], Tensor]) -> None:
    with pytest.raises(CaptureError, match="memory of something else"):
        graphwright.trace(lambda x: added(x, maker()), (torch.randn(2, 3),))
    gm = graphwright.trace(lambda x: x + maker(), (torch.randn(2, 3),))
    assert torch.equal(gm(torch.ones(2, 3)), 1 + maker().expand(2, 3))


class Written(nn.Module):
    """As programs were written before torch 0.4."""

    def __init__(self, wrap: Any = None) -> None:
        super().__init__()
        self.scale, self.wrap = nn.Parameter(torch.randn(3)), wrap
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x: torch.Tensor) -> Any:
        state = Variable(x.data.new(x.size(0), 3).zero_())
        total = torch.FloatTensor(x) * Variable(self.scale) + torch.FloatTensor(self.shift) + torch.Tensor(self.scale)
        leaf = Variable(x, requires_grad=True)
        return total + state, leaf, leaf.requires_grad


class Wraps(Written):
    def forward(self, x: torch.Tensor) -> Any:
        return self.wrap(self.shift) * x


def test_old_constructors_give_what_is_detached_and_views() -> None:
    model, x = Written(), torch.randn(2, 3, requires_grad=True)
    gm = trace(model, (x,))
    model.shift, gm.shift = torch.ones(3), torch.ones(3)  # neither holds on to the one before
    (total, leaf, needs), (own_total, own_leaf, own_needs) = gm(x), model(x)
    assert torch.equal(total, own_total) and torch.equal(leaf, own_leaf) and needs is own_needs and leaf.is_leaf
    ours, own = torch.autograd.grad(total.sum(), [gm.scale, x]), torch.autograd.grad(own_total.sum(), [model.scale, x])
    assert all(map(torch.equal, ours, own))
    with pytest.raises(GuardError, match="float64"):
        gm(x.double())


@pytest.mark.parametrize("wrap", [lambda x: Variable(x), lambda x: torch.Tensor(x)])
def test_what_has_the_memory_of_a_buffer_unseen_is_refused(wrap: Any) -> None:
    with pytest.raises(CaptureError, match="memory of a parameter or buffer"):
        trace(Wraps(wrap), (torch.randn(3),))


def test_what_had_the_memory_of_a_buffer_before_is_a_constant() -> None:
    model = Wraps()
    part = model.shift[:1]
    model.wrap = lambda shift: part
    gm = trace(model, (torch.randn(3),))
    model.shift.fill_(5.0)
    assert torch.equal(gm(torch.ones(3)), model(torch.ones(3)))
