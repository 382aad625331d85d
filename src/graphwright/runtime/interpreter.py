"""Running a graph node by node."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from graphwright.errors import GraphError, GraphwrightError
from graphwright.ir import (
    ATOMS,
    Argument,
    Graph,
    Node,
    Target,
    has_preserved_node_meta,
    immutable_dict,
    immutable_list,
    map_arg,
    nodes_in,
    on_the_way,
    set_current_meta,
)
from graphwright.ops import enter_context, exit_context, is_attempt, is_region, set_attribute, write_attribute
from graphwright.runtime.entries import entry_points_of, expect_modules
from graphwright.runtime.foreign import as_captured, note_back
from graphwright.runtime.graph_module import graph_of
from graphwright.values import sequence


class Interpreter:
    """Runs the graph of a module node by node; override a method to see or change what happens.

    `run_node` is called for every node and calls the method named after its opcode, which gets the target and the
    arguments with values in place of nodes. So are the nodes in bodies of branches and loops, each time that they run.

    >>> from graphwright.runtime import GraphModule
    >>> import operator
    >>> graph = Graph()
    >>> _ = graph.output(graph.call_function(operator.mul, (graph.placeholder("x"), 2)))
    >>> Interpreter(GraphModule(nn.Module(), graph)).run(21)
    42
    """

    def __init__(self, module: nn.Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self._given = module  # which may be one of another system
        self.module = module = as_captured(module) if graph is None else module
        self.graph = graph_of(module) if graph is None else graph
        for body in self.graph.all_graphs():
            body.owning_module = body.owning_module or self.graph.owning_module  # which runs it
        self.submodules = dict(module.named_modules())
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())
        self._kwargs: dict[str, Any] = {}
        self.user_to_last_uses = self._last_uses() if garbage_collect_values else {}
        self._uses_in: dict[Graph, dict[Node, list[Node]]] = {}  # the same of bodies that ran

    def _last_uses(self) -> dict[Node, list[Node]]:
        """Map each node to the values that nothing reads after it, itself included where nothing reads it at all."""
        seen: set[Node] = set()
        last: dict[Node, list[Node]] = {}
        for node in reversed(self.graph.nodes):
            dead = []
            for arg in node._args:
                if type(arg) is Node:
                    if arg not in seen:
                        seen.add(arg)
                        dead.append(arg)
                elif type(arg) not in ATOMS:
                    for used in nodes_in(arg):
                        if used not in seen:
                            seen.add(used)
                            dead.append(used)
            if node._kwargs:
                for used in nodes_in(node._kwargs):
                    if used not in seen:
                        seen.add(used)
                        dead.append(used)
            if not node.users and node._op != "output" and node._target is not enter_context:  # which is to be left
                dead.append(node)
            if dead:
                last[node] = dead
        return last

    def run(
        self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True, **kwargs: Any
    ) -> Any:
        """Run the graph on these arguments and return its output.

        `initial_env` gives values of nodes that are then not run. `enable_io_processing=False` takes one argument per
        placeholder and returns what the output node returns, whatever signature the graph's code generation gives.
        Raises GraphError where a required argument is missing, TypeError for a keyword that is no input. An error on
        the way says which node was running. The values stay in `env` where `garbage_collect_values` is False.
        """
        self._expect_modules()
        self._kwargs = self._checked(kwargs)
        is_processed = enable_io_processing and self.graph._writer is not None
        if is_processed and not kwargs:
            args = self.graph.process_inputs(*args)  # type: ignore[attr-defined]
        result = self._run(args, {} if initial_env is None else dict(initial_env), is_processed)
        if self._given is not self.module:
            note_back(self._given, self.graph)
        return result

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Run on a list of one argument per placeholder, which is emptied: the caller keeps none of them alive.

        Raises GraphError where there are more arguments or fewer.
        """
        placeholders = self.graph.placeholders()
        if len(placeholders) != len(args_list):
            raise GraphError(
                f"Interpreter.boxed_run expected {len(placeholders)} arguments for placeholders but received "
                f"{len(args_list)} ({'missing' if len(args_list) < len(placeholders) else 'extra'} arguments)"
            )
        self._expect_modules()
        env = dict(zip(placeholders, args_list, strict=True))
        args_list.clear()
        self._kwargs = {}
        return self._run((), env, self.graph._writer is not None)

    def _run(self, args: tuple[Any, ...], env: dict[Node, Any], is_processed: bool) -> Any:
        self.env = env
        self.args_iter = iter(args)
        del args  # the values that go first must be free to go
        last_uses, run_node = self.user_to_last_uses if self.garbage_collect_values else {}, self.run_node
        free = last_uses.get
        node: Node | None = None
        is_plain, call, values = self._calls_functions_plainly(), self.call_function, []
        try:
            for node in self.graph.nodes:
                if node in env:
                    pass
                elif is_plain and node._op == "call_function" and not node._kwargs:
                    for arg in node._args:  # as `run_node` does, in this frame
                        if type(arg) is Node and arg in env:
                            values.append(env[arg])
                        elif type(arg) in ATOMS:
                            values.append(arg)
                        else:
                            env[node] = run_node(node)
                            break
                    else:
                        env[node] = call(node._target, (*values,), {})
                    values.clear()  # they are free to go
                else:
                    env[node] = run_node(node)
                dead = free(node)
                if dead is not None:
                    for used in dead:
                        env.pop(used, None)
                if node._op == "output":
                    break
            else:
                return None
        except BaseException as error:
            if node is not None:
                self._leave_contexts(node)
                if self.extra_traceback and isinstance(error, Exception):
                    _say_where(error, node)
                    if isinstance(error, KeyError):  # whose text would be quoted, newlines and all
                        raise RuntimeError(*error.args) from error
            raise
        result = env[node]
        return self.graph.process_outputs(result) if is_processed else result  # type: ignore[attr-defined]

    def _calls_functions_plainly(self) -> bool:
        """Tell whether a node that calls a function is run as this class does it."""
        ways = (self.run_node, self.fetch_args_kwargs_from_env)
        return [getattr(way, "__func__", None) for way in ways] == _WAYS and not has_preserved_node_meta()

    def _expect_modules(self) -> None:
        """Check what the graph takes for granted of the modules, if it is that of the module."""
        for name, entry in entry_points_of(self.module).items():
            if entry.graph is self.graph:
                expect_modules(self.module, name)

    def _leave_contexts(self, failed: Node) -> None:
        """Leave the contexts that the program entered before the node that failed, the last one first."""
        entered: list[Any] = []
        for node in self.graph.nodes:
            if node is failed:
                break
            if node._target is enter_context and hasattr(type(self.env.get(node)), "__exit__"):
                entered.append(self.env[node])
            elif node._target is exit_context and entered and self.env.get(node._args[0], entered[-1]) is entered[-1]:
                entered.pop()
        for context in reversed(entered):
            context.__exit__(*sys.exc_info())

    def _checked(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Refuse keywords that no input takes, as a function does."""
        inputs = {node._target for node in self.graph.nodes if node._op == "placeholder"} if kwargs else set()
        unknown = [name for name in kwargs if name not in inputs]
        if unknown and not any(isinstance(name, str) and name.startswith("**") for name in inputs):
            raise TypeError(f"the graph has no input {unknown[0]!r}: run() got an unexpected keyword argument")
        return dict(kwargs)

    def run_node(self, n: Node) -> Any:
        """Run one node and return its value. What is recorded meanwhile inherits its meta, where that is preserved."""
        if has_preserved_node_meta():
            with set_current_meta(n, f"Interpreter_{type(self).__name__}"):
                args, kwargs = self.fetch_args_kwargs_from_env(n)
                return getattr(self, n._op)(n._target, args, kwargs)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n._op)(n._target, args, kwargs)

    # ---- one method per opcode

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Take the next argument; a `*args` placeholder takes all that are left, `**kwargs` the other keywords."""
        target = _path(target)
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
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Read an attribute of the module by dotted path."""
        return self.fetch_attr(_path(target))

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function."""
        if type(target) is str:
            raise AssertionError(f"target should not be a string for call_function: {target!r}")
        if target is write_attribute:
            return self.write_attribute(*args)
        return target(*args, **kwargs)  # type: ignore[operator]

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of the first argument."""
        return getattr(args[0], _path(target))(*args[1:], **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Call a submodule by dotted path."""
        return self.fetch_attr(_path(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Return the program's result."""
        return args[0] if args else None

    # ---- the bodies of branches and loops

    def body(self, body: Graph, n: Node) -> Any:
        """Return what a node gets for the graph of a body.

        Branches, loops and what runs under `try` get a function that runs it node by node.
        """
        if is_attempt(n):
            return functools.partial(self._run_attempt, body)
        return functools.partial(self.run_body, body) if is_region(n) else body

    def _run_attempt(self, body: Graph, *operands: Any) -> Any:
        """Run a body whose errors the program catches: they stay as they are, their messages too."""
        before, self.extra_traceback = self.extra_traceback, False
        try:
            return self.run_body(body, *operands)
        finally:
            self.extra_traceback = before

    def run_body(self, body: Graph, *operands: Any) -> Any:
        """Run a body node by node, and return its value. `env` holds the values of the body meanwhile."""
        outer = self.graph, self.env, self.args_iter, self._kwargs, self.user_to_last_uses
        self.graph, self._kwargs = body, {}
        if self.garbage_collect_values:
            if body not in self._uses_in:
                self._uses_in[body] = self._last_uses()
            self.user_to_last_uses = self._uses_in[body]
        try:
            return self._run(operands, {}, False)
        finally:
            self.graph, self.env, self.args_iter, self._kwargs, self.user_to_last_uses = outer

    # ---- values

    def fetch_attr(self, target: str) -> Any:
        """Follow a dotted path from the module. Raises GraphError naming the step that is missing."""
        value: Any = self.module
        atoms = target.split(".")
        for i, atom in enumerate(atoms):
            try:
                value = on_the_way(value, atom) if i + 1 < len(atoms) else getattr(value, atom)
            except AttributeError:
                raise GraphError(
                    f"Node referenced nonexistent target {'.'.join(atoms[: i + 1])}",
                    fix="lint the graph to see which node",
                ) from None
        return value

    def write_attribute(self, path: str, value: Any) -> None:
        """Assign an attribute of the module, of one inside it, or of an object that one holds.

        Raises GraphError where the path leads to nothing whose attributes a graph may change.
        """
        owner, _, name = path.rpartition(".")
        holder = self.fetch_attr(owner) if owner else self.module
        if isinstance(holder, nn.Module):
            setattr(holder, name, value)
        else:
            set_attribute(holder, name, value)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a node's arguments with values in place of nodes."""
        env = self.env
        args = []
        try:
            for arg in n._args:
                kind = type(arg)
                if kind is Node:
                    arg = env[arg]
                elif kind not in ATOMS:
                    arg = self.map_nodes_to_values(arg, n)
                args.append(arg)
        except KeyError:
            self.map_nodes_to_values(n._args, n)  # names the node that has no value
            raise
        kwargs = {key: self.map_nodes_to_values(arg, n) for key, arg in n._kwargs.items()} if n._kwargs else {}
        return tuple(args), kwargs

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Put values in place of nodes in nested arguments; containers come back as plain lists and dicts."""
        if type(args) is Graph:
            return self.body(args, n)
        env = self.env

        def load(node: Node) -> Any:
            if node not in env:
                raise GraphError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues",
                    at=n.origin,
                )
            return env[node]

        return _thawed(map_arg(args, load)) if not isinstance(args, Node) else load(args)


def _path(target: Target) -> str:
    if not isinstance(target, str):
        raise AssertionError(f"Expected target to be str, got {type(target)}")
    return target


def _say_where(error: Exception, node: Node) -> None:
    """Add to an error which node was running and where in the user's program it comes from.

    It goes into the message, where logs and tests look; errors of ours have a form of their own and get a note.
    """
    trace = node.stack_trace
    if trace is None and node.origin is not None:
        trace = f"  {node.origin}"
    where = f"While executing {node.format_node()}\nOriginal traceback:\n{trace}"  # type: ignore[attr-defined]
    if isinstance(error, GraphwrightError):
        if hasattr(error, "add_note"):
            error.add_note(where)
        return
    error.args = (f"{error.args[0]}\n\n{where}" if error.args else where, *error.args[1:])


def _thawed(value: Any) -> Any:
    """Plain lists and dicts in place of immutable ones: the operations called may expect to own them."""
    if type(value) is immutable_list:
        return [_thawed(item) for item in value]
    if type(value) is immutable_dict:
        return {key: _thawed(item) for key, item in value.items()}
    if type(value) is slice:
        return slice(_thawed(value.start), _thawed(value.stop), _thawed(value.step))
    if isinstance(value, tuple):
        return sequence(type(value), [_thawed(item) for item in value])
    return value


_WAYS = [Interpreter.run_node, Interpreter.fetch_args_kwargs_from_env]
