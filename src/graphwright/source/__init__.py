"""The user's source: files, trees, positions, and the way from a running frame to a line.

It knows nothing of captures. Read frames.py first.

    frames.py                   from a running frame to a place in the user's source
    positions.py                where instructions stand in their source
    roles.py                    what an instruction is for, by its place in the tree: a message, a raise, an argument
    uses.py                     what a function does with a value that it reads: takes an item, hands it on, asks
    function_parts.py           what functions are made of: code, names in it, variables that they close over
    parameters.py               arguments that whoever they are handed to never looks at
    source_files.py             source files, parsed once
    definitions.py              the definition that running code was compiled from
    rewritten_asserts.py        code whose asserts pytest rewrote
    lowering_exits.py           ways out of a block as values that its function returns
    lowering_loops.py           loops as functions of one iteration
    lowering_attempts.py        `try` statements as functions of their parts
    suppressing.py              `with contextlib.suppress(...)` as the `try` that it stands for
    lowering_comprehensions.py  comprehensions as the loops that they are
    lowering_matches.py         `match` as the `if`s that it stands for
    variables.py                which variables code names, and which of them nothing around it does
    syntax.py                   what statements hold and bind, and places for new ones
    liveness.py                 which variables of a function are read later
    code_table.py               what is known of code objects, as long as they live
    steps.py                    the instructions of code with the names and constants in them
    mentions.py                 which global names, attributes and variables a function mentions, and whose code it is
    attribute_writes.py         where a class writes an attribute of its own instances, and a function a variable
    annotations.py              the annotations of a function's parameters, as values
    caches.py                   functions behind a `functools` cache
"""

from graphwright.source.annotations import annotate, annotations_of
from graphwright.source.attribute_writes import place_of_name, place_of_write
from graphwright.source.caches import cache_around, cache_of, without_cache
from graphwright.source.code_table import CodeTable, by_code
from graphwright.source.definitions import (
    Definition,
    definition_of,
    note_made_from_source,
    note_shown_as,
    source_behind,
    why_no_definition,
)
from graphwright.source.frames import (
    SEQUENTIAL,
    STANDS_FOR_TORCH,
    CallSite,
    NamesInside,
    Scope,
    ScopeContextManager,
    decorated,
    definition_line,
    is_handled,
    is_internal,
    is_ours,
    is_returned,
    line_of_error,
    name_as_called,
    named_by_callers,
    place_of,
    runs_as_it_is_left,
    user_frame,
)
from graphwright.source.function_parts import EMPTY, closure_of, codes_of, content_of, held_by, names_in, texts_in
from graphwright.source.liveness import Liveness, note_unread, unread_after
from graphwright.source.lowering_attempts import Handler, Tried, lower_attempt, raises_again, with_rest
from graphwright.source.lowering_comprehensions import TAKES_ALL, as_loop, loop_of
from graphwright.source.lowering_exits import HIDDEN, RETURNS, exit_signal, exiting
from graphwright.source.lowering_loops import ITEM, Lowered, lower_loop, with_test_inside
from graphwright.source.lowering_matches import UnknownPattern, as_ifs, as_told, lower_match
from graphwright.source.mentions import (
    DISPATCHERS,
    Mentions,
    catches,
    is_foreign,
    is_foreign_class,
    is_foreign_file,
    is_installed,
    is_of_library,
    mentions,
    stored_globals,
)
from graphwright.source.parameters import (
    argument_for,
    calls_the_same,
    code_called_by,
    function_of_call,
    ignores,
    looks_at_all,
    uses_of_argument,
)
from graphwright.source.positions import note_compiled, note_replaced, qualname_of
from graphwright.source.roles import Role, Standing, is_user_raise, role_of
from graphwright.source.source_files import Source, source_of
from graphwright.source.steps import read_later, steps_of
from graphwright.source.suppressing import as_attempt
from graphwright.source.syntax import (
    CHANGES,
    COMPREHENSIONS,
    PREFIX,
    RUNTIME_MARK,
    SCOPES,
    TYPE_PARAMETERS,
    all_placed,
    assigned,
    blocks_of,
    call_of_locals,
    children,
    compares_identity,
    compares_sizes,
    copied_tree,
    falls_through,
    function_of,
    holds,
    is_convertible,
    is_from_conversion,
    lambda_of,
    leaves_loop,
    may_wait,
    name_of,
    names_read,
    placed,
    plain_names,
    returns,
    statements_in,
    target_names,
    targets_in,
    template_of,
    tested_for_none,
    texts_of,
    walk,
    walk_all,
    walk_own,
)
from graphwright.source.uses import (
    Asked,
    Use,
    argument_of,
    call_at,
    expression_of,
    is_skipped,
    parameter_uses,
    uses_of,
)
from graphwright.source.variables import bound_in_loops, errors_named_outside, is_bound_once, names_counted, private_to

__all__ = [
    "Asked", "Mentions", "argument_for", "argument_of", "call_at", "code_called_by", "looks_at_all", "parameter_uses",
    "CHANGES", "COMPREHENSIONS", "DISPATCHERS", "EMPTY", "HIDDEN", "ITEM", "PREFIX", "RETURNS", "RUNTIME_MARK",
    "SCOPES", "SEQUENTIAL", "STANDS_FOR_TORCH", "TAKES_ALL", "TYPE_PARAMETERS", "CallSite", "CodeTable", "Definition",
    "Handler", "Liveness", "Lowered", "NamesInside", "Role", "Scope", "ScopeContextManager", "Source", "Standing",
    "Tried", "UnknownPattern", "Use", "all_placed", "annotate", "annotations_of", "as_attempt", "as_ifs", "as_loop",
    "as_told", "assigned", "blocks_of", "bound_in_loops", "by_code",
    "cache_around", "cache_of", "call_of_locals", "calls_the_same", "catches", "children",
    "closure_of", "codes_of", "content_of", "compares_identity", "compares_sizes", "copied_tree", "decorated",
    "definition_line",
    "definition_of", "errors_named_outside",
    "exit_signal", "exiting", "expression_of", "falls_through", "function_of", "function_of_call",
    "held_by", "holds", "ignores", "is_convertible", "is_foreign", "is_foreign_class", "is_foreign_file",
    "is_from_conversion", "is_handled", "is_installed", "is_internal", "is_bound_once", "is_of_library", "is_ours",
    "is_returned", "is_skipped", "is_user_raise", "lambda_of", "leaves_loop", "line_of_error", "loop_of",
    "lower_attempt", "lower_loop", "lower_match", "may_wait", "mentions", "name_as_called", "name_of",
    "named_by_callers", "names_counted", "names_in", "names_read", "note_compiled", "note_made_from_source",
    "note_replaced", "note_shown_as", "note_unread", "place_of", "place_of_name", "place_of_write", "placed",
    "plain_names", "private_to", "qualname_of", "raises_again", "read_later", "role_of", "returns",
    "runs_as_it_is_left", "source_behind", "source_of",
    "statements_in", "steps_of", "stored_globals", "target_names", "targets_in", "template_of",
    "tested_for_none", "texts_in", "texts_of", "unread_after", "user_frame", "uses_of",
    "uses_of_argument", "walk", "walk_all", "walk_own", "why_no_definition",
    "with_rest", "with_test_inside", "without_cache",
]  # fmt: skip
