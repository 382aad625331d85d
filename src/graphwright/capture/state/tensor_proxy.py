"""Tensors of the program being captured."""

from __future__ import annotations

import copy
import dataclasses
import functools
import opcode
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.overrides
from torch import nn
from torch.utils._pytree import tree_leaves

from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import refusal, running
from graphwright.errors import CaptureError
from graphwright.ir import Node
from graphwright.source import user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


_NOTHING: dict[int, int | Dim] = {}  # never written to
_MAKERS = (nn.Parameter.__new__.__code__, nn.Buffer.__new__.__code__)
_UNPACK = opcode.opmap["UNPACK_SEQUENCE"]
_NONE: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True, eq=False)
class Dim:
    """A size that inputs decide: the same object for all tensors that operations give this size."""

    hint: int


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """What `copy.deepcopy` gives for a tensor, without data too."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    """What `copy.copy` gives for a tensor, without data too."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


@dataclasses.dataclass(frozen=True, eq=False)
class Noted:
    """What a node has for its type while it is captured, which its copies have, too: the tensor that it computes."""

    tensor: TensorProxy
    annotation: Any  # its type

    @property
    def kind(self) -> Any:
        """What tells the tensor from others; None where it may be no tensor in a run."""
        example = self.tensor.example
        is_sure = self.tensor.optional is None and not self.tensor.is_mixed
        return (example.dtype, example.dim(), example.device) if is_sure else None


def note_tensor(node: Node, tensor: TensorProxy) -> None:
    """Note which tensor a node computes."""
    if type(node.type) is not Noted:
        node.type = Noted(tensor, node.type)


class TensorProxy(torch.Tensor):
    """A tensor that the program computes: a real `torch.Tensor` to isinstance and to C++, without data.

    `example` is what it is for the example inputs; the node that computes it is made by `recorder` at need. Where
    one side of a branch gave None, `optional` is the place of that branch: a run may find None here, and `is_none`
    tells whether the example does, as far as that is known. `sizes` is what is known of its sizes, by dimension counted
    from the end: a number that no input changes, or a size that other tensors have, too; `loose` are those that differ
    from one iteration of a loop to the next; what `is_mixed` may be a number in a run, where a loop starts at zero, or
    one side of the branch at `mixed_at` gave True or False. An input knows the names of attributes that it was `given`.
    """

    recorder: TypedCapture
    example: torch.Tensor
    _node: Node | None
    _make: Callable[[], Node] | None
    optional: Any
    is_none: bool | None
    sizes: dict[int, int | Dim]
    loose: frozenset[int]
    is_mixed: bool
    mixed_at: Any
    given: frozenset[str]

    @staticmethod
    def make(
        recorder: TypedCapture,
        example: torch.Tensor,
        node: Node | None,
        make: Callable[[], Node] | None = None,
        sizes: dict[int, int | Dim] = _NOTHING,
    ) -> TensorProxy:
        """Make the proxy of a node, or of one that `make` will make when it is needed."""
        with torch._C.DisableTorchFunction():
            if example.layout is torch.strided:
                proxy = torch.Tensor._make_wrapper_subclass(
                    TensorProxy, example.shape, example.stride(), example.storage_offset(), None, example.dtype,
                    example.layout, example.device, False, example.requires_grad,
                )  # fmt: skip
            else:
                proxy = torch.Tensor._make_wrapper_subclass(
                    TensorProxy, example.shape, dtype=example.dtype, device=example.device,
                    requires_grad=example.requires_grad,
                )  # fmt: skip
        vars(proxy).update(
            recorder=recorder, example=example, _node=node, _make=make, optional=None, is_none=False, sizes=sizes,
            loose=_NONE, is_mixed=False, mixed_at=None,
        )  # fmt: skip
        if node is not None and recorder.plan.has_rests:
            note_tensor(node, proxy)
        return proxy

    def node_of(self) -> Node:
        """The node that computes the tensor."""
        if self._node is None:
            assert self._make is not None
            self._node = self._make()
            if self.recorder.plan.has_rests:
                note_tensor(self._node, self)
        return self._node

    def __iter__(self) -> Iterator[Any]:  # torch's own does not ask the function mode
        frame = sys._getframe(1)
        if frame.f_code.co_code[frame.f_lasti] == _UNPACK and self.example.dim():  # `a, b = x`
            return iter(self.unbind())
        rows = self.recorder.questions.answer(self.recorder.numbers.size_symbol(self, 0))
        return iter([self[i] for i in range(rows)])

    _stands_for: type = torch.Tensor  # a parameter that the program has made stands for one
    __class__ = property(operator.attrgetter("_stands_for"))  # in C: it is asked for often

    def class_asked(self, of_subclass: bool) -> type:
        """The class, for a check at the start of a captured program, which is a part of this one."""
        self.recorder.ledger.kind_asked()
        if of_subclass:
            self.recorder.ledger.tensor(self, "class", self.recorder.where() or "")
        return self._stands_for

    def __len__(self) -> int:  # torch's own is on the stack, and no function that asks
        self.recorder.questions.staging.stage(user_frame(sys._getframe(1)))
        return operator.index(self.recorder.questions.answer(self.recorder.numbers.size_symbol(self, 0)))

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return self._text(repr) if self.recorder.is_running else self._shown()

    def _shown(self) -> str:
        """What people see of it: its shape and dtype."""
        example = self.example
        return f"TensorProxy({'x'.join(map(str, example.shape)) or 'scalar'}, {example.dtype})"

    def __str__(self) -> str:
        return self._text(str)

    def __format__(self, spec: str) -> str:
        return self._text(lambda example: format(example, spec))

    def _text(self, write: Callable[[torch.Tensor], str]) -> str:
        """The text of a tensor: in a message it decides nothing; elsewhere its data would."""
        if not self.recorder.questions.messages.is_in_message():
            self.recorder.questions.staging.stage(user_frame(sys._getframe(1)))  # a message may show in converted code
            answer = functools.partial(self.recorder.examples.run, write, (self.example,), {})
            return str(self.recorder.questions.refusals.refuse_data(self, "as text", answer))
        return self._shown()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in TensorProxy.__annotations__ or hasattr(torch.Tensor, name):
            return
        frame = sys._getframe(1)
        if frame.f_code in _MAKERS and running() is self.recorder:
            self.recorder.writes.made(self, name, frame)
        if user_frame(frame) is frame and running() is self.recorder:
            self.recorder.writes.attribute(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if vars(self).get("given") is not None and not name.startswith("__") and running() is self.recorder:
            self.recorder.writes.read_of_input(self, name, sys._getframe(1))
        raise AttributeError(f"'Tensor' object has no attribute {name!r}")

    def as_subclass(self, cls: type) -> Any:  # torch's own does not ask the function mode
        if cls is torch.Tensor:
            return self.recorder.record("call_method", "as_subclass", torch.Tensor.as_subclass, (self, cls), {})
        return self.recorder.questions.refusals.refuse_here(
            f"the program makes a tensor of class {cls.__qualname__}, which may do anything in operations on it",
            "keep the function that does so one node: leaf_functions=[...]",
        )

    def __hash__(self) -> int:
        frame = sys._getframe(1)
        if user_frame(frame) is frame and running() is self.recorder:
            self.recorder.callers.hashed(self)
        return id(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.recorder.record("call_function", copy.deepcopy, _copied, (self,), {})

    def __copy__(self) -> Any:
        return self.recorder.record("call_function", copy.copy, _shared, (self,), {})

    @staticmethod
    def _reflected(name: str) -> Callable[[TensorProxy, Any], Any]:
        """The method for `2 * x`: torch's own is `x.mul(2)`, which says no more what the program has on the left."""
        method = getattr(torch.Tensor, name)

        def reflected(self: TensorProxy, other: Any) -> Any:
            if isinstance(other, torch.Tensor):  # whose own method comes first
                return NotImplemented
            return torch.overrides.handle_torch_function(method, (self,), self, other)

        return reflected

    __radd__, __rmul__ = _reflected("__radd__"), _reflected("__rmul__")
    __rand__, __ror__, __rxor__ = map(_reflected, ("__rand__", "__ror__", "__rxor__"))

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        recorder = running()
        if recorder is not None:
            with_examples(recorder).callers.reached_compiler()
        raise refusal(
            CaptureError(
                f"{getattr(function, '__name__', function)!r} was called on a tensor of the captured program outside "
                "of its capture",
                fix="do not keep tensors of the captured forward in globals or closures",
            )
        )

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        proxy = next(leaf for leaf in tree_leaves((args, kwargs)) if type(leaf) is TensorProxy)
        raise proxy.recorder.callers.reached_cpp(function)


def is_uncertain(value: Any) -> bool:
    """Tell whether a value is a tensor, or what one side of a branch gave: None when the program runs, or a bool."""
    return type(value) is TensorProxy and not (value.optional is None and value.mixed_at is None)
