"""What people build on torch.fx, with the import line as the only difference: each runs on both libraries."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn

import graphwright

BOTH = (torch.fx, graphwright)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3))) + 1


X = torch.rand(2, 3, 8, 8)


def fuse_convolutions(fx: ModuleType, model: nn.Module) -> Any:
    """A convolution followed by a batch norm that alone reads it becomes one convolution."""
    gm = fx.symbolic_trace(model)
    modules = dict(gm.named_modules())
    for node in gm.graph.nodes:
        if node.op != "call_module" or not isinstance(modules[node.target], nn.BatchNorm2d):
            continue
        before = node.args[0]
        if before.op != "call_module" or not isinstance(modules[before.target], nn.Conv2d) or len(before.users) > 1:
            continue
        fused = nn.utils.fuse_conv_bn_eval(modules[before.target], modules[node.target])
        setattr(gm, before.target, fused)
        node.replace_all_uses_with(before)
        gm.graph.erase_node(node)
    gm.delete_all_unused_submodules()
    gm.graph.lint()
    gm.recompile()
    return gm


def test_a_conv_bn_fuser() -> None:
    model = Small().eval()
    want, got = (fuse_convolutions(fx, model) for fx in BOTH)
    assert got.code == want.code
    assert list(dict(got.named_modules())) == list(dict(want.named_modules()))
    torch.testing.assert_close(got(X), model(X))


def profiler(fx: ModuleType, gm: Any) -> Any:
    """An Interpreter that counts the runs and the elements of each node's value."""

    class Profiler(fx.Interpreter):  # type: ignore[name-defined]
        def __init__(self, module: Any) -> None:
            super().__init__(module)
            self.runs: dict[str, int] = {}
            self.elements: dict[str, int] = {}

        def run_node(self, n: Any) -> Any:
            value = super().run_node(n)
            self.runs[n.name] = self.runs.get(n.name, 0) + 1
            self.elements[n.name] = value.numel() if isinstance(value, Tensor) else 0
            return value

        def summary(self) -> list[tuple[str, str, int, int]]:
            return [(n.op, n.name, self.runs[n.name], self.elements[n.name]) for n in self.module.graph.nodes]

    return Profiler(gm)


def test_a_profiling_interpreter() -> None:
    told = []
    for fx in BOTH:
        run = profiler(fx, fx.symbolic_trace(Small().eval()))
        run.run(X)
        run.run(X)
        told.append(run.summary())
    assert told[1] == told[0]


def annotate_shapes(fx: ModuleType, gm: Any, *args: Any) -> list[tuple[str, Any]]:
    """Run node by node with an environment of one's own, and note the shape and dtype of each tensor."""
    env: dict[Any, Any] = {}
    inputs = iter(args)

    def load(value: Any) -> Any:
        return fx.node.map_arg(value, lambda n: env[n])

    for node in gm.graph.nodes:
        if node.op == "placeholder":
            result = next(inputs)
        elif node.op == "get_attr":
            result = gm.get_parameter(node.target)
        elif node.op == "call_function":
            result = node.target(*load(node.args), **load(node.kwargs))
        elif node.op == "call_method":
            owner, *rest = load(node.args)
            result = getattr(owner, node.target)(*rest, **load(node.kwargs))
        elif node.op == "call_module":
            result = gm.get_submodule(node.target)(*load(node.args), **load(node.kwargs))
        else:
            result = load(node.args)[0]
        if isinstance(result, Tensor):
            node.shape, node.dtype = result.shape, result.dtype
        env[node] = result
    return [(node.name, (node.shape, node.dtype)) for node in gm.graph.nodes]


def test_a_shape_annotator() -> None:
    want, got = (annotate_shapes(fx, fx.symbolic_trace(Small().eval()), X) for fx in BOTH)
    assert got == want


class Observer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = float("inf"), float("-inf")

    def forward(self, x):
        self.low, self.high = min(self.low, x.min().item()), max(self.high, x.max().item())
        return x


def insert_observers(fx: ModuleType, model: nn.Module) -> Any:
    """Put an observer behind the input and behind each value that a layer, a function or a method makes."""
    gm = fx.symbolic_trace(model)
    for number, node in enumerate(list(gm.graph.nodes)):
        if node.op in ("placeholder", "call_module", "call_function", "call_method"):
            gm.add_submodule(f"observer_{number}", Observer())
            with gm.graph.inserting_after(node):
                seen = gm.graph.call_module(f"observer_{number}", (node,))
            node.replace_all_uses_with(seen)
            seen.args = (node,)
    gm.graph.lint()
    gm.recompile()
    return gm


def test_a_quantization_observer_inserter() -> None:
    model = Small().eval()
    want, got = (insert_observers(fx, model) for fx in BOTH)
    assert got.code == want.code
    torch.testing.assert_close(got(X), want(X))
    ranges = [[(m.low, m.high) for m in gm.modules() if isinstance(m, Observer)] for gm in (want, got)]
    assert ranges[1] == ranges[0]


def swap_functions(fx: ModuleType, model: Any, swaps: dict[Any, Any]) -> Any:
    """Every call of a function becomes a call of another, by an edit of the node's target."""
    gm = fx.symbolic_trace(model)
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.target = swaps.get(node.target, node.target)
    gm.graph.lint()
    gm.recompile()
    return gm


def test_swapping_functions() -> None:
    def program(x, y):
        return torch.add(x, y).relu() + torch.add(x, 2)

    want, got = (swap_functions(fx, program, {torch.add: torch.mul}) for fx in BOTH)
    assert got.code == want.code and str(got.graph) == str(want.graph)
    assert torch.equal(got(X, X), (X * X).relu() + X * 2)


def use_functions(fx: ModuleType, model: nn.Module) -> Any:
    """Activation modules become calls of functions."""
    gm = fx.symbolic_trace(model)
    functions = {nn.ReLU: torch.relu, nn.Sigmoid: torch.sigmoid}
    for node in list(gm.graph.nodes):
        function = functions.get(type(gm.get_submodule(node.target))) if node.op == "call_module" else None
        if function is not None:
            with gm.graph.inserting_after(node):
                node.replace_all_uses_with(gm.graph.call_function(function, node.args, node.kwargs))
            gm.graph.erase_node(node)
    gm.delete_all_unused_submodules()
    gm.recompile()
    return gm


def test_modules_become_functions() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Sigmoid())
    want, got = (use_functions(fx, model) for fx in BOTH)
    assert got.code == want.code
    assert list(dict(got.named_modules())) == list(dict(want.named_modules()))
    torch.testing.assert_close(got(X), model(X))


def decompose(fx: ModuleType, model: Any, rules: dict[Any, Any]) -> Any:
    """Record the graph again into a new one, with rules in terms of proxies in place of some functions."""
    gm = fx.symbolic_trace(model)
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    env: dict[str, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in rules:
            args = [fx.Proxy(env[arg.name], tracer) if isinstance(arg, fx.Node) else arg for arg in node.args]
            env[node.name] = rules[node.target](*args).node
        else:
            env[node.name] = graph.node_copy(node, lambda value: env[value.name])
    graph.lint()
    return fx.GraphModule(gm, graph)


def test_decomposing_by_proxies() -> None:
    def program(x):
        return torch.nn.functional.relu(x) * torch.square(x - 0.5)

    rules = {torch.nn.functional.relu: lambda x: (x > 0) * x, torch.square: lambda x: x * x}
    want, got = (decompose(fx, program, rules) for fx in BOTH)
    assert got.code == want.code
    torch.testing.assert_close(got(X - 0.5), program(X - 0.5))


def invert(fx: ModuleType, program: Any) -> Any:
    """A chain of functions of one argument, undone: the inverses in the opposite order."""
    inverses = {torch.exp: torch.log, torch.tan: torch.atan, torch.neg: torch.neg}
    graph = fx.Graph()
    value = graph.placeholder("y")
    for node in reversed(fx.symbolic_trace(program).graph.nodes):
        if node.op == "call_function":
            value = graph.call_function(inverses[node.target], (value,))
    graph.output(value)
    return fx.GraphModule(nn.Module(), graph)


def test_inverting_a_chain() -> None:
    def program(x):
        return torch.exp(torch.neg(torch.tan(x)))

    want, got = (invert(fx, program) for fx in BOTH)
    assert got.code == want.code
    torch.testing.assert_close(got(program(X)), X)


def negate_outputs(fx: ModuleType, program: Any) -> Any:
    """Each value that the program returns goes through `torch.neg` first."""
    gm = fx.symbolic_trace(program)
    (output,) = [node for node in gm.graph.nodes if node.op == "output"]
    with gm.graph.inserting_before(output):
        output.args = fx.node.map_arg(output.args, lambda value: gm.graph.call_function(torch.neg, (value,)))
    gm.recompile()
    return gm


def test_wrapping_outputs() -> None:
    def program(x):
        return {"sum": x + x, "pair": (x, [x * 3])}

    want, got = (negate_outputs(fx, program) for fx in BOTH)
    assert got.code == want.code
    assert torch.equal(got(X)["pair"][1][0], X * -3)


def propagate_dtypes(fx: ModuleType, gm: Any, *dtypes: torch.dtype) -> list[tuple[str, torch.dtype]]:
    """An Interpreter on values without memory, which notes the dtype of each node."""

    class Propagator(fx.Interpreter):  # type: ignore[name-defined]
        def run_node(self, n: Any) -> Any:
            value = super().run_node(n)
            n.meta["dtype"] = value.dtype
            return value

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            module = self.fetch_attr(target)
            state = {name: value.to("meta") for name, value in module.state_dict().items()}
            return torch.func.functional_call(module, state, args, kwargs)

    Propagator(gm).run(*(torch.empty(2, 3, 8, 8, dtype=dtype, device="meta") for dtype in dtypes))
    return [(node.name, node.meta["dtype"]) for node in gm.graph.nodes]


def test_propagating_dtypes() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    want, got = (propagate_dtypes(fx, fx.symbolic_trace(model), torch.float32) for fx in BOTH)
    assert got == want

    def program(x, y):
        return (x + y).to(torch.float64) * (x > 0)

    want, got = (propagate_dtypes(fx, fx.symbolic_trace(program), torch.int32, torch.float16) for fx in BOTH)
    assert got == want and got[-1][1] is torch.float64


def trace_with_leaves(fx: ModuleType, model: nn.Module, kinds: tuple[type, ...]) -> Any:
    """More modules stay closed than torch.nn's own."""

    class Closed(fx.Tracer):  # type: ignore[name-defined]
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, kinds) or super().is_leaf_module(m, module_qualified_name)

    return fx.GraphModule(model, Closed().trace(model), "Closed")


def test_more_leaf_modules() -> None:
    model = nn.Sequential(nn.Sequential(Small(), nn.ReLU()), nn.Linear(2, 2)).eval()
    for kinds in ((Small,), (nn.Sequential,), ()):
        want, got = (trace_with_leaves(fx, model, kinds) for fx in BOTH)
        assert got.code == want.code
        torch.testing.assert_close(got(X), model(X))


def rename_and_swap(fx: ModuleType, gm: Any) -> Any:
    """A Transformer that replaces a function, a method and a module's call."""

    class Swapper(fx.Transformer):  # type: ignore[name-defined]
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(torch.sigmoid if target is torch.relu else target, args, kwargs)

        def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
            return args[0].sum(*args[1:], **kwargs) if target == "mean" else super().call_method(target, args, kwargs)

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            return (
                args[0]
                if isinstance(self.fetch_attr(target), nn.BatchNorm2d)
                else -super().call_module(target, args, kwargs)
            )

    return Swapper(gm).transform()


def test_a_subclassed_transformer() -> None:
    model = Small().eval()
    want, got = (rename_and_swap(fx, fx.symbolic_trace(model)) for fx in BOTH)
    assert got.code == want.code
    torch.testing.assert_close(got(X), want(X))


def test_a_transformed_module_is_pickled() -> None:
    model = Small().eval()
    want, got = (insert_observers(fx, model) for fx in BOTH)
    expected = model(X)
    for gm in (want, got):
        again = pickle.loads(pickle.dumps(gm))
        assert again.code == gm.code
        torch.testing.assert_close(again(X), expected)
