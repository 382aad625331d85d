"""Commands that change a program or write it for another system: `export`, `quantize`, `run-passes`."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from graphwright import passes, quantization
from graphwright.cli.failures import BadInput
from graphwright.cli.options import (
    Given,
    NewFile,
    answer,
    deliver,
    example,
    of_target,
    say,
    show_code,
    write_module,
    writes,
)
from graphwright.cli.targets import read_target
from graphwright.errors import did_you_mean
from graphwright.interop import save_export, to_export
from graphwright.runtime import save


@click.command("export")
@of_target
@example
@click.option(
    "--format", "form", type=click.Choice(["onnx", "pt2", "graphwright", "folder"]),
    help="default: by the suffix of the output, .onnx, .pt2 or .gw; a folder without one",
)  # fmt: skip
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="the file or folder to write")
def export(form: str | None, output: Path, **options: Any) -> int:
    """Write TARGET for another system: an ONNX model, torch.export's program, a saved module or a Python package."""
    form = form or {".onnx": "onnx", ".pt2": "pt2", ".gw": "graphwright", "": "folder"}.get(output.suffix)
    if form is None:
        raise BadInput(f"{str(output)!r} does not say in which format: add --format onnx, pt2, graphwright or folder")
    if form != "folder":
        output = NewFile().convert(output, None, None)
    given = Given.read(options)
    for line in _WRITERS[form](given, output) or ():
        click.echo(f"  {line}", err=True)
    click.echo(f"written to {output}", err=True)
    return 0


def _onnx(given: Given, output: Path) -> list[str]:
    from graphwright.onnx import export as export_onnx  # which is optional

    program = export_onnx(given.model, *given.needed())
    program.save(output)
    return []


def _pt2(given: Given, output: Path) -> list[str]:
    args, kwargs = given.needed()
    save_export(to_export(given.captured(target="export"), args, kwargs), output)
    return []


def _saved(given: Given, output: Path) -> list[str]:
    return [f"left out: {line}" for line in save(given.captured(), output)]


def _folder(given: Given, output: Path) -> list[str]:
    name = "".join(part.capitalize() for part in output.stem.split("_"))
    return [str(path) for path in given.captured().to_folder(output, name)]


_WRITERS: dict[str, Callable[[Given, Path], list[str]]] = {
    "onnx": _onnx, "pt2": _pt2, "graphwright": _saved, "folder": _folder,
}  # fmt: skip


_SCHEMES: dict[str, Callable[[], Any]] = {
    "static-int8": quantization.static_int8,
    "dynamic-int8": quantization.dynamic_int8,
    "weight-only-int8": quantization.weight_only_int8,
    "weight-only-int4": quantization.weight_only_int4,
}


@click.command("quantize")
@of_target
@example
@click.option("--scheme", type=click.Choice([*_SCHEMES]), default="static-int8", show_default=True)
@click.option(
    "--calibration", metavar="TARGET", help="batches of inputs: file.py:expression, package.module:expression"
)
@click.option(
    "--backend", type=click.Choice([*quantization.backends.BACKENDS]), default="x86", show_default=True,
    help="whose integers",
)  # fmt: skip
@writes
@answer
def quantize(scheme: str, calibration: str | None, backend: str, **options: Any) -> int:
    """Make TARGET compute with integers, and say what became of each layer."""
    given = Given.read(options)
    config = _SCHEMES[scheme]()
    if config.needs_data and calibration is None:
        raise BadInput(f"--scheme {scheme} needs --calibration file.py:batches; --scheme dynamic-int8 needs none")
    batches = None if calibration is None else read_target(calibration, options.get("allow", ()))
    args, kwargs = given.call
    q = quantization.quantize_model(
        given.model, config, batches, args=args, kwargs=kwargs, backend=backend, engine=None
    )
    told = q.quantization
    deliver(options, told.explain(), lambda: {"layers": [dataclasses.asdict(one) for one in told.rows]})
    write_module(q, options)
    return 0


@click.command("run-passes")
@of_target
@example
@click.option("--pass", "-p", "names", multiple=True, required=True, metavar="NAME", help="in their order; see --list")
@click.option("--repeat", default=1, show_default=True, help="at most so many rounds")
@click.option("--verify/--no-verify", "verifies", default=True, help="compare with the original where inputs are given")
@click.option("--diff/--code", "shows_diff", default=True, help="show what changed in the code, or all of it")
@click.option("--list", "lists", is_flag=True, is_eager=True, expose_value=False, callback=lambda *given: _list(*given))
@writes
@answer
def run_passes(names: tuple[str, ...], repeat: int, verifies: bool, shows_diff: bool, **options: Any) -> int:
    """Run passes over TARGET: names of `graphwright.passes`, or `file.py:expression` for one of your own."""
    given = Given.read(options)
    chosen = [_pass(name) for name in names]
    gm = given.captured()
    before = gm.code
    inputs = [given.call] if verifies and given.has_call else None
    result = passes.Pipeline(*chosen, inputs=inputs, repeat=repeat).run(gm)
    click.echo(str(result), err=True)
    diff = "\n".join(difflib.unified_diff(before.splitlines(), gm.code.splitlines(), "before", "after", lineterm=""))
    data = {"steps": [dataclasses.asdict(step) for step in result.steps], "code": gm.code}
    if shows_diff:
        deliver(options, diff or "nothing changed", lambda: data, say)
    else:
        deliver(options, gm.code.strip("\n"), lambda: data, show_code)
    write_module(gm, options)
    return 0


def _known_passes() -> dict[str, Any]:
    """The passes that need no arguments, by name."""
    found = {}
    for name in passes.__all__:
        value = getattr(passes, name)
        if isinstance(value, type) and value is not passes.Pipeline and callable(getattr(value, "run", None)):
            try:
                found[name] = value()
            except TypeError:  # it needs to be told something
                continue
    return found


def _list(context: click.Context, option: Any, is_asked: bool) -> None:
    if is_asked:
        for name, value in sorted(_known_passes().items()):
            click.echo(f"{name:<30}  {(type(value).__doc__ or '').strip().partition(chr(10))[0]}")
        context.exit(0)


def _pass(name: str) -> Any:
    if ":" in name:
        return read_target(name)
    known = _known_passes()
    if name in known:
        return known[name]
    raise BadInput(f"no pass is called {name!r}: {did_you_mean(name, known)} See run-passes --list")
