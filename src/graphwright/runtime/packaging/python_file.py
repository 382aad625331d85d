"""A captured module as the text of a Python file, tried before it is written."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.codegen import Globals, PythonCode
from graphwright.errors import ExportError
from graphwright.ir import Graph
from graphwright.runtime.entries import entry_points_of
from graphwright.runtime.packaging.classes import ModuleWriter, ProgramsOf, Stub, StubError, Uses, Written
from graphwright.runtime.packaging.equal_classes import Statement, merged, rendered
from graphwright.runtime.packaging.imports import import_statements, renamed, used_names
from graphwright.runtime.packaging.loading import load_tensors, rebuilt, tensor_slots
from graphwright.runtime.packaging.modules import CONTAINERS, OF_PARAMETERS, is_same_build
from graphwright.runtime.premises.names import own_class

_LOADING = {id(rebuilt): "loading", id(load_tensors): "loading"}


_STUBS = (Stub, StubError)


class PackageSource:
    """The source of one captured module: `text`, and `build()`, which runs it."""

    def __init__(
        self,
        module: nn.Module,
        class_name: str,
        programs_of: ProgramsOf,
        *,
        loads_weights: bool = True,
        original_classes: bool = False,
    ) -> None:
        self._module = module
        self._loads_weights = loads_weights
        self._class_name = class_name
        self._uses = Uses(module, programs_of)
        graphs = [graph for programs in self._uses.programs.values() for graph, _ in programs]
        local_names = {name for graph in graphs for name in _local_names(graph)}
        self._names = names = Globals(local_names - {"torch", class_name}, short=True)
        names.add("torch", torch)
        names.add(class_name, Written(class_name))
        methods = {
            number: "\n".join([_method(code, names) for _, code in programs])
            for number, programs in self._uses.programs.items()
        }
        self._writer = ModuleWriter(
            self._uses, names, lambda owner: methods[id(owner)], original_classes, loads_weights
        )
        self._writer.paths[id(module)] = ""
        members = self._writer.members(self._module, "")
        texts, called = merged(self._writer.classes)
        root = self._root_class(
            methods[id(module)], [dataclasses.replace(each, value=called(each.value)) for each in members]
        )
        stubs = [kind for kind in names.values.values() if issubclass(type(kind), type) and issubclass(kind, _STUBS)]
        classes = "\n\n".join([*[self._stub(each) for each in stubs], *texts, root])
        self._imports = import_statements(names.values, classes, graphs, _LOADING)
        self._classes = classes
        others = (
            "" if not self._writer.classes else
            "\n\nThe other classes are the modules in it." if len(self._uses.programs) > 1 else
            "\n\nThe other classes hold submodules and weights, and have no program."
        )  # fmt: skip
        docstring = f"{_title(module)}: its program is `{class_name}.forward`.{others}"
        self.text = f'"""{docstring}{chr(10) if others else ""}"""\n\n{self._imports}\n\n\n{classes}'

    # ---- the root class

    def _stub(self, kind: type[Stub | StubError]) -> str:
        if issubclass(kind, StubError):
            base = kind.base.__name__
        else:
            base = self._names.add("SimpleNamespace", types.SimpleNamespace)
        return f'class {kind.__name__}({base}):\n    """Stands for {kind.stands_for}."""\n'

    def _root_class(self, method: str, members: list[Statement]) -> str:
        if not self._loads_weights:
            base, start = self._writer.base(self._module)
            head = f"class {self._class_name}({base}):\n    def __init__(self) -> None:\n        {start}\n"
            flags = (*self._ties(), *self._training_flags(self._module), *self._gradient_flags(self._module))
            return "".join([head, rendered(members, " " * 8), *[f"        {line}\n" for line in flags], "\n", method])
        load = self._names.add("load_tensors", load_tensors)
        lines = [
            f"class {self._class_name}(torch.nn.Module):\n",
            "    def __init__(self, load_weights: bool = True) -> None:\n",
            "        super().__init__()\n",
        ]
        if members:
            lines.append('        with torch.device("meta" if load_weights else "cpu"):\n')
            lines.append(rendered(members, " " * 12))
        for line in (*self._ties(), *self._training_flags(self._module), *self._gradient_flags(self._module)):
            lines.append(f"        {line}\n")
        lines += ["        if load_weights:\n", f"            {load}(self, beside=__file__)\n", "\n", method]
        return "".join(lines)

    def _ties(self) -> Iterator[str]:
        """Write the assignments that make one what is one: modules first, then parameters and buffers."""
        for path, first in self._writer.shared:
            yield self._assignment(path, self._writer.place(first))
        seen: dict[int, str] = {}
        for module in self._written_modules():
            prefix = self._writer.paths[id(module)]
            for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is not None:
                    path = f"{prefix}.{name}" if prefix else name
                    first = seen.setdefault(id(tensor), path)
                    if first != path:
                        yield self._assignment(path, self._writer.place(first))

    def _assignment(self, path: str, value: str) -> str:
        place = self._writer.place(path)
        if place.startswith("getattr(") and place.endswith(")"):
            return f"setattr({place.removeprefix('getattr(').removesuffix(')')}, {value})"
        return f"{place} = {value}"

    def _written_modules(self) -> list[nn.Module]:
        return [module for module in self._module.modules() if id(module) in self._writer.paths]

    def _children(self, module: nn.Module) -> Iterator[nn.Module]:
        """The children that were written here rather than elsewhere."""
        path = self._writer.paths[id(module)]
        for name, child in module._modules.items():
            if child is not None and self._writer.paths.get(id(child)) == (f"{path}.{name}" if path else name):
                yield child

    def _training_flags(self, module: nn.Module) -> Iterator[str]:
        """Write the fewest statements that set `training` as it is; constructors set it to True."""
        flags = [below.training for below in module.modules() if id(below) in self._writer.paths]
        place = self._writer.place(self._writer.paths[id(module)])
        if not any(flags):
            yield f"{place}.eval()"
        elif not all(flags):
            if not module.training:
                yield f"{place}.training = False"
            for child in self._children(module):
                yield from self._training_flags(child)

    def _gradient_flags(self, module: nn.Module) -> Iterator[str]:
        """Write the fewest statements that set `requires_grad` as it is; constructors let all parameters learn."""
        flags = [p.requires_grad for p in module.parameters() if p.is_floating_point() or p.is_complex()]
        path = self._writer.paths[id(module)]
        own = {name: parameter for name, parameter in module._parameters.items() if parameter is not None}
        if flags and not any(flags):
            yield f"{self._writer.place(path)}.requires_grad_(False)"
            own = {}
        elif all(flags):
            own = {}
        else:
            for child in self._children(module):
                yield from self._gradient_flags(child)
        for name, tensor in own.items():
            if not tensor.requires_grad:
                yield f"{self._writer.place(f'{path}.{name}' if path else name)}.requires_grad_(False)"
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.requires_grad:
                yield f"{self._writer.place(f'{path}.{name}' if path else name)}.requires_grad_()"

    # ---- trying it

    def build(self) -> nn.Module:
        """Run the text and return its module, without values; raise ExportError where it is not the captured one."""
        scope: dict[str, Any] = {"__name__": "package", "__file__": ""}
        scope |= {name: value for name, value in self._names.values.items() if id(value) in _LOADING}
        scope[self._names.add("load_tensors", load_tensors)] = lambda module, beside: None
        lines = [line for line in self._imports.splitlines() if not line.startswith("from .")]
        exec(compile("\n".join(lines) + "\n" + self._classes, "<package>", "exec"), scope)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            built: nn.Module = scope[self._class_name]()
        self._compare(built)
        sources = [(number, code.src) for number, programs in self._uses.programs.items() for _, code in programs]
        for number, source in sources:
            lost = _lost_subscript(source, built.get_submodule(self._writer.paths[number]))
            if lost is not None:
                raise ExportError(
                    f"cannot write {lost!r}: a class of the program gives its children by number or key, and the "
                    "package holds plain modules in its place",
                    fix="derive the class from torch.nn.ModuleList or torch.nn.ModuleDict",
                )
        return built

    def _compare(self, built: nn.Module) -> None:
        for table in ("named_parameters", "named_buffers"):
            mine = dict(getattr(self._module, table)(remove_duplicate=False))
            others = dict(getattr(built, table)(remove_duplicate=False))
            if list(mine) != list(others):
                odd = next(iter(mine.keys() ^ others.keys()), "their order")
                raise _differs(odd, "the tensors of the package would be others")
            same: dict[int, int] = {}
            for path, tensor in mine.items():
                other = others[path]
                if tensor.shape != other.shape or tensor.requires_grad != other.requires_grad:
                    raise _differs(path, f"its tensor would be {list(other.shape)}")
                if same.setdefault(id(tensor), id(other)) != id(other):
                    raise _differs(path, "it would share no tensor with the others that are one with it")
        for path, module in built.named_modules(remove_duplicate=False):
            original = self._module.get_submodule(path)
            if original.training is not module.training:
                raise _differs(path, f"its `training` would be {module.training}")
            holds = own_class(original) in CONTAINERS and any(map(entry_points_of, original.modules()))
            if id(original) in self._uses.callers and not holds and not is_same_build(original, module, ()):
                raise _differs(path, f"it would be another {type(original).__name__}")


def stored_tensors(module: nn.Module, built: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module that the module built from its source asks for, by the names it asks for them."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for path, _, name, tensor in tensor_slots(built):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[path] = getattr(module.get_submodule(path.rpartition(".")[0]), name)
    return tensors


def _lost_subscript(source: str, module: nn.Module) -> str | None:
    """Find a path through modules in generated code, such as `self.blocks[0]`, that a module does not know."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            above = node.value
            while isinstance(above, ast.Attribute | ast.Subscript):
                above = above.value
            if isinstance(above, ast.Name) and above.id == "self":
                holder = eval(ast.unparse(node.value), {"self": module})
                if isinstance(holder, nn.Module) and not isinstance(holder, (*CONTAINERS, *OF_PARAMETERS)):
                    return ast.unparse(node)
    return None


def _title(module: nn.Module) -> str:
    name = type(module).__name__
    return "A captured module" if name == "GraphModule" else f"{name} as it was captured"


def _differs(path: str, how: str) -> ExportError:
    return ExportError(
        f"cannot write {path!r}: {how}", fix="this is an error of graphwright: please report it with the module"
    )


def _local_names(graph: Graph) -> Iterator[str]:
    for node in graph.all_nodes():
        yield node.name
        if node.op == "placeholder":
            yield node.target.lstrip("*")


def _method(code: PythonCode, names: Globals) -> str:
    """Write generated code as a method, with its global names among those of the file."""
    read, _ = used_names(code.src)
    changes = {}
    for name, value in code.globals.items():
        if name in read and getattr(builtins, name, None) is not value:
            given = names.add(name, value)
            if given != name:
                changes[name] = given
    source = (renamed(code.src, changes) if changes else code.src).strip("\n ")
    return "".join(f"    {line.rstrip()}\n" if line.strip() else "\n" for line in source.split("\n"))
