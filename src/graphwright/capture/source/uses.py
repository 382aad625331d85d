"""What a function does with a value that it reads, as far as its source tells: takes an item, hands it to a call, asks.

`x.shape[0]` reads one size, `for s in x.shape` how many there are; `y.to(x.dtype)` hands a dtype on, `x.dtype ==
torch.half` asks for it. A value that is given to a variable of its own is followed to where that is read.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from types import CodeType

from graphwright.capture.source.code_table import CodeTable, by_instruction
from graphwright.capture.source.positions import position_of
from graphwright.capture.source.roles import expression_at, statement_at
from graphwright.capture.source.sources import source_of

__all__ = ["Use", "argument_at", "uses_of"]

Place = tuple[int, int]  # line and column of an expression


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """One place where a value is used: the `index` of the item that is taken of it, or the place of an argument.

    Neither is there where the value is asked for, kept or returned.
    """

    index: int | None = None
    argument: Place | None = None


_known: CodeTable[dict[int, tuple[Use, ...]]] = CodeTable()
_parents: CodeTable[dict[ast.AST, ast.AST]] = CodeTable()
_ASKED = (Use(),)


@by_instruction(_known)
def uses_of(code: CodeType, instruction: int) -> tuple[Use, ...]:
    """Find what a function does with the value of an instruction. Where the source does not tell, it asks for it."""
    position = position_of(code, instruction)
    statement = statement_at(code, position)
    found = None if statement is None else expression_at(statement, position)
    parents = _parents_in(code)
    if found is None or found not in parents:
        return _ASKED
    parent = parents[found]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        reads = [*_reads(code, parents, parent.targets[0])]
        return tuple([_use(read, parents) for read in reads]) if reads else _ASKED
    return (_use(found, parents),)


def argument_at(code: CodeType, instruction: int, index: int, keyword: str | None = None) -> Place | None:
    """The place of the expression that is an argument of the call that an instruction makes, where there is one."""
    position = position_of(code, instruction)
    statement = statement_at(code, position)
    call = None if statement is None else expression_at(statement, position)
    if not isinstance(call, ast.Call):
        return None
    if keyword is not None:
        found = next((given.value for given in call.keywords if given.arg == keyword), None)
    else:
        is_plain = not any(isinstance(given, ast.Starred) for given in call.args)
        found = call.args[index] if is_plain and -len(call.args) <= index < len(call.args) else None
    return None if found is None else (found.lineno, found.col_offset)


def _use(read: ast.AST, parents: dict[ast.AST, ast.AST]) -> Use:
    parent = parents[read]
    if isinstance(parent, ast.Subscript) and parent.value is read and isinstance(parent.ctx, ast.Load):
        try:
            index = ast.literal_eval(parent.slice)
        except ValueError:
            return Use()
        return Use(index=index) if type(index) is int else Use()
    call = parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if isinstance(call, ast.Call) and call.func is not read and isinstance(read, ast.expr):
        return Use(argument=(read.lineno, read.col_offset))
    return Use()


def _reads(code: CodeType, parents: dict[ast.AST, ast.AST], variable: ast.Name) -> Iterator[ast.Name]:
    """Where a variable is read that is assigned once; nothing where that is not all there is to it."""
    names = [node for node in parents if isinstance(node, ast.Name) and node.id == variable.id]
    is_local = variable.id in code.co_varnames
    if is_local and [node for node in names if not isinstance(node.ctx, ast.Load)] == [variable]:
        yield from [node for node in names if node is not variable]


def _parents_in(code: CodeType) -> dict[ast.AST, ast.AST]:
    """The parent of each part of a function's source."""
    known: dict[ast.AST, ast.AST] | None = _parents.get(code)
    if known is None:
        found = source_of(code.co_filename).definitions.get((code.co_name, code.co_firstlineno), ())
        walked = ast.walk(found[0]) if len(found) == 1 else ()
        known = _parents[code] = {child: parent for parent in walked for child in ast.iter_child_nodes(parent)}
    return known
