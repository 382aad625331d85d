"""The parts of a capture without example values: what is known of untyped proxies, which is how they are made."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Sized
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from graphwright.capture.calls.whole_calls import is_whole
from graphwright.capture.containers.item_kinds import kind_of_item
from graphwright.capture.containers.joining import are_of_run
from graphwright.capture.proxies.calls_as_written import CalledTargets
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.proxy import Proxy, find_tracer
from graphwright.capture.proxies.recording import TracerBase
from graphwright.capture.state.samples import Unlike, Verdict, WholeKind
from graphwright.ir import Argument, Node, Target
from graphwright.ops import enter_context, exit_context
from graphwright.values import ANY, Kind, Policy

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.plan import Plan
    from graphwright.capture.state.rungs import Condition, HasTruth, QuestionSubject
    from graphwright.capture.state.symbols import Number

_T = TypeVar("_T")


class UntypedWrites:
    """What the program writes in place: nobody knows which proxies share their memory, so that it may be any."""

    def __init__(self) -> None:
        self.stamp = 0  # tells the data of all tensors from that at other times
        self._stamps: dict[Node, int] = {}
        self.harmless: set[tuple[str, Target]] = set()  # what writes only where a keyword says so
        self._called = CalledTargets()

    def read(self, truth: Node) -> None:
        """Note that a truth is read: as of now."""
        self._stamps[truth] = self.stamp

    def is_current(self, truth: Node) -> bool:
        """Tell whether nothing was written since a truth was read."""
        return self._stamps.get(truth) == self.stamp

    @property
    def count(self) -> int:
        """How many writes there were."""
        return self.stamp

    def before(self, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation is about to be written."""
        _, writes, writes_item, _ = self._called[op, target]
        if not writes and not writes_item:
            self.harmless.add((op, target))
            if not kwargs:
                return
        writes = writes or writes_item or (op != "call_method" and bool(kwargs.get("inplace")))
        if writes or kwargs.get("out") is not None:
            self.stamp += 1

    def start_loop(self) -> None:
        """An iteration starts, in which tensors may hold what an earlier one has written."""
        self.stamp += 1


class NoExamples:
    """The program runs on nothing."""

    is_real = False
    are_there = False
    is_running = False

    def quiet(self, run: Callable[[], _T]) -> _T:
        """Do something that is none of the program's doing: nothing listens."""
        return run()


class UntypedTransforms:
    """The calls of autograd functions and of functions that TorchScript has compiled: each is one node."""

    def __init__(self, tracer: TracerBase) -> None:
        self._tracer = tracer

    def handler(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """What to call in place of such a function; None for others."""
        return functools.partial(self._record, function) if is_whole(function) else None

    def _record(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if find_tracer(args, kwargs) is None:
            return function(*args, **kwargs)
        return self._tracer.create_proxy("call_function", function, args, kwargs)


class TracerAmbient:
    """The regions of grad mode, which the tracer keeps."""

    def __init__(self, tracer: TracerBase, regions: list[tuple[bool, Node]]) -> None:
        self._tracer, self._regions = tracer, regions

    @contextlib.contextmanager
    def inference_mode(self, enabled: bool) -> Iterator[None]:
        """What to enter in place of `torch._C._InferenceMode(enabled)`; what is made meanwhile are ordinary tensors."""
        args = (torch.inference_mode, *(() if enabled is True else (self._tracer.create_arg(enabled),)))
        entered = self._tracer.create_node("call_function", enter_context, args, {}, "inference_mode")
        try:
            yield
        finally:
            self._tracer.create_node("call_function", exit_context, (entered,), {})

    @property
    def depth(self) -> int:
        """How many regions the program is inside of."""
        return len(self._regions)

    def forget(self, depth: int) -> None:
        """Go back to an earlier depth."""
        del self._regions[depth:]

    def notice(self) -> None:
        """Everything is seen when it happens."""


class UntypedJoining:
    """Joins untyped values: a proxy with a proxy, a tensor or a number, and two different numbers.

    None must not become a proxy, which nobody could tell from a tensor; nor must text, or a container.
    """

    def __init__(self, tracer: TracerBase, plan: Plan) -> None:
        self._tracer = tracer
        self._plan = plan

    def policy(self, name: str) -> Policy:
        """Nothing is known of a value but that it is one."""
        return Policy(
            (), (), texts_differ=True, lengths_differ=True, values_may_be_any=True,
            kind_of=lambda key: kind_of_item(self, key, name),
        )  # fmt: skip

    def verdict(self, a: Any, b: Any, may_be_none: bool) -> Verdict:
        """Say what becomes of two values. Raises Unlike."""
        if type(a) is type(b) and type(a) in _NUMBERS:
            return "same" if a == b else "join"
        if are_of_run(a, b):
            return "join"
        if not isinstance(a, _JOINED) or not isinstance(b, _JOINED):
            return "look inside"
        if not isinstance(a, Proxy) and not isinstance(b, Proxy):
            raise Unlike(f"{type(a).__name__} on one side, {type(b).__name__} on the other")
        return "join"

    def is_open(self, value: Any) -> bool:
        """Tell whether only a run has a value."""
        return isinstance(value, Proxy) or is_growing(value)

    def items_grow(self) -> bool:
        """Tell whether lists that are items get longer."""
        return self._plan.items_grow

    def carried(self, entry: Any, after: Any) -> Verdict:
        """Say what becomes of a value that an iteration of a loop finds, and leaves another way."""
        if are_of_run(entry, after):
            return "join"
        if type(entry) is type(after) and type(entry) in _NUMBERS and entry == after:
            return "same"
        return "join" if isinstance(entry, _JOINED) and isinstance(after, _JOINED) else "look inside"

    def sample(self, entry: Any, after: Any) -> Kind:
        """What a value is like: nobody knows."""
        if is_growing(after) or is_growing(entry):
            return WholeKind(after.joined_with(entry) if is_growing(after) else entry.joined_with(after))
        return ANY

    def widened(self, sample: Kind, after: Any) -> Kind:
        """What a value is like that an iteration leaves so, too. Raises Unlike for what is no value of a run."""
        if isinstance(sample, WholeKind) and are_of_run(sample.whole, after):
            whole = sample.whole.joined_with(after)
            return sample if whole.kind is sample.whole.kind else WholeKind(whole)
        if not isinstance(after, _JOINED) or isinstance(sample, WholeKind):
            raise Unlike(f"a value of the run before, {self.kind_name(after)} after an iteration")
        return sample

    def like(self, sample: Kind, value: Any) -> Kind:
        """A sample with the example of a value: there are none."""
        return sample

    def changes_size(self, sample: Kind, after: Any) -> bool:
        """Tell whether a size changes: nobody knows it."""
        return False

    def stand_in(self, sample: Kind, node: Node, place: Place | None, hint: Any = None) -> Any:
        """The value in the program of a node."""
        return sample.whole.on(node) if isinstance(sample, WholeKind) else self._tracer.proxy(node)

    def node_of(self, value: Any) -> Node | None:
        """The node of a value that only a run has."""
        return value.node_of() if is_growing(value) else value.node  # type: ignore[no-any-return]

    def value(
        self, subject: QuestionSubject, pair: tuple[Any, Any], node: Node, place: Place | None, then_raised: bool
    ) -> Any:
        """The value in the program of one output of a branch."""
        whole = next((side for side in pair if is_growing(side)), None)
        if whole is None:
            return self._tracer.proxy(node)
        return whole.joined_with(pair[0]).joined_with(pair[1]).on(node)

    def kind_name(self, value: Any) -> str:
        """What kind of value the program has there, in a message."""
        return "a value of the run" if isinstance(value, Proxy) else type(value).__name__

    def source_name(self, value: Any) -> str:
        """What the source calls a value: nodes of symbolic tracing are not called so."""
        return ""


_NUMBERS = (int, float, bool)
_JOINED = (Proxy, torch.Tensor, *_NUMBERS)


class UntypedNumbers:
    """What the runtime does with proxies in place of numbers and truths: nodes."""

    def __init__(self, tracer: TracerBase, writes: UntypedWrites) -> None:
        self._tracer = tracer
        self._writes = writes

    def truth(self, value: Condition) -> Any:
        """`bool(value)`."""
        if is_growing(value):
            return self.computed(bool, (value,), {})
        if not isinstance(value, Proxy):
            return bool(value)
        truth = self.computed(bool, (value,), {})
        self._writes.read(truth.node)
        return truth

    def loose_truth(self, value: Condition) -> Any:
        """A value of which only the truth counts."""
        return value

    def negation(self, value: Condition) -> Any:
        """`not value`."""
        return self.computed(operator.not_, (value,), {})

    def compare(self, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """One comparison."""
        return function(left, right)

    def length(self, value: Sized) -> Any:
        """`len(value)`."""
        return self.computed(len, (value,), {})

    def of_node(self, node: Node, hint: Number, kind: type, is_sure: bool = False) -> Any:
        """The number that a node gives."""
        return self._tracer.proxy(node)

    def computed(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a function of Python's that takes numbers."""
        return self._tracer.create_proxy("call_function", function, args, kwargs)

    def predicate(self, subject: Any) -> Argument:
        """The argument that decides a branch."""
        node: Node = subject.node
        return node.args[0] if self._writes.is_current(node) else node

    def hint(self, subject: QuestionSubject) -> None:
        """What the examples say of a value: there are none."""


class ProxySubjects:
    """The values that Python asks about: proxies, told apart by their nodes and by what was written since."""

    def __init__(self, writes: UntypedWrites) -> None:
        self._writes = writes

    def subject_of(self, test: HasTruth) -> Any:
        """What decides a branch on a value: the value."""
        return test

    def key_of(self, subject: Any) -> Any:
        """What tells a value from others."""
        return subject.node, self._writes.stamp

    def opposite(self, subject: Any) -> Any:
        """What tells the value whose negation a value is from others; None for what is no negation."""
        node = subject.node
        is_negation = node.op == "call_function" and node.target is operator.not_
        return (node.args[0], self._writes.stamp) if is_negation else None

    def is_data(self, subject: QuestionSubject) -> bool:
        """Tell whether a value depends on data: nobody knows, so that it may."""
        return True
