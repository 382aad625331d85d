"""torch.fx's functions on this engine find what torch.fx finds, and give the same code."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.fx.passes.utils import matcher_utils

import graphwright
from graphwright.rewrite import (
    SubgraphMatcher,
    SubgraphMatcherWithNameNodeMap,
    replace_pattern,
    replace_pattern_with_filters,
)

X = torch.linspace(-2.0, 2.0, 8).view(2, 4)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * self.scale


class Found(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


class Put(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.other(x))


CASES: list[Any] = [
    pytest.param(lambda x: torch.relu(x) + 1, lambda x: torch.relu(x) + 1, lambda x: x.abs(), id="one"),
    pytest.param(lambda x: x.neg().neg().neg(), lambda x: x.neg().neg(), lambda x: x.sin(), id="overlapping"),
    pytest.param(lambda x: x.neg().neg().neg().neg(), lambda x: x.neg().neg(), lambda x: x.sin(), id="in a row"),
    pytest.param(lambda x: (x.neg() + 1, x.neg() + 2), lambda x: x.neg(), lambda x: x.sin(), id="two places"),
    pytest.param(lambda x: x * 3.0 + x * 2, lambda x, y: x * y, lambda x, y: x / y, id="literals for inputs"),
    pytest.param(lambda x: x * 3.0 + x * 2, lambda x: x * 2, lambda x: x + x, id="a literal"),
    pytest.param(lambda x: (x.sin(), x.cos()), lambda x: (x.sin(), x.cos()), lambda x: (x.cos(), x.sin()), id="values"),
    pytest.param(lambda x: (lambda y: y.sin() + y)(x.neg()), lambda x: x.neg().sin(), lambda x: x.cos(), id="shared"),
    pytest.param(lambda x: x.neg().sin(), lambda x: x.neg(), lambda x: x, id="nothing in its place"),
    pytest.param(lambda x: torch.cat([x, x.neg()]), lambda a, b: torch.cat([a, b]), lambda a, b: b - a, id="a list"),
    pytest.param(lambda x: x.sum(dim=1), lambda x: x.sum(dim=1), lambda x: x.mean(dim=1), id="by name"),
    pytest.param(lambda x: x.relu(), lambda x: x.exp(), lambda x: x, id="nothing found"),
    pytest.param(lambda x: x - 1, lambda x, y: x - y, lambda y, x: y * x, id="by position, whatever the names"),
    pytest.param(Two(), Found(), Put(), id="modules"),
    pytest.param(Two(), lambda x, y: x * y, lambda x, y: x - y, id="a parameter"),
]


@pytest.mark.parametrize(("program", "pattern", "replacement"), CASES)
def test_code_and_matches_are_torch_fx_s(program: Any, pattern: Any, replacement: Any) -> None:
    theirs, ours = torch.fx.symbolic_trace(program), graphwright.symbolic_trace(program)
    expected = torch.fx.replace_pattern(theirs, pattern, replacement)
    found = replace_pattern(ours, pattern, replacement)
    ours.graph.lint()
    assert [match.anchor.name for match in found] == [match.anchor.name for match in expected]
    for mine, other in zip(found, expected, strict=True):
        assert _names(mine.nodes_map) == _names(other.nodes_map)
    assert torch.equal(torch.stack(list(_values(ours(X)))), torch.stack(list(_values(theirs(X)))))
    assert sorted(_operations(ours)) == sorted(_operations(theirs))


def _names(nodes: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in nodes.items()}


def _values(result: Any) -> Any:
    return (value.sum() for value in (result if isinstance(result, tuple) else (result,)))


def _operations(module: Any) -> list[str]:
    return [f"{node.op} {getattr(node.target, '__name__', node.target)}" for node in module.graph.nodes]


def test_chained_matches_in_lists_are_right_where_torch_fx_s_code_is_not() -> None:
    program = lambda x: torch.cat([torch.cat([x, x]), x])  # noqa: E731
    gm = graphwright.symbolic_trace(program)
    assert len(replace_pattern(gm, lambda a, b: torch.cat([a, b]), lambda a, b: torch.vstack([a, b]))) == 2
    assert torch.equal(gm(X), program(X))


def test_filters_and_callbacks() -> None:
    gm = graphwright.symbolic_trace(lambda x: x.neg().sin() + x.cos().sin() + x.sin())
    seen: list[Any] = []

    def after_neg(match: Any, graph: Any, pattern: Any) -> bool:
        seen.append((graph is gm.graph, [node.op for node in pattern.nodes]))
        return bool(match.placeholder_nodes[0].target == "neg")

    places = replace_pattern_with_filters(gm, lambda x: x.sin(), lambda x: x.exp(), [after_neg])
    assert [[node.name for node in place.replacements] for place in places] == [["exp"]]
    assert seen == [(True, ["placeholder", "call_method", "output"])] * 3

    def callback(match: Any, graph: Any, pattern: Any) -> Any:
        inner = match.placeholder_nodes[0].name
        return graphwright.symbolic_trace(lambda x: x.sinh() if inner == "cos" else x.tan()).graph

    places = replace_pattern_with_filters(gm, lambda x: x.sin(), replacement_callback=callback)
    assert [place.replacements[0].target for place in places] == ["sinh", "tan"]
    places = replace_pattern_with_filters(gm, lambda x: x * 1, lambda x: x, ignore_literals=True)
    assert places == []
    assert len(replace_pattern_with_filters(gm, lambda x: x.tan(), lambda x: x, node_name_match="nowhere")) == 0
    with pytest.raises(graphwright.GraphwrightError, match="nothing to put in the place"):
        replace_pattern_with_filters(gm, lambda x: x.tan())


MATCHING: list[Any] = [
    (lambda x: torch.relu(x.neg()) * 2, lambda x: torch.relu(x.neg()), {}),
    (lambda x: torch.relu(x.neg()) * 2, lambda x: torch.relu(x.neg()), {"match_output": True}),
    (lambda x: torch.relu(x.neg()), lambda x: torch.relu(x.neg()), {"match_output": True}),
    (lambda x: torch.relu(x.neg()) * 2, lambda x: x * 3, {"match_placeholder": True}),
    (lambda x: torch.relu(x.neg()) * 2, lambda x: x * 3, {"ignore_literals": True}),
    (lambda x: torch.relu(x.neg()) * 2, lambda x: x.neg(), {"match_placeholder": True}),
    (lambda x: x.neg().neg().neg(), lambda x: x.neg().neg(), {"remove_overlapping_matches": False}),
    (lambda x: x.neg().neg().neg(), lambda x: x.neg().neg(), {}),
    (lambda x: (x.sin(), x.cos()), lambda x: (x.sin(), x.cos()), {}),
]


@pytest.mark.parametrize(("program", "pattern", "options"), MATCHING)
def test_the_matcher_finds_what_torch_fx_s_finds(program: Any, pattern: Any, options: Any) -> None:
    theirs = matcher_utils.SubgraphMatcher(torch.fx.symbolic_trace(pattern).graph, **options)
    ours = SubgraphMatcher(graphwright.symbolic_trace(pattern).graph, **options)
    expected = theirs.match(torch.fx.symbolic_trace(program).graph)
    found = ours.match(graphwright.symbolic_trace(program).graph)
    assert [_told(match) for match in found] == [_told(match) for match in expected]


def _told(match: Any) -> Any:
    return (
        list(map(str, match.anchors)),
        _names(match.nodes_map),
        list(map(str, match.placeholder_nodes)),
        list(map(str, match.returning_nodes)),
    )


def test_a_pattern_may_name_its_nodes() -> None:
    def pattern(x: Any) -> Any:
        neg = x.neg()
        return neg.sin(), {"inside": neg}

    matcher = SubgraphMatcherWithNameNodeMap(graphwright.symbolic_trace(pattern))
    graph = graphwright.symbolic_trace(lambda x: torch.sin(-(x + 1))).graph
    assert {name: str(node) for name, node in matcher.match(graph)[0].name_node_map.items()} == {"inside": "neg"}
    with pytest.raises(graphwright.GraphwrightError, match="names no nodes"):
        SubgraphMatcherWithNameNodeMap(graphwright.symbolic_trace(lambda x: x.neg()))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("subgraph_rewriter", "replace_pattern"),
        ("subgraph_rewriter", "Match"),
        ("passes.utils.matcher_utils", "SubgraphMatcher"),
        ("passes.utils.matcher_with_name_node_map_utils", "SubgraphMatcherWithNameNodeMap"),
    ],
)
def test_names_are_where_torch_fx_has_them(path: str, name: str) -> None:
    assert hasattr(importlib.import_module(f"torch.fx.{path}"), name)
    assert hasattr(importlib.import_module(f"graphwright.{path}"), name)


class Projected(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.linear = nn.Linear(4, 4)
        setattr(self, name, nn.Parameter(torch.ones(4, 4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ getattr(self, self.name))


def test_a_parameter_of_the_pattern_is_any_parameter() -> None:
    gm = graphwright.symbolic_trace(Projected("kernel"))
    assert len(replace_pattern(gm, Projected("weight"), lambda x: x + 1)) == 1
    assert not replace_pattern(graphwright.symbolic_trace(lambda x: torch.relu(x @ X)), Projected("weight"), torch.neg)


class Activated(nn.Module):
    def __init__(self, activation: nn.Module, name: str) -> None:
        super().__init__()
        self.add_module(name, activation)
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(self, self.name)(x)


def test_replaced_modules_leave_and_those_that_are_still_called_stay() -> None:
    gm = graphwright.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.PReLU()))
    replace_pattern(gm, Activated(nn.PReLU(), "old"), Activated(nn.Tanh(), "new"))
    assert [name for name, _ in gm.named_children()] == ["0", "new"]
    assert list(gm.state_dict()) == ["0.weight", "0.bias"]


def test_a_match_does_not_need_its_own_result() -> None:
    def pattern(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.relu(x), torch.sigmoid(y)

    matcher = SubgraphMatcher(graphwright.symbolic_trace(pattern).graph)
    through = graphwright.symbolic_trace(lambda x: torch.sigmoid(torch.relu(x).neg()))
    beside = graphwright.symbolic_trace(lambda x: torch.sigmoid(x.neg()) + torch.relu(x))
    assert [len(matcher.match(gm.graph)) for gm in (through, beside)] == [0, 1]
