"""Captured modules as ONNX models: branches and loops on data are If and Loop, and no size is fixed that none fixes."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import onnx_ir as ir
import torch
from onnx_ir.passes import PassError
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from graphwright.analysis import state_kept
from graphwright.capture import trace
from graphwright.errors import CaptureError, ExportError, GraphwrightError
from graphwright.hierarchy import as_flat
from graphwright.interop import (
    Collected,
    Patience,
    TooComplicated,
    as_number_tensor,
    calmly,
    collect_appended,
    in_its_mode,
    is_symbolic,
    patience_for,
    without_graphs,
    without_idle_dropouts,
)
from graphwright.ir import Node
from graphwright.onnx.assumptions import try_assumptions
from graphwright.onnx.checking import check
from graphwright.onnx.inputs import Arguments
from graphwright.onnx.module_functions import check_asked_for, is_asked_for, keep_functions
from graphwright.onnx.objects import Opening, State, check_known
from graphwright.onnx.optimizing import optimized
from graphwright.onnx.original import Original
from graphwright.onnx.program import Leaf, OnnxProgram, OnnxReport, Outputs, Part
from graphwright.onnx.python_calls import Text
from graphwright.onnx.running import Running, is_differentiated
from graphwright.onnx.sizes import (
    Facts,
    Sizes,
    at_sizes,
    export_at_example,
    export_open,
    facts_of,
    said_of_fixed,
)
from graphwright.onnx.torch_private import parsed_once, without_transforms
from graphwright.onnx.translation import translations
from graphwright.onnx.values import Maybe
from graphwright.runtime import GraphModule

_OPSET = 18
_Way = Callable[..., tuple[ExportedProgram, Sizes, list[str]]]


def export(
    model: nn.Module | Callable[..., Any],
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_shapes: Any = None,
    opset_version: int = _OPSET,
    external_data: bool | None = None,
    modules_as_functions: Sequence[str | type[nn.Module]] = (),
    custom_translation_table: Mapping[Any, Any] | None = None,
    guards: Literal["keep", "drop"] = "keep",
    verify: bool = False,
) -> OnnxProgram:
    """Export a captured module, or capture a module and export it; `args` and `kwargs` are example inputs.

    Branches and loops on data become If and Loop. `dynamic_shapes` is as for `torch.export.export`, or with names of
    sizes in place of `Dim`; without it every size is dynamic that no guard and no weight fixes, and is named after its
    input. Guards on sizes become fixed sizes; those on data are refused, unless `guards="drop"` leaves them out.
    Weights go into a file of their own above 2 GB, or as `external_data` says. `modules_as_functions` names modules, by
    path, class or name of the class, that become functions of the model, one for all that are alike; a captured module
    must call them, as it does where its capture had them as `leaf_modules`. `custom_translation_table` is torch.onnx's.
    What torch.export assumes of open sizes is tried out in ONNX Runtime: all that differs is in the report and in one
    warning. `verify` raises where the model is off on the example or at two other sizes.

    Raises ExportError, with the user's line, for what ONNX cannot say, and for what is asked for and cannot be.

    >>> import graphwright
    >>> gm = graphwright.trace(lambda x: x * 2 if x.sum() > 0 else x, torch.ones(3))
    >>> program = export(gm, torch.ones(3))
    >>> program(-torch.ones(5))
    tensor([-1., -1., -1., -1., -1.])
    """
    inputs: dict[str, Any] = {"args": args, "kwargs": kwargs}
    for name, value in inputs.items():
        if isinstance(value, str | os.PathLike):  # as torch.onnx.export has a file there
            fix = "export first, then write: graphwright.onnx.export(model, args).save(path)"
            raise ExportError(f"{name} is a {type(value).__name__}, where example inputs are", fix=fix)
    given, named = args if isinstance(args, tuple) else (args,), dict(kwargs or {})
    if not isinstance(model, GraphModule):
        named_modules = model.named_modules() if isinstance(model, nn.Module) else ()  # a function can be captured, too
        leaves = [name for name, each in named_modules if is_asked_for(name, each, modules_as_functions)]
        model = _captured(model, given, named, leaves)
    flat: GraphModule = as_flat(model, lambda path, each: is_asked_for(path, each, modules_as_functions))
    module = _in_one_mode(flat)
    check_asked_for(module, modules_as_functions)
    arguments = Arguments(module.forward, given, named, input_names, dynamic_shapes)
    exporting = _Exporting(flat, module, arguments, guards == "drop", modules_as_functions)
    made = functools.partial(exporting.program, output_names, opset_version, custom_translation_table, external_data)
    program, is_off = made(export_open, dynamic_shapes is not None)
    if is_off:
        program, _ = made(export_at_example, dynamic_shapes is not None)
    if program.report.notes:
        text = "the model and the program differ:\n- " + "\n- ".join(program.report.notes)
        warnings.warn(text, UserWarning, stacklevel=2)
    if verify:
        check(program, exporting.original)
    return program


def _captured(model: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, leaves: list[str]) -> GraphModule:
    """Capture a program for deployment, or as it runs here where what it does exported cannot be captured."""
    try:
        return trace(model, args, kwargs=kwargs, target="export", leaf_modules=leaves)
    except CaptureError:
        with contextlib.suppress(CaptureError):
            return trace(model, args, kwargs=kwargs, leaf_modules=leaves)
        raise


def _in_one_mode(flat: GraphModule) -> GraphModule:
    module, _ = in_its_mode(flat)
    module = without_idle_dropouts(module)
    collect_appended(module)
    return module


def export_at_sizes(model: GraphModule, args: tuple[torch.Tensor, ...]) -> OnnxProgram:
    """Export a captured module for inputs of the sizes of these; what the model computes is not compared.

    An engine asks for it, whose results are compared with those of the module where it is chosen.
    """
    flat: GraphModule = as_flat(model)
    module = _in_one_mode(flat)
    arguments = Arguments(module.forward, args, {}, None, tuple([None] * len(args)))
    exporting = _Exporting(flat, module, arguments, False, ())
    exported, _, notes = exporting.exported(export_at_example)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return exporting.translated(exported, notes)


def _check_asked(exported: ExportedProgram, arguments: Arguments) -> None:
    """Refuse a model in which a size is fixed that was to stay open."""
    for (i, dim), size in facts_of(exported, arguments.inputs).fixed.items():
        raise ExportError(
            f"dimension {dim} of {arguments.inputs[i].name!r} is {size} in the model, whatever is asked for",
            fix="leave it out of dynamic_shapes",
        )


class _Exporting:
    """One export of one program."""

    def __init__(
        self, model: GraphModule, module: GraphModule, arguments: Arguments, drop_guards: bool, functions: Sequence[Any]
    ) -> None:
        self._functions = functions
        self._module, self._arguments = module, arguments
        self.original = Original(model, arguments)
        self._drop_guards = drop_guards
        self._outputs = Outputs()
        self._parts: dict[tuple[int, str], Part] = {}
        self._node: Node | None = None
        self._written: list[str] = []
        self._fixed: dict[tuple[int, int], int] = {}  # sizes that torch.export cannot keep open
        self._patience: Patience | None = None

    def run(self, sizes: Sizes) -> ExportedProgram:
        """Have torch.export watch the program at these sizes.

        Raises ExportError where a region says no, and TooComplicated where sympy takes too long for sizes.
        """
        tensors = at_sizes(self._arguments, sizes)
        shapes = tuple(
            [Dim.AUTO if dim in each.dynamic else None for dim in range(each.example.dim())]
            for each in self._arguments.inputs
        )
        self._parts.clear()
        program = self._watched()
        try:
            with (
                self._patience or contextlib.nullcontext(),
                state_kept(self._module, self._module),
                torch.no_grad(),
                calmly(),
                without_graphs(),
            ):
                return torch.export.export(program, tuple(tensors), dynamic_shapes=(shapes,), strict=False)
        except GraphwrightError:
            raise
        except Exception as error:
            cause = _cause(error)
            if cause is not None:
                raise cause from error
            raise

    def program(
        self,
        output_names: Sequence[str] | None,
        opset_version: int,
        table: Mapping[Any, Any] | None,
        external_data: bool | None,
        way: _Way,
        is_asked: bool,
    ) -> tuple[OnnxProgram, bool]:
        """Export in one way, and try the model; says, too, whether it is off at the example for the sizes alone."""
        exported, sizes, notes = self.exported(way)
        if is_asked:
            _check_asked(exported, self._arguments)
        program = self.translated(exported, notes, output_names, opset_version, table, external_data)
        with calmly():
            found = try_assumptions(exported, program, self.original, sizes)
        notes = [*program.report.notes, *found.notes]
        program.report = dataclasses.replace(program.report, notes=tuple(notes), assumed=tuple(found.conditions))
        return program, found.is_off_at_example

    def exported(self, way: _Way) -> tuple[ExportedProgram, Sizes, list[str]]:
        """Have torch.export watch the program, at sizes that are found in one way.

        Where it cannot keep sizes open, those stay so that are the first of their tensors, or none.
        """
        refusal: ExportError | None = None
        slow: list[str] = []
        while True:
            self._patience = patience_for(self._module.graph) if self._arguments.may_fix_sizes else None
            try:
                exported, sizes, notes = way(self._arguments, self.run, self.original.takes)
                said = said_of_fixed(self._arguments.inputs, sizes, Facts(self._fixed, {}), self.original.takes)
                return exported, sizes, [*said, *slow, *notes]
            except GraphwrightError as error:
                raise refusal or error from error
            except Exception as error:
                refusal = refusal or _said_by_torch("torch.export", error, self._node)
                more = self._arguments.fix_sizes()
                if isinstance(error, TooComplicated):
                    slow = [f"{error}: dynamic_shapes keeps those open that it names, however long that takes"]
                if not more:
                    raise refusal from error
                self._fixed |= more

    def translated(
        self,
        exported: ExportedProgram,
        notes: list[str],
        output_names: Sequence[str] | None = None,
        opset_version: int = _OPSET,
        table: Mapping[Any, Any] | None = None,
        external_data: bool | None = None,
    ) -> OnnxProgram:
        """Translate what torch.export made of the program."""
        notes, bodies = list(notes), dict[Any, ir.Function]()
        written = dict.fromkeys([*self._written, *exported.graph_signature.buffers_to_mutate.values()])
        kinds = {name: "buffer" for name, _ in self._module.named_buffers(remove_duplicate=False)}
        notes += [
            f"what is written to {kinds.get(name, 'parameter')} {name!r} is not kept from call to call"
            for name in written
        ]
        try:
            with calmly(), parsed_once():
                made = torch.onnx.export(
                    exported,
                    dynamo=True,
                    opset_version=opset_version,
                    custom_translation_table={**translations(bodies), **(table or {})},
                    optimize=False,
                    verbose=False,
                )
        except Exception as error:
            raise _said_by_torch("torch.onnx.export", error, None) from error
        assert made is not None
        model = made.model
        _tie(model, self._module)
        if self._functions:
            keep_functions(model, bodies)
        try:
            with calmly():
                model = optimized(model, _named_tensors(self._module), inline=not self._functions)
        except PassError:
            notes.append("not optimized: onnxscript's optimizer has failed on it")
        sizes = _rename(model, self._arguments, output_names)
        counts = Counter(node.op_type for node in model.graph.all_nodes())
        report = OnnxReport(tuple(self._parts.values()), dict(counts), sizes, tuple(notes))
        return OnnxProgram(model, report, self._arguments, self._outputs, external_data)

    # ---- the program as torch.export runs it

    def _watched(self) -> nn.Module:
        program, plans = copy.copy(self._module), dict[Any, Any]()

        def forward(*tensors: torch.Tensor) -> Any:
            running = Running(program, self._note, plans, self._drop_guards, self._functions)
            try:
                return self._run(running, program, tensors)
            finally:
                self._node = running.node

        program.__dict__["forward"] = forward
        return program

    def _run(self, running: Running, program: GraphModule, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        known = {**dict(program.named_parameters()), **dict(program.named_buffers())}
        count = len(tensors)
        versions = [tensor._version for tensor in known.values()]

        def whole(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            before = [tensor._version for tensor in given]
            args, kwargs = self._arguments.call(given[:count])
            state = State((args, kwargs))
            names = list(known)[: len(given) - count]
            result = running.run_with(names, given[count:], args, kwargs, state.objects)
            changed = [tensor._version != version for tensor, version in zip(given, before, strict=True)]
            self._written += [name for name, is_new in zip(known, changed[count:], strict=False) if is_new]
            for each, is_new in zip(self._arguments.inputs, changed, strict=False):
                if is_new:
                    raise ExportError(
                        f"the program writes to its input {each.name!r}, and an ONNX model cannot",
                        at=type(self._module).__name__,
                        fix="write to a copy: x = x.clone()",
                    )
            return self._taken_apart((result, state.written()), given[:count], state.objects)

        self._written = []
        if not is_differentiated(program):
            outputs = whole(*tensors)
            pairs = zip(known.items(), versions, strict=True)
            self._written = [name for (name, tensor), version in pairs if tensor._version != version]
            return outputs
        return without_transforms(whole, (*tensors, *known.values()))  # type: ignore[no-any-return]

    def _taken_apart(
        self, result: Any, inputs: Sequence[torch.Tensor], objects: Sequence[Any]
    ) -> tuple[torch.Tensor, ...]:
        opened = Opening(objects, _is_of_run).opened(result)
        values, spec = pytree.tree_flatten(opened, is_leaf=lambda each: isinstance(each, Collected))
        outputs: list[torch.Tensor] = []
        leaves: list[Leaf] = []
        for leaf in values:
            check_known(leaf, _is_of_run)
            is_constant = not _is_of_run(leaf) or isinstance(leaf, Text)
            leaves.append(
                Leaf("constant", leaf) if is_constant else Leaf("items" if isinstance(leaf, Collected) else "output")
            )
            leaf = leaf.tensor if isinstance(leaf, Maybe | Collected) else leaf
            if isinstance(leaf, Text):
                raise ExportError(
                    "the program gives a text of values, and ONNX has no such thing", fix="give the values"
                )
            if not is_constant:
                tensor = as_number_tensor(leaf) if is_symbolic(leaf) else leaf
                outputs.append(tensor.clone() if any(tensor is one for one in (*inputs, *outputs)) else tensor)
        self._outputs.spec, self._outputs.leaves = spec, tuple(leaves)
        return tuple(outputs)

    def _note(self, node: Node, became: str, detail: str) -> None:
        self._parts[id(node), became] = Part(node.name, became, detail, str(node.origin or ""))


def _is_of_run(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor | Maybe | Collected | Text) or is_symbolic(leaf)


def _named_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by each of their names."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _tie(model: ir.Model, module: nn.Module) -> None:
    """Have a weight that the module has under several names once, under the first of them."""
    first: dict[int, str] = {}
    weights = model.graph.initializers
    for name, weight in _named_tensors(module).items():
        known = first.setdefault(id(weight), name)
        if known == name or name not in weights:
            continue
        other = weights.pop(name)
        if known in weights:
            ir.convenience.replace_all_uses_with(other, weights[known])
        else:
            other.name = known
            weights[known] = other


def _cause(error: BaseException) -> ExportError | None:
    """The error of ours that torch's is about."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ExportError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _said_by_torch(who: str, error: Exception, node: Node | None) -> ExportError:
    text, fix = str(error), 'capture it with target="export", keep that outside of the exported program'
    if isinstance(error, GuardOnDataDependentSymNode):
        fix = f"{fix}, or leave out sizes of dynamic_shapes"
    reasons = [line for line in text.splitlines() if line.startswith("<class")]
    reason = reasons[0].partition(">: ")[2] if reasons else f"{type(error).__name__}: {text.strip().splitlines()[0]}"
    return ExportError(
        f"{who} cannot take the program: {reason}",
        at=None if node is None else node.origin or node.name,
        fix=f"{fix}, or give a translation: custom_translation_table",
    )


def _rename(
    model: ir.Model, arguments: Arguments, output_names: Sequence[str] | None
) -> dict[str, tuple[int | str, ...]]:
    """Name inputs, outputs and sizes as people know them; give each input's sizes."""
    names: dict[str, str] = {}
    for value, each in zip(model.graph.inputs, arguments.inputs, strict=True):
        value.name = each.name
        for dim, name in each.dynamic.items():
            size = value.shape[dim] if value.shape is not None else 0
            if isinstance(size, ir.SymbolicDim) and str(size.value).isidentifier():
                names.setdefault(str(size.value), name)
    outputs = list(model.graph.outputs)
    if output_names is not None and len(output_names) != len(outputs):
        raise ExportError(
            f"{len(output_names)} output_names are given, and the model has {len(outputs)} outputs",
            fix="name each of them",
        )
    for i, value in enumerate(outputs):
        value.name = output_names[i] if output_names is not None else f"output_{i}" if len(outputs) > 1 else "output"
    _rename_sizes(model, names)
    return {
        str(value.name): tuple([size if isinstance(size, int) else str(size.value) for size in value.shape or ()])
        for value in model.graph.inputs
    }


def _renamed(size: str, names: Mapping[str, str]) -> int | str:
    """The size of a dimension: a number, or an expression of sizes by their new names."""
    if size.isdigit():
        return int(size)
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda found: names.get(found[0], found[0]), size)


def _rename_sizes(model: ir.Model, names: Mapping[str, str]) -> None:
    def renamed(value: ir.Value | None) -> None:
        if value is not None and value.shape is not None:
            value.shape = ir.Shape(
                [
                    _renamed(str(size.value), names)
                    if isinstance(size, ir.SymbolicDim) and size.value is not None
                    else size
                    for size in value.shape
                ]
            )

    for value in model.graph.inputs:
        renamed(value)
    for node in model.graph.all_nodes():
        for value in node.outputs:
            renamed(value)
