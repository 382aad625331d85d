"""Code generation that users change: another signature, another `return`, another body.

A `CodeGen` belongs to a graph. The plain one, which every graph has until another is set, changes nothing, and
`function.py` writes the graph alone; one that overrides a method, or that has a body transformer, is asked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from inspect import signature
from types import TracebackType
from typing import Any

from graphwright.codegen.details import DetailedWriter, Details, node_comment
from graphwright.codegen.function import Writer, last_uses
from graphwright.codegen.python_code import PythonCode
from graphwright.codegen.regions import region_exits
from graphwright.ir import Graph, Node, NodeList

TransformCode = Callable[[list[str]], list[str]]

_COUNTER = re.compile(r"# COUNTER: (\d+)")


class CodeGen:
    """How a graph is written as a function: subclass it, and `graph.set_codegen(...)`.

    - `gen_fn_def` writes the `def` line, and what follows it before the body.
    - `generate_output` writes the `return` statement.
    - `additional_globals` gives names that these two use.
    - `process_inputs` and `process_outputs` do for `Interpreter` what the text of these two does for the code.

    >>> class OneList(CodeGen):
    ...     def gen_fn_def(self, free_vars, maybe_return_annotation):
    ...         return f"def forward(self, items){maybe_return_annotation}:\\n    {', '.join(free_vars)} = items"
    ...
    ...     def process_inputs(self, *inputs):
    ...         return inputs[0]
    >>> import graphwright
    >>> gm = graphwright.symbolic_trace(lambda a, b: a + b)
    >>> gm.graph.set_codegen(OneList())
    >>> gm([1, 2])
    3
    """

    def __init__(self) -> None:
        self._body_transformer: TransformCode | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """Write the `def` line for these parameters, given as text; the module itself is added as `self`."""
        parameters = free_vars if free_vars[:1] == ["self"] else ["self", *free_vars]
        inside = "".join(f"\n    {text}," for text in parameters) + "\n" if expanded_def else ", ".join(parameters)
        return f"def {self._func_name}({inside}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] | None = None) -> str:
        """Write the `return` statement; `repr_fn` writes a value as an expression."""
        return f"return {(repr_fn or repr)(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """Turn the arguments of a call into one value per placeholder."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """Turn what the output node returns into what a call returns."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Return names that the generated text uses, each with its value."""
        return []

    def _gen_python_code(
        self, nodes: NodeList, root_module: str, namespace: Any = None, *, expanded_def: bool = False, **details: Any
    ) -> PythonCode:
        """Write a graph, asking the methods above for their parts.

        `namespace` is taken for torch.fx's sake: no global name is ever that of a value. `details` are those of
        `Details`.
        """
        writer = DetailedWriter(nodes._graph, root_module, Details(**details))
        body = _body(writer, self)
        if self._body_transformer is not None:
            body = self._body_transformer(body)
        for name, value in self.additional_globals():
            writer.names.add(name, value)
        header = self._header(writer, expanded_def)
        lines: list[str] = []
        numbers: list[int | None] = []
        number: int | None = None
        text = "".join(body)
        if not _COUNTER.sub("", text).strip():
            text = f"{text}pass\n"
        for line in text.split("\n"):
            counter = _COUNTER.fullmatch(line)
            if counter:
                number = int(counter.group(1))
            else:
                lines.append(f"    {line}")
                numbers.append(number)
        start = header.count("\n") + 1
        src = "\n\n\n" + header + "\n" + "\n".join(lines)
        return PythonCode(
            src,
            writer.names.values,
            dict(enumerate(numbers, start)),
            4,
            first=4 + start,
            statements=[None if n is None else writer.nodes[n] for n in numbers[:-1]],
            nodes=writer.nodes,
        )

    def _header(self, writer: Writer, expanded_def: bool) -> str:
        if type(self).gen_fn_def is CodeGen.gen_fn_def and not expanded_def:
            return writer.header(self._func_name).strip("\n")
        returned = writer.returned_annotation()
        return _call(self.gen_fn_def, writer.parameter_list(), returned, expanded_def=expanded_def)


def _call(method: Callable[..., str], *args: Any, **options: Any) -> str:
    """Call what a user may have overridden, with the options that its signature names."""
    known = signature(method).parameters
    return method(*args, **{name: value for name, value in options.items() if name in known})


def _body(writer: DetailedWriter, codegen: CodeGen) -> list[str]:
    """Write the statements, each after a line that says the number of its node, in the pieces that torch.fx has."""
    details = writer.details
    begin, end = writer.recorded("ENTER_GRAPH_PLACEHOLDER_KEY", "_rf") if details.record_func else ("", "")
    body: list[str] = [begin] if begin else []
    free = last_uses(writer.nodes)
    exits = region_exits(writer.nodes)
    closing = {exit_node: enter for enter, exit_node in exits.items()}
    indent = comment = ""
    for number, node in enumerate(writer.nodes):
        if details.verbose and node._op not in ("placeholder", "output"):
            before, comment = comment, node_comment(node, details)
            if comment != before:
                is_first = len(body) == number  # there are only the counters of the nodes before it
                blank = "" if is_first and not before else "\n"
                body.append(f"{blank}{comment}\n")
        body.append(f"# COUNTER: {number}\n")
        if node._op == "placeholder":
            text = writer.bind_parameter(node)
            if text:
                body.append(f"{text}\n")
        elif node in exits:
            body.append(f"{indent}with {writer.function_call(node._args[0], node._args[1:], node._kwargs)[0]}:\n")
            indent += "    "
        elif node in closing:
            if writer.nodes[number - 1] is closing[node]:
                body.append(f"{indent}pass\n")
            indent = indent[:-4]
        elif node._op == "output":
            result = node._args[0] if node._args else None
            body += [_call(codegen.generate_output, result, repr_fn=writer.value), "\n"]
            break
        else:
            body += _statement(writer, node, number, free.get(node), indent)
    return [*body, end] if end else body


def _statement(writer: DetailedWriter, node: Node, number: int, dead: list[Node] | None, indent: str) -> Iterator[str]:
    """Write what computes a node and frees values, within a range of the profiler where calls are recorded."""
    freed = writer.details.paint("dim", f"{' = '.join([used.name for used in dead])} = None") if dead else ""
    is_recorded = writer.details.record_func and node._op != "get_attr"
    begin, end = writer.recorded(number, f"_rf_{node.name}") if is_recorded else ("", "")
    if is_recorded:
        yield indent + begin
    yield indent + writer.statement(node)
    yield f";  {freed}\n" if dead else "\n"
    if is_recorded:
        yield indent + end


def is_plain(codegen: CodeGen | None) -> bool:
    """Tell whether this one changes nothing about how a graph is written."""
    return codegen is None or (
        type(codegen) is CodeGen and codegen._body_transformer is None and codegen._func_name == "forward"
    )


class _Restoring:
    """Puts a body transformer back at the end of a `with` block; the code that was made inside stays as it is."""

    def __init__(self, codegen: CodeGen, before: TransformCode | None) -> None:
        self._codegen = codegen
        self._before = before

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._codegen._body_transformer = self._before


def on_generate_code(graph: Graph, make_transformer: Callable[[TransformCode | None], TransformCode]) -> _Restoring:
    """Have a function change the lines of the generated body.

    `make_transformer` gets the transformer set before, or None, and returns the new one, which takes the body as a
    list of pieces of text and returns such a list. Used as a context manager, it holds only for code that is
    generated inside the block.

    >>> import graphwright
    >>> gm = graphwright.symbolic_trace(lambda x: x + 1)
    >>> _ = gm.graph.on_generate_code(lambda before: lambda body: ["print('called')\\n", *body])
    >>> gm(2)
    called
    3
    """
    codegen: CodeGen = graph._codegen  # type: ignore[attr-defined]
    before = codegen._body_transformer
    codegen._body_transformer = make_transformer(before)
    graph._edited()
    return _Restoring(codegen, before)
