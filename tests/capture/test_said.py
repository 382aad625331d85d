"""What a program prints is printed when it runs; what it logs and warns of is told once, and reported."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import GuardError, load, save, symbolic_trace, trace

logger = logging.getLogger("tests.said")


class Speaks(nn.Module):
    """Restarts several times: what it says must not be said each time."""

    def forward(self, x: Tensor, n: int = 2) -> Tensor:
        print("start")
        print("shape", x.shape, f"n={n}", file=sys.stdout)
        logger.info("size %d of %s", x.shape[0], x)
        warnings.warn("careful", stacklevel=2)
        if x.shape[0] > 5:
            logger.warning("many")
            x = x * 2
        logger.info(f"mean {x.mean():.2f}")
        return x[: int(x.max())]


def helper(x: Tensor) -> Tensor:
    print("help", x.sum())
    return x + 1


def calls_helper(x: Tensor) -> Tensor:
    return helper(x) * 2


def test_prints_are_nodes_and_nothing_is_printed_during_the_capture(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="careful"):
        gm = trace(Speaks(), (torch.ones(3),))
    assert capsys.readouterr().out == ""
    gm(torch.full((4,), 2.0), n=7)
    assert capsys.readouterr().out == "start\nshape torch.Size([4]) n=7\n"


def says(x: Tensor) -> Tensor:
    print("says")
    return x + 1


class Inner(nn.Module):
    def say(self, x: Tensor) -> Tensor:
        print("inner", x.shape, f"{x.shape[0]} rows")
        return says(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.say(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return says(torch.vmap(lambda row: says(row))(self.inner(x)))


@pytest.mark.parametrize("program", [lambda x: says(says(x)), Outer()], ids=["functions", "modules"])
def test_what_is_printed_further_inside_is_part_of_the_graph(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gm = trace(program, (torch.ones(3),))
    assert capsys.readouterr().out in ("", "says\n")  # by a first pass, which finds that `vmap` is given a function
    program(torch.ones(2))
    expected = capsys.readouterr().out
    gm(torch.ones(2))
    assert capsys.readouterr().out == expected


def test_functions_that_print_are_seen_before_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    gm = trace(calls_helper, (torch.ones(3),))
    assert capsys.readouterr().out.count("help") <= 1
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 4.0))
    assert capsys.readouterr().out == "help tensor(2.)\n"


def test_logs_and_warnings_happen_once_and_are_in_the_report(caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    with pytest.warns(UserWarning, match="careful") as warned:
        gm = trace(Speaks(), (torch.ones(3),))
    assert [str(each.message) for each in warned] == ["careful"]
    assert warned[0].filename == __file__
    assert [record.getMessage()[:9] for record in caplog.records] == ["size 3 of", "mean Tens"]
    lines = [entry.at.partition(": ")[2] for entry in gm.report.left_out]
    assert lines == [
        'logger.info("size %d of %s", x.shape[0], x)',
        'warnings.warn("careful", stacklevel=2)',
        'logger.warning("many")',
        'logger.info(f"mean {x.mean():.2f}")',
    ]
    assert "told once, and not part of the graph:\n  info\n    at test_said.py:" in str(gm.report)
    caplog.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(gm(torch.full((9,), 2.0)), torch.full((4,), 4.0))
    assert caplog.records == []


def test_the_report_of_a_loaded_module_has_what_was_left_out(tmp_path: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    with pytest.warns(UserWarning, match="careful"):
        gm = trace(Speaks(), (torch.ones(3),))
    save(gm, tmp_path / "speaks.gw")
    loaded = load(tmp_path / "speaks.gw", allow=[__name__])
    assert loaded.report.left_out == gm.report.left_out
    assert len(loaded.report.left_out) == 4


def to_another_file(x: Tensor) -> Tensor:
    print("rows", x.shape[0], file=sys.stderr)
    return x[: int(x.max())]


def test_what_goes_to_another_file_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    gm = trace(to_another_file, (torch.ones(3),))
    assert capsys.readouterr().err == "rows 3\n"
    assert [(entry.text, entry.at.partition(": ")[2][:13]) for entry in gm.report.left_out] == [
        ("print", 'print("rows",')
    ]
    gm(torch.ones(3))
    assert capsys.readouterr().err == ""


def test_logs_outside_of_the_program_are_let_through(caplog: Any) -> None:
    caplog.set_level(logging.INFO)

    def progress(line: str) -> None:
        logger.info("outside")

    trace(to_another_file, examples=[((torch.ones(3),), {}), ((torch.ones(2),), {})], progress=progress)
    assert [record.getMessage() for record in caplog.records].count("outside") == 2
    assert logging.Logger.handle.__module__ == "logging"


def test_a_symbolic_trace_that_starts_again_tells_them_once_too(caplog: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = x + 1
        logging.getLogger("symbolic").warning("computed")
        return x

    gm = symbolic_trace(program)
    assert [record.message for record in caplog.records] == ["computed"]
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 2.0))


def told_of_a_size(x: Tensor) -> Tensor:
    title = f"{x.shape[0]} rows"
    if x.shape[0] > 7:
        warnings.warn("many: " + title, stacklevel=2)
        logger.warning("many: " + title)
    logger.info(title)
    logger.info("%s of %d", title, x.shape[1])
    return x + 1


def test_a_text_of_sizes_that_is_only_told_is_no_guard(caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    gm = trace(told_of_a_size, (torch.ones(3, 2),))
    assert caplog.messages == ["3 rows", "3 rows of 2"]
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "call_function", "output"]
    for rows in (1, 9):
        assert torch.equal(gm(torch.ones(rows, 2)), torch.full((rows, 2), 2.0))
    with pytest.warns(UserWarning, match="many: 8 rows"):
        trace(told_of_a_size, (torch.ones(8, 2),))


def test_a_text_whose_numbers_may_not_be_shown_so_is_kept() -> None:
    def program(x: Tensor) -> Tensor:
        _ = f"{x.sum().item():d}"
        return x + 1

    with pytest.raises(ValueError, match="Unknown format code 'd'"):
        program(torch.ones(2))
    with pytest.raises(ValueError, match="Unknown format code 'd'"):
        trace(program, (torch.ones(2),))(torch.ones(2))


def redirected(x: torch.Tensor) -> Any:
    file = io.StringIO()
    with contextlib.redirect_stdout(file):
        print("rows", x.shape[0])
        sys.stdout.write("columns\n")
    print(len(file.getvalue()), file=file)
    print("text", file.getvalue())
    return file.getvalue()


def test_what_goes_to_a_file_of_the_program_is_no_print(capsys: pytest.CaptureFixture[str]) -> None:
    gm = trace(redirected, (torch.ones(3),))
    assert capsys.readouterr().out == "" and not gm.report.left_out
    assert gm(torch.ones(3)) == redirected(torch.ones(3)) == "rows 3\ncolumns\n15\n"
    with pytest.raises(GuardError, match="was 3"):
        gm(torch.ones(5))


def lines(x: torch.Tensor) -> torch.Tensor:
    sys.stdout.writelines(["rows ", f"{x.shape[0]}\n"])
    return x


def test_lines_that_are_written_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    gm = trace(lines, (torch.ones(3),))
    assert capsys.readouterr().out == ""
    gm(torch.ones(5))
    assert capsys.readouterr().out == "rows 5\n"


LOGGER = """
class Logger:
    def warning(self, text):
        str(text)

    debug = info = error = critical = warning


logger = Logger()
"""


def test_loggers_of_other_libraries_only_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "another_logger.py").write_text(LOGGER)
    monkeypatch.syspath_prepend(str(tmp_path))
    mentions = importlib.import_module("graphwright.source.mentions")
    monkeypatch.setattr(mentions, "_FOLDERS", (*mentions._FOLDERS, str(tmp_path)))  # as an installed package is
    logger = importlib.import_module("another_logger").logger

    def told(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] < 4:
            logger.warning(f"only {x.shape[0]} rows")
        return x + 1

    gm = trace(told, (torch.ones(5),))
    assert torch.equal(gm(torch.ones(3)), torch.full((3,), 2.0))
    assert "expect(" not in gm.code
