"""Recording a program that runs on example values: what `trace` does between its first and its last operation.

A `TorchFunctionMode`, which acts in the capturing thread alone, sees every torch call. Calls become nodes, their
results `TensorProxy`s; calls of modules arrive through the shells.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any, NoReturn

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from graphwright.capture.branches import Raised, Unbound, branch
from graphwright.capture.conversion import can_convert, is_converted
from graphwright.capture.examples import Examples
from graphwright.capture.origins import CallSite, Scope, is_handled, place_of, user_frame
from graphwright.capture.plan import Plan
from graphwright.capture.regions import Region
from graphwright.capture.spellings import (
    DATA_METHODS,
    KIND_METHODS,
    PIECES,
    RESHAPES_IN_PLACE,
    operator_call,
    property_name,
    tensor_method_name,
)
from graphwright.capture.staging import Text, capturing, converted_function, is_refused_number
from graphwright.capture.symbols import UNKNOWN, Number, Symbol, as_number, symbol_of
from graphwright.capture.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError
from graphwright.ir import ATOMS, Argument, Graph, Node, map_arg
from graphwright.ops import enter_context, exit_context, raise_error, unpack
from graphwright.runtime import Shells, expect

__all__ = ["Recorder"]

_IN_PLACE = frozenset({
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.imatmul,
    operator.ipow, operator.ilshift, operator.irshift, operator.iand, operator.ixor, operator.ior,
})  # fmt: skip
_TABLES = ("training", "_buffers", "_parameters", "_modules")
_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_NESTED = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # part of the function around them
_BOUNDARIES = (nn.Module._call_impl.__code__, nn.Module._wrapped_call_impl.__code__)
_REPORTS = ("assert ", "raise ", "torch._assert", "torch._check", "warnings.warn", "logger.", "logging.", "print(")
_COMPARISONS = frozenset({operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge})
_SAMPLES = {int: 3, float: 1.5, bool: True}
_PLAIN_LEAVES = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator, range)


class Recorder:
    """One capture: the graph being written, the shells it runs on, and the example values."""

    def __init__(self, examples: Examples, is_leaf: Callable[[nn.Module, str], bool], plan: Plan) -> None:
        self.root = self.region = Region()
        self.plan = plan
        self.examples = examples
        self.scope = Scope("", type(None), 0, None)
        self.shells: Shells | None = None
        self.kinds_asked = False  # whether the program asked for a dtype or rank
        self.pending: BaseException | None = None
        self._is_leaf = is_leaf
        self._calls: dict[str, int] = {}
        self._paths: dict[int, str] = {}  # id of a parameter, buffer or tensor attribute -> its dotted path
        self.is_running = False
        self._symbols: dict[tuple[Any, ...], Symbol] = {}
        self._answers: set[tuple[Any, ...]] = set()
        self.known: dict[Any, bool] = {}  # what holds on the side of the branch that is being captured
        self.forks: list[Fork] = []
        self._samples = False  # whether the running operation takes no sizes
        self._devices: dict[int, tuple[torch.device, TensorProxy]] = {}
        self.grad_regions: list[tuple[bool, Node]] = []
        self._contexts: list[Any] = []
        self._keep: list[Any] = []  # tensors known by id must not die during the capture

    @property
    def graph(self) -> Graph:
        """The graph that is being written to."""
        return self.region.graph

    # ---- running

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run the program with everything recorded."""
        self.is_running = True
        try:
            with capturing(self), _RecordingMode(self):
                result = self.converted(function)(*args, **kwargs)
        except Raised:
            raise CaptureError("the program raises an exception whatever its inputs are", at=self.where()) from None
        finally:
            self.is_running = False
        if self.pending is not None:
            raise self.pending
        return result

    def own_tensors(self, shells: Shells) -> None:
        """Learn the tensors of the module tree by identity, and make the training flags part of the program."""
        self.shells = shells
        for module, shell in shells.all():
            path = shells.path(module)
            prefix = f"{path}." if path else ""
            shell.__dict__["training"] = as_number(self.training_symbol(prefix, module.training))
            tables = (module._parameters, module._buffers, module.__dict__)
            for table in tables:
                for name, value in table.items():
                    if isinstance(value, torch.Tensor):
                        self._paths.setdefault(id(value), prefix + name)

    def convert_methods(self, shells: Shells) -> None:
        """Give the shells conversions of the forwards that are to be converted."""
        for _, shell in shells.all():
            forward = shell.forward
            converted = self.converted(forward)
            if converted is not forward:
                shell.__dict__["forward"] = converted

    def finish(self, result: Any) -> None:
        """Write the output of the program."""
        self.region = self.root
        graph = self.graph
        last = graph._root.prev
        output = graph.create_node("output", "output", (self.argument(result),))
        if last.origin is not None and last.origin.module == "" and last.origin.source.startswith("return "):
            output.origin = last.origin

    def failed_path(self, error: Exception) -> BaseException:
        """What to do where a path that the example does not take raises: an answer of size is the example's."""
        if is_refused_number(error):
            last = next(
                (f for f, _ in reversed(list(traceback.walk_tb(error.__traceback__))) if user_frame(f) is f), None
            )
            codes = self.convertible(last)
            if codes:
                return self.plan.convert(codes)
        for fork in reversed(self.forks):
            if not fork.is_data:
                return self.plan.change(fork.place, "guard", f"a path raises {type(error).__name__}")
        return error

    def too_many_paths(self) -> BaseException:
        """What to do where the program forks too often."""
        for fork in reversed(self.forks):
            if not fork.is_data:
                return self.plan.change(fork.place, "guard", "the program forks too often")
        return DataQuestion(
            f"the program forks into more than {self.plan.max_paths} paths",
            at=self.forks[-1].site and str(self.forks[-1].site),
            fix="use torch.where, or write the branches so that both give the same kinds of values",
        )

    def refuse_kept_values(self) -> None:
        """Raise CaptureError if the program keeps a value of its run in an attribute: that write would be lost."""
        for module, shell in self.shells.all() if self.shells is not None else ():
            own = {name: value for name, value in shell.__dict__.items() if name not in _TABLES}
            for table in (own, shell._buffers, shell._parameters):
                for name, value in table.items():
                    if _holds_proxies(value):
                        raise CaptureError(
                            f"the program keeps a tensor or number in {type(module).__name__}.{name}; "
                            "a captured program cannot write attributes yet",
                            fix="return the value instead, or write in place: self.buffer.copy_(value)",
                        )

    def call_module(self, module: nn.Module, shell: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """What runs instead of a module's `__call__`: a node for a leaf, else its forward, hooks and all."""
        shells = self.shells
        path = "" if shells is None else shells.path(module) or ""
        outer = self.scope
        count = self._calls.get(path, 0)
        self._calls[path] = count + 1
        if self._is_leaf(module, path):
            return self._record_leaf(module, path, args, kwargs)
        self.scope = Scope(path, type(module), count, outer)
        try:
            return nn.Module._call_impl(shell, *args, **kwargs)
        finally:
            self.scope = outer

    def _record_leaf(self, module: nn.Module, path: str, args: Any, kwargs: Any) -> Any:
        shadow = self.examples.module(module)
        return self._record("call_module", path, shadow, args, kwargs)

    # ---- calls of torch

    def torch_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one call of torch, or answer it from what is known."""
        if self.pending is not None:
            raise self.pending
        prop = property_name(function)
        if prop is not None:
            return self._read_property(prop, function, args)
        name = tensor_method_name(function)
        if name is None:
            if function is torch._C._set_grad_enabled:
                return self._set_grad_mode(*args)
            if not self._mentions_tensor(args, kwargs) and not self._makes_tensor(function, args, kwargs):
                return function(*args, **kwargs)
            return self._record("call_function", function, function, args, kwargs)
        owner = args[0] if args else None
        if name in ("size", "__len__", "numel", "nelement", "dim", "ndimension"):
            return self._measure(owner, name, args[1:], kwargs)
        if name in KIND_METHODS:
            self.kinds_asked |= isinstance(owner, TensorProxy)
            return function(*self._to_examples(args), **self._to_examples(kwargs))
        if name in DATA_METHODS and isinstance(owner, TensorProxy):
            return self._data(name, owner)
        target = operator_call(name, user_frame(sys._getframe(1)), args)
        if target is not None:
            return self._record("call_function", target[0], target[0], target[1], {})
        if name in RESHAPES_IN_PLACE and isinstance(owner, TensorProxy):
            for dim in range(owner.example.dim()):  # sizes read before are those from before
                known = self._symbols.pop(("size", id(owner), dim), None)
                if known is not None:
                    self.node_of_symbol(known)
        return self._record("call_method", name, function, args, kwargs)

    def _read_property(self, name: str, function: Any, args: tuple[Any, ...]) -> Any:
        owner = args[0]
        if len(args) > 1 or not isinstance(owner, TensorProxy):  # a setter, or a tensor of the module
            example = self.examples.of(owner) if not isinstance(owner, TensorProxy) else owner.example
            if len(args) > 1:
                self._record("call_function", setattr, setattr, (owner, name, args[1]), {})
                return None
            if name in ("data", "T", "mT", "H", "mH", "real", "imag", "grad"):
                return self._record("call_function", getattr, getattr, (owner, name), {})
            return getattr(example, name) if name != "device" else owner.device
        if name == "shape":
            return self._measure(owner, "size", (), {})
        if name == "ndim":
            return self._measure(owner, "dim", (), {})
        if name == "device":
            device = torch.device(str(owner.example.device))  # an object of its own: its identity tells its tensor
            self._devices[id(device)] = device, owner
            return device
        with torch._C.DisableTorchFunction():
            value = getattr(owner.example, name)
        if isinstance(value, torch.Tensor):
            return self._record("call_function", getattr, getattr, (owner, name), {})
        self.kinds_asked = True
        return value

    def _measure(self, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a question for sizes with symbols, one for rank with a number that is then guarded."""
        if not isinstance(owner, TensorProxy):
            with torch._C.DisableTorchFunction():
                return getattr(torch.Tensor, name)(owner, *args, **kwargs)
        rank = owner.example.dim()
        if name in ("dim", "ndimension"):
            self.kinds_asked = True
            return rank
        if name == "__len__":
            return self.answer(self.size_symbol(owner, 0))
        if name in ("numel", "nelement"):
            return as_number(self._symbol(("numel", id(owner)), owner.example.numel(), "numel", (owner,)))
        dim = args[0] if args else kwargs.get("dim")
        if dim is not None:
            symbol = self.size_symbol(owner, operator.index(dim))
            frame = user_frame(sys._getframe(1))
            if frame is not None and not symbol.name:
                symbol.name = place_of(frame.f_code, frame.f_lasti).target
            return as_number(symbol)
        names = self._unpacked_names()
        sizes = [self.size_symbol(owner, i) for i in range(rank)]
        if len(names) == rank:
            for symbol, known in zip(sizes, names, strict=True):
                symbol.name = symbol.name or known
        return torch.Size(map(as_number, sizes))

    def _set_grad_mode(self, enabled: bool) -> Any:
        """Record where no_grad and enable_grad are entered and left: each region restores what was before it."""
        before = torch.is_grad_enabled()
        if self.grad_regions and self.grad_regions[-1][0] == enabled:
            _, entered = self.grad_regions.pop()
            self._node("call_function", exit_context, (entered,), {})
        else:
            manager = torch.enable_grad if enabled else torch.no_grad
            node = self._node("call_function", enter_context, (manager,), {}, name=manager.__name__)
            self.grad_regions.append((before, node))
        return torch._C._set_grad_enabled(enabled)

    # ---- nodes

    def _record(self, op: str, target: Any, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run an operation on the examples, make its node, and give the results as proxies."""
        self._samples = getattr(target, "__module__", None) == "_operator"
        example = self.examples.run(run, self._to_examples(args), self._to_examples(kwargs))
        node_args = tuple([self.argument(arg) for arg in args])
        node_kwargs = {key: self.argument(arg) for key, arg in kwargs.items()}
        node = self._node(op, target, node_args, node_kwargs)
        changed = _written_argument(op, target, args, kwargs)
        if isinstance(changed, torch.Tensor) and example is self._to_examples(changed):
            return changed
        if isinstance(example, torch.Tensor):
            return TensorProxy.make(self, example, node)
        names = self._unpacked_names()
        if isinstance(example, tuple | list) and (_name_of(target) in PIECES or len(names) == len(example)):
            node = self._node("call_function", unpack, (node, len(example)), {}, "unpack")
        return self._items(example, node, names)

    def _node(self, op: str, target: Any, args: Any, kwargs: Any, part: str = "", name: str = "") -> Node:
        """Make a node for the user's running line.

        Its value is called what the user's statement assigns it to; `name` overrides that. `part` is the name of a
        node that does only a part of what the user's expression says: the read of a parameter in `x + self.weight`.
        """
        frame = user_frame(sys._getframe(1)) if self.is_running else None
        if frame is None:
            return self._create(op, target, args, kwargs, name or part or None)
        wish = name or part or place_of(frame.f_code, frame.f_lasti).target
        if not wish and op == "call_module":
            wish = _module_name(target)
        node = self._create(op, target, args, kwargs, wish or None)
        node._origin = CallSite(frame.f_code, frame.f_lasti, self.scope, not part)
        return node

    def _create(self, op: str, target: Any, args: Any, kwargs: Any, name: str | None) -> Node:
        region = self.region
        if region.outer is not None:
            try:
                args, kwargs = map_arg(args, region.lift), map_arg(kwargs, region.lift)
            except LookupError:
                raise CaptureError(
                    "a value that was computed in one branch is used after it",
                    at=self.where(),
                    fix="return it from the branch, or give it to a variable that both branches assign",
                ) from None
        return region.graph.create_node(op, target, args, kwargs, name)

    def _items(self, value: Any, node: Node, names: Sequence[str] = ()) -> Any:
        """Give a result of an operation to the program: tensors as proxies, containers rebuilt around them.

        Each item gets a node at once; those that nothing uses are erased at the end.
        """
        if isinstance(value, torch.Tensor):
            return TensorProxy.make(self, value, node)
        if isinstance(value, tuple | list):
            named = [*names, *[""] * len(value)]
            items = [
                self._items(item, self._item_node(node, i, named[i])) if _holds_tensors(item) else item
                for i, item in enumerate(value)
            ]
            kind = type(value)
            if kind is list or kind is tuple:
                return kind(items)
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        if isinstance(value, dict):
            return type(value)((key, self._items(item, self._item_node(node, key))) for key, item in value.items())
        return value

    def _item_node(self, owner: Node, key: Any, name: str = "") -> Node:
        return self._node("call_function", operator.getitem, (owner, key), {}, "getitem", name)

    def _unpacked_names(self) -> Sequence[str]:
        """The variables that the user's statement unpacks the running call's value into."""
        frame = user_frame(sys._getframe(1))
        return () if frame is None else place_of(frame.f_code, frame.f_lasti).targets

    def argument(self, value: Any) -> Argument:
        """Turn a value of the program into an argument of a node."""
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind is TensorProxy:
            return value.node_of()
        symbol = symbol_of(value)
        if symbol is not None:
            return self.node_of_symbol(symbol)
        if isinstance(value, torch.Tensor):
            return self._attribute_node(value)
        if kind is torch.device:
            known = self._devices.get(id(value))
            return value if known is None else self._device_node(known[1])
        if isinstance(value, torch.Size) or kind is tuple:
            return tuple([self.argument(item) for item in value])
        if kind is list:
            return [self.argument(item) for item in value]
        if kind is slice:
            return slice(self.argument(value.start), self.argument(value.stop), self.argument(value.step))
        if isinstance(value, (*_PLAIN_LEAVES, int, float, str, complex)):
            return value
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return kind(*[self.argument(item) for item in value])
        if isinstance(value, tuple):  # torch's own result types
            return tuple([self.argument(item) for item in value])
        if kind is dict:
            return {key: self.argument(item) for key, item in value.items()}
        if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
            return value
        fields = _constructor_fields(value)
        if fields is not None:
            return self._node("call_function", kind, (), {name: self.argument(item) for name, item in fields.items()})
        raise CaptureError(
            f"cannot write a {kind.__module__}.{kind.__qualname__} into the graph",
            at=self.where(),
            fix="pass tensors, numbers, or tuples, lists, dicts and dataclasses of them",
        )

    def _device_node(self, tensor: TensorProxy) -> Node:
        node = self.region.attributes.get(id(tensor))
        if node is None:
            node = self._node("call_function", getattr, (tensor.node_of(), "device"), {}, "device")
            self.region.attributes[id(tensor)] = node
            self._keep.append(tensor)
        return node

    def _attribute_node(self, tensor: torch.Tensor) -> Node:
        """The node that reads a tensor of the module, or a constant that no module has."""
        path = self._paths.get(id(tensor))
        if path is None:
            path = f"_tensor_constant{len(self.root.graph.constants)}"
            with torch._C.DisableTorchFunction():
                self.root.graph.constants[path] = tensor.detach()
            self._paths[id(tensor)] = path
            self._keep.append(tensor)
        node = self.region.attributes.get(path)
        if node is None:
            node = self.region.attributes[path] = self._node("get_attr", path, (), {}, _module_name(path))
        return node

    def _to_examples(self, value: Any) -> Any:
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind is TensorProxy:
            return value.example
        symbol = symbol_of(value)
        if symbol is not None:
            # Any number does for arithmetic, and for what is no size.
            may_be_size = symbol.kind is int and not self._samples
            return symbol.hint if symbol.has_value or may_be_size else _SAMPLES[symbol.kind]
        if isinstance(value, torch.Tensor):
            return self.examples.of(value)
        if kind is Unbound:
            value._refuse()
        if isinstance(value, tuple):
            items = [self._to_examples(item) for item in value]
            if kind is tuple:
                return tuple(items)
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        if isinstance(value, list):
            return [self._to_examples(item) for item in value]
        if isinstance(value, dict):
            return {key: self._to_examples(item) for key, item in value.items()}
        if kind is slice:
            return slice(*map(self._to_examples, (value.start, value.stop, value.step)))
        return value

    def _mentions_tensor(self, args: Any, kwargs: Any) -> bool:
        return any(isinstance(value, torch.Tensor) for value in _leaves((args, kwargs)))

    def _makes_tensor(self, function: Any, args: Any, kwargs: Any) -> bool:
        """Tell whether a call without tensors makes one: `torch.arange(n)`, rather than `torch.get_default_dtype()`."""
        example = self.examples.run(function, self._to_examples(args), self._to_examples(kwargs))
        return any(isinstance(value, torch.Tensor) for value in _leaves(example))

    # ---- numbers

    def _symbol(self, key: tuple[Any, ...], hint: Number, function: Any, args: tuple[Any, ...]) -> Symbol:
        known = self._symbols.get(key)
        if known is None:
            known = Symbol(self, hint, function, args, self.site())
            known.key = key
            self._symbols[key] = known
        return known

    def size_symbol(self, tensor: TensorProxy, dim: int) -> Symbol:
        """The symbol of one size of a tensor. Raises IndexError for a dimension that it does not have."""
        rank = tensor.example.dim()
        if not -rank <= dim < rank:
            raise IndexError(f"Dimension out of range: expected one of [{-rank}, {rank - 1}], but got {dim}")
        dim %= rank
        return self._symbol(("size", id(tensor), dim), tensor.example.shape[dim], "size", (tensor, dim))

    def training_symbol(self, prefix: str, value: bool) -> Symbol:
        """The symbol of a module's training flag."""
        path = f"{prefix}training"
        return self._symbol(("training", path), value, "training", (path,))

    def input_symbol(self, node: Node, value: Number) -> Symbol:
        """The symbol of a number that is passed to the program."""
        symbol = Symbol(self, value, "input", (node,), None)
        self.region.numbers[symbol] = node
        return symbol

    def data_symbol(self, hint: Number, kind: type, function: Any, args: tuple[Any, ...]) -> Symbol:
        """The symbol of a number that depends on the data of tensors."""
        return Symbol(self, hint, function, args, self.site(), kind)

    def constant_symbol(self, value: Number) -> Symbol:
        """A plain number where torch wants a symbol beside another."""
        return Symbol(self, value, "constant", (value,), None)

    def computed_symbol(self, function: Callable[..., Any], args: tuple[Symbol, ...]) -> Symbol:
        """The symbol of a function of symbols; of constants alone it is a constant again."""
        if not all(arg.has_value for arg in args):
            kind = type(function(*[arg.hint if arg.has_value else _SAMPLES[arg.kind] for arg in args]))
            key = (function, *(arg.key for arg in args))
            if key not in self._symbols:
                self._symbols[key] = self.data_symbol(UNKNOWN, kind, function, args)
            return self._symbols[key]
        hint = function(*[arg.hint for arg in args])
        if all(arg.function == "constant" for arg in args):
            return self.constant_symbol(hint)
        simple = _identity(function, args)
        if simple is not None:
            return simple
        return self._symbol((function, *(arg.key for arg in args)), hint, function, args)

    def node_of_symbol(self, symbol: Symbol) -> Any:
        """The node that computes a number, made at its first use; a constant is itself."""
        if symbol.function == "constant":
            return symbol.hint
        if symbol.function == "truth":
            return self.argument(symbol.args[0])
        node = self.region.number(symbol)
        if node is None:
            args = tuple(
                self.node_of_symbol(arg) if isinstance(arg, Symbol) else self.argument(arg) for arg in symbol.args
            )
            if symbol.function == "training":
                node = self._node("get_attr", symbol.args[0], (), {}, "training")
            elif isinstance(symbol.function, str):
                node = self._node("call_method", symbol.function, args, {}, symbol.function, symbol.name)
            else:
                name = symbol.name or (symbol.site.resolve().target if symbol.site is not None else "")
                node = self._node("call_function", symbol.function, args, {}, symbol.function.__name__, name)
            self.region.numbers[symbol] = node
        return node

    # ---- questions

    def answer(self, symbol: Symbol) -> Any:
        """Answer what Python asks of a number: convert who asks, or fork, or take the example's value under a guard."""
        if symbol.function == "constant":
            return symbol.hint
        return self._answer(symbol, symbol.kind)

    def _answer(self, subject: Any, kind: type) -> Any:
        if self.pending is not None:
            raise self.pending
        key = self.key_of(subject)
        if key in self.known:
            return self.known[key]
        is_asked_by_user = user_frame(sys._getframe(1)) is _outer_frame(sys._getframe(1))
        place = self.place()
        way = self.plan.ways.get(place)
        stages = self.plan.control_flow == "stage"
        if stages and is_asked_by_user and way is None:
            codes = self.convertible(user_frame(sys._getframe(1)))
            if codes:
                raise self.restart(self.plan.convert(codes))
        if kind is bool and way != "guard" and stages and (is_asked_by_user or self.is_data(subject)):
            return self._fork(subject, key, place)
        if self.is_data(subject):
            self._refuse_data(subject)
        return self._guard(subject)

    def _guard(self, symbol: Symbol) -> Any:
        if symbol.key not in self._answers:
            if self.region is self.root:
                self._answers.add(symbol.key)
            node = self.node_of_symbol(symbol)
            self._node("call_function", expect, (node, symbol.hint, self.where() or ""), {}, name="guard")
        return symbol.hint

    def _fork(self, subject: Any, key: Any, place: Any) -> bool:
        """Answer with what the plan says for this fork; the capture is made again for the other answer."""
        region = self.region
        if region.outer is not None:  # the branch around it forks instead
            while region.outer.outer is not None:
                region = region.outer
            raise self.restart(self.plan.change(region.place, "fork", "a question inside a branch forks"))
        number = len(self.forks)
        answers = self.plan.answers
        if number < len(answers):
            answer = answers[number]
        else:
            answer = bool(subject.hint) if isinstance(subject, Symbol) and subject.has_value else True
        pred = self.predicate(subject)
        self.forks.append(Fork(self.graph._root.prev, pred, answer, self.site(), place, self.is_data(subject)))
        self.known[key] = answer
        return answer

    def key_of(self, subject: Any) -> Any:
        """What tells a value from others."""
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        return id(subject) if symbol is None else symbol.key

    def is_data(self, subject: Any) -> bool:
        """Tell whether a value depends on the data of tensors, rather than on sizes and flags."""
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        return symbol is None or symbol.is_data

    def place(self) -> Any:
        """What tells a question from others: where in which function, and in which call of which module."""
        frame = user_frame(sys._getframe(1))
        if frame is None:
            return None
        position = place_of(frame.f_code, frame.f_lasti)
        return frame.f_code.co_filename, position.line, position.column, self.scope.path, self.scope.call

    def restart(self, why: BaseException) -> BaseException:
        """Have the capture start again; whatever the program does until then is ignored."""
        self.pending = why
        return why

    def convertible(self, frame: FrameType | None) -> set[CodeType]:
        """The functions to convert so that this frame's one is: it and its callers up to the nearest module call.

        None where that is done already, or cannot be.
        """
        codes: set[CodeType] = set()
        if frame is None or is_converted(frame.f_code):
            return codes
        asks = True
        while frame is not None and frame.f_code not in _BOUNDARIES and frame.f_code is not Recorder.run.__code__:
            code = frame.f_code
            if not (is_converted(code) or code.co_filename.startswith(_OURS) or code.co_name in _NESTED):
                if (asks and code in self.plan.converted) or not can_convert(code):
                    return set()
                asks = False
                codes.add(code)
            frame = frame.f_back
        return codes

    def converted(self, function: Any) -> Any:
        """What to call in place of a function."""
        return converted_function(function, self.plan.converted)

    # ---- what converted functions ask for

    def branch(self, test: Any, then: Callable[[], Any], other: Callable[[], Any], names: tuple[str, ...] = ()) -> Any:
        """Run the side that is known to be taken, or capture both."""
        if self.pending is not None:
            raise self.pending
        subject = test if isinstance(test, TensorProxy) else symbol_of(test)
        assert subject is not None
        place = self.place()
        way = self.plan.ways.get(place)
        key = self.key_of(subject)
        if key in self.known:
            return then() if self.known[key] else other()
        if way == "guard":
            return then() if self._guard(subject) else other()
        if way == "fork":
            return then() if self._fork(subject, key, place) else other()
        return branch(self, subject, then, other, names, place)

    def truth(self, value: Any) -> Any:
        """The truth of a value: a symbol for a symbolic one."""
        if isinstance(value, TensorProxy):
            hint = bool(value.example) if self.examples.is_real else UNKNOWN
            return as_number(self.data_symbol(hint, bool, bool, (value,)))
        symbol = symbol_of(value)
        if symbol is None:
            return bool(value)
        return value if symbol.kind is bool else as_number(self.computed_symbol(bool, (symbol,)))

    def loose_truth(self, value: Any) -> Any:
        """A value of which only the truth counts: what is written is the value itself."""
        if not isinstance(value, TensorProxy):
            return self.truth(value)
        hint = bool(value.example) if self.examples.is_real else UNKNOWN
        return as_number(self.data_symbol(hint, bool, "truth", (value,)))

    def hint(self, subject: Any) -> bool | None:
        """The truth of a value for the examples, None where they cannot tell."""
        if isinstance(subject, TensorProxy):
            return bool(subject.example) if self.examples.is_real else None
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        assert symbol is not None
        return bool(symbol.hint) if symbol.has_value else None

    def negation(self, value: Any) -> Any:
        """`not value` of a symbolic value."""
        if isinstance(value, TensorProxy):
            hint = not bool(value.example) if self.examples.is_real else UNKNOWN
            return as_number(self.data_symbol(hint, bool, operator.not_, (value,)))
        symbol = symbol_of(value)
        assert symbol is not None
        return as_number(self.computed_symbol(operator.not_, (symbol,)))

    def compare(self, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """One comparison, written as the operator that it is."""
        if not (isinstance(left, TensorProxy) or isinstance(right, TensorProxy)) or function not in _COMPARISONS:
            return function(left, right)
        return self._record("call_function", function, function, (left, right), {})

    def length(self, value: Any) -> Any:
        """`len(value)` of a symbolic value."""
        return as_number(self.size_symbol(value, 0)) if isinstance(value, TensorProxy) else len(value)

    def computed(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A number that a function of Python's computes from numbers, symbolic ones among them."""
        symbols = []
        for value in args:
            if isinstance(value, TensorProxy):
                if function in (int, float) and len(args) == 1:
                    return as_number(self._number_of(value, function))
                symbols.append(self._item(value))
            elif symbol_of(value) is not None:
                symbols.append(symbol_of(value))
            elif isinstance(value, int | float):
                symbols.append(self.constant_symbol(value))
            else:
                return function(*args, **kwargs)
        if kwargs:
            return function(*args, **kwargs)
        if len(symbols) == 1 and symbols[0].kind is function:
            return as_number(symbols[0])
        return as_number(self.computed_symbol(function, tuple(symbols)))

    def _number_of(self, tensor: TensorProxy, kind: Any) -> Symbol:
        """`int(tensor)` or `float(tensor)`."""
        with torch._C.DisableTorchFunction():
            hint = kind(tensor.example) if self.examples.is_real else UNKNOWN
        return self.data_symbol(hint, kind, kind, (tensor,))

    def _item(self, tensor: TensorProxy) -> Symbol:
        """The number in a tensor of one element."""
        with torch._C.DisableTorchFunction():
            example = tensor.example
            own = bool if example.dtype is torch.bool else float if example.is_floating_point() else int
            hint = example.item() if self.examples.is_real else UNKNOWN
        key = ("item", id(tensor))
        if key not in self._symbols:
            self._symbols[key] = self.data_symbol(hint, own, "item", (tensor,))
            self._keep.append(tensor)
        return self._symbols[key]

    def raising(self, error: Any) -> Any:
        """Let an exception be raised, or, on a side of a branch, write it into the graph and end the side."""
        region = self.region
        if region.outer is None:
            return error
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not region.frame:
            if user_frame(frame) is frame and is_handled(frame):
                return error  # the program itself catches it, on this side
            frame = frame.f_back
        while frame is not None and frame.f_code is not Recorder.run.__code__:
            if user_frame(frame) is frame and is_handled(frame):
                raise self.restart(self.plan.change(region.place, "fork", "an exception may be caught outside"))
            frame = frame.f_back
        self.write_raise(error)
        raise Raised

    def write_raise(self, error: Any) -> None:
        """Write into the graph that an exception is raised."""
        kind, args = (error, ()) if isinstance(error, type) else (type(error), error.args)
        self.make("call_function", raise_error, (kind, *[self._message(arg) for arg in args]), "raise_error")

    def is_raised_by_user(self, error: Exception) -> bool:
        """Tell whether a `raise` or `assert` of the program raised an exception, on a path that it forked into."""
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if not _is_ours(frame)]
        if not self.plan.answers or not frames or user_frame(frames[-1]) is not frames[-1]:
            return False
        place = place_of(frames[-1].f_code, frames[-1].f_lasti)
        return place.source.startswith(("raise ", "assert "))

    def _message(self, value: Any) -> Argument:
        if type(value) is Text:
            values = tuple([self.argument(item) for item in value.values])
            return self.make("call_method", "format", (value.template, *values), "message")
        return self.argument(value)

    def predicate(self, subject: Any) -> Argument:
        """The argument that decides a branch."""
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        if symbol is None:
            return self.argument(subject)
        return (
            self.argument(as_number(symbol.args[0]) if isinstance(symbol.args[0], Symbol) else symbol.args[0])
            if symbol.function is bool
            else self.node_of_symbol(symbol)
        )

    def make(self, op: str, target: Any, args: tuple[Any, ...], name: str) -> Node:
        """Make a node for the user's running line."""
        return self._node(op, target, args, {}, name)

    def target_name(self) -> str:
        """What the user's running statement assigns its value to."""
        frame = user_frame(sys._getframe(1))
        return "" if frame is None else place_of(frame.f_code, frame.f_lasti).target

    def lifted(self, argument: Argument) -> Argument:
        """An argument as the region that is being written to knows it."""
        return map_arg(argument, self.region.lift)

    def example(self, tensor: torch.Tensor) -> torch.Tensor:
        """The example of a tensor of the program."""
        return tensor.example if isinstance(tensor, TensorProxy) else self.examples.of(tensor)

    def _data(self, name: str, owner: TensorProxy) -> Any:
        """Answer a method that wants the data of a tensor as a Python value."""
        if name == "item":
            return as_number(self._item(owner))
        if name in ("__bool__", "is_nonzero"):
            return self._answer(owner, bool)
        if name in ("__int__", "__index__", "__float__"):
            return self._answer(self._item(owner), float if name == "__float__" else int)
        return self._refuse_data(owner, name)

    def is_in_message(self) -> bool:
        """Tell whether the running statement checks or reports something: the text of a number then decides nothing."""
        frame = user_frame(sys._getframe(1))
        return frame is not None and place_of(frame.f_code, frame.f_lasti).source.startswith(_REPORTS)

    # ---- errors and places

    def _refuse_data(self, subject: Any, name: str = "") -> NoReturn:
        what = f" ({name.strip('_')})" if name else ""
        self.pending = DataQuestion(
            f"the program asks for the data of a tensor{what}, which is known only when it runs",
            at=self.where(),
            fix="use torch.where, or keep the value a tensor",
        )
        raise self.pending

    def site(self) -> CallSite | None:
        """Where in the program the capture is."""
        frame = user_frame(sys._getframe(1))
        return None if frame is None else CallSite(frame.f_code, frame.f_lasti, self.scope)

    def where(self) -> str | None:
        """The user's line that is running."""
        site = self.site()
        if site is None:
            return None
        origin = site.resolve()
        return f"{os.path.basename(origin.file)}:{origin.line}: {origin.source}"


@dataclasses.dataclass
class Fork:
    """A question whose two answers lead to two ends of the program."""

    after: Node  # the last node before it
    pred: Argument
    answer: bool
    site: Any
    place: Any
    is_data: bool


class DataQuestion(BaseException):
    """The program branches on data. A BaseException, so that a model's own `except` does not swallow it."""

    def __init__(self, message: str, at: str | None, fix: str) -> None:
        super().__init__(message)
        self.error = CaptureError(message, at=at, fix=fix)


class _RecordingMode(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._recorder.torch_function(function, args, kwargs or {})


def _outer_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame that is not this library's."""
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OURS)


def _holds_tensors(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in _leaves(value))


def _holds_proxies(value: Any) -> bool:
    return any(isinstance(leaf, TensorProxy) or symbol_of(leaf) is not None for leaf in _leaves(value))


def _name_of(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", "")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, slice):
        yield from _leaves((value.start, value.stop, value.step))
    else:
        yield value


def _identity(function: Any, args: tuple[Symbol, ...]) -> Symbol | None:
    """`n + 0`, `n * 1` and their like are n."""
    if len(args) != 2:
        return None
    left, right = args
    plain = right.hint if right.function == "constant" else None
    if type(plain) is int and left.is_int():
        if function in (operator.add, operator.sub) and plain == 0:
            return left
        if function in (operator.mul, operator.floordiv) and plain == 1:
            return left
    plain = left.hint if left.function == "constant" else None
    if function is operator.sub and left.key == right.key:
        return left.recorder.constant_symbol(left.hint - left.hint)
    adds_nothing = (function is operator.add and plain == 0) or (function is operator.mul and plain == 1)
    return right if type(plain) is int and right.is_int() and adds_nothing else None


def _written_argument(op: str, target: Any, args: Any, kwargs: Any) -> Any:
    """The argument that an operation writes to and gives back, if it does."""
    if "out" in kwargs:
        return kwargs["out"]
    if not args:
        return None
    name = _name_of(target)
    if op == "call_method":
        is_in_place = name.endswith("_") and not name.endswith("__")
    else:
        is_in_place = (
            target in _IN_PLACE
            or (name.endswith("_") and not name.endswith("__") and name not in ("and_", "or_", "not_", "is_"))
            or bool(kwargs.get("inplace"))
        )
    return args[0] if is_in_place else None


def _module_name(path: str) -> str:
    """The last telling part of a dotted path: `encoder.layer.0.self.query` -> query, `layer1.0` -> layer1_0."""
    atoms = path.split(".")
    start = len(atoms) - 1
    while start > 0 and not atoms[start][:1].isalpha():
        start -= 1
    return "_".join(atoms[start:])


def _constructor_fields(value: Any) -> dict[str, Any] | None:
    """What to call a value's class with to make it again: the fields of a dataclass that are set."""
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is None:
        return None
    if isinstance(value, dict):  # an output class that is both: what it holds is what counts
        return dict(value) if set(value) <= set(fields) else None
    return {name: getattr(value, name) for name, field in fields.items() if field.init}
