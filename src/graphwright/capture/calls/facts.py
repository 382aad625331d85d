"""Facts of tensors that the program asks for: where they are kept, and how. The example answers, under a guard."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.dtype_questions import alike_for
from graphwright.capture.conversion.conversion import original_code
from graphwright.capture.proxies.calls_as_written import AS_MANY_AS_DIMENSIONS
from graphwright.capture.proxies.tensor_names import row_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import ATOMS, Node, Target
from graphwright.runtime import expect
from graphwright.source import Use, is_ours, user_frame, uses_of

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


def fact(
    recorder: TypedCapture, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
) -> Any:
    """Give a fact of tensors as the example has it, and check it where the program asks: once for the same question.

    Raises CaptureError where nobody has looked at what is asked, and it is no plain fact.
    """
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    name = args[1] if target is getattr else name
    if row_of(name) is None and name not in _FUNCTIONS:
        recorder.questions.refusals.refuse_here(
            f"the program asks a tensor for {name!r}, of which it is not known whether it changes between calls",
            "make the function that asks a leaf: leaf_functions=[...]",
        )
        return value
    key = ("fact", name, *map(id, args), *map(id, kwargs.values()))
    known = recorder.region.attributes
    if not any(key in region.attributes for region in recorder.region.all()):
        given = tuple([recorder.argument(arg) for arg in args])
        named = {key: recorder.argument(arg) for key, arg in kwargs.items()}
        node = recorder.node(op, target, given, named, name.strip("_"))
        known[key] = recorder.node("call_function", expect, (node, value, recorder.where() or ""), {}, name="guard")
        recorder.keep.extend((*args, *kwargs.values()))  # known by their ids
    return value


def ask_dtype(recorder: TypedCapture, tensor: torch.Tensor, name: str) -> None:
    """The program asks for what follows from the dtype of a tensor, by an attribute or method."""
    take_dtype(recorder, tensor, alike_for(name, dtype_of(tensor)), recorder.where() or "")


def take_dtype(recorder: TypedCapture, tensor: torch.Tensor, alike: frozenset[torch.dtype] | None, at: str) -> None:
    """Take for granted that a tensor has the dtype that it has, or another that is as good; None: no other is."""
    if isinstance(tensor, TensorProxy):
        recorder.ledger.tensor(tensor, alike or "dtype", at)
    else:
        recorder.tensors.take_fact(tensor, alike or "dtype", at)


def dtype_of(tensor: torch.Tensor) -> torch.dtype:
    """The dtype of a tensor, for which the program does not ask."""
    with torch._C.DisableTorchFunction():
        return tensor.example.dtype if isinstance(tensor, TensorProxy) else tensor.dtype


def ask_rank(recorder: TypedCapture, tensor: TensorProxy) -> None:
    """The program asks how many dimensions a tensor has."""
    recorder.ledger.tensor(tensor, "rank", recorder.where() or "")


def note_count(recorder: TypedCapture, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Several tensors are given: of `torch.where(x)` and its like one for each dimension, which says the rank."""
    if name in AS_MANY_AS_DIMENSIONS and "dim" not in kwargs and args and isinstance(args[0], TensorProxy):
        ask_rank(recorder, args[0])


def expect_structure(recorder: TypedCapture, node: Node, value: object) -> bool:
    """Guard the keys of a dict that a node gives, and how many items it gives; tell whether there are such items."""
    if type(value) in (list, tuple, torch.Size):
        found = recorder.node("call_function", len, (node,), {}, "len")
        wanted: Any = len(value)  # type: ignore[arg-type]
    elif isinstance(value, dict) and all(type(key) in ATOMS for key in value):
        found = recorder.node("call_function", tuple, (node,), {}, "keys")
        wanted = tuple(value)
    else:
        return False
    recorder.node("call_function", expect, (found, wanted, recorder.where() or ""), {}, name="guard")
    return type(wanted) is int


def ask_shape(recorder: TypedCapture, tensor: TensorProxy) -> None:
    """The program reads the shape of a tensor: that says its rank, unless single sizes are taken of it, from the left.

    `x.shape[1]` means the same for any rank that has it, `x.shape[-1]`, `a, b = x.shape` and `x.view(x.shape)` do not.
    """
    frame = reader()
    uses = () if frame is None else uses_of(frame.f_code, frame.f_lasti)
    rank = tensor.example.dim()
    if not uses or any(use.index is None or not 0 <= use.index < rank for use in uses):
        ask_rank(recorder, tensor)


def is_only_handed_on(frame: FrameType | None) -> bool:
    """Tell whether all that a function does with what it reads, or who it returns that to, is to give it to calls."""
    uses: tuple[Use, ...] = () if frame is None else uses_of(frame.f_code, frame.f_lasti)
    while frame is not None and uses and all(use.is_returned for use in uses):
        frame = program_frame(frame.f_back)
        uses = () if frame is None else uses_of(frame.f_code, frame.f_lasti)
    return bool(uses) and all(use.argument is not None for use in uses)


def reader() -> FrameType | None:
    """The frame of the program that reads an attribute of a tensor; None where torch's own code reads it."""
    return program_frame(sys._getframe(1))


def program_frame(frame: FrameType | None, between: tuple[CodeType | None, ...] = ()) -> FrameType | None:
    """The nearest frame that is none of ours, nor runs what may stand between, if that is one of the program."""
    while frame is not None and (frame.f_code in between or is_ours(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame if frame is user_frame(frame) else None


_FUNCTIONS = frozenset({"result_type", "can_cast"})  # which ask what no method does


def whole_frame(frame: FrameType) -> FrameType:
    """The frame of the function that runs in this one: converted functions run in parts of their own."""
    code, around = frame.f_code, frame
    while original_code(around.f_code) is None:
        outer = program_frame(around.f_back)
        if outer is None or outer.f_code.co_name != code.co_name or outer.f_code.co_filename != code.co_filename:
            break
        around = outer
    return around
