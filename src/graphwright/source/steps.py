"""The instructions of code with the names that they mention: what `dis` says of them, without its texts and places."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType

__all__ = ["names_of_steps", "steps_of"]

_EXTENDED = dis.opmap["EXTENDED_ARG"]
_CACHE = dis.opmap.get("CACHE", -1)
_NAMES = dis.opname


def steps_of(code: CodeType) -> Iterator[tuple[int, int]]:
    """The opcode and the argument of each instruction.

    >>> def double(x): return x.a + x.a
    >>> [dis.opname[opcode] for opcode, _ in steps_of(double.__code__) if dis.opname[opcode].endswith("ATTR")]
    ['LOAD_ATTR', 'LOAD_ATTR']
    """
    extended, text = 0, code.co_code
    for opcode, low in zip(text[::2], text[1::2], strict=True):
        if opcode == _EXTENDED:
            extended = (extended | low) << 8
        elif opcode != _CACHE:
            yield opcode, extended | low
            extended = 0


def names_of_steps(code: CodeType) -> Iterator[tuple[str, str]]:
    """What each instruction is called, and which global name or attribute it mentions; an empty one where it has none.

    >>> [step for step in names_of_steps((lambda x: x.shape).__code__) if step[1]]
    [('LOAD_ATTR', 'shape')]
    """
    names = code.co_names
    for opcode, argument in steps_of(code):
        shift = _SHIFTS.get(opcode)
        yield _NAMES[opcode], "" if shift is None else names[argument >> shift]


# Mentions names in every way, each several times, so that it can be told where in arguments they are.
_SAMPLE = """
def of_globals(x):
    global first, second, third
    first, second, third = x
    first.alpha = second.beta(third.gamma, second.delta.epsilon)
    third.alpha, second.gamma, first.delta = first.beta(), second.gamma(), third.delta()
    first.alpha, second.beta, third.gamma = print(x), len(x), repr(x)
    del first.alpha, second.beta, third.gamma, first, second, third
class Sample:
    def method(self, x):
        super().alpha, super().beta
        return super().gamma(x), super().delta(x), super().alpha(x)
"""


def _shifts() -> dict[int, int]:
    """By the opcodes that mention names, by how many bits that place is shifted in their arguments: releases differ."""
    found = {opcode: {0, 1, 2} for opcode in dis.hasname}
    waiting = [compile(_SAMPLE, "<sample>", "exec")]
    while waiting:
        code = waiting.pop()
        waiting += [const for const in code.co_consts if isinstance(const, CodeType)]
        names = dict(enumerate(code.co_names))
        for step in dis.get_instructions(code):
            place = step.arg
            if step.opcode in found and place is not None:
                found[step.opcode] &= {shift for shift in (0, 1, 2) if names.get(place >> shift) == step.argval}
    return {opcode: min(shifts) for opcode, shifts in found.items()}


_SHIFTS = _shifts()
