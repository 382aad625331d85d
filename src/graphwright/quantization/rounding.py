"""The weights of layers and their grids: rounded to what is next, or by an algorithm that looks at inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from graphwright.ir import Node
from graphwright.quantization.affine import Grid
from graphwright.quantization.decide import Decision
from graphwright.quantization.observers.weight_grid import weight_grid
from graphwright.quantization.sites import Program
from graphwright.quantization.watching import Batches

__all__ = ["rounded_weights"]


def rounded_weights(
    program: Program, decisions: Mapping[Node, Decision], batches: Batches
) -> dict[Node, tuple[Tensor, Grid]]:
    """The weight of each layer that is quantized, and its grid; layers that share a weight share both."""
    made: dict[Any, tuple[Tensor, Grid]] = {}
    weights: dict[Node, tuple[Tensor, Grid]] = {}
    for node, decision in decisions.items():
        module, config = decision.site.module, decision.config
        if decision.mode == "float" or module is None or config is None or config.weight is None:
            continue
        weight = module.weight
        assert isinstance(weight, Tensor)
        key = id(weight), config.weight, config.algorithm
        if key not in made:
            made[key] = weight.detach(), weight_grid(weight, config.weight)
        weights[node] = made[key]
    return weights
