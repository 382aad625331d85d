"""Modules of captures are modules again: they compute the same, and can be hooked, swapped, changed and saved."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright import GraphModule, GuardError, flatten, trace, unflatten
from graphwright.passes import FuseConvBatchNorm, Pipeline, SimplifyAlgebra
from graphwright.quantization import static_int8
from graphwright.runtime import nested_in


class Block(nn.Module):
    def __init__(self, width: int = 4, scale: float = 2.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = scale

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        hidden = self.linear(x).relu() * self.scale
        return x + hidden if mask is None else x + hidden * mask


class Pair(nn.Module):
    """Gives a tuple with None in it, and takes one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, both: Any = None) -> tuple[torch.Tensor, Any]:
        first, second = (x, x) if both is None else both
        return self.linear(first) + second.size(0), None


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = Pair(), Pair()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, _ = self.one(x)
        second, _ = self.other(first, both=(x, first + 1))
        return second


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = (x > 0).to(x.dtype)
        for block in self.blocks:
            x = block(x, mask=mask)
        return x


class Branching(nn.Module):
    """Calls modules on the sides of a branch and in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.step = Block(), Block(), Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.left(x) if x.sum() > 0 else self.right(x)
        count = 0
        while count < x.size(0):
            x = self.step(x) / 2
            count = count + 1
        return x


class Twice(nn.Module):
    """Calls one module twice, and holds it in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.again = self.block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.block(x))


class TwoWays(nn.Module):
    """Calls one module in two ways, for which it needs two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.block(x), mask=x)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Count()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.inner(x)


class Count(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.count


class Tied(nn.Module):
    """Uses a parameter of one module in another."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = Head(self.embed.weight)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids))


class Head(nn.Module):
    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight)


class NoGrad(nn.Module):
    """Has a `with` block in an inner module, around another."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = Frozen()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.frozen(x)


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x)


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


PROGRAMS: dict[str, tuple[type[nn.Module], torch.Tensor, torch.Tensor]] = {
    kind.__name__: (kind, floats(3, 4), floats(6, 4))
    for kind in (Pairs, Masked, Branching, Twice, TwoWays, Counting, NoGrad)
}
PROGRAMS["Tied"] = (Tied, torch.tensor([[1, 2]]), torch.tensor([[0, 3, 4]]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nested_and_flat_again_compute_the_same(name: str) -> None:
    kind, example, other = PROGRAMS[name]
    torch.manual_seed(0)
    model = kind()
    nested = trace(copy.deepcopy(model), example, flat=False)
    again = flatten(nested)
    for x in (example, other, other.flip(1)):
        want = copy.deepcopy(model)(x)
        want.sum().backward() if want.requires_grad else None
        for module in (nested, again, unflatten(again)):
            module.load_state_dict(model.state_dict())
            assert torch.equal(module(x), want)
    assert isinstance(nested, kind)
    assert list(nested.state_dict()) == list(model.state_dict())
    assert not [node for node in again.graph.all_nodes() if isinstance(called(again, node), GraphModule)]


def called(root: nn.Module, node: Any) -> nn.Module | None:
    return root.get_submodule(node.target) if node.op == "call_module" else None


def test_gradients_are_those_of_the_original() -> None:
    model, x = Masked(), floats(3, 4)
    nested = trace(model, x, flat=False)
    model(x).sum().backward()
    want = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    nested(x).sum().backward()
    got = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert len(got) == len(want) == 6
    assert all(map(torch.equal, got, want))


def test_equal_modules_have_one_graph_and_their_own_parameters() -> None:
    nested = trace(Masked(), floats(3, 4), flat=False)
    graphs = {id(block.graph) for block in nested.blocks}
    assert len(graphs) == 1
    assert nested.blocks[0].linear.weight is not nested.blocks[1].linear.weight
    (relu,) = nested.blocks[2].graph.find_nodes(op="call_method", target="relu")
    relu.target = "tanh"
    x = floats(3, 4)
    mask = (x > 0).float()
    want = x
    for block in nested.blocks:
        want = want + block.linear(want).tanh() * 2.0 * mask
    assert torch.equal(nested(x), want)


def test_modules_that_read_other_values_have_graphs_of_their_own() -> None:
    class Scales(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = Sized(2), Sized(2), Sized(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.three(self.two(self.one(x)))

    nested = trace(Scales(), floats(3, 4), flat=False)
    assert nested.one.graph is nested.two.graph
    assert nested.one.graph is not nested.three.graph


class Sized(nn.Module):
    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = x.sin()
        return x


def test_parameters_are_named_as_in_the_source_and_tuples_stay_tuples() -> None:
    nested = trace(Pairs(), floats(3, 4), flat=False)
    assert [node.target for node in nested.other.graph.find_nodes(op="placeholder")] == ["both"]
    (call,) = nested.graph.find_nodes(op="call_module", target="other")
    assert isinstance(call.kwargs.get("both", call.args and call.args[0]), tuple)
    outcome = nested.one(floats(2, 4))
    assert isinstance(outcome, tuple)
    assert outcome[1] is None


def test_hooks_that_are_registered_later_run() -> None:
    nested = trace(Masked(), floats(3, 4), flat=False)
    seen: list[torch.Size] = []
    handle = nested.blocks[1].register_forward_hook(lambda module, args, value: seen.append(value.shape))
    nested(floats(6, 4))
    handle.remove()
    nested(floats(6, 4))
    assert seen == [torch.Size([6, 4])]


def test_hooks_of_the_original_run_once() -> None:
    model = Masked()
    model.blocks[0].register_forward_hook(lambda module, args, value: value * 10)
    x = floats(3, 4)
    nested = trace(model, x, flat=False)
    assert torch.equal(nested(x), model(x))
    assert nested.blocks[0].graph is not nested.blocks[1].graph


def test_layers_can_be_swapped_wrapped_and_removed() -> None:
    model, x = Masked(), floats(3, 4)
    nested = trace(model, x, flat=False)
    nested.blocks[1] = other = Block(scale=5.0)
    mask = (x > 0).float()
    want = model.blocks[2](other(model.blocks[0](x, mask), mask), mask)
    assert torch.equal(nested(x), want)
    nested.blocks[0].linear = nn.Sequential(nested.blocks[0].linear, nn.Tanh())
    assert not torch.equal(nested(x), want)


def test_what_was_taken_for_granted_is_checked_by_the_module_that_it_is_of() -> None:
    nested = trace(nn.Sequential(Sized(2), Sized(2)), floats(3, 4), flat=False)
    nested[1].times = 4
    with pytest.raises(GuardError, match=r"self\.times was 2"):
        nested(floats(3, 4))
    with pytest.raises(GuardError, match=r"self\.times was 2"):
        nested[1](floats(3, 4))
    assert nested[0](floats(3, 4)).shape == (3, 4)


def test_a_call_that_needs_another_graph_is_a_method_beside_forward() -> None:
    nested, x = trace(TwoWays(), floats(3, 4), flat=False), floats(3, 4)
    assert "flat_calls" not in nested.meta
    assert "return self.block.forward_2(block, x)" in nested.code
    assert nested.block.graphs.names == ["forward", "forward_2"]
    (relu,) = nested.block.graphs["forward_2"].find_nodes(op="call_method", target="relu")
    relu.target = "tanh"
    block = nested.block
    first = x + block.linear(x).relu() * 2.0
    assert torch.equal(nested(x), first + block.linear(first).tanh() * 2.0 * x)


def test_methods_beside_forward_run_the_hooks_of_their_module() -> None:
    model, x = TwoWays(), floats(3, 4)
    nested = trace(model, x, flat=False)
    seen: list[tuple[bool, int]] = []

    def hook(module: nn.Module, args: Any, value: torch.Tensor) -> torch.Tensor:
        seen.append((module in (model.block, nested.block), len(args)))
        return value * 2

    for module in (model, nested):
        module.block.register_forward_hook(hook)
    want = model(x)
    seen.clear()
    assert torch.equal(nested(x), want)
    assert seen == [(True, 1), (True, 2)]
    again = flatten(nested)
    assert torch.equal(again(x), want)
    assert again.graph.find_nodes(op="call_method", target="forward_2")


def test_rules_and_pipelines_go_through_all_graphs_of_a_module() -> None:
    model, x = TwoWays(), floats(3, 4)
    nested = trace(model, x, flat=False)
    result = graphwright.rewrite(nested, graphwright.rule(lambda x: x.relu(), lambda x: x.clamp(min=0)))
    assert result.count == 2
    assert "clamp" in nested.block.graphs["forward_2"].python_code("self").src
    steps = Pipeline(SimplifyAlgebra(), inputs=[x]).run(trace(Doubling(), x, flat=False)).steps
    assert steps[0].changes == 2


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Negating()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, 1) + self.inner(x, 2)


class Negating(nn.Module):
    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        for _ in range(times):
            x = x.sin()
        return x.neg().neg()


def test_a_pass_that_changes_weights_leaves_a_module_with_several_graphs_alone() -> None:
    class Ways(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Normed()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(self.inner(x), x)

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)

        def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
            return self.norm(self.conv(x)) if other is None else self.conv(x) + other

    model, x = Ways().eval(), floats(1, 2, 3, 3)
    model.inner.norm.running_mean.fill_(3.0)
    nested = trace(model, x, flat=False)
    assert len(nested.inner.graphs) == 2
    Pipeline(FuseConvBatchNorm(), inputs=[x]).run(nested)
    assert torch.equal(nested(x), model(x))


def test_a_graph_that_one_module_is_given_is_its_own() -> None:
    nested, x = trace(Masked(), floats(3, 4), flat=False), floats(3, 4)
    want, other = nested(x), copy.deepcopy(nested.blocks[1].graph)
    (relu,) = other.find_nodes(op="call_method", target="relu")
    relu.target = "tanh"
    nested.blocks[1].graph = other
    assert "tanh" in nested.blocks[1].code
    assert "relu" in nested.blocks[2].code
    nested.blocks[1].graph = nested.blocks[2].graph
    assert torch.equal(nested(x), want)


def test_calls_that_give_other_values_share_a_graph() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Both(), Both()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            one, two = self.first(x)
            return self.second(one)[0] + two

    class Both(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.sin(), x.cos()

    nested = trace(Outer(), floats(3, 4), flat=False)
    assert nested.first.graph is nested.second.graph


@pytest.mark.parametrize("kind", [Masked, TwoWays])
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
def test_copies_are_nested(way: str, kind: type[nn.Module], tmp_path: Path) -> None:
    x = floats(3, 4)
    nested = trace(kind(), x, flat=False)
    if way == "deepcopy":
        copied = copy.deepcopy(nested)
    elif way == "pickle":
        copied = pickle.loads(pickle.dumps(nested))
    else:
        graphwright.save(nested, tmp_path / "nested.gw")
        copied = graphwright.load(tmp_path / "nested.gw", allow=[Masked.__module__])
    assert torch.equal(copied(x), nested(x))
    assert torch.equal(flatten(copied)(x), nested(x))
    blocks = copied.blocks if kind is Masked else [copied.block]
    assert isinstance(blocks[0], Block)
    assert len(nested_in(copied)) == len(blocks)
    assert len({id(block.graphs["forward"]) for block in blocks}) == 1
    assert len({type(block).forward for block in blocks}) == 1  # compiled once
    blocks[-1].scale = 3.0  # read live
    assert not torch.equal(copied(x), nested(x))


def test_a_flat_capture_of_a_nested_one_is_taken_apart_again() -> None:
    model, x = TwoWays(), floats(3, 4)
    again = unflatten(flatten(trace(model, x, flat=False)))
    assert again.block.graphs.names == ["forward", "forward_2"]
    assert torch.equal(again(x), model(x))


def test_a_dtype_that_the_program_asks_for_is_refused_before_anything_is_converted() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), Asks()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    class Asks(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float32) * self.weight.dtype.itemsize

    nested = trace(Root(), floats(3, 4), flat=False)
    with pytest.raises(GuardError, match=r"self\.second\.weight was of torch\.float32"):
        nested.half()
    assert nested.first.weight.dtype == torch.float32


def test_what_is_no_capture_is_refused() -> None:
    with pytest.raises(graphwright.GraphError, match="Linear is no captured module"):
        unflatten(nn.Linear(2, 2))
    with pytest.raises(graphwright.GraphError, match="Linear is no captured module"):
        flatten(nn.Linear(2, 2))


def test_after_a_pass_modules_are_found_by_origin() -> None:
    model, x = Masked().eval(), floats(3, 4)
    gm = trace(model, x)
    for relu in gm.graph.find_nodes(op="call_method", target="relu"):
        relu.target = "sigmoid"
    nested = unflatten(gm)
    assert torch.equal(nested(x), gm(x))
    assert len({id(block.graph) for block in nested.blocks}) == 1
    assert nested.blocks[0].graph.find_nodes(op="call_method", target="sigmoid")


def test_a_flat_capture_checks_hooks_again() -> None:
    again = flatten(trace(Masked(), floats(3, 4), flat=False))
    again.blocks[0].register_forward_hook(lambda module, args, value: None)
    with pytest.raises(GuardError, match="has a hook"):
        again(floats(3, 4))


def test_a_module_with_a_hook_is_not_flattened_away() -> None:
    nested = trace(Masked(), floats(3, 4), flat=False)
    seen: list[int] = []
    nested.blocks[1].register_forward_hook(lambda module, args, value: seen.append(1))
    again = flatten(nested)
    again(floats(3, 4))
    assert seen == [1]
    assert [node.target for node in again.graph.find_nodes(op="call_module")].count("blocks.1") == 1


def test_rules_apply_to_all_modules_and_count_occurrences() -> None:
    model, x = Masked(), floats(3, 4)
    nested = trace(model, x, flat=False)
    want = nested(x)
    result = graphwright.rewrite(nested, graphwright.rule(lambda x: x.relu(), lambda x: x.clamp(min=0)))
    assert result.count == 3
    assert torch.equal(nested(x), want)
    assert len({id(block.graph) for block in nested.blocks}) == 1
    assert "clamp" in nested.blocks[2].code
    result.undo()
    assert "relu" in nested.blocks[1].code
    assert torch.equal(nested(x), want)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).relu()


def test_a_pass_that_changes_weights_runs_on_each_module() -> None:
    model, x = nn.Sequential(Normed(), Normed()).eval(), floats(1, 2, 3, 3)
    for number, block in enumerate(model, start=1):
        block.norm.running_mean.fill_(number)
    nested = trace(model, x, flat=False)
    want = model(x)
    steps = Pipeline(FuseConvBatchNorm(), inputs=[x]).run(nested).steps
    assert steps[0].changes == Pipeline(FuseConvBatchNorm()).run(trace(model, x)).changes > 0
    assert torch.allclose(nested(x), want, atol=1e-6)
    assert not [module for module in nested.modules() if isinstance(module, nn.BatchNorm2d)]
    assert nested[0].graph is nested[1].graph


def test_tools_that_work_on_one_graph_take_nested_captures() -> None:
    model, x = Masked().eval(), floats(3, 4)
    nested, flat = trace(model, x, flat=False), trace(model, x)
    stages = graphwright.split(nested, at=["blocks.1"])
    assert str(stages) == str(graphwright.split(flat, at=["blocks.1"]))
    assert torch.equal(stages.module(x), model(x))
    features = graphwright.extract(nested, ["blocks.1.linear"])(x)
    assert torch.equal(
        features["blocks.1.linear"], graphwright.extract(flat, ["blocks.1.linear"])(x)["blocks.1.linear"]
    )
    quantized = graphwright.quantize(nested, static_int8(), calibration=[x])
    assert (quantized(x) - model(x)).abs().max() < 0.2
    assert len(quantized.quantization.explain().rows) >= 3


class Coder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.other = Block(), Block()

    def forward(self, x: torch.Tensor, *rest: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return self.decode(self.block(x)) + sum(rest) + sum(named.values())

    def decode(self, x_1: torch.Tensor) -> torch.Tensor:
        return self.other(self.block(x_1))


def test_all_entry_points_call_the_modules() -> None:
    model, x = Coder(), floats(3, 4)
    methods = {"forward": [((x, x), {"more": x}), ((x,), {})], "decode": ((x,), {})}
    nested = trace(model, methods=methods, flat=False)
    for args, kwargs in ((x, x), {"more": x}), ((x,), {}):
        assert torch.equal(nested(*args, **kwargs), model(*args, **kwargs))
    assert torch.equal(nested.decode(x_1=x), model.decode(x))
    assert isinstance(nested.block, GraphModule)
    assert nested.block.graph is nested.other.graph
    seen: list[int] = []
    nested.block.register_forward_hook(lambda module, args, value: seen.append(1))
    nested.decode(x)
    nested(x)
    assert seen == [1] * 3


def test_sizes_are_not_asked_for_again_where_a_value_is_resized() -> None:
    class Resizes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Rows(), Rows()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = torch.empty(2, 4)
            rows = self.one(kept)
            kept.resize_(5, 4)
            return self.two(kept) + rows

    class Rows(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.full((1,), x.size(0))

    model, x = Resizes(), floats(3, 4)
    assert torch.equal(trace(model, x, flat=False)(x), model(x))


def test_a_sequence_is_written_as_one() -> None:
    class Stages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stages = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Sequential(Block(), Block()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.stages(x)

    x = floats(3, 4)
    nested = trace(Stages().eval(), x, flat=False)
    text = graphwright.source(nested)
    assert text.count("class ") == 2
    assert "torch.nn.Sequential(Block(), Block())" in text
    scope: dict[str, Any] = {"__name__": "written"}
    exec(compile(text, "written.py", "exec"), scope)
    written = scope["Stages"]()
    written.load_state_dict(nested.state_dict())
    assert torch.equal(written(x), nested(x))
    assert isinstance(nested.stages[0], GraphModule)


@pytest.mark.slow
def test_modules_become_functions_of_an_onnx_model() -> None:
    model, x = Masked().eval(), floats(3, 4)
    program = graphwright.onnx.export(trace(model, x, flat=False), (x,), modules_as_functions=[Block])
    assert len(program.model.functions) == 1
    assert torch.allclose(program(x), model(x), atol=1e-6)


class Squeezing(nn.Module):
    """The rank of its weight is checked where it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.linear = nn.Parameter(torch.randn(4, 1, 4)), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight.squeeze(1)
        x = self.linear(x)
        return x @ weight if weight.dim() == 2 else x


def test_what_is_checked_in_a_call_does_not_cut_it() -> None:
    nested = trace(nn.Sequential(Squeezing(), Squeezing()), floats(2, 4), flat=False)
    assert [node.op for node in nested.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert nested[0].graph is nested[1].graph
    assert "expect(weight_1.dim(), 2" in nested[0].code


class Gives(nn.Module):
    def __init__(self, swaps: bool) -> None:
        super().__init__()
        self.linear, self.swaps = nn.Linear(4, 4), swaps

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.linear(x)
        return (hidden.relu(), hidden) if self.swaps else (hidden,)


class Leaving(nn.Module):
    """Forks, for what it keeps has other keys: each layer is called on several ways."""

    def __init__(self, swaps: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Gives(swaps) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        kept: dict[int, torch.Tensor] = {}
        for i, layer in enumerate(self.layers):
            if x.sum() > 3:
                continue
            kept[i] = layer(x)[-1]
            x = x + layer(x)[0] - 1
        return x, kept


@pytest.mark.parametrize("swaps", [False, True])
def test_calls_on_several_ways_give_values_in_one_form(swaps: bool) -> None:
    torch.manual_seed(0)
    model = Leaving(swaps)
    nested = trace(model, floats(3, 4), flat=False)
    for seed in range(20):
        x = 2 * torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        (want, kept), (got, others) = model(x), nested(x)
        assert torch.equal(got, want)
        assert kept.keys() == others.keys()
        assert all(torch.equal(others[i], kept[i]) for i in kept)


class Refusing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        assert x.size(0) != 7
        return x.relu()


class Beside(nn.Module):
    """Where a call raises, the program has written an attribute of another module."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner = nn.Module(), Refusing()
        self.table.weight = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table.weight = self.table.weight + 1
        return self.inner(x * self.table.weight)


def test_a_call_that_a_branch_cuts_is_part_of_the_module_around() -> None:
    nested, model = trace(Beside(), floats(2, 4), flat=False), Beside()
    nested.load_state_dict(model.state_dict())
    assert nested.meta["flat_calls"] == {"inner": "a branch begins inside of it that is not all its own, as a fork is"}
    assert torch.equal(nested(floats(3, 4)), model(floats(3, 4)))
    for module in (nested, model):
        with pytest.raises(AssertionError):
            module(floats(7, 4))
        assert torch.equal(module.table.weight, torch.full((4,), 3.0))


class Tabled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.register_buffer("table", torch.randn(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.net(self.table).sum(0)


def test_the_one_value_that_a_module_gets_is_its_one_parameter() -> None:
    nested = trace(Tabled(), floats(2, 4), flat=False)
    (call,) = nested.graph.find_nodes(op="call_module")
    assert len(call.args) == 1
    assert not call.kwargs


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2)])
        self.net = nn.Sequential(nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(self.blocks(x)) + x


def test_modules_of_what_symbolic_trace_gives() -> None:
    model, x = Twice(), floats(3, 4)
    nested = unflatten(graphwright.symbolic_trace(model))
    assert [str(node.target) for node in nested.graph.find_nodes(op="call_module")] == ["blocks", "net"]
    assert "flat_calls" not in nested.meta
    for made in (nested, copy.deepcopy(nested), pickle.loads(pickle.dumps(nested)), flatten(nested)):
        assert torch.equal(made(x), model(x))
    nested.net.register_forward_hook(lambda module, args, output: output * 0)
    assert torch.equal(nested(x), x)


def test_modules_of_an_exported_program() -> None:
    model, x = Twice().eval(), floats(3, 4)
    back = graphwright.from_export(graphwright.to_export(trace(model, x), x))
    assert torch.equal(unflatten(back)(x), model(x))
