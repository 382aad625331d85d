"""The ladder: what is done where Python asks for a value that only a run has, a file for each rung.

Convert who asks, so that the question becomes a branch; else fork; else take the example's answer under a guard; else
refuse, or make one node of what cannot be traced. Read questions.py first.

    questions.py       the rungs in their order: every question goes down them
    know.py            what holds where the capture is and what follows, and where in the program a question is asked
    stage.py           the functions that ask are converted, and who calls them
    optionals.py       who gets a tensor that may be None asks through the runtime, or it forks
    fork.py            an end of the program for each answer
    guarded_answer.py  the example's answer, checked at each call
    outline.py         the innermost function or module that can be one node
    refuse.py          refusals, and what is tried before them
    raising.py         exceptions that the program raises on a side of a branch
    messages.py        what is asked to tell people something, where the answer decides nothing
    slices.py          what depends on the slice that a function given to `torch.vmap` runs on
"""
