"""Lists, dicts, sets and deques to which a loop adds: from before it on, only a run knows what is in them."""

from __future__ import annotations

import collections
import functools
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.item_kinds import kind_of_table
from graphwright.capture.containers.loop_lists import LoopList, LoopQueue
from graphwright.capture.containers.loop_sets import opened_table
from graphwright.capture.effects.branch_state import State
from graphwright.capture.proxies.constructors import container_call
from graphwright.capture.proxies.contents import DICTS, Container, changeable, content, refill
from graphwright.capture.proxies.unbound import Unbound
from graphwright.capture.state.plan import Way
from graphwright.capture.state.running import RUN
from graphwright.capture.state.samples import Growable, Grows, Unlike
from graphwright.ir import Node
from graphwright.source import EMPTY, HIDDEN, content_of, read_later, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture

OPENABLE: tuple[type, ...] = (list, set, collections.deque, *DICTS)
_LOOKS: tuple[type, ...] = (  # what looks into a container as it is when it is asked
    *(type(getattr({}, name)()) for name in ("keys", "values", "items")),
    *map(type, (iter([]), iter({}), iter({}.values()), iter({}.items()), iter(set()), reversed([]), reversed({}))),
    *(enumerate, zip, map, filter),
)
_DEPTH = 4  # how far inside of each other the objects are that may hold one


def make_growing(
    recorder: Capture, state: State, growth: Grows, place: Place | None, fallback: Way | None, can_wait: bool = False
) -> tuple[Any, Any]:
    """Have what a loop makes longer be one of which only a run knows what is in it, from before a branch or loop on.

    Returns it with what is in it by then. Raises Unlike where that cannot be; where the program turns out to read it as
    a whole, `fallback` is what is done about the branch or loop instead.
    """
    whole = growth.content
    kind = type(whole).__name__
    holders = [name for name, cell in state.cells.items() if content_of(cell) is whole]
    owners = [now for now, _ in state._containers if _holds(now, whole)]
    if not holders and not owners:
        raise Unlike(f"{growth.name or f'a {kind}'} gets longer in a loop, and other parts of the program see it")
    name, hidden, _ = (growth.name or (holders or _keys(owners[0], whole) or [kind])[0]).partition(HIDDEN)
    name = recorder.target_name() or name if hidden else name
    with torch._C.DisableTorchFunction():
        give_up: Any = None if fallback is None else functools.partial(recorder.plan.change, place, fallback, name)
        if can_wait:
            give_up = functools.partial(
                recorder.questions.forking.differ, place, f"{name} is read as a whole", can_wait
            )
        grown = _opened(recorder, whole, name, place, give_up)
        if isinstance(grown, LoopList | LoopQueue):
            grown.is_sized = fallback in ("guard", "unroll")
    for holder in holders:
        state.cells[holder].cell_contents = grown
    for owner in owners:
        held = content(owner)
        items = held.items() if isinstance(held, dict) else enumerate(held)
        for key in [key for key, item in items if item is whole]:
            owner[key] = grown
    if id(whole) in getattr(recorder, "objects", ()) or is_held(whole, sys._getframe(1), recorder.loops.going_over):
        raise Unlike(f"{name} gets longer in a loop, and other parts of the program see it")
    if _has_known_items(whole, sys._getframe(1)):
        raise Unlike(f"what is in {name} is changed in a loop, and has another name in the program")
    held = grown.content()
    refill(whole, _unreadable(whole, Unbound(name, recorder.where(), place)))  # whoever else holds it
    return grown, held


def _has_known_items(whole: Growable, frame: FrameType) -> bool:
    """Tell whether the program reaches a list or dict in a container by another way, such as twice in this one."""
    inner = [*_inside(whole)]
    return len({*map(id, inner)}) < len(inner) or any(is_held(each, frame) for each in inner)


def _inside(container: Container) -> Iterator[Any]:
    """The lists, dicts and sets in a container, and those in them: once for each place."""
    held = content(container)
    waiting = [*(held.values() if isinstance(held, dict) else held)]
    while waiting:
        item = waiting.pop()
        if type(item) is tuple:
            waiting += item
        elif type(item) in OPENABLE:
            yield item
            waiting += item.values() if isinstance(item, dict) else item


def _holds(container: Container, whole: Growable) -> bool:
    """Tell whether a list, dict or deque of the program's has another one as an item."""
    if type(container) not in OPENABLE or type(container) is set:
        return False
    held = content(container)
    is_module = isinstance(held, dict) and "_parameters" in held  # its attributes are written when the program ends
    return not is_module and any(item is whole for item in (held.values() if isinstance(held, dict) else held))


def _keys(container: Container, whole: Growable) -> list[str]:
    """The keys under which a dict has another container."""
    held = content(container)
    if not isinstance(held, dict):
        return []
    return [key for key, item in held.items() if item is whole and isinstance(key, str) and key.isidentifier()]


def _opened(
    recorder: Capture, whole: Growable, name: str, place: Place | None, give_up: Callable[[], Any] | None
) -> Any:
    """What stands for a list, dict, set or deque, given by a node that makes it. Raises Unlike."""
    if type(whole) is list:
        items = [*whole]
        node = recorder.make(
            "call_function", list, ([recorder.argument(item) for item in items],) if items else (), name
        )
        _put_after_items(node)
        return LoopList(items, recorder, node, name, place, give_up)
    if type(whole) is not collections.deque:
        kind_of_table(recorder.joining, whole, name)
    function, args = (dict, (dict(whole),)) if type(whole) is dict else container_call(whole)  # type: ignore[misc]
    if not whole:
        args = args[:-1] if type(whole) is not collections.deque or whole.maxlen is None else args
    node = recorder.make("call_function", function, tuple(map(recorder.argument, args)), name)
    _put_after_items(node)
    if type(whole) is collections.deque:
        return LoopQueue(whole, recorder, node, name, place, give_up)
    return opened_table(recorder, whole, node, name, place, give_up)


def _unreadable(whole: Growable, mark: Unbound) -> Any:
    """What is left in a list, dict, set or deque that something else stands for: whoever reads it is told."""
    if isinstance(whole, set):
        return set()
    return {"": mark} if isinstance(whole, dict) else [mark]


def _put_after_items(node: Node) -> None:
    """Move a list that was made for a loop to where its items were computed: that is where the program makes it."""
    items = node.all_input_nodes
    last = functools.reduce(lambda one, other: other if one < other else one, items) if items else None
    if last is not None and last.op != "placeholder" and last.next is not node:
        last.append(node)
        node._origin = last._origin


def is_held(whole: Growable, frame: FrameType | None, going_over: Iterable[Any] = (), only_read: bool = False) -> bool:
    """Tell whether the program reaches a container by another way than the variables that were given another one.

    It would find there what it is not told of: so much as `len` and the truth of it say nothing then. `going_over` are
    what its loops go over, which no variable need have. With `only_read` a variable counts that it may still read.
    """
    seen: set[int] = set()

    def reaches(value: Any, depth: int) -> bool:
        if value is whole:
            return True
        if id(value) in seen or not depth:
            return False
        if type(value) is tuple or type(value) is frozenset:
            return any(reaches(item, depth - 1) for item in value)
        if isinstance(value, FunctionType):
            seen.add(id(value))
            cells = [content_of(cell) for cell in value.__closure__ or ()]
            return any(reaches(held, depth - 1) for held in cells if held is not EMPTY)
        if isinstance(value, _LOOKS):
            return any(reaches(held, depth - 1) for held in gc.get_referents(value))
        for container in changeable(value):
            seen.add(id(value))
            if container is whole:
                return True
            held = content(container)
            if any(reaches(item, depth - 1) for item in (held.values() if isinstance(held, dict) else held)):
                return True
        return False

    if any(reaches(each, _DEPTH) for each in going_over):
        return True
    while frame is not None and frame.f_code is not RUN:
        held = frame.f_locals if user_frame(frame) is frame else {}
        names = held if not held or not only_read else read_later(frame.f_code, frame.f_lasti)
        if any(reaches(value, _DEPTH) for name, value in held.items() if name in names):
            return True
        frame = frame.f_back
    return False
