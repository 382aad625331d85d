"""Where to cut a sequence into parts of like cost: the costliest part as small as it can be, then few values cross."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence


def balanced_cuts(costs: Sequence[float], crossing: Sequence[int], allowed: Sequence[bool], parts: int) -> list[int]:
    """Say before which elements to cut; each part has at least one element.

    `crossing[i]` is how many values would cross a cut before element i, `allowed[i]` whether there may be one. The
    largest sum of costs of a part is the least possible. Within that, each cut is near to where the rest would be cut
    evenly, at the place in that neighbourhood, a tenth of the largest sum to both sides, that the fewest values cross.
    Raises ValueError where there are too few places to cut. O(n log n).

    >>> balanced_cuts([1, 1, 4, 1, 1, 2], [0, 1, 1, 1, 1, 1], [True] * 6, 3)
    [2, 3]
    """
    places = [i for i in range(1, len(costs)) if allowed[i]]
    if len(places) < parts - 1:
        raise ValueError(f"there are {len(places)} places to cut, for {parts} parts")
    ends = [0, *places, len(costs)]  # of blocks that nothing cuts
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    weights = [sums[after] - sums[before] for before, after in itertools.pairwise(ends)]
    limit = _smallest_limit(weights, parts)
    return [ends[block] for block in _cuts(weights, [crossing[place] for place in places], parts, limit)]


def _smallest_limit(weights: Sequence[float], parts: int) -> float:
    """The least cost of the costliest part, up to one millionth."""
    low, high = max(max(weights), sum(weights) / parts), sum(weights)
    if _count(weights, low) <= parts:
        return low
    for _ in range(60):
        middle = (low + high) / 2
        if _count(weights, middle) <= parts:
            high = middle
        else:
            low = middle
        if high - low <= 1e-7 * high:
            break
    return high


def _count(weights: Sequence[float], limit: float) -> int:
    """How many parts it takes when none may cost more than this."""
    count, total = 1, 0.0
    for weight in weights:
        total += weight
        if total > limit * (1 + 1e-9):
            count, total = count + 1, weight
    return count


def _cuts(weights: Sequence[float], crossing: Sequence[int], parts: int, limit: float) -> list[int]:
    """The blocks that parts begin with, but for the first. `crossing[i]` belongs to the cut before block i + 1."""
    slack = limit * (1 + 1e-9)
    # earliest[k]: the first block from which k parts suffice for the rest.
    earliest, total, block = [len(weights)], 0.0, len(weights)
    while len(earliest) <= parts:
        while block and total + weights[block - 1] <= slack:
            block -= 1
            total += weights[block]
        earliest.append(block)
        total = 0.0
    sums = list(itertools.accumulate(weights, initial=0.0))
    chosen, begin = [], 0
    for left in range(parts - 1, 0, -1):
        last = min(_end(weights, begin, slack), len(weights) - left)
        first = min(max(earliest[left], begin + 1), last)
        even = sums[begin] + (sums[-1] - sums[begin]) / (left + 1)
        near = range(bisect.bisect_left(sums, even - limit / 10), bisect.bisect_right(sums, even + limit / 10))
        near = range(max(first, near.start), min(last + 1, near.stop))
        if near:
            best = min(near, key=lambda block: (crossing[block - 1], abs(sums[block] - even), -block))
        else:
            best = first if sums[first] > even else last
            after = bisect.bisect_left(sums, even, first, last)
            best = min((best, after, max(first, after - 1)), key=lambda block: abs(sums[block] - even))
        chosen.append(best)
        begin = best
    return chosen


def _end(weights: Sequence[float], begin: int, limit: float) -> int:
    """The block before which a part from here has to end."""
    total, end = 0.0, begin
    while end < len(weights) and (end == begin or total + weights[end] <= limit):
        total += weights[end]
        end += 1
    return end
