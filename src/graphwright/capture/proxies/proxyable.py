"""Classes whose construction is recorded."""

from __future__ import annotations

from typing import Any

from graphwright.capture.proxies.proxy import find_tracer


class ProxyableClassMeta(type):
    """Metaclass of classes that are made with proxies: the construction becomes a node that calls the class.

    Instances made without proxies during a capture are constants of the graph.

    >>> import graphwright
    >>> class Pair(metaclass=ProxyableClassMeta):
    ...     def __init__(self, left, right):
    ...         self.left, self.right = left, right
    >>> gm = graphwright.symbolic_trace(lambda x: Pair(x, 2 * x))
    >>> gm(3).right
    6
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        tracer = find_tracer(args, kwargs)
        if tracer is not None:
            return tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def is_proxyable(value: Any) -> bool:
    """Tell whether a value is of a class whose construction is recorded."""
    return isinstance(type(value), ProxyableClassMeta)
