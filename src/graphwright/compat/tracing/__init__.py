"""torch.fx's further ways to trace, and its types of tensors.

Read meta_tracer.py first.

    meta_tracer.py  shapes and dtypes answered from example inputs
    rewriter.py     assert statements, and types of variables, as calls that stay in the graph
    annotate.py     a value of the program gets a type
    tensor_type.py  types of tensors by their sizes
    debugging.py    stopping in generated code
"""
