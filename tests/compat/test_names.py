"""Every name that torch.fx's modules define is found under its path here, or is declined for a reason."""

from __future__ import annotations

import importlib
import operator
import types
from typing import Any

import pytest
import torch
import torch.fx

PATCHING = "nothing is patched: a capture runs on shells, and names stand in for a module's functions"
PICKLING = "a pickle holds the graph, and nothing is traced again from its code"
COMPILER = "belongs to the compiler stack"
TYPING = "a typing alias, a logger or a constant of another module"
PER_THREAD = "kept per thread and asked for by a function of the same module"
MECHANISM = "a step of torch.fx's own mechanism, with no meaning here"
CODEGEN = "names, types and values are written by the codegen room, which needs no table of exceptions"
FAKES = "shapes come from fake tensors, not from a table of functions"

# Names that tools do not find here, by path and reason.
DECLINED: dict[str, dict[str, str]] = {
    "graph": {
        TYPING: "TYPE_CHECKING annotations log py_sym_types TransformCodeFunc",
        CODEGEN: "_CustomBuiltin _custom_builtins _illegal_names _illegal_char_regex _name_regex _origin_type_map "
        "_register_custom_builtin _is_from_torch _snake_case_sub _counter_regexp _identity "
        "_make_color_fn _color_codes _color_fns _override_sym_repr",
        MECHANISM: "_InsertPoint _FindNodesLookupTable",
        COMPILER: "_ExportCodeGen",
    },
    "node": {
        TYPING: "TYPE_CHECKING dtype_abbrs log _P _R",
        COMPILER: "_side_effectful_need_to_be_preserved_pre_dispatch",
    },
    "proxy": {
        TYPING: "log annotation_log",
        MECHANISM: "_is_arbitrary_callable _find_arbitrary_callable _get_seq_nr method _scope _define_reflectable "
        "orig_method_name _no_nodes_error _create_arg_dict _create_arg_bypass",
        "stack traces hold the user's frames alone": "_STACK_TRACE_ANCHORS _register_stack_trace_anchor",
    },
    "_symbolic_trace": {
        TYPING: "log HAS_VARSTUFF _F _P _T _ConstantAttributeType _constant_attribute_types",
        PATCHING: "_patch_function _transfer_attrs _wrapped_methods_to_patch _create_wrapped_method _PatchedFn "
        "_PatchedFnSetItem _PatchedFnDel _PatchedFnSetAttr _Patcher CURRENT_PATCHER _new_patcher "
        "_maybe_revert_all_patches _patch_wrapped_functions _autowrap_check",
        MECHANISM: "_find_proxy _proxyable_classes is_fx_tracing_warning",
    },
    "graph_module": {
        TYPING: "TYPE_CHECKING annotations sys_importer",
        PICKLING: "_EvalCacheLoader _loader _method_from_src _exec_with_source "
        "_format_import_statement _format_import_block _deserialize_graph_module reduce_graph_module "
        "reduce_package_graph_module",
        CODEGEN: "_custom_builtins FX_GRAPH_MODULE_FILE_PREFIX",
        MECHANISM: "_WrappedCall _print_readable _share_torchbind_and_process_group "
        "_share_torchbind_and_process_group_on_deepcopy",
        COMPILER: "_metadata_hash",
    },
    "interpreter": {TYPING: "Target log", COMPILER: "_format_fx_node"},
    "immutable_collections": {
        TYPING: "_T _KT _VT",
        MECHANISM: "_help_mutation _no_mutation _immutable_list_flatten _immutable_list_unflatten "
        "_immutable_dict_flatten _immutable_dict_unflatten",
    },
    "operator_schemas": {
        TYPING: "TYPE_CHECKING boolean_dispatched k",
        MECHANISM: "_manual_overrides _nonzero_schemas _FakeGlobalNamespace _type_eval_globals "
        "_torchscript_schema_to_signature_impl _SCHEMA_TO_SIGNATURE_CACHE _normalize_function_or_error "
        "_args_kwargs_to_normalized_args_kwargs",
    },
    "annotate": {},
    "tensor_type": {TYPING: "TYPE_CHECKING annotations", MECHANISM: "_DynType"},
    "traceback": {
        TYPING: "_P _R log",
        PER_THREAD: "current_meta current_replay_node should_preserve_node_meta _should_preserve_node_meta",
        COMPILER: "_regional_inductor_subgraph_name_tls GRADIENT_ACC_SPECIAL_STACK _FX_METADATA_REGISTRY "
        "_register_fx_metadata _preserve_node_seq_nr MEMORY_BUDGET_ANNOTATION_KEY _get_memory_budget_annotation "
        "_set_autograd_backward _mark_autograd_backward _reset_autograd_backward _is_preserving_node_seq_nr "
        "_set_regional_inductor_subgraph_name _get_regional_inductor_subgraph_name _get_custom_metadata "
        "_get_ordered_seq_nr_groups",
    },
    "_pytree": {
        TYPING: "FlattenFnSpec FlattenFnExactMatchSpec FlattenFuncExactMatchSpec _T _K _V",
        "structures are compared by torch.utils._pytree": "SUPPORTED_NODES_EXACT_MATCH _deregister_pytree_flatten_spec "
        "_dict_flatten_spec_exact_match _list_flatten_spec_exact_match _tuple_flatten_spec_exact_match "
        "_namedtuple_flatten_spec_exact_match",
        MECHANISM: "_dict_flatten_spec _list_flatten_spec _tuple_flatten_spec _namedtuple_flatten_spec",
    },
    "_compatibility": {TYPING: "_T"},
    "_utils": {},
    "_lazy_graph_module": {
        TYPING: "TYPE_CHECKING sys_importer",
        PER_THREAD: "_use_lazy_graph_module_flag _force_skip_lazy_graph_module_flag",
    },
    "passes.shape_prop": {},
    "passes.fake_tensor_prop": {TYPING: "py_sym_types"},
    "passes.operator_support": {},
    "passes.tools_common": {},
    "passes.pass_manager": {TYPING: "_P _R _T logger"},
    "passes.infra.pass_base": {},
    "passes.infra.pass_manager": {TYPING: "logger"},
    "passes.graph_manipulation": {},
    "passes.annotate_getitem_nodes": {},
    "passes.split_module": {
        TYPING: "log _LOGGER",
        MECHANISM: "_get_attr_from_qualname _decompose_size_nodes _make_lite_graph_module _detect_dependencies "
        "_clone_nodes_into_partitions _build_stitching_graph",
    },
    "passes.split_utils": {TYPING: "TYPE_CHECKING"},
    "experimental.const_fold": {},
    "experimental.debug": {},
    "experimental.merge_matmul": {},
    "experimental.meta_tracer": {
        FAKES: "embedding_override nn_layernorm_override torch_relu_override torch_nn_relu_override "
        "functional_relu_override torch_where_override torch_abs_override manual_meta_overrides "
        "gen_constructor_wrapper",
        TYPING: "_C",
    },
    "experimental.normalize": {TYPING: "Target"},
    "experimental.optimization": {TYPING: "Target", MECHANISM: "mkldnn_supported mkldnn_supported_unknown mkldnn_map"},
    "experimental.rewriter": {MECHANISM: "AST_Rewriter _rewrite"},
    "experimental.schema_type_annotation": {TYPING: "Target boolean_dispatched"},
}


def defined_in(path: str) -> set[str]:
    """The names that a module of torch.fx defines: its functions, classes and values, not what it imports."""
    module = importlib.import_module(f"torch.fx.{path}")

    def is_own(name: str, value: Any) -> bool:
        if name.startswith("__") or isinstance(value, types.ModuleType):
            return False
        home = getattr(value, "__module__", None)
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            return home == module.__name__
        return not str(home).startswith(("typing", "__future__"))

    return {name for name, value in vars(module).items() if is_own(name, value)}


@pytest.mark.parametrize("path", DECLINED)
def test_a_name_is_found_or_declined_for_a_reason(path: str) -> None:
    ours = importlib.import_module(f"graphwright.{path}")
    declined = {name for names in DECLINED[path].values() for name in names.split()}
    assert sorted(name for name in defined_in(path) - declined if not hasattr(ours, name)) == []
    theirs = importlib.import_module(f"torch.fx.{path}")
    assert sorted(name for name in declined if not hasattr(theirs, name)) == []


def test_operators_have_torch_fx_s_templates() -> None:
    for path in ("graph", "proxy"):
        ours, theirs = (importlib.import_module(f"{package}.{path}") for package in ("graphwright", "torch.fx"))
        for name in ("magic_methods", "reflectable_magic_methods", "inplace_methods"):
            assert getattr(ours, name, None) == getattr(theirs, name, None)


def test_types_of_the_dispatcher_are_python_s() -> None:
    ours, theirs = (importlib.import_module(f"{package}.operator_schemas") for package in ("graphwright", "torch.fx"))
    for name in ("add", "sum", "conv2d", "cat", "to", "index", "einsum", "_conj", "where", "full"):
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
            for argument in (*schema.arguments, *schema.returns):
                kind = ours._torchscript_type_to_python_type(argument.type)
                assert str(kind) == str(theirs._torchscript_type_to_python_type(argument.type))
            signatures = [package._torchscript_schema_to_signature(schema) for package in (ours, theirs)]
            assert str(signatures[0]) == str(signatures[1])


def test_texts_for_logs() -> None:
    texts = [
        importlib.import_module(f"{package}._utils")._format_graph_code("before", "model.py", "graph():\n  x")
        for package in ("graphwright", "torch.fx")
    ]
    assert texts[0] == texts[1]


def test_fields_of_meta_that_tools_add_are_inherited() -> None:
    for package in (torch.fx, importlib.import_module("graphwright")):
        proxy, traceback = (importlib.import_module(f"{package.__name__}.{path}") for path in ("proxy", "traceback"))
        assert isinstance(proxy._COPY_META_FIELDS, list)
        proxy._COPY_META_FIELDS.append("colour")
        try:
            gm = package.symbolic_trace(lambda x: x + 1)
            for node in gm.graph.nodes:
                node.meta["colour"] = "red"
            with traceback.preserve_node_meta():
                again = package.Transformer(gm).transform()
            assert [node.meta.get("colour") for node in again.graph.nodes if node.name == "add"] == ["red"]
        finally:
            proxy._COPY_META_FIELDS.remove("colour")


def test_functions_can_be_recorded_without_wrap() -> None:
    for package in (torch.fx, importlib.import_module("graphwright")):
        tracing = importlib.import_module(f"{package.__name__}._symbolic_trace")

        def halves(x: Any) -> Any:
            return x[: x // 2]

        recorded = tracing._create_wrapped_func(halves)
        gm = package.symbolic_trace(lambda x: recorded(x) + 1)  # noqa: B023 - used at once
        assert [node.name for node in gm.graph.nodes] == ["x", "halves", "add", "output"]
        assert gm.graph.find_nodes(op="call_function", target=halves)


def test_small_helpers_of_tools() -> None:
    found = []
    for package in ("torch.fx", "graphwright"):
        graph, node = (importlib.import_module(f"{package}.{name}") for name in ("graph", "node"))
        facts = [graph._is_magic(name) for name in ("__add__", "add", "__x", "_a_", "____")]
        paths = ["a", "a.b.c", "a.0.b", "if.a", ""]
        functions = [torch.relu, torch.nn.functional.relu, len, operator.add, torch.ops.aten.add, torch._C._nn.linear]
        found.append(
            [
                facts,
                [graph._format_target("self", path) for path in paths],
                [*map(node._find_module_of_method, functions)],
            ]
        )
    assert found[0] == found[1]
