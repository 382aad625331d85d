"""What stands for attributes that the program must not read before it writes them."""

from __future__ import annotations

from typing import Any

from graphwright.capture.state.running import refusal
from graphwright.errors import CaptureError


class Unreadable:
    """Stands for an attribute whose value goes with no kind; any use of it is an error."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise refusal(
            CaptureError(
                f"the program reads {object.__getattribute__(self, '_name')} and leaves a value of another kind in it",
                fix="keep one kind of value there: a tensor of one dtype and rank, a number, or None and such a value",
            )
        )

    __getattr__ = __call__ = __getitem__ = __iter__ = __bool__ = __len__ = __torch_function__ = __contains__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __matmul__ = __rmatmul__ = __setitem__ = _refuse
    __or__ = __ror__ = __and__ = __rand__ = __xor__ = __rxor__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse
    __hash__ = None  # type: ignore[assignment]
