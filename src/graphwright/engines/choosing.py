"""Which kernel computes each site of a program: measured, and put there."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphwright.engines.alternatives import Kernel, Site, activated
from graphwright.engines.measure import fastest
from graphwright.engines.numerics import Numerics, numerics
from graphwright.engines.pack import Recipe, itself
from graphwright.engines.sites import Found
from graphwright.ir import Node
from graphwright.passes import substitute


@dataclass(frozen=True, slots=True)
class Choice:
    """What a site runs on: the name of a kernel, what each took, and which were dropped and why."""

    kernel: str
    times_us: tuple[tuple[str, float], ...] = ()
    dropped: tuple[str, ...] = ()


# ---- measured


class _Now:
    """Makes calls at once, and packs once."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._made: dict[Recipe, Any] = {}

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function."""
        return function(*args, **kwargs)

    def packed(self, make: Callable[..., Any], sources: tuple[str, ...], *settings: Any) -> Any:
        """What is made of tensors of the program."""
        recipe = Recipe(make, sources, settings)
        if recipe not in self._made:
            self._made[recipe] = make(*[self._tensors[path] for path in sources], *settings)
        return self._made[recipe]


class _Kept:
    """Makes calls at once, and keeps them, to be made again as generated code makes them."""

    def __init__(self, calls: _Now) -> None:
        self._calls = calls
        self._values: list[Any] = []  # they stay, so that no other one has their identity
        self._names: dict[int, str] = {}
        self._lines: list[str] = []

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function."""
        given = [*map(self._written, args), *(f"{name}={self._written(value)}" for name, value in kwargs.items())]
        value = function(*args, **kwargs)
        self._lines.append(f"{self._name(value)} = {self._name(function)}({', '.join(given)})")
        return value

    def packed(self, make: Callable[..., Any], sources: tuple[str, ...], *settings: Any) -> Any:
        """What is made of tensors of the program."""
        return self._calls.packed(make, sources, *settings)

    def again(self, value: Any) -> Callable[[], Any]:
        """A function that makes the calls and gives this value of theirs."""
        made: dict[str, Any] = {}
        body = "; ".join([*self._lines, f"return {self._name(value)}"])
        exec(f"def again({', '.join(self._names.values())}):\n    {body}", made)
        again: Any = made["again"]
        again.__defaults__ = tuple(self._values)
        return again  # type: ignore[no-any-return]

    def _written(self, value: Any) -> str:
        if type(value) in (tuple, list) and any(isinstance(item, Tensor) for item in value):
            return f"[{', '.join(map(self._written, value))}]"
        return self._name(value)

    def _name(self, value: Any) -> str:
        if id(value) not in self._names:
            self._values.append(value)
            self._names[id(value)] = f"value_{len(self._values)}"
        return self._names[id(value)]


def _again(kernel: Kernel, calls: _Now, site: Site, inputs: Sequence[Any]) -> Callable[[], Any]:
    """The calls of a kernel alone: what it looks up to make them is not part of its time."""
    kept = _Kept(calls)
    return kept.again(kernel(kept, site, *inputs))


def choose(
    site: Site,
    tensors: Mapping[str, Tensor],
    tolerance: float,
    seconds: float,
    is_exact: bool = True,
    only: Sequence[str] = (),
    may_stay: bool = True,
) -> Choice:
    """Measure the kernels of a site on random inputs; those that are off by more than the tolerance are dropped.

    tolerance: of the largest difference, relative to the largest value. Kernels of half precision are asked where it
    need not be exact. only: the kernels to ask, where it is known before which is the fastest. may_stay: whether what
    the program itself calls may be chosen, where there is another kernel.
    """
    inputs, calls, named = site.example(), _Now(tensors), site.kernels(is_exact)
    kernels = {name: functools.partial(kernel, calls, site, *inputs) for name, kernel in named.items()}
    expected = kernels["torch"]()
    dropped = []
    if only and all(name in kernels for name in only):
        kernels = {name: kernel for name, kernel in kernels.items() if name in ("torch", *only)}
    for name in list(kernels)[1:]:
        reason = _reason_against(site, kernels[name], expected, tolerance)
        if reason:
            dropped.append(f"{name}: {reason}")
            del kernels[name]
    if only and len(kernels) <= 2:
        return Choice(list(kernels)[-1], (), (*dropped, "as it was measured before"))
    measured = fastest({name: _again(named[name], calls, site, inputs) for name in kernels}, seconds)
    best, others = measured.best, [name for name in kernels if name != "torch"]
    if best == "torch" and others and not may_stay:
        best = min(others, key=lambda name: measured.times_us.get(name, math.inf))
    return Choice(best, tuple(measured.times_us.items()), tuple(dropped))


def choose_merged(found: Found, choices: Mapping[str, Choice], tensors: Mapping[str, Tensor], seconds: float) -> bool:
    """Measure linear layers as one against them one by one, each by the kernel that was chosen for it."""
    inputs, calls = found.site.example(), _Now(tensors)

    def apart() -> None:
        for member in found.members:
            member.site.kernels(False)[choices[member.site.key].kernel](calls, member.site, *inputs)

    def as_one() -> None:
        value = found.site.kernels(False)[choices[found.site.key].kernel](calls, found.site, *inputs)
        for part, activation in zip(torch.split(value, list(found.parts), -1), found.activations, strict=True):
            activated(calls, activation, part)

    return fastest({"apart": apart, "as one": as_one}, seconds).best == "as one"


def reason_against(
    site: Site, kernel: str, inputs: Sequence[Any], tensors: Mapping[str, Tensor], tolerance: float
) -> str:
    """Say why a kernel of a site is none, on these inputs, beside what the program calls; empty where it is one."""
    calls, kernels = _Now(tensors), site.kernels(False)
    given = [value.clone() for value in inputs]
    expected = kernels["torch"](calls, site, *given)
    return _reason_against(site, functools.partial(kernels[kernel], calls, site, *given), expected, tolerance)


def numerics_of(site: Site, kernel: str, inputs: Sequence[Any], tensors: Mapping[str, Tensor]) -> Numerics | None:
    """How far a kernel of a site is off on these inputs, beside what the program calls; None for no tensors."""
    kernels = site.kernels(False)
    expected, given = (
        kernels[name](_Now(tensors), site, *[value.clone() for value in inputs]) for name in ("torch", kernel)
    )
    is_plain = isinstance(expected, Tensor) and isinstance(given, Tensor) and expected.shape == given.shape
    return numerics([(expected, given)]) if is_plain else None


def _reason_against(site: Site, kernel: Callable[[], Any], expected: Any, tolerance: float) -> str:
    try:
        given = kernel()
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        return str(error).partition("\n")[0]
    return site.reason_against(given, expected, tolerance)


# ---- put into a graph


class Writing:
    """Writes the calls of kernels as nodes.

    recipes: what they read, with the name of each. stands_for: the nodes that others took the place of, with these.
    """

    def __init__(self) -> None:
        self.recipes: dict[Recipe, str] = {}
        self.stands_for: dict[Node, Node] = {}
        self._at: Node | None = None
        self._origin: Any = None

    def before(self, node: Node) -> None:
        """Write before this node, as part of its line."""
        self._at, self._origin = node, node.origin

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        """Write a call."""
        assert self._at is not None
        with self._at.graph.inserting_before(self._at):
            made = self._at.graph.call_function(function, args, kwargs)
        made.origin = self._origin
        return made

    def packed(self, make: Callable[..., Any], sources: tuple[str, ...], *settings: Any) -> Node:
        """Read what is made of tensors of the program."""
        assert self._at is not None
        name = self.name(Recipe(make, sources, settings))
        with self._at.graph.inserting_before(self._at):
            made = self._at.graph.create_node("get_attr", name, (), {})
        made.origin = self._origin
        return made

    def replace(self, nodes: Iterable[Node], value: Node) -> None:
        """Put a value in the place of the last of some nodes, and erase all of them."""
        nodes = list(nodes)
        self.stands_for[nodes[-1]] = value
        name = nodes[-1].name
        substitute(nodes[-1], value)
        for node in reversed(nodes):
            node.graph.erase_node(node)
        value.name = name

    def name(self, recipe: Recipe) -> str:
        """The name of what a recipe makes: the path of a tensor that is as it is."""
        if recipe not in self.recipes:
            is_itself = recipe.make is itself and len(recipe.sources) == 1
            self.recipes[recipe] = recipe.sources[0] if is_itself else f"packed {len(self.recipes)}"
        return self.recipes[recipe]


def put_kernel(found: Found, kernel: str, writing: Writing) -> None:
    """Put the calls of a kernel in the place of the nodes of a site."""
    inputs = [writing.stands_for.get(node, node) for node in found.inputs]
    writing.before(next((node for node in found.nodes if inputs[-1] in node.args), found.nodes[0]))
    value = found.site.kernels(False)[kernel](writing, found.site, *inputs)
    if not found.members:
        writing.replace(found.nodes, value)
        return
    parts = writing.call(torch.split, value, list(found.parts), -1)
    for i, (member, activation) in enumerate(zip(found.members, found.activations, strict=True)):
        writing.before(member.last)
        part = writing.call(operator.getitem, parts, i)
        writing.replace(member.nodes, activated(writing, activation, part))
