"""What torch's own tools make of captured modules, beside the originals: `python -m tests.interop.table` writes it.

Each tool gets a module and an example, and its result two other inputs. A cell says what came of that: `yes`, right on
all; `one size`, right on the example and an error on others; `no`, an error; `wrong`, another value without an error.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from tests.passes.zoo_models import zoo_model
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

from graphwright import GraphModule, to_export, trace

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
START, END = "<!-- table of tools: python -m tests.interop.table -->\n", "<!-- end of the table -->\n"

# ---- models


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x)
        return self.linear(h).relu() if h.sum() > 0 else h - 1


class Halving(Branch):
    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x)
        while h.norm() > 1:
            h = h * 0.5
        return h


class Rows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(1, 3)
        for row in x:
            h = self.cell(row[None], h)
        return h


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class First(nn.Module):
    """A language model that gives its first result alone: torch.jit knows no ModelOutput."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(input_ids=ids, return_dict=False)[0]


def _language(name: str) -> tuple[nn.Module, list[Tensor]]:
    declare_torchvision()
    model, _ = zoo_model("transformers", name)
    sizes = ((2, 7), (3, 5), (1, 9))
    return First(model), [torch.randint(0, 90, size) for size in sizes]


def _resnet() -> tuple[nn.Module, list[Tensor]]:
    declare_torchvision()
    from torchvision.models import resnet18

    return resnet18(num_classes=10), [torch.randn(n, 3, side, side) for n, side in ((2, 64), (3, 64), (4, 96))]


def _vit() -> tuple[nn.Module, list[Tensor]]:
    declare_torchvision()
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=10)
    return model, [torch.randn(n, 3, 32, 32) for n in (2, 3, 5)]


def _own(kind: Callable[[], nn.Module], *sizes: tuple[int, ...]) -> Callable[[], tuple[nn.Module, list[Tensor]]]:
    return lambda: (kind(), [torch.randn(size) * (-3) ** i for i, size in enumerate(sizes)])


MODELS: dict[str, Callable[[], tuple[nn.Module, list[Tensor]]]] = {
    "resnet18": _resnet,
    "a vision transformer": _vit,
    "BERT": lambda: _language("bert"),
    "GPT-2": lambda: _language("gpt2"),
    "Llama": lambda: _language("llama"),
    "`if` on data": _own(Branch, (4, 3), (2, 3), (5, 3), (3, 3)),
    "`while` on data": _own(Halving, (4, 3), (2, 3), (5, 3)),
    "`for row in x`": _own(Rows, (4, 3), (2, 3), (6, 3)),
    "nn.LSTM": _own(Recurrent, (4, 2, 3), (6, 2, 3), (4, 5, 3)),
}
SMALL = list(MODELS)[5:]

# ---- tools: a module and an example -> what is called on others


def _exported(module: nn.Module, x: Tensor, strict: bool) -> Any:
    named = (dict.fromkeys(range(x.dim()), Dim.AUTO),)
    return torch.export.export(module, (x,), dynamic_shapes=named, strict=strict).module()


def _ours(module: nn.Module, x: Tensor) -> Any:
    if not isinstance(module, GraphModule):
        raise TypeError("to_export takes captured modules")
    return to_export(module, x).module()


def _ahead(module: nn.Module, x: Tensor) -> Any:
    named = (dict.fromkeys(range(x.dim()), Dim.AUTO),)
    with torch.no_grad():
        program = (
            to_export(module, x)
            if isinstance(module, GraphModule)
            else torch.export.export(module, (x,), dynamic_shapes=named, strict=False)
        )
        folder = tempfile.mkdtemp()
        path = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/model.pt2")
    return torch._inductor.aoti_load_package(path)


def _compiled(module: nn.Module, x: Tensor) -> Any:
    torch._dynamo.reset()
    return torch.compile(module, backend="eager", fullgraph=True)


def _functional(module: nn.Module, x: Tensor) -> Any:
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    other = {name: tensor * 1 for name, tensor in tensors.items()}
    return lambda value: torch.func.functional_call(module, other, (value,))


def _batched(module: nn.Module, x: Tensor) -> Any:
    """vmap over a leading dimension of two, whose second item is the first again."""
    return lambda value: pytree.tree_map(lambda out: out[1], torch.vmap(module)(torch.stack([value, value])))


def _data_parallel(module: nn.Module, x: Tensor) -> Any:
    return nn.parallel.DistributedDataParallel(module)


def _sharded(module: nn.Module, x: Tensor) -> Any:
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    return fully_shard(module, mesh=mesh)


def _gradient(module: nn.Module, x: Tensor) -> Any:
    """The gradients of parameters, by torch.func.grad."""
    weights = {name: parameter.detach() for name, parameter in module.named_parameters()}

    def of(value: Tensor) -> Any:
        def loss(weights: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(module, weights, (value,)).float().square().mean()

        return torch.func.grad(loss)(weights)

    return of


TOOLS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "jit.script": lambda module, x: torch.jit.script(module),
    "jit.trace": lambda module, x: torch.jit.trace(module, (x,), check_trace=False),
    "export": lambda module, x: _exported(module, x, strict=False),
    "export, strict": lambda module, x: _exported(module, x, strict=True),
    "`to_export`": _ours,
    "compile, fullgraph": _compiled,
    "AOTInductor": _ahead,
    "DDP": _data_parallel,
    "FSDP2": _sharded,
    "functional_call": _functional,
    "vmap": _batched,
    "grad": _gradient,
}
# Minutes for a model, so that only small ones get to it.
SLOW = ("AOTInductor",)
_TRAINING = ("DDP", "FSDP2", "grad")

# ---- cells


def cell(tool: str, module: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> str:
    """Say what a tool makes of a module, by what the original gives."""
    make = TOOLS[tool]
    wanted_of = _gradient(original, inputs[0]) if tool == "grad" else original
    results: list[bool | None] = []
    with warnings.catch_warnings(), torch.set_grad_enabled(tool in _TRAINING):
        warnings.simplefilter("ignore")
        try:
            made = make(module, inputs[0])
        except Exception:  # whatever the tool says
            return "no"
        for x in inputs:
            wanted = pytree.tree_leaves(wanted_of(x))
            try:
                given = pytree.tree_leaves(made(x))
            except Exception:
                results.append(None)
                continue
            results.append(all(_is_close(a, b) for a, b in zip(wanted, given, strict=True)))
    if False in results:
        return "wrong"
    if None not in results:
        return "yes"
    return "one size" if results[0] else "no"


def _is_close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(torch.allclose(one, other, rtol=1e-3, atol=1e-4))


def row(name: str, tools: Sequence[str]) -> dict[str, str]:
    """The cells of one model: what the tool makes of the original, and of the captured module."""
    torch.manual_seed(0)
    original, inputs = MODELS[name]()
    original.eval()
    cells = {}
    for tool in tools:
        if tool in SLOW and name not in SMALL:
            cells[tool] = "-"
            continue
        gm = trace(copy.deepcopy(original), (inputs[0],), target="export")
        of_captured = cell(tool, gm, original, inputs)
        of_original = "" if tool == "`to_export`" else f"{cell(tool, copy.deepcopy(original), original, inputs)} / "
        cells[tool] = f"{of_original}{of_captured}"
    return cells


def table(rows: dict[str, dict[str, str]]) -> str:
    """Rows as a table of Markdown."""
    tools = list(next(iter(rows.values())))
    lines = [f"| | {' | '.join(tools)} |", f"|---|{'---|' * len(tools)}"]
    lines += [f"| {name} | {' | '.join(cells.values())} |" for name, cells in rows.items()]
    return "\n".join(lines) + "\n"


def read_table(text: str) -> dict[str, dict[str, str]]:
    """The rows of the table on a page."""
    found = re.search(re.escape(START) + "(.*?)" + re.escape(END), text, re.DOTALL)
    assert found is not None
    header, _, *rows = [
        [part.strip() for part in line.strip("|").split("|")] for line in found[1].splitlines() if line.startswith("|")
    ]
    return {name: dict(zip(header[1:], cells, strict=True)) for name, *cells in rows}


@contextlib.contextmanager
def one_process() -> Iterator[None]:
    """A process group of this process alone."""
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            yield
        finally:
            torch.distributed.destroy_process_group()


def main(names: Sequence[str]) -> None:
    """Write the rows of the named models, or of all, into the page."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    rows = read_table(PAGE.read_text())
    with one_process():
        for name in names or MODELS:
            rows[name] = row(name, list(TOOLS))
            print(name, rows[name], flush=True)
    text = PAGE.read_text()
    before, after = text.split(START)[0], text.split(END)[1]
    ordered = {name: rows[name] for name in MODELS if name in rows}
    PAGE.write_text(f"{before}{START}\n{table(ordered)}\n{END}{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
