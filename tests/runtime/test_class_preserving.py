"""What `trace` returns is an object of the model's class, whose changes never reach the model."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from graphwright import GraphModule, trace, verify
from graphwright.errors import GraphError
from graphwright.passes import fuse_conv_batch_norm
from graphwright.runtime import change_base


class Net(nn.Module):
    kind = "net"

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.rnn = nn.GRU(4, 5, batch_first=True)
        self.unused = nn.Linear(2, 2)
        self.tied = nn.Parameter(torch.ones(4))
        self.config = {"width": 4}
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def features(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        hidden = self.features(x).flatten(2).transpose(1, 2) * self.tied
        return self.rnn(hidden)[0].mean(1)

    def predict(self, x: Tensor) -> Tensor:
        return self(x).argmax(-1)


X = torch.randn(2, 3, 6, 6)


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def snapshot(model: nn.Module) -> dict[str, Any]:
    return {
        "state": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "ids": [id(tensor) for tensor in (*model.parameters(), *model.buffers())],
        "modules": [(name, id(module), type(module), module.training) for name, module in model.named_modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "config": copy.deepcopy(model.config),
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


def test_it_has_what_the_model_has() -> None:
    model = net()
    gm = trace(model, X)
    assert isinstance(gm, Net) and isinstance(gm, GraphModule) and type(gm).__name__ == "Net"
    assert gm.kind == "net" and gm.config == {"width": 4} and gm.config is not model.config
    assert [type(module) for module in gm.modules()][1:] == [type(module) for module in model.modules()][1:]
    assert [name for name, _ in gm.named_parameters()] == [name for name, _ in model.named_parameters()]
    torch.testing.assert_close(gm.predict(X), model.predict(X))
    torch.testing.assert_close(gm.features(X), model.features(X))
    gm.load_state_dict(model.state_dict(), strict=True)
    model.load_state_dict(gm.state_dict(), strict=True)


def load_assigned(gm: Net) -> None:
    gm.load_state_dict({name: torch.zeros_like(tensor) for name, tensor in gm.state_dict().items()}, assign=True)


def fuse(gm: Net) -> None:
    assert fuse_conv_batch_norm(gm) is not None


def pruned(gm: Net) -> None:
    prune.l1_unstructured(gm.conv, "weight", amount=0.5)
    prune.random_structured(gm.rnn, "weight_ih_l0", amount=1, dim=0)
    assert (gm.conv.weight == 0).sum() == gm.conv.weight.numel() // 2


def hooked(gm: Net) -> None:
    gm.register_forward_hook(lambda module, args, output: output * 2)
    gm.conv.register_forward_hook(lambda module, args, output: output * 2)


def cut(gm: Net) -> None:
    del gm.unused
    gm.norm = nn.Identity()
    gm.config["width"] = 9


CHANGES = [
    pytest.param(lambda gm: gm.train(), id="train"),
    pytest.param(lambda gm: gm.conv.train(), id="train one layer"),
    pytest.param(load_assigned, id="load_state_dict(assign=True)"),
    pytest.param(fuse, id="fuse"),
    pytest.param(pruned, id="prune"),
    pytest.param(hooked, id="hooks"),
    pytest.param(cut, id="other modules"),
    pytest.param(lambda gm: setattr(gm.graph.output_node(), "args", (3,)), id="edit"),
    pytest.param(lambda gm: setattr(gm, "tied", nn.Parameter(torch.zeros(4))), id="another parameter"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_changing_it_leaves_the_model_alone(change: Any) -> None:
    model = net()
    before, want = snapshot(model), model.predict(X)
    model.calls.zero_()
    gm = trace(model, X)
    change(gm)
    assert same(snapshot(model), before)
    assert torch.equal(model.predict(X), want)


def in_place(gm: Net) -> None:
    with torch.no_grad():
        for tensor in (*gm.parameters(), *gm.buffers()):
            tensor.zero_()


def made_permanent(gm: Net) -> None:
    pruned(gm)
    prune.remove(gm.conv, "weight")  # writes to the parameter itself


@pytest.mark.slow
def test_a_copy_has_tensors_of_its_own() -> None:
    for change in (in_place, made_permanent, lambda gm: gm.double(), lambda gm: gm(X)):
        model = net()
        gm = trace(model, X, copy=True)
        assert verify(model, gm, [X], modes=("train", "eval"), grads=True).ok
        before = snapshot(model)
        change(gm)
        assert same(snapshot(model), before)
    gm = trace(net(), X, copy=True)
    in_place(gm)
    assert gm(X).abs().sum() == 0  # the flat weights of the GRU are its parameters


def test_a_copy_keeps_ties() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    gm = trace(model, torch.ones(1, 4), copy=True)
    assert gm[1].weight is gm[0].weight and gm[0].weight is not model[0].weight


def test_it_learns_as_the_model_does() -> None:
    trained = []
    for make in (net, lambda: trace(net(), X, copy=True)):
        module = make().train()
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
        torch.manual_seed(1)
        for _ in range(3):
            optimizer.zero_grad()
            module(X).square().sum().backward()
            optimizer.step()
        trained.append(module.state_dict())
    torch.testing.assert_close(trained[0], trained[1])


def test_parameters_are_shared_without_a_copy() -> None:
    model = net()
    gm = trace(model, X)
    gm(X).sum().backward()
    assert model.conv.weight.grad is not None and gm.conv.weight is model.conv.weight


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # of a tensor that torch 2.15 looks at
def test_compilers_take_it() -> None:
    model = net()
    gm = trace(model, X, copy=True)
    compiled = torch.compile(gm, backend="eager")
    torch.testing.assert_close(compiled(X), model(X))
    exported = torch.export.export(trace(nn.Sequential(model.conv, model.norm), X), (X,)).module()
    torch.testing.assert_close(exported(X), model.norm(model.conv(X)))


class Told(GraphModule):
    def told(self) -> str:
        return f"{type(self).__name__} of {len(list(self.modules()))}"


def test_a_captured_module_of_one_more_class() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    x = torch.ones(1, 2)
    gm = trace(model, (x,))
    expected = gm(x)
    change_base(gm, GraphModule, Told)
    assert isinstance(gm, nn.Sequential) and gm.told() == "Sequential of 3"
    copied = copy.deepcopy(gm)
    assert torch.equal(gm(x), expected) and torch.equal(copied(x), expected) and copied.told() == gm.told()
    change_base(copied, Told, GraphModule)
    assert not hasattr(copied, "told") and hasattr(gm, "told") and torch.equal(copied(x), expected)
    with pytest.raises(GraphError, match="does not inherit from Told"):
        change_base(copied, Told, GraphModule)


class Named(type):
    made: ClassVar[list[str]] = []

    def __init__(cls, name: str, bases: Any, namespace: Any) -> None:
        super().__init__(name, bases, namespace)
        cls.made.append(name)


class Registered(nn.Module, metaclass=Named):
    registry: ClassVar[dict[str, type]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Registered.registry[cls.__name__] = cls

    @classmethod
    def others(cls) -> int:
        return len(cls.registry)


class Between(Registered):
    pass


class Last(Between):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.others()


def test_a_program_that_lists_its_classes_is_not_told_of_those_of_captures() -> None:
    x = torch.ones(2)
    gm = trace(Last(), (x,))
    assert torch.equal(gm(x), x * 2) and isinstance(copy.deepcopy(gm), Last)
    assert Registered.registry == {"Between": Between, "Last": Last} and "registry" not in vars(Between)
    assert Named.made == ["Registered", "Between", "Last"]
