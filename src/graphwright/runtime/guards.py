"""Guards: what a capture took for granted, checked when the captured module runs.

A guard is a node like any other, so it is printed, run, moved and erased like any other: `expect(value, True,
"model.py:3: if x.dim() == 3:")` raises GuardError when the value is another.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy
import torch
from torch import nn

from graphwright.errors import GraphError, GuardError, on_screen
from graphwright.ir import Graph, Node
from graphwright.ops import has_no_side_effect
from graphwright.runtime.graph_facts import facts_of_modules
from graphwright.runtime.outside import ABSENT, METHODS, NAMES, Outside
from graphwright.runtime.premises.text import any_of, said_of_modules

CAPTURE = "capture"  # in the meta of a node that asks one of the questions: which capture it is asked for


# ---- questions: each answers with a sentence on what is unlike, an empty one where nothing is


def unlike(value: Any, captured: Any, where: str) -> str:
    """Say how a value differs from what it was when the program was captured; nothing where it does not.

    >>> unlike(3 > 2, True, "model.py:3: if n > 2:")
    ''
    """
    if value is captured or value == captured:
        return ""
    was, now = _both(captured, value, repr)
    return f"at {where} the program was captured where this was {was}; now it is {now}"


def unlike_inputs(**inputs: tuple[Any, ...]) -> str:
    """Say which of some inputs is unlike what it was when the program was captured.

    Each comes with the dtype and rank of the tensor that it was, None for what may be another, several dtypes for what
    may be one of them (and `list`, if it was a list of tensors); with its class, or with its value.

    >>> unlike_inputs(x=(torch.ones(3), torch.float32, 1), y=(torch.ones(3), torch.Tensor), n=(3, int))
    ''
    >>> unlike_inputs(mask=(None, None), causal=(False, True))
    "argument 'causal' was True when the program was captured; now it is False"
    >>> unlike_inputs(x=([torch.ones(3), torch.ones(2)], torch.float32, 1, list))
    ''
    """
    for name, (value, *captured) in inputs.items():
        kind = captured[0]
        if len(captured) == 3 and type(value) is not list:
            return _misfit(name, value, list)
        if len(captured) > 1:
            held = {f"{name}_{i}": item for i, item in enumerate(value)} if len(captured) == 3 else {name: value}
            unlike_ones = [each for each, item in held.items() if not _is_tensor(item, *captured[:2])]
            if not unlike_ones:
                continue
            name, value = unlike_ones[0], held[unlike_ones[0]]
        elif isinstance(kind, type):
            if kind is torch.Tensor:
                _class_asked(value)
            if (isinstance(value, torch.Tensor) if kind is torch.Tensor else _class_of(value) is kind) or value is kind:
                continue
        elif value is kind or _is_like(value, kind):
            continue
        return _misfit(name, value, *captured[:2])
    return ""


def _class_of(value: object) -> type:
    """The class of a value; of a number of a capture, which takes it for granted then, that which it stands for."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) and hasattr(value.node, "recorder"):
        kind: type = value.node.recorder.numbers.class_expected(value.node)
        return kind
    return type(value)


def _is_like(value: Any, captured: Any) -> bool:
    """Tell whether a value is a captured one; in containers, True is another key or item than 1.

    >>> _is_like([1, "a"], [1, "a"]), _is_like([True], [1]), _is_like(frozenset({1.0}), frozenset({1}))
    (True, False, False)
    """
    kind = type(captured)
    if _class_of(value) is not kind or value != captured:
        return False
    if kind is list or kind is tuple:
        return all(map(_is_like, value, captured))
    if kind is frozenset or kind is set:
        return {(type(item), item) for item in value} == {(type(item), item) for item in captured}
    return True


def _is_tensor(value: Any, dtype: Any, rank: int | None) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    if dtype is not None and value.dtype != dtype and (type(dtype) is not tuple or value.dtype not in dtype):
        return False
    return rank is None or value.dim() == rank


def _tensor_kind(dtype: Any, rank: int | None) -> str:
    """Say what is known of a tensor: "a torch.float32 tensor of 2 dimensions"."""
    dtype = any_of(dtype) if type(dtype) is tuple else dtype
    kind = "a tensor" if dtype is None else f"a {dtype} tensor"
    return kind if rank is None else f"{kind} of {rank} dimension{'' if rank == 1 else 's'}"


def _class_asked(value: Any, of_subclass: bool = False) -> type:
    """The class of what may be a tensor; one of a program that is being captured is told that it is asked for."""
    asked = getattr(type(value), "class_asked", None) if isinstance(value, torch.Tensor) else None
    return type(value) if asked is None else asked(value, of_subclass)


def _misfit(name: str, value: Any, *captured: Any) -> str:
    now = _brief(value)
    if len(captured) == 2:
        was = _tensor_kind(*captured)
        if isinstance(value, torch.Tensor):
            dtype, rank = captured
            now = _tensor_kind(None if dtype is None else value.dtype, None if rank is None else value.dim())
    elif captured[0] is torch.Tensor:
        was = "a tensor"
    elif isinstance(captured[0], type):
        was = f"of class {captured[0].__name__}"
    else:
        was, now = _both(captured[0], value, _brief)
    were, are = ("were", "they are") if type(captured[0]) is list else ("was", "it is")
    return f"{_subject(name, captured[0])} {were} {was} when the program was captured; now {are} {now}"


_OF_ARGUMENTS = {
    "items_": (frozenset, "what is in argument {!r}"),
    "names_": (list, "the attributes of argument {!r}"),
    "keys_": (list, "the keys of argument {!r}"),
    "len_": (int, "the length of argument {!r}"),
}


def _subject(name: str, captured: Any) -> str:
    """What a guard is about, by its name in the generated code: lists are those of keys and of attributes."""
    for prefix, (kind, text) in _OF_ARGUMENTS.items():
        if type(captured) is kind and name.startswith(prefix):
            return text.format(name.removeprefix(prefix))
    return f"argument {name!r}"


def _both(captured: Any, value: Any, write: Callable[[Any], str]) -> tuple[str, str]:
    """What a value was and what it is, as text; where these read alike, it is another object of its class.

    >>> _both(1, 2, repr), _both(float("nan"), float("nan"), repr)
    (('1', '2'), ('nan', 'another float (nan)'))
    """
    was, now = write(captured), write(value)
    if was != now:
        return was, now
    kind = type(value)
    if kind is not type(captured):
        return was, f"{now} of another class, {kind.__module__}.{kind.__qualname__}"
    return was, f"another {kind.__name__}" + ("" if now == kind.__name__ else f" ({now})")


# ---- checks


def expect(value: Any, captured: Any, where: str) -> None:
    """Raise GuardError unless a value is what it was when the program was captured.

    >>> expect(3 > 2, True, "model.py:3: if n > 2:")
    """
    is_other = type(captured) in (int, float) and type(value) in _NUMBERS - {type(captured)}
    if value is not captured and (value != captured or is_other):
        was, now = _both(captured, value, repr)
        raise GuardError(
            f"the program was captured where this was {was}; now it is {now}",
            at=where,
            fix="capture again with these inputs as the example",
        )


_NUMBERS = {int, float, bool}  # 2 == 2.0, but no list can be multiplied by it


def expect_class(value: Any, captured: type, where: str) -> None:
    """Raise GuardError unless a number or error of a program is of the class that it was of at capture.

    What was a tensor may be one of any class, and what torch has stand for numbers counts as what it stands for.

    >>> expect_class(2**3, int, "model.py:3: if isinstance(2**k, int):")
    """
    kind = _STAND_FOR.get(type(value), type(value))
    if kind is not captured and not (captured is torch.Tensor and isinstance(value, torch.Tensor)):
        raise GuardError(
            f"the program was captured where this was of class {captured.__name__}; "
            f"now it is of class {type(value).__name__}",
            at=where,
            fix="ask for no class, make a number one of a class of its own, float(n), or capture again",
        )


_STAND_FOR: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def expect_values(where: str, **pairs: tuple[Any, Any]) -> None:
    """Raise GuardError unless arguments, each paired with its value at capture, have these values.

    >>> expect_values("Model.forward", mask=(None, None), causal=(True, True))
    """
    for name, (value, captured) in pairs.items():
        if value is not captured and not _is_like(value, captured):
            is_given = _subject(name, captured).startswith("argument") and type(captured) is not list
            like = f"that passes {name}" if is_given else "like this"
            raise GuardError(_misfit(name, value, captured), at=where, fix=f"capture again with an example {like}")


def expect_tensors(where: str, **kinds: tuple[Any, Any, int | None]) -> None:
    """Raise GuardError unless tensors, each with its dtype and rank at capture, have these; None: any.

    >>> expect_tensors("Model.forward", x=(torch.ones(2, 3), torch.float32, 2))
    """
    misfit = unlike_inputs(**kinds)
    if misfit:
        raise GuardError(misfit, at=where, fix="capture again with an example like this, or with both: examples=[...]")


@has_no_side_effect
def device_of_each(tensors: Iterable[torch.Tensor], device: torch.device) -> torch.device:
    """Answer a device where each of some tensors is on it, else the first other one.

    >>> device_of_each([torch.ones(2), torch.ones(3)], torch.device("cpu"))
    device(type='cpu')
    """
    return next((tensor.device for tensor in tensors if tensor.device != device), device)


@has_no_side_effect
def autocast_beyond(kind: str, dtypes: Iterable[torch.dtype]) -> bool:
    """Tell whether `torch.autocast` is on for a kind of device, and casts to a dtype that is none of some.

    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     autocast_beyond("cpu", [torch.bfloat16]), autocast_beyond("cpu", [torch.float16])
    (False, True)
    """
    return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) not in dtypes


@has_no_side_effect
def class_of_tensor(held: torch.Tensor | Iterable[torch.Tensor]) -> str:
    """The name of the class of a tensor; of several, that of the first that is not a plain one.

    What torch has stand for tensors while it exports a program counts as what it stands for.

    >>> class_of_tensor(torch.ones(2)), class_of_tensor([torch.ones(2), torch.nn.Parameter(torch.ones(3))])
    ('torch.Tensor', 'torch.nn.parameter.Parameter')
    """
    tensors = held if isinstance(held, list | tuple) else [held]  # of whatever else: the class that it is
    kinds = [_class_asked(tensor, of_subclass=True) for tensor in tensors if type(tensor) is not torch.Tensor]
    kind = next((kind for kind in kinds if not kind.__module__.startswith("torch._subclasses.")), torch.Tensor)
    return f"{kind.__module__}.{kind.__qualname__}"


def expect_kinds(where: str, **kinds: tuple[Any, type]) -> None:
    """Raise GuardError unless arguments are of the classes that they had when the program was captured.

    >>> expect_kinds("Model.forward", x=(torch.ones(2, 3), torch.Tensor), n=(3, int))
    """
    misfit = unlike_inputs(**kinds)
    if misfit:
        raise GuardError(misfit, at=where, fix="capture again with an example of this kind")


def expect_state(where: str, *facts: tuple[str, Any, Any]) -> None:
    """Raise GuardError unless what a program reads from outside is what it was when the program was captured.

    Each fact says what it is, and has its value now and at capture.

    >>> expect_state("Model.forward", ("the global 'SCALE' of model", 2, 2))
    """
    for subject, value, captured in facts:
        if value is not captured and not _is_like(value, captured):
            was, now = _both(captured, value, _brief)
            raise GuardError(
                f"the program was captured for {was} in {subject}; now it is {now}",
                at=where,
                fix="put it back, or capture again",
            )


def expect_outside(where: str, outside: Outside, **inputs: Any) -> None:
    """Raise GuardError unless a program would find outside of itself what it found when it was captured.

    `inputs` are arguments that are to be none of the objects there.

    >>> expect_outside("Model.forward", Outside())
    """
    if torch.compiler.is_compiling():
        return
    for name, value in inputs.items():
        subject = outside.subject_of(value)
        if subject is not None:
            raise GuardError(
                f"argument {name!r} was an object of its own when the program was captured; now it is {subject}",
                at=where,
                fix="capture again with an example that passes it, or pass a copy",
            )
    changed = outside.changed()
    if changed is not None:
        now, what = changed.now(), "has changed since the program was captured"
        if changed.value is ABSENT and changed.owner is sys.modules:
            what = "was missing when the program was captured; now it is there"
        elif changed.value is ABSENT:
            what = f"was no attribute of its own when the program was captured; now it is {_brief(now)}"
        elif changed.value is NAMES:
            others = " and ".join(sorted({*now} ^ {*changed.held})) or "another order"
            what = f"were others when the program was captured, which looks for them: {others}"
        elif changed.value is METHODS:
            what = f"was something else when the program was captured: {changed.held.others(changed.owner)}"
        elif changed.is_plain():
            was, now = _both(changed.value if changed.held is None else changed.held, now, _brief)
            what = f"was {was} when the program was captured; now it is {now}"
        raise GuardError(
            f"{changed.subject} {what}",
            at=where,
            fix="put it back, or capture again",
        )


def tensors_from_outside(module: nn.Module, graphs: Iterable[Graph]) -> dict[str, torch.Tensor]:
    """The buffers of a module that are tensors which its program finds outside, and which a copy of it finds, too."""
    constants = {name: value for name, value in module._buffers.items() if name.startswith("_tensor_constant")}
    if not constants:
        return {}
    lines = [line for graph in graphs for line in graph.find_nodes(op="call_function", target=expect_outside)]
    found = {key for line in lines for key in line.args[1].tensors()}
    return {name: value for name, value in constants.items() if id(value) in found and value is not None}


@has_no_side_effect
def shared(**values: Any) -> str:
    """Say which of some values are one object: 'none', or the names of those that are another one.

    >>> a, b = [], []
    >>> shared(a=a, b=b), shared(a=a, b=b, c=a)
    ('none', 'c is a')
    """
    first: dict[int, str] = {}
    found = [(name, first.setdefault(id(value), name)) for name, value in values.items()]
    return ", ".join(f"{name} is {known}" for name, known in found if name != known) or "none"


# What generated code calls to check what was taken for granted.
EXPECTATIONS = (
    expect, expect_class, expect_kinds, expect_outside, expect_state, expect_tensors, expect_values, unlike,
    unlike_inputs, shared, class_of_tensor, device_of_each, autocast_beyond,
)  # fmt: skip


def _brief(value: Any) -> str:
    """Write a plain value, or a short container of them, whole; of anything else its class."""
    held = value if isinstance(value, list) else value.values() if isinstance(value, dict) else (value,)
    is_plain = len(held) <= _MOST and all(isinstance(item, _PLAIN) for item in held)
    return repr(value) if is_plain else type(value).__name__


_PLAIN = (
    bool, int, float, complex, str, slice, range, enum.Enum, numpy.generic, type(None), torch.dtype, torch.device,
    torch.layout,
)  # fmt: skip
_MOST = 16  # items of a container that a message shows


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """One thing that a capture took for granted, and the node that checks it.

    `what` is taken for granted, `at` the user's line or the name of the program, `name` the input if it is about one.
    What is taken for granted of modules is no node: `expect_modules(self)` in the code checks it.
    """

    text: str
    node: Node | None
    what: str = ""
    at: str = ""
    name: str = ""

    def __str__(self) -> str:
        return on_screen(self.text)


def is_guard(node: Node) -> bool:
    """Tell whether a node checks what a capture took for granted, or asks for it: it reads values and writes none.

    >>> graph = Graph()
    >>> is_guard(graph.call_function(expect, (graph.placeholder("x"), 3, "model.py:3")))
    True
    """
    return node.op == "call_function" and type(node.target).__hash__ is not None and node.target in _SAYS


def guards_of(graph: Graph) -> list[Guard]:
    """List the guards of a graph, in the order in which they are checked."""
    facts = facts_of_modules(graph)
    of_modules = [Guard(said, None, said)] if facts and (said := said_of_modules(facts)) else []
    return of_modules + [guard for node in graph.all_nodes() if is_guard(node) for guard in _SAYS[node.target](node)]


def summed_up(guards: Iterable[Guard]) -> list[Guard]:
    """Say each thing that is taken for granted once, and of the arguments of a program that are None all in one.

    >>> graph = Graph()
    >>> a, b = graph.placeholder("a"), graph.placeholder("b")
    >>> _ = graph.call_function(expect_values, ("f",), {"a": (a, None), "b": (b, None)})
    >>> [guard.text for guard in summed_up(guards_of(graph))]
    ['f: a and b are None']
    """
    said: dict[Hashable, list[Guard]] = {}
    for guard in guards:
        is_none = bool(guard.name) and guard.what == f"{guard.name} is None"
        said.setdefault((guard.at, id(guard.node)) if is_none else guard.text, []).append(guard)
    return [_several(alike) if len({guard.name for guard in alike}) > 1 else alike[0] for alike in said.values()]


def _several(guards: list[Guard]) -> Guard:
    *others, last = [guard.name for guard in guards]
    what = f"{', '.join(others)} and {last} are None"
    return dataclasses.replace(guards[0], text=f"{guards[0].at}: {what}", what=what, name="")


_MOST_NAMES = 24


def _of_one(node: Node) -> list[Guard]:
    value, captured, where = node.args
    if isinstance(value, Node) and value.target is hasattr:
        value = f"hasattr({value.args[0]}, {value.args[1]!r})"
    what = f"{value} was {captured!r}"
    return [Guard(f"{where} [{what}]", node, what, str(where))]


def _of_class(node: Node) -> list[Guard]:
    value, captured, where = node.args
    what = f"{value} was of class {captured.__name__}"
    return [Guard(f"{where} [{what}]", node, what, str(where))]


def _of_inputs(node: Node) -> list[Guard]:
    return [_of_input(node, name, *captured) for name, (_, *captured) in node.kwargs.items()]


def _of_state(node: Node) -> list[Guard]:
    where, *facts = node.args
    what = ", ".join(f"{subject} is {_brief(captured)}" for subject, _, captured in facts)
    return [Guard(f"{where}: {what}", node, what, str(where))] if facts else []


def _of_outside(node: Node) -> list[Guard]:
    where, outside = node.args
    named = [text for text in outside.what if " is " not in text]
    left_out = {*named[_MOST_NAMES:]}  # a program may look for thousands of names in its classes
    told = [text for text in outside.what if text not in left_out]
    what = ", ".join([*told, f"{len(left_out)} more"] if left_out else told)
    return [Guard(f"{where}: {what}", node, what, str(where))] if what else []


def _of_input(node: Node, name: str, captured: Any, *more: Any) -> Guard:
    if more and node.target is expect_values:
        raise GraphError(f"the guard {node.name!r} compares {name!r} with more than one value")
    if more:
        rank, holder = (*more, None)[:2]
        kind = _tensor_kind(captured, rank)
        kind = kind if holder is None else f"a list of {kind.removeprefix('a ').replace('tensor', 'tensors', 1)}"
    elif isinstance(captured, type) and node.target is not expect_values:
        kind = "a tensor" if captured is torch.Tensor else f"of class {captured.__name__}"
    else:
        kind = _brief(captured)
    at = str(node.args[0] if node.args else node.meta.get(CAPTURE, ""))
    return Guard(f"{at}: {name} is {kind}", node, f"{name} is {kind}", at, name)


_SAYS: dict[Any, Callable[[Node], list[Guard]]] = {
    **dict.fromkeys((expect, unlike), _of_one),
    expect_class: _of_class,
    expect_state: _of_state,
    expect_outside: _of_outside,
    **dict.fromkeys((expect_kinds, expect_values, expect_tensors, unlike_inputs), _of_inputs),
}
