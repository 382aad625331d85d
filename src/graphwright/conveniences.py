"""torch.fx's convenience methods on `ir` classes that need lower rooms, bound in one place.

`ir` alone is usable without them: it knows neither torch nor code generation.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from graphwright.codegen import (
    CodeGen,
    Details,
    PythonCode,
    graph_to_readable_source,
    graph_to_source,
    is_plain,
    on_generate_code,
    tensor_of,
    tensor_text,
)
from graphwright.ir import Graph, Node, format_node, qualified_name
from graphwright.ops import (
    ArgsKwargsPair,
    is_impure,
    is_random,
    is_scratch_write,
    normalize_function,
    normalize_module,
    register_containers,
)
from graphwright.passes import remove_dead_values
from graphwright.runtime import GraphModule, reduce_graph, reduce_node

__all__ = ["bind"]


def python_code(
    self: Graph,
    root_module: str,
    *,
    verbose: bool = False,
    include_stride: bool = False,
    include_device: bool = False,
    colored: bool = False,
    expanded_def: bool = False,
    record_func: bool = False,
    additional_meta: list[str] | None = None,
) -> PythonCode:
    """Write the graph as the source of a function whose first parameter is called `root_module`.

    `verbose` puts the user's lines before what comes from them, with the entries `additional_meta` of `node.meta`, and
    dtypes and shapes behind the names of values whose meta tells them; `include_stride` and `include_device` add to
    these. `colored` is for terminals. `expanded_def` gives each parameter a line. `record_func` makes each call a range
    of the profiler, named by the number of its node.
    """
    if is_plain(self._writer):
        if self.has_bodies:
            return graph_to_readable_source(self, root_module, owner=self.owning_module)
        if not (expanded_def or verbose or colored or record_func):
            return graph_to_source(self, root_module)
    return codegen_of(self)._gen_python_code(
        self.nodes,
        root_module,
        expanded_def=expanded_def,
        verbose=verbose,
        include_stride=include_stride,
        include_device=include_device,
        colored=colored,
        record_func=record_func,
        additional_meta=additional_meta,
    )


def codegen_of(self: Graph) -> CodeGen:
    """How the graph is written as code."""
    if self._writer is None:
        self._writer = CodeGen()
    return self._writer  # type: ignore[no-any-return]


def set_codegen(self: Graph, codegen: CodeGen) -> None:
    """Have the graph written as code in another way; it holds from the next call of the graph's module on."""
    self._writer = codegen
    self._edited()


def process_inputs(self: Graph, *args: Any) -> Any:
    """Turn the arguments of a call into one value per placeholder, as the graph's `CodeGen` says."""
    return args if self._writer is None else self._writer.process_inputs(*args)


def process_outputs(self: Graph, out: Any) -> Any:
    """Turn what the output node returns into what a call returns, as the graph's `CodeGen` says."""
    return out if self._writer is None else self._writer.process_outputs(out)


def eliminate_dead_code(self: Graph, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
    """Erase nodes that nothing reads and that have no effect beyond their value; answer whether any went.

    In-place operations, random ones, checks and functions of unknown effect stay; of those in place, only what writes
    to a fresh value that nothing else reads goes. `is_impure_node` decides instead, where given. Bodies of branches and
    loops are seen to as well, with the values that they give, carry or take and that nothing needs.
    """
    return remove_dead_values(self, is_impure_node or _has_visible_effect) > 0


def node_is_impure(self: Node, impure_random: bool = True) -> bool:
    """Tell whether the node has an effect beyond its value, so that it stays though nobody reads it.

    Without `impure_random`, advancing the random state does not count.
    """
    if not impure_random and is_random(self):
        return False
    return is_impure(self, _module_of(self))


def _has_visible_effect(node: Node) -> bool:
    return node_is_impure(node) and not is_scratch_write(node, _module_of)


def _module_of(node: Node) -> Any:
    owner = node.graph.owning_module
    return owner.get_submodule(node.target) if node.op == "call_module" and owner is not None else None


def normalized_arguments(
    self: Node,
    root: Any,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments with their defaults filled in; None where the parameters are not known.

    `root` owns the modules that the graph calls. The other parameters are `ops.normalize_function`'s.
    """
    if self.op == "call_function":
        return normalize_function(
            self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
        )
    if self.op == "call_module":
        return normalize_module(root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs)
    return None


def format_node_with_metadata(
    self: Node,
    placeholder_names: list[str] | None = None,
    maybe_return_typename: list[str] | None = None,
    *,
    include_tensor_metadata: bool = False,
) -> str | None:
    """Write the node as a line; see `ir.format_node`. Its type may be the dtype, shape, ... that its meta tells."""
    value = tensor_of(self) if include_tensor_metadata else None
    note = ""
    if isinstance(value, torch.Tensor):
        note = f'Tensor "{tensor_text(value, Details(include_stride=True, include_device=True))}"'
    return format_node(self, placeholder_names, maybe_return_typename, note)


def pretty_target(target: Any) -> str:
    """Write a target as the text form of a graph shows it."""
    return target if isinstance(target, str) else qualified_name(target)


def quantization(self: GraphModule) -> Any:
    """What became of each layer of a quantized module, and why: see `graphwright.quantization.Quantization`.

    Raises QuantizationError for a module that is not quantized.
    """
    return importlib.import_module("graphwright.quantization").quantization_of(self)


def bind() -> None:
    """Bind the methods below to their classes."""
    register_containers()
    table: dict[type, dict[str, Any]] = {
        Graph: {
            "__reduce__": reduce_graph,
            "python_code": python_code,
            "_codegen": property(codegen_of, set_codegen, doc=codegen_of.__doc__),
            "set_codegen": set_codegen,
            "process_inputs": process_inputs,
            "process_outputs": process_outputs,
            "on_generate_code": on_generate_code,
            "eliminate_dead_code": eliminate_dead_code,
        },
        Node: {
            "__reduce__": reduce_node,
            "is_impure": node_is_impure,
            "format_node": format_node_with_metadata,
            "normalized_arguments": normalized_arguments,
            "_pretty_print_target": staticmethod(pretty_target),
        },
    }
    table[GraphModule] = {"quantization": property(quantization)}
    for kind, methods in table.items():
        for name, function in methods.items():
            setattr(kind, name, function)
