"""GraphModule: a graph, the modules and tensors that it uses, and the code generated from it."""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.codegen import PythonCode, compile_source, graph_to_readable_source, is_plain
from graphwright.errors import GraphError, GuardError
from graphwright.ir import Graph, Node
from graphwright.runtime.folder import write_package
from graphwright.runtime.guards import Guard, guards_of
from graphwright.runtime.pickling import graph_to_record, record_to_graph

__all__ = ["GraphModule", "graph_of"]


class _LazyForward:
    """Stands where `forward` will be, in the class of one GraphModule: the first access generates and compiles it."""

    def __get__(self, module: GraphModule | None, owner: type[GraphModule]) -> Any:
        if module is None:
            return self
        return GraphModule._build(module).__get__(module, owner)


class _State:
    """What a GraphModule keeps for itself, in one attribute, out of the way of the user's names."""

    __slots__ = ("code", "function", "graph", "is_readable", "original")

    def __init__(self, graph: Graph, is_readable: bool = False, original: type | None = None) -> None:
        self.graph = graph
        self.is_readable = is_readable
        self.original = original  # the class of the captured module, where the instance is one of it
        self.code: PythonCode | None = None  # None: out of date
        self.function: FunctionType | None = None


class GraphModule(nn.Module):
    """A module whose `forward` is generated from its graph.

    `root` is the module that has what the graph's call_module and get_attr nodes name, or a dict from these
    names to modules and tensors. Only what the graph uses is taken over; parameters are shared with `root`.

    Editing the graph is enough: the next call, or the next look at `code`, generates the code anew.

    >>> import operator
    >>> graph = Graph()
    >>> _ = graph.output(graph.call_function(operator.mul, (graph.placeholder("x"), 2)))
    >>> twice = GraphModule(nn.Module(), graph)
    >>> twice(21)
    42
    >>> next(iter(graph.find_nodes(op="call_function"))).target = operator.add
    >>> twice(21)
    23
    """

    _is_instance_class = False
    _extra: dict[str, Any] = {}  # noqa: RUF012 - never written to

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # `forward` lives in a class, and every instance has its own: hence a class of its own.
        base = next(kind for kind in cls.__mro__ if not kind.__dict__.get("_is_instance_class"))
        return object.__new__(_instance_class(base.__name__, (base,)))

    def __init__(self, root: nn.Module | Mapping[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        used = dict.fromkeys(node.target for node in graph.nodes if node._op == "call_module" or node._op == "get_attr")
        if isinstance(root, nn.Module):
            self.training = root.training
            for target in used:
                if target in graph.constants and not hasattr(root, target):
                    _set(self, target, graph.constants[target])
                else:
                    _copy_path(root, self, target)
        elif isinstance(root, Mapping):
            missing = [target for target in used if target not in root]
            if missing:
                raise GraphError(
                    f"a node references target {missing[0]!r} but that target was not provided in ``root``",
                    fix=f"pass a dict with the keys {sorted(map(str, used))}",
                )
            for target in sorted(used, key=lambda path: path.count(".")):
                _assign_path(self, target, root[target])
        else:
            raise GraphError(f"root is a {type(root).__name__}", fix="pass an nn.Module, or a dict of targets")
        if graph._tracer_cls is not None and "<locals>" not in graph._tracer_cls.__qualname__:
            self._tracer_cls = graph._tracer_cls
        _adopt(self, _State(graph))

    # ---- the graph and its code

    @property
    def graph(self) -> Graph:
        """The graph; edits to it take effect by themselves. Assigning another graph replaces the program."""
        return _state(self).graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"expected a Graph, got {type(graph).__name__}")
        state = _state(self)
        _adopt(self, _State(graph, state.is_readable, state.original))

    @property
    def code(self) -> str:
        """The source of `forward`, as it runs."""
        return _python_code(self).src

    @property
    def guards(self) -> list[Guard]:
        """What the capture took for granted, each with the user's line; checked when the module is called."""
        return guards_of(_state(self).graph)

    def recompile(self) -> PythonCode:
        """Generate the code anew. Edits of the graph do that by themselves at the next use; this is never needed."""
        _invalidate(self)
        return _python_code(self)

    def run_body(self, body: Graph, operands: Sequence[Any]) -> Any:
        """Run the body of a branch or loop of this module's graph, as a function of its operands."""
        code = graph_to_readable_source(body, owner=self, name="body")
        return compile_source(code.src, code.globals, f"{type(self).__name__}.body", "body")(self, *operands)

    def _build(self) -> FunctionType:
        """Compile the code, make it the `forward` of the instance's class, and return it."""
        code = _python_code(self)
        kind = type(self)
        function = compile_source(code.src, code.globals, f"{kind.__name__}.forward")
        function.__qualname__ = f"{kind.__name__}.forward"
        original = _state(self).original
        if original is not None:  # the signature with the annotations and defaults that the user wrote
            function.__signature__ = inspect.signature(original.forward)  # type: ignore[attr-defined]
        _state(self).function = function
        kind.forward = function
        return function

    forward: Any = _LazyForward()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            _note_origin(error, self)
            raise

    def _apply(self, fn: Any, recurse: bool = True) -> GraphModule:
        """Convert every tensor: what `half`, `to` and their like call.

        A captured program has the dtypes that it asked for as constants; another floating dtype of its parameters
        would make these wrong without a word. Raises GuardError then, before anything is converted.
        """
        state = _state(self)
        if state.is_readable and any(map(_mentions_float_dtype, state.graph.nodes)):
            parameter = next((p for p in self.parameters() if p.is_floating_point()), None)
            if parameter is not None and fn(torch.empty(0, dtype=parameter.dtype)).dtype != parameter.dtype:
                raise GuardError(
                    f"the program was captured with {parameter.dtype} parameters and asks for dtypes on its way",
                    fix="convert the original model, then capture it",
                )
        return super()._apply(fn, recurse)  # type: ignore[no-any-return,no-untyped-call]

    # ---- printing

    def print_readable(self, print_output: bool = True) -> str:
        """Print the module as a class with its generated `forward`, and return that text."""
        lines = _python_code(self).src.strip().splitlines()
        body = "".join(f"    {line}\n" if line.strip() else "\n" for line in lines)
        text = f"class {type(self).__name__}(torch.nn.Module):\n{body}"
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        return f"{nn.Module.__repr__(self)}\n{_python_code(self).src}"

    def to_folder(self, folder: str | Path, module_name: str = "FxModule") -> list[Path]:
        """Write the module as an importable Python package, source and weights; return the paths of its files.

        In any process, `from folder import FxModule; FxModule()` then computes the same. There is no pickle in it:
        the source builds the submodules, and the weights are a safetensors file. An earlier package in the folder is
        replaced. Raises ExportError, leaving everything as it was, for what cannot be written so (a lambda, a class
        that no other process can import, a hook) and for a folder that holds anything else.
        """
        return write_package(self, folder, module_name, _program_of)

    # ---- copies

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        state = _state(self)
        kind = type(self)
        copied: GraphModule = object.__new__(_instance_class(kind.__name__, kind.__bases__, kind._extra))
        memo[id(self)] = copied
        for key, value in self.__dict__.items():
            if key != _STATE:
                copied.__dict__[key] = copy.deepcopy(value, memo)
        _adopt(copied, _State(copy.deepcopy(state.graph, memo), state.is_readable, state.original))
        return copied

    def __copy__(self) -> GraphModule:
        kind = type(self)
        state = _state(self)
        copied: GraphModule = object.__new__(_instance_class(kind.__name__, kind.__bases__, kind._extra))
        copied.__dict__.update({key: value for key, value in self.__dict__.items() if key != _STATE})
        for table in ("_modules", "_parameters", "_buffers"):
            copied.__dict__[table] = self.__dict__[table].copy()
        _adopt(copied, _State(copy.deepcopy(state.graph), state.is_readable, state.original))
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        # Never the class of the instance, which no other process can import: its bases and its name.
        state = _state(self)
        kind = type(self)
        local = next((base for base in kind.__bases__ if "<locals>" in base.__qualname__), None)
        if local is not None:
            raise GraphError(
                f"cannot save this {kind.__name__}: its class, {local.__qualname__}, is defined inside a function",
                fix="move the class to the top level of a module",
            )
        identity = kind.__bases__, kind.__name__, kind._extra
        program = graph_to_record(state.graph), state.is_readable, state.original
        attributes = {key: value for key, value in self.__dict__.items() if key != _STATE}
        return rebuild_graph_module, (identity, program), attributes


def rebuild_graph_module(
    identity: tuple[tuple[type, ...], str, dict[str, Any]], program: tuple[dict[str, Any], bool, type | None]
) -> GraphModule:
    """Make a module from what pickle saved of its class and its program; pickle itself then restores its attributes."""
    bases, name, extra = identity
    record, is_readable, original = program
    module: GraphModule = object.__new__(_instance_class(name, bases, extra))
    nn.Module.__init__(module)
    _adopt(module, _State(record_to_graph(record), is_readable, original))
    return module


_STATE = "_graphwright_state"


def graph_of(module: nn.Module) -> Graph:
    """Return the graph of a captured module, whatever names its own class uses.

    Raises GraphError for a module that is not a captured one.
    """
    return _state(module).graph


def _state(module: nn.Module) -> _State:
    state = module.__dict__.get(_STATE)
    if state is None:
        raise GraphError(
            f"this {type(module).__name__} has no graph", fix="capture it first: graphwright.trace(module, args)"
        )
    return state  # type: ignore[no-any-return]


def _adopt(module: GraphModule, state: _State) -> None:
    """Give a module its graph."""
    module.__dict__[_STATE] = state
    state.graph.owning_module = module
    _invalidate(module)


def _invalidate(module: nn.Module) -> None:
    state = _state(module)
    state.code = state.function = None
    type(module).forward = _LazyForward()  # type: ignore[assignment]


def _python_code(module: nn.Module) -> PythonCode:
    state = _state(module)
    if state.code is None:
        for graph in state.graph.all_graphs():
            graph.owning_module = module
        if (state.is_readable or state.graph.has_bodies) and is_plain(state.graph._writer):  # native blocks
            state.code = graph_to_readable_source(state.graph, owner=module)
        else:
            state.code = state.graph.python_code(root_module="self")  # type: ignore[attr-defined]
        _watch(module, state)
    return state.code


def _program_of(module: nn.Module) -> tuple[Graph, PythonCode] | None:
    """The graph and the code of a captured module, None for other modules."""
    return (_state(module).graph, _python_code(module)) if _STATE in module.__dict__ else None


def _watch(module: nn.Module, state: _State) -> None:
    """Have the graph tell of its next edit, without keeping the module alive for it."""
    reference = weakref.ref(module)

    def edited() -> None:
        owner = reference()
        if owner is not None and owner.__dict__.get(_STATE) is state:
            _invalidate(owner)

    for graph in state.graph.all_graphs():
        graph._watch(edited)


def _instance_class(name: str, bases: tuple[type, ...], extra: Mapping[str, Any] | None = None) -> type:
    """Make the class of one instance."""
    home = bases[0]
    namespace = {
        "_is_instance_class": True,
        "forward": _LazyForward(),
        "__module__": home.__module__,
        "__doc__": home.__doc__,
        "_extra": dict(extra or {}),  # for copies
        **(extra or {}),
    }
    return type(home)(name, bases, namespace)


def _copy_path(source: nn.Module, destination: nn.Module, path: str) -> None:
    """Take over what a dotted path names, with plain modules for the containers on the way."""
    *parents, field = path.split(".")
    for atom in parents:
        below = source._modules.get(atom)
        if below is None:
            if not hasattr(source, atom):
                raise GraphError(f"the graph uses {path!r}, but {type(source).__name__} has no {atom!r}")
            _set(destination, atom, getattr(source, atom))
            return
        container = destination._modules.get(atom)
        if container is None:
            container = nn.Module()
            container.training = below.training
            destination._modules[atom] = container
        elif container is below:
            return  # a parent was taken over whole
        source, destination = below, container
    value = source._modules.get(field)
    if value is not None:
        destination._modules[field] = value
        return
    try:
        value = getattr(source, field)
    except AttributeError:
        raise GraphError(f"the graph uses {path!r}, but {type(source).__name__} has no {field!r}") from None
    _set(destination, field, value)


def _assign_path(destination: nn.Module, path: str, value: Any) -> None:
    *parents, field = path.split(".")
    for atom in parents:
        below = getattr(destination, atom, None)
        if below is None:
            below = nn.Module()
            destination.add_module(atom, below)
        destination = below
    _set(destination, field, value)


def _set(destination: nn.Module, field: str, value: Any) -> None:
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        destination.register_buffer(field, value)
    elif field == "training" or not isinstance(value, nn.Module):
        setattr(destination, field, value)
    else:
        destination.add_module(field, value)


def _mentions_float_dtype(node: Node) -> bool:
    values = (*node._args, *node._kwargs.values())
    return any(isinstance(value, torch.dtype) and value.is_floating_point for value in values)


def _note_origin(error: Exception, module: nn.Module) -> None:
    """Add the user's line to an error that passed through generated code, to be printed below its message."""
    state = module.__dict__.get(_STATE)
    function = None if state is None else state.function
    add_note = getattr(error, "add_note", None)  # Python 3.11 and later
    if function is None or state is None or state.code is None or add_note is None:
        return
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is function.__code__:
            node = state.code.lines.get(trace.tb_lineno)
            origin = None if node is None else node.origin
            if origin is not None:
                note = f"in the captured program: {origin}"
                if note not in getattr(error, "__notes__", ()):
                    add_note(note)
        trace = trace.tb_next
