"""What a program asks of its modules past their attributes: of which class one is, whether two are one, what they lack.

Nothing tells when a program asks so of a module that is one node. So what counts is what its functions mention: the
attributes in which they find modules, the classes that they name, and whether they compare with `is`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.runtime import class_name, name_of_class, own_names
from graphwright.source import mentions, texts_in

if TYPE_CHECKING:
    import torch

    from graphwright.capture.state.ledger import Ledger

_QUESTIONS = frozenset({("isinstance",), ("issubclass",), ("type",)})


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Asker:
    """A function that may ask, by what it mentions."""

    attributes: frozenset[str]
    classes: frozenset[type]  # of modules, if it asks for classes
    asks_exactly: bool  # by `type(module)`, and not by `isinstance` alone
    asks_any: bool  # likewise, for whatever class there is
    asks_identity: bool
    keys: frozenset[str]  # its texts that may be names, if it looks at `__dict__`
    walks: bool  # whether it looks at `__dict__` or `dir(...)`, where it may go over all names


def chooser(attributes: frozenset[str]) -> Asker:
    """What a function asks that chooses another one by the class of what it is given."""
    none: frozenset[Any] = frozenset()
    return Asker(attributes, none, True, True, False, none, False)


def asker_of(code: CodeType, names: dict[str, Any], asks_identity: bool, walks: bool, is_of_user: bool) -> Asker | None:
    """What a function may ask that has these global names, None if that is nothing."""
    mentioned = mentions(code)
    classes: list[type] = []
    if not _QUESTIONS.isdisjoint(mentioned.paths) or "__class__" in mentioned.attributes:
        found = [_at(names, path) for path in mentioned.paths]
        classes = [kind for kind in found if issubclass(type(kind), type) and issubclass(kind, nn.Module)]
    sees_dict = ("vars",) in mentioned.paths or "__dict__" in mentioned.attributes
    keys = frozenset(filter(str.isidentifier, texts_in(code))) if sees_dict else frozenset()
    asks_exactly = ("type",) in mentioned.paths or "__class__" in mentioned.attributes
    asks_any = asks_exactly and is_of_user
    if not classes and not asks_identity and not keys and not walks and not asks_any:
        return None
    named = frozenset(classes) - {nn.Module}
    return Asker(mentioned.attributes, named, asks_exactly, asks_any, asks_identity, keys, walks)


def _at(names: dict[str, Any], path: tuple[str, ...]) -> Any:
    value = names.get(path[0])
    for atom in path[1:]:
        value = getattr(value, "__dict__", {}).get(atom)
    return value


def take_answers(
    ledger: Ledger, root: nn.Module, askers: Iterable[Asker], is_leaf: Callable[[nn.Module, str], bool]
) -> None:
    """Take for granted what functions may have been answered about the modules of a program and their tensors."""
    asked = list(askers)
    places = list(_places(root, "", is_leaf)) if asked else []
    for asker in asked:
        for path, name, value in places if asker.classes or asker.asks_any else ():
            if isinstance(value, nn.Module) and (_is_mentioned(asker, path, name) or _is_walked(ledger, path)):
                if asker.classes:
                    answers = ledger.module(path).setdefault("kinds", {}).setdefault(name, {})
                    answers.update({name_of_class(kind): isinstance(value, kind) for kind in asker.classes})
                if asker.asks_exactly:
                    ledger.module(path).setdefault("exact", {})[name] = class_name(value)
        for path, name, value in [("", "", root), *places] if asker.keys or asker.walks else ():
            if isinstance(value, nn.Module):
                facts = ledger.module(_dotted(path, name))
                absent = facts.setdefault("absent", [])
                absent += [key for key in sorted(asker.keys - set(absent)) if not _has(value, key)]
                if asker.walks:
                    facts["names"] = own_names(value.__dict__)
        ones = [place for place in places if _is_mentioned(asker, *place)] if asker.asks_identity else []
        if len(ones) > 1:
            firsts = {id(value): _dotted(path, name) for path, name, value in reversed(ones)}
            same = ledger.module("").setdefault("same", {})
            same.update({_dotted(path, name): firsts[id(value)] for path, name, value in ones})


def _is_mentioned(asker: Asker, path: str, name: str, value: torch.Tensor | nn.Module | None = None) -> bool:
    """Tell whether a function mentions a submodule or tensor, or the container that holds it."""
    return name in asker.attributes or path.rpartition(".")[2] in asker.attributes


def _has(module: nn.Module, name: str) -> bool:
    state = module.__dict__
    return any(name in table for table in (state, state["_parameters"], state["_buffers"], state["_modules"]))


def _is_walked(ledger: Ledger, path: str) -> bool:
    return "_modules" in ledger.modules.get(path, {}).get("holds", {})


def _places(module: nn.Module, path: str, is_leaf: Callable[[nn.Module, str], bool]) -> Iterator[tuple[str, str, Any]]:
    """Each tensor of modules that are no part of a leaf, and each such module: where it is, its name, itself."""
    for table in (module._parameters, module._buffers):
        yield from ((path, name, value) for name, value in table.items() if value is not None)
    if path and is_leaf(module, path):
        return
    for name, child in module._modules.items():
        if child is not None:
            yield path, name, child
            yield from _places(child, _dotted(path, name), is_leaf)


def _dotted(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
