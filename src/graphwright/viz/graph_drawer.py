"""Draw a graph for Graphviz: a box a node, with what is known of it, and an arrow for each use."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphwright.codegen import parse_stack_trace as parse_stack
from graphwright.errors import PassError
from graphwright.ir import Node, argument_text, qualified_name, short_name
from graphwright.ops import normalize_function
from graphwright.passes import TensorMetadata
from graphwright.runtime import GraphModule, as_captured, graph_of

if TYPE_CHECKING:
    import pydot

HAS_PYDOT = importlib.util.find_spec("pydot") is not None

_OPCODE_COLORS = {
    "placeholder": '"AliceBlue"',
    "call_module": "LemonChiffon1",
    "get_attr": "LightGrey",
    "output": "PowderBlue",
}

# Calls have the color that the hash of their target picks, so that the same operator is easy to find again.
_TARGET_COLORS = (
    *("CadetBlue1", "Coral", "DarkOliveGreen1", "DarkSeaGreen1", "GhostWhite", "Khaki1", "LavenderBlush1"),
    *("LightSkyBlue", "MistyRose1", "MistyRose2", "PaleTurquoise2", "PeachPuff1", "Salmon", "Thistle1", "Thistle3"),
    "Wheat1",
)

_BOX: dict[str, Any] = {"style": '"filled,rounded"', "fontcolor": "#000000"}
_WEIGHT: dict[str, Any] = {"fillcolor": "Salmon", **_BOX}

# `\l` and `\n` are Graphviz's own: the lines of a label end with them.
_END = r"\n"
_LEFT = r"\l"
_OPEN, _CLOSE = r"\{", r"\}"


class FxGraphDrawer:
    """Draws a module's graph, and those of the captured modules that it calls.

    Parameters and buffers of called modules are lines in the boxes of these; with `ignore_parameters_and_buffers` they
    are left out, and where it is False they are boxes of their own, as torch.fx draws them. `get_attr` nodes are boxes
    unless `ignore_getattr`. Arguments that contain nodes are left to the arrows, unless
    `skip_node_names_in_args` is False. `parse_stack_trace` adds the user's line, `normalize_args` names the arguments
    of functions, and `dot_graph_shape` is Graphviz's name of the shape of boxes ("record").

    The drawings are `pydot.Dot`: `to_string()`, `write_svg(path)`. Raises PassError (a RuntimeError) without pydot.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x + 1)
    >>> if HAS_PYDOT:
    ...     dot = FxGraphDrawer(gm, "increment").get_dot_graph()
    ...     assert dot.get_name() == "increment" and len(dot.get_edges()) == 2
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool | None = None,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        if not HAS_PYDOT:
            raise PassError(
                "FXGraphDrawer requires the pydot package to be installed", fix='pip install "graphwright[viz]"'
            )
        graph_module = as_captured(graph_module)
        self._name = name
        self._shape = "record" if dot_graph_shape is None else dot_graph_shape
        self._draws_attributes = not ignore_getattr
        self._draws_weights = ignore_parameters_and_buffers is False
        self._tells_weights = ignore_parameters_and_buffers is None
        self._skips_nodes = skip_node_names_in_args
        self._shows_lines = parse_stack_trace
        self._normalizes = normalize_args
        self._drawings = {name: self._draw(graph_module, name)}
        for node in graph_of(graph_module).nodes:
            if node.op == "call_module" and isinstance(part := _module_of(graph_module, node), GraphModule):
                path = f"{name}_{node.target}"
                self._drawings[path] = self._draw(part, path)

    def get_dot_graph(self, submod_name: str | None = None) -> pydot.Dot:
        """Return the drawing of the module, or of one that it calls. Raises KeyError for any other name."""
        return self.get_main_dot_graph() if submod_name is None else self.get_submod_dot_graph(submod_name)

    def get_main_dot_graph(self) -> pydot.Dot:
        """Return the drawing of the module itself."""
        return self._drawings[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> pydot.Dot:
        """Return the drawing of a captured module that the module calls. Raises KeyError for any other name."""
        return self._drawings[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, pydot.Dot]:
        """Return every drawing by its name: the module's, and `name_target` for each captured module it calls."""
        return self._drawings

    def _draw(self, module: GraphModule, name: str) -> pydot.Dot:
        import pydot

        drawing = pydot.Dot(name, rankdir="TB")
        shown = [node for node in graph_of(module).nodes if self._draws_attributes or node.op != "get_attr"]
        for node in shown:
            label = self._label(module, node)
            box = pydot.Node(node.name, label=label, shape=self._shape, fillcolor=_color_of(node), **_BOX)
            drawing.add_node(box)
            if self._draws_weights and node.op == "call_module":
                self._draw_weights(drawing, node, _module_of(module, node))
        for node in shown:
            for user in node.users:
                drawing.add_edge(pydot.Edge(node.name, user.name))
        return drawing

    def _draw_weights(self, drawing: pydot.Dot, node: Node, module: nn.Module) -> None:
        import pydot

        if isinstance(module, GraphModule):
            return
        for path, value in chain(module.named_parameters(), module.named_buffers()):
            name = f"{node.name}.{path}"
            kind = f"{name}|op_code=get_parameter" if isinstance(value, nn.Parameter) else rf"buffer{_LEFT}"
            label = f"{{{kind}{value.dtype}{list(value.shape)}{_END}}}"
            drawing.add_node(pydot.Node(name, label=label, **_WEIGHT, shape=self._shape))
            drawing.add_edge(pydot.Edge(name, node.name))

    def _label(self, module: GraphModule, node: Node) -> str:
        label = f"{{name=%{node.name}|op_code={node.op}{_END}"
        if node.op == "call_module":
            label += self._module_label(_module_of(module, node))
        else:
            label += f"|target={_plain(_type_name(node.target))}{_END}{self._arguments(node)}"
            label += f"|num_users={len(node.users)}{_END}"
        label += _meta_label(node.meta.get("tensor_meta"))
        if self._shows_lines and node.stack_trace is not None and (call := parse_stack(node.stack_trace)):
            label += f"|file={_plain(f'{_short_path(call.file)}:{call.lineno} {call.code}')}{_END}"
        return label + "}"

    def _module_label(self, module: nn.Module) -> str:
        constants: Any = getattr(module, "__constants__", ())
        lines = [_plain(f"{name}: {getattr(module, name)}") for name in constants if hasattr(module, name)]
        if self._tells_weights and not isinstance(module, GraphModule):
            weights = chain(module.named_parameters(), module.named_buffers())
            lines += [f"{path}: {value.dtype}{list(value.shape)}" for path, value in weights]
        return f"{_END}{_type_name(module)}{_END}|{_END.join(lines)}{_END}"

    def _arguments(self, node: Node) -> str:
        args, kwargs = node.args, node.kwargs
        if self._normalizes and node.op == "call_function":
            # A call that fits several overloads, or none, stays as it is.
            with contextlib.suppress(RuntimeError, TypeError):
                normal = normalize_function(node.target, args, dict(kwargs), normalize_to_only_use_kwargs=True)
                args, kwargs = normal or (args, kwargs)
        positional = [self._argument(value) for value in args if self._is_shown(value)]
        named = [f"{_plain(name)}: {self._argument(value)}" for name, value in kwargs.items() if self._is_shown(value)]
        text = f"|args={_listed(positional, '(', ')')}" if positional else ""
        return text + (f"|kwargs={_listed(named, _OPEN, _CLOSE)}" if named else "")

    def _is_shown(self, value: Any) -> bool:
        return not (self._skips_nodes and _contains_node(value))

    def _argument(self, value: Any) -> str:
        return _plain(argument_text(value, 8))


def _contains_node(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return any(map(_contains_node, value)) if isinstance(value, (list, tuple)) else isinstance(value, Node)


# What means something in labels: to records, to the language itself, or as an entity.
_ESCAPES = str.maketrans(
    {"{": _OPEN, "}": _CLOSE, "|": "&#124;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\\": "&#92;", "&": "&amp;"}
    | {"\n": _LEFT, "\r": " "}
)


def _plain(text: str) -> str:
    """What a program says, so that a label shows it as it is."""
    return text.translate(_ESCAPES)


def _listed(items: list[str], left: str, right: str) -> str:
    if len(items) == 1:
        return f"{left}{items[0]},{right}"
    return left + _LEFT + "".join(f"{item},{_END}" for item in items) + right + _LEFT


def _color_of(node: Node) -> str:
    if node.op in _OPCODE_COLORS:
        return _OPCODE_COLORS[node.op]
    target = node.target if isinstance(node.target, str) else qualified_name(node.target)
    number = int(hashlib.md5(target.encode(), usedforsecurity=False).hexdigest()[:8], 16)
    return _TARGET_COLORS[number % len(_TARGET_COLORS)]


def _module_of(module: nn.Module, node: Node) -> nn.Module:
    return module.get_submodule(str(node.target))


def _type_name(target: Any) -> str:
    if isinstance(target, nn.Module):
        return torch.typename(target)
    return target if isinstance(target, str) else short_name(target)


def _short_path(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def _meta_label(meta: Any) -> str:
    """Write what ShapeProp noted. Raises RuntimeError where something else was noted."""
    if meta is None:
        return ""
    if isinstance(meta, TensorMetadata):
        return _tensor_label(meta)
    if isinstance(meta, dict):
        return "".join(map(_meta_label, meta.values()))
    if isinstance(meta, (list, tuple)):
        return "".join(map(_meta_label, meta))
    raise RuntimeError(f"Unsupported tensor meta type {type(meta)}")


def _tensor_label(meta: TensorMetadata) -> str:
    facts: dict[str, Any] = {
        "dtype": meta.dtype,
        "shape": tuple(meta.shape),
        "requires_grad": meta.requires_grad,
        "stride": meta.stride,
    }
    if meta.is_quantized:
        scheme = meta.qparams["qscheme"]
        is_per_tensor = scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric)
        prefix = "q" if is_per_tensor else "q_per_channel"
        facts[f"{prefix}_scale"] = meta.qparams["scale"]
        facts[f"{prefix}_zero_point"] = meta.qparams["zero_point"]
        if not is_per_tensor:
            facts["q_per_channel_axis"] = meta.qparams["axis"]
        facts["qscheme"] = scheme
    return "".join(f"|{name}={value}{_END}" for name, value in facts.items() if not isinstance(value, Tensor))
