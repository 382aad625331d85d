"""A graph as the text of one function, a statement a node: torch.fx's form.

    def forward(self, x):
        param = self.param
        add = x + param;  x = param = None
        return add

Each value is freed on the line of its last use.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import math
import operator
import types
import unicodedata
from collections.abc import Sequence
from typing import Any

import torch

from graphwright.codegen.python_code import PythonCode
from graphwright.codegen.regions import region_exits
from graphwright.codegen.spelling.arguments import Globals, annotation, argument
from graphwright.codegen.spelling.operators import (
    ATOM,
    BINARY,
    COMPARISON,
    INPLACE,
    POWER,
    PRIMARY,
    STATEMENTS,
    UNARY,
    UNARY_OPERATORS,
)
from graphwright.errors import GraphError
from graphwright.ir import ATOMS, Graph, Node, nodes_in
from graphwright.ops import owner_of, read_variable, write_attribute, write_variable

_PLAIN = frozenset({int, bool, str, type(None)})  # written by repr
_KEEPING = frozenset({"placeholder", "output"})  # free nothing
_NUMBERS = frozenset({int, float})
_KEYWORDS = frozenset(keyword.kwlist)
_WITHOUT_NAME = (operator.setitem, write_attribute, write_variable)


def graph_to_source(graph: Graph, root: str = "self", name: str = "forward") -> PythonCode:
    """Write a graph as the source of a function whose first parameter is the module, called `root`."""
    writer = Writer(graph, root)
    body: list[str] = []
    statements: list[Node | None] = []
    free = last_uses(writer.nodes)
    statement = _Statements(writer).write
    exits = region_exits(writer.nodes)
    closing = {exit_node: enter for enter, exit_node in exits.items()}
    indent = "    "
    for node in writer.nodes:
        op = node._op
        if op == "placeholder":
            text = writer.bind_parameter(node)
            if not text:
                continue
        elif exits and node in exits:
            body.append(f"{indent}with {writer.function_call(node._args[0], node._args[1:], node._kwargs)[0]}:\n")
            statements.append(node)
            indent += "    "
            continue
        elif exits and node in closing:
            if statements[-1] is closing[node]:  # nothing inside
                body.append(f"{indent}pass\n")
                statements.append(node)
            indent = indent[:-4]
            continue
        elif op == "output":
            body.append(f"    return {writer.value(node._args[0]) if node._args else None}")
            statements.append(node)
            break
        else:
            text = statement(node)
        dead = free.get(node)
        if dead is None:
            body.append(f"{indent}{text}\n")
        elif len(dead) == 1:
            body.append(f"{indent}{text};  {dead[0]._name} = None\n")
        else:
            body.append(f"{indent}{text};  {' = '.join([used._name for used in dead])} = None\n")  # type: ignore[misc]
        statements.append(node)
    header = writer.header(name)
    src = f"{header}{''.join(body) or '    pass'}\n    "
    return PythonCode(src, writer.names.values, _prologue_start=4, first=5, statements=statements, nodes=writer.nodes)


def last_uses(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """Map each node to the values that nothing needs after it, itself included where nothing ever reads it.

    Inputs and outputs free nothing of their own; what the output returns is not freed.
    """
    seen: set[Node] = set()
    see = seen.add
    free: dict[Node, list[Node]] = {}
    for node in reversed(nodes):
        dead = []
        for used in node._args:
            if type(used) is Node:
                if used not in seen:
                    see(used)
                    dead.append(used)
            elif type(used) not in ATOMS:
                for inner in nodes_in(used):
                    if inner not in seen:
                        see(inner)
                        dead.append(inner)
        if node._kwargs:
            for inner in nodes_in(node._kwargs):
                if inner not in seen:
                    see(inner)
                    dead.append(inner)
        if not node.users and not any(node._target is each for each in _WITHOUT_NAME):
            dead.append(node)
        if dead and node._op not in _KEEPING:
            free[node] = dead
    return free


class Writer:
    """Writes the nodes of one graph as expressions and statements."""

    equals = " = "  # between a keyword argument and its value
    colon = " : "  # between a name and its type

    def __init__(self, graph: Graph, root: str, short: bool = False) -> None:
        self.graph = graph
        self.root = root
        self.parameters: list[tuple[Node, str]] = []
        self.returns = ""
        graph._make_names()
        self.nodes = graph.nodes.now()
        taken: list[str] = [node._name for node in self.nodes]  # type: ignore[misc]
        self.renamed = [node for node in self.nodes if node._op == "placeholder" and node._name != _parameter(node)]
        taken += [_parameter(node) for node in self.renamed]
        while self.root in taken:  # a parameter or value of the program has the module's name
            self.root += "_"
        self.names = Globals([*taken, self.root], short)
        for name, value in (
            ("inf", math.inf),
            ("nan", math.nan),
            ("NoneType", type(None)),
            ("torch", torch),
            ("device", torch.device),
        ):
            self.names.add(name, value)
        self.getattr = self.names.builtin("getattr")

    # ---- the signature

    def bind_parameter(self, node: Node) -> str:
        """Note a placeholder as a parameter; answer with the assignment that renames it, if one is needed."""
        raw: str = node._target  # type: ignore[assignment]
        text = raw
        text += self.parameter_annotation(node)
        if node._args:
            text += f"{' = ' if node.type is not None else self.equals}{self.value(node._args[0])}"
        self.parameters.append((node, text))
        if node not in self.renamed:
            return ""
        parameters = [_parameter(other) for other in self.renamed]
        if all(other.name not in parameters for other in self.renamed):
            return f"{node.name} = {_parameter(node)}"
        if node is not self.renamed[-1]:  # `x = X` must not hide `x` before `x_1 = x` reads it: all at once
            return ""
        return f"{', '.join(other.name for other in self.renamed)} = {', '.join(parameters)}"

    def parameter_annotation(self, node: Node) -> str:
        """Write what stands behind the name of a parameter: its type, or nothing."""
        return "" if node.type is None else f"{self.colon}{annotation(node.type, self.names)}"

    def header(self, name: str) -> str:
        """Write the `def` line. Keyword-only parameters are marked by a bare `*`, as in the original signature."""
        return f"\n\n\ndef {name}({', '.join([self.root, *self.parameter_list()])}){self.returned_annotation()}:\n"

    def returned_annotation(self) -> str:
        """Write ` -> ` and the annotation of the output, or nothing."""
        output = next((node for node in reversed(self.nodes) if node._op == "output"), None)
        return f" -> {annotation(output.type, self.names)}" if output is not None and output.type is not None else ""

    def parameter_list(self) -> list[str]:
        """Write the parameters, the module left out."""
        plain: list[str] = []
        keyword_only: list[str] = []
        positional_only = 0
        var_positional = var_keyword = ""
        has_default = False
        for node, text in self.parameters:
            kind = node._meta.get("parameter_kind") if node._meta else None
            target = str(node._target)
            if target.startswith("**"):
                var_keyword = text
            elif target.startswith("*"):
                var_positional = text
            elif kind is inspect.Parameter.KEYWORD_ONLY or var_positional:
                keyword_only.append(text)
            else:
                if has_default and not node._args:
                    raise GraphError(
                        f"parameter {node._target!r} has no default but comes after one that has",
                        at=node.origin,
                        fix="give it a default, or move its placeholder before those with defaults",
                    )
                has_default = bool(node._args)
                plain.append(text)
                if kind is inspect.Parameter.POSITIONAL_ONLY:
                    positional_only = len(plain)
        if positional_only:
            plain.insert(positional_only, "/")
        if var_positional or keyword_only:
            plain.append(var_positional or "*")
        return [text for text in (*plain, *keyword_only, var_keyword) if text]

    # ---- statements

    def statement(self, node: Node) -> str:
        """Write the statement that computes a node, without what frees values after it."""
        if node._op == "call_module":
            return self.assignment(node)
        target = node._target
        if target is write_attribute or target is write_variable:
            text = self.write(node) if target is write_attribute else self.write_outside(node)
            return f"{text};  {self.name(node)} = None" if node.users else text
        is_statement = False
        if node._op == "call_function" and not node._kwargs:
            try:
                is_statement = target in STATEMENTS
            except TypeError:  # a callable object that has no hash
                is_statement = False
        if is_statement and target is operator.setitem and len(node._args) == 3:
            text = self.item_assignment(node)
            return f"{text};  {self.name(node)} = None" if node.users else text
        if is_statement and target is not operator.setitem and len(node._args) == 2:
            return self.change(node)
        return f"{self.declared(node)} = {self.expression(node)[0]}"  # `assignment`, without a call

    def assignment(self, node: Node) -> str:
        """Write that a variable gets a node's value."""
        return f"{self.declared(node)} = {self.expression(node)[0]}"

    def item_assignment(self, node: Node) -> str:
        """Write that an item of a container gets a value."""
        container, key, value = node._args
        return f"{self.operand(container, PRIMARY)}[{self.key(key)}] = {self.value(value)}"

    def change(self, node: Node) -> str:
        """Write an operator that works in place, and the variable of its value."""
        left, right = node._args
        symbol = INPLACE[node._target]  # type: ignore[index]
        # The name first: the variable on the left of `+=` is rebound, and others may still read it.
        if not node.users and type(left) is Node:  # only the write counts
            text = self.value(left)
            return f"{text} {symbol} {self.value(right)};  {self.name(node)} = {text}"
        return f"{self.noted(node)} = {self.value(left)};  {self.name(node)} {symbol} {self.value(right)}"

    def declared(self, node: Node) -> str:
        """Write the variable that gets a node's value, with its type where the program says that."""
        return node._name if node.type is None else self.annotated(node)  # type: ignore[return-value]

    def annotated(self, node: Node) -> str:
        """Write the variable that gets a node's value, with the type that the program says."""
        return f"{self.name(node)}{self.colon}{annotation(node.type, self.names)}"

    def noted(self, node: Node) -> str:
        """Write the variable that gets a node's value, with what is known of it where that is shown."""
        return self.name(node)

    def name(self, node: Node) -> str:
        """The variable that holds a node's value."""
        return node._name  # type: ignore[return-value]

    def write(self, node: Node) -> str:
        """Write the statement that assigns an attribute."""
        path, value = node._args
        module, _, name = str(path).rpartition(".")
        owner = self.path(module) if module else self.root
        if is_plain_name(name):
            return f"{owner}.{name} = {self.value(value)}"
        return f"{self.names.builtin('setattr')}({owner}, {name!r}, {self.value(value)})"

    def write_outside(self, node: Node) -> str:
        """Write the statement that assigns a variable outside of all modules."""
        owner, name, value = node._args
        return f"{self.outside(owner, str(name))} = {self.value(value)}"

    def outside(self, owner: Any, name: str) -> str:
        """Write a variable outside of all modules: `train.STEP`, `Model.calls`."""
        held = owner_of(owner)
        if isinstance(held, type):
            return attribute(self.names.function(held), name, self.getattr)
        wish = "variable" if isinstance(held, types.CellType) else str(getattr(held, "__name__", "names")).strip("_")
        wish = wish.rpartition(".")[2] if self.names.is_short else wish.replace(".", "_")
        return f"{self.names.add(wish, held)}.{name}"

    # ---- expressions

    def value(self, arg: Any) -> str:
        """Write an argument where any expression may stand."""
        kind = type(arg)
        if kind is Node:
            return arg._name  # type: ignore[no-any-return]
        if kind in _PLAIN or (kind is float and arg - arg == 0):
            return repr(arg)
        return argument(arg, self.names, self.node)[0]

    def operand(self, arg: Any, strength: int) -> str:
        """Write an argument as an operand, in parentheses where it binds less tightly than its place."""
        kind = type(arg)
        if kind is Node:
            return arg._name  # type: ignore[no-any-return]
        return self.literal_operand(arg, kind, strength)

    def literal_operand(self, arg: Any, kind: type, strength: int) -> str:
        """Write an operand that is no node."""
        if kind is int and arg >= 0 and strength != PRIMARY:
            return str(arg)
        text, binds = argument(arg, self.names, self.node)
        if strength == PRIMARY and kind in (int, float):
            binds = 0  # `3.foo` and `3.0.foo` need parentheses though they are atoms
        return text if binds >= strength else f"({text})"

    def node(self, node: Node) -> tuple[str, int]:
        """Write a use of a node."""
        return node.name, ATOM

    def expression(self, node: Node) -> tuple[str, int]:
        """Write what a node computes, and say how tightly the text binds."""
        op, args, kwargs = node._op, node._args, node._kwargs
        if op == "call_function":
            return self.function_call(node._target, args, kwargs)
        if op == "call_method":
            if not args:
                raise GraphError(f"{node.name!r} calls the method {node._target!r} of nothing", at=node.origin)
            method = attribute(self.operand(args[0], PRIMARY), node._target, self.getattr)  # type: ignore[arg-type]
            return f"{method}({self.call(args[1:], kwargs)})", PRIMARY
        if op == "call_module":
            return f"{self.callee(node._target)}({self.call(args, kwargs)})", PRIMARY  # type: ignore[arg-type]
        if op == "get_attr":
            return self.read(node._target), PRIMARY  # type: ignore[arg-type]
        raise GraphError(f"cannot write {node.format_node()}", at=node.origin)  # type: ignore[attr-defined]

    def call(self, args: Any, kwargs: Any) -> str:
        """Write the arguments of a call."""
        texts = []
        for arg in args:
            kind = type(arg)
            if kind is Node:
                texts.append(arg._name)
            elif kind in _PLAIN:
                texts.append(repr(arg))
            else:
                texts.append(self.value(arg))
        if kwargs:
            self.keywords(kwargs, texts)
        return ", ".join(texts)

    def keywords(self, kwargs: Any, texts: list[str]) -> None:
        """Write keyword arguments, adding to the texts of the positional ones."""
        odd: dict[str, Any] = {}  # keywords that are no names: only `**{...}` passes them
        for key, arg in kwargs.items():
            if not is_plain_name(key):
                odd[key] = arg
                continue
            if odd:
                texts.append(f"**{self.value(odd)}")
                odd = {}
            texts.append(f"{key}{self.equals}{self.value(arg)}")
        if odd:
            texts.append(f"**{self.value(odd)}")

    def function_call(self, target: Any, args: Any, kwargs: Any) -> tuple[str, int]:
        """Write a call of a function, as the operator that it is where it is one."""
        if not kwargs and type(target).__hash__ is not None:
            count = len(args)
            if count == 2:
                binary = BINARY.get(target)
                if binary is not None:
                    return self.binary(binary, *args)
                if target is operator.getitem:
                    return f"{self.operand(args[0], PRIMARY)}[{self.key(args[1])}]", PRIMARY
                if target is operator.contains:
                    return (
                        f"{self.operand(args[1], COMPARISON + 1)} in {self.operand(args[0], COMPARISON + 1)}",
                        COMPARISON,
                    )
                if target is read_variable:
                    return self.outside(*args), PRIMARY
                if target is getattr and isinstance(args[1], str) and is_plain_name(args[1]):
                    return f"{self.operand(args[0], PRIMARY)}.{args[1]}", PRIMARY
            elif count == 1:
                unary = UNARY_OPERATORS.get(target)
                if unary is not None:
                    return f"{unary}{self.operand(args[0], UNARY)}", UNARY
        return f"{self.names.function(target)}({self.call(args, kwargs)})", PRIMARY

    def binary(self, spelling: tuple[str, int], left: Any, right: Any) -> tuple[str, int]:
        """Write an operator between its operands with the parentheses that Python's grammar asks for."""
        symbol, strength = spelling
        if symbol == "**":
            return f"{self.operand(left, PRIMARY + (type(left) in _NUMBERS))} ** {self.operand(right, UNARY)}", POWER
        left_needs = strength + 1 if strength == COMPARISON else strength  # `a < b < c` would chain
        return f"{self.operand(left, left_needs)} {symbol} {self.operand(right, strength + 1)}", strength

    def key(self, key: Any) -> str:
        """Write what stands between the brackets of a subscript."""
        return self.value(key)

    def read(self, target: str) -> str:
        """Write the attribute that is read."""
        return self.path(target)

    def callee(self, target: str) -> str:
        """Write the module that is called."""
        return self.path(target)

    def path(self, target: str) -> str:
        """Write a dotted path from the root; atoms that are no identifiers go through getattr."""
        return _dotted(self.root, target, self.getattr)


class _Statements:
    """`Writer.statement` in one call where a node is of a common form: the same text."""

    __slots__ = ("_starts", "_writer")

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._starts: dict[int, str] = {}  # id of a target -> how its call starts, or ` + `; "" for other forms

    def write(self, node: Node) -> str:
        """Write the statement that computes a node, without what frees values after it."""
        op, args, writer = node._op, node._args, self._writer
        if node._kwargs or node.type is not None:
            return writer.statement(node)
        if op == "call_function":
            target: Any = node._target
            start = self._starts.get(id(target))
            if start is None:
                start = self._starts[id(target)] = self._start(target)
            if not start:
                return writer.statement(node)
            if start[0] == " ":
                left, right = args if len(args) == 2 else (None, None)
                if type(left) is not Node:
                    return writer.statement(node)
                if type(right) is Node:
                    return f"{node._name} = {left._name}{start}{right._name}"
                if (type(right) is float and 0 < right < math.inf) or (type(right) is int and right >= 0):
                    return f"{node._name} = {left._name}{start}{right!r}"
                return writer.statement(node)
        elif op == "call_module":
            start = f"{writer.path(node._target)}("  # type: ignore[arg-type]
        elif op == "call_method" and args and type(args[0]) is Node and is_plain_name(node._target):
            start = f"{args[0]._name}.{node._target}("
            args = args[1:]
        else:
            return writer.statement(node)
        if len(args) == 1 and type(args[0]) is Node:
            return f"{node._name} = {start}{args[0]._name})"
        return f"{node._name} = {start}{writer.call(args, None)})"

    def _start(self, target: Any) -> str:
        """How a call of a function starts where nothing about it is special."""
        if type(target).__hash__ is None:
            return ""
        symbol, _ = BINARY.get(target, ("", 0))
        if symbol or target in _SPECIAL or target in UNARY_OPERATORS:
            return "" if symbol in ("", "**") else f" {symbol} "
        return f"{self._writer.names.function(target)}("


# What is written in a way of its own, at least with some arguments.
_SPECIAL = frozenset({*STATEMENTS, *_WITHOUT_NAME, operator.getitem, operator.contains, read_variable, getattr})


def _parameter(placeholder: Node) -> str:
    """The name of the parameter that a placeholder stands for, without its stars."""
    return str(placeholder._target).lstrip("*")


@functools.lru_cache(65536)
def is_plain_name(atom: str) -> bool:
    """Tell whether source may say `.atom` and `atom=`: Python reads it as this name, inside a class body, too."""
    is_mangled = atom.startswith("__") and not atom.endswith("__")
    is_changed = not atom.isascii() and unicodedata.normalize("NFKC", atom) != atom
    return atom.isidentifier() and atom not in _KEYWORDS and not is_mangled and not is_changed


def attribute(owner: str, atom: str, getter: str = "getattr") -> str:
    """Write the read of an attribute, by getattr where its name is none that may stand after a dot."""
    if is_plain_name(atom):
        return f"{owner}.{atom}"
    return f"{getter}({owner}, {quoted(atom)})"


def quoted(atom: str) -> str:
    """Write a name as a text, in double quotes where they need nothing else."""
    is_simple = atom.isprintable() and '"' not in atom and "\\" not in atom
    return f'"{atom}"' if is_simple else repr(atom)


@functools.lru_cache(65536)
def _dotted(root: str, target: str, getter: str) -> str:
    text = root
    for atom in target.split("."):
        text = attribute(text, atom, getter)
    return text
