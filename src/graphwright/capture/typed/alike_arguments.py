"""Arguments of calls that are alike: of one form and of the same kinds, the same things being the same in both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from graphwright.capture.effects.alike_modules import facts_of_tensor
from graphwright.capture.numbers.known_sizes import size_of
from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.capture.state.tensor_proxy import Dim, TensorProxy
from graphwright.ir import ATOMS, Node

_PLAIN = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class Unlike(Exception):
    """A call that is not like the one before: it is captured for itself."""


class Matched:
    """The arguments of one call as those of another: tensors of the same kinds, the same being the same in both."""

    def __init__(self) -> None:
        self.nodes: dict[Node, Node] = {}
        self.dims: dict[int, Dim] = {}  # by id
        self.leaves: dict[int, Any] = {}  # by id
        self._ones: list[TensorProxy] = []
        self._others: dict[int, Any] = {}
        self._other_dims: dict[int, Dim] = {}

    def exchanged(self) -> list[TensorProxy]:
        """The tensors of the one call that are others in the other."""
        return [one for one in self._ones if self.leaves[id(one)] is not one]

    def match(self, one: Any, other: Any) -> None:
        """Match two arguments. Raises Unlike."""
        kind = type(one)
        if kind is not type(other):
            raise Unlike
        if kind is tuple:
            if len(one) != len(other):
                raise Unlike
            for pair in zip(one, other, strict=True):
                self.match(*pair)
        elif kind is TensorProxy:
            self._match_tensors(one, other)
        elif kind in ATOMS:
            if one != other or repr(one) != repr(other):
                raise Unlike
        elif (symbol := symbol_of(one)) is not None:
            if symbol is not symbol_of(other):
                raise Unlike
            for dim in _dims_of(symbol):
                self._match_sizes(dim, dim)
        elif isinstance(one, _PLAIN):
            if one != other or kind is torch.device:
                raise Unlike
        elif one is not other or not isinstance(one, torch.Tensor | type):
            raise Unlike

    def _match_tensors(self, one: TensorProxy, other: TensorProxy) -> None:
        if id(one) in self.leaves or id(other) in self._others:
            if self.leaves.get(id(one)) is not other or self._others.get(id(other)) is not one:
                raise Unlike
            return
        self.leaves[id(one)], self._others[id(other)] = other, one
        self._ones.append(one)
        if one is not other and not (is_plain(one) and is_plain(other)):
            raise Unlike
        with torch._C.DisableTorchFunction():
            if one is not other and facts_of_tensor(one.example) != facts_of_tensor(other.example):
                raise Unlike
            for dim, size in one.sizes.items():
                self._match_sizes(size, size_of(other, dim))
        node, its = one.node_of(), other.node_of()
        if self.nodes.setdefault(node, its) is not its:
            raise Unlike

    def _match_sizes(self, one: int | Dim, other: int | Dim) -> None:
        if type(one) is not Dim or type(other) is not Dim:
            if one != other or type(one) is not type(other):
                raise Unlike
            return
        if self.dims.setdefault(id(one), other) is not other or self._other_dims.setdefault(id(other), one) is not one:
            raise Unlike

    def size(self, size: int | Dim) -> int | Dim:
        """A size of a value of the one call in the other: as it is passed, or one that is not known to be another's."""
        if type(size) is not Dim:
            return size
        return self.dims.setdefault(id(size), Dim(size.hint))


def _dims_of(symbol: Symbol) -> Iterator[Dim]:
    """The sizes of tensors that a number is computed from."""
    if type(symbol.dim) is Dim:
        yield symbol.dim
    for arg in symbol.args:
        if isinstance(arg, Symbol):
            yield from _dims_of(arg)


def leaves_of(value: Any) -> list[Any]:
    """The leaves of what a call may get and give: nothing that it may change. Raises Unlike for all else."""
    if type(value) is tuple:
        return [leaf for item in value for leaf in leaves_of(item)]
    if type(value) in ATOMS or isinstance(value, (torch.Tensor, *_PLAIN)) or symbol_of(value) is not None:
        return [value]
    raise Unlike


def is_plain(proxy: TensorProxy) -> bool:
    """Tell whether a tensor is one whatever happens: never None, no number, of one form in all iterations."""
    with torch._C.DisableTorchFunction():
        if proxy.example.layout is not torch.strided:
            return False
    return proxy.optional is None and proxy.is_none is False and not (proxy.is_mixed or proxy.mixed_at or proxy.loose)
