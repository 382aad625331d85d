"""Programs of which the generated code is the source, line by line, but for comments and checks."""

from __future__ import annotations

import linecache
import re
import textwrap
from typing import Any

import pytest
import torch
from torch import nn

import graphwright

X = torch.linspace(-1.0, 2.0, 12).view(3, 4)

# Each is a function of `x`; the values are compared for other sizes and data, too.
PROGRAMS = {
    "operators with a number on the left": """
        a = 0.5 * x
        b = 1 / (2 + a)
        return (1 - b) * (2 > a)
    """,
    "a tensor that is unpacked": """
        low, high = torch.stack([x.min(0)[0], x.max(0)[0]])
        for u, v in x[:, :2]:
            low = low + u * v
        return low / high
    """,
    "an item of what a call gives": """
        rows = torch.where(x.sum(1) > 0)[0]
        return x[rows] * rows[:, None]
    """,
    "sizes before what is computed": """
        n = x.size(0)
        y = torch.relu(x).view(n, -1) * n
        return (y, x.size(1) + 1, n // 2)
    """,
    "dtype and device": """
        noise = torch.ones([x.size(0), 1], dtype=x.dtype, device=x.device)
        return x + noise
    """,
    "a message": """
        if x.sum() > 1000000.0:
            raise ValueError(f"{x.size(0)} rows: {x.size(1):03d}")
        return x * 2
    """,
    "assertions": """
        assert x.size(0) < 9, f"too many for {x.size(1)}"
        assert x.abs().sum() > 0
        return x * 2
    """,
    "what is done where it fails": """
        try:
            y = torch.linalg.cholesky(x @ x.T)
        except RuntimeError:
            y = torch.eye(x.size(0))
        return y @ x
    """,
    "what is done with an error": """
        try:
            y = torch.linalg.cholesky(x @ x.T)
        except RuntimeError as error:
            print(error)
            return x
        return y @ x
    """,
    "a count in a loop": """
        n = 0
        while x.sum() < 100:
            x = x * 2 + 1
            n = n + 1
            if x.max() > 50:
                break
        return (x, n)
    """,
}
# Each gives the code of the function `f(x)`, with `helper` beside it.
HELPERS = {
    "a value of a function has the name that its caller gives it": (
        "return (a * 2 + 1, a.sum())",
        "scaled, total = helper(x)\nreturn scaled / total",
        "scaled = x * 2 + 1\ntotal = x.sum()\nreturn scaled / total",
    ),
    "what a function of a function gives": (
        "def inner(b):\n    return b * 2 + 1\nreturn inner(a)",
        "y = helper(x)\nz = y + 1\nreturn z * y",
        "y = x * 2 + 1\nz = y + 1\nreturn z * y",
    ),
    "what its branches give": (
        "if a.sum() > 0:\n    return a * 2\nreturn a - 1",
        "w = helper(x)\nreturn w.relu() + w",
        "if x.sum() > 0:\n    w = x * 2\nelse:\n    w = x - 1\nreturn w.relu() + w",
    ),
    "an expression is no value of its own": (
        "return a * 2",
        "y = helper(x) + 1\nreturn y * y",
        "mul = x * 2\ny = mul + 1\nreturn y * y",
    ),
}
OTHERS = (X, -X, X[:1], X.repeat(2, 1), torch.ones(3, 4))


def function_of(name: str, body: str, helper: str = "return x", decorator: str = "") -> Any:
    """Make the function `f(x)`, whose source can be found."""
    parts = [f"def helper(a):\n{textwrap.indent(helper, '    ')}", f"def f(x):\n{textwrap.indent(body, '    ')}"]
    source = f"{decorator}\n".lstrip("\n") + "\n\n\n".join(parts) + "\n"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(source, name, "exec"), namespace)
    return namespace["f"]


def code_of(gm: Any) -> str:
    """The statements of a captured program, without comments, checks and what frees values."""
    lines = [line.partition(";  del ")[0] for line in gm.code.strip().splitlines()[1:]]
    kept = [line for line in lines if not re.match(r" *(#|del |expect)|$", line)]
    return textwrap.dedent("\n".join(kept))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_code_is_the_source(name: str) -> None:
    body = textwrap.dedent(PROGRAMS[name]).strip()
    function = function_of(f"{name}.py", body)
    gm = graphwright.trace(function, (X,))
    assert code_of(gm) == body
    for x in OTHERS:
        torch.testing.assert_close(gm(x), function(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", HELPERS)
def test_values_of_functions_have_the_names_of_their_callers(name: str) -> None:
    helper, body, wanted = HELPERS[name]
    function = function_of(f"{name}.py", body, helper)
    gm = graphwright.trace(function, (X,))
    assert code_of(gm) == wanted
    for x in OTHERS:
        torch.testing.assert_close(gm(x), function(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    "decorator", ["@torch.no_grad()", "@torch.inference_mode()", '@torch.autocast("cpu", dtype=torch.bfloat16)']
)
def test_a_decorator_is_said_where_it_stands(decorator: str) -> None:
    function = function_of(f"{decorator}.py", "y = helper(x)\nreturn y.mean()", "return a @ a.T", decorator)
    gm = graphwright.trace(function, (X,))
    text = gm.code.replace("'cpu'", '"cpu"')
    comment = f"    # helper ({decorator}.py)\n    # 1: {decorator}\n    with {decorator[1:]}:\n"
    assert f"{comment}        # 3: return a @ a.T\n        y = x @ x.T\n" in text
    assert f"# f ({decorator}.py)\n    # 8: return y.mean()\n    return y.mean()" in text
    torch.testing.assert_close(gm(X), function(X), rtol=0, atol=0)


def test_sizes_are_read_before_layers_run() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(4, 12)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n, _ = x.shape
            return self.qkv(x).reshape(n, 3, 4).sum(1)

    gm = graphwright.trace(Attention(), (X,))
    assert code_of(gm) == "return self.qkv(x).reshape(x.size(0), 3, 4).sum(1)"


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, (hidden, cell) = self.lstm(x)
        return out + hidden * cell


def test_parts_are_taken_apart_where_they_are_given() -> None:
    model = Recurrent()
    gm = graphwright.trace(model, (X,))
    assert code_of(gm) == "out, (hidden, cell) = self.lstm(x)\nreturn out + hidden * cell"
    assert torch.equal(gm(X * 2), model(X * 2))


def test_each_statement_of_a_line_names_its_own_value() -> None:
    function = function_of("several.py", "low = x.min(); top = x.max(); low += top * low\nreturn x * low + top")
    gm = graphwright.trace(function, (X,))
    lines = ["low = x.min()", "top = x.max()", "low += top * low", "return x * low + top"]
    assert code_of(gm).splitlines() == lines
    assert torch.equal(gm(X * 2), function(X * 2))


def test_what_writes_before_an_augmented_assignment_of_its_line_is_a_statement() -> None:
    function = function_of("writes.py", "y = x.clone(); y.add_(1); y *= x; y.neg_().mul_(x); y -= 1\nreturn y")
    gm = graphwright.trace(function, (X,))
    lines = ["y = x.clone()", "y.add_(1)", "y *= x", "y.neg_().mul_(x)", "y -= 1", "return y"]
    assert code_of(gm).splitlines() == lines
    assert torch.equal(gm(X * 2), function(X * 2))


def test_a_tensor_is_unpacked_as_python_does() -> None:
    function = function_of("unpacked.py", "a, b, c = x\nreturn a + b * c")
    gm = graphwright.trace(function, (X,))
    assert [node.target for node in gm.graph.nodes if node.op == "call_method"] == ["unbind"]
    for rows in (2, 4):
        with pytest.raises(ValueError, match="values to unpack"):
            function(torch.ones(rows, 4))
        with pytest.raises(ValueError, match="values to unpack"):
            gm(torch.ones(rows, 4))


class Program(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pre = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.post = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.post(self.pre(input))


def test_parts_index_what_held_their_layers() -> None:
    program = Program()
    part = graphwright.extract(program, ["post.1"], X)
    assert "self.pre[0](input)" in part.code
    assert "self.post['1'](" in part.code
    names = ["pre.0.weight", "pre.0.bias", "post.0.weight", "post.0.bias"]
    assert list(part.state_dict()) == names
    torch.testing.assert_close(part(X)["post.1"], program.post[1](program.post[0](program.pre(X))))


def test_layers_of_a_sequence_are_indexed_where_names_stand_after_no_dot() -> None:
    layers = nn.Sequential()
    layers.add_module("block-0", nn.Linear(4, 4))
    layers.add_module("act", nn.ReLU())
    program = nn.Sequential(layers)
    gm = graphwright.trace(program, (X,))
    assert code_of(gm).splitlines()[1:] == [
        'block_0 = modules["0"][0](input)',
        'act = modules["0"].act(block_0)',
        "return act",
    ]
    torch.testing.assert_close(gm(-X), program(-X))
