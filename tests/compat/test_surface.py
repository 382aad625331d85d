"""Every public method and function of torch.fx exists here, and is called the same way."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
import torch
import torch.fx

# Classes whose methods tools override or call, by the path they are imported from.
CLASSES = {
    "graph": "Graph CodeGen",
    "node": "Node",
    "graph_module": "GraphModule",
    "interpreter": "Interpreter Transformer",
    "_symbolic_trace": "Tracer PHBase",
    "proxy": "TracerBase GraphAppendingTracer Proxy Attribute ParameterProxy Scope ScopeContextManager",
    "immutable_collections": "immutable_list immutable_dict",
    "passes.shape_prop": "ShapeProp TensorMetadata",
    "passes.fake_tensor_prop": "FakeTensorProp",
    "passes.infra.pass_base": "PassBase PassResult",
    "passes.infra.pass_manager": "PassManager",
    "passes.operator_support": "OperatorSupport OperatorSupportBase",
    "experimental.normalize": "NormalizeArgs NormalizeOperators",
    "experimental.schema_type_annotation": "AnnotateTypesWithSchema",
}

FUNCTIONS = {
    "": "symbolic_trace wrap map_arg has_side_effect",
    "node": "map_aggregate map_arg has_side_effect",
    "_symbolic_trace": "symbolic_trace wrap is_fx_tracing",
    "operator_schemas": "normalize_function normalize_module create_type_hint type_matches get_signature_for_torch_op",
    "passes.split_module": "split_module",
    "passes.shape_prop": "_extract_tensor_metadata",
    "passes.graph_manipulation": "get_size_of_all_nodes get_size_of_node get_tensor_meta",
    "passes.infra.pass_manager": "pass_result_wrapper this_before_that_pass_constraint",
    "experimental.const_fold": "split_const_subgraphs get_unique_attr_name_in_module",
    "experimental.merge_matmul": "merge_matmul",
    "experimental.optimization": "fuse remove_dropout optimize_for_inference extract_subgraph",
}

# What is not here, or is called in another way, and why.
EXCEPTIONS = {
    "Graph.create_size_node": "symbolic shapes of the compiler stack",
    "Graph.create_stride_node": "symbolic shapes of the compiler stack",
    "Graph.create_storage_offset_node": "symbolic shapes of the compiler stack",
    "Graph.materialize_symint": "symbolic shapes of the compiler stack",
    "Graph.materialize_symints": "symbolic shapes of the compiler stack",
    "Graph.python_code": "writes what runs: no strides, colours or further meta beside it",
    "CodeGen.generate_output": "without `descs`, which the compiler stack passes",
    "Graph.owning_module": "an attribute of each graph, not of the class",
    "GraphModule.forward": "generated for each module; the class itself has none",
}


def _cases() -> list[Any]:
    cases = []
    for path, names in CLASSES.items():
        module = importlib.import_module(f"torch.fx.{path}")
        for name in names.split():
            for method in ["", "__init__", *(item for item in dir(getattr(module, name)) if not item.startswith("_"))]:
                cases.append(pytest.param(path, name, method, id=f"{path}.{name}.{method}".strip(".")))
    for path, names in FUNCTIONS.items():
        cases += [pytest.param(path, name, "", id=f"{path}.{name}".strip(".")) for name in names.split()]
    return [case for case in cases if f"{case.values[1]}.{case.values[2]}" not in EXCEPTIONS]


def _find(package: str, path: str, name: str, method: str) -> Any:
    found = getattr(importlib.import_module(f"{package}.{path}".rstrip(".")), name)
    return getattr(found, method) if method else found


def _parameters(function: Any) -> list[tuple[str, Any, bool, str]] | None:
    """Name, kind, whether it may be left out, and its default where that is a plain value."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    described = []
    for parameter in signature.parameters.values():
        default = parameter.default
        plain = repr(default) if default is None or isinstance(default, bool | int | float | str) else ""
        described.append((parameter.name, parameter.kind, default is not parameter.empty, plain))
    return described


def _keyword_only_last(row: tuple[str, Any, bool, str]) -> tuple[bool, str]:
    is_keyword_only = row[1] is inspect.Parameter.KEYWORD_ONLY
    return is_keyword_only, row[0] if is_keyword_only else ""


@pytest.mark.parametrize(("path", "name", "method"), _cases())
def test_it_exists_and_takes_the_same_arguments(path: str, name: str, method: str) -> None:
    theirs = _find("torch.fx", path, name, method)
    ours = _find("graphwright", path, name, method)
    if not callable(theirs) or isinstance(theirs, property) or (inspect.isclass(theirs) and not method):
        return
    expected, actual = _parameters(theirs), _parameters(ours)
    if expected and actual and expected[0][0] == "self":  # by whatever name
        expected, actual = expected[1:], actual[1:]
    if expected is None or [row[1] for row in expected if row[0] != "self"] == [
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ]:
        return  # nothing is said about the arguments
    assert actual is not None
    # More parameters may follow, where they can be left out.
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    more = [row for row in actual if row[0] not in {item[0] for item in expected}]
    assert [row for row in more if not (row[2] or row[1] in variadic)] == []
    kept = [row for row in actual if row not in more]
    # The order of what is passed by keyword only does not matter.
    expected, kept = (sorted(rows, key=_keyword_only_last) for rows in (expected, kept))
    assert [row[:2] for row in kept] == [row[:2] for row in expected]
    for (parameter, _, optional, default), (_, _, may, same) in zip(expected, kept, strict=True):
        assert may or not optional, f"{parameter} cannot be left out"
        assert not optional or default == same, f"the default of {parameter}"


def test_the_names_of_the_package() -> None:
    import graphwright

    missing = {name for name in torch.fx.__all__ if not hasattr(graphwright, name)}
    assert missing <= {"replace_pattern"}  # comes with an engine of its own
