"""Symbolic tracing: running a program on proxies, without example values.

`TracerBase` records operations into a graph and answers, or refuses, what Python asks of proxies; `Tracer` adds
modules: parameters become get_attr nodes, calls of leaf modules become call_module nodes, other modules are
traced through.
"""

from __future__ import annotations

import enum
import functools
import inspect
import opcode
import operator
import sys
import typing
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, FunctionType, MethodType
from typing import Any, NoReturn

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, is_tensor_method_or_property

from graphwright.capture.origins import CallSite, Scope, user_frame
from graphwright.capture.proxy import Attribute, Proxy, find_tracer
from graphwright.capture.wrap import install_pending
from graphwright.errors import TraceError
from graphwright.ir import ATOMS, Argument, Graph, Node, Target, candidate_for
from graphwright.ops import RANDOM_FUNCTIONS
from graphwright.runtime import Shells, expect

__all__ = ["GraphAppendingTracer", "Tracer", "TracerBase"]

_UNPACK = opcode.opmap["UNPACK_SEQUENCE"]
_LEAVES = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Generator, range, enum.Enum)
_NO_TENSORS = frozenset({bool, int, float, str, type(None), tuple, list, dict, OrderedDict})
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_RECORDING_HOOKS = ("create_arg", "create_node", "create_proxy", "proxy")
_CALLING_HOOKS = ("call_module", "path_of_module")
_is_method: dict[Any, bool] = {}


def _is_overridden(tracer: type[TracerBase], method: str) -> bool:
    """Tell whether a tracer's method is another than this file's."""
    return getattr(getattr(tracer, method, None), "__module__", __name__) != __name__


class TracerBase:
    """Records operations on proxies as nodes of `graph`; override a method to change what is recorded.

    `create_arg` turns the user's values into arguments of nodes, `create_node` makes the node, `proxy` its proxy,
    and `create_proxy` does the three together. `to_bool`, `iter`, `keys`, `len` and `contains` are asked when Python
    needs a value that only a run has.
    """

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False

    def __init__(self) -> None:
        self._scope = Scope("", type(None), 0, None)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Operators and calls record directly where nobody overrides what they would pass through.
        cls._is_direct = not any(_is_overridden(cls, hook) for hook in _RECORDING_HOOKS)
        cls._calls_directly = cls._is_direct and not any(_is_overridden(cls, hook) for hook in _CALLING_HOOKS)

    _is_direct = True
    _calls_directly = True

    # ---- recording

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Make a node from arguments that `create_arg` made, with the place in the user's program it comes from."""
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        frame = user_frame(sys._getframe(1))
        if frame is not None:
            node._origin = CallSite(frame.f_code, frame.f_lasti, self._scope)
            if self.record_stack_traces:
                node.stack_trace = _stack_text(frame)
        return node

    def proxy(self, node: Node) -> Proxy:
        """Make the proxy of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Record one operation on the user's values and return the proxy of its result."""
        create_arg = self.create_arg
        node = self.create_node(
            kind,
            target,
            tuple([arg if type(arg) in ATOMS else create_arg(arg) for arg in args]),
            {key: create_arg(arg) for key, arg in kwargs.items()} if kwargs else {},
            name,
            type_expr,
        )
        return proxy_factory_fn(node) if proxy_factory_fn is not None else self.proxy(node)

    def record(self, function: Callable[..., Any], args: tuple[Any, ...], name: str | None = None) -> Proxy:
        """Record a function of few, mostly plain arguments: what Python's operators on proxies call."""
        if not self._is_direct:
            return self.create_proxy("call_function", function, args, {}, name)
        return self._direct("call_function", function, args, None, name)

    def record_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """Record a call of a method of the first argument."""
        if not self._is_direct:
            return self.create_proxy("call_method", name, args, kwargs)
        return self._direct("call_method", name, args, kwargs, None)

    def _direct(
        self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any] | None, name: str | None
    ) -> Proxy:
        """`create_proxy` in one frame, for tracers that override none of its steps."""
        nodes = []
        for arg in args:
            if type(arg) is Proxy:
                nodes.append(arg.node)
            elif type(arg) in ATOMS:
                nodes.append(arg)
            else:
                nodes.append(self.create_arg(arg))
        if kwargs:
            kwargs = {key: arg if type(arg) in ATOMS else self.create_arg(arg) for key, arg in kwargs.items()}
        node = self.graph.create_node(kind, target, tuple(nodes), kwargs, name)
        frame = user_frame(sys._getframe(2))
        if frame is not None:
            node._origin = CallSite(frame.f_code, frame.f_lasti, self._scope)
            if self.record_stack_traces:
                node.stack_trace = _stack_text(frame)
        return Proxy(node, self)

    def torch_function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a torch function, or a method of `torch.Tensor`, that was called with a proxy among its arguments."""
        is_method = _is_method.get(function)
        if is_method is None:
            is_method = _is_method[function] = is_tensor_method_or_property(function)
        if is_method:
            return self.record_method(function.__name__, args, kwargs)
        if not self._is_direct:
            return self.create_proxy("call_function", function, args, kwargs)
        return self._direct("call_function", function, args, kwargs, None)

    def create_arg(self, a: Any) -> Argument:
        """Turn a value of the user's program into an argument of a node.

        Proxies become their nodes, containers are rebuilt, an object with `__fx_create_arg__` decides itself. Raises
        NotImplementedError for what cannot be written into a graph.
        """
        kind = type(a)
        if kind in ATOMS:
            return a
        if isinstance(a, Proxy):
            return a.node
        if kind is tuple:
            return tuple([self.create_arg(item) for item in a])
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, (*_LEAVES, int, float, str, complex)):
            return a
        if hasattr(kind, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple) and hasattr(kind, "_fields"):
            return kind(*[self.create_arg(item) for item in a])
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(item) for key, item in a.items()}
        if isinstance(a, Node):
            return a
        if hasattr(kind, "__dataclass_fields__") and not isinstance(a, type):
            fields = {name: self.create_arg(getattr(a, name)) for name in kind.__dataclass_fields__}
            return self.create_node("call_function", kind, (), fields)
        if (callable(a) and getattr(a, "__name__", None)) or isinstance(a, type):
            return a
        raise NotImplementedError(f"argument of type: {kind}")

    def _key(self, key: Any) -> Any:
        if isinstance(self.create_arg(key), Node):
            raise TraceError(
                f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}", at=self._here()
            )
        return key

    # ---- what Python asks of a proxy

    def to_bool(self, obj: Proxy) -> bool:
        """Answer `bool(proxy)`: asked by if, while, assert, and, or, not."""
        self._refuse(
            "symbolically traced variables cannot be used as inputs to control flow",
            "use torch.where, make the condition a concrete_args value, or capture with graphwright.trace(model, args)",
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Answer `iter(proxy)`. Unpacking into a known number of variables gives so many items; else refused."""
        frame = sys._getframe(2)  # whoever iterates: its current instruction tells why
        code = frame.f_code.co_code
        if code[frame.f_lasti] != _UNPACK:
            self._refuse(
                "Proxy object cannot be iterated: how many items it has is known only when the program runs",
                "index it, unpack it into variables, or capture with graphwright.trace(model, args)",
            )
        return (obj[i] for i in range(code[frame.f_lasti + 1]))

    def keys(self, obj: Proxy) -> Any:
        """Answer `**proxy`."""
        return Attribute(obj, "keys")()

    def len(self, obj: Proxy) -> int:
        """Answer `len(proxy)`."""
        self._refuse(
            "'len' is not supported in symbolic tracing by default: the length is known only when the program runs",
            "record the call with graphwright.wrap('len') at module scope, or capture with "
            "graphwright.trace(model, args)",
            RuntimeError,
        )

    def contains(self, obj: Proxy, item: Any) -> bool:
        """Answer `item in proxy`."""
        self._refuse("Proxy object cannot be iterated, as 'in' asks for: its items are known only when it runs",
                     "capture with graphwright.trace(model, args)")  # fmt: skip

    def number(self, obj: Proxy, what: str) -> NoReturn:
        """Answer C code that wants a number."""
        self._refuse(
            f"'Proxy' object cannot give {what}: its value is known only when the program runs",
            "record the calling function with graphwright.wrap, or capture with graphwright.trace(model, args)",
            TypeError,
        )

    def _refuse(self, message: str, fix: str, also: type[Exception] | None = None) -> NoReturn:
        kind = TraceError if also is None else _trace_error_and(also)
        raise kind(message, at=self._here(), fix=fix)

    def _here(self) -> str | None:
        frame = user_frame(sys._getframe(1))
        return None if frame is None else str(CallSite(frame.f_code, frame.f_lasti, self._scope))


class GraphAppendingTracer(TracerBase):
    """Records into a graph that exists: `Proxy(node, GraphAppendingTracer(graph))` writes graphs as expressions."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


class Tracer(TracerBase):
    """Captures modules and functions symbolically. One tracer captures one program at a time.

    >>> class Twice(nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(x) + x
    >>> print(Tracer().trace(Twice()))
    graph():
        %x : [num_users=2] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        %add : [num_users=1] = call_function[target=operator.add](args = (%relu, %x), kwargs = {})
        return add
    """

    def __init__(self) -> None:
        super().__init__()
        self.root: nn.Module = nn.Module()
        self._shells: Shells | None = None
        self._calls: dict[str, int] = {}
        self._parameter_paths: dict[int, str] | None = None  # id -> path, made at first need
        self._tensor_paths: dict[int, str] | None = None  # the same for buffers and plain attributes
        self.parameter_proxy_cache: dict[str, Proxy] = {}

    # ---- decisions to override

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Tell whether calls of a module are recorded as one node. Default: torch.nn's own, but not Sequential."""
        home = type(m).__module__
        return home.startswith(("torch.nn", "torch.ao.nn")) and not isinstance(m, nn.Sequential)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record the call of a leaf module, or run `forward` to trace through any other."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def path_of_module(self, mod: nn.Module) -> str:
        """Return the dotted path of a module. Raises NameError for one that is not below the captured root."""
        path = None if self._shells is None else self._shells.path(mod)
        if path is None:
            raise NameError(f"module is not installed as a submodule: a {type(mod).__name__} outside the traced root")
        return path

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Answer the read of a parameter, or of a buffer where `proxy_buffer_attributes`, during capture."""
        is_proxied = isinstance(attr_val, nn.Parameter) or (
            self.proxy_buffer_attributes and isinstance(attr_val, torch.Tensor)
        )
        path = self._path_of_tensor(attr_val) if is_proxied else None
        if path is None:
            return attr_val
        if path not in parameter_proxy_cache:
            parameter_proxy_cache[path] = self.create_proxy("get_attr", path, (), {})
        return parameter_proxy_cache[path]

    # ---- capture

    def trace(self, root: nn.Module | Callable[..., Any], concrete_args: Mapping[str, Any] | None = None) -> Graph:
        """Run a module or function on proxies and return the graph of what it did.

        `concrete_args` gives values of parameters by name; the program is specialized to them, and checks them when
        it runs. Raises TraceError where the program asks for a value that only a run has. The module is not
        changed, whatever happens.
        """
        if isinstance(root, nn.Module):
            self.root = root
            self._shells = Shells(root, self._call, self._prepare)
            shell = self._shells.root
            forward = type(root).forward if "forward" not in root.__dict__ else root.__dict__["forward"]
            function = shell.forward
            if root._forward_hooks or root._forward_pre_hooks:

                def function(*args: Any, **kwargs: Any) -> Any:
                    return nn.Module._call_impl(shell, *args, **kwargs)

            signature = inspect.signature(shell.forward)
        elif callable(root):
            self.root = nn.Module()
            forward = function = root
            signature = inspect.signature(root)
        else:
            raise TypeError(f"trace(root): {type(root).__name__} is neither an nn.Module nor callable")
        self.graph = Graph(tracer_cls=type(self))
        self._scope = Scope("", type(root), 0, None)
        self._calls, self._parameter_paths, self._tensor_paths, self.parameter_proxy_cache = {}, None, None, {}
        install_pending()
        annotations = _annotations(forward)
        try:
            args, kwargs = self.create_args_for_root(signature, annotations, dict(concrete_args or {}))
            if any(parameter.kind in _VARIADIC for parameter in signature.parameters.values()):
                function, args, kwargs = without_stars(function), [*args, *kwargs.values()], {}
            with _RandomMode(self):
                result = function(*args, **kwargs)
            returns = annotations.get("return")
            self.create_node("output", "output", (self.create_arg(result),), {}, None, returns)
        finally:
            self._shells = None
        return self.graph

    def create_args_for_root(
        self, signature: inspect.Signature, annotations: Mapping[str, Any], concrete_args: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Make the placeholders of a signature; return what to call the program with.

        What stands for all of `*args` and `**kwargs` comes last among the keyword arguments, as "*" and "**".
        """
        unknown = set(concrete_args) - set(signature.parameters)
        if unknown:
            raise TraceError(f"concrete_args names {sorted(unknown)}, which the program does not take",
                             fix=f"its parameters are {list(signature.parameters)}")  # fmt: skip
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        variadic: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            if parameter.kind in _VARIADIC:
                variadic.append(parameter)
                continue
            value = self._input(parameter, annotations.get(name), concrete_args)
            if parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        for parameter in variadic:
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            kwargs[stars] = self.create_proxy(
                "placeholder", stars + parameter.name, (), {}, "_" + candidate_for(parameter.name)
            )
        return args, kwargs

    def _input(self, parameter: inspect.Parameter, annotation: Any, concrete_args: dict[str, Any]) -> Any:
        """Make one placeholder; answer with its proxy, or with the value the program is specialized to."""
        default = () if parameter.default is parameter.empty else (parameter.default,)
        name = parameter.name
        if name not in concrete_args:
            proxy = self.create_proxy("placeholder", name, default, {}, None, annotation)
            if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_ONLY):
                proxy.node.meta["parameter_kind"] = parameter.kind
            return proxy
        value = concrete_args[name]
        proxy = self.create_proxy("placeholder", name, default, {}, f"{name}_1", annotation)
        message = f"{name} has been specialized to have value {value} but got another value"
        if value is None or isinstance(value, bool | int | float | str):
            torch._assert(operator.eq(proxy, value) if value is not None else _is_none(proxy), message)
        return value

    def _call(self, module: nn.Module, shell: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """What runs instead of a module's `__call__` during capture."""
        shells = self._shells
        if shells is None:  # a shell that outlived its capture: an ordinary module
            return nn.Module._call_impl(shell, *args, **kwargs)
        path = shells.path(module) or ""
        outer = self._scope
        call = self._calls.get(path, 0)
        self._calls[path] = call + 1
        self._scope = Scope(path, type(module), call, outer)
        try:
            if not self._calls_directly:
                return self.call_module(module, functools.partial(nn.Module._call_impl, shell), args, kwargs)
            if self.is_leaf_module(module, path):  # `call_module` in this frame, where nobody overrides it
                return self._direct("call_module", path, args, kwargs, None)
            return nn.Module._call_impl(shell, *args, **kwargs)
        finally:
            self._scope = outer

    def _prepare(self, module: nn.Module, shell: nn.Module, path: str) -> None:
        """Make parameter reads and the training flag of a shell part of the program."""
        prefix = f"{path}." if path else ""
        state = shell.__dict__
        if state["_parameters"]:
            state["_parameters"] = _Watched(self, prefix, state["_parameters"])
        if self.proxy_buffer_attributes and state["_buffers"]:
            state["_buffers"] = _Watched(self, prefix, state["_buffers"])
        state["training"] = TrainingFlag(self, prefix, module.training)

    # ---- arguments

    def create_arg(self, a: Any) -> Argument:
        """As `TracerBase.create_arg`; parameters, buffers, other tensors and modules are read by get_attr."""
        if isinstance(a, torch.Tensor):
            path = self._path_of_tensor(a)
            if path is None:
                if isinstance(a, nn.Parameter):
                    raise NameError(f"parameter is not a member of this module: shape {tuple(a.shape)}")
                path = self._constant(a)
            return self.create_node("get_attr", path, (), {})
        if isinstance(a, nn.Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super().create_arg(a)

    def _path_of_tensor(self, tensor: torch.Tensor) -> str | None:
        """The dotted path under which the root holds a tensor: as parameter, else as buffer or plain attribute."""
        if self._parameter_paths is None:
            self._parameter_paths = self._tensors_in("_parameters")
        path = self._parameter_paths.get(id(tensor))
        if path is None and not isinstance(tensor, nn.Parameter):
            if self._tensor_paths is None:
                self._tensor_paths = {**self._tensors_in("__dict__"), **self._tensors_in("_buffers")}
            path = self._tensor_paths.get(id(tensor))
        return path

    def _tensors_in(self, table: str) -> dict[int, str]:
        """Map id -> path for the tensors in one table of every module below the root, the first path of each."""
        paths: dict[int, str] = {}
        for module, _ in self._shells.all() if self._shells is not None else ():
            held = module.__dict__ if table == "__dict__" else module.__dict__[table]
            for name, value in held.items():
                if type(value) not in _NO_TENSORS and isinstance(value, torch.Tensor) and id(value) not in paths:
                    path = self.path_of_module(module)
                    paths[id(value)] = f"{path}.{name}" if path else name
        return paths

    def _constant(self, tensor: torch.Tensor) -> str:
        """Keep a tensor that no module has, and return the name it is read by."""
        constants = self.graph.constants
        for name, known in constants.items():
            if known is tensor:
                return name
        number = 0
        while f"_tensor_constant{number}" in constants or hasattr(self.root, f"_tensor_constant{number}"):
            number += 1
        constants[f"_tensor_constant{number}"] = tensor
        return f"_tensor_constant{number}"


class TrainingFlag(Proxy):
    """The `training` flag of a module during capture: passed on it stays live, asked about it is guarded."""

    def __init__(self, tracer: Tracer, prefix: str, value: bool) -> None:
        self.tracer = tracer
        self._prefix = prefix
        self._value = value
        self._node: Node | None = None
        self._guarded = False

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the flag of the captured module when it runs."""
        if self._node is None:
            self._node = self.tracer.create_node("get_attr", f"{self._prefix}training", (), {})
        return self._node

    def __bool__(self) -> bool:
        if not self._guarded:
            self._guarded = True
            where = self.tracer._here() or self.node.name
            self.tracer.create_node("call_function", expect, (self.node, self._value, where), {})
        return self._value


class _Watched(dict):  # type: ignore[type-arg]
    """A shell's `_parameters`: reading one by name goes through the tracer, iterating does not."""

    def __init__(self, tracer: Tracer, prefix: str, table: dict[str, Any]) -> None:
        super().__init__(table)
        self._tracer = tracer
        self._prefix = prefix

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        tracer = self._tracer
        if value is None or tracer._shells is None:
            return value
        return tracer.getattr(self._prefix + name, value, tracer.parameter_proxy_cache)


class _RandomMode(TorchFunctionMode):
    """Records random functions called without proxies: their result is fresh at every run, not one draw for ever."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not types:  # nothing but this mode asked: torch.einsum unpacks a list of proxies, and then asks them
            tracer = None
        else:
            tracer = find_tracer(args, kwargs)
        if tracer is not None:
            return tracer.torch_function(function, args, kwargs or {})
        if function in RANDOM_FUNCTIONS:
            return self._tracer.torch_function(function, args, kwargs or {})
        return function(*args, **(kwargs or {}))


def without_stars(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function taking all its parameters by position, one value each for `*args` and `**kwargs`.

    So that these two can be proxies: which arguments there will be is known only when the program runs.
    """
    if isinstance(function, MethodType):
        return functools.partial(without_stars(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        raise TraceError(
            f"cannot trace the variadic parameters of a {type(function).__name__}",
            fix="pass a function or an nn.Module, or capture with graphwright.trace(root, args)",
        )
    code = function.__code__
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    plain = code.replace(
        co_argcount=code.co_argcount + code.co_kwonlyargcount + stars,
        co_kwonlyargcount=0,
        co_posonlyargcount=0,
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
    )
    return FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)


def _is_none(value: Any) -> Any:
    return value.tracer.create_proxy("call_function", _same_object, (value, None), {})


def _same_object(value: Any, other: Any) -> bool:
    return value is other


def _annotations(function: Any) -> dict[str, Any]:
    """The annotations of a function, evaluated where they are strings; those that cannot be are left out."""
    function = inspect.unwrap(function)
    raw = getattr(function, "__annotations__", None) or {}
    if not any(isinstance(value, str) for value in raw.values()):
        return dict(raw)
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that exists only for type checkers
        return {name: value for name, value in raw.items() if not isinstance(value, str)}


def _stack_text(frame: FrameType) -> str:
    import traceback

    return "".join(traceback.format_stack(frame)).strip()


def _trace_error_and(also: type[Exception]) -> type[TraceError]:
    """A TraceError that is also what eager code would raise, for programs and tests that catch that."""
    return _COMBINED[also]


_COMBINED: dict[type[Exception], type[TraceError]] = {
    also: type("TraceError", (TraceError, also), {"__doc__": TraceError.__doc__, "__module__": TraceError.__module__})
    for also in (RuntimeError, TypeError)
}
