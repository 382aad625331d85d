"""What is summed up of a layer's inputs: enough to tell the mean square of any error of its weight."""

from __future__ import annotations

import torch
from torch import Tensor

from graphwright.errors import QuantizationError

__all__ = ["InputMoments"]


class InputMoments:
    """The mean of the products of each two inputs of a layer, over batches of rows.

    Rows are (n, in), or (groups, n, in) of a convolution in groups, as of `conv_rows`.

    >>> moments = InputMoments("fc1")
    >>> moments.observe(torch.tensor([[1.0, 2.0]]))
    >>> moments.observe(torch.tensor([[3.0, 0.0]]))
    >>> moments.hessian
    tensor([[5., 1.],
            [1., 2.]])
    """

    def __init__(self, name: str = "a layer") -> None:
        self.name = name
        self.count = 0
        self._products: Tensor | None = None

    @torch.no_grad()
    def observe(self, rows: Tensor) -> None:
        """Add the rows of a batch."""
        rows = rows.detach().float()
        products = rows.mT @ rows
        self._products = products if self._products is None else self._products.add_(products)
        self.count += rows.shape[-2]

    @property
    def hessian(self) -> Tensor:
        """(in, in) or (groups, in, in): half the second derivative of an output's mean squared error by its weights.

        Raises QuantizationError where there was no row.
        """
        if self._products is None or not self.count:
            raise QuantizationError(
                f"nothing is known of the inputs of {self.name}", fix="calibrate with batches that reach it"
            )
        return self._products / self.count
