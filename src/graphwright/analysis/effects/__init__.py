"""What nodes read, write and keep in memory.

Read effects.py first.

    effects.py   which values share memory, and what is read and written
    writes.py    the values that a node may write to
    liveness.py  from where to where values are needed
"""
