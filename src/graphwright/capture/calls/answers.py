"""What the program asks of a tensor: its sizes, what kind of tensor it is, its data."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.facts import ask_dtype, ask_rank, ask_shape, fact, is_only_handed_on, reader
from graphwright.capture.calls.gradients import is_read_at_the_call, no_gradient, read_at_the_call
from graphwright.capture.containers.rows import listed
from graphwright.capture.numbers.classes import take_for_tensor
from graphwright.capture.proxies.tensor_names import Row, row_of
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.running import stopping
from graphwright.capture.state.symbols import UNKNOWN, as_number
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Target
from graphwright.source import place_of, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


def asked(
    recorder: TypedCapture,
    name: str,
    function: Callable[..., Any],
    op: str,
    target: Target,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Answer a function that gives no tensor: from what kind of tensor it is, or with a bool of the data."""
    values = [*args, *kwargs.values()]
    if values and type(values[0]) is TensorProxy and values[0].is_mixed:
        take_for_tensor(recorder, values[0], may_be_asked=row_of(name) is not Row.TRUTH)
    if is_read_at_the_call(name):
        return read_at_the_call(recorder, name, values[0])
    if name == "numel":
        return measure(recorder, values[0], name, (), {})
    if name in ("stride", "storage_offset") and isinstance(values[0], TensorProxy):
        return _place_in_memory(recorder, name, args, kwargs)
    if row_of(name) is not Row.TRUTH:
        value = function(*recorder.to_examples(args), **recorder.to_examples(kwargs))
        if not any(isinstance(given, TensorProxy) for given in values):
            return value if reader() is None else _told_of_held(recorder, name, op, target, args, kwargs, value)
        if row_of(name) is Row.FACT:
            return fact(recorder, op, target, args, kwargs, value)
        for given in values:
            if isinstance(given, TensorProxy):
                ask_dtype(recorder, given, name)
        return value
    if recorder.examples.is_real:
        return recorder.record(op, target, function, args, kwargs)
    recorder.calls.recorded += 1
    made = tuple([recorder.argument(arg) for arg in args]), {key: recorder.argument(arg) for key, arg in kwargs.items()}
    return recorder.numbers.of_node(recorder.node(op, target, *made), UNKNOWN, bool)


def converted_like(recorder: TypedCapture, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Answer what `module.to(x)` converts its tensors to: the device and dtype of `x`."""
    rest = torch._C._nn._parse_to(*recorder.to_examples(args), **recorder.to_examples(kwargs))[2:]
    tensor = next(each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor))
    return read_property(recorder, "device", (tensor,)), read_property(recorder, "dtype", (tensor,)), *rest


def _told_of_held(
    recorder: TypedCapture,
    name: str,
    op: str,
    target: Target,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    value: Any,
) -> Any:
    """Answer what the program asks of a tensor of its modules; it is taken for granted, or guarded."""
    of = "dtype" if row_of(name) is Row.DTYPE else "device" if name in _OF_DEVICES else None
    held = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
    if of == "dtype":
        for each in held:
            ask_dtype(recorder, each, name)
    elif of is not None:
        for each in held:
            recorder.tensors.take_fact(each, of)
    elif all(recorder.tensors.path(each) is not None for each in held):
        return fact(recorder, op, target, args, kwargs, value)
    return value


_OF_DEVICES = frozenset({"get_device", *[f"is_{kind}" for kind in ("cpu", "cuda", "meta", "mps", "ipu", "xla", "xpu")]})


def _place_in_memory(recorder: TypedCapture, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer strides and offsets, which sizes decide, with numbers of the program."""
    try:
        value = getattr(torch.Tensor, name)(*recorder.to_examples(args), **recorder.to_examples(kwargs))
    except IndexError:
        ask_rank(recorder, args[0])
        raise
    made = tuple([recorder.argument(arg) for arg in args]), {key: recorder.argument(arg) for key, arg in kwargs.items()}
    node, number = recorder.node("call_method", name, *made), recorder.numbers.input_symbol
    if type(value) is int:
        return as_number(number(node, value))
    ask_rank(recorder, args[0])
    return tuple([as_number(number(recorder.item_node(node, i, ""), item)) for i, item in enumerate(value)])


def read_property(recorder: TypedCapture, name: str, args: tuple[Any, ...]) -> Any:
    """Answer the read of an attribute of a tensor, or record that one is set."""
    owner = args[0]
    if len(args) == 1 and is_read_at_the_call(name):
        return read_at_the_call(recorder, name, owner)
    if len(args) > 1 or not isinstance(owner, TensorProxy):  # a setter, or a tensor of the module
        example = recorder.examples.of(owner) if not isinstance(owner, TensorProxy) else owner.example
        if len(args) > 1:
            if name == "requires_grad":  # which a file may say, too
                recorder.record("call_method", "requires_grad_", torch.Tensor.requires_grad_, (owner, args[1]), {})
            else:
                recorder.record("call_function", setattr, setattr, (owner, name, args[1]), {})
            return None
        if name in ("data", "T", "mT", "H", "mH", "real", "imag", "grad"):
            found = recorder.record("call_function", getattr, getattr, (owner, name), {})
            return no_gradient(recorder, owner) if name == "grad" and found is None else found
        if name == "dtype":
            recorder.dtypes.read(owner, reader(), recorder.where() or "")
        if name in ("shape", "ndim"):
            _ask_held(recorder, owner)
        if name == "device" and reader() is not None:
            return recorder.tensors.device_of(owner, is_only_handed_on(reader()))
        if row_of(name) in (Row.DTYPE, Row.FACT) and name not in ("dtype", "device") and reader() is not None:
            return _told_of_held(recorder, name, "call_function", getattr, (owner, name), {}, getattr(example, name))
        return getattr(example, name) if name != "device" else owner.device
    if owner.is_mixed:
        take_for_tensor(recorder, owner, may_be_asked=False)
    if name == "shape":
        return measure(recorder, owner, "size", (), {})
    if name == "ndim":
        return measure(recorder, owner, "dim", (), {})
    if name == "device":
        if not is_only_handed_on(reader()):
            recorder.ledger.tensor(owner, "device", recorder.where() or "")
        return recorder.tensors.device_of(owner)
    with torch._C.DisableTorchFunction():
        value = getattr(owner.example, name)
    if isinstance(value, torch.Tensor):
        return recorder.record("call_function", getattr, getattr, (owner, name), {})
    if name == "dtype":
        recorder.dtypes.read(owner, reader(), recorder.where() or "")
    elif row_of(name) is Row.DTYPE:
        ask_dtype(recorder, owner, name)
    elif row_of(name) is not Row.GRADIENT:
        fact(recorder, "call_function", getattr, (owner, name), {}, value)
    return value


def measure(
    recorder: TypedCapture, owner: torch.Tensor, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Answer a question for sizes with symbols, one for rank with a number that is then guarded."""
    if not isinstance(owner, TensorProxy):
        _ask_held(recorder, owner, name == "__len__")  # torch has a function of Python's around that one
        with torch._C.DisableTorchFunction():
            return getattr(torch.Tensor, name)(owner, *args, **kwargs)
    if owner.is_mixed:
        take_for_tensor(recorder, owner, may_be_asked=False)
    rank = owner.example.dim()
    if name in ("dim", "ndimension"):
        ask_rank(recorder, owner)
        return rank
    if name == "__len__":
        return recorder.questions.answer(recorder.numbers.size_symbol(owner, 0))
    if name in ("numel", "nelement"):
        return as_number(recorder.numbers.count_symbol(owner))
    dim = args[0] if args else kwargs.get("dim")
    if dim is not None:
        if operator.index(dim) < 0:
            ask_rank(recorder, owner)
        symbol = recorder.numbers.size_symbol(owner, operator.index(dim))
        frame = user_frame(sys._getframe(1))
        if frame is not None and not symbol.name:
            symbol.name = place_of(frame.f_code, frame.f_lasti).target
        return as_number(symbol)
    ask_shape(recorder, owner)
    names = recorder.unpacked_names()
    sizes = [recorder.numbers.size_symbol(owner, i) for i in range(rank)]
    if len(names) == rank:
        for symbol, known in zip(sizes, names, strict=True):
            symbol.name = symbol.name or known
    return torch.Size(map(as_number, sizes))


def _ask_held(recorder: TypedCapture, tensor: torch.Tensor, is_of_program: bool = False) -> None:
    """The shape of a tensor that the program has is asked for, if not by torch's own code."""
    recorder.writes.held_shape(tensor)
    if is_of_program or reader() is not None:
        recorder.tensors.take_fact(tensor, "shape")


def data_of(recorder: TypedCapture, name: str, owner: TensorProxy, answer: Callable[[], Any]) -> Any:
    """Answer a method that wants the data of a tensor as a Python value."""
    if not name.startswith("__") and name != "numpy":
        recorder.calls.recorded += 1
    if name == "item" and owner.example.is_complex():
        if not recorder.examples.is_real:
            raise stopping(NeedsRealValues("a complex number is read from a tensor"))
        return recorder.record("call_method", name, torch.Tensor.item, (owner,), {}, gives_data=True)
    if name == "item":
        return as_number(recorder.numbers.item(owner))
    if name in ("__bool__", "is_nonzero"):
        return recorder.questions.decide(owner, bool)
    if name in ("__int__", "__index__", "__float__"):
        return recorder.questions.decide(recorder.numbers.item(owner), float if name == "__float__" else int)
    if name == "tolist":
        return listed(recorder, owner)
    if name == "numpy" and recorder.examples.is_real:
        return recorder.record("call_method", name, getattr(torch.Tensor, name), (owner,), {})
    if name == "numpy":
        raise stopping(NeedsRealValues("an array is made of the data of a tensor"))
    if name in ("__contains__", "__complex__"):
        recorder.questions.staging.stage(user_frame(sys._getframe(1)))
    if name == "__array__":  # a function of NumPy's asks: its caller passes it on through the runtime
        staging = recorder.questions.staging
        staging.convert_all(staging.convertible(user_frame(sys._getframe(1))))
    return recorder.questions.refusals.refuse_data(owner, name, answer)
