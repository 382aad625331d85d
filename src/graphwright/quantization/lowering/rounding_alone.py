"""Floats to integers and back, where no layer does so by the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from graphwright.engines import Calls, Kernel
from graphwright.quantization.lowering.computing import as_floats, as_integers, reason_against, values_like
from graphwright.quantization.lowering.integers import Steps


@dataclass(frozen=True, slots=True)
class Conversion:
    """A value of some shape that is written as integers, or of which these are taken back to floats."""

    shape: tuple[int, ...]
    steps: Steps
    is_to_floats: bool

    @property
    def key(self) -> str:
        """What the time depends on."""
        return f"{'dequantize' if self.is_to_floats else 'quantize'} {self.shape} {self.steps}"

    @property
    def weights(self) -> tuple[str, ...]:
        """There are none."""
        return ()

    @property
    def keeps_layout(self) -> bool:
        """Values stay where they are."""
        return True

    def kernels(self, is_exact: bool = False) -> dict[str, Kernel]:
        """As the program has it, and in fewer steps."""
        return {"torch": _converted, "fewer steps": _converted_quickly}

    def example(self) -> list[Tensor]:
        """Random values."""
        return [values_like(self.shape, self.steps if self.is_to_floats else None)]

    def reason_against(self, given: Any, expected: Any, tolerance: float) -> str:
        """Say why a result is none."""
        return reason_against(given, expected)


def _converted(calls: Calls, site: Conversion, x: Any, quickly: bool = False) -> Any:
    return (as_floats if site.is_to_floats else as_integers)(calls, x, site.steps, quickly)


def _converted_quickly(calls: Calls, site: Conversion, x: Any) -> Any:
    return _converted(calls, site, x, quickly=True)
