"""A capture that took one way is checked: captured again, on other inputs, against the original's values."""

from __future__ import annotations

import pickle
import re

import pytest
import torch
from torch import nn

from graphwright import CaptureError, script, trace
from graphwright.errors import TraceCheckError

pytestmark = pytest.mark.filterwarnings("ignore::graphwright.TracerWarning")


def one_way(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def test_the_same_way_passes() -> None:
    gm = trace(one_way, torch.ones(3), control_flow="follow", check_inputs=[(torch.ones(5),), ((torch.ones(2),), {})])
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 2.0))


def test_another_way_is_shown_in_graphs_and_values() -> None:
    with pytest.raises(TraceCheckError) as caught:
        trace(one_way, torch.ones(3), control_flow="follow", check_inputs=[-torch.ones(2)])
    text = str(caught.value)
    assert text.startswith("the capture of one_way does not hold:\ncaptured again with check input 1")
    assert "    -    %add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})" in text
    assert "    +    %sub : [num_users=1] = call_function[target=operator.sub](args = (%x, 1), kwargs = {})" in text
    assert "values differ at [0]: -2 became 0" in text
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_a_program_that_changes_from_call_to_call_is_noticed() -> None:
    matches = re.compile(".").scanner("." * 100)  # an object in C that shows nobody how far it is

    def changing(x):
        return x * matches.match().end()

    with pytest.raises(TraceCheckError, match="captured again with the same inputs"):
        trace(changing, torch.ones(3), control_flow="follow")
    trace(changing, torch.ones(3), control_flow="follow", check_trace=False)


def test_tolerance() -> None:
    matches = re.compile(".").scanner("." * 100)

    def rounded(x):
        return x * (1 + 1e-3 * matches.match().end())

    with pytest.raises(TraceCheckError):
        trace(rounded, torch.ones(3), control_flow="follow")


def test_branches_in_the_graph_hold_for_other_inputs() -> None:
    gm = trace(one_way, torch.ones(3), check_trace=True, check_inputs=[-torch.ones(2)])
    assert torch.equal(gm(-torch.ones(2)), torch.full((2,), -2.0))


def test_fresh_randomness_is_no_difference() -> None:
    gm = trace(nn.Dropout(), torch.ones(3), control_flow="follow", leaf_modules=None)
    assert gm(torch.ones(100)).unique().numel() == 2


def test_a_function_that_returns_nothing() -> None:
    def nothing(x):
        x + 1

    with pytest.raises(CaptureError, match=r"the function returned nothing: .*nothing"):
        trace(nothing, torch.ones(3), control_flow="follow")


def test_scripted_modules_keep_their_branches() -> None:
    scripted = script(one_way)
    gm = trace(lambda x: scripted(x) * 2, torch.ones(3), control_flow="follow", check_inputs=[-torch.ones(3)])
    assert torch.equal(gm(-torch.ones(2)), torch.full((2,), -4.0))


def test_check_inputs_that_are_none() -> None:
    with pytest.raises(CaptureError, match="check_inputs"):
        trace(one_way, torch.ones(3), check_inputs=[3])
