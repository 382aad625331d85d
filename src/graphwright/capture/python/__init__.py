"""What the code of a program calls, where Python itself would not tell: the runtime of converted functions.

For plain values it does what Python does, for values of the run what the capture knows. Read staging.py first.

    staging.py         the runtime: conditions, loops, calls and texts of converted functions
    comprehensions.py  comprehensions, which are loops of the graph where only a run knows how long
    transforms.py      `torch.vmap(f)(x)`: one node, with what `f` does as its body
    callers.py         calls that must be seen by what calls them, looked for on the stack
"""
