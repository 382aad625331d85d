"""The arguments of a call in one form: by name, defaults filled in, values spelled in one way."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from graphwright.ir import Node, immutable_list
from graphwright.ops import facts
from graphwright.ops.forms import Form, bind, kind_of
from graphwright.ops.lookup import module_called, operator_of, operator_of_target
from graphwright.ops.modules import functional_form
from graphwright.ops.operators import Operator, forms_of, is_on


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """What a node computes, in one spelling: two nodes that compute the same from the same have equal calls.

    arguments: every parameter by name with its value, nodes and literals; sequences are tuples, one number stands for
        as many as the operator wants, `inplace` and what only steers kernels is left out.
    writes: the parameters that this call writes to, or may, where the graph decides.
    random: whether this call may draw random numbers.
    commutative: the two parameters that may change places in this call, or None.
    """

    key: str
    arguments: Mapping[str, Any]
    operator: Operator = dataclasses.field(compare=False, repr=False)
    writes: tuple[str, ...] = ()
    random: bool = False
    commutative: tuple[str, str] | None = None


def call_of(node: Node, module: nn.Module | None = None) -> Call | None:
    """The call that a node makes, in canonical form; None where the operator or its parameters are not known.

    `module` is the submodule that a call_module node calls; left out, it is looked up in the graph's module.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> call_of(graph.call_method("sum", (x, 1))).arguments
    {'input': x, 'dim': (1,), 'keepdim': False, 'dtype': None}
    >>> call_of(graph.call_function(torch.sum, (x,), {"axis": [1]})) == call_of(graph.call_method("sum", (x, 1)))
    True
    """
    known = operator_of(node, module)
    if known is None:
        return None
    args = node.args
    if node.target is getattr and node.op == "call_function" and len(args) == 2 and known.key != "builtins.getattr":
        args = args[:1]
    return _call(known, args, node.kwargs)


def function_call(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
    """The call of a function with these arguments, in canonical form; None where the function is not known.

    >>> function_call(torch.relu, (1,), {}).arguments
    {'input': 1}
    """
    known = operator_of_target("call_function", function)
    return None if known is None else _call(known, args, kwargs)


def module_call(node: Node, module: nn.Module) -> Call | None:
    """The call that a call_module node makes, as one of a function where the module holds no tensors of its own.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> node = graph.call_module("act", (graph.placeholder("x"),))
    >>> module_call(node, nn.LeakyReLU(0.2)).arguments
    {'input': x, 'negative_slope': 0.2}
    """
    form = functional_form(module)
    if form is None or form.tensors:
        return call_of(node, module)
    return function_call(form.function, node.args, {**node.kwargs, **form.values})


def functional_call(node: Node, module: nn.Module | None = None) -> Call | None:
    """The call that a node of any kind makes, modules without tensors as their functions; None where it is not known.

    `module` is the submodule that a call_module node calls; left out, it is looked up in the graph's module.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    >>> [call.key for node in gm.graph.nodes if (call := functional_call(node)) is not None]
    ['relu', 'nn.Linear']
    """
    if node.op != "call_module":
        return call_of(node)
    called = module_called(node) if module is None else module
    return None if called is None else module_call(node, called)


def _call(known: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
    out = None
    if "out" in kwargs and not any("out" in form.names for form in forms_of(known)):
        out = kwargs["out"]
        kwargs = {name: value for name, value in kwargs.items() if name != "out"}
    found = bind(forms_of(known), args, kwargs)
    if found is None:
        return None
    form, values = found
    for name in form.defaults:
        if name not in values:
            values[name] = form.defaults[name]
    given = _canonical(known, values)
    writes = known.writes
    for flags in known.writes_if:
        if _are_on(flags, values if flags.flags == ("inplace",) else given):
            writes = (*writes, *flags.parameters)
    values = given
    out = values.pop("out", out)
    if out is not None:
        values["out"], writes = _plain(out), tuple(dict.fromkeys((*writes, "out")))
    return Call(
        known.key,
        values,
        known,
        writes,
        known.random and _are_on(known.random_if, values),
        known.commutative if known.commutative is not None and _commutes(known, values) else None,
    )


def _are_on(flags: facts.Flags, values: Mapping[str, Any]) -> bool:
    return all(is_on(values.get(name, True)) for name in flags.flags)


def _commutes(known: Operator, values: Mapping[str, Any]) -> bool:
    one, other = known.commutative or ("", "")
    if one not in values or other not in values or values.get("alpha", 1) != 1:
        return False
    return not any(isinstance(values[name], str | bytes | tuple | list | dict) for name in (one, other))


# ---- names


def _canonical(known: Operator, values: dict[str, Any]) -> dict[str, Any]:
    key, spelling = known.key, known.spelling
    renamed = _renamed(known)
    values = {renamed.get(name, name): value for name, value in values.items()}
    values.update(spelling.arguments)
    if spelling.swapped:
        first, second = list(values)[:2]
        values[first], values[second] = values[second], values[first]
    if "size_average" in values:
        _settle_reduction(values)
    for name in facts.DROPPED:
        values.pop(name, None)
    if key in ("embedding", "_embedding_bag") and "max_norm" not in values and values.get("padding_idx") == -1:
        values["padding_idx"] = None  # the dispatcher's way to say none
    values.update(_defaults_of_wider(key, tuple(values)))
    wants = _wants(key)
    if key in ("getitem", "setitem"):
        values = {name: _index(value) if name == "index" else _plain(value) for name, value in values.items()}
    else:
        values = {name: _spelled(value, wants.get(name)) for name, value in values.items()}
    special = _SPECIAL.get(key)
    return values if special is None else special(values)


@functools.lru_cache(4096)
def _renamed(known: Operator) -> dict[str, str]:
    return {**facts.RENAMED["*"], **facts.RENAMED.get(known.key, {}), **known.spelling.parameters}


@functools.cache
def _forms_of_key(key: str) -> tuple[Form, ...]:
    """The ways in which the operator with this key may be called: as functions, a method, through the dispatcher."""
    targets = [
        *[operator_of_target("call_function", getattr(home, key, None)) for home in (torch.ops.aten, F, torch)],
        operator_of_target("call_method", key),
    ]
    forms = [form for known in targets if known is not None and known.key == key for form in forms_of(known)]
    return tuple(forms)


@functools.lru_cache(8192)
def _defaults_of_wider(key: str, names: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """What a call with these parameters leaves out of a wider form, all with defaults: `dim=None` of `torch.sum(x)`."""
    renamed = {**facts.RENAMED["*"], **facts.RENAMED.get(key, {})}
    found: dict[str, Any] = {}
    for form in _forms_of_key(key):
        by_name = {renamed.get(name, name): name for name in form.names if name not in facts.DROPPED}
        by_name.pop("size_average", None) and by_name.pop("reduce", None)
        if set(names) - set(by_name):
            continue
        extra = {new: old for new, old in by_name.items() if new not in names}
        if all(old in form.defaults or "none" in form.kinds.get(old, ()) for old in extra.values()):
            found = {new: form.defaults.get(old) for new, old in extra.items()} | found
    return tuple(found.items())


@functools.cache
def _wants(key: str) -> Mapping[str, tuple[frozenset[str], int]]:
    """What the parameters of the operator with this key take, and the lengths of the lists."""
    renamed = {**facts.RENAMED["*"], **facts.RENAMED.get(key, {})}
    found: dict[str, tuple[frozenset[str], int]] = {}
    for form in _forms_of_key(key):
        for old in form.names:
            new = renamed.get(old, old)
            kinds, size = found.get(new, (frozenset(), 0))
            found[new] = kinds | form.kinds.get(old, frozenset()), form.sizes.get(old, size)
    return found


def parameters_of(known: Operator) -> inspect.Signature:
    """The parameters of an operator in its widest form, under the names that `call_of` gives them.

    >>> print(parameters_of(operator_of_target("call_method", "sum")))
    (input, dim, keepdim=False, *, dtype=None)
    """
    forms, renamed = forms_of(known), _renamed(known)
    widest = max(forms, key=lambda form: len(form.names), default=Form((), (), {}, {}))
    parameters: list[inspect.Parameter] = []
    for name in (name for name in widest.names if name not in facts.DROPPED):
        default = widest.defaults.get(name, inspect.Parameter.empty)
        behind_default = any(one.default is not one.empty for one in parameters) and default is inspect.Parameter.empty
        by_name = name in widest.keywords or behind_default
        kind = inspect.Parameter.KEYWORD_ONLY if by_name else inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(renamed.get(name, name), kind, default=default))
    return inspect.Signature(sorted(parameters, key=lambda parameter: parameter.kind))


def required_parameters(function: Any) -> tuple[str, ...] | None:
    """What a function of torch or Python has to be given, in its shortest form; None where it is not known.

    >>> required_parameters(torch.sum), required_parameters(torch.add), required_parameters(dir)
    (('input',), ('input', 'other'), None)
    """
    known = operator_of_target("call_function", function)
    if known is None:
        return None
    forms = [[name for name in form.positional if name not in form.defaults] for form in forms_of(known)]
    return min(map(tuple, forms), key=len) if forms else None


# ---- values


def _plain(value: Any) -> Any:
    """Sequences as tuples."""
    if isinstance(value, list | tuple):
        if hasattr(value, "_fields"):
            return value
        return tuple([_plain(item) for item in value])
    return value


class Picked(immutable_list):
    """A list in an index: of an index alone, lists and tuples are not the same."""

    __slots__ = ()


def _index(value: Any) -> Any:
    """An index as it is: `x[[0, 1]]` picks two items, `x[0, 1]` is one of two dimensions."""
    if isinstance(value, list):
        return Picked(map(_index, value))
    return tuple(map(_index, value)) if type(value) is tuple else value


def _spelled(value: Any, wants: tuple[frozenset[str], int] | None) -> Any:
    """One spelling for values that mean the same where this is wanted."""
    if isinstance(value, list | tuple):
        return _plain(value)
    if wants is None or value is None:
        return value
    kinds, size = wants
    if size and "ints" in kinds and (type(value) is int or (isinstance(value, Node) and kind_of(value) == "int")):
        return (value,) * size
    if type(value) is int and "float" in kinds and not kinds & {"int", "scalar"}:
        return float(value)
    if type(value) is str and "device" in kinds:
        return torch.device(value)
    return value


# ---- single operators


def _settle_reduction(values: dict[str, Any]) -> None:
    """What the flags that came before `reduction` say."""
    average, reduce = values.pop("size_average"), values.pop("reduce", None)
    if average is None and reduce is None:
        return
    if isinstance(average, Node) or isinstance(reduce, Node):
        values["reduction"] = (average, reduce)
    else:
        values["reduction"] = "none" if reduce is False else "sum" if average is False else "mean"


_REDUCTIONS = ("none", "mean", "sum")


def _reduction_by_name(values: dict[str, Any]) -> dict[str, Any]:
    reduction = values.get("reduction")
    if type(reduction) is int and 0 <= reduction < len(_REDUCTIONS):
        values["reduction"] = _REDUCTIONS[reduction]
    return values


def _stride_of_pool(values: dict[str, Any]) -> dict[str, Any]:
    if values.get("stride") is None or values.get("stride") == ():
        values["stride"] = values.get("kernel_size")
    return values


def _correction(values: dict[str, Any]) -> dict[str, Any]:
    unbiased = values.pop("unbiased", None)
    if isinstance(unbiased, bool):
        values["correction"] = int(unbiased)
    elif unbiased is not None:
        values["correction"] = unbiased
    elif values.get("correction") is None:
        values["correction"] = 1
    return values


def _list_of_dims(values: dict[str, Any]) -> dict[str, Any]:
    if type(values.get("dim")) is int:
        values["dim"] = (values["dim"],)
    return values


def _decimals(values: dict[str, Any]) -> dict[str, Any]:
    return {"decimals": 0, **values}


_SPECIAL: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    **dict.fromkeys(("std", "var", "std_mean", "var_mean"), _correction),
    **dict.fromkeys(("all", "any", "squeeze"), _list_of_dims),
    "round": _decimals,
    **{f"{kind}_pool{n}d": _stride_of_pool for kind in ("max", "avg", "lp") for n in (1, 2, 3)},
    **dict.fromkeys(
        (
            "mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "nll_loss", "kl_div", "binary_cross_entropy",
            "binary_cross_entropy_with_logits", "soft_margin_loss", "multi_margin_loss", "multilabel_margin_loss",
            "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "poisson_nll_loss",
            "triplet_margin_loss", "ctc_loss", "cross_entropy",
        ),
        _reduction_by_name,
    ),
}  # fmt: skip
