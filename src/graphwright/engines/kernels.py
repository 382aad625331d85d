"""Functions of torch.nn.functional that only look at their arguments, by the functions in C that they call then."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
import torch.nn.functional as F

from graphwright.ir import Node

_FUNCTIONS = FunctionType, BuiltinFunctionType
_Call = tuple[Any, tuple[Any, ...]]


def use_kernel(node: Node) -> bool:
    """Make a call one of the function in C that it comes to, where there is one; tell whether there was.

    >>> from graphwright.ir import Graph
    >>> graph = Graph()
    >>> call = graph.call_function(F.relu, (graph.placeholder("x"),))
    >>> use_kernel(call), call.target
    (True, <built-in method relu of type object at ...>)
    """
    rule = _KERNELS.get(node.target) if isinstance(node.target, _FUNCTIONS) else None
    if rule is None:
        return False
    try:
        given = _signature(node.target).bind(*node.args, **node.kwargs)
    except TypeError:  # a call that fails
        return False
    given.apply_defaults()
    made = rule(given.arguments)
    if made is None:
        return False
    node.target, node.args = made
    node.kwargs = {}
    return True


def relu_over(
    x: torch.Tensor, relu: Callable[..., torch.Tensor] = torch.relu, in_place: Callable[..., torch.Tensor] = torch.relu_
) -> torch.Tensor:
    """`relu` of a tensor that nothing else reads: in its memory, where no gradient is recorded.

    With gradients it would be right as well, but slower: layers give views where their input has three dimensions.

    >>> x = torch.tensor([-1.0, 1.0])
    >>> relu_over(x) is x, x
    (True, tensor([0., 1.]))
    """
    return relu(x) if x.requires_grad else in_place(x)


def reuse_memory(node: Node) -> bool:
    """Have `relu` write over what a layer has made for it alone; tell whether it does.

    >>> from graphwright.ir import Graph
    >>> graph = Graph()
    >>> layer = graph.call_function(F.linear, (graph.placeholder("x"), graph.placeholder("weight")))
    >>> reuse_memory(graph.call_function(torch.relu, (layer,)))
    True
    """
    if node.target is not torch.relu or node.kwargs or len(node.args) != 1:
        return False
    (made,) = node.args
    if type(made) is not Node or made.op != "call_function" or made.target not in _LAYERS or [*made.users] != [node]:
        return False
    node.target = relu_over
    return True


_LAYERS = (F.linear, F.conv1d, F.conv2d, F.conv3d, F.batch_norm, torch.layer_norm)  # what they give is nobody else's


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _activation(plain: Any, in_place: Any) -> Callable[[dict[str, Any]], _Call | None]:
    def rule(given: dict[str, Any]) -> _Call | None:
        function = {False: plain, True: in_place}.get(given["inplace"])
        return None if function is None else (function, (given["input"],))

    return rule


def _dropout(given: dict[str, Any]) -> _Call | None:
    function = {False: torch.dropout, True: torch.dropout_}.get(given["inplace"])
    return None if function is None else (function, (given["input"], given["p"], given["training"]))


def _layer_norm(given: dict[str, Any]) -> _Call:
    return torch.layer_norm, tuple([given[name] for name in ("input", "normalized_shape", "weight", "bias", "eps")])


def _embedding(given: dict[str, Any]) -> _Call | None:
    padding = -1 if given["padding_idx"] is None else given["padding_idx"]
    if given["max_norm"] is not None or (given["padding_idx"] is not None and padding < 0):
        return None
    options = given["scale_grad_by_freq"], given["sparse"]
    return torch.embedding, (given["weight"], given["input"], padding, *options)


def _softmax(given: dict[str, Any]) -> _Call | None:
    if given["dim"] is None or given["dtype"] is not None:
        return None
    return torch.softmax, (given["input"], given["dim"])


_KERNELS: dict[Any, Callable[[dict[str, Any]], _Call | None]] = {
    F.relu: _activation(torch.relu, torch.relu_),
    F.silu: _activation(torch._C._nn.silu, torch._C._nn.silu_),
    F.hardswish: _activation(torch._C._nn.hardswish, torch._C._nn.hardswish_),
    F.hardsigmoid: _activation(torch._C._nn.hardsigmoid, torch._C._nn.hardsigmoid_),
    F.dropout: _dropout,
    F.layer_norm: _layer_norm,
    F.embedding: _embedding,
    F.softmax: _softmax,
}
