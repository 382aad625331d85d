"""Which values of a program are one: `a is b` and `a in values`, where only a run knows.

What branches and loops give, and `contiguous` or `to`, may be the very tensor that they were given, and two inputs may
be one tensor.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.effects.kept_kinds import Unreadable
from graphwright.capture.numbers.classes import ask_class
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.proxies.uncertain import asked_for_class, is_input
from graphwright.capture.state.running import running
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.ops import may_share_memory

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture


def is_same(left: Any, right: Any) -> Any:
    """`left is right`: a bool of the program where two tensors may be one when it runs.

    Raises what ends the capture where the class of a value matters that is a number on some ways.
    """
    for value in left, right:
        if type(value) is Unreadable:
            value._refuse()
    if left is right:
        return True
    for value in left, right:
        if type(value) is TensorProxy and value.is_mixed:
            raise asked_for_class(value)
    if is_symbolic(left) or is_symbolic(right):
        return _is_same_number(left, right)
    recorder = _recorder_of_tensors(left, right)
    if recorder is None:
        _tell_apart(left, right)
        items = _nodes_of_items(left, right)
        if items and None not in items:
            return _asked_of_run(items)
    if recorder is None or not _may_be_one(left, right):
        capture = running()
        for value in left, right:
            if capture is not None and is_input(value):
                capture.ledger.ask_of_input(value, "class")
        return False
    nodes = recorder.argument(left), recorder.argument(right)
    if all(isinstance(node, Node) for node in nodes) and not may_share_memory(*nodes, lambda node: None):
        return False
    return _asked_of_run(nodes)


def _asked_of_run(nodes: Iterable[Any]) -> Any:
    recorder: Any = running()
    node = recorder.node("call_function", operator.is_, tuple(nodes), {}, "is_same")
    return recorder.numbers.of_node(node, UNKNOWN, bool)


def _nodes_of_items(*values: Any) -> list[Any]:
    """The nodes of two lists or dicts, of which one has come out of a list or dict to which the program adds."""
    capture = running()
    keeping = None if capture is None or capture.typed is None else capture.typed.keeping
    nodes = [] if keeping is None else keeping.nodes_of_items(*values)
    if nodes and any(isinstance(value, tuple) for value in values):
        _refuse_here(
            "the program asks whether two tuples are one object, of which only a run knows", "compare what is in them"
        )
    return nodes


def _refuse_here(what: str, fix: str) -> None:
    capture: Any = running()
    capture.questions.refusals.refuse_here(what, fix)


def _tell_apart(*values: Any) -> None:
    """Note that the program asks whether two objects among its inputs are one."""
    capture = running()
    if capture is not None and capture.typed is not None:
        capture.typed.told_apart.update(map(id, values))


def identity_asked(
    recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`id(value)`: it is told from other ones."""
    for value in args:
        if type(value) is Unreadable:
            value._refuse()
        if type(value) is TensorProxy:
            told_by(value)
        elif is_symbolic(value):
            _refuse_identity()
        elif _nodes_of_items(value):
            _refuse_here("the program asks for the id of what comes out of a container that it keeps", "ask `a is b`")
        else:
            _tell_apart(value)
    return NotImplemented


def same_asked(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`operator.is_(a, b)` and `operator.is_not(a, b)`."""
    if len(args) != 2:
        return NotImplemented
    found = is_same(*args)
    return found if function is operator.is_ else not found if type(found) is bool else recorder.numbers.negation(found)


def has_key(item: TensorProxy, values: Iterable[Any]) -> bool:
    """`item in values` of a set or dict, where a tensor is found by its identity alone."""
    keys = [value for value in values if type(value) is TensorProxy]
    for tensor in (*keys, item):
        told_by(tensor)
    return any(key is item for key in keys)


def told_by(tensor: TensorProxy) -> None:
    """A tensor becomes the key of a dict or the item of a set, or its `id` is asked: it is told from other ones.

    Raises what ends the capture where only a run knows whether it is one of those.
    """
    recorder = tensor.recorder
    if any(known is tensor for known in recorder.hashed):
        return
    recorder.told_apart.add(id(tensor))
    for known in recorder.hashed:
        are_inputs = known._make is not None and tensor._make is not None
        nodes = recorder.argument(known), recorder.argument(tensor)
        if not are_inputs and may_share_memory(*nodes, lambda node: None):
            _refuse_here(
                "the program tells tensors apart by their identity, of which only a run knows",
                "use keys that are no tensors",
            )
    recorder.hashed.append(tensor)


def _is_same_number(left: Any, right: Any) -> Any:
    """`left is right` of numbers: a bool is the only one of its value, and so is a small integer."""
    recorder: Any = running()
    symbols = [symbol for side in (left, right) if (symbol := symbol_of(side)) is not None]
    if len(symbols) == 2 and all(symbol.function == "input" for symbol in symbols):  # the caller's own objects
        return _asked_of_run(map(recorder.argument, (left, right)))
    recorder.ledger.kind_asked()
    for symbol in symbols:
        ask_class(recorder, symbol)
    kind = left.__class__
    if kind is not right.__class__:
        return False
    if kind is float:
        for symbol in symbols if len(symbols) == 2 else ():
            if symbol.function in ("opaque", "branch"):  # one that the program has already, may be
                _refuse_identity()
        return False
    if kind is bool:
        return left == right
    most = next((side for side in (left, right) if not is_symbolic(side)), left)
    is_small = (most >= _SMALL.start) & (most < _SMALL.stop)
    return (left == right) & is_small


def _refuse_identity() -> None:
    _refuse_here(
        "the program asks whether two numbers are one object, of which only a run knows", "compare their values: a == b"
    )


_SMALL = range(-5, 257)  # CPython keeps one object for each of these


def is_equal(left: list[Any] | tuple[Any, ...], right: list[Any] | tuple[Any, ...]) -> Any:
    """`left == right` of lists or tuples that hold tensors: each is the same, or equal and a truth.

    NotImplemented where they hold none.
    """
    recorder = _recorder_of_tensors(*left, *right)
    if recorder is None or not all(is_told(value) for value in (*left, *right)):
        return NotImplemented
    node = recorder.node("call_function", operator.eq, (recorder.argument(left), recorder.argument(right)), {}, "equal")
    return recorder.numbers.of_node(node, UNKNOWN, bool)


def is_member(item: Any, values: list[Any] | tuple[Any, ...]) -> Any:
    """`item in values`, where one of them is a tensor of the program; NotImplemented where that is to be done else."""
    recorder = _recorder_of_tensors(*values) or (None if isinstance(item, Proxy) else _recorder_of_tensors(item))
    if recorder is None or not all(is_told(value) for value in (item, *values)):
        return NotImplemented
    arguments = recorder.argument(values), recorder.argument(item)
    node = recorder.node("call_function", operator.contains, arguments, {}, "contains")
    return recorder.numbers.of_node(node, UNKNOWN, bool)


def _recorder_of_tensors(*values: Any) -> Capture | None:
    """The recorder of those that are tensors of the program; None where there is none."""
    found = next((value.recorder for value in values if type(value) is TensorProxy), None)
    return running() if found is None and any(isinstance(value, Proxy) for value in values) else found


def _may_be_one(left: Any, right: Any) -> bool:
    """Tell whether two values may be one when the program runs; an untyped one may be any of which there is one."""
    if isinstance(left, Proxy) or isinstance(right, Proxy):
        return all(isinstance(value, torch.Tensor | Proxy | bool | enum.Enum | type) for value in (left, right))
    return isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)


def is_told(value: Any) -> bool:
    """Tell whether a value can be written into a list that an operation compares with another value."""
    return isinstance(value, torch.Tensor | Proxy | int | float | bool | str | None) or is_symbolic(value)
