"""A captured module as a page: alone, beside a changed version of it, or step by step as it was rewritten."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from graphwright.errors import GraphError
from graphwright.rewrite import Application, RewriteLog
from graphwright.runtime import GraphModule, as_captured, graph_of
from graphwright.viz.describing import Description, describe
from graphwright.viz.measuring import Measured, measure, noted
from graphwright.viz.page import write_page
from graphwright.viz.stepping import difference, steps_of


def view(
    gm: nn.Module,
    path: str | os.PathLike[str] = "graph.html",
    *,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    compare: nn.Module | None = None,
    log: RewriteLog | Iterable[Application] | None = None,
    times: Mapping[str, float] | None = None,
    title: str | None = None,
) -> Path:
    """Write a captured module as one HTML file that needs nothing else, and return where it is.

    args, kwargs: example inputs. The module runs on copies of them, so that the page has shapes, FLOPs, memory and
        times. Without them, it has the shapes that passes have noted.
    compare: a changed version of the module, shown beside it with what differs marked.
    log: what `rewrite` did to a module like this one (`rewrite(gm, rules).log`); the page steps through it. The
        rewriting is done again on a copy, so `gm` is the module as it was before; O(nodes) for each step.
    times: seconds by the names of nodes, from a profile of your own, instead of measuring them here.
    title: what the page is called; the module's class without it.

    Raises GraphError where `gm` is no captured module, where both `compare` and `log` are given, or where `times` names
    no node; PatternError where `log` is not of this module.

    >>> import tempfile
    >>> from graphwright import symbolic_trace
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = view(symbolic_trace(lambda x: x.relu() + 1), f"{folder}/graph.html")
    ...     page.read_text()[:15]
    '<!doctype html>'
    """
    if compare is not None and log is not None:
        raise GraphError("compare and log are both given", fix="give one of them: two pages show both")
    captured = as_captured(gm)
    name = type(captured).__name__ if title is None else title
    given = None if args is None and kwargs is None else (_positional(args), dict(kwargs or {}))
    first = _described(captured, given, times)
    content: dict[str, Any] = {"title": name, "first": _plain(first)}
    if compare is not None:
        second = _described(as_captured(compare), given, None)
        step = difference(first.records, second.records, "after", "the version to compare with")
        content |= {"steps": [step.plain()], "last": _of_code(second), "is_comparison": True}
    elif log is not None:
        content["steps"] = [step.plain() for step in steps_of(captured, log, first)]
    target = Path(path)
    target.write_bytes(write_page(name, content))
    return target


def _positional(args: Any) -> tuple[Any, ...]:
    return args if isinstance(args, tuple) else () if args is None else (args,)


def _described(gm: GraphModule, given: tuple[Any, Any] | None, times: Mapping[str, float] | None) -> Description:
    graph = graph_of(gm)  # raises GraphError for what is no captured module
    if given is not None:
        return describe(gm, measure(gm, *given, times))
    return describe(gm, Measured() if times is None else Measured(seconds=noted(graph, times)))


def _plain(description: Description) -> dict[str, Any]:
    return {"nodes": [record.plain() for record in description.records.values()], **_of_code(description)}


def _of_code(description: Description) -> dict[str, Any]:
    return {"code": description.code, "lines": description.lines, "guards": description.guards}
