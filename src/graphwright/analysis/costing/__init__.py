"""What a run takes: operations, bytes and memory.

Read costs.py first.

    costs.py     floating-point operations, parameters and bytes, per node and per module
    memory.py    memory after each node, and at its peak
    storages.py  how much memory tensors take, each storage counted once
"""
