"""Copies: copy, deepcopy, pickle and torch.save give modules that are equal and stand alone."""

from __future__ import annotations

import copy
import functools
import io
import math
import operator
import os
import pickle
import subprocess
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from tests.random_programs import outcome, programs
from tests.runtime.programs import Doubled, Helpers, Mode, Named, Pair, doubled_graph, graph_of, reduced, scaled
from torch import nn

import graphwright
from graphwright import Graph, GraphModule, Interpreter, Node, symbolic_trace
from graphwright.codegen import graph_to_source
from graphwright.errors import GraphError
from graphwright.ir import Namespace, Origin, immutable_dict, immutable_list
from graphwright.passes import ShapeProp
from graphwright.runtime.pickling import _Use, graph_to_record, record_to_graph

ROOT = Path(__file__).parents[2]


def through_pickle(gm: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(gm, protocol))


def through_torch_save(gm: Any) -> Any:
    file = io.BytesIO()
    torch.save(gm, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: list[Any] = [
    pytest.param(copy.deepcopy, id="deepcopy"),
    pytest.param(through_pickle, id="pickle"),
    pytest.param(functools.partial(through_pickle, protocol=2), id="pickle protocol 2"),
    pytest.param(through_torch_save, id="torch.save"),
]
Copy = Callable[[Any], Any]


def facts(gm: GraphModule) -> list[tuple[Any, ...]]:
    """What a copy must keep of every node."""
    return [
        (n.name, n.op, n.target, str(n.args), str(n.kwargs), n.type, dict(n.meta), n.origin, list(map(str, n.users)))
        for n in gm.graph.nodes
    ]


def annotated() -> GraphModule:
    """The graph of `Doubled` with types, meta and origins on its nodes."""
    gm = GraphModule(Doubled(), doubled_graph(), "Annotated")
    for number, node in enumerate(gm.graph.nodes):
        node.type = torch.Tensor
        node.meta["number"] = number
        node.meta["classes"] = [("linear", nn.Linear), {"deep": (Mode.SUM, torch.float32)}]
        node.origin = Origin("model.py", 14, "Doubled.forward", "y = linear(x)", module="linear", module_type=nn.Linear)
    gm.graph.meta["note"] = ["kept"]
    return gm


@pytest.mark.parametrize("make_copy", COPIES)
def test_a_copy_is_equal(make_copy: Copy) -> None:
    gm = annotated()
    x = torch.randn(4, 3)
    copied = make_copy(gm)
    assert facts(copied) == facts(gm)
    assert copied.code == gm.code
    assert copied.graph.meta == {"note": ["kept"]}
    assert copied.graph.owning_module is copied
    assert type(copied).__name__ == "Annotated"
    assert copied.training is gm.training
    copied.graph.lint()
    assert torch.equal(copied.eval()(x), gm.eval()(x))
    state, other = gm.state_dict(), copied.state_dict()
    assert list(state) == list(other)
    assert all(torch.equal(state[name], other[name]) for name in state)


def run_nodes(graph: Graph) -> Callable[..., Any]:
    return lambda root, *args, **kwargs: Interpreter(root, graph=graph).run(*args, **kwargs)


@pytest.mark.slow
@given(programs(with_origins=True))
def test_random_graphs_come_back_from_pickle(graph: Graph) -> None:
    loaded = record_to_graph(pickle.loads(pickle.dumps(graph_to_record(graph))))
    assert str(loaded) == str(graph)
    assert [node.origin for node in loaded.nodes] == [node.origin for node in graph.nodes]
    assert graph_to_source(loaded).src == graph_to_source(graph).src
    loaded.lint()
    assert outcome(run_nodes(loaded), loaded) == outcome(run_nodes(graph), graph)


@pytest.mark.parametrize("make_copy", COPIES)
def test_a_copy_stands_alone(make_copy: Copy) -> None:
    gm = annotated().eval()
    x = torch.randn(4, 3)
    before, expected = facts(gm), gm(x)
    state = {name: tensor.clone() for name, tensor in gm.state_dict().items()}
    copied = make_copy(gm).train()
    pointers = {tensor.data_ptr() for tensor in gm.state_dict().values()}
    assert not any(tensor.data_ptr() in pointers for tensor in copied.state_dict().values())

    copied(x).sum().backward()
    torch.optim.SGD(copied.parameters(), lr=1.0).step()
    node = next(node for node in copied.graph.nodes if node.op == "call_function")
    node.target, node.meta["number"] = operator.sub, -1
    copied.graph.erase_node(copied.graph.output_node())
    copied.graph.output(node, type_expr=int)

    assert facts(gm) == before
    assert torch.equal(gm(x), expected)
    assert all(torch.equal(state[name], tensor) for name, tensor in gm.state_dict().items())
    assert gm.linear.weight.grad is None
    assert not gm.training


@pytest.mark.parametrize("make_copy", COPIES)
def test_a_copy_gives_the_names_that_the_original_would(make_copy: Copy) -> None:
    gm = symbolic_trace(lambda x: torch.relu(torch.relu(x)) + 1)
    copied = make_copy(gm)
    names = []
    for graph in (gm.graph, copied.graph):
        x = next(iter(graph.nodes))
        names.append([graph.call_function(torch.relu, (x,)).name for _ in range(2)])
    assert names[0] == names[1] == ["relu_2", "relu_3"]


@pytest.mark.parametrize("make_copy", [*COPIES, pytest.param(copy.copy, id="copy")])
def test_a_subclass_stays_one(make_copy: Copy) -> None:
    named = Named(Doubled(), doubled_graph(), title="mine")
    copied = make_copy(named)
    assert isinstance(copied, Named)
    assert type(copied).__bases__ == (Named,)
    assert copied.greeting() == "this is mine"


@pytest.mark.parametrize("make_copy", COPIES)
def test_tied_parameters_stay_tied(make_copy: Copy) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5)
            self.head.weight = self.embed.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.embed(x))

    copied = make_copy(symbolic_trace(Tied()))
    assert copied.head.weight is copied.embed.weight


def test_copy_shares_parameters_but_not_the_program() -> None:
    gm = annotated().eval()
    x = torch.randn(4, 3)
    expected = gm(x)
    copied = copy.copy(gm)
    assert copied.linear is gm.linear
    assert copied.graph is not gm.graph
    next(node for node in copied.graph.nodes if node.op == "call_function").target = operator.sub
    assert torch.equal(gm(x), expected)
    assert torch.equal(copied(x), expected / 2 - 2)
    copied.extra = nn.Linear(1, 1)
    assert not hasattr(gm, "extra")


def test_deepcopy_of_a_graph_stands_alone() -> None:
    graph = doubled_graph()
    text = str(graph)
    copied = copy.deepcopy(graph)
    assert str(copied) == text
    next(node for node in copied.nodes if node.op == "call_function").target = operator.sub
    assert str(graph) == text


# ---- what pickle can refer to


TARGETS: list[Any] = [
    pytest.param(torch.relu, (), id="torch function"),
    pytest.param(torch.nn.functional.gelu, (), id="functional"),
    pytest.param(torch.ops.aten.relu.default, (), id="operator overload"),
    pytest.param(torch.Tensor.add, (1,), id="method of a class"),
    pytest.param(operator.mul, (2,), id="operator"),
    pytest.param(scaled, (3.0,), id="user function"),
    pytest.param(Helpers.shifted, (), id="static method"),
    pytest.param(Helpers.halved, (), id="class method"),
    pytest.param(functools.partial(scaled, factor=4.0), (), id="partial"),
    pytest.param(reduced, (Mode.MEAN,), id="enum argument"),
    pytest.param(getattr, ("shape",), id="getattr"),
]


@pytest.mark.parametrize(("target", "args"), TARGETS)
def test_targets_come_back(target: Any, args: tuple[Any, ...]) -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: graph.call_function(target, (x, *args))))
    x = torch.randn(2, 3)
    loaded = through_pickle(gm)
    assert torch.equal(torch.as_tensor(loaded(x)), torch.as_tensor(gm(x)))
    ours, theirs = list(gm.graph.nodes)[1].target, list(loaded.graph.nodes)[1].target
    assert theirs == ours or isinstance(ours, functools.partial)


def test_arguments_keep_their_types() -> None:
    values = (
        slice(1, None, 2), [1, (2.5, None)], {"key": [True]}, torch.float16, torch.device("cpu"), ..., 1j, "text",
        Pair(1, 2), torch.Size([2, 3]), range(3), Mode.SUM, torch.channels_last, float("inf"),
    )  # fmt: skip
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: (x, values)))
    loaded = through_pickle(gm)
    kept = loaded.graph.output_node().args[0][1]
    assert kept == gm.graph.output_node().args[0][1]
    assert [type(value) for value in kept] == [type(value) for value in gm.graph.output_node().args[0][1]]
    with pytest.raises(TypeError):
        kept[1].append(3)


def local_function() -> Callable[[Any], Any]:
    def inner(x: Any) -> Any:
        return x

    return inner


REFUSED = [
    pytest.param(
        lambda x: x,
        "cannot save node 'y': the target, <lambda> ({file}:{line}), does not pickle: it is a lambda\n"
        "  at model.py:14 in f: y = g(x)\n"
        "  fix: make it a function with a name, at the top level of a module",
        id="lambda",
    ),
    pytest.param(
        local_function(),
        "cannot save node 'y': the target, local_function.<locals>.inner ({file}:{line}), does not pickle: "
        "it is defined inside a function, local_function\n"
        "  at model.py:14 in f: y = g(x)\n"
        "  fix: move the function to the top level of a module",
        id="local function",
    ),
]


@pytest.mark.parametrize(("target", "message"), REFUSED)
def test_an_unpicklable_target_is_named(target: Any, message: str) -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: graph.call_function(target, (x,), name="y")))
    next(node for node in gm.graph.nodes if node.op == "call_function").origin = Origin("model.py", 14, "f", "y = g(x)")
    with pytest.raises(GraphError) as caught:
        pickle.dumps(gm)
    assert str(caught.value) == message.format(file=__file__, line=target.__code__.co_firstlineno)


def test_a_local_class_is_named() -> None:
    class Local(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1

    with pytest.raises(GraphError, match=r"cannot save this Local: its class, .*\.Local, is defined inside a function"):
        pickle.dumps(graphwright.trace(Local(), (torch.ones(2),)))
    assert pickle.loads(pickle.dumps(symbolic_trace(Local())))(1) == 2


def test_an_unpicklable_argument_is_named() -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: graph.call_function(scaled, (x, (i for i in [1])))))
    with pytest.raises(GraphError, match="cannot save node 'scaled': an argument, an object of type generator"):
        pickle.dumps(gm)


def test_unpicklable_meta_is_named() -> None:
    gm = annotated()
    next(iter(gm.graph.nodes)).meta["hook"] = {"call": lambda: None}
    with pytest.raises(
        GraphError, match=r"cannot save node 'x': a value in meta, .*<lambda> .*, does not pickle: it is a lambda"
    ):
        pickle.dumps(gm)


def test_classes_in_meta_need_not_be_importable() -> None:
    class Inner(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(x)

    gm = symbolic_trace(nn.Sequential(Inner()))
    relu = next(node for node in through_pickle(gm).graph.nodes if node.op == "call_function")
    ((path, kind),) = relu.meta["nn_module_stack"].values()
    assert (path, kind.__name__) == ("0", "Inner")
    assert kind.__qualname__ == Inner.__qualname__
    assert relu.origin.module_type is kind


def test_a_record_of_a_later_format_is_refused() -> None:
    with pytest.raises(GraphError, match="the graph was saved in format 99, this version reads up to 2"):
        record_to_graph({"format": 99})


def test_a_record_of_format_1_is_read() -> None:
    origin = ("model.py", 14, "f", "y = -x", 14, "y", "", None, 0, None, None, ())
    rows = [
        ("x", "placeholder", "x", (), {}, torch.Tensor, None, None),
        ("neg", "call_function", operator.neg, (_Use(0),), {}, None, {"note": [1]}, origin),
        ("clamp", "call_method", "clamp", (_Use(1),), {"max": _Use(0)}, None, None, None),
        ("output", "output", "output", (immutable_list([_Use(2), immutable_dict(x=_Use(0))]),), {}, None, None, origin),
    ]
    names = Namespace()
    names.take("x", "neg", "clamp", "output")
    rest = dict.fromkeys(("meta", "codegen", "tracer_cls", "tracer_extras"))
    record = {"format": 1, "nodes": rows, "names": names, "constants": {}, **rest}
    graph = record_to_graph(pickle.loads(pickle.dumps(record)))
    graph.lint()
    x, neg, clamp, output = graph.nodes
    assert (neg.args, clamp.args, clamp.kwargs) == ((x,), (neg,), {"max": x})
    assert output.args == ([clamp, {"x": x}],)
    assert (x.type, neg.meta, x.meta) == (torch.Tensor, {"note": [1]}, {})
    assert [node.origin for node in graph.nodes] == [None, Origin(*origin), None, Origin(*origin)]
    assert list(x.users) == [neg, clamp, output]


def test_meta_of_many_kinds_comes_back() -> None:
    class Local(nn.Module):
        pass

    gm = annotated()
    ShapeProp(gm.eval()).propagate(torch.randn(4, 3))
    node = next(node for node in gm.graph.nodes if "tensor_meta" in node.meta)
    node.meta["pair"] = Pair(1, [Pair("deep", Mode.SUM)])
    node.meta["nn_module_stack"] = OrderedDict(l=("l", Local), m=("m", nn.Linear))
    meta = next(other for other in through_pickle(gm).graph.nodes if other.name == node.name).meta
    stack = meta.pop("nn_module_stack")
    assert type(stack) is OrderedDict
    assert stack["l"][1].__qualname__ == Local.__qualname__
    assert stack["m"] == ("m", nn.Linear)
    assert meta == {key: value for key, value in node.meta.items() if key != "nn_module_stack"}
    assert type(meta["pair"]) is Pair
    node.meta["pair"] = Pair(1, lambda: None)
    with pytest.raises(GraphError, match=f"cannot save node '{node.name}': a value in meta"):
        pickle.dumps(gm)


def test_nodes_from_the_same_place_come_back_so() -> None:
    gm = symbolic_trace(lambda x: x + 1 + 2 + 3)
    loaded = through_pickle(gm)
    assert [node.origin for node in loaded.graph.nodes] == [node.origin for node in gm.graph.nodes]


def test_a_captured_module_with_our_names_keeps_its_own() -> None:
    gm = graphwright.trace(Owner(), (torch.ones(2),))
    for make_copy in (copy.deepcopy, through_pickle, copy.copy):
        copied = make_copy(gm)
        assert copied.graph == "a name of the user"
        assert isinstance(copied, Owner)
        assert torch.equal(copied(torch.ones(2)), torch.full((2,), 2.0))
        copied.to_the_user = 1
        assert not hasattr(gm, "to_the_user")


class Owner(nn.Module):
    """Uses a name of ours for its own."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = "a name of the user"

    def forward(self, x: Any) -> Any:
        return x * 2


# ---- another process


@pytest.mark.slow
def test_loads_in_a_fresh_process(tmp_path: Path) -> None:
    gm = annotated().eval()
    x = torch.randn(4, 3)
    torch.save(gm, tmp_path / "module.pt")
    torch.save((x, gm(x)), tmp_path / "values.pt")
    code = (
        "import torch\n"
        "gm = torch.load('module.pt', weights_only=False)\n"
        "x, y = torch.load('values.pt')\n"
        "assert torch.equal(gm(x), y)\n"
        "node = [node for node in gm.graph.nodes if node.op == 'call_function'][0]\n"
        "print(type(gm).__name__, node.meta['number'], node.origin)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "Annotated 3 model.py:14 in Doubled.forward: y = linear(x)\n", done.stderr


def test_nodes_of_the_copy_are_its_own() -> None:
    gm = annotated()
    mine = set(gm.graph.nodes)
    for make_copy in (copy.deepcopy, through_pickle, copy.copy):
        nodes: list[Node] = list(make_copy(gm).graph.nodes)
        assert not mine & set(nodes)
        assert all(node.graph is nodes[0].graph for node in nodes)
        assert isinstance(nodes[0].graph, Graph)


class Locked(nn.Module):
    """What cannot be copied is left out of copies by its class, and made again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.lock = threading.Lock()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
@pytest.mark.parametrize("make", [Locked, lambda: nn.LSTM(2, 2)])
def test_copies_are_made_as_the_class_says(make: Any, copied: Any) -> None:
    model, x = make(), torch.ones(1, 1, 2)
    gm = graphwright.trace(model, (x,))
    again = copied(gm)
    assert type(again).__mro__[1:] == type(gm).__mro__[1:]
    assert torch.equal(*(torch.cat([part.reshape(-1) for part in leaves(each(x))]) for each in (again, gm)))
    if isinstance(model, nn.LSTM):
        assert again._flat_weights[0] is again.weight_ih_l0
        assert again._flat_weight_refs[0]() is again.weight_ih_l0
    else:
        assert again.lock is not gm.lock


def leaves(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [leaf for part in value for leaf in leaves(part)]


class Caching(nn.Module):
    """Keeps in evaluation what it has computed of its parameters, as LeViT does: torch does not copy such tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.index, self.kept = nn.Parameter(torch.randn(2, 3)), torch.tensor([2, 0]), dict[str, Any]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = str(x.device)
        if key not in self.kept:
            self.kept[key] = self.weight[:, self.index]
        return x @ self.kept[key]


def test_what_modules_have_computed_is_copied() -> None:
    model, x = Caching().eval(), torch.ones(3, 2)
    expected = model(x)
    gm = graphwright.trace(model, (torch.ones(1, 2),))
    gm.itself = [gm.kept]
    gm.itself.append(gm.itself)
    again = copy.deepcopy(gm)
    assert torch.equal(again(x), expected)
    assert again.itself[0] is again.kept
    assert again.itself[1] is again.itself
    assert again.kept["cpu"] is not model.kept["cpu"]
    assert not again.kept["cpu"].requires_grad
    assert model.kept["cpu"].requires_grad


@pytest.mark.parametrize("number", [[2.5, math.nan], {"a": math.nan}])
def test_a_nan_that_was_pickled_is_the_one_that_was_there(number: Any) -> None:
    model = Holder(types.SimpleNamespace(scale=number, alone=math.nan))
    again = pickle.loads(pickle.dumps(graphwright.trace(model, (torch.ones(1),))))
    assert again(torch.ones(1)).isnan().item()


class Holder(nn.Module):
    def __init__(self, box: Any) -> None:
        super().__init__()
        self.box = box

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(self.box.scale) * self.box.alone


def test_memory_formats_are_saved_by_torch(tmp_path: Path) -> None:
    x = torch.randn(1, 2, 3, 3)
    gm = graphwright.trace(lambda x: x.to(memory_format=torch.channels_last) * 2, x)
    graphwright.passes.ShapeProp(gm).propagate(x)
    torch.save(gm, tmp_path / "gm.pt")  # by a protocol in which torch's own formats do not pickle
    loaded = torch.load(tmp_path / "gm.pt", weights_only=False)
    assert loaded(x).stride() == gm(x).stride()
    metas = [[node.meta.get("tensor_meta") for node in each.graph.nodes] for each in (gm, loaded)]
    assert metas[0] == metas[1]
