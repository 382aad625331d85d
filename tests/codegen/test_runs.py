"""Generated code does what running the graph node by node does: the same values and effects, in the same order."""

from __future__ import annotations

import ast
import collections
import enum
import inspect
import math
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from tests.random_programs import outcome, programs
from torch import nn

from graphwright import Graph, GraphModule, Interpreter
from graphwright.codegen import PythonCode, compile_source, graph_to_readable_source, graph_to_source

FORMS = [pytest.param(graph_to_source, id="torch.fx form"), pytest.param(graph_to_readable_source, id="readable form")]


def run_nodes(graph: Graph) -> Callable[..., Any]:
    return lambda root, *args, **kwargs: Interpreter(root, graph=graph).run(*args, **kwargs)


def run_code(code: PythonCode) -> Callable[..., Any]:
    return compile_source(code.src, code.globals, "test")


# ---- properties


@pytest.mark.slow
@given(programs())
def test_the_torch_fx_form_does_what_the_interpreter_does(graph: Graph) -> None:
    assert outcome(run_code(graph_to_source(graph)), graph) == outcome(run_nodes(graph), graph)


@given(programs(with_origins=True))
def test_the_readable_form_does_what_the_interpreter_does(graph: Graph) -> None:
    assert outcome(run_code(graph_to_readable_source(graph)), graph) == outcome(run_nodes(graph), graph)


@pytest.mark.slow
@given(programs(with_origins=True))
def test_every_name_is_bound_and_every_line_leads_to_its_node(graph: Graph) -> None:
    for write in (graph_to_source, graph_to_readable_source):
        code = write(graph)
        (function,) = ast.parse(code.src).body
        assert isinstance(function, ast.FunctionDef)
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        bound |= {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        builtin = {"slice", "getattr", "complex", "range", "frozenset", "Ellipsis"}
        assert {node.id for node in names} <= bound | code.globals.keys() | builtin
        for statement in function.body:
            _check_lines(statement, code, graph)


def _check_lines(statement: ast.stmt, code: PythonCode, graph: Graph) -> None:
    """Every line of a statement leads to the node that the statement is named after, or returns or computes last."""
    if isinstance(statement, ast.With):
        for inner in statement.body:
            _check_lines(inner, code, graph)
    if isinstance(statement, ast.Pass | ast.With | ast.Delete):
        return
    lines = code.src.split("\n")[statement.lineno - 1 : statement.end_lineno]
    nodes = {code.lines.get(line) for line in range(statement.lineno, (statement.end_lineno or 0) + 1)}
    assert len(nodes) == 1, lines
    (node,) = nodes
    assert node is not None, lines
    if isinstance(statement, ast.Return):
        assert node.op == "output" or node in graph.output_node().all_input_nodes
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        first = code.src.split("\n")[statement.lineno - 1].lstrip()
        if first.startswith(f"{statement.targets[0].id} = "):  # else it follows on the line of another statement
            assert node.name == statement.targets[0].id, lines


# ---- values that are written


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Flags(enum.Flag):
    A = 1
    B = 2


Point = collections.namedtuple("Point", "x y")
MARKER = object()

SAME_OBJECT = [
    *(torch.float32, torch.bfloat16, torch.int8, torch.strided, torch.sparse_coo, torch.channels_last),
    *(torch.preserve_format, Color.RED, Level.HIGH, Flags.A, Flags.A | Flags.B, int, type(None), torch.Tensor, nn.ReLU),
    *(
        torch.relu,
        torch.nn.functional.max_pool2d,
        len,
        str.upper,
        math,
        torch.nn.functional,
        MARKER,
        types.FunctionType,
    ),
    *(typing.Any, typing.List[int], Color, Point, None, True, ..., inspect.Parameter.empty),  # noqa: UP006
]
EQUAL = [
    *(torch.device("cpu"), torch.device("cuda", 1), torch.device("meta"), torch.Size([1, 2]), torch.Size([])),
    *(range(3), range(9, 0, -2), {1, "a"}, set(), frozenset({(1, 2)}), frozenset(), Point(1, Point(2, [3])), b"\x00'"),
    *(slice(None), slice(1, -1, 2), [], (), {}, (1,), {"a": {1: (None,)}}, 2**200, -(2**200), "\ud800\u2028 '\"\\\n"),
]
NUMBERS = [
    0.0,
    -0.0,
    1e-320,
    1.5,
    math.inf,
    -math.inf,
    math.nan,
    1j,
    -1j,
    complex(-0.0, 1),
    complex(math.nan, -math.inf),
]


def read_back(value: Any, write: Callable[[Graph], PythonCode]) -> Any:
    """Write a value into code, next to a parameter that takes its obvious name, and run it."""
    graph = Graph()
    for name in ("torch", "len", "range", "device", "math", "_object", "set", "slice"):
        graph.placeholder(name, default_value=None)
    graph.output((value,))
    (result,) = run_code(write(graph))(None)
    return result


@pytest.mark.parametrize("value", SAME_OBJECT, ids=range(len(SAME_OBJECT)))
@pytest.mark.parametrize("write", FORMS)
def test_names_lead_to_the_same_object(value: Any, write: Callable[[Graph], PythonCode]) -> None:
    assert read_back(value, write) is value


@pytest.mark.parametrize("value", EQUAL, ids=range(len(EQUAL)))
@pytest.mark.parametrize("write", FORMS)
def test_values_are_written_exactly(value: Any, write: Callable[[Graph], PythonCode]) -> None:
    result = read_back(value, write)
    assert type(result) is type(value)
    assert result == value


@pytest.mark.parametrize("value", NUMBERS, ids=str)
@pytest.mark.parametrize("write", FORMS)
def test_numbers_are_written_exactly(value: Any, write: Callable[[Graph], PythonCode]) -> None:
    assert repr(read_back(value, write)) == repr(value)


ANNOTATIONS = [
    *(int, str, torch.Tensor, nn.Linear, type(None), "Forward", Color, Point, torch.device, torch.dtype),
    *(typing.Any, typing.List, typing.List[int], list[int], typing.Dict[str, typing.List[torch.Tensor]]),  # noqa: UP006
    *(typing.Tuple[int, ...], tuple[int, str], typing.Tuple[()], typing.Set[int], typing.FrozenSet[int]),  # noqa: UP006
    *(typing.Optional[int], typing.Union[int, str, None], int | None, typing.Callable[[int], str]),  # noqa: UP007, UP045
    *(typing.Literal["a", 1], type[nn.Module], typing.TypeVar("T"), typing.Annotated[int, "odd"]),
]


@pytest.mark.parametrize("kind", ANNOTATIONS, ids=str)
@pytest.mark.parametrize("write", FORMS)
def test_annotations_evaluate_back(kind: Any, write: Callable[[Graph], PythonCode]) -> None:
    graph = Graph()
    x = graph.placeholder("x", kind)
    graph.placeholder("int", default_value=None)
    graph.output(graph.call_method("f", (x,), type_expr=kind), type_expr=kind)
    code = write(graph)
    function = run_code(code)
    wanted = _parts(kind)
    assert {name: _parts(kind) for name, kind in function.__annotations__.items()} == {"x": wanted, "return": wanted}
    (local,) = [node.annotation for node in ast.walk(ast.parse(code.src)) if isinstance(node, ast.AnnAssign)]
    assert _parts(eval(compile(ast.Expression(local), "annotation", "eval"), dict(code.globals))) == wanted


def _parts(kind: Any) -> Any:
    """What a type says, however it is spelled: `List[int]` and `list[int]`, None and its type are the same."""
    if kind is None:
        return type(None)
    given = typing.get_args(kind)
    parts = tuple(_parts(part) for part in given if not isinstance(part, list) and part != ())  # of Tuple[()]: 3.10
    origin = typing.Union if isinstance(kind, types.UnionType) else typing.get_origin(kind)
    return (origin, parts) if parts else origin or kind


def test_a_global_is_not_named_again_for_each_use() -> None:
    graph = Graph()
    markers = [object(), object()]
    graph.output([graph.call_function(len, ((marker,),)) for marker in markers * 3])
    assert sorted(graph_to_source(graph).globals) == [
        *("NoneType", "_object", "_object_1", "device", "inf", "len", "nan", "torch")
    ]


# ---- freeing


class Thing:
    """A value whose life can be watched."""


@pytest.mark.parametrize("run", ["torch.fx form", "readable form", "interpreter"])
def test_every_value_lives_until_its_last_use_and_no_longer(run: str) -> None:
    alive: weakref.WeakSet[Thing] = weakref.WeakSet()
    counts: list[int] = []

    def make(*args: Any, **kwargs: Any) -> Thing:
        counts.append(len(alive))
        thing = Thing()
        alive.add(thing)
        return thing

    graph = Graph()
    a, b = graph.call_function(make), graph.call_function(make)
    graph.call_function(make, (a,))  # its value is never read
    c = graph.call_function(make, ([a, {"k": b}],))
    d = graph.call_function(make, (), {"k": (c, slice(b, None))})
    e = graph.call_function(make, (d, d))
    graph.call_function(make)
    graph.output((e, d))
    del a, b, c, d, e
    if run == "interpreter":
        result = Interpreter(nn.Module(), graph=graph).run()
    else:
        write = graph_to_source if run == "torch.fx form" else graph_to_readable_source
        result = run_code(write(graph))(None)
    wanted = []
    position = {node: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op != "output":
            last = {used: max((position[user] for user in used.users), default=-1) for used in graph.nodes}
            wanted.append(sum(position[used] < position[node] <= last[used] for used in graph.nodes))
    assert counts == wanted
    assert len(alive) == 2
    assert set(result) == set(alive)


# ---- modules


def test_a_module_runs_its_code_and_its_nodes_alike() -> None:
    root = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    graph = Graph()
    x = graph.placeholder("x")
    weight = graph.get_attr("0.weight")
    hidden = graph.call_module("1", (graph.call_module("0", (x,)),))
    graph.output({"y": graph.call_method("sum", (hidden, -1), {"keepdim": True}), "w": (weight,)})
    module = GraphModule(root, graph)
    value = torch.randn(2, 3)
    one, other = module(value), Interpreter(module).run(value)
    assert one["w"][0] is other["w"][0] is root[0].weight
    assert torch.equal(one["y"], other["y"])
