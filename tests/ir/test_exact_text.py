"""Graphs survive being written as text and read back; what cannot be written, or read, is an error that says where."""

from __future__ import annotations

import math
import operator
import re
import typing
from typing import Any

import pytest
import torch
from hypothesis import given
from tests.random_edits import Pair, apply_all, edits

import graphwright
from graphwright import Graph
from graphwright.errors import GraphError
from graphwright.ir import PlainSpelling, graph_to_text, text_to_graph
from graphwright.ops import TorchSpelling

SPELLING = TorchSpelling("tests")


def same(one: Any, other: Any) -> bool:
    """Equal values of equal kinds, all the way down: 1 is not 1.0, -0.0 not 0.0, nan is nan, nodes go by name."""
    if isinstance(one, graphwright.Node):
        return isinstance(other, graphwright.Node) and one.name == other.name
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, slice):
        return same((one.start, one.stop, one.step), (other.start, other.stop, other.step))
    return bool(one == other)


def assert_same_graph(one: Graph, other: Graph) -> None:
    assert [node.name for node in one.nodes] == [node.name for node in other.nodes]
    for a, b in zip(one.nodes, other.nodes, strict=True):
        assert (a.op, a.target, a.type) == (b.op, b.target, b.type)
        assert same(a.args, b.args)
        assert same(a.kwargs, b.kwargs)
        assert {user.name for user in a.users} == {user.name for user in b.users}


def test_the_text_looks_like_the_graph_with_its_strings_quoted() -> None:
    graph = Graph()
    x = graph.placeholder("x", torch.Tensor, default_value=None)
    rest = graph.placeholder("*rest")
    item = graph.call_function(operator.getitem, (rest, (slice(None, 3), ..., -1)))
    cat = graph.call_function(torch.cat, ([x, item],), {"dim": -1})
    pad = graph.call_function(torch.nn.functional.pad, (cat, (1, 1)), {"mode": "reflect", "value": -math.inf})
    graph.output({"out": pad, 2: x}, type_expr=dict[str, torch.Tensor])
    assert graph_to_text(graph, TorchSpelling()) == (
        "graph():\n"
        "    %x : torch.Tensor [num_users=2] = placeholder[target='x'](args = (None,), kwargs = {})\n"
        "    %_rest : [num_users=1] = placeholder[target='*rest'](args = (), kwargs = {})\n"
        "    %getitem : [num_users=1] = call_function[target=operator.getitem]"
        "(args = (%_rest, (slice(None, 3, None), ..., -1)), kwargs = {})\n"
        "    %cat : [num_users=1] = call_function[target=torch.cat](args = ([%x, %getitem],), kwargs = {'dim': -1})\n"
        "    %pad : [num_users=1] = call_function[target=torch.nn.functional.pad]"
        "(args = (%cat, (1, 1)), kwargs = {'mode': 'reflect', 'value': -inf})\n"
        "    %output : dict[str, torch.Tensor] [num_users=0] = output[target='output']"
        "(args = ({'out': %pad, 2: %x},), kwargs = {})"
    )
    assert_same_graph(text_to_graph(graph_to_text(graph, TorchSpelling()), TorchSpelling()), graph)


VALUES = [
    *(0, -1, 2**70, True, False, None, ...),
    *(0.0, -0.0, 1e-300, 0.1, -math.inf, math.nan, 1j, complex(-0.0, math.inf), complex(math.nan, -1.5)),
    *("", "dim", "it's", 'say "%x"', "%x", "line\nbreak\\", "é 漢 🙂", "](args = ", b"\x00raw'"),
    *((), (1,), [(), []], {}, {"a": {1: (2.0,)}, None: [True], (1, 2): "key"}),
    *(slice(None), slice(1, None, -1), range(0, 9, 2), {1, 2, 3}, set(), frozenset({"a"}), frozenset()),
    *(torch.Size([2, 3]), torch.Size([]), Pair(1, [2]), Pair(Pair((), None), "x")),
    *(torch.float32, torch.bfloat16, torch.strided, torch.channels_last, torch.device("cpu"), torch.device("cuda", 1)),
    *(int, torch.Tensor, torch.nn.ReLU, torch.relu, torch.ops.aten.add.Tensor, math.sqrt, len, str.upper),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_come_back_exactly(value: Any) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.call_method("f", (x, value, [value, x]), {"k": {"v": value}, "class": (value,)})
    assert_same_graph(text_to_graph(graph_to_text(graph, SPELLING), SPELLING), graph)


TYPES = [
    *(int, torch.Tensor, type(None), "Forward", typing.Any, typing.List, list),  # noqa: UP006
    *(typing.List[int], list[int], dict[str, list[torch.Tensor]], typing.Tuple[int, ...], tuple[int, str]),  # noqa: UP006
    *(typing.Tuple[()], typing.Optional[torch.Tensor], typing.Union[int, str, None], int | None),  # noqa: UP006, UP007, UP045
    *(typing.Callable[[int, torch.Tensor], str], typing.Callable[..., int], type[torch.nn.Module], torch.nn.Linear),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_types_come_back(kind: Any) -> None:
    graph = Graph()
    graph.placeholder("x", kind)
    (node,) = text_to_graph(graph_to_text(graph, SPELLING), SPELLING).nodes
    assert node.type == (None if kind is type(None) else kind)


@given(edits)
def test_random_graphs_come_back(edits: list[Any]) -> None:
    graph = apply_all(graphwright, edits)
    text = graph_to_text(graph, SPELLING)
    read = text_to_graph(text, SPELLING)
    assert_same_graph(read, graph)
    assert graph_to_text(read, SPELLING) == text


class Opaque:
    def __repr__(self) -> str:
        return "Opaque()"


def local_function() -> None:
    """Found in this module, which only a spelling that knows `tests` may search."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [(Opaque(), "Opaque()"), (local_function, repr(local_function)), (torch.float32, "torch.float32"), (Pair, None)],
    ids=["object", "function", "dtype", "class"],
)
def test_what_cannot_be_written_is_an_error_naming_the_node(value: Any, shown: str | None) -> None:
    graph = Graph()
    graph.call_method("f", (graph.placeholder("x"), [value]))
    message = f"cannot write {shown or repr(value)}, which 'f' mentions: it has no literal, and the spelling does not"
    with pytest.raises(GraphError, match=rf"^{re.escape(message)}"):
        graph_to_text(graph)


def test_a_target_unknown_to_the_spelling_is_an_error() -> None:
    graph = Graph()
    graph.call_function(lambda: 3)
    with pytest.raises(GraphError, match=r"^cannot write <function .*<lambda> at .*>, which '.*' mentions"):
        graph_to_text(graph, SPELLING)


GOOD = "%x : [num_users=1] = placeholder[target='x'](args = (), kwargs = {})"
UNREADABLE = [
    ("graf():", r"expected 'graph\(\):' in the first line, found 'graf\(\):'"),
    (f"graph():\n{GOOD}\n%y : relu", "cannot find builtins.relu: there is no 'relu'"),
    (f"graph():\n{GOOD}\n{GOOD}", "an earlier line makes %x"),
    ("graph():\n" + GOOD.replace("()", "(%y)"), "no line before this one makes %y"),
    ("graph():\n" + GOOD.replace("()", "(%x,)"), "no line before this one makes %x"),
    ("graph():\n" + GOOD.replace("%x", "%len"), "'len' is not a legal name for a value"),
    ("graph():\n" + GOOD.replace("placeholder", "input"), "op 'input' is not in _legal_ops: .*"),
    (
        "graph():\n" + GOOD.replace("'x'", "len"),
        "Node target <built-in function len> has type .* but a str is expected",
    ),
    ("graph():\n" + GOOD.replace("()", "3"), "args must be a tuple and kwargs a dict"),
    ("graph():\n" + GOOD.replace("{}", "{1: 2}"), "the keys of kwargs must be strings"),
    ("graph():\n" + GOOD.replace("()", "(f'{x}',)"), ".*"),
    ("graph():\n" + GOOD.replace("()", "(-'a',)"), "'-' stands before a number"),
    ("graph():\n" + GOOD.replace("()", "(1 2,)"), "expected ',', found '2'"),
    ("graph():\n" + GOOD.replace("()", "(a,)"), "cannot find builtins.a: there is no 'a'"),
    ("graph():\n" + GOOD.replace("()", "(os.remove,)"), "cannot find os.remove: the spelling knows only .*"),
    ("graph():\n" + GOOD.replace("()", "(print('read'),)"), "reading a graph does not call <built-in function print>"),
    ("graph():\n" + GOOD.replace("()", "(slice(1, 2, 3, 4),)"), "cannot make slice.1, 2, 3, 4.: .*"),
    ("graph():\n" + GOOD[:-1], "the line ends early|this is no line of a graph: .*"),
    ("graph():\n" + GOOD + " 3", "did not expect '3'"),
    *[
        ("graph():\n" + GOOD.replace("()", f"({value},)"), message)
        for value, message in [
            ("[" * 5000 + "]" * 5000, "this is no line of a graph: .*"),  # nested deeper than Python reads
            ("9" * 5000, "this is no line of a graph: .*"),
            ("{[]: 1}", "this is no line of a graph: .*"),
            ("graph(3)", "this is no line of a graph: .*"),
            ("graph()", "this is no line of a graph: .*"),
            (r"'\N{no}'", "this is no line of a graph: .*"),
            ("set(range(0, 1000000000000, 1))", "reading a graph does not call <class 'set'> with a range"),
        ]
    ],
    ("graph():\n" + GOOD.replace("()", "('a"), 'this is no line of a graph: .*|did not expect "\'"'),
]


@pytest.mark.parametrize(("text", "message"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_cannot_be_read_is_an_error_naming_the_line(text: str, message: str, capsys: Any) -> None:
    with pytest.raises(GraphError) as caught:
        text_to_graph(text)
    assert re.fullmatch(message, caught.value.message, re.DOTALL), caught.value.message
    if text.startswith("graph():"):
        last = text.count("\n") + 1
        assert str(caught.value.at) == f"line {last}: {text.splitlines()[-1]}"
    assert not capsys.readouterr().out


def test_reading_checks_the_graph() -> None:
    late = GOOD.replace("%x", "%y").replace("'x'", "'y'")
    with pytest.raises(GraphError, match=r"^\[GW6\] placeholder 'y' comes after a node that computes"):
        text_to_graph("\n".join(["graph():", GOOD, GOOD.replace("%x", "%f").replace("placeholder", "get_attr"), late]))


def test_plain_spelling_knows_only_its_modules() -> None:
    assert PlainSpelling().name_of(torch.relu) is None
    assert PlainSpelling(("torch",)).name_of(torch.relu) == "torch.relu"
    with pytest.raises(LookupError, match=r"^'torch\.nothing: there is no 'nothing''$|torch\.nothing"):
        PlainSpelling(("torch",)).value_of("torch.nothing")
