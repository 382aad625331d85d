"""Which channels have to be removed together.

Read grouping.py first.

    grouping.py        groups of elements of parameters
    values.py          what rules ask and tell while a program runs on its example
    atoms.py           union-find over the elements of dimensions
    operator_rules.py  what operators do to channels
    layouts.py         the same for reshaping, cutting and joining
    modules.py         the same for layers that hold parameters
"""
