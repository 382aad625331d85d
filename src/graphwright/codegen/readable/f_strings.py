"""Texts made of values as f-strings: `f"got {n}"`, where the graph has `"got {}".format(n)`."""

from __future__ import annotations

import string

from graphwright.codegen.readable.writer import ReadableWriter
from graphwright.ir import Node

_ENDS_FIELD = set("'\"\\{}\n!:#")  # what an expression in a field must not hold


def f_string(writer: ReadableWriter, node: Node) -> str | None:
    """Write a call of `format` on a text that is known as an f-string; None where that cannot be.

    A number that the program knows is part of the text: `f"got {n}, not 32"`.
    """
    text, *values = node._args or (None,)
    if node._op != "call_method" or node._target != "format" or type(text) is not str or node._kwargs:
        return None
    fields = [(writer.value(value), type(value) is int) for value in values]
    parts = []
    for before, name, spec, conversion in string.Formatter().parse(text):
        parts.append(repr(f"{before}'")[1:-2].replace("{", "{{").replace("}", "}}"))
        if name is None:
            continue
        if name or "{" in (spec or "") or not fields or set(fields[0][0]) & _ENDS_FIELD:
            return None
        field, is_known = fields.pop(0)
        told = f"{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}"
        parts.append(field if is_known and not told else f"{{{field}{told}}}")  # a number that is known is text
    made = "".join(parts)
    return None if fields or '"' in made else f'f"{made}"'
