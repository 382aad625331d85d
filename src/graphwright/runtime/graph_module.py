"""GraphModule: a graph, the modules and tensors that it uses, and the code generated from it."""

from __future__ import annotations

import contextlib
import copy
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import nn

from graphwright.codegen import BoxedCodeGen, PythonCode, compile_source, graph_to_readable_source, is_plain
from graphwright.errors import GraphError, MissingAttributeError
from graphwright.ir import Graph, Node
from graphwright.ops import written_attributes
from graphwright.runtime.dtypes import refuse_conversion
from graphwright.runtime.entries import (
    STATE,
    Entry,
    Graphs,
    callables,
    changes_modules,
    entry_points_of,
    expectation,
    is_readable,
    refuse_forms,
)
from graphwright.runtime.foreign import how_to_read, prepared_for_script
from graphwright.runtime.graph_facts import forget_module, is_conditional
from graphwright.runtime.guards import Guard, guards_of, summed_up, tensors_from_outside
from graphwright.runtime.members.attributes import add_constant, assign_attribute, copy_attributes, has_attribute
from graphwright.runtime.members.hooks import register
from graphwright.runtime.members.shells import class_unseen, copy_slots, memo_of_results
from graphwright.runtime.members.submodules import add_submodule, delete_submodule, unused_submodules
from graphwright.runtime.members.yielding import yielding
from graphwright.runtime.pickling import graph_to_record, record_to_graph
from graphwright.runtime.reporting.capture_report import CaptureReport, report_of_all
from graphwright.runtime.reporting.failures import note_origin, print_failure, raise_misfit
from graphwright.runtime.reporting.printing import class_text
from graphwright.runtime.reporting.showing import as_html, as_text, in_a_line
from graphwright.runtime.shared_code import SharedCode, method_of
from graphwright.runtime.state import State, own_state

# torch.fx copies plain attributes only where this key of `meta` holds them; here every copy has all attributes.
PRESERVED_ATTRIBUTES = "_user_preserved_attributes"

_LOOK_UP, _CALL = nn.Module.__getattr__, nn.Module.__call__


class _LazyForward:
    """Stands where `forward` will be, in the class of one GraphModule: the first access generates and compiles it.

    The same for other entry points.
    """

    __slots__ = ("_module", "_name")

    def __init__(self, module: weakref.ref[nn.Module] | None = None, name: str = "forward") -> None:
        self._module = module  # so that `type(gm).forward` is a function, too
        self._name = name

    def __get__(self, module: GraphModule | None, owner: type[GraphModule]) -> Any:
        if module is not None:
            return GraphModule._build(module, self._name).__get__(module, owner)
        only = None if self._module is None else self._module()
        return self if only is None or type(only) is not owner else GraphModule._build(only, self._name)

    def __call__(self, module: GraphModule, *args: Any, **kwargs: Any) -> Any:
        # Classes that wrap the `forward` of every class derived from them take this for it.
        return GraphModule._build(module, self._name)(module, *args, **kwargs)


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
    >>> next(node for node in graph.nodes if node.op == "call_function").target = operator.add
    >>> twice(21)
    23
    """

    _is_instance_class = False
    # Without annotations, which torch.jit.script would read.
    _extra = {}  # type: ignore[var-annotated]  # noqa: RUF012 - never written to
    _tracer_cls = None  # the class of the tracer that captured the program, where it can be imported
    # What torch.jit.script must leave alone.
    __jit_unused_properties__ = (
        *("_in_spec", "_out_spec", "_boxed_call"),
        "graph", "graphs", "code", "guards", "meta", "_graph", "_code", "_lineno_map", "_prologue_start",
        "_create_node_hooks", "_erase_node_hooks", "_replace_hooks", "_deepcopy_hooks", "quantization",
    )  # fmt: skip

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # `forward` lives in a class, and every instance has its own: hence a class of its own.
        base = next(kind for kind in cls.__mro__ if not kind.__dict__.get("_is_instance_class"))
        return object.__new__(_instance_class(base.__name__, (base,)))

    def __getattr__(self, name: str) -> Any:
        # As nn.Module does it, submodules first: generated code looks them up at every call, in loops at every turn.
        own = self.__dict__
        if "_modules" in own:
            modules = own["_modules"]
            if name in modules:
                return modules[name]
            if name in (tensors := own["_parameters"]) and nn.Module.__getattr__ is _LOOK_UP:  # as others replace it
                return tensors[name]
        return super().__getattr__(name)

    def __init__(self, root: nn.Module | Mapping[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        used = dict.fromkeys(node.target for node in graph.all_nodes() if node._op in ("call_module", "get_attr"))
        if isinstance(root, nn.Module):
            # What the program writes may come with the write; the module that it writes to must be there.
            written = [
                path if has_attribute(root, path) else _flag_of_owner(path) for path in written_attributes(graph)
            ]
            used.update(dict.fromkeys(sorted(written)))
            self.training = root.training
            is_captured = isinstance(root, GraphModule) and _state(root).is_readable
            copy_attributes(root, self, used, graph.constants, is_captured)
        elif isinstance(root, Mapping):
            for node in graph.all_nodes():
                if node.op in ("call_module", "get_attr") and node.target not in root:
                    raise GraphError(
                        f"Node {node} referenced target {node.target} but that target was not provided in ``root``!",
                        at=node.origin,
                        fix=f"pass a dict with the keys {sorted(map(str, used))}",
                    )
            for target in sorted(used, key=lambda path: path.count(".")):
                assign_attribute(root[target], self, target)
        else:
            raise GraphError(
                f"Unsupported type {root!r} passed for root!", fix="pass an nn.Module, or a dict of targets"
            )
        if graph._tracer_cls is not None and "<locals>" not in graph._tracer_cls.__qualname__:
            self._tracer_cls = graph._tracer_cls
        _adopt(self, State(graph))

    # ---- the graph and its code

    @property
    def graph(self) -> Graph:
        """The graph; edits to it take effect by themselves. Assigning another graph replaces the program."""
        return _state(self).only_graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(graph)}")
        state = self.__dict__.get(_STATE)
        if state is None:  # a subclass that passed over our constructor
            state = State(graph)
        state.graph = graph
        _adopt(self, state)

    @yielding
    def graphs(self) -> Graphs:
        """The graph of each capture of each entry point, by number and by name; edits take effect by themselves."""
        return Graphs(_state(self).entries)

    @property
    def code(self) -> str:
        """The source of `forward` and of other entry points, as it runs."""
        return _all_code(self)

    @property
    def meta(self) -> dict[str, Any]:
        """What passes remember about the module, by key; copies and pickles keep it."""
        return _state(self).meta

    @meta.setter
    def meta(self, meta: dict[str, Any]) -> None:
        _state(self).meta = meta

    _graph = property(lambda self: self.graph, lambda self, graph: setattr(self, "graph", graph))
    _code = property(lambda self: self.code)
    _lineno_map = property(lambda self: _python_code(self)._lineno_map)
    _prologue_start = property(lambda self: _python_code(self)._prologue_start)

    @property
    def guards(self) -> list[Guard]:
        """What the capture took for granted, each with the user's line; checked when the module is called."""
        return summed_up(guard for graph in graphs_of(self) for guard in guards_of(graph))

    @yielding
    def report(self) -> CaptureReport:
        """What the capture did, to print or to read."""
        return report_of_all(graphs_of(self))

    @yielding
    def coverage(self) -> float:
        """The fraction, from 0 to 1, of the program's torch calls outside leaf modules that `trace` recorded."""
        return report_of_all(graphs_of(self)).coverage

    @property
    def _boxed_call(self) -> bool:
        """Whether a call takes one list, which it empties."""
        return isinstance(_state(self).graph._writer, BoxedCodeGen)

    @property
    def _in_spec(self) -> Any:
        return _state(self).graph._codegen.pytree_info.in_spec  # type: ignore[attr-defined]

    @property
    def _out_spec(self) -> Any:
        return _state(self).graph._codegen.pytree_info.out_spec  # type: ignore[attr-defined]

    def recompile(self) -> PythonCode:
        """Generate the code anew. Edits of the graph do that by themselves at the next use; this is never needed."""
        _invalidate(self)
        return _python_code(self)

    def _recompile_submodules(self) -> list[tuple[str, PythonCode]]:
        """Generate the code of the captured modules directly inside this one; return it with their names."""
        return [(name, module.recompile()) for name, module in self.named_children() if isinstance(module, GraphModule)]

    def run_body(self, body: Graph, operands: Sequence[Any]) -> Any:
        """Run the body of a branch or loop of this module's graph, as a function of its operands."""
        code = graph_to_readable_source(body, owner=self, name="body")
        return compile_source(code.src, code.globals, f"{type(self).__name__}.body", "body")(self, *operands)

    def _build(self, name: str = "forward") -> Callable[..., Any]:
        """Compile the code of an entry point, make it a method of the instance's class, and return that."""
        state = _state(self)
        entry = state.entries[name]
        code = _current_code(self) if name == "forward" else _python_code(self, name)
        kind = type(self)
        place = "" if state.is_readable else entry.place(state.original)  # readable code says it line by line
        function = None if entry.shared is None else entry.shared.function
        if function is None:
            function = compile_source(code.src, code.globals, f"{kind.__name__}.{name}", name, place, code.run)
            signature = entry.full_signature(state.original)
            if signature is not None:
                function.__signature__ = signature  # type: ignore[attr-defined]
            if entry.shared is not None:
                entry.shared.function = function
        entry.function = function
        setattr(kind, name, method := method_of(state.entries, name))
        for other in state.entries.values():  # what code of another form calls
            if entry.form is not None and other.graph is entry.graph and other.function is None:
                GraphModule._build(self, other.name)
        # Called modules at once, too: a compiler that runs this must meet code, not the generating of it.
        called: set[Any] | None = None
        for path, child in self.__dict__["_modules"].items():
            for each in [each.name for each in entry_points_of(child).values() if each.function is None]:
                called = called or {node._target for node in entry.graph.all_nodes()}
                if path in called:
                    GraphModule._build(child, each)
        return method

    forward: Any = _LazyForward()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if nn.Module.__call__ is not _CALL:  # which others replace to see what is called
                return super().__call__(*args, **kwargs)
            if self._compiled_call_impl is not None:  # as nn.Module does it: a frame less for each call
                return self._compiled_call_impl(*args, **kwargs)
            return self._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]
        except Exception as error:
            state = self.__dict__.get(_STATE)
            if state is not None:
                _explain(error, state)
            raise

    def _apply(self, fn: Any, recurse: bool = True) -> GraphModule:
        """Convert every tensor: what `half`, `to` and their like call. Raises GuardError before any is converted."""
        _state(self)
        refuse_conversion(self, fn)
        return super()._apply(fn, recurse)  # type: ignore[no-any-return,no-untyped-call]

    # ---- printing

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """Print the module as a class with its generated `forward`, and return that text.

        Captured modules inside it are printed as classes inside the class. The next four options add strides and
        devices of known values, colors, and one line per parameter; `additional_meta` names entries of `node.meta`
        to show. `fast_sympy_print` changes nothing: no sizes are simplified here.
        """
        options = {
            "include_stride": include_stride,
            "include_device": include_device,
            "colored": colored,
            "expanded_def": expanded_def,
            "additional_meta": additional_meta,
        }
        text = class_text(self, type(self).__name__, options, _readable_code)
        if print_output:
            print(text)
        return text

    __repr__, __str__, _repr_html_ = in_a_line, as_text, as_html

    def to_folder(self, folder: str | Path, module_name: str = "FxModule") -> list[Path]:
        """Write the module as an importable Python package, source and weights; return the paths of its files.

        In any process, `from folder import FxModule; FxModule()` then computes the same. There is no pickle in it:
        the source builds the submodules, and the weights are a safetensors file. An earlier package in the folder is
        replaced. Raises ExportError, leaving everything as it was, for what cannot be written so (a lambda, a class
        that no other process can import, a hook) and for a folder that holds anything else.
        """
        from graphwright.runtime.packaging.folder import write_package  # captures do without

        return write_package(self, folder, module_name, _programs_of)

    # ---- constants and submodules

    def add_constant(self, value: Any, name: str = "constant", persistent: bool = False) -> str:
        """Keep a value for the graph to read, under this name or it with a number; return the path for `get_attr`.

        A tensor becomes a buffer, outside of the state_dict unless it is `persistent`.
        """
        return add_constant(self, value, name, persistent)

    def add_submodule(self, target: str, m: nn.Module) -> bool:
        """Put a module at a dotted path, with plain modules on the way; False where a step is something else."""
        return add_submodule(self, target, m)

    def delete_submodule(self, target: str) -> bool:
        """Remove the module at a dotted path; False where there is none."""
        is_there = delete_submodule(self, target)
        for graph in graphs_of(self):
            forget_module(graph, target)
        return is_there

    def delete_all_unused_submodules(self) -> None:
        """Remove every module that the graph does not use: neither called or read, nor part of one that is."""
        for path in unused_submodules(self, _state(self).graph):
            self.delete_submodule(path)

    # ---- hooks

    _create_node_hooks = property(lambda self: _state(self).hooks.create)
    _erase_node_hooks = property(lambda self: _state(self).hooks.erase)
    _replace_hooks = property(lambda self: _state(self).hooks.replace)
    _deepcopy_hooks = property(lambda self: _state(self).hooks.deepcopy)

    def _register_create_node_hook(self, f: Callable[[Node], Any]) -> None:
        """Call `f(node)` for every node that is made in the graph."""
        register(self._create_node_hooks, f)

    def _unregister_create_node_hook(self, f: Callable[[Node], Any]) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable[[Node], Any]) -> None:
        """Call `f(node)` for every node that is erased from the graph."""
        register(self._erase_node_hooks, f)

    def _unregister_erase_node_hook(self, f: Callable[[Node], Any]) -> None:
        self._erase_node_hooks.remove(f)

    def _register_replace_node_hook(self, f: Callable[[Node, str, Node], Any]) -> None:
        """Call `f(old, new_name, user)` for every user that comes to read another node instead of `old`."""
        register(self._replace_hooks, f)

    def _unregister_replace_node_hook(self, f: Callable[[Node, str, Node], Any]) -> None:
        self._replace_hooks.remove(f)

    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[[Node, str, Node], Any]) -> Iterator[None]:
        """Register a hook for replacements while the `with` block lasts."""
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _register_deepcopy_hook(self, f: Callable[[GraphModule], Any]) -> None:
        """Call `f(copied)` for every deep copy of the module."""
        register(self._deepcopy_hooks, f)

    def _unregister_deepcopy_hook(self, f: Callable[[GraphModule], Any]) -> None:
        self._deepcopy_hooks.remove(f)

    def __prepare_scriptable__(self) -> GraphModule:
        """What torch.jit.script compiles in place of the module: it cannot look at the Python of submodules."""
        entries = _state(self).entries.values()
        if not _state(self).is_readable and not any(entry.form or entry.premises for entry in entries):
            return self
        copied = copy.copy(self)
        state = _state(copied)
        state.is_for_script = True
        for entry in state.entries.values():
            entry.form = None
        return prepared_for_script(copied)  # type: ignore[no-any-return]

    # ---- copies

    def _deepcopy_init(self) -> Callable[..., None]:
        """The constructor that a subclass with its own `__deepcopy__` calls; here every attribute is copied instead."""
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        state = _state(self)
        kind = type(self)
        copied: GraphModule = object.__new__(_instance_class(kind.__name__, kind.__bases__, kind._extra))
        memo[id(self)] = copied
        memo |= memo_of_results(self, memo)
        copy_slots(self, copied, functools.partial(copy.deepcopy, memo=memo))
        own = own_state(self)
        made = {key: copy.deepcopy(value, memo) for key, value in own.items() if key != _STATE}
        (copied.__dict__.update if own is self.__dict__ else copied.__setstate__)(made)
        copied_state = copy.deepcopy(state, memo)
        copied_state.is_lazy = state.is_lazy
        copied._buffers |= tensors_from_outside(self, [entry.graph for entry in state.entries.values()])
        _adopt(copied, copied_state)
        for hook in copied_state.hooks.deepcopy:
            hook(copied)
        return copied

    def __copy__(self) -> GraphModule:
        kind = type(self)
        state = _state(self)
        copied: GraphModule = object.__new__(_instance_class(kind.__name__, kind.__bases__, kind._extra))
        copy_slots(self, copied)
        copied.__dict__.update({key: value for key, value in self.__dict__.items() if key != _STATE})
        for table in ("_modules", "_parameters", "_buffers"):
            copied.__dict__[table] = self.__dict__[table].copy()
        copied_state = copy.deepcopy(state)
        copied_state.meta = state.meta
        copied_state.is_lazy = state.is_lazy
        _adopt(copied, copied_state)
        return copied

    def _replicate_for_data_parallel(self) -> GraphModule:
        replica = copy.copy(self)
        replica.__dict__["_is_replica"] = True
        return replica

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
        graph = None if state.entries["forward"].shared else graph_to_record(state.graph)
        program = graph, state.is_readable, state.original, state.is_lazy, state.meta
        entries = {}
        for name, entry in state.entries.items():
            kept = entry.shared or (None if entry.graph is state.graph else graph_to_record(entry.graph))
            entries[name] = kept, entry.saved_signature(), entry.form, entry.facts
        attributes = {key: value for key, value in own_state(self).items() if key != _STATE}
        return rebuild_graph_module, (identity, program, entries), attributes


def rebuild_graph_module(
    identity: tuple[tuple[type, ...], str, dict[str, Any]],
    program: tuple[dict[str, Any] | None, bool, type | None, bool, dict[str, Any]],
    entries: Mapping[str, tuple[Any, ...]] = MappingProxyType({}),
) -> GraphModule:
    """Make a module from what pickle saved of its class and its program; pickle itself then restores its attributes."""
    bases, name, extra = identity
    record, is_readable, original, is_lazy, meta = program
    module: GraphModule = object.__new__(_instance_class(name, bases, extra))
    nn.Module.__init__(module)
    state = State(Graph() if record is None else record_to_graph(record), is_readable, original, meta)
    state.is_lazy = is_lazy
    for entry, (kept, signature, *form) in entries.items():
        shared = kept if isinstance(kept, SharedCode) else None
        graph = state.graph if kept is None else record_to_graph(kept) if shared is None else shared.graph
        made = state.entries[entry] = Entry(entry, graph, signature)
        made.form, made.facts, made.shared = (*(*form, None, None)[:2], shared)
    _adopt(module, state)
    return module


_STATE = STATE


def graph_of(module: nn.Module) -> Graph:
    """Return the graph of a captured module, whatever names its own class uses.

    Raises GraphError for a module that is not a captured one, and for one with a graph for each of several methods.
    """
    return _state(module).only_graph


def graphs_of(module: nn.Module) -> list[Graph]:
    """Return the graph of each entry point of a captured module. Raises GraphError for other modules."""
    return list({id(entry.graph): entry.graph for entry in _state(module).entries.values()}.values())


def _state(module: nn.Module) -> State:
    state = getattr(module, "__dict__", {}).get(_STATE)
    if state is None:
        fix = how_to_read(module) or "capture it first: graphwright.trace(module, args)"
        raise MissingAttributeError(f"this {type(module).__name__} has no graph", fix=fix)
    return state  # type: ignore[no-any-return]


def _adopt(module: GraphModule, state: State) -> None:
    """Give a module its graphs."""
    module.__dict__[_STATE] = state
    for name, entry in state.entries.items():
        entry.graph.owning_module = module
        entry.graph._hooks = state.hooks
        _invalidate(module, name)


def _invalidate(module: nn.Module, name: str = "forward") -> None:
    entry = _state(module).entries[name]
    entry.code = entry.function = entry.bound = entry.called = None
    if entry.shared is not None and entry.shared.graph is entry.graph:
        entry.shared.code = entry.shared.function = None
    setattr(type(module), name, _LazyForward(weakref.ref(module), name))


def _python_code(module: nn.Module, name: str = "forward") -> PythonCode:
    state = _state(module)
    entry = state.entries[name]
    shared = entry.shared
    if entry.code is None and shared is not None and shared.code is not None:
        entry.code = shared.code
        _watch(module, state, entry)
    if entry.code is None:
        for graph in entry.graph.all_graphs():
            graph.owning_module = module
        is_native = is_plain(entry.graph._writer)  # `if`, `while` and `for` as such
        if entry.form is not None:
            entry.code = entry.form.write(module, entry)
        elif name != "forward" or ((state.is_readable or entry.graph.has_bodies) and is_native):
            first = functools.partial(expectation, name) if entry.premises or entry.shared else None
            is_ours = state.is_readable and not state.is_for_script
            is_bound = is_ours and not changes_modules(entry.graph)
            binds = functools.partial(callables, name) if is_bound else None
            entry.code = graph_to_readable_source(
                entry.graph, "self", name, module, first, is_ours, binds=binds, always_binds=is_conditional(entry.graph)
            )
        else:
            entry.code = entry.graph.python_code(root_module="self")  # type: ignore[attr-defined]
        if shared is not None:
            shared.code = entry.code
        _watch(module, state, entry)
    return entry.code


def _explain(error: Exception, state: State) -> None:
    """Say of an error where in the program it was raised. Raises GuardError where the call did not fit the program."""
    for entry in state.entries.values():
        if entry.code is not None and entry.function is not None:
            note_origin(error, entry.function, entry.code)
            if not state.is_readable:
                print_failure(error, entry.function, entry.code.src)
            raise_misfit(error, entry.function, entry.code, entry.graph)


def _all_code(module: GraphModule) -> str:
    """The source of all entry points."""
    others = [name for name in _state(module).entries if name != "forward"]
    return "\n".join([_current_code(module).src, *[_python_code(module, name).src for name in others]])


def _current_code(module: GraphModule) -> PythonCode:
    """The code, by way of `recompile` where the module is of the kind whose users count these calls."""
    state = _state(module)
    return GraphModule.recompile(module) if state.is_lazy and state.code is None else _python_code(module)


def _readable_code(module: nn.Module, options: dict[str, Any]) -> str | None:
    """The code of a captured module as `print_readable` shows it, None for other modules."""
    state = module.__dict__.get(_STATE)
    if state is None:
        return None
    asked = {name: value for name, value in options.items() if value}
    if state.is_readable and not asked:
        return _all_code(module)  # type: ignore[arg-type]
    return state.graph.python_code("self", verbose=True, **asked).src  # type: ignore[no-any-return]


def _programs_of(module: nn.Module) -> list[tuple[Graph, PythonCode]]:
    """The graph and the code of each entry point of a captured module, as a file has them; none for other modules."""
    refuse_forms(module)
    from graphwright.runtime.packaging.rolling import copied_graph, roll

    programs = []
    for name, entry in entry_points_of(module).items():
        graph, code = copied_graph(entry.graph), _python_code(module, name)
        if is_readable(module) and is_plain(entry.graph._writer):
            roll(graph, module)
            code = graph_to_readable_source(graph, owner=module, name=name, reads_tables=True)
        programs.append((graph, code))
    return programs


def _watch(module: nn.Module, state: State, entry: Entry) -> None:
    """Have the graph of an entry point tell of its next edit, without keeping the module alive for it."""
    reference = weakref.ref(module)
    graph = entry.graph

    def edited() -> None:
        owner = reference()
        if owner is not None and owner.__dict__.get(_STATE) is state and entry.graph is graph:
            _invalidate(owner, entry.name)

    for part in graph.all_graphs():
        part._watch(edited)


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
    return class_unseen(name, bases, namespace)


def _flag_of_owner(path: str) -> str:
    """The path of an attribute that every module has, of the module that this path leads through."""
    owner, dot, _ = path.rpartition(".")
    return f"{owner}{dot}training"
