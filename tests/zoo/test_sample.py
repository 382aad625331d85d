"""Small models of every set still pass what they are listed with; and how a run is compared with the list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.zoo.coverage import Held, held_in_graph, table
from tests.zoo.judging import JUDGE, run_judge
from tests.zoo.passing import PASSING, missing, read_passing, read_results, together, write_passing

# Different families, each judged in a few seconds.
SAMPLE = (
    "classic/ternary",
    "classic/while_break",
    "classic/buffer_counter",
    "classic/inner_grad",
    "tv/mobilenet_v3_small",
    "tv/shufflenet_v2_x0_5",
    "timm/test_vit",
    "timm/efficientvit_b0",
    "timm/swiftformer_xs",
    "hf/bert_cls",
    "hf/gpt2",
    "hf/qwen2_moe",
    "hf/t5",
    "hf/wav2vec2_masked",
    "hf/clip",
)


@pytest.mark.slow
@pytest.mark.skipif(not JUDGE.exists(), reason="the models and their judge are not here")
def test_a_sample_of_the_models_passes_what_it_is_listed_with(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    run_judge(results, SAMPLE)
    listed = {name: levels for name, levels in read_passing(PASSING).items() if name in SAMPLE}
    assert len(listed) == len(SAMPLE)
    assert missing(listed, read_results(results)) == []
    assert [one for one in held_in_graph(results) if not one.is_whole] == []


def test_levels_that_leave_and_levels_that_are_new_are_named(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    rows = [{"model": "a", "L0": "pass", "L1": "pass", "L2": "fail", "L3": "na"}, {"model": "b", "L0": "timeout"}]
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_results(results)
    assert found == {"a": ("L0", "L1"), "b": ()}

    listed = {"a": ("L0", "L2", "L3"), "b": ("L0",), "c": ("L0", "L1")}
    assert missing(listed, found) == ["a: L2 L3", "b: L0", "c: L0 L1"]
    assert missing(found, listed) == ["a: L1"]
    assert together(listed, found) == {"a": ("L0", "L1", "L2", "L3"), "b": ("L0",), "c": ("L0", "L1")}


def test_the_list_is_sorted_and_reads_back(tmp_path: Path) -> None:
    listed = read_passing(PASSING)
    write_passing(tmp_path / "passing.txt", {**dict(reversed(listed.items())), "passes/nothing": ()})
    assert (tmp_path / "passing.txt").read_text() == PASSING.read_text()


def test_what_a_graph_does_not_hold_is_listed(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    rows = [
        {"model": "a", "coverage": 1.0, "own_frames": 3, "own_calls": []},
        {"model": "b", "coverage": 0.5, "own_frames": 2, "own_calls": ["Cell.step", "Cell.step"]},
        {"model": "not captured"},
    ]
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    held = held_in_graph(results)
    assert held == [Held("a", 1.0, 3, ()), Held("b", 0.5, 2, ("Cell.step", "Cell.step"))]
    assert table(held).splitlines()[2:] == [
        "| coverage 1.0 | 1 (50%) |",
        "| coverage at least 0.95 | 1 (50%) |",
        "| none of their own functions | 1 (50%) |",
        "| none of their own frames, outputs included | 0 (0%) |",
        "b: coverage 0.500; runs Cell.step",
    ]
