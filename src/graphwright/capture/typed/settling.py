"""Ranks and dtypes that a program read, followed to what they follow from: inputs, and operations that data decides.

The rank of `linear(x)` is that of `x`, and `x` is what a guard can name. Where the rank of a value does not follow from
ranks alone - `squeeze` looks at sizes, and nobody knows what an opaque call gives - it is checked where the value is
made.

A fact that is a set of dtypes says that each of them is as good as the example's: all that is asked has the same answer
for them. A sum of tensors of such dtypes has one of them, too, so the inputs may have any. Behind an operation of which
that is not known the dtype is the example's, and so it is of inputs that had no dtype of the set.

The fact "index" is the dtype of what is an index: whole numbers or truths, which `torch.autocast` leaves as they are.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.calls.result_dtypes import GIVES_DTYPE, GIVES_NO_FLOATS, LIKE_OPERANDS, gives_places, promotes
from graphwright.capture.effects.alike_modules import is_below
from graphwright.capture.outside.made_tensors import PUT_IN
from graphwright.capture.proxies.calls_as_written import name_of_target, reshaped_argument
from graphwright.capture.proxies.contents import HOLDERS
from graphwright.capture.proxies.tensor_names import Row, row_of
from graphwright.hierarchy import CopiedCall, copied_call, instead_of, path_of
from graphwright.ir import Graph, Node, nodes_in
from graphwright.ops import (
    gives_several,
    is_region,
    read_variable,
    results_of,
    values_for,
    write_attribute,
    write_variable,
    written_and_given,
)
from graphwright.runtime import expect, expect_class
from graphwright.source import CallSite

if TYPE_CHECKING:
    from graphwright.capture.state.ledger import Fact, Read, Unforeseen
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.ir import Target

_NUMBERS = frozenset({Row.SIZES, Row.RANK, Row.DTYPE, Row.FACT, Row.DATA})
# What gives the shape that it is told, whatever the rank is of what it is called with.
_SHAPED = frozenset({
    "view", "reshape", "expand", "view_as", "reshape_as", "expand_as", "new_zeros", "new_ones", "new_empty", "new_full",
    "as_strided",
})  # fmt: skip


_ITEMS = ("__getitem__", "get", "setdefault")


def _kind(fact: Fact) -> str:
    """What is asked: the dtype, or another fact by its name."""
    return fact if isinstance(fact, str) and fact != "index" else "dtype"


def _variable(node: Node) -> tuple[Any, Any]:
    """What tells a variable that a node reads or writes from others: whose it is, which may have no hash, its name."""
    owner, name = node.args[:2]
    return owner if isinstance(owner, str) else id(owner), name


def _makes_holder(node: Node) -> bool:
    """Tell whether a node makes a container: of its class, or `[None] * n`."""
    if node.target is operator.mul or node.target is operator.add:
        return any(isinstance(arg, list) for arg in node.args)
    return any(node.target is kind for kind in HOLDERS)


def _gives_item(node: Node) -> bool:
    """Tell whether a node gives an item of a container, if it is called on one."""
    return node.target is operator.getitem or (node.op == "call_method" and node.target in _ITEMS)


class Settling:
    """What is asked of each input, by path: found by going back from what was read, through all that it comes from."""

    def __init__(
        self,
        recorder: TypedCapture,
        nodes: Mapping[Node, str],
        proxies: Mapping[int, str],
        tensors: Mapping[str, torch.dtype],
    ) -> None:
        self._recorder = recorder
        self._nodes = nodes  # of inputs: the path of each
        self._proxies = proxies  # likewise, by id
        self._tensors = tensors  # the dtypes of the tensors among the inputs, by path
        copies = [(made, copied) for made in recorder.copied_calls if (copied := copied_call(made)) is not None]
        self._originals = {new: old for _, copied in copies for old, new in copied.results.items()}
        # The copied calls of which a node is in the original, each with what it uses instead.
        self._in_copies: dict[Node, list[tuple[CopiedCall, dict[Node, Node]]]] = {}
        for made, copied in copies:
            of_original = self._in_copies.setdefault(copied.nodes[0], [])
            if not of_original:
                self._in_copies |= dict.fromkeys(copied.nodes, of_original)
            of_original.append((copied, instead_of(made)))
        self._seen: dict[Node, set[Fact]] = {}
        self._at = ""  # the line that read what is followed now
        self._places: dict[tuple[Node, Fact], str] = {}  # the line that read what each node is asked for
        self._todo: list[tuple[Node, Fact]] = []
        self._owners: dict[Graph, Node] | None = None
        self.found: dict[str, set[Fact]] = {}

    def follow(self, reads: Iterable[Read]) -> None:
        """Follow what was read of tensors to the inputs."""
        for read in reads:
            path, node, self._at = self._proxies.get(id(read.tensor)), read.tensor._node, read.at
            if path is not None:
                self._note(path, read.fact)
            if node is not None:
                self._mark(node, read.fact)
            elif path is None:  # a tensor that nothing has computed yet, or whose attribute no node reads
                self._note_all(read.fact)
                for written in self._written:
                    self._recorder.ledger.of_kept.setdefault(written, set()).add(read.fact)
        while self._todo:
            node, fact = self._todo.pop()
            self._at = self._places[node, fact]
            self._go_back(node, fact)

    def _mark(self, node: Node, fact: Fact) -> None:
        seen = self._seen.setdefault(node, set())
        if fact not in seen:
            seen.add(fact)
            self._todo.append((node, fact))
            self._places[node, fact] = self._at

    def _note(self, path: str, fact: Fact) -> None:
        if fact == "index" or not (isinstance(fact, str) or self._tensors.get(path) in fact):  # else a number's class
            fact = "dtype"
        self.found.setdefault(path, set()).add(fact)

    def _note_all(self, fact: Fact) -> None:
        for path in self._tensors:
            self._note(path, fact)

    def _go_back(self, node: Node, fact: Fact) -> None:
        original = self._originals.get(node)
        if original is not None:
            self._mark(original, fact)
            return
        measure = self._measure(node)
        if measure is not None:  # no tensor
            # What it tells is what something is made with: `.to(x.dtype)`; a number is of the class of its dtype.
            if measure == _kind(fact):
                self._mark_used(node, node.all_input_nodes, fact)
            elif measure in ("item", "tolist") and _kind(fact) == "dtype":
                self._mark_used(node, node.all_input_nodes, "dtype")
            return
        for user in node.users:  # the tensor may be what something else makes of it
            reshaped = reshaped_argument(user._target, user._args, user._kwargs)
            if reshaped is not None and node in nodes_in(reshaped):
                self._mark_used(user, user.all_input_nodes, fact)
        for value in self._put_into(node):
            self._mark(value, fact)
        path = self._nodes.get(node)
        found = self._recorder.ledger.unforeseen.get(node)
        if found is not None and _kind(fact) in found.facts:
            self._check(node, fact, found)
            if not found.was_there:
                return
        if path is not None:
            self._note(path, fact)
        elif node.op == "placeholder":  # of the body of a branch or loop
            owner = self._owner(node.graph)
            if owner is not None:
                used = nodes_in(values_for(owner, node)) if is_region(owner) else owner.all_input_nodes
                self._mark_used(owner, used, fact)
            else:  # a container among the inputs
                self._note_all(fact)
        elif node.op == "get_attr":
            self._take_held(node, str(node.target), fact)
        elif node.target is read_variable:
            for value in self._written.get(_variable(node), ()):
                self._mark(value, fact)
        else:
            self._pass_on(node, fact)

    def _put_into(self, node: Node) -> list[Node]:
        """What the program puts into the container that a node is, or is an item of, if the program makes that."""
        root: Node | None = node
        while root is not None and not _makes_holder(root):
            if _gives_item(root):
                root = root.args[0] if isinstance(root.args[0], Node) else None
            elif root.op == "placeholder" and (owner := self._owner(root.graph)) is not None and is_region(owner):
                root = next(iter(nodes_in(values_for(owner, root))), None)
            else:
                root = None
        found, waiting = list[Node](), [] if root is None else [root]
        for holder in waiting:  # which gets more: what stands for it in bodies, and containers in it
            for user in holder.users:
                if is_region(user):
                    bodies = [body for body in user.args if isinstance(body, Graph)]
                    given = [each for body in bodies for each in body.placeholders()]
                    waiting += [each for each in given if holder in nodes_in(values_for(user, each))]
                elif user.args and user.args[0] is holder:
                    waiting += [user] if _gives_item(user) else []
                    if any(user.target == put for put in PUT_IN):
                        found += [*nodes_in(user.args[1:]), *nodes_in(user.kwargs)]
        return found

    def _measure(self, node: Node) -> str | None:
        """What a node tells of a tensor; for all but its dtype and device, its number is another question."""
        name = node.args[1] if node.target is getattr and len(node.args) > 1 else name_of_target(node.target)
        return str(name) if node.op in ("call_function", "call_method") and row_of(str(name)) in _NUMBERS else None

    def _pass_on(self, node: Node, fact: Fact) -> None:
        kind = _kind(fact)
        module = self._module(node)
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and fact != "rank":  # looks tensors up by numbers
            self._take_held(node, f"{node.target}.weight", fact)
            return
        name = name_of_target(node.target) if module is None else type(module).__name__.lower()
        if node.target is operator.getitem and self._is_item_of_region(node):
            self._mark_used(node.args[0], nodes_in(results_of(*node.args)), fact)
            return
        written = written_and_given(node)
        is_reshaped = reshaped_argument(node.target, node.args, node.kwargs) is not None
        if written is not None and not is_reshaped:  # it is the very tensor
            self._mark_used(node, (written,), fact)
            return
        if kind == "dtype":
            is_one_of_some = not isinstance(fact, str)
            is_told = name in GIVES_DTYPE or name == "finfo" or (is_one_of_some and name in GIVES_NO_FLOATS)
            if (is_told and module is None) or gives_places(node):
                return
            if name not in LIKE_OPERANDS:
                self._note_autocast(fact)
            if is_one_of_some and not promotes(node, name, module):
                fact = kind
        used = node.all_input_nodes
        if fact == "rank" and name in _SHAPED and not any(isinstance(each, torch.dtype) for each in node.args):
            used = nodes_in((node.args[1:], node.kwargs))
        self._mark_used(node, used, fact)
        if fact == "rank" and node.target is operator.getitem:  # a mask takes another number of dimensions than indices
            self._mark_used(node, [argument for argument in used if argument is not node.args[0]], "index")
        for body in node.args:
            if isinstance(body, Graph):
                for given in body.output_node().all_input_nodes:
                    self._mark(given, fact)

    def _note_autocast(self, fact: Fact) -> None:
        """An operation gives what `torch.autocast` casts to, or float32, where it is on."""
        ledger = self._recorder.ledger
        if fact == "dtype" or (not isinstance(fact, str) and torch.float32 not in fact):
            ledger.asks_autocast = True
        elif not isinstance(fact, str):
            ledger.note_autocast(fact)

    def _is_item_of_region(self, node: Node) -> bool:
        region, index = node.args
        return isinstance(region, Node) and is_region(region) and type(index) is int and gives_several(region)

    def _module(self, node: Node) -> nn.Module | None:
        """The module that is one node."""
        shells = self._recorder.shells
        return (
            None if shells is None or node.op != "call_module" else shells.root_module.get_submodule(str(node.target))
        )

    def _take_held(self, node: Node, path: str, fact: Fact) -> None:
        """Take for granted the dtype or device of a tensor of the modules that a node reads, and those that copies do.

        Not the class, and the rank only of what the program writes itself: to look at each weight of each layer costs
        more than the chance that one gets another is worth.
        """
        if fact == "class":
            return
        paths = [path]
        for copied, _ in self._in_copies.get(node, ()):
            if is_below(path, path_of(copied.original)):
                paths.append(path_of(copied.key) + path[len(path_of(copied.original)) :])
        for each in paths:
            if fact != "rank":
                self._recorder.tensors.take_fact_at(each, "dtype" if fact == "index" else fact, self._at)
            for written, values in self._written.items():
                if isinstance(written, str) and (is_below(each, written) or is_below(written, each)):
                    self._recorder.ledger.of_kept.setdefault(written, set()).add(fact)
                    for value in values:
                        self._mark(value, fact)

    @functools.cached_property
    def _written(self) -> dict[Any, list[Node]]:
        """What the program writes: by the path of the attribute, or the owner and name of the variable, that gets it.

        Or has what gets it inside.
        """
        found: dict[Any, list[Node]] = {}
        for node in self._recorder.root.graph.all_nodes() if self._recorder.plan.kept else ():
            if node.target is write_attribute:
                found.setdefault(str(node.args[0]), []).extend(nodes_in(node.args[1:]))
            elif node.target is write_variable:
                found.setdefault(_variable(node), []).extend(nodes_in(node.args[2:]))
            elif not node.users and node.args and isinstance(holder := node.args[0], Node):
                while holder.target in (operator.getitem, getattr) and isinstance(holder.args[0], Node):
                    holder = holder.args[0]
                if holder.op == "get_attr" or holder.target is read_variable:
                    key = str(holder.target) if holder.op == "get_attr" else _variable(holder)
                    found.setdefault(key, []).extend([*nodes_in(node.args[1:]), *nodes_in(node.kwargs)])
        return found

    def _mark_used(self, user: Node, nodes: Iterable[Node], fact: Fact) -> None:
        """Mark what a node uses, and what copies of it do."""
        for node in nodes:
            self._mark(node, fact)
            for _, instead in self._in_copies.get(user, ()):
                if node in instead:
                    self._mark(instead[node], fact)

    def _check(self, node: Node, fact: Fact, found: Unforeseen) -> None:
        """Check a fact of a value where it is made."""
        graph, made, kind = node.graph, list[Node](), _kind(fact)
        value, last = found.facts[kind], graph.placeholders()[-1] if node.op == "placeholder" else node
        check = expect_class if isinstance(value, type) else expect  # of a number its class

        def add(op: str, target: Target, *args: Any, name: str) -> Node:
            with graph.inserting_after(made[-1] if made else last):
                made.append(graph.create_node(op, target, args, {}, name))
            return made[-1]

        asked = node
        if kind == "rank":
            asked = add("call_method", "dim", node, name=kind)
        elif check is expect:
            asked = add("call_function", getattr, node, kind, name=kind)
        if not isinstance(fact, str) and value in fact:
            dtypes = tuple(sorted(fact, key=str))
            asked, value = add("call_function", operator.contains, dtypes, asked, name="is_one"), True
        add("call_function", check, asked, value, found.at, name="guard")
        for copied, _ in self._in_copies.get(node, ())[:1]:
            copied.add_after(last, made)
        if type(site := node._origin) is CallSite:  # in the call of the module that makes the value
            for each in made:
                each._origin = site.part()

    def _owner(self, graph: Graph) -> Node | None:
        """The branch or loop that a graph is a body of."""
        if self._owners is None:
            nodes = self._recorder.root.graph.all_nodes()
            self._owners = {body: node for node in nodes for body in node.args if isinstance(body, Graph)}
        return self._owners.get(graph)
