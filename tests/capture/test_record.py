"""`record`: a model is captured for the calls that a run makes of it, and the same run works on the result."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.capture.test_generate import TOKENS, llama, t5
from tests.runtime.declare_torchvision import declare_torchvision
from torch import nn

from graphwright import CaptureError, GraphModule, record
from graphwright.capture import TracerWarning, recorded_run


class Steps(nn.Module):
    """Calls itself as language models do: first without, then with what it remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(()))

    def prepare(self, x: Any) -> Any:
        return x * 2

    def forward(self, x: Any, memory: Any = None, *, scale: float = 1.0) -> Any:
        self.seen += 1
        memory = [] if memory is None else memory
        memory.append(self.linear(x) * scale)
        return memory

    def generate(self, x: Any, steps: int = 4) -> Any:
        x, memory = self.prepare(x), None
        for i in range(steps):
            memory = self(x, memory=memory, scale=float(i))
        return torch.stack(memory)


def test_the_run_works_on_the_result() -> None:
    """Steps that differ in sizes and numbers are one example; the model is left as it was."""
    model = Steps()
    before = copy.deepcopy(model.state_dict())
    gm = record(model, lambda m: [m.generate(torch.ones(2, 4)), m.generate(torch.ones(3, 4), steps=2)])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert "forward" not in vars(model)
    assert gm.graphs.names == ["forward_1", "forward_2", "forward_3", "forward_4"]  # memories of 0, 1, 2 and 3
    for x in (torch.randn(2, 4), torch.randn(5, 4)):
        assert torch.equal(gm.generate(x), model.generate(x))


def test_calls_are_kept_as_the_caller_made_them() -> None:
    def run(model: Any) -> None:
        model.prepare(torch.ones(2, 4))
        model(torch.ones(2, 4), None)

    gm = record(Steps(), run, methods=("forward", "prepare"))
    assert gm.graphs.names == ["forward", "prepare"]
    assert len(gm(torch.ones(1, 4))) == 1


def test_what_is_called_is_watched_wherever_it_is_called() -> None:
    """A method that looks at the signature of another one sees that of the original."""

    class Asking(Steps):
        def generate(self, x: Any, steps: int = 1) -> Any:
            import inspect

            assert list(inspect.signature(self.forward).parameters) == ["x", "memory", "scale"]
            return super().generate(x, steps)

    assert len(record(Asking(), lambda m: m.generate(torch.ones(2, 4))).graphs) == 1


@pytest.mark.parametrize(
    ("call", "told"),
    [
        pytest.param(lambda: record(Steps(), lambda m: None), "the run makes no call of Steps.forward", id="no call"),
        pytest.param(lambda: record(Steps(), len, methods=("walk",)), "Steps has no method 'walk'", id="no method"),
        pytest.param(lambda: record(Steps(), len, methods="walk"), "methods is a text", id="a text"),
        pytest.param(lambda: record(len, len), "watches the methods of a module", id="no module"),
    ],
)
def test_what_cannot_be_recorded(call: Any, told: str) -> None:
    with pytest.raises(CaptureError, match=told):
        call()


def test_an_error_of_the_run_leaves_the_model_as_it_was() -> None:
    model = Steps()

    def run(model: Any) -> None:
        model(torch.ones(2, 4))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        record(model, run)
    assert "forward" not in vars(model)
    assert model.seen == 0


def whisper() -> Any:
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 16, "num_mel_bins": 8, "max_source_positions": 30, "max_target_positions": 40}
    layers = {f"{side}_{kind}": size for side in ("encoder", "decoder") for kind, size in LAYERS.items()}
    tokens = {**TOKENS, "decoder_start_token_id": 1, "suppress_tokens": None, "begin_suppress_tokens": None}
    return transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**sizes, **layers, **tokens))


LAYERS = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}


def calls(build: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Calls of other batches and lengths, with and without padding."""
    if build is whisper:
        return [(torch.randn(batch, 8, 60), {}) for batch in (1, 2, 3)]
    made = []
    for shape in ((1, 4), (2, 6), (3, 5)):
        ids = torch.randint(1, 49, shape)
        mask = torch.ones_like(ids)
        mask[0, :2] = 0
        made += [(ids, {}), (ids, {"attention_mask": mask})]
    return made


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"do_sample": True}, {"num_beams": 2}], ids=["greedy", "sampled", "beams"])
@pytest.mark.parametrize("build", [llama, t5, whisper])
def test_generate_is_recorded(build: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    declare_torchvision()
    torch.manual_seed(0)
    model = build().eval()
    every = calls(build)
    expected = []

    def generate(model: Any, given: Any, named: Any) -> Any:
        torch.manual_seed(1)
        return model.generate(given, max_new_tokens=6, **named, **options)

    gm = record(model, lambda m: [generate(m, *call) for call in every[:2]])
    expected = [generate(model, *call) for call in every]

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the original forward runs")

    monkeypatch.setattr(type(model), "forward", refuse)
    for call, wanted in zip(every, expected, strict=True):
        assert torch.equal(generate(gm, *call), wanted)


class Coder(nn.Module):
    """A model whose encoder is called once, before all calls of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.core = nn.Module()
        self.core.encoder = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.core.drop = nn.Dropout()
        self.out = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return self.out(x) + memory  # type: ignore[no-any-return]

    def generate(self, x: torch.Tensor) -> torch.Tensor:
        memory = self.core.drop(self.core.encoder(x))
        for _ in range(3):
            x = self(x, memory)
        return x


def test_a_run_says_what_it_calls_inside_of_a_model() -> None:
    model = Coder().eval()
    recorded = recorded_run(model, lambda m: m.generate(torch.ones(2, 4)))
    assert recorded.others == ("core.encoder",) and [*recorded.calls] == ["forward"]  # a dropout has no tensors
    assert all("forward" not in vars(module) for module in model.modules())
    with pytest.raises(CaptureError, match=r"no call of Coder.forward\n.*record\(model.core.encoder, lambda part"):
        record(model, lambda m: m.core.encoder(torch.ones(2, 4)))


def test_parts_that_a_run_calls_may_be_others_in_a_copy() -> None:
    model, x = Coder().eval(), torch.randn(2, 4)
    recorded = recorded_run(model, lambda m: m.generate(x))

    def captured(part: nn.Module, path: str, run: Any) -> nn.Module:
        return record(part, run)

    copied = recorded.with_other_parts(captured)
    assert isinstance(copied.core.encoder, GraphModule) and not isinstance(model.core.encoder, GraphModule)
    assert copied.out is model.out and torch.equal(copied.generate(x), model.generate(x))

    def fails(part: nn.Module, path: str, run: Any) -> nn.Module:
        raise CaptureError("no way")

    with pytest.warns(TracerWarning, match=r"core\.encoder, which the run calls by itself, stays as it is: no way"):
        assert recorded.with_other_parts(fails).core.encoder is model.core.encoder
