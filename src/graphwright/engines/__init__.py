"""Captured modules that run faster, and compute the same.

A captured module comes in; one with other code comes out. Read inlining.py first.

    inlining.py        modules as calls of their functions, with their tensors read once for a call
    kernels.py         functions that only look at their arguments before they call another, by that other
    bound_tensors.py   what inlined code takes for granted of modules, looked at in one check a call
"""

from graphwright.engines.bound_tensors import tensors_of
from graphwright.engines.inlining import Inlined, inline
from graphwright.engines.optimized import packed_for
from graphwright.engines.optimizing import optimize_for_inference
from graphwright.engines.regions import run_region

__all__ = ["Inlined", "inline", "optimize_for_inference", "packed_for", "run_region", "tensors_of"]

# Files, the top floor first: a file imports from those after it.
FLOORS = ("inlining", "kernels", "bound_tensors")
