"""What the parts of the readable form ask of the writer of a body, and the statements that they make.

A branch holds bodies, a body holds loops, and each is written by its own part: they know this interface, and only
`body_writer.py`, which implements it and says what a method does, knows them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from graphwright.codegen.readable.splits import Slot, Split
from graphwright.codegen.spelling.arguments import Globals
from graphwright.ir import Graph, Node


@dataclasses.dataclass(slots=True)
class Clause:
    """`if test:` or the like with the body that it opens; without a keyword, lines that stand there by themselves."""

    keyword: str
    rest: str  # what stands between the keyword and the colon
    body: list[ReadableWriter | str]

    @property
    def header(self) -> str:
        """The line that opens the body."""
        return f"{self.keyword} {self.rest}:" if self.rest else f"{self.keyword}:" if self.keyword else ""


def plain(*body: ReadableWriter | str) -> Clause:
    """Make a clause of lines and bodies that nothing opens."""
    return Clause("", "", [*body])


@dataclasses.dataclass(slots=True)
class Block:
    """A compound statement."""

    clauses: list[Clause]
    leaves: bool = False  # whether nothing that comes after it is ever reached


@dataclasses.dataclass(slots=True)
class Statement:
    """What is written for a node: its code, a block for a branch or loop, and the named values that it reads."""

    node: Node
    code: str | Block
    reads: list[Node]


# What a body is: the program; a function in it, which may read the variables around it and has its own where it
# assigns any; a branch or loop that ends the program; part of a condition, written in one with what a function gives.
Role = Literal["program", "function", "end", "part", "step"]


class Ending(Protocol):
    """What becomes of the values that a body ends with."""

    @property
    def conditions(self) -> frozenset[int]:
        """The values of which nothing but their truth counts."""

    def pairs(self, values: Sequence[Any]) -> list[tuple[str, Any]]: ...
    def write(self, writer: ReadableWriter, values: Sequence[Any]) -> Block | str: ...


class ReadableWriter(Protocol):
    """Writes the body of a function, of a side of a branch, or of a loop."""

    graph: Graph
    nodes: list[Node]
    names: Globals

    # ---- how the body ends

    ending: Ending | None  # None where it returns
    slots: Sequence[Slot]  # where the values that it ends with come from
    is_test: bool  # whether it is the test of a loop, or part of a condition
    is_end: bool  # whether it ends with what the program, or a function in it, returns
    output: Node | None
    returned: Node | None  # the value that the function returns, where that is all that is done with it
    split: Split | None  # the branch whose sides end the body
    result_code: tuple[str, int]  # what it returns

    # ---- what is known of its values

    constants: dict[Node, Any]  # inputs that stand for a value that is no node
    inside: dict[Node, tuple[str, int]]  # expressions waiting to be written inside another
    without_variable: set[Node]  # expressions that have been written inside another
    texts: dict[Node, tuple[str, int]]  # how inputs of a body are written, and names that are not node.name
    expressions: dict[Node, tuple[str, int]]  # branches that are expressions
    tried: dict[Node, bool]  # of branches in all bodies: whether each is written as `p and a` or `p or a`
    statements: dict[Node, bool]  # whether branches with others inside are known to be no expressions
    exits: dict[Node, Node]  # which node leaves a context that another enters
    left_after: set[Node]  # those of them that leave a `with` block in which the body ends
    kept: set[Node]  # values that are variables around the body, or share one
    skipped: set[Node]  # nodes that are written elsewhere, as the header of a loop unpacks its items
    never: set[Node]  # what is False where the end is reached: a loop would have returned
    decided: dict[Node, Node]  # loops, each with the branch after it that is written with it
    renewed: set[Node]  # values of branches that have the variable of what they leave as it is
    mentions: dict[Node, Counter[Node]]  # how often nodes read each value, of those that were asked
    lists: dict[Node, Node]  # loops, each with the list that it makes as a comprehension
    appended: dict[Node, str]  # calls of `append`, each with what it appends

    # ---- what has been written

    plan: list[Statement]

    @property
    def is_outermost(self) -> bool: ...
    @property
    def is_expression(self) -> bool: ...
    def written(self) -> list[Statement]: ...

    # ---- values and expressions

    def name(self, node: Node) -> str: ...
    def holder(self, node: Node) -> Node: ...
    def stays_in_its_variable(self, node: Node) -> bool: ...
    def node(self, node: Node) -> tuple[str, int]: ...
    def value(self, arg: Any) -> str: ...
    def operand(self, arg: Any, strength: int) -> str: ...
    def negation(self, pred: Any) -> str: ...
    def call(self, args: Any, kwargs: Any) -> str: ...
    def keywords(self, kwargs: Any, texts: list[str]) -> None: ...
    def keep_inside(self, node: Node) -> None: ...
    def fresh(self, wish: str) -> str: ...
    def shadowing(self, body: Graph, operands: Sequence[Any]) -> contextlib.AbstractContextManager[None]: ...

    # ---- statements and bodies

    def bind_parameter(self, node: Node) -> str: ...
    def statement(self, node: Node) -> str: ...
    def block(self, node: Node) -> Block | None: ...
    def comprehension(self, loop: Node, made: Node) -> tuple[str, int] | None: ...
    def result(self, node: Node) -> str | Block: ...
    def body(
        self,
        graph: Graph,
        inputs: Sequence[Any],
        ending: Ending | None,
        slots: Sequence[Slot] = (),
        names: dict[Node, str] | None = None,
        role: Role = "step",
    ) -> ReadableWriter: ...

    # ---- questions about readers

    def readers(self, node: Node) -> list[Node]: ...
    def read_with(self, block: Node, held: Sequence[Node]) -> list[Node]: ...
    def ends_with_test(self, value: Node) -> bool: ...
    def is_and_or(self, node: Node) -> bool: ...
    def keeps_sizes(self, node: Node) -> bool: ...
