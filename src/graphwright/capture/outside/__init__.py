"""What a program reaches beside its inputs: globals, closures, other modules, and the world.

It is found before or while the program runs, and recorded, or refused, or put back; no value of a capture stays in
it. Read closures.py first.

    closures.py         modules that a function reaches
    outside_modules.py  modules that are called and are no part of the captured one
    surroundings.py     global names, classes and closures: where functions lead, what is guarded there, what is state
    pairs.py            which classes and objects there were looked at for which attributes
    named.py            where a name leads in modules, classes and objects of the user's
    held_apart.py       iterators and containers there that a program changes and no graph can: refused
    globals_kept.py     global variables and tables that installed packages write to
    namespaces.py       variables of modules, classes and functions that a program changes without a name
    said.py             what is printed, logged and warned of
    overheard.py        functions of other modules that a capture is to hear of: a stand-in for each
    library_calls.py    functions of einops and its like, which are nodes wherever a program has them
    world.py            the clock, the environment, files: what is read there is said
    unknown_calls.py    functions that are not known to compute only: what they give or do is said
    missing_modules.py  modules that a program tries to import and does not find
    entered_contexts.py contexts of torch that set what it keeps for the process
    process_state.py    what torch keeps for the whole process: guarded where a program asks for it
    made_tensors.py     tensors that it makes while it is captured, and writes to
    number_limits.py    `torch.finfo(x.dtype)`: what follows from the dtype of a tensor
    random_state.py     seeds, states and forks of random numbers: nodes, in order
    torch_generators.py generators of torch that a program makes or holds
    drawing.py          calls that draw random numbers of Python's or NumPy's, as nodes
    python_draws.py     other draws, and items of iterators that are kept: found, and refused
"""
