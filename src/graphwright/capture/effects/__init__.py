"""What a program changes: attributes that it keeps, state that sides of a branch leave, memory that it writes.

It is noted, put back, and written where the captured program has to do it. Read keeping.py first, then
branch_state.py.

    keeping.py          attributes that a program keeps from one call to the next
    start_values.py     the values that a call starts with
    first_calls.py      what a first call leaves together, which decides what later ones do
    unwritten.py        what has changed and is not written yet, and writing it where the program ends
    kept_kinds.py       kinds of what it keeps: before a call and after one they must go together
    kept_apart.py       which places of what it keeps hold one container, where that makes a difference
    kept_items.py       what is in lists and dicts to which it adds, and whether that stays as it is
    made_where_missing.py  attributes that a program makes where they are missing
    kept_tables.py      tables of what it may keep, and what was in them when it started
    variables.py        variables outside of all modules, to watch, write and put back
    held_tables.py      what containers and objects hold, as one table for each
    alike_modules.py    modules of which a capture of one holds for the other as well
    module_reads.py     what a program reads of its modules as plain values
    watched_tables.py   the tables of a module, which tell what is read of them
    class_uses.py       what the class of a module does with its own attributes
    asked_modules.py    of which class modules are, and whether two are one, where a program asks
    object_reads.py     plain values in objects that modules hold, and attributes of their tensors
    branch_state.py     what sides of a branch and iterations of a loop may change
    watched_values.py   what values lead to that the program may change, and how it was
    reach.py            where a value leads, and how what cannot be put back is seen to have changed
    choices.py          lists, dicts, sets and objects of which data chose one
    writes.py           writes in place, and the numbers that were read before them
    contents_before.py  what containers and objects held at one moment
    hook_effects.py     what the user's forward hooks change
"""
