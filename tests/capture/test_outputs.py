"""What a program returns: containers, views, generators and objects of whatever class come out as eager gives them."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from graphwright import CaptureError, Interpreter, load, save, symbolic_trace, trace


class Slots:
    __slots__ = ("__private", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.__private = tensor, 2

    def both(self) -> tuple[Any, Any]:
        return self.tensor, self.__private


class Rows(tuple):  # type: ignore[type-arg]
    pass


class Items(list):  # type: ignore[type-arg]
    note: Any


class Table(dict):  # type: ignore[type-arg]
    pass


T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value


def noted(x: Tensor) -> Any:
    items = Items([x])
    items.note = x * 2
    return items


class Kind(enum.Enum):
    FIRST = 1


def number_generator(x: Tensor) -> Any:
    for i in range(3):
        yield x * i


OUTPUTS: dict[str, Callable[[Tensor], Any]] = {
    "a Counter": lambda x: collections.Counter({"rows": x.shape[0], "other": 2}),
    "keys": lambda x: {"a": x, "b": x}.keys(),
    "values": lambda x: {"a": x, "b": x + 1}.values(),
    "items": lambda x: {"a": x, "b": x + 1}.items(),
    "values of an OrderedDict": lambda x: collections.OrderedDict(a=x, b=x + 1).values(),
    "a generator": number_generator,
    "a generator in a dict": lambda x: {"all": (x * i for i in range(2)), "x": [x]},
    "an iterator": lambda x: iter([x, x + 1]),
    "a set": lambda x: {1, 2},
    "a frozenset": lambda x: frozenset(["a"]),
    "a set of tensors": lambda x: {x + 1},
    "a range": lambda x: range(x.shape[0]),
    "a namespace": lambda x: types.SimpleNamespace(a=x, n=x.shape[0]),
    "an object with slots": lambda x: Slots(x * 2),
    "a tuple of a class of its own": lambda x: Rows([x, x + 1]),
    "an object of a class with parameters": lambda x: Box[Tensor](x * 2),
    "a dict of a class with parameters": lambda x: typing.OrderedDict([("a", x * 2)]),
    "an enumeration": lambda x: (x, Kind.FIRST),
    "a named result": lambda x: x.max(0),
    "a deque": lambda x: collections.deque([x, x + 1], maxlen=4),
    "a ChainMap": lambda x: collections.ChainMap({"a": x}, {"b": x + 1}),
}


OF_PARAMETERS = "a dict of a class with parameters"


def plain(value: Any) -> Any:
    """A value as what it is and holds, to be compared."""
    kind = type(value).__name__
    if isinstance(value, Tensor):
        return kind, value.tolist()
    if isinstance(value, collections.abc.Mapping):
        return kind, [(key, plain(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted(str(plain(item)) for item in value)
    if isinstance(value, collections.abc.Iterable) and not isinstance(value, str):
        return kind, [plain(item) for item in value]
    if isinstance(value, Slots):
        return kind, plain(value.both())
    if isinstance(value, types.SimpleNamespace):
        return kind, plain(vars(value))
    if isinstance(value, Box):
        return kind, plain(value.value)
    return kind, value


@pytest.mark.parametrize("what", OUTPUTS)
def test_outputs_have_the_class_and_content_that_eager_gives(what: str, tmp_path: Path) -> None:
    program = OUTPUTS[what]
    gm = trace(program, (torch.ones(2, 3),))
    x = torch.arange(6.0).reshape(3, 2)
    assert plain(gm(x)) == plain(program(x))
    assert plain(Interpreter(gm).run(x)) == plain(program(x))
    save(gm, tmp_path / "program.gw")
    assert plain(load(tmp_path / "program.gw", allow=[__name__, "collections"])(x)) == plain(program(x))


def test_containers_of_classes_of_their_own_keep_these_without_examples() -> None:
    x = torch.ones(2)
    for program in (lambda x: Items([x]), lambda x: Table(a=x), lambda x: Rows([x]), noted, OUTPUTS[OF_PARAMETERS]):
        assert plain(symbolic_trace(program)(x)) == plain(program(x))
    assert torch.equal(symbolic_trace(noted)(x).note, x * 2)


def test_a_partial_function_has_the_values_of_a_run() -> None:
    gm = trace(lambda x: functools.partial(torch.add, x * 2, alpha=3), (torch.ones(2),))
    assert torch.equal(gm(torch.full((2,), 5.0))(torch.ones(2)), torch.full((2,), 13.0))


class Holder:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def method(self) -> Tensor:
        return self.tensor


def highest(found: Any) -> Any:
    return found.values


def test_a_function_kept_as_one_node_gets_a_named_result() -> None:
    x = torch.randn(3, 2)
    gm = trace(lambda x: highest(x.max(0)), (x,), leaf_functions=[highest])
    assert "return highest(x.max(0))" in gm.code
    assert torch.equal(gm(x), x.max(0).values)


def test_a_function_that_closes_over_values_is_made_again() -> None:
    gm = trace(lambda x: lambda y: x + y, (torch.ones(2),))
    assert torch.equal(gm(torch.zeros(3))(torch.ones(3)), torch.ones(3))


@pytest.mark.parametrize("program", [lambda x: Holder(x * 2).method])
def test_a_method_of_an_object_with_values_is_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match="cannot write a function that closes over values of the program"):
        trace(program, (torch.ones(2),))


def test_objects_with_slots_are_inputs_that_the_program_changes() -> None:
    def program(x: Tensor, held: Slots) -> Tensor:
        held.tensor = held.tensor + x
        return held.tensor * 2

    gm = trace(program, (torch.ones(2), Slots(torch.ones(2))))
    held = Slots(torch.full((3,), 4.0))
    assert torch.equal(gm(torch.ones(3), held), torch.full((3,), 10.0))
    assert torch.equal(held.tensor, torch.full((3,), 5.0))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, hidden = self.gru(packed)
        padded, lengths = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
        return padded, hidden, lengths, packed


def test_packed_sequences_are_nodes_and_outputs(tmp_path: Path) -> None:
    model = Recurrent()
    gm = trace(model, (torch.randn(2, 5, 3), torch.tensor([2, 5])))
    assert len(gm.graph.find_nodes(op="call_function", target=pack_padded_sequence)) == 1
    save(gm, tmp_path / "recurrent.gw")
    for captured in (gm, load(tmp_path / "recurrent.gw", allow=[__name__])):
        x, lengths = torch.randn(4, 6, 3), torch.tensor([1, 6, 3, 3])
        got, wanted = captured(x, lengths), model(x, lengths)
        assert type(got[3]) is PackedSequence
        for one, other in zip((*got[:3], *got[3]), (*wanted[:3], *wanted[3]), strict=True):
            torch.testing.assert_close(one, other)


@dataclasses.dataclass
class _Named:
    tensor: Any
    kind: typing.ClassVar[str] = "named"


class _GivesNamed(nn.Module):
    def forward(self, x: Any) -> Any:
        made = _Named(x * 2)
        if isinstance(x, torch.Tensor) and x.sum() > 0:
            made = _Named(x * 3)
        return made


def test_what_a_dataclass_s_class_holds_is_no_argument() -> None:
    x = torch.ones(2)
    gm = trace(_GivesNamed(), (x,))
    assert torch.equal(gm(x).tensor, x * 3)
    assert torch.equal(gm(-x).tensor, x * -2)
    assert torch.equal(symbolic_trace(_GivesNamed())(-x).tensor, x * -2)


def test_state_dict_is_an_output() -> None:
    class Model(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return self.state_dict()

    model = Model(3, 2)
    gm = trace(model, (torch.ones(3),))
    with torch.no_grad():
        model.weight.add_(1)
        gm.weight.copy_(model.weight)
    ours, eager = gm(torch.ones(3)), model(torch.ones(3))
    assert type(ours) is type(eager) and ours._metadata == eager._metadata
    assert ours.keys() == eager.keys() and all(torch.equal(ours[key], eager[key]) for key in eager)
    nn.Linear(3, 2).load_state_dict(ours)


class Named(dict):  # type: ignore[type-arg]
    """A dict with attributes of its own."""


def test_dicts_with_attributes_are_outputs() -> None:
    def program(x: torch.Tensor) -> Any:
        found = Named(y=x + 1)
        found.size = x.shape[0]
        found.total = x.sum()
        return found

    gm = trace(program, (torch.ones(3),))
    found = gm(torch.ones(4))
    assert type(found) is Named and torch.equal(found["y"], torch.full((4,), 2.0))
    assert found.size == 4 and found.total == 4


def test_methods_of_what_a_run_has_are_those_of_that_run() -> None:
    def program(x: Tensor, n: int) -> Any:
        return x.add, x.split, n.bit_length, x.shape.numel

    gm = trace(program, (torch.ones(2), 3))
    add, split, bit_length, numel = gm(torch.ones(4), 9)
    assert torch.equal(add(1), torch.full((4,), 2.0)) and len(split(2)) == 2
    assert bit_length() == 4 and numel() == 4


class Keyed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        table = collections.Counter([x, y, y])
        return {x: y, (y, 1): {x + 1: 2}}, table, {each: each.sum() for each in self.parameters()}


def test_keys_that_are_tensors_are_those_of_the_call() -> None:
    gm = trace(Keyed(), (torch.ones(2), torch.zeros(2)))
    for module in (gm, copy.deepcopy(gm)):
        x, y = torch.ones(3), torch.zeros(3)
        first, counts, sums = module(x, y)
        assert list(first) == [x, (y, 1)] and first[x] is y and counts[y] == 2
        assert all(mine is its for mine, its in zip(sums, module.parameters(), strict=True))
        assert [type(key) for key in first[y, 1]] == [Tensor]
