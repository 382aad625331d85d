"""Programs whose loops fill lists, and take them apart."""

# ruff: noqa: B007, B905, RUF017
from __future__ import annotations

import collections
import itertools

import torch

PROGRAMS = []
Pair = collections.namedtuple("Pair", "index row")


def program(function):
    """Have a function checked."""
    PROGRAMS.append(function)
    return function


@program
def l_insert(x):
    rows = []
    for row in x:
        rows.insert(0, row)
    return torch.stack(rows)


@program
def l_insert_mid(x):
    rows = [x[0]]
    for row in x:
        rows.insert(1, row)
    return torch.stack(rows), len(rows)


@program
def l_extend(x):
    rows = []
    for row in x:
        rows.extend([row, row * 2])
    return torch.stack(rows)


@program
def l_extend_gen(x):
    rows = []
    for row in x:
        rows.extend(row[i] for i in range(2))
    return torch.stack(rows)


@program
def l_extend_numbers(x):
    ends = [0]
    for row in x:
        ends.extend((torch.arange(int(row.abs().sum()) % 4 + 1).cumsum(0) + ends[-1]).tolist())
    return torch.tensor(ends)


@program
def l_extend_rows(x):
    rows = []
    for i, row in enumerate(x):
        rows.extend(list(x[: i + 1] * row))
    return torch.stack(rows), len(rows)


@program
def l_repeated_pairs(x):
    sizes = [(x.size(1), x.sum())] * x.size(0)
    return torch.stack([row[: pair[0] // 2].sum() + pair[1] for row, pair in zip(x, sizes)]), len(sizes)


@program
def l_nested_targets(x):
    sizes = [(i, (len(row), row * i)) for i, row in enumerate(x)]
    rows = [row + scaled[:n].sum() for row, (i, (n, scaled)) in zip(x, sizes) if i != 1]
    return rows, {i: scaled for i, (_, scaled) in sizes}, any(n > i for _, (i, (n, rest)) in enumerate(sizes))


@program
def l_repeated_numbers(x):
    rows = [0] * x.size(0)
    for i in range(x.size(0)):
        rows[i] = x[i] * 2
    return torch.stack(rows)


@program
def l_repeated_nones(x):
    rows = [None] * len(x)
    for i, row in enumerate(x):
        if row.sum() > 0:
            rows[i] = row
    return rows


@program
def l_repeated_lists(x):
    rows = [[]] * x.size(0)
    rows[0].append(x)  # to all of them
    return [len(row) for row in rows]


@program
def l_pop(x):
    rows = [x[0]]
    for row in x:
        rows.append(row)
        t = rows.pop(0)
    return t, rows


@program
def l_pop_end(x):
    rows = []
    for row in x:
        rows.append(row)
    t = x[0] * 0
    while rows:
        t = t * 2 + rows.pop()
    return t


@program
def l_remove(x):
    rows = list(range(6))
    for i in range(x.shape[0]):
        rows.remove(i)
    return rows


@program
def l_remove_grown(x):
    rows = []
    for i in range(x.shape[0]):
        rows.append(i)
        rows.append(i + 10)
        rows.remove(i)
    return rows


@program
def l_sort(x):
    rows = []
    for row in x:
        rows.append(row.sum().item())
        rows.sort()
    return rows


@program
def l_sort_key(x):
    rows = []
    for row in x:
        rows.append((row.sum().item(), row))
        rows.sort(key=lambda p: -p[0])
    return [r for _, r in rows]


@program
def l_sort_rev(x):
    rows = []
    for row in x:
        rows.append(row.sum().item())
    rows.sort(reverse=True)
    return rows


@program
def l_reverse(x):
    rows = []
    for row in x:
        rows.append(row)
    rows.reverse()
    return torch.stack(rows)


@program
def l_reverse_in(x):
    rows = []
    for row in x:
        rows.append(row)
        rows.reverse()
    return torch.stack(rows)


@program
def l_reversed(x):
    rows = []
    for row in x:
        rows.append(row)
    return torch.stack(rows[::-1]), torch.stack(list(reversed(rows)))


@program
def l_slice(x):
    rows = []
    out = []
    for row in x:
        rows.append(row)
        out.append(torch.stack(rows[-2:]).sum(0))
    return torch.stack(out), rows[1:], rows[:2]


@program
def l_slice_assign(x):
    rows = []
    for row in x:
        rows.append(row)
        rows[:] = rows[-2:]
    return rows


@program
def l_slice_assign2(x):
    rows = []
    for row in x:
        rows.append(row)
    rows[0:1] = [x[0], x[0]]
    return rows


@program
def l_del(x):
    rows = []
    for row in x:
        rows.append(row)
        if len(rows) > 2:
            del rows[0]
    return rows


@program
def l_del_slice(x):
    rows = []
    for row in x:
        rows.append(row)
    del rows[1:]
    return rows


@program
def l_of_lists(x):
    rows = []
    for row in x:
        rows.append([row, row + 1])
    return rows


@program
def l_of_lists_grow(x):
    rows = [[] for _ in range(2)]
    for i, row in enumerate(x):
        rows[i % 2].append(row)
    return rows


@program
def l_of_lists_grow0(x):
    rows = [[], []]
    for row in x:
        rows[0].append(row)
        rows[1].append(row * 2)
    return [torch.stack(a) for a in rows]


@program
def l_of_lists_last(x):
    rows = [[]]
    for row in x:
        if row.sum() > 0:
            rows.append([])
        rows[-1].append(row)
    return rows


@program
def l_nested(x):
    rows = []
    for row in x:
        inner = []
        for v in row:
            inner.append(v)
        rows.append(inner)
    return rows


@program
def l_nested_while(x):
    rows = []
    for row in x:
        inner = []
        while row.sum() > 1:
            inner.append(row)
            row = row / 2
        rows.append(inner)
    return rows


@program
def l_index(x):
    rows = []
    for i in range(x.shape[0]):
        rows.append(i * 2)
    return rows.index(2), rows.count(2), 2 in rows


@program
def l_copy(x):
    rows = []
    for row in x:
        rows.append(row)
        m = rows.copy()
        m.append(row)
    return rows, m


@program
def l_alias(x):
    rows = []
    m = rows
    for row in x:
        rows.append(row)
        m.append(row + 1)
    return rows


@program
def l_mul(x):
    rows = []
    for row in x:
        rows.append(row)
    return rows * 2


@program
def l_set(x):
    rows = [x[0]]
    for i in range(1, x.shape[0]):
        rows.append(x[i])
        rows[i - 1] = rows[i - 1] + 1
    return rows


@program
def l_swap(x):
    rows = []
    for i in range(x.shape[0]):
        rows.append(x[i])
        rows[0], rows[-1] = rows[-1], rows[0]
    return rows


@program
def l_bubble(x):
    rows = [row.sum().item() for row in x]
    n = len(rows)
    for i in range(n):
        for j in range(n - 1 - i):
            if rows[j] > rows[j + 1]:
                rows[j], rows[j + 1] = rows[j + 1], rows[j]
    return rows


@program
def l_stack_dfs(x):
    stack = [0]
    out = []
    while stack:
        i = stack.pop()
        if i < x.shape[0]:
            out.append(x[i])
            stack.append(2 * i + 1)
            stack.append(2 * i + 2)
    return torch.stack(out)


@program
def l_clear(x):
    rows = []
    out = []
    for row in x:
        rows.append(row)
        if len(rows) == 2:
            out.append(torch.stack(rows).sum(0))
            rows.clear()
    return out, rows


@program
def l_clear2(x):
    rows = []
    out = []
    for row in x:
        rows.append(row)
        if len(rows) == 2:
            out.append(torch.stack(rows).sum(0))
            rows = []
    return out, rows


@program
def l_tuple_rows(x):
    rows = []
    for i, row in enumerate(x):
        rows.append((i, row))
    a, b = zip(*rows)
    return torch.stack(b), torch.tensor(a)


@program
def l_strs(x):
    rows = []
    for i, row in enumerate(x):
        rows.append(f"row{i}")
    return rows


@program
def l_dicts(x):
    rows = []
    for row in x:
        rows.append({"a": row, "b": row.sum()})
    return rows


@program
def l_dict_of_lists(x):
    rows = []
    for row in x:
        rows.append({"a": [row, row], "b": row.sum().item()})
    return rows


@program
def l_chain(x):
    rows = []
    for row in x:
        rows.append([row, row + 1])
    return list(itertools.chain.from_iterable(rows))


@program
def l_accum(x):
    return list(itertools.accumulate(x))


@program
def l_sumlists(x):
    rows = []
    for row in x:
        rows = rows + [row]
    return torch.stack(sum([rows, rows], []))


@program
def l_in(x):
    out = []
    for v in x.argmax(1).tolist():
        if v not in out:
            out.append(v)
    return out


@program
def l_zip_self(x):
    rows = []
    for row in x:
        rows.append(row)
    return [a - b for a, b in zip(rows[1:], rows[:-1])]


@program
def l_last(x):
    rows = [x[0]]
    for row in x[1:]:
        rows.append(rows[-1] * 0.5 + row)
    return torch.stack(rows)


@program
def l_two_back(x):
    rows = [x[0], x[0]]
    for row in x:
        rows.append(rows[-1] + rows[-2])
    return rows[-1]


@program
def l_unpack(x):
    rows = []
    for row in x:
        rows.append(row)
    first, *rest = rows
    return first, rest


@program
def l_join_str(x):
    rows = []
    for i in range(x.shape[0]):
        rows.append(str(i))
    return ",".join(rows)


@program
def l_any_all(x):
    rows = []
    for row in x:
        rows.append(row.sum().item() > 0)
    return any(rows), all(rows), sum(rows)


@program
def l_namedtuple(x):
    rows = []
    for i, row in enumerate(x):
        rows.append(Pair(i, row))
    return rows


def add(rows, x):
    for row in x:
        rows.append(row)


@program
def a_len(x):
    rows = []
    add(rows, x)
    return len(rows) * x.sum()


@program
def a_truth(x):
    rows = []
    add(rows, x)
    if rows:
        return x * 2
    return x


@program
def a_stack(x):
    rows = []
    add(rows, x)
    return torch.stack(rows)


@program
def a_attr(x):
    class A:
        pass

    a = A()
    a.rows = []
    rows = a.rows
    for row in x:
        rows.append(row)
    return len(a.rows) * x


@program
def a_attr2(x):
    class A:
        pass

    a = A()
    a.rows = []
    for row in x:
        a.rows.append(row)
    return len(a.rows) * x


@program
def a_tuple(x):
    rows = []
    t = (rows, 1)
    for row in x:
        rows.append(row)
    return len(t[0]) * x


@program
def a_copyvar(x):
    d = {"rows": []}
    rows = d["rows"]
    for row in x:
        rows.append(row)
    return len(d["rows"]) * x, torch.stack(d["rows"])


@program
def a_dict(x):
    d = {"rows": []}
    for row in x:
        d["rows"].append(row)
    return len(d["rows"]) * x, torch.stack(d["rows"])


@program
def m1(x):
    t = 0.0
    for row in x:
        t += row.sum()
    return t


@program
def m2(x):
    t = 0.0
    u = 0
    for row in x:
        t += row.sum()
        u = t
    return t, u


@program
def t_added_to_rows(x):
    rows = []
    for row in x:
        rows.append([row.sum(), row.max()])
    total = x.new_zeros(())
    for row in rows:
        if row:
            total = total + sum(row)
        total = total + (row + [total])[-1]
    return total, torch.stack([total] * 2)
