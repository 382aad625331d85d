"""Parts of source files: functions and methods are parsed alone, and are what the whole file has."""

from __future__ import annotations

import ast
import inspect
import logging
import textwrap
import typing
from typing import Any

import pytest
import torch

from graphwright.source import source_of
from graphwright.source.source_files import Source

FILES = [ast, inspect, logging, textwrap, typing, torch.nn.modules.module, torch.nn.modules.conv, torch.nn.functional]


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _first(function: ast.FunctionDef) -> int:
    return min([function.lineno, *[decorator.lineno for decorator in function.decorator_list]])


@pytest.mark.parametrize("module", FILES, ids=lambda module: module.__name__)
def test_functions_are_those_of_the_whole_file(module: Any) -> None:
    source = source_of(module.__file__)
    functions = _functions(ast.parse("".join(source.lines)))
    assert len(functions) > 5
    for function in functions:
        found = source.definitions(function.name, _first(function))
        assert [ast.dump(each, include_attributes=True) for each in found] == [
            ast.dump(function, include_attributes=True)
        ]


ODD = [
    'class A:\n    """Docs:\n\n    def f(self):\n        pass\n    """\n    def g(self):\n        return 1\n',
    'class A:\n    def f(self):\n        x = """\n    def g():\n        pass\n    """\n        return x\n',
    "class A:\n    x = 1\n    @property\n    def f(\n        self,\n    ):\n        def g(): pass\n    y = 2\n",
    "class A(\n    B,\n):\n\tdef f(self):\n\t\treturn 1\n\tdef g(self):\n\t\treturn 2\n",
    "class A:\n    if True:\n        def f(self): pass\n    class B:\n        def g(self): pass\nx = 1\n",
    "class A: x = 1\nclass B:\n  def f(self): return lambda: 0\n",
]


@pytest.mark.parametrize("text", ODD)
def test_what_only_looks_like_a_method_does_no_harm(text: str) -> None:
    source, tree = Source(text.splitlines(keepends=True)), ast.parse(text)
    for function in _functions(tree):
        found = source.definitions(function.name, _first(function))
        assert [ast.dump(each, include_attributes=True) for each in found] == [
            ast.dump(function, include_attributes=True)
        ]
        kinds = [type(each) for each in source.statements(function.body[0].lineno)]
        assert type(function.body[0]) in kinds


def test_imports_of_a_file_are_those_outside_of_functions() -> None:
    text = (
        "import a, b.c\nfrom d import (e as f,\n    g)\ntry:\n    import h\nexcept ImportError:\n    h = None\n"
        "class A:\n    from i import j\n    def k(self):\n        import l\ndef m():\n    import n\n"
    )
    assert Source(text.splitlines(keepends=True)).imports == {"a", "b", "f", "g", "h", "j"}
