"""What operators mean: which calls have effects beyond their value, and how their values are spelled.

Nodes come in, facts go out; nothing is edited. Read effects.py first.
"""

import torch

from graphwright.ir import register_home
from graphwright.ops.effects import RANDOM_FUNCTIONS, is_impure, is_inplace, is_random
from graphwright.ops.regions import REGIONS, cond, for_loop, is_region, while_loop
from graphwright.ops.spelling import TorchSpelling
from graphwright.ops.statements import enter_context, exit_context, unpack

__all__ = [
    "RANDOM_FUNCTIONS",
    "REGIONS",
    "TorchSpelling",
    "cond",
    "enter_context",
    "exit_context",
    "for_loop",
    "is_impure",
    "is_inplace",
    "is_random",
    "is_region",
    "unpack",
    "while_loop",
]

# Where functions live that do not say so themselves.
for _home in (torch, torch.nn.functional, torch._C._nn, torch.fft, torch.linalg, torch.special, torch._C, torch.Tensor):
    register_home(_home)
