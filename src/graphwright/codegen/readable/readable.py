"""A graph as Python that a person would write: the form of captures that know their source.

    # BertSelfOutput.forward (modeling_bert.py), encoder.layer.0.output
    # 294: hidden_states = self.dense(hidden_states)
    hidden_states = self.encoder.layer[0].output.dense(context);  del context

Statements follow the user's: values are named as the source names them, and an operation whose value the source does
not name, and which one other operation of the same statement reads, is written inside that one (nesting.py). The order
of evaluation is exactly the order of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from graphwright.codegen.python_code import PythonCode
from graphwright.codegen.spelling.wrapping import wrap
from graphwright.ir import Graph, Node

if TYPE_CHECKING:
    from graphwright.codegen.readable.body_writer import BodyWriter

WITHOUT_DEL = "without_del"  # in the meta of a graph whose code frees no variables


def graph_to_readable_source(
    graph: Graph,
    root: str = "self",
    name: str = "forward",
    owner: Any = None,
    first: Callable[[BodyWriter], Iterable[str]] | None = None,
    reads_tables: bool = False,
    variables: Mapping[str, str] = MappingProxyType({}),
    binds: Callable[[BodyWriter, Sequence[str], Sequence[str]], str] | None = None,
    always_binds: bool = False,
) -> PythonCode:
    """Write a graph as the source of a function, statements grouped and commented as in the user's program.

    `owner` is the module that the graph belongs to: it tells where `layer.0` may be written `layer[0]`. With
    `reads_tables`, modules of the owner whose names stand after no dot are read in its table. `first` gives the
    statements before all others, from the writer. `variables` are what `first` assigns: by the path of a tensor or
    other attribute, the name that its variable is to have, or `held.name` for an attribute of the variable that stands
    for the path `held`, which comes before. `binds` writes an expression for modules to call and others to read of, by
    their paths: what runs then has them in variables, assigned in the place of the first statement of `first`, which
    checks them. With `always_binds` the expression is evaluated also where there are no such modules, for its checks. A
    `del` follows the last use of each variable, unless the meta of the graph has WITHOUT_DEL.
    """
    from graphwright.codegen.readable.body_writer import BodyWriter  # captures write nothing
    from graphwright.codegen.readable.callees import Callees
    from graphwright.codegen.readable.lines import lines_of

    callees = None if binds is None else Callees()
    writer = BodyWriter(graph, root, owner, reads_tables, variables, callees)
    writer.make_plan()
    lines = lines_of(writer, WITHOUT_DEL not in graph.meta)
    header = f"\n\n\n{wrap(writer.header(name).strip(), '')}\n"
    opening = [_wrapped(text) for text in (*([] if first is None else first(writer)), *writer.paths.tables())]
    if lines and not opening:
        lines[0].comment = lines[0].comment.removeprefix("\n")
    nodes: list[Node | None] = [None] * sum(text.count("\n") + 1 for text in opening)
    for line in lines:
        nodes += [None] * line.comment.count("\n") + [line.node] * (line.text.count("\n") + 1)
    body = "".join(f"{line.comment}{line.text}\n" for line in lines)
    body = "".join(f"    {text}\n" for text in opening) + body
    run = ""
    if callees is not None and binds is not None:
        run, called, read = callees.run(body)
        modules = binds(writer, [*called.values()], [*read.values()])
        must_bind = called or read or (always_binds and first is None)
        run = _bound(run, [*called, *read], modules, first is not None) if must_bind else ""
        run, body = f"{header}{run}" if run else "", callees.shown(body)
    return PythonCode(
        f"{header}{body or '    pass'}",
        writer.names.values,
        _prologue_start=4,
        first=header.count("\n") + 1,
        statements=nodes,
        nodes=writer.nodes,
        run=run,
    )


def _wrapped(text: str) -> str:
    """Break a statement that has an indentation of its own, inside of a function."""
    text, own = text.lstrip(), " " * (len(text) - len(text.lstrip()))
    return own + wrap(text, f"    {own}")


def _bound(body: str, names: Iterable[str], modules: str, is_instead: bool) -> str:
    """Begin a body with the assignment of modules to variables, so that no other line moves; "" where that cannot be.

    It stands in the place of the first line, if that checks the modules or says nothing, or before it.
    """
    line, _, rest = body.partition("\n")
    text = line.strip()
    variables = "".join(f"{name}, " for name in names)
    assignment = f"    {variables.rstrip()} = {modules}" if variables else f"    {modules}"
    if is_instead or not text or text.startswith("#"):
        return f"{assignment}\n{rest}"
    return f"{assignment}; {text}\n{rest}" if text.split(maxsplit=1)[0] not in _COMPOUND else ""


_COMPOUND = ("if", "for", "while", "with", "try:", "def", "async", "match", "class")


def readable_source(gm: Any, path: str, root: str = "self") -> str:
    """Return the generated lines of one submodule: those whose operations ran inside the module at this path.

    Raises ValueError where no operation of the graph ran there.
    """
    from graphwright.codegen.readable.body_writer import BodyWriter
    from graphwright.codegen.readable.lines import lines_of

    writer = BodyWriter(gm.graph, root, gm)
    writer.make_plan()
    chosen = [line.comment + line.text for line in lines_of(writer) if _is_inside(line.node, path)]
    if not chosen:
        raise ValueError(f"no operation of the graph ran inside {path!r}")
    return "\n".join(chosen).lstrip("\n")


def _is_inside(node: Node, path: str) -> bool:
    origin = node.origin
    return origin is not None and (origin.module == path or origin.module.startswith(path + "."))
