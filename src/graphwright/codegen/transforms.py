"""A body that is given to a transform of torch: a nested function, and the call that gets it.

def body(v):
    return self.layer(v).sin()
y = torch.vmap(body, in_dims=1)(x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphwright.codegen.endings import Block, Text
from graphwright.codegen.nesting import unpacking_of
from graphwright.errors import GraphError
from graphwright.ir import Graph, Node
from graphwright.ops import TRANSFORMS

if TYPE_CHECKING:
    from graphwright.codegen.readable import _ReadableWriter

__all__ = ["transform_block"]


def transform_block(writer: _ReadableWriter, node: Node) -> Block:
    """Write a call of a transform: its body as a function that closes over what it uses from outside."""
    transform, body, inputs, operands, options = node._args
    if not isinstance(body, Graph) or transform not in TRANSFORMS:
        raise GraphError(f"{node.name!r} has a body that is no graph: it cannot be written", at=node.origin)
    kind = TRANSFORMS[transform]
    placeholders = [inner for inner in body.nodes if inner._op == "placeholder"]
    count = len(placeholders) - len(operands)
    named = list(node._kwargs)  # passed by name: these keep it
    for keyword in named:
        writer.names.take(keyword)
    name = _fresh(writer, _name_of(body))
    signature = [*[_fresh(writer, inner.name) for inner in placeholders[: count - len(named)]], *named]
    texts: list[Any] = [Text(parameter) for parameter in signature]
    if kind.deferred or named:  # the variables around it may hold something else when it runs, or be hidden
        for placeholder, operand in zip(placeholders[count:], operands, strict=True):
            kept = _fresh(writer, placeholder.name)
            signature.append(f"{kept}={writer.value(operand)}")
            texts.append(Text(kept))
    else:
        texts += operands
    inner = writer.body(body, texts, None)
    function = writer.names.torch() + transform.removeprefix("torch")
    if kind.form == "maker":
        call = f"{function}({_listed(name, writer.call((), options))})({writer.call(inputs, node._kwargs)})"
    else:
        call = f"{function}({_listed(name, writer.call(inputs, {**options, **node._kwargs}))})"
    lines: list[Any] = [inner]
    return Block(
        [(f"def {name}({', '.join(signature)}):", lines), ("", [_statement(writer, node, call)])],
        leaves=writer.returned is node,
    )


def _statement(writer: _ReadableWriter, node: Node, call: str) -> str:
    if writer.returned is node:
        return f"return {call}"
    unpacking = unpacking_of(node)
    if unpacking is not None:
        return writer.statement(unpacking).replace(f" = {writer.name(node)}", f" = {call}")
    return f"{writer.name(node)} = {call}" if node.users else call


def _listed(name: str, rest: str) -> str:
    return f"{name}, {rest}" if rest else name


def _name_of(body: Graph) -> str:
    """What the source calls the function that the body is, where it has a name."""
    output = body.find_nodes(op="output")
    origin = output[0].origin if output else None
    name = "" if origin is None else origin.function.rpartition(".")[2]
    return name if name.isidentifier() and name != "forward" else "body"


def _fresh(writer: _ReadableWriter, wish: str) -> str:
    name = writer.names.new(wish)
    writer.names.take(name)
    return name
