"""Types that comments declare: `# type: (Tensor, int) -> Tensor` of a function, `# type: List[int]` of a variable."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class TypeComments:
    """The types of parameters and of "return", and those of assignments by their line."""

    of_names: dict[str, ast.expr]
    of_lines: dict[int, ast.expr]


_NONE = TypeComments({}, {})


def type_comments(definition: ast.FunctionDef | ast.Lambda, lines: Sequence[str]) -> TypeComments:
    """Read the comments in the source of a function, whose file has these lines.

    >>> source = "def f(x, n):\\n    # type: (Tensor, int) -> Tensor\\n    return x * n"
    >>> found = type_comments(ast.parse(source).body[0], source.splitlines())
    >>> sorted((name, ast.unparse(kind)) for name, kind in found.of_names.items())
    [('n', 'int'), ('return', 'Tensor'), ('x', 'Tensor')]
    """
    if isinstance(definition, ast.Lambda):
        return _NONE
    first = definition.lineno
    own = [line.rstrip("\n") for line in lines[first - 1 : definition.end_lineno]]
    if not any("# type:" in line for line in own):
        return _NONE
    is_indented = own[0][:1].isspace()
    try:
        tree = ast.parse("\n".join((["if True:"] if is_indented else []) + own), type_comments=True)
    except SyntaxError:  # one of them stands where none belongs
        return _NONE
    shift = first - 1 - is_indented
    nodes = list(ast.walk(tree))
    function = next(node for node in nodes if isinstance(node, ast.FunctionDef))
    of_lines: dict[int, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and node.type_comment:
            kind = _parsed(node.type_comment)
            of_lines |= {} if kind is None else {node.lineno + shift: kind}
    return TypeComments(_of_signature(function), of_lines)


def _of_signature(function: ast.FunctionDef) -> dict[str, ast.expr]:
    args = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    found = {arg.arg: _parsed(arg.type_comment) for arg in args if arg.type_comment}
    if function.type_comment:
        try:
            whole = ast.parse(function.type_comment, mode="func_type")
        except SyntaxError:
            return {}
        found["return"] = whole.returns
        if not (len(whole.argtypes) == 1 and ast.unparse(whole.argtypes[0]) == "..."):
            named = args[len(args) - len(whole.argtypes) :]  # all, or all but `self`
            found |= {arg.arg: kind for arg, kind in zip(named, whole.argtypes, strict=False)}
    return {name: kind for name, kind in found.items() if kind is not None}


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return None
