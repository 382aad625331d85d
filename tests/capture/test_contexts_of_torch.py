"""Contexts of torch that a program enters, which change no operation that is seen: regions of the graph."""

from __future__ import annotations

import contextlib
import operator
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from graphwright import GraphwrightError, Interpreter, load, save, symbolic_trace, trace
from graphwright.capture.outside.entered_contexts import contexts_of
from graphwright.ops import enter_context, exit_context

X = torch.tensor([1.0, 2.0])
pytestmark = [
    pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled"),
    pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN"),
]


def same(tensor: Tensor) -> Tensor:
    return tensor


@torch.inference_mode()
def decorated(x: Tensor) -> Tensor:
    return x * 2


CONTEXTS: dict[str, Callable[[], Any]] = {
    "attention": lambda: sdpa_kernel(SDPBackend.MATH),
    "attention in an order": lambda: sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True),
    "cudnn": lambda: torch.backends.cudnn.flags(enabled=False),
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "anomaly": lambda: torch.autograd.detect_anomaly(check_nan=False),
    "anomaly, set": lambda: torch.autograd.set_detect_anomaly(True),
    "threads": lambda: torch.autograd.set_multithreading_enabled(False),
    "no hooks": lambda: disable_saved_tensors_hooks("none here"),
    "hooks": lambda: saved_tensors_hooks(same, same),
    "on the CPU": lambda: save_on_cpu(),
    "sparse": lambda: torch.sparse.check_sparse_tensor_invariants(),
    "inference": lambda: torch.inference_mode(),
    "no inference": lambda: torch.inference_mode(False),
    "a level": lambda: torch.autograd.forward_ad.dual_level(),
    "no forward mode": lambda: torch.autograd.forward_ad._set_fwd_grad_enabled(False),
    "the order of einsum": lambda: torch.backends.opt_einsum.flags(enabled=False),
}
if hasattr(torch.autograd, "enforce_grad_layout_policy"):  # which older releases lack
    CONTEXTS["layout of gradients"] = lambda: torch.autograd.enforce_grad_layout_policy(False)
CAPTURES = [pytest.param(lambda f: trace(f, (X,)), id="trace"), pytest.param(symbolic_trace, id="symbolic_trace")]


def state() -> tuple[Any, ...]:
    return (
        torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled(), torch.is_inference_mode_enabled(),
        torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled, torch.autograd.forward_ad._current_level,
        torch._C._is_fwd_grad_enabled(),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    before = state()
    yield
    torch.set_anomaly_enabled(False, True)
    assert state() == before


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("case", CONTEXTS)
def test_a_context_is_entered_and_left(case: str, capture: Callable[[Any], Any]) -> None:
    context = CONTEXTS[case]

    def program(x: Tensor) -> Tensor:
        with context():
            y = x * 2
        return y + 1

    before = state()
    captured = capture(program)
    assert state() == before
    targets = [node.target for node in captured.graph.nodes]
    entered, left, inside = targets.index(enter_context), targets.index(exit_context), targets.index(operator.mul)
    assert entered < inside < left
    for run in (captured, Interpreter(captured).run):
        assert torch.equal(run(X), program(X))
        assert state() == before


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_decorated_function_is_inside_of_its_context(capture: Callable[[Any], Any]) -> None:
    assert capture(lambda x: decorated(x))(X).is_inference()


@pytest.mark.parametrize("capture", CAPTURES)
def test_anomalies_are_found_in_what_runs(capture: Callable[[Any], Any]) -> None:
    def program(x: Tensor) -> Any:
        with torch.autograd.detect_anomaly():
            y = x.detach().clone().requires_grad_()
            torch.sqrt(y).sum().backward()
        return y.grad

    captured = capture(program)
    assert torch.equal(captured(X), program(X))
    for run in (program, captured):
        with pytest.raises(RuntimeError, match="returned nan values"):
            run(-X)


@pytest.mark.parametrize("capture", CAPTURES)
def test_what_is_set_for_good_stays_set(capture: Callable[[Any], Any]) -> None:
    def program(x: Tensor) -> Tensor:
        torch.autograd.set_detect_anomaly(True)
        return x * 2

    captured = capture(program)
    torch.set_anomaly_enabled(False, True)
    captured(X)
    assert torch.is_anomaly_enabled()


def test_what_is_asked_inside_is_known_and_outside_is_guarded() -> None:
    def program(x: Tensor) -> Any:
        with torch.autograd.detect_anomaly():
            inside = torch.is_anomaly_enabled()
        return x, inside

    def asks(x: Tensor) -> Any:
        with torch.autograd.detect_anomaly():
            y = x * 2
        return y, torch.is_anomaly_enabled()

    captured, guarded = trace(program, (X,)), trace(asks, (X,))
    assert captured(X)[1] is True
    assert guarded(X)[1] is False
    with torch.autograd.set_detect_anomaly(True):
        assert captured(X)[1] is True
        with pytest.raises(GraphwrightError, match="is_anomaly_enabled"):
            guarded(X)


def test_it_is_left_where_an_operation_fails() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            return x.view(2)

    captured = trace(program, (X,))
    with pytest.raises((RuntimeError, GraphwrightError)):
        captured(torch.ones(3))


def test_files_have_them(tmp_path: Path) -> None:
    def program(x: Tensor) -> Tensor:
        with sdpa_kernel([SDPBackend.MATH]), torch.autograd.detect_anomaly(), torch.backends.cudnn.flags(enabled=False):
            return x * 2

    save(trace(program, (X,)), tmp_path / "contexts.gw")
    assert torch.equal(load(tmp_path / "contexts.gw")(X), X * 2)


def test_a_name_of_what_is_seen_anyway_takes_no_pass_more() -> None:
    names: dict[str, Any] = {"save_on_cpu": torch.autograd.graph.save_on_cpu, "__name__": __name__}
    program = types.FunctionType((lambda x: x.relu() + 1).__code__, names)
    assert "1 pass," in str(trace(program, torch.ones(2)).report)


class changing_something:
    """A context as a newer torch may have it."""

    __enter__ = __exit__ = lambda *_: None


def test_contexts_that_torch_adds_are_known_by_what_they_are() -> None:
    module = types.ModuleType("torch.autograd.something")
    for name, value in {"new": changing_something, "setting": contextlib.contextmanager(same), "same": same}.items():
        value.__module__ = module.__name__
        setattr(module, name, value)
    module.other = Path  # type: ignore[attr-defined]
    assert contexts_of(module) == ["new", "setting"]


@pytest.mark.skipif(not hasattr(torch.autograd.graph, "node_creation_hook"), reason="since torch 2.15")
def test_hooks_that_a_capture_would_call_are_refused() -> None:
    def program(x: Tensor) -> Any:
        seen: list[Any] = []
        with torch.autograd.graph.node_creation_hook(lambda node: seen.append(node)):
            y = x * 2
        return y, len(seen)

    with pytest.raises(GraphwrightError, match="gives a function to node_creation_hook"):
        trace(program, (X.clone().requires_grad_(),))
