"""What TorchScript has compiled, inside of programs that are traced; and what no tracing can enter."""

import copy
import functools
import operator
import warnings
from collections.abc import Callable
from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035 - as programs write them

import pytest
import torch
import torch.fx
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import graphwright

BOTH = (graphwright, torch.fx)
OUTSIDE = torch.jit.script(nn.Linear(3, 3))


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if x.sum() > 0 else x


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.jit.script(Gate())
        self.layers = nn.Sequential(nn.ReLU(), torch.jit.script(nn.Linear(3, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.gate(x)) + self.gate(x)


def test_a_scripted_part_of_a_program_is_called() -> None:
    model = Holder()
    ours, theirs = (fx.symbolic_trace(model) for fx in BOTH)
    assert str(ours.graph) == str(theirs.graph) and ours.code.strip() == theirs.code.strip()
    assert list(ours.state_dict()) == list(model.state_dict())
    assert str(graphwright.symbolic_trace(ours).graph) == str(ours.graph)
    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        torch.testing.assert_close(ours(x), model(x))
        torch.testing.assert_close(graphwright.Transformer(ours).transform()(x), model(x))


def jit_traced(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(model, torch.randn(4, 3))  # type: ignore[no-any-return]


class Layers(nn.Module):
    """Has a scripted module, whose weights are also read, and one that torch.jit traced, which keeps statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.jit.script(Gate())
        self.norm = jit_traced(nn.BatchNorm1d(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.gate(x)) + self.gate.linear.weight.sum()


@pytest.mark.parametrize("capture", [graphwright.trace, lambda model, x: graphwright.script(model)])
def test_compiled_modules_are_nodes(capture: Callable[..., Any]) -> None:
    model, x = Layers(), torch.randn(4, 3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gm = capture(model, x)
    assert [node.target for node in gm.graph.nodes if node.op == "call_module"] == ["gate", "norm"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert isinstance(gm.gate, torch.jit.ScriptModule) and "training" not in vars(model.gate)
    for inputs in (x, -torch.ones(2, 3), torch.ones(7, 3)):
        assert torch.equal(gm(inputs), copy.deepcopy(model)(inputs))
        model.load_state_dict(before)


def test_a_method_of_a_compiled_module_is_called_on_it() -> None:
    class Encoder(nn.Module):
        @torch.jit.export
        def encode(self, x: Tensor) -> Tensor:
            return x * 2

        def forward(self, x: Tensor) -> Tensor:
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.jit.script(Encoder())

        def forward(self, x: Tensor) -> Tensor:
            return self.encoder.encode(x) + 1

    gm = graphwright.trace(Model(), torch.ones(2))
    assert "self.encoder.encode(x) + 1" in gm.code
    assert torch.equal(gm(torch.full((3,), 2.0)), torch.full((3,), 5.0))


@pytest.mark.parametrize("door", [lambda model: graphwright.trace(model, torch.ones(3)), graphwright.script])
@pytest.mark.parametrize("make", [torch.jit.script, jit_traced])
def test_a_compiled_module_itself_cannot_be_captured(door: Callable[..., Any], make: Callable[..., Any]) -> None:
    with pytest.raises(graphwright.CaptureError, match="what TorchScript compiled"):
        door(make(nn.Linear(3, 3)))


@torch.jit.script
def doubled(x: Tensor) -> Tensor:
    return x * 2


def test_a_scripted_function_takes_no_proxies_and_is_one_node() -> None:
    with pytest.raises(RuntimeError, match="Expected a value of type 'Tensor' for argument 'x'"):
        torch.fx.symbolic_trace(lambda x: doubled(x))
    gm = graphwright.symbolic_trace(lambda x: doubled(x))
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 2.0))


def test_it_is_one_node_where_torch_calls_it_through_functions_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    native = torch._C.ScriptFunction.__call__

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:  # as torch.testing does to all of them
        return native(self, *args, **kwargs)

    counted.__code__ = counted.__code__.replace(co_filename=torch.testing.__file__)
    monkeypatch.setattr(torch._C.ScriptFunction, "__call__", counted)
    gm = graphwright.symbolic_trace(lambda x: doubled(x))
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 2.0))
    of_attribute = graphwright.symbolic_trace(lambda x: doubled(x.T))
    assert torch.equal(of_attribute(torch.ones(2, 1)), torch.full((1, 2), 2.0))


def test_a_scripted_module_outside_of_the_program_is_refused() -> None:
    for fx in BOTH:
        with pytest.raises(NameError, match="module is not installed as a submodule"):
            fx.symbolic_trace(lambda x: OUTSIDE(x))


def taken(x: Any, structure: Any) -> Any:
    return x


class Structured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = pytree.tree_structure({"a": 1})

    def forward(self, x: Any) -> Any:
        return taken(taken(x, pytree.tree_structure([1, 2])), self.own)


def test_structures_are_constants() -> None:
    ours, theirs = (fx.Tracer(autowrap_functions=(taken,)).trace(Structured()) for fx in BOTH)
    assert str(ours) == str(theirs)
    assert [node.target for node in ours.nodes if node.op == "get_attr"] == ["_tree_spec_constant0", "own"]


@pytest.mark.parametrize("root", [torch.relu, torch.add, torch.Tensor.relu, torch.ops.aten.add.Tensor, 3, "x", None])
def test_what_has_no_signature_is_refused(root: Any) -> None:
    for fx in BOTH:
        with pytest.raises(AssertionError, match="Expected FunctionType, got "):
            fx.symbolic_trace(root)


class Callable_:
    def __call__(self, x: Any) -> Any:
        return x + 1

    def method(self, x: Any) -> Any:
        return x + 2


@pytest.mark.parametrize(
    ("root", "names"),
    [
        (functools.partial(lambda x, y: x + y, y=2), ["x", "y", "add", "output"]),
        (Callable_(), ["x", "add", "output"]),
        (Callable_().method, ["x", "add", "output"]),
        (Gate().linear.forward, ["input_1", "weight", "bias", "linear", "output"]),
        (operator.add, ["a", "b", "add", "output"]),
    ],
)
def test_what_has_a_signature_is_captured(root: Any, names: list[str]) -> None:
    assert [node.name for node in graphwright.symbolic_trace(root).graph.nodes] == names
    with pytest.raises(AssertionError, match="Expected FunctionType"):
        torch.fx.symbolic_trace(root)


@pytest.mark.parametrize("value", [b"ab", Callable_().method, Callable_.method, max, int, lambda: 0])
def test_more_values_are_arguments_of_calls(value: Any) -> None:
    def program(x: Any) -> Any:
        return taken(x, value)

    gm = graphwright.symbolic_trace(lambda x: x + 1)
    gm.graph = graphwright.Tracer(autowrap_functions=(taken,)).trace(program)
    assert gm.graph.find_nodes(op="call_function", target=taken)[0].args[1] == value
    assert gm(3) == 3
    with pytest.raises(NotImplementedError, match="argument of type"):
        torch.fx.Tracer(autowrap_functions=(taken,)).trace(program)


def optional(x: Tensor, y: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
    return x + 1


def listed(xs: List[Tensor]) -> Tensor:  # noqa: UP006
    return xs[0] + xs[1]


def keyed(by_name: Dict[str, Tensor]) -> Tensor:  # noqa: UP006
    return by_name["a"] * 2


def paired(pair: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    return pair[1], pair[0]


def defaulted(x: Tensor, n: int = 3, k: float = 0.5, s: str = "a", b: bool = True, none: int | None = None) -> Tensor:
    return x * n + k


def several(x: Tensor):  # type: ignore[no-untyped-def]
    return torch.split(x, 2), x.max(dim=0)[0], x @ x.t(), -x, x**2, x > 1, x[:, None, 1:], x.size(0)


def constants(x: Tensor):  # type: ignore[no-untyped-def]
    return torch.zeros(3, dtype=torch.float64, device="cpu") + x.to(torch.float64), torch.full((2,), 1.0)


def variadic(x: Tensor, *rest: Any) -> Tensor:
    return x


def any_length(x: Any, dims: Tuple[int, ...] = (1, 2)) -> Any:  # noqa: UP006
    return x.sum(0)


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(4, 3), nn.LSTM(3, 3))
        self.constant = torch.ones(3)
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("offset", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[0] * self.weight + self.offset + self.constant


PROGRAMS = (
    *(optional, listed, keyed, paired, defaulted, several, constants, variadic, any_length),
    *(Stateful(), Holder(), nn.TransformerEncoderLayer(4, 2).linear1),
)
REFUSED = (variadic, any_length, PROGRAMS[-2])


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: getattr(program, "__name__", type(program).__name__))
def test_what_torch_fx_lets_torchscript_compile_it_compiles(program: Callable[..., Any]) -> None:
    compiled = []
    for fx in BOTH:
        try:
            torch.jit.script(fx.symbolic_trace(program))
            compiled.append(True)
        except (RuntimeError, torch.jit.frontend.FrontendError):
            compiled.append(False)
    assert compiled[0] == compiled[1]
    assert compiled[0] == (program not in REFUSED)


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.squash = jit_traced(nn.Hardsigmoid())

    def forward(self, x: Tensor) -> Tensor:
        while x.sum() > 7.5:  # 0.6 stays as it is
            x = self.squash(x)
        return x


@pytest.mark.filterwarnings("ignore")
def test_a_loop_on_data_calls_what_torchscript_has_compiled() -> None:
    model = Halves()
    gm = graphwright.trace(model, torch.ones(4, 3))
    for x in (torch.ones(4, 3), torch.zeros(4, 3), torch.full((4, 3), 3.0)):
        assert torch.equal(gm(x), model(x))
