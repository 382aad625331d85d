"""Programs whose loops fill dicts that other parts of the program see, read or change."""

# ruff: noqa: B007, B905, F841
from __future__ import annotations

from collections import defaultdict

import torch

PROGRAMS = []


def program(function):
    """Have a function checked."""
    PROGRAMS.append(function)
    return function


@program
def t_alias_value(x):
    d = {}
    for i in range(x.shape[0]):
        rows = []
        d[i] = rows
        rows.append(x[i])
    return d


@program
def t_alias_value2(x):
    d = {}
    rows = []
    for i in range(x.shape[0]):
        d[i] = rows
        rows.append(x[i])
    return d


@program
def t_view_stale(x):
    d = {}
    vs = d.values()
    for i in range(x.shape[0]):
        d[i] = x[i]
    return len(vs)


@program
def t_view_stale2(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    vs = d.values()
    ks = d.keys()
    d[100] = x[0]
    return len(vs), list(ks), len(ks)


@program
def t_keyerror(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    return d[2]


@program
def t_try(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    try:
        return d[2]
    except KeyError:
        return x


@program
def t_float_int_keys(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = 1
        d[float(i)] = 2
    return d


@program
def t_bool_keys(x):
    d = {}
    for v in x[:, 0].tolist():
        d[v > 0] = v
    return d


@program
def t_int_then_float(x):
    d = {0: 0}
    for i in range(x.shape[0]):
        y = d[0]
        d[0] = y + 0.5
    return d[0], torch.full((2,), d[0])


@program
def t_int_then_float2(x):
    rows = [0]
    for i in range(x.shape[0]):
        rows.append(rows[-1] / 2 + 1)
    return rows


@program
def t_branch_new(x):
    d = {}
    if x.sum() > 0:
        d["a"] = x
    else:
        d["b"] = x * 2
    return d


@program
def t_branch_loop(x):
    d = {}
    for i, row in enumerate(x):
        if row.sum() > 0:
            d[i] = row
        elif row[0] > 0:
            d[-i] = row * 2
        else:
            d.pop(i - 1, None)
    return d


@program
def t_break(x):
    d = {}
    for i, row in enumerate(x):
        if row[1] > 1:
            break
        d[i] = row
    return d, len(d)


@program
def t_continue(x):
    d = {}
    for i, row in enumerate(x):
        if row[1] > 1:
            continue
        d[i] = row
    else:
        d[99] = x[0]
    return d


@program
def t_return(x):
    d = {}
    for i, row in enumerate(x):
        if row[1] > 1:
            return d
        d[i] = row
    return d


@program
def t_helper(x):
    def put(d, k, v):
        d[k] = v

    d = {}
    for i, row in enumerate(x):
        put(d, i, row)
    return d


def fill(d, x):
    for i, row in enumerate(x):
        d[i] = row


@program
def t_helper2(x):
    d = {}
    fill(d, x)
    return d


@program
def t_helper3(x):
    d = {}
    fill(d, x)
    fill(d, x * 2)
    return len(d), d


def group(rows):
    d = {}
    for i, row in enumerate(rows):
        d.setdefault(i % 2, []).append(row)
    return d


@program
def t_group(x):
    g = group(x)
    return {k: torch.stack(v).sum(0) for k, v in g.items()}


@program
def t_group_twice(x):
    return group(x), group(x * 2)


@program
def t_inner_fresh(x):
    out = []
    for row in x:
        d = {}
        for i, v in enumerate(row):
            d[i] = v
        out.append(sum(d.values()))
    return out


@program
def t_fresh_in_body(x):
    out = []
    for i, row in enumerate(x):
        d = {i: row, -1: row * 2}
        out.append(d[i] + d[-1])
    return torch.stack(out)


@program
def t_fresh_in_body2(x):
    out = []
    for i, row in enumerate(x):
        d = {}
        d[i] = row
        out.append(d[i])
    return torch.stack(out)


@program
def t_dict_in_dict(x):
    d = {}
    for i, row in enumerate(x):
        d[i] = {}
        for j, v in enumerate(row):
            d[i][j] = v
    return d


@program
def t_dd_dict(x):
    d = defaultdict(dict)
    for i, row in enumerate(x):
        for j, v in enumerate(row):
            d[i][j] = v
    return d


@program
def t_dd_set(x):
    d = defaultdict(set)
    for i in range(x.shape[0]):
        d[i % 2].add(i)
    return d


@program
def t_touch(x):
    d = defaultdict(list)
    for i in range(x.shape[0]):
        d[i]
    return d


@program
def t_swap(x):
    d = {0: x[0], 1: x[0] + 1}
    for i in range(x.shape[0]):
        d[i], d[i + 1] = x[i], x[i] * 2
    return d


@program
def t_while_pop(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    t = x[0] * 0
    while d:
        k, v = d.popitem()
        t = t * 2 + v * k
    return t


@program
def t_while_len(x):
    d = {}
    i = 0
    while len(d) < x.shape[0]:
        d[i] = x[i]
        i += 1
    return d


@program
def t_memo_fib(x):
    memo = {0: x[0], 1: x[0]}
    for i in range(2, x.shape[0] + 2):
        memo[i] = memo[i - 1] + memo[i - 2]
    return memo[len(memo) - 1]


@program
def t_values_in_loop(x):
    d = {}
    out = []
    for i in range(x.shape[0]):
        d[i] = x[i]
        t = 0
        for v in d.values():
            t = t + v
        out.append(t)
    return torch.stack(out)


@program
def t_values_in_loop_before(x):
    d = {}
    out = []
    for i in range(x.shape[0]):
        t = x[0] * 0
        for v in d.values():
            t = t + v
        d[i] = x[i]
        out.append(t)
    return torch.stack(out)


@program
def t_sorted_items(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i].sum().item()
    return [k for k, v in sorted(d.items(), key=lambda kv: kv[1])], max(d, key=d.get), min(d.values())


@program
def t_attr(x):
    class A:
        pass

    a = A()
    a.d = {}
    for i in range(x.shape[0]):
        a.d[i] = x[i]
    return a.d, len(a.d)


@program
def t_dict_str(x):
    rows = {}
    for i in range(x.shape[0]):
        rows[i] = i
    return str(rows), f"{rows}"


@program
def t_zip_dict(x):
    return dict(zip(range(x.shape[0]), x))


@program
def t_star_kwargs(x):
    d = {}
    for i in range(x.shape[0]):
        d[f"k{i}"] = x[i]

    def g(**kw):
        return len(kw)

    return g(**d)


@program
def t_plus_eq_alias(x):
    t = 0.0
    u = []
    for row in x:
        t += row.sum()
        u.append(t)
    return t, u


@program
def t_dd_int_alias(x):
    d = defaultdict(float)
    for i in range(x.shape[0]):
        d[0] += x[i].sum()
        d[1] -= x[i, 0]
    return d


@program
def t_or_new(x):
    d = {}
    for i in range(x.shape[0]):
        d = {**d, i: x[i]}
    return d


@program
def t_or_new2(x):
    d = {}
    for i in range(x.shape[0]):
        d = d | {i: x[i]}
    return d


@program
def t_two_loops(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    for i in range(x.shape[0]):
        d[i] = d[i] * 2
        d[i + 100] = x[i]
    return d


@program
def t_cond_loop(x):
    d = {}
    if x.sum() > 0:
        for i in range(x.shape[0]):
            d[i] = x[i]
    return d, len(d)


@program
def t_cond_in_dict(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    if x.sum() > 0:
        d[50] = x[0]
    return d


@program
def t_kinds_after(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    d["name"] = "text"
    return d


@program
def t_none_values(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = None
    for i in range(x.shape[0]):
        if d[i] is None:
            d[i] = x[i]
    return d


@program
def t_get_none(x):
    d = {}
    t = x[0] * 0
    for i in range(x.shape[0]):
        prev = d.get(i - 1)
        if prev is None:
            d[i] = x[i]
        else:
            d[i] = prev + x[i]
    return d


@program
def t_get_none_num(x):
    d = {}
    out = []
    for i, v in enumerate(x.argmax(1).tolist()):
        j = d.get(v)
        if j is not None:
            out.append(i - j)
        d[v] = i
    return out
