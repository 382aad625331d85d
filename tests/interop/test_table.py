"""The table of docs/interop.md is what the tools make of the models now."""

from __future__ import annotations

import pytest
from tests.interop.table import MODELS, PAGE, SLOW, SMALL, TOOLS, one_process, read_table, row


def test_the_page_has_every_model_and_tool() -> None:
    rows = read_table(PAGE.read_text())
    assert [*rows] == [*MODELS]
    assert all([*cells] == [*TOOLS] for cells in rows.values())
    assert not any(
        cell.endswith("wrong") for cells in rows.values() for tool, cell in cells.items() if tool != "jit.trace"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, "a vision transformer", "Llama"])
def test_a_row_is_as_it_says(name: str) -> None:
    tools = [tool for tool in TOOLS if tool not in SLOW]
    said = read_table(PAGE.read_text())[name]
    with one_process():
        assert row(name, tools) == {tool: said[tool] for tool in tools}
