"""Functions that are recorded as one call instead of being traced through."""

from __future__ import annotations

import builtins
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from graphwright.capture.proxies.proxy import find_tracer
from graphwright.capture.state.interception import standing_in

WRAPPED: dict[tuple[int, str], dict[str, Any]] = {}
"""What to record by name: (id of the globals of the module that wrapped it, name) -> those globals."""
_functions: dict[int, Callable[..., Any]] = {}
_lock = threading.Lock()


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Have calls of a function recorded as one node, rather than traced through, when an argument is a proxy.

    Called at the top level of a module, or used as a decorator there. With a name, it is the function that this
    module knows by that name: its own, an imported one, a builtin; it may be defined later. The function itself stays
    as it is, and is what the nodes call; `trace`, too, keeps calls of functions of Python that were wrapped as one
    node each, as with `leaf_functions`. Other modules that import a wrapped function record it as well; builtins
    are recorded in the module that wrapped them alone. What was given to `torch.fx.wrap` is recorded too. Raises
    NotImplementedError inside a function.

    >>> import graphwright
    >>> @graphwright.wrap
    ... def scaled(x, by):
    ...     return x * by
    >>> [node.name for node in graphwright.symbolic_trace(lambda x: scaled(x, 3)).graph.nodes]
    ['x', 'scaled', 'output']
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name, "
            f"not {type(fn_or_name).__name__}"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else getattr(fn_or_name, "__name__", None)
    if not isinstance(name, str):
        raise AssertionError(f"expected a function that has a name, got {fn_or_name!r}")
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    with _lock:
        WRAPPED[id(frame.f_globals), name] = frame.f_globals
        if callable(fn_or_name) and not isinstance(fn_or_name, str):
            _functions[id(fn_or_name)] = fn_or_name
    return fn_or_name


def wrapped_functions() -> tuple[FunctionType, ...]:
    """The functions of Python that were given to `wrap`, as themselves or by a name that has a value by now."""
    with _lock:
        named = [names.get(name) for (_, name), names in WRAPPED.items()]
        every = {id(value): value for value in (*_functions.values(), *named) if isinstance(value, FunctionType)}
    return tuple(every.values())


@contextmanager
def recording_wrapped(
    programs: Iterable[Any], modules: Iterable[ModuleType], functions: Iterable[Callable[..., Any]]
) -> Iterator[None]:
    """Have wrapped functions recorded while the block lasts, besides those of `modules`, and `functions`.

    `programs` are the functions that will run: in their modules, every function of the three kinds is found under
    whatever name it has there.
    """
    originals: set[int] = set()
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    builtin_names: set[str] = set()

    def note(value: Any) -> None:  # another capture may stand in for it already
        original = getattr(value, "_graphwright_recorded", value)
        originals.update((id(original), id(recording(original))))

    for function in functions:
        note(function)
    for module in modules:
        for name, value in vars(module).items():
            if callable(value) and not name.startswith("_"):
                note(value)
                replaced.append((vars(module), name, value))
    with _lock:
        for (_, name), names in [*WRAPPED.items(), *_wrapped_for_torch_fx().items()]:
            value = names.get(name, getattr(builtins, name, None))
            if value is None:
                continue
            replaced.append((names, name, value))
            if type(value) is FunctionType:
                note(value)
            else:
                builtin_names.add(name)
        for function in _functions.values():
            note(function)
    seen: set[int] = set()
    for program in programs:
        home: dict[str, Any] | None = getattr(program, "__globals__", None)
        if home is None or id(home) in seen or not (originals or builtin_names):
            continue
        seen.add(id(home))
        replaced += [(home, name, value) for name, value in [*home.items()] if id(value) in originals]
        if builtin_names and program.__code__.co_filename.startswith("<graphwright "):  # generated: has no module
            called = builtin_names.intersection(program.__code__.co_names)
            replaced += [(home, name, home.get(name, getattr(builtins, name, None))) for name in called]
    with standing_in([(names, name, recording(value)) for names, name, value in replaced]):
        yield


def _wrapped_for_torch_fx() -> dict[tuple[int, str], dict[str, Any]]:
    """The functions that programs gave to `torch.fx.wrap`, in the form of `WRAPPED`.

    Libraries of models do so at module scope, torchvision's Swin transformers and detectors among them: what cannot
    be traced through there cannot be here either, and such models are to work as they are. torch.fx keeps these
    names in a table that tools read too; where nobody has imported torch.fx, or its table has another form, there
    are none.
    """
    table = getattr(sys.modules.get("torch.fx._symbolic_trace"), "_wrapped_fns_to_patch", None)
    pairs: list[Any] = []
    if isinstance(table, dict):  # (id of the globals, name) -> globals
        pairs = [(names, key[1]) for key, names in list(table.items()) if isinstance(key, tuple) and len(key) == 2]
    elif isinstance(table, list):  # (globals, name), in earlier versions of torch
        pairs = [pair for pair in list(table) if isinstance(pair, tuple) and len(pair) == 2]
    return {(id(names), name): names for names, name in pairs if isinstance(names, dict) and isinstance(name, str)}


@functools.lru_cache(4096)
def recording(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a wrapped one is replaced by during a capture: it records calls that have a proxy argument."""
    if hasattr(function, "_graphwright_recorded"):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        tracer = find_tracer(args, kwargs)
        if tracer is None:
            return function(*args, **kwargs)
        value = tracer.create_proxy("call_function", function, args, kwargs)
        if (node := getattr(value, "node", None)) is not None:  # a tracer may make other proxies
            node.meta["is_wrapped"] = True
        return value

    call._graphwright_recorded = function  # type: ignore[attr-defined]
    return call
