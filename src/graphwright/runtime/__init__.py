"""Running a graph: as a module with generated code, or node by node.

A graph and the modules that it calls come in; a callable `nn.Module` goes out. Read graph_module.py first.
"""

from graphwright.runtime.attributes import (
    assign_attribute,
    copy_attribute,
    delete_attribute,
    free_path,
    has_attribute,
    is_compiled,
    read_attribute,
    read_attributes,
)
from graphwright.runtime.capture_report import (
    CaptureFacts,
    CaptureReport,
    ReportEntry,
    entries_of,
    join_facts,
    keep_facts,
    mark_fork,
    mark_opaque,
    report_of,
)
from graphwright.runtime.captured import captured_module
from graphwright.runtime.dispatch import choose, refuse_call
from graphwright.runtime.entries import Entry, Graphs
from graphwright.runtime.graph_module import PRESERVED_ATTRIBUTES, GraphModule, graph_of, graphs_of
from graphwright.runtime.guards import (
    CAPTURE,
    Guard,
    expect,
    expect_kinds,
    expect_tensors,
    expect_values,
    guards_of,
    is_guard,
    unlike,
    unlike_inputs,
)
from graphwright.runtime.interpreter import Interpreter
from graphwright.runtime.lazy import (
    LazyGraphModule,
    graph_module_class,
    make_graph_module,
    skip_lazy_graph_modules,
    use_lazy_graph_modules,
)
from graphwright.runtime.loading import load
from graphwright.runtime.loose_parts import BareModule, forward_from_source
from graphwright.runtime.objects import attribute_names, attributes_of, new_object
from graphwright.runtime.parts import part_module
from graphwright.runtime.pickling import reduce_graph, reduce_node
from graphwright.runtime.printing import first_module_stack, lazy_graph_text, node_context
from graphwright.runtime.saving import save
from graphwright.runtime.shells import Shells, copy_slots, copy_tensors
from graphwright.runtime.transaction import Snapshot, transaction

__all__ = [
    "CAPTURE",
    "PRESERVED_ATTRIBUTES",
    "BareModule",
    "CaptureFacts",
    "CaptureReport",
    "Entry",
    "GraphModule",
    "Graphs",
    "Guard",
    "Interpreter",
    "LazyGraphModule",
    "ReportEntry",
    "Shells",
    "Snapshot",
    "assign_attribute",
    "attribute_names",
    "attributes_of",
    "captured_module",
    "choose",
    "copy_attribute",
    "copy_slots",
    "copy_tensors",
    "delete_attribute",
    "entries_of",
    "expect",
    "expect_kinds",
    "expect_tensors",
    "expect_values",
    "first_module_stack",
    "forward_from_source",
    "free_path",
    "graph_module_class",
    "graph_of",
    "graphs_of",
    "guards_of",
    "has_attribute",
    "is_compiled",
    "is_guard",
    "join_facts",
    "keep_facts",
    "lazy_graph_text",
    "load",
    "make_graph_module",
    "mark_fork",
    "mark_opaque",
    "new_object",
    "node_context",
    "part_module",
    "read_attribute",
    "read_attributes",
    "reduce_graph",
    "reduce_node",
    "refuse_call",
    "report_of",
    "save",
    "skip_lazy_graph_modules",
    "transaction",
    "unlike",
    "unlike_inputs",
    "use_lazy_graph_modules",
]
