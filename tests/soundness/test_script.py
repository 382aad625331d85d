"""`script` takes nothing of the outside for granted in silence: equal to Python, or an error of ours."""

from __future__ import annotations

import copy
import dataclasses
import functools
import heapq
import sys
import types
from collections.abc import Callable
from typing import Any, Optional, Protocol

import pytest
import torch
from torch import nn

from graphwright import CaptureError, GraphwrightError, GuardError, ScriptError, script
from graphwright.script import ignore

ONES = torch.ones(2)
Story = Callable[[Any], Any]


def thrice(program: Any) -> Any:
    return [program(ONES).tolist() for _ in range(3)]


def gradient(program: Any) -> Any:
    x = torch.ones(2, requires_grad=True)
    program(x).sum().backward()
    return x.grad.tolist()


class Counted(nn.Module):
    """What others change."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 1
        self.flag = None

    def forward(self, x):
        return x * self.n if self.flag is None else x - self.n


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(Counted())

    def forward(self, x):
        return self.inner(x) + 1


# ---- hooks


def _log(module, args, output):
    LOG.append(1)


LOG: list[int] = []


def logged(program: Any) -> int:
    LOG.clear()
    program(ONES)
    return len(LOG)


HOOKS: list[Any] = [
    ("register_forward_hook", lambda module, args, output: None, {}, thrice),
    ("register_forward_hook", lambda module, args, output: output * 3, {}, thrice),
    ("register_forward_hook", _log, {}, logged),
    ("register_forward_hook", lambda module, args, words, output: output * 3, {"with_kwargs": True}, thrice),
    ("register_forward_hook", lambda module, args, output: output * 3, {"always_call": True}, thrice),
    ("register_forward_pre_hook", lambda module, args: None, {}, thrice),
    ("register_forward_pre_hook", lambda module, args: (args[0] * 2,), {}, thrice),
    ("register_full_backward_hook", lambda module, into, outof: (into[0] * 5,), {}, gradient),
    ("register_full_backward_pre_hook", lambda module, outof: (outof[0] * 5,), {}, gradient),
]


@pytest.mark.parametrize("place", ["", "inner", "inner.0"])
@pytest.mark.parametrize(("register", "hook", "options", "story"), HOOKS)
def test_hooks_of_modules_that_are_entered(register, hook, options, story, place):
    program = Around()
    getattr(program.get_submodule(place), register)(hook, **options)
    assert story(script(program)) == story(program)


# ---- attributes that are written, however


def through_a_setter():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._scale = 1.0

        @property
        def scale(self):
            return self._scale

        @scale.setter
        def scale(self, value):
            self._scale = value

        def forward(self, x):
            self.scale = 2.0
            return x * self.scale

    return Scaled()


class Parent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.all = nn.ModuleList([Counted(), Counted()])


def by_a_parent():
    class Program(Parent):
        def forward(self, x):
            self.all[0].n = 4
            return self.all[0](x) + self.all[1](x)

    return Program()


def in_a_loop():
    class Program(Parent):
        def forward(self, x):
            for each in self.all:
                x = each(x)
            for each in self.all:
                each.n = 3
            return x

    return Program()


def _set(module, value):
    module.n = value


def by_a_function():
    class Program(Parent):
        def forward(self, x):
            y = self.all[0](x)
            _set(self.all[0], 5)
            return y + self.all[0](x)

    return Program()


def what_was_none():
    class Program(Parent):
        def forward(self, x):
            y = self.all[0](x)
            self.all[0].flag = x.sum()
            return y + self.all[0](x)

    return Program()


def of_another_type():
    class Program(Parent):
        def forward(self, x):
            y = self.all[0](x)
            self.all[0].n = 2.5
            return y * self.all[0].n if isinstance(self.all[0].n, float) else y

    return Program()


def by_a_hook_of_a_layer():
    class Program(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Identity()
            self.n = 0
            self.layer.register_forward_hook(self.count)

        def count(self, module, args, output):
            self.n += 1

        def forward(self, x):
            return self.layer(x) * self.n

    return Program()


def by_a_closure():
    class Program(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Identity()
            self.n = 0

            def hook(module, args, output):
                self.n += 1

            self.layer.register_forward_hook(hook)

        def forward(self, x):
            x = self.layer(x)
            return x if self.n > 1 else x * 2

    return Program()


WRITERS = [
    by_a_closure,
    through_a_setter,
    by_a_parent,
    in_a_loop,
    by_a_function,
    what_was_none,
    of_another_type,
    by_a_hook_of_a_layer,
]


@pytest.mark.parametrize("program", WRITERS, ids=lambda program: program.__name__)
def test_written_attributes_are_no_constants(program):
    original = program()
    captured = script(program())
    assert thrice(captured) == thrice(original)


class Looked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Counted()

    @ignore
    def look(self, x):
        setattr(self.inner, chr(110), 7)  # by a name that no instruction has
        return x

    def forward(self, x):
        return self.inner(self.look(x))


def test_what_is_written_by_code_that_is_not_compiled_is_loud():
    captured = script(Looked())
    with pytest.raises(GuardError, match=r"captured for 1 in the attribute 'inner.n'; now it is 7"):
        captured(ONES)


CHANGES = [("inner.0", "n", 3), ("inner.0", "flag", ONES), ("inner.0", "n", 1.0)]


@pytest.mark.parametrize(("path", "name", "value"), CHANGES)
def test_constants_that_change_after_capture_are_loud(path, name, value):
    captured = script(Around())
    assert captured(ONES).tolist() == [2.0, 2.0]
    setattr(captured.get_submodule(path), name, value)
    with pytest.raises(GuardError, match=f"self.{path}.{name} was"):
        captured(ONES)


def _hook(captured):
    captured.inner[0].register_forward_hook(lambda module, args, output: output * 2)


def _layer(captured):
    captured.inner.append(nn.Identity())


def _class(captured):
    captured.inner[0] = nn.Identity()


def _forward(captured):
    captured.inner[0].forward = lambda x: x


@pytest.mark.parametrize("change", [_hook, _layer, _class, _forward], ids=lambda change: change.__name__)
def test_modules_that_change_after_capture_are_loud(change):
    captured = script(Around())
    assert captured(ONES).tolist() == [2.0, 2.0]
    change(captured)
    with pytest.raises(GuardError):
        captured(ONES)


def test_an_attribute_that_is_set_by_the_first_call():
    class Lazy(nn.Module):
        def forward(self, x):
            if not hasattr(self, "first"):
                self.first = 1
            return x * 2

    with pytest.raises(ScriptError, match="whether 'first' is set yet, only a run knows"):
        script(Lazy())


# ---- containers from outside


def _extended(x, log=LOG):
    log.extend([1])
    return x


def _through_another(x):
    return _with_default(x)


def _with_default(x, log=LOG):
    log.extend([1])
    return x


def _item(x):
    LOG[0] = 1
    return x


def _added(x, log=LOG):
    log += [1]
    return x


def _deleted(x):
    del LOG[0]
    return x


def _pushed(x):
    heapq.heappush(LOG, x.shape[0])
    return x


@pytest.mark.parametrize(
    "program", [_extended, _through_another, _item, _added, _deleted, _pushed], ids=lambda program: program.__name__
)
def test_containers_from_outside_are_not_changed(program):
    LOG[:] = [3]
    with pytest.raises(
        ScriptError, match=r"changes a (list from outside of the program|default value), which lives on"
    ):
        script(program)
    assert LOG == [3]


# ---- classes


class Base:
    def run(self, x):
        return x * 2

    @property
    def two(self):
        return 2


class Sub(Base):
    def run(self, x):
        return x * 7

    @property
    def two(self):
        return 3


class Runs(Protocol):
    def run(self, x): ...


class Alone:
    def run(self, x):
        return self.helper(x) * 2

    def helper(self, x):
        return x + 1


def _of_base(o: Base, x):
    return o.run(x) * o.two


def _of_protocol(o: Runs, x):
    return o.run(x)


def _of_list(o: list[Base], x):
    for each in o:
        x = each.run(x)
    return x


def _of_optional(o: Optional[Base], x):  # noqa: UP045
    if o is not None:
        return o.run(x)
    return x


def _is_sub(o: Base, x):
    return x + 1 if isinstance(o, Sub) else x


def _of_alone(o: Alone, x):
    return o.run(x)


def _of_alone_ones(o: list[Alone], x):
    for each in o:
        x = each.run(x)
    return x


def _is_int(o: int, x):
    doubled = o * 2
    return x + 1 if isinstance(doubled, int) else x


def _is_dict(o: dict[str, int], x):
    return x + 1 if isinstance(o, dict) else x


def _is_none(o: list[int], x):
    return x + 1 if o is None else x


DISPATCH: list[Any] = [
    (_of_base, [Base(), Sub()]),
    (_of_protocol, [Base(), Sub()]),
    (_of_list, [[Base(), Sub()]]),
    (_of_optional, [Base(), Sub(), None]),
    (_is_sub, [Base(), Sub()]),
    (_of_alone, [Alone()]),
    (_of_alone_ones, [[Alone()], []]),
    (_is_int, [1]),
    (_is_dict, [{"a": 1}]),
    (_is_none, [[1], (1,)]),
]


@pytest.mark.parametrize(("program", "given"), DISPATCH, ids=lambda value: getattr(value, "__name__", ""))
def test_the_class_of_an_argument_decides(program, given):
    captured = script(program)
    for value in given:
        assert torch.equal(captured(value, ONES), program(value, ONES))


OTHERS: list[Any] = [
    (_is_int, 1.5),
    (_is_dict, [1]),
    (_is_none, None),
]


@pytest.mark.parametrize(("program", "value"), OTHERS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_not_of_the_declared_type_is_loud(program, value):
    captured = script(program)
    with pytest.raises(GuardError):
        captured(value, ONES)


def test_a_class_that_is_made_after_the_capture_is_loud():
    captured, several = script(_of_alone), script(_of_alone_ones)

    class Late(Alone):
        def helper(self, x):
            return x + 5

    for program, value in ((captured, Late()), (several, [Late()])):
        with pytest.raises(GuardError, match="was of class Alone when the program was captured; now it is Late"):
            program(value, ONES)


def _parameter(x):
    return x * 2 if isinstance(x, nn.Parameter) else x - 1


def _marked(x):
    return x * 2 if hasattr(x, "mask") or getattr(x, "tag", None) is not None else x - 1


@pytest.mark.parametrize("program", [_parameter, _marked], ids=lambda program: program.__name__)
def test_what_only_some_tensors_are_and_have(program):
    captured = script(program)
    with_mask, with_tag = ONES.clone(), ONES.clone()
    with_mask.mask, with_tag.tag = 1, 2
    for x in (ONES, nn.Parameter(ONES), with_mask, with_tag):
        assert torch.equal(captured(x), program(x))


# ---- what ends


def _tree(x):
    return x.sum() if x.shape[0] == 1 else _tree(x[: x.shape[0] // 2]) * _tree(x[x.shape[0] // 2 :])


def test_recursion_over_sizes_is_bounded():
    with pytest.raises(GraphwrightError, match="_tree calls itself without an end that is known"):
        script(_tree)
    assert issubclass(ScriptError, CaptureError)


class CalledTwice(nn.Module):
    """One layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = self.first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))  # type: ignore[no-any-return]


def test_a_layer_under_two_names_stays_one() -> None:
    gm = script(CalledTwice())
    gm(ONES)
    gm.first = nn.Linear(2, 2)
    with pytest.raises(GuardError, match=r"self.second was self.first"):
        gm(ONES)


class Numbered:
    """An object that counts how many there are of its class."""

    count = 0

    def __init__(self) -> None:
        Numbered.count += 1


def reads_the_count(x: torch.Tensor) -> torch.Tensor:
    made = Numbered()
    return x * Numbered.count if made is not None else x


def test_what_making_an_object_changes_is_no_constant() -> None:
    with pytest.raises(ScriptError, match="reads 'count', which code of Numbered writes"):
        script(reads_the_count)


class ComputesOnce(nn.Module):
    """A module with a property that is kept once it has been read."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 3

    @functools.cached_property
    def doubled(self) -> int:
        return self.size * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.doubled


def test_a_property_that_is_computed_once_is_not_computed_on_the_original() -> None:
    module = ComputesOnce()
    assert torch.equal(script(module)(ONES), ONES * 6) and "doubled" not in vars(module)


@dataclasses.dataclass
class Pair:
    """What `dataclasses.astuple` goes into again and again."""

    one: torch.Tensor


@pytest.mark.parametrize("limit", [1_000, 5_000])
def test_functions_of_libraries_that_call_themselves_are_refused(limit: int) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        with pytest.raises(ScriptError, match="issubclass cannot be scripted") as refused:
            script(lambda x: dataclasses.astuple(Pair(x)))
    finally:
        sys.setrecursionlimit(before)
    assert "calls itself" not in str(refused.value)


def never_ends(x: torch.Tensor) -> torch.Tensor:
    """A function that calls itself, whatever it is given."""
    return never_ends(x + 1)


def depth() -> int:
    """How many calls are being made now."""
    frame: types.FrameType | None = sys._getframe()
    count = 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.parametrize("frames", [100, 200, 2_000])
def test_what_has_no_end_is_told_on_small_stacks_too(frames: int) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth() + frames)
    try:
        with pytest.raises(CaptureError, match="calls itself"):
            script(lambda x: never_ends(x))
    finally:
        sys.setrecursionlimit(before)


class Draws(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(2, generator=self.generator)


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.optimizer = torch.optim.SGD([self.weight], lr=1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss = (self.weight * x).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return self.weight.detach().clone()


@pytest.mark.parametrize("kind", [Draws, Steps])
def test_a_copy_has_what_objects_hold_for_itself(kind: type[nn.Module]) -> None:
    wanted, model = kind(), kind()
    scripted = script(model)
    copied = copy.deepcopy(scripted)
    for program in (copied, scripted):
        again = copy.deepcopy(wanted)
        assert [program(ONES).tolist() for _ in range(2)] == [again(ONES).tolist() for _ in range(2)]


class CallsItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return super().__call__(*args)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.calls


class HoldsOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = CallsItself()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def test_a_module_with_a_call_of_its_own_is_called_by_it() -> None:
    assert thrice(script(HoldsOne())) == thrice(HoldsOne())
