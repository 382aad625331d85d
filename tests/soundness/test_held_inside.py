"""What a program reads through objects, containers and functions that its modules hold."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import operator
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphwright import GuardError, trace

X = torch.ones(2, 4)


class Limit:
    limit = 1.0

    def apply(self, x: Tensor) -> Tensor:
        return x * self.limit


class Plain:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Slotted:
    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


@dataclasses.dataclass
class Record:
    tensor: Tensor


LONG, NESTED = [*range(1000)], [[i] for i in range(500)]


def multiplied(by: int) -> Callable[[Tensor], Tensor]:
    def multiply(x: Tensor) -> Tensor:
        return x * by

    return multiply


class Holder(nn.Module):
    def __init__(self, run: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.run, self.k = run, 2
        ones = torch.ones(4)
        self.layer = nn.Linear(4, 4)
        self.in_list, self.in_dict, self.in_tuple, self.deep = [Limit()], {"a": Limit()}, (Limit(),), [[Limit()]]
        self.space, self.plain = types.SimpleNamespace(tensor=ones), Plain(ones.clone())
        self.slotted, self.record = Slotted(ones.clone()), Record(ones.clone())
        self.inner = types.SimpleNamespace(space=types.SimpleNamespace(tensor=ones.clone()))
        self.listed = [types.SimpleNamespace(tensor=ones.clone())]
        self.several = types.SimpleNamespace(tensors=[ones.clone()])
        self.tied = types.SimpleNamespace(weight=self.layer.weight)
        self.part = functools.partial(F.linear, weight=self.layer.weight)
        self.added = functools.partial(torch.add, ones.clone())
        self.own, self.bound, self.scaled = functools.partial(self.method, times=2), self.method, lambda x: x * self.k
        self.times, self.tables = multiplied(2), {"times": multiplied(3)}
        self.of_space = types.SimpleNamespace(times=multiplied(4))
        self.methods, self.called = {"a": self.method}, self.layer.forward
        self.config = types.SimpleNamespace(b=2)
        self.get, self.take, self.call = (
            operator.attrgetter("config.b"), operator.itemgetter(0), operator.methodcaller("factor", 3)
        )  # fmt: skip

    def method(self, x: Tensor, times: int = 1) -> Tensor:
        return self.layer(x) * self.k * times

    def factor(self, by: int) -> int:
        return by

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def put(path: str, value: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        *owners, name = path.split(".")
        for owner in owners:
            model = model[int(owner)] if owner.isdigit() else getattr(model, owner)
        setattr(model, name, value() if isinstance(value, type | types.LambdaType) else value)

    return change


def zeros() -> Tensor:
    return torch.zeros(4)


def weight() -> nn.Parameter:
    return nn.Parameter(torch.zeros(4, 4))


WAYS: dict[str, tuple[Callable[[Any, Tensor], Any], Callable[[Any], Any]]] = {
    "class, in a list": (lambda m, x: m.in_list[0].apply(x), lambda m: setattr(Limit, "limit", 0.5)),
    "class, in a dict": (lambda m, x: m.in_dict["a"].apply(x), lambda m: setattr(Limit, "limit", 0.5)),
    "class, in a tuple": (lambda m, x: m.in_tuple[0].apply(x), lambda m: setattr(Limit, "limit", 0.5)),
    "class, deep inside": (lambda m, x: m.deep[0][0].apply(x), lambda m: setattr(Limit, "limit", 0.5)),
    "object deep inside": (lambda m, x: m.deep[0][0].apply(x), put("deep.0.0.limit", 0.5)),
    "method, in a list": (lambda m, x: m.in_list[0].apply(x), lambda m: setattr(Limit, "apply", lambda self, x: x)),
    "tensor of a namespace": (lambda m, x: x + m.space.tensor, put("space.tensor", zeros)),
    "tensor of another namespace": (
        lambda m, x: x + m.space.tensor, put("space", lambda: types.SimpleNamespace(tensor=zeros())),
    ),
    "tensor of an object": (lambda m, x: x + m.plain.tensor, put("plain.tensor", zeros)),
    "tensor of a slot": (lambda m, x: x + m.slotted.tensor, put("slotted.tensor", zeros)),
    "tensor of a record": (lambda m, x: x + m.record.tensor, put("record.tensor", zeros)),
    "tensor deep inside": (lambda m, x: x + m.inner.space.tensor, put("inner.space.tensor", zeros)),
    "tensor of an object in a list": (lambda m, x: x + m.listed[0].tensor, put("listed.0.tensor", zeros)),
    "tensor in a list of an object": (
        lambda m, x: x + m.several.tensors[0], lambda m: m.several.tensors.__setitem__(0, zeros()),
    ),
    "size of a tensor": (lambda m, x: x * m.space.tensor.shape[0], put("space.tensor", lambda: torch.ones(1))),
    "size of a tensor of an object": (
        lambda m, x: x * m.plain.tensor.shape[0], put("plain.tensor", lambda: torch.ones(1)),
    ),
    "size of a tensor of a slot": (
        lambda m, x: x * m.slotted.tensor.shape[0], put("slotted.tensor", lambda: torch.ones(1)),
    ),
    "size of a tensor that is resized": (
        lambda m, x: x * m.plain.tensor.shape[0], lambda m: m.plain.tensor.resize_(1),
    ),
    "size of a tensor in a list of an object": (
        lambda m, x: x * m.several.tensors[0].shape[0], lambda m: m.several.tensors.__setitem__(0, torch.ones(1)),
    ),
    "object with a tensor, whose size counts": (
        lambda m, x: x * m.space.tensor.shape[0], put("space", lambda: types.SimpleNamespace(tensor=torch.ones(1))),
    ),
    "weight of an object": (lambda m, x: F.linear(x, m.tied.weight), put("tied.weight", weight)),
    "weight that an object has, too": (lambda m, x: F.linear(x, m.tied.weight), put("layer.weight", weight)),
    "weight that a function has, too": (lambda m, x: m.part(x), put("layer.weight", weight)),
    "function with a weight": (
        lambda m, x: m.part(x), put("part", lambda: functools.partial(F.linear, weight=weight())),
    ),
    "function with a tensor": (lambda m, x: m.added(x), put("added", lambda: functools.partial(torch.add, zeros()))),
    "method with arguments": (lambda m, x: m.own(x), put("k", 3)),
    "bound method": (lambda m, x: m.bound(x), put("k", 3)),
    "bound method, by another": (lambda m, x: m.bound(x), lambda m: setattr(m, "bound", m.scaled)),
    "bound method, its defaults": (lambda m, x: m.bound(x), lambda m: put_defaults(9)),
    "bound method in a dict": (lambda m, x: m.methods["a"](x), put("k", 3)),
    "function around the module": (lambda m, x: m.scaled(x), put("k", 3)),
    "closure, another": (lambda m, x: m.times(x), lambda m: setattr(m, "times", multiplied(7))),
    "closure in a dict": (lambda m, x: m.tables["times"](x), lambda m: m.tables.update(times=multiplied(7))),
    "closure of an object": (lambda m, x: m.of_space.times(x), lambda m: setattr(m.of_space, "times", multiplied(7))),
    "long list": (lambda m, x: x * LONG[3], lambda m: LONG.__setitem__(3, LONG[3] + 77)),
    "long list, what is added": (lambda m, x: x * len(LONG), lambda m: LONG.append(1)),
    "long list of lists": (lambda m, x: x * NESTED[3][0], lambda m: NESTED[3].__setitem__(0, NESTED[3][0] + 77)),
    "getter, what it reads": (lambda m, x: x * m.get(m), put("config.b", 5)),
    "getter": (lambda m, x: x * m.get(m), put("get", operator.attrgetter("k"))),
    "getter of items": (lambda m, x: m.take((x, -x)), put("take", operator.itemgetter(1))),
    "caller": (lambda m, x: x * m.call(m), put("call", operator.methodcaller("factor", 5))),
    "caller, what it calls": (lambda m, x: x * m.call(m), lambda m: setattr(Holder, "factor", lambda self, by: 7)),
}  # fmt: skip


def put_defaults(times: int) -> None:
    Holder.method.__defaults__ = (times,)


@pytest.fixture(autouse=True)
def _restored() -> Any:
    apply, factor = Limit.apply, Holder.factor
    yield
    Limit.apply, Limit.limit, Holder.factor = apply, 1.0, factor  # type: ignore[method-assign]
    put_defaults(1)


def made(way: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = Holder(WAYS[way][0])
    return trace(model, (X,)), model


FOLLOWED = {  # read at each call
    "tensor of an object", "tensor of a slot", "tensor of a record", "tensor of a namespace",
    "tensor of another namespace", "tensor deep inside",
}  # fmt: skip


@pytest.mark.parametrize("is_copy", [False, True], ids=["captured", "copy"])
@pytest.mark.parametrize("way", WAYS)
def test_what_changes_inside_of_what_modules_hold_is_seen(way: str, is_copy: bool) -> None:
    gm, model = made(way)
    gm = copy.deepcopy(gm) if is_copy else gm
    for _ in range(2):
        assert torch.equal(gm(X), model(X))
    WAYS[way][1](gm)
    if way in FOLLOWED:
        WAYS[way][1](model)
        assert torch.equal(gm(X), model(X))
        return
    with pytest.raises(GuardError):
        gm(X)


def test_functions_around_a_module_lead_to_the_captured_one() -> None:
    torch.manual_seed(0)
    model = Holder(lambda m, x: m.own(x))
    gm, twin = trace(model, (X,)), copy.deepcopy(model)
    gm.layer.register_forward_hook(lambda module, args, out: out * 2)
    twin.layer.register_forward_hook(lambda module, args, out: out * 2)
    assert torch.equal(gm(X), twin.method(X, times=2))


class Computed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.k = 2

    @functools.cached_property
    def factor(self) -> int:
        return 3 * self.k

    def forward(self, x: Tensor) -> Any:
        return x * self.factor


def test_what_is_computed_once_may_have_been_set_before() -> None:
    gm, model = trace(Computed(), (X,)), Computed()
    gm.factor = model.factor = 11  # type: ignore[misc]
    assert torch.equal(gm(X), model(X))
    gm, model = trace(Computed(), (X,)), Computed()
    for _ in range(3):
        assert torch.equal(gm(X), model(X))
    assert gm.factor == model.factor


class Drawn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.of = torch.distributions.Bernoulli(0.5)

    def forward(self, x: Tensor) -> Any:
        return x * self.of.sample((x.size(0), 1)) if self.of.probs > 0.1 else x


def test_what_an_object_holds_is_no_property_where_its_class_would_compute_it_once() -> None:
    gm = trace(Drawn(), (X,))
    torch.manual_seed(0)
    expected = Drawn()(X)
    torch.manual_seed(0)
    assert torch.equal(gm(X), expected)


class Pair(NamedTuple):
    first: Any
    second: int = 1


class Filling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(collections.OrderedDict(a=1))

    def forward(self, x: Tensor) -> Tensor:
        self.pair.first["a"] += 1
        return x * self.pair.first["a"]


def test_what_a_named_tuple_holds_is_kept_as_what_a_tuple_holds() -> None:
    gm, model = trace(Filling(), (X,)), Filling()
    for _ in range(3):
        assert torch.equal(gm(X), model(X))
    assert gm.pair == model.pair


class Queue(nn.Module):
    def __init__(self, around: Callable[[Any], Any]) -> None:
        super().__init__()
        self.queue = collections.deque([torch.ones(2, 4), torch.ones(2, 4)])
        self.held = around(self.queue)

    def forward(self, x: Tensor) -> Tensor:
        held = self.held.tensor if isinstance(self.held, Plain) else self.held
        return torch.stack([x * item for item in held])


@pytest.mark.parametrize("change", [
    lambda queue: queue.append(torch.ones(2, 4)), lambda queue: queue.pop(),
    lambda queue: queue.__setitem__(-1, torch.zeros(2, 4)), lambda queue: queue.__setitem__(0, 2.5),
])  # fmt: skip
@pytest.mark.parametrize("around", [lambda queue: queue, Plain])
def test_what_is_in_a_deque_is_taken_for_granted(around: Any, change: Callable[[Any], Any]) -> None:
    gm = trace(Queue(around), (X,))
    gm(X)
    change(gm.held.tensor if around is Plain else gm.held)
    with pytest.raises(GuardError, match=r"self\.held"):
        gm(X)


@pytest.mark.parametrize("around", [lambda run: [run], lambda run: Pair(run), lambda run: [Plain(run)]])
def test_the_code_of_functions_that_something_holds_is_taken_for_granted(around: Any) -> None:
    class Calling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = around(lambda x, by=2: x * by)

        def forward(self, x: Tensor) -> Tensor:
            held = self.held[0]
            return (held.tensor if isinstance(held, Plain) else held)(x)

    gm = trace(Calling(), (X,))
    gm(X)
    held = gm.held[0]
    (held.tensor if isinstance(held, Plain) else held).__defaults__ = (3,)
    with pytest.raises(GuardError, match="code or defaults"):
        gm(X)


@pytest.mark.parametrize("read", [lambda held: vars(held), copy.copy, lambda held: held.__dict__])
@pytest.mark.parametrize("around", [lambda held: [held], lambda held: {0: held}, lambda held: Pair([held])])
def test_attributes_that_are_read_all_at_once_are_taken_for_granted(around: Any, read: Callable[[Any], Any]) -> None:
    class Unnamed:
        def __init__(self) -> None:
            setattr(self, "some" + "thing", 2)

    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = around(Unnamed())

        def forward(self, x: Tensor) -> Any:
            held = self.held[0]
            return x, read(held[0] if isinstance(held, list) else held)

    gm = trace(Reading(), (X,))
    gm(X)
    held = gm.held[0]
    vars(held[0] if isinstance(held, list) else held)["something"] = 5
    with pytest.raises(GuardError, match=r"something was 2"):
        gm(X)


class Keyed(nn.Module):
    def __init__(self, key: Any, held: Any) -> None:
        super().__init__()
        self.held = {key: held}
        (self.key,) = self.held

    def forward(self, x: Tensor) -> Tensor:
        for held in self.held.values():
            x = held(x) if isinstance(held, nn.Module) else x * held.limit
        return x


@pytest.mark.parametrize("key", [0, "a.b", (0, 1), 2.5, None])
def test_what_a_dict_holds_is_taken_for_granted_whatever_its_keys(key: Any) -> None:
    gm, other = trace(Keyed(key, Limit()), (X,)), trace(Keyed(key, nn.ReLU()), (X,))
    assert torch.equal(gm(X), X)
    assert torch.equal(copy.deepcopy(gm)(X), X)
    gm.held[key].limit = 3.0
    with pytest.raises(GuardError, match="limit"):
        gm(X)
    other.held[key] = nn.Sigmoid()
    with pytest.raises(GuardError, match="ReLU"):
        other(X)


class AsksItems(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held: list[Any] = [{"a": torch.ones(2)}, 0]

    def forward(self, x: Tensor) -> tuple[Tensor, str, str]:
        kind = type(self.held[0]).__name__
        return x * 2, kind, self.held[0]["a"].__class__.__name__


def test_the_class_of_what_is_inside_of_a_container_is_its_own() -> None:
    gm, x = trace(AsksItems(), (torch.ones(2),)), torch.ones(2)
    assert gm(x)[1:] == AsksItems()(x)[1:] == ("dict", "Tensor")
