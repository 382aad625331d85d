"""What a page is made of: what is known of nodes, how versions differ, and nothing of a program but data."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.viz import vendored
from torch import Tensor, nn

import graphwright
from graphwright import GraphError, rewrite, rule, symbolic_trace, trace, view
from graphwright.viz.describing import Record, describe
from graphwright.viz.measuring import Measured, measure
from graphwright.viz.page import SCRIPTS, write_page
from graphwright.viz.stepping import difference, steps_of


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, scale: float = 2.0) -> Tensor:
        self.calls += 1
        for row in x:
            if row.sum() > 0:
                x = self.linear(x) * scale
        return x


def content_of(page: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found is not None
    return json.loads(found[1])


def records_of(program: Any) -> dict[str, Record]:
    return describe(symbolic_trace(program), Measured()).records


def test_what_is_known_of_nodes() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 2)).eval()
    x = torch.ones(3, 4)
    gm = trace(model, (x,))
    found = describe(gm, measure(gm, (x,), {}, None))
    first, relu, second = [record for record in found.records.values() if record.op == "call_module"]
    assert (first.call, first.target, first.value, first.flops) == ("Linear", "0.0", "3×8 float32", 2 * 3 * 4 * 8)
    assert first.stack == (("0", "Sequential"),) and second.stack == ()
    assert ("weight", "8×4 float32") in first.details and first.parameters == 4 * 8 + 8
    assert relu.inputs == (first.id,) and relu.written == 3 * 8 * 4 and relu.runs == 1
    assert relu.seconds is not None and relu.seconds > 0
    line = found.code.splitlines()[found.lines[second.id] - 1]
    assert 'modules["1"](' in line


def test_bodies_are_described_and_told_what_their_inputs_stand_for() -> None:
    x = torch.ones(3, 4)
    gm = trace(Branching(), (x,))
    measured = measure(gm, (x,), {}, None)
    assert gm.calls == 0 and torch.equal(x, torch.ones(3, 4))  # running it changed nothing
    records = describe(gm, measured).records
    loop = next(record for record in records.values() if record.call == "for")
    (body,) = loop.bodies
    inputs = [record for record in records.values() if record.graph == body.id and record.op == "placeholder"]
    assert {"x", "scale"} <= {record.stands_for for record in inputs}
    branch = next(record for record in records.values() if record.call == "if")
    assert branch.graph == body.id and [each.label for each in branch.bodies] == ["true", "false"]
    linear = next(record for record in records.values() if record.call == "Linear")
    assert linear.graph == branch.bodies[0].id and linear.runs >= 1 and linear.value == "3×4 float32"


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.last: Tensor | None = None
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        self.last = x.sum()
        self.total += self.last
        return x * self.steps


def test_a_run_leaves_the_module_as_it_is(tmp_path: Path) -> None:
    x = torch.ones(2)
    gm = trace(Counting(), (x,))
    state = torch.get_rng_state()
    view(gm, tmp_path / "graph.html", args=x)
    assert (gm.steps, gm.last, gm.total) == (0, None, 0) and torch.equal(torch.get_rng_state(), state)
    assert set(gm.state_dict()) == {"total"}


def test_guards_stand_with_what_they_are_about() -> None:
    def program(x: Tensor, mode: str = "up") -> Tensor:
        return x * 2 if mode == "up" else x

    records = describe(trace(program, (torch.ones(2), "up")), Measured()).records
    assert any("mode was 'up'" in text or "mode is 'up'" in text for text in records["mode"].guards), records["mode"]


def test_captured_modules_that_are_called_are_opened() -> None:
    inner = symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    graph = graphwright.Graph()
    graph.output(graph.call_module("part", (graph.placeholder("x"),)))
    records = describe(graphwright.GraphModule({"part": inner}, graph), Measured()).records
    assert [record.id for record in records.values()][:3] == ["x", "part", "part/graph/input_1"]
    assert records["part/graph/input_1"].stands_for == "x"


TIMES = [
    pytest.param({"nowhere": 1.0}, "times has 'nowhere', which is no node", id="no node"),
    pytest.param({"relu": -1.0}, "times says that 'relu' took -1.0 seconds", id="before it began"),
    pytest.param({"relu": float("nan")}, "took nan seconds", id="no number"),
]


@pytest.mark.parametrize(("times", "message"), TIMES)
def test_times_that_cannot_be_are_refused(times: dict[str, float], message: str, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=message):
        view(symbolic_trace(lambda x: x.relu()), tmp_path / "graph.html", times=times)
    assert not list(tmp_path.iterdir())


def test_given_times_are_shown(tmp_path: Path) -> None:
    page = view(symbolic_trace(lambda x: x.relu()), tmp_path / "graph.html", times={"relu": 0.25})
    assert {node["id"]: node.get("seconds") for node in content_of(page)["first"]["nodes"]}["relu"] == 0.25


def test_both_comparisons_at_once_are_refused(tmp_path: Path) -> None:
    gm = symbolic_trace(lambda x: x + 1)
    with pytest.raises(GraphError, match="compare and log are both given"):
        view(gm, tmp_path / "graph.html", compare=gm, log=[])
    with pytest.raises(GraphError, match="has no graph"):
        view(nn.ReLU(), tmp_path / "graph.html")


DIFFERENCES = [
    pytest.param(lambda x: x + 1, lambda x: x + 1, (), (), id="nothing"),
    pytest.param(lambda x: x + 1, lambda x: x + 2, (), ("add",), id="another argument"),
    pytest.param(lambda x: x.relu() + 1, lambda x: x + 1, ("relu",), ("add",), id="one less"),
    pytest.param(lambda x: x + 1, lambda x: (x + 1).relu(), (), ("relu", "output"), id="one more"),
]


@pytest.mark.parametrize(("before", "after", "removed", "changed"), DIFFERENCES)
def test_differences(before: Any, after: Any, removed: tuple[str, ...], changed: tuple[str, ...]) -> None:
    old, new = records_of(before), records_of(after)
    step = difference(*(_without_places(each) for each in (old, new)))
    assert step.removed == removed and tuple(record.id for record in step.set) == changed and step.order == ()


def _without_places(records: dict[str, Record]) -> dict[str, Record]:
    """Records of programs that stand on different lines."""
    return {name: dataclasses.replace(record, place=None) for name, record in records.items()}


def test_moved_nodes_come_with_the_whole_order() -> None:
    one = _without_places(records_of(lambda x: (x.exp(), x.log())))
    two = {name: one[name] for name in ("x", "log", "exp", "output")}
    assert difference(one, two).order == ("x", "log", "exp", "output")
    assert difference(one, one).order == ()


def test_steps_lead_from_the_first_version_to_the_last() -> None:
    gm = symbolic_trace(lambda x: (x.neg().neg() * 1).relu())
    before = copy.deepcopy(gm)
    rules = [rule(lambda x: x * 1, lambda x: x, name="unit"), rule(lambda x: x.neg().neg(), lambda x: x, name="twice")]
    log = rewrite(gm, rules).log
    code = before.code
    steps = list(steps_of(before, log, describe(before, Measured())))
    assert [step.label for step in steps] == ["twice", "unit"]
    assert [step.removed for step in steps] == [("neg", "neg_1"), ("mul",)]
    assert before.code == code  # it was done on a copy


def test_a_page_loads_nothing_and_runs_nothing_else() -> None:
    hostile = "</script><script>alert(1)</script><!--"
    page = write_page(hostile, {"a": hostile}).decode()
    assert len(re.findall(r"<script", page)) == 2
    assert hostile not in page and "&lt;/script&gt;" in page
    assert "default-src 'none'" in page and not re.search(r"""(src|href)=["']?(http|//)""", page)
    assert not re.search(r"<!-- (policy|title|style|script|data) -->", page)


def test_every_script_is_in_the_page() -> None:
    folder = Path(graphwright.__file__).parent / "viz/page"
    assert sorted(SCRIPTS) == sorted(path.name for path in folder.glob("*.js"))
    assert all("</script" not in path.read_text() for path in folder.glob("*.js"))


def test_the_layout_library_is_the_one_that_was_fetched() -> None:
    note = json.loads(vendored.NOTE.read_text())
    assert note["sha256"] == vendored.sha256() and note["version"] in (vendored.FOLDER / "README.md").read_text()
    text = vendored.SCRIPT.read_text()
    assert "</script" not in text and vendored.without_pointers(text) == text
    assert "Permission is hereby granted" in vendored.LICENSE.read_text()
