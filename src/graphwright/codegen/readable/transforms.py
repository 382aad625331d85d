"""A body that is given to a function: a nested function, and the call that gets it.

def body(v):
    return self.layer(v).sin()
y = torch.vmap(body, in_dims=1)(x)

The key of `sorted`, `max` and `min` is a lambda where it is one expression.
"""

from __future__ import annotations

from typing import Any

from graphwright.codegen.readable.expressions import Expression
from graphwright.codegen.readable.try_statements import attempt_block
from graphwright.codegen.readable.unpacking import unpacked_items, unpacking_of, unpacking_targets
from graphwright.codegen.readable.writer import Block, Clause, ReadableWriter, plain
from graphwright.codegen.spelling.operators import PRIMARY
from graphwright.errors import GraphError
from graphwright.ir import Graph, Node
from graphwright.ops import TRANSFORMS, transformed


def takes_key(node: Node) -> bool:
    """Tell whether a node is a call of `sorted`, `max` or `min` with a body as its key."""
    return node._target is transformed and node._args[0] in TRANSFORMS and TRANSFORMS[node._args[0]].form == "key"


def key_expression(writer: ReadableWriter, node: Node) -> tuple[str, int] | None:
    """Write a call with a key that is an expression; None where that takes statements."""
    transform, body, inputs, operands, options = node._args
    if not isinstance(body, Graph):
        return None
    parameter = next(inner for inner in body.nodes if inner._op == "placeholder")
    with writer.shadowing(body, operands):
        name = writer.fresh(parameter.name)
        inner = writer.body(body, [Expression(name), *operands], None)
        writer.names.release(name)
    if not inner.is_expression:
        return None
    texts = [*map(writer.value, inputs), f"key=lambda {name}: {inner.result_code[0]}"]
    writer.keywords(options, texts)
    return f"{writer.names.function(TRANSFORMS[transform].function)}({', '.join(texts)})", PRIMARY


def transform_block(writer: ReadableWriter, node: Node) -> Block:
    """Write a call of a transform: its body as a function that closes over what it uses from outside."""
    transform, body, inputs, operands, options = node._args
    if not isinstance(body, Graph) or transform not in TRANSFORMS:
        raise GraphError(f"{node.name!r} has a body that is no graph: it cannot be written", at=node.origin)
    if transform == "attempt":
        return attempt_block(writer, node)
    kind = TRANSFORMS[transform]
    placeholders = body.placeholders()
    count = len(placeholders) - len(operands)
    named = list(node._kwargs)  # passed by name: these keep it
    for keyword in named:
        writer.names.take(keyword)
    name = writer.fresh(_name_of(body, transform))
    signature = [*[writer.fresh(inner.name) for inner in placeholders[: count - len(named)]], *named]
    texts: list[Any] = [Expression(parameter) for parameter in signature]
    if kind.deferred or named:  # the variables around it may hold something else when it runs, or be hidden
        for placeholder, operand in zip(placeholders[count:], operands, strict=True):
            kept = writer.fresh(placeholder.name)
            signature.append(f"{kept}={writer.value(operand)}")
            texts.append(Expression(kept))
    else:
        texts += operands
    inner = writer.body(body, texts, None, role="function")
    function = writer.names.function(kind.function) if kind.form == "key" else _of_torch(writer, transform)
    if kind.form == "key":
        texts = [*map(writer.value, inputs), f"key={name}"]
        writer.keywords(options, texts)
        call = f"{function}({', '.join(texts)})"
    elif kind.form == "maker":
        call = f"{function}({_listed(name, writer.call((), options))})({writer.call(inputs, node._kwargs)})"
    else:
        call = f"{function}({_listed(name, writer.call(inputs, {**options, **node._kwargs}))})"
    definition = Clause("def", f"{name}({', '.join(signature)})", [inner])
    return Block([definition, plain(_statement(writer, node, call))], leaves=writer.returned is node)


def _of_torch(writer: ReadableWriter, transform: str) -> str:
    return writer.names.torch() + transform.removeprefix("torch")


def _statement(writer: ReadableWriter, node: Node, call: str) -> str:
    if writer.returned is node:
        return f"return {call}"
    unpacking = unpacking_of(node)
    items = None if unpacking is None else unpacked_items(unpacking)
    if items:
        return f"{unpacking_targets(writer, items)} = {call}"
    return f"{writer.name(node)} = {call}" if node.users else call


def _listed(name: str, rest: str) -> str:
    return f"{name}, {rest}" if rest else name


def _name_of(body: Graph, transform: str) -> str:
    """What the source calls the function that the body is, where it has a name."""
    output = body.find_nodes(op="output")
    origin = output[0].origin if output else None
    name = "" if origin is None else origin.function.rpartition(".")[2]
    wish = "key" if TRANSFORMS[transform].form == "key" else "body"
    return name if name.isidentifier() and name != "forward" else wish
