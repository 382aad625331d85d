"""A captured module as one Python file to read, to keep and to change: a class for each distinct module."""

from __future__ import annotations

import io
import sys
import tokenize
from collections.abc import Iterator
from typing import Any

from torch import nn

from graphwright.codegen import WITHOUT_DEL, PythonCode, graph_to_readable_source
from graphwright.errors import ExportError
from graphwright.ir import Graph, Node, map_aggregate
from graphwright.ops import is_impure
from graphwright.runtime import (
    Entry,
    PackageSource,
    Stub,
    StubError,
    copied_graph,
    entry_points_of,
    is_guard,
    is_readable,
    new_object,
    refuse_forms,
    roll,
)


def source(gm: nn.Module, *, standalone: bool = False, original_classes: bool = False, comments: bool = True) -> str:
    """Write a captured module as the text of a Python file, as one would write it by hand.

    Of a nested capture (`trace(..., flat=False)`, `unflatten`) each distinct module is a class, with a constructor that
    makes what its forward uses, and that forward; equal modules have one class. The last class is the module itself:
    made without arguments, it takes the state_dict of `gm`. Buffers and tensors that no state_dict has are written with
    their values; a buffer of more values than one would read is part of the state of the file's module, and
    `gm.named_buffers()` has it. `comments` are the lines of the user's source.

    With `original_classes` the classes inherit from those of the program, and from nn.Module otherwise. A `standalone`
    file imports torch and Python's own modules alone: it checks nothing that the capture took for granted, and gives
    plain objects with the same attributes where the program gives objects of other libraries' classes.

    Raises ExportError for what no file can hold, with the node that needs it.

    >>> import torch
    >>> from graphwright import trace
    >>> class Double(nn.Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> class Twice(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.first, self.second = Double(), Double()
    ...     def forward(self, x):
    ...         return self.second(self.first(x))
    >>> print(source(trace(Twice(), torch.ones(2), flat=False), standalone=True, comments=False))
    \"\"\"Twice as it was captured: its program is `Twice.forward`.
    <BLANKLINE>
    The other classes are the modules in it.
    \"\"\"
    <BLANKLINE>
    import torch
    <BLANKLINE>
    <BLANKLINE>
    class Double(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
    <BLANKLINE>
        def forward(self, x):
            return x * 2
    <BLANKLINE>
    <BLANKLINE>
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Double()
            self.second = Double()
    <BLANKLINE>
        def forward(self, x):
            return self.second(self.first(x))
    <BLANKLINE>
    """
    if not entry_points_of(gm):
        raise ExportError(f"a {type(gm).__name__} has no graph", fix="capture it first: graphwright.trace(model, args)")
    programs = _Programs(standalone, comments)
    name = type(gm).__name__
    written = PackageSource(
        gm,
        name if name.isidentifier() else "Program",
        programs.of,
        loads_weights=False,
        original_classes=original_classes,
    )
    written.build()
    if standalone:
        _check_imports(written.text)
    return written.text


class _Programs:
    """The graphs and the code of captured modules, as the file has them."""

    def __init__(self, standalone: bool, comments: bool) -> None:
        self._standalone, self._comments = standalone, comments
        self._known: dict[tuple[str, int], tuple[Graph, PythonCode]] = {}
        self._stubs: dict[type, type[Stub | StubError]] = {}

    def of(self, module: nn.Module) -> list[tuple[Graph, PythonCode]]:
        """The programs of a module, one for each entry point; none for one that is not a captured one."""
        points = entry_points_of(module)
        if points:
            refuse_forms(module)
        return [self._program(module, entry) for entry in points.values()]

    def _program(self, module: nn.Module, entry: Entry) -> tuple[Graph, PythonCode]:
        known = self._known.get((entry.name, id(entry.graph)))
        if known is None:
            known = self._known[entry.name, id(entry.graph)] = self._written(module, entry)
        return known

    def _written(self, module: nn.Module, entry: Entry) -> tuple[Graph, PythonCode]:
        copied = copied_graph(entry.graph)
        copied.meta[WITHOUT_DEL] = True
        if self._standalone:
            for each in copied.all_graphs():
                _remove_guards(each)
                self._without_foreign_classes(each)
        roll(copied, module)
        code = graph_to_readable_source(copied, owner=module, name=entry.name, reads_tables=is_readable(module))
        if not self._comments:
            code = PythonCode(_without_comments(code.src), code.globals)
        return copied, code

    def _without_foreign_classes(self, graph: Graph) -> None:
        for node in graph.nodes:
            node.type = None if _is_foreign(node.type) else node.type
            if node.target is new_object and isinstance(node.args[0], type) and _is_foreign(node.args[0]):
                node.target, node.args = self._stub(node.args[0]), node.args[1:]
            elif isinstance(node.target, type) and _is_foreign(node.target):
                node.target = self._stub_called(node)
            node.args = map_aggregate(node.args, self._swapped)
            node.kwargs = map_aggregate(node.kwargs, self._swapped)

    def _swapped(self, value: Any) -> Any:
        return self._stub(value) if isinstance(value, type) and _is_foreign(value) else value

    def _stub_called(self, node: Node) -> type[Stub | StubError]:
        kind: Any = node.target
        if node.args and not issubclass(kind, Stub | BaseException):
            raise ExportError(
                f"the file cannot stand alone: {kind.__module__}.{kind.__qualname__} is called with values that the "
                "call does not name, and what it makes of them is its own",
                at=node.origin,
                fix="write it with standalone=False, or replace what needs it",
            )
        return self._stub(kind)

    def _stub(self, kind: type) -> type[Stub | StubError]:
        if issubclass(kind, Stub | StubError):
            return kind
        if kind not in self._stubs:
            facts: dict[str, Any] = {"stands_for": f"{kind.__module__}.{kind.__qualname__}"}
            if issubclass(kind, BaseException):
                facts["base"] = next(each for each in kind.__mro__ if each.__module__ == "builtins")
                self._stubs[kind] = type(kind.__name__, (StubError,), facts)
            else:
                self._stubs[kind] = type(kind.__name__, (Stub,), facts)
        return self._stubs[kind]


def _without_comments(text: str) -> str:
    """Python source without the lines that are comments or empty."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        token.start[0]
        for token in tokens
        if token.type in (tokenize.COMMENT, tokenize.NL) and not token.line[: token.start[1]].strip()
    }
    return "".join(line for i, line in enumerate(text.splitlines(keepends=True), start=1) if i not in lines)


def _remove_guards(graph: Graph) -> None:
    for node in reversed(list(graph.nodes)):
        if node.op in ("placeholder", "output") or node.users:
            continue
        if is_guard(node) or not is_impure(node):
            graph.erase_node(node)


def _is_foreign(value: Any) -> bool:
    """Tell whether an annotation or class is of a library other than Python's own and torch."""
    names = [
        getattr(value, "__module__", "builtins"),
        *[getattr(each, "__module__", "builtins") for each in _parts(value)],
    ]
    return any(name and name.partition(".")[0] not in _KNOWN for name in names if isinstance(name, str))


def _parts(annotation: Any) -> Iterator[Any]:
    for part in getattr(annotation, "__args__", ()):
        yield part
        yield from _parts(part)


_KNOWN = frozenset({*sys.stdlib_module_names, "torch"})


def _check_imports(text: str) -> None:
    for line in text.splitlines():
        words = line.split()
        if words[:1] in (["import"], ["from"]) and not line.startswith(" "):
            library = words[1].partition(".")[0]
            if library not in _KNOWN:
                raise ExportError(
                    f"the file cannot stand alone: {line}",
                    fix="write it with standalone=False, or replace what needs it",
                )
