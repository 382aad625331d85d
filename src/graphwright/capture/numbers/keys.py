"""Numbers of the program as keys of dicts and sets: they must not be in one, so the example says what they are.

A dict or a cache would keep such a number beyond the capture, and cannot find it in another run. So the capture starts
again with the sizes and numbers that it is computed from guarded, as if `static=` had named them.
"""

from __future__ import annotations

import dis
import re
import sys
from typing import TYPE_CHECKING, Any

from graphwright.capture.state.plan import Restart
from graphwright.source import user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.symbols import Symbol

_NUMBERS = re.compile(r"\d+")
_CALLS = frozenset(code for name, code in dis.opmap.items() if name.startswith("CALL"))


def hashed(symbol: Symbol) -> None:
    """Start again where a number is hashed that comes from sizes and inputs. Returns where there is no way to do so.

    What a function in C hashes may be an attempt: `functools.lru_cache`, and the program catches the TypeError.
    """
    recorder = symbol.recorder
    frame = user_frame(sys._getframe(1))
    if frame is None or recorder.plan.control_flow == "error":
        return
    # Converted functions go around those; what a `__hash__` gives is asked for whatever becomes of it.
    may_be_cache = frame.f_code.co_code[frame.f_lasti] in _CALLS and frame.f_code.co_name != "__hash__"
    codes = recorder.questions.staging.convertible(frame)
    if may_be_cache and (codes or recorder.questions.raises.is_caught_outside()):
        return
    if codes and recorder.keeping is not None and recorder.keeping.may_have_run_keys():  # it may be a key of one
        raise recorder.questions.restart(recorder.plan.convert(codes))
    roots = list(_roots(symbol))
    names = {root.key[1] for root in roots if root.function == root.key[0] == "input" and type(root.key[1]) is str}
    sites = {site_of(root) for root in roots if root.site is not None and root.function in ("size", "numel", "input")}
    plan, raises = recorder.plan, recorder.questions.raises
    is_open = len(names) + len(sites) == 0 or not all(root.function in ("size", "numel", "input") for root in roots)
    if is_open or (names <= plan.static and sites <= plan.fixed):
        if raises.is_caught_outside() or raises.is_left_by_it():  # where a handler would take it for its own
            recorder.questions.refusals.refuse_here(
                "the program has a number that only a run knows as a key, where it catches errors",
                "use keys that the program knows, or do so outside of the `try` or `with`",
            )
        return
    plan.static |= names
    plan.fixed |= sites
    raise recorder.questions.restart(Restart("a size or number is a key: it is guarded"))


def _roots(symbol: Symbol) -> Any:
    if symbol.function == "constant":
        return
    inner = [arg for arg in symbol.args if type(arg) is type(symbol)]
    if not inner:
        yield symbol
    for arg in inner:
        yield from _roots(arg)


def site_of(symbol: Symbol) -> Any:
    """Where the program reads a size, and which."""
    assert symbol.site is not None
    origin = symbol.site.resolve()
    return (
        origin.file, origin.line, origin.column, _NUMBERS.sub("*", origin.module), origin.call, symbol.function,
        *symbol.args[1:],
    )  # fmt: skip


def is_fixed(recorder: TypedCapture, symbol: Symbol) -> bool:
    """Tell whether a size that the program reads is to be the example's."""
    return bool(recorder.plan.fixed) and symbol.site is not None and site_of(symbol) in recorder.plan.fixed
