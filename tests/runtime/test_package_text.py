"""What to_folder writes, as text: constructor calls, classes, imports, and the files around them."""

from __future__ import annotations

import ast
import inspect
import operator
import re
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runtime.programs import Configured, Scale, calls, doubled_graph, graph_of
from torch import nn

import graphwright
from graphwright import GraphModule, symbolic_trace
from graphwright.codegen import BoxedCodeGen, Globals
from graphwright.runtime.packaging import loading
from graphwright.runtime.packaging.modules import constructor_call, render, written_value


def source_of(gm: GraphModule, folder: Path) -> str:
    """Write a package and return its source without the docstring."""
    gm.to_folder(folder / "written", "Model")
    text = (folder / "written" / "module.py").read_text()
    return text.partition('"""\n\n')[2]


SCALES = {"wide": 2.0}


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALES["wide"]


# ---- the whole


def test_a_small_package_reads_like_this(tmp_path: Path) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.norm(self.conv(x)) + x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Block() for _ in range(3)])
            self.scale = nn.Parameter(torch.ones(4, 1, 1), requires_grad=False)
            self.unused = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x * self.scale

    gm = graphwright.trace(Net().eval(), (torch.ones(1, 4, 5, 5),))
    files = gm.to_folder(tmp_path / "net", "Net")
    assert [file.relative_to(tmp_path).as_posix() for file in files] == [
        "net/__init__.py",
        "net/loading.py",
        "net/module.py",
        "net/weights.safetensors",
    ]
    assert sorted(tmp_path.iterdir()) == [tmp_path / "net"]
    assert sorted((tmp_path / "net").iterdir()) == files
    text = (tmp_path / "net" / "module.py").read_text()
    before, _, program = text.partition("    def forward(self, x: torch.Tensor) -> torch.Tensor:\n")
    assert before == textwrap.dedent('''\
        """Net as it was captured: its program is `Net.forward`.

        The other classes hold submodules and weights, and have no program.
        """

        import torch

        from .loading import load_tensors


        class Block(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = torch.nn.Conv2d(in_channels=4, out_channels=4, kernel_size=3, padding=1, bias=False)
                self.norm = torch.nn.BatchNorm2d(num_features=4)


        class Net(torch.nn.Module):
            def __init__(self, load_weights: bool = True) -> None:
                super().__init__()
                with torch.device("meta" if load_weights else "cpu"):
                    self.scale = torch.nn.Parameter(torch.empty(4, 1, 1))
                    self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
                self.eval()
                self.scale.requires_grad_(False)
                if load_weights:
                    load_tensors(self, beside=__file__)

        ''')
    lines = [line for line in textwrap.dedent(program).splitlines() if line and "#" not in line]
    assert lines == [
        "for block in self.blocks:",
        "    x = torch.relu(block.norm(block.conv(x)) + x)",
        "return x * self.scale",
    ]
    assert (tmp_path / "net" / "__init__.py").read_text() == textwrap.dedent('''\
        """Net as a Python package. Written by graphwright.

            from net import Net

            model = Net()                    # with the weights beside this file
            model = Net(load_weights=False)  # with those that the constructors make
        """

        from .module import Net

        __all__ = ["Net"]
        ''')
    assert (tmp_path / "net" / "loading.py").read_text() == inspect.getsource(loading)


@pytest.mark.parametrize("is_boxed", [False, True])
def test_what_is_outside_of_the_process_is_not_checked_in_files(is_boxed: bool, tmp_path: Path) -> None:
    gm = graphwright.trace(scaled, torch.ones(2))
    assert "expect_outside" in gm.code
    if is_boxed:
        gm.graph.set_codegen(BoxedCodeGen())
        gm.recompile()
    text = source_of(gm, tmp_path)
    assert "x * 2.0" in text
    assert ("expect_outside" in text) is is_boxed  # the text of another writer stays as it is: it checks nothing
    assert "NOTHING" in text or not is_boxed


def test_the_package_needs_no_more_than_torch_and_safetensors(tmp_path: Path) -> None:
    gm = symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    for file in gm.to_folder(tmp_path / "plain", "Plain")[:3]:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            assert {name.partition(".")[0] for name in names} <= {"torch", "safetensors", *sys.stdlib_module_names}


def test_the_weights_are_no_pickle(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    gm = GraphModule({"linear": nn.Linear(3, 3), "norm": nn.BatchNorm1d(3)}, doubled_graph())
    *_, weights = gm.to_folder(tmp_path / "plain", "Plain")
    stored = load_file(weights)
    assert stored.keys() == gm.state_dict().keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in gm.state_dict().items())


def test_writing_draws_no_random_numbers(tmp_path: Path) -> None:
    gm = symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.LSTM(3, 3), nn.Dropout()))
    state = torch.get_rng_state()
    gm.to_folder(tmp_path / "written")
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(name.startswith("written") for name in sys.modules)


# ---- what is kept, and what is left out


def test_what_nothing_uses_goes_unless_it_has_state(tmp_path: Path) -> None:
    gm = symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    gm.relu = nn.ReLU()
    gm.kept = nn.Linear(1, 1)
    gm.odd = Configured()
    source = source_of(gm, tmp_path)
    assert "self.kept = torch.nn.Linear(in_features=1, out_features=1)\n" in source
    assert "relu" not in source
    assert "odd" not in source


def test_lists_keep_their_places(tmp_path: Path) -> None:
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([nn.Tanh(), Configured(), nn.Linear(3, 3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts[2](x)

    source = source_of(graphwright.trace(Stack(), (torch.ones(3),)), tmp_path)
    assert "torch.nn.Tanh()" in source
    assert "torch.nn.Module()" in source
    assert "self.parts[2](x)" in source


def test_numbers_that_are_keys_are_quoted(tmp_path: Path) -> None:
    class Keyed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleDict({"0": nn.Sequential(nn.Linear(2, 2)), "1": nn.Linear(2, 2)})
            self.scales = nn.ParameterDict({"0": torch.ones(2), "1": torch.ones(2)})
            for frozen in (self.heads["0"][0].weight, self.scales["1"]):  # type: ignore[index]
                frozen.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.heads["1"](self.heads["0"](x)) * self.scales["0"] + self.scales["1"]

    gm = graphwright.trace(Keyed(), torch.ones(1, 2))
    assert 'self.heads["0"][0].weight.requires_grad_(False)' in source_of(gm, tmp_path)
    assert 'self.scales["1"].requires_grad_(False)' in graphwright.source(gm)


def test_flags_take_the_fewest_statements(tmp_path: Path) -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) for _ in range(3)])
    model[1].eval()
    model[2][1].eval()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    model[2][0].bias.requires_grad_(False)
    source = source_of(graphwright.trace(model, (torch.ones(2, 3),)), tmp_path)
    flags = re.findall(r"^        (\S.*(?:eval|training|requires_grad).*)$", source, re.MULTILINE)
    assert flags == [
        'getattr(self, "1").eval()',
        'getattr(self, "2")[1].eval()',
        'getattr(self, "0").requires_grad_(False)',
        'getattr(self, "2")[0].bias.requires_grad_(False)',
    ]


def test_the_code_is_the_one_that_runs(tmp_path: Path) -> None:
    gm = symbolic_trace(lambda x: torch.relu(x) + 1)
    node = next(iter(gm.graph.find_nodes(op="call_function", target=operator.add)))
    node.target = operator.sub
    method = textwrap.indent(gm.code.strip(), "    ")
    assert "relu - 1" in method
    assert source_of(gm, tmp_path).endswith(f"\n\n{method}\n")


# ---- constructor calls

CALLS = [
    pytest.param(nn.Linear(3, 4), "torch.nn.Linear(in_features=3, out_features=4)", id="defaults are left out"),
    pytest.param(nn.Linear(3, 4, bias=False), "torch.nn.Linear(in_features=3, out_features=4, bias=False)", id="flag"),
    pytest.param(
        nn.Linear(3, 4, dtype=torch.bfloat16),
        "torch.nn.Linear(in_features=3, out_features=4, dtype=torch.bfloat16)",
        id="dtype",
    ),
    pytest.param(
        nn.Conv2d(3, 6, (3, 5), padding="same", groups=3),
        'torch.nn.Conv2d(in_channels=3, out_channels=6, kernel_size=(3, 5), padding="same", groups=3)',
        id="unequal tuple, string",
    ),
    pytest.param(
        nn.Conv2d(3, 6, 3, 2, 1),
        "torch.nn.Conv2d(in_channels=3, out_channels=6, kernel_size=3, stride=2, padding=1)",
        id="equal tuple as one number",
    ),
    pytest.param(nn.AdaptiveAvgPool2d((1, 1)), "torch.nn.AdaptiveAvgPool2d(output_size=(1, 1))", id="tuple kept"),
    pytest.param(
        nn.LayerNorm(8, eps=1e-12), "torch.nn.LayerNorm(normalized_shape=8, eps=1e-12)", id="normalized shape"
    ),
    pytest.param(
        nn.Embedding(9, 4, 0), "torch.nn.Embedding(num_embeddings=9, embedding_dim=4, padding_idx=0)", id="None"
    ),
    pytest.param(
        nn.LSTM(3, 4, 2, bidirectional=True),
        "torch.nn.LSTM(input_size=3, hidden_size=4, num_layers=2, bidirectional=True)",
        id="arguments behind **kwargs",
    ),
    pytest.param(
        nn.RNN(3, 4, nonlinearity="relu"), 'torch.nn.RNN(input_size=3, hidden_size=4, nonlinearity="relu")', id="mode"
    ),
    pytest.param(
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, norm_first=True),
        "torch.nn.TransformerEncoderLayer(d_model=4, nhead=2, dim_feedforward=8, dropout=0.0, norm_first=True)",
        id="arguments kept by children",
    ),
    pytest.param(nn.CrossEntropyLoss(), "torch.nn.CrossEntropyLoss()", id="loss"),
    pytest.param(nn.ReLU(inplace=True).eval(), "torch.nn.ReLU(inplace=True)", id="training flag is told apart"),
]


@pytest.mark.parametrize(("module", "call"), CALLS)
def test_modules_of_torch_are_constructor_calls(module: nn.Module, call: str) -> None:
    written = constructor_call(module, Globals())
    assert written is not None
    assert " ".join(render(written, 0, "").split()).replace("( ", "(").replace(", )", ")") == call


def changed(module: nn.Module, **attributes: Any) -> nn.Module:
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


NO_CALL = [
    pytest.param(Scale(2.0), id="class of a user"),
    pytest.param(changed(nn.Linear(3, 4), out_features=5), id="attribute that tells another shape"),
    pytest.param(changed(nn.Linear(3, 4), weight=nn.Parameter(torch.ones(4, 5))), id="another shape"),
    pytest.param(changed(nn.Linear(3, 4), bias=nn.Parameter(torch.ones(4).double())), id="another dtype"),
    pytest.param(changed(nn.Linear(3, 4), extra=nn.Tanh()), id="a child more"),
    pytest.param(changed(nn.Linear(3, 4), more=nn.Parameter(torch.ones(1))), id="a parameter more"),
    pytest.param(changed(nn.Linear(3, 4), forward=torch.relu), id="forward of its own"),
    pytest.param(changed(nn.Conv2d(3, 4, 3), _reversed_padding_repeated_twice=[1, 1, 1, 1]), id="inner attribute"),
    pytest.param(nn.CrossEntropyLoss(weight=torch.ones(3)), id="tensor argument"),
    pytest.param(nn.modules.linear.NonDynamicallyQuantizableLinear(3, 4), id="class that is not public"),
]


@pytest.mark.parametrize("module", NO_CALL)
def test_other_modules_are_none(module: nn.Module) -> None:
    assert constructor_call(module, Globals()) is None


def test_attributes_that_torch_does_not_know_are_left_out_unless_needed() -> None:
    module = changed(nn.Linear(3, 4), note="mine")
    assert constructor_call(module, Globals()) is not None
    assert constructor_call(module, Globals(), needed={"note"}) is None


def test_every_module_of_torch_that_can_be_built_plainly_is_a_call() -> None:
    """All classes of torch.nn whose arguments are few and plain, by trying: the table of special cases stays short."""
    arguments: list[tuple[Any, ...]] = [
        (),
        (2,),
        (2, 2),
        (2, 2, 2),
        (4, 2),
        (0.5,),
        ((2, 2),),
        (1, (2, 2)),
        ((4, 4), 2),
    ]
    missed = []
    for name in dir(nn):
        kind = getattr(nn, name)
        if not isinstance(kind, type) or not issubclass(kind, nn.Module) or kind.__module__ == nn.Module.__module__:
            continue
        for given in arguments:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    module = kind(*given)
            except Exception:
                continue
            if not any(isinstance(p, nn.UninitializedParameter) for p in module.parameters()):
                missed += [] if constructor_call(module, Globals()) is not None else [name]
                break
    assert set(missed) <= {"LinearCrossEntropyLoss"}  # keeps its arguments in a child


# ---- plain values

VALUES = [
    *(None, True, 3, -2, 2.5, -0.0, 1e300, float("inf"), -float("inf"), 1j, "text", "both \"'", "line\nline", b"bytes"),
    *([], [1, [2]], (), (1,), (1, (2, 3)), {}, {"a": [1, {"b": (None,)}]}, {1: 2, (3,): 4}, {1, 2}, frozenset({"x"})),
    *(slice(1, None, 2), range(1, 5, 2), ..., torch.float16, torch.device("cuda", 1), torch.channels_last),
    *(torch.Size([1, 2]), torch.strided, torch.relu, nn.functional.gelu, nn.Linear, len, operator.add),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: getattr(value, "__name__", None) or repr(value))
def test_values_come_back_from_their_text(value: Any) -> None:
    names = Globals()
    text = written_value(value, names)
    assert text is not None
    again = eval(render(text, 0, ""), dict(names.values))
    assert type(again) is type(value)
    assert repr(again) == repr(value)


@pytest.mark.parametrize(
    "value",
    [object(), lambda x: x, [object()], {"a": nn.Tanh()}, (i for i in ()), torch.ones(1), type("Local", (), {})],
    ids=["object", "lambda", "in a list", "module", "generator", "tensor", "class"],
)
def test_other_values_have_no_text(value: Any) -> None:
    assert written_value(value, Globals()) is None


def test_a_graph_without_modules_has_no_classes(tmp_path: Path) -> None:
    source = source_of(GraphModule(nn.Module(), graph_of(lambda graph, x: x)), tmp_path)
    assert source == textwrap.dedent("""\
        import torch

        from .loading import load_tensors


        class Model(torch.nn.Module):
            def __init__(self, load_weights: bool = True) -> None:
                super().__init__()
                if load_weights:
                    load_tensors(self, beside=__file__)

            def forward(self, x):
                return x
        """)


def test_the_class_is_called_fx_module_by_default(tmp_path: Path) -> None:
    gm = GraphModule({"linear": nn.Linear(1, 1)}, calls("linear"))
    gm.to_folder(str(tmp_path / "written"))
    assert "class FxModule(torch.nn.Module):" in (tmp_path / "written" / "module.py").read_text()
