"""The range of all values, and the range of an average batch."""

from __future__ import annotations

import torch
from torch import Tensor

from graphwright.errors import QuantizationError
from graphwright.quantization.observers.observer import Observer
from graphwright.quantization.schemes import Scheme


class MinMaxObserver(Observer):
    """The range from the least to the largest value seen.

    >>> from graphwright.quantization import Scheme
    >>> observer = MinMaxObserver("fc1.input")
    >>> for batch in ([1.0, 4.0], [-2.0, 0.5]):
    ...     observer.observe(torch.tensor(batch))
    >>> observer.range(Scheme())
    (tensor(-2.), tensor(4.))
    """

    def _see(self, x: Tensor, low: Tensor, high: Tensor) -> None:
        pass

    def _range(self, scheme: Scheme) -> tuple[Tensor, Tensor]:
        return self.lowest, self.highest


class MovingAverageObserver(Observer):
    """The range of the batches so far, each weighing less than the next: the range of training.

    constant: what the newest batch weighs, between 0 and 1; the first weighs 1.

    Source: Jacob et al., arXiv:1712.05877, section 3.1.

    >>> from graphwright.quantization import Scheme
    >>> observer = MovingAverageObserver("fc1.input", constant=0.5)
    >>> for batch in ([0.0, 4.0], [0.0, 2.0]):
    ...     observer.observe(torch.tensor(batch))
    >>> observer.range(Scheme())
    (tensor(0.), tensor(3.))
    """

    average_low: Tensor
    average_high: Tensor

    def __init__(self, name: str = "a value", constant: float = 0.01) -> None:
        super().__init__(name)
        if not 0.0 < constant <= 1.0:
            raise QuantizationError(f"a moving average of constant {constant!r}", fix="give a number in (0, 1]")
        self.constant = constant
        self.register_buffer("average_low", torch.zeros(()))
        self.register_buffer("average_high", torch.zeros(()))

    def _see(self, x: Tensor, low: Tensor, high: Tensor) -> None:
        weight = self.constant if int(self.count) else 1.0
        self.average_low.lerp_(low, weight)
        self.average_high.lerp_(high, weight)

    def _range(self, scheme: Scheme) -> tuple[Tensor, Tensor]:
        return self.average_low, self.average_high
