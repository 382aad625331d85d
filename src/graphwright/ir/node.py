"""One operation of a graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from graphwright.errors import GraphError, TargetError
from graphwright.ir.arguments import ATOMS, EMPTY_KWARGS, immutable_dict, immutable_list, map_aggregate
from graphwright.ir.meta import EXAMPLES, Meta
from graphwright.ir.node_meta import NodeSource, NodeSourceAction

if TYPE_CHECKING:
    from graphwright.ir.graph import Graph
    from graphwright.ir.origin import Origin

Opcode = Literal["placeholder", "get_attr", "call_function", "call_method", "call_module", "output"]
Target = Callable[..., Any] | str
Argument = Any  # a node, an atom, or a tuple, list, dict or slice of arguments
ArgumentT = TypeVar("ArgumentT", bound=Argument)

OPCODES = frozenset({"placeholder", "get_attr", "call_function", "call_method", "call_module", "output"})


class Node:
    """One operation: what it is (`op`), what it calls (`target`) and what it reads (`args`, `kwargs`).

    Invariant: `a.users` holds `b` exactly when `b.args` or `b.kwargs` mention `a`. Nodes are made by
    their graph (`graph.create_node` and its shorthands), and live in its order.

    - `name`: unique in the graph; the variable in the generated code.
    - `users`: the nodes that read this value, as the keys of a dict, in the order they came to do so.
    - `type`: the annotation of the value, or None.
    - `meta`: whatever passes want to remember about the node.
    - `origin`: where in the user's program the node comes from, or None.
    """

    __slots__ = (
        "__dict__",  # for what tools keep on nodes: `node.tag = ...`; costs a pointer until somebody does
        "__weakref__",
        "_args",
        "_kwargs",
        "_meta",
        "_name",
        "_next",
        "_op",
        "_origin",
        "_position",
        "_prev",
        "_target",
        "graph",
        "type",
        "users",
    )

    graph: Graph
    users: dict[Node, None]
    type: Any
    _args: tuple[Argument, ...]
    _kwargs: Mapping[str, Argument]
    _meta: dict[str, Any] | None
    _name: str | None  # None until somebody asks: the graph then names all waiting nodes in creation order
    _op: str
    _target: Target
    _origin: Any  # an Origin, or what `capture` recorded to make one from, or None
    _position: float | None  # grows along the graph; None once erased
    _prev: Node
    _next: Node

    # `attrgetter` runs in C: reading these costs little more than a slot.
    op = property(attrgetter("_op"), doc="The kind of the operation, one of `OPCODES`.")
    target = property(attrgetter("_target"), doc="What is called or read: a function, a method name or a dotted path.")
    args = property(attrgetter("_args"), doc="The positional arguments; assign a new tuple to change them.")
    kwargs = property(attrgetter("_kwargs"), doc="The keyword arguments; assign a new dict to change them.")

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: Mapping[str, Argument],
        return_type: Any = None,
    ) -> None:
        """Make a node that is no part of the order of its graph, though it counts as a user of what it reads.

        Programs make nodes by `graph.create_node`. Raises TargetError for a target of the wrong kind.
        """
        if op not in OPCODES:
            raise AssertionError(f"op {op!r} is not in _legal_ops: {', '.join(sorted(OPCODES))}")
        check_target(op, target)
        self.graph, self._name, self._op, self._target, self.type = graph, name, op, target, return_type
        self.users = {}
        self._meta = self._origin = None
        self._args, self._kwargs = (), EMPTY_KWARGS
        self._position = float("inf")
        self._prev = self._next = self
        self._read(tuple(args), kwargs)

    # ---- what it is

    @op.setter  # type: ignore[no-redef]
    def op(self, op: str) -> None:
        if op not in OPCODES:
            raise GraphError(f"{op!r} is not an opcode", fix=f"use one of {', '.join(sorted(OPCODES))}")
        self.graph._before_retarget(self)
        self._op = op
        self.graph._after_retarget(self)

    @target.setter  # type: ignore[no-redef]
    def target(self, target: Target) -> None:
        # Whether it is of the opcode's kind is for lint to say: passes assign opcode and target in either order.
        if not (isinstance(target, str) or callable(target)):
            raise GraphError(
                f"Node target {target!r} has type {type(target).__name__} but a str or a Callable is expected",
                at=self.origin,
            )
        self.graph._before_retarget(self)
        self._target = target
        self.graph._after_retarget(self)

    @property
    def name(self) -> str:
        """The value's name, unique in the graph. Assigning a name that another value has raises GraphError."""
        if self._name is None or self.graph._unnamed:
            self.graph._make_names()
        return self._name  # type: ignore[return-value]

    @name.setter
    def name(self, name: str) -> None:
        self.graph._rename(self, name)

    def _rename(self, candidate: str) -> None:
        """Give the value this name, with a number where it is taken."""
        if candidate != self.name:
            self.name = self.graph._namespace.create(candidate)

    @property
    def meta(self) -> Meta:
        """What passes remember about the node, by key; made at first use."""
        meta = self._meta
        if type(meta) is not Meta:
            if meta is None:
                meta = {} if self._origin is None else self._origin.initial_meta()
            meta = self._meta = Meta(meta)
        return meta

    @meta.setter
    def meta(self, meta: dict[str, Any]) -> None:
        self._meta = meta

    @property
    def origin(self) -> Origin | None:
        """Where in the user's program this node comes from: file, line, source text, module path."""
        origin = self._origin
        return None if origin is None else origin.resolve()

    @origin.setter
    def origin(self, origin: Origin | None) -> None:
        self._origin = origin

    @property
    def stack_trace(self) -> str | None:
        """The user's stack when the node was recorded, outermost call first, or None."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    # ---- what it reads

    @args.setter  # type: ignore[no-redef]
    def args(self, args: tuple[Argument, ...]) -> None:
        self._read(tuple(args), self._kwargs)

    @kwargs.setter  # type: ignore[no-redef]
    def kwargs(self, kwargs: Mapping[str, Argument]) -> None:
        self._read(self._args, kwargs)

    def _read(self, args: tuple[Argument, ...], kwargs: Mapping[str, Argument]) -> None:
        """Replace both; the one writer of the use lists of a node that is in its graph."""
        if self._position is None:
            raise GraphError(f"{self.name} was erased: its arguments cannot be changed", at=self.origin)
        new_args = self._frozen(args)  # may raise: nothing has changed yet
        new_kwargs = immutable_dict(zip(kwargs, self._frozen(tuple(kwargs.values())), strict=True)) if kwargs else None
        for node in nodes_in(self._args):
            node.users.pop(self, None)
        if self._kwargs:
            for node in nodes_in(self._kwargs):
                node.users.pop(self, None)
        self._args = new_args
        for node in nodes_in(new_args):
            node.users[self] = None
        if new_kwargs:
            for node in nodes_in(new_kwargs):
                node.users[self] = None
            self._kwargs = new_kwargs
        else:
            self._kwargs = EMPTY_KWARGS
        self.graph._edited(self)

    def _frozen(self, args: tuple[Argument, ...]) -> tuple[Argument, ...]:
        """Make containers immutable, and refuse nodes of other graphs."""
        for arg in args:
            kind = type(arg)
            if kind is Node:
                if arg.graph is not self.graph or arg._position is None:
                    raise foreign_node(arg, self)
            elif kind not in ATOMS and isinstance(arg, tuple | list | dict | slice):
                break
        else:
            return args
        return tuple([freeze(arg, self) for arg in args])

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes that this one reads, each once, in the order of its arguments."""
        inputs: dict[Node, None] = {}
        for arg in (*self._args, *self._kwargs.values()) if self._kwargs else self._args:
            kind = type(arg)
            if kind is Node:
                inputs[arg] = None
            elif kind not in ATOMS:
                inputs.update(dict.fromkeys(nodes_in(arg)))
        return list(inputs)

    def _update_args_kwargs(self, new_args: tuple[Argument, ...], new_kwargs: Mapping[str, Argument]) -> None:
        """Replace all arguments."""
        self._read(tuple(new_args), new_kwargs)

    @property
    def _input_nodes(self) -> dict[Node, None]:
        return dict.fromkeys(self.all_input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace one positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Insert a positional argument before the one at `idx`."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError(f"insert_arg index {idx} must be between 0 and {len(self._args)}")
        if self._position is None:
            raise GraphError(f"{self.name} was erased: its arguments cannot be changed", at=self.origin)
        (inserted,) = self._frozen((arg,))
        self._args = (*self._args[:idx], inserted, *self._args[idx:])
        for node in nodes_in(inserted):
            node.users[self] = None
        self.graph._edited(self)

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replace or add one keyword argument."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Read `new_input` wherever this node reads `old_input`."""
        graph = self.graph
        if graph._hooks is not None and graph._hooks.replace:
            graph._tell_of_replacement(old_input, new_input.name, [self])
        if new_input.graph is not graph or new_input._position is None or not self._swap_flat(old_input, new_input):
            self._swap_nested(old_input, new_input)

    def _swap_flat(self, old: Node, new: Node) -> bool:
        """Read `new` for `old` where every argument is a node or an atom; else do nothing and answer False.

        The use lists change as in `_read`: every value read is left, and read again.
        """
        args = self._args
        if self._kwargs or self._position is None:
            return False
        if len(args) == 1 and args[0] is old:  # as most operations have it
            old.users.pop(self, None)
            self._args = (new,)
            new.users[self] = None
        elif _FLAT.issuperset(map(type, args)):
            for arg in args:
                if type(arg) is Node:
                    arg.users.pop(self, None)
            self._args = args = tuple([new if arg is old else arg for arg in args])
            for arg in args:
                if type(arg) is Node:
                    arg.users[self] = None
        else:
            return False
        self.graph._edited(self)
        return True

    def _swap_nested(self, old: Node, new: Node) -> None:
        """Read `new` for `old` in arguments of every kind."""
        swap = _swap(old, new)
        self._read(swap(self._args), swap(self._kwargs))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Make every user of this node read `replace_with` instead.

        `delete_user_cb` says per user whether it follows. `replace_with` may use this node, and goes on doing so: that
        is how a node is put behind another one. Returns the users that were changed. With `propagate_meta`, the meta of
        this node goes to `replace_with`, which must have none.

        >>> import torch
        >>> from graphwright import Graph
        >>> graph = Graph()
        >>> x = graph.placeholder("x")
        >>> total = graph.call_method("sum", (x,))
        >>> with graph.inserting_after(x):
        ...     relu = graph.call_function(torch.relu, (x,))
        >>> x.replace_all_uses_with(relu), relu.args
        ([sum_1], (x,))
        """
        given: object = replace_with
        if not isinstance(given, Node):
            raise GraphError(
                f"the uses of {self.name!r} are to be of a node, not of a {type(given).__name__}",
                at=self.origin,
                fix="give the node that takes its place; to leave it out, erase_node its users first",
            )
        if propagate_meta and replace_with._meta:
            raise AssertionError(
                "propagate_meta: the replacement node already has meta, which would be lost; it must be empty"
            )
        users = list(self.users)
        if replace_with in self.users:  # no node can read itself
            users.remove(replace_with)
        if delete_user_cb is not None:
            users = [user for user in users if delete_user_cb(user)]
        graph = self.graph
        if graph._hooks is not None and graph._hooks.replace:  # a name costs more than the rest
            graph._tell_of_replacement(self, replace_with.name, users)
        takes_over = replace_with.graph is graph and replace_with._position is not None
        for user in users:
            if not takes_over or not user._swap_flat(self, replace_with):
                user._swap_nested(self, replace_with)
        if propagate_meta:
            replace_with.meta.update(self.meta)
        return users

    def replace_with(
        self,
        op: Opcode,
        target: Target,
        args: tuple[Argument, ...] = (),
        kwargs: Mapping[str, Argument] | None = None,
        *,
        by: str = "",
    ) -> Node:
        """Put a new node in the place of this one, and erase this one; return the new node.

        It stands where this one stood, and has its name, origin, type, users and meta, but for examples of the value,
        which may be another one now. `meta["from_node"]` says what it stands for, and `by` which pass put it there; so
        `graphwright.analysis.compare` knows which layers of a module and of its changed copy belong together.

        Raises GraphError for a new node that reads this one or comes before what it reads, TargetError for a target of
        the wrong kind; the graph is then as it was.

        >>> import torch
        >>> from graphwright import Graph
        >>> graph = Graph()
        >>> x = graph.placeholder("x")
        >>> output = graph.output(graph.call_method("relu", (x,)))
        >>> new = x.next.replace_with("call_function", torch.clamp, (x,), {"min": 0.0}, by="use_clamp")
        >>> new, output.args, new.meta["from_node"]
        (relu, (relu,), [(name=relu, pass_name=use_clamp, action=replace, graph_id=...)
        ])
        """
        read = dict.fromkeys(nodes_in([args, dict(kwargs or {})]))
        for used in read:
            if used is self or (used.graph is self.graph and used._position is not None and used > self):
                what = "that node itself" if used is self else f"{used.name!r}, which comes later"
                raise GraphError(
                    f"what stands in the place of {self.name!r} would read {what}",
                    at=self.origin,
                    fix="read what is there before it; to put a node behind another one, use replace_all_uses_with",
                )
        graph = self.graph
        with graph.inserting_before(self):
            new = graph.create_node(op, target, args, kwargs, None, self.type)
        graph._hand_over_name(self, new)
        new._origin = self._origin
        if self._meta is not None:
            new._meta = {key: value for key, value in self._meta.items() if key not in EXAMPLES}
        new.meta["from_node"] = [NodeSource(self, by, NodeSourceAction.REPLACE)]
        self.replace_all_uses_with(new)
        graph.erase_node(self)
        return new

    # ---- where it is

    @property
    def next(self) -> Node:
        """The node after this one; after the last comes the graph's root."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one; before the first comes the graph's root."""
        return self._prev

    @property
    def _erased(self) -> bool:
        return self._position is None

    @property
    def _sort_key(self) -> tuple[float, ...]:
        return () if self._position is None else (self._position,)

    def _remove_from_list(self) -> None:
        """Take the node out of the order of its graph; what it reads keeps it as a user."""
        if self._position is not None:
            self.graph._unlink(self)

    def prepend(self, x: Node) -> None:
        """Move `x` to just before this node."""
        self.graph._move(x, self)

    def append(self, x: Node) -> None:
        """Move `x` to just after this node."""
        self.graph._move(x, self._next)

    def __lt__(self, other: Node) -> bool:
        return self._position < other._position  # type: ignore[operator]

    def __gt__(self, other: Node) -> bool:
        return self._position > other._position  # type: ignore[operator]

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or self > other

    # ---- text

    def __repr__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        """Copy the graph, once for all its nodes, and return the node there."""
        if self._position is None:
            raise GraphError(f"{self.name} was erased from its graph, and cannot be copied with it", at=self.origin)
        graph = copy.deepcopy(self.graph, memo)
        memo.update({id(old): new for old, new in zip(self.graph.nodes, graph.nodes, strict=True)})
        copied: Node = memo[id(self)]
        return copied

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self.name!r} is a node of a graph: its value, and so its items, exist when the graph runs")


def check_target(op: str, target: Any) -> None:
    """Raise TargetError for a target that is not of the opcode's kind."""
    if op == "call_function":
        if not callable(target):
            raise TargetError(
                f"Node target {target!r} has type {type(target).__name__} but a Callable is expected",
                fix="call_function takes the function itself; for a method use call_method, for a submodule "
                "call_module",
            )
    elif not isinstance(target, str):
        raise TargetError(
            f"Node target {target!r} has type {type(target).__name__} but a str is expected",
            fix=f"{op} takes a name or dotted path; to call an object use call_function",
        )


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Rebuild nested arguments with `fn` applied to every node; other leaves stay.

    >>> from graphwright.ir import Graph
    >>> x = Graph().placeholder("x")
    >>> map_arg((x, 2, [x]), lambda node: node.name)
    ('x', 2, ['x'])
    """
    if not callable(fn):
        raise AssertionError("map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)


def nodes_in(value: Any) -> list[Node]:
    """List the nodes inside nested arguments, in order, repeated ones included."""
    found, stack = [], [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is Node:
            found.append(item)
        elif kind in ATOMS:
            continue
        elif isinstance(item, tuple | list):
            stack.extend(reversed(item))
        elif isinstance(item, dict):
            stack.extend(reversed(item.values()))
        elif kind is slice:
            stack += (item.step, item.stop, item.start)
    return found


def bodies_of(node: Node) -> list[Graph]:
    """List the graphs among a node's arguments: the bodies of a branch or a loop."""
    kind = type(node.graph)
    return [arg for arg in node._args if type(arg) is kind]


_FLAT = frozenset({*ATOMS, Node})  # types of arguments that hold no others


def _swap(old: Node, new: Node) -> Callable[[Any], Any]:
    def swap(value: Any) -> Any:
        kind = type(value)
        if kind is tuple:  # the common case: a flat tuple, one level, without the general walk
            out = []
            for item in value:
                if item is old:
                    item = new
                elif type(item) not in ATOMS and type(item) is not Node:
                    item = swap(item)
                out.append(item)
            return tuple(out)
        if not value and kind is immutable_dict:
            return value
        return map_arg(value, lambda node: new if node is old else node)

    return swap


def freeze(value: Argument, owner: Node) -> Argument:
    """Return the argument with its containers immutable; refuse nodes of other graphs."""
    kind = type(value)
    if kind is Node:
        if value.graph is not owner.graph or value._position is None:
            raise foreign_node(value, owner)
        return value
    if kind in ATOMS:
        return value
    if isinstance(value, tuple):
        items = [freeze(item, owner) for item in value]
        if kind is tuple:
            return tuple(items)
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value  # a NamedTuple, a torch.Size: kept as it is where nothing changes
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if isinstance(value, list):
        return immutable_list([freeze(item, owner) for item in value])
    if isinstance(value, dict):
        return immutable_dict({key: freeze(item, owner) for key, item in value.items()})
    if kind is slice:
        return slice(freeze(value.start, owner), freeze(value.stop, owner), freeze(value.step, owner))
    if kind is type(owner.graph):
        owner.graph.has_bodies = True
    return value


def foreign_node(node: Node, owner: Node) -> GraphError:
    """The error for an argument that lives in another graph, or was erased from its own."""
    reader = f"Node {owner._name or owner._target!r}"
    if node.graph is owner.graph:
        return GraphError(
            f"Argument {node.name!r} of {reader} was erased from this Graph, but was used as an argument",
            at=node.origin,
            fix="read another value, or erase the node only once nothing needs it",
        )
    return GraphError(
        f"Argument {node.name!r} of {reader} does not belong to this Graph, but was used as an argument",
        at=node.origin,
        fix="when copying between graphs, map values with node_copy(node, arg_transform)",
    )
