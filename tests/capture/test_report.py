"""What a capture says about itself: its report, and how much of the program's torch calls it recorded."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

import graphwright
from graphwright import trace
from graphwright.runtime import report_of

METADATA = {"size", "dim", "numel", "is_floating_point", "is_contiguous", "stride", "__len__", "__bool__", "__int__"}


class EagerCalls(TorchFunctionMode):
    """Counts what eager calls, apart by whether a leaf module or one of the opaque functions is running."""

    def __init__(self, *opaque: Callable[..., Any]) -> None:
        super().__init__()
        self.outside = self.inside = 0
        self._depth = 0
        self._leaf_depth = 0
        self._opaque = opaque

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.__name__
        is_read = name == "__get__" and not isinstance(result, torch.Tensor)
        if self._leaf_depth or name in METADATA or is_read:
            return result
        if self._depth:
            self.inside += 1
        else:
            self.outside += 1
        return result

    def count(self, model: Callable[..., Any], *args: Any) -> float:
        """Run a program in eager; return the fraction of its calls that are outside of opaque functions."""
        handles = []
        for module in model.modules() if isinstance(model, nn.Module) else ():
            if type(module).__module__.startswith("torch.nn") and not isinstance(module, nn.Sequential):
                handles.append(module.register_forward_pre_hook(lambda *_: self._enter_leaf(1)))
                handles.append(module.register_forward_hook(lambda *_: self._enter_leaf(-1)))
        with self:
            model(*args)
        for handle in handles:
            handle.remove()
        return self.outside / (self.outside + self.inside)

    def _enter_leaf(self, step: int) -> None:
        self._leaf_depth += step


COUNTING: list[EagerCalls] = []


def opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the mode that counts in eager when the function runs."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        for mode in COUNTING:
            mode._depth += 1
        try:
            return function(*args)
        finally:
            for mode in COUNTING:
                mode._depth -= 1

    return call


@opaque
def smooth(x: torch.Tensor) -> torch.Tensor:
    x = x.relu() + F.softplus(x)
    if x.dim() > 5:
        x = x[0]
    x[0] = 1.0
    return x.mT.contiguous()


@opaque
def total(x: torch.Tensor) -> float:
    return float(sum(x.flatten().tolist()))


class Everything(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        return torch.relu(x.reshape(columns, rows)) + torch.ones(rows) * x.mean().item()


class Partly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3))
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers(x * self.scale)
        return self.mixed(x) - x.mean(dim=-1, keepdim=True)

    @opaque
    def mixed(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).tanh() * smooth_inner(x)


def smooth_inner(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x) + 1


def two_opaque(x: torch.Tensor) -> torch.Tensor:
    y = smooth(x.clone()) * 2
    return y.sum() * total(y) - torch.arange(3).sum()


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x.exp() + 1
    x = smooth(x * 2)
    return x - 1 if x.size(0) > 1 else x * 0


COVERED = [
    pytest.param(Everything(), (torch.ones(2, 3),), (), id="everything"),
    pytest.param(Partly(), (torch.ones(2, 3),), (Partly.mixed,), id="a method with leaf modules inside"),
    pytest.param(two_opaque, (torch.ones(3, 3),), (smooth, total), id="functions, one that wants data"),
    pytest.param(lambda x: torch.erf(x) + 1, (torch.ones(3),), (torch.erf,), id="torch's own function is a node"),
]


@pytest.mark.parametrize(("model", "args", "leaves"), COVERED)
def test_coverage_is_that_of_an_independent_count_in_eager(model: Any, args: Any, leaves: Any) -> None:
    mode = EagerCalls()
    COUNTING.append(mode)
    expected = mode.count(model, *args)
    COUNTING.clear()
    gm = trace(model, args, leaf_functions=leaves)
    facts = gm.report.facts
    assert (facts.recorded, facts.hidden) == (mode.outside, mode.inside)
    assert gm.coverage == gm.report.coverage == expected
    assert (gm.coverage < 1) == any(
        "inside" in entry.text and "0 torch" not in entry.text for entry in gm.report.opaque
    )


def test_both_sides_of_a_branch_count() -> None:
    gm = trace(branches, (torch.ones(2, 2),), leaf_functions=[smooth])
    # sum, gt, exp, add, mul, sub, mul; and in `smooth` relu, softplus, add, setitem, mT, contiguous
    assert (gm.report.facts.recorded, gm.report.facts.hidden) == (7, 6)


def forks(x: torch.Tensor) -> Any:
    y = x * 2
    if x.sum() > 0:
        return y, x.abs() + smooth(x)
    return y - 1


def test_what_the_capture_itself_reads_is_no_part_of_the_program() -> None:
    gm = trace(lambda x: x + 1 if not x.sum() > 0 and x.max() else x[x > 0], (torch.ones(3),))
    assert gm.report.facts.attempt == "captured on real values"
    assert not [node for node in gm.graph.all_nodes() if node.target == "__bool__"]
    assert gm.graph.constants == {}


def test_a_fork_counts_what_comes_before_it_once() -> None:
    gm = trace(forks, (torch.ones(2, 2),), leaf_functions=[smooth])
    facts = gm.report.facts
    assert (facts.recorded, facts.hidden, facts.paths) == (6, 6, 2)  # mul, sum, gt; abs, add; sub


# reported.py
def reported(x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
    if x.max() > 3:
        x = x - 1
    if mask is not None:
        x = x * mask
    for _ in (0,) * x.size(0):
        x = x * 2
    x = smooth(x)
    if x.min() > 0:
        return x, x
    return x


def report() -> Any:
    return trace(reported, (torch.ones(2, 2),), leaf_functions=[smooth]).report


def test_the_report_lists_what_happened_with_the_users_lines() -> None:
    entries = [entry for entry in report().entries if entry.kind != "restart"]
    assert [(entry.kind, entry.text, entry.at.partition(": ")[2]) for entry in entries] == [
        ("guard", "mask is None", "def reported(x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:"),
        (
            "guard",
            "the global 'smooth' of tests.capture.test_report",
            "def reported(x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:",
        ),
        ("guard", "size was 2", "for _ in (0,) * x.size(0):"),
        ("region", "cond on gt", "if x.max() > 3:"),
        ("opaque", "smooth, with 6 torch calls inside", "x = smooth(x)"),
        ("fork", "cond on gt_1", "if x.min() > 0:"),
    ]
    assert all(entry.at.startswith("test_report.py:") for entry in entries)


def test_the_report_says_why_each_pass_was_needed() -> None:
    def fresh(x: torch.Tensor) -> Any:  # no other test converts it
        if x.min() > 0:
            return x, x
        return x

    gm = trace(fresh, (torch.ones(2),))
    assert [(entry.text, entry.at.partition(": ")[2]) for entry in gm.report.restarts] == [
        ("converted fresh", "if x.min() > 0:"),
        ("forked: tuple on one side, Tensor on the other", "if x.min() > 0:"),
    ]
    facts = gm.report.facts
    assert (facts.attempt, facts.passes, facts.paths) == ("captured", 4, 2)  # two that were given up, one per path
    assert 0 < facts.seconds < 60


def test_the_report_says_where_in_a_variable_the_sides_of_a_branch_differ() -> None:
    def kept(x: torch.Tensor) -> Any:
        state = {"h": (x, 1), "n": 0}
        if x.sum() > 0:
            state = {"h": (x + 1, "a"), "n": 0}
        return state["h"][0]

    def in_a_loop(x: torch.Tensor) -> Any:
        state = {"h": [x[0], 1]}
        for row in x:
            state = {"h": [state["h"][0] + row, None]}
            if row.sum() > 4:
                break
        return state["h"][0]

    texts = [
        entry.text for program in (kept, in_a_loop) for entry in trace(program, (torch.ones(2, 2),)).report.restarts
    ]
    assert any(text.endswith(": 'state'['h'][1]: str on one side, int on the other") for text in texts), texts
    assert any(text.endswith("'state'['h'][1]: int before an iteration, NoneType after it") for text in texts), texts


def test_the_report_says_which_attempts_did_not_hold() -> None:
    gm = trace(lambda x: x[x > 0] * 2, (torch.ones(3),))
    assert gm.report.facts.attempt == "captured on real values"
    assert [entry.text.partition(":")[0] for entry in gm.report.restarts] == [
        "not captured",
        "not captured as for export",
    ]


def test_the_report_reads_as_text() -> None:
    lines = str(report()).splitlines()
    assert lines[0].startswith("captured in ") and lines[0].endswith("coverage 54%")
    assert [line for line in lines if not line.startswith(" ")][-4:] == [
        "taken for granted:", "branches:", "forks:", "not looked into:",
    ]  # fmt: skip
    assert lines[lines.index("not looked into:") + 1] == "  smooth, with 6 torch calls inside"
    assert lines[-1].endswith(": x = smooth(x)")


def test_what_the_graph_says_stays_true_after_edits() -> None:
    gm = trace(reported, (torch.ones(2, 2),), leaf_functions=[smooth])
    facts = gm.report.facts
    for guard in gm.guards:
        if guard.node.graph is gm.graph and not guard.node.users and guard.node._position is not None:
            gm.graph.erase_node(guard.node)
    assert gm.report.guards == []
    assert gm.report.facts == facts and len(gm.report.regions) == 1


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return smooth_inner(x) if x.sum() > 0 else x


COPIES = [
    pytest.param(copy.deepcopy, id="deepcopy"),
    pytest.param(copy.copy, id="copy"),
    pytest.param(lambda gm: pickle.loads(pickle.dumps(gm)), id="pickle"),
]


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_has_the_report(copied: Any) -> None:
    gm = trace(Block(), (torch.ones(2, 2),), leaf_functions=[smooth_inner])
    assert len(gm.report.entries) >= 2 and gm.coverage < 1
    assert copied(gm).report == gm.report


def test_a_saved_module_has_the_report(tmp_path: Path) -> None:
    gm = trace(Block(), (torch.ones(2, 2),), leaf_functions=[smooth_inner])
    assert graphwright.save(gm, tmp_path / "block.gw", strict=True) == []
    again = graphwright.load(tmp_path / "block.gw", allow=["tests.capture"])
    assert again.report == gm.report and str(again.report) == str(gm.report)


class Named(nn.Module):
    """Uses our names in every way that a module has."""

    coverage = "a class attribute"

    def __init__(self) -> None:
        super().__init__()
        self.report = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.report(x)


class Covering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.coverage = [1]
        self.register_buffer("report", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.report


def test_the_users_names_win() -> None:
    gm = trace(Named(), torch.ones(1, 2))
    assert isinstance(gm.report, nn.Linear) and gm.coverage == "a class attribute"
    gm = copy.deepcopy(trace(Covering(), torch.ones(1, 2)))
    assert gm.report.tolist() == [1, 1] and gm.coverage == [1]
    assert gm(torch.ones(2)).tolist() == [2, 2]
    assert report_of(graphwright.graph(gm)).coverage == 1
    traced = graphwright.symbolic_trace(Named())
    assert traced(torch.ones(1, 2)).shape == (1, 2)
    traced.coverage = 3
    assert traced.coverage == 3


def halved(x: torch.Tensor) -> torch.Tensor:
    while x.norm() > 1:
        x = x * 0.5
    return x


def test_a_loop_names_what_decides_it() -> None:
    assert [entry.text for entry in trace(halved, torch.ones(2)).report.regions] == ["while_loop on gt"]


def if_positive(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x


def test_a_symbolic_trace_has_a_report() -> None:
    traced = graphwright.symbolic_trace(if_positive)
    assert [traced.report.facts.attempt, traced.report.facts.passes, traced.coverage] == ["traced symbolically", 2, 1]
    assert [entry.text for entry in traced.report.restarts] == ["converted if_positive"]
    assert len(traced.report.regions) == 1
    straight = graphwright.symbolic_trace(nn.Sequential(nn.ReLU()))
    assert str(straight.report).endswith(" s: 1 pass, 1 path, 3 nodes, coverage 100%")


def test_a_graph_put_together_by_hand_says_so() -> None:
    graph = graphwright.Graph()
    graph.output(graph.placeholder("x"))
    report = graphwright.GraphModule(nn.Module(), graph).report
    assert (str(report), report.nodes) == ("not captured: the graph was put together otherwise", 2)


def test_a_module_with_a_report_can_be_scripted() -> None:
    gm = trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2))
    assert torch.jit.script(gm)(torch.ones(3, 2)).shape == (3, 2)


def test_a_compiled_function_that_stays_one_node_is_not_compiled_by_the_capture() -> None:
    compiled: list[Any] = []
    function = torch.compile(smooth_inner, backend=lambda gm, inputs: compiled.append(gm) or gm)
    gm = trace(lambda x: function(x) * 2, (torch.ones(3),), leaf_functions=[function])
    assert compiled == []
    assert (gm.report.facts.recorded, gm.report.facts.hidden) == (1, 2)
