"""Source text -> function, with the text where tracebacks and debuggers look for it."""

from __future__ import annotations

import itertools
import linecache
import weakref
from types import FunctionType
from typing import Any

from graphwright.errors import GraphError
from graphwright.source import note_shown_as

_numbers = itertools.count()
_freed: list[str] = []  # file names whose functions are gone, whose source goes at the next compile


def compile_source(
    src: str, names: dict[str, Any], title: str, function: str = "forward", place: str = "", run: str = ""
) -> FunctionType:
    """Compile generated source and return the function of this name; the title is its qualified name.

    The source is in `linecache` under a file name that starts with `<graphwright title`, for tracebacks, pdb, profilers
    and `inspect.getsource`, for as long as the function lives; the next call of this one removes it. The name ends with
    the `place` where the program is written, if one is given. `run` is what is compiled, if it is not the source: line
    for line the same.

    >>> add = compile_source("def add(x):\\n    return x + one\\n", {"one": 1}, "example", "add")
    >>> add(2), add.__code__.co_filename.startswith("<graphwright example")
    (3, True)
    """
    filename = f"<graphwright {title} {next(_numbers)}{f' from {place}' if place else ''}>"
    namespace = dict(names)
    try:
        code = compile(run or src, filename, "exec", dont_inherit=True, optimize=0)  # an `assert` may be a check
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise GraphError(
            f"Python does not compile the code of {title}: {error}",
            fix="nest loops, branches and expressions less deep, in functions or modules of their own",
        ) from error
    exec(code, namespace)  # annotations are evaluated, not strings
    made: FunctionType = namespace.pop(function)
    made.__qualname__ = title
    if run:
        note_shown_as(made.__code__)
    while _freed:
        linecache.cache.pop(_freed.pop(), None)
    linecache.cache[filename] = (len(src), None, src.splitlines(keepends=True), filename)
    # A function may die at any moment, also while somebody walks the cache: its entry must not go right then.
    weakref.finalize(made, _freed.append, filename).atexit = False
    return made
