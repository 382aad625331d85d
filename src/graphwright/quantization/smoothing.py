"""SmoothQuant: what the inputs of linear layers are wide in, channel by channel, goes into their weights."""

from __future__ import annotations

from collections.abc import Mapping

from graphwright.ir import Node
from graphwright.quantization.decide import Decision
from graphwright.quantization.sites import Program
from graphwright.quantization.watching import Batches

__all__ = ["smooth"]


def smooth(program: Program, decisions: Mapping[Node, Decision], batches: Batches) -> bool:
    """Smooth the inputs of linear layers where that lowers their error; tells whether it did anywhere."""
    return False
