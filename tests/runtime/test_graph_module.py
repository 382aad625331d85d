"""GraphModule: what it takes over, when its code is generated anew, what its errors and its source say."""

from __future__ import annotations

import gc
import inspect
import linecache
import operator
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.runtime.programs import Doubled, Named, Scale, calls, doubled_graph, graph_of
from torch import nn

import graphwright
from graphwright import Graph, GraphModule, Tracer, symbolic_trace, trace
from graphwright.codegen import compile_source
from graphwright.errors import GraphError
from graphwright.ir import Origin
from graphwright.runtime import graph_of as graph_of_module


class Tree(nn.Module):
    """Parameters, buffers, plain values and modules, some used and some not."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Module()
        self.block.linear = nn.Linear(3, 3)
        self.block.unused = nn.Linear(3, 3)
        self.block.scale = nn.Parameter(torch.ones(3))
        self.plain = torch.arange(3.0)
        self.rate = 0.5


def uses_tree(graph: Graph, x: Any) -> Any:
    linear = graph.call_module("block.linear", (x,))
    scaled = graph.call_function(operator.mul, (linear, graph.get_attr("block.scale")))
    shifted = graph.call_function(operator.add, (scaled, graph.get_attr("plain")))
    return graph.call_function(operator.mul, (shifted, graph.get_attr("rate")))


# ---- construction


def test_takes_over_from_a_module_what_the_graph_uses() -> None:
    tree = Tree().eval()
    gm = GraphModule(tree, graph_of(uses_tree))
    x = torch.randn(2, 3)
    assert torch.equal(gm(x), (tree.block.linear(x) * tree.block.scale + tree.plain) * tree.rate)
    assert gm.block.linear is tree.block.linear
    assert gm.block.scale is tree.block.scale
    assert [name for name, _ in gm.named_parameters()] == ["block.scale", "block.linear.weight", "block.linear.bias"]
    assert not hasattr(gm.block, "unused")
    assert not gm.training
    assert not gm.block.training
    gm.train()
    assert not tree.training
    assert not tree.block.training


def test_takes_over_from_a_dict_of_targets() -> None:
    tree = Tree()
    root = {
        "plain": tree.plain,
        "rate": tree.rate,
        "block.scale": tree.block.scale,
        "block.linear": tree.block.linear,
        "other": nn.Linear(1, 1),
    }
    gm = GraphModule(root, graph_of(uses_tree), "FromDict")
    x = torch.randn(2, 3)
    assert torch.equal(gm(x), (tree.block.linear(x) * tree.block.scale + tree.plain) * tree.rate)
    assert type(gm).__name__ == "FromDict"
    assert dict(gm.named_buffers()).keys() == {"plain"}
    assert not hasattr(gm, "other")


def test_takes_a_parent_whole_when_the_graph_calls_it() -> None:
    def both(graph: Graph, x: Any) -> Any:
        return graph.call_function(operator.mul, (graph.call_module("scale", (x,)), graph.get_attr("scale.weight")))

    root = nn.Module()
    root.scale = Scale(2.0)
    gm = GraphModule(root, graph_of(both))
    assert gm.scale is root.scale
    assert torch.equal(gm(torch.ones(2, 3)), root.scale(torch.ones(2, 3)) * root.scale.weight)


@pytest.mark.parametrize(
    ("root", "error", "message"),
    [
        pytest.param(
            nn.Module(),
            GraphError,
            "the graph uses 'linear', but 'Module' object has no attribute 'linear'",
            id="empty module",
        ),
        pytest.param(
            {"line": nn.Linear(3, 3)},
            GraphError,
            "Node linear referenced target linear but that target was not provided in ``root``!\n"
            "  fix: pass a dict with the keys ['linear']",
            id="dict without the target",
        ),
        pytest.param(
            [nn.Linear(3, 3)],
            GraphError,
            "Unsupported type [Linear(in_features=3, out_features=3, bias=True)] passed for root!\n"
            "  fix: pass an nn.Module",
            id="list",
        ),
        pytest.param(None, GraphError, "Unsupported type None passed for root!", id="nothing"),
    ],
)
def test_refuses_a_root_that_lacks_what_the_graph_uses(root: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        GraphModule(root, calls("linear"))
    assert str(caught.value).startswith(message)


def test_a_deep_path_names_the_module_that_ends_it() -> None:
    root = nn.Module()
    root.block = nn.Module()
    with pytest.raises(
        GraphError, match=r"the graph uses 'block\.linear', but 'Module' object has no attribute 'linear'"
    ):
        GraphModule(root, calls("block.linear"))


# ---- the class of an instance


def test_every_instance_has_a_class_of_its_own_name() -> None:
    graph = graph_of(lambda graph, x: x)
    one, other = GraphModule(nn.Module(), graph, "One"), GraphModule(nn.Module(), graph_of(lambda graph, x: x))
    assert (type(one).__name__, type(other).__name__) == ("One", "GraphModule")
    assert type(one) is not type(other)
    assert isinstance(one, GraphModule)
    assert repr(one) == "One()"
    hint = "# To see more debug info, please use `graph_module.print_readable()`"
    assert str(one) == f"One()\n{one.code}\n{hint}"
    assert GraphModule.__name__ == "GraphModule"


def test_a_subclass_keeps_its_constructor_and_methods() -> None:
    named = Named(nn.Module(), graph_of(lambda graph, x: x), title="mine")
    assert isinstance(named, Named)
    assert type(named).__name__ == "Named"
    assert named.greeting() == "this is mine"
    assert named(3) == 3


def test_graph_of_says_what_is_no_captured_module() -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: x))
    assert graph_of_module(gm) is gm.graph
    with pytest.raises(GraphError, match="this Linear has no graph\n  fix: capture it first"):
        graph_of_module(nn.Linear(1, 1))


def test_only_a_graph_becomes_the_graph() -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: x))
    with pytest.raises(AssertionError, match="Expected a Graph instance, but got <class 'str'>"):
        gm.graph = "graph()"


# ---- code follows the graph


def sum_and_double() -> GraphModule:
    """(x + y) * 2, with a second add that nothing reads."""
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    total = graph.call_function(operator.add, (x, y))
    graph.call_function(operator.sub, (x, y), name="unread")
    graph.output(graph.call_function(operator.mul, (total, 2)))
    return GraphModule(nn.Module(), graph)


def node(gm: GraphModule, name: str) -> Any:
    return next(node for node in gm.graph.nodes if node.name == name)


def set_attribute(name: str, attribute: str, value: Any) -> Callable[[GraphModule], None]:
    return lambda gm: setattr(node(gm, name), attribute, value)


def insert(gm: GraphModule) -> None:
    output = gm.graph.output_node()
    with gm.graph.inserting_before(output):
        output.args = (gm.graph.call_function(operator.neg, output.args),)


def replace_graph(gm: GraphModule) -> None:
    gm.graph = graph_of(lambda graph, x: graph.call_function(operator.mul, (x, graph.placeholder("y"))))


EDITS = [
    pytest.param(set_attribute("add", "target", operator.sub), (5 - 3) * 2, id="target"),
    pytest.param(lambda gm: setattr(node(gm, "mul"), "args", (node(gm, "add"), 10)), 80, id="args"),
    pytest.param(lambda gm: node(gm, "mul").update_arg(1, 3), 24, id="one argument"),
    pytest.param(lambda gm: node(gm, "mul").replace_input_with(node(gm, "add"), node(gm, "y")), 6, id="input"),
    pytest.param(lambda gm: node(gm, "add").replace_all_uses_with(node(gm, "x")), 10, id="uses"),
    pytest.param(lambda gm: gm.graph.erase_node(node(gm, "unread")), 16, id="erase"),
    pytest.param(lambda gm: gm.graph.eliminate_dead_code(), 16, id="dead code"),
    pytest.param(insert, -16, id="insert"),
    pytest.param(set_attribute("add", "name", "total"), 16, id="rename"),
    pytest.param(lambda gm: node(gm, "unread").append(node(gm, "add")), 16, id="move"),
    pytest.param(replace_graph, 15, id="new graph"),
]


@pytest.mark.parametrize(("edit", "expected"), EDITS)
def test_an_edit_takes_effect_at_the_next_use(edit: Callable[[GraphModule], None], expected: int) -> None:
    gm = sum_and_double()
    assert gm(5, 3) == 16
    code = gm.code
    edit(gm)
    assert gm(5, 3) == expected
    assert gm.code != code
    assert gm(5, 3) == expected


@pytest.mark.parametrize(("edit", "expected"), EDITS)
def test_code_shows_an_edit_before_any_call(edit: Callable[[GraphModule], None], expected: int) -> None:
    gm = sum_and_double()
    code = gm.code
    edit(gm)
    assert gm.code != code
    assert gm.forward(5, 3) == expected


def test_the_code_is_generated_once_per_edit() -> None:
    gm = sum_and_double()
    gm(1, 2)
    forward = type(gm).forward
    gm(1, 2)
    assert type(gm).forward is forward
    node(gm, "mul").target = operator.add
    node(gm, "add").target = operator.sub
    assert gm(5, 3) == 4
    assert type(gm).forward is not forward


def test_the_old_graph_no_longer_matters_once_replaced() -> None:
    gm = sum_and_double()
    old = gm.graph
    replace_graph(gm)
    assert gm(5, 3) == 15
    code = gm.code
    next(iter(old.find_nodes(op="call_function", target=operator.add))).target = operator.sub
    assert gm.code is code


def test_recompile_answers_with_the_code() -> None:
    gm = sum_and_double()
    assert gm.recompile().src == gm.code
    assert gm(5, 3) == 16


def test_one_instance_s_code_is_no_other_s() -> None:
    one, other = sum_and_double(), sum_and_double()
    node(one, "mul").target = operator.sub
    assert (one(5, 3), other(5, 3)) == (6, 16)


# ---- training, autograd


def test_trains_like_the_module_it_was_made_from() -> None:
    model = Doubled()
    gm = GraphModule(model, doubled_graph())
    x = torch.randn(4, 3)
    gm(x).sum().backward()
    assert model.linear.weight.grad is not None
    assert gm.linear is model.linear
    assert model.norm.num_batches_tracked == 1


# ---- source and errors


def test_the_source_is_where_debuggers_look() -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: x), "Shown")
    gm(1)
    forward = type(gm).forward
    filename = forward.__code__.co_filename
    assert filename.startswith("<graphwright Shown.forward")
    assert forward.__qualname__ == "Shown.forward"
    assert "".join(linecache.getlines(filename)) == gm.code
    assert inspect.getsource(gm.forward).strip() == gm.code.strip()


def test_its_file_name_says_where_the_program_is_written() -> None:
    class Doubles(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    line = inspect.getsourcelines(Doubles.forward)[1]
    symbolic = symbolic_trace(Doubles()).forward.__code__.co_filename
    assert symbolic.startswith("<graphwright Doubles.forward ")
    assert symbolic.endswith((f" from {__file__}:{line}>", f" from {__file__}:{line + 1}>"))


def test_readable_code_says_it_line_by_line() -> None:
    """Whoever looks for frames of the program's own by file names must not find the generated code's."""
    traced = trace(lambda x: x * 2, (torch.ones(2),))
    assert __file__ not in traced.forward.__code__.co_filename
    assert f"({os.path.basename(__file__)})" in traced.code


def test_the_source_goes_with_the_module() -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: x))
    gm(1)
    filename = type(gm).forward.__code__.co_filename
    alive = weakref.ref(gm)
    assert filename in linecache.cache
    del gm
    gc.collect()
    assert alive() is None
    compile_source("def f():\n    pass\n", {}, "next", "f")  # whatever is compiled next frees it
    assert filename not in linecache.cache


@pytest.mark.slow
def test_an_edit_frees_the_source_before_it() -> None:
    gm = sum_and_double()
    gm(1, 2)
    filename = type(gm).forward.__code__.co_filename
    node(gm, "mul").target = operator.add
    gm(1, 2)
    gc.collect()
    assert filename not in linecache.cache
    assert type(gm).forward.__code__.co_filename in linecache.cache


@pytest.mark.slow
def test_making_and_dropping_modules_leaves_nothing_behind() -> None:
    def use() -> None:
        gm = symbolic_trace(lambda x: torch.relu(x) + 1)
        gm(torch.ones(1))
        next(node for node in gm.graph.nodes if node.op == "call_function").target = torch.neg
        gm(torch.ones(1))

    def kept() -> tuple[int, int, int]:
        gc.collect()
        compile_source("def f():\n    pass\n", {}, "next", "f")  # frees the source of what is gone
        kinds = [type(value) for value in gc.get_objects()]
        modules = sum(issubclass(kind, GraphModule) for kind in kinds)
        return len(linecache.cache), modules, kinds.count(graphwright.Node)

    use()
    before, classes = kept(), len(GraphModule.__subclasses__())
    for _ in range(200):
        use()
    assert kept() == before
    assert len(GraphModule.__subclasses__()) == classes


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes came with Python 3.11")
def test_an_error_shows_the_user_s_line() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    with_origin = graph.call_function(torch.mm, (x, x))
    with_origin.origin = Origin("model.py", 14, "Gate.forward", "y = x @ x")
    graph.output(with_origin)
    gm = GraphModule(nn.Module(), graph)
    with pytest.raises(RuntimeError) as caught:
        gm(torch.ones(2, 3))
    assert caught.value.__notes__ == ["in the captured program: model.py:14 in Gate.forward: y = x @ x"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes came with Python 3.11")
def test_an_error_in_a_captured_program_shows_its_line() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        return torch.mm(y, y)  # the line in question

    gm = symbolic_trace(program)
    with pytest.raises(RuntimeError) as caught:
        gm(torch.ones(2, 3))
    (note,) = caught.value.__notes__
    assert note.startswith(f"in the captured program: {__file__}:")
    assert note.endswith("return torch.mm(y, y)  # the line in question")


def test_print_readable_shows_a_class(capsys: pytest.CaptureFixture[str]) -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: graph.call_function(operator.neg, (x,))), "Shown")
    expected = (
        "class Shown(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        # No stacktrace found for following nodes\n"
        "        neg = -x;  x = None\n"
        "        return neg\n"
    )  # fmt: skip
    assert gm.print_readable() == expected
    assert capsys.readouterr().out == expected + "\n"
    assert gm.print_readable(print_output=False) == expected
    assert capsys.readouterr().out == ""


def test_a_buffer_outside_the_state_dict_stays_outside() -> None:
    root = nn.Module()
    root.register_buffer("kept", torch.ones(1))
    root.register_buffer("cached", torch.ones(1), persistent=False)
    graph = Graph()
    graph.output((graph.get_attr("kept"), graph.get_attr("cached")))
    gm = GraphModule(root, graph)
    assert list(gm.state_dict()) == ["kept"]
    assert [name for name, _ in gm.named_buffers()] == ["kept", "cached"]


def test_print_readable_nests_captured_modules() -> None:
    class Leaves(Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return True

    root = nn.Sequential(symbolic_trace(lambda x: torch.relu(x)))
    text = GraphModule(root, Leaves().trace(root), "Outer").print_readable(print_output=False)
    assert text.startswith("class Outer(torch.nn.Module):\n    def forward(self, input):\n")
    assert "\n\n    class 0(torch.nn.Module):\n        def forward(self, x):\n" in text
    assert text.endswith("            return relu\n")


def test_constants_get_names_that_are_free() -> None:
    model = nn.Linear(2, 3)
    gm = graphwright.symbolic_trace(model)
    paths = [gm.add_constant(torch.ones(3), name) for name in ("scale", "scale", "weight", "inner.scale")]
    assert paths == ["scale", "scale_1", "weight_1", "inner.scale"]
    assert gm.add_constant(torch.zeros(1), "kept", persistent=True) == "kept"
    assert gm.add_constant(7) == "constant" and gm.constant == 7
    assert list(gm.state_dict()) == ["weight", "bias", "kept"]
    (output,) = gm.graph.find_nodes(op="output")
    with gm.graph.inserting_before(output):
        read = gm.graph.get_attr(paths[1])
        output.args = (gm.graph.call_function(operator.mul, (output.args[0], read)),)
    x = torch.ones(1, 2)
    assert torch.equal(gm(x), model(x))


def test_a_graph_in_the_wrong_order_is_named_where_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    gm = symbolic_trace(lambda x: torch.sin(torch.relu(x)))
    x, relu, sin, _ = gm.graph.nodes
    x.append(sin)
    with pytest.raises(GraphError, match=r"Argument 'relu' of Node 'sin' was used before it has been defined"):
        gm(torch.ones(2))
    capsys.readouterr()
    relu.append(sin)
    assert torch.equal(gm(torch.zeros(2)), torch.zeros(2))


def test_a_call_of_a_module_that_is_not_there_names_the_way_out() -> None:
    gm = symbolic_trace(nn.Linear(2, 2))
    with pytest.raises(GraphError, match=r"no attribute `nope`\n  fix: add it first: gm.add_submodule"):
        gm.graph.call_module("nope.inner")
