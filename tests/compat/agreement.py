"""One program through torch.fx and graphwright: do they give the same graph, code, result, or refusal?"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

import graphwright

# What torch.fx refuses, by what its users match on.
REFUSALS = {
    "iterates": r"Proxy object cannot be iterated",
    "len": r"'len' is not supported in symbolic tracing by default",
    "control flow": r"symbolically traced variables cannot be used as inputs to control flow",
    "mutable": r"Tried to trace mutable operation",
    "argument": r", not Proxy$",
    "no function": r"Expected FunctionType",
    "keys": r"Keys for dictionaries used as an argument cannot contain a Node",
}


@dataclasses.dataclass
class Capture:
    """What a package made of a program: a module, or the error that it raised."""

    module: Any = None
    error: Exception | None = None

    @property
    def text(self) -> str:
        return str(self.module.graph)

    @property
    def code(self) -> str:
        return str(self.module.code).strip()

    @property
    def refusal(self) -> str:
        """The kind of refusal, or the kind of error with the beginning of its message."""
        message = str(self.error)
        for kind, pattern in REFUSALS.items():
            if re.search(pattern, message):
                return kind
        raw = self.error
        if isinstance(raw, graphwright.TraceError) and raw.__cause__ is not None:  # ours says where it was raised
            raw = raw.__cause__  # type: ignore[assignment]
        return f"{type(raw).__name__}: {str(raw)[:60]}"


@dataclasses.dataclass
class Comparison:
    """How the two captures of a program differ; empty where they agree."""

    name: str
    ours: Capture
    theirs: Capture
    differs: list[str] = dataclasses.field(default_factory=list)
    reason: str = ""


def capture(package: Any, program: Any, **class_settings: Any) -> Capture:
    """Trace a program symbolically with one of the packages, class attributes of the tracer set as asked."""
    tracer = type("Tracer", (package.Tracer,), class_settings)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)  # what is not initialized is nan
        try:
            graph = tracer.trace(program)
            return Capture(package.GraphModule(tracer.root, graph, "Captured"))
        except Exception as error:
            return Capture(error=error)
        finally:
            torch.use_deterministic_algorithms(False)


def compare(name: str, program: Any, inputs: tuple[Any, ...] | None = None, **class_settings: Any) -> Comparison:
    """Capture with both packages, compare text and code, and what they compute where there are inputs."""
    ours, theirs = (capture(package, program, **class_settings) for package in (graphwright, torch.fx))
    comparison = Comparison(name, ours, theirs)
    if ours.module is None or theirs.module is None:
        if ours.module is not None:
            comparison.differs.append("only torch.fx refuses")
        elif theirs.module is not None:
            comparison.differs.append("only graphwright refuses")
        elif ours.refusal != theirs.refusal:
            comparison.differs.append("refusal")
        return comparison
    if ours.text != theirs.text:
        comparison.differs.append("graph")
    if ours.code != theirs.code:
        comparison.differs.append("code")
    if inputs is not None and not _same_results(ours.module, theirs.module, inputs):
        comparison.differs.append("result")
    return comparison


def _same_results(ours: Any, theirs: Any, inputs: tuple[Any, ...]) -> bool:
    results = [_run(module, inputs) for module in (ours, theirs)]
    if any(isinstance(result, Exception) for result in results):
        return type(results[0]) is type(results[1])
    try:
        torch.testing.assert_close(results[0], results[1], rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return False
    except TypeError:  # values that no tolerance is known for: strings, dtypes, None
        return bool(repr(results[0]) == repr(results[1]))
    return True


def _run(module: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """The result and the inputs afterwards, as a flat list; or the error."""
    copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # torch.fx prints the line that failed
                return pytree.tree_leaves((module(*copies), copies))
        except Exception as error:
            return error
        finally:
            torch.use_deterministic_algorithms(False)
