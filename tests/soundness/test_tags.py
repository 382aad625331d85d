"""Attributes that tensors of a module have of their own: `weight.scale = 2.0`. They may change between two calls."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.soundness.stories import UP, told
from torch import Tensor, nn

from graphwright import CaptureError, GuardError, load, save, trace


class Tagged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("table", torch.ones(2))
        self.held = torch.ones(2)
        self.weight.scale = 2.0  # type: ignore[attr-defined]
        self.weight.kind = "column"  # type: ignore[attr-defined]
        self.table.info = {"bits": 4}
        self.held.skip = False

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.weight * self.weight.scale + self.table.info["bits"]
        if getattr(self.weight, "kind", None) == "column":
            x = x + 1
        if not hasattr(self.table, "skip"):
            x = x + 2
        return x if self.held.skip else -x


def replaced(scale: float | None, kind: str = "column") -> nn.Parameter:
    weight = nn.Parameter(torch.ones(2))
    if scale is not None:
        weight.scale, weight.kind = scale, kind  # type: ignore[attr-defined]
    return weight


CHANGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "another value": (lambda m: setattr(m.weight, "scale", 3.0), "self.weight.scale was 2.0"),
    "another class": (lambda m: setattr(m.weight, "scale", 2), "self.weight.scale was 2.0"),
    "in a container": (lambda m: m.table.info.update(bits=8), "self.table.info was"),
    "of a plain tensor": (lambda m: setattr(m.held, "skip", True), "self.held.skip was False"),
    "gone": (lambda m: delattr(m.weight, "kind"), "self.weight.kind was 'column'"),
    "new": (lambda m: setattr(m.table, "skip", 1), "self.table has got an attribute 'skip'"),
    "another parameter": (lambda m: setattr(m, "weight", replaced(3.0)), "self.weight.scale was 2.0"),
    "another kind": (lambda m: setattr(m, "weight", replaced(2.0, "row")), "self.weight.kind was 'column'"),
    "a parameter without": (lambda m: setattr(m, "weight", replaced(None)), "self.weight.scale was 2.0"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_tag_is_another(case: str) -> None:
    change, said = CHANGES[case]

    def story(program: Any) -> Any:
        first = program(UP)
        change(program)
        try:
            return first, program(UP)
        except AttributeError:
            return first, "AttributeError"

    assert told(Tagged, story).startswith(f"loud: {said}")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda m: setattr(m, "weight", replaced(2.0)), id="another parameter with the same"),
        pytest.param(lambda m: setattr(m.weight, "unread", 3), id="one that nothing reads"),
        pytest.param(lambda m: m.load_state_dict(m.state_dict(), assign=True), id="loaded, data alone"),
        pytest.param(lambda m: m.double().float(), id="converted"),
    ],
)
def test_what_says_the_same(change: Callable[[Any], None]) -> None:
    def story(program: Any) -> Any:
        first = program(UP)
        tags = dict(vars(program.weight))
        change(program)
        vars(program.weight).update(tags)
        vars(program.table).update(info={"bits": 4})
        vars(program.held).update(skip=False)
        return first, program(UP)

    assert told(Tagged, story) == "same"


def test_files_have_what_was_read(tmp_path: Path) -> None:
    captured: Any = trace(Tagged(), (UP,))
    save(captured, tmp_path / "tagged.gw")
    assert torch.equal(load(tmp_path / "tagged.gw", allow=[__name__])(UP), captured(UP))


class Counts(Tagged):
    def forward(self, x: Tensor) -> Tensor:
        self.weight.count = getattr(self.weight, "count", 0) + 1  # type: ignore[attr-defined]
        return x * self.weight.count


def test_a_tag_that_the_program_writes_is_refused_and_left_as_it_was() -> None:
    model = Counts()
    with pytest.raises(CaptureError, match=r"writes 'count' of self\.weight, which is a tensor of its modules"):
        trace(model, (UP,))
    assert not hasattr(model.weight, "count")


class LooksForATag(nn.Module):
    """No tensor has the tag that it looks for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if hasattr(self.weight, "scale") else x + getattr(self.weight, "shift", 0)


@pytest.mark.parametrize("tag", ["scale", "shift"])
def test_a_tag_that_no_tensor_had(tag: str) -> None:
    def story(program: Any) -> Any:
        first = program(UP)
        setattr(program.weight, tag, 3.0)
        return first, program(UP)

    assert told(LooksForATag, story).startswith(f"loud: self.weight has got an attribute {tag!r}")


# ---- containers of classes of their own


class Rows(list[Any]):
    scale: int


class Table(collections.OrderedDict[str, Any]):
    scale: int


class Row(tuple[Any, ...]):
    scale: int


class Names(set[str]):
    scale: int


HOLDER: list[Any] = []


class Scaled(nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: Tensor) -> Tensor:
        return x * self.held.scale * getattr(self.held, "more", 1)


def scaled_by(held: Any, way: str) -> Any:
    """A program that reads the attributes of a container: in a module, a variable, or a list."""
    held.scale = 2
    if way == "module":
        return Scaled(held)
    HOLDER[:] = [held]
    if way == "list":
        return lambda x: x * HOLDER[0].scale * getattr(HOLDER[0], "more", 1)
    return lambda x: x * held.scale * getattr(held, "more", 1)


@pytest.mark.parametrize("way", ["module", "variable", "list"])
@pytest.mark.parametrize("kind", [Rows, Table, Row, Names])
def test_attributes_of_containers_are_told(kind: Any, way: str) -> None:
    held = kind()
    program = scaled_by(held, way)
    gm = trace(program, (UP,))
    assert torch.equal(gm(UP), UP * 2)
    for name in ("scale", "more"):
        before = dict(vars(held))
        setattr(held, name, 5)
        with pytest.raises(GuardError):
            gm(UP)
        vars(held).clear()
        vars(held).update(before)
        assert torch.equal(gm(UP), UP * 2)


def test_containers_in_containers_are_compared_with_their_attributes() -> None:
    outer = Table(inner=Table(value=2))
    outer.scale = Rows([1])  # type: ignore[assignment]
    gm = trace(lambda x: x * outer["inner"]["value"] * outer.scale[0], (UP,))  # type: ignore[index]
    assert torch.equal(gm(UP), UP * 2)
    outer.scale[0] = 3  # type: ignore[index]
    with pytest.raises(GuardError):
        gm(UP)


class CountsInATable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held = Table()
        self.held.scale = 0

    def forward(self, x: Tensor) -> Tensor:
        self.held.scale += 1
        return x * self.held.scale


def test_an_attribute_of_a_container_that_the_program_writes_is_refused_and_left_as_it_was() -> None:
    model = CountsInATable()
    with pytest.raises(CaptureError, match=r"writes 'scale' of self\.held, which is a Table of its modules"):
        trace(model, (UP,))
    assert model.held.scale == 0
