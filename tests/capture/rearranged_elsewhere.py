"""An object of another module, which calls a function of einops under a name of its own."""

from __future__ import annotations

from einops import rearrange as moved
from torch import Tensor


class Heads:
    def __init__(self, count: int) -> None:
        self.count = count

    def split(self, x: Tensor) -> Tensor:
        return moved(x, "b n (h d) -> b h n d", h=self.count)
