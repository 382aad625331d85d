"""What the caller of `trace` wants captured: entry points of a program, each with its example inputs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from graphwright.capture.outside.closures import Reached
from graphwright.errors import CaptureError, did_you_mean
from graphwright.ir import Graph, Node, Origin
from graphwright.runtime import (
    Entry,
    GraphModule,
    attributes_of,
    captured_module,
    facts_of_modules,
    is_compiled,
    is_object,
    refuse_call,
    with_renamed,
)
from graphwright.source import annotate, qualname_of
from graphwright.values import parts

Call = tuple[tuple[Any, ...], dict[str, Any]]
Example = tuple[tuple[Any, ...], Mapping[str, Any]]
Examples = Iterable[Any]
Methods = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class EntryPoint:
    """One method of a module, or a function, called "forward", and the calls to capture it for."""

    name: str
    examples: list[Call]


def uncompiled_root(root: nn.Module | Callable[..., Any]) -> Any:
    """What `torch.compile` was given, where the program to be captured is what it has made of that."""
    if isinstance(root, nn.Module):
        return vars(root).get("_modules", {}).get("_orig_mod", root) if type(root).__module__ == _COMPILED else root
    return getattr(root, "_torchdynamo_orig_callable", root)


_COMPILED = "torch._dynamo.eval_frame"  # the module of the class that `torch.compile` wraps modules in


class _Reached(BaseException):
    """Raised where a call of a module comes to its `forward`."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call


def _handed_on(root: nn.Module | Callable[..., Any], call: Call) -> Call:
    """The arguments that `forward` gets of a call: where the class of a module has a `__call__`, others than that.

    What the class does before is done once, and the module is left as it was.
    """
    if not isinstance(root, nn.Module) or type(root).__call__ in (nn.Module.__call__, GraphModule.__call__):
        return call
    from graphwright.analysis import ModuleState  # a room that captures do not need

    def reached(*args: Any, **kwargs: Any) -> None:
        raise _Reached((args, kwargs))

    state, own = ModuleState(root), vars(root)
    before = {name: own[name] for name in _ON_THE_WAY if name in own}
    own.update(dict.fromkeys(_ON_THE_WAY, reached))
    try:
        with torch.random.fork_rng(devices=[]):
            root(*call[0], **call[1])
    except _Reached as error:
        return error.call
    except Exception:  # these may be the arguments of `forward` already
        return call
    finally:
        for name in _ON_THE_WAY:
            own.pop(name, None)
        own.update(before)
        state.restore()
    return call


_ON_THE_WAY = ("_call_impl", "forward")  # what a call of a module comes to


def entry_points(
    root: nn.Module | Callable[..., Any],
    args: Any,
    kwargs: Mapping[str, Any] | None,
    examples: Examples | None,
    methods: Methods | None,
) -> list[EntryPoint]:
    """Read the inputs that `trace` was given, as entry points; `forward` comes first, if it is among them.

    Raises CaptureError for what is no program, no example, or no method of the module.
    """
    if not isinstance(root, nn.Module) and not callable(root):
        raise CaptureError(
            f"cannot capture a {type(root).__name__}: it is neither an nn.Module nor callable",
            fix="pass the model itself, then its example inputs: trace(model, (x,))",
        )
    given = {
        "args": not (isinstance(args, tuple) and not args) or kwargs is not None,
        "examples": examples is not None,
        "methods": methods is not None,
    }
    if sum(given.values()) > 1:
        named = [name for name, is_given in given.items() if is_given]
        raise CaptureError(
            f"trace was given {' and '.join(named)}, which say the same thing in different ways",
            fix="pass one of them: methods={'forward': [(args, kwargs), ...], ...} can say it all",
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise CaptureError(
            f"kwargs is a {type(kwargs).__name__}",
            fix="pass all positional example inputs as one tuple, then a dict of the others: trace(model, (x, y), {})",
        )
    if examples is not None:
        return [EntryPoint("forward", [_handed_on(root, each) for each in _examples(list(examples), "examples")])]
    if methods is None:
        return [EntryPoint("forward", [_handed_on(root, _example((args, kwargs or {}), "args"))])]
    if not methods:
        raise CaptureError("methods is empty", fix="name the methods to capture: methods={'forward': (args, kwargs)}")
    points = [EntryPoint(name, _of_method(name, wanted)) for name, wanted in methods.items()]
    for point in points:
        _check_method(root, point.name)
    return sorted(points, key=lambda point: point.name != "forward")


def _of_method(name: str, wanted: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    where = f"methods[{name!r}]"
    return _examples(wanted, where) if isinstance(wanted, list) else [_example(wanted, where)]


def _examples(wanted: list[Any], where: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    if not wanted:
        raise CaptureError(f"{where} is empty", fix="pass at least one example, (args, kwargs)")
    return [_example(each, f"{where}[{i}]") for i, each in enumerate(wanted)]


def _example(wanted: Any, where: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read one example: (args, kwargs); a lone tensor is the only argument."""
    if isinstance(wanted, torch.Tensor):
        return (wanted,), {}
    if isinstance(wanted, tuple) and len(wanted) == 2 and isinstance(wanted[1], Mapping):
        args, kwargs = wanted
        if isinstance(args, torch.Tensor):
            args = (args,)
        if isinstance(args, tuple | list):
            return tuple(args), dict(kwargs)
        raise CaptureError(
            f"{where} is a {type(args).__name__}"
            if where == "args"
            else f"{where} starts with a {type(args).__name__}",
            fix="pass a tuple of the positional example inputs",
        )
    raise CaptureError(f"{where} is no example", fix="pass (args, kwargs), as in ((x,), {'mask': mask})")


def as_example(wanted: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read one call to check: (args, kwargs), a tuple of positional arguments, or a lone tensor.

    Raises CaptureError for anything else.
    """
    is_pair = isinstance(wanted, tuple) and len(wanted) == 2 and isinstance(wanted[1], Mapping)
    if isinstance(wanted, tuple) and not is_pair:
        return wanted, {}
    return _example(wanted, "check_inputs")


def _check_method(root: nn.Module | Callable[..., Any], name: str) -> None:
    if not isinstance(root, nn.Module):
        raise CaptureError(
            f"methods names entry points of a module, and this is a {type(root).__name__}",
            fix="pass the module itself, or examples of the function's arguments",
        )
    if not isinstance(name, str) or not callable(getattr(root, name, None)):
        raise CaptureError(f"{type(root).__name__} has no method {name!r}", fix="methods={'forward': (args, kwargs)}")
    is_ours = name != "forward" and (hasattr(nn.Module, name) or hasattr(GraphModule, name))
    if is_ours or name in root._modules:
        raise CaptureError(
            f"{name!r} of {type(root).__name__} is no entry point: a captured module needs it as it is",
            fix="capture methods that the program itself defines",
        )


def share_constants(graphs: Iterable[Graph]) -> None:
    """Give the constants of graphs that will belong to one module names that mean the same tensor everywhere."""
    known: dict[str, torch.Tensor] = {}
    for graph in graphs:
        renamed: dict[str, str] = {}
        for name, value in graph.constants.items():
            mine = next((other for other, tensor in known.items() if tensor is value), name)
            while mine in known and known[mine] is not value:
                mine = f"_tensor_constant{len(known) + len(renamed)}" if mine == name else f"{mine}_"
            known[mine] = value
            renamed[name] = mine
        if all(old == new for old, new in renamed.items()):
            continue
        for node in list(graph.all_nodes()):
            if node.op == "get_attr" and node.target in renamed:
                node.target = renamed[str(node.target)]
        graph.constants = {renamed[name]: value for name, value in graph.constants.items()}
        for facts in facts_of_modules(graph).values():
            for name, told in facts.get("values", {}).items():
                facts["values"][name] = with_renamed(told, renamed)


class Subject:
    """The program that is captured: a module, a method of a module, or something else that can be called."""

    def __init__(self, root: nn.Module | Callable[..., Any]) -> None:
        if isinstance(root, nn.Module) and is_compiled(root):
            raise CaptureError(
                f"{type(root).__name__} is what TorchScript compiled, without the Python that it was made of",
                fix="capture the module that it was made of; inside of another module it stays one node",
            )
        if isinstance(root, type) and nn.Module in root.__mro__:
            name = root.__name__
            raise CaptureError(f"{name} is a class of modules, and no module yet", fix=f"make one: {name}(...)")
        if type(root).__name__ == "ExportedProgram":
            raise CaptureError(
                "an ExportedProgram is what torch.export has captured already",
                fix="give it to graphwright.from_export, or capture the module that it was made of",
            )
        self.root = root
        self.root_module: nn.Module | None = root if isinstance(root, nn.Module) else None
        self._method = ""  # where the root is a method of a module
        owner = getattr(root, "__self__", None)
        if inspect.ismethod(root) and isinstance(owner, nn.Module):
            name = root.__func__.__name__
            if getattr(owner, name, None) == root and not hasattr(nn.Module, name):
                self.root_module, self._method = owner, name
        self._reached: Reached | None = None  # where the root is a function that reaches modules
        if self.root_module is None:
            reached = Reached(root)
            if reached.is_any():
                self._reached, self.root_module = reached, reached.holder

    @property
    def tree(self) -> nn.Module | None:
        """The module whose tree is captured; None for a function, of whatever modules it reaches."""
        return None if self._reached is not None else self.root_module

    def name(self, entry: str) -> str:
        """What an entry point is called in messages."""
        if self.root_module is None or self._reached is not None:
            return getattr(self.root, "__qualname__", None) or type(self.root).__name__
        return f"{type(self.root_module).__name__}.{self._method or entry}"

    def function(self, module: nn.Module | None, entry: str) -> Callable[..., Any]:
        """The function of an entry point: the method of this module, or the program itself where that is none."""
        if module is None or (self._reached is not None and module is self.root_module):
            return self.root
        if self._reached is not None:
            return self._reached.function_for(module)
        return getattr(module, self._method or entry)  # type: ignore[no-any-return]

    def signature(self, entry: str) -> inspect.Signature:
        """The signature of an entry point, without `self`. Raises CaptureError for what tells none, and coroutines."""
        function: Any = self.function(self.root_module, entry)
        if inspect.iscoroutinefunction(function):
            raise CaptureError(
                f"{self.name(entry)} is a coroutine: a call of it runs nothing yet",
                fix="capture a function that runs it: lambda x: asyncio.run(f(x))",
            )
        try:
            return inspect.signature(_forward_given(function))
        except (TypeError, ValueError):
            name = torch.overrides.resolve_name(function) or self.name(entry)
            raise CaptureError(
                f"{name} tells no signature: it is written in C",
                fix=f"wrap it: trace(lambda x: {name if '.' in name else 'function'}(x), args)",
            ) from None

    def entry(self, name: str, graph: Graph) -> Entry:
        """Make an entry point of its graph, whose parameters get the annotations of the program's."""
        annotate(graph, self.function(self.root_module, name))
        return Entry(name, graph, self.signature(name))

    def origin(self, entry: str, statement: int) -> Origin | None:
        """Where the program is written, if it is in Python; for a statement that it does not have."""
        function: Any = self.function(self.root_module, entry)
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is None:
            return None
        return Origin(
            code.co_filename, code.co_firstlineno, qualname_of(code), "", statement, module_type=type(self.root_module)
        )

    def module_of(self, entries: list[Entry]) -> GraphModule:
        """Make the captured module."""
        if self._reached is not None and not self._reached.keep_what_is_used(entry.graph for entry in entries):
            self.root_module = self._reached = None
        if self.root_module is not None and entries[0].name != "forward":
            where = self.name("forward")
            entries = [Entry("forward", _not_captured(self.signature("forward"), where)), *entries]
        name = self.name("forward").partition(".")[0]
        is_instance = not self._method and self._reached is None
        return captured_module(self.root_module, entries, name, is_instance)


def _not_captured(signature: inspect.Signature, where: str) -> Graph:
    """The graph of a method that was not among those to capture."""
    graph = Graph()
    for parameter in signature.parameters.values():
        placeholder_of(graph, parameter)
    graph.call_function(refuse_call, (where,))
    graph.output(None)
    return graph


_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def placeholder_of(graph: Graph, parameter: inspect.Parameter) -> Node:
    """Make the placeholder of a parameter."""
    default = () if parameter.default is parameter.empty else (parameter.default,)
    name = parameter.name
    node = graph.create_node("placeholder", _STARS.get(parameter.kind, "") + name, default, {}, name)
    if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_ONLY):
        node.meta["parameter_kind"] = parameter.kind
    return node


# ---- names of inputs


def check_names(
    static: frozenset[str],
    dynamic: frozenset[str],
    inputs: list[tuple[inspect.Signature, list[tuple[tuple[Any, ...], dict[str, Any]]]]],
    root: nn.Module | None = None,
) -> None:
    """Raise CaptureError for names of inputs that no example has, and for those of `dynamic` that cannot be.

    `self.layers.0.scale` is an attribute of a module of `root`, a number or truth.
    """
    for name in sorted(name for name in dynamic if name.startswith("self.")):
        if type(_attribute(root, name.removeprefix("self."))) not in (bool, int, float):
            raise CaptureError(
                f"dynamic names {name!r}, which is no number or bool that a module has",
                fix="name it by its path in the model: dynamic=['self.layers.0.scale']",
            )
    dynamic = frozenset(name for name in dynamic if not name.startswith("self."))
    if not (static or dynamic):
        return
    known: dict[str, Any] = {}
    for signature, examples in inputs:
        for args, kwargs in examples:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return  # the capture says so
            bound.apply_defaults()
            for name, value in bound.arguments.items():
                is_extra = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
                known.update(_paths(name, value, signature.parameters if is_extra else None))
    for option, names in (("static", static), ("dynamic", dynamic)):
        unknown = sorted(map(str, names - known.keys()))
        if unknown:
            raise CaptureError(
                f"{option} names {', '.join(map(repr, unknown))}, which is no input of the program",
                fix=f"name one of its inputs: {did_you_mean(unknown[0], known, _MOST)}",
            )
    for name in sorted(dynamic):
        if not isinstance(known[name], bool | int | float | tuple | list | dict | torch.Tensor):
            raise CaptureError(
                f"dynamic names {name!r}, which is {known[name]!r}: only bools can stay open that are not open anyway",
                fix="leave it out, and pass an example for each value: examples=[...]",
            )


def _attribute(root: nn.Module | None, path: str) -> Any:
    """A plain attribute of a module of the program, None for what is none."""
    *owners, name = path.split(".")
    value: Any = root
    for owner in owners:
        value = getattr(value, "_modules", {}).get(owner)
    return None if value is None else value.__dict__.get(name)


def _paths(name: str, value: Any, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What an input and all that it holds are called."""
    found = {name: value}
    for key, item in held_by(value):
        found.update(_paths(path_to(name, key, parameters), item))
    return found


def held_by(value: Any) -> list[tuple[Any, Any]]:
    """What a container among the inputs holds, by key, place or field."""
    held = parts(value)
    if held is None:
        held = attributes_of(value) if is_object(value) else {}
    return list(held.items())


def _forward_given(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a program takes is what its `forward` takes, where it is a module that is given some arguments already."""
    module = function.func if isinstance(function, functools.partial) else None
    if not isinstance(module, nn.Module) or type(module).__call__ is not nn.Module.__call__:
        return function
    return functools.partial(module.forward, *function.args, **function.keywords)  # type: ignore[attr-defined]


def path_to(path: str, key: Any, parameters: Mapping[str, Any] | None = None) -> str:
    """What something inside an input is called; `**kwargs` (it comes with the `parameters`) are inputs themselves."""
    return key if parameters is not None and key not in parameters else f"{path}_{key}"


_MOST = 12  # names that a message lists
