"""Writes that nobody can see: in place, on a fresh value that only the write itself reads."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from graphwright.ir import Node
from graphwright.ops.effects import DECLARED_IMPURE, aliases_of, is_inplace, is_random
from graphwright.ops.lookup import operator_of
from graphwright.ops.modules import functional_form, is_plain_module
from graphwright.ops.operators import Operator

ModuleOf = Callable[[Node], "nn.Module | None"]


def is_scratch_write(node: Node, module_of: ModuleOf) -> bool:
    """Tell whether a node only writes to a value that was made for it and that nothing else reads.

    `module_of` gives the module that a call_module node calls, where it is known. Nobody can see such a write, once
    the node itself is not read: the ReLU in place behind a convolution whose result is not needed.
    """
    if not _writes_to_first(node, module_of):
        return False
    written = node.args[0] if node.args else None
    return isinstance(written, Node) and list(written.users) == [node] and gives_fresh_value(written, module_of)


def gives_fresh_value(node: Node, module_of: ModuleOf) -> bool:
    """Tell whether it is known that what a node gives shares no memory with anything else."""
    if node.op == "call_module":
        if _is_fresh_module(module_of(node)):
            return True
    elif node.op == "call_function" or node.op == "call_method":
        known = _known(node)
        if known is not None and not known.acts and not aliases_of(node, known):
            return True
    return is_scratch_write(node, module_of)


def _known(node: Node) -> Operator | None:
    known = operator_of(node)
    return None if node.op == "call_function" and known is not None and node.target in DECLARED_IMPURE else known


def _is_fresh_module(module: nn.Module | None) -> bool:
    """Tell whether what a module gives is its own; batch norm, too, which also writes to its statistics."""
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return is_plain_module(module)
    form = None if module is None else functional_form(module)
    return form is not None and (not form.operator.aliases or _is_off(form.values, form.operator))


def _is_off(values: object, operator: Operator) -> bool:
    return operator.aliases == ((0, "input"),) and isinstance(values, dict) and values.get("inplace") is False


def _writes_to_first(node: Node, module_of: ModuleOf) -> bool:
    """Tell whether a call does no more than to write to its first argument, and to give it back."""
    if node.op == "call_module":
        module = module_of(node)
        form = None if module is None else functional_form(module)
        return form is not None and form.values.get("inplace") is True and not form.operator.random
    if node.op != "call_function" and node.op != "call_method":
        return False
    known = _known(node)
    if known is None or known.acts or node.kwargs.get("out") is not None or is_random(node) or not is_inplace(node):
        return False
    if known.writes:
        return known.writes == ("input",)
    return all(flags.parameters == ("input",) for flags in known.writes_if)
