"""Running passes in order: both pass managers, beside torch.fx's."""

from __future__ import annotations

import itertools
import logging
import re
from typing import Any

import pytest
import torch.fx
from graphwright.passes.infra import pass_base
from graphwright.passes.infra import pass_manager as infra
from torch.fx.passes import pass_manager as torch_fx_legacy
from torch.fx.passes.infra import pass_base as torch_fx_base
from torch.fx.passes.infra import pass_manager as torch_fx_infra

import graphwright
from graphwright.passes import pass_manager as legacy

INFRA = [(torch_fx_base, torch_fx_infra), (pass_base, infra)]
LEGACY = [torch_fx_legacy, legacy]


def passes_of(base: Any) -> dict[str, Any]:
    def changed(gm: Any) -> Any:
        return base.PassResult(gm, True)

    def same(gm: Any) -> Any:
        return base.PassResult(gm, False)

    def silent(gm: Any) -> Any:
        return None

    def wrong(gm: Any) -> Any:
        return "text"

    def fails(gm: Any) -> Any:
        raise ValueError("from the pass")

    class Whole(base.PassBase):  # type: ignore[misc, name-defined]
        def requires(self, graph_module: Any) -> None:
            graph_module.log.append("requires")

        def call(self, graph_module: Any) -> Any:
            graph_module.log.append("call")
            return base.PassResult(graph_module, False)

        def ensures(self, graph_module: Any) -> None:
            graph_module.log.append("ensures")

    return {**{p.__name__: p for p in (changed, same, silent, wrong, fails)}, "Whole": Whole()}


def outcome(run: Any) -> Any:
    try:
        result = run()
    except Exception as error:
        text = re.sub(r" at 0x[0-9a-f]+", "", f"{error} | {error.__cause__!r}").replace(". Please", ".Please")
        return type(error).__name__, text
    return getattr(result, "modified", result)


class Subject:
    def __init__(self) -> None:
        self.log: list[str] = []


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(
    "names", [["changed"], ["same"], ["silent"], ["wrong"], ["Whole", "fails"], ["same", "Whole"], []]
)
def test_passes_run_as_in_torch_fx(names: list[str], wrap: bool) -> None:
    found = []
    for base, manager in INFRA:
        subject = Subject()
        passes = [passes_of(base)[name] for name in names]
        if wrap:
            passes = [manager.pass_result_wrapper(p) for p in passes]
        found.append([outcome(lambda: manager.PassManager(passes=passes)(subject)), subject.log])  # noqa: B023
    assert found[0] == found[1]


def test_pass_result_wrapper_keeps_the_name() -> None:
    for base, manager in INFRA:
        passes = passes_of(base)
        assert manager.pass_result_wrapper(passes["silent"]).__name__ == "silent"
        assert manager.pass_result_wrapper(passes["Whole"]).__name__ == "Whole"
        assert manager.pass_result_wrapper(None) is None


def test_steps_end_when_nothing_changes() -> None:
    for base, manager in INFRA:
        for steps, runs in ((10, 3), (2, 2), (None, 1)):
            seen: list[int] = []

            def count(gm: Any) -> Any:
                seen.append(1)  # noqa: B023
                return base.PassResult(gm, len(seen) < 3)  # noqa: B023

            assert manager.PassManager([count], steps=steps)(Subject()).modified
            assert len(seen) == runs


def test_checks() -> None:
    def check(module: Any) -> None:
        raise RuntimeError("bad proxy value")

    for base, manager in INFRA:
        run = manager.PassManager([passes_of(base)["same"]], run_checks_after_each_pass=True)
        run.add_checks(check)
        with pytest.raises(RuntimeError, match="bad proxy value"):
            run.check(Subject())
        with pytest.raises(RuntimeError, match="bad proxy value"):
            run(Subject())
        with pytest.raises(TypeError, match="PassManager check function should only take in one variable, a module"):
            run.add_checks(lambda a, b: None)


def test_orders_are_those_of_torch_fx() -> None:
    names = "abcd"
    for pairs in itertools.combinations(itertools.permutations(range(4), 2), 3):
        found = []
        for _, manager in INFRA:
            passes = [_named(name) for name in names]
            rules = [manager.this_before_that_pass_constraint(passes[i], passes[j]) for i, j in pairs]
            found.append(_sorted_names(manager, passes, rules))
        assert found[0] == found[1], pairs


def _named(name: str) -> Any:
    def run(gm: Any) -> Any:
        return gm

    run.__name__ = run.__qualname__ = name
    return run


def _sorted_names(manager: Any, passes: list[Any], rules: list[Any]) -> Any:
    try:
        return [p.__name__ for p in manager._topological_sort_passes(passes, rules)]
    except RuntimeError as error:
        return re.sub(r" at 0x[0-9a-f]+", "", str(error))


def test_a_violated_order_is_told() -> None:
    for manager in (torch_fx_infra, infra, *LEGACY):
        first, second = _named("first"), _named("second")
        rule = manager.this_before_that_pass_constraint(second, first)
        with pytest.raises(
            RuntimeError,
            match="^pass schedule constraint violated. Expected <function first"
            if manager in (torch_fx_infra, torch_fx_legacy)
            else "^pass schedule constraint violated. Expected <function second",
        ):
            manager._validate_pass_schedule_constraint(rule, [first, second])


def test_infra_manager_solves_and_validates() -> None:
    for base, manager in INFRA:
        passes = passes_of(base)
        first, second = passes["same"], passes["changed"]
        run = manager.PassManager([first, second], [manager.this_before_that_pass_constraint(second, first)])
        with pytest.raises(RuntimeError):
            run.validate_constraints()
        run.solve_constraints()
        run.validate_constraints()
        assert run.passes == [second, first]
        run.add_pass(first)
        assert not run._validated


def test_legacy_manager() -> None:
    def one(x: int) -> int:
        return x + 1

    def two(x: int) -> int:
        return x * 2

    for manager in LEGACY:
        run = manager.PassManager([one, two])
        assert run(3) == 8
        run.remove_pass(["one"])
        run.replace_pass(two, one)
        run.add_pass(two)
        assert run(3) == 8
        assert run._validated
        run.add_constraint(manager.these_before_those_pass_constraint(two, one))
        with pytest.raises(RuntimeError, match="pass schedule constraint violated"):
            run(3)
        assert manager.PassManager.build_from_passlist([one])(1) == 2


def test_legacy_wrappers(caplog: pytest.LogCaptureFixture) -> None:
    def append(items: list[int], item: int, again: int = 0) -> None:
        items += [item, again]

    for manager in LEGACY:
        assert manager.inplace_wrapper(append)([], 1, again=2) == [1, 2]
        loop = manager.loop_pass(abs, n_iter=2)
        assert loop(-1) == 1
        with pytest.raises(AssertionError, match="Exactly one of `n_iter`or `predicate` must be specified"):
            manager.loop_pass(abs)
        with caplog.at_level(logging.INFO):
            assert manager.log_hook(abs)(-3) == 3
    texts = [record.getMessage() for record in caplog.records]
    assert texts == ["Ran pass <built-in function abs>\t Return value: 3"], "torch.fx's logger keeps its records"


def test_pass_base_is_abstract() -> None:
    for base, _ in INFRA:
        with pytest.raises(TypeError, match="abstract"):
            base.PassBase()
        assert base.PassResult._fields == ("graph_module", "modified")
    gm = graphwright.symbolic_trace(torch.nn.ReLU())
    assert infra.PassManager([])(gm).graph_module is gm
