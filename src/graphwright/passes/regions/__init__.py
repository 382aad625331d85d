"""Branches and loops: fewer of them, and less inside them.

Read unroll_loops.py first.

    set_training.py      training flags that are known before the program runs
    fold_conditions.py   conditions that are known before the program runs
    merge_conditions.py  branches inside a branch on the same condition
    unroll_loops.py      loops with few rounds, written out
    hoist_invariants.py  what is the same in each round, computed once before the loop
"""
