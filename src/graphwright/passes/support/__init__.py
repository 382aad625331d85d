"""What passes ask and do in common: facts about values, whose they are, editing of regions and submodules.

Read bodies.py first.

    pass_base.py       passes as classes, and what a pass gives back
    shape_prop.py      a run that notes on every node what it gave: shapes, dtypes, strides
    bodies.py          branches and loops edited: inputs, operands, what stands in their place
    tensor_facts.py    what is certain of a value: dtype, dimensions, sizes, whether it is a number
    layouts.py         the order of elements in memory, and who can see it
    ownership.py       whose a value is, and where one may stand in the place of another
    submodules.py      the submodules that a graph calls, and others in their place
    module_slots.py    submodules taken out for a while, and put back where they were
    module_numbers.py  numbers of modules, taken for granted
    node_names.py      names of values by the modules that they are computed in
"""
