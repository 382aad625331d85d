"""Operations on a way that the example does not take: what its numbers and data are may not do there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from graphwright.capture.numbers.numbers import SAMPLES
from graphwright.capture.state.alike_results import own_result
from graphwright.capture.state.symbols import symbol_of
from graphwright.values import leaves, map_leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture


def nearest(index: Any, tensor: torch.Tensor) -> Any:
    """An index into a tensor with zero for each number that is too large for some size of it.

    >>> import torch
    >>> nearest((5, 1), torch.ones(2, 3))
    (0, 1)
    """
    if type(index) is tuple:
        return tuple([nearest(part, tensor) for part in index])
    return 0 if type(index) is int and index >= min(tensor.shape, default=0) else index


def without_data(recorder: Capture, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation gives that fails for the example where data does not lead it.

    Zeros of the sizes that torch tells without data, with other numbers for those that depend on data. NotImplemented
    where it fails like that as well, and where it writes to what it is given.
    """
    mode = FakeTensorMode()

    def given(leaf: Any) -> Any:
        symbol = symbol_of(leaf)
        leaf = recorder.to_examples(leaf) if symbol is None or not symbol.is_data else SAMPLES[symbol.kind]
        return mode.from_tensor(leaf, static_shapes=True) if isinstance(leaf, torch.Tensor) else leaf

    args, kwargs = map_leaves(given, args), map_leaves(given, kwargs)
    fakes = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    before = [fake._version for fake in fakes]
    try:
        with torch._C.DisableTorchFunction(), mode:
            made = run(*args, **kwargs)
    except Exception:
        return NotImplemented
    if [fake._version for fake in fakes] != before:
        return NotImplemented
    return map_leaves(_zeros, made)


def _zeros(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    made = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device).zero_()
    return own_result(made) if leaf.requires_grad else made
