"""What a captured program is, as plain data: an ordered list of nodes of six opcodes.

Nothing comes in but Python values; what goes out are graphs that other rooms fill, rewrite, print and run.
Read node.py first, then graph.py. No torch in here. These two know no file that knows graphs: methods.py binds
what those add to `Graph`, checking, printing and copying.
"""

from graphwright.ir.arguments import ATOMS, EMPTY_KWARGS, immutable_dict, immutable_list, map_aggregate
from graphwright.ir.edit_log import EditLog
from graphwright.ir.exact_text import PlainSpelling, Spelling, graph_to_text, text_to_graph
from graphwright.ir.graph import Graph, NodeList
from graphwright.ir.lint import CHECKS, lint, register_signature, register_writer
from graphwright.ir.meta import EXAMPLES, Meta
from graphwright.ir.methods import bind
from graphwright.ir.names import (
    Namespace,
    candidate_for,
    is_computed,
    is_reserved,
    on_the_way,
    snake_case,
    source_of,
)
from graphwright.ir.nested import NestedGraph, first_operation, shared_operands
from graphwright.ir.node import OPCODES, Argument, Node, Opcode, Target, bodies_of, map_arg, nodes_in
from graphwright.ir.node_meta import (
    INHERITED_META,
    NodeSource,
    NodeSourceAction,
    get_current_meta,
    has_preserved_node_meta,
    set_current_meta,
)
from graphwright.ir.origin import Origin
from graphwright.ir.restoring import restore_node
from graphwright.ir.snapshot import GraphSnapshot
from graphwright.ir.text import (
    argument_text,
    format_graph,
    format_node,
    format_table,
    qualified_name,
    register_home,
    short_name,
)

__all__ = [
    "ATOMS",
    "CHECKS",
    "EMPTY_KWARGS",
    "INHERITED_META",
    "OPCODES",
    "Argument",
    "EditLog",
    "Graph",
    "GraphSnapshot",
    "EXAMPLES",
    "Meta",
    "Namespace",
    "NestedGraph",
    "Node",
    "NodeList",
    "NodeSource",
    "NodeSourceAction",
    "Opcode",
    "Origin",
    "PlainSpelling",
    "Spelling",
    "Target",
    "argument_text",
    "bodies_of",
    "candidate_for",
    "first_operation",
    "format_graph",
    "format_node",
    "format_table",
    "get_current_meta",
    "graph_to_text",
    "has_preserved_node_meta",
    "immutable_dict",
    "immutable_list",
    "is_computed",
    "is_reserved",
    "lint",
    "map_aggregate",
    "map_arg",
    "nodes_in",
    "on_the_way",
    "qualified_name",
    "register_home",
    "register_signature",
    "register_writer",
    "restore_node",
    "set_current_meta",
    "shared_operands",
    "short_name",
    "snake_case",
    "source_of",
    "text_to_graph",
]

bind()
