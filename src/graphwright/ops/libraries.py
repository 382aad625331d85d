"""Functions of other libraries that are one operation each, as torch's are: what a call of one does, its text says.

No graph says more where such a function is looked into. So captures keep its calls as they are, and passes know that
they do nothing else. No library is imported for that: what nobody has imported, nobody calls.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Mapping
from types import FunctionType, MappingProxyType
from typing import Any

from torch import nn

# By the module that gives them to its users: the functions that "compute" new elements, those that "move" what they get
# at most, and those that give "sizes", too.
LIBRARY_FUNCTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "einops": {
        "einsum": "compute", "pack": "sizes", "parse_shape": "sizes", "rearrange": "move", "reduce": "compute",
        "repeat": "move", "unpack": "move",
    },
    "einx": dict.fromkeys((
        "add", "all", "any", "argmax", "argmin", "argsort", "count_nonzero", "divide", "dot", "equal", "flip",
        "floor_divide", "get_at", "greater", "greater_equal", "id", "less", "less_equal", "log_softmax", "logaddexp",
        "logical_and", "logical_or", "logsumexp", "max", "maximum", "mean", "min", "minimum", "multiply", "not_equal",
        "prod", "roll", "softmax", "sort", "std", "subtract", "sum", "true_divide", "var", "where",
    ), "compute"),
})  # fmt: skip
OPEN_LIBRARIES = frozenset({"einops"})
"""Those whose functions run no code that is made of what they are given: files may name them."""
# Classes of modules that call one of them, by their module: the function, and the attributes that it gets besides. The
# last of these is a dict of keywords.
_LAYERS: Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]] = MappingProxyType({
    "einops.layers.torch": {
        "Rearrange": ("einops.rearrange", ("pattern", "axes_lengths")),
        "Reduce": ("einops.reduce", ("pattern", "reduction", "axes_lengths")),
    },
})  # fmt: skip
# Classes whose objects hold only data, and call nothing but these functions and torch's: layers, and what they hold.
LIBRARY_CLASSES: Mapping[str, frozenset[str]] = MappingProxyType({
    "einops.einops": frozenset({"TransformRecipe"}),
    "einops.layers.torch": frozenset({"EinMix", "Rearrange", "Reduce"}),
})  # fmt: skip


def library_functions() -> Mapping[FunctionType, str]:
    """The functions of the libraries that are imported by now, each with its name: "einops.rearrange"."""
    return _functions(tuple([module for module in LIBRARY_FUNCTIONS if module in sys.modules]))


@functools.cache
def _functions(modules: tuple[str, ...]) -> Mapping[FunctionType, str]:
    named = {
        f"{module}.{name}": getattr(sys.modules[module], name, None)
        for module in modules
        for name in LIBRARY_FUNCTIONS[module]
    }
    return MappingProxyType({value: name for name, value in named.items() if type(value) is FunctionType})


def is_library_function(value: object) -> bool:
    """Tell whether something is one of these functions.

    >>> is_library_function(len)
    False
    """
    return type(value) is FunctionType and value in library_functions()


def is_open_function(value: object) -> bool:
    """Tell whether something is one of these functions that files may name.

    >>> is_open_function(len)
    False
    """
    return is_library_function(value) and library_functions()[value].partition(".")[0] in OPEN_LIBRARIES  # type: ignore[index]


def kind_of_function(name: str) -> str:
    """What the function of this name does.

    >>> kind_of_function("einops.rearrange"), kind_of_function("einops.parse_shape")
    ('move', 'sizes')
    """
    module, _, function = name.rpartition(".")
    return LIBRARY_FUNCTIONS[module][function]


def is_library_class(value: object) -> bool:
    """Tell whether something is a class of a library whose objects hold only data.

    >>> is_library_class(nn.Linear)
    False
    """
    return isinstance(value, type) and _is_of(value, LIBRARY_CLASSES)


def is_library_layer(kind: type[nn.Module]) -> bool:
    """Tell whether a class of modules calls one of these functions, and does nothing else.

    >>> is_library_layer(nn.Linear)
    False
    """
    return _is_of(kind, _LAYERS)


def _is_of(kind: type, names: Mapping[str, Collection[str]]) -> bool:
    home, name = kind.__module__, kind.__name__
    return home in names and name in names[home] and getattr(sys.modules.get(home), name, None) is kind


def library_call(module: Any) -> tuple[FunctionType, dict[str, Any], tuple[str, ...]]:
    """What a module of such a class calls: the function, its arguments besides the input, the attributes with these."""
    called, attributes = _LAYERS[type(module).__module__][type(module).__name__]
    *plain, spread = attributes
    values = {attribute: getattr(module, attribute) for attribute in plain} | getattr(module, spread)
    return next(function for function, name in library_functions().items() if name == called), values, attributes
