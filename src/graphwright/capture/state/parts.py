"""The parts of a capture that is running, as others see them: each knows one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence, Sized
from contextlib import AbstractContextManager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from graphwright.ir import Target

if TYPE_CHECKING:
    from torch import nn

    from graphwright.capture.state.places import Place
    from graphwright.capture.state.regions import Region
    from graphwright.capture.state.rungs import (
        Forking,
        HasTruth,
        Knowledge,
        Messages,
        QuestionSubject,
        Raisable,
        Raises,
        Refusals,
        Staging,
        Subjects,
    )
    from graphwright.capture.state.samples import Verdict
    from graphwright.capture.state.symbols import Number, Symbol
    from graphwright.capture.state.tensor_proxy import TensorProxy
    from graphwright.ir import Argument, Node
    from graphwright.values import Kind, Policy

_T = TypeVar("_T")

# Of a `try`: what each handler catches, None for everything, and the handler.
Handlers = Sequence[tuple[Callable[[], Any] | None, Callable[[Any], Any]]]


class ExampleFacts(Protocol):
    """What the examples of a capture are."""

    are_there: bool  # whether there are any
    is_running: bool  # whether an operation is run on them right now
    is_real: bool  # whether they have data

    def quiet(self, run: Callable[[], _T]) -> _T:
        """Do something that is none of the program's doing: what listens to that does not hear it."""


class Optionals(Protocol):
    """Follows the tensors of one capture that may be None, or a bool, to the functions that may ask."""

    @property
    def are_there(self) -> bool:
        """Whether there is such a tensor."""

    def note(self) -> None:
        """Note that there is one."""

    def admit(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """See to it that a function which gets such a tensor asks through the runtime, or have it fork."""

    def attribute_may_be_none(self, optional: TensorProxy, frame: FrameType) -> None:
        """Code that may ask whether an attribute is None is entered: have it ask through the runtime."""

    def hold(self, value: Any) -> None:
        """A value is put into an object or container: have functions looked at that may find None or a tensor there."""

    def function_entered(self, frame: FrameType) -> None:
        """See to it that a function which finds such a value in what it is given asks through the runtime."""

    def convert_for(self, optional: TensorProxy, codes: set[CodeType]) -> None:
        """Have functions converted for such a tensor, or where there is none to convert, have it fork."""


class Guards(Protocol):
    """The answers that one capture takes from its example."""

    def guard(self, symbol: Symbol, where: str = "") -> Any:
        """Take the answer of the example, and check when the program runs that it is this."""

    def guard_sizes(self, values: Iterable[Any]) -> None:
        """Take what these values are, short of their data, from the example: the program asked by a `try`."""

    def of_example(self, subject: QuestionSubject) -> Any:
        """The answer of the example, None where that cannot tell."""


class Ladder(Protocol):
    """The questions of one capture and how each is answered: a part for each rung."""

    @property
    def subjects(self) -> Subjects:
        """What tells values apart."""

    @property
    def knowledge(self) -> Knowledge:
        """What is known already."""

    @property
    def staging(self) -> Staging:
        """Functions to convert."""

    @property
    def optionals(self) -> Optionals:
        """Who gets a tensor that may be None."""

    @property
    def forking(self) -> Forking:
        """Ways that are gone to the end."""

    @property
    def guards(self) -> Guards:
        """Answers of the example."""

    @property
    def refusals(self) -> Refusals:
        """What cannot be captured."""

    @property
    def raises(self) -> Raises:
        """Exceptions."""

    @property
    def messages(self) -> Messages:
        """What tells people something."""

    def answer(self, symbol: Symbol) -> Any:
        """Answer what Python asks of a number: convert who asks, or fork, or take the example's value under a guard."""

    def decide(self, subject: QuestionSubject, kind: type = bool) -> Any:
        """Answer a question of Python's about a value, as the plan says for its place."""

    def branch(
        self,
        test: HasTruth,
        then: Callable[[], Any],
        other: Callable[[], Any],
        names: tuple[str, ...] | None = None,
        alive: tuple[str, ...] | None = None,
        unshared: tuple[str, ...] = (),
    ) -> Any:
        """Run the side that is known to be taken, or capture both."""

    def place(self) -> tuple[Any, ...] | None:
        """What tells a question from others: where in which function, and in which call of which module."""

    def restart(self, why: BaseException) -> BaseException:
        """Have the capture start again; whatever the program does until then is ignored."""


class Numbers(Protocol):
    """The symbols of one capture: equal computations give one symbol, whose node is made at its first use."""

    def of_node(self, node: Node, hint: Number, kind: type) -> Any:
        """The number that a node gives, which depends on data."""

    def truth(self, value: Any) -> Any:
        """The truth of a value: a symbol for a symbolic one."""

    def loose_truth(self, value: Any) -> Any:
        """A value of which only the truth counts: what is written is the value itself."""

    def hint(self, subject: QuestionSubject) -> bool | None:
        """The truth of a value for the examples, None where they cannot tell."""

    def negation(self, value: HasTruth) -> Any:
        """`not value` of a symbolic value."""

    def compare(self, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """One comparison, written as the operator that it is."""

    def length(self, value: Sized) -> Any:
        """`len(value)` of a symbolic value."""

    def computed(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A number that a function of Python's computes from numbers, symbolic ones among them."""

    def predicate(self, subject: QuestionSubject) -> Argument:
        """The argument that decides a branch."""


class TypedNumbers(Numbers, Protocol):
    """The symbols of one capture: equal computations give one symbol, whose node is made at its first use."""

    def size_symbol(self, tensor: TensorProxy, dim: int) -> Symbol:
        """The symbol of one size of a tensor. Raises IndexError for a dimension that it does not have."""

    def count_symbol(self, tensor: TensorProxy) -> Symbol:
        """The symbol of the number of elements of a tensor."""

    def hashed(self, symbol: Symbol) -> None:
        """A number is to be a key: have what it comes from guarded, where that can be."""

    def class_read(self, symbol: Symbol, frame: FrameType) -> None:
        """Code that runs in a frame of the program reads the `__class__` of a number."""

    def fix_sizes(self, tensor: TensorProxy) -> None:
        """Take the sizes of a tensor from the example; each that the program reads is guarded."""

    def training_symbol(self, prefix: str, value: bool) -> Symbol:
        """The symbol of a module's training flag."""

    def attribute_symbol(self, path: str, value: Number, is_dynamic: bool, is_state: bool) -> Symbol:
        """The symbol of a number that a module has, which the graph reads at each call."""

    def firm_beside(self, one: Any, other: Any) -> tuple[Any, Any]:
        """Two values that a branch is to join: a number of a module beside a plain one is the example's."""

    def firm(self, symbol: Symbol) -> Number:
        """Answer what Python asks of numbers of modules, and take these for granted."""

    def input_symbol(self, node: Node, value: Number) -> Symbol:
        """The symbol of a number that is passed to the program."""

    def data_symbol(
        self,
        hint: Number,
        kind: type,
        function: Callable[..., Any] | str,
        args: tuple[Any, ...],
        sample: Number | None = None,
    ) -> Symbol:
        """The symbol of a number that depends on the data of tensors; without a hint, operations run on a sample."""

    def constant_symbol(self, value: Number) -> Symbol:
        """A plain number where torch wants a symbol beside another."""

    def computed_symbol(self, function: Callable[..., Any], args: tuple[Symbol, ...]) -> Symbol:
        """The symbol of a function of symbols; of constants alone it is a constant again."""

    def node_of_symbol(self, symbol: Symbol) -> Any:
        """The node that computes a number, made at its first use; a constant is itself."""

    def is_none(self, tensor: TensorProxy) -> Any:
        """Whether a tensor that may be None is: a symbol, or what the side of a branch that is captured knows."""

    def item(self, tensor: TensorProxy) -> Symbol:
        """The number in a tensor of one element."""


class Joining(Protocol):
    """Joins values of `trace`: tensors of one dtype and rank, numbers of one kind."""

    def policy(self, name: str) -> Policy:
        """Which values of a container are joined, and to what; `name` is what the container is called."""

    def verdict(self, a: Any, b: Any, may_be_none: bool) -> Verdict:
        """Say what becomes of two values. Raises Unlike."""

    def carried(self, entry: Any, after: Any) -> Verdict:
        """Say what becomes of a value that an iteration of a loop finds, and leaves another way. Raises Unlike."""

    def sample(self, entry: Any, after: Any) -> Kind:
        """What a value is like that is `entry` before a loop and `after` after an iteration."""

    def widened(self, sample: Kind, after: Any) -> Kind:
        """What a value is like that an iteration leaves so, too. Raises Unlike where that is of another kind."""

    def like(self, sample: Kind, value: Any) -> Kind:
        """A sample with the example of a value of its kind."""

    def changes_size(self, sample: Kind, after: Any) -> bool:
        """Tell whether each iteration leaves a tensor of another size."""

    def stand_in(self, sample: Kind, node: Node, place: Place | None, hint: Any = None) -> Any:
        """The value in the program of a node that gives something like a sample, for numbers with this hint."""

    def node_of(self, value: Any) -> Node | None:
        """The node of a value that only a run has, as far as there is one."""

    def is_open(self, value: Any) -> bool:
        """Tell whether only a run has a value."""

    def items_grow(self) -> bool:
        """Tell whether lists that are items get longer."""

    def value(
        self, subject: QuestionSubject, pair: tuple[Any, Any], node: Node, place: Place | None, then_raised: bool
    ) -> Any:
        """The value in the program of one output of a branch; its example is that of the side the example takes."""

    def kind_name(self, value: Any) -> str:
        """What kind of value the program has there, in a message."""

    def source_name(self, value: Any) -> str:
        """What the source calls a value, if it does."""


class Choices(Protocol):
    """The objects of which data chose one: a copy stands for it until the program changes one of them."""

    @property
    def open(self) -> Sequence[Any]:
        """Those that the program may still notice."""

    def note(self, choice: Any, known: Iterable[Any] = ()) -> None:
        """Note that something stands for one of several; `known` are the choices made on the sides."""

    def mark(self) -> int:
        """How many choices there are, for `cut`."""

    def cut(self, mark: int) -> list[Any]:
        """The choices noted after a mark, which are open no more."""

    def reopen(self, choices: Iterable[Any]) -> None:
        """Have choices be open again, with what the objects hold now."""

    def look(self) -> None:
        """See that no object of a choice has changed."""

    def at_node(self, target: Target, args: tuple[Any, ...]) -> None:
        """See that a node that is to be made changes no object of a choice."""

    def ask(self, one: Any, other: Any) -> None:
        """The program asks whether two objects are one."""


class Attempts(Protocol):
    """The `try` statements of one capture."""

    swallowing: list[Any]  # contexts that are entered and may swallow an error

    def run(
        self,
        tried: Callable[[], Any],
        handlers: Handlers,
        orelse: Callable[[], Any] | None,
        final: Callable[[], Any] | None,
        names: tuple[str, ...],
        only_raises: bool,
    ) -> Any:
        """`try: ... except ...: ... else: ... finally: ...`; returns whether it is left."""

    def raised(self, error: Raisable) -> bool:
        """A `raise` is about to end a side of a branch. Tell whether a region is there to catch it."""

    @property
    def are_open(self) -> bool:
        """Whether the body of a `try` is being captured as a region."""

    def forks(self, error: Raisable) -> bool:
        """Tell whether a `try` that is run as Python does, and cannot be a region, may catch an error."""

    def takes(self, error: BaseException) -> bool:
        """A side of a branch has raised an error as Python does. Tell whether a region is there to catch it."""

    def catches_plainly(self) -> bool:
        """Tell whether a `try` that is run as Python does may catch what is raised where the capture is."""

    def catches_here(self, frame: FrameType) -> bool:
        """Tell whether a frame runs the body of a `try` that is known here."""

    def plain_catches(self, error: Raisable, region: Region) -> bool:
        """Tell whether a `try` that is run as Python does, inside of the region, catches an error."""

    def flush(self, region: Region) -> None:
        """An iteration of a loop ends."""

    def made(self, error: BaseException, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note what an error is made of, and give it back."""

    def standing_for(self, example: BaseException, error: Any) -> Any:
        """Note that an error which is raised as Python does stands for one that only a run knows."""

    def original(self, error: Raisable) -> Any:
        """What an error that is raised as Python does stands for: mostly itself."""

    def args_of(self, error: BaseException) -> tuple[Any, ...]:
        """What to make an error of."""


class TypedAttempts(Attempts, Protocol):
    """The `try` statements of one capture."""

    def look_up(self) -> None:
        """A key is about to be looked up that a dict of the program may not have: see whether it catches that."""

    def run_again(
        self,
        error: Exception,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        may_be_size: bool,
    ) -> Any:
        """An operation has failed for the example: run it with other indices, where these are not the example's."""

    forked: int  # how many are run as Python does although an operation may fail in them

    def guard_forked(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation is run in a `try` that cannot be a region: take what may make it fail from the example."""

    def failed(self, error: Exception, args: Sequence[Any]) -> None:
        """Numbers cannot be computed for the example. Raises the error, unless the graph does without an example."""

    def look(self, frame: FrameType, op: str, target: Target, args: tuple[Any, ...]) -> None:
        """A node is about to be made: see whether the program catches what it may raise."""

    def forget(self) -> None:
        """Keep no frame alive."""

    def class_of(self, error: Any) -> type:
        """`type(error)` of an error that only a run knows."""

    def computed(self, symbol: Symbol) -> None:
        """A number is computed that may fail to be, once a node does it: in a `try`, that is done there."""

    def asked(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """`str(error)`, `repr(error)`, `isinstance(error, kind)` and `type(error)`."""

    def comes_from(self, node: Node, error: Node) -> None:
        """A node gives what an error has."""

    def refuse_text(self, node: Node) -> None:
        """Python asks for the text of an error: then each way that leads to one is a path."""

    def attribute(self, error: Any, name: str) -> Any:
        """An attribute of an error: what it is like, all that are raised there have to agree on."""


class Writes(Protocol):
    """How often each memory was written to, and the numbers that were read from it and have no node yet."""

    @property
    def count(self) -> int:
        """How many writes there were."""

    def before(self, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation is about to be written: make the nodes of numbers that it would change."""

    def start_loop(self) -> None:
        """An iteration starts, in which tensors may hold what an earlier one has written."""


class SymbolicWrites(Writes, Protocol):
    """How often the program wrote, of which memory nobody knows."""

    harmless: set[tuple[str, Target]]  # what writes only where a keyword says so, as far as it came up


class TypedWrites(Writes, Protocol):
    """How often each memory was written to, and the numbers that were read from it and have no node yet."""

    counts: dict[Any, int]  # how often, by memory

    @property
    def memories(self) -> KeysView[Any]:
        """The memories that were written to."""

    def read(self, symbol: Symbol, tensor: torch.Tensor) -> Symbol:
        """Note that a number is read from a tensor: as of now."""

    def stamp(self, tensor: TensorProxy) -> Any:
        """What tells the data of a tensor from that at other times."""

    def measured(self, symbol: Symbol, tensor: TensorProxy) -> None:
        """Note that a number is a size of a tensor: as of now."""

    def shape_stamp(self, tensor: torch.Tensor) -> int:
        """What tells the shape of a tensor from that at other times."""

    def held_shape(self, tensor: torch.Tensor) -> None:
        """The program asks a tensor that it has for its shape: refuse where that may be another one by now."""

    def attribute(self, tensor: TensorProxy, name: str, value: Any) -> None:
        """The program gives a tensor an attribute."""

    def made(self, tensor: TensorProxy, mark: str, frame: FrameType) -> None:
        """torch marks a tensor, while it makes a parameter or buffer of it."""

    def read_of_input(self, tensor: TensorProxy, name: str, frame: FrameType | None) -> None:
        """The program asks an input for an attribute that tensors do not have."""


class Transforms(Protocol):
    """The calls of transforms in one capture."""

    def handler(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """What to call in place of a function that takes, or is made of, a function; None for others."""


class TypedTransforms(Transforms, Protocol):
    """The calls of transforms in one capture."""

    def know_whole(self, container: tuple[Any, ...] | list[Any] | dict[Any, Any], make: Callable[[], Node]) -> Any:
        """Remember which node a container is the value of, and give it back."""

    def record(
        self,
        name: str,
        function: Callable[..., Any],
        options: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Record a call of a function that a transform has made."""

    def example_of(self, node: Node, region: Region | None) -> Any:
        """The example of a value that a body uses from outside."""

    def note(self, node: Node, example: Any) -> Node:
        """Remember the example of a value that is used in a region."""

    def node_of_whole(self, container: Any) -> Node | None:
        """The node whose value a container is, where the program has not changed it since."""


class Callers(Protocol):
    """Looks for such calls on the stack of one capture."""

    generators: dict[int, Any]  # that the program can reach, by id
    overheard: dict[tuple[int, str], Any]  # stand-ins under names of the program's own, by namespace and name

    def forget(self, is_over: bool = True) -> None:
        """Keep no frame alive, nor values of the capture in caches and globals. `is_over`: the program has ended."""

    def let_go(self) -> None:
        """Keep no frame alive, nor so what it and those around it hold."""

    def start(self, function: Callable[..., Any], world: Any) -> None:
        """Note the global variables of the program before it runs: of the function itself, and of its modules."""

    @property
    def stand_in(self) -> CodeType:
        """The code that makes the calls of converted functions in their place."""

    def may_look_for(self, name: str, in_dicts: bool) -> bool:
        """Tell whether the program may find out that something has no attribute of this name."""

    def mention(self, name: str, code: CodeType) -> None:
        """The program looks for an attribute by a name that it may have computed."""

    def note_given(self, value: Any, subject: str, code: CodeType) -> None:
        """A call that is not known to compute has given something that others hold as well."""

    def shows(self, owner: Any) -> bool:
        """Tell whether what a method does to an object is seen by what that holds."""

    @property
    def outside(self) -> Any:
        """What the program may change outside of functions and modules."""

    def look(self, frame: FrameType) -> None:
        """An operation was recorded for this frame of the program: see that no unseen call is around it."""

    def look_at_call(self) -> None:
        """A module is called: see that it is not by a call that nobody saw."""

    def reached_compiler(self) -> None:
        """Torch.compile is at work, which looks at tensors with modes like ours off: start again without it."""

    def reached_cpp(self, function: Callable[..., Any]) -> BaseException:
        """What to raise where a tensor of the program reaches C++: start again with the caller converted, or refuse."""

    def hashed(self, tensor: TensorProxy) -> None:
        """A tensor becomes the key of a dict or the item of a set: it is told from other ones."""

    def follow(self, function: type) -> None:
        """Say that an autograd function's own backward is lost: its operations are recorded."""


class Ambient(Protocol):
    """The regions that a program is inside of while it is captured."""

    @property
    def depth(self) -> int:
        """How many regions the program is inside of."""

    def forget(self, depth: int) -> None:
        """Go back to an earlier depth: the regions since then are in a graph that is given up."""

    def notice(self) -> None:
        """Record that inference mode was entered or left since the last operation."""

    def inference_mode(self, enabled: bool) -> AbstractContextManager[None]:
        """What to enter in place of `torch._C._InferenceMode(enabled)`: a region that is recorded."""


class TypedAmbient(Ambient, Protocol):
    """The regions that a program is inside of while it is captured."""

    flag: Any  # what grad mode is set to next, where only a run knows

    def read_grad_mode(self, function: Callable[..., bool]) -> Any:
        """Whether gradients are taken: a bool of the program, unless it says itself in what region it is."""

    def is_inside(self, kind: str, name: str = "") -> bool:
        """Tell whether the program is inside a region of its own of one kind, of autocast for one kind of device."""

    def made_without_dtype(self, context: torch.autocast) -> None:
        """Note that a context of autocast takes the dtype of the one around it."""

    def set_grad_mode(self, enabled: bool) -> None:
        """Record and do what `torch._C._set_grad_enabled` is called for."""

    def asked_for_class(self, frame: FrameType) -> None:
        """Record that autocast is entered or left, if that is what looks at the function mode."""


class Keeping(Protocol):
    """The attributes of one run of a program: live where the plan says that it writes them."""

    def set_forward(self, shell: nn.Module, forward: Callable[..., Any]) -> None:
        """Have a module run another forward, which is no change of the program's."""

    def may_have_run_keys(self) -> bool:
        """Tell whether there is a dict that may have keys which only a run knows."""

    def has_run_keys(self, values: dict[Any, Any]) -> None:
        """Have a dict that is kept be one whose keys only a run knows. Raises Restart."""

    def is_untouched(self, path: str) -> bool:
        """Tell whether all holds what it held at first that a module and those below it, or an object, may have."""

    @property
    def names_of_optionals(self) -> frozenset[str]:
        """The names of the attributes that may be None: what mentions them may ask."""

    def code_entered(self, frame: FrameType) -> None:
        """Have code converted that mentions an attribute which may be None."""

    def learn_growth(self) -> BaseException | None:
        """Why the capture is to start again, if a list or dict has got more items or fewer than it had."""

    def learn(self) -> None:
        """Have the capture start again if the program has changed what it was not expected to."""

    def kept_tables(self) -> set[int]:
        """The objects and containers whose state is the program's, by id; of objects their attributes, too."""

    def write(self, shell: nn.Module | None = None) -> None:
        """Write what the program has changed so far, in all modules or in one and those below it."""

    def has_changed(self) -> bool:
        """Tell whether the program has changed what is not written yet."""

    def unwritten(self) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (table, name, what is there now) of what the program has changed and not written yet."""

    def write_at_end(self) -> None:
        """Write what has changed where the program ends on one side of a branch: objects are made as they are then."""

    def write_new(self, attributes: dict[str, Any], key: str, value: Any, after: Any) -> bool:
        """Write a new attribute on a side of a branch, after which it holds what `after` stands for."""
