"""Captured module -> stages for the processes of torch.distributed.pipelining, plans for FSDP and tensor parallelism.

A captured module and example inputs come in; modules, and plans that torch.distributed carries out, go out. Read
pipelining.py first.

    pipelining.py        a program cut into stages, each for a process of its own
    pipeline_stages.py   the stages, as the processes take them
    stage_programs.py    the program of one stage
    crossings.py         how a value comes to a stage that did not make it
    results.py           what the last stage gives
    expectations.py      what stages are made for, checked before anything is sent
    tied_gradients.py    gradients of parameters that several stages have
    checkpoints.py       checkpoints in safetensors, of which a stage reads its own part
    tensor_parallel.py   which layers tensor parallelism splits, and how
    sharding.py          what fully_shard wraps
"""

from graphwright.distributed.pipeline_stages import PipelinePart, Stages
from graphwright.distributed.pipelining import pipeline
from graphwright.distributed.sharding import ShardPlan, ShardUnit, shard_plan
from graphwright.distributed.tensor_parallel import Refusal, TensorParallelPlan, tensor_parallel_plan

__all__ = [
    "PipelinePart",
    "Refusal",
    "ShardPlan",
    "ShardUnit",
    "Stages",
    "TensorParallelPlan",
    "pipeline",
    "shard_plan",
    "tensor_parallel_plan",
]
