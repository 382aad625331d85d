"""The log of edits: every kind of edit is in it, and it costs a graph nothing once it is gone."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable

import pytest

from graphwright import Graph, Node
from graphwright.ir import EditLog, GraphSnapshot


def chain() -> tuple[Graph, Node, Node, Node]:
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.call_function(operator.neg, (x,))
    z = graph.call_function(operator.add, (y, 1))
    graph.output(z)
    return graph, x, y, z


def rename(graph: Graph, x: Node, y: Node, z: Node) -> None:
    y.name = "other"


EDITS = [
    pytest.param(lambda g, x, y, z: setattr(z, "args", (x, 2)), {"add"}, id="arguments"),
    pytest.param(lambda g, x, y, z: z.insert_arg(0, x), {"add"}, id="an argument more"),
    pytest.param(lambda g, x, y, z: setattr(z, "target", operator.sub), {"add"}, id="target"),
    pytest.param(lambda g, x, y, z: y.replace_all_uses_with(x), {"add"}, id="uses"),
    pytest.param(lambda g, x, y, z: g.call_function(operator.neg, (z,)), {"neg_1"}, id="made"),
    pytest.param(lambda g, x, y, z: z.append(y), {"neg"}, id="moved"),
    pytest.param(lambda g, x, y, z: (y.replace_all_uses_with(x), g.erase_node(y)), {"add", "neg"}, id="erased"),
    pytest.param(rename, {"other"}, id="renamed"),
    pytest.param(lambda g, x, y, z: GraphSnapshot(g).restore(), None, id="put back"),
    pytest.param(lambda g, x, y, z: str(g), set(), id="only read"),
]


@pytest.mark.parametrize(("edit", "noted"), EDITS)
def test_edits_are_noted(edit: Callable[..., object], noted: set[str] | None) -> None:
    graph, x, y, z = chain()
    log = EditLog(graph)
    edit(graph, x, y, z)
    taken = log.take()
    assert (None if taken is None else {node.name for node in taken}) == noted
    assert log.take() == {}


def test_two_logs_and_a_watcher_do_not_know_each_other() -> None:
    graph, x, _, z = chain()
    one, other, told = EditLog(graph), EditLog(graph), []
    graph._watch(lambda: told.append(True))
    z.args = (x, 2)
    assert list(one.take() or ()) == [z]
    z.args = (x, 3)
    assert list(one.take() or ()) == list(other.take() or ()) == [z]
    assert told == [True]


@pytest.mark.slow
def test_a_log_that_is_gone_costs_nothing() -> None:
    graph, x, _, z = chain()
    log = EditLog(graph)
    z.args = (x, 2)
    del log
    gc.collect()
    z.args = (x, 3)
    assert graph._watchers is None
    assert not graph._logs
