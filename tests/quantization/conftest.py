"""Tests of kernels have weights of seven bits, which oneDNN sums exactly on every processor: it is taken everywhere."""

from __future__ import annotations

import pytest

from graphwright.quantization.lowering import computing


@pytest.fixture(autouse=True)
def _onednn_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "sums_bytes_exactly", lambda: True)
