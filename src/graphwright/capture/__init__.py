"""PyTorch program -> graph.

A module or function comes in, unmodified and never written to; a GraphModule goes out. Read symbolic/symbolic.py and
symbolic/tracer.py first, then typed/trace.py for capture with example inputs, and state/protocol.py for what all files
know of the capture that is running.

    typed/       the door with example inputs: `trace` and `doctor`
    symbolic/    the door without them: `symbolic_trace`, with torch.fx's classes
    ladder/      what is done where Python asks for a value that only a run has
    python/      the runtime of converted functions: what a program's code calls
    flow/        branches, loops, `try` and forks
    outside/     what a program reaches beside its inputs: globals, closures, other modules
    calls/       how calls of torch and of other libraries are written, answered or kept whole
    containers/  lists, dicts, sets and iterables of which only a run knows how much is in them
    effects/     what a program keeps, writes and changes
    numbers/     sizes, and what is computed from them
    proxies/     values that stand for what only a run has, other than tensors and numbers
    state/       the capture that is running: its interface, and what it has learned
    conversion/  functions made again from their source
"""

from typing import TYPE_CHECKING

from graphwright.capture.conversion.conversion import converted_source
from graphwright.capture.outside.drawing import computes_only
from graphwright.capture.proxies.noting import note_output, noted
from graphwright.capture.proxies.proxy import Attribute, MetaProxy, ParameterProxy, Proxy, find_tracer
from graphwright.capture.proxies.proxyable import ProxyableClassMeta
from graphwright.capture.proxies.recording import GraphAppendingTracer, TracerBase
from graphwright.capture.state.interception import standing_in
from graphwright.capture.state.leaf_modules import LeafModules, leaf_predicate
from graphwright.capture.state.obstacles import Diagnosis, Obstacle
from graphwright.capture.state.tidy import erase_unused
from graphwright.capture.state.tracer_warnings import TracerWarning
from graphwright.capture.symbolic.wrap import recording, wrap
from graphwright.capture.typed.doctor import doctor
from graphwright.capture.typed.entries import Subject, placeholder_of, share_constants
from graphwright.capture.typed.trace import trace
from graphwright.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from graphwright.capture.symbolic.root_inputs import PH, PHBase, PHWithMeta
    from graphwright.capture.symbolic.symbolic import symbolic_trace
    from graphwright.capture.symbolic.tracer import Tracer, is_fx_symbolic_tracing, is_fx_tracing
    from graphwright.capture.symbolic.transformer import Transformer
    from graphwright.capture.typed.recorded_calls import (
        RecordedRun,
        one_of_each_form,
        record,
        recorded_calls,
        recorded_run,
    )

# What is loaded when it is asked for: captures with example inputs do without.
__getattr__ = lazy_imports(
    __name__,
    {
        "PH": "symbolic.root_inputs",
        "PHBase": "symbolic.root_inputs",
        "PHWithMeta": "symbolic.root_inputs",
        "Tracer": "symbolic.tracer",
        "Transformer": "symbolic.transformer",
        "is_fx_symbolic_tracing": "symbolic.tracer",
        "is_fx_tracing": "symbolic.tracer",
        "one_of_each_form": "typed.recorded_calls",
        "RecordedRun": "typed.recorded_calls",
        "record": "typed.recorded_calls",
        "recorded_calls": "typed.recorded_calls",
        "recorded_run": "typed.recorded_calls",
        "symbolic_trace": "symbolic.symbolic",
    },
)

__all__ = [
    "PH",
    "Attribute",
    "Diagnosis",
    "GraphAppendingTracer",
    "LeafModules",
    "MetaProxy",
    "Obstacle",
    "PHBase",
    "PHWithMeta",
    "ParameterProxy",
    "Proxy",
    "ProxyableClassMeta",
    "RecordedRun",
    "Subject",
    "Tracer",
    "TracerWarning",
    "TracerBase",
    "Transformer",
    "converted_source",
    "doctor",
    "erase_unused",
    "find_tracer",
    "is_fx_symbolic_tracing",
    "is_fx_tracing",
    "leaf_predicate",
    "note_output",
    "noted",
    "computes_only",
    "placeholder_of",
    "one_of_each_form",
    "record",
    "recorded_calls",
    "recorded_run",
    "recording",
    "share_constants",
    "standing_in",
    "symbolic_trace",
    "trace",
    "wrap",
]

# The sub-rooms, the top floor first: a file imports from its own floor and from those after it.
FLOORS = (
    "typed",
    "symbolic",
    "ladder",
    "python",
    "flow",
    "outside",
    "calls",
    "containers",
    "effects",
    "numbers",
    "proxies",
    "state",
    "conversion",
)
