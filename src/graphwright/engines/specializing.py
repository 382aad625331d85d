"""The program in evaluation, for inputs of given sizes, which are literals, or for all: functions of tensors."""

from __future__ import annotations

import copy
import inspect
import logging
import math
import operator
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from graphwright.analysis import Shapes, ShapesOfCalls
from graphwright.engines.bound_tensors import Binding
from graphwright.engines.fitting import example_of
from graphwright.engines.kernels import use_kernel
from graphwright.errors import GraphwrightError
from graphwright.ir import Graph, Node
from graphwright.ops import is_impure
from graphwright.passes import FoldConditions, UseScaledDotProductAttention, put_in_place, substitute, use_function
from graphwright.runtime import GraphModule, is_guard

_OF_TENSORS = frozenset({"size", "dim", "numel", "ndimension", "is_floating_point"})
_OF_SIZES = frozenset({"size", "numel", "shape"})
_OF_NUMBERS = frozenset({
    operator.getitem, operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod,
    operator.neg, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.not_,
    operator.is_, operator.is_not, operator.pow, int, float, bool, len, max, min, math.prod, math.sqrt, math.ceil,
    math.floor, tuple, torch.Size, torch.finfo,
})  # fmt: skip
_FACTS = frozenset({"shape", "dtype", "device", "ndim", "is_cuda", "itemsize"})
_NUMBERS = (bool, int, float, torch.Size, torch.dtype, torch.device, torch.finfo)
_DROPOUTS = frozenset({F.dropout, torch.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout,
                       F.feature_alpha_dropout})  # fmt: skip


def specialized(
    module: nn.Module, graph: Graph, binding: Binding, args: Sequence[Any], is_general: bool = False
) -> tuple[GraphModule, Shapes]:
    """Copy a program for the sizes of these inputs, one for each parameter, and for evaluation.

    It is like that of `in_evaluation`; besides, numbers that come of sizes are literals, and what was taken for granted
    of the inputs is not looked at again. is_general: sizes stay computed, so that the copy takes the sizes that the
    program takes.
    """
    gm, shapes = in_evaluation(module, graph, binding, [args])
    _fold_sizes(gm.graph, shapes, args, is_general)
    FoldConditions().run(gm)
    if any("softmax" in str(node.target) for node in gm.graph.all_nodes()):
        for node in gm.graph.all_nodes():
            if isinstance(shapes.known_value(node), torch.Tensor):
                node.meta["tensor_meta"] = shapes[node]
        UseScaledDotProductAttention(fill=False).run(gm)
    _erase_unused(gm.graph)
    return gm, shapes


def in_evaluation(
    module: nn.Module, graph: Graph, binding: Binding, calls: Sequence[Sequence[Any]]
) -> tuple[GraphModule, Shapes]:
    """Copy a program for evaluation.

    Modules of which the code that `binding` is about calls functions are functions, and training flags are False. Gives
    the copy, which shares its tensors with `module`, and what is known of its values in these calls, each of which has
    a value for each parameter.
    """
    graph = copy.deepcopy(graph)
    for node in [node for node in graph.all_nodes() if node.op == "call_module"]:
        _use_function(node, module, {leaf.path for leaf in binding.leaves})
    flags = {f"{owner}.{name}".lstrip(".") for owner, table, name in binding.places if table == "__dict__"}
    for node in list(graph.all_nodes()):
        if node.op == "get_attr" and node.target in flags:
            put_in_place(node, False)
    gm = GraphModule(module, graph)
    FoldConditions().run(gm)
    for node in list(gm.graph.all_nodes()):
        use_kernel(node)
        if node.op == "call_function" and _is_in(node.target, _DROPOUTS):
            _drop(node)
    return gm, ShapesOfCalls(gm, [by_parameter(gm.graph, args) for args in calls])


def by_parameter(graph: Graph, args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Values of parameters, as a call passes them."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for node, value in zip(graph.placeholders(), args, strict=True):
        target = str(node.target)
        if target.startswith("**"):
            named.update(value)
        elif target.startswith("*"):
            positional += value
        elif (node._meta or {}).get("parameter_kind") is inspect.Parameter.KEYWORD_ONLY:
            named[target] = value
        else:
            positional.append(value)
    return tuple(positional), named


def _use_function(node: Node, module: nn.Module, inlined: set[str]) -> None:
    """Make a call of a module that of its function in evaluation, where inlined code calls it."""
    path = str(node.target)
    if path not in inlined:
        return
    called = module.get_submodule(path)
    if type(called) is nn.Identity:
        put_in_place(node, node.args[0])
        return
    twin = copy.copy(called)
    twin.__dict__["training"] = isinstance(called, nn.modules.dropout._DropoutNd | nn.RReLU) and called.training
    use_function(node, twin, with_statistics=True)


def _drop(node: Node) -> None:
    """Leave out a dropout of what is no training."""
    given = {**dict(zip(("input", "p", "training", "inplace"), node.args, strict=False)), **node.kwargs}
    value = given.get("input")
    if given.get("training", given.get("train", True)) is False and not given.get("inplace") and type(value) is Node:
        put_in_place(node, value)


# ---- sizes


def _fold_sizes(graph: Graph, shapes: Shapes, args: Sequence[Any], is_general: bool) -> None:
    """Write what comes of sizes alone as literals, and leave out checks of it; in general of ranks, dtypes, devices."""
    inputs = dict(zip(graph.placeholders(), args, strict=True))
    known: dict[Node, Any] = {}
    for node, value in inputs.items():
        if not _has_tensor(value):
            known[node] = value
    for node in list(graph.nodes):
        if is_guard(node) and all(used in known or used in inputs for used in node.all_input_nodes):
            if not node.users:
                graph.erase_node(node)  # it held for the example, and each call is compared with that
        elif not (is_general and reads_sizes(node)) and _is_of_sizes(node, known, shapes):
            value = shapes.known_value(node)
            if _is_number(value):
                known[node] = value
    for node, value in known.items():
        users = [user for user in node.users if user not in known]
        if node.op != "placeholder" and users and not isinstance(value, torch.finfo):
            _write_literal(node, value, users)


def _is_of_sizes(node: Node, known: dict[Node, Any], shapes: Shapes) -> bool:
    """Tell whether a value is the same for all inputs of the same sizes."""
    if node.op == "call_method" and node.target in _OF_TENSORS:
        others = [each for each in node.all_input_nodes if each is not node.args[0]]
        return isinstance(shapes.known_value(node.args[0]), torch.Tensor) and all(each in known for each in others)
    if node.op != "call_function" or type(node.target).__hash__ is None:
        return False
    if node.target is getattr and isinstance(node.args[0], Node) and node.args[0] in known:
        return isinstance(known[node.args[0]], torch.finfo)
    if node.target is getattr:
        return node.args[1] in _FACTS and isinstance(shapes.known_value(node.args[0]), torch.Tensor)
    if node.target is torch.is_autocast_enabled:
        return True
    return node.target in _OF_NUMBERS and all(used in known for used in node.all_input_nodes)


def reads_sizes(node: Node) -> bool:
    """Tell whether a node reads sizes of a tensor."""
    name = node.target if node.op == "call_method" else node.args[1] if node.target is getattr else None
    return isinstance(name, str) and name in _OF_SIZES


def _write_literal(node: Node, value: Any, users: Sequence[Node]) -> None:
    """Put a number, or a tuple of them, in the place of a node; sizes keep their class where the program gives them."""
    if type(value) is not torch.Size:
        substitute(node, value)
    elif all(user.op == "call_method" for user in users):
        substitute(node, tuple(value))
    else:
        node.op, node.target, node.args, node.kwargs = "call_function", torch.Size, (tuple(value),), {}


def _is_number(value: Any) -> bool:
    if type(value) in (tuple, torch.Size):
        return all(type(each) in _NUMBERS for each in value)
    return type(value) in _NUMBERS


def _has_tensor(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    items: Iterable[Any] = value.values() if isinstance(value, dict) else value if type(value) in (tuple, list) else ()
    return any(map(_has_tensor, items))


def _erase_unused(graph: Graph) -> None:
    """Erase what nobody reads, and what has no effect; so have assertions of what is known to be true."""
    for node in reversed(list(graph.nodes)):
        if node.op in ("placeholder", "output") or node.users:
            continue
        if not is_impure(node) or (node.target is torch._assert and node.args[:1] == (True,)):
            graph.erase_node(node)


def _is_in(target: Any, functions: frozenset[Any]) -> bool:
    return type(target).__hash__ is not None and target in functions


# ---- at other sizes


def shapes_with(gm: GraphModule, facts: Sequence[Any]) -> Shapes:
    """What the nodes of a program give for inputs of these facts, one for each parameter."""
    args, kwargs = by_parameter(gm.graph, [example_of(fact) for fact in facts])
    return Shapes(gm, args, kwargs)


def runs_with(gm: GraphModule, facts: Sequence[Any]) -> bool:
    """Tell whether a program runs with inputs of these facts, as far as shapes say."""
    shapes = shapes_with(gm, facts)
    logger, quiet = logging.getLogger("torch._subclasses.fake_tensor"), _OfOtherThreads()
    logger.addFilter(quiet)  # it tells of each operation that fails
    try:
        for node in gm.graph.nodes:
            shapes.value(node)
    except (GraphwrightError, RuntimeError, IndexError, ValueError, TypeError):
        return False
    finally:
        logger.removeFilter(quiet)
    return True


class _OfOtherThreads(logging.Filter):
    """Lets through what other threads log than the one that made it."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread
