"""Which names tools find under the module paths of torch.fx, torch.jit and torch.ao, and where they live here.

A row per path below the package: `{"room": "Name other_name"}`. `Name=old` gives the room's `Name` under the
name `old`. `FILES` has the paths that lead to one file of a room, with everything in it.
"""

from __future__ import annotations

__all__ = ["FILES", "FOLDERS", "PATHS", "PICKLED"]

PATHS: dict[str, dict[str, str]] = {
    "graph": {
        "ir": "Argument Graph Namespace=_Namespace Node NodeList=_node_list Target map_arg snake_case=_snake_case",
        "ir.node": "OPCODES=_legal_ops",
        "ir.text": "short_name=_get_qualified_name type_text=_type_repr",
        "codegen.spelling.formats": "attribute_text=_format_target inplace_methods is_magic=_is_magic magic_methods "
        "reflectable_magic_methods",
        "codegen.details": "dtype_abbrs",
        "codegen.stack_traces": "ParsedStackTrace=_ParsedStackTrace parse_stack_trace=_parse_stack_trace",
        "codegen": "BoxedCodeGen=_BoxedCodeGen CodeGen PyTreeCodeGen=_PyTreeCodeGen PyTreeInfo=_PyTreeInfo PythonCode",
    },
    "node": {
        "ir": "Argument Node Target map_aggregate map_arg",
        "codegen.spelling.formats": "home_of=_find_module_of_method",
        "ir.node": "ArgumentT OPCODES=_legal_ops",
        "ir.text": "argument_text=_format_arg short_name=_get_qualified_name type_text=_type_repr",
        "ops": "BASE_TYPES=base_types DECLARED_IMPURE=_side_effectful_functions has_side_effect",
    },
    "operator_schemas": {
        "ops": "ArgsKwargsPair check_for_mutable_operation create_type_hint get_signature_for_torch_op "
        "normalize_function normalize_module type_matches",
        "ops.schemas": "python_type_of=_torchscript_type_to_python_type "
        "signature_of_schema=_torchscript_schema_to_signature",
    },
    "graph_module": {
        "runtime": "GraphModule assign_attribute=_assign_attr copy_attribute=_copy_attr delete_attribute=_del_attr "
        "has_attribute=_has_attr read_attribute=_get_attr read_attributes=_get_attr_via_attr_list "
        "PRESERVED_ATTRIBUTES=_USER_PRESERVED_ATTRIBUTES_KEY BareModule=_CodeOnlyModule "
        "forward_from_source=_forward_from_src",
        "codegen": "BoxedCodeGen=_BoxedCodeGen PyTreeCodeGen=_PyTreeCodeGen PythonCode",
        "ir": "Graph",
    },
    "jit": {
        "compat.torch_jit": "script trace",
        "errors": "ScriptError=Error",
        "runtime": "load save",
        "script": "annotate export fork ignore is_instance=isinstance is_scripting unused wait",
    },
    "ao.quantization": {
        "compat.torch_ao.configs": "DYNAMIC=default_dynamic_qconfig DYNAMIC_PER_CHANNEL=per_channel_dynamic_qconfig "
        "EMBEDDING=float_qparams_weight_only_qconfig EMBEDDING_4BIT=float_qparams_weight_only_qconfig_4bit "
        "PatternsInOrder=QConfigMapping STATIC=default_qconfig STATIC=default_qat_qconfig "
        "STATIC_PER_CHANNEL=default_per_channel_qconfig WEIGHT_ONLY=default_weight_only_qconfig "
        "default_config=get_default_qconfig default_mapping=get_default_qconfig_mapping "
        "default_training_config=get_default_qat_qconfig default_training_mapping=get_default_qat_qconfig_mapping "
        "make_config=QConfig",
        "compat.torch_ao.observer_choices": "FAKE_QUANTIZE=FakeQuantize FAKE_QUANTIZE=FusedMovingAvgObsFakeQuantize "
        "HISTOGRAM=HistogramObserver MIN_MAX=MinMaxObserver MOVING_AVERAGE=MovingAverageMinMaxObserver "
        "MOVING_AVERAGE_PER_CHANNEL=MovingAveragePerChannelMinMaxObserver PER_CHANNEL=PerChannelMinMaxObserver "
        "PLACEHOLDER=NoopObserver PLACEHOLDER=PlaceholderObserver",
    },
    "ao.quantization.quantize_fx": {
        "compat.torch_ao.steps": "convert_fx fuse_fx prepare_fx prepare_qat_fx",
        "quantization": "convert=convert_to_reference_fx",
    },
    "ao.quantization.qconfig_mapping": {
        "compat.torch_ao.configs": "PatternsInOrder=QConfigMapping default_mapping=get_default_qconfig_mapping "
        "default_training_mapping=get_default_qat_qconfig_mapping",
    },
    "ao.quantization.qconfig": {
        "compat.torch_ao.configs": "DYNAMIC=default_dynamic_qconfig DYNAMIC_PER_CHANNEL=per_channel_dynamic_qconfig "
        "EMBEDDING=float_qparams_weight_only_qconfig STATIC=default_qconfig STATIC=default_qat_qconfig "
        "STATIC_PER_CHANNEL=default_per_channel_qconfig WEIGHT_ONLY=default_weight_only_qconfig "
        "default_config=get_default_qconfig default_training_config=get_default_qat_qconfig make_config=QConfig",
    },
    "ao.quantization.observer": {
        "compat.torch_ao.observer_choices": "HISTOGRAM=HistogramObserver MIN_MAX=MinMaxObserver "
        "MOVING_AVERAGE=MovingAverageMinMaxObserver PER_CHANNEL=PerChannelMinMaxObserver "
        "MOVING_AVERAGE_PER_CHANNEL=MovingAveragePerChannelMinMaxObserver PLACEHOLDER=NoopObserver "
        "PLACEHOLDER=PlaceholderObserver",
    },
    "ao.quantization.fake_quantize": {
        "compat.torch_ao.observer_choices": "FAKE_QUANTIZE=FakeQuantize FAKE_QUANTIZE=FusedMovingAvgObsFakeQuantize",
    },
    "ao.quantization.backend_config": {
        "quantization": "Backend=BackendConfig",
        "compat.torch_ao.steps": "native_backend=get_native_backend_config "
        "tensorrt_backend=get_tensorrt_backend_config",
    },
    "_lazy_graph_module": {
        "runtime": "LazyGraphModule=_LazyGraphModule graph_module_class=_get_graph_module_cls "
        "make_graph_module=_make_graph_module use_lazy_graph_modules=_use_lazy_graph_module "
        "skip_lazy_graph_modules=_force_skip_lazy_graph_module"
    },
    "_utils": {
        "runtime.reporting.printing": "graph_text=_format_graph_code",
        "runtime": "lazy_graph_text=lazy_format_graph_code node_context=get_node_context "
        "first_module_stack=first_call_function_nn_module_stack",
    },
    "immutable_collections": {"ir": "immutable_dict immutable_list"},
    "interpreter": {"runtime": "Interpreter", "capture": "Transformer"},
    "proxy": {
        "capture": "Attribute GraphAppendingTracer MetaProxy ParameterProxy Proxy TracerBase",
        "source": "Scope ScopeContextManager",
        "capture.proxies.recording": "assert_fn",
        "codegen.spelling.formats": "magic_methods reflectable_magic_methods",
        "errors": "TraceError",
        "ir": "Argument Graph Node Target",
        "ir.node_meta": "INHERITED_META=_COPY_META_FIELDS",
        "ops": "BASE_TYPES=base_types",
    },
    "_pytree": {
        "codegen.flattening": "FLATTEN=SUPPORTED_NODES FlattenFuncSpec register_pytree_flatten_spec tree_flatten_spec"
    },
    "_symbolic_trace": {
        "source": "Scope ScopeContextManager",
        "capture": "PH PHBase PHWithMeta ParameterProxy Proxy ProxyableClassMeta Tracer "
        "TracerBase is_fx_symbolic_tracing is_fx_tracing symbolic_trace wrap",
        "capture.symbolic.root_inputs": "assert_is_none=_assert_is_none",
        "capture.symbolic.tracer": "tracing_flag=_is_fx_tracing_flag",
        "capture.symbolic.wrap": "WRAPPED=_wrapped_fns_to_patch recording=_create_wrapped_func",
        "ir": "Graph",
        "ops": "BASE_TYPES=base_types",
        "runtime": "GraphModule",
    },
    "annotate": {"compat.tracing.annotate": "annotate"},
    "experimental.debug": {"compat.tracing.debugging": "set_trace"},
    "experimental.meta_tracer": {
        "compat.tracing.meta_tracer": "MetaAttribute MetaDeviceAttribute MetaProxy MetaTracer proxys_to_metas "
        "symbolic_trace",
    },
    "experimental.rewriter": {"compat.tracing.rewriter": "RewritingTracer"},
    "tensor_type": {"compat.tracing.tensor_type": "Dyn TensorType is_consistent is_more_precise"},
    "traceback": {
        "ir.node_meta": "NodeSource NodeSourceAction annotate annotate_fn format_stack get_current_meta "
        "get_current_replay_node get_graph_provenance_json has_preserved_node_meta preserve_node_meta "
        "reset_grad_fn_seq_nr set_current_meta set_current_replay_node set_grad_fn_seq_nr set_stack_trace",
    },
    "passes.infra.pass_base": {"passes": "PassBase PassResult"},
    "passes.infra.pass_manager": {
        "compat.tools.pass_schedule": "PassManager pass_result_wrapper",
        "compat.tools.pass_order": "this_before_that_pass_constraint topological_sort_passes=_topological_sort_passes"
        " validate_pass_schedule_constraint=_validate_pass_schedule_constraint",
    },
    "experimental.const_fold": {
        "compat.tools.const_fold": "FoldedGraphModule get_unique_attr_name_in_module inline_module=_inline_module "
        "split_const_subgraphs"
    },
    "subgraph_rewriter": {
        "rewrite": "ReplacedPatterns replace_pattern replace_pattern_with_filters",
        "rewrite.subgraph_rewriter": "Match",
    },
    "passes.utils.matcher_utils": {"rewrite": "InternalMatch SubgraphMatcher"},
    "passes.utils.matcher_with_name_node_map_utils": {
        "rewrite": "InternalMatch SubgraphMatcher SubgraphMatcherWithNameNodeMap"
    },
    "passes.utils": {"compat.partitioning.subgraph_modules": "HolderModule compare_graphs lift_subgraph_as_module"},
    "passes.utils.common": {
        "compat.partitioning.subgraph_modules": "HolderModule compare_graphs lift_subgraph_as_module"
    },
    "passes.utils.fuser_utils": {
        "compat.partitioning.fuser_utils": "erase_nodes fuse_as_graphmodule fuse_by_partitions insert_subgm topo_sort"
        " validate_partition"
    },
    "passes.utils.source_matcher_utils": {
        "compat.partitioning.source_partitions": "SourcePartition check_subgraphs_connected get_source_partitions"
    },
    "passes.infra.partitioner": {"compat.partitioning.partitioner": "CapabilityBasedPartitioner Partition"},
    "passes.dialect.common.cse_pass": {
        "compat.tools.cse_pass": "CSEPass get_CSE_banned_ops inplace_ops rand_ops",
    },
    "passes.graph_drawer": {"viz": "FxGraphDrawer HAS_PYDOT"},
    "passes.graph_transform_observer": {"compat.tools.graph_transform_observer": "GraphTransformObserver"},
    "_compatibility": {
        "compat.stability": "compatibility STABLE=_BACK_COMPAT_OBJECTS MARKED=_MARKED_WITH_COMPATIBILITY",
    },
    "experimental.merge_matmul": {
        "compat.tools.merge_matmul": "are_nodes_independent may_depend_on merge_matmul split_result_tensors"
    },
    "experimental.normalize": {"compat.tools.normalize": "AnnotateTypesWithSchema NormalizeArgs NormalizeOperators"},
    "experimental.optimization": {
        "compat.tools.optimize_for_inference": "MklSubgraph UnionFind extract_subgraph fuse gen_mkl_autotuner "
        "matches_module_pattern modules_to_mkldnn optimize_for_inference parent_name=_parent_name remove_dropout "
        "replace_node_module reset_modules use_mkl_length",
    },
    "experimental.schema_type_annotation": {"compat.tools.normalize": "AnnotateTypesWithSchema"},
}

FILES: dict[str, str] = {
    "passes.annotate_getitem_nodes": "compat.tools.annotate_getitem_nodes",
    "passes.fake_tensor_prop": "compat.tools.fake_tensor_prop",
    "passes.graph_manipulation": "compat.tools.graph_manipulation",
    "passes.net_min_base": "compat.partitioning.net_min_base",
    "passes.operator_support": "compat.partitioning.operator_support",
    "passes.param_fetch": "compat.partitioning.param_fetch",
    "passes.pass_manager": "compat.tools.pass_manager",
    "passes.shape_prop": "passes.support.shape_prop",
    "passes.split_module": "compat.partitioning.split_module",
    "passes.split_utils": "compat.partitioning.split_utils",
    "passes.splitter_base": "compat.partitioning.splitter_base",
    "passes.tools_common": "compat.partitioning.tools_common",
}
"""Files by torch.fx's paths: what is imported is the file itself, private names included."""

PICKLED: dict[str, str] = {
    "analysis.compare": "analysis.comparing.compare",
    "analysis.costs": "analysis.costing.costs",
    "analysis.memory": "analysis.costing.memory",
    "capture.annotate": "compat.tracing.annotate",
    "capture.doctor": "capture.typed.doctor",
    "capture.entries": "capture.typed.entries",
    "capture.leaf_modules": "capture.state.leaf_modules",
    "capture.meta_tracer": "compat.tracing.meta_tracer",
    "capture.noting": "capture.proxies.noting",
    "capture.obstacles": "capture.state.obstacles",
    "capture.origins": "source.frames",
    "capture.proxy": "capture.proxies.proxy",
    "capture.proxyable": "capture.proxies.proxyable",
    "capture.recording": "capture.proxies.recording",
    "capture.rewriter": "compat.tracing.rewriter",
    "capture.root_inputs": "capture.symbolic.root_inputs",
    "capture.sources": "source.source_files",
    "capture.tidy": "capture.state.tidy",
    "capture.trace": "capture.typed.trace",
    "capture.tracer": "capture.symbolic.tracer",
    "capture.tracer_warnings": "capture.state.tracer_warnings",
    "capture.transformer": "capture.symbolic.transformer",
    "capture.unbound": "capture.proxies.unbound",
    "capture.wrap": "capture.symbolic.wrap",
    "passes.const_fold": "compat.tools.const_fold",
    "passes.fuse_conv_relu": "passes.fusion.fuse_conv_relu",
    "passes.stages": "passes.parts.stage_modules",
    "passes.subgraph_modules": "compat.partitioning.subgraph_modules",
    "runtime.capture_report": "runtime.reporting.capture_report",
    "runtime.lazy": "runtime.modules.lazy",
    "runtime.loose_parts": "runtime.modules.loose_parts",
}
"""Files by the paths that pickles written before know the classes and functions in them by."""

FOLDERS: dict[str, dict[str, str]] = {
    "capture.conversion": {"converted_source": "conversion"},
    "capture.symbolic": {"symbolic_trace": "symbolic"},
}
"""The same for paths that are sub-rooms now: by the names that the folder has besides its files, which one has each."""
