"""A graph written anew as nested ones: each call of a module is one node, and what it does a graph of its own."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from torch import nn

from graphwright.hierarchy.chains import Chain, Chains, call_in, path_of
from graphwright.hierarchy.copied_calls import CopiedCall, NotAsCopied, copied_call, instead_of
from graphwright.hierarchy.facts import Facts, facts_of
from graphwright.hierarchy.parts import Part, Program, parts_of
from graphwright.hierarchy.signatures import Given, Parameter, given_by, names_in, parameters_of, stem_of
from graphwright.hierarchy.sketches import Sketch, Sketches
from graphwright.ir import Graph, Node, Origin, candidate_for, map_arg
from graphwright.ops import unpack, write_attribute, written_attributes
from graphwright.runtime import calls_of_modules
from graphwright.source import CallSite, Scope, is_returned, place_of


@dataclasses.dataclass
class Nested:
    """What the call of a module became: its graph, and the calls inside of it.

    `value_at` gives the value of the graph around that the node at a place stands for, and `outputs` are the places of
    those that it has to give.
    """

    graph: Graph
    value_at: Callable[[int], Node]
    outputs: set[int]
    inside: list[str]


@dataclasses.dataclass(frozen=True)
class _Written:
    """A call that was written, and what it takes and gives: others that do the same are what it is."""

    call: str
    part: Part
    parameters: list[Parameter]
    given: Given
    sketch: Sketch | None = None


class Writing:
    """Writes the graphs of one captured module, of which `modules` are all, by path.

    `flat` are the calls that are no graphs of their own; `more` says of calls which values they are to give beyond
    those that are used, and `names` which entry points of their modules they are, `forward` if nothing.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        flat: Collection[str],
        more: Mapping[str, Collection[Node]],
        names: Mapping[str, str],
    ) -> None:
        self.nested: dict[str, Nested] = {}
        self.split: set[str] = set()  # the calls that branches cut in two
        self._chains = Chains(modules[""])
        self._flat = frozenset(flat)
        self._more = more
        self._names = names
        self._entries: set[Graph] = set()
        self._numbers: dict[Graph, int] = {}  # of these and of bodies
        self._noted: Mapping[str, Any] = {}
        self._written: Collection[str] = ()
        self._facts: dict[Graph, Facts] = {}
        self._scopes: dict[tuple[int, int], Scope] = {}
        # Equal calls that are to give other values, or go by other names, are written one by one.
        is_plain = not more and all(name == "forward" for name in names.values())
        self._sketches = Sketches(modules) if is_plain else None
        self._sketched: dict[tuple[Hashable, ...], _Written] = {}
        self._originals: dict[str, _Written | None] = {}  # the calls that others are copied from
        self._asked: dict[str, dict[Node, None]] = {}  # of these: the values that others are asked for

    def whole(self, graph: Graph) -> Graph:
        """Write the graph of an entry point."""
        self._entries.add(graph)
        self._noted = calls_of_modules(graph)
        self._written = written_attributes(graph)
        for body in graph.all_graphs():
            self._numbers[body] = len(self._numbers)
        for copied in [copied for node in graph.nodes if (copied := copied_call(node)) is not None]:
            original = call_in(copied.original, self._numbers[graph])
            self._originals[original] = None
            used = {old: None for old, new in copied.results.items() if new.users}
            self._asked.setdefault(original, {}).update(used)
        self.split |= self._chains.split(graph, self._facts_of)
        written = self.body(graph, (), [], frozenset(self.split))
        written.constants = graph.constants
        written._writer = graph._writer
        written._tracer_cls = graph._tracer_cls
        if graph._meta is not None:
            written._meta = dict(graph._meta)
        return written

    def body(self, graph: Graph, chain: Chain, inside: list[str], flat: frozenset[str]) -> Graph:
        """Write the graph of an entry point, or of a branch or loop in a call: what it takes and gives stays.

        `flat` are the calls around that are no graphs of their own.
        """
        facts = self._facts_of(graph)
        number = self._numbers[graph]
        flat |= {key.partition("~")[0] for key in self._flat if call_in(key.partition("~")[0], number) == key}
        is_body = graph not in self._entries
        program = Program(self._chains.of(graph, chain, facts, flat), {}, self._chains, number, flat, is_body)
        program.facts = _floating(facts, program.chains)
        nodes = list(graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        output = graph.output_node()
        own = [node for node in nodes if node.op not in ("placeholder", "output") and node not in program.facts]
        level = _Level(self, program, Graph(), chain, inside)
        for node in inputs:
            level.values[node] = level.copy(node)
            if is_body:  # whose inputs are found by their order
                level.values[node].target = level.values[node].name
        level.write(own, inputs, output.all_input_nodes)
        copied = level.graph.output(map_arg(output.args[0], level.value), output.type)
        copied._origin = self.origin(output, len(chain)) or (None if is_body else _place_of_end(copied))
        copied._meta = None if output._meta is None else dict(output._meta)
        return level.graph

    def _facts_of(self, graph: Graph) -> Facts:
        if graph not in self._facts:
            self._facts[graph] = facts_of(graph, self._written)
        return self._facts[graph]

    def call(self, program: Program, part: Part, inside: list[str]) -> tuple[list[Parameter], Given]:
        """Write the graph of a call; return what it takes and gives."""
        call = call_in(part.key, program.number)
        copied = copied_call(part.nodes[0])
        if copied is not None and copied.key == part.key:
            inside.append(call)
            return self._as_copied(copied, program, part, call)
        parameters, given = self._call(program, part, call, inside)
        if call in self._originals:
            self._originals[call] = _Written(call, part, parameters, given)
        return parameters, given

    def _call(self, program: Program, part: Part, call: str, inside: list[str]) -> tuple[list[Parameter], Given]:
        noted = self._noted.get(part.key, {})
        part.outputs |= dict.fromkeys(self._more.get(call, ())) | self._asked.get(call, {})
        outputs = sorted(part.outputs, key=lambda node: (node in program.facts, operator.attrgetter("_position")(node)))
        sketch = None if self._sketches is None else self._sketches.of(program, part, outputs, self._noted)
        if sketch is not None and sketch.rows in self._sketched:
            inside.append(call)
            written = self._sketched[sketch.rows]
            assert written.sketch is not None
            return self._again(written, call, dict(zip(written.sketch.nodes, sketch.nodes, strict=True)))
        kind = _kind_of(part)
        parameters = parameters_of(kind, noted.get("passed", {}), part.inputs)
        level = _Level(self, program, Graph(), part.chain, [])
        parameters = [dataclasses.replace(each, name=level.add_input(each)) for each in parameters]
        level.write(part.nodes, list(part.inputs), outputs)
        by_name = {node.name: node for node in (*part.inputs, *part.nodes) if level.has(node)}
        given = given_by(noted.get("given"), outputs, by_name)
        value: Any = given.value
        if isinstance(value, tuple):
            value = tuple([None if item is None else level.value(item) for item in value])
        output = level.graph.output(level.value(value) if isinstance(value, Node) else value)
        output._origin = _place_of_end(output)
        number = {node: i for i, node in enumerate(level.graph.nodes)}
        places = {number[made]: node for node, made in level.values.items()}
        wanted = {number[level.values[node]] for node in outputs}
        inside.append(call)
        self.nested[call] = Nested(level.graph, places.__getitem__, wanted, level.inside)
        if sketch is not None:
            self._sketched[sketch.rows] = _Written(call, part, parameters, given, sketch)
        return parameters, given

    def _as_copied(self, copied: CopiedCall, program: Program, part: Part, call: str) -> tuple[list[Parameter], Given]:
        """Have a copied call be what the original became. Raises NotAsCopied where that is not all of the original."""
        written = self._originals[call_in(copied.original, program.number)]
        members = {node for node in copied.nodes if not node._erased}
        if written is None or written.part.members != members - program.facts.keys():
            raise NotAsCopied
        own = any(value in members for each in written.parameters for value in _values_of(each))
        is_told = not isinstance(written.given.value, Node) or written.given.value in copied.results
        if own or not is_told or not part.outputs.keys() <= {*copied.results.values()}:
            raise NotAsCopied  # it takes or gives a fact of its own, which the copy does not have
        return self._again(written, call, instead_of(part.nodes[0]) | copied.results)

    def _again(self, written: _Written, call: str, instead: dict[Node, Node]) -> tuple[list[Parameter], Given]:
        """Have a call be what one was that does the same; return what it takes and gives.

        `instead` are the values of the one, each with that of the other.
        """
        first, path = len(path_of(written.call)), path_of(call)

        def move(key: str, moved: str) -> str:
            was = self.nested[key]
            inside = [move(each, path + each[first:]) for each in was.inside]
            self.nested[moved] = Nested(was.graph, lambda place: value(was.value_at(place)), was.outputs, inside)
            return moved

        def value(was: Any) -> Any:
            return tuple(map(value, was)) if isinstance(was, tuple) else instead.get(was, was)

        move(written.call, call)
        parameters = [dataclasses.replace(each, value=value(each.value)) for each in written.parameters]
        places = {value(node): place for node, place in written.given.places.items()}
        return parameters, Given(value(written.given.value), places, written.given.is_source)

    def entry_of(self, program: Program, part: Part) -> str:
        """The entry point that a call is of."""
        return self._names.get(call_in(part.key, program.number), "forward")

    def relative(self, path: str, chain: Chain) -> str:
        """A path as seen from the module of the last call of a chain."""
        found = self._chains.relative(path, path_of(chain[-1]) if chain else "")
        assert found is not None, (path, chain)
        return found

    # ---- places

    def origin(self, node: Node, depth: int) -> Any:
        """Where a node comes from, as told in a module that is `depth` calls inside."""
        origin = node._origin
        if not depth or origin is None:
            return origin
        if isinstance(origin, CallSite):
            return CallSite(origin.code, origin.instruction, self.scope(origin.scope, depth), origin.is_whole)
        if not isinstance(origin, Origin):
            origin = origin.resolve()
        around = origin.stack[depth - 1][0] if len(origin.stack) >= depth else ""
        stack = tuple([(_inner(path, around), kind) for path, kind in origin.stack[depth:]])
        call = origin.call if stack else 0
        return dataclasses.replace(origin, module=_inner(origin.module, around), stack=stack, call=call)

    def scope(self, scope: Scope, depth: int) -> Scope:
        """The call of a module, as told inside of one that is `depth` calls inside."""
        known = self._scopes.get((id(scope), depth))
        if known is None:
            row = [scope]
            while row[-1].outer is not None:
                row.append(row[-1].outer)
            row.reverse()  # the root first
            around = row[min(depth, len(row) - 1)].path
            known = Scope("", row[min(depth, len(row) - 1)].kind)
            for each in row[depth + 1 :]:
                known = Scope(_inner(each.path, around), each.kind, each.call, known)
            self._scopes[id(scope), depth] = known
        return known

    def passed_to(self, part: Part) -> set[str]:
        """The names of the values that the source passes to a module."""
        return set(names_in(list(self._noted.get(part.key, {}).get("passed", {}).values())))

    def site(self, part: Part, is_whole: bool) -> CallSite | None:
        """The line that calls a module, where the capture noted it; `is_whole`: what it assigns is the call's value."""
        depth = len(part.chain)
        for node in part.nodes:
            scope = getattr(node._origin, "scope", None)
            while scope is not None and scope.key != part.key:
                scope = scope.outer
            if scope is not None and scope.site is not None:
                site = scope.site
                return CallSite(site.code, site.instruction, self.scope(site.scope, depth - 1), is_whole)
        return None


class _Level:
    """One graph that is being written."""

    def __init__(self, writing: Writing, program: Program, graph: Graph, chain: Chain, inside: list[str]) -> None:
        self.graph = graph
        self.values: dict[Node, Node] = {}  # of the graph that is taken apart -> of this one
        self.inside = inside
        self._writing, self._program, self._chain = writing, program, chain
        self._at: Any = None  # where the node comes from that is being written
        self._tuples: dict[tuple[Node | None, ...], Node] = {}  # parameters that are tuples of values
        self._items: dict[Node, tuple[Node, int]] = {}  # values in them

    def add_input(self, parameter: Parameter) -> str:
        """Write a parameter; return its name."""
        made = self.graph.placeholder(parameter.name)
        made.target = made.name
        if isinstance(parameter.value, Node):
            self.values[parameter.value] = made
            made._meta = None if parameter.value._meta is None else self._meta_of(parameter.value)
            return made.name
        self._tuples[parameter.value] = made
        self._items.update({item: (made, i) for i, item in enumerate(parameter.value) if item is not None})
        return made.name

    def write(self, nodes: Sequence[Node], given: Sequence[Node], wanted: Sequence[Node]) -> None:
        """Write nodes in their order, calls of modules as one node each."""
        for item in parts_of(self._program, nodes, self._chain, given, wanted, self._writing.passed_to):
            if isinstance(item, Part):
                self._call(item)
            else:
                self.values[item] = self.copy(item)

    def has(self, node: Node) -> bool:
        """Tell whether a value is known here."""
        return node in self.values or node in self._items

    def value(self, node: Node) -> Node:
        """What stands for a value here; a fact is asked for anew."""
        known = self.values.get(node)
        if known is None:
            if node in self._items:
                owner, place = self._items[node]
                known = self._item(
                    owner, place, f"{owner.name}_{place}" if owner.op == "placeholder" else stem_of(node)
                )
            else:
                assert node in self._program.facts, (node, self._chain)
                known = self.copy(node)
            self.values[node] = known
        return known

    def copy(self, node: Node) -> Node:
        """Copy a node, bodies and all."""
        writing = self._writing
        if copied_call(node) is not None:
            raise NotAsCopied
        if node in self._program.facts:  # asked for by what uses it
            origin = _part_of(self._at)
        else:
            origin = self._at = writing.origin(node, len(self._chain))
        args: Any = map_arg(node._args, self.value)
        args = tuple(
            [
                writing.body(arg, self._chain, self.inside, self._program.flat) if type(arg) is Graph else arg
                for arg in args
            ]
        )
        target = node._target
        if node._op in ("call_module", "get_attr"):
            target = writing.relative(str(target), self._chain)
        elif target is write_attribute:
            args = (writing.relative(str(args[0]), self._chain), *args[1:])
        name = node.name if node._op == "placeholder" and not self._program.is_body else stem_of(node)
        if isinstance(node._origin, CallSite) and node._origin.named:  # as the caller calls it
            name = candidate_for(node._target)
        made = self.graph.create_node(node._op, target, args, map_arg(node._kwargs, self.value), name, node.type)
        made._meta = None if node._meta is None else self._meta_of(node)
        made._origin = origin
        return made

    def _meta_of(self, node: Node) -> dict[str, Any]:
        meta = dict(node._meta or {})
        if self._chain and "nn_module_stack" in meta:
            around = path_of(self._chain[-1])
            stack = list(meta["nn_module_stack"].items())[len(self._chain) :]
            rows = {_inner(key, around): (_inner(path, around), kind) for key, (path, kind) in stack}
            meta["nn_module_stack"] = type(meta["nn_module_stack"])(rows)
        return meta

    def _call(self, part: Part) -> None:
        writing = self._writing
        parameters, given = writing.call(self._program, part, self.inside)
        site = self._at = writing.site(part, not given.count)
        args = tuple([self._argument(each.value) for each in parameters if not each.keyword])
        kwargs = {each.name: self._argument(each.value) for each in parameters if each.keyword}
        target = writing.relative(path_of(part.key), self._chain)
        place = None if site is None else place_of(site.code, site.instruction)
        name = place.target if place is not None and (not given.count or given.is_source) else ""
        name = name or _name_of_module(target)
        entry = writing.entry_of(self._program, part)
        if entry == "forward":
            made = self.graph.create_node("call_module", target, args, kwargs, name)
        else:
            module = self.graph.create_node("get_attr", target, (), {}, _name_of_module(target))
            module._origin = _part_of(site)
            made = self.graph.create_node("call_method", entry, (module, *args), kwargs, name)
        made._origin = site
        if site is not None:
            made._meta = dict(site.initial_meta())
        if isinstance(given.value, Node):
            self.values[given.value] = made
        elif given.is_source:
            self._tuples[given.value] = made  # type: ignore[index]
            self._items |= {item: (made, i) for item, i in given.places.items() if item in part.outputs}
        elif given.value is not None:
            whole = self.graph.create_node("call_function", unpack, (made, given.count), {}, "unpack")
            whole._origin = site
            for value, i in given.places.items():
                if value in part.outputs:
                    self.values[value] = self._item(whole, i, stem_of(value))

    def _item(self, owner: Node, place: int, name: str) -> Node:
        made = self.graph.create_node("call_function", operator.getitem, (owner, place), {}, name)
        made._origin = owner._origin
        return made

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self.value(value)
        if value in self._tuples:
            return self._tuples[value]
        return tuple([None if item is None else self.value(item) for item in value])


def _values_of(parameter: Parameter) -> tuple[Node | None, ...]:
    return parameter.value if isinstance(parameter.value, tuple) else (parameter.value,)


def _place_of_end(output: Node) -> Any:
    """Where a graph returns: at its last node, where that is what the source returns."""
    return output.prev._origin if output.prev._origin is not None and is_returned(output.prev) else None


def _part_of(origin: Any) -> Any:
    """The place of something that a statement needs besides."""
    if isinstance(origin, CallSite):
        return origin.part()
    return None if origin is None else dataclasses.replace(origin.resolve(), target="")


def _name_of_module(path: str) -> str:
    """A name for what a module gives: that of the module, and of its list where it is one of several."""
    owner, _, name = path.rpartition(".")
    return f"{owner.rpartition('.')[2]}_{name}" if owner and name.isdigit() else name


def _inner(path: str, around: str) -> str:
    return path[len(around) + 1 :] if around and path.startswith(f"{around}.") else "" if path == around else path


def _kind_of(part: Part) -> Any:
    """The class of the module that a call is of, as the capture knew it."""
    path = path_of(part.key)
    for node in part.nodes:
        stack = (node._meta or {}).get("nn_module_stack") or {}
        if part.key in stack:
            return stack[part.key][1]
        if node.origin is not None:
            found = next((kind for at, kind in node.origin.stack if at == path), None)
            if found is not None:
                return found
    return None


def _floating(facts: Facts, chains: Mapping[Node, Chain]) -> Facts:
    """The facts that are asked for in one call and used in another, with those that they are computed with."""
    floating: Facts = {}
    for fact in reversed(list(facts)):
        if any(user in floating or chains[user] != chains[fact] for user in fact.users):
            floating[fact] = facts[fact]
    return floating
