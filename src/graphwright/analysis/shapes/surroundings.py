"""The `with` blocks and switches of a graph, entered and left on the way along its nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from graphwright.analysis.shapes.value_facts import Gap
from graphwright.ir import Node
from graphwright.ops import enter_context, exit_context
from graphwright.runtime import Interpreter


def is_marker(node: Node) -> bool:
    """Tell whether a node changes the state in which those after it run: autocast, gradients, any `with` block."""
    if node.op != "call_function":
        return False
    target = node.target
    if target is enter_context or target is exit_context:
        return True
    return getattr(target, "__name__", "") in ("_set_grad_enabled", "set_grad_enabled")


def ambient_state() -> tuple[Any, ...]:
    """What of the state around it decides what operators give."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        *[(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")],
    )


class Surroundings:
    """Enters and leaves what a graph does, node by node; with the end of the `with` block, everything is left."""

    def __init__(self, markers: Iterable[Node], values: dict[Node, Any], runner: Interpreter) -> None:
        self._waiting = sorted(markers, reverse=True)
        self._values, self._runner = values, runner
        self._entered: dict[Node, Any] = {}

    def __enter__(self) -> Surroundings:
        self._grad = torch.is_grad_enabled()
        return self

    def __exit__(self, *error: object) -> None:
        for context in reversed(self._entered.values()):
            context.__exit__(None, None, None)
        torch.set_grad_enabled(self._grad)

    def go_to(self, node: Node) -> None:
        """Do what is between the place reached so far and a node; blocks that lie between are passed by."""
        waiting = self._waiting
        if not waiting or not waiting[-1] < node:
            return
        passed = []
        while waiting and waiting[-1] < node:
            passed.append(waiting.pop())
        left = {marker.args[0] for marker in passed if marker.target is exit_context}
        for marker in passed:
            if marker.target is enter_context:
                if marker not in left:
                    self._enter(marker)
            elif marker.target is exit_context:
                context = self._entered.pop(marker.args[0], None)
                if context is not None:
                    context.__exit__(None, None, None)
            else:
                self._runner.env = self._values
                self._runner.run_node(marker)

    def _enter(self, marker: Node) -> None:
        self._runner.env = self._values
        try:
            context = self._runner.run_node(marker)
        except Exception as error:
            self._values[marker] = Gap(marker, str(error), error)
        else:
            self._values[marker] = self._entered[marker] = context
