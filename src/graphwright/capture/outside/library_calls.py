"""Calls of functions of libraries that are one operation each (`ops/libraries.py`): nodes, as calls of torch are.

A stand-in for each hears of the program's calls, wherever the program has it under a name. Who has it otherwise, in a
closure or in an attribute, is found when something in it is recorded: that function is then converted, whose calls
come through the runtime. Where nobody calls one of them, neither costs anything.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

from graphwright.capture.calls.opaque import record_leaf_function
from graphwright.capture.outside.overheard import caller_of, hears, stand
from graphwright.capture.proxies.proxy import find_tracer
from graphwright.capture.state.running import running
from graphwright.ops import kind_of_function, library_functions

CODES: dict[int, CodeType] = {}
"""The code of those that are kept as nodes where there are examples, by its id."""
_watched: set[FunctionType] = set()


def watch_libraries() -> bool:
    """Have calls of them heard of, of all libraries that are imported by now; tell whether there are new ones."""
    new = [each for each in library_functions().items() if each[0] not in _watched]
    for function, name in new:
        gives_sizes = kind_of_function(name) == "sizes"  # which follow from those of the examples
        if not gives_sizes:
            CODES[id(function.__code__)] = function.__code__
        stand_in = _heard(function, gives_sizes)
        for home in {name.rpartition(".")[0], function.__module__}:
            names = vars(sys.modules[home])
            if names.get(function.__name__) is function:
                stand(names, function.__name__, function, stand_in)
    _watched.update([function for function, _ in new])
    return bool(new)


def is_unheard(frame: FrameType) -> bool:
    """Tell whether the frame of one of them was called by something else than its stand-in."""
    return frame.f_back is not None and frame.f_back.f_code is not _STAND_IN


def _heard(function: FunctionType, gives_sizes: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        tracer = find_tracer(args, kwargs)
        if tracer is not None:
            return tracer.create_proxy("call_function", function, args, kwargs)
        recorder = running()
        if recorder is None or recorder.typed is None or recorder.examples.is_running:
            return function(*args, **kwargs)
        plan, capture = recorder.plan, hears(recorder)
        # What is given a function calls that, which is a part of the program.
        is_entered = plan.enters_libraries or gives_sizes or any(map(callable, (*args, *kwargs.values())))
        is_leaf = not is_entered or id(function) in plan.leaf_ids
        if capture is None or caller_of(sys._getframe(1)) is None:
            return function(*args, **kwargs)
        if is_leaf:
            return record_leaf_function(capture, function, args, kwargs)
        return capture.questions.staging.converted(function)(*args, **kwargs)

    return stand_in


_STAND_IN = next(each for each in _heard.__code__.co_consts if isinstance(each, CodeType))
