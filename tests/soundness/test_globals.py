"""What a program reads and writes outside of its modules: a capture agrees with it, or says why it cannot."""

from __future__ import annotations

import argparse
import array
import copy
import functools
import itertools
import pickle
import queue
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import CaptureError, GuardError, errors, trace
from graphwright.runtime import expect_outside

HERE = sys.modules[__name__]
X = torch.tensor([1.0, 2.0])
NUMBER, FLAG, TEXT, NOTHING = 2, True, "add", None
TENSOR = torch.ones(2)
ROW, TABLE, PAIR = [1, 2], {"scale": 2.0, "deep": {"n": 1}}, (1, [2])
STEP = 0
TOTAL: Any = None
WEIGHT = torch.ones(2)
LOG: list[Any] = []
CACHE: dict[str, Any] = {}
COUNTS = {"calls": 0}
ALIAS = LOG
COUNTER = itertools.count()
SETTINGS = types.ModuleType("settings_of_a_test")
SETTINGS.scale = 2.0  # type: ignore[attr-defined]


class Config:
    scale = 2.0

    def __init__(self) -> None:
        self.shift = 1.0


CONFIG = Config()


def number_of() -> Any:
    return NUMBER


def scaled(x: Tensor, by: float = 2.0, *, shift: float = 1.0) -> Tensor:
    return x * by + shift


def triple(x: Tensor) -> Tensor:
    return x * 3


def factory(k: Any) -> Callable[[Tensor], Tensor]:
    def inner(x: Tensor) -> Tensor:
        return x * k

    return inner


class Reads(nn.Module):
    SCALE = 2.0
    TABLE: ClassVar[dict[str, float]] = {"shift": 1.0}

    def forward(self, x: Tensor) -> Tensor:
        return self.through(x) * self.SCALE + type(self).TABLE["shift"]

    def through(self, x: Tensor) -> Tensor:
        return x + NUMBER


INNER = factory(2)


def set_cell(function: Any, value: Any) -> None:
    function.__closure__[0].cell_contents = value


READS: list[Any] = [
    pytest.param(lambda x: x * NUMBER, lambda: setattr(HERE, "NUMBER", 5), id="number"),
    pytest.param(lambda x: x * NUMBER, lambda: setattr(HERE, "NUMBER", 2.0), id="kind of a number"),
    pytest.param(lambda x: x if FLAG else -x, lambda: setattr(HERE, "FLAG", False), id="bool"),
    pytest.param(lambda x: getattr(x, TEXT)(1), lambda: setattr(HERE, "TEXT", "sub"), id="text"),
    pytest.param(lambda x: x if NOTHING is None else -x, lambda: setattr(HERE, "NOTHING", 1), id="None"),
    pytest.param(lambda x: x + TENSOR, lambda: setattr(HERE, "TENSOR", X), id="tensor"),
    pytest.param(lambda x: x * sum(ROW), lambda: ROW.append(3), id="list"),
    pytest.param(lambda x: x * ROW[0], lambda: setattr(HERE, "ROW", [5]), id="another list"),
    pytest.param(lambda x: x * TABLE["scale"], lambda: TABLE.update(scale=3.0), id="dict"),
    pytest.param(lambda x: x * TABLE["deep"]["n"], lambda: TABLE["deep"].update(n=3), id="dict in a dict"),  # type: ignore[index, attr-defined]
    pytest.param(lambda x: x * PAIR[1][0], lambda: PAIR[1].append(3), id="list in a tuple"),  # type: ignore[index, attr-defined]
    pytest.param(lambda x: x * number_of(), lambda: setattr(HERE, "NUMBER", 5), id="in a function"),
    pytest.param(lambda x: x * SETTINGS.scale, lambda: setattr(SETTINGS, "scale", 3.0), id="of another module"),
    pytest.param(lambda x: x * Config.scale, lambda: setattr(Config, "scale", 3.0), id="of a class"),
    pytest.param(lambda x: x * CONFIG.scale, lambda: setattr(Config, "scale", 3.0), id="of an object's class"),
    pytest.param(lambda x: x * CONFIG.shift, lambda: setattr(CONFIG, "shift", 3.0), id="of an object"),
    pytest.param(Reads(), lambda: setattr(HERE, "NUMBER", 5), id="in a method"),
    pytest.param(Reads(), lambda: setattr(Reads, "SCALE", 5.0), id="self.SCALE"),
    pytest.param(Reads(), lambda: Reads.TABLE.update(shift=3.0), id="type(self).TABLE"),
    pytest.param(Reads(), lambda: setattr(Reads, "through", lambda self, x: x * 7), id="method"),
    pytest.param(INNER, lambda: set_cell(INNER, 5), id="cell"),
    pytest.param(lambda x: INNER(x) + 1, lambda: set_cell(INNER, 5), id="cell of a function that is called"),
    pytest.param(lambda x: scaled(x), lambda: setattr(scaled, "__defaults__", (3.0,)), id="default"),
    pytest.param(lambda x: scaled(x), lambda: setattr(scaled, "__kwdefaults__", {"shift": 3.0}), id="keyword default"),
    pytest.param(lambda x: scaled(x), lambda: setattr(scaled, "__code__", triple.__code__), id="code"),
    pytest.param(lambda x: scaled(x), lambda: setattr(HERE, "scaled", triple), id="function"),
]


@pytest.fixture
def restored() -> Iterator[None]:
    """Put back what a test does to this file."""
    names = dict(vars(HERE))
    tables = [(table, copy.deepcopy(table)) for table in (ROW, TABLE, LOG, CACHE, COUNTS, Reads.TABLE, PAIR[1])]
    classes = [(kind, dict(vars(kind))) for kind in (Config, Reads)]
    function, keywords = scaled, (scaled.__code__, scaled.__defaults__, scaled.__kwdefaults__)
    yield
    vars(HERE).update(names)
    for table, before in tables:
        table.clear()  # type: ignore[attr-defined]
        table.extend(before) if isinstance(table, list) else table.update(before)  # type: ignore[attr-defined]
    for kind, held in classes:
        for name, value in held.items():
            if not name.startswith("__"):
                setattr(kind, name, value)
    SETTINGS.scale, CONFIG.shift = 2.0, 1.0  # type: ignore[attr-defined]
    function.__code__, function.__defaults__, function.__kwdefaults__ = keywords
    set_cell(INNER, 2)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(("program", "change"), READS)
def test_what_is_read_is_guarded(program: Any, change: Callable[[], Any]) -> None:
    gm = trace(program, X)
    assert torch.equal(gm(X), program(X))
    assert [guard.node.target for guard in gm.guards if guard.node] == [expect_outside]
    change()
    with pytest.raises(GuardError, match="put it back, or capture again"):
        gm(X)


def counter(x: Tensor) -> Tensor:
    global STEP
    STEP += 1
    return x * STEP


def counter_elsewhere(x: Tensor) -> Tensor:
    advance()
    return x * STEP


def advance() -> None:
    global STEP
    STEP += 1


def running_total(x: Tensor) -> Tensor:
    global TOTAL
    TOTAL = x if TOTAL is None else TOTAL + x
    return TOTAL * 2  # type: ignore[no-any-return]


def logs(x: Tensor) -> Tensor:
    LOG.append(x.sum())
    return x


def logs_by_another_name(x: Tensor) -> Tensor:
    LOG.append(x.sum())
    ALIAS.append(x * 2)
    return x


def logs_on_a_way(x: Tensor) -> Tensor:
    if x.sum() > 4:
        LOG.append(x.sum())
    return x


def counts_on_a_way(x: Tensor) -> Tensor:
    global STEP
    if x.sum() > 4:
        STEP += 1
    return x * STEP


def counts_without_a_name(x: Tensor) -> Tensor:
    globals()["STEP"] += 1
    return x * STEP


def counts_in_its_module(x: Tensor) -> Tensor:
    sys.modules[__name__].STEP += 1  # type: ignore[attr-defined]
    return x * STEP


RECORD, ARGUMENTS = types.SimpleNamespace(step=0, seen={}), argparse.Namespace(step=0)


def counts_in_records(x: Tensor) -> Tensor:
    RECORD.step += 1
    RECORD.seen["rows"] = RECORD.step
    ARGUMENTS.step += 2
    return x * RECORD.step + ARGUMENTS.step


def counts_in_a_class_of_torch(x: Tensor) -> Tensor:
    nn.ReLU.steps = getattr(nn.ReLU, "steps", 0) + 1  # type: ignore[attr-defined]
    return x * nn.ReLU.steps  # type: ignore[attr-defined]


def caches(x: Tensor) -> Tensor:
    CACHE["last"] = x * 2
    return x


def reads_a_cache(x: Tensor) -> Tensor:
    if "last" in CACHE:
        y = CACHE["last"] + 1
    else:
        y = x
    CACHE["last"] = x
    return y  # type: ignore[no-any-return]


def counts(x: Tensor) -> Tensor:
    COUNTS["calls"] += 1
    return x * COUNTS["calls"]


class Calls(nn.Module):
    calls, made = 0, 0
    seen: ClassVar[list[Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        Calls.calls += 1
        type(self).made += 2
        self.seen.append(x)
        return x * Calls.calls + self.made


def with_a_cell() -> Callable[[Tensor], Tensor]:
    n, seen = 0, []

    def program(x: Tensor) -> Tensor:
        nonlocal n
        n += 1
        seen.append(x)
        return x * n

    return program


def state() -> Any:
    found = (STEP, TOTAL, LOG, CACHE, COUNTS, Calls.calls, Calls.made, Calls.seen, vars(RECORD), vars(ARGUMENTS))
    return copy.deepcopy(found)


def set_state(values: Any) -> None:
    global STEP, TOTAL
    STEP, TOTAL, LOG[:], cache, numbers, Calls.calls, Calls.made, Calls.seen[:], *records = copy.deepcopy(values)
    for table, held in zip((CACHE, COUNTS, vars(RECORD), vars(ARGUMENTS)), (cache, numbers, *records), strict=True):
        table.clear()
        table.update(held)


WRITES: list[Any] = [
    *(counter, counter_elsewhere, running_total, logs, logs_by_another_name, logs_on_a_way, counts_on_a_way, caches),
    *(reads_a_cache, counts, counts_without_a_name, counts_in_its_module, counts_in_records, Calls(), with_a_cell()),
]


@pytest.mark.parametrize("program", WRITES, ids=lambda program: getattr(program, "__qualname__", type(program)))
def test_what_is_written_is_a_part_of_the_program(program: Any) -> None:
    before, stories = state(), []
    gm = trace(program, X)
    torch.testing.assert_close(state(), before, rtol=0, atol=0)  # the capture changes nothing
    inputs = [X, X * 2, X * 3, X]
    cells = getattr(program, "__closure__", None) or ()
    start = [copy.deepcopy(cell.cell_contents) for cell in cells]
    for run in (program, gm):
        results = [run(x) for x in inputs]
        stories.append((results, state(), [copy.deepcopy(cell.cell_contents) for cell in cells]))
        set_state(before)
        for cell, value in zip(cells, start, strict=True):
            cell.cell_contents = value
    torch.testing.assert_close(*stories, rtol=0, atol=0)


def marks(x: Tensor) -> Tensor:
    WEIGHT.steps = getattr(WEIGHT, "steps", 0) + 1  # type: ignore[attr-defined]
    return x * WEIGHT


def queues(x: Tensor) -> Tensor:
    QUEUE.put(1)
    return x


def counts_in_an_array(x: Tensor) -> Tensor:
    BYTES[0] += 1
    return x * BYTES[0]


def counts_in_a_thread(x: Tensor) -> Tensor:
    OF_THREAD.scale += 1
    return x * OF_THREAD.scale


def slows_down(x: Tensor) -> Tensor:
    OPTIMIZER.param_groups[0]["lr"] *= 0.5
    return x * OPTIMIZER.param_groups[0]["lr"]


QUEUE, BYTES = queue.Queue[int](), array.array("i", [0])
OPTIMIZER = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.5)


def advances(x: Tensor) -> Tensor:
    return x * next(COUNTER)


def fills(x: Tensor, seen: list[Any] = []) -> Tensor:  # noqa: B006
    seen.append(1)
    return x * len(seen)


def counts(x: Tensor, numbers: Iterator[int] = itertools.count(1)) -> Tensor:  # noqa: B008
    for number in numbers:
        x = x * number
        break
    return x


def goes_on(x: Tensor) -> Tensor:
    for number in HELD["numbers"][0]:
        return x * number
    return x


def goes_on_here(x: Tensor) -> Tensor:
    for number in OF_THREAD.numbers:
        return x * number
    return x


HELD = {"numbers": [itertools.count(1)]}
OF_THREAD = threading.local()
OF_THREAD.numbers, OF_THREAD.scale = itertools.count(1), 2.0


@pytest.mark.parametrize(
    ("program", "what"),
    [
        pytest.param(advances, r"(?s)advances the global 'COUNTER'.*at test_globals\.py:\d+: return", id="iterator"),
        pytest.param(lambda x: counts(x), "advances a default value of counts", id="iterator of a default value"),
        pytest.param(goes_on, r"advances what the global 'HELD' of \S+ has", id="iterator in a dict"),
        pytest.param(goes_on_here, "advances 'numbers' of a _local", id="iterator of a thread"),
        pytest.param(queues, "changes the global 'QUEUE'", id="queue"),
        pytest.param(counts_in_an_array, "changes the global 'BYTES'", id="array"),
        pytest.param(counts_in_a_thread, "changes the global 'OF_THREAD'", id="attribute of a thread"),
        pytest.param(slows_down, "changes the global 'OPTIMIZER'", id="optimizer"),
        pytest.param(marks, r"changes the global 'WEIGHT' of \S+, a Tensor", id="attribute of a tensor"),
        pytest.param(lambda x: fills(x), "changes a default value of fills", id="default value"),
    ],
)
def test_what_no_graph_can_change_is_refused(program: Any, what: str) -> None:
    with pytest.raises(CaptureError, match=what):
        trace(program, X)
    assert fills.__defaults__ == ([],)


def test_an_attribute_of_a_class_of_torch_is_written_at_each_call() -> None:
    try:
        gm = trace(counts_in_a_class_of_torch, X)
        assert not hasattr(nn.ReLU, "steps")
        nn.ReLU.steps = 0  # type: ignore[attr-defined]
        assert [gm(X)[0].item() for _ in range(2)] == [X[0], X[0] * 2] and nn.ReLU.steps == 2  # type: ignore[attr-defined]
    finally:
        del nn.ReLU.steps  # type: ignore[attr-defined]


def test_code_says_which_variable_it_writes() -> None:
    code = trace(counter, X).code
    assert "step = test_globals.STEP" in code and "test_globals.STEP = STEP" in code
    assert "Calls.calls = " in trace(WRITES[-2], X).code


def test_captures_with_variables_are_copied_pickled_and_saved(tmp_path: Any) -> None:
    reading, writing = trace(lambda x: x * NUMBER, X), trace(counter, X)
    assert torch.equal(copy.deepcopy(reading)(X), X * NUMBER)
    assert torch.equal(pickle.loads(pickle.dumps(writing))(X), X)
    set_state((0, *state()[1:]))
    graphwright.save(reading, tmp_path / "reading.gw")
    assert torch.equal(graphwright.load(tmp_path / "reading.gw")(X), X * NUMBER)
    with pytest.raises(errors.ExportError, match="STEP"):
        graphwright.save(writing, tmp_path / "writing.gw")


class OfThread(threading.local):
    scale = 2.0


HIDING, OF_THREAD_TOO = Config(), OfThread()


@pytest.mark.parametrize(
    ("program", "owner", "now"),
    [
        pytest.param(
            lambda x: x * HIDING.scale, HIDING, "'scale' of a Config was no attribute of its own", id="object"
        ),
        pytest.param(
            lambda x: x * scale_of([HIDING]), HIDING, "'scale' of .* was no attribute of its own", id="in a call"
        ),
        pytest.param(
            lambda x: x * OF_THREAD_TOO.scale, OF_THREAD_TOO, "was no attribute of its own", id="thread-local"
        ),
        pytest.param(lambda x: x * OF_THREAD.scale, OF_THREAD, r"was 2\.0 when", id="value of a thread-local"),
        pytest.param(lambda x: x * getattr(OF_THREAD, "scale", 1), OF_THREAD, r"was 2\.0 when", id="if it is there"),
    ],
)
def test_an_attribute_of_an_object_that_is_set_later_is_seen(program: Any, owner: Any, now: str) -> None:
    gm, before = trace(program, X), dict(vars(owner))
    assert torch.equal(gm(X), program(X))
    owner.scale = 3.0
    with pytest.raises(GuardError, match=f"{now}.*; now it is 3.0"):
        gm(X)
    vars(owner).clear()
    vars(owner).update(before)
    assert torch.equal(gm(X), program(X))


def scale_of(configs: list[Config]) -> float:
    return configs[0].scale


def test_what_a_thread_has_is_its_own() -> None:
    """Another thread has no such attribute: the program fails there, and so does its capture."""
    gm, raised = trace(lambda x: x * OF_THREAD.scale, X), []

    def call() -> None:
        try:
            gm(X)
        except GuardError as error:
            raised.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert raised and "was 2.0 when the program was captured" in raised[0]


class Named(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


ONE, OUTER, MISSES = Plain(2), Plain(Plain(2)), Plain(2)
SPACE = types.SimpleNamespace(inner=types.SimpleNamespace(value=2))


def value_or(owner: Any) -> int:
    try:
        return owner.more  # type: ignore[no-any-return]
    except AttributeError:
        return 2


def another_one() -> None:
    global ONE
    ONE = Plain(3)


# Programs, and how what they read becomes something else.
CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[], Any]]] = {
    "another object": (lambda x: x * ONE.value, another_one),
    "another object in one": (lambda x: x * OUTER.value.value, lambda: setattr(OUTER, "value", Plain(3))),
    "another namespace": (lambda x: x * SPACE.inner.value, lambda: setattr(SPACE, "inner", Plain(3))),
    "an attribute by default": (lambda x: x * getattr(MISSES, "more", 2), lambda: setattr(MISSES, "more", 3)),
    "an attribute that is asked for": (
        lambda x: x * 3 if hasattr(MISSES, "more") else x * 2,
        lambda: setattr(MISSES, "more", 3),
    ),
    "an attribute that is tried": (lambda x: x * value_or(MISSES), lambda: setattr(MISSES, "more", 3)),
    "an attribute of the class": (lambda x: x * getattr(MISSES, "most", 2), lambda: setattr(Plain, "most", 3)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_program_finds_is_the_same_at_each_call(name: str) -> None:
    program, change = CHANGES[name]
    gm = trace(program, X)
    assert torch.equal(gm(X), X * 2)
    before = {key: dict(vars(value)) for key, value in (("OUTER", OUTER), ("SPACE", SPACE), ("MISSES", MISSES))}
    one = ONE
    try:
        change()
        assert torch.equal(program(X), X * 3)
        with pytest.raises(GuardError):
            gm(X)
    finally:
        setattr(HERE, "ONE", one)  # noqa: B010
        for key, held in before.items():
            vars(getattr(HERE, key)).clear()
            vars(getattr(HERE, key)).update(held)
        if hasattr(Plain, "most"):
            del Plain.most
    assert torch.equal(gm(X), X * 2)


class Alone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self) -> Tensor:
        return self.weight * NUMBER


def test_programs_without_inputs_check_what_they_found(monkeypatch: pytest.MonkeyPatch) -> None:
    gms = [trace(Alone(), ()), trace(lambda: torch.ones(2) * NUMBER, ())]
    assert all(torch.equal(gm(), torch.full((2,), 2.0)) for gm in gms)
    monkeypatch.setattr(HERE, "NUMBER", 3)
    for gm in gms:
        with pytest.raises(GuardError, match=r"'NUMBER'.* was 2 when the program was captured; now it is 3"):
            gm()


def test_programs_without_inputs_check_the_modes_of_torch() -> None:
    gm = trace(lambda: 2 if torch.get_default_dtype() == torch.float32 else 3, ())
    assert gm() == 2
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(GuardError, match="default_dtype"):
            gm()
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_dict_whose_class_raises_an_error_of_its_own_is_seen() -> None:
    names: dict[str, Any] = {"NAMED": Named(value=2)}
    exec("def program(x):\n    return x * NAMED['value']\n", names)
    gm = trace(names["program"], X)
    names["NAMED"]["value"] = 3
    with pytest.raises(GuardError):
        gm(X)


def scaled_by_default(x: Tensor, by: dict[str, int] = {"scale": 2}) -> Tensor:  # noqa: B006
    return x * by["scale"]


def scaled_by_its_own(x: Tensor, *, by: dict[str, int] = {"scale": 2}) -> Tensor:  # noqa: B006
    return x * by["scale"]


@pytest.mark.parametrize(
    ("program", "held"),
    [
        pytest.param(functools.partial(scaled_by_default, by={"scale": 2}), lambda p: p.keywords["by"], id="partial"),
        pytest.param(scaled_by_default, lambda p: p.__defaults__[0], id="default"),
        pytest.param(scaled_by_its_own, lambda p: p.__kwdefaults__["by"], id="default by name"),
    ],
)
def test_what_a_program_is_called_with_by_itself_is_told(program: Any, held: Callable[[Any], Any]) -> None:
    gm = trace(program, X)
    assert torch.equal(gm(X), X * 2)
    held(program)["scale"] = 3
    with pytest.raises(GuardError, match="of the program was"):
        gm(X)
    held(program)["scale"] = 2
    assert torch.equal(gm(X), X * 2)
