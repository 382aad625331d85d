"""The instructions of code, read without `dis`: they are those that it gives."""

from __future__ import annotations

import ast
import dis
import inspect
import types
from typing import Any

import pytest

from graphwright.source import codes_of, mentions, steps_of

AS = {"LOAD_SUPER_ATTR": "LOAD_ATTR", "LOAD_FROM_DICT_OR_GLOBALS": "LOAD_NAME"}
KNOWN = frozenset({  # what those who read steps look for
    "LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_ATTR",
    "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "IMPORT_FROM",
})  # fmt: skip


def test_all_instructions_that_mention_names_are_known() -> None:
    mentioning = {dis.opname[code] for code in dis.hasname if code < 256}  # those above are none of finished code
    assert mentioning <= KNOWN | AS.keys()


@pytest.mark.parametrize("module", [ast, dis, inspect, types])
def test_steps_are_those_of_dis(module: Any) -> None:
    code = compile(inspect.getsource(module), module.__file__, "exec")
    for part in codes_of(code):
        steps = [step for step in dis.get_instructions(part) if step.opname not in ("EXTENDED_ARG", "CACHE")]
        expected = [
            (AS.get(step.opname, step.opname), step.argval if step.opcode in dis.hasname else "") for step in steps
        ]
        assert [step[:2] for step in steps_of(part)] == expected


def test_names_past_the_first_256() -> None:
    source = "".join(f"a{i}.b{i} = c{i}\n" for i in range(300))
    code = compile(source, "<names>", "exec")
    assert [name for kind, name, _ in steps_of(code) if kind == "STORE_ATTR"] == [f"b{i}" for i in range(300)]


@pytest.mark.parametrize("module", [dis, inspect, types])
def test_rebound_variables_and_imports_are_those_of_dis(module: Any) -> None:
    code = compile(inspect.getsource(module) + _REBINDING, module.__file__, "exec")
    for whole in codes_of(code):
        steps = [step for part in codes_of(whole) for step in dis.get_instructions(part)]
        rebound = {step.argval for step in steps if step.opname in ("STORE_DEREF", "DELETE_DEREF")}
        assert mentions(whole).rebound == rebound & {*whole.co_freevars}
        imported = {step.argval for step in steps if step.opname == "IMPORT_NAME"}
        assert {name for name, *_ in mentions(whole).imports} >= imported


_REBINDING = """
def outer(first, second):
    third = fourth = 0
    def inner(fifth):
        nonlocal second, third
        from ..a import b, c
        import d.e
        second, third = fifth, first
        del fourth_
        return lambda: fifth
    def other():
        nonlocal first
        del first
        return fourth
    fourth_ = 0
    return inner, other
"""


def test_imports_with_what_they_take_and_from_how_far() -> None:
    code = compile("from ... import x\nfrom .a import b, c\nimport d.e as f\nfrom g import *\n", "<imports>", "exec")
    assert mentions(code).imports == {("", 3, ("x",)), ("a", 1, ("b", "c")), ("d.e", 0, ()), ("g", 0, ("*",))}
