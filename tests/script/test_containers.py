"""Containers of the standard library, orders with keys, and displays with `*`, in scripted programs."""

# ruff: noqa: B905, C419
from __future__ import annotations

import collections
import dataclasses
import heapq
import numbers
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, DefaultDict, Deque, Dict, List, Tuple

import pytest
import torch
from tests.script.checking import check
from torch import Tensor, nn

from graphwright import ScriptError, script

X = torch.arange(6.0).reshape(2, 3) - 2
PROGRAMS: list[tuple[Any, Any]] = []


def program(*inputs: Any) -> Any:
    """Have a function checked on inputs."""

    def add(function: Any) -> Any:
        PROGRAMS.append((function, inputs))
        return function

    return add


def neg(a: int):
    return -a


@program((X,))
def deque1(x):
    q = deque()
    for i in range(x.shape[0]):
        q.append(x[i])
    return list(q)


@program((X, 3), (X, 1))
def deque2(x, n: int):
    q = deque(maxlen=2)
    for i in range(n):
        q.append(x * i)
    q.appendleft(x)
    return q.popleft(), len(q), q[0]


@program((X, 3), (X, 1))
def deque3(x, n: int):
    q: Deque[Tensor] = collections.deque([x])
    t = x
    while q:
        t = t + q.pop()
    return t


@program(([1, 2, 1],), ([],))
def dd1(v: List[int]):
    d = defaultdict(int)
    for i in v:
        d[i] += 1
    return d


@program(([1, 2, 1],), ([],))
def dd2(v: List[int]):
    d = defaultdict(list)
    for i in v:
        d[i].append(i * 2)
    return dict(d), len(d)


@program(([1, 2, 1],), ([],))
def dd3(v: List[int]):
    d: DefaultDict[int, List[int]] = defaultdict(list)
    for i in v:
        d[i].append(i * 2)
    return d


@program(([1, 2, 1],), ([],))
def counter1(v: List[int]):
    c = Counter()
    for i in v:
        c[i] += 1
    return c


@program(([1, 2, 1],), ([4],))
def counter2(v: List[int]):
    c = Counter(v)
    return c.most_common(1)[0], sum(c.values())


@program(([1, 2, 1],), ([],))
def ordered(v: List[int]):
    c = OrderedDict()
    for i in v:
        c[i] = i
    return c


@program(([3, -5, 1],), ([4],))
def max_key(v: List[int]):
    return max(v, key=lambda a: -a), min(v, key=abs), sorted(v, key=lambda a: a * a, reverse=True)


@program(([3, -5, 1],), ([4],))
def max_key_fn(v: List[int]):
    return max(v, key=neg), sorted(v, key=neg)


@program(([3, -5, 1],), ([],))
def sort_key(v: List[int]):
    v = v[:]
    v.sort(key=lambda a: -a)
    v.sort(reverse=True)
    return v


@program(
    ([X, X[:1]],),
)
def sort_tensors(v: List[Tensor]):
    return sorted(v, key=lambda t: t.shape[0]), max(v, key=lambda t: float(t.sum()))


@program(([3, -5, 1],), ([],))
def comp_dict(v: List[int]):
    return {a: [b for b in range(a)] for a in v if a > 0}, {a % 2 for a in v}, {str(a): {a: 1.0} for a in v}


@program(
    (X, 3),
)
def isinst(x, n: int):
    return (
        isinstance(x, (int, Tensor)),
        isinstance(n, (float, int)),
        isinstance(n, float),
        isinstance(x, torch.Tensor),
        isinstance([n], list),
        isinstance((n, x), tuple),
        isinstance(None, type(None)),
    )


@program(
    ((1, 2.0, X),),
)
def tuples(t: Tuple[int, float, Tensor]):
    a, b, c = t
    return t[0], t[-1], t[:2], t[1:], a + b, len(t), (a,) + t, t + (1,)


@program(
    ([3.0, 1.0],),
)
def heaps(v: List[float]):
    h: List[float] = []
    for a in v:
        heapq.heappush(h, a)
    return heapq.heappop(h), len(h)


@program(
    ({"a": 1, "b": 2},),
)
def dict_methods(d: Dict[str, int]):
    d = dict(d)
    d["c"] = 3
    d.setdefault("z", 9)
    d.update({"q": 4})
    x = d.pop("a")
    y = d.get("nope", -1)
    z = d.get("b")
    w = "c" in d
    n = len(d)
    del d["c"]
    s = 0
    for k in d:
        s += d[k]
    for k, v in d.items():
        s += v
    return (
        d,
        x,
        y,
        z,
        w,
        n,
        s,
        sorted(d),
        list(d.keys()),
        list(d.values()),
        max(d.values()),
        d.copy(),
        {**d, "n": 1},
        d == {"a": 1},
        dict(zip(["a"], [1])),
        list(d.items()),
    )


@program(
    ([3, 1, 2], [0.5, 0.1, 0.7, 0.2]),
)
def key_closes(v: List[int], w: List[float]):
    return sorted(v, key=lambda i: w[i]), max(v, key=lambda i: w[i]), min(v, key=lambda i: -w[i])


@program(([],), ([3],))
def max_default_key(v: List[int]):
    return max(v, default=7, key=abs)


@program(
    (X, X + 1),
)
def max_args_key(a, b):
    return max(a, b, key=lambda t: t.sum())


@program(
    ([3, 1, 2],),
)
def sort_alias(v: List[int]):
    a = v[:]
    b = a
    a.sort(key=lambda i: -i)
    return b


@program(
    ([("a", 1), ("b", 0)],),
)
def sort_pairs(v: List[Tuple[str, int]]):
    return sorted(v, key=lambda q: q[1]), max(v, key=lambda q: (q[1], q[0])), [a for a, _ in v]


@program((deque([X]),), (deque(),))
def deque_arg(q: Deque[Tensor]):
    t = torch.zeros(())
    for x in q:
        t = t + x.sum()
    q.append(torch.ones(1))
    return t, len(q)


@program(
    (deque([1]), [1]),
)
def deque_isinst(q: Deque[int], v: List[int]):
    return isinstance(q, list), isinstance(q, deque), isinstance(v, list), isinstance(v, deque)


@program(
    ([1],),
)
def dict_isinst(v: List[int]):
    d = defaultdict(int)
    o = OrderedDict()
    c = Counter(v)
    return (
        isinstance(d, dict),
        isinstance(d, defaultdict),
        isinstance(o, defaultdict),
        isinstance(o, OrderedDict),
        isinstance(c, Counter),
        isinstance(c, dict),
    )


@program(
    (X,),
)
def dd_tensor(x):
    d = defaultdict(list)
    for i in range(x.shape[0]):
        d[i % 2].append(x[i])
        d[5]
    return {k: len(v) for k, v in d.items()}, d


@program((3,), (0,))
def dd_nested(n: int):
    d = defaultdict(dict)
    for i in range(n):
        d[i % 2][i] = i * 2
    return d


@program((3,), (0,))
def dq_maxlen(n: int):
    q = deque([0, 1], maxlen=2)
    for i in range(n):
        q.append(i)
        q.extend([5])
        q.rotate(1)
    q.extendleft([7])
    return q, 7 in q, q.count(5), sum(q), max(q), sorted(q), [a for a in q]


@program((3,), (0,))
def dq_return(n: int):
    q = deque()
    q.append(n)
    return q


@program((True,), (False,))
def dq_branch(b: bool):
    q = deque([1])
    if b:
        q = deque([2, 3])
    return q


@program(
    ([1, 2, 2, 3, 3, 3],),
)
def cnt(v: List[int]):
    c = Counter(v)
    c[7] += 2
    c.update([7, 1])
    t = 0
    for k, n in c.items():
        t += k * n
    return c.most_common(2), c[99], c.total(), t, [k for k, _ in c.most_common()], list(c.elements())


@program(
    (["a", "b"],),
)
def cnt_str(v: List[str]):
    c: Counter[str] = Counter()
    for s in v:
        c[s] += 1
    return c


@program(
    (2,),
)
def od(n: int):
    o: OrderedDict[str, int] = OrderedDict()
    for i in range(n):
        o[f"k{i}"] = i
    o.move_to_end("k0")
    return o, list(o), o.popitem()


@program(
    ([3.0, 1.0, 2.0],),
)
def heap2(v: List[float]):
    h = v[:]
    heapq.heapify(h)
    a = heapq.heappushpop(h, 0.5)
    b = heapq.heapreplace(h, 9.0)
    return a, b, heapq.nsmallest(2, v), heapq.nlargest(1, v), [heapq.heappop(h) for _ in range(3)]


@program(
    (4,),
)
def heap_tuples(n: int):
    h: List[Tuple[float, int]] = []
    for i in range(n):
        heapq.heappush(h, (float(-i % 3), i))
    out: List[int] = []
    while len(h) > 0:
        d, i = heapq.heappop(h)
        out.append(i)
    return out


@program(
    ([1, 2],),
)
def spreads(v: List[int]):
    return [*v, 4], [0, *v, *v, 5], [*v], [*(1, 2), 3]


@program(
    ({"a": 1}, {"a": 2, "b": 3}),
)
def spread_dicts(d: Dict[str, int], e: Dict[str, int]):
    f = {**d, **e}
    g = {"z": 0, **d, "a": 9}
    f["q"] = 1
    return f, g, {**d}, d


@program(
    ((1, 2.0), (3,)),
)
def tuple_add(a: Tuple[int, float], b: Tuple[int]):
    c = a + b
    return c, c[2], len(c), (c + c)[4]


@program((X, 3), (X, -3))
def bool_index(x, n: int):
    return [x, -x][n > 0], ("a", "b")[n > 0], [1, 2][n > 0]


@program(
    (X,),
)
def nested_comps(x):
    return (
        {i: {j: [float(x[i, k]) for k in range(j)] for j in range(2)} for i in range(x.shape[0])},
        [{i % 2: j for j in range(i)} for i in range(3)],
        {str(i): [i] for i in range(x.shape[0])},
    )


@program((X,))
def defaults(x):
    taken = {"a": 1}.pop("b", None)
    largest = max([i for i in range(x.shape[0]) if i > 5], default=None)
    return taken is None, largest is None, isinstance({"a": 1}.pop("b", 2.5), float)


@program((X,))
def kept_lists(x):
    lists = {}
    for i in range(x.shape[0]):
        lists.setdefault("all", []).append(x[i])
    lists.update({"none": [x]}, other=[x + 1])
    return lists


Pair = collections.namedtuple("Pair", "a b")


@program((X,))
def classes_of_containers(x):
    named, words = Pair(x, 2), {"a", "b"}
    return (
        isinstance(words, set), isinstance(words, frozenset), isinstance(range(3), range), isinstance(named, Pair),
        isinstance(x.max(0), Pair), isinstance(range(3), collections.abc.Sequence),
        isinstance(x.shape[0], numbers.Number), isinstance(x.dtype, collections.abc.Hashable),
        hasattr(named, "_asdict"), hasattr((1, 2), "_asdict"),
    )  # fmt: skip


@pytest.mark.parametrize(("function", "inputs"), PROGRAMS, ids=[function.__name__ for function, _ in PROGRAMS])
def test_as_in_python(function: Any, inputs: Any) -> None:
    check(function, inputs, interpret=False, gradients=False)


def maps(v: List[int]):
    return list(map(neg, v))


def filters(v: List[int]):
    return [a for a in filter(neg, v)]  # noqa: C416


def own_factory(v: List[int]):
    found = defaultdict(lambda: 3)
    for a in v:
        found[a] += 1
    return found


def slices_a_queue(v: List[int]):
    return deque(v)[1:]


def adds_unlike(v: List[int]):
    return deque(v) + [1]


def appends_unlike(v: List[int]):
    found = deque(v)
    found.append("text")
    return found


def puts_none(v: List[int]):
    kept = {"a": 1}
    kept.setdefault("b")
    return kept["b"] is None


def updates_unlike(v: List[int]):
    kept = {"a": 1}
    kept.update(b=None)
    return kept["b"] is None


def adds_none(v: List[int]):
    kept = {1}
    kept.add(None)
    return kept


def slices_unlike(v: List[int]):
    v[:1] = [None]
    return v


def appends_a_float(v: List[int]):
    v.append(2.5)
    return isinstance(v[-1], float)


@dataclasses.dataclass
class Point:
    x: Tensor
    n: int = 3


def replaces(point: Point):
    return dataclasses.replace(point, n=1).n


@pytest.mark.parametrize(
    ("function", "message", "fix"),
    [
        (maps, "map cannot be scripted", "[f(value) for value in values]"),
        (filters, "filter cannot be scripted", "[value for value in values if f(value)]"),
        (own_factory, "a defaultdict makes its values with a class of Python's here", "defaultdict(list)"),
        (slices_a_queue, "a value of type Deque[int] has no item for a slice", "list(queue)[1:]"),
        (adds_unlike, "`+` is not defined for Deque[int] and List[int]", "convert one of them"),
        (appends_unlike, "a deque of int items is given str", "annotate it"),
        (puts_none, "a dict of int items is given None", "annotate it"),
        (updates_unlike, "a dict of int items is given None", "annotate it"),
        (adds_none, "a set of int items is given None", "annotate it"),
        (slices_unlike, "an item of List[int] cannot be None", "use another container"),
        (appends_a_float, "a list of int items is given float", "annotate it"),
        (replaces, "dataclasses.replace cannot be scripted", "make another one"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_scripted_is_underlined(function: Any, message: str, fix: str) -> None:
    with pytest.raises(ScriptError) as caught:
        script(function)
    text = str(caught.value)
    assert message in text and "^" in text and fix in text


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 1


def test_a_sequential_that_is_named_as_a_leaf_is_one_node() -> None:
    whole, entered = script(Stack(), leaf_modules=["inner"]), script(Stack())
    assert [node.target for node in whole.graph.find_nodes(op="call_module")] == ["inner"]
    assert [node.target for node in entered.graph.find_nodes(op="call_module")] == ["inner.0", "inner.1"]
    assert whole(X).shape == (2, 3)
