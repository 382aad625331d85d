"""Values: what a value of a program is like, and how nested ones are taken apart and made again.

Values of a program come in; their kinds, parts and leaves go out. Nothing is recorded and no graph is known here. Read
kinds.py first.

- kinds.py: one class per kind of value, and which kind a value is of
- join.py: what is of one kind or of another, under a policy
- slots.py: two values that become one, with slots for what differs
- structure.py: tuples, named tuples, lists, dicts, dataclasses and slices, taken apart and made again
- tensor_metadata.py: what passes note of a tensor
"""

from graphwright.values.join import NoJoin, Policy, join
from graphwright.values.kinds import (
    ANY,
    MIXED,
    UNKNOWN,
    AnyKind,
    ConstantKind,
    Kind,
    MappingKind,
    MixedKind,
    NumberKind,
    OptionalKind,
    RecordKind,
    SequenceKind,
    TensorKind,
    TextKind,
    kind_of,
    loose_sizes,
    with_example,
    without_none,
)
from graphwright.values.slots import INSIDE, Container, Given, Joiner, OneWay, Path, Slot, Template, Unlike, filled
from graphwright.values.structure import (
    HasParts,
    is_named_tuple,
    is_record,
    leaves,
    made,
    map_leaves,
    parts,
    rebuild,
    sequence,
)
from graphwright.values.tensor_metadata import TensorMetadata

__all__ = [
    "ANY", "INSIDE", "MIXED", "UNKNOWN", "AnyKind", "ConstantKind", "Container", "Given", "HasParts", "Joiner", "Kind",
    "MappingKind", "MixedKind", "NoJoin", "NumberKind", "OneWay", "OptionalKind", "Path", "Policy", "RecordKind",
    "SequenceKind", "Slot", "Template", "TensorKind", "TensorMetadata", "TextKind", "Unlike", "filled",
    "is_named_tuple", "is_record", "join", "kind_of", "leaves", "loose_sizes", "made", "map_leaves", "parts", "rebuild",
    "sequence", "with_example", "without_none",
]  # fmt: skip
