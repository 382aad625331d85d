"""Forms of Python that ask about data: one capture goes every way that eager goes, with its values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.capture.loop_programs import ROWS
from tests.capture.test_loops import check, outcome

from graphwright import symbolic_trace, trace
from graphwright.runtime import expect_kinds, expect_tensors


def any_gen(x: torch.Tensor) -> Any:
    return x * 2 if any(row.sum() > 5 for row in x) else x - 1


def all_gen(x: torch.Tensor) -> Any:
    return x * 2 if all(row.sum() > -3 for row in x) else x - 1


def any_tensor(x: torch.Tensor) -> Any:
    return x * 2 if any(x[:, 0] > 2) else x - 1


def all_list(x: torch.Tensor) -> Any:
    return x * 2 if all([row.sum() > -3 for row in x]) else x - 1  # noqa: C419


def break_else(x: torch.Tensor) -> Any:
    for row in x:
        if row.sum() < 0:
            y = row * 2
            break
    else:
        y = x[0]
    return y


def break_else_while(x: torch.Tensor) -> Any:
    n = 0
    while n < 4:
        x = x + 1
        if x.sum() > 12:
            y = x * 2
            break
        n += 1
    else:
        y = x - 1
    return y


def dict_static(x: torch.Tensor) -> Any:
    d = {}
    for k in range(3):
        d[k] = x * k
        if x.sum() > 3:
            break
    return sum(d.values())


def list_static(x: torch.Tensor) -> Any:
    out = []
    for k in range(4):
        out.append(x * k)
        if x.sum() > 3 and k > 1:
            break
    return torch.stack(out)


def one_side(x: torch.Tensor) -> Any:
    out = [x]
    if x.sum() > 0:
        out.append(x * 2)
    return torch.cat(out), len(out)


def one_side_empty(x: torch.Tensor) -> Any:
    out = []
    if x.sum() > 0:
        out.append(x * 2)
    if x[0, 0] > 2:
        out.append(x - 1)
    return sum(out) if out else x


def dict_one_side(x: torch.Tensor) -> Any:
    d = {"a": x}
    if x.sum() > 0:
        d["b"] = x * 2
    return d


def nested_comp(x: torch.Tensor) -> Any:
    return torch.stack([torch.stack([v * 2 for v in row]) for row in x])


def two_gen(x: torch.Tensor) -> Any:
    return torch.stack([row * v for row in x for v in (1.0, 2.0)])


def two_gen2(x: torch.Tensor) -> Any:
    return torch.stack([v for row in x for v in row])


def walrus_if(x: torch.Tensor) -> Any:
    if (s := x.sum()) > 3:
        return s * 2
    return s - 1


def match_t(x: torch.Tensor) -> Any:
    match x.shape:
        case (1, _):
            return x * 2
        case (n, 2) if n > 2:
            return x - 1
        case _:
            return x


def match_val(x: torch.Tensor) -> Any:
    n = int(x.sum())
    match n:
        case 3:
            return x
        case 6 | 7:
            return x * 2
        case k if k > 10:
            return x * 3
        case _:
            return -x


def match_flag(x: torch.Tensor) -> Any:
    rows = []
    for row in x:
        match (row.sum() > 0).item():
            case True:
                rows.append(row * 2)
            case False:
                rows.append(row - 1)
    return torch.stack(rows)


def match_flags(x: torch.Tensor) -> Any:
    match [(x.sum() > 0).item(), {"high": (x.mean() > 1).item()}]:
        case [True, {"high": True}] | [False, {"high": False}]:
            return x * 2
        case [True | None, {"high": high}] if high is False:
            return x - 1
        case [False as low, _]:
            return x + low


def error_gone(x: torch.Tensor) -> Any:
    e = 5
    try:
        if x.sum() > 0:
            raise ValueError("positive")
    except ValueError as e:  # noqa: F841 - which takes the variable away
        pass
    try:
        return x * e
    except NameError:
        return x - 1


def tern_nested(x: torch.Tensor) -> Any:
    return x * 2 if x.sum() > 3 else (x - 1 if x.max() > 2 else x + 1)


def chained(x: torch.Tensor) -> Any:
    return x * 2 if -3 < x.sum() < 7 else x


def aug_attr(x: torch.Tensor) -> Any:
    class S:
        pass

    s = S()
    s.t = x * 0
    s.n = 0
    for row in x:
        s.t += row
        if row.sum() > 0:
            s.n += 1
    return s.t, s.n


def aug_item(x: torch.Tensor) -> Any:
    d = [x[0] * 0, 0]
    for row in x:
        d[0] += row
        d[1] += 1
    return d[0], d[1]


def unused_after(x: torch.Tensor) -> Any:
    if x.sum() > 0:
        t = x * 2
        y = t + 1
    else:
        y = x
    return y


def nonlocal_(x: torch.Tensor) -> Any:
    n = 0

    def inc(r):
        nonlocal n
        if r.sum() > 0:
            n += 1
        return r * n

    out = x[0] * 0
    for r in x:
        out = out + inc(r)
    return out


def recursion(x: torch.Tensor) -> Any:
    def f(v, d):
        if d == 0:
            return v
        if v.sum() > 3:
            return f(v / 2, d - 1)
        return f(v + 1, d - 1) + v

    return f(x, 3)


def loopvar_after(x: torch.Tensor) -> Any:
    for i in range(x.shape[0]):  # noqa: B007
        pass
    return x * i


def zip_three(x: torch.Tensor) -> Any:
    t = x[0] * 0
    for i, (a, b) in enumerate(zip(x, reversed(range(x.shape[0])))):  # noqa: B905
        t = t + a * b * i
    return t


def while_two(x: torch.Tensor) -> Any:
    i = 0
    while i < x.shape[0] and x[i].sum() > 0:
        i += 1
    return i


def map_(x: torch.Tensor) -> Any:
    return sum(map(lambda r: r * 2, x))  # noqa: C417


def filter_(x: torch.Tensor) -> Any:
    return sum(filter(lambda r: r.sum() > 0, x))


def try_in(x: torch.Tensor) -> Any:
    out = x[0] * 0
    for r in x:
        try:
            out = out + r
        finally:
            out = out * 2
    return out


def with_ret(x: torch.Tensor) -> Any:
    with torch.no_grad():
        if x.sum() > 3:
            return x * 2
    return x + 1


def not_not(x: torch.Tensor) -> Any:
    return x if not (x.sum() > 3 or not x.max() < 2) else x * 2


def ret_none(x: torch.Tensor) -> Any:
    if x.sum() > 3:
        return None
    return x


def raise_(x: torch.Tensor) -> Any:
    if x.sum() > 20:
        raise ValueError(f"too big {x.shape[0]}")
    return x


def del_(x: torch.Tensor) -> Any:
    y = x * 2
    if x.sum() > 0:
        del y
        y = x
    return y


def shadow(x: torch.Tensor) -> Any:
    sum = lambda v: v * 3  # noqa: E731
    for r in x:
        x = x + sum(r)
    return x


def slices(x: torch.Tensor) -> Any:
    n = x.shape[0]
    for i in range(n):
        x = torch.cat([x[:i], x[i : i + 1] * 2, x[i + 1 :]])
    return x


def int_loop(x: torch.Tensor) -> Any:
    n = int(x.abs().sum())
    a, b = 0, 1
    while n > 0:
        a, b = b, a + b
        n -= 1
    return a


def tensor_while_in_for(x: torch.Tensor) -> Any:
    for r in x:
        k = r
        while k.abs().sum() > 2:
            k = k / 2
        x = x + k
    return x


def str_keys(x: torch.Tensor) -> Any:
    mode = "a" if x.sum() > 3 else "b"
    return x * 2 if mode == "a" else x


FORKS = [
    dict_one_side,
    match_t,
    match_flags,
    error_gone,
    with_ret,
    str_keys,
]  # programs whose sides are of different kinds
KEPT = [
    dict_static,
    any_gen,
    all_gen,
    any_tensor,
    all_list,
    break_else,
    break_else_while,
    list_static,
    one_side,
    one_side_empty,
    nested_comp,
    two_gen,
    two_gen2,
    walrus_if,
    tern_nested,
    chained,
    aug_attr,
    aug_item,
    unused_after,
    nonlocal_,
    recursion,
    loopvar_after,
    zip_three,
    while_two,
    map_,
    filter_,
    try_in,
    not_not,
    ret_none,
    raise_,
    del_,
    shadow,
    slices,
    int_loop,
    tensor_while_in_for,
    match_val,
    match_flag,
]
# Without values nobody knows what is None, and a pattern for sequences matches no stand-in.
VALUES = {"match_t", "match_flags", "raise_", "ret_none", "with_ret"}


def goes_every_way(gm: Any, program: Any) -> None:
    gm.graph.lint()
    for x in ROWS:
        try:
            expected = outcome(program, x)
        except UnboundLocalError as error:
            with pytest.raises(type(error)):
                outcome(gm, x)
            continue
        check(outcome(gm, x), expected, gm.code)


@pytest.mark.parametrize("program", [*KEPT, *FORKS], ids=lambda program: program.__name__)
def test_one_capture_goes_every_way(program: Any) -> None:
    gm = trace(program, ROWS[0])
    goes_every_way(gm, program)
    of_inputs = {guard.node and guard.node.target for guard in gm.guards}
    assert of_inputs <= {expect_tensors, expect_kinds}  # of ranks, and that they are no parameters
    assert gm.report.coverage == 1.0
    assert (gm.report.facts.paths == 1) is (program in KEPT)


@pytest.mark.parametrize(
    "program", [p for p in [*KEPT, *FORKS] if p.__name__ not in VALUES], ids=lambda program: program.__name__
)
def test_symbolic_tracing_goes_every_way_too(program: Any) -> None:
    goes_every_way(symbolic_trace(program), program)


class Meter:
    """What trainers print: its class says its text, of numbers of the run."""

    def __init__(self) -> None:
        self.value, self.count = 0.0, 0

    def update(self, value: float) -> None:
        self.value, self.count = value, self.count + 1

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.count})"

    def __format__(self, spec: str) -> str:
        return f"<{self.value:{spec or '.1f'}}>"


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(lambda meter: str(meter), id="str"),
        pytest.param(lambda meter: repr([meter.count]) + f"{meter!s}", id="conversion"),
        pytest.param(lambda meter: f"{{a}} {meter:.3f} {meter} {meter.count:>{4}}", id="format"),
        pytest.param(lambda meter: "{} {:.4f}".format(meter, meter), id="method"),  # noqa: UP032
        pytest.param(lambda meter: print(meter, 1), id="print"),
    ],
)
def test_what_classes_say_of_their_objects(said: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> Any:
        meter = Meter()
        meter.update(x.mean().item())
        return said(meter)

    gm = trace(program, (torch.ones(2),))
    capsys.readouterr()
    for x in torch.ones(2), torch.arange(3.0) * 3:
        given, printed = gm(x), capsys.readouterr().out
        assert (given, printed) == (program(x), capsys.readouterr().out)
