"""The page that lists torch.fx's names says where each stands, and by which test one can see it."""

from __future__ import annotations

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
STATES = ("as torch.fx", "differs: ", "declined: ")


def rows() -> list[list[str]]:
    """The cells of every row of every table of the page, headings left out."""
    lines = (ROOT / "docs" / "torch-fx.md").read_text().splitlines()
    found = [re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in lines if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in found]
    return [row for row in cells if row[0] not in ("name", "---") and set("".join(row)) != {"-"}]


ROWS = rows()


@functools.cache
def defined_in(path: str) -> set[str]:
    """The functions and classes of a file of tests."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.skipif(not ROWS, reason="the page has no rows")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row[0])[:40])
def test_a_row_has_a_state_and_a_test_that_exists(row: list[str]) -> None:
    assert len(row) == 3
    _, state, test = row
    assert state.startswith(STATES) and "partly" not in state
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", test)
    assert named or state.startswith("declined: ")
    for path, function in named:
        assert function in {"", *defined_in(path)}, f"{path} has no {function}"
