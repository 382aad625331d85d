"""Modules become functions and functions become modules exactly where both compute the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from graphwright import GraphModule, symbolic_trace, trace
from graphwright.analysis import verify
from graphwright.ir import Graph
from graphwright.passes import UseFunctions, UseModules
from graphwright.passes.forms import module_to_functional
from graphwright.passes.support import submodules

LINE, IMAGE, VOLUME = torch.randn(2, 4, 8), torch.randn(2, 4, 8, 8), torch.randn(1, 4, 4, 4, 4)
ROWS, TABLE, NUMBERS = torch.randn(3, 4), torch.rand(3, 4), torch.tensor([2, 0, 3])


def calling(module: nn.Module, count: int = 1) -> GraphModule:
    """A captured module that calls another one, with that one's own inputs."""
    root = nn.Module()
    root.inner = module
    graph = Graph(root)
    graph.output(graph.call_module("inner", tuple(graph.placeholder(f"x{i}") for i in range(count))))
    return GraphModule(root, graph)


def called(gm: nn.Module) -> list[Any]:
    """The functions, method names and classes of modules that a graph calls, in order."""
    return [
        type(gm.get_submodule(node.target)) if node.op == "call_module" else node.target
        for node in gm.graph.nodes
        if node.op.startswith("call_")
    ]


def label(value: nn.Module | tuple[Tensor, ...]) -> str:
    """The name of a case; numbers drawn at random are no part of it, or the processes that share the tests differ."""
    return repr(value) if isinstance(value, nn.Module) else " ".join([str(tuple(tensor.shape)) for tensor in value])


BOTH_WAYS: list[tuple[nn.Module, tuple[Tensor, ...]]] = [
    (nn.ReLU(), (ROWS,)), (nn.ReLU(inplace=True), (ROWS,)), (nn.ReLU6(), (ROWS,)), (nn.LeakyReLU(0.3), (ROWS,)),
    (nn.ELU(0.5, inplace=True), (ROWS,)), (nn.SELU(), (ROWS,)), (nn.CELU(0.5), (ROWS,)), (nn.GELU("tanh"), (ROWS,)),
    (nn.SiLU(inplace=True), (ROWS,)), (nn.Mish(), (ROWS,)), (nn.Hardtanh(-0.5, 0.5), (ROWS,)),
    (nn.Hardswish(), (ROWS,)), (nn.Hardsigmoid(), (ROWS,)), (nn.Hardshrink(0.1), (ROWS,)),
    (nn.Softshrink(0.1), (ROWS,)), (nn.Tanhshrink(), (ROWS,)), (nn.Threshold(0.1, 2.0), (ROWS,)),
    (nn.Softplus(2.0, 3.0), (ROWS,)), (nn.Softsign(), (ROWS,)), (nn.LogSigmoid(), (ROWS,)), (nn.GLU(0), (TABLE[:2],)),
    (nn.Sigmoid(), (ROWS,)), (nn.Tanh(), (ROWS,)), (nn.Softmax(0), (ROWS,)), (nn.LogSoftmax(-1), (ROWS,)),
    (nn.Softmin(1), (ROWS,)), (nn.Flatten(), (IMAGE,)), (nn.Flatten(0, 1), (IMAGE,)), (nn.PixelShuffle(2), (IMAGE,)),
    (nn.PixelUnshuffle(2), (IMAGE,)), (nn.ChannelShuffle(2), (IMAGE,)), (nn.Unfold(2, padding=1), (IMAGE,)),
    (nn.Fold((4, 4), 2), (torch.randn(1, 8, 9),)), (nn.LocalResponseNorm(2, k=2.0), (IMAGE,)),
    (nn.Upsample(scale_factor=2), (IMAGE,)), (nn.Upsample((5, 6), mode="bilinear", align_corners=True), (IMAGE,)),
    (nn.CosineSimilarity(0), (ROWS, TABLE)), (nn.Dropout(0.3), (ROWS,)), (nn.Dropout1d(0.3), (LINE,)),
    (nn.Dropout2d(0.3), (IMAGE,)), (nn.Dropout3d(0.3, inplace=True), (VOLUME,)), (nn.RReLU(0.2, 0.4), (ROWS,)),
    (nn.AlphaDropout(0.3), (ROWS,)), (nn.FeatureAlphaDropout(0.3), (IMAGE,)), (nn.MaxPool1d(2), (LINE,)),
    (nn.MaxPool2d(3, stride=2, padding=1), (IMAGE,)), (nn.MaxPool2d(2, return_indices=True), (IMAGE,)),
    (nn.MaxPool3d(2, ceil_mode=True), (VOLUME,)), (nn.AvgPool1d(2), (LINE,)),
    (nn.AvgPool2d(2, padding=1, count_include_pad=False), (IMAGE,)), (nn.AvgPool3d(2, divisor_override=3), (VOLUME,)),
    (nn.LPPool2d(3, 2), (IMAGE,)), (nn.AdaptiveAvgPool1d(2), (LINE,)), (nn.AdaptiveAvgPool2d((None, 3)), (IMAGE,)),
    (nn.AdaptiveMaxPool2d(2, return_indices=True), (IMAGE,)), (nn.ConstantPad1d((1, 2), 3.0), (LINE,)),
    (nn.ReflectionPad2d(1), (IMAGE,)), (nn.ReplicationPad3d(1), (VOLUME,)),
    (nn.MSELoss(reduction="sum"), (ROWS, TABLE)), (nn.L1Loss(), (ROWS, TABLE)),
    (nn.HuberLoss(delta=0.2), (ROWS, TABLE)), (nn.SmoothL1Loss(beta=0.2), (ROWS, TABLE)),
    (nn.KLDivLoss(reduction="batchmean", log_target=True), (ROWS, TABLE)),
    (nn.CrossEntropyLoss(label_smoothing=0.1), (ROWS, NUMBERS)), (nn.NLLLoss(ignore_index=3), (ROWS, NUMBERS)),
    (nn.BCELoss(), (TABLE, TABLE)), (nn.BCEWithLogitsLoss(), (ROWS, TABLE)),
    (nn.TripletMarginLoss(0.5, p=1.0), (ROWS, TABLE, TABLE + 1)), (nn.Linear(4, 3), (ROWS,)),
    (nn.Linear(4, 3, bias=False), (ROWS,)), (nn.Bilinear(4, 4, 2), (ROWS, TABLE)),
    (nn.Conv1d(4, 6, 3, padding="same"), (LINE,)), (nn.Conv2d(4, 6, 3, stride=2, groups=2, bias=False), (IMAGE,)),
    (nn.Conv3d(4, 2, 2, dilation=2), (VOLUME,)), (nn.ConvTranspose1d(4, 6, 3), (LINE,)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2), (IMAGE,)),
    (nn.ConvTranspose3d(4, 2, 2), (VOLUME,)), (nn.LayerNorm((8, 8), eps=0.1), (IMAGE,)),
    (nn.LayerNorm(4, bias=False), (ROWS,)), (nn.LayerNorm(4, elementwise_affine=False), (ROWS,)),
    (nn.RMSNorm(4), (ROWS,)), (nn.RMSNorm(4, eps=0.5, elementwise_affine=False), (ROWS,)),
    (nn.GroupNorm(2, 4, eps=0.1), (IMAGE,)), (nn.Embedding(5, 3, padding_idx=2), (NUMBERS,)),
    (nn.Embedding(5, 3, max_norm=0.5), (NUMBERS,)), (nn.PReLU(), (ROWS,)), (nn.PReLU(4, init=0.1), (ROWS,)),
]  # fmt: skip


def settled(module: nn.Module) -> nn.Module:
    """Parameters that are neither 0 nor 1."""
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.data.uniform_(0.2, 1.0, generator=generator)
    return module


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("module", "inputs"), BOTH_WAYS, ids=label)
def test_a_module_becomes_its_function_and_comes_back(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    original = calling(settled(copy.deepcopy(module)), len(inputs))
    gm = copy.deepcopy(original)
    keys = list(gm.state_dict())
    random_state = torch.get_rng_state()
    for passes, op in ((UseFunctions(), "call_function"), (UseModules(), "call_module")):
        assert passes.run(gm) == 1
        assert passes.run(gm) == 0
        gm.graph.lint()
        assert [node.op for node in gm.graph.nodes if node.op.startswith("call_")] == [op]
        gm_inputs = [tuple(x.clone().requires_grad_(x.is_floating_point() and not _writes(module)) for x in inputs)]
        report = verify(original, gm, gm_inputs, modes=("train", "eval"), grads=True)
        assert report.ok, str(report)
        assert list(gm.state_dict()) == keys
    assert called(gm) == [type(module)]
    assert torch.equal(torch.get_rng_state(), random_state)


def _writes(module: nn.Module) -> bool:
    return bool(getattr(module, "inplace", False) or getattr(module, "max_norm", None))


ONLY_TO_FUNCTIONS: list[tuple[nn.Module, tuple[Tensor, ...]]] = [
    (nn.Softmax2d(), (IMAGE,)), (nn.PairwiseDistance(p=1.0), (ROWS, TABLE)),
    (nn.AlphaDropout(0.3, inplace=True), (ROWS,)), (nn.FeatureAlphaDropout(0.3, inplace=True), (IMAGE,)),
    (nn.CrossEntropyLoss(weight=torch.rand(4)), (ROWS, NUMBERS)),
    (nn.BatchNorm2d(4, track_running_stats=False), (IMAGE,)), (nn.MultiMarginLoss(p=2, margin=0.3), (ROWS, NUMBERS)),
    (nn.PoissonNLLLoss(log_input=False, full=True), (TABLE, TABLE)),
    (nn.GaussianNLLLoss(full=True, eps=0.1), (ROWS, TABLE, TABLE)), (nn.CircularPad2d(1), (IMAGE,)),
    (nn.SoftMarginLoss(), (ROWS, TABLE)), (nn.CosineEmbeddingLoss(0.3), (ROWS, TABLE, torch.tensor([1.0, -1.0, 1.0]))),
    (nn.MarginRankingLoss(0.3), (ROWS, TABLE, torch.ones(3, 4))),
    (nn.BCEWithLogitsLoss(pos_weight=TABLE[0]), (ROWS, TABLE)),
    (nn.MultiLabelSoftMarginLoss(weight=TABLE[0]), (ROWS, TABLE)),
    (nn.HingeEmbeddingLoss(0.3), (ROWS, torch.ones(3, 4))), (nn.UpsamplingBilinear2d(scale_factor=2), (IMAGE,)),
    (nn.ZeroPad2d(1), (IMAGE,)),
]  # fmt: skip


@pytest.mark.parametrize(("module", "inputs"), ONLY_TO_FUNCTIONS, ids=label)
def test_a_module_becomes_its_function(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    original = calling(module, len(inputs))
    gm = copy.deepcopy(original)
    assert UseFunctions().run(gm) == 1
    report = verify(original, gm, [inputs], modes=("train", "eval"))
    assert report.ok, str(report)


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda module, args, output: output + 1)
    return module


class Louder(nn.ReLU):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 2


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(nn.BatchNorm2d(4), id="counts its batches"),
        pytest.param(nn.BatchNorm2d(4).eval(), id="would count its batches in training"),
        pytest.param(nn.InstanceNorm2d(4), id="asks for the rank"),
        pytest.param(hooked(nn.ReLU()), id="a hook"),
        pytest.param(Louder(), id="a subclass"),
        pytest.param(parametrizations.weight_norm(nn.Conv2d(4, 4, 1)), id="a parametrization"),
        pytest.param(nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), id="pads before it convolves"),
        pytest.param(nn.Identity(), id="no function"),
        pytest.param(nn.Sequential(nn.ReLU()), id="a container"),
        pytest.param(nn.LSTM(8, 8), id="recurrent"),
    ],
)
def test_modules_that_stay(module: nn.Module) -> None:
    gm = calling(module)
    assert UseFunctions().run(gm) == 0
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "call_module", "output"]


def test_a_call_that_passes_more_than_the_inputs_stays() -> None:
    class Up(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)

        def forward(self, x: Tensor) -> Tensor:
            return self.up(x, output_size=[16, 17])

    assert UseFunctions().run(symbolic_trace(Up())) == 0


class Net(nn.Module):
    """A program of functions, with parameters of its own and of its modules."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.conv, self.words = nn.Linear(4, 4), nn.Conv2d(3, 4, 3), nn.Embedding(5, 4)
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("fixed", torch.randn(4, 4))

    def forward(self, x: Tensor, image: Tensor, index: Tensor) -> Any:
        image = F.conv2d(image, self.conv.weight, self.conv.bias, padding=1)
        x = F.dropout(F.linear(x, self.layer.weight, self.layer.bias), 0.3, self.training)
        x = x + F.embedding(index, self.words.weight)
        return F.linear(x, self.weight).softmax(-1), F.linear(x, self.fixed), F.max_pool2d(image.relu(), 2)


NET_INPUTS = (torch.randn(2, 4, requires_grad=True), torch.randn(1, 3, 8, 8), torch.tensor([1, 2]))


@pytest.mark.parametrize("capture", [symbolic_trace, lambda model: trace(model, NET_INPUTS)], ids=["symbolic", "trace"])
def test_functions_with_parameters_become_modules_that_share_them(capture: Callable[[nn.Module], nn.Module]) -> None:
    model = Net()
    before = {name: id(value) for name, value in model.named_parameters()}, list(model._modules)
    gm = capture(model)
    assert UseModules().run(gm) == 8
    assert UseModules().run(gm) == 0
    gm.graph.lint()
    assert [kind for kind in called(gm) if isinstance(kind, type)] == [
        nn.Conv2d, nn.Linear, nn.Dropout, nn.Embedding, nn.Linear, nn.Softmax, nn.ReLU, nn.MaxPool2d
    ]  # fmt: skip
    assert F.linear in called(gm)  # of a buffer
    assert gm.get_submodule("linear").weight is gm.weight
    assert len(list(gm.parameters())) == len(list(model.parameters()))
    report = verify(model, gm, [NET_INPUTS], modes=("train", "eval"), grads=True)
    assert report.ok, str(report)
    assert ({name: id(value) for name, value in model.named_parameters()}, list(model._modules)) == before
    assert UseFunctions().run(gm) == 8
    report = verify(model, gm, [NET_INPUTS], modes=("train", "eval"), grads=True)
    assert report.ok, str(report)


def test_the_owner_is_called_where_it_is_exactly_the_module() -> None:
    gm = trace(Net(), NET_INPUTS)
    UseModules().run(gm)
    targets = [node.target for node in gm.graph.nodes if node.op == "call_module"]
    assert "layer" in targets and "words" in targets
    assert "conv" not in targets  # it pads otherwise
    assert gm.get_submodule("conv.conv2d").weight is gm.conv.weight


def test_a_container_of_parameters_becomes_the_module_under_the_same_names() -> None:
    model = Net()
    gm = symbolic_trace(model)
    keys = set(gm.state_dict())
    UseModules().run(gm)
    assert type(gm.layer) is nn.Linear and type(gm.conv) is nn.Conv2d
    assert set(gm.state_dict()) - keys == {"linear.weight"}
    assert gm.layer.weight is model.layer.weight


class Part(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, self.training)


@pytest.mark.parametrize("capture", [symbolic_trace, lambda model: trace(model, (ROWS,))], ids=["symbolic", "trace"])
def test_dropout_follows_the_flag_of_the_module_it_was_in(capture: Any) -> None:
    gm = capture(nn.Sequential(Part(), Part()))
    assert UseModules().run(gm) == 2
    gm.train()
    gm.get_submodule("0").eval()
    found = {node.target: gm.get_submodule(node.target).training for node in gm.graph.nodes if node.op == "call_module"}
    assert found == {"0.dropout": False, "1.dropout": True}
    assert UseFunctions().run(gm) == 2
    gm.eval()
    assert torch.equal(gm(ROWS), ROWS)
    gm.train()
    assert not torch.equal(gm(ROWS), ROWS)


STAYS = [
    pytest.param(lambda x: F.dropout(x, 0.5), id="always on"),
    pytest.param(lambda x: F.dropout(x, 0.5, training=False), id="always off"),
    pytest.param(lambda x: F.softmax(x, -1, dtype=torch.float64), id="in another dtype"),
    pytest.param(lambda x: F.leaky_relu(x, x.shape[0] * 0.1), id="a setting that is computed"),
    pytest.param(lambda x: F.linear(x, x), id="a weight that is computed"),
    pytest.param(lambda x: F.layer_norm(x, (x.shape[1],)), id="a shape that is computed"),
    pytest.param(lambda x: F.interpolate(x[None], size=x.shape[1]), id="a size that is computed"),
    pytest.param(lambda x: F.group_norm(x, 2), id="channels that are not known"),
    pytest.param(lambda x: x.clamp(min=0), id="no function of a module"),
    pytest.param(lambda x: F.instance_norm(x[None]), id="a norm by rank"),
]


@pytest.mark.parametrize("program", STAYS)
def test_functions_that_stay(program: Any) -> None:
    gm = symbolic_trace(program)
    before = gm.code
    assert UseModules().run(gm) == 0
    assert gm.code == before
    assert not list(gm.children())


def test_parameters_that_the_program_replaces_stay_values() -> None:
    class Moving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            weight = self.layer.weight
            self.layer.weight = nn.Parameter(weight.detach() * 2)
            return F.linear(x, weight, self.layer.bias)

    gm = trace(Moving(), (ROWS,))
    assert UseModules().run(gm) == 0


def test_bodies_of_branches_are_changed_too() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return torch.relu(self.one(x))
            return F.linear(x, self.other.weight, self.other.bias)

    model = Branching()
    gm = trace(model, (ROWS,))
    inputs = [(ROWS,), (ROWS - 9,), (ROWS + 9,)]
    for passes, changes in ((UseModules(), 2), (UseFunctions(), 3), (UseModules(), 3)):
        assert passes.run(gm) == changes
        report = verify(model, gm, inputs, modes=("train", "eval"), grads=True)
        assert report.ok, str(report)


def test_only_the_classes_asked_for() -> None:
    gm = symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout()))
    assert UseFunctions(kinds=(nn.ReLU,)).run(gm) == 1
    assert UseFunctions().run(gm) == 2
    assert UseModules(kinds=(nn.Linear, nn.Dropout)).run(gm) == 2
    assert called(gm) == [nn.Linear, F.relu, nn.Dropout]


def test_a_flag_that_is_written_down_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: the training flag as it stands now."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    gm = symbolic_trace(model)
    monkeypatch.setattr(module_to_functional, "has_live_flag", lambda module: False)
    assert UseFunctions().run(gm) == 2
    assert not verify(model, gm, [ROWS], modes=("train", "eval"))


def test_settings_that_are_left_out_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: what the module that was made does is not compared with the call."""
    monkeypatch.setattr("graphwright.passes.forms.functional_to_module._is_same", lambda *_: True)
    gm = symbolic_trace(in_double := lambda x: F.softmax(x, -1, dtype=torch.float64))
    assert UseModules().run(gm) == 1
    assert not verify(in_double, gm, [ROWS])


def test_names_of_many_modules_are_not_all_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(module: nn.Module, path: str, has: Any = submodules.has_attribute) -> bool:
        asked.append(path)
        return bool(has(module, path))

    monkeypatch.setattr(submodules, "has_attribute", counted)

    def many(x: Tensor) -> Tensor:
        for _ in range(50):
            x = torch.relu(x)
        return x

    assert UseModules().run(symbolic_trace(many)) == 50
    assert len(asked) <= 3 * 50
