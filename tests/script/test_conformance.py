"""Programs over the themes that compilers of control flow get wrong: each does, scripted, what it does in Python."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from typing import Any, Dict, List, Optional, Tuple

import pytest
import torch
import torch.nn.functional as F
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


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@program(XN)
def early_nested(x, n: int):
    for i in range(n):
        for j in range(3):
            if i * j > 2:
                return x * i
            x = x + j
    return x


@program(XN)
def one_list_of_two_names(x, n: int):
    one = other = [x]
    rows = {}
    kept = also_kept = rows
    for i in range(n):
        one.append(x * i)
        kept["n"] = x + i
    return torch.stack(other), len(also_kept)


@program(XN)
def one_branch_unused(x, n: int):
    if n > 1:
        tmp = x * 2
        x = tmp + 1
    return x


@program(XN)
def loopvar_after(x, n: int):
    i = -1
    for i in range(n):
        x = x + i
    return x * i


@program(XN)
def nested_reads_loop(x, n: int):
    for i in range(n):

        def f(v):
            return v + i

        x = f(x)
    return x


@program(XN)
def comp_in_if(x, n: int):
    if x.sum() > 0:
        ys = [x * k for k in range(n + 1)]
    else:
        ys = [x]
    return torch.stack(ys)


@program(XN)
def aug_item(x, n: int):
    d = {"a": 1, "b": n}
    d["a"] += n
    xs = [1, 2]
    xs[0] += d["a"]
    xs += [n]
    x = x.clone()
    x[0] += 1
    return x, d, xs


@program(XN)
def chained_cmp(x, n: int):
    return 0 < x.sum() < 10 < n * 100, -1 <= n <= 1


@program(XN)
def walrus(x, n: int):
    if (m := x.sum() + n) > 2:
        return x * m
    while (n := n - 1) > 0:
        x = x + n
    return x - m


@program(XN)
def matching(x, n: int):
    match n:
        case 0 | 5:
            return x
        case k if k > 1:
            return x * 2
    return x


def deco(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        return f(*args, **kwargs) + 1

    return inner


@deco
def decorated(x, k: int = 2):
    if x.sum() > 0:
        return x * k
    return x


@program(XN)
def decorated_callee(x, n: int):
    return decorated(x, k=n) + decorated(x)


def apply(f, x):
    if x.mean() > 0:
        return f(x)
    return x


@program(XN)
def lambda_arg(x, n: int):
    return apply(lambda t: t * n, x) + apply(torch.relu, x)


@program(XN)
def prints(x, n: int):
    print("n", n, end="")
    return x


@program(XN)
def shadow(x, n: int):
    sum = x + n
    max = sum * 2
    for len in range(n):
        max = max + len
    return max


@program(XN)
def zero_trip_else(x, n: int):
    for i in range(n):
        if x.sum() > 3:
            break
        x = x + 1
    else:
        return x * 7
    return x


@program(XN)
def while_else_ret(x, n: int):
    i = 0
    while i < n:
        i += 1
        if i == 4:
            return x
        if x.sum() > 6:
            break
        x = x + i
    else:
        x = x * 10
    return x + i


@program(XN)
def fib(x, n: int):
    def rec(k: int):
        return k * 2

    return x + rec(n)


def power(x, k: int):
    if k == 0:
        return x * 0 + 1
    return x * power(x, k - 1)


CONST = 3


@program(XN)
def recursion_bound(x, n: int):
    return power(x, CONST)


@program(XN)
def strings(x, n: int):
    s = "a,b,c"
    parts = s.split(",")
    out = ""
    for p in parts:
        out += p.upper() + str(n)
    return out, parts[0], s[1:], "a" in s, len(parts), s.startswith("a"), "x".join(parts)


@program(XN)
def dict_loop(x, n: int):
    d: Dict[int, Tensor] = {}
    for i in range(n):
        d[i] = x * i
    s = x
    for k in d:
        s = s + d[k] * k
    return s, d.get(1), d.get(9) is None, 0 in d


@program([(P, [1, 2]), (P, [])])
def list_param(x, ns: List[int]):
    t = 0
    for n in ns:
        t += n
    if ns:
        x = x + ns[-1]
    if not ns:
        return x
    ns2 = ns[::-1]
    ns2.append(t)
    return x * t + sum(ns2) + max(ns2)


@program([([P, N],), ([P],)])
def tensor_list(xs: List[Tensor]):
    ys = [x * 2 for x in xs]
    ys.append(ys[0])
    a = ys.pop()
    if len(ys) == 1:
        return torch.cat(ys) + a
    x, y = ys
    return x + y


@program([({"a": P, "b": N},)])
def dict_param(d: Dict[str, Tensor]):
    if "c" in d:
        return d["c"]
    t = d["a"]
    for k, v in d.items():
        if k == "b":
            t = t + v
    return t


@program([((P, 3),), ((N, 0),)])
def tuple_param(p: Tuple[Tensor, int]):
    x, n = p
    if p[1] > 1:
        return x * n
    return p[0]


@program([(P, None), (P, 2.0)])
def opt_float(x, s: Optional[float]):
    return x * (s if s is not None else 1.0)


@program([(P, None), (P, [N])])
def opt_list(x, s: Optional[List[Tensor]] = None):
    if s is None or len(s) == 0:
        return x
    return x + s[0]


@program(XS)
def assert_not_none(x, y: Optional[Tensor] = None):
    if x.sum() > 0:
        y = x
    if y is None:
        raise RuntimeError("none")
    return y * 2


@program(XS)
def dtypes(x):
    if x.dtype == torch.float32 and x.device.type == "cpu":
        x = x.to(torch.float64)
    y = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    return y + x.int(), x.is_floating_point(), torch.finfo(x.dtype).eps


@program(XN)
def mathf(x, n: int):
    return (
        math.sqrt(n) + math.pi,
        math.floor(n / 2),
        math.ceil(2.5),
        n // 2,
        n % 3,
        -n,
        n**2,
        2**n,
        float(n),
        abs(-n),
        round(n / 3),
        min(n, 2),
        max(1.5, n),
    )


@program(XN)
def bits(x, n: int):
    return n & 3, n | 4, n ^ 1, n << 2, ~n, bool(n) and True, not n


@program(XS)
def enums(x):
    c = Color.RED
    if c == Color.RED:
        return x
    return x * 2


@program(XS)
def sizes(x):
    b, n = x.size()
    y = x.view(b * n)
    z = x.new_zeros(b, n)
    w = x.permute(1, 0).reshape(-1, b).expand(n, b).contiguous()
    s = x.shape
    return y, z, w, s, x.numel() // len(s), x.size(-1) - 1, tuple(x.shape), list(x.shape)


@program(XS)
def starred_shape(x):
    return x.view(*x.shape), torch.zeros(*x.shape), x.reshape(*x.shape[:-1], -1)


@program(XS)
def inplace_alias(x):
    y = x.clone()
    v = y[0]
    v += 1
    if v.sum() > 0:
        v.mul_(2)
    return y


@program(XS)
def setitems(x):
    out = torch.zeros(2, 3)
    for i in range(x.size(0)):
        for j in range(x.size(1)):
            if x[i, j] > 0:
                out[i, j] = x[i, j] * 2
    return out


@program(XN)
def fresh_randomness(x, n: int):
    for i in range(n):
        x = x + torch.rand_like(x)
        if torch.rand(()) > 0.5:
            x = x * 2
    return F.dropout(x, 0.5, training=n > 1)


@program(XN)
def zips(x, n: int):
    t = 0
    for a, b in zip([1, 2, 3], range(n)):
        t += a * b
    for i, (a, b) in enumerate(zip(x, x)):
        t = t + 0
        x = x + i
    for v in reversed([1, n]):
        t = t * v
    return x, t


@program(XN)
def typed_tuple_list(x, n: int):
    pairs: List[Tuple[int, Tensor]] = []
    for i in range(n):
        pairs.append((i, x * i))
    s = x
    for i, t in pairs:
        s = s + t * i
    return s


@program(XN)
def none_return(x, n: int):
    if n > 1:
        x.add_(1)
        return
    x.mul_(2)


@program(XN)
def opt_return(x, n: int) -> Optional[Tensor]:
    if n > 1:
        return x
    return None


@program(XN)
def multi_assign(x, n: int):
    a = b = x + n
    a, b = b, a * 2
    (c, d), e = (a, b), n
    return a, b, c, d, e


@program(XN)
def del_(x, n: int):
    y = x + 1
    del y
    d = {1: 2, 3: 4}
    del d[1]
    return x, d


@program(XN)
def cond_append(x, n: int):
    xs = []
    for i in range(n):
        if i % 2:
            xs.append(x + i)
        else:
            xs.extend([x, x * i])
    if len(xs) > 2:
        xs.insert(0, x)
        xs.reverse()
    return xs


@program(XN)
def nested_comp(x, n: int):
    return [[i * j for j in range(i)] for i in range(n)], {i: [i] for i in range(n)}, {i % 2 for i in range(n)}


@program(XS)
def comp_of_two_loops(x):
    pairs = [a * b for a in x[:, 0] for b in x[:, 1] if a > b]
    return pairs, sum(v * v for row in x for v in row if v > 0), {int(v) for row in x for v in row if v > 0}


@program(XN)
def cond_nograd(x, n: int):
    with torch.set_grad_enabled(n > 1):
        y = x * 2
        with torch.no_grad():
            z = y + 1
    return y + z


@program(XN)
def break_in_if_else(x, n: int):
    for i in range(10):
        if i > n:
            if x.sum() > 0:
                x = x - 1
            else:
                break
        elif i == 1:
            continue
        x = x + 0.5
    return x, i if n > 0 else -1


@program(XN)
def walrus_and_else(x, n: int):
    while (n := n - 1) > 0:
        x = x + n
        if x.sum() > 20:
            break
    else:
        x = x * 100
    return x, n


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("function", "inputs"), PROGRAMS, ids=[function.__name__ for function, _ in PROGRAMS])
def test_it_does_what_python_does(function: Callable[..., Any], inputs: Any) -> None:
    check(function, inputs)
