"""How the values of tensor programs are written in the exact text form of graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from graphwright.ir import PlainSpelling

_NAMED_BY_REPR = (torch.dtype, torch.layout, torch.memory_format)


class TorchSpelling:
    """Spells torch's functions, classes, dtypes, layouts and devices, and what further modules hold.

    >>> spelling = TorchSpelling()
    >>> spelling.name_of(torch.nn.functional.relu), spelling.name_of(torch.float32)
    ('torch.nn.functional.relu', 'torch.float32')
    >>> spelling.parts_of(torch.device("cuda", 1))
    (<class 'torch.device'>, ('cuda', 1))
    """

    def __init__(self, *modules: str) -> None:
        self._plain = PlainSpelling((*PlainSpelling().modules, "torch", "graphwright", *modules))

    def name_of(self, value: Any) -> str | None:
        """Return the dotted name under which `value_of` finds this very value, or None.

        A class may say in `name_in_text` what stands in texts for its objects.
        """
        stands_in = getattr(type(value), "name_in_text", None)
        if isinstance(stands_in, str):
            return stands_in
        return repr(value) if isinstance(value, _NAMED_BY_REPR) else self._plain.name_of(value)

    def value_of(self, name: str) -> Any:
        """Return the value of this name. Raises LookupError where there is none."""
        return self._plain.value_of(name)

    def parts_of(self, value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """Take devices apart, and what `PlainSpelling` takes apart."""
        if isinstance(value, torch.device):
            return torch.device, (value.type,) if value.index is None else (value.type, value.index)
        return self._plain.parts_of(value)

    def may_call(self, function: Any) -> bool:
        """Tell whether reading a text may call this."""
        return function is torch.device or self._plain.may_call(function)
