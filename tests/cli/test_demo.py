"""The demonstration runs every step, and its exit status is the truth about what held."""

from __future__ import annotations

import dataclasses
import importlib.util
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from graphwright import GraphModule, symbolic_trace
from graphwright.cli import demo as demo_file
from graphwright.cli import main, sentences
from graphwright.cli.demo import demonstrate
from graphwright.cli.detector import Bottleneck
from graphwright.cli.sentences import PACKAGE, UnavailableError, load_encoder, sentence_subject, use_tanh_gelu
from graphwright.cli.subject import Effect, Subject

HAS_ENCODER = importlib.util.find_spec(PACKAGE) is not None and importlib.util.find_spec("transformers") is not None
needs_encoder = pytest.mark.skipif(not HAS_ENCODER, reason=f"needs transformers and {PACKAGE}")


def double(gm: GraphModule) -> int:
    """Insert a multiplication by two before the output."""
    output = gm.graph.output_node()
    with gm.graph.inserting_before(output):
        output.args = (gm.graph.call_function(operator.mul, (output.args[0], 2)),)
    return 1


def doubled(original: nn.Module, transformed: nn.Module) -> Effect:
    x = torch.ones(1, 4, 5, 5)
    holds = torch.equal(original(x) * 2, transformed(x))
    return Effect(("results double",), "the results are doubled", holds)


def tiny(**changes: Any) -> Subject:
    subject = Subject(
        name="tiny",
        about=("one block",),
        model=Bottleneck(4, 2).eval(),
        calls={"one": ((torch.ones(1, 4, 5, 5),), {}), "three": ((torch.ones(3, 4, 5, 5),), {})},
        part="shortcut",
        package="tiny_package",
        change="one by two",
        transform=double,
        compare=doubled,
    )
    return dataclasses.replace(subject, **changes)


def run(subject: Subject, folder: Path) -> tuple[bool, str]:
    said: list[str] = []
    held = demonstrate(subject, folder, said.append)
    return held, "\n".join(said)


@pytest.mark.slow
def test_every_step_is_taken(tmp_path: Path) -> None:
    held, said = run(tiny(), tmp_path)
    assert held, said
    for part in (
        "1. The model: tiny",
        "captured in",
        "three  float32(3, 4, 5, 5)  equal    0",
        "opcode",
        "1 changes,",
        "results double",
        "answered 2 calls in a process of its own",
        "a fresh process computes the same from the files",
    ):
        assert part in said
    assert "NO" not in said
    assert (tmp_path / "tiny_package" / "__init__.py").is_file()


def nothing(gm: GraphModule) -> int:
    return 0


FAILS = [
    pytest.param({"transform": nothing}, "there was something to change", id="nothing to change"),
    pytest.param(
        {"compare": lambda original, transformed: Effect((), "it is small", False)}, "it is small", id="a large effect"
    ),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("changes", "check"), FAILS)
@pytest.mark.slow
def test_a_check_that_does_not_hold_is_told(changes: dict[str, Any], check: str, tmp_path: Path) -> None:
    held, said = run(tiny(**changes), tmp_path)
    assert not held
    (line,) = [line for line in said.splitlines() if line.startswith(check)]
    assert line.endswith("NO")


@pytest.mark.slow
def test_a_wrong_capture_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = demo_file.trace

    def wrong(*args: Any, **kwargs: Any) -> GraphModule:
        gm = capture(*args, **kwargs)
        double(gm)
        return gm

    monkeypatch.setattr(demo_file, "trace", wrong)
    held, said = run(tiny(), tmp_path)
    assert not held
    assert "output: values differ at" in said


def test_a_package_that_cannot_be_imported_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_file, "_CHECK", "raise ImportError('no such thing')")
    monkeypatch.setattr(demo_file, "_choose", lambda model: tiny())
    assert main(["demo", "--out", str(tmp_path)]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("the written package cannot be used:")
    assert "ImportError: no such thing" in errors


# ---- the command


def test_an_error_is_told_by_its_message_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(model: str) -> Subject:
        raise ValueError("something is wrong")

    monkeypatch.setattr(demo_file, "_choose", fail)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "ValueError: something is wrong\n"
    assert main(["demo", "--debug"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


MISUSE = [pytest.param([], id="no command"), pytest.param(["demo", "--model", "other"], id="an unknown model")]


@pytest.mark.parametrize("arguments", MISUSE)
def test_misuse_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert "graphwright" in captured.err + captured.out


@pytest.mark.parametrize("missing", [PACKAGE, "transformers"])
def test_without_the_encoder_it_goes_on_with_the_detector(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = object()
    monkeypatch.setattr(sentences.importlib.util, "find_spec", lambda name: None if name == missing else found)
    assert demo_file._choose("auto").name == "detector"
    printed = capsys.readouterr().out
    assert f"{missing} is not installed (pip install " in printed
    assert "going on with a detector of random weights" in printed
    with pytest.raises(UnavailableError, match="is not installed"):
        demo_file._choose("sentences")


# ---- the sentence encoder

GELU = [
    pytest.param(lambda x: F.gelu(x), 1, id="one"),
    pytest.param(lambda x: F.gelu(F.gelu(x, approximate="none")), 2, id="two"),
]
NOT_GELU = [
    pytest.param(lambda x: F.gelu(x, approximate="tanh"), id="done before"),
    pytest.param(lambda x: F.relu(x).tanh(), id="others"),
]


@pytest.mark.parametrize(("program", "count"), GELU)
def test_gelus_are_approximated(program: Callable[..., Any], count: int) -> None:
    gm = symbolic_trace(program)
    assert use_tanh_gelu(gm) == count
    x = torch.linspace(-3, 3, 50)
    expected = x
    for _ in range(count):
        expected = F.gelu(expected, approximate="tanh")
    assert torch.equal(gm(x), expected)
    assert use_tanh_gelu(gm) == 0


@pytest.mark.parametrize("program", NOT_GELU)
def test_other_activations_stay(program: Callable[..., Any]) -> None:
    gm = symbolic_trace(program)
    before = str(gm.graph)
    assert use_tanh_gelu(gm) == 0
    assert str(gm.graph) == before


@needs_encoder
@pytest.mark.slow
def test_a_small_encoder_of_the_same_class(tmp_path: Path) -> None:
    model, tokenizer, hidden = load_encoder()
    torch.manual_seed(0)
    config = type(model.config)(
        vocab_size=30522, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    small = sentence_subject("small", type(model)(config).eval(), tokenizer, hidden)
    held, said = run(small, tmp_path)
    assert held, said
    assert "2 changes" in said


@needs_encoder
@pytest.mark.slow
def test_the_real_encoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", "sentences", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "6 changes" in printed
    assert "NO" not in printed.split("Summary")[1]


@pytest.mark.slow
def test_the_detector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", "detector", "--out", str(tmp_path)]) == 0
    assert "112 changes" in capsys.readouterr().out
