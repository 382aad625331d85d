"""Running a graph node by node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from graphwright.errors import GraphError
from graphwright.ir import ATOMS, Argument, Graph, Node, Target, immutable_dict, immutable_list, map_arg, nodes_in
from graphwright.runtime.graph_module import graph_of

__all__ = ["Interpreter"]


class Interpreter:
    """Runs the graph of a module node by node; override a method to see or change what happens.

    `run_node` is called for every node and calls the method named after its opcode, which gets the target and the
    arguments with values in place of nodes.

    >>> from graphwright.runtime import GraphModule
    >>> import operator
    >>> graph = Graph()
    >>> _ = graph.output(graph.call_function(operator.mul, (graph.placeholder("x"), 2)))
    >>> Interpreter(GraphModule(nn.Module(), graph)).run(21)
    42
    """

    def __init__(self, module: nn.Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.graph = graph_of(module) if graph is None else graph
        self.submodules = dict(module.named_modules())
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())
        self._kwargs: dict[str, Any] = {}
        self.user_to_last_uses = self._last_uses() if garbage_collect_values else {}

    def _last_uses(self) -> dict[Node, list[Node]]:
        seen: set[Node] = set()
        last: dict[Node, list[Node]] = {}
        for node in reversed(self.graph.nodes):
            for used in (*nodes_in(node._args), *nodes_in(node._kwargs)):
                if used not in seen:
                    seen.add(used)
                    last.setdefault(node, []).append(used)
        return last

    def run(
        self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True, **kwargs: Any
    ) -> Any:
        """Run the graph on these arguments and return its output.

        `initial_env` gives values of nodes that are then not run. Raises GraphError where a required argument is
        missing, TypeError for a keyword that is no input. The values stay in `env` where `garbage_collect_values` is
        False.
        """
        self.env = dict(initial_env) if initial_env is not None else {}
        self.args_iter = iter(args)
        self._kwargs = self._checked(kwargs)
        env, last_uses = self.env, self.user_to_last_uses
        for node in self.graph.nodes:
            if node in env:
                continue
            try:
                env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback and hasattr(error, "add_note"):
                    where = f": {node.origin}" if node.origin is not None else ""
                    error.add_note(f"while running {node.name}{where}")
                raise
            if node._op == "output":
                return env[node]
            if self.garbage_collect_values:
                for used in last_uses.get(node, ()):
                    env.pop(used, None)
                if not node.users:
                    env.pop(node, None)
        return None

    def _checked(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Refuse keywords that no input takes, as a function does."""
        inputs = {node._target for node in self.graph.nodes if node._op == "placeholder"} if kwargs else set()
        unknown = [name for name in kwargs if name not in inputs]
        if unknown and not any(isinstance(name, str) and name.startswith("**") for name in inputs):
            raise TypeError(f"the graph has no input {unknown[0]!r}")
        return dict(kwargs)

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Run on the arguments in a list, which is emptied, so that the caller keeps none of them alive."""
        args = tuple(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n: Node) -> Any:
        """Run one node and return its value."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n._op)(n._target, args, kwargs)

    # ---- one method per opcode

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Take the next argument; a `*args` placeholder takes all that are left, `**kwargs` the other keywords."""
        assert isinstance(target, str)
        if target.startswith("**"):
            rest, self._kwargs = self._kwargs, {}
            return rest
        if target.startswith("*"):
            return tuple(self.args_iter)
        if target in self._kwargs:
            return self._kwargs.pop(target)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise GraphError(
                f"Expected positional argument for parameter {target}, but one was not passed in"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Read an attribute of the module by dotted path."""
        return self.fetch_attr(target)  # type: ignore[arg-type]

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function."""
        return target(*args, **kwargs)  # type: ignore[operator]

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of the first argument."""
        return getattr(args[0], target)(*args[1:], **kwargs)  # type: ignore[arg-type]

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Call a submodule by dotted path."""
        module = self.submodules.get(target)
        if module is None:
            module = self.fetch_attr(target)  # type: ignore[arg-type]
        return module(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Return the program's result."""
        return args[0] if args else None

    # ---- values

    def fetch_attr(self, target: str) -> Any:
        """Follow a dotted path from the module. Raises GraphError naming the step that is missing."""
        value: Any = self.module
        for i, atom in enumerate(target.split(".")):
            if not hasattr(value, atom):
                path = ".".join(target.split(".")[: i + 1])
                raise GraphError(f"Node referenced nonexistent target {path}", fix="lint the graph to see which node")
            value = getattr(value, atom)
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a node's arguments with values in place of nodes."""
        env = self.env
        args = []
        for arg in n._args:
            kind = type(arg)
            if kind is Node:
                arg = env[arg]
            elif kind not in ATOMS:
                arg = self.map_nodes_to_values(arg, n)
            args.append(arg)
        kwargs = {key: self.map_nodes_to_values(arg, n) for key, arg in n._kwargs.items()} if n._kwargs else {}
        return tuple(args), kwargs

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Put values in place of nodes in nested arguments; containers come back as plain lists and dicts."""
        env = self.env

        def load(node: Node) -> Any:
            if node not in env:
                raise GraphError(f"Node {n} referenced nonexistent value {node}: run lint on the graph", at=n.origin)
            return env[node]

        return _thawed(map_arg(args, load)) if not isinstance(args, Node) else load(args)


def _thawed(value: Any) -> Any:
    """Plain lists and dicts in place of immutable ones: the operations called may expect to own them."""
    if type(value) is immutable_list:
        return [_thawed(item) for item in value]
    if type(value) is immutable_dict:
        return {key: _thawed(item) for key, item in value.items()}
    if type(value) is slice:
        return slice(_thawed(value.start), _thawed(value.stop), _thawed(value.step))
    if isinstance(value, tuple):
        kind = type(value)
        items = [_thawed(item) for item in value]
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    return value
