"""The rooms: who imports whom, what each shows, and that none reaches where it should not."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import graphwright

PACKAGE = Path(graphwright.__file__).parent
PROJECT = Path(__file__).parents[1]
# A room imports rooms above it. The files at the end know them all and are known by none.
ROOMS = [
    *(
        "version",
        "settings",
        "progress",
        "garbage",
        "lazy_imports",
        "errors",
        "ir",
        "ops",
        "values",
        "source",
        "codegen",
        "runtime",
        "analysis",
        "hierarchy",
        "capture",
        "script",
        "rewrite",
        "passes",
        "engines",
        "quantization",
        "distributed",
    ),
    *("interop", "onnx", "viz", "cli", "conveniences", "compat", "loading", "__init__", "__main__"),
]
STRANGERS = {"interop": {"viz"}, "onnx": {"viz"}, "viz": {"interop", "onnx"}}  # neither knows the other

PUBLIC = [
    *(
        "CaptureError",
        "CodeGen",
        "Graph",
        "GraphAppendingTracer",
        "GraphError",
        "GraphModule",
        "GraphwrightError",
        "GuardError",
    ),
    *(
        "Interpreter",
        "LoadError",
        "Node",
        "PH",
        "Proxy",
        "ProxyableClassMeta",
        "TraceError",
        "Tracer",
        "TracerBase",
        "TracerWarning",
        "Transformer",
        "config",
        "minimize",
        "converted_source",
        "cuda_graph",
        "doctor",
        "graph",
        "has_side_effect",
        "map_arg",
    ),
    *(
        "UnknownNameError",
        "compile_backend",
        "extract",
        "flatten",
        "from_export",
        "from_fx",
        "prune",
        "quantize",
        "source",
        "record",
        "recorded_calls",
        "profile",
        "summary",
        "split",
        "to_export",
        "to_fx",
        "unflatten",
    ),
    *(
        "ScriptError",
        "inline",
        "load",
        "optimize_for_inference",
        "save",
        "script",
        "symbolic_trace",
        "trace",
        "verify",
        "view",
        "wrap",
    ),
    *("Any", "Lit", "Var", "explain", "maybe", "mod", "one_of", "repeat", "replace_pattern", "rewrite", "rule"),
]

FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted(path for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
SUB_ROOMS = sorted(
    path.parent for path in FILES if path.name == "__init__.py" and path.parent.parent not in (PACKAGE, PACKAGE.parent)
)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@dataclasses.dataclass(frozen=True)
class Read:
    """What tests ask of a file. Trees of all files, kept, would be gone over in each collection of garbage."""

    imports: list[tuple[str, int]]  # dotted name, line: `if TYPE_CHECKING` and functions included
    at_once: list[tuple[str, int]]  # modules that are imported when the file is
    attributes: list[tuple[str, int]]  # of torch that are other captures: `torch.fx`
    calls_cast: list[int]  # lines of `cast(Any, self)`


_CAPTURES = ("torch.fx", "torch.jit", "torch._dynamo", "torch.export")
_INSIDE = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of a file, in functions too: of what is inside of expressions few tests ask."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [inner for name in _INSIDE for inner in getattr(node, name, ())]


@functools.cache
def read(path: Path) -> Read:
    text = path.read_text()
    tree = ast.parse(text)
    found = Read([], [], [], [])
    for node in ast.walk(tree) if any(word in text for word in (*_CAPTURES, "cast(Any, self)")) else statements(tree):
        if isinstance(node, ast.Import):
            found.imports.extend((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports name their module in full"
            found.imports.extend((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.attributes.append((f"{node.value.id}.{node.attr}", node.lineno))
        elif isinstance(node, ast.Call) and len(node.args) == 2 and getattr(node.args[1], "id", "") == "self":
            if ast.unparse(node).removeprefix("typing.") == "cast(Any, self)":
                found.calls_cast.append(node.lineno)
    for node in tree.body:
        if isinstance(node, ast.Import):
            found.at_once.extend((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.at_once.append((str(node.module), node.lineno))
    return found


def imports_of(path: Path) -> list[tuple[str, int]]:
    return read(path).imports


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


def of_each(paths: list[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """A test that holds for each of many files: one test, for one per file costs more than what it looks at."""

    def decorate(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            assert paths
            for path in paths:
                check(path)

        return test

    return decorate


@of_each(FILES)
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(path)
    for name, line in imports_of(path):
        parts = name.split(".")
        if parts[0] != "graphwright" or parts[1:2] == [room]:
            continue
        other = parts[1] if parts[1] in ROOMS else "__init__"
        assert ROOMS.index(other) < ROOMS.index(room), f"{path}:{line}: {room} imports {name}, which is below it"
        assert other not in STRANGERS.get(room, ()), f"{path}:{line}: {room} and {other} do not know each other"


@of_each([path for path in FILES if room_of(path) not in ("compat", "loading", "__init__")])
def test_nothing_needs_what_is_here_for_torch_fx_s_sake(path: Path) -> None:
    for name, line in imports_of(path):
        assert not name.startswith("graphwright.compat"), f"{path}:{line}: {name}"


@of_each(FILES)
def test_rooms_import_each_other_s_public_names(path: Path) -> None:
    room = room_of(path)
    for name, line in imports_of(path):
        parts = name.split(".")
        if parts[0] != "graphwright" or len(parts) < 2 or parts[1] in (room, "errors"):
            continue
        module = importlib.import_module(f"graphwright.{parts[1]}" if parts[1] in ROOMS else "graphwright")
        inside = parts[2:] if parts[1] in ROOMS else parts[1:]
        is_public = not inside or (len(inside) == 1 and inside[0] in module.__all__)
        assert is_public, f"{path}:{line}: {name} is not among the public names of {module.__name__}"


@of_each(FILES)
def test_only_interop_knows_other_captures(path: Path) -> None:
    if room_of(path) in ("interop", "onnx"):
        return
    for name, line in imports_of(path):
        assert not any(name == other or name.startswith(f"{other}.") for other in _CAPTURES), f"{path}:{line}: {name}"
    for name, line in read(path).attributes:
        assert name not in _CAPTURES, f"{path}:{line}: {name}"


@of_each([path for path in FILES if room_of(path) != "onnx"])
def test_what_is_imported_at_once_is_installed_with_the_library(path: Path) -> None:
    declared = re.search(r"^dependencies = \[(.*)\]$", (PROJECT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    installed = {"graphwright", *sys.stdlib_module_names, *re.findall(r'"(\w+)', declared[1])}
    for name, line in read(path).at_once:
        assert name.split(".")[0] in installed, f"{path}:{line} imports {name}, which pyproject.toml lacks"


@of_each([path for path in FILES if room_of(path) in ("ir", "errors")])
def test_no_torch_in_ir(path: Path) -> None:
    for name, line in imports_of(path):
        assert name.partition(".")[0] in ("graphwright", *_STANDARD), f"{path}:{line}: {name}"


_STANDARD = (
    *(
        "__future__",
        "ast",
        "builtins",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "difflib",
        "enum",
        "functools",
    ),
    *(
        "difflib",
        "importlib",
        "inspect",
        "itertools",
        "io",
        "keyword",
        "math",
        "operator",
        "re",
        "sys",
        "threading",
        "tokenize",
        "traceback",
        "types",
    ),
    "typing",
    "warnings",
    "unicodedata",
    "weakref",
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_rooms_say_what_they_show(folder: Path) -> None:
    module = importlib.import_module(f"graphwright.{folder.name}")
    names = module.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(module, name) for name in names)
    assert not any(name.startswith("_") for name in names)
    text = inspect.getdoc(module) or ""
    assert ".py" in text
    assert "first" in text, "the docstring says which file to read first"


def test_every_folder_is_a_known_room() -> None:
    assert {room_of(path) for path in FILES} <= set(ROOMS)


def test_the_public_names() -> None:
    assert sorted(graphwright.__all__) == sorted(PUBLIC)
    assert all(inspect.getdoc(getattr(graphwright, name)) for name in PUBLIC)


def test_everything_public_is_documented() -> None:
    for folder in FOLDERS:
        module = importlib.import_module(f"graphwright.{folder.name}")
        for name in module.__all__:
            value = getattr(module, name)
            if issubclass(type(value), type) or inspect.isfunction(value):
                assert value.__doc__, f"graphwright.{folder.name}.{name} has no docstring"


def test_what_is_asked_as_a_class_is_one() -> None:
    """Before Python 3.11, `isinstance(list[int], type)` is true, and `issubclass` refuses it."""
    asked = re.compile(r"(?:isinstance\(([\w.]+), type\)|isclass\(([\w.]+)\)).*issubclass\((?:\1|\2)\b")
    found = {name_of(path): line for path in FILES for line in path.read_text().splitlines() if asked.search(line)}
    assert not found, "write issubclass(type(x), type)"


def test_files_stay_small() -> None:
    long = {name_of(path): count for path in FILES if (count := path.read_text().count("\n")) > 650}
    assert not long, "often two ideas share a long file"


# ---- inside the rooms


def floors_of(room: str) -> tuple[str, ...]:
    """The sub-rooms and files of a room, top floor first; nothing for a room without sub-rooms."""
    written = re.search(r"^FLOORS = (\(.*?^\))", (PACKAGE / room / "__init__.py").read_text(), re.MULTILINE | re.DOTALL)
    floors: tuple[str, ...] = ast.literal_eval(written.group(1)) if written else ()
    return floors


def listed_in(folder: Path) -> dict[str, str]:
    """What the docstring of a folder says of files and sub-rooms, in its order: `    name.py    what it does`."""
    text = ast.get_docstring(tree_of(folder / "__init__.py")) or ""
    return dict(re.findall(r"^    ([a-z_]+(?:\.py|/)) +(\S.*)$", text, re.MULTILINE))


HIGH = [folder for folder in FOLDERS if floors_of(folder.name)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_floors_name_every_sub_room_and_file(folder: Path) -> None:
    sub_rooms = [path.name for path in folder.iterdir() if path in SUB_ROOMS]
    floors = floors_of(folder.name)
    if sub_rooms or floors:
        files = [path.stem for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert sorted(floors) == sorted([*sub_rooms, *files])


@pytest.mark.parametrize("folder", HIGH, ids=lambda folder: folder.name)
def test_imports_go_down(folder: Path) -> None:
    floors = floors_of(folder.name)
    wrong = []
    for path in folder.rglob("*.py"):
        own = path.relative_to(folder).parts[0].removesuffix(".py")
        for name, line in imports_of(path) if own != "__init__" else ():
            package, room, floor, *_ = *name.split("."), "", ""
            if (package, room) == ("graphwright", folder.name) and floor in floors:
                if floors.index(floor) < floors.index(own):
                    wrong.append(f"{path}:{line}: {own} imports {name}, which is on a floor above it")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", [*HIGH, *SUB_ROOMS], ids=name_of)
def test_folders_list_what_is_in_them(folder: Path) -> None:
    there = {f"{path.name}/" for path in folder.iterdir() if path in SUB_ROOMS}
    there |= {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    listed = listed_in(folder)
    missing, gone = sorted(there - {*listed}), sorted({*listed} - there)
    assert not missing and not gone, f"{name_of(folder)}/__init__.py: no line for {missing}, lines for no file {gone}"


@pytest.mark.parametrize("folder", SUB_ROOMS, ids=name_of)
def test_sub_rooms_are_a_docstring_and_files(folder: Path) -> None:
    tree = tree_of(folder / "__init__.py")
    assert ast.get_docstring(tree) and len(tree.body) == 1, "files of a room are imported by their full path"


def test_no_two_files_are_told_apart_by_an_s_alone() -> None:
    names = {path.stem for path in PACKAGE.rglob("*.py")}
    assert sorted(name for name in names if f"{name}s" in names) == []


def test_folders_stay_small() -> None:
    counts = {name_of(folder): len([*folder.glob("*.py")]) for folder in (PACKAGE, *FOLDERS, *SUB_ROOMS)}
    full = {name: count for name, count in counts.items() if count > 25}
    assert not full, "a folder of so many files is cut into sub-rooms, each for one concept"


def test_circles_of_imports_stay_small() -> None:
    large = [sorted(circle) for circle in circles(imported_files()) if len(circle) > 8]
    assert not large, "\n".join(f"{len(circle)} files know each other: {', '.join(circle)}" for circle in large)


def test_circles_are_found() -> None:
    imported = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": {"e"}, "e": {"f"}, "f": {"d"}, "g": set[str]()}
    assert circles(imported) == {frozenset("bc"), frozenset("def")}


def imported_files() -> dict[str, set[str]]:
    """The files that each file imports, by dotted names; not the rooms, between which imports go one way."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in FILES}
    return {
        name: {other for found, _ in imports_of(path) for other in (found, found.rpartition(".")[0]) if other in names}
        for name, path in names.items()
    }


def circles(imported: dict[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of files each of which leads to all the others."""

    def reached_from(name: str) -> set[str]:
        found: set[str] = set()
        waiting = [name]
        while waiting:
            new = imported[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    reached = {name: reached_from(name) for name in imported}
    return {frozenset(other for other in its if name in reached[other]) for name, its in reached.items() if name in its}


@pytest.mark.parametrize(
    ("name", "home"),
    [
        pytest.param("capture.typed.recorder.Recorder", "capture/typed/program.py", id="Recorder"),
        pytest.param("capture.symbolic.symbolic_branches.SymbolicRecorder", "capture/symbolic/", id="SymbolicRecorder"),
    ],
)
def test_captures_are_known_by_their_interface(name: str, home: str) -> None:
    module, _, kind = name.rpartition(".")
    assert hasattr(importlib.import_module(f"graphwright.{module}"), kind)
    for path in FILES:
        if not str(path.relative_to(PACKAGE)).startswith(home):
            for found, line in imports_of(path):
                is_it = found.removeprefix("graphwright.") in (module, name)
                assert not is_it, f"{path}:{line}: capture/state/protocol.py has what may be known of {kind}"


@of_each([path for path in FILES if room_of(path) == "capture"])
def test_interfaces_are_implemented(path: Path) -> None:
    lines = read(path).calls_cast
    assert not lines, f"{path}:{lines[0]}: a class has what its interface says"
