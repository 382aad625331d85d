"""The same computation in another form, and back.

Read module_to_functional.py first.

    functional_to_module.py    calls of functions become calls of modules
    module_to_functional.py    calls of modules become calls of functions
    reversible.py              transformations that can be undone: the base classes, and composition
    reversible_batch_norms.py  batch norms in layers, so that it can be undone
    reversible_linears.py      linear layers merged, and biases in weights, so that it can be undone
"""
