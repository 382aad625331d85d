"""Facts about captured programs: what they compute compared with the original, found without changing anything.

Modules and example inputs come in, reports go out. Read comparing/verify.py first.

    comparing/           is it the same, how far apart, and from where on
    costing/             operations, bytes and memory
    channels/            which channels have to be removed together
    shapes/              values without data: shapes, dtypes and devices
    module_state.py      what runs leave behind, taken before and put back after them
    effects/             what nodes read, write and keep in memory
    roles.py             what values are for: numbers, whole numbers, masks
    both_sides.py        a graph run on an example, and both sides of its branches
    values.py            values as flat lists of facts, and their comparison
    tables.py            tables that people read
    report.py            what was found, as facts and as a table
    tensor_metadata.py   what is known of tensors without their values, as passes note it
    randomness.py        random states, left as they are by what the library runs
"""

from graphwright.analysis.both_sides import BothSides
from graphwright.analysis.channels.atoms import Atoms, Channels
from graphwright.analysis.channels.grouping import ChannelGroup, ChannelGroups, Member, channel_groups
from graphwright.analysis.channels.values import Knowledge, shape_of
from graphwright.analysis.comparing.compare import Comparison, LayerComparison, compare
from graphwright.analysis.comparing.verify import verify
from graphwright.analysis.costing.costs import Cost, CostReport, costs
from graphwright.analysis.costing.memory import MemoryReport, MemoryUse, memory, peak_memory
from graphwright.analysis.costing.profile import Profile, ProfiledModule, ProfiledNode, profile, seconds_of_nodes
from graphwright.analysis.costing.storages import Storages
from graphwright.analysis.costing.summary import ModuleSummary, Summary, summary
from graphwright.analysis.effects.effects import Effects, Place
from graphwright.analysis.effects.liveness import Liveness
from graphwright.analysis.effects.writes import written_values
from graphwright.analysis.module_state import ModuleState, state_kept, undisturbed, variables_kept, writes_state
from graphwright.analysis.randomness import same_randomness
from graphwright.analysis.report import CaseReport, Difference, VerifyReport, format_columns
from graphwright.analysis.roles import ValueFact, ValueFacts, value_facts
from graphwright.analysis.shapes.fake_modules import with_fake_tensors
from graphwright.analysis.shapes.fake_regions import run_on_fake
from graphwright.analysis.shapes.shapes import Shapes
from graphwright.analysis.shapes.shapes_of_calls import ShapesOfCalls
from graphwright.analysis.tables import Table, bytes_as_text, number_as_text
from graphwright.analysis.tensor_metadata import (
    TensorMetadata,
    describe_tensors,
    extract_tensor_metadata,
    infer_tensor_metadata,
)
from graphwright.analysis.values import copied_inputs, largest_difference, tensors_in

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
    "ModuleState",
    "Liveness",
    "MemoryReport",
    "MemoryUse",
    "ModuleSummary",
    "Place",
    "Profile",
    "ProfiledModule",
    "ProfiledNode",
    "Shapes",
    "ShapesOfCalls",
    "Storages",
    "Summary",
    "Table",
    "TensorMetadata",
    "ValueFact",
    "ValueFacts",
    "VerifyReport",
    "bytes_as_text",
    "compare",
    "costs",
    "describe_tensors",
    "extract_tensor_metadata",
    "format_columns",
    "infer_tensor_metadata",
    "largest_difference",
    "memory",
    "number_as_text",
    "peak_memory",
    "profile",
    "run_on_fake",
    "seconds_of_nodes",
    "summary",
    "copied_inputs",
    "tensors_in",
    "undisturbed",
    "value_facts",
    "verify",
    "with_fake_tensors",
    "written_values",
    "same_randomness",
    "state_kept",
    "variables_kept",
    "writes_state",
]

# Sub-rooms and files, the top floor first: a file imports from its own floor and from those after it.
FLOORS = (
    "comparing",
    "costing",
    "channels",
    "roles",
    "shapes",
    "module_state",
    "effects",
    "both_sides",
    "values",
    "tables",
    "report",
    "tensor_metadata",
    "randomness",
)
