"""Captured modules that run faster, and compute the same.

A captured module comes in; one with other code comes out. Read inlining.py first, then optimizing.py.

    cuda_graphs.py      `cuda_graph`: a call that launches all kernels of a program at once
    recording.py        a recorded run, its static tensors and the copies of its results
    called_modules.py   whether modules that were called are what they were
    optimizing.py       `optimize_for_inference`: forms of a module, checked and measured against each other
    staging.py          copies of inlined modules that have room for a form
    reporting.py        what a module runs on, and why
    optimized.py        the form of optimized code, and what its calls look at
    written_tensors.py  which tensors of modules a program may write to
    specializing.py     a program for inputs of given sizes, in evaluation
    regions.py          pieces of a program that another engine runs
    inductor.py         one of them: torch.compile
    decisions.py        decisions that were measured before
    choosing.py         the kernel of each layer, measured and put into the graph
    sites.py            where layers are in a graph, with what belongs to them
    reading.py          what nodes call
    alternatives.py     the kernels that may compute a layer
    pack.py             what is made of tensors once, and anew when they change
    fitting.py          whether a call is one for optimized code
    numerics.py         how far results are off of others
    measure.py          which of several calls is the fastest
    inlining.py         modules as calls of their functions, with their tensors read once for a call
    form_text.py        the text of both forms: names for tensors, and the statements that it opens with
    kernels.py          functions that only look at their arguments before they call another, by that other
    bound_tensors.py    what inlined code takes for granted of modules, looked at in one check a call
"""

from graphwright.engines.alternatives import (
    ACTIVATIONS,
    Activation,
    Calls,
    Kernel,
    Site,
    activated,
    as_image,
    as_vectors,
    off_by,
)
from graphwright.engines.bound_tensors import tensors_of
from graphwright.engines.cuda_graphs import CudaGraph, cuda_graph, launch, recorded_for
from graphwright.engines.inlining import Inlined, inline
from graphwright.engines.measure import fastest
from graphwright.engines.optimized import Optimized, packed_for
from graphwright.engines.optimizing import (
    Search,
    calling_all,
    engines_of_auto,
    fastest_form,
    optimize_for_inference,
)
from graphwright.engines.pack import itself
from graphwright.engines.reading import activation_after, activation_of, arguments_of, only_user
from graphwright.engines.regions import ENGINES, Engine, Opened, installed, run_region
from graphwright.engines.reporting import OptimizedReport, RunsOn, add_notes
from graphwright.engines.sites import Finder, FloatLayers, Found, Searched, together
from graphwright.engines.specializing import reads_sizes
from graphwright.engines.staging import Call, call_of, computes_gradients, has_form, has_several
from graphwright.engines.written_tensors import TensorEffects

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Call",
    "Calls",
    "CudaGraph",
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
    "TensorEffects",
    "activated",
    "activation_after",
    "activation_of",
    "arguments_of",
    "add_notes",
    "as_image",
    "as_vectors",
    "call_of",
    "calling_all",
    "computes_gradients",
    "has_form",
    "has_several",
    "cuda_graph",
    "engines_of_auto",
    "fastest",
    "fastest_form",
    "inline",
    "installed",
    "itself",
    "launch",
    "off_by",
    "only_user",
    "optimize_for_inference",
    "packed_for",
    "reads_sizes",
    "recorded_for",
    "run_region",
    "tensors_of",
    "together",
]

# Files, the top floor first: a file imports from those after it.
FLOORS = (
    "cuda_graphs",
    "recording",
    "called_modules",
    "optimizing",
    "staging",
    "reporting",
    "optimized",
    "written_tensors",
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
    "numerics",
    "inlining",
    "form_text",
    "kernels",
    "bound_tensors",
)
