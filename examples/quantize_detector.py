"""Quantize a detector with upsampling by transposed convolutions, see what became of its layers, and export it.

$ python examples/quantize_detector.py [FOLDER]
"""

import collections
import sys
import tempfile
from pathlib import Path

import torch

import graphwright
from graphwright.cli.detector import make_detector
from graphwright.quantization import sqnr, static_int8, to_onnx


def size_of(module: torch.nn.Module) -> float:
    """The size of a module's state in MB."""
    return sum(value.numel() * value.element_size() for value in module.state_dict().values()) / 1e6


def main(folder: Path | None = None) -> None:
    torch.manual_seed(0)
    model = make_detector()  # ResNet-50, three upsampling stages, heads hm, wh, reg and angle
    images = [torch.randn(2, 3, 96, 96) for _ in range(3)]
    q = graphwright.quantize(model, static_int8(), images, engine=None)

    rows = q.quantization.rows
    counts = collections.Counter((row.op, row.decision) for row in rows)
    print("\n".join(f"{count:3} {op}: {decision}" for (op, decision), count in counts.items()))
    print("\nthe layers that lose most alone:")
    for row in sorted((row for row in rows if row.sqnr is not None), key=lambda row: row.sqnr or 0.0)[:3]:
        print(f"  {row.path}: {row.sqnr:.1f} dB")

    image = torch.randn(1, 3, 96, 96)
    with torch.no_grad():
        expected, given = model(image), q(image)
    losses = {name: sqnr(values, given[name]) for name, values in expected.items()}
    print("\n" + ", ".join(f"{name} {loss:.1f} dB" for name, loss in losses.items()))
    assert min(losses.values()) > 20

    home = folder or Path(tempfile.mkdtemp())
    graphwright.save(q, home / "detector.gw", as_plain=True)  # as an nn.Module: no class is named in the file
    loaded = graphwright.load(home / "detector.gw")
    assert all(torch.equal(loaded(image)[name], values) for name, values in given.items())
    print(f"\nstate: {size_of(model):.1f} MB in float, {size_of(q):.1f} MB quantized")

    to_onnx(q, home / "detector.onnx", "tensorrt")
    print("written for TensorRT: zero points 0, both operands of sums rounded")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
