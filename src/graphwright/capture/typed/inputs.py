"""The inputs and outputs of a traced program: the user's values in, placeholders and proxies out, and back."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import inspect
import operator
import re
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy
import torch
from torch import nn

from graphwright.capture.containers.rows import given
from graphwright.capture.effects.held_tables import reads_plainly
from graphwright.capture.outside.drawing import GENERATORS, Drawer
from graphwright.capture.outside.torch_generators import GeneratorProxy
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import ObjectProxy
from graphwright.capture.proxies.objects import Objects, hold
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.protocol import TypedCapture
from graphwright.capture.state.regions import made_once
from graphwright.capture.state.symbols import as_number
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.capture.typed.entries import path_to, placeholder_of
from graphwright.capture.typed.settling import Settling
from graphwright.errors import CaptureError
from graphwright.ir import Node, nodes_in
from graphwright.runtime import (
    Outside,
    any_of,
    array_facts,
    attribute_names,
    attributes_of,
    autocast_beyond,
    class_of_tensor,
    device_of_each,
    expect_kinds,
    expect_outside,
    expect_state,
    expect_tensors,
    expect_values,
    is_object,
    layer_facts,
    new_object,
    shared,
)
from graphwright.values import is_record, rebuild, sequence

_KNOWN = (
    str, bytes, complex, enum.Enum, numpy.generic, torch.dtype, torch.device, torch.layout, torch.memory_format,
    type(None), type(...),
)  # fmt: skip


class _Options(NamedTuple):
    """What the caller said of an input, or of what holds it."""

    is_static: bool
    is_dynamic: bool


class _Held(NamedTuple):
    """A tensor among the inputs; without a proxy it is the first one of a list."""

    make: Callable[[], Node]
    example: torch.Tensor
    proxy: TensorProxy | None

    @property
    def is_list(self) -> bool:
        return self.proxy is None


class _One(NamedTuple):
    """A tensor, container or object among the inputs, and what stands for it."""

    path: str
    make: Callable[[], Node]
    value: Any
    stand_in: Any

    @property
    def kind(self) -> type:
        """Inputs of the same one may be one object."""
        return torch.Tensor if isinstance(self.value, torch.Tensor) else type(self.value)


class Inputs:
    """Binds example arguments to a signature, makes the placeholders, and collects what the capture takes for granted.

    Tensors, integers and floats become symbolic, inside tuples, lists, dicts and dataclasses too. Bools, strings, None
    and their like are known: the program is specialized to them, and `known` says so by parameter.
    """

    def __init__(self, recorder: TypedCapture, signature: inspect.Signature, where: str) -> None:
        self._recorder = recorder
        self._signature = signature
        self._where = where
        self._tensors: dict[str, _Held] = {}
        self._kinds: dict[str, tuple[Callable[[], Node], type]] = {}
        self._last: Node | None = None
        self._head: Node | None = None  # while the checks are written: what the next node comes after
        self._inside: dict[int, Any] = {}  # the objects whose attributes are being opened, by id: what stands for them
        self._records: list[tuple[str, Any, Callable[[], Node]]] = []  # objects that have just their fields
        self.objects = Objects(recorder)
        self._apart: list[_One] = []  # what may be one object in a call
        self._unlike_outside: list[_One] = []  # what is none of the objects outside of the program
        self._outside: list[tuple[Any, str]] = []  # these objects, and what each is
        self.has_arrays = False

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Make placeholders for all parameters; return the arguments to run the program with.

        They are passed as the example passes them, by position or by name: decorators may care. What it leaves out is
        passed only where it becomes symbolic.

        Raises CaptureError where the example does not fit the signature.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CaptureError(
                f"the example inputs do not fit {self._where}{self._signature}: {error}",
                fix="pass args as a tuple and kwargs as a dict, as in model(*args, **kwargs)",
            ) from None
        given = dict(bound.arguments)
        bound.apply_defaults()
        graph = self._recorder.graph
        made: list[tuple[inspect.Parameter, Node]] = []
        for parameter in self._signature.parameters.values():
            node = placeholder_of(graph, parameter)
            made.append((parameter, node))
            self._last = node
        by_position: list[Any] = []
        by_name: dict[str, Any] = {}
        for parameter, node in made:
            name = parameter.name
            value = self._value(parameter, bound.arguments[name], node)
            if parameter.kind is parameter.VAR_POSITIONAL:
                by_position.extend(value)
            elif parameter.kind is parameter.VAR_KEYWORD:
                by_name.update(value)
            elif parameter.kind is parameter.POSITIONAL_ONLY or (len(by_position) < len(args) and name not in kwargs):
                by_position.append(value)
            elif name in given or name not in self._recorder.ledger.taken:
                by_name[name] = value
        return tuple(by_position), by_name

    def _value(self, parameter: inspect.Parameter, value: Any, node: Node) -> Any:
        """Turn one example argument into what the program is run with."""
        plan, name = self._recorder.plan, parameter.name
        options = _Options(name in plan.static, name in plan.dynamic)
        if parameter.kind is parameter.VAR_KEYWORD and value:
            self._take(f"keys_{name}", self._call(list, node), list(value))
            return {
                key: self._item(
                    path_to(name, key, self._signature.parameters), item, self._item_maker(lambda: node, key), options
                )
                for key, item in value.items()
            }
        is_plain = isinstance(value, torch.Tensor | tuple | list | dict | int | float)
        if value is parameter.default and not is_plain and not dataclasses.is_dataclass(value):
            self._take(name, node, value)  # an object whose identity means "not given"
            return value
        return self._item(name, value, lambda: node, options, parameter.kind is not parameter.VAR_POSITIONAL)

    def _item(
        self, path: str, value: Any, make: Callable[[], Node], options: _Options, may_be_another: bool = True
    ) -> Any:
        """What stands for one input: the same for one object, where the plan knows that this matters."""
        for one in self._apart:
            if one.value is value and one.kind in self._recorder.plan.told_apart:
                self._apart.append(one._replace(path=path, make=make))
                return one.stand_in
        made = self._stand_in(path, value, make, options, may_be_another)
        if isinstance(value, torch.Tensor) or is_growing(made) or id(made) in self._recorder.objects:
            self._apart.append(_One(path, make, value, made))
        return made

    def _stand_in(
        self, path: str, value: Any, make: Callable[[], Node], options: _Options, may_be_another: bool
    ) -> Any:
        """What stands for an input: something symbolic, or the value itself, which is taken for granted then."""
        kind, plan = type(value), self._recorder.plan
        options = _Options(options.is_static or path in plan.static, options.is_dynamic or path in plan.dynamic)
        if isinstance(value, torch.Tensor):
            return self._tensor(path, value, make, options)
        if path in plan.outside:
            return self._known(path, value, make)
        if kind is int or kind is float or (kind is bool and options.is_dynamic):
            return self._number(path, value, make, options)
        if not (options.is_static or self._inside):
            if isinstance(value, numpy.number):
                plan.scalars |= {path}
                return self._array(path, value, make)
            if isinstance(value, nn.Module) and not any(value.children()) and self._recorder.is_leaf(value, path):
                plan.scalars |= {path}
                return self._layer(path, value, make)
        if kind is bool or isinstance(value, _KNOWN):
            return self._known(path, value, make)
        if may_be_another:
            self._kinds[path] = make, kind
        are_static = options.is_static or any(name.startswith(f"{path}_") for name in plan.static)
        if kind is list and not are_static and all(isinstance(item, torch.Tensor) for item in value):
            opened = given(self._recorder, path, make, value)
            if opened is not None:
                self._tensors[path] = _Held(make, value[0], None)
                return opened

        def inner(key: Hashable, item: Any, make_item: Callable[[], Node]) -> Any:
            return self._item(path_to(path, key), item, make_item, options)

        return self._compound(path, value, make, inner)

    def _tensor(self, path: str, value: torch.Tensor, make: Callable[[], Node], options: _Options) -> TensorProxy:
        proxy = TensorProxy.make(self._recorder, self._recorder.examples.of(value), None, make)
        vars(proxy)["given"] = frozenset(vars(value))
        self._tensors[path] = _Held(make, value, proxy)
        if options.is_static:
            self._recorder.numbers.fix_sizes(proxy)
        return proxy

    def _number(self, path: str, value: float, make: Callable[[], Node], options: _Options) -> Any:
        if options.is_static and type(value) is not bool:
            return self._known(path, value, make)
        self._kinds[path] = make, type(value)
        symbol = self._recorder.numbers.input_symbol(make(), value)
        symbol.key = "input", path
        return as_number(symbol)

    def _known(self, path: str, value: Any, make: Callable[[], Node]) -> Any:
        """The value itself, which is taken for granted."""
        self._take(path, make(), value)
        return value

    def _compound(self, path: str, value: Any, make: Callable[[], Node], inner: Callable[..., Any]) -> Any:
        """What stands for a container or an object of the user's; `inner` makes what stands for what is in it."""
        kind = type(value)
        if isinstance(value, list | tuple | dict | set | frozenset | collections.deque):  # sums, slices and copies
            self._recorder.ledger.asked.setdefault(path, set()).add("class")
        if kind in (set, frozenset, collections.deque):
            return self._collection(path, value, make, inner)
        if isinstance(value, tuple | list):
            return self._sequence(path, value, make, inner)
        if isinstance(value, dict):
            return self._dict(path, value, make, inner)
        if is_object(value):
            return self._object(path, value, make, inner)
        if kind is functools.partial:
            return self._partial(path, value, make, inner)
        if isinstance(value, numpy.ndarray):
            return self._array(path, value, make)
        if isinstance(value, GENERATORS):
            return self._drawer(path, value, make)
        if isinstance(value, torch.Generator):
            return GeneratorProxy.make(self._recorder, value.device, make)
        if callable(value) or isinstance(value, slice):
            self._kinds.pop(path, None)
            return self._known(path, value, make)
        if isinstance(value, range) or self._inside:  # of an object: what the program does not use is no obstacle
            return self._known(path, value, make)
        error = CaptureError(
            f"argument {path!r} of {self._where} is a {kind.__module__}.{kind.__qualname__}: it cannot be symbolic yet",
            fix="pass tensors, numbers, strings, or tuples, lists, dicts and dataclasses of them",
        )
        self._recorder.questions.refusals.refuse(error, "argument")
        return value

    def _sequence(
        self, path: str, value: list[Any] | tuple[Any, ...], make: Callable[[], Node], inner: Callable[..., Any]
    ) -> Any:
        items = [inner(i, item, self._item_maker(make, i)) for i, item in enumerate(value)]
        self._take(f"len_{path}", self._call(len, make()), len(items))
        same = sequence(type(value), items)
        if hasattr(value, "__dict__"):
            self._with_attributes(value, same, make, inner)
        elif not isinstance(value, list):
            return same
        return self.objects.remember(same, make)

    def _dict(self, path: str, value: dict[Any, Any], make: Callable[[], Node], inner: Callable[..., Any]) -> Any:
        if not value:
            self._take(path, make(), {})
            return self.objects.remember(type(value)(), make)
        self._take(f"keys_{path}", self._call(list, make()), list(value))
        held = {key: inner(key, item, self._item_maker(make, key)) for key, item in value.items()}
        same = rebuild(value, held)
        return self.objects.remember(self._with_attributes(value, same, make, inner), make)

    def _array(
        self, path: str, value: numpy.ndarray[Any, Any] | numpy.number[Any], make: Callable[[], Node]
    ) -> ObjectProxy:
        """An array or number of NumPy's with other contents, of the example's dtype and number of dimensions."""
        self._kinds[path] = make, type(value)
        self._recorder.ledger.asked.setdefault(path, set()).add("class")
        self._take(f"array_{path}", self._call(array_facts, make()), array_facts(value))
        self.has_arrays = True
        return ObjectProxy(self._recorder, copy.copy(value), make())  # the program may write to it

    def _layer(self, path: str, value: nn.Module, make: Callable[[], Node]) -> ObjectProxy:
        """A layer with other weights, of the example's class and configuration: a call of it is one node."""
        self._take(path, self._call(layer_facts, make()), layer_facts(value))
        self.has_arrays = True
        return ObjectProxy(self._recorder, copy.deepcopy(value), make())

    def _drawer(self, path: str, value: Drawer, make: Callable[[], Node]) -> ObjectProxy:
        """A generator of Python's or NumPy's, of the example's class: the program draws from the one that it gets."""
        self._kinds[path] = make, type(value)
        self._recorder.ledger.asked.setdefault(path, set()).add("class")
        self.has_arrays = True
        return ObjectProxy(self._recorder, copy.deepcopy(value), make())

    def _object(self, path: str, value: Any, make: Callable[[], Node], inner: Callable[..., Any]) -> Any:
        """An object of the same class, whose attributes are those of the example as the program is to have them."""
        known = self._inside.get(id(value))
        if known is not None:  # it is inside of itself
            return known
        own = attributes_of(value)
        is_whole = is_record(value) and [*own] == [field.name for field in dataclasses.fields(value)]
        if is_whole:
            self._records.append((path, value, make))
        else:
            self._take(f"names_{path}", self._call(attribute_names, make()), list(own))
        self._recorder.ledger.asked.setdefault(path, set()).add("class")  # whose methods are called, and are made
        made = self._inside[id(value)] = new_object(type(value))
        try:
            self._with_attributes(value, made, make, inner)
        finally:
            del self._inside[id(value)]
        return self.objects.remember(made, make)

    def _with_attributes(self, value: Any, same: Any, make: Callable[[], Node], inner: Callable[..., Any]) -> Any:
        """What stands for an object, or for a container of a class of its own, with the attributes of that."""
        if isinstance(value, dict) and is_record(value):
            return same  # an output class of transformers, whose attributes are its items
        for name, item in attributes_of(value).items():
            held = item() if type(item) is weakref.ref else None
            if id(held) in self._inside:
                mine: Any = weakref.ref(self._inside[id(held)])
            else:
                maker = self._field_maker(make, name, reads_plainly(value, name))
                ask = functools.partial(inner, name, item, maker)
                is_value = type(item) in (torch.dtype, torch.device)
                if is_value and self._recorder.dtypes.let_keep(same, name, item, maker, ask):
                    continue
                mine = ask()
            hold(same, name, mine)
        return same

    def _partial(
        self, path: str, value: functools.partial[Any], make: Callable[[], Node], inner: Callable[..., Any]
    ) -> Any:
        """A partial function of what the program is to have in place of its arguments."""
        args = inner("args", value.args, self._field_maker(make, "args"))
        named = inner("keywords", value.keywords, self._field_maker(make, "keywords"))
        self._take(f"{path}_func", self._call(getattr, make(), "func"), value.func)
        self._recorder.ledger.asked.setdefault(path, set()).add("class")
        return functools.partial(value.func, *args, **named)

    def _collection(
        self,
        path: str,
        value: set[Any] | frozenset[Any] | collections.deque[Any],
        make: Callable[[], Node],
        inner: Callable[..., Any],
    ) -> Any:
        """A set or deque with what the program is to have in place of its items; of a set these have no order."""
        if isinstance(value, set | frozenset) and not any(isinstance(item, torch.Tensor) for item in value):
            self._take(f"items_{path}", self._call(frozenset, make()), frozenset(value))
            return self.objects.remember(type(value)(value), make)
        self._take(f"len_{path}", self._call(len, make()), len(value))
        in_order = make if isinstance(value, collections.deque) else made_once(lambda: self._call(list, make()))
        items = [inner(i, item, self._item_maker(in_order, i)) for i, item in enumerate(value)]
        if isinstance(value, collections.deque):
            return self.objects.remember(collections.deque(items, value.maxlen), make)
        return self.objects.remember(type(value)(items), make)

    def _item_maker(self, make: Callable[[], Node], key: Hashable) -> Callable[[], Node]:
        return made_once(lambda: self._call(operator.getitem, make(), key))

    def _field_maker(self, make: Callable[[], Node], name: str, is_plain: bool = True) -> Callable[[], Node]:
        if is_plain:
            return made_once(lambda: self._call(getattr, make(), name))
        return made_once(lambda: self._call(operator.getitem, self._call(attributes_of, make()), name))

    def _call(self, function: Callable[..., Any], *args: Any) -> Node:
        graph = self._recorder.root.graph
        name = str(args[1]) if function is getattr else "kind" if function is class_of_tensor else None
        if function is operator.getitem:  # as the checks call it: `images_0`
            name = re.sub(r"\W", "_", f"{args[0].name}_{args[1]}", flags=re.ASCII)
        if self._head is None:
            return graph.call_function(function, args, name=name)
        with graph.inserting_after(max([self._head, *nodes_in(args)])):
            self._head = graph.call_function(function, args, name=name)
        return self._head

    def _take(self, name: str, node: Node, value: Any) -> None:
        self._recorder.ledger.take(name, value, lambda: node)

    def reached(self) -> list[Any]:
        """The objects among the inputs and in them, and the functions and classes: the program may run their code."""
        known = (taken.value for taken in self._recorder.ledger.taken.values())
        objects = (one.value for one in self._apart if not isinstance(one.value, torch.Tensor))
        return [*objects, *(value for value in known if callable(value))]

    def tell_apart(self, changed: Iterable[Any], outside: list[tuple[Any, str]]) -> None:
        """The program has changed these inputs, or asked which they are: others of their kind may be the same object.

        `outside` are objects that the program has found. Raises Restart where two of the example are one, or one is
        there, too, and the program ran on something else for each.
        """
        plan = self._recorder.plan
        asked = self._recorder.told_apart | {id(value) for value in changed}
        plan.told_apart |= {one.kind for one in self._apart if id(one.stand_in) in asked}
        stand_ins: dict[int, Any] = {}
        for one in self._apart if plan.told_apart else ():
            if one.kind in plan.told_apart and stand_ins.setdefault(id(one.value), one.stand_in) is not one.stand_in:
                raise Restart(f"the example passes one {one.kind.__name__} as {one.path} and as another input")
        kinds = {type(value) for value, _ in outside}
        told = [
            one for one in self._apart if one.kind in kinds and (is_object(one.value) or one.kind in plan.told_apart)
        ]
        subjects = {id(value): subject for value, subject in outside}
        for one in told:
            if id(one.value) in subjects:
                self._as_outside(one, subjects[id(one.value)])
        self._unlike_outside, self._outside = told, [each for each in outside if type(each[0]) in kinds]

    def _as_outside(self, one: _One, subject: str) -> None:
        """Raise Restart, for a pass that runs on an object which is outside of the program, too, as it is there."""
        if is_object(one.value):
            self._recorder.plan.outside.add(one.path)
            raise Restart(f"the example passes {subject} as {one.path}")
        error = CaptureError(
            f"argument {one.path!r} of {self._where} is {subject}: the program changes it, or asks which it is",
            fix="pass a copy, or let the program take it from where it is",
        )
        self._recorder.questions.refusals.refuse(error, "argument")

    def _take_identities(self) -> None:
        """Take for granted which inputs are one object, where the program tells them apart."""
        groups: dict[type, list[_One]] = {}
        for one in self._apart:
            if one.kind in self._recorder.plan.told_apart:
                groups.setdefault(one.kind, []).append(one)
        for kind, ones in groups.items():
            if len(ones) > 1:
                subject = f"which of the arguments {', '.join(one.path for one in ones)} are one object"
                value = shared(**{one.path: one.value for one in ones})
                make = functools.partial(self._shared, {one.path: one.make for one in ones})
                self._recorder.ledger.take(f"shared {kind.__name__}", value, make, subject)

    def _shared(self, makes: dict[str, Callable[[], Node]]) -> Node:
        nodes = {path: make() for path, make in makes.items()}
        with self._recorder.root.graph.inserting_after(max(nodes.values())):
            return self._recorder.root.graph.call_function(shared, (), nodes)

    def guard(self) -> None:
        """Write, before the program's first operation, the checks of what the ledger says was taken for granted."""
        graph, first = self._recorder.root.graph, self._last
        if first is None:  # no inputs: what stands for the last of them while the checks are written
            with graph.inserting_before():
                first = graph.call_function(operator.pos, (0,))
        self._head = first
        self._take_identities()
        self._take_given()
        ledger = self._recorder.ledger
        if ledger.asks_autocast or ledger.autocast is not None:
            self._take_autocast()
        self._take_devices()
        for path, record, make in self._records:
            if any(not hasattr(record, name) for name in self._recorder.callers.looked_for()):
                self._take(f"names_{path}", self._call(attribute_names, make()), [*attributes_of(record)])
        for path, held in self._tensors.items():
            if ledger.asks_classes or "class" in ledger.asked.get(path, ()):
                read = functools.partial(self._call, class_of_tensor, held.make())
                ledger.take(f"type({path})", "torch.Tensor", read, f"type({path})")
        checks: list[tuple[Callable[..., None], tuple[Any, ...], Mapping[str, Any]]] = []
        asks_all = self._recorder.plan.is_one_of_several or ledger.asks_kinds
        facts = self._facts(asks_all)
        kinds: dict[str, tuple[Any, ...]] = {}
        for name, (make, kind) in self._kinds.items():
            is_asked = asks_all or ledger.asked.get(name, set()) & {"class", "dtype"}
            if name not in facts and name not in ledger.taken and is_asked:
                kinds[name] = make(), kind
        if asks_all:
            tensors = {name: tensor for name, tensor in self._tensors.items() if name not in facts}
            kinds |= {name: (held.make(), torch.Tensor) for name, held in tensors.items()}
        inside = {name: kind for name, kind in kinds.items() if asks_all and kind[0].op != "placeholder"}
        checks.append((expect_kinds, (), {name: kind for name, kind in kinds.items() if name not in inside}))
        of_inputs = {name: taken for name, taken in ledger.taken.items() if not taken.subject}
        checks.append((expect_values, (), {name: (taken.make(), taken.value) for name, taken in of_inputs.items()}))
        checks += [(expect_kinds, (), inside), (expect_tensors, (), facts)]  # of what containers of that length hold
        state = [(taken.subject, taken.make(), taken.value) for taken in ledger.taken.values() if taken.subject]
        checks.append((expect_state, tuple(state), {}))
        if ledger.found or self._unlike_outside:
            outside = Outside(ledger.found.values(), objects=self._outside)
            checks.append((expect_outside, (outside,), {one.path: one.make() for one in self._unlike_outside}))
        checks = [check for check in checks if check[1] or check[2]]
        last = _read_after(first, nodes_in([check[1:] for check in checks]))
        guards = []
        for check, args, pairs in reversed(checks):
            with graph.inserting_after(last):
                guards.append(graph.call_function(check, (self._where, *args), pairs, name="guard"))
        for guard in guards:
            _move_before(guard)
        if self._last is None:
            graph.erase_node(first)

    def settle(self) -> None:
        """The program has ended: of which inputs what is taken for granted, for what was read to be what it was."""
        ledger = self._recorder.ledger
        self._settle_questions()
        if not ledger.reads:
            return
        proxies = {path: held.proxy for path, held in self._tensors.items() if held.proxy is not None}
        sources = {proxy._node: path for path, proxy in proxies.items() if proxy._node is not None}
        sources |= {held.make(): path for path, held in self._tensors.items() if held.is_list}
        of_tensors = {id(proxy): path for path, proxy in proxies.items()}
        numbers = {make(): path for path, (make, kind) in self._kinds.items() if kind in (int, float)}
        dtypes = {path: held.example.dtype for path, held in self._tensors.items()}
        asked = Settling(self._recorder, sources | numbers, of_tensors, dtypes)
        asked.follow(ledger.reads.values())
        ledger.reads.clear()
        for path, facts in asked.found.items():
            ledger.asked.setdefault(path, set()).update(facts)

    def _settle_questions(self) -> None:
        """What the program asked of inputs by what stands for them, by their paths."""
        ledger = self._recorder.ledger
        paths: dict[Hashable, str] = {id(one.stand_in): one.path for one in self._apart}
        paths |= {("input", path): path for path in self._kinds}
        for key, asked in ledger.of_inputs.items():
            if key in paths:
                ledger.asked.setdefault(paths[key], set()).update(asked)

    def _take_given(self) -> None:
        """Take for granted that inputs are not None, where the program asks and no other guard says so."""
        taken, asked = self._recorder.ledger.taken, self._recorder.ledger.asked
        places = {one.path: one.make for one in self._apart} | {path: make for path, (make, _) in self._kinds.items()}
        for path, make in places.items():
            is_told = not taken.keys().isdisjoint({path, f"len_{path}", f"keys_{path}"}) or "class" in asked.get(
                path, ()
            )
            if "none" in asked.get(path, ()) and not is_told:
                self._take(f"{path}_is_None", self._call(operator.is_, make(), None), False)

    def _take_devices(self) -> None:
        """Take for granted on which devices tensors are, where the program asks."""
        ledger = self._recorder.ledger
        for path, held in self._tensors.items():
            if "device" not in ledger.asked.get(path, ()):
                continue
            read = functools.partial(self._call, getattr, held.make(), "device")
            if held.is_list:
                read = functools.partial(self._call, device_of_each, held.make(), held.example.device)
            ledger.take(f"{path}.device", held.example.device, read, f"{path}.device")

    def _take_autocast(self) -> None:
        """Take for granted that the program is called under `torch.autocast`, or outside of it, as the example is.

        Where any of some dtypes is as good, it is called under one that casts to one of these, too.
        """
        kinds = {held.example.device.type for held in self._tensors.values()} or {"cpu"}
        ledger = self._recorder.ledger
        for kind in sorted(kinds & {"cpu", "cuda", "xpu", "mps"}):
            now, subject = torch.is_autocast_enabled(kind), f"torch.is_autocast_enabled({kind!r})"
            read = functools.partial(self._call, torch.is_autocast_enabled, kind)
            if not (ledger.asks_autocast or now):
                fitting = sorted((ledger.autocast or frozenset()) & {torch.bfloat16, torch.float16}, key=str)
                if fitting:
                    subject = f"autocast on {kind} to another dtype than {any_of(fitting)}"
                    read = functools.partial(self._call, autocast_beyond, kind, fitting)
            ledger.take(f"autocast_{kind}", now, read, subject)

    def _facts(self, asks_all: bool) -> dict[str, tuple[Any, ...]]:
        """The dtypes and ranks that are to be those of the example; None for one that may be another.

        `asks_all`: all that a list holds are to be tensors.
        """
        facts = {}
        for name, held in self._tensors.items():
            asked = self._recorder.ledger.asked.get(name, set())
            among = [fact for fact in asked if not isinstance(fact, str)]
            if among or asked & {"dtype", "rank"} or (asks_all and held.is_list):
                dtype: Any = held.example.dtype if "dtype" in asked else None
                if among and dtype is None:  # or another that is as good
                    dtype = tuple(sorted(frozenset.intersection(*among), key=str))
                rank = held.example.dim() if "rank" in asked else None
                facts[name] = (held.make(), dtype, rank, *((list,) if held.is_list else ()))
        return facts


def _read_after(last: Node, checked: Iterable[Node]) -> Node:
    """Let what checks read of the inputs be read right after a node. Return the last one that does."""
    read: dict[Node, None] = {}
    todo = [*checked]
    while todo:
        node = todo.pop()
        if node > last and node not in read:
            read[node] = None
            todo += nodes_in((node._args, node._kwargs))
    for node in sorted(read):
        last.append(node)
        last = node
    return last


def _move_before(reader: Node) -> None:
    """Let what only a guard reads be read right before it, in the order in which the guard has it."""
    for node in nodes_in((reader._args, reader._kwargs)):
        if node._op != "placeholder" and len(node.users) == 1 and node._origin is None:
            reader.prepend(node)
            _move_before(node)
