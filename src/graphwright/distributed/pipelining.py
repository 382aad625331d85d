"""A captured module cut into stages, each for a process of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from torch import nn
from torch.distributed.pipelining.microbatch import split_args_kwargs_into_chunks

from graphwright.analysis import Shapes, tensors_in
from graphwright.distributed.crossings import Crossings, Leaf, Unknown
from graphwright.distributed.expectations import Inputs
from graphwright.distributed.pipeline_stages import PipelinePart, Stages
from graphwright.distributed.results import Output, Result
from graphwright.distributed.stage_programs import stage_program
from graphwright.errors import GraphError, PassError
from graphwright.hierarchy import as_flat
from graphwright.ir import Node, map_arg
from graphwright.passes import split
from graphwright.runtime import as_captured, graph_of

Balance = Literal["flops", "params", "memory", "time"]


def pipeline(
    gm: nn.Module,
    parts: int | None = None,
    *,
    at: Iterable[str] | None = None,
    balance: Balance = "params",
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    microbatches: int = 1,
    output: Output = None,
) -> Stages:
    """Cut a captured module into stages that torch.distributed.pipelining runs in processes of their own.

    `parts`, `at` and `balance` say where, as for `split`. `args` and `kwargs` are example inputs of one step, which a
    schedule cuts into `microbatches` along their first dimension; the stages are for microbatches of that size. Nothing
    runs on them, so they may be on the meta device as the module may.

    What a stage needs of one that is not its neighbour is passed on by those between. Numbers go as tensors; None and
    other constants are put into the stages that read them; a mask that is None for some data is made in each stage.
    The last stage gives the tensors of the result as a tuple, a single one as it is, or those that `output` names:
    "logits", `["loss", "logits"]`.

    Parameters and buffers are shared with the captured module, under their names. Raises PassError for a cut inside of
    a branch, a loop or a `with` block, for a value that no process can send, for microbatches of different sizes, and
    for a write that another stage would not see; UnknownNameError for a name that nothing has.

    >>> from graphwright import trace
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.ones(8, 4)
    >>> stages = pipeline(trace(model, x), 2, args=(x,), microbatches=4)
    >>> stages[1].inputs, stages[1].takes[0].shape
    (('linear',), torch.Size([2, 8]))
    >>> torch.equal(stages.run(x[:2]), model(x[:2]))
    True
    """
    gm = as_flat(as_captured(gm))
    given = args if isinstance(args, tuple) else (args,)
    given, named = _microbatch(given, dict(kwargs or {}), microbatches)
    cut = split(gm, at=at, parts=parts, balance=balance, args=given, kwargs=named)
    returned = graph_of(gm).output_node()
    if not given and not named and graph_of(gm).placeholders():
        raise PassError("what crosses a cut is told by an example", fix="pass the inputs of a step: args=(x,)")
    with torch.enable_grad():
        try:
            crossings = Crossings(gm, cut, Shapes(gm, given, named))
            value = map_arg(returned.args[0], crossings.value)
        except GraphError as error:
            raise PassError(
                f"what crosses a cut cannot be told: {error.message}", at=error.at, fix="pass example inputs: args=(x,)"
            ) from error
    for node in returned.all_input_nodes:
        if isinstance(crossings.value(node), Unknown):
            raise PassError(
                f"data decides what {node.name} is, which the program returns: {crossings.shapes.why(node)}",
                at=node.origin,
                fix="stages send tensors of known shapes: leave it out of the result",
            )
    result = Result.of(returned.args[0], value, output)
    inputs = [node for node in graph_of(gm).nodes if node.op == "placeholder"]
    made = [_part(crossings, i, result, inputs, given) for i in range(len(cut))]
    expected = Inputs.of(inputs, crossings)
    return Stages(gm, made, cut.tied, expected, microbatches)


def _part(crossings: Crossings, index: int, result: Result, inputs: list[Node], args: tuple[Any, ...]) -> PipelinePart:
    before: list[Leaf] = [*crossings.carried[index - 1].values()] if index else []
    after: list[Leaf] = [*crossings.carried[index].values()]
    is_last = index == len(crossings.split) - 1
    like = [torch.empty_like(tensor, device="meta") for tensor in args if isinstance(tensor, torch.Tensor)]
    return PipelinePart(
        stage_program(crossings, index, result, f"{type(crossings.gm).__name__}Stage{index}"),
        tuple([leaf.name for leaf in before]) if index else tuple([str(node.target).lstrip("*") for node in inputs]),
        () if is_last else tuple([leaf.name for leaf in after]),
        tuple([leaf.name for leaf in after if crossings.stage_of[leaf.node] != index]),
        tuple([leaf.example for leaf in before]) if index else tuple(like),
        result.gives if is_last else tuple([leaf.example for leaf in after]),
    )


def _microbatch(args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The first of so many equal parts of the inputs of a step, cut as a schedule cuts them."""
    if count == 1:
        return args, kwargs
    sizes = sorted({tensor.shape[0] if tensor.dim() else 0 for tensor in tensors_in((args, kwargs))})
    if count < 1 or any(size % count or not size for size in sizes):
        raise PassError(
            f"inputs of {' and '.join(map(str, sizes))} rows cannot be cut into {count} microbatches of one size",
            fix="pass microbatches= that divides the batch",
        )
    chunks, named = split_args_kwargs_into_chunks(args, kwargs, count)
    return tuple(chunks[0]), dict(named[0])
