"""LSTM, GRU and their cells, with weights of int8."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright.engines import packed_for
from graphwright.quantization import (
    QConfig,
    QConfigMapping,
    QuantizedLSTM,
    dynamic_int8,
    lower,
    prepare,
    quantize_,
    static_int8,
    weight_only_int4,
    weight_only_int8,
)
from graphwright.quantization.improving.judging import sqnr as decibels
from graphwright.quantization.lowering import computing
from graphwright.quantization.recurrent_layers import RECURRENT_FORMS
from graphwright.runtime import entry_points_of

needs_onednn = pytest.mark.skipif(not computing.has_onednn(), reason="torch without these kernels of oneDNN")

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")  # torch's own
CONFIGS = {"token": dynamic_int8("token"), "tensor": dynamic_int8("tensor"), "weights": weight_only_int8()}
LAYERS: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "lstm": (nn.LSTM, {}),
    "lstm, both directions": (nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.5}),
    "lstm, no bias": (nn.LSTM, {"bias": False}),
    "lstm, projected": (nn.LSTM, {"proj_size": 6, "bidirectional": True}),
    "gru": (nn.GRU, {"batch_first": True}),
    "gru, both directions": (nn.GRU, {"num_layers": 2, "bidirectional": True, "dropout": 0.5}),
    "gru, no bias": (nn.GRU, {"bias": False}),
}


class Tagger(nn.Module):
    """A recurrent layer over words, with the state that it ends in."""

    def __init__(self, kind: Any, **settings: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 12)
        self.rnn = kind(12, 16, **settings)
        size = (settings.get("proj_size") or 16) * (2 if settings.get("bidirectional") else 1)
        self.head = nn.Linear(size, 5)

    def forward(self, ids: Tensor) -> Any:
        """Scores and states."""
        y, state = self.rnn(self.words(ids))
        return self.head(y), state


class Continued(nn.Module):
    """A recurrent layer that begins with a state of the caller's, without a batch."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.rnn = kind(12, 16)

    def forward(self, x: Tensor, h: Tensor) -> Any:
        """Outputs and states."""
        return self.rnn(x, (h, h * 0.5) if isinstance(self.rnn, nn.LSTM) else h)


class Steps(nn.Module):
    """A cell that is called step by step."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cell, self.head = kind(12, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the last step."""
        state = None
        for step in x.unbind(0):
            state = self.cell(step, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


def tensors_in(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [each for item in value for each in tensors_in(item)]


def assert_close(given: Any, expected: Any, least: float) -> None:
    for one, other in zip(tensors_in(given), tensors_in(expected), strict=True):
        assert one.shape == other.shape and one.dtype is other.dtype
        assert decibels(other, one) > least


def words(*sizes: int) -> Tensor:
    return torch.randint(0, 30, sizes)


def reference(model: nn.Module, config: QConfig | QConfigMapping, *args: Tensor) -> Any:
    return graphwright.quantize(model.eval(), config, args=args, engine=None)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", LAYERS)
def test_layer_with_weights_of_integers(name: str, config: str) -> None:
    """It computes what the float layer does, for other lengths and batches, too, and a row says how."""
    torch.manual_seed(0)
    kind, settings = LAYERS[name]
    model = Tagger(kind, **settings).eval()
    q = reference(model, CONFIGS[config], words(7, 3))
    row = q.quantization["rnn"]
    assert (row.op, row.decision) == (kind.__name__.lower(), "weight" if config == "weights" else "dynamic")
    assert row.scheme == CONFIGS[config].summary
    assert type(q.rnn) is RECURRENT_FORMS[kind] and q.rnn.weight_ih_l0.dtype is torch.int8
    with torch.no_grad():
        for sizes in ((7, 3), (2, 5), (1, 1)):
            ids = words(*sizes)
            assert_close(q(ids), model(ids), 30)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_states_of_the_callers_and_no_batch(kind: Any) -> None:
    torch.manual_seed(0)
    model = Continued(kind).eval()
    for config in CONFIGS.values():
        q = reference(model, config, torch.randn(4, 12), torch.randn(1, 16))
        assert q.quantization["rnn"].decision != "float"
        x, h = torch.randn(6, 12), torch.rand(1, 16)
        with torch.no_grad():
            assert_close(q(x, h), model(x, h), 30)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_cells(kind: Any) -> None:
    """A cell is one layer for all of its calls."""
    torch.manual_seed(0)
    model = Steps(kind).eval()
    for config in CONFIGS.values():
        q = reference(model, config, torch.randn(4, 3, 12))
        assert {row.decision for row in q.quantization.rows if row.path == "cell"} == {q.quantization["head"].decision}
        x = torch.randn(4, 2, 12)
        with torch.no_grad():
            assert_close(q(x), model(x), 30)


@pytest.mark.slow
@needs_onednn
@pytest.mark.sampled(6)
@pytest.mark.parametrize("kernel", ["integers", "float weight"])
@pytest.mark.parametrize("name", LAYERS)
def test_kernels(name: str, kernel: str, prefer: Callable[..., None]) -> None:
    """Kernels compute what the reference does, at all lengths and batches, and rows name them."""
    prefer(kernel, "torch")
    torch.manual_seed(0)
    kind, settings = LAYERS[name]
    r = reference(Tagger(kind, **settings), dynamic_int8() if kernel == "integers" else weight_only_int8(), words(7, 3))
    fast = lower(r, words(7, 3), engine="torch")
    assert fast.quantization["rnn"].kernel == kernel
    for sizes in ((7, 3), (2, 5), (1, 1)):
        ids = words(*sizes)
        assert packed_for(fast, ids) is not None
        with torch.no_grad():
            assert_close(fast(ids), r(ids), 40)


@pytest.mark.slow
@needs_onednn
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_kernels_of_cells(kind: Any, prefer: Callable[..., None]) -> None:
    prefer("integers", "torch")
    torch.manual_seed(0)
    r = reference(Steps(kind), dynamic_int8(), torch.randn(3, 2, 12))
    fast = lower(r, torch.randn(3, 2, 12), engine="torch")
    assert "recurrent_of_integers" in [
        getattr(node.target, "__name__", "") for node in entry_points_of(fast)["forward"].held.graph.nodes
    ]
    x = torch.randn(3, 5, 12)
    with torch.no_grad():
        assert_close(fast(x), r(x), 40)


FLOAT: dict[str, tuple[Callable[[], nn.Module], QConfig, str]] = {
    "static": (lambda: Tagger(nn.LSTM), static_int8("minmax"), "recurrent layers have no static form"),
    "rnn": (lambda: Tagger(nn.RNN), dynamic_int8(), "LSTM and GRU alone"),
    "hook": (lambda: hooked(Tagger(nn.GRU)), dynamic_int8(), "hooks"),
}


def hooked(model: Any) -> nn.Module:
    model.rnn.register_forward_hook(lambda module, args, output: output)
    return model  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FLOAT)
def test_why_it_stays_in_float(name: str) -> None:
    torch.manual_seed(0)
    make, config, reason = FLOAT[name]
    q = graphwright.quantize(make().eval(), config, [(words(7, 3),)], engine=None)
    row = next(row for row in q.quantization.rows if row.path.startswith("rnn"))
    assert row.decision == "float" and reason in row.reason


def test_packed_sequence_stays_in_float() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(12, 16)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return self.rnn(packed)[1]  # type: ignore[no-any-return]

    torch.manual_seed(0)
    x, lengths = torch.randn(5, 2, 12), torch.tensor([5, 3])
    model = Packed().eval()
    q = reference(model, dynamic_int8(), x, lengths)
    row = q.quantization["rnn"]
    assert row.decision == "float" and row.reason
    assert torch.equal(q(x, lengths), model(x, lengths))


def test_four_bits_are_eight() -> None:
    """Groups are for linear layers."""
    q = reference(Tagger(nn.LSTM), weight_only_int4(4), words(7, 3))
    assert q.quantization["rnn"].reason == "no linear layer: integers of 8 bits"
    assert q.quantization["head"].scheme == "weight int4 per group of 4"


def test_copies_and_files(tmp_path: Path) -> None:
    """A copy, a file and a state are as it is, and a third as large."""
    torch.manual_seed(0)
    ids, model = words(7, 3), Tagger(nn.LSTM, num_layers=2, bidirectional=True)
    q = reference(model, dynamic_int8(), ids)
    graphwright.save(q, tmp_path / "q.gw")
    other = reference(Tagger(nn.LSTM, num_layers=2, bidirectional=True), dynamic_int8(), ids)
    other.load_state_dict(q.state_dict())
    assert {"rnn.weight_hh_l1_reverse", "rnn.weight_hh_l1_reverse_scale", "rnn.bias_ih_l0"} <= q.state_dict().keys()
    size, full = (
        sum(t.numel() * t.element_size() for name, t in m.state_dict().items() if "rnn" in name) for m in (q, model)
    )
    assert size < 0.4 * full
    with torch.no_grad():
        for each in (copy.deepcopy(q), graphwright.load(tmp_path / "q.gw", allow=["tests"]), other):
            assert all(map(torch.equal, tensors_in(each(ids)), tensors_in(q(ids))))


def test_training_leaves_it_and_its_dropout() -> None:
    """In training with the rounding to come it is the float layer, dropout between its layers; then it is rounded."""
    torch.manual_seed(0)
    ids, model = words(7, 3), Tagger(nn.LSTM, num_layers=2, dropout=0.5)
    prepared = prepare(model, dynamic_int8(), ids, training=True)
    assert type(prepared.rnn) is nn.LSTM and prepared.rnn.dropout == 0.5
    prepared.train()
    assert not torch.equal(prepared(ids)[0], prepared(ids)[0])
    prepared(ids)[0].sum().backward()
    assert prepared.rnn.weight_hh_l0.grad is not None
    q = graphwright.quantization.convert(prepared.eval())
    assert type(q.rnn) is QuantizedLSTM
    with torch.no_grad():
        assert_close(q(ids), prepared(ids), 25)


def test_in_place() -> None:
    """`quantize_` replaces what it is asked for."""
    torch.manual_seed(0)
    ids, model = words(7, 3), Tagger(nn.LSTM).eval()
    expected = model(ids)
    quantize_(model, dynamic_int8(), lambda module, path: path == "rnn")
    assert type(model.rnn) is QuantizedLSTM
    with torch.no_grad():
        assert_close(model(ids), expected, 30)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("config", ["token", "weights"])
def test_export(config: str) -> None:
    """torch.export and torch.compile take it, as they do the float layer."""
    torch.manual_seed(0)
    ids = words(4, 3)
    q = reference(Tagger(nn.GRU), CONFIGS[config], ids)
    with torch.no_grad():
        exported = torch.export.export(q, (ids,)).module()
        compiled = torch.compile(q, backend="eager")
        for other in (exported, compiled):
            assert_close(other(ids), q(ids), 60)
