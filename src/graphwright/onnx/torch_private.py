"""All that this room takes of torch without a promise that it stays: operators that hold graphs, and what ONNX gets.

Operators stand for branches and loops while torch.export watches. Their bodies are functions of what they are given;
torch.export traces each into a graph of its own, and torch.onnx is told how to write them. Everything else that this
room calls of torch is public.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx_ir as ir
import sympy  # type: ignore[import-untyped]
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.interop import quietly

# The releases of torch whose private names are as this file expects: the tests ran with each of them.
SUPPORTED = ("2.13", "2.14", "2.15")

RELEASE = ".".join(re.findall(r"\d+", torch.__version__)[:2])


def check_release(release: str = RELEASE) -> None:
    """Raise ExportError where torch is of a release that this room has not been tested with.

    >>> check_release("2.1")
    Traceback (most recent call last):
    graphwright.errors.ExportError: graphwright.onnx is tested with torch 2.13, 2.14, 2.15, and this is torch 2.1
      fix: install one of these releases of torch
    """
    if release not in SUPPORTED:
        raise ExportError(
            f"graphwright.onnx is tested with torch {', '.join(SUPPORTED)}, and this is torch {release}",
            fix="install one of these releases of torch",
        )


check_release()

# ruff: noqa: E402
from torch._C import DispatchKey, _len_torch_function_stack
from torch._higher_order_ops.utils import reenter_make_fx, unique_graph_id
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    make_fx,
    track_tensor_tree,
)
from torch.onnx._internal.exporter import _core
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._sympy.printers import PythonPrinter

Body = Callable[..., Sequence[torch.Tensor]]


class _If(HigherOrderOperator):
    """`if_operator(pred, true, false, operands, sizes)`: the tensors of one of two bodies, functions of the operands.

    `sizes` has for each of them the sizes that both have whatever their bodies look like, None where that is not known.
    """

    def __init__(self) -> None:
        super().__init__("graphwright_if")  # type: ignore[no-untyped-call]

    def __call__(
        self, pred: torch.Tensor, true: Body, false: Body, operands: Sequence[Any], sizes: Sequence[Any]
    ) -> tuple[torch.Tensor, ...]:
        return super().__call__(pred, true, false, tuple(operands), tuple(sizes))  # type: ignore[no-any-return, no-untyped-call]


class _Loop(HigherOrderOperator):
    """`loop_operator(body, trips, going, state, operands, ends)`: the last state, then what iterations gave, stacked.

    The body takes the number of the iteration, the state and the operands. It gives whether to go on, the next state
    and the tensors to stack. There are at most `trips` iterations, where that is no None, and none without `going`.
    `ends` says whether the body may ask for the end before these are over.
    """

    def __init__(self) -> None:
        super().__init__("graphwright_loop")  # type: ignore[no-untyped-call]

    def __call__(
        self,
        body: Body,
        trips: Any,
        going: torch.Tensor,
        state: Sequence[torch.Tensor],
        operands: Sequence[Any],
        ends: bool,
    ) -> tuple[torch.Tensor, ...]:
        return super().__call__(body, trips, going, tuple(state), tuple(operands), ends)  # type: ignore[no-any-return, no-untyped-call]


class _Recurrent(HigherOrderOperator):
    """`recurrent_operator(name, input, state, weights, options)`: `torch.gru` or `torch.lstm` of any length.

    torch.export would run each step on its own, as many as the example has.
    """

    def __init__(self) -> None:
        super().__init__("graphwright_recurrent")  # type: ignore[no-untyped-call]

    def __call__(
        self,
        name: str,
        input: torch.Tensor,
        state: Sequence[torch.Tensor],
        weights: Sequence[torch.Tensor],
        *options: Any,
    ) -> tuple[torch.Tensor, ...]:
        return super().__call__(name, input, tuple(state), tuple(weights), *options)  # type: ignore[no-any-return, no-untyped-call]


class _Call(HigherOrderOperator):
    """`call_operator(name, body, operands)`: the tensors of a body that is a function of the model's own."""

    def __init__(self) -> None:
        super().__init__("graphwright_call")  # type: ignore[no-untyped-call]

    def __call__(self, name: str, body: Body, operands: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        return super().__call__(name, body, tuple(operands))  # type: ignore[no-any-return, no-untyped-call]


if_operator, loop_operator, recurrent_operator, call_operator = _If(), _Loop(), _Recurrent(), _Call()


def _below_autograd(operator: HigherOrderOperator) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args)

    return call


for _operator in (if_operator, loop_operator, recurrent_operator, call_operator):
    _operator.py_autograd_impl(_below_autograd(_operator))


# ---- branches


@if_operator.py_impl(DispatchKey.CompositeExplicitAutograd)
def _run_if(pred: Any, true: Body, false: Body, operands: Sequence[Any], sizes: Any) -> Any:
    return (true if pred else false)(*operands)


@if_operator.py_functionalize_impl
def _functional_if(context: Any, pred: Any, true: Body, false: Body, operands: Sequence[Any], sizes: Any) -> Any:
    plain_pred, plain = context.unwrap_tensors((pred, operands))
    with context.redispatch_to_next():
        bodies = [context.functionalize(_run(body)) for body in (true, false)]
        return context.wrap_tensors(if_operator(plain_pred, bodies[0], bodies[1], plain, sizes))


@if_operator.py_impl(ProxyTorchDispatchMode)
def _trace_if(mode: Any, pred: Any, true: Body, false: Body, operands: Sequence[Any], sizes: Any) -> Any:
    bodies = [_traced(mode, body, operands) for body in (true, false)]
    return _recorded(mode, if_operator, (pred, *bodies, tuple(operands), sizes))


@if_operator.py_impl(FakeTensorMode)
def _fake_if(mode: Any, pred: Any, true: Body, false: Body, operands: Sequence[Any], sizes: Any) -> Any:
    with mode, mode.shape_env.ignore_fresh_unbacked_symbols():
        one, other = tuple(true(*operands)), tuple(false(*operands))
    with mode:
        known = [*sizes, *[None] * (len(one) - len(sizes))]
        return tuple([_either(mode, a, b, size) for a, b, size in zip(one, other, known, strict=True)])


# ---- loops


@loop_operator.py_impl(DispatchKey.CompositeExplicitAutograd)
def _run_loop(body: Body, trips: Any, going: Any, state: Sequence[Any], operands: Sequence[Any], ends: bool) -> Any:
    count, values, stacked = 0, tuple(state), []
    while going and (trips is None or count < trips):
        going, *given = body(torch.tensor(count), *values, *operands)
        values = tuple(given[: len(values)])
        stacked.append(given[len(values) :])
        count += 1
    return (*values, *[torch.stack(each) for each in zip(*stacked, strict=True)])


@loop_operator.py_functionalize_impl
def _functional_loop(
    context: Any, body: Body, trips: Any, going: Any, state: Sequence[Any], operands: Sequence[Any], ends: bool
) -> Any:
    plain_going, plain_state, plain = context.unwrap_tensors((going, state, operands))
    with context.redispatch_to_next():
        given = loop_operator(context.functionalize(_run(body)), trips, plain_going, plain_state, plain, ends)
        return context.wrap_tensors(given)


@loop_operator.py_impl(ProxyTorchDispatchMode)
def _trace_loop(
    mode: Any, body: Body, trips: Any, going: Any, state: Sequence[Any], operands: Sequence[Any], ends: bool
) -> Any:
    fake = _fake_mode(state, operands, going)
    with fake.shape_env.ignore_fresh_unbacked_symbols():
        (number, *values), _ = _settled(fake, body, state, operands)
        with fake:  # what starts as one tensor, or as an operand, goes on as another one
            own = [torch.empty(value.shape, dtype=value.dtype) for value in values[: len(state)]]
    inputs = (number, *own, *values[len(state) :])
    traced = _traced(mode, body, inputs)
    return _recorded(mode, loop_operator, (traced, trips, going, tuple(state), tuple(operands), ends))


@loop_operator.py_impl(FakeTensorMode)
def _fake_loop(
    mode: Any, body: Body, trips: Any, going: Any, state: Sequence[Any], operands: Sequence[Any], ends: bool
) -> Any:
    with mode.shape_env.ignore_fresh_unbacked_symbols():
        inputs, given = _settled(mode, body, state, operands)
    count = len(state)
    with mode:
        last = [_either(mode, a, b) for a, b in zip(state, inputs[1 : 1 + count], strict=True)]
        length: Any = trips if not ends else None
        if len(given) > 1 + count and length is None:
            length = mode.shape_env.create_unbacked_symint()
            torch._check(length >= 0)
        rows = [torch.empty((length, *_sizes(mode, each)), dtype=each.dtype) for each in given[1 + count :]]
    return (*last, *rows)


def _settled(
    mode: Any, body: Body, state: Sequence[torch.Tensor], operands: Sequence[Any]
) -> tuple[tuple[Any, ...], Sequence[torch.Tensor]]:
    """The inputs of a body whose sizes hold for every iteration, and what it gives for them.

    A size that an iteration changes is one that only a run knows.
    """
    with mode:
        number, values = torch.empty((), dtype=torch.int64), list(state)
        for _ in range(1 + sum(value.dim() for value in state)):
            given = body(number, *values, *operands)
            after = given[1 : 1 + len(values)]
            changed = [_free_where_unlike(mode, was, now) for was, now in zip(values, after, strict=True)]
            if all(now is was for now, was in zip(changed, values, strict=True)):
                break
            values = changed
        return (number, *values, *operands), given


def _free_where_unlike(mode: Any, was: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
    _check_alike(was, now, "a loop carries")
    sizes = [a if _same_size(a, b) else _fresh(mode) for a, b in zip(was.shape, now.shape, strict=True)]
    if all(a is b for a, b in zip(sizes, was.shape, strict=True)) or all(map(_same_size, sizes, was.shape)):
        return was
    return torch.empty(sizes, dtype=was.dtype)


# ---- functions


@call_operator.py_impl(DispatchKey.CompositeExplicitAutograd)
def _run_call(name: str, body: Body, operands: Sequence[Any]) -> Any:
    return tuple(body(*operands))


@call_operator.py_functionalize_impl
def _functional_call(context: Any, name: str, body: Body, operands: Sequence[Any]) -> Any:
    plain = context.unwrap_tensors(operands)
    with context.redispatch_to_next():
        return context.wrap_tensors(call_operator(name, context.functionalize(_run(body)), plain))


@call_operator.py_impl(ProxyTorchDispatchMode)
def _trace_call(mode: Any, name: str, body: Body, operands: Sequence[Any]) -> Any:
    return _recorded(mode, call_operator, (name, _traced(mode, body, operands), tuple(operands)))


@call_operator.py_impl(FakeTensorMode)
def _fake_call(mode: Any, name: str, body: Body, operands: Sequence[Any]) -> Any:
    with mode:
        return tuple(body(*operands))


# ---- recurrent layers


@recurrent_operator.py_impl(DispatchKey.CompositeExplicitAutograd)
def _run_recurrent(name: str, input: Any, state: Sequence[Any], weights: Sequence[Any], *options: Any) -> Any:
    return getattr(torch, name)(input, state if len(state) > 1 else state[0], weights, *options)


@recurrent_operator.py_functionalize_impl
def _functional_recurrent(
    context: Any, name: str, input: Any, state: Sequence[Any], weights: Sequence[Any], *options: Any
) -> Any:
    plain_input, plain_state, plain_weights = context.unwrap_tensors((input, state, weights))
    with context.redispatch_to_next():
        return context.wrap_tensors(recurrent_operator(name, plain_input, plain_state, plain_weights, *options))


@recurrent_operator.py_impl(ProxyTorchDispatchMode)
def _trace_recurrent(mode: Any, *args: Any) -> Any:
    return _recorded(mode, recurrent_operator, args)


@recurrent_operator.py_impl(FakeTensorMode)
def _fake_recurrent(mode: Any, name: str, input: Any, state: Sequence[Any], weights: Any, *options: Any) -> Any:
    is_bidirectional = options[4]
    size = state[0].shape[2] * (2 if is_bidirectional else 1)
    with mode:
        return (input.new_empty((*input.shape[:2], size)), *[torch.empty_like(each) for each in state])


# ---- what all need


def without_transforms(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
    """Run a function so that whoever watches sees what its gradients and transforms come to, and none of these."""
    with quietly(), _no_function_modes():
        traced = make_fx(function, tracing_mode="real", _allow_non_fake_inputs=True)(*tensors)
    return traced(*tensors)


@contextlib.contextmanager
def _no_function_modes() -> Iterator[None]:
    """Take away what torch.export has to see transforms as they are written."""
    popped = [_pop_mode() for _ in range(_len_torch_function_stack())]
    try:
        yield
    finally:
        for mode in reversed(popped):
            _push_mode(mode)


def either(one: torch.Tensor, other: torch.Tensor, known: Sequence[int | None] | None = None) -> torch.Tensor:
    """A tensor that is like both of two: a size in which they differ is one that only a run knows."""
    mode = _fake_mode(one, other)
    with mode:
        return _either(mode, one, other, known)


def known_sizes(pred: torch.SymBool, one: torch.Tensor, other: torch.Tensor) -> tuple[int | None, ...] | None:
    """The sizes that both sides of a branch on sizes have, given which way it went: `if h != 8: x = resize(x, 8)`."""
    if one.dim() != other.dim():
        return None
    holds, fails = pred.node.expr, sympy.Not(pred.node.expr)
    return tuple([_known_size(a, b, holds, fails) for a, b in zip(one.shape, other.shape, strict=True)])


def _known_size(one: Any, other: Any, holds: Any, fails: Any) -> int | None:
    sizes = {_given(size, facts) for size, facts in ((one, holds), (other, fails))}
    return sizes.pop() if len(sizes) == 1 else None


def _given(size: Any, facts: Any) -> int | None:
    if isinstance(size, int):
        return size
    equal = {
        fact.lhs: fact.rhs
        for fact in (facts.args if isinstance(facts, sympy.And) else (facts,))
        if isinstance(fact, sympy.Eq)
    }
    value = size.node.expr.subs({**equal, **{b: a for a, b in equal.items() if a.is_number}})
    return int(value) if value.is_number else None


def _either(
    mode: Any, one: torch.Tensor, other: torch.Tensor, known: Sequence[int | None] | None = None
) -> torch.Tensor:
    """A tensor that is like both of two: a size in which they differ is one that only a run knows."""
    _check_alike(one, other, "the sides of a branch give")
    sizes = [
        c if c is not None else a if _same_size(a, b) and not free_unbacked_symbols(a) else _between(mode, a, b)
        for a, b, c in zip(one.shape, other.shape, known or [None] * one.dim(), strict=True)
    ]
    return torch.empty(sizes, dtype=one.dtype)


def _sizes(mode: Any, tensor: torch.Tensor) -> list[Any]:
    return [_fresh(mode) if free_unbacked_symbols(size) else size for size in tensor.shape]


def _check_alike(one: torch.Tensor, other: torch.Tensor, what: str) -> None:
    if one.dtype != other.dtype or one.dim() != other.dim():
        raise ExportError(
            f"{what} a tensor of {one.dim()} dimensions of {one.dtype} and one of {other.dim()} of {other.dtype}",
            fix="give tensors of one rank and dtype: value.to(dtype), value.unsqueeze(dim)",
        )


def _same_size(a: Any, b: Any) -> bool:
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return bool(a.node.expr == b.node.expr)


def _fresh(mode: Any) -> torch.SymInt:
    size: torch.SymInt = mode.shape_env.create_unbacked_symint()
    torch._check(size >= 0)
    return size


def _between(mode: Any, one: Any, other: Any) -> torch.SymInt:
    """A size that only a run knows, and that is no less than the least that both may be."""
    size = _fresh(mode)
    bounds = [
        each if isinstance(each, int) else mode.shape_env.bound_sympy(each.node.expr).lower for each in (one, other)
    ]
    least = min(bounds)
    if least > 0:
        torch._check(size >= int(least))
    return size


def _fake_mode(*values: Any) -> Any:
    return next(leaf.fake_mode for leaf in pytree.tree_leaves(values) if hasattr(leaf, "fake_mode"))


def _run(body: Body) -> Body:
    """A body that may be a graph of torch's, run so that errors and metadata name its nodes."""
    if not isinstance(body, torch.fx.GraphModule):
        return body
    return lambda *given: torch.fx.Interpreter(body).run(*given)


def _traced(mode: Any, body: Body, inputs: Sequence[Any]) -> torch.fx.GraphModule:
    graph = reenter_make_fx(body)(*inputs)
    _, name = unique_graph_id(mode, prefix="body")
    mode.tracer.root.register_module(name, graph)
    return graph  # type: ignore[no-any-return]


def _recorded(mode: Any, operator: HigherOrderOperator, args: tuple[Any, ...]) -> Any:
    proxies = pytree.tree_map(mode.tracer.unwrap_proxy, args)
    proxy = mode.tracer.create_proxy("call_function", operator, proxies, {})
    return track_tensor_tree(operator(*args), proxy, constant=None, tracer=mode.tracer)


# ---- out of torch.export


def assumed_of(program: torch.export.ExportedProgram) -> tuple[list[list[Any]], list[Any]]:
    """The sizes of a program's inputs as expressions of sympy, and every condition on them that it was made under.

    That each is at least 2 is not among them, since torch.export takes that for granted of every one.
    """
    names = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    sizes = [
        [sympy.sympify(getattr(getattr(size, "node", None), "expr", size)) for size in each.shape] for each in values
    ]
    modes = [each.fake_mode for each in values if hasattr(each, "fake_mode")]
    if not modes or modes[0].shape_env is None:
        return sizes, []
    known = modes[0].shape_env
    conditions = [known.replace(guard.expr) for guard in known.guards]
    for symbol, values_of in program.range_constraints.items():
        if values_of.lower.is_number and values_of.lower.is_finite and values_of.lower > 2:
            conditions.append(sympy.Ge(symbol, values_of.lower))
        if values_of.upper.is_number and values_of.upper.is_finite and values_of.upper < LARGEST_SIZE:
            conditions.append(sympy.Le(symbol, values_of.upper))
    return sizes, [condition for condition in dict.fromkeys(conditions) if condition.free_symbols]


LARGEST_SIZE = 2**31  # a bound from here on is none of the program


def as_python(expression: Any) -> str:
    """An expression of sizes as Python has it."""
    return str(PythonPrinter().doprint(expression))


# ---- into ONNX


def translation_of(operator: str) -> Callable[..., Any]:
    """torch.onnx's own translation of an operator of ATen: `translation_of("aten::gru.input")`."""
    named: Any = operator  # as the registry names those of ATen
    return _registry(_OPSET).get_decomps(named)[0].onnx_function


_FROM_TORCHLIB = vars(ONNXRegistry)["from_torchlib"]
_OPSET: int = _FROM_TORCHLIB.__func__.__defaults__[0]


@functools.cache
def _registry(opset_version: int) -> ONNXRegistry:
    return _FROM_TORCHLIB.__get__(None, ONNXRegistry)(opset_version)  # type: ignore[no-any-return]


def _copied_registry(opset_version: int = _OPSET) -> ONNXRegistry:
    known, made = _registry(opset_version), ONNXRegistry()
    made._opset_version = known._opset_version
    made.functions = {operator: [*functions] for operator, functions in known.functions.items()}
    return made


@contextlib.contextmanager
def parsed_once() -> Iterator[None]:
    """Have torch.onnx parse its translations once for all exports: it takes half a second for each of them."""
    ONNXRegistry.from_torchlib = staticmethod(_copied_registry)  # type: ignore[method-assign]
    try:
        yield
    finally:
        ONNXRegistry.from_torchlib = _FROM_TORCHLIB  # type: ignore[method-assign]


def record(node: Any) -> Any:
    """Have torch.onnx add a node of onnx_ir to what it is writing."""
    assert _core.current_tracer is not None
    _core.current_tracer.nodes.append(node)
    return node


def constant(value: Any) -> Any:
    """A value of numpy's that is written into the model."""
    return record(ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(value))])).outputs[0]


def is_inside_mode(kind: type) -> bool:
    """Tell whether a mode of torch functions of some class is on."""
    return any(isinstance(mode, kind) for mode in _get_current_function_mode_stack())
