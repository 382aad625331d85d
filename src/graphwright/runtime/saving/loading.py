"""`load`: the module that `save` wrote, rebuilt from data. No constructor of a class runs, and nothing is unpickled."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import stat
from collections.abc import Container, Iterable
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn.utils import parametrize

from graphwright.errors import GraphwrightError, LoadError
from graphwright.ir import Graph, Node
from graphwright.ops import may_set_attribute, write_attribute
from graphwright.runtime.entries import Entry, entry_points_of
from graphwright.runtime.graph_facts import are_facts, keep_modules, take_facts, without_lost
from graphwright.runtime.graph_module import _STATE, GraphModule, _adopt, _instance_class, _python_code, graphs_of
from graphwright.runtime.members.attributes import MODULE_TABLES
from graphwright.runtime.modules.captured import users_names
from graphwright.runtime.objects import attributes_of
from graphwright.runtime.packaging.loading import unpacked
from graphwright.runtime.packaging.whole_files import check_sum
from graphwright.runtime.premises.names import module_at
from graphwright.runtime.references import describe
from graphwright.runtime.reporting.capture_report import report_of_all
from graphwright.runtime.saving.plain_data import PlainReader, damaged, is_member_name, plain_name
from graphwright.runtime.saving.saved_graphs import GraphReader
from graphwright.runtime.saving.saving import FORMAT, NOTE, SUMMED
from graphwright.runtime.shared_code import SharedCode
from graphwright.runtime.state import State
from graphwright.runtime.trust.held import may_be_hook, may_hold, missing_in
from graphwright.runtime.trust.members import is_field
from graphwright.runtime.trust.methods import called_methods, entry_at, is_called_with_parameters, method_at
from graphwright.runtime.trust.names import Trust, names_in
from graphwright.runtime.trust.sizes import check_bounds, check_tree
from graphwright.runtime.trust.verifier import holds_callable, verify, written_paths

_FIX = "load files only from those you trust"
_DATA = (bool, int, float, str, tuple, torch.Tensor)  # what the attribute of a class may be
_DEEPEST = 400  # modules and objects in one another
_LARGEST = 100_000_000  # elements of a tensor that repeats its memory
# What `save` writes tensors as that not every version of safetensors knows.
_DTYPES = frozenset({
    str(dtype).removeprefix("torch.") for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)
}) - {"quint8", "qint8", "qint32", "quint4x2", "quint2x4"}  # fmt: skip
_MISFITS = (
    TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError, OverflowError, AssertionError,
)  # fmt: skip


def load(path: str | os.PathLike[str], allow: Iterable[str] = ()) -> GraphModule:
    """Read the captured module that `save` wrote: its class, tree, tensors and graph.

    A file names functions and classes; those of torch's operators, torch.nn, operator, math and the plain builtins are
    known, others must be of a module that `allow` names by prefix: `allow=["transformers"]`. Nothing but allowed
    modules is imported, and nothing that a file names is called before the module is. What starts programs, runs text,
    or loads code (os, subprocess, eval, torch.load, ...) is refused whatever `allow` says. Functions that you allow can
    be called by the loaded program: allow what you trust.

    Raises LoadError for a file that is damaged, is of another version, or names what is not allowed.
    """
    given: object = path
    if not isinstance(given, str | os.PathLike):
        what = f"a {type(path).__name__} is no path of a file"
        raise LoadError(what, fix="write what it holds to a file, and load that")
    is_summed, program, tensors = _read(path)
    check_bounds(program)
    if type(program) is not dict or type(program.get("format")) is not int:
        raise damaged("it says of which format it is nowhere")
    if not 1 <= program["format"] <= FORMAT:
        raise LoadError(
            f"the file is of format {program['format']}; this version reads formats up to {FORMAT}",
            fix="load it with the version of graphwright that saved it",
        )
    if program["format"] >= SUMMED and not is_summed:
        raise damaged("the sum of its bytes is missing")
    try:
        return _Rebuilding(program, tensors, Trust(allow)).root()
    except LoadError:
        raise
    except (*_MISFITS, GraphwrightError) as error:
        raise damaged(f"{type(error).__name__}: {error}") from error


def _read(path: str | os.PathLike[str]) -> tuple[bool, Any, dict[str, torch.Tensor]]:
    """Read whether there is a sum, the program, and the tensors of a file, with memory of their own."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would have to be waited for
            raise LoadError(f"{path} is no file of graphwright, but a folder or device", fix="give the name of a file")
        is_summed = check_sum(path)
        with safe_open(os.fspath(path), framework="pt") as file:
            notes = file.metadata() or {}
            if NOTE not in notes:
                raise LoadError(f"{path} holds tensors, but no program", fix="load a file that graphwright.save wrote")
            program = json.loads(notes[NOTE])
            layouts = json.loads(notes.get("layouts", "{}"))
            pieces = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no dict
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError) as error:
        raise LoadError(f"{path} is damaged, or no file of graphwright: {error}", fix="save the model again") from error
    except (ValueError, RecursionError) as error:
        raise LoadError(f"the program in {path} is damaged: {error}", fix="save the model again") from error
    try:
        tensors = dict(pieces)
        for name, layout in layouts.items():
            piece = pieces[layout.get("in", name)]
            if "dtype" in layout and layout["dtype"] not in _DTYPES:
                raise damaged(f"{name!r} is of no dtype that a file may have")
            if "size" in layout and not _is_small(layout["size"], max(_LARGEST, piece.numel())):
                raise damaged(f"{name!r} is larger than the memory it lies in")
            tensors[name] = unpacked(piece, layout)
    except LoadError:
        raise
    except _MISFITS as error:
        raise damaged(f"a tensor does not lie where the file says: {error}") from error
    return is_summed, program, tensors


def _is_small(sizes: list[int], most: int) -> bool:
    """Tell whether a tensor of these sizes has no more elements than that, without long numbers."""
    count = 1
    for size in sizes:
        count *= min(size, most + 1)
        if count > most and 0 not in sizes:
            return False
    return True


class _Rebuilding:
    """Rebuilds the modules of one file. All are made empty first, since they may mention each other."""

    def __init__(self, program: dict[str, Any], tensors: dict[str, torch.Tensor], trust: Trust) -> None:
        self._trust = trust
        self._shared: dict[tuple[Any, Any], SharedCode] = {}
        self._plain: set[int] = set()  # ids of what attributes hold, which holds nothing that can be called
        trust.check_names(names_in(program))
        self._records = program["modules"]
        self._modules = [self._made(record) for record in self._records]
        self._tensors = {name: _tensor(tensors, name, facts) for name, facts in program["tensors"].items()}
        self._values = PlainReader(program["objects"], trust, self._modules, self._tensors)
        self._graphs = GraphReader(self._values, trust, program["places"], program["sources"])

    def root(self) -> GraphModule:
        """Fill all modules and return the first."""
        for record, module in self._rows():
            self._fill(record, module)
        self._values.check_partials()
        numbers = {id(module): number for number, module in enumerate(self._modules)}
        held = [[child for child in module._modules.values() if child is not None] for module in self._modules]
        check_tree([[numbers[id(child)] for child in children] for children in held])
        for record, module in self._rows():
            names = record.get("parametrized", ())
            if names:
                if set(names) != set(module._modules["parametrizations"]._modules):  # type: ignore[union-attr]
                    raise damaged("a parametrized module has other parametrizations than it names")
                parametrize._inject_new_class(module)
                for name in names:
                    parametrize._inject_property(module, plain_name(name))
        for module in self._modules:
            own = (module._parameters, module._buffers, module._modules)
            name = missing_in(type(module), itertools.chain(module.__dict__, *own))
            if name is not None:
                raise damaged(f"a {type(module).__name__} in it has no {name!r}")
            if type(module).extra_repr.__module__.startswith("torch.nn.modules."):
                module.extra_repr()  # which shows settings that are there, and of their kind
        programs = [(record["program"], module) for record, module in self._rows() if "program" in record]
        for program, module in programs:
            self._adopt(program, module)
        for _, module in programs:
            for entry in entry_points_of(module).values():
                _forget_lost(entry, module)
        for _, module in programs:  # which may call entry points of each other
            for entry in entry_points_of(module).values():
                self._check(entry.graph, module)
        for _, module in programs:
            _look_at(module)
        root = self._modules[0]
        if not isinstance(root, GraphModule) or "program" not in self._records[0]:
            raise damaged("its first module has no graph")
        return root

    def _rows(self) -> Iterable[tuple[dict[str, Any], nn.Module]]:
        return zip(self._records, self._modules, strict=True)

    def _made(self, record: dict[str, Any]) -> nn.Module:
        if "class" in record:
            kind = self._trust.find(record["class"], is_class=True)
        else:
            bases = tuple([self._trust.find(name, is_class=True) for name in record["bases"]])
            if "program" not in record or not any(issubclass(base, GraphModule) for base in bases):
                raise damaged("a module with a class of its own has no graph")
            kind = _instance_class(plain_name(record["name"]), bases, users_names(map(plain_name, record["names"])))
        if not issubclass(kind, nn.Module):
            raise damaged(f"{kind.__qualname__} is no class of modules")
        module: nn.Module = object.__new__(kind)
        module.__dict__.update(nn.Module().__dict__)
        return module

    def _fill(self, record: dict[str, Any], module: nn.Module) -> None:
        state = module.__dict__
        state["training"] = bool(record["training"])
        for name, tensor in record["parameters"].items():
            value = None if tensor is None else self._values.tensor(tensor)
            if value is not None and not isinstance(value, nn.Parameter):
                raise damaged(f"{name!r} is no parameter")
            state["_parameters"][_member(name)] = value
        for name, tensor in record["buffers"].items():
            state["_buffers"][_member(name)] = None if tensor is None else self._values.tensor(tensor)
        state["_non_persistent_buffers_set"] = {_member(name) for name in record["transient"]}
        for name, number in record["modules"].items():
            state["_modules"][_member(name)] = None if number is None else self._values.module(number)
        for name, value in self._values.attributes(record["attributes"]).items():
            if name in MODULE_TABLES or name == _STATE:
                raise damaged(f"{name!r} is no attribute of a module's own")
            if not may_hold(type(module), name, value, self._trust):
                raise LoadError(f"a file may not have {describe(value)} as {name!r} of a module", fix=_FIX)
            if name in _slots_of(type(module)):
                object.__setattr__(module, name, value)
            else:
                state[name] = value
        for table, value, with_kwargs, always in record.get("hooks", ()):
            hook = self._values.value(value)
            if not may_be_hook(hook, self._trust):
                raise LoadError(f"a file may not have {describe(hook)} as a hook", fix=_FIX)
            if table == "_forward_pre_hooks":
                nn.Module.register_forward_pre_hook(module, hook, with_kwargs=bool(with_kwargs))
            else:
                nn.Module.register_forward_hook(module, hook, with_kwargs=bool(with_kwargs), always_call=bool(always))

    def _adopt(self, record: dict[str, Any], module: nn.Module) -> None:
        if not isinstance(module, GraphModule):
            raise damaged("a module of another class has a graph")
        original = record["original"]
        kind = None if original is None else self._trust.find(original, is_class=True)
        if kind is not None and not isinstance(module, kind):
            raise damaged("a captured module is not of its own class")
        meta = {key: self._values.value(value) for key, value in record["meta"].items()}
        forward = self._entry("forward", record)
        state = State(forward.graph, bool(record["readable"]), kind, meta)
        state.is_lazy = bool(record["lazy"])
        state.entries["forward"] = forward
        for name, other in record.get("entries", {}).items():
            if name != plain_name(name) or hasattr(GraphModule, name):
                raise damaged(f"{name!r} is no method of the program")
            state.entries[name] = self._entry(name, other)
        _adopt(module, state)

    def _entry(self, name: str, record: dict[str, Any]) -> Entry:
        """Rebuild an entry point; a graph that several modules have is rebuilt once."""
        meta = {key: self._values.value(value) for key, value in record["graph_meta"].items()}
        if not are_facts(meta):
            raise damaged("what it says of its modules is not said as a capture says it")
        shared = None
        if "shared" in record:
            number, other = record["shared"]
            shared = self._shared.get((number, other))
        if shared is None:
            graph = self._graphs.graph(record["nodes"])
            graph.constants = {str(key): self._values.value(value) for key, value in record["constants"].items()}
            graph._meta = meta or None
        else:
            graph = shared.graph
        entry = Entry(name, graph)
        if "shared" in record:
            entry.facts, entry.shared = take_facts(graph, meta), shared or SharedCode(graph)
            self._shared[number, other] = entry.shared
        return entry

    def _check(self, graph: Graph, module: nn.Module) -> None:
        """Refuse what no file may do, in a graph of a module. Raises LoadError."""
        verify(graph, module, self._trust)
        written = written_paths(graph)
        checked: set[tuple[str, str, bool]] = set()
        for node in graph.all_nodes():
            if node.op == "get_attr" and self._calls_methods(node, module):
                continue
            if node.op in ("get_attr", "call_module"):
                asked = (str(node.target), node.op, is_called_with_parameters(node))
                if asked not in checked:
                    _check_path(module, *asked, written, self._plain)
                    checked.add(asked)
            elif node.target is write_attribute:
                _check_written(module, node.args)

    def _calls_methods(self, node: Node, module: nn.Module) -> bool:
        """Tell whether a node is read to call methods of modules that a file may call. Raises LoadError otherwise."""
        paths = called_methods(node)
        if paths and all(entry_at(module, path) for path in paths):
            return True
        found = [method_at(module, path) for path in paths]
        is_called = any(user.op == "call_method" and user.target == "__call__" for user in node.users)
        if is_called and (not found or None in found):
            raise LoadError(f"a file may not call {node.target!r}", fix=_FIX)
        for function in found:
            if function is None:
                return False
            self._graphs.check_method(function)
        return bool(found)


def _forget_lost(entry: Entry, module: nn.Module) -> None:
    """Take nothing for granted of plain attributes that no file holds, such as functions that nobody can import."""
    kept = {path: without_lost(of_one, module_at(module, path)) for path, of_one in entry.premises.items()}
    if entry.facts is not None:
        entry.facts = kept
    else:
        keep_modules(entry.graph, kept)


def _look_at(module: nn.Module) -> None:
    """Write the code of a program, and what it takes for granted, so that none of that is an error later."""
    for name in entry_points_of(module):
        _python_code(module, name)
    str(report_of_all(graphs_of(module)))


def _tensor(tensors: dict[str, torch.Tensor], name: str, facts: dict[str, Any]) -> torch.Tensor:
    if name not in tensors:
        raise damaged(f"it has no tensor {name!r}")
    tensor = tensors[name]
    if facts["kind"] == "parameter":
        return nn.Parameter(tensor, requires_grad=bool(facts["requires_grad"]))
    return tensor.requires_grad_() if facts["requires_grad"] else tensor


def _member(name: Any) -> str:
    """Return the name of a parameter, buffer or submodule, checked as `nn.Module` does."""
    if not is_member_name(name):
        raise damaged(f"{name!r} is no name of a submodule or tensor")
    return str(name)


def _check_path(
    module: nn.Module,
    path: str,
    op: str,
    is_called: bool = False,
    written: Container[str] = frozenset(),
    plain: set[int] | None = None,
) -> Any:
    """Refuse a path that leads to anything but what modules hold: never to a method, or out of the tree."""
    value: Any = module
    atoms = path.split(".")
    if len(atoms) > _DEEPEST:
        raise damaged(f"a path in its program has {len(atoms):,} names, more than {_DEEPEST}")
    for place, atom in enumerate(atoms):
        if isinstance(value, nn.Module):
            parametrizations = value._modules.get("parametrizations")
            if parametrizations is not None and atom in parametrizations._modules:
                return None  # a tensor, computed when it is read
            tables = (value._modules, value._parameters, value._buffers, value.__dict__)
            table = next((table for table in tables if atom in table), None)
            if table is None or (atom in MODULE_TABLES and atom != "training") or atom == _STATE:
                raise damaged(f"there is no {path!r}")
            value = table[atom]
        elif ".".join(atoms[:place]) in written and not is_field(atom):
            raise LoadError(f"a file may not read {path!r}, part of which it writes", fix=_FIX)
        elif atom in attributes_of(value) and may_set_attribute(value, atom):
            value = attributes_of(value)[atom]
        elif path in written and place == len(atoms) - 1 and _may_be_made(value, atom):
            return None  # what the program itself puts there
        elif (
            isinstance(value, torch.Tensor) and is_field(atom, torch.Tensor) and all(map(is_field, atoms[place + 1 :]))
        ):
            return None  # data, computed when it is read
        elif is_field(atom) and isinstance(inspect.getattr_static(value, atom, None), _DATA):
            value = inspect.getattr_static(value, atom)
        else:
            raise LoadError(f"a file may not read {path!r}", fix=_FIX)
    if is_called and isinstance(value, nn.Module):
        return value
    if op == "get_attr" and holds_callable(value, plain):
        raise LoadError(f"a file may not use {path!r} as a value of its graph", fix="call it, or use its tensors")
    if op == "call_module" and not isinstance(value, nn.Module):
        raise damaged(f"{path!r} is no module")
    return value


def _may_be_made(value: Any, name: str) -> bool:
    """Tell whether an object has no attribute of a name, and may be given one."""
    return may_set_attribute(value, name) and inspect.getattr_static(value, name, _NOTHING) is _NOTHING


_NOTHING = object()


def _check_written(module: nn.Module, args: tuple[Any, ...]) -> None:
    """Refuse a write to anything but a plain attribute or tensor of a module: never to what modules work by."""
    if len(args) != 2 or type(args[0]) is not str:
        raise damaged("a write of an attribute does not name it")
    path = args[0]
    owner, _, name = path.rpartition(".")
    held = _check_path(module, owner, "") if owner else module
    if not isinstance(held, nn.Module):
        if not may_set_attribute(held, name):
            raise LoadError(f"a file may not write {path!r}", fix=_FIX)
        return
    tables = (held._parameters, held._buffers, held.__dict__)
    is_known = name == "training" or any(name in table for table in tables) or not hasattr(type(held), name)
    if not name.isidentifier() or name.startswith("__") or not is_known or name in _NEVER_WRITTEN:
        raise LoadError(f"a file may not write {path!r}", fix=_FIX)


# What every module works by: its tables, hooks and methods, and the state of a captured module.
_NEVER_WRITTEN = frozenset({*dir(nn.Module()), *dir(GraphModule), _STATE}) - {"training"}


def _slots_of(kind: type) -> set[str]:
    return {name for base in kind.__mro__ for name in base.__dict__.get("__slots__", ())}
