"""Steps that are one operation: a call of a function or method, a call of a module, the read of an attribute."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from torch import nn

from graphwright.ir import Node
from graphwright.ops import Call, is_untouched, positional_inputs
from graphwright.rewrite import words
from graphwright.rewrite.effects import WITHOUT_WRITES
from graphwright.rewrite.steps import Attempt, Step, Then, match_all, match_value, show

_WITH_INDEX = ("getitem", "setitem")  # lists are not tuples there, as the canonical form tells


class Operation(Step):
    """A call of a function or method, in whatever spelling."""

    def __init__(self, name: str, node: Node, call: Call | None, convert: Callable[[Any], Any]) -> None:
        self.name = name
        self.op, self.target = node.op, node.target
        self.key = call.key if call is not None else None
        self.call = call
        self.written = convert(node.args), convert(dict(node.kwargs))
        if call is not None:
            self.arguments = {parameter: convert(value) for parameter, value in call.arguments.items()}
        else:
            self.arguments = dict(zip(("args", "kwargs"), self.written, strict=True))

    def __repr__(self) -> str:
        return str(self.key or getattr(self.target, "__name__", self.target))

    def keys(self) -> set[Hashable] | None:
        return {self.key if self.call is not None else (self.op, self.target)}

    def inputs(self) -> Sequence[Any]:
        return list(self.arguments.values())

    def match(self, value: Any, attempt: Attempt, then: Then) -> bool:
        known = attempt.nodes.get(self)
        if known is not None:
            if known is value:
                return then()
            return attempt.no(lambda: f"{self} is {show(known)} already, and {show(value)} here", value)
        if type(value) is not Node:
            return attempt.no(lambda: f"{self} is wanted, and there is {show(value)}", value)
        if self.call is None:
            return self._match_unknown(value, attempt, then)
        is_spelled_so = value._op == self.op and value._target is self.target and self.key not in _WITH_INDEX
        if is_spelled_so and self._match_as_written(value, attempt, then):
            return True
        call = attempt.calls.of(value)
        if call is None or call.key != self.key:
            return attempt.no(lambda: f"{self} is wanted, and {show(value)} is {attempt.calls.text(value)}", value)
        if call.writes != self.call.writes and (self.call.writes or not attempt.calls.writes_unseen(value)):
            why = f"{show(value)} writes in place to what others may read"
            if call.writes and not self.call.writes:
                rest = functools.partial(self._match_arguments, value, call.arguments, call, attempt, then)
                attempt.bar(why, WITHOUT_WRITES, rest)
            return attempt.no(lambda: why, value)
        return self._match_arguments(value, call.arguments, call, attempt, then)

    def _match_as_written(self, value: Node, attempt: Attempt, then: Then) -> bool:
        """Match a call in the pattern's own spelling, for which nobody needs its canonical form."""
        args, kwargs = self.written
        there, given = value._args, value._kwargs
        if len(args) != len(there) or ((kwargs or given) and kwargs.keys() != given.keys()):
            return False
        attempt.nodes[self] = value
        if len(args) == 1 and not kwargs:
            if match_value(args[0], there[0], attempt, then):
                return True
        else:
            pairs = list(zip(args, there, strict=True))
            pairs += [(wanted, given[name]) for name, wanted in kwargs.items()]
            if match_all(pairs, 0, attempt, then):
                return True
        del attempt.nodes[self]
        return False

    def _match_unknown(self, value: Node, attempt: Attempt, then: Then) -> bool:
        if value.op != self.op or value.target != self.target:
            return attempt.no(lambda: f"{self} is wanted, and {show(value)} is {attempt.calls.text(value)}", value)
        return self._match_arguments(value, {"args": value.args, "kwargs": value.kwargs}, None, attempt, then)

    def _match_arguments(
        self, node: Node, arguments: Mapping[str, Any], call: Call | None, attempt: Attempt, then: Then
    ) -> bool:
        mine = self.arguments
        if mine.keys() != arguments.keys():
            other = sorted(mine.keys() ^ arguments.keys())
            return attempt.no(lambda: f"{show(node)} is called in another way: {', '.join(other)}", node)
        attempt.nodes[self] = node
        found = match_all([(wanted, arguments[name]) for name, wanted in mine.items()], 0, attempt, then)
        turns = call is not None and self.call is not None and call.commutative == self.call.commutative
        if not found and turns and call is not None and call.commutative is not None:
            first, second = call.commutative
            turned = {**arguments, first: arguments[second], second: arguments[first]}
            attempt.turned += 1
            found = match_all([(wanted, turned[name]) for name, wanted in mine.items()], 0, attempt, then)
            attempt.turned -= 1
        if not found:
            del attempt.nodes[self]
        return found


class ModuleStep(Step):
    """A call of a module by its class."""

    def __init__(self, name: str, word: words.ModuleOf, args: Any, kwargs: Any) -> None:
        self.name, self.word, self.args, self.kwargs = name, word, args, kwargs

    def __repr__(self) -> str:
        return repr(self.word)

    def keys(self) -> set[Hashable] | None:
        return set(self.word.classes)  # type: ignore[arg-type]  # a class has a hash

    def inputs(self) -> Sequence[Any]:
        return (self.args, self.kwargs)

    def match(self, value: Any, attempt: Attempt, then: Then) -> bool:
        known = attempt.nodes.get(self)
        if known is not None:
            return then() if known is value else attempt.no(lambda: f"{self} is {show(known)} already", value)
        if type(value) is not Node or value.op != "call_module":
            return attempt.no(lambda: f"{self} is wanted, and {show(value)} is {attempt.calls.text(value)}", value)
        module = attempt.calls.module(value)
        if not any(_is_of(module, kind) for kind in self.word.classes):
            return attempt.no(lambda: f"{self} is wanted, and {value.target} is a {type(module).__name__}", value)
        if module is None or not is_untouched(module):
            return attempt.no(lambda: f"{value.target} has hooks or a forward of its own", value)
        attempt.nodes[self] = value
        attempt.paths[self.word.name] = str(value.target)
        wanted = positional_inputs(module, self.args, self.kwargs)
        pairs = list(zip(wanted, positional_inputs(module, value.args, value.kwargs), strict=True))
        if attempt.bind(self.word.name, module, lambda: match_all(pairs, 0, attempt, then)):
            return True
        del attempt.nodes[self]
        return False


class Attribute(Step):
    """A buffer or other attribute by its path; a parameter of the pattern's own module is any parameter."""

    def __init__(self, name: str, path: str, is_parameter: bool = False) -> None:
        self.name, self.path, self.is_parameter = name, path, is_parameter

    def __repr__(self) -> str:
        return self.path

    def keys(self) -> set[Hashable] | None:
        return None if self.is_parameter else {("get_attr", self.path)}

    def match(self, value: Any, attempt: Attempt, then: Then) -> bool:
        known = attempt.nodes.get(self)
        if known is not None:
            return then() if known is value else attempt.no(lambda: f"{self} is {show(known)} already", value)
        if not self._may_be(value, attempt):
            return attempt.no(lambda: f"the attribute {self} is wanted, and there is {show(value)}", value)
        attempt.nodes[self] = value
        if then():
            return True
        del attempt.nodes[self]
        return False

    def _may_be(self, value: Any, attempt: Attempt) -> bool:
        if type(value) is not Node or value.op != "get_attr":
            return False
        return value.target == self.path or (
            self.is_parameter and isinstance(attempt.calls.attribute(value), nn.Parameter)
        )


def _is_of(module: Any, kind: type[nn.Module]) -> bool:
    return isinstance(module, kind) and (kind is nn.Module or type(module).forward is kind.forward)
