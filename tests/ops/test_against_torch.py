"""What the table of operators says, held to what torch does, over torch's own database of operators and samples.

Every spelling in the database is called: functions, methods, in place, operators of Python, other names. Where the
database wraps a function (`lambda x: ...`), the calls of torch inside the wrapper stand for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import torch
from tests.operator_samples import first_samples
from tests.ops.observing import Seen, calls_inside, node_of, observe, parameters_with, spellings_of
from torch.testing._internal.common_methods_invocations import op_db

from graphwright import Node
from graphwright.ops import (
    Call,
    aliases_of,
    call_of,
    gives_fresh_value,
    is_impure,
    is_inplace,
    is_random,
    is_scratch_write,
    operator_of,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # what is deprecated, or in beta

# Compiled at run time for a GPU.
LEFT_OUT = {op.name for op in op_db if op.name.startswith("jiterator_")}
NEVER_RUN = {"torch._scaled_mm", "torch._scaled_mm_v2"}  # on a CPU, with the database's samples
# What switches are asked for inside wrappers.
SWITCHES = {"_set_grad_enabled"}
DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)
OPERATORS = [op for op in op_db if op.name not in LEFT_OUT]


def samples_of(op: Any, dtypes: Iterable[torch.dtype], count: int | None) -> list[Any]:
    usable = [dtype for dtype in dtypes if op.supports_dtype(dtype, "cpu")] or sorted(op.dtypes, key=str)[:1]
    return [sample for dtype in usable for sample in first_samples(op, dtype, count)]


def problems_of(op: Any, sample: Any) -> tuple[list[str], int]:
    """What the table gets wrong about the spellings of an operator on a sample, and how many calls were seen."""
    args, kwargs = (sample.input, *sample.args), sample.kwargs
    waiting = [(kind, target, function, args, kwargs) for kind, target, function in spellings_of(op)]
    problems: list[str] = []
    calls: dict[str, tuple[Call, list[Node]]] = {}
    count = 0
    while waiting:
        kind, target, function, args, kwargs = waiting.pop()
        node, stand_ins = node_of(target, args, kwargs)
        if operator_of(node) is None:
            if kind.startswith("inside"):
                if function.__name__ not in SWITCHES:
                    problems.append(f"{kind}: {function} is not known")
                continue
            inner = calls_inside(function, args, kwargs)
            waiting += [(f"inside {kind}", made, made, *rest) for made, *rest in inner]
            continue
        try:
            seen = observe(function, args, kwargs)
        except Exception:  # not what the operator takes: `x.add_(y)` where y is wider
            continue
        count += 1
        call = call_of(node)
        if call is None:
            problems.append(f"{kind}: {node.format_node()} fits no form")
            continue
        problems += [f"{kind}: {problem}" for problem in wrong_about(node, call, stand_ins, seen)]
        if not kind.startswith("inside"):
            calls[kind] = call, stand_ins
    return problems + list(disagreements(calls)), count


def wrong_about(node: Node, call: Call, stand_ins: list[Node], seen: Seen) -> Iterable[str]:
    where = [parameters_with(call, stand_in) for stand_in in stand_ins]
    declared = set(call.writes)
    for i in seen.writes:
        if not where[i] & declared:
            yield f"writes to {where[i]}, said to write to {call.writes}"
    if seen.writes and not (is_inplace(node) and is_impure(node)):
        yield "writes, said to be pure"
    if is_inplace(node) != bool(call.writes):
        yield f"is_inplace says {is_inplace(node)}, its call writes to {call.writes}"
    shared = set(aliases_of(node, call.operator))
    for place, i in seen.shares:
        if not any({(place, name), (None, name), (None, "*")} & shared for name in where[i]):
            yield f"output {place} shares memory with {where[i]}, said to share {shared}"
    if seen.shares and gives_fresh_value(node, lambda node: None):
        yield "shares memory, said to be fresh"
    if seen.random and not (call.random and is_random(node) and is_impure(node)):
        yield "draws random numbers, said not to"
    if is_random(node) != call.random:
        yield f"is_random says {is_random(node)}, its call {call.random}"
    if seen.random and is_scratch_write(node, lambda node: None):
        yield "draws random numbers, said to do no more than to write"


def disagreements(calls: Mapping[str, tuple[Call, list[Node]]]) -> Iterable[str]:
    """Spellings of one operator whose calls differ in more than what they write."""
    if "function" not in calls:
        return
    first, stand_ins = calls["function"]
    for kind, (call, others) in calls.items():
        same = dict(zip(others, stand_ins, strict=True))
        if call.key != first.key:
            yield f"{kind}: has the key {call.key}, not {first.key}"
        if exchanged(call.arguments, same) != exchanged(first.arguments, {}):
            yield f"{kind}: has the arguments {call.arguments}, not {first.arguments}"


def exchanged(value: Any, same: Mapping[Node, Node]) -> Any:
    if isinstance(value, Mapping):
        return {name: exchanged(item, same) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(exchanged(item, same) for item in value)
    return same.get(value, value) if isinstance(value, Node) else value


@pytest.mark.parametrize("op", OPERATORS[::15], ids=lambda op: op.formatted_name)
def test_operators_do_what_the_table_says(op: Any) -> None:
    check(op, DTYPES[:1], 2)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.formatted_name)
def test_every_operator_does_what_the_table_says(op: Any) -> None:
    check(op, DTYPES, None)


def check(op: Any, dtypes: Iterable[torch.dtype], samples: int | None) -> None:
    found = [problems_of(op, sample) for sample in samples_of(op, dtypes, samples)]
    assert sorted({problem for problems, _ in found for problem in problems}) == []


@pytest.mark.slow
def test_how_much_is_seen(record_property: Callable[[str, object], None]) -> None:
    found = [(op.name, problems_of(op, sample)[1]) for op in OPERATORS for sample in samples_of(op, DTYPES[:1], 3)]
    silent = sorted({name for name, _ in found} - {name for name, count in found if count})
    record_property("calls", sum(count for _, count in found))
    assert set(silent) == NEVER_RUN


# ---- algebra


@pytest.mark.slow
def test_what_commutes_does() -> None:
    seen = set()
    for op in OPERATORS:
        node, _ = node_of(op.op, (torch.ones(2), torch.ones(2)), {})
        call = call_of(node) if operator_of(node) is not None else None
        if call is None or call.commutative is None:
            continue
        for sample in samples_of(op, DTYPES, 4):
            if len(sample.args) == 1 and isinstance(sample.args[0], torch.Tensor) and not sample.kwargs:
                one, other = op.op(sample.input, *sample.args), op.op(*sample.args, sample.input)
                torch.testing.assert_close(one, other, equal_nan=True)
                seen.add(call.key)
    assert {"add", "mul", "eq", "ne", "maximum", "logical_or", "bitwise_xor", "logaddexp", "gcd", "hypot"} <= seen


@pytest.mark.slow
def test_what_only_moves_elements_does_no_more() -> None:
    count = 0
    for op in OPERATORS:
        known = operator_of(node_of(op.op, (torch.ones(2),), {})[0])
        for sample in samples_of(op, DTYPES[:1], 3) if known is not None and known.shape_only else ():
            args = (sample.input, *sample.args)
            given = set(torch.cat([one.flatten() for one in tensors(args)]).tolist())
            value = op.op(*args, **sample.kwargs)
            taken = {item for one in tensors(value) if one.is_floating_point() for item in one.flatten().tolist()}
            assert taken <= given, op.name
            count += 1
    assert count > 90


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
