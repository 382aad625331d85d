"""`try` in scripted programs: every way through it does what it does in Python."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.script.checking import assert_same, check, outcome
from torch import nn

from graphwright import Interpreter, ScriptError, load, save, script

EYE = torch.eye(2)
X = [(EYE,), (-EYE,)]
N = [(torch.arange(8.0).reshape(4, 2), n) for n in range(8)]


def falls_back(x):
    try:
        y = torch.linalg.cholesky(x)
    except RuntimeError:
        y = x
    return y


def keeps_the_old_value(x):
    y = x * 2
    try:
        y = torch.linalg.cholesky(x)
    except RuntimeError:
        pass
    return y + x


def several_handlers(x, n: int):
    try:
        if n > 3:
            raise ValueError("big", n)
        return x * (10 // n)
    except ZeroDivisionError as error:
        return x - len(str(error))
    except (ValueError, KeyError) as error:
        if n > 5:
            raise
        x = x + error.args[1]
    else:
        x = x + 100
    return x


def leaves_loops(x, n: int):
    total = torch.zeros(2)
    for i in range(n):
        try:
            if i == 3:
                continue
            row = x[i]
        except IndexError:
            break
        total = total + row
    return total


def finally_of_an_error(x, n: int):
    log = [0]
    try:
        try:
            log.append(10 // n)
        finally:
            log.append(7)
    except ZeroDivisionError:
        log.append(9)
    return x, log


def a_value_that_nobody_reads(x, n: int):
    ok = True
    try:
        if n > 1:
            torch.linalg.cholesky(x)
    except RuntimeError:
        ok = False
    return ok


def an_import_that_fails(x):
    try:
        import nothing_like_this  # noqa: F401

        return x + 1
    except ImportError:
        return x


def an_attribute_that_is_missing(x):
    try:
        f = torch.nothing_like_this
    except AttributeError:
        f = None
    if f is None:
        return x
    return x + 1


def else_after_try(x, n: int):
    try:
        v = 10 // n
    except ZeroDivisionError:
        v = 1
        w = 2
    else:
        w = v + 1
    return x + v + w


def fails_for_zero(x, n: int):
    if n == 0:
        raise KeyError("n")
    return x / n


def an_error_of_a_helper(x, n: int):
    try:
        return fails_for_zero(x, n)
    except KeyError:
        return fails_for_zero(x, 1)


def finally_of_a_return(x, n: int):
    xs = [1]
    try:
        if n > 1:
            return x, xs
        xs.append(2)
    finally:
        xs.append(3)
    return x * 2, xs


def a_context_inside(x):
    try:
        with torch.no_grad():
            y = torch.linalg.cholesky(x)
    except RuntimeError:
        y = x * 2
    return y * 2


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(1))
        self.calls = 0

    def forward(self, x, n: int):
        y = x
        for i in range(n):
            try:
                y = self.lin(y)
                if y.sum() > 0:
                    raise StopIteration
                self.calls = self.calls + 1
            except StopIteration:
                y = y * 2
                break
            finally:
                self.count += 1
        else:
            y = y - 1
        try:
            d = {"a": 1}
            return y + d[str(n)]
        except KeyError as e:
            return y - len(str(e))


def nested(x, n: int):
    out = []
    for i in range(n):
        try:
            try:
                out.append(x[i])
                if i == 2:
                    raise ValueError("two")
            except ValueError as e:
                out.append(x[0] * 7)
                raise IndexError("from") from e
        except IndexError:
            out.append(x[0])
            if len(out) > 5:
                return out
    return out


def an_assertion(x, n: int):
    try:
        assert n > 2, "small"
        r = x + n
    except AssertionError as e:
        r = x - len(e.args)
    return r


def until_it_works(x, n: int):
    while True:
        try:
            x = x.reshape(n, -1)
            break
        except RuntimeError:
            n -= 1
    return x, n


def a_value_from_before_the_error(x, n: int):
    y = x
    try:
        for i in range(n):
            y = y + 1
            x = x.reshape(2, 4)[:, i:]
            y = y * 2
    except RuntimeError:
        return y - x.sum()
    return y


def a_body_inside_a_branch(x, n: int):
    if n > 2:
        try:
            x = x.view(n, -1)
        except RuntimeError as error:
            return x * len(error.args)
    return x - 1


def everything(x, n: int):
    try:
        x = x.view(n, -1)
    except:  # noqa: E722 - programs do that
        x = x + 1
    return x


def reraised(x, n: int):
    try:
        return x.view(n, -1)
    except RuntimeError:
        if n == 3:
            raise
        return x


FUNCTIONS: list[tuple[Any, Any]] = [
    *[(function, X) for function in (falls_back, keeps_the_old_value, an_import_that_fails, a_context_inside)],
    (an_attribute_that_is_missing, X), (a_value_that_nobody_reads, [(x, n) for x in (EYE, -EYE) for n in (0, 2)]),
    *[(function, N) for function in (several_handlers, leaves_loops, finally_of_an_error, else_after_try)],
    *[(function, N) for function in (an_error_of_a_helper, finally_of_a_return, nested, an_assertion, everything)],
    *[(function, N) for function in (a_value_from_before_the_error, a_body_inside_a_branch, reraised)],
    (until_it_works, [(torch.randn(7, 2), n) for n in (1, 2, 5, 9)]), (Counting(), N[:4]),
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("program", "inputs"), FUNCTIONS, ids=lambda p: getattr(p, "__name__", None))
def test_every_way_does_what_it_does_in_python(program: Any, inputs: Any, tmp_path: Any) -> None:
    gm = check(program, inputs)
    save(gm, tmp_path / "program.gw")
    cleaned = copy.deepcopy(gm)
    for graph in cleaned.graphs:
        graph.eliminate_dead_code()
        graph.lint()
    for args in inputs:
        wanted = outcome(copy.deepcopy(gm), args, with_gradients=False)
        for other in (load(tmp_path / "program.gw", allow=[__name__]), cleaned):
            assert_same(outcome(other, args, with_gradients=False), wanted)


def test_an_error_keeps_its_cause() -> None:
    def program(x, n: int):
        try:
            if n > 2:
                raise KeyError("big")
        except KeyError as error:
            if n > 4:
                raise ValueError("no") from error
            x = x + 1
        return x

    gm = check(program, [(EYE, n) for n in (1, 3, 5)])
    for run in (program, gm, Interpreter(gm).run):
        with pytest.raises(ValueError, match="no") as caught:
            run(EYE, 5)
        assert repr(caught.value.__cause__) == "KeyError('big')"


def test_a_cause_that_is_no_caught_error_is_a_problem() -> None:
    def program(x, n: int):
        if n > 2:
            raise ValueError("no") from n
        return x

    with pytest.raises(ScriptError, match="only an error that was caught can be a cause"):
        script(program)


def test_what_it_becomes() -> None:
    assert "\n".join(line for line in script(falls_back).code.splitlines() if "#" not in line).strip() == (
        """\
def forward(self, x):
    try:
        y = torch.linalg.cholesky(x)
    except RuntimeError:
        return x
    return y"""
    )
