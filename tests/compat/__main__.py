"""`python -m tests.compat [section ...]`: torch.fx and graphwright on the same inputs, and how often they agree."""

from __future__ import annotations

import collections
import sys
import time

from tests.compat.reasons import explain
from tests.compat.sections import SECTIONS


def main(wanted: list[str]) -> int:
    """Print the counts of each section and every disagreement; return how many are not explained."""
    unexplained = 0
    for name in wanted or list(SECTIONS):
        start = time.perf_counter()
        comparisons = list(SECTIONS[name]())
        reasons: dict[str, list[str]] = collections.defaultdict(list)
        for comparison in comparisons:
            if comparison.differs:
                reason = explain(comparison)
                unexplained += not reason
                what = reason or f"NOT EXPLAINED: {', '.join(comparison.differs)}"
                reasons[what].append(comparison.name)
        agreeing = sum(not comparison.differs for comparison in comparisons)
        refused = sum(comparison.theirs.module is None for comparison in comparisons)
        print(f"{name}: {agreeing} of {len(comparisons)} agree, {refused} refused by torch.fx,"
              f" {time.perf_counter() - start:.0f} s")  # fmt: skip
        for what, names in sorted(reasons.items(), key=lambda entry: -len(entry[1])):
            print(f"    {len(names):4}  {what}: {', '.join(names)}")
    print("every disagreement is explained" if not unexplained else f"{unexplained} disagreements are not explained")
    return unexplained


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
