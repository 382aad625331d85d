"""Numbers and truths of a program: sizes, and what is computed from them.

Equal computations are one symbol, whose node is made at its first use. Read numbers.py first; the symbols themselves
are in state/symbols.py.

    numbers.py       which numbers there are, what computes them, and what Python does with them
    known_sizes.py   sizes that are the same for all inputs
    classes.py       of which class numbers are, where that follows from values
    keys.py          numbers as keys of dicts and sets
    broadcasting.py  `torch.broadcast_shapes` as one node
"""
