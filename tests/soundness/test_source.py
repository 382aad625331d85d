"""What is converted is the code that runs: source counts only where it compiles to the very code object."""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import sys
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import CaptureError, script, symbolic_trace, trace
from graphwright.source import definition_of

PROGRAM = """
def f(x):
    if x.sum() > 100:
        return x - 1
    return x * 2


def g(x):
    return f(x) + 1
"""
ONES = torch.ones(2)


@pytest.fixture
def stale(tmp_path):
    """A module whose file was edited after it was imported: no line moved."""
    path = tmp_path / "edited_since.py"
    path.write_text(PROGRAM)
    found = importlib.util.spec_from_file_location("edited_since", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    path.write_text(PROGRAM.replace("x * 2", "x * 3"))
    linecache.checkcache(str(path))
    return module


@pytest.mark.parametrize("name", ["f", "g"])
@pytest.mark.parametrize("capture", [lambda f: trace(f, (ONES,)), symbolic_trace], ids=["trace", "symbolic_trace"])
def test_what_runs_is_captured_where_the_file_was_edited(stale, capture, name):
    function = getattr(stale, name)
    captured = capture(function)
    for x in (ONES, ONES * 100):
        assert torch.equal(captured(x), function(x))


@pytest.mark.parametrize(("name", "line"), [("f", 2), ("g", 8)])
def test_script_refuses_what_it_cannot_read(stale, name, line):
    with pytest.raises(CaptureError, match=r"the source of f at edited_since.py:2 is not what runs"):
        script(getattr(stale, name))


def test_a_function_whose_code_was_replaced():
    def f(x):
        if x.sum() > 100:
            return x - 1
        return x + 2

    plus, times = (_operation(symbol) for symbol in "+*")
    code = f.__code__.co_code
    assert code.count(plus) == 1
    f.__code__ = f.__code__.replace(co_code=code.replace(plus, times))
    for captured in (trace(f, (ONES,)), symbolic_trace(f)):
        assert captured(ONES).tolist() == f(ONES).tolist() == [2.0, 2.0]
    with pytest.raises(CaptureError, match="is not what runs"):
        script(f)


def _operation(symbol: str) -> bytes:
    """The instruction of an operator."""
    with_it = compile(f"a {symbol} b", "<operator>", "eval").co_code
    without = compile("a - b", "<operator>", "eval").co_code
    at = next(i for i, (one, other) in enumerate(zip(with_it, without, strict=True)) if one != other) // 2 * 2
    return with_it[at : at + 2]


# ---- whose source is found


def decorated(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def outer(scale):
    def inner(x, depth=2):
        if depth == 0:
            return x
        return inner(x * scale, depth - 1)

    return inner


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.__hidden = nn.Linear(2, 2)

    def forward(self, x, *args, scale: float = 1.0, **kwargs):
        def later(y):
            return self.__hidden(y)

        assert x.dim() == 1, f"{x.shape}"
        y: torch.Tensor = later(x)
        return [each for each in y if isinstance(each, nn.Module) or torch.is_tensor(each)]

    def parameters(self, recurse=True):
        return super().parameters(recurse)

    lambdas = (lambda x: x + 1, lambda x: x + 2)


def Model_named_like_what_it_uses(x):
    return Model_named_like_what_it_uses if x is None else pytest.approx(x)


def with_everything(x, n: int = 3):
    """A docstring."""
    global ONES
    assert n > 0
    try:
        with torch.no_grad():
            while n > 0:
                n -= 1
                assert isinstance(n, int), "a number"
    except (ValueError, KeyError) as error:
        raise RuntimeError(f"{x!r:>{n}}") from error
    finally:
        x = {key: value for key, value in zip("ab", (x, -0.0), strict=True) if key in {"a", "b"}}
    return lambda y, *z: (x, y, z)


READ = [
    outer(2.0),
    decorated(outer),
    Model.forward,
    Model.parameters,
    Model.__init__,
    *Model.lambdas,
    Model_named_like_what_it_uses,
    with_everything,
    nn.Conv2d.forward,
    nn.functional.multi_head_attention_forward,
    nn.MultiheadAttention.forward,
    inspect.getsourcelines,
    test_a_function_whose_code_was_replaced,
]


@pytest.mark.parametrize("function", READ, ids=lambda function: function.__qualname__)
def test_the_definition_of_running_code_is_found(function):
    found: Any = definition_of(function.__code__)
    assert found is not None
    assert getattr(found, "name", "<lambda>") == function.__name__
    assert [arg.arg for arg in found.args.args] == list(function.__code__.co_varnames[: function.__code__.co_argcount])


CHANGES = [
    ("x * 2", "x * 3"),
    ("x * 2", "x * 2.0"),
    ("x * 2", "x + 2"),
    ("x * 2", "y * 2"),
    ("x.sum()", "x.mean()"),
    ("def f(x):", "def f(x, z=1):"),
    ("def f(x):", "def f(*x):"),
    ("return 7", "return 8"),
    ("assert x", "assert not x"),
    ("except ValueError", "except KeyError"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES, ids=[new for _, new in CHANGES])
def test_any_change_of_a_definition_is_seen(old, new):
    text = (
        "y = 1\ndef f(x):\n    assert x.sum()\n    inner = lambda: [x for _ in (1,) if (lambda: 0)]\n    try:\n"
        "        return x * 2\n    except ValueError:\n        def g():\n            return 7\n        return g\n"
    )
    before, after = _function(text), _function(text.replace(old, new))
    assert definition_of(before.__code__) is not None
    linecache.cache[before.__code__.co_filename] = linecache.cache[after.__code__.co_filename]
    assert definition_of(_function(text, before.__code__.co_filename).__code__) is None


def _function(text: str, filename: str = "") -> FunctionType:
    """The function of a text, whose lines can be read."""
    name = filename or f"<{hash(text)}>"
    if not filename:
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    found: dict[str, Any] = {}
    exec(compile(text, name, "exec"), found)
    return found["f"]


@pytest.mark.slow
def test_the_definitions_of_all_that_is_imported_are_found():
    read = 0
    packages = ("torch", "graphwright", "_pytest", "collections", "inspect")
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] in packages]:
        for kind in [module, *[each for each in vars(module).values() if issubclass(type(each), type)]]:
            for function in vars(kind).values():
                code = function.__code__ if type(function) is FunctionType else None
                if code is None or code.co_filename != vars(module).get("__file__"):
                    continue
                if code.co_name.startswith("torch_dynamo_resume_in_"):  # torch.compile made it, in another test
                    continue
                if not code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
                    read += 1
                    assert definition_of(code) is not None, function
    assert read > 5000
