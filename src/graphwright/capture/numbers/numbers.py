"""Numbers of the program being captured: which there are, what computes them, and what Python does with them."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any

import numpy
import torch

from graphwright.capture.numbers.classes import (
    ask_class,
    class_read,
    has_one_class,
    has_sure_class,
    is_always_bool,
    note_class,
)
from graphwright.capture.numbers.keys import hashed, is_fixed
from graphwright.capture.numbers.known_sizes import size_of
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import ObjectProxy
from graphwright.capture.state.symbols import UNKNOWN, Number, Symbol, as_number, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Argument, Node
from graphwright.source import user_frame

if TYPE_CHECKING:
    from types import FrameType

    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.rungs import HasTruth, QuestionSubject

SAMPLES: dict[type, Number] = {int: 3, float: 1.5, bool: True}  # for numbers that only a run knows
_NUMPY = os.path.join(os.path.dirname(numpy.__file__), "")
_COMPARISONS = frozenset({operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge})


class Numbers:
    """The symbols of one capture: equal computations give one symbol, whose node is made at its first use."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._symbols: dict[tuple[Any, ...], Symbol] = {}
        self._fixed: dict[int, TensorProxy] = {}  # tensors whose sizes are the example's, by id

    def _symbol(
        self, key: tuple[Any, ...], hint: Number, function: Callable[..., Any] | str, args: tuple[Any, ...]
    ) -> Symbol:
        known = self._symbols.get(key)
        if known is None:
            site = self._recorder.site()
            if site is not None and site.code.co_filename.startswith(_NUMPY):
                self._stage_behind_numpy()
            known = Symbol(self._recorder, hint, function, args, site)
            known.key = key
            self._symbols[key] = known
            self._recorder.attempts.computed(known)
        return known

    def _stage_behind_numpy(self) -> None:
        """NumPy computes with numbers of the program as with objects, which gives others: have its caller converted."""
        frame = user_frame(sys._getframe(1))
        while frame is not None and frame.f_code.co_filename.startswith(_NUMPY):
            frame = user_frame(frame.f_back)
        self._recorder.questions.staging.stage(frame)

    def size_symbol(self, tensor: TensorProxy, dim: int) -> Symbol:
        """The symbol of one size of a tensor. Raises IndexError for a dimension that it does not have."""
        rank = tensor.example.dim()
        if not -rank <= dim < rank:
            self.take_rank(tensor)
            raise IndexError(f"Dimension out of range: expected one of [{-rank}, {rank - 1}], but got {dim}")
        dim %= rank
        known = size_of(tensor, dim - rank)
        if type(known) is int:
            self.take_rank(tensor)
            return self.constant_symbol(known)
        symbol = self._measure("size", tensor, tensor.example.shape[dim], dim)
        if id(tensor) in self._fixed:
            return self.constant_symbol(self._recorder.questions.guards.guard(symbol))
        symbol.is_data |= dim in tensor.loose
        symbol.dim = known
        if is_fixed(self._recorder, symbol):
            return self.constant_symbol(self._recorder.questions.guards.guard(symbol))
        return symbol

    def size_known_by(self, symbol: Symbol) -> None:
        """A size is told by which dimension it is from the end: for another rank, that is another one."""
        for arg in symbol.args:
            if isinstance(arg, Symbol):
                self.size_known_by(arg)
            elif symbol.function == "size" and isinstance(arg, TensorProxy):
                self.take_rank(arg)

    def take_rank(self, tensor: TensorProxy) -> None:
        """How many dimensions a tensor has was read."""
        self._recorder.ledger.tensor(tensor, "rank", self._recorder.where() or "")

    def count_symbol(self, tensor: TensorProxy) -> Symbol:
        """The symbol of the number of elements of a tensor."""
        return self._measure("numel", tensor, tensor.example.numel())

    def _measure(self, name: str, tensor: TensorProxy, hint: int, *args: int) -> Symbol:
        """A number that a tensor's shape says, as of now."""
        writes = self._recorder.writes
        key = (name, id(tensor), *args, writes.shape_stamp(tensor))
        known = self._symbols.get(key)
        if known is None:
            known = self._symbol(key, hint, name, (tensor, *args))
            writes.measured(known, tensor)
        return known

    def hashed(self, symbol: Symbol) -> None:
        """A number is to be a key: have what it comes from guarded, where that can be."""
        hashed(symbol)

    def class_read(self, symbol: Symbol, frame: FrameType) -> None:
        """Code that runs in a frame of the program reads the `__class__` of a number."""
        class_read(self._recorder, symbol, frame)

    def class_expected(self, symbol: Symbol) -> type:
        """A guard of a captured program, which is captured again, asks for the class of a number."""
        self._recorder.ledger.kind_asked()
        ask_class(self._recorder, symbol)
        return symbol.kind

    def fix_sizes(self, tensor: TensorProxy) -> None:
        """Take the sizes of a tensor from the example; each that the program reads is guarded."""
        self._fixed[id(tensor)] = tensor

    def training_symbol(self, prefix: str, value: bool) -> Symbol:
        """The symbol of a module's training flag."""
        path = f"{prefix}training"
        known = self._symbols["training", path] = Symbol(self._recorder, value, "training", (path,), None)
        known.key = "training", path
        return known

    def attribute_symbol(self, path: str, value: Number, is_dynamic: bool, is_state: bool) -> Symbol:
        """The symbol of a number that a module has, which the graph reads at each call.

        What Python asks of it is answered from the example, and taken for granted: unless it `is_dynamic`, or the order
        of numbers is asked for that are the module's state.
        """
        symbol = self._symbol(("attribute", path), value, "attribute", (path,))
        symbol.firmness = 0 if is_dynamic else 1 if is_state and type(value) is int else 2
        return symbol

    def firm(self, symbol: Symbol) -> Number:
        """Answer what Python asks of numbers of modules, and take these for granted."""
        for arg in symbol.args:
            if isinstance(arg, Symbol):
                self.firm(arg)
        if symbol.function == "attribute":
            owner, _, name = symbol.args[0].rpartition(".")
            self._recorder.ledger.module(owner).setdefault("values", {})[name] = symbol.hint
        return symbol.hint

    def firm_beside(self, one: Any, other: Any) -> tuple[Any, Any]:
        """Two values that a branch is to join: a number of a module beside a plain one is the example's.

        `self.p if self.training else 0.0` so stays as short as it is, and is no branch where both are equal.
        """
        for value, beside in ((one, other), (other, one)):
            symbol = symbol_of(value)
            if symbol is not None and symbol.firmness == 2 and type(beside) in (int, float, bool):
                plain = self.firm(symbol)
                return (plain, other) if value is one else (one, plain)
        return one, other

    def input_symbol(self, node: Node, value: Number) -> Symbol:
        """The symbol of a number that is passed to the program."""
        symbol = Symbol(self._recorder, value, "input", (node,), None)
        self._recorder.region.numbers[symbol] = node
        return symbol

    def read_symbol(self, node: Node, value: Number, key: tuple[Any, ...]) -> Symbol:
        """The symbol of a number that is read once more, by the key of the one before if that can be used here."""
        graphs = {region.graph for region in self._recorder.region.all()}
        while key in self._symbols and self._symbols[key].args[0].graph not in graphs:
            key = (*key, "again")
        symbol = self.input_symbol(node, value)
        symbol.key = key
        self._symbols.setdefault(key, symbol)
        return symbol

    def data_symbol(
        self,
        hint: Number,
        kind: type,
        function: Callable[..., Any] | str,
        args: tuple[Any, ...],
        sample: Number | None = None,
    ) -> Symbol:
        """The symbol of a number that depends on the data of tensors; without a hint, operations run on a sample."""
        symbol = Symbol(self._recorder, hint, function, args, self._recorder.site(), kind)
        if not symbol.has_value:
            symbol.sample = SAMPLES[kind] if sample is None else sample
        return symbol

    def _read(self, hint: Number, kind: type, function: Callable[..., Any] | str, tensor: Any) -> Symbol:
        """The symbol of a number that is read from a tensor now, whatever is written to that later."""
        symbol = self._recorder.writes.read(self.data_symbol(hint, kind, function, (tensor,)), tensor)
        self._recorder.attempts.computed(symbol)
        return symbol

    def of_node(self, node: Node, hint: Number, kind: type, is_sure: bool = False) -> Any:
        """The number that a node gives, which depends on data; `is_sure` says that it is always of this class."""
        symbol = self.data_symbol(hint, kind, "opaque", (node,))
        self._recorder.keep.append(node)  # known by its id
        self._recorder.region.numbers[symbol] = node
        if not (is_sure or has_one_class(node)):
            note_class(self._recorder, node, kind)
        return as_number(symbol)

    def constant_symbol(self, value: Number) -> Symbol:
        """A plain number where torch wants a symbol beside another."""
        return Symbol(self._recorder, value, "constant", (value,), None)

    def computed_symbol(self, function: Callable[..., Any], args: tuple[Symbol, ...]) -> Symbol:
        """The symbol of a function of symbols; of constants alone it is a constant again."""
        answer = _of_natural(function, args)
        if answer is not None:
            return self.constant_symbol(answer)
        hint: Number = UNKNOWN
        if all(arg.has_value for arg in args):
            try:
                hint = function(*[arg.hint for arg in args])
            except (ArithmeticError, ValueError) as error:
                self._recorder.attempts.failed(error, [as_number(arg) for arg in args])
        if hint is UNKNOWN:  # only a run can compute it
            sample = _applied(function, [arg.sample for arg in args])
            key = (function, *(arg.key for arg in args))
            if key not in self._symbols:
                self._symbols[key] = self.data_symbol(UNKNOWN, type(sample), function, args, sample)
                self._recorder.attempts.computed(self._symbols[key])
            return self._symbols[key]
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
            return self._recorder.argument(symbol.args[0])
        node = self._recorder.region.number(symbol)
        if node is None:
            is_read = symbol.function in ("training", "attribute")
            args = () if is_read else tuple(map(self._operand, symbol.args))
            if is_read:
                path = symbol.args[0]
                node = self._recorder.node("get_attr", path, (), {}, path.rpartition(".")[2])
            elif isinstance(symbol.function, str):
                node = self._recorder.node("call_method", symbol.function, args, {}, symbol.function, symbol.name)
            else:
                name = symbol.name or (symbol.site.resolve().target if symbol.site is not None else "")
                node = self._recorder.node("call_function", symbol.function, args, {}, symbol.function.__name__, name)
                if not has_sure_class(symbol):
                    note_class(self._recorder, node, symbol.kind)
            self._recorder.region.numbers[symbol] = node
        if self._recorder.region is not self._recorder.root:
            self._recorder.transforms.note(node, symbol.hint if symbol.has_value else symbol.sample)
        return node

    def _operand(self, value: Any) -> Any:
        if isinstance(value, Symbol):
            return self.node_of_symbol(value)
        return value if type(value) is Node else self._recorder.argument(value)

    def truth(self, value: Any) -> Any:
        """The truth of a value: a symbol for a symbolic one."""
        if is_growing(value):  # a node of its own each time: what is in it changes
            node = self._recorder.node("call_function", bool, (value.node_of(),), {}, "bool")
            return self.of_node(node, value.truth_hint(), bool)
        if isinstance(value, TensorProxy) or type(value) is ObjectProxy:
            hint = UNKNOWN if (truth := self.hint(value)) is None else truth
            return as_number(self._read(hint, bool, bool, value))
        symbol = symbol_of(value)
        if symbol is None:
            return bool(value)
        return value if is_always_bool(symbol) else as_number(self.computed_symbol(bool, (symbol,)))

    def loose_truth(self, value: Any) -> Any:
        """A value of which only the truth counts: what is written is the value itself."""
        if not isinstance(value, TensorProxy):
            symbol = symbol_of(value)
            return value if symbol is not None and symbol.kind is bool else self.truth(value)
        hint = UNKNOWN if (truth := self.hint(value)) is None else truth
        return as_number(self.data_symbol(hint, bool, "truth", (value,)))

    def hint(self, subject: QuestionSubject) -> bool | None:
        """The truth of a value for the examples, None where they cannot tell."""
        if isinstance(subject, TensorProxy) or type(subject) is ObjectProxy:
            with torch._C.DisableTorchFunction():  # the recorder must not see it
                return bool(self._recorder.to_examples(subject)) if self._recorder.examples.is_real else None
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        assert symbol is not None
        return bool(symbol.hint) if symbol.has_value else None

    def negation(self, value: HasTruth) -> Any:
        """`not value` of a symbolic value."""
        if isinstance(value, TensorProxy) or type(value) is ObjectProxy:
            hint = UNKNOWN if (truth := self.hint(value)) is None else not truth
            return as_number(self._read(hint, bool, operator.not_, value))
        symbol = symbol_of(value)
        assert symbol is not None
        return as_number(self.computed_symbol(operator.not_, (symbol,)))

    def is_none(self, tensor: TensorProxy) -> Any:
        """Whether a tensor that may be None is: a symbol, or what the side of a branch that is captured knows."""
        key = ("is_none", id(tensor))
        if key in self._recorder.region.known:
            return self._recorder.region.known[key]
        if key not in self._symbols:
            hint = UNKNOWN if tensor.is_none is None else tensor.is_none
            symbol = self._symbols[key] = self.data_symbol(hint, bool, operator.is_, (tensor, None), False)
            symbol.key = key
            self._recorder.keep.append(tensor)
        return as_number(self._symbols[key])

    def compare(self, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """One comparison, written as the operator that it is."""
        if not (isinstance(left, TensorProxy) or isinstance(right, TensorProxy)) or function not in _COMPARISONS:
            return function(left, right)
        return self._recorder.record("call_function", function, function, (left, right), {})

    def length(self, value: Sized) -> Any:
        """`len(value)` of a symbolic value."""
        if type(value) is ObjectProxy:
            return self._recorder.record("call_function", len, len, (value,), {})
        return as_number(self.size_symbol(value, 0)) if isinstance(value, TensorProxy) else len(value)

    def computed(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A number that a function of Python's computes from numbers, symbolic ones among them."""
        symbols = []
        for value in args:
            if isinstance(value, TensorProxy) or type(value) is ObjectProxy:
                if function in (int, float) and len(args) == 1:
                    return as_number(self._number_of(value, function))
                if not isinstance(value, TensorProxy):
                    return self._recorder.record("call_function", function, function, args, kwargs)
                symbols.append(self.item(value))
            elif (known := symbol_of(value)) is not None:
                symbols.append(known)
            elif isinstance(value, int | float):
                symbols.append(self.constant_symbol(value))
            else:
                return function(*args, **kwargs)
        if kwargs:
            return function(*args, **kwargs)
        if len(symbols) == 1 and (symbols[0].function is function or (function is int and _is_whole(symbols[0]))):
            return as_number(symbols[0])
        return as_number(self.computed_symbol(function, tuple(symbols)))

    def _number_of(self, tensor: TensorProxy | ObjectProxy, kind: type) -> Symbol:
        """`int(tensor)` or `float(tensor)`."""
        with torch._C.DisableTorchFunction():
            example = self._recorder.to_examples(tensor)
            example = example.detach() if isinstance(example, torch.Tensor) else example
            hint = kind(example) if self._recorder.examples.is_real else UNKNOWN
        return self._read(hint, kind, kind, tensor)

    def item(self, tensor: TensorProxy) -> Symbol:
        """The number in a tensor of one element."""
        with torch._C.DisableTorchFunction():
            example = tensor.example
            own = bool if example.dtype is torch.bool else float if example.is_floating_point() else int
            hint = example.item() if self._recorder.examples.is_real else UNKNOWN
        key = ("item", id(tensor), *self._recorder.writes.stamp(tensor))
        if key not in self._symbols:
            self._symbols[key] = self._read(hint, own, "item", tensor)
            self._recorder.keep.append(tensor)
        return self._symbols[key]

    def predicate(self, subject: QuestionSubject) -> Argument:
        """The argument that decides a branch."""
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        if symbol is None:
            return self._recorder.argument(subject)
        if symbol.function is not bool or self._recorder.region.number(symbol) is not None:
            return self.node_of_symbol(symbol)
        truth_of = symbol.args[0]
        return self._recorder.argument(as_number(truth_of) if isinstance(truth_of, Symbol) else truth_of)


def _is_whole(symbol: Symbol) -> bool:
    """Tell whether a number is an int in every call: a size, or made of such; what is passed may be a float, too."""
    if symbol.function in ("size", "numel", len, int):
        return True
    is_kept = symbol.function in _OF_WHOLE and all(isinstance(arg, Symbol) and _is_whole(arg) for arg in symbol.args)
    return is_kept or (symbol.function == "constant" and type(symbol.hint) is int)


_OF_WHOLE = frozenset({
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, operator.pos,
    abs, min, max,
})  # fmt: skip


def _of_natural(function: Callable[..., Number], args: tuple[Symbol, ...]) -> bool | None:
    """What a comparison of a size with a negative number gives whatever the size is; None for anything else."""
    if function not in _COMPARISONS or len(args) != 2:
        return None
    plain = [type(arg.hint) is int and arg.hint < 0 for arg in args if arg.function == "constant"]
    if plain != [True] or not any(map(_is_natural, args)):
        return None
    return bool(function(*[arg.hint if arg.function == "constant" else 0 for arg in args]))


def _is_natural(symbol: Symbol) -> bool:
    """Tell whether a number is a size, or a product or sum of such: it is never negative."""
    if symbol.function == "constant":
        return type(symbol.hint) is int and symbol.hint >= 0
    if symbol.function in ("size", "numel", len):
        return True
    return symbol.function in (operator.add, operator.mul) and all(map(_is_natural, symbol.args))


def _identity(function: Callable[..., Any], args: tuple[Symbol, ...]) -> Symbol | None:
    """`n + 0`, `n * 1` and their like are n."""
    if len(args) != 2:
        return None
    left, right = args
    plain = right.hint if right.function == "constant" else None
    if type(plain) is int and _is_whole(left):
        if function in (operator.add, operator.sub) and plain == 0:
            return left
        if function in (operator.mul, operator.floordiv) and plain == 1:
            return left
    plain = left.hint if left.function == "constant" else None
    is_one = left.key == right.key
    is_same = _is_whole(left) and (is_one or (left.dim is not None and left.dim is right.dim))
    if is_same and (function is operator.sub or function in _COMPARISONS):
        numbers = left.recorder.numbers
        for symbol in () if is_one else args:
            numbers.size_known_by(symbol)
        return numbers.constant_symbol(function(0, 0))
    adds_nothing = (function is operator.add and plain == 0) or (function is operator.mul and plain == 1)
    return right if type(plain) is int and adds_nothing and _is_whole(right) else None


def _applied(function: Callable[..., Any], samples: list[Number]) -> Number:
    """Apply a function to samples, which may not be what it takes: then to others."""
    try:
        return function(*samples)  # type: ignore[no-any-return]
    except (ArithmeticError, ValueError):
        return function(*[SAMPLES[type(sample)] for sample in samples])  # type: ignore[no-any-return]
