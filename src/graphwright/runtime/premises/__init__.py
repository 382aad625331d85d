"""What a capture took for granted of the modules of a program, checked when the captured module runs.

The code of inner modules is part of the captured program: their hooks, their class, their plain attributes and what
their containers hold were read when it was captured. What is compared is plain data, by dotted paths, and is kept with
the graph: it goes where the graph goes.

    bound.py   what a call looks at, found once for each tree of modules
    unlike.py  what is unlike what it was, and what to do about it
    text.py    what is taken for granted, in words
    names.py   how modules, classes and hooks are called in it
"""
