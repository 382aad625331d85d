"""From a running frame to a place in the user's source.

While a program is captured only the code object and the instruction are noted; the file is read and parsed when
somebody asks where a node comes from, or what the source calls its value.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import functools
import inspect
import linecache
import os
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeAlias

import torch

from graphwright import errors
from graphwright.ir import Node, Origin
from graphwright.source.code_table import CodeTable, by_instruction
from graphwright.source.definitions import source_behind
from graphwright.source.positions import position_of, qualname_of
from graphwright.source.roles import is_return
from graphwright.source.source_files import source_of

_INTERNAL = (
    os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), ""),
    os.path.join(os.path.dirname(os.path.abspath(errors.__file__)), ""),
    copy.__file__,
)
_CONTEXTS = contextlib.__file__
_MOST_FILES = 10_000  # generated code has a name of its own each time


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the nearest frame, from this one outwards, that runs neither torch's nor this library's code.

    Where a capture runs its program, who called the capture is none of it.
    """
    while frame is not None:
        code = frame.f_code
        if not is_internal(code.co_filename):
            return frame
        if code.co_filename == _RUNS and code.co_name == "run":
            return None
        frame = frame.f_back
    return None


def decorated(frame: FrameType | None) -> CodeType | None:
    """The function of the program that a decorator is running, in this frame or around it: under `@torch.no_grad()`."""
    while frame is not None and (is_internal(frame.f_code.co_filename) or frame.f_code.co_filename == _CONTEXTS):
        if "func" in frame.f_code.co_freevars:
            code: CodeType | None = getattr(inspect.unwrap(frame.f_locals["func"]), "__code__", None)
            return None if code is None or is_internal(code.co_filename) else code
        frame = frame.f_back
    return None


@functools.lru_cache(_MOST_FILES)
def is_internal(filename: str) -> bool:
    """Tell whether a file has torch's or this library's code, and no program."""
    is_program = filename.startswith(_PROGRAMS) and filename != _MODULE
    return filename.startswith(_INTERNAL) and not is_program


@functools.lru_cache(_MOST_FILES)
def is_ours(filename: str) -> bool:
    """Tell whether a file has this library's code, and no program."""
    return filename.startswith(_INTERNAL[1]) and is_internal(filename)


# Python in the place of torch's operators: it runs as the program does, and is none of the user's.
STANDS_FOR_TORCH = os.path.join(_INTERNAL[1], "ops", "higher_order.py")
# Code of ours and torch's that is a program like any other: models and patterns, not machinery.
_PROGRAMS = (
    os.path.join(_INTERNAL[0], "nn", "modules", ""),
    os.path.join(_INTERNAL[0], "distributions", ""),
    os.path.join(_INTERNAL[1], "cli"),
    os.path.join(_INTERNAL[1], "passes", ""),
    STANDS_FOR_TORCH,
)
_MODULE = os.path.join(_PROGRAMS[0], "module.py")
# What calls modules, and the program itself: who calls these names no more what is given.
_RUNS = os.path.join(_INTERNAL[1], "capture", "state", "running.py")
_CALLERS = (_MODULE, _RUNS)


_NOTHING: tuple[tuple[Any, ...], Mapping[str, Any]] = (), {}


class Scope:
    """A call of a module during capture: its path and class, which call of it this is, and the call around it.

    A capture may note what the call got and gave, as nodes of the graph, and the line that it stands in.
    """

    __slots__ = ("_meta", "call", "given", "kind", "outer", "passed", "path", "site")

    def __init__(self, module_path: str, module_type: type | None, call: int = 0, outer: Scope | None = None) -> None:
        self.path = module_path
        self.kind = module_type
        self.call = call
        self.outer = outer
        self.passed = _NOTHING
        self.given: Any = None
        self.site: CallSite | None = None
        self._meta: OrderedDict[str, tuple[str, Any]] | None = None

    @property
    def module_path(self) -> str:
        """The dotted path of the module, empty for the root: torch.fx's name for it."""
        return self.path

    @module_path.setter
    def module_path(self, path: str) -> None:
        self.path = path

    @property
    def module_type(self) -> Any:
        """The class of the module: torch.fx's name for it."""
        return self.kind

    @module_type.setter
    def module_type(self, kind: type) -> None:
        self.kind = kind

    def stack(self) -> tuple[tuple[str, Any], ...]:
        """(path, class) of the module calls that are running, outermost first, the root left out."""
        return tuple(self.module_stack().values())

    def module_stack(self) -> OrderedDict[str, tuple[str, Any]]:
        """The same in torch.fx's form: the key is the path, and `path@n` for the module's n-th call after the first."""
        if self._meta is None:
            if self.outer is None:
                self._meta = OrderedDict()
            else:
                self._meta = OrderedDict(self.outer.module_stack())
                self._meta[self.key] = (self.path, self.kind)
        return self._meta

    @property
    def key(self) -> str:
        """What tells this call from all others of the capture."""
        return self.path if self.call == 0 else f"{self.path}@{self.call}"


class ScopeContextManager:
    """A `with` block in which `scope` tells of another module: `current_scope`'s path and class, undone at the end.

    >>> scope = Scope("", None)
    >>> with ScopeContextManager(scope, Scope("layer", int)):
    ...     scope.module_path
    'layer'
    >>> scope.module_path
    ''
    """

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._scope = scope
        self._before = scope.path, scope.kind
        scope.path, scope.kind = current_scope.path, current_scope.kind

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *args: object) -> None:
        self._scope.path, self._scope.kind = self._before


class CallSite:
    """An instruction of the user's program, and the module call in which it ran; resolves to an Origin.

    Not `is_whole`: the operation is only a part of what the instruction does, so that what the statement assigns is not
    the operation's value. `named` is what a caller's statement assigns the value to, where that has given it its name.
    """

    __slots__ = ("_origin", "code", "instruction", "is_whole", "named", "scope")

    def __init__(self, code: CodeType, instruction: int, scope: Scope, is_whole: bool = True) -> None:
        self.is_whole = is_whole
        self.code = code
        self.instruction = instruction
        self.scope = scope
        self.named = ""
        self._origin: Origin | None = None

    @property
    def target(self) -> str:
        """The variable that the user's statement assigns the operation's value to."""
        return place_of(self.code, self.instruction).target if self.is_whole else ""

    def part(self) -> CallSite:
        """The same place, for an operation that is only a part of what the instruction does."""
        return CallSite(self.code, self.instruction, self.scope, is_whole=False)

    def resolve(self) -> Origin:
        """Read the source and say where this is."""
        if self._origin is None:
            place = place_of(self.code, self.instruction)
            scope = self.scope
            self._origin = Origin(
                file=self.code.co_filename,
                line=place.line,
                function=qualname_of(self.code),
                source=place.source,
                statement=place.statement,
                target=self.target,
                module=scope.path,
                module_type=scope.kind,
                call=scope.call,
                column=place.column,
                end_column=place.end_column,
                stack=scope.stack(),
            )
        return self._origin

    def line(self) -> str:
        """The user's line, for a message: `model.py:3: if x.dim() == 3:`."""
        origin = self.resolve()
        return f"{os.path.basename(origin.file)}:{origin.line}: {origin.source}"

    def initial_meta(self) -> dict[str, Any]:
        """The meta that a node recorded here starts with."""
        stack = self.scope.module_stack()
        return {"nn_module_stack": OrderedDict(stack)} if stack else {}

    def __str__(self) -> str:
        return str(self.resolve())


def name_as_called(scope: Scope, given: Any) -> list[tuple[Node, str]]:
    """Call what a call of a module has given as the caller's line does; answer with the nodes, each with that name.

    A value that a variable of the module itself has keeps the name of that.
    """
    site = scope.site
    if site is None or not given or site.code is SEQUENTIAL:
        return []
    place = place_of(site.code, site.instruction)
    names, values = (place.targets, given) if place.targets else ((place.target,), (given,))
    if type(values) is not tuple or len(values) != len(names):
        return []
    named = [(node, name) for node, name in zip(values, names, strict=True) if name and _is_unnamed_in(node, scope)]
    for node, name in named:
        node._origin.named = name
        node.graph._call_again(node, name)
    return named


def _is_unnamed_in(node: Any, scope: Scope) -> bool:
    """Tell whether a node was made in a call, by a line that gives its value no name of the user's."""
    site = node._origin if type(node) is Node and node._op != "placeholder" else None
    if type(site) is not CallSite or site.named or (site.target and site.code is not SEQUENTIAL):
        return False
    inner: Scope | None = site.scope
    while inner is not None and inner is not scope:
        inner = inner.outer
    return inner is not None


SEQUENTIAL = torch.nn.Sequential.forward.__code__  # whose `input` tells nothing


def is_returned(node: Node) -> bool:
    """Tell whether the statement that computes a value is the one that the whole program returns with."""
    origin = node.origin
    if origin is None or origin.module != "":
        return False
    return is_return(origin.file, origin.line) or "<lambda>" in origin.function


NamesInside: TypeAlias = "dict[int, tuple[Sequence[str], NamesInside]]"


class Place(NamedTuple):
    """Where an instruction stands: its line and columns, its statement's first line and text, what that assigns.

    `targets` are the variables that the statement unpacks the instruction's value into, and `inside` has the same of
    each target that is several, by its number: of the second in `a, (b, c) = value`. Where it returns the value,
    `returned` is the place of that in the tuple, -1 if it is all of it; `called` is the function that gives it. `item`
    is what the statement takes of the value, by number or as an attribute, for all its right side: `x = f(y)[0]`.
    """

    line: int
    column: int | None
    end_column: int | None
    statement: int
    source: str
    target: str
    targets: tuple[str, ...] = ()
    returned: int | None = None
    called: str = ""
    item: tuple[int | str, str] | None = None
    inside: NamesInside | None = None

    def names_of_items(self, value: Any) -> list[str]:
        """What the statement calls the items of the value: the one that it takes."""
        key, name = self.item or (None, "")
        for i in range(len(value)) if name else ():
            if i == key or (isinstance(key, str) and value[i] is getattr(value, key, None)):
                return [*[""] * i, name]
        return []


_WHOLE = -1
_Position: TypeAlias = tuple[int, int | None, int | None, int | None]
_places: CodeTable[dict[int, Place]] = CodeTable()


@by_instruction(_places)
def place_of(code: CodeType, instruction: int) -> Place:
    """Find an instruction in its source. Without source only the line is known."""
    line, end_line, column, end_column = position_of(code, instruction)
    source = source_behind(code)
    statements = source.statements(line)
    is_decorator = line == code.co_firstlineno and source.line(line).startswith("@")
    if not statements or is_decorator:
        return Place(line, column, end_column, line, source.line(line), "")
    statement = _at_column(statements, line, column)
    position = line, end_line, column, end_column
    targets: str | ast.Tuple = ""
    value, returned = None, None
    if isinstance(statement, ast.Return):
        returned, value = _returned(statement, position)
    elif column is not None:
        targets, value = _targets(statement, position)
    target, names, inside = (targets, (), None) if isinstance(targets, str) else ("", *_names(targets))
    text = source.line(statement.lineno)
    item = _item(statement, position) if isinstance(statement, ast.Assign) else None
    called = _called(value)
    return Place(line, column, end_column, statement.lineno, text, target, names, returned, called, item, inside)


def _at_column(statements: list[ast.stmt], line: int, column: int | None) -> ast.stmt:
    """The innermost of the statements on a line, which may be several side by side, at a column of it."""
    if column is None:
        return statements[-1]
    for statement in reversed(statements):
        begins = statement.lineno < line or statement.col_offset <= column
        if begins and (statement.end_lineno != line or column < (statement.end_col_offset or 0)):
            return statement
    return statements[-1]


def named_by_callers(frame: FrameType, item: int) -> str:
    """What the caller of a function assigns what that returns to, all of it or an item; "" where it does not."""
    code, caller = frame.f_code, frame.f_back
    while caller is not None and is_internal(caller.f_code.co_filename):
        if caller.f_code.co_filename in _CALLERS:
            return ""
        caller = caller.f_back
    if caller is None:
        return ""
    place = place_of(caller.f_code, caller.f_lasti)
    if place.called != code.co_name and (not place.called or hasattr(builtins, place.called)):  # as `max(map(f, x))`
        is_side = caller.f_code.co_name == code.co_name and caller.f_code.co_filename == code.co_filename
        return named_by_callers(caller, item) if is_side else ""  # of a branch in a function that was converted
    if place.returned == _WHOLE:
        return named_by_callers(caller, item)
    if item != _WHOLE:
        return place.targets[item] if item < len(place.targets) else ""
    return place.target or (named_by_callers(caller, place.returned) if place.returned is not None else "")


def definition_line(function: Callable[..., Any]) -> str:
    """The line where a function is defined, as "file.py:3: def f(x):"; empty where there is no source."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return ""
    source = source_of(code.co_filename)
    found = source.definitions(code.co_name, code.co_firstlineno)
    line = found[0].lineno if found else code.co_firstlineno  # decorators come first
    return f"{os.path.basename(code.co_filename)}:{line}: {source.line(line)}"


def line_of_error(error: BaseException) -> str | None:
    """The innermost line of the program that an error came through; of an endless recursion, the one seen most."""
    lines = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    found = [(code, line) for code, line in lines if not is_internal(code.co_filename)]
    if not found:
        return None
    own = [(code, line) for code, line in found if not code.co_filename.startswith(_LIBRARIES)] or found
    code, line = Counter(own).most_common(1)[0][0] if isinstance(error, RecursionError) else own[-1]
    text = linecache.getline(code.co_filename, line).strip()
    return f"{os.path.basename(code.co_filename)}:{line} in {code.co_name}" + (f": {text}" if text else "")


_LIBRARIES = ("<frozen ", *[os.path.join(os.path.dirname(str(module.__file__)), "") for module in (os, torch)])


def is_handled(frame: FrameType) -> bool:
    """Tell whether the running line of a frame is inside a `try` whose handlers may catch what it raises."""
    code = frame.f_code
    line = frame.f_lineno
    return any(
        node.handlers and node.body[0].lineno <= line <= (node.body[-1].end_lineno or line)
        for node in source_behind(code).handlers(code.co_firstlineno, line)
    )


def runs_as_it_is_left(frame: FrameType) -> bool:
    """Tell whether the running line of a frame is inside a `with`, or a `try` with a `finally`."""
    line = frame.f_lineno
    return any(
        node.body[0].lineno <= line <= (node.body[-1].end_lineno or line)
        for node in source_behind(frame.f_code).leavings(frame.f_code.co_firstlineno, line)
    )


def _targets(statement: ast.stmt, position: _Position) -> tuple[str | ast.Tuple, ast.AST | None]:
    """What a statement assigns the expression at this position to, if that is its whole right side, or an item of it.

    A name, or what an unpacking assigns, "" for what is neither; and the expression. At the position of `a, b` itself,
    which is that of taking a value apart, it is this.
    """
    target: ast.expr
    value: ast.AST
    if isinstance(statement, ast.Assign | ast.For):
        for left in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            for part in ast.walk(left) if isinstance(left, ast.Tuple) else ():
                if isinstance(part, ast.Tuple) and _position(part) == position:
                    return part, None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    elif isinstance(statement, ast.AugAssign):
        target, value = statement.target, statement
    else:
        return "", None
    for left, right in _pairs(target, value):
        if _position(right) == position:
            if isinstance(left, ast.Name):
                return left.id, right
            return (left if isinstance(left, ast.Tuple) else ""), right
    return "", None


def _returned(statement: ast.Return, position: _Position) -> tuple[int | None, ast.AST | None]:
    """Which item of what a statement returns the expression at this position is, and the expression itself.

    The item is _WHOLE for all of it, and None for what is a part of an item.
    """
    whole = statement.value
    items = whole.elts if isinstance(whole, ast.Tuple) else []
    for i, value in enumerate([whole, *items] if whole is not None else [], _WHOLE):
        if _position(value) == position:
            return i, value
    return None, None


def _item(statement: ast.Assign, position: _Position) -> tuple[int | str, str] | None:
    """What an assignment to a variable takes of the expression at this position, and the variable."""
    target, value = statement.targets[0], statement.value
    if not (isinstance(target, ast.Name) and isinstance(value, ast.Subscript | ast.Attribute)):
        return None
    if _position(value.value) != position:
        return None
    key = value.attr if isinstance(value, ast.Attribute) else getattr(value.slice, "value", None)
    return (key, target.id) if isinstance(key, int | str) else None


def _called(value: ast.AST | None) -> str:
    """The name by which an expression calls a function or reads a property."""
    function = value.func if isinstance(value, ast.Call) else value if isinstance(value, ast.Attribute) else None
    return getattr(function, "id", getattr(function, "attr", ""))


def _position(part: ast.AST) -> _Position:
    return part.lineno, part.end_lineno, part.col_offset, part.end_col_offset  # type: ignore[attr-defined]


def _names(targets: ast.Tuple) -> tuple[tuple[str, ...], NamesInside]:
    """The variables that a value is unpacked into, and those inside; none where one of them takes the rest."""
    if any(isinstance(item, ast.Starred) for item in targets.elts):
        return (), {}
    names = [item.id if isinstance(item, ast.Name) and item.id != "_" else "" for item in targets.elts]
    return tuple(names), {i: _names(item) for i, item in enumerate(targets.elts) if isinstance(item, ast.Tuple)}


def _pairs(target: ast.expr, value: ast.AST) -> Iterator[tuple[ast.expr, ast.AST]]:
    """What an assignment assigns, as a whole and item by item: `a, b = x + 1, x * 2`."""
    yield target, value
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)):
        return
    for left, right in zip(target.elts, value.elts, strict=True):
        if isinstance(left, ast.Starred) or isinstance(right, ast.Starred):
            return
        yield from _pairs(left, right)
