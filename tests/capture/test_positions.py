"""Instructions stand where the source says, and functions are called as Python calls them, in every Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright.source.positions import position_of, positions_of, qualname_of


class Program(nn.Module):
    def forward(self, x):
        hidden = x.add(1) * 2
        first, second = x.unbind(0)
        hidden += first
        if hidden.sum() > 0 and first.sum() > 0:
            low = (hidden
                   .relu()
                   .exp())  # fmt: skip
            middle = torch.relu(
                hidden,
            )
        else:
            low = middle = x
        steps = [lambda v: v + 1, lambda v: v + 2 if v.sum() > 0 else v]
        return low + middle + steps[1](second)


START = Program.forward.__code__.co_firstlineno

# Name of the node, line counted from that of the function, what stands there, function.
WANTED = [
    ("add", 1, "x.add(1)", "Program.forward"),
    ("hidden", 1, "x.add(1) * 2", "Program.forward"),
    ("first", 2, "x.unbind(0)", "Program.forward"),
    ("second", 2, "x.unbind(0)", "Program.forward"),
    ("hidden_1", 3, "hidden += first", "Program.forward"),
    ("sum_1", 4, "hidden.sum()", "Program.forward"),
    ("gt", 4, "hidden.sum() > 0", "Program.forward"),
    ("sum_1", 4, "first.sum()", "Program.forward"),
    ("low", 4, "hidden.sum() > 0 and first.sum() > 0", "Program.forward"),
    ("sum_2", 13, "v.sum()", "Program.forward.<locals>.<lambda>"),
    ("cond_2", 13, "v + 2 if v.sum() > 0 else v", "Program.forward.<locals>.<lambda>"),
    ("add_2", 14, "low + middle + steps[1](second)", "Program.forward"),
]


def test_values_have_the_names_and_places_of_the_source() -> None:
    gm = graphwright.trace(Program(), (torch.ones(2, 3),))
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    found = []
    for node in gm.graph.all_nodes():
        origin = node.origin
        if origin is not None:
            text = lines[origin.line - 1][origin.column : origin.end_column]
            found.append((node.name, origin.line - START, text, origin.function))
    for wanted in WANTED:
        assert wanted in found


def decorated(*_: Any) -> Callable[[Any], Any]:
    return lambda function: function


@decorated(
    1,
)
def outer(x):
    """A function with others inside."""

    class Inner:
        def method(self, *args, scale=2):
            return [[row * scale for row in x if row] for _ in args]

    while True:
        try:
            with open(x) as file:
                a, *b = file.read(), x.y[1:2], -x
        except (ValueError, KeyError) as error:
            raise RuntimeError(f"{error!r:>10} {x}") from error
        finally:
            x = x if (x.a and not x.b) or x.c else lambda y: (yield y)
        if a < b < x:
            break
        elif x:
            continue
    for _ in x:
        del a
    else:
        a = {**x, "b": 1}
    return Inner, a


def every_code(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from every_code(const)


@pytest.mark.parametrize("function", [outer, Program.forward, every_code])
def test_places_are_known_for_all_code(function: Callable[..., Any]) -> None:
    for code in every_code(function.__code__):
        assert len([*positions_of(code)]) > 1
        for line, _, column, _ in positions_of(code):
            assert line is None or column is None or line >= code.co_firstlineno


def test_qualified_names() -> None:
    names = [qualname_of(code) for code in every_code(outer.__code__)]
    assert names[0] == "outer"
    assert "outer.<locals>.Inner.method" in names
    assert "outer.<locals>.<lambda>" in names


def test_code_without_source_has_lines() -> None:
    space: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x + 1\n", "<nowhere>", "exec"), space)
    code = space["f"].__code__
    assert position_of(code, len(code.co_code) - 2)[0] == 2
    assert qualname_of(code) == "f"
