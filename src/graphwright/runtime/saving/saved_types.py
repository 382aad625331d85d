"""Annotations as plain data: names, generics with their arguments, and texts that only name types.

A text is evaluated by whoever asks for the hints of a function: `typing.get_type_hints`, a capture, torch.jit. So a
file may have none that does more than to name types.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import functools
import inspect
import operator
import sys
import types
import typing
from typing import Any

from graphwright.errors import LoadError
from graphwright.runtime.saving.plain_data import NotPlain, PlainWriter, damaged
from graphwright.runtime.trust.names import Trust

_GENERICS: dict[str, Any] = {
    **{kind.__name__: kind for kind in (list, dict, tuple, set, frozenset, type)},
    **{f"collections.abc.{name}": getattr(collections.abc, name) for name in collections.abc.__all__},
    **{f"typing.{name}": getattr(typing, name) for name in typing.__all__ if name[0].isupper()},
}
_MOST_PARTS = 100  # of a type: typing compares them each with each
_LONGEST = 10_000  # characters of a text
_ANY = {"generic": ["typing.Any", []]}
_LITERALS = (int, str, bool, bytes, type(None))


def type_record(kind: Any) -> Any:
    """Write a type as data: a name, or a generic with its arguments; what has no name is written as text."""
    if kind is None or isinstance(kind, str):
        return kind
    if kind is type(None):
        return {"none": None}
    if kind is ...:
        return {"ellipsis": None}
    if isinstance(kind, list):
        return [_part_record(item) for item in kind]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if len(args) > _MOST_PARTS:
        return inspect.formatannotation(kind)
    if origin is types.UnionType:
        return {"or": [_part_record(arg) for arg in args]}
    if origin is typing.Union:
        return {"union": [_part_record(arg) for arg in args]}
    if origin is typing.Literal:
        return {"literal": list(args)} if all(type(arg) in (int, str, bool) for arg in args) else str(kind)
    if getattr(kind, "__module__", "") == "typing" and getattr(kind, "_name", None):
        name = f"typing.{kind._name}"
    else:
        name = next((name for name, known in _GENERICS.items() if known is (origin or kind)), "")
    if name in _GENERICS:
        return {"generic": [name, [_part_record(arg) for arg in args]]}
    if origin is None and isinstance(kind, type):
        from_writer = PlainWriter(lambda module: 0, lambda tensor, path: "")
        try:
            return {"name": from_writer.name(kind)}
        except NotPlain:
            pass
    return inspect.formatannotation(kind)


def _part_record(kind: Any) -> Any:
    """Write a type inside of another one, as it is read again: see `_part_of`."""
    record = type_record(kind)
    return _ANY if isinstance(record, str) else record


def _part_of(record: Any, trust: Trust) -> Any:
    """Read a type inside of another one, where a text would be compiled: what is known by its text only is Any."""
    kind = type_of(record, trust)
    return Any if isinstance(kind, str) else kind


def type_of(record: Any, trust: Trust) -> Any:
    if record is None:
        return None
    if isinstance(record, str):
        return _checked(record)
    if isinstance(record, list):
        return [_part_of(item, trust) for item in record]
    ((tag, content),) = record.items()
    if isinstance(content, list) and len(content[-1] if tag == "generic" else content) > _MOST_PARTS:
        raise damaged(f"a type has more than {_MOST_PARTS} parts")
    if tag == "none":
        return type(None)
    if tag == "ellipsis":
        return ...
    if tag == "union":
        return typing.Union[tuple([_part_of(arg, trust) for arg in content])]  # noqa: UP007
    if tag == "or":
        kinds = [_part_of(arg, trust) for arg in content]
        is_plain = all(isinstance(kind, type | types.GenericAlias | types.UnionType) for kind in kinds)
        return functools.reduce(operator.or_, kinds) if is_plain else typing.Union[tuple(kinds)]  # noqa: UP007
    if tag == "literal":
        if any(type(each) not in _LITERALS for each in content):
            raise damaged("a Literal type holds what is no literal")
        return typing.Literal[tuple(content)]
    if tag == "name":
        try:
            return trust.find(content, is_class=True)
        except LoadError:  # an annotation is nothing that runs
            text = str(content).replace(":", ".")
            return text if is_type_text(text) else None
    if tag == "generic":
        name, args = content
        kind = _GENERICS[name]
        arguments = tuple([_part_of(arg, trust) for arg in args])
        return kind[arguments[0] if len(arguments) == 1 else arguments] if arguments else kind
    raise damaged(f"{tag!r} is no kind of type")


# ---- texts


def is_type_text(text: str) -> bool:
    """Tell whether a text does no more, when it is evaluated, than to name types.

    >>> is_type_text("list[torch.Tensor] | None"), is_type_text("Float[Tensor, 'batch width']")
    (True, True)
    >>> is_type_text("print()"), is_type_text("torch.ctypes.cdll['a.so']"), is_type_text("list['print()']")
    (False, False, False)
    """
    if len(text) > _LONGEST:
        return False
    for each in {text.strip(), f"({text},)"}:  # `*Ts` stands in a tuple
        try:
            tree = ast.parse(each, mode="eval")
        except (SyntaxError, ValueError):  # nobody can evaluate it
            continue
        except (RecursionError, MemoryError):
            return False
        if not _names_types(tree.body):
            return False
    return True


def _checked(text: str) -> str:
    if not is_type_text(text):
        raise LoadError(f"a file may not have the annotation {text[:80]!r}", fix="load files only from those you trust")
    return text


def _names_types(part: ast.expr) -> bool:
    if isinstance(part, ast.Constant):
        return not isinstance(part.value, str) or is_type_text(part.value)
    if isinstance(part, ast.Tuple | ast.List):
        return all(map(_names_types, part.elts))
    if isinstance(part, ast.BinOp):
        return isinstance(part.op, ast.BitOr) and _names_types(part.left) and _names_types(part.right)
    if isinstance(part, ast.UnaryOp):
        return not isinstance(part.op, ast.Not) and _names_types(part.operand)  # ~T, which says that T is a TypeVar
    if isinstance(part, ast.Starred):
        return _names_types(part.value)
    if isinstance(part, ast.Subscript):
        is_literal = ast.unparse(part.value).rpartition(".")[2] == "Literal"
        return _names_types(part.value) and (_are_literals(part.slice) if is_literal else _names_types(part.slice))
    return _names_a_type(part)


def _are_literals(part: ast.expr) -> bool:
    if isinstance(part, ast.Tuple):
        return all(map(_are_literals, part.elts))
    if isinstance(part, ast.UnaryOp):
        return isinstance(part.op, ast.USub) and _are_literals(part.operand)
    return isinstance(part, ast.Constant) or _names_a_type(part)


def _names_a_type(part: ast.expr) -> bool:
    """Tell whether an expression is a name, or names joined by dots: of a class, where it is known what they name."""
    atoms: list[str] = []
    while isinstance(part, ast.Attribute):
        atoms.insert(0, part.attr)
        part = part.value
    if not isinstance(part, ast.Name):
        return False
    if not atoms:
        return True
    head = part.id
    if any(atom.startswith("__") for atom in (head, *atoms)) or hasattr(builtins, head):
        return False
    name = head.rstrip("0123456789").rstrip("_")  # generated code adds a number where a name is taken
    may_be = [path for path in list(sys.modules) if path.rpartition(".")[2] == name]
    return all(_leads_to_type(path, atoms, path == name) for path in may_be)


def _leads_to_type(path: str, atoms: list[str], is_known: bool) -> bool:
    """Tell whether names lead through modules of one package to a type, so that reading them loads nothing.

    Where it is not known that the module is meant, they may lead nowhere.
    """
    found: Any = sys.modules[path]
    for atom in atoms:
        if not isinstance(found, types.ModuleType) or found.__name__ != path:
            return False
        path = f"{path}.{atom}"
        if atom not in found.__dict__:
            return not is_known
        found = found.__dict__[atom]
    return isinstance(found, type | types.UnionType | types.GenericAlias) or type(found).__module__ == "typing"
