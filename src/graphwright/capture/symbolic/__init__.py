"""The door without examples: `symbolic_trace`, with the names and classes of torch.fx.

The program runs on untyped proxies; a question about one is a branch of the graph or an error. Read symbolic.py first,
then tracer.py.

    symbolic.py           `symbolic_trace`: a module or function in, a GraphModule out
    tracer.py             `Tracer`: the run of the program on proxies, method by method as in torch.fx
    ambient_mode.py       the mode under which it runs: what is called without proxies, and matters
    identities.py         the functions that ask whether two values are one: converted before they run
    failures.py           errors that leave such a run, with the user's line and the way out
    symbolic_branches.py  the capture that runs, as converted code asks it: branches and loops on untyped proxies
    parts.py              the parts of such a capture: joining, numbers and writes of which nothing is known
    root_inputs.py        placeholders, and what `concrete_args` specializes
    attributes.py         parameters and buffers, recorded where they are read
    wrap.py               functions that are one call instead of being entered
    transformer.py        a graph run on proxies, so that it is built anew
"""
