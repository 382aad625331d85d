"""Importing this module must not happen: no file that names it is allowed to."""

from tests.runtime import saved_models

saved_models.CALLS.append("imported")
