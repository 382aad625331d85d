"""`a is b` and `a in values`: for tensors that may be one when the program runs, and for modules."""

from __future__ import annotations

import collections
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import CaptureError, GuardError, trace


def inputs_that_are_one(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return x + 1 if x is z else x + z + 5


def branch_that_keeps(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    y = x
    if x.sum() > 0:
        y = x * 2
    return y + 1 if y is not x else y + 2


def branch_that_chooses(x: torch.Tensor, z: torch.Tensor) -> Any:
    y = x if x.sum() > 0 else z
    return y is x, y is z


def already_contiguous(x: torch.Tensor, z: torch.Tensor) -> Any:
    y = x.contiguous()
    return (x + 1 if y is x else x + 2), x.t().contiguous() is x, x.to(z.dtype) is x


def fresh_values(x: torch.Tensor, z: torch.Tensor) -> Any:
    y = x + 1
    return y is x, y is y, (x * 2) is z


def chain(x: torch.Tensor, z: torch.Tensor) -> Any:
    y = z.contiguous()
    return x + 1 if x is z is y else x


def one(a: Any, b: Any) -> bool:
    return a is b


def in_a_function(x: torch.Tensor, z: torch.Tensor) -> Any:
    return x.relu() + (1 if one(x, z) else 2)


def among_tensors(x: torch.Tensor, z: torch.Tensor) -> Any:
    return x[0, 0] in [1.0, 2.0], 3 in (x[0, 0], z[0, 0]), z[0, 0] not in (x[0, 0], 1)


def bool_on_one_side(x: torch.Tensor, z: torch.Tensor) -> Any:
    found = True if x.sum() > 0 else z[0, 0] < 0
    return (x + 1 if found is True else x + 2), isinstance(found, bool), found in (True, 3)


def flag(value: Any) -> int:
    return 1 if isinstance(value, bool) else 2


def bool_in_a_function(x: torch.Tensor, z: torch.Tensor) -> Any:
    found: Any = False
    if x.sum() > 0:
        found = z[0, 0] < 0
    return x + flag(found)


class Keeps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.same, self.drop = nn.Identity(), nn.Dropout(0.0)

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> Any:
        return self.same(x) is x, (x + 1 if self.drop(x) is x else x + 2)


ONES = torch.ones(2, 2)
PROGRAMS: list[Callable[..., Any]] = [
    inputs_that_are_one, branch_that_keeps, branch_that_chooses, already_contiguous, fresh_values, chain,
    in_a_function, among_tensors, bool_on_one_side, bool_in_a_function, Keeps().eval(), Keeps(),
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: getattr(program, "__name__", "Keeps"))
@pytest.mark.parametrize("example", [(ONES, -ONES), (ONES, ONES), (-ONES, 2 * ONES)], ids=["two", "equal", "negative"])
def test_is_and_in_mean_what_they_mean_when_the_program_runs(program: Any, example: Any) -> None:
    captured = trace(program, example)
    x, other = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.full((2, 2), 3.0)
    values = [x, -x, other, x.t()]
    for given in itertools.product(values, repeat=2):  # the same tensor twice, too
        expected, found = program(*given), captured(*given)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert _types(found) == _types(expected)


def _types(value: Any) -> Any:
    return [type(item) for item in value] if isinstance(value, tuple) else type(value)


def test_is_and_in_are_written_as_they_are() -> None:
    code = trace(among_tensors, (ONES, -ONES)).code
    assert "[0, 0] in [1.0, 2.0]" in code
    assert " not in (" in code
    assert "if x is z else" in trace(inputs_that_are_one, (ONES, -ONES)).code
    assert "return (False, True, False)" in trace(fresh_values, (ONES, -ONES)).code


class Named(collections.namedtuple("Named", ["layer"])):
    __slots__ = ()


class Keyed(nn.Module):
    """Has its modules in containers of all kinds, as items and as keys."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.ReLU()
        self.scales = {self.a: 3.0, (self.b, 1): 5.0}
        self.weak, self.alive = weakref.WeakKeyDictionary({self.a: 2.0}), weakref.WeakSet([self.b])
        self.chosen, self.frozen = {self.a, self}, frozenset([self.b])
        self.ordered, self.counts = collections.OrderedDict(a=self.a), collections.defaultdict(int, {self.a: 7})
        self.queue, self.named = collections.deque([self.a], maxlen=2), Named(self.a)

    def forward(self, x: torch.Tensor) -> Any:
        scale = self.scales[self.a] * self.scales[self.b, 1] * self.weak[self.a] * self.counts[self.a]
        known = [self.a in self.chosen, self in self.chosen, self.b in self.frozen, self.b in self.alive]
        same = [self.ordered["a"] is self.a, self.a in self.queue, self.named.layer is self.a, self.b in self.scales]
        return x * scale, known, same


LAYER, OTHER = nn.Linear(2, 2), nn.ReLU()
LAYERS, SCALES, WEAK = [LAYER], {LAYER: 3.0}, weakref.WeakKeyDictionary({LAYER: 2.0})


NUMBERS, ALONE = {id(OTHER): 3.0}, nn.Linear(2, 2)


def of_ids(x: torch.Tensor) -> torch.Tensor:
    return OTHER(x) * NUMBERS[id(OTHER)]


def is_alone(layer: nn.Module) -> bool:
    return layer is ALONE


def of_another_function(x: torch.Tensor) -> Any:
    return ALONE(x), is_alone(ALONE), is_alone(OTHER)


def of_globals(x: torch.Tensor) -> Any:
    return x * SCALES[LAYER] * WEAK[LAYER], LAYER in LAYERS, LAYERS[0] is LAYER, OTHER in WEAK, OTHER(LAYER(x))


def of_a_closure() -> Callable[..., Any]:
    layer, other = nn.Linear(2, 2), nn.ReLU()
    nested, chosen, scales = [[layer]], {layer}, {layer: 3.0}
    return lambda x: (x * scales[layer], layer in nested[0], layer in chosen, other in chosen, layer(x))


KINDS = ["attributes", "globals", "closure", "ids", "another function"]


@pytest.mark.parametrize("program", [Keyed(), of_globals, of_a_closure(), of_ids, of_another_function], ids=KINDS)
def test_a_module_is_the_one_that_a_container_holds(program: Any) -> None:
    captured = trace(program, (ONES,))
    torch.testing.assert_close(captured(-ONES), program(-ONES), rtol=0, atol=0)


def test_what_a_dict_has_for_a_module_is_not_kept() -> None:
    class Counts(Keyed):
        def forward(self, x: torch.Tensor) -> Any:
            self.scales[self.a] += 1
            return x * self.scales[self.a]

    class Adds(Keyed):
        def forward(self, x: torch.Tensor) -> Any:
            self.weak[self.b] = 3.0
            return x * len(self.weak)

    for module in (Counts(), Adds()):
        with pytest.raises(CaptureError, match="has for modules"):
            trace(module, (ONES,))


def test_ids_that_a_module_keeps_of_others_are_not_silently_those_of_others() -> None:
    class ById(Keyed):
        def __init__(self) -> None:
            super().__init__()
            self.numbers = {id(self.a): 4.0}

        def forward(self, x: torch.Tensor) -> Any:
            return x * self.numbers.get(id(self.a), 0.0)

    with pytest.raises(GuardError, match="numbers was"):  # those of a captured module are other objects
        trace(ById(), (ONES,))(ONES)
