"""Patterns: what to look for in a graph, made from a function, a module, a graph or an expression."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from torch import nn

from graphwright.capture import Proxy, Tracer
from graphwright.errors import GraphwrightError, PatternError
from graphwright.ir import Graph, Node
from graphwright.ops import Picked, call_of, is_region, required_parameters
from graphwright.rewrite import words
from graphwright.rewrite.bodies import Bodies, Body, parts_of
from graphwright.rewrite.chains import Chain, Choice, Hole
from graphwright.rewrite.operations import Attribute, ModuleStep, Operation
from graphwright.rewrite.steps import Step, Wildcard, parts_in
from graphwright.runtime import graph_of, has_attribute, read_attribute


class Pattern:
    """What a part of a graph has to look like.

    `variables` are the values that it takes from outside, by name; `roots` what it gives, and `result` how: one root,
    or a tuple, list or dict of them. `steps` has what each node of its graph means, and `anchors` are the nodes of the
    roots; `where` is the file and line that say so. With `any_literal`, a literal stands for any.
    """

    def __init__(
        self, graph: Graph, module: nn.Module | None = None, where: str = "", *, any_literal: bool = False
    ) -> None:
        self.graph, self.module, self.where = graph, module, where
        self._any_literal = any_literal
        self.steps: dict[Node, Any] = {}
        self.variables: list[str] = []
        for node in graph.nodes:
            if node.op == "placeholder":
                self._take(node)
        self.result = self._value(graph.output_node().args[0])
        self.roots: list[Step] = []
        self._find_roots(self.result)
        nodes = {step: node for node, step in self.steps.items() if isinstance(step, Step)}
        self.anchors = [nodes[root] for root in self.roots]
        self.depth = self._depth()
        self.names = self._names()

    @staticmethod
    def of(source: Any) -> Pattern:
        """Make a pattern from whatever says it. Raises PatternError for what is no pattern."""
        if isinstance(source, Pattern):
            return source
        graph, module, where = captured(source, "a pattern")
        return Pattern(graph, module, where)

    def keys(self) -> set[Hashable] | None:
        """What the nodes are found by that the first root may be; None where it may be any."""
        return self.roots[0].keys()

    def way_to_known(self, root: Step, is_known: Callable[[Step], bool]) -> tuple[Step, int] | None:
        """The known step that is fewest operations away from a root, and how many; None if it reads none."""
        level = list(parts_in(root.inputs()))
        for length in range(1, 1 + self.depth):
            for value in level:
                if isinstance(value, Step) and is_known(value):
                    return value, length
            level = [part for value in level if isinstance(value, Step) for part in parts_in(value.inputs())]
        return None

    # ---- from a graph to steps

    def _take(self, node: Node) -> None:
        name = str(node.target).lstrip("*")
        kind = node.args[0] if node.args and isinstance(node.args[0], words.Word) else None
        self.steps[node] = Wildcard(name, kind)
        self.variables.append(name)

    def _find_roots(self, value: Any) -> None:
        if isinstance(value, Step):
            if isinstance(value, Wildcard | Hole):
                raise PatternError(
                    f"the pattern gives back its input {value.name}: there is nothing to find", at=self.where
                )
            if value not in self.roots:
                self.roots.append(value)
        elif isinstance(value, list | tuple):
            for item in value:
                self._find_roots(item)
        elif isinstance(value, dict):
            for item in value.values():
                self._find_roots(item)
        else:
            raise PatternError(f"the pattern gives the literal {value!r}: only operations can be found", at=self.where)
        if not self.roots:
            raise PatternError("the pattern gives nothing", at=self.where, fix="return the value to be replaced")

    def _value(self, value: Any) -> Any:
        """An argument of a node of the pattern, with steps in place of nodes."""
        if isinstance(value, Node):
            step = self.steps.get(value)
            if step is None:
                step = self.steps[value] = self._step(value)
            return step
        if isinstance(value, list | tuple):
            items = [self._value(item) for item in value]
            return Picked(items) if isinstance(value, Picked) else tuple(items)
        if isinstance(value, dict):
            return {key: self._value(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(self._value(value.start), self._value(value.stop), self._value(value.step))
        return words.Lit() if self._any_literal and not isinstance(value, words.Word) else value

    def _step(self, node: Node) -> Step:
        target = node.target
        if node.op == "get_attr":
            has = self.module is not None and has_attribute(self.module, str(target))
            value = read_attribute(self.module, str(target)) if self.module is not None and has else None
            return Attribute(node.name, str(target), isinstance(value, nn.Parameter))
        if node.op == "call_module":
            module = self.module.get_submodule(str(target)) if self.module is not None else None
            if module is None:
                raise PatternError(
                    f"the pattern calls {target}, and has no modules", at=self.where, fix="use mod(nn.Linear)(x)"
                )
            word = words.ModuleOf((type(module),), str(target).replace(".", "_"))
            return ModuleStep(node.name, word, self._value(node.args), self._value(dict(node.kwargs)))
        if isinstance(target, words.ModuleOf):
            return ModuleStep(node.name, target, self._value(node.args), self._value(dict(node.kwargs)))
        if node.op == "call_method" and target == "__call__":
            called = self._value(node.args[0])
            if isinstance(called, Wildcard) and isinstance(called.kind, words.ModuleOf):
                word = words.ModuleOf(called.kind.classes, called.name)
                return ModuleStep(node.name, word, self._value(node.args[1:]), self._value(dict(node.kwargs)))
        if isinstance(target, words.OneOf):
            return Choice(target, self._value(node.args))
        if isinstance(target, words.Repeat):
            step, hole, start = self._value(node.args)
            return Chain(target, step, hole, start)
        if target is words.before:
            return Hole()
        if is_region(node):
            return self._bodies(node)
        if node.op not in ("call_function", "call_method"):
            raise PatternError(f"a pattern cannot say {node.op}", at=self.where)
        return Operation(node.name, node, call_of(node), self._value)

    def _bodies(self, node: Node) -> Step:
        parts = parts_of(node)
        if parts is None:
            raise PatternError(f"the bodies of {node.name} are no graphs", at=self.where)
        bodies = []
        for graph in parts.bodies:
            placeholders = graph.placeholders()
            own = len(placeholders) - len(parts.operands)
            for placeholder in placeholders[:own]:
                self.steps[placeholder] = Hole()
            for placeholder, operand in zip(placeholders[own:], parts.operands, strict=True):
                self.steps[placeholder] = self._value(operand)
            owns = [self.steps[placeholder] for placeholder in placeholders[:own]]
            bodies.append(Body(owns, self._value(graph.output_node().args[0]), len(parts.carried)))
        plain = [self._value(value) for value in (*parts.plain, *parts.carried)]
        return Bodies(node.name, node, plain, bodies)

    def _names(self) -> list[str]:
        """What matches know by name: the variables, and what words say."""
        names = dict.fromkeys(self.variables)
        seen: set[Any] = set()
        waiting = list(parts_in(self.roots))
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            if isinstance(value, words.Word):
                names[value.name] = None
            else:
                word = getattr(value, "word", None)
                names[word.name if word is not None else ""] = None
                waiting.extend(parts_in(value.inputs()))
        return [name for name in names if name]

    def _depth(self) -> int:
        """How many operations deep the pattern is: so far from an edit it may have come to match."""
        depths: dict[Step, int] = {}

        def depth(step: Step) -> int:
            if step not in depths:
                depths[step] = 1  # against cycles
                inside = [depth(part) for part in parts_in(step.inputs()) if isinstance(part, Step)]
                depths[step] = 1 + max(inside, default=0) + (64 if isinstance(step, Chain | Bodies) else 0)
            return depths[step]

        return max(map(depth, self.roots))


def captured(source: Any, what: str) -> tuple[Graph, nn.Module | None, str]:
    """The graph that a function, module, graph or expression means, the module it reads, and where it is written."""
    if isinstance(source, words.Expression):
        return _of_expression(source, what)
    if isinstance(source, Graph):
        return source, source.owning_module, ""
    if isinstance(source, nn.Module) and is_captured(source):
        return graph_of(source), source, ""
    if not callable(source):
        raise PatternError(f"{what} is a function, a module, a graph or an expression, not {source!r}")
    required = None if isinstance(source, type) else required_parameters(source)
    if required:
        return _of_call(source, required), None, ""
    tracer = Tracer()
    try:
        graph = tracer.trace(source)
    except GraphwrightError as error:
        raise PatternError(f"{what} cannot be captured: {error.message}", at=error.at, fix=error.fix) from error
    return graph, source if isinstance(source, nn.Module) else tracer.root, place_of(source)


def is_captured(module: nn.Module) -> bool:
    """Tell whether a module has a graph."""
    try:
        graph_of(module)
    except GraphwrightError:
        return False
    return True


def place_of(function: Any) -> str:
    """The file and line where a function is written, where that is known."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _of_call(function: Any, parameters: Sequence[str]) -> Graph:
    """A call of a function that is not looked into, with all that it may leave out left out."""
    graph = Graph()
    graph.output(graph.call_function(function, tuple([graph.placeholder(name) for name in parameters])))
    return graph


def _of_expression(expression: words.Expression, what: str) -> tuple[Graph, nn.Module | None, str]:
    graph = Graph()
    values: dict[int, Any] = {}
    for name, variable in expression.variables().items():
        node = graph.create_node("placeholder", name, () if variable.kind is None else (variable.kind,), {}, name)
        values[id(variable)] = Proxy(node)
    result = expression.on(values)
    if not isinstance(result, Proxy):
        raise PatternError(f"{what} has no variable", fix="write Var('x') for a value from outside")
    graph.output(result.node)
    return graph, None, ""
