"""Options that several commands have: the target, example inputs, how it is captured, and where results go."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import rich.console
import rich.syntax
from torch import nn

from graphwright.capture import symbolic_trace, trace
from graphwright.cli.failures import BadInput
from graphwright.cli.inputs import Call, read_call
from graphwright.cli.targets import read_model
from graphwright.runtime import GraphModule, as_captured
from graphwright.runtime import save as saved_to

F = TypeVar("F", bound=Callable[..., Any])


class NewFile(click.Path):
    """The path of a file to write: its folder has to be there before anything is done."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"there is no folder '{path.parent}'", param, ctx)
        return path


class NewFolder(click.Path):
    """The path of a folder to write, which may be there."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)


# ---- options


def of_target(function: F) -> F:
    """Have a command take TARGET, and what reading it needs."""
    for option in reversed(
        (
            click.argument("target"),
            click.option("--allow", multiple=True, metavar="PACKAGE", help="a package that a saved file may name"),
            click.option("--train", is_flag=True, help="leave the model in training mode (default: evaluation)"),
        )
    ):
        function = option(function)
    return function


def example(function: F) -> F:
    """Have a command take example inputs."""
    for option in reversed((
        click.option(
            "--input", "-i", "inputs", multiple=True, metavar="[NAME=][DTYPE:]SHAPE[:LOW..HIGH]",
            help="a tensor of random values: 1x3x224x224, ids=int64:2x16:0..30522, x=@file.pt",
        ),
        click.option("--kwarg", "kwargs", multiple=True, metavar="NAME=VALUE", help="an argument that is no tensor"),
        click.option("--seed", default=0, show_default=True, help="of the random values"),
    )):  # fmt: skip
        function = option(function)
    return function


def captures(function: F) -> F:
    """Have a command take the options of `trace`."""
    for option in reversed((
        click.option("--static", multiple=True, metavar="NAME", help="an input whose sizes and numbers are fixed"),
        click.option("--dynamic", multiple=True, metavar="NAME", help="a bool or attribute that stays open"),
        click.option("--leaf-module", "leaf_modules", multiple=True, metavar="PATH", help="a module to keep whole"),
        click.option(
            "--max-paths", type=click.IntRange(1), default=8, show_default=True,
            help="how many ends the program may have",
        ),
    )):  # fmt: skip
        function = option(function)
    return function


def writes(function: F) -> F:
    """Have a command write the module that it made."""
    for option in reversed(
        (
            click.option("--save", type=NewFile(), help="write the module to one file"),
            click.option("--to-folder", type=NewFolder(), help="write it as a Python package"),
        )
    ):
        function = option(function)
    return function


def answer(function: F) -> F:
    """Have a command say its answer as JSON, or to a file."""
    for option in reversed(
        (
            click.option("--output", "-o", type=NewFile(), help="write the answer to this file"),
            click.option("--json", "is_json", is_flag=True, help="answer as JSON"),
        )
    ):
        function = option(function)
    return function


# ---- what was given


@dataclass(frozen=True, slots=True)
class Given:
    """A model and a call of it."""

    target: str
    model: Any
    call: Call

    @classmethod
    def read(cls, options: dict[str, Any]) -> Given:
        """Take the options of a target and of example inputs out of those of a command."""
        target, allow, trains = (options.pop(name) for name in ("target", "allow", "train"))
        call = read_call(*(options.pop(name) for name in ("inputs", "kwargs", "seed")))
        return cls(target, read_model(target, allow, trains), call)

    def __post_init__(self) -> None:
        if self.has_call:
            self.check_fit()

    def check_fit(self) -> None:
        """Raise BadInput where the model cannot be called with the example inputs."""
        signature = self._signature()
        if signature is None:
            return
        try:
            signature.bind(*self.call[0], **self.call[1])
        except TypeError as error:
            name = getattr(self._function, "__qualname__", type(self._function).__name__)
            raise BadInput(f"--input and --kwarg do not fit {name}{signature}: {error}") from None

    @property
    def _function(self) -> Any:
        return self.model.forward if isinstance(self.model, nn.Module) else self.model

    def _signature(self) -> inspect.Signature | None:
        """What the model takes; None where it does not tell."""
        try:
            return inspect.signature(self._function)
        except (TypeError, ValueError):
            return None

    @property
    def has_call(self) -> bool:
        """Whether there are example inputs."""
        return bool(self.call[0] or self.call[1])

    def needed(self) -> Call:
        """The example inputs. Raises BadInput where there are none for a model that has some."""
        if not self.has_call and (signature := self._signature()) is not None and signature.parameters:
            raise BadInput("no inputs are given: --input 1x3x224x224, and so on")
        return self.call

    def captured(self, **how: Any) -> GraphModule:
        """The captured module that the model is, or that is made of it: without inputs, as `symbolic_trace` does."""
        model = as_captured(self.model)
        if isinstance(model, GraphModule):
            return model
        if not self.has_call:
            return symbolic_trace(model)
        return trace(model, *self.call, **{name: value for name, value in how.items() if value not in ((), [])})


# ---- answers


def console() -> rich.console.Console:
    """Where answers go: with colour in a terminal, and as wide as they are elsewhere."""
    found = rich.console.Console(highlight=False, soft_wrap=True)
    return found if found.is_terminal else rich.console.Console(highlight=False, soft_wrap=True, width=10_000)


def say(value: Any) -> None:
    """Print text, or what rich draws; outside of a terminal, as `str` says it."""
    where = console()
    if where.is_terminal and hasattr(value, "__rich__"):
        where.print(value)
    else:
        click.echo(str(value))


def show_code(text: str, lexer: str = "python") -> None:
    """Print code, in colour in a terminal."""
    where = console()
    if where.is_terminal:
        where.print(rich.syntax.Syntax(text, lexer, background_color="default", word_wrap=True))
    else:
        click.echo(text)


def as_json(value: Any) -> str:
    """Write plain data as JSON; what JSON has no form for as text."""
    return json.dumps(value, indent=2, default=str)


def deliver(options: dict[str, Any], value: Any, data: Callable[[], Any], show: Callable[[Any], None] = say) -> None:
    """Answer: as JSON where that is asked for, to a file or to the screen."""
    output, is_json = options["output"], options["is_json"]
    text = as_json(data()) if is_json else str(value)
    if output is not None:
        output.write_text(text + "\n")
        click.echo(f"written to {output}", err=True)
    elif is_json:
        click.echo(text)
    else:
        show(value)


def write_module(gm: GraphModule, options: dict[str, Any]) -> None:
    """Write a module where `--save` and `--to-folder` say."""
    save, folder = options["save"], options["to_folder"]
    if save is not None:
        left_out = saved_to(gm, save)
        click.echo(f"saved to {save}", err=True)
        for line in left_out:
            click.echo(f"  left out: {line}", err=True)
    if folder is not None:
        files = gm.to_folder(folder, "".join(part.capitalize() for part in folder.stem.split("_")))
        click.echo(f"written to {folder}: {', '.join(path.name for path in files)}", err=True)
