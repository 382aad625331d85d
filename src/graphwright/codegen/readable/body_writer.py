"""The writer of a body: expressions inside one another, statements, and the bodies of branches and loops.

It knows the parts that write branches, loops and the like; they know it by the interface in writer.py.
"""

from __future__ import annotations

import contextlib
import operator
import re
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from graphwright.codegen.function import Writer, is_plain_name
from graphwright.codegen.readable.assignments import mentions
from graphwright.codegen.readable.branches import branch_block, branch_expression, is_and_or
from graphwright.codegen.readable.callees import Callees
from graphwright.codegen.readable.comprehensions import comprehension, comprehensions
from graphwright.codegen.readable.endings import NextRound, Returns, Tests
from graphwright.codegen.readable.expressions import AnyNot, Expression, Negation, Truth, in_place, tested
from graphwright.codegen.readable.f_strings import f_string
from graphwright.codegen.readable.loops import loop_block, name_initial_values
from graphwright.codegen.readable.nesting import assigns_attribute, is_statement, statements_of
from graphwright.codegen.readable.paths import Paths
from graphwright.codegen.readable.splits import (
    Outside,
    Slot,
    Split,
    bare_conditions,
    is_returned,
    last_inside,
    split_at_end,
    split_where_returned,
    values_of,
)
from graphwright.codegen.readable.transforms import key_expression, takes_key, transform_block
from graphwright.codegen.readable.unpacking import takes_rows, unpacked_inside, unpacked_items, unpacking_targets
from graphwright.codegen.readable.user_statements import is_from_if, is_from_return
from graphwright.codegen.readable.variables import (
    base_of,
    first_holder,
    is_overwritten,
    is_read_besides,
    named_in_place,
    reassigned,
)
from graphwright.codegen.readable.writer import Block, Ending, Role, Statement
from graphwright.codegen.regions import region_exits
from graphwright.codegen.spelling.arguments import argument, subscript
from graphwright.codegen.spelling.operators import ATOM, COMPARISON, INPLACE, NOT, PRIMARY
from graphwright.ir import Graph, Node, immutable_dict, immutable_list, nodes_in
from graphwright.ops import (
    cond,
    ends_by_raising,
    evaluated,
    is_impure,
    is_loop,
    is_region,
    raise_error,
    transformed,
    write_attribute,
    write_variable,
    written_and_given,
)


class BodyWriter(Writer):
    """Writes expressions inside one another, containers by subscript, and statements with comments."""

    equals = "="
    colon = ": "

    def __init__(
        self,
        graph: Graph,
        root: str,
        owner: Any,
        reads_tables: bool = False,
        variables: Mapping[str, str] = types.MappingProxyType({}),
        callees: Callees | None = None,
    ) -> None:
        super().__init__(graph, root, short=True)
        self.owner = owner
        self.callees = callees  # what marks the modules that are called; None: they are looked up as they are shown
        self.paths = Paths(self.root, owner, self._new_table() if reads_tables else "", self.getattr)
        self.variables: dict[str, str] = {}  # attributes, by path
        for path, wish in variables.items():
            held, dot, name = wish.rpartition(".")
            self.variables[path] = f"{self.variables[held]}.{name}" if dot else self._new_name(wish)
        self.ending: Ending | None = None
        self.slots: Sequence[Slot] = ()
        self.role: Role = "program"
        self.is_test = False
        self.tried: dict[Node, bool] = {}  # of branches in all bodies: whether each is written as `p and a` or `p or a`
        self.statements: dict[Node, bool] = {}  # whether branches with others inside are known to be no expressions
        self._prepare()
        for node in [node for node in self.renamed if node._target in _UNUSED_BUILTINS]:
            self.renamed.remove(node)
            self.names.release(node.name)
            self.texts[node] = str(node._target), ATOM
        name_initial_values(self)

    def _prepare(self) -> None:
        self.constants: dict[Node, Any] = {}  # inputs that stand for a value that is no node
        self.inside: dict[Node, tuple[str, int]] = {}  # expressions waiting to be written inside another
        self.without_variable: set[Node] = set()  # expressions that have been written inside another
        self.negated: dict[Node, str] = {}  # what `not` makes of some of these: `a is not b`, `a not in b`
        # How inputs of a body are written, and names that are not node.name.
        self.texts: dict[Node, tuple[str, int]] = {}
        self.renumbered: set[Node] = set()  # those that are not node.name only because another value is called that
        self.kept: set[Node] = set()  # values that are variables around the body, or share one
        self.skipped: set[Node] = set()  # nodes that are written elsewhere, as the header of a loop unpacks its items
        self.given: dict[Node, Any] = {}  # inputs of a body, each with what it is around the body
        self.around: BodyWriter | None = None
        self.same: dict[Node, Node] = {}  # what has the variable of another value, to which it writes
        self.rebound: set[Node] = set()  # those of them that are written `x += y`
        for node in self.nodes:
            if node._op == "get_attr" and node._target in self.variables:
                self.texts[node] = self.variables[str(node._target)], ATOM
                self.skipped.add(node)
                self.kept.add(node)
        self.exits = region_exits(self.nodes)
        self.left_after: set[Node] = set()
        self.plan: list[Statement] = []
        self.appended: dict[Node, str] = {}  # calls of `append`, each with what it appends
        self.result_code: tuple[str, int] = Expression("None")  # what a body returns
        self.expressions: dict[Node, tuple[str, int]] = {}  # branches that are expressions
        self.never: set[Node] = set()  # what is False where the end is reached: a loop would have returned
        self.decided: dict[Node, Node] = {}  # loops, each with the branch after it that is written with it
        self.mentions: dict[Node, Counter[Node]] = {}  # how often nodes read each value, of those that were asked
        self.renewed: set[Node] = set()  # values of branches that have the variable of what they leave as it is
        self.lists = comprehensions(self.nodes)  # loops, each with the list that it makes as a comprehension
        self.output = self.nodes[-1] if self.nodes and self.nodes[-1]._op == "output" else None
        self.is_end = self._returns()
        last = None if self.output is None else last_inside(self.output)
        value = self.output._args[0] if self.output is not None and self.output._args else None
        # The value that the function returns, where that is all that is done with it.
        self.returned: Node | None = None
        if self.ending is None and type(value) is Node and len(value.users) == 1 and value is last:
            self.returned = value if value._next is self.output or is_returned(value) else None
        self.split: Split | None = None  # the branch whose sides end the body
        if self.output is not None and not ends_by_raising(self.graph):
            if self.ending is None:
                self.split = split_where_returned(self.output) if self.is_end else None
            elif self.slots and not self.is_test:
                self.split = split_at_end(self.output, self._values(), self.ending.conditions)
                if self.split is None and isinstance(self.ending, Returns):
                    self.split = split_where_returned(self.output, self._values())
        if self.split is not None:
            self.skipped.update(self.split.items, self.split.unread)
            for node in self.split.items if self.is_outermost else ():  # no variables
                self.names.share(node.name)
        if self.ending is not None and self.output is not None:
            given, asked = values_of(self.output, self.slots), self._values()  # `bool(stop)`, where `stop` is asked
            unread = (value for value in given if type(value) is Node and value not in asked)
            self.skipped.update(value for value in unread if list(value.users) == [self.output])
        if self.returned is not None or self.split is not None or self._returns_inside():
            self.left_after = {node for node in self.exits.values() if last is not None and last < node}

    def _returns_inside(self) -> bool:
        """Tell whether the source has its `return` inside the `with` blocks that the body ends with."""
        return self.is_end and any(map(is_from_return, nodes_in(self.output._args)))  # type: ignore[union-attr]

    def _returns(self) -> bool:
        """Tell whether the body ends with what the program, or a function in it, returns."""
        if self.output is None:
            return False
        if isinstance(self.ending, NextRound):
            values = self._values()
            return values[0] is True and self.ending.is_return(values)
        return isinstance(self.ending, Returns) or (self.ending is None and self.role in ("program", "function", "end"))

    def _reassign(self, node: Node) -> None:
        """Let variables hold what an `if` makes of them."""
        if self.returned is node or (self.split is not None and self.split.branch is node):
            return
        for item, before in reassigned(node, self.texts):
            is_own = first_holder(before, self.texts)._op != "placeholder" or self.is_outermost
            is_named = item in self.texts or item in self.kept or item in self.skipped
            if is_own and not is_named and before not in self.inside and before not in self.skipped:
                if is_overwritten(item, node, self.name(before), self.texts):
                    continue
                self.texts[item] = self.name(before), ATOM
                self.kept.add(before)
                self.renewed.add(item)
                if self.ending is not None and self.name(item) in dict(self.ending.pairs(self._values())):
                    self.kept.add(item)  # the variable goes on to what comes after the body

    @contextlib.contextmanager
    def shadowing(self, body: Graph, operands: Sequence[Any]) -> Iterator[None]:
        """Let the variables of an expression that has its own be called as some around it that it does not read."""
        read = {word for operand in nodes_in(operands) for word in re.findall(r"\w+", self.value(operand))}
        wishes = {node.name for node in body.nodes if node._op == "placeholder" or node._target is operator.getitem}
        fixed = {*read, self.root, self.paths.table, *self.variables.values(), *self.names.values}
        hidden = [name for name in wishes if name in self.names and name not in fixed]
        for name in hidden:
            self.names.share(name)
        try:
            yield
        finally:
            for name in hidden:
                self.names.take(name)

    def make_plan(self) -> None:
        """Cut the body into statements, writing each."""
        self.plan = statements_of(self)

    @property
    def is_outermost(self) -> bool:
        """Whether this is the body of the program itself."""
        return self.role == "program"

    @property
    def is_expression(self) -> bool:
        """Whether the body is nothing but the value that it gives."""
        return [statement.node._op for statement in self.plan] == ["output"]

    def written(self) -> list[Statement]:
        """The statements that have code."""
        return [statement for statement in self.plan if statement.code and statement.node not in self.left_after]

    def readers(self, node: Node) -> list[Node]:
        """The nodes that read a value by its name: not the output, where a branch at the end decides instead."""
        readers = [user for user in node.users if user not in self.skipped]
        split = self.split
        if split is None or self.ending is None or node is not split.branch._args[0] or self.output not in readers:
            return readers
        if any(slot == Outside(node) for slot in split.slots[True]):
            return readers
        return [user for user in readers if user is not self.output]

    def ends_with_test(self, value: Node) -> bool:
        """Tell whether all that is left to do in a round of a loop is to end it where a value is true."""
        if not isinstance(self.ending, NextRound) or self.split is not None:
            return False
        stop, *_ = values = self._values()
        named = [(target, self.texts.get(given, (None,))[0]) for target, given in self.ending.pairs(values)]
        asked = [i for i, each in enumerate(values) if each is value]
        is_test = stop is value and self.ending.conditions.issuperset(asked)
        return is_test and all(target == text for target, text in named)

    def read_with(self, block: Node, held: Sequence[Node]) -> list[Node]:
        """The values that a block reads for what it writes with it: the branch after a loop, the end of the body."""
        branch = self.decided.get(block)
        read = [] if branch is None else [*nodes_in(branch._args)]
        if self.split is not None and self.output is not None and self.split.branch in (block, branch):
            read += nodes_in(self.output._args)
        unwritten = {*held, *self.skipped, *([] if self.split is None else [self.split.branch])}
        return [used for used in read if used not in unwritten and used < block]

    def keeps_sizes(self, node: Node) -> bool:
        """Tell whether a node surely leaves the sizes of all that it does not compute: a layer of torch.nn does."""
        if node._op != "call_module":
            return node._op == "get_attr" or not is_impure(node)
        module = self.paths.reached(str(node._target))[1]
        return getattr(type(module).forward, "__module__", "").startswith("torch.nn.") if module is not None else False

    def is_and_or(self, node: Node) -> bool:
        """Tell whether a branch is written as `p and a` or `p or a`."""
        is_end = self.split is not None and self.split.branch is node
        return not is_end and is_and_or(self, node)

    def fresh(self, wish: str) -> str:
        """Take a name for a variable that no value of the graph has."""
        name = self.names.new(wish)
        self.names.take(name)
        return name

    def result(self, node: Node) -> str | Block:
        """Write the statement of the output node: `return`, or what a body gives to the variables around it."""
        if self.ending is None:
            self.result_code = self._input(node._args[0] if node._args else None)
        if ends_by_raising(self.graph):
            return ""
        if self.ending is None:
            return f"return {self.result_code[0]}"
        values = [False if type(value) is Node and value in self.never else value for value in self._values()]
        return self.ending.write(self, values)

    def _values(self) -> list[Any]:
        """The values that a body ends with."""
        if self.output is None:
            return []
        values = values_of(self.output, self.slots)
        return values if self.ending is None else bare_conditions(values, self.ending.conditions)

    def comprehension(self, loop: Node, made: Node) -> tuple[str, int] | None:
        """Write the list that a loop makes as an expression; None where that takes statements."""
        return comprehension(self, loop, made)

    def block(self, node: Node) -> Block | None:
        """Write a region as a compound statement; None where it is an expression."""
        if node._target is cond:
            self._reassign(node)
        if node._target is cond and not self._is_if_that_returns(node) and branch_expression(self, node) is not None:
            return None
        if is_loop(node):
            return loop_block(self, node)
        if takes_key(node):
            expression = key_expression(self, node)
            if expression is not None:
                self.expressions[node] = expression
                return None
        return transform_block(self, node) if node._target is transformed else branch_block(self, node)

    def _is_if_that_returns(self, node: Node) -> bool:
        """Tell whether the source has an `if` statement whose sides return, rather than a test of several parts."""
        if self.returned is not node or not is_from_if(node):
            return False
        return self.role in ("program", "function") or not self.is_and_or(node)

    def negation(self, pred: Any) -> str:
        """Write that a condition does not hold."""
        if isinstance(pred, Expression):
            return f"not {pred.text}" if pred.text.isidentifier() else f"not ({pred.text})"
        if pred in self.inside and pred in self.negated:
            return self.negated[pred]
        condition = self.node(pred) if type(pred) is Node else None
        if isinstance(condition, Negation):
            return in_place(condition.inner, NOT)
        return f"not {self.operand(pred, NOT) if condition is None else in_place(tested(condition), NOT)}"

    def body(
        self,
        graph: Graph,
        inputs: Sequence[Any],
        ending: Ending | None,
        slots: Sequence[Slot] = (),
        names: dict[Node, str] | None = None,
        role: Role = "step",
    ) -> BodyWriter:
        """Make the writer of a body, whose inputs are written as `inputs` are here.

        `ending` is what becomes of the values in the `slots` of what the body gives; None where it returns that.
        `names` are those of nodes that are written elsewhere.
        """
        writer = object.__new__(BodyWriter)
        graph._make_names()
        writer.graph, writer.nodes, writer.renamed = graph, list(graph.nodes), []
        writer.root, writer.owner, writer.names, writer.getattr = self.root, self.owner, self.names, self.getattr
        writer.variables, writer.callees, writer.paths = self.variables, self.callees, self.paths
        writer.tried, writer.statements = self.tried, self.statements
        writer.ending, writer.slots, writer.role = ending, slots, role
        writer.is_test = role == "part" or isinstance(ending, Tests) or (self.is_test and ending is None)
        writer._prepare()
        writer._take_inputs(inputs, self)
        for node, name in (names or {}).items():
            writer.skipped.add(node)
            writer._hold(node, name)
        for node, name in writer._named_in_place().items():
            writer._hold(node, name)
        name_initial_values(writer)
        local = writer._name_the_rest()
        writer.make_plan()
        for name in local:  # what comes after the body may have them, too
            self.names.share(name)
        return writer

    def _take_inputs(self, inputs: Sequence[Any], around: BodyWriter) -> None:
        """Let the inputs of the body be written as these values are around it."""
        given, self.around = iter(inputs), around
        for node in self.nodes:
            if node._op != "placeholder":
                continue
            value = self.given[node] = next(given)
            if isinstance(value, Expression):
                self.texts[node] = value
                continue
            self.texts[node] = around._input(value)
            if type(value) is not Node:
                self.constants[node] = value
            elif value in around.constants:
                self.constants[node] = around.constants[value]

    def _hold(self, node: Node, name: str) -> None:
        """Let a variable that is there around the body hold a node's value."""
        self.texts[node] = name, ATOM
        self.kept.add(node)

    def _name_the_rest(self) -> list[str]:
        """Take a name for every other value of the body, and return these names."""
        local = []
        unnamed = set() if self.split is None else {*self.split.items, self.split.branch}
        for node in self.nodes:
            if node._op not in ("output", "placeholder") and node not in self.texts and node not in unnamed:
                name = self.names.new(node.name)
                if name != node.name:
                    self.texts[node] = name, ATOM
                    self.renumbered.add(node)
                self.names.take(name)
                local.append(name)
        return local

    def _named_in_place(self) -> dict[Node, str]:
        """The nodes that are computed into the variables that get the body's values."""
        if self.ending is None or self.output is None or ends_by_raising(self.graph):
            return {}
        pairs = self.ending.pairs(self._values())
        left_out = {*self.skipped, *self.exits, *([self.split.branch] if self.split is not None else [])}

        def text(value: Any) -> str | None:
            if isinstance(value, Expression):
                return value.text
            return self.texts[value][0] if type(value) is Node and value in self.texts else None

        return named_in_place(self.nodes, text, pairs, left_out)

    def _input(self, value: Any) -> tuple[str, int]:
        return self.node(value) if type(value) is Node else argument(value, self.names, self.node)

    def holder(self, node: Node) -> Node:
        """The value whose variable a node has: its own, or that of what it writes to and gives back."""
        while node in self.same:
            node = self.same[node]
        return node

    def stays_in_its_variable(self, node: Node) -> bool:
        """Tell whether a node has the variable of what it writes to: `x.add_(1)`, not `y = x.add_(1)`."""
        if node in self.same:
            return True
        value = written_and_given(node)
        while value is not None and (value in self.inside or value in self.without_variable):
            value = written_and_given(value)  # `x.add_(1).mul_(2)`
        if value is None or node.type is not None or node in self.skipped:
            return False
        name, _ = self.node(value)
        if (node in self.texts and node not in self.renumbered) or node in self.kept:
            return name == self.name(node)
        if not name.isidentifier():
            return False
        if node._target in INPLACE:  # of a number it makes another one, which the variable then holds
            if not self._may_rebind(value) or is_read_besides(node, value, self.texts, self.rebound):
                return False
            self.rebound.add(node)
        elif node.origin is not None and node.origin.target not in ("", base_of(name)):
            return False
        holder = self.same[node] = self.holder(value)
        if holder in self.kept or (holder._op == "placeholder" and not self.is_outermost):
            self.kept.add(node)
        return True

    def _may_rebind(self, value: Node) -> bool:
        """Tell whether the variable of a value may hold another one: it belongs to the body, or holds a tensor."""
        given = self.given.get(self.holder(value))
        return type(given) is not Node or self._is_tensor_around(given)

    def _is_tensor_around(self, given: Node) -> bool:
        """Tell whether a body may write `value += 1` to a value of the body around it, whose variable that has."""
        return self.role != "function" and self.around is not None and self.around._changes_in_place(given)

    def _changes_in_place(self, value: Node) -> bool:
        """Tell whether `value += 1` surely changes a value: that of a branch or loop may be a number on some ways."""
        value = first_holder(value, ())
        if value._op == "placeholder":
            given = self.given.get(value)
            return self._is_tensor_around(given) if type(given) is Node else self.is_outermost
        source = value._args[0] if value._target is operator.getitem else value
        return not (type(source) is Node and is_region(source))

    def name(self, node: Node) -> str:
        node = self.holder(node)
        return self.texts[node][0] if node in self.texts else node.name

    def declared(self, node: Node) -> str:
        return self.name(node) if node.type is None else self.annotated(node)

    def statement(self, node: Node) -> str:
        if node in self.exits:
            return f"with {self.function_call(node._args[0], node._args[1:], node._kwargs)[0]}:"
        if node._target is raise_error and node._args:
            error, cause = self.value(node._args[0]), node._kwargs.get("cause")
            made = f"{error}({self.call(node._args[1:], {})})" if node._args[1:] else error
            return f"raise {made}" if cause is None else f"raise {made} from {self.value(cause)}"
        if node._target is write_attribute or node._target is write_variable:
            return super().statement(node)
        if node._target is evaluated:
            return self.value(node._args[0])
        items = unpacked_items(node)
        if items:
            return f"{unpacking_targets(self, items, unpacked_inside(node))} = {self.value(node._args[0])}"
        if node.users:
            is_change = is_statement(node) and node._target in INPLACE
            if is_change or not self.stays_in_its_variable(node):
                return super().statement(node)
            return self.expression(node)[0]
        if is_statement(node) and node._target in INPLACE and len(node._args) == 2:
            left, right = node._args
            if self.may_assign(left) or (left in self.given and self.stays_in_its_variable(node)):
                return f"{self.value(left)} {INPLACE[node._target]} {self.value(right)}"
            return self.function_call(node._target, node._args, {})[0]
        if is_statement(node) and node._target is operator.setitem and len(node._args) == 3:
            return self.item_assignment(node)
        if assigns_attribute(node):
            owner, name, value = node._args
            return f"{self.operand(owner, PRIMARY)}.{name} = {self.value(value)}"
        # Nothing reads the value: only the effect counts.
        return self.expression(node)[0] if node.type is None else self.assignment(node)

    def change(self, node: Node) -> str:
        if self.stays_in_its_variable(node):
            return f"{self.name(node)} {INPLACE[node._target]} {self.value(node._args[1])}"  # type: ignore[index]
        if mentions(self.value(node._args[1]), self.name(node)):  # which would get another value first
            return f"{self.name(node)} = {self.function_call(node._target, node._args, {})[0]}"
        return super().change(node)

    def may_assign(self, left: Any) -> bool:
        """Tell whether `left += ...` does what calling `operator.iadd` does, as far as the graph needs it.

        What a capture recorded (it has an origin) changes in place, so that naming the result `left` again changes
        nothing; another value may be a number, which `left` would then stand for no longer.
        """
        if type(left) is not Node or left.origin is None:
            return False
        if left not in self.inside:
            return True
        return left._op == "get_attr" and self._path(str(left._target))[1]

    # ---- expressions

    def node(self, node: Node) -> tuple[str, int]:
        """Write a use of a node: its expression where that was kept to stand inside, else its name."""
        if node in self.inside:
            return self.inside[node]
        node = self.holder(node)
        return self.texts.get(node) or (node.name, ATOM)

    def value(self, arg: Any) -> str:
        return self.node(arg)[0] if type(arg) is Node else super().value(arg)

    def operand(self, arg: Any, strength: int) -> str:
        if type(arg) is not Node:
            return self.literal_operand(arg, type(arg), strength)
        text, binds = self.node(arg)
        return text if binds >= strength else f"({text})"

    def expression(self, node: Node) -> tuple[str, int]:
        if node._target is cond:
            return branch_expression(self, node) or super().expression(node)
        if node in self.expressions:
            return self.expressions[node]
        if takes_rows(node):
            return self.node(node._args[0])
        text = f_string(self, node) if node._target == "format" else None
        if text is not None:
            return text, ATOM
        if node._op == "call_method" and node._target == "append" and len(node._args) == 2 and not node._kwargs:
            self.appended[node] = self.value(node._args[1])
        if node._op == "call_method" and node._target == "__call__" and node._args:
            return f"{self.operand(node._args[0], PRIMARY)}({self.call(node._args[1:], node._kwargs)})", PRIMARY
        if node._op == "call_method" and node._target == "__getitem__" and len(node._args) == 2 and not node._kwargs:
            return f"{self.operand(node._args[0], PRIMARY)}[{self.key(node._args[1])}]", PRIMARY
        return super().expression(node)

    def keep_inside(self, node: Node) -> None:
        """Write what a node computes and keep it to stand inside another, where `not` may stand before it."""
        self.inside[node] = self.expression(node)
        if (node._target is operator.is_ or node._target is operator.contains) and len(node._args) == 2:
            symbol, step = _NEGATED[node._target]
            left, right = node._args[::step]
            self.negated[node] = f"{self.operand(left, COMPARISON + 1)} {symbol} {self.operand(right, COMPARISON + 1)}"

    def function_call(self, target: Any, args: Any, kwargs: Any) -> tuple[str, int]:
        if target is operator.not_ and len(args) == 1:
            inner = args[0]
            if type(inner) is Node and inner in self.inside:
                found = self.inside[inner]
                if isinstance(found, AnyNot):
                    return found.opposite, PRIMARY
                if inner in self.negated:
                    return self.negated[inner], COMPARISON
            return Negation.of(tested(self.node(inner)) if type(inner) is Node else (self.operand(inner, NOT), NOT))
        if target is bool and len(args) == 1 and not kwargs and type(args[0]) is Node:
            return Truth.of(self.names.function(bool), self.node(args[0]))
        if type(target) is types.MethodDescriptorType and args:
            return f"{self.operand(args[0], PRIMARY)}.{target.__name__}({self.call(args[1:], kwargs)})", PRIMARY
        is_one = target is list and len(args) == 1 and not kwargs and type(args[0]) is Node
        if is_one and args[0] in self.inside and args[0] in self.lists.values():
            return self.inside[args[0]]  # the list that a comprehension makes, not another one
        if (target is list or target is dict) and not kwargs and not (args and type(args[0]) is not _DISPLAYS[target]):
            return (self.value(args[0]) if args else _EMPTY[target]), ATOM
        return super().function_call(target, args, kwargs)

    def call(self, args: Any, kwargs: Any) -> str:
        texts = [self.value(arg) for arg in args]
        self.keywords(kwargs, texts)
        return ", ".join(texts)

    def key(self, key: Any) -> str:
        """Write a subscript with Python's own slices: `x[1:, None, ..., ::2]`."""
        return subscript(self.value, key)

    def path(self, target: str) -> str:
        """Write a dotted path from the root, with `[0]` and `["key"]` where containers allow it."""
        return self._path(target)[0]

    def read(self, target: str) -> str:
        """Write the attribute that is read, of its module."""
        text, owner = self._path(target)[0], target.rpartition(".")[0]
        if self.callees is None or not owner or target in self.variables:
            return text
        start, value, _ = self.paths.reached(owner)
        if not isinstance(value, nn.Module) or not text.startswith(f"{start}."):
            return text
        return self.callees.mark(owner, start, is_read=True) + text[len(start) :]

    def callee(self, target: str) -> str:
        text = self._path(target)[0]
        return text if self.callees is None else self.callees.mark(target, text)

    def _path(self, target: str) -> tuple[str, bool]:
        """Write a dotted path from the root, and tell whether it ends with a name after a dot."""
        if target in self.variables:
            return self.variables[target], True
        text, _, is_name = self.paths.reached(target)
        return text, is_name

    def _new_table(self) -> str:
        """The variable for the table of the root's modules, where one of these has a name that stands after no dot."""
        if all(map(is_plain_name, getattr(self.owner, "_modules", ()))):
            return ""
        return self._new_name("modules")

    def _new_name(self, wish: str) -> str:
        """Take a name for a variable that is assigned before all others."""
        name = self.names.new(wish)
        self.names.take(name)
        return name


# Parameters may hide these: code never calls them by these names.
_UNUSED_BUILTINS = frozenset({"dir", "filter", "format", "hash", "id", "input", "vars"})
_DISPLAYS: dict[Any, type] = {list: immutable_list, dict: immutable_dict}  # `list([a, b])` is `[a, b]`
_EMPTY: dict[Any, str] = {list: "[]", dict: "{}"}


_NEGATED: dict[Any, tuple[str, int]] = {operator.is_: ("is not", 1), operator.contains: ("not in", -1)}
