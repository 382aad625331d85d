"""Which sizes of inputs stay open in what torch.export makes of a program, and example sizes that leave them open."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from graphwright.errors import ExportError
from graphwright.interop import TooComplicated
from graphwright.onnx.inputs import Arguments, Input, resized

Place = tuple[int, int]  # an input, and a dimension of it
Sizes = list[list[int]]  # of each input


@dataclasses.dataclass(frozen=True)
class Facts:
    """What holds of sizes in an exported program: those that are fixed, and those that are equal to another one."""

    fixed: dict[Place, int]
    equal: dict[Place, Place]


def facts_of(program: torch.export.ExportedProgram, inputs: Sequence[Input]) -> Facts:
    """Read from a program which of the sizes that are to be open are fixed, and which are one."""
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    fixed: dict[Place, int] = {}
    equal: dict[Place, Place] = {}
    first: dict[str, Place] = {}
    for i, (name, each) in enumerate(zip(names, inputs, strict=True)):
        for dim in each.dynamic:
            size = values[name].shape[dim]
            if str(size).isdigit():  # a SymInt may be of one value by now
                fixed[i, dim] = int(size)
            elif str(size) in first:
                equal[i, dim] = first[str(size)]
            else:
                first[str(size)] = (i, dim)
    return Facts(fixed, equal)


def export_open(
    arguments: Arguments,
    run: Callable[[Sizes], torch.export.ExportedProgram],
    accepts: Callable[[Sizes], bool],
) -> tuple[torch.export.ExportedProgram, Sizes, list[str]]:
    """Export a program with example sizes that fix none: torch.export takes 0 and 1 for all that there is.

    `accepts` says whether the program takes inputs of some sizes. Gives the program, the sizes it was exported with,
    and what is to be said of sizes that it would take, and the model does not. Raises what `run` raises
    for every choice of sizes.
    """
    inputs = arguments.inputs
    program, sizes = _first(inputs, run, accepts)
    for _ in range(4):
        facts = facts_of(program, inputs)
        better = next(_improvements(sizes, facts, accepts), None)
        if better is None:
            return program, sizes, []
        _, tried = better
        try:
            other = run(tried)
        except Exception as error:
            if isinstance(error, ExportError):
                raise
            other = None
        if other is not None and _count(facts_of(other, inputs)) < _count(facts):
            program, sizes = other, tried
            continue
        return program, sizes, said_of_fixed(inputs, sizes, facts, accepts)
    return program, sizes, said_of_fixed(inputs, sizes, facts_of(program, inputs), accepts)


def export_at_example(
    arguments: Arguments,
    run: Callable[[Sizes], torch.export.ExportedProgram],
    accepts: Callable[[Sizes], bool],
) -> tuple[torch.export.ExportedProgram, Sizes, list[str]]:
    """Export a program with the sizes of its example, which fixes 0 and 1; gives what `export_open` gives."""
    sizes = [list(each.example.shape) for each in arguments.inputs]
    program = run(sizes)
    return program, sizes, said_of_fixed(arguments.inputs, sizes, facts_of(program, arguments.inputs), accepts)


def _count(facts: Facts) -> int:
    return len(facts.fixed) + len(facts.equal)


def _first(
    inputs: Sequence[Input],
    run: Callable[[Sizes], torch.export.ExportedProgram],
    accepts: Callable[[Sizes], bool],
) -> tuple[torch.export.ExportedProgram, Sizes]:
    given = [list(each.example.shape) for each in inputs]
    choices = [sizes for sizes in _choices(inputs, given) if sizes == given or accepts(sizes)]
    for sizes in choices[:-1]:
        try:
            return run(sizes), sizes
        except (ExportError, TooComplicated):
            raise
        except Exception:
            continue
    return run(choices[-1]), choices[-1]


def _choices(inputs: Sequence[Input], given: Sizes) -> Iterator[Sizes]:
    """Sizes of at least 2 in place of 0 and 1, of all dimensions, the first or others; the given ones."""
    small = [(i, dim) for i, each in enumerate(inputs) for dim in each.dynamic if given[i][dim] < 2]
    taken = {size for sizes in given for size in sizes}
    free = [size for size in range(2, 40) if size not in taken]
    seen: list[Sizes] = []
    for places in (small, [place for place in small if place[1] == 0], [place for place in small if place[1] > 0], []):
        groups: dict[Any, int] = {}
        sizes = [list(each) for each in given]
        for i, dim in places:
            name = inputs[i].dynamic[dim]
            group = name if not name.endswith(f"_dim{dim}") else (dim, given[i][dim])
            sizes[i][dim] = groups.setdefault(group, free[len(groups)])
        if sizes not in seen:
            seen.append(sizes)
            yield sizes


def _improvements(sizes: Sizes, facts: Facts, accepts: Callable[[Sizes], bool]) -> Iterator[tuple[Place, Sizes]]:
    """Sizes for which the program runs, and which differ from these where the model would have one alone."""
    for place in [*facts.fixed, *facts.equal]:
        for tried in _others(sizes, place):
            if accepts(tried):
                yield place, tried
                break


def _others(sizes: Sizes, place: Place) -> Iterator[Sizes]:
    """Sizes of which one is another: some, and those that other dimensions have, which broadcasting may ask for."""
    i, dim = place
    size = sizes[i][dim]
    for other in dict.fromkeys((size + 1, 2 * size, 3, 4, *(each for one in sizes for each in one))):
        if other != size and other > 1:
            tried = [list(each) for each in sizes]
            tried[i][dim] = other
            yield tried


def said_of_fixed(inputs: Sequence[Input], sizes: Sizes, facts: Facts, accepts: Callable[[Sizes], bool]) -> list[str]:
    """Say of sizes that the model fixes, and the program does not."""
    lines = []
    for place, _ in _improvements(sizes, facts, accepts):
        i, dim = place
        where = f"dimension {dim} of {inputs[i].name!r}"
        if place in facts.fixed:
            lines.append(f"{where} is {facts.fixed[place]} in the model, and the program takes others")
        else:
            j, other = facts.equal[place]
            lines.append(f"{where} is that of dimension {other} of {inputs[j].name!r} in the model, and need not be")
    return lines


def at_sizes(arguments: Arguments, sizes: Sizes) -> list[torch.Tensor]:
    """The example's tensors at other sizes."""
    return [resized(each.example, size) for each, size in zip(arguments.inputs, sizes, strict=True)]


def empty_places(sizes: Sequence[Sequence[int]]) -> frozenset[Place]:
    """Where sizes are 0.

    >>> sorted(empty_places([[2, 0], [0]]))
    [(0, 1), (1, 0)]
    """
    return frozenset([(i, dim) for i, one in enumerate(sizes) for dim, size in enumerate(one) if size == 0])
