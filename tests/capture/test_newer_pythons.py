"""Programs in the syntax of newer Pythons are captured there, by `trace` and by `script`, as those of older ones."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import textwrap
import types

import pytest
import torch

import graphwright

HEAD = """
import dataclasses
import enum
import typing

import torch
from torch import Tensor, nn
"""

SINCE_311 = {
    "unpacking in a subscript": """
        def program(x):
            at = (0, slice(1, 3))
            if x.sum() > 0:
                return x[*at] * 2
            return x[*at] - 1
    """,
    "except*": """
        def program(x):
            try:
                y = x * 2
                if y.sum() > 0:
                    y = y + 1
            except* ValueError:
                y = x
            return y
    """,
    "a method that gives its own class": """
        class Doubling(nn.Module):
            def on(self) -> typing.Self:
                self.scale = 2.0
                return self

            def forward(self, x):
                if x.sum() > 0:
                    return self.on().scale * x
                return x - self.on().scale

        program = Doubling()
    """,
    "an enumeration of strings": """
        class Way(enum.StrEnum):
            UP = enum.auto()
            DOWN = enum.auto()

        def turned(x, way):
            match way:
                case Way.UP:
                    return x + 1
                case "down":
                    return x - 1

        def program(x):
            if x.sum() > 0:
                return turned(x, Way.UP)
            return turned(x, Way.DOWN) if x.min() < -1 else turned(x, "down") * 3
    """,
}

SINCE_312 = {
    "a generic function": """
        def twice[T](x: T, n: int = 2) -> T:
            if x.sum() > 0:
                return x * n
            return typing.cast(T, x - n)

        def program(x):
            return twice(x) + twice(x - 1, 3)
    """,
    "a generic function as the program": """
        def program[T: Tensor](x: T) -> T:
            if x.sum() > 0:
                x = x * 2
            else:
                x = typing.cast(T, x - 1)
            return x
    """,
    "a generic module": """
        class Layer[T: Tensor, *Rest](nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def scaled[U](self, x: T, by: U) -> T:
                return x * by if x.max() > 0 else x

            def forward(self, x: T) -> T:
                if x.sum() > 0:
                    return self.linear(x)
                return self.scaled(x, 2)

        torch.manual_seed(0)
        program = Layer[Tensor]()
    """,
    "a generic function inside": """
        def program(x):
            def shifted[T](value: T, by: float) -> T:
                if value.mean() > 0:
                    return value + by
                return value - by

            if x.sum() > 0:
                return shifted(x, 1.0)
            return shifted(x * 2, 2.0)
    """,
    "a type alias": """
        type Pair = tuple[Tensor, Tensor]

        def both(x: Tensor) -> Pair:
            type Local = Tensor
            if x.sum() > 0:
                y: Local = x + 1
            else:
                y = x - 1
            return x, y

        def program(x):
            a, b = both(x)
            return a * b
    """,
    "f-strings in f-strings": """
        def program(x):
            names = {"a": 1}
            key = f"{f"{"a"}"}"
            assert x.dim() == 2, f"{x.shape[0]} rows of {names["a"]}: {f"{x.sum():.3f}"}"
            if x.sum() > 0:
                return x + names[f"{key}"]
            return x - names[f"{
                key  # on a line of its own
            }"]
    """,
    "comprehensions with loops on data": """
        def program(x):
            row = x[0]
            rows = [row * 2 if row.sum() > 0 else row for row in x]
            picked = [r for r in rows if r.max() > 0]
            table = {i: [v + i for v in row] for i, row in enumerate(x)}
            return torch.stack(rows) + row, len(picked), torch.stack(table[0])
    """,
    "a comprehension that closes over what a branch assigns": """
        def program(x):
            scale = 1
            if x.sum() > 0:
                scale = 3
                added = [lambda v, i=i: v * scale + i for i in range(2)]
            else:
                added = [lambda v, i=i: v - scale - i for i in range(2)]
            total = x
            for f in added:
                total = f(total)
            scale = x.mean()
            return [f(total) for f in added], [scale for scale in (1, 2)], scale
    """,
    "a comprehension in a loop": """
        def program(x):
            n = 0
            while x.sum() < 20:
                x = torch.stack([v + i for i, v in enumerate(x, 1)])
                n = n + sum(1 for v in x if v.min() > 0)
            return x, n
    """,
    "a comprehension in the body of a class": """
        class Scales:
            of = [i * 2 for i in range(3)]

        def program(x):
            if x.sum() > 0:
                return x * Scales.of[1]
            return x * Scales.of[2]
    """,
    "plus": """
        def program(x):
            if x.sum() > 0:
                return +x
            return x.positive()
    """,
}

SINCE_313 = {
    "a default of a type parameter": """
        def chosen[T = Tensor](x: T) -> T:
            if x.sum() > 0:
                return x * 2
            return x

        def program(x):
            return chosen(x)
    """,
    "a snapshot of the local variables": """
        def program(x):
            y = x * 2
            held = locals()
            y = y + 1
            if x.sum() > 0:
                return held["y"] + y
            return held["y"] - y
    """,
    "replaced fields": """
        import copy

        @dataclasses.dataclass(slots=True, frozen=True)
        class Box:
            value: Tensor
            scale: float = 1.0

        def program(x):
            box = Box(x)
            if x.sum() > 0:
                box = copy.replace(box, scale=2.0)
            return box.value * box.scale
    """,
}

PROGRAMS = [
    pytest.param(version, text, id=f"3.{version}-{name}")
    for version, programs in ((11, SINCE_311), (12, SINCE_312), (13, SINCE_313))
    for name, text in programs.items()
]


def read(version: int, text: str, folder: pathlib.Path) -> types.ModuleType:
    """Import a module of such text, whose functions so have their source in a file."""
    if sys.version_info < (3, version):
        pytest.skip(f"syntax of Python 3.{version}")
    path = folder / "newer.py"
    path.write_text(HEAD + textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location("newer", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INPUTS = [torch.tensor(rows) for rows in ([[1.0, -2, 3, 4], [2, 3, -1, 1]], [[-1.0, -2, -3, -1], [-4, 1, -1, -2]])]


@pytest.mark.parametrize(("version", "text"), PROGRAMS)
def test_trace_does_what_python_does(version: int, text: str, tmp_path: pathlib.Path) -> None:
    program = read(version, text, tmp_path).program
    gm = graphwright.trace(program, (INPUTS[0],))
    for x in (*INPUTS, INPUTS[1] - 3):
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)


# What `script` refuses in any Python: a star, `except*`, a new attribute, a union, `type` in a function, lambdas in
# lists, `locals`, a function of the module copy.
REFUSED = (
    "unpacking in a subscript", "except*", "a method that gives its own class", "an enumeration of strings",
    "a type alias", "a comprehension that closes over what a branch assigns", "a snapshot of the local variables",
    "replaced fields",
)  # fmt: skip


@pytest.mark.parametrize(("version", "text"), PROGRAMS)
def test_script_does_what_python_does(
    version: int, text: str, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    program = read(version, text, tmp_path).program
    if request.node.callspec.id.partition("-")[2] in REFUSED:
        with pytest.raises(graphwright.ScriptError):
            graphwright.script(program)
        return
    gm = graphwright.script(program)
    for x in (*INPUTS, INPUTS[1] - 3):
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)
