"""`locals()` in a converted function: the variables are spelled out, since some are those of functions around it."""

from __future__ import annotations

import ast
from types import CodeType
from typing import Any

from graphwright.source import RUNTIME_MARK, Definition, all_placed, assigned, call_of_locals, lambda_of, placed, walk


def with_variables(definition: Definition, code: CodeType, owner: str) -> Any:
    """Write `locals()` of a function as a call with the name of each variable and a function that reads it."""
    found = call_of_locals(definition) if "locals" in code.co_names else None
    if found is None:
        return definition
    body = definition.body if isinstance(definition.body, list) else [definition.body]
    parameters = {arg.arg for arg in walk(definition.args) if isinstance(arg, ast.arg)}
    bound = {*parameters, *assigned(body), *code.co_freevars}  # not those of a comprehension, which may be in the code
    private = {f"_{owner.lstrip('_')}{name}" for name in bound if name.startswith("__") and not name.endswith("__")}
    pairs: list[ast.expr] = [
        ast.Tuple([ast.Constant(name), lambda_of(placed(ast.Name(name, ast.Load()), found))], ast.Load())
        for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
        if name in bound | private
    ]
    found.args = [found.func, *pairs]
    found.func = ast.Attribute(ast.Constant(RUNTIME_MARK), "variables", ast.Load())
    return all_placed(definition)
