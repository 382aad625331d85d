"""Attention as one module, opened: linear layers for its projections, and between them what it computes of these."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphwright.analysis import Shapes
from graphwright.ir import Node
from graphwright.ops import is_untouched, unpack
from graphwright.runtime import GraphModule, forget_module, graphs_of

_NAMES = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal")


def open_attention(gm: GraphModule, shapes: Shapes) -> int:
    """Write each `nn.MultiheadAttention` of a program in evaluation as layers and functions; gives how many calls.

    The projections become linear layers `query`, `key`, `value` and `out_proj` in the place of the module. Left alone
    is what `why_closed` gives a reason for.

    >>> import graphwright
    >>> class Attending(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
    ...     def forward(self, x):
    ...         return self.attention(x, x, x, need_weights=False)[0]
    >>> x, model = torch.randn(1, 3, 8), Attending().eval()
    >>> gm = graphwright.trace(model, x)
    >>> open_attention(gm, Shapes(gm, x))
    1
    >>> _ = gm.recompile()
    >>> torch.testing.assert_close(gm(x), model(x)), gm.attention.query
    (None, Linear(in_features=8, out_features=8, bias=True))
    """
    calls: dict[str, list[Node]] = {}
    for graph in graphs_of(gm):
        for node in graph.all_nodes():
            if node.op == "call_module" and isinstance(gm.get_submodule(str(node.target)), nn.MultiheadAttention):
                calls.setdefault(str(node.target), []).append(node)
    opened = 0
    for path, nodes in calls.items():
        module: Any = gm.get_submodule(path)
        if any(why_closed(node, module, shapes) for node in nodes):
            continue
        parent, _, name = path.rpartition(".")
        gm.get_submodule(parent)._modules[name] = _projections(module)
        for node in nodes:
            _Opening(node, module, path, shapes).write()
        for graph in graphs_of(gm):
            forget_module(graph, path)
        opened += len(nodes)
    return opened


def why_closed(node: Node, module: nn.MultiheadAttention, shapes: Shapes) -> str:
    """Say why a call of an attention module stays one; empty where it need not."""
    if type(module) is not nn.MultiheadAttention or not is_untouched(module):
        return "it is of another class, or has hooks or a forward of its own"
    if nn.utils.parametrize.is_parametrized(module) or module.training:
        return "its weights are parametrized, or it is in training"
    if module.bias_k is not None or module.add_zero_attn:
        return "it adds keys and values of its own"
    items = _items(node)
    if items is None:
        return "its results are used as one"
    if any(item.args[1] == 1 and item.users for item in items):
        return "the weights of its attention are used"
    given = _given(node)
    if any(isinstance(given.get(name), Node) for name in ("need_weights", "is_causal")):
        return "the program computes how it is called"
    values = [shapes.known_value(given[name]) for name in _NAMES[:3] if isinstance(given.get(name), Node)]
    if len(values) < 3 or not all(isinstance(x, Tensor) and x.dtype is torch.float32 and x.dim() == 3 for x in values):
        return "it is called with other values than batches of vectors in single precision"
    masks = [given[name] for name in ("attn_mask", "key_padding_mask") if given.get(name) is not None]
    if not all(isinstance(mask, Node) and isinstance(shapes.known_value(mask), Tensor) for mask in masks):
        return "not all is known of its masks"
    return ""


def _items(node: Node) -> list[Node] | None:
    """What takes the first or the second of the results of a call; None where something else is done with them."""
    found: list[Node] = []
    for user in node.users:
        if user.target is unpack and user.args == (node, 2):
            items = _items(user)
            if items is None:
                return None
            found += items
        elif user.target is operator.getitem and user.args in ((node, 0), (node, 1)):
            found.append(user)
        else:
            return None
    return found


def _given(node: Node) -> Mapping[str, Any]:
    return {**dict(zip(_NAMES, node.args, strict=False)), **node.kwargs}


def _projections(module: nn.MultiheadAttention) -> nn.Module:
    """The projections of an attention module as linear layers."""
    holder = nn.Module()
    whole: Any = module.in_proj_weight
    weights: list[Any] = [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
    weights = weights if whole is None else list(whole.chunk(3))
    biases: list[Any] = [None] * 3 if module.in_proj_bias is None else list(module.in_proj_bias.chunk(3))
    for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
        holder.add_module(name, _linear(weight.detach().clone(), None if bias is None else bias.detach().clone()))
    out = module.out_proj
    holder.add_module("out_proj", _linear(out.weight.detach(), None if out.bias is None else out.bias.detach()))
    return holder.eval()


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    made.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made


class _Opening:
    """Writes what one call of an attention module computes."""

    def __init__(self, node: Node, module: nn.MultiheadAttention, path: str, shapes: Shapes) -> None:
        self._node, self._module, self._path, self._shapes = node, module, path, shapes
        self._given = _given(node)

    def write(self) -> None:
        """Put it in the place of the call."""
        node, module = self._node, self._module
        with node.graph.inserting_before(node):
            query, key, value = (self._heads(name) for name in _NAMES[:3])
            mask = self._mask()
            if self._given.get("need_weights", True) is False:
                kwargs = {} if mask is None else {"attn_mask": mask}
                attended = self._call(F.scaled_dot_product_attention, query, key, value, **kwargs)
            else:  # where all is masked, NaN as the module gives it
                scaled = self._call(operator.mul, query, module.head_dim**-0.5)
                scores = self._call(torch.matmul, scaled, self._method("transpose", key, -2, -1))
                scores = scores if mask is None else self._call(operator.add, scores, mask)
                attended = self._call(torch.matmul, self._call(torch.softmax, scores, -1), value)
            order = (0, 2, 1, 3) if module.batch_first else (2, 0, 1, 3)
            joined = self._method("flatten", self._method("permute", attended, *order), 2)
            result = self._noted(node.graph.call_module(f"{self._path}.out_proj", (joined,)))
        for item in _items(node) or ():
            if item.args[1] == 0:
                item.replace_all_uses_with(result)
            item.graph.erase_node(item)
        for each in (*node.users, node):  # what unpacked them, and the call
            each.graph.erase_node(each)

    def _heads(self, name: str) -> Node:
        """A projection (batch, heads, length, size)."""
        projected = self._noted(self._node.graph.call_module(f"{self._path}.{name}", (self._given[name],)))
        split = self._method("unflatten", projected, -1, (self._module.num_heads, self._module.head_dim))
        return self._method("permute", split, *((0, 2, 1, 3) if self._module.batch_first else (1, 2, 0, 3)))

    def _mask(self) -> Node | None:
        """What is added to the scores (batch, heads, queries, keys)."""
        found: list[Node] = []
        around = self._given.get("attn_mask")
        if around is not None:
            whole = self._added(around)
            is_of_heads = self._shapes.value(around).dim() == 3
            found.append(self._method("unflatten", whole, 0, (-1, self._module.num_heads)) if is_of_heads else whole)
        padding = self._given.get("key_padding_mask")
        if padding is not None:
            found.append(self._method("unsqueeze", self._method("unsqueeze", self._added(padding), 1), 1))
        if not found:
            return None
        return found[0] if len(found) == 1 else self._call(operator.add, *found)

    def _added(self, mask: Node) -> Node:
        """A mask as what is added: -inf where it is True."""
        is_bool = self._shapes.value(mask).dtype is torch.bool
        return self._call(torch.where, mask, -torch.inf, 0.0) if is_bool else mask

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> Node:
        return self._noted(self._node.graph.call_function(function, args, kwargs))

    def _method(self, name: str, *args: Any) -> Node:
        return self._noted(self._node.graph.call_method(name, args))

    def _noted(self, made: Node) -> Node:
        made.origin = self._node.origin
        return made
