"""A captured module as one file of data, written and read without running anything of it.

Read plain_data.py first.

    saving.py         `save`: the file, its program and its tensors
    loading.py        `load`: the module again, no constructor run and nothing unpickled
    plain_data.py     values as plain data
    saved_graphs.py   graphs as plain data, and back, every name checked
    saved_types.py    annotations as plain data, and back
"""
