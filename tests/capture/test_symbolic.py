"""`symbolic_trace` beside torch.fx: the same graphs where torch.fx is right, and the right ones where it is not."""

import threading

import pytest
import torch
import torch.fx
import torch.nn.functional as F
from torch import nn

import graphwright
from graphwright import GuardError, TraceError, Transformer, symbolic_trace, wrap


class Classic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.param = nn.Parameter(torch.rand(3, 4))
        self.linear = nn.Linear(4, 5)
        self.stages = nn.Sequential(nn.Linear(5, 5), nn.Sequential(nn.ReLU(), nn.BatchNorm1d(5)))
        self.register_buffer("offset", torch.ones(5))
        self.table = torch.arange(5.0)

    def forward(self, x: torch.Tensor, by: float = 2.0) -> dict[str, torch.Tensor]:
        hidden = self.stages(self.linear(x + self.param).clamp(min=0.0, max=1.0))
        top, index = torch.topk(torch.sum(hidden * self.offset + self.table, dim=-1), 3)
        return {"top": top[1:, None] ** 2 / by, "index": index, "size": hidden.size(0) - 1}


def unpacked(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2)
    return torch.cat([a, -b], dim=0) @ x.t() + 3 // torch.relu(x).sum()


SAME = [
    pytest.param(Classic(), id="parameters, buffers, attributes, containers"),
    pytest.param(unpacked, id="unpacking"),
    pytest.param(lambda x, y, *rest, k, **more: x + rest[0] + more["z"] + k * y, id="every kind of parameter"),
    pytest.param(lambda x: F.gelu(F.layer_norm(x.view(-1, 4), (4,))).new_zeros(3), id="functional"),
    pytest.param(lambda X, inputIds: X.shape[0] + inputIds.T.mean(dim=-1, keepdim=True), id="names of inputs"),
    pytest.param(lambda x: (x > 1) & (2 < x) | ~(x != 0) ^ (x == 1), id="comparisons"),
]


@pytest.mark.parametrize("program", SAME)
def test_graph_and_code_are_torch_fx_s(program: object) -> None:
    ours, theirs = symbolic_trace(program), torch.fx.symbolic_trace(program)  # type: ignore[arg-type]
    assert [node.name for node in ours.graph.nodes] == [node.name for node in theirs.graph.nodes]
    assert str(ours.graph) == str(theirs.graph).replace("_operator.", "operator.")
    _, body = ours.code.strip().split("\n", 1)
    assert body.strip() == theirs.code.strip().split("\n", 1)[1].strip()


def matched(x: torch.Tensor) -> torch.Tensor:
    match x.shape:
        case (_, width):
            return x * width
        case _:
            return x


REFUSED = [
    pytest.param(matched, "'len' is not supported in symbolic tracing", id="match"),
    pytest.param(lambda x: {*x}, "Proxy object cannot be iterated", id="for"),
    pytest.param(lambda x: x.__len__(), "'len' is not supported in symbolic tracing", id="len"),
    pytest.param(lambda x: list(range(x)), "not 'Proxy'|as an integer", id="range"),
    pytest.param(lambda x: 3 in x, "cannot be iterated", id="in"),
    pytest.param(lambda x: {x: 1}, "cannot contain a Node", id="a key"),
]


@pytest.mark.parametrize(("program", "message"), REFUSED)
def test_questions_are_refused_with_the_users_line(program: object, message: str) -> None:
    with pytest.raises(TraceError, match=message) as error:
        symbolic_trace(program)  # type: ignore[arg-type]
    assert "test_symbolic.py" in str(error.value)


class Trains(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.inner(x), 0.5, self.training)


def test_a_training_flag_passed_on_stays_live() -> None:
    gm = symbolic_trace(Trains().train())
    x = torch.ones(2, 3)
    torch.testing.assert_close(gm.eval()(x), gm.inner(x))
    assert (gm.train()(torch.ones(200, 3)) == 0).any()


def test_a_training_flag_asked_about_is_guarded() -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if self.training else x

    gm = symbolic_trace(Branches().eval())
    assert gm(torch.ones(1)) == 1
    with pytest.raises(GuardError, match=r"test_symbolic\.py"):
        gm.train()(torch.ones(1))


def test_random_tensors_are_fresh_and_in_place_operators_write() -> None:
    gm = symbolic_trace(lambda x: x + torch.randn(3))
    assert not torch.equal(gm(torch.zeros(3)), gm(torch.zeros(3)))

    def adds(x: torch.Tensor) -> torch.Tensor:
        view = x[0]
        x += 1
        return view

    assert symbolic_trace(adds)(torch.zeros(2)) == 1


def test_hooks_run() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    module.register_forward_hook(lambda module, args, output: output * 3)
    x = torch.ones(1, 2)
    torch.testing.assert_close(symbolic_trace(module)(x), module(x))


@wrap
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_wrapped_functions_are_one_node() -> None:
    gm = symbolic_trace(lambda x: doubled(x) + 1)
    assert [node.name for node in gm.graph.nodes] == ["x", "doubled", "add", "output"]
    assert gm(torch.ones(1)) == 3 and doubled(torch.ones(1)) == 2


def test_concrete_arguments_are_checked() -> None:
    gm = symbolic_trace(lambda a, b: a if b else a * 2, concrete_args={"b": False})
    assert gm(3, False) == 6
    with pytest.raises(AssertionError, match="b has been specialized"):
        gm(3, True)


def test_a_transformer_rebuilds_the_graph() -> None:
    class Swap(Transformer):
        def call_function(self, target: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
            return super().call_function(torch.mul if target is torch.add else target, args, kwargs)  # type: ignore[arg-type]

    gm = Swap(symbolic_trace(lambda x, y: torch.add(x, y))).transform()
    assert gm(torch.tensor(3), torch.tensor(4)) == 12


def test_a_module_is_left_as_it_was_when_tracing_fails() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen = self.linear(x)
            raise KeyboardInterrupt

    module = Fails()
    before = {name: dict(vars(child)) for name, child in module.named_modules()}
    with pytest.raises(KeyboardInterrupt):
        symbolic_trace(module)
    assert {name: dict(vars(child)) for name, child in module.named_modules()} == before


def test_eight_threads_trace_at_once() -> None:
    module = Classic().eval()
    expected = str(symbolic_trace(module).graph)
    wrong: list[str] = []

    def work() -> None:
        for _ in range(20):
            text = str(symbolic_trace(module).graph)
            if text != expected:
                wrong.append(text)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        module(torch.randn(3, 4))
    for thread in threads:
        thread.join()
    assert wrong == []


def test_graphs_are_written_as_expressions() -> None:
    graph = graphwright.Graph()
    x = graphwright.Proxy(graph.placeholder("x"), graphwright.GraphAppendingTracer(graph))
    graph.output(((x > 0) * x).node)
    assert graphwright.GraphModule(nn.Module(), graph)(torch.tensor([-1.0, 2.0])).tolist() == [-0.0, 2.0]


def fills(x):
    total, table = torch.zeros(4), torch.zeros(2, 2)
    before = x + total
    total += x.sum(0)
    table[0, 0] = x.sum()
    return before, total, table


def gives_what_it_made(x):
    made = torch.arange(4.0)
    return x + made, made.view(2, 2)


def writes_out(x):
    made = torch.empty(0)
    torch.add(x, 1, out=made)
    return made


@pytest.mark.parametrize("program", [fills, gives_what_it_made, writes_out])
def test_tensors_that_a_program_makes_and_writes_to_are_made_in_each_call(program):
    gm = symbolic_trace(program)
    x = torch.randn(2, 4)
    for _ in range(2):
        found, given = gm(x), program(x)
        for one, other in zip(*[each if isinstance(each, tuple) else (each,) for each in (found, given)], strict=True):
            assert torch.equal(one, other)
            one.add_(1)


def in_two_ways(x):
    made = torch.zeros(4)
    row = made[:2]
    row += x.sum()
    return made + x


def after_it_was_read(x):
    made = torch.zeros(4)
    y = x + made
    made += 1
    return y + made


@pytest.mark.parametrize("program", [in_two_ways, after_it_was_read])
def test_such_a_tensor_that_no_copy_can_stand_for_is_refused(program):
    with pytest.raises(TraceError, match=r"makes while it is captured, is written to"):
        symbolic_trace(program)


def test_what_is_only_read_stays_a_constant():
    gm = symbolic_trace(lambda x: x + torch.arange(4.0))
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "get_attr", "call_function", "output"]
