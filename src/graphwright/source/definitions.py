"""The definition that running code was compiled from: source is used only where it is that of the code.

A file may have been edited since it was imported, and code objects can be made in other ways than from their file. A
definition counts as that of a code object where it compiles to the same instructions, constants and names, functions
inside it included.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import dis
import os
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from graphwright.source.code_table import CodeTable
from graphwright.source.function_parts import codes_of, names_in
from graphwright.source.positions import positions_of, qualname_of
from graphwright.source.rewritten_asserts import is_rewritten
from graphwright.source.source_files import Source, source_of
from graphwright.source.syntax import PREFIX, TYPE_PARAMETERS

Definition = ast.FunctionDef | ast.Lambda

_NOTHING = Source([])
_known: CodeTable[tuple[Definition | None, list[str]]] = CodeTable()  # and the lines that were looked at
_made: CodeTable[bool] = CodeTable()
_shown: CodeTable[bool] = CodeTable()
_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag
_FLAGS = 0x04 | 0x08 | 0x20 | 0x80 | 0x200  # *args, **kwargs, a generator, a coroutine, an asynchronous generator
_SHAPE = (
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_names", "co_varnames", "co_freevars"),
    *("co_cellvars", "co_code"),
)
_PLACE: Any = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}  # of what stands around it
_NO_FUNCTION = frozenset({"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


def definition_of(code: CodeType) -> Definition | None:
    """Find the definition that a code object was compiled from; None where no source that is known compiles to it.

    >>> exec(compile("def f(x): return x + 1", "<nowhere>", "exec"))
    >>> definition_of(f.__code__) is None
    True
    """
    known = _known.get(code)
    if known is not None and known[0] is not None:
        return known[0]
    source = source_of(code.co_filename)
    if code in _made or (known is not None and known[1] is source.lines):
        return None
    found = [
        node
        for node in source.definitions(code.co_name, code.co_firstlineno)
        if (isinstance(node, ast.FunctionDef) or _spans(node, code)) and (code in _shown or compiles_to(node, code))
    ]
    definition = found[0] if len(found) == 1 else None
    _known[code] = definition, source.lines
    return definition


def source_behind(code: CodeType) -> Source:
    """The source of the file of a code object; an empty one for a function whose definition there is another."""
    source = source_of(code.co_filename)
    if code in _made or code.co_name in _NO_FUNCTION:
        return source
    is_stale = source.definitions(code.co_name, code.co_firstlineno) and definition_of(code) is None
    return _NOTHING if is_stale else source


def why_no_definition(function: FunctionType) -> str:
    """Say why the source of a function cannot be used."""
    code = function.__code__
    known = source_of(code.co_filename).definitions(code.co_name, code.co_firstlineno)
    if not known:
        return f"{function.__qualname__} has no source"
    place = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    return f"the source of {function.__qualname__} at {place} is not what runs: the file was changed, or the code was"


def note_made_from_source(code: CodeType) -> None:
    """Note that code was made from the definition of other code, whose places it has."""
    _made[code] = True


def note_shown_as(code: CodeType) -> None:
    """Note that code, and the code inside it, does what its source says, though that compiles to other code."""
    for part in codes_of(code):
        _shown[part] = True


def compiles_to(definition: Definition, code: CodeType) -> bool:
    """Tell whether a definition is what a code object was compiled from."""
    compiled = _compiled(definition, code)
    if compiled is not None and _is_same(compiled, code):
        return True
    if is_rewritten(code):
        return compiled is not None and _is_same_but_for_asserts(compiled, code, definition)
    whole = _codes_of(code.co_filename, code.co_flags & _FUTURE).get((code.co_name, code.co_firstlineno), ())
    return len(whole) == 1 and _is_same(whole[0], code)


_files: dict[str, tuple[list[str], dict[tuple[str, int], list[CodeType]]]] = {}
_MOST_FILES = 64


def _codes_of(filename: str, flags: int) -> dict[tuple[str, int], list[CodeType]]:
    """The code objects that a file compiles to as a whole: for functions that do not compile alike on their own."""
    source = source_of(filename)
    known = _files.get(filename)
    if known is None or known[0] is not source.lines:
        if len(_files) >= _MOST_FILES:
            _files.clear()
        found: dict[tuple[str, int], list[CodeType]] = {}
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            whole = compile("".join(source.lines), filename, "exec", dont_inherit=True, flags=flags)
            for code in codes_of(whole):
                found.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        known = _files[filename] = source.lines, found
    return known[1]


def _compiled(definition: Definition, code: CodeType) -> CodeType | None:
    """Compile a definition, with the free variables of a code object, and in a class where that is in one."""
    free: list[ast.stmt] = [
        ast.Assign([ast.Name(name, ast.Store(), **_PLACE)], ast.Constant(None, **_PLACE), **_PLACE)
        for name in code.co_freevars
    ]
    body: list[ast.stmt] = [_alone(definition)]
    owner = _owner(qualname_of(code))
    if owner:  # for the names that it mangles, and `super()`
        body = [ast.ClassDef(owner, [], [], body, [], **TYPE_PARAMETERS, **_PLACE)]
        free = [each for each in free if each.targets[0].id != "__class__"]  # type: ignore[attr-defined]
    nothing = ast.arguments([], [], None, [], [], None, [])
    named = {owner, code.co_name} - {"", "<lambda>", *code.co_freevars}
    around: list[ast.stmt] = [ast.Global([*named], **_PLACE)] if named else []
    outer = ast.FunctionDef(f"{PREFIX}outer", nothing, [*around, *free, *body], [], **TYPE_PARAMETERS, **_PLACE)
    # What the module imports at its top is called in another way than what has methods.
    imported = source_of(code.co_filename).imports.intersection(names_in(code))
    names = [ast.alias(name, **_PLACE) for name in imported]
    module = ast.Module([*([ast.Import(names, **_PLACE)] if names else []), outer], [])
    try:
        compiled: CodeType = compile(module, code.co_filename, "exec", dont_inherit=True, flags=code.co_flags & _FUTURE)
    except (SyntaxError, ValueError, RecursionError):
        return None
    for name in (f"{PREFIX}outer", *([owner] if owner else []), code.co_name):
        inner = [const for const in compiled.co_consts if isinstance(const, CodeType) and const.co_name == name]
        if len(inner) != 1:
            return None
        compiled = inner[0]
    return compiled


def _alone(definition: Definition) -> ast.stmt:
    """A definition without what is evaluated around it: decorators, defaults and annotations."""
    given = definition.args
    arguments = ast.arguments(
        [ast.arg(arg.arg, **_PLACE) for arg in given.posonlyargs],
        [ast.arg(arg.arg, **_PLACE) for arg in given.args],
        given.vararg and ast.arg(given.vararg.arg, **_PLACE),
        [ast.arg(arg.arg, **_PLACE) for arg in given.kwonlyargs],
        [None for _ in given.kwonlyargs],
        given.kwarg and ast.arg(given.kwarg.arg, **_PLACE),
        [],
    )
    alone: ast.stmt
    if isinstance(definition, ast.Lambda):
        alone = ast.Expr(ast.copy_location(ast.Lambda(arguments, definition.body), definition))
    else:
        alone = ast.FunctionDef(definition.name, arguments, definition.body, [], **TYPE_PARAMETERS)
    return ast.copy_location(alone, definition)


def _owner(qualname: str) -> str:
    """The innermost class around a function, which mangles its private names; empty where there is none."""
    parts = qualname.replace(".<locals>", "<locals>").split(".")[:-1]
    return next((part for part in reversed(parts) if not part.endswith("<locals>")), "")


def _is_same(one: CodeType, other: CodeType) -> bool:
    """Tell whether two code objects do the same: where they stand may differ."""
    return (
        all(getattr(one, name) == getattr(other, name) for name in _SHAPE)
        and one.co_flags & _FLAGS == other.co_flags & _FLAGS
        and getattr(one, "co_exceptiontable", b"") == getattr(other, "co_exceptiontable", b"")
        and _is_same_constant(_constants(one), _constants(other))
    )


def _constants(code: CodeType) -> tuple[Any, ...]:
    """The constants of a code object, short of qualified names: Python 3.10 has one after each function inside."""
    before = (None, *code.co_consts)
    return tuple([const for last, const in zip(before, code.co_consts, strict=False) if not _is_name_of(const, last)])


def _is_name_of(const: Any, function: Any) -> bool:
    return isinstance(function, CodeType) and isinstance(const, str) and const.rpartition(".")[2] == function.co_name


def _is_same_constant(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, CodeType):
        return _is_same(one, other)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_is_same_constant, one, other))
    if isinstance(one, frozenset):
        return {(type(item), repr(item)) for item in one} == {(type(item), repr(item)) for item in other}
    return one == other if isinstance(one, str) else repr(one) == repr(other)  # 0.0 and -0.0, nan and nan


# ---- functions whose asserts were rewritten when their module was imported, as pytest does

_LEFT_OUT = frozenset({"EXTENDED_ARG", "CACHE", "NOP", "RESUME", "NOT_TAKEN", "PUSH_EXC_INFO"})


def _is_same_but_for_asserts(one: CodeType, other: CodeType, definition: Definition) -> bool:
    """Tell whether two code objects differ in their asserts only, of which the second one's were rewritten."""
    asserts = [
        (node.lineno, node.end_lineno or node.lineno) for node in ast.walk(definition) if isinstance(node, ast.Assert)
    ]
    steps, others = list(_steps(one, asserts)), list(_steps(other, asserts))
    return len(steps) == len(others) and all(
        step[0] == other_step[0] and _is_alike(step[1], other_step[1], definition)
        for step, other_step in zip(steps, others, strict=True)
    )


def _is_alike(one: Any, other: Any, definition: Definition) -> bool:
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return _is_same(one, other) or (is_rewritten(other) and _is_same_but_for_asserts(one, other, definition))
    return _is_same_constant(one, other)


def _steps(code: CodeType, asserts: list[tuple[int, int]]) -> Iterator[tuple[str, Any]]:
    """What the instructions that are no part of an assert do, and with what; where jumps lead is left out."""
    line: int | None = None
    for instruction, lines in zip(dis.get_instructions(code), _lines(code), strict=True):
        line = lines or line
        is_in_assert = line is not None and any(first <= line <= last for first, last in asserts)
        if is_in_assert or instruction.opname in _LEFT_OUT:
            continue
        is_jump = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
        name = instruction.opname.replace("_BORROW", "").replace("_CHECK", "")
        if "JUMP" in name:
            name = "JUMP"
        yield name, None if is_jump else instruction.argval


def _lines(code: CodeType) -> Iterator[int | None]:
    """The line of each instruction, as `dis` counts them."""
    lines = {offset: line for start, end, line in code.co_lines() for offset in range(start, end, 2)}
    return (lines.get(instruction.offset) for instruction in dis.get_instructions(code))


def _spans(node: ast.Lambda, code: CodeType) -> bool:
    """Tell whether the instructions of a code object lie inside a lambda: several may stand on one line."""
    body = node.body
    for line, end_line, column, end_column in positions_of(code):
        if line is None or column is None or (line == end_line == code.co_firstlineno and column == end_column == 0):
            continue
        if (line, column) < (body.lineno, body.col_offset) or (end_line, end_column) > (
            body.end_lineno,
            body.end_col_offset,
        ):
            return False
    return True
