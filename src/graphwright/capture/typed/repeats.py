"""Modules that are called like one that the capture has seen: their part of the graph is copied, not captured again.

The 126 layers of a model run the same code on values of the same kinds. What that code may depend on is its module, its
arguments, and what the capture knows of everything else. A call is copied only where all three are as they were:

- the modules are alike in all that they hold, short of plain attributes that nobody asked for (`alike_modules.py`);
- the arguments are of the same form and kinds, the same things being the same;
- and the call before left nothing behind but nodes and entries that are carried over by name: `knowledge.py` walks all
  that the capture knows, so that whatever else a call leaves makes it one of a kind.

What a call reads outside of all that - the environment, the time, a ContextVar - is the same where the program did
nothing since that may have changed it (`unseen_changes.py`). Other threads may, all the same, and what code in
C does is told by its name, which is why `config.copy_layers` has to ask for copies.
"""

from __future__ import annotations

import collections
import dataclasses
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.effects.alike_modules import Pairs
from graphwright.capture.effects.kept_kinds import Grows
from graphwright.capture.effects.module_reads import aside_of
from graphwright.capture.numbers.known_sizes import size_of
from graphwright.capture.state.ledger import Read, join_facts_of
from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.capture.state.tensor_proxy import Dim, TensorProxy
from graphwright.capture.typed.knowledge import Knowledge
from graphwright.capture.typed.unseen_changes import Listening
from graphwright.ir import ATOMS, Graph, Node, map_arg
from graphwright.settings import config
from graphwright.source import CallSite, Scope, user_frame
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

__all__ = ["FEWEST", "Repeats"]

FEWEST = 3  # modules made alike, from which on it is worth looking for calls alike
_LEAST = 24  # modules inside of those that may be copied, for which it is
_MOST_TRIES = 2  # calls of modules made alike that are looked at in vain before they are left alone
_MOST_LOOKS = 6  # calls of any modules that are

_PLAIN = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class _Unlike(Exception):
    """A call that is not like the one before: it is captured for itself."""


@dataclasses.dataclass
class _Call:
    """A call of a module that others may be copied from."""

    module: nn.Module
    path: str
    scope: Scope
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    given: Any
    nodes: list[Node]
    wishes: dict[Node, str | None]
    outside: list[Node]  # what it uses besides its arguments
    before: dict[str, int]  # how often each module had been called
    calls: dict[str, int]  # and how often it was called in it
    reads: list[Read]
    unforeseen: dict[Node, Any]
    written: dict[Node, Node]
    facts: dict[str, dict[str, Any]]  # of modules, by path
    recorded: int
    known: Knowledge


class Repeats:
    """The calls of one capture that others may be copied from, by the classes of their modules."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._calls: dict[Hashable, list[_Call]] = {}  # by what their modules are made of
        self._met: collections.Counter[Hashable] = collections.Counter()
        self._tries: collections.Counter[Hashable] = collections.Counter()
        self._alike: dict[tuple[int, int], Pairs | None] = {}
        self._classes: collections.Counter[type] | None = None
        self._makes: dict[int, Hashable] = {}  # by the id of a module
        self._counts: collections.Counter[Hashable] = collections.Counter()
        self._looks = 0  # calls that were looked at since one was copied
        self._listening = Listening()
        self.is_looking = False
        self.wishes: dict[Node, str | None] | None = None  # the names that nodes of the call looked at are to have
        self.copied: list[str] = []  # the paths of the modules whose calls were copied

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
        if self.is_looking or not self._may_repeat(module, path):
            return run()
        make, frame = self._makes[id(module)], user_frame(sys._getframe(1))
        self._listening.pause()
        try:
            if self._calls and self._listening.may_have_changed(frame):
                self._calls.clear()
                self._listening.stop()
            for call in self._calls.get(make, ()):
                try:
                    given = self._copy(call, module, path, args, kwargs, scope)
                except _Unlike:
                    continue
                self._tries[make] = self._looks = 0
                return given
            self._met[make] += 1
            is_left_alone = self._tries[make] >= _MOST_TRIES or self._looks >= _MOST_LOOKS
            # The first call makes what all of them share: numbers, constants, guards.
            may_look = self._met[make] > 1 and not is_left_alone and self._is_quiet(path)
            if may_look and not self._listening.is_on:
                self._listening.start(frame)
                may_look = self._listening.is_on
        finally:
            self._listening.resume()
        if not may_look:
            return run()
        self._tries[make] += 1
        self._looks += 1
        return self._look(make, module, path, args, kwargs, scope, run)

    def stop(self) -> None:
        """The program has ended."""
        self._listening.stop()

    def _may_repeat(self, module: nn.Module, path: str) -> bool:
        recorder, plan = self._recorder, self._recorder.plan
        if not config.copy_layers or not path or not module._modules:
            return False
        if recorder.shells is None or recorder.examples.is_real:
            return False
        if recorder.region is not recorder.root or recorder.states or recorder.pending is not None:
            return False
        if plan.control_flow != "stage" or plan.obstacles is not None or recorder.has_objects:
            return False
        if not all(isinstance(kept, Grows) and kept.is_assumed for kept in plan.kept.values()):
            return False  # the program has state, and what it is at a call is no fact
        if self._classes is None:
            self._classes = collections.Counter(map(type, recorder.entered))
        if self._classes[type(module)] < FEWEST:
            return False
        if id(module) not in self._makes:
            alike = [each for each in recorder.entered if type(each) is type(module)]
            self._makes.update({id(each): _make_of(each) for each in alike})
            self._counts.update(self._makes[id(each)] for each in alike)
        count = self._counts[self._makes[id(module)]]
        return count >= FEWEST and (count - FEWEST + 1) * sum(1 for _ in module.modules()) >= _LEAST

    def _is_quiet(self, path: str) -> bool:
        """Tell whether nothing was changed that a module may reach: its own attributes, and those of objects."""
        keeping = self._recorder.keeping
        return keeping is not None and keeping.is_untouched(path)

    # ---- looking at a call

    def _look(
        self,
        make: Hashable,
        module: nn.Module,
        path: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        scope: Scope,
        run: Callable[[], Any],
    ) -> Any:
        recorder = self._recorder
        self._listening.pause()
        graph = recorder.root.graph
        last, size = graph._root.prev, len(graph.nodes)
        before, others = Knowledge(recorder), self._facts_of_others(path)
        counts, recorded, hidden = dict(recorder.module_calls), recorder.calls.recorded, recorder.calls.hidden
        reads, unforeseen = set(recorder.ledger.reads), set(recorder.ledger.unforeseen)
        written, constants = dict(recorder.root.written), len(graph.constants)
        self.is_looking, self.wishes = True, {}
        self._listening.resume()
        try:
            given = run()
        finally:
            self._listening.pause()
            self.is_looking, wishes, self.wishes = False, self.wishes, None
        nodes = []
        node = last.next
        while node is not graph._root:
            nodes.append(node)
            node = node.next
        inside = set(nodes)
        own = f"{path}."
        new_written = {node: by for node, by in recorder.root.written.items() if written.get(node) is not by}
        is_alone = (
            not self._listening.is_changed
            and len(graph.nodes) - size == len(nodes)
            and len(graph.constants) == constants
            and recorder.calls.hidden == hidden
            and before.holds(recorder)
            and self._facts_of_others(path) == others
            and all(node in inside and by in inside for node, by in new_written.items())
            and not any(_memory(leaf) in recorder.writes.memories for leaf in _proxies((args, kwargs)))
            and recorder.dtypes.have_arrived()
            and self._is_quiet(path)
        )
        if not is_alone:
            self._listening.stop() if self._listening.is_changed else self._listening.resume()
            return given
        passed = {id(leaf) for leaf in _proxies((args, kwargs))}
        used = dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in inside)
        call = _Call(
            module, path, scope, args, kwargs, given, nodes, wishes or {}, list(used), counts,
            {each: count - counts.get(each, 0) for each, count in recorder.module_calls.items()},
            [read for key, read in recorder.ledger.reads.items() if key not in reads or id(read.tensor) in passed],
            {node: what for node, what in recorder.ledger.unforeseen.items() if node not in unforeseen},
            new_written,
            {
                each: {fact: _copied(held) for fact, held in facts.items()}
                for each, facts in recorder.ledger.modules.items()
                if each == path or each.startswith(own)
            },
            recorder.calls.recorded - recorded, Knowledge(recorder),
        )  # fmt: skip
        if self._may_be_copied(call, inside):
            self._calls.setdefault(make, []).append(call)
        self._listening.resume()
        return given

    def _facts_of_others(self, path: str) -> dict[str, dict[str, Any]]:
        """What is taken for granted of all modules but one, and those below it."""
        own = f"{path}."
        return {
            each: {fact: _copied(held) for fact, held in facts.items()}
            for each, facts in self._recorder.ledger.modules.items()
            if each != path and not each.startswith(own)
        }

    def _may_be_copied(self, call: _Call, inside: set[Node]) -> bool:
        """Tell whether all that a call gave and used can be told for another one."""
        own = f"{call.path}."
        if any(node.op == "get_attr" and str(node.target).startswith(own) for node in call.outside):
            return False
        if any(type(node._origin) is not CallSite for node in call.nodes if node._origin is not None):
            return False
        try:
            got = _leaves((call.args, tuple(call.kwargs.values())))
            given = _leaves(call.given)
        except _Unlike:
            return False
        passed = {*map(id, got)}
        memories = [_memory(leaf) for leaf in got if type(leaf) is TensorProxy]
        for leaf in {id(leaf): leaf for leaf in given}.values():
            if id(leaf) in passed or type(leaf) in ATOMS:
                continue
            if type(leaf) is not TensorProxy or leaf._node not in inside or not _is_plain(leaf):
                return False
            memory = _memory(leaf)
            if memory is None or memory in memories:
                return False
            memories.append(memory)
        return True

    # ---- copying it

    def _copy(
        self,
        call: _Call,
        module: nn.Module,
        path: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        scope: Scope,
    ) -> Any:
        """Copy a call for another module. Raises _Unlike, before anything is changed, where they are not alike."""
        recorder = self._recorder
        graph = recorder.root.graph
        if not self._are_alike(call, module, path) or not self._is_quiet(path):
            raise _Unlike
        matched = _Matched()
        matched.match((call.args, *call.kwargs, *call.kwargs.values()), (args, *kwargs, *kwargs.values()))
        nodes, dims = matched.nodes, matched.dims
        if call.known.names(matched.exchanged()):
            raise _Unlike
        first = min((old._position or 0.0 for old, new in nodes.items() if old is not new), default=None)
        if first is not None and any(node not in nodes and (node._position or 0.0) > first for node in call.outside):
            raise _Unlike
        if any(node._erased or node.graph is not graph for node in (*call.nodes, *call.outside)):
            raise _Unlike
        if not call.known.holds(recorder):
            raise _Unlike
        # From here on nothing is refused.
        copied: dict[Node, Node] = dict(nodes)
        for old, new in nodes.items():
            latest = recorder.root.latest(old)
            if latest is not old:
                copied[latest] = recorder.root.latest(new)
        copying = _Copying(call, path, scope, copied, dict(recorder.module_calls))
        known = recorder.root.attributes
        for node in call.nodes:
            made = copying.node(graph, node, call.wishes.get(node, node.name))
            if made.op == "get_attr":
                known.setdefault(made.target, made)
        for each, count in call.calls.items():
            if not count:
                continue
            its = copying.path(each)
            recorder.module_calls[its] = recorder.module_calls.get(its, 0) + count
        recorder.calls.recorded += call.recorded
        proxies: dict[int, Any] = dict(matched.leaves)
        for read in call.reads:
            tensor = proxies.get(id(read.tensor))
            if tensor is None and read.tensor._node in copied:  # only its node and its example's kind are asked for
                tensor = TensorProxy.make(recorder, read.tensor.example, copied[read.tensor._node])
            if tensor is not None:
                recorder.ledger.reads.setdefault((id(tensor), read.fact), Read(tensor, read.fact, read.at))
        for node, what in call.unforeseen.items():
            recorder.ledger.unforeseen[copied[node]] = what
        for node, by in call.written.items():
            recorder.root.written[copied[node]] = copied[by]
        for each, facts in call.facts.items():
            its = copying.path(each)
            recorder.ledger.modules[its] = join_facts_of(
                recorder.ledger.module(its), {fact: _copied(held) for fact, held in facts.items()}
            )
        copying.finish()
        self.copied.append(path)
        return self._given(call.given, copied, dims, proxies)

    def _are_alike(self, call: _Call, module: nn.Module, path: str) -> bool:
        key = id(call.module), id(module)
        if key not in self._alike:
            self._alike[key] = self._compared(call, module, path)
        pairs = self._alike[key]
        if pairs is None:
            return False
        return not any(self._is_asked(one, name) for one, name in pairs.differing)

    def _compared(self, call: _Call, module: nn.Module, path: str) -> Pairs | None:
        recorder = self._recorder
        shells, plan = recorder.shells, recorder.plan
        assert shells is not None
        roots = call.path, path
        if any(_is_at(each, root) for each in _paths_of(plan) for root in roots):
            return None
        pairs = Pairs(roots, shells.path, recorder.tensors.path)
        with torch._C.DisableTorchFunction():
            if not pairs.alike(call.module, module):
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

    def _proxy(
        self, tensor: TensorProxy, copied: dict[Node, Node], dims: dict[int, Dim], proxies: dict[int, Any]
    ) -> TensorProxy | None:
        """What a tensor of the call is in the copied one; None for one that is of neither."""
        known = proxies.get(id(tensor))
        if known is not None:
            return known  # type: ignore[no-any-return]
        node = copied.get(tensor._node) if tensor._node is not None else None
        if node is None:
            return None
        with torch._C.DisableTorchFunction():
            sizes = {dim: _of_dim(size, dims) for dim, size in tensor.sizes.items()}
            example = self._recorder.examples.like(tensor.example)
        made = proxies[id(tensor)] = TensorProxy.make(self._recorder, example, node, sizes=sizes)
        return made

    def _given(self, value: Any, copied: dict[Node, Node], dims: dict[int, Dim], proxies: dict[int, Any]) -> Any:
        if type(value) is tuple:
            return tuple([self._given(item, copied, dims, proxies) for item in value])
        if type(value) is TensorProxy:
            return self._proxy(value, copied, dims, proxies)
        return proxies.get(id(value), value)


def _make_of(module: nn.Module) -> Hashable:
    """What modules have in common that may be alike: their classes, and the shapes of their parameters."""
    with torch._C.DisableTorchFunction():
        return tuple(
            [
                (type(each), *[tensor.shape for tensor in each._parameters.values() if tensor is not None])
                for each in module.modules()
            ]
        )


class _Copying:
    """The nodes and the calls of modules of one call, made for another module."""

    def __init__(self, call: _Call, path: str, scope: Scope, copied: dict[Node, Node], counts: dict[str, int]) -> None:
        self._call, self._path, self._counts = call, path, counts
        self._copied = copied
        self._own = f"{call.path}."
        self._scopes: dict[Scope, Scope] = {call.scope: scope}
        self._names: dict[str, str] = {}

    def path(self, path: str) -> str:
        """The path of a module or attribute of the first module, in the other."""
        if path.startswith(self._own):
            return f"{self._path}.{path[len(self._own) :]}"
        return self._path if path == self._call.path else path

    def node(self, graph: Graph, node: Node, wish: str | None) -> Node:
        """Copy a node."""
        copied = self._copied
        args = tuple([self._argument(arg) for arg in node._args])
        kwargs = {key: self._argument(arg) for key, arg in node._kwargs.items()} if node._kwargs else None
        target = self.path(node._target) if node._op in ("get_attr", "call_module") else node._target  # type: ignore[arg-type]
        made = graph.create_node(node._op, target, args, kwargs, wish, node.type)
        if node._meta is not None:
            made._meta = node._meta.copy()
        made._origin = self._site(node._origin)
        copied[node] = made
        return made

    def _argument(self, argument: Any) -> Any:
        kind = type(argument)
        if kind is Node:
            return self._copied.get(argument, argument)
        if kind in ATOMS:
            return argument
        if kind is Graph:
            return self._body(argument)
        return map_arg(argument, lambda node: self._copied.get(node, node))

    def _body(self, body: Graph) -> Graph:
        """Copy the body of a branch or loop."""
        made = Graph()
        names = {old.name: new.name for old, new in self._copied.items()}
        for node in body.nodes:
            name = names.get(node.name, node.name) if node.op == "placeholder" else node.name
            copied = self.node(made, node, name)
            if node.op == "placeholder" and node._target == node.name:
                copied._target = copied.name
        return made

    def _site(self, origin: Any) -> Any:
        if type(origin) is not CallSite:
            return origin
        return CallSite(origin.code, origin.instruction, self._scope(origin.scope), origin.is_whole)

    def _scope(self, scope: Scope) -> Scope:
        """The call of a module inside, or the one around all."""
        known = self._scopes.get(scope)
        if known is None:
            if scope.outer is None or not self._is_inside(scope):
                return scope
            path = self.path(scope.path)
            count = self._counts.get(path, 0) + scope.call - self._call.before.get(scope.path, 0)
            known = self._scopes[scope] = Scope(path, scope.kind, count, self._scope(scope.outer))
        return known

    def _is_inside(self, scope: Scope | None) -> bool:
        while scope is not None and scope is not self._call.scope:
            scope = scope.outer
        return scope is not None

    def finish(self) -> None:
        """Note what each call inside got and gave."""
        for old, new in list(self._scopes.items()):
            if old is not self._call.scope:
                (args, kwargs), copied = old.passed, self._copied
                new.passed = _renamed(args, copied), {name: _renamed(value, copied) for name, value in kwargs.items()}
                new.given = _renamed(old.given, copied)
                new.site = self._site(old.site)


class _Matched:
    """The arguments of one call as those of another: tensors of the same kinds, the same being the same in both."""

    def __init__(self) -> None:
        self.nodes: dict[Node, Node] = {}
        self.dims: dict[int, Dim] = {}  # by id
        self.leaves: dict[int, Any] = {}  # by id
        self._ones: list[TensorProxy] = []
        self._others: dict[int, Any] = {}
        self._other_dims: dict[int, Dim] = {}

    def exchanged(self) -> list[TensorProxy]:
        """The tensors of the one call that are others in the other."""
        return [one for one in self._ones if self.leaves[id(one)] is not one]

    def match(self, one: Any, other: Any) -> None:
        """Match two arguments. Raises _Unlike."""
        kind = type(one)
        if kind is not type(other):
            raise _Unlike
        if kind is tuple:
            if len(one) != len(other):
                raise _Unlike
            for pair in zip(one, other, strict=True):
                self.match(*pair)
        elif kind is TensorProxy:
            self._match_tensors(one, other)
        elif kind in ATOMS:
            if one != other or repr(one) != repr(other):
                raise _Unlike
        elif (symbol := symbol_of(one)) is not None:
            if symbol is not symbol_of(other):
                raise _Unlike
            for dim in _dims_of(symbol):
                self._match_sizes(dim, dim)
        elif isinstance(one, _PLAIN):
            if one != other or kind is torch.device:
                raise _Unlike
        elif one is not other or not isinstance(one, torch.Tensor | type):
            raise _Unlike

    def _match_tensors(self, one: TensorProxy, other: TensorProxy) -> None:
        if id(one) in self.leaves or id(other) in self._others:
            if self.leaves.get(id(one)) is not other or self._others.get(id(other)) is not one:
                raise _Unlike
            return
        self.leaves[id(one)], self._others[id(other)] = other, one
        self._ones.append(one)
        if one is not other and not (_is_plain(one) and _is_plain(other)):
            raise _Unlike
        with torch._C.DisableTorchFunction():
            if one is not other and _facts(one.example) != _facts(other.example):
                raise _Unlike
            for dim, size in one.sizes.items():
                self._match_sizes(size, size_of(other, dim))
        node, its = one.node_of(), other.node_of()
        if self.nodes.setdefault(node, its) is not its:
            raise _Unlike

    def _match_sizes(self, one: int | Dim, other: int | Dim) -> None:
        if type(one) is not Dim or type(other) is not Dim:
            if one != other or type(one) is not type(other):
                raise _Unlike
            return
        if self.dims.setdefault(id(one), other) is not other or self._other_dims.setdefault(id(other), one) is not one:
            raise _Unlike


def _dims_of(symbol: Symbol) -> Iterator[Dim]:
    """The sizes of tensors that a number is computed from."""
    if type(symbol.dim) is Dim:
        yield symbol.dim
    for arg in symbol.args:
        if isinstance(arg, Symbol):
            yield from _dims_of(arg)


def _of_dim(size: int | Dim, dims: dict[int, Dim]) -> int | Dim:
    """A size of the copied call: as it is passed, or one that is not known to be another's."""
    if type(size) is not Dim:
        return size
    known = dims.get(id(size))
    if known is None:
        known = dims[id(size)] = Dim(size.hint)
    return known


def _leaves(value: Any) -> list[Any]:
    """The leaves of what a call may get and give: nothing that it may change. Raises _Unlike for all else."""
    if type(value) is tuple:
        return [leaf for item in value for leaf in _leaves(item)]
    if type(value) in ATOMS or isinstance(value, (torch.Tensor, *_PLAIN)) or symbol_of(value) is not None:
        return [value]
    raise _Unlike


def _proxies(value: Any) -> Iterator[TensorProxy]:
    return (leaf for leaf in leaves(value) if type(leaf) is TensorProxy)


def _is_plain(proxy: TensorProxy) -> bool:
    """Tell whether a tensor is one whatever happens: never None, no number, of one form in all iterations."""
    return proxy.optional is None and proxy.is_none is False and not (proxy.is_mixed or proxy.mixed_at or proxy.loose)


def _facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """All that a program may ask of a tensor, its data and who it is aside."""
    if tensor.layout is not torch.strided:
        raise _Unlike
    return (
        type(tensor), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.device,
        tensor.requires_grad, tensor.is_leaf, tensor.is_inference(), tensor.is_conj(), tensor.is_neg(),
        tensor.is_quantized,
    )  # fmt: skip


def _memory(proxy: TensorProxy) -> int | None:
    with torch._C.DisableTorchFunction():
        example = proxy.example
        return example.untyped_storage()._cdata if example.layout is torch.strided else None


def _renamed(value: Any, copied: dict[Node, Node]) -> Any:
    if type(value) is Node:
        return copied.get(value, value)
    return tuple([_renamed(item, copied) for item in value]) if type(value) is tuple else value


def _copied(held: Any) -> Any:
    return held.copy() if isinstance(held, dict | list) else held


def _is_at(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}.")


def _paths_of(plan: Any) -> Iterable[str]:
    """The paths of modules and attributes about which the plan knows something."""
    yield from (path for path in plan.entered)
    yield from (path for path in plan.outlined if isinstance(path, str))
    yield from (name.removeprefix("self.") for name in plan.dynamic)
    yield from (path for path, _ in plan.in_place)
    yield from (path for path, _ in plan.kept)
