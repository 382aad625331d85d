"""Tests that compare with torch.fx as one release of torch has it, and so are left out with others.

The library is the same with every release; torch.fx is not. What is left out reads torch.fx's texts, names, signatures
and errors, or is a test of torch.fx itself, which shows that ours expects the right thing. One more expects of a
model of Transformers what that does with some releases only: elsewhere a branch stands where a pass looks for a mask;
and one has torch given a list that a branch makes longer, of which older releases ask how long it is: that is refused.
"""

from __future__ import annotations

import re

import torch

__all__ = ["HAS_ONNX", "RELEASE", "why_left_out"]

RELEASE = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
HAS_ONNX = RELEASE >= (2, 13)  # with others, `graphwright.onnx` says at its import that it needs another release

# Beginnings of the names of tests that hold since torch 2.13.
SINCE_2_13 = """
    tests/compat/tracing/test_tracers.py::test_recorded_nodes_inherit_the_current_meta
    tests/compat/tracing/test_tracers.py::test_types_of_tensors
    tests/capture/test_hooks.py::test_hooks_get_the_arguments_of_torch_fx[create_arg]
    tests/capture/test_hooks.py::test_stack_traces_name_the_users_lines
    tests/capture/test_scripted.py::test_structures_are_constants
    tests/capture/test_scripted.py::test_what_has_a_signature_is_captured
    tests/capture/test_scripted.py::test_what_has_no_signature_is_refused
    tests/capture/test_waiting_branches.py::test_the_rest_of_the_function_is_part_of_both_sides[inside]
    tests/codegen/test_boxed.py::test_an_ordinary_module_is_not_boxed[torch.fx]
    tests/codegen/test_boxed.py::test_captured_modules_inside_are_compiled[torch.fx]
    tests/codegen/test_boxed.py::test_code_of_one_list_is_torch_fx_s
    tests/codegen/test_custom.py
    tests/codegen/test_details.py::test_colors_of_literals
    tests/codegen/test_details.py::test_known_values_are_annotations
    tests/codegen/test_details.py::test_lines_of_recorded_calls
    tests/codegen/test_details.py::test_meta_that_is_asked_for
    tests/codegen/test_details.py::test_nodes_with_what_is_known
    tests/codegen/test_details.py::test_print_readable
    tests/codegen/test_details.py::test_reading_stacks
    tests/codegen/test_details.py::test_the_options_of_python_code
    tests/compat/test_names.py::test_a_name_is_found_or_declined_for_a_reason
    tests/compat/test_redirected.py::test_the_names_of_a_path_are_torch_fx_s
    tests/compat/test_suite_graphs.py::test_moving_nodes[torch.fx]
    tests/compat/test_suite_modules.py::test_lines_know_their_nodes[torch.fx]
    tests/compat/test_suite_tracing.py::test_stack_traces[torch.fx]
    tests/compat/test_surface.py::test_it_exists_and_takes_the_same_arguments
    tests/ir/test_copies.py::test_deepcopy[torch.fx]
    tests/ir/test_copies.py::test_graph_copy[torch.fx]
    tests/ir/test_edits.py::test_moving[torch.fx]
    tests/ir/test_edits.py::test_random_edits_do_what_torch_fx_does
    tests/ir/test_edits.py::test_replace_all_uses_with[torch.fx]
    tests/ir/test_names.py::test_a_namespace_gives_the_names_that_torch_fx_gives
    tests/ir/test_names.py::test_graphs_give_the_names_that_torch_fx_gives
    tests/ir/test_names.py::test_none_is_not_a_name_though_torch_fx_gives_it
    tests/ir/test_text.py::test_nodes_print_alone
    tests/ir/test_text.py::test_qualified_names_are_torch_fx_s
    tests/ir/test_text.py::test_the_text_is_torch_fx_s
    tests/ir/test_torch_fx_names.py::test_a_target_of_the_wrong_kind[torch.fx]
    tests/ir/test_torch_fx_names.py::test_containers_refuse_changes[torch.fx]
    tests/ir/test_torch_fx_names.py::test_questions_that_are_refused
    tests/ir/test_torch_fx_names.py::test_updating_everything
    tests/ops/test_operator_schemas.py::test_a_target_that_is_no_function_is_refused
    tests/ops/test_operator_schemas.py::test_nodes_tell_their_normalized_arguments
    tests/ops/test_operator_schemas.py::test_type_hints
    tests/ops/test_operator_schemas.py::test_types_match_alike
    tests/compat/tools/test_const_fold.py::test_what_is_folded
    tests/compat/tools/test_const_fold_text.py
    tests/compat/tools/test_cse_pass.py::test_random_modules_are_merged_as_in_torch_fx
    tests/compat/tools/test_experimental.py::test_items_get_types_alike
    tests/compat/partitioning/test_fuser_utils.py::test_a_part_is_that_of_torch_fx
    tests/compat/partitioning/test_fuser_utils.py::test_orders_and_whether_a_part_is_possible
    tests/compat/partitioning/test_net_min.py::test_modules_and_inputs_are_checked
    tests/compat/partitioning/test_net_min.py::test_searches_are_those_of_torch_fx
    tests/passes/test_on_models.py::test_sources_are_found_as_in_torch_fx
    tests/compat/partitioning/test_operator_support.py::test_shuffled_graphs_are_sorted_as_in_torch_fx
    tests/compat/partitioning/test_operator_support.py::test_sorting
    tests/compat/partitioning/test_partitioner.py::test_random_modules_have_torch_fx_s_parts
    tests/compat/partitioning/test_partitioner.py::test_small_parts_and_ends_are_left_out_as_in_torch_fx
    tests/compat/partitioning/test_partitioner.py::test_partitions_are_those_of_torch_fx
    tests/compat/partitioning/test_partitioner.py::test_parts_that_need_each_other_are_not_proposed
    tests/compat/tools/test_pass_manager.py::test_legacy_wrappers
    tests/passes/test_shape_prop.py::test_fake_values_are_those_of_torch_fx
    tests/passes/test_shape_prop.py::test_meta_is_that_of_torch_fx
    tests/passes/test_shape_prop.py::test_modules_with_parameters
    tests/passes/test_shape_prop.py::test_tensor_metadata
    tests/compat/partitioning/test_source_partitions.py::test_exported_programs_have_torch_fx_s_partitions
    tests/compat/partitioning/test_source_partitions.py::test_what_the_meta_says_is_found_as_in_torch_fx
    tests/compat/partitioning/test_split_module.py::test_contiguous_parts_are_those_of_torch_fx
    tests/compat/partitioning/test_split_module.py::test_sizes_cross_parts_as_in_torch_fx
    tests/compat/partitioning/test_split_module.py::test_split_module_simple
    tests/compat/partitioning/test_split_module.py::test_submodules_that_are_read_move_into_the_part
    tests/compat/partitioning/test_split_utils.py::test_missing_and_unknown_tags
    tests/compat/partitioning/test_splitter.py::test_decisions_are_logged_alike
    tests/compat/partitioning/test_splitter.py::test_non_tensors_move_to_their_readers
    tests/compat/partitioning/test_splitter.py::test_random_modules_are_split_alike
    tests/passes/test_use_sdpa.py::test_models_of_transformers[_bert]
    tests/rewrite/test_on_models.py::test_partitions_are_torch_fx_s
    tests/runtime/test_like_torch_fx.py::test_does_what_torch_fx_does
    tests/compat/tools/test_graph_transform_observer.py
    tests/test_loading.py::test_the_package_alone_loads_no_room_that_runs_programs
""".split()

# Those that need more of torch.export, torch.distributed and `map` than releases before 2.13 have.
LATER_SYSTEMS = """
    src/graphwright/interop/export.py::graphwright.interop.export.from_export
    tests/analysis/test_module_state.py::test_a_program_is_exported_without_a_trace[torch.export]
    tests/capture/test_higher_order.py::test_all_three_doors_capture_the_python_that_it_stands_for[mapped]
    tests/capture/test_higher_order.py::test_slices_and_results_may_be_nested
    tests/distributed/test_pipeline.py::test_no_stage_runs_to_find_out_shapes
    tests/distributed/test_pipeline.py::test_tied_weights_of_two_stages_in_one_process
    tests/hierarchy/test_unflatten.py::test_modules_of_an_exported_program
    tests/hierarchy/test_wrapping.py::test_layers_are_sharded
    tests/interop/test_export.py::test_constants_of_the_program_and_of_its_modules_come_back
    tests/interop/test_export.py::test_exported_programs_come_back[Counting-True]
    tests/interop/test_export.py::test_exported_programs_do_what_the_original_does[Filled]
    tests/interop/test_export.py::test_exported_programs_do_what_the_original_does[of_numbers]
    tests/interop/test_export.py::test_sizes_that_torch_export_cannot_keep_open_are_fixed
    tests/interop/test_export.py::test_modules_structures_and_checks_come_back
    tests/interop/test_export.py::test_modules_that_are_called_by_the_path_of_another
    tests/runtime/test_called.py::test_export_tells_the_layers[True]
    tests/test_docs.py::test_every_block_runs_and_prints_what_follows_it[docs/interop.md]
""".split()

# Those that torch 2.9 stops: its `cond` looks for an example of each input in the meta of bodies that are GraphModules
# where something wants gradients.
NOT_WITH_2_9 = """
    tests/interop/test_fx_regions.py::test_programs_do_there_what_they_did[Branch]
    tests/interop/test_fx_regions.py::test_programs_do_there_what_they_did[Indexed]
    tests/interop/test_fx_regions.py::test_gradients_reach_what_bodies_read
    tests/interop/test_keeping.py::test_numbers_are_read_live_in_torch_fx
    tests/interop/test_keeping.py::test_guards_go_only_when_asked
""".split()

# And those that hold before torch 2.15.
BEFORE_2_15 = """
    tests/codegen/test_function.py::test_the_text_of_everything_is_torch_fx_s
    tests/compat/test_names.py::test_a_name_is_found_or_declined_for_a_reason
    tests/compat/test_redirected.py::test_the_names_of_a_path_are_torch_fx_s[_symbolic_trace]
    tests/compat/test_surface.py::test_it_exists_and_takes_the_same_arguments[experimental.const_fold
    tests/compat/test_sweep.py::test_a_slice_of_each_section[functionals]
    tests/ops/test_operator_schemas.py::test_signatures_of_operators
    tests/compat/partitioning/test_partitioner.py::test_random_modules_have_torch_fx_s_parts[45
    tests/compat/partitioning/test_splitter.py::test_non_tensors_move_to_their_readers
""".split()


def why_left_out(name: str) -> str:
    """Say why a test is left out with this torch; empty for one that is not."""
    if RELEASE < (2, 13) and name.startswith(tuple(SINCE_2_13)):
        return "holds since torch 2.13"
    if RELEASE < (2, 13) and name.startswith(tuple(LATER_SYSTEMS)):
        return "needs what torch.export, torch.distributed or map do since"
    if RELEASE == (2, 9) and name.startswith(tuple(NOT_WITH_2_9)):
        return "what torch 2.9 does with bodies of cond"
    if RELEASE >= (2, 15) and name.startswith(tuple(BEFORE_2_15)):
        return "holds before torch 2.15"
    return ""
