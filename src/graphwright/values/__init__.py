"""Values: what a value of a program is like, and how nested ones are taken apart and made again.

Values of a program come in, their parts and leaves go out; nothing is recorded and no graph is known here. Read
structure.py first.

- structure.py: tuples, named tuples, lists, dicts, dataclasses and slices, taken apart and made again
"""

from graphwright.values.structure import is_named_tuple, is_record, leaves, made, map_leaves, parts, rebuild, sequence

__all__ = ["is_named_tuple", "is_record", "leaves", "made", "map_leaves", "parts", "rebuild", "sequence"]
