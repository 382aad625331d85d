"""What operators mean: which calls have effects beyond their value, which parameters they have, how values are spelled.

Nodes and calls come in, facts go out; nothing is edited. Read effects.py first, then schemas.py and binding.py.
"""

import torch

from graphwright.ir import register_home
from graphwright.ops.annotations import create_type_hint, type_matches
from graphwright.ops.argument_types import BASE_TYPES, register_containers
from graphwright.ops.binding import ArgsKwargsPair, check_for_mutable_operation, normalize_function, normalize_module
from graphwright.ops.calls import (
    Call,
    Picked,
    call_of,
    function_call,
    functional_call,
    module_call,
    parameters_of,
    required_parameters,
)
from graphwright.ops.effects import (
    DECLARED_IMPURE,
    RANDOM_FUNCTIONS,
    aliases_of,
    draws_alone,
    has_side_effect,
    is_impure,
    is_inplace,
    is_random,
    written_and_given,
)
from graphwright.ops.facts import PYTHON_OPERATORS
from graphwright.ops.forms import kind_of
from graphwright.ops.higher_order import IN_PYTHON, call_item_at, item_at, value_at, value_or
from graphwright.ops.libraries import (
    LIBRARY_CLASSES,
    LIBRARY_FUNCTIONS,
    OPEN_LIBRARIES,
    is_library_class,
    is_library_function,
    is_library_layer,
    is_open_function,
    kind_of_function,
    library_functions,
)
from graphwright.ops.lookup import (
    has_no_side_effect,
    key_of,
    module_called,
    module_operator,
    operator_of,
    operator_of_target,
)
from graphwright.ops.memory import may_share_memory, shared_inputs, sources_of
from graphwright.ops.modules import (
    FunctionalForm,
    ModuleOfFunction,
    functional_form,
    is_known_module,
    is_of_function,
    is_plain_module,
    is_untouched,
    positional_inputs,
)
from graphwright.ops.operators import Operator
from graphwright.ops.region_nodes import (
    Make,
    drop_operands,
    keep_carried,
    write_attempt,
    write_branch,
    write_loop,
)
from graphwright.ops.regions import (
    Body,
    LoopParts,
    cond,
    for_loop,
    gives_several,
    is_loop,
    is_region,
    loop_parts,
    results_of,
    run_body,
    values_for,
    while_loop,
)
from graphwright.ops.schemas import get_signature_for_torch_op, operator_name, schemas_of, signature_of_schema
from graphwright.ops.scratch import gives_fresh_value, is_scratch_write
from graphwright.ops.spelling import TorchSpelling
from graphwright.ops.state import (
    Names,
    delete_attribute,
    may_set_attribute,
    owner_of,
    read_variable,
    set_attribute,
    write_attribute,
    write_variable,
    written_attributes,
)
from graphwright.ops.statements import (
    Entering,
    close_over,
    enter_context,
    evaluated,
    exit_context,
    expect_bound,
    generated,
    raise_error,
    unpack,
)
from graphwright.ops.transforms import TRANSFORMS, TransformKind, is_attempt, transformed

__all__ = [
    "Entering",
    "BASE_TYPES",
    "DECLARED_IMPURE",
    "IN_PYTHON",
    "has_no_side_effect",
    "has_side_effect",
    "register_containers",
    "Picked",
    "PYTHON_OPERATORS",
    "RANDOM_FUNCTIONS",
    "TRANSFORMS",
    "ArgsKwargsPair",
    "Call",
    "LIBRARY_CLASSES",
    "LIBRARY_FUNCTIONS",
    "OPEN_LIBRARIES",
    "FunctionalForm",
    "Names",
    "Operator",
    "aliases_of",
    "call_of",
    "function_call",
    "functional_call",
    "functional_form",
    "is_known_module",
    "is_library_class",
    "is_library_function",
    "is_library_layer",
    "is_open_function",
    "library_functions",
    "is_of_function",
    "is_plain_module",
    "is_untouched",
    "may_share_memory",
    "module_call",
    "module_called",
    "key_of",
    "module_operator",
    "operator_of",
    "owner_of",
    "operator_of_target",
    "parameters_of",
    "positional_inputs",
    "Body",
    "LoopParts",
    "ModuleOfFunction",
    "Make",
    "TorchSpelling",
    "TransformKind",
    "check_for_mutable_operation",
    "close_over",
    "cond",
    "create_type_hint",
    "delete_attribute",
    "draws_alone",
    "drop_operands",
    "enter_context",
    "evaluated",
    "exit_context",
    "for_loop",
    "get_signature_for_torch_op",
    "gives_fresh_value",
    "gives_several",
    "is_impure",
    "is_inplace",
    "is_attempt",
    "is_random",
    "is_loop",
    "is_region",
    "keep_carried",
    "is_scratch_write",
    "kind_of",
    "kind_of_function",
    "call_item_at",
    "item_at",
    "loop_parts",
    "results_of",
    "values_for",
    "normalize_function",
    "normalize_module",
    "expect_bound",
    "generated",
    "operator_name",
    "raise_error",
    "required_parameters",
    "run_body",
    "schemas_of",
    "read_variable",
    "may_set_attribute",
    "set_attribute",
    "shared_inputs",
    "sources_of",
    "signature_of_schema",
    "transformed",
    "type_matches",
    "unpack",
    "value_at",
    "value_or",
    "while_loop",
    "write_attempt",
    "write_attribute",
    "write_branch",
    "write_loop",
    "write_variable",
    "written_and_given",
    "written_attributes",
]

# Where functions live that do not say so themselves.
for _home in (torch, torch.nn.functional, torch._C._nn, torch.fft, torch.linalg, torch.special, torch._C, torch.Tensor):
    register_home(_home)
