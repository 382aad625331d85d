"""`script`: a program's source in, a captured module out, without example inputs."""

from __future__ import annotations

import ast
import inspect
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

from torch import nn

from graphwright.capture import LeafModules, Subject, erase_unused, leaf_predicate, placeholder_of, share_constants
from graphwright.errors import CaptureError, Problem, ScriptError
from graphwright.ir import Graph
from graphwright.runtime import (
    CaptureFacts,
    Entry,
    GraphModule,
    copy_tensors,
    expect_kinds,
    expect_outside,
    expect_state,
    keep_facts,
    keep_forwards,
    keep_modules,
)
from graphwright.script.annotations import type_from_annotation, type_of_constant
from graphwright.script.calls.inlining import declared_type, inline, modifier_of
from graphwright.script.compiler import Compiler
from graphwright.script.program.attribute_writes import written_elsewhere
from graphwright.script.program.attributes import Attributes
from graphwright.script.program.context import Context
from graphwright.script.program.frames import Code, Frame, Scope, code_of
from graphwright.script.program.values import BAD, ModuleRef, Runtime, Value, constant
from graphwright.script.types import (
    NONE,
    STR,
    TENSOR,
    DictType,
    ListType,
    OptionalType,
    Type,
    accepts,
    class_of,
)
from graphwright.source import definition_line, why_no_definition


def script(root: nn.Module | Callable[..., Any], *, leaf_modules: LeafModules = (), copy: bool = False) -> GraphModule:
    """Compile a module or function from its source: every `if`, `while` and `for` stays one.

    Nothing is run and no inputs are needed. Parameters are tensors unless their annotation, or a default that is a
    number or a text, says otherwise; functions and modules that are called are compiled, too, the layers of torch.nn
    are one node each. The result is an instance of the program's own class, as `trace` gives it. Methods marked by
    `export` are further entry points.

    `leaf_modules` says which modules are one node, and with `copy` the result has parameters of its own: see `trace`.

    Raises ScriptError with everything that is wrong, each with the line, a caret under it, and what to write instead.

    >>> def halve(x, times: int = 1):
    ...     for _ in range(times):
    ...         if x.max() < 1:
    ...             break
    ...         x = x / 2
    ...     return x
    >>> import torch
    >>> script(halve)(torch.tensor([8.0, 2.0]), times=9)
    tensor([0.5000, 0.1250])
    """
    if not isinstance(root, nn.Module) and not callable(root):
        raise CaptureError(
            f"cannot script a {type(root).__name__}: it is neither an nn.Module nor callable",
            fix="pass the model itself",
        )
    subject = Subject(root)
    is_leaf = leaf_predicate(leaf_modules) if leaf_modules is None else _or_layer(leaf_predicate(leaf_modules))
    problems: list[Problem] = []
    entries: list[Entry] = []
    names = _entry_names(root)
    if isinstance(root, nn.Module) and names == ["forward"] and not _has_forward(root):
        raise CaptureError(f"{type(root).__name__} has no forward", fix="script the module that calls this one")
    attributes = Attributes(subject.root_module, names)
    while not entries or attributes.needs_another_round():
        attributes.start()
        problems.clear()
        entries = [subject.entry(name, _compiled(subject, name, is_leaf, problems, attributes)) for name in names]
    if problems:
        raise ScriptError(
            sorted(problems, key=lambda problem: (problem.file, problem.line, problem.column)), subject.name("forward")
        )
    share_constants(entry.graph for entry in entries)
    module = subject.module_of(entries)
    for entry in entries:
        entry.graph.lint()
    if copy:
        copy_tensors(module)
    return module


def _or_layer(is_leaf: Callable[[nn.Module, str], bool]) -> Callable[[nn.Module, str], bool]:
    """Have modules that inherit the forward of one of torch's layers be one node, too."""

    def keeps(module: nn.Module, path: str) -> bool:
        forward = type(module).forward
        is_layer = forward.__module__.startswith("torch.nn.modules.") and forward is not nn.Module.forward
        return is_leaf(module, path) or (is_layer and not isinstance(module, nn.Sequential))

    return keeps


def _entry_names(root: Any) -> list[str]:
    """The methods to compile: `forward`, and those that are marked."""
    if not isinstance(root, nn.Module):
        return ["forward"]
    marked = [
        name
        for kind in reversed(type(root).__mro__)
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType) and modifier_of(value) == "export" and name != "forward"
    ]
    return [*(["forward"] if _has_forward(root) or not marked else []), *dict.fromkeys(marked)]


def _has_forward(root: nn.Module) -> bool:
    return type(root).forward is not nn.Module.forward or "forward" in root.__dict__


def _compiled(
    subject: Subject,
    name: str,
    is_leaf: Callable[[nn.Module, str], bool],
    problems: list[Problem],
    attributes: Attributes,
) -> Graph:
    """Compile one entry point."""
    started = time.perf_counter()
    root = subject.root_module
    function, signature = subject.function(root, name), subject.signature(name)
    c = Context(Compiler(), root, is_leaf, attributes)
    arguments: list[Value] = []
    plain: Any = function
    if inspect.ismethod(plain) and root is not None and plain.__self__ is root:
        arguments, plain = [ModuleRef(root, "")], plain.__func__
    original = inspect.unwrap(plain)
    code = code_of(original) if isinstance(original, FunctionType) else None
    if code is None:
        why = why_no_definition(original) if isinstance(original, FunctionType) else ""
        raise CaptureError(
            why if "not what runs" in why else f"{subject.name(name)} has no source that can be scripted",
            fix="trace it with example inputs: trace(model, args)",
        )
    c.surroundings.take_code(original)
    if root is not None and name == "forward":
        c.surroundings.take_forward(root)
    frame = c.frame = Frame(code, Scope("", type(root) if root is not None else None))
    given = _parameters(c, signature, original, code, len(arguments))
    parameters = signature.parameters.values()
    keyword_only = {each.name for each in parameters if each.kind not in _BY_PLACE}
    if not c.problems:
        arguments += [value for key, value in given.items() if key not in keyword_only]
        words = {key: value for key, value in given.items() if key in keyword_only}
        try:
            value = _run(c, frame, plain, original, code, arguments, words)
        except RecursionError:
            raise CaptureError(
                f"{subject.name(name)} calls itself, or what it calls does, without an end that is known",
                fix="write a loop, or trace it with example inputs: trace(model, args)",
            ) from None
        _check_made(c)
        if not c.problems:
            _finish(c, frame, value, subject.name(name))
    problems += c.problems
    graph = c.body.graph
    if not c.problems:
        graph.constants = dict(c.constants)
        erase_unused(graph)
        keep_modules(graph, c.premises)
        keep_forwards(graph, c.surroundings.forwards, (), c.surroundings.codes())
        calls = sum(node.op.startswith("call_") for node in graph.all_nodes())
        seconds = time.perf_counter() - started
        keep_facts(graph, CaptureFacts("scripted", 1, 1, seconds, calls, 0, (), definition_line(original)))
    return graph


def _check_made(c: Context) -> None:
    """Note where the program reads what making one of its objects changes: a constant would be what it was before."""
    for kind, node in c.made.items():
        for name in sorted(written_elsewhere(kind)):
            if c.surroundings.reads(name):
                what = f"the program reads {name!r}, which code of {kind.__name__} writes"
                c.problem(what, node, "keep it in a module: self.count")


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(c: Context, signature: inspect.Signature, function: Any, code: Code, skipped: int) -> dict[str, Value]:
    """Make the parameters of the program, with the types that are declared for them."""
    definition = code.definition.args
    found: dict[str, Value] = {}
    starred = [arg for arg in (definition.vararg, definition.kwarg) if arg is not None]
    every = (*definition.posonlyargs, *definition.args, *definition.kwonlyargs, *starred)
    by_name = {arg.arg: arg for arg in every}
    for parameter in signature.parameters.values():
        kind = _declared(c, by_name.get(parameter.name), function, code, parameter)
        if parameter.kind is parameter.VAR_POSITIONAL:
            kind = ListType(kind)
        elif parameter.kind is parameter.VAR_KEYWORD:
            kind = DictType(STR, kind)
        node = placeholder_of(c.body.graph, parameter)
        found[parameter.name] = Runtime(node, kind)
        c.declared[parameter.name] = kind
    return found


def _declared(c: Context, arg: ast.arg | None, function: Any, code: Code, parameter: inspect.Parameter) -> Type:
    """The type of a parameter: its annotation, else what its default is, else a tensor."""
    default = parameter.default
    written = None if arg is None else code.annotation(arg.arg)
    if arg is None or written is None:
        if default is parameter.empty:
            return TENSOR
        return OptionalType(TENSOR) if default is None else type_of_constant(default)
    annotation = function.__annotations__.get(arg.arg)
    try:
        if annotation is None or isinstance(annotation, str):
            annotation = code.outside.evaluate(written)
    except Exception as error:
        what = f"this annotation cannot be resolved: {error}"
        c.problem(what, arg.annotation or arg, "import its names at the top of the module")
        return TENSOR
    kind = type_from_annotation(annotation)
    if kind is None:
        c.problem(
            "this annotation is no type of scripted programs",
            arg.annotation or arg,
            "use Tensor, int, List[...], Optional[...]",
        )
        return TENSOR
    if default is None and not accepts(kind, NONE):
        return OptionalType(kind)
    return kind


def _run(
    c: Context, frame: Frame, plain: Any, original: Any, code: Code, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Compile the function of the entry point."""
    if plain is not original:
        for arg in (code.definition.args.vararg, code.definition.args.kwarg):
            if arg is not None:
                return c.problem(f"`{arg.arg}` takes any number of arguments, through a decorator", arg, "name them")
        return inline(c, plain, args, kwargs, code.definition)
    parameters = code.definition.args
    places = [arg.arg for arg in (*parameters.posonlyargs, *parameters.args)]
    frame.names.update(zip(places, args, strict=True))
    frame.names.update(kwargs)
    frame.returns = declared_type(original, code, "return")
    kinds = c.parts.block(c, code.body)
    if "return" not in kinds:
        return constant(None)
    return frame.names["$result"]


def _finish(c: Context, frame: Frame, value: Value, name: str) -> None:
    """Write the output, and the checks of what types have decided."""
    if value is BAD:
        return
    graph = c.body.graph
    output = graph.output(c.argument(value))
    returned = frame.names.get("$at")
    output.origin = getattr(returned, "value", None)
    first = next(node for node in graph.nodes if node.op != "placeholder")
    if c.constant_attributes:
        with graph.inserting_before(first):
            facts = [
                (f"the attribute {path!r}", graph.get_attr(path), known)
                for path, known in c.constant_attributes.items()
                if known == known
            ]
            graph.call_function(expect_state, (name, *facts))
    if c.checked:
        kinds = {}
        for parameter, kind in c.checked.items():
            python = class_of(kind)
            if python is not None:
                node = next(node for node in graph.nodes if node.op == "placeholder" and node.target == parameter)
                kinds[parameter] = (node, python)
        if kinds:
            with graph.inserting_before(first):
                graph.call_function(expect_kinds, (name,), kinds)
    outside = c.surroundings.outside()
    if outside is not None:
        with graph.inserting_before(first):
            graph.call_function(expect_outside, (name, outside), name="guard")
