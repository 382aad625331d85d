"""GraphModule -> GraphModule: changes to whole programs, one pass per file.

A pass edits the module it is given in place and returns how many changes it made; zero means that there was
nothing to do. Read fuse_conv_batch_norm.py first.
"""

from graphwright.passes.collapse_chains import CollapseChains
from graphwright.passes.const_fold import (
    FoldedGraphModule,
    get_unique_attr_name_in_module,
    inline_module,
    split_const_subgraphs,
)
from graphwright.passes.dead_values import RemoveDeadValues, remove_dead_values
from graphwright.passes.extraction import extract
from graphwright.passes.feature_extractor import create_feature_extractor, get_graph_node_names
from graphwright.passes.fold_batch_norm import fold_batch_norm, fold_batch_norm_before, scale_and_shift
from graphwright.passes.fold_conditions import FoldConditions
from graphwright.passes.fold_constants import FoldConstants
from graphwright.passes.functional_to_module import UseModules
from graphwright.passes.fuse_activations import FuseActivations
from graphwright.passes.fuse_conv_batch_norm import FuseConvBatchNorm, fuse_conv_batch_norm
from graphwright.passes.fuse_conv_relu import ConvAddReLU, ConvReLU, FuseConvReLU, fuse_conv_relu
from graphwright.passes.hoist_invariants import HoistInvariants
from graphwright.passes.insert_checkpoints import InsertCheckpoints
from graphwright.passes.merge_conditions import MergeConditions
from graphwright.passes.merge_matmul import are_nodes_independent, may_depend_on, merge_matmul, split_result_tensors
from graphwright.passes.merge_parallel_linears import MergeParallelLinears
from graphwright.passes.merge_subexpressions import MergeSubexpressions
from graphwright.passes.module_to_functional import UseFunctions
from graphwright.passes.node_names import node_names
from graphwright.passes.normalize import AnnotateTypesWithSchema, NormalizeArgs, NormalizeOperators
from graphwright.passes.optimize_for_inference import (
    MklSubgraph,
    UnionFind,
    extract_subgraph,
    fuse,
    gen_mkl_autotuner,
    matches_module_pattern,
    modules_to_mkldnn,
    optimize_for_inference,
    parent_name,
    remove_dropout,
    replace_node_module,
    reset_modules,
    use_mkl_length,
)
from graphwright.passes.pass_base import PassBase, PassResult
from graphwright.passes.pass_order import (
    this_before_that_pass_constraint,
    topological_sort_passes,
    validate_pass_schedule_constraint,
)
from graphwright.passes.pass_schedule import PassManager, pass_result_wrapper
from graphwright.passes.pipeline import Pipeline, PipelineResult
from graphwright.passes.propagate_channels_last import PropagateChannelsLast
from graphwright.passes.pruning import prune
from graphwright.passes.recognize_norms import RecognizeNorms
from graphwright.passes.remove_dead_code import RemoveDeadCode
from graphwright.passes.remove_guards import remove_guards
from graphwright.passes.remove_in_place import RemoveInPlace
from graphwright.passes.remove_no_ops import RemoveNoOps
from graphwright.passes.reversible import (
    ChangeTrueDivToMulByInverse,
    ReversibleTransformation,
    Transformation,
    compose,
)
from graphwright.passes.reversible_batch_norms import FuseBatchNorm1dInLinear, FuseBatchNorm2dInConv2d
from graphwright.passes.reversible_linears import FuseBiasInLinear, MergeLinears
from graphwright.passes.shape_prop import ShapeProp, TensorMetadata, extract_tensor_metadata
from graphwright.passes.simplify_algebra import SimplifyAlgebra
from graphwright.passes.splitting import split
from graphwright.passes.stages import Link, Split, Stage, Tied
from graphwright.passes.subgraph_modules import HolderModule, compare_graphs, lift_subgraph_as_module
from graphwright.passes.unroll_loops import UnrollLoops
from graphwright.passes.use_in_place import UseInPlace
from graphwright.passes.use_mixed_precision import UseMixedPrecision
from graphwright.passes.use_sdpa import UseScaledDotProductAttention

__all__ = [
    "ChangeTrueDivToMulByInverse",
    "ReversibleTransformation",
    "Transformation",
    "compose",
    "FuseBatchNorm1dInLinear",
    "FuseBatchNorm2dInConv2d",
    "FuseBiasInLinear",
    "MergeLinears",
    "AnnotateTypesWithSchema",
    "CollapseChains",
    "ConvAddReLU",
    "ConvReLU",
    "FoldConditions",
    "FoldConstants",
    "FoldedGraphModule",
    "FuseActivations",
    "FuseConvBatchNorm",
    "FuseConvReLU",
    "HoistInvariants",
    "InsertCheckpoints",
    "HolderModule",
    "Link",
    "MergeConditions",
    "MergeParallelLinears",
    "MergeSubexpressions",
    "MklSubgraph",
    "NormalizeArgs",
    "NormalizeOperators",
    "PassBase",
    "PassManager",
    "PassResult",
    "Pipeline",
    "PipelineResult",
    "RecognizeNorms",
    "PropagateChannelsLast",
    "RemoveDeadCode",
    "RemoveDeadValues",
    "RemoveInPlace",
    "RemoveNoOps",
    "ShapeProp",
    "SimplifyAlgebra",
    "Split",
    "Stage",
    "TensorMetadata",
    "Tied",
    "UnionFind",
    "UnrollLoops",
    "UseFunctions",
    "UseModules",
    "UseInPlace",
    "UseMixedPrecision",
    "UseScaledDotProductAttention",
    "are_nodes_independent",
    "compare_graphs",
    "create_feature_extractor",
    "extract",
    "extract_subgraph",
    "extract_tensor_metadata",
    "fold_batch_norm",
    "fold_batch_norm_before",
    "fuse",
    "fuse_conv_batch_norm",
    "fuse_conv_relu",
    "gen_mkl_autotuner",
    "get_graph_node_names",
    "get_unique_attr_name_in_module",
    "inline_module",
    "lift_subgraph_as_module",
    "matches_module_pattern",
    "may_depend_on",
    "merge_matmul",
    "modules_to_mkldnn",
    "node_names",
    "optimize_for_inference",
    "parent_name",
    "pass_result_wrapper",
    "prune",
    "remove_dead_values",
    "remove_dropout",
    "remove_guards",
    "replace_node_module",
    "reset_modules",
    "scale_and_shift",
    "split",
    "split_const_subgraphs",
    "split_result_tensors",
    "this_before_that_pass_constraint",
    "topological_sort_passes",
    "use_mkl_length",
    "validate_pass_schedule_constraint",
]
