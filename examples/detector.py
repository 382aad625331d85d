"""Capture a detector, fold its batch norms and ReLUs, check the result, and write it as a package of plain Python.

$ python examples/detector.py [FOLDER]
"""

import collections
import importlib
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import graphwright
from graphwright.analysis import verify
from graphwright.cli.detector import make_detector
from graphwright.passes import fuse_conv_batch_norm


def kinds(gm: nn.Module) -> str:
    """Count the modules that a captured program calls, by class."""
    called = gm.graph.find_nodes(op="call_module")
    counts = collections.Counter(type(gm.get_submodule(node.target)).__name__ for node in called)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def main(folder: Path | None = None) -> None:
    model = make_detector()  # ResNet-50, three upsampling stages, heads hm, wh, reg and angle
    gm = graphwright.symbolic_trace(model)
    print(f"captured: {len(gm.graph.nodes)} nodes: {kinds(gm)}")

    changes = fuse_conv_batch_norm(gm)
    print(f"{changes} folded: {len(gm.graph.nodes)} nodes: {kinds(gm)}\n")
    print("\n".join(gm.code.strip().splitlines()[:8]), "\n    ...\n")

    images = [torch.randn(1, 3, 64, 64), torch.randn(2, 3, 96, 64)]
    report = verify(model, gm, images, rtol=1e-3, atol=1e-4)
    print(report)
    assert report.ok

    package = (folder or Path(tempfile.mkdtemp())) / "folded_detector"
    gm.to_folder(package, "FoldedDetector")
    sys.path.insert(0, str(package.parent))
    imported = importlib.import_module("folded_detector").FoldedDetector().eval()
    assert all(torch.equal(imported(images[0])[name], values) for name, values in gm(images[0]).items())
    print(f"\nwritten to {package}, imported from there: the same maps, {', '.join(imported(images[0]))}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
