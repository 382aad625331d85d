"""What a program reads of the world, wherever it is, is read at each call, or is what it was: a table of both."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import load, save, trace
from graphwright.errors import GraphwrightError
from graphwright.runtime import GraphModule

X = torch.linspace(-1, 1, 12).reshape(3, 4)


@dataclasses.dataclass
class Config:
    a: Any = None


class Slots:
    __slots__ = ("a",)


class Pair(collections.namedtuple("Pair", "a b")):
    __slots__ = ()


def in_slots(value: Any) -> Slots:
    made = Slots()
    made.a = value  # type: ignore[attr-defined]
    return made


class Holds(nn.Module):
    """Holds something, and computes with what a function takes out of it."""

    def __init__(self, held: Any, use: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.held, self.use = held, use

    def forward(self, x: torch.Tensor) -> Any:
        return self.use(self.held, x)


def made(number: float = 2.0) -> torch.Tensor:
    return torch.full((3, 4), number)


# How a value is held, and how it is put there anew.
PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "an object": (
        lambda a: types.SimpleNamespace(a=a), lambda held: held.a, lambda held, a: setattr(held, "a", a),
    ),
    "a dataclass": (Config, lambda held: held.a, lambda held, a: setattr(held, "a", a)),
    "slots": (in_slots, lambda held: held.a, lambda held, a: setattr(held, "a", a)),
    "a dict": (lambda a: {"a": a}, lambda held: held["a"], lambda held, a: held.__setitem__("a", a)),
    "a dict in a list": (
        lambda a: [{"a": a}], lambda held: held[0]["a"], lambda held, a: held[0].__setitem__("a", a),
    ),
    "a dict in an object": (
        lambda a: Config({"a": a}), lambda held: held.a["a"], lambda held, a: held.a.__setitem__("a", a),
    ),
    "an object in a list in a dict": (
        lambda a: Config({"p": [Config(a)]}),
        lambda held: held.a["p"][0].a,
        lambda held, a: setattr(held.a["p"][0], "a", a),
    ),
    "a dict with numbers for keys": (
        lambda a: Config({0: a}), lambda held: held.a[0], lambda held, a: held.a.__setitem__(0, a),
    ),
}  # fmt: skip

USES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "none": lambda a, x: x if a is None else x + 1,
    "class": lambda a, x: x + 1 if isinstance(a, torch.Tensor) else x,
    "parameter": lambda a, x: x + 1 if isinstance(a, nn.Parameter) else x,
    "rank": lambda a, x: x + a.dim(),
    "product": lambda a, x: x * a,
    "given": lambda a, x: (x + 1, a),
}
VALUES = [None, 3.0, made(-3.0), made()[0], made().double(), nn.Parameter(made())]


def outcome(program: Callable[..., Any], *args: Any) -> Any:
    try:
        return program(*args)
    except Exception as error:
        return error


def is_right(given: Any, wanted: Any) -> bool:
    """Tell whether a program computes the same, or says that it does not; where the model fails, it fails."""
    if isinstance(given, Exception):
        return isinstance(given, GraphwrightError) or type(given) is type(wanted)
    if isinstance(wanted, torch.Tensor) and isinstance(given, torch.Tensor):
        is_alike = given.dtype == wanted.dtype and given.requires_grad == wanted.requires_grad
        return is_alike and given.shape == wanted.shape and torch.equal(given, wanted)
    if isinstance(wanted, tuple):
        return isinstance(given, tuple) and all(map(is_right, given, wanted))
    return type(given) is type(wanted) and bool(given == wanted)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_is_of_the_kind_that_it_was(place: str, use: str) -> None:
    hold, read, put = PLACES[place]
    question = USES[use]
    model = Holds(hold(made()), lambda held, x: question(read(held), x))
    gm = trace(model, X)
    assert is_right(gm(X), model(X))
    for value in VALUES:
        for held in {id(each.held): each.held for each in (model, gm)}.values():
            put(held, value)
        assert is_right(outcome(gm, X), outcome(model, X)), value
        model.held = gm.held = hold(made())  # another one with the same
        assert is_right(outcome(gm, X), outcome(model, X))
        model.held = gm.held = hold(value)
        assert is_right(outcome(gm, X), outcome(model, X)), value
        model.held = gm.held = hold(made())


INSTEAD: dict[str, tuple[Any, Any, Callable[[Any, torch.Tensor], Any]]] = {
    "a bool inside": ({"p": {"k": True}}, {"p": {"k": 1}}, lambda held, x: (x + 1, held["p"]["k"])),
    "a class of a number": (Config({"k": 2.0}), Config({"k": 2}), lambda held, x: x + isinstance(held.a["k"], int)),
    "a class of a dict": ({"a": 2.0}, collections.OrderedDict(a=2.0), lambda held, x: (x, held)),
    "a tensor in a named tuple": (Pair(made(), 1), Pair(made(3.0), 1), lambda held, x: x * held.a),
    "a module in a named tuple": (Pair(nn.Tanh(), 1), Pair(nn.ReLU(), 1), lambda held, x: held.a(x)),
    "a module further inside": (
        {"p": {"k": nn.Tanh()}},
        {"p": {"k": nn.ReLU()}},
        lambda held, x: x + isinstance(held["p"]["k"], nn.Tanh),
    ),
    "a live number that is asked": (0.5, 2, lambda held, x: x + 1 if isinstance(held, int) else x),
    "a live number that is None": (0.5, None, lambda held, x: x + 1 if held is None else x),
}


@pytest.mark.parametrize("case", INSTEAD)
def test_what_is_there_instead_is_seen(case: str) -> None:
    held, other, use = INSTEAD[case]
    model = Holds(held, use)
    gm = trace(model, X)
    assert is_right(gm(X), model(X))
    model.held = gm.held = other
    assert is_right(outcome(gm, X), outcome(model, X))


@pytest.mark.parametrize("held", [2, 0.5, True, "a", None, torch.relu, torch.float64, (1, 2), [3], made()])
def test_an_attribute_that_is_no_more_there_is_an_error(held: Any) -> None:
    model = Holds(held, lambda held, x: (x + 1, held is None))
    gm = trace(model, X)
    gm(X)
    del model.held, gm.held
    assert is_right(outcome(gm, X), outcome(model, X))


def test_a_file_holds_no_function_of_a_program_and_none_is_missed(tmp_path: Any) -> None:
    gm = trace(Holds(2.0, lambda held, x: x * held), X)
    save(gm, tmp_path / "holds.gw")
    assert torch.equal(load(tmp_path / "holds.gw", allow=[__name__])(X), gm(X))


MODULE = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
TENSOR = made()
NOTHING = None
CACHE: dict[str, Any] = {"rows": made(), "count": 2}
HELD = Config({"rows": made()})


@pytest.mark.parametrize(
    "change",
    [
        lambda module: setattr(module[0], "forward", lambda x: x * 3),
        lambda module: module[0].register_forward_hook(lambda module, args, given: given * 2),
        lambda module: module[0].register_parameter("bias", None),
        lambda module: module[0].register_parameter("weight", nn.Parameter(torch.ones(4, 4))),
        lambda module: module.append(nn.ReLU()),
        lambda module: module.__setitem__(1, nn.ReLU()),
    ],
)
@pytest.mark.parametrize("is_inside", [False, True])
def test_a_module_of_others_is_as_it_was(
    change: Callable[[nn.Module], Any], is_inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    monkeypatch.setitem(globals(), "MODULE", module)
    program = Holds(in_slots(module), lambda held, x: held.a(x) if is_inside else MODULE(x))
    gm = trace(program, X)
    assert torch.equal(gm(X), program(X))
    change(module)
    assert is_right(outcome(gm, X), program(X))


@pytest.mark.parametrize(
    ("program", "name", "value"),
    [
        (lambda x: x + 1 if NOTHING is None else x, "NOTHING", ...),
        (lambda x: x + CACHE["rows"].dim(), "CACHE", {"rows": made()[0], "count": 2}),
        (lambda x: x if CACHE["rows"] is None else x + 1, "CACHE", {"count": 2}),
        (lambda x: x if HELD.a["rows"] is None else x + 1, "HELD", Config({"rows": None})),
        (lambda x: x if HELD.a["rows"] is None else x + 1, "HELD", Config()),
    ],
)
def test_a_global_is_of_the_kind_that_it_was(
    program: Callable[[torch.Tensor], Any], name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gm = trace(program, X)
    assert torch.equal(gm(X), program(X))
    if value is ...:
        monkeypatch.delitem(globals(), name)
    else:
        monkeypatch.setitem(globals(), name, value)
    assert is_right(outcome(gm, X), outcome(program, X))


def test_the_shape_of_a_tensor_outside_is_what_it_was() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + len(TENSOR)

    gm, before = trace(program, X), TENSOR.data
    TENSOR.data = torch.ones(2)
    try:
        assert is_right(outcome(gm, X), program(X))
    finally:
        TENSOR.data = before


def test_a_default_that_goes_by_name_is_what_it_was() -> None:
    def inner(x: torch.Tensor, *, by: Any = 3) -> torch.Tensor:
        return x + 1 if isinstance(by, int) else x

    gm: GraphModule = trace(lambda x: inner(x), X)
    for by in (3.0, made()):
        inner.__kwdefaults__ = {"by": by}
        assert is_right(outcome(gm, X), inner(X))


class Makes:
    """Makes an attribute where it is missing."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @property
    def a(self) -> Any:
        if not hasattr(self, "_a"):
            self._a = self._value
        return self._a


class Beside(nn.Module):
    """Makes an attribute in the place of one of its class."""

    _a: Any = None

    def __init__(self, value: Any) -> None:
        super().__init__()
        self._value = value

    @property
    def a(self) -> Any:
        if self._a is None:
            self._a = self._value
        return self._a

    def forward(self, x: torch.Tensor) -> Any:
        return (x + 1, self.a) if isinstance(self.a, int | str | list) else x


@pytest.mark.parametrize(("value", "others"), [(3, (2, 3.0, "b")), ("a", ("b", None)), ([2, 3], ([2], [2, "a"], None))])
def test_what_a_first_call_makes_is_of_the_form_that_it_made(value: Any, others: tuple[Any, ...]) -> None:
    for other in others:
        model = Holds(Makes(value), lambda held, x: (x + 1, held.a) if isinstance(held.a, int | str | list) else x)
        gm = trace(model, X)
        assert is_right(gm(X), model(X))
        model.held._a = gm.held._a = other  # type: ignore[union-attr, assignment]
        assert is_right(outcome(gm, X), outcome(model, X)), other
        if other is not None:
            beside = Beside(value)
            gm = trace(beside, X)
            assert is_right(gm(X), beside(X))
            beside._a = gm._a = other
            assert is_right(outcome(gm, X), outcome(beside, X)), other


def test_a_class_with_other_methods_is_another() -> None:
    class Inner(nn.Module):
        def by(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.by(x)

    class Other(Inner):
        def by(self, x: torch.Tensor) -> torch.Tensor:
            return x * 3

    model = nn.Sequential(Inner())
    gm = trace(model, X)
    model[0].__class__ = gm[0].__class__ = Other  # type: ignore[assignment]
    assert is_right(outcome(gm, X), model(X))
