"""The page of torch.jit's names has a row for each, and what a row names is there."""

from __future__ import annotations

import pathlib
import pkgutil
import re
import types
from typing import List

import pytest
import torch
from tests.script.checking import check

import graphwright

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "torch-jit.md"
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| `")
]
STATES = ("supported", "renamed", "declined: ")


def test_every_public_name_has_a_row() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([\w.]+)", row[0])}
    assert set(torch.jit.__all__) <= named
    assert {"is_scripting", "is_tracing", "Final", "TracerWarning"} <= named


def test_every_name_that_can_be_imported_has_a_row() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([\w.]+)", row[0])}
    helpers = {"Iterator", "contextmanager"}  # of Python's
    found = {name for name, value in vars(torch.jit).items() if not isinstance(value, types.ModuleType)}
    assert {name for name in found - helpers if not name.startswith("_")} <= named
    for kind in (torch.jit.ScriptModule, torch.jit.ScriptFunction):
        own = {name for name in dir(kind) if not name.startswith("_")} - set(dir(torch.nn.Module))
        assert {f"{kind.__name__}.{name}" for name in own} <= named


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row[0]))
def test_a_row_has_a_state_and_leads_somewhere(row: list[str]) -> None:
    name, state, here = row
    assert state.startswith(STATES)
    paths = re.findall(r"`((?:graphwright|typing)[\w.]*)", here)
    assert paths or state.startswith("declined")
    for path in paths:
        pkgutil.resolve_name(path)
    if state == "supported":
        short = re.findall(r"`(\w+)", name)[0]
        assert pkgutil.resolve_name(f"graphwright.jit.{short}") is pkgutil.resolve_name(paths[0])


jit = graphwright.jit


def test_names_in_programs() -> None:
    def pair(x, n: int):
        return x * n

    def program(x, n: int):
        xs = jit.annotate(List[int], [])
        xs.append(n)
        if jit.isinstance(xs, List[int]):
            future = jit.fork(pair, x, n=n)
            x = x + jit.wait(future)
        return x, xs

    check(program, [(torch.ones(2), n) for n in (0, 2)])
    assert jit.is_scripting() is False


def test_torch_s_own_names_in_programs() -> None:
    def program(x, n: int):
        xs = torch.jit.annotate(List[int], [])
        xs.append(n)
        if torch.jit.is_scripting():
            x = x * 1
        return x, xs

    check(program, [(torch.ones(2), n) for n in (0, 2)])


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.encode(x) + 1

    @jit.export
    def encode(self, x, n: int = 1):
        for _ in range(n):
            x = self.linear(x)
        return x

    @jit.ignore
    def look(self, x):
        return {1: x}[1]

    @torch.jit.export
    def through_python(self, x):
        return self.look(x) * 2

    @jit.unused
    def never(self, x):
        yield x


def test_marked_methods() -> None:
    model = Encoder()
    gm = graphwright.script(model)
    x = torch.ones(1, 2)
    assert gm.graphs.names == ["forward", "encode", "through_python"]
    assert torch.equal(gm.encode(x, n=3), model.encode(x, n=3))
    assert torch.equal(gm.through_python(x), x * 2)
    assert torch.equal(gm(x), model(x))
    assert [node.target for node in gm.graphs["through_python"].nodes if node.op == "call_method"] == ["__call__"]


def test_an_unused_method_raises() -> None:
    class Caller(Encoder):
        def forward(self, x):
            if x.sum() > 0:
                self.never(x)
            return x

    gm = graphwright.script(Caller())
    assert gm(-torch.ones(2)).sum() == -2
    with pytest.raises(RuntimeError, match="marked as unused"):
        gm(torch.ones(2))


def both_kinds(x, y):
    return {"sum": x + y}


TAKEN = {
    "trace by torch.jit's names": lambda x: jit.trace(
        both_kinds, example_inputs=x, example_kwarg_inputs={"y": x}, strict=False
    ),
    "trace by a dict": lambda x: jit.trace(both_kinds, example_inputs={"x": x, "y": x}, optimize=True),
    "trace with options of both": lambda x: jit.trace(both_kinds, (x, x), check_trace=False, _store_inputs=False),
    "script": lambda x: jit.script(both_kinds, optimize=True, _frames_up=1),
}
EXPLAINED = {
    "RemoveInPlace": lambda x: jit.trace(both_kinds, (x, x), _force_outplace=True),
    "own class": lambda x: jit.trace(both_kinds, (x, x), _module_class=torch.nn.Module),
    "given twice": lambda x: jit.trace(both_kinds, (x, x), example_inputs=(x, x)),
    "annotate the parameters": lambda x: jit.script(both_kinds, example_inputs=[(x, x)]),
}


@pytest.mark.parametrize("name", TAKEN)
def test_options_of_torch_jit_are_taken(name: str) -> None:
    x = torch.ones(2)
    assert TAKEN[name](x)(x, x)["sum"].equal(x + x)


@pytest.mark.parametrize("name", EXPLAINED)
def test_options_of_torch_jit_that_ask_for_something_else_are_explained(name: str) -> None:
    with pytest.raises(graphwright.CaptureError, match=rf"(?s){name}"):
        EXPLAINED[name](torch.ones(2))
