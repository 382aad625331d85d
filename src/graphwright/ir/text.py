"""The text form of nodes and graphs, and the names of functions in it."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Callable, Iterable
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any

from graphwright.errors import GraphError
from graphwright.ir.graph import Graph
from graphwright.ir.names import source_of
from graphwright.ir.node import Node, bodies_of

# Modules and classes to search for functions that do not say where they live (`torch.relu.__module__` is None).
# Filled by whoever knows them: the ir knows no torch.
_HOMES: list[ModuleType | type] = []
_FOUND: dict[int, tuple[Any, str]] = {}  # id -> (function, qualified name), for functions found in a home


def register_home(home: ModuleType | type) -> None:
    """Search this module or class, too, for functions that do not say where they live."""
    _HOMES.append(home)


def qualified_name(function: Any) -> str:
    """Write where a function is found: `torch.nn.functional.relu`, `operator.add`, `builtins.len`.

    Raises GraphError for a function that no module holds under its own name.

    >>> import operator
    >>> qualified_name(operator.add), qualified_name(len)
    ('operator.add', 'builtins.len')
    """
    source = source_of(function)
    name: str = getattr(source, "__name__", "")
    if getattr(builtins, name, None) is function:
        return f"builtins.{name}"
    if type(function) is MethodType and isinstance(function.__self__, type):  # of a class: MyFunction.apply
        return f"{qualified_name(function.__self__)}.{name}"
    module: str | None = getattr(source, "__module__", None)
    if module is None and type(function) is BuiltinMethodType:  # of an object that a module holds: `random.random`
        holder = type(function.__self__).__module__
        module = holder if getattr(sys.modules.get(holder), name, None) is function else None
    home = sys.modules.get(module) if module else None
    if home is None or getattr(home, name, None) is not function:
        found = _search_homes(function, name)
        if found is not None:
            return found
        owner = getattr(function, "__objclass__", None)  # a method written in C: `str.upper`
        if owner is not None:
            return f"{qualified_name(owner)}.{name}"
        if isinstance(getattr(function, "__self__", None), type):  # of a class, written in C
            return f"{qualified_name(function.__self__)}.{name}"
    if not name:
        raise GraphError(f"cannot name {function!r}: it has no __name__", fix="wrap it in a module-level function")
    if module is None:
        raise GraphError(f"cannot find out where {function!r} lives", fix="give it a __module__, or wrap it")
    return f"{_public(module)}.{name}"


def _public(module: str) -> str:
    if module == "_operator":
        return "operator"
    if module.startswith("torch._ops."):
        return "torch.ops." + module.removeprefix("torch._ops.")
    return module


def _search_homes(function: Any, name: str) -> str | None:
    found = _FOUND.get(id(function))
    if found is not None and found[0] is function:
        return found[1]
    for home in _HOMES:
        if getattr(home, name, None) is function:
            path = f"{_type_text(home) if isinstance(home, type) else home.__name__}.{name}"
            _FOUND[id(function)] = function, path
            return path
    return None


def target_text(node: Node) -> str:
    """A node's target as the text form shows it."""
    target = node._target
    if isinstance(target, str):
        return target
    try:
        return qualified_name(target)
    except GraphError:
        return repr(target)


def _type_text(kind: Any) -> str:
    if issubclass(type(kind), type):  # `list[int]` says that it is one before Python 3.11
        return kind.__name__ if kind.__module__ == "builtins" else f"{_type_module(kind)}.{kind.__qualname__}"
    return _on_its_line(str(kind))


def _on_its_line(text: str) -> str:
    """A text without what ends a line or controls a terminal: as Python escapes it."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _type_module(kind: type) -> str:
    """`torch.Tensor` rather than `torch._tensor.Tensor`, where the short way leads to the same class."""
    short = kind.__module__.partition("._")[0]
    return short if getattr(sys.modules.get(short), kind.__name__, None) is kind else kind.__module__


def type_text(kind: Any) -> str:
    """Write a type annotation as the text form shows it.

    >>> type_text(int), type_text(...), type_text("Later")
    ('int', '...', "'Later'")
    """
    if kind is ...:
        return "..."
    if isinstance(kind, str):
        return repr(kind)
    return kind.__name__ if isinstance(kind, FunctionType) else _type_text(kind)


def short_name(function: Any) -> str:
    """`qualified_name`, with builtins by their bare name and operators by the module that implements them."""
    path = qualified_name(function)
    if path.startswith("operator."):
        return f"_{path}"
    return path.removeprefix("builtins.")


def argument_text(arg: Any, max_list_len: float = float("inf")) -> str:
    """Write an argument as the text form shows it, texts as they are; of a longer list or tuple the first items."""
    if isinstance(arg, (list, tuple)) and len(arg) > max_list_len:
        shown = ", ".join(_argument_text(item, str) for item in arg[: int(max_list_len)])
        left, right = "[]" if isinstance(arg, list) else "()"
        return f"{left}{shown}, ...[total_len={len(arg)}]{right}"
    return _argument_text(arg, str)


def _argument_text(value: Any, text: Callable[[str], str] = _on_its_line) -> str:
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, dict):
        items = [f"{_argument_text(key, text)}: {_argument_text(item, text)}" for key, item in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([_argument_text(item, text) for item in value]) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join([_argument_text(item, text) for item in value]) + (",)" if len(value) == 1 else ")")
    if isinstance(value, str):
        return text(value)
    shown = getattr(type(value), "_custom_fx_repr_fn", None)  # torch.fx's name for how a class wants to be shown
    return str(value) if shown is None else str(shown(value))


def format_node(
    node: Node,
    placeholder_names: list[str] | None = None,
    maybe_return_typename: list[str] | None = None,
    note: str = "",
) -> str | None:
    """Write one node as a line: name, type, number of users, opcode, target and arguments.

    Where lists are given, inputs are not written but added to `placeholder_names`, and the type of the output is
    put into `maybe_return_typename`. `note` is what is known of a computed value, to be written instead of its type.
    """
    if node._op == "placeholder" and placeholder_names:
        annotation = f": {_type_text(node.type)}" if node.type is not None else ""
        placeholder_names.append(f"{node._target}{annotation}")
        return None
    if node._op == "output" and maybe_return_typename and node.type is not None:
        maybe_return_typename[0] = f" -> {_type_text(node.type)}"
    if node._op == "output":
        return f"return {_on_its_line(str(node._args[0]))}" if node._args else "return None"
    kind = f"{_type_text(node.type)} " if node.type is not None else ""
    head = f"%{node.name} : {kind}[num_users={len(node.users)}] = {node._op}[target={target_text(node)}]"
    if node._op == "placeholder":
        return f"{head}(default={_on_its_line(str(node._args[0]))})" if node._args else head
    if node._op == "get_attr":
        return head
    if note:
        head = head.replace(f"%{node.name} : {kind}", f"%{node.name} : {note}", 1)
    args = node._args if not bodies_of(node) else tuple([_Label(label) for label in _labels(node)])
    return f"{head}(args = {_argument_text(args)}, kwargs = {_argument_text(node._kwargs)})"


class _Label(str):
    """What stands for an argument in the line of a node."""

    __slots__ = ()


def _labels(node: Node) -> list[str]:
    """The arguments of a branch or loop as text, each body by the name of its parameter."""
    bodies = bodies_of(node)
    parameters = inspect.signature(node._target).parameters  # type: ignore[arg-type]
    names = [*parameters, *map(str, range(len(parameters), len(node._args)))]
    return [f"<{name}>" if arg in bodies else _argument_text(arg) for name, arg in zip(names, node._args, strict=False)]


def format_graph(graph: Graph) -> str:
    """Write a graph as text, one node a line."""
    return "\n".join(["graph():", *_lines(graph, "    ")])


def _lines(graph: Graph, indent: str) -> list[str]:
    """The line of each node, followed by the bodies that it holds."""
    lines = []
    for node in graph.nodes:
        lines.append(f"{indent}{format_node(node)}")
        bodies = bodies_of(node)
        if bodies:
            labels = [label for label in _labels(node) if label.startswith("<")]
            for label, body in zip(labels, bodies, strict=True):
                lines += [f"{indent}    {label}:", *_lines(body, indent + " " * 8)]
    return lines


def format_table(graph: Graph, nodes: list[Node] | None = None) -> str:
    """Write nodes as a table with the columns opcode, name, target, args, kwargs; bodies follow what holds them."""
    header = ("opcode", "name", "target", "args", "kwargs")
    rows = _rows(graph.nodes if nodes is None else nodes, "")
    least = [len(title) + 2 for title in header]  # as the package tabulate has it, which torch.fx uses
    widths = [max(width, *map(len, column)) for width, column in zip(least, zip(*rows, strict=True), strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _rows(nodes: Iterable[Node], indent: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for node in nodes:
        bodies = bodies_of(node)
        labels = _labels(node) if bodies else []
        args = _argument_text(tuple([_Label(label) for label in labels])) if bodies else str(node._args)
        rows.append((f"{indent}{node._op}", node.name, str(node._target), args, str(node._kwargs)))
        for label, body in zip([label for label in labels if label.startswith("<")], bodies, strict=True):
            rows += [(f"{indent}  {label}", "", "", "", ""), *_rows(body.nodes, f"{indent}    ")]
    return rows
