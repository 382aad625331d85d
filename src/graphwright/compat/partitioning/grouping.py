"""Groups of nodes that can each become one operation, such that no group needs another one that needs it.

Both ways look at each node once, from the end of the graph, and give numbered groups: each node takes the next
number when it is looked at, and a group has the number of a node that came to one as small as itself, else keeps its
own. A node's *followers* are those that read it and those that must stay behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphwright.ir import Node

__all__ = ["groups_by_level", "groups_of_readers"]

_Later = Mapping[Node, list[Node]]
_Numbered = list[tuple[int, list[Node]]]  # groups by number, each in the order of the graph


def groups_by_level(nodes: list[Node], wanted: set[Node], later: _Later) -> _Numbered:
    """Group the wanted nodes, whether they read each other or not; linear.

    The level of a node is how often a way from it to the end of the graph can leave the wanted nodes and come
    back. Groups are those of one level: a way out of a group and back into one leads to a lower level, so they stand
    in one line; and no two groups can be merged, since each level is there for a way through other nodes.
    """
    levels: dict[Node, int] = {}  # for other nodes: the highest level behind them, -1 for none
    groups: list[list[Node]] = []
    numbers: list[int] = []
    count = 0
    for node in reversed(nodes):
        level = -1
        is_wanted = node in wanted
        for follower in (*node.users, *later.get(node, ())):
            level = max(level, levels[follower] + (is_wanted and follower not in wanted))
        levels[node] = level
        if not is_wanted:
            continue
        levels[node] = level = max(level, 0)
        if level == len(groups):
            groups.append([])
            numbers.append(count)
        if len(groups[level]) == 1:
            numbers[level] = count
        groups[level].append(node)
        count += 1
    return sorted((number, group[::-1]) for number, group in zip(numbers, groups, strict=True))


class _Group:
    """Nodes, and the groups behind them. Groups stand in one line, each before those behind it; ranks grow along it."""

    __slots__ = ("_merged", "behind", "next", "nodes", "number", "prev", "rank")

    def __init__(self, nodes: list[Node], number: int, rank: float) -> None:
        self.nodes = nodes
        self.number = number
        self.rank = rank
        self.behind: dict[_Group, None] = {}
        self.prev = self.next = self
        self._merged: _Group | None = None

    def now(self) -> _Group:
        """The group that this one has become part of."""
        group = self
        while group._merged is not None:
            if group._merged._merged is not None:
                group._merged = group._merged._merged
            group = group._merged
        return group

    def followers(self) -> Iterable[_Group]:
        """The groups behind this one, as they are now."""
        self.behind = dict.fromkeys([group.now() for group in self.behind])
        self.behind.pop(self, None)
        return self.behind

    def leave(self) -> None:
        """Leave the line."""
        self.prev.next, self.next.prev = self.next, self.prev

    def follow(self, group: _Group, rank: float) -> None:
        """Stand directly behind a group, with a rank."""
        self.prev, self.next, self.rank = group, group.next, rank
        self.prev.next = self.next.prev = self

    def take(self, other: _Group) -> None:
        """Take another group in, which leaves the line."""
        other.leave()
        if len(other.nodes) > len(self.nodes):
            self.nodes, other.nodes = other.nodes, self.nodes
        self.nodes += other.nodes
        self.behind.update(other.behind)
        other._merged, other.nodes, other.behind = self, [], {}


def groups_of_readers(nodes: list[Node], wanted: set[Node], later: _Later) -> _Numbered:
    """Group each wanted node with those that read it, where it can be.

    Two groups can be merged where no way leads from one to the other through a third: it is looked for among the
    groups ranked between the two alone. That is linear for graphs whose nodes are read nearby.
    """
    home: dict[Node, _Group] = {}
    root = _Group([], -1, 1.0)  # before the first and behind the last
    count = 0
    for place, node in enumerate(reversed(nodes)):
        group = home[node] = _Group([node], count, 0.0)
        group.follow(root, -float(place))
        group.behind = dict.fromkeys([home[each].now() for each in (*node.users, *later.get(node, ()))])
        if node not in wanted:
            continue
        count += 1
        for user in node.users:
            other = home[user].now()
            if user in wanted and other is not group:
                group = _merged(group, other, root) or group
    order = {node: i for i, node in enumerate(nodes)}
    found = {home[node].now(): None for node in wanted}
    return sorted((group.number, sorted(group.nodes, key=order.__getitem__)) for group in found)


def _merged(group: _Group, other: _Group, root: _Group) -> _Group | None:
    """Merge two groups; None where a way leads from one to the other through a third."""
    low, high = (group, other) if group.rank < other.rank else (other, group)
    between: dict[_Group, None] = {}  # behind the lower one, ranked before the higher one
    waiting = [follower for follower in low.followers() if follower is not high]
    while waiting:
        each = waiting.pop()
        if each is high:
            return None
        if each.rank < high.rank and each not in between:
            between[each] = None
            waiting.extend(each.followers())
    number = group.number if len(group.nodes) >= len(other.nodes) else other.number
    high.take(low)
    high.number = number
    _move_behind(high, sorted(between, key=lambda each: each.rank), root)
    return high


def _move_behind(group: _Group, moved: list[_Group], root: _Group) -> None:
    for each in moved:
        each.leave()
    end = group.next.rank if group.next is not root else group.rank + len(moved) + 1
    step = (end - group.rank) / (len(moved) + 1)
    at = group
    for each in moved:
        each.follow(at, at.rank + step)
        at = each
    if moved and not group.rank < moved[0].rank < moved[-1].rank + step / 2 < end:  # no number is left between
        at, rank = root.prev, 0.0
        while at is not root:
            at.rank, at, rank = rank, at.prev, rank - 1.0
