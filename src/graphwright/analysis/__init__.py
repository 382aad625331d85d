"""Facts about captured programs: what they compute compared with the original, found without changing anything.

Modules and example inputs come in, reports go out. Read verify.py first.
"""

from graphwright.analysis.both_sides import BothSides
from graphwright.analysis.channel_atoms import Atoms, Channels
from graphwright.analysis.channel_grouping import ChannelGroup, ChannelGroups, Member, channel_groups
from graphwright.analysis.channel_values import Knowledge, shape_of
from graphwright.analysis.compare import Comparison, LayerComparison, compare
from graphwright.analysis.costs import Cost, CostReport, costs
from graphwright.analysis.effects import Effects, Place
from graphwright.analysis.fake_modules import with_fake_tensors
from graphwright.analysis.fake_regions import run_on_fake
from graphwright.analysis.liveness import Liveness
from graphwright.analysis.memory import MemoryReport, MemoryUse, memory, peak_memory
from graphwright.analysis.report import CaseReport, Difference, VerifyReport, format_columns
from graphwright.analysis.shapes import Shapes
from graphwright.analysis.storages import Storages
from graphwright.analysis.tensor_metadata import (
    TensorMetadata,
    describe_tensors,
    extract_tensor_metadata,
    infer_tensor_metadata,
)
from graphwright.analysis.values import largest_difference, tensors_in
from graphwright.analysis.verify import verify
from graphwright.analysis.writes import written_values

__all__ = [
    "Atoms",
    "BothSides",
    "ChannelGroup",
    "ChannelGroups",
    "Channels",
    "Knowledge",
    "Member",
    "channel_groups",
    "shape_of",
    "CaseReport",
    "Comparison",
    "Cost",
    "CostReport",
    "Difference",
    "Effects",
    "LayerComparison",
    "Liveness",
    "MemoryReport",
    "MemoryUse",
    "Place",
    "Shapes",
    "Storages",
    "TensorMetadata",
    "VerifyReport",
    "compare",
    "costs",
    "describe_tensors",
    "extract_tensor_metadata",
    "format_columns",
    "infer_tensor_metadata",
    "largest_difference",
    "memory",
    "peak_memory",
    "run_on_fake",
    "tensors_in",
    "verify",
    "with_fake_tensors",
    "written_values",
]
