"""Values without data: shapes, dtypes and devices, kept up to date while a module is edited.

Read shapes.py first.

    shapes.py           shapes, dtypes and devices of all values
    shapes_of_calls.py  those of several calls, which take different ways
    evaluation.py       the values of one graph; after an edit what depends on it is run again
    stand_ins.py        single nodes on fake tensors
    fake_modules.py     copies of modules whose tensors are fake
    fake_regions.py     branches and loops on fake tensors
    surroundings.py     the `with` blocks and switches along the nodes
    value_facts.py      what is known of a value besides its data, in a form that compares
"""
