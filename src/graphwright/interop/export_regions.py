"""Branches and loops on data, run as torch's higher-order operators while torch.export watches."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx.traceback
from torch import nn
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.nn.utils.stateless import _reparametrize_module

from graphwright.errors import ExportError
from graphwright.interop.export_items import (
    COLLECTED,
    Range,
    Several,
    item_of,
    length_of,
    lists_filled,
    made_empty,
    rows_of,
    several_of,
    with_row,
)
from graphwright.interop.fx_graphs import stack_trace
from graphwright.interop.operands import NUMBERS, as_bool, as_tensor
from graphwright.ir import Graph, Node
from graphwright.ops import (
    cond,
    delete_attribute,
    for_loop,
    is_impure,
    raise_error,
    set_attribute,
    while_loop,
    write_variable,
)
from graphwright.runtime import Interpreter, expect

__all__ = ["Exporting"]


class Exporting(Interpreter):
    """Runs a graph under torch.export: a branch that data decides is `cond`, a loop `while_loop` of torch's.

    `node` is the one that runs, or ran last.
    """

    node: Node

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph. Raises ExportError where something is written to that a branch gave as it was."""
        self._collected: dict[int, tuple[list[Any], torch.Tensor]] = {}  # by id: lists that loops add to, as tensors
        self._same: list[tuple[torch.Tensor, int, Node]] = []  # of two that are one tensor, and two in the result
        with torch.fx.traceback.preserve_node_meta():  # so that nodes name the user's lines, and not ours
            result = super().run(*args, **kwargs)
        for tensor, version, node in self._same:
            if tensor._version != version:
                raise _writes(node)
        return result

    def run_node(self, n: Node) -> Any:
        """Run one node; of a branch or loop, know where it stands and which bodies it has."""
        self.node = n
        if n.origin is not None:
            torch.fx.traceback.set_stack_trace([stack_trace(n.origin)])
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, branches and loops on data as torch's operators."""
        node = self.node
        if target in _WRITES:
            raise _cannot_write(node, str(args[1]))
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if target is bool and tensor is not None:
            return as_bool(tensor)
        if target is operator.not_ and tensor is not None:
            return ~as_bool(tensor)
        if target is expect and tensor is not None:
            torch._assert_async(tensor == args[1], f"the program was captured where this was {args[1]}: {args[2]}")
            return None
        if target is range and any(isinstance(arg, torch.SymInt) for arg in args):
            return Range(*(0, *args)[-2:]) if len(args) < 3 else Range(*args)
        if target in (zip, enumerate) and (several := several_of(target, args, kwargs)) is not None:
            return several
        if target in COLLECTED and args and id(args[0]) in self._collected:
            return COLLECTED[target](self._collected[id(args[0])][1], *args[1:], **kwargs)
        if target is operator.getitem and tensor is not None:
            return _item(tensor, args[1])
        if target is cond and isinstance(args[0], torch.SymBool):
            for known, body in ((args[0], args[1]), (torch.sym_not(args[0]), args[2])):
                if statically_known_true(known):
                    return body(*args[3])
        if target is cond and isinstance(args[0], torch.Tensor | torch.SymBool):
            return self._cond(node, *args)
        if target is while_loop:
            return self._while_loop(node, *args)
        if target is for_loop and (isinstance(args[0], range) and args[4:] == (True,)):
            args = (Range(args[0].start, args[0].stop, args[0].step), *args[1:])
        if target is for_loop and not isinstance(args[0], range | list | tuple):
            return self._for_loop(node, *args)
        return super().call_function(target, args, kwargs)

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
        for number, other in ((1, false), (2, true)):
            body = node.args[number]
            raising = [inner for inner in body.nodes if inner.target is raise_error] if isinstance(body, Graph) else []
            if raising:
                self._check(pred if number == 2 else _not(pred), raising[0])
                return other(*operands)
        lifted = _Lifted(self.module, node, [node.args[1], node.args[2]], operands)
        kinds: list[list[Any]] = []
        same: set[tuple[int, int]] = set()  # which result is which operand

        def side(body: Any) -> Callable[..., Any]:
            def run(*given: Any) -> tuple[Any, ...]:
                with lifted.bound(given) as values:
                    result = body(*values)
                leaves = result if isinstance(result, tuple) else (result,)
                results = [leaf for leaf in leaves if leaf is not None]
                same.update((i, j) for i, leaf in enumerate(results) for j, one in enumerate(given) if leaf is one)
                kinds.append([None if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in leaves])
                return tuple([_as_result(leaf, given, node) for leaf in results])

            return run

        results = torch.ops.higher_order.cond(pred, side(true), side(false), lifted.tensors)
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
    ) -> Any:
        acts = any(inner.op.startswith("call") and is_impure(inner) for inner in node.args[0].all_nodes())
        if not (breaks or acts or isinstance(test(*carried, *operands), torch.Tensor | torch.SymBool)):
            return super().call_function(while_loop, (test, body, carried, operands), {})  # the program knows how often
        lifted = _Lifted(self.module, node, [node.args[0], node.args[1]], operands)
        state = [_as_result(value, (value,), node) for value in carried]

        def asked(values: list[Any], rest: Sequence[Any]) -> torch.Tensor:
            with lifted.bound(rest) as others:
                return as_bool(test(*values, *others))

        def step(values: list[Any], rest: Sequence[Any]) -> tuple[Any, ...]:
            with lifted.bound(rest) as others, _unwritten(values, node):
                return tuple(body(*values, *others))

        kinds = [type(value) for value in carried]
        return _loop(node, asked, step, state, kinds, lifted.tensors, breaks)

    def _for_loop(
        self,
        node: Node,
        items: Any,
        body: Any,
        carried: Sequence[Any],
        operands: Sequence[Any] = (),
        breaks: bool = False,
    ) -> Any:
        if not isinstance(items, torch.Tensor | Range | Several):
            raise ExportError(
                f"{node.name} goes over a {type(items).__name__}, which torch.while_loop cannot say",
                at=node.origin,
                fix="go over the rows of a tensor, or over a range",
            )
        numbers = items if isinstance(items, Range) else Range(0, length_of(items, node))
        rows = rows_of(items)
        lifted = _Lifted(self.module, node, [node.args[1]], (*rows, *operands))
        lists = [] if breaks or numbers.step != 1 else lists_filled(node, operands)

        def item(values: Sequence[Any], number: torch.Tensor) -> Any:
            return item_of(items, iter(values), number)

        first = item(rows, torch.zeros((), dtype=torch.int64)) if lists else None
        filled = made_empty(lists, numbers, lambda: body(first, *carried, *operands)) if lists else []
        state = [numbers.start, *filled, *carried]
        state = [_as_result(value, (value,), node) for value in state]

        def asked(values: list[Any], rest: Sequence[Any]) -> Any:
            return values[0] < rest[-1] if numbers.step > 0 else values[0] > rest[-1]

        def step(values: list[Any], rest: Sequence[Any]) -> tuple[Any, ...]:
            number, *values = values
            tensors, values = values[: len(filled)], values[len(filled) :]
            with lifted.bound(rest[:-1]) as given, _unwritten(values, node):
                result = tuple(body(item(given[: len(rows)], number), *values, *given[len(rows) :]))
                tensors = [
                    with_row(tensor, held.pop(), number - numbers.start)
                    for tensor, held in zip(tensors, lists, strict=True)
                ]
            return (*result[:breaks], number + numbers.step, *tensors, *result[breaks:])

        kinds = [None, *[None for _ in filled], *map(type, carried)]
        end = _as_result(numbers.stop, (), node)
        results = _loop(node, asked, step, state, kinds, (*lifted.tensors, end), breaks)[1:]
        self._collected |= {id(held): (held, tensor) for held, tensor in zip(lists, results, strict=False)}
        return results[len(filled) :]


def _loop(
    node: Node,
    asked: Callable[[list[Any], Sequence[Any]], Any],
    step: Callable[[list[Any], Sequence[Any]], tuple[Any, ...]],
    state: list[torch.Tensor],
    kinds: Sequence[Any],
    others: Sequence[torch.Tensor],
    breaks: bool,
) -> tuple[Any, ...]:
    """Run `while_loop` of torch's: on carried tensors, which are of kinds for the program, and on others that stay.

    `asked` and `step` get both. With `breaks`, what a step gives starts with whether the loop ends, and whether it goes
    on is carried first.
    """
    going = [torch.ones((), dtype=torch.bool)] if breaks else []

    def opened(given: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
        end = breaks + len(kinds)
        values = zip(given[breaks:end], kinds, strict=True)
        return [_as_value(value, kind, kind) for value, kind in values], given[end:]

    def test(*given: Any) -> Any:
        holds = asked(*opened(given))
        return holds & given[0] if breaks else holds

    def run(*given: Any) -> tuple[Any, ...]:
        result = step(*opened(given))
        after = [_as_result(value, given, node) for value in result[breaks:]]
        numbers = [
            value.to(was.dtype) if value.dim() == was.dim() == 0 else value
            for value, was in zip(after, state, strict=True)
        ]
        return (*[~as_bool(stop) for stop in result[:breaks]], *numbers)

    results = torch.ops.higher_order.while_loop(test, run, (*going, *state), tuple(others))
    return tuple([_as_value(value, kind, kind) for value, kind in zip(results[breaks:], kinds, strict=True)])


_WRITES = (set_attribute, delete_attribute, write_variable)


def _cannot_write(node: Node, name: str) -> ExportError:
    return ExportError(
        f"an exported program keeps nothing in {name!r} from call to call",
        at=node.origin,
        fix="keep it in a buffer of one shape and dtype",
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
    """What bodies use from around, as tensors that an operator is given: operands, parameters and buffers."""

    def __init__(self, module: nn.Module, node: Node, bodies: Sequence[Any], operands: Sequence[Any]) -> None:
        self._node = node
        self._module, self._operands = module, tuple(operands)
        self._given = [i for i, value in enumerate(self._operands) if _is_of_run(value)]
        known = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        read = (name for body in bodies if isinstance(body, Graph) for name in _names_used(body, known))
        self._names = list(dict.fromkeys(read))
        used = [self._operands[i] for i in self._given]
        own = [_as_result(value, (), node) for value in used]
        self.tensors = (*own, *[known[name] for name in self._names])

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
                kind, node = type(container).__name__, self._node
                raise ExportError(
                    f"{node.name} adds to a {kind} that is around it, which torch's operators cannot",
                    at=node.origin,
                    fix="make a tensor before the loop, and write to its rows",
                )


def _is_of_run(value: Any) -> bool:
    """Tell whether a value is a tensor, or a number that only a run knows."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return bool(free_unbacked_symbols(value))
    return isinstance(value, torch.Tensor)


def _names_used(body: Graph, known: dict[str, torch.Tensor]) -> Iterator[str]:
    """The parameters and buffers that a body reads, or that modules which it calls have."""
    for node in body.all_nodes():
        if node.op == "get_attr" and node.target in known:
            yield str(node.target)
        elif node.op == "call_module":
            yield from (name for name in known if name.startswith(f"{node.target}."))


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


def _item(tensor: torch.Tensor, index: Any) -> Any:
    """`tensor[index]`; a number that only a run knows selects by a tensor, as torch.export can say that alone."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(part, torch.SymInt) and free_unbacked_symbols(part) for part in parts):
        return tensor[index]
    dim, rest = 0, []
    after = tensor.dim() - sum(part is not None and part is not ... for part in parts)  # dimensions of `...`
    for part in parts:
        if part is ...:
            dim += after
        elif isinstance(part, torch.SymInt) and free_unbacked_symbols(part):
            number = as_tensor(part)
            number = torch.where(number < 0, number + tensor.shape[dim], number)
            tensor = tensor.index_select(dim, number.reshape(1))
            part = 0
        rest.append(part)
        dim += part is not None and part is not ...
    return tensor[tuple(rest)]


def _not(holds: Any) -> Any:
    return ~holds if isinstance(holds, torch.Tensor) else torch.sym_not(holds)


def _as_value(value: torch.Tensor, kind: Any, other: Any) -> Any:
    """A result as the program has it: a number where it was one on both sides."""
    is_number = kind is not None and other is not None and issubclass(kind, NUMBERS) and issubclass(other, NUMBERS)
    return value.item() if is_number else value
