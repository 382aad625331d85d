"""Programs made ready for quantization, and observers in them.

Read simplifying.py first.

    simplifying.py  layers as modules, nothing in place; batch norms folded, for evaluation
    products.py     products with parameters, as linear layers
    state.py        state that programs write, as it was
    observing.py    observers, put into programs and taken out again
"""
