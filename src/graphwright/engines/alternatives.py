"""The kernels that may compute a site: here a linear layer or convolution, with its batch norm, sum and activation.

Each is written once, as calls: these are made at once where a kernel is measured, and become nodes where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from graphwright.engines.pack import itself

_mkldnn, _mkl = torch.ops.mkldnn, torch.ops.mkl


class Calls(Protocol):
    """How the calls of a kernel are made."""

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function."""

    def packed(self, make: Callable[..., Any], sources: tuple[str, ...], *settings: Any) -> Any:
        """What is made once of the program's tensors at these paths, see `Recipe`."""


Kernel = Callable[..., Any]  # called with how to make its calls, the site, and what that reads


class Site(Protocol):
    """A place in a program that several kernels may compute: data that says how, and compares by it."""

    @property
    def key(self) -> str:
        """What the time of the site depends on: sites of one key run on one kernel."""

    @property
    def weights(self) -> tuple[str, ...]:
        """The paths of the weights that it computes with."""

    @property
    def keeps_layout(self) -> bool:
        """Whether every kernel gives values that lie in memory as those of the program do."""

    def kernels(self, is_exact: bool) -> dict[str, Kernel]:
        """The kernels by name, the first one what the program itself calls; with `is_exact` none of half precision."""

    def example(self) -> list[Tensor]:
        """Random values of what the site reads."""

    def reason_against(self, given: Any, expected: Any, tolerance: float) -> str:
        """Say why a kernel that gives this is none, where another value is expected; empty where it is one."""


def off_by(given: Tensor, expected: Tensor, tolerance: float) -> str:
    """Say how far values are off of others, relative to the largest of them; empty within a tolerance.

    >>> off_by(torch.ones(2), torch.full((2,), 2.0), 0.1), off_by(torch.ones(2), torch.ones(2), 0.1)
    ('off by 5.0e-01 of the largest value', '')
    """
    difference = (given - expected).abs().max().item()
    scale = max(expected.abs().max().item(), 1e-6)
    return "" if difference <= tolerance * scale else f"off by {difference / scale:.1e} of the largest value"


@dataclass(frozen=True, slots=True)
class Activation:
    """A function that may write to the value that it is given, and how the oneDNN kernels call it."""

    function: Callable[..., Any]
    attribute: str
    algorithm: str = ""
    scalars: tuple[float, ...] = ()
    arguments: tuple[Any, ...] = ()  # of the function, after the value
    options: tuple[tuple[str, Any], ...] = ()


ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "relu": Activation(torch.relu_, "relu"),
        "gelu": Activation(F.gelu, "gelu", "none"),
        "gelu_tanh": Activation(F.gelu, "gelu", "tanh", options=(("approximate", "tanh"),)),
        "silu": Activation(torch._C._nn.silu_, "swish"),
        "hardswish": Activation(torch._C._nn.hardswish_, "hardswish"),
        "hardsigmoid": Activation(torch._C._nn.hardsigmoid_, "hardsigmoid"),
        "sigmoid": Activation(torch.sigmoid_, "sigmoid"),
        "tanh": Activation(torch.tanh_, "tanh"),
        "relu6": Activation(torch._C._nn.hardtanh_, "hardtanh", scalars=(0.0, 6.0), arguments=(0.0, 6.0)),
    }
)


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear layers that read the same, mostly one: where weights (out, in) and biases are, sizes, and what follows.

    is_open: whether inputs with another number of rows come here, too.
    """

    weights: tuple[str, ...]
    biases: tuple[str, ...]
    shape: tuple[int, ...]  # of what it reads; the last is that of the inputs
    outputs: int
    activation: str | None = None
    is_open: bool = False

    @property
    def rows(self) -> int:
        """How many vectors the layer reads."""
        return torch.Size(self.shape[:-1]).numel()

    @property
    def key(self) -> str:
        """What the time of the layer depends on."""
        said = ["bias"] * bool(self.biases) + ([] if self.activation is None else [self.activation])
        said += ["any rows"] * self.is_open
        return ", ".join([f"linear {_by(self.shape)} -> {self.outputs}", *said])

    @property
    def keeps_layout(self) -> bool:
        """Rows stay rows."""
        return True

    def kernels(self, is_exact: bool = False) -> dict[str, Kernel]:
        """The kernels by name; with `is_exact` none of half precision."""
        return _asked(_kernels_of_linear(self), is_exact)

    def example(self) -> list[Tensor]:
        """A random input."""
        return [torch.randn(self.shape)]

    def reason_against(self, given: Tensor, expected: Tensor, tolerance: float) -> str:
        """Say how far a result is off."""
        return off_by(given, expected, tolerance)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of two dimensions, with a batch norm, a value that is added and an activation after it.

    norm: the paths of running mean and variance, weight and bias of the batch norm, and its epsilon. counters: those of
    what tells when the statistics are written to. is_open: whether images of other sizes come here, too. is_first: no
    convolution comes before it, so that its images lie in memory as the program's inputs do, channels first. All others
    read what kernels gave, whose channels come last.
    """

    weight: str
    bias: str | None
    norm: tuple[str | None, ...]
    counters: tuple[str, ...]
    epsilon: float
    shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    is_added: bool = False
    activation: str | None = None
    is_open: bool = False
    is_first: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """The paths of all tensors that the weight and bias come of."""
        return tuple([path for path in (self.weight, self.bias, *self.norm, *self.counters) if path is not None])

    @property
    def weights(self) -> tuple[str, ...]:
        """The path of the weight."""
        return (self.weight,)

    @property
    def given(self) -> tuple[bool, ...]:
        """Which of weight, bias, mean, variance, scale and shift there are."""
        return tuple([path is not None for path in (self.weight, self.bias, *(self.norm or (None,) * 4))])

    @property
    def is_plain(self) -> bool:
        """Whether each output is a sum over the channels of one pixel."""
        ones = {*self.weight_shape[2:], *self.stride, self.groups}
        return ones == {1} and not any(self.padding)

    @property
    def key(self) -> str:
        """What the time of the convolution depends on."""
        outputs, _, *window = self.weight_shape
        numbers = [("stride", self.stride, 1), ("padding", self.padding, 0), ("dilation", self.dilation, 1)]
        said = [f"{name} {_by(values)}" for name, values, plain in numbers if {*values} != {plain}]
        said += [f"{self.groups} groups"] * (self.groups != 1) + ["bias"] * bool(self.bias or self.norm)
        said += ["sum"] * self.is_added + ([] if self.activation is None else [self.activation])
        said += ["any size"] * self.is_open + ["channels first"] * self.is_first
        return ", ".join([f"conv {_by(self.shape)} -> {outputs}", _by(window), *said])

    @property
    def keeps_layout(self) -> bool:
        """Some kernels give images whose channels come last."""
        return False

    def kernels(self, is_exact: bool = False) -> dict[str, Kernel]:
        """The kernels by name; with `is_exact` none of half precision."""
        return _asked(_kernels_of_convolution(self), is_exact)

    def example(self) -> list[Tensor]:
        """A random image, and one to add, where there is one, whose channels come last."""
        x = torch.randn(self.shape)
        x = x if self.is_first else x.contiguous(memory_format=torch.channels_last)
        if not self.is_added:
            return [x]
        sizes = torch.nn.functional.conv2d(
            torch.empty(self.shape, device="meta"), torch.empty(self.weight_shape, device="meta"), None, self.stride,
            self.padding, self.dilation, self.groups,
        ).shape  # fmt: skip
        return [x, torch.randn(sizes).contiguous(memory_format=torch.channels_last)]

    def reason_against(self, given: Tensor, expected: Tensor, tolerance: float) -> str:
        """Say how far a result is off."""
        return off_by(given, expected, tolerance)


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def _asked(kernels: dict[str, Kernel], is_exact: bool) -> dict[str, Kernel]:
    return {name: kernel for name, kernel in kernels.items() if not (is_exact and name.startswith("bf16"))}


def _kernels_of_linear(site: Linear) -> dict[str, Kernel]:
    kernels = {"torch": _linear, "torch transposed": _linear_transposed, "oneDNN": _linear_onednn}
    kernels["addmm"] = _addmm
    if site.activation == "relu" and site.biases:
        kernels["addmm with relu"] = _addmm_relu
    if site.rows == 1 and not site.is_open:
        kernels["addmv"] = _addmv
    if torch.backends.mkl.is_available():
        kernels["MKL packed"] = _linear_mkl
    return {**kernels, "bf16 oneDNN": _linear_half}


def _kernels_of_convolution(site: Convolution) -> dict[str, Kernel]:
    kernels = {"torch": _conv, "torch channels last": _conv_channels_last, "oneDNN": _conv_onednn}
    if site.is_plain:
        kernels["addmm"] = _conv_addmm
        if site.shape[0] * site.shape[2] * site.shape[3] == 1 and not site.is_open:
            kernels["addmv"] = _conv_addmv
    return {**kernels, "bf16 oneDNN": _conv_half}


# ---- what is packed


def _transposed(*weights: Tensor) -> Tensor:
    """A weight (out, in) as (in, out) in memory."""
    return itself(*weights).detach().t().contiguous()


def _of_transposed(*weights: Tensor) -> Tensor:
    """A weight (out, in) as a view on (in, out) in memory."""
    return _transposed(*weights).t()


def _for_linear(*args: Any) -> Tensor:
    *weights, rows = args
    return _mkldnn._reorder_linear_weight(itself(*weights).detach().contiguous(), rows)  # type: ignore[no-any-return]


def _for_mkl(*args: Any) -> Tensor:
    *weights, rows = args
    return _mkl._mkl_reorder_linear_weight(itself(*weights).detach().contiguous(), rows)  # type: ignore[no-any-return]


def _folded(tensors: tuple[Tensor, ...], given: tuple[bool, ...], epsilon: float) -> tuple[Tensor, Tensor | None]:
    left = iter(tensors)  # counters are left over
    weight, bias, mean, variance, scale, shift = [next(left) if is_given else None for is_given in given]
    assert weight is not None
    if mean is None or variance is None:
        return weight.detach(), None if bias is None else bias.detach()
    factor = torch.rsqrt(variance + epsilon) * (1.0 if scale is None else scale.detach())
    moved = -mean if bias is None else bias.detach() - mean
    folded = weight.detach() * factor.reshape(-1, *[1] * (weight.dim() - 1))
    return folded, moved * factor + (0.0 if shift is None else shift.detach())


def _conv_weight(*args: Any) -> Tensor:
    *tensors, given, epsilon = args
    return _folded(tuple(tensors), given, epsilon)[0]


def _conv_bias(*args: Any) -> Tensor | None:
    *tensors, given, epsilon = args
    return _folded(tuple(tensors), given, epsilon)[1]


def _weight_channels_last(*args: Any) -> Tensor:
    return _conv_weight(*args).contiguous(memory_format=torch.channels_last)


def _weight_plain(*args: Any) -> Tensor:
    return _transposed(_weight_of_pixels(*args))


def _weight_of_pixels(*args: Any) -> Tensor:
    return _conv_weight(*args).flatten(1)


def _weight_onednn(*args: Any) -> Tensor:
    *folded, padding, stride, dilation, groups, shape = args
    return _reordered(_conv_weight(*folded), padding, stride, dilation, groups, shape)


def _reordered(weight: Tensor, padding: Any, stride: Any, dilation: Any, groups: int, shape: Any) -> Tensor:
    return _mkldnn._reorder_convolution_weight(  # type: ignore[no-any-return]
        weight.contiguous(), list(padding), list(stride), list(dilation), groups, list(shape)
    )


def _weight_half(*args: Any) -> Tensor:
    *folded, padding, stride, dilation, groups, shape = args
    return _reordered(_half(_conv_weight(*folded)), padding, stride, dilation, groups, shape)


def _conv_bias_half(*args: Any) -> Tensor:
    bias = _conv_bias(*args)
    assert bias is not None
    return _half(bias)


# ---- linear layers


def activated(calls: Calls, name: str | None, value: Any) -> Any:
    """Call an activation, which may write to the value."""
    if name is None:
        return value
    activation = ACTIVATIONS[name]
    return calls.call(activation.function, value, *activation.arguments, **dict(activation.options))


def _bias(calls: Calls, site: Linear) -> Any:
    return calls.packed(itself, site.biases) if site.biases else None


def _linear(calls: Calls, site: Linear, x: Any) -> Any:
    value = calls.call(F.linear, x, calls.packed(itself, site.weights), _bias(calls, site))
    return activated(calls, site.activation, value)


def _linear_transposed(calls: Calls, site: Linear, x: Any) -> Any:
    value = calls.call(F.linear, x, calls.packed(_of_transposed, site.weights), _bias(calls, site))
    return activated(calls, site.activation, value)


def _addmm(calls: Calls, site: Linear, x: Any) -> Any:
    weight, rows = calls.packed(_transposed, site.weights), _rows(calls, site, x)
    if site.biases:
        value = calls.call(torch.addmm, _bias(calls, site), rows, weight)
    else:
        value = calls.call(torch.mm, rows, weight)
    return _of_rows(calls, site, activated(calls, site.activation, value), x)


def _addmm_relu(calls: Calls, site: Linear, x: Any) -> Any:
    weight = calls.packed(_transposed, site.weights)
    value = calls.call(torch._addmm_activation, _bias(calls, site), _rows(calls, site, x), weight)
    return _of_rows(calls, site, value, x)


def _rows(calls: Calls, site: Linear, x: Any) -> Any:
    """What a layer reads as a matrix."""
    rows = -1 if site.is_open else site.rows
    return x if len(site.shape) == 2 else calls.call(torch.reshape, x, (rows, site.shape[-1]))


def _of_rows(calls: Calls, site: Linear, value: Any, x: Any) -> Any:
    """A matrix as what the layer gives for its input."""
    if len(site.shape) == 2:
        return value
    if site.is_open:
        return calls.call(as_vectors, value, x)
    return calls.call(torch.reshape, value, (*site.shape[:-1], site.outputs))


def as_vectors(rows: Tensor, x: Tensor) -> Tensor:
    """Rows in the places of the vectors of another tensor.

    >>> as_vectors(torch.ones(6, 4), torch.ones(2, 3, 8)).shape
    torch.Size([2, 3, 4])
    """
    return rows.reshape(x.shape[:-1] + rows.shape[-1:])


def _addmv(calls: Calls, site: Linear, x: Any) -> Any:
    """Of one row: as a product with a vector, of the weight as it is."""
    value = _of_vector(calls, calls.packed(itself, site.weights), _bias(calls, site), x, site.shape[-1])
    return calls.call(torch.reshape, activated(calls, site.activation, value), (*site.shape[:-1], site.outputs))


def _of_vector(calls: Calls, weight: Any, bias: Any, x: Any, size: int) -> Any:
    vector = calls.call(torch.reshape, x, (size,))
    if bias is None:
        return calls.call(torch.mv, weight, vector)
    return calls.call(torch.addmv, bias, weight, vector)


def _linear_mkl(calls: Calls, site: Linear, x: Any) -> Any:
    weight, packed = calls.packed(itself, site.weights), calls.packed(_for_mkl, site.weights, site.rows)
    value = calls.call(_mkl._mkl_linear.default, x, packed, weight, _bias(calls, site), site.rows)
    return activated(calls, site.activation, value)


def _linear_onednn(calls: Calls, site: Linear, x: Any) -> Any:
    attribute, algorithm, _ = _how(site.activation)
    packed = calls.packed(_for_linear, site.weights, site.rows)
    return calls.call(_mkldnn._linear_pointwise.default, x, packed, _bias(calls, site), attribute, [], algorithm)


def _half(tensor: Tensor) -> Tensor:
    return tensor.detach().bfloat16()


def _for_linear_half(*args: Any) -> Tensor:
    *weights, rows = args
    return _for_linear(_half(itself(*weights)), rows)


def _bias_half(*biases: Tensor) -> Tensor:
    return _half(itself(*biases))


def _linear_half(calls: Calls, site: Linear, x: Any) -> Any:
    attribute, algorithm, _ = _how(site.activation)
    packed = calls.packed(_for_linear_half, site.weights, site.rows)
    bias = calls.packed(_bias_half, site.biases) if site.biases else None
    x = calls.call(torch.Tensor.bfloat16, x)
    value = calls.call(_mkldnn._linear_pointwise.default, x, packed, bias, attribute, [], algorithm)
    return calls.call(torch.Tensor.float, value)


def _how(name: str | None) -> tuple[str, str, list[float]]:
    if name is None:
        return "none", "", []
    activation = ACTIVATIONS[name]
    return activation.attribute, activation.algorithm, list(activation.scalars)


# ---- convolutions


def _tensors(calls: Calls, site: Convolution, make: Callable[..., Tensor], *settings: Any) -> tuple[Any, Any]:
    """The weight, made in some way, and the bias, of a convolution with its batch norm."""
    folding = site.given, site.epsilon
    weight = calls.packed(make, site.sources, *folding, *settings)
    has_bias = site.bias is not None or bool(site.norm)
    return weight, calls.packed(_conv_bias, site.sources, *folding) if has_bias else None


def _ended(calls: Calls, site: Convolution, value: Any, other: Any) -> Any:
    if site.is_added:
        value = calls.call(torch.Tensor.add_, value, other)
    return activated(calls, site.activation, value)


def _conv(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    weight, bias = _tensors(calls, site, _conv_weight)
    value = calls.call(torch.conv2d, x, weight, bias, site.stride, site.padding, site.dilation, site.groups)
    return _ended(calls, site, value, other)


def _conv_channels_last(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    weight, bias = _tensors(calls, site, _weight_channels_last)
    value = calls.call(torch.conv2d, x, weight, bias, site.stride, site.padding, site.dilation, site.groups)
    return _ended(calls, site, value, other)


def _conv_onednn(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    places = site.padding, site.stride, site.dilation
    weight, bias = _tensors(calls, site, _weight_onednn, *places, site.groups, site.shape)
    attribute, algorithm, scalars = _how(site.activation)
    numbers = [*map(list, places), site.groups]
    if not site.is_added:
        function = _mkldnn._convolution_pointwise.default
        return calls.call(function, x, weight, bias, *numbers, attribute, scalars, algorithm)
    function = _mkldnn._convolution_pointwise.binary
    if site.activation not in (None, "relu"):
        value = calls.call(function, x, other, weight, bias, *numbers, "add", None, None, [], None)
        return activated(calls, site.activation, value)
    unary = site.activation
    return calls.call(function, x, other, weight, bias, *numbers, "add", None, unary, [], None)


def _conv_half(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    places = site.padding, site.stride, site.dilation
    weight, _ = _tensors(calls, site, _weight_half, *places, site.groups, site.shape)
    has_bias = site.bias is not None or bool(site.norm)
    bias = calls.packed(_conv_bias_half, site.sources, site.given, site.epsilon) if has_bias else None
    name = None if site.is_added else site.activation
    attribute, algorithm, scalars = _how(name)
    numbers = [*map(list, places), site.groups]
    function = _mkldnn._convolution_pointwise.default
    value = calls.call(
        function, calls.call(torch.Tensor.bfloat16, x), weight, bias, *numbers, attribute, scalars, algorithm
    )
    value = calls.call(torch.Tensor.float, value)
    return _ended(calls, site, value, other) if site.is_added else value


def _conv_addmv(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    """Of one pixel: as a product with a vector."""
    weight, bias = _tensors(calls, site, _weight_of_pixels)
    value = _of_vector(calls, weight, bias, x, site.shape[1])
    return _ended(calls, site, calls.call(torch.reshape, value, (1, site.weight_shape[0], 1, 1)), other)


def as_image(rows: Tensor, x: Tensor) -> Tensor:
    """Rows as the pixels of an image of the size of another one.

    >>> as_image(torch.ones(6, 4), torch.ones(1, 8, 2, 3)).shape
    torch.Size([1, 4, 2, 3])
    """
    return rows.reshape(x.shape[:1] + x.shape[2:] + rows.shape[-1:]).permute(0, 3, 1, 2)


def _conv_addmm(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    """As a product of matrices: a pixel of an image whose channels come last is a row."""
    weight, bias = _tensors(calls, site, _weight_plain)
    pixels = calls.call(torch.reshape, calls.call(torch.permute, x, (0, 2, 3, 1)), (-1, site.shape[1]))
    if bias is None:
        value = calls.call(torch.mm, pixels, weight)
    else:
        value = calls.call(torch.addmm, bias, pixels, weight)
    if not site.is_added:
        value = activated(calls, site.activation, value)
    value = calls.call(as_image, value, x)
    return _ended(calls, site, value, other) if site.is_added else value
