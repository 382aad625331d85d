"""Every behaviour test here runs on torch.fx as well: passing there shows that it states torch.fx's behaviour."""

from __future__ import annotations

from typing import Any

import pytest
import torch.fx

import graphwright


@pytest.fixture(params=[torch.fx, graphwright], ids=["torch.fx", "graphwright"])
def fx(request: pytest.FixtureRequest) -> Any:
    """The package under test."""
    return request.param
