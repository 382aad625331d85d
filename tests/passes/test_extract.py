"""Intermediate values as results: named as users name them, equal to what hooks see, and nothing needless kept."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from tests.passes.zoo_models import zoo_model
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn

import graphwright
from graphwright import GraphModule, UnknownNameError, extract
from graphwright.errors import PassError
from graphwright.passes import create_feature_extractor, get_graph_node_names


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm(self.conv(x)))
        out = out + x
        return self.relu(out)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1, self.layer2, self.layer3 = (nn.Sequential(Block(), Block()) for _ in range(3))
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.head(self.drop(x.mean((2, 3))))


X = torch.randn(2, 4, 8, 8)


def hooked(model: nn.Module, paths: list[str], *args: Any, **kwargs: Any) -> dict[str, list[Any]]:
    """What modules give, each time that they are called, as it is then."""
    seen: dict[str, list[Any]] = {path: [] for path in paths}
    handles = [
        model.get_submodule(path).register_forward_hook(lambda m, a, out, path=path: seen[path].append(copied(out)))
        for path in paths
    ]
    try:
        model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return tuple(map(copied, value)) if isinstance(value, tuple | list) else value


def assert_same(got: Any, want: Any, what: str = "") -> None:
    if isinstance(want, Tensor):
        torch.testing.assert_close(got, want, msg=lambda text: f"{what}: {text}")
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            assert_same(got[key], want[key], what)
    elif isinstance(want, tuple | list):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_same(one, other, what)
    else:
        assert got == want or type(got) is type(want)


def test_values_that_are_no_module_outputs() -> None:
    model = Net()
    features = extract(model, {"layer2": "c2", "layer3.0.add": "sum", "layer3.0.relu": "inner"}, X)
    for mode in (True, False):
        model.train(mode), features.train(mode)
        seen = hooked(model, ["layer2", "layer3.0.relu"], X)
        got = features(X)
        assert list(got) == ["c2", "sum", "inner"]
        assert torch.equal(got["c2"], seen["layer2"][0])
        assert torch.equal(got["inner"], seen["layer3.0.relu"][0])  # the first of two calls
        assert torch.equal(got["sum"].relu(), seen["layer3.0.relu"][1])
    assert "layer3.1" not in features.code
    assert [name for name, _ in features.named_children()] == ["layer1", "layer2", "layer3"]
    assert not any(name.startswith(("layer3.1", "head")) for name in features.state_dict())
    missing = features.load_state_dict(model.state_dict(), strict=False)
    assert not missing.missing_keys


def test_a_value_is_as_it_was_whatever_is_written_to_it_later() -> None:
    model = Net().eval()
    features = extract(model, ["layer1.0.norm", "layer1.0.conv", "layer2"], X)
    seen = hooked(model, ["layer1.0.norm", "layer1.0.conv", "layer2"], X)
    for name, value in features(X).items():
        assert torch.equal(value, seen[name][0]), name
    assert features.code.count(".clone()") == 1  # batch norm's, into which ReLU writes
    only = extract(model, ["layer1.0.norm"], X)
    assert [node.target for node in only.graph.nodes][-3:-1] == ["layer1.0.conv", "layer1.0.norm"]
    assert torch.equal(only(X)["layer1.0.norm"], seen["layer1.0.norm"][0])


PATTERNS = [
    (["layer*"], ["layer1", "layer2", "layer3"]),
    ({"layer*": "c"}, ["c_0", "c_1", "c_2"]),
    ({re.compile(r"layer(\d)\.1\.relu_1"): r"c\1"}, ["c1", "c2", "c3"]),
    ([re.compile("layer[12]"), "layer3.?"], ["layer1", "layer2", "layer3.0", "layer3.1"]),
    ({"mean": "pooled"}, ["pooled"]),
    ("layer?.1.add", ["layer1.1.add", "layer2.1.add", "layer3.1.add"]),
]


@pytest.mark.parametrize(("names", "outputs"), PATTERNS)
def test_patterns(names: Any, outputs: list[str]) -> None:
    model = Net().eval()
    features = extract(model, names, X)
    assert list(features(X)) == outputs
    assert list(create_feature_extractor(model, names)(X)) == outputs


def test_gradients() -> None:
    model = Net()
    features = extract(model, {"layer2.0.add": "a", "layer2": "b"}, X)
    results = []
    for run in (lambda: hooked(model, ["layer2"], X)["layer2"][0], lambda: features(X)["b"]):
        model.zero_grad()
        x = run()
        x.square().sum().backward()
        results.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert results[0].keys() == results[1].keys() and results[0]
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name])


class Modes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.aux, self.main = Block(), Block(), Block()

    def forward(self, x: Tensor) -> Any:
        x = self.body(x)
        if self.training:
            return self.main(x), self.aux(x)
        return self.main(x) * 2


def test_one_graph_for_both_modes() -> None:
    model = Modes()
    features = extract(model, ["main", "aux", "body"], X)
    for mode in (True, False):
        model.train(mode), features.train(mode)
        got = features(X)
        seen = hooked(model, ["main", "aux", "body"], X)
        assert torch.equal(got["main"], seen["main"][0]) and torch.equal(got["body"], seen["body"][0])
        assert torch.equal(got["aux"], seen["aux"][0]) if mode else got["aux"] is None


def test_what_differs_by_mode() -> None:
    model = Modes()
    with pytest.warns(UserWarning, match="eval mode are a subsequence of those obtained in train mode|different"):
        features = create_feature_extractor(model, train_return_nodes={"aux": "a"}, eval_return_nodes=["main.add"])
    assert features.training and list(features(X)) == ["a"]
    assert list(features.eval()(X)) == ["main.add"]
    assert list(copy.deepcopy(features).train()(X)) == ["a"]


class Headed(nn.Module):
    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.inner = Net(), Block()
        self.head = nn.Sequential(head)

    def forward(self, x: Tensor) -> Any:
        self.backbone(self.inner(x))
        return self.head(x)


class Odd(nn.Module):
    """Runs in eager, and is not opened by any capture: it wants plain tensors with memory."""

    def forward(self, x: Tensor) -> Any:
        if type(x) is not Tensor:
            raise TypeError("plain tensors only")
        return {x.data_ptr(): 1}[x.data_ptr()]


@pytest.mark.slow
def test_a_head_that_cannot_be_captured_is_left_alone() -> None:
    model = Headed(Odd()).eval()
    model(X)
    kept = [node.target for node in graphwright.trace(model, (X,)).graph.nodes if node.op == "call_module"]
    assert "head.0" in kept
    features = extract(model, {"backbone.layer1.0.add": "early", "inner": "inner"}, X)
    seen = hooked(model, ["inner", "backbone.layer1.0.relu"], X)
    got = features(X)
    assert torch.equal(got["inner"], seen["inner"][0])
    assert torch.equal(got["early"].relu(), seen["backbone.layer1.0.relu"][1])
    assert {name for name, _ in features.named_children()} == {"backbone", "inner"}


def test_a_captured_module_and_an_edited_one() -> None:
    model = Net().eval()
    gm = graphwright.trace(model, (X,))
    before = str(gm.graph)
    features = extract(gm, {"layer1": "a", "mean": "b"})
    assert str(gm.graph) == before
    assert torch.equal(features(X)["b"], model.layer3(model.layer2(model.layer1(X))).mean((2, 3)))
    assert torch.equal(features(X)["a"], model.layer1(X))


def test_containers_of_values() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Any:
            return {"a": self.linear(x), "b": (x, 3)}

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.two = Two()

        def forward(self, x: Tensor) -> Any:
            return self.two(x * 2)["a"] + 1

    model = Outer()
    x = torch.randn(3, 4)
    got = extract(model, ["two"], x)(x)["two"]
    assert_same(got, hooked(model, ["two"], x)["two"][0])


def test_needless_work_before_the_value_goes_too() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout()

        def forward(self, x: Tensor) -> Tensor:
            other = self.drop(self.b(x))
            return torch.tanh(self.a(x)) + other

    features = extract(Wide(), ["tanh"], torch.ones(3, 4))
    assert [name for name, _ in features.named_children()] == ["a"]


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, n: int) -> Tensor:
        for _ in range(n):
            x = self.linear(x)
        return x.relu()


def test_what_a_branch_gives_and_is_written_to_later() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if x.sum() > 0 else x * 3

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Tensor) -> Tensor:
            y = self.inner(x)
            y += 1
            return y.neg()

    model = Outer()
    features = extract(model, ["inner", "neg"], torch.ones(2))
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(features(x)["inner"], model.inner(x))
        assert torch.equal(features(x)["neg"], model(x))


def test_refusals_change_nothing() -> None:
    model = Net()
    with pytest.raises(UnknownNameError, match="no value is called 'layer5'") as caught:
        extract(model, ["layer5"], X)
    assert "layer1" in str(caught.value)
    with pytest.raises(UnknownNameError, match="no value is asked for"):
        extract(model, [], X)
    with pytest.raises(UnknownNameError, match="would both be called 'c'"):
        extract(model, {"layer1": "c", "layer2": "c"}, X)
    with pytest.raises(UnknownNameError, match="3 is no name"):
        extract(model, [3], X)
    looped = graphwright.trace(Loop(), (torch.ones(1, 4), 3))
    before = str(looped.graph)
    with pytest.raises(PassError, match="inside of a loop"):
        extract(looped, ["linear"])
    assert str(looped.graph) == before
    assert list(extract(looped, ["relu"])(torch.ones(1, 4), 2)) == ["relu"]
    with pytest.raises(PassError, match="not clear what to return"):
        create_feature_extractor(model)
    assert not any(module._forward_hooks for module in model.modules())


def test_the_model_is_not_changed_and_the_result_has_no_hooks() -> None:
    model = Net()
    before = repr(model), list(model.state_dict())
    features = extract(model, ["layer1"], X)
    assert (repr(model), list(model.state_dict())) == before
    assert not any(module._forward_hooks for root in (model, features) for module in root.modules())
    assert features.layer1 is not model.layer1
    features.eval()
    assert model.layer1[0].norm.training


def test_it_is_saved_and_copied(tmp_path: Any) -> None:
    model = Net().eval()
    features = extract(model, {"layer1": "c1", "layer2.0.add": "c2"}, X)
    want = features(X)
    assert_same(copy.deepcopy(features)(X), want)
    graphwright.save(features, tmp_path / "features.gw")
    assert_same(graphwright.load(tmp_path / "features.gw")(X), want)


# ---- names and arguments of torchvision

DOCUMENTED = [
    ("resnet50", ["layer1", "layer2", "layer3", "layer4"]),
    ("resnet50", ["layer4.2.relu_2", "flatten", "layer4.1.relu_2", "fc"]),
    ("resnet18", {"layer1": "feat1", "layer3": "feat2"}),
    ("vgg11", ["features.10", "classifier.3"]),
    ("densenet121", ["features.denseblock2", "features.transition1.pool"]),
    ("mobilenet_v3_small", ["features.4", "features.4.block.2", "features.5.add"]),
    ("vit_b_32", ["encoder.layers.encoder_layer_3.mlp", "encoder.layers.encoder_layer_4.add_1", "getitem_5"]),
    ("swin_t", ["features.1", "features.3.0.add", "features.5.1.stochastic_depth_1"]),
]


@pytest.fixture(scope="module")
def vision() -> Any:
    declare_torchvision()
    return pytest.importorskip("torchvision.models")


@pytest.mark.parametrize(("name", "nodes"), DOCUMENTED)
@pytest.mark.slow
def test_names_of_torchvision(vision: Any, name: str, nodes: Any) -> None:
    from torchvision.models import feature_extraction

    model = vision.get_model(name, weights=None).eval()
    for ours, theirs in zip(
        get_graph_node_names(model, suppress_diff_warning=True),
        feature_extraction.get_graph_node_names(model, suppress_diff_warning=True),
        strict=True,
    ):
        assert set(theirs) <= set(ours)
    theirs = feature_extraction.create_feature_extractor(model, nodes, suppress_diff_warning=True)
    x = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        want = theirs(x)
        assert_same(create_feature_extractor(model, nodes, suppress_diff_warning=True)(x), in_order(want, nodes))


def test_names_of_resnet(vision: Any) -> None:
    model = vision.resnet18(weights=None)
    train, evaluation = get_graph_node_names(model)
    assert train == evaluation and model.training
    assert train[:5] == ["x", "conv1", "bn1", "relu", "maxpool"]
    assert train[-6:] == ["layer4.1.bn2", "layer4.1.add", "layer4.1.relu_1", "avgpool", "flatten", "fc"]
    x = torch.rand(2, 3, 64, 64)
    got = create_feature_extractor(model.eval(), return_nodes={"layer3": "c4", "layer4.1.add": "c5"})(x)
    seen = hooked(model, ["layer3", "layer4"], x)
    assert torch.equal(got["c4"], seen["layer3"][0]) and torch.equal(got["c5"].relu(), seen["layer4"][0])


def in_order(values: dict[str, Tensor], nodes: Any) -> dict[str, Tensor]:
    return {name: values[name] for name in (nodes.values() if isinstance(nodes, dict) else nodes)}


def test_leaves_by_the_tracer_s_arguments() -> None:
    def stubborn(x: Tensor) -> int:
        return len({x.item(): 1})

    class Stubborn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + len({x.sum().item(): 1})

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.stubborn = nn.Linear(4, 4), Stubborn()

        def forward(self, x: Tensor, flag: bool) -> Tensor:
            x = self.linear(x) * stubborn(x.sum())
            return self.stubborn(x) if flag else x

    model, x = Model(), torch.ones(2, 4)
    features = create_feature_extractor(
        model,
        ["stubborn"],
        tracer_kwargs={"leaf_modules": [Stubborn], "autowrap_functions": (stubborn,)},
        concrete_args={"flag": True},
    )
    assert isinstance(features, GraphModule)
    torch.testing.assert_close(features(x, True)["stubborn"], model(x, True))


# ---- the zoo

TORCHVISION = [
    "resnet18", "resnext50_32x4d", "vgg11", "densenet121", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0",
    "shufflenet_v2_x0_5", "squeezenet1_1", "convnext_tiny", "swin_t", "vit_b_32", "regnet_y_400mf", "googlenet",
]  # fmt: skip
TIMM = [
    "resnet10t", "efficientnet_lite0", "ghostnet_100", "mobilevit_xxs", "levit_128s", "convnext_atto",
    "vit_tiny_patch16_224", "mixer_s32_224", "repvgg_a0", "poolformer_s12",
]  # fmt: skip
TRANSFORMERS = ["bert", "gpt2", "llama", "distilbert", "electra", "albert", "vit", "opt"]
ZOO = [*[("torchvision", n) for n in TORCHVISION], *[("timm", n) for n in TIMM]]
ZOO += [("transformers", n) for n in TRANSFORMERS]
QUICK = {"resnet18", "mobilenet_v3_small", "bert"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("library", "name"), [pytest.param(*each, marks=() if each[1] in QUICK else pytest.mark.slow) for each in ZOO]
)
def test_what_hooks_see(library: str, name: str) -> None:
    declare_torchvision()
    torch.manual_seed(0)
    model, x = zoo_model(library, name)
    model.eval()
    every = [path for path, module in model.named_modules() if path and not isinstance(module, nn.ModuleList)]
    with torch.no_grad():
        calls = hooked(model, every, x)
    known = [path for path in every if len(calls[path]) == 1 and calls[path][0] is not None]
    order = list(dict.fromkeys(known))
    picked = order[len(order) // 5 :: max(1, len(order) // 6)][:6]
    features = extract(model, picked, x)
    for mode in (False, True):
        model.train(mode), features.train(mode)
        torch.manual_seed(1)
        want = hooked(model, picked, x)
        torch.manual_seed(1)
        got = features(x)
        for path in picked:
            assert_same(got[path], want[path][0], f"{path}, training {mode}")
    tensors = [value for value in got.values() if isinstance(value, Tensor) and value.requires_grad]
    if tensors and name in QUICK:
        grads = []
        for values in (tensors, [want[path][0] for path in picked if isinstance(want[path][0], Tensor)]):
            model.zero_grad()
            sum(value.square().mean() for value in values).backward()
            grads.append({key: p.grad for key, p in model.named_parameters() if p.grad is not None})
        assert_same(grads[0], grads[1])


class Cache:
    def __init__(self, seen: torch.Tensor) -> None:
        self.seen = seen


class Caching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.linear(x)
        return x.relu(), Cache(x)


def test_modules_around_may_give_what_no_graph_holds() -> None:
    model = nn.Sequential(Caching()).eval()
    x = torch.ones(2, 4)
    assert torch.equal(extract(model, ["0.linear"], (x,))(x)["0.linear"], model[0].linear(x))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class AskingKinds(nn.Module):
    """Asks what class a value is of, and so of what classes the layers are that give it."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled, self.layer = Scaled(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(self.scaled(x))
        return y * 2 if type(y) is Tensor else y


def test_what_is_left_of_a_module_has_no_class_that_counts() -> None:
    x = torch.randn(3, 4)
    features = extract(graphwright.trace(AskingKinds(), (x,)), ["scaled", "layer"])
    assert torch.equal(features(x)["scaled"], x)


def test_a_captured_module_has_its_own_values_extracted() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
    gm = graphwright.trace(model, (torch.ones(3, 4),))  # with a guard on its input
    code = gm.code
    extractor = create_feature_extractor(gm, train_return_nodes=["0"], eval_return_nodes={"2": "last"})
    assert (list(extractor.train()(torch.ones(1, 4))), list(extractor.eval()(torch.ones(1, 4)))) == (["0"], ["last"])
    assert gm.code == code


class Giving(nn.Module):
    """Gives what is not the last value that it computes, in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.one, self.two = way, nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        one = self.one(x)
        if self.way == "first":
            self.two(one).mean()
        elif self.way == "written":
            one[:, 0] = 0
        elif self.way == "pair":
            return one, self.two(x)
        elif self.way == "dict":
            return {"one": one, "two": self.two(x)}
        return one


class Given(nn.Module):
    """Calls such a module twice, the second time on one side of a branch."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.giving, self.head = Giving(way), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = given = self.summed(x).relu()
        if x.sum() >= 0:
            given = self.summed(x)
        return self.head(given)

    def summed(self, x: Tensor) -> Any:
        given = self.giving(x)
        if self.giving.way == "pair":
            return given[0] + given[1]
        return given["one"] + given["two"] if self.giving.way == "dict" else given


@pytest.mark.parametrize("capture", ["trace", "model", "symbolic_trace"])
@pytest.mark.parametrize("way", ["first", "written", "pair", "dict"])
def test_what_a_module_gives_need_not_be_its_last_value(way: str, capture: str) -> None:
    model, x = Given(way), torch.randn(3, 4)
    wanted: list[Any] = []
    handle = model.giving.register_forward_hook(lambda module, args, value: wanted.append(copy.deepcopy(value)))
    with torch.no_grad():
        model(x)
        handle.remove()
        source = model if capture == "model" else getattr(graphwright, capture)(model, *[(x,)] * (capture == "trace"))
        for name, value in zip(("giving", "giving_1"), wanted, strict=True):
            try:
                found = extract(source, {name: "value"}, *[x] * (capture == "model"))(x)["value"]
            except UnknownNameError:
                assert capture != "model" and way in ("dict", "pair")
                continue
            torch.testing.assert_close(found, value, rtol=0, atol=0)
