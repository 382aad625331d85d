"""What is swept, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.compat.agreement import Comparison
from tests.compat.functionals import functionals
from tests.compat.models import classifiers, other_vision, timm_models
from tests.compat.operators import operators
from tests.compat.random_sources import random_sources

SECTIONS: dict[str, Callable[..., Iterator[Comparison]]] = {
    "operators": operators,
    "functionals": functionals,
    "classifiers": classifiers,
    "other_vision": other_vision,
    "timm": timm_models,
    "random_sources": random_sources,
}
