"""What a module holds: attributes, submodules and hooks, and stand-ins that hold the same.

Read attributes.py first.

    attributes.py  attributes by dotted path: read, copied, removed
    submodules.py  submodules added and removed by dotted path
    hooks.py       functions called on edits and copies
    shells.py      stand-ins for the modules of a program
    yielding.py    attributes of ours that step aside for the program's
"""
