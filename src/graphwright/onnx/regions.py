"""Branches and loops of a captured program as operators whose bodies take and give nothing but tensors and sizes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from graphwright.errors import ExportError
from graphwright.interop import (
    Collected,
    Items,
    as_number_tensor,
    as_truth,
    changed_since,
    check_apart,
    clones,
    quietly,
    versions_of,
)
from graphwright.ir import Node
from graphwright.onnx.torch_private import either, if_operator, known_sizes, loop_operator
from graphwright.onnx.values import IsNone, Kind, Maybe, flatten, joined, kind_of, opened, packed

Body = Callable[..., Any]


class Around:
    """What bodies use from around them: the tensors and sizes in their operands, and those of the module.

    `bind` makes the module show other tensors in place of its own, by their names.
    """

    def __init__(
        self,
        node: Node,
        operands: Sequence[Any],
        attributes: dict[str, torch.Tensor],
        bind: Callable[[dict[str, torch.Tensor]], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._node, self._bind = node, bind
        leaves, self._spec = flatten(list(operands))
        self._leaves = [as_number_tensor(leaf) if isinstance(leaf, _NO_SIZES) else leaf for leaf in leaves]
        self._kinds = [kind_of(leaf) for leaf in self._leaves]
        self._given = [
            i for i, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor | Maybe | torch.SymInt)
        ]
        self._names = list(attributes)
        own = [part for i in self._given for part in _parts(self._leaves[i])]
        self.values = (*own, *attributes.values())
        self.count = len(self.values)

    @contextlib.contextmanager
    def bound(self, given: Sequence[Any], hints: Sequence[tuple[Any, Any]] = ()) -> Iterator[list[Any]]:
        """The operands, made of the tensors and sizes that a body was given; `hints` are values known there."""
        left, leaves = iter(given), list(self._leaves)
        for i in self._given:
            was = leaves[i]
            leaf: Any = Maybe(next(left), next(left)) if isinstance(was, Maybe) else next(left)
            for value, known in hints:
                if value is was:
                    leaf = leaf.tensor if known else None
            leaves[i] = leaf
        operands = torch.utils._pytree.tree_unflatten(leaves, self._spec)
        held = [(value, list(value)) for value in operands if isinstance(value, list | dict | set)]
        with self._bind(dict(zip(self._names, left, strict=True))):
            yield operands
        for container, before in held:
            if [*map(id, container)] != [*map(id, before)]:
                raise ExportError(
                    f"{self._node.name} changes a {type(container).__name__} that is around it, which ONNX cannot say",
                    at=self._node.origin,
                    fix="append to it once in each iteration, or make a tensor before and write to its rows",
                )


_NO_SIZES = (torch.SymFloat, torch.SymBool)


def _parts(value: Any) -> tuple[Any, ...]:
    return (value.present, value.tensor) if isinstance(value, Maybe) else (value,)


def _own(tensors: Sequence[torch.Tensor], inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Tensors that are none of the inputs, and none of them twice."""
    seen, result = {id(value) for value in inputs}, []
    for tensor in tensors:
        result.append(tensor.clone() if id(tensor) in seen else tensor)
        seen.add(id(tensor))
    return tuple(result)


# ---- branches


@dataclasses.dataclass(frozen=True)
class BranchPlan:
    """What a branch gives: values of kinds, nested as `spec` says; then the values around it that a side writes to."""

    spec: Any
    kinds: list[Kind]
    written: list[int]
    sizes: list[Any]


def branch(node: Node, pred: Any, sides: Sequence[Body], around: Around, plans: dict[Any, Any], is_quiet: bool) -> Any:
    """Run both sides of a branch on data, and give what is either's."""
    hints: list[list[tuple[Any, Any]]] = [[], []]
    if isinstance(pred, IsNone):
        hints = [[(pred.value, not pred.wanted)], [(pred.value, pred.wanted)]]
        pred = ~pred.value.present if pred.wanted else pred.value.present
    asked, pred = pred, as_truth(pred)

    def run(side: int, given: Sequence[Any]) -> Any:
        with around.bound(given, hints[side]) as operands:
            return sides[side](*operands)

    key = (node, *[bool(hint) for hint in hints])
    plan, results = plans.get(key), []
    if plan is None or is_quiet:
        written: set[int] = set()
        with quietly():
            for side in (0, 1):
                inner = clones(around.values)
                before = versions_of(inner)
                results.append(flatten(run(side, inner)))
                written.update(changed_since(inner, before))
            plans[key] = plan = _branch_plan(node, asked, results, sorted(written))
        check_apart(around.values, plan.written, node)
    if is_quiet:
        return _merged(plan, [leaves for leaves, _ in results], around)

    def body(side: int) -> Body:
        def call(*given: Any) -> tuple[torch.Tensor, ...]:
            inner = list(given)
            for i in plan.written:
                inner[i] = inner[i].clone()
            leaves, _ = flatten(run(side, inner))
            tensors = [each for leaf, kind in zip(leaves, plan.kinds, strict=True) for each in packed(leaf, kind)]
            return _own([*tensors, *[inner[i] for i in plan.written]], given)

        return call

    given = if_operator(pred, body(0), body(1), around.values, plan.sizes)
    kept = len(given) - len(plan.written)
    for i, last in zip(plan.written, given[kept:], strict=True):
        around.values[i].copy_(last)
    return torch.utils._pytree.tree_unflatten(opened(given[:kept], plan.kinds), plan.spec)


def _branch_plan(node: Node, pred: Any, results: Sequence[tuple[list[Any], Any]], written: list[int]) -> BranchPlan:
    (one, spec), (other, other_spec) = results
    if spec != other_spec:
        raise ExportError(
            f"{node.name} gives containers of other forms on its two sides, which ONNX cannot say",
            at=node.origin,
            fix="let both sides give as many values, nested alike",
        )
    kinds = [joined(a, b, node) for a, b in zip(one, other, strict=True)]
    sizes: list[Any] = []
    for a, b, kind in zip(one, other, kinds, strict=True):
        pairs = zip(packed(a, kind), packed(b, kind), strict=True)
        sizes += [known_sizes(pred, c, d) if isinstance(pred, torch.SymBool) else None for c, d in pairs]
    return BranchPlan(spec, kinds, written, sizes)


def _merged(plan: BranchPlan, results: Sequence[list[Any]], around: Around) -> Any:
    """What a branch gives, where nobody records it."""
    tensors: list[torch.Tensor] = []
    for kind, one, other in zip(plan.kinds, *results, strict=True):
        pairs = zip(packed(one, kind), packed(other, kind), strict=True)
        tensors += [either(a, b, plan.sizes[len(tensors)]) for a, b in pairs]
    for i in plan.written:
        around.values[i].copy_(around.values[i].clone())
    return torch.utils._pytree.tree_unflatten(opened(tensors, plan.kinds), plan.spec)


# ---- loops


@dataclasses.dataclass(frozen=True)
class LoopPlan:
    """What a loop carries: values of kinds, nested as `spec` says; the values around it that it writes to; and what
    each iteration gives beside, of kinds."""

    spec: Any
    kinds: list[Kind]
    written: list[int]
    in_place: list[int]
    collected: list[Kind]


def loop(
    node: Node,
    source: tuple[Items, Callable[[Items, torch.Tensor], Any]] | None,
    test: Body | None,
    step: Body,
    carried: Sequence[Any],
    around: Around,
    breaks: bool,
) -> tuple[Any, ...]:
    """Run a loop as often as data says: over the items of a source, or as long as `test` holds.

    A source says how an item is read, too, of a number and of the items as a body has them: its first operand.
    `step` takes an item, where there are some, the carried values and the operands; it gives whether to stop, where it
    `breaks`, the carried values and what to collect. The last carried values come out, then these.
    """
    values, spec = flatten(list(carried))
    values = [as_number_tensor(value) if isinstance(value, _NO_SIZES) else value for value in values]

    def run(number: torch.Tensor, leaves: Sequence[Any], given: Sequence[Any]) -> tuple[Any, list[Any], list[Any], Any]:
        with around.bound(given) as operands:
            state = torch.utils._pytree.tree_unflatten(list(leaves), spec)
            first = () if source is None else (source[1](operands.pop(0), number),)
            result = list(step(*first, *state, *operands))
            stop = result.pop(0) if breaks else False
            after, more = result[: len(state)], result[len(state) :]
            going = True if test is None else test(*after, *operands)
        flat, shape = flatten(after)
        return (going, stop), flat, more, shape

    plan = _loop_plan(node, values, spec, around, run)
    state = [each for value, kind in zip(values, plan.kinds, strict=True) for each in packed(value, kind)]
    ends = breaks or test is not None

    def body(number: torch.Tensor, *given: Any) -> tuple[torch.Tensor, ...]:
        opened_state = clones(given[: len(state)]) if plan.in_place else list(given[: len(state)])
        inner = list(given[len(state) + len(plan.written) :])
        for i, current in zip(plan.written, given[len(state) :], strict=False):
            inner[i] = current.clone()
        (going, stop), after, more, _ = run(number, opened(opened_state, plan.kinds), inner)
        on = as_truth(going)
        if stop is not False:
            on = on & ~as_truth(stop)
        tensors = [each for value, kind in zip(after, plan.kinds, strict=True) for each in packed(value, kind)]
        kept = [each for value, kind in zip(more, plan.collected, strict=True) for each in packed(value, kind)]
        return _own([on, *tensors, *[inner[i] for i in plan.written], *kept], (number, *given))

    start = as_number_tensor(True)
    if test is not None:
        with around.bound(around.values) as operands:
            start = as_truth(test(*torch.utils._pytree.tree_unflatten(values, spec), *operands))
    trips = None if source is None else source[0].length
    first = [*state, *[around.values[i] for i in plan.written]]
    given = loop_operator(body, trips, start, _own(first, ()), around.values, ends)
    for i, last in zip(plan.written, given[len(state) :], strict=False):
        around.values[i].copy_(last)
    for i in plan.in_place:
        values[i].copy_(given[i])
    rows = given[len(first) :]
    carried = torch.utils._pytree.tree_unflatten(opened(given[: len(state)], plan.kinds), spec)
    return (*carried, *[_collected(row, kind) for row, kind in zip(rows, plan.collected, strict=True)])


def _collected(rows: torch.Tensor, kind: Kind) -> Collected:
    return Collected(rows, kind={"int": int, "float": float, "bool": bool}.get(kind.name, torch.Tensor))


def _loop_plan(node: Node, values: list[Any], spec: Any, around: Around, run: Body) -> LoopPlan:
    """See what one iteration gives for what it was given, and what it writes to."""
    with quietly():
        inner = clones(around.values)
        number = torch.zeros((), dtype=torch.int64)
        kinds = [kind_of(value) for value in values]
        own = [
            value.clone() if isinstance(value, torch.Tensor) else number.item() if kind.name == "int" else value
            for value, kind in zip(values, kinds, strict=True)
        ]
        pairs = zip(own, kinds, strict=True)
        own = [as_number_tensor(value) if kind.name in ("float", "bool") else value for value, kind in pairs]
        before, state_before = versions_of(inner), versions_of(own)
        _, after, more, shape = run(number, own, inner)
        written, changed = changed_since(inner, before), changed_since(own, state_before)
    if shape != spec:
        raise ExportError(
            f"{node.name} carries containers whose form an iteration changes, which ONNX cannot say",
            at=node.origin,
            fix="carry tensors, or append to a list once in each iteration",
        )
    check_apart(around.values, written, node)
    for i in changed:
        if kinds[i].name == "tensor" and after[i] is not own[i]:
            raise ExportError(
                f"{node.name} writes to a value that it carries, and carries another one then",
                at=node.origin,
                fix="write to a copy: value.clone()",
            )
    changed = [i for i in changed if kinds[i].name == "tensor"]
    carried = [
        _carried(value, seen, now, kind, node) for value, seen, now, kind in zip(values, own, after, kinds, strict=True)
    ]
    if changed and any(kind.name != "tensor" for kind in carried):
        raise ExportError(
            f"{node.name} writes to a value that it carries beside others that are no tensors",
            at=node.origin,
            fix="write to a copy: value.clone()",
        )
    return LoopPlan(spec, carried, written, changed, [_collectable(value, node) for value in more])


def _carried(value: Any, seen: Any, now: Any, kind: Kind, node: Node) -> Kind:
    """The kind of a carried value, from the one before the loop and the one after an iteration."""
    if value is None and isinstance(now, torch.Tensor):
        return Kind("maybe", now)
    if kind.name in ("float", "bool") and isinstance(now, torch.Tensor) and now.dim() == 0:
        return kind if now.dtype == as_number_tensor(value).dtype else Kind("tensor", now)
    if kind.name == "int" and now is seen:
        return Kind("int")
    return joined(value, now, node, has_changes=True)


def _collectable(value: Any, node: Node) -> Kind:
    kind = kind_of(value)
    if kind.is_constant or kind.name == "maybe":
        raise ExportError(
            f"{node.name} appends a {type(value).__name__} to a list in each iteration, which ONNX cannot say",
            at=node.origin,
            fix="append tensors or numbers",
        )
    return kind
