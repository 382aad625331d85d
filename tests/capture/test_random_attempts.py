"""Random programs of `try`, loops and branches, captured once and run along every path, with gradients."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
from tests.capture.test_random_loops import INPUTS
from tests.capture.test_random_loops import Writer as LoopWriter

from graphwright import CaptureError, GuardError, Interpreter, trace

ERRORS = ("ValueError", "KeyError", "IndexError", "LookupError", "RuntimeError")


class Writer(LoopWriter):
    """Writes loops and branches in which errors are raised and caught."""

    tries = 0  # around what is being written

    def statement(self, indent: str, depth: int, loops: int) -> None:
        kind = self.random.random()
        if kind < 0.35 and depth:
            self.attempt(indent, depth, loops)
        elif kind < 0.5 and self.tries:
            self.lines.append(f"{indent}if {self.truth()}:")
            self.lines.append(f"{indent}    raise {self.pick(*ERRORS)}({self.pick(1, 2, 3)})")
        elif kind < 0.58 and self.tries:
            self.lines.append(
                f"{indent}{self.pick('a = x[n]', 'n = 6 // n', 'm = 4 % m', 'b = helper(b, n)', 'a = helper(a, m)')}"
            )
        elif kind < 0.62:
            self.lines.append(f"{indent}n, b = m, a + b")
        else:
            super().statement(indent, depth, loops)

    def attempt(self, indent: str, depth: int, loops: int) -> None:
        write, inner = self.lines.append, indent + "    "
        write(f"{indent}try:")
        self.tries += 1
        self.block(inner, depth - 1, loops)
        self.statement(inner, 0, loops)
        self.tries -= 1
        has_handler = self.random.random() < 0.85
        for _ in range(self.random.randint(1, 2) if has_handler else 0):
            kinds = self.pick(*ERRORS, "(ValueError, IndexError)", "Exception", "ArithmeticError")
            name = f"e{next(self.names)}"
            write(f"{indent}except {kinds}{self.pick('', f' as {name}')}:")
            self.block(inner, depth - 1, loops)
            if f" as {name}:" in self.lines[-1] or any(line.endswith(f" as {name}:") for line in self.lines):
                write(f"{inner}if str({name}) == '{self.pick(1, 2)}':")
                write(f"{inner}    a = a + len(str({name}))")
            if self.random.random() < 0.15:
                write(f"{inner}if {self.truth()}:")
                write(f"{inner}    {self.pick('raise', 'raise KeyError(7)')}")
        if has_handler and self.random.random() < 0.3:
            write(f"{indent}else:")
            self.block(inner, depth - 1, loops)
        if not has_handler or self.random.random() < 0.3:
            write(f"{indent}finally:")
            write(f"{inner}{self.pick('a = a + 1', 'm = m + 1', 'b = b * 0.5')}")

    def source(self) -> str:
        self.lines = [
            "def helper(value, limit):",
            "    if value.sum() > limit:",
            "        raise ValueError(2)",
            "    return value - 0.5",
            "",
            "def program(x):",
            "    a, b, n, m, out = x[0], x.sum(0), 0, 3, [x[0]]",
        ]
        self.attempt("    ", 3, 0)
        self.loop("    ", 2, 0)
        self.attempt("    ", 2, 0)
        self.lines.append("    return a + b * m + torch.stack(out).sum(0), n")
        return "\n".join(self.lines) + "\n"


def random_program(seed: int) -> tuple[Any, str]:
    source = Writer(seed).source()
    filename = f"<random attempts {seed}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names: dict[str, Any] = {"torch": torch, "__name__": "random_attempts"}
    exec(compile(source, filename, "exec"), names)
    return names["program"], source


def outcome(program: Any, x: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    try:
        value, number = program(x)
    except GuardError:
        raise
    except Exception as error:
        return type(error), str(error).split("\n")[0]
    return value.detach(), float(number), torch.autograd.grad(value.sum(), x)


def check(seed: int) -> str:
    """Compare a captured program with eager; tell whether it was captured, refused, or guards refused an input."""
    program, source = random_program(seed)
    try:
        gm = trace(program, INPUTS[0], max_paths=32)
    except CaptureError as error:
        return f"refused: {str(error).splitlines()[0]}"
    except Exception as error:
        own = error
    else:
        own = None
    if own is not None:  # which the program raises for the example, too
        assert outcome(program, INPUTS[0])[0] is type(own), source
        return "raises"
    gm.graph.lint()
    found = "captured"
    for x in INPUTS:
        for run in (gm, Interpreter(gm).run):
            try:
                mine = outcome(run, x)
            except GuardError:
                found = "guarded"
                continue
            its = outcome(program, x)
            if isinstance(its[0], type):
                if run is not gm and its[0] is KeyError:  # of which the interpreter makes another error
                    its = RuntimeError, its[1]
                assert mine == its, f"{mine} {its}\n{source}\n{gm.code}"
            else:
                torch.testing.assert_close(mine, its, rtol=0, atol=0, msg=lambda text: f"{text}\n{source}\n{gm.code}")
    return found


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(20))
def test_every_path_equals_eager(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(20, 120, 20))
def test_every_path_of_many_programs_equals_eager(first: int) -> None:
    found = [check(seed) for seed in range(first, first + 10)]
    assert sum(one in ("captured", "guarded") for one in found) > 3, found
