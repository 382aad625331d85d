"""Facts about captured programs: what they compute compared with the original, found without changing anything.

Modules and example inputs come in, reports go out. Read verify.py first.
"""

from graphwright.analysis.report import CaseReport, Difference, VerifyReport, format_columns
from graphwright.analysis.values import largest_difference, tensors_in
from graphwright.analysis.verify import verify

__all__ = [
    "CaseReport",
    "Difference",
    "VerifyReport",
    "format_columns",
    "largest_difference",
    "tensors_in",
    "verify",
]
