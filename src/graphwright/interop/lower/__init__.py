"""Branches and loops in forms for targets that say less than Python does.

Programs and values of programs come in; programs and values that a target with tensors, `if` and counted loops can say
go out. Read appended_lists.py first.

    appended_lists.py  lists that a loop only appends to, as what it collects
    items.py           what a loop goes over: how many items there are, and which one is next
    numbers.py         Python's functions of numbers that only a run knows
"""

from graphwright.interop.lower.appended_lists import collect_appended, collecting_for, collecting_while
from graphwright.interop.lower.items import Collected, Counted, Items, Rows, Zipped, as_items, item_sources
from graphwright.interop.lower.numbers import as_number_tensor, as_truth, call_on_numbers, is_symbolic

__all__ = [
    "Collected",
    "Counted",
    "Items",
    "Rows",
    "Zipped",
    "as_number_tensor",
    "as_items",
    "as_truth",
    "call_on_numbers",
    "collect_appended",
    "collecting_for",
    "collecting_while",
    "is_symbolic",
    "item_sources",
]

# Files, the top floor first: a file imports from its own floor and from those after it.
FLOORS = ("appended_lists", "items", "numbers")
