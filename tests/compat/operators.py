"""Every operator that PyTorch's own tests know, on its sample inputs: tensors are the inputs of the program."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from tests.compat.agreement import Comparison, compare
from tests.operator_samples import first_samples
from torch.utils import _pytree as pytree


def operators(samples: int = 4, every: int = 1) -> Iterator[Comparison]:
    """Compare `samples` samples of each `every`-th operator that torch.fx can trace."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    for info in itertools.islice(op_db, 0, None, every):
        for number, sample in enumerate(_samples(info, samples)):
            program, inputs = _program(info.op, (sample.input, *sample.args), sample.kwargs)
            comparison = compare(f"{info.formatted_name}.{number}", program, inputs)
            if comparison.theirs.module is not None:
                yield comparison


def _samples(info: Any, count: int) -> list[Any]:
    dtypes = sorted(info.dtypes, key=lambda dtype: (dtype != torch.float32, str(dtype)))
    if not dtypes:  # runs on other devices only
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return first_samples(info, dtypes[0], count)
        except (RuntimeError, ModuleNotFoundError):  # needs another device, or a package that is not there
            return []


def _program(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """A function of the tensors among the arguments, and these tensors."""
    leaves, structure = pytree.tree_flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: Any) -> Any:
        values = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        args, kwargs = pytree.tree_unflatten(values, structure)
        return operator(*args, **kwargs)

    names = ", ".join(f"t{number}" for number in range(len(places)))
    return eval(f"lambda {names}: call({names})", {"call": call}), tuple(leaves[place] for place in places)
