"""What is summed up of a layer's inputs: enough to tell the mean and the mean square of any error of its weight."""

from __future__ import annotations

import torch
from torch import Tensor

from graphwright.errors import QuantizationError

__all__ = ["InputMoments"]


class InputMoments:
    """The mean of a layer's inputs, and the mean of their products, over batches of rows.

    Rows are (n, in), or (groups, n, in) of a convolution in groups, as of `conv_rows`.

    >>> moments = InputMoments("fc1")
    >>> moments.observe(torch.tensor([[1.0, 2.0]]))
    >>> moments.observe(torch.tensor([[3.0, 0.0]]))
    >>> moments.mean, moments.hessian
    (tensor([2., 1.]), tensor([[5., 1.],
            [1., 2.]]))
    """

    def __init__(self, name: str = "a layer") -> None:
        self.name = name
        self.count = 0
        self._sum: Tensor | None = None
        self._products: Tensor | None = None

    @torch.no_grad()
    def observe(self, rows: Tensor) -> None:
        """Add the rows of a batch."""
        rows = rows.detach().float()
        total, products = rows.sum(-2), rows.mT @ rows
        if self._sum is None or self._products is None:
            self._sum, self._products = total, products
        else:
            self._sum += total
            self._products += products
        self.count += rows.shape[-2]

    @property
    def mean(self) -> Tensor:
        """Of each input: (in,) or (groups, in)."""
        return self._seen(self._sum) / self.count

    @property
    def hessian(self) -> Tensor:
        """The mean of the products of each two inputs, (in, in) or (groups, in, in).

        It is half the second derivative of the mean squared error of an output by the weights.
        """
        return self._seen(self._products) / self.count

    def _seen(self, value: Tensor | None) -> Tensor:
        if value is None or not self.count:
            raise QuantizationError(
                f"nothing is known of the inputs of {self.name}", fix="calibrate with batches that reach it"
            )
        return value
