"""Modules whose shells wait until the program takes them out of the module around them, in whatever way it does."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import graphwright
from graphwright.capture.state.members import Members
from graphwright.runtime import Shells


class Block(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x)) * self.scale


class Stack(nn.Module):
    def __init__(self, run: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(0.5 + i) for i in range(4))
        self.named = nn.ModuleDict({"a": Block(2.0), "b": Block(3.0)})
        self.run = run

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(self, x)


def _through(blocks: Any, x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        x = block(x)
    return x


def _popped(self: Any, x: torch.Tensor) -> torch.Tensor:
    blocks = nn.ModuleList(self.blocks)
    return blocks.pop(-1)(blocks[0](x))  # type: ignore[no-any-return, operator]


WAYS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "iterated": lambda self, x: _through(self.blocks, x),
    "sliced": lambda self, x: _through(self.blocks[1:3], x),
    "by index": lambda self, x: self.blocks[-1](x),
    "by key": lambda self, x: self.named["b"](x),
    "items of a ModuleDict": lambda self, x: _through([block for _, block in self.named.items()], x),
    "by dotted path": lambda self, x: self.get_submodule("blocks.2")(x),
    "all of a class": lambda self, x: _through([each for each in self.modules() if isinstance(each, Block)], x),
    "children": lambda self, x: _through(list(self.blocks.children()), x),
    "the table": lambda self, x: self.blocks._modules["3"](x),
    "the table, asked": lambda self, x: self.blocks._modules.get("3")(x),
    "the table, copied": lambda self, x: self.blocks._modules.copy()["3"](x),
    "the table, spread": lambda self, x: {**self.blocks._modules}["3"](x),
    "the table, as a dict": lambda self, x: dict(self.blocks._modules)["3"](x),
    "the table, deep in copies": lambda self, x: copy.copy(self.blocks._modules)["3"](x),
    "the table's default": lambda self, x: self.blocks._modules.setdefault("3", None)(x),
    "a new list, popped": _popped,
    "a parameter of a parameter's owner": lambda self, x: x @ self.blocks[2].linear.weight,
    "an attribute": lambda self, x: x * self.blocks[3].scale,
    "all parameters": lambda self, x: x * torch.stack([each.sum() for each in self.parameters()]).sum(),
}


@pytest.mark.parametrize("way", WAYS)
def test_waiting_modules_are_there_when_they_are_reached(way: str) -> None:
    model, x = Stack(WAYS[way]), torch.randn(2, 4)
    gm = graphwright.trace(model, (x,))
    torch.testing.assert_close(gm(x), model(x), rtol=0, atol=0)
    assert gm.state_dict().keys() == model.state_dict().keys()


class Reads(nn.Module):
    """Holds what modules must not wait with: an object, a list, a hook, a method, an iterator."""

    def __init__(self, held: Any = None) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        if held is not None:
            self.held = held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def _waiting(*modules: nn.Module) -> list[str]:
    members = Members(nn.Sequential(Reads(), *modules), lambda module, path: type(module) is nn.Linear)
    return [path for path in members._patient if path.count(".") == 0]


def test_modules_wait_that_share_nothing_that_changes() -> None:
    config = Reads  # what a class holds is of the class
    assert _waiting(Reads(), Reads(3), Reads("text"), Reads((1, 2)), Reads(torch.ones(2))) == ["1", "2", "3", "4", "5"]
    assert _waiting(Reads([1]), Reads({}), Reads(iter(())), Reads(torch.Generator())) == []
    assert _waiting(Reads(config), Reads(config)) == ["2"]  # the first notes what it is
    hooked = Reads()
    hooked.register_forward_hook(lambda module, args, result: result)
    assert _waiting(hooked) == []


def test_a_pass_fills_what_it_reaches() -> None:
    filled: list[str] = []

    class Few(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block(1.0) for _ in range(5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.blocks[3](x)  # type: ignore[no-any-return]

    model = Few()
    members = Members(model, lambda module, path: type(module) is nn.Linear)
    waiting = {id(module) for module, path in members.tree.modules if path in members._patient}
    shells = Shells(model, tree=members.tree, waiting=waiting)
    shells.each(lambda module, shell, path: filled.append(path))
    assert filled == ["", "blocks", "blocks.0", "blocks.0.linear"]
    shell = shells.shell(model.blocks[3])
    assert filled[4:] == ["blocks.3"]
    assert type(shell) is Block
    assert shells.ready(shell) is shell is shells.shell(model.blocks[3])
    assert shells.original(shell) is model.blocks[3]
    assert shells.path(shell) == "blocks.3"
    x = torch.randn(2, 4)
    gm = graphwright.trace(model, (x,))
    torch.testing.assert_close(gm(x), model(x), rtol=0, atol=0)


class Grows(nn.Module):
    """Writes an attribute of its own: the modules of its class must not wait with what the plan knows of."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


def test_what_late_modules_write_is_kept() -> None:
    model = nn.Sequential(*[Grows() for _ in range(4)])
    x = torch.zeros(2)
    gm = graphwright.trace(model, (x,))
    assert [module.count for module in model] == [0, 0, 0, 0]
    for expected in (4.0, 8.0, 12.0):
        assert gm(x).tolist() == [expected, expected]
    assert [gm.get_submodule(str(i)).count for i in range(4)] == [3, 3, 3, 3]


class Hidden(nn.Module):
    """Its class has methods by the names of its submodules and attributes: the methods hide submodules alone."""

    def __init__(self) -> None:
        super().__init__()
        self.act, self.scale = nn.ReLU(), 0.5

    def act(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1.5

    def scale(self) -> float:
        return 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x) * self.scale


def test_methods_that_hide_submodules_are_called() -> None:
    model, x = Hidden(), torch.randn(3)
    gm = graphwright.trace(model, x)
    assert torch.equal(gm(x), model(x))
    gm.act = nn.Tanh()  # as before, nobody sees it
    assert torch.equal(gm(x), model(x))
    vars(gm)["act"] = torch.relu
    with pytest.raises(graphwright.GuardError, match=r"self\.act is there now"):
        gm(x)


def test_a_plain_module_with_a_forward_of_its_own_is_captured() -> None:
    model, x = nn.Module(), torch.randn(2, 4)
    model.layer = nn.Linear(4, 4)
    model.forward = lambda x: model.layer(x) * 2  # type: ignore[method-assign]
    gm = graphwright.trace(model, x)
    assert torch.equal(gm(x), model(x)) and torch.equal(copy.deepcopy(gm)(x), model(x))


class WrappedMethod(nn.Module):
    """Its method is wrapped by a function of another module, which says that it is of the module of the method."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        update = self.update

        def wrapped(x: torch.Tensor) -> torch.Tensor:
            return update(x) + self.linear.bias

        wrapped.__module__ = "elsewhere"
        self.update = wrapped  # type: ignore[method-assign]

    def update(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.update(x)


def test_a_wrapped_method_is_of_the_module_that_it_says() -> None:
    model = WrappedMethod()
    captured = graphwright.trace(model, (torch.ones(1, 2),))
    assert captured.update.__module__ == "elsewhere"
    assert torch.equal(captured(torch.ones(3, 2)), model(torch.ones(3, 2)))


@functools.wraps(numpy.dot)
def gram(x: torch.Tensor) -> torch.Tensor:
    return x @ x.T


def test_a_function_that_says_it_is_of_numpy_is_the_one_that_runs() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return gram(x) if x.sum() > y.sum() else x

    x = torch.ones(3, 4)
    assert torch.equal(graphwright.trace(program, (x, x))(x, x - 1), program(x, x - 1))


class HiddenOnTheWay(nn.Module):
    """Its parameters are known by the name of a method."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4)]
        self.parameters = nn.ParameterList(self.layers[0].parameters())  # type: ignore[assignment]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[0](x)  # type: ignore[no-any-return]


def test_paths_go_on_from_what_a_method_hides() -> None:
    model, x = HiddenOnTheWay(), torch.randn(2, 4)
    gm = graphwright.trace(model, x)
    gm.graph.lint()
    for captured in (gm, copy.deepcopy(gm), graphwright.Interpreter(gm).run):
        assert torch.equal(captured(x), model(x))
    assert [*gm.state_dict()] == ["parameters.0", "parameters.1"]
