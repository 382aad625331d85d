"""Functions recorded as one call: `wrap` by name and as a decorator, at module scope."""

import copy
import functools
import math
import os
import pickle
import subprocess
import sys
import threading
import types
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.fx
from tests.capture import wrapped_for_torch_fx
from tests.capture.wrapped_elsewhere import imported, untouched
from torch import nn

import graphwright
from graphwright import Transformer, symbolic_trace, wrap

wrap("early")
wrap("early")
wrap("len")
wrap("sqrt")


def early(x: Any, y: Any) -> Any:
    return x[0] + x[1] + y


@wrap
def decorated(x: Any) -> Any:
    if x > 100:
        return x
    return x + 1


def through(function: Any) -> Any:
    @functools.wraps(function)
    def inside(*args: Any) -> Any:
        return function(*args)

    return inside


@wrap
@through
def twice_decorated(x: Any) -> Any:
    return x + 1 if x > 0 else x


@wrap
def with_module(x: Any, layer: nn.Module) -> Any:
    return layer(x)


def keyword_only(first: Any, *, second: Any) -> Any:
    return first.x + second.y


wrap(keyword_only)
ORIGINALS = {"early": early, "decorated": decorated, "sqrt": sqrt}


def as_found() -> None:
    assert all(globals()[name] is value for name, value in ORIGINALS.items())
    assert "len" not in globals() and sqrt is math.sqrt and not hasattr(math.sqrt, "__wrapped__")


def test_a_wrapped_function_is_itself() -> None:
    assert wrap.__name__ == "wrap" and not hasattr(decorated, "__wrapped__")
    gm = symbolic_trace(lambda x: decorated(x) + early((3, x), x) + early((1, 2), 3))
    targets = [node.target for node in gm.graph.nodes if node.op == "call_function"]
    assert targets[0] is decorated and targets[2 - 1] is early
    assert gm(2) == decorated(2) + early((3, 2), 2) + 6
    as_found()


PROGRAMS = [
    pytest.param(lambda x: decorated(x), 4, id="decorator"),
    pytest.param(lambda x: early((x, 3), 4), 4, id="by name, before it is defined"),
    pytest.param(lambda x: early((4, 3), 4) + x, 4, id="no proxy among the arguments"),
    pytest.param(lambda x: twice_decorated(x), 4, id="decorated function"),
    pytest.param(lambda x: sqrt(x), 4, id="imported builtin"),
    pytest.param(lambda x: len(x) + 1, [1, 2], id="builtin"),
    pytest.param(lambda x: imported(x), 4, id="wrapped in the module that it comes from"),
]


@pytest.mark.parametrize(("program", "value"), PROGRAMS)
def test_wrapped_functions_survive(program: Any, value: Any) -> None:
    gm = symbolic_trace(program)
    again = symbolic_trace(gm)
    copies = gm, copy.deepcopy(gm), again, symbolic_trace(again), Transformer(gm).transform()
    for module in (*copies, pickle.loads(pickle.dumps(gm))):
        assert module(value) == program(value)
        assert [node.target for node in module.graph.nodes] == [node.target for node in gm.graph.nodes]
    as_found()


def noted(gm: Any) -> list[Any]:
    return [(node.name, node.meta.get("is_wrapped")) for node in gm.graph.nodes]


def both(x):
    return wrapped_for_torch_fx.clipped(x) + math.sqrt(x)


def test_nodes_say_that_they_were_wrapped() -> None:
    found = []
    for package in (torch.fx, graphwright):
        gm = package.symbolic_trace(both)
        found.append([noted(one) for one in (gm, copy.deepcopy(gm), package.symbolic_trace(gm))])
    assert found[0] == found[1]
    assert [name for name, flag in found[1][0] if flag] == ["clipped", "sqrt"]


def test_what_a_node_says_to_be_wrapped_stays_so() -> None:
    graph = graphwright.Graph()
    node = graph.call_function(untouched, (graph.placeholder("x"),))
    graph.output(node)
    gm = graphwright.GraphModule({}, graph)
    assert not symbolic_trace(gm).graph.find_nodes(op="call_function", target=untouched)
    node.meta["is_wrapped"] = True
    again = symbolic_trace(gm)
    assert again.graph.find_nodes(op="call_function", target=untouched)


FRESH = """
import pickle, sys
import graphwright
with open(sys.argv[1], "rb") as file:
    gm = pickle.load(file)
again = graphwright.symbolic_trace(gm)
print([node.target.__name__ for node in again.graph.nodes if node.meta.get("is_wrapped")], again(-2.0))
"""


@pytest.mark.slow
def test_wrapped_functions_survive_in_another_process(tmp_path: Path) -> None:
    gm = symbolic_trace(lambda x: imported(x) + 1)
    (tmp_path / "gm.pickle").write_bytes(pickle.dumps(gm))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", FRESH, str(tmp_path / "gm.pickle")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "['imported'] -1.0\n"


def test_others_are_traced_through() -> None:
    assert [node.name for node in symbolic_trace(lambda x: untouched(x)).graph.nodes] == ["x", "mul", "output"]


def test_submodules_and_keywords_may_be_passed() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.BatchNorm1d(2)

        def forward(self, x: Any, y: Any) -> Any:
            return with_module(x, self.layer), keyword_only(x, second=y)

    gm = symbolic_trace(Net().eval())
    assert [(node.op, node.target) for node in gm.graph.nodes][2:5] == [
        ("get_attr", "layer"),
        ("call_function", with_module),
        ("call_function", keyword_only),
    ]
    assert symbolic_trace(gm).graph.find_nodes(op="call_function", target=with_module)


def test_wrap_belongs_at_the_top_of_a_module() -> None:
    for fx in (torch.fx, graphwright):
        with pytest.raises(NotImplementedError, match="wrap must be called at the top level of a module"):
            fx.wrap("len")
        with pytest.raises(RuntimeError, match="Unsupported type for global function"):
            fx.wrap(3)


def test_what_was_wrapped_for_torch_fx_is_recorded() -> None:
    model = wrapped_for_torch_fx.Net()
    ours, theirs = (fx.symbolic_trace(model) for fx in (graphwright, torch.fx))
    assert str(ours.graph) == str(theirs.graph)
    assert [node.name for node in ours.graph.nodes] == ["x", "rows", "clipped", "len_1", "mul", "output"]
    assert ours.graph.find_nodes(op="call_function", target=wrapped_for_torch_fx.clipped)
    assert str(symbolic_trace(ours).graph) == str(ours.graph)
    x = torch.randn(6, 2)
    torch.testing.assert_close(ours(x), model(x))
    assert wrapped_for_torch_fx.rows.__name__ == "rows" and not hasattr(wrapped_for_torch_fx, "len")


def test_names_are_wrapped_until_they_are_forgotten() -> None:
    for fx in (torch.fx, graphwright):
        table = fx._symbolic_trace._wrapped_fns_to_patch
        names: dict[str, Any] = {"fx": fx}
        half = "def half(x):\n    return x[: len(x) // 2]\n"
        exec(f"fx.wrap('half')\n{half}def program(x):\n    return half(x)", names)
        assert table[id(names), "half"] is names
        assert [node.name for node in fx.Tracer().trace(names["program"]).nodes] == ["x", "half", "output"]
        del table[id(names), "half"]
        with pytest.raises(RuntimeError, match="'len' is not supported"):
            fx.Tracer().trace(names["program"])


def home() -> dict[str, Any]:
    return vars(wrapped_for_torch_fx)


@pytest.mark.parametrize(
    ("table", "is_recorded"),
    [
        pytest.param(lambda: {(id(home()), "rows"): home()}, True, id="by module and name"),
        pytest.param(lambda: [(home(), "rows")], True, id="a list of pairs"),
        pytest.param(lambda: {"rows": home(), (1,): home(), (1, 2): home(), (1, "rows"): None}, False, id="other keys"),
        pytest.param(lambda: [home(), ("rows",), "rows"], False, id="other items"),
        pytest.param(lambda: None, False, id="none"),
    ],
)
def test_torch_fx_s_table_may_have_another_form(table: Any, is_recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("torch.fx._symbolic_trace")
    module._wrapped_fns_to_patch = table()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def program(x: Any) -> Any:
        return wrapped_for_torch_fx.rows(x)

    wrapped, looked_into = ["x", "rows", "output"], ["x", "len_1", "gt", "cond", "output"]
    found = [node.name for node in symbolic_trace(program).graph.nodes]
    assert found == (wrapped if is_recorded else looked_into)
    monkeypatch.delitem(sys.modules, module.__name__)
    assert [node.name for node in symbolic_trace(program).graph.nodes] == looked_into


def test_other_threads_notice_nothing() -> None:
    wrong: list[Any] = []
    done = threading.Event()

    def works() -> None:
        while not done.is_set():
            if decorated(1) != 2 or math.sqrt(4) != 2 or early((1, 2), 3) != 6:
                wrong.append(1)

    threads = [threading.Thread(target=works) for _ in range(2)]
    tracers = [threading.Thread(target=lambda: [symbolic_trace(lambda x: decorated(x)) for _ in range(20)])] * 1
    for thread in (*threads, *tracers):
        thread.start()
    for _ in range(20):
        gm = symbolic_trace(lambda x: decorated(math.floor(x)))
        assert [node.name for node in gm.graph.nodes] == ["x", "floor", "decorated", "output"]
    for thread in tracers:
        thread.join()
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    as_found()


def test_a_failing_capture_leaves_modules_as_they_were() -> None:
    def fails(x: Any) -> Any:
        decorated(x)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        symbolic_trace(fails)
    as_found()


@wrap
def scaled_by_sign(x, by):
    return x * by if x.sum() > 0 else x


def test_trace_keeps_calls_of_wrapped_functions() -> None:
    gm = graphwright.trace(lambda x: scaled_by_sign(x, x.shape[0]) + 1, (torch.ones(2),))
    assert [node.target for node in gm.graph.nodes if node.op == "call_function"].count(scaled_by_sign) == 1
    assert gm(torch.ones(3)).tolist() == [4.0] * 3 and gm(-torch.ones(2)).tolist() == [0.0] * 2
