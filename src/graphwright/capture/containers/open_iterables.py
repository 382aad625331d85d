"""What a loop goes over where only a run knows it: rows of a tensor, ranges of symbolic length, both enumerated.

`iterable_of` tells whether a value is one of these. A loop over one becomes `for_loop` in the graph; whoever else goes
over it gets what the example has, under a guard.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.kept_containers import KeptDict, KeptSequence
from graphwright.capture.containers.loop_dicts import LoopDict
from graphwright.capture.containers.loop_lists import LoopList, OfRun
from graphwright.capture.containers.loop_sets import LoopSet
from graphwright.capture.proxies.object_proxy import ObjectProxy
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.source import targets_in
from graphwright.values import ANY

if TYPE_CHECKING:
    from graphwright.capture.proxies.recording import TracerBase
    from graphwright.capture.state.protocol import Capture


class OpenIterable(abc.ABC):
    """Something to loop over whose length or items only a run knows."""

    is_data = False  # whether its length depends on the data of tensors
    is_plain = False  # whether the program knows what is in it

    @abc.abstractmethod
    def argument(self, recorder: Capture) -> Any:
        """The argument of the loop's node."""

    def __fx_create_arg__(self, tracer: TracerBase) -> Any:
        """The argument of the loop's node, under symbolic tracing."""
        return self.argument(tracer._recorder)  # type: ignore[arg-type]

    @abc.abstractmethod
    def item(self, recorder: Capture, node: Node, names: Sequence[str], index: int = 0) -> Any:
        """An item as the body of the loop gets it: `node` is its input there, `names` what the source calls its parts.

        Its example is the item of the example at this index.
        """

    @abc.abstractmethod
    def length(self) -> int | None:
        """How many items the example has; None where that is not known."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Any]: ...


class Rows(OpenIterable):
    """The rows of a tensor."""

    def __init__(self, tensor: TensorProxy) -> None:
        self._tensor = tensor
        self.is_data = symbol_of(tensor.recorder.numbers.length(tensor)).is_data  # type: ignore[union-attr]

    def argument(self, recorder: Capture) -> Any:
        return recorder.argument(self._tensor)

    def item(self, recorder: Capture, node: Node, names: Sequence[str], index: int = 0) -> Any:
        example = self._tensor.example
        capture = with_examples(recorder)
        row = capture.examples.run(
            lambda: example[index] if len(example) else example.new_empty(example.shape[1:]), (), {}
        )
        return TensorProxy.make(capture, row, node)

    def length(self) -> int | None:
        return len(self._tensor.example)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tensor)


class _Unknown(OpenIterable):
    """A value of symbolic tracing, whatever it is."""

    is_data = True

    def __init__(self, value: Proxy) -> None:
        self._value = value

    def argument(self, recorder: Capture) -> Any:
        return recorder.argument(self._value)

    def item(self, recorder: Capture, node: Node, names: Sequence[str], index: int = 0) -> Any:
        return recorder.joining.stand_in(ANY, node, None)

    def length(self) -> int | None:
        return None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._value)


class OpenRange(OpenIterable):
    """A range with a symbolic start, stop or step."""

    def __init__(self, *bounds: Any) -> None:
        self._bounds = bounds
        symbols = list(map(symbol_of, bounds))
        self.is_data = any(
            isinstance(bound, Proxy) if symbol is None else symbol.is_data
            for bound, symbol in zip(bounds, symbols, strict=True)
        )

    def example(self) -> range | None:
        """The numbers of the example; None where they are not known."""
        bounds: list[Any] = [bound if (symbol := symbol_of(bound)) is None else symbol._hint for bound in self._bounds]
        return None if any(bound is UNKNOWN or isinstance(bound, Proxy) for bound in bounds) else range(*bounds)

    def argument(self, recorder: Capture) -> Any:
        bounds = tuple(map(recorder.argument, self._bounds))
        return recorder.make("call_function", range, bounds, "range_")

    def item(self, recorder: Capture, node: Node, names: Sequence[str], index: int = 0) -> Any:
        numbers = self.example()
        hint = UNKNOWN if numbers is None else numbers[index] if len(numbers) else numbers.start
        return recorder.numbers.of_node(node, hint, int, is_sure=True)

    def length(self) -> int | None:
        numbers = self.example()
        if numbers is None or self._changes():
            return None
        return len(numbers)

    def _changes(self) -> bool:
        """Whether it may be longer or shorter in another iteration of a loop around it, as `range(i)` is.

        A number of data that is known without the example's data is that of the first iteration.
        """
        symbols = [symbol for symbol in map(symbol_of, self._bounds) if symbol is not None]
        return self.is_data and any(not symbol.recorder.examples.is_real for symbol in symbols)

    def _of_example(self) -> range:
        """The range of the example, which is checked: the program asks for all of it."""
        return range(*map(int, self._bounds))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._of_example())

    def __eq__(self, other: object) -> bool:
        other = other._of_example() if type(other) is OpenRange else other
        return isinstance(other, range) and self._of_example() == other

    def __hash__(self) -> int:
        return hash(self._of_example())

    def __getattr__(self, name: str) -> Any:
        if name not in ("start", "stop", "step", "index", "count"):
            raise AttributeError(f"'range' object has no attribute {name!r}")
        return getattr(self._of_example(), name)

    def __repr__(self) -> str:
        start, stop, step = (*([0] * (len(self._bounds) == 1)), *self._bounds, 1)[:3]
        return f"range({start}, {stop})" if type(step) is int and step == 1 else f"range({start}, {stop}, {step})"

    def __len__(self) -> int:
        return len(self._of_example())

    def __getitem__(self, index: int | slice) -> Any:
        return self._of_example()[index]

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._of_example())


class _Items(OpenIterable):
    """Numbers and tensors that the program has listed itself."""

    is_plain = True

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values

    def argument(self, recorder: Capture) -> Any:
        return recorder.argument(self._values)

    def item(self, recorder: Capture, node: Node, names: Sequence[str], index: int = 0) -> Any:
        first = self._values[index]
        if isinstance(first, torch.Tensor):
            capture = with_examples(recorder)
            return TensorProxy.make(capture, capture.example(first), node)
        symbol = symbol_of(first)
        hint, kind = (first, type(first)) if symbol is None else (symbol._hint, symbol.kind)
        return recorder.numbers.of_node(node, hint, kind)

    def length(self) -> int | None:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)


class _Grown(OpenIterable):
    """The items of a list that grows in a loop."""

    def __init__(self, values: OfRun) -> None:
        self.values = values
        self.is_data = not values.is_sized

    def argument(self, recorder: Capture) -> Any:
        return self.values.node_of()

    def item(self, recorder: Capture, node: Node, names: Sequence[str], index: int = 0) -> Any:
        return self.values.item(node, index, names)

    def length(self) -> int | None:
        return len(self.values.content()) if self.values.is_certain else None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


class _Combined(OpenIterable):
    """Iterables taken together."""

    def __init__(self, parts: Sequence[OpenIterable]) -> None:
        self._parts = parts
        self.is_data = any(part.is_data for part in parts)

    def _items(self, recorder: Capture, node: Node, names: Sequence[str], parts: Sequence[Any]) -> tuple[Any, ...]:
        names = names if len(names) == len(parts) else [""] * len(parts)
        nodes = recorder.unpacked(node, len(parts), names)
        return tuple([make(node, targets_in(name)) for make, node, name in zip(parts, nodes, names, strict=True)])

    def length(self) -> int | None:
        lengths = [part.length() for part in self._parts]
        return None if None in lengths else min(lengths)  # type: ignore[type-var]


class OpenZip(_Combined):
    """`zip` of iterables of which a run knows the length."""

    def __init__(self, parts: Sequence[OpenIterable], strict: bool = False) -> None:
        super().__init__(parts)
        self._strict = strict

    def argument(self, recorder: Capture) -> Any:
        parts = tuple([part.argument(recorder) for part in self._parts])
        return recorder.make("call_function", zip, parts, "zip_", {"strict": True} if self._strict else {})

    def item(self, recorder: Capture, node: Node, names: Sequence[str], index: int = 0) -> Any:
        def maker(part: OpenIterable) -> Callable[[Node, Sequence[str]], Any]:
            return lambda node, names: part.item(recorder, node, names, index)

        return self._items(recorder, node, names, [maker(part) for part in self._parts])

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(*self._parts, strict=self._strict))


class OpenEnumerate(_Combined):
    """`enumerate` of an iterable of which a run knows the length."""

    def __init__(self, part: OpenIterable, start: int = 0) -> None:
        super().__init__([part])
        self._start = start

    def argument(self, recorder: Capture) -> Any:
        start = () if type(self._start) is int and self._start == 0 else (recorder.argument(self._start),)
        return recorder.make("call_function", enumerate, (self._parts[0].argument(recorder), *start), "enumerate_")

    def item(self, recorder: Capture, node: Node, names: Sequence[str], index: int = 0) -> Any:
        symbol = symbol_of(self._start)
        start = self._start if symbol is None else symbol._hint
        hint = start + index if isinstance(start, int) else UNKNOWN

        def number(node: Node, names: Sequence[str]) -> Any:
            return recorder.numbers.of_node(node, hint, int, is_sure=True)

        def value(node: Node, names: Sequence[str]) -> Any:
            return self._parts[0].item(recorder, node, names, index)

        return self._items(recorder, node, names, [number, value])

    def __iter__(self) -> Iterator[Any]:
        return iter(enumerate(self._parts[0], self._start))


class OpenReversed(OpenIterable):
    """`reversed` of a range or list of which a run knows the length."""

    def __init__(self, part: OpenIterable) -> None:
        self._part = part
        self.is_data = part.is_data

    def argument(self, recorder: Capture) -> Any:
        return recorder.make("call_function", reversed, (self._part.argument(recorder),), "reversed_")

    def listed(self, recorder: Capture) -> LoopList | None:
        """`list(reversed(values))` of a list of the run; None for what is no such list."""
        if not isinstance(self._part, _Grown):
            return None
        values = self._part.values
        arguments = (self.argument(recorder),)
        node = recorder.make("call_function", list, arguments, recorder.target_name() or "reversed_")
        made: LoopList = values.taken(values.content()[::-1], node, True)
        return made

    def item(self, recorder: Capture, node: Node, names: Sequence[str], index: int = 0) -> Any:
        return self._part.item(recorder, node, names, index)

    def length(self) -> int | None:
        return self._part.length()

    def __iter__(self) -> Iterator[Any]:
        return iter(reversed([*self._part]))


def iterable_of(value: Any, may_be_plain: bool = False) -> OpenIterable | None:
    """What a loop goes over where a run decides; None for what the program itself knows.

    With `may_be_plain` that may also be plain numbers, or tensors of one kind.
    """
    if isinstance(value, OpenIterable):
        return value
    if type(value) is TensorProxy:
        if value.example.dim() == 0:
            return None  # an error of the program's
        return Rows(value) if is_symbolic(value.recorder.numbers.length(value)) else None
    if isinstance(value, Proxy):
        return _Unknown(value)
    if isinstance(value, OfRun):
        return _Grown(value)
    if isinstance(value, KeptSequence):
        return _Grown(value.as_of_run())
    if isinstance(value, LoopDict | LoopSet | KeptDict):
        return _Grown(value.listed())
    if not may_be_plain:
        return None
    if isinstance(value, range):
        return _Items(value) if len(value) else None
    if type(value) is torch.Size:
        value = tuple(value)
    return _Items(value) if type(value) in (list, tuple) and _are_alike(value) else None


def _are_alike(values: Sequence[Any]) -> bool:
    """Tell whether values are tensors of one dtype and shape, or numbers of one kind."""
    if not values:
        return False
    kinds: set[Any] = set()
    for value in values:
        symbol = symbol_of(value)
        value = value.example if type(value) is TensorProxy else value
        if isinstance(value, torch.Tensor):
            with torch._C.DisableTorchFunction():  # the program does not ask for this
                kinds.add((value.dtype, value.dim()))
        elif symbol is not None or type(value) in (int, float):
            kinds.add(type(value) if symbol is None else symbol.kind)
        elif isinstance(value, Proxy):
            kinds.add(Proxy)
        elif not isinstance(value, ObjectProxy):
            return False
    return len(kinds) == 1
