"""Capture in one file: how a model becomes a graph and Python again, in the smallest program that shows each idea.

$ python examples/capture_in_one_file.py

It uses nothing of Graphwright. The parts come in the order in which one would invent them: a graph (1), a recorder that
runs the model on stand-ins (2), the ladder of what to do when Python asks a stand-in for a plain value (3), the
conversion of an `if` so that both of its sides can be recorded (4), the join of what the sides leave (5), guards (6),
printed code (7). The end of each part names the room of the library that does the same for all of Python.
"""

from __future__ import annotations

import ast
import copy
import inspect
import operator
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
from torch import nn

# ---- 1. A graph: operations in order. A branch is an operation too; it holds two more graphs, which may use any value
# that was there before it. (graphwright/ir)


class Node:
    """One operation: what is called, with what, and the name of its result."""

    def __init__(self, op: str, target: Any, args: Any, kwargs: Any, name: str) -> None:
        self.op, self.target, self.args, self.kwargs, self.name = op, target, args, kwargs, name


class Graph:
    """Operations in order; the names are unique in a graph and all that are in it."""

    def __init__(self, names: dict[str, int]) -> None:
        self.nodes: list[Node] = []
        self.names = names

    def name(self, wanted: str) -> str:
        """A name that no other value has: `relu`, `relu_1`, ..."""
        count = self.names[wanted] = self.names.get(wanted, -1) + 1
        return f"{wanted}_{count}" if count else wanted

    def add(self, op: str, target: Any, args: Any, kwargs: Any, name: str) -> Node:
        node = Node(op, target, args, kwargs, self.name(name))
        self.nodes.append(node)
        return node


# ---- 2. A recorder: the model runs on stand-ins. A stand-in has the value of the example, so that whatever torch
# computes is known while the model runs, and the node that computes it in later calls. torch asks every argument that
# has `__torch_function__` what to do instead of computing; a module is one node as long as it is torch's own; any other
# is run, and so taken apart. (graphwright/capture/proxies, capture/calls, capture/typed)


class Proxy:
    """Stands for a tensor of the program."""

    def __init__(self, tracer: Tracer, node: Node, example: torch.Tensor) -> None:
        self.tracer, self.node, self.example = tracer, node, example

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        values = [*args, *(kwargs or {}).values()]
        tracer = next(value.tracer for value in values if isinstance(value, Proxy))
        return tracer.record("function", function, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if callable(getattr(self.example, name)):
            return lambda *args, **kwargs: self.tracer.record("method", name, (self, *args), kwargs)
        return self.tracer.fact(self, name)

    def __bool__(self) -> bool:
        return self.tracer.ask(self)


OPERATORS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "matmul": "@", "gt": ">", "lt": "<", "ge": ">="}
for each in OPERATORS:
    function = getattr(operator, each)
    setattr(Proxy, f"__{each}__", lambda a, b, f=function: a.tracer.record("function", f, (a, b), {}))
    setattr(Proxy, f"__r{each}__", lambda a, b, f=function: a.tracer.record("function", f, (b, a), {}))


class Tracer:
    """One run of a model on stand-ins."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.graph = Graph({"self": 0})
        self.paths: dict[int, str] = {id(module): path for path, module in model.named_modules()}
        self.tensors = {id(tensor): f"self.{path}" for path, tensor in model.named_parameters()}

    def record(self, op: str, target: Any, args: Any, kwargs: Any) -> Any:
        """Compute an operation on the examples, and note it."""
        values, named = self.examples(args), self.examples(kwargs)
        result = target(*values, **named) if callable(target) else getattr(values[0], target)(*values[1:], **named)
        name = getattr(target, "__name__", type(target).__name__.lower() if callable(target) else target)
        return Proxy(self, self.graph.add(op, target, args, kwargs, name), result)

    def examples(self, value: Any) -> Any:
        if isinstance(value, Proxy):
            return value.example
        if isinstance(value, dict):
            return {key: self.examples(item) for key, item in value.items()}
        return type(value)(map(self.examples, value)) if isinstance(value, list | tuple) else value

    def run(self, forward: Callable[..., Any], examples: tuple[torch.Tensor, ...]) -> Any:
        """Run the program once; give its result."""
        names = list(inspect.signature(self.model.forward).parameters)
        nodes = [self.graph.add("input", name, (), {}, name) for name in names]
        inputs = [Proxy(self, node, example) for node, example in zip(nodes, examples, strict=True)]
        call = nn.Module.__call__

        def entered(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if type(module).__module__.startswith("torch.nn") and any(isinstance(value, Proxy) for value in args):
                return self.record("module", module, args, kwargs)
            return call(module, *args, **kwargs)

        nn.Module.__call__ = entered  # type: ignore[method-assign]
        try:
            return forward(self.model, *inputs)
        finally:
            nn.Module.__call__ = call  # type: ignore[method-assign]

    # ---- 3. The ladder. When Python wants a plain value, the tracer climbs down it: a fact of a tensor (its shape, its
    # rank) is the example's, under a guard. What data decides is staged: the function that asks is converted, and the
    # capture starts again. Only what cannot be converted is refused, at its line and with a way out - never answered
    # with what the example happens to give. (graphwright/capture/ladder, docs/capture.md)

    def fact(self, tensor: Proxy, name: str) -> Any:
        value = getattr(tensor.example, name)
        self.graph.add("guard", name, (tensor, value), {}, "guard")
        return value

    def ask(self, tensor: Proxy) -> bool:
        frame = sys._getframe(2)  # of who asks: behind this method and `__bool__`
        if frame.f_code is type(self.model).forward.__code__:
            raise Convert
        raise Refused(f"line {frame.f_lineno}: data decides, and no `if` of the model's forward asks: use torch.where")

    # ---- 5. The join. Both sides have run, each into a graph of its own, on the values from before the branch. What
    # they leave in one variable is one value of the program afterwards: a new one if the sides differ.
    # (graphwright/capture/flow)

    def branch(self, test: Proxy, sides: list[Callable[..., Any]], names: list[str], before: list[Any]) -> list[Any]:
        outside, graphs, left = self.graph, [], []
        for side in sides:
            self.graph = Graph(outside.names)
            left.append(side(*before))
            graphs.append(self.graph)
        self.graph = outside
        joined: dict[str, Any] = {}
        outside.add("branch", None, (test, *graphs), joined, "branch")
        results = []
        for name, then, orelse in zip(names, *left, strict=True):
            if then is UNSET or orelse is UNSET:
                raise Refused(f"only one side of an `if` sets {name!r}: set it before")
            value = then
            if then is not orelse:
                node = Node("join", None, (), {}, outside.name(name))
                value = Proxy(self, node, self.examples(then if test.example else orelse))
                joined[node.name] = then, orelse
            results.append(value)
        return results


UNSET: Any = type("Unset", (), {})()


class Convert(Exception):
    """The program asked data: capture it again, from its converted source."""


class Refused(Exception):
    """What this file cannot capture, where, and the way out."""


# ---- 4. Conversion: an `if` becomes a call of `branch` with a function for each side, which takes and returns the
# variables that the sides assign. The rest of the source stays as it is. (graphwright/capture/conversion)


class Ifs(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> Any:
        inside = [each for statement in node.body + node.orelse for each in ast.walk(statement)]
        if any(isinstance(each, ast.Return | ast.Break | ast.Continue) for each in inside):
            raise Refused(f"line {node.lineno}: an `if` that ends the function or loop: assign, and go on behind it")
        names = sorted({each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)})
        self.generic_visit(node)
        given, values = ", ".join(names), f"({' '.join(f'{name},' for name in names)})"
        sides = [f"_side_{node.lineno}_{i}" for i in (0, 1)]
        statements = [f"def {side}({given}): return {values}" for side in sides]
        statements.append(f"{values} = _branch(0, [{', '.join(sides)}], {names}, locals())")
        *functions, call = (ast.copy_location(each, node) for each in ast.parse("\n".join(statements)).body)
        for function, body in zip(functions, (node.body, node.orelse), strict=True):
            function.body[:0] = body
        call.value.args[0] = node.test
        return [*functions, call]


def branch(test: Any, sides: list[Callable[..., Any]], names: list[str], variables: dict[str, Any]) -> Any:
    """What an `if` has become: Python decides it if it can, else both sides are recorded."""
    before = [variables.get(name, UNSET) for name in names]
    if isinstance(test, Proxy):
        return test.tracer.branch(test, sides, names, before)
    return sides[0 if test else 1](*before)


def converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its `if`s converted."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    tree = Ifs().visit(ast.increment_lineno(tree, function.__code__.co_firstlineno - 1))
    found = {**function.__globals__, "_branch": branch}
    exec(compile(ast.fix_missing_locations(tree), inspect.getfile(function), "exec"), found)
    return found[function.__name__]


# ---- 6. Guards: what was taken for granted is looked at in every call, and what differs is said. (runtime/guards.py)


def expect(value: Any, captured: Any, what: str) -> None:
    if value != captured:
        raise RuntimeError(f"{what} was {captured} when the program was captured; now it is {value}: capture it again")


# ---- 7. Printed code: each node is a line of Python, a branch an `if`, a join an assignment at the end of both sides.
# The text is all that runs later. (graphwright/codegen)


def text(value: Any, tracer: Tracer) -> str:
    if isinstance(value, Proxy):
        return value.node.name
    if id(value) in tracer.tensors:
        return tracer.tensors[id(value)]
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        inner = ", ".join(text(item, tracer) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, torch.Tensor):
        raise Refused("a tensor that is neither computed nor a parameter: make it one, or a buffer")
    return repr(tuple(value)) if isinstance(value, torch.Size) else repr(value)


def lines(graph: Graph, tracer: Tracer, indent: str = "    ") -> Iterator[str]:
    for node in graph.nodes:
        args = [] if node.op == "branch" else [text(value, tracer) for value in node.args]
        named = [f"{key}={text(value, tracer)}" for key, value in node.kwargs.items()] if args else []
        given = ", ".join([*args, *named])
        if node.op == "guard":
            yield f"{indent}expect({args[0]}.{node.target}, {args[1]}, '{args[0]}.{node.target}')"
        elif node.op == "branch":
            test, *sides = node.args
            for i, (head, side) in enumerate(zip((f"if {text(test, tracer)}:", "else:"), sides, strict=True)):
                joins = [f"{name} = {text(both[i], tracer)}" for name, both in node.kwargs.items()]
                yield indent + head
                yield from lines(side, tracer, indent + "    ")
                yield from (f"{indent}    {line}" for line in joins or ["pass"])
        elif node.op == "module":
            yield f"{indent}{node.name} = self.{tracer.paths[id(node.target)]}({given})"
        elif node.op == "method":
            yield f"{indent}{node.name} = {args[0]}.{node.target}({given.partition(', ')[2]})"
        elif node.op == "function":
            symbol = OPERATORS.get(node.target.__name__) if node.target.__module__ == "_operator" else None
            call = f" {symbol} ".join(args) if symbol else f"torch.{node.target.__name__}({given})"
            yield f"{indent}{node.name} = {call}"


def trace(model: nn.Module, *examples: torch.Tensor) -> nn.Module:
    """Capture a model: a copy of it whose forward is generated code, in `.code`."""
    forward = type(model).forward
    for attempt in (lambda: forward, lambda: converted(forward)):
        tracer = Tracer(model)
        try:
            result = tracer.run(attempt(), examples)
            break
        except Convert:
            continue
    inputs = ", ".join(node.name for node in tracer.graph.nodes if node.op == "input")
    body = [*lines(tracer.graph, tracer), f"    return {text(result, tracer)}"]
    code = "\n".join([f"def forward(self, {inputs}):", *body])
    found: dict[str, Any] = {"torch": torch, "expect": expect}
    exec(code, found)
    captured = copy.deepcopy(model)
    captured.forward = MethodType(found["forward"], captured)
    captured.code = code
    return captured


# ---- A model that asks for a shape, and for data; and one that this file refuses.


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(4), nn.Parameter(torch.ones(4))

    def forward(self, x: Any) -> Any:
        h = self.norm(x.reshape(x.shape[0], -1)) * self.gate
        scale = 1.0
        if x.sum() > 0:
            h = torch.relu(h)
            scale = 2.0
        else:
            h = h - 1
        return h * scale


class Countdown(nn.Module):
    def forward(self, x: Any) -> Any:
        while x.sum() > 0:
            x = x - 1
        return x


if __name__ == "__main__":
    model, example = Gate(), torch.rand(2, 2, 2)
    captured = trace(model, example)
    print(captured.code)
    for x in (example, -example):
        assert torch.equal(captured(x), model(x))
    print("both sides agree with the model")
    try:
        captured(torch.rand(3, 2, 2))
    except RuntimeError as error:
        print(f"guard: {error}")
    try:
        trace(Countdown(), torch.ones(2))
    except Refused as error:
        print(f"refused: {error}")
