"""Python's operators as templates, for tools that write code of their own."""

from __future__ import annotations

from graphwright.codegen.operators import BINARY, COMPARISON, INPLACE, UNARY_OPERATORS

__all__ = ["inplace_methods", "magic_methods", "reflectable_magic_methods"]

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
