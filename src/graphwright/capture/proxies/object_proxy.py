"""Values that leave torch: lists of numbers, NumPy arrays, and what libraries compute from them.

`x.tolist()` gives numbers of the program, as many as a run has. What `x.numpy()`
gives, and whatever is computed from that, is an `ObjectProxy`: attributes, operators and calls become nodes, run on the
example's real data to learn what comes out; a tensor that comes back from there is a tensor of the program again.
"""

from __future__ import annotations

import copy
import opcode
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy

from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.proxies.run_text import RunText
from graphwright.capture.state.symbols import is_symbolic
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.source import user_frame
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


_READS = opcode.opmap["LOAD_ATTR"]


class ObjectProxy:
    """An object outside of torch that the program computes; to isinstance it is what it is for the example."""

    def __init__(self, recorder: TypedCapture, example: Any, node: Node) -> None:
        object.__setattr__(self, "_gw", (recorder, example, node))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        recorder, example, _ = _parts(self)
        if isinstance(example, BaseException) and recorder.is_running:
            frame = sys._getframe(1)
            if frame.f_code.co_code[frame.f_lasti] == _READS and user_frame(frame) is frame:
                return recorder.attempts.class_of(self)
        return type(example)

    def __getattr__(self, name: str) -> Any:
        recorder, example, _ = _parts(self)
        if name.startswith("__") and name.endswith("__"):  # a protocol that C code tries
            raise AttributeError(name)
        if isinstance(example, BaseException):
            return recorder.attempts.attribute(self, name)
        if callable(getattr(example, name)):
            return ObjectMethod(self, name)
        return recorder.record("call_function", getattr, getattr, (self, name), {})

    def __setattr__(self, name: str, value: Any) -> None:
        _parts(self)[0].record("call_function", setattr, setattr, (self, name, value), {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder, example, _ = _parts(self)
        return recorder.record("call_method", "__call__", type(example).__call__, (self, *args), kwargs)

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return _parts(self)[0].record("call_function", function, function, args, kwargs)

    def __array_ufunc__(self, function: Callable[..., Any], method: str, *args: Any, **kwargs: Any) -> Any:
        recorder = _parts(self)[0]
        if method == "__call__":
            return recorder.record("call_function", function, function, args, kwargs)
        return recorder.record("call_method", method, getattr(numpy.ufunc, method), (function, *args), kwargs)

    def __copy__(self) -> Any:
        return _parts(self)[0].record("call_function", copy.copy, copy.copy, (self,), {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _parts(self)[0].record("call_function", copy.deepcopy, copy.deepcopy, (self,), {})

    def __bool__(self) -> bool:
        return bool(_parts(self)[0].questions.decide(self, bool))

    def _refuse(self, what: str) -> Any:
        return _parts(self)[0].questions.refusals.refuse_data(self, what)

    def __len__(self) -> int:
        return int(self._refuse("len"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._refuse("iterated"))

    def __int__(self) -> int:
        return int(self._refuse("int"))

    def __float__(self) -> float:
        return float(self._refuse("float"))

    def __index__(self) -> int:
        return int(self._refuse("index"))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self._refuse("array")

    def __repr__(self) -> str:
        return f"ObjectProxy({type(_parts(self)[1]).__name__})"

    def __str__(self) -> str:
        recorder, example, node = _parts(self)
        if recorder.questions.messages.is_in_message():
            return repr(self)
        if isinstance(example, BaseException | str):
            recorder.attempts.refuse_text(node)
        return str(self._refuse("as text"))

    __hash__ = None  # type: ignore[assignment]


def _parts(value: ObjectProxy) -> tuple[TypedCapture, Any, Node]:
    return object.__getattribute__(value, "_gw")  # type: ignore[no-any-return]


_CHANGES = ("sort", "put", "resize")  # what they are called on; tensors have others of these names


class ObjectMethod:
    """A method of an object of the program."""

    def __init__(self, owner: ObjectProxy, name: str) -> None:
        self._owner, self._name = owner, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder, example, _ = _parts(self._owner)
        method = getattr(type(example), self._name)
        if self._name == "shuffle" and not holds_objects(args):
            return recorder.questions.refusals.refuse_here(
                "a generator that the program is given shuffles a list of its own: it has another order in each call",
                "draw an order: for i in generator.sample(range(n), n)",
                "argument",
            )
        if self._name in _CHANGES:
            return recorder.record("call_function", method, method, (self._owner, *args), kwargs)
        return recorder.record("call_method", self._name, method, (self._owner, *args), kwargs)


def _define_operators() -> None:
    def define(name: str, function: Callable[..., Any], is_reflected: bool = False) -> None:
        def method(self: ObjectProxy, *others: Any) -> Any:
            operands = (*others, self) if is_reflected else (self, *others)
            return _parts(self)[0].record("call_function", function, function, operands, {})

        setattr(ObjectProxy, name, method)

    def define_in_place(name: str, function: Callable[..., Any]) -> None:
        in_place = getattr(operator, f"i{name}")

        def method(self: ObjectProxy, other: Any) -> Any:
            recorder, example, _ = _parts(self)
            called = in_place if isinstance(example, numpy.ndarray) else function
            return recorder.record("call_function", called, called, (self, other), {})

        setattr(ObjectProxy, f"__i{name}__", method)

    define("__divmod__", divmod)
    define("__rdivmod__", divmod, is_reflected=True)
    names = "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift"
    bitwise = ("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)
    for name, function in (*[(name, getattr(operator, name)) for name in names], *bitwise):
        define(f"__{name}__", function)
        define(f"__r{name}__", function, is_reflected=True)
        define_in_place(name, function)
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert", "abs", "getitem", "setitem", "delitem"):
        define(f"__{name}__", getattr(operator, name))


_define_operators()


def kind_of(value: Any) -> type:
    """`type(value)`, as the program is to see it."""
    if isinstance(value, TensorProxy):
        return value._stands_for
    if is_growing(value):
        return value.stands_for()  # type: ignore[no-any-return]
    return value.__class__ if is_symbolic(value) or type(value) in (ObjectProxy, RunText) else type(value)


def object_example(value: ObjectProxy) -> Any:
    """What an object is for the example."""
    return _parts(value)[1]


def object_node(value: ObjectProxy) -> Node:
    """The node that computes an object."""
    return _parts(value)[2]


def object_recorder(value: ObjectProxy) -> TypedCapture:
    """The capture that an object is a value of."""
    return _parts(value)[0]


def holds_objects(*values: Any) -> bool:
    """Tell whether there are objects of the program among values."""
    return any(type(leaf) is ObjectProxy for leaf in leaves(values))


def is_foreign(function: Callable[..., Any]) -> bool:
    """Tell whether a function takes arrays, which a tensor of the program is none of."""
    home = getattr(function, "__module__", None) or type(function).__module__
    return str(home).partition(".")[0] == "numpy"


def text_of_error(error: Any) -> Any:
    """`str(error)`, where that is a text of the run; None of all else."""
    if type(error) is ObjectProxy:
        error = object_example(error)  # whose args are read, not those of the run
    if not isinstance(error, BaseException) or len(error.args) != 1:
        return None
    if type(error.args[0]) is not RunText and not isinstance(error.args[0], Proxy):
        return None
    return error.args[0] if type(error).__str__ is BaseException.__str__ else None
