"""Expressions, and what names, operators and conditions in them mean.

Read expressions.py first.

    expressions.py     every expression, one function each
    comprehensions.py  a list that a loop fills, or the items written out
    arithmetic.py      operators: what they give for operands of which types
    conditions.py      `and`, `or`, `not`, isinstance, and what they tell of variables
    subscripts.py      items and slices
    choices.py         items of containers of modules that only a run chooses
    named_values.py    what modules and values have under a name
    objects.py         attributes and items of objects from outside of the program
    held_values.py     what such objects stand for, and what each call checks of them
"""
