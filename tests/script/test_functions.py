"""Scripted functions: every way through them, values and gradients, against Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from tests.script.checking import check
from torch import Tensor

P, N, Z = torch.arange(6.0).reshape(2, 3) - 1.5, -torch.ones(2, 3), torch.zeros(2, 3)
XS = [(P,), (N,), (Z,), (P * 10,)]
XN = [(x[0], n) for x in XS for n in (0, 1, 2, 5)]
PROGRAMS: list[tuple[Callable[..., Any], Any]] = []


def program(inputs: Any) -> Callable[[Any], Any]:
    """Have a function checked on these inputs."""

    def add(function: Any) -> Any:
        PROGRAMS.append((function, inputs))
        return function

    return add


@program(XS)
def early(x):
    if x.sum() > 0:
        return x * 2
    y = x + 1
    if y.mean() > 0.5:
        return y
    return x - y


@program(XS)
def nested(x):
    if x.sum() > 0:
        if x.max() > 10:
            return x * 2
        x = x + 1
    elif x.min() < -0.5:
        x = x * 3
    return x


@program([(P,), (P.reshape(1, 2, 3),)])
def dimensions_the_other_way_round(x):
    return x.permute(*reversed(range(x.dim()))) + x.permute(*range(x.dim())).sum()


@program(XN)
def loop_return(x, n: int):
    for i in range(n):
        x = x + i
        if x.sum() > 5:
            return x * 100
    return x


@program(XN)
def while_(x, n: int):
    i = 0
    while i < n and x.sum() < 20:
        x = x * 2 + 1
        i += 1
        if i == 3:
            continue
        x = x - 1
    else:
        x = x + 1000
    return x, i


@program(XN)
def breaks(x, n: int):
    k = 0
    for i in range(n):
        if i == 2:
            break
        k += i
    else:
        x = x + 100
    return x + k


@program(XN)
def nested_loops(x, n: int):
    total = 0
    for i in range(n):
        for j in range(i):
            if j == 3:
                break
            if (i + j) % 2 == 0:
                continue
            total += i * j
            x = x + 1
        if total > 3:
            return x, total
    return x - 1, total


@program(XS)
def opt(x, y: Tensor | None = None):
    if y is None:
        y = x * 2
    return x + y


@program([(P,), (P, N)])
def opt2(x, y: Tensor | None = None):
    if y is not None and y.sum() < 0:
        return x + y
    return x


@program(XS)
def lists(x):
    out: list[Tensor] = []
    for row in x:
        if row.sum() > 0:
            out.append(row)
    out.append(x[0])
    return torch.stack(out)


@program(XN)
def comp(x, n: int):
    ys = [x * i for i in range(n) if i % 2 == 0]
    d = {str(i): x + i for i in range(n)}
    return sum([y.sum() for y in ys]), d, len(ys)


@program(XS)
def tern(x):
    s = 2.0 if x.mean() > 0 else -3.0
    big, small = x.max() > 0.3, x.min() < -0.3
    if big and not small:
        x = x + 1
    elif small or x.sum() == 0:
        x = x - 1
    return x * s


@program(XS)
def shapes(x):
    b, n = x.shape
    k = max(1, min(x.size(1) // 2, math.ceil(x.size(1) / 3)))
    return x[:, :k].reshape(n, -1) if b > 5 else x.view(-1, 1), math.sqrt(x.shape[-1]), float(n), torch.tensor([n, k])


@program(XS)
def enum(x):
    acc = x[0] * 0
    for i, row in enumerate(x):
        acc = acc + i * row
    for a, b in zip(x, x.unbind(0)):
        acc = acc + a * b
    return acc


@program(XS)
def mutate(x):
    y = x.clone()
    y[:, ::2] = y[:, ::2] * 2
    y[y > 1] = 1.0
    y += 0.5
    y[..., -1] *= 2
    return y


@program(XS)
def asserts(x):
    assert x.sum() < 5, f"too big: {x.sum():.2f}"
    if x.sum() < -5:
        raise ValueError("too small")
    return x + 1


@program(XN)
def chained(x, n: int):
    if 0 < n < 4 and (m := n * 2) > 2:
        x = x * n
    return x, n in (1, 2), n not in [2, 5]


@program(XS)
def ng(x):
    with torch.no_grad():
        y = x * 2
        if y.sum() > 0:
            y = y + 1
    return x * y


@program(XN)
def whiletrue(x, n: int):
    i = 0
    while True:
        i += 1
        if i > n:
            return x
        x = x + i
        if x.sum() > 30:
            break
    return x * 2


@program(XN)
def last_in_else(x, n: int):
    i = k = 0
    for i in range(n):
        if x.sum() > 50:
            break
        k = i * 2
    else:
        x = x + i - k
    return x


class Sum:
    def __init__(self, value: Any) -> None:
        self.value = value


@program(XN)
def augmented_attributes(x, n: int, by=3):
    one, other = Sum(n), Sum(x)
    one.value += by  # of which only a run knows the class
    other.value *= 2
    return one.value, other.value, x


def helper(a, b, scale: float = 2.0):
    if a.sum() > b.sum():
        return a * scale
    return b


@program(XS)
def calls(x):
    y = helper(x, x * 2)
    z = helper(y, x, scale=3.0)
    return y + z


@program(XN)
def fstr(x, n: int):
    s = f"n={n:03d} {{}} {x.shape[0]!r}"
    return s, s.upper(), len(s), "%d-%s" % (n, s)


@program(XN)
def dicts(x, n: int):
    d: dict[str, Tensor] = {"a": x}
    if n > 1:
        d["b"] = x * n
    total = x * 0
    for k, v in d.items():
        total = total + v
    if "b" in d:
        total = total - d["b"]
    return total, len(d), list(d.keys())


class Pt(NamedTuple):
    a: Tensor
    n: int


@program(XN)
def named(x, n: int):
    p = Pt(x, n)
    if p.n > 1:
        p = Pt(p.a + 1, p.n - 1)
    return p, p.a * p.n


@program(XN)
def lam(x, n: int):
    f = lambda t: t * n

    def g(t, k: int):
        if k > 1:
            return f(t) + k
        return t

    return g(x, n)


@program([(P, True), (P, False)])
def tuplejoin(x, c: bool):
    if c:
        a, b = x, 1
    else:
        a, b = x + 1, 2
    return a * b


@program(XN)
def tuple_carried(x, n: int):
    best = (x, 0)
    for i in range(n):
        if i % 2:
            best = (best[0] + i, i)
    return best


@program(XN)
def none_carried(x, n: int):
    prev: Tensor | None = None
    for i in range(n):
        if prev is not None:
            x = x + prev
        prev = x * i
    if prev is None:
        return x
    return prev


@program(XN)
def ret_in_with(x, n: int):
    with torch.no_grad():
        for i in range(n):
            if i == 2:
                return x * 5
            x = x + 1
        if x.sum() > 3:
            return x
    return x - 1


@program(XN)
def star(x, n: int):
    a, *b = [1, 2, n]
    c, d = b
    return x + a + c + d, b


@program(XN)
def mat(x, n: int):
    match n:
        case 0:
            y = x
        case 1 | 2:
            y = x * 2
        case _:
            return x * 3
    return y + 1


@program(XS)
def maxdim(x):
    v, i = x.max(dim=1)
    r = x.sort(dim=0)
    return v, i, r.values, torch.topk(x, 2).indices


@program(XN)
def sumgen(x, n: int):
    return sum(x[i % 2].sum() for i in range(n)), any(i > 2 for i in range(n)), all([v > 0 for v in [1, n]])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("function", "inputs"), PROGRAMS, ids=[function.__name__ for function, _ in PROGRAMS])
def test_it_does_what_python_does(function: Callable[..., Any], inputs: Any) -> None:
    check(function, inputs)
