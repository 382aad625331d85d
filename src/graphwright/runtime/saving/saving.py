"""`save`: a captured module as one file of data, which `load` reads without running anything of it.

The file is a safetensors file: the parameters, buffers and constants, and beside them the program as JSON. Any reader
of safetensors sees the tensors under the names of the state_dict. Read plain_data.py first, then saved_graphs.py.
"""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphwright.codegen import is_plain
from graphwright.errors import ExportError, LoadError
from graphwright.ir import Graph, Node
from graphwright.runtime.entries import Entry, entry_points_of, refuse_forms
from graphwright.runtime.graph_facts import meta_for_files
from graphwright.runtime.graph_module import _STATE, GraphModule
from graphwright.runtime.members.attributes import MODULE_TABLES
from graphwright.runtime.modules.forms import without_forms
from graphwright.runtime.objects import attributes_of
from graphwright.runtime.packaging.weights import save_tensors
from graphwright.runtime.plain_values import for_file
from graphwright.runtime.premises.names import module_at, names_of_hooks
from graphwright.runtime.references import describe, is_definition
from graphwright.runtime.saving.plain_data import NotPlain, PlainWriter, is_member_name, is_plain_name, state_of
from graphwright.runtime.saving.saved_graphs import GraphWriter
from graphwright.runtime.state import State
from graphwright.runtime.trust.held import may_be_hook, may_hold, missing_in
from graphwright.runtime.trust.methods import called_methods, entry_at, is_called_with_parameters, method_at
from graphwright.runtime.trust.verifier import holds_callable, verify, written_paths

# Of the program; raised when an older version could not read what a newer one writes. Format 1 had one graph a module,
# formats before 3 had no sum of their bytes, and format 3 a copy of a graph for each module that has it.
FORMAT = 4
SUMMED = 3  # the first with a sum of its bytes
NOTE = "graphwright"  # where in the file the program is
# Attributes that hold functions have lines of their own in a record.
_NO_ATTRIBUTES = MODULE_TABLES | {_STATE, "_compiled_call_impl", "_tracer_cls"}
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_OTHER_HOOKS = sorted(name for name in MODULE_TABLES if name.endswith("hooks") and name not in _HOOKS)


def save(gm: nn.Module, path: str | os.PathLike[str], strict: bool = False, as_plain: bool = False) -> list[str]:
    """Write a captured module to one file, which `load` reads back; return what could not be written.

    The file holds the graph, the tree of modules with their classes by name, their plain attributes, and all tensors.
    There is no pickle in it, and no code. What is no plain data - a lambda, an open file, a lock, a hook that no module
    holds by name - is left out, and answered as a list of lines "where: what"; `strict=True` refuses it instead. Where
    hooks of calls are left out, a warning says so: what is loaded may compute something else.
    An earlier file is replaced at the end, in one step, and keeps its permissions; a link is followed. Tensors are
    stored as those of the CPU. `load` notices each byte that is not as it was written.

    With `as_plain` a class that no other process can import, such as one made in a function, is written as nn.Module:
    the program is in the graph, and what else the class has is left out and answered. Of a lowered module the file has
    the reference program, which `graphwright.quantization.lower` makes fast again on the machine that loads it.

    Raises ExportError for a class or function of the program that no other process can import, for an attribute that
    the graph reads and that is no plain data, such as the packed weights of a torch.ScriptObject, for a tensor that is
    more than a block of memory, for a module without a graph, and where the file cannot be written: what was there is
    then as it was.

    >>> import graphwright, tempfile
    >>> gm = graphwright.trace(nn.Linear(2, 3), torch.ones(1, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(gm, f"{folder}/linear.gw")
    ...     again = graphwright.load(f"{folder}/linear.gw")
    []
    >>> bool((again(torch.ones(1, 2)) == gm(torch.ones(1, 2))).all())
    True
    """
    if not isinstance(gm, GraphModule):
        raise ExportError(f"a {type(gm).__name__} has no graph", fix="capture it first: graphwright.trace(model, args)")
    given: object = path
    if not isinstance(given, str | os.PathLike):
        raise ExportError(f"a {type(path).__name__} is no path of a file", fix='give one: save(gm, "model.gw")')
    form = entry_points_of(gm)["forward"].form if "forward" in entry_points_of(gm) else None
    writer = _ModuleWriter(gm if form is None or form.instead_of_saving else without_forms(gm), as_plain)
    program = writer.program()
    if strict and writer.left_out:
        raise ExportError(
            "the file would not hold all of the module: " + "; ".join(writer.left_out),
            fix="remove it, or save with strict=False, which leaves it out",
        )
    text = json.dumps(program, separators=(",", ":"), allow_nan=False)
    save_tensors(writer.stored, Path(path), {NOTE: text})
    if writer.left_hooks:
        warnings.warn(
            f"what is loaded from {os.fspath(path)} runs without hooks: {'; '.join(writer.left_hooks)} - "
            "a file holds functions that can be imported alone; strict=True refuses to leave any out",
            stacklevel=2,
        )
    return writer.left_out


class _ModuleWriter:
    """Collects the modules of a tree, and those that their attributes mention, with numbers; the root is 0."""

    def __init__(self, root: nn.Module, as_plain: bool) -> None:
        self.stored: dict[str, torch.Tensor] = {}
        self.left_hooks: list[str] = []  # of what is left out, that which acts in a call
        self._called = _called(root)
        self._as_plain = as_plain
        self._modules: list[tuple[nn.Module, str]] = []
        self._missing: dict[tuple[int, str], str] = {}  # why an attribute is not in the file, by its module and name
        self._numbers: dict[int, int] = {}
        self._names: dict[int, str] = {}  # of tensors, by id
        self._tensors: dict[str, dict[str, Any]] = {}
        self._values = PlainWriter(self._number, self._tensor)
        self._graphs = GraphWriter(self._values)
        self._shared: dict[int, tuple[int, str]] = {}  # where in the file a graph is that modules share: module, name
        self._needed = self._called | _classes_read(root)
        for path, module in root.named_modules():
            self._number(module, path)
        for path, module in root.named_modules():  # so that tensors have the names of the state_dict
            for table in (module._parameters, module._buffers):
                for name, tensor in table.items():
                    if tensor is not None:
                        self._tensor(tensor, f"{path}.{name}" if path else name)

    @property
    def left_out(self) -> list[str]:
        """What is not in the file, a line each."""
        return self._values.left_out

    def program(self) -> dict[str, Any]:
        """Write everything but the tensors."""
        modules: list[dict[str, Any]] = []
        self._write_modules(modules)
        for i, (module, path) in enumerate(self._modules):  # grows while it is walked
            self._write_modules(modules)
            if isinstance(module.__dict__.get(_STATE), State):  # that knows by now which attributes are not in the file
                modules[i]["program"] = self._program(module, path)
        self._write_modules(modules)
        self._refuse_missing()
        return {
            "format": FORMAT,
            "torch": torch.__version__,
            "modules": modules,
            "objects": self._values.table,
            "tensors": self._tensors,
            "places": self._graphs.places,
            "sources": self._graphs.sources,
        }

    def _write_modules(self, modules: list[dict[str, Any]]) -> None:
        """Write the modules that are not written yet, but for their programs; there may be more of them each time."""
        while len(modules) < len(self._modules):
            modules.append(self._module(*self._modules[len(modules)]))

    def _refuse_missing(self) -> None:
        """Raise ExportError where a program reads an attribute that is not in the file."""
        for root, _ in self._modules if self._missing else ():
            state = root.__dict__.get(_STATE)
            for entry in state.entries.values() if isinstance(state, State) else ():
                written = written_paths(entry.graph)
                for node in entry.graph.all_nodes():
                    if node.op == "get_attr" and node.target not in written:
                        self._refuse_if_missing(node, root)

    def _refuse_if_missing(self, node: Node, owner: nn.Module) -> None:
        for atom in str(node.target).split("."):
            why = self._missing.get((id(owner), atom))
            if why is not None:
                raise ExportError(
                    f"cannot save the node {node.name!r}: it reads {node.target!r}, {why}",
                    at=node.origin,
                    fix="keep plain values and tensors in the module, and make such an object of them when it runs",
                )
            below = owner._modules.get(atom)
            if below is None:
                return
            owner = below

    def _number(self, module: nn.Module, path: str = "") -> int:
        number = self._numbers.get(id(module))
        if number is None:
            number = self._numbers[id(module)] = len(self._modules)
            self._modules.append((module, path or (f"module {number}" if number else "")))
        return number

    def _tensor(self, tensor: torch.Tensor, path: str) -> str:
        name = self._names.get(id(tensor))
        if name is None:
            name = path
            while name in self.stored:
                name += "_"
            self._names[id(tensor)] = name
            self.stored[name] = tensor
            self._tensors[name] = {
                "kind": "parameter" if isinstance(tensor, nn.Parameter) else "tensor",
                "requires_grad": tensor.requires_grad and tensor.is_leaf,
            }
        return name

    def _module(self, module: nn.Module, path: str) -> dict[str, Any]:
        prefix = f"{path}." if path else ""
        if not isinstance(module._parameters, dict):  # those of torch.jit lie in C++
            raise ExportError(f"cannot save {path!r}: {describe(module)}", fix="save what it was made of")
        for name in (*module._parameters, *module._buffers, *module._modules):
            if not is_member_name(name):
                why = f"cannot save {prefix + name!r}: no file may have that name"
                raise ExportError(why, fix="give it another name")
        record: dict[str, Any] = {
            **self._class(module, path),
            "training": module.training,
            "parameters": self._tensor_table(module._parameters, prefix),
            "buffers": self._tensor_table(module._buffers, prefix),
            "transient": sorted(module._non_persistent_buffers_set),
            "modules": {
                name: None if child is None else self._number(child, prefix + name)
                for name, child in module._modules.items()
            },
            "attributes": {},
        }
        for name, value in state_of(module).items():
            if name in _NO_ATTRIBUTES:
                continue
            try:
                if not is_plain_name(name):
                    raise NotPlain("its name is none of an attribute")
                if not may_hold(type(module), name, value, self._values.trust):
                    raise NotPlain(f"{describe(value)}, which no file may have there")
                record["attributes"][name] = self._values.attribute(value, prefix + name)
            except NotPlain as error:
                self._missing[id(module), name] = str(error)
                self.left_out.append(f"{prefix}{name}: {error}")
        parts = ("parameters", "buffers", "modules", "attributes")
        missing = missing_in(type(module), (name for part in parts for name in record[part]))
        if missing is not None:
            kind, why = type(module).__name__, self._missing.get((id(module), missing), "it is not there")
            raise ExportError(
                f"cannot save {prefix}{missing}, which each {kind} has: {why}", fix="give it a plain value"
            )
        hooks = self._hooks(module, prefix)
        if hooks:
            record["hooks"] = hooks
        return record

    def _tensor_table(self, table: Any, prefix: str) -> dict[str, str | None]:
        return {name: None if tensor is None else self._tensor(tensor, prefix + name) for name, tensor in table.items()}

    def _class(self, module: nn.Module, path: str) -> dict[str, Any]:
        """Write the class; that of a captured module, which belongs to the one instance, by its bases."""
        kind = type(module)
        where = f"the module {path!r}" if path else "the module"
        try:
            if kind.__dict__.get("_is_instance_class"):
                names = [self._class_name(base, module, path) for base in kind.__bases__]
                plain = self._values.name(nn.Module)  # which the others inherit from
                bases = [name for name in names if name != plain] or [plain]
                return {"bases": bases, "name": _class_name(kind), "names": sorted(kind._extra)}  # type: ignore[attr-defined]
            if "parametrizations" in module._modules and kind.__name__.startswith("Parametrized"):
                names = list(module._modules["parametrizations"]._modules)  # type: ignore[union-attr]
                return {"class": self._class_name(kind.__bases__[0], module, path), "parametrized": names}
            return {"class": self._class_name(kind, module, path)}
        except NotPlain as error:
            fix = "move the class to the top level of a module"
            if not self._as_plain:
                fix += "; or save without it, as nn.Module: save(..., as_plain=True)"
            raise ExportError(f"cannot save {where}: its class is {error}", fix=fix) from None

    def _class_name(self, kind: type, module: nn.Module, path: str) -> str:
        """Write the name of a class, or of the nearest base that has one, where no code of its own is needed."""
        try:
            return self._values.name(kind)
        except NotPlain:
            if not self._as_plain or path in self._needed or not issubclass(kind, nn.Module):
                raise
            line = f"{path or type(module).__name__}: its class {kind.__qualname__}, saved as nn.Module"
            if line not in self.left_out:
                self.left_out.append(line)
            return self._values.name(nn.Module)

    def _hooks(self, module: nn.Module, prefix: str) -> list[list[Any]]:
        written, left = [], []
        for table in _HOOKS:
            for key, hook in module.__dict__[table].items():
                try:
                    if not may_be_hook(hook, self._values.trust):
                        raise NotPlain(f"{describe(hook)}, which no file may have as a hook")
                    value = self._values.attribute(hook, f"{prefix}{table}")
                    always = key in module.__dict__.get(f"{table}_always_called", ())
                    written.append([table, value, key in module.__dict__[f"{table}_with_kwargs"], always])
                except NotPlain as error:
                    left.append(f"{prefix}{table}: {error}")
        for table in _OTHER_HOOKS:
            if module.__dict__.get(table):
                left.append(f"{prefix}{table}: {len(module.__dict__[table])} hooks")
        self.left_out.extend(left)
        if not prefix or any(prefix.startswith(f"{path}.") for path in self._called):  # else their code is in the graph
            self.left_hooks += [line for line in left if "state_dict" not in line]
        return written

    def _lost_hooks(self, module: nn.Module, path: str, table: str) -> list[str]:
        """The names of the hooks in a table of a module inside of another one that no file holds."""
        lost = {}
        for key, hook in getattr(module_at(module, path), table, {}).items():
            try:
                self._values.attribute(hook, table)
            except NotPlain:
                lost[key] = hook
        return names_of_hooks(lost)

    def _left_out(self, module: nn.Module, path: str, inner: str) -> dict[str, bool]:
        """The attributes of a module inside of another one, or of an object in that, that are not in the file.

        Of each: whether the class has one of that name.
        """
        owner = module_at(module, path)
        owner = _held(owner, inner) if inner else owner
        missing = [name for number, name in (*self._missing, *self._values.missing) if number == id(owner)]
        return {name: hasattr(type(owner), name) for name in missing}

    def _program(self, module: nn.Module, path: str) -> dict[str, Any]:
        refuse_forms(module)
        state: State = module.__dict__[_STATE]
        where = f"{path} " if path else ""
        for name, hooks in zip(("create", "erase", "replace", "deepcopy"), _lists(state.hooks), strict=True):
            if hooks:
                self.left_out.append(f"{where}the graph: {len(hooks)} hooks of {name}")
        record: dict[str, Any] = {
            **self._graph(state.entries["forward"], path, module),
            "meta": self._mapping("meta", state.meta, where),
            "readable": state.is_readable,
            "lazy": state.is_lazy,
            "original": None if state.original is None else self._class_name(state.original, module, path),
        }
        others = {name: entry for name, entry in state.entries.items() if name != "forward"}
        if others:
            record["entries"] = {name: self._graph(entry, path, module) for name, entry in others.items()}
        return record

    def _note_methods(self, node: Node, module: nn.Module) -> None:
        """Note the methods that a node is read to call. Raises ExportError for one that no file may call."""
        if node.op != "get_attr":
            return
        for path in called_methods(node):
            function = method_at(module, path)
            if function is None or entry_at(module, path):
                continue
            try:
                self._graphs.note_method(function)
            except LoadError as error:
                raise ExportError(
                    f"cannot save the call of {path!r}, which is one node: {error.message}",
                    at=node.origin,
                    fix="give it a public name, or write it so that it can be captured",
                ) from None

    def _graph(self, entry: Entry, path: str, module: nn.Module) -> dict[str, Any]:
        graph = entry.graph
        if not is_plain(graph._writer):
            raise ExportError(
                f"cannot save the graph: it is written by {type(graph._writer).__name__}, a code generator",
                fix="give the graph the ordinary one: gm.graph.set_codegen(graphwright.CodeGen())",
            )
        where = f"{path} " if path else ""
        for node in graph.all_nodes():
            self._note_methods(node, module)
        written: dict[str, Any] = {}
        if entry.shared is not None:
            number, name = self._shared.setdefault(id(graph), (self._number(module), entry.name))
            written = {"shared": [number, name]}
        if entry.shared is None or (number, name) == (self._number(module), entry.name):
            written["nodes"] = self._graphs.record(graph, path)
        try:
            verify(graph, module, self._values.trust, is_only_asked=True)
        except LoadError as error:
            raise ExportError(
                f"cannot save the graph, since no file may hold it: {error.message}", at=error.at
            ) from None
        self._refuse_functions(graph, module)
        return {
            **written,
            "graph_meta": self._mapping(
                "graph_meta",
                for_file(
                    meta_for_files(
                        graph,
                        entry.facts,
                        functools.partial(self._lost_hooks, module),
                        functools.partial(self._left_out, module),
                    )
                ),
                where,
            ),
            "constants": self._mapping("constants", graph.constants, where),
        }

    def _refuse_functions(self, graph: Graph, module: nn.Module) -> None:
        """Raise ExportError where a graph reads what holds a function, class or module, which `load` refuses."""
        written = written_paths(graph)
        for node in graph.all_nodes():
            path = str(node.target)
            if node.op != "get_attr" or path in written or called_methods(node) or is_called_with_parameters(node):
                continue
            if holds_callable(_held(module, path), counts=self._is_kept):
                raise ExportError(
                    f"cannot save the graph, since no file may hold it: the node {node.name!r} reads {path!r}, which "
                    "is or holds a function, class or module",
                    at=node.origin,
                    fix="call it, or keep what is called apart from what is read",
                )

    def _is_kept(self, value: Any) -> bool:
        """Tell whether what can be called comes into the file, where an attribute holds it."""
        if isinstance(value, nn.Module) or not is_definition(value):
            return True
        try:
            self._values.name(value)
        except NotPlain:
            return False
        return True

    def _mapping(self, part: str, values: Mapping[Any, Any], where: str) -> dict[str, Any]:
        record = {}
        for key, value in values.items():
            try:
                record[str(key)] = self._values.attribute(value, str(key))
            except NotPlain as error:
                self.left_out.append(f"{where}{part}[{key!r}]: {error}")
        return record


def _held(module: nn.Module, path: str) -> Any:
    """What is at a dotted path below a module, as it is stored; None where nothing is."""
    value: Any = module
    for atom in path.split("."):
        if isinstance(value, nn.Module):
            tables = (value._modules, value._parameters, value._buffers, value.__dict__)
            value = next((table[atom] for table in tables if atom in table), None)
        else:
            value = attributes_of(value).get(atom)
    return value


def _lists(hooks: Any) -> list[list[Any]]:
    return [hooks.create, hooks.erase, hooks.replace, hooks.deepcopy]


def _classes_read(root: nn.Module) -> set[str]:
    """The paths of modules of which programs of a tree read what a class has."""
    paths = set()
    for prefix, module, node in _nodes(root, "get_attr"):
        owner, _, name = str(node.target).rpartition(".")
        kind = type(module.get_submodule(owner)) if _holds(module, owner) else nn.Module
        if hasattr(kind, name) and not hasattr(nn.Module, name):
            paths.add(".".join(part for part in (prefix, owner) if part))
    return paths


def _called(root: nn.Module) -> set[str]:
    """The paths of modules that programs of a tree call. Raises ExportError where one is not there any more."""
    found = set()
    for prefix, module, node in _nodes(root, "call_module"):
        if not _holds(module, str(node.target)):
            raise ExportError(
                f"cannot save the node {node.name!r}: it calls {node.target}, which the module does not have",
                at=node.origin,
                fix="put a module there, or have the graph call another one",
            )
        found.add(f"{prefix}.{node.target}" if prefix else str(node.target))
    return found


def _nodes(root: nn.Module, op: str) -> Iterator[tuple[str, nn.Module, Node]]:
    """The nodes of one opcode of all programs of a tree, each with its module and the path of that."""
    for prefix, module in root.named_modules():
        state = module.__dict__.get(_STATE)
        if isinstance(state, State):
            for graph in (state.graph, *(entry.graph for entry in state.entries.values())):
                yield from ((prefix, module, node) for node in graph.all_nodes() if node.op == op)


def _holds(module: nn.Module, path: str) -> bool:
    """Tell whether a path leads to a module."""
    try:
        module.get_submodule(path)
    except AttributeError:
        return False
    return True


def _class_name(kind: type) -> str:
    """The name of a captured program's own class, as a name: a lambda has none."""
    return kind.__name__ if kind.__name__.isidentifier() else "GraphModule"
