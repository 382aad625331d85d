"""What passes remember about a node."""

from __future__ import annotations

from typing import Any

from graphwright.errors import GraphError

EXAMPLES = ("tensor_meta", "val", "example_value")  # where passes note what a value is like


class Meta(dict[str, Any]):
    """What passes remember about a node, by key.

    The attributes `shape`, `dtype`, `device`, `stride` and `requires_grad` are those of the example that a pass has
    noted, ShapeProp for one. They raise GraphError where there is none.

    >>> meta = Meta(tag=1)
    >>> meta["tag"]
    1
    >>> meta.dtype
    Traceback (most recent call last):
    graphwright.errors.GraphError: there is no example metadata to read dtype from
      fix: note it first: ShapeProp(gm).propagate(*example)
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name not in ("shape", "dtype", "device", "stride", "requires_grad"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        for key in EXAMPLES:
            if key in self and hasattr(self[key], name):
                return getattr(self[key], name)
        raise GraphError(
            f"there is no example metadata to read {name} from", fix="note it first: ShapeProp(gm).propagate(*example)"
        )
