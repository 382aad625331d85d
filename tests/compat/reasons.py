"""Why the two packages may differ: each reason as a rewriting of both texts that makes them equal."""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tests.compat.agreement import Comparison

from graphwright.ops import RANDOM_FUNCTIONS

# A reason, and what it does to the text of a graph and its code; docs/differences.md has a row for each.
_REASONS: dict[str, Callable[[str, Any], str]] = {}


def _reason(name: str) -> Callable[[Callable[[str, Any], str]], Callable[[str, Any], str]]:
    return lambda rewrite: _REASONS.setdefault(name, rewrite)


@_reason("torch.Size stays torch.Size")
def _size(text: str, module: Any) -> str:
    return re.sub(
        r"torch\.Size\(([\[(][\d, ]*[\])])\)",
        lambda found: str(tuple(int(n) for n in re.findall(r"\d+", found[1]))),
        text,
    )


@_reason("a C function behind a Python function of its name")
def _hidden(text: str, module: Any) -> str:
    return re.sub(r"\btorch_(\w+)\(", r"torch.\1(", text)


@_reason("a function under its public name")
def _public(text: str, module: Any) -> str:
    return text.replace("torch._segment_reduce", "torch.segment_reduce")


@_reason("keyword-only parameters stay so, and the annotations of what decorators wrap")
def _signature(text: str, module: Any) -> str:
    text = re.sub(r"(def forward\(.*?)\*, (.*)", r"\1\2", text)
    text = re.sub(r"(def forward\(.*\)) -> .*:", r"\1:", text).replace("tuple[int,_]", "tuple[int,...]")
    return re.sub(r"torch(\.nn\.functional\.|\._C\._)(?=S[cw])", "", text)


@_reason("annotations that cannot be evaluated are left out")
def _unknown(text: str, module: Any) -> str:
    text = re.sub(r"(    %\w+) : '.*?' \[", r"\1 : [", text)
    return re.sub(r" : _\w+ =", " =", text)


@_reason("functions are wrapped without a line in the code")
def _wraps(text: str, module: Any) -> str:
    return re.sub(r"torch\.fx\S*\.wrap\(.*\)\n+", "", text)


@_reason("operators in place write")
def _in_place(text: str, module: Any) -> str:
    text = re.sub(r"operator\.i(\w+)\]", r"operator.\1]", text)
    return re.sub(r"(\w+) = (.+);  \1 (\S+)= (.+)", r"\1 = \2 \3 \4", text)


@_reason("tensors that a program makes and gives back are made in each call")
def _made(text: str, module: Any) -> str:
    for node in module.graph.nodes:
        if node.target == "clone" and str(node.args[0].target).startswith("_tensor_constant"):
            text = re.sub(rf"    %{node.name} :.*\n|    {node.name} = .*\n", "", text)
            text = re.sub(rf"\b{node.name}\b", node.args[0].name, text)
    return text


@_reason("the training flag is read when the module runs")
def _training(text: str, module: Any) -> str:
    flags = [node for node in module.graph.nodes if node.op == "get_attr" and node.target.split(".")[-1] == "training"]
    for node in flags:
        value = functools.reduce(getattr, node.target.split("."), module)
        text = re.sub(rf"    %{node.name} :.*\n|    {node.name} = .*\n", "", text)
        text = re.sub(rf"%{node.name}\b|\b{node.name}(?=[,)])", str(value), text)
    text = re.sub(r"    .*graphwright.runtime.guards.expect.*\n|    .*graphwright_runtime_guards_expect.*\n", "", text)
    return re.sub(r";  (\w+ = )+None", "", text)  # where values are freed


@_reason('the text of a value: `str(x.shape[0])`, `f"{n}"` outside of messages')
def _texts(text: str, module: Any) -> str:
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is str and not node.users:
            text = re.sub(rf"    %{node.name} :.*\n|    {node.name} = .*\n", "", text)
            of = rf"(?<=    %{node.args[0]} : \[num_users=)\d+"
            text = re.sub(of, lambda found: str(int(found[0]) - 1), text)
    return text


@_reason("outputs keep their class")
def _output_class(text: str, module: Any) -> str:
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is OrderedDict:
            held = ", ".join(f"{key!r}: {value}" for key, value in node.args[0])
            text = re.sub(rf"    %{node.name} :.*\n|    {node.name} = .*\n", "", text)
            text = re.sub(rf"return {node.name}\b", lambda found, held=held: f"return {{{held}}}", text)
    return text


REASONS = (*_REASONS, "random tensors are drawn anew at each call", "captured only here", "goes on after a branch")


def explain(comparison: Comparison) -> str:
    """Name the reasons for which a program's captures differ; empty where they do not suffice."""
    ours, theirs = comparison.ours, comparison.theirs
    if comparison.differs == ["only torch.fx refuses"]:
        return f"captured only here; torch.fx: {theirs.refusal}"
    if ours.module is None or theirs.module is None:
        goes_on = theirs.refusal in ("control flow", "iterates") and ours.module is None
        return "goes on after a branch" if goes_on else ""
    if "result" in comparison.differs:
        draws = any(node.target in RANDOM_FUNCTIONS for node in ours.module.graph.nodes if callable(node.target))
        is_frozen = any(node.op == "get_attr" for node in theirs.module.graph.nodes)
        return "random tensors are drawn anew at each call" if draws and is_frozen else ""
    left, right = f"{ours.text}\n{ours.code}", f"{theirs.text}\n{theirs.code}"
    used = []
    for reason, rewrite in _REASONS.items():
        before = left, right
        left, right = rewrite(left, ours.module), rewrite(right, theirs.module)
        if _differing_lines(left, right) != _differing_lines(*before):
            used.append(reason)
        if left == right:
            return "; ".join(used)
    return ""


def _differing_lines(left: str, right: str) -> int:
    return len(set(left.split("\n")) ^ set(right.split("\n")))
