"""Which values of a program are wanted: names, patterns and regular expressions, and what their values are called."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import Any

from graphwright.errors import UnknownNameError

Names = Iterable[Any] | Mapping[Any, str] | str


def read_names(wanted: Names) -> dict[Any, str | None]:
    """Read what values are wanted, as names or patterns, and what each is to be called, None for its own name.

    Raises UnknownNameError where there is none, or something else than a name, a pattern or a compiled expression.

    >>> read_names(["layer1", "layer2"]), read_names({"layer1": "c2"})
    ({'layer1': None, 'layer2': None}, {'layer1': 'c2'})
    """
    if isinstance(wanted, str | re.Pattern):
        wanted = [wanted]
    read = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted)
    if not read:
        raise UnknownNameError("no value is asked for", fix='name the values: {"layer3": "c4"}, or ["layer3"]')
    for name in read:
        if not isinstance(name, str | re.Pattern):
            raise UnknownNameError(f"{name!r} is no name of a value", fix="pass names, patterns, or re.compile(...)")
    return read


def is_pattern(name: Any) -> bool:
    """Tell whether a name may stand for several."""
    return not isinstance(name, str) or any(sign in name for sign in "*?[")


def matching(name: Any, known: Iterable[str]) -> list[str]:
    """The known names that a name, pattern or regular expression stands for. `*` does not go past a dot.

    >>> matching("layer?.*", ["layer1", "layer1.0", "layer1.0.conv"])
    ['layer1.0']
    >>> matching(re.compile(r"layer\\d"), ["layer1", "layer1.0"])
    ['layer1']
    """
    if not isinstance(name, str):
        return [each for each in known if name.fullmatch(each)]
    if not is_pattern(name):
        return [name] if name in known else []
    atoms = name.split(".")
    found = []
    for each in known:
        parts = each.split(".")
        if len(parts) == len(atoms) and all(map(fnmatch.fnmatchcase, parts, atoms)):
            found.append(each)
    return found


def may_be_inside(name: Any, path: str, inside: Iterable[str]) -> bool:
    """Tell whether a name may be that of a value inside the module at a path; `inside` are the modules in there."""
    if not isinstance(name, str):
        return any(name.fullmatch(each) for each in (path, *inside))
    atoms, parts = name.split("."), path.split(".")
    return len(atoms) > len(parts) and all(map(fnmatch.fnmatchcase, parts, atoms))


def named_outputs(wanted: Mapping[Any, str | None], known: Iterable[str]) -> dict[str, str]:
    """The values that are wanted, by what they are to be called, in the order in which they were asked for.

    A pattern that stands for several numbers them, `c_0`, `c_1`; what a regular expression gives may refer to its
    groups: `r"c\\1"`. Raises UnknownNameError for a name that nothing has, and for two values to be called the same.

    >>> named_outputs({"layer*": "c"}, ["layer1", "layer2"])
    {'c_0': 'layer1', 'c_1': 'layer2'}
    >>> named_outputs({re.compile(r"layer(\\d)"): r"c\\1"}, ["layer1", "layer2"])
    {'c1': 'layer1', 'c2': 'layer2'}
    """
    known = list(dict.fromkeys(known))
    outputs: dict[str, str] = {}
    for name, output in wanted.items():
        found = matching(name, known)
        if not found:
            text = name if isinstance(name, str) else name.pattern
            raise UnknownNameError(f"no value is called {text!r}", fix=close_names(text, known))
        for i, each in enumerate(found):
            called = each if output is None else output
            if output is not None and not isinstance(name, str) and "\\" in output:
                called = name.fullmatch(each).expand(output)
            elif output is not None and len(found) > 1:
                called = f"{output}_{i}"
            if outputs.get(called, each) != each:
                raise UnknownNameError(
                    f"{outputs[called]!r} and {each!r} would both be called {called!r}",
                    fix="give them different names",
                )
            outputs[called] = each
    return outputs


def close_names(name: str, known: Iterable[str]) -> str:
    """Say which known names are like one that is not known."""
    known = list(known)
    close = difflib.get_close_matches(name, known, 5, 0.4)
    return f"did you mean {', '.join(map(repr, close))}?" if close else f"there are {', '.join(map(repr, known[:8]))}"
