"""What all parts of the compiler share: the graph being written, the call under way, and the problems found.

An expression that is wrong is noted and stands for `BAD`, about which nothing more is said, so that one run finds all
problems.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from torch import nn

from graphwright.errors import Problem
from graphwright.ir import NestedGraph, Node
from graphwright.ops import Make, raise_error, written_and_given
from graphwright.runtime import (
    class_name,
    expect,
    expect_kinds,
    expect_state,
    held_at,
    kind_held,
    name_of_class,
    spelled,
    take_code,
)
from graphwright.script.program.attributes import Attributes
from graphwright.script.program.frames import Closure, Code, Frame
from graphwright.script.program.surroundings import Surroundings
from graphwright.script.program.values import (
    BAD,
    Bad,
    Const,
    Display,
    Group,
    Instance,
    ModuleRef,
    Place,
    Reference,
    Runtime,
    Value,
)
from graphwright.script.types import (
    ANY,
    BOOL,
    NONE,
    TENSOR,
    ObjectType,
    OptionalType,
    Type,
    class_of,
    is_number,
)

Kinds = frozenset[str]  # how a block of statements may end: "next", "return", "break", "continue", "raise"


class Parts(Protocol):
    """The parts of the compiler, which call each other through the context: the functions that compiler.py names."""

    def expression(self, c: Context, node: ast.expr) -> Value: ...
    def condition(self, c: Context, node: ast.expr) -> tuple[Value, tuple[dict[str, Type], dict[str, Type]]]: ...
    def block(self, c: Context, statements: Sequence[ast.stmt]) -> Kinds: ...
    def assign(self, c: Context, target: ast.expr, value: Value, at: ast.AST) -> None: ...
    def call(
        self, c: Context, callee: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str = ""
    ) -> Value: ...
    def module_items(self, c: Context, value: Value) -> list[Value] | None: ...
    def object_keys(self, c: Context, value: Instance) -> list[Value] | None: ...
    def augmented(self, c: Context, node: ast.AugAssign, left: Value) -> Value: ...
    def key(self, c: Context, node: ast.expr) -> Any: ...
    def item(self, c: Context, owner: Value, key: Any, node: ast.AST) -> Value: ...
    def wrap(self, c: Context, value: Any, at: ast.AST) -> Value: ...
    def refining(self, c: Context, node: ast.expr) -> tuple[Value, tuple[dict[str, Type], dict[str, Type]]]: ...
    def special_call(self, c: Context, node: ast.Call) -> Value | None: ...
    def sizes(self, c: Context, callee: Value, nodes: list[ast.expr]) -> Value | None: ...
    def spread(self, c: Context, given: Value, callee: Value, is_alone: bool, node: ast.expr) -> list[Value] | None: ...


class Context:
    """The state of one compilation."""

    def __init__(
        self,
        parts: Parts,
        root: nn.Module | None,
        is_leaf: Callable[[nn.Module, str], bool],
        attributes: Attributes,
    ) -> None:
        self.parts = parts
        self.root = root
        self.is_leaf = is_leaf
        self.paths = {} if root is None else {id(module): path for path, module in root.named_modules()}
        self.attributes = attributes
        self.premises: dict[str, dict[str, Any]] = {}  # what is taken for granted of modules, by path
        self.made: dict[type, ast.AST] = {}  # classes of which the program makes objects, and where
        self._take_same()
        self.constant_attributes: dict[str, Any] = {}  # by their paths, those that are read as constants
        self.surroundings = Surroundings()
        self.problems: list[Problem] = []
        self.body = NestedGraph()
        self.frame: Frame
        self._closures: dict[int, Code] = {}
        self.constants: dict[str, Any] = {}
        self.calls_of: Counter[str] = Counter()
        self.classes: set[tuple[Node, type]] = set()  # that were checked of values
        self.declared: dict[str, Type] = {}  # the types of the parameters of the program
        self.checked: dict[str, Type] = {}  # parameters of the program whose type decided something
        self.named: tuple[ast.expr, str] | None = None  # the right side of an assignment, and the variable on its left

        self.holders: list[Any] = []  # functions whose variables are being noted
        self.ranges_around = 0  # how many loops over known ranges are being compiled
        self.before_list: Node | None = None  # where the list that a comprehension makes comes
        self.catching: list[tuple[type[BaseException], ...]] = []  # what the `try` statements around catch
        self.recursions = 0  # how many calls of functions inside themselves were compiled
        self.has_raised = False  # an expression that is known to raise what one of them catches has been compiled
        self.evaluated: tuple[ast.expr, Value] | None = None  # an expression whose value is known already

    @contextlib.contextmanager
    def writing(self, body: NestedGraph, names: dict[str, Value] | None = None) -> Iterator[None]:
        """While it is entered, nodes go to a body, where variables hold these values; then all is as it was."""
        frame, before = self.frame, (self.body, self.frame.names, self.frame.statement)
        self.body, frame.names = body, frame.names if names is None else names
        try:
            yield
        finally:
            self.body, frame.names, frame.statement = before

    def refine(self, refined: Mapping[str, Type]) -> None:
        """Note what has been found out of the types of variables."""
        for name, kind in refined.items():
            known = self.frame.names.get(name)
            if isinstance(known, Runtime):
                self.frame.names[name] = Runtime(known.node, kind)

    def changes_outside(self, value: Value, at: ast.AST) -> Bad:
        """Note that the program changes a container that it has not made."""
        held = value.value if isinstance(value, Const) else None
        kind = "default value" if held is None else f"{type(held).__name__} from outside of the program"
        what = f"this changes a {kind}, which lives on after a call"
        return self.problem(what, at, "keep it in a module: self.log = []")

    def premise(self, path: str) -> dict[str, Any]:
        """What is taken for granted of one module so far, by the kind of fact: see runtime/premises.py."""
        return self.premises.setdefault(path, {})

    def _take_same(self) -> None:
        """Take for granted that modules which are one stay so: each is called by its first path."""
        same: dict[str, str] = {}
        for path, module in self.root.named_modules() if self.root is not None else ():
            for name, child in module._modules.items():
                full = f"{path}.{name}" if path else name
                first = self.paths.get(id(child), full)  # what stands for a module has none
                if first != full:
                    same |= {first: first, full: first}
        if same:
            self.premise("")["same"] = same

    def take_items(self, module: nn.Module, table: str = "_modules") -> None:
        """Take for granted what a container of modules or parameters holds."""
        path = self.paths.get(id(module))
        if path is not None:
            self.premise(path).setdefault("holds", {})[table] = list(module.__dict__[table])

    def take_length(self, module: nn.Module) -> None:
        """Take for granted what a module holds, whose length or membership the program asks for."""
        table = "_modules" if module._modules or not module._parameters else "_parameters"
        self.take_items(module, table)
        path = self.paths.get(id(module))
        if path is not None:
            self.premise(path)["unused"] = list(module.__dict__[table])

    def take_code(self, module: nn.Module, path: str) -> None:
        """Take for granted the class and the hooks of an inner module whose code is compiled."""
        if path:
            take_code(self.premise(path), module)

    def take_there(self, ref: ModuleRef) -> None:
        """Take for granted that there is a module at a path, of which something is asked."""
        owner, _, name = ref.path.rpartition(".")
        if ref.path:
            self.premise(owner).setdefault("is_none", {})[name] = "module"

    def take_kind(self, ref: ModuleRef, kinds: Iterable[type]) -> None:
        """Take for granted of which of some classes a module is."""
        self.take_there(ref)
        owner, _, name = ref.path.rpartition(".")
        if ref.path:
            answers = self.premise(owner).setdefault("kinds", {}).setdefault(name, {})
            answers.update({name_of_class(kind): isinstance(ref.module, kind) for kind in kinds})

    def take_exact(self, ref: ModuleRef) -> None:
        """Take for granted of which class a module is and of no other."""
        owner, _, name = ref.path.rpartition(".")
        if ref.path:
            self.premise(owner).setdefault("exact", {})[name] = class_name(ref.module)

    def take_held(self, ref: ModuleRef, name: str) -> None:
        """Take for granted that a module has something under a name."""
        held = held_at(ref.module, name)
        if held is not None:
            self.premise(ref.path).setdefault("is_none", {})[name] = kind_held(held)

    def take_absent(self, owner: ModuleRef, name: str) -> None:
        """Take for granted that a module has no attribute of its own under a name; nor its class, if it has none."""
        facts = self.premise(owner.path)
        for fact in ("absent",) if hasattr(type(owner.module), name) else ("absent", "lacking"):
            if name not in facts.setdefault(fact, []):
                facts[fact].append(name)

    def take_class_of(self, ref: ModuleRef) -> None:
        """Take for granted of which class an inner module is, where something of its class is read."""
        if ref.path:
            self.premise(ref.path)["class"] = class_name(ref.module)

    def take_attribute(self, owner: ModuleRef, name: str, value: Any, at: ast.AST) -> None:
        """Take a plain attribute of a module, which the program does not write, for a constant: that is checked."""
        self.take_there(owner)
        self.attributes.fold(owner.module, name)
        path = self.path_of(owner, name)
        if not self.attributes.has_opaque and name in owner.module.__dict__:
            self.premise(owner.path).setdefault("values", {})[name] = spelled(value)
        elif not self.attributes.has_opaque and any(
            name in table for table in (owner.module._parameters, owner.module._buffers)
        ):
            self.premise(owner.path).setdefault("is_none", {})[name] = True
        else:
            self.take_constant(path, value, at, name)

    def take_constant(self, path: str, value: Any, at: ast.AST, name: str) -> None:
        """Have the program check that what a module holds at a path is what was taken for a constant."""
        if not self.attributes.has_opaque:
            self.constant_attributes[path] = value
        else:
            self.expect(f"the attribute {path!r}", self.make("get_attr", path, (), ANY, at, name=name), value, at)

    def check_constant(self, place: Place, value: Any, at: ast.AST) -> None:
        """Have the program check here that a module still holds what was taken for a constant."""
        what = ".".join(filter(None, (place.path, place.inner)))
        self.expect(f"the attribute {what!r}", self.read_held(place, ANY, at), value, at)

    def expect(self, what: str, now: Value, value: Any, at: ast.AST) -> None:
        """Have the program check that something is plain data that it was when it was compiled."""
        if value == value:
            self.function(expect_state, (self.frame.place(), (what, now, value)), NONE, at)

    def closure(self, definition: ast.FunctionDef | ast.Lambda) -> Closure:
        """Define a function inside the one that is compiled: its defaults are evaluated here."""
        args = definition.args
        places = [*args.posonlyargs, *args.args]
        pairs = [*zip(places[len(places) - len(args.defaults) :], args.defaults, strict=True)]
        pairs += [
            (arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is not None
        ]
        defaults = {arg.arg: self.held(self.parts.expression(self, value), value) for arg, value in pairs}
        return Closure(definition, self.frame, defaults)

    def code_of_closure(self, closure: Closure) -> Code:
        """The source of a function inside a function."""
        known = self._closures.get(id(closure.definition))
        if known is None:
            around = closure.frame.code
            name = getattr(closure.definition, "name", "<lambda>")
            known = Code(closure.definition, around.file, f"{around.qualname}.<locals>.{name}", around.outside)
            self._closures[id(closure.definition)] = known
        return known

    # ---- problems

    def problem(self, message: str, node: ast.AST, fix: str = "", raises: type[Exception] | None = None) -> Bad:
        """Note what is wrong with a piece of source; inside a `try` that catches what it `raises`, it does so."""
        if raises is not None and any(issubclass(raises, errors) for errors in self.catching):
            self.function(raise_error, (raises, message), NONE, node)
            self.has_raised = True
            return BAD
        frame = self.frame
        line = getattr(node, "lineno", frame.statement.lineno)
        source = frame.code.line(line)
        column, end = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", None)
        if getattr(node, "end_lineno", line) != line or end is None:
            end = len(source)
        as_text = source.encode()  # columns of the tree count bytes
        column, end = len(as_text[:column].decode(errors="ignore")), len(as_text[:end].decode(errors="ignore"))
        inside = tuple(dict.fromkeys([caller.place() for caller in frame.calls()[1:]]))
        found = Problem(message, os.path.basename(frame.code.file), line, source, column, end, fix, inside)
        if all(
            (found.message, found.file, found.line, found.column) != (p.message, p.file, p.line, p.column)
            for p in self.problems
        ):
            self.problems.append(found)
        return BAD

    def take_for_granted(
        self, value: Value, question: Callable[..., Any], args: Sequence[Any], answer: bool, at: ast.AST
    ) -> None:
        """Have the program check that an argument is of its type, which has answered a question about it.

        A number that is made of others is of the type that follows from theirs. What a condition has said of an
        argument is no more than that where it holds.
        """
        if isinstance(value, ModuleRef):
            self.take_there(value)
        if not isinstance(value, Runtime):
            return
        if _is_read(value.node):
            self.take_answer(question, args, answer, at)
        elif value.node.op != "placeholder" or not self.is_input(value.node):
            if value.node.op == "placeholder":  # which may be an item of what a loop goes over
                self.take_answer(question, args, answer, at)
            elif is_number(value.kind):
                numbers = {name: kind for name, kind in self.declared.items() if is_number(kind)}
                self.checked.update({name: kind for name, kind in numbers.items() if class_of(kind) is not None})
        else:
            declared = self.declared.get(str(value.node.target))
            if declared == value.kind and class_of(value.kind) is not None:
                self.checked[str(value.node.target)] = value.kind
            elif question is not operator.is_ or declared != OptionalType(value.kind):
                self.take_answer(question, args, answer, at)

    def take_class(self, value: Runtime, kind: type, at: ast.AST) -> None:
        """Have the program check that an object is of a class, none that inherits from it, whose code is compiled."""
        if self.is_input(value.node) and self.declared.get(str(value.node.target)) == ObjectType(kind):
            self.checked[str(value.node.target)] = ObjectType(kind)
            return
        node = self.body.lift(value.node)
        if (node, kind) not in self.classes:
            self.classes.add((node, kind))
            self.make("call_function", expect_kinds, (self.frame.place(),), NONE, at, {node.name: (value, kind)})

    def take_answer(self, question: Callable[..., Any], args: Sequence[Any], answer: bool, at: ast.AST) -> None:
        """Have the program check the answer to a question about an argument, which its declared type has given."""
        asked = self.function(question, args, BOOL, at)
        self.function(expect, (asked, answer, self.frame.place()), NONE, at)

    def is_input(self, node: Node) -> bool:
        """Tell whether a node is a parameter of the program."""
        body = self.body
        while body.outer is not None:
            body = body.outer
        return node.graph is body.graph

    # ---- expressions and nodes

    def take_name(self, node: ast.expr) -> str:
        """The variable that the source gives the value of an expression to, if that is its whole right side."""
        named, self.named = self.named, None
        return named[1] if named is not None and named[0] is node else ""

    def expression(self, node: ast.expr) -> Value:
        """Compile an expression."""
        return self.parts.expression(self, node)

    def make(
        self,
        op: str,
        target: Any,
        args: Sequence[Any],
        kind: Type,
        at: ast.AST,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        named: str = "",
    ) -> Runtime:
        """Write a node, its arguments being values or plain. `named` is the variable that the source gives it to."""
        arguments = tuple([self.argument(arg) for arg in args])
        keywords = {key: self.argument(arg) for key, arg in (kwargs or {}).items()}
        node = self.body.graph.create_node(op, target, arguments, keywords, named or name)
        node._origin = self.frame.origin(at, named)
        if kind is TENSOR:
            self._note_write(node, args, kwargs or {})
        return Runtime(node, kind)

    def maker(self, at: ast.AST) -> Make:
        """What writes the nodes of a region for a piece of source."""
        return lambda function, args, name: self.make("call_function", function, args, ANY, at, name=name or None).node

    def _note_write(self, node: Node, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Where an operation gives back what it writes to, read that through the operation from here on.

        Not where that may be a number after all, an argument of the program: `x += y` makes another one of that.
        """
        if written_and_given(node) is None:
            return
        value = kwargs.get("out") or kwargs.get("input") or args[0]
        if isinstance(value, Runtime) and value.kind is TENSOR:
            known = self.body.latest(value.node)
            is_operator = getattr(node._target, "__module__", "") == "_operator"
            if known._op.startswith("call") or not is_operator:
                self.body.written[known] = node

    def function(self, function: Any, args: Sequence[Any], kind: Type, at: ast.AST, named: str = "") -> Runtime:
        """Write the call of a function."""
        return self.make("call_function", function, args, kind, at, named=named)

    def argument(self, value: Any) -> Any:
        """What a value is among the arguments of a node in the body being written."""
        if isinstance(value, Runtime):
            return self.body.lift(self.body.latest(value.node))
        if isinstance(value, Instance) and value.place is not None:  # one that a module holds, as each copy of it does
            return self.argument(self.read_held(value.place, value.type, self.frame.statement))
        if isinstance(value, Const | Instance | Reference):
            return value.value
        if isinstance(value, Group) and value.held is not None:
            return self.argument(value.held)
        if isinstance(value, Group):
            items = [self.argument(item) for item in value.items]
            return tuple(items) if value.kind is None else value.kind._make(items)  # type: ignore[attr-defined]
        if isinstance(value, Display):
            if value.is_dict and any(not isinstance(key, Const | Reference) for key, _ in value.items):
                return self.argument(self.held(value, self.frame.statement))  # keys of a run are no part of a node
            if value.is_dict:
                return {self.argument(key): self.argument(item) for key, item in value.items}
            return [self.argument(item) for _, item in value.items]
        if isinstance(value, slice):
            return slice(self.argument(value.start), self.argument(value.stop), self.argument(value.step))
        if isinstance(value, tuple) and any(isinstance(item, Value | slice) for item in value):
            return tuple([self.argument(item) for item in value])
        if isinstance(value, Value):
            if not isinstance(value, Bad):
                what = "a module" if isinstance(value, ModuleRef) else "a function"
                self.problem(
                    f"{what} is used as a value, which a graph cannot hold", self.frame.statement, "call it here"
                )
            return None
        return self.body.lifted_in(value) if isinstance(value, Node | list | tuple | dict) else value

    def held(self, value: Value, at: ast.AST, named: str = "") -> Value:
        """A value that a variable may hold: a list or dict as it is written becomes one that is made."""
        if isinstance(value, Const) and type(value.value) in (list, dict, set) and not value.fixed:
            value = Runtime(
                self.make("call_function", type(value.value), (value.value,), value.kind, at).node, value.kind
            )
        if not isinstance(value, Display):
            return value
        if value.is_dict and any(not isinstance(key, Const) for key, _ in value.items):
            made = self.make("call_function", dict, (), value.type, at, named=named)
            for key, item in value.items:
                self.function(operator.setitem, (made, key, item), ANY, at)
            return made
        args: tuple[Any, ...] = (value,) if value.items else ()
        return self.make("call_function", dict if value.is_dict else list, args, value.type, at, named=named)

    def constant_tensor(self, value: Any, at: ast.AST) -> Runtime:
        """A tensor that the program holds outside of any module."""
        known = next((name for name, other in self.constants.items() if other is value), None)
        if known is None:
            known = f"_tensor_constant{len(self.constants)}"
            self.constants[known] = value
        return self.make("get_attr", known, (), TENSOR, at)

    def read_held(self, place: Place, kind: Type, at: ast.AST, named: str = "") -> Runtime:
        """Read what a module holds when the program runs."""
        names = [*itertools.takewhile(lambda step: step[0] == "attribute", place.steps)]
        path = ".".join(filter(None, (place.path, *[name for _, name in names])))
        rest = place.steps[len(names) :]
        made = self.make("get_attr", path, (), ANY if rest else kind, at, name=named or path.rpartition(".")[2])
        for i, (how, name) in enumerate(rest):
            function, is_last = operator.getitem if how == "item" else getattr, i == len(rest) - 1
            made = self.function(function, (made, name), kind if is_last else ANY, at, named if is_last else "")
        return made

    # ---- what nodes of a value are

    def path_of(self, ref: ModuleRef, name: str) -> str:
        """The dotted path of an attribute of a module."""
        return f"{ref.path}.{name}" if ref.path else name


def _is_read(node: Node) -> bool:
    """Tell whether a value is what something holds when the program runs, or a number made of such."""
    if node.op == "get_attr" or node.target in (operator.getitem, getattr):
        return True
    makes_number = getattr(node.target, "__module__", "") == "_operator"
    return makes_number and any(map(_is_read, node.all_input_nodes))
