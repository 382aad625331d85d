"""Programs of other systems as captured modules, and back.

Graphs are copied, node by node: names, meta, modules and the state_dict stay, and no program runs. Read fx.py first.

    compile_backend.py  torch.compile with passes of this library
    export.py           torch.export's programs
    export_regions.py   branches and loops, run as torch's operators
    reading.py          modules of other systems where a captured one is looked at
    fx.py               torch.fx's GraphModules
    fx_graphs.py        graphs of torch.fx, read
    fx_signatures.py    the structure of arguments and results, as nodes
    modes.py            programs of one mode
    lower/              regions in forms for targets that say less
    fx_guards.py        guards that torch.fx records
    fx_values.py        what torch.fx can write as an argument, and constants for the rest
"""

from graphwright.interop.compile_backend import compile_backend
from graphwright.interop.export import from_export, to_export
from graphwright.interop.fx import from_fx, to_fx
from graphwright.interop.lower.appended_lists import collect_appended, collecting_for, collecting_while
from graphwright.interop.lower.items import Collected, Counted, Items, Rows, Zipped, as_items, item_sources
from graphwright.interop.lower.numbers import as_number_tensor, as_truth, call_on_numbers, is_symbolic
from graphwright.interop.modes import in_its_mode
from graphwright.interop.reading import read_others

__all__ = [
    "compile_backend",
    "from_export",
    "from_fx",
    "in_its_mode",
    "read_others",
    "to_export",
    "to_fx",
    "Collected",
    "Counted",
    "Items",
    "Rows",
    "Zipped",
    "as_items",
    "as_number_tensor",
    "as_truth",
    "call_on_numbers",
    "collect_appended",
    "collecting_for",
    "collecting_while",
    "is_symbolic",
    "item_sources",
]

# Files, the top floor first: a file imports from its own floor and from those after it.
FLOORS = (
    "export",
    "export_regions",
    "compile_backend",
    "reading",
    "fx",
    "fx_graphs",
    "fx_signatures",
    "modes",
    "lower",
    "fx_guards",
    "fx_values",
)
