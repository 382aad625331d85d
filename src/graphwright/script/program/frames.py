"""The functions that are being compiled: their source, their names, and the call of each that is under way."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import os
import typing
from collections.abc import Mapping
from types import CellType, FunctionType
from typing import Any

import torch

from graphwright.ir import Origin
from graphwright.script.program.type_comments import type_comments
from graphwright.script.program.values import Runtime, Value
from graphwright.script.types import Type
from graphwright.source import Liveness, Source, assigned, closure_of, definition_of, held_by, source_of

MISSING: Any = object()


class Code:
    """The source of a function: its definition, and what its names mean outside of it."""

    def __init__(self, definition: ast.FunctionDef | ast.Lambda, file: str, qualname: str, outside: Outside) -> None:
        self.definition = definition
        self.file = file
        self.qualname = qualname
        self.outside = outside
        self.source: Source = source_of(file)
        if isinstance(definition, ast.Lambda):
            body = definition.body
            self.body: list[ast.stmt] = [ast.copy_location(ast.Return(body), body)]
        else:
            self.body = definition.body
        self.liveness = Liveness(self.body)
        arguments = definition.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self.comments = type_comments(definition, self.source.lines)
        self.locals = {arg.arg for arg in (*every, arguments.vararg, arguments.kwarg) if arg is not None}
        self.locals.update(assigned(self.body))

    def annotation(self, name: str) -> ast.expr | None:
        """What a parameter, or "return", is annotated with: in the definition, or in a comment."""
        definition = self.definition
        if name == "return":
            written = getattr(definition, "returns", None)
        else:
            args = definition.args
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            written = next((arg.annotation for arg in every if arg is not None and arg.arg == name), None)
        return self.comments.of_names.get(name) if written is None else written

    def line(self, number: int) -> str:
        """A line of the source as it stands there."""
        lines = self.source.lines
        return lines[number - 1].rstrip("\n") if 0 < number <= len(lines) else ""


@dataclasses.dataclass(frozen=True)
class Outside:
    """What a function finds under the names that are not its own."""

    closure: dict[str, Any]
    globals: dict[str, Any]
    cells: dict[str, CellType]

    def get(self, name: str) -> Any:
        """What a name means, MISSING where it means nothing."""
        for table in (self.closure, self.globals, vars(builtins)):
            if name in table:
                return table[name]
        return MISSING

    def evaluate(self, annotation: str | ast.expr) -> Any:
        """What an annotation means; raises whatever evaluating it does."""
        source = annotation if isinstance(annotation, str) else ast.unparse(annotation)
        names = {name: getattr(typing, name) for name in ("Optional", "List", "Dict", "Tuple", "Any", "Union")}
        value = eval(source, {**names, "Tensor": torch.Tensor, "torch": torch, **self.globals, **self.closure})
        return self.evaluate(value) if isinstance(value, str) else value


def code_of(function: FunctionType) -> Code | None:
    """The source of a function; None where none compiles to the code that it runs."""
    code = function.__code__
    definition = definition_of(code)
    if definition is None:
        return None
    qualname = getattr(code, "co_qualname", function.__qualname__)
    outside = Outside(held_by(function), function.__globals__, closure_of(function))
    return Code(definition, code.co_filename, qualname, outside)


@dataclasses.dataclass(frozen=True)
class Scope:
    """The call of a module that a function runs in: for the origins of nodes."""

    path: str = ""
    kind: type | None = None
    call: int = 0
    stack: tuple[tuple[str, type], ...] = ()


@dataclasses.dataclass(frozen=True)
class LoopEnds:
    """What is read once a loop is left, and where its next iteration starts."""

    after: frozenset[str]
    head: frozenset[str]
    is_written_out: bool = False  # its iterations stand one after the other


@dataclasses.dataclass
class Kept:
    """What the variables that a `try` assigns hold at any moment: a list of the run, and the types of its items."""

    values: Runtime
    types: dict[str, list[Type]]


class Frame:
    """One call of a function: its variables, and where in its source the compiler is."""

    def __init__(self, code: Code, scope: Scope, caller: Frame | None = None, defined_in: Frame | None = None) -> None:
        self.code = code
        self.scope = scope
        self.caller = caller
        self.defined_in = defined_in  # of a function inside a function
        self.names: dict[str, Value] = {}
        self.declared: dict[str, Type] = {}  # of variables that are annotated
        self.loops: list[LoopEnds] = []
        self.kept: list[Kept] = []  # one for each `try` around
        self.statement: ast.stmt = code.body[0]
        self.returns: Any = None  # the declared type of what it returns
        self.is_entry = caller is None

    def origin(self, node: ast.AST, target: str = "") -> Origin:
        """Where an expression stands."""
        statement, code, scope = self.statement, self.code, self.scope
        return Origin(
            file=code.file,
            line=getattr(node, "lineno", statement.lineno),
            function=code.qualname,
            source=code.line(statement.lineno).strip(),
            statement=statement.lineno,
            target=target,
            module=scope.path,
            module_type=scope.kind,
            call=scope.call,
            column=getattr(node, "col_offset", None),
            end_column=getattr(node, "end_col_offset", None),
            stack=scope.stack,
        )

    def calls(self) -> list[Frame]:
        """This call and those around it, innermost first."""
        frame: Frame | None = self
        found: list[Frame] = []
        while frame is not None:
            found.append(frame)
            frame = frame.caller
        return found

    def place(self) -> str:
        """Where in its source the call is: "file.py:3: f(x)"."""
        line = self.statement.lineno
        return f"{os.path.basename(self.code.file)}:{line}: {self.code.line(line).strip()}"


@dataclasses.dataclass(frozen=True, eq=False)
class Closure(Value):
    """A function or lambda inside a function, and the variables around it."""

    definition: ast.FunctionDef | ast.Lambda
    frame: Frame
    defaults: Mapping[str, Value]  # evaluated where the function is defined, once
