"""The rooms: who imports whom, what each shows, and that none reaches where it should not."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import graphwright

PACKAGE = Path(graphwright.__file__).parent
# A room imports rooms above it. The two files at the end know them all and are known by none.
ROOMS = [
    *(
        "errors",
        "ir",
        "ops",
        "values",
        "codegen",
        "runtime",
        "analysis",
        "capture",
        "script",
        "rewrite",
        "passes",
        "quantization",
    ),
    *("export", "viz", "cli", "conveniences", "compat", "__init__"),
]
STRANGERS = {"export": {"viz"}, "viz": {"export"}}  # neither knows the other

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
        "converted_source",
        "doctor",
        "graph",
        "has_side_effect",
        "map_arg",
    ),
    *("UnknownNameError", "extract", "prune", "split"),
    *("ScriptError", "load", "save", "script", "symbolic_trace", "trace", "verify", "wrap"),
    *("Any", "Lit", "Var", "explain", "maybe", "mod", "one_of", "repeat", "replace_pattern", "rewrite", "rule"),
]

FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted(path for path in PACKAGE.iterdir() if (path / "__init__.py").exists())


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[tuple[str, int]]:
    """Every module that a file imports, `if TYPE_CHECKING` and functions included: (dotted name, line)."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports name their module in full"
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(path)
    for name, line in imports_of(path):
        parts = name.split(".")
        if parts[0] != "graphwright" or parts[1:2] == [room]:
            continue
        other = parts[1] if parts[1] in ROOMS else "__init__"
        assert ROOMS.index(other) < ROOMS.index(room), f"{path}:{line}: {room} imports {name}, which is below it"
        assert other not in STRANGERS.get(room, ()), f"{path}:{line}: {room} and {other} do not know each other"


@pytest.mark.parametrize("path", FILES, ids=name_of)
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


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_only_export_knows_other_captures(path: Path) -> None:
    if room_of(path) == "export":
        return
    forbidden = ("torch.fx", "torch.jit", "torch._dynamo", "torch.export")
    for name, line in imports_of(path):
        assert not any(name == other or name.startswith(f"{other}.") for other in forbidden), f"{path}:{line}: {name}"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in forbidden, f"{path}:{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) in ("ir", "errors")], ids=name_of)
def test_no_torch_in_ir(path: Path) -> None:
    for name, line in imports_of(path):
        assert name.partition(".")[0] in ("graphwright", *_STANDARD), f"{path}:{line}: {name}"


_STANDARD = (
    *("__future__", "ast", "builtins", "collections", "contextlib", "copy", "dataclasses", "enum", "functools"),
    *(
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
            if inspect.isclass(value) or inspect.isfunction(value):
                assert value.__doc__, f"graphwright.{folder.name}.{name} has no docstring"


def test_files_stay_small() -> None:
    long = {name_of(path): count for path in FILES if (count := path.read_text().count("\n")) > 650}
    assert not long, "often two ideas share a long file"
