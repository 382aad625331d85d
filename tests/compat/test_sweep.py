"""torch.fx and graphwright on the same inputs agree, or differ for a reason that the documentation gives."""

from __future__ import annotations

import pathlib

import pytest
from tests.compat.reasons import REASONS, explain
from tests.compat.sections import SECTIONS

QUICK = {
    "operators": {"samples": 1, "every": 40},
    "functionals": {},
    "classifiers": {"every": 16},
    "other_vision": {"every": 18},
    "timm": {"every": 10},
    "random_sources": {"count": 30},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.filterwarnings("ignore")
def test_a_slice_of_each_section(section: str) -> None:
    comparisons = list(SECTIONS[section](**QUICK[section]))
    assert len(comparisons) >= 2
    assert [(item.name, item.differs) for item in comparisons if item.differs and not explain(item)] == []


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.filterwarnings("ignore")
def test_the_whole_sweep(section: str) -> None:
    unexplained = [item for item in SECTIONS[section]() if item.differs and not explain(item)]
    assert [(item.name, item.differs) for item in unexplained] == []


def test_every_reason_is_a_row_of_the_documentation() -> None:
    page = (pathlib.Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    assert [reason for reason in REASONS if f"| {reason} |" not in page] == []
