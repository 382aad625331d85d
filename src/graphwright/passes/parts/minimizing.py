"""The smallest part of a model that still fails: what to send with an issue."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphwright.analysis import tensors_in, undisturbed
from graphwright.capture import trace
from graphwright.errors import GraphwrightError, PassError
from graphwright.ir import Graph, Node
from graphwright.runtime import GraphModule, Interpreter, call_of, graph_of


@dataclass(frozen=True)
class Minimized:
    """A part of a model that fails as the whole does.

    path: of the module in the model, "" for the model itself. module: it, or the operations of it that are needed, as
    a captured module. args, kwargs: what it is called with. nodes: of how many operations it is, None where it could
    not be captured.
    """

    path: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    nodes: int | None

    def __str__(self) -> str:
        what = f"{self.nodes} nodes" if self.nodes is not None else "not captured"
        code = self.module.code.strip("\n") if isinstance(self.module, GraphModule) else repr(self.module)
        return f"{self.path or 'the model itself'}: {type(self.module).__name__}, {what}\n{code}"

    def write(self, folder: str | Path) -> Path:
        """Write a folder with the part, its inputs and a `run.py` that calls it; return the path of that file.

        A captured part is Python source and weights. One that could not be captured is a pickle, which needs the
        classes of its modules where it is read.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save((self.args, self.kwargs), folder / "inputs.pt")
        if isinstance(self.module, GraphModule):
            self.module.to_folder(folder / "part", "Part")
            make = "from part import Part\n\nmodule = Part()"
        else:
            torch.save(self.module, folder / "module.pt")
            make = 'module = torch.load("module.pt", weights_only=False)'
        mode = "train" if self.module.training else "eval"
        path = folder / "run.py"
        path.write_text(
            f'"""{type(self.module).__name__}, at {self.path or "the root"}: run in this folder."""\n\nimport torch\n'
            f'{make}\nargs, kwargs = torch.load("inputs.pt", weights_only=False)\n'
            f"print(module.{mode}()(*args, **kwargs))\n"
        )
        return path


def minimize(
    model: nn.Module | Callable[..., Any],
    args: Any,
    fails: Callable[..., bool],
    kwargs: Mapping[str, Any] | None = None,
) -> Minimized:
    """Find the smallest part of a model that still fails: a submodule, then the operations of it that are needed.

    `fails(module, *args, **kwargs)` tells whether a module fails when it is called so; an exception counts as that it
    does not, so that `fails` says which exception it means. It is called with submodules and what they get in the
    model, and then with captured modules of some of their operations. The model is not changed. Raises PassError where
    the model itself does not fail.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Tanh()), nn.Linear(4, 2))
    >>> found = minimize(model, torch.ones(1, 4), lambda module, *args: bool((module(*args).abs() < 1).all())
    ...     and any(isinstance(each, nn.Tanh) for each in module.modules()))
    >>> found.path, type(found.module).__name__
    ('1.1', 'Tanh')
    """
    given, named = call_of(args, kwargs)
    model = model if isinstance(model, nn.Module) else trace(model, given, named)
    if not _fails(fails, model, given, named):
        raise PassError("the model does not fail", fix="have fails(model, *args) be true of the model itself")
    path, module, call = "", model, (given, named)
    while (found := _failing_child(module, call, fails)) is not None:
        name, module, call = found
        path = f"{path}.{name}" if path else name
    try:
        gm = trace(module, *call)
    except Exception:  # it cannot be captured, which may be how it fails
        return Minimized(path, module, *call, None)
    if not _fails(fails, gm, *call):
        return Minimized(path, module, *call, None)
    return _fewer_nodes(path, gm, call, fails)


Call = tuple[tuple[Any, ...], dict[str, Any]]


def _fails(fails: Callable[..., bool], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    given, named = _copied((args, kwargs))
    try:
        return bool(fails(module, *given, **named))
    except Exception:
        return False


def _copied(call: Call) -> Call:
    known = {id(tensor): tensor.detach().clone() for tensor in tensors_in(call)}
    copied: Call = copy.deepcopy(call, known)
    return copied


# ---- submodules


def _failing_child(module: nn.Module, call: Call, fails: Callable[..., bool]) -> tuple[str, nn.Module, Call] | None:
    """A submodule that fails with what it gets in a call of the module around it; the deepest ones come with theirs."""
    calls: list[tuple[str, nn.Module, Call]] = []

    def note(name: str) -> Callable[..., None]:
        return lambda child, args, kwargs: calls.append((name, child, _copied((args, kwargs))))

    # Of a list of modules, those inside of it are called.
    inner = [(name, child) for name, child in module.named_modules() if name]
    hooks = [child.register_forward_pre_hook(note(name), with_kwargs=True) for name, child in inner]
    try:
        with undisturbed(module):
            given, named = _copied(call)
            module(*given, **named)
    except Exception:  # where it fails by raising, what was called until then is known
        pass
    finally:
        for hook in hooks:
            hook.remove()
    for name, child, made in sorted(calls, key=lambda each: len(list(each[1].modules()))):
        if _fails(fails, child, *made):
            return name, child, made
    return None


# ---- operations


def _fewer_nodes(path: str, gm: GraphModule, call: Call, fails: Callable[..., bool]) -> Minimized:
    """Leave out operations at the end and at the start for as long as it fails."""
    best = Minimized(path, gm, *call, len(graph_of(gm).nodes))
    try:
        values = _Values(gm)
        with undisturbed(gm):
            given, named = _copied(call)
            values.run(*given, **named)
    except Exception:
        return best
    nodes = [node for node in graph_of(gm).nodes if node.op not in ("placeholder", "output", "get_attr")]
    first, last = 0, len(nodes)
    step = len(nodes) // 2
    while step:
        for candidate in ((first, last - step), (first + step, last)):
            if candidate[0] >= candidate[1]:
                continue
            part = _part(gm, nodes[candidate[0] : candidate[1]], values.found)
            if part is not None and _fails(fails, part[0], part[1], {}):
                first, last = candidate
                best = Minimized(path, part[0], part[1], {}, len(graph_of(part[0]).nodes))
                break
        else:
            step //= 2
    return best


class _Values(Interpreter):
    """Runs a graph and keeps what each node gives."""

    def __init__(self, gm: nn.Module) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.found: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        """Run one node, and keep a copy of its value as it is then."""
        value = super().run_node(n)
        self.found[n] = _copied(((value,), {}))[0][0]
        return value


def _part(gm: GraphModule, chosen: list[Node], values: dict[Node, Any]) -> tuple[GraphModule, tuple[Any, ...]] | None:
    """Some operations as a module, and the values that they read; None where they make none."""
    graph, known, args = Graph(), {}, []
    inside = set(chosen)
    outside = dict.fromkeys(used for node in chosen for used in node.all_input_nodes if used not in inside)
    for node in outside:
        if node.op == "get_attr":
            known[node] = graph.node_copy(node)
        elif node in values:
            known[node] = graph.placeholder(node.name)
            args.append(values[node])
        else:
            return None
    try:
        for node in chosen:
            known[node] = graph.node_copy(node, known.__getitem__)
        graph.output(known[chosen[-1]])
        return GraphModule(gm, graph), tuple(args)
    except (GraphwrightError, KeyError):
        return None
