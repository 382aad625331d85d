"""Containers of classes of their own, and arrays: what a program changes is refused, what others change is told."""

from __future__ import annotations

import collections
import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from graphwright import trace
from graphwright.errors import CaptureError, GuardError


class Table(dict[str, int]):
    """A dict of the user's."""


class Row(list[int]):
    """A list of the user's."""


def _put(held: Any) -> None:
    held["n"] = held["n"] + 1


def _add(held: Any) -> None:
    held.append(1)


def _fill(held: Any) -> None:
    held += 1


HOLDERS: list[Any] = [
    pytest.param(lambda: collections.Counter(n=1), len, _put, id="Counter"),
    pytest.param(lambda: collections.OrderedDict(n=1), lambda held: held["n"], _put, id="OrderedDict"),
    pytest.param(lambda: collections.defaultdict(int, n=1), lambda held: held["n"], _put, id="defaultdict"),
    pytest.param(lambda: Table(n=1), lambda held: held["n"], _put, id="dict"),
    pytest.param(lambda: Row([1]), len, _add, id="list"),
    pytest.param(lambda: collections.deque([1]), len, _add, id="deque"),
    pytest.param(lambda: bytearray(b"a"), len, _add, id="bytearray"),
    pytest.param(lambda: numpy.ones(2), lambda held: float(held[0]), _fill, id="array"),
]


class Net(nn.Module):
    """A module that holds something, and changes it where it is told how."""

    def __init__(self, held: Any, read: Callable[[Any], Any], change: Callable[[Any], None] | None) -> None:
        super().__init__()
        self.held = held
        self.read, self.change = staticmethod(read), staticmethod(change) if change else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.change is not None:
            self.change(self.held)
        return x * self.read(self.held)


def in_a_closure(held: Any, read: Callable[[Any], Any], change: Callable[[Any], None] | None) -> Any:
    def program(x: torch.Tensor) -> torch.Tensor:
        if change is not None:
            change(held)
        return x * read(held)

    return program


STATE = [case for case in HOLDERS if case.id in ("Counter", "OrderedDict", "defaultdict", "deque")]


@pytest.mark.parametrize("make", [Net, in_a_closure])
@pytest.mark.parametrize(("hold", "read", "change"), STATE)
def test_what_the_program_changes_is_state_and_put_back(make: Any, hold: Any, read: Any, change: Any) -> None:
    held, other, last = (
        hold(),
        hold(),
        (lambda held: held["m"] if isinstance(held, dict) else held[-1]) if read is len else read,
    )
    gm, eager = trace(make(held, last, change), (torch.ones(2),)), make(other, last, change)
    assert held == other
    for _ in range(2):
        assert gm(torch.ones(2)).equal(eager(torch.ones(2)))
    assert (held if make is in_a_closure else gm.held) == other


@pytest.mark.parametrize("make", [Net, in_a_closure])
@pytest.mark.parametrize(("hold", "read", "change"), [each for each in HOLDERS if each not in STATE])
def test_what_the_program_changes_is_refused_and_put_back(make: Any, hold: Any, read: Any, change: Any) -> None:
    held = hold()
    before = copy.deepcopy(held)
    with pytest.raises(CaptureError, match=r"changes .*instead|changes .*\n.*\n.*keep") as caught:
        trace(make(held, read, change), (torch.ones(2),))
    assert type(held).__name__ in str(caught.value)
    assert list(held) == list(before) and numpy.array_equal(read(held), read(before))


@pytest.mark.parametrize("make", [Net, in_a_closure])
@pytest.mark.parametrize(("hold", "read", "change"), HOLDERS)
def test_what_others_change_is_told(make: Any, hold: Any, read: Any, change: Any) -> None:
    held = hold()
    gm = trace(make(held, read, None), (torch.ones(2),))
    for _ in range(2):
        assert gm(torch.ones(2)).equal(torch.ones(2) * read(held))
    change(held if make is in_a_closure else gm.held)
    if type(held) is collections.Counter:
        (held if make is in_a_closure else gm.held)["m"] = 1
    with pytest.raises(GuardError):
        gm(torch.ones(2))


def test_functions_in_a_list_are_told() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = [torch.relu, torch.sin]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for step in self.steps:
                x = step(x)
            return x

    gm = trace(Chain(), (torch.ones(2),))
    assert gm(torch.ones(2)).equal(torch.ones(2).sin())
    gm.steps.append(torch.exp)
    with pytest.raises(GuardError, match="steps"):
        gm(torch.ones(2))


def test_a_heap_that_the_program_keeps_is_refused() -> None:
    import heapq

    heap: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        heapq.heappush(heap, len(heap))
        return x * heap[0] + len(heap)

    with pytest.raises(CaptureError, match="goes over"):
        trace(program, (torch.ones(2),))
    assert heap == []


class Holding(nn.Module):
    """Its methods do not mention what it holds, which functions read."""

    def __init__(self, use: Callable[..., Any], **held: Any) -> None:
        super().__init__()
        self.use = use
        for name, value in held.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.use(self, x)


def _counted(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x * len(module.numbers)


def _added(module: Any, x: torch.Tensor) -> torch.Tensor:
    for number in module.numbers:
        x = x + number
    return x


def _looked_up(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x * len(getattr(module, "numbers")) + sum(vars(module)["numbers"])  # noqa: B009


def _whole_ones(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x * (2 if all(isinstance(number, int) for number in module.numbers) else 3)


@pytest.mark.parametrize(
    ("use", "change"),
    [
        (_counted, lambda numbers: numbers.append(3)),
        (_counted, lambda numbers: numbers.append(torch.ones(2))),
        (_added, lambda numbers: numbers.__setitem__(0, 7)),
        (_added, lambda numbers: numbers.__setitem__(0, torch.ones(2))),
        (_looked_up, lambda numbers: numbers.clear()),
        (_whole_ones, lambda numbers: numbers.__setitem__(0, 1.0)),
        (_whole_ones, lambda numbers: numbers.__setitem__(0, "a")),
    ],
)
def test_what_other_functions_read_of_a_module_is_taken_for_granted(use: Any, change: Any) -> None:
    gm, x = trace(Holding(use, numbers=[1, 2], others=[3]), torch.ones(2)), torch.ones(2)
    assert torch.equal(gm(x), use(gm, x))
    gm.others.append(4)  # which none of them reads
    assert torch.equal(gm(x), use(gm, x))
    change(gm.numbers)
    with pytest.raises(GuardError, match=r"self\.numbers was \[1, 2\]"):
        gm(x)


class Bank(nn.Module):
    """Holds tensors in containers of Python's."""

    def __init__(self, use: Callable[..., Any]) -> None:
        super().__init__()
        self.use = use
        self.rows, self.named, self.nested = [X, X * 2], {"a": X * 3}, ([X * 4], 1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.use(self, x)


X = torch.ones(2)


def _all_rows(bank: Any, x: torch.Tensor) -> torch.Tensor:
    for row in bank.rows:
        x = x + row
    return x


def _all_names(bank: Any, x: torch.Tensor) -> torch.Tensor:
    for name, row in bank.named.items():
        x = x * len(name) + row
    return x


BANKS: list[Any] = [
    (_all_rows, lambda bank: bank.rows.append(X)),
    (_all_rows, lambda bank: bank.rows.pop()),
    (_all_rows, lambda bank: bank.rows.reverse()),
    (_all_rows, lambda bank: bank.rows.__setitem__(0, X * 5)),
    (_all_rows, lambda bank: setattr(bank, "rows", [X * 5, X])),
    (lambda bank, x: x + bank.rows[0], lambda bank: bank.rows.__setitem__(0, X.double())),
    (lambda bank, x: x * len(bank.rows), lambda bank: bank.rows.clear()),
    (lambda bank, x: x + bank.nested[0][0], lambda bank: bank.nested[0].__setitem__(0, X * 5)),
    (_all_names, lambda bank: bank.named.update(bc=X)),
    (lambda bank, x: x * (2 if "bc" in bank.named else 3), lambda bank: bank.named.update(bc=X)),
    (lambda bank, x: x * bank.named.get("bc", 3), lambda bank: bank.named.update(bc=X)),
]


@pytest.mark.parametrize(("use", "change"), BANKS)
@pytest.mark.parametrize("prepare", [lambda gm: gm, copy.deepcopy])
def test_tensors_in_containers_of_modules_are_the_ones_that_were_captured(use: Any, change: Any, prepare: Any) -> None:
    gm = prepare(trace(Bank(use), X))
    torch.testing.assert_close(gm(X), use(Bank(use), X), rtol=0, atol=0)
    change(gm)
    with pytest.raises(GuardError, match=r"self\.(rows|named|nested) was"):
        gm(X)


def test_tensors_in_containers_of_modules_may_be_written_in_place() -> None:
    model = Bank(_all_rows)
    model.rows = [torch.ones(2), torch.ones(2)]
    gm = trace(model, X)
    with torch.no_grad():
        gm.rows[0].add_(4)
    assert torch.equal(gm(X), X + 6)


def test_several_methods_have_constants_of_their_own_names() -> None:
    class Two(Bank):
        def other(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.named.get("a", 0) + self.rows[1]

    model = Two(_all_rows)
    gm = trace(model, methods={"forward": ((X,), {}), "other": ((X,), {})})
    assert torch.equal(gm(X), model(X))
    assert torch.equal(gm.other(X), model.other(X))
    gm.rows[1] = X * 7
    for method in (gm.forward, gm.other):
        with pytest.raises(GuardError, match=r"self\.rows was"):
            method(X)


class Told:
    """An object outside of the program whose list holds its own methods, and which cannot be copied."""

    def __init__(self) -> None:
        self.calls = [(self.scale, (2,)), (torch, ())]
        self.lock = threading.Lock()

    def scale(self) -> int:
        return len(self.calls)


def test_a_list_that_holds_methods_of_its_own_holder_is_compared_without_a_copy_of_it() -> None:
    told, x = Told(), torch.ones(2)
    captured = trace(lambda x: x * told.scale(), x)
    assert torch.equal(captured(x), x * 2)
    told.calls.append((told.scale, ()))
    with pytest.raises(GuardError, match=r"told\.calls was"):
        captured(x)
