"""Gradient state and modes are read at the call: what a program asks of them agrees with eager in every world.

A world is what may change between two calls: inputs that require gradients, are no leaves, have one; frozen parameters;
grad mode, inference mode, autocast. A captured program gives there what eager gives, or raises a GuardError.
"""

from __future__ import annotations

import contextlib
import copy
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import is_grad_enabled, nn
from torch import is_grad_enabled as takes_gradients
from torch.utils.checkpoint import checkpoint

from graphwright import GuardError, load, save, trace
from graphwright.capture.calls import modes
from graphwright.passes import MergeSubexpressions

Inputs = list[torch.Tensor]


def full(*shape: int) -> torch.Tensor:
    return torch.full(shape, 3.0)


# ---- worlds


def with_gradient(inputs: Inputs) -> Inputs:
    for each in inputs:
        each.requires_grad_().grad = torch.ones_like(each)
    return inputs


def retained(inputs: Inputs) -> Inputs:
    made = [each.requires_grad_() * 1 for each in inputs]
    for each in made:
        each.retain_grad()
    return made


def of_inference(inputs: Inputs) -> Inputs:
    with torch.inference_mode():
        return [each + 0 for each in inputs]


MADE: dict[str, Callable[[Inputs], Inputs]] = {
    "plain": lambda inputs: inputs,
    "requires grad": lambda inputs: [each.requires_grad_() for each in inputs],
    "no leaf": lambda inputs: [each.requires_grad_() * 1 for each in inputs],
    "with a gradient": with_gradient,
    "retains grad": retained,
    "of inference": of_inference,
}
MODES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.float16),
}


@contextlib.contextmanager
def frozen(module: Any) -> Iterator[None]:
    parameters = list(module.parameters())
    for each in parameters[:1]:
        each.requires_grad_(False)
    try:
        yield
    finally:
        for each in parameters:
            each.requires_grad_(True)


def outcomes(program: Any, example: Inputs) -> dict[str, Any]:
    """What a program gives in each world."""
    found = {name: outcome(program, make(copy.deepcopy(example))) for name, make in MADE.items()}
    for name, mode in MODES.items():
        inputs = MADE["requires grad"](copy.deepcopy(example))
        with mode():
            found[name] = outcome(program, inputs)
    if [*getattr(program, "parameters", list)()]:
        with frozen(program):
            found["frozen"] = outcome(program, MADE["requires grad"](copy.deepcopy(example)))
    return found


def outcome(program: Any, inputs: Inputs) -> Any:
    try:
        result = program(*inputs)
    except GuardError:
        return "guarded"
    except Exception as error:
        return type(error).__name__
    return told(result), [None if not each.is_leaf or each.grad is None else each.grad.tolist() for each in inputs]


def told(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist(), value.dtype, value.requires_grad, value.grad_fn is None, value.is_inference()
    if isinstance(value, (list, tuple)):
        return [told(item) for item in value]
    return value if not isinstance(value, dict) else {key: told(item) for key, item in value.items()}


def unlike(program: Any, example: Inputs) -> tuple[dict[str, Any], set[str]]:
    """The worlds in which a captured program gives another answer than eager, and those in which it gives none."""
    captured = trace(program, tuple(copy.deepcopy(example)))
    eager, found = outcomes(program, example), outcomes(captured, example)
    guarded = {world for world, answer in found.items() if answer == "guarded"}
    wrong = {world: (eager[world], answer) for world, answer in found.items() if answer != eager[world]}
    return {world: answers for world, answers in wrong.items() if world not in guarded}, guarded


# ---- programs: right in every world


def value_on_the_way(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if y.requires_grad:
        return y + 1
    return y


def either(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.is_grad_enabled() and (x.requires_grad or y.requires_grad) else x + y


def some(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 if any(each.requires_grad for each in (x, y)) else x + y


def is_true(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.requires_grad is True else x + 1


def cleared(x: torch.Tensor) -> torch.Tensor:
    if x.grad is not None:
        x.grad.zero_()
    return x * 2


def added(x: torch.Tensor) -> torch.Tensor:
    gradient = x.grad
    if gradient is None:
        gradient = torch.zeros_like(x)
    return x + gradient


def handed_on(x: torch.Tensor) -> torch.Tensor:
    def plus(gradient: torch.Tensor | None) -> torch.Tensor:
        return x if gradient is None else x + gradient

    return plus(x.grad)


def computed(x: torch.Tensor) -> torch.Tensor:
    return x * 1 if x.grad_fn is None else x * 2


def same_mode(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        return x * y


def both_modes(x: torch.Tensor) -> torch.Tensor:
    with torch.set_grad_enabled(torch.is_grad_enabled() and x.requires_grad):
        return x * 2


def decorated(x: torch.Tensor) -> torch.Tensor:
    @torch.set_grad_enabled(torch.is_grad_enabled())
    def twice(y: torch.Tensor) -> torch.Tensor:
        return y * 2

    return twice(x)


def put_back(x: torch.Tensor) -> torch.Tensor:
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(before)
    return y + x


def known_inside(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x * 2 if torch.is_grad_enabled() else x * 3


def same_inference(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(torch.is_inference_mode_enabled()):
        return x * 2


def no_inference(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(False):
        return x * 2


def made_like(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(2)
    y.requires_grad = x.requires_grad
    z = torch.ones(2)
    z.requires_grad_(x.requires_grad)
    return torch.zeros(2, requires_grad=x.requires_grad) + y + z


def written(x: torch.Tensor) -> Any:
    y = torch.zeros(2)
    before = y.requires_grad
    y += x
    return before, y.requires_grad, y


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(x.sum() // 3)):
        x = x * 2 if x.requires_grad else x + 1
    return x


def checkpointed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if torch.is_grad_enabled() and x.requires_grad:
        return checkpoint(lambda z: torch.relu(z * y), x, use_reentrant=False)  # type: ignore[no-any-return]
    return torch.relu(x * y)


def retaining(x: torch.Tensor) -> Any:
    y = x * 2
    if y.requires_grad:
        y.retain_grad()
    return y, y.retains_grad


def inner_gradient(x: torch.Tensor) -> Any:
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        (y * y).sum().backward()
        return y.grad, y.grad is None


def renamed(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if takes_gradients() else x + 1


def asks() -> bool:
    return is_grad_enabled()


def by_a_helper(x: torch.Tensor) -> torch.Tensor:
    y = x * 3
    return y * 2 if asks() else y + 1


def autocast_of_its_own(x: torch.Tensor) -> Any:
    with torch.autocast("cpu"):
        return x[None] @ x[:, None]


def autocast_off(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", enabled=False):
        return x[None] @ x[:, None], torch.is_autocast_enabled("cpu")


def without_source(text: str) -> Any:
    names = {"torch": torch}
    exec(f"def program(x):\n    return {text}\n", names)
    return names["program"]


def lone(name: str) -> Any:
    return {
        "requires_grad": lambda x: x * 2 if x.requires_grad else x + 1,
        "a fact": lambda x: x.requires_grad,
        "is_leaf": lambda x: x * 2 if x.is_leaf else x - 1,
        "is_leaf of many": lambda x: [each.is_leaf for each in (x, x * 2, x.detach())],
        "grad": lambda x: 1 if x.grad is None else 2,
        "grad handed out": lambda x: x.grad,
        "retains_grad": lambda x: x * 2 if x.retains_grad else x + 1,
        "is_inference": lambda x: x * 2 if x.is_inference() else x + 1,
        "torch.is_inference": lambda x: x * 2 if torch.is_inference(x) else x + 1,
        "is_grad_enabled": lambda x: x * 2 if torch.is_grad_enabled() else x + 1,
        "is_inference_mode_enabled": lambda x: x * 2 if torch.is_inference_mode_enabled() else x + 1,
        "a number": lambda x: x * int(x.requires_grad),
        "an item": lambda x: [1, 2][x.requires_grad],
        "a text": lambda x: f"{x.requires_grad}",
        "filtered": lambda x: list(filter(lambda each: each.requires_grad, [x, x + 1])),
        "vmap": lambda x: torch.vmap(lambda row: row * 2 if x.requires_grad else row + 1)(x[None]),
    }[name]


class Frozen(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.first = nn.Parameter(torch.ones(1))
        self.second = nn.Parameter(torch.ones(1))
        self.others = nn.ParameterList([nn.Parameter(torch.full((2,), float(n))) for n in range(way == "many" and 8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "sum":
            return sum(each.sum() for each in self.parameters() if each.requires_grad) * x
        if self.way == "many":
            return x * torch.stack([each.sum() for each in self.parameters() if each.requires_grad]).sum()
        if self.way == "list":
            trained = [each for each in self.parameters() if each.requires_grad]
            return x * len(trained) if trained else x
        if self.first.requires_grad:
            x = x * self.first
        return x + self.second if self.second.requires_grad else x


NAMES = [
    "requires_grad", "a fact", "is_leaf", "is_leaf of many", "grad", "grad handed out", "retains_grad", "is_inference",
    "torch.is_inference", "is_grad_enabled", "is_inference_mode_enabled", "a number", "an item", "a text", "filtered",
    "vmap",
]  # fmt: skip
ONE = (
    value_on_the_way, is_true, cleared, added, handed_on, computed, both_modes, decorated, put_back, known_inside,
    same_inference, no_inference, made_like, written, in_a_loop, retaining, inner_gradient, renamed, by_a_helper,
    autocast_of_its_own, autocast_off,
)  # fmt: skip
RIGHT = [
    *[pytest.param(lone(name), 1, id=name) for name in NAMES],
    *[pytest.param(program, 1, id=program.__name__) for program in ONE],
    *[pytest.param(program, 2, id=program.__name__) for program in (either, some, same_mode, checkpointed)],
    *[pytest.param(Frozen(way), 1, id=f"parameters: {way}") for way in ("sum", "list", "many", "branches")],
    pytest.param(without_source("x * 2 if x.requires_grad else x + 1"), 1, id="without source"),
    pytest.param(without_source("x * 2 if x.grad is None else x.grad"), 1, id="a gradient, without source"),
    pytest.param(without_source("x * 2 if torch.is_grad_enabled() else x + 1"), 1, id="a mode, without source"),
]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(("program", "count"), RIGHT)
def test_is_right_in_every_world(program: Any, count: int) -> None:
    wrong, guarded = unlike(program, [full(2) for _ in range(count)])
    assert not wrong
    assert not guarded


# ---- programs that are specialized: loud in some worlds


GUARDED = [
    pytest.param(lambda x: {True: 1, False: 2}[x.requires_grad], {"requires grad", "no leaf"}, id="a key"),
    pytest.param(lambda x: x * 2 if torch.is_autocast_enabled("cpu") else x + 1, {"autocast"}, id="autocast"),
    pytest.param(lambda x: x.grad_fn.name() if x.grad_fn is not None else "none", {"no leaf"}, id="into grad_fn"),
]


@pytest.mark.parametrize(("program", "loud"), GUARDED)
def test_what_cannot_be_staged_is_guarded(program: Any, loud: set[str]) -> None:
    wrong, guarded = unlike(program, [full(2)])
    assert not wrong
    assert guarded >= loud


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


DTYPES = [
    pytest.param(lambda x: x.to(torch.get_autocast_dtype("cpu")), MODES["autocast"], id="autocast"),
    pytest.param(lambda x: x.to(torch.get_default_dtype()), lambda: default_dtype(torch.float64), id="default"),
]


@pytest.mark.parametrize(("program", "mode"), DTYPES)
def test_a_dtype_of_a_mode_is_guarded(program: Any, mode: Any) -> None:
    captured = trace(program, (full(2),))
    assert captured(full(2)).dtype is program(full(2)).dtype
    with mode(), pytest.raises(GuardError, match=r"torch.get_(autocast|default)_dtype"):
        captured(full(2))


# ---- how it is written


def lines(program: Any, *example: torch.Tensor) -> list[str]:
    text = trace(program, example or (full(2),)).code.strip().splitlines()[1:]
    return [line.strip() for line in text if line.strip() and not line.strip().startswith("#")]


def test_questions_are_written_as_they_were_asked() -> None:
    assert lines(value_on_the_way) == ["y = x * 2", "if y.requires_grad:", "return y + 1", "return y"]
    assert lines(cleared) == ["if x.grad is not None:", "x.grad.zero_()", "return x * 2"]
    assert lines(same_mode, full(2), full(2))[0] == "with torch.set_grad_enabled(torch.is_grad_enabled()):"
    assert lines(known_inside)[:2] == ["with torch.no_grad():", "return x * 3"]
    assert lines(autocast_of_its_own)[0] == "with torch.autocast('cpu'):"


def test_what_nobody_uses_is_not_read() -> None:
    def unused(x: torch.Tensor) -> torch.Tensor:
        _ = x.requires_grad, x.grad, torch.is_grad_enabled(), x.is_leaf
        return x * 2

    assert lines(unused) == ["return x * 2"]


@pytest.mark.parametrize(
    "leaf_modules", [pytest.param((), id="leaves"), pytest.param(None, id="entered", marks=pytest.mark.slow)]
)
def test_what_layers_of_torch_ask_is_no_question_of_the_program(leaf_modules: Any) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with torch.no_grad():
        captured = trace(layer, (full(1, 3, 8),), leaf_modules=leaf_modules)
    assert not any(word in captured.code for word in ("requires_grad", "autocast", "is_grad_enabled"))
    captured(full(1, 3, 8)).sum().backward()
    assert all(each.grad is not None for each in captured.parameters())


def test_a_tensor_of_the_outside_is_held_itself() -> None:
    weight, used = torch.ones(2), torch.ones(2, requires_grad=True)
    derived = used * 2
    captured = trace(lambda x: (x * weight if weight.requires_grad else x + weight) + derived, (full(2),))
    assert captured(full(2)).tolist() == [6.0, 6.0]
    weight.requires_grad_()
    captured(full(2)).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [3.0, 3.0]
    assert used.grad is not None and used.grad.tolist() == [2.0, 2.0]


def test_a_capture_leaves_the_questions_of_others_alone() -> None:
    before, answers = torch.is_grad_enabled, queue.SimpleQueue[Any]()  # of which a capture puts nothing back

    def ask() -> None:
        while not has_ended.is_set():
            answers.put((torch.is_grad_enabled(), asks()))
            time.sleep(0.0001)

    has_ended, thread = threading.Event(), threading.Thread(target=ask)
    thread.start()
    with torch.no_grad():
        trace(lambda x: x * 2 if torch.is_grad_enabled() else x, (full(2),))
    has_ended.set()
    thread.join()
    assert not answers.empty()
    while not answers.empty():
        assert answers.get() == (True, True)
    assert torch.is_grad_enabled is before
    assert asks.__globals__["is_grad_enabled"] is before


def test_two_reads_around_what_changes_them_stay_two() -> None:
    def program(x: torch.Tensor) -> Any:
        before = x.grad is None
        (x * 2).sum().backward()
        return before, x.grad is None, torch.is_grad_enabled()

    captured = trace(program, (full(2).requires_grad_(),))
    MergeSubexpressions().run(captured)
    assert captured(full(2).requires_grad_()) == (True, False, True)


def test_a_question_asked_on_a_side_is_asked_again_after_it(tmp_path: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y, z = x * 1, x * 2
        if x.sum() > 0 and not y.requires_grad:
            z = z + 1
        if x.sum() > 1 and not y.requires_grad:
            z = z + 3
        return z * 5 if torch.are_deterministic_algorithms_enabled() else z

    gm = trace(program, (torch.ones(2),))
    save(gm, tmp_path / "asked.gw")
    assert torch.equal(load(tmp_path / "asked.gw", allow=["tests"])(full(2)), program(full(2)))
    for x in (full(2), -full(2), full(2) / 8):
        for each in (x, x.clone().requires_grad_()):
            torch.testing.assert_close(gm(each), program(each))


def test_a_file_keeps_questions(tmp_path: Any) -> None:
    captured = trace(Frozen("branches"), (full(2),))
    save(captured, tmp_path / "frozen.gw")
    loaded = load(tmp_path / "frozen.gw", allow=["tests"])
    for parameter in (loaded.first, loaded.second):
        parameter.requires_grad_(False)
    assert loaded(full(2)).tolist() == [3.0, 3.0]
    save(trace(lone("is_grad_enabled"), (full(2),)), tmp_path / "mode.gw")
    with torch.no_grad():
        assert load(tmp_path / "mode.gw", allow=["tests"])(full(2)).tolist() == [4.0, 4.0]


def steps(set_to_none: bool, clears: str) -> tuple[nn.Module, Any]:
    """A training step of SGD, written as a function, that clears the gradients of the step before."""
    torch.manual_seed(0)
    net = nn.ModuleDict({"used": nn.Linear(2, 2), "unused": nn.Linear(2, 2)})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        (optimizer if clears == "optimizer" else net).zero_grad(set_to_none=set_to_none)
        loss = net["used"](x).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    return net, step


@pytest.mark.parametrize("clears", ["optimizer", "module"])
def test_a_step_clears_the_gradients_of_the_one_before(clears: str) -> None:
    (net, step), (mine, other) = steps(True, clears), steps(True, clears)
    captured, x = trace(step, (full(2),)), full(2)
    for _ in range(3):
        assert torch.equal(captured(x), other(x))
    torch.testing.assert_close(net.state_dict(), mine.state_dict(), rtol=0, atol=0)


def test_a_gradient_that_torch_did_not_find_may_not_be_there() -> None:
    net, step = steps(False, "module")
    captured = trace(step, (full(2),))
    captured(full(2))
    with pytest.raises(GuardError):  # the first one's gradients are to be set to zero
        captured(full(2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.zero_grad()
    alone = trace(lambda x: (optimizer.step(), x)[1], (full(2),))
    alone(full(2))
    net["used"](full(2)).sum().backward()  # type: ignore[operator,index]
    with pytest.raises(GuardError):
        alone(full(2))


def test_modules_that_have_gone_do_not_have_all_looked_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as while_it_is_there:
        while_it_is_there.setitem(sys.modules, "gone", ModuleType("gone"))
        modes.modes_of(full)
        assert "gone" in modes._looked_at
    modes.modes_of(full)
    assert modes._looked_at == sys.modules.keys()


def removes_a_hook(x: torch.Tensor) -> torch.Tensor:
    handle = x.register_hook(lambda gradient: gradient * 2)
    y = x * 3
    y.register_hook(lambda gradient: gradient * 5)
    handle.remove()
    return y


def removes_where_data_says_so(x: torch.Tensor) -> torch.Tensor:
    handles = [y.register_hook(lambda gradient: gradient * 2) for y in (x * 1, x)]
    if x.sum() > 0:
        handles[1].remove()
    return x * 3


@pytest.mark.parametrize("program", [removes_a_hook, removes_where_data_says_so])
def test_hooks_of_tensors_are_removed_where_the_program_removes_them(program: Any) -> None:
    captured = trace(program, torch.ones(3, requires_grad=True))
    for sign in (1, -1):
        found = []
        for function in (program, captured):
            x = torch.full((3,), float(sign), requires_grad=True)
            function(x).sum().backward()
            found.append(x.grad)
        assert torch.equal(*found), sign
