"""Passes as one uses them: pipelines over captured models, and transformations of models that are undone again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.compat.partitioning.test_source_partitions import facts_of
from tests.passes.checks import noted
from tests.rewrite.test_on_models import bert, llama
from tests.runtime.declare_torchvision import declare_torchvision
from torch import nn
from torch.fx.passes.utils import source_matcher_utils as torch_fx_sources

from graphwright import trace, verify
from graphwright.compat.partitioning import source_partitions
from graphwright.errors import PassError
from graphwright.passes import (
    ChangeTrueDivToMulByInverse,
    CollapseChains,
    FoldConstants,
    FuseBatchNorm1dInLinear,
    FuseBatchNorm2dInConv2d,
    FuseBiasInLinear,
    FuseConvBatchNorm,
    FuseConvReLU,
    MergeLinears,
    MergeParallelLinears,
    MergeSubexpressions,
    Pipeline,
    PropagateChannelsLast,
    RecognizeNorms,
    RemoveDeadCode,
    RemoveNoOps,
    ReversibleTransformation,
    SimplifyAlgebra,
    UseInPlace,
    UseModules,
    UseScaledDotProductAttention,
    compose,
)

CLOSE = {"rtol": 1e-3, "atol": 1e-4}
IMAGE = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
EVERYTHING = (
    RemoveNoOps(inference=True), FoldConstants(), MergeSubexpressions(), CollapseChains(), SimplifyAlgebra(),
    RecognizeNorms(), UseScaledDotProductAttention(), FuseConvBatchNorm(relu=False), PropagateChannelsLast(),
    FuseConvReLU(), MergeParallelLinears(), UseModules(), UseInPlace(), RemoveDeadCode(submodules=True),
)  # fmt: skip


def resnet() -> tuple[nn.Module, tuple[Any, ...]]:
    declare_torchvision()
    torchvision = pytest.importorskip("torchvision")
    return torchvision.models.resnet18(num_classes=10), (IMAGE,)


def captured(make: Any) -> tuple[nn.Module, Any, tuple[Any, ...]]:
    declare_torchvision()
    torch.manual_seed(0)
    model, inputs = make()
    return model.eval(), trace(model, inputs), inputs


@pytest.mark.slow
def test_a_pipeline_for_an_image_model() -> None:
    _, gm, inputs = captured(resnet)
    done = Pipeline(*EVERYTHING, inputs=[inputs], **CLOSE).run(noted(gm, *inputs))
    counts = {step.name: step.changes for step in done.steps}
    assert [counts[name] for name in ("FuseConvBatchNorm", "PropagateChannelsLast", "FuseConvReLU")] == [20, 20, 17]
    called = [type(gm.get_submodule(node.target)).__name__ for node in gm.graph.find_nodes(op="call_module")]
    assert sorted(set(called)) == [
        "AdaptiveAvgPool2d",
        "Conv2d",
        "ConvAddReLU",
        "ConvReLU",
        "Flatten",
        "Linear",
        "MaxPool2d",
    ]


@pytest.mark.parametrize("make", [bert, llama], ids=["bert", "llama"])
def test_a_pipeline_for_a_language_model(make: Any) -> None:
    model, gm, inputs = captured(make)
    given = [
        *inputs,
        *[node.args[0] if node.args else {} for node in gm.graph.nodes if node.op == "placeholder"][len(inputs) :],
    ]
    Pipeline(*EVERYTHING, inputs=[inputs], **CLOSE).run(noted(gm, *given))
    targets = [node.target for node in gm.graph.all_nodes()]
    assert targets.count(torch.nn.functional.scaled_dot_product_attention) == 2
    assert sum(node.op == "call_module" and "q" in str(node.target).split(".")[-1] for node in gm.graph.nodes) == 2
    assert verify(model, gm, [inputs], **CLOSE)


@pytest.mark.slow
def test_the_pass_that_is_wrong_is_named() -> None:
    class TurnTheSign:
        def run(self, gm: Any) -> int:
            (last,) = gm.graph.find_nodes(op="call_module", target="fc")
            with gm.graph.inserting_before(last):
                last.args = (gm.graph.call_method("neg", last.args),)
            return 1

    _, gm, inputs = captured(resnet)
    code = gm.code
    with pytest.raises(PassError, match="TurnTheSign, pass 3 of 4, changed what the module computes"):
        Pipeline(FoldConstants(), RemoveNoOps(), TurnTheSign(), RemoveDeadCode(), inputs=[inputs], **CLOSE).run(gm)
    assert gm.code == code


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("make", "transformation", "changes"),
    [
        pytest.param(bert, MergeLinears(), True, id="query, key and value of BERT"),
        pytest.param(llama, MergeLinears(), True, id="those of Llama"),
        pytest.param(bert, FuseBiasInLinear(), True, id="biases of BERT"),
        pytest.param(llama, FuseBiasInLinear(), False, id="Llama has none"),
        pytest.param(resnet, FuseBatchNorm2dInConv2d(), True, id="batch norms"),
        pytest.param(resnet, FuseBatchNorm1dInLinear(), False, id="other batch norms"),
        pytest.param(
            bert, compose(MergeLinears(), ChangeTrueDivToMulByInverse(), FuseBiasInLinear()), True, id="several"
        ),
    ],
)
def test_there_and_back(make: Any, transformation: ReversibleTransformation, changes: bool) -> None:
    model, gm, inputs = captured(make)
    code, keys = gm.code, list(gm.state_dict())
    assert (transformation(gm).code != code) is changes
    assert verify(model, gm, [inputs], **CLOSE)
    assert transformation(gm, reverse=True).code == code
    assert list(gm.state_dict()) == keys
    assert verify(model, gm, [inputs])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("make", "linears"), [(bert, 12), (llama, 14)], ids=["bert", "llama"])
def test_sources_are_found_as_in_torch_fx(make: Any, linears: int) -> None:
    model, gm, inputs = captured(make)
    exported = torch.export.export(model, inputs).graph
    for wanted in ([nn.Linear], [nn.LayerNorm, "softmax"], ["add", "mul", torch.matmul], [nn.Dropout]):
        expected = torch_fx_sources.get_source_partitions(exported, wanted)
        assert facts_of(source_partitions.get_source_partitions(exported, wanted)) == facts_of(expected)
    found = source_partitions.get_source_partitions(gm.graph, [nn.Linear, torch.nn.functional.softmax])
    assert [len(parts) for parts in found.values()] == [linears, 2]
