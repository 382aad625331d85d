"""Branches under symbolic tracing: what the runtime of converted functions asks for, on untyped proxies.

`Tracer.trace` runs a program without any of this. When the program asks whether a proxy is true, the functions that
asked are converted and the trace starts again with a `SymbolicRecorder`, which writes both sides of each branch, as
`trace` does. What takes values (dtypes, sizes, None) is not known here: a value that differs on the two sides becomes a
proxy, and what must not become one, None above all, makes the program fork.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.autograd_functions import APPLY, applied_by, caller_of
from graphwright.capture.calls.whole_calls import is_whole
from graphwright.capture.containers.item_kinds import kind_of_item
from graphwright.capture.containers.joining import are_of_run
from graphwright.capture.containers.loop_holders import check_items
from graphwright.capture.effects.branch_state import State
from graphwright.capture.flow.loops import Loops
from graphwright.capture.flow.plain_attempts import PlainAttempts
from graphwright.capture.ladder.questions import Questions
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.proxy import Proxy, find_tracer
from graphwright.capture.proxies.spellings import is_setitem, written_argument
from graphwright.capture.source.origins import CallSite, user_frame
from graphwright.capture.state.calls import Calls
from graphwright.capture.state.plan import Plan
from graphwright.capture.state.regions import Region
from graphwright.capture.state.running import BOUNDARIES, Refusal, capturing, run
from graphwright.capture.state.samples import Unlike, Verdict, WholeKind
from graphwright.capture.state.side_ended import Raised
from graphwright.errors import CaptureError
from graphwright.ir import Argument, Graph, Node, map_arg
from graphwright.values import ANY, Kind, Policy

if TYPE_CHECKING:
    from graphwright.capture.symbolic.tracer import Tracer

__all__ = ["SymbolicRecorder"]


class SymbolicRecorder:
    """One run of a program under a tracer: the region that is being written to, and the questions asked so far."""

    def __init__(self, tracer: Tracer, plan: Plan) -> None:
        self.reads_early = False  # whether a loop reads an item of a list before it is known to have any
        self.listed: list[Any] = []  # items of lists that loops make longer, and what they held
        self.tracer = tracer
        self.typed = None
        self.is_running = True
        self.plan = plan
        self.log = plan.log
        self.pending: BaseException | None = None
        self.states: list[State] = []
        self.keep: list[Any] = []
        self.has_objects = False  # outside of torch, apart from proxies
        self.calls = Calls()
        self.numbers = _Numbers(self)
        self.questions = _Questions(self)
        self.joining = _Joining(self)
        self.loops = Loops(self)
        self.attempts = PlainAttempts()
        self.ambient = _Ambient(tracer)
        self.keeping = None  # attributes are what they are found to be
        self.examples = _NoExamples()
        self.writes = _Writes()
        self.transforms = _Wholes(tracer)
        self.last_frame: FrameType | None = None  # that recorded something
        self.root = Region(graph=tracer.graph)
        self._region = self.root
        self._parameters: dict[Region, dict[str, Any]] = {self.root: tracer.parameter_proxy_cache}

    @property
    def region(self) -> Region:
        """The graph that is being written to; setting it makes the tracer write there."""
        return self._region

    @region.setter
    def region(self, region: Region) -> None:
        if region not in self._parameters:
            self._parameters[region] = dict(self._parameters[self._region])
        self._region = region
        self.tracer.graph = region.graph
        self.tracer._lift = None if region.outer is None else self.lift
        self.tracer.parameter_proxy_cache = self._parameters[region]

    @property
    def graph(self) -> Graph:
        """The graph that is being written to."""
        return self._region.graph

    def open_graphs(self) -> list[Graph]:
        """The graph that is being written to, and those around its branch."""
        region: Region | None = self._region
        graphs = []
        while region is not None:
            graphs.append(region.graph)
            region = region.outer
        return graphs

    @property
    def scope(self) -> Any:
        """The module call that is running."""
        return self.tracer.scope

    @property
    def shells(self) -> Any:
        """The shells that the program runs on."""
        return self.tracer._shells

    def run(self, function: Callable[..., Any], args: Any) -> Any:
        """Run the program once."""
        try:
            with capturing(self):
                result = run(function, args, {})
        except Raised:
            raise CaptureError("the program raises an exception whatever its inputs are", at=self.where()) from None
        except (Exception, Refusal) as error:
            if isinstance(error, Refusal):
                raise error.error from None
            if self.pending is None and self.questions.is_raised_by_user(error):
                self.questions.write_raise(error)
                return None
            why = self.pending or self.questions.failed_path(error)
            if why is error:
                raise
            raise why from error
        if self.pending is not None:  # the program caught it
            raise self.pending.error if isinstance(self.pending, Refusal) else self.pending
        check_items(self.listed)
        return result

    def lift(self, args: Any) -> Any:
        """Arguments as the region that is being written to knows them."""
        if self._region.outer is None:
            return args
        try:
            return map_arg(args, self._region.lift)
        except LookupError:
            raise CaptureError(
                "a value that was computed in one branch is used after it",
                at=self.where(),
                fix="return it from the branch, or give it to a variable that both branches assign",
            ) from None

    lifted = lift

    def argument(self, value: Any) -> Argument:
        """Turn a value of the program into an argument of a node."""
        return self.tracer.create_arg(value)

    def look(self, frame: FrameType) -> None:
        """See that an operation is not inside the forward of an autograd function, whose backward would be lost."""
        self.last_frame = frame
        outer: FrameType | None = frame
        while outer is not None and outer.f_code not in BOUNDARIES:
            if outer.f_code is APPLY or (APPLY is None and applied_by(outer) is not None):
                codes = self.questions.convertible(user_frame(caller_of(outer)))
                if codes:
                    raise self.questions.restart(self.plan.convert(codes))
            outer = outer.f_back

    def value(self, value: Any) -> Any:
        """A tensor that the program has is what it was while it was traced."""
        return value

    def make(self, op: str, target: Any, args: tuple[Any, ...], name: str, kwargs: Any = None) -> Node:
        """Make a node for the user's running line."""
        return self.tracer.create_node(op, target, args, kwargs or {}, name)

    def node(self, op: str, target: Any, args: Any, kwargs: Any, part: str = "", name: str = "") -> Node:
        """Make a node for the user's running line."""
        return self.tracer.create_node(op, target, args, kwargs, name or part or None)

    def unpacked(self, node: Node, count: int, names: Sequence[str]) -> list[Node]:
        """The nodes of the items of a tuple."""
        return [self.node("call_function", operator.getitem, (node, i), {}, "getitem") for i in range(count)]

    def unpacked_names(self) -> Sequence[str]:
        """Nodes of symbolic tracing are not called as the source calls their values."""
        return ()

    def to_examples(self, value: Any) -> Any:
        """There are no examples."""
        return value

    def mark(self) -> None:
        """Nothing is counted here."""

    def back_to(self, mark: None) -> None:
        """Nothing is counted here."""

    def torch_function(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Record a call that takes no proxies."""
        return self.tracer.create_proxy("call_function", function, args, kwargs)

    def target_name(self) -> str:
        """What the value of a branch is called: nothing special, as all nodes under symbolic tracing."""
        return ""

    def site(self) -> CallSite | None:
        """Where in the program the capture is."""
        frame = user_frame(sys._getframe(1))
        return None if frame is None else CallSite(frame.f_code, frame.f_lasti, self.scope)

    def where(self) -> str | None:
        """The user's line that is running."""
        site = self.site()
        return None if site is None else site.line()


class _Writes:
    """What the program writes in place: nobody knows which proxies share their memory, so that it may be any."""

    def __init__(self) -> None:
        self.stamp = 0  # tells the data of all tensors from that at other times
        self._stamps: dict[Node, int] = {}

    def read(self, truth: Node) -> None:
        """Note that a truth is read: as of now."""
        self._stamps[truth] = self.stamp

    def is_current(self, truth: Node) -> bool:
        """Tell whether nothing was written since a truth was read."""
        return self._stamps.get(truth) == self.stamp

    def before(self, op: str, target: Any, args: Any, kwargs: Any) -> None:
        """An operation is about to be written."""
        if is_setitem(target) or written_argument(op, target, args, kwargs) is not None:
            self.stamp += 1

    def start_loop(self) -> None:
        """An iteration starts, in which tensors may hold what an earlier one has written."""
        self.stamp += 1


class _NoExamples:
    """The program runs on nothing."""

    is_real = False
    are_there = False
    is_running = False


class _Wholes:
    """The calls of autograd functions and of functions that TorchScript has compiled: each is one node."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def handler(self, function: Any) -> Callable[..., Any] | None:
        """What to call in place of such a function; None for others."""
        return functools.partial(self._record, function) if is_whole(function) else None

    def _record(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if find_tracer(args, kwargs) is None:
            return function(*args, **kwargs)
        return self._tracer.create_proxy("call_function", function, args, kwargs)


class _Ambient:
    """The regions of grad mode, which the tracer keeps."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @property
    def depth(self) -> int:
        """How many regions the program is inside of."""
        return len(self._tracer._grad_regions)

    def forget(self, depth: int) -> None:
        """Go back to an earlier depth."""
        del self._tracer._grad_regions[depth:]

    def notice(self) -> None:
        """Everything is seen when it happens."""


class _Joining:
    """Joins untyped values: a proxy with a proxy, a tensor or a number, and two different numbers.

    None must not become a proxy, which nobody could tell from a tensor; nor must text, or a container.
    """

    def __init__(self, recorder: SymbolicRecorder) -> None:
        self._recorder = recorder

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
        return self._recorder.plan.items_grow

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

    def stand_in(self, sample: Kind, node: Node, place: Any, hint: Any = None) -> Any:
        """The value in the program of a node."""
        return sample.whole.on(node) if isinstance(sample, WholeKind) else self._recorder.tracer.proxy(node)

    def node_of(self, value: Any) -> Node | None:
        """The node of a value that only a run has."""
        return value.node_of() if is_growing(value) else value.node  # type: ignore[no-any-return]

    def value(self, subject: Any, pair: tuple[Any, Any], node: Node, place: Any, then_raised: bool) -> Any:
        """The value in the program of one output of a branch."""
        whole = next((side for side in pair if is_growing(side)), None)
        if whole is None:
            return self._recorder.tracer.proxy(node)
        return whole.joined_with(pair[0]).joined_with(pair[1]).on(node)

    def kind_name(self, value: Any) -> str:
        """What kind of value the program has there, in a message."""
        return "a value of the run" if isinstance(value, Proxy) else type(value).__name__

    def source_name(self, value: Any) -> str:
        """What the source calls a value: nodes of symbolic tracing are not called so."""
        return ""


_NUMBERS = (int, float, bool)
_JOINED = (Proxy, torch.Tensor, *_NUMBERS)


class _Numbers:
    """What the runtime does with proxies in place of numbers and truths: nodes."""

    def __init__(self, recorder: SymbolicRecorder) -> None:
        self._recorder = recorder

    def truth(self, value: Any) -> Any:
        """`bool(value)`."""
        if is_growing(value):
            return self.computed(bool, (value,), {})
        if not isinstance(value, Proxy):
            return bool(value)
        truth = self.computed(bool, (value,), {})
        self._recorder.writes.read(truth.node)
        return truth

    def loose_truth(self, value: Any) -> Any:
        """A value of which only the truth counts."""
        return value

    def negation(self, value: Any) -> Any:
        """`not value`."""
        return self.computed(operator.not_, (value,), {})

    def compare(self, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """One comparison."""
        return function(left, right)

    def length(self, value: Any) -> Any:
        """`len(value)`."""
        return self.computed(len, (value,), {})

    def of_node(self, node: Node, hint: Any, kind: type) -> Any:
        """The number that a node gives."""
        return self._recorder.tracer.proxy(node)

    def computed(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a function of Python's that takes numbers."""
        return self._recorder.tracer.create_proxy("call_function", function, args, kwargs)

    def predicate(self, subject: Any) -> Argument:
        """The argument that decides a branch."""
        node: Node = subject.node
        return node.args[0] if self._recorder.writes.is_current(node) else node

    def hint(self, subject: Any) -> None:
        """What the examples say of a value: there are none."""


class _Questions(Questions):
    """The ladder without values: convert, branch, fork, refuse."""

    _recorder: Any

    def subject_of(self, test: Any) -> Any:
        return test

    def key_of(self, subject: Any) -> Any:
        return subject.node, self._recorder.writes.stamp

    def opposite(self, subject: Any) -> Any:
        node = subject.node
        is_negation = node.op == "call_function" and node.target is operator.not_
        return self.key_of(self._recorder.tracer.proxy(node.args[0])) if is_negation else None

    def decide(self, subject: Any, kind: type = bool) -> Any:
        """Answer whether a proxy is true: convert who asks, or fork. None where neither can be."""
        if self._recorder.pending is not None:
            raise self._recorder.pending
        key = self.key_of(subject)
        if key in self.known:
            return self.known[key]
        if not self.is_asked_by_user():
            return None
        self.stage(user_frame(sys._getframe(1)))
        return self._fork(subject, key, self.place())

    def is_data(self, subject: Any) -> bool:
        return True

    def admit_optionals(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """No value here is None at times."""
