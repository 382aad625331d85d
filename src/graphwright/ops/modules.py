"""The function that a module of torch.nn is the module form of: `nn.Linear` of `F.linear`, `nn.ReLU` of `F.relu`.

Most are found by their names: the class is called as the function, and has what it passes besides its inputs in
attributes called as the parameters. The others are written down here.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from graphwright.ops.libraries import is_library_layer, library_call
from graphwright.ops.lookup import module_operator, operator_of_target
from graphwright.ops.operators import Operator, forms_of


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionalForm:
    """The call that a module makes: `function(*inputs, **tensors, **values)`.

    operator: that of the function. inputs: the parameters that `forward` gets, in its order. tensors: the names of the
    module's parameters and buffers by what they are passed as; those that are None are left out. values: the rest.
    settings: the names of the module's plain attributes that `values` are made of, beside the training flag.
    """

    function: Callable[..., Any]
    operator: Operator
    inputs: tuple[str, ...]
    tensors: Mapping[str, str]
    values: Mapping[str, Any]
    settings: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key that the function and all its spellings have."""
        return self.operator.key

    @property
    def positional(self) -> tuple[str, ...]:
        """The parameters of the function that may be given by their places, in their order."""
        forms = forms_of(self.operator)  # none, where there are keywords of any name
        return forms[0].positional if forms else ()


class ModuleOfFunction(nn.Module):
    """A module outside of torch.nn whose `forward` calls one function with what it holds, and does nothing else."""

    def function(self) -> tuple[Callable[..., Any], Mapping[str, str], Mapping[str, str]] | None:
        """The function, which `has_no_side_effect`; the names of tensors and of settings by what they are passed as.

        None where the module does more now.
        """
        raise NotImplementedError


def is_of_function(kind: type[nn.Module]) -> bool:
    """Tell whether a class of modules calls one function: torch.nn's own, of a library, and those that say so."""
    if is_library_layer(kind):
        return True
    if kind.__module__.startswith("torch.nn.modules.") or not issubclass(kind, ModuleOfFunction):
        return kind.forward.__module__.startswith("torch.nn.modules.")
    owners = [next(base for base in kind.__mro__ if name in vars(base)) for name in ("function", "forward")]
    return issubclass(*owners)  # no subclass has another forward


def functional_form(module: nn.Module) -> FunctionalForm | None:
    """The function that a module calls with what it holds; None where it does more, or is not torch.nn's own.

    Modules of other classes that are a `ModuleOfFunction` say so themselves.

    What depends on the training flag is as the flag stands now.

    >>> form = functional_form(nn.Conv2d(3, 8, 3, stride=2, bias=False))
    >>> form.key, form.inputs, form.tensors, form.values["stride"]
    ('conv2d', ('input',), {'weight': 'weight'}, (2, 2))
    >>> functional_form(nn.LSTM(2, 2)) is None
    True
    """
    if isinstance(module, ModuleOfFunction):
        return _own_form(module) if is_of_function(type(module)) and is_untouched(module) else None
    if is_library_layer(type(module)):
        return _library_form(module) if is_untouched(module) else None
    if module_operator(type(module)) is None or not is_plain_module(module):
        return None
    name = type(module).__name__
    function = _function_of(name)
    operator = None if function is None else operator_of_target("call_function", function)
    values: dict[str, Any] | None = _VALUES[name](module) if name in _VALUES else {}
    if function is None or operator is None or values is None:
        return None
    forms = forms_of(operator)
    if not forms:
        return None
    kind: Any = type(module)
    inputs = forms[0].positional[: _count_inputs(kind)]
    tensors = {}
    for parameter in forms[0].names:
        if parameter in inputs or parameter in values or not hasattr(module, parameter):
            continue
        value = getattr(module, parameter)
        if isinstance(value, torch.Tensor):
            tensors[parameter] = parameter
        elif value is not None:
            values[parameter] = value
    names = [one for one in vars(module) if not one.startswith("_") and one != "training"]
    settings = tuple([one for one in names if one in values or name in _VALUES])
    return FunctionalForm(function, operator, inputs, tensors, values, settings)


def _own_form(module: ModuleOfFunction) -> FunctionalForm | None:
    given = module.function()
    if given is None:
        return None
    function, tensors, settings = given
    operator = operator_of_target("call_function", function)
    assert operator is not None, f"{function.__name__} is not declared: has_no_side_effect"
    parameters = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
    names = [each.name for each in parameters if each.name not in tensors and each.name not in settings]
    present = {name: path for name, path in tensors.items() if getattr(module, path) is not None}
    values = {name: getattr(module, path) for name, path in settings.items()}
    return FunctionalForm(function, operator, tuple(names), present, values, tuple(settings.values()))


def _library_form(module: nn.Module) -> FunctionalForm | None:
    function, values, settings = library_call(module)
    operator = operator_of_target("call_function", function)
    return None if operator is None else FunctionalForm(function, operator, ("tensor",), {}, values, settings)


def is_plain_module(module: nn.Module) -> bool:
    """Tell whether a module is one of torch.nn's own classes and nobody hooked into it or replaced its forward.

    >>> linear = nn.Linear(2, 2)
    >>> handle = linear.register_forward_hook(print)
    >>> is_plain_module(nn.Linear(2, 2)), is_plain_module(linear)
    (True, False)
    """
    return type(module).__module__.startswith("torch.nn.modules.") and is_untouched(module)


def is_known_module(module: nn.Module) -> bool:
    """Tell whether it is known what a call of a module does: it is one of torch.nn's own, or says so."""
    return is_plain_module(module) or (says_its_function(module) and functional_form(module) is not None)


def says_its_function(module: nn.Module) -> bool:
    """Tell whether the class of a module says which one function it calls: a `ModuleOfFunction`, or of a library."""
    return isinstance(module, ModuleOfFunction) or is_library_layer(type(module))


def is_untouched(module: nn.Module) -> bool:
    """Tell whether calling a module does what its class says and nothing else: no hooks, no `forward` of its own.

    >>> norm = nn.BatchNorm2d(3)
    >>> is_untouched(norm)
    True
    >>> _ = norm.register_forward_hook(print)
    >>> is_untouched(norm)
    False
    """
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return "forward" not in vars(module) and not any(vars(module).get(table) for table in hooks)


def positional_inputs(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """What a module is called with, by position as far as its class takes it so: `conv(input=x)` is `conv(x)`.

    >>> positional_inputs(nn.ReLU(), (), {"input": 1}), positional_inputs(nn.ReLU(), (1,), {"other": 2})
    (((1,), {}), ((1,), {'other': 2}))
    """
    if not kwargs:
        return args, kwargs
    kind: Any = type(module)
    left = dict(kwargs)
    placed = list(args)
    for name in _parameters(kind)[len(args) :]:
        if name not in left:
            break
        placed.append(left.pop(name))
    return tuple(placed), left


@functools.lru_cache(256)
def _parameters(kind: Any) -> tuple[str, ...]:
    """The names by which the inputs of a class of modules can be given as well as by their places."""
    parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
    return tuple([one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD])


# ---- which function

_NAMES: dict[str, str] = {
    "BCELoss": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits", "KLDivLoss": "kl_div",
    "CrossEntropyLoss": "cross_entropy", "Softmax2d": "softmax", "Upsample": "interpolate",
    "UpsamplingNearest2d": "interpolate", "UpsamplingBilinear2d": "interpolate",
    **{f"BatchNorm{n}d": "batch_norm" for n in (1, 2, 3)},
    **{f"{kind}Pad{n}d": "pad" for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular")
       for n in (1, 2, 3)},
}  # fmt: skip


@functools.cache
def _by_plain_name() -> Mapping[str, Callable[..., Any]]:
    names = (name for name in dir(F) if not name.startswith("_") and not name.endswith("_"))
    return {name.replace("_", ""): getattr(F, name) for name in names if callable(getattr(F, name))}


def _function_of(name: str) -> Callable[..., Any] | None:
    if name == "Flatten":
        return torch.flatten
    return getattr(F, _NAMES[name]) if name in _NAMES else _by_plain_name().get(name.lower())


@functools.lru_cache(256)
def _count_inputs(kind: Any) -> int:
    parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
    return sum(one.default is one.empty for one in parameters)


# ---- what is passed under another name


def _of_convolution(module: Any) -> dict[str, Any] | None:
    return {} if module.padding_mode == "zeros" else None


def _of_batch_norm(module: Any) -> dict[str, Any] | None:
    if module.training and module.track_running_stats:  # counts its batches as well
        return None
    if module.training:
        return {"training": True, "momentum": module.momentum or 0.0, "running_mean": None, "running_var": None}
    values = {
        "training": module.running_mean is None and module.running_var is None,
        "momentum": module.momentum or 0.0,
    }
    absent = [name for name in ("running_mean", "running_var") if getattr(module, name) is None]
    return {**values, **dict.fromkeys(absent)}


def _other(module: Any) -> None:
    """Modules that do more than their function: by the rank of the input, or with several results."""


def _of_pad(mode: str) -> Callable[[Any], dict[str, Any]]:
    return lambda module: {"pad": module.padding, "mode": mode, "value": getattr(module, "value", None)}


_VALUES: dict[str, Callable[[Any], dict[str, Any] | None]] = {
    **{f"Conv{kind}{n}d": _of_convolution for kind in ("", "Transpose") for n in (1, 2, 3)},
    **{f"BatchNorm{n}d": _of_batch_norm for n in (1, 2, 3)},
    **{
        f"{name}Pad{n}d": _of_pad(mode)
        for name, mode in (
            ("Constant", "constant"), ("Zero", "constant"), ("Reflection", "reflect"), ("Replication", "replicate"),
            ("Circular", "circular"),
        )
        for n in (1, 2, 3)
    },
    "Softmax2d": lambda module: {"dim": -3},
    "PairwiseDistance": lambda module: {"p": module.norm},
    **dict.fromkeys(("AlphaDropout", "FeatureAlphaDropout"), lambda module: {"inplace": False}),  # whatever it is told
    **dict.fromkeys(("EmbeddingBag", "LinearCrossEntropyLoss"), _other),
}  # fmt: skip
