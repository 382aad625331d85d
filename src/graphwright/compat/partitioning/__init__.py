"""Parts for accelerators and other backends, found and cut as by torch.fx's tools of these names.

Read tools_common.py first.

    split_module.py       a module cut into submodules, by a callback
    split_utils.py        a module cut by tags on its nodes
    splitter_base.py      the base of splitters: parts that an accelerator runs, and parts that it does not
    operator_support.py   which nodes a backend can run: predicates that combine
    node_events.py        a log of why nodes count as supported or not
    partitioner.py        the largest parts that a backend can take over
    fuser_utils.py        nodes that are given together become one call
    grouping.py           groups of nodes, such that no group needs another one that needs it
    kept_order.py         which operations must stay in order though neither reads the other
    subgraph_modules.py   graphs of parts as modules of their own, and compared
    source_partitions.py  the nodes that came from one call of a module or function
    net_min_base.py       the base of minimizers: at which nodes two ways to run a module part
    param_fetch.py        weights and options of a called module, by name
    tools_common.py       what these tools need to know of nodes: names of targets, tensors or not
"""
