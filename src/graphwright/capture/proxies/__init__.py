"""Values that stand in the program for what only a run has, other than tensors and numbers.

Each knows its capture and the node that gives it; what the program does with it is recorded. Read proxy.py and
recording.py first.

    proxy.py             untyped values of `symbolic_trace`
    recording.py         how what happens to an untyped value becomes a node
    proxyable.py         classes whose construction is recorded
    object_proxy.py      values that leave torch: lists of numbers, NumPy arrays
    objects.py           objects of the user's own classes among the inputs
    run_text.py          texts that only a run knows
    run_keys.py          keys of dicts that only a run knows
    growing.py           containers of which only a run knows the content, as the whole capture sees them
    unbound.py           variables that have a value on some ways only
    uncertain.py         tensors that are None, or a number, on some ways
    training_flag.py     the `training` flag of a module during symbolic tracing
    constructors.py      what to call for a container that has no literal
    contents.py          what a value holds that may change: items, attributes
    cycles.py            values that hold themselves: errors that say so
    noting.py            which values are the outputs of which modules
    made_parameters.py  parameters and buffers that a program makes while it runs
    tensor_names.py      what each attribute and method of a tensor is to a capture: one closed table
    calls_as_written.py  which call of the user's program a torch function stands for
"""
