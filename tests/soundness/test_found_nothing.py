"""What a program looks for and does not find: once it is there, the captured program says so."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import GuardError, load, save, trace
from graphwright.capture import TracerWarning

X = torch.ones(2, 4)
HERE = sys.modules[__name__]


class Plain:
    def __init__(self) -> None:
        self.k = 1


class Slotted:
    __slots__ = ("held",)


class Base(nn.Module):
    pass


class Holder(Base):
    def __init__(self) -> None:
        super().__init__()
        self.k = 1
        self.table = nn.ModuleDict({"a": nn.Tanh()})
        self.tensors = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})
        self.layer = nn.Linear(4, 4)
        self.plain, self.space, self.slotted = Plain(), types.SimpleNamespace(k=1), Slotted()
        self.held = [Plain()]
        self.counts: dict[str, int] = {}

    def forward(self, x: Tensor) -> Any:
        return x * self.factor()

    def factor(self) -> Any:
        raise NotImplementedError


class ByError(Holder):
    def factor(self) -> Any:
        try:
            return self.extra
        except AttributeError:
            return 1


class ByName(Holder):
    def factor(self) -> Any:
        return getattr(self, f"extra{''}", 1)


class Asked(Holder):
    def factor(self) -> Any:
        return 5 if hasattr(self, "extra") else 1


class OfLayer(Holder):
    def factor(self) -> Any:
        return 5 if hasattr(self.layer, "extra") else 1


class OfObject(Holder):
    def factor(self) -> Any:
        return getattr(self.plain, "ext" + "ra"[: self.k + 1], 1)


class OfItem(Holder):
    def factor(self) -> Any:
        return getattr(self.held[0], "extra", 1)


class OfSlot(Holder):
    def factor(self) -> Any:
        return getattr(self.slotted, "held", 1)


class InTable(Holder):
    def factor(self) -> Any:
        return 5 if "extra" in self.table else 1


class InTensors(Holder):
    def factor(self) -> Any:
        return 5 if "extra" in self.tensors else 1


class CountsTensors(Holder):
    def factor(self) -> Any:
        return len(self.tensors)


class InParameters(Holder):
    def factor(self) -> Any:
        return 5 if "extra" in self._parameters else 1


class InModules(Holder):
    def factor(self) -> Any:
        return 5 if "extra" in self._modules else 1


class OfBuffers(Holder):
    def factor(self) -> Any:
        return 1 if self._buffers.get("extra") is None else 5


class OverDict(Holder):
    def factor(self) -> Any:
        return 1 + len([name for name in self.__dict__ if name.startswith("extra")])


class OverVars(Holder):
    def factor(self) -> Any:
        return 1 + sum(name.startswith("extra") for name in vars(self))


class OverDir(Holder):
    def factor(self) -> Any:
        return 1 + len([name for name in dir(self) if name.startswith("extra")])


class OverObject(Holder):
    def factor(self) -> Any:
        return len(vars(self.space))


class OverGlobal(Holder):
    def factor(self) -> Any:
        return len(vars(SPACE))


class OfGlobals(Holder):
    def factor(self) -> Any:
        return globals().get("EXTRA", 1)


class InGlobals(Holder):
    def factor(self) -> Any:
        return 5 if "EXTRA" in globals() else 1


class ByNameError(Holder):
    def factor(self) -> Any:
        try:
            return EXTRA  # type: ignore[name-defined]
        except NameError:
            return 1


class OtherKey(Holder):
    def factor(self) -> Any:
        self.counts["own"] = 1
        return self.counts.get("extra", 1)


class OtherKeyIn(Holder):
    def factor(self) -> Any:
        self.counts.setdefault("own", 1)
        return 5 if "extra" in self.counts else 1


SPACE = types.SimpleNamespace(k=1)


def put(name: str) -> Callable[[Any], None]:
    return lambda model: setattr(model, name, 5)


def of_class(owner: type) -> Callable[[Any], None]:
    return lambda model: setattr(owner, "extra", 5)


WAYS: dict[str, tuple[type[Holder], Callable[[Any], Any]]] = {
    "caught, of the module": (ByError, put("extra")),
    "caught, of the class": (ByError, of_class(ByError)),
    "caught, of a class of that": (ByError, of_class(Base)),
    "by name, of the module": (ByName, put("extra")),
    "by name, of the class": (ByName, of_class(ByName)),
    "asked, of a class of that": (Asked, of_class(Base)),
    "of a layer": (OfLayer, lambda m: put("extra")(m.layer)),
    "of its class": (OfLayer, of_class(nn.Linear)),
    "of an object": (OfObject, lambda m: put("extra")(m.plain)),
    "of the class of an object": (OfObject, of_class(Plain)),
    "of an object in a list": (OfItem, lambda m: put("extra")(m.held[0])),
    "of the class of such an object": (OfItem, of_class(Plain)),
    "of a slot": (OfSlot, lambda m: put("held")(m.slotted)),
    "in a ModuleDict": (InTable, lambda m: m.table.update({"extra": nn.Tanh()})),
    "in a ParameterDict": (InTensors, lambda m: m.tensors.update({"extra": nn.Parameter(torch.ones(1))})),
    "counted in a ParameterDict": (CountsTensors, lambda m: m.tensors.update({"extra": nn.Parameter(torch.ones(1))})),
    "in the table of parameters": (InParameters, lambda m: m.register_parameter("extra", nn.Parameter(torch.ones(1)))),
    "in the table of modules": (InModules, lambda m: m.add_module("extra", nn.Tanh())),
    "of the table of buffers": (OfBuffers, lambda m: m.register_buffer("extra", torch.ones(1))),
    "over __dict__": (OverDict, put("extra")),
    "over vars": (OverVars, put("extra")),
    "over dir": (OverDir, put("extra")),
    "over dir, of the class": (OverDir, of_class(Base)),
    "over the attributes of an object": (OverObject, lambda m: put("extra")(m.space)),
    "over those of a global object": (OverGlobal, lambda m: put("extra")(SPACE)),
    "of globals": (OfGlobals, lambda m: put("EXTRA")(HERE)),
    "in globals": (InGlobals, lambda m: put("EXTRA")(HERE)),
    "caught, of globals": (ByNameError, lambda m: put("EXTRA")(HERE)),
    "another key": (OtherKey, lambda m: m.counts.update(extra=5)),
    "another key, asked for": (OtherKeyIn, lambda m: m.counts.update(extra=5)),
}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    for owner in (HERE, SPACE, Base, Plain, nn.Linear, ByError, ByName):
        for name in ("extra", "EXTRA"):
            if name in vars(owner):
                delattr(owner, name)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_not_there_is_seen_to_come(way: str) -> None:
    kind, change = WAYS[way]
    gm, model = trace(kind(), (X,)), kind()
    for _ in range(2):
        assert torch.equal(gm(X), model(X))
    change(gm)
    with pytest.raises(GuardError):
        gm(X)


@dataclasses.dataclass
class Fields:
    x: Tensor


@pytest.mark.parametrize(
    "program",
    [lambda of: of.x * getattr(of, "extra", 2), lambda of: of.x * 3 if hasattr(of, "extra") else of.x * 2],
    ids=["by default", "asked for"],
)
def test_an_attribute_that_a_dataclass_has_besides_its_fields_is_seen(program: Any) -> None:
    gm, given = trace(program, (Fields(X),)), Fields(X)
    assert torch.equal(gm(given), X * 2)
    put("extra")(given)
    with pytest.raises(GuardError):
        gm(given)


class Underscored:
    def __getattr__(self, name: str) -> int:
        found = "_" + name
        if found in self.__dict__:
            return self.__dict__[found]  # type: ignore[no-any-return]
        raise AttributeError(name)


class OrTwo(Underscored):
    def __getattr__(self, name: str) -> int:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return 2


def test_what_super_looks_for_in_a_method_without_a_name_is_seen_to_come() -> None:
    owner = OrTwo()

    def program(x: Tensor) -> Tensor:
        return x * owner.scale

    gm = trace(program, X)
    assert torch.equal(gm(X), X * 2)
    vars(owner)["_scale"] = 3
    with pytest.raises(GuardError):
        gm(X)


# ---- what is computed for lack of it


def _extra(name: str) -> int:
    if name != "extra":
        raise AttributeError(name)
    return 3


class Meta(type):
    size = 4

    def __getattr__(cls, name: str) -> int:
        return _extra(name)


class Computed(metaclass=Meta):
    def __getattr__(self, name: str) -> int:
        return _extra(name)


class OfComputed(Computed):
    pass


COMPUTED, COMPUTED_HERE = OfComputed(), types.ModuleType("computed_here")
COMPUTED_HERE.__getattr__ = _extra  # type: ignore[method-assign]
IN_LIST = [OfComputed()]


class HoldsComputed(Holder):
    def __init__(self) -> None:
        super().__init__()
        self.computed, self.kind = OfComputed(), OfComputed

    def __getattr__(self, name: str) -> Any:
        return 3 if name == "extra" else super().__getattr__(name)


COMPUTES: list[tuple[Callable[[Any], Any], list[Callable[[Any], Any]]]] = [
    (lambda m: OfComputed.extra, [lambda m: OfComputed, lambda m: Computed, lambda m: Meta]),
    (lambda m: m.kind.extra, [lambda m: OfComputed, lambda m: Computed]),
    (lambda m: OfComputed.size, [lambda m: OfComputed]),
    (lambda m: COMPUTED.extra, [lambda m: COMPUTED, lambda m: OfComputed, lambda m: Computed]),
    (lambda m: IN_LIST[0].extra, [lambda m: IN_LIST[0], lambda m: Computed]),
    (lambda m: m.computed.extra, [lambda m: m.computed, lambda m: OfComputed]),
    (lambda m: COMPUTED_HERE.extra, [lambda m: COMPUTED_HERE]),
    (lambda m: m.extra, [lambda m: m, lambda m: HoldsComputed]),
]


@pytest.mark.parametrize("number", range(len(COMPUTES)))
def test_what_comes_to_stand_before_a_computed_attribute_is_seen(number: int) -> None:
    factor, owners = COMPUTES[number]
    kind = type("Program", (HoldsComputed,), {"factor": factor})
    for owner in owners:
        gm, model = trace(kind(), (X,)), kind()
        for _ in range(2):
            assert torch.equal(gm(X), model(X))
        name = "size" if "size" in factor.__code__.co_names else "extra"
        setattr(owner(gm), name, 5)
        try:
            with pytest.raises(GuardError):
                gm(X)
        finally:
            delattr(owner(gm), name)


@pytest.mark.parametrize("kind", [InTable, InTensors, OverVars, OverDir, OverObject])
def test_what_was_there_is_seen_to_go(kind: type[Holder]) -> None:
    model = kind()
    model.table["extra"], model.tensors["extra"] = nn.Tanh(), nn.Parameter(torch.ones(1))
    model.extra = model.space.extra = 5  # type: ignore[assignment]
    gm = trace(model, (X,))
    assert torch.equal(gm(X), model(X))
    del gm.table["extra"], gm.tensors["extra"], gm.extra, gm.space.extra
    with pytest.raises(GuardError):
        gm(X)


@pytest.mark.parametrize("kind", [OverVars, OverDir, OverObject, InTensors, OtherKey])
def test_it_holds_of_a_module_from_a_file(kind: type[Holder], tmp_path: Any) -> None:
    model = kind()
    gm = trace(model, (X,))
    save(gm, tmp_path / "model.gw")
    again = load(tmp_path / "model.gw", allow=[__name__.partition(".")[0]])
    assert torch.equal(again(X), model(X))


class Makes(Holder):
    def factor(self) -> Any:
        self.made = len(vars(self)) * 0 + 2  # it looks at all names, and adds one
        return self.made


def test_what_the_program_makes_itself_may_be_there() -> None:
    gm, model = trace(Makes(), (X,)), Makes()
    for _ in range(3):
        assert torch.equal(gm(X), model(X))
    gm.other = 1
    with pytest.raises(GuardError, match="has got other"):
        gm(X)


class Computes(Holder):
    def factor(self) -> Any:
        return globals().get("EX" + "TRA"[: 2 + self.k], 1)


def test_names_of_globals_that_are_computed_are_said() -> None:
    with pytest.warns(TracerWarning, match="looks global variables up by names that it computes"):
        trace(Computes(), (X,))


def total(module: nn.Module) -> Any:
    return sum(value for name, value in vars(module).items() if name.startswith("factor_"))


class InFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()
        self.inner.factor_a, self.inner.factor_b = 2, 3.5  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Any:
        return x * total(self.inner)


def test_a_function_sees_the_attributes_of_a_module_in_its_table() -> None:
    gm, model = trace(InFunction(), (X,)), InFunction()
    assert torch.equal(gm(X), model(X))
    gm.inner.factor_b = model.inner.factor_b = 4.5  # type: ignore[assignment]
    assert torch.equal(gm(X), model(X))  # numbers with a fraction are live
    gm.inner.factor_c = 1  # type: ignore[assignment]
    with pytest.raises(GuardError, match="factor_c"):
        gm(X)
