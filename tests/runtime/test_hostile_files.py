"""Files that want more than to be data: each is refused by `load`, with nothing of it run."""

from __future__ import annotations

import builtins
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tests.runtime import saved_models
from torch import nn

import graphwright
from graphwright.errors import GuardError, LoadError
from graphwright.runtime.packaging.weights import save_tensors
from graphwright.runtime.saving import saving

Program = dict[str, Any]
ALLOWED = ["tests.runtime.saved_models"]


class Victim(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.sizes = [1, 2]

    def forward(self, x: torch.Tensor, y: float = 2.0) -> torch.Tensor:
        return torch.relu(self.inner(x)).add(getattr(x, "ndim") * y)  # noqa: B009

    def told(self) -> None:
        saved_models.CALLS.append("told")

    def _secret(self) -> None:
        saved_models.CALLS.append("secret")


Victim.__module__, saved_models.Victim = saved_models.__name__, Victim  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("good") / "model.gw"
    assert graphwright.save(graphwright.symbolic_trace(Victim()), file, strict=True) == []
    graphwright.load(file)
    return file


def parts_of(file: Path) -> tuple[Program, dict[str, torch.Tensor]]:
    with safe_open(str(file), framework="pt") as opened:
        return json.loads(opened.metadata()[saving.NOTE]), {name: opened.get_tensor(name) for name in opened.keys()}


def node(program: Program, op: str, number: int = 0) -> list[Any]:
    """The fields of a node: name, op, target, args, kwargs, type, meta, origin."""
    nodes: list[list[Any]] = program["modules"][0]["program"]["nodes"]
    return [fields for fields in nodes if fields[1] == op][number]


def target(name: str, *args: Any) -> Callable[[Program], None]:
    def change(program: Program) -> None:
        function = node(program, "call_function")
        function[2] = name
        if args:
            function[3] = list(args)

    return change


def attribute(value: Any, name: str = "sizes") -> Callable[[Program], None]:
    def change(program: Program) -> None:
        program["modules"][0]["attributes"][name] = value

    return change


def method(name: str) -> Callable[[Program], None]:
    return lambda program: node(program, "call_method").__setitem__(2, name)


def change_node(op: str, field: int, value: Any) -> Callable[[Program], None]:
    return lambda program: node(program, op).__setitem__(field, value)


def child_class(name: str) -> Callable[[Program], None]:
    return lambda program: program["modules"][1].__setitem__("class", name)


def made_object(name: str, **parts: Any) -> Callable[[Program], None]:
    def change(program: Program) -> None:
        program["objects"] = [{"class": name, "attributes": {}, **parts}]
        attribute({"at": 0})(program)

    return change


def first_place(field: int, value: Any) -> Callable[[Program], None]:
    def change(program: Program) -> None:
        program["places"] = [["f.py", 1, "f", "x", 1, "", "", 0, None, None, None, []]]
        program["places"][0][field] = value
        node(program, "call_function")[7] = 0

    return change


def captured(**facts: Any) -> Callable[[Program], None]:
    """Say more of how the program was captured."""

    def change(program: Program) -> None:
        said = {"attempt": "captured", "passes": 1, "paths": 1, "seconds": 0.5, "recorded": 3, "hidden": 0}
        table = {"dict": [*map(list, {**said, **facts}.items())]}
        program["modules"][0]["program"]["graph_meta"]["capture"] = table

    return change


def without(part: str, name: str) -> Callable[[Program], None]:
    return lambda program: program["modules"][1][part].pop(name)  # type: ignore[no-any-return]


def compared(*values: Any) -> Callable[[Program], None]:
    def change(program: Program) -> None:
        node(program, "call_function")[2:5] = ["graphwright.runtime:expect_values", ["f"], {"x": {"tuple": [*values]}}]
        node(program, "call_method")[3] = [{"node": "inner"}, 1]

    return change


HOSTILE = [
    # Functions that start programs, run text or load code, by every way that leads to them.
    pytest.param(target("os:system", "touch /tmp/owned"), "os:system", id="os.system"),
    pytest.param(target("posix:system", "true"), "posix:system", id="where os has it from"),
    pytest.param(target("subprocess:Popen", "true"), "subprocess", id="subprocess"),
    pytest.param(target("builtins:eval", "1"), "builtins:eval", id="eval"),
    pytest.param(target("builtins:exec", "1"), "builtins:exec", id="exec"),
    pytest.param(target("builtins:open", "/tmp/owned", "w"), "builtins:open", id="open"),
    pytest.param(target("builtins:__import__", "os"), "__import__", id="__import__"),
    pytest.param(target("importlib:import_module", "os"), "importlib", id="importlib"),
    pytest.param(target("torch:load", "/tmp/owned"), "torch:load", id="torch.load"),
    pytest.param(target("torch.serialization:load", "/tmp/owned"), "torch.serialization", id="where torch has it from"),
    pytest.param(target("torch.jit:load", "/tmp/owned"), "torch.jit", id="torch.jit.load"),
    pytest.param(target("torch.hub:load", "a", "b"), "torch.hub", id="torch.hub"),
    pytest.param(target("torch.utils.cpp_extension:load", "a"), "cpp_extension", id="cpp_extension"),
    pytest.param(target("torch:from_file", "/tmp/owned", True, 10), "from_file", id="a file by an operator"),
    pytest.param(target("torch.ops:load_library", "/tmp/owned.so"), "load_library", id="load_library"),
    pytest.param(target("torch:compile", "x"), "compile", id="compile"),
    pytest.param(target("operator:attrgetter", "__class__"), "attrgetter", id="attrgetter"),
    pytest.param(target("operator:methodcaller", "x"), "methodcaller", id="methodcaller"),
    pytest.param(target("tests.runtime.saved_models:dataclasses.sys.exit"), "dataclasses", id="through a module"),
    pytest.param(target("tests.runtime.saved_models:dataclass"), "LoadError|file", id="from an allowed module"),
    pytest.param(target("tests.runtime.tampered_once:f"), "not allowed", id="import of a module"),
    pytest.param(target("graphwright:GraphModule.to_folder", "x"), "to_folder", id="what writes files"),
    # Names that are none.
    pytest.param(target("torch.nn.functional:relu.__globals__"), "Python's own", id="__globals__"),
    pytest.param(target("torch.nn.functional:_pad"), "not|no", id="a private name"),
    pytest.param(target("torch:_import_dotted_name", "os.system"), "not allowed", id="a private function of torch"),
    pytest.param(target("torch.ops:_load_library", "/tmp/owned.so"), "not|no", id="what is no operator"),
    pytest.param(target("tests.runtime.saved_models:f.<locals>.g"), "not all names", id="<locals>"),
    pytest.param(target("tests.runtime.saved_models:<lambda>"), "not all names", id="a lambda"),
    pytest.param(target("../../evil:f"), "not all names", id="a path"),
    pytest.param(target("/tmp/evil:f"), "not all names", id="an absolute path"),
    pytest.param(target("torch.nn.functional.relu"), "of the form", id="without a colon"),
    pytest.param(lambda program: node(program, "call_function").__setitem__(2, ["os", "system"]), "form", id="a list"),
    # Attributes and methods.
    pytest.param(target("builtins:getattr", {"node": "x"}, "__class__"), "__class__", id="getattr chain"),
    pytest.param(target("builtins:getattr", {"node": "x"}, {"node": "x"}), "read the attribute", id="computed getattr"),
    pytest.param(target("builtins:getattr", {"node": "x"}, "tofile"), "tofile", id="getattr of a writer"),
    pytest.param(
        target("graphwright.ops:enter_context", {"node": "x"}, 1), "call a value", id="a call of a computed value"
    ),
    pytest.param(method("__reduce__"), "__reduce__", id="__reduce__"),
    pytest.param(method("__class__"), "__class__", id="method __class__"),
    pytest.param(method("tofile"), "tofile", id="method tofile"),
    pytest.param(method("x; import os"), "import os", id="a method that is code"),
    pytest.param(change_node("call_module", 2, "inner.__class__"), "__class__", id="call of __class__"),
    pytest.param(change_node("call_module", 2, "inner.forward"), "no 'inner.forward'", id="call of a method"),
    pytest.param(change_node("call_module", 2, "sizes.append"), "is no|no '", id="call of an attribute"),
    # Code in names and places.
    pytest.param(change_node("placeholder", 2, "x=__import__('os')"), "damaged", id="a parameter that is code"),
    pytest.param(change_node("placeholder", 0, "x\nimport os"), "damaged", id="a value's name that is code"),
    pytest.param(first_place(3, "x\nimport os"), "more than a line", id="a comment that is code"),
    pytest.param(first_place(1, "1\nimport os"), "more than a line|damaged", id="a line number that is code"),
    pytest.param(change_node("placeholder", 3, [{"eval": "1"}]), "no kind of value", id="a default that is code"),
    pytest.param(
        lambda program: program["modules"][0].__setitem__("name", "A: pass\nimport os #"), "damaged", id="class name"
    ),
    # Objects and modules.
    pytest.param(child_class("tests.runtime.saved_models:Hostile"), "no class of modules", id="a module that is none"),
    pytest.param(child_class("tests.runtime.tampered_once:Module"), "not allowed", id="a module's class"),
    pytest.param(made_object("tests.runtime.tampered_once:Thing"), "not allowed", id="an object's class"),
    pytest.param(made_object("subprocess:Popen"), "subprocess", id="a Popen"),
    pytest.param(made_object("builtins:type"), "builtins:type", id="a class made from data"),
    pytest.param(made_object("torch.nn:Linear"), "cannot be made", id="a module as an object"),
    pytest.param(attribute({"name": "os:system"}), "os:system", id="an attribute"),
    pytest.param(attribute({"partial": ["os:system", ["true"], []]}), "os:system", id="a partial"),
    pytest.param(attribute({"name": "builtins:getattr"}, "forward"), "not a value", id="getattr as a forward"),
    pytest.param(attribute({"partial": ["builtins:hasattr", [], []]}), "not a value", id="a partial hasattr"),
    pytest.param(attribute({"name": "graphwright.ops:enter_context"}), "not a value", id="a caller of values"),
    pytest.param(target("builtins:type", "X", {"tuple": []}, {"dict": []}), "builtins:type", id="a new class"),
    pytest.param(target("torch.relu", {"module": 0}), "form", id="no colon"),
    pytest.param(target("torch:relu", {"module": 0}), "as a value", id="a module as a value"),
    pytest.param(
        target("torch:relu", {"method": [0, "add_module"]}), "may not call the method", id="a method as a value"
    ),
    pytest.param(change_node("placeholder", 1, "get_attr"), "damaged", id="a read of nothing"),
    pytest.param(target("typing:get_type_hints", {"node": "x"}), "typing", id="what evaluates annotations"),
    pytest.param(target("torch.nn.modules.module:register_module_forward_hook", "x"), "register", id="a global hook"),
    pytest.param(attribute({"weak": 3}), "weak reference", id="a weak reference to a number"),
    pytest.param(attribute({"method": [0, "__reduce__"]}), "__reduce__", id="a bound __reduce__"),
    pytest.param(attribute({"method": [0, "to_folder"]}), "to_folder|not allowed", id="a bound writer of files"),
    pytest.param(attribute(1, "__class__"), "__class__", id="attribute __class__"),
    pytest.param(attribute(1, "_forward_hooks"), "_forward_hooks", id="a table of hooks"),
    pytest.param(attribute({"dtype": "load"}), "load", id="a dtype that is none"),
    pytest.param(attribute({"at": 99}), "no object", id="an object that is not there"),
    pytest.param(attribute({"module": -1}), "no module", id="a module that is not there"),
    pytest.param(
        lambda program: program["modules"][0]["modules"].__setitem__("inner.x", 1), "inner.x", id="a dotted submodule"
    ),
    *[
        pytest.param(lambda program, name=name: program["modules"][0]["modules"].update({name: 1}), "no name", id=name)
        for name in ('x", y) or ("', "x'", "x\\")  # which would end the quotes of code that torch writes
    ],
    # What a module lacks, and what cannot be shown, is said when the file is read.
    pytest.param(without("attributes", "in_features"), "has no 'in_features'", id="a layer without a size"),
    pytest.param(without("parameters", "bias"), "Linear in it has no 'bias'", id="a layer without a bias"),
    pytest.param(compared("a", "b", "c"), "damaged: GraphError", id="a guard of three"),
    pytest.param(compared(), "damaged: ValueError", id="a guard of none"),
    pytest.param(captured(recorded="x"), "damaged: TypeError", id="a report that cannot be written"),
    pytest.param(captured(more=3), "damaged: TypeError", id="a report of more"),
    pytest.param(
        lambda program: program["modules"][0]["program"].__setitem__("original", "torch.nn:Linear"),
        "own class",
        id="another class",
    ),
]


FACTS: list[Any] = [
    3,
    {"": 3},
    {"": {"class": 3}},
    {"": {"absent": 3}},
    {"": {"values": {"list": []}}},
    {"": {"x": {}}},
]


def written_as_file(value: Any) -> Any:
    return {"dict": [[key, written_as_file(item)] for key, item in value.items()]} if type(value) is dict else value


@pytest.mark.parametrize("facts", FACTS)
def test_facts_of_modules_that_no_capture_writes_are_refused(facts: Any, good: Path, tmp_path: Path) -> None:
    program, tensors = parts_of(good)
    program["modules"][0]["program"]["graph_meta"]["modules"] = written_as_file(facts)
    save_tensors(tensors, tmp_path / "bad.gw", {saving.NOTE: json.dumps(program)})
    with pytest.raises(LoadError, match=r"what it says of its modules|is no value"):
        graphwright.load(tmp_path / "bad.gw", allow=ALLOWED)


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fail where a file reaches what runs code."""

    def record(name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: saved_models.CALLS.append(name)

    saved_models.CALLS.clear()
    monkeypatch.delitem(sys.modules, "tests.runtime.tampered_once", raising=False)  # a search for doctests imports it
    monkeypatch.setattr(os, "system", record("os.system"))
    monkeypatch.setattr(subprocess, "Popen", record("Popen"))
    monkeypatch.setattr(builtins, "eval", record("eval"))
    monkeypatch.setattr(torch, "load", record("torch.load"))
    monkeypatch.setattr(torch, "from_file", record("torch.from_file"))
    yield
    assert saved_models.CALLS == []
    assert "tests.runtime.tampered_once" not in sys.modules
    assert not Path("/tmp/owned").exists()


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(("change", "message"), HOSTILE)
def test_a_hostile_file_is_refused(change: Callable[[Program], None], message: str, good: Path, tmp_path: Path) -> None:
    program, tensors = parts_of(good)
    change(program)
    save_tensors(tensors, tmp_path / "bad.gw", {saving.NOTE: json.dumps(program)})
    with pytest.raises(LoadError, match=message):
        graphwright.load(tmp_path / "bad.gw", allow=ALLOWED)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    "name",
    ["os:system", "builtins:exec", "builtins:compile", "torch:load", "torch:compile", "sys:exit", "subprocess:run"],
)
def test_allowing_it_does_not_help(name: str, good: Path, tmp_path: Path) -> None:
    program, tensors = parts_of(good)
    target(name)(program)
    save_tensors(tensors, tmp_path / "bad.gw", {saving.NOTE: json.dumps(program)})
    with pytest.raises(LoadError):
        graphwright.load(tmp_path / "bad.gw", allow=["os", "builtins", "torch", "sys", "subprocess"])


def test_a_harmless_change_is_read(good: Path, tmp_path: Path) -> None:
    program, tensors = parts_of(good)
    target("torch:tanh")(program)
    save_tensors(tensors, tmp_path / "new.gw", {saving.NOTE: json.dumps(program)})
    gm = graphwright.load(tmp_path / "new.gw")
    assert "tanh" in gm.code


def test_what_is_not_allowed_is_named_with_the_way_to_allow_it(tmp_path: Path) -> None:
    file = tmp_path / "model.gw"
    graphwright.save(graphwright.trace(saved_models.Branching(), (torch.ones(2, 3),)), file)
    with pytest.raises(LoadError, match=r"saved_models(.|\n)*allow=\['tests'\]"):
        graphwright.load(file)


def test_texts_of_a_file_control_no_terminal(good: Path, tmp_path: Path) -> None:
    said = "\x1b[31m\r\u202e\x9b"
    program, tensors = parts_of(good)
    program["modules"][1]["attributes"]["in_features"] = said  # which torch shows as it is
    captured(attempt=said, place=said)(program)
    compared(1, said)(program)
    node(program, "call_function")[3] = [said]  # where it is
    trace = f'  File "{said}", line 1, in f\n    {said}\n'
    node(program, "call_function")[6] = {"stack_trace": trace, "opaque_calls": said}
    save_tensors(tensors, tmp_path / "red.gw", {saving.NOTE: json.dumps(program)})
    gm = graphwright.load(tmp_path / "red.gw")
    texts = [repr(gm), str(gm), gm._repr_html_(), str(gm.report), *map(str, gm.guards), *map(str, gm.report.entries)]
    texts += [gm.code, str(gm.graph), gm.print_readable(print_output=False)]
    for call in (gm, graphwright.Interpreter(gm).run):
        with pytest.raises(GuardError) as caught:
            call(torch.ones(1, 2))
        texts += [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert len(texts) > 10
    assert [text for text in texts if not text.replace("\n", "").isprintable()] == []


# ---- damage


def whole_file(good: Path) -> tuple[dict[str, Any], bytes]:
    data = good.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def written(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def with_tensor(**facts: Any) -> Callable[[Path], bytes]:
    def change(good: Path) -> bytes:
        header, data = whole_file(good)
        name = next(name for name in header if name != "__metadata__")
        header[name].update(facts)
        return written(header, data)

    return change


def with_note(note: str, name: str = saving.NOTE) -> Callable[[Path], bytes]:
    def change(good: Path) -> bytes:
        header, data = whole_file(good)
        header["__metadata__"][name] = note
        return written(header, data)

    return change


def with_layout(**layout: Any) -> Callable[[Path], bytes]:
    return with_note(json.dumps({"inner.bias": layout}), "layouts")


DAMAGED = [
    pytest.param(lambda good: b"", "damaged", id="empty"),
    pytest.param(lambda good: good.read_bytes()[:-3], "damaged", id="truncated at the end"),
    pytest.param(lambda good: good.read_bytes()[:50], "damaged", id="truncated early"),
    pytest.param(lambda good: b"PK\x03\x04" + bytes(100), "damaged", id="a zip"),
    pytest.param(lambda good: struct.pack("<Q", 2**62) + bytes(100), "damaged", id="a huge header"),
    pytest.param(with_tensor(shape=[2**40, 2**20]), "damaged", id="a huge shape"),
    pytest.param(with_tensor(data_offsets=[0, 2**40]), "damaged", id="a huge offset"),
    pytest.param(with_tensor(data_offsets=[4, 0]), "damaged", id="offsets the wrong way round"),
    pytest.param(with_tensor(dtype="F64"), "damaged", id="another dtype"),
    pytest.param(with_layout(size=[2**50], stride=[0], offset=0), "damaged", id="a huge view"),
    pytest.param(with_layout(size=[2], stride=[1], offset=2**40), "damaged", id="a view outside"),
    pytest.param(with_layout(dtype="load"), "damaged", id="a view by a function"),
    pytest.param(with_note("{"), "damaged", id="no JSON"),
    pytest.param(with_note("[" * 100_000), "damaged", id="deep JSON"),
    pytest.param(with_note("[]"), "damaged", id="a list"),
    pytest.param(with_note("{}"), "damaged", id="no format"),
    pytest.param(with_note('{"format": 1}'), "damaged", id="nothing but the format"),
    pytest.param(with_note('{"format": 5}'), "format 5; this version reads formats up to 4", id="a later format"),
    pytest.param(lambda good: written({}, b""), "no program", id="tensors alone"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGED)
def test_a_damaged_file_is_refused(damage: Callable[[Path], bytes], message: str, good: Path, tmp_path: Path) -> None:
    file = tmp_path / "bad.gw"
    file.write_bytes(damage(good))
    with pytest.raises(LoadError, match=message) as caught:
        graphwright.load(file)
    assert caught.value.fix


def test_every_truncation_of_the_program_is_refused(good: Path, tmp_path: Path) -> None:
    header, data = whole_file(good)
    note = header["__metadata__"][saving.NOTE]
    for length in range(0, len(note), 97):
        header["__metadata__"][saving.NOTE] = note[:length]
        (tmp_path / "bad.gw").write_bytes(written(header, data))
        with pytest.raises(LoadError):
            graphwright.load(tmp_path / "bad.gw")


@pytest.mark.slow
def test_parts_taken_away_or_replaced_are_refused_or_harmless(good: Path, tmp_path: Path) -> None:
    """Every value of the program replaced by others: the answer is a module or a LoadError, nothing else."""
    program, tensors = parts_of(good)
    places = list(_places(program))
    assert len(places) > 100
    for path in places:
        for junk in (None, -1, "os:system", [], {"name": "os:system"}):
            changed = json.loads(json.dumps(program))
            holder = changed
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = junk
            save_tensors(tensors, tmp_path / "bad.gw", {saving.NOTE: json.dumps(changed)})
            try:
                graphwright.load(tmp_path / "bad.gw")
            except LoadError:
                continue


def _places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*path, key))


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose module is of the program's own class, with methods of it."""
    file = tmp_path_factory.mktemp("traced") / "model.gw"
    graphwright.save(graphwright.trace(Victim(), (torch.ones(2, 2),)), file, strict=True)
    return file


def with_nodes(*added: Any) -> Callable[[Program], None]:
    """Put nodes before the output: (name, op, target, args)."""

    def change(program: Program) -> None:
        nodes = program["modules"][0]["program"]["nodes"]
        nodes[-1:-1] = [[name, op, target, args, {}, None, {}, None] for name, op, target, args in added]

    return change


N = {"node": "m"}
CALLS_OF_VALUES = [
    pytest.param(
        [("m", "get_attr", "sizes", []), ("c", "call_method", "__call__", [N])], "may not call", id="attribute"
    ),
    pytest.param(
        [("m", "get_attr", "act", []), ("c", "call_method", "__call__", [N, N])],
        "may not call|may not use 'act'",
        id="twice",
    ),
    pytest.param(
        [("m", "get_attr", "inner", []), ("c", "call_method", "__call__", [N, {"node": "x"}])],
        "may not call",
        id="module",
    ),
    pytest.param(
        [("m", "get_attr", "recompile", []), ("c", "call_method", "__call__", [N])], "recompile", id="a method of ours"
    ),
    pytest.param(
        [("m", "get_attr", "to_folder", []), ("c", "call_method", "__call__", [N, "/tmp/owned"])],
        "to_folder",
        id="that writes files",
    ),
    pytest.param(
        [("m", "get_attr", "apply", []), ("c", "call_method", "__call__", [N, {"name": "builtins:print"}])],
        "may not call the method torch.nn.modules.module:Module.apply|may not use the function print",
        id="a method of torch",
    ),
    pytest.param(
        [("m", "get_attr", "inner", []), ("c", "call_method", "register_forward_hook", [N, {"name": "torch:relu"}])],
        "register_forward_hook",
        id="registers a hook",
    ),
    pytest.param(
        [("m", "get_attr", "inner", []), ("c", "call_method", "reset_parameters", [N])],
        "reset_parameters",
        id="a method of a layer",
    ),
    pytest.param(
        [("m", "get_attr", "_secret", []), ("c", "call_method", "__call__", [N])], "_secret", id="a private method"
    ),
    pytest.param(
        [("m", "get_attr", "told", []), ("c", "call_method", "__call__", [N, N])],
        "told|may not call",
        id="the method itself",
    ),
    pytest.param(
        [("m", "get_attr", "told", []), ("c", "call_method", "split", [N])], "no 'told|told.split", id="no method"
    ),
    pytest.param(
        [("m", "call_function", "_operator:getitem", [{"node": "x"}, 1]), ("c", "call_method", "__call__", [N])],
        "__call__",
        id="no pull-back",
    ),
    pytest.param(
        [("c", "call_function", "graphwright.ops.state:set_attribute", [{"node": "x"}, "__class__", 1])],
        "may not change",
        id="__class__",
    ),
    pytest.param(
        [("c", "call_function", "graphwright.ops.state:set_attribute", [{"node": "x"}, {"node": "x"}, 1])],
        "may not change",
        id="a computed name",
    ),
    pytest.param(
        [("c", "call_function", "_operator:getitem", [{"name": "graphwright.ops.state:set_attribute"}, 1])],
        "the function set_attribute as a value",
        id="set_attribute as a value",
    ),
]


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(("added", "message"), CALLS_OF_VALUES)
def test_a_call_of_a_value_is_refused(added: list[Any], message: str, traced: Path, tmp_path: Path) -> None:
    program, tensors = parts_of(traced)
    attribute({"name": "torch:relu"}, "act")(program)
    with_nodes(*added)(program)
    save_tensors(tensors, tmp_path / "bad.gw", {saving.NOTE: json.dumps(program)})
    with pytest.raises(LoadError, match=message):
        graphwright.load(tmp_path / "bad.gw", allow=ALLOWED)


def test_a_method_of_an_allowed_class_may_be_called(traced: Path, tmp_path: Path) -> None:
    program, tensors = parts_of(traced)
    with_nodes(("m", "get_attr", "told", []), ("c", "call_method", "__call__", [N]))(program)
    save_tensors(tensors, tmp_path / "new.gw", {saving.NOTE: json.dumps(program)})
    gm = graphwright.load(tmp_path / "new.gw", allow=[*ALLOWED, __name__])
    saved_models.CALLS.clear()
    gm(torch.ones(2, 2))
    assert saved_models.CALLS == ["told"]
    saved_models.CALLS.clear()


def test_only_plain_objects_are_changed(traced: Path, tmp_path: Path) -> None:
    program, tensors = parts_of(traced)
    with_nodes(("c", "call_function", "graphwright.ops.state:set_attribute", [{"node": "x"}, "grad_fn", 1]))(program)
    save_tensors(tensors, tmp_path / "new.gw", {saving.NOTE: json.dumps(program)})
    gm = graphwright.load(tmp_path / "new.gw", allow=ALLOWED)
    with pytest.raises(graphwright.GraphwrightError, match="a Tensor is no object"):
        gm(torch.ones(2, 2))


def test_a_chain_to_the_interpreter_is_refused_at_each_step(good: Path, tmp_path: Path) -> None:
    """What a hostile file would like to compute: a class, its subclasses, their globals, a function in there."""
    steps = [
        (["c", "call_function", "builtins:getattr", [{"tuple": []}, "__class__"], {}, None, {}, None], "__class__"),
        (["c", "call_function", "builtins:object.__subclasses__", [], {}, None, {}, None], "Python's own"),
        (["c", "call_method", "__subclasses__", [{"node": "x"}], {}, None, {}, None], "__subclasses__"),
        (["c", "get_attr", "forward.__globals__", [], {}, None, {}, None], "__globals__"),
        (["c", "get_attr", "inner", [], {}, None, {}, None], "as a value"),
        (["c", "get_attr", "inner._forward_hooks", [], {}, None, {}, None], "no 'inner._forward_hooks'"),
        (["c", "get_attr", "_graphwright_state", [], {}, None, {}, None], "no '_graphwright_state'"),
        (["c", "call_function", "builtins:setattr", [{"node": "x"}, "a", 1], {}, None, {}, None], "no attribute but"),
        (["c", "call_function", "builtins:getattr", [{"node": "x"}, "recompile"], {}, None, {}, None], "recompile"),
        (["c", "call_method", "__call__", [{"node": "x"}, "true"], {}, None, {}, None], "__call__"),
        (["c", "call_function", "builtins:vars", [{"node": "x"}], {}, None, {}, None], "builtins:vars"),
    ]
    for step, message in steps:
        program, tensors = parts_of(good)
        nodes = program["modules"][0]["program"]["nodes"]
        nodes.insert(len(nodes) - 1, step)
        save_tensors(tensors, tmp_path / "bad.gw", {saving.NOTE: json.dumps(program)})
        with pytest.raises(LoadError, match=message):
            graphwright.load(tmp_path / "bad.gw", allow=ALLOWED)


def test_a_layer_that_torch_cannot_show_is_refused(tmp_path: Path) -> None:
    graphwright.save(graphwright.symbolic_trace(nn.Sequential(nn.Conv2d(1, 1, 1))), tmp_path / "conv.gw")
    program, tensors = parts_of(tmp_path / "conv.gw")
    program["modules"][1]["attributes"]["padding"] = None
    save_tensors(tensors, tmp_path / "conv.gw", {saving.NOTE: json.dumps(program)})
    with pytest.raises(LoadError, match="damaged: TypeError: object of type 'NoneType' has no len"):
        graphwright.load(tmp_path / "conv.gw")
