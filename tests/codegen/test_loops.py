"""Loops in generated code: they read as a person would write them, and do what the graph says."""

from __future__ import annotations

import linecache
import operator
import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.codegen.random_loops import random_function

import graphwright
from graphwright import Graph, GraphModule, Interpreter
from graphwright.ops import cond, for_loop, unpack, while_loop

X = torch.tensor([[1.0, 2.0], [3.0, -4.0], [5.0, 6.0]])


def body(names: str, write: Callable[..., Any]) -> Graph:
    graph = Graph()
    graph.output(write(graph, *[graph.placeholder(name) for name in names.split()]))
    return graph


def module(names: str, write: Callable[..., Any]) -> GraphModule:
    return GraphModule(torch.nn.Module(), body(names, write))


def items(graph: Graph, node: Any, names: str) -> list[Any]:
    return [
        graph.call_function(operator.getitem, (node, i), name=name)
        for i, name in enumerate(names.split())
        if name != "-"
    ]


def code_of(gm: GraphModule) -> str:
    """The statements of a module, without comments and what frees values."""
    lines = [line for line in gm.code.splitlines()[1:] if line.strip() and not line.strip().startswith(("#", "def "))]
    kept = [line.partition(";  del ")[0] for line in lines if not line.strip().startswith("del ")]
    return textwrap.dedent("\n".join(kept))


def agrees(gm: GraphModule, reference: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    gm.graph.lint()
    for args in calls:
        for result in (gm(*args), Interpreter(gm).run(*args)):
            torch.testing.assert_close(result, reference(*args), rtol=0, atol=0)


# ---- shapes, made by hand


def stops(test: Any = operator.gt) -> Callable[..., Any]:
    """A body that ends with a branch whose condition says whether the loop stops."""

    def write(graph: Graph, row: Any, count: Any, total: Any, limit: Any) -> Any:
        call = graph.call_function
        above = call(test, (call(torch.sum, (row,), name="height"), limit), name="above")
        rest = body(
            "count total row",
            lambda g, count, total, row: (
                g.call_function(operator.add, (count, 1)),
                g.call_function(operator.add, (total, row)),
            ),
        )
        same = body("count total row", lambda g, count, total, row: (count, total))
        found = call(cond, (above, same, rest, (count, total, row)))
        count, total = items(graph, found, "count_1 total_1")
        return above, count, total

    return write


def test_a_condition_that_stops_is_a_break() -> None:
    def write(graph: Graph, x: Any, limit: Any) -> Any:
        total = graph.call_function(torch.zeros, (2,), name="total")
        loop = graph.call_function(for_loop, (x, body("row count total limit", stops()), (0, total), (limit,), True))
        return tuple(items(graph, loop, "count total_1"))

    def reference(x: torch.Tensor, limit: float) -> Any:
        total, count = torch.zeros(2), 0
        for row in x:
            if row.sum() > limit:
                break
            count, total = count + 1, total + row
        return count, total

    gm = module("x limit", write)
    assert code_of(gm) == textwrap.dedent("""\
        total = torch.zeros(2)
        count = 0
        for row in x:
            height = torch.sum(row)
            above = height > limit
            if above:
                break
            count = count + 1
            total = total + row
        return (count, total)""")
    agrees(gm, reference, (X, 100), (X, 0), (X, 5))


def test_a_value_read_after_the_loop_keeps_its_variable() -> None:
    def write(graph: Graph, x: Any) -> Any:
        step = body("row x", lambda g, row, x: (g.call_function(operator.add, (x, row)),))
        loop = graph.call_function(for_loop, (x, step, (x,), ()))
        return x, *items(graph, loop, "x_1")

    gm = module("x", write)
    assert code_of(gm) == "x_1 = x\nfor row in x:\n    x_1 = x_1 + row\nreturn (x, x_1)"
    agrees(gm, lambda x: (x, x + x[0] + x[1]), (torch.ones(2, 2),))


def test_a_variable_keeps_its_value_while_it_is_read() -> None:
    step = body("a b", lambda g, a, b: (b, g.call_function(operator.add, (a, b))))
    test = body("a b", lambda g, a, b: g.call_function(operator.lt, (b, 50)))
    gm = module("n", lambda g, n: tuple(items(g, g.call_function(while_loop, (test, step, (0, n), ())), "a b")))
    assert code_of(gm) == "a, b = 0, n\nwhile b < 50:\n    a, b = b, a + b\nreturn (a, b)"
    agrees(gm, lambda n: (34, 55), (1,))


def test_items_are_unpacked_in_the_header() -> None:
    def step(graph: Graph, item: Any, total: Any) -> Any:
        outer = graph.call_function(unpack, (item, 2))
        i, pair = items(graph, outer, "i pair")
        a, b = items(graph, pair, "a b")
        product = graph.call_function(operator.mul, (a, b), name="product")
        scaled = graph.call_function(operator.mul, (product, i), name="scaled")
        return (graph.call_function(operator.add, (total, scaled)),)

    def write(graph: Graph, x: Any, y: Any) -> Any:
        pairs = graph.call_function(enumerate, (graph.call_function(zip, (x, y)),))
        (total,) = items(graph, graph.call_function(for_loop, (pairs, body("item total", step), (0,), ())), "total")
        return total

    gm = module("x y", write)
    assert code_of(gm) == textwrap.dedent("""\
        total = 0
        for i, (a, b) in enumerate(zip(x, y)):
            product = a * b
            scaled = product * i
            total = total + scaled
        return total""")
    agrees(gm, lambda x, y: sum(a * b * i for i, (a, b) in enumerate(zip(x, y, strict=True))), (X, X + 1))


def test_a_loop_whose_values_are_used_as_a_whole() -> None:
    step = body("i total", lambda g, i, total: (g.call_function(operator.add, (total, i)),))
    gm = module(
        "n", lambda g, n: g.call_function(for_loop, (g.call_function(range, (n,)), step, (0,), ()), name="sums")
    )
    assert code_of(gm) == "total = 0\nfor i in range(n):\n    total = total + i\nsums = (total,)\nreturn sums"
    agrees(gm, lambda n: (sum(range(n)),), (4,), (0,))


def test_an_item_by_an_unknown_number_stays_in_the_body() -> None:
    step = body("row total", lambda g, row, total: (g.call_function(operator.add, (total, *items(g, row, "first"))),))
    gm = module("x", lambda g, x: items(g, g.call_function(for_loop, (x, step, (0,), ())), "total")[0])
    assert "for row in x:\n    first = row[0]\n    total = total + first" in code_of(gm)
    agrees(gm, lambda x: x[:, 0].sum(), (X,))


# ---- programs


PROGRAMS = {
    "early return": """
        for row in x:
            if row.sum() > 4:
                return row * 2
        return x.sum(0)
    """,
    "else of a loop": """
        best = x.sum(0)
        for row in x:
            if row.sum() > 4:
                best = row
                break
        else:
            best = best - 1
        return best * 2
    """,
    "continue before more": """
        total = x.sum(0)
        for i, row in enumerate(x):
            if row.sum() < 0:
                continue
            total = total + row * i
            total = total * 2
        return total
    """,
    "until": """
        y = x
        while True:
            y = y / 2
            if y.abs().max() < 1:
                break
        return y
    """,
    "return from two loops": """
        for row in x:
            for value in row:
                if value > 4:
                    return value * 2
            x = x + 1
        return x.sum()
    """,
    "a search": """
        for row in x:
            for value in row:
                if value > 4:
                    break
            else:
                x = x + 1
        return x.sum()
    """,
    "values returned from a loop": """
        while x.abs().sum() < 100:
            if x.max() > 40:
                return x - 1, x.mean()
            x = x * 2
        return x, x.sum()
    """,
    "return inside of with": """
        if x.sum() > 9:
            with torch.no_grad():
                return x * 2
        with torch.no_grad():
            if x.sum() > 0:
                return x * 3
            return x + 3
    """,
    "return of two values inside of with": """
        with torch.no_grad():
            for row in x:
                if row.sum() > 4:
                    return row * 2, x
            if x.sum() > 0:
                return x[0], x * 3
            return x[0], x
    """,
    "a search that must find": """
        for row in x:
            if row.abs().sum() > 1:
                break
        else:
            raise ValueError("none")
        return x + 1
    """,
    "until, or at most": """
        n = 0
        while x.abs().sum() < 100:
            x = x * 2
            n += 1
            if x.max() > 50:
                break
        else:
            x = x - 1
        return x, n
    """,
}
DOORS = {"script": graphwright.script, "trace": lambda function: graphwright.trace(function, (X,))}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_written_as_its_source(name: str, door: str) -> None:
    source = f"def program(x):\n{textwrap.indent(textwrap.dedent(PROGRAMS[name]).strip(), '    ')}\n"
    file = f"{name}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(source, file, "exec"), namespace)
    gm = DOORS[door](namespace["program"])
    agrees(gm, namespace["program"], (X,), (-X,), (X[:1],), (X / 9,))
    words = ("for ", "while ", "if ", "else:", "break", "continue", "return ", "with ")
    shape = [line.strip() for line in source.splitlines() if line.strip().startswith(words)]
    written = [line.strip() for line in code_of(gm).splitlines() if line.strip().startswith(words)]
    assert [line.split()[0] for line in written] == [line.split()[0] for line in shape], code_of(gm)
    assert [line for line in written if "return" in line] == [
        re.sub(r"return (.*, .*)", r"return (\1)", line) for line in shape if "return" in line
    ]


def test_the_item_of_the_last_round_is_that_of_the_loop() -> None:
    def found(x: torch.Tensor) -> torch.Tensor:
        for i, row in enumerate(x):  # noqa: B007
            if row.sum() > 2:
                break
        return row * i

    gm = graphwright.trace(found, (X,))
    agrees(gm, found, (X,), (-X,), (X[:1],))
    header = "for i, row in enumerate(x):"
    assert code_of(gm).partition(header)[2].startswith("\n    if row.sum() > 2:\n        break\n"), gm.code


def agree_at_random(seed: int) -> None:
    function = random_function(seed)
    gm = graphwright.script(function)
    for x, n in ((X.repeat(1, 2)[:, :3], 3), (torch.ones(1, 3), 0), (-torch.arange(9.0).reshape(3, 3), 5)):
        try:
            wanted = Interpreter(gm).run(x, n)  # the code is measured against the graph
        except TypeError:
            continue
        torch.testing.assert_close(gm(x, n), wanted, rtol=0, atol=0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("start", range(0, 40, 10))
def test_random_loops_do_what_the_interpreter_does(start: int) -> None:
    for seed in range(start, start + 10):
        agree_at_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 2000, 100))
def test_more_random_loops_do_what_the_interpreter_does(start: int) -> None:
    for seed in range(start, start + 100):
        agree_at_random(seed)


def test_a_condition_of_two_parts_is_one_expression() -> None:
    def test(graph: Graph, x: Any, i: Any) -> Any:
        small = call(graph, operator.lt, graph.call_method("sum", (x,)), 100)
        first = body("p i", lambda g, p, i: call(g, operator.lt, i, 5))
        return call(graph, cond, small, first, body("p i", lambda g, p, i: p), (small, i))

    def step(graph: Graph, x: Any, i: Any) -> Any:
        return call(graph, operator.mul, x, 2), call(graph, operator.add, i, 1)

    def write(graph: Graph, x: Any) -> Any:
        loop = graph.call_function(while_loop, (body("x i", test), body("x i", step), (x, 0), ()))
        return tuple(items(graph, loop, "x_1 i"))

    gm = module("x", write)
    assert "while x.sum() < 100 and i < 5:" in code_of(gm)
    for x, wanted in ((torch.ones(2), (32.0, 5)), (torch.full((2,), 99.0), (99.0, 0))):
        value, count = gm(x)
        assert (value[0], count) == wanted


def call(graph: Graph, function: Any, *args: Any) -> Any:
    return graph.call_function(function, args)


def test_two_nots_are_none() -> None:
    program = "def program(x):\n    if not (not x.sum() > 0):\n        x = x + 1\n        x = x * 2\n    return x\n"
    linecache.cache["nots.py"] = (len(program), None, program.splitlines(keepends=True), "nots.py")
    namespace: dict[str, Any] = {}
    exec(compile(program, "nots.py", "exec"), namespace)
    gm = graphwright.trace(namespace["program"], (X,))
    assert "not not" not in gm.code
    agrees(gm, namespace["program"], (X,), (-X,))


def test_a_variable_that_a_side_does_not_change_is_not_used_for_what_it_computes() -> None:
    def program(x, n: int):  # type: ignore[no-untyped-def]
        a, b, y = 0, n, x.sum(0)
        for row in x:
            y = y + row
            a, b = b, a + 1
            if y.sum() > 3:
                a = a + b
                a, b = b, a + 1
            else:
                a, b = b, a + 1
                y = y + 1
        return y, a, b

    gm = graphwright.script(program)
    agrees(gm, program, (X, 1), (-X, 4), (X[:1], 0))


def test_what_a_branch_makes_of_a_variable_is_read_before_the_variable_is_written_again() -> None:
    def program(a: int, b: int, n: int) -> Any:
        for _ in range(n):
            i = 0
            while i < 2:
                i = i + 1
                b = b * 2
            if a < b:
                b = a
            a, b = b, a + 1
        return a, b

    gm = graphwright.script(program)
    for values in ((0, 1, 2), (5, 2, 3), (3, 3, 4)):
        assert gm(*values) == program(*values), gm.code


def test_what_a_loop_gives_that_ends_a_function_is_used_within_an_index() -> None:
    def first_of(x: torch.Tensor) -> int:
        for i in range(3):
            if x[i].sum() > 5:
                return i
        return 1

    def program(x: torch.Tensor) -> torch.Tensor:
        return x[first_of(x) :].sum()

    gm = graphwright.trace(program, X)
    agrees(gm, program, (X,), (-X,))
