"""The inputs of a model: the tensors among the arguments of a program, their names, and which of their sizes change."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.onnx.objects import Opened, Opening, closed


@dataclasses.dataclass(frozen=True)
class Input:
    """One input: `dynamic` maps a dimension to the name that its size has in the model."""

    name: str
    example: torch.Tensor
    dynamic: Mapping[int, str]


class Arguments:
    """Example arguments of a program, taken apart into named tensors and what stays as it is.

    >>> def forward(x, pair, scale=1.0): ...
    >>> given = Arguments(forward, (torch.ones(2), (torch.ones(3), 4)), {}, None, None)
    >>> [(each.name, dict(each.dynamic)) for each in given.inputs], given.fixed
    ([('x', {0: 'x_dim0'}), ('pair_0', {0: 'pair_0_dim0'})], {'pair_1': 4})
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        names: Sequence[str] | None,
        dynamic_shapes: Any,
    ) -> None:
        self._forward = forward
        signature = inspect.signature(forward)
        self._names = [*signature.parameters, *kwargs]
        self._given = Opening().opened((args, self._in_order(kwargs)))
        try:
            bound = signature.bind(*self._given[0], **self._given[1])
        except TypeError as error:
            fix = "give those of a call: graphwright.onnx.export(model, args, kwargs)"
            raise ExportError(f"the example inputs are not those of forward{signature}: {error}", fix=fix) from None
        self._asked = _by_name(dynamic_shapes, bound)
        found = [each for name, value in bound.arguments.items() for each in self._found(name, value, bound)]
        self.inputs = [Input(name, value, dynamic) for name, value, dynamic in found if isinstance(value, torch.Tensor)]
        self.fixed = {name: value for name, value, _ in found if not isinstance(value, torch.Tensor)}
        self._leaves, self._spec = pytree.tree_flatten(self._given)
        self._is_tensor = [isinstance(leaf, torch.Tensor) for leaf in self._leaves]
        if names is not None:
            self._rename(names)

    def tensors(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors of other arguments, in the order of the inputs. Raises ExportError for those of another form."""
        return self.apart(args, kwargs)[0]

    def apart(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[torch.Tensor], list[Any]]:
        """The same tensors, and the objects that hold some of them."""
        opening = Opening()
        leaves, spec = pytree.tree_flatten(opening.opened((args, self._in_order(kwargs))))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if spec != self._spec or [isinstance(leaf, torch.Tensor) for leaf in leaves] != self._is_tensor:
            raise ExportError(
                "the arguments are of another form than those that the model was exported with",
                fix="pass as many, by the same names, tensors where there were tensors",
            )
        for place, (leaf, was) in enumerate(zip(leaves, self._leaves, strict=True)):
            if not self._is_tensor[place] and not _is_alike(leaf, was):
                raise ExportError(
                    f"{self._place_of(place)} was {was!r} when the model was exported, and is {leaf!r} now: "
                    "only tensors are inputs of a model",
                    fix="export the program again with it, or make it a tensor",
                )
        return tensors, opening.objects

    @property
    def may_fix_sizes(self) -> bool:
        """Whether `fix_sizes` has sizes to fix."""
        return self._asked is None and any(each.dynamic for each in self.inputs)

    def _in_order(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments in the order in which their inputs are: that of the signature, then that of the example."""
        known = {name: kwargs[name] for name in self._names if name in kwargs}
        return {**known, **kwargs}

    def fix_sizes(self) -> dict[tuple[int, int], int]:
        """Let no size change but the first of a tensor, then none, where nobody has asked for it.

        Gives those that are fixed now, by the place of the input and the dimension.

        >>> given = Arguments(lambda x: None, (torch.ones(2, 3),), {}, None, None)
        >>> given.fix_sizes(), given.fix_sizes(), given.fix_sizes()
        ({(0, 1): 3}, {(0, 0): 2}, {})
        """
        if self._asked is not None:
            return {}
        kept = {0} if any(dim for each in self.inputs for dim in each.dynamic) else set()
        fixed = {
            (i, dim): each.example.shape[dim]
            for i, each in enumerate(self.inputs)
            for dim in each.dynamic
            if dim not in kept
        }
        open_ones = [{dim: name for dim, name in each.dynamic.items() if dim in kept} for each in self.inputs]
        pairs = zip(self.inputs, open_ones, strict=True)
        self.inputs = [dataclasses.replace(each, dynamic=dynamic) for each, dynamic in pairs]
        return fixed

    def _place_of(self, place: int) -> str:
        """What a leaf of the arguments is called."""
        path: Any = pytree.tree_flatten_with_path(self._given)[0][place][0]
        _, first, *inner = path
        name = getattr(first, "key", "")
        if not name:
            parameters = inspect.signature(self._forward).parameters.values()
            names = [each.name for each in parameters if each.kind in _BY_PLACE]
            name = names[first.idx] if first.idx < len(names) else f"args[{first.idx}]"
        return f"argument {name + pytree.keystr(tuple(inner))!r}"

    def call(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments that hold these tensors, and the rest as in the example."""
        left = iter(tensors)
        leaves = [
            next(left) if is_tensor else leaf for leaf, is_tensor in zip(self._leaves, self._is_tensor, strict=True)
        ]
        return closed(pytree.tree_unflatten(leaves, self._spec))  # type: ignore[no-any-return]

    def _found(self, name: str, value: Any, bound: inspect.BoundArguments) -> Iterator[tuple[str, Any, dict[int, str]]]:
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            for key, each in value.items():
                yield from self._leaves_of(key, each, self._asked_for(key))
        else:
            yield from self._leaves_of(name, value, self._asked_for(name))

    def _asked_for(self, name: str) -> Any:
        return _ALL if self._asked is None else self._asked.get(name)

    def _leaves_of(self, name: str, value: Any, asked: Any) -> Iterator[tuple[str, Any, dict[int, str]]]:
        if isinstance(value, torch.Tensor):
            yield name, value, _dynamic(name, value, asked)
            return
        children = _children(value)
        if children is None:
            yield name, value, {}
            return
        for key, child in children:
            inner = asked if asked is _ALL or asked is None else _inner(asked, key)
            yield from self._leaves_of(f"{name}_{key}", child, inner)

    def _rename(self, names: Sequence[str]) -> None:
        if len(names) != len(self.inputs):
            known = ", ".join(each.name for each in self.inputs)
            raise ExportError(
                f"{len(names)} input_names are given, and the program takes {len(self.inputs)} tensors: {known}",
                fix="name each of them",
            )
        if len(set(names)) != len(names):
            raise ExportError(f"two inputs have one name: {', '.join(names)}", fix="name each input once")
        self.inputs = [dataclasses.replace(each, name=name) for each, name in zip(self.inputs, names, strict=True)]


_ALL = object()
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _is_alike(value: Any, was: Any) -> bool:
    """Tell whether what is no tensor is what it was; objects that do not say whether they are equal are not.

    >>> _is_alike(3, 3), _is_alike(True, 1), _is_alike(float("nan"), float("nan"))
    (True, False, True)
    """
    if value is was:
        return True
    if type(value) is not type(was):
        return False
    if isinstance(value, np.ndarray):
        return value.dtype == was.dtype and np.array_equal(value, was)
    return value == was or (value != value and was != was)  # type: ignore[no-any-return]


def _by_name(dynamic_shapes: Any, bound: inspect.BoundArguments) -> dict[str, Any] | None:
    """What is asked for, by the names of the arguments."""
    if dynamic_shapes is None:
        return None
    if isinstance(dynamic_shapes, Mapping):
        known = {*bound.arguments, *bound.kwargs}
        unknown = [name for name in dynamic_shapes if name not in known]
        if unknown:
            raise ExportError(
                f"dynamic_shapes names {unknown[0]!r}, which is no input",
                fix=f"the inputs are {', '.join(map(str, bound.arguments))}",
            )
        return dict(dynamic_shapes)
    if len(dynamic_shapes) > len(bound.arguments):
        raise ExportError(
            f"dynamic_shapes has {len(dynamic_shapes)} entries for {len(bound.arguments)} arguments",
            fix="give one for each argument",
        )
    return dict(zip(bound.arguments, dynamic_shapes, strict=False))


def _children(value: Any) -> list[tuple[Any, Any]] | None:
    """The parts of a container, as torch's pytrees see them; None for what is one value."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, Opened):
        return list(value.held.items())
    leaves, spec = pytree.tree_flatten(value, is_leaf=lambda each: each is not value)
    if spec.is_leaf():
        return None
    return list(enumerate(leaves))


def _inner(asked: Any, key: Any) -> Any:
    if isinstance(asked, Mapping):
        return asked.get(key)
    return asked[key] if isinstance(asked, list | tuple) and isinstance(key, int) and key < len(asked) else None


def _dynamic(name: str, value: torch.Tensor, asked: Any) -> dict[int, str]:
    if asked is _ALL:
        return {dim: f"{name}_dim{dim}" for dim in range(value.dim())}
    if asked is None:
        return {}
    pairs = asked.items() if isinstance(asked, Mapping) else enumerate(asked)
    found = {}
    for dim, size in pairs:
        if not -value.dim() <= dim < value.dim():
            raise ExportError(
                f"dynamic_shapes names dimension {dim} of {name!r}, which has {value.dim()}",
                fix="give sizes for the dimensions that there are",
            )
        if size is not None and not isinstance(size, int) and str(size) != "_DimHint.STATIC":
            dim %= value.dim()
            found[dim] = _name_of(size) or f"{name}_dim{dim}"
    return found


def _name_of(size: Any) -> str:
    """The name of a `Dim`, or the text that is one; none for `Dim.AUTO`."""
    name = size if isinstance(size, str) else getattr(size, "__name__", "")
    return name if name.isidentifier() else ""


def resized(tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """A tensor of other sizes whose values are those of this one, over and over.

    >>> resized(torch.tensor([1, 2]), [3])
    tensor([1, 2, 1])
    """
    for dim, size in enumerate(sizes):
        if tensor.shape[dim] == 0:
            tensor = torch.zeros([*tensor.shape[:dim], size, *tensor.shape[dim + 1 :]], dtype=tensor.dtype)
        elif tensor.shape[dim] != size:
            tensor = tensor.index_select(dim, torch.arange(size, device=tensor.device) % tensor.shape[dim])
    return tensor.detach()
