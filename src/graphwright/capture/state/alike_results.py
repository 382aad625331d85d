"""What operations give on stand-ins, told from what they gave for arguments of the same kinds.

Stand-ins have no data: of what an operation makes of them only the kind can matter, and it follows from the kinds of
its arguments. Where a call does nothing but give a value with memory of its own - the table of operators says what
operators do, and the first call where its memory is - a second one with such arguments, in the next layer, is not run:
torch takes ten times as long to find the same.

What torch's own operations give is remembered for later captures of the process, as torch itself remembers what its
operators give.

What such a result was computed from is not known. Whatever may look into that - `torch.autograd.grad`, a hook on a
tensor, and all that is not in the table - has the capture start again with results that torch computes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.backends import cudnn, opt_einsum

from graphwright.ops import Operator, module_operator, operator_of_target
from graphwright.runtime import HOOKS, MODULE_TABLES
from graphwright.values import leaves

# Not what stands for them while a program is captured.
_IS_GRAD, _IS_INFERENCE_MODE = torch.is_grad_enabled, torch.is_inference_mode_enabled
_SETTINGS = (
    _IS_GRAD, torch.get_default_dtype, torch._C._get_mkldnn_enabled, torch._C._get_flash_sdp_enabled,
    torch._C._get_mem_efficient_sdp_enabled, torch._C._get_math_sdp_enabled, torch._C._get_deterministic_algorithms,
)  # fmt: skip
_ask = operator.methodcaller("__call__")
_INTEGERS = frozenset({int})
_PLAIN = frozenset({
    int, float, bool, complex, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format,
})  # fmt: skip
_Maker: TypeAlias = Callable[[Any], torch.Tensor]  # makes a result, with a mode
StandIns: TypeAlias = dict[int, tuple[torch.Tensor, torch.Tensor]]  # by the id of a tensor: it, and its stand-in
_MOST_KNOWN = 2_048  # results that the process remembers
_CONTAINERS = frozenset({list, tuple, torch.Size})


class _Unlike(Exception):
    """An argument of which no kind tells all that an operation may see of it."""


class AlikeResults:
    """The results of operations on the stand-ins of one mode, by the kinds of their arguments.

    Layers are the program's own. To tell kinds their tensors need no stand-ins, which `known` has by id and `of` makes.
    """

    def __init__(self, mode: Any, known: StandIns, of: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._mode, self._stand_ins, self._of = mode, known, of
        self.have_given = False  # whether there are results that nothing was computed for
        self.lack_history = False  # whether gradients could flow to what some of them should have been computed from
        self._known: dict[Hashable, _Maker] = {}  # of functions of the program's
        self._of_torch: dict[Hashable, _Maker] = _known_of_torch()
        self._tables: dict[Hashable, dict[Hashable, _Maker] | None] = {}  # of functions; None: a call does more
        self._layers: dict[int, tuple[nn.Module, Hashable]] = {}  # by id, and what they hold; None: not to be told

    def run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[..., Any]
    ) -> Any:
        """Give what `call(function, args, kwargs)` gives."""
        with torch._C.DisableTorchFunction():
            try:
                known, key = self._key(function, args, kwargs)
                make = known.get(key)
            except (_Unlike, TypeError):  # a value without a hash
                key = make = None
            if make is not None:
                made = make(self._mode)
                self.have_given, self.lack_history = True, self.lack_history or made.requires_grad
                return made
        result = call(function, args, kwargs)
        if key is not None:
            with torch._C.DisableTorchFunction():
                make = None if _memory(result) in map(_memory, leaves((args, kwargs))) else self._maker(result)
                if make is not None:
                    known[key] = make
        return result

    def _key(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[Hashable, _Maker], Hashable]:
        """Where a result is remembered, and what tells its kind. Raises _Unlike where nothing does."""
        table: dict[Hashable, _Maker] | None
        if isinstance(function, nn.Module):
            what, table = self._layer(function), self._of_torch  # others than torch's are told by nothing
        else:
            if function not in self._tables:
                own = self._of_torch if _is_torchs(function) else self._known
                self._tables[function] = own if _is_telling(_operator(function)) else None
            what, table = function, self._tables[function]
            if table is None or "out" in kwargs or kwargs.get("inplace"):
                raise _Unlike
        if _IS_INFERENCE_MODE() or torch._C._is_any_autocast_enabled() or torch._C._len_torch_dispatch_stack():
            raise _Unlike
        met: dict[int, int] = {}
        named = self._kinds(tuple(kwargs.values()), met) if kwargs else ()
        settings = tuple(map(_ask, _SETTINGS))
        return table, (what, self._kinds(args, met), tuple(kwargs), named, settings)

    def _kinds(self, values: Iterable[Any], met: dict[int, int]) -> tuple[Hashable, ...]:
        found: list[Hashable] = []
        for value in values:
            kind = type(value)
            if kind in _PLAIN:
                found.append((kind, value))
            elif kind is FakeTensor:
                found.append(self._tensor(value, met))
            elif kind in _CONTAINERS:
                found.append((kind, self._kinds(value, met)))
            else:
                raise _Unlike
        return tuple(found)

    def _tensor(self, tensor: FakeTensor, met: dict[int, int]) -> Hashable:
        """The kind of a stand-in, and which of the arguments it was first."""
        shape, strides = tuple(tensor.shape), tensor.stride() if tensor.layout is torch.strided else None
        if (
            tensor.fake_mode is not self._mode
            or tensor.constant is not None
            or strides is None
            or not _INTEGERS.issuperset(map(type, shape))
            or tensor.is_conj()
            or tensor.is_neg()
            or tensor.is_inference()
        ):
            raise _Unlike
        place = met.setdefault(id(tensor), len(met))
        return place, shape, strides, tensor.dtype, tensor.fake_device, tensor.requires_grad, tensor.is_leaf

    def _layer(self, module: nn.Module) -> Hashable:
        """What tells a layer of torch's from others: its class, what it holds, and the kinds of its tensors now."""
        known = self._layers.get(id(module))
        if known is None:
            known = self._layers[id(module)] = module, self._held(module)
        if known[1] is None:
            raise _Unlike
        tensors, met = {**module._parameters, **module._buffers}, dict[int, int]()
        return known[1], tuple(tensors), tuple([self._held_tensor(tensor, met) for tensor in tensors.values()])

    def _held_tensor(self, tensor: torch.Tensor | None, met: dict[int, int]) -> Hashable:
        """The kind of a tensor of a layer: that of its stand-in, be there one or not."""
        if tensor is None or type(tensor) is FakeTensor:
            return None if tensor is None else self._tensor(tensor, met)
        known = self._stand_ins.get(id(tensor))
        if known is None and tensor.is_leaf and is_dense(tensor):
            place = met.setdefault(id(tensor), len(met))
            return place, tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, True
        stand_in = self._of(tensor) if known is None else known[1]
        if type(stand_in) is not FakeTensor:
            raise _Unlike
        return self._tensor(stand_in, met)

    def _held(self, module: nn.Module) -> Hashable:
        """The class of a layer, and the plain values that it holds; None where it does more than its class says."""
        state = module.__dict__
        if not _is_telling(module_operator(type(module))) or state.get("inplace"):
            return None
        if module._modules or "forward" in state or any(map(state.get, HOOKS)):
            return None
        held = {name: value for name, value in state.items() if name not in MODULE_TABLES or name == "training"}
        try:
            return type(module), tuple(held), self._kinds(held.values(), {})
        except _Unlike:
            return None

    def _maker(self, result: Any) -> _Maker | None:
        """What makes tensors like a result that has its memory for itself; None for all others."""
        if type(result) is not FakeTensor or result.layout is not torch.strided or result.fake_mode is not self._mode:
            return None
        if result.constant is not None or result.is_conj() or result.is_neg():
            return None
        shape, strides, dtype, device = tuple(result.shape), result.stride(), result.dtype, result.fake_device
        wants_grad, is_leaf = result.requires_grad, result.is_leaf
        if result.storage_offset() or is_leaf is wants_grad or not _INTEGERS.issuperset(map(type, shape)):
            return None
        if result._is_view():
            return self._maker_of_view(result)
        made = fake_tensor(self._mode, shape, strides, dtype, device)
        if made.untyped_storage().nbytes() != result.untyped_storage().nbytes():
            return None

        def make(mode: Any) -> torch.Tensor:
            made = fake_tensor(mode, shape, strides, dtype, device)
            return own_result(made) if wants_grad else made

        return make

    def _maker_of_view(self, result: Any) -> _Maker | None:
        """What makes tensors like a result that is the whole of another one in a new shape, as linear layers give."""
        base, shape = result._base, tuple(result.shape)
        if base._is_view() or not (base.is_contiguous() and result.is_contiguous()) or base.numel() != result.numel():
            return None
        make_base = self._maker(base)

        def make(mode: Any) -> torch.Tensor:
            assert make_base is not None
            made = make_base(mode)
            with torch._C.DisableTorchFunction(), mode:
                return made.view(shape)

        return None if make_base is None else make


# What the process remembers, by what may change for all operations, and what keeps that alive.
_process: dict[Hashable, tuple[list[Any], dict[Hashable, _Maker]]] = {}


def _known_of_torch() -> dict[Hashable, _Maker]:
    """What the operations of torch are known to give in this process, as long as nobody replaces one of them."""
    functions = [*vars(F).values(), *vars(torch._C._nn).values()]
    settings = tuple(map(id, functions)), cudnn.enabled, opt_einsum.enabled, opt_einsum.strategy
    if sum(len(known) for _, known in [*_process.values()]) > _MOST_KNOWN:
        _process.clear()
    return _process.setdefault(settings, (functions, {}))[1]


def forget_all() -> None:
    """Forget what the process remembers."""
    _process.clear()


def _is_torchs(function: Any) -> bool:
    """Tell whether a function is torch's own: no operation that somebody has declared."""
    if isinstance(function, OpOverload | OpOverloadPacket):
        return isinstance(function, OpOverload) and function.namespace == "aten"
    owner = getattr(function, "__objclass__", None)
    where = getattr(function, "__globals__", {}).get("__name__") or getattr(owner or function, "__module__", None)
    return isinstance(where, str) and where.partition(".")[0] in ("torch", "_operator")


def is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is a plain one that has the whole of its memory, as parameters and most inputs are."""
    if type(tensor) not in (torch.Tensor, nn.Parameter) or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    if tensor.layout is not torch.strided or tensor.device.type not in ("cpu", "cuda") or tensor.grad is not None:
        return False
    if tensor._is_view() or tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg():
        return False
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def _memory(value: Any) -> int | None:
    """Where a stand-in has its memory; None for all else."""
    return value.untyped_storage()._cdata if type(value) is FakeTensor else None


def fake_tensor(
    mode: FakeTensorMode, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A stand-in with memory of its own, without asking the dispatcher for one."""
    return FakeTensor(mode, torch.empty_strided(shape, strides, dtype=dtype, device="meta"), device)


def own_result(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as what an operation gives that is run on one which requires grad: it is no leaf then."""
    with torch._C.DisableTorchFunction(), torch.enable_grad():
        return _Given.apply(torch.empty(0, device="meta").requires_grad_(), [tensor])  # type: ignore


class _Given(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, given: list[torch.Tensor]) -> torch.Tensor:
        return given[0]


def _operator(function: Callable[..., Any]) -> Operator | None:
    """The operator that a function, method or layer is; None where it is not known."""
    if isinstance(function, nn.Module):
        return module_operator(type(function))
    name = getattr(function, "__name__", "")
    if getattr(function, "__objclass__", None) is not None and hasattr(torch.Tensor, name):
        return operator_of_target("call_method", name)
    return operator_of_target("call_function", function)


def _is_telling(operator: Operator | None) -> bool:
    """Tell whether calls of an operator do nothing but give a value, unless an argument says so."""
    return operator is not None and not operator.acts and not operator.writes


_OF_TANGENTS = frozenset({"_make_dual", "_unpack_dual"})  # of what a value was computed from, by forward derivatives


def asks_no_history(function: Callable[..., Any]) -> bool:
    """Tell whether a function is known to look at its arguments alone, and not at what they were computed from."""
    if getattr(function, "__name__", "") in _OF_TANGENTS:
        return False
    operator = _operator(function)
    is_known = operator is not None and not operator.acts
    return is_known or (isinstance(function, OpOverload | OpOverloadPacket) and _runs_below_autograd(function))


def _runs_below_autograd(function: OpOverload[..., Any] | OpOverloadPacket[..., Any]) -> bool:
    """Tell whether an operator is one that a library declares, and runs where tensors have no history."""
    each = [function] if isinstance(function, OpOverload) else [getattr(function, key) for key in function.overloads()]
    names = [one.name() for one in each]
    has_kernel, composite = torch._C._dispatch_has_kernel_for_dispatch_key, "CompositeImplicitAutograd"
    return not any(name.startswith("aten::") or has_kernel(name, composite) for name in names)
