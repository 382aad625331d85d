"""The command line: `graphwright COMMAND TARGET`.

Arguments and environment come in, text and an exit status go out; 0 means that everything held. Read app.py first.

    app.py        the group of all commands
    looking.py    `trace`, `show`, `summary`, `profile`, `view`, `doctor`
    checking.py   `diff`, `verify`
    changing.py   `export`, `quantize`, `run-passes`
    demo.py       `demo`
    options.py    options that several of them have, and how they answer
    targets.py    what they work on
    inputs.py     example inputs
    failures.py   how they fail
    sentences.py  the subject of the demonstration: a sentence encoder
    detector.py   the same where that is not installed
    subject.py    what a demonstration is about
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from graphwright.errors import GraphwrightError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 when everything held, 1 when something did not, 2 for bad input.

    An error is told by its message alone, unless `--debug` asks for the rest. Raises GraphwrightError where what the
    command line is made with is not installed.
    """
    try:
        import click  # noqa: F401  # what the command line alone needs
        import rich  # noqa: F401
    except ImportError as error:
        raise GraphwrightError(f"the command line needs {error.name}", fix=f"pip install {error.name}") from error
    from graphwright.cli.app import app
    from graphwright.cli.failures import told

    given = [*(sys.argv[1:] if argv is None else argv)]
    debug = "--debug" in given
    given = [each for each in given if each != "--debug"]
    return told(lambda: app.main(given, prog_name="graphwright", standalone_mode=False), debug)
