"""Where a program computes what integers could: layers, products, sums and what only moves values."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.analysis import Shapes
from graphwright.engines import TensorEffects
from graphwright.ir import Graph, Node
from graphwright.ops import is_inplace, is_untouched, positional_inputs
from graphwright.quantization.attention import why_closed
from graphwright.quantization.layers import FORMS, KINDS
from graphwright.quantization.recurrent_layers import RECURRENT_FORMS, RECURRENT_KINDS
from graphwright.rewrite import Calls, GraphEffects
from graphwright.runtime import GraphModule

LAYERS = tuple(FORMS)  # the classes that have a form with an integer weight
_QUANTIZED = (*FORMS.values(), *RECURRENT_FORMS.values())
_RECURRENT = tuple(RECURRENT_FORMS)
# Other modules with weights: they are listed, and stay in float.
_WHOLE = {
    nn.RNN: "rnn",
    nn.RNNCell: "rnn_cell",
    nn.MultiheadAttention: "attention",
    nn.Bilinear: "bilinear",
    nn.EmbeddingBag: "embedding_bag",
}
_FUNCTIONS = {
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "embedding",
    "matmul", "bmm", "baddbmm", "addmm", "mm", "scaled_dot_product_attention", "einsum", "bilinear",
}  # fmt: skip
# What gives values of its input, in other places: on the grid of the input where that is on one.
_MOVES = {
    "max_pool1d", "max_pool2d", "max_pool3d", "reshape", "view", "flatten", "permute", "transpose", "squeeze",
    "unsqueeze", "contiguous", "movedim", "swapaxes", "expand", "pixel_shuffle", "channel_shuffle", "repeat",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One call that integers could compute.

    path: of its module, or of the module around it with the name of its value. target: the class or function that rules
    name. module: one of `LAYERS`, which has a weight of its own, or a recurrent one; None for functions. inputs: the
    values that it reads, of a recurrent one without its states.
    """

    node: Node
    path: str
    kind: str
    target: Any
    module: nn.Module | None
    inputs: tuple[Node, ...]
    trouble: str = ""  # why its weight cannot be written as integers


QUANTIZED = "quantization"  # the key in the meta of a module


def quantized_parts(root: nn.Module) -> dict[str, GraphModule]:
    """The modules inside of one that were quantized by themselves, by their paths."""
    found: dict[str, GraphModule] = {}
    for path, module in root.named_modules():
        is_quantized = path and isinstance(module, GraphModule) and QUANTIZED in module.meta
        if is_quantized and not any(path.startswith(f"{above}.") for above in found):
            found[path] = module
    return found


class Program:
    """A program with float layers, and what is known of its values."""

    def __init__(self, gm: GraphModule, shapes: Shapes) -> None:
        self.gm, self.shapes, self.calls = gm, shapes, Calls(gm)
        self._effects: dict[Graph, GraphEffects | None] = {}
        self.sites: list[Site] = []
        self.by_node: dict[Node, Site] = {}
        for node in gm.graph.all_nodes():
            site = self._site(node)
            if site is not None:
                self.sites.append(site)
                self.by_node[node] = site

    def _site(self, node: Node) -> Site | None:
        if node.op not in ("call_module", "call_function", "call_method"):
            return None
        module = self.calls.module(node)
        if module is not None and type(module) in _QUANTIZED:
            inputs = tuple(node.all_input_nodes)
            kind = {**KINDS, **RECURRENT_KINDS}[type(module)]
            return Site(node, str(node.target), kind, type(module), module, inputs)
        if isinstance(module, _RECURRENT):
            return self._recurrent_site(node, module)
        if module is not None and _has_layers(module):
            trouble = "its layers are inside of it: capture it with leaf_modules=None, which enters it"
            return Site(node, str(node.target), type(module).__name__, type(module), None, (), trouble)
        if module is not None and self.calls.of(node) is None:
            return None
        if module is not None and isinstance(module, (*LAYERS, *_WHOLE)):
            return self._module_site(node, module)
        call = self.calls.of(node)
        key = "" if call is None else call.key
        if call is None or not (key in _FUNCTIONS or key in ("add", "cat")):
            return None
        if key == "add" and not self._is_sum(node):
            return None
        values: Any = call.arguments.get("tensors") if key == "cat" else node.all_input_nodes
        if isinstance(values, Node):
            return None  # a list that the program fills: how many there are only a run knows
        inputs = tuple([value for value in values or () if self.is_float(value)])
        return Site(node, self.path_of(node), key, node.target, None, inputs) if inputs else None

    def _module_site(self, node: Node, module: nn.Module) -> Site:
        kinds = {**KINDS, **_WHOLE}
        kind = next(name for base, name in kinds.items() if isinstance(module, base))
        is_own = type(module) in LAYERS
        inputs = tuple(node.all_input_nodes)
        trouble = ""
        if isinstance(module, nn.MultiheadAttention):
            trouble = why_closed(node, module, self.shapes)
        elif not is_own and not isinstance(module, tuple(_WHOLE)):
            trouble = f"{type(module).__name__} may compute something else than a {kind}"
        elif is_own and not is_untouched(module):
            trouble = "it has hooks or a forward of its own"
        elif is_own and nn.utils.parametrize.is_parametrized(module):
            trouble = "its weight is parametrized"
        elif is_own and module.weight.dtype is not torch.float32:
            trouble = f"its weight is {module.weight.dtype}"
        elif is_own and (len(node.args) != 1 or node.kwargs):
            trouble = "it is called with more than its input"
        elif isinstance(module, nn.Embedding) and is_own and module.max_norm is not None:
            trouble = "it changes its weight when it is called"
        return Site(node, str(node.target), kind, type(module), module if is_own else None, inputs, trouble)

    def _recurrent_site(self, node: Node, module: nn.Module) -> Site:
        kind = next(RECURRENT_KINDS[base] for base in _RECURRENT if isinstance(module, base))
        (x, *_), kwargs = positional_inputs(module, node.args, node.kwargs)
        inputs = (x,) if isinstance(x, Node) else ()
        value, trouble = self.shapes.known_value(x) if inputs else None, ""
        if type(module) not in _RECURRENT:
            trouble = f"{type(module).__name__} may compute something else than a {kind}"
        elif not is_untouched(module):
            trouble = "it has hooks or a forward of its own"
        elif nn.utils.parametrize.is_parametrized(module):
            trouble = "its weight is parametrized"
        elif any(weight.dtype is not torch.float32 for weight in module.parameters()):
            trouble = "its weights are not all of single precision"
        elif isinstance(value, nn.utils.rnn.PackedSequence):
            trouble = "its input is a packed sequence, of which each step has another number of vectors"
        elif kwargs or not inputs or not isinstance(value, Tensor):
            trouble = "it is called with something else than a tensor"
        return Site(node, str(node.target), kind, type(module), module, inputs, trouble)

    def _is_sum(self, node: Node) -> bool:
        """Tell whether a node adds two tensors of one shape."""
        call = self.calls.of(node)
        if call is None or call.arguments.get("alpha") not in (None, 1) or len(node.all_input_nodes) != 2:
            return False
        shapes = [getattr(self.shapes.known_value(each), "shape", None) for each in (node, *node.all_input_nodes)]
        return None not in shapes and shapes[0] == shapes[1] == shapes[2] and all(map(self.is_float, node.args))

    def path_of(self, node: Node) -> str:
        """Where a node is: the path of the module around it, and its name."""
        around = node.origin.module if node.origin is not None else ""
        return f"{around}.{node.name}".lstrip(".")

    def is_float(self, value: Any) -> bool:
        """Tell whether a value is a tensor of single precision, with a dimension."""
        if not isinstance(value, Node):
            return False
        found = self.shapes.known_value(value)
        return isinstance(found, Tensor) and found.dtype is torch.float32 and found.dim() > 0

    def is_written(self, value: Node) -> bool:
        """Tell whether something writes to a value in place: what is made of it once may not be what is read later."""
        graph = value.graph
        if graph not in self._effects:
            has_writes = any(is_inplace(node) for node in graph.nodes if node.op.startswith("call"))
            self._effects[graph] = TensorEffects(graph, self.calls, self.shapes) if has_writes else None
        effects = self._effects[graph]
        return effects is not None and effects.writer_of(value) is not None

    def moved(self, node: Node) -> Node | None:
        """The one value whose items a node gives, in other places or with zeros around; None where it computes."""
        if node.op not in ("call_module", "call_function", "call_method"):
            return None
        call = self.calls.of(node)
        if call is None or call.arguments.get("return_indices"):
            return None
        if call.key not in _MOVES and not _is_zero_padding(call.key, call.arguments):
            return None
        source = call.arguments.get("input")
        return source if isinstance(source, Node) and self.is_float(source) else None

    def rectified(self, node: Node) -> Node | None:
        """What a node is the rectified value of: `relu(x)` of x; None for others."""
        call = self.calls.of(node) if node.op in ("call_module", "call_function", "call_method") else None
        if call is None or call.key not in ("relu", "relu6", "hardtanh"):
            return None
        source = call.arguments.get("input")
        return source if isinstance(source, Node) else None


def _has_layers(module: nn.Module) -> bool:
    """Tell whether a module that is called as one has layers inside that could have weights of integers."""
    if isinstance(module, (*LAYERS, *_RECURRENT, *_WHOLE)):
        return False
    return any(isinstance(each, LAYERS) for each in module.modules())


def _is_zero_padding(key: str, given: Mapping[str, Any]) -> bool:
    """Tell whether a call puts zeros around a value, which every grid has."""
    return key == "pad" and given.get("mode") in (None, "constant") and given.get("value") in (None, 0)


def owners_of_tensors(gm: GraphModule) -> Counter[int]:
    """How many modules have each parameter, by its id."""
    return Counter(id(tensor) for module in gm.modules() for tensor in module.parameters(recurse=False))


def after(value: Node) -> Node:
    """The node before which what is made of a value goes: the one behind it, or the first that reads a parameter."""
    if value.op != "placeholder":
        return value.next
    return min(user for user in value.users if user.graph is value.graph)
