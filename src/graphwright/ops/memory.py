"""Which values may share their memory: what is written to one of them, the other ones show."""

from __future__ import annotations

import operator
from collections.abc import Callable

from torch import nn

from graphwright.ir import Node
from graphwright.ops.effects import is_inplace, written_and_given
from graphwright.ops.lookup import operator_of
from graphwright.ops.modules import is_known_module
from graphwright.ops.scratch import gives_fresh_value

ModuleOf = Callable[[Node], "nn.Module | None"]


def may_share_memory(one: Node, other: Node, module_of: ModuleOf) -> bool:
    """Tell whether what is written to one value may change the other. Inputs and attributes may all be one.

    `module_of` gives the module that a call_module node calls, where it is known.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> view, fresh = graph.call_method("view", (x, -1)), graph.call_method("neg", (x,))
    >>> may_share_memory(view, x, lambda node: None), may_share_memory(fresh, x, lambda node: None)
    (True, False)
    """
    return one is other or not sources_of(one, module_of).isdisjoint(sources_of(other, module_of))


def sources_of(node: Node, module_of: ModuleOf) -> set[Node | None]:
    """The nodes whose memory a value may be: what made it anew, itself where it did; None for what is outside.

    What was put into a list or dict may come out of one again, as what is outside may.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> rows = graph.get_attr("rows")
    >>> new, other = graph.call_function(operator.neg, (rows,)), graph.call_function(operator.neg, (rows,))
    >>> _ = graph.call_method("append", (rows, new))
    >>> [None in sources_of(node, lambda node: None) for node in (new, other)]
    [True, False]
    """
    found: set[Node | None] = set()
    seen: set[Node] = set()
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op in ("placeholder", "get_attr"):
            found.add(None)
            continue
        shared = shared_inputs(node, module_of)
        if shared is None:  # not known: something new, or any of what it reads
            found.update((node, None))
            waiting.extend(node.all_input_nodes)
        elif shared:
            waiting.extend(shared)
        else:
            found.add(node)
            if any(user.target in _KEEPING and node in user.args[1:] for user in node.users):
                found.add(None)
    return found


_KEEPING = frozenset({operator.setitem, "append", "appendleft", "insert", "setdefault", "__setitem__"})


def shared_inputs(node: Node, module_of: ModuleOf) -> list[Node] | None:
    """The values that a node reads whose memory its own value may be; None where that is not known.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> view, fresh = graph.call_method("view", (x, -1)), graph.call_method("neg", (x,))
    >>> shared_inputs(view, lambda node: None), shared_inputs(fresh, lambda node: None)
    ([x], [])
    """
    module = module_of(node)
    if node.op == "call_module":
        known = module is not None and is_known_module(module)
    else:
        operator = operator_of(node)
        known = operator is not None and not operator.acts
    if not known:
        return None
    if not is_inplace(node):
        return [] if gives_fresh_value(node, module_of) else node.all_input_nodes
    given = written_and_given(node) if node.target != "set_" else None  # which gives one value the memory of another
    return node.all_input_nodes if given is None else [given]
