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
"""

from graphwright.distributed.pipeline_stages import PipelinePart, Stages
from graphwright.distributed.pipelining import pipeline

__all__ = ["PipelinePart", "Stages", "pipeline"]
