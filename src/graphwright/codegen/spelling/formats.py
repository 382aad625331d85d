"""Python's operators as templates, for tools that write code of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphwright.codegen.spelling.operators import BINARY, COMPARISON, INPLACE, UNARY_OPERATORS
from graphwright.ir import qualified_name


def is_magic(name: str) -> bool:
    """Tell whether Python itself calls methods of this name: `__add__`."""
    return name.startswith("__") and name.endswith("__")


def attribute_text(base: str, target: str) -> str:
    """Write the attribute at a dotted path below the value that `base` names.

    >>> attribute_text("self", "layers.0.weight")
    'getattr(self.layers, "0").weight'
    """
    for atom in target.split("."):
        base = f"{base}.{atom}" if atom.isidentifier() else f'getattr({base}, "{atom}")'
    return base


def home_of(function: Callable[..., Any]) -> str:
    """Name the module that a function is found in, also where it does not say so itself.

    >>> import torch
    >>> home_of(torch.relu)
    'torch'
    """
    return getattr(function, "__module__", None) or qualified_name(function).rpartition(".")[0]


reflectable_magic_methods: dict[str, str] = {
    **{
        function.__name__: f"{{}} {symbol} {{}}"
        for function, (symbol, strength) in BINARY.items()
        if strength != COMPARISON
    },
    "div": "{} / {}",  # what operator.truediv was called once
    "getitem": "{}[{}]",
}
"""Name in module `operator` -> template, of the operators that have a reflected form."""

magic_methods: dict[str, str] = {
    **{
        function.__name__: f"{{}} {symbol} {{}}"
        for function, (symbol, strength) in BINARY.items()
        if strength == COMPARISON and not symbol.startswith("is")  # which no class can define
    },
    **{function.__name__: f"{symbol}{{}}" for function, symbol in UNARY_OPERATORS.items()},
    **reflectable_magic_methods,
}
"""The same of all operators that make a value."""

inplace_methods: dict[str, str] = {
    **{function.__name__: f"{{}} {symbol} {{}}" for function, symbol in INPLACE.items()},
    "setitem": "{}[{}] = {}",
}
"""The same of those that write to their first operand."""
