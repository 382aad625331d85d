"""How one description differs from the one before it, and the steps of a rewriting as such differences."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphwright.rewrite import Application, RewriteLog, replay
from graphwright.runtime import GraphModule
from graphwright.viz.describing import Description, Record, describe
from graphwright.viz.measuring import Measured


@dataclass(frozen=True, slots=True)
class Step:
    """What changes from one description to the next.

    removed: the ids that are gone. set: the records that are new or different. after: for those that are new, the id
    that they follow, "" for the first. order: all ids, where those that stay have changed places; else empty.
    """

    label: str
    detail: str
    removed: tuple[str, ...]
    set: tuple[Record, ...]
    after: Mapping[str, str]
    order: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """The step for JSON."""
        return {
            "label": self.label, "detail": self.detail, "removed": self.removed,
            "set": [record.plain() for record in self.set], "after": dict(self.after), "order": self.order,
        }  # fmt: skip


def difference(before: Mapping[str, Record], after: Mapping[str, Record], label: str = "", detail: str = "") -> Step:
    """Say what makes one set of records of another.

    >>> from graphwright import symbolic_trace
    >>> one, two = (describe(symbolic_trace(f), Measured()).records for f in (lambda x: -x, lambda x: (-x).exp()))
    >>> step = difference(one, two)
    >>> step.removed, [record.id for record in step.set], dict(step.after)
    ((), ['exp', 'output'], {'exp': 'neg'})
    """
    changed = tuple(record for name, record in after.items() if before.get(name) != record)
    previous = dict(zip(after, ["", *after], strict=False))
    kept = [name for name in after if name in before]
    is_moved = kept != [name for name in before if name in after]
    return Step(
        label,
        detail,
        tuple(name for name in before if name not in after),
        changed,
        {record.id: previous[record.id] for record in changed if record.id not in before},
        tuple(after) if is_moved else (),
    )


def steps_of(gm: GraphModule, log: RewriteLog | Iterable[Application], first: Description) -> Iterator[Step]:
    """Do the applications of a log again on a copy, and say what each changes; O(nodes) for each.

    Raises PatternError where one is not possible: the log is then not of this module.
    """
    changing = copy.deepcopy(gm)
    records: Mapping[str, Record] = first.records
    for application in log:
        replay(changing, [application])
        found = describe(changing, Measured(), with_code=False).records
        now = {name: _measured_like(record, records.get(name)) for name, record in found.items()}
        made = f"made {', '.join(application.made)}" if application.made else "made nothing"
        yield difference(records, now, application.rule.name, f"{', '.join(application.nodes)}: {made}")
        records = now


_OF_RUNS = ("value", "flops", "read", "written", "parameters", "runs", "seconds")


def _measured_like(record: Record, before: Record | None) -> Record:
    """A record with what was measured of the node before the step, as long as it calls the same."""
    if before is None or before.target != record.target:
        return record
    return replace(record, **{name: getattr(before, name) for name in _OF_RUNS})
