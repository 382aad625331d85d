"""Programs whose loops fill dicts, with keys that only a run knows."""

# ruff: noqa: B007, B905
from __future__ import annotations

from collections import OrderedDict, defaultdict

import torch

PROGRAMS = []


def program(function):
    """Have a function checked."""
    PROGRAMS.append(function)
    return function


@program
def d_new_int(x):
    d = {}
    for i, row in enumerate(x):
        d[i] = row * 2
    return d


@program
def d_new_str(x):
    d = {}
    for i, row in enumerate(x):
        d[f"row{i}"] = row * 2
    return d


@program
def d_new_str2(x):
    d = {}
    for i in range(x.shape[0]):
        d["row" + str(i)] = x[i] * 2
    return d


@program
def d_range(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i].sum()
    return sum(d.values()), len(d)


@program
def d_read(x):
    d = {0: x[0]}
    for i in range(1, x.shape[0]):
        d[i] = d[i - 1] + x[i]
    return d[len(x) - 1]


@program
def d_memo(x):
    d = {}
    total = x[0] * 0
    for i in range(x.shape[0]):
        k = i % 2
        if k not in d:
            d[k] = x[i]
        else:
            d[k] = d[k] + x[i]
        total = total + d[k]
    return total, d


@program
def d_setdefault(x):
    d = {}
    for i in range(x.shape[0]):
        d.setdefault(i // 2, x[i])
    return d


@program
def d_setdefault_list(x):
    d = {}
    for i in range(x.shape[0]):
        d.setdefault(i // 2, []).append(x[i])
    return d


@program
def d_get(x):
    d = {}
    for i in range(x.shape[0]):
        d[i % 3] = d.get(i % 3, 0) + x[i].sum()
    return d


@program
def d_get_counts(x):
    d = {}
    for v in x.argmax(1).tolist():
        d[v] = d.get(v, 0) + 1
    return d


@program
def d_pop(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
        if i >= 2:
            d.pop(i - 2)
    return d


@program
def d_del(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
        if i >= 2:
            del d[i - 2]
    return d


@program
def d_pop_default(x):
    d = {}
    t = x[0] * 0
    for i in range(x.shape[0]):
        d[i] = x[i]
        v = d.pop(i - 2, None)
        if v is not None:
            t = t + v
    return d, t


@program
def d_update(x):
    d = {}
    for i in range(x.shape[0]):
        d.update({i: x[i] + 1})
    return d


@program
def d_update_str(x):
    d = {"a": x[0]}
    for i in range(x.shape[0]):
        d.update({f"k{i}": x[i] + 1})
    return d


@program
def d_while(x):
    d = {}
    i = 0
    while x.sum() > 1:
        d[i] = x
        x = x / 2
        i += 1
    return d, x


@program
def d_while_values(x):
    d = {}
    while x.sum() > 1:
        d[len(d)] = x
        x = x / 2
    return torch.stack(list(d.values()) + [x])


@program
def d_items(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i].sum()
    t = 0.0
    for k, v in d.items():
        t = t + k * v
    return t


@program
def d_fixed_keys(x):
    d = {"a": x[0], "b": x[0]}
    for i in range(x.shape[0]):
        d["a"] = d["a"] + x[i]
        d["b"] = d["b"] * 2
    return d


@program
def d_fixed_new(x):
    d = {}
    for i in range(x.shape[0]):
        d["a"] = x[i]
        d["b"] = x[i] * 2
    return d


@program
def d_data_key(x):
    d = {}
    for i, v in enumerate(x.argmax(1)):
        d[v.item()] = x[i]
    return d


@program
def d_data_key_list(x):
    d = {}
    for i, v in enumerate(x.argmax(1).tolist()):
        if v not in d:
            d[v] = []
        d[v].append(x[i])
    return {k: torch.stack(v) for k, v in d.items()}


@program
def d_tuple_key(x):
    d = {}
    for i in range(x.shape[0]):
        d[i, i + 1] = x[i]
    return d


@program
def d_nested(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = {"x": x[i], "y": x[i] * 2}
    return d


@program
def d_nested_growing(x):
    d = {"out": {}}
    for i in range(x.shape[0]):
        d["out"][i] = x[i]
    return d


@program
def d_cond(x):
    d = {}
    for i, row in enumerate(x):
        if row.sum() > 0:
            d[i] = row
    return d


@program
def d_list_values(x):
    d = {"a": [], "b": []}
    for i, row in enumerate(x):
        d["a"].append(row)
        d["b"].append(row.sum())
    return d


@program
def d_in_tests(x):
    seen = {}
    out = []
    for v in x.argmax(1).tolist():
        if v in seen:
            out.append(seen[v])
        else:
            seen[v] = len(seen)
            out.append(seen[v])
    return torch.tensor(out)


@program
def d_popitem(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    k, v = d.popitem()
    return k, v, len(d)


@program
def d_copy(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    e = dict(d)
    e[-1] = x[0]
    f = d.copy()
    f[-2] = x[0]
    return d, e, f, {**d, 7: x[0]}


@program
def d_or(x):
    d = {}
    for i in range(x.shape[0]):
        d |= {i: x[i]}
    return d


@program
def d_keys_sorted(x):
    d = {}
    for i in range(x.shape[0]):
        d[-i] = x[i]
    return [d[k] for k in sorted(d)], list(d), list(d.keys())


@program
def d_max_key(x):
    d = {}
    for v in x.argmax(1).tolist():
        d[v] = d.get(v, 0) + 1
    return max(d, key=d.get)


@program
def d_max_key2(x):
    d = {}
    for v in x.argmax(1).tolist():
        d[v] = d.get(v, 0) + 1
    return sorted(d.items(), key=lambda kv: (-kv[1], kv[0]))[0]


@program
def d_clear(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
        if len(d) == 3:
            d.clear()
    return d


@program
def d_ordered(x):
    d = OrderedDict()
    for i in range(x.shape[0]):
        d[f"rows{i}"] = x[i]
    return d


@program
def d_in_after(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    if 4 in d:
        return d[4]
    return d[0]


@program
def d_mixed(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i] if i % 2 == 0 else float(i)
    return d


@program
def d_before(x):
    d = {"start": x[0]}
    for i in range(x.shape[0]):
        d[f"k{i}"] = x[i]
    return d


@program
def d_inner(x):
    d = {}
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            d[i, j] = x[i, j]
    return d


@program
def d_eq(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = i
    return x * 2 if d == {0: 0, 1: 1, 2: 2} else x


@program
def dd_list(x):
    d = defaultdict(list)
    for i, row in enumerate(x):
        d[i % 2].append(row)
    return d


@program
def dd_list_data(x):
    d = defaultdict(list)
    for v, row in zip(x.argmax(1).tolist(), x):
        d[v].append(row)
    return {k: torch.stack(v) for k, v in d.items()}


@program
def dd_int(x):
    d = defaultdict(int)
    for v in x.argmax(1).tolist():
        d[v] += 1
    return d


@program
def dd_float(x):
    d = defaultdict(float)
    for i in range(x.shape[0]):
        d[i % 2] += x[i].sum()
    return d


@program
def dd_fixed(x):
    d = defaultdict(list)
    for row in x:
        d["rows"].append(row)
        d["sums"].append(row.sum())
    return d


@program
def dd_while(x):
    d = defaultdict(list)
    while x.sum() > 1:
        d["h"].append(x)
        x = x / 2
    return d, x


@program
def dd_lambda(x):
    d = defaultdict(lambda: torch.zeros(x.shape[1]))
    for i, row in enumerate(x):
        d[i % 2] = d[i % 2] + row
    return dict(d)


@program
def d_items_that_are_dicts(x):
    rows = []
    for row in x:
        rows.append({"sum": row.sum(), "max": row.max()})
    total = x.new_zeros(())
    for row in rows:
        for value in row.values():
            total = total + value
        if "sum" in row:
            total = total + row.get("max", total)
    return total
