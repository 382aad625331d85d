"""How a side of a branch says that it does not go on."""

from __future__ import annotations


class Raised(BaseException):
    """A side of a branch ends in an exception, which is in the graph."""
