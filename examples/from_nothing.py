"""Graphwright from nothing: how Python lets a library write down what a PyTorch program does, in eight steps.

    python examples/from_nothing.py

docs/from-nothing.md shows the facts about Python that each step stands on; capture_in_one_file.py goes on from here.
"""

import copy
import dis
import linecache
import operator
import sys
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.overrides import resolve_name


# ---- 1. A graph is a list of operations, in order. An argument is a value, or the node that computes it.
class Node:
    def __init__(self, op: str, name: str, target: Any, args: Any = (), kwargs: Any = None, line: int = 0):
        self.op, self.name, self.target, self.args, self.kwargs, self.line = op, name, target, args, kwargs or {}, line

    def __repr__(self) -> str:
        return self.name


class Graph(list[Node]):
    def add(self, op: str, hint: str, *rest: Any) -> Node:
        taken = {node.name for node in self}
        name = next(name for i in count() if (name := f"{hint}_{i}" if i else hint) not in taken)
        self.append(Node(op, name, *rest))
        return self[-1]


def mapped(value: Any, kind: type, function: Callable[[Any], Any]) -> Any:  # in nested values, too
    if isinstance(value, dict):
        return {key: mapped(item, kind, function) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mapped(item, kind, function) for item in value)
    return function(value) if isinstance(value, kind) else value


# ---- 2. A proxy stands for a value that is not there yet. It never computes: it writes down what it is asked to do.
# Functions of torch ask their arguments for `__torch_function__`, and leave the work to whoever has it.
class Proxy:
    def __init__(self, graph: Graph, node: Node):
        self.graph, self.node = graph, node

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> "Proxy":
        proxies: list[Proxy] = []
        mapped([*args, kwargs or {}], Proxy, proxies.append)
        return record(proxies[0].graph, "function", function, args, kwargs)

    # ---- 3. What a class does not have, `__getattr__` is asked for: `x.relu()` is a method, `x.shape` a value.
    def __getattr__(self, name: str) -> "Proxy":
        return Attribute(self, name)

    # ---- 4. Some questions want an answer of Python's now. How many values an assignment wants stands in the
    # instruction at which the frame that asks has stopped; whether data is true stands nowhere, and is refused.
    def __iter__(self) -> Iterator["Proxy"]:
        frame = sys._getframe(1)
        asks = next(each for each in dis.get_instructions(frame.f_code) if each.offset == frame.f_lasti)
        if asks.opname != "UNPACK_SEQUENCE":
            raise TypeError(f"line {frame.f_lineno}: how long {self.node} is, only a run knows")
        return iter([record(self.graph, "function", operator.getitem, (self, i), {}, i) for i in range(asks.argval)])

    def __bool__(self) -> bool:
        raise TypeError(f"line {sys._getframe(1).f_lineno}: whether {self.node} is true, only a run knows")


class Attribute(Proxy):
    def __init__(self, owner: Proxy, name: str):
        self.graph, self.owner, self.name = owner.graph, owner, name

    def __getattr__(self, name: str) -> Any:
        if name == "node":  # not there yet: it is written down when somebody uses it as a value, a method never is
            self.node = record(self.graph, "attribute", self.name, (self.owner,)).node
        return self.node if name == "node" else Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return record(self.graph, "method", self.name, (self.owner, *args), kwargs)


# Operators are looked up in the class, past `__getattr__`: each has to be there.
TEXTS = {operator.add: "{} + {}", operator.sub: "{} - {}", operator.mul: "{} * {}", operator.truediv: "{} / {}"}
TEXTS |= {operator.gt: "{} > {}", operator.neg: "-{}", operator.getitem: "{}[{}]"}  # and so on
for each in TEXTS:
    setattr(Proxy, f"__{each.__name__}__", lambda *args, f=each: record(args[0].graph, "function", f, args))
    setattr(Proxy, f"__r{each.__name__}__", lambda x, y, f=each: record(x.graph, "function", f, (y, x)))


# ---- 5. Frames know who asks. The first outside of torch and of this library is the user's: its line is where the node
# comes from, and the instructions behind the call say which variables, if any, take the value.
def record(graph: Graph, op: str, target: Any, args: Any, kwargs: Any = None, item: int = 0) -> Proxy:
    frame: Any = sys._getframe(1)
    while "/torch/" in (file := frame.f_code.co_filename) or (file == __file__ and frame.f_lineno < OURS):
        frame = frame.f_back
    name = getattr(target, "__name__", target).rpartition(".")[2].strip("_")
    hint = [*stored(frame), *[name] * (item + 1)][item]
    args, kwargs = mapped((args, kwargs or {}), Proxy, lambda proxy: proxy.node)
    return Proxy(graph, graph.add(op, hint, target, args, kwargs, frame.f_lineno))


def stored(frame: Any) -> Iterator[str]:
    behind = (each for each in dis.get_instructions(frame.f_code) if each.offset > frame.f_lasti)
    for each in takewhile(lambda each: each.opname.startswith("STORE_FAST"), behind):
        names = (each.argval,) if isinstance(each.argval, str) else each.argval  # two in one, since Python 3.13
        yield from names if each.opname == "STORE_FAST_STORE_FAST" else names[:1]


# ---- 6. A module runs once, on proxies. The code object of its forward names the inputs; parameters, which modules do
# not keep as attributes, come through `__getattr__`; and calls of torch's own layers stay calls.
def capture(model: nn.Module) -> Graph:
    graph, code = Graph(), type(model).forward.__code__
    paths = {id(each): f"self.{name}" for name, each in [*model.named_modules(), *model.named_parameters()]}
    inside, called = nn.Module.__getattr__, nn.Module.__call__

    def attribute(module: nn.Module, name: str) -> Any:
        value = inside(module, name)
        return record(graph, "parameter", paths[id(value)], ()) if isinstance(value, nn.Parameter) else value

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        is_layer = type(module).__module__.startswith("torch.nn")
        return record(graph, "module", paths[id(module)], args, kwargs) if is_layer else called(module, *args, **kwargs)

    inputs = [Proxy(graph, graph.add("input", name, name)) for name in code.co_varnames[1 : code.co_argcount]]
    with mock.patch.object(nn.Module, "__getattr__", attribute), mock.patch.object(nn.Module, "__call__", call):
        result = type(model).forward(model, *inputs)
    record(graph, "output", "output", (result,))
    return graph


# ---- 7. The graph as Python: a line for each node. `exec` makes a function of the text, `linecache` shows its lines in
# tracebacks, and a copy of the module, of a class of its own, has it as its forward.
def line(node: Node) -> str:
    args = [*map(repr, node.args), *(f"{key}={value!r}" for key, value in node.kwargs.items())]
    if node.op in ("output", "parameter"):
        return f"return {args[0]}" if args else f"{node} = {node.target}"
    if node.target in TEXTS:
        return f"{node} = {TEXTS[node.target].format(*args)}"
    owner = f"{args.pop(0)}." if node.op in ("method", "attribute") else ""
    called = f"({', '.join(args)})" if node.op != "attribute" else ""
    return f"{node} = {owner}{resolve_name(node.target) if callable(node.target) else node.target}{called}"


def source(graph: Graph) -> str:
    inputs = ", ".join(["self", *(node.name for node in graph if node.op == "input")])
    body = (f"    {line(node):36}  # line {node.line}" for node in graph if node.op != "input")
    return "\n".join([f"def forward({inputs}):", *body, ""])


def module_of(model: nn.Module, graph: Graph) -> nn.Module:
    text, found = source(graph), {"torch": torch}
    linecache.cache["<captured>"] = (len(text), None, text.splitlines(True), "<captured>")
    exec(compile(text, "<captured>", "exec"), found)
    found["forward"].__defaults__ = type(model).forward.__defaults__
    captured = copy.copy(model)
    captured.__class__ = type(f"Captured{type(model).__name__}", (type(model),), {"forward": found["forward"]})
    return captured


# ---- 8. A module to try it on: captured, printed, run, changed by an assignment, run - and one that is refused.
OURS = sys._getframe().f_lineno  # what is above is the library


class Gated(nn.Module):
    def __init__(self, asks: bool = False) -> None:
        super().__init__()
        self.inner, self.scale, self.asks = nn.Linear(4, 8), nn.Parameter(torch.ones(4)), asks

    def forward(self, x, limit=1.0):
        value, gate = self.inner(x).chunk(2, dim=-1)
        hidden = torch.relu(value) * gate.sigmoid()
        if self.asks and value.sum() > 0:
            hidden = hidden * 2
        return torch.cat([hidden, -self.scale * x.T.mT], dim=-1).clamp(max=limit)


if __name__ == "__main__":
    model, x = Gated(), torch.randn(3, 4)
    graph = capture(model)
    print(source(graph))
    captured = module_of(model, graph)
    assert isinstance(captured, Gated) and torch.equal(captured(x), model(x))
    next(node for node in graph if node.target is torch.relu).target = nn.functional.gelu
    changed = module_of(model, graph)
    with mock.patch("torch.relu", nn.functional.gelu):
        assert torch.equal(changed(x), model(x))
    print(source(graph).splitlines()[5].lstrip())
    try:
        capture(Gated(asks=True))
    except TypeError as error:
        print(f"refused: {error}")
