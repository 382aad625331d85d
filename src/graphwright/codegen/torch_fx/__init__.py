"""Code as torch.fx's users ask for it.

boxed.py         code that takes its inputs in one list and empties it
custom.py        code that users change: another signature, another `return`, another body
details.py       types and shapes of known values, the user's lines, colors, profiler ranges
formats.py       Python's operators as templates, for tools that write code of their own
pytree.py        programs whose arguments have a structure
stack_traces.py  which line of the user's program a stack trace ends with
"""
