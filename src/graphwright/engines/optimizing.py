"""`optimize_for_inference`: the fastest of what computes the same, found by measuring."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from graphwright.analysis import same_randomness, state_kept, tensors_in
from graphwright.capture import recorded_run, trace
from graphwright.engines.alternatives import Convolution, Site
from graphwright.engines.choosing import Choice, choose, choose_merged, numerics_of, reason_against
from graphwright.engines.decisions import Decisions
from graphwright.engines.fitting import facts_of, facts_or_held, other_sizes, tensors_of_facts, with_open_sizes
from graphwright.engines.inlining import inline
from graphwright.engines.measure import fastest
from graphwright.engines.numerics import Numerics, numerics
from graphwright.engines.optimized import Optimized, Plan, Prepared, Program
from graphwright.engines.regions import ENGINES, Region, ends_of, installed
from graphwright.engines.reporting import META, RunsOn
from graphwright.engines.sites import Finder, FloatLayers, Found
from graphwright.engines.specializing import runs_with
from graphwright.engines.staging import (
    INLINED,
    Call,
    bound_values,
    call_of,
    computes_gradients,
    has_form,
    has_several,
    staged,
)
from graphwright.errors import PassError
from graphwright.ir import Node
from graphwright.progress import shown
from graphwright.runtime import GraphModule, entry_points_of

_PRECISIONS = {"fp32": 0.0, "bf16": 0.03}  # each with how far off its results are, if nothing else is asked
_SECONDS_A_SITE, _SECONDS_A_PROGRAM = 0.05, 1.0


@shown("optimizing")
def optimize_for_inference(
    model: nn.Module | Callable[..., Any],
    args: tuple[Any, ...] | Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    engines: Literal["auto"] | Sequence[str] = "auto",
    precision: Literal["fp32", "bf16"] = "fp32",
    examples: Iterable[Any] | Callable[[Any], Any] | None = None,
    tolerance: float = 1e-4,
    keep_decisions: bool = False,
    progress: bool | None = None,
) -> GraphModule:
    """Capture a module, if it is none yet, and give a copy that is faster on inputs like these, for inference.

    Batch norms go into convolutions, activations and sums into the layers before them, weights are packed as the
    fastest kernel wants them, sizes are literals; or an engine runs the program. What is used is what was the fastest
    here and now, at `torch.get_num_threads()` threads, by a margin: `report` says what, and why. Other sizes, dtypes
    and devices, training and gradients run the inlined program. A weight that changes is packed anew.

    engines: "torch" is what PyTorch has; "onnxruntime", "openvino" and "inductor" run pieces of the program where they
    are faster. "auto" is torch, ONNX Runtime and OpenVINO, as far as they are installed. examples: more calls, to check
    on: tensors, tuples of arguments, dicts of keyword arguments or pairs `(args, kwargs)`; or a run, as that of
    `record`, which makes them. Of a module that was captured for several examples, or that takes objects such as
    caches, linear layers alone run on other kernels, in calls of all sizes: give one of each kind, or a run.
    tolerance: of the largest difference to the program, relative to its largest value; what is off by more is not used.
    precision: with "bf16" layers may compute in it, and the tolerance is 0.03 at least. keep_decisions: note in the
    user's cache folder which kernels are the fastest, so that the next module with such layers is ready sooner.
    progress: whether a bar is shown; None: where it lasts longer than a second.

    Raises PassError for an engine that is not known or not installed, and CaptureError as `trace` does.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    >>> x = torch.randn(1, 3, 16, 16)
    >>> fast = optimize_for_inference(model, x, engines=("torch",))
    >>> torch.testing.assert_close(fast(x), model(x), atol=1e-4, rtol=1e-4)
    """
    if precision not in _PRECISIONS:
        raise PassError(f"there is no precision {precision!r}", fix=f"precisions are {', '.join(_PRECISIONS)}")
    if isinstance(engines, str) and engines != "auto":
        raise PassError(f"engines is {engines!r}", fix=f'give "auto" or a tuple of names: ({engines!r},)')
    names = installed(engines_of_auto() if engines == "auto" else engines)
    recorded = recorded_run(model, examples) if callable(examples) else None
    more: Iterable[Any] = () if examples is None or callable(examples) else examples
    calls = [*map(_call_of, more)] if recorded is None else [*recorded.calls["forward"]]
    if args != () or kwargs or not calls:
        calls.insert(0, (args if isinstance(args, tuple) else (args,), dict(kwargs or {})))
    if recorded is not None:

        def optimized(part: nn.Module, path: str, run: Callable[[Any], Any]) -> nn.Module:
            if has_form(part):
                return part  # it may run on integers
            return optimize_for_inference(
                part,
                engines=engines,
                precision=precision,
                examples=run,
                tolerance=tolerance,
                keep_decisions=keep_decisions,
            )

        model = recorded.with_other_parts(optimized)
    if isinstance(model, GraphModule):
        gm = model
    elif recorded is not None:
        gm = trace(model, examples=calls)
    else:
        gm = trace(model, calls[0][0], kwargs=calls[0][1])
    tolerance = max(tolerance, _PRECISIONS[precision])
    search = Search(
        engines=tuple(names),
        is_exact=precision == "fp32",
        tolerance=tolerance,
        site_tolerance=tolerance,
        decisions=Decisions() if keep_decisions else None,
    )
    return fastest_form(gm, calls, search)


def _call_of(example: Any) -> Call:
    call = call_of(example)
    if call is None:
        fix = "give tensors, tuples of arguments, dicts of keyword arguments, or pairs of both"
        raise PassError(f"an example is a {type(example).__name__}", fix=fix)
    return call


def engines_of_auto() -> list[str]:
    """What "auto" stands for: torch, and the engines that are installed."""
    return ["torch", *(name for name in ("onnxruntime", "openvino") if ENGINES[name].is_installed)]


@dataclasses.dataclass(frozen=True)
class Search:
    """How the fastest form of a module is looked for.

    engines: those beside torch. finders: what says where sites are. is_exact: whether kernels of half precision are
    left out. tolerance: of the largest difference of a result, relative to its largest value; site_tolerance: what
    sites are told of it. is_checked_by_site: whether each site has to be right on what it reads in the program. again:
    how to make the module of a file. is_general: whether kernels of torch run at all sizes that the program takes.
    copies: the kernels that hold a weight in floats, which others read as integers: not both of one weight.
    """

    engines: tuple[str, ...] = ()
    finders: tuple[Finder, ...] = (FloatLayers(),)
    is_exact: bool = True
    tolerance: float = 1e-4
    site_tolerance: float = 1e-4
    is_checked_by_site: bool = False
    decisions: Decisions | None = None
    again: str = "optimize what is loaded: graphwright.optimize_for_inference"
    is_general: bool = False
    copies: frozenset[str] = frozenset()


def fastest_form(gm: GraphModule, calls: Sequence[Call], search: Search) -> GraphModule:
    """Give the fastest copy of a captured module: its program, or another form of its code that computes the same.

    calls: that for which it is to be fast, and more that are to be right; or for all of which, see `_Optimizing`.
    """
    with torch.no_grad(), same_randomness():
        try:
            return _Optimizing(gm, calls, search).result()
        except RuntimeError as error:
            if not computes_gradients(gm):
                raise
            raise PassError(
                f"the program computes gradients, and fails where nothing records them: {error}",
                fix="optimize the layers alone, or have it compute them under torch.enable_grad()",
            ) from error


class _Looked(NamedTuple):
    """A program for inputs of some sizes, the sites in it, and how many pieces engines may have."""

    program: Program
    sites: list[Found]
    pieces: int


class _Optimizing:
    """One search for the fastest form of one module.

    Where its inputs are objects, or where its calls go to several captures, the form is for all of the calls, and for
    others like these: see `Plan.is_open`.
    """

    def __init__(self, gm: GraphModule, calls: Sequence[Call], search: Search) -> None:
        self._staged = staged(inline(gm), is_saved=not search.again)
        self._calls, self._search = calls, search
        self._is_open = len(calls) > 1 and has_several(gm)
        self._notes: list[str] = []
        self._error: dict[str, float] = {}
        self._numerics: dict[str, Numerics] = {}
        self._looked: dict[bool, _Looked] = {}  # by whether inputs of other sizes are taken, too

    @contextlib.contextmanager
    def _keeping_state(self, *modules: GraphModule) -> Iterator[Callable[[], None] | None]:
        """Leave the state of modules as it is, and what they print away, whatever runs; give what puts it back."""
        with (
            state_kept(self._staged, *modules) as put_back,
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere if put_back else sys.stdout),
        ):
            yield put_back

    def result(self) -> GraphModule:
        """The fastest."""
        staged = self._staged
        forms: dict[str, GraphModule] = {"inlined": staged}
        parts: list[RunsOn] = []
        try:
            inputs, others = self._inputs()
        except TypeError as error:
            inputs, others = self._open_inputs(str(error))
        plan, parts = self._kernels(inputs, others)
        self._add(forms, "torch", plan)
        unpacked = dataclasses.replace(plan, kernels=_plain(plan), merged=frozenset())
        if plan.merged or any(choice.kernel != "torch" for choice in plan.kernels.values()):
            self._add(forms, "torch, unpacked", unpacked)
        if self._search.engines and not self._is_open and self._look(inputs).pieces:
            self._add_engines(forms, self._kernels(inputs, ())[0] if others else plan)
        calls = {name: self._call(form) for name, form in forms.items()}
        with self._keeping_state(*forms.values()) as put_back:
            measured = fastest(calls, _SECONDS_A_PROGRAM, before=put_back)
        best, result = measured.best, forms[measured.best]
        whole = self._numerics.get(best)
        program = RunsOn("program", best, tuple(measured.times_us.items()), tuple(self._notes), numerics=whole)
        noted = self._with_numerics(result, parts) if best == "torch" else self._regions(result)
        result.meta[META] = {"program": program, "parts": tuple(noted), "error": self._error.get(best, 0.0)}
        return result

    # ---- candidates

    def _inputs(self) -> tuple[tuple[Any, ...], tuple[tuple[Any, ...], ...]]:
        """What the parameters of the program are given, and what else. Raises TypeError for objects."""
        if self._is_open:
            raise TypeError("calls go to several captures")
        inputs = tuple(map(facts_of, self._bound()[0]))
        return inputs, self._other_sizes(inputs) if self._search.is_general else ()

    def _open_inputs(self, why: str) -> tuple[tuple[Any, ...], tuple[tuple[Any, ...], ...]]:
        """What the parameters of a program for any inputs are given in each call."""
        self._is_open = True
        self._notes.append(f"for calls of all kinds and sizes, linear layers alone: {why}")
        inputs, *others = [tuple(map(facts_or_held, _copied(values))) for values in self._bound()]
        return inputs, tuple(others)

    def _bound(self) -> list[tuple[Any, ...]]:
        """The values of the parameters in each call."""
        graph = entry_points_of(self._staged)["forward"].graph
        return [tuple(bound_values(self._staged, graph, *call)) for call in self._calls]

    def _look(self, inputs: tuple[Any, ...], others: tuple[tuple[Any, ...], ...] = ()) -> _Looked:
        """Make the program for inputs of these sizes, and find its pieces, and then its sites, which may edit it."""
        known = self._looked.get(bool(others))
        if known is None:
            program = self._program(inputs, others)
            pieces = len(program.pieces()) if self._search.engines and not others else 0
            known = self._looked[bool(others)] = _Looked(program, program.sites(), pieces)
        return known

    def _other_sizes(self, inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
        """Inputs of other sizes that the program takes; says which may be others."""
        gm = self._program(inputs, (inputs,)).gm
        found = tuple(map(tuple, other_sizes(inputs, lambda facts: runs_with(gm, facts))))
        if found:
            names = [str(node.target).lstrip("*") for node in gm.graph.placeholders()]
            self._notes.append(f"for any size of {_open_sizes(names, with_open_sizes(inputs, found))}")
        else:
            self._notes.append("for inputs of these sizes alone: the program takes no others, as far as shapes say")
        return found

    def _kernels(self, inputs: tuple[Any, ...], others: tuple[tuple[Any, ...], ...]) -> tuple[Plan, list[RunsOn]]:
        """Choose the kernel of each layer."""
        program, sites, _ = self._look(inputs, others)
        choices: dict[str, Choice] = {}
        for found in sites:
            key = found.site.key
            if key not in choices:
                choices[key] = self._choice(found.site, program)
        self._hold_once(sites, choices)
        if self._search.is_checked_by_site:
            self._check_sites(program, sites, choices)
        if self._search.decisions is not None:
            self._search.decisions.keep({self._noted(key): choice.kernel for key, choice in choices.items()})
        groups = {found.site.key: found for found in sites if found.members}
        merged = {
            key for key, found in groups.items() if choose_merged(found, choices, program.tensors, _SECONDS_A_SITE)
        }
        counts = Counter(found.site.key for found in sites)
        parts = [
            RunsOn(f"{counts[key]} x {key}", choice.kernel, choice.times_us, choice.dropped, _weights(key, sites))
            for key, choice in choices.items()
            if key not in groups or key in merged
        ]
        search = self._search
        plan = Plan(inputs, choices, frozenset(merged), (), search.finders, search.again, others, self._is_open)
        return plan, parts

    def _choice(self, site: Site, program: Program) -> Choice:
        search = self._search
        kept = None if search.decisions is None else search.decisions.known.get(self._noted(site.key))
        only = () if kept is None else (kept,)
        # It would give images whose channels come first, which what comes after it pays for.
        is_first = isinstance(site, Convolution) and site.is_first
        return choose(
            site, program.tensors, search.site_tolerance, _SECONDS_A_SITE, search.is_exact, only, may_stay=not is_first
        )

    def _hold_once(self, sites: Sequence[Found], choices: dict[str, Choice]) -> None:
        """Have a weight that is read as integers somewhere be read so everywhere: a copy in floats is much larger."""
        copies = self._search.copies
        keys: dict[str, dict[str, None]] = {}
        for found in sites:
            for weight in found.site.weights:
                keys.setdefault(weight, {})[found.site.key] = None
        for same in keys.values():
            if all(choices[key].kernel in copies or choices[key].kernel == "torch" for key in same):
                continue
            for key in [key for key in same if choices[key].kernel in copies]:
                choice = choices[key]
                others = {name: time for name, time in choice.times_us if name not in copies and name != "torch"}
                if others:
                    why = f"{choice.kernel}: the weight is held as integers already, for other sizes"
                    best = min(others, key=others.__getitem__)
                    choices[key] = Choice(best, choice.times_us, (*choice.dropped, why))

    def _noted(self, key: str) -> str:
        return f"{'fp32' if self._search.is_exact else 'bf16'} {key}"

    def _check_sites(self, program: Program, sites: Sequence[Found], choices: dict[str, Choice]) -> None:
        """Leave sites to torch whose kernel is off on what they read in the program."""
        values = self._values(program)
        for found in sites:
            choice = choices[found.site.key]
            if choice.kernel == "torch" or not values.keys() >= {found.last, *found.inputs}:
                continue
            inputs = [values[node] for node in found.inputs]
            reason = reason_against(found.site, choice.kernel, inputs, program.tensors, self._search.site_tolerance)
            if reason:
                dropped = (*choice.dropped, f"{choice.kernel} at {found.last.name}: {reason}")
                choices[found.site.key] = Choice("torch", choice.times_us, dropped)

    def _program(self, inputs: tuple[Any, ...], others: tuple[tuple[Any, ...], ...] = ()) -> Program:
        graph = entry_points_of(self._staged)["forward"].graph
        return Program(self._staged, graph, INLINED, inputs, self._search.finders, others, self._is_open)

    def _add_engines(self, forms: dict[str, GraphModule], plan: Plan) -> None:
        for engine in self._search.engines:
            self._add(forms, engine, dataclasses.replace(plan, engines=(engine,) * self._look(plan.inputs).pieces))

    def _add(self, forms: dict[str, GraphModule], name: str, plan: Plan) -> None:
        """Add a candidate, if it computes the same."""
        made = _with_form(self._staged, Optimized(INLINED, plan))
        try:
            reason = self._difference(made, name)
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if reason:
            self._notes.append(f"{name} is not used: {reason}")
        else:
            forms[name] = made

    def _difference(self, made: GraphModule, name: str) -> str:
        """What is different, empty where nothing is."""
        for args, kwargs in self._calls:
            with self._keeping_state(self._staged):
                expected = _run(self._staged, args, kwargs)
            with self._keeping_state(made):
                given = _run(made, args, kwargs)
            reason, error = _compared(expected, given, self._search.tolerance)
            if not reason:
                found = numerics(zip(tensors_in(expected), tensors_in(given), strict=True))
                self._numerics[name] = found + self._numerics[name] if name in self._numerics else found
            self._error[name] = max(error, self._error.get(name, 0.0))
            if reason:
                return reason
        return ""

    # ---- how far parts are off

    def _values(self, program: Program) -> dict[Node, Any]:
        """What a program computes of the example, or of the first that comes to a node."""
        values: dict[Node, Any] = {}
        for given in self._bound()[: None if self._is_open else 1]:
            with self._keeping_state(self._staged):
                values = {**program.values(_copied(given)), **values}
        return values

    def _with_numerics(self, module: GraphModule, parts: Sequence[RunsOn]) -> list[RunsOn]:
        """Say of kernels how far they are off on what their sites read of the example."""
        form = entry_points_of(module)["forward"].form
        assert isinstance(form, Optimized)
        program, sites, _ = self._look(form.plan.inputs, form.plan.others)
        values = self._values(program)
        found: dict[str, Numerics] = {}
        for each in sites:
            choice = form.plan.kernels[each.site.key]
            if values.keys() >= set(each.inputs):
                off = numerics_of(each.site, choice.kernel, [values[node] for node in each.inputs], program.tensors)
                if off is not None:
                    found[each.site.key] = off + found[each.site.key] if each.site.key in found else off
        return [dataclasses.replace(part, numerics=found.get(part.part.partition(" x ")[2])) for part in parts]

    def _regions(self, module: GraphModule) -> list[RunsOn]:
        """What the pieces of a program run on that an engine has got, and how far they are off on the example."""
        entry = entry_points_of(module)["forward"]
        held = entry.held.packs.made() if isinstance(entry.held, Prepared) else {}
        opened = [(each, made) for recipe, made in held.items() for each in recipe.settings if isinstance(each, Region)]
        if not opened or not isinstance(entry.form, Optimized):
            return []
        program = self._program(entry.form.plan.inputs)  # whose sites nobody has looked for, which may edit it
        ends, values = [*map(ends_of, program.pieces())], self._values(program)
        rows = []
        for (region, made), (inputs, outputs) in zip(opened, ends, strict=False):
            off = None
            if values.keys() >= {*inputs, *outputs}:
                given = made(*[values[node].contiguous() for node in inputs])
                off = numerics(zip([values[node] for node in outputs], given, strict=True))
            rows.append(RunsOn(f"{region.nodes} operations in a row", region.engine, numerics=off))
        return rows

    def _call(self, module: GraphModule) -> Callable[[], Any]:
        return calling_all(module, self._calls if self._is_open else self._calls[:1])


def _with_form(staged: GraphModule, form: Optimized) -> GraphModule:
    """Copy a module, its modules, too, with the code of `forward` in a form."""
    made = copy.copy(staged)
    entry_points_of(made)["forward"].form = form
    return made


def _open_sizes(names: Sequence[str], facts: Sequence[Any]) -> str:
    """Say which dimensions of inputs may have any size: "x.shape[0, 2]"."""
    said: dict[str, None] = {}
    for name, fact in zip(names, facts, strict=True):
        for each in tensors_of_facts(fact):
            if each.open:
                said[f"{name}.shape[{', '.join(map(str, sorted(each.open)))}]"] = None
    return ", ".join(said)


def _weights(key: str, sites: Sequence[Found]) -> tuple[str, ...]:
    return tuple([path for found in sites if found.site.key == key for path in found.site.weights])


def _plain(plan: Plan) -> dict[str, Choice]:
    return {key: Choice("torch") for key in plan.kernels}


# ---- the same results


def _run(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run a module on copies of its arguments, always with the same random numbers."""
    args, kwargs = _copied((args, dict(kwargs)))
    with same_randomness():
        torch.manual_seed(0)
        return module(*args, **kwargs)


def calling(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    """Call a module many times: with one copy of the arguments, or anew each time where one may remember a call."""
    one, named = _copied((args, dict(kwargs)))
    if _forgets((args, *kwargs.values())):
        return (lambda: module(*one, **named)) if named else (lambda: module(*one))

    def anew() -> Any:
        given, named = _copied((args, dict(kwargs)))
        return module(*given, **named)

    return anew


def _forgets(value: Any) -> bool:
    """Tell whether a program can leave nothing in a value but other numbers in its tensors."""
    return all(map(_forgets, value)) if type(value) is tuple else isinstance(value, _PLAIN)


def calling_all(module: nn.Module, calls: Sequence[Call]) -> Callable[[], Any]:
    """Make some calls of a module many times, one after the other."""
    made = [calling(module, *call) for call in calls]
    return made[0] if len(made) == 1 else lambda: [call() for call in made]


_PLAIN = (Tensor, int, float, complex, str, torch.dtype, torch.device, type(None))


def _copied(value: Any) -> Any:
    """Copy arguments, with tensors that no gradient leads to."""
    tensors = {id(tensor): tensor.detach().clone() for tensor in tensors_in(value)}
    return copy.deepcopy(value, tensors)


def _compared(expected: Any, given: Any, tolerance: float) -> tuple[str, float]:
    """What is different of two results, and by how much of the largest value tensors differ."""
    pairs = list(zip(tensors_in(expected), tensors_in(given), strict=False))
    if len(list(tensors_in(expected))) != len(list(tensors_in(given))):
        return "it gives another number of tensors", 0.0
    largest = 0.0
    for one, other in pairs:
        if (one.shape, one.dtype, one.stride()) != (other.shape, other.dtype, other.stride()):
            return f"it gives {other.dtype} {tuple(other.shape)}, strides {other.stride()}", largest
        if not one.is_floating_point():
            if not torch.equal(one, other):
                return "it gives other integers", largest
            continue
        scale = max(one.abs().max().item() if one.numel() else 0.0, 1e-12)
        difference = (one - other).abs().max().item() / scale if one.numel() else 0.0
        largest = max(largest, difference)
        if not difference <= tolerance:
            return f"it is off by {difference:.1e} of the largest value", largest
    return "", largest
