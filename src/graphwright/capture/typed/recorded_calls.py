"""`record`: a run of the user's own says with which calls a model is captured.

The run, `model.generate(ids)` for instance, is made on the model once, with its methods replaced by ones that note what
they are called with. Calls of one form, which differ in data, sizes and numbers only, are one example.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.capture.typed.trace import trace
from graphwright.errors import CaptureError
from graphwright.runtime import GraphModule, attributes_of
from graphwright.values import parts

Call = tuple[tuple[Any, ...], dict[str, Any]]


def record(
    model: nn.Module, run: Callable[[Any], Any], methods: Sequence[str] = ("forward",), **options: Any
) -> GraphModule:
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
    return trace(model, methods=_noted(model, run, methods), **options)


def recorded_calls(model: nn.Module, run: Callable[[Any], Any], method: str = "forward") -> list[Call]:
    """The calls `(args, kwargs)` of a method that a run makes, one of each form: what `record` captures a model for.

    The model is left as it was, as by `record`. Raises CaptureError where the run does not call the method.

    >>> calls = recorded_calls(nn.ReLU(), lambda model: (model(torch.ones(2)), model(input=torch.ones(1))))
    >>> [kwargs for _, kwargs in calls]
    [{}, {'input': tensor([1.])}]
    """
    return _noted(model, run, (method,))[method]


def one_of_each_form(calls: Iterable[Call]) -> list[Call]:
    """Those of some calls that differ from the ones before in more than data, sizes and numbers."""
    found = dict[Any, Call]()
    for args, kwargs in calls:
        found.setdefault(_form_of_call(args, kwargs), (args, kwargs))
    return [*found.values()]


def _noted(model: nn.Module, run: Callable[[Any], Any], methods: Sequence[str]) -> dict[str, list[Call]]:
    """The calls of methods that a run makes, by their names."""
    from graphwright.analysis import ModuleState, copied_inputs  # a room that captures do not need

    _check(model, methods)
    state = ModuleState(model)
    calls = {name: _Calls(copied_inputs) for name in methods}
    try:
        with torch.random.fork_rng(devices=[]), _noting(model, calls):
            run(model)
    finally:
        state.restore()
    made = {name: noted.examples for name, noted in calls.items() if noted.examples}
    if not made:
        raise CaptureError(
            f"the run makes no call of {' or '.join(f'{type(model).__name__}.{name}' for name in methods)}",
            fix="have it call the model that it is given: record(model, lambda model: model.generate(ids))",
        )
    return made


def _check(model: Any, methods: Iterable[str]) -> None:
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


@contextmanager
def _noting(model: nn.Module, calls: dict[str, _Calls]) -> Iterator[None]:
    """Have the methods of one model note their calls, looking otherwise as they did."""
    own = {name: vars(model)[name] for name in calls if name in vars(model)}
    for name, noted in calls.items():
        vars(model)[name] = _noting_method(getattr(model, name), noted)
    try:
        yield
    finally:
        for name in calls:
            vars(model).pop(name, None)
        vars(model).update(own)


def _noting_method(method: Callable[..., Any], calls: _Calls) -> Callable[..., Any]:
    @functools.wraps(method)
    def noting(*args: Any, **kwargs: Any) -> Any:
        calls.note(args, kwargs)
        return method(*args, **kwargs)

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
