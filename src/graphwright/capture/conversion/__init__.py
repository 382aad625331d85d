"""Functions made again from their source, so that what they ask goes through a runtime.

`if x.sum() > 0:` becomes a call with two functions. Read conversion.py first, then converter.py.

    conversion.py           a function in, the same function with questions as calls out
    converter.py            its tree rewritten, statement by statement
    calls_left.py           calls that it makes as they are written
    displays.py             keys that only a run may know, and displays with all items of others
    generators.py           generator functions as functions that gather what they give
    asked_classes.py        which questions for classes a function holds
    comparisons.py          which variables it compares with what is no number
    local_variables.py      `locals()` as the variables, spelled out
    unshared.py             lists and dicts of a function that nobody else can hold
"""
