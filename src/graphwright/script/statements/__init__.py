"""Statements: how each may end, and what variables are afterwards.

Read statements.py first.

    statements.py       every statement, one function each
    attempts.py         `try`
    loops.py            `while` and `for`, kept in the graph or written out
    branches.py         `if`, the ternary, and what is left of a block once some way has left it
    with_statements.py  `with`: what can be entered
    merging.py          two ways of a program becoming one again
"""
