"""torch.fx's convenience methods on `ir` classes that need lower rooms; `loading.py` binds them.

`ir` alone is usable without them: it knows neither torch nor code generation.
"""

from __future__ import annotations

from typing import Any

import torch

from graphwright.codegen import (
    CodeGen,
    Details,
    PythonCode,
    graph_to_readable_source,
    graph_to_source,
    is_plain,
    tensor_of,
    tensor_text,
)
from graphwright.ir import Graph, Node, format_node, qualified_name
from graphwright.ops import ArgsKwargsPair, is_impure, is_random, module_called, normalize_function, normalize_module

__all__ = [
    "codegen",
    "format_node_with_metadata",
    "node_is_impure",
    "normalized_arguments",
    "pretty_target",
    "process_inputs",
    "process_outputs",
    "python_code",
    "set_codegen",
]


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


codegen = property(codegen_of, set_codegen, doc=codegen_of.__doc__)


def process_inputs(self: Graph, *args: Any) -> Any:
    """Turn the arguments of a call into one value per placeholder, as the graph's `CodeGen` says."""
    return args if self._writer is None else self._writer.process_inputs(*args)


def process_outputs(self: Graph, out: Any) -> Any:
    """Turn what the output node returns into what a call returns, as the graph's `CodeGen` says."""
    return out if self._writer is None else self._writer.process_outputs(out)


def node_is_impure(self: Node, impure_random: bool = True) -> bool:
    """Tell whether the node has an effect beyond its value, so that it stays though nobody reads it.

    Without `impure_random`, advancing the random state does not count.
    """
    if not impure_random and is_random(self):
        return False
    return is_impure(self, module_called(self))


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


def _text_of_target(target: Any) -> str:
    """Write a target as the text form of a graph shows it."""
    return target if isinstance(target, str) else qualified_name(target)


pretty_target = staticmethod(_text_of_target)
