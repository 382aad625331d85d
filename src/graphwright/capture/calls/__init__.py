"""Calls of torch and of other libraries: how each is written, answered or kept as one node.

Read opaque.py first, then answers.py.

    opaque.py              what is one node and not looked into: leaf modules and functions, what cannot be traced
    whole_calls.py         what becomes one node as it is: autograd functions, compiled code, packing
    answers.py             what is asked of a tensor: its sizes, what kind it is, its data
    facts.py               facts of tensors: symbolic where they may be, else guarded where they are asked for
    dtypes.py              dtypes that a program reads of a tensor and hands on
    compared_dtypes.py     dtypes of inputs and parameters that it compares
    kept_values.py         dtypes and devices that objects keep as attributes
    dtype_questions.py     what is asked of a dtype, and which dtypes have the same answer
    result_dtypes.py       what the dtypes of results follow from
    arguments.py           values without a literal, made again by calls
    ambient.py             grad mode, autocast and inference mode, recorded where they change
    given_functions.py     functions that torch is given to call: hooks on gradients
    gradients.py           what is asked of a tensor's gradient: read at the call, so that it becomes a branch
    modes.py               what is asked of torch's modes: grad mode, autocast, the default dtype
    autograd_functions.py  calls of autograd functions, as a value and on the stack
    converted_modules.py   `module.to(dtype)` while a program is captured
    errors_raised.py       what an operation may raise for other inputs
    identity.py            which values are one: `a is b`, `a in values`
    counting.py            how many calls are nodes, and how many stay inside
    refusals.py            TypeErrors by which C++ refuses values of the program
"""
