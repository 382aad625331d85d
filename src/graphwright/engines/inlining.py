"""Modules as calls of their functions: what is left of a call of `nn.Linear` is `F.linear`.

A call of a module looks for hooks, at every level of the program, and finds each parameter by a failed look-up of
attributes. Inlined code looks once for all of them, and reads all tensors at once. Where something has changed that it
cannot know of, it runs the program as it stands, which is the method beside it.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any

from torch import nn

from graphwright.codegen import PythonCode, graph_to_readable_source, is_plain
from graphwright.engines.bound_tensors import Binding, Leaf, Place, place_of, tensors_of
from graphwright.engines.form_text import free_names, names_of_tensors, opening
from graphwright.engines.kernels import reuse_memory, use_kernel
from graphwright.errors import PassError
from graphwright.ir import Graph, Node
from graphwright.ops import FunctionalForm, is_of_function, written_attributes
from graphwright.passes import substitute, use_function
from graphwright.runtime import Entry, GraphModule, entry_points_of, graphs_of, in_form, is_called_plainly


def inline(gm: GraphModule) -> GraphModule:
    """Copy a captured module, with calls of functions in the place of calls of modules; the copy shares its tensors.

    Of each module of torch.nn without hooks the function is called, and tensors are read once for a call. The graph
    stays what it was, and so do the modules: edits, `load_state_dict`, `to`, `train` and `eval` work as before. Where
    a module has got a hook, parametrizations, other settings or another class, or a batch norm is in training, the call
    runs the program as it stands, the method `forward_calling_modules`.

    Raises PassError for what is no captured module, and where its code has a form of its own.

    >>> import graphwright, torch
    >>> gm = graphwright.inline(graphwright.trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(1, 2)))
    >>> print("\\n".join(line for line in gm.code.splitlines() if "= torch." in line or "relu_over" in line))
        linear = torch.nn.functional.linear(input, weight, bias)
        relu = relu_over(linear);  del linear
    >>> gm(torch.ones(1, 2)).shape
    torch.Size([1, 3])
    """
    entries = entry_points_of(gm)
    if not entries:
        fix = "capture it first: graphwright.trace(module, args)"
        raise PassError(f"{type(gm).__name__} is no captured module", fix=fix)
    inlined = next((entry for entry in entries.values() if entry.form is not None), None)
    if inlined is not None:
        raise PassError("the code of this module has a form already", fix="inline the module that it was made of")
    for graph in graphs_of(gm):
        if not is_plain(graph._writer):
            raise PassError(
                f"the code of this module is written by {type(graph._writer).__name__}",
                fix="capture it with graphwright.trace, whose arguments keep their structure",
            )
    return in_form(gm, Inlined, "calling_modules")


@dataclasses.dataclass(frozen=True, slots=True)
class Inlined:
    """The form of inlined code. `beside` is the entry point with the program as it stands.

    is_saved: whether a file has that, without the form.
    """

    beside: str
    is_saved: bool = False

    @property
    def instead_of_saving(self) -> str:
        """What to do where no file holds the form."""
        again = (
            "save the module that was inlined, and inline what is loaded: graphwright.inline(graphwright.load(path))"
        )
        return "" if self.is_saved else again

    def write(self, module: GraphModule, entry: Entry) -> PythonCode:
        """Write the code for the modules as they are now."""
        graph, places, entry.held = _inlined(module, entry)
        for node in graph.all_nodes():
            use_kernel(node)
            reuse_memory(node)
        free_names(graph, places)
        return graph_to_readable_source(
            graph,
            owner=module,
            name=entry.name,
            first=functools.partial(_opening, entry.name, self.beside, graph),
            reads_tables=True,
            variables=names_of_tensors(places),
        )


def binding_of(module: GraphModule, entry: Entry) -> Binding:
    """What inlined code of an entry point would take for granted of the modules as they are now."""
    return _inlined(module, entry)[2]


def _inlined(module: GraphModule, entry: Entry) -> tuple[Graph, dict[str, Place], Binding]:
    """A copy of a program that calls functions, where it has its tensors, and what it takes for granted."""
    graph = copy.deepcopy(entry.graph)
    leaves = [leaf for node in _calls(graph) for leaf in [_inline_call(node, module)] if leaf is not None]
    places = _places(graph, module)
    distinct = {leaf.path: leaf for leaf in leaves}
    return graph, places, Binding(entry.graph, list(distinct.values()), list(places.values()))


def _places(graph: Graph, root: nn.Module) -> dict[str, Place]:
    """The tensors and training flags that may be read before all else, by path, the flags last.

    What the program writes is read where it is, and so is what belongs to modules that are called: they may write it.
    """
    changed = written_attributes(graph) | {str(node.target) for node in _calls(graph)}
    read = dict.fromkeys(str(node.target) for node in graph.all_nodes() if node.op == "get_attr")
    found = {path: place_of(root, path) for path in read if not changed & _around(path)}
    places = [(path, place) for path, place in found.items() if place is not None]
    return dict(sorted(places, key=lambda each: each[1].table == "__dict__"))


def _around(path: str) -> set[str]:
    """A path, and those that it leads through."""
    atoms = path.split(".")
    return {".".join(atoms[:length]) for length in range(1, len(atoms) + 1)}


def _calls(graph: Graph) -> list[Node]:
    return [node for node in graph.all_nodes() if node.op == "call_module"]


def _inline_call(node: Node, root: nn.Module) -> Leaf | None:
    """Make a call of a module one of its function, where it is as good as that."""
    path = str(node.target)
    module = root.get_submodule(path)
    if not is_called_plainly(module) or not is_of_function(type(module)):
        return None
    forward = type(module).forward
    if type(module) is nn.Identity:
        if len(node.args) != 1 or node.kwargs or not isinstance(node.args[0], Node | int | float | str | None):
            return None
        substitute(node, node.args[0])
        node.graph.erase_node(node)
        return Leaf(path, nn.Identity, forward, {}, ())
    evaluated, modes = _in_evaluation(module)
    form = None if evaluated is None else use_function(node, evaluated, with_statistics=True)
    if form is None:
        return None
    _by_place(node, form)
    tensors = {**module._parameters, **module._buffers}
    absent = tuple([name for name, tensor in tensors.items() if tensor is None])
    settings = {name: getattr(module, name) for name in form.settings}
    return Leaf(path, type(module), forward, {**settings, **modes}, absent)


def _in_evaluation(module: nn.Module) -> tuple[nn.Module | None, dict[str, bool]]:
    """The module to write a call for, and the modes that this takes for granted.

    A batch norm that keeps running statistics writes to them in training, and counts its batches: it is inlined as it
    is in evaluation. Other norms that keep them are left alone.
    """
    if not isinstance(module, nn.modules.batchnorm._NormBase):
        return module, {}
    if module.running_mean is None and module.running_var is None and not module.track_running_stats:
        return module, {}
    if not isinstance(module, nn.modules.batchnorm._BatchNorm):
        return None, {}
    twin = copy.copy(module)
    twin.__dict__["training"] = False
    return twin, {"training": False}


def _by_place(node: Node, form: FunctionalForm) -> None:
    """Pass by place what stands in the order of the function's parameters: it is shorter, and taken apart faster."""
    kwargs = dict(node.kwargs)
    args = list(node.args)
    for name in form.positional[len(args) :]:
        if name not in kwargs:
            break
        args.append(kwargs.pop(name))
    node.args, node.kwargs = tuple(args), kwargs


# ---- the text


def _opening(name: str, beside: str, graph: Graph, writer: Any) -> list[str]:
    """The statements before all others: the check, the program as it stands, and the tensors."""
    named = "" if name == "forward" else f", {name!r}"
    check = f"{writer.names.function(tensors_of)}({writer.root}{named})"
    why = "a module has a hook, is another one, or was given other settings"
    return opening(writer, "tensors", check, why, beside, graph)
