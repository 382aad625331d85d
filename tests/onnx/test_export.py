"""What `graphwright.onnx.export` names, keeps, writes and refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.passes.zoo_models import zoo_model
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn

pytest.importorskip("onnxruntime")

import numpy
import onnx_ir

import graphwright
from graphwright.errors import ExportError
from graphwright.runtime import expect


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.again = self.linear
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.again(x) + self.linear(x)
        return y, y + self.shift


def test_translations_are_parsed_once_and_kept_apart() -> None:
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    from graphwright.onnx.torch_private import parsed_once, translation_of

    original = vars(ONNXRegistry)["from_torchlib"]
    named: Any = "aten::relu"  # as the registry names those of ATen
    with parsed_once():
        one, other = ONNXRegistry.from_torchlib(), ONNXRegistry.from_torchlib(opset_version=18)
        assert one.get_decomps(named) == other.get_decomps(named) and one.opset_version == other.opset_version
        one.functions[named].clear()
        assert ONNXRegistry.from_torchlib().get_decomps(named) and other.get_decomps(named)
    assert vars(ONNXRegistry)["from_torchlib"] is original
    assert translation_of("aten::relu") is other.get_decomps(named)[0].onnx_function


@pytest.mark.slow
def test_names_sizes_weights_and_files(tmp_path: Path) -> None:
    module = Linear().eval()
    program = graphwright.onnx.export(
        module, torch.randn(1, 4), input_names=["pixels"], output_names=["a", "b"], dynamic_shapes={"x": {0: "batch"}}
    )
    assert program.input_names == ["pixels"] and program.output_names == ["a", "b"]
    assert program.report.sizes == {"pixels": ("batch", 4)}
    assert {"linear.weight", "linear.bias", "shift"} == {*program.model.graph.initializers}
    program.save(tmp_path / "model.onnx")
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    program.save(tmp_path / "apart.onnx", external_data=True)
    assert (tmp_path / "apart.onnx.data").exists()
    assert onnx_ir.load(tmp_path / "apart.onnx").graph.inputs[0].name == "pixels"
    x = torch.randn(4, 4)  # of another batch size than the one row of the example
    for one, other in zip(program(x), module(x), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
def test_weights_of_equal_values_stay_apart_and_shared_ones_are_one() -> None:
    module = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4, bias=False)).eval()
    module[3].weight = module[1].weight
    state = module.state_dict()
    for functions in ([], [nn.LayerNorm]):
        program = graphwright.onnx.export(module, torch.randn(2, 3, 4), modules_as_functions=functions, verify=True)
        weights = program.model.graph.initializers
        assert {name for name in weights if name in state} == {*state} - {"3.weight"}
        for name in {*state} - {"3.weight"}:
            assert weights[name].const_value is not None
            assert numpy.array_equal(weights[name].const_value.numpy(), state[name].numpy())


@pytest.mark.slow
def test_batch_norm_and_what_is_computed_of_weights_leave_them_as_they_are() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten(2), nn.Linear(9, 2)).eval()
    program = graphwright.onnx.export(module, torch.randn(2, 3, 5, 5), verify=True)
    names = {*module.state_dict()} - {"1.num_batches_tracked"}
    assert names <= {*program.model.graph.initializers}


@pytest.mark.slow
def test_weights_above_the_limit_of_one_file_get_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = graphwright.onnx.export(nn.Linear(4, 3).eval(), torch.randn(2, 4))
    assert not program.is_large
    program.save(tmp_path / "small.onnx")
    monkeypatch.setattr("graphwright.onnx.program.LARGEST", 4 * 4 * 3)
    assert program.is_large
    program.save(tmp_path / "large.onnx")
    assert {each.name for each in tmp_path.iterdir()} == {"small.onnx", "large.onnx", "large.onnx.data"}
    assert numpy.array_equal(
        *[
            onnx_ir.load(tmp_path / f"{name}.onnx").graph.initializers["weight"].const_value.numpy()
            for name in ("small", "large")
        ]
    )
    monkeypatch.undo()
    weights = program.model.graph.initializers  # of 4 GB, as its shape says: nothing of it is there
    weights["weight"].const_value = onnx_ir.LazyTensor(
        _never, dtype=onnx_ir.DataType.FLOAT, shape=onnx_ir.Shape([2**15, 2**15])
    )
    assert program.is_large


def _never() -> Any:
    raise AssertionError("the weights are read")


@pytest.mark.slow
def test_equal_sizes_of_the_example_are_not_one_size() -> None:
    program = graphwright.onnx.export(graphwright.trace(lambda x: x * x.shape[0], torch.ones(5, 5)), torch.ones(5, 5))
    assert program.report.sizes == {"x": ("x_dim0", "x_dim1")} and not program.report.notes
    assert program(torch.ones(2, 3)).tolist() == [[2.0] * 3] * 2


def writes(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def names_sizes(x: Tensor) -> Any:
    return x, f"{x.shape[0]} rows"


def kinds(x: Tensor) -> Any:
    y = torch.zeros(1, 8) if x.sum() > 0 else torch.zeros(2)
    return y + 1


def adds_some(x: Tensor) -> Tensor:
    found = [x]
    for row in x:
        if row.sum() > 0:
            found.append(row[None])
    return torch.cat(found)


REFUSED = [
    pytest.param(writes, {}, "writes to its input 'x'", id="an input that is written to"),
    pytest.param(names_sizes, {}, "gives a text of values", id="a text of sizes"),
    pytest.param(kinds, {}, "2 dimensions", id="sides of other ranks"),
    pytest.param(adds_some, {}, "changes a list that is around it", id="a list that one side appends to"),
    pytest.param(Linear(), {"input_names": ["a", "b"]}, "2 input_names are given", id="too many names"),
    pytest.param(Linear(), {"output_names": ["a"]}, "1 output_names are given", id="too few names"),
    pytest.param(Linear(), {"dynamic_shapes": {"y": None}}, "names 'y', which is no input", id="an unknown input"),
    pytest.param(Linear(), {"dynamic_shapes": {"x": {1: "n"}}}, "dimension 1 of 'x' is 4", id="a size of a weight"),
    pytest.param(Linear(), {"dynamic_shapes": {"x": {2: "n"}}}, "names dimension 2 of 'x'", id="no such dimension"),
]


@pytest.mark.parametrize(("program", "options", "message"), REFUSED)
def test_what_cannot_be_is_refused(program: Any, options: dict[str, Any], message: str) -> None:
    module = program.eval() if isinstance(program, nn.Module) else graphwright.trace(program, torch.ones(3, 4))
    with pytest.raises(ExportError, match=message):
        graphwright.onnx.export(module, torch.ones(3, 4), **options)


class Counting(Linear):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        self.shift += 1
        return self.linear(x) * self.shift


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Forces(Normed):
    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            return torch.autograd.grad((self.norm(x) ** 3).sum(), x)[0]


class Mapped(Linear):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        self.shift = self.shift + x.sum()
        return torch.vmap(lambda row: row.sin())(self.linear(x)) * self.shift


RUNNING = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("kind", "written"), [(Counting, ["shift"]), (Normed, RUNNING), (Forces, RUNNING), (Mapped, ["shift"])]
)
def test_a_buffer_that_is_written_to_is_said_not_to_be_kept(kind: type[nn.Module], written: Any) -> None:
    module = kind().train()
    with pytest.warns(UserWarning, match="is not kept from call to call") as caught:
        program = graphwright.onnx.export(module, torch.randn(5, 4), verify=True)
    lines = [f"what is written to buffer {name!r} is not kept from call to call" for name in written]
    assert sorted(program.report.notes) == sorted(lines) and len(caught) == 1
    assert all(line in str(caught[0].message) and line in str(program.report) for line in lines)


@pytest.mark.slow
def test_what_it_prints_and_formats_is_said_to_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            print("positive")
        else:
            print(f"{x.shape[0]} rows, {x.sum().item():.2f}")
        text = "about " + str(x.shape[0])
        print(text)
        return x * 2

    module = graphwright.trace(program, torch.ones(3), target="export")
    capsys.readouterr()
    parts = graphwright.onnx.export(module, torch.ones(3)).report.regions
    assert capsys.readouterr().out == ""  # the runs beside the model print nothing
    left_out = [part.detail.partition(":")[0] for part in parts if part.became == "left out"]
    assert sorted(left_out) == ["a text of values"] * 3 + ["print"] * 3


def expecting(ask: str, captured: Any) -> graphwright.GraphModule:
    """A program that gives -x, captured where x.size(0) or x.sum() was this."""
    graph = graphwright.Graph()
    x = graph.placeholder("x")
    asked = graph.call_method(ask, (x, 0) if ask == "size" else (x,))
    graph.call_function(expect, (asked, captured, "model.py:3: if n == 3:"))
    graph.output(graph.call_method("neg", (x,)))
    return graphwright.GraphModule(nn.Module(), graph)


def test_a_guard_on_a_size_fixes_it_and_says_so() -> None:
    program = graphwright.onnx.export(expecting("size", 3), torch.ones(3, 4))
    assert program.report.sizes == {"x": (3, "x_dim1")} and not program.report.notes
    assert "a size is 3, as when the program was captured: model.py:3" in str(program.report)


def test_a_guard_on_data_is_refused_or_dropped_where_asked() -> None:
    module = expecting("sum", 3.0)
    with pytest.raises(ExportError, match="cannot check"):
        graphwright.onnx.export(module, torch.ones(3))
    program = graphwright.onnx.export(module, torch.ones(3), guards="drop")
    assert "dropped" in str(program.report)


class AsksForDtypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = self.linear(x)
        if scores.dtype == torch.float16:
            scores = scores.clamp(-9, 9)
        return scores.masked_fill(mask, torch.finfo(scores.dtype).min).to(self.linear.weight.dtype)


def test_what_follows_from_a_dtype_is_a_constant() -> None:
    model, x, mask = AsksForDtypes().eval(), torch.randn(2, 4), torch.randn(2, 4) > 0
    program = graphwright.onnx.export(graphwright.trace(model, (x, mask)), (x, mask))
    torch.testing.assert_close(program(x, mask), model(x, mask))
    assert {node.op_type for node in program.model.graph} == {"Gemm", "Where"}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, scale: float = 1.0) -> tuple[Tensor, float]:
        return x + self.linear(x).relu() * scale, scale


class Stack(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x, _ = layer(x, 0.5)
        return x


@pytest.mark.slow
def test_modules_are_one_function_however_many() -> None:
    sizes = []
    for count in (2, 5):
        module = Stack(count).eval()
        program = graphwright.onnx.export(module, torch.randn(2, 4), modules_as_functions=[Layer], verify=count == 2)
        assert [name for _, name, _ in program.model.functions] == ["Layer"]
        sizes.append(len(list(program.model.graph)))
    assert sizes[1] - sizes[0] == 3


UNKNOWN = [
    pytest.param("layers.0", [], "'layers.0', whose parts .*leaf_modules=\\['layers.0'\\]", id="no leaf"),
    pytest.param(
        Layer, [], "'Layer', whose parts .*leaf_modules=\\['layers.0', 'layers.1'\\]", id="a class of no leaf"
    ),
    pytest.param("layer.0", ["layers.0"], "'layer.0', and .* near it: layers.0", id="no such path"),
    pytest.param("Lyaer", ["layers.0"], "'Lyaer', and .* near it: Layer", id="no such class"),
    pytest.param("layers.0.linear", ["layers.0"], "inside of the leaf 'layers.0'", id="inside of a leaf"),
]


@pytest.mark.parametrize(("asked", "leaves", "message"), UNKNOWN)
def test_a_module_that_cannot_be_a_function_is_refused(asked: Any, leaves: list[str], message: str) -> None:
    module = graphwright.trace(Stack(2).eval(), torch.randn(2, 4), leaf_modules=leaves)
    with pytest.raises(ExportError, match=f"(?s){message}"):
        graphwright.onnx.export(module, torch.randn(2, 4), modules_as_functions=[*leaves, asked])


@pytest.mark.slow
def test_it_is_there_after_importing_the_package_alone() -> None:
    text = "import sys, graphwright; print('onnx_ir' in sys.modules); print(graphwright.onnx.export.__name__)"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "export"]


@pytest.mark.slow
def test_a_missing_package_names_the_extra() -> None:
    text = "import sys; sys.modules['onnxruntime'] = None\nimport graphwright\ngraphwright.onnx"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert "pip install graphwright[onnx]" in found.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layer"), [("bert", "BertLayer"), ("llama", "LlamaDecoderLayer")])
@pytest.mark.filterwarnings("ignore:the model and the program differ:UserWarning")  # at sizes that no caller has
def test_layers_of_language_models_are_one_function(name: str, layer: str) -> None:
    declare_torchvision()
    module, ids = zoo_model("transformers", name)
    program = graphwright.onnx.export(module.eval(), ids, modules_as_functions=[layer], verify=True)
    assert [kind for _, kind, _ in program.model.functions] == [layer]
    layers = [each for each in module.modules() if type(each).__name__ == layer]
    assert program.report.operators[layer] == len(layers)
    assert {*dict(module.named_parameters())} <= {*program.model.graph.initializers}


class Fills(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held = [torch.zeros(1)]

    def forward(self, x: Tensor) -> Tensor:
        self.held[0] = x * 2
        return x + 1


def test_a_list_that_a_module_keeps_is_refused() -> None:
    model = Fills()
    with pytest.raises(ExportError, match="keeps nothing in 'held' from call to call"):
        graphwright.onnx.export(model, torch.ones(2))
    assert type(model.held[0]) is Tensor


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param((), r"not those of forward\(x\): missing a required argument: 'x'", id="none"),
        pytest.param(((torch.ones(2), 3),), "too many positional arguments", id="more"),
        pytest.param(("model.onnx",), "args is a str, where example inputs are", id="a path"),
        pytest.param(((torch.ones(2),), "model.onnx"), "kwargs is a str, where", id="a path where torch.onnx has it"),
    ],
)
def test_what_are_no_example_inputs_is_said(args: tuple[Any, ...], message: str) -> None:
    gm = graphwright.trace(lambda x: x + 1, torch.ones(2))
    with pytest.raises(ExportError, match=message):
        graphwright.onnx.export(gm, *args)


def _scaled(x: Tensor, kind: str, n: int = 3, options: Any = None) -> Tensor:
    return x * n if kind == "plain" else x


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(("other", 3, {"a": [1, 2.0]}), "argument 'kind' was 'plain' .* is 'other' now", id="text"),
        pytest.param(("plain", 4, {"a": [1, 2.0]}), "argument 'n' was 3 .* is 4 now", id="number"),
        pytest.param(("plain", True, {"a": [1, 2.0]}), "argument 'n' was 3 .* is True now", id="kind"),
        pytest.param(("plain", 3, {"a": [1, 2.5]}), r"""argument "options\['a'\]\[1\]" was 2.0""", id="inside"),
    ],
)
def test_what_is_no_tensor_is_what_it_was_when_exported(args: tuple[Any, ...], message: str) -> None:
    program = graphwright.onnx.export(_scaled, (torch.ones(2), "plain", 3, {"a": [1, 2.0]}))
    assert program(torch.ones(2), "plain", 3, {"a": [1, 2.0]}).tolist() == [3.0, 3.0]
    with pytest.raises(ExportError, match=message):
        program(torch.ones(2), *args)


@pytest.mark.slow
def test_small_numbers_are_not_taken_for_zero() -> None:
    def entropy(p: Tensor) -> Tensor:
        logarithm = (p + 1e-10).log() if p.sum() > 0 else (p - 1e-9).abs().log()
        return -(p * logarithm).sum() + (p * 1.000005 - 1).sum() * 1e6

    program = graphwright.onnx.export(entropy, (torch.tensor([0.0, 1.0]),))
    for p in (torch.tensor([0.0, 1.0]), torch.zeros(2)):
        torch.testing.assert_close(program(p), entropy(p))


def test_a_dict_of_a_module_keeps_nothing_from_call_to_call() -> None:
    class Tallies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tally: dict[str, int] = {}

        def forward(self, x: Tensor) -> Tensor:
            self.tally["calls"] = self.tally.get("calls", 0) + 1
            return x * self.tally["calls"]

    with pytest.raises(ExportError, match="keeps nothing in 'tally' from call to call"):
        graphwright.onnx.export(Tallies(), torch.ones(2))


@pytest.mark.slow
def test_dropouts_that_are_off_give_what_they_are_given() -> None:
    class Aliased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = x * 1.5
            one, other = nn.functional.dropout(x, 0.1, self.training), self.drop(x)
            x.add_(1)
            return one * 2, other * 3

    model, x = Aliased().eval(), torch.rand(2, 3)
    torch.testing.assert_close(graphwright.onnx.export(model, x)(x), model(x))


class OnASide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.ones(2)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + self.shift
        return x * self.shift


def test_a_plain_tensor_of_a_module_is_used_on_a_side_and_after_it() -> None:
    program = graphwright.onnx.export(graphwright.trace(OnASide(), (torch.ones(2),)), (torch.ones(2),))
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(program(x), OnASide()(x))
