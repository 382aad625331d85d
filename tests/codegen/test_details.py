"""What generated code shows beyond itself, text for text what torch.fx shows."""

from __future__ import annotations

import enum
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import graphwright
from graphwright.values import TensorMetadata

STACK = '  File "/a/b.py", line 7, in forward\n    y = f(x)\n  File "/c.py", line 1, in g\n    z\n'


class Pair(NamedTuple):
    first: Any
    second: Any


class Color(enum.Enum):
    RED = 1


def same(make: Callable[[Any], Any]) -> Any:
    """Do the same with both packages, want the same, return it."""
    ours, theirs = make(graphwright), make(torch.fx)
    assert ours == theirs
    return ours


@functools.cache
def values() -> list[Any]:
    """What passes may note as the value of a node."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)
    fake = mode.from_tensor(torch.ones(3, 4))
    return [
        *(fake, fake.shape[0], fake.shape[0] * 2 + 1, fake.shape[0] > 2, (fake, fake), [fake], torch.ones(())),
        *(torch.nn.Parameter(torch.ones(2)), torch.ones(2, 2).to_sparse(), torch.ones(2, 3, dtype=torch.bool).t()),
        *(None, 3, 2.5, True, "text", object(), torch.ones(2, dtype=torch.complex64, device="meta")),
    ]


def with_known_values(package: Any) -> Any:
    graph = package.Graph()
    x = graph.placeholder("X")
    y = graph.placeholder("y", torch.Tensor, 2.5)
    x.meta["val"] = y.meta["val"] = torch.ones(2, 3)
    w = graph.get_attr("w")
    w.meta["val"] = torch.ones(3)
    for key, value in itertools.product(("val", "tensor_meta", "example_value"), values()):
        if key == "tensor_meta" and not isinstance(value, torch.Tensor):
            continue
        node = graph.call_method("f", (x, w))
        node.meta[key] = value
    typed, known = graph.call_method("g", (x,), type_expr=torch.Tensor), graph.call_method("h", (x,))
    known.type, known.meta["val"] = torch.Tensor, torch.ones(1)
    typed.meta["rank"] = 2
    for node in (x, known):
        node.stack_trace = STACK
        node.meta.update(rank=1, color="red")
    last = graph.call_method("i", (x,))
    last.stack_trace = STACK
    graph.output((typed, known, last), type_expr=torch.Tensor)
    return graph


FLAGS = ("verbose", "include_stride", "include_device", "colored", "expanded_def", "record_func")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("chosen", list(itertools.product([False, True], repeat=len(FLAGS))))
def test_the_options_of_python_code(chosen: tuple[bool, ...]) -> None:
    options = dict(zip(FLAGS, chosen, strict=True))
    same(lambda package: with_known_values(package).python_code("self", **options).src)


def test_known_values_are_annotations() -> None:
    options = {"verbose": True, "include_stride": True, "include_device": True}
    text = same(lambda package: with_known_values(package).python_code("self", **options).src)
    assert 'forward(self, X: "f32[2, 3][3, 1]cpu", y: "f32[2, 3][3, 1]cpu" = 2.5)' in text
    assert 'f_7: "Parameter(f32[2][1]cpu)" = x.f(w)' in text
    assert 'f_1: "Sym(s' in text


@pytest.mark.parametrize("names", [[], ["rank"], ["color", "none", "rank"]], ids=str)
@pytest.mark.parametrize("verbose", [False, True])
def test_meta_that_is_asked_for(names: list[str], verbose: bool) -> None:
    options = {"additional_meta": names, "verbose": verbose}
    text = same(lambda package: with_known_values(package).python_code("self", **options).src)
    assert ("# color: red, rank: 1 # File: /c.py:1 in g, code: z\n" in text) is (verbose and len(names) == 3)


def test_meta_of_several_lines_stays_a_comment() -> None:
    graph = graphwright.Graph()
    node = graph.call_method("f", (graph.placeholder("x"),))
    node.meta["note"] = "one\ntwo\x1b"
    node.meta["tensor_meta"] = TensorMetadata(('"; import os',), torch.int8, False, (1,), None, False, {})  # type: ignore[arg-type]
    text = graph.python_code("self", verbose=True, additional_meta=["note"]).src
    assert "    # note: one two  # No stack" in text
    assert 'f: "i8[?? import os]" = x.f()' in text


def test_colors_of_literals() -> None:
    def describe(package: Any) -> str:
        graph = package.Graph()
        x = graph.placeholder("x", default_value=None)
        args = (x, 1, 1.5, "s", True, None, [x, 1], {"a": x}, (1, (x,)), slice(1, x), ..., torch.float32)
        kwargs = {"k": -1, "d": {"a": 1}, "e": Color.RED, "i": float("inf"), "p": Pair(x, 1)}
        graph.call_function(torch.relu, (*args, torch.device("cpu"), torch.ops.aten.add.Tensor), kwargs)
        add = graph.call_function(operator.add, (x, 1))
        item = graph.call_function(operator.getitem, (add, (0, ..., slice(None, 2))))
        graph.output({"a": item})
        return str(graph.python_code("self", colored=True).src)

    assert "x = \033[34mNone\033[0m):" in same(describe)


def test_recorded_calls_run_and_are_ranges_of_the_profiler() -> None:
    gm = graphwright.symbolic_trace(lambda torch, _rf: torch.sin() + _rf)
    names: dict[str, Any] = {}
    code = gm.graph.python_code("self", record_func=True)
    exec(code.src, dict(code.globals), names)
    with torch.profiler.profile() as profile:
        assert names["forward"](None, torch.zeros(1), 2) == 2
    assert {"## 2 ##", "## 3 ##"} < {event.name for event in profile.events()}


def test_lines_of_recorded_calls() -> None:
    def describe(package: Any) -> Any:
        code = with_known_values(package).python_code("self", record_func=True)
        return code._lineno_map, code._prologue_start

    same(describe)


def test_nodes_with_what_is_known() -> None:
    def describe(package: Any) -> Any:
        return [node.format_node(include_tensor_metadata=True) for node in with_known_values(package).nodes]

    line = '%h : Tensor "f32[1][1]cpu"[num_users=1] = call_method[target=h](args = (%x,), kwargs = {})'
    assert line in same(describe)


@pytest.mark.parametrize("stride", [False, True])
def test_print_readable(stride: bool) -> None:
    options = {"include_stride": stride, "include_device": stride, "additional_meta": ["rank"]}

    def describe(package: Any) -> Any:
        gm = package.GraphModule({"w": torch.ones(3)}, with_known_values(package))
        return gm.print_readable(print_output=False, **options)

    same(describe)


@pytest.mark.parametrize("keep", [None, lambda file, name, code: name != "g", lambda file, name, code: False])
@pytest.mark.parametrize("stack", ["", STACK, STACK.rsplit("\n", 2)[0], "nonsense\n" + STACK, STACK + "    ^^\n", "x"])
def test_reading_stacks(stack: str, keep: Any) -> None:
    def describe(package: Any) -> Any:
        frame = package.graph._parse_stack_trace(stack, keep)
        return frame and (frame.file, frame.lineno, frame.name, frame.code, frame.get_summary_str())

    same(describe)
