"""What forward hooks of the user's write: to modules of the program, and to what is outside of it."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import CaptureError, TracerWarning, trace, verify

noted: dict[str, Any] = {}


class Keeps(nn.Module):
    """A module whose layer's hook keeps what the layer gave."""

    def __init__(self, kind: str, reads: bool) -> None:
        super().__init__()
        self.layer, self.seen, self.reads = nn.Linear(4, 4), dict[str, Any](), reads
        hooks = {
            "method": self.keep,
            "closure": lambda module, args, result: self.seen.update(out=result.detach()),
        }
        self.layer.register_forward_hook(hooks[kind])

    def keep(self, module: nn.Module, args: Any, result: torch.Tensor) -> None:
        self.seen["out"] = result.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y + self.seen["out"].mean() if self.reads else y  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["method", "closure"])
@pytest.mark.parametrize("reads", [True, False])
def test_what_a_hook_writes_to_the_program(kind: str, reads: bool) -> None:
    model = Keeps(kind, reads)
    gm = trace(model, (torch.ones(2, 4),))
    assert model.seen == {}
    x = torch.randn(3, 4)
    assert torch.equal(gm(x), model(x)) and torch.equal(gm.seen["out"], model.seen["out"])
    assert type(gm.seen["out"]) is torch.Tensor and gm.seen is not model.seen
    assert verify(model, gm, [(torch.randn(2, 4),)], grads=True).ok


def test_a_hook_of_a_layer_that_writes_elsewhere_runs_when_the_layer_does() -> None:
    found: list[torch.Tensor] = []
    noted.clear()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, result: found.append(result))
    model[1].register_forward_hook(lambda module, args, result: noted.update(out=result))
    gm = trace(model, (torch.ones(2, 4),))
    assert found == [] and noted == {}
    assert [node.target for node in gm.graph.nodes if node.op == "call_module"] == ["0", "1"]
    out = gm(torch.ones(2, 4))
    assert len(found) == 1 and noted["out"] is out and type(out) is torch.Tensor


def test_a_hook_that_changes_the_result_keeps_the_layer_whole() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    gm = trace(model, (torch.ones(2, 4),))
    assert [node.target for node in gm.graph.nodes if node.op == "call_module"] == ["0"]
    assert torch.equal(gm(torch.ones(1, 4)), model(torch.ones(1, 4)))


def test_a_hook_of_a_module_that_is_entered_and_writes_elsewhere_is_told_of() -> None:
    found: list[torch.Tensor] = []
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))
    model[0].register_forward_hook(lambda module, args, result: found.append(result))
    with pytest.warns(TracerWarning, match="in a hook"):
        gm = trace(model, (torch.ones(2, 4),))
    assert found == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gm(torch.ones(2, 4))
    assert found == []


class KeepsBoth(nn.Module):
    """A module whose layer has hooks on its forward and on its backward, which write to the module."""

    seen: Any = None

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.layer, self.activation, self.gradient, self.calls, self.reads = nn.Linear(4, 4), None, None, 0, reads
        self.layer.register_forward_hook(self.keep_activation)
        self.layer.register_full_backward_hook(self.keep_gradient)
        self.layer.register_full_backward_pre_hook(self.count)

    def keep_activation(self, module: nn.Module, args: Any, result: torch.Tensor) -> None:
        self.activation = result.detach()  # type: ignore[assignment]

    def keep_gradient(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self.gradient = outputs[0].detach()

    def count(self, module: nn.Module, outputs: Any) -> None:
        self.calls += 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).sin()
        return y if not self.reads or self.activation is None else y * 2  # type: ignore[no-any-return]


def test_hooks_on_a_backward_act_on_the_captured_module() -> None:
    model = KeepsBoth(reads=False)
    gm = trace(model, (torch.ones(2, 4),))
    assert model.activation is None and gm.activation is None
    x = torch.randn(3, 4, requires_grad=True)
    for module in (model, gm, gm):
        module(x).sum().backward()
    assert torch.equal(gm.gradient, model.gradient) and torch.equal(gm.activation, model.activation)
    assert gm.calls == 2 and model.calls == 1


def test_a_program_that_reads_what_hooks_of_such_a_layer_write_is_refused() -> None:
    with pytest.raises(CaptureError, match="reads 'activation', which a hook of layer writes"):
        trace(KeepsBoth(reads=True), (torch.ones(2, 4),))


def test_hooks_on_a_state_dict_act_on_the_captured_module() -> None:
    class Counts(nn.Linear):
        loads = loaded = 0

        def note_load(self, *args: Any) -> None:
            self.loads += 1

        def note_loaded(self, *args: Any) -> None:
            self.loaded += 1

    model = Counts(4, 4)
    model.register_load_state_dict_pre_hook(model.note_load)
    model.register_load_state_dict_post_hook(model.note_loaded)
    gm = trace(nn.Sequential(model), (torch.ones(2, 4),))
    gm.load_state_dict(gm.state_dict())
    assert (gm[0].loads, gm[0].loaded, model.loads, model.loaded) == (1, 1, 0, 0)


class Registering(nn.Module):
    """A module that registers a hook itself: at the first call, as an attribute tells that is missing until then."""

    def __init__(self, way: str, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4)) if layer is None else layer
        self.way, self.is_done = way, False
        if way == "removed of the given":
            self.handle = self.layer.register_forward_hook(_doubled)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "once" and not getattr(self, "_has_hooks", False):
            self.layer.register_forward_hook(_doubled)
            self.layer.register_forward_pre_hook(_shifted, with_kwargs=True)
            self._has_hooks = True
        if self.way == "always":
            self.layer.register_forward_hook(_doubled)
        if self.way == "by a flag" and not self.is_done:
            self.layer.register_forward_hook(_doubled)
            self.is_done = True
        if self.way == "by data" and x.sum() > 0:
            self.layer.register_forward_hook(_doubled)
        if self.way == "bound" and not hasattr(self, "_has_hooks"):
            self.layer.register_forward_hook(self.tripled)
            self._has_hooks = True
        result: torch.Tensor = self.layer(x)
        if self.way == "removed of the given":
            self.handle.remove()
        return result

    def tripled(self, module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
        return result * 3


def _doubled(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 2


def _shifted(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
    return (args[0] + 1,), kwargs


def test_hooks_of_the_first_call_are_there_in_the_next() -> None:
    model, x = Registering("once"), torch.randn(2, 4)
    gm = trace(model, x)
    assert not model.layer._forward_hooks and not hasattr(model, "_has_hooks")
    for _ in range(3):
        torch.testing.assert_close(gm(x), model(x))


@pytest.mark.parametrize("way", ["always", "by a flag", "by data", "bound"])
def test_hooks_that_the_next_call_has_besides_are_refused(way: str) -> None:
    with pytest.raises(CaptureError, match=r"leaves a hook on self\.layer.*(.|\n)*remove the hook in the call"):
        trace(Registering(way), torch.ones(2, 4))


def test_a_hook_that_is_removed_is_refused_and_stays() -> None:
    model = Registering("removed of the given")
    with pytest.raises(CaptureError, match=r"removes a hook of self\.layer"):
        trace(model, torch.ones(2, 4))
    assert list(model.layer._forward_hooks.values()) == [_doubled]


class Towers(nn.Module):
    """Two parts that register hooks at their first call, the second one only where nothing is raised before."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = Registering("once"), Registering("once")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.one(x)
        if x.size(0) > 5:
            raise ValueError("too many")
        return self.other(y)  # type: ignore[no-any-return]


def test_a_way_that_raises_leaves_the_hooks_of_a_part_of_the_program() -> None:
    model, x = Towers(), torch.randn(2, 4)
    gm = trace(model, x)
    for _ in range(3):
        torch.testing.assert_close(gm(x), model(x))


class Apart(nn.Module):
    """A layer that is one node, with hooks inside that the program registers at its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "_has_hooks"):
            self.block[0].register_forward_hook(_doubled)
            self._has_hooks = True
        return self.block(x)  # type: ignore[no-any-return]


def test_hooks_inside_of_what_is_one_node_are_refused() -> None:
    model, x = Apart(), torch.randn(2, 4)
    with pytest.raises(CaptureError, match=r"hooks of block\.0, which is one node(.|\n)*call the model once before"):
        trace(model, x, leaf_modules=["block"])
    model(x)
    torch.testing.assert_close(trace(model, x, leaf_modules=["block"])(x), model(x))


def test_hooks_that_the_first_call_registers_in_some_ways_are_refused() -> None:
    class InSomeWays(Registering):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "_has_hooks"):
                if x.size(0) > 3:
                    self.layer.register_forward_hook(_doubled)
                self._has_hooks = True
            return self.layer(x)  # type: ignore[no-any-return]

    with pytest.raises(CaptureError, match=r"leaves a hook on self\.layer"):
        trace(InSomeWays(""), torch.randn(4, 4))


class Noted(nn.Module):
    def __init__(self, hook: Any) -> None:
        super().__init__()
        self.layer, self.last = nn.ReLU(), torch.zeros(2)
        self.layer.register_forward_hook(hook(self))

    def note(self, scale: float, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        self.last = output * scale

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.last


class Notes:
    def __init__(self, owner: Noted) -> None:
        self.owner = owner

    def __call__(self, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        self.owner.note(2.0, layer, inputs, output)


HOOKS_THAT_KNOW_IT = [
    pytest.param(lambda owner: functools.partial(owner.note, 2.0), id="partial of a method"),
    pytest.param(lambda owner: functools.partial(Noted.note, owner, 2.0), id="partial with the module"),
    pytest.param(Notes, id="object"),
]


@pytest.mark.parametrize("hook", HOOKS_THAT_KNOW_IT)
def test_what_hooks_write_by_another_way_is_read(hook: Any) -> None:
    model, gm = Noted(hook), trace(Noted(hook), (torch.ones(2),))
    for x in (torch.ones(2), torch.randn(3)):
        assert torch.equal(gm(x), model(x)) and torch.equal(gm.last, model.last)  # type: ignore[arg-type]
