"""Judge `graphwright.trace` on the open models, print the table, and compare with the list of what passed before.

    python -m tests.zoo [--update]
    python -m tests.zoo --results results.jsonl [--update]

A level that `passing.txt` lists and that is not passed any more makes this fail; one that is new is printed, and
`--update` adds it. Nothing but an editor takes a level off the list.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.zoo.coverage import held_in_graph, table
from tests.zoo.judging import JUDGE, ROOT, print_table, run_judge
from tests.zoo.passing import PASSING, missing, read_passing, read_results, together, write_passing


def main() -> int:
    """Judge, print and compare: 1 where a level left the list, 2 where there is no judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description="Judge graphwright.trace on real models.")
    parser.add_argument("--results", type=Path, help="compare what the judge wrote before, and run nothing")
    parser.add_argument("--update", action="store_true", help="add what passes for the first time to the list")
    options = parser.parse_args()
    if not JUDGE.exists():
        print(f"there is no {JUDGE}: the models and their judge are not in this repository; ZOO= names their folder")
        return 2

    results = options.results
    if results is None:
        results = ROOT / "build" / "zoo.jsonl"
        results.parent.mkdir(exist_ok=True)
        results.unlink(missing_ok=True)
        run_judge(results)
    print_table(results)
    print(table(held_in_graph(results)))

    listed, found = read_passing(PASSING), read_results(results)
    left, new = missing(listed, found), missing(found, listed)
    for line in (*(f"new:  {line}" for line in new), *(f"LEFT: {line}" for line in left)):
        print(line)
    if options.update:
        write_passing(PASSING, together(listed, found))
    elif new:
        print("--update adds the new ones to the list")
    print(f"{len(found)} models judged, {len(left)} of them left the list, {len(new)} have something new")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
