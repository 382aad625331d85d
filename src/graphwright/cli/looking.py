"""Commands that show a program: `trace`, `show`, `summary`, `profile`, `view`, `doctor`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from graphwright import viz
from graphwright.analysis import profile, summary
from graphwright.capture import doctor
from graphwright.cli.failures import BadInput
from graphwright.cli.options import (
    Given,
    NewFile,
    answer,
    captures,
    deliver,
    example,
    of_target,
    say,
    show_code,
    write_module,
    writes,
)
from graphwright.codegen import readable_source
from graphwright.errors import did_you_mean
from graphwright.hierarchy import source, unflatten
from graphwright.ir import format_table, qualified_name
from graphwright.runtime import GraphModule, graphs_of, guards_of


@click.command("trace")
@of_target
@example
@captures
@click.option("--nested", is_flag=True, help="keep modules modules: print a class for each distinct one")
@writes
@answer
def trace_command(nested: bool, **options: Any) -> int:
    """Capture TARGET and print the code that was generated.

    Without inputs it is captured symbolically, as torch.fx does it.
    """
    given = Given.read(options)
    how = {name: options[name] for name in ("static", "dynamic", "leaf_modules", "max_paths")}
    gm = given.captured(**how)
    if nested:
        gm = unflatten(gm)
    code = source(gm) if nested else gm.code
    deliver(options, code.strip("\n"), lambda: facts_of(gm), show_code)
    write_module(gm, options)
    return 0


def facts_of(gm: GraphModule) -> dict[str, Any]:
    """What a capture is, as plain data."""
    return {
        "class": type(gm).__name__,
        "code": gm.code,
        "nodes": [_node(node) for graph in graphs_of(gm) for node in graph.nodes],
        "guards": [str(guard) for graph in graphs_of(gm) for guard in guards_of(graph)],
    }


def _node(node: Any) -> dict[str, Any]:
    target = node.target if isinstance(node.target, str) else qualified_name(node.target)
    line = None if node.origin is None else f"{node.origin.file}:{node.origin.line}"
    return {"name": node.name, "op": node.op, "target": target, "args": str(node.args), "line": line}


def _of_part(gm: GraphModule, path: str) -> str:
    """The code of a part. Raises BadInput where there is none."""
    try:
        return readable_source(gm, path)
    except ValueError:
        paths = [name for name, _ in gm.named_modules() if name]
        if path not in paths:
            raise BadInput(f"--module {path!r}: there is no such module: {did_you_mean(path, paths)}") from None
        is_called = gm.graph.find_nodes(op="call_module", target=path)
        what = "is called as one node, and has no code here" if is_called else "does not run"
        raise BadInput(f"--module {path!r}: it {what}") from None


@click.command("show")
@of_target
@example
@click.option(
    "--as", "form", type=click.Choice(["graph", "code", "table", "report", "module"]), default="graph",
    show_default=True, help="the nodes, the code, a table of nodes, what the capture did, or the module tree",
)  # fmt: skip
@click.option("--module", "path", metavar="PATH", help="show the code of this part alone")
@answer
def show(form: str, path: str | None, **options: Any) -> int:
    """Show the graph of TARGET, or its code, its nodes as a table, what the capture did, or the tree of its modules."""
    gm = Given.read(options).captured()
    if path is not None:
        text = _of_part(gm, path)
        deliver(options, text.strip("\n"), lambda: {"code": text}, show_code)
        return 0
    texts = {
        "graph": lambda: "\n\n".join(str(graph) for graph in graphs_of(gm)),
        "code": lambda: gm.code.strip("\n"),
        "table": lambda: "\n\n".join(format_table(graph) for graph in graphs_of(gm)),
        "report": lambda: str(gm.report),
        "module": lambda: str(gm),
    }
    deliver(options, texts[form](), lambda: facts_of(gm), show_code if form in ("graph", "code") else say)
    return 0


@click.command("summary")
@of_target
@example
@answer
def summary_command(**options: Any) -> int:
    """Show TARGET on one screen: the tree of its modules with shapes, parameters and operations."""
    given = Given.read(options)
    args, kwargs = given.needed()
    found = summary(given.model, args, kwargs)
    deliver(options, found, found.to_dict)
    return 0


@click.command("profile")
@of_target
@example
@click.option("--modules", "by_module", is_flag=True, help="a table of modules instead of nodes")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="how many nodes to show")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="how many runs are measured")
@click.option("--html", "page", type=NewFile(), help="write a flame picture, too, to this file")
@answer
def profile_command(by_module: bool, top: int, repeats: int, page: Path | None, **options: Any) -> int:
    """Measure where the time of a call of TARGET goes, per node and module."""
    given = Given.read(options)
    args, kwargs = given.needed()
    found = profile(given.model, args, kwargs, repeats=repeats)
    deliver(options, found.table_of_modules() if by_module else found.table(top), found.to_dict)
    if page is not None:
        click.echo(f"written to {found.to_html(page)}", err=True)
    return 0


@click.command("view")
@of_target
@example
@click.option("--output", "-o", type=NewFile(), default="graph.html", show_default=True, help="where to write it")
def view(output: Path, **options: Any) -> int:
    """Write TARGET as a page to look at in a browser."""
    given = Given.read(options)
    make = getattr(viz, "view", None)
    if make is None:
        raise BadInput("this version has no graphwright.view: use graphwright show TARGET")
    gm = given.captured()
    args, kwargs = given.call
    make(gm, output, **({"args": args, "kwargs": kwargs} if given.has_call else {}))
    click.echo(f"written to {output}", err=True)
    return 0


@click.command("doctor")
@of_target
@example
@captures
@answer
def doctor_command(**options: Any) -> int:
    """List everything that stands in the way of capturing TARGET; the status is 1 where something does."""
    given = Given.read(options)
    given.check_fit()
    args, kwargs = given.call
    how = {name: options[name] for name in ("static", "dynamic", "leaf_modules", "max_paths")}
    diagnosis = doctor(given.model, args, kwargs, **how)
    deliver(options, diagnosis, lambda: {"ok": diagnosis.ok, **dataclasses.asdict(diagnosis)})
    return 0 if diagnosis.ok else 1
