"""Random graphs and random edits as plain numbers, so that the same ones can be made twice.

An edit is a tuple of small numbers; `apply` reads it against the graph as it is, so that every edit is one that a
careful user could make: values are read after they are made, inputs stay first and the output last. The first
argument is the package (`graphwright` or `torch.fx`), and both get the same edits from the same numbers.
"""

from __future__ import annotations

import collections
import operator
from typing import Any

import torch
from hypothesis import strategies as st

Pair = collections.namedtuple("Pair", "first second")

CALLS = [
    ("call_function", operator.add),
    ("call_function", torch.relu),
    ("call_function", torch.cat),
    ("call_function", operator.getitem),
    ("call_function", operator.and_),
    ("call_function", getattr),
    ("call_function", torch.nn.functional.max_pool2d),
    ("call_method", "relu"),
    ("call_method", "__add__"),
    ("call_method", "size"),
    ("call_module", "layer1.0.Conv2d"),
    ("call_module", "head"),
    ("get_attr", "weight"),
    ("get_attr", "layer1.0.bias"),
]
WISHES = ["relu", "relu_1", "x", "x_7", "len", "add_1", "a b", "1", "", "torch", "_", "weight_01", "class"]
KINDS = [
    "create", "create", "create", "create", "create", "placeholder", "erase", "erase", "args", "kwargs", "update_arg",
    "insert_arg", "update_kwarg", "retarget", "replace_uses", "replace_some_uses", "replace_input", "move_before",
    "move_after", "output",
]  # fmt: skip

# Argument shapes: ("node", k) stands for the k-th value that may be read.
_atoms = st.one_of(
    st.integers(-3, 9), st.booleans(), st.none(), st.sampled_from(["mean", "", 0.5, ..., torch.float32, torch.int64])
)
_leaves = st.one_of(st.tuples(st.just("node"), st.integers(0, 40)), st.tuples(st.just("atom"), _atoms))
shapes = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("list"), st.lists(inner, max_size=3)),
        st.tuples(st.just("tuple"), st.lists(inner, max_size=3)),
        st.tuples(st.just("dict"), st.lists(st.tuples(st.sampled_from("abc"), inner), max_size=2)),
        st.tuples(st.just("slice"), st.lists(inner, min_size=3, max_size=3)),
        st.tuples(st.just("pair"), st.lists(inner, min_size=2, max_size=2)),
    ),
    max_leaves=5,
)
edits = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 60), st.integers(0, 60), st.lists(shapes, max_size=3)),
    min_size=1,
    max_size=24,
)


def build(shape: Any, readable: list[Any]) -> Any:
    """Make the argument that a shape describes, reading from these nodes."""
    kind, inside = shape
    if kind == "atom":
        return inside
    if kind == "node":
        return readable[inside % len(readable)] if readable else inside
    if kind == "dict":
        return {key: build(item, readable) for key, item in inside}
    items = [build(item, readable) for item in inside]
    make = {"list": list, "tuple": tuple, "slice": lambda parts: slice(*parts), "pair": lambda two: Pair(*two)}
    return make[kind](items)


def new_graph(package: Any) -> Any:
    """Start with two inputs and one operation, so that there is something to edit."""
    graph = package.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.call_function(operator.mul, (x, y))
    return graph


def apply_all(package: Any, edits: list[Any]) -> Any:
    """Make the graph that these edits lead to."""
    graph = new_graph(package)
    for edit in edits:
        apply(graph, edit)
    return graph


def apply(graph: Any, edit: tuple[str, int, int, list[Any]]) -> None:
    """Make one edit, or none where the graph has no place for it."""
    kind, a, b, spec = edit
    order = list(graph.nodes)
    inputs = [node for node in order if node.op == "placeholder"]
    inner = [node for node in order if node.op not in ("placeholder", "output")]
    index = {node: i for i, node in enumerate(order)}
    has_output = order[-1].op == "output"
    last = len(order) - has_output  # where a new node may still stand before
    if kind == "placeholder":
        parameter = ["z", "*rest", "**options", "X", "input"][a % 5]
        if all(node.target != parameter for node in inputs):
            with graph.inserting_after(inputs[-1]):
                graph.placeholder(parameter)
        return
    if kind == "create":
        op, target = CALLS[a % len(CALLS)]
        place = len(inputs) + b % (last - len(inputs) + 1)
        args, kwargs = _arguments(spec, order[:place])
        if op == "get_attr":
            args, kwargs = (), {}
        name = WISHES[b % len(WISHES)] if a % 3 == 0 else None
        with graph.inserting_after(order[place - 1]):
            graph.create_node(op, target, args, kwargs, name)
        return
    if kind == "output":
        if not has_output:
            graph.output(build(("tuple", spec), order))
        return
    if not inner:
        return
    node = inner[a % len(inner)]
    i = index[node]
    before = order[:i]
    if kind == "erase":
        for node in inner[a % len(inner) :]:
            if not node.users:
                graph.erase_node(node)
                break
    elif kind == "args":
        node.args = tuple(build(shape, before) for shape in spec)
    elif kind == "kwargs":
        node.kwargs = {"abc"[k]: build(shape, before) for k, shape in enumerate(spec)}
    elif kind == "update_arg":
        if node.args and spec:
            node.update_arg(b % len(node.args), build(spec[0], before))
    elif kind == "insert_arg":
        if spec:
            node.insert_arg(b % (len(node.args) + 1), build(spec[0], before))
    elif kind == "update_kwarg":
        if spec:
            node.update_kwarg("abc"[b % 3], build(spec[0], before))
    elif kind == "retarget":
        choices = [target for op, target in CALLS if op == node.op]
        node.target = choices[b % len(choices)]
    elif kind in ("replace_uses", "replace_some_uses"):
        old = order[a % last]
        first_user = min((index[user] for user in old.users), default=last)
        new = order[b % max(first_user, 1)]
        if new is not old:
            names = sorted(user.name for user in old.users)[::2]
            if kind == "replace_uses":
                old.replace_all_uses_with(new)
            else:
                old.replace_all_uses_with(new, lambda user: user.name in names)
    elif kind == "replace_input":
        if node.all_input_nodes and before:
            old = sorted(node.all_input_nodes, key=lambda used: index[used])[b % len(node.all_input_nodes)]
            node.replace_input_with(old, before[b % len(before)])
    else:
        lowest = max([index[used] for used in node.all_input_nodes] + [len(inputs) - 1])
        highest = min([index[user] for user in node.users] + [last])
        anchors = [other for other in order[lowest + 1 : highest] if other is not node]
        if anchors:
            anchor = anchors[b % len(anchors)]
            (anchor.prepend if kind == "move_before" else anchor.append)(node)


def _arguments(spec: list[Any], readable: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split shapes into positional arguments and one keyword argument."""
    args = tuple(build(shape, readable) for shape in spec[:2])
    return args, {"dim": build(spec[2], readable)} if len(spec) > 2 else {}


def facts(graph: Any) -> list[tuple[Any, ...]]:
    """What there is to know about a graph, in a form that compares across packages."""
    return [
        (
            node.name,
            node.op,
            node.target,
            str(node.args),
            str(node.kwargs),
            [user.name for user in node.users],
            sorted(used.name for used in node.all_input_nodes),
        )
        for node in graph.nodes
    ]
