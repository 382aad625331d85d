"""The global names of generated code as import statements."""

from __future__ import annotations

import ast
import builtins
import math
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from graphwright.errors import ExportError
from graphwright.ir import Graph, Node, map_aggregate
from graphwright.runtime.packaging.classes import Stub, StubError, Written
from graphwright.runtime.packaging.modules import WIDTH
from graphwright.runtime.references import Reference, describe, reference_to, why_unimportable


def used_names(source: str) -> tuple[set[str], set[str]]:
    """Return the names that Python source reads, and those among them that only annotations read."""
    tree = ast.parse(source)
    annotations = {id(name) for node in ast.walk(tree) for part in _annotations(node) for name in ast.walk(part)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    elsewhere = {name.id for name in names if id(name) not in annotations}
    return {name.id for name in names}, {name.id for name in names} - elsewhere


def _annotations(node: ast.AST) -> Iterable[ast.expr]:
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield node.annotation
    if isinstance(node, ast.FunctionDef) and node.returns is not None:
        yield node.returns


def renamed(source: str, names: Mapping[str, str]) -> str:
    """Rename global names in Python source, leaving attributes, keywords, strings and comments alone.

    >>> renamed("y = f(x, f=x.f)", {"f": "g"})
    'y = g(x, f=x.f)'
    """
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name) and node.id in names]
    for node in sorted(found, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + names[node.id].encode() + line[node.end_col_offset :]
    return b"".join(lines).decode()


def import_statements(values: Mapping[str, Any], source: str, graphs: Iterable[Graph], local: Mapping[int, str]) -> str:
    """Write the statements that give the names read by `source` their values.

    `local` says, by id, which functions the package has a file of its own for. Raises ExportError for a value that
    no import statement reaches, naming the node that uses it.

    >>> import operator
    >>> print(import_statements({"operator": operator, "Any": typing.Any}, "x: Any = operator.neg(1)", (), {}))
    import operator
    from typing import Any
    """
    used, annotations = used_names(source)
    modules: set[str] = set()
    found: dict[str, set[str]] = {}  # module -> what is imported from it
    definitions: list[str] = []
    for name, value in values.items():
        if name not in used or _is_defined_here(value) or getattr(builtins, name, None) is value:
            continue
        if id(value) in local:
            found.setdefault(f".{local[id(value)]}", set()).add(_as(value.__name__, name))
            continue
        reference = _constant(value) or reference_to(value)
        if reference is not None:
            module, imported, definition = _import(name, reference)
            if imported:
                found.setdefault(module, set()).add(imported)
            else:
                modules.add(module)
            definitions += [definition] if definition else []
        elif name in annotations:
            modules.add("typing")
            definitions.append(_annotation(name, value, modules))
        else:
            raise _unimportable(value, graphs)
    return "\n\n".join([*_blocks(modules, found), *(["\n".join(definitions)] if definitions else [])])


def _is_defined_here(value: Any) -> bool:
    return isinstance(value, Written) or (issubclass(type(value), type) and issubclass(value, Stub | StubError))


def _blocks(modules: Iterable[str], found: Mapping[str, Iterable[str]]) -> list[str]:
    """Write imports in the usual order: Python's own, those of others, the package's."""
    blocks: dict[int, list[str]] = {}
    for module in sorted(modules):
        blocks.setdefault(_group(module), []).append(f"import {module}")
    for module in sorted(found):
        blocks.setdefault(_group(module), []).append(_wrapped(f"from {module} import ", sorted(found[module])))
    return ["\n".join(blocks[number]) for number in sorted(blocks)]


def _group(module: str) -> int:
    if module.startswith("."):
        return 2
    return 0 if module.partition(".")[0] in sys.stdlib_module_names else 1


def _wrapped(head: str, names: list[str]) -> str:
    line = head + ", ".join(names)
    if len(line) <= WIDTH:
        return line
    return f"{head}(\n" + "".join(f"    {name},\n" for name in names) + ")"


def _constant(value: Any) -> Reference | None:
    """Where constants come from that have a name without knowing it."""
    if value is math.inf or value is math.nan:
        return Reference("math", "inf" if value is math.inf else "nan")
    if value is type(None):
        return Reference("types", "NoneType")
    if value is torch.device:
        return Reference("torch", "device")
    where = getattr(type(value), "name_in_text", None)  # of all objects of the class
    if where is not None:
        return Reference(*where.rpartition(".")[::2])
    name = getattr(value, "_name", None) or getattr(value, "__name__", None)
    if name in typing.__all__ and getattr(typing, name) is value:  # it has modules, too, as names of its own
        return Reference("typing", name)
    return None


def _import(name: str, reference: Reference) -> tuple[str, str, str]:
    """Split an import into the module, what comes from it, and the assignment where Python has no import for it."""
    if not reference.path:
        return _as(reference.module, name), "", ""
    top, _, inside = reference.path.partition(".")
    if not inside:
        return reference.module, _as(top, name), ""
    if reference.module == "torch":
        return "torch", "", f"{name} = {reference}"
    holder = f"_{name}_{top}"  # names of generated code do not begin so
    return reference.module, f"{top} as {holder}", f"{name} = {holder}.{inside}"


def _as(found: str, name: str) -> str:
    return found if found == name else f"{found} as {name}"


def _annotation(name: str, value: Any, modules: set[str]) -> str:
    """Define a name that only annotations read: by its own text where that is exact, else as `typing.Any`."""
    text = repr(value)
    scope = {"typing": typing, "torch": torch, "collections": sys.modules.get("collections")}
    try:
        is_exact = eval(text, {**scope}) == value  # a typing construct, whose text is Python
    except Exception:
        is_exact = False
    if not is_exact:
        return f"{name} = typing.Any  # {' '.join(text.split())}: nothing imports it, and only annotations name it"
    modules.update(module for module in ("typing", "torch", "collections.abc") if f"{module}." in text)
    return f"{name} = {text}"


def _unimportable(value: Any, graphs: Iterable[Graph]) -> ExportError:
    why, fix = why_unimportable(value)
    user = next((node for graph in graphs for node in graph.all_nodes() if _mentions(node, value)), None)
    where = "the package" if user is None else f"node {user.name!r}"
    origin: object = None if user is None else user.origin
    if origin is None and isinstance(value, types.FunctionType):
        origin = f"{value.__code__.co_filename}:{value.__code__.co_firstlineno}"
    return ExportError(
        f"cannot write {where}: {describe(value)} cannot be imported by another process: {why}", at=origin, fix=fix
    )


def _mentions(node: Node, value: Any) -> bool:
    found = node.target is value or node.type is value

    def look(leaf: Any) -> Any:
        nonlocal found
        found = found or leaf is value
        return leaf

    map_aggregate((node.args, node.kwargs), look)
    return found
