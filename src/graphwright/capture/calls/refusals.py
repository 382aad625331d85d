"""TypeErrors by which C++ refuses a value of the program where it takes plain numbers only."""

from __future__ import annotations

import re

__all__ = ["is_misfit", "is_refused_number"]


def is_refused_number(error: BaseException) -> bool:
    """Tell whether C++ refused one of our numbers where it takes plain ones only."""
    if isinstance(error, RuntimeError):
        return "expected to contain only concrete integers" in str(error)
    return isinstance(error, TypeError) and any(name in str(error) for name in _PROXIES)


def is_misfit(error: BaseException) -> bool:
    """Tell whether a function of torch's refused what it was given: an older torch takes no proxies for numbers."""
    return isinstance(error, TypeError) and _MISFIT.search(str(error)) is not None


_MISFIT = re.compile(r"\(\): argument '\w+'.* must be .*, not |\(\) received an invalid combination of arguments")
_PROXIES = (
    *("BoolProxy", "IntProxy", "FloatProxy", "SymBool", "SymInt", "SymFloat"),
    *("type Proxy", "type Attribute", "numpy.object_"),
)
