"""What graphs do with objects of the user's own classes: make one without its constructor, and tell what it has."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["attribute_names", "new_object"]

Kind = TypeVar("Kind")


def attribute_names(value: Any) -> list[str]:
    """List the attributes that an object has of its own, in the order in which it got them.

    >>> import types
    >>> attribute_names(types.SimpleNamespace(keys=1, values=2))
    ['keys', 'values']
    """
    return list(vars(value))


def new_object(kind: type[Kind], /, **attributes: Any) -> Kind:
    """Make an object with these attributes; its constructor, which ran when the program was captured, does not run.

    >>> import types
    >>> new_object(types.SimpleNamespace, keys=1)
    namespace(keys=1)
    """
    made = kind.__new__(kind)
    vars(made).update(attributes)
    return made
