"""The program that a model is made of, run beside it: on a copy, from the same state each time, and in silence."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import warnings
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from graphwright.analysis import ModuleState
from graphwright.interop import collecting_while
from graphwright.onnx.inputs import Arguments
from graphwright.onnx.objects import Opening
from graphwright.onnx.sizes import Sizes, at_sizes
from graphwright.ops import while_loop
from graphwright.runtime import GraphModule, graph_of


class Original:
    """A program at sizes of its inputs: what it gives there, and whether it takes them at all.

    >>> original = Original(nn.Linear(3, 2), Arguments(nn.Linear(3, 2).forward, (torch.ones(1, 3),), {}, None, None))
    >>> original.at([[4, 3]]).shape, original.takes([[4, 5]])
    (torch.Size([4, 2]), False)
    """

    def __init__(self, module: nn.Module, arguments: Arguments) -> None:
        self._module, self._arguments = module, arguments

    @functools.cached_property
    def _copied(self) -> tuple[nn.Module, ModuleState]:
        try:
            twin = copy.deepcopy(self._module)
        except Exception:  # it holds a lock, say: it is run itself, and put back
            twin = self._module
        return twin, ModuleState(twin)

    @property
    def has_while(self) -> bool:
        """Whether it may go on for ever: `while x.sum() < 1` does, of no items."""
        nodes = graph_of(self._module).all_nodes() if isinstance(self._module, GraphModule) else ()
        return any(node.target in (while_loop, collecting_while) for node in nodes)

    def at(self, sizes: Sizes) -> Any:
        """What the program gives, its objects opened. Raises what it raises."""
        args, kwargs = copy.deepcopy(self._arguments.call(at_sizes(self._arguments, sizes)))
        module, state = self._copied
        try:
            with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                result = module(*args, **kwargs)
            return pytree.tree_map_only(torch.Tensor, lambda each: each.detach().clone(), Opening().opened(result))
        finally:
            state.restore()

    def takes(self, sizes: Sizes) -> bool:
        """Tell whether the program takes inputs of these sizes."""
        try:
            self.at(sizes)
        except Exception:
            return False
        return True

    def is_random(self, sizes: Sizes) -> bool:
        """Tell whether the program gives other values each time."""
        one, other = (pytree.tree_leaves(self.at(sizes)) for _ in range(2))
        return any(
            isinstance(a, torch.Tensor) and not torch.allclose(a, b, equal_nan=True)
            for a, b in zip(one, other, strict=True)
        )
