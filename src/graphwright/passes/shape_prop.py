"""Run a module and note on every node what it gave: shapes, dtypes, strides."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from graphwright.ir import ATOMS, Node, format_node, map_aggregate
from graphwright.passes.fake_modules import with_fake_tensors
from graphwright.passes.fake_regions import run_on_fake
from graphwright.runtime import GraphModule, Interpreter

__all__ = ["ShapeProp", "TensorMetadata", "extract_tensor_metadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values.

    `memory_format` is None where the tensor is dense in none of the known orders. `qparams` has the quantization
    scheme, scale and zero point where `is_quantized`, and is empty otherwise.

    >>> extract_tensor_metadata(torch.ones(2, 3)).stride
    (3, 1)
    """

    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: torch.memory_format | None
    is_quantized: bool
    qparams: dict[str, Any]


_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)


def extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """Describe a tensor; without `include_contiguity`, not in which order its elements lie.

    >>> extract_tensor_metadata(torch.ones(2, 3)).memory_format
    torch.contiguous_format
    """
    is_strided = result.layout is torch.strided
    memory_format = None
    if include_contiguity and is_strided:
        if result.is_contiguous():
            memory_format = torch.contiguous_format
        elif result.dim() >= 4:
            memory_format = next((kind for kind in _FORMATS[1:] if _lies_in(result, kind)), None)
    is_quantized = result.is_quantized
    return TensorMetadata(
        result.shape,
        result.dtype,
        result.requires_grad,
        result.stride() if _has_strides(result) else (),
        memory_format,
        is_quantized,
        _quantization(result) if is_quantized else {},
    )


_extract_tensor_metadata = extract_tensor_metadata  # torch.fx's name for it


def _has_strides(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided or tensor.is_mkldnn


def _lies_in(tensor: Tensor, memory_format: torch.memory_format) -> bool:
    dimensions = 4 if memory_format is torch.channels_last else 5
    return tensor.dim() == dimensions and tensor.is_contiguous(memory_format=memory_format)


def _quantization(tensor: Tensor) -> dict[str, Any]:
    scheme = tensor.qscheme()
    if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return {"qscheme": scheme, "scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
    if scheme in (torch.per_channel_affine, torch.per_channel_affine_float_qparams, torch.per_channel_symmetric):
        return {  # lists, since the meta of nodes should not hold tensors
            "qscheme": scheme,
            "scale": tensor.q_per_channel_scales().tolist(),
            "zero_point": tensor.q_per_channel_zero_points().tolist(),
            "axis": tensor.q_per_channel_axis(),
        }
    return {"qscheme": scheme}


class ShapeProp(Interpreter):
    """Runs a module node by node and writes into the meta of each node what it gave.

    `meta["tensor_meta"]` is the TensorMetadata of a tensor, or the value's nested containers with TensorMetadata in
    place of tensors, where there are any; `meta["type"]` is the type of the value. With `fake_mode` the run computes
    shapes only.

    A node that fails raises RuntimeError, which names it, from the original error, whose traceback goes to stderr.

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
            traceback.print_exc()
            raise RuntimeError(f"ShapeProp error for: node={format_node(n)} with meta={n.meta}") from error
        meta = n.meta
        if isinstance(result, Tensor):
            meta["tensor_meta"] = extract_tensor_metadata(result)
        elif type(result) not in ATOMS:
            described = _describe(result)
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

    def propagate(self, *args: Any) -> Any:
        """Run the module on these arguments and return its result."""
        if self.fake_mode is not None:
            mode = self.fake_mode
            args = tuple([mode.from_tensor(arg) if isinstance(arg, Tensor) else arg for arg in args])
        return super().run(*args)


def _describe(value: Any) -> Any:
    """Rebuild nested containers with TensorMetadata in place of tensors; None where there are no tensors."""
    found = False

    def describe(leaf: Any) -> Any:
        nonlocal found
        if isinstance(leaf, Tensor):
            found = True
            return extract_tensor_metadata(leaf)
        return leaf

    described = map_aggregate(value, describe)
    return described if found else None
