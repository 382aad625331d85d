"""From functions to modules: `F.linear(x, self.weight, self.bias)` becomes a call of an `nn.Linear` that has both."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from graphwright.ir import Node
from graphwright.ops import Call, FunctionalForm, call_of, function_call, functional_form, written_attributes
from graphwright.passes.forms.module_to_functional import has_live_flag
from graphwright.passes.support.submodules import graphs_in, install, is_inside_used
from graphwright.runtime import assign_attribute, read_attribute


@dataclass(frozen=True, slots=True)
class UseModules:
    """Call modules of torch.nn in place of the functions that they stand for: `UseFunctions` is the way back.

    For what looks for modules: hooks, quantization, other passes. A function that is given parameters becomes the
    module that they belong to, where that is exactly such a module, else a new one that shares the very Parameter
    objects: one at the place of a plain container of them, under their names, or one of its own in the module that has
    them, under further names in the state dict. Each other call gets a module of its own. With `kinds`, only modules of
    these classes are made.
    Returns the number of calls that changed.

    A dropout that is passed the training flag of a module becomes a submodule of that one, and follows it when it goes
    to `train` or `eval`.

    Left alone: settings that the graph computes; weights that are computed, or are no parameters; dropout that is
    always on or off; parameters and flags in programs that assign attributes; batch and instance norms, which as
    modules depend on the training flag or on the rank; calls that no module makes (`dtype=` of softmax, `output_size=`
    of transposed convolutions).

    >>> import torch
    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: torch.flatten(x.relu(), 1).softmax(-1))
    >>> UseModules().run(gm)
    3
    >>> gm.relu, gm.flatten, gm.softmax
    (ReLU(), Flatten(start_dim=1, end_dim=-1), Softmax(dim=-1))
    """

    kinds: tuple[type[nn.Module], ...] = ()

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        graphs = graphs_in(gm)
        numbers: dict[str, int] = {}
        reads_attributes = not any(written_attributes(graph) for graph in graphs)
        return sum(
            _change(node, gm, self.kinds, reads_attributes, numbers)
            for graph in graphs
            for node in list(graph.nodes)
            if node.op in ("call_function", "call_method")
        )


def _change(
    node: Node, gm: nn.Module, kinds: tuple[type[nn.Module], ...], reads_attributes: bool, numbers: dict[str, int]
) -> bool:
    """Make a call of a function one of a module, where a module does the same."""
    call = call_of(node)
    if call is None or call.key not in _makers() or not _is_settled(node, call):
        return False
    tensors = _parameters_of(call, gm)
    if (tensors or isinstance(call.arguments.get("training"), Node)) and not reads_attributes:
        return False
    owner = _owner(call, gm, tensors)
    if owner is not None:
        module: nn.Module | None = read_attribute(gm, owner)
        path: str | None = owner
    else:
        module = _made(call, {name: read_attribute(gm, str(tensor.target)) for name, tensor in tensors.items()})
        path = None
    if module is None or (kinds and type(module) not in kinds):
        return False
    form = functional_form(module)
    if form is None or not _is_same(call, form, tensors):
        return False
    if path is None:
        path = _place(gm, module, call, tensors, numbers)
    if path is None:
        return False
    read = [used for used in node.all_input_nodes if used.op == "get_attr"]
    node.op, node.target = "call_module", path
    node.args, node.kwargs = tuple(call.arguments[name] for name in form.inputs), {}
    for attribute in read:
        if not attribute.users:
            attribute.graph.erase_node(attribute)
    return True


def _is_settled(node: Node, call: Call) -> bool:
    """Tell whether all that a call reads stands in its canonical form: no flag that the graph decides was left out."""
    return set(node.all_input_nodes) <= {value for value in call.arguments.values() if isinstance(value, Node)}


# ---- the module


def _parameters_of(call: Call, gm: nn.Module) -> dict[str, Node]:
    """The weight and bias that a call is given, where they are parameters of the captured module."""
    given = {name: value for name in ("weight", "bias") if isinstance(value := call.arguments.get(name), Node)}
    return {
        name: value
        for name, value in given.items()
        if value.op == "get_attr" and isinstance(read_attribute(gm, str(value.target)), nn.Parameter)
    }


def _owner(call: Call, gm: nn.Module, tensors: Mapping[str, Node]) -> str | None:
    """The path of the module that a call means and that has the parameters already."""
    for tensor in tensors.values():
        path = str(tensor.target).rpartition(".")[0]
        module = read_attribute(gm, path) if path else gm
        form = functional_form(module) if path else None
        if form is None or form.tensors.keys() != tensors.keys():
            continue
        own = {name: getattr(module, attribute) for name, attribute in form.tensors.items()}
        is_own = all(own[name] is read_attribute(gm, str(node.target)) for name, node in tensors.items())
        if is_own and _is_same(call, form, tensors):
            return path
    return None


def _made(call: Call, parameters: Mapping[str, nn.Parameter]) -> nn.Module | None:
    """A new module that makes a call; None where there is none. It draws no random numbers and copies nothing."""
    settings = {name: value for name, value in call.arguments.items() if not isinstance(value, Node)}
    try:
        module = _makers()[call.key](settings, parameters)
    except (AssertionError, LookupError, RuntimeError, TypeError, ValueError):  # a call that fails, or of another kind
        return None
    if module is None:
        return None
    if call.writes == ("input",) and hasattr(module, "inplace"):
        vars(module)["inplace"] = True
    for name, parameter in parameters.items():
        mine = module._parameters.get(name)
        if mine is None or mine.shape != parameter.shape:
            return None
        setattr(module, name, parameter)
    return module


def _is_same(call: Call, form: FunctionalForm, tensors: Mapping[str, Node]) -> bool:
    """Tell whether a module with this form makes this very call."""
    inputs = {name: call.arguments.get(name) for name in form.inputs}
    held = {name: tensors.get(name) for name in form.tensors}
    values = dict(form.values)
    if "training" in values and isinstance(call.arguments.get("training"), Node):
        values["training"] = call.arguments["training"]
    return function_call(form.function, (), {**inputs, **held, **values}) == call


# ---- where it goes


def _place(
    gm: nn.Module, module: nn.Module, call: Call, tensors: Mapping[str, Node], numbers: dict[str, int]
) -> str | None:
    """Put a new module into the captured one; None where there is no place for it."""
    name = type(module).__name__.lower()
    if has_live_flag(module):
        flag = call.arguments["training"]
        if not isinstance(flag, Node) or flag.op != "get_attr":
            return None
        owner, _, attribute = str(flag.target).rpartition(".")
        path = f"{owner}.{name}" if owner else name
        if attribute != "training" or is_inside_used(gm, path):
            return None
        module.train(read_attribute(gm, str(flag.target)))
        return install(gm, module, path, numbers)
    module.train(gm.training)
    owners = {str(tensor.target).rpartition(".")[0] for tensor in tensors.values()}
    if len(owners) == 1 and (owner := owners.pop()):
        container = read_attribute(gm, owner)
        held = {str(tensor.target).rpartition(".")[2]: parameter for parameter, tensor in tensors.items()}
        own = container._parameters.keys() == held.keys() and all(name == held[name] for name in held)
        if own and _is_bare(container) and not is_inside_used(gm, f"{owner}.weight"):
            assign_attribute(module, gm, owner)
            return owner
        if not is_inside_used(gm, f"{owner}.{name}"):
            return install(gm, module, f"{owner}.{name}", numbers)
    return install(gm, module, name, numbers)


def _is_bare(module: nn.Module) -> bool:
    """Tell whether a module is nothing but a place for parameters."""
    return type(module) is nn.Module and not (module._modules or module._buffers)


# ---- which modules there are

Maker = Callable[[dict[str, Any], Mapping[str, nn.Parameter]], nn.Module | None]

# By the key of the function. They are made from the arguments of the call that have the names of their own parameters.
_PLAIN = """
    relu ReLU  relu6 ReLU6  leaky_relu LeakyReLU  elu ELU  selu SELU  celu CELU  gelu GELU  silu SiLU  mish Mish
    hardtanh Hardtanh  hardswish Hardswish  hardsigmoid Hardsigmoid  hardshrink Hardshrink  softshrink Softshrink
    tanhshrink Tanhshrink  _threshold Threshold  threshold Threshold  softplus Softplus  softsign Softsign
    log_sigmoid LogSigmoid  glu GLU  sigmoid Sigmoid  tanh Tanh  softmax Softmax  log_softmax LogSoftmax
    softmin Softmin  flatten Flatten  pixel_shuffle PixelShuffle  pixel_unshuffle PixelUnshuffle
    channel_shuffle ChannelShuffle  im2col Unfold  col2im Fold  local_response_norm LocalResponseNorm
    interpolate Upsample  cosine_similarity CosineSimilarity
    dropout Dropout  dropout1d Dropout1d  dropout2d Dropout2d  dropout3d Dropout3d  alpha_dropout AlphaDropout
    feature_alpha_dropout FeatureAlphaDropout  rrelu RReLU
    max_pool1d MaxPool1d  max_pool2d MaxPool2d  max_pool3d MaxPool3d
    avg_pool1d AvgPool1d  avg_pool2d AvgPool2d  avg_pool3d AvgPool3d
    lp_pool1d LPPool1d  lp_pool2d LPPool2d  lp_pool3d LPPool3d
    adaptive_avg_pool1d AdaptiveAvgPool1d  adaptive_avg_pool2d AdaptiveAvgPool2d
    adaptive_avg_pool3d AdaptiveAvgPool3d  adaptive_max_pool1d AdaptiveMaxPool1d
    adaptive_max_pool2d AdaptiveMaxPool2d  adaptive_max_pool3d AdaptiveMaxPool3d
    mse_loss MSELoss  l1_loss L1Loss  smooth_l1_loss SmoothL1Loss  huber_loss HuberLoss  kl_div KLDivLoss
    nll_loss NLLLoss  cross_entropy CrossEntropyLoss  binary_cross_entropy BCELoss
    binary_cross_entropy_with_logits BCEWithLogitsLoss  cosine_embedding_loss CosineEmbeddingLoss
    triplet_margin_loss TripletMarginLoss  margin_ranking_loss MarginRankingLoss
"""


def _plain(kind: type[nn.Module]) -> Maker:
    taken = [name for name in inspect.signature(kind).parameters if name != "inplace"]
    return lambda settings, _: kind(**{name: settings[name] for name in taken if name in settings})


def _linear(settings: dict[str, Any], tensors: Mapping[str, nn.Parameter]) -> nn.Module:
    out, into = tensors["weight"].shape
    return nn.Linear(into, out, bias="bias" in tensors, device="meta")


def _bilinear(settings: dict[str, Any], tensors: Mapping[str, nn.Parameter]) -> nn.Module:
    out, one, other = tensors["weight"].shape
    return nn.Bilinear(one, other, out, bias="bias" in tensors, device="meta")


def _convolution(kind: Any, transposed: bool) -> Maker:
    def make(settings: dict[str, Any], tensors: Mapping[str, nn.Parameter]) -> nn.Module:
        one, other, *kernel = tensors["weight"].shape
        other *= settings["groups"]
        into, out = (one, other) if transposed else (other, one)
        taken = {name: settings[name] for name in ("stride", "padding", "dilation", "groups")}
        if transposed:
            taken["output_padding"] = settings["output_padding"]
        return kind(into, out, tuple(kernel), bias="bias" in tensors, device="meta", **taken)  # type: ignore[no-any-return]

    return make


def _layer_norm(settings: dict[str, Any], tensors: Mapping[str, nn.Parameter]) -> nn.Module:
    affine, bias = "weight" in tensors, "bias" in tensors
    return nn.LayerNorm(settings["normalized_shape"], settings["eps"], affine, bias=bias, device="meta")


def _rms_norm(settings: dict[str, Any], tensors: Mapping[str, nn.Parameter]) -> nn.Module:
    return nn.RMSNorm(settings["normalized_shape"], settings["eps"], "weight" in tensors, device="meta")


def _group_norm(settings: dict[str, Any], tensors: Mapping[str, nn.Parameter]) -> nn.Module:
    return nn.GroupNorm(settings["num_groups"], tensors["weight"].shape[0], settings["eps"], device="meta")


def _embedding(settings: dict[str, Any], tensors: Mapping[str, nn.Parameter]) -> nn.Module:
    count, size = tensors["weight"].shape
    names = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    return nn.Embedding(count, size, **{name: settings[name] for name in names}, device="meta")


def _prelu(settings: dict[str, Any], tensors: Mapping[str, nn.Parameter]) -> nn.Module:
    return nn.PReLU(tensors["weight"].numel(), device="meta")


def _pad(settings: dict[str, Any], tensors: Mapping[str, nn.Parameter]) -> nn.Module | None:
    pad, mode = settings["pad"], settings["mode"]
    names = {"constant": "ConstantPad", "reflect": "ReflectionPad", "replicate": "ReplicationPad"}
    if mode not in names or len(pad) not in (2, 4, 6):
        return None
    kind = getattr(nn, f"{names[mode]}{len(pad) // 2}d")
    return kind(pad, settings["value"] or 0.0) if mode == "constant" else kind(pad)  # type: ignore[no-any-return]


@functools.cache
def _makers() -> Mapping[str, Maker]:
    """What makes the module of a call, by the call's key."""
    words = _PLAIN.split()
    makers = {key: _plain(getattr(nn, name)) for key, name in zip(words[::2], words[1::2], strict=True)}
    for n in (1, 2, 3):
        makers[f"conv{n}d"] = _convolution(getattr(nn, f"Conv{n}d"), False)
        makers[f"conv_transpose{n}d"] = _convolution(getattr(nn, f"ConvTranspose{n}d"), True)
    return {
        **makers, "linear": _linear, "bilinear": _bilinear, "layer_norm": _layer_norm, "rms_norm": _rms_norm,
        "group_norm": _group_norm, "embedding": _embedding, "prelu": _prelu, "pad": _pad,
    }  # fmt: skip
