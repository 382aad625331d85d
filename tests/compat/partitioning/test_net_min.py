"""Searching for the nodes at which two ways to run a module part, beside torch.fx's minimizers."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.fx.passes import net_min_base as torch_fx_minimizers

import graphwright
from graphwright.passes import net_min_base

SIDES = [(torch.fx, torch_fx_minimizers), (graphwright, net_min_base)]


def chain(a, b):  # type: ignore[no-untyped-def]
    return (a.sin() + b.relu()).cos().neg().abs()


def sizes(a, b):  # type: ignore[no-untyped-def]
    first = a.sin()
    parts = (b.relu() * first.size(0)).cos().split(1)
    return parts[0].neg() + parts[1], first


def rounds(a, b):  # type: ignore[no-untyped-def]
    for _ in range(5):
        a = a.sin() + b
    return a


PROGRAMS: list[tuple[Any, list[str]]] = [
    (chain, ["sin", "relu", "cos", "abs_1"]),
    (sizes, ["sin", "cos", "getitem", "add"]),
    (rounds, ["sin", "add_2", "add_4"]),
]
METHODS = ["sequential", "binary", "accumulate", "block", "defined", "skip", "run_nodes", "nonsense"]
SETTINGS: list[dict[str, bool]] = [
    {},
    {"find_all": True},
    {"return_intermediate": True},
    {"all_outputs": True},
    {"accumulate_error": True},
]


def run(package: Any, base: Any, program: Any, wrong: set[str], raises: bool, method: str, **options: Any) -> list[Any]:
    """Everything that a search said, printed and called; nodes in the order of their names where sets are printed."""
    calls: list[Any] = []

    class Minimizer(base._MinimizerBase):  # type: ignore[misc, name-defined]
        def run_a(self, mod: Any, inputs: Any, report_idx: int = -1) -> Any:
            calls.append(("a", sorted(node.name for node in mod.graph.nodes), report_idx, type(inputs), len(inputs)))
            return mod(*inputs)

        def run_b(self, mod: Any, inputs: Any, report_idx: int = -1) -> Any:
            result = mod(*inputs)
            if not any(node.name in wrong and node.op != "placeholder" for node in mod.graph.nodes):
                return result
            if raises:
                raise ValueError("boom")
            return tuple(map(spoil, result)) if isinstance(result, tuple) else spoil(result)

    def spoil(value: Any) -> Any:
        return value + 100 if isinstance(value, torch.Tensor) else value

    def compare(a: Any, b: Any, output_names: list[str]) -> tuple[float, bool]:
        calls.append(("compare", type(a), output_names))
        pairs = zip(a, b, strict=True) if isinstance(a, tuple | list) else [(a, b)]
        worst = max([0.0, *((x - y).abs().max().item() for x, y in pairs if isinstance(x, torch.Tensor))])
        return round(worst), worst < 1

    def exported(inputs: Any, module: Any, name: str) -> None:
        calls.append(("export", len(inputs), type(module).__name__, name))

    def excluded(nodes: Any, start: int, end: int) -> None:
        calls.append(("exclude", [node.name for node in nodes], start, end))

    settings = base._MinimizerSettingBase(traverse_method=method, **options.pop("settings"))
    inputs = torch.ones(2, 3), torch.ones(2, 3)
    search = Minimizer(package.symbolic_trace(program), inputs, compare, settings, exported, excluded)
    result: Any
    try:
        result = search.run_nodes(**options) if method == "run_nodes" else search.minimize(**options)
        result = None if result is None else sorted(node.name for node in result)
    except RuntimeError as error:
        result = str(error)
    reports = re.sub(r"\{([^}]*)\}", lambda match: str(sorted(match[1].split(", "))), str(search.reports))
    outputs = sorted(search.a_outputs), sorted(search.b_outputs)
    return [result, calls, reports, outputs, search.results, search.iteration, str(settings)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(12))
def test_searches_are_those_of_torch_fx(seed: int, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    pick = random.Random(seed)
    program, marks = pick.choice(PROGRAMS)
    wrong = set(pick.sample(marks, pick.randint(0, 2)))
    options: dict[str, Any] = {"settings": pick.choice(SETTINGS)}
    if method == "skip":
        options["skip_nodes"] = pick.choice([["cos", "add_1"], [], None])
    elif method == "block":
        options["find_last_node"] = pick.choice([None, True, False])
    else:
        options |= pick.choice([{}, {"start": marks[1]}, {"start": marks[1], "end": marks[-2]}, {"start": "nothing"}])
    if options.get("start") == "nothing" and method not in ("sequential", "accumulate"):
        del options["start"]
    raises = pick.random() < 0.5
    if method == "block" and wrong & {"sin"} and options["find_last_node"] is None:
        wrong -= {"sin"}  # torch.fx then searches all nodes for the first one, when there is only one left
    found, printed = [], []
    for package, base in SIDES:
        found.append(
            run(package, base, program, wrong, raises, method, **{**options, "settings": dict(options["settings"])})
        )
        text = capsys.readouterr().out
        printed.append(re.sub(r"\{([^}]*)\}", lambda match: str(sorted(match[1].split(", "))), text))
    if method in ("skip", "defined") or (method == "binary" and options["settings"].get("find_all")):
        found, printed = [facts[1:2] for facts in found], ["", ""]  # torch.fx forgets what it found
    assert found[0] == found[1]
    assert printed[0] == printed[1]


@pytest.mark.parametrize(("method", "options"), [("skip", {"skip_nodes": ["neg"]}), ("defined", {}), ("binary", {})])
def test_what_is_found_is_returned(method: str, options: dict[str, Any]) -> None:
    found = [
        run(*side, chain, {"cos", "abs_1"}, False, method, settings={"find_all": True}, **options)[0] for side in SIDES
    ]
    assert found[0] != found[1] and {"cos", "abs_1"} <= set(found[1])


def test_modules_and_inputs_are_checked() -> None:
    for package, base in SIDES:
        settings = base._MinimizerSettingBase()
        with pytest.raises(AssertionError, match="Expected GraphModule"):
            base._MinimizerBase(nn.ReLU(), (), None, settings)
        search = base._MinimizerBase(package.symbolic_trace(nn.ReLU()), (torch.ones(1),), None, settings)
        with pytest.raises(RuntimeError, match=r"run_a\(\) is not implemented"):
            search.run_a(None, None)
