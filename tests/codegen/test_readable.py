"""The readable form: statements as in the source, expressions inside one another, comments and long lines."""

from __future__ import annotations

import ast
import operator
import sys
from typing import Any

import pytest
import torch
from hypothesis import given
from tests.random_programs import programs
from torch import nn

from graphwright import Graph, Node, symbolic_trace, trace
from graphwright.codegen import compile_source, graph_to_readable_source, graph_to_source
from graphwright.codegen.readable import nesting
from graphwright.codegen.readable.callees import Callees
from graphwright.codegen.spelling.wrapping import wrap
from graphwright.ir import Origin, nodes_in
from graphwright.ops import cond, enter_context, exit_context, unpack
from graphwright.runtime import shared


class Line:
    """Gives nodes the origin of one line of a source: `Line(3, "y = x + 1")(node, "y")`."""

    def __init__(self, line: int, source: str, module: str = "", function: str = "Net.forward", call: int = 0) -> None:
        self.origin: dict[str, Any] = {"file": "/src/net.py", "line": line, "function": function, "source": source}
        self.origin |= {"statement": line, "module": module, "call": call}

    def __call__(self, node: Node, target: str = "") -> Node:
        node.origin = Origin(**self.origin, target=target)
        return node


def text(graph: Graph, owner: Any = None) -> str:
    code = graph_to_readable_source(graph, owner=owner)
    assert code.src.startswith("\n\n\ndef forward(self")
    ast.parse(code.src)
    return code.src.strip()


def test_statements_are_those_of_the_source() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    first = Line(3, "y = self.act(self.norm(x) * 2 + x)")
    norm = first(graph.call_module("norm", (x,)))
    double = first(graph.call_function(operator.mul, (norm, 2)))
    total = first(graph.call_function(operator.add, (double, x)))
    y = first(graph.create_node("call_module", "act", (total,), name="y"), "y")
    last = Line(4, "return y.sum(), y")
    graph.output((last(graph.call_method("sum", (y,))), y))
    assert text(graph) == (
        "def forward(self, x):\n"
        "    # Net.forward (net.py)\n"
        "    # 3: y = self.act(self.norm(x) * 2 + x)\n"
        "    y = self.act(self.norm(x) * 2 + x)\n"
        "    # 4: return y.sum(), y\n"
        "    return (y.sum(), y)"
    )


def test_modules_are_named_when_they_begin() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    for i, call in ((0, 0), (0, 1), (1, 0)):
        line = Line(9, "x = self.linear(x)", f"blocks.{i}", "Block.forward", call)
        x = line(graph.create_node("call_module", f"blocks.{i}.linear", (x,), name="x"), "x")
    graph.output(x)
    blocks = nn.Module()
    blocks.blocks = nn.ModuleList(nn.Module() for _ in range(2))
    assert text(graph, blocks) == (
        "def forward(self, x):\n"
        "    # Block.forward (net.py), blocks.0\n"
        "    # 9: x = self.linear(x)\n"
        "    x_1 = self.blocks[0].linear(x)\n"
        "\n"
        "    # Block.forward (net.py), blocks.0\n"
        "    # 9: x = self.linear(x)\n"
        "    x_2 = self.blocks[0].linear(x_1);  del x_1\n"
        "\n"
        "    # Block.forward (net.py), blocks.1\n"
        "    # 9: x = self.linear(x)\n"
        "    x_3 = self.blocks[1].linear(x_2);  del x_2\n"
        "    return x_3"
    )


def test_paths_use_the_subscripts_that_containers_have() -> None:
    root = nn.Module()
    root.layers = nn.Sequential(nn.ReLU(), nn.ReLU())
    root.heads = nn.ModuleDict({"0": nn.ReLU(), "not a name": nn.ReLU(), "plain": nn.ReLU()})
    root.odd = nn.Module()
    root.odd.add_module("0", nn.ReLU())
    graph = Graph()
    x = graph.placeholder("x")
    for path in ("layers.1", "heads.0", "heads.not a name", "heads.plain", "odd.0"):
        graph.call_module(path, (x,))
    assert [line.strip() for line in text(graph, root).splitlines()[1:]] == [
        *("self.layers[1](x)", "self.heads['0'](x)", "self.heads['not a name'](x)", "self.heads.plain(x)"),
        'getattr(self.odd, "0")(x)',
    ]


@pytest.mark.parametrize("name", ["self", "this", "module", "root", "a", "b"])  # which is looked for first is by chance
def test_paths_may_have_the_name_of_the_module_inside(name: str) -> None:
    callees = Callees()
    called = callees.mark("drop", f"{name}.drop")
    read = callees.mark(f"layer.{name}.drop", f"{name}.layer.{name}.drop", is_read=True)
    assert callees.shown(f"{called}(x, {read}.p)") == f"{name}.drop(x, {name}.layer.{name}.drop.p)"


def test_modules_are_read_in_the_tables_that_have_them() -> None:
    root = nn.Module()
    root.add_module("0", nn.ReLU())
    root.layers = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.ReLU())
    root.layers[1].scale = 2.0
    graph = Graph()
    modules = graph.placeholder("modules")
    for path in ("0", "layers.0.0", "layers.1"):
        graph.call_module(path, (modules,))
    for path in ("layers.0.0.weight", "layers.1.scale"):
        graph.call_function(torch.relu, (graph.get_attr(path),))
    graph.output(graph.call_module("0", (modules,)))
    code = graph_to_readable_source(graph, owner=root, reads_tables=True)
    assert code.src.strip() == (
        "def forward(self, modules):\n"
        "    modules_1 = self._modules\n"
        '    modules_1["0"](modules)\n'
        "    self.layers[0][0](modules)\n"
        "    self.layers[1](modules)\n"
        "    layers_0_0_weight = self.layers[0][0].weight\n"
        "    torch.relu(layers_0_0_weight);  del layers_0_0_weight\n"
        "    layers_1_scale = self.layers[1].scale\n"
        "    torch.relu(layers_1_scale);  del layers_1_scale\n"
        '    _0_1 = modules_1["0"](modules)\n'
        "    return _0_1"
    )


def test_attributes_that_are_variables_keep_their_names_to_themselves() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, rows: list[torch.Tensor]) -> list[torch.Tensor]:
            return [weight * self.weight for weight in rows]

    gm = trace(Rows(), ([torch.ones(2)] * 3,))
    code = graph_to_readable_source(
        gm.graph, owner=gm, variables={"weight": "weight"}, first=lambda writer: ["weight = self.weight"]
    )
    function = compile_source(code.src, code.globals, "rows")
    assert [line for line in code.src.splitlines() if "self." in line and "#" not in line] == [
        "    weight = self.weight"
    ]
    rows = [torch.full((2,), float(i)) for i in range(3)]
    assert all(map(torch.equal, function(gm, rows), gm(rows)))


NOT_INSIDE = {
    "another statement": lambda graph, x: Line(2, "g(y)")(
        graph.call_method("g", (Line(1, "y")(graph.call_method("f", (x,))),))
    ),
    "two readers": lambda graph, x: two_readers(graph, Line(1, "y")(graph.call_method("f", (x,)))),
    "read twice": lambda graph, x: (lambda f: Line(1, "y")(graph.call_function(operator.add, (f, f))))(
        Line(1, "y")(graph.call_method("f", (x,)))
    ),
    "named": lambda graph, x: Line(1, "y")(graph.call_method("g", (Line(1, "y")(graph.call_method("f", (x,)), "f"),))),
    "annotated": lambda graph, x: Line(1, "y")(
        graph.call_method("g", (Line(1, "y")(graph.call_method("f", (x,), type_expr=int)),))
    ),
    "no origin": lambda graph, x: Line(1, "y")(graph.call_method("g", (graph.call_method("f", (x,)),))),
    "order of evaluation": lambda graph, x: out_of_order(graph, x),
}


def two_readers(graph: Graph, f: Node) -> None:
    for _ in range(2):
        Line(1, "y")(graph.call_method("g", (f,)))


def out_of_order(graph: Graph, x: Node) -> None:
    first, second = (Line(1, "y")(graph.call_method(name, (x,))) for name in "fh")
    Line(1, "y")(graph.call_method("g", (second, first)))


@pytest.mark.parametrize("make", NOT_INSIDE.values(), ids=NOT_INSIDE)
def test_what_gets_a_statement_of_its_own(make: Any) -> None:
    graph = Graph()
    make(graph, graph.placeholder("x"))
    statements = [line for line in text(graph).splitlines()[1:] if line and not line.lstrip().startswith("#")]
    assert statements[0].strip().partition(";")[0] in ("f = x.f()", "f: int = x.f()")
    assert all("x.f()" not in line for line in statements[1:])


def test_a_long_expression_gets_a_statement_of_its_own() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    line = Line(1, "return x + x + ...")
    total = x
    for i in range(30):
        total = line(graph.call_function(operator.add, (total, i)))
    graph.output(total)
    lines = text(graph).splitlines()
    assert max(map(len, lines)) < 120
    starts = [line.partition(" = ")[0].strip().partition(" + ")[0] for line in lines[3:]]
    assert starts == ["add_19", "return add_19"]


def test_operators_inside_others_keep_their_operands() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    line = Line(1, "")

    def do(function: Any, *args: Any) -> Node:
        return line(graph.call_function(function, args))

    wanted = [
        (lambda: do(operator.mul, do(operator.add, x, y), 2), "(x + y) * 2"),
        (lambda: do(operator.add, do(operator.mul, x, y), 2), "x * y + 2"),
        (lambda: do(operator.sub, x, do(operator.sub, y, 1)), "x - (y - 1)"),
        (lambda: do(operator.sub, do(operator.sub, x, y), 1), "x - y - 1"),
        (lambda: do(operator.pow, do(operator.pow, x, y), 2), "(x ** y) ** 2"),
        (lambda: do(operator.pow, x, do(operator.pow, y, 2)), "x ** y ** 2"),
        (lambda: do(operator.pow, do(operator.neg, x), 2), "(-x) ** 2"),
        (lambda: do(operator.neg, do(operator.pow, x, 2)), "-x ** 2"),
        (lambda: do(operator.pow, 2, do(operator.neg, x)), "2 ** -x"),
        (lambda: do(operator.lt, do(operator.lt, x, y), 1), "(x < y) < 1"),
        (lambda: do(operator.eq, x, do(operator.gt, y, 1)), "x == (y > 1)"),
        (lambda: do(operator.and_, do(operator.gt, x, y), do(operator.eq, x, 1)), "(x > y) & (x == 1)"),
        (lambda: do(operator.or_, do(operator.and_, x, y), do(operator.xor, x, 1)), "x & y | x ^ 1"),
        (lambda: do(operator.getitem, do(operator.add, x, y), (0, do(operator.neg, y))), "(x + y)[0, -y]"),
        (lambda: do(getattr, do(operator.invert, x), "T"), "(~x).T"),
        (lambda: do(operator.matmul, do(operator.matmul, x, y), do(operator.mul, x, y)), "x @ y @ (x * y)"),
        (lambda: do(torch.cat, [do(operator.add, x, 1), y], 1), "torch.cat([x + 1, y], 1)"),
        (lambda: do(len, {"a": do(operator.neg, x)}), "len({'a': -x})"),
        (lambda: do(operator.not_, do(operator.contains, do(operator.neg, x), y)), "y not in -x"),
        (lambda: do(operator.not_, do(operator.is_, do(operator.neg, x), None)), "-x is not None"),
    ]
    for make, _ in wanted:
        make()
    statements = [line.strip() for line in text(graph).splitlines()[1:] if line and "#" not in line]
    assert statements == [expression for _, expression in wanted]


def test_subscripts_are_python_s() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    for key in (
        *(
            slice(None),
            slice(1, None),
            slice(None, -1),
            slice(None, None, 2),
            (slice(None), None, ..., 0),
            (slice(x, 3),),
        ),
        *((), [1, 2], "k", (1, (slice(2), 3)), slice(None, None, None)),
    ):
        graph.call_function(operator.getitem, (x, key))
    graph.call_function(operator.setitem, (x, (0, slice(None)), 1))
    assert [line.strip() for line in text(graph).splitlines()[1:]] == [
        *("x[:]", "x[1:]", "x[:-1]", "x[::2]", "x[:, None, ..., 0]", "x[x:3,]", "x[()]", "x[[1, 2]]", "x['k']"),
        *("x[1, (slice(None, 2, None), 3)]", "x[:]", "x[0, :] = 1"),
    ]


def test_calls_that_nobody_reads_are_statements() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.call_method("add_", (x, 1))
    graph.call_module("observer", (x,))
    graph.call_function(torch._assert, (x, "message"))
    graph.output(x)
    assert text(graph) == (
        "def forward(self, x):\n    x.add_(1)\n    self.observer(x)\n    torch._assert(x, 'message')\n    return x"
    )


def test_in_place_operators_of_captures_are_statements() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    line = Line(2, "y += 1")
    y = line(graph.create_node("call_method", "clone", (x,), name="y"), "y")
    line(graph.call_function(operator.iadd, (y, 1)))
    line(graph.call_function(operator.imul, (line(graph.get_attr("scale")), y)))
    graph.call_function(operator.isub, (x, 1))  # not captured: x may be a number
    line(graph.call_function(operator.iadd, (line(graph.call_method("view", (y, -1))), 1)))
    graph.output((y, x))
    statements = [line.strip() for line in text(graph).splitlines()[1:] if line and "#" not in line]
    assert statements == [
        *("y = x.clone()", "y += 1", "self.scale *= y", "operator.isub(x, 1)", "operator.iadd(y.view(-1), 1)"),
        "return (y, x)",
    ]


def updated(x, y):  # type: ignore[no-untyped-def]
    x[0] += y[1]
    x[:, 1:] *= 2
    x[y > 0] -= 1
    x.data *= y
    row = x[0]
    row += 1
    x[1] = row
    return x


def test_items_and_attributes_that_are_stored_back_are_changed_in_one_statement() -> None:
    module = trace(updated, (torch.randn(3, 3), torch.randn(3)))
    lines = [line.strip().partition(";")[0] for line in module.code.splitlines()]
    for wanted in ("x[0] += y[1]", "x[:, 1:] *= 2", "x[gt] -= 1", "x.data *= y", "row += 1", "x[1] = row"):
        assert wanted in lines
    given = torch.randn(3, 3), torch.randn(3)
    assert torch.equal(module(given[0].clone(), given[1]), updated(given[0].clone(), given[1]))


def test_an_item_that_is_stored_elsewhere_is_not_changed_where_it_was() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    line = Line(1, "x[1] = ...")
    changed = line(graph.call_function(operator.iadd, (line(graph.call_function(operator.getitem, (x, 0))), 1)))
    line(graph.call_function(operator.setitem, (x, 1, changed)))
    graph.output(x)
    assert "x[0] += 1" not in text(graph)


def test_an_assignment_to_an_item_evaluates_the_value_first() -> None:
    wanted = {"value key": ["x[x.key()] = x.value()"], "key value": ["key = x.key()", "x[key] = x.value();  del key"]}
    for order, statements in wanted.items():
        graph = Graph()
        x = graph.placeholder("x")
        line = Line(2, "x[x.key()] = x.value()")
        made = {name: line(graph.call_method(name, (x,))) for name in order.split()}
        line(graph.call_function(operator.setitem, (x, made["key"], made["value"])))
        assert [line.strip() for line in text(graph).splitlines()[1:] if line and "#" not in line] == statements


def test_unpacking_is_one_statement() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    parts = graph.call_method("chunk", (x, 3))
    whole = graph.call_function(unpack, (parts, 3))
    first = graph.create_node("call_function", operator.getitem, (whole, 0), name="first")
    last = graph.create_node("call_function", operator.getitem, (whole, 2), name="last")
    graph.output((last, first))
    assert text(graph) == ("def forward(self, x):\n    first, _, last = x.chunk(3)\n    return (last, first)")
    last.name = "_"
    assert "    first, __1, _ = x.chunk(3)" in text(graph)


@pytest.mark.parametrize("indices", [(0, 0), (0, 3), (-1, 0), (2, 0, 1)])
def test_odd_unpackings_run_as_calls(indices: tuple[int, ...]) -> None:
    graph = Graph()
    whole = graph.call_function(unpack, (graph.placeholder("x"), 3))
    graph.output([graph.call_function(operator.getitem, (whole, index)) for index in indices])
    code = graph_to_readable_source(graph)
    if 3 not in indices:
        assert compile_source(code.src, code.globals, "test")(None, "abc") == ["abc"[index] for index in indices]
    else:
        assert "ops.unpack(x, 3)" in code.src


class Asked:
    """A finder of modules that notes what is asked for, and finds nothing."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, *_: Any) -> None:
        self.names.append(name)


def test_to_write_a_function_with_its_module_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package may import a room when it is asked for a name that it does not hold."""
    finder = Asked()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    graph = Graph()
    graph.output([graph.call_function(shared, (), {"x": graph.placeholder("x")})] * 2)
    assert "shared = runtime.shared(x=x)" in graph_to_readable_source(graph).src
    assert finder.names == []


TORCH_FX_REGIONS = """\
def forward(self, x):
    with torch.autograd.grad_mode.set_grad_enabled(False):
        exp = x.exp();  x = None
        with torch.amp.autocast_mode.autocast('cpu', enabled = False):
            pass
        sin = exp.sin();  exp = None
    return sin"""
READABLE_REGIONS = """\
def forward(self, x):
    with torch.set_grad_enabled(False):
        exp = x.exp()
        with torch.autocast('cpu', enabled=False):
            pass
        sin = exp.sin();  del exp
    return sin"""


@pytest.mark.parametrize(
    ("write", "wanted"),
    [
        pytest.param(graph_to_source, TORCH_FX_REGIONS, id="torch.fx form"),
        pytest.param(graph_to_readable_source, READABLE_REGIONS, id="readable form"),
    ],
)
def test_regions_are_with_blocks(write: Any, wanted: str) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    outer = graph.call_function(enter_context, (torch.set_grad_enabled, False))
    y = graph.call_method("exp", (x,))
    inner = graph.call_function(enter_context, (torch.autocast, "cpu"), {"enabled": False})
    graph.call_function(exit_context, (inner,))
    z = graph.call_method("sin", (y,))
    graph.call_function(exit_context, (outer,))
    graph.output(z)
    code = write(graph)
    assert code.src.strip() == wanted
    value = torch.ones(2, requires_grad=True)
    assert not compile_source(code.src, code.globals, "test")(None, value).requires_grad
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("write", [graph_to_source, graph_to_readable_source], ids=["torch.fx form", "readable form"])
def test_regions_that_do_not_nest_are_calls(write: Any) -> None:
    graph = Graph()
    first = graph.call_function(enter_context, (torch.set_grad_enabled, False))
    second = graph.call_function(enter_context, (torch.autocast, "cpu"))
    graph.call_function(exit_context, (first,))
    graph.call_function(exit_context, (second,))
    graph.output(None)
    code = write(graph)
    assert code.src.count("enter_context") >= 1
    assert sum(isinstance(node, ast.With) for node in ast.walk(ast.parse(code.src))) <= 1
    compile_source(code.src, code.globals, "test")(None)
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def logged(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def a_call_in_a_region(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x = logged(x)
        if x.sum() > 0:
            x = logged(x)
    return x


def test_blocks_begin_without_an_empty_line() -> None:
    code = trace(a_call_in_a_region, (torch.ones(2),)).code
    assert code.count("# logged (") == 2
    assert ":\n\n" not in code


def two_contexts_and_a_side_that_returns(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        pass
    with torch.autocast("cpu", torch.bfloat16):
        if x.sum() > 0:
            y = x + 1
        else:
            return x - 1
    return y * 2


def test_a_context_that_each_side_of_a_branch_leaves_is_called_and_not_assigned() -> None:
    gm = trace(two_contexts_and_a_side_that_returns, (torch.ones(2),))
    assert "ops.exit_context(autocast_1)" in [line.strip() for line in gm.code.splitlines()]
    for x in (torch.ones(2), -torch.ones(2)):
        x.requires_grad_()
        wanted, given = two_contexts_and_a_side_that_returns(x), gm(x)
        assert torch.equal(given, wanted)
        assert not torch.is_autocast_enabled("cpu")


def no_row_below(x: torch.Tensor) -> torch.Tensor:
    if not any(not row.sum() > 0 for row in x):
        return x + 1
    return x - 1


def no_small_row_below(x: torch.Tensor) -> torch.Tensor:
    if not any(not row.sum() > 0 and row.max() < 5 for row in x):
        return x + 1
    return x - 1


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        pytest.param(no_row_below, "if all(row.sum() > 0 for row in x):", id="all that is tested is negated"),
        pytest.param(
            no_small_row_below, "if not any(not row.sum() > 0 and row.max() < 5 for row in x):", id="a part is negated"
        ),
    ],
)
def test_only_a_whole_test_that_is_negated_becomes_all(program: Any, wanted: str) -> None:
    gm = trace(program, (torch.ones(2, 2),))
    assert wanted in [line.strip() for line in gm.code.splitlines()]
    for x in (torch.ones(2, 2), -torch.ones(2, 2), torch.tensor([[9.0, -20.0], [9.0, -20.0]])):
        assert torch.equal(gm(x), program(x))


def halve(x: torch.Tensor) -> torch.Tensor:
    return x / 2


def test_a_variable_of_a_side_and_a_function_never_share_a_name() -> None:
    def side() -> Graph:
        body = Graph()
        halved = body.create_node("call_function", torch.mul, (body.placeholder("x"), 2), name="halve")
        body.output(body.call_function(torch.add, (halved, halved)))
        return body

    graph = Graph()
    pred, x = graph.placeholder("pred"), graph.placeholder("x")
    made = graph.create_node("call_function", cond, (pred, side(), side(), (x,)), name="made")
    graph.output(graph.create_node("call_function", halve, (made,), name="y"))
    assert text(graph) == (
        "def forward(self, pred, x):\n"
        "    if pred:\n"
        "        halve = torch.mul(x, 2)\n"
        "        made = torch.add(halve, halve);  del halve\n"
        "    else:\n"
        "        halve = torch.mul(x, 2)\n"
        "        made = torch.add(halve, halve);  del halve\n"
        "    y = halve_1(made);  del made\n"
        "    return y"
    )
    code = graph_to_readable_source(graph)
    assert compile_source(code.src, code.globals, "test")(None, True, torch.ones(1)) == 2


def test_comments_cannot_become_code() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(
        Line(1, 'y = """a\nraise SystemExit"""', "a\nb", "f\rraise SystemExit")(graph.call_method("neg", (x,)))
    )
    code = graph_to_readable_source(graph)
    (function,) = ast.parse(code.src).body
    assert isinstance(function, ast.FunctionDef)
    assert [type(statement) for statement in function.body] == [ast.Assign, ast.Return]


def test_ranges_are_written_as_people_write_them() -> None:
    graph = Graph()
    graph.output([range(3), range(1, 3), range(0, 9, 2), range(0)])
    assert "return [range(3), range(1, 3), range(0, 9, 2), range(0)]" in graph_to_readable_source(graph).src


def test_lines_lead_to_the_nodes_of_their_statements() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    line = Line(3, "y = f(...)")
    many = line(graph.call_method("f", (x, *(f"argument number {i}" for i in range(12)))), "f")
    neg = line(graph.call_function(operator.neg, (many,)))
    total = line(graph.call_function(operator.add, (neg, 1)), "y")
    output = graph.output(total)
    code = graph_to_readable_source(graph)
    text = code.src.split("\n")
    found = {node: [text[line - 1].strip() for line in code.lines if code.lines[line] is node] for node in graph.nodes}
    assert found[many][0] == "f = x.f("
    assert found[many][-1] == ")"
    assert len(found[many]) > 3
    assert found[total] == ["add = -f + 1;  del f"]
    assert found[output] == ["return add"]
    assert not found[neg]


@given(programs(with_origins=True))
@pytest.mark.slow
def test_broken_lines_say_the_same(graph: Graph) -> None:
    function = ast.parse(graph_to_readable_source(graph).src).body[0]
    assert isinstance(function, ast.FunctionDef)
    for statement in function.body:
        if not isinstance(statement, ast.With):
            line = ast.unparse(statement)
            broken = wrap(line, "", 30)
            assert ast.dump(ast.parse(broken)) == ast.dump(ast.parse(line))


@pytest.mark.parametrize(
    "line",
    [
        "y = [a * b for a, b in pairs if a]",
        "y = f(first, *rest, **more)",
        "y = max(x for a, b in pairs for x in a)",
        "y = sorted(pairs, key=lambda a, b=(1, 2): (a, b), reverse=True)",
        "y = (lambda a, b: a)",
        "y = {k: lambda a, b: v for k, v in x.items()}",
        "y = 'for a, (b' + f(\"lambda x, y\", 'it\\'s, ok', a.for_each, b.lambda_)",
        "y = t[a, b:c, 1]",
        "y = (a,)",
        "y = [(a, b) for a in c], d",
        "for a, b in zip([first for first, _ in pairs], others): pass",
        "def f(a, b=(1, 2), *, c) -> tuple[int, str]: pass",
        "y = first.second[0].third(x).view(1)",
        "y = x[first.index]",
        "y: f[int] = not first.second and (second or -third) > 1",
        "y @= first + second * third - 'a = b' if not first else f(x, [a + b])",
        "y = x; y += first + second",
        "y = lambda a, b: a + b",
        "y = first, second",
        "if first == second and second[1:2]: pass",
        "return f(first + second) * [third[a], [fourth, fifth]]",
    ],
)
@pytest.mark.parametrize("width", [8, 20, 40])
def test_a_line_broken_anywhere_says_the_same(line: str, width: int) -> None:
    assert ast.dump(ast.parse(wrap(line, "", width))) == ast.dump(ast.parse(line))


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        (
            "bias = self.layers[0].attention.bias_table[ij].view(16, 16)",
            "bias = (\n    self.layers[0].attention.bias_table[ij].view(16, 16)\n)",
        ),
        (
            "keep = not self.layers[0].drop.training or self.layers[0].drop.p == 0",
            "keep = (\n    not self.layers[0].drop.training\n    or self.layers[0].drop.p == 0\n)",
        ),
        (
            "if self.layers[0].drop.training and self.layers[0].drop.p > 0:",
            "if (\n    self.layers[0].drop.training\n    and self.layers[0].drop.p > 0\n):",
        ),
        (
            "x = torch.cat([first_features, second_features, third_features, fourth], 1)",
            "x = torch.cat(\n    [\n        first_features, second_features, third_features,\n"
            "        fourth,\n    ], 1,\n)",
        ),
    ],
)
def test_no_broken_line_is_longer_than_the_width(line: str, broken: str) -> None:
    assert wrap(line, "", 58) == broken


def test_many_variables_end_on_several_lines() -> None:
    names = ", ".join(f"value_{i}" for i in range(30))
    graph = Graph()
    x = graph.placeholder("x")
    values = [graph.call_function(torch.relu, (x,), name=f"value_{i}") for i in range(30)]
    graph.call_function(torch.cat, (values,))
    graph.output(x)
    lines = [line for line in graph_to_readable_source(graph).src.splitlines() if "del " in line]
    assert len(lines) > 1 and ", ".join(line.strip().removeprefix("del ") for line in lines) == names


def test_a_layer_that_is_called_in_a_function_belongs_to_its_line() -> None:
    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.layer(x))
            return x * 2 if x.sum() > 0 else x

    code = symbolic_trace(Program()).code
    assert "relu = torch.relu(self.layer(x))" in code and code.count(".forward (test_readable.py)") == 1


def test_what_only_a_check_reads_stands_inside_it() -> None:
    def program(pair: list[torch.Tensor]) -> torch.Tensor:
        first, second = pair
        return first + second if first.device == second.device else first

    gm = trace(program, ([torch.rand(2), torch.rand(2)],))
    code = gm.code.split("\n    #")[0]
    assert "len_pair=(len(pair), 2)" in code and "('pair_0.device', pair_0.device," in code
    assert "pair_0 = pair[0]" in code and "del" not in code


def test_a_long_comprehension_over_pairs_runs() -> None:
    def program(patches: torch.Tensor, image_sizes: torch.Tensor) -> torch.Tensor:
        patch_embeds = patches * 2
        patch_embeds_list = [
            embed[..., : size[0] // 8, : size[1] // 8]
            for embed, size in zip(patch_embeds, image_sizes)  # noqa: B905
        ]
        return torch.cat([part.flatten() for part in patch_embeds_list])

    gm = trace(program, (torch.rand(2, 8, 8), torch.tensor([[16, 24], [32, 8]])))
    example = torch.rand(3, 8, 8), torch.tensor([[8, 16], [32, 8], [16, 16]])
    assert torch.equal(gm(*example), program(*example))
    assert "\n        for embed, size in zip(patch_embeds, image_sizes)\n    ]" in gm.code


def test_families_of_torch_are_written_by_their_public_names() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    functions = (torch.linalg.cholesky, torch.fft.rfft, torch.special.erf, torch.erf)
    graph.output([graph.call_function(function, (x,)) for function in functions])
    code = graph_to_readable_source(graph).src
    assert all(name in code for name in ("torch.linalg.cholesky(x)", "torch.fft.rfft(x)", "torch.erf(x)"))
    assert "_C" not in code


def test_what_reads_very_many_values_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, looked = Graph(), []
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.stack, ([graph.call_function(torch.relu, (x,)) for _ in range(100)],)))
    monkeypatch.setattr(nesting, "nodes_in", lambda value: looked.append(value) or nodes_in(value))
    text(graph)
    assert len(looked) < 1000


def of_three_parts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.size() != (y.size(0) * 2, y.size(1), y.size(2)):
        raise ValueError("sizes differ")
    return x + 1


def of_one_of_three(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        if y.sum() > 0 or x.max() > 2 or y.max() > 2:
            x = x * 2
    return x + 1


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (of_three_parts, "if not (x.size(0) == y.size(0) * 2 and x.size(1) == y.size(1) and x.size(2) == y.size(2)):"),
        (of_one_of_three, "if y.sum() > 0 or x.max() > 2 or y.max() > 2:"),
    ],
)
def test_a_test_of_several_parts_is_one_expression(program: Any, wanted: str) -> None:
    example = torch.ones(4, 3, 5), torch.ones(2, 3, 5)
    gm = trace(program, example)
    assert wanted in gm.code
    assert torch.equal(gm(*example), program(*example))


def test_a_condition_is_written_without_bool() -> None:
    def kept(x: torch.Tensor) -> torch.Tensor:
        found = []
        for row in x:
            if row.sum() > 0:
                found.append(row)
        if not found:
            return x - 1
        return torch.stack(found) if found else x

    gm = trace(kept, (torch.ones(2, 2),))
    assert "if not found:" in gm.code and "bool(" not in gm.code
    for x in (torch.ones(3, 2), -torch.ones(3, 2), torch.eye(2) - 0.5):
        assert torch.equal(gm(x), kept(x))


def test_values_of_one_assignment_have_its_names() -> None:
    def attend(qkv: torch.Tensor) -> torch.Tensor:
        q, k, v = qkv[0], qkv[1], qkv[2]
        (scores, scale), _ = (q @ k.t(), q.sum()), v
        q, k = k * scale, q * scale
        return scores @ v + q - k

    gm, x = trace(attend, (torch.ones(3, 4, 4),)), torch.randn(3, 5, 5)
    statements = [line.strip() for line in gm.code.splitlines()[4:] if line.strip() and "#" not in line]
    assert [line.partition(" = ")[0] for line in statements] == ["q", "k", "v", "scores", "scale", "q_1", "k_1"] + [
        "return scores @ v + q_1 - k_1"
    ]
    assert torch.equal(gm(x), attend(x))


def returns_early(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x
    return x * 2 + 1


def returns_several(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if x.sum() > 0:
        return x + 1, x
    z = x - 1
    return z, x * z


def returns_a_dict(x: torch.Tensor) -> dict[str, torch.Tensor]:
    if x.sum() > 0:
        if x.max() > 2:
            return {"a": x + 1, "b": x}
        return {"a": x, "b": x + 1}
    return {"a": x, "b": x * 2}


def assigns_several(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if x.sum() > 0:
        y, z = x + 1, x
    else:
        y, z = x, x - 1
    return y, z


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (returns_early, ["return x", "return x * 2 + 1"]),
        (returns_several, ["return (x + 1, x)", "return (z, x * z)"]),
        (returns_a_dict, ["{'a': x + 1, 'b': x}", "{'a': x, 'b': x + 1}", "{'a': x, 'b': x * 2}"]),
        (assigns_several, ["return (y, z)"]),
    ],
)
def test_sides_that_return_say_what(program: Any, wanted: list[str]) -> None:
    gm = trace(program, (torch.ones(3),))
    returned = [line.strip() for line in gm.code.splitlines() if line.strip().startswith("return ")]
    assert returned == [text if text.startswith("return") else f"return {text}" for text in wanted]
    assert "del" not in gm.code
    for x in (torch.ones(3), -torch.ones(3), torch.tensor([0.0, 3.0, 1.0])):
        torch.testing.assert_close(gm(x), program(x))
