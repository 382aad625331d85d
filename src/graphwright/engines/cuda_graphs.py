"""`cuda_graph`: a call that launches all kernels of a program at once, as they were recorded for inputs of one size."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.analysis import state_kept, tensors_in
from graphwright.codegen import PythonCode, graph_to_readable_source
from graphwright.engines.called_modules import Unchanged
from graphwright.engines.fitting import facts_of
from graphwright.engines.form_text import opening
from graphwright.engines.inlining import inline
from graphwright.engines.optimized import Optimized, Plan, Prepared, held_for
from graphwright.engines.pack import Held
from graphwright.engines.recording import CUDA, Recorder, Recording, copied_with, nothing_is_written_to
from graphwright.engines.specializing import by_parameter
from graphwright.engines.staging import INLINED, bound_values, staged
from graphwright.errors import PassError, TrainingModeError
from graphwright.ir import Graph, Node
from graphwright.ops import is_impure, is_inplace, is_random, is_region, read_variable, unpack
from graphwright.runtime import STATE, Entry, GraphModule, entry_points_of, expect_outside, is_guard

_LAUNCHING = "forward_launching"
_WARM_UPS = 3  # libraries choose kernels and make work spaces in the first runs


def cuda_graph(
    gm: GraphModule, args: tuple[Any, ...] | Tensor = (), kwargs: Mapping[str, Any] | None = None
) -> GraphModule:
    """Copy a captured module on a CUDA device; calls with inputs like these launch all its kernels at once.

    The kernels are recorded in a CUDA graph, which reads static tensors: a call copies its inputs into these, launches
    the graph and gives copies of its results. The copy of the module shares its parameters. It has its own program
    beside, which runs for other sizes, dtypes, devices and other arguments, where gradients are wanted, in training,
    under autocast, inside of transforms and modes, and where modules have got hooks or other settings. Weights may be
    written to at any time; where they are other tensors, the kernels are recorded again.

    gm: what `trace`, `inline` or `optimize_for_inference` give, in evaluation.

    Raises PassError where there is no CUDA, for tensors on another device, for arguments that want gradients, and for
    a program that a recorded run would not do justice: with a branch on data, with another effect than computing, or
    with a result that lies in the memory of an argument. Raises TrainingModeError for a module in training.

    >>> import graphwright
    >>> gm = graphwright.trace(nn.Linear(2, 3).eval(), torch.ones(1, 2))
    >>> if torch.cuda.is_available():
    ...     fast = cuda_graph(gm.cuda(), torch.ones(1, 2).cuda())
    """
    return recorded_on(CUDA, gm, args if isinstance(args, tuple) else (args,), dict(kwargs or {}))


def recorded_on(recorder: Recorder, gm: GraphModule, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GraphModule:
    """Copy a captured module, and have a recorder record what it launches; see `cuda_graph`."""
    kind = recorder.kind.upper()
    if not recorder.is_there:
        raise PassError(f"there is no {kind} here", fix="use inline or optimize_for_inference: graphwright.inline(gm)")
    made = _staged(gm)
    entries = entry_points_of(made)
    entry = entries["forward"]
    values = bound_values(made, entry.graph, args, kwargs)
    _check(recorder, made, values, [str(node.target) for node in entry.graph.placeholders()])
    try:
        inputs = tuple(map(facts_of, values))
    except TypeError as error:
        raise PassError(f"{error}, which is no tensor, number or text", fix="give it in parts") from error
    plan = Plan(inputs, {})
    if isinstance(entry.form, Optimized):
        plan = dataclasses.replace(entry.form.plan, inputs=inputs)
    entries[_LAUNCHING] = Entry(_LAUNCHING, entry.graph, entry.signature)
    entries[_LAUNCHING].form = Optimized(INLINED, plan)
    entry.form = CudaGraph(INLINED, recorder)
    made = copy.copy(made)
    with torch.no_grad():
        recorded = recorded_for(made, *values) if made.code else None
    if recorded is None:
        raise PassError(
            "the program cannot be recorded here: a mode, a transform or autocast is on, or a module has a hook",
            fix="record it outside of these",
        )
    return made


def _staged(gm: GraphModule) -> GraphModule:
    """Copy a captured module, with the inlined program beside. Raises PassError for one that is recorded already."""
    entries = entry_points_of(gm)
    form = entries["forward"].form if "forward" in entries else None
    if isinstance(form, CudaGraph):
        raise PassError("the code of this module is recorded already", fix="record the module that it was made of")
    if isinstance(form, Optimized):
        return copy.copy(gm)
    return staged(inline(gm) if form is None else copy.copy(gm))


def _check(recorder: Recorder, module: nn.Module, values: Sequence[Any], names: Sequence[str]) -> None:
    """Raise PassError unless a module and what it is given are on the devices of a recorder, and for inference."""
    if any(each.training for each in module.modules()):
        raise TrainingModeError("a recorded run is for evaluation, and the module is in training", fix="gm.eval()")
    kind = recorder.kind
    given = {name.lstrip("*"): tensors_in(value) for name, value in zip(names, values, strict=True)}
    for name, tensors in given.items():
        other = next((tensor.device for tensor in tensors if tensor.device.type != kind), None)
        if other is not None:
            raise PassError(f"the argument {name!r} is on {other}, not on {kind}", fix=f'{name}.to("{kind}")')
        if any(tensor.requires_grad for tensor in tensors):
            raise PassError(
                f"the argument {name!r} wants a gradient, and no recorded run gives one", fix=f"{name}.detach()"
            )
    for path, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.device.type != kind:
            raise PassError(f"{path} is on {tensor.device}, not on {kind}", fix=f'gm.to("{kind}")')
    tensors = [*module.parameters(), *module.buffers(), *tensors_in(tuple(values))]
    devices = {tensor.device for tensor in tensors}
    if len(devices) != 1:
        found = ", ".join(sorted(map(str, devices))) or "no tensors at all"
        raise PassError(f"a program is recorded on one device; here are {found}", fix="put all tensors on one device")


# ---- which programs


def _refuse(graph: Graph, module: nn.Module, tensors: Collection[str]) -> None:
    """Raise PassError for a node that does more than launch kernels, which a recorded run would leave out."""
    for node in graph.all_nodes():
        reason = _reason_against(node, module, tensors)
        if reason:
            raise PassError(
                f"{node.name} {reason}, which a recorded run leaves out",
                at=node.origin,
                fix="call the module as it is, or record the part before it: graphwright.split(gm, at=...)",
            )


def _reason_against(node: Node, module: nn.Module, tensors: Collection[str]) -> str:
    if node.op in ("placeholder", "output"):
        return ""
    if node.op == "get_attr":
        return "" if node.target in tensors else f"reads {node.target}, which is no tensor or is assigned anew"
    if node.op == "call_module":
        called = module.get_submodule(str(node.target))
        is_known = all(type(each).__module__.startswith("torch.nn.") for each in called.modules())
        return "" if is_known and not is_impure(node, called) else f"calls {node.target}, whose code is not known"
    if is_region(node):
        return "is a branch or loop on data"
    if is_guard(node):
        return "" if node.target is expect_outside else "looks at a value at each call"
    if node.target is read_variable:
        return "reads a variable outside of the program"
    is_known = is_inplace(node) or is_random(node) or node.target is unpack or _makes_result(node)
    return "has an effect" if is_impure(node) and not is_known else ""


def _makes_result(node: Node) -> bool:
    """Tell whether a node makes the object that the program returns: each call gives a copy of that."""
    is_class = node.op == "call_function" and isinstance(node.target, type)
    return is_class and all(user.op == "output" for user in node.users)


# ---- the form


@dataclasses.dataclass(frozen=True, slots=True)
class CudaGraph:
    """The form of code that launches a recorded run. `beside` is the entry point with the inlined program."""

    beside: str
    recorder: Recorder = CUDA
    instead_of_saving: str = (
        "save the module that it was made of, and record what is loaded: "
        "graphwright.cuda_graph(graphwright.load(path), args)"
    )

    def write(self, module: GraphModule, entry: Entry) -> PythonCode:
        """Write the code: it looks for a recorded run, and launches it."""
        entry.held = Recordings(self.recorder)
        graph = Graph()
        for node in entry.graph.placeholders():
            graph.node_copy(node)
        given = tuple(graph.nodes)
        recorded = graph.create_node("get_attr", "the recorded run", (), {})
        results = graph.call_function(launch, (recorded, *given))
        results.name = "results"
        graph.output(results)
        return graph_to_readable_source(
            graph,
            owner=module,
            name=entry.name,
            first=lambda writer: _opening(self.beside, graph, writer),
            variables={"the recorded run": "recorded"},
        )


def _opening(beside: str, graph: Graph, writer: Any) -> list[str]:
    """The statements before the launch: the check, and the program beside."""
    values = ", ".join(str(node.target).lstrip("*") for node in graph.placeholders())
    check = f"{writer.names.function(recorded_for)}({writer.root}, {values})"
    why = "other sizes, gradients, training, a module that changed"
    return opening(writer, writer.variables["the recorded run"], check, why, beside, graph, is_whole=True)


def recorded_for(module: Any, *given: Any) -> Recording | None:
    """The recorded run of a program for these inputs; None where the general program has to run."""
    entries = module.__dict__[STATE].entries
    held = held_for(module, _LAUNCHING, given)
    if held is None:
        return None
    recordings: Recordings = entries["forward"].held
    return recordings.of(module, entries[_LAUNCHING].held, held, given)


def launch(recorded: Recording, *given: Any) -> Any:
    """Run a program as it was recorded, on these inputs."""
    return recorded(given)


class Recordings:
    """The recorded run of one module in this process, for the tensors that it has; `count` says how many there were."""

    __slots__ = ("_called", "_held", "_lock", "_outside", "_recorder", "_recording", "count")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._lock = threading.Lock()
        self._held: Held | None = None
        self._recording: Recording | None = None
        self._called: Unchanged | None = None
        self._outside: list[Any] = []
        self.count = 0

    def of(self, module: Any, prepared: Prepared, held: Held, given: Sequence[Any]) -> Recording | None:
        """What was recorded for these tensors of the module, or is recorded now; None where a guard would not hold."""
        with self._lock:
            if self._held is not held or self._called is None or not self._called.holds(module):
                self._renew(module, prepared, given)
                self._held = held
            recording = self._recording
            is_plain = self._called is not None and self._called.are_plain()
        return recording if is_plain and not any(outside.changed() for outside in self._outside) else None

    def _renew(self, module: Any, prepared: Prepared, given: Sequence[Any]) -> None:
        """Record the program, unless one of the modules that it calls has a hook or is in training."""
        nodes = list(prepared.graph.all_nodes())
        called = dict.fromkeys(str(node.target) for node in nodes if node.op == "call_module")
        self._called, self._recording = Unchanged(module, list(called)), None
        self._outside = [node.args[1] for node in nodes if node.target is expect_outside]
        if self._called.are_plain():
            self._record(module, prepared, given)

    def _record(self, module: Any, prepared: Prepared, given: Sequence[Any]) -> None:
        _refuse(prepared.graph, module, prepared.names)
        tensors = tensors_in(given)
        with torch.no_grad():
            inputs = [tensor.detach().clone() for tensor in tensors]
        positional, named = by_parameter(prepared.graph, copied_with(tuple(given), tensors, inputs))
        weights = [*module.parameters(), *module.buffers()]

        def run() -> Any:
            with torch.no_grad():
                return getattr(module, _LAUNCHING)(*positional, **named)

        try:
            with state_kept(module, module):
                self._warm_up(run, inputs, weights)
                self._recording = Recording(run, inputs, weights, self._recorder)
        except RuntimeError as error:
            if isinstance(error, PassError):
                raise
            reason = str(error).partition("\n")[0]
            raise PassError(f"the program cannot be recorded: {reason}", fix="call the module as it is") from error
        self.count += 1

    def _warm_up(self, run: Callable[[], Any], inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
        """Run a program some times, and leave random numbers as they were."""
        devices = {tensor.device for tensor in (*inputs, *weights) if tensor.device.type == "cuda"}
        with torch.random.fork_rng(devices=devices), nothing_is_written_to(inputs):
            for _ in range(_WARM_UPS):
                run()
