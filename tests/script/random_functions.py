"""Random functions as source text: if, while, for, break, continue, return and else, nested, over tensors and ints."""

from __future__ import annotations

import dataclasses
import itertools
import linecache
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

_numbers = itertools.count()


@dataclasses.dataclass
class Writer:
    """Writes a function; `draw` chooses. Variables are tensors, ints or pairs of both, and lists of tensors.

    No loop takes more than four rounds, so that loops in loops come to an end.
    """

    draw: Callable[[Any], Any]
    lines: list[str] = dataclasses.field(default_factory=list)
    fresh: int = 0
    left: int = 14  # statements that may still be written

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def write(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def name(self, stem: str) -> str:
        self.fresh += 1
        return f"{stem}{self.fresh}"

    # ---- expressions

    def number(self, names: dict[str, str]) -> str:
        known = [name for name, kind in names.items() if kind == "int"]
        one = self.choose(*known, "1", "2", "3", "5")
        form = self.choose(
            "{}", "{}", "{} + 1", "{} * 2", "abs({} - 3)", "min({}, 4)", "({} if {c} else 2)", "len(xs) + {}"
        )
        return str(form.format(one, c=self.condition(names, 0) if "{c}" in form else ""))

    def tensor(self, names: dict[str, str]) -> str:
        known = [name for name, kind in names.items() if kind == "tensor"]
        a, b = self.choose(*known), self.choose(*known)
        form = self.choose(
            "{a} + {b}", "{a} - {n}", "{a} * 0.5", "torch.relu({a})", "{a}.abs()", "add({a}, {n})", "-{a}",
            "({a} if {c} else {b})", "{a}.clone()", "sum([{a}, {b}])", "twice({a}, {n})", "{a}.flip(0)",
        )  # fmt: skip
        return str(
            form.format(
                a=a,
                b=b,
                n=self.number(names) if "{n}" in form else "",
                c=self.condition(names, 0) if "{c}" in form else "",
            )
        )

    def condition(self, names: dict[str, str], depth: int = 2) -> str:
        tensors = [name for name, kind in names.items() if kind == "tensor"]
        ints = [name for name, kind in names.items() if kind == "int"]
        forms = ["{t}.sum() > {k}", "{t}.max() < {k}", "{i} < {k}", "{i} % 2 == 0", "0 < {i} < {k}", "{i} in (1, 3)"]
        if depth:
            forms += ["{x} and {y}", "{x} or {y}", "not ({x})", "bool({x})"]
        form = self.choose(*forms)
        more = {name: self.condition(names, depth - 1) if f"{{{name}}}" in form else "" for name in "xy"}
        return str(form.format(t=self.choose(*tensors), i=self.choose(*ints), k=self.choose(0, 1, 2, 4, 9), **more))

    # ---- statements

    def block(self, depth: int, names: dict[str, str], loops: int) -> bool:
        """Write some statements; tell whether they surely leave."""
        start = len(self.lines)
        for _ in range(self.choose(1, 2, 3)):
            if self.left <= 0:
                break
            self.left -= 1
            if self.statement(depth, names, loops):
                return True
        if len(self.lines) == start:
            self.write(depth, "pass")
        return False

    def statement(self, depth: int, names: dict[str, str], loops: int) -> bool:
        kinds = ["tensor", "tensor", "int", "new", "pair", "append", "if", "if", "for", "while", "in place", "return"]
        if loops:
            kinds += ["break", "continue", "if", "leave"]
        kind = self.choose(*kinds)
        if depth > 4 and kind in ("if", "for", "while"):
            kind = "tensor"
        if kind == "tensor":
            name = self.choose(*[each for each, its in names.items() if its == "tensor"])
            self.write(depth, f"{name} = {self.tensor(names)}")
        elif kind == "int":
            name = self.choose(*[each for each, its in names.items() if its == "int" and not each.startswith("w")])
            self.write(depth, self.choose(f"{name} = {self.number(names)}", f"{name} += 1"))
        elif kind == "new":
            name = self.name("t")
            self.write(depth, f"{name} = {self.tensor(names)}")
            names[name] = "tensor"
        elif kind == "pair":
            self.write(depth, f"x, i = {self.tensor(names)}, {self.number(names)}")
        elif kind == "append":
            self.write(depth, f"xs.append({self.tensor(names)})")
        elif kind == "in place":
            self.write(depth, self.choose("y += 1", "y[0] = 2.0", "y.mul_(0.5)"))
        elif kind == "if":
            return self.branch(depth, names, loops)
        elif kind == "for":
            self.loop(depth, names, loops)
        elif kind == "while":
            self.while_loop(depth, names, loops)
        else:
            return self.leave(depth, names, kind)
        return False

    def leave(self, depth: int, names: dict[str, str], kind: str) -> bool:
        line = "return x, i" if kind == "return" else kind
        if kind == "leave":
            line = self.choose("break", "continue", f"return {self.tensor(names)}, {self.number(names)}")
        if self.choose(True, True, False):
            self.write(depth, f"if {self.condition(names)}:")
            self.write(depth + 1, line)
            return False
        self.write(depth, line)
        return True

    def branch(self, depth: int, names: dict[str, str], loops: int) -> bool:
        sides = []
        self.write(depth, f"if {self.condition(names)}:")
        own = dict(names)
        sides.append((self.block(depth + 1, own, loops), own))
        if self.choose(True, False):
            own = dict(names)
            self.write(depth, f"elif {self.condition(names)}:")
            sides.append((self.block(depth + 1, own, loops), own))
        if self.choose(True, False):
            own = dict(names)
            self.write(depth, "else:")
            sides.append((self.block(depth + 1, own, loops), own))
        else:
            sides.append((False, dict(names)))
        going_on = [own for leaves, own in sides if not leaves]
        for name in going_on[0] if going_on else ():
            if all(name in own for own in going_on):
                names[name] = going_on[0][name]
        return not going_on

    def loop(self, depth: int, names: dict[str, str], loops: int) -> None:
        inner = dict(names)
        form = self.choose(
            "range(min({n}, 4))", "range(min({n}, 4))", "x", "enumerate(x)", "zip(x, y)", "xs", "range(3)"
        )
        item = self.name("e")
        if form in ("enumerate(x)", "zip(x, y)"):
            other = self.name("e")
            inner[item] = "int" if form == "enumerate(x)" else "tensor"
            inner[other] = "tensor"
            target = f"{item}, {other}"
        else:
            inner[item] = "int" if form.startswith("range") else "tensor"
            target = item
        subject = form.format(n=self.number(names)) if form != "xs" else "xs[:3]"
        self.write(depth, f"for {target} in {subject}:")
        self.block(depth + 1, inner, loops + 1)
        self.ending(depth, names, loops)

    def while_loop(self, depth: int, names: dict[str, str], loops: int) -> None:
        counter = self.name("w")
        self.write(depth, f"{counter} = 0")
        names[counter] = "int"
        test = self.choose(f"{counter} < 3", f"{counter} < 3 and ({self.condition(names)})", "True")
        self.write(depth, f"while {test}:")
        self.write(depth + 1, f"{counter} += 1")
        if test == "True":
            self.write(depth + 1, f"if {counter} > 3:")
            self.write(depth + 2, self.choose("break", "return x, i"))
        self.block(depth + 1, dict(names), loops + 1)
        self.ending(depth, names, loops)

    def ending(self, depth: int, names: dict[str, str], loops: int) -> None:
        if self.choose(True, False, False):
            self.write(depth, "else:")
            self.block(depth + 1, dict(names), loops)


@st.composite
def functions(draw: Callable[[Any], Any]) -> str:
    """The source of a function of a tensor and an int."""
    writer = Writer(draw)
    names = {"x": "tensor", "y": "tensor", "i": "int", "j": "int"}
    writer.write(0, "def program(x, i: int):")
    writer.write(1, "y = x * 2")
    writer.write(1, "j = i + 1")
    writer.write(1, "xs = [y]")
    if not writer.block(1, names, 0) and not writer.block(1, names, 0):
        writer.write(1, "return x + sum(xs) + y, i + j")
    return "\n".join(writer.lines) + "\n"


HELPERS = """
import torch

def add(a, n: int):
    if n > 2:
        return a + n
    return a

def twice(a, n: int):
    for _ in range(2):
        if a.sum() > n:
            return a * 2
        a = a + 1
    return a

"""


def made(source: str) -> Callable[..., Any]:
    """Make a function of its source."""
    text = HELPERS + source
    file = f"<random function {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {}
    exec(compile(text, file, "exec"), namespace)
    function: Callable[..., Any] = namespace["program"]
    return function


def forget(function: Any) -> None:
    """Drop the source of a function."""
    linecache.cache.pop(function.__code__.co_filename, None)
