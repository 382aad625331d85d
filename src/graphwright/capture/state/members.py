"""What a program is made of: its modules and their tensors, looked at once for all passes.

A pass runs on shells of the modules. Filling a shell and watching it costs the more, the more layers there are, and few
passes reach all of them. So the shells of modules that hold nothing but plain values, tensors and modules wait until
the program takes them out of the module around them. Nobody else can change what those hold: what others may share - a
list, a hook, an object - is copied, or noted, before the program runs.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn

from graphwright.runtime import MODULE_TABLES, GraphModule, Tree

if TYPE_CHECKING:
    from graphwright.capture.state.plan import Plan

Make: TypeAlias = tuple[Hashable, ...]  # for each module of a tree its class, and the shapes of its parameters

_HELD_AS_MODULE = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"})
_ATOMS = frozenset({bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device})
_MOST_NEXT = 8  # modules made alike that are looked at for being alike
_PLAIN = _ATOMS | {torch.Tensor, nn.Parameter}
_CONTAINERS = (list, tuple, dict, set, collections.deque)


class Members:
    """The modules of a program, of which `is_leaf` tells which are one node."""

    def __init__(self, root: nn.Module, is_leaf: Callable[[nn.Module, str], bool]) -> None:
        self.tree = Tree(root)
        self.entered: list[nn.Module] = []  # those that are no leaves
        self.of_class: dict[type, list[nn.Module]] = collections.defaultdict(list)
        self.tensors: dict[int, str] = {}  # where each tensor is, by its id: at the first of several places
        self.placed: list[tuple[str, str, torch.Tensor]] = []  # the same: path of the module, name, and the tensor
        self.others: dict[str, dict[str, str]] = {}  # by module, what is in further places: names, and the first places
        self.in_vain: collections.Counter[Make] = collections.Counter()  # looks at calls that cannot be copied
        self._classes: set[type] = set()  # that were asked for
        self._makes: dict[int, Make] = {}  # of their modules, by id
        self._counts: collections.Counter[Make] = collections.Counter()
        self._patient: dict[str, int] = {}  # the ids of modules whose shells may wait, by their paths
        objects: set[int] = set()  # those that are noted as a pass starts
        met: set[tuple[type, bool]] = set()
        for module, path in self.tree.modules:
            self.of_class[type(module)].append(module)
            is_one_node = is_leaf(module, path)
            if not is_one_node:
                self.entered.append(module)
            if id(module) in self.tree.compiled:
                continue
            prefix = f"{path}." if path else ""
            for table in (module._parameters, module._buffers, module.__dict__):
                for name, value in table.items():
                    if isinstance(value, torch.Tensor):
                        first = self.tensors.setdefault(id(value), prefix + name)
                        if first != prefix + name:
                            self.others.setdefault(path, {})[name] = first
                        else:
                            self.placed.append((path, name, value))
            for name, child in module._modules.items():
                first = self.tree.paths.get(id(child), prefix + name)
                if first != prefix + name:
                    self.others.setdefault(path, {})[name] = first
            kind = type(module), is_one_node
            if kind in met and _is_patient(module, objects):  # the first of a class shows what code there is
                self._patient[path] = id(module)
            else:
                met.add(kind)
                objects.update(id(value) for value in module.__dict__.values() if not isinstance(value, _CONTAINERS))

    def waiting(self, plan: Plan) -> set[int]:
        """The ids of modules whose shells may wait: of none about which the plan knows something."""
        planned = {path.rpartition(".")[0] for path, _ in plan.kept}
        planned |= {name.removeprefix("self.").rpartition(".")[0] for name in plan.dynamic}
        planned |= {path for path, _ in plan.in_place}
        return {number for path, number in self._patient.items() if path not in planned}

    def made_like(self, module: nn.Module) -> tuple[Make, int]:
        """What a module has in common with those that may be alike, and how many there are of these, leaves aside."""
        if type(module) not in self._classes:
            self._classes.add(type(module))
            for each in self.entered:
                if type(each) is type(module):
                    make = self._makes[id(each)] = _make_of(each)
                    self._counts[make] += 1
        make = self._makes.get(id(module), ())
        return make, self._counts[make]

    def next_like(self, module: nn.Module, make: Make) -> Iterator[nn.Module]:
        """Iterate over the next modules that have in common with one what `make` says, in the order of the program."""
        found = itertools.dropwhile(lambda each: each is not module, self.entered)
        alike = (each for each in found if each is not module and self._makes.get(id(each)) == make)
        return itertools.islice(alike, _MOST_NEXT)


def _make_of(module: nn.Module) -> Make:
    with torch._C.DisableTorchFunction():
        return tuple(
            [
                (type(each), *[tensor.shape for tensor in each._parameters.values() if tensor is not None])
                for each in module.modules()
            ]
        )


def _is_patient(module: nn.Module, objects: set[int]) -> bool:
    """Tell whether a module shares nothing that changes, short of objects that were noted for another one."""
    if isinstance(module, GraphModule) or hasattr(type(module), "__slots__"):
        return False
    is_of_torch = type(module).__module__.startswith("torch.nn.")
    for name, value in module.__dict__.items():
        kind = type(value)
        if name in MODULE_TABLES:
            if name not in _HELD_AS_MODULE and kind not in _ATOMS and value:  # it has hooks
                return False
        elif kind not in _PLAIN and id(value) not in objects:
            is_plain = kind is tuple or (kind is list and is_of_torch)  # a list that nobody else has
            if not is_plain or any(type(item) not in _ATOMS for item in value):
                return False
    return True
