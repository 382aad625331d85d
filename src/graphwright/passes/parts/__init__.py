"""Parts of programs: some of their values, stages that run one after the other, fewer channels.

Read extraction.py first.

    extraction.py         intermediate values of a program as its result
    feature_extractor.py  the same by torchvision's names and arguments
    wanted_values.py      which values are wanted: names, patterns, and what their values are called
    program_values.py     the values of a program by name, those on the sides of branches too
    splitting.py          a program cut into stages
    stage_modules.py      what stages are: modules with the names of the whole, and the links between them
    stage_order.py        which stage each node is in, in an order in which each has what it needs
    balanced_cuts.py      where to cut a sequence into parts of like cost
    minimizing.py         the smallest part of a model that still fails
    pruning.py            channels removed from a module
    fitting.py            a graph made to fit parameters that have become smaller
    removed_channels.py   what is left of dimensions when some channels are removed
"""
