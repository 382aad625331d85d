"""`save` and `load`: what comes back computes, trains and looks as what was saved."""

from __future__ import annotations

import inspect
import io
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import load_file
from tests.runtime import saved_models
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import graphwright
from graphwright.errors import ExportError, GraphwrightError, GuardError, LoadError
from graphwright.passes import ShapeProp, TensorMetadata

ALLOWED = ["tests.runtime.saved_models", "torchvision", "transformers"]


def there_and_back(gm: nn.Module, folder: Path, left_out: list[str] | None = None) -> Any:
    file = folder / "model.gw"
    assert graphwright.save(gm, file, strict=left_out is None) == (left_out or [])
    return graphwright.load(file, allow=ALLOWED)


def resnet() -> tuple[nn.Module, tuple[Any, ...]]:
    declare_torchvision()
    import torchvision

    return torchvision.models.resnet18(num_classes=5), (torch.randn(2, 3, 32, 32),)


def densenet() -> tuple[nn.Module, tuple[Any, ...]]:
    declare_torchvision()
    from torchvision.models import DenseNet

    return DenseNet(4, (2, 2), 8, num_classes=3), (torch.randn(2, 3, 32, 32),)


def bert() -> tuple[nn.Module, tuple[Any, ...]]:
    declare_torchvision()
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    return BertForSequenceClassification(config).eval(), (torch.randint(50, (2, 5)),)


def llama() -> tuple[nn.Module, tuple[Any, ...]]:
    declare_torchvision()
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, use_cache=False
    )
    return LlamaForCausalLM(config).eval(), (torch.randint(50, (2, 5)),)


def plain(kind: type[nn.Module], *args: Any) -> Callable[[], tuple[nn.Module, tuple[Any, ...]]]:
    return lambda: (kind(), args)


PROGRAMS = [
    pytest.param(resnet, id="resnet18"),
    pytest.param(densenet, id="private classes"),
    pytest.param(bert, id="bert"),
    pytest.param(llama, id="llama"),
    pytest.param(plain(saved_models.Branching, torch.randn(4, 3)), id="branches"),
    pytest.param(plain(saved_models.NamedOutput, torch.randn(4, 3)), id="NamedTuple"),
    pytest.param(plain(saved_models.DataOutput, torch.randn(4, 3)), id="dataclass"),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_loaded_module_is_the_saved_one(
    program: Callable[[], tuple[nn.Module, tuple[Any, ...]]], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, args = program()
    gm = graphwright.trace(model, args)
    again = there_and_back(gm, tmp_path)
    assert isinstance(again, type(model))
    assert type(again) is not type(gm)
    assert again.code == gm.code
    assert str(again.graph) == str(gm.graph)
    assert list(map(str, again.guards)) == list(map(str, gm.guards))
    assert inspect.signature(again.forward) == inspect.signature(gm.forward) == inspect.signature(model.forward)
    assert [(name, type(m), m.training) for name, m in list(again.named_modules())[1:]] == [
        (name, type(m), m.training) for name, m in list(model.named_modules())[1:]
    ]
    assert list(again.state_dict()) == list(model.state_dict())
    model.load_state_dict(again.state_dict(), strict=True)
    report = graphwright.verify(gm, again, [args], modes=("eval", "train"), grads=True)
    assert report.ok, str(report)
    for here, there in zip(gm.graph.nodes, again.graph.nodes, strict=True):
        assert here.origin == there.origin
        assert here.meta.keys() == there.meta.keys()


def test_tensors_keep_their_kind_and_their_sharing(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.Tied(), (torch.tensor([1, 2]),))
    again = there_and_back(gm, tmp_path)
    assert again.head.weight is again.embed.weight
    assert again.embed.weight.requires_grad
    assert isinstance(again.embed.weight, nn.Parameter)
    assert not again.frozen.requires_grad
    assert list(again.state_dict()) == list(gm.state_dict())
    assert "mask" not in again.state_dict()
    assert torch.equal(again.mask, gm.mask)
    assert again.steps.dtype is torch.int64
    again.embed.weight.data.zero_()
    assert gm.embed.weight.abs().nansum() > 0
    assert set(gm.state_dict()) <= {*load_file(tmp_path / "model.gw"), "head.weight"}


def test_attributes_come_back_without_constructors(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.Configured(), (torch.randn(3),))
    saved_models.CALLS.clear()
    left_out = graphwright.save(gm, tmp_path / "model.gw")
    again: Any = graphwright.load(tmp_path / "model.gw", allow=ALLOWED)
    assert saved_models.CALLS == []
    assert [line.partition(":")[0] for line in left_out] == ["late", "file"]
    assert "TextIOWrapper" in left_out[1]
    assert type(again.config) is saved_models.Config
    assert vars(again.config) == {"width": 3, "names": {"a": (1, 2.5, None)}}
    assert again.inner.config is again.config
    assert again.act is torch.relu
    assert again.kind is nn.LayerNorm
    assert again.facts == gm.facts
    assert again.same is again.facts
    with pytest.raises(AttributeError, match="late"):
        _ = again.late
    x = torch.randn(3)
    assert torch.equal(again(x), gm(x))
    with pytest.raises(ExportError, match="late"):
        graphwright.save(gm, tmp_path / "model.gw", strict=True)


def test_guards_and_defaults_hold(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.NamedOutput(), (torch.randn(3),))
    again = there_and_back(gm, tmp_path)
    x = torch.randn(3)
    assert torch.equal(again(x, shift=1.5).second, x + 1.5)
    assert torch.equal(again(x, 3.0).first, x * 3)
    with pytest.raises(TypeError):
        again(x, 3.0, 1.0)

    class Ranked(nn.Module):
        def forward(self, x: Tensor, mask: Any = None) -> Tensor:
            return x if mask is None else x * mask

    Ranked.__qualname__ = "Ranked"
    saved_models.Ranked, Ranked.__module__ = Ranked, saved_models.__name__  # type: ignore[attr-defined]
    again = there_and_back(graphwright.trace(Ranked(), (x,)), tmp_path)
    with pytest.raises(GuardError, match="mask"):
        again(x, x)


def test_symbolic_traces_and_graphs_made_by_hand(tmp_path: Path) -> None:
    def function(x, y=2, *rest, flag: bool = True, **more):  # type: ignore[no-untyped-def]
        return torch.nn.functional.relu(x + y)[1:, None], {"a": [x.shape[0], slice(None)]}

    gm = graphwright.symbolic_trace(function)
    again = there_and_back(gm, tmp_path)
    assert again.code == gm.code
    assert str(again.graph) == str(gm.graph)
    x = torch.randn(3)
    assert str(again(x, 1)) == str(gm(x, 1))
    again.graph.find_nodes(op="call_function", target=torch.nn.functional.relu)[0].target = torch.tanh
    assert "tanh" in again.code
    whole = graphwright.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    whole.meta["note"] = {"a": 1}
    again = there_and_back(whole, tmp_path)
    assert torch.equal(again(x), whole(x))
    assert again.meta == {"note": {"a": 1}}


def test_a_module_inside_that_is_captured_itself(tmp_path: Path) -> None:
    inner = graphwright.trace(saved_models.Branching(), (torch.randn(2, 3),))
    outer = graphwright.symbolic_trace(nn.Sequential(nn.Linear(3, 3)))
    outer.add_submodule("inner", inner)
    with outer.graph.inserting_before(outer.graph.output_node()):
        last = outer.graph.call_module("inner", (outer.graph.output_node().args[0],))
    outer.graph.output_node().args = (last,)
    again = there_and_back(outer, tmp_path)
    x = torch.randn(4, 3)
    assert torch.equal(again.eval()(x), outer.eval()(x))
    assert again.inner.code == inner.code


@pytest.mark.parametrize("name", ["weight_norm", "orthogonal", "spectral_norm"])
def test_parametrized_weights(tmp_path: Path, name: str) -> None:
    model = nn.Sequential(getattr(parametrizations, name)(nn.Linear(3, 3))).eval()
    gm = graphwright.symbolic_trace(model)
    again = there_and_back(gm, tmp_path, ["0._load_state_dict_pre_hooks: 1 hooks"] if name == "weight_norm" else None)
    x = torch.randn(2, 3)
    assert torch.equal(again(x), gm(x))
    assert list(again.state_dict()) == list(gm.state_dict())


def test_outlined_functions_must_be_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gm = graphwright.trace(saved_models.Calling(), (torch.randn(2, 3),), leaf_functions=[saved_models.outlined])
    assert gm.graph.find_nodes(op="call_function", target=saved_models.outlined)
    again = there_and_back(gm, tmp_path)
    assert graphwright.verify(gm, again, [(torch.randn(2, 3),)], grads=True).ok
    assert again.half().lstm._flat_weights[0] is again.lstm.weight_ih_l0
    monkeypatch.setattr(inspect, "getsource", lambda value: "def outlined(x): return x * 3")
    with pytest.raises(LoadError, match=r"saved_models:outlined has another source"):
        graphwright.load(tmp_path / "model.gw", allow=ALLOWED)


def test_operators_belong_to_their_namespace(tmp_path: Path) -> None:
    library = torch.library.Library("gw_saved", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    graph = graphwright.Graph()
    graph.output(graph.call_function(torch.ops.gw_saved.twice.default, (graph.placeholder("x"),)))
    graphwright.save(graphwright.GraphModule(nn.Module(), graph), tmp_path / "model.gw")
    with pytest.raises(LoadError, match=r"allow=\['gw_saved'\]"):
        graphwright.load(tmp_path / "model.gw")
    again = graphwright.load(tmp_path / "model.gw", allow=["gw_saved"])
    assert torch.equal(again(torch.ones(2)), torch.full((2,), 2.0))


def test_operators_with_an_underscore_are_operators(tmp_path: Path) -> None:
    graph = graphwright.Graph()
    inner = graph.call_function(torch._softmax, (graph.placeholder("x"), 0, False))
    graph.output(graph.call_function(torch.ops.aten._softmax.default, (inner, 0, False)))
    graphwright.save(graphwright.GraphModule(nn.Module(), graph), tmp_path / "model.gw")
    x = torch.randn(3)
    assert torch.equal(graphwright.load(tmp_path / "model.gw")(x), x.softmax(0).softmax(0))


@pytest.mark.parametrize("number", [numpy.sqrt(3), numpy.float16(0.1), numpy.int64(3), numpy.bool_(True)], ids=repr)
def test_numbers_of_numpy_keep_their_type(number: Any, tmp_path: Path) -> None:
    graph = graphwright.Graph()
    graph.output((graph.placeholder("x"), number))
    again = there_and_back(graphwright.GraphModule({}, graph), tmp_path)
    kept = again(1)[1]
    assert type(kept) is type(number) and kept == number


def test_what_values_have_may_be_read_beside_numbers_of_numpy(tmp_path: Path) -> None:
    gm = graphwright.trace(lambda x: torch.ones(2, device=x.device) * numpy.float64(x.shape[0]), torch.ones(3))
    graphwright.save(gm, tmp_path / "numbers.gw")
    assert torch.equal(graphwright.load(tmp_path / "numbers.gw")(torch.ones(5)), torch.full((2,), 5.0))


def test_operators_of_numpy_and_objects_that_look_at_themselves(tmp_path: Path) -> None:
    x = torch.rand(3)
    gm = graphwright.trace(saved_models.Waves(), (x,))
    graphwright.save(gm, tmp_path / "model.gw")
    again: Any = graphwright.load(tmp_path / "model.gw", allow=ALLOWED)
    assert torch.equal(again(x), gm(x))
    assert again.watched.names == {"a"}


def test_functions_of_numpy_have_to_be_allowed(tmp_path: Path) -> None:
    graph = graphwright.Graph()
    graph.output(graph.call_function(numpy.ones, (3,)))
    graphwright.save(graphwright.GraphModule({}, graph), tmp_path / "model.gw")
    with pytest.raises(LoadError, match=r"allow=\['numpy'\]"):
        graphwright.load(tmp_path / "model.gw")


def test_functions_of_numpy_that_are_allowed(tmp_path: Path) -> None:
    x = torch.randn(3)
    graph = graphwright.Graph()
    array = graph.call_method("numpy", (graph.placeholder("x"),))
    sums = graph.call_function(numpy.where, (True, graph.call_function(numpy.cumsum, (array,)), 0))
    graph.output(graph.call_function(torch.from_numpy, (sums,)))
    graphwright.save(graphwright.GraphModule({}, graph), tmp_path / "model.gw")
    again = graphwright.load(tmp_path / "model.gw", allow="numpy")
    assert torch.allclose(again(x), x.cumsum(0))


def test_functions_of_numpy_that_reach_files_are_not_allowed_with_it(tmp_path: Path) -> None:
    graph = graphwright.Graph()
    graph.output(graph.call_function(numpy.save, ("x.npy", graph.placeholder("x"))))
    graphwright.save(graphwright.GraphModule({}, graph), tmp_path / "model.gw")
    with pytest.raises(LoadError, match="it reaches what no file may: 'open'"):
        graphwright.load(tmp_path / "model.gw", allow="numpy")


@pytest.mark.slow
def test_functions_of_autograd_in_the_running_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_DOUBLING)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (ran.returncode, ran.stdout) == (0, "[4.0]\n"), ran.stderr


_DOUBLING = """
import graphwright, torch

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

gm = graphwright.trace(lambda x: Double.apply(x), torch.ones(1))
graphwright.save(gm, "model.gw")
print(graphwright.load("model.gw", allow="__main__")(torch.tensor([2.0])).tolist())
"""


def test_hooks_of_modules_that_stay_whole(tmp_path: Path) -> None:
    model = nn.Sequential(torch.nn.utils.spectral_norm(nn.Linear(3, 3)), nn.Linear(3, 3)).eval()
    model[1].register_forward_hook(saved_models.doubled)
    gm = graphwright.symbolic_trace(model)
    x = torch.randn(2, 3)
    left_out = graphwright.save(gm, tmp_path / "model.gw")
    again = graphwright.load(tmp_path / "model.gw", allow=ALLOWED)
    assert torch.equal(again(x), gm(x))
    assert len(again.get_submodule("1")._forward_hooks) == 1
    assert all("state_dict" in line for line in left_out)


@pytest.mark.parametrize("path", ["", "1", "1.0"])
@pytest.mark.parametrize(
    "register", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"]
)
def test_a_warning_says_that_hooks_of_calls_are_left_out(tmp_path: Path, path: str, register: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    gm = graphwright.trace(model, torch.ones(2, 3), leaf_modules=[nn.Sequential])
    getattr(gm.get_submodule(path), register)(lambda *args: None)
    with pytest.warns(UserWarning, match="model.gw runs without hooks: .*strict=True") as told:
        left_out = graphwright.save(gm, tmp_path / "model.gw")
    assert len(left_out) == len(told) == 1
    with pytest.raises(ExportError, match="hook"):
        graphwright.save(gm, tmp_path / "model.gw", strict=True)


def test_hooks_whose_code_is_in_the_graph_need_not_be_in_the_file(tmp_path: Path) -> None:
    model, x = nn.Sequential(saved_models.Twice(), nn.ReLU()), torch.randn(2, 3)
    seen: list[str] = []
    model[0].register_forward_hook(lambda module, args, output: output + len(seen))
    model[0].register_forward_hook(saved_models.doubled)
    gm = graphwright.trace(model, (x,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left_out = graphwright.save(gm, tmp_path / "model.gw")
    assert [line.partition(":")[0] for line in left_out] == ["0._forward_hooks"]
    again = graphwright.load(tmp_path / "model.gw", allow=ALLOWED)
    assert torch.equal(again(x), model(x))
    again.get_submodule("0")._forward_hooks.clear()
    with pytest.raises(GraphwrightError, match="no hook any more"):
        again(x)


def test_a_loaded_module_saves_again(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.Branching(), (torch.randn(4, 3),))
    again = there_and_back(there_and_back(gm, tmp_path), tmp_path)
    assert again.code == gm.code


def test_data_that_another_class_has_a_method_for_is_read_and_the_method_is_not(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.ReadsRows(), (saved_models.WithRows(torch.ones(2)),))
    again = there_and_back(gm, tmp_path)
    assert torch.equal(again(saved_models.WithRows(torch.ones(3))).value, torch.full((3,), 2.0))
    for guard in [node for node in again.graph.nodes if node.op == "call_function" and not node.users]:
        again.graph.erase_node(guard)
    with pytest.raises(GraphwrightError, match="'rows' of a RowsOf is no data, but a method"):
        again(saved_models.RowsOf(torch.ones(3)))


@pytest.mark.slow
def test_another_process_loads_it(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.Branching().eval(), (torch.ones(2, 3),))
    graphwright.save(gm, tmp_path / "model.gw")
    script = (
        "import graphwright, torch\n"
        f"gm = graphwright.load({str(tmp_path / 'model.gw')!r}, allow=['tests'])\n"
        "print(gm(torch.ones(2, 3)).tolist())"
    )
    root = Path(__file__).parents[2]
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=root, env={"PYTHONPATH": f"{root}/src"},
    )  # fmt: skip
    assert out.stdout.strip() == str(gm(torch.ones(2, 3)).tolist()), out.stderr


REFUSED = [
    pytest.param(lambda: nn.Linear(2, 2), "has no graph", id="not captured"),
    pytest.param(
        lambda: graphwright.symbolic_trace(nn.Sequential(nn.Linear(2, 2, device="meta"))),
        "meta device",
        id="no values",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_cannot_be_saved(make: Callable[[], nn.Module], message: str, tmp_path: Path) -> None:
    file = tmp_path / "model.gw"
    file.write_text("before")
    with pytest.raises(ExportError, match=message):
        graphwright.save(make(), file)
    assert [path.name for path in tmp_path.iterdir()] == ["model.gw"]
    assert file.read_text() == "before"


def test_a_local_class_or_function_is_refused_by_name(tmp_path: Path) -> None:
    class Local(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    with pytest.raises(ExportError, match=r"Local(.|\n)*top level"):
        graphwright.save(graphwright.trace(Local(), (torch.ones(1),)), tmp_path / "model.gw")
    graph = graphwright.Graph()
    graph.output(graph.call_function(lambda x: x, (graph.placeholder("x"),), name="y"))
    with pytest.raises(ExportError, match="lambda"):
        graphwright.save(graphwright.GraphModule(nn.Module(), graph), tmp_path / "model.gw")
    assert not list(tmp_path.iterdir())


def test_a_class_that_cannot_be_found_elsewhere_is_saved_as_plain_module_on_request(tmp_path: Path) -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 3

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.inner = nn.Parameter(torch.ones(2)), Inner()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + self.weight if x.sum() > 0 else x

    model, x, file = Outer(), torch.ones(2), tmp_path / "model.gw"
    with pytest.raises(ExportError, match="as_plain=True"):
        graphwright.save(graphwright.trace(model, (x,)), file)
    left_out = graphwright.save(graphwright.trace(model, (x,)), file, as_plain=True)
    assert [line.split(":")[0] for line in left_out] == ["Outer", "inner"]
    loaded = graphwright.load(file)
    assert loaded(x).equal(model(x)) and loaded(-x).equal(-x) and list(loaded.state_dict()) == ["weight"]
    with pytest.raises(ExportError, match=r"'inner': its class"):  # the program calls it
        graphwright.save(graphwright.trace(model, (x,), leaf_modules=["inner"]), file, as_plain=True)


def test_buffers_that_a_program_makes_are_made_by_the_loaded_module(tmp_path: Path) -> None:
    again = there_and_back(graphwright.trace(saved_models.Growing(), (torch.ones(3),)), tmp_path)
    model = saved_models.Growing()
    for size in (2, 6, 3):
        assert again(torch.ones(size)).equal(model(torch.ones(size)))
        assert again.table.equal(model.table) and not again.state_dict()


def test_methods_that_are_one_node_are_called_again(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.Counting(), (torch.ones(3),))
    assert gm.coverage < 1
    again = there_and_back(gm, tmp_path)
    for x in (torch.ones(3), torch.tensor([1.0, -2.0, 3.0])):
        assert torch.equal(again(x), saved_models.Counting()(x))


def test_a_method_with_another_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphwright.save(graphwright.trace(saved_models.Counting(), (torch.ones(3),)), tmp_path / "model.gw")

    def count(self: nn.Module, x: torch.Tensor) -> int:
        return 7

    count.__module__, count.__qualname__ = saved_models.__name__, "Distinct.count"
    monkeypatch.setattr(saved_models.Distinct, "count", count)
    with pytest.raises(LoadError, match=r"Distinct\.count has another source now"):
        graphwright.load(tmp_path / "model.gw", allow=ALLOWED)


def test_a_private_method_that_is_one_node_is_refused_by_name(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.PrivatelyCounting(), (torch.ones(3),))
    with pytest.raises(ExportError, match=r"PrivatelyCounting\._distinct"):
        graphwright.save(gm, tmp_path / "model.gw")


def test_changes_of_objects_are_made_by_the_loaded_module(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.Remembering(), (torch.ones(2), saved_models.Memory()))
    again = there_and_back(gm, tmp_path)
    here, there = saved_models.Memory(), saved_models.Memory()
    x = torch.arange(3.0)
    assert torch.equal(again(x, here), saved_models.Remembering()(x, there))
    assert here.seen == there.seen == 3 and torch.equal(here.last, there.last) and len(here.rows) == 1


def test_objects_may_have_classes_that_the_program_may_make(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.Tabling(), (torch.ones(2),))
    again = there_and_back(gm, tmp_path)
    x = torch.ones(3, requires_grad=True)
    for each in (x, x * 1):
        (y, table), (expected, _) = again(each), saved_models.Tabling()(each)
        assert torch.equal(y, expected)
        assert table.kind is saved_models.Memory and torch.equal(table.rows[1].last, each * 2)


def test_what_a_pass_noted_of_tensors_is_kept(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.Branching(), (torch.randn(4, 3),))
    ShapeProp(gm).propagate(torch.randn(4, 3))
    again = there_and_back(gm, tmp_path)
    noted = {node.name: node.meta["tensor_meta"] for node in gm.graph.nodes if "tensor_meta" in node.meta}
    assert {node.name: node.meta.get("tensor_meta") for node in again.graph.nodes if node.name in noted} == noted
    assert any(isinstance(value, TensorMetadata) for value in noted.values())


def test_a_pull_back_is_called_by_the_loaded_module(tmp_path: Path) -> None:
    gm = graphwright.trace(saved_models.PullingBack(), (torch.ones(3),))
    again = there_and_back(gm, tmp_path)
    x = torch.arange(3.0)
    torch.testing.assert_close(again(x), x.cos())


def test_what_nodes_stand_for_is_kept(tmp_path: Path) -> None:
    gm = graphwright.trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), (torch.randn(4, 3),))
    relu = next(node for node in gm.graph.nodes if node.op == "call_module" and node.target == "1")
    relu.replace_with("call_function", torch.relu, relu.args, by="use_relu")
    again = there_and_back(gm, tmp_path)
    sources = {node.name: node.meta["from_node"] for node in again.graph.nodes if "from_node" in node.meta}
    assert sources == {relu.name: gm.graph.find_nodes(op="call_function", target=torch.relu)[0].meta["from_node"]}


class Packed(nn.Module):
    """Holds an object of TorchScript, whose state no file holds."""

    def __init__(self) -> None:
        super().__init__()
        self._packed = torch.ops.quantized.linear_prepack_fp16(torch.ones(2, 3), None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic_fp16(x, self._packed)


@pytest.mark.parametrize("strict", [False, True])
def test_what_a_program_reads_is_never_left_out(strict: bool, tmp_path: Path) -> None:
    gm = graphwright.symbolic_trace(Packed())
    assert gm(torch.ones(1, 3)).tolist() == [[3, 3]]
    with pytest.raises(ExportError, match=r"'_packed', a torch.ScriptObject, whose state is not in Python"):
        graphwright.save(gm, tmp_path / "model.gw", strict=strict)
    assert not any(tmp_path.iterdir())


STRIDED = [
    torch.rand(4, 8)[:, ::2],
    torch.ones(1).expand(5),
    torch.rand(3, 1).expand(3, 4),
    torch.rand(3, 4, 8)[:, 1:3, ::3],
    torch.arange(6.0).as_strided((3, 2), (1, 2)),
    torch.rand(4, 8, dtype=torch.complex64)[:, ::2],
    torch.rand(4, 8).bfloat16()[1:, ::2].t(),
    (torch.rand(3, 6) > 0.5)[:, ::2],
]


def test_tensors_with_holes_and_repetitions_keep_their_strides(tmp_path: Path) -> None:
    gm = graphwright.symbolic_trace(nn.Identity())
    for i, tensor in enumerate(STRIDED):
        gm.register_buffer(f"held{i}", tensor)
    again = there_and_back(gm, tmp_path)
    for i, tensor in enumerate(STRIDED):
        found = getattr(again, f"held{i}")
        assert found.stride() == tensor.stride()
        assert torch.equal(found, tensor)


def test_what_a_tensor_does_not_read_is_not_in_the_file(tmp_path: Path) -> None:
    table = torch.full((4, 8), 7.0)
    table[:, ::2] = 1.0
    gm = graphwright.symbolic_trace(nn.Identity())
    gm.register_buffer("held", table[:, ::2])
    graphwright.save(gm, tmp_path / "model.gw")
    (stored,) = load_file(tmp_path / "model.gw").values()
    assert sorted(stored.unique().tolist()) == [0.0, 1.0]


def test_a_namespace_is_all_there(tmp_path: Path) -> None:
    gm = graphwright.symbolic_trace(nn.Identity())
    gm.box = types.SimpleNamespace(size=2)
    assert graphwright.save(gm, tmp_path / "model.gw", strict=True) == []
    assert graphwright.load(tmp_path / "model.gw").box == gm.box


def test_what_is_no_path_is_told() -> None:
    gm = graphwright.trace(nn.Linear(2, 3), torch.ones(1, 2))
    nothing: Any = io.BytesIO()
    with pytest.raises(ExportError, match=r"a BytesIO is no path of a file\n  fix: give one"):
        graphwright.save(gm, nothing)
    with pytest.raises(LoadError, match=r"a BytesIO is no path of a file\n  fix: write what it holds to a file"):
        graphwright.load(nothing)


def test_a_name_that_no_file_may_have_is_told_when_it_is_saved(tmp_path: Path) -> None:
    gm = graphwright.symbolic_trace(nn.Identity())
    gm.add_module("__part", nn.Linear(2, 2))
    graphwright.save(gm, tmp_path / "model.gw")
    assert "__part" in graphwright.load(tmp_path / "model.gw")._modules
    for name in ("two\nlines", 'a", b', "a'", "a\\"):
        gm = graphwright.symbolic_trace(nn.Identity())
        gm.add_module(name, nn.Linear(2, 2))
        with pytest.raises(ExportError, match="no file may have that name"):
            graphwright.save(gm, tmp_path / "model.gw")


def test_a_layer_without_what_it_reads_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    gm = graphwright.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    layer: Any = gm.get_submodule("0")
    layer.in_features = object()
    with pytest.raises(ExportError, match=r"cannot save 0.in_features, which each Linear has: a builtins.object"):
        graphwright.save(gm, tmp_path / "model.gw")
    del layer.in_features
    with pytest.raises(ExportError, match=r"cannot save 0.in_features, which each Linear has: it is not there"):
        graphwright.save(gm, tmp_path / "model.gw")


@pytest.mark.parametrize("held", [{"act": torch.relu}, [nn.Linear], types.SimpleNamespace(act=torch.tanh)])
def test_what_load_refuses_as_a_value_is_refused_when_it_is_saved(held: Any, tmp_path: Path) -> None:
    graph = graphwright.Graph()
    graph.output(graph.get_attr("table"))
    gm = graphwright.GraphModule({"table": held}, graph)
    with pytest.raises(ExportError, match="reads 'table', which is or holds a function, class or module"):
        graphwright.save(gm, tmp_path / "model.gw")
    gm.table = types.SimpleNamespace(size=2, unsaved=lambda: None)
    graphwright.save(gm, tmp_path / "model.gw")
    assert graphwright.load(tmp_path / "model.gw")().size == 2


def test_classes_of_numpy_stand_for_dtypes(tmp_path: Path) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy().astype(numpy.float64).round().astype(numpy.int32))

    graphwright.save(graphwright.trace(program, (torch.ones(2),)), tmp_path / "program.gw")
    loaded, x = graphwright.load(tmp_path / "program.gw"), torch.randn(3) * 3
    assert torch.equal(loaded(x), program(x)) and loaded(x).dtype == torch.int32


class Odd(RuntimeError):
    pass


def test_the_arguments_of_an_error_of_the_program_s_own_class_may_be_read(tmp_path: Path) -> None:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() > 0:
                raise Odd(3)
        except Odd as error:
            return x * error.args[0]
        return x

    graphwright.save(graphwright.trace(program, (torch.ones(2),)), tmp_path / "program.gw")
    loaded = graphwright.load(tmp_path / "program.gw", allow=[__name__])
    assert torch.equal(loaded(torch.ones(2)), torch.ones(2) * 3) and torch.equal(loaded(-torch.ones(2)), -torch.ones(2))


class InPart(nn.Module):
    """Uses one of the layers that another is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 1, 8)
        del self.layer.norm1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer.linear1(x)


def test_a_layer_that_is_made_of_others_may_have_lost_some(tmp_path: Path) -> None:
    model, x = InPart(), torch.randn(2, 4)
    graphwright.save(graphwright.trace(model, x), tmp_path / "model.gw")
    assert torch.equal(graphwright.load(tmp_path / "model.gw", allow=[__name__])(x), model(x))


def test_a_program_that_calls_what_was_taken_away_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    gm = graphwright.trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2))
    gm.delete_submodule("0")
    with pytest.raises(ExportError, match="calls 0, which the module does not have"):
        graphwright.save(gm, tmp_path / "model.gw")
    assert not (tmp_path / "model.gw").exists()
