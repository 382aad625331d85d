"""The instructions of code, read without `dis`: they are those that it gives."""

from __future__ import annotations

import ast
import dis
import inspect
import types
from typing import Any

import pytest

from graphwright.source import codes_of, steps_of


@pytest.mark.parametrize("module", [ast, dis, inspect, types])
def test_steps_are_those_of_dis(module: Any) -> None:
    code = compile(inspect.getsource(module), module.__file__, "exec")
    for part in codes_of(code):
        steps = [step for step in dis.get_instructions(part) if step.opname not in ("EXTENDED_ARG", "CACHE")]
        expected = [(step.opname, step.argval if step.opcode in dis.hasname else "") for step in steps]
        assert [step[:2] for step in steps_of(part)] == expected


def test_names_past_the_first_256() -> None:
    source = "".join(f"a{i}.b{i} = c{i}\n" for i in range(300))
    code = compile(source, "<names>", "exec")
    assert [name for kind, name, _ in steps_of(code) if kind == "STORE_ATTR"] == [f"b{i}" for i in range(300)]
