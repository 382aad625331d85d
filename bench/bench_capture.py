"""Measure what `graphwright.trace` costs on whole models: against eager on meta tensors, and against torch.export.

    python bench/bench_capture.py [--check] [--margin 1.25] [--models resnet18 bert llama]

Takes some minutes: every model is first captured and exported in a process of its own, where nothing is warm. Warm
captures are those of a model that was captured before: they begin with what was learned then, in one pass. `passes` are
those of the first.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import graphwright
from models import _torchvision
from results import duration, versions
from timing import Case, interleave

ROUNDS = 5
EAGER_RATIO, PASS_S = 1.5, 0.2  # the median capture takes at most so many eager forwards, and seconds per pass
EXPORT_RATIO, MEDIAN_EXPORT_RATIO = 0.6, 0.4


@dataclass(frozen=True)
class Subject:
    """A model with inputs; `for_meta` are inputs with which it asks for no data, since meta tensors have none."""

    model: nn.Module
    kwargs: dict[str, Any]
    for_meta: dict[str, Any]


def _bert(layers: int = 2, width: int = 64, heads: int = 4, masked: bool = False) -> Subject:
    transformers = transformers_here()
    config = transformers.BertConfig(
        vocab_size=1000, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width,
    )  # fmt: skip
    ids = torch.randint(0, 1000, (2, 8))
    mask = {"attention_mask": torch.ones(2, 8, dtype=torch.long)} if masked else {}
    return Subject(transformers.BertModel(config), {"input_ids": ids, **mask}, {"input_ids": ids})


def _llama(layers: int = 2) -> Subject:
    transformers = transformers_here()
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=128,
    )  # fmt: skip
    inputs = {"input_ids": torch.randint(0, 1000, (2, 8)), "use_cache": False}
    # With the mask of two dimensions, or none, it looks at the data of masks and positions.
    return Subject(transformers.LlamaForCausalLM(config), inputs, {**inputs, "attention_mask": torch.ones(2, 1, 8, 8)})


def _resnet(name: str) -> Subject:
    inputs = {"x": torch.randn(1, 3, 64, 64)}
    return Subject(_torchvision().models.get_model(name, weights=None), inputs, inputs)


def transformers_here() -> Any:
    _torchvision()  # transformers imports it, and may do so only after its operators are declared
    import transformers

    return transformers


MODELS: dict[str, Callable[[], Subject]] = {
    "resnet18": lambda: _resnet("resnet18"),
    "bert": _bert,
    "llama": _llama,
    "minilm": lambda: _bert(layers=6, width=384, heads=12, masked=True),
    "resnet50": lambda: _resnet("resnet50"),
    "bert_24_layers": lambda: _bert(layers=24),
    "llama_8_layers": lambda: _llama(layers=8),
}
CHECKED = ("resnet18", "bert", "llama", "minilm")  # the others show how the cost grows


def build(name: str) -> Subject:
    """Build a model in eval mode."""
    torch.manual_seed(0)
    subject = MODELS[name]()
    subject.model.eval().requires_grad_(False)
    return subject


def capture(subject: Subject) -> graphwright.GraphModule:
    return graphwright.trace(subject.model, (), subject.kwargs)


def export(subject: Subject) -> Any:
    return torch.export.export(subject.model, (), subject.kwargs)


def first_s(name: str, work: str) -> float:
    """Seconds of CPU time that a capture or export takes in a fresh process, imports and the model made before.

    Of the second of two processes: as where a package is installed, there is bytecode of all that is imported.
    """
    code = (
        "import sys, time, bench_capture as b; s = b.build(sys.argv[1]); t = time.process_time(); "
        "getattr(b, sys.argv[2])(s); print(time.process_time() - t)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", code, name, work],
                capture_output=True,
                text=True,
                cwd=sys.path[0],
                env=environment,
            )
    return float(done.stdout.split()[-1]) if done.returncode == 0 else float("nan")


def main() -> int:
    """Print the table; return 1 if `--check` is given and a goal is missed."""
    options = _parse()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{versions()}; CPU time on one thread, median over {ROUNDS} rounds\n")
    heads = ["", "first", "torch.export first", "warm", "passes", "nodes", "eager on meta", "limit", "torch.export"]
    print(f"| {' | '.join([*heads, 'ratio', 'rounds', 'goal', ''])} |\n|{'---|' * 13}")
    ratios, to_limits, good = [], [], True
    for name in options.models:
        subject = build(name)
        gm = capture(subject)
        _check_same_results(gm, subject)
        meta = copy.deepcopy(subject.model).to("meta")
        on_meta = {key: value.to("meta") if hasattr(value, "to") else value for key, value in subject.for_meta.items()}
        cases = [
            Case("torch.export", lambda s=subject: export(s)),
            Case("graphwright", lambda s=subject: capture(s)),
            Case("eager", lambda m=meta, k=on_meta: m(**k)),
        ]
        with torch.no_grad():
            exported, ours, eager = interleave(cases, baseline="torch.export", rounds=ROUNDS)
        passes = gm.report.facts.passes
        limit_s = EAGER_RATIO * eager.median_s + PASS_S * passes
        first = [first_s(name, work) for work in ("capture", "export")]
        passed = ours.ratio <= EXPORT_RATIO * options.margin
        if name in CHECKED:
            good &= passed
            ratios.append(ours.ratio)
            to_limits.append(ours.median_s / limit_s)
        cells = [
            name, *map(duration, first), duration(ours.median_s), str(passes),
            str(sum(1 for _ in gm.graph.all_nodes())), duration(eager.median_s), duration(limit_s),
            duration(exported.median_s), f"{ours.ratio:.2f}", f"{ours.lowest_ratio:.2f}..{ours.highest_ratio:.2f}",
            f"<= {EXPORT_RATIO}" if name in CHECKED else "", ("pass" if passed else "FAIL") if name in CHECKED else "",
        ]  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
    if ratios:
        median, limited = statistics.median(ratios), statistics.median(to_limits)
        good &= median <= MEDIAN_EXPORT_RATIO * options.margin and limited <= 1.0 * options.margin
        print(f"\nmedian ratio to torch.export {median:.2f}, goal <= {MEDIAN_EXPORT_RATIO}")
        print(f"median ratio to {EAGER_RATIO} eager forwards + {PASS_S} s per pass {limited:.2f}, goal <= 1")
    return int(options.check and not good)


def _check_same_results(gm: nn.Module, subject: Subject) -> None:
    with torch.no_grad():
        ours, theirs = gm(**subject.kwargs), subject.model(**subject.kwargs)
    for mine, its in zip(_tensors(ours), _tensors(theirs), strict=True):
        torch.testing.assert_close(mine, its)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return [tensor for item in items for tensor in _tensors(item)]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--margin", type=float, default=1.0, help="let a ratio be this many times its goal (noise)")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="NAME")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
