"""What torch.export has assumed of sizes that stay open, tried out: where the program takes others, is the model right?

torch.export takes every open size to be at least 2, and decides by the example whatever else it must know of sizes:
that one is divisible by 8, is below another one, is not 3. Most of it says how a tensor is laid out and changes no
value. So each condition is broken by the smallest change of sizes that breaks it, and the model is run beside the
program.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch

from graphwright.onnx.apart import run_apart
from graphwright.onnx.checking import difference, difference_of, written
from graphwright.onnx.inputs import Input
from graphwright.onnx.original import Original
from graphwright.onnx.program import OnnxProgram
from graphwright.onnx.sizes import Place, Sizes, at_sizes, empty_places, facts_of
from graphwright.onnx.torch_private import as_python, assumed_of

MOST = 24  # runs of the program, beyond which a condition is said not to have been tried
WAYS = 3  # to break one condition, before it is taken for one of the program's own

Values = dict[Any, int]  # of the symbols of sizes


@dataclasses.dataclass
class Assumed:
    """Conditions under which a model was made, and those of which the program is free, and the model is not.

    `is_off_at_example` says that the model is right at the sizes that it was made with, and not at the example's.
    """

    is_off_at_example: bool = False
    conditions: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


def try_assumptions(
    exported: torch.export.ExportedProgram,
    program: OnnxProgram,
    original: Original,
    base: Sizes,
) -> Assumed:
    """Break each condition on open sizes that the model was made under; `base` are the sizes it was made with."""
    trying = _Trying(exported, program, original, base)
    if program.is_large:
        return trying.untried("the model is above 2 GB")
    if trying.at(base):
        if original.is_random(base):
            return trying.untried("the program is random")
        trying.found.notes.append(f"{trying.at(base)}, at {written(program, base)}")
        return trying.found
    if trying.at([list(each.example.shape) for each in program.arguments.inputs]):
        trying.found.is_off_at_example = True
    for kind, text, ways in trying.all():
        trying.say(kind, text, ways)
    trying.without_items()
    if trying.unknown:
        first, *others = trying.unknown
        more = f", as for {len(others)} more conditions in report.assumed" if others else ""
        trying.found.notes.append(f"the model is made for {first}, and other sizes were not tried{more}")
        trying.found.conditions += [f"{text}, not tried" for text in others]
    if trying.idle:
        more = f" and {len(trying.idle) - 1} more" if trying.idle[1:] else ""
        trying.found.conditions.append(f"{trying.idle[0]}{more}, and the model is right without, too")
    return trying.found


class _Trying:
    def __init__(
        self,
        exported: torch.export.ExportedProgram,
        program: OnnxProgram,
        original: Original,
        base: Sizes,
    ) -> None:
        self.found = Assumed()
        self._program, self._original, self._base = program, original, base
        self._inputs = program.arguments.inputs
        self._equal = facts_of(exported, self._inputs).equal
        self._sizes, self._conditions = assumed_of(exported)
        self._places = _places(self._sizes, self._inputs)
        self._values = {symbol: base[i][dim] for symbol, (i, dim) in self._places.items()}
        self._least = [sympy.Ge(symbol, 2, evaluate=False) for symbol in self._places]
        self._tried: dict[str, str | None] = {}
        self._own: list[Any] = []  # conditions that the program has, too
        self.unknown: list[str] = []  # the words of those that were not broken
        self.idle: list[str] = []  # the words of those without which the model is right

    def at(self, sizes: Sizes) -> str | None:
        """What the model does otherwise at these sizes: nothing, or None where the program does not take them."""
        key = str(sizes)
        if key not in self._tried:
            try:
                wanted = self._original.at(sizes)
            except Exception:
                self._tried[key] = None
            else:
                self._tried[key] = difference(self._program, wanted, sizes)
        return self._tried[key]

    def say(self, condition: Any, text: str, ways: Iterator[Sizes]) -> None:
        """Break a condition, and say what came of it."""
        seen = False
        for sizes in itertools.islice(ways, WAYS):
            if len(self._tried) >= MOST and str(sizes) not in self._tried:
                self.unknown.append(text)
                return
            seen, said = True, self.at(sizes)
            if said:
                where = written(self._program, sizes)
                self.found.notes.append(f"the model is made for {text}, and the program takes {where}, where {said}")
                return
            if said is not None:
                self.idle += [] if condition in self._least else [text]
                return
        if seen:
            self.found.conditions.append(f"{text}, and the program takes no other sizes that were tried")
            self._own.append(condition)

    def without_items(self) -> None:
        """Try size 0 of each symbol: the program refuses to run the model where it has not been right there."""
        if self._original.has_while:
            self.found.conditions.append("no size is 0, not tried: a `while` may go on for ever there")
            return
        tried = []
        for symbol, place in self._places.items():
            sizes = self._sizes_at({symbol: 0})
            if sizes is None:
                continue
            try:
                tried.append((place, sizes, self._original.at(sizes)))
            except Exception:
                continue  # the program does not take it either
        inputs = [at_sizes(self._program.arguments, sizes) for _, sizes, _ in tried]
        for (place, sizes, wanted), outputs in zip(tried, run_apart(self._program, inputs), strict=True):
            said = difference_of(self._program, outputs, wanted)
            if said:
                text = _name(self._inputs, place)
                self.found.conditions.append(f"{text} > 0, and the program takes 0, where {said}: a call refuses it")
            else:
                self._program.empty.add(empty_places(sizes))

    def untried(self, why: str) -> Assumed:
        """Say every condition as one that nothing is known of."""
        self.found.conditions = [f"{text}, not tried: {why}" for _, text, _ in self.all()]
        return self.found

    # ---- what was assumed, and sizes for which it does not hold

    def all(self) -> Iterator[tuple[Any, str, Iterator[Sizes]]]:
        """Every condition, its words and sizes that break it.

        That each is at least 2; that two are one, which broadcasting would have as 1 beside any other; and what
        torch.export has decided by the example.
        """
        for condition in self._least:
            yield condition, self._text(condition), self._changed(self._breaking(condition))
        for place, other in self._equal.items():
            text = f"{_name(self._inputs, place)} == {_name(self._inputs, other)}"
            yield sympy.true, text, iter([_with(self._base, each, 1) for each in (place, other)])
        for condition in self._conditions:
            if self._is_known(condition):
                yield condition, self._text(condition), self._changed(self._breaking(condition))

    def _is_known(self, condition: Any) -> bool:
        return bool(condition.free_symbols) and condition.free_symbols <= {*self._places}

    def _breaking(self, condition: Any) -> Iterator[Values]:
        """Values of one or two symbols for which a condition does not hold: those tried before come first.

        None where they all break a condition that is the program's own, too: this one says no more than that one.
        """
        symbols = sorted(condition.free_symbols, key=str)
        choices = [*({symbol: size} for symbol in symbols for size in _near(self._values[symbol]))]
        pairs = itertools.combinations(symbols, 2)
        choices += [{a: m, b: n} for a, b in pairs for m in range(1, 9) for n in range(1, 9)]
        broken = [
            each
            for each in choices
            if not _holds(condition, {**self._values, **each})
            and all(_holds(own, {**self._values, **each}) for own in self._own)
        ]
        return iter(sorted(broken, key=lambda each: str(self._sizes_at(each)) not in self._tried))

    def _changed(self, choices: Any) -> Iterator[Sizes]:
        for each in choices:
            sizes = self._sizes_at(each)
            if sizes is not None:
                yield sizes

    def _sizes_at(self, changed: Values) -> Sizes | None:
        values = {symbol: sympy.Integer(size) for symbol, size in {**self._values, **changed}.items()}
        sizes = [[each.xreplace(values) for each in one] for one in self._sizes]
        if not all(size.is_Integer and size >= 0 for one in sizes for size in one):
            return None
        return [[int(size) for size in one] for one in sizes]

    def _text(self, expression: Any) -> str:
        names = {str(symbol): _name(self._inputs, place) for symbol, place in self._places.items()}
        text = as_python(expression)
        return re.sub(r"\b[A-Za-z_]\w*\b", lambda found: names.get(found[0], found[0]), text)


def _places(sizes: Sequence[Sequence[Any]], inputs: Sequence[Input]) -> dict[Any, Place]:
    """Where each symbol is a size of an input that is to stay open."""
    places: dict[Any, Place] = {}
    for i, one in enumerate(sizes):
        for dim, size in enumerate(one):
            if size.is_Symbol and dim in inputs[i].dynamic:
                places.setdefault(size, (i, dim))
    return places


def _name(inputs: Sequence[Input], place: Place) -> str:
    """A size by its input and dimension, as in the words of a program."""
    return f"{inputs[place[0]].name}.shape[{place[1]}]"


def _near(size: int) -> list[int]:
    return [each for each in dict.fromkeys((1, size - 1, size + 1, 2 * size, *range(2, 17), 64)) if each > 0]


def _with(sizes: Sizes, place: Place, size: int) -> Sizes:
    return [[size if (i, dim) == place else each for dim, each in enumerate(one)] for i, one in enumerate(sizes)]


def _holds(condition: Any, values: Mapping[Any, int]) -> bool:
    """Tell whether a condition holds; one that divides by 0, or of a size below 0, does not."""
    try:
        return bool(condition.xreplace({symbol: sympy.Integer(size) for symbol, size in values.items()}) != sympy.false)
    except (ZeroDivisionError, AssertionError):  # torch's Mod asserts that no size is below 0
        return False
