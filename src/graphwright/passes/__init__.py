"""GraphModule -> GraphModule: changes to whole programs, one pass per file.

A pass edits the module it is given in place and returns how many changes it made; zero means that there was
nothing to do. Read fuse_conv_batch_norm.py first.
"""

from graphwright.passes.const_fold import (
    FoldedGraphModule,
    get_unique_attr_name_in_module,
    inline_module,
    split_const_subgraphs,
)
from graphwright.passes.fuse_conv_batch_norm import (
    FuseConvBatchNorm,
    fold_batch_norm,
    fuse_conv_batch_norm,
    scale_and_shift,
)
from graphwright.passes.fuse_conv_relu import ConvAddReLU, ConvReLU, FuseConvReLU, fuse_conv_relu
from graphwright.passes.pass_base import PassBase, PassResult
from graphwright.passes.pass_order import (
    this_before_that_pass_constraint,
    topological_sort_passes,
    validate_pass_schedule_constraint,
)
from graphwright.passes.pass_schedule import PassManager, pass_result_wrapper
from graphwright.passes.shape_prop import ShapeProp, TensorMetadata, extract_tensor_metadata
from graphwright.passes.subgraph_modules import HolderModule, compare_graphs, lift_subgraph_as_module

__all__ = [
    "ConvAddReLU",
    "ConvReLU",
    "FoldedGraphModule",
    "FuseConvBatchNorm",
    "FuseConvReLU",
    "HolderModule",
    "PassBase",
    "PassManager",
    "PassResult",
    "ShapeProp",
    "TensorMetadata",
    "compare_graphs",
    "extract_tensor_metadata",
    "fold_batch_norm",
    "fuse_conv_batch_norm",
    "fuse_conv_relu",
    "get_unique_attr_name_in_module",
    "inline_module",
    "lift_subgraph_as_module",
    "pass_result_wrapper",
    "scale_and_shift",
    "split_const_subgraphs",
    "this_before_that_pass_constraint",
    "topological_sort_passes",
    "validate_pass_schedule_constraint",
]
