"""Intermediate values of a program as its result: only what they need is computed, and kept."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from graphwright.capture import LeafModules, leaf_predicate, note_output, symbolic_trace, trace
from graphwright.hierarchy import as_flat
from graphwright.ir import Graph
from graphwright.passes.parts.program_values import ProgramValues
from graphwright.passes.parts.wanted_values import Names, may_be_inside, named_outputs, read_names
from graphwright.runtime import GraphModule, Shells, as_captured, graph_of, part_module


def extract(
    model: nn.Module | Callable[..., Any],
    nodes: Names,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    leaf_modules: LeafModules = (),
) -> GraphModule:
    """Make a module that returns intermediate values of a program, in a dict, and computes only what these need.

    `nodes` says which, and what each is called: a dict such as `{"layer3": "c4", "layer4.1.add": "c5"}`, or a list of
    names. A value has the path of the module that returned it, or of the module that computes it and what is called
    there, with a number from the second on: `layer4.1.relu_1`; see `node_names`. `"layer*"` stands for several, and so
    does `re.compile(r"layer(\\d)")`: `{re.compile(r"layer(\\d)"): r"c\\1"}`. `*` does not go past a dot.

    `args` and `kwargs` are example inputs, as for `trace`, and so is `leaf_modules`; without any, the capture is that
    of `symbolic_trace`. A captured module needs none. A program that cannot be captured whole is captured with all
    modules unopened that nothing is wanted of, so that what stands behind the wanted values does not matter.

    The result is for training and evaluation; a value that is computed on one side of a branch only is None where the
    other side is taken. Each value is as it was when it was computed, whatever is written to it later. Parameters and
    buffers are shared with the model, under their names; modules that are not needed are not there. The model is not
    changed. Raises UnknownNameError for a name that no value has, PassError for a value inside of a loop, and for the
    whole value of a branch or loop that is written to later.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> features = extract(model, {"1": "hidden"}, torch.ones(3, 4))
    >>> features(torch.ones(5, 4))["hidden"].shape, list(features.state_dict())
    (torch.Size([5, 8]), ['0.weight', '0.bias'])
    """
    wanted = read_names(nodes)
    model = as_flat(as_captured(model))
    if isinstance(model, GraphModule):
        return extract_from(model, copy.deepcopy(graph_of(model)), wanted)
    is_leaf = leaf_predicate(leaf_modules)
    example = () if isinstance(args, tuple) and not args and kwargs is None else (args, kwargs)
    try:
        gm = _captured(model, wanted, example, is_leaf)
    except Exception:
        needless = _needless(model, wanted)
        if not needless:
            raise
        gm = _captured(model, wanted, example, lambda module, path: path in needless or is_leaf(module, path))
    return extract_from(gm, graph_of(gm), wanted)


def extract_from(
    gm: nn.Module, graph: Graph, wanted: Mapping[Any, str | None], drops_numbers: bool = False
) -> GraphModule:
    """Make the module of values of a graph, which is changed, that names modules and tensors of `gm`."""
    values = ProgramValues(graph, gm, drops_numbers)
    outputs = named_outputs(wanted, values.names)
    values.keep_only(outputs)
    name = type(gm).__name__
    return part_module(gm, graph, name if name.endswith("Features") else f"{name}Features")


def with_notes(model: nn.Module, is_leaf: Callable[[nn.Module, str], bool]) -> nn.Module:
    """A second tree of the same modules, in the capture of which it is noted what each entered module gives."""
    shells = Shells(model)
    for original, shell, path in shells.all():
        if path and shell is not original and not is_leaf(shell, path):
            note_output(shell, path)
    return shells.root


def _captured(
    model: Any, wanted: Mapping[Any, str | None], example: tuple[Any, ...], is_leaf: Callable[[nn.Module, str], bool]
) -> GraphModule:
    root = with_notes(model, is_leaf) if isinstance(model, nn.Module) else model
    if not example:
        return symbolic_trace(root)
    return trace(root, *example, leaf_modules=is_leaf)


def _needless(model: Any, wanted: Mapping[Any, str | None]) -> set[str]:
    """The modules inside of which nothing is wanted."""
    if not isinstance(model, nn.Module):
        return set()
    paths = [path for path, _ in model.named_modules() if path]
    inside = {path: [each for each in paths if each.startswith(f"{path}.")] for path in paths}
    return {
        path
        for path in paths
        if inside[path] and not any(may_be_inside(name, path, inside[path]) or name == path for name in wanted)
    }
