"""Cutting a captured program into stages that run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from torch import nn

from graphwright.analysis import costs, seconds_of_nodes
from graphwright.errors import PassError, UnknownNameError
from graphwright.hierarchy import as_flat
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import enter_context, exit_context
from graphwright.passes.parts.balanced_cuts import balanced_cuts
from graphwright.passes.parts.stage_modules import Split, make_stages
from graphwright.passes.parts.stage_order import labelled_stages
from graphwright.passes.parts.wanted_values import close_names
from graphwright.passes.support.node_names import module_paths, node_names
from graphwright.runtime import as_captured, call_of, graph_of, read_attribute

Balance = Literal["flops", "params", "memory", "time"]
_FREE = ("placeholder", "get_attr", "output")


def split(
    gm: nn.Module,
    *,
    at: Iterable[str] | None = None,
    parts: int | None = None,
    balance: Balance = "params",
    by: Mapping[str, Any] | Callable[[Node], Any] | None = None,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Split:
    """Cut a captured module into stages: modules that have its modules and tensors under their names.

    Say where in one of three ways. `at` names modules or values (see `node_names`) that stages begin with, where they
    first run. `parts` is how many stages to make, of like `balance`: "params", elements of parameters; "flops",
    floating-point operations; "memory", bytes of parameters and of what nodes give; or "time", measured. All but the
    first need example inputs, `args` and `kwargs`. `by` tells the stage of each module, as a dict from paths to labels,
    or of each node, as a function; what it does not name goes with what it reads.

    What a stage takes from others, or from the inputs of the program, are its inputs, a value that skips stages too;
    parameters that several stages use are in each of them, and reported. The state_dict of each stage is a part of the
    whole's. The captured module is not changed, and shares its tensors. Raises UnknownNameError for a name that nothing
    has; PassError for a cut inside of a branch, a loop or a `with` block, for stages that need each other, for an empty
    stage, and where there are too few places to cut.

    >>> import torch
    >>> from graphwright import trace
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> stages = split(trace(model, torch.ones(3, 4)), at=["1"])
    >>> print(stages)
    stage    nodes  parameters  cost  inputs   outputs
    stage_0  1      40          0     input_1  linear
    stage_1  2      18          0     0.linear
    >>> torch.equal(stages.module(torch.ones(2, 4)), model(torch.ones(2, 4)))
    True
    """
    given = [name for name, value in (("at", at), ("parts", parts), ("by", by)) if value is not None]
    if len(given) != 1:
        raise PassError(
            f"split was told where to cut by {' and '.join(given) or 'nothing'}", fix="pass one of at, parts and by"
        )
    gm = as_flat(as_captured(gm))
    graph = graph_of(gm)
    nodes = [node for node in graph.nodes if node._op not in _FREE]
    if by is not None:
        stage_of, count = labelled_stages(gm, nodes, by)
        return make_stages(gm, graph, stage_of, [0.0] * count, type(gm).__name__)
    blocks = _blocks(nodes)
    weights = [0.0] * len(nodes)
    if at is not None:
        cuts = _named_cuts(graph, nodes, blocks, at)
    else:
        assert parts is not None
        weights = _weights(gm, graph, nodes, balance, args, kwargs)
        cuts = _balanced(nodes, blocks, weights, parts)
    begins = [0, *cuts]
    ends = [*cuts, len(nodes)]
    stage_of = {node: i for i, (begin, end) in enumerate(zip(begins, ends, strict=True)) for node in nodes[begin:end]}
    sums = [sum(weights[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    return make_stages(gm, graph, stage_of, sums, type(gm).__name__)


def _blocks(nodes: list[Node]) -> list[Node | None]:
    """For each node the `with` block that a cut before it would be inside of, None for none."""
    entered: list[Node] = []
    found: list[Node | None] = []
    for node in nodes:
        found.append(entered[-1] if entered else None)
        if node._target is enter_context:
            entered.append(node)
        elif node._target is exit_context and node._args[0] in entered:
            entered.remove(node._args[0])
    return found


# ---- by name


def _named_cuts(graph: Graph, nodes: list[Node], blocks: list[Node | None], at: Iterable[str]) -> list[int]:
    """The places of cuts by name, in order."""
    place = {node: i for i, node in enumerate(nodes)}
    known: dict[str, int] = {}
    for node, name in node_names(graph).items():
        if node in place:
            known.setdefault(name, place[node])
    for i, node in enumerate(nodes):
        known.setdefault(node.name, i)
        for path in module_paths(node):
            known[path] = min(i, known.get(path, i))
    cuts: dict[int, str] = {}
    for name in [at] if isinstance(at, str) else at:
        if name not in known:
            raise _unknown(graph, name, known)
        i = known[name]
        block = blocks[i]
        if block is not None:
            raise PassError(f"a cut at {name!r} would be inside of a `with` block", at=block.origin)
        if i == 0 or i in cuts:
            why = "it is the first thing to run" if i == 0 else f"{cuts[i]!r} begins there, too"
            raise PassError(f"a cut at {name!r} would make an empty stage: {why}", fix="leave it out")
        cuts[i] = name
    if not cuts:
        raise PassError("there is nothing to cut at", fix='name modules: at=["layers.8"]')
    return sorted(cuts)


def _unknown(graph: Graph, name: str, known: Iterable[str]) -> Exception:
    for node in graph.nodes if graph.has_bodies else ():
        for body in bodies_of(node):
            for inner in body.all_nodes():
                if name in (inner.name, *module_paths(inner)):
                    is_fork = all(user.op == "output" for user in node.users)  # the rest of the program, once per side
                    return PassError(
                        f"{name!r} is inside of {getattr(node.target, '__name__', 'a region')}, which cannot be cut",
                        at=node.origin,
                        fix="cut before it, or capture with max_paths=1, so that what follows is captured once"
                        if is_fork
                        else "cut before or behind it",
                    )
    return UnknownNameError(f"no module and no value is called {name!r}", fix=close_names(name, known))


# ---- by weight


def _balanced(nodes: list[Node], blocks: list[Node | None], weights: list[float], parts: int) -> list[int]:
    if not isinstance(parts, int) or parts < 1:
        raise PassError(f"a program cannot be cut into {parts!r} stages", fix="pass a positive number")
    place = {node: i for i, node in enumerate(nodes)}
    changes = [0] * (len(nodes) + 1)  # how many more values are needed further on
    for i, node in enumerate(nodes):
        last = max((place.get(user, len(nodes) - 1) for user in node.users), default=i)
        if last > i:
            changes[i + 1] += 1
            changes[last + 1] -= 1
    crossing, total = [], 0
    for i in range(len(nodes)):
        total += changes[i]
        crossing.append(total)
    if not any(weights):
        weights = [1.0] * len(nodes)
    allowed = [block is None for block in blocks]
    try:
        return balanced_cuts(weights, crossing, allowed, parts)
    except ValueError as error:
        raise PassError(f"the program cannot be cut into {parts} stages: {error}", fix="ask for fewer") from None


def _weights(
    gm: nn.Module, graph: Graph, nodes: list[Node], balance: str, args: Any, kwargs: Mapping[str, Any] | None
) -> list[float]:
    if balance not in ("flops", "params", "memory", "time"):
        raise PassError(f"there is no balance by {balance!r}", fix="pass flops, params, memory or time")
    if balance == "params":
        return _parameters(gm, nodes, lambda parameter: parameter.numel())
    inputs, named = call_of(args, kwargs)
    if not inputs and not named and graph.placeholders():
        raise PassError(f"to balance by {balance} the program has to run", fix="pass example inputs: args=(x,)")
    if balance == "time":
        took = seconds_of_nodes(gm, inputs, named)
        return [sum(took.get(each, 0.0) for each in _with_bodies(node)) for node in nodes]
    report = {cost.name: cost for cost in costs(gm, inputs, named).nodes}  # bodies after what they are part of
    inside = {node: [each.name for each in _with_bodies(node)] for node in nodes}
    if balance == "flops":
        return [float(sum(report[name].flops for name in inside[node] if name in report)) for node in nodes]
    held = _parameters(gm, nodes, lambda parameter: parameter.numel() * parameter.element_size())
    given = [sum(report[name].bytes_written for name in inside[node] if name in report) for node in nodes]
    return [one + other for one, other in zip(held, given, strict=True)]


def _with_bodies(node: Node) -> list[Node]:
    return [node, *[inner for body in bodies_of(node) for inner in body.all_nodes()]]


def _parameters(gm: nn.Module, nodes: list[Node], size: Callable[[nn.Parameter], int]) -> list[float]:
    """What the parameters weigh that each node is the first to read."""
    seen: set[int] = set()
    weights = []
    for node in nodes:
        total = 0
        for parameter in _read_by(gm, node):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                total += size(parameter)
        weights.append(float(total))
    return weights


def _read_by(gm: nn.Module, node: Node) -> Iterable[nn.Parameter]:
    if node._op == "call_module":
        yield from gm.get_submodule(str(node._target)).parameters()
    inner = (each for body in bodies_of(node) for each in body.all_nodes()) if bodies_of(node) else ()
    for used in (*node.all_input_nodes, *inner):
        if used._op == "get_attr":
            value = read_attribute(gm, str(used._target))
            if isinstance(value, nn.Parameter):
                yield value
        elif used._op == "call_module" and used.graph is not node.graph:
            yield from gm.get_submodule(str(used._target)).parameters()
