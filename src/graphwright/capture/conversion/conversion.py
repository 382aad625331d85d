"""A function made again from its source, so that its questions can be answered with branches.

In the converted function `if`, `and`, `or`, `not`, the ternary, chained comparisons, `assert`, `raise` and calls go
through a runtime that decides by the value: a plain value takes Python's way, a symbolic one becomes a branch of the
graph. Nothing of the user's is changed: the new function has the same globals, closure cells, defaults, file name and
line numbers, and reaches the runtime through a constant of its code.

    if total > 0:                       def then():
        x = x + 1                           nonlocal x
                              ->            x = x + 1
                                        runtime.branch(total > 0, then, other)
"""

from __future__ import annotations

import ast
import inspect
import linecache
import opcode
import os
import re
import tokenize
import traceback
import weakref
from types import CodeType, FunctionType
from typing import Any

import torch

from graphwright import errors
from graphwright.capture.conversion.asked_classes import TREES, Asked, asked_in
from graphwright.capture.conversion.comparisons import LOOK_FOR, Source
from graphwright.capture.conversion.converter import Converter
from graphwright.capture.conversion.generators import as_gathering, is_generator
from graphwright.capture.conversion.local_variables import with_variables
from graphwright.source import (
    PREFIX,
    RUNTIME_MARK,
    STANDS_FOR_TORCH,
    TYPE_PARAMETERS,
    CodeTable,
    all_placed,
    by_code,
    closure_of,
    codes_of,
    compares_identity,
    copied_tree,
    definition_of,
    is_convertible,
    names_in,
    note_compiled,
    note_made_from_source,
    note_replaced,
    qualname_of,
    walk,
)

# Original -> converted, by the lines of branches that wait for the end of the function; None where that cannot be.
_codes: CodeTable[dict[frozenset[int], CodeType | None]] = CodeTable()
_originals: CodeTable[weakref.ref[CodeType]] = CodeTable()  # converted -> original
_made: CodeTable[bool] = CodeTable()
_convertible: CodeTable[bool] = CodeTable()
_ASKING = frozenset(
    code
    for name, code in opcode.opmap.items()
    if name in ("MATCH_CLASS", "IS_OP", "COMPARE_OP", "CONTAINS_OP") or "_NONE" in name
)
_IS = opcode.opmap["IS_OP"]
_CONDITIONAL_JUMPS = frozenset(code for name, code in opcode.opmap.items() if "JUMP" in name and "_IF_" in name)
_ASK = frozenset({"id", "is_", "is_not"})  # functions that tell objects apart
_STANDARD = os.path.dirname(os.__file__)  # what `contextlib` and its like ask is about what they made
_LIBRARIES = tuple(os.path.join(os.path.dirname(path), "") for path in (torch.__file__, errors.__file__))
_LOOKS = _CONDITIONAL_JUMPS | {_IS, opcode.opmap["CONTAINS_OP"]}
_OWN_TOOLS = frozenset(tool.__file__ for tool in (ast, inspect, linecache, tokenize, traceback, re, weakref))
_WORDS = frozenset({"isinstance", "issubclass", "type", "hasattr", "getattr", "callable", "id", "map", "filter"})
_OF_CLASSES = TREES | LOOK_FOR | {
    "isinstance", "type", "hasattr", "getattr", "callable", "is_tensor", "__class__", "globals", "vars", "dir",
    "__dict__",
}  # fmt: skip
NESTED = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # code that is part of the function around it


def convert(function: FunctionType, runtime: Any, waiting: frozenset[int] = frozenset()) -> FunctionType | None:
    """Return a function that does the same with its questions going through `runtime`; None without usable source.

    The branches in the lines `waiting` have what comes after them in the function on both of their sides.
    """
    code = function.__code__
    if code in _made:
        return function
    versions = _codes.get(code)
    if versions is None:
        versions = _codes[code] = {}
    if waiting:
        definition = definition_of(code)
        last = 0 if definition is None else definition.end_lineno or 0
        waiting = frozenset(line for line in waiting if code.co_firstlineno <= line <= last)
    if waiting not in versions:
        versions[waiting] = _convert_code(code, runtime, waiting)
    new = versions[waiting]
    if new is None:
        return None
    _originals[new] = weakref.ref(code)
    cells = closure_of(function)
    made = FunctionType(
        new, function.__globals__, function.__name__, function.__defaults__, tuple([cells[n] for n in new.co_freevars])
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    made.__annotations__ = function.__annotations__
    made.__doc__, made.__module__, made.__qualname__ = function.__doc__, function.__module__, function.__qualname__
    return made


def can_convert(code: CodeType) -> bool:
    """Tell whether a function of this code has source that can be converted."""
    return not is_generator(code) and _has_conversion(code)


def can_gather(code: CodeType) -> bool:
    """Tell whether a generator function has source that can be converted, to a function that gathers what it gives."""
    return is_generator(code) and _has_conversion(code)


def _has_conversion(code: CodeType) -> bool:
    versions = _codes.get(code)
    if versions:
        return None not in versions.values()
    known = _convertible.get(code)
    if known is None:
        definition = _definition(code)
        known = definition is not None and is_convertible(definition)
        if known:  # else its file may yet be what it was compiled from
            _convertible[code] = True
    return known


@by_code
def may_ask(code: CodeType) -> bool:
    """Tell whether a function of the program has conditions: whether it may ask whether a value is true."""
    return not code.co_filename.startswith(_LIBRARIES) and not _CONDITIONAL_JUMPS.isdisjoint(code.co_code[::2])


@by_code
def may_look(code: CodeType) -> bool:
    """Tell whether a function may ask what a value is: None, of a class, in a container. Others pass it on."""
    return code.co_filename not in _OWN_TOOLS and (
        not _WORDS.isdisjoint(code.co_names)
        or not _LOOKS.isdisjoint(code.co_code[::2])
        or any(isinstance(const, CodeType) for const in code.co_consts)
    )


@by_code
def asks_identity(code: CodeType) -> bool:
    """Tell whether a function of the program asks whether two values that may be tensors are one."""
    may_ask = not code.co_filename.startswith(_LIBRARIES) and any(
        _IS in part.co_code[::2] or not _ASK.isdisjoint(part.co_names) for part in codes_of(code)
    )
    definition = definition_of(code) if may_ask else None
    return definition is not None and any(
        isinstance(each, ast.MatchSingleton) or compares_identity(each) or _is_id(each) for each in walk(definition)
    )


def _is_id(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in _ASK


@by_code
def asks_class(code: CodeType) -> bool:
    """Tell whether a function of the program uses `type`, which Python itself answers with the class of a stand-in.

    Or asks for what torch's symbolic numbers have and others have not.
    """
    names = names_in(code)
    of_parameters = any("Parameter" in name for name in names) and not names.isdisjoint(("isinstance", "issubclass"))
    of_class = (of_parameters or not names.isdisjoint(("type", "__class__"))) and _asked(code).class_of
    return of_class or not _SYMBOLIC.isdisjoint(names) or _looks_for_symbols(code)


def _looks_for_symbols(code: CodeType) -> bool:
    texts = {const for const in code.co_consts if type(const) is str}
    return not _LOOKUPS.isdisjoint(code.co_names) and not OF_SYMBOLS.isdisjoint(texts)


_SYMBOLIC = frozenset({"SymInt", "SymFloat", "SymBool"})
_SYMBOLS, _NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool), (int, float, bool)
OF_SYMBOLS = {"node", *(name for kind in _SYMBOLS for name in dir(kind) if name[0] != "_")}.difference(
    *map(dir, _NUMBERS)
)


def asks_kind(code: CodeType) -> bool:
    """Tell whether a function of the program asks of what kind a value is that it was given, or has made."""
    return _asked(code).kind and not is_standard(code)


def asks_by_name(code: CodeType) -> bool:
    """Tell whether a function of the program looks attributes up by names that it computes."""
    return not _LOOKUPS.isdisjoint(names_in(code)) and _asked(code).by_name


def searches_globals(code: CodeType) -> bool:
    """Tell whether a function of the program looks global variables up by names that it computes."""
    return "globals" in names_in(code) and _asked(code).of_globals


def searches_attributes(code: CodeType) -> bool:
    """Tell whether a function of the program looks into tables of attributes, other than under names that it writes."""
    return not _ATTRIBUTES.isdisjoint(names_in(code)) and _asked(code).of_attributes


_ATTRIBUTES = frozenset({"vars", "dir", "__dict__"})
_LOOKUPS = frozenset({"getattr", "hasattr"})


def is_standard(code: CodeType) -> bool:
    """Tell whether a function is of Python's library, or stands for one of torch: it asks nothing for the program."""
    return os.path.dirname(code.co_filename) == _STANDARD or code.co_filename == STANDS_FOR_TORCH


def asked_for_none(code: CodeType) -> frozenset[str]:
    """The arguments of which a function of the program asks whether they are None."""
    return _asked(code).given


def compared(code: CodeType) -> frozenset[Source]:
    """The arguments that a function of the program compares with what is no number, or from which that comes."""
    return _asked(code).compared


def asks_of_owner(code: CodeType) -> bool:
    """Tell whether a method of the program asks of what kind something is that its object holds."""
    return _asked(code).of_owner


@by_code
def attributes_asked(code: CodeType) -> frozenset[str]:
    """The attributes of which a method of the program asks of its object what they are, or has functions ask."""
    if code.co_filename.startswith(_LIBRARIES) or not code.co_argcount or code.co_varnames[0] not in ("self", "cls"):
        return frozenset()
    return _all_asked(code).attributes


@by_code
def _asked(code: CodeType) -> Asked:
    may_ask = not code.co_filename.startswith(_LIBRARIES) and (
        not _OF_CLASSES.isdisjoint(names_in(code))
        or any(not _ASKING.isdisjoint(part.co_code[::2]) for part in codes_of(code))
    )
    return _all_asked(code) if may_ask else asked_in(None)


@by_code
def _all_asked(code: CodeType) -> Asked:
    return asked_in(definition_of(code))


@by_code
def compares_with_flag(code: CodeType) -> bool:
    """Tell whether a function asks whether a value is True or False itself: `x.requires_grad is True`."""
    definition = definition_of(code) if _IS in code.co_code[::2] else None
    return definition is not None and any(
        isinstance(each, ast.Compare)
        and any(isinstance(side, ast.Constant) and type(side.value) is bool for side in (each.left, *each.comparators))
        for each in walk(definition)
    )


def is_converted(code: CodeType) -> bool:
    """Tell whether a code object is one that `convert` made."""
    return code in _made


def original_code(code: CodeType) -> CodeType | None:
    """The code object that a function was written with; None for the part of a converted one."""
    original = _originals.get(code)
    return original() if original is not None else None if code in _made else code


def converted_source(function: FunctionType) -> str:
    """Show what a function becomes. Raises ValueError where it has no source that can be converted."""
    tree = _converted_tree(function.__code__)
    if tree is None:
        raise ValueError(f"{function.__qualname__} has no source that can be converted")
    return ast.unparse(tree).replace(repr(RUNTIME_MARK), "runtime")


# ---- source


def _definition(code: CodeType) -> Any:
    """The tree to convert: of a generator function, that of one which gathers what it gives."""
    definition = definition_of(code)
    return definition if definition is None or not is_generator(code) else as_gathering(definition)


def _converted_tree(code: CodeType, waiting: frozenset[int] = frozenset()) -> ast.FunctionDef | ast.Lambda | None:
    definition = _definition(code)
    if definition is None or not _has_conversion(code):
        return None
    qualname = qualname_of(code).split(".")
    owner = qualname[-2] if len(qualname) > 1 and qualname[-2] != "<locals>" else ""
    first = code.co_varnames[0] if code.co_argcount else ""
    return Converter(owner, first, waiting).function(with_variables(copied_tree(definition), code, owner))


def _convert_code(code: CodeType, runtime: Any, waiting: frozenset[int]) -> CodeType | None:
    tree = _converted_tree(code, waiting)
    if tree is None:
        return None
    # An outer function declares the free variables, so that they are free in the new code, too.
    body: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in code.co_freevars]
    name = code.co_name
    if isinstance(tree, ast.FunctionDef):  # under another name: its own means what it means to the user's module
        tree.name = name = f"{PREFIX}function"
    body.append(tree if isinstance(tree, ast.stmt) else ast.Expr(tree))
    outer = ast.FunctionDef(
        f"{PREFIX}outer", ast.arguments([], [], None, [], [], None, []), body, [], **TYPE_PARAMETERS
    )
    module = all_placed(ast.Module([outer], []))
    compiled = compile(module, code.co_filename, "exec", dont_inherit=True, flags=code.co_flags & _FUTURE)
    outer_code = next(const for const in compiled.co_consts if isinstance(const, CodeType))
    new = next(const for const in outer_code.co_consts if isinstance(const, CodeType) and const.co_name == name)
    note_compiled(module, compiled)
    return _finish(new, code, runtime, qualname_of(code))


_FUTURE = 0x1000000  # from __future__ import annotations


def _finish(new: CodeType, old: CodeType, runtime: Any, qualname: str) -> CodeType:
    """Put the runtime into the constants; name the functions made of branches after the one they are part of."""
    consts: list[Any] = []
    for const in new.co_consts:
        if isinstance(const, CodeType):
            part = const.co_name.startswith(PREFIX) or PREFIX in const.co_varnames
            name, within = (old.co_name, qualname) if part else (const.co_name, f"{qualname}.<locals>.{const.co_name}")
            inner = const.replace(co_name=name) if part else const
            note_replaced(const, inner, within)
            const = _finish(inner, inner, runtime, within)
        elif const == RUNTIME_MARK:
            const = runtime
        consts.append(const)
    changes: dict[str, Any] = {"co_consts": tuple(consts), "co_name": old.co_name}
    if hasattr(new, "co_qualname"):
        changes["co_qualname"] = qualname
    finished = new.replace(**changes)
    note_replaced(new, finished, qualname)
    _made[finished] = True
    note_made_from_source(finished)
    return finished
