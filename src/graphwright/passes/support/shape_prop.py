"""Run a module and note on every node what it gave: shapes, dtypes, strides."""

from __future__ import annotations

import traceback
from typing import Any

from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from graphwright.analysis import (
    TensorMetadata,
    describe_tensors,
    extract_tensor_metadata,
    run_on_fake,
    with_fake_tensors,
)
from graphwright.ir import ATOMS, Node, format_node
from graphwright.runtime import GraphModule, Interpreter

__all__ = ["ShapeProp", "TensorMetadata", "extract_tensor_metadata"]


_extract_tensor_metadata = extract_tensor_metadata  # torch.fx's name for it


class ShapeProp(Interpreter):
    """Runs a module node by node and writes into the meta of each node what it gave.

    `meta["tensor_meta"]` is the TensorMetadata of a tensor, or the value's nested containers with TensorMetadata in
    place of tensors, where there are any; `meta["type"]` is the type of the value. With `fake_mode` the run computes
    shapes only.

    A node that fails raises RuntimeError, which names it, from the original error, whose traceback goes to stderr.

    >>> import torch
    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: (x @ x.t()).sum(0))
    >>> _ = ShapeProp(gm).propagate(torch.ones(2, 3))
    >>> [tuple(node.meta["tensor_meta"].shape) for node in gm.graph.nodes]
    [(2, 3), (3, 2), (2, 2), (2,), (2,)]
    """

    def __init__(self, gm: GraphModule, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.real_module = self.module
        self.fake_mode: FakeTensorMode | None = fake_mode
        self.fake_module = None if fake_mode is None else with_fake_tensors(gm, fake_mode)
        if self.fake_module is not None:
            self.submodules = dict(self.fake_module.named_modules())

    def run_node(self, n: Node) -> Any:
        """Run one node, describe its value in the node's meta, and return the value."""
        try:
            result = super().run_node(n) if self.fake_module is None else self._run_fake(n)
        except Exception as error:
            if not self.extra_traceback:  # the program catches it, by its class
                raise
            traceback.print_exc()
            raise RuntimeError(f"ShapeProp error for: node={format_node(n)} with meta={n.meta}") from error
        meta = n.meta
        if isinstance(result, Tensor):
            meta["tensor_meta"] = extract_tensor_metadata(result)
        elif type(result) not in ATOMS:
            described = describe_tensors(result)
            if described is not None:
                meta["tensor_meta"] = described
        meta["type"] = type(n.args[0] if n.op == "output" and not isinstance(n.args[0], Node) else result)
        return result

    def _run_fake(self, n: Node) -> Any:
        assert self.fake_mode is not None
        assert self.fake_module is not None
        self.module = self.fake_module
        try:
            with self.fake_mode, enable_python_dispatcher():
                return super().run_node(n)
        finally:
            self.module = self.real_module

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function; on fake tensors, a branch or loop that data decides goes through each of its bodies."""
        if self.fake_mode is None:
            return super().call_function(target, args, kwargs)
        return run_on_fake(super().call_function, target, args, kwargs)

    def propagate(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module on these arguments and return its result."""
        mode = self.fake_mode
        if mode is not None:
            args = tuple([mode.from_tensor(arg) if isinstance(arg, Tensor) else arg for arg in args])
            kwargs = {key: mode.from_tensor(arg) if isinstance(arg, Tensor) else arg for key, arg in kwargs.items()}
        return super().run(*args, **kwargs)
