"""The code of a program's own functions may be replaced between two calls, as notebooks load a changed module again."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.soundness.stories import UP
from torch import Tensor, nn

from graphwright import GuardError, load, save, script, trace


def triple(x: Tensor) -> Tensor:
    return x * 3


def triple_of(self: Any, x: Tensor) -> Tensor:
    return x * 3


def doubling() -> Any:
    def double(x: Tensor) -> Tensor:
        return x * 2

    return double


def with_default() -> Any:
    def scale(x: Tensor, by: int = 2) -> Tensor:
        return x * by

    return scale


def with_keyword() -> Any:
    def scale(x: Tensor, *, by: int = 2) -> Tensor:
        return x * by

    return scale


def bound() -> Any:
    class Scales:
        def run(self, x: Tensor) -> Tensor:
            return x * 2

    return Scales().run


def partial() -> Any:
    return functools.partial(with_default())


def decorated() -> Any:
    return torch.no_grad()(doubling())


def module() -> Any:
    class Doubles(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    return Doubles()


def around_a_layer() -> Any:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)  # type: ignore[no-any-return]

    return Around()


def around_a_module() -> Any:
    return nn.Sequential(module())


# What is captured, the function of it that gets something else, under which name, and what.
REPLACED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], str, Any]] = {
    "code": (doubling, lambda f: f, "__code__", triple.__code__),
    "default": (with_default, lambda f: f, "__defaults__", (9,)),
    "default of a keyword": (with_keyword, lambda f: f, "__kwdefaults__", {"by": 9}),
    "code of a method": (bound, lambda f: f.__func__, "__code__", triple_of.__code__),
    "default in a partial function": (partial, lambda f: f.func, "__defaults__", (9,)),
    "code inside a decorator": (decorated, lambda f: f.__wrapped__, "__code__", triple.__code__),
    "code of a forward": (module, lambda m: type(m).forward, "__code__", triple_of.__code__),
    "forward": (module, type, "forward", triple_of),
    "forward around a layer": (around_a_layer, type, "forward", triple_of),
    "code of an inner forward": (around_a_module, lambda m: type(m[0]).forward, "__code__", triple_of.__code__),
}


NOT_SCRIPTED = ("code of a method", "default in a partial function")
CASES = [(case, how) for case in REPLACED for how in (trace, script) if how is trace or case not in NOT_SCRIPTED]


@pytest.mark.parametrize(("case", "capture"), CASES)
def test_code_is_replaced(case: str, capture: Callable[..., Any]) -> None:
    make, owner_of, name, value = REPLACED[case]
    program = make()
    captured = trace(program, (UP,)) if capture is trace else script(program)
    assert torch.equal(captured(UP), program(UP))
    owner = owner_of(program)
    before = getattr(owner, name)
    setattr(owner, name, value)
    for each in (captured, copy.deepcopy(captured)):
        with pytest.raises(GuardError, match=r"replaced since the program was captured"):
            each(UP)
    setattr(owner, name, before)
    assert torch.equal(captured(UP), program(UP))


def scaled(x: Tensor) -> Tensor:
    return x * 2


def test_a_file_knows_no_function_of_another_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    save(trace(scaled, (UP,)), tmp_path / "scaled.gw")
    monkeypatch.setattr(scaled, "__code__", triple.__code__)
    assert torch.equal(load(tmp_path / "scaled.gw")(UP), UP * 2)


def test_the_code_that_people_read_says_nothing_of_it() -> None:
    assert "expect" not in trace(scaled, (UP,)).code


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class Middle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)  # type: ignore[no-any-return]


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.middle, self.table = Middle(), nn.ModuleDict({"a": Inner()})
        self.steps = nn.Sequential(Inner())

    def forward(self, x: Tensor) -> Tensor:
        return self.steps(self.table["a"](self.middle(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", ["middle", "middle.inner", "table", "table.a", "steps"])
@pytest.mark.parametrize("leaves", [delattr, lambda owner, name: setattr(owner, name, None)])
def test_a_module_leaves_of_which_the_graph_has_the_code(path: str, leaves: Callable[[Any, str], None]) -> None:
    def story(program: Any) -> Any:
        first = program(UP)
        owner, _, name = path.rpartition(".")
        leaves(program.get_submodule(owner), name)
        return first, program(UP)

    def eager() -> Any:
        try:
            story(Outer())
        except (AttributeError, TypeError, KeyError):
            return "raises"

    captured = trace(Outer(), (UP,))
    assert eager() == "raises"
    with pytest.raises(GuardError, match=r"is no more there"):
        story(captured)


def test_modules_that_a_captured_one_does_not_use_may_be_removed() -> None:
    captured = trace(Outer(), (UP,))
    captured.delete_all_unused_submodules()
    assert torch.equal(captured(UP), UP + 3)
