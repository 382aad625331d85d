"""The instructions of code with the names that they mention: what `dis` says of them, without its texts and places."""

from __future__ import annotations

import dis
from types import CodeType

__all__ = ["steps_of"]

_EXTENDED = dis.opmap["EXTENDED_ARG"]
_CACHE = dis.opmap.get("CACHE", -1)


def steps_of(code: CodeType) -> list[tuple[str, str, int]]:
    """What each instruction is called, the global name or attribute that it mentions, empty for none, and its argument.

    >>> [step[:2] for step in steps_of((lambda x: x.shape).__code__) if step[1]]
    [('LOAD_ATTR', 'shape')]
    """
    extended, text, names = 0, code.co_code, code.co_names
    found = []
    for opcode, argument in zip(text[::2], text[1::2], strict=True):
        if opcode == _CACHE:
            continue
        if extended:
            argument |= extended
        if opcode == _EXTENDED:
            extended = argument << 8
            continue
        extended = 0
        shift = _SHIFTS.get(opcode)
        found.append((_NAMES[opcode], "" if shift is None else names[argument >> shift], argument))
    return found


_NAMES = dis.opname

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
