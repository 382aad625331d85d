"""A tree of modules as the classes of one Python file.

What the graphs call is written so that it computes the same. Everything else holds submodules and weights for what
runs: it becomes a class with a constructor only, named after the original one, equal classes being written once.
"""

from __future__ import annotations

import collections
import itertools
import keyword
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from graphwright.codegen import Globals, PythonCode
from graphwright.errors import ExportError
from graphwright.ir import Graph, Node
from graphwright.runtime.entries import entry_points_of
from graphwright.runtime.packaging.equal_classes import Statement, WrittenClass, rendered
from graphwright.runtime.packaging.loading import rebuilt
from graphwright.runtime.packaging.modules import (
    CONTAINERS,
    OF_PARAMETERS,
    Call,
    Expression,
    constructor_call,
    empty_tensor,
    holds_tensors,
    own_attributes,
    quoted,
    written_value,
)
from graphwright.runtime.packaging.rolling import loops_over
from graphwright.runtime.packaging.tensor_values import tensor_with_values
from graphwright.runtime.premises.names import own_class
from graphwright.runtime.references import describe, reference_to, why_unimportable

_INDENT = " " * 8
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


# The graph and the generated code of each entry point of a captured module; none for other modules.
ProgramsOf = Callable[[nn.Module], list[tuple[Graph, PythonCode]]]


class Written:
    """Stands for a class that the file itself defines."""

    def __init__(self, name: str) -> None:
        self.name = name


class Stub(types.SimpleNamespace):
    """The base of classes that the file defines in place of others: objects with the same attributes."""

    stands_for = ""


class StubError(Exception):
    """The base of exceptions that the file defines in place of others: `base` is the one of Python that they are."""

    stands_for = ""
    base: type[BaseException] = Exception


def _is_plain_sequence(module: nn.Module) -> bool:
    """Tell whether a captured module is a Sequential whose program calls what it holds, one after the other."""
    points = entry_points_of(module)
    if own_class(module) is not nn.Sequential or len(points) != 1:
        return False
    first, *calls, output = points["forward"].graph.nodes
    row = [first, *calls]
    are_calls = all(node.op == "call_module" and node.args == (row[i],) for i, node in enumerate(calls))
    names = [str(node.target) for node in calls]
    return are_calls and names == list(module._modules) and not calls[-1].kwargs and output.args == (calls[-1],)


class Uses:
    """What the graphs of a module need of the modules below it."""

    def __init__(self, root: nn.Module, programs_of: ProgramsOf) -> None:
        self.programs: dict[int, list[tuple[Graph, PythonCode]]] = {}  # of captured modules that run, the root first
        self.callers: dict[int, Node | None] = {}  # the modules that run as they are, and which node calls each
        self.attributes: dict[int, dict[str, Any]] = {}  # the plain attributes that the graphs read
        self._programs_of = programs_of
        self._kept: dict[int, bool] = {}
        self._run(root, "", None)

    def _run(self, module: nn.Module, path: str, caller: Node | None) -> None:
        """Note a module that runs, and what that needs."""
        if id(module) in self.programs or id(module) in self.callers:
            return
        if any(getattr(module, name, None) for name in _HOOKS):
            raise ExportError(
                f"cannot write the module {path!r}: it has a hook, and a package holds no hooks",
                at=None if caller is None else caller.origin,
                fix="remove the hook first: keep what register_forward_hook returned, and call remove() on it",
            )
        programs = [] if path and _is_plain_sequence(module) else self._programs_of(module)
        if not programs:
            self.callers[id(module)] = caller
            for name, child in module._modules.items():
                if child is not None:
                    self._run(child, f"{path}.{name}", caller)
            return
        self.programs[id(module)] = programs
        for graph, _ in programs:
            for node in graph.all_nodes():
                if node.op == "call_module" or node.op == "get_attr":
                    self._follow(module, node)

    def _follow(self, module: nn.Module, node: Node) -> None:
        value: Any = module
        for atom in node.target.split("."):
            child = value._modules.get(atom)
            if child is None:
                self._read(value, atom)
                return
            value = child
        loops = list(loops_over(node)) if node.op == "get_attr" else []
        for numbers, item in loops:
            for name in list(value._modules)[numbers]:
                self._follow_item(value._modules[name], f"{node.target}.{name}", item)
        if not loops:
            self._run(value, node.target, node)

    def _follow_item(self, module: nn.Module, path: str, value: Node) -> None:
        """Note what is done with a module that a loop goes over, or with one inside of it, as a value of its body."""
        for user in value.users:
            name: Any = user.args[1] if user.target is getattr else user.target
            child = module._modules.get(name) if isinstance(name, str) else None
            if child is None:
                self._read(module, name) if user.target is getattr else self._run(module, path, user)
            elif user.target is getattr:
                self._follow_item(child, f"{path}.{name}", user)
            else:
                self._run(child, f"{path}.{name}", user)

    def _read(self, module: nn.Module, name: str) -> None:
        read = self.attributes.setdefault(id(module), {})
        if module._parameters.get(name) is None and module._buffers.get(name) is None and name != "training":
            read[name] = getattr(module, name)

    def needs(self, module: nn.Module) -> bool:
        """Tell whether a module is there for something: it runs, is read, has tensors, or holds what has."""
        known = self._kept.get(id(module))
        if known is None:
            known = self._kept[id(module)] = (
                id(module) in self.callers
                or id(module) in self.programs
                or id(module) in self.attributes
                or any(
                    tensor is not None for table in (module._parameters, module._buffers) for tensor in table.values()
                )
                or any(child is not None and self.needs(child) for child in module._modules.values())
            )
        return known


class ModuleWriter:
    """Writes modules as expressions, and the classes that these expressions call."""

    def __init__(
        self,
        uses: Uses,
        names: Globals,
        code_of: Callable[[nn.Module], str],
        original_classes: bool = False,
        loads_weights: bool = True,
    ) -> None:
        self.uses = uses
        self.names = names
        self._original_classes = original_classes
        self._loads_weights = loads_weights  # else the values have to be in the text that no state_dict has
        self.classes: list[WrittenClass] = []  # each before the first one that uses it
        self.paths: dict[int, str] = {}  # where each module was written first
        self.shared: list[tuple[str, str]] = []  # (another path of a module, its first path)
        self._by_key: dict[str, bool] = {}  # of what is written as a container of torch.nn: whether it is a dict
        self._code_of = code_of
        self._class_names: dict[tuple[str, str], str] = {}

    def place(self, path: str) -> str:
        """Write how the constructor of the root reaches a dotted path.

        A path through what is written as a container has brackets: `self.layer[0].weight`, `self.heads["0"].bias`.
        """
        text, above = "self", ""
        for atom in path.split(".") if path else ():
            if atom.isidentifier() and not keyword.iskeyword(atom):
                text = f"{text}.{atom}"
            elif (is_dict := self._by_key.get(above)) is not None:
                text = f"{text}[{quoted(atom) if is_dict else atom}]"
            else:
                text = f"getattr({text}, {quoted(atom)})"
            above = f"{above}.{atom}" if above else atom
        return text

    # ---- classes

    def _registered(self, module: nn.Module, name: str, buffer: Tensor) -> tuple[Expression, str]:
        """Write the value of a buffer, and what stands behind it."""
        if name not in module._non_persistent_buffers_set:
            return empty_tensor(buffer), ")"
        if self._loads_weights:
            return empty_tensor(buffer), ", persistent=False)"
        value = tensor_with_values(buffer)
        if value is not None:
            return value, ", persistent=False)"
        return empty_tensor(buffer), ")  # which the state_dict of the original lacks"

    def members(self, module: nn.Module, path: str) -> list[Statement]:
        """Write the statements of a constructor that make what a module holds."""
        found = []
        for name, parameter in module._parameters.items():
            if parameter is not None:
                found.append(_assignment(name, _parameter(parameter)))
        for name, buffer in module._buffers.items():
            if buffer is not None:
                value, after = self._registered(module, name, buffer)
                found.append(Statement(f"self.register_buffer({quoted(name)}, ", value, after))
        for name, value in self.uses.attributes.get(id(module), {}).items():
            found.append(_assignment(name, self._attribute(module, path, name, value)))
        for name, child in module._modules.items():
            if child is not None and self.uses.needs(child):
                expression = self.expression(child, f"{path}.{name}" if path else name)
                if expression == "None":  # written elsewhere: this only keeps the place
                    found.append(Statement(f"self.register_module({quoted(name)}, None)", ""))
                else:
                    found.append(_assignment(name, expression))
        return found

    def _class(self, module: nn.Module, path: str) -> str:
        """Write the class of a module that is no more than what it holds, and of a captured one; return its name."""
        wish = _class_name(module, path)
        base, start = self.base(module)
        statements = self.members(module, path)
        code = f"\n{self._code_of(module)}" if id(module) in self.uses.programs else ""
        key = wish, f"{base}\n{start}\n{rendered(statements, _INDENT)}{code}"
        known = self._class_names.get(key)
        if known is None:
            known = next(name for name in _numbered(wish) if self.names.new(name) == name)
            self.names.add(known, Written(known))
            self._class_names[key] = known
            self.classes.append(WrittenClass(known, wish, base, start, statements, code))
        return known

    def base(self, module: nn.Module) -> tuple[str, str]:
        """Write the class that the class of a captured module inherits from, and how its constructor starts."""
        kind = own_class(module)
        home = sys.modules.get(kind.__module__)
        is_own = self._original_classes and id(module) in self.uses.programs and home is not None
        if not is_own or kind.__module__.partition(".")[0] in ("torch", "graphwright"):
            return "torch.nn.Module", "super().__init__()"
        if getattr(home, kind.__qualname__, None) is not kind:
            raise ExportError(
                f"cannot write a class that inherits from {kind.__qualname__}, which no import reaches",
                fix="write it without original_classes, or define the class at the top level of a module",
            )
        name = self.names.add(kind.__module__.rpartition(".")[2], home)
        return f"{name}.{kind.__qualname__}", "torch.nn.Module.__init__(self)"

    # ---- expressions

    def expression(self, module: nn.Module, path: str) -> Expression:
        """Write what makes a module; `None` for one that was written before, which `shared` remembers."""
        first = self.paths.setdefault(id(module), path)
        if first != path:
            self.shared.append((path, first))
            return "None"
        if id(module) in self.uses.programs:
            return Call(self._class(module, path))
        if id(module) in self.uses.callers:
            return self._constructed(module, path) or self._list(module, path) or self._rebuilt(module, path)
        if own_class(module) in OF_PARAMETERS and module._parameters and not (module._modules or module._buffers):
            return self._list_of_parameters(module, path)
        if type(module).__module__.startswith("torch.nn.") and not isinstance(module, CONTAINERS):
            constructed = self._constructed(module, path)
            if constructed is not None:
                return constructed
        return self._list(module, path) or Call(self._class(module, path))

    def _constructed(self, module: nn.Module, path: str) -> Expression | None:
        call = constructor_call(module, self.names, self.uses.attributes.get(id(module), ()))
        if call is not None:
            for name, child in module.named_modules(remove_duplicate=False):
                if name:
                    first = self.paths.setdefault(id(child), f"{path}.{name}")
                    if first != f"{path}.{name}":
                        self.shared.append((f"{path}.{name}", first))
        return call

    def _list(self, module: nn.Module, path: str) -> Expression | None:
        """Write a container of torch.nn, and a module that holds numbered modules and nothing else."""
        runs = id(module) in self.uses.callers
        kind = next((kind for kind in CONTAINERS if isinstance(module, kind)), None)
        if kind is None or own_class(module) is not kind:
            if runs or (kind is None and (type(module) is not nn.Module or not module._modules)):
                return None
            kind = kind or nn.ModuleList
        if module._parameters or module._buffers or self.uses.attributes.get(id(module)):
            return None
        if runs and any(hasattr(kind, name) for name in own_attributes(module)):
            return None  # what hides something of the class; what else was set on a container means nothing to it
        names = list(module._modules)
        is_numbered = names == [str(i) for i in range(len(names))]
        if kind is nn.ModuleList and not is_numbered:
            return None
        if is_numbered or kind is nn.ModuleDict:
            self._by_key[path] = kind is nn.ModuleDict
        items = [self._item(child, f"{path}.{name}") for name, child in module._modules.items()]
        head = f"torch.nn.{kind.__name__}"
        if kind is nn.ModuleDict:
            pairs = tuple((f"{quoted(name)}: ", item) for name, item in zip(names, items, strict=True))
            return Call(head, pairs, ("({", "})"))
        if not is_numbered:
            ordered = self.names.add("OrderedDict", collections.OrderedDict)
            rows = tuple(
                ("", Call("", (("", quoted(name)), ("", item)), ("(", ")")))
                for name, item in zip(names, items, strict=True)
            )
            return Call(head, rows, (f"({ordered}([", "]))"))
        runs_of_equals = list(_runs(items))
        if kind is nn.ModuleList and len(runs_of_equals) == 1 and runs_of_equals[0][1] > 2:
            return _repeated(head, items[0], len(items))
        brackets = ("([", "])") if kind is nn.ModuleList else ("(", ")")
        return Call(head, tuple(_collapsed(runs_of_equals)), brackets)

    def _list_of_parameters(self, module: nn.Module, path: str) -> Expression:
        is_dict = self._by_key[path] = own_class(module) is nn.ParameterDict
        prefixes = [f"{quoted(name)}: " if is_dict else "" for name in module._parameters]
        items = tuple(zip(prefixes, map(_parameter, module._parameters.values()), strict=True))
        return Call(f"torch.nn.{own_class(module).__name__}", items, ("({", "})") if is_dict else ("([", "])"))

    def _item(self, child: nn.Module | None, path: str) -> Expression:
        if child is None:
            return "None"
        if self.uses.needs(child) or id(child) in self.paths:
            return self.expression(child, path)
        # Nothing uses it, but the others are found by their numbers.
        self.paths[id(child)] = path
        return constructor_call(child, self.names) or "torch.nn.Module()"

    def _rebuilt(self, module: nn.Module, path: str) -> Expression:
        """Write a module by what it consists of: its class is imported, its constructor not run."""
        kind, caller = type(module), self.uses.callers[id(module)]
        if reference_to(kind) is None:
            why, fix = why_unimportable(kind)
            if parametrize.is_parametrized(module):
                why = "torch.nn.utils.parametrize made it for this one module"
                fix = "parametrize.remove_parametrizations(module, name) before writing: the values stay"
            raise ExportError(
                f"cannot write the module {path!r}: no other process can import its class, {describe(kind)}: {why}",
                at=None if caller is None else caller.origin,
                fix=fix,
            )
        attributes = tuple(
            (f"{quoted(name)}: ", self._attribute(module, path, name, value))
            for name, value in own_attributes(module).items()
        )
        items: list[tuple[str, Expression]] = [
            (
                "",
                f"torch.nn.{kind.__name__}" if getattr(nn, kind.__name__, None) is kind else self.names.function(kind),
            ),
            ("", Call("", attributes, ("{", "}"))),
        ]
        if module._parameters:
            items.append(("parameters=", _table((n, _parameter(p)) for n, p in module._parameters.items())))
        if module._buffers:
            items.append(("buffers=", _table((n, self._buffer(module, path, n)) for n in module._buffers)))
        if module._modules:
            children = [(name, self._item(child, f"{path}.{name}")) for name, child in module._modules.items()]
            items.append(("modules=", _table(iter(children))))
        return Call(self.names.add("rebuilt", rebuilt), tuple(items))

    def _attribute(self, module: nn.Module, path: str, name: str, value: Any) -> Expression:
        if isinstance(value, Tensor):
            return empty_tensor(value) if self._loads_weights else self._with_values(value, path, name)
        text = written_value(value, self.names)
        if text is None and holds_tensors(value):
            text = written_value(value, self.names, lambda tensor: self._with_values(tensor, path, name))
        if text is not None:
            return text
        kind, what = type(module).__name__, f"{name!r}, {describe(value)}, has no text that makes it again"
        if id(module) not in self.uses.callers:
            raise ExportError(
                f"cannot write the module {path!r} ({kind}): the graph reads an attribute of it, and {what}",
                fix="keep a number, a string or a tensor there, or pass the object as an argument",
            )
        caller = self.uses.callers[id(module)]
        raise ExportError(
            f"cannot write the module {path!r}: its class {kind} is rebuilt from its attributes, and {what}",
            at=None if caller is None else caller.origin,
            fix=f"let the capture look inside {kind} rather than keep it whole",
        )

    def _buffer(self, module: nn.Module, path: str, name: str) -> Expression:
        buffer = module._buffers[name]
        if buffer is None:
            return "None"
        is_state = name not in module._non_persistent_buffers_set
        flags: tuple[tuple[str, Expression], ...] = () if is_state else (("persistent=", "False"),)
        has_value = is_state or self._loads_weights
        value = empty_tensor(buffer) if has_value else self._with_values(buffer, path, name)
        return Call("torch.nn.Buffer", (("", value), *flags))

    def _with_values(self, tensor: Tensor, path: str, name: str) -> Expression:
        value = tensor_with_values(tensor)
        if value is None:
            raise ExportError(
                f"cannot write the tensor {f'{path}.{name}' if path else name!r}: it is in no state_dict, and its "
                f"{tensor.numel()} values are too many to be written",
                fix="register it as a buffer of the module, or write the module with to_folder, which keeps all values",
            )
        return value


def _assignment(name: str, expression: Expression) -> Statement:
    is_plain = name.isidentifier() and not keyword.iskeyword(name)
    return (
        Statement(f"self.{name} = ", expression)
        if is_plain
        else Statement(f"setattr(self, {quoted(name)}, ", expression, ")")
    )


def _parameter(parameter: Tensor | None) -> Expression:
    if parameter is None:
        return "None"
    if type(parameter) is not nn.Parameter:
        raise ExportError(
            f"cannot write a parameter of the class {type(parameter).__name__}",
            fix="replace it by an ordinary torch.nn.Parameter before writing",
        )
    can_learn = parameter.is_floating_point() or parameter.is_complex()
    flags: tuple[tuple[str, Expression], ...] = () if can_learn else (("requires_grad=", "False"),)
    return Call("torch.nn.Parameter", (("", empty_tensor(parameter)), *flags))


def _table(items: Iterator[tuple[str, Expression]]) -> Call:
    return Call("", tuple((f"{quoted(name)}: ", item) for name, item in items), ("{", "}"))


def _runs(items: list[Expression]) -> Iterator[tuple[Expression, int]]:
    """Iterate over (item, how many equal ones follow one another)."""
    start = 0
    for i in range(1, len(items) + 1):
        if i == len(items) or items[i] != items[start]:
            yield items[start], i - start
            start = i


def _collapsed(runs: list[tuple[Expression, int]]) -> Iterator[tuple[str, Expression]]:
    for item, count in runs:
        if count > 2:
            yield "", _repeated("*", item, count)
        else:
            yield from [("", item)] * count


def _repeated(head: str, item: Expression, count: int) -> Expression:
    """Write so many equal items as a generator, in brackets behind a head."""
    if isinstance(item, str):
        return f"{head}({item} for _ in range({count}))"
    start, end = item.brackets
    return Call(f"{head}({item.head}", item.items, (start, f"{end} for _ in range({count}))"))


def _numbered(name: str) -> Iterator[str]:
    """Iterate over a name, and the name with numbers from 2 on."""
    yield name
    yield from (f"{name}{number}" for number in itertools.count(2))


def _class_name(module: nn.Module, path: str) -> str:
    """The class's own name; for a plain nn.Module one made from where it is."""
    name = type(module).__name__
    if type(module) is not nn.Module and name.isidentifier():
        return name
    atoms = path.split(".")
    named = next((atom for atom in reversed(atoms) if not atom.isdigit()), "part")
    words = "".join(word[:1].upper() + word[1:] for word in re.split(r"\W|_", named))
    if atoms[-1].isdigit():  # one of many: blocks.0 -> Block, layer1.0 -> Layer1Block
        words = words.removesuffix("s") if words.endswith("s") else f"{words}Block"
    return words if words.isidentifier() else f"Part{words}"
