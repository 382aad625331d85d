"""GraphModule -> GraphModule: changes to whole programs, one pass per file.

A pass edits the module it is given in place and returns how many changes it made; zero means that there was
nothing to do. Read fuse_conv_batch_norm.py first.
"""

from graphwright.passes.fuse_conv_batch_norm import (
    FuseConvBatchNorm,
    fold_batch_norm,
    fuse_conv_batch_norm,
    scale_and_shift,
)
from graphwright.passes.fuse_conv_relu import ConvAddReLU, ConvReLU, FuseConvReLU, fuse_conv_relu

__all__ = [
    "ConvAddReLU",
    "ConvReLU",
    "FuseConvBatchNorm",
    "FuseConvReLU",
    "fold_batch_norm",
    "fuse_conv_batch_norm",
    "fuse_conv_relu",
    "scale_and_shift",
]
