"""Calls that a capture must see by what calls them: `torch.vmap(f)(x)`, `MyFunction.apply(x)`.

They come through the runtime of converted functions. Where the calling function is not converted yet, the first thing
that happens inside the call - an operation, the call of a module, a tensor that reaches C++ - finds torch's function on
the stack: the caller is then converted, and the capture starts again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.autograd_functions import APPLY, applied_by, caller_of
from graphwright.capture.calls.identity import told_by
from graphwright.capture.calls.whole_calls import inline
from graphwright.capture.conversion.conversion import (
    asked_for_none,
    asks_class,
    asks_identity,
    asks_kind,
    asks_of_owner,
    attributes_asked,
    can_convert,
    compared,
    is_converted,
    original_code,
)
from graphwright.capture.effects.watched_values import WatchedOutside
from graphwright.capture.flow.tried_lines import catches_refusals
from graphwright.capture.outside.drawing import MAKERS
from graphwright.capture.outside.globals_kept import Globals
from graphwright.capture.outside.library_calls import CODES, is_unheard
from graphwright.capture.outside.overheard import Unnamed
from graphwright.capture.outside.surroundings import World
from graphwright.capture.outside.torch_generators import METHODS
from graphwright.capture.proxies.recording import MOST_OPERATIONS, NO_END
from graphwright.capture.proxies.uncertain import is_input
from graphwright.capture.python.calls import call
from graphwright.capture.python.reached import Reached
from graphwright.capture.python.transforms import BY_CODE, MADE
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.running import BOUNDARIES, RUN, again, refusal, refused
from graphwright.capture.state.tracer_warnings import warn_tracer
from graphwright.errors import CaptureError
from graphwright.source import cache_around, is_of_library, stored_globals, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.tensor_proxy import TensorProxy

_FUNCTIONAL_CALL = torch.func.functional_call.__code__
_SEEN = frozenset(map(id, {*BY_CODE, *MADE, _FUNCTIONAL_CALL} | ({APPLY} if APPLY is not None else set())))
_CALL = call.__code__
_METHODS = frozenset({*METHODS, "seed", "getstate", "setstate"})
_FIX = "call it where the source can be read, or make the calling function a leaf: leaf_functions=[...]"


class Callers:
    """Looks for such calls on the stack of one capture."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._recorded: dict[tuple[int, int], int] = {}  # by function and instruction
        self._last: FrameType | None = None
        self._globals = Globals()
        self._world, self._unnamed, self._reached = World(), Unnamed(()), Reached()
        self._outside = WatchedOutside(self._world.variables)
        self.generators, self.overheard = self._globals.generators, self._globals.overheard
        self.closing = self._globals.closing
        self._uncached: set[int] = set()  # functions that are behind no cache that the capture could avoid, by id
        self._entered: list[Any] = []  # caches that it could not avoid
        self._looked_at: dict[int, CodeType] = {}  # by id: code objects take long to hash
        self.asked_attributes: frozenset[str] = frozenset()  # of objects, of which methods may have asked what they are
        self._may_ask: set[CodeType] = set()  # functions on the ways to questions of what kind something is

    def forget(self, is_over: bool = True) -> None:
        """Keep no frame alive, nor values of the capture in caches and globals. `is_over`: the program has ended."""
        self._last = None
        self._globals.put_back(is_over, self._recorder.log)
        while self._entered:
            self._entered.pop().cache_clear()

    def let_go(self) -> None:
        """Keep no frame alive, nor so what it and those around it hold."""
        self._recorder.choices.look()  # while what they are about is held
        self._last = None
        self._recorder.attempts.forget()

    def anticipate(self, function: Callable[..., Any], reached: Reached) -> None:
        """Have a function converted before the program runs that asks what Python answers, or calls what does."""
        owner, inner = getattr(function, "__self__", None), getattr(function, "__func__", function)
        if type(inner) is FunctionType:
            self._recorder.plan.converted |= self._convertible(reached.asking_in(inner, owner, _asks))

    def start(self, function: Callable[..., Any], world: World, unnamed: Unnamed, reached: Reached) -> None:
        """Note the global variables of the program before it runs: of the function itself, and of its modules.

        Raises Restart where functions are to run converted from the start.
        """
        self._world, self._outside = world, WatchedOutside(world.variables)
        self._unnamed, self._reached = unnamed, reached
        shells = self._recorder.shells
        functions = [function, *([] if shells is None else [shell.forward for _, shell, _ in shells.all()])]
        plain = dict.fromkeys([getattr(each, "__func__", each) for each in functions])
        first = next(iter(plain))
        if type(first) is FunctionType:  # it may record nothing
            owner = getattr(function, "__self__", None)
            self._may_ask |= reached.asking_in(first, owner, _asks_of_inputs)
        for each in plain:
            if type(each) is not FunctionType:
                continue
            self._globals.follow(each)
            if self._touches_generators(each.__code__):
                self._have_converted({each.__code__})
            if stored_globals(each.__code__):
                self._globals.note(each.__code__, each.__globals__)
        for names in {id(each.__globals__): each.__globals__ for each in world.functions.values()}.values():
            self._globals.hear_in(names)
        plan, found = self._recorder.plan, set[CodeType]()
        unnamed.look()

        def is_unknown(code: CodeType, names: dict[str, Any], own: dict[str, Any]) -> bool:
            return code in world.unknown

        for each in functions:
            owner, inner = getattr(each, "__self__", None), getattr(each, "__func__", each)
            if type(inner) is FunctionType:
                found |= reached.asking_in(inner, owner, unnamed)
            if type(inner) is FunctionType and world.unknown:
                plan.converted |= self._convertible(reached.asking_in(inner, owner, is_unknown))
        if found := self._convertible(found):
            raise plan.convert(found)

    @property
    def stand_in(self) -> CodeType:
        """The code that makes the calls of converted functions in their place."""
        return _CALL

    def looked_for(self) -> Collection[str]:
        """Which attributes may be missing where the program looks."""
        return self._world.looked_for

    def may_look_for(self, name: str, in_dicts: bool) -> bool:
        """Tell whether the program may find out that something has no attribute of this name.

        `in_dicts`: by the dict of attributes, of which nobody is told.
        """
        return name in (self._world.looked_up if in_dicts else self._world.looked_for)

    def note_given(self, value: Any, subject: str, code: CodeType) -> None:
        """A call that is not known to compute has given something that others hold as well."""
        self._world.note_given(value, subject, code)

    def shows(self, owner: Any) -> bool:
        """Tell whether what a method does to an object is seen by what that holds."""
        return self._world.shows(owner)

    def mention(self, name: str, code: CodeType) -> None:
        """The program looks for an attribute by a name that it may have computed."""
        self._world.mention(name, code)

    @property
    def outside(self) -> WatchedOutside:
        """What the program may change outside of functions and modules."""
        return self._outside

    def look(self, frame: FrameType) -> None:
        """An operation was recorded for this frame of the program: see that no unseen call is around it.

        Raises CaptureError where one place of the program records so many that it seems to go on without an end.
        """
        place = id(frame.f_code), frame.f_lasti
        self._recorded[place] = count = self._recorded.get(place, 0) + 1
        if count > MOST_OPERATIONS:
            raise refused(
                self._recorder, NO_END, "bound it by a number, or keep the function as one node: leaf_functions=[...]"
            )
        inner = sys._getframe(1)
        while inner is not frame:  # what torch itself does for such a call, as for a forward that gives what it got
            if id(inner.f_code) in _SEEN:
                self._met_between(inner, frame)
            inner = inner.f_back  # type: ignore[assignment]
        if frame is not self._last:
            self._last = frame
            self._recorder.attempts.forget()
            if frame.f_code.co_name.startswith("torch_dynamo_resume_in_"):  # it made this of the program's code
                self.reached_compiler()
            found = _outermost(frame)
            if found is not None:
                self._met(found)
            if _is_of_program(frame, sys._getframe(1)):
                self._globals.note(frame.f_code, frame.f_globals)
                self._look_around(frame)

    def _met_between(self, frame: FrameType, last: FrameType) -> None:
        found = _between(frame, last)
        if found is not None:
            self._met(found)

    def _look_for_generators(self, frame: FrameType) -> None:
        """See which generators of random numbers a function closes over; have one that makes or sets one converted."""
        if frame.f_code.co_freevars:
            self._globals.search_closure(frame, self._recorder.plan)
        if not MAKERS.isdisjoint(frame.f_code.co_names) or self._touches_generators(frame.f_code):
            self._recorder.questions.staging.stage(frame)
            if "default_generator" in frame.f_code.co_names and not is_converted(frame.f_code):
                raise refused(
                    self._recorder,
                    "the program sets torch.default_generator where it cannot be recorded",
                    "call torch.manual_seed, torch.get_rng_state or torch.set_rng_state",
                )

    def _touches_generators(self, code: CodeType) -> bool:
        """Tell whether a function may call methods of generators that it holds: those of modules are heard of."""
        if _METHODS.isdisjoint(code.co_names):
            return False
        if "default_generator" in code.co_names:
            self._recorder.plan.sets_torch_state = True
            return True
        return bool(self.generators or self._recorder.plan.generators)

    def _look_for_askers(self, frame: FrameType) -> None:
        """Have a function converted that asks whether two tensors are one, or of what class, or that calls such."""
        codes = self._reached.asking_from(frame, _asks) | self._reached.asking_from(frame, self._unnamed)
        if codes:
            self._have_converted(codes | self._recorder.questions.staging.convertible(frame))

    def _have_converted(self, codes: Collection[CodeType]) -> None:
        if self._recorder.pending is None:
            self._recorder.questions.staging.convert_all(self._convertible(codes))

    def _convertible(self, codes: Collection[CodeType]) -> set[CodeType]:
        """Those that are to be converted and are not yet."""
        plan = self._recorder.plan
        if not codes or plan.control_flow != "stage":
            return set()
        return {code for code in codes if code not in plan.converted and not is_converted(code) and can_convert(code)}

    def look_at_call(self) -> None:
        """A module is called: see that it is not by a call that nobody saw."""
        frame = sys._getframe(2)
        inner = user_frame(frame)
        found = None if inner is None else _outermost(inner) or _between(frame, inner)
        if found is not None:
            self._met(found)

    def _look_around(self, frame: FrameType | None) -> None:
        """Look at each function around an operation once, and leave `functools` caches out of the way.

        Such a cache would keep what the capture computes.
        """
        while frame is not None and id(frame.f_code) not in _ENDS:
            if id(frame.f_code) not in self._uncached:
                self._look_at(frame, frame.f_code)
            frame = frame.f_back

    def _look_for_questions(self, frame: FrameType, code: CodeType) -> None:
        """Note what a function may ask of the kinds of inputs: whether they are None, or of what class."""
        ledger, held, code = self._recorder.ledger, frame.f_locals, original_code(code) or code
        of_owner = asks_of_owner(code) and is_input(held.get(code.co_varnames[0]))
        if asks_kind(code) or of_owner:
            ledger.kind_asked()
        for value in filter(is_input, map(held.get, asked_for_none(code))):
            ledger.ask_of_input(value, "none")
        for name, how in compared(code):
            value = held.get(name)
            is_open = type(value) is dict or id(value) in self._recorder.objects
            if isinstance(value, tuple | list) or (how != "member" and is_open):
                ledger.kind_asked()  # of what it holds
            elif how == "itself" and is_input(value):
                ledger.ask_of_input(value, "class")
        if not ledger.asks_kinds:
            self._may_ask |= self._reached.asking_from(frame, _asks_of_inputs)

    def settle_questions(self) -> None:
        """The program has ended: of what kind inputs are is asked by functions, too, in which it recorded nothing."""
        seen = {original_code(code) for code in self._looked_at.values()} | self._recorder.plan.converted
        unseen = self._may_ask.union(function.__code__ for function in self._world.functions.values()) - seen
        has_asked = any(map(_may_ask_of_inputs, unseen))
        if has_asked or (self._recorder.objects and any(map(asks_of_owner, unseen))):
            self._recorder.ledger.kind_asked()
        codes = [*unseen, *filter(None, seen)] if self._recorder.shells is not None else ()
        asking = [code for code in codes if has_asked or asks_of_owner(code)]
        self.asked_attributes = frozenset(name for code in asking for name in attributes_asked(code))

    def _look_at(self, frame: FrameType, code: CodeType) -> None:
        if id(code) in CODES and not self._recorder.plan.enters_libraries and is_unheard(frame):
            staging = self._recorder.questions.staging
            staging.convert_all(staging.convertible(user_frame(frame.f_back)))
        if id(code) not in self._looked_at:
            self._looked_at[id(code)] = code
            if user_frame(frame) is frame:
                self._look_for_generators(frame)
                self._look_for_askers(frame)
                self._look_for_questions(frame, code)
                if catches_refusals(code):
                    self._have_converted(self._recorder.questions.staging.convertible(frame))
        self._world.enter(code, frame.f_globals)
        is_avoided = frame.f_back is not None and frame.f_back.f_code is _CALL
        cache = None if is_avoided else cache_around(frame)
        if cache is not None:
            staging = self._recorder.questions.staging
            staging.convert_all(staging.convertible(user_frame(frame.f_back)))
            self._entered.append(cache)
        self._uncached.add(id(code))

    def reached_compiler(self) -> None:
        """Torch.compile is at work, which looks at tensors with modes like ours off: start again without it."""
        recorder = self._recorder
        if recorder.pending is None and not recorder.plan.is_uncompiled:
            recorder.plan.is_uncompiled = True
            raise recorder.questions.restart(Restart("the program calls a function of torch.compile"))

    def reached_cpp(self, function: Callable[..., Any]) -> BaseException:
        """What to raise where a tensor of the program reaches C++: start again with the caller converted, or refuse."""
        recorder = self._recorder
        if recorder.pending is not None:
            return again(recorder.pending)
        frame = user_frame(sys._getframe(1))
        if recorder.is_running and frame is not None:
            found = _between(sys._getframe(1), frame) or _outermost(frame)
            codes = recorder.questions.staging.convertible(user_frame(caller_of(found)) if found is not None else frame)
            if codes:
                return recorder.questions.restart(recorder.plan.convert(codes))
        return refusal(
            CaptureError(
                f"{function} reached a tensor of the captured program from C++: it cannot be recorded",
                at=recorder.where() if recorder.is_running else None,
                fix="make the calling function a leaf: leaf_functions=[...]",
            )
        )

    def _met(self, found: FrameType) -> None:
        """A call was not seen: have its caller converted; where that cannot be, do without or refuse."""
        recorder = self._recorder
        recorder.questions.staging.convert_all(recorder.questions.staging.convertible(user_frame(caller_of(found))))
        function = applied_by(found)
        if function is not None:
            self.follow(function)
        elif BY_CODE.get(found.f_code) != "torch.utils.checkpoint.checkpoint":
            name = BY_CODE.get(found.f_code) or MADE.get(found.f_code) or "torch.func.functional_call"
            raise refused(recorder, f"a call of {name} cannot be recorded from here", _FIX)

    def viewed_as_itself(self) -> None:
        """See whether C viewed a tensor as itself: the forward of an autograd function gave back what it got.

        No frame tells of that where `apply` is written in C. It has forward mode off then, which constructors of
        tensor classes, that view what they get, have not.
        """
        is_applied = APPLY is None and not torch._C._is_fwd_grad_enabled()
        frame = user_frame(sys._getframe(1)) if is_applied else None
        if frame is not None and "view_as" not in frame.f_code.co_names:
            staging = self._recorder.questions.staging
            staging.convert_all(staging.convertible(frame))
            self.follow(torch.autograd.Function)

    def hashed(self, tensor: TensorProxy) -> None:
        """A tensor becomes the key of a dict or the item of a set: it is told from other ones."""
        told_by(tensor)

    def follow(self, function: type) -> None:
        """Say that an autograd function's own backward is lost: its operations are recorded."""
        warn_tracer(
            f"at {self._recorder.where()}: the operations of {function.__name__}.forward are captured one by one: "
            "its own backward is not that of the captured program",
            self._recorder.log,
        )


_ENDS = frozenset(map(id, {*BOUNDARIES, inline.__code__}))


def _asks(code: CodeType, names: dict[str, Any], own: dict[str, Any]) -> bool:
    return asks_identity(code) or asks_class(code)


def _asks_of_inputs(code: CodeType, names: dict[str, Any], own: dict[str, Any]) -> bool:
    return _may_ask_of_inputs(code)


def _may_ask_of_inputs(code: CodeType) -> bool:
    asks = asks_kind(code) or bool(asked_for_none(code) or compared(code))
    return asks and not is_of_library(code.co_filename)


def _is_of_program(frame: FrameType, inner: FrameType | None) -> bool:
    """Tell whether a frame is of the program, rather than of who captures it, where torch's code alone is between."""
    while inner is not None and inner is not frame:
        if inner.f_code is RUN:
            return False
        inner = inner.f_back
    return True


def _is_call(frame: FrameType) -> bool:
    """Tell whether a frame is of a call of torch's that should have been seen, and was not."""
    is_call = id(frame.f_code) in _SEEN or (APPLY is None and applied_by(frame) is not None)
    return is_call and (frame.f_back is None or frame.f_back.f_code is not inline.__code__)


def _outermost(frame: FrameType | None) -> FrameType | None:
    """The outermost call of torch's on the stack that should have been seen, up to the nearest call of a module."""
    found = None
    while frame is not None and id(frame.f_code) not in _ENDS:
        if (id(frame.f_code) in _SEEN or APPLY is None) and _is_call(frame):
            found = frame
        frame = frame.f_back
    return found


def _between(frame: FrameType | None, last: FrameType) -> FrameType | None:
    found = None
    while frame is not None and frame is not last:
        found = frame if _is_call(frame) else found
        frame = frame.f_back
    return found
