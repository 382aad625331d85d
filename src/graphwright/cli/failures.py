"""How commands fail: bad input with one line and the status 2, everything else with its message and 1."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import click

from graphwright.errors import GraphwrightError


class BadInput(click.ClickException):
    """What the command line says cannot be: a target, an input or an option. Told in one line; the status is 2.

    >>> BadInput("there is no file 'model.py'").exit_code
    2
    """

    exit_code = 2


def one_line(error: BaseException) -> str:
    """The message of an error in one line, with its class where it is none of ours.

    >>> one_line(KeyError("a")), one_line(GraphwrightError("no", fix="do"))
    ("KeyError: 'a'", 'no; fix: do')
    """
    if isinstance(error, GraphwrightError):
        return "; ".join(line.strip() for line in str(error).splitlines())
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def told(run: Callable[[], Any], debug: bool) -> int:
    """Run a command and return its status; what it raises is told by its message, with `debug` by its traceback."""
    try:
        return int(run() or 0)
    except (click.exceptions.Exit, click.Abort) as end:
        return getattr(end, "exit_code", 1)
    except click.ClickException as error:
        if debug:
            traceback.print_exc()
        message = error.format_message()
        click.echo(message if message.startswith("Usage:") else f"graphwright: {message}", err=True)
        return error.exit_code
    except Exception as error:
        if debug:
            traceback.print_exc()
        else:
            kind = "" if isinstance(error, GraphwrightError) else f"{type(error).__name__}: "
            click.echo("\n".join([f"{kind}{error}", *getattr(error, "__notes__", ())]), err=True)
        return 1
