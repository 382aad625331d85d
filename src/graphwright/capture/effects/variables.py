"""Variables outside of all modules that a program may change: globals, attributes of classes and functions, cells."""

from __future__ import annotations

from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

from graphwright.capture.proxies.contents import HOLDERS, changeable, content, refill
from graphwright.capture.proxies.growing import is_growing
from graphwright.source import EMPTY, content_of, place_of_name

if TYPE_CHECKING:
    from graphwright.ops import Names

Owner: TypeAlias = "dict[str, Any] | type | FunctionType | CellType"
Argument: TypeAlias = "str | Names | type | FunctionType | CellType"

MISSING = EMPTY
_DEPTH = 3  # how far inside of each other the containers are that are put back


class Variables:
    """Some variables of one owner: a dict of global names, a class, a function, or a cell with its one variable.

    `argument` is the owner as nodes name it; `title` is what it is called in messages.
    """

    def __init__(self, owner: Owner, argument: Argument, title: str) -> None:
        self.owner: Any = owner
        self.argument, self.title = argument, title
        self.path = f"{title}[{id(owner)}]:"
        self.codes: list[CodeType] = []  # of functions that mention them
        self._before: dict[str, Any] = {}
        self._own: set[str] = set()  # of a class: what it has itself, not a base
        self._held: list[tuple[Any, Any]] = []

    @property
    def names(self) -> list[str]:
        """The names of the variables."""
        return [*self._before]

    def place_of_write(self, name: str) -> str | None:
        """The user's line that changes a variable, where one is known."""
        return next((place for code in self.codes if (place := place_of_name(code, name))), None)

    def watch(self, name: str) -> None:
        """Note what a variable holds, and the containers in it."""
        if name not in self._before:
            value = self._before[name] = self.value(name)
            if isinstance(self.owner, type) and name in self.owner.__dict__:
                self._own.add(name)
            self._note(value, _DEPTH)

    def value(self, name: str) -> Any:
        """What a variable holds, MISSING if nothing."""
        if type(self.owner) is dict:
            return self.owner.get(name, MISSING)
        if type(self.owner) is CellType:
            return content_of(self.owner)
        if type(self.owner) is FunctionType:
            return vars(self.owner).get(name, MISSING)
        return next((base.__dict__[name] for base in self.owner.__mro__ if name in base.__dict__), MISSING)

    def has_own(self, name: str) -> bool:
        """Tell whether a class had a variable itself when it was first looked at, not a base of it."""
        return name in self._own

    def base_with(self, name: str) -> type | None:
        """The base that has what a class has under a name, None where that is the class itself, or no class."""
        if not isinstance(self.owner, type) or name in vars(self.owner):
            return None
        return next((base for base in self.owner.__mro__ if name in vars(base)), None)

    def read(self) -> dict[str, Any]:
        """What the variables hold now, those that are not set left out; what a base has is a variable of the base."""
        found = {
            name: before if self.base_with(name) is not None else self.value(name)
            for name, before in self._before.items()
        }
        return {name: value for name, value in found.items() if value is not MISSING}

    def __setitem__(self, name: str, value: Any) -> None:
        if type(self.owner) is dict:
            self.owner[name] = value
        else:
            setattr(self.owner, self._attribute(name), value)

    def shown(self, name: str) -> tuple[Any, str]:
        """The arguments of a node that reads or writes a variable."""
        return self.argument, self._attribute(name)

    def put_back(self) -> None:
        """Put back what there was; a second time does no harm."""
        for name, before in self._before.items():
            if isinstance(self.owner, type) and name not in self._own:
                if name in vars(self.owner):
                    delattr(self.owner, name)
                continue
            now = self.value(name)
            if now is before:
                continue
            if before is not MISSING:
                self[name] = before
            elif type(self.owner) is dict:
                self.owner.pop(name, None)
            elif now is not MISSING:
                delattr(self.owner, self._attribute(name))
        for container, held in self._held:
            refill(container, held)

    def _attribute(self, name: str) -> str:
        return "cell_contents" if type(self.owner) is CellType else name

    def _note(self, value: Any, depth: int) -> None:
        if type(value) in HOLDERS and not is_growing(value):
            self._held += [(each, content(each)) for each in changeable(value)]
            if depth:
                for item in value.values() if isinstance(value, dict) else value:
                    self._note(item, depth - 1)
