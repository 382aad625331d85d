"""torchvision's feature extraction by its own names and arguments, on this library's captures.

`from graphwright.passes import create_feature_extractor, get_graph_node_names` stands for the import from
torchvision.models.feature_extraction. `extract` does more: it takes example inputs, and with them nearly all models.
"""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from graphwright.capture import Tracer
from graphwright.errors import PassError
from graphwright.ir import Graph
from graphwright.ops import cond
from graphwright.passes.parts.extraction import extract_from, with_notes
from graphwright.passes.parts.wanted_values import Names, read_names
from graphwright.passes.support.node_names import node_names
from graphwright.runtime import GraphModule, graph_of, make_graph_module, part_module

# Whose layers are one node each, where they are loaded; torchvision's extractor does so.
_LIBRARIES_OF_LAYERS = ("torchvision.ops",)


def get_graph_node_names(
    model: nn.Module,
    tracer_kwargs: Mapping[str, Any] | None = None,
    suppress_diff_warning: bool = False,
    concrete_args: dict[str, Any] | None = None,
) -> tuple[list[str], list[str]]:
    """List the names of the values of a model, in order: those in training, and those in evaluation.

    `tracer_kwargs` are arguments of `Tracer`, and `leaf_modules`, classes of modules that are one node each;
    `concrete_args` are as for `symbolic_trace`. Warns where the two lists differ, unless `suppress_diff_warning`.
    The model is not changed; of a captured one the names are those of its own graph. Raises TraceError for what
    `symbolic_trace` cannot capture.

    >>> get_graph_node_names(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))[1]
    ['input', '0', '1']
    """
    modes = _Modes(model, tracer_kwargs, concrete_args)
    if not suppress_diff_warning:
        modes.warn_of_differences()
    return modes.names(True), modes.names(False)


def create_feature_extractor(
    model: nn.Module,
    return_nodes: Names | None = None,
    train_return_nodes: Names | None = None,
    eval_return_nodes: Names | None = None,
    tracer_kwargs: Mapping[str, Any] | None = None,
    suppress_diff_warning: bool = False,
    concrete_args: dict[str, Any] | None = None,
) -> GraphModule:
    """Make a module that returns intermediate values of a model in a dict, as `extract` does, without example inputs.

    The values are `return_nodes`, or one choice for training and one for evaluation; see `extract` for what names may
    be, `get_graph_node_names` for the other arguments. What is computed in training and in evaluation are the sides of
    one branch where they differ. Raises UnknownNameError, a ValueError, for a name that no value has; PassError where
    it is not said what to return; TraceError for what `symbolic_trace` cannot capture.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> create_feature_extractor(model, {"1": "hidden"})(torch.ones(3, 4))["hidden"].shape
    torch.Size([3, 8])
    """
    if (train_return_nodes is None) != (eval_return_nodes is None) or (return_nodes is None) == (
        train_return_nodes is None
    ):
        raise PassError(
            "it is not clear what to return",
            fix="pass return_nodes, or both train_return_nodes and eval_return_nodes",
        )
    modes = _Modes(model, tracer_kwargs, concrete_args)
    if not suppress_diff_warning:
        modes.warn_of_differences()
    wanted = {
        True: read_names(return_nodes if return_nodes is not None else train_return_nodes or ()),
        False: read_names(return_nodes if return_nodes is not None else eval_return_nodes or ()),
    }
    graphs = {}
    for mode, names in wanted.items():
        gm = extract_from(modes.root, modes.graphs[mode], names, drops_numbers=True)
        graphs[mode] = graph_of(gm)
    graph = graphs[False] if str(graphs[True]) == str(graphs[False]) else _by_mode(graphs)
    return part_module(modes.root, graph, type(model).__name__).train(model.training)


class _Modes:
    """The graphs of a model in training and in evaluation, both of one tree of modules."""

    def __init__(
        self, model: nn.Module, tracer_kwargs: Mapping[str, Any] | None, concrete_args: dict[str, Any] | None
    ) -> None:
        self.root: nn.Module = model
        if isinstance(model, GraphModule):  # captured for both modes, by whatever way
            self.graphs = {mode: copy.deepcopy(graph_of(model)) for mode in (True, False)}
            return
        options = dict(tracer_kwargs or {})
        layers = [sys.modules[name] for name in _LIBRARIES_OF_LAYERS if name in sys.modules]
        leaves = tuple(options.pop("leaf_modules", ()))
        leaves += tuple(
            kind
            for library in layers
            for kind in vars(library).values()
            if issubclass(type(kind), type) and issubclass(kind, nn.Module)
        )
        options["autowrap_modules"] = (*options.get("autowrap_modules", ()), math, *layers)
        tracers = {mode: _LeafTracer(leaves, options) for mode in (True, False)}
        self.root = with_notes(model, tracers[True].is_leaf_module)
        self.graphs = dict[bool, Graph]()
        for mode, tracer in tracers.items():
            graph = tracer.trace(self.root.train(mode), concrete_args)
            self.graphs[mode] = graph_of(make_graph_module(tracer.root, graph, type(model).__name__))

    def names(self, mode: bool) -> list[str]:
        """The names of the values in one mode."""
        return list(node_names(self.graphs[mode], drops_numbers=True).values())

    def warn_of_differences(self) -> None:
        """Warn where the two modes have different values."""
        train, evaluation = self.names(True), self.names(False)
        if train == evaluation:
            return
        how = "The nodes obtained by tracing the model in train mode are different to those obtained in eval mode."
        within = (
            "NOTE: The nodes obtained by tracing the model in {} mode are a subsequence of those obtained in {} mode."
        )
        if _is_within(evaluation, train):
            how = within.format("eval", "train") + "."
        elif _is_within(train, evaluation):
            how = within.format("train", "eval") + "."
        warnings.warn(
            f"{how} When choosing nodes for feature extraction, you may need to specify output nodes for train and eval"
            " mode separately.",
            stacklevel=3,
        )


class _LeafTracer(Tracer):
    """A tracer to which some more classes are leaves."""

    def __init__(self, leaves: tuple[type[nn.Module], ...], options: dict[str, Any]) -> None:
        super().__init__(**options)
        self._leaves = leaves

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Tell whether calls of a module are one node."""
        return isinstance(m, self._leaves) or super().is_leaf_module(m, module_qualified_name)


def _by_mode(graphs: Mapping[bool, Graph]) -> Graph:
    """One graph that does what one of two does, depending on the training flag."""
    whole = Graph()
    inputs = [whole.node_copy(node) for node in graphs[False].placeholders()]
    sides = []
    for mode in (True, False):
        side = Graph()
        values = {}
        for node in graphs[mode].placeholders():
            name = node.name.lstrip("*")
            values[node] = side.create_node("placeholder", name, (), {}, name)
        given = side.graph_copy(graphs[mode], dict(values))
        side.output(given)
        side.constants = dict(graphs[mode].constants)
        whole.constants.update(side.constants)
        sides.append(side)
    flag = whole.create_node("get_attr", "training")
    whole.output(whole.call_function(cond, (flag, *sides, tuple(inputs))))
    return whole


def _is_within(few: Iterable[str], many: Iterable[str]) -> bool:
    rest = iter(many)
    return all(any(one == other for other in rest) for one in few)
