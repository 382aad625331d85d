"""What is summed up of a layer's inputs: enough to tell the mean square of any error of its weight."""

from __future__ import annotations

import torch
from torch import Tensor

from graphwright.errors import QuantizationError


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
        self._counts = [0, 0]  # of the rows of the first halves of batches, and of the second
        self._products: list[Tensor] = []

    @property
    def count(self) -> int:
        """How many rows there were."""
        return sum(self._counts)

    @torch.no_grad()
    def observe(self, rows: Tensor) -> None:
        """Add the rows of a batch."""
        rows = rows.detach().float()
        middle = (rows.shape[-2] + 1) // 2
        for i, half in enumerate((rows[..., :middle, :], rows[..., middle:, :])):
            products = half.mT @ half
            if len(self._products) == i:
                self._products.append(products)
            else:
                self._products[i] += products
            self._counts[i] += half.shape[-2]

    @property
    def hessian(self) -> Tensor:
        """(in, in) or (groups, in, in): half the second derivative of an output's mean squared error by its weights.

        Raises QuantizationError where there was no row.
        """
        if not self.count:
            raise QuantizationError(
                f"nothing is known of the inputs of {self.name}", fix="calibrate with batches that reach it"
            )
        return (self._products[0] + self._products[1]) / self.count

    @property
    def expected(self) -> Tensor:
        """The Hessian (in, in) or (groups, in, in) as it is to be expected of other rows of the same kind.

        Where there are few rows for a size, inputs seem to go together that do not, and rounding by that makes a weight
        worse. So it is drawn towards a multiple of the unit matrix, as far as the two halves of the rows do not agree
        on how it differs from that: to where its mean square error is the least, for which the product of the halves
        says how much of it is there in truth.

        Source: Ledoit and Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", 2004,
        theorem 2.1; there the share is estimated otherwise, for rows that do not depend on each other.

        >>> moments = InputMoments()
        >>> moments.observe(torch.randn(16, 64))
        >>> unit = torch.eye(64)
        >>> bool((moments.expected - unit).square().sum() < 0.2 * (moments.hessian - unit).square().sum())
        True
        """
        hessian = self.hessian
        if not self._counts[1]:
            return hessian
        one, other = (products / count for products, count in zip(self._products, self._counts, strict=True))
        common = _product(_apart(one), _apart(other)) / _product(_apart(hessian), _apart(hessian)).clamp(min=1e-30)
        return hessian - (1 - common.clamp(0.0, 1.0)) * _apart(hessian)


def _apart(hessian: Tensor) -> Tensor:
    """What a matrix differs by from a multiple of the unit matrix of its trace."""
    mean = hessian.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return hessian - mean * torch.eye(hessian.shape[-1], device=hessian.device)


def _product(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum((-2, -1), keepdim=True)
