"""TypeErrors by which C++ refuses a value of the program where it takes plain numbers only."""

from __future__ import annotations

import re

from graphwright.capture.proxies.proxy import Proxy


def is_refused_value(error: BaseException) -> bool:
    """Tell whether C++ refused one of our values where it takes plain ones only, as what TorchScript compiled does."""
    if isinstance(error, RuntimeError):
        return _REFUSED.search(str(error)) is not None
    return isinstance(error, TypeError) and any(name in str(error) for name in _PROXIES)


def is_misfit(error: BaseException) -> bool:
    """Tell whether a function of torch's refused what it was given: an older torch takes no proxies for numbers."""
    return isinstance(error, TypeError) and _MISFIT.search(str(error)) is not None


def is_unknown_key(error: BaseException) -> bool:
    """Tell whether a dict of the program was asked for a key that only a run knows."""
    return isinstance(error, KeyError) and len(error.args) == 1 and isinstance(error.args[0], Proxy)


_REFUSED = re.compile(r"expected to contain only concrete integers|but instead found type '(Proxy|Attribute)'")
_MISFIT = re.compile(
    r"\(\): argument '\w+'.* must be .*, not |\(\) received an invalid combination of arguments"
    r"|^(new_)?(zeros|ones|empty|rand|randn)\(\) takes 1 positional argument but \d+ were given"  # sizes one by one
)
_PROXIES = (
    *("BoolProxy", "IntProxy", "FloatProxy", "SymBool", "SymInt", "SymFloat"),
    *("type Proxy", "type Attribute", "numpy.object_", "RunText"),
)
