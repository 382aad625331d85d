"""Commands that compare programs: `diff` and `verify`."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

import click

from graphwright.analysis import compare, verify
from graphwright.cli.failures import BadInput
from graphwright.cli.inputs import read_call
from graphwright.cli.options import Given, answer, console, deliver, example, of_target, say
from graphwright.cli.targets import read_model
from graphwright.errors import GraphError
from graphwright.runtime import GraphModule


@click.command("diff")
@of_target
@click.argument("other")
@example
@answer
def diff(other: str, **options: Any) -> int:
    """Show how the code of OTHER differs from that of TARGET and, with inputs, how far their layers are apart.

    The status is 0 where the code is the same, else 1.
    """
    allow, trains = options["allow"], options["train"]
    given = Given.read(options)
    second = Given(other, read_model(other, allow, trains), given.call)
    first_gm, second_gm = given.captured(), second.captured()
    lines = list(
        difflib.unified_diff(
            first_gm.code.splitlines(), second_gm.code.splitlines(), given.target, second.target, lineterm=""
        )
    )
    layers = _layers(first_gm, second_gm, given) if given.has_call else None
    shown = "\n".join(lines or ["the code is the same"]) + (f"\n\n{layers}" if layers is not None else "")
    deliver(
        options,
        shown,
        lambda: {"diff": lines, "layers": [] if layers is None else [dataclasses.asdict(one) for one in layers.layers]},
        _show_diff,
    )
    return 1 if lines else 0


def _layers(first: GraphModule, second: GraphModule, given: Given) -> Any:
    try:
        return compare(first, second, *given.call)
    except GraphError:  # no layers that belong together
        return None


_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def _show_diff(text: str) -> None:
    where = console()
    if not where.is_terminal:
        say(text)
        return
    for line in text.splitlines():
        where.print(line, style=_STYLES.get(line[:1]), markup=False)


@click.command("verify")
@of_target
@click.argument("other", required=False)
@example
@click.option(
    "--also-input", "also", multiple=True, metavar="INPUT[,INPUT]", help="one more call, its inputs by commas"
)
@click.option("--mode", "modes", multiple=True, type=click.Choice(["eval", "train"]), help="default: eval")
@click.option("--grads", is_flag=True, help="compare gradients, too")
@click.option("--rtol", type=float, help="relative tolerance (default: by dtype)")
@click.option("--atol", type=float, help="absolute tolerance (default: by dtype)")
@answer
def verify_command(
    other: str | None, also: tuple[str, ...], modes: tuple[Any, ...], grads: bool, rtol: float | None,
    atol: float | None, **options: Any,
) -> int:  # fmt: skip
    """Check that TARGET, captured, computes what TARGET does; or that OTHER does. The status is 1 where not."""
    allow, trains = options["allow"], options["train"]
    given = Given.read(options)
    calls = [given.needed(), *[read_call(text.split(","), (), seed=i) for i, text in enumerate(also, start=1)]]
    second = given.captured() if other is None else read_model(other, allow, trains)
    if second is given.model:
        raise BadInput(f"{given.target} is a captured module: name what to compare it with: verify TARGET OTHER")
    report = verify(given.model, second, calls, modes=modes or ("eval",), grads=grads, rtol=rtol, atol=atol)
    deliver(options, report, lambda: {"ok": report.ok, **dataclasses.asdict(report)})
    return 0 if report.ok else 1
