"""Programs with `try`, of which data decides what is raised: one tensor of three numbers in, one value out."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

INPUTS = [torch.tensor(v) for v in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [0.5, -0.25, 7.0], [10.0, -2.0, 3.0])]
INPUTS.append(torch.zeros(3))


def helper(x):
    if x.sum() > 0:
        raise ValueError("positive")
    return x * 2


def basic(x):
    try:
        if x.sum() > 0:
            raise ValueError("positive")
        y = x * 2
    except ValueError:
        y = -x
    else:
        y = y + 1
    finally:
        z = x + 1
    return y + z


def in_helper(x):
    try:
        y = helper(x)
    except ValueError:
        y = -x
    return y


def returns_inside(x):
    try:
        return helper(x)
    except ValueError:
        return -x


def several(x):
    try:
        if x.sum() > 8:
            raise KeyError("big")
        if x.sum() > 5:
            raise IndexError("mid")
        if x.sum() > 0:
            raise ValueError("small")
        y = x * 2
    except KeyError:
        y = x + 10
    except (IndexError, TypeError):
        y = x + 20
    except ValueError:
        y = x + 30
    return y


def subclass(x):
    try:
        if x.sum() > 8:
            raise KeyError("big")
        if x.sum() > 0:
            raise ZeroDivisionError("mid")
        y = x * 2
    except LookupError:
        y = x + 10
    except ArithmeticError:
        y = x + 20
    return y


def bare(x):
    try:
        y = helper(x)
    except:  # noqa: E722 - programs do that
        y = x - 5
    return y


def message(x):
    try:
        if x.sum() > 8:
            raise ValueError("big")
        if x.sum() > 0:
            raise ValueError("small")
        y = x * 2
    except ValueError as e:
        if str(e) == "big":
            y = x + 1
        else:
            y = x - 1
    return y


def message_contains(x):
    try:
        if x.sum() > 8:
            raise ValueError("big one")
        if x.sum() > 0:
            raise ValueError("small one")
        y = x * 2
    except ValueError as e:
        if "big" in str(e):
            y = x + 1
        elif e.args[0] == "small one":
            y = x - 1
    return y


def reraise(x):
    try:
        y = helper(x)
    except ValueError:
        if x.sum() > 8:
            raise
        y = x + 3
    return y


def from_e(x):
    try:
        y = helper(x)
    except ValueError as e:
        if x.sum() > 8:
            raise RuntimeError("wrapped") from e
        y = x + 3
    return y


def nested(x):
    try:
        try:
            if x.sum() > 8:
                raise KeyError("a")
            if x.sum() > 0:
                raise ValueError("b")
            y = x * 2
        except ValueError:
            y = x * 3
        y = y + 1
    except KeyError:
        y = x * 4
    return y


def handler_raises(x):
    try:
        try:
            y = helper(x)
        except ValueError as e:
            raise KeyError("second") from e
    except KeyError:
        y = x * 7
    return y


def in_loop(x):
    total = torch.zeros(())
    for row in x:
        try:
            if row < 0:
                raise ValueError("neg")
            total = total + row
        except ValueError:
            total = total - row * 2
    return total


def in_loop_jumps(x):
    total = torch.zeros(())
    for row in x:
        try:
            if row < -2:
                raise ValueError("neg")
            if row < 0:
                continue
            if row > 8:
                break
            total = total + row
        except ValueError:
            total = total - row * 2
            break
    return total


def in_loop_return(x):
    total = torch.zeros(())
    for row in x:
        try:
            if row < -2:
                raise ValueError("neg")
            if row > 8:
                return total + 100
            total = total + row
        except ValueError:
            return total - row * 2
        finally:
            total = total + 1
    return total


def loop_in_try(x):
    total = torch.zeros(())
    try:
        for row in x:
            if row < 0:
                raise ValueError("neg")
            total = total + row
    except ValueError:
        total = total * 10
    return total


def while_in_try(x):
    n = torch.zeros(())
    try:
        while x.abs().sum() > 1:
            if n > 3:
                raise RuntimeError("too many")
            n = n + 1
            x = x / 2
    except RuntimeError:
        x = x * 0.25
    return x + n


def state_at_raise(x):
    y = x
    k = 0
    try:
        y = y + 1
        k = 1
        if x.sum() > 8:
            raise ValueError("a")
        y = y * 2
        k = 2
        if x.sum() > 0:
            raise ValueError("b")
        y = y * 3
        k = 3
    except ValueError:
        y = y - 1
    return y * k


def in_place(x):
    y = x.clone()
    try:
        y.add_(1)
        if x.sum() > 8:
            raise ValueError("a")
        y.mul_(2)
        if x.sum() > 0:
            raise ValueError("b")
        y.mul_(3)
    except ValueError:
        y = y - 1
    return y


def in_place_input(x):
    x = x * 1
    v = x[0:2]
    try:
        v[0] = 5.0
        if x.sum() > 8:
            raise ValueError("a")
        v += 1
    except ValueError:
        pass
    return x


def assertion(x):
    try:
        assert x.sum() > 0, "not positive"
        y = x + 1
    except AssertionError:
        y = x - 1
    return y


def torch_check(x):
    try:
        torch._check(bool(x.sum() > 0), lambda: "bad")
        y = x + 1
    except RuntimeError:
        y = x - 1
    return y


def item_index(x):
    i = int(x[0].item())
    try:
        y = x[i]
    except IndexError:
        y = x[0] * 100
    return y


def item_index_assigned(x):
    y = torch.zeros(())
    try:
        i = int(x[0])
        y = y + 1
        y = x[i]
    except IndexError:
        y = y + x[0] * 100
    return y


def division(x):
    n = int(x[0].item())
    try:
        k = 10 // n
    except ZeroDivisionError:
        k = 77
    return x * k


def cholesky(x):
    m = torch.diag(x)
    try:
        y = torch.linalg.cholesky(m)
    except RuntimeError:
        y = m * 2
    return y


def handler_that_returns(x):
    m = torch.diag(x)
    try:
        factor = torch.linalg.cholesky(m)
    except RuntimeError:
        return m @ m
    except ValueError:
        return m
    factor = factor * 2
    return torch.cholesky_solve(m, factor)


def handlers_that_return_one_after_the_other(x):
    m = torch.diag(x)
    try:
        if x[0] > 5:
            raise ValueError("large")
        y = torch.linalg.cholesky(m)
    except RuntimeError:
        return m * 2
    try:
        y = y @ torch.linalg.cholesky(m - 1)
    except RuntimeError:
        return y
    return y + 1


def with_inside(x):
    try:
        with torch.no_grad():
            y = x * 2
            if x.sum() > 0:
                raise ValueError("p")
    except ValueError:
        y = x * 3
    return y * x


def with_outside(x):
    with torch.no_grad():
        try:
            y = x * 2
            if x.sum() > 0:
                raise ValueError("p")
        except ValueError:
            y = x * 3
    return y * x


def finally_only(x):
    log = x.clone()
    try:
        if x.sum() > 0:
            raise ValueError("p")
        y = x * 2
    finally:
        log.add_(1)
    return y + log


def finally_return(x):
    y = x
    try:
        y = helper(x)
    finally:
        return y + 1  # noqa: B012


def suppressed(x):
    y = x
    with contextlib.suppress(ValueError):
        y = y + 1
        y = helper(x)
    return y


def appended(x):
    out = []
    try:
        out.append(x)
        if x.sum() > 8:
            raise ValueError("p")
        out.append(x * 2)
        if x.sum() > 0:
            raise ValueError("p")
        out.append(x * 3)
    except ValueError:
        out.append(x * 4)
    return torch.stack(out).sum(0) * len(out)


def in_branch(x):
    if x[0] > 0:
        try:
            y = helper(x)
        except ValueError:
            y = x - 2
    else:
        y = x - 1
    return y


def unmatched(x):
    try:
        y = helper(x)
    except KeyError:
        y = x - 1
    return y


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        y = self.lin(x)
        if x.sum() > 0:
            raise ValueError("pos")
        return y


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.register_buffer("count", torch.zeros(1))
        self.calls = 0

    def forward(self, x):
        try:
            self.count += 1
            self.calls += 1
            y = self.inner(x)
            self.count += 10
        except ValueError:
            y = x * 2
            self.calls += 10
        return y


class Custom(Exception):
    def __init__(self, value, code):
        super().__init__(f"custom {code}")
        self.value, self.code = value, code


def custom(x):
    try:
        if x.sum() > 0:
            raise Custom(x * 2, 3)
        y = x
    except Custom as e:
        y = e.value * e.code
    return y


def args_tensor(x):
    try:
        if x.sum() > 0:
            raise ValueError(x * 2, 3)
        y = x
    except ValueError as e:
        y = e.args[0] * e.args[1]
    return y


def retry(x):
    for _ in range(3):
        try:
            y = helper(x)
            break
        except ValueError:
            x = x - 4
    else:
        y = x * 0
    return y


def after(x):
    try:
        if x.sum() > 8:
            raise ValueError("p")
    except ValueError:
        x = x + 1
    if x.sum() > 0:
        raise RuntimeError("after")
    return x


def stop_iteration(x):
    out = []
    try:
        it = iter(range(3))
        while True:
            i = next(it)
            if x[i] > 5:
                raise KeyError
            out.append(x[i] * i)
    except StopIteration:
        pass
    except KeyError:
        out.append(x.sum())
    return sum(out)


def two_errors_with_one_text(x):
    try:
        if x.sum() > 8:
            raise KeyError("it")
        if x.sum() > 0:
            raise ValueError("it")
        y = x
    except (KeyError, ValueError) as error:
        y = x * 3 if isinstance(error, KeyError) else x * len(str(error))
    return y


def a_loop_with_else(x):
    total = x.sum() * 0
    for row in x:
        try:
            if row > 8:
                raise ValueError
            total = total + row
        except ValueError:
            total = total + 50
            continue
        else:
            total = total * 2
        finally:
            total = total + 1
    else:
        total = total * 3
    return total


def a_loop_that_stops_in_finally(x):
    total = x.sum() * 0
    for row in x:
        try:
            total = total + row
            if row < 0:
                raise ValueError("neg")
        except ValueError:
            total = total * 2
        finally:
            total = total + 1
            if total > 3:
                break  # noqa: B012
    return total


def nested_returns(x):
    try:
        for row in x:
            try:
                if row > 8:
                    return row * 10
                if row < -2:
                    raise KeyError("low")
            except KeyError:
                raise ValueError("low") from None
    except ValueError:
        return x.sum()
    return x.max()


def a_draw_after_the_error(x):
    try:
        a = torch.rand(3)
        if x.sum() > 0:
            raise ValueError
        a = a + torch.rand(3)
    except ValueError:
        a = a * 2
    return a + torch.rand(3) + x


def autocast_inside(x):
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = (x[:, None] @ x[None]).sum()
            if x.sum() > 0:
                raise ValueError
    except ValueError:
        y = (x[:, None] @ x[None]).sum().to(torch.bfloat16)
    return y + (x * 3).sum()


def a_number_and_a_none(x):
    k, y = 0, None
    try:
        k = int(x[0])
        y = x * k
        if k > 5:
            raise ValueError
        k = 10 // k
    except ZeroDivisionError:
        k = -1
    except ValueError:
        k = 7
    if y is None:
        y = x
    return y + k


def an_error_that_is_a_value(x):
    error = None
    try:
        helper(x)
    except ValueError as caught:
        error = caught
    if error is not None:
        return x * 5
    return x


def a_tuple_before_the_error(x):
    pair = (x, x * 2)
    try:
        pair = (x + 1, pair[0])
        y = helper(x)
        pair = (y, y)
    except ValueError:
        pair = (pair[1], pair[0])
    return pair[0] - pair[1] * 3


def a_list_that_grows(x):
    rows = [x[0]]
    try:
        for row in x:
            rows.append(row * 2)
            if row > 8:
                raise ValueError
            if row < -2:
                break
    except ValueError:
        rows.append(x.sum())
    return torch.stack(rows)


def deep(x):
    def inner(y):
        try:
            return helper(y)
        except KeyError:
            return y

    try:
        try:
            y = inner(x - 3)
        finally:
            x = x * 2
        return y
    except ValueError:
        return inner(x - 100)


FUNCTIONS = [
    value
    for name, value in list(globals().items())
    if getattr(value, "__module__", None) == __name__ and not isinstance(value, type) and name != "helper"
]
