"""Code of functions whose asserts were rewritten when their module was imported, as pytest does."""

from __future__ import annotations

import ast
import sys
import warnings
from types import CodeType, ModuleType

from graphwright.source.function_parts import codes_of

_REWRITTEN = "@py"  # how the names begin that pytest's assertions are written with


def is_rewritten(code: CodeType) -> bool:
    """Tell whether asserts of a code object, or of one inside it, were rewritten."""
    names = (name for part in codes_of(code) for name in (*part.co_names, *part.co_varnames))
    return any(name.startswith(_REWRITTEN) for name in names)


def rewrite_asserts(tree: ast.Module, text: str) -> bool:
    """Rewrite the asserts of a module as they were when it was imported; tell whether that is known."""
    pytests: ModuleType | None = sys.modules.get("_pytest.assertion.rewrite")
    rewrite = getattr(pytests, "rewrite_asserts", None)
    if rewrite is None:
        return False
    with warnings.catch_warnings():  # it warns of asserts that are always true
        warnings.simplefilter("ignore")
        try:
            rewrite(tree, text.encode())
        except (AttributeError, TypeError):  # none of its arguments is promised
            return False
    return True
