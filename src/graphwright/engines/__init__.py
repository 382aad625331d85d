"""Captured modules that run faster, and compute the same.

A captured module comes in; one with other code comes out. Read inlining.py first.

    inlining.py        modules as calls of their functions, with their tensors read once for a call
    kernels.py         functions that only look at their arguments before they call another, by that other
    bound_tensors.py   what inlined code takes for granted of modules, looked at in one check a call
"""

from graphwright.engines.bound_tensors import tensors_of
from graphwright.engines.inlining import Inlined, inline

__all__ = ["Inlined", "inline", "tensors_of"]

# Files, the top floor first: a file imports from those after it.
FLOORS = ("inlining", "kernels", "bound_tensors")
