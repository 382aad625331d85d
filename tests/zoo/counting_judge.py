"""The judge, which notes besides how much of each program its graph holds.

    python tests/zoo/counting_judge.py .../judge.py run --out results.jsonl --capturers graphwright

runs the judge of the first argument with the others. Each row of its results has a `coverage`, and `own_calls`: those
of the judge's `own_frames` that do not belong to making an output, whose class is the model's own, nor to an operator
that the model registers with torch, or an autograd function, which are nodes of the graph.
"""

from __future__ import annotations

import copy
import importlib
import os
import runpy
import sys
from types import FrameType
from typing import Any

_PACKAGES = ("zoo_classic", "/transformers/", "/timm/", "/torchvision/")


def main(judge: str, *arguments: str) -> None:
    """Run a judge with these arguments, its capturer of ours replaced by one that counts."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(judge)))
    capturers: Any = importlib.import_module("capture")

    class Counting(capturers.Graphwright):  # type: ignore[misc]
        def capture(self, model: Any, args: Any, kwargs: Any, variants: Any) -> Any:
            captured = super().capture(model, args, kwargs, variants)
            import graphwright  # after the judge has set up its process
            from graphwright.runtime import report_of

            captured.info["coverage"] = report_of(graphwright.graph(captured.module)).coverage
            captured.info["own_calls"] = _own_calls(captured.module, args, kwargs)
            return captured

    capturers.register(Counting)
    sys.argv = [judge, *arguments]
    runpy.run_path(judge, run_name="__main__")


def _own_calls(module: Any, args: Any, kwargs: Any) -> list[str]:
    """The model's own functions that run when its captured module is called."""
    module, args, kwargs = copy.deepcopy((module, args, kwargs))
    calls: list[str] = []

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and any(name in frame.f_code.co_filename for name in _PACKAGES):
            if not _is_of_node(frame):
                calls.append(getattr(frame.f_code, "co_qualname", frame.f_code.co_name))

    sys.setprofile(watch)
    try:
        module(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return calls


_OPERATORS = (os.path.join("torch", "_library", ""), os.path.join("torch", "autograd", "function.py"))


def _is_of_node(frame: FrameType | None) -> bool:
    """Tell whether a frame belongs to an operator, or to a dataclass that is being made (`__init__` is in no file)."""
    while frame is not None:
        code = frame.f_code
        is_operator = any(part in code.co_filename for part in _OPERATORS)
        if is_operator or (code.co_name == "__init__" and code.co_filename == "<string>"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    main(*sys.argv[1:])
