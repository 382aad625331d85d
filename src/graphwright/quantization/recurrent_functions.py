"""What quantized recurrent layers compute, as functions of plain tensors: several layers, in both directions.

Their tensors have the names that they have in nn.LSTM and nn.GRU, and scales the name of their weight with `_scale`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphwright.ops import has_no_side_effect
from graphwright.quantization.layer_functions import dequantized_weight, rounded_in_call

State = tuple[Tensor, ...]  # what goes from one step to the next (batch, size): h and c of an LSTM, h of a GRU
Run = Callable[[str, Tensor, State | None], tuple[Tensor, State]]  # of one layer in one direction, by its suffix
Product = Callable[[Tensor], Tensor]


# ---- layers in a row


def directions(num_layers: int, bidirectional: bool) -> list[str]:
    """The suffixes of the names of each layer in each direction, in the order of nn.LSTM.

    >>> directions(2, True)
    ['l0', 'l0_reverse', 'l1', 'l1_reverse']
    """
    ends = ("", "_reverse") if bidirectional else ("",)
    return [f"l{i}{end}" for i in range(num_layers) for end in ends]


def stacked(input: Tensor, hx: Any, num_layers: int, bidirectional: bool, batch_first: bool, run: Run) -> Any:
    """Run layers in a row: the outputs, and the last state of each layer and direction, as nn.LSTM and nn.GRU do."""
    states = None if hx is None else tuple(hx) if isinstance(hx, tuple | list) else (hx,)
    is_batch = input.dim() == 3
    if not is_batch:
        input, states = input.unsqueeze(1), None if states is None else tuple([each.unsqueeze(1) for each in states])
    elif batch_first:
        input = input.transpose(0, 1)
    suffixes, count = directions(num_layers, bidirectional), 2 if bidirectional else 1
    last: list[State] = []
    for i in range(0, len(suffixes), count):
        outputs = []
        for k in range(i, i + count):
            start = None if states is None else tuple([each[k] for each in states])
            output, end = run(suffixes[k], input, start)
            outputs.append(output)
            last.append(end)
        input = outputs[0] if count == 1 else torch.cat(outputs, -1)
    ends = tuple([torch.stack(each) for each in zip(*last, strict=True)])
    if not is_batch:
        input, ends = input.squeeze(1), tuple([each.squeeze(1) for each in ends])
    elif batch_first:
        input = input.transpose(0, 1)
    return input, ends if len(ends) > 1 else ends[0]


def of_cell(input: Tensor, hx: Any, run: Callable[[Tensor, Any], Any]) -> Any:
    """One step of a layer: what a cell gives, by a function for a sequence of one."""
    is_batch = input.dim() == 2
    states = None if hx is None else tuple(hx) if isinstance(hx, tuple | list) else (hx,)
    if not is_batch:
        input, states = input.unsqueeze(0), None if states is None else tuple([each.unsqueeze(0) for each in states])
    start = None if states is None else tuple([each.unsqueeze(0) for each in states])
    _, end = run(input.unsqueeze(0), start)
    ends = tuple([each[0] if is_batch else each[0, 0] for each in (end if isinstance(end, tuple) else (end,))])
    return ends if len(ends) > 1 else ends[0]


# ---- one layer in one direction


def fused(kind: str, x: Tensor, start: State | None, weights: Sequence[Tensor], suffix: str) -> tuple[Tensor, State]:
    """By the function of torch; weights: of inputs and of states, their biases, and that of the projection."""
    is_reverse = suffix.endswith("_reverse")
    has_bias = len(weights) >= 4
    if start is None:
        start = _zeros(kind, x, weights[1], weights[-1] if len(weights) in (3, 5) else None)
    x = x.flip(0) if is_reverse else x
    states = [each.unsqueeze(0) for each in start]
    settings = (has_bias, 1, 0.0, False, False, False)
    if kind == "lstm":
        y, *ends = torch.lstm(x, states, list(weights), *settings)
    else:
        y, *ends = torch.gru(x, states[0], list(weights), *settings)
    return y.flip(0) if is_reverse else y, tuple([each[0] for each in ends])


def _zeros(kind: str, x: Tensor, hidden: Tensor, projection: Tensor | None) -> State:
    """The state before the first step."""
    size = hidden.shape[0] // (4 if kind == "lstm" else 3)
    zeros = x.new_zeros(x.shape[1], size)
    if kind != "lstm":
        return (zeros,)
    return (zeros if projection is None else x.new_zeros(x.shape[1], projection.shape[0])), zeros


def in_steps(
    kind: str, gates: Tensor, start: State, product: Product, project: Product | None, suffix: str
) -> tuple[Tensor, State]:
    """Step by step: gates (length, batch, gates) are what inputs give, `product` what a state does."""
    is_reverse = suffix.endswith("_reverse")
    steps = gates.unbind(0)
    outputs, state = [], start
    for step in reversed(steps) if is_reverse else steps:
        state = _lstm_step(step, state, product, project) if kind == "lstm" else _gru_step(step, state, product)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if is_reverse else outputs), state


def _lstm_step(gates: Tensor, state: State, product: Product, project: Product | None) -> State:
    h, c = state
    i, f, g, o = (gates + product(h)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h if project is None else project(h), c


def _gru_step(gates: Tensor, state: State, product: Product) -> State:
    (h,) = state
    (r, z, n), (hr, hz, hn) = gates.chunk(3, -1), product(h).chunk(3, -1)
    n = torch.tanh(n + torch.sigmoid(r + hr) * hn)
    return (n + torch.sigmoid(z + hz) * (h - n),)


# ---- with weights of integers


def _run(kind: str, tensors: Mapping[str, Tensor | None], activation: str) -> Run:
    """One layer in one direction, with its weights in floats again."""

    def weight(name: str, suffix: str) -> Tensor | None:
        found = tensors.get(f"weight_{name}_{suffix}")
        scale = tensors.get(f"weight_{name}_{suffix}_scale")
        return None if found is None or scale is None else dequantized_weight(found, scale)

    def run(suffix: str, x: Tensor, start: State | None) -> tuple[Tensor, State]:
        of_inputs, of_states, projection = (weight(name, suffix) for name in ("ih", "hh", "hr"))
        biases = [tensors.get(f"bias_{name}_{suffix}") for name in ("ih", "hh")]
        assert of_inputs is not None and of_states is not None
        if activation == "float":
            weights = [each for each in (of_inputs, of_states, *biases, projection) if each is not None]
            return fused(kind, x, start, weights, suffix)
        start = _zeros(kind, x, of_states, projection) if start is None else start

        def product(by: Tensor, bias: Tensor | None) -> Product:
            return lambda h: F.linear(rounded_in_call(h, activation), by, bias)

        gates = product(of_inputs, biases[0])(x)
        project = None if projection is None else product(projection, None)
        return in_steps(kind, gates, start, product(of_states, biases[1]), project, suffix)

    return run


@has_no_side_effect
def quantized_lstm(
    input: Tensor,
    hx: Any = None,
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
    activation: str = "float",
    **tensors: Tensor | None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compute an nn.LSTM in evaluation of quantized weights: the outputs, and the last states.

    activation: "float" takes inputs and states as they are; "tensor" and "token" round each before it is multiplied,
    with one range for all of it or one for each vector, found in each step.
    """
    result: tuple[Tensor, tuple[Tensor, Tensor]] = stacked(
        input, hx, num_layers, bidirectional, batch_first, _run("lstm", tensors, activation)
    )
    return result


@has_no_side_effect
def quantized_gru(
    input: Tensor,
    hx: Any = None,
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
    activation: str = "float",
    **tensors: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Compute an nn.GRU in evaluation of quantized weights, as `quantized_lstm` does an nn.LSTM."""
    result: tuple[Tensor, Tensor] = stacked(
        input, hx, num_layers, bidirectional, batch_first, _run("gru", tensors, activation)
    )
    return result


def _of_layer(tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
    """The tensors of a cell by the names that those of a layer have: `weight_ih_scale` is `weight_ih_l0_scale`."""
    return {
        f"{name.removesuffix('_scale')}_l0{'_scale' if name.endswith('_scale') else ''}": each
        for name, each in tensors.items()
    }


@has_no_side_effect
def quantized_lstm_cell(
    input: Tensor, hx: Any = None, activation: str = "float", **tensors: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute an nn.LSTMCell of quantized weights, see `quantized_lstm`."""
    named = _of_layer(tensors)
    result: tuple[Tensor, Tensor] = of_cell(
        input, hx, lambda x, start: stacked(x, start, 1, False, False, _run("lstm", named, activation))
    )
    return result


@has_no_side_effect
def quantized_gru_cell(input: Tensor, hx: Any = None, activation: str = "float", **tensors: Tensor | None) -> Tensor:
    """Compute an nn.GRUCell of quantized weights, see `quantized_lstm`."""
    named = _of_layer(tensors)
    result: Tensor = of_cell(
        input, hx, lambda x, start: stacked(x, start, 1, False, False, _run("gru", named, activation))
    )
    return result
