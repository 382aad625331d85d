"""torchvision's feature extractor, an old user of torch.fx, with torch.fx's names taken from this library."""

from __future__ import annotations

import copy
import importlib.util
import operator
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import nn

import graphwright

MODELS = [
    "alexnet", "densenet121", "efficientnet_b0", "googlenet", "mnasnet0_5", "mobilenet_v3_small", "regnet_y_400mf",
    "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1", "vit_b_32",
]  # fmt: skip
# With modules that are neither opened nor torch.nn's own: their effects are not known, so that they stay.
OWN_LEAVES = {"efficientnet_b0", "mobilenet_v3_small", "regnet_y_400mf", "vit_b_32"}


@pytest.fixture(scope="module")
def libraries() -> tuple[ModuleType, ModuleType]:
    """torchvision's feature extractor as it is, and once more with torch.fx's names taken from graphwright."""
    _declared = declare_torchvision()
    from torchvision.models import feature_extraction

    spec = importlib.util.spec_from_file_location("feature_extraction_on_graphwright", feature_extraction.__file__)
    assert spec is not None and spec.loader is not None
    ours = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for path in ("torch.fx", "torch.fx.graph_module"):
            patch.setitem(sys.modules, path, importlib.import_module(path.replace("torch.fx", "graphwright")))
        patch.setattr(torch, "fx", graphwright)
        spec.loader.exec_module(ours)
    assert ours.fx is graphwright and issubclass(ours.DualGraphModule, graphwright.GraphModule)
    return feature_extraction, ours


def model_of(name: str) -> nn.Module:
    from torchvision import models

    options = {"init_weights": False} if name == "googlenet" else {}
    model: nn.Module = models.get_model(name, weights=None, **options)
    return model.eval()


def results(extractors: list[Any], mode: bool, x: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    values = []
    for extractor in extractors:
        extractor.train(mode)
        torch.manual_seed(0)
        with torch.no_grad():
            values.append(extractor(x))
    return values


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", MODELS)
def test_features_of_models(libraries: tuple[Any, Any], name: str) -> None:
    model = model_of(name)
    want, got = (library.get_graph_node_names(model, suppress_diff_warning=True) for library in libraries)
    assert got == want
    train_names, eval_names = got
    picked = [name for name in eval_names[len(eval_names) // 2 :: 6] if name in train_names][:3]
    extractors = [library.create_feature_extractor(model, picked, suppress_diff_warning=True) for library in libraries]
    x = torch.rand(2, 3, 224, 224)
    for mode in (False, True):
        want, got = results(extractors, mode, x)
        assert got.keys() == want.keys()
        for key, node in extractors[1].graph.output_node().args[0].items():
            if not any(writes(extractors[1], user) for user in node.users):  # torch.fx forgets some of these
                torch.testing.assert_close(got[key], want[key], msg=f"{key} while training is {mode}")
        reference, ours = (extractor.graph for extractor in extractors)
        if not mode and name not in OWN_LEAVES:
            unread = [node for node in ours.nodes if not node.users and node.op not in ("placeholder", "output")]
            acting = [node for node in unread if node.target not in (torch._assert, graphwright.runtime.expect)]
            assert all(writes(extractors[1], node) for node in acting)  # else, what features do not need is gone
        ours.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or node.target is torch._assert)
        assert nodes_of(ours) == nodes_of(reference)


def writes(extractor: Any, node: Any) -> bool:
    """Tell whether a node writes to what it reads: `+=`, or a module in place."""
    module = extractor.get_submodule(node.target) if node.op == "call_module" else None
    return node.target is operator.iadd or getattr(module, "inplace", False)


def nodes_of(graph: Any) -> list[tuple[str, str, list[str]]]:
    """What happens, in order, less the guards that torch.fx has not."""
    guards = [node for node in graph.nodes if node.target is graphwright.runtime.expect]
    read = [value for guard in guards for value in guard.all_input_nodes if len(value.users) == 1]
    return [
        (node.op, node.name, [value.name for value in node.all_input_nodes])
        for node in graph.nodes
        if node not in guards and node not in read
    ]


def test_a_copy_keeps_both_graphs(libraries: tuple[Any, Any]) -> None:
    model, x = model_of("resnet18"), torch.rand(2, 3, 64, 64)
    for library in libraries:
        extractor = library.create_feature_extractor(model, {"layer1.0.relu": "early", "fc": "last"})
        copied = copy.deepcopy(extractor)
        for mode in (False, True):
            want, got = results([extractor, copied], mode, x)
            torch.testing.assert_close(got, want)
        assert {id(p) for p in copied.parameters()}.isdisjoint(map(id, extractor.parameters()))


def test_a_difference_between_the_modes_is_told(libraries: tuple[Any, Any]) -> None:
    told = []
    for library in libraries:
        with pytest.warns(UserWarning, match="obtained by tracing the model in eval mode") as record:
            library.get_graph_node_names(model_of("googlenet"))
        told.append([str(warning.message) for warning in record])
    assert told[1] == told[0]


def test_a_name_that_is_no_node_is_refused(libraries: tuple[Any, Any]) -> None:
    for library in libraries:
        with pytest.raises(ValueError, match="node: 'nowhere' is not present in model"):
            library.create_feature_extractor(model_of("alexnet"), ["nowhere"])
