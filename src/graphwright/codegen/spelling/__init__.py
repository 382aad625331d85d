"""How values, names and operators are written.

arguments.py  values and types as Python, and names for what has no literal
operators.py  how Python's operators are written, and how tightly they bind
wrapping.py   breaking long lines inside their brackets
"""
