"""Modules of captured programs as modules again: graphs inside graphs, one for each distinct module.

Read chains.py first.

    modules.py     `unflatten`: the modules, made captured ones
    flattening.py  `flatten`: one graph again
    one_file.py    `source`: the modules as classes of one file
    sharing.py     which calls do the same
    writing.py     the graphs, written anew
    sketches.py    which calls are to become the same, before they are written
    rows.py        what a graph does, as data that compares
    signatures.py  what a module is called with and gives, in the names of its source
    parts.py       a graph in parts, and what passes between them
    chains.py      which calls a node is inside of
    facts.py       what may be asked again instead of being handed over
    copied_calls.py calls that are one node, since what is inside of them is what is inside of another
"""

from typing import TYPE_CHECKING

from graphwright.hierarchy.chains import path_of
from graphwright.hierarchy.copied_calls import CopiedCall, copied_call, instead_of, paths_in
from graphwright.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from graphwright.hierarchy.flattening import as_flat, flatten
    from graphwright.hierarchy.modules import unflatten, unflatten_in_place
    from graphwright.hierarchy.one_file import source
    from graphwright.hierarchy.sharing import apart

# What is loaded when it is asked for: captures of one graph do without.
__getattr__ = lazy_imports(
    __name__,
    {
        "apart": "sharing",
        "as_flat": "flattening",
        "flatten": "flattening",
        "source": "one_file",
        "unflatten": "modules",
        "unflatten_in_place": "modules",
    },
)

__all__ = [
    "CopiedCall", "apart", "as_flat", "copied_call", "flatten", "instead_of", "path_of", "paths_in", "source",
    "unflatten", "unflatten_in_place",
]  # fmt: skip
