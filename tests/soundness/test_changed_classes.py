"""What Python looks up in a class without a name, its bases, and which `forward` runs, may change between two calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.soundness.stories import UP, told
from torch import Tensor, nn

from graphwright import GuardError, trace

# The method, what it is at capture and afterwards, and what a program does with an object that has it.
METHODS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "__add__": (lambda s, x: x + 1, lambda s, x: x + 9, lambda c, x: c + x),
    "__radd__": (lambda s, x: x[0] + 1, lambda s, x: x[0] + 9, lambda c, x: (x,) + c),
    "__call__": (lambda s, x: x + 1, lambda s, x: x + 9, lambda c, x: c(x)),
    "__getitem__": (lambda s, x: x + 1, lambda s, x: x + 9, lambda c, x: c[x]),
    "__len__": (lambda s: 2, lambda s: 7, lambda c, x: x + len(c)),
    "__bool__": (lambda s: True, lambda s: False, lambda c, x: x + (1 if c else 9)),
    "__contains__": (lambda s, x: True, lambda s, x: False, lambda c, x: x + (1 if 3 in c else 9)),
    "__iter__": (lambda s: iter([1]), lambda s: iter([1, 2]), lambda c, x: x + sum(c)),
    "__eq__": (lambda s, x: True, lambda s, x: False, lambda c, x: x + (1 if c == 3 else 9)),
    "__neg__": (lambda s: 1, lambda s: 9, lambda c, x: x + (-c)),
    "__getattr__": (lambda s, n: 1, lambda s, n: 9, lambda c, x: x + c.anything),
    "__float__": (lambda s: 1.0, lambda s: 9.0, lambda c, x: x + float(c)),
    "__str__": (lambda s: "a", lambda s: "abc", lambda c, x: x + len(f"{c}")),
    "__repr__": (lambda s: "a", lambda s: "abc", lambda c, x: x + len(str(c))),
    "__hash__": (lambda s: 1, lambda s: 2, lambda c, x: x + hash(c)),
    "__next__": (lambda s: 1, lambda s: 9, lambda c, x: x + next(c)),
    "__init__": (lambda s: setattr(s, "n", 1), lambda s: setattr(s, "n", 9), lambda c, x: x + type(c)().n),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_an_operator_is_replaced(name: str) -> None:
    before, after, use = METHODS[name]
    kinds: list[Any] = []

    def make() -> Any:
        kinds[:] = [type("Kind", (), {name: before})]
        kinds[0].__module__ = __name__
        held = kinds[0]()

        def program(x: Tensor) -> Any:
            return use(held, x)

        return program

    def changes(program: Any) -> Any:
        first = program(UP)
        setattr(kinds[0], name, after)
        return first, program(UP)

    assert told(make, lambda program: (program(UP), program(UP))) == "same"
    text = f"loud: what Python looks up in Kind was something else when the program was captured: {name}"
    assert told(make, changes).startswith(text)


def added(kind: Any) -> None:
    kind.__len__ = lambda self: 0


def other_bases(kind: Any) -> None:
    class Other:
        n = 1

    kind.__bases__ = (Other,)


def of_the_metaclass(kind: Any) -> None:
    type(kind).size = 5


def call_of_the_metaclass(kind: Any) -> None:
    type(kind).__len__ = lambda kind: 5


@pytest.mark.parametrize("change", [added, other_bases, of_the_metaclass, call_of_the_metaclass])
def test_a_class_becomes_another(change: Callable[[Any], None]) -> None:
    kinds: list[Any] = []

    def make() -> Any:
        class Meta(type):
            size = 2

            def __len__(cls) -> int:
                return 3

        class Base:
            n = 1

        class Kind(Base, metaclass=Meta):
            pass

        kinds[:] = [Kind]
        held = Kind()

        def program(x: Tensor) -> Any:
            return x + (held.n if held else 7) + Kind.size + len(Kind) + isinstance(held, Base)

        return program

    def changes(program: Any) -> Any:
        first = program(UP)
        change(kinds[0])
        return first, program(UP)

    assert told(make, lambda program: (program(UP), program(UP))) == "same"
    assert told(make, changes).startswith("loud: ")


def test_an_object_becomes_one_of_another_class() -> None:
    class One:
        n = 1

    class Two:
        n = 2

    held = One()

    def make() -> Any:
        held.__class__ = One
        return lambda x: x + held.n

    def changes(program: Any) -> Any:
        first = program(UP)
        held.__class__ = Two  # type: ignore[assignment]
        return first, program(UP)

    assert told(make, changes).startswith("loud: the class of the variable 'held'")


class Held:
    n = 1

    def scaled(self, x: Tensor) -> Tensor:
        return x * 2


class Other:
    n = 2

    def scaled(self, x: Tensor) -> Tensor:
        return x * 3


class Layer(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


class Holding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held, self.several, self.layer = Held(), [Held()], nn.Linear(4, 4)
        self.held.inner = Held()  # type: ignore[attr-defined]


@pytest.mark.parametrize("use", [
    lambda held, x: x + (type(held) is Held),
    lambda held, x: x + isinstance(held, Held),
    lambda held, x: x + held.n,
    lambda held, x: held.scaled(x),
])  # fmt: skip
@pytest.mark.parametrize("place", [lambda m: m.held, lambda m: m.several[0], lambda m: m.held.inner])
def test_an_object_of_a_module_becomes_one_of_another_class(use: Callable[..., Any], place: Callable[..., Any]) -> None:
    kind = type("Program", (Holding,), {"forward": lambda self, x: use(place(self), x)})
    captured = trace(kind(), (UP,))
    for _ in range(3):  # from the second on, calls only look at what was written to
        captured(UP)
    place(captured).__class__ = Other
    with pytest.raises(GuardError, match="was a Held"):
        captured(UP)


@pytest.mark.parametrize("asks", [lambda m: isinstance(m.layer, Layer), lambda m: type(m.layer) is Layer])
def test_a_layer_becomes_one_of_another_class(asks: Callable[..., Any]) -> None:
    kind = type("Program", (Holding,), {"forward": lambda self, x: x + asks(self)})
    captured = trace(kind(), (UP,))
    for _ in range(3):
        captured(UP)
    captured.layer.__class__ = Layer  # type: ignore[union-attr, assignment]
    with pytest.raises(GuardError, match="Layer"):
        captured(UP)


def test_a_class_becomes_one_of_another_metaclass() -> None:
    one, two = type("One", (type,), {"n": 1}), type("Two", (type,), {"n": 2})
    kind = one("Kind", (), {"__module__": __name__})
    captured = trace(lambda x: x + kind.n, (UP,))  # type: ignore[attr-defined]
    captured(UP)
    kind.__class__ = two
    with pytest.raises(GuardError, match="the class of"):
        captured(UP)


# ---- which forward runs


class Scales(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = 2
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.by  # type: ignore[no-any-return]


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class Derived(Scales):
    pass


def other(self: Any, x: Tensor) -> Tensor:
    return x * 100


@pytest.mark.parametrize(("kind", "owner"), [(Scales, Scales), (Derived, Scales), (Derived, Derived), (Scales, Inner)])
def test_forward_is_replaced_on_a_class(kind: Any, owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def changes(program: Any) -> Any:
        first = program(UP)
        with monkeypatch.context() as patch:
            patch.setattr(owner, "forward", other)
            return first, program(UP)

    assert "has been replaced since the program was captured" in told(kind, changes)


class FromAbove(Scales):
    """A module that comes to methods of its base by `super()`, which newer Pythons have an instruction for."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + super().offset()  # type: ignore[misc, no-any-return]


@pytest.mark.parametrize("name", ["forward", "offset"])
def test_what_super_leads_to_is_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scales, "offset", lambda self: 5, raising=False)

    def changes(program: Any) -> Any:
        first = program(UP)
        with monkeypatch.context() as patch:
            patch.setattr(Scales, name, lambda self, x=0: x * 100)
            return first, program(UP)

    assert told(FromAbove, lambda program: (program(UP), program(-UP))) == "same"
    assert told(FromAbove, changes).startswith("loud")


class Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2

    def encode(self, x: Tensor) -> Tensor:
        return x * 3


def test_another_method_is_replaced_on_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    gm: Any = trace(Doubles(), methods={"forward": ((UP,), {}), "encode": ((UP,), {})})
    with monkeypatch.context() as patch:
        patch.setattr(Doubles, "encode", other)
        assert torch.equal(gm(UP), UP * 2)
        with pytest.raises(GuardError, match=r"Doubles\.encode has changed"):
            gm.encode(UP)
    assert torch.equal(gm.encode(UP), UP * 3)


class WithItsOwn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.inner.forward = lambda x: x * 3  # type: ignore[method-assign]

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)  # type: ignore[no-any-return]


def test_a_forward_of_its_own_is_deleted() -> None:
    def changes(program: Any) -> Any:
        first = program(UP)
        del program.inner.forward
        return first, program(UP)

    assert told(WithItsOwn, lambda program: (program(UP), program(-UP))) == "same"
    assert told(WithItsOwn, changes).startswith("loud: module 'inner' had a forward of its own")


def test_another_forward_is_deleted_again() -> None:
    def changes(program: Any) -> Any:
        found = [program(UP)]
        program.inner.forward = torch.relu
        del program.inner.forward
        return [*found, program(UP)]

    assert told(Scales, changes) == "same"


class Factor:
    factor = 2

    @classmethod
    def of_class(cls, x: Tensor) -> Tensor:
        return x * cls.factor


class Inherits(Factor):
    def of_super(self, x: Tensor) -> Tensor:
        return super().of_class(x)

    def of_object(self, x: Tensor) -> Tensor:
        return x * self.factor


@pytest.mark.parametrize("kind", [Factor, Inherits])
@pytest.mark.parametrize("program", [Inherits().of_super, Inherits().of_object, Inherits.of_class])
def test_the_class_that_a_program_is_bound_to_is_looked_at(program: Any, kind: type, monkeypatch: Any) -> None:
    gm = trace(program, (UP,))
    assert torch.equal(gm(UP), UP * 2)
    monkeypatch.setattr(kind, "factor", 3, raising=False)
    with pytest.raises(GuardError):
        gm(UP)
