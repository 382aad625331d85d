"""The command line: `graphwright COMMAND`.

Arguments and environment come in, text and an exit status go out; 0 means that everything held. One command per
file; read demo.py first.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from graphwright.cli.demo import add_demo

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 when everything held, 1 when something did not, 2 for misuse.

    An error is told by its message alone, unless `--traceback` asks for the rest.
    """
    parser = argparse.ArgumentParser(prog="graphwright", description="Capture PyTorch programs as graphs.")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    add_demo(commands)
    for command in commands.choices.values():
        command.add_argument("--traceback", action="store_true", help="show where an error comes from")
    arguments = parser.parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except Exception as error:
        if arguments.traceback:
            traceback.print_exc()
        else:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return status
