"""Lists of the program whose length is a size: `list(x)`, `x.unbind()`, `x.split(2)`, `x.tolist()`.

They are passed on whole, gone over and read item by item, as many as a run has. Whoever takes one apart another way
gives it up: the capture starts again with a list that is as long as the example's, under a guard.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.loop_lists import LoopList, LoopTuple
from graphwright.capture.containers.open_iterables import OpenRange
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.state.symbols import UNKNOWN, as_number, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.values import ANY, NumberKind

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture, TypedCapture


def _place(recorder: Capture) -> Any:
    """What tells a list of the running line in the plan; None where the example has to say how long it is."""
    place = ("rows", recorder.questions.place())
    return None if recorder.plan.control_flow != "stage" or place in recorder.plan.ways else place


def _open_list(
    recorder: Capture, node: Node, items: Iterable[Any], place: Place | None, name: str, kind: type = LoopList
) -> Any:
    """The list or tuple that a node gives, whose length is a size: of the example, it has these items."""
    made = kind(items, recorder, node, name, place)
    made.is_sized = True

    def give_up() -> None:
        recorder.plan.ways[place] = "guard"

    made._give_up = give_up
    return made


def of_unknown(recorder: Capture, node: Node) -> LoopList:
    """What a node gives under symbolic tracing, as a list of whatever it holds."""
    made = LoopList([], recorder, node, node.name, recorder.questions.place())
    made._admit_kind(ANY)
    return made


def rows(recorder: Capture, tensor: TensorProxy | Proxy, is_list: bool = True) -> LoopList | None:
    """`list(tensor)`, or what goes over the tensor itself; None where the example has to say how many there are."""
    if not isinstance(tensor, TensorProxy):
        return of_unknown(recorder, recorder.node("call_function", list, (tensor.node,), {}, "list_"))
    capture, place = tensor.recorder, _place(recorder)
    if place is None or tensor.example.dim() == 0 or not _may_differ(capture, tensor, 0):
        return None
    node = capture.region.latest(tensor.node_of())
    if is_list:
        name = recorder.target_name() or "rows"
        node = recorder.node("call_function", list, (node,), {}, name=name)
    examples = capture.examples.run(torch.unbind, (tensor.example,), {})
    made: LoopList = _open_list(recorder, node, _stand_ins(capture, examples, node), place, node.name)
    return made


def numbers(recorder: TypedCapture, values: OpenRange) -> LoopList | None:
    """`list(range(n))`; None where the example has to say how many numbers there are."""
    place, example = _place(recorder), values.example()
    if place is None or not example or values.is_data:
        return None
    name = recorder.target_name() or "numbers"
    node = recorder.node("call_function", list, (values.argument(recorder),), {}, name=name)
    items = [recorder.numbers.of_node(node, number, int, is_sure=True) for number in example]
    made: LoopList = _open_list(recorder, node, items, place, node.name)
    return made


def repeated(recorder: TypedCapture, values: list[Any], count: int) -> LoopList | None:
    """`[value] * count`; None where that is known, or where each item could be changed by itself."""
    symbol = symbol_of(count)
    if symbol is None or symbol.function == "constant" or not (symbol.is_data or symbol.has_value):
        return None
    place, items = _place(recorder), values * (1 if symbol.is_data else int(symbol.hint))
    if place is None or not items or not all(map(_is_value, values)):
        return None
    name = recorder.target_name() or "repeated"
    arguments = (recorder.argument(values), recorder.argument(count))
    node = recorder.node("call_function", operator.mul, arguments, {}, name=name)
    made: LoopList = _open_list(recorder, node, items, place, node.name)
    if symbol.is_data:
        made._give_up = functools.partial(recorder.questions.refusals.refuse_data, count)
    return made


def _is_value(item: Any) -> bool:
    if isinstance(item, tuple):
        return all(map(_is_value, item))
    return item is None or isinstance(item, bool | int | float | str | torch.Tensor) or symbol_of(item) is not None


def given(
    recorder: TypedCapture, path: str, make: Callable[[], Node], tensors: Sequence[torch.Tensor]
) -> LoopList | None:
    """A list of tensors among the inputs; None where the example has to say how many there are."""
    plan, place = recorder.plan, ("rows", path)
    if plan.control_flow != "stage" or plan.is_one_of_several or place in plan.ways or not tensors:
        return None
    kinds = {(type(tensor), tensor.dtype, tensor.dim(), tensor.device) for tensor in tensors}
    if len(kinds) > 1:
        return None
    node = make()
    items = _stand_ins(recorder, map(recorder.examples.of, tensors), node)
    made: LoopList = _open_list(recorder, node, items, place, path)
    return made


def pieces(
    recorder: TypedCapture,
    node: Node,
    function: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    examples: Sequence[torch.Tensor],
) -> LoopTuple | None:
    """The pieces that a tensor is cut into, where their number is a size; None where the example has to say it."""
    place = _place(recorder)
    if place is None or not examples or is_count_known(recorder, function, args, kwargs):
        return None
    if function == "chunk" and symbol_of(_second(args, kwargs, "chunks")) is None:
        return None  # nearly always as many as it says
    made: LoopTuple = _open_list(recorder, node, _stand_ins(recorder, examples, node), place, node.name, LoopTuple)
    return made


def is_count_known(recorder: TypedCapture, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether a tensor is cut into as many pieces as the example's whatever its sizes are."""
    tensor = args[0] if args else kwargs.get("self", kwargs.get("input", kwargs.get("tensor")))
    if not isinstance(tensor, TensorProxy):
        return False
    function = function.removeprefix("unsafe_").removesuffix("_copy")
    if function == "unbind":
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        return type(dim) is int and not _may_differ(recorder, tensor, dim)
    how = _second(args, kwargs, "split_size", "split_size_or_sections", "split_sizes", "chunks", "sections")
    if function in ("split", "chunk") and not isinstance(how, tuple | list):
        dim = args[2] if len(args) > 2 else kwargs.get("dim", 0)
        return type(how) is int and type(dim) is int and not _may_differ(recorder, tensor, dim)
    return type(how) is int or type(how) in (tuple, list, torch.Size)


def _second(args: tuple[Any, ...], kwargs: dict[str, Any], *names: str) -> Any:
    return args[1] if len(args) > 1 else next((kwargs[name] for name in names if name in kwargs), None)


def _may_differ(recorder: TypedCapture, tensor: TensorProxy, dim: int, or_empty: bool = False) -> bool:
    """Tell whether a size may be another one; where it is 0, what is in a list of that length is not known."""
    is_open = recorder.numbers.size_symbol(tensor, dim).function != "constant"
    return bool(is_open and (or_empty or tensor.example.shape[dim]))


def _stand_ins(recorder: TypedCapture, examples: Iterable[torch.Tensor], node: Node) -> list[Any]:
    return [TensorProxy.make(recorder, example, node) for example in examples]


def listed(recorder: TypedCapture, tensor: TensorProxy) -> Any:
    """`tensor.tolist()`: numbers of the program in lists, as long as a run has them."""
    rank = tensor.example.dim()
    if not rank:
        recorder.numbers.take_rank(tensor)
        return as_number(recorder.numbers.item(tensor))
    with torch._C.DisableTorchFunction():
        example = tensor.example
        kind = bool if example.dtype is torch.bool else float if example.is_floating_point() else int
        values = example.tolist() if recorder.examples.is_real else None
    place = _place(recorder)
    is_open = place is not None and _may_differ(recorder, tensor, 0, rank == 1) and not recorder.unpacked_names()
    inner: list[int | None] = [  # None: as long as a run has them
        None
        if is_open and (*place, "inside") not in recorder.plan.ways and _may_differ(recorder, tensor, dim)
        else recorder.questions.guards.guard(recorder.numbers.size_symbol(tensor, dim))
        for dim in range(1 if is_open else 0, rank)
    ]
    name = recorder.target_name() if is_open else ""
    node = recorder.node("call_method", "tolist", (recorder.argument(tensor),), {}, name=name)
    if not is_open:
        return _rows(recorder, node, inner, kind, values, example.shape, place)
    items = _rows(recorder, node, [example.shape[0], *inner], kind, values, example.shape, place)
    made = _open_list(recorder, node, items, place, node.name)
    if not items:
        made._admit_kind(NumberKind(kind))
    return made


def _rows(
    recorder: TypedCapture,
    node: Node,
    lengths: list[int | None],
    kind: type,
    values: list[Any] | None,
    sizes: Sequence[int],
    place: Place,
) -> list[Any]:
    length, *inner = lengths
    rows: list[Any] = []
    for i in range(sizes[0]):
        value = UNKNOWN if values is None else values[i]
        if inner:
            row = recorder.node("call_function", operator.getitem, (node, i), {}, "getitem")
            rows.append(_rows(recorder, row, inner, kind, None if values is None else value, sizes[1:], place))
        else:
            symbol = recorder.numbers.data_symbol(value, kind, operator.getitem, (node, i))
            symbol.key = "row", id(node), i
            rows.append(as_number(symbol))
    return _open_list(recorder, node, rows, (*place, "inside"), "") if length is None else rows
