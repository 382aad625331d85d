"""The picture of what layers lose."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import torch
from torch import nn

import graphwright
from graphwright.quantization import QConfigMapping, static_int8


def test_each_layer_has_a_bar_as_long_as_its_ratio() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    mapping = QConfigMapping().set_global(static_int8()).set_module_name("2", None)
    explained = graphwright.quantize(model, mapping, [torch.randn(32, 4)], engine=None).quantization.explain()
    picture = ElementTree.fromstring(explained.to_svg("a < b"))
    texts = [each.text for each in picture.iter() if each.tag.endswith("text")]
    assert "a < b" in texts and {"0", "2", "4"} <= set(texts)
    ratios = [row.sqnr for row in explained.rows if row.sqnr is not None]
    widths = [float(each.attrib["width"]) for each in picture.iter() if each.tag.endswith("rect")][-2:]
    assert widths == [round(ratio * 8, 1) for ratio in ratios]
    assert [row.sqnr for row in explained.worst(1).rows] == [min(ratios)]
