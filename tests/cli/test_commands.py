"""The commands: what they print, what they exit with, and that bad input is told in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import graphwright
from graphwright.cli import main
from graphwright.cli.inputs import read_call

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inner, self.drop, self.outer = nn.Linear(width, width), nn.Dropout(), nn.Linear(width, 2)

    def forward(self, x, scale=1.0):
        if x.sum() > 0:
            x = x * 2
        return self.outer(self.drop(self.inner(x).relu())) * scale


def digits(x):
    return len(set(str(int(x.sum()))))


batches = [torch.randn(4, 8) for _ in range(4)]
net = Net()


class Still(nn.Module):
    def forward(self):
        return torch.ones(2)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The current folder, with a file of the user's; what it imports is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = {*sys.modules}
    (tmp_path / "network_of_mine.py").write_text(MODEL)
    yield tmp_path
    for name in {*sys.modules} - known:
        if "network_of_mine" in name or "written_network" in name:
            del sys.modules[name]


NET = "network_of_mine.py:Net"


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_trace_prints_the_code_and_saves(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A class of a file is saved under the file's name, and the current folder is where it is found again."""
    status, out, err = run(capsys, "trace", NET, "-i", "3x8", "--save", "net.gw", "--to-folder", "written_network")
    assert (status, out.splitlines()[0]) == (0, "def forward(self, x, scale=1.0):")
    assert err.startswith("saved to net.gw\nwritten to written_network: ")
    status, out, err = run(capsys, "show", "net.gw")
    assert (status, out) == (2, "")
    assert err.endswith("the module network_of_mine is not allowed; if you trust that: --allow network_of_mine\n")
    status, out, _ = run(capsys, "show", "net.gw", "--allow", "network_of_mine")
    assert (status, out.splitlines()[0]) == (0, "graph():")
    assert run(capsys, "verify", NET, "net.gw", "--allow", "network_of_mine", "-i", "3x8")[0] == 0
    assert run(capsys, "export", "network_of_mine.py:net", "-o", "net.gw")[0] == 0
    del sys.modules["network_of_mine"]
    given = ("network_of_mine.py:net", "net.gw", "--allow", "network_of_mine", "-i", "3x8")
    assert run(capsys, "verify", *given)[0] == 0  # the weights are those of the command before
    assert run(capsys, "trace", "network_of_mine:Net(4)", "-o", "code.py")[:2] == (0, "")
    assert "self.inner" in (folder / "code.py").read_text()
    assert run(capsys, "summary", "written_network:WrittenNetwork()", "-i", "3x8")[0] == 0


SHOWN = [
    pytest.param(["show", NET, "--as", "table"], "opcode             name", id="a table"),
    pytest.param(["show", NET, "-i", "2x8", "--as", "report"], "captured", id="what the capture did"),
    pytest.param(["show", NET, "-i", "2x8", "--as", "code"], "        x = x * 2", id="code"),
    pytest.param(["summary", NET, "-i", "3x8"], "90 parameters, 90 trainable, 360 B; 480 FLOP", id="summary"),
    pytest.param(["summary", "network_of_mine.py:Still"], "0 FLOP", id="summary without inputs"),
    pytest.param(["profile", NET, "-i", "3x8", "--top", "2"], "a call takes", id="profile"),
    pytest.param(["profile", NET, "-i", "3x8", "--modules"], "inner   Linear", id="profile of modules"),
    pytest.param(["verify", NET, "-i", "3x8", "--also-input", "5x8"], "2 of 2 cases agree", id="verify"),
    pytest.param(["doctor", NET, "-i", "3x8"], "can be captured", id="doctor"),
    pytest.param(["diff", NET, NET], "the code is the same", id="diff"),
    pytest.param(["run-passes", NET, "-i", "3x8", "-p", "UseFunctions"], "torch.nn.functional.linear", id="passes"),
    pytest.param(["run-passes", "--list"], "RemoveNoOps ", id="which passes there are"),
    pytest.param(["quantize", NET, "-i", "3x8", "--scheme", "dynamic-int8"], "inner  linear  dynamic", id="quantize"),
    pytest.param(["quantize", NET, "--calibration", "network_of_mine.py:batches"], "static uint8", id="calibrated"),
    pytest.param(["--version"], f"graphwright {graphwright.__version__}\n", id="version"),
    pytest.param(["completion", "bash"], "_GRAPHWRIGHT_COMPLETE=bash_complete", id="completion"),
]


@pytest.mark.parametrize(("argv", "shown"), SHOWN)
def test_what_commands_show(argv: list[str], shown: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *argv)
    assert status == 0, err
    assert shown in out + err


WRITTEN = ["net.gw", "net.pt2", "written_network", pytest.param("net.onnx", marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_exported(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "export", NET, "-i", "3x8", "-o", name)[0] == 0
    assert (folder / name).exists()


@pytest.mark.parametrize("command", ["trace", "show", "summary", "profile", "verify", "doctor"])
def test_answers_as_json(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, command, NET, "-i", "3x8", "--json")
    assert status == 0
    assert json.loads(out)


def test_what_does_not_hold_exits_with_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digits = "network_of_mine.py:digits"
    assert run(capsys, "verify", "torch:relu", "torch:sigmoid", "-i", "3")[0] == 1
    assert run(capsys, "doctor", digits, "-i", "3")[0] == 1
    assert run(capsys, "diff", "torch:relu", "torch:sigmoid")[0] == 1
    status, out, err = run(capsys, "trace", digits, "-i", "3")
    assert (status, out) == (1, "")
    assert err.startswith("the program asks for the data of a tensor")
    status, _, err = run(capsys, "summary", NET, "-i", "3x9", "--debug")
    assert status == 1
    assert err.startswith("Traceback")


BAD = [
    pytest.param(["frob"], "No such command 'frob'.", id="command"),
    pytest.param(["trace"], "Missing argument 'TARGET'.", id="no target"),
    pytest.param(["trace", "there.py:x"], "there is no file 'there.py'", id="file"),
    pytest.param(["trace", "nowhere.at.all:x"], "there is no module 'nowhere'", id="module"),
    pytest.param(["trace", "network_of_mine.py"], "'network_of_mine.py' names no expression", id="no expression"),
    pytest.param(["trace", "model.gw"], "'model.gw' is no file: a target is package.module:expression", id="no saved"),
    pytest.param(["trace", "torch:rellu"], "torch:rellu: NameError: name 'rellu' is not defined", id="name"),
    pytest.param(["trace", "torch:pi"], "torch:pi is a float: neither a module nor a function", id="no model"),
    pytest.param(["trace", f"{NET}(1, 2, 3)"], "TypeError", id="constructor"),
    pytest.param(["trace", NET, "-i", "3xx"], "--input '3xx' is no input: write 1x3x224x224", id="input"),
    pytest.param(["trace", NET, "-i", "flot:3"], "torch has no dtype 'flot'", id="dtype"),
    pytest.param(["trace", NET, "-i", "3x8:4..2"], "the range 4..2 is empty", id="range"),
    pytest.param(["trace", NET, "--kwarg", "scale"], "--kwarg 'scale' is not NAME=VALUE", id="kwarg"),
    pytest.param(
        ["trace", NET, "-i", "y=3x8"], "--input and --kwarg do not fit Net.forward(x, scale=1.0)", id="no such"
    ),
    pytest.param(["doctor", NET], "do not fit Net.forward(x, scale=1.0): missing a required argument", id="doctor"),
    pytest.param(["trace", "torch:nn.Linear"], "Linear takes arguments: write torch:nn.Linear(...)", id="class"),
    pytest.param(["show", NET, "--module", "iner"], "there is no such module: did you mean 'inner'", id="no part"),
    pytest.param(["show", NET, "--module", "inner", "-i", "3x8"], "it is called as one node", id="leaf"),
    pytest.param(["summary", NET], "no inputs are given", id="no inputs"),
    pytest.param(["run-passes", NET, "-p", "RemoveNoOp"], "did you mean 'RemoveNoOps'", id="pass"),
    pytest.param(["quantize", NET, "-i", "3x8"], "--scheme static-int8 needs --calibration", id="no calibration"),
    pytest.param(["export", NET, "-o", "net.xyz"], "does not say in which format", id="format"),
    pytest.param(["export", NET, "-o", "new/net.onnx"], "there is no folder 'new'", id="no folder for a model"),
    pytest.param(["trace", NET, "-o", "new/net.py"], "there is no folder 'new'", id="no folder"),
    pytest.param(["trace", NET, "--to-folder", "network_of_mine.py"], "is a file", id="no folder but a file"),
    pytest.param(["trace", NET, "--max-paths", "0"], "0 is not in the range x>=1", id="number"),
    pytest.param(["quantize", NET, "--backend", "arm"], "'arm' is not one of 'x86'", id="backend"),
]


@pytest.mark.parametrize(("argv", "told"), BAD)
def test_bad_input_exits_with_2_and_one_line(
    argv: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("graphwright: ")
    assert told in err


def test_without_a_command_it_tells_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys)
    assert (status, out) == (2, "") and err.startswith("Usage: graphwright")


def test_inputs_are_the_same_each_time() -> None:
    given = ["2x3", "ids=int64:4:5..9", "float16:2:-1..0"], ["scale=2.0", "mode=nearest", "flags=(True, None)"]
    (x, y), named = read_call(*given)
    again, _ = read_call(*given)
    assert torch.equal(x, again[0])
    assert x.dtype == torch.float32
    assert 5 <= named["ids"].min() <= named["ids"].max() < 9
    assert y.dtype == torch.float16
    assert y.max() <= 0
    assert {name: named[name] for name in ("scale", "mode", "flags")} == {
        "scale": 2.0,
        "mode": "nearest",
        "flags": (True, None),
    }


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    """And completes itself; `import graphwright` alone needs none of what the command line is made with."""
    python = [sys.executable, "-m", "graphwright"]
    assert subprocess.run([*python, "--version"], capture_output=True, text=True, check=True).stdout.endswith("\n")
    asked = {"COMP_WORDS": "graphwright su", "COMP_CWORD": "1", "_GRAPHWRIGHT_COMPLETE": "bash_complete"}
    completed = subprocess.run(python, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert completed.stdout == "plain,summary\n"
    program = "import sys, graphwright; assert not {'click', 'rich', 'typer'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", program], check=True)
