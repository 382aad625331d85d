"""Stages of a module without data that read their part of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from graphwright import trace
from graphwright.distributed import Stages, pipeline
from graphwright.errors import LoadError, PassError

save_file = pytest.importorskip("safetensors.torch").save_file


class Tied(nn.Module):
    """Two weights that are one, and a buffer that no state_dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.middle, self.head = nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.arange(4.0), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        hidden = self.middle(self.embed(ids) + positions[:, None])
        return self.head(hidden * self.scale)


IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def stages_of_meta() -> Stages:
    with torch.device("meta"):
        model, ids = Tied(), torch.zeros(2, 3, dtype=torch.int64)
    gm = trace(model, ids)
    return pipeline(gm, at=["middle", "head"], args=(ids,))


def write(model: nn.Module, folder: Path, sharded: bool, without: str = "") -> Path:
    """Write what a model has, a tied weight once, as transformers does."""
    tensors = {name: tensor for name, tensor in model.named_parameters() if name != without}
    if not sharded:
        save_file(tensors, folder / "model.safetensors")
        return folder / "model.safetensors"
    files = {}
    for i, (name, tensor) in enumerate(tensors.items()):
        files[name] = f"model-{i}.safetensors"
        save_file({name: tensor}, folder / files[name])
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return index


@pytest.mark.parametrize("sharded", [True, False], ids=["shards", "one file"])
@pytest.mark.parametrize("by_folder", [True, False], ids=["folder", "path"])
def test_stages_read_their_part(tmp_path: Path, sharded: bool, by_folder: bool) -> None:
    model, stages = Tied(), stages_of_meta()
    path = write(model, tmp_path, sharded)
    for rank in range(3):
        stages.load(tmp_path if by_folder else path, rank, values={"scale": model.scale})
    assert torch.equal(stages.run(IDS), model(IDS))
    assert [list(part.module.state_dict()) for part in stages] == [
        ["embed.weight"], ["middle.weight", "middle.bias"], ["head.weight"],
    ]  # fmt: skip


def test_only_the_shards_of_a_stage_are_opened(tmp_path: Path) -> None:
    path = write(Tied(), tmp_path, sharded=True)
    names = json.loads(path.read_text())["weight_map"]
    (tmp_path / names["embed.weight"]).unlink()
    stages = stages_of_meta()
    stages.load(path, 1, values={"scale": torch.ones(4)})
    assert not stages[1].module.middle.weight.is_meta and stages[0].module.embed.weight.is_meta
    with pytest.raises(LoadError, match="cannot be read as safetensors"):
        stages.load(path, 0, values={"scale": torch.ones(4)})


def test_what_is_missing_is_said_for_all_stages(tmp_path: Path) -> None:
    path = write(Tied(), tmp_path, sharded=True, without="embed.weight")
    stages = stages_of_meta()
    with pytest.raises(LoadError, match=r"lacks embed\.weight, which stage 0 needs"):
        stages.load(path, 1)
    path = write(Tied(), tmp_path, sharded=True)
    with pytest.raises(LoadError, match=r"lacks scale, which stage 1 needs"):
        stages.load(path, 0)
    with pytest.raises(LoadError, match=r"scale has shape \(5,\) in the checkpoint, \(4,\) in the program"):
        stages.load(path, 1, values={"scale": torch.ones(5)})


@pytest.mark.parametrize(
    ("name", "text"), [("model.safetensors.index.json", "{}"), ("model.safetensors", "no"), ("gone.safetensors", None)]
)
def test_what_is_no_checkpoint(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(LoadError, match="safetensors"):
        stages_of_meta().load(tmp_path / name)


def test_a_stage_without_data_is_refused(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        stages = stages_of_meta()
        with pytest.raises(PassError, match=r"stage 1 has no data for middle\.weight, middle\.bias, scale"):
            stages.stage(1)
        model = Tied()
        stages.load(write(model, tmp_path, sharded=True), values={"scale": model.scale})
        assert torch.equal(stages.stage(1).submod.middle.weight, model.middle.weight)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("shard", ["../model.safetensors", "/model.safetensors", "in/../../model.safetensors"])
def test_an_index_names_files_of_its_folder(tmp_path: Path, shard: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"scale": shard}}))
    with pytest.raises(LoadError, match="outside of its folder"):
        stages_of_meta().load(index, 0)
