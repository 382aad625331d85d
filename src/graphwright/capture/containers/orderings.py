"""`sorted`, `max` and `min` of values that only a run has: the call of the builtin is a node.

What it gives are values of the run again, so that an order that data decides needs no branches:

    beams = sorted(found, key=lambda beam: -beam[1])[:3]

A key is a body of the node, as the function given to `torch.vmap` is: it is captured once, for an item of the kind that
all items are of.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.body_replay import Replay
from graphwright.capture.containers.item_kinds import joined_kinds, kind_of_item, seen
from graphwright.capture.containers.loop_holders import value_of_kind
from graphwright.capture.containers.loop_lists import OfRun
from graphwright.capture.containers.rows import rows
from graphwright.capture.effects.branch_state import State
from graphwright.capture.effects.choices import Choice
from graphwright.capture.proxies.contents import changeable
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.regions import Region, Writing
from graphwright.capture.state.running import refused
from graphwright.capture.state.samples import Unlike
from graphwright.capture.state.side_ended import Raised
from graphwright.capture.state.symbols import is_symbolic
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node, shared_operands
from graphwright.ops import is_impure, transformed
from graphwright.values import Kind, leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

_ORDERINGS: dict[Any, str] = {sorted: "sorted", max: "max", min: "min"}


def ordering(
    recorder: Capture,
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Callable[..., Any],
) -> Any:
    """Record a call of one of these; NotImplemented where the program itself knows the order, or values are unlike.

    `call` calls a function of the program.
    """
    if getattr(function, "__name__", "") == "sort":
        return _sort(recorder, function.__self__, args, kwargs, call)
    is_spread = function is not sorted and len(args) > 1
    if not (is_spread or len(args) == 1) or not kwargs.keys() <= {"key", "reverse", "default"}:
        return NotImplemented
    values = args if is_spread else args[0]
    if (*(recorder.questions.place() or ()), _ORDER) in recorder.plan.ways:
        return NotImplemented
    if type(values) is TensorProxy and values.example.dim():
        values = rows(recorder, values, is_list=False)
    return _Ordering(recorder, function, values, kwargs, is_spread, call).value()


def _sort(
    recorder: Capture, values: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[..., Any]
) -> Any:
    """`values.sort(...)`: what is in the list is replaced."""
    found = NotImplemented if args else _Ordering(recorder, sorted, values, kwargs, False, call).value()
    if found is NotImplemented:
        return found
    values[:] = found
    return None


class _Ordering:
    """One call of `sorted`, `max` or `min`."""

    def __init__(
        self,
        recorder: Capture,
        function: Callable[..., Any],
        values: Any,
        kwargs: dict[str, Any],
        is_spread: bool,
        call: Callable[..., Any],
    ) -> None:
        self._recorder, self._function, self._values = recorder, function, values
        self._is_spread, self._call = is_spread, call
        self._key = kwargs.get("key")
        self._options = {name: value for name, value in kwargs.items() if name != "key"}
        self._is_long = isinstance(values, OfRun)
        self._place = recorder.questions.place()

    def value(self) -> Any:
        """Write the node and return what it gives; NotImplemented where it is not of use."""
        recorder, values = self._recorder, self._values
        if not self._is_long:
            known = self._known()
            if known is not None:
                return known
        try:
            kind = self._kind()
        except Unlike:
            return NotImplemented
        if kind is None:
            return NotImplemented
        arguments = tuple(map(recorder.argument, values)) if self._is_spread else (self._argument(),)
        name = recorder.target_name() or _ORDERINGS[self._function]
        options = {option: recorder.argument(value) for option, value in self._options.items()}
        if self._key is None:
            node = recorder.node("call_function", self._function, arguments, options, "", name)
            order = self._order(lambda item: item)
        else:
            region = self._captured_key(kind)
            operands = shared_operands([region])
            given = _ORDERINGS[self._function], region.graph, arguments, tuple(operands), options
            node = recorder.node("call_function", transformed, given, {}, "", name)
            order = self._order(self._key_of_examples(operands, region))
        return self._given(node, kind, order)

    def _known(self) -> Any:
        """What a list of the program gives where no value of the run decides; None where one does."""
        recorder, values = self._recorder, self._values
        if not isinstance(values, list | tuple) or is_growing(values) or len(values) < 2:
            return NotImplemented
        if self._key is None:
            if not any(map(recorder.joining.is_open, leaves(values))):
                return NotImplemented
            numbers = [value for value in values if is_symbolic(value) or type(value) in (int, float, bool)]
            if len(numbers) == len(values):
                if self._function is not sorted and not self._options:
                    return recorder.numbers.computed(self._function, tuple(values), {})
                if not any(map(recorder.questions.subjects.is_data, filter(is_symbolic, values))):
                    return NotImplemented
            return None
        keys = self._keys()
        if keys is None:  # it does more: it is called where Python calls it
            return NotImplemented
        if any(recorder.joining.is_open(leaf) or isinstance(leaf, torch.Tensor) for leaf in leaves(keys)):
            return None
        order = sorted(range(len(values)), key=keys.__getitem__, reverse=bool(self._options.get("reverse")))
        if self._function is sorted:
            return [values[i] for i in order]
        return values[self._function(range(len(values)), key=keys.__getitem__)]

    def _keys(self) -> list[Any] | None:
        """The keys of a list of the program, computed in a graph that is not kept; None where that changes anything."""
        recorder = self._recorder
        region = Region(recorder.region, sys._getframe(), self._place)
        mark, state = recorder.mark(), self._reached()
        before = state.read()
        with Writing(recorder, region):
            try:
                keys = [self._call(self._key, value) for value in self._values]
            finally:
                recorder.back_to(mark)
        acts = any(node.op in _CALLS and is_impure(node) for node in region.graph.nodes)
        if acts or state.has_changed(before):
            state.restore()
            return None
        return keys

    def _reached(self) -> State:
        """What the key may change."""
        state, typed = State((), (), ()), self._recorder.typed
        state.watch(self._key)
        if typed is not None:
            state.watch_outside(typed.callers.outside)
        return state

    def _kind(self) -> Any:
        """What all values are like. Raises Unlike."""
        joining = self._recorder.joining
        kind = self._values.kind if self._is_long else None
        items = [] if self._is_long else [*self._values]
        for item in [*items, *([self._options["default"]] if "default" in self._options else [])]:
            kind = joined_kinds(joining, kind, kind_of_item(joining, item, ""), "")
        return kind

    def _argument(self) -> Any:
        return self._values.node_of() if self._is_long else self._recorder.argument(self._values)

    def _captured_key(self, kind: Kind) -> Region:
        """The body that computes the key of an item."""
        recorder, name = self._recorder, _parameter(self._key)
        region = Region(recorder.region, sys._getframe(), self._place)
        region.transform = _ORDERINGS[self._function]
        state = self._reached()
        before = state.read()
        try:
            with Writing(recorder, region):
                node = region.graph.create_node("placeholder", name, (), {}, name)
                node._target = node.name
                key = self._call(self._key, value_of_kind(recorder, kind, node, name, self._place))
                given = recorder.lifted(recorder.argument(key))
                last = region.graph._root.prev
                region.graph.output(given)._origin = last._origin or recorder.site()
        except Raised:
            message = f"the key of {_ORDERINGS[self._function]} raises an exception whatever it is given"
            raise refused(recorder, message) from None
        if state.has_changed(before):
            state.restore()
            message = f"the key of {_ORDERINGS[self._function]} changes what is outside of it"
            raise refused(recorder, message, "compute the keys first, in a loop")
        return region

    # ---- the example

    def _key_of_examples(self, operands: list[Node], region: Region) -> Callable[[Any], Any]:
        """What computes the key of an item of the example."""
        if not self._recorder.examples.is_real:
            return lambda item: item
        capture = with_examples(self._recorder)
        used = [capture.transforms.example_of(operand, region.outer) for operand in operands]
        replay = Replay(capture, region.graph)
        return lambda item: replay(item, *used)

    def _order(self, key: Callable[[Any], Any]) -> list[int] | None:
        """The places of the example's values in their order; None where the example does not tell."""
        recorder, values = self._recorder, self._values
        if not recorder.examples.is_real or (self._is_long and not values.is_certain):
            return None
        content, examples = values.content() if self._is_long else [*values], with_examples(recorder).examples
        with torch._C.DisableTorchFunction():
            keys: list[Any] = [examples.run(key, (recorder.to_examples(item),), {}) for item in content]
            if self._function is not sorted:
                first: int = self._function(range(len(keys)), key=keys.__getitem__) if keys else -1
                return [first] if keys else None
            order: list[int] = sorted(
                range(len(keys)), key=keys.__getitem__, reverse=bool(self._options.get("reverse"))
            )
        return order

    def _given(self, node: Node, kind: Kind, order: list[int] | None) -> Any:
        """The value of the program that a node gives."""
        recorder, values = self._recorder, self._values
        content = values.content() if self._is_long else [*values]
        if order is not None:
            content = [content[i] for i in order]
        if self._function is not sorted:
            kind = seen(recorder.joining, kind, content[0]) if content and order is not None else kind
            given = value_of_kind(recorder, kind, node, node.name, self._place)
            if not self._is_long:
                self._note_choices([given])
            return given
        if self._is_long:
            return values.taken(content, node, order is not None)
        nodes = recorder.unpacked(node, len(content), recorder.unpacked_names() or [""] * len(content))
        kinds = [kind if order is None else seen(recorder.joining, kind, item) for item in content]
        items = [value_of_kind(recorder, own, item, "", self._place) for own, item in zip(kinds, nodes, strict=True)]
        self._note_choices(items)
        return items

    def _note_choices(self, given: list[Any]) -> None:
        """What is given stands for lists and the like that were: once one changes, the program has to know which."""
        recorder, place = self._recorder, self._place

        def give_up(why: str) -> BaseException:
            change = recorder.plan.change((*(place or ()), _ORDER), "fork", why)
            return recorder.questions.restart(change)

        for joined in given:
            for one, originals in _chosen(joined, [*self._values]):
                recorder.choices.note(Choice(one, originals, give_up, is_apart=self._function is sorted))


def _chosen(joined: Any, originals: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """The changeable parts of what stands for one of several values, with theirs."""
    if isinstance(joined, tuple):
        for i, part in enumerate(joined):
            yield from _chosen(part, [original[i] for original in originals])
    elif is_growing(joined) or changeable(joined):
        yield joined, originals


_ORDER = "order"  # how the plan knows the place of a call
_CALLS = ("call_function", "call_method")


def _parameter(key: Hashable) -> str:
    """What a key calls its item."""
    code = getattr(getattr(key, "__func__", key), "__code__", None)
    names = code.co_varnames[: code.co_argcount] if isinstance(code, CodeType) else ()
    return names[-1] if names else "item"
