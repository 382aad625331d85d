"""Classes of a file that differ only in numbers and texts as one class, whose constructor takes these."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch import nn

from graphwright.runtime.packaging.modules import WIDTH, Call, Expression, render

_LITERAL = re.compile(r"-?(\d[\w.+-]*|inf)|True|False|None|\"[^\"\\]*\"")


@dataclass(frozen=True)
class Statement:
    """A statement of a constructor: an expression, and what stands before and after it."""

    before: str
    value: Expression
    after: str = ""


@dataclass
class WrittenClass:
    """A class of a file; `code` are its methods. Calls of other classes in it have these' names, without arguments."""

    name: str
    wish: str
    base: str
    start: str
    statements: list[Statement]
    code: str


@dataclass
class _Column:
    """What classes have in one place of their constructors: of each its text, and what torch takes for no text."""

    attribute: str
    name: str
    values: tuple[str, ...]
    default: str | None


@dataclass
class _Group:
    """Classes that are one: what they have in common, with numbers of columns in the places of these."""

    members: list[WrittenClass]
    statements: list[Statement] = field(default_factory=list)
    columns: list[_Column] = field(default_factory=list)


def merged(classes: Sequence[WrittenClass]) -> tuple[list[str], Callable[[Expression], Expression]]:
    """Write classes, those that differ in numbers and texts alone as one; also what to write for a call of each.

    A class stands behind those that it calls, and does so in what comes out.

    >>> small, large = [Statement("self.size = ", "2")], [Statement("self.size = ", "3")]
    >>> start = "super().__init__()"
    >>> rows = [WrittenClass("A", "A", "Base", start, small, ""), WrittenClass("A2", "A", "Base", start, large, "")]
    >>> texts, called = merged(rows)
    >>> print(texts[0], called(Call("A2")).items)
    class A(Base):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.size = size
     (('size=', '3'),)
    """
    calls: dict[str, Call] = {}
    names: dict[str, list[str]] = {}
    for each in classes:
        names.setdefault(each.wish, []).append(each.name)

    def called(expression: Expression) -> Expression:
        if isinstance(expression, str):
            return expression
        head, bracket, name = expression.head.rpartition("(")
        items = tuple((prefix, called(item)) for prefix, item in expression.items)
        if name in calls and not items:
            return replace(expression, head=f"{head}{bracket}{calls[name].head}", items=calls[name].items)
        return replace(expression, items=items)

    level = _levels(classes)
    done: list[_Group] = []
    for number in sorted(set(level.values())):
        found: list[_Group] = []
        for each in (each for each in classes if level[each.name] == number):
            statements = [replace(statement, value=called(statement.value)) for statement in each.statements]
            _add(found, replace(each, statements=statements))
        for group in found:
            name = names[group.members[0].wish].pop(0)
            for member, items in zip(group.members, _arguments(group), strict=True):
                calls[member.name] = Call(name, items)
        done += found
    place = {each.name: i for i, each in enumerate(classes)}
    done.sort(key=lambda group: place[group.members[0].name])
    return [_text(group, calls[group.members[0].name].head) for group in done], called


def rendered(statements: Sequence[Statement], indent: str) -> str:
    """The text of statements."""
    lines = [
        f"{indent}{each.before}{render(each.value, len(indent) + len(each.before), indent)}{each.after}\n"
        for each in statements
    ]
    return "".join(lines)


def _levels(classes: Sequence[WrittenClass]) -> dict[str, int]:
    """How many classes there are below each, one in the other."""
    levels: dict[str, int] = {}

    def below(expression: Expression) -> int:
        if isinstance(expression, str):
            return 0
        own = levels.get(expression.head.rpartition("(")[2], 0)
        return max([own, *[below(item) for _, item in expression.items]])

    for each in classes:
        levels[each.name] = 1 + max([below(statement.value) for statement in each.statements], default=0)
    return levels


def _add(groups: list[_Group], new: WrittenClass) -> None:
    """Put a class to the first group that it fits into, or make one for it."""
    for group in groups:
        first = group.members[0]
        shape = [(each.before, each.after) for each in first.statements]
        if (first.wish, first.base, first.code) != (new.wish, new.base, new.code):
            continue
        if shape == [(each.before, each.after) for each in new.statements]:
            wider = _common([*group.members, new])
            if wider is not None:
                group.members, group.statements, group.columns = wider.members, wider.statements, wider.columns
                return
    groups.append(_Group([new], new.statements))


def _common(members: list[WrittenClass]) -> _Group | None:
    group = _Group(members)
    for row in zip(*[each.statements for each in members], strict=True):
        attribute = _name_in(row[0])
        value = _unified([each.value for each in row], group.columns, attribute, attribute)
        if value is None:
            return None
        group.statements.append(replace(row[0], value=value))
    return group


def _name_in(statement: Statement) -> str:
    found = re.match(r"self\.(?:register_buffer\(\"(\w+)|(\w+) = )", statement.before)
    return "" if found is None else found.group(1) or found.group(2)


def _unified(row: Sequence[Expression], columns: list[_Column], attribute: str, name: str) -> Expression | None:
    """What expressions have in common, a column where they have other numbers or texts; None for anything else."""
    if all(each == row[0] for each in row):
        return row[0]
    texts = [_literal(each) for each in row]
    if all(text is not None for text in texts):
        columns.append(_Column(attribute, name, tuple(map(str, texts)), None))
        return f"\0{len(columns) - 1}"
    calls = [each for each in row if isinstance(each, Call)]
    if calls and calls[0].head == "torch.tensor":
        return None  # the values of a table are no arguments
    if len(calls) < len(row) or any((each.head, each.brackets) != (calls[0].head, calls[0].brackets) for each in calls):
        return None
    prefixes = list(dict.fromkeys(prefix for each in calls for prefix, _ in each.items))
    if not all(prefix.endswith("=") for prefix in prefixes):
        return _unified_in_order(calls, columns, attribute, name)
    items = []
    for prefix in prefixes:
        default = _default(calls[0].head, prefix[:-1])
        values = [dict(each.items).get(prefix, default) for each in calls]
        if any(value is None for value in values):
            return None
        known = len(columns)
        item = _unified([value for value in values if value is not None], columns, attribute, prefix[:-1])
        if item is None:
            return None
        if len(columns) > known and default in columns[-1].values:
            columns[-1].default = default
        items.append((prefix, item))
    return replace(calls[0], items=tuple(items))


def _unified_in_order(calls: Sequence[Call], columns: list[_Column], attribute: str, name: str) -> Expression | None:
    if len({tuple(prefix for prefix, _ in each.items) for each in calls}) > 1:
        return None
    name = "size" if calls[0].head == "torch.empty" else name
    items = []
    for number, (prefix, _) in enumerate(calls[0].items):
        wish = name if len(calls[0].items) == 1 or not name else f"{name}_{number}"
        item = _unified([each.items[number][1] for each in calls], columns, attribute, wish)
        if item is None:
            return None
        items.append((prefix, item))
    return replace(calls[0], items=tuple(items))


def _literal(expression: Expression) -> str | None:
    """The text of a number, a text, or a tuple of such."""
    if isinstance(expression, str):
        return expression if _LITERAL.fullmatch(expression) else None
    is_tuple = not expression.head and expression.brackets == ("(", ")")
    is_plain = is_tuple and all(not prefix and _literal(item) is not None for prefix, item in expression.items)
    return render(expression, -1_000_000, "") if is_plain else None


def _default(head: str, name: str) -> str | None:
    """What a constructor of torch.nn takes where it is not given an argument."""
    kind = getattr(nn, head.removeprefix("torch.nn."), None) if head.startswith("torch.nn.") else None
    parameters = inspect.signature(kind).parameters if isinstance(kind, type) else {}
    value = parameters[name].default if name in parameters else inspect.Parameter.empty
    if isinstance(value, str):
        return f'"{value}"'
    return repr(value) if value is None or isinstance(value, bool | int | float) else None


# ---- the parameters of a constructor


def _parameters(group: _Group) -> dict[str, list[int]]:
    """The parameters of a group by name, in their order: of each the columns that it stands for."""
    by_values: dict[tuple[tuple[str, ...], str | None], list[int]] = {}
    for number, column in enumerate(group.columns):
        by_values.setdefault((column.values, column.default), []).append(number)
    owners: dict[str, int] = {}  # which column has a name for itself: of inputs the first, of outputs the last
    for number, column in enumerate(group.columns):
        if column.name.startswith("out_"):
            owners[column.name] = number
        else:
            owners.setdefault(column.name, number)
    taken = {"self", *[word for statement in group.statements for word in _words(statement.value)]}
    found: dict[str, list[int]] = {}
    for numbers in by_values.values():
        own = [group.columns[number].name for number in numbers if owners[group.columns[number].name] == number]
        own.sort(key=lambda name: not name.startswith(("in_", "out_")))
        column = group.columns[numbers[0]]
        wish = next((name for name in own if name.isidentifier()), f"{column.attribute}_{column.name}".strip("_"))
        if not wish.isidentifier() or keyword.iskeyword(wish):
            wish = "value"
        while wish in found or wish in taken:
            wish += "_"
        found[wish] = numbers
    has_default = {name: group.columns[numbers[0]].default is not None for name, numbers in found.items()}
    order = sorted(found, key=lambda name: (has_default[name], not name.startswith("in_"), not name.startswith("out_")))
    return {name: found[name] for name in order}


def _words(expression: Expression) -> Iterator[str]:
    """The names that an expression may mean."""
    yield from re.findall(r"\w+", expression if isinstance(expression, str) else expression.head)
    for _, item in () if isinstance(expression, str) else expression.items:
        yield from _words(item)


def _arguments(group: _Group) -> list[tuple[tuple[str, Expression], ...]]:
    """What is written for the parameters in a call of each member."""
    rows: list[tuple[tuple[str, Expression], ...]] = []
    for place in range(len(group.members)):
        row = []
        for name, (number, *_) in _parameters(group).items():
            column = group.columns[number]
            if column.values[place] != column.default:
                row.append((f"{name}=", column.values[place]))
        rows.append(tuple(row))
    return rows


def _text(group: _Group, name: str) -> str:
    parameters = _parameters(group)
    names = {f"\0{number}": parameter for parameter, numbers in parameters.items() for number in numbers}

    def named(expression: Expression) -> Expression:
        if isinstance(expression, str):
            return names.get(expression, expression)
        return replace(expression, items=tuple((prefix, named(item)) for prefix, item in expression.items))

    written = []
    for parameter, (number, *_) in parameters.items():
        column = group.columns[number]
        kind = _kind(column.values)
        default = "" if column.default is None else f" = {column.default}" if kind else f"={column.default}"
        written.append(f"{parameter}{kind}{default}")
    head = f"    def __init__({', '.join(['self', *written])}) -> None:"
    if len(head) > WIDTH:
        head = f"    def __init__(\n        {', '.join(['self', *written])},\n    ) -> None:"
    statements = [replace(each, value=named(each.value)) for each in group.statements]
    first = group.members[0]
    body = f"{head}\n        {first.start}\n{rendered(statements, ' ' * 8)}"
    return f"class {name}({first.base}):\n{body}{first.code}"


def _kind(values: Sequence[str]) -> str:
    """The annotation of a parameter, where all values are of one plain kind."""
    kinds = {type(eval(value, {"inf": float("inf")})) for value in values}
    if kinds == {int, float}:
        return ": float"
    return f": {kinds.pop().__name__}" if len(kinds) == 1 and kinds <= {int, float, bool, str} else ""
