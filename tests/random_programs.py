"""Random programs over values that remember how they were made, to compare ways of running a graph.

A `Term` accepts every operation and answers with a term that spells it, so that two runs agree only where they do the
same things, to the same values, in the same order: `history` has each step, and every value passed, exactly.
"""

from __future__ import annotations

import collections
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

from graphwright import Graph, Node
from graphwright.ir import Origin
from graphwright.ops import enter_context, exit_context, unpack

Pair = collections.namedtuple("Pair", "first second")

history: list[str] = []


def show(value: Any) -> str:
    """Spell a value exactly: kinds of numbers and containers, the sign of zero, nan."""
    if isinstance(value, Term):
        return value.text
    if type(value) in (list, tuple, Pair, torch.Size):
        return f"{type(value).__name__}({', '.join(map(show, value))})"
    if type(value) is dict:
        return f"dict({', '.join(f'{show(key)}: {show(item)}' for key, item in value.items())})"
    if type(value) is slice:
        return f"slice({show(value.start)}, {show(value.stop)}, {show(value.step)})"
    return f"{type(value).__name__} {value!r}"


def step(text: str) -> Term:
    """Remember an operation and answer with its value."""
    history.append(text)
    return Term(text if len(text) < 60 else f"<{hash(text)}>")


class Term:
    """A value that knows how it was made; operators in place change it."""

    __hash__ = None  # type: ignore[assignment]
    text: str

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "text", text)

    def __getattr__(self, name: str) -> Term:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Term(f"{self.text}.{name}")  # no step: Python looks a method up before it evaluates the arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Term:
        words = [show(arg) for arg in args] + [f"{key}={show(arg)}" for key, arg in kwargs.items()]
        return step(f"{self.text}({', '.join(words)})")

    def __getitem__(self, key: Any) -> Term:
        return step(f"{self.text}[{show(key)}]")

    def __setitem__(self, key: Any, value: Any) -> None:
        step(f"{self.text}[{show(key)}] = {show(value)}")


def _add_operators() -> None:
    """Give Term every operator, forwards, backwards and in place."""
    for name in "add sub mul truediv floordiv mod matmul pow lshift rshift and xor or".split():
        setattr(Term, f"__{name}__", lambda a, b, name=name: step(f"({a.text} {name} {show(b)})"))
        setattr(Term, f"__r{name}__", lambda a, b, name=name: step(f"({show(b)} {name} {a.text})"))

        def in_place(a: Term, b: Any, name: str = name) -> Term:
            object.__setattr__(a, "text", step(f"({a.text} i{name} {show(b)})").text)
            return a

        setattr(Term, f"__i{name}__", in_place)
    for name in "eq ne lt le gt ge".split():
        setattr(Term, f"__{name}__", lambda a, b, name=name: step(f"({a.text} {name} {show(b)})"))
    for name in "neg pos invert".split():
        setattr(Term, f"__{name}__", lambda a, name=name: step(f"({name} {a.text})"))


_add_operators()


def gather(*args: Any, **kwargs: Any) -> Term:
    """A function with an effect: that it was called, with what, and when."""
    return Term("gather")(*args, **kwargs)


class Region:
    """A context manager that remembers being entered and left."""

    def __init__(self, *args: Any) -> None:
        self.text = show(args)
        step(f"make {self.text}")

    def __enter__(self) -> Region:
        step(f"enter {self.text}")
        return self

    def __exit__(self, *error: object) -> None:
        step(f"leave {self.text}")


def three_items(*args: Any) -> tuple[Term, ...]:
    """A function whose value is taken apart."""
    return tuple(step(f"item {i} of {show(args)}") for i in range(3))


class Leaf(nn.Module):
    """A module that only remembers its calls."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, *args: Any, **kwargs: Any) -> Term:
        return Term(self.name)(*args, **kwargs)


class Root(nn.Module):
    """What random programs read and call, under names good and bad."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Leaf("layers.0"), Leaf("layers.1"))
        self.add_module("self", Leaf("self"))
        self.add_module("a 'b' \"c\"\\", Leaf("odd"))
        self.add_module("class", Leaf("class"))
        for name in ("weight", "__private", "lambda", "0"):
            setattr(self, name, Term(name))


MODULES = ["layers.0", "layers.1", "self", "a 'b' \"c\"\\", "class"]
ATTRIBUTES = ["weight", "__private", "lambda", "0"]
METHODS = ["relu", "class", "__private", "size", "to"]
FIELDS = ["shape", "class", "not a name", "T", "__private", "x\"y'"]
KEYWORDS = ["dim", "class", "not a name", "é", "ﬁ", "__private", "x_1"]
PARAMETERS = ["x", "X", "x_1", "*args", "**options", "len", "slice", "torch", "getattr", "self", "inf", "operator", "é"]
WISHES = [
    None,
    None,
    None,
    "self",
    "x",
    "math",
    "operator",
    "operator_add",
    "gather",
    "_",
    "tests_random_programs_gather",
]

BINARY = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.matmul),
    *(operator.pow, operator.lshift, operator.rshift, operator.and_, operator.xor, operator.or_),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.getitem),
]
IN_PLACE = [
    *(operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod),
    *(operator.imatmul, operator.ipow, operator.ilshift, operator.irshift, operator.iand, operator.ixor, operator.ior),
]
UNARY = [operator.neg, operator.pos, operator.invert]

# ---- what a program is made of

NUMBERS = [
    0,
    1,
    -1,
    2**70,
    -(2**70),
    0.0,
    -0.0,
    0.5,
    -1.5,
    1e300,
    -1e-300,
    math.inf,
    -math.inf,
    math.nan,
    2j,
    -1j,
    True,
]
OTHERS = [
    *(
        None,
        ...,
        "",
        "dim",
        'it\'s "quoted"\\',
        "line\nbreak",
        "é 漢 🙂 \ud800",
        "{x}",
        b"\x00'",
        (),
        torch.Size([2, 3]),
    ),
    *(
        torch.float32,
        torch.device("cpu"),
        torch.device("cuda", 1),
        torch.strided,
        torch.channels_last,
        int,
        range(1, 9, 2),
    ),
    *(torch.relu, operator.add, len, gather, frozenset({1, 2}), complex(-0.0, math.nan), torch.nn.ReLU, Pair(1, (2,))),
]
_literals = st.sampled_from([*NUMBERS, *OTHERS]) | st.floats() | st.integers() | st.text(max_size=3)
_leaves = st.tuples(st.just("node"), st.integers(0, 99)) | st.tuples(st.just("literal"), _literals)
shapes = st.recursive(
    _leaves,
    lambda inner: (
        st.tuples(st.just("list"), st.lists(inner, max_size=3))
        | st.tuples(st.just("tuple"), st.lists(inner, max_size=3))
        | st.tuples(
            st.just("dict"), st.lists(st.tuples(st.sampled_from(["a", 1, None, (1, "b"), 0.5]), inner), max_size=2)
        )
        | st.tuples(st.just("slice"), st.lists(inner, min_size=3, max_size=3))
        | st.tuples(st.just("pair"), st.lists(inner, min_size=2, max_size=2))
    ),
    max_leaves=5,
)


@st.composite
def programs(draw: st.DrawFn, with_origins: bool = False) -> Graph:
    """Draw a graph. `with_origins` says where in a source the operations stand, so that expressions nest."""
    graph = Graph()
    readable: list[Node] = []  # what may be passed on
    terms: list[
        Node
    ] = []  # what may be operated on: not None, which `x[0] = y` gives, and not all the rest of arguments
    parameters = draw(st.lists(st.sampled_from(PARAMETERS), unique=True, max_size=4))
    for name in sorted(parameters, key=lambda name: name.count("*")):
        readable.append(graph.placeholder(name))
        if "*" not in name:
            terms.append(readable[-1])
    regions: list[Node] = []
    statement = 1
    for _ in range(draw(st.integers(1, 12))):
        made = _draw_region(draw, graph, readable, regions) or _draw_unpacking(draw, graph, readable)
        made = made or [_draw_node(draw, graph, readable, terms)]
        for node in made:
            if with_origins:
                statement += draw(st.sampled_from([0, 0, 0, 1]))
                target = draw(st.sampled_from(["", "", "", "named"]))
                if draw(st.integers(0, 7)):
                    source = draw(st.sampled_from(["y = f(x)", "", "return '#'"]))
                    node.origin = Origin("model.py", statement, "forward", source, statement=statement, target=target)
            if node.target in (enter_context, exit_context, three_items, unpack):
                continue
            readable.append(node)
            if node.target is not operator.setitem:
                terms.append(node)
    for entered in reversed(regions):
        graph.call_function(exit_context, (entered,))
    if draw(st.integers(0, 9)):
        graph.output(_build(draw(shapes), readable))
    return graph


def _draw_node(draw: st.DrawFn, graph: Graph, readable: list[Node], terms: list[Node]) -> Node:
    def value() -> Any:
        # Mostly values from just before, so that there is something to write inside one another.
        if readable and draw(st.booleans()):
            return readable[-1 - draw(st.integers(0, min(2, len(readable) - 1)))]
        return _build(draw(shapes), readable)

    kind = draw(
        st.sampled_from(["binary", "binary", "binary", "unary", "in place", "set", "call", "method", "module", "read"])
    )
    name = draw(st.sampled_from(WISHES))
    if kind == "read" or not terms:
        return graph.create_node("get_attr", draw(st.sampled_from(ATTRIBUTES)), name=name)
    term = terms[-1 - draw(st.integers(0, min(2, len(terms) - 1)))]
    if kind == "binary":
        function = draw(st.sampled_from(BINARY))
        other = value()
        if function is not operator.getitem and isinstance(other, int | float | complex) and draw(st.booleans()):
            return graph.call_function(function, (other, term), name=name)
        return graph.call_function(function, (term, other), name=name)
    if kind == "unary":
        return graph.call_function(draw(st.sampled_from(UNARY)), (term,), name=name)
    if kind == "in place":
        return graph.call_function(draw(st.sampled_from(IN_PLACE)), (term, value()), name=name)
    if kind == "set":
        return graph.call_function(operator.setitem, (term, value(), value()), name=name)
    args = [value() for _ in range(draw(st.integers(0, 3)))]
    kwargs = {key: value() for key in draw(st.lists(st.sampled_from(KEYWORDS), unique=True, max_size=3))}
    if kind == "module":
        return graph.create_node("call_module", draw(st.sampled_from(MODULES)), tuple(args), kwargs, name)
    if kind == "method":
        return graph.create_node("call_method", draw(st.sampled_from(METHODS)), (term, *args), kwargs, name)
    if draw(st.booleans()):
        return graph.call_function(getattr, (term, draw(st.sampled_from(FIELDS))), name=name)
    return graph.call_function(gather, tuple(args), kwargs, name=name)


def _draw_region(draw: st.DrawFn, graph: Graph, readable: list[Node], regions: list[Node]) -> list[Node]:
    """Enter a context, or leave the last one entered; now and then another one, which no `with` can say."""
    if draw(st.integers(0, 5)):
        return []
    if regions and draw(st.booleans()):
        which = -1 if draw(st.integers(0, 3)) else 0
        return [graph.call_function(exit_context, (regions.pop(which),))]
    args = tuple(_build(draw(shapes), readable) for _ in range(draw(st.integers(0, 1))))
    regions.append(graph.call_function(enter_context, (Region, *args)))
    return [regions[-1]]


def _draw_unpacking(draw: st.DrawFn, graph: Graph, readable: list[Node]) -> list[Node]:
    """Take a value apart, some items of it, in some order."""
    if draw(st.integers(0, 7)):
        return []
    value = graph.call_function(three_items, (_build(draw(shapes), readable),))
    whole = graph.call_function(unpack, (value, 3))
    wanted = draw(st.sampled_from([(0, 1, 2), (0, 2), (1,), (2, 0), (0, 0), (-1, 1)]))
    return [value, whole, *(graph.call_function(operator.getitem, (whole, index)) for index in wanted)]


def _build(shape: Any, readable: list[Node]) -> Any:
    kind, inside = shape
    if kind == "literal":
        return inside
    if kind == "node":
        return readable[inside % len(readable)] if readable else inside
    if kind == "dict":
        return {key: _build(item, readable) for key, item in inside}
    items = [_build(item, readable) for item in inside]
    make: dict[str, Callable[[list[Any]], Any]] = {
        "list": list,
        "tuple": tuple,
        "slice": lambda parts: slice(*parts),
        "pair": lambda two: Pair(*two),
    }
    return make[kind](items)


def outcome(run: Callable[..., Any], graph: Graph) -> tuple[str, list[str]]:
    """Run on a new root and terms named after the parameters: the value, or the error, and all that happened."""
    history.clear()
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for node in graph.nodes:
        target = str(node.target)
        if node.op == "placeholder" and target.startswith("**"):
            kwargs["extra"] = Term("extra")
        elif node.op == "placeholder":
            args += [Term("rest0"), Term("rest1")] if target.startswith("*") else [Term(target)]
    try:
        value = show(run(Root(), *args, **kwargs))
    except NameError as error:  # freed too early, or never made
        value = type(error).__name__
    return value, list(history)
