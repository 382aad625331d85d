"""Making a graph fit parameters that have become smaller: it is run node by node, mended on the way, and compared."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch import nn

from graphwright.analysis import BothSides, Channels, Knowledge, shape_of
from graphwright.errors import PassError
from graphwright.ir import Graph, Node
from graphwright.ops import call_of
from graphwright.passes.parts.removed_channels import Removed
from graphwright.runtime import is_guard

_SIZED = frozenset({"view", "reshape", "expand", "unflatten", "broadcast_to"})
_TAKES_SIZES = _SIZED | {
    "zeros", "ones", "full", "empty", "rand", "randn", "new_zeros", "new_ones", "new_empty", "new_full", "arange",
    "repeat", "chunk", "split", "tensor_split", "split_with_sizes", "getitem", "narrow", "eye", "tril", "triu",
}  # fmt: skip


class Fitting(BothSides):
    """Runs a pruned module on the example; each node is mended before it runs, and its shape compared after."""

    def __init__(self, pruned: nn.Module, before: Graph, known: Knowledge, gone: Removed) -> None:
        super().__init__(pruned)
        self._known, self._gone = known, gone
        self._twin = dict(zip(self.graph.all_nodes(), before.all_nodes(), strict=True))
        self._numbers: dict[Node, Any] = {}  # numbers that are no longer what they were, with what they were

    def run_node(self, n: Node) -> Any:
        """Mend a node, run it, and compare. Raises PassError, with the place in the program."""
        twin = self._twin[n]
        known = self._known
        before, dims = known.shapes.get(twin), known.dims.get(twin)
        if n.op not in ("placeholder", "output", "get_attr", "call_module"):
            self._mend(n, twin, dims, before)
        inputs = self.inputs(n)
        if is_guard(n) and self.is_second:
            return None
        try:
            value = self.run_plain(n, inputs)
        except PassError:
            raise
        except Exception as error:
            if self.is_second:
                raise  # it is made for other inputs, as it was
            if is_guard(n):
                raise PassError(f"a guard of the program does not hold any more: {error}", at=n.origin) from error
            raise self._refusal(n, f"{type(error).__name__}: {error}") from error
        if n.op == "output" or is_guard(n):
            return value
        after = shape_of(value)
        if isinstance(before, int | float) and not isinstance(before, bool) and after != before:
            self._numbers[n] = before
        wanted = self._gone.shape(dims, before)
        if not _fits(wanted, after):
            raise self._refusal(n, f"it gives {after} and not {wanted}")
        return value

    def _refusal(self, node: Node, why: str) -> PassError:
        return PassError(
            f"{node.name} does not fit the channels that are left: {why}",
            at=node.origin,
            fix="its sizes are written into the program: choose another group",
        )

    # ---- mending

    def _mend(self, node: Node, twin: Node, dims: Any, before: Any) -> None:
        call = call_of(node)
        if call is None:
            return
        if call.key in _SIZED and isinstance(dims, tuple):
            self._mend_sizes(node, call.key, call.arguments, dims, before)
        elif call.key in ("chunk", "split", "tensor_split", "split_with_sizes") and isinstance(dims, list):
            self._mend_pieces(node, call.arguments, dims, before)
        elif call.key == "getitem":
            self._mend_index(node, twin)
        elif call.key in ("layer_norm", "rms_norm") and isinstance(dims, tuple):
            self._mend_norm(node, call.arguments, dims, before)
        if self._numbers and call.key not in _TAKES_SIZES and isinstance(before, tuple):
            self._keep_numbers(node)

    def _number(self, arg: Any) -> Any:
        return self.env[arg] if isinstance(arg, Node) else arg

    def _mend_sizes(self, node: Node, key: str, arguments: Mapping[str, Any], dims: Any, before: Any) -> None:
        """Put the sizes into a `view` that it has now."""
        name = next((name for name in ("size", "shape", "sizes") if name in arguments), None)
        if name is None or not isinstance(arguments[name], tuple | list):
            return
        wanted = self._gone.shape(dims, before)
        first = arguments["dim"] % (len(wanted) - len(arguments[name]) + 1) if key == "unflatten" else 0
        sizes = list(arguments[name])
        changed = False
        for i, size in enumerate(sizes):
            now, want = self._number(size), wanted[first + i]
            if now in (-1, want) or dims[first + i] is None:
                continue
            if isinstance(size, Node) and dims[first + i].mixed:
                raise self._refusal(node, f"size {i} depends on the inputs and on {before[first + i]} channels")
            sizes[i], changed = want, True
        if not changed:
            return
        if key == "unflatten":
            node.args, node.kwargs = (node.args[0], arguments["dim"], tuple(sizes)), {}
        elif node.op == "call_method" and not (len(node.args) == 2 and isinstance(node.args[1], tuple | list)):
            node.args, node.kwargs = (node.args[0], *sizes), {}  # as it was written
        else:
            node.args, node.kwargs = (node.args[0], tuple(sizes)), {}

    def _mend_pieces(self, node: Node, arguments: Mapping[str, Any], dims: Any, before: Any) -> None:
        """Have pieces of the sizes that they have now."""
        owner = arguments["tensor" if "tensor" in arguments else "input"]
        place = self._number(arguments.get("dim", 0))
        sizes = [self._gone.shape(one, shape)[place] for one, shape in zip(dims, before, strict=True)]
        if sizes == [shape[place] for shape in before]:
            return
        node.op, node.target = "call_method", "split"
        node.args, node.kwargs = (owner, sizes, place), {}

    def _mend_norm(self, node: Node, arguments: Mapping[str, Any], dims: Any, before: Any) -> None:
        count = len(arguments["normalized_shape"])
        wanted = self._gone.shape(dims, before)[-count:]
        if tuple(map(self._number, arguments["normalized_shape"])) == wanted:
            return
        if "normalized_shape" in node.kwargs:
            node.kwargs = {**node.kwargs, "normalized_shape": wanted}
        else:
            node.args = (node.args[0], wanted, *node.args[2:])

    def _mend_index(self, node: Node, twin: Node) -> None:
        """Put the bounds into slices that they have now."""
        if node.target is not operator.getitem or not isinstance(node.args[0], Node):
            return
        dims = self._known.dims.get(twin.args[0])
        if not isinstance(dims, tuple):
            return
        index = node.args[1]
        items = list(index) if isinstance(index, tuple | list) else [index]
        rest = iter(_aligned(items, len(dims)))
        changed = False
        for i, item in enumerate(items):
            place = next(rest)
            if isinstance(item, slice) and place is not None and dims[place] is not None:
                made = self._slice(node, item, dims[place])
                changed |= made is not item
                items[i] = made
        if changed:
            node.args = (node.args[0], tuple(items) if isinstance(index, tuple | list) else items[0])

    def _slice(self, node: Node, item: slice, channels: Channels) -> slice:
        if item == slice(None):
            return item
        bounds = [self._before(each) for each in (item.start, item.stop, item.step)]
        taken = range(len(channels))[slice(*bounds)]
        kept = self._gone.kept(channels)
        if len(kept) == len(channels):
            return item
        if taken.step != 1:
            raise self._refusal(node, f"it takes every element at a distance of {taken.step}")
        begin = sum(1 for i in kept if i < taken.start)
        end = sum(1 for i in kept if i < taken.stop)
        start = None if item.start is None else begin
        stop = None if item.stop is None else end
        return slice(start, stop, item.step)

    def _before(self, arg: Any) -> Any:
        """What a number was in the original."""
        if not isinstance(arg, Node):
            return arg
        return self._numbers.get(arg, self.env[arg])

    def _keep_numbers(self, node: Node) -> None:
        """Have a number that goes into values be what it was: a scale, not a size."""

        def kept(arg: Any) -> Any:
            return self._numbers.get(arg, arg) if isinstance(arg, Node) else arg

        args = tuple([kept(arg) for arg in node.args])
        kwargs = {name: kept(arg) for name, arg in node.kwargs.items()}
        if args != node.args or kwargs != dict(node.kwargs):
            node.args, node.kwargs = args, kwargs


def _aligned(items: list[Any], rank: int) -> list[int | None]:
    """The dimension that each item of an index is about, None for none or several."""
    taken = sum(1 for item in items if item is not None and item is not Ellipsis)
    places: list[int | None] = []
    place = 0
    for item in items:
        if item is None:
            places.append(None)
        elif item is Ellipsis:
            places.append(None)
            place += rank - taken
        else:
            places.append(place)
            place += 1
    return places


def _fits(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, tuple):
        return isinstance(got, tuple) and wanted == got
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(_fits, wanted, got))
    return True
