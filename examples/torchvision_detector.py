"""Capture a detector of torchvision whole: resizing, anchors, heads, the choice of boxes, each in one program.

    python examples/torchvision_detector.py

SSDlite with random weights: every image gets boxes, since no class is sure of itself. Two images of other sizes than
that of the example get the same boxes as from the model; then the batch norms are folded, and the scores stay.
"""

from __future__ import annotations

import collections

import torch
from torchvision.models.detection import ssdlite320_mobilenet_v3_large

import graphwright
from graphwright.passes import fuse_conv_batch_norm


def main() -> None:
    """Capture, detect, fold, detect, and say so."""
    torch.manual_seed(0)
    model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None).eval()
    gm = graphwright.trace(model, ([torch.rand(3, 64, 80)],))
    kinds = collections.Counter(node.op for node in gm.graph.nodes)
    print(f"captured: {kinds['call_module']} modules, {kinds['call_function'] + kinds['call_method']} other operations")

    images = [torch.rand(3, 96, 64), torch.rand(3, 50, 70)]
    with torch.no_grad():
        wanted, given = model(images), gm(images)
        changes = fuse_conv_batch_norm(gm)
        folded = gm(images)
    for one, other, third in zip(wanted, given, folded, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
        torch.testing.assert_close(third["scores"], one["scores"], rtol=1e-3, atol=1e-5)
    print(f"{len(images)} images of other sizes: the same {[len(found['boxes']) for found in given]} boxes")
    print(f"{changes} batch norms and activations folded: the same scores")


if __name__ == "__main__":
    main()
