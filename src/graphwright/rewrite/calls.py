"""The nodes of one captured module as rewriting sees them: by canonical call, by class of module, by key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torch import nn

from graphwright.ir import Node
from graphwright.ops import Call, functional_call, is_scratch_write, operator_of
from graphwright.runtime import read_attribute


class Calls:
    """What the nodes of a module call. An edit of a node is seen; modules are taken to stay what they are."""

    def __init__(self, gm: nn.Module) -> None:
        self._gm = gm
        self._modules: dict[str, nn.Module | None] = {}
        self._calls: dict[Node, tuple[Any, Any, Any, Call | None]] = {}
        self._never: dict[Any, tuple[bool, bool]] = {}
        self._keys: dict[Any, tuple[Hashable, ...]] = {}

    def module(self, node: Node) -> nn.Module | None:
        """The module that a call_module node calls; None for others."""
        if node.op != "call_module":
            return None
        path = str(node.target)
        if path not in self._modules:
            self._modules[path] = read_attribute(self._gm, path)
        return self._modules[path]

    def attribute(self, node: Node) -> Any:
        """What a get_attr node reads."""
        return read_attribute(self._gm, str(node.target))

    def of(self, node: Node) -> Call | None:
        """The call that a node makes, in canonical form; a module without parameters is as good as its function."""
        args, kwargs, target = node.args, node.kwargs, node.target
        known = self._calls.get(node)
        if known is not None and known[0] is args and known[1] is kwargs and known[2] is target:
            return known[3]
        call = functional_call(node, self.module(node))
        self._calls[node] = args, kwargs, target, call
        return call

    def keys(self, node: Node) -> tuple[Hashable, ...]:
        """What patterns may look for a node by."""
        op, target = node.op, node.target
        try:
            return self._keys[op, target]
        except KeyError:
            keys = self._keys[op, target] = self._make_keys(node)
            return keys
        except TypeError:  # without a hash
            return ()

    def _make_keys(self, node: Node) -> tuple[Hashable, ...]:
        if node.op == "call_module":
            module = self.module(node)
            kinds = [kind for kind in type(module).__mro__ if issubclass(kind, nn.Module)]
            call = self.of(node)
            return (*kinds, *([call.key] if call is not None else []))
        if node.op in ("call_function", "call_method"):
            operator = operator_of(node)
            exact = node.op, node.target
            return (exact,) if operator is None else (operator.key, exact)
        return ((node.op, node.target),)

    def never_writes(self, node: Node) -> bool:
        """Tell whether no call of what a node calls writes to an argument, but for `out=`; cheaper than the call."""
        try:
            return self._never[node._op, node._target][0]
        except (KeyError, TypeError):
            return self._is_never(node)[0]

    def never_draws(self, node: Node) -> bool:
        """Tell whether no call of what a node calls draws random numbers; cheaper than asking of the node."""
        return self._is_never(node)[1]

    def never_acts(self, node: Node) -> bool:
        """Tell whether a node surely neither writes in place nor draws random numbers; cheaper than asking of it."""
        return not node._kwargs and self._is_never(node) == (True, True)

    def _is_never(self, node: Node) -> tuple[bool, bool]:
        """Whether no call of this target ever writes in place, and whether none ever draws random numbers."""
        key = node._op, node._target
        try:
            return self._never[key]
        except KeyError:
            known = operator_of(node) if node.op != "call_module" else None
            if known is None:
                self._never[key] = False, False
            else:
                self._never[key] = not (known.writes or known.writes_if or known.acts), not (known.random or known.acts)
            return self._never[key]
        except TypeError:  # without a hash
            return False, False

    def writes_unseen(self, node: Node) -> bool:
        """Tell whether a node that writes in place writes to what nothing else reads."""
        return is_scratch_write(node, self.module)

    def text(self, node: Node) -> str:
        """What a node is, as it is told to people."""
        if node.op == "call_module":
            return f"a {type(self.module(node)).__name__}"
        if node.op in ("call_function", "call_method"):
            return f"a call of {getattr(node.target, '__name__', node.target)}"
        if node.op == "placeholder" and node.graph.owning_module is None:
            return "an input of a branch or loop, whose border no match crosses"
        return {"placeholder": "an input", "get_attr": "an attribute"}.get(node.op, "the output")
