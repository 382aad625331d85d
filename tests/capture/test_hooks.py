"""What a Tracer subclass may override or set: the same calls, in the same order, as in torch.fx."""

import copy
import math
import operator
import re
from collections import OrderedDict
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn

import graphwright
from graphwright import TraceError

PACKAGES = (torch.fx, graphwright)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("offset", torch.ones(2))
        self.table = torch.ones(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x)) + self.weight + self.offset + self.table


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.block(self.block(x)))

    def halved(self, x: torch.Tensor, by: int = 2) -> torch.Tensor:
        return self.block(x) / by


def text(graph: Any) -> str:
    return str(graph).replace("_operator.", "operator.")


def spy(fx: ModuleType) -> list[Any]:
    log: list[Any] = []

    class Spy(fx.Tracer):  # type: ignore[name-defined, misc]
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            log.append(("leaf", type(m), module_qualified_name))
            return super().is_leaf_module(m, module_qualified_name)  # type: ignore[no-any-return]

        def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
            log.append(("call", type(m), forward.__name__, str(args), kwargs))
            return super().call_module(m, forward, args, kwargs)

        def create_arg(self, a: Any) -> Any:
            if isinstance(a, torch.Tensor):
                log.append(("tensor", tuple(a.shape)))
            return super().create_arg(a)

        def create_node(
            self, kind: Any, target: Any, args: Any, kwargs: Any, name: Any = None, type_expr: Any = None
        ) -> Any:
            stack = dict(self.module_stack), self.scope.module_path, self.scope.module_type, dict(self.num_calls)
            log.append(("node", kind, str(args), kwargs, type_expr, *stack))
            return super().create_node(kind, target, args, kwargs, name, type_expr)

        def proxy(self, node: Any) -> Any:
            log.append(("proxy", node.name))
            return super().proxy(node)

        def path_of_module(self, mod: nn.Module) -> str:
            log.append(("path", type(mod)))
            return super().path_of_module(mod)  # type: ignore[no-any-return]

        def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
            if isinstance(attr_val, torch.Tensor):
                log.append(("read", attr, type(attr_val), sorted(parameter_proxy_cache)))
            return super().getattr(attr, attr_val, parameter_proxy_cache)

        def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
            log.append(("root", root_fn.__qualname__, is_module, concrete_args))
            made = super().create_args_for_root(root_fn, is_module, concrete_args)
            log.append((made[0].__qualname__, [type(arg).__name__ for arg in made[1]]))
            return made

    tracer = Spy()
    tracer.trace(Model())
    log += [tracer.node_name_to_scope, tracer.root_module_name, list(tracer.tensor_attrs.values()), tracer.num_calls]
    return log


def test_hooks_are_called_as_in_torch_fx() -> None:
    theirs, ours = (spy(fx) for fx in PACKAGES)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other


def test_the_module_stack_tells_calls_of_one_module_apart() -> None:
    theirs, ours = (
        {node.name: node.meta.get("nn_module_stack") for node in fx.symbolic_trace(Model()).graph.nodes}
        for fx in PACKAGES
    )
    assert ours == theirs
    assert isinstance(ours["add"], OrderedDict)
    assert "block@1" in ours["add_3"]


ATTRIBUTES = [
    pytest.param({"proxy_buffer_attributes": True}, {}, id="buffers are proxies"),
    pytest.param({}, {"param_shapes_constant": True}, id="constant shapes of parameters"),
    pytest.param({"traced_func_name": "halved"}, {}, id="another method"),
]


@pytest.mark.parametrize(("attributes", "arguments"), ATTRIBUTES)
def test_attributes_of_a_tracer(attributes: dict[str, Any], arguments: dict[str, Any]) -> None:
    theirs, ours = (type("Custom", (fx.Tracer,), attributes)(**arguments).trace(Model()) for fx in PACKAGES)
    assert text(ours) == text(theirs)


def test_shapes_of_parameters_may_decide_branches() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = self.weight
            if weight.shape[0] < 10 and weight.ndim == 2 and weight.dim() == 2 and weight.numel() == weight.nelement():
                return x + weight.size()[0] + weight
            return torch.relu(x)

    theirs, ours = (fx.Tracer(param_shapes_constant=True).trace(Branches()) for fx in PACKAGES)
    assert text(ours) == text(theirs)
    with pytest.raises(TraceError, match="control flow"):
        graphwright.symbolic_trace(Branches(), control_flow="error")


def test_a_legacy_getattr_hook_is_asked() -> None:
    class Legacy(graphwright.Tracer):
        def _module_getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
            if attr == "weight":
                return 3
            return super()._module_getattr(attr, attr_val, parameter_proxy_cache)

    assert "block.weight" not in str(Legacy().trace(Model()))


def test_stack_traces_name_the_users_lines() -> None:
    def traces(fx: ModuleType) -> dict[str, str | None]:
        tracer = fx.Tracer()
        tracer.record_stack_traces = True
        graph = tracer.trace(Model())
        assert all(
            graph.node_copy(node, lambda n: n).stack_trace == node.stack_trace for node in list(graph.nodes)[1:-1]
        )
        return {node.name: node.stack_trace for node in list(graph.nodes)[:8]}

    theirs, ours = (traces(fx) for fx in PACKAGES)
    for name, trace in ours.items():
        other = theirs[name]
        if trace is None or other is None:
            assert trace is other
            continue
        assert [line for line in other.splitlines() if "test_hooks" in line] == [
            line for line in trace.splitlines() if "test_hooks" in line
        ]
        assert "site-packages" not in trace


def test_stack_frames_can_be_filtered() -> None:
    class First(graphwright.Tracer):
        record_stack_traces = True

        def _filter_traceback_frames(self, user_stack_summary: Any) -> Any:
            return type(user_stack_summary).from_list(user_stack_summary[:1])

    assert all(node.stack_trace.count("File") == 1 for node in list(First().trace(Model()).nodes)[1:-1])


MUTABLE = [
    pytest.param(torch.relu_, True, id="in place"),
    pytest.param(lambda x: torch.ops.aten.add_.Tensor(x, x), True, id="an overload"),
    pytest.param(lambda x: torch.add(x, x), False, id="functional"),
    pytest.param(lambda x: x.add_(1), False, id="a method"),
    pytest.param(torch.nn.functional.gelu, False, id="no schema of that name"),
]


@pytest.mark.parametrize(("program", "is_mutable"), MUTABLE)
def test_mutable_operations_are_refused_on_request(program: Any, is_mutable: bool) -> None:
    for fx in PACKAGES:
        tracer = type("Careful", (fx.Tracer,), {"check_mutable_operations": True})()
        if not is_mutable:
            tracer.trace(lambda x: program(x))
            continue
        with pytest.raises(RuntimeError, match="Tried to trace mutable operation aten::"):
            tracer.trace(lambda x: program(x))


def test_asserts_are_recorded_on_request() -> None:
    names: dict[str, Any] = {}  # compiled here: pytest rewrites the asserts of its own files
    exec("def checked(x):\n    assert x > 1\n    assert x < 9, 'too large'\n    return x + 1", names)
    tracer = type("Asserting", (graphwright.Tracer,), {"trace_asserts": True})()
    gm = graphwright.GraphModule(nn.Module(), tracer.trace(names["checked"]))
    assert gm(2) == 3
    with pytest.raises(AssertionError):
        gm(0)
    with pytest.raises(AssertionError, match="too large"):
        gm(10)
    tracer.control_flow = "error"
    with pytest.raises(TraceError, match="control flow"):
        tracer.trace(lambda x: 1 if x else 2)


def test_control_flow_takes_two_values() -> None:
    assert graphwright.symbolic_trace(lambda x: 1 if x else 2, control_flow="stage")(False) == 2
    with pytest.raises(TraceError, match="control flow"):
        graphwright.symbolic_trace(lambda x: 1 if x else 2, control_flow="error")
    with pytest.raises(ValueError, match="'stage' or 'error'"):
        graphwright.symbolic_trace(lambda x: x, control_flow="follow")  # type: ignore[arg-type]


def test_tracers_are_copied() -> None:
    for fx in PACKAGES:
        tracer = fx.Tracer()
        before = copy.deepcopy(tracer)
        tracer.trace(Model())
        after = copy.deepcopy(tracer)
        assert not hasattr(before, "graph")
        assert str(after.graph) == str(tracer.graph)
        assert after.graph is not tracer.graph


def test_fresh_names() -> None:
    model = Model()
    model._thing0 = 1  # type: ignore[assignment]
    for fx in PACKAGES:
        tracer = fx.Tracer()
        tracer.trace(model)
        assert tracer.get_fresh_qualname("_thing") == "_thing1"


def test_a_module_outside_of_the_root_is_named() -> None:
    class Hides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [nn.Linear(2, 2)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.hidden[0](x)  # type: ignore[no-any-return]

    for fx in PACKAGES:
        with pytest.raises(NameError, match="module is not installed as a submodule"):
            fx.symbolic_trace(Hides())


def test_whether_a_trace_is_running_is_known() -> None:
    seen = []

    def program(x: Any) -> Any:
        module = graphwright._symbolic_trace
        seen.append((module.is_fx_tracing(), module.is_fx_symbolic_tracing(), bool(module._is_fx_tracing_flag)))
        return x

    program(1)
    graphwright.symbolic_trace(program)
    program(1)
    assert seen == [(False,) * 3, (True,) * 3, (False,) * 3]


def test_math_is_recorded_and_others_on_request() -> None:
    def program(x: Any) -> Any:
        return math.sqrt(x.shape[0]) + math.floor(x)

    theirs, ours = (fx.symbolic_trace(program) for fx in PACKAGES)
    assert text(ours.graph) == text(theirs.graph)
    assert ours.graph.find_nodes(op="call_function", target=math.sqrt)
    assert math.sqrt(4) == 2 and math.sqrt is vars(math)["sqrt"] and not hasattr(math.sqrt, "__wrapped__")
    theirs, ours = (fx.Tracer(autowrap_functions=(halve,)).trace(lambda x: halve(x) + 1) for fx in PACKAGES)
    assert text(ours) == text(theirs)
    theirs, ours = (fx.Tracer(autowrap_modules=(operator,)).trace(lambda x: operator.index(x) + 1) for fx in PACKAGES)
    assert text(ours) == text(theirs)


def halve(x: Any) -> Any:
    return int(x / 2)


def test_proxies_are_copied_with_their_node_and_tracer() -> None:
    for fx in PACKAGES:
        node = list(fx.symbolic_trace(lambda x: 2 * x).graph.nodes)[1]
        proxy = node.proxy = fx.Proxy(node)
        copied = copy.deepcopy(proxy)
        assert copied.node is not node and copied.tracer is not proxy.tracer
        assert (copied.node.name, copied.node.target) == (node.name, node.target)


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.zeros(3))
        self.register_buffer("offset", torch.zeros(3))

    def forward(self, x: Any, y: Any = 3, *args: Any, **kwargs: Any):  # type: ignore[no-untyped-def]
        z = self.linear(x) + self.weight + self.offset
        z = z[0].clamp(min=y) ** 2
        first, second = z.shape
        return {"z": torch.relu(z), "sizes": [first, -second], "constant": torch.zeros(2) + z, "x": x[1:]}


def hooked(fx: Any, hook: str) -> list[str]:
    """What one hook of a tracer is called with, in order."""
    calls: list[str] = []

    def own(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(re.sub(r"tensor\(.*?\)|<.*?>", "...", f"{args} {sorted(kwargs.items())}"))
        return getattr(fx.Tracer, hook)(self, *args, **kwargs)

    type("Own", (fx.Tracer,), {hook: own})().trace(Mixed())
    return calls


@pytest.mark.parametrize("hook", ["create_arg", "create_node", "create_proxy", "proxy"])
def test_hooks_get_the_arguments_of_torch_fx(hook: str) -> None:
    assert hooked(graphwright, hook) == hooked(torch.fx, hook)


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_tracer_keeps_on_its_proxies_is_no_part_of_the_program(package: ModuleType) -> None:
    class Known(package.Proxy):  # type: ignore[name-defined, misc]
        def __init__(self, node: Any, tracer: Any) -> None:
            super().__init__(node, tracer)
            self.uses = 0
            self.fact: Any = None

        @property
        def shape(self) -> Any:
            self.uses += 1
            return self.fact.shape

    class Keeping(package.Tracer):  # type: ignore[name-defined, misc]
        proxy_buffer_attributes = True

        def proxy(self, node: Any) -> Any:
            return Known(node, self)

        def create_proxy(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> Any:
            made = super().create_proxy(kind, target, *args, **kwargs)
            made.fact = torch.ones(2)
            return made

    class Asking(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + self.block.offset / self.block.offset.shape[0]

    graph = Keeping().trace(Asking())
    assert not graph.find_nodes(op="call_function", target=setattr)
    (divided,) = graph.find_nodes(op="call_function", target=operator.truediv)
    assert divided.args[1] == 2
