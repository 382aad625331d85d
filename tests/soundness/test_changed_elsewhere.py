"""What a program changes outside, however it comes to it: done at each call, refused, or said."""

from __future__ import annotations

import enum
import functools
import gc
import heapq
import io
import logging
import math
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import CaptureError, GuardError, TracerWarning, trace

X = torch.ones(3)


@functools.lru_cache
def ones(count: int) -> Tensor:
    return torch.ones(count)


@functools.cache
def window(count: int, *, scale: float = 1.0) -> list[Tensor]:
    made = torch.zeros(count)
    made[0] += scale
    return [made]


class Caching(nn.Module):
    @functools.lru_cache(maxsize=4, typed=True)  # noqa: B019 - a model does so
    def table(self, count: int) -> Tensor:
        return torch.full((count,), 2.0)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table(x.shape[0])


CACHING: list[tuple[Any, Any, Callable[[Any], Tensor]]] = [
    (lambda x: x * ones(3), ones, lambda program: ones(3)),
    (lambda x: x * ones(x.shape[0]), ones, lambda program: ones(3)),
    (lambda x: x * window(x.shape[0], scale=2.0)[0], window, lambda program: window(3, scale=2.0)[0]),
    (Caching(), Caching.table, lambda program: program.table(3)),
]


@pytest.mark.parametrize("number", range(len(CACHING)))
@pytest.mark.parametrize("is_new", [False, True])
def test_who_writes_to_what_a_cache_keeps_is_noticed(number: int, is_new: bool) -> None:
    program, cache, kept = CACHING[number]
    cache.cache_clear()
    captured = trace(program, (X,))
    for _ in range(2):
        assert is_new or torch.equal(captured(X), program(X))
    kept(program).zero_()
    with pytest.raises(GuardError, match="what the cache of"):
        captured(X)
    cache.cache_clear()
    assert torch.equal(captured(X), program(X))


class Model:
    calls = 0

    def factor(self) -> int:
        return 2


class Mode(enum.Enum):
    FAST = 1

    @functools.cached_property
    def half(self) -> float:
        return 0.5


def triple(self: Model) -> int:
    return 3


TEXT, RING, LOG, OF_THREAD = io.StringIO(), threading.Event(), logging.getLogger("changed"), threading.local()
HEAP: list[int] = []


def state() -> Any:
    found = [vars(Model).get(name) for name in ("factor", "calls", "made")], vars(triple).copy(), triple.__defaults__
    return repr((*found, TEXT.getvalue(), LOG.level, "made" in sys.modules, vars(math).get("made"), vars(OF_THREAD)))


FACTOR = Model.factor


def start() -> None:
    """Have all be as it is when the tests start."""
    Model.factor, Model.calls, triple.__defaults__ = FACTOR, 0, None  # type: ignore[method-assign]
    for owner in (Model, math):
        if "made" in vars(owner):
            delattr(owner, "made")
    for table in (vars(triple), vars(OF_THREAD), HEAP):
        table.clear()  # type: ignore[attr-defined]
    sys.modules.pop("made", None)
    LOG.setLevel(logging.NOTSET)
    RING.clear()


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    start()
    yield
    start()


def called(program: Callable[[Tensor], Tensor]) -> list[Any]:
    start()
    return [(program(x).tolist(), state()) for x in (X, torch.ones(5))]


# ---- attributes of classes and functions, by whatever name and way


def sets_a_method(x: Tensor) -> Tensor:
    setattr(Model, "fac" + "tor", triple)
    return x * Model().factor()


def sets_it_past_the_class(x: Tensor) -> Tensor:
    type.__setattr__(Model, "calls", x.shape[0])
    return x * Model.calls


def sets_it_by_its_object(x: Tensor) -> Tensor:
    model = Model()
    type(model).calls += 1
    return x * Model.calls


def sets_in_the_dict_of_a_function(x: Tensor) -> Tensor:
    triple.__dict__["made"] = x.shape[0]
    return x


def sets_in_a_module_of_python(x: Tensor) -> Tensor:
    import math as numbers

    numbers.made = x.shape[0]  # type: ignore[attr-defined]
    return x


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(sets_a_method, id="setattr"),
        pytest.param(sets_it_past_the_class, id="type.__setattr__"),
        pytest.param(sets_it_by_its_object, id="type(object)"),
        pytest.param(sets_in_the_dict_of_a_function, id="__dict__"),
        pytest.param(sets_in_a_module_of_python, id="a module of Python's"),
    ],
)
def test_attributes_are_set_at_each_call(program: Callable[[Tensor], Tensor]) -> None:
    before = state()
    gm = trace(program, (X,))
    assert state() == before
    assert called(gm) == called(program) and state() != before


# ---- what no graph can change


def keeps_a_level(x: Tensor) -> Tensor:
    logging.getLogger("changed").setLevel(logging.ERROR)
    return x


def changes_defaults(x: Tensor) -> Tensor:
    triple.__defaults__ = (1,)
    return x


def hides_a_module(x: Tensor) -> Tensor:
    sys.modules["made"] = types.ModuleType("made")
    return x


def counts_in_an_enum(x: Tensor) -> Tensor:
    Mode.FAST.hits = getattr(Mode.FAST, "hits", 0) + 1  # type: ignore[attr-defined]
    return x


def writes_a_text(x: Tensor) -> Tensor:
    TEXT.write(f"{x.shape[0]} rows\n")
    return x


def sets_of_a_thread(x: Tensor) -> Tensor:
    OF_THREAD.rows = x.shape[0]
    return x


def filters(x: Tensor) -> Tensor:
    warnings.filters.append(warnings.filters[0])  # type: ignore[attr-defined]
    return x


class Holds(nn.Module):
    def __init__(self, held: Any, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.held, self.change = held, change

    def forward(self, x: Tensor) -> Tensor:
        self.change(self.held)
        return x


@pytest.mark.parametrize(
    ("program", "what"),
    [
        pytest.param(keeps_a_level, "what logging.getLogger() gives, a Logger", id="what a call gives"),
        pytest.param(changes_defaults, "'__defaults__' of the function 'triple'", id="defaults"),
        pytest.param(hides_a_module, "sys.modules, a dict", id="sys.modules"),
        pytest.param(counts_in_an_enum, "'Mode.FAST', a Mode", id="member of an enum"),
        pytest.param(writes_a_text, "the global 'TEXT' of ", id="StringIO"),
        pytest.param(sets_of_a_thread, "the global 'OF_THREAD' of ", id="of a thread"),
        pytest.param(filters, "warnings.filters, a list", id="list of a module of Python's"),
        pytest.param(Holds(io.BytesIO(), lambda held: held.write(b"a")), "'held' of a Holds, a BytesIO", id="BytesIO"),
        pytest.param(Holds([io.StringIO()], lambda held: held[0].write("a")), "what 'held' of a Holds has", id="in it"),
        pytest.param(Holds(logging.Logger("a"), lambda held: held.setLevel(40)), "'held' of a Holds", id="logger"),
        pytest.param(Holds(memoryview(bytearray(2)), lambda held: held.__setitem__(0, 1)), "memoryview", id="bytes"),
    ],
)
def test_what_no_graph_can_change_is_refused(program: Any, what: str) -> None:
    before, filters = state(), [*warnings.filters]
    with pytest.raises(CaptureError) as refused:
        trace(program, (X,))
    assert what in str(refused.value)
    assert "test_changed_elsewhere.py:" in str(refused.value) or program is counts_in_an_enum
    assert (state(), warnings.filters) == (before, filters)


# ---- what is called for what it does


def rings(x: Tensor) -> Tensor:
    RING.set()
    return x


def collects(x: Tensor) -> Tensor:
    from gc import set_debug

    set_debug(0)
    return x


def shows_less(x: Tensor) -> Tensor:
    torch.set_printoptions(profile="default")
    return x


def freezes(x: Tensor) -> Tensor:
    gc.unfreeze()
    return x


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (rings, "threading.Event.set()"),
        (collects, "gc.set_debug()"),
        (freezes, "gc.unfreeze()"),
        (shows_less, "torch.set_printoptions()"),
    ],
)
def test_what_is_called_for_what_it_does_is_said(program: Callable[[Tensor], Tensor], what: str) -> None:
    with pytest.warns(TracerWarning) as told:
        trace(program, (X,))
    assert [f"{what} is called: the captured program does not call it" in str(each.message) for each in told] == [True]


def makes_its_own(x: Tensor) -> Tensor:
    text, ring, seen = io.StringIO(), threading.Event(), types.SimpleNamespace()
    text.write("a")
    ring.set()
    seen.rows = x.shape[0]
    return x * len(text.getvalue()) * seen.rows * Mode.FAST.half


@pytest.mark.filterwarnings("error")
def test_what_the_program_makes_itself_it_may_change() -> None:
    assert torch.equal(trace(makes_its_own, (X,))(torch.ones(5)), makes_its_own(torch.ones(5)))


def pushes(x: Tensor) -> Tensor:
    heapq.heappush(HEAP, x.shape[0])
    return x


def test_functions_that_go_past_the_methods_of_a_list_are_seen() -> None:
    with pytest.raises(CaptureError, match=r"goes over \S+HEAP, to which it adds from call to call"):
        trace(pushes, (X,))
