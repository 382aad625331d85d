"""Functions of einops are nodes, wherever a program has them, and its layers are leaves; both can be entered."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import GuardError, doctor, script, symbolic_trace, trace
from graphwright.analysis import verify
from graphwright.capture.outside import library_calls

einops = pytest.importorskip("einops")
from einops import einsum, pack, parse_shape, rearrange, reduce, repeat, unpack  # noqa: E402
from einops import rearrange as arranged  # noqa: E402
from einops.layers.torch import EinMix, Rearrange, Reduce  # noqa: E402

ITSELF = sys.modules["einops.einops"]
HEADS = "b n (h d) -> b h n d"
Program = Callable[..., Any]


def names_of(gm: Any) -> list[str]:
    return [node.target.__name__ for node in gm.graph.all_nodes() if node.target in FUNCTIONS]


FUNCTIONS = [einsum, pack, parse_shape, rearrange, reduce, repeat, unpack]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(8, 24), nn.Linear(8, 8), 2

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        query, key, value = (rearrange(each, HEADS, h=self.heads) for each in (query, key, value))
        weights = einsum(query, key, "b h i d, b h j d -> b h i j").softmax(-1)
        return self.out(rearrange(weights @ value, "b h n d -> b n (h d)")) + repeat(
            reduce(x, "b n d -> b d", "mean"), "b d -> b n d", n=x.shape[1]
        )


def test_a_program_reads_as_it_was_written_and_takes_all_sizes() -> None:
    model = Attention()
    gm = trace(model, (torch.randn(2, 5, 8),))
    assert names_of(gm) == ["rearrange"] * 3 + ["einsum", "rearrange", "reduce", "repeat"]
    assert "reduce(x, 'b n d -> b d', 'mean'), 'b d -> b n d', n=x.size(1)" in gm.code
    assert "1 pass, 1 path" in str(gm.report) and gm.coverage == 1.0
    inputs = [torch.randn(2, 5, 8, requires_grad=True), torch.randn(1, 3, 8), torch.randn(4, 1, 8)]
    assert verify(model, gm, inputs, modes=("train", "eval"), grads=True).worst == 0.0
    with pytest.raises(einops.EinopsError, match="Shape mismatch"):
        trace(lambda x: rearrange(x, "b (h d) -> b h d", h=2), (torch.ones(1, 4),))(torch.ones(1, 5))


def split_rows(x: Tensor) -> Tensor:
    return rearrange(x, "b (h w) d -> b d h w", h=x.shape[1] // 2)


def under_another_name(x: Tensor) -> Tensor:
    return arranged(x, HEADS, h=2)


def of_modules(x: Tensor) -> Tensor:
    return einops.rearrange(x, HEADS, h=2) + ITSELF.rearrange(x, HEADS, h=2)


def imported_inside(x: Tensor) -> Tensor:
    from einops import rearrange as inner

    return inner(x, HEADS, h=2)


def looked_up(x: Tensor) -> Tensor:
    return getattr(einops, "rearrange")(x, HEADS, h=2)  # noqa: B009


def closing_over(function: Program) -> Program:
    return lambda x: function(x, HEADS, h=2)


in_closure = closing_over(rearrange)
PARTIAL = functools.partial(rearrange, pattern=HEADS, h=2)


def partial(x: Tensor) -> Tensor:
    return PARTIAL(x)


def in_a_list(x: Tensor) -> Tensor:
    by = [rearrange]
    return by[0](x, HEADS, h=2)


class AsAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = functools.partial(rearrange, pattern=HEADS)

    def forward(self, x: Tensor) -> Tensor:
        return self.by(x, h=2)


def of_a_list(x: Tensor) -> Tensor:
    return rearrange([x, x * 2], "l b n d -> b (l n) d")


def rank_of_result(x: Tensor) -> Tensor:
    y = rearrange(x, "b ... -> ... b")
    return y.sum() if y.ndim == 3 else y


def written_through(x: Tensor) -> Tensor:
    x = x * 1
    rearrange(x, "a b c -> (a b) c").mul_(2)
    return x


def in_a_branch(x: Tensor) -> Tensor:
    return rearrange(x, "a b c -> a (b c)") if x.sum() > 0 else repeat(x[:, 0], "a c -> a (n c)", n=x.shape[1])


def in_a_loop(x: Tensor) -> Tensor:
    rows = []
    for i in range(x.shape[1]):
        rows.append(rearrange(x[:, i], "b (h d) -> b h d", h=i % 2 + 1).flatten(1))
    return torch.stack(rows)


def size_of_data(x: Tensor) -> Tensor:
    return repeat(x, "a b c -> a n b c", n=int(x.abs().sum()) % 3 + 1)


def under_vmap(x: Tensor) -> Tensor:
    return torch.vmap(lambda row: rearrange(row, "a b -> b a"))(x)


def gradient(x: Tensor) -> Tensor:
    return torch.func.grad(lambda y: reduce(y, "a b c -> ", "sum") ** 2)(x)


def packed(x: Tensor) -> Tensor:
    both, shapes = pack([x, x[:, 0], x[:, :, None]], "b * d")
    first, second, third = unpack(both * 2, shapes, "b * d")
    return first.sum(1) + second + third.sum((1, 2))


def size_of_shape(x: Tensor) -> Tensor:
    return repeat(x.mean(1), "b d -> b n d", n=parse_shape(x, "_ n _")["n"])


def sizes_of_shape(x: Tensor) -> Tensor:
    return repeat(x.mean(1), "b d -> b n d", **parse_shape(x, "_ n _"))


@pytest.mark.parametrize(
    ("program", "kept"),
    [
        (split_rows, ["rearrange"]),
        (under_another_name, ["rearrange"]),
        (of_modules, ["rearrange"] * 2),
        (imported_inside, ["rearrange"]),
        (looked_up, ["rearrange"]),
        (in_closure, ["rearrange"]),
        (partial, ["rearrange"]),
        (in_a_list, ["rearrange"]),
        (AsAttribute(), ["rearrange"]),
        (of_a_list, ["rearrange"]),
        (rank_of_result, ["rearrange"]),
        (written_through, ["rearrange"]),
        (in_a_branch, ["rearrange", "repeat"]),
        (in_a_loop, ["rearrange"]),
        (size_of_data, ["repeat"]),
        (under_vmap, ["rearrange"]),
        (gradient, ["reduce"]),
        (packed, ["unpack"]),
        (size_of_shape, ["repeat"]),
        (sizes_of_shape, ["repeat"]),
    ],
)
def test_a_function_is_a_node_wherever_the_program_has_it(program: Program, kept: list[str]) -> None:
    gm = trace(program, (torch.randn(2, 6, 8),))
    assert names_of(gm) == kept
    for x in (torch.randn(2, 6, 8), torch.randn(3, 8, 4), -torch.rand(1, 2, 2)):
        mine, theirs = x.clone(), x.clone()
        assert torch.equal(gm(mine), program(theirs)) and torch.equal(mine, theirs)


def test_an_object_of_another_module_calls_it() -> None:
    from tests.capture.rearranged_elsewhere import Heads

    heads = Heads(2)
    gm = trace(lambda x: heads.split(x) * 2, (torch.randn(2, 6, 8),))
    assert names_of(gm) == ["rearrange"] and "1 pass, 1 path" in str(gm.report)


def test_another_rank_is_taken_only_where_nobody_asked_for_it() -> None:
    gm = trace(lambda x: rearrange(x, "b ... -> ... b"), (torch.ones(2, 3),))
    assert gm(torch.ones(2, 3, 4)).shape == (3, 4, 2)
    with pytest.raises(GuardError, match="was a tensor of 3 dimensions"):
        trace(rank_of_result, (torch.ones(2, 3, 4),))(torch.ones(2, 3))


def test_a_reduction_of_the_users_own_is_a_part_of_the_program() -> None:
    def program(x: Tensor) -> Tensor:
        return reduce(x, "b n d -> b d", lambda y, axes: y.sum(axes) if y.sum() > 0 else y.amax(axes))

    gm = trace(program, (torch.ones(2, 3, 4),))
    assert names_of(gm) == []
    for x in (torch.rand(5, 2, 3), -torch.rand(2, 3, 4)):
        assert torch.equal(gm(x), program(x))


def test_bad_patterns_are_errors_of_einops_as_it_is_captured() -> None:
    with pytest.raises(einops.EinopsError, match="Identifiers only on one side"):
        trace(lambda x: rearrange(x, "a b -> a c"), (torch.ones(2, 3),))

    def falls_back(x: Tensor) -> Tensor:
        try:
            return rearrange(x, "a (b k) -> a b k", k=4)
        except einops.EinopsError:
            return x

    gm = trace(falls_back, (torch.ones(2, 3),))
    assert torch.equal(gm(torch.ones(2, 3)), torch.ones(2, 3))
    with pytest.raises(GuardError):
        gm(torch.ones(2, 4))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Rearrange(HEADS, h=2), nn.Softmax(-1), Reduce("b h n d -> b n d", "mean"))
        self.mix = EinMix("b n d -> b n (h e)", "d h e", bias_shape="h e", d=4, h=2, e=3)

    def forward(self, x: Tensor) -> Any:
        return self.mix(self.layers(x))


def test_layers_that_call_one_function_are_leaves() -> None:
    model = Layers()
    gm = trace(model, (torch.randn(2, 3, 8),))
    assert [node.target for node in gm.graph.find_nodes(op="call_module")] == [
        "layers.0", "layers.1", "layers.2", "mix.post_rearrange",
    ]  # fmt: skip
    assert torch.equal(gm(torch.ones(4, 1, 8)), model(torch.ones(4, 1, 8)))
    entered = trace(model, (torch.randn(2, 3, 8),), leaf_modules=None)
    assert not [*entered.graph.find_nodes(op="call_module")] and torch.equal(
        entered(torch.ones(4, 1, 8)), model(torch.ones(4, 1, 8))
    )


def test_they_are_entered_where_that_is_asked_for() -> None:
    gm = trace(under_another_name, (torch.ones(1, 3, 4),), leaf_functions=None)
    assert names_of(gm) == [] and "permute" in gm.code
    for kept in ((), [arranged]):
        assert names_of(trace(under_another_name, (torch.ones(1, 3, 4),), leaf_functions=kept)) == ["rearrange"]
    for kept, is_entered in (((), False), (None, True)):
        diagnosis = doctor(under_another_name, torch.ones(1, 3, 4), leaf_functions=kept)
        assert ("einops.py" in str(diagnosis)) is is_entered and diagnosis.ok


def test_without_examples() -> None:
    for program in (Attention(), Layers(), packed, size_of_shape, of_a_list):
        gm = symbolic_trace(program)
        x = torch.randn(3, 2, 8)
        assert torch.equal(gm(x), program(x)), gm.code
    assert names_of(symbolic_trace(packed)) == ["pack", "unpack"]
    assert "einops_einops_rearrange(x, 'b n (h d) -> b h n d', h = 2)" in symbolic_trace(under_another_name).code


def test_scripted() -> None:
    for program in (split_rows, packed, of_a_list, Layers()):
        gm = script(program)
        x = torch.randn(3, 2, 8)
        assert torch.equal(gm(x), program(x)), gm.code
    assert names_of(script(packed)) == ["pack", "unpack"]


def test_other_threads_and_the_time_after_get_what_einops_has() -> None:
    before = {name: vars(einops)[name] for name in ("rearrange", "reduce")} | {"own": rearrange}
    found: list[Any] = []

    def program(x: Tensor) -> Tensor:
        def other() -> None:
            found.append(rearrange(torch.ones(2, 6), "a (b c) -> a b c", b=2).shape)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return rearrange(x, "a b -> b a")

    trace(lambda x: helper(x), (torch.ones(2, 3),), leaf_functions=[helper])
    SHARED.append(program)
    trace(lambda x: helper(x) + rearrange(x, "a b -> b a"), (torch.ones(2, 3),), leaf_functions=[helper])
    assert found == [(2, 2, 3)]
    assert before == {name: vars(einops)[name] for name in ("rearrange", "reduce")} | {"own": rearrange}


SHARED: list[Program] = []


def helper(x: Tensor) -> Tensor:
    return SHARED[0](x) if SHARED else x.mT


def test_caches_of_einops_keep_nothing_of_a_capture() -> None:
    trace(split_rows, (torch.ones(2, 26, 8),))
    trace(split_rows, (torch.ones(2, 26, 8),), leaf_functions=None)
    assert torch.equal(rearrange(torch.ones(2, 26), "a (b c) -> b a c", b=13), torch.ones(13, 2, 2))
    assert type(rearrange(torch.ones(2, 26), "a (b c) -> b a c", b=13).shape[0]) is int


def test_nobody_else_pays_for_einops() -> None:
    def calls() -> int:
        def chain(x: Tensor) -> Tensor:
            for _ in range(20):
                x = (x.relu() + 1) if x.sum() > 0 else x
            return x

        trace(chain, (torch.ones(2),))
        seen = [0]

        def count(frame: Any, event: str, argument: Any) -> None:
            seen[0] += event == "call" and frame.f_code.co_filename == library_calls.__file__

        sys.setprofile(count)
        try:
            trace(chain, (torch.ones(2),))
        finally:
            sys.setprofile(None)
        return seen[0]

    assert calls() < 10


@pytest.mark.slow
def test_a_capture_does_not_import_einops() -> None:
    code = "import sys, torch, graphwright; graphwright.trace(torch.nn.ReLU(), (torch.ones(1),))"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'einops' not in sys.modules"], check=True)
