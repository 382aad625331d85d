"""The weights of layers and their grids: rounded to what is next, or by an algorithm that looks at inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.quantization.affine import Grid
from graphwright.quantization.algorithms.adaround import adaround
from graphwright.quantization.algorithms.gptq import gptq
from graphwright.quantization.algorithms.input_moments import InputMoments
from graphwright.quantization.algorithms.input_rows import conv_rows, linear_rows
from graphwright.quantization.decide import Decision
from graphwright.quantization.improving.watching import Batches, See, in_chunks, run_batches, watching
from graphwright.quantization.observers.weight_grid import weight_grid
from graphwright.quantization.schemes import Scheme
from graphwright.quantization.sites import LAYERS, Program

_ALGORITHMS: dict[str, Callable[[Tensor, Tensor, Scheme], Any]] = {"gptq": gptq, "adaround": adaround}
_BYTES = 512 << 20  # of moments of inputs, kept at a time
_ROWS = 8192  # of a batch, from which moments are estimated


def rounded_weights(
    program: Program, decisions: Mapping[Node, Decision], batches: Batches
) -> dict[Node, tuple[Tensor, Grid]]:
    """The weight of each layer that is quantized, and its grid; layers that share a weight share both."""
    made: dict[Any, tuple[Tensor, Grid]] = {}
    weights: dict[Node, tuple[Tensor, Grid]] = {}
    layers = {node: decision for node, decision in decisions.items() if _has_weight(decision)}
    for node, rounded in _rounded_by_inputs(program, layers, list(batches)):
        made[_key(layers[node])] = rounded
    for node, decision in layers.items():
        key, config, module = _key(decision), decision.config, decision.site.module
        assert config is not None and config.weight is not None and module is not None
        weight = module.weight
        assert isinstance(weight, Tensor)
        if key not in made:
            made[key] = weight.detach(), weight_grid(weight, config.weight)
        weights[node] = made[key]
    return weights


def _has_weight(decision: Decision) -> bool:
    config = decision.config
    is_layer = decision.mode != "float" and isinstance(decision.site.module, LAYERS)
    return is_layer and config is not None and config.weight is not None


def _key(decision: Decision) -> Any:
    module, config = decision.site.module, decision.config
    assert module is not None and config is not None
    return id(module.weight), config.weight, config.algorithm


def _rounded_by_inputs(
    program: Program, layers: Mapping[Node, Decision], batches: Batches
) -> Iterable[tuple[Node, tuple[Tensor, Grid]]]:
    """Round the weights of layers whose algorithm looks at inputs, as far as there are any."""
    chosen: dict[Any, Node] = {}
    for node, decision in layers.items():
        assert decision.config is not None
        if decision.config.algorithm in _ALGORITHMS and isinstance(decision.site.module, _WITH_ROWS):
            chosen.setdefault(_key(decision), node)
    for chunk in in_chunks(chosen.values(), lambda node: _bytes_of_moments(layers[node]), _BYTES) if batches else ():
        moments = {node: InputMoments(layers[node].site.path) for node in chunk}
        with watching(program.gm, {node: _adding(layers[node], each) for node, each in moments.items()}):
            run_batches(program.gm, batches)
        for node in chunk:
            config, module = layers[node].config, layers[node].site.module
            if moments[node].count and config is not None and module is not None:
                algorithm = _ALGORITHMS[config.algorithm]
                rounded = algorithm(module.weight, moments.pop(node).expected, config.weight)  # type: ignore[arg-type]
                yield node, (rounded.weight, rounded.grid)


_WITH_ROWS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _bytes_of_moments(decision: Decision) -> int:
    module = decision.site.module
    assert module is not None and isinstance(module.weight, Tensor)
    return 2 * 4 * module.weight[0].numel() ** 2 * int(getattr(module, "groups", 1))


def _adding(decision: Decision, moments: InputMoments) -> See:
    module = decision.site.module

    def see(x: Tensor, y: Tensor) -> None:
        rows = linear_rows(x) if isinstance(module, nn.Linear) else _of_conv(module, x)
        step = max(1, rows.shape[-2] // _ROWS)
        moments.observe(rows[..., ::step, :])

    return see


def _of_conv(module: Any, x: Tensor) -> Tensor:
    x = x if x.dim() == module.weight.dim() else x.unsqueeze(0)
    return conv_rows(
        x, module.kernel_size, module.stride, module.padding, module.dilation, module.groups, module.padding_mode
    )
