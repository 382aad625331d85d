"""A program that was captured before is captured in one pass, and comes out as if nothing were remembered."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphwright import CaptureError, GraphModule, TracerWarning, trace
from graphwright.capture.state import alike_results
from graphwright.capture.typed import remembered

X = torch.linspace(-1.0, 2.0, 12).view(3, 4)
FLAG = [False]


class Asking(nn.Module):
    """Asks, in two functions, what only a run knows; what else it does depends on things outside."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(4, width)
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        y = y * self.scale if y.sum() > 0 else y - 1
        return self.late(y)

    def late(self, y: Any) -> Any:
        if FLAG[0]:
            return y.relu()
        return y / 2 if y.max() > 3 else y + y.shape[0]


class Forking(nn.Module):
    def forward(self, x: Any) -> Any:
        return {"big": x} if x.sum() > 0 else (x, x)


def text(gm: GraphModule) -> tuple[Any, ...]:
    return str(gm.graph), gm.code, [str(guard) for guard in gm.guards], gm.report.restarts


def cold(model: Any, x: Any = X) -> GraphModule:
    remembered.forget_all()
    return trace(model, (x,))


@pytest.mark.parametrize("make", [Asking, Forking])
def test_the_next_capture_takes_one_pass_for_each_end(make: Any) -> None:
    first = cold(make())
    paths = first.report.facts.paths
    assert first.report.facts.passes > paths
    again = trace(make(), (X,))
    assert again.report.facts.passes == again.report.facts.paths == paths
    assert text(again) == text(first)


def test_what_changes_outside_is_found() -> None:
    model = Asking()
    cold(model)
    FLAG[0] = True
    try:
        again = trace(model, (X,))
        assert text(again) == text(cold(model))
        assert torch.equal(again(X), model(X))
        assert trace(model, (X,)).report.facts.passes == 1
    finally:
        FLAG[0] = False


CHANGES = {
    "an attribute": lambda model: setattr(model, "scale", 3.0),
    "a layer": lambda model: setattr(model, "linear", nn.Linear(4, 5)),
    "the mode": lambda model: model.eval(),
    "the gradients": lambda model: model.requires_grad_(False),
    "a hook": lambda model: model.linear.register_forward_hook(lambda module, args, result: result + 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_model_that_has_changed_comes_out_as_it_is(change: Any) -> None:
    model = Asking()
    cold(model)
    change(model)
    again = trace(model, (X,))
    assert text(again) == text(cold(model))
    for x in (X, -X, X[:2]):
        assert torch.equal(again(x), model(x))


def test_other_inputs_are_other_programs() -> None:
    model = Asking()
    cold(model)
    other = X[:2].double().float().clone()
    again = trace(model, (other,))
    assert text(again) == text(cold(model, other))


def test_options_are_part_of_what_is_remembered() -> None:
    model = Asking()
    cold(model)
    with pytest.warns(TracerWarning):
        assert "cond" not in str(trace(model, (X,), control_flow="follow", check_trace=False).graph)
    with pytest.raises(CaptureError):
        trace(model, (X,), control_flow="error")


def test_what_fails_fails_again() -> None:
    class Fails(nn.Module):
        def forward(self, x: Any) -> Any:
            x = x + 1 if x.sum() > 0 else x - 1
            if FLAG[0]:
                raise LookupError("not now")
            return x

    model = Fails()
    cold(model)
    FLAG[0] = True
    try:
        with pytest.raises(LookupError, match="not now"):
            trace(model, (X,))
    finally:
        FLAG[0] = False
    assert torch.equal(trace(model, (X,))(-X), model(-X))


def test_nothing_is_kept_alive() -> None:
    model = Asking()
    cold(model)
    gone, layer = weakref.ref(model), weakref.ref(model.linear)
    del model
    gc.collect()
    assert gone() is None
    assert layer() is None


def test_a_copy_is_alike() -> None:
    model = Asking()
    first = cold(model)
    again = trace(copy.deepcopy(model), (X.clone(),))
    assert again.report.facts.passes == 1
    assert text(again) == text(first)


def test_operations_that_somebody_replaces_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(x: Any) -> Any:
        y = F.gelu(x)
        return y if y.dtype is torch.float32 else y.sum()

    assert trace(made, (X,))(X).shape == X.shape
    gelu = F.gelu
    monkeypatch.setattr(F, "gelu", lambda x: gelu(x).double())
    assert trace(made, (X,))(X).shape == ()


def test_layers_of_which_somebody_replaces_a_part_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.GELU(), nn.ReLU())
    given = [trace(model, (X,)), trace(model, (X,))]
    gelu = F.gelu
    monkeypatch.setattr(F, "gelu", lambda x, approximate: gelu(x, approximate=approximate).double())
    known = alike_results.AlikeResults(None, {}, torch.detach)
    assert not known._of_torch
    monkeypatch.undo()
    assert alike_results.AlikeResults(None, {}, torch.detach)._of_torch
    assert str(given[0].graph) == str(given[1].graph)


class Sized(nn.Module):
    """Is captured on real values, after two other ways have failed; then it asks."""

    def forward(self, x: Any) -> Any:
        kept = x[x > 0]
        return kept.sum() if x.max() > 1 else kept[:1].sum()


def test_the_way_that_works_is_taken_at_once() -> None:
    first = cold(Sized())
    assert first.report.facts.attempt == "captured on real values"
    again = trace(Sized(), (X,))
    assert again.report.facts.passes == 1
    assert text(again) == text(first)
    assert torch.equal(again(-X), Sized()(-X))
