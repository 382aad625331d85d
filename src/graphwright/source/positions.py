"""Where instructions stand in their source, and the qualified names of code objects.

Python 3.11 and later write both into code objects. Python 3.10 knows lines alone: there a file is compiled a second
time, with the number of an expression in place of its line, and the instructions of both are laid side by side.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import linecache
import opcode
import sys
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from graphwright.source.code_table import CodeTable
from graphwright.source.rewritten_asserts import is_rewritten, rewrite_asserts

Position = tuple[int, int | None, int | None, int | None]  # line, end line, column, end column
# What `ast` gives a place in the source.
_Placed = ast.stmt | ast.expr | ast.excepthandler | ast.arg | ast.keyword | ast.alias | ast.pattern
_Known = tuple[str, dict[int, Position]]  # the qualified name, and where the instruction at an offset stands

if sys.version_info >= (3, 11):

    def position_of(code: CodeType, instruction: int) -> Position:
        """Where an instruction stands: its line, its last line, its column and its end; None for what is not known."""
        first = code.co_firstlineno
        position = next(itertools.islice(code.co_positions(), instruction // 2, None), (first, None, None, None))
        return position[0] or first, position[1], position[2], position[3]

    def positions_of(code: CodeType) -> Iterable[tuple[int | None, int | None, int | None, int | None]]:
        """Where the instructions of a code object stand; nothing where that is not known."""
        return code.co_positions()

    def qualname_of(code: CodeType) -> str:
        """The qualified name of a code object, as its function has it."""
        return code.co_qualname

else:

    def position_of(code: CodeType, instruction: int) -> Position:
        """Where an instruction stands: its line, its last line, its column and its end; None for what is not known."""
        position = _known(code)[1].get(instruction) if instruction else (code.co_firstlineno, None, None, None)
        if position is not None:  # the first one stands for the function, as it does in newer releases
            return position
        for start, end, line in code.co_lines():
            if start <= instruction < end:
                return line or code.co_firstlineno, None, None, None
        return code.co_firstlineno, None, None, None

    def positions_of(code: CodeType) -> Iterable[tuple[int | None, int | None, int | None, int | None]]:
        """Where the instructions of a code object stand; nothing where that is not known."""
        return _known(code)[1].values()

    def qualname_of(code: CodeType) -> str:
        """The qualified name of a code object, as its function has it."""
        return _known(code)[0]


def note_compiled(tree: ast.Module, compiled: CodeType) -> None:
    """Note where the instructions of code that was compiled from a tree stand."""
    if sys.version_info < (3, 11):
        twins = _Twins(tree, compiled.co_filename, compiled.co_flags)
        for code, qualname in _all_codes(compiled, ""):
            _noted[code] = twins.of(code) or (qualname, {})


def note_replaced(old: CodeType, new: CodeType, qualname: str) -> None:
    """Note that code was made of other code, whose instructions it has, and how its function is called."""
    if sys.version_info < (3, 11):
        _noted[new] = qualname, _known(old)[1]


# ---- Python 3.10

_noted: CodeTable[_Known] = CodeTable()
_files: dict[tuple[str, bool], tuple[list[str], _Twins | None]] = {}
_MOST_FILES = 64
_LEFT_OUT = frozenset({opcode.opmap["NOP"], opcode.opmap["EXTENDED_ARG"]})  # which follow from numbers of lines
_JUMPS = frozenset(code for name, code in opcode.opmap.items() if "JUMP" in name and "IF_" in name)
_FUTURE = 0x1000000  # from __future__ import annotations
_FUNCTION = 0x2  # a flag of code objects


class _Twins:
    """The code of a file, compiled again, whose lines are numbers of expressions."""

    def __init__(self, tree: ast.Module, filename: str, flags: int) -> None:
        nodes: list[Any] = [node for node in ast.walk(tree) if "lineno" in node._attributes]
        self._places: list[Position] = [_place(node) for node in nodes]
        spans = [(node.lineno, node.end_lineno) for node in nodes]
        for number, node in enumerate(nodes, 1):
            node.lineno = node.end_lineno = number
        for node in nodes:
            if isinstance(node, ast.Call):  # the call of a method has the last line of the method's name
                node.func.end_lineno = node.lineno
        compiled = compile(tree, filename, "exec", dont_inherit=True, flags=flags & _FUTURE)
        for node, (line, end_line) in zip(nodes, spans, strict=True):
            node.lineno, node.end_lineno = line, end_line
        self._codes: dict[tuple[str, int], list[tuple[CodeType, str]]] = {}
        for code, qualname in _all_codes(compiled, ""):
            line = self._places[code.co_firstlineno - 1][0] if nodes else 1
            self._codes.setdefault((code.co_name, line), []).append((code, qualname))

    def of(self, code: CodeType) -> _Known | None:
        """What is known of a code object by its twin; None where there is none, or several that are alike."""
        steps = _steps(code)
        found = [
            (twin, qualname)
            for twin, qualname in self._codes.get((code.co_name, code.co_firstlineno), ())
            if [op for _, op in _steps(twin)] == [op for _, op in steps] and _constants(twin) == _constants(code)
        ]
        if len(found) != 1:
            return None
        twin, qualname = found[0]
        numbers = {offset: number for start, end, number in twin.co_lines() for offset in range(start, end, 2)}
        positions: dict[int, Position] = {}
        number = None
        for (offset, op), (other, _) in zip(steps, _steps(twin), strict=True):
            if op not in _JUMPS or number is None:  # whether to jump is asked where the condition stands
                number = numbers.get(other)
            if number is not None:
                positions[offset] = self._places[number - 1]
        return qualname, positions


def _known(code: CodeType) -> _Known:
    known: _Known | None = _noted.get(code)
    if known is None:
        twins = _twins_of(code.co_filename, is_rewritten(code))
        known = (twins and twins.of(code)) or (code.co_name, {})
        _noted[code] = known
    return known


def _twins_of(filename: str, has_rewritten: bool) -> _Twins | None:
    """The code of a file, compiled again: as its source has it, or with its asserts rewritten."""
    lines = linecache.getlines(filename)
    known = _files.get((filename, has_rewritten))
    if known is None or (known[0] is not lines and known[0] != lines):
        if len(_files) >= _MOST_FILES:
            _files.clear()
        twins = None
        text = "".join(lines)
        with contextlib.suppress(SyntaxError, ValueError):
            tree = ast.parse(text)
            if not has_rewritten or rewrite_asserts(tree, text):
                twins = _Twins(tree, filename, 0)
        known = _files[filename, has_rewritten] = lines, twins
    return known[1]


def _all_codes(code: CodeType, qualname: str) -> Iterator[tuple[CodeType, str]]:
    """A code object and those inside it, with the names that Python gives their functions."""
    yield code, qualname or code.co_name
    prefix = f"{qualname}.<locals>." if code.co_flags & _FUNCTION else f"{qualname}." if qualname else ""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _all_codes(const, f"{prefix}{const.co_name}")


def _steps(code: CodeType) -> list[tuple[int, int]]:
    """Offset and operation of each instruction, but of those that may differ between a code object and its twin."""
    return [(2 * at, op) for at, op in enumerate(code.co_code[::2]) if op not in _LEFT_OUT]


def _constants(code: CodeType) -> str:
    return repr([const for const in code.co_consts if not isinstance(const, CodeType)])


def _place(node: _Placed) -> Position:
    method = node.func if isinstance(node, ast.Call) else None
    if isinstance(method, ast.Attribute) and method.end_lineno is not None and method.end_lineno != node.lineno:
        start = (method.end_col_offset or 0) - len(method.attr)  # of a chain over several lines: the method's name
        return method.end_lineno, node.end_lineno, start, node.end_col_offset
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
