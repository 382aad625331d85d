"""Branches and loops on data, run as torch's higher-order operators while torch.export watches."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx.traceback
from torch import nn
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.interop.fx_graphs import stack_trace
from graphwright.interop.lower.appended_lists import collecting_for, collecting_while
from graphwright.interop.lower.filled_lists import FILLED, is_filled, length_of
from graphwright.interop.lower.indexing import Copies, set_item
from graphwright.interop.lower.items import Collected, Items, as_items, item_sources
from graphwright.interop.lower.regions import (
    Held,
    changed_since,
    check_apart,
    clones,
    does_more,
    nodes_inside,
    quietly,
    raising_side,
    tensors_used,
    versions_of,
)
from graphwright.interop.operands import NUMBERS, as_bool, as_tensor
from graphwright.ir import Graph, Node
from graphwright.ops import cond, for_loop, while_loop
from graphwright.runtime import Interpreter, expect


class Exporting(Interpreter):
    """Runs a graph under torch.export: a branch that data decides is `cond`, a loop `while_loop` of torch's.

    `node` is the one that runs, or ran last.
    """

    node: Node

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph. Raises ExportError where something is written to that a branch gave as it was."""
        self._filled_by: dict[torch.Tensor, Node] = {}  # what loops have collected, and each loop
        self._held, self._copies = Held(), Copies()
        self._same: list[tuple[torch.Tensor, int, Node]] = []  # of two that are one tensor, and two in the result
        with torch.fx.traceback.preserve_node_meta():  # so that nodes name the user's lines, and not ours
            result = super().run(*args, **kwargs)
        self._refuse_filled(result)
        for tensor, version, node in self._same:
            if tensor._version != version:
                raise _writes(node)
        return result

    def run_node(self, n: Node) -> Any:
        """Run one node; of a branch or loop, know where it stands and which bodies it has."""
        self.node = n
        if n.origin is not None:
            torch.fx.traceback.set_stack_trace([stack_trace(n.origin)])
        with self._copies.views(self.env, n):
            return super().run_node(n)

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module."""
        value = super().fetch_attr(target)
        self._held.add(target, value)
        return value

    def body(self, body: Graph, n: Node) -> Any:
        """A function that runs a body, of a loop that collects, too."""
        is_collecting = n.target in (collecting_for, collecting_while)
        return functools.partial(self.run_body, body) if is_collecting else super().body(body, n)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method; a list may get what a loop has collected."""
        self._refuse_kept(args)
        if target == "extend" and isinstance(args[1], Collected):
            if getattr(args[0], "maxlen", None) is not None:  # a deque, which drops some of them
                raise _adds_to(self.node, "deque with a maxlen")
            args[0].append(args[1])
            return None
        self._refuse_filled(args)
        return super().call_method(target, args, kwargs)

    def _refuse_kept(self, args: tuple[Any, ...]) -> None:
        name = self._held.written_by(self.node, args)
        if name is not None:
            raise _cannot_write(self.node, name)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, branches and loops on data as torch's operators."""
        node = self.node
        self._refuse_kept(args)
        if target is cond:
            self._held.branch(node)
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if target is bool and tensor is not None:
            return as_bool(tensor)
        if target is operator.not_ and tensor is not None:
            return ~as_bool(tensor)
        if target is expect and tensor is not None:
            torch._assert_async(tensor == args[1], f"the program was captured where this was {args[1]}: {args[2]}")
            return None
        items = item_sources(target, args, kwargs)
        if items is not NotImplemented:
            return items
        if target in FILLED and args and is_filled(args[0]):
            if target is not len:
                torch._check(length_of(args[0]) > 0)
            return FILLED[target](*args, **kwargs)
        if target is operator.getitem and tensor is not None:
            return self._copies.read(tensor, args[1])
        if target is operator.setitem and tensor is not None:
            return set_item(*args)
        if target is cond and isinstance(args[0], torch.SymBool):
            for known, body in ((args[0], args[1]), (torch.sym_not(args[0]), args[2])):
                if statically_known_true(known):
                    return body(*args[3])
        if target is cond and isinstance(args[0], torch.Tensor | torch.SymBool):
            return self._cond(node, *args)
        if target in (while_loop, collecting_while):
            return self._while_loop(node, *args)
        if target in (for_loop, collecting_for):
            if isinstance(args[0], range) and args[4]:
                args = (as_items(args[0]), *args[1:])
            if not isinstance(args[0], range | list | tuple):
                return self._for_loop(node, *args)
        self._refuse_filled(args)
        value = super().call_function(target, args, kwargs)
        self._held.read(target, args, value)
        return value

    def _refuse_filled(self, values: Any) -> None:
        """Refuse what reads a list that a loop has filled, or gives it, as Python's."""
        for each in pytree.tree_leaves(values, is_leaf=is_filled):
            if is_filled(each):
                collected = next(part for part in each if isinstance(part, Collected))
                raise _adds_to(self._filled_by[collected.tensor], "list")

    def write_attribute(self, path: str, value: Any) -> None:
        """Write a buffer in place, which torch.export sees. Raises ExportError for every other attribute."""
        buffer = dict(self.module.named_buffers()).get(path)
        fits = isinstance(value, torch.Tensor) and buffer is not None and value.dtype == buffer.dtype
        if buffer is None or not fits or value.shape != buffer.shape:
            raise _cannot_write(self.node, path)
        buffer.copy_(value)

    # ---- branches

    def _cond(self, node: Node, pred: Any, true: Any, false: Any, operands: Sequence[Any] = ()) -> Any:
        if isinstance(pred, torch.Tensor):
            pred = as_bool(pred)
        raising = raising_side(node)
        if raising is not None:
            self._check(pred if raising[1] else _not(pred), raising[0])
            return (true if raising[1] else false)(*operands)
        lifted = _Lifted(self.module, node, operands)
        kinds: list[list[Any]] = []
        same: set[tuple[int, int]] = set()  # which result is which operand

        def opened(body: Any, given: Sequence[Any]) -> Any:
            with lifted.bound(given) as values:
                return body(*values)

        written = lifted.written(functools.partial(opened, true), functools.partial(opened, false))

        def side(body: Any) -> Callable[..., Any]:
            def run(*given: Any) -> tuple[Any, ...]:
                inner = _with_copies(given, written)
                result = opened(body, inner)
                leaves = result if isinstance(result, tuple) else (result,)
                results = [leaf for leaf in leaves if leaf is not None]
                same.update((i, j) for i, leaf in enumerate(results) for j, one in enumerate(inner) if leaf is one)
                kinds.append([None if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in leaves])
                return (*[_as_result(leaf, inner, node) for leaf in results], *[inner[i] for i in written])

            return run

        results = torch.ops.higher_order.cond(pred, side(true), side(false), lifted.tensors)
        results = lifted.write_back(written, results)
        for tensor in [each for i, j in same for each in (results[i], lifted.tensors[j])]:
            self._same.append((tensor, tensor._version, node))
        one, other = kinds[0], kinds[-1]
        if [kind is type(None) for kind in one] != [kind is type(None) for kind in other]:
            raise ExportError(
                f"{node.name} is None on one side of a branch, which torch.cond cannot say",
                at=node.origin,
                fix='capture it with target="export", or give both sides a tensor',
            )
        left = iter(results)
        values = [
            None if kind is type(None) else _as_value(next(left), kind, beside)
            for kind, beside in zip(one, other, strict=True)
        ]
        is_tuple = isinstance(node.args[1].output_node().args[0], tuple)
        return tuple(values) if is_tuple else values[0]

    def _check(self, holds: Any, raising: Node) -> None:
        """Have a program refuse what one side of a branch raises for."""
        kind, *message = raising.args
        text = f"{getattr(kind, '__name__', kind)}: {message[0] if message and isinstance(message[0], str) else ''}"
        if isinstance(holds, torch.Tensor):
            torch._assert_async(holds, text)
        else:
            torch._check(holds, lambda: text)

    # ---- loops

    def _while_loop(
        self,
        node: Node,
        test: Any,
        body: Any,
        carried: Sequence[Any],
        operands: Sequence[Any] = (),
        breaks: bool = False,
        *count: int,
    ) -> Any:
        is_known = not (breaks or does_more(node.args[0]))
        if is_known and not isinstance(test(*carried, *operands), torch.Tensor | torch.SymBool):
            return super().call_function(node.target, (test, body, carried, operands, breaks, *count), {})
        if count:
            raise _adds_to(node, "list")
        lifted = _Lifted(self.module, node, operands)
        state = [_as_result(value, (value,), node) for value in carried]

        def asked(values: list[Any], rest: Sequence[Any]) -> torch.Tensor:
            with lifted.bound(rest) as others:
                return as_bool(test(*values, *others))

        def step(values: list[Any], rest: Sequence[Any]) -> tuple[Any, ...]:
            with lifted.bound(rest) as others, _unwritten(values, node):
                return tuple(body(*values, *others))

        kinds = [type(value) for value in carried]
        return _loop(node, asked, step, state, kinds, lifted, (), breaks)

    def _for_loop(
        self,
        node: Node,
        items: Any,
        body: Any,
        carried: Sequence[Any],
        operands: Sequence[Any] = (),
        breaks: bool = False,
        count: int = 0,
    ) -> Any:
        if not isinstance(items, torch.Tensor | Items):
            raise ExportError(
                f"{node.name} goes over a {type(items).__name__}, which torch.while_loop cannot say",
                at=node.origin,
                fix="go over the rows of a tensor, or over a range",
            )
        if count and breaks:
            raise _adds_to(node, "list")
        items = as_items(items)
        length = items.length
        leaves, spec = pytree.tree_flatten(items)
        lifted = _Lifted(self.module, node, (*leaves, *operands))

        def turn(number: torch.Tensor, values: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
            here = pytree.tree_unflatten(given[: len(leaves)], spec)
            return tuple(body(self._copies.next_item(here, number), *values, *given[len(leaves) :]))

        start = torch.zeros((), dtype=torch.int64)
        rows: list[torch.Tensor] = []
        if count:
            with quietly():
                first = turn(start, carried, (*leaves, *operands))[len(carried) :]
            rows = [_rows_like(each, length, node) for each in first]
        state = [_as_result(value, (value,), node) for value in (start, *rows, *carried)]

        def asked(values: list[Any], rest: Sequence[Any]) -> Any:
            return values[0] < rest[-1]

        def step(values: list[Any], rest: Sequence[Any]) -> tuple[Any, ...]:
            number, filled, values = values[0], values[1 : 1 + count], values[1 + count :]
            with lifted.bound(rest[: len(lifted.tensors)]) as given, _unwritten(values, node):
                result = turn(number, values, given)
            kept = len(result) - count
            after = [
                all_rows.index_copy(0, number.reshape(1), as_tensor(each).unsqueeze(0))
                for all_rows, each in zip(filled, result[kept:], strict=True)
            ]
            return (*result[:breaks], number + 1, *after, *result[breaks:kept])

        kinds = [None, *[None for _ in rows], *map(type, carried)]
        end = _as_result(length, (), node)
        _, *results = _loop(node, asked, step, state, kinds, lifted, (end,), breaks)
        self._filled_by.update(dict.fromkeys(results[:count], node))
        return (*results[count:], *map(Collected, results[:count]))


def _rows_like(value: Any, length: Any, node: Node) -> torch.Tensor:
    """A tensor with room for what each iteration appends."""
    one = _as_result(value, (), node)
    return torch.zeros((length, *one.shape), dtype=one.dtype, device=one.device)


def _loop(
    node: Node,
    asked: Callable[[list[Any], Sequence[Any]], Any],
    step: Callable[[list[Any], Sequence[Any]], tuple[Any, ...]],
    state: list[torch.Tensor],
    kinds: Sequence[Any],
    lifted: _Lifted,
    more: Sequence[torch.Tensor],
    breaks: bool,
) -> tuple[Any, ...]:
    """Run `while_loop` of torch's: on carried tensors, which are of kinds for the program, and on what is around.

    `asked` and `step` get both, and `more` behind what is around. With `breaks`, what a step gives starts with whether
    the loop ends, and whether it goes on is carried first. What is around and is written to is carried last.
    """
    going = [torch.ones((), dtype=torch.bool)] if breaks else []
    end = breaks + len(kinds)

    def values_of(given: Sequence[Any]) -> list[Any]:
        return [_as_value(value, kind, kind) for value, kind in zip(given, kinds, strict=True)]

    written = lifted.written(lambda inner: step(values_of(clones(state)), (*inner, *more)))

    def opened(given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        around = list(given[end + len(written) :])
        for i, value in zip(written, given[end:], strict=False):
            around[i] = value
        return values_of(given[breaks:end]), around

    def test(*given: Any) -> Any:
        holds = asked(*opened(given))
        return holds & given[0] if breaks else holds

    def run(*given: Any) -> tuple[Any, ...]:
        values, around = opened(given)
        inner = _with_copies(around, written)
        result = step(values, inner)
        after = [_as_result(value, (*given, *inner), node) for value in result[breaks:]]
        numbers = [
            value.to(was.dtype) if value.dim() == was.dim() == 0 else value
            for value, was in zip(after, state, strict=True)
        ]
        return (*[~as_bool(stop) for stop in result[:breaks]], *numbers, *[inner[i] for i in written])

    first = [lifted.tensors[i].clone() for i in written]
    results = torch.ops.higher_order.while_loop(test, run, (*going, *state, *first), (*lifted.tensors, *more))
    return tuple(values_of(lifted.write_back(written, results)[breaks:]))


def _cannot_write(node: Node, name: str) -> ExportError:
    return ExportError(
        f"an exported program keeps nothing in {name!r} from call to call",
        at=node.origin,
        fix="keep it in a buffer of one shape and dtype",
    )


def _adds_to(node: Node, kind: str) -> ExportError:
    return ExportError(
        f"{node.name} adds to a {kind} that is around it, which torch's operators cannot",
        at=node.origin,
        fix="make a tensor before the loop, and write to its rows",
    )


def _writes(node: Node) -> ExportError:
    return ExportError(
        f"what {node.name} gives, or takes, is written to later and may be one tensor with another value",
        at=node.origin,
        fix="write to a copy: value.clone()",
    )


@contextlib.contextmanager
def _unwritten(carried: Sequence[Any], node: Node) -> Iterator[None]:
    """See that an iteration does not write to what it was given: in eager that may be a tensor from before the loop."""
    before = [(value, value._version) for value in carried if isinstance(value, torch.Tensor)]
    yield
    if any(value._version != version for value, version in before):
        raise _writes(node)


class _Lifted:
    """What bodies use from around, as tensors that an operator is given: operands, and tensors of modules."""

    def __init__(self, module: nn.Module, node: Node, operands: Sequence[Any]) -> None:
        self._node = node
        self._module, self._operands = module, tuple(operands)
        self._given = [i for i, value in enumerate(self._operands) if _is_of_run(value)]
        known = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        read = tensors_used(module, nodes_inside(node), known)
        self._names = list(read)
        used = [self._operands[i] for i in self._given]
        own = [_as_result(value, (), node) for value in used]
        self.tensors = (*own, *read.values())

    @contextlib.contextmanager
    def bound(self, given: Sequence[Any]) -> Iterator[list[Any]]:
        """The operands, with the tensors that a body was given in place of those around, of the module too."""
        count = len(self.tensors)
        tensors = given[len(given) - count :] if count else ()
        values = list(self._operands)
        for i, tensor in zip(self._given, tensors, strict=False):
            values[i] = tensor if isinstance(values[i], torch.Tensor) else tensor.item()
        own = dict(zip(self._names, tensors[len(self._given) :], strict=True))
        held = [(value, list(value)) for value in values if isinstance(value, list | dict | set)]
        with _reparametrize_module(self._module, own):
            yield values
        for container, before in held:
            if [*map(id, container)] != [*map(id, before)]:
                raise _adds_to(self._node, type(container).__name__)

    def written(self, *runs: Callable[[Sequence[torch.Tensor]], Any]) -> list[int]:
        """Which of the tensors bodies write to in place; `runs` run them, where nobody watches, on copies.

        torch's operators have bodies that write to nothing: of one inside of another, the writes would be lost. Raises
        ExportError where a body is given what it writes to by another name, too.
        """
        bodies = [body for body in self._node.args if isinstance(body, Graph)]
        if not any(map(does_more, bodies)):
            return []
        found: set[int] = set()
        for run in runs:
            inner = clones(self.tensors)
            before = versions_of(inner)
            with quietly():
                run(inner)
            found.update(changed_since(inner, before))
        check_apart(self.tensors, found, self._node)
        return sorted(found)

    def write_back(self, written: Sequence[int], results: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Write what bodies have made of the tensors that they write to, the last of the results; give the others."""
        count = len(results) - len(written)
        for i, value in zip(written, results[count:], strict=True):
            self.tensors[i].copy_(value)
        return results[:count]


def _with_copies(tensors: Sequence[Any], written: Sequence[int]) -> list[Any]:
    """Tensors, with copies of those that are to be written to."""
    return [tensor.clone() if i in written else tensor for i, tensor in enumerate(tensors)]


def _is_of_run(value: Any) -> bool:
    """Tell whether a value is a tensor, or a number that only a run knows."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return bool(free_unbacked_symbols(value))
    return isinstance(value, torch.Tensor)


# ---- values that an operator of torch's takes and gives


def _as_result(value: Any, given: Sequence[Any], node: Node) -> torch.Tensor:
    """A tensor that is none of those given."""
    if isinstance(value, torch.Tensor):
        return value.clone() if any(value is one for one in given) else value
    if not isinstance(value, NUMBERS):
        raise ExportError(
            f"{node.name} gives or carries a {type(value).__name__}, which torch's operators cannot",
            at=node.origin,
            fix="let both sides, and each iteration, give tensors or numbers",
        )
    return as_tensor(value)


def _not(holds: Any) -> Any:
    return ~holds if isinstance(holds, torch.Tensor) else torch.sym_not(holds)


def _as_value(value: torch.Tensor, kind: Any, other: Any) -> Any:
    """A result as the program has it: a number where it was one on both sides."""
    is_number = kind is not None and other is not None and issubclass(kind, NUMBERS) and issubclass(other, NUMBERS)
    return value.item() if is_number else value
