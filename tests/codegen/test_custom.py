"""Code generation that users change, compared with torch.fx on the same subclass."""

from __future__ import annotations

import copy
import operator
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx

import graphwright
from graphwright import Graph
from graphwright.codegen import CodeGen, PythonCode

PACKAGES = [pytest.param(graphwright, id="graphwright"), pytest.param(torch.fx, id="torch.fx")]


def a_graph(package: Any) -> Any:
    graph = package.Graph()
    x, y = graph.placeholder("x", torch.Tensor), graph.placeholder("y", default_value=2.5)
    relu = graph.call_function(torch.relu, (x,))
    add = graph.call_function(operator.add, (relu, y))
    graph.output((add, [relu]), type_expr=typing.Tuple[torch.Tensor, list])  # noqa: UP006
    return graph


def one_list(package: Any) -> Any:
    """A codegen whose function takes all inputs in one list, and returns a dict."""

    class OneList(package.graph.CodeGen):  # type: ignore[misc]
        def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
            names = [text.partition(" ")[0] for text in free_vars]
            return f"def forward(self, items: List[Any]):\n    {', '.join(names)}, = items"

        def generate_output(self, output_args: Any) -> str:
            return f"return {{'result': {output_args!r}}}"

        def additional_globals(self) -> list[tuple[str, Any]]:
            return [("List", typing.List), ("Any", typing.Any)]  # noqa: UP006

        def process_inputs(self, *inputs: Any) -> Any:
            assert len(inputs) == 1
            return inputs[0]

        def process_outputs(self, outputs: Any) -> Any:
            return {"result": outputs}

    return OneList()


def described(code: Any) -> tuple[Any, ...]:
    return code.src, code._lineno_map, code._prologue_start


def same(make: Callable[[Any], Any]) -> Any:
    """Do the same with both packages, want the same, return it."""
    ours, theirs = make(graphwright), make(torch.fx)
    assert ours == theirs
    return ours


def test_another_signature_and_return() -> None:
    def describe(package: Any) -> Any:
        graph = a_graph(package)
        graph.set_codegen(one_list(package))
        code = graph.python_code("self")
        assert code.globals["List"] is typing.List  # noqa: UP006
        return described(code)

    text, lines, start = same(describe)
    assert text == (
        "\n\n\n"
        "def forward(self, items: List[Any]):\n"
        "    x, y, = items\n"
        "    relu = torch.relu(x);  x = None\n"
        "    add = relu + y;  y = None\n"
        "    return {'result': (add, [relu])}\n"
        "    "
    )
    assert (lines, start) == ({2: 2, 3: 3, 4: 4, 5: 4}, 4)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_runs_with_another_signature(package: Any) -> None:
    gm = package.symbolic_trace(lambda x, y: x - y)
    gm.graph.set_codegen(one_list(package))
    gm.recompile()
    assert gm([3, 1]) == {"result": 2}
    assert gm.graph.process_inputs([3, 1]) == [3, 1]
    assert gm.graph.process_outputs(2) == {"result": 2}
    assert copy.deepcopy(gm)([3, 1]) == {"result": 2}


def test_setting_a_codegen_needs_no_recompile() -> None:
    gm = graphwright.symbolic_trace(lambda x, y: x - y)
    assert gm(3, 1) == 2
    gm.graph.set_codegen(one_list(graphwright))
    assert gm([3, 1]) == {"result": 2}


def test_the_plain_codegen() -> None:
    def describe(package: Any) -> Any:
        codegen = package.graph.CodeGen()
        graph = a_graph(package)
        return (
            codegen.gen_fn_def(["x", "y = 2"], " -> int"),
            codegen.gen_fn_def(["self", "x"], ""),
            codegen.gen_fn_def(["x"], "", expanded_def=True),
            codegen.generate_output((1, [2])),
            codegen.process_inputs(1, 2),
            codegen.process_outputs([1]),
            codegen.additional_globals(),
            (graph.process_inputs(1, 2), graph.process_outputs(3)),
            (type(graph._codegen).__name__, vars(graph._codegen)),
            described(graph.python_code("self")),
            described(graph.python_code("self", expanded_def=True)),
        )

    same(describe)


def test_super_writes_what_would_have_been_written() -> None:
    def describe(package: Any) -> Any:
        class Renamed(package.graph.CodeGen):  # type: ignore[misc]
            def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
                return "\n" + super().gen_fn_def([*free_vars, "extra = None"], maybe_return_annotation, **options)

        graph = a_graph(package)
        graph.set_codegen(Renamed())
        return described(graph.python_code("self")), described(graph.python_code("self", expanded_def=True))

    same(describe)


def test_the_default_return_has_no_repr_that_does_not_parse() -> None:
    class Shifted(CodeGen):
        def generate_output(self, output_args: Any, *, repr_fn: Any = None) -> str:
            return super().generate_output((output_args, 1), repr_fn=repr_fn)

    graph = Graph()
    graph.output((torch.Tensor, graph.placeholder("x")))
    graph.set_codegen(Shifted())
    assert "return ((torch.Tensor, x), 1)" in graph.python_code("self").src


# ---- body transformers


def with_line(line: str) -> Callable[[Any], Any]:
    return lambda before: lambda body: [f"{line}\n", *(before(body) if before else body)]


def test_transformers_see_the_pieces_of_the_body() -> None:
    def describe(package: Any) -> Any:
        seen: list[list[str]] = []
        graph = a_graph(package)
        graph.output_node().prepend(graph.placeholder("Z", default_value=None))
        graph.on_generate_code(lambda before: lambda body: seen.append(list(body)) or body)
        return described(graph.python_code("self")), seen

    same(describe)


def test_a_transformer_shifts_the_line_numbers() -> None:
    def describe(package: Any) -> Any:
        graph = a_graph(package)
        graph.on_generate_code(with_line("first = 1"))
        graph.on_generate_code(with_line("second = 2"))
        return described(graph.python_code("self"))

    text, lines, _ = same(describe)
    assert "    second = 2\n    first = 1\n    relu = " in text
    assert lines == {1: None, 2: None, 3: 2, 4: 3, 5: 4, 6: 4}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_transformer_for_one_block(package: Any) -> None:
    gm = package.symbolic_trace(lambda x: x + 1)
    with gm.graph.on_generate_code(with_line("x.append(0)")) as nothing:
        assert nothing is None
        gm.recompile()
    assert "x.append(0)" in gm.code
    assert gm.graph._codegen._body_transformer is None
    gm.recompile()
    assert "x.append(0)" not in gm.code


@pytest.mark.parametrize("package", PACKAGES)
def test_an_error_in_the_block_puts_the_transformer_back(package: Any) -> None:
    graph = a_graph(package)
    with pytest.raises(ZeroDivisionError), graph.on_generate_code(with_line("pass")):
        raise ZeroDivisionError
    assert graph._codegen._body_transformer is None


def test_a_transformer_that_drops_everything_leaves_a_function() -> None:
    graph = Graph()
    graph.placeholder("x")
    graph.on_generate_code(lambda before: lambda body: [])
    assert graph.python_code("self").src == "\n\n\ndef forward(self, x):\n    pass\n    "


def test_another_function_name() -> None:
    def describe(package: Any) -> Any:
        graph = a_graph(package)
        graph._codegen._func_name = "run"
        return described(graph.python_code("self"))

    assert same(describe)[0].startswith("\n\n\ndef run(self, x : torch.Tensor, y = 2.5)")


# ---- lines


def test_line_numbers_of_ordinary_code() -> None:
    def describe(package: Any) -> Any:
        graph = a_graph(package)
        graph.output_node().prepend(graph.placeholder("Z", default_value=None))
        return described(graph.python_code("self"))

    same(describe)
    assert same(lambda package: described(package.Graph().python_code("self")))[1] == {1: None, 2: None}


def test_python_code_is_made_by_hand() -> None:
    def describe(package: Any) -> Any:
        code = package.graph.PythonCode("x = 1", {"a": 1}, {1: 0}, 3)
        return code.src, code.globals, code._lineno_map, code._prologue_start, repr(code)

    same(describe)
    assert PythonCode("", {}, None)._prologue_start == 0


def test_verbose_code_quotes_the_users_lines() -> None:
    def describe(package: Any) -> Any:
        graph = package.Graph()
        x = graph.placeholder("x")
        first, second = graph.call_method("f", (x,)), graph.call_method("g", (x,))
        third, fourth = graph.call_method("h", (x,)), graph.get_attr("w")
        graph.output((first, second, third, fourth))
        first.stack_trace = second.stack_trace = '  File "/a/b.py", line 7, in forward\n    y = f(x)\n'
        fourth.stack_trace = '  File "/a/b.py", line 9, in forward\n    y = w\n  File "/c.py", line 1, in g\n    z\n'
        return graph.python_code("self", verbose=True).src

    assert "    # File: /c.py:1 in g, code: z\n    w = self.w\n" in same(describe)
