"""The tensors, arrays and devices that a program has, and the nodes that read them."""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy
import torch

from graphwright.capture.outside.made_tensors import Owner, lender, memory_of
from graphwright.capture.proxies.calls_as_written import module_name
from graphwright.capture.state.ledger import Fact, join_dtypes
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.runtime import any_of
from graphwright.source import user_frame

if TYPE_CHECKING:
    from graphwright.capture.state import protocol
    from graphwright.capture.state.protocol import TypedCapture


class HeldTensors:
    """What the program of one capture holds: tensors of its modules by path, others as constants of the graph."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._started = torch._C._autograd._get_sequence_nr()  # what autograd notes from here on has a higher number
        self._paths: dict[int, str] = {}  # id of a parameter, buffer or tensor attribute -> its dotted path
        self._devices: dict[int, tuple[torch.device, torch.Tensor]] = {}
        self.owners: dict[str, protocol.Owner] = {}  # what constants live on, by their names
        self._lasting: set[int] = set()  # the ids of those that a cache has
        self._lenders: dict[int, Owner] = {}  # what has the memory of tensors, by where that is
        self._arrays: dict[int, tuple[Any, torch.Tensor]] = {}  # of the program, by id: themselves, and as tensors

    def note(self, tensor: torch.Tensor, path: str) -> None:
        """Note where in the program a tensor is; one that is in several places is at the first."""
        self._paths.setdefault(id(tensor), path)

    def note_all(self, paths: dict[int, str]) -> None:
        """Note where tensors are, by their ids."""
        self._paths.update(paths)

    def path(self, tensor: torch.Tensor) -> str | None:
        """Where in the program a tensor is, None for one that is in none of its modules."""
        return self._paths.get(id(tensor))

    def take_fact(self, tensor: torch.Tensor, fact: Fact, at: str = "") -> None:
        """Take the dtype or shape of a tensor of the modules for granted, as what else is read of these.

        Instead of its dtype it may be those that are as good. `at` is the user's line.
        """
        self._take(tensor, fact, self._paths.get(id(tensor)), at)

    def take_fact_at(self, path: str, fact: Fact, at: str = "") -> None:
        """The same of the tensor at a path, if it is one of the modules."""
        shells = self._recorder.shells
        try:
            tensor = None if shells is None else operator.attrgetter(path)(shells.root_module)
        except AttributeError:  # a constant
            return
        if isinstance(tensor, torch.Tensor):
            self._take(tensor, fact, path, at)

    def _take(self, tensor: torch.Tensor, fact: Fact, path: str | None, at: str) -> None:
        if path is None:
            return
        with torch._C.DisableTorchFunction():
            if not isinstance(fact, str) and tensor.dtype in fact:
                fact, said = "dtype", any_of(fact)
            else:
                fact = fact if isinstance(fact, str) else "dtype"
                said = str(getattr(tensor, fact))
        owner, name = self._owner_of(path)
        of_module = self._recorder.ledger.module(owner)
        if fact == "dtype":
            before = of_module.get("dtypes", {})
            of_module["dtypes"] = join_dtypes({name: said}, before)
            if at and of_module["dtypes"][name] != before.get(name):
                of_module.setdefault("asked", {})[name] = at
        else:
            of_module.setdefault(f"{fact}s", {})[name] = said

    def _owner_of(self, path: str) -> tuple[str, str]:
        """The path of the module that a tensor is inside of, and its path there: of an object, more than a name."""
        atoms, count = path.split("."), 0
        module: Any = self._recorder.shells.root_module if self._recorder.shells is not None else None
        while module is not None and count < len(atoms) - 1:
            module = module._modules.get(atoms[count])
            count += module is not None
        return ".".join(atoms[:count]), ".".join(atoms[count:])

    def node(self, tensor: torch.Tensor) -> Node:
        """The node that reads a tensor of the module, or a constant that no module has."""
        recorder = self._recorder
        path = self._paths.get(id(tensor))
        if path is None:
            is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
            is_view = not is_wrapped and self._is_view(tensor)
            self._refuse_made(tensor, is_view)
            constants = recorder.root.graph.constants
            path = f"_tensor_constant{len(constants)}"
            with torch._C.DisableTorchFunction():  # it itself: it may be frozen, and its gradient is the user's
                constants[path] = tensor.detach() if is_wrapped else tensor
                if not is_wrapped and id(tensor) not in self._lasting:
                    self.owners[path] = self._lenders.get(memory_of(tensor)) or Owner(tensor=tensor, is_view=is_view)
            self._paths[id(tensor)] = path
            recorder.keep.append(tensor)
        known = recorder.region.attributes
        node = known.get(path)
        if node is None:
            node = known[path] = recorder.node("get_attr", path, (), {}, module_name(path))
        return node

    def read(self, values: Iterable[Any]) -> None:
        """Have those of the values that are tensors of the module read now: what holds one may be written over."""
        for value in values:
            if id(value) in self._paths and isinstance(value, torch.Tensor):
                self.node(value)

    def _is_view(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor that no module has has the memory of one that a module has."""
        shells, memory = self._recorder.shells, memory_of(tensor)
        if shells is None or memory == 0:
            return False
        held = itertools.chain(shells.root_module.parameters(), shells.root_module.buffers())
        return any(memory_of(each) == memory for each in held)

    def _refuse_made(self, tensor: torch.Tensor, is_view: bool) -> None:
        """Refuse what was computed of the program's tensors while it ran, by a call that was not recorded.

        A call of a converted function may be: start again with the one that runs, where it is not.
        """
        with torch._C.DisableTorchFunction():
            made_by = tensor.grad_fn
        if made_by is not None and made_by._sequence_nr() < self._started:
            made_by = None
        if made_by is not None or is_view:
            staging = self._recorder.questions.staging
            staging.convert_all(staging.convertible(user_frame(sys._getframe(1))))
        if made_by is not None:
            self._recorder.questions.refusals.refuse_here(
                f"the program uses a tensor that it has made by a call which cannot be recorded ({made_by.name()})",
                "keep the function that makes it one node: leaf_functions=[...]",
            )

    def array_node(self, array: numpy.ndarray[Any, Any]) -> Node | None:
        """The node that gives an array which the program holds: a constant tensor that shares its memory."""
        recorder = self._recorder
        known = self._arrays.get(id(array))
        if known is None:
            try:
                known = self._arrays[id(array)] = array, torch.from_numpy(array)
                self.note_lender(array, known[1])
            except TypeError as refused:
                recorder.questions.refusals.refuse_here(f"cannot write this array into the graph: {refused}", None)
                return None
        return recorder.node("call_method", "numpy", (self.node(known[1]),), {}, "array")

    def note_lasting(self, tensor: torch.Tensor) -> None:
        """Note that a tensor which the program has made is there in other calls, too: a cache has it."""
        self._lasting.add(id(tensor))

    def note_lender(self, array: Any, tensor: torch.Tensor) -> None:
        """Note whose memory a tensor has."""
        self._lenders[memory_of(tensor)] = lender(array)

    def device_of(self, tensor: torch.Tensor, is_only_handed_on: bool = True) -> torch.device:
        """The device of a tensor, as an object of its own, whose identity tells its tensor.

        One of a tensor of the modules that is asked for is taken for granted.
        """
        is_of_program = isinstance(tensor, TensorProxy)
        device = torch.device(str(tensor.example.device if isinstance(tensor, TensorProxy) else tensor.device))
        if is_of_program or id(tensor) in self._paths:
            self._devices[id(device)] = device, tensor
        if not is_of_program and not is_only_handed_on:
            self.take_fact(tensor, "device")
        return device

    def device_node(self, device: torch.device) -> Node | torch.device:
        """The node that reads a device from the tensor that it is of; a device that the program has made is itself."""
        recorder, held = self._recorder, self._devices.get(id(device))
        if held is None:
            return device
        tensor, known = held[1], recorder.region.attributes
        node = known.get(id(tensor))
        if node is None:
            node = recorder.node("call_function", getattr, (recorder.argument(tensor), "device"), {}, "device")
            known[id(tensor)] = node
            recorder.keep.append(tensor)
        return node
