"""What to_folder refuses, what it says, and that it then leaves everything as it was."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runtime.programs import Configured, Helpers, Scale, calls, graph_of, scaled
from torch import Tensor, nn
from torch.nn.utils import parametrize

import graphwright
from graphwright import Graph, GraphModule, Node, symbolic_trace
from graphwright.errors import ExportError
from graphwright.ir import Origin

HERE = Origin("model.py", 14, "Gate.forward", "y = f(x)")


def calling(function: Any, *args: Any) -> GraphModule:
    def build(graph: Graph, x: Node) -> Node:
        node = graph.create_node("call_function", function, (x, *args), name="y")
        node.origin = HERE
        return node

    return GraphModule(nn.Module(), graph_of(build))


def whole(module: nn.Module) -> GraphModule:
    gm = GraphModule({"part": module}, calls("part"))
    next(iter(gm.graph.find_nodes(op="call_module"))).origin = HERE
    return gm


def local_function() -> Callable[[Tensor], Tensor]:
    def inner(x: Tensor) -> Tensor:
        return x

    return inner


def local_module() -> nn.Module:
    class Local(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    return Local()


def from_a_script() -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        return x

    function.__module__, function.__qualname__ = "__main__", "function"
    return function


def hooked() -> nn.Module:
    linear = nn.Linear(3, 3)
    linear.register_forward_hook(lambda module, args, result: result * 2)
    return linear


def parametrized() -> nn.Module:
    linear = nn.Linear(3, 3)
    parametrize.register_parametrization(linear, "weight", nn.Tanh())
    return linear


def holding(tensor: Tensor) -> GraphModule:
    return GraphModule({"held": tensor}, graph_of(lambda graph, x: graph.get_attr("held")))


class Indexed(nn.Module):
    """A container of a user's own, which knows its children by number."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module("0", nn.Linear(3, 3))

    def __getitem__(self, number: int) -> nn.Module:
        return self.get_submodule(str(number))


class UsesIndexed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = Indexed()
        self.blocks.gain = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks[0](x) * self.blocks.gain


class Tagged(Tensor):
    """A tensor of a user's own class."""


HERE_LINE = "\n  at model.py:14 in Gate.forward: y = f(x)"

REFUSED = [
    pytest.param(
        lambda: calling(lambda x: x),
        r"cannot write node 'y': .*<lambda> \(.*test_package_refusals\.py:\d+\) cannot be imported by another process: "
        r"it is a lambda\n  at model\.py:14 in Gate\.forward: y = f\(x\)"
        r"\n  fix: make it a function with a name, at the top level of a module",
        id="lambda",
    ),
    pytest.param(
        lambda: calling(local_function()),
        r"node 'y': local_function\.<locals>\.inner .* it is defined inside a function, local_function\n"
        r"  at model\.py:14 .*\n  fix: move the function to the top level of a module",
        id="local function",
    ),
    pytest.param(
        lambda: calling(from_a_script()),
        r"node 'y': function .* it lives in the script that is running\n  at .*\n"
        r"  fix: move the function from the script to a module",
        id="function of a script",
    ),
    pytest.param(
        lambda: calling(operator.add, Helpers()),
        r"node 'y': an object of type Helpers cannot be imported by another process: no module holds it\n  at .*\n"
        r"  fix: pass it as an argument, or register it on the module as a buffer or submodule",
        id="object as argument",
    ),
    pytest.param(
        lambda: calling(operator.add, torch.ones(3)), r"node 'y': .*no module holds it", id="tensor as argument"
    ),
    pytest.param(
        lambda: whole(local_module()),
        r"cannot write the module 'part': no other process can import its class, local_module\.<locals>\.Local: "
        r"it is defined inside a function, local_module\n  at model\.py:14 .*\n"
        r"  fix: move the class to the top level of a module",
        id="local class",
    ),
    pytest.param(
        lambda: whole(nn.Sequential(nn.Linear(3, 3), local_module())),
        r"cannot write the module 'part\.1': no other process can import its class",
        id="local class inside",
    ),
    pytest.param(
        lambda: whole(Configured()),
        r"cannot write the module 'part': its class Configured is rebuilt from its attributes, and 'config', an object "
        r"of type Helpers, has no text that makes it again\n  at model\.py:14 .*\n"
        r"  fix: let the capture look inside Configured rather than keep it whole",
        id="attribute without text",
    ),
    pytest.param(
        lambda: GraphModule({"held": Helpers()}, graph_of(lambda graph, x: graph.get_attr("held"))),
        r"cannot write the module '' \(GraphModule\): the graph reads an attribute of it, and 'held', an object of "
        r"type Helpers, has no text that makes it again",
        id="attribute that the graph reads",
    ),
    pytest.param(
        lambda: whole(hooked()),
        r"cannot write the module 'part': it has a hook, and a package holds no hooks\n  at model\.py:14 .*\n"
        r"  fix: remove the hook first",
        id="hook",
    ),
    pytest.param(
        lambda: whole(nn.Sequential(hooked())), r"cannot write the module 'part\.0': it has a hook", id="hook inside"
    ),
    pytest.param(
        lambda: whole(parametrized()),
        r"cannot write the module 'part': no other process can import its class, ParametrizedLinear: "
        r"torch\.nn\.utils\.parametrize made it for this one module\n  at model\.py:14 .*\n"
        r"  fix: parametrize\.remove_parametrizations\(module, name\) before writing: the values stay",
        id="parametrization",
    ),
    pytest.param(
        lambda: holding(torch.ones(3, device="meta")),
        r"cannot write the tensor 'held': it is on the meta device, without values",
        id="meta tensor",
    ),
    pytest.param(lambda: holding(torch.eye(3).to_sparse()), r"'held': it is stored as torch\.sparse_coo", id="sparse"),
    pytest.param(lambda: holding(torch.ones(3).as_subclass(Tagged)), r"'held': it is a Tagged", id="tensor subclass"),
    pytest.param(
        lambda: GraphModule(
            {"one": (base := torch.ones(4)), "other": base.view(torch.int32)},
            graph_of(lambda graph, x: (graph.get_attr("one"), graph.get_attr("other"))),
        ),
        r"cannot write the tensors \['one', 'other'\]: they read the same memory in different ways",
        id="memory shared across dtypes",
    ),
    pytest.param(
        lambda: graphwright.trace(UsesIndexed(), (torch.ones(3),)),
        r"cannot write 'self\.blocks\[0\]': a class of the program gives its children by number or key",
        id="container of a user",
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_refuses_and_leaves_everything_as_it_was(
    build: Callable[[], GraphModule], message: str, tmp_path: Path
) -> None:
    target = tmp_path / "written"
    symbolic_trace(lambda x: x + 1).to_folder(target, "Before")
    before = {path: path.read_bytes() for path in target.iterdir()}
    gm = build()
    with pytest.raises(ExportError, match=message):
        gm.to_folder(target, "After")
    with pytest.raises(ExportError, match=message):
        gm.to_folder(tmp_path / "new", "After")
    assert {path: path.read_bytes() for path in target.iterdir()} == before
    assert list(tmp_path.iterdir()) == [target]


def test_a_hook_on_the_module_itself_is_refused(tmp_path: Path) -> None:
    gm = symbolic_trace(lambda x: x + 1)
    handle = gm.register_forward_pre_hook(lambda module, args: None)
    with pytest.raises(ExportError, match="cannot write the module '': it has a hook"):
        gm.to_folder(tmp_path / "written")
    handle.remove()
    gm.to_folder(tmp_path / "written")


def test_hooks_of_what_does_not_run_do_not_matter(tmp_path: Path) -> None:
    gm = symbolic_trace(lambda x: x + 1)
    gm.held = hooked()
    gm.to_folder(tmp_path / "written")


# ---- names

NAMES = [
    pytest.param(
        "1st", "Model", "the folder '1st' could not be imported: its name is no Python identifier", id="digit"
    ),
    pytest.param("my-model", "Model", "the folder 'my-model' could not be imported", id="hyphen"),
    pytest.param("class", "Model", "the folder 'class' could not be imported", id="keyword as folder"),
    pytest.param("json", "Model", "the folder 'json' could not be imported: Python has a module of this", id="json"),
    pytest.param("torch", "Model", "the folder 'torch' could not be imported", id="torch"),
    pytest.param("written", "My Model", "'My Model' cannot name a class: it is no Python identifier", id="space"),
    pytest.param("written", "", "'' cannot name a class", id="empty"),
    pytest.param("written", "class", "'class' cannot name a class", id="keyword"),
    pytest.param("written", "len", "'len' cannot name a class", id="builtin"),
    pytest.param("written", "torch", "'torch' cannot name a class", id="name of the generated code"),
]


@pytest.mark.parametrize(("folder", "name", "message"), NAMES)
def test_refuses_names_that_python_would_not_take(folder: str, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        symbolic_trace(lambda x: x).to_folder(tmp_path / folder, name)
    assert str(caught.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


# ---- folders


def test_replaces_a_package_of_its_own(tmp_path: Path) -> None:
    target = tmp_path / "written"
    GraphModule({"part": Scale(1.0)}, calls("part")).to_folder(target, "Before")
    (target / "__pycache__").mkdir()
    (target / "__pycache__" / "module.cpython-311.pyc").write_bytes(b"old")
    files = symbolic_trace(lambda x: scaled(x)).to_folder(target, "After")
    assert sorted(target.iterdir()) == files
    assert "class After" in (target / "module.py").read_text()


def test_makes_the_folders_above_and_takes_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "empty").mkdir(parents=True)
    for name in ("empty", "absent"):
        files = symbolic_trace(lambda x: x).to_folder(tmp_path / "a" / "b" / name)
        assert all(file.exists() for file in files)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda target: (target / "notes.txt").write_text("mine"), id="a file more"),
        pytest.param(lambda target: (target / "data").mkdir(), id="a folder more"),
        pytest.param(lambda target: (target / "__init__.py").write_text("import os"), id="another package"),
        pytest.param(lambda target: (target / "__init__.py").unlink(), id="no package"),
    ],
)
def test_leaves_folders_that_are_not_its_own(spoil: Callable[[Path], Any], tmp_path: Path) -> None:
    target = tmp_path / "written"
    gm = symbolic_trace(lambda x: x)
    gm.to_folder(target)
    spoil(target)
    before = sorted(target.iterdir())
    with pytest.raises(ExportError, match=r"written holds .*, which to_folder did not write: it is left as it is"):
        gm.to_folder(target)
    assert sorted(target.iterdir()) == before


def test_leaves_files_and_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(ExportError, match="is a file or a link\n  fix: choose another folder"):
            symbolic_trace(lambda x: x).to_folder(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"


# ---- the written loader


def test_the_loader_says_what_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gm = GraphModule({"part": nn.Linear(3, 3)}, calls("part"))
    text = (gm.to_folder(tmp_path / "edited_package")[2]).read_text()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "edited_package" / "module.py").write_text(text.replace("in_features=3", "in_features=4"))
    import edited_package  # type: ignore[import-not-found]

    with pytest.raises(RuntimeError, match=r"'part\.weight' is \[3, 4\] in the code, \[3, 3\] in weights\.safetensors"):
        edited_package.FxModule()
    assert edited_package.FxModule(load_weights=False).part.weight.shape == (3, 4)
    edited = text.replace("self.part =", "self.more = torch.nn.Linear(2, 2)\n            self.part =")
    (tmp_path / "edited_package" / "module.py").write_text(edited)
    monkeypatch.delitem(__import__("sys").modules, "edited_package.module")
    from edited_package.module import FxModule  # type: ignore[import-not-found]

    with pytest.raises(RuntimeError, match=r"has no tensor 'more\.weight': build the model with load_weights=False"):
        FxModule()
