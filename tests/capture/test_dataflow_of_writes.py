"""Writes in place are dataflow: what comes after `y += x` reads `y` through it, in the graph and in the printed code.

The printed code keeps the names of the program, and what is one tensor stays one.
"""

from __future__ import annotations

import itertools
import linecache
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import graphwright as gw

X, Y = torch.linspace(-1.0, 2.0, 6).view(2, 3), torch.linspace(2.0, -2.0, 6).view(2, 3)
DOORS: dict[str, Callable[..., Any]] = {"trace": lambda program: gw.trace(program, (X, Y)), "script": gw.script}


def by_operator(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    z += y
    return z.relu()


def by_method(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    z.add_(y)
    return z.relu()


def by_argument(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    torch.add(z, y, out=z)
    return z.relu()


def by_flag(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    F.relu(z, inplace=True)
    return z.relu()


def by_chain(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    z.add_(1).mul_(y)
    return z.relu()


def add_to(z: Tensor, y: Tensor) -> None:
    z += y


def in_a_function(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    add_to(z, y)
    return z.relu()


def on_an_input(x: Tensor, y: Tensor) -> Tensor:
    z = x
    torch.sigmoid_(z)
    return z.relu()


DATAFLOW = [  # each with what the ReLU reads
    (by_operator, operator.iadd, "z += y"),
    (by_method, "add_", "z.add_(y)"),
    (by_argument, torch.add, "torch.add(z, y, out=z)"),
    (by_flag, F.relu, "relu(z, inplace=True)"),
    (by_chain, "mul_", "z.add_(1).mul_(y)"),
    (in_a_function, operator.iadd, "z += y"),
    (on_an_input, torch.sigmoid_, "torch.sigmoid_(x)"),
]


def statements(gm: Any) -> list[str]:
    return [line.strip() for line in gm.code.splitlines() if line.strip() and not line.strip().startswith("#")]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("program", "target", "line"), DATAFLOW)
def test_what_comes_after_a_write_reads_it(program: Any, target: Any, line: str, door: str) -> None:
    gm = DOORS[door](program)
    (relu,) = gm.graph.find_nodes(op="call_method", target="relu")
    assert relu.args[0].target is target or relu.args[0].target == target
    written = statements(gm)
    assert any(text.endswith(line) for text in written), gm.code
    assert written[-1] == f"return {'x' if program is on_an_input else 'z'}.relu()"
    assert torch.equal(gm(X.clone(), Y), program(X.clone(), Y))


def view_shows_it(x: Tensor, y: Tensor) -> Any:
    z = x * 2
    view = z.view(-1)
    z += y
    view.mul_(2)
    return z.sum(), view


def item_is_set(x: Tensor, y: Tensor) -> Any:
    z = x * 2
    z[0] = y[1]
    return z.relu()


def on_one_side(x: Tensor, y: Tensor) -> Any:
    z = x * 2
    if y.sum() > 0:
        z.add_(y)
        z.mul_(3)
    z.sub_(1)
    return z.relu()


def in_each_round(x: Tensor, y: Tensor) -> Any:
    z = torch.zeros(3)
    for row in y:
        z.add_(row)
        z.mul_(2)
    return z.relu()


EFFECTS = [  # each with what the last operations read: the write in the same graph, or the value itself
    (view_shows_it, "sum", operator.iadd),
    (item_is_set, "relu", operator.mul),
    (on_one_side, "relu", "sub_"),
    (in_each_round, "relu", torch.zeros),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("program", "reader", "target"), EFFECTS)
def test_views_items_and_regions_stay_effects(program: Any, reader: str, target: Any, door: str) -> None:
    gm = DOORS[door](program)
    (node,) = gm.graph.find_nodes(op="call_method", target=reader)
    assert node.args[0].target is target or node.args[0].target == target
    for inner in (inner for inner in gm.graph.all_nodes() if inner.target == "mul_" and inner.graph is not gm.graph):
        assert inner.args[0].target == "add_"
    for x, y in itertools.product((X, -X), (Y, Y + 1)):
        torch.testing.assert_close(gm(x, y), program(x, y), rtol=0, atol=0)


def starts_with_a_number(x: Tensor, y: Tensor) -> Tensor:
    total, out = 0, []
    for row in x:
        before = total
        if row.sum() > 0:
            total += row
            after = total * 2
        else:
            after = row
        out.append(before + after)
        total = after
    return torch.stack(out)


def test_a_variable_that_may_hold_a_number_is_not_written_to() -> None:
    gm = gw.trace(starts_with_a_number, (X, Y))
    for x in (X, -X, Y, X + 2):
        torch.testing.assert_close(gm(x.clone(), Y), starts_with_a_number(x.clone(), Y), rtol=0, atol=0)


def in_a_function_that_closes_over_it(x: Tensor, y: Tensor) -> Any:
    z = y * 1

    def added(row: Tensor) -> Tensor:
        value = z
        value += 1
        return row + value * 2

    return torch.vmap(added)(x), z


def test_a_function_writes_to_what_it_closes_over() -> None:
    gm = gw.trace(in_a_function_that_closes_over_it, (X, Y))
    torch.testing.assert_close(gm(X, Y), in_a_function_that_closes_over_it(X, Y), rtol=0, atol=0)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.act(self.norm(self.linear(x)))
        out = self.norm(self.linear(out))
        out += x
        return self.act(out)


@pytest.mark.parametrize("door", [lambda model: gw.trace(model, X), gw.script, gw.symbolic_trace])
def test_a_pass_that_follows_arguments_meets_the_addition(door: Any) -> None:
    model = Residual().eval()
    gm = door(model)
    last = gm.graph.output_node().args[0]
    assert gm.get_submodule(last.target) is not None and last.args[0].target is operator.iadd
    result = gw.rewrite(gm, [gw.rule(lambda x: torch.relu(x), lambda x: F.gelu(x))])
    assert result.count == 2 and result.refused == []
    model.act = nn.GELU()  # type: ignore[assignment]
    torch.testing.assert_close(gm(X), model(X))


# ---- random programs: values, what is written to the inputs, and which objects are one


class Writer:
    """Writes the source of a random function that changes tensors in place, by all names that they have."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.names = ["x", "y", "a", "b"]

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def name(self) -> str:
        return str(self.pick(*self.names))

    def write(self) -> str:
        a, b = self.name(), self.name()
        return str(
            self.pick(
                f"{a} += {b}", f"{a} *= 0.5", f"{a}.add_({b})", f"{a}.mul_(0.5).sub_({b})", f"{a}.clamp_(-2, 2)",
                f"torch.sub({a}, {b}, out={self.name()})", f"F.relu({a}, inplace=True)", f"{a}[0] = {b}[1]",
                f"{a}.view(-1).add_(1)", f"{a}.t().mul_(0.5)", f"change({a}, {b})", f"{a}.copy_({b})",
            )
        )  # fmt: skip

    def block(self, indent: str, depth: int) -> None:
        for _ in range(self.random.randint(2, 4)):
            kind, a, b = self.random.random(), self.name(), self.name()
            if kind < 0.14 and depth:
                self.lines.append(f"{indent}if {a}.sum() > {self.pick(-1, 0, 1)}:")
                self.block(indent + "    ", depth - 1)
                if self.random.random() < 0.5:
                    self.lines.append(f"{indent}else:")
                    self.block(indent + "    ", depth - 1)
            elif kind < 0.2 and depth:
                self.lines.append(f"{indent}for row in {a} * 1:")
                self.lines.append(f"{indent}    {b} {self.pick('+=', '-=')} row")
                self.block(indent + "    ", depth - 1)
            elif kind < 0.32:
                self.lines.append(f"{indent}{self.name()} = {a}")
            elif kind < 0.5:
                fresh = self.pick(f"{a} + {b}", f"{a} * 0.5", f"{a}.clone()", f"{a}.neg().abs_()")
                self.lines.append(f"{indent}{self.name()} = {fresh}")
            elif kind < 0.58:
                self.lines.append(f"{indent}{self.name()} = {a}.sub_({b})")
            else:
                self.lines.append(f"{indent}{self.write()}")

    def source(self) -> str:
        self.lines = [
            "def change(value, other):",
            "    value += other",
            "    value.mul_(0.5)",
            "",
            "def program(x, y):",
            "    a, b = x * 2, y",
        ]
        self.block("    ", 2)
        self.lines.append("    return a, b, x, y")
        return "\n".join(self.lines) + "\n"


def random_program(seed: int) -> tuple[Callable[..., Any], str]:
    source = Writer(seed).source()
    filename = f"<random writes {seed}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names: dict[str, Any] = {"torch": torch, "F": F, "__name__": "random_writes"}
    exec(compile(source, filename, "exec"), names)
    return names["program"], source


def outcome(program: Callable[..., Any], x: Tensor, y: Tensor) -> Any:
    """What a program gives, what it leaves in its inputs, and which of all these are one object."""
    inputs = x.clone(), y.clone()
    values = (*program(*inputs), *inputs)
    return values, [[one is other for other in values] for one in values]


SQUARES = [scale * torch.linspace(-1.0, 1.5, 9).view(3, 3) for scale in (1.0, -1.0, 2.0)]


def check(seed: int, door: str) -> None:
    program, source = random_program(seed)
    gm = gw.trace(program, (SQUARES[0], SQUARES[1])) if door == "trace" else gw.script(program)
    gm.graph.lint()
    for x, y in itertools.product(SQUARES, SQUARES):
        values, are_one = outcome(program, x, y)
        for run in (gm, gw.Interpreter(gm).run):
            found, were_one = outcome(run, x, y)
            assert were_one == are_one, f"{source}\n{gm.code}"
            torch.testing.assert_close(found, values, rtol=0, atol=0, msg=lambda text: f"{text}\n{source}\n{gm.code}")


FOUND = [  # where a variable of the printed code was shared by two values at a time
    pytest.param(144, "trace", id="an operand has the variable that the sum gets"),
    pytest.param(987, "script", id="the header of a loop reads what the loop starts with"),
    pytest.param(7262, "script", id="a loop starts with what is written, and so does another variable"),
]


@pytest.mark.parametrize(("seed", "door"), FOUND)
def test_variables_are_shared_by_one_value_at_a_time(seed: int, door: str) -> None:
    check(seed, door)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("seed", range(20))
def test_values_and_identity_of_what_is_written(seed: int, door: str) -> None:
    check(seed, door)


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("first", range(20, 420, 50))
def test_values_and_identity_of_what_many_programs_write(first: int, door: str) -> None:
    for seed in range(first, first + 50):
        check(seed, door)
