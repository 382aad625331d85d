"""Which values share memory and what nodes read and write: by name, and against what runs do."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import GraphError, GraphModule, Interpreter, Node
from graphwright.analysis import Effects, tensors_in


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("count", torch.zeros(()))
        self.head = nn.Linear(4, 4)
        self.head.weight = self.linear.weight
        self.last: Any = None

    def forward(self, x: Tensor, y: Tensor) -> Any:
        self.count += 1
        hidden = self.norm(self.linear(x)) * self.scale
        rows = hidden.view(-1, 2)
        rows.add_(1)
        noisy = nn.functional.dropout(hidden, 0.5, self.training)
        drawn = noisy + torch.rand(4)
        kept = torch.where(y > 0, y, drawn)
        self.last = kept
        return self.head(kept), y.t(), hidden


def captured() -> tuple[GraphModule, Effects, dict[str, Node]]:
    gm = graphwright.trace(Model(), (torch.randn(3, 4), torch.randn(3, 4)))
    return gm, Effects(gm), {node.name: node for node in gm.graph.nodes}


def texts(places: Any) -> list[str]:
    return sorted(map(str, places))


def test_tables_that_keep_their_norm_are_written_by_their_lookup() -> None:
    model = nn.Sequential(nn.Embedding(4, 3, max_norm=1.0))
    gm = graphwright.trace(model, torch.tensor([1, 2]))
    table = next(node for node in gm.graph.nodes if node.op == "call_module")
    assert texts(Effects(gm).writes(table)) == ["parameter 0.weight"]


def test_checks_write_nothing() -> None:
    def program(x: Tensor) -> Tensor:
        torch._assert(x.sum() > 0, "none is left")
        return x + 1

    gm = graphwright.trace(program, torch.ones(3))
    check = next(node for node in gm.graph.nodes if node.target is torch._assert)
    assert texts(Effects(gm).writes(check)) == []
    assert not Effects(gm).is_pure(check), "it stays"


def test_what_nodes_read_and_write() -> None:
    _, effects, nodes = captured()
    by_kind = {str(getattr(node.target, "__name__", node.target)): node for node in nodes.values()}
    norm = [f"norm.{name}" for name in ("num_batches_tracked", "running_mean", "running_var")]
    assert texts(effects.writes(by_kind["norm"])) == [f"buffer {name}" for name in norm]
    assert texts(effects.reads(by_kind["norm"])) == sorted(
        [*(f"buffer {name}" for name in norm), "parameter norm.bias", "parameter norm.weight", "value linear"]
    )
    counts = [node for node in nodes.values() if "buffer count" in texts(effects.writes(node))]
    assert [node.target for node in counts] == [__import__("operator").iadd]
    assert texts(effects.writes(by_kind["add_"])) == ["value hidden"]
    assert texts(effects.writes(by_kind["rand"])) == ["random"]
    assert texts(effects.writes(by_kind["write_attribute"])) == ["attribute last"]
    assert effects.is_pure(by_kind["where"])
    assert not effects.writes(by_kind["where"])
    assert not any(effects.is_pure(by_kind[name]) for name in ("norm", "add_", "rand", "write_attribute"))


def test_memory_and_what_may_change_places() -> None:
    gm, effects, nodes = captured()
    hidden, rows, drawn, x, y = (nodes[name] for name in ("hidden", "rows", "drawn", "x", "y"))
    assert texts(effects.memory(rows)) == ["value hidden"]
    assert effects.may_share_memory(rows, hidden)
    assert not effects.may_share_memory(drawn, hidden)
    assert effects.may_share_memory(x, y), "one tensor may be given twice"
    scale, weight = nodes["scale"], gm.graph.get_attr("head.weight")
    other, same = gm.graph.get_attr("linear.bias"), gm.graph.get_attr("linear.weight")
    assert effects.may_share_memory(weight, same), "tied"
    assert not effects.may_share_memory(scale, other), "two parameters"
    assert effects.may_share_memory(scale, x), "a parameter may be given as input"
    add = next(node for node in gm.graph.nodes if node.target == "add_")
    rand = next(node for node in gm.graph.nodes if node.target is torch.rand)
    dropout = nodes["noisy"]
    assert str(effects.conflict(add, dropout)) == "value hidden"
    assert str(effects.conflict(rand, dropout)) == "random"
    assert effects.conflict(add, rand) is None
    assert effects.conflict(drawn, rows) is None


def test_what_is_between() -> None:
    _, effects, nodes = captured()
    hidden, kept = nodes["hidden"], nodes["kept"]
    assert [node.name for node in effects.on_the_way(hidden, kept)] == ["noisy", "drawn"]
    between = effects.between(hidden, kept)
    assert between[0] is hidden.next
    assert between[-1].next is kept
    assert effects.between(hidden, hidden) == []


def branching(x: Tensor, y: Tensor) -> Any:
    if x.sum() > 0:
        x.mul_(2)
        z = y.view(-1)
    else:
        z = y.clone().view(-1)
    for _ in range(3):
        z = z[1:]
    return z


def test_branches_and_loops() -> None:
    gm = graphwright.trace(branching, (torch.ones(2, 3), torch.ones(2, 3)))
    effects = Effects(gm)
    branch = next(node for node in gm.graph.nodes if getattr(node.target, "__name__", "") == "cond")
    inner = next(node for node in gm.graph.all_nodes() if node.target == "mul_")
    assert texts(effects.writes(inner)) == texts(effects.writes(branch))
    assert "input x" in texts(effects.writes(branch))
    last = gm.graph.output_node()
    y = next(node for node in gm.graph.nodes if node.target == "y")
    assert effects.may_share_memory(last, y)
    assert not effects.is_pure(branch)


def test_what_is_not_known_may_be_anything() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.add_(1)

    gm = graphwright.trace(nn.Sequential(Own(), nn.ReLU()), (torch.ones(2),), leaf_modules=[Own])
    effects = Effects(gm)
    own, relu = (node for node in gm.graph.nodes if node.op == "call_module")
    assert "unknown" in texts(effects.writes(own))
    assert effects.conflict(own, relu) is not None
    assert not effects.is_pure(own)


def test_classes_that_hold_what_they_are_given_write_nothing() -> None:
    graph = graphwright.Graph()
    x = graph.placeholder("x")
    record = graph.call_function(collections.OrderedDict, (), {"x": x})
    other = graph.call_function(pytest.approx, (x,))
    graph.output((record, other))
    effects = Effects(GraphModule(nn.Module(), graph))
    assert not effects.writes(record)
    assert texts(effects.writes(other)) == ["input x", "unknown"]


def test_answers_follow_edits() -> None:
    gm = graphwright.symbolic_trace(lambda x: x.neg().view(-1))
    x, neg, view, _ = gm.graph.nodes
    effects = Effects(gm)
    assert not effects.may_share_memory(view, x)
    neg.target, neg.args = "t", (x,)
    assert effects.may_share_memory(view, x)


def test_wrong_questions() -> None:
    gm = graphwright.symbolic_trace(lambda x: x.neg().view(-1))
    _, neg, view, _ = gm.graph.nodes
    effects = Effects(gm)
    with pytest.raises(GraphError, match="neg does not come after view"):
        effects.between(view, neg)
    other = next(iter(graphwright.symbolic_trace(lambda x: x).graph.nodes))
    for ask in (effects.memory, effects.reads, effects.writes, effects.is_pure):
        with pytest.raises(GraphError, match="x is no node of the module"):
            ask(other)


class _Watch(Interpreter):
    """Runs node by node, and notes what each node changed and which values share memory."""

    def __init__(self, gm: Any) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.changed: dict[Node, set[Node]] = {}

    def run_node(self, n: Node) -> Any:
        before = {node: [t._version for t in tensors_in(value)] for node, value in self.env.items()}
        result = super().run_node(n)
        self.changed[n] = {
            node for node, value in self.env.items() if before[node] != [t._version for t in tensors_in(value)]
        }
        return result


def programs() -> list[Any]:
    def views(x: Tensor, y: Tensor) -> Any:
        a = x.view(-1)
        b = a[1:3]
        b += 1
        c = x.reshape(2, -1).t().contiguous()
        c.relu_()
        d, e = torch.split(y, 1)
        f = torch.cat([d, e]).unsqueeze(0)
        f[0] = 2
        return a, b, c, f.expand(2, 2, -1), d.detach()

    def functions(x: Tensor, y: Tensor) -> Any:
        out = torch.empty_like(x)
        torch.add(x, y, out=out)
        z = nn.functional.relu(out, inplace=True)
        w = torch.nn.functional.dropout(z, 0.0, True, False)
        return z.transpose(0, 1), w.unbind(0), out.chunk(2, -1)

    return [views, functions]


@pytest.mark.parametrize("program", programs())
def test_nothing_happens_that_is_not_told(program: Any) -> None:
    args = torch.randn(2, 4), torch.randn(2, 4)
    gm = graphwright.trace(program, args)
    effects = Effects(gm)
    run = _Watch(gm)
    run.run(*args)
    nodes = [node for node in gm.graph.nodes if node.op != "output"]
    storages = {n: {t.untyped_storage()._cdata for t in tensors_in(run.env[n])} for n in nodes}
    for one in nodes:
        for other in nodes:
            if not storages[one].isdisjoint(storages[other]):
                assert effects.may_share_memory(one, other), (one, other)
    shared = sum(effects.may_share_memory(one, other) for one in nodes for other in nodes)
    assert shared < len(nodes) ** 2, "everything shares with everything: that tells nothing"
    for node, changed in run.changed.items():
        for other in changed:
            assert any(place in effects.memory(other) for place in effects.writes(node)), (node, other)
