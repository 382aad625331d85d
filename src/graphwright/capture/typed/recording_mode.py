"""The mode under which a program runs while it is captured: it sees every call of torch in the capturing thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


class RecordingMode(TorchFunctionMode):
    """Hands each call of torch in this thread to a recorder."""

    def __init__(self, recorder: TypedCapture) -> None:
        super().__init__()
        self._recorder = recorder

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        self._recorder.ambient.asked_for_class(sys._getframe(1))
        return RecordingMode

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        recorder, kwargs = self._recorder, kwargs or {}
        if recorder.examples.quietly is not None:
            return recorder.examples.quietly(lambda: recorder.torch_function(function, args, kwargs))
        return recorder.torch_function(function, args, kwargs)
