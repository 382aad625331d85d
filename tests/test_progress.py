"""What takes longer than a second shows a bar in a terminal; pipes get nothing. The settings are few."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import graphwright
from graphwright import config
from graphwright.progress import followed, showing

PROGRAM = """
import time, torch, graphwright
from torch import nn

class Slow(nn.Module):
    def forward(self, x):
        time.sleep(SECONDS)
        return x + 1

graphwright.trace(Slow(), (torch.ones(2),), progress=False)  # the first one is slow for other reasons
graphwright.trace(Slow(), (torch.ones(2),), progress=PROGRESS)
"""


def told(program: str) -> str:
    """What a program writes to a terminal."""
    import pty

    said, reading = b"", True
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(sys.executable, [sys.executable, "-W", "ignore", "-c", program], {**os.environ, "TERM": "xterm"})
    while reading:
        try:
            more = os.read(terminal, 1024)
        except OSError:
            more = b""
        said, reading = said + more, bool(more)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, said
    return said.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "progress", "is_shown"), [(2.0, None, True), (2.0, False, False), (0.01, None, False)]
)
def test_a_long_capture_shows_a_bar_in_a_terminal(seconds: float, progress: bool | None, is_shown: bool) -> None:
    pytest.importorskip("pty")
    said = told(PROGRAM.replace("SECONDS", str(seconds)).replace("PROGRESS", str(progress)))
    assert ("capturing Slow.forward" in said) == is_shown


def test_nothing_is_shown_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    with showing("counting") as bar:
        assert [*followed(range(3), "number")] == [0, 1, 2]
        bar.step("on")
    assert capfd.readouterr() == ("", "")


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHWRIGHT_PROGRESS", "1")
    monkeypatch.setenv("GRAPHWRIGHT_CACHE", "/somewhere")
    assert graphwright.config.progress is True
    assert config.cache_folder == Path("/somewhere")
    with config.set(progress=False, cache_folder="/elsewhere"):
        assert (config.progress, config.cache_folder) == (False, Path("/elsewhere"))
    assert config.progress is True
    assert repr(config) == "Config(progress=True, cache_folder='/somewhere', copy_layers=True)"
    with pytest.raises(ValueError, match="progress is None, False or True, not 'yes'"):
        config.progress = "yes"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="copy_layers is False or True"):
        config.copy_layers = "yes"  # type: ignore[assignment]
    with pytest.raises(AttributeError), config.set(speed=3):
        pass
