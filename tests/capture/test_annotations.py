"""What is written beside parameters and values of the source is written beside those of the printed code."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Optional, Union

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import GraphModule


class Own:
    pass


class Annotated(nn.Module):
    def forward(
        self,
        x: Tensor,
        n: int,
        m: Tensor | None = None,
        how: Literal["a", "b"] = "a",
        **rest: bool,
    ) -> "tuple[Tensor, ...]":
        for _ in range(n):
            x = x + 1
        return x, x


HEADER = (
    "def forward(\n    self, x: torch.Tensor, n: int, m: torch.Tensor | None = None, how: Literal['a', 'b'] = 'a', "
    "**rest: bool,\n) -> tuple[torch.Tensor, ...]:\n"
)


def traced(function: Callable[..., object]) -> GraphModule:
    return graphwright.trace(function, (torch.ones(3), 2))


@pytest.mark.parametrize("capture", [traced, graphwright.script])
def test_parameters_and_the_value_keep_theirs(capture: Callable[..., GraphModule]) -> None:
    def times(x: Tensor, n: int) -> Tensor:
        for _ in range(n):
            x = x * 2
        return x

    gm = capture(times)
    assert "def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:\n" in gm.code
    scripted = torch.jit.script(gm)
    assert torch.equal(scripted(torch.ones(3), 5), times(torch.ones(3), 5))


def test_they_are_written_as_python_writes_them_today() -> None:
    gm = graphwright.trace(Annotated(), (torch.ones(3), 2))
    assert HEADER in gm.code
    assert gm.graph.output_node().type == tuple[Tensor, ...]


def test_names_that_only_type_checkers_know_are_left_out() -> None:
    def f(x: Tensor, other: "Unknown" = None) -> "Unknown":  # type: ignore[name-defined]  # noqa: F821
        return x + 1

    gm = graphwright.trace(f, (torch.ones(3),))
    assert "def forward(self, x: torch.Tensor, other=None):" in gm.code


def test_one_that_a_file_may_not_name_is_a_text_in_it(tmp_path: Path) -> None:
    def f(x: Tensor, own: Optional[Own] = None, path: Union[Path, str] = "", one: "Own" = None) -> Tensor:  # type: ignore[assignment]  # noqa: UP007, UP045
        return x + 1

    gm = graphwright.trace(f, (torch.ones(3),))
    assert "own: Own | None = None, path: Path | str = '', one: Own = None" in gm.code
    graphwright.save(gm, tmp_path / "f")
    loaded = graphwright.load(tmp_path / "f")
    assert "own: Any | None = None, path: Any | str = ''," in loaded.code
    assert f"one: '{__name__}.Own' = None" in loaded.code
    assert torch.equal(loaded(torch.zeros(3)), torch.ones(3))


def test_two_that_a_file_may_not_name_are_no_more_refused_than_one(tmp_path: Path) -> None:
    def f(one: Own, other: Annotated) -> Tensor:
        return one + other  # type: ignore[no-any-return, operator]

    graphwright.save(graphwright.trace(f, (torch.ones(3), torch.ones(3))), tmp_path / "f")
    assert "one: '" in graphwright.load(tmp_path / "f").code


def test_one_that_pickle_cannot_find_again_is_a_text_after_it() -> None:
    class Local:
        pass

    def f(x: Tensor, own: Local | None = None) -> Tensor:
        return x + 1

    gm = pickle.loads(pickle.dumps(graphwright.trace(f, (torch.ones(3),))))
    assert torch.equal(gm(torch.zeros(3)), torch.ones(3))
    assert "Local | None' = None" in gm.code
