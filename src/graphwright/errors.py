"""Every exception of the library.

A message says what happened, where in the user's program, and what to do about it:

    CaptureError: cannot branch on 'gt': its value is unknown until the graph runs
      at model.py:14 in Gate.forward: if x.sum() > 0:
      fix: use torch.where, or trace(model, args)
"""

from __future__ import annotations

import dataclasses
import difflib
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Protocol

__all__ = [
    "CaptureError",
    "ExportError",
    "GraphError",
    "GraphwrightError",
    "GuardError",
    "LoadError",
    "MissingAttributeError",
    "PassError",
    "PatternError",
    "Problem",
    "QuantizationError",
    "ScriptError",
    "TargetError",
    "TraceCheckError",
    "TraceError",
    "TrainingModeError",
    "UnknownNameError",
    "did_you_mean",
]


def did_you_mean(name: str, known: Iterable[str], most: int = 8) -> str:
    """What to say of a name that is none: the nearest that there are, or the first ones.

    >>> did_you_mean("layrs.0", ["layers.0", "head"]), did_you_mean("x", ["layers.0", "head"])
    ("did you mean 'layers.0'?", "there are 'layers.0', 'head'")
    """
    names = [*known]
    close = difflib.get_close_matches(name, names, 3, 0.5)
    if close:
        return f"did you mean {', '.join(map(repr, close))}?"
    return f"there are {', '.join(map(repr, names[:most]))}" if names else "there are none"


_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories of Unicode


def on_screen(text: str) -> str:
    r"""A text that may come from a file, for a screen: what would control it, but for new lines, is written as `\x1b`.

    >>> print(on_screen("red: \x1b[31m, then\nplain"))
    red: \x1b[31m, then
    plain
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    parts = [
        char if char in "\n\t" or unicodedata.category(char) not in _CONTROLS else repr(char)[1:-1] for char in text
    ]
    return "".join(parts)


class Place(Protocol):
    """Whatever can say where in the user's program it is; `ir.Origin` does."""

    def __str__(self) -> str: ...


class GraphwrightError(Exception):
    """The base of the family: a message, the place in the user's program, and a fix.

    >>> print(GraphwrightError("cannot add 'x'", at="model.py:3", fix="remove it"))
    cannot add 'x'
      at model.py:3
      fix: remove it
    """

    def __init__(self, message: str, at: Place | str | None = None, fix: str | None = None) -> None:
        self.message = message
        self.at = at
        self.fix = fix
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message]
        if self.at is not None:
            lines.append(f"  at {self.at}")
        if self.fix is not None:
            lines.append(f"  fix: {self.fix}")
        return on_screen("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        at = None if self.at is None else str(self.at)
        return type(self), (self.message, at, self.fix)


class CaptureError(GraphwrightError, ValueError):
    """A program could not be captured.

    The shortest program that meets it: a branch on the data of a tensor.

        def forward(self, x):
            if x.sum() > 0:      # the answer is unknown until the graph runs
                return x
            return -x
    """


class TraceError(CaptureError):
    """`symbolic_trace` was asked for a value that only a run of the program knows.

    For example:

        def forward(self, x):
            return self.layer(*x)     # how many arguments there are is not known
    """


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the source of a program, and where: columns are counted from 0.

    `fix` is what to write instead; `inside` the calls that lead to the function, as "file.py:3: f(x)".
    """

    message: str
    file: str
    line: int
    source: str
    column: int = 0
    end_column: int = 0
    fix: str = ""
    inside: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = self.source.strip()
        start = max(0, self.column - (len(self.source) - len(self.source.lstrip())))
        end = max(start + 1, min(len(text), start + self.end_column - self.column))
        lines = [f"{self.file}:{self.line}: {self.message}", f"    {text}", f"    {' ' * start}{'^' * (end - start)}"]
        lines += [f"  called at {call}" for call in self.inside]
        return "\n".join([*lines, f"  fix: {self.fix}"] if self.fix else lines)


class TraceCheckError(CaptureError):
    """`trace` took the way of its example, and another capture or other inputs show that this is not the program.

    For example:

        trace(lambda x: x if x.sum() > 0 else -x, torch.ones(1), control_flow="follow", check_inputs=[-torch.ones(1)])
    """

    def __init__(self, name: str, differences: str) -> None:
        self.name = name
        self.differences = differences
        super().__init__(
            f"the capture of {name} does not hold:\n{differences}",
            fix="capture it with control_flow='stage', or give every way an example",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.differences)


class ScriptError(CaptureError):
    """`script` found that a program cannot be compiled from its source; `problems` lists everything that it found.

    For example:

        def forward(self, x):
            if x.sum() > 0:
                y = x
            return y      # has no value where the condition does not hold
    """

    def __init__(self, problems: Sequence[Problem], name: str = "") -> None:
        self.problems = tuple(problems)
        self.name = name
        super().__init__(self.problems[0].message if len(self.problems) == 1 else f"{len(self.problems)} problems")

    def __str__(self) -> str:
        texts = [str(problem) for problem in self.problems]
        if len(texts) > 1:
            texts.insert(0, f"{len(texts)} problems in {self.name}")
        return "\n\n".join(texts)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems, self.name)


class GraphError(GraphwrightError, RuntimeError):
    """A graph was asked to become invalid, or is found invalid by `lint`.

    For example:

        graph.erase_node(node)       # while other nodes still use its value
    """


class MissingAttributeError(GraphError, AttributeError):
    """A graph names a module or an attribute that its root does not have.

    For example:

        GraphModule(nn.Module(), graph)     # the graph calls "linear"
    """


class TargetError(GraphError, ValueError):
    """A node was given a target that is not of its opcode's kind.

    For example:

        graph.call_function("relu", (x,))     # the name instead of the function
    """


class UnknownNameError(GraphwrightError, ValueError):
    """A value or module was asked for by a name that nothing in the program has.

    For example:

        graphwright.extract(model, ["layer5"], (x,))     # there are layer1 to layer4
    """


class GuardError(GraphwrightError, RuntimeError):
    """A captured module was called with inputs that its capture does not cover.

    For example:

        gm = graphwright.trace(model, (torch.randn(1, 3),))   # the model asked: x.shape[0] == 1
        gm(torch.randn(2, 3))
    """


class PatternError(GraphwrightError, ValueError):
    """A pattern or a rule is not well formed."""


class PassError(GraphwrightError, RuntimeError):
    """A pass cannot do its work on this graph without changing what it computes.

    For example:

        fuse_conv_batch_norm(gm.train())     # a batch norm in training mode cannot be folded
    """


class TrainingModeError(PassError, AssertionError):
    """A pass for inference was given a model in training mode.

    For example:

        fuse_conv_batch_norm(gm.train())
    """


class QuantizationError(GraphwrightError, RuntimeError):
    """A model cannot be quantized as asked, or an observer saw no data."""


class ExportError(GraphwrightError, RuntimeError):
    """A captured module cannot be written in the format asked for."""


class LoadError(GraphwrightError, RuntimeError):
    """A saved file is damaged, of another version, or names something that loading it may not reach.

    For example:

        graphwright.load("model.gw")     # its model is a class of transformers: allow=["transformers"]
    """

    allow: tuple[str, ...] = ()  # what the `allow` of `load` would have to hold, where that would help
