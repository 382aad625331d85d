"""Programs cut into stages, run one after the other in one process; and what cannot be cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.distributed import programs
from tests.distributed.test_pipeline_processes import check
from torch import Tensor, nn
from torch.distributed.pipelining import ScheduleInterleaved1F1B

from graphwright import GuardError, UnknownNameError, trace
from graphwright.distributed import pipeline
from graphwright.errors import PassError

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


class Layers(nn.Module):
    """`first`, what a case does between, and `last`."""

    def __init__(self, between: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.last, self.between = nn.Linear(8, 8), nn.Linear(8, 8), between

    def forward(self, x: Tensor, *rest: Any) -> Any:
        return self.between(self.first(x), self.last, x, *rest)


def size(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    count, half, more = x.shape[0], x.shape[1] / 2, x.shape[0] > 2
    return last(h) * count + half * more


def constants(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    return last(h).to(x.dtype).to(x.device)


def optional(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    mask = x > 0
    if mask.all():
        mask = None
    y = last(h)
    return y if mask is None else y * mask


def pieces(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    parts = {"halves": h.chunk(2, 1), "size": x.shape}
    y = last(h)
    return y[:, :4] + parts["halves"][0] * parts["halves"][1] + parts["size"][0]


def transposed(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    turned = h.t()
    return last(turned.t()) + turned.sum()


def written(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    y = last(h)
    h.relu_()
    return y + h


def rows(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    found = (x > 0).nonzero()
    y = last(h)
    return y + found.sum() + found.numel()


def given(h: Tensor, last: nn.Module, x: Tensor, scale: float, flag: bool, name: str | None) -> Any:
    y = last(h) * scale
    return y if name is None else y + 1


CASES = [
    pytest.param(size, (), id="sizes and other numbers"),
    pytest.param(constants, (), id="dtypes and devices"),
    pytest.param(optional, (), id="None for some data"),
    pytest.param(pieces, (), id="tuples"),
    pytest.param(transposed, (), id="not contiguous"),
    pytest.param(written, (), id="a later stage writes in place"),
    pytest.param(given, (2.0, True, None), id="inputs that are no tensors"),
]


@pytest.mark.parametrize(("between", "rest"), CASES)
def test_what_crosses(between: Callable[..., Any], rest: tuple[Any, ...]) -> None:
    model = Layers(between)
    stages = pipeline(trace(model, (X, *rest)), at=["last"], args=(X, *rest))
    for part in stages:
        assert all(isinstance(tensor, Tensor) for tensor in (*part.takes, *part.gives))
        assert all(name.startswith(("first.", "last.")) for name in part.module.state_dict())
    for x in (X, X.abs() + 1):
        assert torch.allclose(stages.run(x, *rest), model(x, *rest), atol=1e-5)  # sums in another order


def test_what_skips_a_stage_is_passed_on() -> None:
    program = programs.skip()
    gm = trace(program.model, program.args)
    stages = pipeline(gm, at=["b", "c", "d"], args=program.args, output=["mid", "out"])
    assert [part.relayed for part in stages] == [(), ("start", "size"), ("size",), ()]
    mid, out = stages.run(*program.args)
    wanted = program.model(*program.args)
    assert torch.equal(mid, wanted["mid"]) and torch.equal(out, wanted["out"])
    assert [(tied.names, tied.stages) for tied in stages.tied] == [(("a.weight", "d.weight"), (0, 3))]


def test_batch_norms_are_said() -> None:
    gm = trace(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), X)
    assert pipeline(gm, 2, args=(X,)).notes == ("batch norms see single microbatches: 1",)
    assert pipeline(gm.eval(), 2, args=(X,)).notes == ()


def loop(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    while h.sum() > 0:
        h = last(h) - 1
    return h


def chosen(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    some = last(h[h.sum(1) > 0])
    return last(h).sum() + some.sum(0)


def shared(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    view = h.view(-1)
    y = last(h)
    view.relu_()
    return y + h


def input_written(h: Tensor, last: nn.Module, x: Tensor) -> Any:
    y = last(h)
    x.relu_()
    return y


REFUSED = [
    pytest.param(loop, {"at": ["last"]}, "'last' is inside of while_loop, which cannot be cut", id="inside of a loop"),
    pytest.param(size, {"at": ["last"], "args": ()}, "what crosses a cut is told by an example", id="no example"),
    pytest.param(size, {"parts": 99}, "the program cannot be cut into 99 stages", id="too many stages"),
    pytest.param(
        shared, {"at": ["last"]}, "stage 1 writes to view, which shares memory with first", id="a write to a view"
    ),
    pytest.param(
        input_written, {"at": ["last"]}, "stage 1 writes to x, an input of the program", id="a write to an input"
    ),
    pytest.param(
        size,
        {"at": ["last"], "microbatches": 3},
        "4 rows cannot be cut into 3 microbatches",
        id="microbatches",
    ),
    pytest.param(
        rows, {"at": ["last"]}, "data decides what add_1 is, which the program returns", id="rows in the result"
    ),
    pytest.param(chosen, {"at": ["sum_2"]}, "data decides, and a later stage needs it", id="rows of a layer"),
    pytest.param(size, {"at": ["last"], "output": "logits"}, "returns nothing called 'logits'", id="no such output"),
]


@pytest.mark.parametrize(("between", "options", "message"), REFUSED)
def test_what_cannot_be_cut(between: Callable[..., Any], options: dict[str, Any], message: str) -> None:
    gm = trace(Layers(between), X)
    with pytest.raises((PassError, UnknownNameError), match=message):
        pipeline(gm, **{"args": (X,), **options})


def test_a_number_of_another_kind_is_refused() -> None:
    gm = trace(Layers(lambda h, last, x, scale: last(h) * scale), (X, 2.0))
    stages = pipeline(gm, at=["last"], args=(X, 2.0))
    with pytest.raises((PassError, GuardError)):
        stages.run(X, 2)


def test_a_stage_needs_a_process_group() -> None:
    stages = pipeline(trace(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), X), 2, args=(X,))
    with pytest.raises(PassError, match="there is no stage 2: the program has 2"):
        stages.stage(2)
    with pytest.raises(PassError, match="there is no process group"):
        stages.stage(0)


@pytest.mark.usefixtures("one_process")
def test_stages_are_for_microbatches_of_one_size() -> None:
    stages = pipeline(trace(Layers(size), X), at=["last"], args=(X,), microbatches=2)
    first, last = stages.stage(0).submod, stages.stage(1).submod
    assert torch.equal(last(*first(X[:2])), stages.run(X[:2]))
    with pytest.raises(GuardError, match=r"were made for microbatches with torch.float32\(2, 8\) in x; now it is"):
        first(X)


@pytest.mark.usefixtures("one_process")
def test_tied_weights_of_two_stages_in_one_process() -> None:
    check(0, [(programs.skip, "interleaved", 4)])


@pytest.mark.usefixtures("one_process")
def test_a_gradient_that_would_be_lost_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[0].requires_grad_(False)
    stages = pipeline(trace(model, X), 2, args=(X,))
    first = stages.stage(0).submod
    first(X)
    first.requires_grad_(True)
    with pytest.raises(GuardError, match="needs a gradient now"):
        first(X)


@pytest.mark.usefixtures("one_process")
def test_no_stage_runs_to_find_out_shapes() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))
    stages = pipeline(trace(model, X), 2, kwargs={"input": X}, microbatches=2)
    made = [stages.stage(i) for i in range(2)]
    ScheduleInterleaved1F1B(made, n_microbatches=2, loss_fn=nn.functional.mse_loss).step(input=X, target=X)
    assert model[1].num_batches_tracked == 2
