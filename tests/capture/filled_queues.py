"""Programs whose loops fill deques, counters, sets and heaps, or make texts."""

# ruff: noqa: B007, B905, C416, UP031
from __future__ import annotations

import copy
import heapq
from collections import Counter, defaultdict, deque

import torch

PROGRAMS = []


def program(function):
    """Have a function checked."""
    PROGRAMS.append(function)
    return function


@program
def q_append(x):
    q = deque()
    for row in x:
        q.append(row * 2)
    return list(q)


@program
def q_ret(x):
    q = deque()
    for row in x:
        q.append(row * 2)
    return q


@program
def q_appendleft(x):
    q = deque()
    for row in x:
        q.appendleft(row)
    return torch.stack(list(q))


@program
def q_maxlen(x):
    q = deque(maxlen=2)
    out = []
    for row in x:
        q.append(row)
        out.append(sum(q))
    return torch.stack(out), len(q)


@program
def q_maxlen_stack(x):
    q = deque([x[0]] * 3, maxlen=3)
    out = []
    for row in x:
        q.append(row)
        out.append(torch.stack(list(q)).mean(0))
    return torch.stack(out)


@program
def q_pop(x):
    q = deque()
    t = x[0] * 0
    for row in x:
        q.append(row)
        if len(q) > 2:
            t = t + q.popleft()
    return t, len(q)


@program
def q_bfs(x):
    q = deque([0])
    seen = []
    while q:
        i = q.popleft()
        seen.append(i)
        for j in (2 * i + 1, 2 * i + 2):
            if j < x.shape[0]:
                q.append(j)
    return x[torch.tensor(seen)]


@program
def q_index(x):
    q = deque([x[0], x[0]])
    for row in x:
        q.append(q[-1] + row)
        q.popleft()
    return q[0], q[1]


@program
def q_while(x):
    q = deque()
    while x.sum() > 1:
        q.append(x)
        x = x / 2
    while len(q) > 0:
        x = x + q.pop()
    return x


@program
def q_extend(x):
    q = deque()
    for row in x:
        q.extend([row, row + 1])
        q.extendleft([row])
    return list(q)


@program
def q_rotate(x):
    q = deque([x[0], x[0] + 1, x[0] + 2])
    for row in x:
        q.rotate(1)
        q[0] = q[0] + row
    return list(q)


@program
def q_iter(x):
    q = deque()
    for row in x:
        q.append(row)
    t = 0
    for r in q:
        t = t + r
    return t, len(q)


@program
def c_update(x):
    c = Counter()
    for v in x.argmax(1).tolist():
        c[v] += 1
    return c


@program
def c_direct(x):
    c = Counter(x.argmax(1).tolist())
    return c


@program
def c_most(x):
    c = Counter(x.argmax(1).tolist())
    return c.most_common(1)[0][0]


@program
def c_upd(x):
    c = Counter()
    for row in x:
        c.update([row.argmax().item()])
    return c


@program
def c_fixed(x):
    c = Counter()
    for i in range(x.shape[0]):
        c["n"] += 1
        c["m"] += 2
    return c


@program
def s_add(x):
    s = set()
    for v in x.argmax(1).tolist():
        s.add(v)
    return s, len(s)


@program
def s_seen(x):
    s = set()
    out = []
    for i, v in enumerate(x.argmax(1).tolist()):
        if v not in s:
            s.add(v)
            out.append(x[i])
    return torch.stack(out)


@program
def s_index(x):
    s = set()
    for i in range(x.shape[0]):
        s.add(i)
    return s


@program
def s_discard(x):
    s = set(range(5))
    for i in range(x.shape[0]):
        s.discard(i)
    return s


@program
def s_while(x):
    s = set()
    while x.sum() > 1:
        s.add(len(s))
        x = x / 2
    return s, x


@program
def s_update(x):
    s = set()
    for v in x.argmax(1).tolist():
        s.update([v, v + 1])
        s |= {v + 2}
    return s


@program
def s_sorted(x):
    s = set()
    for v in x.argmax(1).tolist():
        s.add(v)
    return torch.tensor(sorted(s))


@program
def h_numbers(x):
    h = []
    for row in x:
        heapq.heappush(h, row.sum().item())
    return [heapq.heappop(h) for _ in range(2)]


@program
def h_tuples(x):
    h = []
    for i, row in enumerate(x):
        heapq.heappush(h, (row.sum().item(), i, row))
    return heapq.heappop(h)[2]


@program
def h_topk(x):
    h = []
    for i, row in enumerate(x):
        heapq.heappush(h, (row.sum().item(), i))
        if len(h) > 2:
            heapq.heappop(h)
    return x[torch.tensor([i for _, i in h])]


@program
def h_while(x):
    h = [(0.0, 0)]
    out = []
    while h:
        d, i = heapq.heappop(h)
        out.append(i)
        if i + 1 < x.shape[0]:
            heapq.heappush(h, (d + x[i].sum().item(), i + 1))
    return x[torch.tensor(out)]


@program
def h_pushpop(x):
    h = [0.0, 0.0]
    for row in x:
        heapq.heappushpop(h, row.sum().item())
    return h


@program
def h_nlargest(x):
    h = []
    for row in x:
        h.append(row.sum().item())
    return heapq.nlargest(2, h)


@program
def h_tensor(x):
    h = []
    for row in x:
        heapq.heappush(h, row.sum())
    return heapq.heappop(h)


@program
def h_ints(x):
    h = []
    for i in range(x.shape[0]):
        heapq.heappush(h, -i)
    return h


@program
def t_dict_in_list(x):
    out = []
    for i, row in enumerate(x):
        out.append({i: row})
    return out


@program
def t_string_dict_mod(x):
    d = {}
    for i in range(x.shape[0]):
        name = f"layer{i}"
        if name != "layer0":
            d[name.upper()] = x[i]
    return d


@program
def t_string_fmt(x):
    d = {}
    for i in range(x.shape[0]):
        d["{}_{:03d}".format("w", i)] = x[i]
        d[f"{i:02d}!"] = x[i]
        d["a" + str(i) + "b"] = x[i]
    return d


@program
def t_string_join(x):
    names = []
    for i in range(x.shape[0]):
        names.append(f"n{i}")
    return "-".join(names), names[0], len(names[-1])


@program
def t_string_percent(x):
    names = []
    for i in range(x.shape[0]):
        names.append("n%d" % i)
    return names


@program
def t_string_last(x):
    name = "none"
    for i in range(x.shape[0]):
        name = f"n{i}"
    return name


@program
def t_string_in(x):
    d = {"k1": x[0]}
    t = x[0] * 0
    for i in range(x.shape[0]):
        if f"k{i}" in d:
            t = t + d[f"k{i}"]
    return t


@program
def t_string_float(x):
    d = {}
    for v in x[:, 0].tolist():
        d[f"{v:.2f}"] = v
    return d


@program
def t_deque_window(x):
    q = deque(maxlen=3)
    outs = []
    for row in x:
        q.append(row)
        outs.append(torch.stack(list(q)).mean(0))
    return torch.stack(outs), q.maxlen


@program
def t_deque_bfs(x):
    n = x.shape[0]
    q = deque([0])
    seen = {0}
    order = []
    while q:
        i = q.popleft()
        order.append(i)
        for j in range(n):
            if j not in seen and x[i, j % 3] > 0.2:
                seen.add(j)
                q.append(j)
    return order


@program
def t_deque_ops(x):
    q = deque()
    for row in x:
        q.append(row)
        q.appendleft(row * 2)
        if len(q) > 3:
            q.rotate(1)
            q.pop()
    q.reverse()
    return list(q), q[0], len(q)


@program
def t_deque_tuple(x):
    q = deque()
    for i, row in enumerate(x):
        q.append((i, row))
    t = 0
    while q:
        i, row = q.popleft()
        t = t + i * row
    return t


@program
def t_deque_in(x):
    q = deque()
    for i in range(x.shape[0]):
        q.append(i)
    return 2 in q, q.count(1), q.index(0)


@program
def t_counter_ops(x):
    c = Counter()
    for v in x.argmax(1).tolist():
        c[v] += 1
    return c.most_common(2), sum(c.values()), c[7], len(c), max(c, key=c.get), sorted(c.elements()), c.total()


@program
def t_counter_list(x):
    c = Counter(x.argmax(1).tolist())
    d = dict(c)
    return c, d


@program
def t_set_ops(x):
    a = set()
    for v in x.argmax(1).tolist():
        a.add(v)
        a.discard(0)
    return sorted(a), 1 in a, len(a)


@program
def t_set_pop(x):
    a = set()
    for v in x.argmax(1).tolist():
        a.add(v)
    n = 0
    while a:
        a.pop()
        n += 1
    return n


@program
def t_set_algebra(x):
    a = set()
    b = set()
    for v in x.argmax(1).tolist():
        a.add(v)
        b.add(v + 1)
    return sorted(a & b), sorted(a | b), a <= b


@program
def t_set_plain_ior(x):
    a = {5}
    a |= {v for v in x.argmax(1).tolist()}
    return a


@program
def t_set_union(x):
    return {5}.union(set(x.argmax(1).tolist())), {1} & set(x.argmax(1).tolist())


@program
def t_heap_dijkstra(x):
    n = x.shape[0]
    dist = {0: 0.0}
    h = [(0.0, 0)]
    while h:
        d, i = heapq.heappop(h)
        if d > dist[i]:
            continue
        for j in range(n):
            nd = d + float(x[i, j % 3].abs()) + 0.1
            if j not in dist or nd < dist[j]:
                dist[j] = nd
                heapq.heappush(h, (nd, j))
    return dist


@program
def t_heap_beam(x):
    h = []
    for i, row in enumerate(x):
        s = row.sum().item()
        if len(h) < 2:
            heapq.heappush(h, (s, i, row))
        else:
            heapq.heappushpop(h, (s, i, row))
    return torch.stack([row for _, _, row in sorted(h, key=lambda t: t[0])])


@program
def t_heapify(x):
    h = []
    for row in x:
        h.append(row.sum().item())
    heapq.heapify(h)
    return heapq.heappop(h), heapq.nsmallest(2, h), heapq.nlargest(1, h)


@program
def t_heap_replace(x):
    h = [0.5]
    for row in x:
        heapq.heapreplace(h, row.sum().item())
    return h


@program
def t_list_method_unbound(x):
    rows = []
    for row in x:
        list.append(rows, row)
    return rows


@program
def t_list_str(x):
    rows = []
    for i in range(x.shape[0]):
        rows.append(i)
    return str(rows), f"{rows}", repr(rows)


@program
def t_list_eq(x):
    rows = []
    for i in range(x.shape[0]):
        rows.append(i)
    return x * 2 if rows == [0, 1, 2] else x


@program
def t_type_asks(x):
    rows = []
    d = {}
    s = set()
    q = deque()
    dd = defaultdict(list)
    t = ()
    for i in range(x.shape[0]):
        rows.append(i)
        d[i] = i
        s.add(i)
        q.append(i)
        dd[i].append(i)
        t = t + (i,)
    return (
        type(rows) is list,
        type(d) is dict,
        type(s) is set,
        type(q) is deque,
        type(dd) is defaultdict,
        isinstance(q, list),
        isinstance(dd, dict),
        isinstance(s, set),
        isinstance(d, defaultdict),
        type(t) is tuple,
        isinstance(s, (list, dict)),
    )


@program
def t_copy_mod(x):
    d = {}
    for i in range(x.shape[0]):
        d[i] = x[i]
    e = copy.copy(d)
    e[7] = x[0]
    return d, e


@program
def t_dict_from_list(x):
    rows = []
    for i, row in enumerate(x):
        rows.append((i, row))
    return dict(rows)


@program
def t_list_mult(x):
    rows = []
    for i in range(x.shape[0]):
        rows += [i] * i
    return rows, [0] * x.shape[0]


@program
def t_list_table_index(x):
    w = [1.0, 2.0, 3.0]
    t = 0
    for i in range(x.shape[0]):
        t = t + w[i % 3] * x[i]
    return t


@program
def t_dict_table_index(x):
    w = {0: 1.0, 1: 2.0, 2: 3.0}
    t = 0
    for i in range(x.shape[0]):
        t = t + w[i % 3] * x[i]
    return t


@program
def t_lists_by_index(x):
    out = [[], [], []]
    for i, row in enumerate(x):
        out[i % 3].append(row)
    return out, [len(o) for o in out]


@program
def t_lists_by_data(x):
    out = [[], [], []]
    for k, row in zip(x.argmax(1).tolist(), x):
        out[k].append(row)
    return [torch.stack(o).sum(0) if len(o) > 0 else x[0] * 0 for o in out]


@program
def t_matrix(x):
    n = x.shape[0]
    m = [[0.0] * 3 for _ in range(3)]
    for i in range(n):
        for j in range(3):
            m[i % 3][j] = m[i % 3][j] + x[i, j].item()
    return m


@program
def t_dp(x):
    n = x.shape[0]
    dp = [0.0] * (n + 1)
    for i in range(1, n + 1):
        dp[i] = max(dp[i - 1], x[i - 1].sum().item())
    return dp
