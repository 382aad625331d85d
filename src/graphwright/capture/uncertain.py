"""Tensors that are something else on some ways through a program: None, or a number."""

from __future__ import annotations

from graphwright.capture.running import refusal
from graphwright.capture.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError

__all__ = ["asked_for_class", "fork_for"]


def asked_for_class(mixed: TensorProxy) -> BaseException:
    """What to raise where the program asks what a value is that is a number on some ways and a tensor on others."""
    if mixed.mixed_at is not None:
        return fork_for(mixed, "is asked for its class")
    return refusal(
        CaptureError(
            "the program asks for the class of a value that is a number on some ways and a tensor on others",
            at=mixed.recorder.where(),
            fix="start with a tensor",
        )
    )


def fork_for(found: TensorProxy, what: str) -> BaseException:
    """Have the branch fork that one side leaves with a tensor, the other with None or a bool."""
    other, place = ("None", found.optional) if found.mixed_at is None else ("a bool", found.mixed_at)
    recorder = found.recorder
    return recorder.questions.restart(recorder.plan.change(place, "fork", f"{other} or a tensor {what}"))
