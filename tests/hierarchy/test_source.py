"""Nested captures as files that read as if written by hand, and compute what the program does."""

from __future__ import annotations

import importlib
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.hierarchy.test_unflatten import Block, Masked, TwoWays, floats
from torch import nn

import graphwright
from graphwright import trace
from graphwright.errors import ExportError


def program_of(text: str, name: str) -> list[str]:
    """The lines of the forward of a class of a file."""
    found = text.partition(f"class {name}(")[2].partition("\n\n\nclass ")[0].partition("    def forward")[2]
    return [line.strip() for line in found.splitlines()[1:] if line.strip()]


def written(nested: Any, text: str, name: str = "", state: dict[str, Any] | None = None) -> nn.Module:
    """The module of a file, with the weights of a capture."""
    scope: dict[str, Any] = {"__name__": "written"}
    exec(compile(text, "written.py", "exec"), scope)
    module: nn.Module = scope[name or type(nested).__name__]()
    module.load_state_dict(nested.state_dict() if state is None else state)
    return module


class Outputs(nn.Module):
    """Lists that are gone through in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(4, 4), nn.ModuleList(Block() for _ in range(5))
        self.few = nn.ModuleList(Block() for _ in range(2))
        self.all = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        x = self.first(x)
        mask = x > 0
        x = self.rest[0](x)
        for block in self.rest[1:]:
            x = block(x, mask=mask)
        for block in self.few:
            x = block(x)
        kept = []
        for layer in self.all:
            x = layer(x).relu()
            kept.append(x)
        return x, kept


def test_calls_of_a_list_are_a_loop() -> None:
    nested, x = trace(Masked(), floats(3, 4), flat=False), floats(6, 4)
    text = graphwright.source(nested, standalone=True, comments=False)
    assert program_of(text, "Masked") == [
        "mask = (x > 0).to(x.dtype)",
        "for block in self.blocks:",
        "x = block(x, mask)",
        "return x",
    ]
    assert torch.equal(written(nested, text)(x), nested(x))


def test_what_a_loop_cannot_say_stays_in_lines() -> None:
    model, x = Outputs(), floats(6, 4)
    nested = trace(model, floats(3, 4), flat=False)
    text = graphwright.source(nested, standalone=True, comments=False)
    program = program_of(text, "Outputs")
    assert "for rest in self.rest[1:]:" in program or "for block in self.rest[1:]:" in program, program
    assert sum(line.startswith("for ") for line in program) == 1
    assert sum("self.all[" in line for line in program) == 4
    value, kept = written(nested, text)(x)
    want, others = model(x)
    assert torch.equal(value, want)
    assert all(map(torch.equal, kept, others))


class Gaps(nn.Module):
    """A list some of whose modules are not called."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in (0, 1, 3, 4, 5, 6):
            x = self.layers[i](x).relu()
        return x


@pytest.mark.parametrize("flat", [True, False])
def test_a_list_some_of_whose_modules_are_not_called_is_written(flat: bool) -> None:
    gm, x = trace(Gaps(), floats(3, 4), flat=flat), floats(6, 4)
    assert torch.equal(written(gm, graphwright.source(gm, standalone=True))(x), gm(x))


def test_a_module_that_is_called_in_two_ways_has_two_methods() -> None:
    nested, x = trace(TwoWays(), floats(3, 4), flat=False), floats(6, 4)
    text = graphwright.source(nested, standalone=True, comments=False)
    assert "def forward_2(self, x, mask):" in text
    assert torch.equal(written(nested, text)(x), nested(x))


def test_a_folder_has_loops_and_plain_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stages = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Sequential(Block(), Block()))
            self.blocks = nn.ModuleList(Block() for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stages(x)
            for block in self.blocks:
                x = block(x)
            return x

    nested, x = trace(Stages().eval(), floats(3, 4), flat=False), floats(6, 4)
    nested.to_folder(tmp_path / "stages_written", "Stages")
    text = (tmp_path / "stages_written" / "module.py").read_text()
    assert "class Sequential" not in text
    assert "for block in self.blocks:" in text
    assert "torch.nn.Sequential(Block(), Block())" in text
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    package = importlib.import_module("stages_written")
    assert torch.equal(package.Stages()(x), nested(x))
    del sys.modules["stages_written"]


class Scaled(nn.Module):
    def __init__(self, inputs: int, outputs: int, scale: float, kernel: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
        self.scale, self.mode = scale, "a" * kernel
        self.weight = nn.Parameter(torch.ones(outputs, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x) * self.scale * self.weight


class Twofold(nn.Module):
    def __init__(self, inputs: int, outputs: int, scale: float) -> None:
        super().__init__()
        self.one, self.other = Scaled(inputs, outputs, scale), Scaled(outputs, outputs, scale + 1, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(x))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = Twofold(2, 3, 1.5), Twofold(3, 5, 1.5), Twofold(5, 5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x)))


@pytest.mark.parametrize("original_classes", [False, True])
def test_classes_that_differ_in_numbers_are_one(original_classes: bool) -> None:
    nested, x = trace(Stack(), floats(1, 2, 4, 4), flat=False), floats(2, 2, 5, 3)
    text = graphwright.source(
        nested, standalone=not original_classes, original_classes=original_classes, comments=False
    )
    assert text.count("\nclass ") == 3
    assert "self, in_channels: int, out_channels: int, scale: float, kernel_size: int, padding: int = 0,\n" in text
    assert "self.one = Scaled(in_channels=in_channels, out_channels=out_channels, scale=scale, kernel_size=1)" in text
    assert "self.third = Twofold(in_channels=5, out_channels=5, scale=2.0, other_scale=3.0)" in text
    module = written(nested, text)
    assert torch.equal(module(x), nested(x))
    assert isinstance(module, Stack) is original_classes
    assert not torch.equal(module.third.one.conv.weight, module.second.one.conv.weight[:, :1])


NUMBERS = torch.tensor([1.0, 2.5, -0.0, 4.0])


class Stateless(nn.Module):
    """Values that no state_dict has: buffers that do not persist, plain attributes, constants of the module's file."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.plain = torch.randn(4)
        self.register_buffer("position_ids", torch.arange(8).expand(1, -1), persistent=False)
        self.register_buffer("mask", torch.randn(width, width), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * NUMBERS + self.plain + self.position_ids[:, : x.shape[1]] + self.mask[:4, :4].sum()


@pytest.mark.parametrize("flat", [True, False])
def test_what_no_state_dict_has_is_written_with_its_values(flat: bool) -> None:
    model = nn.Sequential(Stateless(), Stateless())
    nested = trace(model, floats(2, 4), flat=flat)
    module = written(nested, graphwright.source(nested, standalone=True))
    assert torch.equal(module(floats(3, 4)), model(floats(3, 4)))
    assert list(module.state_dict()) == list(model.state_dict())


def test_a_table_that_no_state_dict_has_is_asked_for() -> None:
    model = Stateless(40)
    nested = trace(model, floats(2, 4), flat=False)
    text = graphwright.source(nested, standalone=True)
    assert '"mask", torch.empty(40, 40))  # which the state_dict of the original lacks' in text
    with pytest.raises(RuntimeError, match=r"Missing key.*mask"):
        written(nested, text)
    every = {**nested.state_dict(), **dict(nested.named_buffers())}
    module = written(nested, text, state={name: every[name] for name in (*nested.state_dict(), "mask")})
    assert "mask" in module.state_dict()
    assert torch.equal(module(floats(3, 4)), model(floats(3, 4)))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain = torch.randn(1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.plain.sum()


def test_a_table_that_no_module_registers_is_refused() -> None:
    with pytest.raises(ExportError, match="'plain': it is in no state_dict, and its 1000 values"):
        graphwright.source(trace(Plain(), floats(2, 4)), standalone=True)


class Parameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.ParameterList([nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(1, 4))])
        self.named = nn.ParameterDict({"bias": nn.Parameter(torch.randn(4))})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            x = x * row
        return x + self.named["bias"]


def test_lists_and_dicts_of_parameters_are_written_as_such() -> None:
    nested = trace(Parameters(), floats(2, 4), flat=False)
    text = graphwright.source(nested, standalone=True)
    assert "self.rows = torch.nn.ParameterList([" in text
    assert torch.equal(written(nested, text)(floats(3, 4)), nested(floats(3, 4)))


def test_a_sequence_of_which_something_was_noted_is_written_as_one() -> None:
    model = Masked()
    model.extra = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model.extra._is_initialized = True  # as transformers does
    whole = nn.Sequential(model.extra, nn.Sigmoid())
    nested = trace(whole, floats(2, 4), flat=False)
    text = graphwright.source(nested, standalone=True)
    assert "torch.nn.Sequential(" in text
    assert torch.equal(written(nested, text, "Sequential")(floats(3, 4)), whole(floats(3, 4)))


def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(numpy.float64(x.shape[0]) * x)


def test_what_a_class_of_another_library_computes_stands_not_alone() -> None:
    """It is a number, of which torch makes another dtype than of Python's."""
    with pytest.raises(ExportError, match=r"numpy\.float64 is called with values that the call does not name"):
        graphwright.source(trace(scaled, floats(2, 4)), standalone=True)


@pytest.mark.parametrize("flat", [True, False])
def test_a_sequence_whose_modules_have_names_is_written_with_them(flat: bool) -> None:
    rows = [("in", nn.Linear(4, 4)), ("act", nn.ReLU()), ("1", nn.Linear(4, 4)), ("0", nn.Sigmoid())]
    model = nn.Sequential(nn.Sequential(OrderedDict(rows)), nn.Tanh())
    nested = trace(model, floats(2, 4), flat=flat)
    text = graphwright.source(nested, standalone=True)
    assert "torch.nn.Sequential(OrderedDict([" in text
    assert torch.equal(written(nested, text)(floats(3, 4)), model(floats(3, 4)))


class WithCache(nn.Module):
    """Fills a dict with a mask of each size that it meets."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: dict[int, torch.Tensor] = {}
        self.tables = {"scales": [torch.tensor([2.0, 3.0]), 1.0]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.size(0) not in self.masks:
            self.masks[x.size(0)] = torch.ones(x.size(0), x.size(0)).triu(1)
        return self.masks[x.size(0)] @ x * self.tables["scales"][0]


def test_dicts_of_tensors_are_written_with_their_values() -> None:
    model, x = WithCache(), torch.ones(3, 2)
    model(x)
    gm = trace(model, (x,))
    text = graphwright.source(gm, standalone=True)
    assert "self.masks = {3: torch.ones(3, 3).triu(1)}" in text
    assert torch.equal(written(gm, text)(x), model(x))


def test_a_dict_of_large_tensors_is_refused() -> None:
    model = WithCache()
    model.masks[90] = torch.randn(90, 90)
    with pytest.raises(ExportError, match="cannot write the tensor 'masks'"):
        graphwright.source(trace(model, (torch.ones(90, 2),)))


def test_a_module_without_a_graph_has_no_source() -> None:
    with pytest.raises(ExportError, match="a Linear has no graph"):
        graphwright.source(nn.Linear(2, 2))


class TooFewError(ValueError):
    """What a program raises."""


class AskingKinds(nn.Module):
    """Asks for the class of a value, and raises an error of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] < 2:
            raise TooFewError(f"{x.shape[0]} rows")
        y = self.layer(x)
        return y * 2 if type(y) is torch.Tensor else y


def test_checks_of_classes_are_left_out_and_errors_are_those_of_python() -> None:
    gm, x = graphwright.trace(AskingKinds(), (torch.randn(3, 4),), flat=False), torch.randn(5, 4)
    text = graphwright.source(gm, standalone=True, comments=False)
    assert "class TooFewError(ValueError)" in text and "graphwright" not in text
    module = written(gm, text)
    assert torch.equal(module(x), gm(x))
    with pytest.raises(ValueError, match="1 rows"):
        module(x[:1])
