"""`record`: a run of the user's own says with which calls a model is captured.

The run, `model.generate(ids)` for instance, is made on the model once, with its methods replaced by ones that note what
they are called with. Calls of one form, which differ in data, sizes and numbers only, are one example.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.capture.state.tracer_warnings import warn_tracer
from graphwright.capture.typed.trace import trace
from graphwright.errors import CaptureError
from graphwright.runtime import GraphModule, attributes_of, is_compiled, with_submodules
from graphwright.values import parts

Call = tuple[tuple[Any, ...], dict[str, Any]]
Run = Callable[[Any], Any]  # takes a model, or what stands for it


def record(model: nn.Module, run: Run, methods: Sequence[str] = ("forward",), **options: Any) -> GraphModule:
    """Capture a model for the calls that a run makes of it, so that the same run works on the result.

    `run` is called once, with the model, whose `methods` are watched: each call is kept as the caller made it, with a
    copy of its arguments. Calls that differ in more than data, sizes and numbers - an argument is None, an empty cache,
    a flag - are an example each. Weights, buffers and random states are put back after the run. `options` are those of
    `trace`; a method of `methods` that the run did not call is not captured.

    Raises CaptureError where the run calls none of the methods, and as `trace` does.

    >>> class Model(nn.Module):
    ...     def forward(self, x, memory=None):
    ...         return x if memory is None else x + memory
    ...     def generate(self, x):
    ...         memory = None
    ...         for _ in range(5):
    ...             memory = self(x, memory=memory)
    ...         return memory
    >>> gm = record(Model(), lambda model: model.generate(torch.ones(2)))
    >>> gm.graphs.names, gm.generate(torch.ones(3))
    (['forward_1', 'forward_2'], tensor([5., 5., 5.]))
    """
    return trace(model, methods=recorded_run(model, run, methods).calls, **options)


def recorded_calls(model: nn.Module, run: Run, method: str = "forward") -> list[Call]:
    """The calls `(args, kwargs)` of a method that a run makes, one of each form: what `record` captures a model for.

    The model is left as it was, as by `record`. Raises CaptureError where the run does not call the method.

    >>> calls = recorded_calls(nn.ReLU(), lambda model: (model(torch.ones(2)), model(input=torch.ones(1))))
    >>> [kwargs for _, kwargs in calls]
    [{}, {'input': tensor([1.])}]
    """
    return recorded_run(model, run, (method,)).calls[method]


def one_of_each_form(calls: Iterable[Call]) -> list[Call]:
    """Those of some calls that differ from the ones before in more than data, sizes and numbers."""
    found = dict[Any, Call]()
    for args, kwargs in calls:
        found.setdefault(_form_of_call(args, kwargs), (args, kwargs))
    return [*found.values()]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What a run calls: of the methods of a model, by their names, one call of each form; and modules inside.

    others: the paths of modules with tensors that the run calls by itself, and not the methods for it.
    """

    model: nn.Module
    run: Run
    calls: dict[str, list[Call]]
    others: tuple[str, ...]

    def with_other_parts(self, make: Callable[[nn.Module, str, Run], nn.Module]) -> nn.Module:
        """A copy of the model with something else for each of `others`; all else is shared.

        make: gets such a module, its path, and a run that calls what it is given in its place. What cannot be captured
        stays as it is, with a warning.
        """
        made: dict[str, nn.Module] = {}
        for path in sorted(self.others):
            if any(path.startswith(f"{above}.") for above in made):
                continue  # the run calls it in there
            made[path] = part = self.model.get_submodule(path)
            try:
                made[path] = make(part, path, functools.partial(self._run_with, path))
            except CaptureError as error:
                warn_tracer(f"{path}, which the run calls by itself, stays as it is: {error}")
        return with_submodules(self.model, made)

    def _run_with(self, path: str, part: nn.Module) -> Any:
        return self.run(with_submodules(self.model, {path: part}))


def recorded_run(model: nn.Module | Callable[..., Any], run: Run, methods: Sequence[str] = ("forward",)) -> RecordedRun:
    """Make a run, and note what it calls. The model is left as it was, as by `record`.

    Raises CaptureError where the run calls none of the methods.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> recorded_run(model, lambda model: (model(torch.ones(2)), model[0](torch.ones(2)))).others
    ('0',)
    """
    from graphwright.analysis import ModuleState, copied_inputs  # a room that captures do not need

    model = _checked(model, methods)
    state = ModuleState(model)
    noted = _Noted({name: _Calls(copied_inputs) for name in methods})
    try:
        with torch.random.fork_rng(devices=[]), noted.noting(model):
            run(model)
    finally:
        state.restore()
    made = {name: calls.examples for name, calls in noted.calls.items() if calls.examples}
    others = tuple([path for path in noted.others if _has_tensors(model.get_submodule(path))])
    if not made:
        names = " or ".join(f"{type(model).__name__}.{name}" for name in methods)
        fix = "have it call the model that it is given: record(model, lambda model: model.generate(ids))"
        if others:
            fix = f"record what it calls instead, each by itself: record(model.{others[0]}, lambda part: run(model))"
        raise CaptureError(f"the run makes no call of {names}", fix=fix)
    return RecordedRun(model, run, made, others)


def _has_tensors(module: nn.Module) -> bool:
    return next(itertools.chain(module.parameters(), module.buffers()), None) is not None


def _checked(model: nn.Module | Callable[..., Any], methods: Iterable[str]) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise CaptureError(
            f"record watches the methods of a module, and this is a {type(model).__name__}",
            fix="pass the module that the run calls",
        )
    if isinstance(methods, str):
        raise CaptureError("methods is a text", fix=f"name them in a tuple: methods=({methods!r},)")
    for name in methods:
        if not callable(getattr(model, name, None)):
            raise CaptureError(f"{type(model).__name__} has no method {name!r}", fix="methods=('forward',)")
    return model


class _Noted:
    """The calls that a run makes of the methods of a model, and of modules inside of it."""

    def __init__(self, calls: dict[str, _Calls]) -> None:
        self.calls = calls
        self.others: dict[str, None] = {}
        self._depth = 0  # of calls that run right now

    @contextmanager
    def noting(self, model: nn.Module) -> Iterator[None]:
        """Have methods note their calls, looking otherwise as they did."""
        within = [each for each in model.named_modules() if each[0] and not is_compiled(each[1])]
        rows = [(model, name, calls.note) for name, calls in self.calls.items()]
        rows += [(module, "forward", functools.partial(self._note_other, path)) for path, module in within]
        own = [(vars(module), name, vars(module)[name]) for module, name, _ in rows if name in vars(module)]
        for module, name, note in rows:
            vars(module)[name] = self._noting_method(getattr(module, name), note)
        try:
            yield
        finally:
            for module, name, _ in rows:
                vars(module).pop(name, None)
            for state, name, value in own:
                state[name] = value

    def _note_other(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._depth == 0:
            self.others[path] = None

    def _noting_method(self, method: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        @functools.wraps(method)
        def noting(*args: Any, **kwargs: Any) -> Any:
            note(args, kwargs)
            self._depth += 1
            try:
                return method(*args, **kwargs)
            finally:
                self._depth -= 1

        return noting


class _Calls:
    """The calls of one method, one of each form, in the order in which they were made."""

    def __init__(self, copied: Callable[[Any], Any]) -> None:
        self._copied = copied
        self.examples: list[Call] = []
        self._forms: set[Any] = set()

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a copy of a call, if none of its form is known."""
        form = _form_of_call(args, kwargs)
        if form not in self._forms:
            self._forms.add(form)
            self.examples.append(self._copied((args, kwargs)))


def _form_of_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _form(args, ()), tuple((name, _form(value, ())) for name, value in sorted(kwargs.items()))


def _form(value: Any, inside: tuple[int, ...]) -> Any:
    """What a capture for a value takes for granted: all of it but the data and sizes of tensors, and numbers."""
    if isinstance(value, Tensor):
        return type(value), value.dtype, value.dim(), value.device, value.layout, value.requires_grad
    if type(value) in (int, float):
        return type(value)
    if value is None or isinstance(value, str | bool):
        return value
    if id(value) in inside:
        return inside.index(id(value))
    if isinstance(value, nn.Module | type | torch.dtype | torch.device) or callable(value):
        return id(value)
    found = parts(value)
    held = attributes_of(value) if found is None else found
    inside = (*inside, id(value))
    return type(value), tuple((_form(name, inside), _form(item, inside)) for name, item in held.items())
