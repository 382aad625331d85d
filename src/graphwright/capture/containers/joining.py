"""Which values of the two sides of a branch become one, and what that one is."""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.item_kinds import kind_of_item
from graphwright.capture.numbers.classes import note_class
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import ObjectProxy, object_node
from graphwright.capture.proxies.run_text import RunText, places_of
from graphwright.capture.state.samples import MISSING, Unlike, Verdict, WholeKind
from graphwright.capture.state.symbols import UNKNOWN, Symbol, as_number, is_symbolic, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.values import (
    ConstantKind,
    Kind,
    NoJoin,
    NumberKind,
    OptionalKind,
    Policy,
    TensorKind,
    TextKind,
    join,
    loose_sizes,
    with_example,
    without_none,
)

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.rungs import QuestionSubject
    from graphwright.capture.state.symbols import Number


class Joining:
    """Joins values of `trace`: tensors of one dtype and rank, numbers of one kind."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder

    def policy(self, name: str) -> Policy:
        """What a loop carries may have other sizes from one iteration to the next, and become a wider number.

        What a container holds may be None where it is a tensor, and another text; tuples and lists may be longer.
        """
        return dataclasses.replace(RUN, kind_of=lambda key: kind_of_item(self, key, name))

    def verdict(self, a: Any, b: Any, may_be_none: bool) -> Verdict:
        """Say what becomes of two values. Raises Unlike.

        A tensor and None make a tensor that may be None, where that is allowed: whoever reads it is then converted.
        """
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            x, y = self._recorder.example(a), self._recorder.example(b)
            if (x.dtype, x.dim(), x.device) != (y.dtype, y.dim(), y.device):
                raise Unlike(f"{x.dtype} of {x.dim()} dimensions on one side, {y.dtype} of {y.dim()} on the other")
            return "join"
        if type(a) is ObjectProxy or type(b) is ObjectProxy:
            raise Unlike("objects outside of torch")
        if self._is_start(a, b) or self._is_start(b, a):
            return "join"
        if are_of_run(a, b) or _is_bool_or_tensor(a, b) or _is_bool_or_tensor(b, a):
            return "join"
        if RunText in (type(a), type(b)) and isinstance(a, str) and isinstance(b, str):
            return "join"
        if may_be_none and (a is None or b is None) and (isinstance(a, TensorProxy) or isinstance(b, TensorProxy)):
            return "join"
        kind_a, kind_b = _number_kind(a), _number_kind(b)
        if kind_a is None or kind_b is None:
            return "look inside"
        if kind_a is not kind_b:
            raise Unlike(f"{kind_a.__name__} on one side, {kind_b.__name__} on the other")
        if not is_symbolic(a) and not is_symbolic(b):
            return "same" if a == b else "join"
        return "same" if symbol_of(a) is symbol_of(b) else "join"

    def carried(self, entry: Any, after: Any) -> Verdict:
        """Say what becomes of a value that an iteration of a loop finds, and leaves another way. Raises Unlike."""
        if type(entry) is ObjectProxy or type(after) is ObjectProxy:
            raise Unlike("an object outside of torch changes in the loop")
        if are_of_run(entry, after):
            return "join"
        kinds = [_number_kind(value) for value in (entry, after)]
        if isinstance(entry, str) and isinstance(after, str):
            return "same" if type(entry) is type(after) is str and entry == after else "join"
        if isinstance(after, torch.Tensor):
            if isinstance(entry, torch.Tensor) or entry is None or kinds[0] is not None:
                self.widened(self.sample(entry, after), after)
                return "join"
        elif isinstance(entry, TensorProxy) and after is None:
            return "join"
        elif kinds[0] is not None and kinds[1] is not None:
            is_same = symbol_of(entry) is symbol_of(after) if is_symbolic(entry) and is_symbolic(after) else False
            is_plain = not is_symbolic(entry) and not is_symbolic(after)
            return "same" if is_same or (is_plain and type(entry) is type(after) and entry == after) else "join"
        return "look inside"

    def sample(self, entry: Any, after: Any) -> Kind:
        """What a value is like that is `entry` before a loop and `after` after an iteration."""
        if is_growing(after) and entry is MISSING:
            return WholeKind(after)
        if is_growing(after) or is_growing(entry):
            return WholeKind(after.joined_with(entry) if is_growing(after) else entry.joined_with(after))
        if isinstance(after, str):
            return TextKind(_text_hint(after if entry is MISSING else entry))
        tensor = entry if isinstance(entry, torch.Tensor) else after
        if isinstance(tensor, torch.Tensor):
            starts = _number_kind(entry) is not None or _is_mixed(entry) or _is_mixed(after)
            kind = TensorKind.like(self._recorder.example(tensor), may_be_number=starts)
            may_be_none = entry is None or after is None or _is_optional(entry) or _is_optional(after)
            return OptionalKind(kind) if may_be_none else kind
        if ObjectProxy in (type(entry), type(after)):
            raise Unlike("an object outside of torch")
        number = _number_kind(after) or type(after)
        before = _number_kind(entry)
        if before is not None and _ORDER.index(before) > _ORDER.index(number):
            number = before
        return NumberKind(number, _converted(_hint(after if entry is MISSING else entry), number))

    def widened(self, sample: Kind, after: Any) -> Kind:
        """What a value is like that an iteration leaves so, too. Raises Unlike where that is of another kind."""
        if isinstance(sample, WholeKind):
            return self._whole_widened(sample, after)
        kind, item = self._kind_after(after), without_none(sample)
        are_tensors = isinstance(item, TensorKind) and isinstance(without_none(kind), TensorKind)
        if kind is not None and not (isinstance(item, TensorKind) and isinstance(kind, NumberKind)):
            try:
                return join(sample, kind, RUN)
            except NoJoin as why:
                if are_tensors:
                    raise Unlike(f"{why.one} before, {why.other} after an iteration") from None
        before = "a tensor" if isinstance(item, TensorKind) else "a text" if isinstance(item, TextKind) else item
        raise Unlike(f"{before} before, {self.kind_name(after)} after an iteration")

    def _whole_widened(self, sample: WholeKind, after: Any) -> Kind:
        if are_of_run(sample.whole, after):
            whole = sample.whole.joined_with(after)
            return sample if whole is sample.whole or whole.kind is sample.whole.kind else WholeKind(whole)
        raise Unlike(f"a list that grows before, {self.kind_name(after)} after an iteration")

    def _kind_after(self, after: Any) -> Kind | None:
        """The kind of what an iteration leaves; None for what is none that a loop carries."""
        if isinstance(after, torch.Tensor):
            kind = TensorKind.like(self._recorder.example(after))
            return OptionalKind(kind) if _is_optional(after) else kind
        if after is None:
            return ConstantKind(None)
        if isinstance(after, str):
            return TextKind()
        number = _number_kind(after)
        return None if number is None else NumberKind(number)

    def like(self, sample: Kind, value: Any) -> Kind:
        """A sample with the example of a value of its kind."""
        if isinstance(sample, WholeKind):
            return WholeKind(sample.whole.holding(value))
        if isinstance(sample, TextKind):
            return TextKind(_text_hint(value))
        if isinstance(value, torch.Tensor):
            kind = TensorKind.like(self._recorder.example(value))
            return kind if isinstance(sample, NumberKind) else with_example(sample, kind)
        if isinstance(sample, NumberKind) and _number_kind(value) is not None:
            return NumberKind(sample.kind, _converted(_hint(value), sample.kind))
        item = without_none(sample)
        if isinstance(item, TensorKind) and item.may_be_number and _number_kind(value) is not None:
            return with_example(sample, TensorKind.like(self._with_number(item.example, _hint(value))))
        return sample

    def _with_number(self, example: torch.Tensor, number: Number) -> torch.Tensor:
        """The example of a tensor that is this number, for sizes made of it; as it is where it cannot hold that."""
        if not self._recorder.examples.is_real or number is UNKNOWN or example.numel() != 1:
            return example
        filled: torch.Tensor = self._recorder.examples.run(torch.full_like, (example, number), {})
        with torch._C.DisableTorchFunction():  # the program does not ask for this
            return filled if filled.item() == number else example

    def changes_size(self, sample: Kind, after: Any) -> bool:
        """Tell whether each iteration leaves a tensor of another size."""
        item = without_none(sample)
        if not loose_sizes(sample) or not isinstance(after, torch.Tensor) or not isinstance(item, TensorKind):
            return False
        return bool(self._recorder.example(after).shape != item.example.shape)

    def stand_in(self, sample: Kind, node: Node, place: Place | None, hint: Any = None) -> Any:
        """The value in the program of a node that gives something like a sample, for numbers with this hint."""
        if isinstance(sample, WholeKind):
            return sample.whole.on(node)
        if isinstance(sample, TextKind):
            return RunText(self._recorder, node, sample.hint if hint is None else hint)
        if isinstance(sample, NumberKind):
            return self._recorder.numbers.of_node(node, sample.hint if hint is None else hint, sample.kind)
        kind = without_none(sample)
        assert isinstance(kind, TensorKind), sample
        proxy = TensorProxy.make(self._recorder, kind.example, node)
        proxy.loose, proxy.is_mixed = kind.loose, kind.may_be_number
        if kind is not sample:
            proxy.optional = place
            self._recorder.questions.optionals.note()
        return proxy

    def _is_start(self, number: Any, tensor: torch.Tensor) -> bool:
        """Tell whether a number and a tensor are what a loop adds up: `total = 0`, then `total = total + row`."""
        if not isinstance(tensor, TensorProxy) or _number_kind(number) is None:
            return False
        return any(region.is_loop for region in self._recorder.region.all())

    def node_of(self, value: Any) -> Node | None:
        """The node of a value that only a run has, as far as there is one."""
        if isinstance(value, TensorProxy):
            return value._node
        if type(value) is ObjectProxy:
            return object_node(value)
        if is_growing(value):
            return value.node_of()  # type: ignore[no-any-return]
        if type(value) is RunText:
            return value.node
        symbol = symbol_of(value)
        return None if symbol is None else self._recorder.region.number(symbol)

    def is_open(self, value: Any) -> bool:
        """Tell whether only a run has a value."""
        if isinstance(value, TensorProxy) or is_symbolic(value):
            return True
        return type(value) in (ObjectProxy, RunText) or is_growing(value)

    def items_grow(self) -> bool:
        """Tell whether lists that are items get longer."""
        return self._recorder.plan.items_grow

    def value(
        self, subject: QuestionSubject, pair: tuple[Any, Any], node: Node, place: Place | None, then_raised: bool
    ) -> Any:
        """The value in the program of one output of a branch; its example is that of the side the example takes."""
        recorder = self._recorder
        taken = recorder.numbers.hint(subject)
        sample = pair[1] if then_raised or taken is False or pair[0] is None or pair[0] is MISSING else pair[0]
        if sample is None or sample is MISSING:
            sample = pair[0]
        whole = pair[0] if is_growing(pair[0]) else pair[1]
        if is_growing(whole):
            whole = whole.joined_with(pair[0]).joined_with(pair[1]).holding(sample).on(node)
            whole.is_certain &= taken is not None
            return whole
        number = None if taken is None or _number_kind(sample) is None else sample
        if not isinstance(sample, torch.Tensor):
            sample = next((side for side in pair if isinstance(side, torch.Tensor)), sample)
        if isinstance(sample, torch.Tensor):
            example = recorder.example(sample)
            example = example if number is None else self._with_number(example, _hint(number))
            proxy = TensorProxy.make(recorder, example, node)
            self._note_numbers(proxy, pair, place)
            if _may_be_none(subject, pair[0], True) or _may_be_none(subject, pair[1], False):
                proxy.optional = place
                proxy.is_none = None if taken is None else _is_none(pair[0 if taken else 1])
                recorder.questions.optionals.note()
            return proxy
        if isinstance(sample, str):
            return RunText(recorder, node, UNKNOWN if taken is None else _text_hint(sample), places_of(*pair))
        symbol = symbol_of(sample)
        kind = type(sample) if symbol is None else symbol.kind
        hint = UNKNOWN
        if taken is not None:
            hint = sample if symbol is None else symbol._hint
        sampled = sample if symbol is None else symbol.sample
        symbol = recorder.numbers.data_symbol(hint, kind, "branch", (node,), sampled)
        is_data = recorder.questions.subjects.is_data
        symbol.is_data = is_data(subject) or any(is_symbolic(side) and is_data(side) for side in pair)
        recorder.region.numbers[symbol] = node
        note_class(recorder, node, kind, pair)
        return as_number(symbol)

    def _note_numbers(self, proxy: TensorProxy, pair: tuple[Any, Any], place: Place | None) -> None:
        """Note that a tensor which a branch gives may be a number in a run, as one of a side is, or may be."""
        for side in pair:
            if isinstance(side, TensorProxy):
                if side.is_mixed:
                    proxy.is_mixed, proxy.mixed_at = True, proxy.mixed_at or side.mixed_at
            elif _number_kind(side) is not None:
                proxy.is_mixed = True
        if _is_bool_or_tensor(*pair) or _is_bool_or_tensor(*reversed(pair)):
            proxy.mixed_at = place
        if proxy.mixed_at is not None:
            self._recorder.questions.optionals.note()

    def kind_name(self, value: Any) -> str:
        """What kind of value the program has there, in a message."""
        kind = _number_kind(value) or (torch.Tensor if isinstance(value, TensorProxy) else type(value))
        return kind.__name__

    def source_name(self, value: Any) -> str:
        """What the source calls a value, if it does."""
        node = value._node if isinstance(value, TensorProxy) else None
        site = None if node is None else node._origin
        return "" if site is None else str(site.target or getattr(site, "named", ""))


def are_of_run(one: Any, other: Any) -> bool:
    """Tell whether two values are lists, or tuples, and only a run knows how long one of them is."""
    whole = next((value for value in (one, other) if is_growing(value)), None)
    if whole is None or not whole.is_local:
        return False
    its = other if one is whole else one
    return type(its) is whole.base or (type(its) is type(whole) and its.base is whole.base)


def _is_bool_or_tensor(flag: bool, tensor: torch.Tensor) -> bool:
    """Tell whether two values are a bool and a tensor of one bool: `skip = False`, or else `skip = x < y`."""
    if type(flag) is not bool or not isinstance(tensor, TensorProxy):
        return False
    return tensor.example.dtype is torch.bool and tensor.example.dim() == 0


def _is_none(value: Any) -> bool | None:
    """Tell whether a value of one side is None for the example."""
    return value.is_none if isinstance(value, TensorProxy) else value is None


def _may_be_none(subject: QuestionSubject, value: Any, is_then: bool) -> bool:
    """Tell whether a side's value may be None: not where the branch asks whether it is, on the side where it is not."""
    if not isinstance(value, TensorProxy) or value.optional is None:
        return value is None
    symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
    while symbol is not None and symbol.function is operator.not_:
        symbol, is_then = symbol.args[0], not is_then
    asks = symbol is not None and symbol.function is operator.is_ and symbol.args[1] is None
    return not (asks and symbol.args[0] is value and not is_then)  # type: ignore[union-attr]


def _number_kind(value: Any) -> type | None:
    if is_symbolic(value):
        return symbol_of(value).kind  # type: ignore[union-attr]
    return type(value) if type(value) in (int, float, bool) else None


def _text_hint(value: Any) -> Any:
    return value.hint if type(value) is RunText else value if type(value) is str else UNKNOWN


_ORDER = (bool, int, float)  # of the kinds of numbers: each can stand for those before it
RUN = Policy(
    _ORDER, (TensorKind,), loosens_sizes=True, texts_differ=True, lengths_differ=True, tensors_may_be_numbers=True
)


def _hint(value: Any) -> Any:
    symbol = symbol_of(value)
    return value if symbol is None else symbol._hint


def _converted(hint: Number, kind: type) -> Any:
    return hint if hint is UNKNOWN else kind(hint)


def _is_mixed(value: Any) -> bool:
    return isinstance(value, TensorProxy) and value.is_mixed


def _is_optional(value: Any) -> bool:
    return isinstance(value, TensorProxy) and value.optional is not None
