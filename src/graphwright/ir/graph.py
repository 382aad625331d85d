"""The graph: an ordered, editable list of nodes."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal

from graphwright.errors import GraphError, MissingAttributeError
from graphwright.ir.arguments import ATOMS, EMPTY_KWARGS, immutable_dict
from graphwright.ir.names import Namespace, candidate_for, is_reserved
from graphwright.ir.node import (
    OPCODES,
    Argument,
    Node,
    Target,
    bodies_of,
    check_target,
    freeze,
    map_arg,
    nodes_in,
)
from graphwright.ir.order import place

_new_node = Node.__new__


class NodeList:
    """The nodes of a graph in order: a view, safe to iterate while nodes are inserted, moved or erased."""

    __slots__ = ("_direction", "_graph")

    def __init__(self, graph: Graph, direction: Literal["_next", "_prev"] = "_next") -> None:
        self._graph = graph
        self._direction = direction

    def __len__(self) -> int:
        return self._graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        if self._direction == "_next":
            node = root._next
            while node is not root:
                if node._position is not None:  # else erased while we stood on it: its links still lead on
                    yield node
                node = node._next
        else:
            node = root._prev
            while node is not root:
                if node._position is not None:
                    yield node
                node = node._prev

    def now(self) -> list[Node]:
        """List the nodes as they are now: in one walk, where many are gone over."""
        nodes = self._graph._nodes_now()
        return nodes if self._direction == "_next" else nodes[::-1]

    def __reversed__(self) -> Iterator[Node]:
        return iter(NodeList(self._graph, "_prev" if self._direction == "_next" else "_next"))

    def __repr__(self) -> str:
        return f"NodeList({list(self)})"


class _InsertPoint:
    """The place where a graph puts new nodes; leaving the `with` block restores the one before."""

    __slots__ = ("_before", "_graph")

    def __init__(self, graph: Graph, point: tuple[Node, bool]) -> None:
        self._graph = graph
        self._before = graph._point
        graph._point = point

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        point, after = self._before
        while point._position is None:  # erased meanwhile: go on before what came after it
            point, after = point._next, False
        self._graph._point = point, after


class Graph:
    """An ordered list of nodes that describes a program.

    New nodes go to the end, or to where `inserting_before` and `inserting_after` say. Every edit advances
    `version` and tells the modules built from the graph that their code is out of date.

    >>> import operator
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(operator.add, (x, 1))
    >>> _ = graph.output(y)
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})
        return add
    """

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: type[Any] | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self.constants: dict[str, Any] = {}  # what get_attr nodes read that no module has, by name
        self.version = 0
        self.has_bodies = False  # whether a node ever held the graph of a branch or loop
        self._len = 0
        self._namespace = Namespace()
        self._unnamed: list[Node] = []  # nodes in creation order whose names nobody asked for yet
        self._index: dict[tuple[str, Target], dict[Node, None]] | None = None  # made by the first find_nodes
        self._watchers: list[Callable[[], None]] | None = None  # told of the next edit, once
        self._logs: list[weakref.ref[Any]] = []  # edit logs, told of every edit; with one, there are always watchers
        self._writer: Any = None  # how users want it written as code, None for the ordinary way; codegen knows
        self._meta: dict[str, Any] | None = None
        self._hooks: Any = None  # lists of functions to call: `create(node)`, `erase(node)`, `replace(old, new, user)`
        self._root = root = _new_node(Node)  # closes the ring; never yielded
        root.graph = self
        root._op, root._target, root._name = "root", "root", "root"
        root._args, root._kwargs, root.users = (), EMPTY_KWARGS, {}
        root._meta = root._origin = root.type = None
        root._position = 0.0
        root._prev = root._next = root
        self._point: tuple[Node, bool] = (root, False)  # (node, True): after it; (node, False): before it

    # ---- reading

    @property
    def nodes(self) -> NodeList:
        """The nodes in order."""
        return NodeList(self)

    @property
    def meta(self) -> dict[str, Any]:
        """What passes remember about the graph as a whole, by key."""
        if self._meta is None:
            self._meta = {}
        return self._meta

    def _nodes_now(self) -> list[Node]:
        """List the nodes as they are now."""
        root = self._root
        nodes = []
        node = root._next
        while node is not root:
            nodes.append(node)
            node = node._next
        return nodes

    def output_node(self) -> Node:
        """Return the output node, which is the last one. Raises AssertionError where that is another node."""
        last = self._root._prev
        if last._op != "output":
            raise AssertionError(f"Expected output node, got op={last._op}: add one by graph.output(value)")
        return last

    def placeholders(self) -> list[Node]:
        """Return the placeholders: the inputs of the graph, in the order in which they are given."""
        node, found = self._root._next, []
        while node is not self._root:
            if node._op == "placeholder":
                found.append(node)
            node = node._next
        return found

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """Return the nodes of one opcode and, where given, one target; "call_function" needs one.

        `sort=False` saves putting them in graph order. The first call with a target indexes the graph, O(n); the
        index is then kept up to date, and a call costs as much as it finds.
        """
        if target is None:
            if op == "call_function":
                raise AssertionError("target must not be None for call_function op: say which function")
            found, root = [], self._root
            node = root._next
            while node is not root:
                if node._op == op:
                    found.append(node)
                node = node._next
            return found
        if self._index is None:
            self._index = _indexed(self._nodes_now())
        found = list(self._index.get(_index_key(op, target), ()))
        if sort:
            found.sort(key=_position_of)
        return found

    # ---- making nodes

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Make a node at the insert point and return it.

        `name` is a wish: the node gets it, or it with a number where it is taken or reserved. Without one the
        name comes from the target. Raises GraphError for an unknown opcode, a target of the wrong kind or an
        argument that belongs to another graph; the graph is then as it was.
        """
        if op not in OPCODES:
            raise AssertionError(f"op {op!r} is not in _legal_ops: {', '.join(sorted(OPCODES))}")
        if not callable(target) if op == "call_function" else type(target) is not str:
            check_target(op, target)
        if args is None:
            args = ()
        elif type(args) is not tuple:
            if not isinstance(args, tuple):
                raise AssertionError(f"args must be a tuple, got {type(args)}")
            args = tuple(args)
        if kwargs is not None and type(kwargs) is not dict and not isinstance(kwargs, Mapping):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        if name is not None and not isinstance(name, str):
            raise AssertionError(f"name must be a str, got {type(name)}")
        node = _new_node(Node)
        node.graph = self
        node._target = target
        node.users = {}
        node.type = type_expr
        node._op = op
        node._name = node._meta = node._origin = None
        node._kwargs = self._read_keywords(node, kwargs) if kwargs else EMPTY_KWARGS
        for arg in args:
            if type(arg) is Node and arg.graph is self and arg._position is not None:
                arg.users[node] = None
            elif type(arg) not in ATOMS:
                args = self._read_nested(node, args)
                break
        node._args = args
        if name is None:
            self._unnamed.append(node)
        else:
            if self._unnamed:
                self._make_names()
            node._name = self._namespace.create(name)
        # Link it in: at the end, where nearly all nodes are made, without a call.
        point, after = self._point
        if after:
            before, point = point, point._next
        else:
            before = point._prev
        node._prev, node._next = before, point
        before._next = point._prev = node
        if point is self._root and before is not point:
            node._position = before._position + 1.0  # type: ignore[operator]
        else:
            place(node, self._root)
        self._len += 1
        if self._index is not None:
            self._index.setdefault(_index_key(op, target), {})[node] = None
        self.version += 1
        if self._watchers is not None:
            self._tell_watchers(node)
        if self._hooks is not None:
            for tell in self._hooks.create:
                tell(node)
        return node

    def _read_keywords(self, node: Node, kwargs: Mapping[str, Argument]) -> immutable_dict:
        """Make keyword arguments immutable and a new node their user."""
        frozen = immutable_dict({key: freeze(item, node) for key, item in kwargs.items()})
        for used in nodes_in(frozen):
            used.users[node] = None
        return frozen

    def _read_nested(self, node: Node, args: tuple[Argument, ...]) -> tuple[Argument, ...]:
        """Make arguments immutable and a new node their user; of refused ones, and of its others, it is none."""
        try:
            args = tuple([freeze(item, node) for item in args])
        except BaseException:
            for used in nodes_in((args, node._kwargs)):
                used.users.pop(node, None)
            raise
        for used in nodes_in(args):
            used.users[node] = None
        return args

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """Make an input. `default_value` left out (`...`, or inspect's `empty`) means a required input."""
        has_default = default_value is not ... and getattr(default_value, "__name__", "") != "_empty"
        args = (default_value,) if has_default else ()
        return self.create_node("placeholder", name, args, None, None, type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Make a node that reads an attribute of the owning module by dotted path.

        Warns where the owning module has no parameter, buffer or module there.
        """
        if self.owning_module is not None:
            _warn_unless_registered(self.owning_module, qualified_name)
        return self.create_node("get_attr", qualified_name, (), None, None, type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Make a node that calls a submodule by dotted path; raises AttributeError where the owning module has none."""
        if self.owning_module is not None:
            try:
                self.owning_module.get_submodule(module_name)
            except AttributeError as error:
                raise MissingAttributeError(str(error), fix="add it first: gm.add_submodule(name, module)") from None
        return self.create_node("call_module", module_name, args, kwargs, None, type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Make a node that calls a method of its first argument."""
        return self.create_node("call_method", method_name, args, kwargs, None, type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Make a node that calls a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Make the output: the value, or nested containers of values, that the program returns."""
        return self.create_node("output", "output", (result,), None, None, type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda node: node) -> Node:
        """Copy a node, usually of another graph, to here; `arg_transform` maps the nodes that it reads."""
        copied = self.create_node(
            node._op,
            node._target,
            own_bodies(map_arg(node._args, arg_transform)) if bodies_of(node) else map_arg(node._args, arg_transform),
            map_arg(node._kwargs, arg_transform),
            node.name,
            node.type,
        )
        if node._meta is not None:
            copied._meta = copy.copy(node._meta)
        copied._origin = node._origin
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Argument], return_output_node: bool = False
    ) -> Argument | tuple[Argument, Node] | None:
        """Copy all nodes of `g` to here; `val_map` maps nodes of `g` to values here and gains the copied ones.

        Nodes that `val_map` already holds are not copied. The output node is not copied either: what it returns
        is the result, with the output node itself if `return_output_node`.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node._op == "output":
                result = map_arg(node._args[0], val_map.__getitem__)
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def all_graphs(self) -> Iterator[Graph]:
        """Iterate over this graph and the bodies of its branches and loops, theirs included, outermost first."""
        yield self
        for node in self.nodes if self.has_bodies else ():
            for arg in node._args:
                if type(arg) is Graph:
                    yield from arg.all_graphs()

    def all_nodes(self) -> Iterator[Node]:
        """Iterate over the nodes of this graph and of the bodies inside it."""
        for graph in self.all_graphs():
            yield from graph.nodes

    def _dissolve(self) -> None:
        """Empty a graph that nobody has any more, and its bodies: its nodes go at once, not when they are collected."""
        for graph in list(self.all_graphs()):
            root = graph._root
            for node in graph._nodes_now():
                node._args, node._kwargs, node.users = (), EMPTY_KWARGS, {}
                node._prev = node._next = root
                node._position = None
            root._prev = root._next = root
            graph._point, graph._unnamed, graph._index, graph._len = (root, False), [], None, 0

    def all_nodes_now(self) -> list[Node]:
        """List the nodes of this graph and of the bodies inside it as they are now: several times as fast."""
        nodes: list[Node] = []
        waiting = [self]
        while waiting:
            graph = waiting.pop()
            first, root = len(nodes), graph._root
            node = root._next
            while node is not root:
                nodes.append(node)
                node = node._next
            if graph.has_bodies:
                waiting += [
                    arg for node in reversed(nodes[first:]) for arg in reversed(node._args) if type(arg) is Graph
                ]
        return nodes

    # ---- editing

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Put new nodes before `n` while the `with` block lasts; without `n`, each directly at the beginning."""
        return _InsertPoint(self, (self._root, True) if n is None else (self._own(n), False))

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Put each new node directly after `n` while the `with` block lasts; without `n`, at the end.

        Several nodes made in one block thus come out in reverse order; each of them is directly after `n`.
        """
        return _InsertPoint(self, (self._root, False) if n is None else (self._own(n), True))

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node. Raises GraphError while other nodes still read its value."""
        if to_erase.graph is not self:
            raise GraphError(f"Attempting to remove {to_erase} from wrong graph", at=to_erase.origin)
        if to_erase.users:
            raise GraphError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{', '.join(user.name for user in to_erase.users)}",
                at=to_erase.origin,
                fix="replace_all_uses_with(another value) first",
            )
        if to_erase._position is None:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        if self._hooks is not None:
            for tell in self._hooks.erase:
                tell(to_erase)
        for arg in to_erase._args:
            kind = type(arg)
            if kind is Node:
                arg.users.pop(to_erase, None)
            elif kind not in ATOMS:
                for used in nodes_in(arg):
                    used.users.pop(to_erase, None)
        if to_erase._kwargs:
            for used in nodes_in(to_erase._kwargs):
                used.users.pop(to_erase, None)
            to_erase._kwargs = EMPTY_KWARGS
        to_erase._args = ()
        self._unlink(to_erase)

    def _unlink(self, node: Node) -> None:
        """Take a node out of the order."""
        if self._point[0] is node:
            self._point = (node._next, False)
        if self._index is not None:
            self._index[_index_key(node._op, node._target)].pop(node, None)
        node._prev._next, node._next._prev = node._next, node._prev
        node._position = None
        self._len -= 1
        self._edited(node)

    def _move(self, node: Node, before: Node) -> None:
        """Move a node to just before another one, or to the end where that is the root."""
        self._own(node)
        if before is not self._root:
            self._own(before)
        if node is before:
            return
        node._prev._next, node._next._prev = node._next, node._prev
        node._prev, node._next = before._prev, before
        before._prev._next = node
        before._prev = node
        place(node, self._root)
        self._edited(node)

    def _own(self, node: Node) -> Node:
        if node.graph is not self:
            raise AssertionError(f"Node {node} is not in graph: the node to insert or move at must be of this one")
        if node._position is None:
            raise GraphError(f"{node} was erased from the graph", at=node.origin)
        return node

    def _edited(self, node: Node | None = None) -> None:
        """Count an edit, of one node or of what may concern all."""
        self.version += 1
        if self._watchers is not None:
            self._tell_watchers(node)

    def _tell_watchers(self, node: Node | None) -> None:
        watchers = self._watchers
        logs = self._logs = [log for log in self._logs if log() is not None]
        self._watchers = [] if logs else None
        for log in logs:
            log().note(node)  # type: ignore[union-attr]
        for tell in watchers or ():
            tell()

    def _tell_of_replacement(self, old: Node, new: str, users: list[Node]) -> None:
        if self._hooks is not None:
            for user in users:
                for tell in self._hooks.replace:
                    tell(old=old, new=new, user=user)

    def _watch(self, tell: Callable[[], None]) -> None:
        """Call `tell` at the next edit."""
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(tell)

    def _keep_log(self, log: Any) -> None:
        """Have every edit noted in a log for as long as it lives."""
        self._logs.append(weakref.ref(log))
        if self._watchers is None:
            self._watchers = []

    def _before_retarget(self, node: Node) -> None:
        if node._name is None:
            self._make_names()  # a name comes from what the node was when it was made
        if self._index is not None:
            self._index[_index_key(node._op, node._target)].pop(node, None)

    def _after_retarget(self, node: Node) -> None:
        if self._index is not None:
            self._index.setdefault(_index_key(node._op, node._target), {})[node] = None
        self._edited(node)

    # ---- names

    @property
    def _owning_module(self) -> Any:
        return self.owning_module

    @property
    def _graph_namespace(self) -> Namespace:
        if self._unnamed:
            self._make_names()
        return self._namespace

    def _target_to_str(self, target: Target) -> str:
        """The name that a value made by this target starts from."""
        return candidate_for(target)

    def _make_names(self) -> None:
        """Name all waiting nodes in the order they were made: the names that naming at once would have given."""
        create = self._namespace.create
        waiting, self._unnamed = self._unnamed, []
        for node in waiting:
            node._name = create(candidate_for(node._target))

    def _rename(self, node: Node, name: str) -> None:
        if node.name == name:
            return
        if not (name.isidentifier() and name.isascii()) or is_reserved(name):
            raise GraphError(
                f"{name!r} is not a legal name for a value",
                at=node.origin,
                fix="use letters, digits and underscores, and no keyword or builtin",
            )
        if name in self._namespace and any(other._name == name for other in self.nodes):  # all have one by now
            raise GraphError(f"the name {name!r} is taken by another value of this graph", at=node.origin)
        self._tell_of_replacement(node, name, list(node.users))
        self._namespace.take(name)
        node._name = name
        self._edited(node)

    def _call_again(self, node: Node, wish: str) -> None:
        """Give a node that was just made another name, or that name with a number."""
        if self._unnamed:
            self._make_names()
        self._namespace.take_back(node.name)
        node._name = self._namespace.create(wish)

    def _hand_over_name(self, node: Node, new: Node) -> None:
        """Give a node that was just made the name of another one, which is about to go."""
        if new._name is None:
            self._unnamed.remove(new)  # as if it had never waited for a name
        else:
            self._namespace.release(new._name)
        new._name = node.name

    # ---- checking, printing and copying: methods.py binds these, each from the file of its own that it has

    lint: Callable[[], None]
    print_tabular: Callable[[], None]


def own_bodies(args: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Copy the bodies among the arguments of a copied node: two nodes never share one."""
    return tuple([copy.deepcopy(arg) if type(arg) is Graph else arg for arg in args])


def _warn_unless_registered(owner: Any, path: str) -> None:
    """Warn where a dotted path leads to no parameter, buffer or module of the owning module."""
    where, _, name = path.rpartition(".")
    try:
        home = owner.get_submodule(where)
    except AttributeError:
        warnings.warn(f"Failed to fetch module {where}!", stacklevel=3)
    else:
        if any(name in registered for registered in (home._parameters, home._buffers, home._modules)):
            return
    warnings.warn(
        "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! "
        f"{path!r} is no module, parameter or buffer of it: add it by add_submodule, register_parameter or "
        "register_buffer",
        stacklevel=3,
    )


def _indexed(nodes: list[Node]) -> dict[tuple[str, Target], dict[Node, None]]:
    """Nodes by opcode and target."""
    index: dict[tuple[str, Target], dict[Node, None]] = {}
    for node in nodes:
        try:
            index.setdefault((node._op, node._target), {})[node] = None
        except TypeError:
            index.setdefault(_index_key(node._op, node._target), {})[node] = None
    return index


def _index_key(op: str, target: Target) -> tuple[str, Any]:
    try:
        hash(target)
    except TypeError:
        return op, id(target)  # the node keeps it alive
    return op, target


def _position_of(node: Node) -> float:
    return node._position  # type: ignore[return-value]
