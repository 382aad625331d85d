"""GraphModule and Interpreter beside torch.fx: the same programs, the same answers, the same errors."""

import copy
import importlib
import io
import operator
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

PACKAGES = ("torch.fx", "graphwright")


class Tree(nn.Module):
    """A parameter, a buffer, a plain tensor, a plain value, nested modules and one that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.ones(3))
        self.plain = torch.ones(3)
        self.unused = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.linear(x) * self.scale + self.shift + self.plain)


class Leaf(nn.Module):
    """Printed as a class of its own where it is called as a leaf."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) + 1


def relu_mm(x: Tensor) -> Tensor:
    y = torch.relu(x)
    return torch.mm(y, y)


def add(x: Any, y: Any = 2) -> Any:
    return x + y


def traced_tree(fx: Any) -> Any:
    return fx.symbolic_trace(Tree())


def graph_with(fx: Any, op: str, target: Any) -> Any:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.create_node(op, target, (x,) if op == "call_module" else ()))
    return graph


def without(module: nn.Module, name: str) -> nn.Module:
    delattr(module, name)
    return module


def names(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_modules()]


def unused_deleted(fx: Any) -> list[str]:
    gm = traced_tree(fx)
    gm.add_submodule("deep.inside", nn.Linear(1, 1))
    gm.add_submodule("block.more", nn.Linear(1, 1))
    gm.delete_all_unused_submodules()
    return names(gm)


def lazily(fx: Any) -> list[Any]:
    lazy = importlib.import_module(f"{fx.__name__}._lazy_graph_module")
    seen: list[Any] = [fx.symbolic_trace(add).__class__.__mro__[1] is fx.GraphModule]
    with lazy._use_lazy_graph_module(True):
        seen.append(lazy._get_graph_module_cls() is lazy._LazyGraphModule)
        gm = fx.symbolic_trace(add)
        seen += [isinstance(gm, lazy._LazyGraphModule), gm._needs_recompile()]
        seen += [gm(1, 2), gm._needs_recompile(), gm.recompile(), gm._needs_recompile()]
        seen += ["x + y" in gm.code, gm._needs_recompile()]
        gm.recompile()
        gm.real_recompile()
        seen += [gm._needs_recompile(), isinstance(fx.GraphModule(gm, gm.graph), lazy._LazyGraphModule)]
        plain = lazy._make_graph_module(gm, gm.graph, graph_module_cls=fx.GraphModule)
        seen.append(isinstance(plain, lazy._LazyGraphModule))
        made = lazy._make_graph_module(gm, gm.graph, "Named")
        seen += [isinstance(made, lazy._LazyGraphModule), type(made).__name__]
        seen.append(isinstance(fx.Transformer(gm).transform(), lazy._LazyGraphModule))
    return seen


def compiled_once(fx: Any) -> int:
    lazy = importlib.import_module(f"{fx.__name__}._lazy_graph_module")
    calls = []
    original = fx.GraphModule.recompile

    def counting(self: Any) -> Any:
        calls.append(1)
        return original(self)

    with pytest.MonkeyPatch.context() as patch, lazy._use_lazy_graph_module(True):
        gm = fx.symbolic_trace(add)
        patch.setattr(fx.GraphModule, "recompile", counting)
        gm = lazy._make_graph_module(gm, gm.graph)
        forward = gm.forward
        for _ in range(3):
            forward(1, 2)
    return len(calls)


def two_graphs(fx: Any) -> list[Any]:
    """A subclass that passes over GraphModule's constructor and has a graph for each mode."""

    class Dual(fx.GraphModule):  # type: ignore[misc, name-defined]
        def __init__(self, train_graph: Any, eval_graph: Any) -> None:
            super(fx.GraphModule, self).__init__()
            self.train_graph, self.eval_graph = train_graph, eval_graph
            self.train()
            self.graph = train_graph

        def train(self, mode: bool = True) -> Any:
            if mode and not self.training:
                self.graph = self.train_graph
            elif not mode and self.training:
                self.graph = self.eval_graph
            return super().train(mode)

    dual = Dual(fx.symbolic_trace(lambda x: x + 1).graph, fx.symbolic_trace(lambda x: x * 10).graph)
    return [dual(5), dual.eval()(5), dual.train()(5), dual.eval().code]


def paths(fx: Any) -> list[Any]:
    home = importlib.import_module(f"{fx.__name__}.graph_module")
    model, other = Tree(), nn.Module()
    home._copy_attr(model, other, "block.0.weight")
    home._copy_attr(model, other, "plain")
    home._assign_attr(torch.ones(1), other, "new.path.tensor")
    home._assign_attr(3, other, "new.number")
    home._del_attr(other, "block.0.weight")
    return [
        *names(other), [name for name, _ in other.named_buffers()], [name for name, _ in other.named_parameters()],
        home._get_attr(model, "linear.weight").shape, home._get_attr_via_attr_list(model, ["linear", "bias"]).shape,
        home._has_attr(other, "block.0.weight"), other.new.number, home._USER_PRESERVED_ATTRIBUTES_KEY,
    ]  # fmt: skip


def run(fx: Any, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return fx.Interpreter(fx.symbolic_trace(function)).run(*args, **options)


def values_kept(fx: Any, garbage_collect_values: bool) -> list[str]:
    interpreter = fx.Interpreter(fx.symbolic_trace(add), garbage_collect_values)
    interpreter.run(1, 2)
    return [node.name for node in interpreter.env]


def given(fx: Any, name: str) -> Any:
    gm = fx.symbolic_trace(add)
    return fx.Interpreter(gm).run(1, 2, initial_env={node: 99 for node in gm.graph.nodes if node.name == name})


def boxed(fx: Any, count: int) -> tuple[Any, list[Any]]:
    values = list(range(count))
    return fx.Interpreter(fx.symbolic_trace(add)).boxed_run(values), values


def transformed(fx: Any, gm: Any) -> list[Any]:
    class Swap(fx.Transformer):  # type: ignore[misc, name-defined]
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(operator.mul if target is operator.add else target, args, kwargs)

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            return torch.neg(super().call_module(target, args, kwargs))

    made = Swap(gm).transform()
    return [made.code, type(made).__name__, made.training, names(made), str(made.graph)]


def registered(fx: Any) -> list[Any]:
    gm, copies = traced_tree(fx), []

    def hook(*args: Any) -> None:
        pass

    gm._register_create_node_hook(hook)
    gm._register_erase_node_hook(hook)
    gm._register_deepcopy_hook(copies.append)
    copied = copy.deepcopy(gm)
    with gm._set_replace_hook(hook):
        counts = [len(gm._create_node_hooks), len(gm._erase_node_hooks), len(gm._replace_hooks)]
    counts += [len(gm._replace_hooks), len(copied._create_node_hooks), len(copied._deepcopy_hooks)]
    gm._unregister_create_node_hook(hook)
    return [*counts, len(gm._create_node_hooks), len(copied._create_node_hooks), [one is copied for one in copies]]


def heard(fx: Any) -> list[Any]:
    """What hooks hear of one node made, one input replaced and one node erased."""
    gm, events = fx.symbolic_trace(lambda x: torch.relu(x) + 1), []
    gm._register_create_node_hook(lambda node: events.append(("create", node.name)))
    gm._register_erase_node_hook(lambda node: events.append(("erase", node.name)))
    gm._register_replace_node_hook(lambda old, new, user: events.append(("replace", str(old), str(new), str(user))))
    _, relu, plus, _ = gm.graph.nodes
    with gm.graph.inserting_after(relu):
        neg = gm.graph.call_function(torch.neg, (relu,))
    plus.replace_input_with(relu, neg)
    plus.replace_all_uses_with(neg)
    gm.graph.erase_node(plus)
    return events


PROGRAMS: list[Any] = [
    pytest.param(heard, id="hooks hear edits"),
    pytest.param(registered, id="hooks"),
    pytest.param(lambda fx: traced_tree(fx)._register_create_node_hook(3), id="a hook that is no function"),
    pytest.param(lambda fx: fx.GraphModule(nn.Module(), graph_with(fx, "call_module", "deep.one")), id="module lacks"),
    pytest.param(lambda fx: fx.GraphModule(nn.Module(), graph_with(fx, "get_attr", "one")), id="attribute lacks"),
    pytest.param(lambda fx: fx.GraphModule({}, graph_with(fx, "call_module", "one")), id="dict lacks"),
    pytest.param(lambda fx: fx.GraphModule([], fx.Graph()), id="root of a wrong type"),
    pytest.param(lambda fx: setattr(traced_tree(fx), "graph", 3), id="graph of a wrong type"),
    pytest.param(lambda fx: str(traced_tree(fx)), id="str"),
    pytest.param(lambda fx: repr(traced_tree(fx)), id="repr"),
    pytest.param(lambda fx: list(traced_tree(fx).state_dict()), id="state_dict"),
    pytest.param(
        lambda fx: [fx.symbolic_trace(Tree().eval()).training, fx.GraphModule({}, fx.Graph()).training], id="training"
    ),
    pytest.param(lambda fx: [traced_tree(fx).meta, traced_tree(fx).code == traced_tree(fx)._code], id="meta and code"),
    pytest.param(lambda fx: (lambda gm: gm._graph is gm.graph)(traced_tree(fx)), id="_graph"),
    pytest.param(
        lambda fx: [traced_tree(fx)._tracer_cls is fx.Tracer, fx.GraphModule({}, fx.Graph())._tracer_cls],
        id="_tracer_cls",
    ),
    pytest.param(lambda fx: type(traced_tree(fx).recompile()).__name__, id="recompile"),
    pytest.param(
        lambda fx: (lambda gm: [gm.add_submodule("a.b.c", nn.ReLU()), *names(gm)])(traced_tree(fx)), id="add_submodule"
    ),
    pytest.param(lambda fx: traced_tree(fx).add_submodule("scale.c", nn.ReLU()), id="add_submodule below a parameter"),
    *[
        pytest.param(
            lambda fx, path=path: (lambda gm: [gm.delete_submodule(path), *names(gm)])(traced_tree(fx)),
            id=f"delete_submodule {path!r}",
        )
        for path in ("linear", "block.0", "block.5", "no.where", "scale", "linear.weight", "")
    ],
    pytest.param(unused_deleted, id="delete_all_unused_submodules"),
    pytest.param(lambda fx: traced_tree(fx)._replicate_for_data_parallel()._is_replica, id="data parallel replica"),
    pytest.param(lazily, id="lazy modules"),
    pytest.param(compiled_once, id="a kept forward compiles once"),
    pytest.param(two_graphs, id="two graphs"),
    pytest.param(paths, id="attributes by path"),
    pytest.param(lambda fx: [run(fx, add, 1), run(fx, add, 1, 5), run(fx, add, 1, 5, 7)], id="run"),
    pytest.param(lambda fx: run(fx, add), id="run without a required argument"),
    pytest.param(lambda fx: run(fx, lambda x, *rest: rest[1] + x, 1, 2, 3), id="starred inputs"),
    pytest.param(lambda fx: [values_kept(fx, True), values_kept(fx, False)], id="what stays in env"),
    pytest.param(lambda fx: [given(fx, "add"), given(fx, "x")], id="initial_env"),
    *[pytest.param(lambda fx, count=count: boxed(fx, count), id=f"boxed_run of {count}") for count in (0, 1, 2, 3)],
    pytest.param(lambda fx: run(fx, relu_mm, torch.ones(2, 3)), id="an error of a node"),
    pytest.param(lambda fx: fx.Interpreter(without(traced_tree(fx), "linear")).run(torch.ones(1, 3)), id="no module"),
    pytest.param(lambda fx: fx.Interpreter(traced_tree(fx)).fetch_attr("linear.no.where"), id="fetch_attr"),
    pytest.param(lambda fx: fx.Interpreter(nn.Linear(1, 1)), id="no graph"),
    pytest.param(lambda fx: fx.Interpreter(nn.Linear(1, 1), graph=fx.symbolic_trace(add).graph).run(4, 5), id="graph="),
    *[
        pytest.param(lambda fx, op=op: getattr(fx.Interpreter(traced_tree(fx)), op)(3, (1,), {}), id=f"target of {op}")
        for op in ("placeholder", "get_attr", "call_method", "call_module")
    ],
    pytest.param(lambda fx: fx.Interpreter(traced_tree(fx)).call_function("neg", (1,), {}), id="target of a call"),
    pytest.param(
        lambda fx: fx.Transformer(fx.symbolic_trace(lambda x, y=2: x + y)).transform().code,
        id="Transformer of defaults",
    ),
    pytest.param(
        lambda fx: transformed(fx, fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval())),
        id="Transformer overridden",
    ),
    pytest.param(lambda fx: transformed(fx, fx.symbolic_trace(lambda x, *rest, **named: x + rest[0])), id="stars"),
    pytest.param(lambda fx: fx.Transformer(fx.symbolic_trace(add)).get_attr(3, (), {}), id="Transformer's get_attr"),
]


class Outcome(NamedTuple):
    """What a program did: its result, or the error's builtin class and the first line of its message."""

    result: Any
    error: type[BaseException] | None
    message: str


BUILTINS = (KeyError, AttributeError, AssertionError, TypeError, RuntimeError)


def outcome(program: Callable[[Any], Any], package: str) -> Outcome:
    torch.manual_seed(0)
    try:
        return Outcome(program(importlib.import_module(package)), None, "")
    except BUILTINS as error:
        kind = next(kind for kind in BUILTINS if isinstance(error, kind))
        return Outcome(None, kind, str(error).splitlines()[0])


@pytest.mark.parametrize("program", PROGRAMS)
def test_does_what_torch_fx_does(program: Callable[[Any], Any]) -> None:
    theirs, ours = (outcome(program, package) for package in PACKAGES)
    assert ours.result == theirs.result
    assert ours.error is theirs.error
    # The words of torch.fx, and perhaps more before or after them; two of its messages say nothing to match on.
    said = theirs.message in ours.message
    assert said or theirs.message.startswith(("'Linear' object has no attribute 'graph'", "create_node hook must be"))


@pytest.mark.parametrize("package", PACKAGES)
def test_an_error_in_generated_code_is_shown_on_stderr(package: str) -> None:
    fx = importlib.import_module(package)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = fx.symbolic_trace(relu_mm)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    class Leaves(fx.Tracer):  # type: ignore[misc, name-defined]
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return True

    outer = Outer()
    shown = io.StringIO()
    with redirect_stderr(shown), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fx.GraphModule(outer, Leaves().trace(outer))(torch.ones(2, 3))
    said = "Call using an FX-traced Module, line 6 of the traced Module's generated forward function:"
    assert shown.getvalue().count(said) == 1  # by the module whose line it is
    assert "    mm = torch.mm(relu, relu);  relu = None\n" in shown.getvalue()


@pytest.mark.parametrize("package", PACKAGES)
def test_an_error_inside_a_submodule_is_not(package: str) -> None:
    shown = io.StringIO()
    with redirect_stderr(shown), pytest.raises(RuntimeError):
        importlib.import_module(package).symbolic_trace(nn.Sequential(nn.Linear(3, 3)))(torch.ones(2, 5))
    assert shown.getvalue() == ""
