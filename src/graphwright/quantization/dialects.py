"""Quantized programs as other backends want them: other grids, of the ranges that were seen in calibration."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from graphwright.analysis import Shapes
from graphwright.errors import QuantizationError
from graphwright.ir import Node
from graphwright.quantization.affine import dequantize, quantize
from graphwright.quantization.backends import BACKENDS, Backend
from graphwright.quantization.converting import put_on_grids
from graphwright.quantization.decide import Decision, put_sums
from graphwright.quantization.grids import Range, ValueGrid, activation_scheme, grid_for, root_of, value_grids
from graphwright.quantization.record import record_in
from graphwright.quantization.results import results_of
from graphwright.quantization.schemes import QConfig, Scheme
from graphwright.quantization.sites import QUANTIZED, Program
from graphwright.runtime import GraphModule, entry_points_of

DIALECTS: Mapping[str, Backend] = {
    "ort": BACKENDS["onnxruntime"],
    "openvino": BACKENDS["openvino"],
    "tensorrt": BACKENDS["tensorrt"],
}


def in_dialect(gm: GraphModule, dialect: str) -> GraphModule:
    """Copy a quantized program, with its values on the grids that a backend computes with.

    dialect: "ort" and "openvino" have uint8 on asymmetric grids, before and behind what moves values, and no relu where
    a grid cuts off what is below 0; "tensorrt" has int8 with zero points 0, at both operands of sums. The weights stay
    the integers that they are.

    Raises QuantizationError for a module that is not quantized, a dialect that is not known, and a module that is in
    another one already, whose grids do what operations did.
    """
    record = record_in(gm)
    if dialect not in DIALECTS:
        raise QuantizationError(f"there is no dialect {dialect!r}", fix=f"dialects are {', '.join(DIALECTS)}")
    before = record.get("dialect", dialect)
    if before != dialect:
        raise QuantizationError(
            f"the module is in the dialect {before!r} already", fix="give the reference program: convert(prepared)"
        )
    if record["inputs"] is None:
        raise QuantizationError(
            "the module was captured with several calls, or with objects: a dialect is for one call of tensors",
            fix='lower it with engine="torch", whose kernels take all of its calls',
        )
    backend = DIALECTS[dialect]
    made = copy.copy(gm)
    entry_points_of(made)["forward"].form = None
    if "dialect" in record:
        made.recompile()
        return made
    _strip(made)
    args, kwargs = example_of(gm)
    program = Program(made, Shapes(made, args, kwargs))
    decisions = _decisions(program, record, backend)
    ranges = _ranges(program, record)
    _leave_unknown(decisions, ranges)
    grids = value_grids(program, decisions, ranges, backend)
    results = _put_results(program, decisions, ranges, grids, backend) if backend.writes_results else ()
    read = put_on_grids(grids, decisions)
    if backend.writes_results:
        _read_results(program, results, read)
        _leave_padded(program, grids, read)
    _drop_rectifiers(program, grids, backend)
    made.recompile()
    made.meta = {**gm.meta, QUANTIZED: {**record, "dialect": dialect}}
    return made


def example_of(gm: GraphModule) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call like that which a quantized module was captured with: of its shapes, random between its bounds.

    Raises QuantizationError where none is known.
    """
    if record_in(gm)["inputs"] is None:
        raise QuantizationError(
            "the module was captured with several calls, or with objects such as caches, which are not kept",
            fix="give a call: args=..., kwargs=...",
        )
    drawn = torch.Generator().manual_seed(0)
    args, kwargs = pytree.tree_map(
        functools.partial(_made, drawn),
        record_in(gm)["inputs"],
        is_leaf=lambda each: isinstance(each, dict) and "dtype" in each,
    )
    return tuple(args), dict(kwargs)


def _made(drawn: torch.Generator, leaf: Any) -> Any:
    if not isinstance(leaf, dict) or "dtype" not in leaf:
        return leaf
    shape, dtype = tuple(leaf["shape"]), getattr(torch, leaf["dtype"])
    low, high = leaf.get("bounds", (0, 0))
    if dtype.is_floating_point:
        return torch.empty(shape).uniform_(low, high, generator=drawn).to(dtype)
    return torch.randint(int(low), int(high) + 1, shape, generator=drawn).to(dtype)


def _strip(gm: GraphModule) -> None:
    """Take all roundings out of a program."""
    for graph in gm.graph.all_graphs():
        for node in list(graph.nodes):
            written = node.args[0] if node.op == "call_function" and node.target is dequantize else None
            if isinstance(written, Node) and written.target is quantize:
                value = written.args[0]
                assert isinstance(value, Node)
                node.replace_all_uses_with(value)
                graph.erase_node(node)
                if not written.users:
                    graph.erase_node(written)


def _decisions(program: Program, record: Mapping[str, Any], backend: Backend) -> dict[Node, Decision]:
    """What becomes of each site: layers that were static stay so, and sums between them are again."""
    modes = {row["path"]: row["decision"] for row in record["rows"]}
    config = QConfig(Scheme(backend.activation, is_symmetric=backend.is_symmetric))
    decisions: dict[Node, Decision] = {}
    for site in program.sites:
        mode = modes.get(site.path, "float") if site.module is not None else "float"
        if mode == "static" and site.kind in backend.static:
            decisions[site.node] = Decision(site, mode, config, "", None, site.inputs)
        else:
            decisions[site.node] = Decision(site, "float" if mode == "static" else mode, None, "", None)
    put_sums(program, decisions, None, backend)
    return decisions


def _ranges(program: Program, record: Mapping[str, Any]) -> dict[Node, Range]:
    known = {name: Range(*found) for name, found in record["ranges"].items()}
    return {node: known[node.name] for node in program.gm.graph.all_nodes() if node.name in known}


def _leave_unknown(decisions: Mapping[Node, Decision], ranges: Mapping[Node, Range]) -> None:
    """Leave sums in float of whose operands no range was seen; a layer of which none was is one that no batch met."""
    for decision in decisions.values():
        if decision.mode == "static" and any(edge not in ranges for edge in decision.edges):
            decision.mode, decision.config, decision.edges = "float", None, ()


def _put_results(
    program: Program,
    decisions: Mapping[Node, Decision],
    ranges: Mapping[Node, Range],
    grids: dict[Node, ValueGrid],
    backend: Backend,
) -> list[Node]:
    """Put the results of layers and arithmetic on grids, as far as their ranges are known; gives these."""
    moved = {root_of(edge, program): grid for edge, grid in grids.items()}
    found = []
    for value, decision in results_of(program, decisions).items():
        if not all(each in grids for each in _operands(value, program)):
            continue
        if value not in grids and value in moved:
            grids[value] = moved[value]
        elif value not in grids and value in ranges and decision.config is not None:
            grids[value] = grid_for(ranges[value], activation_scheme(decision.config, backend))
        if value in grids:
            found.append(value)
    return found


def _operands(result: Node, program: Program) -> list[Node]:
    """What a result is computed of."""
    return (program.rectified(result) or result).all_input_nodes


def _read_results(program: Program, results: Iterable[Node], read: Mapping[Node, Node]) -> None:
    """Have all that reads a result read the integers, and what computes it read those of its operands."""
    for value in results:
        for operand in _operands(value, program):
            if operand in read:
                (program.rectified(value) or value).replace_input_with(operand, read[operand])
        for user in list(value.users):
            if user is not read[value].args[0]:
                user.replace_input_with(value, read[value])


def _leave_padded(program: Program, grids: Mapping[Node, ValueGrid], read: Mapping[Node, Node]) -> None:
    """Leave what is integers with zeros around as it is: ONNX Runtime has that in the convolution behind it."""
    for value in grids:
        call = program.calls.of(value)
        if call is not None and call.key == "pad" and value.args[0] in read.values():
            written = read[value].args[0]
            assert isinstance(written, Node)
            for each in (read[value], written):
                each.replace_all_uses_with(value)
                each.graph.erase_node(each)


def _drop_rectifiers(program: Program, grids: Mapping[Node, ValueGrid], backend: Backend) -> None:
    """Leave out what only cuts off values that the grid behind it cuts off."""
    if backend.is_symmetric:
        return
    for value, grid in grids.items():
        source = program.rectified(value)
        readers = [user for user in value.users if user.target is quantize]
        if source is None or len(readers) != len(value.users) or grid.zero_point != 0:
            continue
        call = program.calls.of(value)
        most = {"relu": None, "relu6": 6.0}.get("" if call is None else call.key, 0.0)
        if most is None or (most and grid.scale * 255 <= most * (1 + 1e-4)):
            value.replace_all_uses_with(source)
            value.graph.erase_node(value)
