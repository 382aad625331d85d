"""Two modules, or a module and the program it came from: is it the same, how far apart, and from where on.

Read verify.py first.

    verify.py        run both and compare everything that can be seen
    node_values.py   at which node something else is computed
    divergence.py    where in a graph two runs part
    compare.py       numbers beside each other, layer by layer
    counterparts.py  which nodes of two twins give the same value
"""
