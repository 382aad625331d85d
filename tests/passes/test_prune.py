"""Pruned modules: smaller, saved as any module, and equal to the original whose channels are zero; else a reason."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.passes.zoo_models import zoo_model
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn

import graphwright
from graphwright import UnknownNameError, prune
from graphwright.analysis import ChannelGroup, channel_groups
from graphwright.errors import PassError


def masked(model: nn.Module, group: ChannelGroup, indices: list[int]) -> nn.Module:
    """The original with everything zero that belongs to some channels."""
    zeroed = copy.deepcopy(model)
    tensors = {**dict(zeroed.named_parameters(remove_duplicate=False)), **dict(zeroed.named_buffers())}
    with torch.no_grad():
        for member in group.members:
            for index in indices:
                for position in member.positions[index]:
                    tensors[member.name].select(member.dim, position).zero_()
    return zeroed


def first(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else next(iter(value.values()))


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def check(model: nn.Module, *args: Any, least: int = 1, every: int = 3, grads: bool = True) -> None:
    """Prune every group that can be pruned, and compare; then all of them together."""
    model.eval()
    gm = graphwright.trace(model, args)
    text, state = str(gm.graph), {name: value.clone() for name, value in gm.state_dict().items()}
    groups = channel_groups(gm, args)
    possible = [group for group in groups if group.reason is None and len(group) > 1]
    assert len(possible) >= least, str(groups)
    for group in possible:
        indices = list(range(0, len(group), every))[: len(group) - 1]
        pruned = prune(gm, group, indices)
        assert count(pruned) < count(model)
        got = first(pruned(*args))
        assert got.shape == first(model(*args)).shape
        if not group.notes:
            want = first(masked(model, group, indices)(*args))
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, msg=lambda m, g=group: f"{g}: {m}")
        if grads:
            got.square().sum().backward()
            assert all(p.grad is None or p.grad.shape == p.shape for p in pruned.parameters())
    together = prune(gm, {group: range(0, len(group), 4) for group in possible})
    assert count(together) < count(model) and first(together(*args)).isfinite().all()
    assert str(gm.graph) == text and all(torch.equal(gm.state_dict()[name], value) for name, value in state.items())
    again = channel_groups(together, args)
    assert [group.reason is None for group in again].count(True)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.conv1, self.norm1 = nn.Conv2d(8, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12)
        self.conv2, self.norm2 = nn.Conv2d(12, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x))))) + x)
        x = nn.functional.adaptive_avg_pool2d(x, 4)
        return self.head(x.view(x.size(0), -1))


class Baked(nn.Module):
    """With sizes of channels as numbers in the program."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.conv(x), 2)
        return self.head(x.view(-1, 32))


class Mobile(nn.Module):
    """Depthwise, with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.deep = nn.Conv2d(3, 12, 1), nn.Conv2d(12, 24, 3, padding=1, groups=12)
        self.squeeze, self.excite = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1)
        self.down, self.head = nn.Conv2d(24, 8, 1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.hardswish(self.deep(self.up(x)))
        scale = self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True))))
        return self.head(self.down(x * torch.sigmoid(scale)).mean((2, 3)))


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 3, padding=1, groups=4), nn.Conv2d(16, 6, 1)
        self.d = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.d(torch.relu(self.c(torch.relu(self.b(self.a(x))))))


class Shuffled(nn.Module):
    """Channels split in two, one half goes through a layer, joined and shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.a(x).chunk(2, 1)
        x = torch.cat((one, self.b(two)), 1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return self.c(x)


class Joined(nn.Module):
    """`cat` of different layers, `split` by sizes, slices."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(4, 10)
        self.c, self.d, self.e = nn.Linear(4, 4), nn.Linear(12, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat((self.a(x), self.b(x).relu()), -1)
        one, two = both.split([4, 12], -1)
        return self.c(one) + self.d(two) + self.e(both[:, 10:])


class Attention(nn.Module):
    """One linear for query, key and value; the scale is a number made of a size."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.qkv, self.proj = nn.Linear(6, 12), nn.Linear(12, 36), nn.Linear(12, 12)
        self.up, self.gate, self.down = nn.Linear(12, 20), nn.Linear(12, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        weights = torch.softmax((q * (c // 4) ** -0.5) @ k.transpose(-2, -1), -1)
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(b, t, c))
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Windows(nn.Module):
    """Heads go into the batch and come out again."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).view(x.size(0), x.size(1), 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(nn.functional.scaled_dot_product_attention(q, k, v, scale=0.5).transpose(1, 2).flatten(2))


class Summed(nn.Module):
    """Attention as sums over letters; positions get the dtype of queries, which are of another shape."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.positions = nn.Embedding(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (2, 4)) for f in (self.q, self.k, self.v))
        scores = torch.einsum("b i h d, b j h d -> b h i j", q, k)
        scores = scores + torch.einsum("...ihd,jd->...hij", q, self.positions.weight.to(q))
        out = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
        return self.o(torch.einsum("bihd,hd", out, out[0, 0])[..., None] + out.flatten(2))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.group, self.b = nn.Conv2d(3, 12, 1), nn.GroupNorm(3, 12), nn.Conv2d(12, 6, 1)
        self.layer, self.c = nn.LayerNorm(6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.b(self.group(self.a(x))).mean((2, 3))
        return self.c(nn.functional.layer_norm(self.layer(x), (6,)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(10, 8), nn.Linear(8, 8), nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        return self.head(x + torch.tanh(self.inner(x)) * self.scale)


class Modes(nn.Module):
    """A branch on the flag: both sides are mended."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm, self.aux = nn.Linear(4, 8), nn.Linear(8, 3), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.a(x))
        if self.training:
            x = x.view(-1, 2, 4).flip(1).reshape(-1, 8) * 2
            return self.aux(x[:, :8])
        return self.b(x)


IMAGE = torch.rand(2, 3, 8, 8)
MODELS = [
    (Residual, (IMAGE,), 2),
    (Baked, (IMAGE,), 1),
    (Mobile, (IMAGE,), 3),
    (Grouped, (IMAGE,), 3),
    (Shuffled, (IMAGE,), 1),
    (Joined, (torch.rand(3, 4),), 2),
    (Attention, (torch.rand(2, 5, 6),), 3),
    (Windows, (torch.rand(2, 5, 8),), 2),
    (Summed, (torch.rand(2, 5, 8),), 2),
    (Normed, (IMAGE,), 2),
    (Tied, (torch.arange(6),), 1),
]


@pytest.mark.parametrize(("kind", "args", "least"), MODELS, ids=lambda value: getattr(value, "__name__", None))
def test_small_models(kind: type[nn.Module], args: Any, least: int) -> None:
    torch.manual_seed(0)
    check(kind(), *args, least=least)


def test_layers_have_the_sizes_of_their_parameters() -> None:
    model = Mobile().eval()
    gm = graphwright.trace(model, (IMAGE,))
    groups = channel_groups(gm, IMAGE)
    group = groups["up"]
    assert {str(member) for member in group.members} >= {"up.weight[0]", "up.bias[0]", "deep.weight[0]"}
    assert groups["deep"] == group  # depthwise: two of its channels go with each
    deep = next(member for member in group.members if member.name == "deep.weight")
    assert deep.positions[1] == (2, 3)
    pruned = prune(gm, group, [0, 5])
    assert str(pruned.up) == "Conv2d(3, 10, kernel_size=(1, 1), stride=(1, 1))"
    assert (pruned.deep.in_channels, pruned.deep.out_channels, pruned.deep.groups) == (10, 20, 10)
    assert pruned.squeeze.in_channels == pruned.excite.out_channels == pruned.down.in_channels == 20
    assert type(pruned).__name__ == "Mobile" and isinstance(pruned, Mobile)


def test_it_is_saved_as_any_module(tmp_path: Any) -> None:
    gm = graphwright.trace(Residual().eval(), (IMAGE,))
    pruned = prune(gm, channel_groups(gm, IMAGE)["conv1"], [0, 1])
    want = pruned(IMAGE)
    graphwright.save(pruned, tmp_path / "pruned.gw")
    assert torch.equal(graphwright.load(tmp_path / "pruned.gw", allow=["tests"])(IMAGE), want)
    torch.save(pruned.state_dict(), tmp_path / "state.pt")
    other = prune(gm, channel_groups(gm, IMAGE)["conv1"], [4, 7])
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert torch.equal(other(IMAGE), want)
    assert torch.equal(copy.deepcopy(pruned)(IMAGE), want)
    pruned.to_folder(tmp_path / "folder")


def test_sizes_of_the_inputs_stay_open() -> None:
    model = Attention().eval()
    x = torch.rand(2, 5, 6)
    gm = graphwright.trace(model, (x,))
    group = max(channel_groups(gm, x).of("qkv"), key=lambda group: (group.reason is None, len(group.members)))
    pruned = prune(gm, group, [0])
    other = torch.rand(3, 7, 6)
    torch.testing.assert_close(pruned(other), masked(model, group, [0])(other))


def test_the_side_that_the_example_does_not_take() -> None:
    model = Modes().eval()
    x = torch.rand(3, 4)
    gm = graphwright.trace(model, (x,))
    groups = channel_groups(gm, x)
    assert [group.reason is None for group in groups.of("a")].count(True)
    for group in groups.of("a"):
        if group.reason is None and len(group) > 1:
            pruned = prune(gm, group, [1])
            for mode in (False, True):
                want = masked(model, group, [1]).train(mode)(x)
                torch.testing.assert_close(pruned.train(mode)(x), want, rtol=1e-4, atol=1e-4)


def of(model: nn.Module, *args: Any) -> Any:
    gm = graphwright.trace(model.eval(), args)
    return gm, channel_groups(gm, args)


def test_groups_are_shown_on_a_line_and_masks_are_refused() -> None:
    blocks = (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)) for _ in range(3))
    gm, x = graphwright.trace(nn.Sequential(*blocks), torch.ones(2, 4)), torch.ones(2, 4)
    group = channel_groups(gm, x)["0.0"]
    assert repr(group) == "<0.0.weight: 4 channels of 0.0.weight[0] 0.0.bias[0] 0.1.weight[0] 0.1.bias[0] and 1 more>"
    for mask in ([True, False, False, False], torch.tensor([True, False, False, False])):
        with pytest.raises(PassError, match=r"by a mask\n  fix: pass their numbers: mask.nonzero\(\).flatten\(\)"):
            prune(gm, group, mask)
    with pytest.raises(graphwright.UnknownNameError, match=r"did you mean '0\.0\.weight'"):
        channel_groups(gm, (x,))["0.0.wight"]


def test_reasons() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(6, 6) for _ in range(4))
            self.out = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.b(torch.fft.fft(self.a(x)).real)
            x = self.d(x * self.c(x)[:, 2:3])
            return self.out(x).sort().values

    gm, groups = of(Odd(), torch.rand(2, 6))
    before = str(gm.graph)
    for name, dim, reason in [
        ("a", 1, "that no parameter makes"),
        ("a", 0, "of which it is not known what it does to channels"),
        ("out", 0, "of which it is not known what it does to channels"),
    ]:
        group = groups[f"{name}.weight", dim]
        assert group.reason is not None and reason in group.reason, str(group)
        with pytest.raises(PassError, match="cannot be pruned"):
            prune(gm, group, [0])
    assert groups["d"].reason is None
    assert str(gm.graph) == before


def test_refusals() -> None:
    gm, groups = of(Residual(), IMAGE)
    group = groups["conv1"]
    with pytest.raises(UnknownNameError, match="dimension 0 of 'conv9' has no channels"):
        groups["conv9"]
    with pytest.raises(PassError, match="no channel 12"):
        prune(gm, group, [12])
    with pytest.raises(PassError, match="nothing would be left"):
        prune(gm, group, range(12))
    with pytest.raises(PassError, match="no channel is to be removed"):
        prune(gm, group, [])
    with pytest.raises(PassError, match="of another module"):
        prune(copy.deepcopy(gm), group, [0])
    next(node for node in gm.graph.nodes if node.target is torch.relu).target = torch.tanh
    with pytest.raises(PassError, match="the graph has changed"):
        prune(gm, group, [0])


class Counted(nn.Module):
    """A size that depends on the batch and on channels is written into the program."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x).view(x.size(0) * 8)
        return self.b(y.view(x.size(0), 8))


def test_a_view_that_cannot_be_mended() -> None:
    gm, groups = of(Counted(), torch.rand(3, 4))
    before = str(gm.graph)
    group = groups["a"]
    assert group.reason is None
    with pytest.raises(PassError, match="depends on the inputs and on 24 channels") as caught:
        prune(gm, group, [0])
    assert "self.a(x).view" in str(caught.value)
    assert str(gm.graph) == before


def test_what_longer_inputs_would_read() -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places, self.a, self.b = nn.Parameter(torch.rand(16, 6)), nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x) + self.places[: x.size(1)])

    gm, groups = of(Placed(), torch.rand(2, 5, 4))
    assert all("depends on the inputs" in (group.reason or "") for group in groups.of("places", 0))
    group = groups["places", 1]
    pruned = prune(gm, group, [2])
    x = torch.rand(1, 9, 4)
    torch.testing.assert_close(pruned(x), masked(gm, group, [2])(x))


def test_loops_keep_their_channels() -> None:
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor, n: int) -> Tensor:
            x = self.a(x)
            for _ in range(n):
                x = self.b(x)
            return self.c(x)

    _, groups = of(Repeated(), torch.rand(2, 4), 3)
    assert all(group.reason is not None for group in groups)
    assert "is a loop" in (groups["b"].reason or "")


def test_a_list_that_a_loop_fills_has_none() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(8, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            rows = []
            for row in self.b(torch.relu(self.a(x))):
                rows.append(self.c(row))
            return torch.stack(rows)

    gm, groups = of(Rows(), torch.rand(3, 4))
    x = torch.rand(5, 4)
    torch.testing.assert_close(prune(gm, groups["a"], [1])(x), masked(gm, groups["a"], [1])(x))


ZOO = [
    *[("torchvision", name) for name in ("resnet18", "mobilenet_v2", "mobilenet_v3_small", "convnext_tiny", "swin_t")],
    *[("torchvision", name) for name in ("shufflenet_v2_x0_5", "resnext50_32x4d", "densenet121")],
    *[("timm", name) for name in ("efficientnet_lite0", "ghostnet_100", "levit_128s", "vit_tiny_patch16_224")],
    *[("transformers", name) for name in ("bert", "gpt2", "opt", "distilbert")],
]


@pytest.mark.slow
@pytest.mark.parametrize(("library", "name"), ZOO)
def test_models_of_libraries(library: str, name: str) -> None:
    declare_torchvision()
    torch.manual_seed(0)
    model, x = zoo_model(library, name)
    model.eval()
    if library == "torchvision":
        x = x[:1, :, :64, :64]
    gm = graphwright.trace(model, (x,))
    groups = channel_groups(gm, x)
    possible = [group for group in groups if group.reason is None and len(group) > 1]
    assert len(possible) >= 8
    with torch.no_grad():
        for group in possible[:: max(1, len(possible) // 6)]:
            indices = list(range(0, len(group), 3))[: len(group) - 1]
            pruned = prune(gm, group, indices)
            assert count(pruned) < count(model)
            got = first(pruned(x))
            if not group.notes:
                torch.testing.assert_close(got, first(masked(model, group, indices)(x)), rtol=1e-3, atol=1e-4)
        half = prune(gm, {group: range(0, len(group), 2) for group in possible})
        assert first(half(x)).isfinite().all()
        assert count(half) < (0.75 if library != "transformers" else 0.95) * count(model)


@pytest.mark.slow
def test_llama() -> None:
    declare_torchvision()
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
        vocab_size=99, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 99, (2, 7))
    gm = graphwright.trace(model, (ids,))
    groups = channel_groups(gm, ids)
    heads = [g for g in groups.of("model.layers.0.self_attn.q_proj") if len(g) == 2]
    assert [len(m.positions[0]) for m in heads[0].members] == [16, 8, 8, 16]  # two heads of the query to one key
    inner = groups["model.layers.0.mlp.gate_proj"]
    with torch.no_grad():
        for group in (heads[0], inner, *[g for g in groups if g.reason is None and not g.notes]):
            pruned = prune(gm, group, [1])
            want = masked(model, group, [1])(ids).logits
            torch.testing.assert_close(pruned(ids).logits, want, rtol=1e-4, atol=1e-4)
        hidden = groups["model.embed_tokens.weight", 1]
        assert hidden.notes and hidden.reason is None
        pruned = prune(gm, hidden, [0, 7])
        assert pruned.model.embed_tokens.embedding_dim == 30 and pruned(ids).logits.shape == (2, 7, 99)


def test_the_comparison_would_notice() -> None:
    model = Residual().eval()
    gm, groups = of(model, IMAGE)
    group = groups["conv1"]
    got = prune(gm, group, [0, 1, 2])(IMAGE)
    assert not torch.allclose(got, masked(model, group, [3, 4, 5])(IMAGE), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(got, model(IMAGE), rtol=1e-4, atol=1e-4)


def test_what_is_no_group_is_said() -> None:
    gm = graphwright.trace(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(PassError, match="a float is no group of channels"):
        prune(gm, 0.5, [0])  # type: ignore[arg-type]
