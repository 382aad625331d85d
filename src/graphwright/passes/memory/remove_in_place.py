"""Operations in place, as operations that give new values."""

from __future__ import annotations

import copy
import inspect
import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from graphwright.ir import Graph, Node
from graphwright.ops import Call, call_of, gives_fresh_value, is_untouched, module_called, operator_of_target
from graphwright.passes.memory.functional_setitem import functional_setitem
from graphwright.passes.support.bodies import plain_graphs
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.submodules import ModuleCalls
from graphwright.passes.support.tensor_facts import gives_tensor, is_number, is_version_read, shape_and_dtype
from graphwright.runtime import GraphModule, graph_of


@dataclass(frozen=True, slots=True)
class RemoveInPlace:
    """Have operations in place give new values, which those that come after them read.

    `x.add_(y)`, `torch.relu_(x)`, `F.relu(x, inplace=True)`, `nn.ReLU(inplace=True)`, `x += y`, and assignments to
    items: `x[:, 0] = y` becomes `select_scatter`, `slice_scatter` or `index_put`. Programs without writes can be
    reordered and merged freely. Returns the number of writes that went.

    A write goes where the value was made for it and nothing else can see it change: no input, parameter or buffer, no
    view of another value, none whose views or lists were made before the write, none from outside of a `with` block
    that the write is in. Also left alone: what draws random numbers, `copy_`, comparisons in place, and assignments
    whose value may not fit without `ShapeProp`. An operation in place keeps the dtype of the value; where the new one
    might not, a `type_as` does.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x.exp().mul_(2))
    >>> RemoveInPlace().run(gm)
    1
    >>> print(gm.code.strip())
    def forward(self, x):
        exp = x.exp();  x = None
        mul = exp.mul(2);  exp = None
        return mul
    """

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        assert isinstance(gm, GraphModule)
        calls = ModuleCalls(gm)
        ownership = Ownership(gm)
        return sum(_functionalize(graph, calls, ownership) for graph in list(plain_graphs(graph_of(gm))))


def _functionalize(graph: Graph, calls: ModuleCalls, ownership: Ownership) -> int:
    effects = ownership.effects(graph)
    count = 0
    for node in list(graph.nodes):
        written = _written(node, calls)
        if written is None or not effects.are_together(written, node) or not _may_go(written, node):
            continue
        last = node.prev
        with graph.inserting_before(node):
            new = node if node.op == "call_module" else _new_value(node, written)
        if new is None:
            continue
        made = last.next
        while made is not node:
            effects.made([made], node)
            made.origin = node.origin
            made = made.next
        if node.op == "call_module":
            _replace_module(node, calls)
        for user in [user for user in written.users if user > node]:
            user.replace_input_with(written, new)
        if new is not node:
            new.meta.update(_facts(written))
            node.replace_all_uses_with(new)
            calls.erase(node)
        count += 1
    return count


def _facts(value: Node) -> dict[str, Any]:
    """The shape and dtype of a value: those of the one that stands for it after a write."""
    return {key: value.meta[key] for key in ("tensor_meta", "type") if key in value.meta}


# ---- whether it may go


def _written(node: Node, calls: ModuleCalls) -> Node | None:
    """The value that a node writes to and does nothing else with."""
    if node.op == "call_module":
        module = calls.module(node)
        flagged = module is not None and _is_in_place(module)
        value = calls.input(node) if flagged else None
        return value if isinstance(value, Node) else None
    if node.op not in ("call_function", "call_method"):
        return None
    call = call_of(node)
    if call is None or call.writes != ("input",):
        return None
    value = call.arguments.get("input")
    return value if isinstance(value, Node) else None


def _is_in_place(module: nn.Module) -> bool:
    own = type(module).__module__.startswith("torch.nn.modules.") and is_untouched(module)
    return own and vars(module).get("inplace") is True


def _may_go(written: Node, node: Node) -> bool:
    """Tell whether nothing but what comes after a node can see it write."""
    if not _is_fresh(written) or not (gives_tensor(written) or _is_of_tensors(node)):
        return False
    if is_version_read(written) or is_version_read(node):
        return False
    return all(user >= node or gives_fresh_value(user, module_called) for user in written.users)


def _is_of_tensors(node: Node) -> bool:
    """Tell whether what a node does is done to tensors alone, not to numbers and lists."""
    if node.target is operator.setitem:
        return isinstance(node.args[1], tuple)
    return node.target not in _OPERATORS


def _is_fresh(value: Node) -> bool:
    if gives_fresh_value(value, module_called):
        return True
    source = value.args[0] if value.target == "type_as" else None  # what this pass writes
    return isinstance(source, Node) and len(source.users) == 1 and gives_fresh_value(source, module_called)


# ---- what it becomes

_OPERATORS: dict[Any, Any] = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv, operator.imatmul: operator.matmul, operator.ifloordiv: operator.floordiv,
    operator.imod: operator.mod, operator.ipow: operator.pow, operator.iand: operator.and_, operator.ior: operator.or_,
    operator.ixor: operator.xor, operator.ilshift: operator.lshift, operator.irshift: operator.rshift,
}  # fmt: skip
# What gives the dtype of the value, whatever that of other arguments.
_KEEPS_DTYPE = frozenset({
    "masked_fill", "masked_scatter", "index_put", "index_fill", "index_add", "index_copy", "scatter", "scatter_add",
    "addmm", "baddbmm", "addbmm", "addmv", "addr", "relu", "dropout",
})  # fmt: skip
_OTHER_DTYPE = frozenset({
    "lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_xor", "logical_not",
})  # fmt: skip


def _new_value(node: Node, written: Node) -> Node | None:
    """Write the operation that gives a new value; None where there is none."""
    graph = node.graph
    call = call_of(node)
    assert call is not None
    if call.key == "setitem":
        return functional_setitem(graph, written, call.arguments["index"], call.arguments["value"])
    if call.key in ("zero", "fill"):
        value = call.arguments.get("value", 0)
        return graph.call_function(torch.fill, (written, value)) if is_number(value) else None
    if call.key in _OTHER_DTYPE or (call.random and call.key != "dropout"):
        return None
    new = _call(node)
    if new is None or _keeps_dtype(call, written):
        return new
    return graph.call_method("type_as", (new, written))


def _call(node: Node) -> Node | None:
    graph, target = node.graph, node.target
    if node.op == "call_method":
        name = str(target).rstrip("_") if not str(target).startswith("__") else ""
        is_method = name and callable(getattr(torch.Tensor, name, None))  # `requires_grad` is a flag
        known = operator_of_target("call_method", name) if is_method else None
        if known is None or known.aliases or known.acts:
            return None
        return graph.call_method(name, node.args, dict(node.kwargs))
    if target in _OPERATORS:
        return graph.call_function(_OPERATORS[target], node.args, dict(node.kwargs))
    assert callable(target)
    if getattr(target, "__module__", "") == F.__name__ and "inplace" in inspect.signature(target).parameters:
        given = inspect.signature(target).bind(*node.args, **node.kwargs)
        given.arguments["inplace"] = False
        return graph.call_function(target, given.args, given.kwargs)
    name = str(getattr(target, "__name__", ""))
    if not name.endswith("_"):
        return None
    homes = [home for home in (torch, F) if getattr(home, name, None) is target]
    function = getattr(homes[0], name[:-1], None) if homes else None
    known = operator_of_target("call_function", function)
    if function is None or known is None or known.acts:
        return None
    return graph.call_function(function, node.args, dict(node.kwargs))


def _keeps_dtype(call: Call, written: Node) -> bool:
    """Tell whether the new value has the dtype of the one that was written to."""
    others = [
        value
        for name, value in call.arguments.items()
        if name != "input" and isinstance(value, Node) and not is_number(value)
    ]
    if not others or call.key in _KEEPS_DTYPE:
        return True
    facts = [shape_and_dtype(value) for value in (written, *others)]
    return None not in facts and len({fact[1] for fact in facts if fact is not None}) == 1


def _replace_module(node: Node, calls: ModuleCalls) -> None:
    """Have a node call a module that is like its own, but for the flag."""
    module = calls.module(node)
    assert module is not None
    plain = copy.copy(module)
    plain.inplace = False  # type: ignore[assignment]
    calls.replace([node], plain, "plain")
