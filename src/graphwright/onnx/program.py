"""An ONNX model with what is known of it: how arguments become its inputs, and its outputs the program's result."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import onnx_ir as ir
import onnxruntime  # type: ignore[import-untyped]
import torch
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.interop import Collected, is_filled
from graphwright.onnx.inputs import Arguments
from graphwright.onnx.objects import Opening, closed
from graphwright.onnx.overflow import open_session
from graphwright.onnx.sizes import Place, empty_places
from graphwright.onnx.values import Maybe

LARGEST = 2**31 - 2**20  # bytes of one protobuf file, with room for what is no weight


@dataclasses.dataclass(frozen=True)
class Part:
    """What became of a node: `became` is "If", "Loop", "left out", "fixed", "dropped" or "not checked"."""

    node: str
    became: str
    detail: str
    at: str

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.node} -> {self.became}{detail}" + (f" ({self.at})" if self.at else "")


@dataclasses.dataclass(frozen=True)
class OnnxReport:
    """What became of a program: `regions` and what is not in the model; `operators` counts the nodes of the model.

    `sizes` says each input's sizes as the model has them, `assumed` under which conditions on them torch.export has
    made it, and `notes` what the model takes for granted and the program does not.
    """

    regions: tuple[Part, ...]
    operators: dict[str, int]
    sizes: dict[str, tuple[int | str, ...]]
    notes: tuple[str, ...]
    assumed: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{name}: [{', '.join(map(str, sizes))}]" for name, sizes in self.sizes.items()]
        lines.append(", ".join(f"{count} {name}" for name, count in sorted(self.operators.items())))
        lines += [*map(str, self.regions), *(f"assumed: {each}" for each in self.assumed)]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One leaf of a result: an output, several items of a list that a loop filled as one output, or a constant."""

    kind: Literal["output", "items", "constant"]
    constant: Any = None


@dataclasses.dataclass
class Outputs:
    """How the outputs of a model are nested in the program's result."""

    spec: Any = None
    leaves: tuple[Leaf, ...] = ()

    def nested(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The program's result, and the objects of its arguments that it writes to, opened."""
        left = iter(tensors)
        values = [
            leaf.constant if leaf.kind == "constant" else Collected(next(left)) if leaf.kind == "items" else next(left)
            for leaf in self.leaves
        ]
        return pytree.tree_map(_spread, pytree.tree_unflatten(values, self.spec), is_leaf=_is_more)

    def names(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[str]:
        """The name of the output that each tensor of the result comes from."""
        given = [leaf for leaf in self.leaves if leaf.kind != "constant"]
        triples = zip(given, names, tensors, strict=True)
        return [name for leaf, name, each in triples for _ in range(len(each) if leaf.kind == "items" else 1)]


def _is_more(value: Any) -> bool:
    return isinstance(value, Maybe) or is_filled(value)


def _spread(value: Any) -> Any:
    """A list that a loop filled, item by item; a tensor or None for what may be None."""
    if isinstance(value, Maybe):
        return value.tensor if value.present else None
    if not is_filled(value):
        return value
    return [item for each in value for item in (each.tensor.unbind() if isinstance(each, Collected) else (each,))]


_FIX = "see program.report for sizes; what it has no kernels for, bfloat16 say, cast before the export: model.float()"


class OnnxProgram:
    """A model in ONNX: `model` of onnx_ir, and `report` on what became of the program.

    A call runs it in ONNX Runtime on arguments of the program, and gives the program's result: its numbers are tensors.
    Objects among the arguments, a cache for instance, get what the program writes to them.
    It refuses tensors without items, but for those of which the export has seen that the model is right: `empty` has
    their places.
    """

    def __init__(
        self, model: ir.Model, report: OnnxReport, arguments: Arguments, outputs: Outputs, external_data: bool | None
    ) -> None:
        self.model, self.report = model, report
        self.arguments, self._outputs = arguments, outputs
        self._external_data = external_data
        self._session: Any = None
        self.empty: set[frozenset[Place]] = set()

    @property
    def input_names(self) -> list[str]:
        """The names of the model's inputs."""
        return [str(value.name) for value in self.model.graph.inputs]

    @property
    def output_names(self) -> list[str]:
        """The names of the model's outputs."""
        return [str(value.name) for value in self.model.graph.outputs]

    def save(self, path: str | os.PathLike[str], external_data: bool | None = None) -> None:
        """Write the model; its weights go into a file beside it, `path` and ".data", where they are above 2 GB.

        `external_data` asks for that file, or for none.
        """
        if external_data is None:
            external_data = self.is_large if self._external_data is None else self._external_data
        ir.save(self.model, path, external_data=f"{Path(path).name}.data" if external_data else None)

    @property
    def is_large(self) -> bool:
        """Whether the weights are too many for one file of protobuf."""
        values = self.model.graph.initializers.values()
        return sum(value.const_value.nbytes for value in values if value.const_value is not None) > LARGEST

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model in ONNX Runtime.

        Raises ExportError for sizes of 0 at which it is not known to be right, and for what ONNX Runtime cannot run.
        """
        tensors, objects = self.arguments.apart(args, kwargs)
        places = empty_places([tensor.shape for tensor in tensors])
        fixed = [
            (i, dim) for i, one in enumerate(self.report.sizes.values()) for dim, size in enumerate(one) if size == 0
        ]
        if places.difference(fixed) and places.difference(fixed) not in self.empty:
            i, dim = min(places.difference(fixed))
            raise ExportError(
                f"{self.input_names[i]}.shape[{dim}] is 0, and the model is not known to be right there",
                fix="see program.report, and call the program itself for what has no items",
            )
        try:
            given = self.run(tensors)
        except Exception as error:  # of classes that ONNX Runtime has no public names for
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise ExportError(f"ONNX Runtime cannot run the model on this: {said}", fix=_FIX) from error
        return closed(self._outputs.nested(given), objects)[0]

    def result_of(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, list[str]]:
        """The program's result that these outputs stand for, and which output each tensor of them is."""
        result = closed(self._outputs.nested(tensors))[0]
        return Opening().opened(result), self._outputs.names(self.output_names, tensors)

    def feeds(self, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Arrays of numpy by the names of the inputs, one for each."""
        pairs = zip(self.input_names, tensors, strict=True)
        return {name: each.detach().cpu().contiguous().numpy() for name, each in pairs}

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the model in ONNX Runtime on its inputs, one tensor for each, and give its outputs."""
        session = self._opened()
        wanted = {value.name for value in session.get_inputs()}
        given = session.run(None, {name: value for name, value in self.feeds(tensors).items() if name in wanted})
        return [torch.from_numpy(value) if hasattr(value, "dtype") else torch.tensor(value) for value in given]

    def _opened(self) -> Any:
        if self._session is None:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4  # an error is raised, and need not be printed, too
            options.intra_op_num_threads = torch.get_num_threads()
            options.add_session_config_entry(
                "session.qdq_matmulnbits_accuracy_level", "1"
            )  # else it rounds activations
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                self.save(path)
                self._session = open_session(path, options)
        return self._session
