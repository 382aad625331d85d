"""Work that can be left out, or done once: the result is the very same.

Read remove_no_ops.py first.

    remove_dead_code.py      operations that nothing needs, and submodules that nothing calls
    dead_values.py           what nothing needs, inside branches and loops too
    merge_subexpressions.py  operations that compute the same, computed once
    fold_constants.py        what is the same in every call, kept as a buffer
    simplify_algebra.py      arithmetic that can be left out or done beforehand
    collapse_chains.py       operations of one kind after each other, done as one
    remove_no_ops.py         operations that give what they are given
    remove_guards.py         the checks of what a capture took for granted
"""
