"""Branches and loops in forms for targets that say less than Python does.

Programs and values of programs come in; programs and values that a target with tensors, `if` and counted loops can say
go out. Read appended_lists.py first.

    appended_lists.py  lists that a loop only appends to, as what it collects
    filled_lists.py    such lists after the loop: stacked, joined, counted
    indexing.py        items and slices of tensors at places that only a run knows
    items.py           what a loop goes over: how many items there are, and which one is next
    regions.py         sides that raise, bodies that do more than compute
    numbers.py         Python's functions of numbers that only a run knows
"""
