"""Random programs that fill lists, dicts, sets, deques, heaps and counters in loops and on sides of branches.

Numbers, tensors, texts and tuples go in; branches and loops are on data, sizes and on what the containers hold. Many of
them raise on some inputs, and some on all.
"""

from __future__ import annotations

import collections
import heapq
import linecache
import random
import re
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["random_program"]

_VALUES = [
    "i", "n", "i + n", "x[0, 0].item()", "float(x.sum())", "x.sum()", "x[i % 2]", "x.shape[0]", "'k'", "(i, n)", "None",
    "acc",
]  # fmt: skip
_NUMBERS = ["i", "n", "i % 2", "i + 1", "n - i", "x.shape[0]"]
_KEYS = ["i", "n", "i % 2", "'a'", "'b'", "(i, 1)", "str(i)", "int(x.sum() > 0)", "f'{i}'"]
_CONDITIONS = [
    "x.sum() > 0", "i % 2 == 0", "x[i % 2, 0] > 0", "i > n - 2", "len(c) > 1", "bool(c)", "x.mean() * i > 0.1",
    "acc.sum() > 1", "n > 2",
]  # fmt: skip
_LOOPS = [
    "for i in range(n):", "for i in range(x.shape[0]):", "while i < n and x.sum() * i < 6:",
    "for i, row in enumerate(x):", "for i in range(3):", "while (x * i).sum() < 4 and i < 5:",
]  # fmt: skip
# What a container starts as, and statements; V, N and K stand for any value, number and key.
_CONTAINERS: dict[str, tuple[list[str], list[str]]] = {
    "list": (
        ["[]", "[x]", "[0]"],
        [
            "c.append(V)", "c.extend([V, V])", "c.insert(N % 2, V)", "c.pop() if c else None", "c.reverse()",
            "c[0:1] = [V]", "c += [V]", "c = c + [V]", "c = c[::-1]", "c.clear()", "c[-1] = V", "del c[0]",
            "d = list(c)", "acc = acc + len(c)", "c = [e for e in c]", "c *= 2", "c.remove(c[0])", "d = c",
            "acc = acc + c.count(c[0])", "acc = acc + (0 if V in [1, 2] else 1)",
        ],
    ),
    "dict": (
        ["{}", "{'a': x}"],
        [
            "c[K] = V", "c.setdefault(K, V)", "c.pop(K, None)", "c.update({K: V})", "acc = acc + len(c)",
            "c = dict(c)", "d = list(c)", "d = [*c.values()]", "c.pop(K)", "c |= {K: V}",
            "acc = acc + (1 if K in c else 0)", "c = {k: v for k, v in c.items()}", "c.popitem()", "d = c.get(K)",
            "d = sorted(map(str, c))", "del c[K]", "d = next(iter(c), None)",
        ],
    ),
    "set": (
        ["set()", "{1}"],
        [
            "c.add(K)", "c.discard(K)", "c.remove(K)", "c |= {K}", "c &= {0, 1, K}", "acc = acc + len(c)",
            "c = c | {K}", "d = sorted(map(str, c))", "c ^= {K}", "c.update([K, 7])", "acc = acc + (K in c)",
            "c.clear()", "d = c.copy()",
        ],
    ),
    "deque": (
        ["collections.deque()", "collections.deque([x])", "collections.deque([1, 2], maxlen=3)"],
        [
            "c.append(V)", "c.appendleft(V)", "c.pop()", "c.popleft()", "c.rotate(N)", "c.extend([V])",
            "d = list(c)", "acc = acc + len(c)", "c[0] = V", "c.clear()", "c.extendleft([V, V])",
        ],
    ),
    "heap": (
        ["[]", "[2]"],
        [
            "heapq.heappush(c, N)", "d = heapq.heappop(c) if c else 0", "d = heapq.heappushpop(c, N)",
            "acc = acc + len(c)", "acc = acc + (c[0] if c else 5)", "heapq.heappush(c, float(x[i % 2, 0]))",
            "heapq.heapify(c)", "d = heapq.nsmallest(1, c)",
        ],
    ),
    "defaultdict": (
        ["collections.defaultdict(list)"],
        [
            "c[K].append(V)", "acc = acc + len(c[K])", "d = list(c)", "c.pop(K, None)",
            "d = {k: len(v) for k, v in c.items()}", "c[K] = [V]",
        ],
    ),
    "counter": (
        ["collections.Counter()"],
        [
            "c[K] += 1", "c.update([K])", "d = c.most_common(1)", "acc = acc + c[K]", "c.subtract([K])",
            "d = sorted(map(str, c.elements()))",
        ],
    ),
}  # fmt: skip


def random_program(seed: int) -> Callable[..., Any]:
    """Make a function of a tensor `x` of shape (n, 3) and an integer `n`."""
    source, name = _text(random.Random(seed)), f"random_containers_{seed}.py"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"torch": torch, "collections": collections, "heapq": heapq}
    exec(compile(source, name, "exec"), namespace)
    return namespace["program"]  # type: ignore[no-any-return]


def _text(draw: random.Random) -> str:
    starts, statements = _CONTAINERS[draw.choice(["list", "dict", *_CONTAINERS])]
    lines = ["def program(x, n: int):", f"    c, d, acc, i = {draw.choice(starts)}, None, x.sum() * 0, 0"]
    lines += _block(draw, statements, 1, draw.randint(0, 2))
    loop = draw.choice(_LOOPS)
    lines += [f"    {loop}", *["        i = i + 1"] * loop.startswith("while")]
    lines += _block(draw, statements, 2, draw.randint(1, 4))
    if draw.random() < 0.25:
        lines += [f"        if {draw.choice(_CONDITIONS)}:", f"            {draw.choice(['break', 'continue'])}"]
    if lines[-1] == f"    {loop}":
        lines.append("        pass")
    lines += _block(draw, statements, 1, draw.randint(0, 2))
    return "\n".join([*lines, f"    return {draw.choice(['c, d, acc', 'c, acc', 'acc, len(c)', 'd, acc, c'])}", ""])


def _block(draw: random.Random, statements: list[str], depth: int, count: int) -> list[str]:
    lines, indent = [], "    " * depth
    for _ in range(count):
        if depth < 4 and draw.random() < 0.22:
            lines += [f"{indent}if {draw.choice(_CONDITIONS)}:"]
            lines += _block(draw, statements, depth + 1, draw.randint(1, 2))
            if draw.random() < 0.5:
                lines += [f"{indent}else:", *_block(draw, statements, depth + 1, draw.randint(1, 2))]
        else:
            lines.append(indent + _filled(draw, draw.choice(statements)))
    return lines


def _filled(draw: random.Random, statement: str) -> str:
    parts = {"V": _VALUES, "N": _NUMBERS, "K": _KEYS}
    return re.sub(r"\b[VNK]\b", lambda found: draw.choice(parts[found[0]]), statement)
