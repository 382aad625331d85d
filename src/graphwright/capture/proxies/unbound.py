"""Variables that have a value on some ways through the program only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphwright.capture.state.running import refusal, running
from graphwright.errors import CaptureError
from graphwright.ops import expect_bound
from graphwright.values import Given, Template, filled

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.rungs import HasTruth


class OneSided(CaptureError):
    """A variable is used that has a value on only one side of the branch of this place."""

    def __init__(self, name: str, where: str | None, place: Place | None) -> None:
        super().__init__(
            f"the variable {name!r} has a value on only one side of a branch",
            at=where,
            fix=f"give {name!r} a value before the branch, or on both sides",
        )
        self.place = place


class Unbound:
    """Stands for a variable that only one side of a branch assigned; where it is used, the branch forks instead."""

    def __init__(self, name: str, where: str | None, place: Place | None) -> None:
        object.__setattr__(self, "_about", (name, where, place))

    def unbound(self) -> Unbound:
        """The variable as one that nobody knows more of."""
        return Unbound(*object.__getattribute__(self, "_about"))

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        name, where, place = object.__getattribute__(self, "_about")
        error, recorder = OneSided(name, where, place), running()
        if recorder is None or recorder.pending is not None or recorder.plan.obstacles is not None:
            raise refusal(error)
        recorder.plan.one_sided.add(name)
        raise recorder.questions.forking.differ(place, error.message, True)

    __getattr__ = __call__ = __getitem__ = __iter__ = __bool__ = __len__ = __torch_function__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __matmul__ = __rmatmul__ = _refuse
    __str__ = __format__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class BoundIf(Unbound):
    """Stands for a variable that has a value where a loop was left: on that side of a branch it is that value."""

    def __init__(self, name: str, where: str | None, place: Place | None, value: Any, decider: HasTruth) -> None:
        super().__init__(name, where, place)
        object.__setattr__(self, "_held", (value, decider))

    def parts(self) -> tuple[Any, Any]:
        """The value, and what tells where it is there."""
        return object.__getattribute__(self, "_held")  # type: ignore[no-any-return]


class BoundIfRun(Unbound):
    """Stands for a variable that has a value where a loop ran: where it is read, the program sees that it does.

    `witness` is a value of the run that is None where no iteration has given the variable one.
    """

    def __init__(self, name: str, where: str | None, place: Place | None, value: Any, witness: Any) -> None:
        super().__init__(name, where, place)
        object.__setattr__(self, "_held", (value, witness))
        object.__setattr__(self, "_checked", [])  # the regions that begin with knowing it
        object.__setattr__(self, "_is_read", [])

    def value(self) -> Any:
        """The value that the last iteration gave it."""
        return object.__getattribute__(self, "_held")[0]

    def tells(self) -> bool:
        """Tell whether it is the value itself that is None where there is none."""
        value, witness = object.__getattribute__(self, "_held")
        return value is witness

    def afresh(self) -> BoundIfRun:
        """The same variable, as one that nobody has read."""
        made = self.with_value(*object.__getattribute__(self, "_held"))
        object.__setattr__(made, "_checked", object.__getattribute__(self, "_checked"))
        return made

    def is_read(self) -> bool:
        """Tell whether the program has read it."""
        return bool(object.__getattribute__(self, "_is_read"))

    def with_value(self, value: Any, witness: Any) -> BoundIfRun:
        """The same variable, with its value as it is elsewhere."""
        name, where, place = object.__getattribute__(self, "_about")
        return BoundIfRun(name, where, place, value, witness)

    def read(self) -> Any:
        """The value, where the program reads the variable: a node sees that there is one."""
        capture, checked = running(), object.__getattribute__(self, "_checked")
        value, witness = object.__getattribute__(self, "_held")
        object.__getattribute__(self, "_is_read").append(True)
        if capture is not None and not any(region in checked for region in capture.region.all()):
            checked.append(capture.region)
            name = object.__getattribute__(self, "_about")[0]
            capture.node("call_function", expect_bound, (capture.argument(witness), name), {}, "", "check")
        return value


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ran(Template):
    """In joined values: a variable that has a value where a loop ran."""

    about: BoundIfRun
    value: Any

    def filled(self, given: Given) -> BoundIfRun:
        """The variable with its value."""
        value = filled(self.value, given)
        return self.about.with_value(value, value)


def bound(value: Any) -> Any:
    """What a variable holds that a loop may have given its value."""
    return value.read() if type(value) is BoundIfRun else value


def variables(function: Callable[[], dict[str, Any]], /, *readers: tuple[str, Callable[[], Any]]) -> dict[str, Any]:
    """`locals()`: the variables that have a value; one that has it only on some ways makes the branch fork."""
    if function is not locals:
        return function()
    held: dict[str, Any] = {}
    for name, read in readers:
        try:
            value = bound(read())
        except NameError:
            continue
        if isinstance(value, Unbound):
            bool(value)
        held[name] = value
    return held
