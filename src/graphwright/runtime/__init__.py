"""Running a graph: as a module with generated code, or node by node.

A graph and the modules that it calls come in; a callable `nn.Module` goes out. Read graph_module.py first.

    saving/           a captured module as one file of data, and back
    trust/            what a program in a file may do
    modules/          kinds of captured modules beside the plain one, and edits that can be taken back
    interpreter.py    a graph run node by node
    example_calls.py  what functions that look at a program are given: a model and a call
    graph_module.py   the captured module
    state.py          what it keeps for itself
    dtypes.py         which conversions would make its dtypes wrong
    packaging/        a captured module as a folder of source and weights
    shared_code.py    graphs that several modules have, and methods that are calls
    pickling.py       graphs for pickle
    reporting/        what people read: of a capture, of a module, of an error
    members/          attributes, submodules and hooks, and stand-ins that hold the same
    entries.py        the entry points of a captured module
    called.py         the modules that generated code calls
    dispatch.py       which of several captures a call goes to
    guards.py         what a capture took for granted, checked
    outside.py        what a program found outside of itself, and what is there now
    caches.py         whether what `functools` caches keep is what their functions gave
    inside.py         what stands inside of modules, objects and containers, by paths
    premises/         what it took for granted of modules, checked
    plain_values.py   values that data tells, spelled and compared
    graph_facts.py    what is kept of that with a graph
    foreign.py        modules of other systems, read as captured ones
    objects.py        objects of the user's own classes
    watching.py       whether tables were written to since they were looked at
    unrolled.py       many looks at tables as functions without a loop
    processor.py      what programs have to know of the processor that they run on
    references.py     where an object is found when its module is imported

Generated code, graphs as text and pickles name the modules of what they call, so guards, dispatch, objects, pickling,
shared_code and graph_module stay where they are.
"""

from typing import TYPE_CHECKING

from graphwright.lazy_imports import lazy_imports
from graphwright.runtime.caches import AS_GIVEN, Kept
from graphwright.runtime.called import FoundModules, Plainness, calls_are_plain, is_called_plainly
from graphwright.runtime.dispatch import choose, refuse_call
from graphwright.runtime.entries import (
    STATE,
    Entry,
    Form,
    Graphs,
    entry_points_of,
    expect_modules,
    is_readable,
    overhear,
    refuse_forms,
)
from graphwright.runtime.example_calls import call_of, capture_with, captured_for
from graphwright.runtime.foreign import ForeignModules, as_captured, read_foreign, write_scripts
from graphwright.runtime.graph_facts import (
    buffers_of,
    calls_of_modules,
    facts_of_modules,
    forget_module,
    forget_modules,
    forget_tensor,
    forwards_of,
    is_conditional,
    keep_buffers,
    keep_calls,
    keep_forwards,
    keep_modules,
    keep_unset,
    names_of_values,
    unset_in,
)
from graphwright.runtime.graph_module import PRESERVED_ATTRIBUTES, GraphModule, graph_of, graphs_of
from graphwright.runtime.guards import (
    CAPTURE,
    EXPECTATIONS,
    Guard,
    autocast_beyond,
    class_of_tensor,
    device_of_each,
    expect,
    expect_class,
    expect_kinds,
    expect_outside,
    expect_state,
    expect_tensors,
    expect_values,
    guards_of,
    is_guard,
    shared,
    summed_up,
    unlike,
    unlike_inputs,
)
from graphwright.runtime.inside import HOOKS, WITH_ITEMS, held_at, in_path, inside_of, keys_in, parts_of_function
from graphwright.runtime.interpreter import Interpreter
from graphwright.runtime.members.attributes import (
    MODULE_TABLES,
    add_constant,
    assign_attribute,
    copy_attribute,
    delete_attribute,
    free_path,
    has_attribute,
    is_compiled,
    read_attribute,
    read_attributes,
)
from graphwright.runtime.members.shells import Shells, Tree, copy_slots, copy_tensors, memo_of_results
from graphwright.runtime.members.submodules import with_submodules
from graphwright.runtime.modules.captured import captured_module, change_base, change_entries
from graphwright.runtime.modules.forms import in_form, without_forms
from graphwright.runtime.modules.lazy import (
    LazyGraphModule,
    graph_module_class,
    make_graph_module,
    skip_lazy_graph_modules,
    use_lazy_graph_modules,
)
from graphwright.runtime.modules.loose_parts import BareModule, forward_from_source
from graphwright.runtime.modules.nested import (
    called_entry,
    is_nested,
    make_captured,
    nested_in,
    only_entry,
    share_graph,
    why_not_captured,
)
from graphwright.runtime.modules.parts import part_module
from graphwright.runtime.modules.transaction import Snapshot, transaction
from graphwright.runtime.objects import (
    FOREIGN,
    array_facts,
    attribute_names,
    attributes_of,
    is_object,
    is_state,
    layer_facts,
    new_object,
    slots_of,
    state_of,
)
from graphwright.runtime.outside import (
    ABSENT,
    NAMES,
    NOT_SET,
    Found,
    Outside,
    bound_in,
    codes_beside,
    differs,
)
from graphwright.runtime.pickling import reduce_graph, reduce_node
from graphwright.runtime.plain_values import (
    fits,
    holds_tensors,
    is_atom,
    is_plain,
    is_plain_container,
    names_constants,
    spelled,
    with_renamed,
)
from graphwright.runtime.premises.bound import Bound, bound
from graphwright.runtime.premises.names import class_name, name_of_class, own_class, own_names, take_code
from graphwright.runtime.premises.text import any_of, dtypes_in, said_of_modules
from graphwright.runtime.premises.unlike import generators_in, kind_held
from graphwright.runtime.processor import sums_bytes_exactly
from graphwright.runtime.reporting.capture_report import (
    CaptureFacts,
    CaptureReport,
    ReportEntry,
    entries_of,
    is_fork,
    join_facts,
    keep_facts,
    mark_fork,
    mark_opaque,
    report_of,
)
from graphwright.runtime.reporting.printing import first_module_stack, lazy_graph_text, node_context
from graphwright.runtime.shared_code import SharedCode
from graphwright.runtime.unrolled import unrolled_checks, unrolled_reads
from graphwright.runtime.watching import Watch, Watched

if TYPE_CHECKING:
    from graphwright.runtime.packaging.classes import Stub, StubError
    from graphwright.runtime.packaging.python_file import PackageSource
    from graphwright.runtime.packaging.rolling import copied_graph, roll
    from graphwright.runtime.saving.loading import load
    from graphwright.runtime.saving.saving import save

# What is loaded when it is asked for: captures do without.
__getattr__ = lazy_imports(
    __name__,
    {
        "PackageSource": "packaging.python_file",
        "Stub": "packaging.classes",
        "StubError": "packaging.classes",
        "copied_graph": "packaging.rolling",
        "load": "saving.loading",
        "roll": "packaging.rolling",
        "save": "saving.saving",
    },
)

__all__ = [
    "any_of",
    "dtypes_in",
    "ABSENT",
    "AS_GIVEN",
    "Kept",
    "NAMES",
    "NOT_SET",
    "add_constant",
    "FoundModules",
    "Plainness",
    "calls_are_plain",
    "is_called_plainly",
    "memo_of_results",
    "unrolled_checks",
    "unrolled_reads",
    "Watch",
    "Watched",
    "EXPECTATIONS",
    "ForeignModules",
    "as_captured",
    "call_of",
    "capture_with",
    "captured_for",
    "read_foreign",
    "write_scripts",
    "Bound",
    "bound",
    "bound_in",
    "CAPTURE",
    "HOOKS",
    "MODULE_TABLES",
    "PRESERVED_ATTRIBUTES",
    "BareModule",
    "CaptureFacts",
    "CaptureReport",
    "Entry",
    "Form",
    "STATE",
    "in_form",
    "Found",
    "GraphModule",
    "Graphs",
    "Guard",
    "Interpreter",
    "PackageSource",
    "Stub",
    "StubError",
    "LazyGraphModule",
    "Outside",
    "ReportEntry",
    "Shells",
    "Tree",
    "Snapshot",
    "assign_attribute",
    "array_facts",
    "attribute_names",
    "attributes_of",
    "buffers_of",
    "captured_module",
    "change_base",
    "change_entries",
    "choose",
    "class_name",
    "class_of_tensor",
    "copy_attribute",
    "copy_slots",
    "copy_tensors",
    "delete_attribute",
    "differs",
    "entries_of",
    "expect",
    "expect_class",
    "autocast_beyond",
    "device_of_each",
    "expect_kinds",
    "expect_modules",
    "expect_outside",
    "expect_state",
    "expect_tensors",
    "expect_values",
    "facts_of_modules",
    "fits",
    "first_module_stack",
    "forget_module",
    "forget_modules",
    "forget_tensor",
    "forwards_of",
    "forward_from_source",
    "free_path",
    "graph_module_class",
    "graph_of",
    "graphs_of",
    "guards_of",
    "has_attribute",
    "is_compiled",
    "is_conditional",
    "is_guard",
    "is_plain",
    "held_at",
    "holds_tensors",
    "is_atom",
    "is_plain_container",
    "is_object",
    "is_state",
    "FOREIGN",
    "layer_facts",
    "shared",
    "summed_up",
    "join_facts",
    "calls_of_modules",
    "codes_beside",
    "keep_buffers",
    "keep_calls",
    "keep_forwards",
    "keep_facts",
    "keep_modules",
    "keep_unset",
    "name_of_class",
    "lazy_graph_text",
    "load",
    "make_graph_module",
    "make_captured",
    "SharedCode",
    "called_entry",
    "is_nested",
    "names_of_values",
    "nested_in",
    "only_entry",
    "copied_graph",
    "roll",
    "keys_in",
    "parts_of_function",
    "kind_held",
    "own_class",
    "generators_in",
    "WITH_ITEMS",
    "in_path",
    "inside_of",
    "own_names",
    "share_graph",
    "is_fork",
    "mark_fork",
    "mark_opaque",
    "names_constants",
    "new_object",
    "node_context",
    "overhear",
    "refuse_forms",
    "part_module",
    "read_attribute",
    "read_attributes",
    "reduce_graph",
    "reduce_node",
    "refuse_call",
    "entry_points_of",
    "is_readable",
    "report_of",
    "said_of_modules",
    "save",
    "skip_lazy_graph_modules",
    "slots_of",
    "spelled",
    "state_of",
    "sums_bytes_exactly",
    "take_code",
    "transaction",
    "unlike",
    "unset_in",
    "unlike_inputs",
    "use_lazy_graph_modules",
    "with_submodules",
    "without_forms",
    "why_not_captured",
    "with_renamed",
]

# Sub-rooms and files, the top floor first: a file imports from its own floor and from those after it.
FLOORS = (
    "saving",
    "trust",
    "modules",
    "interpreter",
    "example_calls",
    "graph_module",
    "state",
    "dtypes",
    "packaging",
    "shared_code",
    "pickling",
    "reporting",
    "members",
    "entries",
    "called",
    "dispatch",
    "guards",
    "outside",
    "caches",
    "premises",
    "plain_values",
    "inside",
    "graph_facts",
    "foreign",
    "objects",
    "watching",
    "unrolled",
    "processor",
    "references",
)
