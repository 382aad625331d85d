"""Modules that are called like one before: their part of the graph is copied, and is what a capture would have made.

Each program is captured with and without copies; what differs of a later module must be seen.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright.capture.typed import copy_budget, repeats
from graphwright.runtime import facts_of_modules

copies: list[str] = []


@pytest.fixture(autouse=True)
def _noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Note which calls are copied; small modules are worth it here."""
    copies.clear()
    gc.disable()  # what it finalizes in the middle of a capture would be heard, and the call not copied
    copy = repeats.Repeats._copy

    def noted(self: Any, call: Any, called: Any) -> Any:
        given = copy(self, call, called)
        copies.append(called.path)
        return given

    monkeypatch.setattr(repeats.Repeats, "_copy", noted)
    monkeypatch.setattr(copy_budget, "_LEAST", 0)
    monkeypatch.setattr(copy_budget, "_SMALLEST", 0)
    monkeypatch.setattr(copy_budget, "_MOST_HEARD", 0)
    monkeypatch.setattr(copy_budget, "_MOST_BETWEEN", 0)
    with graphwright.config.set(copy_layers=True):
        yield
    gc.enable()


@contextlib.contextmanager
def no_copies() -> Iterator[None]:
    with graphwright.config.set(copy_layers=False):
        yield


def captured(model: nn.Module, *args: Any, copied: list[str], **kwargs: Any) -> graphwright.GraphModule:
    """Capture a model, compare it with its capture without copies and with the model itself."""
    gm = graphwright.trace(model, args, kwargs)
    last = list(dict.fromkeys(copies))
    copies.clear()
    assert last == copied
    with no_copies():
        plain = graphwright.trace(model, args, kwargs)
    assert not copies
    assert gm.code == plain.code
    assert facts_of_modules(gm.graph) == facts_of_modules(plain.graph)
    assert [node.origin for node in gm.graph.nodes] == [node.origin for node in plain.graph.nodes]
    assert gm.graph.meta.get("calls") == plain.graph.meta.get("calls")
    nested = graphwright.trace(model, args, kwargs, flat=False)
    assert list(dict.fromkeys(copies)) == copied
    copies.clear()
    with no_copies():
        plain = graphwright.trace(model, args, kwargs, flat=False)
    assert said_by(nested) == said_by(plain)
    assert nested.meta.get("flat_calls") == plain.meta.get("flat_calls")
    torch.testing.assert_close(nested(*args, **kwargs), model(*args, **kwargs), rtol=0, atol=0)
    torch.testing.assert_close(gm(*args, **kwargs), model(*args, **kwargs), rtol=0, atol=0)
    return gm


def said_by(nested: nn.Module) -> list[tuple[str, Any, Any]]:
    """The code of all modules of a nested capture, where their nodes come from, and what is taken for granted."""
    modules = [(name, module) for name, module in nested.named_modules() if hasattr(module, "graph")]
    return [
        (module.code, [node.origin for node in module.graph.nodes], (name, facts_of_modules(module.graph)))
        for name, module in modules
    ]


class Block(nn.Module):
    def __init__(self, index: int = 0, scale: float = 0.5) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(4), nn.Linear(4, 4)
        self.index, self.scale = index, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.linear(self.norm(x)))


class Stack(nn.Module):
    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_blocks_of_one_kind_are_captured_twice() -> None:
    captured(
        Stack([Block(i) for i in range(5)]), torch.randn(2, 4), copied=["blocks.2", "blocks.3", "blocks.4"]
    )  # the number of a block goes nowhere


def test_a_copy_has_the_values_of_its_own_module() -> None:
    gm = captured(Stack([Block() for _ in range(4)]), torch.randn(2, 4), copied=["blocks.2", "blocks.3"])
    with torch.no_grad():
        gm.blocks[3].linear.weight.zero_()
        gm.blocks[3].linear.bias.zero_()
    x = torch.randn(3, 4)
    assert torch.equal(gm(x), gm.blocks[2](gm.blocks[1](gm.blocks[0](x))))


class Indexed(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (self.index + 1) if self.index % 2 else super().forward(x)


def test_an_attribute_that_is_asked_for_tells_modules_apart() -> None:
    captured(Stack([Indexed(i) for i in range(5)]), torch.randn(2, 4), copied=[])
    captured(Stack([Indexed(3) for i in range(4)]), torch.randn(2, 4), copied=["blocks.2", "blocks.3"])


class Scaled(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale


def test_numbers_that_the_graph_reads_tell_modules_apart() -> None:
    gm = captured(Stack([Scaled(scale=0.1 * i) for i in range(4)]), torch.randn(2, 4), copied=[])
    gm.blocks[3].scale = 7.0
    assert gm(torch.ones(1, 4)).shape == (1, 4)


class Held(Block):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.held.factor


class Factor:
    def __init__(self, factor: int) -> None:
        self.factor = factor


def test_objects_that_modules_hold_tell_them_apart() -> None:
    captured(Stack([Held(Factor(i)) for i in range(4)]), torch.randn(2, 4), copied=[])
    captured(Stack([Held(Factor(2)) for i in range(4)]), torch.randn(2, 4), copied=["blocks.2", "blocks.3"])


class Counting(Stack):
    """Changes an object that all blocks hold between their calls, and puts it back."""

    def __init__(self, held: Factor, count: int) -> None:
        super().__init__([Held(held) for _ in range(count)])
        self.shared = held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, block in enumerate(self.blocks):
            self.shared.factor = i
            x = block(x)
        self.shared.factor = 1
        return x


def test_what_the_program_changes_between_calls_is_seen() -> None:
    captured(Counting(Factor(1), 5), torch.randn(2, 4), copied=[])


class Sliced(Stack):
    """Gives its blocks tensors of other sizes, the same ones in the example."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = x.sum()
        for i, block in enumerate(self.blocks):
            total = total + block(x if i % 2 else y, x)
        return total


class Pair(Block):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x).sum() + (1 if x.shape[0] == y.shape[0] else 2)


def test_sizes_that_are_known_to_be_the_same_tell_calls_apart() -> None:
    gm = captured(
        Sliced([Pair() for _ in range(6)]),
        torch.ones(3, 4),
        torch.ones(3, 4),
        copied=["blocks.3", "blocks.4", "blocks.5"],
    )
    model = Sliced([Pair() for _ in range(6)])
    model.load_state_dict(gm.state_dict())
    x, y = torch.randn(5, 4), torch.randn(2, 4)
    torch.testing.assert_close(gm(x, y), model(x, y))


class Hooked(Stack):
    def __init__(self, count: int) -> None:
        super().__init__([Block() for _ in range(count)])
        self.blocks[3].linear.register_forward_hook(lambda module, args, result: result * 2)


def test_hooks_tell_modules_apart() -> None:
    captured(Hooked(5), torch.randn(2, 4), copied=["blocks.2", "blocks.4"])


def test_leaves_tell_modules_apart() -> None:
    model = Stack([nn.Sequential(Block(), Block(), Block()) for _ in range(5)])
    x = torch.randn(2, 4)
    gm = graphwright.trace(model, x, leaf_modules=["blocks.4.1"])
    assert "blocks.4.1" in {node.target for node in gm.graph.nodes}
    assert "blocks.2.1" not in {node.target for node in gm.graph.nodes}
    assert "blocks.2" in copies
    torch.testing.assert_close(gm(x), model(x), rtol=0, atol=0)


class Branching(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 3:
            x = self.norm(x) + self.linear.bias
        return super().forward(x)


def test_branches_are_copied_with_what_is_inside() -> None:
    gm = captured(
        Stack([Branching() for _ in range(5)]), torch.randn(2, 4), copied=["blocks.2", "blocks.3", "blocks.4"]
    )
    model = Stack([Branching() for _ in range(5)])
    model.load_state_dict(gm.state_dict())
    for rows in (1, 3, 4, 7):
        x = torch.randn(rows, 4)
        assert torch.equal(gm(x), model(x))


class InPlace(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.norm(x))
        y += x
        y.relu_()
        return y * 2


class Spoiling(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x += 1
        return super().forward(x)


def test_writes_within_a_call_are_copied_and_those_to_its_arguments_are_not() -> None:
    captured(Stack([InPlace() for _ in range(4)]), torch.randn(2, 4), copied=["blocks.2", "blocks.3"])
    gm = graphwright.trace(Stack([Spoiling() for _ in range(5)]), torch.randn(2, 4))
    assert not copies
    assert gm(torch.zeros(1, 4)).shape == (1, 4)


class Dropping(Block):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(torch.relu(self.linear(x)))


def test_random_numbers_are_drawn_in_the_same_order() -> None:
    model = Stack([Dropping() for _ in range(4)]).train()
    x = torch.randn(2, 4)
    gm = graphwright.trace(model, x)
    assert copies == ["blocks.2", "blocks.3"]
    torch.manual_seed(3)
    want = model(x)
    torch.manual_seed(3)
    assert torch.equal(gm(x), want)


class Tied(Stack):
    def __init__(self, count: int) -> None:
        super().__init__([Block() for _ in range(count)])
        self.blocks[3].linear.weight = self.blocks[1].linear.weight


def test_shared_parameters_tell_modules_apart() -> None:
    captured(Tied(5), torch.randn(2, 4), copied=["blocks.2", "blocks.4"])


class Caching(Block):
    def forward(self, x: torch.Tensor, cache: list[torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        cache.append(x)
        return super().forward(x) * len(cache)


class WithCache(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cache: list[torch.Tensor] = []
        for block in self.blocks:
            x = block(x, cache)
        return x + cache[2]


def test_what_calls_leave_in_containers_is_no_copy() -> None:
    captured(WithCache([Caching() for _ in range(5)]), torch.randn(2, 4), copied=[])


def test_nested_captures_share_what_was_copied() -> None:
    gm = graphwright.trace(Stack([Block(i) for i in range(5)]), torch.randn(2, 4), flat=False)
    assert copies == ["blocks.2", "blocks.3", "blocks.4"]
    assert len({id(block.graph) for block in gm.blocks}) == 1


class Filling(Block):
    def forward(self, x: torch.Tensor, cache: dict[str, int]) -> torch.Tensor:  # type: ignore[override]
        cache["calls"] = cache.get("calls", 0) + 1
        return super().forward(x) * cache["calls"]


class WithCounts(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cache: dict[str, int] = {}
        for block in self.blocks:
            x = block(x, cache)
        return x


class Named(Block):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return {"x": super().forward(x)}


class OfNames(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)["x"]
        return x


def test_dicts_that_calls_get_and_give_are_no_copies() -> None:
    captured(WithCounts([Filling() for _ in range(5)]), torch.randn(2, 4), copied=[])
    captured(OfNames([Named() for _ in range(5)]), torch.randn(2, 4), copied=[])


class Flagged(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.flag


class Flagging(Stack):
    """Writes attributes of its blocks past `nn.Module.__setattr__`, to what they were."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, block in enumerate(self.blocks):
            block.__dict__["flag"] = i
            x = block(x)
        return x


def test_attributes_that_are_written_to_what_they_were_tell_modules_apart() -> None:
    model = Flagging([Flagged() for _ in range(5)])
    model(torch.randn(2, 4))
    captured(model, torch.randn(2, 4), copied=[])


STATE = contextvars.ContextVar("STATE", default=1)
LOCAL = threading.local()
LOCAL.value = 1


def listed(kept: list[int] = []) -> list[int]:  # noqa: B006
    return kept


def set_local(i: int) -> None:
    LOCAL.value = i


def set_environment(i: int) -> None:
    os.environ["VALUE_OF_A_TEST"] = str(i)


def set_item(i: int) -> None:
    listed()[0] = i


class Setting:
    def __init__(self, value: int) -> None:
        self.value = value


class Derived(Setting):
    def __init__(self, value: int) -> None:
        super().__init__(value)


SETTING = Derived(1)


class Single:
    """There is one of them."""

    made: Single | None = None

    def __new__(cls, value: int) -> Single:
        if cls.made is None:
            cls.made = super().__new__(cls)
        return cls.made

    def __init__(self, value: int) -> None:
        self.value = value


Single(1)


def set_local_item(i: int) -> None:
    kept = listed()
    kept[0] = i


# How the program changes what no capture knows, and how its blocks read it; it is 1 before and after.
HIDDEN: dict[str, tuple[Callable[[int], object], Callable[[], int]]] = {
    "a ContextVar": (lambda i: STATE.set(i), lambda: STATE.get()),
    "a thread-local": (set_local, lambda: LOCAL.value),
    "the environment": (set_environment, lambda: int(os.environ["VALUE_OF_A_TEST"])),
    "an item of a default argument": (set_item, lambda: listed()[0]),
    "an item of what a variable holds": (set_local_item, lambda: listed()[0]),
    "the one object of a class": (lambda i: Single(i), lambda: Single.made.value),
    "an object that is made anew in its place": (lambda i: Derived.__init__(SETTING, i), lambda: SETTING.value),
}


def hiding(change: Callable[[int], object], read: Callable[[], int]) -> nn.Module:
    class Hidden(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * read()

    class Hiding(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i, block in enumerate(self.blocks):
                change(i + 1)
                x = block(x)
            change(1)
            return x

    return Hiding([Hidden() for _ in range(5)])


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("copy_layers", [False, True])
def test_what_no_capture_knows_and_the_program_changes_is_seen(
    name: str, copy_layers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALUE_OF_A_TEST", "1")
    listed()[:] = [1]
    SETTING.value = Single(1).value
    model, x = hiding(*HIDDEN[name]), torch.randn(2, 4)
    with graphwright.config.set(copy_layers=copy_layers), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gm = graphwright.trace(model, x)
    assert not copies
    assert torch.equal(gm(x), model(x))


class Ticking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        set_local(LOCAL.value + 1)
        return x + 1


class Ticked(Block):
    def __init__(self) -> None:
        super().__init__()
        self.tick = Ticking()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.tick(x)) * LOCAL.value


def test_what_leaf_modules_change_is_seen() -> None:
    model, x = Stack([Ticked() for _ in range(5)]), torch.randn(2, 4)
    LOCAL.value = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gm = graphwright.trace(model, x, leaf_modules=[Ticking])
    assert not copies
    LOCAL.value = 1
    given = gm(x)
    LOCAL.value = 1
    assert torch.equal(given, model(x))


class Making(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What it stores is stored into what it makes, and into tensors."""
        setting = Derived(len(inspect.signature(shifted).parameters))
        rows = torch.zeros_like(x)
        rows[0] = setting.value
        return super().forward(x) + rows


def test_what_calls_store_into_what_they_make_is_no_change() -> None:
    captured(Stack([Making() for _ in range(5)]), torch.randn(2, 4), copied=["blocks.2", "blocks.3", "blocks.4"])


class Asking(nn.Module):
    """The second call of a block is looked at; what is asked of its argument before, no block asks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.others = Block(), Stack([Block() for _ in range(4)])
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start = x * self.scale
        start = start if start.dtype.is_floating_point else start.float()
        return self.first(x) + self.others(start)


def test_what_was_asked_of_an_argument_before_is_no_question_of_the_call() -> None:
    gm = captured(Asking(), torch.randn(2, 4), copied=["others.blocks.1", "others.blocks.2", "others.blocks.3"])
    assert "autocast" not in gm.code


class LookingFor(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * getattr(self, "groups", 2)


def test_what_is_looked_for_and_missing_is_carried_over() -> None:
    model = Stack([LookingFor() for _ in range(5)])
    gm = captured(model, torch.randn(2, 4), copied=["blocks.2", "blocks.3", "blocks.4"])
    gm.blocks[4].groups = 3
    with pytest.raises(graphwright.GuardError, match=r"blocks\.4"):
        gm(torch.randn(2, 4))


def test_copies_are_made_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of calls of a few operations, nor where much is between them; what is not found soon is let go."""
    monkeypatch.undo()
    looks, look = [], repeats.Repeats._look

    def looked(self: Any, called: Any, run: Any) -> Any:
        looks.append(called.path)
        return look(self, called, run)

    monkeypatch.setattr(repeats.Repeats, "_look", looked)

    class Wide(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(4):
                x = super().forward(x)
            return x

    class Apart(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                for _ in range(40):
                    x = x + 1
                x = block(x)
            return x

    x = torch.randn(2, 4)
    graphwright.trace(Stack([Wide() for _ in range(8)]), x)
    assert looks == ["blocks.1"]
    for model in (Stack([Block() for _ in range(4)]), Apart([Wide() for _ in range(8)])):
        graphwright.trace(model, x)
    assert looks == ["blocks.1"]
    differing = Stack([Wide() for _ in range(8)])
    for number, block in enumerate(differing.blocks):
        block.linear.register_forward_hook(lambda module, args, result, number=number: result * number)
    graphwright.trace(differing, x)
    assert looks == ["blocks.1"]


def test_nobody_else_is_kept_from_listening() -> None:
    """Where a profiler of Python's is on, nothing is copied, and it stays on."""
    heard = []

    def profile(frame: object, event: str, argument: object) -> None:
        heard.append(event)

    sys.setprofile(profile)
    try:
        graphwright.trace(Stack([Block() for _ in range(4)]), torch.randn(2, 4))
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    assert heard
    assert not copies


def shifted(x: torch.Tensor, by: int) -> torch.Tensor:
    return x + by


class Shifting(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return shifted(super().forward(shifted(x, 1)), 2)


def test_leaf_functions_are_found_beside_copies() -> None:
    """For them the capture has a profiler of its own on, below the one that listens for changes."""
    model, x = Shifting([Block() for _ in range(4)]), torch.randn(2, 4)
    gm = graphwright.trace(model, x, leaf_functions=[shifted])
    assert list(dict.fromkeys(copies)) == ["blocks.2", "blocks.3"]
    assert len(gm.graph.find_nodes(op="call_function", target=shifted)) == 2
    assert torch.equal(gm(x), model(x))
