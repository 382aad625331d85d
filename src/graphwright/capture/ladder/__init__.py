"""The ladder: what is done where Python asks for a value that only a run has.

Convert who asks, so that the question becomes a branch; else fork; else take the example's answer under a guard; else
refuse, or make one node of what cannot be traced. Read questions.py first.

    questions.py   the rungs in their order, and where in the program a question is asked
    conditions.py  what follows from the truth of a condition
    outlining.py   the innermost function or module that can be one node
    slices.py      what depends on the slice that a function given to `torch.vmap` runs on
"""
