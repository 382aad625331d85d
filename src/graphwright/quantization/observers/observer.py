"""What every observer has: it sees batches of values, counts them, and refuses those that no grid can cover."""

from __future__ import annotations

import abc

import torch
from torch import Tensor, nn

from graphwright.errors import QuantizationError
from graphwright.quantization.schemes import Scheme


class Observer(nn.Module, abc.ABC):
    """Sees values, and says between which bounds their grid is to lie.

    name: of what is observed, for errors. `count` is the number of values seen, `batches` how often; `lowest` and
    `highest` are their bounds. All of it is buffers, so that observers are copied, moved and saved like other modules.
    """

    count: Tensor
    batches: Tensor
    lowest: Tensor
    highest: Tensor
    sum_of_squares: Tensor

    def __init__(self, name: str = "a value") -> None:
        super().__init__()
        self.name = name
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("lowest", torch.zeros(()))
        self.register_buffer("highest", torch.zeros(()))
        self.register_buffer("sum_of_squares", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """See a tensor, and give it back."""
        self.observe(x)
        return x

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """See one batch of values, of any shape; one without values counts as a batch, and changes nothing else.

        Raises QuantizationError for values that are no real floating-point numbers, for NaN and for inf.
        """
        batch = int(self.batches)
        if not x.is_floating_point():
            raise QuantizationError(
                f"{self.name} has values of {x.dtype} in batch {batch}", fix="observe floating-point values only"
            )
        values = x.detach().to(torch.float32)
        self.batches += 1
        if not values.numel():
            return
        low, high = torch.aminmax(values)
        if not (bool(torch.isfinite(low)) and bool(torch.isfinite(high))):
            self._refuse(x, batch)
        self._see(values, low.to(self.lowest.device), high.to(self.lowest.device))
        is_first = not int(self.count)
        self.lowest.copy_(low if is_first else torch.minimum(self.lowest, low.to(self.lowest.device)))
        self.highest.copy_(high if is_first else torch.maximum(self.highest, high.to(self.highest.device)))
        self.sum_of_squares += _sum_of_squares(values, max(-float(low), float(high)))
        self.count += values.numel()

    def _refuse(self, x: Tensor, batch: int) -> None:
        found = "NaN" if bool(torch.isnan(x).any()) else "inf"
        if not bool(torch.isfinite(x).logical_not().any()):
            found = f"values beyond those of float32, up to {float(x.abs().max()):g},"
        raise QuantizationError(
            f"{self.name} has {found} in batch {batch}",
            fix="look for what makes it in the model or in that batch (batches are counted from 0), "
            "or leave this layer in float",
        )

    @abc.abstractmethod
    def _see(self, x: Tensor, low: Tensor, high: Tensor) -> None:
        """Learn from a batch of finite float32 values between two bounds; `count` is still that before it."""

    @property
    def mean_square(self) -> float:
        """The mean of the squares of all values seen, that is the power of the signal; 0 without values."""
        return float(self.sum_of_squares) / max(int(self.count), 1)

    def range(self, scheme: Scheme) -> tuple[Tensor, Tensor]:
        """The bounds that a grid is to cover, low <= 0 <= high, one float32 number each.

        Raises QuantizationError where no value was seen.
        """
        if not int(self.count):
            seen = f"{int(self.batches)} batches without values" if int(self.batches) else "no batch"
            raise QuantizationError(
                f"{self.name} has no range: its observer saw {seen}",
                fix="calibrate with batches that reach it, or quantize it dynamically: dynamic_int8()",
            )
        low, high = self._range(scheme)
        return low.float().clamp(max=0.0), high.float().clamp(min=0.0)

    @abc.abstractmethod
    def _range(self, scheme: Scheme) -> tuple[Tensor, Tensor]:
        """The bounds, where values were seen; the base makes them hold 0."""

    def extra_repr(self) -> str:
        return f"{self.name!r}, count={int(self.count)}"


def _sum_of_squares(x: Tensor, largest: float) -> float:
    if not largest:
        return 0.0
    flat = x.reshape(-1)
    if 1e-12 < largest < 1e12:  # squares of others leave float32
        return float(torch.dot(flat, flat))
    return float((flat.double() ** 2).sum())
