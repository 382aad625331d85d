"""Whether optimized code may answer a call: inputs like the example's, no gradients, nothing that watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

_ATOMS = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout)
_len_dispatch, _len_function = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_transforms, _tracing_state = torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state
_is_autocast = torch._C._is_any_autocast_enabled


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a tensor has to be like: exactly a tensor, of this shape, dtype and device, strided.

    open: the dimensions that may have any other size, but 0.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    open: frozenset[int] = frozenset()


def facts_of(value: Any) -> Any:
    """What an input has to be like to be as this one: `Sizes` of tensors, atoms and containers as they are.

    Raises TypeError for what no facts say, such as an object of the user's own.

    >>> facts_of([torch.ones(2), None])
    [Sizes(shape=(2,), dtype=torch.float32, device=device(type='cpu'), open=frozenset()), None]
    """
    if isinstance(value, Tensor):
        if type(value) not in (Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            raise TypeError(f"an input is a {type(value).__name__} of layout {value.layout}")
        return Sizes(tuple(value.shape), value.dtype, value.device)
    if type(value) in (tuple, list):
        return type(value)(map(facts_of, value))
    if type(value) is dict and all(type(key) in _ATOMS for key in value):
        return {key: facts_of(item) for key, item in value.items()}
    if type(value) in _ATOMS:
        return value
    raise TypeError(f"an input is a {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class Held:
    """An input of another kind, such as a cache of the user's own class: an example of it."""

    value: Any


def facts_or_held(value: Any) -> Any:
    """What `facts_of` gives; `Held` for what no facts say.

    >>> facts_or_held((None, {1, 2}))
    (None, Held(value={1, 2}))
    """
    if type(value) in (tuple, list):
        return type(value)(map(facts_or_held, value))
    if type(value) is dict and all(type(key) in _ATOMS for key in value):
        return {key: facts_or_held(item) for key, item in value.items()}
    try:
        return facts_of(value)
    except TypeError:
        return Held(value)


@dataclass(frozen=True, slots=True)
class AnyInputs:
    """Inputs of any sizes and kinds, of which no gradient is wanted; tensors are on the processor, of these dtypes.

    What gradients objects hold is not looked at: there are none where nothing records them.

    >>> any_inputs = AnyInputs(frozenset({torch.float32}))
    >>> fits([torch.ones(2), None], any_inputs), fits([[torch.ones(2, dtype=torch.long)]], any_inputs)
    (True, False)
    >>> with torch.no_grad():
    ...     fits([{1, 2}], any_inputs)
    True
    """

    dtypes: frozenset[torch.dtype]


def any_inputs(calls: Sequence[Sequence[Any]]) -> AnyInputs:
    """Inputs of which the tensors have dtypes that some facts have."""
    return AnyInputs(frozenset(fact.dtype for facts in calls for fact in tensors_of_facts(list(facts))))


def _is_any(value: Any, dtypes: frozenset[torch.dtype]) -> bool:
    if isinstance(value, Tensor):
        return (
            type(value) in (Tensor, torch.nn.Parameter)
            and value.dtype in dtypes
            and value.device.type == "cpu"
            and value.layout is torch.strided
            and not (value.requires_grad and torch.is_grad_enabled())
        )
    if type(value) in (tuple, list):
        return all(_is_any(item, dtypes) for item in value)
    if type(value) is dict:
        return all(_is_any(item, dtypes) for item in value.values())
    return type(value) in _ATOMS or not torch.is_grad_enabled()


def tensors_of_facts(facts: Any) -> Iterator[Sizes]:
    """The facts of tensors, in the order of the inputs."""
    if isinstance(facts, Sizes):
        yield facts
    elif type(facts) in (tuple, list, dict):
        for each in facts.values() if type(facts) is dict else facts:
            yield from tensors_of_facts(each)


def fits(values: Sequence[Any], facts: Sequence[Any] | AnyInputs) -> bool:
    """Tell whether inputs are like their facts.

    >>> x = torch.ones(2)
    >>> fits([x, 1], facts_of([x, 1])), fits([x, True], facts_of([x, 1])), fits([x[:1], 1], facts_of([x, 1]))
    (True, False, False)
    """
    if isinstance(facts, AnyInputs):
        return all(_is_any(value, facts.dtypes) for value in values)
    for value, fact in zip(values, facts, strict=True):
        if type(fact) is Sizes:
            if (
                (type(value) is not Tensor and type(value) is not torch.nn.Parameter)
                or (value.shape != fact.shape and not _fits_open(value.shape, fact))
                or value.dtype is not fact.dtype
                or value.device != fact.device
                or value.layout is not torch.strided
                or (value.requires_grad and torch.is_grad_enabled())
            ):
                return False
        elif type(value) is not type(fact):
            return False
        elif type(fact) in (tuple, list):
            if len(value) != len(fact) or not fits(value, fact):
                return False
        elif type(fact) is dict:
            if list(value) != list(fact) or not fits([*value.values()], [*fact.values()]):
                return False
        elif type(fact) is float:
            if value.hex() != fact.hex():  # 0.0 and -0.0 are equal
                return False
        elif value is not fact and value != fact:
            return False
    return True


def _fits_open(shape: Sequence[int], fact: Sizes) -> bool:
    """Tell whether sizes differ from those of a fact where these are open alone."""
    if not fact.open or len(shape) != len(fact.shape):
        return False
    return all(
        size == other or (i in fact.open and size > 0)
        for i, (size, other) in enumerate(zip(shape, fact.shape, strict=True))
    )


def with_open_sizes(facts: Any, others: Sequence[Any]) -> Any:
    """Facts of inputs, of which those sizes are open that differ in the facts of others.

    >>> one, other = facts_of([torch.ones(2, 3)]), facts_of([torch.ones(5, 3)])
    >>> fits([torch.ones(7, 3)], with_open_sizes(one, [other])), fits([torch.ones(7, 4)], with_open_sizes(one, [other]))
    (True, False)
    """
    if isinstance(facts, Sizes):
        different = [i for i, size in enumerate(facts.shape) if any(other.shape[i] != size for other in others)]
        return replace(facts, open=frozenset(different))
    if type(facts) in (tuple, list):
        return type(facts)(with_open_sizes(each, [other[i] for other in others]) for i, each in enumerate(facts))
    if type(facts) is dict:
        return {key: with_open_sizes(each, [other[key] for other in others]) for key, each in facts.items()}
    return facts


def is_watched() -> bool:
    """Tell whether something looks at each operation of this thread, or changes it: a mode, a transform, autocast."""
    return (
        _is_autocast()  # of any device
        or _len_function() > 0
        or _len_dispatch() > 0
        or _transforms() is not None
        or _tracing_state() is not None
    )


# ---- other sizes: those of which a program takes all may be any; what code relies on is asked at each of them

# Sizes that are tried: three times one and 5, and so on. They are much larger than those of the example, so that
# nothing holds by chance: where an image of 16 pixels and one of 20 end as one pixel each, one of 75 does not.
_FACTOR, _MORE = 3, (5, 11, 2)
_AT_MOST = 12  # choices of sizes that are tried


def other_sizes(facts: Sequence[Any], runs: Callable[[Sequence[Any]], bool]) -> tuple[Sequence[Any], ...]:
    """Facts of inputs like these, of other sizes, for which `runs` says that a program takes them.

    Dimensions of one size are changed together, then those of one place, then each alone, as far as they were not yet.

    >>> facts = [Sizes((2, 3), torch.float32, torch.device("cpu"))]
    >>> [each[0].shape for each in other_sizes(facts, lambda facts: facts[0].shape[1] == 3)]
    [(11, 3), (17, 3)]
    """
    places = [place for place in _places(facts) if _size_at(facts, place)]
    found: list[Sequence[Any]] = []
    changed: set[tuple[int, int]] = set()
    for chosen in _choices(facts, places):
        if chosen <= changed:
            continue
        tried = [_changed(facts, chosen, more) for more in _MORE]
        taken = [each for each in tried[:2] if runs(each)] or [each for each in tried[2:] if runs(each)]
        if taken:
            found += taken
            changed |= chosen
    return tuple(found)


_Place = tuple[int, int]  # the number of a tensor among the inputs, and a dimension


def _choices(facts: Sequence[Any], places: Sequence[_Place]) -> Iterator[frozenset[_Place]]:
    """Sets of places to change together."""
    seen: set[frozenset[_Place]] = set()
    sizes, numbers = dict.fromkeys(_size_at(facts, place) for place in places), dict.fromkeys(i for _, i in places)
    by_size = [frozenset(place for place in places if _size_at(facts, place) == size) for size in sizes]
    by_number = [frozenset(place for place in places if place[1] == number) for number in numbers]
    for chosen in (*by_size, *by_number, *(frozenset({place}) for place in places)):
        if chosen not in seen and len(seen) < _AT_MOST:
            seen.add(chosen)
            yield chosen


def _places(facts: Sequence[Any]) -> list[_Place]:
    return [(i, dim) for i, fact in enumerate(tensors_of_facts(list(facts))) for dim in range(len(fact.shape))]


def _size_at(facts: Sequence[Any], place: _Place) -> int:
    return [*tensors_of_facts(list(facts))][place[0]].shape[place[1]]


def _changed(facts: Sequence[Any], chosen: frozenset[_Place], more: int) -> Sequence[Any]:
    """Facts with larger sizes in some places: larger by the same in all of them that are of one size."""
    numbers = iter(range(len(_places(facts)) + 1))

    def change(fact: Any) -> Any:
        if isinstance(fact, Sizes):
            i = next(numbers)
            shape = [_FACTOR * size + more if (i, dim) in chosen else size for dim, size in enumerate(fact.shape)]
            return replace(fact, shape=tuple(shape))
        if type(fact) in (tuple, list):
            return type(fact)([change(each) for each in fact])
        return {key: change(each) for key, each in fact.items()} if type(fact) is dict else fact

    return [change(fact) for fact in facts]


def example_of(fact: Any) -> Any:
    """A value that has some facts."""
    if isinstance(fact, Sizes):
        return torch.zeros(fact.shape, dtype=fact.dtype, device=fact.device)
    if type(fact) in (tuple, list):
        return type(fact)(map(example_of, fact))
    if isinstance(fact, Held):
        return fact.value
    return {key: example_of(item) for key, item in fact.items()} if type(fact) is dict else fact
