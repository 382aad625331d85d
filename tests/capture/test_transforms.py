"""`torch.vmap(f)(x)` and its like: one node with what `f` does as its body, in the graph and in the code."""

from __future__ import annotations

import copy
import functools
import pickle
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import graphwright
from graphwright import CaptureError, GraphModule, GuardError, Interpreter, Transformer, trace
from graphwright.ops import transformed
from graphwright.passes import ShapeProp


class Net(nn.Module):
    """A model whose forward is one of the programs below."""

    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.program = program
        self.layer = nn.Linear(8, 8)
        self.net = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
        self.drop = nn.Dropout(0.5)
        self.weight = nn.Parameter(torch.randn(8))
        self.register_buffer("shift", torch.randn(8))

    def forward(self, x: Tensor) -> Any:
        return self.program(self, x)


def squared(w: Tensor, v: Tensor) -> Tensor:
    return (w * v).sum() ** 2


MADE_BEFORE = vmap(grad(squared), in_dims=(None, 0))


def apply_to_rows(f: Any, x: Tensor) -> Tensor:
    return torch.vmap(f)(x)


def rows(self: Any, x: Tensor) -> Any:
    y = torch.vmap(lambda v: self.layer(v).sin())(x)
    g = torch.func.grad(lambda v: (v**3).sum())(x)
    return y + g


def gradient_of_rows(self: Any, x: Tensor) -> Any:
    def loss(v: Tensor) -> Tensor:
        return (self.layer(v) * self.shift).sum()

    return vmap(grad(loss))(x)


def per_sample_gradients(self: Any, x: Tensor) -> Any:
    params = dict(self.net.named_parameters())

    def loss(p: dict[str, Tensor], v: Tensor) -> Tensor:
        return functional_call(self.net, p, (v.unsqueeze(0),)).pow(2).sum()

    g = vmap(grad(loss), in_dims=(None, 0))(params, x)
    return g["0.weight"].sum(0), g


def several_inputs(self: Any, x: Tensor) -> Any:
    return vmap(lambda a, b, c: a * b + c, in_dims=(0, None, 0), out_dims=1)(x, self.weight, x * 2)


def tree_of_dims(self: Any, x: Tensor) -> Any:
    f = vmap(lambda d: d["u"] * d["v"].sum(), in_dims=({"u": 1, "v": 0},))
    return f({"u": x.t(), "v": x})


def made_before(self: Any, x: Tensor) -> Any:
    return MADE_BEFORE(self.weight, x)


def through_a_helper(self: Any, x: Tensor) -> Any:
    mean = x.mean()
    return apply_to_rows(lambda v: v * mean + self.weight, x)


def closed_over(self: Any, x: Tensor) -> Any:
    mean, count = x.mean(), x.size(0)
    return vmap(lambda v: v * mean / count + self.weight)(x)


def different_randomness(self: Any, x: Tensor) -> Any:
    return vmap(lambda v: self.drop(v) * torch.rand_like(v), randomness="different")(x)


def two_values(self: Any, x: Tensor) -> Any:
    g, v = grad_and_value(lambda v, w: (v * w).pow(2).sum(), argnums=(0, 1))(x, self.weight)
    return g, v


def auxiliary(self: Any, x: Tensor) -> Any:
    g, (more, total) = grad(lambda v: (v.pow(2).sum(), (v + 1, v.sum())), has_aux=True)(x)
    return g * more + total


def jacobians(self: Any, x: Tensor) -> Any:
    def f(v: Tensor) -> Tensor:
        return self.layer(v).tanh()

    return jacrev(f)(x[0]), jacfwd(f)(x[0]), hessian(lambda v: f(v).sum())(x[0]), vmap(hessian(lambda v: f(v).sum()))(x)


def forward_mode(self: Any, x: Tensor) -> Any:
    out, tangent = jvp(lambda v: self.layer(v).sin(), (x,), (torch.ones_like(x),))
    return out + tangent


def reverse_mode(self: Any, x: Tensor) -> Any:
    out, pull = vjp(lambda v: self.layer(v).sin(), x)
    (g,) = pull(torch.ones_like(out))
    return out + g


def jacobian_of_autograd(self: Any, x: Tensor) -> Any:
    return torch.autograd.functional.jacobian(lambda v: self.layer(v).sin(), x[0], create_graph=True)


def branch_inside_grad(self: Any, x: Tensor) -> Any:
    def f(v: Tensor) -> Tensor:
        if v.sum() > 0:
            return (v**2).sum()
        return (v**3).sum()

    return grad(f)(x)


def branch_on_a_size(self: Any, x: Tensor) -> Any:
    def f(v: Tensor) -> Tensor:
        if x.shape[0] > 4:
            return v * 2
        return v * 3

    return vmap(f)(x)


def branch_on_what_is_outside(self: Any, x: Tensor) -> Any:
    mean = x.mean()

    def f(v: Tensor) -> Tensor:
        if mean > 0:
            return v * 2
        return v * 3

    return vmap(f)(x)


def inside_a_branch(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        y = vmap(lambda v: v * 2)(x)
    else:
        y = vmap(lambda v: v * 3 + self.shift)(x)
    return y


def by_name(self: Any, x: Tensor) -> Any:
    scale = x * 2
    return vmap(lambda v, *, scale: v * scale)(x, scale=x) + vmap(lambda v, *, by: v * by + scale.sum())(x, by=x)


def decorated(self: Any, x: Tensor) -> Any:
    @functools.partial(torch.vmap, chunk_size=2)
    def f(v: Tensor) -> Tensor:
        return v.cos() * self.shift

    return f(x)


def module_as_function(self: Any, x: Tensor) -> Any:
    return vmap(self.net)(x)


def nested(self: Any, x: Tensor) -> Any:
    return vmap(lambda v: vmap(lambda u: u * v.sum() + self.shift[0])(v))(x)


def changed_containers(self: Any, x: Tensor) -> Any:
    def f(p: dict[str, Tensor], v: Tensor) -> Any:
        return grad(lambda q: (q["w"] * v).sum() ** 2)(p)

    g = vmap(f, in_dims=(None, 0))({"w": self.weight, "b": self.shift}, x)
    g["b"] = g["b"] + 1
    return g


def in_a_loop(self: Any, x: Tensor) -> Any:
    return torch.stack([grad(lambda v: (v ** (i + 1)).sum())(x) for i in range(2)])  # noqa: B023


def in_place(self: Any, x: Tensor) -> Any:
    def f(v: Tensor) -> Tensor:
        v = v.clone()
        v.add_(1)
        v[0] = 0
        return v

    return vmap(f)(x)


def sizes_of_data(self: Any, x: Tensor) -> Any:
    return vmap(lambda v: v * 2)((x > 0).nonzero())


def without_gradient(self: Any, x: Tensor) -> Any:
    def f(v: Tensor) -> Tensor:
        with torch.no_grad():
            k = self.layer(v)
        return (k * v).sum()

    return grad(f)(x)


def checkpoints(self: Any, x: Tensor) -> Any:
    mean = x.mean()
    y = checkpoint(lambda v: self.layer(v).sin() * mean, x, use_reentrant=False, preserve_rng_state=False)
    for i in range(2):
        y = checkpoint(lambda v: self.layer(v) + i + mean, y, use_reentrant=False)  # noqa: B023
    return checkpoint(self.net, self.drop(y), use_reentrant=False)


def reentrant_checkpoint(self: Any, x: Tensor) -> Any:
    def run(u: Tensor, v: Tensor) -> Any:
        return self.drop(self.net(u)) + v.sum(), u * 2

    a, b = checkpoint(run, x * 1, self.weight, use_reentrant=True)
    return a * b


def checkpoint_of_a_module(self: Any, x: Tensor) -> Any:
    def run(v: Tensor, layer: nn.Module) -> Any:
        return layer(v)

    return checkpoint(run, x, self.layer, use_reentrant=False)


def numbers_from_a_checkpoint(self: Any, x: Tensor) -> Any:
    count, y = checkpoint(lambda v: (v.size(0), v * 2), x, use_reentrant=False)
    return y / count


def function_of_torch_after_another_operation(self: Any, x: Tensor) -> Any:
    y = x * 1
    return torch.func.jvp(torch.sin, (y,), (y,))


PROGRAMS = [
    rows, gradient_of_rows, per_sample_gradients, several_inputs, tree_of_dims, made_before, through_a_helper,
    closed_over, different_randomness, two_values, auxiliary, jacobians, forward_mode, reverse_mode,
    jacobian_of_autograd, branch_inside_grad, branch_on_a_size, branch_on_what_is_outside, inside_a_branch, by_name,
    decorated, module_as_function, nested, changed_containers, in_a_loop, in_place, sizes_of_data, without_gradient,
    checkpoints, reentrant_checkpoint, checkpoint_of_a_module, numbers_from_a_checkpoint,
    function_of_torch_after_another_operation,
]  # fmt: skip
INPUTS = [sign * torch.rand(n, 8, generator=torch.Generator().manual_seed(n)) for n in (3, 6) for sign in (1, -1)]


def outcome(model: nn.Module, x: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The values that a model gives, and the gradients of all that takes part."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(1)
    values = tree_leaves(model(x))
    total = sum((value.float() ** 2).sum() for value in values)
    assert isinstance(total, Tensor)
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return values, gradients if x.grad is None else {**gradients, "x": x.grad}


def nodes_of(gm: GraphModule) -> list[str]:
    return [node.args[0] for graph in gm.graph.all_graphs() for node in graph.nodes if node.target is transformed]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_way_of_running_agrees_with_eager(program: Any, tmp_path: Path) -> None:
    model = Net(program)
    gm = trace(model, (INPUTS[0],))
    gm.graph.lint()
    assert nodes_of(gm) or program is checkpoint_of_a_module
    ways = [gm, copy.deepcopy(gm), pickle.loads(pickle.dumps(gm)), Transformer(gm).transform()]
    if program is not reverse_mode:
        graphwright.save(gm, tmp_path / "model.gw", strict=True)
        ways.append(graphwright.load(tmp_path / "model.gw", allow=["tests.capture.test_transforms"]))
    for x in INPUTS:
        expected = outcome(model, x)
        for way in ways:
            torch.testing.assert_close(outcome(way, x), expected)
        torch.manual_seed(1)
        torch.testing.assert_close(tree_leaves(Interpreter(gm).run(x)), expected[0])


def test_the_function_of_the_program_does_not_run_again() -> None:
    calls = queue.SimpleQueue[int]()

    def f(v: Tensor) -> Tensor:
        calls.put(1)
        return v * 2

    gm = trace(lambda x: torch.vmap(f)(x), (INPUTS[0],))
    count = calls.qsize()
    gm(INPUTS[0])
    assert calls.qsize() == count > 0


def code_of(program: Any) -> str:
    gm = trace(Net(program), (INPUTS[0],))
    lines = [line.strip() for line in gm.code.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith(("#", "del ", "expect_modules(")))


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            rows,
            """
            def forward(self, x: torch.Tensor) -> Any:
            def body(v):
            return self.layer(v).sin()
            y = torch.vmap(body)(x)
            def body_1(v_1):
            return (v_1 ** 3).sum()
            g = torch.func.grad(body_1)(x)
            return y + g
            """,
        ),
        (
            several_inputs,
            """
            def forward(self, x: torch.Tensor) -> Any:
            mul = x * 2
            weight = self.weight
            def body(a, b, c):
            return a * b + c
            return torch.vmap(body, in_dims=(0, None, 0), out_dims=1)(x, weight, mul)
            """,
        ),
        (
            two_values,
            """
            def forward(self, x: torch.Tensor) -> Any:
            weight = self.weight
            def body(v_1, w):
            return (v_1 * w).pow(2).sum()
            g, v = torch.func.grad_and_value(body, argnums=(0, 1))(x, weight)
            return (g, v)
            """,
        ),
        (
            reverse_mode,
            """
            def forward(self, x: torch.Tensor) -> Any:
            def body(v):
            return self.layer(v).sin()
            out, pull = torch.func.vjp(body, x)
            g, = pull(torch.ones_like(out));  del pull
            return out + g
            """,
        ),
        (
            reentrant_checkpoint,
            """
            def forward(self, x: torch.Tensor) -> Any:
            mul = x * 1
            weight = self.weight
            def run(u, v):
            linear = self.net[0](u)
            tanh = self.net[1](linear);  del linear
            linear_1 = self.net[2](tanh);  del tanh
            return (self.drop(linear_1) + v.sum(), u * 2)
            a, b = torch.utils.checkpoint.checkpoint(run, mul, weight, use_reentrant=True)
            return a * b
            """,
        ),
    ],
)
def test_the_code_is_written_as_a_person_would(program: Any, expected: str) -> None:
    assert code_of(program) == "\n".join(line.strip() for line in expected.strip().splitlines())


def test_a_checkpoint_keeps_the_values_around_it() -> None:
    """Its function runs again in backward, when variables hold other values or none."""
    assert "def body(v, mean_1=mean):" in code_of(checkpoints)


def test_operands_are_what_the_body_uses_from_outside() -> None:
    gm = trace(Net(closed_over), (INPUTS[0],))
    (node,) = gm.graph.find_nodes(op="call_function", target=transformed)
    assert [operand.name for operand in node.args[3]] == ["mean", "x"]
    assert [inner.name for inner in node.args[1].nodes if inner.op == "placeholder"] == ["v", "mean", "x"]


def test_shapes_are_propagated() -> None:
    gm = trace(Net(per_sample_gradients), (INPUTS[0],))
    ShapeProp(gm).propagate(INPUTS[1])
    (node,) = gm.graph.find_nodes(op="call_function", target=transformed)
    assert node.meta["tensor_meta"]["0.weight"].shape == (3, 4, 8)


def test_dead_code_inside_is_erased() -> None:
    def program(self: Any, x: Tensor) -> Any:
        y = x * 2

        def f(v: Tensor) -> Tensor:
            v.size(0)
            return v.sin()

        return vmap(f)(x) + y

    gm = trace(Net(program), (INPUTS[0],))
    (node,) = gm.graph.find_nodes(op="call_function", target=transformed)
    assert [inner.op for inner in node.args[1].nodes] == ["placeholder", "call_method", "output"]


def question(self: Any, x: Tensor) -> Any:
    def f(v: Tensor) -> Tensor:
        if v.sum() > 0:
            return v
        return -v

    return vmap(f)(x)


def nested_question(self: Any, x: Tensor) -> Any:
    def f(u: Tensor) -> Tensor:
        return u.sum() if u.sum() > 0 else -u.sum()

    return vmap(lambda v: grad(f)(v))(x)


@pytest.mark.parametrize("program", [question, nested_question])
@pytest.mark.parametrize("control_flow", ["stage", "follow"])
def test_a_question_about_a_slice_is_refused(program: Any, control_flow: Any) -> None:
    with pytest.raises(CaptureError, match=r"asks for the data of a slice inside torch\.vmap") as caught:
        trace(Net(program), (INPUTS[0],), control_flow=control_flow)
    assert "test_transforms.py" in str(caught.value)
    assert "torch.where" in str(caught.value)


def wrong_dims(self: Any, x: Tensor) -> Any:
    return vmap(lambda v: v, in_dims=5)(x)


def raising(self: Any, x: Tensor) -> Any:
    def f(v: Tensor) -> Tensor:
        raise ValueError("never mind")

    return vmap(f)(x)


def needs_a_scalar(self: Any, x: Tensor) -> Any:
    return grad(lambda v: v * 2)(x)


@pytest.mark.parametrize(
    ("program", "kind", "message"),
    [
        (wrong_dims, ValueError, "Got in_dim=5"),
        (raising, ValueError, "never mind"),
        (needs_a_scalar, RuntimeError, "scalar"),
    ],
)
def test_what_eager_refuses_is_refused(program: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        Net(program)(INPUTS[0])
    with pytest.raises(kind, match=message):
        trace(Net(program), (INPUTS[0],))


def test_a_list_among_the_inputs_is_given_whole_and_has_as_many_items() -> None:
    gm = trace(lambda items: vmap(lambda each: sum(each))(items), ([torch.ones(3), torch.ones(3)],))
    x = torch.arange(3.0)
    assert torch.equal(gm([x, x + 1]), 2 * x + 1)
    with pytest.raises(GuardError, match="was 2; now it is 3"):
        gm([x, x, x])


def test_a_named_result_of_the_body_keeps_its_class() -> None:
    def program(x: Tensor) -> Any:
        return vmap(lambda v: v.max(0))(x)

    gm = trace(program, (torch.randn(3, 4),))
    assert "return a.max(0)" in gm.code or "return v.max(0)" in gm.code
    assert type(gm(INPUTS[0])) is torch.return_types.max


def test_a_value_of_the_body_is_not_used_outside() -> None:
    def program(x: Tensor) -> Any:
        kept: list[Tensor] = []

        def f(v: Tensor) -> Tensor:
            kept.append(v * 2)
            return v * 3

        return vmap(f)(x) + kept[0]

    with pytest.raises(CaptureError, match="is used outside"):
        trace(program, (INPUTS[0],))


def test_a_module_from_outside_keeps_its_parameters() -> None:
    layer = nn.Linear(8, 2)

    def program(x: Tensor) -> Any:
        return functional_call(layer, {"weight": layer.weight * 2}, (x,))

    before = dict(layer.__dict__["_parameters"])
    gm = trace(program, (INPUTS[0],))
    torch.testing.assert_close(gm(INPUTS[1]), program(INPUTS[1]))
    assert all(layer._parameters[name] is value for name, value in before.items())


def test_a_loaded_program_calls_its_pull_back(tmp_path: Path) -> None:
    gm = trace(Net(reverse_mode), (INPUTS[0],))
    graphwright.save(gm, tmp_path / "model.gw")
    again = graphwright.load(tmp_path / "model.gw", allow=["tests"])
    torch.testing.assert_close(again(INPUTS[1]), gm(INPUTS[1]))


def test_the_original_is_not_written_to() -> None:
    model = Net(per_sample_gradients)
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    trace(model, (INPUTS[0],))
    for name, module in model.named_modules():
        assert module.__dict__.keys() == before[name].keys()
        assert all(module.__dict__[key] is value for key, value in before[name].items())
    assert list(dict(model.net.named_parameters())) == ["0.weight", "0.bias", "2.weight", "2.bias"]


class Counts(nn.Module):
    def __init__(self, is_inside: bool) -> None:
        super().__init__()
        self.n, self.is_inside = 0, is_inside

    def block(self, x: Tensor) -> Tensor:
        if self.is_inside:
            self.n += 1
        return x.sin() * self.n

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        return checkpoint(self.block, x, use_reentrant=False)


def test_what_a_checkpointed_function_counts_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"(?s)counts in Counts.n, in a function under checkpoint.*outside of that"):
        trace(Counts(is_inside=True), (torch.ones(2),))
    model, gm = Counts(is_inside=False), trace(Counts(is_inside=False), (torch.ones(2),))
    for each in (model, gm):
        x = torch.ones(2, requires_grad=True)
        each(each(x)).sum().backward()
    assert gm.n == model.n == 2
