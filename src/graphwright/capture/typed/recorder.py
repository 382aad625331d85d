"""Recording a program that runs on example values: what `trace` does between its first and its last operation.

A `TorchFunctionMode`, which acts in the capturing thread alone, sees every torch call. Calls become nodes, their
results `TensorProxy`s; calls of modules arrive through the shells.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy
import torch
from torch import nn

from graphwright.capture.calls.ambient import Ambient
from graphwright.capture.calls.answers import asked, converted_like, data_of, measure, read_property
from graphwright.capture.calls.arguments import checks_items, dict_with, drained, made_again, share
from graphwright.capture.calls.converted_modules import convert_module
from graphwright.capture.calls.dtypes import Dtypes
from graphwright.capture.calls.facts import expect_structure, note_count
from graphwright.capture.calls.gradients import on_any_way
from graphwright.capture.calls.kept_values import KeptValue
from graphwright.capture.calls.opaque import record_compiled_method, record_leaf_module, record_outlined_module
from graphwright.capture.calls.result_dtypes import unforeseen
from graphwright.capture.containers.joining import Joining
from graphwright.capture.containers.open_iterables import OpenIterable
from graphwright.capture.containers.rows import is_count_known, pieces
from graphwright.capture.conversion.conversion import is_converted
from graphwright.capture.effects.branch_state import State
from graphwright.capture.effects.choices import Choices
from graphwright.capture.effects.keeping import Keeping
from graphwright.capture.effects.module_reads import ModuleReads
from graphwright.capture.effects.unwritten import write_unwritten
from graphwright.capture.effects.writes import Writes
from graphwright.capture.flow.attempts import Attempts
from graphwright.capture.flow.loops import Loops
from graphwright.capture.ladder.questions import Questions
from graphwright.capture.numbers.known_sizes import known_sizes
from graphwright.capture.numbers.numbers import Numbers
from graphwright.capture.outside.python_draws import STATELESS, has_state, held_stand_in
from graphwright.capture.outside.torch_generators import GeneratorProxy
from graphwright.capture.proxies.calls_as_written import (
    DATA_METHODS,
    IN_PLACE_FUNCTIONS,
    KIND_METHODS,
    NUMBER_METHODS,
    SEEN,
    TEXT_METHODS,
    TRUTHS,
    CalledTargets,
    gives_pieces,
    item_name,
    module_name,
    operator_call,
    spoken,
)
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import ObjectProxy, holds_objects, object_example, object_node
from graphwright.capture.proxies.objects import Change
from graphwright.capture.proxies.run_text import RunText
from graphwright.capture.proxies.unbound import Unbound
from graphwright.capture.proxies.uncertain import all_mixed
from graphwright.capture.python.callers import Callers
from graphwright.capture.python.message_texts import Text
from graphwright.capture.python.transforms import Transforms
from graphwright.capture.state.calls import Calls
from graphwright.capture.state.examples import Examples
from graphwright.capture.state.ledger import Ledger, Unforeseen
from graphwright.capture.state.members import Members
from graphwright.capture.state.plan import Log, Plan
from graphwright.capture.state.regions import Region
from graphwright.capture.state.running import Refusal, again, capturing, refused, run
from graphwright.capture.state.side_ended import Raised
from graphwright.capture.state.symbols import UNKNOWN, as_number, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy, is_uncertain
from graphwright.capture.typed.given_items import given_items, holds_tensors
from graphwright.capture.typed.held_tensors import HeldTensors
from graphwright.capture.typed.module_calls import entered, given_by
from graphwright.capture.typed.recording_mode import RecordingMode
from graphwright.capture.typed.repeats import Repeats
from graphwright.capture.typed.same_values import ExampleSubjects
from graphwright.errors import CaptureError, GraphError
from graphwright.ir import ATOMS, Argument, Graph, Node, Target, map_arg, nodes_in
from graphwright.ops import unpack
from graphwright.runtime import Shells, mark_opaque
from graphwright.source import SEQUENTIAL, CallSite, Scope, is_returned, named_by_callers, place_of, user_frame
from graphwright.values import is_named_tuple, leaves, sequence

_PLAIN_LEAVES = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator, range)


class Recorder:
    """One capture: the graph being written, the shells it runs on, and the example values."""

    def __init__(
        self, examples: Examples, is_leaf: Callable[[nn.Module, str], bool], plan: Plan, log: Log | None = None
    ) -> None:
        self.root: Region = Region()
        self.region = self.root  # the graph that is being written to
        self.plan = plan
        self.examples = examples
        self.typed = self
        self.scope = Scope("", type(None), 0, None)
        self.shells: Shells | None = None
        self.members: Members | None = None  # the modules of the program
        self.reads: ModuleReads | None = None  # what the program reads of its modules
        self.keeping: Keeping | None = None  # what the program keeps in attributes
        self.pending: BaseException | None = None
        self.states: list[State] = []  # of the branches whose sides are being captured
        self.calls = Calls()
        self.is_leaf = is_leaf
        self.numbers = Numbers(self)
        self.questions = Questions(self, ExampleSubjects())
        self.joining = Joining(self)
        self.choices = Choices(self)
        self.loops = Loops(self)
        self.attempts = Attempts(self)
        self.writes = Writes(self)
        self.transforms = Transforms(self)
        self.callers = Callers(self)
        self.repeats = Repeats(self)
        self.module_calls: dict[str, int] = {}
        self._called = CalledTargets()
        self.tensors = HeldTensors(self)
        self.dtypes = Dtypes(self)
        self.is_running = False
        self.has_objects = False  # whether there are values outside of torch
        self.ambient = Ambient(self)
        self.generators: dict[int, Any] = {}  # copies of those of Python and NumPy that the program draws from, by id
        self.objects: dict[int, Callable[[], Node]] = {}  # those of the user's classes, by id
        self.told_apart: set[int] = set()  # inputs of which the program asks which they are, by id
        self.hashed: list[TensorProxy] = []  # tensors by which the program knows something
        self.is_finishing = False
        self.log = log  # of the capture, where there is one
        self.ledger = Ledger(log)
        self.at_end: list[Callable[[], None]] = []  # that nothing has changed since which had better not
        self.keep: list[Any] = []  # tensors known by id must not die during the capture

    @property
    def graph(self) -> Graph:
        """The graph that is being written to."""
        return self.region.graph

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        fix = "copy it before it is captured, or use torch.func.functional_call"
        raise refused(self, "the program copies a module that is being captured", fix)

    # ---- running

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the program with everything recorded."""
        self.is_running, is_over = True, False
        try:
            self.dtypes.kept.enter_classes()
            with capturing(self), RecordingMode(self):
                result = run(drained, (self.questions.staging.converted(function), args, kwargs), {})
                for leaf in leaves(result):
                    if isinstance(leaf, Unbound):
                        leaf._refuse()
                self.choices.at_end(result, (*args, *kwargs.values()), self.callers.outside)
            is_over = True
        except Raised:
            if self.pending is None:
                raise CaptureError("the program raises an exception whatever its inputs are", at=self.where()) from None
        except (Exception, GeneratorExit):
            if self.pending is None:  # else a handler of the program made its own error of what stops it
                raise
        except Refusal:
            pass
        finally:
            self.is_running = False
            self.dtypes.kept.leave_classes()
            self.repeats.stop()
            self.callers.forget(is_over)
            self.attempts.forget()
        pending, self.pending = self.pending, None
        if pending is not None:
            raise pending.error.with_traceback(pending.__traceback__) if isinstance(pending, Refusal) else pending
        return result

    def own(self, members: Members, shells: Shells) -> None:
        """Learn the tensors of the program by identity, and make what its modules hold part of the program."""
        self.shells = shells
        self.tensors.note_all(members.tensors)
        self.members = members
        self.reads = ModuleReads(self, shells, members.others)
        shells.each(self._own)

    def _own(self, module: nn.Module, shell: nn.Module, path: str) -> None:
        prefix = f"{path}." if path else ""
        state = shell.__dict__
        state["_apply"] = functools.partial(convert_module, self, shell)
        state["training"] = as_number(self.numbers.training_symbol(prefix, module.training))
        for table in (module._parameters, module._buffers, module.__dict__):
            for name, value in table.items():
                if type(value) not in STATELESS and has_state(value):
                    state[name] = held_stand_in(self, value, prefix + name)

    def finish(self, result: Any, changes: Iterable[Change] = ()) -> None:
        """Write what the program did to its inputs, then its output: both read the inputs before either is written."""
        self.region = self.root
        self.dtypes.settle()
        for check in self.at_end:
            check()
        self.ambient.notice()
        graph = self.graph
        last = graph._root.prev
        value = write_unwritten(self, changes, result)
        output = graph.create_node("output", "output", (self.lifted(value),))
        output.origin = last.origin if is_returned(last) else None

    @contextlib.contextmanager
    def finishing(self, values: Iterable[Any]) -> Iterator[None]:
        """While it lasts, nothing changes lists, dicts and objects any more: they are written as they are, and once."""
        before, objects = self.is_finishing, self.objects
        held = {} if self.keeping is None else self.keeping.held()
        self.is_finishing, self.objects = True, {**held, **objects}
        share(self, values)
        try:
            yield
        finally:
            self.is_finishing, self.objects = before, objects

    def call_module(self, module: nn.Module, shell: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        """What runs instead of a module's `__call__`: a node for a leaf, else its forward, hooks and all."""
        shells = self.shells
        path = "" if shells is None else shells.path(module) or ""
        self.callers.look_at_call()
        outer = self.scope
        count = self.module_calls.get(path, 0)
        self.module_calls[path] = count + 1
        if path not in self.plan.entered and self.is_leaf(module, path):
            if self.examples.quietly is None:
                return record_leaf_module(self, module, path, args, kwargs)
            return self.examples.quietly(lambda: record_leaf_module(self, module, path, args, kwargs))
        # A module with hooks on its backward joins autograd around its forward, which only a run has; so are errors.
        is_hooked = module._backward_hooks or module._backward_pre_hooks or module._forward_hooks_always_called
        if path and (path in self.plan.outlined or is_hooked):
            return record_outlined_module(self, module, path, args, kwargs)
        if self.questions.optionals.are_there:
            self.questions.optionals.admit_module(shell, args, kwargs)
        for state in self.states:
            state.watch(shell)
        if self.reads is not None:
            self.reads.entered(module, path)
        scope = self.scope = entered(Scope(path, type(module), count, outer), args, kwargs)
        run = functools.partial(nn.Module._call_impl, shell, *args, **kwargs)
        try:
            result = self.repeats.call(module, path, args, kwargs, scope, run) if self.repeats.is_wanted else run()
            given_by(scope, result, self.repeats.wishes, not self.plan.leaves_copies)
        finally:
            self.scope = outer
        if self.questions.optionals.are_there:
            found = next((leaf for leaf in leaves(result) if is_uncertain(leaf)), None)
            caller = user_frame(sys._getframe(1))
            if found is not None and caller is not None and not is_converted(caller.f_code):
                self.questions.optionals.convert_for(found, self.questions.staging.convertible(caller))
        return result

    def opaque_items(self, value: Any, node: Node) -> Any:
        """Give what an operation that is not looked into computes: its numbers are those of a run."""
        return given_items(self, value, node, gives_data=True)

    # ---- calls of torch

    def torch_function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one call of torch, or answer it from what is known."""
        if function is torch._C._set_grad_enabled and (self.pending is not None or self.examples.is_running):
            return function(*args)  # a context of the program is left, or this is no part of it
        if self.pending is not None:
            raise again(self.pending)
        function, prop, name, plain, is_compiled = SEEN[function]
        if prop is not None:
            return read_property(self, prop, args)
        if is_compiled:
            return record_compiled_method(self, function, args, kwargs)  # type: ignore[arg-type]
        if name is None:
            if function is torch._C._set_grad_enabled:
                return self.ambient.set_grad_mode(*args)
            if function is torch._C._nn._parse_to and holds_tensors((args, kwargs)):
                return converted_like(self, args, kwargs)
            if plain in KIND_METHODS or plain in TRUTHS or plain == "numel":
                return asked(self, plain, function, "call_function", function, args, kwargs)
            is_given = bool(args) and isinstance(args[0], torch.Tensor)
            makes_one = is_given or holds_tensors((args, kwargs))  # a tensor, as `torch.arange(n)` does
            if not makes_one and not holds_tensors(self._on_examples(function, args, kwargs)):
                return function(*args, **kwargs)
            return self.record("call_function", function, function, args, kwargs and spoken(function, kwargs))
        owner: Any = args[0] if args else None
        if name in ("size", "__len__", "numel", "nelement", "dim", "ndimension"):
            return measure(self, owner, name, args[1:], kwargs)
        if name in KIND_METHODS or name in TRUTHS:
            return asked(self, name, function, "call_method", name, args, kwargs)
        if name == "new" and len(args) == 2 and type(args[1]) is torch.Size:
            args = (owner, *args[1])  # a tuple of numbers would be its data
        if name in NUMBER_METHODS:
            owner = self.value(owner)
        if name in TEXT_METHODS and not isinstance(owner, TensorProxy):  # a tensor that a module holds
            return getattr(self.value(owner), name)(*args[1:], **kwargs)
        if name in DATA_METHODS and isinstance(owner, TensorProxy):
            given = self.to_examples(args), self.to_examples(kwargs)
            return data_of(self, name, owner, lambda: self.examples.run(function, *given))
        if name == "view_as" and args[-1] is owner:
            self.callers.viewed_as_itself()
        target = operator_call(name, user_frame(sys._getframe(1)), args)
        if target is not None:
            return self.record("call_function", target[0], target[0], target[1], {})
        return self.record("call_method", name, on_any_way(name, function), args, kwargs and spoken(function, kwargs))

    @property
    def copied_calls(self) -> Sequence[Node]:
        """The nodes each of which stands for a call of a module that is a copy of another."""
        return self.repeats.copies

    # ---- nodes

    def record(
        self,
        op: str,
        target: Target,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        owner: tuple[Node, ...] = (),
        gives_data: bool = False,
        hidden: Callable[[], int] | None = None,
    ) -> Any:
        """Run an operation on the examples, make its node, and give the results as proxies.

        `owner` comes before the arguments of the node: the object whose method is called. `gives_data` says that
        numbers which the operation gives are other ones in each run, `hidden` tells how many operations it hides.
        """
        self.ambient.notice()
        if self.plan.cached:
            self.questions.refusals.cached_draw(op, target)
        gives_data = gives_data or (self.has_objects and holds_objects(args, kwargs))
        called, writes, writes_item, is_operator = self._called[op, target]
        writes = writes or bool(kwargs and op != "call_method" and kwargs.get("inplace"))
        written = kwargs["out"] if "out" in kwargs else args[0] if args and writes else None
        if written is not None or writes_item or target is setattr:
            self.writes.before(target, args, kwargs, args[0] if writes_item else written)
        example = self._on_examples(run, args, kwargs, gives_data, not is_operator)
        node_args = (*owner, *map(self.argument, args))
        node_kwargs = {key: self.argument(arg) for key, arg in kwargs.items()} if kwargs else {}
        if self.dtypes.handed:
            node_args, node_kwargs = self.dtypes.put_into(target, node_args, node_kwargs, op == "call_method")
        name = ""  # a value must not have the name of the function that the code calls for it
        if target == "numpy" or (op == "call_function" and gives_data):
            name = self.target_name() or ("array" if target == "numpy" else "value")
        node = self.node(op, target, node_args, node_kwargs, name=name)
        if hidden is not None:
            mark_opaque(node, hidden())
        elif op != "call_module":
            self.calls.recorded += 1
        is_mixed = type(written) is TensorProxy and written.is_mixed and target in IN_PLACE_FUNCTIONS
        if isinstance(written, torch.Tensor) and example is self.to_examples(written) and not is_mixed:
            if type(written) is TensorProxy:  # tensors of modules are read where they are
                self.region.written[written.node_of()] = node
            return written
        if isinstance(example, torch.Tensor):
            facts = unforeseen(op, called, example, args, kwargs, hidden is not None)
            if facts:
                self.ledger.unforeseen[node] = Unforeseen(facts, self.where() or "")
            proxy = TensorProxy.make(self, example, node, sizes=known_sizes(called, args, kwargs, example))
            for arg in args if is_operator or is_mixed else ():
                if type(arg) is TensorProxy and arg.is_mixed and all_mixed(args):
                    proxy.is_mixed = True
            return proxy
        names = self.unpacked_names()
        note_count(self, called, args, kwargs)
        if isinstance(example, tuple | list) and (len(names) == len(example) or gives_pieces(called)):
            if len(names) != len(example):
                opened = pieces(self, node, called, args, kwargs, example)
                if opened is not None:
                    return opened
                if not is_count_known(self, called, args, kwargs):
                    expect_structure(self, node, example)
            node = self.node("call_function", unpack, (node, len(example)), {}, "unpack")
        frame = user_frame(sys._getframe(1))
        place = None if frame is None else place_of(frame.f_code, frame.f_lasti)
        if not names and place is not None and isinstance(example, tuple):
            names = place.names_of_items(example)
        return given_items(self, example, node, names, None if place is None else place.inside, gives_data)

    def _on_examples(
        self,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_opaque: bool = False,
        may_be_size: bool = True,
    ) -> Any:
        """Run an operation on the examples. Where the program catches what it raises, the sizes are guarded."""
        given = self.to_examples(args, may_be_size), self.to_examples(kwargs, may_be_size) if kwargs else {}
        if self.attempts.forked:
            self.attempts.guard_forked(run, args, kwargs)
        try:
            return self.examples.give(run, *given, is_opaque)
        except Exception as error:
            return self.attempts.run_again(error, run, args, kwargs, may_be_size)

    def node(
        self, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], part: str = "", name: str = ""
    ) -> Node:
        """Make a node for the user's running line.

        Its value is called what the user's statement assigns it to; `name` overrides that. `part` is the name of a
        node that does only a part of what the user's expression says: the read of a parameter in `x + self.weight`.
        """
        frame = user_frame(sys._getframe(1)) if self.is_running else None
        if frame is None:
            return self._create(op, target, args, kwargs, name or part or None)
        self.callers.look(frame)
        self.attempts.look(frame, op, target, args)
        if self.choices.open:
            self.choices.at_node(target, args)
        wish, named = name or part, ""
        if not wish:
            place = place_of(frame.f_code, frame.f_lasti)
            named = "" if place.returned is None else named_by_callers(frame, place.returned)
            wish = named or place.target
        if op == "call_module":
            if frame.f_code is SEQUENTIAL and not named and self.shells is not None:
                wish = item_name(self.shells.tree.modules[0][0], str(target))
            wish = wish or module_name(str(target))
        node = self._create(op, target, args, kwargs, wish or None)
        node._origin = CallSite(frame.f_code, frame.f_lasti, self.scope, not part)
        node._origin.named = named
        return node

    def _create(self, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> Node:
        region = self.region
        try:
            if not region.decided.keys().isdisjoint(region.known) and not self.writes.counts:
                args, kwargs = region.settled_in(args), kwargs and map_arg(kwargs, region.settled)
            if region.outer is not None:
                args, kwargs = region.lifted_in(args), region.lifted_in(kwargs)
            node = region.graph.create_node(op, target, args, kwargs, name)
            if self.repeats.wishes is not None:
                self.repeats.wishes[node] = name
            return node
        except (LookupError, GraphError):
            if all(node.graph is region.graph for node in nodes_in((args, kwargs))):
                raise
            self.questions.refusals.refuse_here(
                "a value that was computed in one branch, or in a function given to torch.vmap, is used outside",
                "return it from there, or give it to a variable that both branches assign",
            )
            args, kwargs = map_arg((args, kwargs), lambda node: node if node.graph is region.graph else None)
            return region.graph.create_node(op, target, args, kwargs, name)

    def unpacked(self, node: Node, count: int, names: Sequence[str]) -> list[Node]:
        """The nodes of the items of a tuple."""
        whole = self.node("call_function", unpack, (node, count), {}, "unpack")
        return [self.item_node(whole, i, names[i] if names[i].isidentifier() else "") for i in range(count)]

    def mark(self) -> Any:
        """What is counted so far."""
        return self.calls.copy(), dict(self.module_calls)

    def back_to(self, mark: tuple[Calls, dict[str, int]]) -> None:
        """Forget what was counted after a mark: it is captured once more."""
        self.calls, self.module_calls = mark[0].copy(), dict(mark[1])

    def item_node(self, owner: Node, key: Hashable, name: str = "") -> Node:
        return self.node("call_function", operator.getitem, (owner, key), {}, "getitem", name)

    def unpacked_names(self) -> Sequence[str]:
        """The variables that the user's statement unpacks the running call's value into."""
        frame = user_frame(sys._getframe(1))
        return () if frame is None else place_of(frame.f_code, frame.f_lasti).targets

    def argument(self, value: Any) -> Argument:
        """Turn a value of the program into an argument of a node."""
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind is TensorProxy:
            node = value._node or value.node_of()
            if self.writes.counts and (self.region.written or self.region.outer is not None):
                node = self.region.latest(node)
            return node if self.region is self.root else self.transforms.note(node, value.example)
        symbol = symbol_of(value)
        if symbol is not None:
            return self.numbers.node_of_symbol(symbol)
        if kind is ObjectProxy:
            return object_node(value)
        if kind is RunText or kind is Text:
            return value.node if kind is RunText else self.questions.messages.message(value)
        if isinstance(value, torch.Tensor):
            return self.tensors.node(value)
        whole = self.transforms.node_of_whole(value)
        if whole is not None:
            return whole
        if kind is torch.device:
            return self.tensors.device_node(value)
        if kind is KeptValue:
            return value.node()
        if kind is tuple:
            return tuple([self.argument(item) for item in value])
        if isinstance(value, torch.Size):
            sizes = tuple([self.argument(item) for item in value])
            return self.node("call_function", torch.Size, (sizes,), {}, "shape") if self.is_finishing else sizes
        if self.is_finishing and id(value) in self.objects:  # among the inputs: itself, not one like it
            return self.objects[id(value)]()
        if kind is list:
            return [self.argument(item) for item in value]
        if kind is slice:
            return slice(self.argument(value.start), self.argument(value.stop), self.argument(value.step))
        if isinstance(value, numpy.generic):
            return self.node("call_function", kind, (value.item(),), {}, "number")
        if kind is numpy.ndarray:
            return self.tensors.array_node(value)
        if kind is GeneratorProxy:
            return value.node_of()
        if isinstance(value, (*_PLAIN_LEAVES, int, float, str, complex)):
            return value
        if is_named_tuple(kind) and not getattr(value, "__dict__", None):
            items = [self.argument(item) for item in value]
            return self.node("call_function", kind, tuple(items), {}) if checks_items(kind) else kind(*items)
        if kind is dict:
            return dict_with(self, value)
        if is_growing(value):
            return value.node_of()
        if isinstance(value, OpenIterable):
            return value.argument(self)
        return made_again(self, value)

    def value(self, value: Any) -> Any:
        """A tensor that the program has as one whose data only a run knows; other values as they are."""
        if not isinstance(value, torch.Tensor) or type(value) is TensorProxy:
            return value
        return TensorProxy.make(self, self.examples.of(value), self.tensors.node(value))

    def to_examples(self, value: Any, may_be_size: bool = True) -> Any:
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind is TensorProxy:
            return None if value.optional is not None and self.numbers.is_none(value) is True else value.example
        if kind is tuple:
            found = []
            for item in value:
                kind = type(item)
                if kind is TensorProxy and item.optional is None:
                    item = item.example
                elif kind not in ATOMS:
                    item = self.to_examples(item, may_be_size)
                found.append(item)
            return tuple(found)
        symbol = symbol_of(value)
        if symbol is not None:
            # Any number does for arithmetic, and for what is no size.
            has_to_be_it = symbol.has_value or (may_be_size and symbol.kind is int)
            return symbol.hint if has_to_be_it else symbol.sample
        if kind is ObjectProxy:
            return object_example(value)
        if kind is RunText:
            return "" if value.hint is UNKNOWN else value.hint
        if isinstance(value, torch.Tensor):
            return self.examples.of(value)
        if kind is Unbound:
            value._refuse()
        if is_growing(value) and hasattr(value, "example"):
            return value.example()
        if isinstance(value, tuple):
            return sequence(kind, [self.to_examples(item, may_be_size) for item in value])
        if isinstance(value, list):
            return [self.to_examples(item, may_be_size) for item in list.__iter__(value)]
        if isinstance(value, dict):
            return {key: self.to_examples(item, may_be_size) for key, item in value.items()}
        if kind is slice:
            return slice(*[self.to_examples(part, may_be_size) for part in (value.start, value.stop, value.step)])
        return self.examples.stand_in(value, self.shells) if isinstance(value, nn.Module) else value

    def make(self, op: str, target: Target, args: tuple[Any, ...], name: str, kwargs: Any = None) -> Node:
        """Make a node for the user's running line."""
        return self.node(op, target, args, kwargs or {}, name)

    def target_name(self) -> str:
        """What the user's running statement assigns its value to."""
        frame = user_frame(sys._getframe(1))
        return "" if frame is None else place_of(frame.f_code, frame.f_lasti).target

    def lifted(self, argument: Argument) -> Argument:
        """An argument as the region that is being written to knows it."""
        region = self.region
        # Where the program writes in place, another value is not as good: what was written may be told by the node.
        if not region.decided.keys().isdisjoint(region.known) and not self.writes.counts:
            argument = region.settled(argument) if type(argument) is Node else map_arg(argument, region.settled)
        return region.lifted_in(argument)

    def example(self, tensor: torch.Tensor) -> torch.Tensor:
        """The example of a tensor of the program."""
        return tensor.example if isinstance(tensor, TensorProxy) else self.examples.of(tensor)

    # ---- errors and places

    def site(self) -> CallSite | None:
        """Where in the program the capture is."""
        frame = user_frame(sys._getframe(1)) if self.is_running else None
        return None if frame is None else CallSite(frame.f_code, frame.f_lasti, self.scope)

    def where(self) -> str | None:
        """The user's line that is running."""
        site = self.site()
        return None if site is None else site.line()
