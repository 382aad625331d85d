"""Attributes that tensors of the modules have of their own, as `weight.is_frozen = True` makes them: tags.

Parameters and buffers are themselves while a program is captured, so nothing tells when one is asked for its tags. What
counts is which names the functions of the program mention: such tags are taken for granted, and may not be written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.errors import CaptureError
from graphwright.runtime import is_atom, is_plain_container, spelled, state_of

if TYPE_CHECKING:
    from graphwright.capture.state.ledger import Ledger

_MISSING: Any = object()


class Tags:
    """The tags that tensors had before the program ran; each tensor comes with its module's path and its name there."""

    def __init__(self, tensors: Iterable[tuple[str, str, torch.Tensor]]) -> None:
        self._before = [(path, name, tensor, dict(state_of(tensor))) for path, name, tensor in tensors]

    def refuse_written(self, names: frozenset[str], at: str) -> None:
        """Raise CaptureError where the program has changed a tag of which it mentions the name."""
        for path, name, tensor, before in self._before:
            for tag in _changed(tensor, before, names):
                of = ".".join(filter(None, ("self", path, name)))
                raise CaptureError(
                    f"the program writes {tag!r} of {of}, which is a tensor of its modules",
                    at=at,
                    fix=f"keep it in an attribute of the module: self.{tag}",
                )

    def put_back(self, names: frozenset[str]) -> None:
        """Give the tensors the tags that they had, those aside of which the program mentions no name."""
        for *_, tensor, before in self._before:
            for tag in _changed(tensor, before, names):
                if tag in before:
                    state_of(tensor)[tag] = before[tag]
                else:
                    del state_of(tensor)[tag]

    def take(self, ledger: Ledger, names: frozenset[str], looked_for: frozenset[str]) -> None:
        """Take for granted the tags that the program may read, and that those are missing which it may look for."""
        for path, name, tensor, before in self._before:
            plain = [
                tag for tag in before if tag in names and (is_atom(before[tag]) or is_plain_container(before[tag]))
            ]
            lacks = sorted(tag for tag in looked_for - before.keys() if not hasattr(type(tensor), tag))
            if plain or lacks:
                tags = {tag: spelled(before[tag]) for tag in plain}
                ledger.module(path).setdefault("tags", {})[name] = {"has": tags, "lacks": lacks}


def _changed(tensor: torch.Tensor, before: dict[str, Any], names: frozenset[str]) -> list[str]:
    now = state_of(tensor)
    if not now and not before:
        return []
    return [tag for tag in (before | now) if tag in names and now.get(tag, _MISSING) is not before.get(tag, _MISSING)]
