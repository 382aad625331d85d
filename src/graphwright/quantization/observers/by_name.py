"""The observer that a scheme names."""

from __future__ import annotations

from collections.abc import Callable

from graphwright.quantization.observers.entropy import EntropyObserver
from graphwright.quantization.observers.histogram import HistogramObserver
from graphwright.quantization.observers.min_max import MinMaxObserver, MovingAverageObserver
from graphwright.quantization.observers.observer import Observer
from graphwright.quantization.observers.percentile import PercentileObserver
from graphwright.quantization.schemes import Scheme

_OBSERVERS: dict[str, Callable[[str], Observer]] = {
    "minmax": MinMaxObserver,
    "moving_average": MovingAverageObserver,
    "histogram": HistogramObserver,
    "percentile": PercentileObserver,
    "entropy": EntropyObserver,
}


def observer_of(scheme: Scheme, name: str = "a value") -> Observer:
    """Make the observer that a scheme names, for what is called `name` in errors.

    >>> from graphwright.quantization import Scheme
    >>> observer_of(Scheme(observer="minmax"), "fc1.input")
    MinMaxObserver('fc1.input', count=0)
    """
    return _OBSERVERS[scheme.observer](name)
