"""A model on one screen: its tree of modules, with the shapes that they give, parameters and operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from graphwright.analysis.costing.costs import CostCounter, count
from graphwright.analysis.tables import Table, bytes_as_text, number_as_text
from graphwright.ir import Node
from graphwright.runtime import call_of, captured_for


@dataclass(frozen=True, slots=True)
class ModuleSummary:
    """One module of a tree.

    name: its dotted path, "" for the whole program. kind: its class. depth: of how many modules it is inside.
    shapes: of the tensors that it gives; none where nothing outside of it reads them.
    parameters: elements of parameters that run in it, each tensor once. flops: floating-point operations.
    share: of the operations of the whole program, from 0 to 1.
    """

    name: str
    kind: str
    depth: int
    shapes: tuple[tuple[int, ...], ...]
    parameters: int
    flops: int
    share: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The modules of a program, outer ones first. Printed, it is a table, in which equal neighbours are one line.

    parameters, bytes: of all parameters that the model has; trainable: elements of those that want gradients.
    """

    modules: tuple[ModuleSummary, ...]
    parameters: int
    trainable: int
    bytes: int

    def __getitem__(self, name: str) -> ModuleSummary:
        for module in self.modules:
            if module.name == name:
                return module
        raise KeyError(f"no module that runs is called {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)

    def table(self) -> Table:
        """The table that `str` and rich show."""
        rows = [
            (
                "  " * module.depth + shown,
                f"{module.kind} x{times}" if times > 1 else module.kind,
                ", ".join(map(str, module.shapes)),
                number_as_text(module.parameters),
                number_as_text(module.flops),
                f"{module.share:.1%}",
            )
            for module, shown, times in _folded([*self.modules])
        ]
        total = self.modules[0]
        note = (
            f"{number_as_text(self.parameters)} parameters, {number_as_text(self.trainable)} trainable, "
            f"{bytes_as_text(self.bytes)}; {number_as_text(total.flops, 'FLOP')}"
        )
        return Table(("module", "class", "gives", "parameters", "flops", "share"), rows, (note,))

    def __str__(self) -> str:
        return str(self.table())

    def __rich__(self) -> Any:
        """What rich prints in place of this."""
        return self.table()


def summary(gm_or_model: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Summary:
    """Show a model on one screen: the tree of its modules, what they give, their parameters and operations.

    A captured module runs once on the inputs; a model that is not captured is captured for them. Nothing is left
    changed. Modules that this call does not run are left out.

    >>> import torch
    >>> block = lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    >>> print(summary(nn.Sequential(block(), block(), nn.Linear(8, 2)), torch.ones(3, 8)))
    module  class          gives   parameters  flops   share
    (all)   Sequential     (3, 2)         162    864  100.0%
      0-1   Sequential x2  (3, 8)          72    384   44.4%
        0   Linear         (3, 8)          72    384   44.4%
        1   ReLU           (3, 8)           0      0    0.0%
      2     Linear         (3, 2)          18     96   11.1%
    162 parameters, 162 trainable, 648 B; 864 FLOP
    """
    given, named = call_of(args, kwargs)
    gm = captured_for(gm_or_model, given, named)
    counter = count(gm, given, named)
    report = counter.report()
    gives = _shapes_of_modules(counter)
    whole = report.total.flops or 1
    modules = [
        ModuleSummary(
            cost.name, cost.kind, cost.name.count(".") + 1 if cost.name else 0, gives.get(cost.name, ()),
            cost.parameters, cost.flops, cost.flops / whole,
        )
        for cost in report.modules
    ]  # fmt: skip
    every = [*gm.parameters()] if isinstance(gm, nn.Module) else []
    return Summary(
        tuple(modules),
        sum(one.numel() for one in every),
        sum(one.numel() for one in every if one.requires_grad),
        sum(one.numel() * one.element_size() for one in every),
    )


def _shapes_of_modules(counter: CostCounter) -> dict[str, tuple[tuple[int, ...], ...]]:
    """What each module gives: the last value in it that is read outside of it."""
    found: dict[str, tuple[tuple[int, ...], ...]] = {}
    for node in counter.graph.all_nodes():
        if node.op == "output":
            if node.graph is counter.graph:
                found[""] = counter.shapes.get(node, ())
            continue
        path = _path(node)
        while path and any(not _is_inside(user, path) for user in node.users):
            if node in counter.shapes and node.op not in ("placeholder", "get_attr"):
                found[path] = counter.shapes[node]
            path = path.rpartition(".")[0]
    return found


def _path(node: Node) -> str:
    if node.op == "call_module":
        return str(node.target)
    return node.origin.module if node.origin is not None else ""


def _is_inside(node: Node, path: str) -> bool:
    return node.op != "output" and f"{_path(node)}.".startswith(f"{path}.")


# ---- equal neighbours


def _folded(modules: list[ModuleSummary]) -> Iterator[tuple[ModuleSummary, str, int]]:
    """The lines of a tree: a module, the last part of its name, and of how many equal neighbours it is the first."""
    number = 0
    while number < len(modules):
        module = modules[number]
        size = _size(modules, number)
        last, times = number, 1
        after = number + size
        while after < len(modules) and _is_numbered(modules[after]) and _look(modules, after) == _look(modules, number):
            last, times, after = after, times + 1, after + size
        name = module.name.rpartition(".")[2] or "(all)"
        yield module, f"{name}-{modules[last].name.rpartition('.')[2]}" if times > 1 else name, times
        yield from _folded(modules[number + 1 : number + size])
        number = after


def _is_numbered(module: ModuleSummary) -> bool:
    return module.name.rpartition(".")[2].isdecimal()


def _size(modules: list[ModuleSummary], number: int) -> int:
    """Of how many modules a subtree is."""
    inside = 1
    while number + inside < len(modules) and modules[number + inside].depth > modules[number].depth:
        inside += 1
    return inside


def _look(modules: list[ModuleSummary], number: int) -> list[tuple[Any, ...]]:
    """All of a subtree but the name of its root."""
    subtree = modules[number : number + _size(modules, number)]
    length = len(modules[number].name)
    return [(one.name[length:], one.kind, one.depth, one.shapes, one.parameters, one.flops) for one in subtree]
