"""Running single nodes of a captured module on fake tensors, its parameters and modules replaced by copies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from graphwright.analysis.shapes.fake_modules import with_fake_tensors
from graphwright.analysis.values import CONTAINERS, tensors_in
from graphwright.ir import Graph, Node
from graphwright.ops import owner_of, read_variable, set_attribute, write_variable
from graphwright.runtime import Interpreter, read_attribute

Facts = tuple[torch.Size, tuple[int, ...], bool, torch.dtype]  # shape, stride, requires_grad, dtype


class StandIns(Interpreter):
    """Calls what the nodes of a module call, on fake tensors; nothing is computed, and the module is left alone.

    `env` is to hold the values of the nodes read. `body_runner` gives what stands for a body of a node, and `written`
    holds the attributes and variables that the program has assigned, `copies` the containers that it has read.
    """

    def __init__(self, gm: nn.Module, body_runner: Callable[[Graph, Node], Any]) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.extra_traceback = False
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.written: dict[Any, Any] = {}  # by path, or by what has a variable and its name
        self.copies: dict[int, tuple[Any, Any]] = {}  # id -> (container, what stands for it), of this run
        self.changed: dict[int, tuple[Tensor, Facts]] = {}  # id -> what has another shape since, and its facts before
        self._outside: dict[int, Any] = {}  # objects that the program does not make, by id
        self._body_runner = body_runner
        self._known: dict[int, tuple[Any, Any]] = {}  # id -> (tensor or module, what stands for it)

    def begin(self) -> None:
        """Take the program to begin: nothing is written yet, and no tensor has been given another shape."""
        for fake, (shape, stride, requires_grad, _) in self.changed.values():  # the mode has one for each tensor
            if any(fake is known for _, known in self._known.values()):
                with torch.no_grad():
                    fake.as_strided_(shape, stride)
                if fake.is_leaf:
                    fake.requires_grad = requires_grad
        self.written, self.copies, self.changed = {}, {}, {}

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Copy the arguments of a call, with fake tensors in place of tensors."""
        given = args, kwargs
        return copy.deepcopy(given, {id(tensor): self.of_tensor(tensor) for tensor in tensors_in(given)})

    def of_tensor(self, tensor: Tensor) -> Tensor:
        """The fake tensor that stands for a tensor."""
        if isinstance(tensor, FakeTensor) and tensor.fake_mode is self.mode:
            return tensor
        known = self._known.get(id(tensor))
        if known is None:
            with torch.inference_mode(False):
                known = self._known[id(tensor)] = tensor, self.mode.from_tensor(tensor)
        return known[1]

    def forget(self) -> None:
        """Take modules and attributes to be others than they were."""
        self._known.clear()

    def body(self, body: Graph, n: Node) -> Any:
        """Return what stands for the body of a branch, loop or transform."""
        return self._body_runner(body, n)

    def fetch_attr(self, target: str) -> Any:
        """Read an attribute: of tensors what stands for them, of modules copies with such."""
        if target in self.written:
            return self.written[target]
        return self._of_value(read_attribute(self.module, target))

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function; variables outside of the program, and of objects there, are read and written as attributes.

        What is done to objects that the program itself makes is done.
        """
        is_of_object = target in (set_attribute, getattr) and len(args) > 1 and id(args[0]) in self._outside
        if target is write_variable or (is_of_object and target is set_attribute):
            owner, name, value = args
            self.written[id(owner if is_of_object else owner_of(owner)), name] = value
            return None
        if target is read_variable or is_of_object:
            owner, name, *_ = args
            key = id(owner if is_of_object else owner_of(owner)), name
            return self.written[key] if key in self.written else self._of_value(target(*args))
        return super().call_function(target, args, kwargs)

    def _of_value(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.of_tensor(value)
        if not isinstance(value, nn.Module):
            return self._own(value)
        known = self._known.get(id(value))
        if known is None:
            with torch.inference_mode(False):
                known = self._known[id(value)] = value, with_fake_tensors(value, self.mode)
        return known[1]

    def _own(self, value: Any) -> Any:
        """What stands for a plain value in one run: a copy of a container, into which the program may put values."""
        if type(value) not in CONTAINERS:
            if type(value).__module__ != "builtins" and not callable(value):
                self._outside[id(value)] = value
            return value
        if id(value) not in self.copies:
            stands = {id(tensor): self.of_tensor(tensor) for tensor in tensors_in(value)}
            self.copies[id(value)] = value, copy.deepcopy(value, stands)
        return self.copies[id(value)][1]

    def write_attribute(self, path: str, value: Any) -> None:
        """Keep what the program assigns to an attribute."""
        self.written[path] = value
