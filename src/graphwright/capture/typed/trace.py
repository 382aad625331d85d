"""`trace`: a real model and example inputs in, a captured module of the same class out."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import nn

from graphwright.capture.ladder.refuse import DataQuestion
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.leaf_modules import LeafModules, check_leaf_names, leaf_predicate
from graphwright.capture.state.ledger import join_facts_of
from graphwright.capture.state.plan import Conversions, Plan, Restart
from graphwright.capture.symbolic.wrap import wrapped_functions
from graphwright.capture.typed.checks import check_capture, check_outputs, keeping_regions, read_check_inputs
from graphwright.capture.typed.copied_calls import write_out
from graphwright.capture.typed.dispatching import chosen_by_guards
from graphwright.capture.typed.entries import (
    EntryPoint,
    Methods,
    Subject,
    as_example,
    check_names,
    entry_points,
    share_constants,
    uncompiled_root,
)
from graphwright.capture.typed.entries import (
    Examples as ExampleInputs,
)
from graphwright.capture.typed.escaping import as_left, refuse_lazy
from graphwright.capture.typed.program import ATTEMPTS, Attempt, Program
from graphwright.capture.typed.remembered import (
    Likeness,
    Remembered,
    forget,
    recalled,
    remember,
    what_came_out,
)
from graphwright.errors import CaptureError
from graphwright.garbage import rare_collections
from graphwright.ir import Graph
from graphwright.progress import Bar, followed, showing
from graphwright.runtime import (
    Entry,
    GraphModule,
    buffers_of,
    calls_of_modules,
    copy_tensors,
    facts_of_modules,
    forwards_of,
    keep_buffers,
    keep_calls,
    keep_forwards,
    keep_modules,
    keep_unset,
    unset_in,
)
from graphwright.source import line_of_error


def trace(
    root: nn.Module | Callable[..., Any],
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    examples: ExampleInputs | None = None,
    methods: Methods | None = None,
    control_flow: Literal["stage", "follow", "error"] = "stage",
    static: Iterable[str] = (),
    dynamic: Iterable[str] = (),
    leaf_modules: LeafModules = (),
    leaf_functions: Iterable[Callable[..., Any]] | None = (),
    max_paths: int = 8,
    target: Literal["eager", "export"] = "eager",
    flat: bool = True,
    copy: bool = False,
    progress: Callable[[str], None] | bool | None = None,
    check_trace: bool | None = None,
    check_inputs: Iterable[Any] | None = None,
    check_tolerance: float = 1e-5,
) -> GraphModule:
    """Capture a module or function by running it on stand-ins of example inputs.

    `args` and `kwargs` are what the program would be called with (a lone tensor counts as a tuple of one). Nothing
    is computed on them and the program is not changed. The result is an instance of the program's own class, with
    the same parameters, state_dict, signature and methods, whose forward is generated from the graph.

    `examples`, a list of `(args, kwargs)`, instead captures the program once for each: a call goes to the first capture
    whose guards hold, which is decided before anything of it runs, and each has its graph in `graphs` of the result.
    `methods`, as in `{"forward": (args, kwargs), "encode": [(args, kwargs), ...]}`, captures several methods of a
    module, each for one example or several; a method that is left out runs as it is, but `forward` is then refused.

    Sizes stay symbolic, and `if`, `while`, `for`, `and`, the ternary, `assert` and their like become branches and loops
    of the graph where they ask for data, a size or the training flag. Where the program asks what cannot become one -
    a dtype, a rank, whether an argument is None, a size for `[0] * n` - the example answers, and the result checks at
    every call that the answer still holds: see `guards` of the result; GuardError.

    `control_flow`: "stage" as above; "follow" takes the example's way at every question of data, with a TracerWarning
    at each; "error" refuses every question of data, size and flag.
    `static`: names of inputs whose numbers and sizes are the example's; `dynamic`: names of bools that stay open, and
    of numbers and bools that modules have: `self.layers.0.scale`. What a container holds is called `past_0_1` or
    `config_key`, and belongs to its container's name, too.
    `leaf_modules`: classes, class names, dotted paths or patterns of paths (`"layers.*"`) of modules to keep as one
    node, besides torch.nn's own; a predicate of (module, path) that decides alone; None to enter all, torch.nn's too;
    or a dict from the path or pattern of a subtree to one of these. `leaf_functions`: functions and methods whose calls
    stay one node, as those given to `wrap` and those of einops do; None to enter einops, too. With `copy` the result
    has parameters and buffers of its own.
    `max_paths`: how many ends a program may have where its branches cannot be joined. `target`: "export" captures what
    is to be deployed: `torch.compiler.is_exporting()` and `is_compiling()` are true, so that libraries leave out what
    only eager execution needs, such as a look whether a mask masks anything. Not `flat`: each module that is entered
    stays a module, captured for itself, as `unflatten` makes them. A capture that lasts longer than a second shows a
    bar in a terminal or notebook; `progress=False`: none; a function is called with a line per pass.
    `check_trace`: capture another time, for the example and each of `check_inputs` (calls, as in `examples`), and
    compare graphs, and values with the original's up to `check_tolerance`. On by default with "follow".

    Raises CaptureError, with the user's line, for what cannot be captured so, and for names of no input;
    TraceCheckError where a check fails.

    >>> class Gate(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = nn.Linear(4, 4)
    ...     def forward(self, x, scale=1.0):
    ...         hidden = self.linear(x)
    ...         return torch.relu(hidden) * scale
    >>> gm = trace(Gate(), torch.randn(2, 4))
    >>> isinstance(gm, Gate), gm(torch.randn(5, 4), scale=2.0).shape
    (True, torch.Size([5, 4]))
    >>> gm = trace(Gate(), examples=[((torch.ones(2, 4),), {}), ((torch.ones(2, 4),), {"scale": 2})])
    >>> gm.graphs.names
    ['forward_1', 'forward_2']
    """
    if target not in ("eager", "export"):
        raise ValueError(f"target is 'eager' or 'export', not {target!r}")
    if control_flow not in ("stage", "follow", "error"):
        raise ValueError(f"control_flow is 'stage', 'follow' or 'error', not {control_flow!r}")
    if max_paths < 1:
        raise ValueError(f"max_paths is at least 1, not {max_paths}")
    root = uncompiled_root(root)
    refuse_lazy(root)
    points = entry_points(root, args, kwargs, examples, methods)
    is_checked = check_inputs is not None or (control_flow == "follow" if check_trace is None else check_trace)
    options = _Options(
        control_flow, max_paths, frozenset(static), frozenset(dynamic), (*(leaf_functions or ()), *wrapped_functions()),
        leaf_functions is None,
        progress if callable(progress) else _say_nothing, target,
        not (flat or is_checked),
    )  # fmt: skip
    subject = Subject(root)
    is_leaf = leaf_predicate(leaf_modules)
    check_leaf_names(leaf_modules, subject.tree)
    if control_flow == "follow":
        is_leaf = keeping_regions(is_leaf)
    inputs = [(subject.signature(point.name), point.examples) for point in points]
    check_names(options.static, options.dynamic, inputs, subject.root_module)
    is_shown = False if callable(progress) else progress
    with rare_collections():
        with showing(f"capturing {subject.name(points[0].name)}", is_shown) as bar:
            entries = [_entry(subject, point, _told(options, bar), is_leaf) for point in followed(points, "method")]
            share_constants(entry.graph for entry in entries)
            module = subject.module_of(entries)
        if control_flow == "follow":
            check_outputs(entries, subject.name(points[0].name))
        if is_checked:
            calls = read_check_inputs(check_inputs, as_example)
            _check(root, module, entries, points, calls, options, is_leaf, check_tolerance)
        if not flat:
            from graphwright.hierarchy import unflatten_in_place  # captures of one graph do without

            unflatten_in_place(module, write_out)
    if copy:
        copy_tensors(module)
    return module


def _check(
    root: nn.Module | Callable[..., Any],
    module: GraphModule,
    entries: list[Entry],
    points: list[EntryPoint],
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]],
    options: _Options,
    is_leaf: Callable[[nn.Module, str], bool],
    tolerance: float,
) -> None:
    """Check the capture of a program with one entry point and one example on this and other inputs."""
    if len(points) > 1 or len(points[0].examples) > 1 or points[0].name != "forward":
        return
    subject = Subject(root)

    def capture(call: tuple[tuple[Any, ...], dict[str, Any]]) -> Graph:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said once
            return subject.entry("forward", _graph_of(subject, "forward", *call, options, is_leaf)).graph

    every = [*points[0].examples, *calls]
    check_capture(root, module, entries[0].graph, every, capture, tolerance, subject.name("forward"))


def _entry(subject: Subject, point: EntryPoint, options: _Options, is_leaf: Callable[[nn.Module, str], bool]) -> Entry:
    """Capture one entry point, for all its examples."""
    is_one_of_several = len(point.examples) > 1
    graphs = [
        _graph_of(subject, point.name, args, kwargs, options, is_leaf, is_one_of_several)
        for args, kwargs in point.examples
    ]
    share_constants(graphs)
    graph = chosen_by_guards(subject, point.name, graphs) if is_one_of_several else graphs[0]
    if is_one_of_several:
        modules: dict[str, dict[str, Any]] = {}
        for one in graphs:
            for path, facts in facts_of_modules(one).items():
                modules[path] = join_facts_of(modules.get(path, {}), dict(facts))
        keep_modules(graph, modules)
        keep_buffers(graph, {path: persists for one in graphs for path, persists in buffers_of(one).items()})
        keep_unset(graph, {path for one in graphs for path in unset_in(one)})
        known = [forwards_of(one) for one in graphs]
        of_classes = {kind: forward for one in known for kind, forward in one.of_classes.items()}
        codes = {function: code for one in known for function, code in one.codes.items()}
        keep_forwards(graph, of_classes, frozenset().union(*[one.of_modules for one in known]), codes)
        keep_calls(graph, {key: call for one in graphs for key, call in calls_of_modules(one).items()})
    return subject.entry(point.name, graph)


def _graph_of(
    subject: Subject,
    method: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: _Options,
    is_leaf: Callable[[nn.Module, str], bool],
    is_one_of_several: bool = False,
) -> Graph:
    """Capture a method for one example. What the program has made meanwhile is gone when all of the capture is."""
    program = Program(subject, method, args, kwargs, is_leaf)
    graph = _capture(program, options, is_one_of_several)
    made = program.made
    del program
    made.settle()
    return graph


def _capture(program: Program, options: _Options, is_one_of_several: bool) -> Graph:
    """Capture a program for one example. What it raises is ours, or what the program itself raises."""
    try:
        return _captured(program, options, is_one_of_several)
    except (CaptureError, Warning):
        raise
    except Exception as error:
        try:
            raised = as_left(error, program.copied, (program.args, program.kwargs))
        finally:
            program.put_back()
        if isinstance(raised, CaptureError):
            raise raised from error
    raise raised


def _captured(program: Program, options: _Options, is_one_of_several: bool) -> Graph:
    """Capture a program for one example: as one like it was captured before, else in the first way that works."""
    like = Likeness(program.subject.root, program.method, (options.key, is_one_of_several))
    before = recalled(like, *program.parts()) if options.control_flow == "stage" else None
    if before is not None:
        graph = _captured_again(program, before, options, is_one_of_several)
        if graph is not None:
            return graph
        forget(like, *program.parts())
    return _captured_first(program, options, is_one_of_several, like)


def _captured_again(program: Program, before: Remembered, options: _Options, is_one_of_several: bool) -> Graph | None:
    """Capture a program with the plan that held for one like it; None where it does not give the same now."""
    plan = options.plan(Conversions(), is_one_of_several)
    if not before.learned.put_into(plan):
        return None
    plan.is_remembered, program.keeps_history = True, before.keeps_history
    program.log.restarts += before.restarts
    attempt = next(each for each in ATTEMPTS if each.name == before.attempt)
    started = time.perf_counter()
    try:
        graph = program.capture(plan, attempt)
    except Warning:
        raise
    except (Exception, Restart, DataQuestion, NeedsRealValues):
        graph = None
    if graph is not None and what_came_out(graph) == before.came_out:
        options.say_done(attempt, graph, started, 1)
        return graph
    program.log.restarts.clear()
    program.keeps_history, program.examples = False, None
    return None


def _captured_first(program: Program, options: _Options, is_one_of_several: bool, like: Likeness) -> Graph:
    """Capture a program for one example, in the first way that works."""
    say = options.progress
    failure: BaseException | None = None
    need: NeedsRealValues | None = None  # what tells more is why it does not work on real values
    converted = Conversions()  # what asks in one attempt asks in the next
    for attempt in options.attempts():
        started = time.perf_counter()
        plan = options.plan(converted, is_one_of_several)
        try:
            graph = program.capture(plan, attempt)
        except DataQuestion as question:
            failure = failure or question.error
            program.log.note(f"not {attempt.name}: {question.error.message}", question.error.at)
            say(f"{attempt.name}: {question.error.message}; trying another way")
        except NeedsRealValues as error:
            need = error
            program.log.note(f"not {attempt.name}: sizes depend on data")
            say(f"{attempt.name}: sizes depend on data; trying another way")
        except (CaptureError, Warning):
            raise
        except Exception as error:
            if attempt.real:
                raise
            failure = failure or error  # some operations run on real tensors only
            program.log.note(f"not {attempt.name}: {type(error).__name__}: {error}")
            say(f"{attempt.name}: {type(error).__name__}: {error}; trying another way")
        else:
            options.say_done(attempt, graph, started, plan.passes)
            if program.log.passes > 1 and program.learned is not None:
                program.note_history()
                entries = tuple(program.log.restarts)
                how = Remembered(attempt.name, program.learned, entries, program.keeps_history, what_came_out(graph))
                remember(like, how, *program.parts())
            return graph
    fix = "have the function that asks be one node: leaf_functions=[...] or leaf_modules=[...]"
    raise failure or CaptureError(f"sizes depend on data: {need}", at=need and line_of_error(need), fix=fix)


def program_of(
    root: nn.Module | Callable[..., Any], args: Any, kwargs: Mapping[str, Any] | None, leaf_modules: LeafModules
) -> Program:
    """Take what `trace` is called with. Raises CaptureError where that is no program with example inputs."""
    ((given, named),) = entry_points(root, args, kwargs, None, None)[0].examples
    return Program(Subject(root), "forward", given, named, leaf_predicate(leaf_modules))


@dataclasses.dataclass(frozen=True, eq=False)
class _Options:
    """What the caller of `trace` decides for all captures."""

    control_flow: str
    max_paths: int
    static: frozenset[str]
    dynamic: frozenset[str]
    leaf_functions: tuple[Any, ...]
    enters_libraries: bool
    progress: Callable[[str], None]
    target: str
    leaves_copies: bool

    @property
    def key(self) -> Hashable:
        """What they are, without keeping the functions alive."""
        functions = tuple(map(id, self.leaf_functions))
        more = self.enters_libraries, self.target, self.leaves_copies
        return self.max_paths, self.static, self.dynamic, functions, *more

    def plan(self, converted: Conversions, is_one_of_several: bool) -> Plan:
        """A plan for one capture, with functions that are known to ask."""
        return Plan(
            self.control_flow, self.max_paths, self.static, self.dynamic, self.leaf_functions, self.enters_libraries,
            converted, is_one_of_several, self.leaves_copies and not is_one_of_several,
        )  # fmt: skip

    def say_done(self, attempt: Attempt, graph: Graph, started: float, passes: int) -> None:
        """Tell that a capture has come to its end."""
        seconds = time.perf_counter() - started
        self.progress(f"{attempt.name}: {len(graph.nodes)} nodes in {seconds:.2f} s, {passes} passes")

    def attempts(self) -> list[Attempt]:
        """The ways to try, in their order."""
        return [
            attempt
            for attempt in ATTEMPTS
            if (attempt.real or self.control_flow != "follow") and (attempt.export or self.target == "eager")
        ]


def _told(options: _Options, bar: Bar) -> _Options:
    """Options with which the bar shows what the capture is at."""

    def tell(line: str) -> None:
        bar.step(line.partition(":")[0])
        options.progress(line)

    return dataclasses.replace(options, progress=tell)


def _say_nothing(line: str) -> None:
    pass
