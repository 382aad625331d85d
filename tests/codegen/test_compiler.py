"""Compiled source is found by tracebacks and inspect while its function lives, and is freed afterwards."""

from __future__ import annotations

import gc
import inspect
import linecache
import traceback

import pytest

from graphwright.codegen import compile_source


def test_the_source_is_where_debuggers_look() -> None:
    function = compile_source("def f(x):\n    return x / zero\n", {"zero": 0}, "Net.forward", "f")
    name = function.__code__.co_filename
    assert name.startswith("<graphwright Net.forward ")
    assert inspect.getsource(function) == "def f(x):\n    return x / zero\n"
    assert linecache.getline(name, 2) == "    return x / zero\n"
    with pytest.raises(ZeroDivisionError) as caught:
        function(1)
    assert "return x / zero" in "".join(traceback.format_exception(caught.value))
    assert "f" not in function.__globals__


@pytest.mark.slow
def test_the_source_of_a_dead_function_is_freed_at_the_next_compilation() -> None:
    function = compile_source("def f():\n    pass\n", {}, "short", "f")
    name = function.__code__.co_filename
    assert name in linecache.cache
    del function
    gc.collect()
    assert name in linecache.cache  # somebody may be walking the cache at the moment of a collection
    compile_source("def f():\n    pass\n", {}, "next", "f")
    assert name not in linecache.cache


def test_functions_of_one_title_have_files_of_their_own() -> None:
    one, other = (compile_source(f"def f():\n    return {i}\n", {}, "same", "f") for i in range(2))
    assert one.__code__.co_filename != other.__code__.co_filename
    assert (one(), other()) == (0, 1)
    assert "return 0" in inspect.getsource(one)


def test_the_given_names_are_not_written_to() -> None:
    names = {"one": 1}
    compile_source("def f():\n    return one\n", names, "test", "f")
    assert names == {"one": 1}
