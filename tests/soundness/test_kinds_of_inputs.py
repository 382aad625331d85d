"""Whether an input is None, of which class it is, and which object: whoever asks, another call is right or loud."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from graphwright import CaptureError, GuardError, trace

X = torch.arange(3.0)
MISSING = object()


def exists(value: Any) -> bool:
    return value is not None


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


@dataclasses.dataclass(order=True)
class Adds:
    value: Any = 2.0


@dataclasses.dataclass(order=True)
class Scales:
    value: Any = 2.0


class Batch:
    scale = 2.0

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def has_mask(self) -> bool:
        return self.mask is not None

    @property
    def is_masked(self) -> bool:
        return self.mask is not None


class Wide(Batch):
    scale = 3.0


def by_alias(x: Tensor, value: Any) -> Tensor:
    same = value
    return x if same is None else x + 1


def by_items(x: Tensor, values: Any) -> Tensor:
    for value in values:
        x = x * 2 if value is None else x + 1
    return x


def by_keywords(x: Tensor, **keywords: Any) -> Tensor:
    return x if keywords.get("mask") is None else x + 1


def by_position(x: Tensor, *rest: Any) -> Tensor:
    return x if rest[0] is None else x + 1


def by_pattern(x: Tensor, value: Any) -> Tensor:
    match value:
        case {"mask": None} | "auto" | None:
            return x
    return x + 1


def by_truth(x: Tensor, values: Any) -> Tensor:
    first = values[0]
    return x if first else x + 1


def over_items(x: Tensor, values: Any) -> Tensor:
    return x + sum(map(exists, values)) + len([value for value in values if value is not None])


def or_missing(x: Tensor, value: Any = MISSING) -> Tensor:
    return x if value is MISSING else x + 1


def without_none(x: Tensor, value: Any) -> Any:
    values = [1, value, None]
    values.remove(None)
    return x, values


def kept_by_object(x: Tensor, value: Any) -> Tensor:
    kept = Adds()
    kept.value = value
    return x if kept.value is None else x + 1


def kept_by_its_maker(x: Tensor, value: Any) -> Tensor:
    kept = Adds(value)
    return x if kept.value is None else x + 1


def kept_by_name(x: Tensor, value: Any) -> Tensor:
    kept = Adds()
    setattr(kept, "value", value)  # noqa: B010  # on purpose
    return x if kept.value is None else x + 1


def kept_in_dict(x: Tensor, value: Any) -> Tensor:
    kept = {}
    kept["value"] = value
    return x if kept["value"] is None else x + 1


def kept_in_list(x: Tensor, value: Any) -> Tensor:
    kept: list[Any] = []
    kept.append(value)
    return x if kept[-1] is None else x + 1


def given_by_function(x: Tensor, value: Any) -> Tensor:
    def inside() -> Any:
        return value

    return x if inside() is None or (lambda: value)() is None else x + 1


PROGRAMS: list[tuple[Callable[..., Any], Any, Any]] = [
    (by_alias, X, None), (by_alias, 2, None), (by_items, [X, X], [X, None]), (by_items, (X, 2), (X, None)),
    (by_position, X, None), (by_pattern, {"mask": X}, {"mask": None}), (by_pattern, {"mask": X}, {}),
    (by_pattern, 2, "auto"), (by_pattern, X, None), (by_truth, [Adds()], [None]), (over_items, [X, X], [X, None]),
    (over_items, (X, X), (X, None)), (or_missing, X, MISSING),
    (lambda x, value: x + exists(value), X, None), (lambda x, value: x + is_tensor(value), X, 2.0),
    (lambda x, value: x + operator.is_(value, None), X, None), (lambda x, value: x + (value == "auto"), 2, "auto"),
    (lambda x, value: x + (value is False), X, False), (lambda x, value: x + (value in ("auto", None)), 2, "auto"),
    (lambda x, value: x + (value == (1, 2)), 3, (1, 2)),
    (lambda x, value: x + (value.get("k") is None), {"k": X}, {"k": None}),
    (lambda x, value: x + (value.get("k") == None), {"k": 2.0}, {"k": None}),  # noqa: E711
    (lambda x, value: x + (value["k"] is None), {"k": [X]}, {"k": None}),
    (lambda x, value: x + (value.mask is None), Batch(X), Batch(None)),
    (lambda x, value: x + value.has_mask(), Batch(X), Batch(None)),
    (lambda x, value: x + value.is_masked, Batch(X), Batch(None)),
    (lambda x, value: x * value.scale, Batch(X), Wide(X)), (lambda x, value: x + (value == Adds()), Adds(), Scales()),
    (lambda x, value: x + (value == Adds()), Scales(), Adds()),
    (lambda x, value: x + (value in [Adds()]), Adds(), Scales()),
    (lambda x, value: x + len(repr(value)), Adds(), Scales()),
    (lambda x, value: [x, value | {"a"}], {"a"}, frozenset({"a"})),
    (lambda x, value: x + sum(1 for text in ("a", "b") if text not in value), ["a", "b"], ["a"]),
    (lambda x, value: x + (None is value), X, None), (lambda x, value: x + (None is not value), 2, None),
    (lambda x, value: x + [value].count(None), 2, None), (lambda x, value: x + value.count(None), [2], [None]),
    (lambda x, value: x + [1, None].index(value), 1, None), (without_none, 2, None),
    *[(program, example, None) for program in (
        kept_by_object, kept_by_its_maker, kept_by_name, kept_in_dict, kept_in_list, given_by_function
    ) for example in (X, 2)],
    (lambda x, value: x + (None in [value]), 2, None), (lambda x, value: x + ((value, 1) == (None, 1)), 2, None),
]  # fmt: skip


def outcome(program: Any, *args: Any, **keywords: Any) -> Any:
    try:
        return program(*args, **keywords)
    except (GuardError, TypeError) as error:
        return error


@pytest.mark.parametrize(("program", "example", "other"), PROGRAMS)
def test_another_kind_of_input_is_right_or_loud(program: Any, example: Any, other: Any) -> None:
    gm = trace(program, (X, copy.copy(example)))
    for value in example, other:
        given, wanted = outcome(gm, X, value), outcome(program, X, value)
        if isinstance(given, GuardError):
            assert value is other and " was " in str(given)
        else:
            assert type(given) is type(wanted) and repr(given) == repr(wanted), gm.code


def test_whether_a_keyword_is_none_is_guarded() -> None:
    gm = trace(by_keywords, (X,), {"mask": X})
    with pytest.raises(GuardError, match="argument 'mask' was a tensor"):
        gm(X, mask=None)


def test_what_is_no_question_of_inputs_guards_none() -> None:
    def program(x: Tensor, n: float) -> Tensor:
        total = None
        for i in range(3):
            total = x * i if total is None else total + x * n
        return x if total is None else total

    gm = trace(program, (X, 2))
    assert gm.guards == [] and torch.equal(gm(X, 2.5), program(X, 2.5))


# Which object an argument is, where the program has some of its own.

ONE, OTHER = Batch(1.0), Batch(2.0)
ROWS: list[Any] = []
BY_OBJECT = {ONE: 2.0, OTHER: 3.0}


def is_one(x: Tensor, value: Any) -> Tensor:
    return x + 1 if value is ONE else x


def among(x: Tensor, value: Any) -> Tensor:
    return x + 1 if value in (ONE,) else x


def looked_up(x: Tensor, value: Any) -> Tensor:
    return x * BY_OBJECT[value]


def written(x: Tensor, value: Any) -> Tensor:
    value.mask = x.sum()
    return x + ONE.mask


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = ONE

    def forward(self, x: Tensor, value: Any) -> Tensor:
        return x + 1 if value is self.one else x


@pytest.mark.parametrize("program", [is_one, among, looked_up, written, Holder()])
@pytest.mark.parametrize("values", [(ONE, OTHER), (OTHER, ONE), (Batch(1.0), ONE)])
def test_an_object_of_the_program_that_is_passed_is_that_object(
    program: Any, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ONE, "mask", 1.0)
    if program is looked_up and values[0] not in BY_OBJECT:
        return
    gm = trace(program, (X, values[0]))
    for value in values:
        monkeypatch.setattr(ONE, "mask", 1.0)
        given = outcome(gm, X, value)
        monkeypatch.setattr(ONE, "mask", 1.0)
        assert value is values[1] if isinstance(given, GuardError) else torch.equal(given, program(X, value))


def test_a_list_of_the_program_that_is_passed_and_changed_is_refused() -> None:
    def program(x: Tensor, rows: list[Any]) -> Tensor:
        rows.append(x)
        return x + len(ROWS)

    with pytest.raises(CaptureError, match=r"argument 'rows' of .* is the global 'ROWS'"):
        trace(program, (X, ROWS))
    gm = trace(program, (X, []))
    with pytest.raises(GuardError, match=r"'rows' was an object of its own .* now it is the global 'ROWS'"):
        gm(X, ROWS)
    assert ROWS == []


# The code of what is passed.

RATE = 2.0


class Multiplies:
    by = 2.0

    def __call__(self, x: Tensor) -> Tensor:
        return self.multiplied(x) * RATE

    def multiplied(self, x: Tensor) -> Tensor:
        return x * self.by


def multiplies(x: Tensor) -> Tensor:
    return x * Multiplies.by * RATE


class Table:
    rows: ClassVar[dict[str, Any]] = {"sin": torch.sin}

    def __class_getitem__(cls, name: str) -> Any:
        return cls.rows[name]


@pytest.mark.parametrize("value", [Multiplies(), multiplies, [{"a": Multiplies()}]])
@pytest.mark.parametrize("change", [(Multiplies, "by", 3.0), (Multiplies, "multiplied", lambda self, x: x), ("RATE",)])
def test_what_the_code_of_an_input_finds_is_taken_for_granted(
    value: Any, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(x: Tensor, value: Any) -> Tensor:
        return (value[0]["a"] if isinstance(value, list) else value)(x)

    gm = trace(program, (X, value))
    assert torch.equal(gm(X, value), program(X, value))
    if len(change) == 1:
        monkeypatch.setitem(globals(), "RATE", 5.0)
    else:
        monkeypatch.setattr(*change)
    given = outcome(gm, X, value)
    assert isinstance(given, GuardError) or torch.equal(given, program(X, value))


def test_what_an_item_of_a_class_is_made_from_is_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = trace(lambda x: Table["sin"](x), (X,))
    assert torch.equal(gm(X), X.sin())
    monkeypatch.setitem(Table.rows, "sin", torch.cos)
    with pytest.raises(GuardError, match=r"has changed|was .* when"):
        gm(X)


# What the program reads live of dicts with tensors outside of it, and asks about.

CACHE: Any = {"rows": torch.ones(3)}
CACHES: Any = {"of": {"rows": torch.ones(3)}}


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x if CACHE is None else x + 1,
        lambda x: x if isinstance(CACHE, dict) and CACHE["rows"] is None else x + 1,
        lambda x: x if CACHES["of"] is None else x + 1,
    ],
)
@pytest.mark.parametrize("value", [None, {"rows": None}, {"rows": torch.zeros(3)}, {"rows": torch.ones(3), "more": 3}])
def test_what_a_dict_with_tensors_holds_is_of_its_kind(
    program: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gm = trace(program, (X,))
    assert torch.equal(gm(X), program(X))
    monkeypatch.setitem(globals(), "CACHE", value)
    monkeypatch.setitem(CACHES, "of", value)
    given = outcome(gm, X)
    assert isinstance(given, GuardError) or torch.equal(given, program(X))
    assert isinstance(given, Tensor) or value is None or value["rows"] is None
