"""Expressions, and what names, operators and conditions in them mean.

Read expressions.py first.

    expressions.py     every expression, one function each
    comprehensions.py  a list that a loop fills, or the items written out
    arithmetic.py      operators: what they give for operands of which types
    conditions.py      `and`, `or`, `not`, isinstance, and what they tell of variables
    subscripts.py      items and slices
    choices.py         items of containers of modules that only a run chooses
    named_values.py    what objects, modules and values have under a name
"""
