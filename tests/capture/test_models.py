"""`trace` on real architectures with random weights: other sizes, gradients, classes, state_dict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import nn

from graphwright import split, symbolic_trace, trace, verify
from graphwright.errors import PassError

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def _transformers() -> Any:
    """Import transformers, without torchvision where its compiled operators do not load."""
    if "torchvision" not in sys.modules:
        _torchvision()
    return pytest.importorskip("transformers")


def _torchvision() -> Any:
    declare_torchvision()
    return pytest.importorskip("torchvision")


SMALL = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip


def _ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, 100, (batch, length))


def _masked(batch: int, length: int) -> Inputs:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, length // 2 :] = 0
    return (), {"input_ids": _ids(batch, length), "attention_mask": mask}


def _uncached(batch: int, length: int) -> Inputs:
    return (), {"input_ids": _ids(batch, length), "use_cache": False}


def _gpt2() -> nn.Module:
    transformers = _transformers()
    config = transformers.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
    return transformers.GPT2LMHeadModel(config)  # type: ignore[no-any-return]


MODELS: list[Any] = [
    pytest.param(lambda: _transformers().BertModel(_transformers().BertConfig(**SMALL)), _masked, id="bert"),
    pytest.param(_gpt2, _uncached, id="gpt2"),
    pytest.param(
        lambda: _transformers().LlamaForCausalLM(_transformers().LlamaConfig(**SMALL, num_key_value_heads=2)),
        _uncached,
        id="llama",
    ),
    *[
        pytest.param(
            lambda name=name: _torchvision().models.get_model(name, weights=None),
            lambda batch, length: ((torch.randn(batch, 3, 32 + length, 64),), {}),
            id=name,
        )
        for name in ("resnet50", "resnet18")
    ],
]


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("build", "inputs"), MODELS)
def test_a_captured_model_equals_the_original(
    build: Callable[[], nn.Module], inputs: Callable[[int, int], Inputs]
) -> None:
    torch.manual_seed(0)
    model = build().eval()
    args, kwargs = inputs(2, 6)
    gm = trace(model, args, kwargs)
    assert type(gm).__mro__[1] is type(model)
    assert list(gm.state_dict()) == list(model.state_dict())
    report = verify(model, gm, [inputs(2, 6), inputs(3, 9)], grads=True)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("has_mask", [False, True])
def test_each_layer_of_a_decoder_is_there_once(has_mask: bool) -> None:
    torch.manual_seed(0)
    transformers = _transformers()
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, use_cache=False)
    model = transformers.LlamaForCausalLM(config).eval()
    args, other = (_ids(2, 6),), (_ids(3, 9),)
    if has_mask:
        padded = torch.ones(3, 9, dtype=torch.long)
        padded[0, :4] = 0
        args, other = (*args, torch.ones(2, 6, dtype=torch.long)), (*other, padded)
    for paths in (8, 1):
        gm = trace(model, args, max_paths=paths)
        assert verify(model, gm, [args, other], grads=True).ok
        assert sum(node.target == "model.layers.1.self_attn.q_proj" for node in gm.graph.all_nodes()) == 1
        stages = split(gm, at=["model.layers.1"])
        assert torch.equal(stages.module(*args).logits, gm(*args).logits)


def test_what_forks_is_cut_where_it_is_captured_once() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, wants_both: bool = False) -> Any:
            hidden = self.first(x)
            if x.size(0) > 3:
                return hidden, self.last(hidden)
            return self.last(hidden)

    model, args = Early(), (torch.ones(2, 3),)
    with pytest.raises(PassError, match="max_paths=1"):
        split(trace(model, args), at=["last"])
    gm = trace(model, args, max_paths=1)
    assert torch.equal(split(gm, at=["last"]).module(*args), gm(*args))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v3_small", "swin_t"])
def test_symbolic_names_are_torch_fx_s(name: str) -> None:
    model = _torchvision().models.get_model(name, weights=None).eval()
    ours, theirs = symbolic_trace(model), torch.fx.symbolic_trace(model)
    names = [node.name for node in ours.graph.nodes if not str(node.target).endswith(".training")]
    assert names == [node.name for node in theirs.graph.nodes]
    x = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(ours(x), theirs(x))
