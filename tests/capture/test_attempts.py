"""`try` statements of captured programs: each way does what it does in eager, and so do gradients and effects."""

from __future__ import annotations

import contextlib
import copy
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.capture.programs_with_try import FUNCTIONS, INPUTS, Outer, helper
from torch import nn

from graphwright import CaptureError, GraphModule, GuardError, Interpreter, load, save, symbolic_trace, trace
from graphwright.ir import graph_to_text, text_to_graph
from graphwright.ops import TorchSpelling

PROGRAMS = [*FUNCTIONS, Outer()]


def outcome(program: Any, x: torch.Tensor) -> Any:
    """What a call gives and its gradient, or the class and text of the error and the class of its cause."""
    x = x.clone().requires_grad_()
    torch.manual_seed(0)
    try:
        value = program(x)
        if value.requires_grad:
            value.sum().backward()
    except GuardError:
        raise
    except Exception as error:
        return type(error), str(error).split("\n")[0], type(error.__cause__)
    return value.detach(), x.grad


def state_of(program: Any) -> Any:
    return ([*program.state_dict().values()], getattr(program, "calls", None)) if isinstance(program, nn.Module) else ()


def assert_same(program: Any, captured: Any, run: Any, x: torch.Tensor) -> None:
    eager = copy.deepcopy(program)
    expected = outcome(eager, x)
    found = outcome(run, x)
    if isinstance(expected[0], type):
        assert found == expected
    else:
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    if isinstance(program, nn.Module):
        torch.testing.assert_close(state_of(captured), state_of(eager), rtol=0, atol=0)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("example", [0, 1], ids=["raises", "does not raise"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: getattr(p, "__name__", "module"))
def test_every_way_equals_eager(program: Any, example: int, tmp_path: Path) -> None:
    gm = trace(copy.deepcopy(program), INPUTS[example])
    gm.graph.lint()
    for x in INPUTS:
        for captured in (copy.deepcopy(gm), copy.deepcopy(copy.deepcopy(gm))):
            assert_same(program, captured, captured, x)
        captured = copy.deepcopy(gm)
        assert_same(program, captured, Interpreter(captured).run, x)


def of_text(gm: GraphModule) -> GraphModule:
    again = copy.deepcopy(gm)
    again.graph = text_to_graph(graph_to_text(gm.graph, TorchSpelling()), TorchSpelling())
    return again


SURVIVING = [
    "in_helper",
    "message",
    "from_e",
    "state_at_raise",
    "in_loop_return",
    "while_in_try",
    "with_inside",
    "cholesky",
]


@pytest.mark.parametrize("name", SURVIVING)
def test_it_survives_files_and_text(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    program = next(function for function in FUNCTIONS if function.__name__ == name)
    gm = trace(program, INPUTS[1])
    save(gm, tmp_path / "program.gw")
    gm.to_folder(tmp_path / f"package_{name}", "Program")
    monkeypatch.syspath_prepend(str(tmp_path))
    package = importlib.import_module(f"package_{name}")
    others = [load(tmp_path / "program.gw", allow=[program.__module__]), package.Program(), of_text(gm)]
    cleaned = copy.deepcopy(gm)
    cleaned.graph.eliminate_dead_code()
    for captured in (*others, cleaned):
        for x in INPUTS:
            assert_same(program, captured, captured, x)
    sys.modules.pop(f"package_{name}")


def factor(x: Any) -> Any:
    try:
        return torch.linalg.cholesky(torch.diag(x))
    except RuntimeError:
        return torch.diag(x) * 0


def test_a_function_whose_operation_fails_for_the_data_of_the_example_is_one_node() -> None:
    def program(x: Any) -> Any:
        return factor(x) * x.nonzero().numel()

    gm = trace(program, -torch.ones(3))
    assert "factor(x)" in gm.code
    for x in INPUTS:
        assert_same(program, gm, gm, x)


def test_where_that_cannot_be_one_node_it_is_refused() -> None:
    def program(x: Any) -> Any:
        try:
            y = torch.linalg.cholesky(torch.diag(x))
        except RuntimeError:
            y = torch.diag(x) * 0
        return y * x.nonzero().numel()

    with pytest.raises(CaptureError, match="the program catches what an operation raises for some data"):
        trace(program, -torch.ones(3))


class Swallows:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return kind is ValueError


class Notes:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        pass


@contextlib.contextmanager
def swallowing() -> Any:
    try:
        yield
    except ValueError:
        pass


@contextlib.contextmanager
def noting() -> Any:
    try:
        yield
    finally:
        pass


@pytest.mark.parametrize(
    ("context", "is_refused"), [(Swallows, True), (swallowing, True), (Notes, False), (noting, False)]
)
def test_a_context_that_may_swallow_an_error_of_the_run_is_refused(context: Any, is_refused: bool) -> None:
    def program(x: Any) -> Any:
        with context():
            y = helper(x)
        return y + 1

    if is_refused:
        with pytest.raises(CaptureError, match="may swallow"):
            trace(program, INPUTS[1])
        return
    gm = trace(program, INPUTS[1])
    for x in INPUTS:
        assert_same(program, gm, gm, x)


def test_no_handler_gets_the_error_of_a_guard() -> None:
    def program(x: Any) -> Any:
        try:
            y = torch.linalg.cholesky(torch.diag(x))
            z = [[0.0]] * x.size(0)
        except RuntimeError:
            y, z = torch.diag(x), [[1.0]]
        return y * len(z)

    gm = trace(program, INPUTS[0])
    assert gm.guards
    with pytest.raises(GuardError):
        gm(torch.ones(5))


def test_what_it_becomes() -> None:
    program = next(function for function in FUNCTIONS if function.__name__ == "item_index_assigned")
    lines = [line for line in trace(program, INPUTS[1]).code.splitlines() if "#" not in line]
    assert any("except IndexError:" in line for line in lines)
    assert "kept" in "\n".join(lines)


def test_an_iterator_that_a_function_inside_takes_items_of() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        numbers = iter(range(1, 4))

        def step(y: torch.Tensor) -> torch.Tensor:
            return y * next(numbers)

        return step(step(x))

    assert torch.equal(trace(program, torch.ones(3))(torch.ones(2)), torch.full((2,), 2.0))


class Filled:
    """A list of its own, and its length."""

    def __init__(self) -> None:
        self.items: list[torch.Tensor] = []

    def push(self, x: torch.Tensor) -> None:
        self.items.append(x)

    def __len__(self) -> int:
        return len(self.items)


def test_an_error_goes_to_the_nearest_handler_whatever_is_around_it() -> None:
    def program(x: torch.Tensor, n: int) -> int:
        filled = Filled()
        try:
            try:
                if (x.sum() > 0) == (n > 1):
                    raise ValueError
            except ValueError:
                filled.push(x)
            finally:
                pass
        except ValueError:
            pass
        return len(filled)  # how long a list is that one way alone has filled: no number of the graph

    with pytest.raises(CaptureError, match="`finally` does what an error must not leave out"):
        trace(program, (torch.ones(2), 2))


def test_an_index_of_data_that_fails_for_the_example_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            y = torch.ones(4)[x.long().sum()]
        except IndexError:
            return x * 2
        return y

    with pytest.raises(CaptureError, match=r"catches what an operation raises for some data(?s:.*)ones\(4\)\["):
        trace(program, (torch.ones(2, 3),))
    gm = trace(program, (torch.zeros(2, 3),))
    for x in (torch.zeros(2, 3), torch.ones(2, 3)):
        assert torch.equal(gm(x), program(x))


def test_the_class_that_a_handler_asks_for_is_guarded() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            y = torch.ones(4)[x.long().sum()] + x.sum()
        except Exception as error:
            return x * 2 if type(error) is IndexError else x * 3
        return y

    gm = trace(program, (torch.zeros(2, 3),))
    assert torch.equal(gm(torch.zeros(2, 3)), program(torch.zeros(2, 3)))
    with pytest.raises(GuardError):
        gm(torch.ones(2, 3))


@pytest.mark.parametrize("door", [lambda p: trace(p, (torch.ones(2),)), symbolic_trace], ids=["trace", "symbolic"])
def test_a_loop_in_a_try_returns_from_the_function(door: Any) -> None:
    def program(x: Any) -> Any:
        try:
            for i in range(3):
                if x.sum() > i:
                    return x * (i + 2)
            if x.sum() < -5:
                raise ValueError
        except ValueError:
            return -x
        return x + 1

    gm = door(program)
    for value in (0.2, 1.0, 9.0, -1.0, -9.0):
        x = torch.full((2,), value)
        assert torch.equal(gm(x), program(x))


def test_the_text_of_a_caught_error_is_all_that_is_read_of_it() -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            if x.shape[0] > 3:
                raise ValueError("too long")
            return x
        except ValueError as error:
            return str(error)

    gm = trace(program, (torch.ones(3),))
    assert ".args" not in gm.code
    assert gm(torch.ones(4)) == "too long"


def raises_from_what_it_caught(x: torch.Tensor) -> torch.Tensor:
    try:
        if x.sum() > 0:
            raise RuntimeError(f"{x.size(0)} rows")
    except RuntimeError as error:
        raise ValueError("positive") from error
    return x


def raises_from_what_a_function_raised(x: torch.Tensor) -> torch.Tensor:
    def check(x: torch.Tensor) -> None:
        if x.sum() > 0:
            raise RuntimeError(f"{x.size(0)} rows")

    try:
        check(x)
    except RuntimeError as error:
        if "rows" in str(error):
            raise ValueError("positive") from error
        raise
    return x


@pytest.mark.parametrize("program", [raises_from_what_it_caught, raises_from_what_a_function_raised])
def test_what_is_raised_from_a_caught_error_has_it_as_its_cause(program: Any) -> None:
    gm = trace(program, (-torch.ones(3),))
    assert torch.equal(gm(-torch.ones(2)), -torch.ones(2))
    for function in (program, gm):
        with pytest.raises(ValueError, match="positive") as raised:
            function(torch.ones(2))
        assert repr(raised.value.__cause__) == "RuntimeError('2 rows')"


def raises_another_error(x: torch.Tensor) -> torch.Tensor:
    try:
        y = x.view(2, -1)
    except RuntimeError as error:
        raise ValueError(f"{x.shape[0]} is odd") from error
    return y + 1


class CountsFailures(torch.nn.Module):
    failures = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return x.view(2, -1)
        except RuntimeError:
            self.failures += 1
            raise


def test_a_handler_raises_another_error_for_an_operation_of_its_own() -> None:
    gm = trace(raises_another_error, (torch.ones(4),))
    assert torch.equal(gm(torch.ones(6)), torch.full((2, 3), 2.0))
    for function in (raises_another_error, gm):
        with pytest.raises(ValueError, match="5 is odd") as raised:
            function(torch.ones(5))
        assert type(raised.value.__cause__) is RuntimeError
    counts = trace(CountsFailures(), (torch.ones(4),))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="invalid for input of size 3"):
            counts(torch.ones(3))
    assert counts.failures == 2 and counts(torch.ones(2)).shape == (2, 1)


def raises_it_again(x: torch.Tensor) -> torch.Tensor:
    try:
        y = x.view(2, -1)
    except RuntimeError:
        raise
    return y + 1


def raises_its_name_again(x: torch.Tensor) -> torch.Tensor:
    try:
        y = x.view(2, -1)
    except RuntimeError as error:
        raise error
    return y + 1


@pytest.mark.parametrize("program", [raises_it_again, raises_its_name_again])
def test_a_handler_that_raises_the_same_error_again_leaves_no_trace(program: Any) -> None:
    gm = trace(program, (torch.ones(4),))
    assert "try:" not in gm.code
    with pytest.raises(RuntimeError, match="invalid for input of size 5"):
        gm(torch.ones(5))


class TakesNoMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.LeakyReLU()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            try:
                x = layer(x, mask=None)
            except TypeError:
                x = layer(x)
        return x


def test_a_call_that_no_signature_takes_fails_for_all_sizes() -> None:
    model = TakesNoMask()
    gm = trace(model, (torch.ones(2, 4),))
    for shape in (3, 4), (2, 5, 4):
        x = torch.randn(shape)
        assert torch.equal(gm(x), model(x))
    assert "expect" not in gm.code.replace("expect_modules", "")
