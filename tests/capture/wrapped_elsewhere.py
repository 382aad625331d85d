"""A module whose functions other modules import."""

from typing import Any

import graphwright


@graphwright.wrap
def imported(x: Any) -> Any:
    return x * 3 if x > 0 else x


def untouched(x: Any) -> Any:
    return x * 3
