"""From modules to functions: `self.linear(x)` becomes `F.linear(x, self.linear.weight, self.linear.bias)`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from torch import nn

from graphwright.ir import Graph, Node
from graphwright.ops import FunctionalForm, functional_form
from graphwright.passes.support.submodules import graphs_in
from graphwright.runtime import read_attribute


@dataclass(frozen=True, slots=True)
class UseFunctions:
    """Call the functions that modules of torch.nn stand for, with what the modules hold: `UseModules` is the way back.

    Parameters and buffers are read where they are, so that the state dict stays what it was, and the training flag of
    dropout stays that of its module: `gm.eval()` still turns it off. Other settings of a module become literals. With
    `kinds`, only calls of modules of these very classes change. Returns the number of calls that changed.

    Left alone: modules with hooks, parametrizations or a `forward` of their own, subclasses, modules that do more than
    one function does (recurrent layers, attention, containers), and norms that keep running statistics, which count
    their batches as well.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1)))
    >>> UseFunctions().run(gm)
    2
    >>> for node in gm.graph.nodes:
    ...     print(node.op, getattr(node.target, "__name__", node.target), dict(node.kwargs))
    placeholder input {}
    get_attr 0.weight {}
    get_attr 0.bias {}
    call_function linear {'weight': _0_weight, 'bias': _0_bias}
    get_attr 1.training {}
    call_function dropout {'p': 0.1, 'training': _1_training, 'inplace': False}
    output output {}
    """

    kinds: tuple[type[nn.Module], ...] = ()

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        calls = [node for graph in graphs_in(gm) for node in graph.find_nodes(op="call_module")]
        return sum(self._change(node, read_attribute(gm, str(node.target))) for node in calls)

    def _change(self, node: Node, module: Any) -> bool:
        return (not self.kinds or type(module) in self.kinds) and use_function(node, module) is not None


def use_function(node: Node, module: Any, with_statistics: bool = False) -> FunctionalForm | None:
    """Make a call of a module one of the function that it is now, and return that; None, and nothing, where it is none.

    The call reads the module's tensors, and the training flag of dropout, where they are. A norm that keeps running
    statistics is none, but `with_statistics`: then it is as its training flag stands now.
    """
    form = functional_form(module) if isinstance(module, nn.Module) else None
    is_left = form is None or (_keeps_statistics(module) and not with_statistics)
    inputs = None if is_left or form is None else _inputs(node, module, form)
    if form is None or inputs is None:
        return None
    path = str(node.target)
    kwargs = {parameter: _read(node, f"{path}.{name}") for parameter, name in form.tensors.items()}
    kwargs.update(form.values)
    if has_live_flag(module):
        kwargs["training"] = _read(node, f"{path}.training")
    node.op, node.target = "call_function", form.function
    node.args, node.kwargs = inputs, kwargs
    return form


def has_live_flag(module: nn.Module) -> bool:
    """Tell whether what a module does depends on its training flag, which it passes to its function."""
    return isinstance(module, nn.modules.dropout._DropoutNd | nn.RReLU)


def _keeps_statistics(module: nn.Module) -> bool:
    """Tell whether a norm does something else in training than in evaluation, beyond what its function is passed."""
    if not isinstance(module, nn.modules.batchnorm._NormBase):
        return False
    return module.track_running_stats or module.running_mean is not None or module.running_var is not None


def _inputs(node: Node, module: nn.Module, form: FunctionalForm) -> tuple[Any, ...] | None:
    """What a call passes for the function's inputs, in their order; None where it passes something else, too."""
    try:
        given = inspect.signature(module.forward).bind(*node.args, **node.kwargs).arguments
    except TypeError:  # a call that fails
        return None
    return tuple(given.values()) if len(given) == len(form.inputs) else None


def _read(node: Node, path: str) -> Node:
    graph: Graph = node.graph
    with graph.inserting_before(node):
        made = graph.create_node("get_attr", path, (), {})
    made.origin = node.origin
    return made
