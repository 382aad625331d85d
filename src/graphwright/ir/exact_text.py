"""A text form of graphs that reads back: the look of `str(graph)`, strings quoted and every value exact.

    graph():
        %x : [num_users=1] = placeholder[target='x'](args = (), kwargs = {})
        %add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})
        %output : [num_users=0] = output[target='output'](args = (%add,), kwargs = {})

`str(graph)` is for people: it writes the string `dim` and the name `dim` alike. This form is for files and tests.
Names, opcodes, targets, arguments and types are written; meta and origins are not.
"""

from __future__ import annotations

import ast
import importlib
import io
import math
import tokenize
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from graphwright.errors import GraphError
from graphwright.ir.graph import Graph
from graphwright.ir.node import Node
from graphwright.ir.text import qualified_name


class Spelling(Protocol):
    """How values without a literal are written: functions, classes, dtypes, devices.

    `ir` knows no torch; who writes graphs of tensors passes a spelling that does.
    """

    def name_of(self, value: Any) -> str | None:
        """Return the dotted name under which `value_of` finds this very value, or None."""

    def value_of(self, name: str) -> Any:
        """Return the value of this name. Raises LookupError where the spelling knows no such name."""

    def parts_of(self, value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """Return a function of known name and the arguments for which it gives an equal value, or None."""

    def may_call(self, function: Any) -> bool:
        """Tell whether reading a text may call this function: one that `parts_of` answers with."""


@dataclass(frozen=True)
class PlainSpelling:
    """Spells what the named modules hold, and slices, ranges, sets, complex numbers and tuples of other classes.

    >>> import operator
    >>> plain = PlainSpelling()
    >>> plain.name_of(operator.add), plain.name_of(len), plain.name_of(PlainSpelling)
    ('operator.add', 'builtins.len', None)
    """

    modules: tuple[str, ...] = ("builtins", "operator", "math", "typing", "collections", "heapq", "_heapq")

    def name_of(self, value: Any) -> str | None:
        """Return the name of a function or class that one of the modules, or a module inside it, holds."""
        try:
            name = qualified_name(value)
            return name if self.value_of(name) is value else None
        except (GraphError, LookupError):
            return None

    def value_of(self, name: str) -> Any:
        """Follow a dotted name from one of the modules. Raises LookupError where it leads nowhere."""
        root, *path = name.split(".")
        if root not in self.modules:
            raise LookupError(f"{name}: the spelling knows only {', '.join(self.modules)}")
        value: Any = importlib.import_module(root)
        for atom in path:
            if not hasattr(value, atom):
                raise LookupError(f"{name}: there is no {atom!r}")
            value = getattr(value, atom)
        return value

    def parts_of(self, value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """Take slices, ranges, sets, complex numbers, NamedTuples and other kinds of tuple apart."""
        kind = type(value)
        if kind in (slice, range):
            return kind, (value.start, value.stop, value.step)
        if kind in (set, frozenset):
            return kind, (sorted(value, key=repr),)
        if kind is complex:
            return kind, (value.real, value.imag)
        if isinstance(value, tuple) and kind is not tuple:
            return kind, tuple(value) if hasattr(kind, "_fields") else (tuple(value),)
        return None

    def may_call(self, function: Any) -> bool:
        """Tell whether this is one of the classes that `parts_of` answers with."""
        return function in (slice, range, set, frozenset, complex) or (
            issubclass(type(function), type) and issubclass(function, tuple)
        )


_PLAIN = PlainSpelling()


# ---- writing


def graph_to_text(graph: Graph, spelling: Spelling = _PLAIN) -> str:
    """Write a graph as text that `text_to_graph` reads back.

    Raises GraphError, naming the node, for a value that neither has a literal nor is known to the spelling.

    >>> graph = Graph()
    >>> _ = graph.output(graph.call_function(getattr, (graph.placeholder("x"), "shape")))
    >>> print(graph_to_text(graph))
    graph():
        %x : [num_users=1] = placeholder[target='x'](args = (), kwargs = {})
        %getattr_1 : [num_users=1] = call_function[target=builtins.getattr](args = (%x, 'shape'), kwargs = {})
        %output : [num_users=0] = output[target='output'](args = (%getattr_1,), kwargs = {})
    >>> text_to_graph(graph_to_text(graph)).lint()
    """
    return "\n".join(["graph():", *(_NodeWriter(node, spelling).line() for node in graph.nodes)])


class _NodeWriter:
    def __init__(self, node: Node, spelling: Spelling) -> None:
        self._node = node
        self._spelling = spelling

    def line(self) -> str:
        node = self._node
        kind = "" if node.type is None else f"{self.type(node.type)} "
        head = f"    %{node.name} : {kind}[num_users={len(node.users)}] = {node.op}[target={self.value(node.target)}]"
        return f"{head}(args = {self.value(node.args)}, kwargs = {self.value(node.kwargs)})"

    def value(self, value: Any) -> str:
        kind = type(value)
        if kind is Node:
            return f"%{value.name}"
        if value is ...:
            return "..."
        if value is None or kind in (bool, int, str, bytes, float):
            return repr(value)  # inf and nan included: the reader knows these names
        if kind is tuple:
            return f"({', '.join(map(self.value, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.value(key)}: {self.value(item)}" for key, item in value.items()) + "}"
        if kind is Graph:
            return f"graph({graph_to_text(value, self._spelling)!r})"
        name = self._spelling.name_of(value)
        if name is not None:
            return name
        parts = self._spelling.parts_of(value)
        if parts is None:
            self._refuse(value)
        function, args = parts
        return f"{self.value(function).removeprefix('builtins.')}({', '.join(map(self.value, args))})"

    def type(self, kind: Any) -> str:
        if kind is type(None):
            return "None"
        if isinstance(kind, str | list) or kind is None or kind is ...:
            return self.value(kind) if not isinstance(kind, list) else f"[{', '.join(map(self.type, kind))}]"
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Union or origin is types.UnionType:
            head = "typing.Union"
        elif getattr(kind, "__module__", "") == "typing" and getattr(kind, "_name", None):
            head = f"typing.{kind._name}"
            if not args and getattr(typing, kind._name) is kind:
                return head
        else:
            head = self.value(origin or kind).removeprefix("builtins.")
            if origin is None:
                return head
        return f"{head}[{', '.join(map(self.type, args)) or '()'}]"

    def _refuse(self, value: Any) -> NoReturn:
        raise GraphError(
            f"cannot write {value!r}, which {self._node.name!r} mentions: it has no literal, and the spelling "
            "does not know it",
            at=self._node.origin,
            fix="pass graph_to_text a spelling that does",
        )


# ---- reading

# What a value that is none can be in Python; an argument of a type that is none, a key that has no hash.
_MISREAD = (TypeError, ValueError, IndexError, AttributeError, SyntaxError, RecursionError, OverflowError)
_WORDS = {"None": None, "True": True, "False": False, "inf": math.inf, "nan": math.nan}


def text_to_graph(text: str, spelling: Spelling = _PLAIN, owning_module: Any = None) -> Graph:
    """Read a graph from the text that `graph_to_text` wrote.

    Numbers of users are not read but counted. Raises GraphError naming the line that cannot be read, or that breaks
    an invariant of graphs; no function is called but the constructors that the spelling allows.
    """
    lines = text.strip("\n").split("\n")
    if lines[0].strip() != "graph():":
        raise GraphError(f"expected 'graph():' in the first line, found {lines[0]!r}")
    graph = Graph(owning_module)
    nodes: dict[str, Node] = {}
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            place = f"line {number}: {line.strip()}"
            try:
                _NodeReader(line.strip(), place, nodes, spelling).read_into(graph)
            except _MISREAD as error:
                raise GraphError(f"this is no line of a graph: {error}", at=place) from error
    graph.lint()
    return graph


class _NodeReader:
    """Reads one line: a value of the grammar is what `_NodeWriter.value` writes."""

    def __init__(self, line: str, place: str, nodes: dict[str, Node], spelling: Spelling) -> None:
        self._place = place
        self._nodes = nodes
        self._spelling = spelling
        try:
            self._tokens = [
                token
                for token in tokenize.generate_tokens(io.StringIO(line).readline)
                if token.type not in (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER)
            ]
        except (tokenize.TokenError, SyntaxError) as error:
            self._fail(f"this is no line of a graph: {error}")
        self._at = 0

    def read_into(self, graph: Graph) -> None:
        self._expect("%")
        name = self._word()
        self._expect(":")
        kind = None if self._is_next("[") else self._type()
        for text in ("[", "num_users", "="):
            self._expect(text)
        self._next()
        for text in ("]", "="):
            self._expect(text)
        op = self._word()
        for text in ("[", "target", "="):
            self._expect(text)
        target = self._value()
        for text in ("]", "(", "args", "="):
            self._expect(text)
        args = self._value()
        for text in (",", "kwargs", "="):
            self._expect(text)
        kwargs = self._value()
        self._expect(")")
        if self._at != len(self._tokens):
            self._fail(f"did not expect {self._tokens[self._at].string!r}")
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            self._fail("args must be a tuple and kwargs a dict")
        if not all(isinstance(key, str) for key in kwargs):
            self._fail("the keys of kwargs must be strings")
        if name in self._nodes:
            self._fail(f"an earlier line makes %{name}")
        try:
            node = graph.create_node(op, target, args, kwargs, name, kind)
        except (GraphError, AssertionError) as error:
            self._fail(error.message if isinstance(error, GraphError) else str(error))
        if node.name != name:
            self._fail(f"{name!r} is not a legal name for a value")
        self._nodes[name] = node

    # ---- values

    def _value(self) -> Any:
        token = self._next()
        text = token.string
        if text == "%":
            name = self._word()
            if name not in self._nodes:
                self._fail(f"no line before this one makes %{name}")
            return self._nodes[name]
        if text == "-":
            number = self._value()
            return -number if isinstance(number, int | float) else self._fail("'-' stands before a number")
        if token.type in (tokenize.STRING, tokenize.NUMBER):
            try:
                return ast.literal_eval(text)
            except ValueError:
                self._fail(f"{text} is not a plain literal")
        if text == "...":
            return ...
        if text == "(":
            return tuple(self._items(")"))
        if text == "[":
            return self._items("]")
        if text == "{":
            return dict(self._items("}", self._pair))
        if token.type == tokenize.NAME:
            return _WORDS[text] if text in _WORDS else self._named(text)
        return self._fail(f"did not expect {text!r}")

    def _named(self, first: str) -> Any:
        """Read a dotted name, and the call of it where there is one; `graph('...')` is a body."""
        if first == "graph" and self._is_next("("):
            self._next()
            (text,) = self._items(")")
            return text_to_graph(text, self._spelling)
        name, value = self._find(first)
        if not self._is_next("("):
            return value
        self._next()
        args = self._items(")")
        if not self._spelling.may_call(value) or any(type(arg) is range for arg in args):  # whose items may be many
            self._fail(f"reading a graph does not call {value!r}" + " with a range" * self._spelling.may_call(value))
        try:
            return value(*args)
        except (TypeError, ValueError) as error:
            return self._fail(f"cannot make {name}{tuple(args)}: {error}")

    def _find(self, first: str) -> tuple[str, Any]:
        """Read the rest of a dotted name; return it with what it names. Without a dot it is a builtin."""
        name = first
        while self._is_next("."):
            self._next()
            name += f".{self._word()}"
        try:
            return name, self._spelling.value_of(name if "." in name else f"builtins.{name}")
        except LookupError as error:
            return self._fail(f"cannot find {error.args[0]}")

    def _items(self, end: str, read: Callable[[], Any] | None = None) -> list[Any]:
        items = []
        while not self._is_next(end):
            items.append((read or self._value)())
            if not self._is_next(end):
                self._expect(",")
        self._next()
        return items

    def _pair(self) -> tuple[Any, Any]:
        key = self._value()
        self._expect(":")
        return key, self._value()

    def _type(self) -> Any:
        if self._is_next("["):  # the arguments of a Callable
            self._next()
            return self._items("]", self._type)
        if self._tokens[self._at].type != tokenize.NAME or self._tokens[self._at].string in _WORDS:
            return self._value()
        _, kind = self._find(self._word())
        if self._is_next("[") and not self._is_next("num_users", 1):
            self._next()
            args = tuple(self._items("]", self._type))
            return kind[args[0] if len(args) == 1 else args]
        return kind

    # ---- tokens

    def _next(self) -> tokenize.TokenInfo:
        if self._at == len(self._tokens):
            self._fail("the line ends early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _is_next(self, text: str, ahead: int = 0) -> bool:
        at = self._at + ahead
        return at < len(self._tokens) and self._tokens[at].string == text

    def _word(self) -> str:
        token = self._next()
        if token.type != tokenize.NAME:
            self._fail(f"expected a name, found {token.string!r}")
        return token.string

    def _expect(self, text: str) -> None:
        found = self._next().string
        if found != text:
            self._fail(f"expected {text!r}, found {found!r}")

    def _fail(self, message: str) -> NoReturn:
        raise GraphError(message, at=self._place)
