"""`doctor`: everything in a program that stands in the way of its capture, found in one go.

First the program is captured as `trace` would. Where that is refused it is captured again on real values, and each
obstacle is noted and passed by: a question of data gets the example's answer, what cannot be written into the graph is
left out, and a function that fails becomes one node.
"""

from __future__ import annotations

import gc
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch import nn

from graphwright.capture.conversion.conversion import original_code
from graphwright.capture.ladder.refuse import DataQuestion
from graphwright.capture.proxies.unbound import OneSided
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.leaf_modules import LeafModules
from graphwright.capture.state.obstacles import Diagnosis, Obstacles
from graphwright.capture.state.plan import Plan, Restart
from graphwright.capture.symbolic.wrap import wrapped_functions
from graphwright.capture.typed.program import ATTEMPTS, Program
from graphwright.capture.typed.trace import program_of, trace
from graphwright.ir import Graph
from graphwright.runtime import entries_of, facts_of_modules, graph_of, said_of_modules
from graphwright.source import user_frame

_MOST_PASSES = 100


def doctor(
    root: nn.Module | Callable[..., Any],
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    static: Iterable[str] = (),
    dynamic: Iterable[str] = (),
    leaf_modules: LeafModules = (),
    leaf_functions: Iterable[Callable[..., Any]] | None = (),
    max_paths: int = 8,
) -> Diagnosis:
    """List everything that stands in the way of capturing a program, not only the first thing.

    The arguments are those of `trace`. Each obstacle has the user's line, a category and what to do about it; guards,
    forks and calls that are not looked into are listed after those that make `trace` refuse the program. What comes
    after an obstacle is looked at on the way that the example takes. The program is not changed.

    >>> def padding(x):
    ...     start = bytes(int(x.sum()))
    ...     return x, start + bytes(int(x.mean()))
    >>> diagnosis = doctor(padding, torch.ones(3))
    >>> diagnosis.ok, [obstacle.category for obstacle in diagnosis.obstacles]
    (False, ['data', 'data'])
    >>> doctor(nn.Linear(2, 2), torch.ones(1, 2)).ok
    True
    """
    program = program_of(root, args, kwargs, leaf_modules)
    leaves: tuple[Callable[..., Any], ...] = (*(leaf_functions or ()), *wrapped_functions())
    options = (frozenset(static), frozenset(dynamic))
    obstacles = Obstacles(program.place)
    added: set[str] = set()
    try:
        gm = trace(
            root, args, kwargs, static=options[0], dynamic=options[1], leaf_modules=leaf_modules,
            leaf_functions=None if leaf_functions is None else leaves, max_paths=max_paths,
        )  # fmt: skip
        is_complete, graph = True, graph_of(gm)
    except Exception as error:
        search = _Search(
            program, Plan("stage", max_paths, *options, leaves, leaf_functions is None, obstacles=obstacles)
        )
        is_complete, graph = search.run(), search.graph
        added = {function.__qualname__ for function in search.plan.leaves[len(leaves) :]}
        if not any(obstacle.is_blocking for obstacle in obstacles.all()):
            obstacles.note_failure(error)  # of stand-ins alone
    for entry in entries_of(graph):
        if entry.text.rpartition(", with ")[0] not in added and entry.text != said_of_modules(facts_of_modules(graph)):
            obstacles.add_entry(entry)
    return Diagnosis(program.name, tuple(obstacles.all()), is_complete)


class _Search:
    """Runs a program on real values as often as it takes to get to its end, past one failure after another."""

    def __init__(self, program: Program, plan: Plan) -> None:
        self.plan = plan
        self.graph = Graph()  # what was captured, as far as it went
        self._kept: set[CodeType | None] = set()
        self._program = program
        self._is_leaf, self._leaf_paths = program.is_leaf, set[str]()
        program.is_leaf = lambda module, path: path in self._leaf_paths or self._is_leaf(module, path)

    def run(self) -> bool:
        """Note all obstacles; tell whether the end of the program was reached."""
        obstacles = self.plan.obstacles
        assert obstacles is not None
        attempt = next(attempt for attempt in ATTEMPTS if attempt.real)
        for _ in range(_MOST_PASSES):
            self.plan.passes, self.plan.paths, self.plan.answers = 0, 0, ()
            try:
                run = self._program.paths(self.plan, attempt, ())
                run.inputs.guard()
                self.graph = run.recorder.root.graph
                return True
            except Restart:
                pass
            except (Exception, DataQuestion, NeedsRealValues) as error:
                if not self._is_inside_kept(error):
                    obstacles.note_failure(error)
                if isinstance(error, OneSided) and self.plan.ways.get(error.place) != "follow":
                    self.plan.change(error.place, "follow", error.message)
                elif not self._pass_by(error):
                    break
        recorder = self._program.recorder
        if recorder is not None:
            if recorder.keeping is not None:
                recorder.keeping.write()
            self.graph = recorder.root.graph
        return False

    def _pass_by(self, error: BaseException) -> bool:
        """Have the innermost function or module that failed kept as one node; False where none can be."""
        own = getattr(inspect.unwrap(self._program.function), "__code__", None)
        for frame in reversed(_frames(error)):
            code = original_code(frame.f_code)
            if code is own:
                return False
            if code is not None and (self._keep_module(frame, code) or self._keep_function(code)):
                return True
        return False

    def _is_inside_kept(self, error: BaseException) -> bool:
        """Tell whether what failed was kept as one node for an earlier failure, of which this one comes."""
        return any(original_code(frame.f_code) in self._kept for frame in _frames(error))

    def _keep_module(self, frame: FrameType, code: CodeType) -> bool:
        recorder = self._program.recorder
        module = frame.f_locals.get("self")
        if recorder is None or recorder.shells is None or not isinstance(module, nn.Module):
            return False
        path = recorder.shells.path(module)
        if not path or path in self._leaf_paths or getattr(type(module).forward, "__code__", None) is not code:
            return False
        self._leaf_paths.add(path)
        self._kept.add(code)
        return True

    def _keep_function(self, code: CodeType) -> bool:
        functions = [function for function in gc.get_referrers(code) if type(function) is FunctionType]
        if len(functions) != 1 or functions[0] in self.plan.leaves:
            return False
        self.plan.add_leaf(functions[0])
        self._kept.add(code)
        return True


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__) if user_frame(frame) is frame]
