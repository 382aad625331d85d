"""What torch.export assumes of open sizes is tried out, and said: in the report, and in a warning where it is wrong."""

from __future__ import annotations

import math
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("onnxruntime")

from onnxscript import opset18

import graphwright
from graphwright.errors import ExportError
from graphwright.onnx import OnnxProgram, assumptions

OWN, IDLE = "takes no other sizes that were tried", "the model is right without"


def halves(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0] // 2, -1)


def plus(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def rounded_up(x: Tensor) -> Tensor:
    return x[:, : math.ceil(x.shape[1] / 3)]


def of_chosen_length(x: Tensor) -> Tensor:
    length = 0 if x.numel() == 0 else x.size(0)  # as the caches of Transformers tell how long they are
    query, mask = x[None, None], torch.ones(length, length).tril() > 0
    return F.scaled_dot_product_attention(query, query, query, mask)


def halved(x: Tensor) -> Tensor:
    height, width = -x.shape[2] % 2, -x.shape[3] % 2
    if height or width:  # after which torch.export knows nothing of these sizes
        x = F.pad(x, (0, width, 0, height))
    query, key, value = F.avg_pool2d(x, 2).flatten(2)[:, None].transpose(2, 3).chunk(3, -1)
    return F.scaled_dot_product_attention(query, key, value)


def is_one(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] == 1 else x + 1


def squeezed(x: Tensor) -> Tensor:
    return x.squeeze(0)


def exported(function: Callable[..., Any], *sizes: tuple[int, ...]) -> tuple[OnnxProgram, str]:
    """A program exported with tensors of these sizes, and the text of its warning."""
    args = tuple([torch.randn(size) for size in sizes])
    module = graphwright.trace(function, args, target="export")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = graphwright.onnx.export(module, args)
    assert len(caught) <= 1  # all that is to be said is one warning
    return program, str(caught[0].message) if caught else ""


@pytest.mark.slow
def test_sizes_are_fixed_that_torch_computes_with_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["graphwright.interop.patience"], "_SECONDS", -10.0)
    program, said = exported(lambda x, y: (x.flatten(), y + 1), (4, 6), (3, 5))
    assert program.report.sizes == {"x": (4, 6), "y": (3, 5)}
    assert "dimension 1 of 'y' is 5 in the model, and the program takes others" in said
    assert "dynamic_shapes keeps those open that it names, however long that takes" in said
    asked = graphwright.onnx.export(lambda x: x.flatten(), torch.ones(4, 6), dynamic_shapes=({0: "rows"},))
    assert asked.report.sizes == {"x": ("rows", 6)}


@torch.library.custom_op("graphwright_sizes::kept", mutates_args=())
def kept(x: Tensor) -> Tensor:
    return x.clone()


@kept.register_fake
def _kept_shape(x: Tensor) -> Tensor:
    if type(x.shape[1]) is not int:
        raise TypeError("the number of columns has to be known")
    return torch.empty_like(x)


def test_sizes_are_fixed_that_an_operator_does_not_take_open() -> None:
    table = {torch.ops.graphwright_sizes.kept.default: lambda x: opset18.Identity(x)}
    with pytest.warns(UserWarning, match="dimension 1 of 'x' is 3 in the model, and the program takes others"):
        program = graphwright.onnx.export(lambda x: kept(x) * 2, torch.ones(2, 3), custom_translation_table=table)
    assert program.report.sizes == {"x": ("x_dim0", 3)}
    assert program(torch.ones(5, 3)).tolist() == [[2.0] * 3] * 5


class Locked(torch.nn.Module):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] == 1 else x + 1


@pytest.mark.slow
def test_a_module_that_cannot_be_copied_is_tried_at_other_sizes() -> None:
    program = graphwright.onnx.export(Locked(), torch.ones(2, 4))
    assert [str(each) for each in program.report.assumed if OWN in str(each)] == []
    assert program(torch.ones(1, 4)).tolist() == [[2.0] * 4]


# A program, sizes of its example, what the report says of them, other sizes at which the model is right
RIGHT = [
    pytest.param(lambda x: x.view(-1, 8), [(16,)], [("(x.shape[0] % 8) == 0", OWN)], [[(8,)], [(40,)]], id="view"),
    pytest.param(halves, [(4, 6)], [("% (x.shape[0] // 2)) == 0", OWN)], [[(2, 5)], [(3, 6)]], id="a half"),
    pytest.param(
        plus,
        [(4, 6), (4, 6)],
        [("y.shape[0] == x.shape[0]", IDLE)],
        [[(1, 6), (4, 6)], [(4, 6), (4, 1)], [(1, 6), (1, 6)]],
        id="broadcast",
    ),
    pytest.param(
        lambda x, y: x[: y.shape[0]] + y,
        [(6, 3), (4, 3)],
        [("y.shape[1] == x.shape[1]", IDLE)],
        [[(6, 3), (1, 3)], [(1, 3), (4, 3)]],
        id="one below another",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        lambda x: x[:, :3] + x[:, -3:],
        [(4, 6)],
        [("x.shape[1] >= 3", IDLE)],
        [[(1, 2)], [(1, 4)]],
        id="least",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        lambda x: x.unfold(0, 3, 2),
        [(8, 2)],
        [("x.shape[0] >= 3", OWN)],
        [[(3, 1)]],
        id="unfold",
        marks=pytest.mark.slow,
    ),
    pytest.param(rounded_up, [(2, 4)], [], [[(2, 3)], [(2, 7)]], id="a size rounded up"),
    pytest.param(of_chosen_length, [(4, 2)], [], [[(7, 2)], [(3, 5)]], id="a length that is chosen"),
    pytest.param(is_one, [(4, 2)], [], [[(1, 2)], [(2, 1)]], id="asks for 1, example of 4"),
    pytest.param(is_one, [(1, 2)], [], [[(4, 2)], [(2, 1)]], id="asks for 1, example of 1", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("function", "sizes", "assumed", "others"), RIGHT)
def test_a_condition_that_changes_nothing_is_in_the_report_alone(
    function: Any, sizes: Any, assumed: Any, others: Any
) -> None:
    program, warning = exported(function, *sizes)
    assert warning == "" and program.report.notes == ()
    assert all(isinstance(size, str) for each in program.report.sizes.values() for size in each)
    for condition, came in assumed:
        assert [line for line in str(program.report).splitlines() if condition in line and came in line]
    for other in [sizes, *others]:
        args = [torch.randn(size) for size in other]
        torch.testing.assert_close(program(*args), function(*args))


# A program, sizes of its example, what the warning says, and sizes for which the model is right
WRONG = [
    pytest.param(
        squeezed,
        [(4, 6)],
        "the model is made for x.shape[0] >= 2, and the program takes x [1, 6]",
        [(2, 5)],
        id="4, not 1",
    ),
    pytest.param(
        squeezed,
        [(1, 6)],
        "dimension 0 of 'x' is 1 in the model, and the program takes others",
        [(1, 5)],
        id="1, not 4",
    ),
    pytest.param(
        plus,
        [(1, 6), (4, 6)],
        "dimension 0 of 'x' is 1 in the model, and the program takes others",
        [(1, 5), (3, 5)],
        id="broadcast as in the example",
    ),
    pytest.param(
        lambda x: x.expand(4, -1),
        [(1, 6)],
        "dimension 0 of 'x' is 1 in the model, and the program takes others",
        [(1, 2)],
        id="expand",
    ),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("function", "sizes", "message", "right"), WRONG)
def test_a_condition_that_the_program_is_free_of_is_warned_of(
    function: Any, sizes: Any, message: str, right: Any
) -> None:
    program, warning = exported(function, *sizes)
    assert message in warning and message in str(program.report)
    for each in (sizes, right):
        args = [torch.randn(size) for size in each]
        torch.testing.assert_close(program(*args), function(*args))


@pytest.mark.slow
def test_sizes_that_torch_cannot_keep_open_are_fixed_and_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    program, warning = exported(halved, (2, 6, 4, 6))
    assert program.report.sizes == {"x": ("x_dim0", 6, 4, 6)}
    assert "dimension 3 of 'x' is 6 in the model, and the program takes others" in warning
    assert not capsys.readouterr().err
    x = torch.randn(5, 6, 4, 6)
    torch.testing.assert_close(program(x), halved(x))
    module = graphwright.trace(halved, x, target="export")
    with pytest.raises(ExportError, match=r"Could not guard(.|\n)*in halved: return F.scaled(.|\n)*leave out sizes"):
        graphwright.onnx.export(module, x, dynamic_shapes={"x": {2: "height", 3: "width"}})


@pytest.mark.slow
def test_what_is_not_tried_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _ = exported(lambda x: torch.nn.functional.dropout(x, 0.5, True), (4, 3))
    assert "assumed: x.shape[0] >= 2, not tried: the program is random" in str(program.report)
    with pytest.raises(graphwright.GraphwrightError, match="gives other values each time"):
        graphwright.onnx.export(lambda x: torch.nn.functional.dropout(x, 0.5, True), torch.ones(4, 3), verify=True)
    monkeypatch.setattr(assumptions, "MOST", 3)
    _, warning = exported(lambda x: x.view(-1, 8), (16,))
    assert "the model is made for (x.shape[0] % 8) == 0, and other sizes were not tried" in warning


def test_a_model_that_is_wrong_at_its_own_example_is_warned_of() -> None:
    module = graphwright.trace(lambda x: torch.sin(x), torch.ones(3, 4))
    with pytest.warns(UserWarning, match=r"output 'output' is off by .* at x \[3, 4\]"):
        graphwright.onnx.export(
            module, torch.ones(3, 4), custom_translation_table={torch.ops.aten.sin.default: _cosine()}
        )


def _cosine() -> Any:
    from onnxscript import opset18

    return lambda x: opset18.Cos(x)


def paired(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(3)
    for one, other in zip(x, y, strict=True):
        total = total + one * other
    return total


@pytest.mark.slow
def test_what_a_strict_zip_goes_over_is_equally_long() -> None:
    program = graphwright.onnx.export(graphwright.trace(paired, (torch.ones(4, 3),) * 2), (torch.ones(4, 3),) * 2)
    assert torch.equal(program(torch.ones(2, 3), torch.ones(2, 3)), torch.full((3,), 2.0))
    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        program(torch.ones(2, 3), torch.ones(5, 3))


def lengths(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for row in x:
        total = total + row
    return total


def doubled(x: Tensor) -> Tensor:
    while x.abs().sum() < 100:
        x = x * 2
    return x


# A program, the sizes of its example, sizes of 0 at which the model is right, and those at which a call is refused
EMPTY = [
    pytest.param(lengths, [(4, 3)], [[(0, 3)]], [], id="no iteration"),
    pytest.param(plus, [(4, 6), (4, 6)], [[(0, 6), (0, 6)], [(4, 0), (4, 0)]], [[(0, 0), (0, 0)]], id="both at once"),
    pytest.param(lambda x: x.mean(1), [(4, 3)], [[(0, 3)]], [[(4, 0)]], id="a mean of nothing"),
    pytest.param(lambda x: x.amax(1), [(4, 3)], [[(0, 3)]], [[(4, 0)]], id="a program that refuses, too"),
    pytest.param(torch.nn.LSTM(3, 2), [(5, 2, 3)], [], [[(5, 0, 3)], [(0, 2, 3)]], id="what ends the process"),
    pytest.param(lambda x: torch.nn.functional.dropout(x, 0.5, True), [(4, 3)], [], [[(0, 3)]], id="not tried"),
    pytest.param(doubled, [(4, 3)], [], [[(0, 3)]], id="an endless loop"),
]


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("function", "sizes", "right", "refused"), EMPTY)
def test_no_items_are_right_or_refused(function: Any, sizes: Any, right: Any, refused: Any) -> None:
    program, _ = exported(function, *sizes)
    for given in right:
        args = [torch.randn(size) for size in given]
        torch.testing.assert_close(program(*args), function(*args), equal_nan=True)
    for given in refused:
        with pytest.raises(ExportError, match=r"\.shape\[\d\] is 0, and the model is not known to be right there"):
            program(*[torch.randn(size) for size in given])
