"""Branches under symbolic tracing: what the runtime of converted functions asks for, on untyped proxies.

`Tracer.trace` runs a program without any of this. When the program asks whether a proxy is true, the functions that
asked are converted and the trace starts again with a `SymbolicRecorder`, which writes both sides of each branch, as
`trace` does. What takes values (dtypes, sizes, None) is not known here: a value that differs on the two sides becomes a
proxy, and what must not become one, None above all, makes the program fork.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from graphwright.capture.calls.autograd_functions import APPLY, applied_by, caller_of
from graphwright.capture.effects.branch_state import State
from graphwright.capture.effects.choices import Choices
from graphwright.capture.flow.loops import Loops
from graphwright.capture.flow.plain_attempts import PlainAttempts
from graphwright.capture.ladder.questions import Questions
from graphwright.capture.state.calls import Calls
from graphwright.capture.state.ledger import Ledger
from graphwright.capture.state.plan import Plan
from graphwright.capture.state.regions import Region
from graphwright.capture.state.running import BOUNDARIES, Refusal, capturing, run
from graphwright.capture.state.side_ended import Raised
from graphwright.capture.symbolic.parts import (
    NoExamples,
    ProxySubjects,
    TracerAmbient,
    UntypedJoining,
    UntypedNumbers,
    UntypedTransforms,
    UntypedWrites,
)
from graphwright.errors import CaptureError
from graphwright.ir import Argument, Graph, Node, Target, map_arg
from graphwright.source import CallSite, user_frame

if TYPE_CHECKING:
    from graphwright.capture.symbolic.tracer import Tracer


class SymbolicRecorder:
    """One run of a program under a tracer: the region that is being written to, and the questions asked so far."""

    def __init__(self, tracer: Tracer, plan: Plan) -> None:
        self.at_end: list[Callable[[], None]] = []  # that no item of a list was changed which a loop makes longer
        self.tracer = tracer
        self.typed = None
        self.is_running = True
        self.plan = plan
        self.log = plan.log
        self.ledger = Ledger(plan.log)
        self.pending: BaseException | None = None
        self.states: list[State] = []
        self.keep: list[Any] = []
        self.has_objects = False  # outside of torch, apart from proxies
        self.calls = Calls()
        self.writes = UntypedWrites()
        self.numbers = UntypedNumbers(tracer, self.writes)
        self.questions = Questions(self, ProxySubjects(self.writes))
        self.joining = UntypedJoining(tracer, plan)
        self.choices = Choices(self)
        self.loops = Loops(self)
        self.attempts = PlainAttempts()
        self.ambient = TracerAmbient(tracer, tracer._grad_regions)
        self.keeping = None  # attributes are what they are found to be
        self.examples = NoExamples()
        self.transforms = UntypedTransforms(tracer)
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

    @property
    def scope(self) -> Any:
        """The module call that is running."""
        return self.tracer.scope

    @property
    def shells(self) -> Any:
        """The shells that the program runs on."""
        return self.tracer._shells

    def run(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Run the program once."""
        try:
            with capturing(self):
                result = run(function, args, {})
                self.choices.at_end(result, args)
        except Raised:
            raise CaptureError("the program raises an exception whatever its inputs are", at=self.where()) from None
        except GeneratorExit:
            if self.pending is None:
                raise
        except (Exception, Refusal) as error:
            if isinstance(error, Refusal):
                raise error.error from None
            if self.pending is None and self.questions.forking.forks and self.questions.raises.is_raised_by_user(error):
                self.questions.raises.write_raise(error)
                return None
            why = self.pending or self.questions.refusals.failed_path(error)
            if why is error:
                raise
            raise why from error
        if self.pending is not None:  # the program caught it
            raise self.pending.error if isinstance(self.pending, Refusal) else self.pending
        for check in self.at_end:
            check()
        return result

    def lift(self, args: tuple[Any, ...]) -> Any:
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
                self.questions.staging.convert_all(self.questions.staging.convertible(user_frame(caller_of(outer))))
            outer = outer.f_back

    def value(self, value: Any) -> Any:
        """A tensor that the program has is what it was while it was traced."""
        return value

    def make(
        self, op: str, target: Target, args: tuple[Any, ...], name: str, kwargs: dict[str, Any] | None = None
    ) -> Node:
        """Make a node for the user's running line."""
        return self.tracer.create_node(op, target, args, kwargs or {}, name)

    def node(
        self, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], part: str = "", name: str = ""
    ) -> Node:
        """Make a node for the user's running line."""
        self.choices.at_node(target, args)
        return self.tracer.create_node(op, target, args, kwargs, name or part or None)

    def unpacked(self, node: Node, count: int, names: Sequence[str]) -> list[Node]:
        """The nodes of the items of a tuple."""
        return [self.node("call_function", operator.getitem, (node, i), {}, "getitem") for i in range(count)]

    def unpacked_names(self) -> Sequence[str]:
        """Nodes of symbolic tracing are not called as the source calls their values."""
        return ()

    def to_examples(self, value: Any, may_be_size: bool = True) -> Any:
        """There are no examples."""
        return value

    def mark(self) -> None:
        """Nothing is counted here."""

    def back_to(self, mark: None) -> None:
        """Nothing is counted here."""

    def torch_function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
