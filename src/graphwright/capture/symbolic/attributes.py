"""The tables of parameters and buffers of shells, during symbolic tracing: what is read of them is recorded."""

from __future__ import annotations

from typing import Any, Protocol


class _Reader(Protocol):
    """What a table asks of the tracer."""

    _shells: Any
    parameter_proxy_cache: dict[str, Any]

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any: ...


class Watched(dict):  # type: ignore[type-arg]
    """A table of a shell, `_parameters` mostly: reading one by name goes through the tracer, iterating does not."""

    def __init__(self, tracer: _Reader, table: dict[str, Any]) -> None:
        super().__init__(table)
        self._tracer = tracer

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        tracer = self._tracer
        if value is None or tracer._shells is None:
            return value
        return tracer.getattr(name, value, tracer.parameter_proxy_cache)
