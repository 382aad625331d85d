"""How values, names and operators are written.

Read arguments.py first.

    arguments.py  values and types as Python, and names for what has no literal
    formats.py    Python's operators as templates, for tools that write code of their own
    operators.py  how Python's operators are written, and how tightly they bind
    wrapping.py   breaking long lines inside their brackets
"""
