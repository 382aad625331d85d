"""Two ways of a program becoming one again: what each variable is after them."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeAlias

from graphwright.ir import NestedGraph
from graphwright.script.program.frames import Closure
from graphwright.script.program.values import (
    BAD,
    Bad,
    Bound,
    Choice,
    Const,
    Display,
    Group,
    Instance,
    ModuleRef,
    Reference,
    Runtime,
    Unbound,
    Value,
    constant,
)
from graphwright.script.types import BOOL, NONE, Type, join
from graphwright.values import INSIDE, Container, Given, Joiner, Path, Slot, Template, filled

if TYPE_CHECKING:
    from graphwright.script.program.context import Context, Kinds

NEXT: Kinds = frozenset({"next"})
LEAVING = ("return", "break", "continue")
Merged: TypeAlias = "Value | Template"


@dataclasses.dataclass
class Side:
    """One side of a branch: its graph, the variables at its end, and how it may end."""

    body: NestedGraph
    names: dict[str, Value]
    kinds: Kinds


@dataclasses.dataclass(eq=False, slots=True)
class TypedSlot(Slot):
    """In a merged value: what the branch computes, by its number, and its type."""

    kind: Type

    def filled(self, given: Given) -> Runtime:
        """What the branch computes."""
        return Runtime(given.values[self.number].node, self.kind)


class Tuple(Container):
    """In a merged value: a tuple of merged items."""

    __slots__ = ()

    def made(self, items: dict[Any, Any]) -> Group:
        """A tuple of such items."""
        return Group(tuple(items.values()), self.like.kind)


@dataclasses.dataclass(eq=False, slots=True)
class Chosen(Template):
    """In a merged value: one of several modules, by a number that the branch computes."""

    number: Any
    items: tuple[Value, ...]

    def filled(self, given: Given) -> Choice:
        """The choice by that number."""
        return Choice(filled(self.number, given), self.items)


class Merger(Joiner):
    """Merges variables of two sides; `slots` are the pairs of values that the branch has to give."""

    def __init__(self, c: Context, sides: tuple[Side, Side], at: ast.AST, condition: str) -> None:
        self._c, self._sides, self._at, self._condition = c, sides, at, condition
        self.slots: list[tuple[Value | None, Value | None]] = []
        self.wishes: list[str] = []
        self.declared: Type | None = None  # of the variable that an expression is for

    def variables(self, kinds: Kinds, live: Set[str], is_one_result: bool = False) -> dict[str, Merged]:
        """What the program has after the branch, which ends in these ways; `live` is read where it goes on."""
        loops = self._c.frame.loops

        def needed(ways: Kinds) -> Set[str]:
            read = live if "next" in ways else frozenset()
            read = read | loops[-1].after if "break" in ways else read
            return read | loops[-1].head if "continue" in ways else read

        names = self.names(needed(kinds), [needed(side.kinds) for side in self._sides])
        names.update(self.flags(kinds))
        if "return" in kinds:
            names["$result"] = self.result(is_one_result)
            names["$at"] = next(side.names["$at"] for side in self._sides if "return" in side.kinds)
        return names

    def names(self, needed: Iterable[str], of_sides: Sequence[Set[str]] | None = None) -> dict[str, Merged]:
        """The variables after the branch; those that nobody needs may be left out.

        `of_sides` are those needed on the ways that each side goes; what a side has left out of others does not matter.
        """
        merged: dict[str, Merged] = {}
        one, other = self._sides
        wanted = set(needed)
        for name in dict.fromkeys([*one.names, *other.names]):
            if name.startswith("$"):
                continue
            a, b = (
                None if of_sides is not None and name not in own and not _has(side, name) else self._of(side, name)
                for side, own in zip(self._sides, of_sides or ((), ()), strict=True)
            )
            if a is b:
                if a is not None:
                    merged[name] = a
            elif name in wanted:
                merged[name] = self.merge(a, b, name)
        return merged

    def _of(self, side: Side, name: str) -> Value | None:
        """The value of a variable on a side; None where what follows is not reached from there."""
        if side.kinds <= {"return", "raise"}:
            return None
        if name not in side.names:
            line = getattr(self._at, "lineno", 0)
            what = "holds" if side is self._sides[0] else "does not hold"
            why = f"where `{self._condition}` (line {line}) {what}"
            return Unbound(why, "give it a value before the branch, or on both sides")
        return side.names[name]

    def flags(self, kinds: Kinds) -> dict[str, Merged]:
        """Which way the sides leave, where there are several."""
        if len(kinds) == 1:
            return {}
        flags = [kind for kind in LEAVING if kind in kinds]
        if {"break", "return"} <= kinds:
            flags.insert(0, "stop")
        if "continue" in kinds and kinds & {"break", "return"}:
            flags.insert(0, "any")
        one, other = self._sides
        return {f"${kind}": self.merge(flag_of(one, kind), flag_of(other, kind), _WISHES[kind]) for kind in flags}

    def result(self, as_one: bool) -> Merged:
        """What is returned: the sides that do not return give nothing."""
        a, b = (side.names["$result"] if "return" in side.kinds else None for side in self._sides)
        if a is not b and (as_one or ((a is None or b is None) and not isinstance(a or b, Bad))):
            return self._slot(a, b, ("result",))
        return self.merge(a, b, "result")

    def merge(self, a: Value | None, b: Value | None, name: str) -> Merged:
        """Make one value of two; None stands for a side on which it does not matter."""
        merged: Merged = self.join(a, b, (name,))
        return merged

    def leaf(self, a: Value | None, b: Value | None, path: Path) -> Any:
        """What becomes of two values, but for tuples of one length."""
        if a is None or b is None:
            value, side = (b, self._sides[1]) if a is None else (a, self._sides[0])
            if value is None:
                return constant(None)
            return self._slot(a, b, path) if _is_made_in(value, side.body) else value
        if a is b:
            return a
        if isinstance(a, Bad) or isinstance(b, Bad):
            return BAD
        if isinstance(a, Unbound) or isinstance(b, Unbound):
            return a if isinstance(a, Unbound) else b
        if isinstance(a, Runtime) and isinstance(b, Runtime) and a.node is b.node:
            return Runtime(a.node, join(a.kind, b.kind) or a.kind)
        if isinstance(a, Const) and isinstance(b, Const) and _are_same(a, b):
            return a if a.fixed == b.fixed else Const(a.value, a.kind)
        if isinstance(a, Group) and isinstance(b, Group) and len(a.items) == len(b.items) and a.kind is b.kind:
            return INSIDE
        chosen = self._chosen(a, b)
        if chosen is not None:
            return chosen
        if isinstance(a, _STATIC) or isinstance(b, _STATIC):
            return a if _is_same_object(a, b) else self._mismatch(a, b, path)
        return self._slot(a, b, path)

    def pairs(self, a: Group, b: Group, path: Path) -> dict[Any, tuple[Value, Value]]:
        """The items of two tuples."""
        return dict(enumerate(zip(a.items, b.items, strict=True)))

    def whole(self, a: Group, b: Group, items: dict[Any, Any], path: Path) -> Tuple:
        """One tuple of two."""
        return Tuple(a, items)

    def _chosen(self, a: Value, b: Value) -> Chosen | None:
        """One of several modules; None for what is none."""
        if isinstance(a, ModuleRef) and isinstance(b, ModuleRef) and a.module is not b.module:
            return Chosen(self._slot(constant(0), constant(1), ("",)), (a, b))
        if isinstance(a, Choice) and isinstance(b, ModuleRef):
            return Chosen(self._slot(a.number, constant(len(a.items)), ("",)), (*a.items, b))
        if isinstance(a, ModuleRef) and isinstance(b, Choice):
            return Chosen(self._slot(constant(len(b.items)), b.number, ("",)), (*b.items, a))
        return None

    def _slot(self, a: Value | None, b: Value | None, path: Path) -> Merged:
        name = path[0]
        kind = (a or b).type if a is None or b is None else join(a.type, b.type)  # type: ignore[union-attr]
        frame = self._c.frame
        wanted = {"result": frame.returns, "$value": self.declared}.get(name, frame.declared.get(name))
        if kind is None and wanted is not None:  # it may be of several types, as declared
            kind = wanted
        if kind is None:
            if name == "$test":
                kind = BOOL
            else:
                assert a is not None
                assert b is not None
                return self._mismatch(a, b, path)
        for number, (x, y) in enumerate(self.slots):
            if x is a and y is b:
                return TypedSlot(number, kind)
        self.slots.append((a, b))
        self.wishes.append("" if name.startswith("$") else name)
        return TypedSlot(len(self.slots) - 1, kind)

    def _mismatch(self, a: Value, b: Value, path: Path) -> Value:
        name, *keys = path
        what = {"result": "what is returned", "$value": "the value", "$test": "the value"}.get(name, repr(name))
        what += "".join(f"[{key}]" for key in keys)
        return self._c.problem(
            f"{what} is {_kind(a)} where `{self._condition}` holds, and {_kind(b)} where it does not",
            self._at,
            "convert both to one type: bool(...)" if name == "$value" else "make both sides give the same type",
        )


_WISHES = {"return": "returned", "break": "broke", "continue": "continued", "stop": "stop", "any": "left"}
_TOGETHER = {"stop": frozenset({"break", "return"}), "any": frozenset(LEAVING)}  # flags for one of several ways
_STATIC = (ModuleRef, Reference, Closure, Bound, Instance, Choice)


def flag_of(side: Side, kind: str) -> Value:
    """Whether a side leaves in this way: "stop" is one that ends the loop around it, "any" any."""
    ways = side.kinds & _TOGETHER.get(kind, frozenset({kind}))
    if not ways:
        return constant(False)
    if side.kinds - {"raise"} <= ways:
        return constant(True)
    if len(ways) == 1:
        return side.names[f"${next(iter(ways))}"]
    return side.names["$stop" if ways == _TOGETHER["stop"] else "$any"]


def _has(side: Side, name: str) -> bool:
    return not isinstance(side.names.get(name, _NO_VALUE), Unbound)


_NO_VALUE = Unbound("", "")


def _kind(value: Value) -> str:
    if isinstance(value, ModuleRef):
        return f"the module {value.path!r}"
    if isinstance(value, Reference):
        return getattr(value.value, "__name__", str(value.value))
    return str(value.type)


def _are_same(a: Const, b: Const) -> bool:
    return type(a.value) is type(b.value) and (a.value is b.value or repr(a.value) == repr(b.value)) and _is_plain(a)


def _is_plain(value: Const) -> bool:
    return value.kind is NONE or value.fixed or not isinstance(value.value, list | dict | set)


def _is_same_object(a: Value, b: Value) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, ModuleRef) and isinstance(b, ModuleRef):
        return a.module is b.module
    if isinstance(a, Reference | Instance) and isinstance(b, Reference | Instance):
        return a.value is b.value
    if isinstance(a, Closure) and isinstance(b, Closure):
        return a.definition is b.definition
    return isinstance(a, Bound) and isinstance(b, Bound) and a.method == b.method and _is_same_owner(a.owner, b.owner)


def _is_same_owner(a: Value, b: Value) -> bool:
    return (isinstance(a, Runtime) and isinstance(b, Runtime) and a.node is b.node) or _is_same_object(a, b)


def _is_made_in(value: Value, body: NestedGraph) -> bool:
    """Tell whether a value is computed inside a body, and not around it."""
    if isinstance(value, Runtime):
        return body.holds(value.node)
    if isinstance(value, Group):
        return any(_is_made_in(item, body) for item in value.items)
    return isinstance(value, Display)
