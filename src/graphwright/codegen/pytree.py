"""Programs whose graph takes and returns leaves, and whose code takes and returns what the user's program does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from torch.utils import _pytree as pytree

from graphwright.codegen import flattening
from graphwright.codegen.custom import CodeGen
from graphwright.codegen.flattening import children_of, tree_flatten_spec

_UNFLATTEN = "pytree.tree_unflatten"


class PyTreeInfo(NamedTuple):
    """The parameters of a program, "self" included, and the structures of its arguments and its result."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


class PyTreeCodeGen(CodeGen):
    """Writes a function that takes its arguments apart, runs the graph on leaves, and builds its result from leaves.

    The structures are `_in_spec` and `_out_spec` of the module.
    """

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def __deepcopy__(self, memo: dict[int, Any]) -> PyTreeCodeGen:
        copied = type(self)(self.pytree_info)
        copied._body_transformer, copied._func_name = self._body_transformer, self._func_name
        return copied

    def __getstate__(self) -> dict[str, Any]:
        names, in_spec, out_spec = self.pytree_info
        plain = names, _plain(in_spec), None if out_spec is None else _plain(out_spec)
        return {**self.__dict__, "pytree_info": plain}

    def __setstate__(self, state: dict[str, Any]) -> None:
        names, in_spec, out_spec = state["pytree_info"]
        info = PyTreeInfo(names, _spec(in_spec), None if out_spec is None else _spec(out_spec))
        self.__dict__.update({**state, "pytree_info": info})

    def process_inputs(self, *inputs: Any) -> Any:
        """List the leaves of the arguments."""
        specs = children_of(self.pytree_info.in_spec)
        if self.pytree_info.orig_args[:1] == ["self"]:
            specs = specs[1:]
        return [leaf for value, spec in zip(inputs, specs, strict=False) for leaf in tree_flatten_spec(value, spec)]

    def process_outputs(self, out: Any) -> Any:
        """Build the result from its leaves."""
        spec = self.pytree_info.out_spec
        if spec is None:
            return out
        return pytree.tree_unflatten(list(out) if isinstance(out, list | tuple) else [out], spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """Write the `def` line with the program's own parameters, and the line that takes them apart."""
        texts = {_name(text): text for text in free_vars}
        parameters: list[str] = []
        for name in reversed([name for name in self.pytree_info.orig_args if name != "self"]):
            text = texts.get(name, name)
            if "=" in text and any("=" not in later for later in parameters):
                text = text.partition("=")[0].rstrip()  # what comes after it has no default
            parameters.insert(0, text)
        leaves = [_name(text) for text in free_vars if _name(text) != "self"]
        given = [name for name in self.pytree_info.orig_args if name != "self"]
        if len(given) < len(children_of(self.pytree_info.in_spec)):
            leaves, given = ["self", *leaves], ["self", *given]
        definition = super().gen_fn_def(parameters, "", expanded_def=expanded_def)
        taken = f"fx_pytree.tree_flatten_spec([{', '.join(given)}], self._in_spec)"
        return f"{definition}\n    {''.join(f'{leaf}, ' for leaf in leaves).strip() or '[]'} = {taken}"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] | None = None) -> str:
        """Write the `return` statement that builds the result."""
        text = (repr_fn or repr)(output_args)
        return f"return {text}" if self.pytree_info.out_spec is None else f"return {_UNFLATTEN}({text}, self._out_spec)"

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Name the two modules that the text uses."""
        return [("fx_pytree", sys.modules[flattening.__name__]), ("pytree", pytree)]


def _plain(spec: pytree.TreeSpec) -> Any:
    """A specification as tuples: pickling one as it is draws a warning from torch."""
    return () if spec.is_leaf() else (spec.type, spec.context, [_plain(child) for child in children_of(spec)])


def _spec(plain: Any) -> pytree.TreeSpec:
    if not plain:
        return pytree.tree_structure(0)
    kind, context, children = plain
    return pytree.TreeSpec(kind, context, [_spec(child) for child in children])


def _name(parameter: str) -> str:
    return parameter.partition(":")[0].partition("=")[0].strip()
