"""Programs of other systems as captured modules, and back.

Graphs are copied, node by node: names, meta, modules and the state_dict stay, and no program runs. Read fx.py first.

    compile_backend.py  torch.compile with passes of this library
    export.py           torch.export's programs
    export_regions.py   branches and loops, run as torch's operators
    torchscript.py      captured modules as torch.jit.script reads them
    number_limits.py    what torch.finfo says, for TorchScript, which has none
    reading.py          what is noted on graphs that were read of torch.fx's modules
    fx.py               torch.fx's GraphModules
    fx_graphs.py        graphs of torch.fx, read
    fx_writing.py       graphs of torch.fx, written
    operator_form.py    branches and loops as torch's operators take them
    operator_loops.py   loops: one kind of them
    operator_numbers.py numbers that go in and out
    operator_parts.py   what these have in common
    operands.py         numbers as tensors
    fx_signatures.py    the structure of arguments and results, as nodes
    keeping.py          guards that stay or go, attributes that become constants
    modes.py            programs of one mode
    calm.py             torch's exporters without what they print
    patience.py         a limit for what sympy computes of open sizes
    lower/              regions in forms for targets that say less
    fx_guards.py        guards that torch.fx records
    fx_values.py        what torch.fx can write as an argument, and constants for the rest
"""

from graphwright.interop.calm import calmly, without_graphs
from graphwright.interop.compile_backend import compile_backend
from graphwright.interop.export import from_export, save_export, to_export
from graphwright.interop.fx import from_fx, to_fx
from graphwright.interop.lower.appended_lists import collect_appended, collecting_for, collecting_while
from graphwright.interop.lower.filled_lists import FILLED, is_filled, length_of, rows_of
from graphwright.interop.lower.indexing import Copies, set_item
from graphwright.interop.lower.items import Collected, Counted, Items, Rows, Zipped, as_items, item_sources
from graphwright.interop.lower.numbers import as_number_tensor, as_truth, call_on_numbers, is_symbolic
from graphwright.interop.lower.regions import (
    Held,
    changed_since,
    check_apart,
    clones,
    does_more,
    nodes_inside,
    quietly,
    raising_side,
    tensors_used,
    versions_of,
)
from graphwright.interop.modes import in_its_mode, without_idle_dropouts
from graphwright.interop.patience import Patience, TooComplicated, patience_for
from graphwright.interop.reading import note_back
from graphwright.interop.torchscript import write_for_torchscript

__all__ = [
    "compile_backend",
    "from_export",
    "from_fx",
    "in_its_mode",
    "note_back",
    "save_export",
    "to_export",
    "to_fx",
    "FILLED",
    "Collected",
    "Copies",
    "Counted",
    "Held",
    "Items",
    "Patience",
    "Rows",
    "TooComplicated",
    "Zipped",
    "as_items",
    "as_number_tensor",
    "as_truth",
    "calmly",
    "call_on_numbers",
    "changed_since",
    "check_apart",
    "clones",
    "collect_appended",
    "collecting_for",
    "collecting_while",
    "does_more",
    "is_filled",
    "is_symbolic",
    "item_sources",
    "length_of",
    "nodes_inside",
    "patience_for",
    "quietly",
    "raising_side",
    "rows_of",
    "set_item",
    "tensors_used",
    "versions_of",
    "without_graphs",
    "without_idle_dropouts",
    "write_for_torchscript",
]

# Files, the top floor first: a file imports from its own floor and from those after it.
FLOORS = (
    "export",
    "export_regions",
    "compile_backend",
    "reading",
    "torchscript",
    "number_limits",
    "fx",
    "fx_writing",
    "operator_form",
    "operator_loops",
    "operator_numbers",
    "operator_parts",
    "fx_graphs",
    "fx_signatures",
    "keeping",
    "modes",
    "patience",
    "calm",
    "fx_guards",
    "fx_values",
    "operands",
    "lower",
)
