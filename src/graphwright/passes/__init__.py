"""GraphModule -> GraphModule: changes to whole programs, one pass per file.

A pass edits the module it is given in place and returns how many changes it made; zero means that there was
nothing to do. Read fusion/fuse_conv_batch_norm.py first.

    pipeline.py     passes one after the other, each checked
    parts/          some values of a program, its stages, fewer channels
    forms/          the same computation in another form, and back
    fusion/         several operations become one
    regions/        branches and loops
    simplifying/    work left out, or done once
    memory/         in place or anew, kept or computed again, layout and precision
    support/        what passes ask and do in common
"""

from graphwright.ops import add_operand
from graphwright.passes.forms.functional_to_module import UseModules
from graphwright.passes.forms.module_to_functional import UseFunctions, use_function
from graphwright.passes.forms.reversible import (
    ChangeTrueDivToMulByInverse,
    ReversibleTransformation,
    Transformation,
    compose,
)
from graphwright.passes.forms.reversible_batch_norms import FuseBatchNorm1dInLinear, FuseBatchNorm2dInConv2d
from graphwright.passes.forms.reversible_linears import FuseBiasInLinear, MergeLinears
from graphwright.passes.fusion.fold_batch_norm import fold_batch_norm, fold_batch_norm_before, scale_and_shift
from graphwright.passes.fusion.fuse_activations import FuseActivations
from graphwright.passes.fusion.fuse_conv_batch_norm import FuseConvBatchNorm, fuse_conv_batch_norm
from graphwright.passes.fusion.fuse_conv_relu import ConvAddReLU, ConvReLU, FuseConvReLU, fuse_conv_relu
from graphwright.passes.fusion.merge_parallel_linears import MergeParallelLinears
from graphwright.passes.fusion.recognize_norms import RecognizeNorms
from graphwright.passes.fusion.use_sdpa import UseScaledDotProductAttention
from graphwright.passes.memory.insert_checkpoints import InsertCheckpoints
from graphwright.passes.memory.propagate_channels_last import PropagateChannelsLast
from graphwright.passes.memory.remove_in_place import RemoveInPlace
from graphwright.passes.memory.use_in_place import UseInPlace
from graphwright.passes.memory.use_mixed_precision import UseMixedPrecision
from graphwright.passes.parts.extraction import extract
from graphwright.passes.parts.feature_extractor import create_feature_extractor, get_graph_node_names
from graphwright.passes.parts.minimizing import Minimized, minimize
from graphwright.passes.parts.pruning import prune
from graphwright.passes.parts.splitting import split
from graphwright.passes.parts.stage_modules import Link, Split, Stage, Tied
from graphwright.passes.pipeline import Pipeline, PipelineResult
from graphwright.passes.regions.fold_conditions import FoldConditions
from graphwright.passes.regions.hoist_invariants import HoistInvariants
from graphwright.passes.regions.merge_conditions import MergeConditions
from graphwright.passes.regions.set_training import SetTraining
from graphwright.passes.regions.unroll_loops import UnrollLoops
from graphwright.passes.simplifying.collapse_chains import CollapseChains
from graphwright.passes.simplifying.dead_values import RemoveDeadValues, eliminate_dead_code, remove_dead_values
from graphwright.passes.simplifying.fold_constants import FoldConstants
from graphwright.passes.simplifying.merge_subexpressions import MergeSubexpressions
from graphwright.passes.simplifying.remove_dead_code import RemoveDeadCode
from graphwright.passes.simplifying.remove_guards import remove_guards
from graphwright.passes.simplifying.remove_no_ops import RemoveNoOps
from graphwright.passes.simplifying.simplify_algebra import SimplifyAlgebra
from graphwright.passes.support.bodies import (
    inline,
    items_of,
    module_of,
    own_bodies,
    put_in_place,
    regions_in,
    substitute,
)
from graphwright.passes.support.node_names import node_names
from graphwright.passes.support.pass_base import PassBase, PassResult
from graphwright.passes.support.shape_prop import ShapeProp, TensorMetadata, extract_tensor_metadata
from graphwright.passes.support.submodules import ModuleCalls, install, is_inside_used, take_parameter_out

__all__ = [
    "add_operand",
    "ChangeTrueDivToMulByInverse",
    "ReversibleTransformation",
    "Transformation",
    "compose",
    "FuseBatchNorm1dInLinear",
    "FuseBatchNorm2dInConv2d",
    "FuseBiasInLinear",
    "MergeLinears",
    "CollapseChains",
    "ConvAddReLU",
    "ConvReLU",
    "FoldConditions",
    "FoldConstants",
    "FuseActivations",
    "FuseConvBatchNorm",
    "FuseConvReLU",
    "HoistInvariants",
    "InsertCheckpoints",
    "ModuleCalls",
    "Link",
    "MergeConditions",
    "MergeParallelLinears",
    "MergeSubexpressions",
    "Minimized",
    "PassBase",
    "PassResult",
    "Pipeline",
    "PipelineResult",
    "RecognizeNorms",
    "PropagateChannelsLast",
    "RemoveDeadCode",
    "RemoveDeadValues",
    "RemoveInPlace",
    "RemoveNoOps",
    "SetTraining",
    "ShapeProp",
    "SimplifyAlgebra",
    "Split",
    "Stage",
    "TensorMetadata",
    "Tied",
    "UnrollLoops",
    "UseFunctions",
    "UseModules",
    "UseInPlace",
    "UseMixedPrecision",
    "UseScaledDotProductAttention",
    "create_feature_extractor",
    "eliminate_dead_code",
    "extract",
    "extract_tensor_metadata",
    "fold_batch_norm",
    "fold_batch_norm_before",
    "fuse_conv_batch_norm",
    "fuse_conv_relu",
    "get_graph_node_names",
    "inline",
    "install",
    "is_inside_used",
    "items_of",
    "module_of",
    "minimize",
    "node_names",
    "own_bodies",
    "prune",
    "put_in_place",
    "regions_in",
    "remove_dead_values",
    "remove_guards",
    "scale_and_shift",
    "split",
    "substitute",
    "take_parameter_out",
    "use_function",
]

# Sub-rooms and files, the top floor first: a file imports from its own floor and from those after it.
FLOORS = (
    "pipeline",
    "parts",
    "forms",
    "fusion",
    "regions",
    "simplifying",
    "memory",
    "support",
)
