"""The instructions of code with the names and constants in them: what `dis` says, without its texts and places."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

from graphwright.source.function_parts import codes_of

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


def rebound_in(code: CodeType) -> Iterator[str]:
    """The variables of functions around it, or that functions inside of it have too, which code assigns or deletes.

    >>> def count():
    ...     nonlocal_one = 1
    ...     return lambda: nonlocal_one
    >>> [*rebound_in(count.__code__)]
    ['nonlocal_one']
    """
    if _REBINDS.isdisjoint(code.co_code[::2]):
        return
    own, shared = (), code.co_cellvars
    if sys.version_info >= (3, 11):  # all variables are counted, those that it shares with its own
        own, shared = code.co_varnames, tuple([name for name in shared if name not in code.co_varnames])
    names = (*own, *shared, *code.co_freevars)
    for kind, _, argument in steps_of(code):
        if kind in ("STORE_DEREF", "DELETE_DEREF"):
            yield names[argument]


def read_later(code: CodeType, instruction: int) -> frozenset[str]:
    """The variables that code may read after one of its instructions; in any case those that other functions have, too.

    >>> def add(a, b):
    ...     c = a + b
    ...     return c
    >>> sorted(read_later(add.__code__, -1)), sorted(read_later(add.__code__, len(add.__code__.co_code)))
    (['a', 'b', 'c'], [])
    """
    steps = [*dis.get_instructions(code)]
    if any(step.offset > instruction and isinstance(step.argval, int) and _jumps_back(step) for step in steps):
        instruction = -1  # a loop, of which another iteration may follow
    loaded = {step.argval for step in steps if step.offset > instruction and step.opname.startswith("LOAD_")}
    names = {name for each in loaded for name in (each if isinstance(each, tuple) else (each,))}
    return frozenset(names & {*code.co_varnames}) | {*code.co_cellvars, *code.co_freevars}


def _jumps_back(step: dis.Instruction) -> bool:
    return "JUMP" in step.opname and step.argval <= step.offset


def imports_of(code: CodeType) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """The modules that code imports: by what name, how many packages up, and what of it.

    >>> [*imports_of(compile("from .. import a, b", "<statement>", "exec"))]
    [('', 2, ('a', 'b'))]
    """
    if _IMPORT not in code.co_code[::2]:
        return
    level: Any = 0
    names: Any = ()
    for kind, name, argument in steps_of(code):
        if kind == "IMPORT_NAME":
            yield name, level or 0, names or ()
        elif kind == "LOAD_CONST":  # the two before it load the level and the names
            level, names = names, code.co_consts[argument]
        elif kind == "LOAD_SMALL_INT":
            level, names = names, argument


_IMPORT = dis.opmap["IMPORT_NAME"]
_REBINDS = frozenset({dis.opmap["STORE_DEREF"], dis.opmap["DELETE_DEREF"]})
# Instructions that newer Pythons have for what two did before, by what is done with the name in them.
_AS = {"LOAD_SUPER_ATTR": "LOAD_ATTR", "LOAD_FROM_DICT_OR_GLOBALS": "LOAD_NAME"}
_NAMES = [_AS.get(name, name) for name in dis.opname]

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
    for code in codes_of(compile(_SAMPLE, "<sample>", "exec")):
        names = dict(enumerate(code.co_names))
        for step in dis.get_instructions(code):
            place = step.arg
            if step.opcode in found and place is not None:
                found[step.opcode] &= {shift for shift in (0, 1, 2) if names.get(place >> shift) == step.argval}
    return {opcode: min(shifts) for opcode, shifts in found.items()}


_SHIFTS = _shifts()
