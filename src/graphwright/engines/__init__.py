"""Captured modules that run faster, and compute the same.

A captured module comes in; one with other code comes out. Read inlining.py first, then optimizing.py.

    optimizing.py      `optimize_for_inference`: forms of a module, checked and measured against each other
    reporting.py       what a module runs on, and why
    optimized.py       the form of optimized code, and what its calls look at
    specializing.py    a program for inputs of given sizes, in evaluation
    regions.py         pieces of a program that another engine runs
    inductor.py        one of them: torch.compile
    decisions.py       decisions that were measured before
    choosing.py        the kernel of each layer, measured and put into the graph
    sites.py           where layers are in a graph, with what belongs to them
    reading.py         what nodes call
    alternatives.py    the kernels that may compute a layer
    pack.py            what is made of tensors once, and anew when they change
    fitting.py         whether a call is one for optimized code
    measure.py         which of several calls is the fastest
    inlining.py        modules as calls of their functions, with their tensors read once for a call
    opening.py         the statements that both forms open with
    kernels.py         functions that only look at their arguments before they call another, by that other
    bound_tensors.py   what inlined code takes for granted of modules, looked at in one check a call
"""

from graphwright.engines.alternatives import ACTIVATIONS, Activation, Calls, Kernel, Site, off_by
from graphwright.engines.bound_tensors import tensors_of
from graphwright.engines.inlining import Inlined, inline
from graphwright.engines.measure import fastest
from graphwright.engines.optimized import Optimized, packed_for
from graphwright.engines.optimizing import (
    Search,
    calling,
    engines_of_auto,
    fastest_form,
    optimize_for_inference,
    writes_state,
)
from graphwright.engines.pack import itself
from graphwright.engines.reading import activation_of, arguments_of, is_sum, is_written_sum, only_user
from graphwright.engines.regions import ENGINES, Engine, Opened, installed, run_region
from graphwright.engines.reporting import OptimizedReport, RunsOn, add_notes
from graphwright.engines.sites import Finder, FloatLayers, Found, Searched, together

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Calls",
    "ENGINES",
    "Engine",
    "Finder",
    "FloatLayers",
    "Found",
    "Inlined",
    "Kernel",
    "Opened",
    "Optimized",
    "OptimizedReport",
    "RunsOn",
    "Search",
    "Searched",
    "Site",
    "activation_of",
    "arguments_of",
    "add_notes",
    "calling",
    "engines_of_auto",
    "fastest",
    "fastest_form",
    "inline",
    "installed",
    "is_sum",
    "is_written_sum",
    "itself",
    "off_by",
    "only_user",
    "optimize_for_inference",
    "packed_for",
    "run_region",
    "tensors_of",
    "together",
    "writes_state",
]

# Files, the top floor first: a file imports from those after it.
FLOORS = (
    "optimizing",
    "reporting",
    "optimized",
    "specializing",
    "regions",
    "inductor",
    "decisions",
    "choosing",
    "sites",
    "reading",
    "alternatives",
    "pack",
    "fitting",
    "measure",
    "inlining",
    "opening",
    "kernels",
    "bound_tensors",
)
