"""Operators of torch that are given functions, as Python: `torch.cond` is an `if`, `torch.while_loop` a `while`.

A capture runs these in their place, as functions of the program's. What they give is what torch's give outside of any
compiler; the memory of their results is that of the values that the given functions return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._higher_order_ops.map import map as _map
from torch._higher_order_ops.scan import scan as _scan
from torch._higher_order_ops.while_loop import while_loop as _while_loop
from torch.utils._pytree import tree_flatten, tree_unflatten


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """`torch.cond`.

    >>> cond(torch.tensor(True), torch.neg, torch.abs, (torch.tensor(2),))
    tensor(-2)
    """
    if pred:
        return true_fn(*operands)
    return false_fn(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """`torch.while_loop`.

    >>> while_loop(lambda i: i < 3, lambda i: (i + 1,), (torch.tensor(0),))
    (tensor(3),)
    """
    carried = tuple(carried_inputs)
    while cond_fn(*carried):
        carried = tuple(body_fn(*carried))
    return carried


def map_each(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`map` of functorch: of the slices of tensors along their first dimension.

    >>> map_each(lambda x, y: x * y, torch.tensor([1, 2]), 3)
    tensor([3, 6])
    """
    if isinstance(xs, torch.Tensor):
        results = [f(x, *args) for x in xs]
    else:
        leaves, spec = tree_flatten(xs)
        results = [f(tree_unflatten(list(slices), spec), *args) for slices in zip(*leaves, strict=True)]
    return _stacked(results)


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """`scan`: what is carried from slice to slice, and what each gives, along a dimension.

    >>> scan(lambda total, x: (total + x, total), torch.tensor(0), torch.tensor([1, 2]))
    (tensor(3), tensor([0, 1]))
    """
    carried = init
    along = xs if dim == 0 else _over(lambda x: x.movedim(dim, 0), xs)
    along = _over(lambda x: x.flip([0]), along) if reverse else along
    given = []
    if isinstance(along, torch.Tensor):
        for x in along:
            carried, y = combine_fn(carried, x)
            given.append(y)
    else:
        leaves, spec = tree_flatten(along)
        for slices in zip(*leaves, strict=True):
            carried, y = combine_fn(carried, tree_unflatten(list(slices), spec))
            given.append(y)
    every = _stacked(given)
    every = _over(lambda y: y.flip([0]), every) if reverse else every
    return carried, every if dim == 0 else _over(lambda y: y.movedim(0, dim), every)


def _over(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _over(function, item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)([_over(function, item) for item in value])
    return function(value)


def _stacked(results: list[Any]) -> Any:
    first = results[0]
    if isinstance(first, dict):
        return {key: _stacked([each[key] for each in results]) for key in first}
    if isinstance(first, tuple | list):
        return type(first)([_stacked([each[i] for each in results]) for i in range(len(first))])
    return torch.stack(results)


def switch(index: Any, branches: Sequence[Callable[..., Any]], operands: Any = ()) -> Any:
    """`switch`: the function at a place, the first or last one for an index outside of them.

    >>> switch(torch.tensor(5), [torch.neg, torch.abs], (torch.tensor(-2),))
    tensor(2)
    """
    return _switch_from(branches, 0, index, operands)


def _switch_from(branches: Sequence[Callable[..., Any]], place: int, index: Any, operands: Any) -> Any:
    if place + 1 == len(branches):
        return branches[place](*operands)
    if index <= place:
        result = branches[place](*operands)
    else:
        result = _switch_from(branches, place + 1, index, operands)
    return result


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`torch.sym_ite`."""
    return t if b else f


def sym_sum(args: Any) -> Any:
    """`torch.sym_sum`.

    >>> sym_sum([1, 2, 3])
    6
    """
    return sum(args)


def sym_not(a: Any) -> Any:
    """`torch.sym_not`."""
    return not a


def item_at(values: Any, index: Any) -> Any:
    """`values[index]`, asked place by place.

    >>> item_at(["a", "b", "c"], -1)
    'c'
    """
    return _item_from(values, 0, index if index >= 0 else index + len(values))


def _item_from(values: Any, place: int, at: Any) -> Any:
    if at == place:
        item = values[place]
    elif place + 1 < len(values):
        item = _item_from(values, place + 1, at)
    else:
        raise IndexError("list index out of range")
    return item


def number_at(values: range, index: Any) -> Any:
    """`values[index]` of a range.

    >>> number_at(range(3, 9, 2), -1)
    7
    """
    return values.start + _place(len(values), index, "range object index out of range") * values.step


def store_at(values: list[Any], index: Any, value: Any) -> None:
    """`values[index] = value`, place by place.

    >>> values = [1, 2, 3]
    >>> store_at(values, -1, 5)
    >>> values
    [1, 2, 5]
    """
    at = _place(len(values), index, "list assignment index out of range")
    values[:] = [value if i == at else values[i] for i in range(len(values))]


def pop_at(values: list[Any], index: Any, message: str = "pop index out of range") -> Any:
    """`values.pop(index)`, place by place.

    >>> values = [1, 2, 3]
    >>> pop_at(values, 0), values
    (1, [2, 3])
    """
    at = _place(len(values), index, message)
    item = _item_from(values, 0, at)
    values[:] = [values[i] if i < at else values[i + 1] for i in range(len(values) - 1)]
    return item


def insert_at(values: list[Any], index: Any, item: Any) -> None:
    """`values.insert(index, item)`, place by place.

    >>> values = [1, 2]
    >>> insert_at(values, -9, 3)
    >>> values
    [3, 1, 2]
    """
    count = len(values)
    at = min(max(index if index >= 0 else index + count, 0), count)
    before, after = [*values, item], [item, *values]
    values[:] = [before[i] if i < at else item if i == at else after[i] for i in range(count + 1)]


def _place(count: int, index: Any, message: str) -> Any:
    at = index if index >= 0 else index + count
    if at < 0 or at >= count:
        raise IndexError(message)
    return at


def call_item_at(values: Any, index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`values[index](*args, **kwargs)`, asked place by place.

    >>> call_item_at([abs, str], -1, (-2,), {})
    '-2'
    """
    return _call_from(values, 0, index if index >= 0 else index + len(values), args, kwargs)


def _call_from(values: Any, place: int, at: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if at == place:
        result = values[place](*args, **kwargs)
    elif place + 1 < len(values):
        result = _call_from(values, place + 1, at, args, kwargs)
    else:
        raise IndexError("list index out of range")
    return result


def value_at(table: Any, key: Any) -> Any:
    """`table[key]`, asked key by key.

    >>> value_at({"a": 1, "b": 2}, "b")
    2
    """
    return _value_from(table, list(table), 0, key)


def value_or(table: Any, key: Any, default: Any = None) -> Any:
    """`table.get(key, default)`, asked key by key.

    >>> value_or({"a": 1, "b": 2}, "c", 3)
    3
    """
    return _value_or(table, list(table), 0, key, default)


def _value_or(table: Any, keys: list[Any], place: int, key: Any, default: Any) -> Any:
    if key == keys[place]:
        value = table[keys[place]]
    elif place + 1 < len(keys):
        value = _value_or(table, keys, place + 1, key, default)
    else:
        value = default
    return value


def _value_from(table: Any, keys: list[Any], place: int, key: Any) -> Any:
    if key == keys[place]:
        value = table[keys[place]]
    elif place + 1 < len(keys):
        value = _value_from(table, keys, place + 1, key)
    else:
        raise KeyError(key)
    return value


_switch = getattr(torch._higher_order_ops, "switch", None)  # torch 2.15 has it
IN_PYTHON: dict[Callable[..., Any], Any] = {
    **({} if _switch is None else {_switch: switch}),
    torch.cond: cond,
    _while_loop: while_loop,
    _map: map_each,
    _scan: scan,
    torch.sym_ite: sym_ite,
    torch.sym_sum: sym_sum,
    torch.sym_not: sym_not,
}
