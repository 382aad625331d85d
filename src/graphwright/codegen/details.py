"""What code shows beyond itself: types and shapes of known values, the user's lines, colors, profiler ranges."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Sequence
from typing import Any

import torch

from graphwright.codegen.function import Writer
from graphwright.codegen.stack_traces import parse_stack_trace
from graphwright.ir import Graph, Node

_COLORS = {"red": "\033[31m", "blue": "\033[34m", "dim": "\033[2m"}
_COLORS |= {"dim_blue": _COLORS["dim"] + _COLORS["blue"], "dim_green": _COLORS["dim"] + "\033[32m"}
_RESET = "\033[0m"
_ABBREVIATIONS = {
    "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float16": "f16", "float32": "f32",
    "float64": "f64", "complex32": "c32", "complex64": "c64", "complex128": "c128", "bool": "b8", "bfloat16": "bf16",
    "bits1x8": "b1x8", "bits2x4": "b2x4", "bits4x2": "b4x2", "bits8": "b8x1", "bits16": "b16x1",
    "float8_e5m2": "f8e5m2", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e4m3fnuz": "f8e4m3fnuz", "uint16": "u16", "uint32": "u32", "uint64": "u64", "float8_e8m0fnu": "f8e8m0fnu",
    "float4_e2m1fn_x2": "f4e2m1fnx2",
}  # fmt: skip
dtype_abbrs = {getattr(torch, name): short for name, short in _ABBREVIATIONS.items() if hasattr(torch, name)}
_KNOWN = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Details:
    """What to show; the fields are the options of `Graph.python_code`."""

    verbose: bool = False
    include_stride: bool = False
    include_device: bool = False
    colored: bool = False
    record_func: bool = False
    additional_meta: Sequence[str] | None = None

    def paint(self, color: str, text: str) -> str:
        """Color a text, where colors are wanted."""
        return paint(color, text) if self.colored else text


def paint(color: str, text: str) -> str:
    """Have a terminal show a text in a color."""
    return f"{_COLORS[color]}{text}{_RESET}"


def tensor_of(node: Node) -> Any:
    """The tensor, or what is known of it, that passes noted as a node's value; None where it is something else."""
    meta = node._meta or {}
    value = next((meta[key] for key in ("val", "tensor_meta", "example_value") if key in meta), None)
    dtype = getattr(value, "dtype", None)
    is_described = isinstance(value, tuple) and hasattr(value, "_fields") and isinstance(dtype, torch.dtype)
    return value if is_described or isinstance(value, _KNOWN) else None


def tensor_text(value: Any, details: Details) -> str:
    """Write the dtype and shape of a tensor, with its strides and device where they are wanted: `f32[2, 3][3, 1]cpu`.

    >>> tensor_text(torch.ones(2, 3), Details(include_stride=True, include_device=True))
    'f32[2, 3][3, 1]cpu'
    """
    stride = device = ""
    if isinstance(value, torch.Tensor):
        stride = _sizes(value.stride()) if details.include_stride else ""
        device = str(value.device) if details.include_device else ""
    return (
        details.paint("red", dtype_abbrs.get(value.dtype, str(value.dtype).removeprefix("torch.")))
        + details.paint("blue", _sizes(value.shape))
        + details.paint("dim_blue", stride)
        + details.paint("dim_green", device)
    )


def _sizes(sizes: Sequence[Any]) -> str:
    return f"[{', '.join(_NO_SIZE.sub('?', str(size)) for size in sizes)}]"


_NO_SIZE = re.compile(r"[^\w+*/ ().,<>=-]")  # a file may note any text as one


def node_comment(node: Node, details: Details) -> str:
    """A comment with the meta that is wanted, and the innermost line of the user's program that a node comes from."""
    shown = ", ".join(f"{key}: {node.meta[key]}" for key in details.additional_meta or () if key in node.meta)
    frame = parse_stack_trace(node.stack_trace or "")
    where = frame.get_summary_str() if frame else "No stacktrace found for following nodes"
    # What a comment quotes must not end it, nor control a terminal.
    text = " ".join(f"{f'# {shown} ' if shown else ''}# {where}".splitlines())
    return details.paint("dim", "".join(char if char.isprintable() else " " for char in text))


class DetailedWriter(Writer):
    """Writes what is known of values behind their names, and paints literals."""

    def __init__(self, graph: Graph, root: str, details: Details) -> None:
        super().__init__(graph, root)
        self.details = details

    def note(self, node: Node) -> str:
        """What is known of a node's value, quoted as an annotation; empty where that is nothing."""
        value = tensor_of(node) if self.details.verbose else None
        if value is None:
            return ""
        if not hasattr(value, "dtype"):
            return f': "Sym({value})"'
        text = tensor_text(value, self.details)
        return f': "Parameter({text})"' if isinstance(value, torch.nn.Parameter) else f': "{text}"'

    def parameter_annotation(self, node: Node) -> str:
        """Write what stands behind the name of a parameter."""
        return self.note(node) or super().parameter_annotation(node)

    def declared(self, node: Node) -> str:
        """Write the variable that gets a node's value: what is known of it stands for its type."""
        note = self.note(node)
        return f"{node.name}{note}" if note else super().declared(node)

    def noted(self, node: Node) -> str:
        """Write the variable that gets a node's value, with what is known of it."""
        return f"{node.name}{self.note(node)}"

    def recorded(self, key: Any, name: str) -> tuple[str, str]:
        """Write the statements that begin and end a range of the profiler, kept in a variable of this name."""
        variable = self.names.new(name)
        begin = f"{variable} = {self.names.torch()}._C._profiler._RecordFunctionFast('## {key} ##')"
        return f"{begin}; {variable}.__enter__()\n", f"{variable}.__exit__(None, None, None)\n"

    # ---- literals

    def value(self, arg: Any) -> str:
        if not self.details.colored or isinstance(arg, Node | enum.Enum) or callable(arg) or hasattr(arg, "_fields"):
            return super().value(arg)
        if isinstance(arg, list):
            return f"[{', '.join(map(self.value, arg))}]"
        if type(arg) is slice:
            return f"{self.names.builtin('slice')}({', '.join(map(self.value, (arg.start, arg.stop, arg.step)))})"
        if not isinstance(arg, tuple):
            return paint("blue", super().value(arg))
        items = ", ".join(map(self.value, arg))
        plain = f"({items}{',' if len(arg) == 1 else ''})"
        return plain if type(arg) is tuple else f"{self.names.function(type(arg))}({plain})"

    def call(self, args: Any, kwargs: Any) -> str:
        texts = [self.value(arg) for arg in args]
        self.keywords(kwargs, texts)
        return ", ".join(texts)

    def literal_operand(self, arg: Any, kind: type, strength: int) -> str:
        return self.details.paint("blue", super().literal_operand(arg, kind, strength))
