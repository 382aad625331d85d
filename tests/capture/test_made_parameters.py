"""Parameters and buffers that a program makes while it runs, and attributes that it sets of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import CaptureError, GraphwrightError, symbolic_trace, trace

X = torch.tensor([[1.0, -2.0], [3.0, 4.0]])


class Weights(nn.Parameter):
    pass


class Noted(nn.Parameter):
    def __init__(self, data: Tensor) -> None:
        self.note = "made"


def written_through(x: Tensor) -> Any:
    y = x * 2
    parameter = nn.Parameter(y)
    parameter.data.mul_(3)
    return y, parameter


def chosen(x: Tensor) -> Tensor:
    return nn.Parameter(x) if x.sum() > 0 else x


PROGRAMS: dict[str, Callable[..., Any]] = {
    "a parameter": lambda x: nn.Parameter(x),
    "without gradient": lambda x: nn.Parameter(x * 2, requires_grad=False),
    "a choice of gradient": lambda x: nn.Parameter(x, x.shape[0] > 2),
    "of its own class": lambda x: Weights(x),
    "a buffer": lambda x: nn.Buffer(x * 2),
    "a buffer that is not saved": lambda x: nn.Buffer(x, persistent=False),
    "used": lambda x: nn.Parameter(x).sin(),
    "in a list": lambda x: [nn.Parameter(x.detach()), x],
    "shares memory": written_through,
    "on one side": chosen,
    "of a parameter": lambda x: nn.Parameter(nn.Parameter(x)),
}


def seen(values: Any) -> Any:
    """What one sees of tensors besides their values: class, gradient, marks."""
    if isinstance(values, tuple | list):
        return [type(values), *map(seen, values)]
    marks = [getattr(values, name, None) for name in ("_is_buffer", "persistent")]
    is_parameter = isinstance(values, nn.Parameter)
    return type(values), values.tolist(), values.requires_grad, values.is_leaf, is_parameter, marks


@pytest.mark.parametrize("capture", [lambda f: trace(f, (X.clone(),)), symbolic_trace], ids=["trace", "symbolic_trace"])
@pytest.mark.parametrize("case", PROGRAMS)
def test_made_while_the_program_runs(case: str, capture: Callable[[Any], Any]) -> None:
    program = PROGRAMS[case]
    captured = capture(program)
    for x in (X, -X):
        assert seen(captured(x.clone())) == seen(program(x.clone()))


def test_it_is_one_operation() -> None:
    captured = trace(lambda x: nn.Parameter(x * 2) + 1, (X,))
    assert [node.name for node in captured.graph.nodes] == ["x", "mul", "parameter", "add", "output"]


def test_of_which_class_it_is() -> None:
    def program(x: Tensor) -> Any:
        made = nn.Parameter(x)
        return type(made) is nn.Parameter, isinstance(made, nn.Parameter), isinstance(made + 1, nn.Parameter)

    assert trace(program, (X,))(X) == (True, True, False)


@pytest.mark.parametrize("capture", [lambda f: trace(f, (X,)), symbolic_trace])
def test_a_constructor_of_its_own_is_refused(capture: Callable[[Any], Any]) -> None:
    with pytest.raises(CaptureError, match="a parameter of class Noted, which has a constructor of its own"):
        capture(lambda x: Noted(x))


def test_a_parameter_of_nothing_is_an_error_of_ours() -> None:
    with pytest.raises(GraphwrightError, match="parameter is not a member of this module"):
        symbolic_trace(lambda x: x + nn.Parameter(torch.zeros(2)))


def data_set(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y.data = x * 2
    return y


def versions(x: Tensor) -> Any:
    y = x * 2
    before = y._version
    y.add_(1)
    return y * (y._version - before), before


def gradients(x: Tensor) -> Any:
    y = (x * 2).detach()
    before = y.requires_grad
    y.requires_grad = True
    return before, y.requires_grad, y


@pytest.mark.parametrize("program", [data_set, versions, gradients])
def test_symbolic_traces_read_and_set_attributes_where_the_program_does(program: Callable[..., Any]) -> None:
    assert str(symbolic_trace(program)(X)) == str(program(X))


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.weight.count = 0  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        self.weight.count += 1  # type: ignore[attr-defined]
        return x * self.weight.count  # type: ignore[attr-defined, no-any-return]


def test_symbolic_traces_count_on_a_parameter() -> None:
    model, captured = Counts(), symbolic_trace(Counts())
    assert [captured(X).tolist() for _ in range(3)] == [model(X).tolist() for _ in range(3)]


def test_a_parameter_is_called_what_the_program_calls_it() -> None:
    def program(x: Tensor) -> Tensor:
        scale = nn.Parameter(x * 2)
        return x + scale

    assert "    scale = torch.nn.parameter.Parameter(x * 2)\n" in trace(program, torch.ones(2)).code


class Smoothing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", torch.ones(1, 1, 2).cumsum(-1))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv1d(x[:, None], self.kernel)


def test_a_module_that_a_program_makes_is_converted_as_a_tensor_says() -> None:
    def smoothed(x: Tensor) -> Tensor:
        return Smoothing().to(x)(x)

    gm = trace(smoothed, (X.double(),))
    x = torch.randn(3, 5, dtype=torch.float64)
    assert torch.equal(gm(x), smoothed(x)) and gm(x).dtype is torch.float64
    assert "_parse_to" not in gm.code and "try:" not in gm.code
    with pytest.raises(GraphwrightError, match="argument 'x' was a"):
        gm(X)
