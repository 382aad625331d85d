"""The group of all commands, with what they have in common: `--version`, `--debug`, completion."""

from __future__ import annotations

from typing import Any

import click
import click.shell_completion

from graphwright.cli.changing import export, quantize, run_passes
from graphwright.cli.checking import diff, verify_command
from graphwright.cli.demo import demo
from graphwright.cli.failures import BadInput
from graphwright.cli.looking import doctor_command, profile_command, show, summary_command, trace_command, view
from graphwright.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", "-V", prog_name="graphwright", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="show where an error comes from")
def app(debug: bool) -> None:
    """Capture PyTorch programs as graphs, look at them, change them, and write them.

    TARGET is package.module:expression, file.py:expression, or the path of a saved module.
    """


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands and options: `eval "$(graphwright completion bash)"`."""
    kind = click.shell_completion.get_completion_class(shell)
    if kind is None:
        raise BadInput(f"there is no completion for {shell}")
    complete: Any = kind(app, {}, "graphwright", "_GRAPHWRIGHT_COMPLETE")
    click.echo(complete.source())


for command in (
    trace_command, show, summary_command, profile_command, view, diff, verify_command, doctor_command, export, quantize,
    run_passes, demo, completion,
):  # fmt: skip
    app.add_command(command)
