"""The class of numbers, where a program asks for it: int, float, bool or complex.

That of most follows from the classes of what they are computed from: `n + 1` is what n is. That of a few follows from
values: `2**k` is a float where k is negative, `max(k, 0.5)` is one of the two, what a loop adds up may be the int that
it started with. Such a class is the example's, and checked where the program asks.
"""

from __future__ import annotations

import contextlib
import math
import opcode
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.conversion.conversion import is_converted
from graphwright.capture.proxies.uncertain import asked_for_class
from graphwright.capture.state.ledger import Unforeseen
from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.ir import Graph, Node
from graphwright.ops import cond, is_region, results_of, values_for
from graphwright.runtime import expect_class

if TYPE_CHECKING:
    from types import FrameType

    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.regions import Region
    from graphwright.capture.state.tensor_proxy import TensorProxy

_TRUTHS: frozenset[Any] = frozenset({
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.not_, operator.is_,
    operator.is_not, operator.contains, bool, isinstance, issubclass, hasattr, callable, any, all, math.isnan,
    math.isinf, math.isfinite, math.isclose,
})  # fmt: skip
# Whose result is of one class, whatever they get.
_FIXED = _TRUTHS | {function for function in vars(math).values() if callable(function)} - {math.prod}
_FIXED |= {int, float, len, ord, hash, id, operator.truediv, operator.index, operator.lshift, operator.rshift}
_METHODS = frozenset({"size", "numel", "dim", "isdigit", "startswith", "endswith", "find", "count", "index"})
_EACH = (True, 1, 1.5, 1j)


def ask_class(recorder: TypedCapture, symbol: Symbol) -> None:
    """The program asks for the class of a number: what it follows from is taken for granted."""
    where = recorder.where() or ""
    if has_sure_class(symbol):
        for read in _read_from(symbol):
            recorder.ledger.tensor(read, "dtype", where)
        return
    key = "class", symbol.key
    if any(key in region.attributes for region in recorder.region.all()):
        return
    arguments = (recorder.numbers.node_of_symbol(symbol), symbol.kind, where)
    made = recorder.node("call_function", expect_class, arguments, {}, name="guard")
    recorder.region.attributes[key] = made


def take_for_tensor(recorder: TypedCapture, mixed: TensorProxy, may_be_asked: bool) -> None:
    """The program uses as a tensor what is a number on some ways: the graph checks that it is none.

    A loop that starts with a number hands that to its first iteration. Where the program may ask which it is, as
    `may_be_asked` tells, only what adds up no items at all is checked. Raises what ends the capture for all else.
    """
    node = mixed.node_of()
    if mixed.mixed_at is not None or (may_be_asked and node.target is not sum):
        raise asked_for_class(mixed)
    key = "class", id(mixed)
    if not any(key in region.attributes for region in recorder.region.all()):
        arguments = (node, torch.Tensor, recorder.where() or "")
        recorder.region.attributes[key] = recorder.node("call_function", expect_class, arguments, {}, name="guard")


def class_read(recorder: TypedCapture, symbol: Symbol, frame: FrameType) -> None:
    """Code that runs in a frame of the program reads the `__class__` of a number.

    For `isinstance(n, int)` the function is converted. What torch does in C, for `x * n`, does so, too.
    """
    code = frame.f_code
    instruction = code.co_code[frame.f_lasti]
    if instruction not in _READS and (instruction not in _CALLS or _WORDS.isdisjoint(code.co_names)):
        return
    if has_sure_class(symbol) and next(_read_from(symbol), None) is None:
        return
    if instruction not in _READS:
        recorder.questions.staging.stage(frame)
    if instruction in _READS or not is_converted(code):
        ask_class(recorder, symbol)


_READS = frozenset(code for name, code in opcode.opmap.items() if name in ("LOAD_ATTR", "MATCH_CLASS"))
# A function that has run before may call in what comes before the call, on Python 3.11.
_CALLS = frozenset(code for name, code in opcode.opmap.items() if name.startswith(("CALL", "PRECALL")))
_WORDS = frozenset({"isinstance", "hasattr", "getattr"})


def has_sure_class(symbol: Symbol) -> bool:
    """Tell whether the class of a number follows from those of what it is computed from, whatever these are."""
    function, args, kind = symbol.function, symbol.args, type(symbol)
    if function in ("opaque", "branch", "input"):
        return args[0] not in symbol.recorder.ledger.unforeseen
    if isinstance(function, str) or function in _FIXED:
        return True
    if not all(type(arg) is kind for arg in args):  # what a container holds, or a function of tensors gives
        return False
    if function is operator.pow and not _is_plain_power(*args):
        return False
    if function in (max, min) and len({arg.kind for arg in args}) > 1:
        return False
    return all(map(has_sure_class, args[:1] if function is round else args))


def has_one_class(node: Node) -> bool:
    """Tell whether the number that a node gives is of one class, whatever that gets."""
    return node.target in (_METHODS if node.op == "call_method" else _FIXED)


def is_always_bool(symbol: Symbol) -> bool:
    """Tell whether a bool of the example is one in every call: the answer to a question, or a flag of the program."""
    function = symbol.args[0].target if symbol.function == "opaque" else symbol.function
    return function in _TRUTHS or function in ("truth", "training", "constant")


def is_flag(region: Region, subject: Any) -> bool:
    """Tell whether what decides a branch is a bool in every call that another branch or a loop gives.

    Such as whether a loop was left; what it took from the items that it went over may be a number in another call.
    """
    if not (isinstance(subject, Symbol) and subject.kind is bool and subject.function in ("opaque", "branch")):
        return False
    known = {node for each in region.all() for node in each.flags}  # of loops whose nodes are not made yet
    lifted = {inside: outside for each in region.all() for outside, inside in each.lifted.items()}
    return _region_of(subject.args[0]) is not None and _Bools(known, lifted).gives(subject.args[0])


def _region_of(node: Node) -> Node | None:
    """The branch or loop that a node is, or takes a value from."""
    found: Any = node.args[0] if node.target is operator.getitem else node
    return found if isinstance(found, Node) and is_region(found) else None


class _Bools:
    """Tells which values of a graph are bools in every call.

    `known` are some that are, `lifted` inputs of bodies whose branches are not made yet, with what they stand for.
    """

    def __init__(self, known: set[Node], lifted: dict[Node, Node]) -> None:
        self._seen, self._lifted = known, lifted
        self._around: dict[Graph, Node] = {}  # the branches and loops that were met, by their bodies

    def gives(self, value: Any) -> bool:
        if not isinstance(value, Node):
            return type(value) is bool
        if value in self._seen:  # what an iteration hands to the next, or tells how a loop is left
            return True
        self._seen.add(value)
        if value.op == "placeholder":
            owner, outside = self._around.get(value.graph), self._lifted.get(value)
            given = [] if owner is None else values_for(owner, value)
            return bool(given or outside) and all(map(self.gives, given or [outside]))
        region = _region_of(value)
        if region is None:
            return value.op == "call_function" and value.target in _TRUTHS
        bodies: Any = region.args[1:3] if region.target is cond else region.args[1:2]
        self._around.update(dict.fromkeys(bodies, region))
        index: Any = value.args[1]
        results = [body.output_node().args[0] for body in bodies] if region is value else results_of(region, index)
        return all(map(self.gives, results))


def _is_plain_power(base: Symbol, exponent: Symbol) -> bool:
    """Tell whether the class of a power follows from those of what it is made of: no sign decides."""
    known = exponent.hint if exponent.function == "constant" else None
    if base.kind is float or exponent.kind is float:  # a root of what is negative is complex
        is_whole = exponent.kind is not float or (known is not None and known % 1 == 0)
        return is_whole or (base.function == "constant" and base.hint >= 0)
    return exponent.function in ("size", "numel") or (known is not None and known >= 0)


def _read_from(symbol: Symbol) -> Iterator[Any]:
    """The tensors whose data a number is, so that it is of the class of their dtype."""
    if symbol.function == "item":
        yield symbol.args[0]
    if symbol.function not in _FIXED:
        for arg in symbol.args:
            if type(arg) is type(symbol):
                yield from _read_from(arg)


def _is_surely(kind: type, symbol: Symbol | None) -> bool:
    if symbol is None or symbol.kind is not kind or not has_sure_class(symbol):
        return False
    return next(_read_from(symbol), None) is None


def note_class(recorder: TypedCapture, node: Node, kind: type, sides: Iterable[Any] = (None,)) -> None:
    """Note that a node gives a number whose class does not follow from what it is computed from.

    `sides` are the numbers that a branch gives: of one class for sure, there is nothing to note.
    """
    if not all(type(side) is kind or _is_surely(kind, symbol_of(side)) for side in sides):
        recorder.ledger.unforeseen[node] = Unforeseen({"dtype": kind}, recorder.where() or "")


def is_told_by(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Tell whether a question tells the classes of numbers apart.

    >>> is_told_by(isinstance, (3, int)), is_told_by(isinstance, (3, str)), is_told_by(type, (3,))
    (True, False, True)
    """
    if function is type or len(args) < 2:
        return function is type
    answers: set[Any] = set()
    with contextlib.suppress(TypeError, AttributeError):
        answers = {bool(function(each, args[1])) for each in _EACH}
    return len(answers) != 1
