"""The reference has every public name, and no other."""

from __future__ import annotations

import importlib
import re

from tests.reference_pages import FOLDER, ROOMS, pages, told

import graphwright


def test_the_pages_are_those_of_the_names_that_there_are() -> None:
    kept = {page.name: page.read_text() for page in FOLDER.glob("*.md")}
    assert kept == pages(), "python -m tests.reference_pages writes them anew"


def test_no_public_name_is_missing_and_each_is_there_once() -> None:
    text = "\n".join(page.read_text() for page in FOLDER.glob("*.md"))
    paths = re.findall(r"^::: (.*)$", text, re.MULTILINE)
    assert len(paths) == len({*paths})
    headings = re.findall(r'heading: "(.*)"', (FOLDER / "graphwright.md").read_text())
    assert sorted(headings) == sorted(graphwright.__all__)
    for room in ROOMS:
        module = importlib.import_module(f"graphwright.{room}")
        wanted = {f"graphwright.{room}.{name}" for name in module.__all__ if told(getattr(module, name))}
        assert wanted <= {*paths}, room


def test_every_public_name_says_what_it_is() -> None:
    for name in graphwright.__all__:
        value = getattr(graphwright, name)
        assert not told(value) or value.__doc__, name
