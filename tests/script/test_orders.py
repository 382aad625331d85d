"""`sorted` with a key: the key is compiled, for an item, as a body of the node."""

from __future__ import annotations

from typing import List, Tuple

import torch
from tests.script.checking import check


def by_a_product(x):  # type: ignore[no-untyped-def]
    rows, scale = [x[0], x[1], x[2]], x.mean()
    rows = sorted(rows, key=lambda row: (row * scale).sum(), reverse=True)
    return rows[0] - rows[-1]


def the_two_best(x):  # type: ignore[no-untyped-def]
    found: List[Tuple[float, int]] = []
    for i, row in enumerate(x.detach()):
        found.append((float(row.sum()), i))
    best = sorted(found, key=lambda pair: -pair[0])[:2]
    return x[best[0][1]] * best[1][0]


def with_a_named_key(x, n: int):  # type: ignore[no-untyped-def]
    def far(i: int) -> int:
        if i > n:
            return i - n
        return n - i

    return x + sorted([1, 5, 3, n], key=far)[0]


def test_keys_are_compiled() -> None:
    inputs = [(torch.randn(3, 2),) for _ in range(5)]
    check(by_a_product, inputs)
    check(the_two_best, inputs)
    check(with_a_named_key, [(torch.ones(2), n) for n in (0, 3, 9)])
