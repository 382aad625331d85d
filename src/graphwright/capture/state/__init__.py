"""The capture that is running, as every file of capture/ knows it, and what it has learned.

Read protocol.py first, then parts.py: the interface that both kinds of captures have. The other files are what it
holds.

    protocol.py         what may be asked of the capture that is running
    parts.py            the parts of it, each of which knows one thing
    rungs.py            the rungs of the ladder, as other files know them
    running.py          the capture of this thread, and how it stops the program
    places.py           what the plan knows a question by
    ledger.py           what Python saw of the outside as a plain value: guarded or said
    plan.py             what earlier passes have learned, and why a capture starts again
    regions.py          the graphs that are written: the program's own and those of branches
    examples.py         what operations give for the example inputs
    samples.py          what a value of the run is like, and marks in the place of one
    symbols.py          numbers: what is behind one, and Python's arithmetic on it
    tensor_proxy.py     tensors
    alike_results.py    what operations give, told from what they gave for arguments of the same kinds
    calls.py            how many calls became nodes
    draws.py            operations on real values: their random numbers, and what they write to
    members.py          the modules and tensors of a program, looked at once for all passes
    leaf_modules.py     which modules and functions are one node, and which are entered
    obstacles.py        what stands in the way of a capture, with what to do about it
    side_ended.py       how a side of a branch says that it does not go on
    tidy.py             what nothing came to use, removed
    tracer_warnings.py  the warnings of a capture itself
    interception.py     the one place that changes what other code sees
    thread_state.py     what a capture changes of thread and process, put back
"""
