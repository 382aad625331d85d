"""Lists, dicts, sets, deques and iterables of which only a run knows how much is in them.

Each stands in the program's variables for the real one; reads and writes of it are nodes. What is in it is of a kind,
which grows as items come. Read methods.py first, then row_engine.py, loop_holders.py and loop_lists.py.

    methods.py          what each method of a list, tuple, deque, dict or set does: tables
    row_engine.py        how a row of these tables becomes a node, a check and a change of the example
    loop_holders.py     containers in variables: kinds, and values of the program made of them
    item_kinds.py       of what kind items are, and the kind of two kinds
    joining.py          which values of two ways become one, and what that one is
    opening.py          a container to which a loop adds becomes one of these, from before the loop on
    loop_lists.py       lists, tuples and deques that grow in a loop
    loop_dicts.py       dicts that a loop fills
    loop_sets.py        sets, and what makes dicts and sets of values of the run
    list_items.py       lists and dicts that are items of such a list
    kept_containers.py  lists, dicts, sets and deques in attributes, to which a program adds from call to call
    tables.py           calls of methods, classes and `heapq` that meet such containers in converted functions
    open_iterables.py   what a loop goes over: rows of a tensor, ranges, enumerated, zipped, reversed
    rows.py             lists as long as a size: `list(x)`, `x.unbind()`, `x.split(2)`
    orderings.py        `sorted`, `max` and `min` of values of the run
    body_replay.py      the body of a region, run on stand-ins
"""
