"""The capture that is running: what any file of this room may ask of it.

`SymbolicRecorder` (symbolic/symbolic_branches.py) implements `Capture`, and `Recorder` (typed/recorder.py), which has
example values, `TypedCapture`; nobody else imports these two. A value that only a run has knows its capture, and
`running()` gives that of the thread. The parts of a capture know one thing each: what questions were asked, which
numbers there are, what is joined how. What a method does is said where it is defined.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, MutableMapping, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from graphwright.ir import Node, Target

if TYPE_CHECKING:
    import torch
    from torch import nn

    from graphwright.capture.state.calls import Calls
    from graphwright.capture.state.examples import Examples
    from graphwright.capture.state.ledger import Fact, Ledger
    from graphwright.capture.state.members import Members
    from graphwright.capture.state.parts import (
        Ambient,
        Attempts,
        Callers,
        Choices,
        ExampleFacts,
        Joining,
        Keeping,
        Ladder,
        Numbers,
        SymbolicWrites,
        Transforms,
        TypedAmbient,
        TypedAttempts,
        TypedNumbers,
        TypedTransforms,
        TypedWrites,
        Writes,
    )
    from graphwright.capture.state.plan import Log, Plan
    from graphwright.capture.state.regions import Region
    from graphwright.capture.state.rungs import Loops
    from graphwright.capture.state.tensor_proxy import TensorProxy
    from graphwright.ir import Argument, Graph, Node
    from graphwright.runtime import Shells
    from graphwright.source import CallSite, Scope


class Capture(Protocol):
    """One capture: the graph that is written, the plan of this pass, and the parts that know one thing each."""

    pending: BaseException | None  # what ends the capture, as long as the program has not let it through
    region: Region  # the graph that is being written to, and what is known in it; `Writing` has it be another
    plan: Plan  # what earlier passes have learned
    ledger: Ledger  # what Python saw of the outside as a plain value
    states: list[Any]  # the states of the branches and loops whose bodies are being captured
    keep: list[Any]  # values known by id, which must not die during the capture
    calls: Calls  # how many calls of torch there were
    has_objects: bool  # whether there are values outside of torch
    is_running: bool  # whether the program runs

    @property
    def root(self) -> Region:
        """The program's own graph."""

    @property
    def graph(self) -> Graph: ...
    @property
    def log(self) -> Log | None:
        """How the capture went so far."""

    @property
    def scope(self) -> Scope: ...
    @property
    def shells(self) -> Shells | None:
        """The stand-ins for modules that the program runs on."""

    @property
    def at_end(self) -> list[Callable[[], None]]:
        """What to check as the program ends: that what the graph has of a container or object is not changed."""

    @property
    def examples(self) -> ExampleFacts:
        """The example values, if there are any."""

    @property
    def keeping(self) -> Keeping | None:
        """What the program keeps in attributes, where the capture knows it."""

    @property
    def typed(self) -> TypedCapture | None:
        """This capture, where it has example values."""

    # ---- parts

    @property
    def questions(self) -> Ladder: ...
    @property
    def numbers(self) -> Numbers: ...
    @property
    def joining(self) -> Joining: ...
    @property
    def choices(self) -> Choices: ...
    @property
    def loops(self) -> Loops: ...
    @property
    def attempts(self) -> Attempts: ...
    @property
    def writes(self) -> Writes: ...
    @property
    def transforms(self) -> Transforms: ...
    @property
    def ambient(self) -> Ambient: ...

    # ---- nodes

    def make(
        self, op: str, target: Target, args: tuple[Any, ...], name: str, kwargs: dict[str, Any] | None = None
    ) -> Node: ...
    def node(
        self, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], part: str = "", name: str = ""
    ) -> Node:
        """Make a node that does all, or with `part` a part, of what the user's running line says."""

    def unpacked(self, node: Node, count: int, names: Sequence[str]) -> list[Node]: ...
    def torch_function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def argument(self, value: Any) -> Argument: ...
    def lifted(self, argument: Argument) -> Any: ...
    def value(self, value: Any) -> Any: ...
    def to_examples(self, value: Any, may_be_size: bool = True) -> Any:
        """A value of the program with the examples of what only a run has; any number does for what is no size."""

    # ---- places

    def site(self) -> CallSite | None: ...
    def where(self) -> str | None: ...
    def target_name(self) -> str: ...
    def unpacked_names(self) -> Sequence[str]: ...

    # ---- going back

    def mark(self) -> Any: ...
    def back_to(self, mark: Any) -> None: ...


class Owner(Protocol):
    """What a constant lives on: outside/made_tensors.py."""

    arrays: list[Callable[[], Any]]
    version: int | None
    is_view: bool

    def tensor(self) -> torch.Tensor | None: ...
    def is_gone(self, constants: int) -> bool: ...


class HeldTensors(Protocol):
    """The tensors that a program has, by where it has them: typed/held_tensors.py."""

    @property
    def owners(self) -> MutableMapping[str, Owner]: ...

    def read(self, values: Iterable[Any]) -> None: ...
    def path(self, tensor: torch.Tensor) -> str | None: ...
    def note(self, tensor: torch.Tensor, path: str) -> None: ...
    def take_fact(self, tensor: torch.Tensor, fact: Fact, at: str = "") -> None: ...
    def take_fact_at(self, path: str, fact: Fact, at: str = "") -> None: ...
    def note_lasting(self, tensor: torch.Tensor) -> None: ...
    def note_lender(self, array: Any, tensor: torch.Tensor) -> None: ...
    def device_of(self, tensor: torch.Tensor, is_only_handed_on: bool = True) -> torch.device: ...


class Reads(Protocol):
    """What one run of a program reads of its modules: effects/module_reads.py."""

    @property
    def found_missing(self) -> dict[tuple[str, str], tuple[str, bool]]:
        """Attributes that the program itself looked for and a module did not have: where, and in whose code.

        By the path of the module and the name; the code is one that its user cannot change, or not.
        """

    def missed_key(self, path: str, key: Hashable) -> None: ...


class Dtypes(Protocol):
    """The dtypes that the program has read and not handed on yet: calls/dtypes.py."""

    handed: dict[Any, Any]

    def let_keep(
        self, owner: Any, name: str, value: torch.dtype | torch.device, node: Callable[[], Node], ask: Callable[[], Any]
    ) -> bool: ...
    def read(self, tensor: torch.Tensor, frame: FrameType | None, at: str) -> None: ...
    def tensor_given(self, dtype: Any, frame: FrameType, index: int, keyword: str | None) -> torch.Tensor | None:
        """The tensor whose dtype a frame's call gives as an argument; None for a plain dtype."""

    def node_of(self, tensor: torch.Tensor) -> Node: ...
    def given(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
    def have_arrived(self) -> bool: ...
    def end_call(self) -> bool: ...


class TypedCapture(Capture, Protocol):
    """A capture with example values: what `trace` makes."""

    members: Members | None  # the modules of the program, where it has any
    module_calls: dict[str, int]  # how often each module was called, by path
    is_finishing: bool  # whether the program has ended: nothing changes lists, dicts and objects any more
    objects: dict[int, Callable[[], Node]]  # the objects of the user's classes among the inputs, by id
    told_apart: set[int]  # the inputs of which the program asks which they are, by id
    hashed: list[TensorProxy]  # the tensors by which the program knows something: keys of dicts, items of sets
    generators: dict[int, Any]  # copies of the generators of Python and NumPy that the program draws from, by id

    @property
    def reads(self) -> Reads | None: ...
    @property
    def examples(self) -> Examples: ...
    @property
    def dtypes(self) -> Dtypes: ...
    @property
    def copied_calls(self) -> Sequence[Node]: ...
    @property
    def callers(self) -> Callers: ...
    @property
    def numbers(self) -> TypedNumbers: ...
    @property
    def attempts(self) -> TypedAttempts: ...
    @property
    def writes(self) -> TypedWrites: ...
    @property
    def transforms(self) -> TypedTransforms: ...
    @property
    def ambient(self) -> TypedAmbient: ...
    @property
    def tensors(self) -> HeldTensors: ...
    def finishing(self, values: Iterable[Any]) -> AbstractContextManager[None]:
        """What to enter to write values as they are at the end of the program, or of a way through it."""

    def record(
        self,
        op: str,
        target: Target,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        owner: tuple[Node, ...] = (),
        gives_data: bool = False,
        hidden: Callable[[], int] | None = None,
    ) -> Any:
        """Run an operation on the examples, make its node, and give the results as values of the program."""

    def item_node(self, owner: Node, key: Hashable, name: str = "") -> Node:
        """The node of one item."""

    def opaque_items(self, value: Any, node: Node) -> Any: ...
    def example(self, tensor: torch.Tensor) -> torch.Tensor: ...
    def call_module(self, module: nn.Module, shell: nn.Module, /, *args: Any, **kwargs: Any) -> Any: ...
    def is_leaf(self, module: nn.Module, path: str) -> bool:
        """Tell whether a module is one node."""


class SymbolicCapture(Capture, Protocol):
    """A capture without example values: what `symbolic_trace` makes."""

    last_frame: FrameType | None  # of the program that recorded something

    @property
    def writes(self) -> SymbolicWrites: ...
    def look(self, frame: FrameType) -> None: ...


def with_examples(capture: Capture) -> TypedCapture:
    """A capture that is known to have example values, because a value of it does."""
    assert capture.typed is not None
    return capture.typed
