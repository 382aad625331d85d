"""What a function does with a value that it reads, as far as its source tells: takes an item, hands it to a call, asks.

`x.shape[0]` reads one size, `for s in x.shape` how many there are; `y.to(x.dtype)` hands a dtype on, `x.dtype ==
torch.half` asks one thing of it. A value that is given to a variable of its own is followed to where that is read.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
from collections.abc import Iterator
from types import CodeType

from graphwright.source.code_table import CodeTable, by_instruction
from graphwright.source.positions import position_of
from graphwright.source.roles import expression_at, statement_at
from graphwright.source.source_files import source_of
from graphwright.source.syntax import children

Place = tuple[int, int]  # line and column of an expression


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What is asked of a value: an attribute of it, by `name`, or how it compares with `other`: by the operator's name.

    `place` is that of the whole question.
    """

    name: str
    other: ast.expr | None
    place: Place


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Use:
    """One place where a value is used: the `index` of the item that is taken of it, the argument of a call, a question.

    None of them is there where the value is kept or returned, or all of it is asked for. `may_wait`: it is read of a
    variable, by the function itself, which may as well end without it; `may_recur`: or use it several times. `result`:
    what is asked, at once, of what the call gives. `kept`: a variable, and the attribute of its object that gets it.
    """

    index: int | None = None
    argument: Place | None = None
    call: ast.Call | None = None
    asked: Asked | None = None
    result: Asked | None = None
    kept: tuple[str, str] | None = None
    is_returned: bool = False
    may_wait: bool = False
    may_recur: bool = False


_known: CodeTable[dict[int, tuple[Use, ...]]] = CodeTable()
_ASKED = (Use(),)
_Parents = dict[ast.AST, ast.AST]


@by_instruction(_known)
def uses_of(code: CodeType, instruction: int) -> tuple[Use, ...]:
    """Find what a function does with the value of an instruction. Where the source does not tell, it asks for it."""
    position = position_of(code, instruction)
    statement = statement_at(code, position)
    found = None if statement is None else expression_at(statement, position)
    if statement is None or found is None:
        return _ASKED
    parents = _parents(statement)
    parent = parents[found]
    target = _target(found, parent, parents)
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        return (Use(kept=(target.value.id, target.attr)),)
    if isinstance(target, ast.Name):
        return (*_reads(code, position[0], target),) or _ASKED
    return (_use(found, parents),)


def _target(found: ast.AST, parent: ast.AST, parents: _Parents) -> ast.expr | None:
    """What a statement gives a value to, alone or as one of several."""
    place = -1
    if isinstance(parent, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in parent.elts):
        place, parent = parent.elts.index(found), parents[parent]  # type: ignore[arg-type]
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    if place >= 0:
        is_alike = isinstance(target, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in target.elts)
        target = target.elts[place] if is_alike and place < len(target.elts) else None  # type: ignore[union-attr]
    return target


def parameter_uses(code: CodeType, line: int, name: str) -> tuple[Use, ...]:
    """What a function in which a line is does with the value of a parameter, to which it gives no other."""
    return (*_reads(code, line, ast.Name(name)),) or _ASKED


def is_skipped(code: CodeType, line: int, call: ast.Call, question: Place, answer: bool) -> bool:
    """Tell whether a call in a function is not reached where a question has an answer: `if` that is all it asks."""
    definition = definition_around(code, line)
    for node in () if definition is None else ast.walk(definition):
        if isinstance(node, ast.If | ast.IfExp) and (node.test.lineno, node.test.col_offset) == question:
            other: ast.AST | list[ast.stmt] = node.orelse if answer else node.body
            parts = other if isinstance(other, list) else [other]
            if isinstance(node.test, ast.Compare) and any(call is each for part in parts for each in ast.walk(part)):
                return True
    return False


def call_at(code: CodeType, instruction: int) -> ast.Call | None:
    """The call that an instruction makes."""
    found = expression_of(code, instruction)
    return found if isinstance(found, ast.Call) else None


def expression_of(code: CodeType, instruction: int) -> ast.AST | None:
    """The expression whose value an instruction gives."""
    position = position_of(code, instruction)
    statement = statement_at(code, position)
    return None if statement is None else expression_at(statement, position)


def argument_of(code: CodeType, instruction: int, index: int, keyword: str | None = None) -> ast.expr | None:
    """The expression that is an argument of the call that an instruction makes, where there is one."""
    call = call_at(code, instruction)
    if call is None:
        return None
    if keyword is not None:
        return next((given.value for given in call.keywords if given.arg == keyword), None)
    is_plain = not any(isinstance(given, ast.Starred) for given in call.args)
    return call.args[index] if is_plain and -len(call.args) <= index < len(call.args) else None


def _use(read: ast.AST, parents: _Parents) -> Use:
    parent = parents[read]
    if isinstance(parent, ast.Subscript) and parent.value is read and isinstance(parent.ctx, ast.Load):
        try:
            index = ast.literal_eval(parent.slice)
        except ValueError:
            return Use()
        return Use(index=index) if type(index) is int else Use()
    call = parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if isinstance(call, ast.Call) and call.func is not read and isinstance(read, ast.expr):
        result = _question(call, parents[call]) if call in parents else None
        return Use(argument=(read.lineno, read.col_offset), call=call, result=result)
    is_first = isinstance(parent, ast.GeneratorExp) and parent.elt is read and _is_of_next(parent, parents)
    return Use(is_returned=is_first or isinstance(parent, ast.Return), asked=_question(read, parent))


def _is_of_next(values: ast.GeneratorExp, parents: _Parents) -> bool:
    """Tell whether `next` takes the first of some values: it goes to who asks for that, like what is returned."""
    call = parents.get(values)
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "next"


def _question(read: ast.AST, parent: ast.AST) -> Asked | None:
    """The question that a part of the source asks of a value: of the one that it compares, or has an attribute read."""
    if isinstance(parent, ast.Attribute) and isinstance(parent.ctx, ast.Load):
        return Asked(parent.attr, None, (parent.lineno, parent.col_offset))
    if not isinstance(parent, ast.Compare) or len(parent.ops) != 1:
        return None
    name, left, right = type(parent.ops[0]).__name__, parent.left, parent.comparators[0]
    is_left = left is read
    if name not in (_COMPARES if is_left else _COMPARES_BOTH):
        return None
    return Asked(name, right if is_left else left, (parent.lineno, parent.col_offset))


_COMPARES_BOTH = frozenset({"Eq", "NotEq", "Is", "IsNot"})
_COMPARES = _COMPARES_BOTH | {"In", "NotIn"}


def _reads(code: CodeType, line: int, variable: ast.Name) -> Iterator[Use]:
    """The uses of a variable of a function that is assigned once; nothing where that is not all there is to it."""
    definition = definition_around(code, line)
    if definition is None or stores_of(definition, variable.id) != 1:
        return
    parents = _parents(definition)
    for node in parents:
        if isinstance(node, ast.Name) and node.id == variable.id and isinstance(node.ctx, ast.Load):
            may_wait, is_alone = _is_own(node, definition, parents)
            yield dataclasses.replace(_use(node, parents), may_wait=may_wait, may_recur=not is_alone)


def _names_given(node: ast.AST) -> tuple[str, ...]:
    """The variables that a part of a function, without its own parts, gives a value to."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return (node.id,)
    if isinstance(node, ast.alias):
        return ((node.asname or node.name).partition(".")[0],)
    kept = getattr(node, "arg", None) if isinstance(node, ast.arg) else getattr(node, "name", None)
    return (kept,) if type(kept) is str else ()  # of functions, classes, handlers and patterns


def stores_of(definition: ast.FunctionDef, name: str) -> int:
    """How often a function gives a value to a variable of its own, as a parameter, too; more than once in a loop.

    -1 where the variable is one of all functions, or of one around it.
    """
    counts: dict[str, int] | None = definition.__dict__.get(_STORES)
    if counts is None:
        counts = definition.__dict__[_STORES] = collections.Counter()
        elsewhere: list[str] = []
        pending: list[tuple[ast.AST, int]] = [(child, 1) for child in children(definition)]
        for node, weight in pending:
            if isinstance(node, ast.Global | ast.Nonlocal):
                elsewhere += node.names
            for given in _names_given(node):
                counts[given] += weight
            inner = 2 if isinstance(node, ast.For | ast.While) else weight
            pending += [(child, inner) for child in children(node)]
        counts.update(dict.fromkeys(elsewhere, -1_000_000))
    return max(counts.get(name, 0), -1)


_STORES = "_stores"  # kept with the definition, which is read once for each file


def _is_own(node: ast.AST, definition: ast.FunctionDef, parents: _Parents) -> tuple[bool, bool]:
    """Tell whether a part of a function is in no function inside, and whether it is in no loop either."""
    is_own = is_alone = True
    while node is not definition:
        node = parents[node]
        if isinstance(node, ast.FunctionDef | ast.Lambda) and node is not definition:
            is_own = False
        is_alone &= is_own and not isinstance(node, _REPEAT)
    return is_own, is_alone


_REPEAT = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def definition_around(code: CodeType, line: int) -> ast.FunctionDef | None:
    """The definition of the function that code is of, or a part of, which a line is in."""
    definitions = [found for known in source_of(code.co_filename).part(line).definitions.values() for found in known]
    around = [
        found
        for found in definitions
        if isinstance(found, ast.FunctionDef)
        and found.name == code.co_name
        and found.lineno <= line <= (found.end_lineno or 0)
    ]
    return max(around, key=lambda found: found.lineno, default=None)


def _parents(tree: ast.AST) -> _Parents:
    """The parent of each part of a tree."""
    return {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
