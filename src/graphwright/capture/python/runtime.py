"""What converted functions call: `runtime.branch(test, then, other)` stands for an `if`.

They act on the capture that runs in this thread; without one they do what Python does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from graphwright.capture.flow.deciding import (
    and_then,
    both,
    branch,
    compare,
    either,
    is_given,
    is_none,
    negation,
    or_else,
    same,
)
from graphwright.capture.outside.said import warn
from graphwright.capture.proxies.unbound import bound, variables
from graphwright.capture.python.calls import call
from graphwright.capture.python.class_questions import class_read, of_handled
from graphwright.capture.python.comprehensions import as_dict, as_set, chained, decided, extended, listed
from graphwright.capture.python.displays import (
    SPREAD,
    changed,
    delete,
    dict_of,
    formatted_text,
    held,
    item,
    merged,
    percent_of,
    repeated_list,
    set_of,
    spread,
    store,
)
from graphwright.capture.python.gathering import gathered
from graphwright.capture.python.membership import contains, equal
from graphwright.capture.python.messages import text
from graphwright.capture.python.statements import attempt, check, context, each, raising, repeat, suppressed
from graphwright.capture.state.samples import UNSET


class Runtime:
    """The runtime of converted functions: each name that conversion writes, and the function behind it."""

    # conditions
    branch = staticmethod(branch)
    and_then = staticmethod(and_then)
    or_else = staticmethod(or_else)
    both = staticmethod(both)
    either = staticmethod(either)
    negation = staticmethod(negation)
    is_none = staticmethod(is_none)
    is_given = staticmethod(is_given)
    same = staticmethod(same)
    compare = staticmethod(compare)
    contains = staticmethod(contains)
    equal = staticmethod(equal)

    # statements
    UNSET = UNSET
    check = staticmethod(check)
    raising = staticmethod(raising)
    attempt = staticmethod(attempt)
    context = staticmethod(context)
    suppressed = staticmethod(suppressed)
    each = staticmethod(each)
    repeat = staticmethod(repeat)

    # variables
    bound = staticmethod(bound)
    variables = staticmethod(variables)

    # calls
    call = staticmethod(call)
    gathered = staticmethod(gathered)

    @staticmethod
    def warn(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`warnings.warn(...)`."""
        return warn(function, args, kwargs)

    of_error = staticmethod(of_handled)
    class_read = staticmethod(class_read)

    # subscripts, displays and texts
    SPREAD = SPREAD
    item = staticmethod(item)
    store = staticmethod(store)
    delete = staticmethod(delete)
    changed = staticmethod(changed)
    held = staticmethod(held)
    merged = staticmethod(merged)
    dict_of = staticmethod(dict_of)
    set_of = staticmethod(set_of)
    as_list = staticmethod(functools.partial(spread, call, list))
    as_tuple = staticmethod(functools.partial(spread, call, tuple))
    repeated = staticmethod(repeated_list)
    percent = staticmethod(functools.partial(percent_of, call))
    percent_told = staticmethod(functools.partial(percent_of, call, is_message=True))
    formatted = staticmethod(functools.partial(formatted_text, call))
    text = staticmethod(functools.partial(text, call))

    # comprehensions
    listed = staticmethod(listed)
    as_dict = staticmethod(as_dict)
    as_set = staticmethod(as_set)
    decided = staticmethod(decided)
    chained = staticmethod(chained)
    extended = staticmethod(extended)


RUNTIME = Runtime()
