"""The closed table of what tensors have: a name that torch adds is looked at before it is in a release of ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphwright import CaptureError, trace
from graphwright.capture.proxies.calls_as_written import DATA_METHODS, KIND_METHODS, NUMBER_METHODS, TRUTHS
from graphwright.capture.proxies.tensor_names import Row, row_of


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_each_attribute_and_method_of_a_tensor_is_in_a_row() -> None:
    missing = [name for name in dir(torch.Tensor) if row_of(name) is None and not is_private(name)]
    assert missing == [], "look at each, and put it into a row of capture/proxies/tensor_names.py"


def test_the_sets_that_the_capture_asks_agree_with_the_table() -> None:
    assert NUMBER_METHODS < DATA_METHODS
    assert {row_of(name) for name in TRUTHS} == {Row.TRUTH}
    asked = {row_of(name) for name in KIND_METHODS - {"result_type", "can_cast"}}
    assert asked <= {Row.FACT, Row.DTYPE, Row.SIZES, Row.GRADIENT}


def test_a_name_that_nobody_has_looked_at_is_refused_unless_it_gives_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphwright.capture.proxies import tensor_names

    unknown = {name: row for name, row in tensor_names._ROWS.items() if name not in ("is_sparse", "relu", "q_scale")}
    monkeypatch.setattr(tensor_names, "_ROWS", unknown)
    with pytest.raises(CaptureError, match="'is_sparse'") as caught:
        trace(lambda x: x if x.is_sparse else x + 1, torch.ones(2))
    assert "test_tensor_names.py" in str(caught.value) and "fix:" in str(caught.value)
    assert torch.equal(trace(lambda x: x.relu(), torch.ones(2))(-torch.ones(2)), torch.zeros(2))


@pytest.mark.parametrize(
    "program", [lambda x: torch.from_dlpack(x), lambda x: torch.utils.dlpack.to_dlpack(x), lambda x: x.__dlpack__()]
)
def test_data_that_goes_to_other_libraries_is_refused(program: Any) -> None:
    with pytest.raises(CaptureError, match=r"asks for the data of a tensor.*\n.*test_tensor_names"):
        trace(program, torch.ones(2))
