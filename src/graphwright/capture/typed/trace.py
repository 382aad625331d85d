"""`trace`: a real model and example inputs in, a captured module of the same class out."""

from __future__ import annotations

import contextlib
import copy as copying
import dataclasses
import functools
import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import nn

from graphwright.capture.calls.modes import stand_ins as modes_of
from graphwright.capture.containers.kept_containers import kept_container
from graphwright.capture.conversion.conversion import is_converted
from graphwright.capture.effects.keeping import Keeping
from graphwright.capture.effects.tags import Tags
from graphwright.capture.effects.unread_items import drop_unread_items
from graphwright.capture.flow.forked_runs import merge
from graphwright.capture.ladder.refuse import DataQuestion
from graphwright.capture.outside.held_objects import HeldObjects
from graphwright.capture.outside.named import is_foreign_definition
from graphwright.capture.outside.number_limits import watch_number_limits
from graphwright.capture.outside.overheard import stand_ins
from graphwright.capture.outside.process_state import watch_process_state
from graphwright.capture.outside.python_draws import PythonDraws
from graphwright.capture.outside.random_state import watch_random_state
from graphwright.capture.outside.said import logged_once
from graphwright.capture.outside.surroundings import World
from graphwright.capture.outside.world import watch_world
from graphwright.capture.python.cached_calls import check_results
from graphwright.capture.python.entering import convert_methods
from graphwright.capture.python.higher_order import watch_higher_order
from graphwright.capture.state.examples import Examples, NeedsRealValues
from graphwright.capture.state.interception import (
    ExportFlags,
    StandIns,
    Unreported,
    uncompiled,
    watching,
)
from graphwright.capture.state.leaf_modules import LeafModules, check_leaf_names, leaf_predicate
from graphwright.capture.state.ledger import join_facts_of
from graphwright.capture.state.members import Members
from graphwright.capture.state.plan import Conversions, Log, Plan, Restart
from graphwright.capture.state.thread_state import ending, undoing
from graphwright.capture.state.tidy import erase_unused
from graphwright.capture.symbolic.wrap import wrapped_functions
from graphwright.capture.typed.checks import check_capture, check_outputs, keeping_regions, read_check_inputs
from graphwright.capture.typed.copied_calls import drop_unused_inputs, write_out
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
from graphwright.capture.typed.inputs import Inputs
from graphwright.capture.typed.module_calls import keep_module_calls
from graphwright.capture.typed.recorder import Recorder
from graphwright.errors import CaptureError
from graphwright.garbage import rare_collections
from graphwright.ir import Graph
from graphwright.progress import Bar, followed, showing
from graphwright.runtime import (
    Entry,
    GraphModule,
    Shells,
    buffers_of,
    calls_of_modules,
    codes_beside,
    copy_tensors,
    facts_of_modules,
    forwards_of,
    keep_buffers,
    keep_calls,
    keep_facts,
    keep_forwards,
    keep_modules,
    keep_unset,
    unset_in,
)
from graphwright.source import definition_line, is_foreign_class

__all__ = ["ATTEMPTS", "Program", "program_of", "trace"]


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
    leaf_functions: Iterable[Callable[..., Any]] = (),
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
    stay one node, as those given to `wrap` do. With `copy` the result has parameters and buffers of its own.
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
    root = uncompiled_root(root)
    refuse_lazy(root)
    points = entry_points(root, args, kwargs, examples, methods)
    is_checked = check_inputs is not None or (control_flow == "follow" if check_trace is None else check_trace)
    options = _Options(
        control_flow, max_paths, frozenset(static), frozenset(dynamic), (*leaf_functions, *wrapped_functions()),
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
            return subject.entry("forward", _capture(Program(subject, "forward", *call, is_leaf), options, False)).graph

    every = [*points[0].examples, *calls]
    check_capture(root, module, entries[0].graph, every, capture, tolerance, subject.name("forward"))


def _entry(subject: Subject, point: EntryPoint, options: _Options, is_leaf: Callable[[nn.Module, str], bool]) -> Entry:
    """Capture one entry point, for all its examples."""
    is_one_of_several = len(point.examples) > 1
    graphs = [
        _capture(Program(subject, point.name, args, kwargs, is_leaf), options, is_one_of_several)
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
    """Capture a program for one example, in the first way that works."""
    say = options.progress
    failure: BaseException | None = None
    need: NeedsRealValues | None = None  # what tells more is why it does not work on real values
    converted = Conversions()  # what asks in one attempt asks in the next
    for attempt in options.attempts():
        started = time.perf_counter()
        plan = Plan(
            options.control_flow, options.max_paths, options.static, options.dynamic, options.leaf_functions,
            converted, is_one_of_several, options.leaves_copies and not is_one_of_several,
        )  # fmt: skip
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
            seconds = time.perf_counter() - started
            say(f"{attempt.name}: {len(graph.nodes)} nodes in {seconds:.2f} s, {plan.passes} passes")
            return graph
    raise failure or CaptureError(f"sizes depend on data: {need}")


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
    progress: Callable[[str], None]
    target: str
    leaves_copies: bool

    def attempts(self) -> list[_Attempt]:
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


class _Attempt:
    """One way of capturing: on fake or real stand-ins, as in eager or as under export."""

    def __init__(self, name: str, real: bool, export: bool) -> None:
        self.name = name
        self.real = real
        self.export = export


ATTEMPTS = (
    _Attempt("captured", real=False, export=False),
    _Attempt("captured as for export", real=False, export=True),
    _Attempt("captured on real values", real=True, export=False),
    _Attempt("captured on real values, as for export", real=True, export=True),
)


class Program:
    """A program with example inputs, to be run on stand-ins as often as it takes."""

    def __init__(
        self,
        subject: Subject,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_leaf: Callable[[nn.Module, str], bool],
    ) -> None:
        self.subject, self.method, self.args, self.kwargs, self.is_leaf = subject, method, args, kwargs, is_leaf
        self.recorder: Recorder | None = None  # of the last pass
        self.examples: Examples | None = None  # likewise
        self.keeps_history = False  # whether the program may ask how a value was computed
        self.held: HeldObjects | None = None  # likewise
        self.world = World([] if subject.root_module is None or method == "forward" else [method])
        self.draws: PythonDraws | None = None  # likewise
        self.standing: tuple[StandIns, ...] = ()  # likewise
        self.name = subject.name(method)
        self.function = subject.function(subject.root_module, method)
        self.place = definition_line(self.function)
        self.log = Log()

    @functools.cached_property
    def members(self) -> Members:
        """The modules of the program."""
        root = self.subject.root_module
        assert root is not None
        return Members(root, self.is_leaf)

    @functools.cached_property
    def tags(self) -> Tags:
        """What tensors of the modules have for attributes of their own, as the first pass starts."""
        return Tags(() if self.subject.root_module is None else self.members.placed)

    def copied(self) -> Callable[..., Any]:
        """A copy of the program, to be run on what it is captured for."""
        root = self.subject.root_module
        return self.function if root is None else self.subject.function(copying.deepcopy(root), self.method)

    def capture(self, plan: Plan, attempt: _Attempt) -> Graph:
        """Run the program until the plan needs no more change, along every path that it forks into."""
        reports, logs = Unreported(), logged_once()

        def steady() -> _Run:
            reports.enter()
            logs.enter()
            return self._steady(plan, attempt)

        run = ending(steady, (logs.leave, reports.leave))
        graph = run.recorder.root.graph
        run.inputs.guard()
        erase_unused(graph)
        while drop_unread_items(graph) or (plan.leaves_copies and drop_unused_inputs(graph)):
            erase_unused(graph)
        graph.lint()
        if run.recorder.reads is not None:
            world, reads = self.world, run.recorder.reads
            looked_for = frozenset(world.looked_for)
            self.tags.take(run.recorder.ledger, world.attributes(), looked_for)
            facts = reads.facts(graph, self.function, world.attributes(), world.asking(), looked_for, world.walks)
            keep_modules(graph, facts)
            keep_buffers(graph, run.recorder.ledger.buffers)
            keep_unset(graph, run.recorder.ledger.unset)
            keep_module_calls(graph)
        ledger = run.recorder.ledger
        forwards = [each for each in ledger.forwards.values() if not is_foreign_definition(each)]
        codes = codes_beside(ledger.found.values(), [*self.world.functions.values(), *forwards])
        keep_forwards(graph, ledger.forwards, ledger.own_forwards, codes)
        keep_facts(graph, self.log.facts(attempt.name, plan.paths, run.recorder.calls, self.place))
        return graph

    def _steady(self, plan: Plan, attempt: _Attempt) -> _Run:
        """Run the program until the plan needs no more change."""
        while True:
            plan.paths, plan.answers = 0, ()
            try:
                return self.paths(plan, attempt, ())
            except Restart as restart:
                self.log.note(restart.why, restart.at)
            except (DataQuestion, Exception):
                if plan.scalars <= plan.static:
                    raise
                plan.static |= plan.scalars
                self.log.note(f"{' and '.join(sorted(plan.scalars))} cannot be symbolic here")

    def paths(self, plan: Plan, attempt: _Attempt, answers: tuple[bool, ...]) -> _Run:
        """Capture the program as far as these answers to its forks lead, and every way on from there."""
        run = self._run(plan, attempt, answers)
        forks = run.recorder.questions.forking.forks
        if forks and plan.leaves_copies:
            last = write_out(run.recorder.root.graph)
            for fork in forks:
                fork.after = last.get(fork.after, fork.after)
        for i in reversed(range(len(answers), len(forks))):
            fork = forks[i]
            other = self.paths(plan, attempt, (*[fork.answer for fork in forks[:i]], not fork.answer))
            merge(run.recorder, other.recorder, i)
            run.recorder.ledger.join(other.recorder.ledger)
        return run

    def _see_tables(self, plan: Plan) -> None:
        """Have shells show all attributes where the program looks at tables of them, which tell nobody."""
        before = plan.sees_tables, plan.walks_tables
        plan.sees_tables, plan.walks_tables = self.world.sees_tables, self.world.walks
        if (plan.sees_tables, plan.walks_tables) != before:
            raise Restart("the program looks at tables of attributes")

    def _examples(self, attempt: _Attempt) -> Examples:
        """Stand-ins for a pass: those of the pass before, as long as they are what they were."""
        known = self.examples
        if known is not None and known.asks_history:
            self.keeps_history = True
        if known is None or known.is_real or attempt.real or known.replays.is_spoiled or known.asks_history:
            known = self.examples = Examples(attempt.real, self.keeps_history)
        known.replays.start()
        return known

    def _run(self, plan: Plan, attempt: _Attempt, answers: tuple[bool, ...]) -> _Run:
        if not attempt.export:
            return undoing(lambda: self._pass(plan, attempt, answers), self.put_back)
        flags = ExportFlags()

        def run() -> _Run:
            flags.enter()
            return self._pass(plan, attempt, answers)

        return undoing(run, flags.leave, self.put_back)

    def put_back(self) -> None:
        """Leave variables, objects of modules, and generators of random numbers, as they were before the pass."""
        for standing in self.standing:
            standing.leave()
        if self.recorder is not None and self.recorder.keeping is not None:
            self.recorder.keeping.put_back()
        self.world.put_back()
        self.tags.put_back(self.world.attributes())
        if self.held is not None:
            self.held.put_back()
        if self.draws is not None:
            self.draws.put_back()

    def _pass(self, plan: Plan, attempt: _Attempt, answers: tuple[bool, ...]) -> _Run:
        plan.start(answers)
        self.log.passes += 1
        tags = self.tags  # from before the program runs
        recorder = self.recorder = Recorder(self._examples(attempt), self.is_leaf, plan, self.log)
        function, signature = self._entry(recorder)
        recorder.scope.kind = type(self.subject.root_module or self.subject.root)
        inputs = Inputs(recorder, signature, self.name)
        args, kwargs = inputs.bind(self.args, self.kwargs)
        if inputs.has_arrays:
            self._see_arrays(recorder, function)
        self.held = HeldObjects(recorder.shells)
        keeping = recorder.keeping = Keeping(recorder, recorder.shells, kept_container)
        program = self.subject.function(self.subject.root_module, self.method)
        entered, own = ([], ()) if recorder.members is None else (recorder.members.entered, recorder.members.tree.paths)
        self.world.start([program], entered, keeping, plan.leaves, own)
        self._see_tables(plan)
        watch_world()
        watch_random_state()
        watch_number_limits()
        watch_process_state()
        watch_higher_order()
        recorder.callers.start(function, self.world)
        draws = self.draws = PythonDraws(recorder)
        overheard = {**plan.overheard, **recorder.callers.overheard}
        modes = StandIns(modes_of(function))
        self.standing = StandIns(stand_ins()), StandIns(overheard.values()), modes
        for standing in self.standing:
            standing.enter()
        with (
            self._watch(recorder),
            draws.located() if plan.locates_draws else contextlib.nullcontext(),
            uncompiled() if plan.is_uncompiled else contextlib.nullcontext(),
        ):
            try:
                result = recorder.run(function, args, kwargs)
            except Exception as error:
                draws.failed()
                keeping.learn()
                if recorder.questions.raises.is_raised_by_user(error):
                    recorder.questions.raises.write_raise(error)
                    result = None
                else:
                    why = recorder.questions.refusals.failed_path(error)
                    if why is error:
                        raise
                    raise why from error
        modes.leave()  # what follows asks torch itself
        keeping.learn()
        self._see_tables(plan)
        self.world.finish()
        tags.refuse_written(self.world.attributes(), self.place)
        check_results(recorder)
        recorder.ledger.find(self.world.found())
        if self.world.chooses_by_class:
            recorder.ledger.kind_asked()
        recorder.ledger.asks_classes |= self.world.names_subclass
        for code, what in self.world.unseen.items():
            recorder.ledger.say(f"{code.co_name} {what}", f"{code.co_filename}:{code.co_firstlineno}")
        if watch_world():
            raise Restart("modules that read the world are imported")
        if recorder.callers.overheard.keys() - overheard.keys():
            plan.overheard.update(recorder.callers.overheard)
            raise Restart("the program has functions under names of its own that the capture has to hear of")
        if recorder.callers.generators.keys() - draws.known:
            plan.generators.update(recorder.callers.generators)
            plan.closing |= recorder.callers.closing
            raise Restart("the program can reach generators of random numbers")
        if draws.have_happened() and not plan.locates_draws:
            plan.locates_draws = True
            raise Restart("random numbers of Python or NumPy are drawn")
        if plan.paths > plan.max_paths:
            raise recorder.questions.forking.too_many_paths()
        changes = list(inputs.objects.changes())
        inputs.tell_apart(value for _, value, *_ in changes)
        recorder.finish(result, changes)
        inputs.settle()
        if recorder.keeping is not None:
            recorder.keeping.put_back()
        self.held.finish()
        return _Run(recorder, inputs)

    def _see_arrays(self, recorder: Recorder, function: Callable[..., Any]) -> None:
        """Have the program converted that gets arrays: what it calls in C would not know what stands for them."""
        recorder.has_objects = True
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if recorder.questions.staging.convert_called(function):
            raise Restart("the program gets arrays")
        if code is None or (code not in recorder.plan.converted and not is_converted(code)):
            raise CaptureError(
                f"{self.name} gets an array of NumPy's, and its source cannot be read to see what it does with it",
                at=self.place,
                fix="write it as a function of its own, not as one of several lambdas in a line; or pass a tensor",
            )

    def _watch(self, recorder: Recorder) -> contextlib.AbstractContextManager[None]:
        """Have the recorder told of calls that it must not miss."""
        leaves, keeping = recorder.plan.leaves, recorder.keeping
        names = frozenset() if keeping is None else keeping.names_of_optionals
        looks = recorder.questions.optionals.function_entered if recorder.plan.looks_into_arguments else None
        if not leaves and not names and looks is None:
            return contextlib.nullcontext()
        entered = (lambda frame: None) if keeping is None else keeping.code_entered
        return watching(leaves, recorder.questions.staging.leaf_called, names, entered, looks)

    def _entry(self, recorder: Recorder) -> tuple[Callable[..., Any], inspect.Signature]:
        signature = self.subject.signature(self.method)
        if self.subject.root_module is None:
            recorder.callers.anticipate(self.subject.root)
            return self.subject.root, signature
        root, tree = self.subject.root_module, self.members.tree
        shells = Shells(root, recorder.call_module, tree=tree, waiting=self.members.waiting(recorder.plan))
        recorder.own(self.members, shells)
        is_of_class = self.method == "forward" and "forward" not in root.__dict__
        if is_of_class and recorder.reads is not None and not is_foreign_class(type(root)):
            recorder.reads.entered(root, "")
        seen: set[Any] = set()
        for module, shell, path in shells.all():
            forward, is_leaf = shell.forward, self.is_leaf(module, path)
            key = getattr(forward, "__func__", forward), type(shell), is_leaf
            if key in seen:
                continue
            seen.add(key)
            if not is_leaf:
                recorder.questions.staging.anticipate(forward)
            recorder.callers.anticipate(forward)
        convert_methods(shells, recorder.plan.converted)
        # Not by calling the shell: the hooks of the captured module itself run when it is called, as for any module.
        return self.subject.function(shells.root, self.method), signature


@dataclasses.dataclass(eq=False)
class _Run:
    recorder: Recorder
    inputs: Inputs
