"""A program with example inputs: run on stand-ins as often as it takes, along every path that it forks into."""

from __future__ import annotations

import contextlib
import copy as copying
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from graphwright.capture.calls.modes import INFERENCE, modes_of
from graphwright.capture.containers.kept_containers import kept_container
from graphwright.capture.conversion.conversion import is_converted
from graphwright.capture.effects.contents_before import LayersBefore
from graphwright.capture.effects.hook_effects import HookEffects, hooks_of
from graphwright.capture.effects.keeping import Keeping
from graphwright.capture.effects.object_reads import Tags
from graphwright.capture.flow.forked_runs import merge
from graphwright.capture.flow.shared_ends import forget_tensors, share_ends
from graphwright.capture.flow.threaded_branches import thread_end
from graphwright.capture.flow.unread_items import drop_unread_carried, drop_unread_items
from graphwright.capture.ladder.refuse import DataQuestion
from graphwright.capture.outside.held_apart import refuse_copied
from graphwright.capture.outside.library_calls import watch_libraries
from graphwright.capture.outside.made_tensors import MadeMeanwhile, watch_lent_memory
from graphwright.capture.outside.named import is_foreign_definition
from graphwright.capture.outside.number_limits import watch_number_limits
from graphwright.capture.outside.overheard import Unnamed, stand_ins
from graphwright.capture.outside.process_state import watch_process_state
from graphwright.capture.outside.python_draws import PythonDraws
from graphwright.capture.outside.random_state import watch_random_state
from graphwright.capture.outside.said import logged_once
from graphwright.capture.outside.surroundings import World
from graphwright.capture.outside.world import watch_world
from graphwright.capture.python.cached_calls import check_results
from graphwright.capture.python.entering import convert_methods
from graphwright.capture.python.higher_order import watch_higher_order
from graphwright.capture.python.reached import Reached
from graphwright.capture.state.examples import Examples
from graphwright.capture.state.interception import (
    ExportFlags,
    StandIns,
    Unreported,
    uncompiled,
    watching,
)
from graphwright.capture.state.members import Members
from graphwright.capture.state.plan import Log, Plan, Restart
from graphwright.capture.state.thread_state import ending, undoing
from graphwright.capture.state.tidy import erase_unused
from graphwright.capture.state.tracer_warnings import warn_tracer
from graphwright.capture.typed.copied_calls import drop_unused_inputs, write_out
from graphwright.capture.typed.entries import (
    Subject,
)
from graphwright.capture.typed.inputs import Inputs
from graphwright.capture.typed.module_calls import keep_module_calls
from graphwright.capture.typed.recorder import Recorder
from graphwright.capture.typed.remembered import (
    Learned,
    learned,
)
from graphwright.errors import CaptureError
from graphwright.ir import Graph
from graphwright.ops import is_library_function, library_functions, module_called
from graphwright.runtime import (
    HOOKS,
    Shells,
    codes_beside,
    keep_buffers,
    keep_facts,
    keep_forwards,
    keep_modules,
    keep_unset,
)
from graphwright.source import definition_line, is_foreign_class, place_of_write


class Attempt:
    """One way of capturing: on fake or real stand-ins, as in eager or as under export."""

    def __init__(self, name: str, real: bool, export: bool) -> None:
        self.name = name
        self.real = real
        self.export = export


ATTEMPTS = (
    Attempt("captured", real=False, export=False),
    Attempt("captured as for export", real=False, export=True),
    Attempt("captured on real values", real=True, export=False),
    Attempt("captured on real values, as for export", real=True, export=True),
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
        self.modules = LayersBefore([])  # what modules hold, as they are put back after each pass
        self.held: HookEffects | None = None  # what hooks of modules hold, likewise
        self.world = World([] if subject.root_module is None or method == "forward" else [method])
        self.unnamed = Unnamed([subject.root] if subject.root_module is None else self.members.entered)
        self.reached = Reached()
        self.draws: PythonDraws | None = None  # likewise
        self.standing: tuple[StandIns, ...] = ()  # likewise
        self.name = subject.name(method)
        self.function = subject.function(subject.root_module, method)
        self.place = definition_line(self.function)
        self.log = Log()
        self.learned: Learned | None = None  # what the plan held as the last pass started

    def parts(self) -> tuple[Any, ...]:
        """What tells it from other programs."""
        members = None if self.subject.root_module is None else self.members
        return self.function, members, self.args, self.kwargs

    @functools.cached_property
    def members(self) -> Members:
        """The modules of the program."""
        root = self.subject.root_module
        assert root is not None
        return Members(root, self.is_leaf)

    @functools.cached_property
    def tags(self) -> Tags:
        """What tensors of the modules have for attributes of their own, as the first pass starts."""
        root = self.subject.root_module
        return Tags(()) if root is None else Tags(self.members.placed, root)

    def copied(self) -> Callable[..., Any]:
        """A copy of the program, to be run on what it is captured for."""
        root = self.subject.root_module
        return self.function if root is None else self.subject.function(copying.deepcopy(root), self.method)

    def capture(self, plan: Plan, attempt: Attempt) -> Graph:
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
        if plan.has_rests:
            if plan.leaves_copies:
                write_out(graph)
            if plan.obstacles is None:
                share_ends(graph)
                erase_unused(graph)
            forget_tensors(graph)
        thread_end(graph)
        while drop_unread_items(graph) or (plan.leaves_copies and drop_unused_inputs(graph)):
            erase_unused(graph)
        while drop_unread_carried(graph):
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
        called = functools.partial(module_called, owner=self.subject.root_module)
        self.made = MadeMeanwhile(graph, run.recorder.tensors.owners, called)
        return graph

    def _steady(self, plan: Plan, attempt: Attempt) -> _Run:
        """Run the program until the plan needs no more change."""
        while True:
            plan.paths, plan.answers = 0, ()
            self.learned = learned(plan) if self.log.passes and not plan.is_remembered else None
            try:
                return self.paths(plan, attempt, ())
            except Restart as restart:
                if plan.is_remembered:
                    raise
                if self.examples is None or not self.examples.asks_history:  # else it depends on captures before
                    self.log.note(restart.why, restart.at)
            except (DataQuestion, Exception):
                if plan.scalars <= plan.static or plan.is_remembered:
                    raise
                plan.static |= plan.scalars
                self.log.note(f"{' and '.join(sorted(plan.scalars))} cannot be symbolic here")

    def paths(self, plan: Plan, attempt: Attempt, answers: tuple[bool, ...]) -> _Run:
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
        plan.sees_tables, plan.walks_tables = before[0] or self.world.sees_tables, before[1] or self.world.walks
        if (plan.sees_tables, plan.walks_tables) != before:
            raise Restart("the program looks at tables of attributes")

    def _see_attributes(self, keeping: Keeping) -> None:
        """Look for what asks of an attribute which the program is now known to read."""
        if (name := keeping.overlooked(self._may_read())) is not None:
            raise Restart(f"the program reads {name!r} by a name that it computes, or in a function that was not known")

    def _may_read(self) -> Callable[[str], bool]:
        """What tells whether the program may read attributes of a name."""
        known, are_all = self.world.attributes(), self.world.walks or self.world.sees_tables
        return lambda name: are_all or name in known

    def note_history(self) -> None:
        """Keep from here on how values are computed where the last pass met something that may ask for it."""
        known = self.examples
        self.keeps_history |= known is not None and not known.is_real and known.alike is None

    def _examples(self, attempt: Attempt) -> Examples:
        """Stand-ins for a pass."""
        self.note_history()
        self.examples = Examples(attempt.real, self.keeps_history)
        return self.examples

    def _run(self, plan: Plan, attempt: Attempt, answers: tuple[bool, ...]) -> _Run:
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
        self.modules.put_back()
        if self.examples is not None:
            self.examples.written.put_back()
        if self.recorder is not None:
            self.recorder.dtypes.kept.put_back()
            if self.recorder.keeping is not None:
                self.recorder.keeping.put_back()
        self.world.put_back()
        self.tags.put_back(self.world.attributes())
        if self.held is not None:
            self.held.put_back()
        if self.draws is not None:
            self.draws.put_back()

    def _pass(self, plan: Plan, attempt: Attempt, answers: tuple[bool, ...]) -> _Run:
        plan.start(answers)
        watch_libraries()
        self.log.passes += 1
        tags = self.tags  # from before the program runs
        recorder = self.recorder = Recorder(self._examples(attempt), self.is_leaf, plan, self.log)
        function, signature = self._entry(recorder)
        recorder.scope.kind = type(self.subject.root_module or self.subject.root)
        inputs = Inputs(recorder, signature, self.name)
        args, kwargs = inputs.bind(self.args, self.kwargs)
        if inputs.has_arrays:
            self._see_arrays(recorder, function)
        held = self.held = _what_hooks_hold(recorder)
        self.modules = LayersBefore([] if recorder.members is None else [m for m, _ in recorder.members.tree.modules])
        keeping = self._look_around(recorder, function, inputs)
        draws = self.draws = PythonDraws(recorder)
        overheard = {**plan.overheard, **recorder.callers.overheard}
        modes = StandIns(modes_of(function))
        self.standing = StandIns(stand_ins()), StandIns(overheard.values()), StandIns(INFERENCE), modes
        for standing in self.standing:
            standing.enter()
        with (
            self._watch(recorder),
            draws.located() if plan.locates_draws else contextlib.nullcontext(),
            uncompiled() if plan.is_uncompiled else contextlib.nullcontext(),
        ):
            try:
                result, is_raised = recorder.run(function, args, kwargs), False
            except Exception as error:
                self._see_attributes(keeping)
                inputs.tell_apart((), self.world.objects())
                self._end_by_raising(error, recorder, keeping, draws)
                result, is_raised = None, True
        self._see_attributes(keeping)
        modes.leave()  # what follows asks torch itself
        self._refuse_written(recorder)
        keeping.learn()
        if not is_raised:
            keeping.learn_hooks()
        self._take_from_world(recorder, tags)
        self._refuse_unheard(recorder, overheard, draws)
        if plan.paths > plan.max_paths:
            raise recorder.questions.forking.too_many_paths()
        changes = list(inputs.objects.changes())
        inputs.tell_apart((value for _, value, *_ in changes), self.world.objects())
        recorder.finish(result, () if is_raised else changes)
        inputs.settle()
        keeping.put_back()
        if held.put_back():
            warn_tracer("the program changes what is outside of the program, in a hook; the captured program does not")
        return _Run(recorder, inputs)

    def _look_around(self, recorder: Recorder, function: Callable[..., Any], inputs: Inputs) -> Keeping:
        """See what the program can reach and what state the process is in, before the program runs."""
        plan = recorder.plan
        keeping = recorder.keeping = Keeping(recorder, recorder.shells, kept_container, inputs.objects.changes)
        program = self.subject.function(self.subject.root_module, self.method)
        entered, own = ([], ()) if recorder.members is None else (recorder.members.entered, recorder.members.tree.paths)
        leaves = plan.leaves if plan.enters_libraries else (*plan.leaves, *library_functions())
        self.world.start([program, *inputs.reached()], entered, keeping, leaves, own)
        plan.is_uncompiled |= self.world.is_compiled
        self._see_tables(plan)
        watch_world()
        watch_random_state()
        watch_number_limits()
        watch_lent_memory()
        watch_process_state()
        watch_higher_order()
        recorder.callers.start(function, self.world, self.unnamed, self.reached)
        return keeping

    def _refuse_written(self, recorder: Recorder) -> None:
        """Refuse what the program has written to a module itself, which the captured program would not."""
        written = self.modules.put_back()
        if written is not None:
            module, name = written
            recorder.questions.refusals.refuse(
                CaptureError(
                    f"the program writes {type(module).__name__}.{name} by another way than the module: "
                    "an object or variable that holds it",
                    at=place_of_write(type(module), name),
                    fix="hand the module over as an argument, or do what the object does in a method of the module",
                ),
                "attribute",
            )

    def _end_by_raising(self, error: Exception, recorder: Recorder, keeping: Keeping, draws: PythonDraws) -> None:
        """Note that the program raises an error of its own. Raises what says why it cannot be captured, otherwise."""
        if type(error).__module__.startswith("torch._dynamo") and not recorder.plan.is_uncompiled:
            recorder.plan.is_uncompiled = True
            raise Restart("the program calls a function of torch.compile") from error
        draws.failed()
        keeping.learn()
        if recorder.plan.answers and recorder.questions.raises.is_raised_by_user(error):
            recorder.questions.raises.write_raise(error)
            return
        why = recorder.questions.refusals.failed_path(error)
        if why is error:
            raise
        raise why from error

    def _take_from_world(self, recorder: Recorder, tags: Tags) -> None:
        """Take for granted what the program has found outside of itself."""
        self._see_tables(recorder.plan)
        self.world.finish()
        tags.refuse_written(self.world.attributes(), self.place)
        check_results(recorder)
        if recorder.shells is not None:
            refuse_copied(self.world.reached.values(), recorder.shells, self.world.attributes())
        recorder.ledger.find(self.world.found())
        if self.world.chooses_by_class:
            recorder.ledger.kind_asked()
        recorder.callers.settle_questions()
        recorder.ledger.asks_classes |= self.world.names_subclass
        for code, what in self.world.unseen.items():
            recorder.ledger.say(f"{code.co_name} {what}", f"{code.co_filename}:{code.co_firstlineno}")

    def _refuse_unheard(self, recorder: Recorder, overheard: dict[Any, Any], draws: PythonDraws) -> None:
        """Raise Restart where the program came to call what the capture was not told of."""
        plan, callers = recorder.plan, recorder.callers
        if watch_world() or watch_libraries():
            raise Restart("modules are imported of whose functions the capture has to hear")
        if callers.overheard.keys() - overheard.keys():
            plan.overheard.update(callers.overheard)
            raise Restart("the program has functions under names of its own that the capture has to hear of")
        if callers.generators.keys() - draws.known:
            plan.generators.update(callers.generators)
            plan.closing |= callers.closing
            raise Restart("the program can reach generators of random numbers")
        if draws.have_happened() and not plan.locates_draws:
            plan.locates_draws = True
            raise Restart("random numbers of Python or NumPy are drawn")

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
        leaves = tuple([each for each in recorder.plan.leaves if not is_library_function(each)])
        keeping = recorder.keeping
        names = frozenset() if keeping is None else keeping.look_for(self._may_read())
        looks = recorder.questions.optionals.function_entered if recorder.plan.looks_into_arguments else None
        if not leaves and not names and looks is None:
            return contextlib.nullcontext()
        entered = (lambda frame: None) if keeping is None else keeping.code_entered
        return watching(recorder.examples, leaves, recorder.questions.staging.leaf_called, names, entered, looks)

    def _entry(self, recorder: Recorder) -> tuple[Callable[..., Any], inspect.Signature]:
        signature = self.subject.signature(self.method)
        if self.subject.root_module is None:
            recorder.callers.anticipate(self.subject.root, self.reached)
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
            recorder.callers.anticipate(forward, self.reached)
        convert_methods(shells, recorder.plan.converted)
        # Not by calling the shell: the hooks of the captured module itself run when it is called, as for any module.
        return self.subject.function(shells.root, self.method), signature


@dataclasses.dataclass(eq=False)
class _Run:
    recorder: Recorder
    inputs: Inputs


def _what_hooks_hold(recorder: Recorder) -> HookEffects:
    modules = [] if recorder.shells is None else [module for module, *_ in recorder.shells.all()]
    hooks = [hook for module in modules for hook in hooks_of(module)]
    tables = [vars(module)[name] for module in modules for name in HOOKS if vars(module)[name]]
    return HookEffects(hooks, with_modules=False, tables=tables)
