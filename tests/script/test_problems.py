"""Everything that is wrong is found in one run, with the line, a caret, and what to write instead."""

from __future__ import annotations

import linecache
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import ScriptError, script


def problems_of(source: str, name: str = "f") -> str:
    """The message for a function, or for a module class called M."""
    text = f"from typing import *\nimport torch\nfrom torch import nn, Tensor\n{source}"
    linecache.cache["program.py"] = (len(text), None, text.splitlines(keepends=True), "program.py")
    namespace: dict[str, Any] = {}
    exec(compile(text, "program.py", "exec"), namespace)
    subject = namespace["M"]() if "M" in namespace else namespace[name]
    try:
        with pytest.raises(ScriptError) as caught:
            script(subject)
    finally:
        del linecache.cache["program.py"]
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    return str(caught.value)


def test_all_problems_in_one_run() -> None:
    message = problems_of(
        """
def f(x, n: int):
    if x.sum() > 0:
        y = x.fooo()
    else:
        y = 3
        z = x
    for i in range(n):
        n = [n]
    return z + unknown
"""
    )
    assert message == (
        """4 problems in f

program.py:7: a Tensor has no attribute 'fooo'
    y = x.fooo()
        ^^^^^^
  fix: did you mean 'floor'?

program.py:11: 'n' is int before the loop, and List[int] after an iteration
    for i in range(n):
             ^^^^^^^^
  fix: give it one type from the start, or use another variable

program.py:13: 'z' has no value where `x.sum() > 0` (line 6) holds
    return z + unknown
           ^
  fix: give it a value before the branch, or on both sides

program.py:13: the name 'unknown' is not defined
    return z + unknown
               ^^^^^^^
  fix: define or import it before scripting"""
    )


CASES = {
    "type inside of a tuple": (
        "def f(x, n: int):\n    y = (x, 1)\n    if n > 1:\n        y = (x, 'a')\n    return y",
        "'y'[1] is str where `n > 1` holds, and int where it does not",
    ),
    "type on the sides": (
        "def f(x, n: int):\n    if n > 1:\n        y = x\n    else:\n        y = 3\n    return y",
        "'y' is Tensor where `n > 1` holds, and int where it does not",
    ),
    "unbound after a loop": (
        "def f(x, n: int):\n    for i in range(n):\n        y = x\n    return y",
        "'y' has no value where the loop in line 5 runs no iteration",
    ),
    "optional": (
        "def f(x, y: Optional[Tensor]):\n    return x + y",
        "`+` is not defined for Tensor and Optional[Tensor]",
    ),
    "method of optional": (
        "def f(y: Optional[Tensor]):\n    return y.sum()",
        "a value of type Optional[Tensor] may be None here, which has no 'sum'",
    ),
    "what is caught": (
        "def f(x):\n    try:\n        x = x + 1\n    except 3:\n        pass\n    return x",
        "`except` needs exception classes",
    ),
    "finally": (
        "def f(x):\n    try:\n        x = x + 1\n    finally:\n        return x",
        "`finally` is left by another way than its end",
    ),
    "a variable in a handler": (
        "def f(x):\n    try:\n        y = x + 1\n        x = y.sum()\n    except IOError:\n        x = y\n    return x",
        "'y' has no value that is known where the `try` in line 5 was left by an error",
    ),
    "a bare raise": ("def f(x):\n    raise", "a bare `raise` stands in no handler"),
    "yield": ("def f(x):\n    yield x", "`yield` cannot be scripted"),
    "class": ("def f(x):\n    class A: pass\n    return x", "a class inside a function cannot be scripted"),
    "global": (
        "def f(x):\n    global y\n    y = x\n    return x",
        "a global variable that is assigned cannot be scripted",
    ),
    "nonlocal": (
        "def f(x):\n    def g():\n        nonlocal x\n        x = 1\n    g()\n    return x",
        "`nonlocal` cannot be scripted",
    ),
    "async": ("def f(x):\n    async def g(): pass\n    return x", "`async def` cannot be scripted"),
    "with": ("def f(x):\n    with x.sum():\n        return x", "this cannot be entered in a scripted program"),
    "star parameters": (
        "def g(x):\n    return x\ndef f(*rest):\n    return g(*rest)",
        "`*` needs a tuple whose length is known",
    ),
    "annotation": ("def f(x: 'Nope'):\n    return x", "this annotation cannot be resolved: name 'Nope' is not defined"),
    "annotation that is no type": ("def f(x: 3):\n    return x", "this annotation is no type of scripted programs"),
    "return type": ("def f(x) -> int:\n    return x", "f is declared to return int, and returns Tensor"),
    "argument type": (
        "def g(n: int):\n    return n\ndef f(x):\n    return g(x)",
        "g takes 'n' as int, and is given Tensor",
    ),
    "missing argument": ("def g(x, y):\n    return x\ndef f(x):\n    return g(x)", "g needs 'y'"),
    "local annotation": (
        "def f(x):\n    y: int = x\n    return y",
        "a value of type Tensor is given where int is declared",
    ),
    "annotated variable": (
        "def f(x):\n    y: int = 1\n    y = x\n    return y",
        "a value of type Tensor is given where int is declared",
    ),
    "list item": (
        "def f(x):\n    y: List[int] = []\n    y.append(x)\n    return y",
        "a list of int items is given Tensor",
    ),
    "unpacking": ("def f(x):\n    a, b = (1, 2, 3)\n    return x", "3 values are given to 2 variables"),
    "tuple item": ("def f(x):\n    t = (1, 2)\n    t[0] = 1\n    return x", "the items of a tuple cannot be assigned"),
    "going over a number": (
        "def f(x):\n    for i in 3:\n        pass\n    return x",
        "cannot go over a value of type int",
    ),
    "the largest of a number": (
        "import heapq\ndef f(x):\n    return heapq.nlargest(2, 3)",
        "cannot go over a value of type int",
    ),
    "endless recursion": ("def f(x):\n    return f(x)", "f calls itself without an end that is known"),
    "ternary": (
        "def f(x):\n    return x if x.sum() > 0 else 1",
        "the value is Tensor where `x.sum() > 0` holds, and int where it does not",
    ),
    "operands": ("def f(x):\n    return 'a' + 1", "`+` is not defined for str and int"),
    "order": ("def f(x):\n    return 'a' < 1", "str and int have no order"),
    "open": ("def f(x):\n    return open('a')", "open cannot be scripted"),
    "unknown module item": (
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layers = nn.ModuleList([nn.ReLU()])\n"
        "    def forward(self, x, i: int):\n        return self.layers[:i](x)",
        "the ModuleList 'layers' has no such item",
    ),
    "unknown attribute": (
        "class M(nn.Module):\n    def forward(self, x):\n        return self.nope",
        "M has no attribute 'nope'",
    ),
    "made module": ("def f(x):\n    return nn.ReLU()(x)", "a module is made while the program runs"),
    "other functions on the sides": (
        "def f(x, n: int):\n    m = torch.relu\n    if n > 1:\n        m = torch.tanh\n    return m(x)",
        "'m' is tanh where `n > 1` holds, and relu where it does not",
    ),
}


def test_nothing_is_said_of_what_is_made_of_something_wrong() -> None:
    parts = ["list(y)", "[*y, 1]", "{1: y}", "f'{y}'", "zip([1], y)", "sorted([1], key=y)", "f(**y)"]
    message = problems_of(f"def f(x):\n    y = nope\n    return {', '.join(parts)}")
    assert message.count("\n  fix: ") == 1
    assert "the name 'nope' is not defined" in message


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_said(name: str) -> None:
    source, wanted = CASES[name]
    message = problems_of(source)
    first = message.splitlines()
    assert first[0].partition(": ")[2] == wanted
    assert set(first[2].strip()) == {"^"}
    assert "  fix: " in message


def test_a_problem_in_a_helper_says_who_called_it() -> None:
    message = problems_of("def g(x):\n    return x.nope\ndef f(x):\n    y = g(x)\n    return y")
    assert message.splitlines()[0] == "program.py:5: a Tensor has no attribute 'nope'"
    assert "  called at program.py:7: y = g(x)" in message


def test_problems_are_data() -> None:
    def wrong(x):
        return x.nope

    with pytest.raises(ScriptError) as caught:
        script(wrong)
    (problem,) = caught.value.problems
    assert problem.message == "a Tensor has no attribute 'nope'"
    assert problem.source.strip()[problem.column - 8 : problem.end_column - 8] == "x.nope"


def test_what_has_no_source_is_refused() -> None:
    with pytest.raises(ValueError, match="no source that can be scripted"):
        script(eval("lambda x: x"))
    with pytest.raises(ValueError, match="cannot script a int"):
        script(3)  # type: ignore[arg-type]


def test_what_a_type_has_decided_is_checked() -> None:
    def program(x):
        if x is None:
            return torch.zeros(1)
        return x * 2

    gm = script(program)
    assert gm(torch.ones(1)) == 2
    with (
        pytest.raises(ValueError, match="argument 'x' was a tensor") if False else pytest.raises(RuntimeError) as caught
    ):
        gm(None)
    assert "argument 'x' was a tensor when the program was captured; now it is None" in str(caught.value)


def test_a_module_without_forward_says_so() -> None:
    with pytest.raises(ValueError):
        script(nn.Module())


def test_what_is_wrong_in_a_loop_over_nothing_known_is_told_too() -> None:
    message = problems_of(
        """
def items(x):
    yield x
def f(x):
    for a, (b, c) in sum(items(x)):
        if x.sum() > 0:
            continue
        x = a + b + c
        x = 1 + "a"
    return x
"""
    )
    assert "items is a generator or a coroutine" in message
    assert "`+` is not defined for int and str" in message


def test_a_loop_whose_types_never_settle_is_a_problem() -> None:
    message = problems_of(
        """
from collections import defaultdict
def f(x, n: int):
    lists = defaultdict(list)
    found = None
    i = 0
    while i < n:
        i = i + 1
        found = list(lists)
        found = {key: len(item) for key, item in lists.items()}
    return x, found
"""
    )
    assert "program.py:10: what this loop carries has another type after each iteration" in message
