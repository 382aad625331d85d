"""What a program keeps in attributes: captured once, called often, its state goes the way of eager's."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright import CaptureError, Interpreter, trace
from graphwright.ops import write_attribute


class Counter(nn.Module):
    """A counter, a running sum, a flag, a buffer replaced: numbers of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.total, self.is_ready = 0, 0.0, False
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.total += 0.5
        self.seen = self.seen + x
        if not self.is_ready:
            x = x * 100
        self.is_ready = True
        return x * self.count + self.total + self.seen


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.hidden: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.hidden is None:
            self.hidden = torch.zeros_like(x)
        self.hidden = torch.tanh(self.linear(x) + self.hidden)
        return self.hidden


class Nested(nn.Module):
    """The state is that of a module inside, read by a method of its own and by its owner."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = Recurrent()

    def is_new(self) -> bool:
        return self.cell.hidden is None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_new():
            x = x + 1
        return self.cell(x) + self.cell(x)


class Pair(nn.Module):
    """None at first, then a tuple: a program with two ends."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 3)
        self.state: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, self.state = self.lstm(x[None], self.state)
        return y[0]


class _Shift:
    def __init__(self, by: int) -> None:
        self.by = by

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shift) and other.by == self.by

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.by


def _of_some_rank(x: torch.Tensor) -> torch.Tensor:
    return x[None] if x.sum() > 1 else x


class FirstCall(nn.Module):
    """What the first call sets up, a list and an object, beside branches with different ends: a program with many."""

    def __init__(self) -> None:
        super().__init__()
        self.scales: list[float] | None = None
        self.shift: _Shift | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = _of_some_rank(x).flatten()
        if self.scales is None or self.shift is None:
            self.scales, self.shift = [x.size(0) * 0.5, 2.0], _Shift(x.size(0))
            if x.min() < -100:
                raise ValueError("too small")
        y = self.shift(_of_some_rank(x * self.scales[0]))
        return (y * self.scales[1]).reshape(3)


class Places(nn.Module):
    """Containers with a place for each value."""

    def __init__(self) -> None:
        super().__init__()
        self.state = {"n": 0, "h": torch.zeros(3)}
        self.layers: list[torch.Tensor | None] = [None, torch.ones(3)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state["n"] += 1
        self.state["h"] = self.state["h"] * 0.5 + x
        for i in range(2):
            kept = self.layers[i]
            self.layers[i] = x if kept is None else kept + x
        return self.state["h"] * self.state["n"] + self.layers[0] + self.layers[1]


class Sized(nn.Module):
    """Kept for one size, computed anew for another; a list of tensors that every call makes anew."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.zeros(1, 1)
        self.pyramid: list[torch.Tensor] = [torch.tensor(0)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None or self.table.shape[1] != x.shape[0]:
            self.table = torch.arange(x.shape[0]).float().view(1, -1)
        self.pyramid = [x]
        for _ in range(2):
            self.pyramid.append(self.pyramid[-1] * 2)
        return x + self.table + self.pyramid[-1]


class Cache(nn.Module):
    """A dict that the program fills: what is in it decides."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))
        self.cache: dict[str, torch.Tensor] = {}

    def bias(self, key: str) -> torch.Tensor:
        if self.training:
            return self.weight * 2
        if key not in self.cache:
            self.cache[key] = self.weight * 2
        return self.cache[key]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.bias(str(x.device))


class KeysAndValues(nn.Module):
    """A dict of tuples that grow."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        row = x[None]
        if "kv" in self.kept:
            keys, values = self.kept["kv"]
            keys, values = torch.cat([keys, row]), torch.cat([values, row * 2])
        else:
            keys, values = row, row * 2
        self.kept["kv"] = (keys, values)
        return torch.softmax(row @ keys.t(), -1) @ values


class Window(nn.Module):
    """A list that grows to a length."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append(x * 2)
        if len(self.log) > 2:
            self.log.pop(0)
        return torch.stack(self.log).sum(0) + self.log[-1]


class InBranch(nn.Module):
    """Written on one side of a branch, before an exception, and by an expression of a size."""

    def __init__(self) -> None:
        super().__init__()
        self.positive, self.shape, self.errors = 0, torch.Size([]), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            self.positive += 1
            x = x * 2
        self.shape = x.shape
        if x.max() > 50:
            self.errors += 1
            raise ValueError("too large")
        return x * self.positive


PROGRAMS = [
    pytest.param(kind, id=kind.__name__)
    for kind in (
        Counter, Recurrent, Nested, Pair, FirstCall, Places, Sized, Cache, KeysAndValues, Window, InBranch,
    )
]  # fmt: skip
CALLS = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, 0.5]), torch.tensor([0.1, 0.2, 99.0]), torch.ones(3)]


def state_of(module: nn.Module) -> dict[str, Any]:
    found = {}
    for path, inner in module.named_modules():
        if type(inner).__module__.startswith("torch."):
            continue
        names = {*inner.__dict__} - {*nn.Module().__dict__, "_graphwright_state"} | {"training"}
        found.update({f"{path}.{name}": copy.copy(getattr(inner, name)) for name in {*names, *inner._buffers}})
    return found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


def outcome(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Any:
    try:
        return run(x)
    except ValueError as error:
        return str(error).partition("\n")[0]


@pytest.mark.parametrize("warm", [False, True], ids=["new", "used before"])
@pytest.mark.parametrize("kind", PROGRAMS)
def test_state_flows_from_call_to_call(kind: type[nn.Module], warm: bool) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    with torch.no_grad():
        if warm:
            model(CALLS[0])
        eager = copy.deepcopy(model)
        before = state_of(model)
        gm = trace(model, (CALLS[0],))
        assert same(state_of(model), before)  # left exactly as it was found
        assert same(state_of(gm), before)
        interpreted = copy.deepcopy(gm)
        for i, x in enumerate(CALLS):
            for module in (eager, gm, interpreted):
                module.train(i == 3)
            expected = outcome(eager, x.clone())
            assert same(outcome(gm, x.clone()), expected)
            assert same(outcome(Interpreter(interpreted).run, x.clone()), expected)
            assert same(state_of(gm), state_of(eager))
            assert same(state_of(interpreted), state_of(eager))
        assert same(state_of(model), before)


def test_writes_are_printed_as_assignments_after_what_computes_them() -> None:
    gm = trace(Nested(), (torch.ones(2, 3),))
    code = "\n".join(line.strip() for line in gm.code.splitlines() if line.strip() and "#" not in line)
    assert code.endswith("self.cell.hidden = tanh_1;  del tanh_1\nreturn add_2"), code
    assert "hidden = self.cell.hidden" in code
    assert [node.args[0] for node in gm.graph.find_nodes(op="call_function", target=write_attribute)] == ["cell.hidden"]


def test_writes_survive_dead_code_removal_copies_and_files(tmp_path: Path) -> None:
    gm = trace(Counter(), (torch.ones(3),))
    gm.graph.eliminate_dead_code()
    graphwright.save(gm, tmp_path / "counter.gw")
    loaded = graphwright.load(tmp_path / "counter.gw", allow=[__name__])
    for module in (gm, copy.deepcopy(gm), pickle.loads(pickle.dumps(gm)), loaded):
        module(torch.ones(3))
        module(torch.ones(3))
        assert (module.count, module.total, module.is_ready) == (2, 1.0, True)
        assert torch.equal(module.seen, 2 * torch.ones(3))
        module.count, module.total, module.is_ready, module.seen = 0, 0.0, False, torch.zeros(3)


def test_gradients_flow_through_what_is_kept() -> None:
    torch.manual_seed(0)
    model = Recurrent()
    eager, gm = copy.deepcopy(model), trace(model, (torch.ones(1, 3),))
    for module in (eager, gm):
        for _ in range(3):
            y = module(torch.ones(1, 3))
        y.sum().backward()
    torch.testing.assert_close(gm.linear.weight.grad, eager.linear.weight.grad)


class Untouched(nn.Module):
    """Nothing is kept: no write in the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.parts = 2, [1, 2]
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale = self.scale
        self.parts = self.parts[:2] and self.parts
        return self.norm(x) * self.scale + len(self.parts)


def test_what_the_program_leaves_as_it_was_is_not_written() -> None:
    gm = trace(Untouched(), (torch.ones(2, 3),))
    assert not gm.graph.find_nodes(op="call_function", target=write_attribute)
    assert gm.code.rstrip().endswith("return self.norm(x) * self.scale + 2")


class Table(nn.Module):
    """A dict of tensors that the program only reads."""

    def __init__(self) -> None:
        super().__init__()
        self.table = {"a": torch.ones(3), "b": torch.arange(3.0)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name, value in self.table.items():
            x = x + value if name in self.table else x
        return x * self.table["b"]


def test_a_dict_of_tensors_may_be_read_as_a_whole() -> None:
    gm = trace(Table(), (torch.ones(3),))
    assert torch.equal(gm(torch.ones(3)), Table()(torch.ones(3)))


class Turns(nn.Module):
    """A tensor, then a tuple, read before it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.last
        self.last = (x,)
        return y


class Objects(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = object()
        return x


class Deletes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        del self.last
        return x


REFUSED = [
    pytest.param(Turns, "the program reads Turns.last and leaves a value of another kind in it", id="kind"),
    pytest.param(Objects, "keeps a builtins.object in Objects.last", id="an object"),
    pytest.param(Deletes, "deletes Deletes.last", id="an attribute deleted"),
]


class Once(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls: int | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.calls is not None:
            x = x.view(17)
        self.calls = 1
        return x + 1


def test_a_way_on_which_the_example_fails_is_guarded_against() -> None:
    gm = trace(Once(), torch.ones(3))
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(graphwright.GuardError, match="captured where this was True"):
        gm(torch.ones(2))


@pytest.mark.parametrize(("kind", "message"), REFUSED)
def test_what_cannot_be_kept_is_refused(kind: type[nn.Module], message: str) -> None:
    with pytest.raises(CaptureError, match=message) as error:
        trace(kind(), (torch.ones(3),))
    assert "fix:" in str(error.value)


class Scale:
    """An object that a module makes and keeps."""

    def __init__(self, factor: float, steps: list[int]) -> None:
        self.factor, self.steps = factor, steps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor + sum(self.steps)


class Scales(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale: Any = None
        self.last: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale is None:
            self.scale = Scale(float(x.max()), [x.shape[0], 2])
        self.last = Scale(1.0, [x.shape[1]])
        return self.scale(x)  # type: ignore[no-any-return]


def test_objects_that_the_program_makes_are_kept() -> None:
    model = Scales()
    gm = trace(model, (torch.ones(2, 3),))
    for i, x in enumerate((torch.full((2, 3), 5.0), torch.full((4, 3), 7.0), torch.randn(3, 2))):
        assert torch.equal(gm(x), model(x)), i
        assert type(gm.scale) is Scale and vars(gm.scale) == vars(model.scale) and vars(gm.last) == vars(model.last)
    assert trace(Scales(), (torch.ones(2, 3),)).scale is None


def test_an_object_with_what_cannot_be_kept_is_refused() -> None:
    class Opens(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.scale = Scale(x, [])  # type: ignore[arg-type]
            self.scale.lock = object()
            return x

    with pytest.raises(CaptureError, match=r"keeps a .*Scale in Opens.scale"):
        trace(Opens(), (torch.ones(2),))


class Remembers(nn.Module):
    """Looks a tensor up that a first call puts there, in one of some ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.kept, self.flags = way, {}, set()  # type: ignore[var-annotated]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "key":
            try:
                held = self.kept["a"]
            except KeyError:
                held = self.kept["a"] = x + 1
        elif self.way == "any error":
            try:
                held = self.kept["a"]
            except Exception:
                held = self.kept["a"] = x + 1
        elif self.way == "in a function":
            try:
                held = looked_up(self.kept, "a")
            except LookupError:
                held = self.kept["a"] = x + 1
        elif self.way == "returned":
            try:
                return x * self.kept["a"]
            except KeyError:
                pass
            self.kept["a"] = held = x + 1
        elif self.way == "else":
            try:
                held = self.kept["a"]
            except KeyError:
                held = self.kept["a"] = x + 1
            else:
                held = held + 1
            finally:
                x = x + 1
        elif self.way == "deleted":
            try:
                del self.kept["a"]
            except KeyError:
                self.kept["a"] = x + 1
            held = x + len(self.kept)
        elif self.way == "removed":
            try:
                self.flags.remove(1)
                held = x + 2
            except KeyError:
                self.flags.add(1)
                held = x + 3
        else:
            for key in ("a", "b"):
                try:
                    x = x * self.kept[key]
                except KeyError:
                    self.kept[key] = x + 1
            held = x
        return x * held


def looked_up(table: dict[str, torch.Tensor], key: str) -> torch.Tensor:
    return table[key]


@pytest.mark.parametrize(
    "way", ["key", "any error", "in a function", "returned", "else", "deleted", "removed", "two keys"]
)
def test_a_key_that_a_first_call_puts_there_and_the_program_catches(way: str) -> None:
    model, gm = Remembers(way), trace(Remembers(way), (torch.ones(2),))
    for k in range(1, 4):
        assert torch.equal(gm(k * torch.ones(2)), model(k * torch.ones(2)))


class Counts(nn.Module):
    """Counts in the place of what its class has: on a side of a branch, and where an error leaves."""

    calls, failures, last = 0, 0, None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 3:
            self.calls += 1
            self.last = x.sum()
        if x.shape[0] > 3:
            self.failures += 1
            raise ValueError("too long")
        return x if self.last is None else x + self.last


@pytest.mark.parametrize("example", [2, 3])
def test_what_comes_to_stand_before_a_value_of_the_class_on_one_side_is_state(example: int) -> None:
    model = Counts()
    gm = trace(Counts(), (torch.full((example,), 2.0),))
    for x in (torch.ones(2), torch.full((2,), 2.0), torch.ones(1), torch.full((3,), 4.0), torch.ones(5), torch.ones(4)):
        if len(x) > 3:
            for each in (model, gm):
                with pytest.raises(ValueError, match="too long"):
                    each(x)
        else:
            assert torch.equal(gm(x), model(x))
        assert (gm.calls, gm.failures, gm.last) == (model.calls, model.failures, model.last)
    assert (gm.calls, gm.failures) == (4, 2)
