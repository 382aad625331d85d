"""The map of the source, docs/map.md, has a line for every file; what pages name in the source is there.

`python -m tests.test_map` writes the map anew, from the docstrings of the tree.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.test_architecture import FILES, PACKAGE, ROOMS, SUB_ROOMS, floors_of, listed_in, tree_of

ROOT = Path(__file__).parent.parent
MAP = ROOT / "docs/map.md"
START = "<!-- from here on `python -m tests.test_map` writes this page -->"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *{*(ROOT / "docs").rglob("*.md")} - {MAP}])

NAMED = re.compile(r"`([\w/]+\.py):([A-Za-z_][\w.]*)`")  # a file and a function or class in it

Entry = tuple[str, str]  # a heading, and a line under it


# ---- the map


def map_of_the_tree() -> list[Entry]:
    """What the map has to say: rooms in the order of imports, sub-rooms and files from the top floor down."""
    rooms = [PACKAGE / room for room in ROOMS if (PACKAGE / room).is_dir()]
    entries = [*entries_of(PACKAGE, ())]
    for room in rooms:
        floors = floors_of(room.name)
        entries += entries_of(room, floors)
        for sub_room in (room / floor for floor in floors if room / floor in SUB_ROOMS):
            entries += entries_of(sub_room, [name.removesuffix(".py") for name in listed_in(sub_room)])
    return entries


def entries_of(folder: Path, order: Iterable[str]) -> Iterator[Entry]:
    """The lines of one folder: what it is for, then its files in an order, those that it does not have by name."""
    order = [*order]
    name = folder.relative_to(PACKAGE if folder != PACKAGE else PACKAGE.parent)
    heading = f"{'###' if folder in SUB_ROOMS else '##'} `{name}/`"
    yield heading, f"{first_line(folder / '__init__.py')}."
    files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    for path in sorted(files, key=lambda path: (order.index(path.stem) if path.stem in order else 0, path.stem)):
        yield heading, f"- `{path.name}`: {listed_in(folder).get(path.name) or first_line(path)}"


def first_line(path: Path) -> str:
    return (ast.get_docstring(tree_of(path)) or "").partition("\n")[0].rstrip(".:")


def map_as_it_is() -> list[Entry]:
    entries, heading = [], ""
    for line in MAP.read_text().partition(START)[2].splitlines():
        if line.startswith("#"):
            heading = line
        elif line:
            entries.append((heading, line))
    return entries


def written(entries: Iterable[Entry]) -> str:
    """Lines as they stand in the page."""
    lines = []
    for heading, section in itertools.groupby(entries, key=lambda entry: entry[0]):
        lines += ["", heading, ""]
        for _, line in section:
            lines += [line] if line.startswith("- ") else [line, ""]
    return "\n".join(lines).strip().replace("\n\n\n", "\n\n")


def test_the_map_has_a_line_for_every_file() -> None:
    wanted, there = map_of_the_tree(), map_as_it_is()
    missing = written(entry for entry in wanted if entry not in there) or "(none)"
    extra = written(entry for entry in there if entry not in wanted) or "(none)"
    assert there == wanted, (
        "docs/map.md is not what the tree is; `python -m tests.test_map` writes it anew\n\n"
        f"---- lines that are missing, each under its heading:\n\n{missing}\n\n---- lines too many:\n\n{extra}\n"
    )


# ---- what other pages name


def prose_of(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    names = dict.fromkeys(re.findall(r"[\w./]*\w\.py\b", prose_of(page)))
    known = [name for name in names if (ROOT / name).exists() or any(str(path).endswith(f"/{name}") for path in FILES)]
    gone = [name for name in names if name not in known]
    assert not gone, "\n".join(
        f"{page.name} names {name}; there is {elsewhere(name) or 'no such file'}" for name in gone
    )


def elsewhere(name: str) -> str:
    return ", ".join(str(path.relative_to(PACKAGE)) for path in FILES if path.name == Path(name).name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_functions_that_a_page_names_are_there(page: Path) -> None:
    """`capture/flow/loops.py:Loops.repeat` names a method, function, class or table of that file."""
    wrong = []
    for file, name in NAMED.findall(prose_of(page)):
        if PACKAGE / file not in FILES or name not in definitions_in(PACKAGE / file):
            found = [str(path.relative_to(PACKAGE)) for path in FILES if name in definitions_in(path)]
            wrong.append(f"{page.name} names {file}:{name}; {name} is in {', '.join(found) or 'no file'}")
    assert not wrong, "\n".join(wrong)


def test_walks_are_steps_that_name_functions() -> None:
    walks = prose_of(ROOT / "docs/architecture.md").partition("## Walks through the source\n")[2].split("### ")[1:]
    assert len(walks) >= 3
    for walk in walks:
        title, *steps = re.split(r"^\d+\. ", walk, flags=re.MULTILINE)
        assert 4 <= len(steps) <= 8, title
        assert all(NAMED.search(step) for step in steps), f"{title}: each step names a function, `path.py:function`"


@functools.cache
def definitions_in(path: Path) -> set[str]:
    """The dotted names of functions, classes and methods of a file, and of what it assigns."""
    found = set()

    def look(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                look(node.body, f"{prefix}{node.name}.")
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    look(tree_of(path).body, "")
    return found


if __name__ == "__main__":
    MAP.write_text(f"{MAP.read_text().partition(START)[0]}{START}\n\n{written(map_of_the_tree())}\n")
