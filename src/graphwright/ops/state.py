"""The operators of captured programs that write attributes.

`write_attribute` is for what a program keeps from one call to the next. It names the attribute by its dotted path from
the module that runs the graph, as call_module and get_attr nodes do, and is printed as the assignment that it is:
`self.encoder.hidden = hidden`. The path may go on through objects that a module holds. `set_attribute` and
`delete_attribute` change an object of the user's own classes, and nothing else: a file may name them.

`read_variable` and `write_variable` are for what lies outside of all modules: a global variable (its owner is the name
of the Python module), an attribute of a class, a variable of the function around one (its cell). They are printed as
what they are: `train.STEP = train.STEP + 1`.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any, NoReturn

import torch
from torch import nn

from graphwright.errors import GraphError
from graphwright.ir import Graph, register_writer


def write_attribute(path: str, value: Any) -> NoReturn:
    """Stand in a graph for `self.path = value`; called by itself it has no module to write to and raises GraphError.

    >>> graph = Graph()
    >>> _ = graph.call_function(write_attribute, ("encoder.count", 3))
    >>> print(graph.python_code("self").src.strip())
    def forward(self):
        self.encoder.count = 3
    """
    raise GraphError(
        f"{path!r} is written by the module that runs the graph", fix="make a GraphModule of the graph, or interpret it"
    )


_FIXED = (nn.Module, torch.Tensor, type, types.ModuleType, types.FunctionType, types.MethodType, types.CodeType)


def set_attribute(value: Any, name: str, item: Any) -> None:
    """Give an object of a user's own class an attribute: `value.name = item`, past what its class does about it.

    Raises GraphError for modules, tensors, classes and functions, and for Python's own names.

    >>> point = types.SimpleNamespace(x=1)
    >>> set_attribute(point, "x", 2)
    >>> point.x
    2
    """
    slot = _slot(value, name)
    if slot is None:
        _fields(value, name)[name] = item
    else:
        slot.__set__(value, item)


def may_set_attribute(value: Any, name: str) -> bool:
    """Tell whether `set_attribute` may give an object an attribute.

    >>> may_set_attribute(types.SimpleNamespace(), "x"), may_set_attribute(nn.ReLU(), "x")
    (True, False)
    """
    try:
        return _slot(value, name) is not None or _fields(value, name) is not None
    except GraphError:
        return False


def delete_attribute(value: Any, name: str) -> None:
    """Take an attribute from an object of a user's own class: `del value.name`.

    Raises GraphError as `set_attribute` does.

    >>> point = types.SimpleNamespace(x=1, y=2)
    >>> delete_attribute(point, "y")
    >>> point
    namespace(x=1)
    """
    slot = _slot(value, name)
    if slot is None:
        _fields(value, name).pop(name, None)
    else:
        slot.__delete__(value)


def _slot(value: Any, name: str) -> types.MemberDescriptorType | None:
    """The slot of a class written in Python that keeps an attribute; None for one that is kept in `__dict__`."""
    if isinstance(value, _FIXED):
        return None
    for kind in type(value).__mro__:
        slot = kind.__dict__.get(name)
        if type(slot) is types.MemberDescriptorType and "__slots__" in kind.__dict__:
            return slot
    return None


def _fields(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, _FIXED) or type(getattr(value, "__dict__", None)) is not dict:
        raise GraphError(f"a {type(value).__name__} is no object whose attributes a graph may change")
    if type(name) is not str or not name.isidentifier() or name.startswith("__"):
        raise GraphError(f"{name!r} is no attribute that a graph may change")
    return value.__dict__  # type: ignore[no-any-return]


class Names:
    """Global names that no imported module has, those of a text that was executed, as attributes.

    >>> names = {"STEP": 1}
    >>> write_variable(Names(names), "STEP", 2)
    >>> names
    {'STEP': 2}
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.__dict__ = names

    def __deepcopy__(self, memo: dict[int, Any]) -> Names:
        return self

    def __reduce__(self) -> NoReturn:
        raise GraphError("the program uses global names of no module: no other process has them")

    def __fx_create_arg__(self, tracer: object) -> Names:
        return self


def owner_of(owner: Any) -> Any:
    """What has a variable as its attribute: the module of that name, or the class or cell itself.

    Raises GraphError for a module that cannot be imported.

    >>> owner_of("math").__name__
    'math'
    """
    if type(owner) is not str:
        return owner
    found = sys.modules.get(owner)
    if found is None:
        try:
            found = importlib.import_module(owner)
        except ImportError as error:
            raise GraphError(
                f"the program uses a global variable of {owner}, which cannot be imported here: {error}",
                fix="make the module importable, or capture again without it",
            ) from error
    return found


def read_variable(owner: Any, name: str) -> Any:
    """Read a variable of the outside as it is now: `train.STEP`.

    >>> read_variable("math", "pi")
    3.141592653589793
    """
    return getattr(owner_of(owner), name)


def write_variable(owner: Any, name: str, value: Any) -> None:
    """Give a variable of the outside a value: `train.STEP = value`.

    >>> class Counter:
    ...     calls = 0
    >>> write_variable(Counter, "calls", 3)
    >>> Counter.calls
    3
    """
    setattr(owner_of(owner), name, value)


def written_attributes(graph: Graph) -> set[str]:
    """The dotted paths of the attributes that a graph writes, in its branches and loops too.

    >>> graph = Graph()
    >>> _ = graph.call_function(write_attribute, ("count", 3))
    >>> written_attributes(graph)
    {'count'}
    """
    return {str(node.args[0]) for node in graph.all_nodes_now() if node.target is write_attribute}


register_writer(write_attribute)
