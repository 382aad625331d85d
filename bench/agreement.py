"""Check that two implementations compute the same thing before their times are compared."""

from __future__ import annotations

import ast
from itertools import zip_longest
from typing import Any

import torch


class DisagreementError(Exception):
    """Two implementations made different graphs or code of one program."""


def check_same_nodes(first: Any, second: Any) -> None:
    """Compare two graphs node by node: opcode, name and arguments. Raises DisagreementError."""
    for left, right in zip_longest(map(_describe, first.nodes), map(_describe, second.nodes)):
        if left != right:
            raise DisagreementError(f"nodes differ: {left} and {right}")


def check_same_source(first: str, second: str) -> None:
    """Compare two generated functions, annotations and layout aside. Raises DisagreementError.

    `x += y` counts as `x + y`: torch.fx captures the one as the other, and an implementation may keep the write.
    """
    for left, right in zip_longest(_bare(first).splitlines(), _bare(second).splitlines()):
        if left != right:
            raise DisagreementError(f"generated code differs: {left!r} and {right!r}")


def check_same_results(first: Any, second: Any, arguments: tuple[Any, ...]) -> None:
    """Run two modules that return a tensor on the same arguments. Raises DisagreementError."""
    with torch.no_grad():
        if not torch.equal(first(*arguments), second(*arguments)):
            raise DisagreementError(f"results differ: {type(first)} and {type(second)}")


def check_compiled(module: Any) -> None:
    """Tell a `forward` from a stub that would compile it later: a node takes several bytes of bytecode, a stub none.

    Raises DisagreementError.
    """
    if len(module.forward.__code__.co_code) < 4 * len(module.graph.nodes):
        raise DisagreementError(f"{type(module)} has not been compiled yet")


def _describe(node: Any) -> str:
    return f"{node.op} {node.name} {node.args} {node.kwargs}"


def _bare(source: str) -> str:
    """Return the source as Python itself would write it, without annotations and augmented assignments."""
    return ast.unparse(_Bare().visit(ast.parse(source)))


class _Bare(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        self.generic_visit(node)
        body: list[ast.stmt] = []
        for statement in node.body:
            if isinstance(statement, ast.AugAssign) and body and isinstance(body[-1], ast.Assign):
                statement = _joined(body.pop(), statement)
            body.append(statement)
        node.body = body
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def _joined(assignment: ast.Assign, augmented: ast.AugAssign) -> ast.stmt:
    """Make `a = b; a += c` into `a = b + c`."""
    value = ast.BinOp(assignment.value, augmented.op, augmented.value)
    return ast.copy_location(ast.Assign([augmented.target], value), augmented)
