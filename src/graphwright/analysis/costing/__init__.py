"""What a run takes: operations, bytes and memory.

Read costs.py first.

    summary.py   a model on one screen: its tree of modules
    profile.py   where the time of a call goes
    flame.py     a profile as a picture
    costs.py     floating-point operations, parameters and bytes, per node and per module
    memory.py    memory after each node, and at its peak
    storages.py  how much memory tensors take, each storage counted once
"""
