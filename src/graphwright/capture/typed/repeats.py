"""Modules that are called like one that the capture has seen: their part of the graph is copied, not captured again.

The 126 layers of a model run the same code on values of the same kinds. What that code may depend on is its module, its
arguments, and what the capture knows of everything else. A call is copied only where all three are as they were:

- the modules are alike in all that they hold, short of plain attributes that nobody asked for (`alike_modules.py`);
- the arguments are of the same form and kinds, the same things being the same;
- and the call before left nothing behind but nodes and entries that are carried over by name: `knowledge.py` walks all
  that the capture knows, so that whatever else a call leaves makes it one of a kind.

What a call reads outside of all that - the environment, the time, a ContextVar - is the same where the program did
nothing since that may have changed it (`unseen_changes.py`). Another thread may, in the middle of a capture; for who
fears that, `config.copy_layers` can be switched off. Whether it pays to look for copies, `copy_budget.py` knows.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from graphwright.capture.effects.alike_modules import Pairs, is_below
from graphwright.capture.effects.kept_kinds import Grows
from graphwright.capture.effects.watched_tables import aside_of
from graphwright.capture.effects.writes import memory_of
from graphwright.capture.state.ledger import Read, join_facts_of
from graphwright.capture.state.members import Make
from graphwright.capture.state.plan import Plan
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.capture.typed.alike_arguments import Matched, Unlike, is_plain, leaves_of
from graphwright.capture.typed.copied_calls import Copying, moved
from graphwright.capture.typed.copy_budget import FEWEST, CopyBudget
from graphwright.capture.typed.knowledge import Knowledge
from graphwright.capture.typed.unseen_changes import Listening
from graphwright.ir import ATOMS, Node
from graphwright.settings import config
from graphwright.source import CallSite, Scope, user_frame
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


class _Called(NamedTuple):
    """A call of a module that is being made."""

    module: nn.Module
    path: str
    scope: Scope
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclasses.dataclass(eq=False)
class _Call:
    """A call of a module that others may be copied from."""

    called: _Called
    given: Any
    nodes: list[Node]
    wishes: dict[Node, str | None]
    outside: list[Node]  # what it uses besides its arguments
    calls: dict[str, tuple[int, int]]  # how often each module that is called in it had been called before, and was
    reads: list[Read]
    unforeseen: dict[Node, Any]
    written: dict[Node, Node]
    facts: dict[str, dict[str, Any]]  # of modules, by path
    missing: dict[tuple[str, str], tuple[str, bool]]  # attributes that it looked for
    recorded: int
    known: Knowledge


class Repeats:
    """The calls of one capture that others may be copied from, by the classes of their modules."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._calls: dict[Make, list[_Call]] = {}  # by what their modules are made of
        self._alike: dict[tuple[int, int], Pairs | None] = {}
        self._budget = CopyBudget(recorder)
        self._listening = Listening(recorder.examples)
        self._is_looking = False
        self.is_wanted = config.copy_layers  # whether to be called at all
        self.copies: list[Node] = []  # of calls, each of which one node stands for
        self.wishes: dict[Node, str | None] | None = None  # the names that nodes of the call looked at are to have

    def call(
        self,
        module: nn.Module,
        path: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        scope: Scope,
        run: Callable[[], Any],
    ) -> Any:
        """Give what a call of a module gives: copied, or by running it, which others may be copied from then."""
        make, left = (None, 0) if self._is_looking else self._make_of(module, path)
        if make is None:
            return run()
        called = _Called(module, path, scope, args, kwargs)
        with self._listening.paused():
            frame = user_frame(sys._getframe(1))
            if self._calls and self._listening.may_have_changed(frame):
                self.stop()
            budget = self._budget
            met, before = budget.begin(make)
            left -= met
            for known in self._calls.get(make, ()):
                try:
                    given = self._copy(known, called)
                except Unlike:
                    continue
                budget.copied(make, len(known.nodes), before)
                budget.end(make, before)
                self._let_go(make, is_last=left == 0)
                return given
            # The first makes what all share: numbers, constants, guards.
            pays = met > 0 and budget.pays(make, left)
            self._let_go(make, is_last=met > 0 and not pays)
            if pays and self._may_be_looked_at(called) and self._are_left(make, left, called) and self._listens(frame):
                given, call = self._look(called, run)
                may_be_copied = call is not None and _may_be_copied(call)
                budget.looked(make, may_be_copied)
                if call is not None and may_be_copied:
                    self._calls.setdefault(make, []).append(call)
                self._let_go(make)
            else:
                given = self._listening.heard(run)
            budget.end(make, before)
            return given

    def _listens(self, frame: FrameType | None) -> bool:
        if not self._listening.is_started(frame):
            return False
        self._budget.listen(True)
        return True

    def _let_go(self, make: Make, is_last: bool = False) -> None:
        """Keep no call of modules of which none is left that may be like it, and listen no more where none is kept."""
        if is_last:
            self._calls.pop(make, None)
        if not self._calls:
            self._listening.stop()
            self._budget.listen(False)

    def stop(self) -> None:
        """Copy nothing of what was called so far: the program has ended, or may have changed what nobody sees."""
        self._calls.clear()
        self._listening.stop()
        self._budget.listen(False)

    def _make_of(self, module: nn.Module, path: str) -> tuple[Make | None, int]:
        """What modules like one have in common, and how many others there are; None where no call is to be copied."""
        recorder, plan = self._recorder, self._recorder.plan
        if not path or not module._modules or recorder.members is None or recorder.examples.is_real:
            return None, 0
        if recorder.region is not recorder.root or recorder.states or recorder.pending is not None:
            return None, 0
        if plan.control_flow != "stage" or plan.obstacles is not None or recorder.has_objects:
            return None, 0
        if not all(isinstance(kept, Grows) and kept.is_assumed for kept in plan.kept.values()):
            return None, 0  # the program has state, and what it is at a call is no fact
        make, count = recorder.members.made_like(module)
        return (make, count - 1) if count >= FEWEST else (None, 0)

    def _is_quiet(self, path: str) -> bool:
        """Tell whether nothing was changed that a module may reach: its own attributes, and those of objects."""
        keeping = self._recorder.keeping
        return keeping is not None and keeping.is_untouched(path)

    # ---- looking at a call

    def _look(self, called: _Called, run: Callable[[], Any]) -> tuple[Any, _Call | None]:
        """Run a call; give what it gives, and the call if it left nothing behind but what a copy carries over."""
        recorder, ledger, path = self._recorder, self._recorder.ledger, called.path
        root, graph = recorder.root, recorder.root.graph
        known, others, calls = Knowledge(recorder), self._facts(path, is_inside=False), recorder.calls.copy()
        last, size, constants = graph._root.prev, len(graph.nodes), len(graph.constants)
        before, written = dict(recorder.module_calls), dict(root.written)
        earlier, unforeseen, missing = dict(ledger.reads), set(ledger.unforeseen), len(self._missing)
        ledger.reads.clear()  # what was read of an argument before is no question of the call
        self._is_looking, self.wishes = True, {}
        try:
            given = self._listening.heard(run)
            wishes = self.wishes
        finally:
            self._is_looking, self.wishes = False, None
            reads = dict(ledger.reads)
            ledger.reads.clear()
            ledger.reads.update(earlier)
            for key, read in reads.items():
                ledger.reads.setdefault(key, read)
        nodes = _nodes_after(last)
        inside, passed = set(nodes), list(_proxies((called.args, called.kwargs)))
        written = {node: by for node, by in root.written.items() if written.get(node) is not by}
        is_alone = (
            not self._listening.is_changed
            and len(graph.nodes) - size == len(nodes)
            and len(graph.constants) == constants
            and recorder.calls.hidden == calls.hidden
            and known.holds(recorder)
            and self._facts(path, is_inside=False) == others
            and inside.issuperset((*written, *written.values()))
            and recorder.writes.memories.isdisjoint(map(memory_of, passed))
            and recorder.dtypes.end_call()
            and self._is_quiet(path)
        )
        if not is_alone:
            return given, None
        return given, _Call(
            called, given, nodes, wishes,
            list(dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in inside)),
            {
                each: (before.get(each, 0), count - before.get(each, 0))
                for each, count in recorder.module_calls.items()
                if count != before.get(each, 0)
            },
            list(reads.values()),
            {node: what for node, what in ledger.unforeseen.items() if node not in unforeseen},
            written, self._facts(path, is_inside=True), dict(list(self._missing.items())[missing:]),
            recorder.calls.recorded - calls.recorded, Knowledge(recorder),
        )  # fmt: skip

    @property
    def _missing(self) -> dict[tuple[str, str], tuple[str, bool]]:
        reads = self._recorder.reads
        return {} if reads is None else reads.found_missing

    def _may_be_looked_at(self, called: _Called) -> bool:
        """Tell whether a call gets what can be told for another one, and nothing is under way as it begins."""
        if not self._is_quiet(called.path) or not self._recorder.dtypes.have_arrived():
            return False
        try:
            leaves_of((called.args, tuple(called.kwargs.values())))
        except Unlike:
            return False
        return True

    def _facts(self, path: str, is_inside: bool) -> dict[str, dict[str, Any]]:
        """What is taken for granted of a module and those below it, or of all others."""
        modules = self._recorder.ledger.modules
        return {each: _copied(facts) for each, facts in modules.items() if is_below(each, path) is is_inside}

    # ---- copying it

    def _copy(self, call: _Call, called: _Called) -> Any:
        """Copy a call for another module. Raises Unlike, before anything is changed, where they are not alike."""
        matched = self._match(call, called)
        recorder, root = self._recorder, self._recorder.root
        copied: dict[Node, Node] = dict(matched.nodes)
        for old, new in matched.nodes.items():
            copied[root.latest(old)] = root.latest(new)
        scopes = call.called.scope, called.scope
        now = recorder.module_calls
        further = {path: now.get(moved(path, scopes), 0) - before for path, (before, _) in call.calls.items()}
        copying = Copying(call.nodes, call.wishes, scopes, copied, further)
        one = self._as_one(call, copying) if recorder.plan.leaves_copies else None
        if one is not None:
            self.copies.append(one)
        else:
            for made in copying.nodes():
                if made.op == "get_attr":
                    root.attributes.setdefault(made.target, made)
            recorder.ledger.unforeseen |= {copied[node]: what for node, what in call.unforeseen.items()}
        proxies = dict(matched.leaves)
        self._carry_over(call, copying, proxies)
        return self._given(call.given, copied, matched, proxies)

    def _as_one(self, call: _Call, copying: Copying) -> Node | None:
        """Have one node stand for a copy, where what is asked of values in it is asked of the original's, too."""
        if call.written:
            return None
        inside = set(call.nodes)
        results = dict.fromkeys(proxy.node_of() for proxy in _proxies(call.given))
        return copying.as_one(call.outside, [node for node in results if node in inside])

    def _match(self, call: _Call, called: _Called) -> Matched:
        """Match the arguments of two calls. Raises Unlike where anything that they depend on is not alike."""
        one, recorder = call.called, self._recorder
        if not self._are_alike(call, called.module, called.path) or not self._is_quiet(called.path):
            raise Unlike
        matched = Matched()
        for each, other in ((one.args, called.args), (tuple(one.kwargs.items()), tuple(called.kwargs.items()))):
            matched.match(each, other)
        if call.known.names(matched.exchanged()):
            raise Unlike
        # What is used besides the arguments must not come from one of those that are others here.
        first = min((old._position or 0.0 for old, new in matched.nodes.items() if old is not new), default=math.inf)
        if any(node not in matched.nodes and (node._position or 0.0) > first for node in call.outside):
            raise Unlike
        graph = recorder.root.graph
        if any(node._erased or node.graph is not graph for node in (*call.nodes, *call.outside)):
            raise Unlike
        if not call.known.holds(recorder):
            raise Unlike
        return matched

    def _carry_over(self, call: _Call, copying: Copying, proxies: dict[int, Any]) -> None:
        """Note of a copied call what is known of the one that it is copied from."""
        recorder, ledger, copied = self._recorder, self._recorder.ledger, copying.copied
        for path, (_, count) in call.calls.items():
            its = copying.path(path)
            recorder.module_calls[its] = recorder.module_calls.get(its, 0) + count
        recorder.calls.recorded += call.recorded
        for read in call.reads:
            tensor = proxies.get(id(read.tensor))
            if tensor is None and read.tensor._node in copied:  # only its node and its example's kind are asked for
                tensor = TensorProxy.make(recorder, read.tensor.example, copied[read.tensor._node])
            if tensor is not None:
                ledger.tensor(tensor, read.fact, read.at)
        recorder.root.written |= {copied[node]: copied[by] for node, by in call.written.items()}
        for path, facts in call.facts.items():
            its = copying.path(path)
            ledger.modules[its] = join_facts_of(ledger.module(its), _copied(facts))
        for (path, name), asked in call.missing.items():
            self._missing.setdefault((copying.path(path), name), asked)

    def _are_left(self, make: Make, left: int, called: _Called) -> bool:
        """Tell whether enough of the next modules may be called like one, by what was asked of others of their classes.

        Of a module that was not called yet nothing was asked itself. `left` is how many there are at most.
        """
        recorder, module, path, found = self._recorder, called.module, called.path, 0
        assert recorder.members is not None and recorder.shells is not None
        if left < FEWEST - 1:
            return False
        for other in recorder.members.next_like(module, make):
            pairs = self._pairs(module, path, other, recorder.shells.path(other) or "")
            if pairs is None or any(self._is_asked_of(type(one), name) for one, name in pairs.differing):
                continue
            found += 1
            if found == FEWEST - 1:
                return True
        return False

    def _is_asked_of(self, kind: type, name: str) -> bool:
        assert self._recorder.members is not None
        return any(self._is_asked(module, name) for module in self._recorder.members.of_class[kind])

    def _are_alike(self, call: _Call, module: nn.Module, path: str) -> bool:
        pairs = self._pairs(call.called.module, call.called.path, module, path)
        return pairs is not None and not any(self._is_asked(one, name) for one, name in pairs.differing)

    def _pairs(self, first: nn.Module, own_path: str, second: nn.Module, path: str) -> Pairs | None:
        """What two modules have in common and what differs, None where they are not alike."""
        key = id(first), id(second)
        if key not in self._alike:
            self._alike[key] = self._compared(first, own_path, second, path)
        return self._alike[key]

    def _compared(self, first: nn.Module, own_path: str, second: nn.Module, path: str) -> Pairs | None:
        recorder = self._recorder
        shells, plan = recorder.shells, recorder.plan
        assert shells is not None
        roots = own_path, path
        if any(is_below(each, root) for each in _paths_of(plan) for root in roots):
            return None
        pairs = Pairs(roots, shells.path, recorder.tensors.path)
        with torch._C.DisableTorchFunction():
            if not pairs.alike(first, second):
                return None
        for one, other in pairs.modules:
            its, other_path = shells.path(one) or "", shells.path(other) or ""
            if recorder.is_leaf(one, its) != recorder.is_leaf(other, other_path):
                return None
        return pairs

    def _is_asked(self, module: nn.Module, name: str) -> bool:
        """Tell whether the program has asked for an attribute of a module, or may have without being noticed."""
        recorder = self._recorder
        assert recorder.shells is not None
        path = recorder.shells.path(module) or ""
        is_aside = name in aside_of(recorder.shells.shell(module))
        return not is_aside or name in recorder.ledger.modules.get(path, {}).get("values", {})

    def _given(self, value: Any, copied: dict[Node, Node], matched: Matched, proxies: dict[int, Any]) -> Any:
        """What the copied call gives: tensors of its own, and what it was passed."""
        if type(value) is tuple:
            return tuple([self._given(item, copied, matched, proxies) for item in value])
        if type(value) is not TensorProxy or id(value) in proxies:
            return proxies.get(id(value), value)
        assert value._node is not None
        with torch._C.DisableTorchFunction():
            example = self._recorder.examples.like(value.example)
        sizes = {dim: matched.size(size) for dim, size in value.sizes.items()}
        made = proxies[id(value)] = TensorProxy.make(self._recorder, example, copied[value._node], sizes=sizes)
        return made


def _nodes_after(node: Node) -> list[Node]:
    graph, found = node.graph, []
    while (node := node.next) is not graph._root:
        found.append(node)
    return found


def _may_be_copied(call: _Call) -> bool:
    """Tell whether all that a call gave and used can be told for another one."""
    called, inside = call.called, set(call.nodes)
    if any(node.op == "get_attr" and is_below(str(node.target), called.path) for node in call.outside):
        return False
    if any(type(node._origin) is not CallSite for node in call.nodes if node._origin is not None):
        return False
    try:
        got = leaves_of((called.args, tuple(called.kwargs.values())))
        given = leaves_of(call.given)
    except Unlike:
        return False
    passed = {*map(id, got)}
    memories = {memory_of(leaf) for leaf in got if type(leaf) is TensorProxy}
    for leaf in {id(leaf): leaf for leaf in given if id(leaf) not in passed and type(leaf) not in ATOMS}.values():
        if type(leaf) is not TensorProxy or leaf._node not in inside or not is_plain(leaf):
            return False
        if memory_of(leaf) in memories:
            return False
        memories.add(memory_of(leaf))
    return True


def _proxies(value: Any) -> Iterator[TensorProxy]:
    return (leaf for leaf in leaves(value) if type(leaf) is TensorProxy)


def _copied(facts: dict[str, Any]) -> dict[str, Any]:
    return {fact: held.copy() if isinstance(held, dict | list) else held for fact, held in facts.items()}


def _paths_of(plan: Plan) -> Iterable[str]:
    """The paths of modules and attributes about which the plan knows something."""
    yield from (path for path in (*plan.entered, *plan.outlined) if isinstance(path, str))
    yield from (name.removeprefix("self.") for name in plan.dynamic)
    yield from (path for path, _ in plan.in_place)
    yield from (path for path, _ in plan.kept)
