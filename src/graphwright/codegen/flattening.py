"""Arguments with a structure: taking them apart as a specification says."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree

FlattenFuncSpec = Callable[[Any, pytree.TreeSpec], list[Any]]
FLATTEN: dict[Any, FlattenFuncSpec] = {
    dict: lambda value, spec: [value[key] for key in spec.context],
    list: lambda value, spec: [value[i] for i in range(spec.num_children)],
    tuple: lambda value, spec: [value[i] for i in range(spec.num_children)],
    namedtuple: lambda value, spec: [value[i] for i in range(spec.num_children)],
}


def children_of(spec: pytree.TreeSpec) -> list[pytree.TreeSpec]:
    """The specifications of the parts of a container."""
    # torch 2.13 warns of the old way, and torch 2.6 has no other
    return spec.children() if hasattr(spec, "children") else spec.children_specs


def register_pytree_flatten_spec(
    cls: type[Any],
    flatten_fn_spec: FlattenFuncSpec,
    flatten_fn_exact_match_spec: Callable[[Any, pytree.TreeSpec], bool] | None = None,
) -> None:
    """Say how a value of a class is taken apart as a specification says: a function of the two to a list.

    Classes that `torch.utils._pytree` knows need none. `flatten_fn_exact_match_spec` is taken and not used.
    """
    FLATTEN[cls] = flatten_fn_spec


def tree_flatten_spec(tree: Any, spec: pytree.TreeSpec) -> list[Any]:
    """List the leaves of nested containers in the order of a specification, which the containers must fit.

    >>> spec = pytree.tree_structure({"a": 0, "b": (0, 0)})
    >>> tree_flatten_spec({"b": [3, 4], "a": 2}, spec)
    [2, 3, 4]
    """
    if spec.is_leaf():
        return [tree]
    flatten = FLATTEN.get(spec.type)
    if flatten is not None:
        children = flatten(tree, spec)
    elif spec.type in pytree.SUPPORTED_NODES:
        children = list(pytree.SUPPORTED_NODES[spec.type].flatten_fn(tree)[0])
    else:
        raise RuntimeError(
            f"{type(tree)} does not have a flatten_fn_spec associated with it: register one with "
            "register_pytree_flatten_spec, before a saved module is loaded"
        )
    return [
        leaf
        for child, below in zip(children, children_of(spec), strict=True)
        for leaf in tree_flatten_spec(child, below)
    ]
