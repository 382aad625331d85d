"""Stages of a program: the same values and gradients when they are chained, names kept, ties told, bad cuts refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn

import graphwright
from graphwright import UnknownNameError, split
from graphwright.errors import PassError
from graphwright.passes import Split


class Net(nn.Module):
    """With a tied weight, and a value that skips stages."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.2)

    def forward(self, ids: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        h = skip = self.embed(ids)
        for i, layer in enumerate(self.layers):
            h = self.drop(torch.relu(layer(h)))
            if i == 3:
                h = h + skip
        return {"logits": self.norm(h) @ self.embed.weight.t() * scale, "skip": skip}


IDS = torch.arange(5)


def check(model: nn.Module, stages: Split, *args: Any, grads: bool = True, **kwargs: Any) -> None:
    """Chained they do what the original does, and each has the original's names."""
    state = model.state_dict()
    for stage in stages:
        own = stage.module.state_dict()
        assert own.keys() <= state.keys()
        stage.module.load_state_dict({name: state[name] for name in own})
        assert all(torch.equal(own[name], state[name]) for name in own)
        stage.module.graph.lint()
    reached = {name for stage in stages for name, _ in stage.module.named_parameters(remove_duplicate=False)}
    assert {id(p) for p in model.parameters()} == {id(stages_tensor(stages, name)) for name in reached}
    modes = (True, False)
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    for mode in modes:
        results = []
        for module in (model, stages.module):
            module.train(mode)
            model.zero_grad()
            for name, value in model.named_buffers():
                value.data.copy_(buffers[name])
            torch.manual_seed(0)
            result = module(*args, **kwargs)
            values = [value for value in flat(result) if value.requires_grad]
            if grads and values:
                sum(value.square().sum() for value in values).backward()
            results.append((result, {name: p.grad for name, p in model.named_parameters()}))
            if module is model:
                results[0] = (result, {name: None if g is None else g.clone() for name, g in results[0][1].items()})
        (want, want_grads), (got, got_grads) = results
        assert type(got) is type(want)
        for one, other in zip(flat(got), flat(want), strict=True):
            torch.testing.assert_close(one, other)
        for name, grad in want_grads.items():
            assert (grad is None) == (got_grads[name] is None), name
            if grad is not None:
                torch.testing.assert_close(got_grads[name], grad)


def stages_tensor(stages: Split, name: str) -> Tensor:
    for stage in stages:
        for each, parameter in stage.module.named_parameters(remove_duplicate=False):
            if each == name:
                return parameter
    raise AssertionError(name)


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [each for item in value.values() for each in flat(item)]
    return [each for item in value for each in flat(item)] if isinstance(value, tuple | list) else []


def test_stages_by_name() -> None:
    model = Net()
    gm = graphwright.trace(model, (IDS,))
    before = str(gm.graph)
    stages = split(gm, at=["layers.4", "layers.2"])
    assert str(gm.graph) == before
    assert len(stages) == 3
    assert [len(stage.inputs) for stage in stages] == [1, 2, 3]
    assert str(stages[2].inputs[0]) == "scale"  # what the program is given comes first
    assert f"{', '.join(stages[0].outputs)} = self.stage_0(ids)" in stages.module.code
    assert {link.stage for link in stages[2].inputs} == {None, 0, 1}  # the skip comes from the first stage
    assert set(stages[1].module.state_dict()) == {f"layers.{i}.{n}" for i in (2, 3) for n in ("weight", "bias")}
    (tied,) = stages.tied
    assert (tied.names, tied.stages, tied.owner) == (("embed.weight", "embed.weight"), (0, 2), 0)
    assert "tied: embed.weight, in stages 0, 2, owned by 0" in str(stages)
    check(model, stages, IDS, scale=2.0)
    check(model, split(gm, at="norm"), IDS)


def test_what_only_reads_is_in_any_order() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
            self.register_buffer("total", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            self.total += x[0, 0]  # reads what the second stage and the slice read, too
            return self.second(x) + x[:, :2]

    model, x = Counting(), torch.randn(3, 4)
    stages = split(graphwright.trace(model, (x,)), by={"first": 0, "second": 1})
    assert len(stages) == 2
    check(model, stages, x)


@pytest.mark.parametrize("balance", ["flops", "params", "memory", "time"])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_stages_of_like_cost(balance: Any, parts: int) -> None:
    model = Net()
    stages = split(graphwright.trace(model, (IDS,)), parts=parts, balance=balance, args=(IDS,))
    assert len(stages) == parts and all(stage.nodes for stage in stages)
    check(model, stages, IDS)


def test_balance_is_the_best_there_is() -> None:
    model = nn.Sequential(*[nn.Linear(n, m) for n, m in [(4, 4), (4, 40), (40, 4), (4, 4), (4, 4), (4, 80), (80, 4)]])
    x = torch.ones(2, 4)
    stages = split(graphwright.trace(model, (x,)), parts=3)
    assert [stage.parameters for stage in stages] == [20 + 200 + 164 + 20, 20 + 400, 324]
    assert [stage.cost for stage in stages] == [404, 420, 324]
    check(model, stages, x)


def test_few_values_cross_where_the_balance_allows() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            a, b, c, d = self.first(x).chunk(4, -1)
            y = a * b * c * d
            return self.last(y.relu().repeat(1, 4) * y.sum())

    stages = split(graphwright.trace(Model(), (torch.ones(2, 4),)), parts=2)
    assert len(stages[0].outputs) == 1 and stages[1].nodes == 1


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        if x.sum() > 0:
            x = self.b(x)
        with torch.no_grad():
            y = x * 2
            y = y + 1
        return self.c(x + y)


def test_regions_stay_whole() -> None:
    model, x = Gated(), torch.randn(3, 4)
    gm = graphwright.trace(model, (x,))
    check(model, split(gm, at=["c"]), x)
    for parts in (2, 3, 4):
        check(model, split(gm, parts=parts), x)
    with pytest.raises(PassError, match="'b' is inside of cond, which cannot be cut"):
        split(gm, at=["b"])
    with pytest.raises(PassError, match="inside of a `with` block"):
        split(gm, at=["add"])
    with pytest.raises(PassError, match="cannot be cut into 50 stages"):
        split(gm, parts=50)


def test_labels() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.head = (nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            a = self.left[0](x)
            b = self.right(x)
            return self.head(self.left[1](a) + b)

    model, x = Two(), torch.randn(3, 4)
    gm = graphwright.trace(model, (x,))
    stages = split(gm, by={"left": "L", "right": "R", "head": "H"})
    assert [set(stage.module.state_dict()) for stage in stages] == [
        {f"{name}.0.{kind}" for kind in ("weight", "bias")} for name in ("left", "right", "head")
    ]
    check(model, stages, x)
    check(model, split(gm, by=lambda node: 1 if str(node.target).startswith("head") else None), x)
    check(model, split(gm, by=lambda node: {"right.0": "a", "left.0": "b", "head.1": "c"}.get(str(node.target))), x)
    with pytest.raises(PassError, match="would need each other"):
        split(gm, by={"left": 0, "right": 0, "left.1": 1, "head": 0})
    with pytest.raises(UnknownNameError, match="no module is called 'middle'"):
        split(gm, by={"middle": 0})
    with pytest.raises(PassError, match="no node has a stage"):
        split(gm, by=lambda node: None)


def test_labels_keep_effects_in_order() -> None:
    def run(x: Tensor) -> Tensor:
        y = x.neg()
        z = y * 2
        y.add_(1)
        return z + y

    gm = graphwright.trace(run, (torch.ones(2),))
    names = [node.name for node in gm.graph.nodes]
    late = {"z": 1}
    with pytest.raises(PassError, match=r"would need each other|has to come before"):
        split(gm, by=lambda node: 1 if node.name in late else 0)
    assert [node.name for node in gm.graph.nodes] == names


REFUSED = [
    ({"at": ["layers.9"]}, UnknownNameError, "no module and no value is called 'layers.9'"),
    ({"at": ["embed"]}, PassError, "empty stage: it is the first thing to run"),
    ({"at": ["layers.1", "layers.1"]}, PassError, "'layers.1' begins there, too"),
    ({"at": []}, PassError, "nothing to cut at"),
    ({}, PassError, "by nothing"),
    ({"at": ["norm"], "parts": 2}, PassError, "by at and parts"),
    ({"parts": 0}, PassError, "cannot be cut into 0 stages"),
    ({"parts": 2, "balance": "flops"}, PassError, "has to run"),
    ({"parts": 2, "balance": "weight"}, PassError, "no balance by 'weight'"),
]


@pytest.mark.parametrize(("options", "error", "message"), REFUSED)
def test_refusals(options: Any, error: type[Exception], message: str) -> None:
    gm = graphwright.trace(Net(), (IDS,))
    before = str(gm.graph)
    with pytest.raises(error, match=message):
        split(gm, **options)
    assert str(gm.graph) == before


def test_inputs_that_a_stage_writes_to() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(2, 2, 1), nn.ReLU())
    x = torch.rand(1, 1, 3, 3)
    gm = graphwright.trace(model, (x,))
    assert [stage.writes for stage in split(gm, at=["1", "3"])] == [(), (gm_name(gm, "0"),), ()]
    check(model, split(gm, at=["1", "3"]), x)


def gm_name(gm: Any, target: str) -> str:
    """The name of the value that a module gives."""
    return next(node.name for node in gm.graph.nodes if node.target == target)


def test_attributes_that_are_written() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
            self.total = torch.zeros(())

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            self.total = self.total + x.sum()
            return self.b(x) * self.total

    gm = graphwright.trace(Counting(), (torch.ones(1, 2),))
    with pytest.raises(PassError, match="one stage would write 'total', and another one use it"):
        split(gm, at=["b"])


def test_symbolic_captures_and_copies() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(2, 4)
    stages = split(graphwright.symbolic_trace(model), at=["2"])
    check(model, stages, x)
    copied = copy.deepcopy(stages.module).eval()
    torch.testing.assert_close(copied(x), model.eval()(x))


def test_stages_are_saved(tmp_path: Any) -> None:
    model = Net().eval()
    stages = split(graphwright.trace(model, (IDS,)), at=["layers.3"])
    for stage in stages:
        graphwright.save(stage.module, tmp_path / f"{stage.name}.gw")
    first, second = (graphwright.load(tmp_path / f"{stage.name}.gw") for stage in stages)
    given = first(IDS)
    values = dict(zip(stages[0].outputs, given if isinstance(given, tuple) else (given,), strict=True))
    got = second(*[values.get(link.name, 1.0) for link in stages[1].inputs])
    torch.testing.assert_close(got, model(IDS))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "swin_t", "densenet121", "googlenet"])
def test_models_of_torchvision(name: str) -> None:
    declare_torchvision()
    models = pytest.importorskip("torchvision.models")
    options = {"init_weights": False} if name == "googlenet" else {}
    model = models.get_model(name, weights=None, **options).eval()
    x = torch.rand(2, 3, 64, 64)
    gm = graphwright.trace(model, (x,))
    check(model, split(gm, parts=4, balance="flops", args=(x,)), x)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_models_of_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 99,
        "n_embd": 32, "n_layer": 4, "n_head": 2, "num_key_value_heads": 2,
    }  # fmt: skip
    known = transformers.AutoConfig.for_model(name).to_dict()
    config = transformers.AutoConfig.for_model(
        name, **{k: v for k, v in sizes.items() if k in known}, use_cache=False, return_dict=False
    )
    model = transformers.AutoModel.from_config(config).eval()
    ids = torch.randint(0, 99, (2, 7))
    check(model, split(graphwright.trace(model, (ids,)), parts=3), ids)


def test_work_grows_with_the_graph() -> None:
    from graphwright import Graph, GraphModule

    graph = Graph()
    value = graph.placeholder("x")
    for _ in range(2_000):
        value = graph.call_function(torch.relu, (value,))
    graph.output(value)
    stages = split(GraphModule(nn.Module(), graph), parts=100)
    assert [stage.nodes for stage in stages] == [20] * 100
    assert all(len(stage.inputs) == 1 for stage in stages)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Tensor, scale: float = 2.0) -> Tensor:
        for layer in self.layers:
            x = layer(x) * scale
        return x


def test_a_stage_that_takes_the_rest_of_the_keywords_needs_them() -> None:
    class Options(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, scale: float = 2.0, **options: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x * scale) + options["bias"])

    model, x, bias = Options(), torch.ones(2, 4), torch.ones(4)
    stages = split(graphwright.trace(model, (x,), {"bias": bias}), at=["second"])
    assert torch.equal(stages.module(x, bias=bias), model(x, bias=bias))


def test_a_stage_that_needs_no_other_keeps_the_defaults_of_the_program() -> None:
    model, x = Scaled(), torch.ones(2, 4)
    first, second = split(graphwright.trace(model, (x,)), at=["layers.1"])
    assert torch.equal(second.module(2.0, first.module(x)), model(x))
