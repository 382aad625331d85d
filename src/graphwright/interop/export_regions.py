"""Branches and loops on data, run as torch's higher-order operators while torch.export watches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.stateless import _reparametrize_module

from graphwright.errors import ExportError
from graphwright.ir import Graph, Node
from graphwright.ops import cond, for_loop, while_loop
from graphwright.runtime import Interpreter

__all__ = ["Exporting"]

_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


class Exporting(Interpreter):
    """Runs a graph under torch.export: a branch that data decides is `cond`, a loop `while_loop` of torch's."""

    def run_node(self, n: Node) -> Any:
        """Run one node; of a branch or loop, know where it stands and which bodies it has."""
        self._node = n
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, branches and loops on data as torch's operators."""
        node = self._node
        if target is cond and isinstance(args[0], torch.Tensor | torch.SymBool):
            return self._cond(node, *args)
        if target is while_loop:
            return self._while_loop(node, *args)
        if target is for_loop and not isinstance(args[0], range | list | tuple):
            return self._for_loop(node, *args)
        return super().call_function(target, args, kwargs)

    # ---- branches

    def _cond(self, node: Node, pred: Any, true: Any, false: Any, operands: Sequence[Any] = ()) -> Any:
        if isinstance(pred, torch.Tensor) and pred.dtype is not torch.bool:
            pred = pred != 0
        lifted = _Lifted(self.module, [node.args[1], node.args[2]], operands)
        kinds: list[list[Any]] = []

        def side(body: Any) -> Callable[..., Any]:
            def run(*given: Any) -> tuple[Any, ...]:
                with lifted.bound(given) as values:
                    result = body(*values)
                leaves = result if isinstance(result, tuple) else (result,)
                kinds.append([None if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in leaves])
                return tuple([_as_result(leaf, given, node) for leaf in leaves if leaf is not None])

            return run

        results = torch.ops.higher_order.cond(pred, side(true), side(false), lifted.tensors)
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
        is_tuple = isinstance(node.args[1].output_node().args[0], tuple)  # type: ignore[union-attr]
        return tuple(values) if is_tuple else values[0]

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
        first = test(*carried, *operands)
        if not isinstance(first, torch.Tensor | torch.SymBool):  # the program knows how often
            return super().call_function(while_loop, (test, body, carried, operands, breaks), {})
        lifted = _Lifted(self.module, [node.args[0], node.args[1]], operands)
        kinds = [type(value) for value in carried]
        state = [_as_carried(value, node) for value in carried]
        going = [torch.ones((), dtype=torch.bool)] if breaks else []

        def asked(*given: Any) -> torch.Tensor:
            values, rest = self._opened(given, kinds, breaks)
            with lifted.bound(rest) as others:
                holds = torch.as_tensor(test(*values, *others))
            return holds.bool() & given[0] if breaks else holds.bool()

        def run(*given: Any) -> tuple[Any, ...]:
            values, rest = self._opened(given, kinds, breaks)
            with lifted.bound(rest) as others:
                result = tuple(body(*values, *others))
            left, result = (result[:1], result[1:]) if breaks else ((), result)
            after = [_like(_as_result(value, given, node), before) for value, before in zip(result, state, strict=True)]
            return (*[~torch.as_tensor(stop).bool() for stop in left], *after)

        results = torch.ops.higher_order.while_loop(asked, run, (*going, *state), lifted.tensors)
        return tuple([_as_value(value, kind, kind) for value, kind in zip(results[breaks:], kinds, strict=True)])

    def _for_loop(
        self,
        node: Node,
        items: Any,
        body: Any,
        carried: Sequence[Any],
        operands: Sequence[Any] = (),
        breaks: bool = False,
    ) -> Any:
        if not isinstance(items, torch.Tensor):
            raise ExportError(
                f"{node.name} goes over a {type(items).__name__}, which torch.while_loop cannot say",
                at=node.origin,
                fix="go over the rows of a tensor, or over a range",
            )
        lifted = _Lifted(self.module, [node.args[1]], (items, *operands))
        kinds = [type(value) for value in carried]
        state = [torch.zeros((), dtype=torch.int64), *[_as_carried(value, node) for value in carried]]
        going = [torch.ones((), dtype=torch.bool)] if breaks else []
        length = torch.scalar_tensor(items.shape[0], dtype=torch.int64)

        def asked(*given: Any) -> torch.Tensor:
            number = given[int(breaks)]
            _, rest = self._opened(given, [None, *kinds], breaks)
            holds = number < rest[-1]
            return holds & given[0] if breaks else holds

        def run(*given: Any) -> tuple[Any, ...]:
            values, rest = self._opened(given, [None, *kinds], breaks)
            with lifted.bound(rest[:-1]) as (rows, *others):
                row = rows.index_select(0, values[0].reshape(1)).squeeze(0)
                result = tuple(body(row, *values[1:], *others))
            left, result = (result[:1], result[1:]) if breaks else ((), result)
            after = [
                _like(_as_result(value, given, node), before) for value, before in zip(result, state[1:], strict=True)
            ]
            return (*[~torch.as_tensor(stop).bool() for stop in left], values[0] + 1, *after)

        results = torch.ops.higher_order.while_loop(asked, run, (*going, *state), (*lifted.tensors, length))
        return tuple([_as_value(value, kind, kind) for value, kind in zip(results[breaks + 1 :], kinds, strict=True)])

    @staticmethod
    def _opened(given: Sequence[Any], kinds: Sequence[Any], breaks: bool) -> tuple[list[Any], tuple[Any, ...]]:
        """What a body gets: the carried values as the program has them, and the others."""
        own = given[int(breaks) : int(breaks) + len(kinds)]
        values = [
            value if kind is None else _as_value(value, kind, kind) for value, kind in zip(own, kinds, strict=True)
        ]
        return values, tuple(given[int(breaks) + len(kinds) :])


class _Lifted:
    """What bodies use from around, as tensors that an operator of torch's is given: operands, parameters and buffers."""

    def __init__(self, module: nn.Module, bodies: Sequence[Any], operands: Sequence[Any]) -> None:
        self._module, self._operands = module, tuple(operands)
        self._given = [i for i, value in enumerate(self._operands) if isinstance(value, torch.Tensor)]
        known = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        used = dict.fromkeys(name for body in bodies if isinstance(body, Graph) for name in _names_used(body, known))
        self._names = list(used)
        self.tensors = (*[self._operands[i] for i in self._given], *[known[name] for name in self._names])

    @contextlib.contextmanager
    def bound(self, given: Sequence[Any]) -> Iterator[list[Any]]:
        """The operands, with the tensors that a body was given in place of those around, of the module too."""
        count = len(self.tensors)
        tensors = given[len(given) - count :] if count else ()
        values = list(self._operands)
        for i, tensor in zip(self._given, tensors, strict=False):
            values[i] = tensor
        own = dict(zip(self._names, tensors[len(self._given) :], strict=True))
        with _reparametrize_module(self._module, own):
            yield values


def _names_used(body: Graph, known: dict[str, torch.Tensor]) -> Iterator[str]:
    """The parameters and buffers that a body reads, or that modules which it calls have."""
    for node in body.all_nodes():
        if node.op == "get_attr" and node.target in known:
            yield str(node.target)
        elif node.op == "call_module":
            yield from (name for name in known if name.startswith(f"{node.target}."))


# ---- values that an operator of torch's takes and gives


def _as_result(value: Any, given: Sequence[Any], node: Node) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.clone() if any(value is one for one in given) else value
    if isinstance(value, _NUMBERS):
        return torch.scalar_tensor(value, dtype=_dtype_of(value))  # type: ignore[arg-type]
    raise _cannot_be(value, node)


def _as_carried(value: Any, node: Node) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, _NUMBERS):
        return torch.scalar_tensor(value, dtype=_dtype_of(value))  # type: ignore[arg-type]
    raise _cannot_be(value, node)


def _like(value: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    return value.to(before.dtype) if value.dim() == 0 and before.dim() == 0 else value


def _as_value(value: torch.Tensor, kind: Any, other: Any) -> Any:
    """A result as the program has it: a number where it was one on both sides."""
    is_number = kind is not None and other is not None and issubclass(kind, _NUMBERS) and issubclass(other, _NUMBERS)
    return value.item() if is_number else value


def _dtype_of(number: Any) -> torch.dtype:
    if isinstance(number, bool | torch.SymBool):
        return torch.bool
    return torch.int64 if isinstance(number, int | torch.SymInt) else torch.float64


def _cannot_be(value: Any, node: Node) -> ExportError:
    return ExportError(
        f"{node.name} gives or carries a {type(value).__name__}, which torch's operators cannot",
        at=node.origin,
        fix="let both sides, and each iteration, give tensors or numbers",
    )
