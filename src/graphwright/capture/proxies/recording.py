"""Recording: what happens to a proxy becomes a node of a graph.

`TracerBase` records operations and answers, or refuses, what Python asks of proxies. `Tracer` (tracer.py) adds modules.
"""

from __future__ import annotations

import copy
import dis
import enum
import opcode
import operator
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from graphwright.capture.proxies.calls_as_written import is_tensor_method
from graphwright.capture.proxies.constructors import call_without_attributes, made_by
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.made_parameters import MARKS, erase_steps, made_in
from graphwright.capture.proxies.objects import constructor_fields, late_fields
from graphwright.capture.proxies.proxy import Attribute, Proxy
from graphwright.capture.state.running import refusal
from graphwright.errors import TraceError
from graphwright.ir import (
    ATOMS,
    INHERITED_META,
    Argument,
    Graph,
    Node,
    Target,
    candidate_for,
    get_current_meta,
    has_preserved_node_meta,
    nodes_in,
)
from graphwright.ops import set_attribute
from graphwright.runtime import attributes_of, new_object
from graphwright.source import CallSite, Scope, is_internal, user_frame
from graphwright.values import is_named_tuple, is_record

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import SymbolicCapture

MOST_OPERATIONS = 20_000  # of one place of the program in one pass
_MOST_REFUSALS = 1_000
NO_END = f"this line has recorded {MOST_OPERATIONS:,} operations: its loop or recursion may have no end"
_UNPACK = opcode.opmap["UNPACK_SEQUENCE"]
_LEAVES = (
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Generator, range, enum.Enum),
    *(torch.SymInt, torch.SymFloat, torch.SymBool),
)
_RECORDING_HOOKS = ("create_arg", "create_node", "create_proxy", "proxy")
_is_method: dict[Any, bool] = {}
_new = object.__new__


def is_overridden(tracer: type[TracerBase], method: str) -> bool:
    """Tell whether a tracer's method is another than that of this library's plain tracers."""
    owner = next((kind for kind in tracer.__mro__ if method in kind.__dict__), TracerBase)
    return "_is_plain" not in owner.__dict__


class TracerBase:
    """Records operations on proxies as nodes of `graph`; override a method to change what is recorded.

    `create_arg` turns the user's values into arguments of nodes, `create_node` makes the node, `proxy` its proxy,
    and `create_proxy` does the three together. `to_bool`, `iter`, `keys`, `len` and `contains` are asked when Python
    needs a value that only a run has.
    """

    _is_plain = True  # its methods are not counted as overriding
    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False

    def __init__(self) -> None:
        self.scope = Scope("", None)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Operators and calls record directly where nobody overrides what they would pass through.
        cls._is_direct = not any(is_overridden(cls, hook) for hook in _RECORDING_HOOKS)

    _is_direct = True
    is_tracing = False  # whether a program is running on this tracer's proxies
    traced_func_name = "forward"
    _recorder: SymbolicCapture | None = None  # of a program whose branches become part of the graph
    _refusals = 0  # how often Python was told that a value is not known
    _lift: Callable[[Any], Any] | None = None  # on a side of a branch: values from outside come in as its inputs

    def open_graphs(self) -> list[Graph]:
        """The graphs whose values may be used here: the one being written to, and those around its branch."""
        return [self.graph] if self._recorder is None else [region.graph for region in self._recorder.region.all()]

    # ---- recording

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: object = None,
    ) -> Node:
        """Make a node from arguments that `create_arg` made, with the place in the user's program it comes from."""
        if self.check_mutable_operations and kind == "call_function":
            _refuse_mutable(target, args, kwargs)
        if self._lift is not None:
            args, kwargs = self._lift(args), self._lift(kwargs)
        if self._recorder is not None:
            self._recorder.writes.before(kind, target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self._place(node, user_frame(sys._getframe(1)))
        if self.graph._len % MOST_OPERATIONS == 0:
            self._refuse_endless()
        return node

    def _refuse_endless(self) -> None:
        """Raise TraceError where one place of the program has recorded so much that it may never end."""
        sites = [site for node in self.graph.nodes if isinstance(site := node._origin, CallSite)]
        counts = Counter((site.code, site.instruction) for site in sites)
        (code, instruction), count = counts.most_common(1)[0] if counts else ((None, 0), 0)
        if code is not None and count >= MOST_OPERATIONS:
            at = CallSite(code, instruction, self.scope).line()
            fix = "bound it by a number, or keep the function as one node: wrap() it"
            raise refusal(TraceError(NO_END, at=at, fix=fix))

    def _place(self, node: Node, frame: FrameType | None) -> None:
        """Note where in the user's program a node comes from, and the meta that it inherits."""
        if frame is not None:
            node._origin = CallSite(frame.f_code, frame.f_lasti, self.scope)
            if self.record_stack_traces and node._op not in ("placeholder", "output"):
                node.stack_trace = self._stack_text(frame)
        if has_preserved_node_meta():
            current = get_current_meta()
            node._meta = {"stack_trace": current["stack_trace"]} if "stack_trace" in current else {}
            node._meta.update({key: current[key] for key in INHERITED_META if key in current})
            numbers = current.get("grad_fn_seq_nr")
            node._meta["seq_nr"] = numbers[-1] if numbers else torch._C._autograd._get_sequence_nr() - 1

    def _stack_text(self, frame: FrameType) -> str:
        """The calls from the root's own function to this frame, without this library's and torch's."""
        frames: list[FrameType] = []
        at: FrameType | None = frame
        while at is not None:
            frames.append(at)
            at = user_frame(at.f_back)
            if at is self._caller:
                break
        summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in reversed(frames))
        return "".join(self._filter_traceback_frames(summary).format()).strip()

    def _filter_traceback_frames(self, user_stack_summary: traceback.StackSummary) -> traceback.StackSummary:
        """Choose which calls of the user's stack a node's `stack_trace` shows; override to leave some out."""
        return user_stack_summary

    _caller: FrameType | None = None  # who asked for the capture

    def proxy(self, node: Node) -> Proxy:
        """Make the proxy of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: object = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Record one operation on the user's values and return the proxy of its result."""
        create_arg = self.create_arg
        taken: Any
        made: Any
        if is_overridden(type(self), "create_arg"):  # it may have an idea of its own of anything
            taken, made = create_arg(args), create_arg(kwargs)
        else:
            taken = tuple([arg if type(arg) in ATOMS else create_arg(arg) for arg in args])
            made = {key: create_arg(arg) for key, arg in kwargs.items()} if kwargs else {}
        node = self.create_node(kind, target, taken, made, name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn is not None else self.proxy(node)

    def record(self, function: Callable[..., Any], args: tuple[Any, ...], name: str | None = None) -> Proxy:
        """Record a function of few, mostly plain arguments: what Python's operators on proxies call."""
        if not self._is_direct:
            named: dict[str, Any] = {} if name is None else {"name": name}
            return self.create_proxy("call_function", function, args, {}, **named)
        return self._direct("call_function", function, args, None, name)

    def record_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """Record a call of a method of the first argument."""
        if not self._is_direct:
            return self.create_proxy("call_method", name, args, kwargs)
        return self._direct("call_method", name, args, kwargs, None)

    def _direct(
        self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any] | None, name: str | None
    ) -> Proxy:
        """`create_proxy` in one frame, for tracers that override none of its steps."""
        taken = []
        for arg in args:
            if type(arg) is Proxy:
                taken.append(arg.node)
            elif type(arg) in ATOMS:
                taken.append(arg)
            else:
                taken.append(self.create_arg(arg))
        made = tuple(taken)
        if kwargs:
            kwargs = {key: arg if type(arg) in ATOMS else self.create_arg(arg) for key, arg in kwargs.items()}
        if self.check_mutable_operations and kind == "call_function":
            _refuse_mutable(target, made, kwargs or {})
        if self._lift is not None:
            made, kwargs = self._lift(made), self._lift(kwargs or {})
        recorder, graph = self._recorder, self.graph
        if recorder is not None and (kwargs or (kind, target) not in recorder.writes.harmless):
            recorder.writes.before(kind, target, made, kwargs or {})
        node = graph.create_node(kind, target, made, kwargs, name)
        near = sys._getframe(3)  # nearer ones are the library's
        frame = user_frame(near) if is_internal(near.f_code.co_filename) else near
        if self.record_stack_traces or has_preserved_node_meta():
            self._place(node, frame)
        elif frame is not None:
            node._origin = site = _new(CallSite)  # its constructor, and that of Proxy, without a call
            site.code, site.instruction, site.scope = frame.f_code, frame.f_lasti, self.scope
            site.is_whole, site.named, site._origin = True, "", None
        if recorder is not None and frame is not None and frame is not recorder.last_frame:
            recorder.look(frame)
        if graph._len % MOST_OPERATIONS == 0:
            self._refuse_endless()
        proxy = _new(Proxy)
        proxy.__dict__.update(node=node, tracer=self)
        return proxy

    def torch_function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a torch function, or a method of `torch.Tensor`, that was called with a proxy among its arguments."""
        is_method = _is_method.get(function)
        if is_method is None:
            if isinstance(function, torch._C.ScriptMethod):
                return self.create_proxy("call_method", function.name, (function.owner, *args), kwargs)
            is_method = _is_method[function] = is_tensor_method(function)
        if is_method:
            return self.record_method(function.__name__, args, kwargs)
        if not self._is_direct:
            return self.create_proxy("call_function", function, args, kwargs, name=candidate_for(function.__name__))
        return self._direct("call_function", function, args, kwargs, None)

    def set_attribute(self, proxy: Proxy, name: str, value: Any, frame: FrameType) -> bool:
        """Record that the program sets an attribute of a tensor; tell whether it does, and the proxy has none then.

        What torch sets while it makes a parameter is one operation of the program. What methods of the tracer and of
        the proxy's own class set is theirs, such as facts about values that a tracer keeps beside them.
        """
        if not self.is_tracing:
            return False
        if name in MARKS:
            found = made_in(frame, name, self._here())
            if found is not None:
                steps, made = proxy.node, self.create_proxy("call_function", found.kind, (found.data,), found.options)
                proxy.node = made.node
                erase_steps(steps)
            return False
        if user_frame(frame) is not frame or not (hasattr(torch.Tensor, name) or proxy.node.op == "get_attr"):
            return False
        if _is_method_of(frame, self) or _is_method_of(frame, proxy):
            return False
        self.create_proxy("call_function", setattr, (proxy, name, value), {})
        return True

    def create_arg(self, a: Any) -> Argument:
        """Turn a value of the user's program into an argument of a node.

        Proxies become their nodes, containers are rebuilt, an object with `__fx_create_arg__` decides itself. Raises
        NotImplementedError for what cannot be written into a graph.
        """
        kind = type(a)
        if kind in ATOMS:
            return a
        if isinstance(a, Proxy):
            return a.node
        if kind is tuple:
            return tuple([self.create_arg(item) for item in a])
        if is_growing(a):
            return a.node_of()
        if kind is list:
            return [self.create_arg(item) for item in a]
        if not kind.__module__.startswith("graphwright."):
            own = call_without_attributes(a)
            if own is not None:
                made = self.create_node("call_function", own[0], tuple(map(self.create_arg, own[1])), {})
                for name, item in attributes_of(a).items():
                    self.create_node("call_function", set_attribute, (made, name, self.create_arg(item)), {})
                return made
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, (*_LEAVES, int, float, str, complex)):
            return a
        if hasattr(kind, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if is_named_tuple(kind):
            return self.create_node("call_function", kind, tuple([self.create_arg(item) for item in a]), {})
        if isinstance(a, tuple):  # torch.return_types
            return tuple([self.create_arg(item) for item in a])
        call = None if kind is dict or type(a).__module__.startswith("graphwright.") else made_by(a)
        if call is not None:
            function, arguments, named = call
            late = late_fields(a, named) if named else {}
            given = {name: self.create_arg(value) for name, value in named.items() if name not in late}
            made = self.create_node("call_function", function, tuple(map(self.create_arg, arguments)), given)
            for name, value in late.items():
                self.create_node("call_function", operator.setitem, (made, name, self.create_arg(value)), {})
            return made
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(item) for key, item in a.items()}
        if isinstance(a, Node):
            return a
        if kind is Graph:  # the body of a branch: two nodes never share one
            return copy.deepcopy(a)
        if is_record(a):
            fields = constructor_fields(a)
            function, arguments = (kind, ()) if fields is not None else (new_object, (kind,))
            held = attributes_of(a) if fields is None else fields
            named = {name: self.create_arg(item) for name, item in held.items()}
            return self.create_node("call_function", function, arguments, named)
        if (callable(a) and getattr(a, "__name__", None)) or isinstance(a, type):
            return a
        raise NotImplementedError(f"argument of type: {kind}")

    def _key(self, key: Hashable) -> Any:
        if type(key) in ATOMS:
            return key
        made = self.create_arg(key)
        if nodes_in(made):
            raise trace_error_and(RuntimeError)(
                f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {made}", at=self._here()
            )
        return key

    # ---- what Python asks of a proxy

    def to_bool(self, obj: Proxy) -> bool:  # noqa: RET503 - _refuse raises
        """Answer `bool(proxy)`: asked by if, while, assert, and, or, not.

        With `trace_asserts`, what an assert statement checks is recorded.
        """
        if self.trace_asserts:
            frame = user_frame(sys._getframe(1))
            message = None if frame is None else _assert_message(frame.f_code, frame.f_lasti)
            if message is not None:
                self.create_proxy("call_function", assert_fn, (obj, message) if message else (obj,), {})
                return True
        if self._recorder is not None:
            answer = self._recorder.questions.decide(obj)
            if answer is not None:
                return answer  # type: ignore[no-any-return]
        self._refuse(
            "symbolically traced variables cannot be used as inputs to control flow",
            "use torch.where, make the condition a concrete_args value, or capture with graphwright.trace(model, args)",
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Answer `iter(proxy)`. Unpacking into a known number of variables gives so many items; else refused."""
        frame = sys._getframe(2)  # whoever iterates: its current instruction tells why
        code = frame.f_code.co_code
        if code[frame.f_lasti] != _UNPACK:
            self._refuse(
                "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args "
                "or **kwargs function argument; how many items it has is known only when the program runs",
                "index it, unpack it into variables, or capture with graphwright.trace(model, args)",
            )
        return (obj[i] for i in range(code[frame.f_lasti + 1]))

    def keys(self, obj: Proxy) -> Any:
        """Answer `**proxy`."""
        return Attribute(obj, "keys")()

    def len(self, obj: Proxy) -> int:
        """Answer `len(proxy)`."""
        self._refuse(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "graphwright.wrap('len') at module scope",
            "record the call so, or capture with graphwright.trace(model, args)",
            RuntimeError,
        )

    def text(self, obj: Proxy) -> str:  # noqa: RET503 - _refuse raises
        """Answer `str(proxy)`, and f-strings: as the proxy is shown, to those who print it or tell an error."""
        frame = user_frame(sys._getframe(1))
        if self._recorder is None or not self.is_tracing or frame is not sys._getframe(2):
            return repr(obj)
        if self._recorder.questions.messages.is_shown(frame):
            return repr(obj)
        self._refuse(
            "the program makes a text of a value that is known only when it runs",
            "leave it to messages and prints, or capture with graphwright.trace(model, args)",
        )

    def number(self, message: str) -> NoReturn:
        """Answer C code that wants a number; `message` is the interpreter's for other objects."""
        self._refuse(
            f"{message}: its value is known only when the program runs",
            "record the calling function with graphwright.wrap, or capture with graphwright.trace(model, args)",
            TypeError,
        )

    def _refuse(self, message: str, fix: str, also: type[Exception] | None = None) -> NoReturn:
        """Have the function converted that asks, else raise an error."""
        if self._recorder is not None:
            self._recorder.questions.staging.stage(user_frame(sys._getframe(1)))
        kind = TraceError if also is None else trace_error_and(also)
        error = kind(message, at=self._here(), fix=fix)
        self._refusals += 1
        raise error if self._refusals < _MOST_REFUSALS else refusal(error)  # the program tries until it succeeds

    def _here(self) -> str | None:
        frame = user_frame(sys._getframe(1))
        return None if frame is None else str(CallSite(frame.f_code, frame.f_lasti, self.scope))


class GraphAppendingTracer(TracerBase):
    """Records into a graph that exists: `Proxy(node, GraphAppendingTracer(graph))` writes graphs as expressions."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


def assert_fn(value: Any, message: str = "") -> None:
    """What `trace_asserts` records of an assert statement."""
    assert value, message


def _is_method_of(frame: FrameType, owner: TracerBase | Proxy) -> bool:
    """Tell whether a method of an object's class runs, for this object."""
    code = frame.f_code
    if not code.co_argcount or frame.f_locals.get(code.co_varnames[0]) is not owner:
        return False
    held = [vars(kind).get(code.co_name) for kind in type(owner).__mro__]
    return any(getattr(getattr(each, "fget", each), "__code__", None) is code for each in held)


def _assert_message(code: CodeType, instruction: int) -> str | None:
    """The constant message of the assert statement whose condition is asked for here; None elsewhere."""
    coming = [step for step in dis.get_instructions(code) if step.offset >= instruction][:6]
    names = [step.opname for step in coming]
    if names[0] in ("TO_BOOL", "COMPARE_OP"):  # which asks itself since Python 3.13
        names, coming = names[1:], coming[1:]
    if not (names[0].startswith("POP_JUMP") and names[0].endswith("IF_TRUE")):
        return None
    if names[1] not in ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT"):
        return None
    message = coming[2].argval if names[2] == "LOAD_CONST" else ""
    return message if isinstance(message, str) else ""


def _refuse_mutable(target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> None:
    """What `check_mutable_operations` asks for: no operator that writes to an argument."""
    matching = [schema for schema in _schemas(target) if _fits(schema, args, kwargs)]
    if matching and all(schema.is_mutable for schema in matching):
        raise trace_error_and(RuntimeError)(
            f"Tried to trace mutable operation {matching[0]}. FX only supports functional code, so operations that "
            "mutate operands in-place (e.g. via `out` arguments) are not supported"
        )


def _schemas(target: Target) -> list[Any]:
    """The schemas of an operator overload, or of torch's function of one name."""
    if isinstance(target, torch._ops.OpOverload):
        return [target._schema]
    if isinstance(target, torch._ops.OpOverloadPacket):
        return [getattr(target, name)._schema for name in target.overloads()]
    if getattr(torch, getattr(target, "__name__", ""), None) is target:
        return list(torch._C._jit_get_schemas_for_operator(f"aten::{target.__name__}"))
    return []


def _fits(schema: torch.FunctionSchema, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> bool:
    """Tell whether a schema takes so many arguments, of these names."""
    names = [argument.name for argument in schema.arguments]
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    if len(args) > len(positional) or not all(name in names for name in kwargs):
        return False
    given = {argument.name for argument in positional[: len(args)]} | set(kwargs)
    return all(argument.name in given or argument.has_default_value() for argument in schema.arguments)


def trace_error_and(also: type[Exception]) -> type[TraceError]:
    """A TraceError that is also what eager code would raise, for programs and tests that catch that."""
    return next((_COMBINED[kind] for kind in also.__mro__ if kind in _COMBINED), TraceError)


_COMBINED: dict[type, type[TraceError]] = {
    also: type("TraceError", (TraceError, also), {"__doc__": TraceError.__doc__, "__module__": TraceError.__module__})
    for also in (
        *(AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, RecursionError, RuntimeError),
        *(NameError, TypeError, ZeroDivisionError),
    )
}
