"""GraphModules, as PyTorch's own tests of torch.fx expect them to behave."""

import copy
import io
import operator
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 1)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(torch.relu(self.conv(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.unused = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.rand(1))
        self.register_buffer("shift", torch.rand(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x) * self.scale + self.shift


@pytest.fixture
def traced(fx: Any) -> Any:
    return fx.symbolic_trace(Model().eval())


X = torch.rand(1, 2, 3)


def test_construction_from_a_module_copies_what_is_used(fx: Any) -> None:
    model = Model()
    gm = fx.GraphModule(model, fx.Tracer().trace(model))
    assert gm.block.conv is model.block.conv and gm.scale is model.scale
    assert set(dict(gm.named_parameters())) == {"scale", "block.conv.weight", "block.conv.bias"}
    assert "shift" in dict(gm.named_buffers()) and not hasattr(gm, "unused")
    assert not isinstance(gm.block, Block)


def test_construction_from_a_dict(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_module("some.linear", (x,))
    graph.output(graph.call_function(operator.add, (y, graph.get_attr("bias"))))
    linear, bias = nn.Linear(2, 2), torch.ones(2)
    gm = fx.GraphModule({"some.linear": linear, "bias": bias}, graph)
    torch.testing.assert_close(gm(torch.ones(2)), linear(torch.ones(2)) + 1)
    assert gm.some.linear is linear and isinstance(gm.bias, torch.Tensor)
    assert type(gm).__name__ == "GraphModule"


def test_a_dict_must_have_what_the_graph_needs(fx: Any) -> None:
    graph = fx.Graph()
    graph.output(graph.call_module("missing", (graph.placeholder("x"),)))
    with pytest.raises(RuntimeError, match="missing"):
        fx.GraphModule({}, graph)


def test_other_roots_are_refused(fx: Any) -> None:
    with pytest.raises(RuntimeError):
        fx.GraphModule(3, fx.Graph())


def test_the_class_has_a_name_and_is_its_own(fx: Any) -> None:
    graph = fx.Tracer().trace(Model())
    first, second = fx.GraphModule(Model(), graph, "First"), fx.GraphModule(Model(), graph)
    assert type(first).__name__ == "First" and type(first) is not type(second)
    assert isinstance(first, fx.GraphModule) and isinstance(first, nn.Module)
    assert type(fx.symbolic_trace(Model())).__name__ == "Model"


def test_training_flags(fx: Any) -> None:
    assert not fx.symbolic_trace(Model().eval()).training
    gm = fx.symbolic_trace(Model().train())
    assert gm.training and gm.block.drop.training
    gm.eval()
    assert not gm.block.drop.training


def test_the_code_follows_the_graph_after_recompile(fx: Any, traced: Any) -> None:
    for node in traced.graph.find_nodes(op="call_function", target=torch.relu):
        node.target = torch.neg
    code = traced.recompile()
    assert "torch.neg" in traced.code and "torch.neg" in code.src and "torch" in code.globals
    twin = copy.deepcopy(traced)
    torch.testing.assert_close(twin(X), traced(X))


def test_a_new_graph_is_compiled(fx: Any, traced: Any) -> None:
    graph = fx.Graph()
    graph.output(graph.placeholder("x"))
    traced.graph = graph
    assert torch.equal(traced(X), X)
    with pytest.raises((AssertionError, TypeError)):
        traced.graph = "no graph"


def test_copies_are_independent(fx: Any, traced: Any) -> None:
    traced.graph.output_node().meta["note"] = 1
    traced.meta["own"] = 2
    twin = copy.deepcopy(traced)
    assert twin.meta["own"] == 2 and twin.graph.output_node().meta["note"] == 1
    with torch.no_grad():
        twin.scale.zero_()
    assert traced.scale != 0 and twin.graph is not traced.graph
    twin.graph.lint()
    assert copy.copy(traced).scale is traced.scale


def test_pickle(fx: Any, traced: Any) -> None:
    twin = pickle.loads(pickle.dumps(traced))
    torch.testing.assert_close(twin(X), traced(X))
    assert [node.name for node in twin.graph.nodes] == [node.name for node in traced.graph.nodes]
    file = io.BytesIO()
    torch.save(traced, file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file, weights_only=False)(X), traced(X))


def test_script(fx: Any, traced: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.jit.script(traced)(X), traced(X))


def test_script_of_typed_code(fx: Any) -> None:
    class Typed(nn.Module):
        def forward(self, x: torch.Tensor, sizes: list[int], by: float | None = None) -> torch.Tensor:
            return x.view(sizes) + 1

    gm = fx.symbolic_trace(Typed())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.jit.script(gm)(X, [6]).shape == (6,)


def test_state_and_strict_loading(fx: Any, traced: Any) -> None:
    model = Model()
    traced.load_state_dict({key: value for key, value in model.state_dict().items() if "unused" not in key})
    torch.testing.assert_close(traced(X), model.eval()(X))


def test_hooks_run(fx: Any, traced: Any) -> None:
    seen = []
    traced.register_forward_hook(lambda module, args, output: seen.append(output))
    out = traced(X)
    assert seen[0] is out


def test_submodules_can_be_added_and_deleted(fx: Any, traced: Any) -> None:
    assert traced.add_submodule("new.deep.relu", nn.ReLU())
    assert isinstance(traced.get_submodule("new.deep.relu"), nn.ReLU)
    assert not traced.add_submodule("scale.bad", nn.ReLU())
    assert traced.add_submodule("other", nn.Sequential(nn.ReLU()))
    assert traced.delete_submodule("other.0") and not traced.delete_submodule("other.0")
    assert not traced.delete_submodule("no.such.module")
    traced.delete_all_unused_submodules()
    assert [name for name, _ in traced.named_modules() if name] == ["block", "block.conv", "block.drop"]


def test_submodules_in_use_can_be_replaced(fx: Any, traced: Any) -> None:
    traced.add_submodule("extra", nn.Identity())
    (drop,) = [node for node in traced.graph.nodes if node.target == "block.drop"]
    drop.target = "extra"
    traced.delete_all_unused_submodules()
    traced.recompile()
    traced.graph.lint()
    assert not hasattr(traced.block, "drop") and traced(X).shape == X.shape


def test_a_read_of_what_is_missing_warns(fx: Any, traced: Any) -> None:
    with (
        pytest.warns(UserWarning, match="no underlying reference in the owning GraphModule"),
        traced.graph.inserting_before(traced.graph.output_node()),
    ):
        traced.graph.get_attr("missing")


def test_printing(fx: Any, traced: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = traced.print_readable(print_output=False)
    assert "class Model(torch.nn.Module):" in text and "torch.relu" in text
    assert capsys.readouterr().out == ""
    traced.print_readable()
    assert "class Model(torch.nn.Module):" in capsys.readouterr().out
    assert "(conv): Conv1d" in str(traced) and "torch.relu" in str(traced)


def test_graphs_in_graphs(fx: Any, traced: Any) -> None:
    graph = fx.Graph()
    graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
    outer = fx.GraphModule({"inner": traced}, graph)
    torch.testing.assert_close(outer(X), traced(X))
    assert "class inner" in outer.print_readable(print_output=False)


def test_to_folder(fx: Any, traced: Any, tmp_path: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced.to_folder(tmp_path / "folder", "Written")
    assert (tmp_path / "folder" / "module.py").exists() and (tmp_path / "folder" / "__init__.py").exists()


def test_attributes_survive(fx: Any) -> None:
    class Own(fx.GraphModule):
        def __init__(self, root: Any, graph: Any) -> None:
            super().__init__(root, graph)
            self.note = "kept"

    model = Model()
    gm = Own(model, fx.Tracer().trace(model))
    assert gm.note == "kept" and isinstance(gm, Own)
    assert isinstance(copy.deepcopy(fx.symbolic_trace(model)), fx.GraphModule)


def test_errors_in_generated_code_show_the_line(fx: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gm = fx.symbolic_trace(lambda x: torch.relu(x) @ x)
    with pytest.raises(RuntimeError):
        gm(torch.rand(2, 3))


def test_lines_know_their_nodes(fx: Any, traced: Any) -> None:
    code = traced.graph.python_code("self")
    nodes = list(traced.graph.nodes)
    lines = code.src.split("\n")
    for line, number in code._lineno_map.items():
        if number is not None and nodes[number].op not in ("output", "placeholder"):
            assert nodes[number].name in lines[line - 1 + (code._prologue_start or 0)]
