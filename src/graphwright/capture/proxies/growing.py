"""Lists, tuples, dicts, sets and deques of which only a run knows the content: what the whole capture asks of one.

Each read and write is a node, where it happens; what its methods do is in `capture/containers`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.utils._pytree import register_pytree_node

from graphwright.capture.state.plan import Restart
from graphwright.capture.state.running import again, refused
from graphwright.ir import Node
from graphwright.source import user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.samples import Growable


class Growing:
    """What all of them share: a name, how the node is read that gives one, and what is done where it cannot be one."""

    is_local = False  # whether it is a variable of the program, rather than an attribute
    is_sized = False  # whether its length is a size, so that it can be one that the example has
    name: str
    recorder: Capture
    _read: Callable[[], Node]
    _give_up: Callable[[], Any] | None
    base: Any  # the class that it stands for, where no other that is given will do
    length: Callable[[], Any]  # how much is in it: a number of the program
    truth_hint: Callable[[], Any]  # whether there is anything in it for the example, as far as that is known

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Have torch's trees, which know containers by their exact class, read what stands for one as a whole."""
        super().__init_subclass__(**kwargs)
        register_pytree_node(cls, cls._refuse, _not_flattened)

    def _start(
        self,
        name: str,
        recorder: Capture,
        read: Callable[[], Node],
        give_up: Callable[[], None] | None = None,
    ) -> None:
        """`give_up` has the next pass take the container for one that does not grow."""
        self.name, self.recorder, self._read, self._give_up = name, recorder, read, give_up
        self._home = recorder.region  # where it was made

    def before_refill(self, held: Growable) -> None:
        """What there is for the example is about to become what was there before."""

    @property
    def example_of(self) -> Any:
        """What there is for the example, as an object of the plain class."""
        return self

    def stands_for(self) -> type:
        """The class that the program takes it to be of."""
        return self.base  # type: ignore[no-any-return]

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.stands_for()

    def node_of(self) -> Node:
        """The node that reads the container."""
        return self._read()

    def __len__(self) -> int:
        return int(self._asked(lambda: int(self.length())))

    def _asked(self, answer: Callable[[], Any]) -> Any:
        """What torch may ask of an argument: 2.6 crashes where that fails. The program is left in its next line."""
        try:
            return answer()
        except BaseException as why:
            if why is not self.recorder.pending:
                raise
            again(why)
            return 0

    def __bool__(self) -> bool:
        return bool(self.length() > 0)

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        if self.is_local:  # who asks is converted, so that it asks the capture
            self.recorder.questions.staging.stage(user_frame(sys._getframe(1)))
        if self._give_up is not None:
            self._give_up()
            raise self.recorder.questions.restart(Restart(f"{self.name} is read as a whole"))
        if self.is_local:
            raise refused(
                self.recorder,
                f"the program reads {self.name or 'a container'}, which a loop on data fills, as a whole",
                "read single items of it, go over it in a `for` loop, or pass it to an operation",
            )
        raise refused(
            self.recorder,
            f"the program goes over {self.name}, to which it adds from call to call",
            "read single items of it, or pass it whole to an operation",
        )


def _not_flattened(values: Any, context: Any) -> Any:
    raise AssertionError("a container of a capture was flattened")


def is_growing(value: Any) -> bool:
    """Tell whether a value is a list, dict or set to which the program adds from call to call."""
    return isinstance(value, Growing)
