"""A program of a user, checked by mypy and pyright against an installed graphwright: the annotations are seen."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import assert_type

import graphwright
from graphwright.analysis import Profile, Summary, VerifyReport

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
x = torch.ones(2, 4)
gm = graphwright.trace(model, (x,))
assert_type(gm, graphwright.GraphModule)
assert_type(gm.graph, graphwright.Graph)
assert_type(graphwright.summary(gm, x), Summary)
assert_type(graphwright.profile(gm, x), Profile)
assert_type(graphwright.verify(model, gm, x), VerifyReport)
assert_type(graphwright.__version__, str)
graphwright.record(model, lambda m: m(x))
