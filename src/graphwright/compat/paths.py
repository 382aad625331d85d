"""Which names tools find under torch.fx's module paths, and where they live here.

A row per path below the package: `{"room": "Name other_name"}`. `Name=old` gives the room's `Name` under the
name `old`. A path that is a file of a room of the same name (`passes.shape_prop`) needs no row.
"""

from __future__ import annotations

__all__ = ["PATHS"]

PATHS: dict[str, dict[str, str]] = {
    "graph": {"ir": "Graph", "codegen": "CodeGen PythonCode"},
    "node": {"ir": "Argument Node Target map_aggregate map_arg"},
    "operator_schemas": {
        "ops": "ArgsKwargsPair check_for_mutable_operation create_type_hint get_signature_for_torch_op "
        "normalize_function normalize_module type_matches"
    },
    "graph_module": {"runtime": "GraphModule"},
    "immutable_collections": {"ir": "immutable_dict immutable_list"},
    "interpreter": {"runtime": "Interpreter", "capture": "Transformer"},
    "proxy": {
        "capture": "Attribute GraphAppendingTracer MetaProxy ParameterProxy Proxy Scope ScopeContextManager TracerBase",
        "capture.recording": "assert_true=assert_fn",
        "errors": "TraceError",
        "ir": "Argument Graph Node Target",
    },
    "_symbolic_trace": {
        "capture": "PH PHBase PHWithMeta ParameterProxy Proxy ProxyableClassMeta Scope ScopeContextManager Tracer "
        "TracerBase is_fx_symbolic_tracing is_fx_tracing symbolic_trace wrap",
        "capture.root_inputs": "assert_is_none=_assert_is_none",
        "capture.tracer": "tracing_flag=_is_fx_tracing_flag",
        "ir": "Graph",
        "runtime": "GraphModule",
    },
    "annotate": {"capture.annotate": "annotate"},
    "experimental.meta_tracer": {
        "capture.meta_tracer": "MetaAttribute MetaDeviceAttribute MetaProxy MetaTracer proxys_to_metas symbolic_trace",
    },
    "experimental.rewriter": {"capture.rewriter": "RewritingTracer"},
    "tensor_type": {"ir.tensor_type": "Dyn TensorType is_consistent is_more_precise"},
    "traceback": {
        "ir.node_meta": "NodeSource NodeSourceAction annotate annotate_fn format_stack get_current_meta "
        "get_current_replay_node get_graph_provenance_json has_preserved_node_meta preserve_node_meta "
        "reset_grad_fn_seq_nr set_current_meta set_current_replay_node set_grad_fn_seq_nr set_stack_trace",
    },
    "passes.infra.pass_base": {"passes": "PassBase PassResult"},
    "passes.infra.pass_manager": {
        "passes": "PassManager pass_result_wrapper this_before_that_pass_constraint"
        " topological_sort_passes=_topological_sort_passes"
        " validate_pass_schedule_constraint=_validate_pass_schedule_constraint"
    },
}
