"""The inputs of a symbolically traced program: placeholders, and what `concrete_args` specializes.

A parameter with a structure among `concrete_args` gets a placeholder per leaf of the structure (`x_1`, `x_2`, ...).
Where there is such a structure, the program takes and returns leaves, and the graph's code flattens its arguments.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils import _pytree as pytree

from graphwright.capture.proxies.recording import trace_error_and
from graphwright.codegen import PyTreeCodeGen, PyTreeInfo
from graphwright.errors import TraceError
from graphwright.ir import Graph, Node, Target
from graphwright.source import annotations_of

_CHECKED = (bool, int, float, str, complex, torch.dtype, torch.device, torch.memory_format, torch.layout)


class PHBase:
    """A value of `concrete_args` that stays an input: what `PH` is an instance of."""

    def __repr__(self) -> str:
        return "PH"


class PHWithMeta(PHBase):
    """A `PH` whose attributes the node of its placeholder gets; `ph_key` says what the input is for."""

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key


PH = PHBase()


def _assert_is_none(value: object, msg: str) -> None:
    """Check that a parameter that was specialized to None is None."""
    if value is not None:
        raise AssertionError(msg)


assert_is_none = _assert_is_none


class _InputTracer(Protocol):
    """What making the inputs asks of the tracer."""

    graph: Graph
    traced_module: Any
    _root_signature: tuple[Any, inspect.Signature] | None

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: object = None,
    ) -> Any: ...

    def _proxy_placeholder(
        self,
        name: str,
        concrete_args: Mapping[str, Any] | None,
        sig: inspect.Signature | None,
        fn_for_analysis: Callable[..., Any],
    ) -> Any: ...


def make_inputs(
    tracer: _InputTracer,
    root_fn: Callable[..., Any],
    is_module: bool,
    concrete_args: Mapping[str, Any] | tuple[Any, ...] | None,
) -> tuple[Callable[..., Any], list[Any]]:
    """Make the placeholders of a program; return a function and the arguments to call it with, by position."""
    analyzed = inspect.unwrap(root_fn)
    parameters = list(_signature(tracer, analyzed).parameters.values())
    args: list[Any] = []
    if is_module:
        if not parameters or parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
            raise trace_error_and(RuntimeError)(
                "``self`` argument cannot be part of *args expansion!", fix="write forward(self, *args)"
            )
        parameters = parameters[1:]
        args.append(tracer.traced_module)
    plain = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    variadic = [each for each in parameters if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    more: tuple[Any, ...] = ()  # what `concrete_args` has for `*args`
    if isinstance(concrete_args, tuple):
        if [each.kind for each in parameters[len(plain) :]] == [inspect.Parameter.VAR_POSITIONAL]:
            concrete_args, more = concrete_args[: len(plain)], concrete_args[len(plain) :]
        if len(concrete_args) != len(plain):
            raise RuntimeError(
                f"Tracing expected {len(plain)} arguments but got {len(concrete_args)} concrete arguments"
            )
        concrete_args = {parameter.name: value for parameter, value in zip(plain, concrete_args, strict=True)}
    unknown = [name for name in concrete_args or () if all(name != each.name for each in plain)]
    if unknown:
        raise TraceError(
            f"concrete_args names {unknown}, which the program does not take",
            fix=f"its parameters are {[parameter.name for parameter in plain]}",
        )
    for parameter in plain:
        args.append(tracer._proxy_placeholder(parameter.name, concrete_args, _signature(tracer, analyzed), analyzed))
    keyword_only = [each.name for each in plain if each.kind is each.KEYWORD_ONLY]
    if more:
        args += _specialized(tracer, variadic[0].name, (), more)
    elif variadic or keyword_only:
        if variadic:
            for parameter in variadic:
                stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
                args.append(tracer._proxy_placeholder(stars + parameter.name, None, None, analyzed))
            root_fn = without_stars(root_fn)
        else:
            root_fn = by_keyword(root_fn, keyword_only)
    if not concrete_args:
        return root_fn, args
    return _on_leaves(tracer, root_fn, args, [*(["self"] if is_module else []), *(each.name for each in plain)])


def _on_leaves(
    tracer: _InputTracer, function: Callable[..., Any], args: list[Any], names: list[str]
) -> tuple[Callable[..., Any], list[Any]]:
    """Where an argument has a structure: the program as a function of leaves that returns leaves, and the leaves."""
    leaves, in_spec = pytree.tree_flatten(tuple(args))
    if all(pytree.tree_structure(arg).is_leaf() for arg in args):
        return function, args
    if len(names) < len(args):
        raise TraceError(
            "concrete_args with lists, tuples or dicts are not possible for a program that takes *args or **kwargs",
            fix="give it a wrapper with plain parameters",
        )
    codegen = PyTreeCodeGen(PyTreeInfo(names, in_spec, None))

    def on_leaves(*values: Any) -> Any:
        result = function(*pytree.tree_unflatten(list(values), in_spec))
        made, out_spec = pytree.tree_flatten(result)
        codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
        tracer.graph.set_codegen(codegen)  # type: ignore[attr-defined]
        return made

    return on_leaves, leaves


def _signature(tracer: _InputTracer, function: Callable[..., Any]) -> inspect.Signature:
    known = tracer._root_signature
    if known is None or known[0] is not function:
        is_torch = inspect.isbuiltin(function) and str(function.__module__).partition(".")[0] == "torch"
        if is_torch or inspect.ismethoddescriptor(function):  # of a class written in C: some tell since Python 3.13
            raise not_a_function(function)
        try:
            known = tracer._root_signature = (function, inspect.signature(function))
        except ValueError:  # written in C
            raise not_a_function(function) from None
    return known[1]


def placeholder_for(
    tracer: _InputTracer,
    name: str,
    concrete_args: Mapping[str, Any] | None,
    signature: inspect.Signature | None,
    function: Callable[..., Any],
) -> Any:
    """Make the placeholder of one parameter; answer with its proxy, or with the value it is specialized to."""
    if name[0] == "*":
        return tracer.create_proxy("placeholder", name, (), {}, type_expr=None)
    assert signature is not None
    parameter = signature.parameters[name]
    default = () if parameter.default is parameter.empty else (parameter.default,)
    if concrete_args is not None and name in concrete_args:
        return _specialized(tracer, name, default, concrete_args[name])
    proxy = tracer.create_proxy("placeholder", name, default, {}, type_expr=annotations_of(function).get(name))
    if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_ONLY):
        proxy.node.meta["parameter_kind"] = parameter.kind
    return proxy


def _specialized(tracer: _InputTracer, name: str, default: tuple[Any, ...], structure: Any) -> Any:
    """A placeholder per leaf of a structure, and a check per value that the program is specialized to."""
    number = 0

    def leaf(value: Any) -> Any:
        nonlocal number
        number += 1
        proxy = tracer.create_proxy("placeholder", f"{name}_{number}", default, {})
        if isinstance(value, PHBase):
            _note_attributes(value, proxy.node)
            return proxy
        message = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            tracer.create_proxy("call_function", assert_is_none, (proxy, message), {})
        elif isinstance(value, _CHECKED):
            torch._assert(operator.eq(proxy, value), message)
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up "
                "to the user to make sure that your inputs match the inputs you specialized the function with.",
                stacklevel=2,
            )
        return value

    return pytree.tree_map(leaf, structure)


def _note_attributes(value: PHBase, node: Node) -> None:
    """Give the node of an input what its `PH` has; what the tracer has given it already stays."""
    for name in dir(value):
        known = getattr(value, name)
        if not name.startswith("__") and not callable(known) and not hasattr(node, name):
            setattr(node, name, known)


def not_a_function(root: nn.Module | Callable[..., Any]) -> TraceError:
    """The error for what has no Python signature that could tell its inputs."""
    is_class = issubclass(type(root), type)
    return trace_error_and(AssertionError)(
        f"Expected FunctionType, got {root if is_class else type(root)}",
        fix=f"make one: {root.__name__}(...)"
        if is_class
        else "pass an nn.Module or a Python function, such as a lambda that calls it",
    )


def by_keyword(function: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    """The same function, taking its keyword-only parameters by position, last."""

    def call(*args: Any) -> Any:
        return function(*args[: -len(names)], **dict(zip(names, args[-len(names) :], strict=True)))

    return call


def without_stars(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function taking all its parameters by position, one value each for `*args` and `**kwargs`.

    So that these two can be proxies: which arguments there will be is known only when the program runs.
    """
    if inspect.ismethod(function):
        inner, owner = without_stars(function.__func__), function.__self__
        return lambda *args: inner(owner, *args)
    if not isinstance(function, FunctionType):
        raise not_a_function(function)
    code = function.__code__
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    plain = code.replace(
        co_argcount=code.co_argcount + code.co_kwonlyargcount + stars,
        co_kwonlyargcount=0,
        co_posonlyargcount=0,
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
    )
    return FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)
