"""The operator of captured programs that hands a body to a function: `torch.vmap(body)(x)`, `sorted(x, key=body)`.

The body is a graph among the node's arguments, as those of branches are. It takes the inputs that the transform gives
it, then what it uses from outside (`operands`), which the transform does not see: the body closes over them.

"attempt" runs the body under `try`, and gives the error that it raised, or None, before its values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.utils.checkpoint

from graphwright.errors import GuardError
from graphwright.ir import Graph, Node, register_signature
from graphwright.ops.regions import Body, run_body


@dataclasses.dataclass(frozen=True, slots=True)
class TransformKind:
    """A function that takes a function, and how it is called.

    `form` is "maker" for `transform(body, **options)(*inputs)`, "call" for `transform(body, *inputs, **options)`,
    "spread" for `transform(body, inputs, ..., **options)`, where the body takes the items of the first input, and "key"
    for `transform(*inputs, key=body, **options)`, where it takes one item. What is `deferred` may run the body again
    after the call, in backward.
    """

    function: Callable[..., Any]
    form: Literal["maker", "call", "spread", "key"]
    deferred: bool = False


def attempted(body: Callable[..., Any], *, errors: tuple[type[BaseException], ...], count: int) -> tuple[Any, ...]:
    """Run a body that gives `count` values: None and these, or the error that it raised and None for each.

    That a guard does not hold is no error of the program: it is not caught.

    >>> attempted(lambda: (1 // 0,), errors=(ZeroDivisionError,), count=1)
    (ZeroDivisionError('integer division or modulo by zero'), None)
    """
    try:
        return (None, *body())
    except GuardError:
        raise
    except errors as error:
        return (error, *[None] * count)


_FUNCTIONAL = torch.autograd.functional
TRANSFORMS: dict[str, TransformKind] = {
    "torch.vmap": TransformKind(torch.vmap, "maker"),
    **{
        f"torch.func.{name}": TransformKind(getattr(torch.func, name), "maker")
        for name in ("grad", "grad_and_value", "jacrev", "jacfwd", "hessian")
    },
    "torch.func.vjp": TransformKind(torch.func.vjp, "call"),
    "torch.func.linearize": TransformKind(torch.func.linearize, "call"),
    "torch.func.jvp": TransformKind(torch.func.jvp, "spread"),
    **{
        f"torch.autograd.functional.{name}": TransformKind(getattr(_FUNCTIONAL, name), "spread")
        for name in ("jacobian", "hessian", "vjp", "jvp", "hvp", "vhp")
    },
    "torch.utils.checkpoint.checkpoint": TransformKind(torch.utils.checkpoint.checkpoint, "call", deferred=True),
    "attempt": TransformKind(attempted, "call"),
    **{function.__name__: TransformKind(function, "key") for function in (sorted, max, min)},
}


def transformed(
    transform: str,
    body: Body,
    inputs: Sequence[Any],
    operands: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
    **named: Any,
) -> Any:
    """Give a body to a transform and call what that makes: `transform(body, **options)(*inputs, **named)`.

    `transform` is one of `TRANSFORMS`. The body takes the inputs, the named ones, then the operands.

    >>> transformed("torch.vmap", lambda row, scale: row.sum() * scale, (torch.ones(2, 3),), (10,))
    tensor([30., 30.])
    >>> transformed("max", lambda item, by: item % by, ([7, 8, 9],), (8,))
    7
    """
    kind = TRANSFORMS[transform]

    def function(*args: Any, **kwargs: Any) -> Any:
        return run_body(body, (*args, *[kwargs[name] for name in named], *operands))

    if kind.form == "maker":
        return kind.function(function, **(options or {}))(*inputs, **named)
    if kind.form == "key":
        return kind.function(*inputs, key=function, **(options or {}))
    return kind.function(function, *inputs, **(options or {}), **named)


def is_attempt(node: Node) -> bool:
    """Tell whether a node runs a body under `try`."""
    return node._target is transformed and node._args[:1] == ("attempt",)


def inputs_of_body(node: Node) -> int | None:
    """Count the inputs that a body gets from its transform; None where that is known only at run time."""
    inputs, form = node.args[2], TRANSFORMS[node.args[0]].form
    if form == "key":
        return 1
    if form != "spread":
        return len(inputs) + len(node.kwargs)
    first = inputs[0] if inputs else ()
    if isinstance(first, Node):
        return None
    return len(first) if isinstance(first, tuple | list) else 1


def _check(node: Node) -> str | None:
    names = ("transform", "body", "inputs", "operands", "options")
    if len(node.args) != len(names):
        return f"takes the arguments {', '.join(names)}, by position"
    transform, body, inputs, operands, options = node.args
    if not isinstance(transform, str) or transform not in TRANSFORMS:
        return f"names no transform: {transform!r}"
    for name, arg in (("inputs", inputs), ("operands", operands)):
        if not isinstance(arg, tuple | list):
            return f"takes a tuple of {name}"
    if not isinstance(options, dict):
        return "takes a dict of options"
    if not isinstance(body, Graph):
        return None if callable(body) else "needs a graph for 'body'"
    given = inputs_of_body(node)
    takes = sum(inner.op == "placeholder" for inner in body.nodes)
    if given is not None and given + len(operands) != takes:
        return f"gives {given + len(operands)} values to its 'body', which takes {takes}"
    return None


register_signature(transformed, _check)
