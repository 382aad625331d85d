"""Predicted memory against what runs allocate; liveness against what generated code frees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import graphwright
from graphwright import GraphError, trace
from graphwright.analysis import Liveness, Storages, memory, peak_memory, tensors_in


def torchvision_model(name: str, size: int) -> Callable[[], tuple[nn.Module, Any]]:
    def make() -> tuple[nn.Module, Any]:
        declare_torchvision()
        models = pytest.importorskip("torchvision").models
        return getattr(models, name)(weights=None), torch.randn(4, 3, size, size)

    return make


def timm_model(name: str, size: int) -> Callable[[], tuple[nn.Module, Any]]:
    def make() -> tuple[nn.Module, Any]:
        declare_torchvision()
        return pytest.importorskip("timm").create_model(name), torch.randn(4, 3, size, size)

    return make


def transformer(name: str, **config: Any) -> Callable[[], tuple[nn.Module, Any]]:
    def make() -> tuple[nn.Module, Any]:
        declare_torchvision()
        library = pytest.importorskip("transformers")
        sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 200}
        made = getattr(library, f"{name}Config")(**{**sizes, "intermediate_size": 128, "use_cache": False, **config})
        return getattr(library, f"{name}Model")(made), torch.randint(0, 200, (4, 48))

    return make


MODELS = [
    pytest.param(torchvision_model("resnet18", 96), id="resnet18"),
    pytest.param(transformer("Llama", num_key_value_heads=2), id="llama"),
    *(
        pytest.param(make, id=name, marks=pytest.mark.slow)
        for name, make in {
            "mobilenet_v3_small": torchvision_model("mobilenet_v3_small", 128),
            "densenet121": torchvision_model("densenet121", 96),
            "vit_b_16": torchvision_model("vit_b_16", 224),
            "swin_t": torchvision_model("swin_t", 96),
            "convnext_tiny": torchvision_model("convnext_tiny", 160),
            "mixer": timm_model("mixer_s16_224", 224),
            "regnet": timm_model("regnety_002", 128),
            "bert": transformer("Bert"),
            "gpt2": transformer("GPT2", n_embd=64, n_layer=3, n_head=4),
        }.items()
    ),
]


def call(module: nn.Module, x: Any, backward: bool) -> None:
    with torch.set_grad_enabled(backward):
        result = module(x)
        if backward:
            wanted = [tensor.sum() for tensor in tensors_in(result) if tensor.requires_grad]
            sum(wanted[1:], wanted[0]).backward()  # type: ignore[no-untyped-call]


def allocated_by_tensors(module: nn.Module, x: Any, backward: bool) -> int:
    with Storages([*module.parameters(), *module.buffers(), x]) as storages:
        call(module, x, backward)
    return storages.peak


def allocated_by_torch(module: nn.Module, x: Any, backward: bool) -> int:
    """What the allocator gives, workspaces of kernels included."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call(module, x, backward)
    live = peak = 0
    for event in recorded.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backward", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("make", MODELS)
def test_the_peak_is_the_one_of_a_run(make: Callable[[], tuple[nn.Module, Any]], backward: bool) -> None:
    torch.manual_seed(0)
    model, x = make()
    model.train(backward)
    gm = graphwright.trace(model, (x,))
    report = memory(gm, (x,), backward=backward)
    assert all(parameter.grad is None for parameter in gm.parameters())
    measured = allocated_by_tensors(gm, x, backward)
    gm.zero_grad()
    assert report.peak == pytest.approx(measured, rel=0.1)
    if backward or not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        measured = allocated_by_torch(gm, x, backward)  # kernels of convolutions keep copies of weights meanwhile
        assert report.peak == pytest.approx(measured, rel=0.1)
    highest = max(use.live for use in report.nodes)
    assert 0 < highest <= report.peak
    assert report.gradients == (sum(p.numel() * 4 for p in model.parameters()) if backward else 0)
    assert report.held >= sum(p.numel() * 4 for p in model.parameters())


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(256, 256), nn.BatchNorm1d(256)

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.cat([x, x, x])
        rows = wide.view(-1, 128)
        rows.mul_(2)
        small = wide.sum(0, keepdim=True)
        return self.norm(self.linear(small.expand(4, 256)))


KIB = 1024


def test_views_writes_and_modules_node_by_node() -> None:
    x = torch.ones(64, 256)
    gm = graphwright.trace(Steps().eval(), (x,))
    report = memory(gm, (x,))
    assert report["wide"].kept == report["wide"].inside == 3 * 64 * KIB
    assert report["rows"].kept == 0
    assert report["small"].kept == KIB - 3 * 64 * KIB, "the last use of the memory, after the view has gone"
    assert report.nodes[-1].live == report.after_forward == 4 * KIB
    assert (report.peak, report.peak_node) == (3 * 64 * KIB + KIB, "small")
    assert str(report).splitlines()[-1] == f"peak {report.peak:,} bytes at small"
    trained = memory(graphwright.trace(Steps(), (x,)), (x,), backward=True)
    norm = next(use for use in trained.nodes if use.kind == "BatchNorm1d")
    assert norm.kept >= 4 * KIB + 2 * KIB, "its mean and deviation stay for backward"
    assert trained.after_forward > report.after_forward
    with pytest.raises(KeyError, match="nowhere"):
        report["nowhere"]


def looped(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = torch.cat([x, x]) if x.sum() > 0 else x.repeat(2)
    return torch.utils.checkpoint.checkpoint(lambda y: (y.exp() * y.sin()).cos(), x, use_reentrant=False)


@pytest.mark.parametrize("backward", [False, True])
def test_loops_branches_and_checkpoints(backward: bool) -> None:
    x = torch.ones(256, requires_grad=backward)
    gm = graphwright.trace(looped, (x, 2))
    report = memory(gm, (x, 5), backward=backward)
    with Storages([x]) as storages, torch.set_grad_enabled(backward):
        result = gm(x, 5)
        if backward:
            result.sum().backward()
    assert report.peak == pytest.approx(storages.peak, rel=0.1)
    inside = next(node for node in gm.graph.all_nodes() if node.target == "sin")
    assert report[inside.name].inside == 32 * KIB


def test_a_module_stays_as_it_is() -> None:
    x = torch.randn(8, 256)
    gm = graphwright.trace(Steps(), (x,))
    before, state = {k: v.clone() for k, v in gm.state_dict().items()}, torch.get_rng_state()
    memory(gm, x, backward=True)
    assert all(torch.equal(value, before[key]) for key, value in gm.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in gm.parameters())


def test_what_cannot_be_told() -> None:
    gm = graphwright.trace(lambda x: x[x > 0].sum(), (torch.ones(3),))
    with pytest.raises(GraphError, match="does not run without data"):
        memory(gm, torch.ones(3))
    with pytest.raises(GraphError, match="returns nothing that has gradients"):
        memory(graphwright.trace(lambda x: x + 1, (torch.ones(3),)), torch.ones(3), backward=True)


def test_last_uses_are_where_generated_code_frees() -> None:
    def program(x: Tensor, y: Tensor) -> Any:
        a = x.exp()
        b = a.view(-1)
        c = b.sum() * y
        return torch.where(c > 0, c, y), x.neg()

    gm = graphwright.trace(program, (torch.ones(2, 2), torch.ones(2, 2)))
    liveness = Liveness(gm)
    nodes = {node.name: node for node in gm.graph.nodes}
    output = gm.graph.output_node()
    for name, last in {"x": "neg", "a": "b", "c": "where", "y": "where", "neg": "output"}.items():
        assert liveness.last_use(nodes[name]) is nodes[last], name
    assert liveness.last_use_of_memory(nodes["a"]).name == liveness.last_use(nodes["b"]).name
    for node in gm.graph.nodes:
        wanted = [value for value in gm.graph.nodes if value <= node and any(user > node for user in value.users)]
        assert liveness.after(node) == wanted
    assert liveness.last_use(output) is output
    other = graphwright.symbolic_trace(lambda x: x)
    with pytest.raises(GraphError, match="x is no node of the module"):
        liveness.last_use(next(iter(other.graph.nodes)))


class Checked(nn.Module):
    """Refuses some data: which way it goes is known, as the others end."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.all(x == x):
            raise ValueError("not a number")
        if (x < 0).any():
            if x.sum() > 3:
                raise ValueError("below zero")
            else:
                raise KeyError("far below zero")
        return self.layer(x).relu()


@pytest.mark.parametrize("backward", [False, True])
def test_programs_that_raise_for_some_data_go_the_other_way(backward: bool) -> None:
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.rand(64, 4)
    report, expected = memory(trace(Checked(), (x,)), (x,), backward=backward), memory(plain, (x,), backward=backward)
    assert report.peak == expected.peak == peak_memory(trace(Checked(), (x,)), (x,), backward=backward)
    assert [node.name for node in report.nodes][-3:] == ["layer", "relu", "output"]
