"""What stands in the place of a match: written by a function that runs on the values of the match, or by a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from graphwright.capture import GraphAppendingTracer, Proxy, find_tracer
from graphwright.errors import PatternError, TraceError
from graphwright.ir import ATOMS, Graph, Node, candidate_for, map_aggregate, map_arg
from graphwright.ops import draws_alone
from graphwright.rewrite import words
from graphwright.rewrite.match import Match
from graphwright.rewrite.pattern import Pattern, captured, place_of
from graphwright.runtime import add_constant, assign_attribute, copy_attribute, delete_attribute, has_attribute

MATCH = "match"  # the parameter that takes the match itself


def replacement_of(source: Any, pattern: Pattern) -> Function | Template:
    """Make a replacement from what says it. Raises PatternError for what does not fit the pattern."""
    if isinstance(source, Graph | nn.Module | words.Expression):
        return Template(*captured(source, "a replacement"), pattern)
    if not callable(source):
        raise PatternError(f"a replacement is a function, a module, a graph or an expression, not {source!r}")
    return Function(source, pattern)


class Function:
    """A replacement that is called for each match.

    Its parameters have the names of the pattern's variables, or stand in their order. Values of the graph come as
    proxies, literals as they are, modules as `Installed`.
    """

    def __init__(self, function: Callable[..., Any], pattern: Pattern) -> None:
        self._function = function
        self.where = place_of(function)
        known, variables = {*pattern.names, MATCH}, pattern.variables
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:  # written in C: by position alone
            parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in variables]
        parameters = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        needed = [each for each in parameters if each.default is each.empty and each.name != MATCH]
        if {each.name for each in needed} <= known:
            self._taken = [(each, each.name) for each in parameters if each.name in known]
        elif len(needed) == len(variables):
            self._taken = list(zip(needed, variables, strict=True))
            self._taken += [(each, MATCH) for each in parameters if each.name == MATCH]
        else:
            unknown = ", ".join(each.name for each in needed if each.name not in known)
            raise PatternError(
                f"the replacement takes {unknown}, which the pattern does not have",
                at=self.where,
                fix=f"name its parameters as those of the pattern: {', '.join(pattern.names)}",
            )

    def write(self, match: Match, graph: Graph) -> Any:
        """Write the replacement at the graph's insert point; return its value."""
        tracer = match.tracer = _Tracer(graph, match.module)
        args, kwargs = [], {}
        for parameter, name in self._taken:
            value = _given(match, name, tracer)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[parameter.name] = value
        try:
            with _Draws(tracer):
                return tracer.create_arg(self._function(*args, **kwargs))
        except TraceError as error:
            raise PatternError(
                f"a replacement is called on values that are not known: {error.message}",
                at=error.at or self.where,
                fix="branches and loops can be in one that is captured: graphwright.symbolic_trace(replacement)",
            ) from error


class _Draws(TorchFunctionMode):
    """Writes what draws random numbers: a replacement may not draw once, while it is written."""

    def __init__(self, tracer: GraphAppendingTracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self, function: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if draws_alone(function) and find_tracer(args, kwargs or {}) is None:
            return self._tracer.create_proxy("call_function", function, args, kwargs or {})
        return function(*args, **(kwargs or {}))


class _Tracer(GraphAppendingTracer):
    """Writes replacements: tensors that they have computed become buffers of the module."""

    def __init__(self, graph: Graph, gm: nn.Module) -> None:
        super().__init__(graph)
        self._gm = gm
        self._installed: list[str] = []

    def install(self, module: nn.Module, name: str) -> Installed:
        """Put a new module into the captured one."""
        return Installed(module, self._put(module, name), self)

    def _put(self, value: Any, name: str) -> str:
        path = add_constant(self._gm, value, name, persistent=True)
        self._installed.append(path)
        return path

    def uninstall(self) -> None:
        """Take away what this replacement has put into the module."""
        for path in reversed(self._installed):
            delete_attribute(self._gm, path)
        self._installed.clear()

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            return self.create_node("get_attr", self._put(a, "constant"), (), {})
        return super().create_arg(a)


def _given(match: Match, name: str, tracer: GraphAppendingTracer) -> Any:
    if name == MATCH and MATCH not in match.values:
        return match
    value = match[name]
    if isinstance(value, nn.Module):
        return Installed(value, match.paths[name], tracer)
    return map_aggregate(value, lambda item: Proxy(item, tracer) if isinstance(item, Node) else item)


class Installed:
    """A module of the captured program, in a replacement: what is read from it becomes a value of the graph.

    Calling it calls the module. Attributes that are tensors are proxies, further modules are `Installed`, and the
    rest (`linear.in_features`) is what it is. `torch_module` is the module itself.
    """

    def __init__(self, module: nn.Module, path: str, tracer: GraphAppendingTracer) -> None:
        self.torch_module, self._path, self._tracer = module, path, tracer

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__dict__["torch_module"], name)
        path = f"{self._path}.{name}"
        if isinstance(value, torch.Tensor):
            return self._tracer.create_proxy("get_attr", path, (), {})
        if isinstance(value, nn.Module):
            return Installed(value, path, self._tracer)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._tracer.create_proxy("call_module", self._path, args, kwargs)

    def __repr__(self) -> str:
        return f"Installed({self._path})"


class Template:
    """A replacement that is a graph: it is copied for each match.

    Its inputs have the names of the pattern's variables, or stand in their order, as they do `by_position` at any rate.
    Modules and tensors that it has of its own come along, where the captured program has nothing of that path.
    """

    def __init__(
        self, graph: Graph, module: nn.Module | None, where: str, pattern: Pattern, by_position: bool = False
    ) -> None:
        self.graph, self.module, self.where = graph, module, where
        self._own = {str(node.target) for node in graph.all_nodes() if node.op in ("get_attr", "call_module")}
        self._result = graph.output_node().args[0]
        inputs = graph.placeholders()
        self._nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        # Those whose copies may get their names when somebody asks for them, and read plain values by position.
        self._plain = {node for node in self._nodes if node.name == candidate_for(node.target) and _is_flat(node)}
        names = [str(node.target).lstrip("*") for node in inputs]
        if set(names) <= set(pattern.names) and not by_position:
            self._variables = dict(zip(inputs, names, strict=True))
        elif len(names) == len(pattern.variables):
            self._variables = dict(zip(inputs, pattern.variables, strict=True))
        else:
            raise PatternError(
                f"the replacement takes {', '.join(names)}, and the pattern {', '.join(pattern.variables)}",
                at=where,
                fix="give it the parameters of the pattern",
            )

    def write(self, match: Match, graph: Graph) -> Any:
        """Copy the replacement to the graph's insert point; return its value."""
        if self._own:
            self._bring(match.module)
        values: dict[Node, Any] = {node: match[name] for node, name in self._variables.items()}
        for node in self._nodes:
            if node in self._plain:
                args = tuple([values[arg] if type(arg) is Node else arg for arg in node.args])
                values[node] = graph.create_node(node.op, node.target, args, None, None, node.type)
            else:
                values[node] = graph.node_copy(node, values.__getitem__)
        result = self._result
        return values[result] if type(result) is Node else map_arg(result, values.__getitem__)

    def _bring(self, gm: nn.Module) -> None:
        for name in self._own:
            if has_attribute(gm, name):
                continue
            if self.module is not None and has_attribute(self.module, name):
                copy_attribute(self.module, gm, name)
            elif name in self.graph.constants:
                assign_attribute(self.graph.constants[name], gm, name)


def _is_flat(node: Node) -> bool:
    """Tell whether a node has no arguments but nodes and atoms, none by name."""
    return not node.kwargs and all(type(arg) is Node or type(arg) in ATOMS for arg in node.args)
