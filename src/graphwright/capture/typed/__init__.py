"""The door with example inputs: what `trace`, `record` and `doctor` do.

Who calls them, on what, and with which inputs; the recorder that the program runs under; what becomes of the captures
of its ways. Read trace.py first, then program.py and recorder.py.

    recorded_calls.py  `record`: a run of the user's own says with which calls a model is captured
    trace.py           `trace`: a model and example inputs in, a captured module of the same class out
    program.py         a program with example inputs, run on stand-ins along every path that it forks into
    remembered.py      what captures have learned of the programs they captured, for the next capture of one like it
    recorder.py        what is done with each operation of a program that runs on examples
    given_items.py     results of operations as the program gets them
    recording_mode.py  the mode under which a program runs: it sees every call of torch
    inputs.py          the user's values in, placeholders and proxies out, and back; guards of the inputs
    module_calls.py    what calls of modules got and gave, noted on the way
    repeats.py         modules that are called like one before: their part of the graph is copied
    copy_budget.py     whether it pays to look for calls that may be copied
    alike_arguments.py arguments of calls that are of one form and kinds, the same things being the same
    copied_calls.py    the nodes of a call, made again for a module like its own
    knowledge.py       what a capture knows at one moment, as data that compares
    unseen_changes.py  whether the program may have changed, since some moment, what a capture does not see
    settling.py        what was read of values on the way, followed to the inputs that it follows from
    same_values.py     what tells questions about values with examples apart
    held_tensors.py    tensors, arrays and devices that a program has, and the nodes that read them
    entries.py         what the caller wants captured: entry points, each with its example inputs
    dispatching.py     several captures of one entry point as one graph, which chooses by their guards
    checks.py          a capture that took one way, made again and on other inputs
    escaping.py        errors that leave a capture: the program's own say where, all others become ours
    doctor.py          `doctor`: all that stands in the way of a capture, found in one go
"""
