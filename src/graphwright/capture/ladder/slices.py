"""What depends on the slice that a function given to `torch.vmap` runs on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphwright.capture.state.regions import Region
from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node

if TYPE_CHECKING:
    from graphwright.capture.state.rungs import QuestionSubject


def is_of_slice(region: Region, subject: QuestionSubject) -> bool:
    """Tell whether the data behind a value is another one in each slice, so that torch cannot tell it either."""
    regions: list[Region] = []
    batched, around = 0, region if region.outer is not None else None
    while around is not None:
        regions.append(around)
        batched = len(regions) if around.transform == "torch.vmap" else batched
        around = around.outer
    if not batched:
        return False
    regions = regions[:batched]
    return any(_is_from_inputs(node, regions) for node in _nodes_behind(subject))


def _is_from_inputs(node: Node, regions: list[Region]) -> bool:
    """Tell whether a value is computed from what the transforms of these regions give to their functions."""
    waiting, seen = [node], set()
    while waiting:
        node = waiting.pop()
        region = next((region for region in regions if region.graph is node.graph), None)
        if region is None or node in seen:
            continue
        seen.add(node)
        if node.op == "placeholder":
            outside = [outer for outer, inner in region.lifted.items() if inner is node]
            if not outside:
                return True
            waiting += outside
        waiting += node.all_input_nodes
    return False


def _nodes_behind(subject: QuestionSubject | Node) -> Iterator[Node]:
    """The nodes that compute a tensor, or the tensors that a number of data comes from; none for sizes."""
    if isinstance(subject, Node):
        yield subject
    elif isinstance(subject, TensorProxy):
        yield subject.recorder.region.latest(subject.node_of())
    else:
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        for arg in symbol.args if symbol is not None and symbol.is_data else ():
            yield from _nodes_behind(arg)
