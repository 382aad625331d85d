"""`lower`: which kernels are called, and that they compute what the reference program says."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import graphwright
from graphwright import GraphModule
from graphwright.engines import packed_for
from graphwright.errors import QuantizationError
from graphwright.quantization import (
    Grid,
    PerAxis,
    PerGroup,
    QuantizedConv1d,
    QuantizedConv2d,
    QuantizedConvTranspose2d,
    QuantizedLinear,
    Scheme,
    dequantize,
    dynamic_int8,
    grid_of_range,
    lower,
    quantize,
    static_int8,
    weight_only_int8,
)
from graphwright.quantization.dialects import example_of
from graphwright.quantization.lowering import computing
from graphwright.quantization.lowering.bytes_of_images import max_pool_of_integers
from graphwright.runtime import entry_points_of

needs_onednn = pytest.mark.skipif(not computing.has_onednn(), reason="torch without these kernels of oneDNN")


class Net(nn.Module):
    """Members, and a function of them and the inputs."""

    def __init__(self, run: Callable[..., Any], **members: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, member in members.items():
            self.add_module(name, member)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def per_channel(weight: Tensor, axis: int = 0) -> Grid:
    dims = [dim for dim in range(weight.dim()) if dim != axis]
    low, high = weight.detach().amin(dims), weight.detach().amax(dims)
    # Of 7 bits: without VNNI the kernels of oneDNN add two products in 16 bits, which those of 8 bits may exceed.
    return grid_of_range(low, high, Scheme(torch.int8, PerAxis(axis), True, bits=7))


def per_group(weight: Tensor, size: int) -> Grid:
    groups = weight.detach().reshape(weight.shape[0], -1, size)
    return grid_of_range(groups.amin(-1), groups.amax(-1), Scheme(torch.int8, PerGroup(size), True, bits=4))


def conv(*sizes: Any, **settings: Any) -> QuantizedConv2d:
    module = nn.Conv2d(*sizes, **settings)
    return QuantizedConv2d.from_float(module, per_channel(module.weight))  # type: ignore[return-value]


def linear(inputs: int, outputs: int, activation: Any = "float", bias: bool = True, bits: int = 8) -> QuantizedLinear:
    module = nn.Linear(inputs, outputs, bias=bias)
    grid = per_channel(module.weight) if bits == 8 else per_group(module.weight, 32)
    return QuantizedLinear.from_float(module, grid, activation)


def byte(x: Tensor, scale: float = 0.03, zero_point: int = 100) -> Tensor:
    """A value, rounded to bytes."""
    return dequantize(quantize(x, scale, zero_point), scale, zero_point)


def captured(net: nn.Module, x: Tensor) -> GraphModule:
    return graphwright.trace(net.eval(), x, leaf_modules=[name for name, _ in net.named_children()])


def of(activation: Callable[[Tensor], Tensor], scale: float = 0.03, zero_point: int = 100) -> Callable[..., Any]:
    return lambda m, x: byte(activation(m.layer(byte(x))), scale, zero_point)


def first_of(m: Any, x: Tensor) -> Tensor:
    return byte(F.relu(m.first(byte(x))), 0.01, 0)


def residual(m: Any, x: Tensor) -> Tensor:
    first = first_of(m, x)
    return byte(F.relu(m.second(byte(F.relu(m.layer(first)), 0.01, 0)) + first), 0.02, 0)


IMAGE, ROWS = (2, 8, 9, 10), (5, 64)
INT8 = "oneDNN int8"
PROGRAMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[str, ...]]] = {
    "conv": (lambda: Net(of(lambda y: y), layer=conv(8, 6, 3, padding=1)), IMAGE, (INT8, "oneDNN, float weight")),
    "conv, relu": (lambda: Net(of(F.relu, 0.01, 0), layer=conv(8, 6, 3, 2)), IMAGE, (INT8, "float weight")),
    "conv, relu6": (lambda: Net(of(F.relu6), layer=conv(8, 8, 3, groups=8)), IMAGE, (INT8, "oneDNN, float weight")),
    "conv, hardswish": (lambda: Net(of(F.hardswish), layer=conv(8, 6, 3)), IMAGE, (INT8,)),
    "conv, silu": (lambda: Net(of(F.silu), layer=conv(8, 6, (3, 1), dilation=(2, 1))), IMAGE, (INT8,)),
    "conv, sigmoid": (lambda: Net(of(torch.sigmoid, 0.004, 0), layer=conv(8, 6, 3)), IMAGE, (INT8, "float weight")),
    "conv, in place": (lambda: Net(of(F.relu_, 0.01, 0), layer=conv(8, 6, 3, bias=False)), IMAGE, (INT8,)),
    "conv of pixels": (
        lambda: Net(of(F.relu, 0.01, 0), layer=conv(8, 6, 1)),
        IMAGE,
        (INT8, "integers", "oneDNN int8, as rows", "float weight"),
    ),
    "conv to floats": (lambda: Net(lambda m, x: m.layer(byte(x)), layer=conv(8, 6, 3)), IMAGE, (INT8,)),
    "conv to int8": (
        lambda: Net(lambda m, x: quantize(m.layer(byte(x)), 0.03, 0, torch.int8), layer=conv(8, 6, 3)),
        IMAGE,
        (INT8, "float weight"),
    ),
    "conv of int8": (
        lambda: Net(lambda m, x: m.layer(dequantize(quantize(x, 0.03, 0, torch.int8), 0.03, 0)), layer=conv(8, 6, 1)),
        IMAGE,
        ("integers", "float weight"),
    ),
    "conv of floats": (lambda: Net(lambda m, x: F.relu(m.layer(x)), layer=conv(8, 6, 3)), IMAGE, ("float weight",)),
    "residual": (
        lambda: Net(residual, first=conv(8, 8, 1), layer=conv(8, 8, 3, padding=1), second=conv(8, 8, 1)),
        IMAGE,
        (INT8, "integers", "float weight", "oneDNN, float weight"),
    ),
    "residual of floats": (
        lambda: Net(lambda m, x: F.relu(m.layer(byte(x)) + x), layer=conv(8, 8, 3, padding=1)),
        IMAGE,
        (INT8, "float weight"),
    ),
    "transposed": (lambda: Net(of(F.relu, 0.01, 0), layer=transposed()), IMAGE, ("float weight",)),
    "conv of one dimension": (lambda: Net(of(F.relu, 0.01, 0), layer=line()), (2, 8, 12), (INT8, "float weight")),
    "linear": (
        lambda: Net(of(lambda y: y), layer=linear(64, 48)),
        ROWS,
        (INT8, "integers", "float weight", "MKL, float weight"),
    ),
    "linear, gelu": (lambda: Net(of(F.gelu), layer=linear(64, 48)), (2, 5, 64), (INT8, "integers")),
    "linear without bias": (lambda: Net(of(torch.tanh), layer=linear(64, 48, bias=False)), ROWS, (INT8, "integers")),
    "linear per tensor": (
        lambda: Net(lambda m, x: F.relu(m.layer(x)), layer=linear(64, 48, "tensor")),
        ROWS,
        (INT8, "integers", "float weight"),
    ),
    "linear per token": (
        lambda: Net(lambda m, x: m.layer(x * torch.tensor([[1.0], [9.0]])), layer=linear(64, 48, "token")),
        (3, 2, 64),
        (INT8, "integers", "float weight"),
    ),
    "linear per token without bias": (
        lambda: Net(lambda m, x: m.layer(x), layer=linear(64, 48, "token", bias=False)),
        ROWS,
        (INT8, "integers"),
    ),
    "int8 weight": (
        lambda: Net(lambda m, x: F.gelu(m.layer(x)), layer=linear(64, 48)),
        (2, 5, 64),
        ("half inputs", "float weight", "MKL, float weight"),
    ),
    "int4 weight": (
        lambda: Net(lambda m, x: m.layer(x), layer=linear(64, 48, bits=4)),
        ROWS,
        ("half inputs", "float weight"),
    ),
}


def transposed() -> nn.Module:
    module = nn.ConvTranspose2d(8, 6, 3, 2, 1, 1)
    return QuantizedConvTranspose2d.from_float(module, per_channel(module.weight, 1))


def line() -> nn.Module:
    module = nn.Conv1d(8, 6, 3, padding="same")
    return QuantizedConv1d.from_float(module, per_channel(module.weight))


CASES = [(name, kernel) for name, (_, _, kernels) in PROGRAMS.items() for kernel in kernels]


def assert_same(fast: nn.Module, reference: nn.Module, x: Tensor, step: float = 0.03) -> None:
    """Integers within one step, floats with noise 40 dB below; what was written as bytes is within one step, too."""
    with torch.no_grad():
        given, expected = fast(x), reference(x)
    assert given.dtype is expected.dtype and given.shape == expected.shape and given.stride() == expected.stride()
    difference = (given.float() - expected.float()).abs().max().item()
    if not expected.is_floating_point():
        assert difference <= 1
    else:
        noise, signal = (given - expected).square().sum().item(), expected.square().sum().item()
        assert noise <= signal * 1e-4 or difference <= step * 1.001


def kernels_of(fast: Any) -> dict[str, str]:
    return {part.part: part.runs_on for part in fast.report.parts}


@pytest.mark.sampled(4)
@needs_onednn
@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_kernel(name: str, kernel: str, prefer: Callable[..., None]) -> None:
    """Each kernel computes what the program says, at its sizes and at others."""
    prefer(kernel, "torch")
    torch.manual_seed(0)
    make, shape, _ = PROGRAMS[name]
    x = torch.randn(shape)
    reference = captured(make(), x)
    fast = lower(reference, x, engine="torch")
    assert kernel in kernels_of(fast).values(), [part.why for part in fast.report.parts]
    for _ in range(3):
        assert_same(fast, reference, torch.randn(shape))
    for batch in (1, 2, 3, 7, 16):
        other = torch.randn(batch, *shape[1:])
        assert packed_for(fast, other) is not None
        assert_same(fast, reference, other)


@pytest.mark.slow
@pytest.mark.sampled(4)
@needs_onednn
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_measured_is_right(name: str) -> None:
    """Whatever is the fastest here computes the same."""
    torch.manual_seed(0)
    make, shape, _ = PROGRAMS[name]
    x = torch.randn(shape)
    reference = captured(make(), x)
    assert_same(lower(reference, x, engine="torch"), reference, x)


def test_kernel_for_half_inputs_is_not_called_with_vectors_of_other_sizes(prefer: Callable[..., None]) -> None:
    """It reads so many values at a time that with 12 it goes on behind the last, which may end the process."""
    prefer("half inputs", "torch")
    reference = captured(Net(lambda m, x: m.layer(x), layer=linear(12, 8)), torch.randn(3, 12))
    assert "half inputs" not in kernels_of(lower(reference, torch.randn(3, 12), engine="torch")).values()


@pytest.mark.slow
def test_a_quantized_module_is_lowered_without_a_call() -> None:
    """The call to measure with has the sizes of that of the capture, and numbers between its bounds."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    batches = [torch.randint(2, 7, (3, 5)) for _ in range(4)]
    reference = graphwright.quantize(model, static_int8(), batches, engine=None)
    args, kwargs = example_of(reference)
    assert [(each.shape, each.dtype) for each in args] == [((3, 5), torch.int64)] and not kwargs
    assert args[0].min() >= 2 and args[0].max() <= 6
    fast = lower(reference, engine="torch")
    assert "for any size of input.shape[0, 1]" in fast.report.program.why
    assert_same(fast, reference, batches[0])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.bool, torch.uint8])
def test_a_call_is_drawn_from_its_record(dtype: torch.dtype) -> None:
    model = Net(lambda m, x: m.layer(x.float()), layer=nn.Linear(8, 4)).eval()
    reference = graphwright.quantize(model, dynamic_int8(), args=torch.ones(2, 8).to(dtype), engine=None)
    (x,), _ = example_of(reference)
    assert x.dtype is dtype and bool((x.float() == 1).all())


# ---- other sizes


def image_net() -> nn.Module:
    """Pools with sizes rounded up, adds what it has computed before, and reads sizes."""

    def run(m: Any, x: Tensor) -> Tensor:
        y = byte(F.max_pool2d(residual(m, x), 3, 2, ceil_mode=True))
        return m.head(byte(y.flatten(2).transpose(1, 2)).view(x.size(0), -1, 8))

    return Net(run, first=conv(8, 8, 1), layer=conv(8, 8, 3, padding=1), second=conv(8, 8, 1), head=linear(8, 5))


def attending_net() -> nn.Module:
    """Attention over a sequence of any length."""

    def run(m: Any, x: Tensor) -> Tensor:
        heads = [each(x).unflatten(-1, (4, 16)).transpose(1, 2) for each in (m.query, m.key, m.value)]
        return m.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(*x.shape[:-1], -1))

    return Net(run, **{name: linear(64, 64, "token") for name in ("query", "key", "value", "out")})


OTHER_SIZES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[tuple[int, ...]], str]] = {
    "images": (image_net, IMAGE, [(b, 8, 9 + b, 8 + 3 * b) for b in (1, 2, 3, 7, 16)], "x.shape[0, 2, 3]"),
    "sequences": (attending_net, (2, 5, 64), [(b, 2 * b, 64) for b in (1, 2, 3, 7, 16)], "x.shape[0, 1]"),
}


@pytest.mark.slow
@needs_onednn
@pytest.mark.sampled(5)
@pytest.mark.parametrize("kernel", [INT8, "integers", "MKL, float weight"])
@pytest.mark.parametrize("name", OTHER_SIZES)
def test_kernels_run_at_other_sizes(name: str, kernel: str, prefer: Callable[..., None]) -> None:
    """What was lowered for some sizes runs at all that its program takes, and the report says at which."""
    prefer(kernel, "torch")
    torch.manual_seed(0)
    make, shape, others, said = OTHER_SIZES[name]
    x = torch.randn(shape)
    reference = captured(make(), x)
    fast = lower(reference, x, engine="torch")
    assert f"for any size of {said}" in fast.report.program.why
    for sizes in (shape, *others):
        other = torch.randn(sizes)
        assert packed_for(fast, other) is not None
        assert_same(fast, reference, other)


def squeezed(m: Any, x: Tensor) -> Tensor:
    y = m.second(F.relu(m.first(x.mean((2, 3), keepdim=True))))
    rows = m.rows(x.flatten(2).transpose(1, 2))
    return m.head((x * y).mean((2, 3))) + rows.mean(1) + m.vector(y.flatten(1))


@pytest.mark.slow
@needs_onednn
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kernel", ["addmv", "addmm", "addmm with relu", "oneDNN", "MKL packed", "torch transposed"])
def test_float_kernels_run_at_other_sizes(kernel: str, prefer: Callable[..., None]) -> None:
    """One pixel, one row and one vector are several in a batch."""
    prefer(kernel, "torch")
    torch.manual_seed(0)
    net = Net(
        squeezed,
        **{name: nn.Conv2d(8, 8, 1) for name in ("first", "second")},
        **{name: nn.Linear(8, 8) for name in ("rows", "vector")},
        head=linear(8, 8, "token"),
    )
    reference = captured(net.requires_grad_(False), torch.randn(1, 8, 4, 4))
    fast = lower(reference, torch.randn(1, 8, 4, 4), engine="torch")
    for shape in ((1, 8, 4, 4), (3, 8, 4, 4), (1, 8, 6, 5), (2, 8, 5, 4)):
        x = torch.randn(shape)
        assert packed_for(fast, x) is not None
        assert_same(fast, reference, x)


@needs_onednn
def test_sum_that_is_one_of_equal_shapes_by_chance(prefer: Callable[..., None]) -> None:
    """A kernel adds what has the shape of its result at all sizes: here one image is added to each."""
    prefer("torch")
    torch.manual_seed(0)
    net = Net(lambda m, x: F.relu(m.layer(byte(x)) + byte(m.position)), layer=conv(8, 8, 3, padding=1))
    net.register_buffer("position", torch.randn(1, *IMAGE[1:]))
    x = torch.randn(1, *IMAGE[1:])
    reference = captured(net, x)
    fast = lower(reference, x, engine="torch")
    assert not any(" + " in part for part in kernels_of(fast))
    for batch in (1, 3):
        assert_same(fast, reference, torch.randn(batch, *IMAGE[1:]))


def test_program_for_one_size(prefer: Callable[..., None]) -> None:
    """A program that takes one length of sequences is lowered for other batches of that, and refuses others."""
    prefer("torch")
    net = Net(lambda m, x: m.layer(x) + m.position, layer=linear(8, 8, "token"))
    net.register_buffer("position", torch.randn(5, 8))
    reference = captured(net, torch.randn(2, 5, 8))
    fast = lower(reference, torch.randn(2, 5, 8), engine="torch")
    assert "for any size of x.shape[0]" in fast.report.program.why
    assert packed_for(fast, torch.randn(3, 5, 8)) is not None
    assert packed_for(fast, torch.randn(2, 4, 8)) is None
    assert packed_for(fast, torch.randn(0, 5, 8)) is None
    assert fast(torch.randn(0, 5, 8)).shape == (0, 5, 8)
    with pytest.raises(RuntimeError, match="size of tensor"):
        fast(torch.randn(2, 4, 8))


# ---- sums


def operations(fast: Any) -> list[str]:
    return [
        str(getattr(node.target, "__name__", node.target)) for node in entry_points_of(fast)["forward"].held.graph.nodes
    ]


SUMS: dict[str, tuple[Callable[..., Any], int]] = {
    "read for the last time": (residual, 0),
    "read again": (lambda m, x: again(m, x), 1),
    "an input": (lambda m, x: byte(F.relu(m.layer(byte(x, 0.02, 0)) + byte(x, 0.02, 0)), 0.02, 0), 1),
}


def again(m: Any, x: Tensor) -> Tensor:
    first = first_of(m, x)
    total = byte(F.relu(m.second(byte(F.relu(m.layer(first)), 0.01, 0)) + first), 0.02, 0)
    return total + first


@pytest.mark.slow
@pytest.mark.sampled(2)
@needs_onednn
@pytest.mark.parametrize("name", SUMS)
def test_sum_is_written_into_what_nobody_reads(name: str, prefer: Callable[..., None]) -> None:
    """The other value of a sum is copied where something reads it afterwards, or where a kernel has not made it."""
    prefer(INT8, "torch")
    torch.manual_seed(0)
    run, copies = SUMS[name]
    net = Net(run, first=conv(8, 8, 1), layer=conv(8, 8, 3, padding=1), second=conv(8, 8, 1))
    x = torch.randn(IMAGE)
    reference = captured(net, x)
    fast = lower(reference, x, engine="torch")
    assert operations(fast).count("qconv2d_pointwise.binary") == 1
    assert operations(fast).count("clone") == copies
    for _ in range(3):
        assert_same(fast, reference, torch.randn(IMAGE))


# ---- operations on integers


def kept(op: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    return lambda m, x: byte(op(byte(x)))


MOVED: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "max pool": (kept(lambda y: F.max_pool2d(y, 3, 2, 1)), IMAGE),
    "max pool, sizes rounded up": (kept(lambda y: F.max_pool2d(y, 2, 2, ceil_mode=True)), (1, 8, 9, 11)),
    "max pool, wide": (kept(lambda y: F.max_pool2d(y, (3, 1), (2, 1), dilation=(2, 1))), IMAGE),
    "max pool of a line": (kept(lambda y: F.max_pool1d(y, 3)), (2, 3, 11)),
    "padding": (kept(lambda y: F.pad(y, (1, 2, 0, 1))), IMAGE),
    "flatten": (kept(lambda y: y.flatten(1)), IMAGE),
    "view": (kept(lambda y: y.view(y.size(0), -1)), IMAGE),
    "transpose": (kept(lambda y: y.transpose(1, 2)), IMAGE),
    "permute": (kept(lambda y: y.permute(0, 2, 3, 1)), IMAGE),
    "a part": (kept(lambda y: y[:, 1:3]), IMAGE),
    "relu": (kept(F.relu), IMAGE),
    "joined": (lambda m, x: byte(torch.cat((byte(x), byte(x * 2)), 1)), IMAGE),
    "several": (kept(lambda y: F.max_pool2d(F.pad(F.relu(y), (1, 1, 1, 1)), 2).flatten(1)), IMAGE),
}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MOVED)
def test_moved_as_integers(name: str, prefer: Callable[..., None]) -> None:
    """Bytes are moved, and not taken back to floats in between."""
    prefer("fewer steps", "torch")
    run, shape = MOVED[name]
    torch.manual_seed(0)
    x = torch.randn(shape)
    reference = captured(Net(run), x)
    fast = lower(reference, x, engine="torch")
    written = operations(fast)
    assert written.count("float") == 1, written
    assert_same(fast, reference, x)


UNMOVED: dict[str, Callable[..., Any]] = {
    "padding with another value": kept(lambda y: F.pad(y, (1, 1), value=1.0)),
    "other steps": lambda m, x: byte(F.relu(byte(x)), 0.02, 0),
    "joined from other steps": lambda m, x: byte(torch.cat((byte(x), byte(x, 0.01, 30)), 1)),
    "a mean": kept(lambda y: y.mean((2, 3))),
    "written to": lambda m, x: byte(byte(x).mul_(2)) + 1,
    "read by another, and written to": lambda m, x: (lambda y: (y, F.relu_(y), y * 2)[2])(byte(x)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", UNMOVED)
def test_not_moved(name: str) -> None:
    """What integers cannot say stays as it is."""
    torch.manual_seed(0)
    x = torch.randn(IMAGE)
    reference = captured(Net(UNMOVED[name]), x)
    assert_same(lower(reference, x, engine="torch"), reference, x)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("ceil", [False, True])
def test_max_pool_of_integers(dtype: torch.dtype, stride: int, padding: int, ceil: bool) -> None:
    """As `F.max_pool2d` of floats."""
    info = torch.iinfo(dtype)
    x = torch.randint(info.min, info.max, (2, 3, 10, 11)).to(dtype).contiguous(memory_format=torch.channels_last)
    expected = F.max_pool2d(x.float(), 3, stride, padding, ceil_mode=ceil)
    given = max_pool_of_integers(x, (3, 3), (stride, stride), (padding, padding), (1, 1), ceil)
    assert torch.equal(given.float(), expected)


# ---- a lowered module is a module


def block() -> tuple[GraphModule, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(IMAGE)
    net = Net(
        lambda m, x: m.head(byte(m.second(byte(F.relu(m.layer(byte(x))), 0.01, 0)).mean((2, 3)))),
        layer=conv(8, 8, 3, padding=1),
        second=conv(8, 64, 1),
        head=linear(64, 10),
    )
    return captured(net, x), x


@needs_onednn
def test_packed_once_and_never_in_the_state(prefer: Callable[..., None]) -> None:
    """Weights are packed at the first call, and again when one was written to."""
    prefer(INT8, "torch")
    reference, x = block()
    before = {name: tensor.clone() for name, tensor in reference.state_dict().items()}
    fast = lower(reference, x, engine="torch")
    for module in (reference, fast):
        state = module.state_dict()
        assert state.keys() == before.keys()
        assert all(torch.equal(state[name], before[name]) for name in before)
    held = entry_points_of(fast)["forward"].held
    with torch.no_grad():
        fast(x)
        count = held.packs.count
        fast(x)
        assert held.packs.count == count
        layer = fast.get_submodule("layer")
        assert isinstance(layer.weight, Tensor)
        layer.weight.neg_()
        assert_same(fast, reference, x)
        assert held.packs.count > count


@needs_onednn
def test_copies_and_other_threads(prefer: Callable[..., None]) -> None:
    """A copy packs for itself; threads give the same."""
    prefer(INT8, "torch")
    reference, x = block()
    fast = lower(reference, x, engine="torch")
    with torch.no_grad():
        expected = fast(x)
        twin = copy.deepcopy(fast)
        assert torch.equal(twin(x), expected)
        results: list[Tensor] = []

        def call() -> None:
            with torch.no_grad():
                results.extend(fast(x) for _ in range(5))

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 20 and all(torch.equal(each, expected) for each in results)


@pytest.mark.parametrize("best", ["torch", "inlined"])
def test_graph_and_file_are_the_reference(best: str, tmp_path: Any, prefer: Callable[..., None]) -> None:
    """The graph that is seen and edited is that of the reference; a file holds that, and it may be lowered again."""
    prefer(best)
    torch.manual_seed(0)
    x = torch.randn(5, 64)
    net = nn.Sequential(linear(64, 48), nn.ReLU(), linear(48, 32, "token"))
    reference = graphwright.trace(net.eval(), x, leaf_modules=["0", "2"])
    fast = lower(reference, x, engine="torch")
    assert fast.report.program.runs_on == best
    assert [node.name for node in fast.graph.nodes] == [node.name for node in reference.graph.nodes]
    path = tmp_path / "net.gw"
    assert graphwright.save(fast, path, strict=True) == []
    loaded = graphwright.load(path)
    assert loaded.code == reference.code and isinstance(loaded, nn.Sequential)
    assert torch.equal(loaded(x), reference(x))
    again = lower(loaded, x, engine="torch")
    assert_same(again, reference, x)
    assert_same(copy.deepcopy(fast), reference, x)


@pytest.mark.slow
@needs_onednn
def test_off_in_the_program_is_left_to_torch(prefer: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is right on random inputs, and off on those of the program, is not used."""
    prefer("integers", "torch")
    reference, x = block()
    real = torch._int_mm

    def wrong(one: Tensor, other: Tensor) -> Tensor:
        return real(one, other) + (1000 if float(one.float().std()) < 30 else 0)

    fast = lower(reference, x, engine="torch")
    assert "integers" in kernels_of(fast).values()
    monkeypatch.setattr(torch, "_int_mm", wrong)
    fast = lower(reference, x, engine="torch")
    left = [part for part in fast.report.parts if any("integers at" in why for why in part.why)]
    assert left and all(part.runs_on == "torch" for part in left)
    assert_same(fast, reference, x)


def test_engines() -> None:
    """Names that are not known are refused."""
    reference, x = block()
    with pytest.raises(QuantizationError, match="no engine 'tensorrt'"):
        lower(reference, x, engine="tensorrt")  # type: ignore[arg-type]


@pytest.mark.slow
def test_onnxruntime_runs_pieces(prefer: Callable[..., None]) -> None:
    """A piece of a reference program runs in ONNX Runtime, whose weights are int8."""
    pytest.importorskip("onnxruntime")
    prefer("onnxruntime")
    reference, x = block()
    fast = lower(reference, x, engine="onnxruntime")
    assert fast.report.program.runs_on == "onnxruntime"
    assert_same(fast, reference, x)


@pytest.mark.slow
def test_onnxruntime_runs_the_pieces_around_what_it_cannot_run(prefer: Callable[..., None]) -> None:
    class Parted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.a(x) + x)
            with torch.no_grad():
                pass
            z = self.b(y)
            return self.a(torch.relu(z).tanh()) + z

    pytest.importorskip("onnxruntime")
    prefer("onnxruntime")
    torch.manual_seed(0)
    data = [torch.randn(2, 4, 6, 6) for _ in range(4)]
    reference = graphwright.quantize(Parted().eval(), static_int8(), calibration=data, engine=None)
    fast = lower(reference, data[0], engine="onnxruntime")
    rows = [each for each in fast.report.parts if each.runs_on == "onnxruntime"]
    assert len(rows) == 2 and all(each.numerics is not None for each in rows)
    assert_same(fast, reference, data[0])


@pytest.mark.slow
def test_onnxruntime_rounds_no_activations_where_weights_alone_are_integers(prefer: Callable[..., None]) -> None:
    pytest.importorskip("onnxruntime")
    prefer("onnxruntime")
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval(), torch.randn(4, 6, 64)
    reference = graphwright.quantize(model, weight_only_int8(), args=(x,), engine=None)
    fast = lower(reference, x, engine="onnxruntime")
    assert fast.report.program.runs_on == "onnxruntime"
    torch.testing.assert_close(fast(x), reference(x), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_model_of_onnx_has_integers() -> None:
    """Weights stay int8 with scales per channel, and values are written by QuantizeLinear."""
    onnx = pytest.importorskip("graphwright.onnx")
    reference, x = block()
    program = onnx.export(reference, x, dynamic_shapes=(None,))
    counts = program.report.operators
    assert counts["QuantizeLinear"] == 3 and counts["DequantizeLinear"] == 7  # one of them is of a bias
    kinds = {name: value.const_value.dtype.name for name, value in program.model.graph.initializers.items()}
    assert kinds["layer.weight"] == kinds["head.weight"] == "INT8"
    torch.testing.assert_close(program(x), reference(x), atol=0.05, rtol=0.02)


def test_report_says_what_each_layer_runs_on() -> None:
    """Each part of the report names the weights that it is about."""
    reference, x = block()
    fast = lower(reference, x, engine="torch")
    kernels = {path: part.runs_on for part in fast.report.parts for path in part.weights}
    assert kernels.keys() == {"layer.weight", "second.weight", "head.weight"}


JOINED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "static": (lambda: Net(heads(byte), **{name: linear(64, size) for name, size in SIZES.items()}), INT8),
    "static, exact": (lambda: Net(heads(byte), **{name: linear(64, size) for name, size in SIZES.items()}), "integers"),
    "per token": (
        lambda: Net(heads(lambda x: x), **{name: linear(64, size, "token") for name, size in SIZES.items()}),
        "integers",
    ),
    "without bias": (
        lambda: Net(heads(byte), **{name: linear(64, size, bias=False) for name, size in SIZES.items()}),
        "integers",
    ),
    "int4 weights": (
        lambda: Net(heads(lambda x: x), **{name: linear(64, size, bits=4) for name, size in SIZES.items()}),
        "half inputs",
    ),
    "activations": (
        lambda: Net(
            lambda m, x: torch.cat((F.silu(m.q(x)), m.k(x), F.relu(m.v(x))), -1),
            **{name: linear(64, size) for name, size in SIZES.items()},
        ),
        "half inputs",
    ),
}
SIZES = {"q": 48, "k": 16, "v": 32}


def heads(read: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def run(m: Any, x: Tensor) -> Tensor:
        y = read(x)
        return torch.cat((m.q(y) * 2, m.k(y), m.v(y).neg()), -1)

    return run


@pytest.mark.slow
@needs_onednn
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", JOINED)
def test_layers_that_read_the_same_as_one(name: str, prefer: Callable[..., None]) -> None:
    """Their weights are joined, and the result is split."""
    make, kernel = JOINED[name]
    prefer("as one", kernel, "torch")
    torch.manual_seed(0)
    x = torch.randn(2, 5, 64)
    reference = captured(make(), x)
    fast = lower(reference, x, engine="torch")
    assert operations(fast).count("split") == 1
    weights = [part.weights for part in fast.report.parts if len(part.weights) == 3]
    assert weights == [("q.weight", "k.weight", "v.weight")]
    for _ in range(2):
        assert_same(fast, reference, torch.randn(2, 5, 64))


@needs_onednn
def test_layers_in_branches(prefer: Callable[..., None]) -> None:
    """Layers in the bodies of branches run on kernels, too."""
    prefer(INT8, "torch")

    def run(m: Any, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return byte(F.relu(m.first(byte(x))), 0.01, 0)
        return byte(m.layer(byte(x)), 0.02, 100)

    torch.manual_seed(0)
    net, x = Net(run, first=conv(8, 6, 3), layer=conv(8, 6, 3)), torch.randn(IMAGE).abs()
    reference = captured(net, x)
    fast = lower(reference, x, engine="torch")
    weights = {path for part in fast.report.parts if part.runs_on == INT8 for path in part.weights}
    assert weights == {"first.weight", "layer.weight"}
    assert_same(fast, reference, x)
    assert_same(fast, reference, -x)


@needs_onednn
def test_one_layer_with_several_grids(prefer: Callable[..., None]) -> None:
    """A layer that is called twice has the grid of each call."""
    prefer(INT8, "torch")
    torch.manual_seed(0)
    net = Net(lambda m, x: m.layer(byte(m.layer(byte(x, 0.04, 90)), 0.02, 128)), layer=conv(8, 8, 3, padding=1))
    x = torch.randn(IMAGE)
    reference = captured(net, x)
    assert_same(lower(reference, x, engine="torch"), reference, x)


@pytest.mark.filterwarnings("error")
def test_nothing_warns() -> None:
    """Nothing that torch is about to remove is used."""
    reference, x = block()
    fast = lower(reference, x, engine="torch")
    assert_same(fast, reference, x)


def test_by_name_and_of_other_shapes() -> None:
    """Keyword arguments are those of a call; what is no tensor of floats on the processor is left alone."""
    torch.manual_seed(0)
    net = Net(lambda m, x: m.layer(byte(x).double().float()), layer=linear(64, 8))
    x = torch.randn(3, 64)
    reference = captured(net, x)
    assert_same(lower(reference, kwargs={"x": x}, engine="torch"), reference, x)
    empty = lower(reference, x[:0], engine="torch")
    assert empty(x[:0]).shape == (0, 8)
