"""Calls: who is called decides how.

Read calls.py first.

    calls.py              every call, and what each kind of callee makes of it
    modules.py            calls of modules: layers of torch are one node, others are entered
    inlining.py           calls of Python functions, compiled in place
    methods.py            methods of tensors, lists, dicts, strings and tuples
    special.py            functions that the compiler itself answers
    builtin_functions.py  Python's own functions: len, range, zip, min, print and their like
    containers.py         deque, defaultdict, OrderedDict, Counter and heaps
"""
