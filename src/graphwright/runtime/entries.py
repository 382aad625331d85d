"""The entry points of a captured module: its `forward`, and the other methods that were captured with it."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, Protocol, overload

import torch
from torch.compiler import is_dynamo_compiling

from graphwright.codegen import PythonCode
from graphwright.errors import ExportError, GraphError
from graphwright.ir import Graph
from graphwright.ops import written_attributes
from graphwright.runtime.called import Called, modules_at
from graphwright.runtime.dispatch import captures_of
from graphwright.runtime.graph_facts import Facts, Forwards, facts_of_modules, forwards_of
from graphwright.runtime.premises.bound import Bound, bound

STATE = "_graphwright_state"  # the attribute of a captured module that holds what is ours


class Form(Protocol):
    """How the code of an entry point is written, where it is not its graph as it stands: data that copies share."""

    @property
    def beside(self) -> str:
        """The entry point with the program as it stands."""

    @property
    def instead_of_saving(self) -> str:
        """What to do with the module where no file holds the form; empty where a file has the program without it."""

    def write(self, module: Any, entry: Entry) -> PythonCode:
        """Write the code, and keep in `entry.held` what its calls look at."""


class Entry:
    """One entry point: its name, its graph, and the code generated from it."""

    __slots__ = (
        "bound", "called", "code", "facts", "form", "function", "graph", "held", "name", "shared", "signature"
    )  # fmt: skip

    def __init__(self, name: str, graph: Graph, signature: inspect.Signature | None = None) -> None:
        self.name = name
        self.graph = graph
        self.signature = signature  # as the user wrote it, without `self`; None: what the generated code says
        self.code: PythonCode | None = None  # None: out of date
        self.function: FunctionType | None = None
        self.form: Form | None = None  # None: the code is the graph as it stands
        self.bound: Bound | None = None  # what a call looks at of the modules; None: to be found
        self.called: Called | None = None  # the modules that it calls; None: to be found
        self.held: Any = None  # what the calls of code of another form look at
        self.facts: Mapping[str, Facts] | None = None  # taken for granted of the modules; None: those of the graph
        self.shared: Any = None  # the SharedCode of modules that have the same graph

    def __deepcopy__(self, memo: dict[int, Any]) -> Entry:
        copied = Entry(self.name, copy.deepcopy(self.graph, memo), self.signature)
        copied.form = self.form
        copied.facts = copy.deepcopy(self.facts, memo)
        copied.shared = copy.deepcopy(self.shared, memo)
        return copied

    @property
    def premises(self) -> Mapping[str, Facts]:
        """What is taken for granted of the modules, by path."""
        return facts_of_modules(self.graph) if self.facts is None else self.facts

    def saved_signature(self) -> inspect.Signature | None:
        """The signature, if pickle takes it."""
        try:
            pickle.dumps(self.signature)
        except Exception:  # an annotation or default that only this process knows
            return None
        return self.signature

    def place(self, original: type | None) -> str:
        """Where the program is written: `file:line`, "" if nobody knows; of a function, that of its first operation."""
        method = inspect.unwrap(getattr(original, self.name)) if hasattr(original, self.name) else None
        code = getattr(method, "__code__", None)
        if code is not None:
            return f"{code.co_filename}:{code.co_firstlineno}"
        calls = (node for node in self.graph.nodes if node.op not in ("placeholder", "output"))
        origin = next((node.origin for node in calls if node._origin is not None), None)
        return "" if origin is None else f"{origin.file}:{origin.line}"

    def full_signature(self, original: type | None) -> inspect.Signature | None:
        """The signature of the generated function: with `self`, and the annotations and defaults of the user's.

        `original` is the class that defines the entry point. None where the parameters of the graph are others by now.
        """
        signature = self.signature
        if signature is None and original is not None:
            method = getattr(original, self.name, None)
            if method is None:
                return None
            signature = inspect.signature(method)
            if not isinstance(inspect.getattr_static(original, self.name), staticmethod | classmethod):
                _, *parameters = signature.parameters.values()
                signature = signature.replace(parameters=parameters)
        if signature is None:
            return None
        names = [str(node.target).lstrip("*") for node in self.graph.placeholders()]
        if names != list(signature.parameters):
            return None
        first = next((name for name in ("self", "self_", "self__") if name not in names), "_self")
        is_positional_only = any(each.kind is each.POSITIONAL_ONLY for each in signature.parameters.values())
        kind = inspect.Parameter.POSITIONAL_ONLY if is_positional_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        return signature.replace(parameters=[inspect.Parameter(first, kind), *signature.parameters.values()])


class Graphs(Sequence[Graph]):
    """The graphs of a captured module: one for each capture of each entry point.

    By number, or by name: `"encode"`, and `"forward_1"`, `"forward_2"` where an entry point was captured for several
    examples.
    """

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._graphs: dict[str, Graph] = {}
        for name, entry in entries.items():
            captures = captures_of(entry.graph)
            if captures:
                self._graphs.update({f"{name}_{i}": graph for i, graph in enumerate(captures, start=1)})
            else:
                self._graphs[name] = entry.graph

    @property
    def names(self) -> list[str]:
        """The name of each graph, in their order."""
        return list(self._graphs)

    @overload
    def __getitem__(self, key: int | str) -> Graph: ...

    @overload
    def __getitem__(self, key: slice) -> list[Graph]: ...

    def __getitem__(self, key: int | str | slice) -> Graph | list[Graph]:
        if not isinstance(key, str):
            return list(self._graphs.values())[key]
        if key not in self._graphs:
            raise GraphError(f"there is no graph {key!r}", fix=f"the graphs are {', '.join(self._graphs)}")
        return self._graphs[key]

    def __len__(self) -> int:
        return len(self._graphs)

    def __iter__(self) -> Iterator[Graph]:
        return iter(self._graphs.values())

    def __repr__(self) -> str:
        return "\n\n".join(f"{name}: {graph}" for name, graph in self._graphs.items())


def entry_points_of(module: Any) -> dict[str, Entry]:
    """The entry points of a captured module, by name; none for anything else."""
    state = getattr(module, "__dict__", {}).get(STATE)
    return {} if state is None else state.entries


def refuse_forms(module: Any) -> None:
    """Raise ExportError where the code of a captured module has a form that no file holds."""
    form = next((entry.form for entry in entry_points_of(module).values() if entry.form is not None), None)
    if form is not None:
        raise ExportError(
            "the code of this module is written for the modules that it has in this process",
            fix=form.instead_of_saving or "save it, and write what is loaded, which has the program as it stands",
        )


def is_readable(module: Any) -> bool:
    """Tell whether the code of a captured module is written to be read, as that of `trace` is."""
    return bool(module.__dict__[STATE].is_readable)


def expect_modules(
    module: Any, entry: str = "forward", called: Sequence[str] = (), read: Sequence[str] = ()
) -> Sequence[Any]:
    """Raise GuardError unless the modules of a captured program are as an entry point takes for granted.

    Return what to call for the modules at some paths, and the modules at others, of which attributes are read.
    Compilers, which have guards of their own, pass over the check.
    """
    if is_dynamo_compiling():
        return modules_at(module, (*called, *read))
    state = module.__dict__.get(STATE)
    if state is None:
        return modules_at(module, (*called, *read))
    point = state.entries[entry]
    known = point.bound
    if (known is None or known.facts is not point.premises or not known.holds()) and not torch.compiler.is_compiling():
        point.bound = bound(module, point.graph, point.premises)
    if not called and not read:
        return ()
    found = point.called
    if found is None or not found.is_current(module):
        found = point.called = Called(module, called, read)
    modules: Sequence[Any] = found.modules()
    return modules


def expect_forwards(module: Any, entry: str, forwards: Forwards) -> None:
    """Raise GuardError unless classes and functions have the code that a program was captured with."""
    if not is_dynamo_compiling() and not forwards.are_there():
        expect_modules(module, entry)


def expectation(name: str, writer: Any) -> list[str]:
    """The statement at the start of generated code that looks at the modules of the program."""
    called = "" if name == "forward" else f", {name!r}"
    return [f"{writer.names.function(expect_modules)}({writer.root}{called})"]


def changes_modules(graph: Graph) -> bool:
    """Tell whether a program assigns a module that it calls or reads of, or one around it."""
    changed = written_attributes(graph)
    used: list[str] = []
    for node in graph.all_nodes() if changed else ():
        if node.op in ("call_module", "get_attr"):
            path = str(node.target)
            used.append(f"{path if node.op == 'call_module' else path.rpartition('.')[0]}.")
    return any(path.startswith(f"{each}.") for path in used for each in changed)


def callables(name: str, writer: Any, called: Sequence[str], read: Sequence[str]) -> str:
    """The expression that looks at them, too, and gives what to call for modules at some paths, and others to read.

    Where there are none of these it looks at classes and functions alone.
    """
    if not called and not read and not facts_of_modules(writer.graph):
        forwards = writer.names.add("_Forwards", forwards_of(writer.graph))
        return f"{writer.names.function(expect_forwards)}({writer.root}, {name!r}, {forwards})"
    paths = f"{tuple(called)!r}, {tuple(read)!r}" if read else repr(tuple(called))
    return f"{writer.names.function(expect_modules)}({writer.root}, {name!r}, {paths})"


def overhear(module: Any, tell: Callable[[Graph], None]) -> None:
    """Have a stand-in for a captured module tell which graphs it is expected to fit, instead of checking it."""
    state = copy.copy(module.__dict__[STATE])
    entries = {name: copy.copy(entry) for name, entry in state.entries.items()}
    for entry in entries.values():
        entry.bound = _Overheard(entry.graph, tell)
    state.entries = entries
    module.__dict__[STATE] = state


class _Overheard(Bound):
    __slots__ = ("_graph", "_tell")

    def __init__(self, graph: Graph, tell: Callable[[Graph], None]) -> None:
        self._graph, self._tell, self.facts = graph, tell, facts_of_modules(graph)

    def holds(self) -> bool:
        self._tell(self._graph)
        return True
