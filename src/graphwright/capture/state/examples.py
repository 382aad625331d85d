"""Example values: what each operation gives for the example inputs.

Usually fake tensors: capture then allocates nothing and runs no kernel. Where sizes depend on data (nonzero, boolean
indexing) fake tensors cannot answer, and copies of the real inputs are used instead.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    in_kernel_invocation_manager,
)

from graphwright.capture.state.alike_results import (
    AlikeResults,
    StandIns,
    asks_no_history,
    fake_tensor,
    is_dense,
    own_result,
)
from graphwright.capture.state.draws import OwnDraws, WrittenOutside, unmoved
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.running import capturing, stopping
from graphwright.runtime import Shells, copy_slots, is_compiled

if TYPE_CHECKING:
    from graphwright.capture.state.interception import Hearing

_T = TypeVar("_T")


# torch remembers what operations on fake tensors gave, by shapes and numbers, and forgets nothing by itself: a process
# that captures one new program after the other would grow for ever.
_MOST_REMEMBERED = 2_048

_OF_TORCH = frozenset({"aten", "prim", "prims"})  # operations that run nothing of the program
_UNANSWERED = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)


_ATEN, _DEVICE = torch.ops.aten, torch.ops.prim.device.default
_VIEWS = frozenset({
    _DEVICE, _ATEN.view.default, _ATEN.transpose.int, _ATEN.permute.default, _ATEN.expand.default, _ATEN.t.default,
    _ATEN.unsqueeze.default, _ATEN.squeeze.dim, _ATEN.select.int, _ATEN.slice.Tensor, _ATEN.alias.default,
    _ATEN.detach.default,
})  # fmt: skip


_IN_C = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


class NeedsRealValues(BaseException):
    """Raised during capture when an operation has no answer on fake tensors: capture again with real ones.

    A BaseException, so that a model's own `except Exception` does not swallow it.
    """


class _Fakes(FakeTensorMode):
    """Runs operations of torch as `quietly` says: what listens to the program is to hear nothing of theirs."""

    quietly: Callable[[Callable[[], Any]], Any] | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch has torch.compile switched off around each operation: it runs in no function compiled."""
        return False

    @functools.cached_property
    def avoid_device_init(self) -> bool:
        """Whether no device is to be looked for, which the mode asks each time that it is entered."""
        return bool(super().avoid_device_init)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.quietly is None or func.namespace not in _OF_TORCH:
            if func in _VIEWS and not kwargs and self._has_own(args) and not self.in_kernel_invocation:
                return self._view(func, args)
            return super().__torch_dispatch__(func, types, args, kwargs)
        dispatch = super().__torch_dispatch__
        return self.quietly(lambda: dispatch(func, types, args, kwargs))

    def _has_own(self, args: Any) -> bool:
        """Tell whether the first of some arguments is a stand-in of this mode, of no known value."""
        first = args[0]
        return type(first) is FakeTensor and first.fake_mode is self and first.constant is None

    def _view(self, func: Any, args: Any) -> Any:
        """What an operation gives that only looks at a tensor in another way, or the device that it says it is on.

        As the mode itself does, without what that looks after for all other operations: it takes most of the time.
        """
        if func is _DEVICE:
            return args[0].fake_device
        with in_kernel_invocation_manager(self):
            made = func(*args)
        return FakeTensor(self, made, args[0].fake_device)


class Examples:
    """Converts tensors and modules to stand-ins on which operations may run, and runs them.

    Everything is converted: neither the user's tensors nor the user's modules ever take part.
    """

    are_there = True  # a program may be captured without any

    def __init__(self, real: bool = False, keeps_history: bool = False) -> None:
        self.is_real = real
        self.is_running = False  # whether an operation is run on stand-ins right now
        # While something listens to what the program does: runs what is none of its doing; and what may be, in there.
        self.quietly: Callable[[Callable[[], Any]], Any] | None = None
        self._loudly: Callable[[Callable[[], Any]], Any] | None = None
        self.watch: Hearing | None = None  # what listens to all of the program
        # What is to be called before an operation is run, and after it: it may do what the program must not.
        self.between: tuple[Callable[[], Any], Callable[[], Any]] | None = None
        if FakeTensorMode.cache_info().size > _MOST_REMEMBERED:
            FakeTensorMode.cache_clear()
        self._mode: Any = OwnDraws() if real else _Fakes(allow_non_fake_inputs=True)
        self._known: StandIns = {}
        self.written = WrittenOutside()
        self._storages: dict[int, torch.Tensor] = {}  # a tensor without data of each, of those that are faked here
        # Not where the program calls what may look into how a value was computed, as `torch.autograd.grad` does.
        self.alike = None if real or keeps_history else AlikeResults(self._mode, self._known, self.of)
        self.asks_history = False
        self._modules: dict[int, nn.Module] = {}
        self._originals: dict[int, nn.Module] = {}

    def listen(
        self,
        quietly: Callable[[Callable[[], Any]], Any] | None = None,
        loudly: Callable[[Callable[[], Any]], Any] | None = None,
    ) -> None:
        """Have operations of torch, and what captures do themselves, be run by what stops listening meanwhile.

        What is run on stand-ins in there, and may be the program's, is run by what listens again.
        """
        self.quietly = self._mode.quietly = quietly
        self._loudly = loudly

    def quiet(self, run: Callable[[], _T]) -> _T:
        """Do something that is none of the program's doing: what listens to that does not hear it."""
        return run() if self.quietly is None else self.quietly(run)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the stand-in of a tensor, always the same one."""
        known = self._known.get(id(tensor))
        if known is not None:
            return known[1]
        with capturing(None), torch._C.DisableTorchFunction(), torch.no_grad():
            if self.is_real:
                stand_in = tensor.detach().clone().requires_grad_(tensor.requires_grad)
            else:
                leaf = tensor if tensor.is_leaf else tensor.detach().requires_grad_(tensor.requires_grad)
                stand_in = self._fake(leaf) if is_dense(leaf) else self._mode.from_tensor(leaf, static_shapes=True)
        self._known[id(tensor)] = tensor, stand_in
        return stand_in

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the mode's own conversion makes of a dense tensor, without what that looks after for all others."""
        storage = tensor.untyped_storage()._cdata
        known = self._storages.get(storage)
        if known is None:
            meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            self._storages[storage] = meta
        else:  # of the same memory as another one
            meta = torch.empty(0, dtype=tensor.dtype, device="meta").set_(
                known.untyped_storage(), 0, tensor.shape, tensor.stride()
            )
        made = FakeTensor(self._mode, meta, tensor.device)
        if isinstance(tensor, nn.Parameter):
            made._is_param = True
        self._mode.fake_tensor_converter.set_tensor_memo(tensor, made)
        return made.requires_grad_(tensor.requires_grad)

    def like(self, example: torch.Tensor) -> torch.Tensor:
        """Return a stand-in of the same kind as one of another capture: the result of an operation, with its data."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            if self.is_real:
                made = example.detach().clone()
            else:
                made = fake_tensor(self._mode, example.shape, example.stride(), example.dtype, example.device)
            return own_result(made) if example.requires_grad else made

    def give(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], is_opaque: bool) -> Any:
        """Run an operation on stand-ins, or tell what it gives from others like it; `is_opaque`: none of torch's."""
        if is_opaque:
            with self._opaquely((args, kwargs)) if self.is_real else unmoved():
                return self.run(function, args, kwargs)
        if self.alike is None or self.between is not None:
            return self.run(function, args, kwargs)
        return self.alike.run(function, args, kwargs, self.run)

    @contextlib.contextmanager
    def _opaquely(self, given: Any) -> Iterator[None]:
        """Run what is not looked into, which may write to what is none of the stand-ins."""
        with torch._C.DisableTorchFunction():
            self.written.start((given, [stand_in for _, stand_in in self._known.values()]))
        before, self._mode.written = self._mode.written, self.written
        try:
            with unmoved():
                yield
        finally:
            self._mode.written = before

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation or layer on stand-ins. Raises NeedsRealValues where that takes data which fake ones lack."""
        if self.alike is not None and not asks_no_history(function):
            self.asks_history, self.alike = self.alike.lack_history, None
            if self.asks_history:
                name = getattr(function, "__name__", type(function).__name__)
                raise stopping(Restart(f"{name} may ask how values were computed"))
        if isinstance(function, nn.Module) and id(function) not in self._originals:
            function = self.module(function)
        if self.between is not None and not self.is_running:
            self.between[0]()
        before, self.is_running = self.is_running, True
        try:
            with torch._C.DisableTorchFunction(), self._mode:
                if self._loudly is not None and type(function) not in _IN_C:
                    return self._loudly(lambda: function(*args, **kwargs))
                return function(*args, **kwargs)
        except _UNANSWERED as error:
            raise stopping(NeedsRealValues(str(error))) from error
        finally:
            self.is_running = before
            if self.between is not None and not before:
                self.between[1]()

    def stand_in(self, module: nn.Module, shells: Shells | None) -> nn.Module:
        """What a module of the program, or its shell, is for the examples; others are answered as they are."""
        is_of_program = shells is not None and shells.path(module) is not None
        return self.module(shells.original(module)) if shells is not None and is_of_program else module

    def module(self, module: nn.Module) -> nn.Module:
        """Return a module of the same class whose parameters, buffers and children are stand-ins."""
        known = self._modules.get(id(module))
        if known is not None:
            return known
        if is_compiled(module):
            self._modules[id(module)] = copied = copy.deepcopy(module)
            self._originals[id(copied)] = module
            return copied
        shadow: nn.Module = object.__new__(type(module))
        self._modules[id(module)] = shadow
        self._originals[id(shadow)] = module
        copy_slots(module, shadow)
        state = shadow.__dict__
        state.update(module.__dict__)
        for name, value in module.__dict__.items():
            if type(value) is list or isinstance(value, torch.Tensor):
                state[name] = self._attribute(value)
        for table in ("_parameters", "_buffers"):
            state[table] = stand_ins = {**state[table]}
            for name, tensor in stand_ins.items():
                if tensor is not None:
                    stand_ins[name] = self.of(tensor)
        state["_modules"] = children = {**module._modules}
        for name, child in children.items():
            if child is not None:
                children[name] = self.module(child)
        state["_compiled_call_impl"] = None
        return shadow

    def original(self, module: nn.Module) -> nn.Module:
        """Return the module behind a stand-in; other modules are answered as they are."""
        return self._originals.get(id(module), module)

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.of(value)
        if type(value) is list and any(isinstance(item, torch.Tensor) for item in value):
            return [self._attribute(item) for item in value]  # an RNN's flat weights
        return value
