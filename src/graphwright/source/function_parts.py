"""What functions are made of: their code and that inside of it, and the variables of others that they close over."""

from __future__ import annotations

from collections.abc import Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

from graphwright.source.code_table import by_code

EMPTY: Any = object()  # the content of a cell without one


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """A code object and those inside it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes_of(const)


@by_code
def names_in(code: CodeType) -> frozenset[str]:
    """The names of globals and attributes that a code object and those inside it mention."""
    return frozenset(name for part in codes_of(code) for name in part.co_names)


def texts_in(code: CodeType) -> Iterator[str]:
    """The strings that a code object and those inside it have as constants."""
    for part in codes_of(code):
        yield from (const for const in part.co_consts if isinstance(const, str))


def closure_of(function: FunctionType) -> dict[str, CellType]:
    """The variables of other functions that a function closes over, by name."""
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def content_of(cell: CellType) -> Any:
    """What a cell holds, EMPTY if nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def held_by(function: FunctionType) -> dict[str, Any]:
    """What is in the variables that a function closes over, those aside that hold nothing."""
    contents = {name: content_of(cell) for name, cell in closure_of(function).items()}
    return {name: content for name, content in contents.items() if content is not EMPTY}
