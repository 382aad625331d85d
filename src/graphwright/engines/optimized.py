"""The form of optimized code: kernels and engines for inputs like some, and the program for all others beside it."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

from graphwright.analysis import tensors_in
from graphwright.codegen import PythonCode, graph_to_readable_source
from graphwright.engines.bound_tensors import Facts
from graphwright.engines.choosing import Choice, Writing, put_kernel
from graphwright.engines.fitting import any_inputs, example_of, fits, is_watched, with_open_sizes
from graphwright.engines.form_text import free_names, names_of_tensors, opening, path_of_several
from graphwright.engines.inlining import binding_of
from graphwright.engines.pack import Held, Packs, Recipe, is_trained, itself, kind_of
from graphwright.engines.regions import Region, find_regions, put_regions
from graphwright.engines.sites import Finder, FloatLayers, Found, Searched
from graphwright.engines.specializing import by_parameter, in_evaluation, shapes_with, specialized
from graphwright.engines.written_tensors import kept_apart
from graphwright.errors import PassError
from graphwright.ir import Graph, Node
from graphwright.ops import is_inplace, written_attributes
from graphwright.passes import substitute
from graphwright.rewrite import Calls, GraphEffects
from graphwright.runtime import STATE, Entry, GraphModule, Interpreter, entry_points_of, facts_of_modules


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What optimized code is for, and what it runs on: data that copies share.

    inputs: what each argument has to be like, see `facts_of`. kernels: of each site by its key. merged: the keys of
    linear layers that are computed as one. engines: those of the longest piece of the graph, the next one and so on;
    "" is torch. finders: what says where sites are. again: how to make the module again; empty where a file has the
    program, without what it runs on. others: what the inputs may be like besides, with other sizes: those of them that
    differ may be any then. is_open: whether the code is for calls with whatever inputs, of which `inputs` and `others`
    are examples, objects and all.
    """

    inputs: tuple[Any, ...]
    kernels: Mapping[str, Choice]
    merged: frozenset[str] = frozenset()
    engines: tuple[str, ...] = ()
    finders: tuple[Finder, ...] = (FloatLayers(),)
    again: str = "optimize what is loaded: graphwright.optimize_for_inference"
    others: tuple[tuple[Any, ...], ...] = ()
    is_open: bool = False

    @property
    def taken(self) -> Any:
        """What inputs have to be like, for `fits`."""
        return any_inputs((self.inputs, *self.others)) if self.is_open else with_open_sizes(self.inputs, self.others)


@dataclasses.dataclass(frozen=True, slots=True)
class Optimized:
    """The form of optimized code. `beside` is the entry point with the inlined program."""

    beside: str
    plan: Plan

    @property
    def instead_of_saving(self) -> str:
        """What to do where no file holds the form."""
        if not self.plan.again:
            return ""
        return f"save the module that it was made of, and {self.plan.again}(graphwright.load(path), args)"

    def write(self, module: GraphModule, entry: Entry) -> PythonCode:
        """Write the code for the modules as they are now."""
        plan = self.plan
        program = Program(module, entry.graph, self.beside, plan.inputs, plan.finders, plan.others, plan.is_open)
        prepared = program.prepare(plan)
        entry.held = prepared
        free_names(prepared.graph, prepared.names)
        return graph_to_readable_source(
            prepared.graph,
            owner=module,
            name=entry.name,
            first=functools.partial(_opening, entry.name, self.beside, entry.graph),
            variables={_PACKED: "packed", **{name: f"{_PACKED}.{own}" for name, own in prepared.names.items()}},
        )


class Prepared:
    """What the calls of optimized code look at: what fits, and what is packed."""

    __slots__ = (
        "attributes", "beside", "counters", "facts", "flags", "graph", "inputs", "latest", "names", "packs", "regions",
        "writes_objects",
    )  # fmt: skip

    def __init__(
        self, program: Program, beside: str, inputs: Any, recipes: Mapping[Recipe, str], attributes: Any
    ) -> None:
        self.graph, self.beside, self.inputs = program.gm.graph, beside, inputs
        self.writes_objects = program.writes_objects
        used = {path for recipe in recipes for path in recipe.sources}
        counters = [path for path in dict.fromkeys(program.counters.values()) if path in used]
        kinds = {path: kind_of(tensor) for path, tensor in program.tensors.items()}
        self.names = _names(recipes)
        named = {recipe: self.names[path] for recipe, path in recipes.items()}
        self.packs = Packs([*program.paths, *counters], named, kinds)
        self.counters = [path.rpartition(".")[0] for path in counters]
        self.facts: tuple[Any, list[dict[str, Any]]] = None, []  # for which the tables of the counters were found
        # At which versions of the tables something was packed, what, and the attributes that are in none of these.
        self.latest: tuple[list[int], Held | None, list[tuple[tuple[str, ...], Any]]] = [], None, []
        self.flags = len(program.paths)  # after so many tensors come training flags
        self.attributes: list[tuple[tuple[str, ...], Any]] = attributes
        self.regions = [setting for recipe in recipes for setting in recipe.settings if isinstance(setting, Region)]


_PACKED = "the packed tensors"  # in the place of a path


def _names(recipes: Mapping[Recipe, str]) -> dict[str, str]:
    """The names of what recipes make, after the layers that it is for, by what nodes read."""
    paths = {path: _path(recipe) for recipe, path in recipes.items()}
    count: Counter[str] = Counter()
    for name, path in paths.items():  # one weight may be packed in several ways
        count[path] += 1
        paths[name] = path if count[path] == 1 else f"{path}_{count[path]}"
    names = names_of_tensors(paths.values())
    return {name: names[path] for name, path in paths.items()}


def _path(recipe: Recipe) -> str:
    """What stands for the path of what a recipe makes."""
    if any(isinstance(setting, Region) for setting in recipe.settings):
        return "region"
    if not recipe.sources:
        return "constant"
    are_alike = len({path.rpartition(".")[2] for path in recipe.sources}) == 1
    path = path_of_several(recipe.sources) if are_alike else recipe.sources[0]
    return f"{path.rpartition('.')[0]}.bias".lstrip(".") if "bias" in recipe.make.__name__ else path


class Program:
    """A program for inputs of one size, or of others too, or for any calls, before it is decided what it runs on."""

    def __init__(
        self,
        module: GraphModule,
        graph: Graph,
        beside: str,
        inputs: Sequence[Any],
        finders: Sequence[Finder],
        others: Sequence[Sequence[Any]] = (),
        is_open: bool = False,
    ) -> None:
        binding = binding_of(module, entry_points_of(module)[beside])
        places = [place for place in binding.places if place.table != "__dict__"]
        self.paths = [f"{place.owner}.{place.name}".lstrip(".") for place in places]
        self.counters = _counters(module, self.paths)
        self.beside, self.inputs = beside, tuple(inputs)
        calls = [[example_of(fact) for fact in facts] for facts in (inputs, *others)]
        if is_open:
            self.gm, self.shapes = in_evaluation(module, graph, binding, calls)
        else:
            self.gm, self.shapes = specialized(module, graph, binding, calls[0], is_general=bool(others))
        self.attributes = _take_attributes(self.gm, module, self.paths) + _taken_by_passes(self.gm.graph, graph)
        apart, self.writes_objects = kept_apart(self.gm, self.shapes, self.paths)
        packable = [path for path in (*self.paths, *self.counters.values()) if path not in apart]
        self.tensors = _plain_tensors(module, packable)
        self._finders = finders
        known = () if is_open else tuple([shapes_with(self.gm, each) for each in others])
        self._searched = Searched(self.gm, self.shapes, self.tensors, self.counters, known, is_open)

    def sites(self, besides: Collection[Node] = ()) -> list[Found]:
        """Where other kernels may compute, besides of some nodes; this may edit the program."""
        for finder in self._finders:
            finder.prepare(self._searched, besides)
        return [site for finder in self._finders for site in finder.find(self._searched)]

    def values(self, args: Sequence[Any]) -> dict[Node, Any]:
        """What the program computes of some arguments, one for each parameter."""
        positional, named = by_parameter(self.gm.graph, args)
        running = _Remembering(self.gm)
        running.run(*positional, **named)
        return running.values

    def pieces(self) -> list[list[Node]]:
        """What engines may run."""
        if self._searched.is_open:
            return []
        return find_regions(self.gm, self.shapes, self.tensors, self.counters)

    def prepare(self, plan: Plan) -> Prepared:
        """Put kernels and engines into the graph, as planned."""
        writing = Writing()
        pieces = [(piece, engine) for piece, engine in zip(self.pieces(), plan.engines, strict=False) if engine]
        elsewhere = {node for piece, _ in pieces for node in piece}
        found = [site for site in self.sites(elsewhere) if elsewhere.isdisjoint(_nodes(site))]
        self._keep_layouts(plan, found)
        put_regions(pieces, self.shapes, self.counters, writing)
        self._put_kernels(plan, found, writing)
        for finder in self._finders:
            finder.finish(self.gm)
        for node in list(self.gm.graph.all_nodes()):
            if node.op == "get_attr" and not node.users:
                node.graph.erase_node(node)
            elif node.op == "get_attr" and node.target in self.paths:
                node.target = writing.name(Recipe(itself, (str(node.target),)))
        used = {str(node.target) for node in self.gm.graph.all_nodes() if node.op == "get_attr"}
        recipes = {recipe: name for recipe, name in writing.recipes.items() if name in used}
        return Prepared(self, self.beside, plan.taken, recipes, self.attributes)

    def _keep_layouts(self, plan: Plan, found: list[Found]) -> None:
        """Have results and views be as they are where kernels give images whose channels come last.

        Raises PassError where the program could tell the difference.
        """
        chosen = {key: choice.kernel for key, choice in plan.kernels.items()}
        if all(each.site.keeps_layout or chosen.get(each.site.key, "torch") == "torch" for each in found):
            return
        for node in list(self.gm.graph.all_nodes()):
            if node.op == "call_method" and node.target in _OF_LAYOUTS:
                raise PassError(f"{node.name} asks how a value lies in memory", at=node.origin)
            if node.op == "call_method" and node.target == "view":
                if self._is_written(node):
                    raise PassError(f"the view {node.name} is written to", at=node.origin)
                node.target = "reshape"
        output = next(iter(self.gm.graph.find_nodes(op="output")))
        for node in output.all_input_nodes:
            if _is_contiguous_image(self.shapes.known_value(node)):
                with self.gm.graph.inserting_before(output):
                    made = self.gm.graph.call_method("contiguous", (node,))
                output.replace_input_with(node, made)

    def _is_written(self, node: Node) -> bool:
        """Tell whether a value, or what it is a view of, is written to in place."""
        if not any(is_inplace(each) for each in node.graph.nodes):
            return False
        return GraphEffects(node.graph, Calls(self.gm)).writer_of(node) is not None

    def _put_kernels(self, plan: Plan, found: list[Found], writing: Writing) -> None:
        merged = [site for site in found if site.members and site.site.key in plan.merged]
        taken: set[Node] = set()
        for site in (*merged, *[site for site in found if not site.members]):
            if site.site.key in plan.kernels and taken.isdisjoint(_nodes(site)):
                taken |= _nodes(site)
                put_kernel(site, plan.kernels[site.site.key].kernel, writing)


class _Remembering(Interpreter):
    """Runs a program, and remembers what its nodes have given, those of branches and loops, too."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm)
        self.values: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        """Run a node."""
        self.values[n] = value = super().run_node(n)
        return value


_OF_LAYOUTS = frozenset({"as_strided", "stride", "is_contiguous", "view_as", "data_ptr", "storage_offset"})


def _is_contiguous_image(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() in (3, 4) and value.is_contiguous()


def _nodes(site: Found) -> set[Node]:
    return {node for each in (site.members or (site,)) for node in each.nodes}


def packed_for(module: Any, *given: Any, entry: str = "forward") -> Any:
    """What optimized code reads, made of the tensors as they are now; None where the general program has to run.

    It has an attribute for each thing, by the name of the layer that it is for.

    That is for other inputs than it is for, where gradients are wanted, in training, inside of transforms and modes,
    and where inlined code would call modules.
    """
    held = held_for(module, entry, given)
    return None if held is None else held.given


def held_for(module: Any, entry: str, given: Sequence[Any]) -> Held | None:
    """What `packed_for` gives, and of which tensors it was made: another one whenever that is something else."""
    entries = module.__dict__[STATE].entries
    prepared: Prepared = entries[entry].held
    if is_watched() or is_dynamo_compiling() or not fits(given, prepared.inputs):
        return None
    facts = entries[prepared.beside].held.checked(module)
    if facts is None:
        return None
    if prepared.writes_objects and _share_memory(given, facts.tensors()):
        return None
    versions, held, attributes = prepared.latest
    if versions is not facts.versions or held is None or is_trained(held.tensors) or not held.is_current():
        return _held_now(module, prepared, facts)
    return None if attributes and not _are_as_they_were(module, attributes) else held


def _share_memory(given: Sequence[Any], tensors: Sequence[Any] | None) -> bool:
    """Tell whether what inputs hold is in the memory of tensors of modules, so that writing to it changes these."""
    own = {each.untyped_storage().data_ptr() for each in tensors or () if isinstance(each, Tensor)}
    return any(each.untyped_storage().data_ptr() in own for each in tensors_in(given))


def _held_now(module: Any, prepared: Prepared, facts: Facts) -> Held | None:
    """What is made of the tensors that the modules have now."""
    versions = facts.versions
    if not _are_as_they_were(module, prepared.attributes):
        return None
    tensors = facts.tensors()
    if tensors is None or any(tensors[prepared.flags :]):
        return None
    del tensors[prepared.flags :]
    if is_trained(tensors):
        return None
    if prepared.counters:
        try:
            tensors += [*map(_COUNTER, _tables_of_counters(module, prepared, facts))]
        except KeyError:
            return None
    held = prepared.packs.look(tensors)
    if held is not None and versions is not None:
        unseen = [each for each in prepared.attributes if not facts.notices(_tables_to(module, each[0]))]
        prepared.latest = versions, held, unseen
    return held


# ---- counters of batches

# In training, the kernels of batch norms write to running statistics, and torch does not count that as a write. The
# module counts its batches, which it does.
_COUNTER = operator.itemgetter("num_batches_tracked")


def _counters(module: nn.Module, paths: Sequence[str]) -> dict[str, str]:
    """By the path of a running statistic, the path of the number of batches that went into it."""
    counters = {}
    for path in paths:
        owner, _, name = path.rpartition(".")
        norm = module.get_submodule(owner)
        if name in ("running_mean", "running_var") and _counts_batches(norm):
            counters[path] = f"{owner}.num_batches_tracked".lstrip(".")
    return counters


def _counts_batches(norm: nn.Module) -> bool:
    """Tell whether a norm counts its batches in training: as torch's do, or in a `forward` that names the counter."""
    if not isinstance(norm, nn.modules.batchnorm._NormBase) or not isinstance(norm.num_batches_tracked, Tensor):
        return False
    forward = type(norm).forward
    is_known = isinstance(norm, nn.modules.batchnorm._BatchNorm) and forward is nn.modules.batchnorm._BatchNorm.forward
    return is_known or "num_batches_tracked" in getattr(getattr(forward, "__code__", None), "co_names", ())


def _tables_of_counters(module: nn.Module, prepared: Prepared, facts: Facts) -> list[dict[str, Any]]:
    """The tables of buffers that have the counters, of the modules that inlined code knows now."""
    if prepared.facts[0] is not facts:
        norms = [module.get_submodule(path) for path in prepared.counters]
        prepared.facts = facts, [norm.__dict__ for norm in norms]
    return [state["_buffers"] for state in prepared.facts[1]]


# ---- attributes that are no tensors


def _take_attributes(gm: GraphModule, module: nn.Module, paths: Sequence[str]) -> list[tuple[tuple[str, ...], Any]]:
    """Write plain attributes of modules that the program does not write as literals; gives where each is, and what."""
    taken: dict[tuple[str, ...], Any] = {}
    others = {*paths, *written_attributes(gm.graph)}
    for node in list(gm.graph.all_nodes()):
        if node.op == "get_attr" and node.target not in others:
            place = tuple(str(node.target).split("."))
            found = _plain_attribute(module, place)
            if type(found) in (int, float, bool, str):
                taken[place] = found
                substitute(node, found)
                node.graph.erase_node(node)
    return list(taken.items())


def _taken_by_passes(graph: Graph, before: Graph) -> list[tuple[tuple[str, ...], Any]]:
    """Numbers of modules that passes have made literals of a specialized program, which its first graph reads."""
    known = facts_of_modules(before)
    return [
        ((*filter(None, path.split(".")), name), value)
        for path, facts in facts_of_modules(graph).items()
        for name, value in facts.get("values", {}).items()
        if name not in known.get(path, {}).get("values", {}) and type(value) in (int, float, bool, str)
    ]


def _plain_attribute(module: Any, place: tuple[str, ...]) -> Any:
    for name in place[:-1]:
        module = module._modules.get(name) if isinstance(module, nn.Module) else None
    return module.__dict__.get(place[-1]) if isinstance(module, nn.Module) else None


def _are_as_they_were(module: nn.Module, attributes: Sequence[tuple[tuple[str, ...], Any]]) -> bool:
    for place, value in attributes:
        found = _plain_attribute(module, place)
        if type(found) is not type(value) or found != value:
            return False
    return True


def _tables_to(module: nn.Module, place: tuple[str, ...]) -> list[dict[str, Any]]:
    """The tables that an attribute is read from, and those that lead to its module."""
    tables = [module.__dict__]
    for name in place[:-1]:
        tables += [module._modules, module._modules[name].__dict__]
        module = module._modules[name]  # type: ignore[assignment]
    return tables


def _plain_tensors(module: nn.Module, paths: Sequence[str]) -> dict[str, Tensor]:
    """The tensors at some paths that may be packed."""
    found = {path: _tensor(module, path) for path in paths}
    return {path: tensor for path, tensor in found.items() if type(tensor) in (Tensor, nn.Parameter)}


def _tensor(module: nn.Module, path: str) -> Any:
    above, _, name = path.rpartition(".")
    owner = module.get_submodule(above)
    return owner._parameters.get(name, owner._buffers.get(name))


# ---- the text


def _opening(name: str, beside: str, graph: Graph, writer: Any) -> list[str]:
    """The statements before all others: the check, the general program, and what is packed."""
    named = "" if name == "forward" else f", entry={name!r}"
    values = ", ".join(str(node.target).lstrip("*") for node in graph.placeholders())
    check = f"{writer.names.function(packed_for)}({writer.root}, {values}{named})"
    why = "other sizes, gradients, training, a module that changed"
    return opening(writer, writer.variables[_PACKED], check, why, beside, graph, is_whole=True)
