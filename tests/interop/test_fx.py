"""torch.fx's GraphModules become captured modules and captured modules torch.fx's, with all that they hold."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.fx
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import graphwright
from graphwright import Graph, GraphModule, GuardError, from_fx, to_fx, trace
from graphwright.analysis import costs, memory
from graphwright.errors import ExportError, GraphError
from graphwright.passes import MergeSubexpressions, ShapeProp


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = 2.0
        self.is_smooth = True
        self.register_buffer("seen", torch.zeros(3), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.linear(x) * self.scale + self.seen
        if mask is not None:
            x = x * mask
        return x.sigmoid() if self.is_smooth else x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.blocks = nn.ModuleList([Block(), self.first])
        self.norm = nn.BatchNorm1d(3)
        self.weight = nn.Parameter(torch.ones(3))
        self.shift = 0.5

    def forward(self, x: Tensor, **options: Tensor) -> dict[str, Any]:
        x = x + self.shift
        for block in self.blocks:
            x = block(x, options.get("mask"))
        x = self.norm(x) * self.weight
        return {"x": x, "parts": (x[:, 0], [x.shape[0], x[1:, ..., None]])}


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x + 1
        return self.drop(x)


def test_branches_on_the_mode_are_decided_and_checked() -> None:
    gm = trace(Noisy(), (X,))
    for mode in (False, True):
        fx = to_fx(gm.train(mode))
        assert torch.equal(fx(X) != 0, gm(X) != 0) or mode
        assert len(fx.graph.find_nodes(op="call_module", target="drop")) == 1
        with pytest.raises(GuardError, match=r"fix: give it to torch\.fx in that mode: graphwright\.to_fx\(gm\."):
            fx.train(not mode)(X)
        assert graphwright.graph(gm).has_bodies  # which is as it was
    assert from_fx(fx.train()).training


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient / 2


def test_autograd_functions_keep_their_backward_and_come_back() -> None:
    captured = trace(lambda x: Halved.apply(x) + 1, (torch.ones(2),))
    x = torch.ones(2, requires_grad=True)
    there = to_fx(captured)
    assert torch.equal(torch.autograd.grad(there(x).sum(), x)[0], torch.full((2,), 0.5))
    assert [node.target for node in from_fx(there).graph.nodes].count(Halved.apply) == 1


@dataclasses.dataclass
class Scale:
    by: float

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.by


def apply(x: Tensor, scale: Scale) -> Tensor:
    return scale(x)


def same(one: Any, other: Any) -> bool:
    leaves, others = [torch.utils._pytree.tree_flatten(value) for value in (one, other)]
    return leaves[1] == others[1] and all(
        torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in zip(leaves[0], others[0], strict=True)
    )


X = torch.randn(4, 3)
CAPTURES: dict[str, Callable[[nn.Module], GraphModule]] = {
    "trace": lambda net: trace(net, (X,)),
    "symbolic_trace": graphwright.symbolic_trace,
}


@pytest.fixture(params=CAPTURES)
def captured(request: pytest.FixtureRequest) -> GraphModule:
    net = Net().eval() if request.param == "trace" else nn.Sequential(Block().linear, nn.Tanh()).eval()
    return CAPTURES[request.param](net)


def test_a_captured_module_is_one_of_torch_fx(captured: GraphModule) -> None:
    fx = to_fx(captured)
    assert isinstance(fx, torch.fx.GraphModule) and not fx.training
    assert type(fx).__name__ == type(captured).__name__
    assert same(fx(X), captured(X))
    if fx.graph.find_nodes(op="placeholder", target="**options") == []:  # which its Interpreter takes for a list
        assert same(torch.fx.Interpreter(fx).run(X), captured(X))
    assert [*fx.state_dict()] == [*captured.state_dict()]
    for (name, one), (other_name, other) in zip(fx.named_parameters(), captured.named_parameters(), strict=True):
        assert name == other_name and one is other
    shown = [node for node in fx.graph.nodes if "graphwright_constant" not in node.meta]
    assert [(node.op, node.name) for node in shown] == [(node.op, node.name) for node in captured.graph.nodes]
    fx.graph.lint()


def test_there_and_back(captured: GraphModule) -> None:
    again = from_fx(to_fx(captured))
    assert again.code == captured.code
    assert str(again.graph) == str(captured.graph)
    assert [node.origin for node in again.graph.nodes] == [node.origin for node in captured.graph.nodes]
    assert [*again.state_dict()] == [*captured.state_dict()]
    assert same(again(X), captured(X))


def test_copies_and_pickles_of_the_result(captured: GraphModule) -> None:
    fx = to_fx(captured)
    assert same(copy.deepcopy(fx)(X), captured(X))
    assert same(pickle.loads(pickle.dumps(fx))(X), captured(X))


def test_modules_keep_their_place_and_class() -> None:
    gm = trace(Net().eval(), (X,))
    fx = to_fx(gm)
    assert fx.blocks[1] is fx.first and type(fx.first) is Block  # type: ignore[index]
    assert fx.first is not gm.first and fx.first.linear is gm.first.linear
    fx.first.linear = nn.Linear(3, 3)  # replaced there alone
    assert not same(fx(X), gm(X))


def test_guards_are_kept() -> None:
    fx = to_fx(trace(Net().eval(), (X,)))
    fx.graph.eliminate_dead_code()
    fx.recompile()
    with pytest.raises(GuardError):
        fx(X, mask=torch.ones(3))
    for module in (copy.deepcopy(copy.deepcopy(fx)), fx):
        assert len(module._forward_pre_hooks) == 1
        module(X)
        module.first.is_smooth = False
        with pytest.raises(GuardError, match="is_smooth"):
            module(X)


@pytest.mark.parametrize("mode", [True, False])
def test_a_mode_that_decided_branches_is_looked_at_again_and_again(mode: bool) -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if self.training else x

    model = nn.Sequential(Inner(), Inner()).train(mode)
    fx = to_fx(trace(model, (X,)))
    for _ in range(2):
        gm = from_fx(fx)
        for module in (gm, copy.deepcopy(gm), to_fx(gm)):
            assert same(module(X), model(X))
            module.get_submodule("1").train(not mode)
            with pytest.raises(GuardError):
                module(X)
            module.train(mode)
        fx = to_fx(gm)


def test_a_guard_of_an_input_is_kept() -> None:
    fx = to_fx(trace(Block(), (X,)))
    fx.graph.eliminate_dead_code()
    with pytest.raises(GuardError, match="mask"):
        copy.deepcopy(fx)(X, torch.ones(3))


def test_arguments_that_torch_fx_cannot_write() -> None:
    scale = Scale(3.0)
    graph = graphwright.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(apply, (x, scale)), graph.call_function(apply, (x,), {"scale": scale})))
    gm = GraphModule(nn.Module(), graph)
    fx = to_fx(gm)
    assert same(fx(X), (X * 3, X * 3)) and len(fx.graph.find_nodes(op="get_attr")) == 2
    again = from_fx(fx)
    assert str(again.graph) == str(gm.graph) and not again.graph.find_nodes(op="get_attr")


def test_numbers_of_numpy_are_no_literals() -> None:
    graph = graphwright.Graph()
    graph.output(graph.call_function(operator.mul, (graph.placeholder("x"), numpy.float64(0.5))))
    assert torch.equal(to_fx(GraphModule(nn.Module(), graph))(X), X * 0.5)


def positive(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + 1


@pytest.mark.parametrize(
    ("program", "message"),
    [
        pytest.param(positive, r"no cond: node cond\n  at .*x \* 2 if x.sum\(\) > 0", id="a branch"),
        pytest.param(Counting(), r"write no attributes: 'calls'\n  at Counting.forward", id="a write"),
    ],
)
def test_what_torch_fx_cannot_say_is_refused(program: Any, message: str) -> None:
    gm = trace(program, (X,))
    with pytest.raises(ExportError, match=message):
        to_fx(gm)


# ---- from torch.fx


def test_a_module_of_torch_fx_is_captured_as_it_is() -> None:
    net = nn.Sequential(Block().linear, nn.Dropout(), nn.Tanh()).train()
    fx = torch.fx.symbolic_trace(net)
    list(fx.graph.nodes)[1].meta["tag"] = 1
    fx.meta["of"] = "the module"
    seen: list[Any] = []
    fx.register_forward_hook(lambda module, args, result: seen.append(result))
    gm = from_fx(fx)
    assert gm.training and gm.meta["of"] == "the module"
    assert [(node.op, node.name, node.target) for node in gm.graph.nodes] == [
        (node.op, node.name, node.target) for node in fx.graph.nodes
    ]
    assert next(node for node in gm.graph.nodes if node.op == "call_module").meta["tag"] == 1
    assert gm.get_parameter("0.weight") is net[0].weight
    gm.eval()
    result = gm(X)
    assert seen[-1] is result and torch.equal(result, net.eval()(X))


def test_aten_graphs() -> None:
    fx = make_fx(lambda x, y: [(x @ y).relu(), x.sum(0)], tracing_mode="symbolic")(X, X.t())
    gm = from_fx(fx)
    assert same(gm(X, X.t()), fx(X, X.t()))
    assert [node.meta["val"] for node in gm.graph.nodes if "val" in node.meta]
    MergeSubexpressions().run(gm)
    assert same(gm(X, X.t()), fx(X, X.t()))


def test_arguments_with_a_structure() -> None:
    def program(values: dict[str, Any]) -> list[Tensor]:
        return [values["a"] + values["b"][0]]

    placed = {"values": {"a": torch.fx.PH, "b": (torch.fx.PH,)}}
    fx = torch.fx.symbolic_trace(program, concrete_args=placed)
    gm = from_fx(fx)
    given = {"a": X, "b": (X,)}
    assert same(gm(given), fx(given))
    assert same(to_fx(gm)(given), fx(given))


def test_modules_of_torch_fx_inside_become_captured_modules() -> None:
    from torch.fx.passes.split_module import split_module

    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    parts = split_module(torch.fx.symbolic_trace(model), model, lambda node: int(node.name[1:] or 0) // 2)
    gm = from_fx(parts)
    assert all(isinstance(child, GraphModule) for child in gm.children())
    assert torch.equal(gm(X), model(X))


def test_code_in_a_way_of_its_own_is_refused() -> None:
    class Own(torch.fx.graph.CodeGen):
        pass

    fx = torch.fx.symbolic_trace(nn.ReLU())
    fx.graph.set_codegen(Own())
    with pytest.raises(ExportError, match="Own, which the other system does not have"):
        from_fx(fx)


# ---- where one is only looked at


@pytest.fixture
def fx() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)))


def test_functions_that_return_something_take_one(fx: torch.fx.GraphModule) -> None:
    assert torch.equal(graphwright.Interpreter(fx).run(X), fx(X))
    assert costs(fx, X).total.parameters == 32
    assert memory(fx, (X,)).peak > 0
    assert torch.equal(graphwright.split(fx, parts=2).module(X), fx(X))
    assert torch.equal(graphwright.extract(fx, ["1"])(X)["1"], fx.get_submodule("0")(X).relu())
    assert graphwright.verify(fx, from_fx(fx), [X]).ok


def test_what_is_noted_is_noted_in_the_module_itself(fx: torch.fx.GraphModule) -> None:
    ShapeProp(fx).propagate(X)
    shapes = [tuple(node.meta["tensor_meta"].shape) for node in fx.graph.nodes]
    assert shapes == [(4, 3), (4, 5), (4, 5), (4, 2), (4, 2)]


def test_what_edits_a_module_says_how_to_get_one(fx: torch.fx.GraphModule) -> None:
    with pytest.raises(GraphError, match=r"fix: gm = graphwright\.from_fx\(module\)"):
        MergeSubexpressions().run(fx)


def test_one_can_be_captured(fx: torch.fx.GraphModule) -> None:
    for gm in (trace(fx, (X,)), graphwright.symbolic_trace(fx)):
        assert torch.equal(gm(X), fx(X)) and [*gm.state_dict()] == [*fx.state_dict()]


def test_what_torch_fx_has_not_made_is_refused() -> None:
    with pytest.raises(ExportError, match=r"a Linear is no torch\.fx\.GraphModule"):
        from_fx(nn.Linear(2, 2))  # type: ignore[arg-type]


CODE = 'getattr(__import__("os"), "abort")()'  # without a dot, so that a path may hold it


@pytest.mark.parametrize("name", [f"a=({CODE}), b", f"a=1)\n{CODE}\n#", "class", "a b", ""])
def test_keywords_that_are_no_names_are_refused(name: str) -> None:
    graph = Graph()
    graph.output(graph.call_function(dict, (), {name: graph.placeholder("x")}))
    assert GraphModule(nn.Module(), graph)(1) == {name: 1}
    with pytest.raises(ExportError, match="writes names into its code as they are"):
        graphwright.to_fx(GraphModule(nn.Module(), graph))


@pytest.mark.parametrize("name", [f'a", {CODE}) or ("', 'a"', "a\\", "a\nb"])
@pytest.mark.parametrize("op", ["call_module", "get_attr"])
def test_paths_that_end_the_quotes_of_torch_fx_are_refused(op: str, name: str) -> None:
    model, graph = nn.Module(), Graph()
    model.add_module(name, nn.ReLU()) if op == "call_module" else model.register_buffer(name, torch.ones(2))
    x = graph.placeholder("x")
    graph.output(graph.create_node(op, name, (x,) if op == "call_module" else ()))
    assert GraphModule(model, graph)(torch.ones(2)).equal(torch.ones(2))
    with pytest.raises(ExportError, match="writes names into its code as they are"):
        graphwright.to_fx(GraphModule(model, graph))


def test_paths_that_torch_fx_can_quote_are_written() -> None:
    model = nn.Sequential()
    model.add_module("a-b {x} 'c' é", nn.ReLU())
    assert graphwright.to_fx(graphwright.symbolic_trace(model))(torch.ones(2)).equal(torch.ones(2))
