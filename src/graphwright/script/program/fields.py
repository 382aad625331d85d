"""What the constructor of a class says of the attributes of its objects."""

from __future__ import annotations

import ast
import functools
import types

from graphwright.script.annotations import field_type, type_from_annotation
from graphwright.script.program.frames import Code, code_of
from graphwright.script.types import ANY, Type, resolved


@functools.lru_cache(4096)
def type_of_field(kind: type, name: str) -> Type:
    """The type of an attribute of objects of a class: as the class declares it, or its constructor does.

    The constructor declares it by `self.x: int = ...`, or, where nothing else in the class assigns it, by `self.x = x`
    with a parameter that has an annotation.
    """
    declared = field_type(kind, name)
    constructor = _constructor(kind)
    if resolved(declared) is not ANY or constructor is None:
        return declared
    first = constructor.definition.args.args[0].arg
    annotated, assigned = [], []
    for part in ast.walk(constructor.definition):
        if isinstance(part, ast.AnnAssign) and _is_field(part.target, first, name):
            annotated.append(part.annotation)
        elif isinstance(part, ast.Assign) and any(_is_field(target, first, name) for target in part.targets):
            assigned.append(part.value)
    if len(annotated) == 1:
        return _meant(constructor, annotated[0])
    given = assigned[0].id if len(assigned) == 1 and isinstance(assigned[0], ast.Name) else ""
    annotation = constructor.annotation(given) if given else None
    if annotation is None or _stores(kind, name) != 1 or given in _assigned(constructor.definition):
        return ANY
    return _meant(constructor, annotation)


def _constructor(kind: type) -> Code | None:
    """The source of the constructor of a class that is written in Python; None where there is none."""
    function = kind.__init__  # type: ignore[misc]
    code = code_of(function) if isinstance(function, types.FunctionType) else None
    return code if code is not None and code.definition.args.args else None


def _is_field(target: ast.expr, first: str, name: str) -> bool:
    """Tell whether a target is the attribute of the object that is made."""
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
        return False
    return target.value.id == first and target.attr == name


def _assigned(definition: ast.AST) -> set[str]:
    names = [part for part in ast.walk(definition) if isinstance(part, ast.Name)]
    return {part.id for part in names if not isinstance(part.ctx, ast.Load)}


def _stores(kind: type, name: str) -> int:
    """How often the methods of a class assign an attribute of this name, of whatever object."""
    count = 0
    for value in [value for base in kind.__mro__ for value in vars(base).values()]:
        function = getattr(value, "__func__", value)
        code = code_of(function) if isinstance(function, types.FunctionType) else None
        for part in () if code is None else ast.walk(code.definition):
            is_target = isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load)
            count += is_target and part.attr == name  # type: ignore[attr-defined]
    return count


def _meant(code: Code, annotation: ast.expr) -> Type:
    try:
        return type_from_annotation(code.outside.evaluate(annotation)) or ANY
    except Exception:  # a name that is there for type checkers only
        return ANY
