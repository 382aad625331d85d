"""Which operations do more than compute a value.

An operation is impure when leaving it out could change what the rest of the program computes: it writes to an
argument or a buffer, advances the random state, checks something, or is not known. Where a flag decides that and the
flag is a value of the graph, the answer is the careful one.
"""

from __future__ import annotations

import operator
import types
from typing import Any

import torch
from torch import nn

from graphwright.ir import Node, bodies_of
from graphwright.ops.facts import PYTHON_OPERATORS, WRITING_METHODS
from graphwright.ops.lookup import operator_of, operator_of_target
from graphwright.ops.modules import functional_form, is_known_module, is_plain_module, says_its_function
from graphwright.ops.operators import Operator, flag_of, is_on
from graphwright.ops.regions import is_region

# The functions that draw random numbers though no tensor is passed to them.
RANDOM_FUNCTIONS = frozenset(
    getattr(torch, name)
    for name in ("rand", "randn", "randint", "randperm", "normal", "rand_like", "randn_like", "randint_like",
                 "bernoulli", "multinomial", "poisson")
)  # fmt: skip


# What is known of no operator, but touches a random state: that of torch's own generator, or of one of the program's.
_OF_STATE = frozenset({
    torch.get_rng_state, torch.set_rng_state, torch.Generator,
    *(name for name in dir(torch.Generator) if not name.startswith("_") and name != "device"),
})  # fmt: skip
_HAS_STATE = (str, type, types.FunctionType)


def draws_alone(function: Any) -> bool:
    """Tell whether calls of a function of torch draw random numbers, whatever values go in.

    >>> draws_alone(torch.rand), draws_alone(torch.ops.aten.rand.default), draws_alone(torch.Tensor.normal_)
    (True, True, True)
    >>> draws_alone(torch.ones), draws_alone(torch.ops.aten.ones)
    (False, False)
    """
    if isinstance(function, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded in function.tags
    if isinstance(function, torch._ops.OpOverloadPacket):
        return any(draws_alone(getattr(function, name)) for name in function.overloads())
    if function in RANDOM_FUNCTIONS:
        return True
    is_method = type(function) is types.MethodDescriptorType
    known = operator_of_target(*(("call_method", function.__name__) if is_method else ("call_function", function)))
    return known is not None and known.random


# ---- the questions


def is_inplace(node: Node) -> bool:
    """Tell whether a node writes to one of its arguments; a branch or loop does if a node inside it may."""
    if is_region(node):
        return any(is_inplace(inner) for body in bodies_of(node) for inner in body.nodes)
    if node.op != "call_function" and node.op != "call_method":
        return node.kwargs.get("out") is not None
    return _writes(node, operator_of(node))


def written_and_given(node: Node) -> Node | None:
    """The value that a node writes to and gives back as its own: `y` of `y += x`, `y.add_(x)`, `torch.add(..., out=y)`.

    What comes after such a node reads `y` through it. None for all others: a write to an item gives nothing, a module
    that works in place is asked for by its flag, and of what is not known nobody can tell.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> written_and_given(graph.call_method("add_", (x, 1))), written_and_given(graph.call_method("add", (x, 1)))
    (x, None)
    """
    op = node._op
    target = node._target
    if (op != "call_function" and op != "call_method") or target is operator.setitem or target == "__setitem__":
        return None
    kwargs = node._kwargs
    value = kwargs.get("out") if kwargs else None
    known = operator_of(node)
    if known is None or known.acts:
        return None
    if value is None:
        if not (known.writes or known.writes_if) or not _gives_input(node, known):
            return None
        value = node._args[0] if node._args else kwargs.get("input")
    return value if isinstance(value, Node) else None


def _gives_input(node: Node, known: Operator) -> bool:
    """Tell whether a call writes to its first argument and gives that."""
    if (0, "input") not in known.aliases:
        return False
    if "input" in known.writes:
        return True
    flags = [flags for flags in known.writes_if if "input" in flags.parameters]
    values = [[_flag(node, known, flag) for flag in each.flags] for each in flags]
    return any(all(is_on(value) and not isinstance(value, Node) for value in each) for each in values)


def is_random(node: Node, module: nn.Module | None = None) -> bool:
    """Tell whether a node may advance a random state.

    `module` is the submodule that a call_module node calls, where it is known: what draws in training mode counts.
    """
    if is_region(node):
        return any(is_random(inner) for body in bodies_of(node) for inner in body.nodes)
    if node.op == "call_module":
        return _is_module_random(module)
    if node.op != "call_function" and node.op != "call_method":
        return False
    return _draws(node, operator_of(node))


def is_impure(node: Node, module: nn.Module | None = None, *, in_any_mode: bool = False) -> bool:
    """Tell whether a node has an effect beyond its value, so that it stays though nobody reads it.

    `module` is the submodule that a call_module node calls, where it is known. Functions and modules that this
    library does not know count as impure. A branch or loop is impure if a node inside it is. Modules are seen in the
    mode that they are in, training or evaluation, or with `in_any_mode` in both.
    """
    op = node.op
    if op == "get_attr":
        return False
    if op == "call_module":
        return _is_module_impure(module, in_any_mode)
    if op != "call_function" and op != "call_method":
        return True
    known = operator_of(node)
    if known is None:
        return not is_region(node) or _has_impure_body(node, node.graph.owning_module, in_any_mode)
    if op == "call_method" and _is_of_object(node):
        return True
    if known.acts:
        return True
    may_act = node.kwargs or known.writes or known.writes_if or known.random  # most operators never do
    if may_act and (_writes(node, known) or _draws(node, known)):
        return True
    return op == "call_function" and bool(DECLARED_IMPURE) and node.target in DECLARED_IMPURE


def _is_of_object(node: Node) -> bool:
    """Tell whether a node calls a method of an input, or of what it holds, that is declared to be no tensor.

    >>> from typing import Any
    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x, log = graph.placeholder("x"), graph.placeholder("log", Any)
    >>> [is_impure(graph.call_method("add", (each, 1))) for each in (x, log)]
    [False, True]
    """
    value = node.args[0] if node.args else None
    while isinstance(value, Node) and value.op == "call_function" and value.target in (getattr, operator.getitem):
        value = value.args[0]
    if not isinstance(value, Node) or value.op != "placeholder":
        return False
    kind = value.type
    if kind is Any:  # which may be a tensor: then something is computed with it
        return _is_only_told(value)
    return issubclass(type(kind), type) and not issubclass(kind, _VALUES) and kind is not object


def _is_only_told(value: Node) -> bool:
    """Tell whether nothing is made of a value: its methods, or those of what it holds, are called, and give nothing."""
    return all(
        _is_only_told(user) if user.op == "call_function" and user.target in (getattr, operator.getitem)
        else user.op == "call_method" and user.args[0] is value and not user.users
        for user in value.users
    )  # fmt: skip


_VALUES = (torch.Tensor, int, float, complex, str, list, tuple, dict, set, type(None), torch.dtype, torch.device)


def aliases_of(node: Node, known: Operator) -> tuple[tuple[int | None, str], ...]:
    """What of `known.aliases` holds for the call that a node makes: a flag `inplace` that is off shares nothing.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> nodes = [graph.call_function(nn.functional.relu, (x,), {"inplace": flag}) for flag in (True, False)]
    >>> [aliases_of(node, operator_of(node)) for node in nodes]
    [((0, 'input'),), ()]
    """
    aliases = known.aliases
    for flags in known.writes_if:
        if flags.flags == ("inplace",) and not _is_on(node, known, "inplace"):
            aliases = tuple(pair for pair in aliases if pair != (0, *flags.parameters))
    if node.kwargs.get("out") is not None:
        return (*aliases, (None, "out"))
    if (
        node.op == "call_function"
        and node.target in PYTHON_OPERATORS
        and any(isinstance(arg, _LISTS) for arg in node.args)
    ):
        return (*aliases, (None, "*"))  # `[a] + [b]` has the same items
    return aliases


_LISTS = (list, tuple)


def is_writing_name(name: str) -> bool:
    """Tell whether a method of tensors of this name writes to the tensor, as torch calls them.

    >>> [is_writing_name(name) for name in ("add_", "__iadd__", "add", "__add__")]
    [True, True, False, False]
    """
    return (name.endswith("_") and not name.endswith("__")) or name in WRITING_METHODS


def _writes(node: Node, known: Operator | None) -> bool:
    if node.kwargs.get("out") is not None:
        return True
    if known is None:  # torch's convention is everyone's
        return is_writing_name(node.target if isinstance(node.target, str) else getattr(node.target, "__name__", ""))
    if known.writes:
        return True
    return any(all(_is_on(node, known, flag) for flag in flags.flags) for flags in known.writes_if)


def _draws(node: Node, known: Operator | None) -> bool:
    if known is None:
        return isinstance(node.target, _HAS_STATE) and node.target in _OF_STATE
    return known is not None and known.random and all(_is_on(node, known, flag) for flag in known.random_if.flags)


def _is_on(node: Node, known: Operator, flag: str) -> bool:
    """Tell whether an argument is given, by name or position, and not off."""
    return is_on(_flag(node, known, flag))


def _flag(node: Node, known: Operator, flag: str) -> Any:
    """The value of a flag in a call, by name or position, else its default."""
    names, position, value = flag_of(known, flag)
    if 0 <= position < len(node.args):
        value = node.args[position]
    for name in names:
        value = node.kwargs.get(name, value)
    return value


def _has_impure_body(node: Node, owner: nn.Module | None, in_any_mode: bool) -> bool:
    bodies = bodies_of(node)
    if any(callable(arg) for arg in node.args):  # a body that is a function: what it does is not known
        return True
    for inner in (inner for body in bodies for inner in body.nodes if inner.op not in ("placeholder", "output")):
        if is_region(inner):
            if _has_impure_body(inner, owner, in_any_mode):
                return True
        else:
            called = owner.get_submodule(str(inner.target)) if inner.op == "call_module" and owner is not None else None
            if is_impure(inner, called, in_any_mode=in_any_mode):
                return True
    return False


DECLARED_IMPURE: set[Any] = set()  # by `has_side_effect`


def has_side_effect(fn: Any) -> Any:
    """Declare that calls of a function do more than compute a value: dead-code removal keeps them. Returns `fn`.

    >>> @has_side_effect
    ... def report(x): ...
    >>> report in DECLARED_IMPURE
    True
    """
    DECLARED_IMPURE.add(fn)
    return fn


# ---- what is known of modules


def _is_module_impure(module: nn.Module | None, in_any_mode: bool) -> bool:
    if module is not None and says_its_function(module):
        return functional_form(module) is None
    if module is None or not is_plain_module(module):
        return True
    flags: dict[str, Any] = module.__dict__
    if isinstance(module, nn.modules.dropout._DropoutNd) and not (module.training or in_any_mode):
        return False  # gives back what it gets, also where it would write in training
    if flags.get("inplace") or flags.get("max_norm") is not None or isinstance(module, nn.modules.lazy.LazyModuleMixin):
        return True
    if isinstance(module, nn.FractionalMaxPool2d | nn.FractionalMaxPool3d):
        return True
    if module.training or in_any_mode:
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            return True
        if _draws_itself(module):
            return True
    return any(_is_module_impure(child, in_any_mode) for child in module.children())


def _is_module_random(module: nn.Module | None) -> bool:
    if module is None or not all(is_known_module(one) for one in module.modules()):
        return False  # not known; impure it is
    return any(_draws_itself(one) for one in module.modules())


def _draws_itself(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p != 0
    dropout = module.__dict__.get("dropout")  # a probability; in some classes a child module
    if isinstance(dropout, int | float) and dropout > 0:
        return True
    return isinstance(module, nn.RReLU | nn.FractionalMaxPool2d | nn.FractionalMaxPool3d)
