"""What a backend needs of a called module to write it in its own terms: weights and options, by name."""

from __future__ import annotations

from typing import Any

from torch import nn

from graphwright.errors import PassError
from graphwright.runtime import GraphModule

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]

_WEIGHTS = ("weight", "bias")
# The attributes of each class that is known, and the newest version of its state that they describe.
_ATTRIBUTES: dict[type, tuple[int, tuple[str, ...]]] = {
    nn.Linear: (1, _WEIGHTS),
    nn.Conv2d: (1, (*_WEIGHTS, "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")),
    nn.BatchNorm2d: (2, (*_WEIGHTS, "running_mean", "running_var", "eps")),
    nn.AdaptiveAvgPool2d: (1, ()),
    nn.MaxPool2d: (1, ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")),
    nn.ReLU: (1, ("inplace",)),
}


def default_matching(name: str, target_version: int) -> str:
    """The name of an attribute in any version of its module: the same.

    >>> default_matching("weight", 2)
    'weight'
    """
    return name


def extract_attrs_for_lowering(mod: nn.Module) -> dict[str, Any]:
    """The class of a module as a dotted name, and its weights and options.

    Raises PassError (a RuntimeError) for a class that is not known, or newer than what is known of it.

    >>> extract_attrs_for_lowering(nn.ReLU())
    {'name': 'torch.nn.modules.activation.ReLU', 'inplace': False}
    """
    kind = f"{type(mod).__module__}.{type(mod).__qualname__}"
    if type(mod) not in _ATTRIBUTES:
        raise PassError(f"{kind} is not in the module_fetch_book yet", fix="read its attributes from the module")
    version, names = _ATTRIBUTES[type(mod)]
    if mod._version > version:
        raise PassError(f"Fetcher version {version} try to fetch {kind} version {mod._version}")
    return {"name": kind, **{name: getattr(mod, name) for name in names}}


def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Set `node.attrs_for_lowering` on each node that calls a module, those of captured modules inside included."""
    for node in fx_module.graph.nodes:
        if node.op != "call_module":
            continue
        module = fx_module.get_submodule(node.target)
        if isinstance(module, GraphModule):
            lift_lowering_attrs_to_nodes(module)
        else:
            node.attrs_for_lowering = extract_attrs_for_lowering(module)  # type: ignore[attr-defined]
