"""What torch.fx has for passes under these names: ways to run them, and passes of its own.

Read pass_schedule.py first.

    pass_schedule.py             passes in an order that meets constraints, with checks, until nothing changes
    pass_order.py                constraints on the order of passes
    pass_manager.py              functions one after the other on anything
    fake_tensor_prop.py          the facts of tensors, from a run on fake ones
    const_fold.py                what does not depend on inputs, computed once
    cse_pass.py                  common subexpressions
    merge_matmul.py              products by the same right side as one
    normalize.py                 arguments by name, operators for functions, types
    optimize_for_inference.py    parts that run in MKL-DNN's layout
    graph_manipulation.py        other targets, sizes in bytes
    graph_transform_observer.py  what a pass did to a graph, noted and drawn
    annotate_getitem_nodes.py    types of items, from those of their containers
"""
