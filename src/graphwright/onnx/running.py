"""A captured program run while torch.export watches: regions become operators, no number is asked for its example."""

from __future__ import annotations

import builtins
import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError, GraphwrightError
from graphwright.interop import (
    Collected,
    Copies,
    Held,
    Items,
    as_items,
    as_number_tensor,
    call_on_numbers,
    collecting_for,
    collecting_while,
    does_more,
    is_filled,
    is_symbolic,
    item_sources,
    length_of,
    nodes_inside,
    raising_side,
    rows_of,
    tensors_used,
)
from graphwright.ir import Graph, Node
from graphwright.onnx.layers import Kept
from graphwright.onnx.module_functions import call_as_function, is_asked_for
from graphwright.onnx.python_calls import FUNCTIONS, METHODS, Text, is_of_a_run, is_text_of_a_run, written_out
from graphwright.onnx.regions import Around, branch, loop
from graphwright.onnx.torch_private import is_inside_mode
from graphwright.onnx.values import IsNone, Maybe
from graphwright.ops import (
    cond,
    delete_attribute,
    expect_bound,
    for_loop,
    raise_error,
    set_attribute,
    transformed,
    while_loop,
)
from graphwright.runtime import GraphModule, Interpreter, expect, graph_of, is_guard, new_object


class Running(Interpreter):
    """Runs a graph for ONNX; `note` is told of what is not in the model, and of each region what it became."""

    def __init__(
        self,
        module: GraphModule,
        note: Callable[[Node, str, str], None],
        plans: dict[Any, Any],
        drop_guards: bool,
        functions: Sequence[Any] = (),
    ) -> None:
        super().__init__(module)
        self._is_differentiated = is_differentiated(module)
        self.node = next(iter(self.graph.nodes))
        self._note, self._plans, self._drop_guards = note, plans, drop_guards
        self._functions = functions
        self._shown: list[dict[str, torch.Tensor]] = []
        self._objects: Sequence[Any] = ()
        self._quiet = 0
        self._held, self._copies = Held(), Copies()
        self._known = {
            **dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False)),
        }

    def run_with(
        self, names: Sequence[str], tensors: Sequence[torch.Tensor], args: Any, kwargs: Any, objects: Sequence[Any] = ()
    ) -> Any:
        """Run the graph with tensors in place of the module's of these names; it may write to these `objects`."""
        self._objects = objects
        with self._show(dict(zip(names, tensors, strict=True))), Kept():
            return self.run(*args, **kwargs)

    def run_node(self, n: Node) -> Any:
        """Run one node, and know which one it is."""
        self.node = n
        with self._copies.views(self.env, n):
            return super().run_node(n)

    def run_body(self, body: Graph, *operands: Any) -> Any:
        """Run a body with its layers kept, too: torch's regions leave modes behind."""
        with contextlib.nullcontext() if is_inside_mode(Kept) else Kept():
            return super().run_body(body, *operands)

    def body(self, body: Graph, n: Node) -> Any:
        """A function that runs a body, of a loop that collects, too."""
        if n.target in (collecting_for, collecting_while):
            return functools.partial(self.run_body, body)
        return super().body(body, n)

    # ---- what the module has

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module; in a body a parameter is the one that the body was given."""
        for shown in reversed(self._shown):
            if target in shown:
                return shown[target]
        value = super().fetch_attr(target)
        self._held.add(target, value)
        return value

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a module; in a body with the parameters that the body was given."""
        module = super().fetch_attr(target)
        if is_asked_for(target, module, self._functions):
            self._note(self.node, "function", type(module).__name__)
            around = self._around(self.node, (list(args), kwargs))
            return call_as_function(type(module).__name__, lambda *a, **k: self._called(target, a, k), around)
        return self._called(target, args, kwargs)

    def _called(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module, prefix = super().fetch_attr(target), f"{target}."
        own = {
            name[len(prefix) :]: each
            for shown in self._shown
            for name, each in shown.items()
            if name.startswith(prefix)
        }
        if not own:
            return module(*args, **kwargs)
        return torch.func.functional_call(module, own, args, kwargs)

    def write_attribute(self, path: str, value: Any) -> None:
        """Write to a buffer; to an attribute only what it has already, or where the program does not read it.

        Raises ExportError for what another call would read.
        """
        buffer = self.fetch_attr(path) if path in self._known else None
        if buffer is not None and isinstance(value, torch.Tensor) and value.shape == buffer.shape:
            buffer.copy_(value)
        elif buffer is not None or any(read.target == path for read in self._reads):
            if not self._has_already(path, value):
                raise _keeps(self.node, path)
        elif not self._has_already(path, value):
            self._note(self.node, "left out", f"what is written to {path!r}, which the program does not read")

    def _has_already(self, path: str, value: Any) -> bool:
        try:
            held = super().fetch_attr(path)
        except (AttributeError, GraphwrightError):  # there is none yet
            return False
        is_plain = isinstance(value, bool | int | float | str | torch.dtype | torch.device | None)
        return is_plain and type(held) is type(value) and held == value

    @functools.cached_property
    def _reads(self) -> list[Node]:
        return [node for node in graph_of(self.module).all_nodes() if node.op == "get_attr"]

    @contextlib.contextmanager
    def _show(self, tensors: dict[str, torch.Tensor]) -> Iterator[None]:
        self._shown.append(tensors)
        try:
            yield
        finally:
            self._shown.pop()

    # ---- what the program does

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function: regions as operators, functions of numbers as such of tensors and sizes."""
        node = self.node
        if type(target).__hash__ is None:
            return super().call_function(target, args, kwargs)
        if not (target in (set_attribute, delete_attribute) and self._is_given(args[0])):
            self._check_kept(node, args)
        if is_guard(node):
            return self._guard(node, target, args, kwargs)
        if target is cond:
            self._held.branch(node)
        if target in _REGIONS:
            return getattr(self, _REGIONS[target])(node, *args)
        if target in (operator.is_, operator.is_not) and isinstance(args[0], Maybe) and args[1] is None:
            return IsNone(args[0], target is operator.is_)
        if target in (operator.not_, bool) and isinstance(args[0], IsNone):
            return IsNone(args[0].value, args[0].wanted is not (target is operator.not_))
        if target is expect_bound and isinstance(args[0], Maybe):
            self._note(node, "not checked", f"whether {args[1]} has a value: ONNX has no errors")
            return None
        if target is raise_error:
            raise _refused(node, f"the program raises {getattr(args[0], '__name__', args[0])} for every input")
        if target is builtins.print:
            self._note(node, "left out", "print: ONNX has nothing of the kind")
            return None
        if target is torch._assert and not isinstance(args[0], bool):
            self._check(node, args[0])
            return None
        if is_text_of_a_run(target, args):
            return self._text(args)
        if _has_maybe(args, kwargs):
            if target in _STORES or (target is operator.setitem and isinstance(args[0], list | dict)):
                return super().call_function(target, args, kwargs)
            return self._of_maybe(self.call_function, target, args, kwargs)
        for known in (NotImplemented if kwargs else call_on_numbers(target, args), item_sources(target, args, kwargs)):
            if known is not NotImplemented:
                return known
        if target in (torch.tensor, torch.as_tensor) and self._shown[1:] and args and not kwargs.keys() - {"dtype"}:
            args = (written_out(args[0]),)
        if target is operator.getitem and isinstance(args[0], torch.Tensor):
            return self._copies.read(*args)
        special = FUNCTIONS.get(target)
        given = NotImplemented if special is None else special(*args, **kwargs)
        if given is not NotImplemented:
            return given
        _check_whole(node, args)
        if getattr(target, "__module__", None) in ("_operator", "operator"):
            args = _sizes_with_tensors(args)
        value = super().call_function(target, args, kwargs)
        self._held.read(target, args, value)
        return value

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method: of a list what a loop collected may be added, a tensor gives no Python numbers."""
        self._check_kept(self.node, args)
        if _has_maybe(args, kwargs) and not isinstance(args[0], list | dict):
            return self._of_maybe(self.call_method, target, args, kwargs)
        value, *rest = args
        if target == "extend" and isinstance(value, list) and isinstance(rest[0], Collected):
            value.append(rest[0])
            return None
        if isinstance(value, torch.Tensor):
            special = METHODS.get(target)
            given = NotImplemented if special is None else special(value, *rest, **kwargs)
            if given is not NotImplemented:
                return given
        if isinstance(value, str) and any(is_of_a_run(arg) for arg in pytree.tree_leaves((args, kwargs))):
            return self._text(args)
        _check_whole(self.node, args)
        return super().call_method(target, args, kwargs)

    def _check_kept(self, node: Node, args: tuple[Any, ...]) -> None:
        name = self._held.written_by(node, args)
        if name is not None:
            raise _keeps(node, name)

    def _is_given(self, value: Any) -> bool:
        """Tell whether a value is an object of the arguments, outside of regions: what is written to it comes out."""
        return not self._shown[1:] and any(value is each for each in self._objects)

    def _of_maybe(self, call: Callable[..., Any], target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with what may be None is a branch where the call takes None; the program takes a tensor elsewhere."""
        node = self.node
        maybe = next(arg for arg in (*args, *kwargs.values()) if isinstance(arg, Maybe))

        def side(given: list[Any], named: dict[str, Any]) -> Any:
            self.node = node
            return call(target, tuple(given), named)

        try:
            around = self._around(node, (list(args), kwargs))
            return self._at(node, branch, node, IsNone(maybe, True), (side, side), around, self._plans)
        except (TypeError, AttributeError):  # it does not
            plain = {name: arg.tensor if arg is maybe else arg for name, arg in kwargs.items()}
            return call(target, tuple([arg.tensor if arg is maybe else arg for arg in args]), plain)

    def _text(self, args: Any) -> Text:
        """A text of values that only a run knows, which nothing but an error or a print can show."""
        self._note(self.node, "left out", "a text of values: ONNX has no such thing")
        return Text(args[0] if isinstance(args[0], str) else "")

    # ---- guards

    def _guard(self, node: Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Keep what the capture took for granted: of a size as a fixed one, of data as a refusal."""
        if target is not expect or not any(isinstance(arg, torch.Tensor) or is_symbolic(arg) for arg in args[:1]):
            return super().call_function(target, args, kwargs)
        value, captured, where = args
        if isinstance(value, torch.SymInt) and not self._drop_guards:
            torch._check(value == captured)
            self._note(node, "fixed", f"a size is {captured}, as when the program was captured: {where}")
            return None
        if isinstance(value, torch.SymBool) and not self._drop_guards:
            torch._check(value if captured else torch.sym_not(value))
            self._note(node, "fixed", f"sizes for which this was {captured}, as captured: {where}")
            return None
        if not self._drop_guards:
            raise ExportError(
                f"the program was captured where a value was {captured!r}, which an ONNX model cannot check",
                at=where,
                fix="capture it so that this is no guard, or pass guards='drop' if it always holds",
            )
        self._note(node, "dropped", f"the guard that a value is {captured!r}: {where}")
        return None

    # ---- regions

    def _around(self, node: Node, operands: Sequence[Any]) -> Around:
        known = {**self._known, **{name: each for shown in self._shown for name, each in shown.items()}}
        used = tensors_used(self.module, [node, *nodes_inside(node)], known)
        return Around(node, [_plain(each) for each in operands], used, self._show)

    def _branch(self, node: Node, pred: Any, true: Any, false: Any, operands: Sequence[Any] = ()) -> Any:
        if isinstance(pred, torch.SymInt):
            pred = pred != 0
        if is_filled(pred):
            pred = length_of(pred) != 0
        if not isinstance(pred, torch.Tensor | torch.SymBool | IsNone):
            return (true if pred else false)(*operands)
        raising = raising_side(node)
        if raising is not None:
            self._raises(raising[0], pred, raising[1] == 0)
            return (true if raising[1] else false)(*operands)
        if isinstance(pred, torch.SymBool):
            known = self._of_sizes(node, pred, true, false, operands)
            if known is not NotImplemented:
                return known
        self._note(node, "If", "")
        return self._at(node, branch, node, pred, (true, false), self._around(node, operands), self._plans)

    def _of_sizes(self, node: Node, pred: Any, true: Any, false: Any, operands: Sequence[Any]) -> Any:
        """A branch on sizes that gives a truth of sizes, `a or b`, or a size, as one; NotImplemented for all others."""
        bodies = [arg for arg in node.args if isinstance(arg, Graph)]
        if any(inner.target not in _OF_SIZES for body in bodies for inner in body.nodes if inner.op not in _NO_CALLS):
            return NotImplemented
        one, other = true(*operands), false(*operands)
        if all(isinstance(each, int | torch.SymInt) and type(each) is not bool for each in (one, other)):
            symbol = one if isinstance(one, torch.SymInt) else other
            return torch.sym_ite(pred, *[each + (symbol - symbol) for each in (one, other)])  # both of one class
        if not all(isinstance(each, bool | torch.SymBool) for each in (one, other)):
            return NotImplemented
        return _either_truth(_both_true(pred, one), _both_true(torch.sym_not(pred), other))

    def _raises(self, raising: Node, pred: Any, when: bool) -> None:
        """One side raises: ONNX has no errors, so of sizes it is what the model is for, and of data it is said."""
        self._check(raising, torch.sym_not(pred) if when and isinstance(pred, torch.SymBool) else pred)

    def _check(self, node: Node, holds: Any) -> None:
        if isinstance(holds, torch.SymBool):
            torch._check(holds)
        self._note(node, "not checked", "the program raises an error here: ONNX has none")

    def _at(self, node: Node, function: Callable[..., Any], *args: Any) -> Any:
        """Run a region; an error without a place gets that of its node."""
        if self._is_differentiated and torch.is_grad_enabled():
            raise _refused(node, "a branch or loop on data that is differentiated")
        shown, given = list(self._shown), (*args, self._quiet > 0) if function is branch else args
        try:
            return function(*given)
        except ExportError as error:
            if error.at is None:
                raise ExportError(error.args[0], at=node.origin or node.name, fix=error.fix) from error
            raise
        finally:
            self._shown[:] = shown

    def _while(
        self, node: Node, test: Any, body: Any, carried: Any, operands: Any = (), breaks: bool = False, count: int = 0
    ) -> Any:
        if does_more(node.args[0]):
            raise _refused(node, "the test of a loop does more than compute a value")
        first = test(*carried, *operands)
        if not breaks and not isinstance(first, torch.Tensor) and not is_symbolic(first):
            kind = collecting_while if count else while_loop
            more = (False, count) if count else (False,)
            return kind(test, body, carried, operands, *more)  # the program knows how often
        self._note(node, "Loop", "")
        return self._at(node, loop, node, None, test, body, carried, self._around(node, operands), breaks)

    def _for(
        self,
        node: Node,
        iterable: Any,
        body: Any,
        carried: Any,
        operands: Any = (),
        breaks: bool = False,
        count: int = 0,
    ) -> Any:
        if is_filled(iterable):
            iterable = iterable[0] if len(iterable) == 1 else rows_of(iterable)
        is_known = not isinstance(iterable, torch.Tensor | Items)
        if is_known and not breaks and (not isinstance(iterable, range) or len(iterable) <= UNROLLED):
            kind = collecting_for if count else for_loop
            more = (False, count) if count else (False,)
            return kind(iterable, body, carried, operands, *more)
        items = as_items(iterable if not is_known or isinstance(iterable, range) else list(iterable))
        self._note(node, "Loop", "")
        around = self._around(node, (items, *operands))
        source = items, self._copies.next_item
        return self._at(node, loop, node, source, None, body, carried, around, breaks)


_STORES = (new_object, set_attribute)


def _has_maybe(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(isinstance(arg, Maybe) for arg in (*args, *kwargs.values()))


def is_differentiated(module: GraphModule) -> bool:
    """Tell whether a program computes gradients, or has a function transformed."""
    return any(_differentiates(node) for node in graph_of(module).all_nodes())


def _differentiates(node: Node) -> bool:
    if node.op == "call_method":
        return bool(node.target == "backward")
    is_transform = node.target is transformed and str(node.args[0]).startswith(
        ("torch.vmap", "torch.func", "torch.autograd")
    )
    return is_transform or node.target in (torch.autograd.grad, torch.autograd.backward)


UNROLLED = 32  # numbers of a range that is gone over without a loop of ONNX's

_OF_SIZES = (operator.ne, operator.eq, operator.lt, operator.le, operator.gt, operator.ge, operator.not_, operator.add,
             operator.sub, operator.mul, operator.mod, operator.floordiv, cond, "size", "dim")  # fmt: skip
_NO_CALLS = ("placeholder", "output")


def _both_true(a: Any, b: Any) -> Any:
    if isinstance(b, bool):
        return a if b else False
    return a & b if not isinstance(a, bool) else b if a else False


def _either_truth(a: Any, b: Any) -> Any:
    if isinstance(a, bool) or isinstance(b, bool):
        known, other = (a, b) if isinstance(a, bool) else (b, a)
        return True if known else other
    return a | b


_REGIONS = {
    cond: "_branch",
    while_loop: "_while",
    for_loop: "_for",
    collecting_for: "_for",
    collecting_while: "_while",
}


def _keeps(node: Node, name: str) -> ExportError:
    return ExportError(
        f"an ONNX model keeps nothing in {name!r} from call to call",
        at=node.origin,
        fix="give it as a result, and take it as an input",
    )


def _refused(node: Node, why: str) -> ExportError:
    return ExportError(f"{node.name}: {why}", at=node.origin, fix="keep that outside of the exported program")


def _plain(value: Any) -> Any:
    """What may be None, where the program takes it for a tensor."""
    return value.tensor if isinstance(value, Maybe) else value


def _sizes_with_tensors(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Real numbers of a run as tensors, where an operator of Python's meets them with tensors."""
    if not any(isinstance(arg, torch.Tensor) for arg in args):
        return args
    kinds = torch.SymFloat | torch.SymBool
    return tuple([as_number_tensor(arg) if isinstance(arg, kinds) else arg for arg in args])


def _check_whole(node: Node, args: tuple[Any, ...]) -> None:
    """Refuse what reads a text of values, or a list that a loop filled, item by item: only a run knows them."""
    for arg in args:
        if isinstance(arg, Text):
            raise _refused(node, "a text of values that only a run knows is read")
        if is_filled(arg) or isinstance(arg, Collected):
            raise ExportError(
                f"{node.name} reads a list that a loop filled as often as data says, which ONNX has only as one tensor",
                at=node.origin,
                fix="make one tensor of it: torch.stack(values) or torch.cat(values)",
            )
